/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs attach and detach, and regions are registered and deregistered, thousands of times:
 * neither karstd nor the program may grow.  The regions cover every access method.
 */
#include "hostile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ATTACHES      300
#define REGISTRATIONS 3000
#define PIECES        4
#define PIECE_BYTES   (1u << 18)

struct start {
	const struct host *host;
	uint32_t attaches;
	uint32_t registrations;
	bool grown;
};

/* --- this process --- */

struct own {
	long fds, mappings, rss_kib;
};

static void
look(struct own *o)
{
	struct usage u = {0};

	process_usage(getpid(), &u);
	*o = (struct own){u.fds, u.mappings, u.rss_kib};
}

static void
check(struct report *r, const struct own *was, const char *what, bool grown)
{
	struct own is;

	look(&is);
	if (is.fds > was->fds)
		child_fail(r, "%s: %ld more descriptors", what, is.fds - was->fds);
	if (is.mappings > was->mappings + 16)
		child_fail(r, "%s: %ld more mappings", what, is.mappings - was->mappings);
	if (is.rss_kib > was->rss_kib + 4096 && !grown)
		child_fail(r, "%s: %ld KiB more private memory", what, is.rss_kib - was->rss_kib);
}

/* --- attaching and detaching --- */

static void
attach(struct report *r, const struct start *s, uint32_t n)
{
	for (; n > 0 && !atomic_load(&r->stop); n--) {
		struct end e;

		if (end_open(&e, s->host, "churn", 16384, n % 2) != 0 ||
			(n % 4 == 0 && end_qp(&e, KARST_QPT_RC) != 0))
			child_fail(r, "attaching: %s", karst_why());
		if (end_close(&e) != 0)
			child_fail(r, "detaching: %s", karst_why());
		atomic_fetch_add(&r->ops, 1);
	}
}

static void
registrations(struct report *r, struct karst_pd *pd, uint8_t *const *mem, uint32_t n)
{
	uint8_t stack[8192];
	uint32_t i;

	for (i = 0; i < n && !atomic_load(&r->stop); i++) {
		/* whole, and parts, so that edges have to be copied; sometimes a stack */
		uint8_t *at = i % 16 == 15 ? stack : mem[i % PIECES] + (i % 3) * 1000;
		size_t len = i % 16 == 15 ? sizeof(stack) : PIECE_BYTES - (i % 5) * 3000 - 2000;
		struct karst_mr *mr;

		if (karst_reg_mr(pd, at, len, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE,
			    &mr) != 0)
			child_fail(r, "registering: %s", karst_why());
		at[len / 2] = (uint8_t)i;
		if (karst_dereg_mr(mr) != 0)
			child_fail(r, "deregistering: %s", karst_why());
		if (at[len / 2] != (uint8_t)i)
			child_fail(r, "a byte has changed by deregistering");
		atomic_fetch_add(&r->ops, 1);
	}
}

static void
register_all(struct report *r, const struct start *s)
{
	uint8_t *mem[PIECES] = {
		karst_alloc(PIECE_BYTES),
		malloc(PIECE_BYTES),
		mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
		mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	};
	struct own before;
	struct end e;

	if (end_open(&e, s->host, "churn", 4096, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	registrations(r, e.pd, mem, s->registrations / 10 + 1);
	look(&before);
	registrations(r, e.pd, mem, s->registrations);
	check(r, &before, "registering", s->grown);
	if (end_close(&e) != 0)
		child_fail(r, "detaching: %s", karst_why());
}

static void
churn(struct report *r, void *arg)
{
	const struct start *s = arg;
	struct own before;

	attach(r, s, s->attaches / 10 + 1);
	look(&before);
	attach(r, s, s->attaches);
	check(r, &before, "attaching", s->grown);
	register_all(r, s);
}

/* The size of this process is not judged here, as other cases influence it. */
void
attack_churn(struct report *r, void *arg)
{
	const struct attack_start *a = arg;
	const struct start s = {
		.host = a->host, .attaches = 50, .registrations = 500, .grown = true};

	while (!atomic_load(&r->stop)) {
		attach(r, &s, s.attaches);
		register_all(r, &s);
	}
}

/* --- the case --- */

static bool
run(const struct start *s, struct innocents *in)
{
	struct child c;
	uint64_t ops = 0, until = now_ms() + HANG_S * 1000;
	bool good = true;

	if (!child_start(&c, churn, (void *)(uintptr_t)s))
		return false;
	while (good && child_alive(&c)) {
		sleep_ms(100);
		if (atomic_load(&c.report->ops) != ops)
			until = now_ms() + HANG_S * 1000;
		ops = atomic_load(&c.report->ops);
		if (now_ms() > until) {
			note("nothing happens any more after %" PRIu64 " rounds", ops);
			good = false;
		}
		good = (in == NULL || innocents_go_on(in)) && good;
	}
	return child_stop(&c, "program") && good;
}

bool
case_churn(const struct options *o)
{
	struct start s = {
		.attaches = o->attaches != 0 ? o->attaches : ATTACHES,
		.registrations = o->registrations != 0 ? o->registrations : REGISTRATIONS,
		.grown = o->grown,
	};
	struct innocents in;
	struct usage before;
	struct start warm;
	struct host h;
	bool good;

	if (!host_up(&h, o->karstd))
		return false;
	s.host = &h;
	warm = s;
	warm.attaches = s.attaches / 10 + 1;
	warm.registrations = s.registrations / 10 + 1;
	good = run(&warm, NULL);
	good = innocents_start(&in, &h, o->seed) && good;
	sleep_ms(500);
	host_usage(&h, &before);
	good = good && run(&s, &in);
	note("%u attachments, %u registrations", s.attaches, s.registrations);
	good &= host_settles(&h, &before, o->grown);
	good &= innocents_stop(&in);
	return host_end(&h, good);
}
