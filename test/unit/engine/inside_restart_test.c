/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Control calls while the lcores of an engine are stopped and started again. */
#include <time.h>

#include <criterion/criterion.h>

#include "copies.h"
#include "engine_priv.h"
#include "inside_bed.h"

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
