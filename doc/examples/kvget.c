/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A key-value store whose clients look up keys by RDMA READ, without using the server's processor.
 *
 *     kvget --tcp 7472                 the server
 *     kvget --tcp 7472 HOST            the client
 *
 * The store is an open-addressing hash table with slots of a fixed size.  The client reads the slot
 * that the hash of the key selects, and then the following ones.  The server changes values while
 * they are read, so a READ may return a slot that is half old and half new.  The slot's checksum
 * detects that, and the client reads again.
 */
#include "example.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
	"usage: kvget [OPTION...]         the server\n"
	"       kvget [OPTION...] HOST    the client\n"
	"\n"
	"Looks values up in the server's memory by RDMA READ, and verifies them.\n"
	"\n"
	"  --count N         look-ups; default 1000\n"
	"  --size N          keys in the store; default 500\n";

struct slot {
	char key[32]; /* empty: no entry, and the end of a search */
	uint32_t version;
	uint32_t check; /* of everything else */
	char value[88];
};

static uint32_t
hash(const void *data, size_t len, uint32_t h)
{
	const uint8_t *p = data;

	while (len-- > 0)
		h = (h ^ *p++) * 16777619u;
	return h;
}

static uint32_t
checksum(const struct slot *s)
{
	uint32_t h = hash(s->key, sizeof(s->key), 2166136261u);

	h = hash(&s->version, sizeof(s->version), h);
	return hash(s->value, sizeof(s->value), h);
}

static void
make_slot(struct slot *s, unsigned long number, uint32_t version)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->key, sizeof(s->key), "key-%lu", number);
	snprintf(s->value, sizeof(s->value), "value %" PRIu32 " of key %lu", version, number);
	s->version = version;
	s->check = checksum(s);
}

static uint64_t
home(const char *key, uint64_t slots)
{
	return hash(key, strlen(key), 2166136261u) % slots;
}

/* --- the server --- */

static struct slot *
place_for(struct slot *table, uint64_t slots, const char *key)
{
	uint64_t i = home(key, slots);

	while (table[i].key[0] != 0 && strcmp(table[i].key, key) != 0)
		i = (i + 1) % slots;
	return &table[i];
}

static void
put(struct slot *table, uint64_t slots, unsigned long number, uint32_t version)
{
	struct slot s;

	make_slot(&s, number, version);
	memcpy(place_for(table, slots, s.key), &s, sizeof(s));
}

static void
serve(struct example *x, const struct example_opts *o)
{
	uint64_t slots = 2 * o->size + 1; /* half of it stays empty */
	struct example_link link;
	struct karst_mr *mr;
	struct slot *table = example_memory(x, slots * sizeof(*table), &mr);
	struct pollfd client;
	unsigned long i;
	uint32_t version;

	for (i = 0; i < o->size; i++)
		put(table, slots, i, 0);
	example_link(x, o, example_accept(example_listen(o)), mr, &link);
	/* writes new versions until the client reaches its example_meet() */
	client = (struct pollfd){.fd = link.tcp, .events = POLLIN};
	for (version = 1; poll(&client, 1, 1) == 0; version++)
		for (i = 0; i < o->size; i++)
			put(table, slots, i, version);
	example_meet(&link);
	printf("served %lu keys in up to %" PRIu32 " versions\n", o->size, version);
	example_unlink(&link);
	example_free(table, mr);
}

/* --- the client --- */

static void
read_slot(struct example *x, const struct example_link *link, const struct karst_mr *mr,
	uint64_t index)
{
	struct karst_sge sge = {.addr = mr->iova, .len = sizeof(struct slot), .lkey = mr->lkey};
	struct karst_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_RDMA_READ,
		.send_flags = KARST_SEND_SIGNALED,
		.rdma = {.remote_addr = link->addr + index * sizeof(struct slot),
			.rkey = link->rkey},
	};

	example_check(karst_post_send(link->qp, &wr, NULL), "karst_post_send");
	example_wait(x);
}

/* @return false: there is no such key.  *@again counts slots that changed during the READ. */
static bool
get(struct example *x, const struct example_link *link, const struct karst_mr *mr,
	const struct slot *seen, const char *key, unsigned long *again)
{
	uint64_t slots = link->length / sizeof(*seen), i = home(key, slots);

	for (;;) {
		read_slot(x, link, mr, i);
		if (seen->key[0] == 0)
			return false;
		if (seen->check != checksum(seen))
			++*again;
		else if (strcmp(seen->key, key) == 0)
			return true;
		else
			i = (i + 1) % slots;
	}
}

static void
look_up(struct example *x, const struct example_opts *o)
{
	struct example_link link;
	struct karst_mr *mr;
	struct slot *seen = example_memory(x, sizeof(*seen), &mr), expected;
	unsigned long i, again = 0;
	uint32_t newest = 0;
	char key[32];

	example_link(x, o, example_connect(o), NULL, &link);
	for (i = 0; i < o->count; i++) {
		make_slot(&expected, i % o->size, 0);
		if (!get(x, &link, mr, seen, expected.key, &again))
			example_die("%s is missing", expected.key);
		make_slot(&expected, i % o->size, seen->version);
		if (memcmp(seen, &expected, sizeof(*seen)) != 0)
			example_die("%s: '%s', expected '%s'", expected.key, seen->value,
				expected.value);
		if (seen->version > newest)
			newest = seen->version;
	}
	snprintf(key, sizeof(key), "key-%lu", o->size);
	if (get(x, &link, mr, seen, key, &again))
		example_die("%s is there, but was never put", key);
	printf("%lu look-ups, all of them right, up to version %" PRIu32
	       "; %lu read again because the value was changing\n",
		o->count, newest, again);
	example_meet(&link);
	example_unlink(&link);
	example_free(seen, mr);
}

int
main(int argc, char **argv)
{
	struct example_opts o = {.port = 1, .tcp_port = "7472", .count = 1000, .size = 500};
	struct example x;

	example_options(argc, argv, &o, usage);
	if (o.size == 0 || o.size > 1000000)
		example_die("--size %lu: 1 to 1000000", o.size);
	example_open(&x, &o);
	if (o.host != NULL)
		look_up(&x, &o);
	else
		serve(&x, &o);
	example_close(&x);
	return 0;
}
