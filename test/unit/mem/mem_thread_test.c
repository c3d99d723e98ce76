/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Lcores check, bind and invalidate while a control thread registers, re-registers, deregisters and
 * frees, with a grace period that is made of one counter per lcore.  Everything that a check grants
 * is read and compared, as plain memory: memory that must not be accessed is poisoned, and under
 * -Dsanitize=thread a missing ordering is reported.  A program of its own, because Criterion does
 * not start under that sanitizer.
 */
#include "mem_bed.h"

#include <pthread.h>
#include <sched.h>

#define LCORES  3u
#define REGIONS 8u
#define ROUNDS  600u
#define WORDS   64u
#define BIND_VA 0x10000ull

/* A buffer over which regions are registered in turn; each word holds the number of its
 * registration. */
struct target {
	uint64_t word[WORDS];
	uint64_t offer; /* number << 32 | key, for the lcores; 0: none */
};

struct lcore {
	pthread_t thread;
	struct bed *bed;
	uint64_t turns; /* quiescent points passed */
	unsigned int index, granted, bound, raced;
} karst_cache_aligned;

struct bed {
	struct karst_mem *m;
	struct target target[REGIONS];
	uint64_t fixed[2][WORDS]; /* under regions that windows are bound to */
	uint32_t fixed_mr[2];
	uint32_t pd;
	uint32_t shared1, shared2; /* windows that all lcores bind; their last known keys */
	uint32_t invalidated;      /* a region that lcores may invalidate; 0: none */
	bool stop;
	struct lcore lcore[LCORES];
};

/*
 * Quiescent points are atomic additions, which have one order: an lcore whose addition comes after
 * control's sees all that control did before; otherwise control waits for its next one.
 */
static void
quiesce(struct lcore *lc)
{
	__atomic_fetch_add(&lc->turns, 1, __ATOMIC_ACQ_REL);
}

static void
grace(struct bed *b)
{
	uint64_t seen[LCORES];
	unsigned int i;

	for (i = 0; i < LCORES; i++)
		seen[i] = __atomic_fetch_add(&b->lcore[i].turns, 0, __ATOMIC_ACQ_REL);
	for (i = 0; i < LCORES; i++)
		while (__atomic_load_n(&b->lcore[i].turns, __ATOMIC_ACQUIRE) == seen[i])
			sched_yield();
}

/* Where registration @number begins for its peers: different for each registration. */
static uint64_t
va_of(uint64_t number)
{
	return number << 20;
}

static void
look_at_targets(struct bed *b, struct lcore *lc, uint64_t *rng)
{
	struct target *t = &b->target[bed_rnd(rng) % REGIONS];
	uint64_t offer = __atomic_load_n(&t->offer, __ATOMIC_RELAXED);
	uint64_t number = offer >> 32, i = bed_rnd(rng) % WORDS;
	enum karst_mem_status s;
	uint8_t *host = NULL;

	if (offer == 0)
		return;
	s = karst_mem_check_remote(b->m, b->pd, 1, (uint32_t)offer, va_of(number) + 8 * i, 8,
		KARST_ACCESS_REMOTE_READ, &host);
	if (s == KARST_MEM_BAD_KEY)
		return;
	bed_check(s == KARST_MEM_OK);
	bed_check((void *)host == &t->word[i]);
	bed_check(t->word[i] == number);
	lc->granted++;
}

/* Two lengths and places, so that a mixture of two bindings would show. */
static struct karst_mw_bind
bind_of(const struct bed *b, unsigned int which, uint32_t key, uint32_t qpn)
{
	return (struct karst_mw_bind){.pd = b->pd,
		.qpn = qpn,
		.mw_key = key,
		.new_key = key,
		.mr_key = __atomic_load_n(&b->fixed_mr[which], __ATOMIC_RELAXED),
		.va = which ? 0 : BIND_VA,
		.len = which ? 8 : 8 * WORDS,
		.access = which ? KARST_ACCESS_REMOTE_READ : KARST_ACCESS_REMOTE_WRITE};
}

/* What a window of either binding grants is inside of that binding's buffer. */
static void
look_through_window(struct bed *b, struct lcore *lc, uint32_t qpn, uint32_t key, uint64_t *rng)
{
	uint64_t i = bed_rnd(rng) % WORDS;
	uint8_t *host = NULL;
	enum karst_mem_status s;

	s = karst_mem_check_remote(
		b->m, b->pd, qpn, key, BIND_VA + 8 * i, 8, KARST_ACCESS_REMOTE_WRITE, &host);
	if (s == KARST_MEM_OK) {
		bed_check((void *)host == &b->fixed[0][i]);
		lc->granted++;
	}
	s = karst_mem_check_remote(b->m, b->pd, qpn, key, 0, 8, KARST_ACCESS_REMOTE_READ, &host);
	if (s == KARST_MEM_OK) {
		bed_check((void *)host == &b->fixed[1][0]);
		lc->granted++;
	}
	/* Rights and place of different bindings. */
	bed_check(karst_mem_check_remote(b->m, b->pd, qpn, key, BIND_VA, 8,
			  KARST_ACCESS_REMOTE_READ, &host) != KARST_MEM_OK);
	bed_check(karst_mem_check_remote(b->m, b->pd, qpn, key, 0, 16, KARST_ACCESS_REMOTE_WRITE,
			  &host) != KARST_MEM_OK);
}

/* A type 1 window that all lcores rebind all the time. */
static void
use_shared1(struct bed *b, struct lcore *lc, uint64_t *rng)
{
	uint32_t key = __atomic_load_n(&b->shared1, __ATOMIC_RELAXED), next;
	struct karst_mw_bind r = bind_of(b, bed_rnd(rng) % 2, key, 0);

	if (bed_rnd(rng) % 8 == 0)
		r.len = 0;
	look_through_window(b, lc, 1, key, rng);
	if (bed_rnd(rng) % 4 != 0)
		return;
	if (karst_mw_bind(b->m, &r, &next) == 0) {
		__atomic_store_n(&b->shared1, next, __ATOMIC_RELAXED);
		lc->bound++;
	} else {
		lc->raced++;
	}
}

/* A type 2 window that all lcores try to bind: the one that succeeds has it alone, until it
 * invalidates it. */
static void
use_shared2(struct bed *b, struct lcore *lc, uint64_t *rng)
{
	uint32_t key = __atomic_load_n(&b->shared2, __ATOMIC_RELAXED), got;
	struct karst_mw_bind r = bind_of(b, 0, key, 10 + lc->index);
	uint8_t *host;
	int rc = karst_mw_bind(b->m, &r, &got);

	if (rc != 0) {
		bed_check(rc == -EINVAL || rc == -EBUSY);
		lc->raced++;
		return;
	}
	/* Control may free the window at any time, even now. */
	if (karst_mem_check_remote(b->m, b->pd, r.qpn, got, BIND_VA, 8, KARST_ACCESS_REMOTE_WRITE,
		    &host) == KARST_MEM_OK)
		lc->bound++;
	bed_check(karst_mem_check_remote(b->m, b->pd, r.qpn + 1, got, BIND_VA, 8,
			  KARST_ACCESS_REMOTE_WRITE, &host) != KARST_MEM_OK);
	if (bed_rnd(rng) % 2)
		sched_yield();
	karst_mem_invalidate(b->m, b->pd, r.qpn, got, bed_rnd(rng) % 2);
	bed_check(karst_mem_check_remote(b->m, b->pd, r.qpn, got, BIND_VA, 8,
			  KARST_ACCESS_REMOTE_WRITE, &host) != KARST_MEM_OK);
}

static void *
lcore_run(void *arg)
{
	struct lcore *lc = arg;
	struct bed *b = lc->bed;
	uint64_t rng = lc->index;
	unsigned int i;

	while (!__atomic_load_n(&b->stop, __ATOMIC_RELAXED)) {
		for (i = 0; i < 8; i++) {
			look_at_targets(b, lc, &rng);
			use_shared1(b, lc, &rng);
			use_shared2(b, lc, &rng);
		}
		karst_mem_invalidate(
			b->m, b->pd, 1, __atomic_load_n(&b->invalidated, __ATOMIC_RELAXED), false);
		quiesce(lc);
		if (bed_rnd(&rng) % 16 == 0)
			sched_yield(); /* there may be fewer processors than lcores */
	}
	/* Never again in a turn. */
	__atomic_fetch_add(&lc->turns, 1u << 30, __ATOMIC_ACQ_REL);
	return NULL;
}

static void
fill(struct target *t, uint64_t number)
{
	for (unsigned int i = 0; i < WORDS; i++)
		t->word[i] = number;
}

/* Deregisters a target, or re-registers it with another address and content. */
static void
turn_over(struct bed *b, struct target *t, uint64_t number, uint64_t *rng)
{
	uint32_t key = (uint32_t)t->offer;
	struct karst_mr_attr a = {.host = t->word, .va = va_of(number), .len = sizeof(t->word)};
	bool again = bed_rnd(rng) % 2;

	if (key == 0) {
		fill(t, number);
		key = bed_mr(b->m, b->pd, t->word, va_of(number), sizeof(t->word), ACCESS_ALL);
		__atomic_store_n(&t->offer, number << 32 | key, __ATOMIC_RELAXED);
		return;
	}
	/* An lcore that still has the old number must not succeed with the old key. */
	__atomic_store_n(&t->offer, 0, __ATOMIC_RELAXED);
	if (again)
		bed_check(karst_mr_rereg_begin(b->m, key, KARST_REREG_TRANSLATION, &a) == 0);
	else
		bed_check(karst_mr_dereg_begin(b->m, key) == 0);
	grace(b);
	fill(t, again ? number : 0);
	if (again) {
		karst_mr_rereg_end(b->m, key, KARST_REREG_TRANSLATION, &a);
		__atomic_store_n(&t->offer, number << 32 | key, __ATOMIC_RELAXED);
	} else {
		karst_mr_dereg_end(b->m, key);
	}
}

static void
renew_window(struct bed *b, uint32_t *shared, enum karst_mem_type type)
{
	uint32_t key = __atomic_load_n(shared, __ATOMIC_RELAXED);

	bed_check(karst_mw_free_begin(b->m, key) == 0);
	grace(b);
	karst_mw_free_end(b->m, key);
	bed_check(karst_mw_alloc(b->m, b->pd, type, &key) == 0);
	__atomic_store_n(shared, key, __ATOMIC_RELAXED);
}

/* A region that lcores invalidate while it is deregistered. */
static void
renew_invalidated(struct bed *b)
{
	uint32_t key = b->invalidated;

	if (key != 0) {
		bed_check(karst_mr_dereg_begin(b->m, key) == 0);
		grace(b);
		karst_mr_dereg_end(b->m, key);
	}
	key = bed_mr(b->m, b->pd, b->fixed[0], 0, 8, ACCESS_ALL);
	__atomic_store_n(&b->invalidated, key, __ATOMIC_RELAXED);
}

static void
control_run(struct bed *b)
{
	uint64_t rng = 99, number;
	int rc;

	for (number = 1; number <= ROUNDS; number++) {
		turn_over(b, &b->target[bed_rnd(&rng) % REGIONS], number, &rng);
		if (number % 8 == 0)
			renew_window(b, &b->shared1, KARST_MEM_MW1);
		if (number % 8 == 4)
			renew_window(b, &b->shared2, KARST_MEM_MW2);
		if (number % 4 == 1)
			renew_invalidated(b);
		if (number % 16 != 3)
			continue;
		/* Regions under windows: only when none is bound. */
		rc = karst_mr_dereg_begin(b->m, b->fixed_mr[1]);
		bed_check(rc == 0 || rc == -EBUSY);
		if (rc == 0) {
			grace(b);
			karst_mr_dereg_end(b->m, b->fixed_mr[1]);
			__atomic_store_n(&b->fixed_mr[1],
				bed_mr(b->m, b->pd, b->fixed[1], 0, 8 * WORDS, ACCESS_ALL),
				__ATOMIC_RELAXED);
		}
	}
}

/* When everything is deregistered nothing is left bound or held. */
static void
take_down(struct bed *b)
{
	unsigned int i;

	bed_check(bed_mw_free(b->m, b->shared1) == 0);
	bed_check(bed_mw_free(b->m, b->shared2) == 0);
	for (i = 0; i < LCORES; i++)
		bed_check(karst_mw_release_qp(b->m, 10 + i) == 0);
	for (i = 0; i < REGIONS; i++)
		bed_check(b->target[i].offer == 0 ||
			bed_dereg(b->m, (uint32_t)b->target[i].offer) == 0);
	for (i = 0; i < 2; i++)
		bed_check(bed_dereg(b->m, b->fixed_mr[i]) == 0);
	bed_check(bed_dereg(b->m, b->invalidated) == 0);
	bed_check(karst_pd_free(b->m, b->pd) == 0);
}

int
main(void)
{
	struct bed *b = aligned_alloc(KARST_CACHE_LINE, sizeof(*b));
	unsigned int i, granted = 0, bound = 0;

	memset(b, 0, sizeof(*b));
	b->m = bed_open(32, 1);
	b->pd = bed_pd(b->m);
	b->fixed_mr[0] = bed_mr(b->m, b->pd, b->fixed[0], BIND_VA, 8 * WORDS, ACCESS_ALL);
	b->fixed_mr[1] = bed_mr(b->m, b->pd, b->fixed[1], 0, 8 * WORDS, ACCESS_ALL);
	bed_check(karst_mw_alloc(b->m, b->pd, KARST_MEM_MW1, &b->shared1) == 0);
	bed_check(karst_mw_alloc(b->m, b->pd, KARST_MEM_MW2, &b->shared2) == 0);
	for (i = 0; i < LCORES; i++) {
		b->lcore[i].bed = b;
		b->lcore[i].index = i;
		bed_check(pthread_create(&b->lcore[i].thread, NULL, lcore_run, &b->lcore[i]) == 0);
	}
	control_run(b);
	__atomic_store_n(&b->stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < LCORES; i++) {
		pthread_join(b->lcore[i].thread, NULL);
		granted += b->lcore[i].granted;
		bound += b->lcore[i].bound;
	}
	bed_check(granted > ROUNDS);
	bed_check(bound > 100);
	take_down(b);
	bed_close(b->m);
	free(b);
	printf("1..1\nok 1 - lcores and control (%u granted, %u bound)\n", granted, bound);
	return 0;
}
