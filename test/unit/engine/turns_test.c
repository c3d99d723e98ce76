/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Users take turns at control calls and at connection management, also while programs come and
 * go. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <criterion/criterion.h>

#include "cm.h"
#include "lcore.h"
#include "share_bed.h"

struct turn_taker {
	struct client *c;
	atomic_bool started, done;
};

static void *
take_turn(void *arg)
{
	struct turn_taker *t = arg;

	atomic_store(&t->started, true);
	client_pd(t->c);
	atomic_store(&t->done, true);
	return NULL;
}

/* Of one user's threads only one at a time has, or waits for, the lock of control calls; threads of
 * other users do not wait for that user's turn. */
Test(turns, turns_of_control_calls)
{
	const struct timespec nap = {.tv_nsec = 20000000};
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct turn_taker t = {0};
	struct eng_share *his;
	struct engine_bed bed;
	struct client *other;
	pthread_t thread;

	engine_bed_up(&bed, &cfg);
	t.c = user(bed.e, 1000, 75);
	other = user(bed.e, 1001, 75);
	his = join(&bed.e->shares, 1000, &fair);
	eng_ctl_for(his);
	cr_assert_eq(eng_ctl_enter(bed.e), 0);
	cr_assert_eq(pthread_mutex_trylock(eng_share_turn(his)), EBUSY);
	eng_ctl_leave(bed.e);
	eng_ctl_for(NULL);
	cr_assert_eq(pthread_mutex_trylock(eng_share_turn(his)), 0);
	cr_assert_eq(pthread_create(&thread, NULL, take_turn, &t), 0);
	while (!atomic_load(&t.started))
		nanosleep(&nap, NULL);
	nanosleep(&nap, NULL);
	client_pd(other);
	cr_assert_not(atomic_load(&t.done));
	pthread_mutex_unlock(eng_share_turn(his));
	pthread_join(thread, NULL);
	cr_assert(atomic_load(&t.done));
	client_close(t.c);
	client_close(other);
	eng_share_leave(his);
	engine_bed_down(&bed);
}

/* --- attachments --- */

static bool
count_and_go(void *user)
{
	++*(uint32_t *)user;
	return false;
}

/* An attachment counts as several calls, also for a program that attaches, sends nothing and ends.
 * A user who exceeds the rate waits before anything is created, and nothing is created for a
 * program that ends meanwhile. */
Test(turns, attachments_are_paced)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	uint32_t asked = 0;
	struct karst_session_init init = {.program = "comes",
		.pidfd = -1,
		.uid = 1000,
		.limits = {.share = 75, .calls = 1},
		.alive = count_and_go,
		.user = &asked};
	struct karst_session *first, *s;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(karst_session_create(bed.e, &init, &first), 0);
	cr_assert_eq(asked, 0, "a second's worth is in advance");
	cr_assert_eq(karst_session_create(bed.e, &init, &s), -ECANCELED);
	cr_assert_eq(asked, 1);
	cr_assert_eq(bed.e->shares.used[ENG_SHARE_CLIENTS], 1);
	cr_assert_eq(karst_session_list(bed.e, NULL, 0), 1);
	/* another user's rate is separate */
	init.uid = 1001;
	cr_assert_eq(karst_session_create(bed.e, &init, &s), 0);
	cr_assert_eq(asked, 1);
	karst_session_destroy(s);
	karst_session_destroy(first);
	cr_assert_eq(bed.e->shares.used[ENG_SHARE_CLIENTS], 0);
	cr_assert_eq(bed.e->shares.used[ENG_SHARE_DESCRIPTORS], 0);
	engine_bed_down(&bed);
}

struct comer {
	struct karst_engine *e;
	struct karst_session *s; /* NULL: attaches; else: ends this session */
	int ret;
	atomic_bool started, done;
};

static void *
come_or_go(void *arg)
{
	const struct karst_session_init init = {
		.program = "comes", .pidfd = -1, .uid = 1000, .limits = {.share = 75}};
	struct comer *t = arg;

	atomic_store(&t->started, true);
	if (t->s != NULL)
		karst_session_destroy(t->s);
	else
		t->ret = karst_session_create(t->e, &init, &t->s);
	atomic_store(&t->done, true);
	return NULL;
}

/* Programs that attach, and programs that end, take the turns of their user, too. */
Test(turns, turns_of_attachments)
{
	const struct timespec nap = {.tv_nsec = 20000000};
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct comer t = {0};
	struct engine_bed bed;
	struct eng_share *his;
	pthread_t thread;
	uint32_t i;

	engine_bed_up(&bed, &cfg);
	t.e = bed.e;
	his = join(&bed.e->shares, 1000, &fair);
	for (i = 0; i < 2; i++) {
		atomic_store(&t.started, false);
		atomic_store(&t.done, false);
		cr_assert_eq(pthread_mutex_trylock(eng_share_turn(his)), 0);
		cr_assert_eq(pthread_create(&thread, NULL, come_or_go, &t), 0);
		while (!atomic_load(&t.started))
			nanosleep(&nap, NULL);
		nanosleep(&nap, NULL);
		client_close(user(bed.e, 1001, 75));
		cr_assert_not(atomic_load(&t.done), "%s", i == 0 ? "it came" : "it went");
		pthread_mutex_unlock(eng_share_turn(his));
		pthread_join(thread, NULL);
		cr_assert_eq(t.ret, 0);
	}
	eng_share_leave(his);
	engine_bed_down(&bed);
}

/* --- connection management --- */

#define MANY_IDS 1024u
#define ENDS     40u /* rounds: on a busy machine a session may end unobserved */

/* A program with MANY_IDS identifiers.  Destroyed by come_or_go() */
static struct karst_session *
program_with_ids(struct karst_engine *e)
{
	struct client *c = user(e, 1000, 75);
	struct karst_session *s = c->s;
	uint32_t i, channel = cm_channel(c);

	for (i = 0; i < MANY_IDS; i++)
		cr_assert_eq(CALL(c, CM_CREATE_ID, cm_create_id, .channel = channel,
				     .port_space = KARST_RDMACM_PS_TCP, .qp_type = KARST_QPT_RC),
			0, "%s", c->why);
	client_free(c);
	return s;
}

/* Ends the program.  @return how often the test got the lock of connection management when some of
 * its identifiers were destroyed and some were not. */
static uint32_t
looks_between(struct karst_engine *e, struct eng_share *his)
{
	struct eng_share_info info = {.used = {[ENG_SHARE_CM_IDS] = MANY_IDS}};
	struct comer t = {.e = e, .s = program_with_ids(e)};
	pthread_t thread;
	uint32_t n = 0;

	cr_assert_eq(pthread_create(&thread, NULL, come_or_go, &t), 0);
	while (info.used[ENG_SHARE_CM_IDS] != 0) {
		struct eng_cm *cm = eng_cm_enter(e);

		eng_share_info(his, &info);
		eng_cm_leave(cm);
		n += info.used[ENG_SHARE_CM_IDS] != 0 && info.used[ENG_SHARE_CM_IDS] != MANY_IDS;
	}
	pthread_join(thread, NULL);
	return n;
}

/* A program that has a thousand identifiers ends: other threads get the lock of connection
 * management before all of them are destroyed. */
Test(turns, others_while_identifiers_go)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16, .max_cm_ids = 2 * MANY_IDS}};
	struct engine_bed bed;
	struct eng_share *his;
	uint32_t i, between;

	engine_bed_up(&bed, &cfg);
	his = join(&bed.e->shares, 1000, &fair);
	for (i = between = 0; i < ENDS && between == 0; i++)
		between = looks_between(bed.e, his);
	cr_assert_gt(between, 0);
	eng_share_leave(his);
	engine_bed_down(&bed);
}
