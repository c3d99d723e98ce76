/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Reads and writes, all of which are checked with the namespace's shadow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host.h"

#define WRITE_SHARE 2u  /* one in so many is a write */
#define FLUSH_SHARE 16u /* one in so many is a flush instead */

struct nh_ns *
nh_ns_of(struct nh *h, uint32_t nsid)
{
	struct nh_ns *ns = h->ns;

	while (ns < h->ns + h->nns && ns->nsid != nsid)
		ns++;
	if (ns == h->ns + h->nns)
		nh_die("namespace %u is not there", nsid);
	if (ns->shadow == NULL)
		ns->shadow = calloc(ns->blocks, (size_t)1 << ns->shift);
	nh_must(ns->shadow != NULL, "calloc");
	return ns;
}

static uint8_t *
shadow_of(const struct nh_ns *ns, uint64_t block)
{
	return ns->shadow + (block << ns->shift);
}

static struct nh_cmd *
make(struct nh_queue *queue, const struct nh_ns *ns, enum nvme_io_opcode opcode, uint64_t block,
	uint32_t n)
{
	struct nh_cmd *cmd = nh_cmd_get(queue, (uint8_t)opcode, ns->nsid);

	nh_must(cmd != NULL, "a free command");
	cmd->block = block;
	nvme_put64(cmd->capsule + SQE_CDW10, block);
	nvme_put16(cmd->capsule + SQE_CDW12, (uint16_t)(n - 1));
	return cmd;
}

static struct nh_cmd *
make_read(struct nh_queue *queue, const struct nh_ns *ns, uint64_t block, uint32_t n)
{
	struct nh_cmd *cmd = make(queue, ns, NVME_IO_READ, block, n);

	nh_cmd_data(cmd, NH_FROM_TARGET, n << ns->shift, false);
	return cmd;
}

/* Fills in new data, which the shadow has from now on. */
static struct nh_cmd *
make_write(struct nh_queue *queue, struct nh_ns *ns, uint64_t block, uint32_t n, bool in_capsule)
{
	struct nh_cmd *cmd = make(queue, ns, NVME_IO_WRITE, block, n);
	uint32_t word, i;

	nh_cmd_data(cmd, NH_TO_TARGET, n << ns->shift, in_capsule);
	for (i = 0; i < cmd->len; i += sizeof(word)) {
		word = nh_random(queue->host, UINT32_MAX);
		memcpy(cmd->data + i, &word, sizeof(word));
	}
	memcpy(shadow_of(ns, block), cmd->data, cmd->len);
	return cmd;
}

/* Checks an answer that has arrived. */
static void
judge(const struct nh_ns *ns, struct nh_cmd *cmd)
{
	uint8_t opcode = cmd->capsule[SQE_OPCODE];
	uint32_t i;

	if (cmd->status != NVME_OK)
		nh_die("namespace %u, opcode %u, %u bytes at block %llu: status %#x", ns->nsid,
			opcode, cmd->len, (unsigned long long)cmd->block, cmd->status);
	if (opcode == NVME_IO_READ && memcmp(cmd->data, shadow_of(ns, cmd->block), cmd->len) != 0) {
		for (i = 0; cmd->data[i] == shadow_of(ns, cmd->block)[i]; i++)
			;
		nh_die("namespace %u, queue %u: %u bytes at block %llu: byte %u is %#x, not %#x",
			ns->nsid, cmd->queue->qid, cmd->len, (unsigned long long)cmd->block, i,
			cmd->data[i], shadow_of(ns, cmd->block)[i]);
	}
	nh_cmd_put(cmd);
}

static void
run(const struct nh_ns *ns, struct nh_cmd *cmd)
{
	nh_run(cmd);
	judge(ns, cmd);
}

/* --- one at a time --- */

/* Writes and reads back by the given access, anywhere in the namespace. */
static void
there_and_back(struct nh *h, struct nh_ns *ns, uint32_t turn, uint32_t n, bool in_capsule)
{
	struct nh_queue *queue = h->queue[1 + turn % h->opt.queues];
	uint64_t block = nh_random(h, (uint32_t)(ns->blocks - n + 1));

	run(ns, make_write(queue, ns, block, n, in_capsule));
	run(ns, make_read(h->queue[1 + (turn + 1) % h->opt.queues], ns, block, n));
}

void
nh_io_sizes(struct nh *h, struct nh_ns *ns)
{
	static const uint32_t around[] = {0, 4096, 8192, 16384, 65536, 131072, 262144, 1 << 20};
	uint32_t most = h->max_data >> ns->shift, turn = 0, i;
	int step;

	for (i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
		for (step = -1; step <= 1; step++) {
			int64_t n = ((int64_t)around[i] >> ns->shift) + step;

			if (n <= 0 || n > most || (uint64_t)n > ns->blocks)
				continue;
			there_and_back(h, ns, turn++, (uint32_t)n, false);
			if ((uint32_t)n << ns->shift <= h->in_capsule)
				there_and_back(h, ns, turn++, (uint32_t)n, true);
		}
	}
	printf("namespace %u: %u sizes are right\n", ns->nsid, turn);
}

void
nh_io_flush(struct nh *h, struct nh_ns *ns)
{
	nh_run_to(nh_cmd_get(h->queue[1], NVME_IO_FLUSH, ns->nsid), NVME_OK, "Flush");
}

void
nh_io_zeroes(struct nh *h, struct nh_ns *ns)
{
	uint32_t n = (uint32_t)(ns->blocks / 4 < 64 ? ns->blocks / 4 : 64);
	uint64_t block = nh_random(h, (uint32_t)(ns->blocks - 2 * n));

	run(ns, make_write(h->queue[1], ns, block, 2 * n, false));
	memset(shadow_of(ns, block + n / 2), 0, n << ns->shift);
	run(ns, make(h->queue[1], ns, NVME_IO_WRITE_ZEROES, block + n / 2, n));
	run(ns, make_read(h->queue[1], ns, block, 2 * n));
	printf("namespace %u: zeroes are right\n", ns->nsid);
}

void
nh_io_beyond(struct nh *h, struct nh_ns *ns)
{
	struct nh_cmd *cmd = make_read(h->queue[1], ns, ns->blocks - 1, 2);

	nh_run(cmd);
	if (nh_code(cmd) != NVME_LBA_RANGE && nh_code(cmd) != NVME_CAPACITY)
		nh_die("a read beyond the end: status %#x", cmd->status);
	nh_cmd_put(cmd);
	run(ns, make_read(h->queue[1], ns, ns->blocks - 1, 1));
	printf("namespace %u: its end is right\n", ns->nsid);
}

void
nh_io_unknown(struct nh *h, struct nh_ns *ns)
{
	struct nh_cmd *cmd = make(h->queue[1], ns, (enum nvme_io_opcode)0x7d, 0, 1);

	nh_cmd_data(cmd, NH_TO_TARGET, 1u << ns->shift, false);
	nh_run_to(cmd, NVME_INVALID_OPCODE, "a command that is not there");
	run(ns, make_read(h->queue[1], ns, 0, 1));
	printf("namespace %u: what is not there is refused\n", ns->nsid);
}

void
nh_io_stale(struct nh *h, struct nh_ns *ns)
{
	struct nh_queue *queue = h->queue[1];
	struct nh_cmd *cmd = make_read(queue, ns, 0, 1);
	uint32_t i;

	if (cmd->window == NULL)
		nh_die("keys that end are those of windows");
	run(ns, cmd);
	cmd = make_read(queue, ns, 0, 1);
	cmd->stale = true;
	h->may_end = true;
	nh_cmd_post(cmd);
	while (queue->ended == NULL)
		nh_wait(h);
	for (i = 1; i < cmd->len; i++)
		if (cmd->data[i] != cmd->data[0])
			nh_die("a key that has been invalidated was good for a write");
	printf("queue 1 ends: %s\n", queue->ended);
}

void
nh_io_hold(struct nh *h, struct nh_ns *ns)
{
	struct nh_queue *queue = h->queue[1];
	uint32_t i;

	queue->deaf = true;
	for (i = 0; i < queue->shape.entries; i++) /* until no receive is left */
		run(ns, make_read(queue, ns, 0, 1));
	for (i = 1; i < queue->shape.entries; i++)
		nh_cmd_post(make_read(queue, ns, 0, 1));
	printf("holds what it gets\n");
	fflush(stdout);
	for (;;)
		pause();
}

/* --- many at a time --- */

/* Each command of each queue has a part of the namespace to itself, so that the order in which
 * commands are executed does not matter. */
struct load {
	struct nh *h;
	struct nh_ns *ns;
	uint64_t part; /* blocks */
	uint32_t left, flying;
};

static uint32_t
some_blocks(struct load *load)
{
	uint64_t most = load->h->max_data >> load->ns->shift;
	uint32_t bits, n;

	most = load->part < most ? load->part : most;
	/* all magnitudes are equally likely */
	bits = nh_random(load->h, 64 - (uint32_t)__builtin_clzll(most));
	n = (1u << bits) + nh_random(load->h, 1u << bits);
	return n > most ? (uint32_t)most : n;
}

static void
post_some(struct load *load, struct nh_queue *queue)
{
	struct nh *h = load->h;
	struct nh_cmd *cmd = nh_cmd_get(queue, NVME_IO_FLUSH, load->ns->nsid);
	uint32_t n = some_blocks(load), index;
	uint64_t block;

	index = (queue->qid - 1u) * (queue->shape.entries - 1) + cmd->index;
	block = index * load->part + nh_random(h, (uint32_t)(load->part - n + 1));
	if (nh_random(h, FLUSH_SHARE) != 0) {
		cmd->state = NH_FREE; /* the first free one is this one again */
		if (nh_random(h, WRITE_SHARE) == 0)
			cmd = make_write(queue, load->ns, block, n, nh_random(h, 2) == 0);
		else
			cmd = make_read(queue, load->ns, block, n);
	}
	nh_cmd_post(cmd);
	load->flying++;
	load->left--;
}

static void
look_at(struct load *load, struct nh_queue *queue)
{
	uint32_t i;

	for (i = 0; i < queue->shape.entries - 1; i++) {
		if (queue->cmd[i].state == NH_ANSWERED) {
			judge(load->ns, &queue->cmd[i]);
			load->flying--;
		}
		if (queue->cmd[i].state == NH_FREE && load->left > 0)
			post_some(load, queue);
	}
}

void
nh_io_load(struct nh *h, struct nh_ns *ns, uint32_t commands)
{
	struct load load = {.h = h, .ns = ns, .left = commands};
	uint32_t i;

	load.part = ns->blocks / (h->opt.queues * (h->opt.entries - 1));
	nh_must(load.part > 0, "namespace large enough");
	do {
		for (i = 1; i <= h->opt.queues; i++)
			look_at(&load, h->queue[i]);
		if (load.flying > 0)
			nh_wait(h);
	} while (load.flying > 0 || load.left > 0);
	printf("namespace %u: %u commands are right\n", ns->nsid, commands);
}

void
nh_io_save(const struct nh_ns *ns, const char *path)
{
	size_t n = ns->blocks << ns->shift;
	FILE *f = fopen(path, "wb");

	nh_must(f != NULL && fwrite(ns->shadow, 1, n, f) == n && fclose(f) == 0, path);
}
