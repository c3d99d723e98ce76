/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Read the log of net_impair (karst-impair(5)), which tells what was done to which packets, so that
 * the capture can be judged against it.  A record is found by destination QP, PSN and opcode, and
 * by its time, which has to be within MATCH_NS of the packet's: capture and log have to come from
 * one machine.  If several records match, the nearest one is used, once.
 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "an_priv.h"

#define MATCH_NS   5000000
#define SURE_NS    200000 /* shorter than the time until a packet is sent again */
#define LINE_ROOM  4096
#define FIRST_MASK 1023

static uint32_t
injury_slot(const struct an *a, uint32_t qpn, uint32_t psn)
{
	return (uint32_t)((((uint64_t)qpn << 24 | psn) * 0x9e3779b97f4a7c15u) >> 32) &
		a->injury_mask;
}

static unsigned int
injury_fate(const char *event, const char *action, bool dropped)
{
	if (dropped || strcmp(event, "discarded") == 0)
		return AN_LOST;
	if (strcmp(action, "drop") == 0)
		return AN_LOST;
	if (strcmp(action, "duplicate") == 0)
		return AN_DUP;
	if (strcmp(action, "mark") == 0)
		return AN_CE;
	return AN_MAYBE; /* delayed, damaged, truncated */
}

static bool
injuries_grow(struct an *a)
{
	uint32_t mask = a->injury_hash == NULL ? FIRST_MASK : a->injury_mask * 2 + 1,
		 was = a->injury_mask, i;
	struct an_injury **old = a->injury_hash,
			 **h = calloc((size_t)mask + 1, sizeof(struct an_injury *));

	if (h == NULL)
		return false;
	a->injury_hash = h;
	a->injury_mask = mask;
	for (i = 0; old != NULL && i <= was; i++) {
		struct an_injury *e, *next;

		for (e = old[i]; e != NULL; e = next) {
			struct an_injury **at = &h[injury_slot(a, e->qpn, e->psn)];

			next = e->next;
			e->next = *at;
			*at = e;
		}
	}
	free(old);
	return true;
}

static uint8_t
opcode_of(const char *symbol)
{
	unsigned int i;

	for (i = 0; i < 256; i++)
		if (strcmp(karst_opcode_symbol((uint8_t)i), symbol) == 0)
			return (uint8_t)i;
	return 0xff;
}

static int
add(struct an *a, json_t *o)
{
	const char *event = NULL, *action = NULL, *opcode = NULL;
	json_int_t ns, qpn, psn, lost = 0;
	struct an_injury *e, **at;
	int dropped = 0; /* by a rate, which does not drop all that it hits */

	if (json_unpack(o, "{s:s}", "event", &event) != 0)
		return -EINVAL;
	if (strcmp(event, "lost") == 0) {
		if (json_unpack(o, "{s:I}", "records", &lost) != 0)
			return -EINVAL;
		a->injuries_lost += (uint64_t)lost;
		return 0;
	}
	if (strcmp(event, "injured") != 0 && strcmp(event, "discarded") != 0)
		return 0; /* rules, spared, released */
	if (json_unpack(o, "{s:s, s:s, s:I, s:I, s:I, s?b}", "action", &action, "opcode", &opcode,
		    "time_ns", &ns, "qpn", &qpn, "psn", &psn, "dropped", &dropped) != 0)
		return -EINVAL;
	if ((a->injury_hash == NULL || a->injuries > a->injury_mask) && !injuries_grow(a))
		return -ENOMEM;
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return -ENOMEM;
	e->ns = (uint64_t)ns;
	e->qpn = (uint32_t)qpn;
	e->psn = (uint32_t)psn & KARST_PSN_MASK;
	e->opcode = opcode_of(opcode);
	e->fate = (uint8_t)injury_fate(event, action, dropped != 0);
	at = &a->injury_hash[injury_slot(a, e->qpn, e->psn)];
	e->next = *at;
	*at = e;
	a->injuries++;
	return 0;
}

int
an_injuries_read(struct an *a, const char *path)
{
	FILE *f = fopen(path, "r");
	char line[LINE_ROOM];
	unsigned long n = 0;
	json_error_t err;
	int rc = 0;

	if (f == NULL) {
		fprintf(stderr, "karst-dump: --injuries %s: %s\n", path, strerror(errno));
		return -errno;
	}
	while (rc == 0 && fgets(line, sizeof(line), f) != NULL) {
		json_t *o = json_loads(line, 0, &err);

		n++;
		rc = json_is_object(o) ? add(a, o) : -EINVAL;
		json_decref(o);
	}
	if (rc == 0 && ferror(f))
		rc = -EIO;
	if (rc != 0)
		fprintf(stderr, "karst-dump: --injuries %s: line %lu: %s\n", path, n,
			rc == -EINVAL ? "not a record of net_impair's log" : strerror(-rc));
	fclose(f);
	a->have_log = rc == 0;
	return rc;
}

void
an_injury_of(struct an *a, const struct an_flow *f, struct an_pkt *p, uint64_t absolute_ns)
{
	struct an_injury *e, *best = NULL;
	uint64_t best_off = MATCH_NS;

	if (a->injury_hash == NULL)
		return;
	for (e = a->injury_hash[injury_slot(a, p->ib->dqpn, p->ib->psn)]; e != NULL; e = e->next) {
		uint64_t off = e->ns > absolute_ns ? e->ns - absolute_ns : absolute_ns - e->ns;

		if (!e->used && e->qpn == p->ib->dqpn && e->psn == p->ib->psn &&
			e->opcode == p->ib->opcode && off < best_off) {
			best = e;
			best_off = off;
		}
	}
	if (best == NULL || (best->fate == AN_LOST && an_sees_received(a, f)))
		return; /* the packet was captured there, so another transmission was lost */
	best->used = true;
	a->injuries_used++;
	p->fate = best->fate;
	if (p->fate == AN_LOST && (!an_sees_sent(a, f) || best_off > SURE_NS))
		p->fate = AN_MAYBE; /* this may be the next transmission, after that port */
	p->logged = true;
}

void
an_injuries_free(struct an *a)
{
	uint32_t i;

	for (i = 0; a->injury_hash != NULL && i <= a->injury_mask; i++) {
		struct an_injury *e, *next;

		for (e = a->injury_hash[i]; e != NULL; e = next) {
			next = e->next;
			free(e);
		}
	}
	free(a->injury_hash);
}
