/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Copies of an engine whose lcores are stopped and started again: control calls meanwhile, and the
 * threads that were left behind.
 */
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "copies.h"
#include "engine_priv.h"
#include "inside_bed.h"
#include "workers.h"

static const struct timespec restart_nap = {.tv_nsec = 1000000};

/* --- calls while an engine starts or stops --- */

#define CALL_MS 1000u /* longer than an engine with nothing to do takes to start or stop */

struct caller {
	struct karst_engine *e;
	_Atomic bool entered;
	bool gone; /* the watchdog has been freed during the call */
};

static const struct eng_watch *
watch_of(const struct karst_engine *e)
{
	return __atomic_load_n(&e->watch, __ATOMIC_RELAXED);
}

/* A control call that takes long.  A copy that a call begins reads the counts of the watchdog. */
static void *
call(void *arg)
{
	struct caller *c = arg;
	const struct eng_watch *watch;
	uint32_t i;

	cr_assert_eq(eng_ctl_enter(c->e), 0);
	watch = watch_of(c->e);
	cr_assert_not_null(watch);
	atomic_store(&c->entered, true);
	for (i = 0; i < CALL_MS && watch_of(c->e) == watch; i++)
		nanosleep(&restart_nap, NULL);
	c->gone = watch_of(c->e) != watch;
	eng_ctl_leave(c->e);
	return NULL;
}

static void
call_begin(struct caller *c, struct karst_engine *e, pthread_t *thread)
{
	*c = (struct caller){.e = e};
	cr_assert_eq(pthread_create(thread, NULL, call, c), 0);
	while (!atomic_load(&c->entered))
		nanosleep(&restart_nap, NULL);
}

Test(inside, a_call_while_the_engine_stops_or_starts)
{
	struct caller caller;
	uint64_t addr, len;
	pthread_t thread;
	struct region r;
	struct rig rig;

	rig_up_started(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	call_begin(&caller, rig.bed.e, &thread);
	karst_engine_stop(rig.bed.e);
	pthread_join(thread, NULL);
	cr_expect_not(caller.gone, "freed by karst_engine_stop()");
	/* now copiers of lcores that may be polled, with a watchdog of their own */
	call_begin(&caller, rig.bed.e, &thread);
	cr_assert_eq(karst_engine_start(rig.bed.e, NULL), 0);
	pthread_join(thread, NULL);
	cr_expect_not(caller.gone, "freed by karst_engine_start()");
	karst_engine_stop(rig.bed.e);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* Threads of the lcore that are in a copy, and have lost the lcore if they had it. */
static uint32_t
in_copies(const struct rig *rig, uint32_t lcore)
{
	struct eng_workers *workers = atomic_load(&rig->bed.e->lcore[lcore].workers);
	const struct eng_worker *w;
	uint32_t n = 0;

	if (workers == NULL)
		return 0;
	pthread_mutex_lock(&workers->lock);
	for (w = workers->first; w != NULL; w = w->next)
		n += w->copy != NULL;
	pthread_mutex_unlock(&workers->lock);
	return n;
}

static void *
start(void *arg)
{
	cr_assert_eq(karst_engine_start(arg, NULL), 0);
	return NULL;
}

/* Polled lcores become the engine's own while copiers of both wait for a page that does not come.
 * All are told to end before the engine waits for any, and control calls do not wait with it.  The
 * space fails when the first of them is left behind. */
Test(inside, a_start_that_leaves_copiers_behind)
{
	struct karst_cqe cqe;
	pthread_t thread;
	struct region r;
	struct rig rig;
	uint32_t i, pd;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up(&rig);
	never_region(&rig, &r);
	for (i = 0; i < 2; i++)
		post_faa(&rig, i, r.addr, r.key);
	while (in_copies(&rig, 0) + in_copies(&rig, 1) < 2)
		engine_bed_settle(&rig.bed);
	engine_bed_release(&rig.bed);
	rig.bed.mine = 0;
	cr_assert_eq(pthread_create(&thread, NULL, start, rig.bed.e), 0);
	for (i = 0; i < 2; i++)
		while (atomic_load(&rig.bed.e->lcore[i].workers) != NULL)
			nanosleep(&restart_nap, NULL);
	cr_expect_not(karst_space_failed(rig.space), "lcores are ended one after the other");
	cr_assert_eq(karst_engine_pd_alloc(rig.bed.e, &pd), 0);
	cr_expect_not(karst_space_failed(rig.space), "a call waits for copiers of all lcores");
	pthread_join(thread, NULL);
	cr_assert(karst_space_failed(rig.space));
	for (i = 0; i < 2; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		cr_assert_neq(cqe.status, KARST_WC_SUCCESS);
	}
	program_kill(&rig.prog);
	for (i = 0; i < 2; i++)
		while (atomic_load(&rig.bed.e->lcore[i].copies->nleft) > 0)
			nanosleep(&restart_nap, NULL);
	karst_engine_stop(rig.bed.e);
	cr_assert_eq(karst_engine_pd_free(rig.bed.e, pd), 0);
	rig_down(&rig);
}

/* --- threads that were left behind count for their user --- */

#define MORE ENG_USER_PART /* attachments after the restart */

/* Programs of one user hold @nleft threads of lcore 0 when the engine stops.  It starts again, and
 * MORE others of the user do the same, of which @most get a thread. */
static void
hold_again(struct rig *rig, uint32_t nleft, uint32_t most)
{
	struct karst_space *space[2 * ENG_USER_PART];
	const struct eng_lcore *lc;
	struct karst_cqe cqe;
	uint32_t i, key, n = 0;
	uint64_t addr;

	rig_up_started(rig);
	lc = &rig->bed.e->lcore[0];
	cr_assert_eq(program_never(&rig->prog, NEVER_BYTES, &addr), 0);
	for (i = 0; i < nleft; i++) {
		key = attach_never(rig, &rig->prog, addr, &space[i]);
		write_more(rig, addr + i * 4096, key);
	}
	while (in_copies(rig, 0) < nleft)
		nanosleep(&restart_nap, NULL);
	karst_engine_stop(rig->bed.e);
	for (i = 0; i < nleft; i++)
		cr_assert(karst_space_failed(space[i]));
	cr_assert_eq(karst_engine_start(rig->bed.e, NULL), 0);
	for (; i < nleft + MORE; i++) {
		key = attach_never(rig, &rig->prog, addr, &space[i]);
		write_more(rig, addr + i * 4096, key);
	}
	for (i = 0; i < nleft + MORE; i++) {
		cr_assert(engine_bed_wait(&rig->bed, &cqe));
		cr_assert_neq(cqe.status, KARST_WC_SUCCESS);
	}
	/* those that got one have failed in the end, the others were refused */
	for (i = nleft; i < nleft + MORE; i++) {
		while (!karst_space_failed(space[i]) && atomic_load(&space[i]->slow.copies) != 0)
			nanosleep(&restart_nap, NULL);
		n += karst_space_failed(space[i]);
	}
	cr_assert_leq(n, most, "%u got one", n);
	while (atomic_load(&lc->watched.stuck) < nleft + n)
		nanosleep(&restart_nap, NULL);
	program_kill(&rig->prog);
	while (atomic_load(&lc->copies->nleft) > 0)
		nanosleep(&restart_nap, NULL);
	karst_engine_stop(rig->bed.e);
	cr_assert_eq(karst_engine_mr_dereg_many(rig->bed.e, rig->key, rig->nkeys), 0);
	rig->nkeys = 0;
	for (i = 0; i < nleft + MORE; i++)
		karst_space_destroy(space[i]);
	rig_down(rig);
}

/* They are part of what the user may hold. */
Test(inside, threads_that_are_left_behind_are_held)
{
	struct rig rig;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	hold_again(&rig, ENG_USER_STUCK - 1, ENG_USER_PART - (ENG_USER_STUCK - 1));
}

/* If they are as many as may be written off, the user has no more memory copied. */
Test(inside, threads_that_are_left_behind_are_written_off)
{
	struct rig rig;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	hold_again(&rig, ENG_USER_STUCK, 0);
}
