/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the users of an lcore leave to each other: places for packets that wait for copies, and the
 * time of its driver.  And which of its buffers for copies keep their pages. */
#include <criterion/criterion.h>
#include <rte_mbuf.h>
#include <sys/mman.h>

#include "copies.h"
#include "engine_bed.h"
#include "lcore.h"
#include "workers.h"

#define MBUFS   2048u
#define PACKETS 1500u
#define ROOM    64u /* packets for which a user who has none finds a place */

struct places {
	struct engine_bed bed;
	struct eng_lcore *lc;
	struct karst_pkt *pkt[PACKETS];
	uint32_t n;
};

static void
places_up(struct places *p)
{
	struct engine_bed_config cfg = {.engine = {.name = "copies", .mbufs = MBUFS}};

	p->n = 0;
	engine_bed_up(&p->bed, &cfg);
	p->lc = &p->bed.e->lcore[0];
}

static void
release_all(struct places *p)
{
	while (p->n > 0)
		eng_unmapped_ops.release(p->lc->core, p->pkt[--p->n]);
	cr_expect_eq(p->lc->copies->nkept, 0);
	cr_expect_eq(p->lc->copies->nbehind, 0);
}

/* Keeps a packet for @c.  @return false: there is no place. */
static bool
keep_one(struct places *p, struct eng_copy *c)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(p->lc->pool);
	struct karst_pkt *pkt;

	cr_assert_not_null(m);
	cr_assert_lt(p->n, PACKETS);
	pkt = eng_unmapped_ops.keep(p->lc->core, &c->pub, rte_mbuf_to_priv(m));
	if (pkt == NULL)
		rte_pktmbuf_free(m);
	else
		p->pkt[p->n++] = pkt;
	return pkt != NULL;
}

/* Users who collude have taken as many places as they get, before and after it is known that their
 * programs are slow.  There are places for another user, whose program is taken for a slow one,
 * too, and for the packet of each copy. */
Test(copies, places_beside_users_who_collude)
{
	struct eng_copy c[6] = {{.user = 0}}, own = {.phase = ENG_COPY_CORE};
	uint32_t i, users, kept;
	struct places p;
	bool more;

	places_up(&p);
	for (users = 1; users < KARST_DIM(c); users++) {
		for (i = 0; i < KARST_DIM(c); i++) {
			c[i].user = (uint16_t)(i + 1);
			atomic_store(&c[i].phase, ENG_COPY_RUNNING);
		}
		for (i = 0; i < ENG_COPIES * users / (users + 1); i++)
			cr_assert(keep_one(&p, &own), "copy %u of %u users", i, users);
		do {
			for (i = 0, more = false; i < users; i++) {
				c[i].slow = false;
				more |= keep_one(&p, &c[i]);
				c[i].slow = true;
				more |= keep_one(&p, &c[i]);
			}
		} while (more);
		c[users].slow = true;
		for (kept = 0; kept < ROOM && keep_one(&p, &c[users]);)
			kept++;
		cr_expect_eq(kept, ROOM, "%u packets beside %u users", kept, users);
		for (i = ENG_COPIES * users / (users + 1); i < ENG_COPIES; i++)
			cr_assert(keep_one(&p, &own), "copy %u of %u users", i, users);
		release_all(&p);
	}
	engine_bed_down(&p.bed);
}

/* A program with many copies that take a little longer than usual is not slow: the processor is.
 * One with a few that take long is. */
Test(copies, who_is_slow)
{
	struct karst_space space = {0};
	struct eng_copy c = {.where[0].space = &space};
	uint64_t now = 1000000000;
	struct places p;
	uint32_t i;

	places_up(&p);
	for (i = 0; i < 200; i++)
		eng_copy_took(p.lc, &c, now, ENG_COPY_SLOW_NS * 6 / 5);
	cr_expect_eq(atomic_load(&space.slow.until_ns), 0, "many copies");
	for (i = 0; i < 12; i++)
		eng_copy_took(p.lc, &c, now + i, ENG_COPY_SLOW_NS * 5);
	cr_expect_gt(atomic_load(&space.slow.until_ns), now, "slow copies");
	engine_bed_down(&p.bed);
}

static uint32_t
resident_rooms(const struct eng_copies *cs)
{
	uint32_t i, n = 0;

	for (i = 0; i < cs->nused; i++) {
		unsigned char in = 0;

		cr_assert_eq(mincore((void *)(uintptr_t)cs->room[i], 4096, &in), 0);
		n += in & 1;
	}
	return n;
}

/* While others hold many copies, one that is made again and again has a buffer with pages. */
Test(copies, rooms_with_pages)
{
	struct karst_copy *held[64], *c;
	struct eng_copies *cs;
	struct places p;
	uint32_t i;

	places_up(&p);
	cs = p.lc->copies;
	for (i = 0; i < KARST_DIM(held); i++) {
		held[i] = eng_unmapped_ops.take(p.lc->core);
		cr_assert_not_null(held[i]);
		held[i]->pkt = NULL;
		held[i]->room[0] = 1;
	}
	for (i = 0; i < 4; i++) {
		c = eng_unmapped_ops.take(p.lc->core);
		cr_assert_not_null(c);
		c->pkt = NULL;
		c->room[0] = 1;
		eng_unmapped_ops.give_back(p.lc->core, c);
		cr_assert(eng_copies_run(p.lc));
		cr_expect_eq(resident_rooms(cs), KARST_DIM(held) + 1, "its pages are gone");
		cr_expect_eq(cs->nused, KARST_DIM(held) + 1);
	}
	for (i = 0; i < KARST_DIM(held); i++)
		eng_unmapped_ops.give_back(p.lc->core, held[i]);
	cr_assert(eng_copies_run(p.lc));
	cr_expect_leq(resident_rooms(cs), 16, "%u keep their pages", resident_rooms(cs));
	for (i = 0; i < ENG_COPIES; i++) {
		c = eng_unmapped_ops.take(p.lc->core);
		cr_assert_not_null(c, "copy %u", i);
	}
	cr_expect_null(eng_unmapped_ops.take(p.lc->core));
	engine_bed_down(&p.bed);
}
