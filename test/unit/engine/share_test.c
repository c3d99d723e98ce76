/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Accounts of users, on their own; and what sessions of two users get beside each other. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_log.h"
#include "lcore.h"
#include "share_bed.h"
#include "space_priv.h"

#define SECOND UINT64_C(1000000000)
#define QPS    ENG_SHARE_QPS
#define BYTES  ENG_SHARE_RING_BYTES

static const struct eng_share_rule all = {.percent = 100};

/* How many of @kind @s can take, one by one; it keeps them. */
static uint64_t
take_all(struct eng_share *s, enum eng_share_kind kind)
{
	uint64_t n = 0;

	while (eng_share_take(s, kind, 1))
		n++;
	return n;
}

static void
leave(struct eng_share *s, enum eng_share_kind kind, uint64_t n)
{
	eng_share_give(s, kind, n);
	eng_share_leave(s);
}

/* A user who is alone gets three quarters, and each further user gets three quarters of the rest;
 * the last one goes to a user who has none. */
Test(share, something_is_left_for_the_next)
{
	uint64_t left = 1024, got[6];
	struct eng_share *s[6];
	struct eng_shares t;
	uint32_t i;

	eng_shares_init(&t);
	eng_shares_set_total(&t, QPS, left);
	for (i = 0; i < 5; i++) {
		s[i] = join(&t, 1000 + i, &fair);
		cr_assert_eq(eng_share_most(s[i], QPS), 768);
		got[i] = take_all(s[i], QPS);
		cr_assert_eq(got[i], left * 3 / 4);
		cr_assert_not(eng_share_fits(s[i], QPS, 1));
		left -= got[i];
	}
	cr_assert_eq(left, 1);
	cr_assert(eng_share_admits(&t, 999, &fair, QPS));
	cr_assert_not(eng_share_admits(&t, 1000, &fair, QPS));
	s[5] = join(&t, 999, &fair);
	got[5] = take_all(s[5], QPS);
	cr_assert_eq(got[5], 1);
	/* what one user gives back, this user or another may take */
	eng_share_give(s[0], QPS, 400);
	got[0] -= 400;
	cr_assert(eng_share_take(s[5], QPS, 1));
	got[5] += 1 + take_all(s[5], QPS);
	cr_assert_eq(got[5], 300);
	for (i = 0; i < 6; i++)
		leave(s[i], QPS, got[i]);
	eng_shares_fini(&t);
}

/* Two users who take in turn what they can end with the same amount, three sevenths each. */
Test(share, two_get_the_same)
{
	struct eng_shares t;
	struct eng_share *a, *b;
	uint64_t na = 0, nb = 0;
	bool more = true;

	eng_shares_init(&t);
	eng_shares_set_total(&t, QPS, 700);
	a = join(&t, 1, &fair);
	b = join(&t, 2, &fair);
	while (more) {
		more = false;
		if (eng_share_take(a, QPS, 1)) {
			na++;
			more = true;
		}
		if (eng_share_take(b, QPS, 1)) {
			nb++;
			more = true;
		}
	}
	cr_assert(na == 300 && nb == 300, "%lu and %lu", na, nb);
	leave(a, QPS, na);
	leave(b, QPS, nb);
	eng_shares_fini(&t);
}

/* A limit holds whatever is free, also for a user without a share. */
Test(share, a_limit_besides)
{
	const struct eng_share_rule some = {.percent = 75, .most = {[QPS] = 10}};
	const struct eng_share_rule root = {.percent = 100, .most = {[BYTES] = 1000}};
	struct eng_share *a, *b;
	struct eng_shares t;

	eng_shares_init(&t);
	eng_shares_set_total(&t, QPS, 700);
	a = join(&t, 1, &some);
	b = join(&t, 0, &root);
	cr_assert_eq(eng_share_most(a, QPS), 10);
	cr_assert_eq(take_all(a, QPS), 10);
	cr_assert_eq(eng_share_most(b, BYTES), 1000);
	cr_assert_not(eng_share_take(b, BYTES, 1001));
	cr_assert_not(eng_share_take(b, BYTES, UINT64_MAX));
	cr_assert(eng_share_take(b, BYTES, 600));
	cr_assert_not(eng_share_take(b, BYTES, 401));
	cr_assert(eng_share_take(b, BYTES, 400));
	cr_assert(eng_share_take(b, QPS, 690));
	/* and the share of what is free holds, too */
	eng_share_give(a, QPS, 10);
	cr_assert(eng_share_take(b, QPS, 8));
	cr_assert_eq(take_all(a, QPS), 1);
	leave(a, QPS, 1);
	eng_share_give(b, QPS, 698);
	leave(b, BYTES, 1000);
	eng_shares_fini(&t);
}

/* All sessions of a user have one account, with the newest rule. */
Test(share, one_account_a_user)
{
	struct eng_share_info info[4];
	struct eng_share *a, *b, *root;
	struct eng_shares t;

	eng_shares_init(&t);
	eng_shares_set_total(&t, QPS, 100);
	a = join(&t, 1000, &fair);
	b = join(&t, 1000, &(struct eng_share_rule){.percent = 50});
	cr_assert_eq(a, b);
	root = join(&t, 0, &all);
	cr_assert_eq(take_all(a, QPS), 50);
	eng_share_leave(b);
	/* what a user without a limit takes counts for the others, who may get nothing */
	cr_assert(eng_share_take(root, QPS, 60));
	cr_assert_eq(eng_share_most(root, QPS), ENG_SHARE_NO_LIMIT);
	eng_share_give(a, QPS, 30);
	cr_assert_not(eng_share_take(a, QPS, 1));
	cr_assert_eq(eng_share_list(&t, 0, info, 4), 2);
	cr_assert(info[0].uid == 0 && info[0].used[QPS] == 60);
	cr_assert(info[1].uid == 1000 && info[1].used[QPS] == 20 && info[1].sessions == 1);
	cr_assert_eq(info[1].refused[QPS], 2);
	cr_assert_eq(eng_share_list(&t, 1, info, 4), 1);
	cr_assert_eq(eng_share_list(&t, 0, info, 1), 1);
	leave(a, QPS, 20);
	leave(root, QPS, 60);
	eng_shares_fini(&t);
}

/* Large amounts, numbers near the end of their type, and amounts without a limit. */
Test(share, bytes)
{
	uint64_t most = UINT64_MAX / 4 * 3;
	struct eng_shares t;
	struct eng_share *s;

	eng_shares_init(&t);
	s = join(&t, 1000, &fair);
	cr_assert(eng_share_take(s, ENG_SHARE_MAPPINGS, UINT64_C(1) << 60));
	eng_share_give(s, ENG_SHARE_MAPPINGS, UINT64_C(1) << 60);
	eng_shares_set_total(&t, BYTES, UINT64_MAX - 1);
	cr_assert_not(eng_share_take(s, BYTES, UINT64_MAX));
	cr_assert_not(eng_share_take(s, BYTES, most + 2));
	cr_assert(eng_share_take(s, BYTES, most - 2));
	cr_assert_not(eng_share_take(s, BYTES, most));
	cr_assert(eng_share_take(s, BYTES, 0));
	/* less than there was before */
	eng_shares_set_total(&t, BYTES, 1 << 20);
	cr_assert_not(eng_share_take(s, BYTES, 1));
	eng_share_give(s, BYTES, most - 2);
	cr_assert(eng_share_take(s, BYTES, 3 << 18));
	cr_assert_not(eng_share_take(s, BYTES, 1));
	leave(s, BYTES, 3 << 18);
	/* no account */
	cr_assert(eng_share_take(NULL, BYTES, UINT64_MAX));
	eng_share_give(NULL, BYTES, UINT64_MAX);
	eng_shares_fini(&t);
}

/* A second's worth of calls is allowed at once, then calls at the user's rate, whichever sessions
 * come and go. */
Test(share, calls_are_paced)
{
	const struct eng_share_rule rule = {.percent = 75, .calls = 100};
	uint64_t now = 5 * SECOND, wait = 0, i;
	struct eng_share_info info;
	struct eng_shares t;
	struct eng_share *s;

	eng_shares_init(&t);
	s = eng_share_join(&t, 1000, &rule, now);
	for (i = 0; i < 101; i++)
		cr_assert_eq(eng_share_pace(s, 1, now), 0);
	for (i = 1; i <= 100; i++)
		cr_assert_eq(eng_share_pace(s, 1, now), i * SECOND / 100);
	/* the account stays until the calls are made */
	eng_share_leave(s);
	s = eng_share_join(&t, 1000, &rule, now + SECOND / 2);
	wait = eng_share_pace(s, 20, now + SECOND / 2);
	cr_assert_eq(wait, 101 * SECOND / 100 - SECOND / 2);
	eng_share_info(s, &info);
	cr_assert_eq(info.calls, 221);
	cr_assert_eq(info.calls_late, 101);
	/* after a pause the user has a second's worth again, and not more */
	now += 60 * SECOND;
	for (i = 0; i < 101; i++)
		cr_assert_eq(eng_share_pace(s, 1, now), 0);
	cr_assert_gt(eng_share_pace(s, 1, now), 0);
	eng_share_leave(s);
	/* and the account of a user who owes no waiting time is removed */
	cr_assert_not_null(eng_share_join(&t, 7, &fair, now + 60 * SECOND));
	cr_assert_eq(t.n, 1);
	eng_shares_fini(&t);
}

/* --- sessions --- */

/* A program and the objects that it needs to create one more of everything. */
struct program {
	struct client *c;
	struct client_cq cq;
	struct client_qp ud;
	uint32_t pd;
	uint32_t channel; /* a channel of connection management; 0: not yet created */
	uint32_t id;      /* the last one that was created */
	uint32_t n;       /* one more each time */
};

static int
one_pd(struct program *p)
{
	return CALL(p->c, ALLOC_PD, alloc_pd, .reserved = 0);
}

static int
one_qp(struct program *p)
{
	return CALL(p->c, CREATE_QP, create_qp, .type = KARST_QPT_RC, .pd = p->pd,
		.send_cq = p->cq.handle, .recv_cq = p->cq.handle, .max_send_wr = 1,
		.max_recv_wr = 1, .lcore = UINT32_MAX);
}

/* Regions and windows share one table. */
static int
one_key(struct program *p)
{
	static uint8_t mem[64];

	if (p->n % 2 == 0)
		return CALL(p->c, ALLOC_MW, alloc_mw, .pd = p->pd, .type = 2);
	return CALL(p->c, REG_MR, reg_mr, .pd = p->pd, .addr = (uintptr_t)mem, .len = sizeof(mem));
}

static int
one_ah(struct program *p)
{
	struct karst_ctl_ah_attr ah = {.port_num = 1};

	memcpy(ah.dgid, (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 2}, 16);
	return CALL(p->c, CREATE_AH, create_ah, .pd = p->pd, .attr = ah);
}

static int
one_group(struct program *p)
{
	struct karst_ctl_attach_mcast_req req = {
		.qp = p->ud.handle, .gid = {[10] = 0xff, 0xff, 239, 1, 1, (uint8_t)p->n}};

	return client_call(p->c, KARST_CTL_ATTACH_MCAST, &req, sizeof(req));
}

static int
one_xrcd(struct program *p)
{
	return CALL(p->c, OPEN_XRCD, open_xrcd, .flags = 0);
}

static int
one_channel(struct program *p)
{
	int ret = p->n % 2 != 0 ? CALL(p->c, CREATE_CHANNEL, create_channel, .reserved = 0)
				: CALL(p->c, CM_CREATE_CHANNEL, cm_create_channel, .reserved = 0);

	karst_ctl_close_fds(p->c->fds, p->c->nfds);
	return ret;
}

/* Creates an identifier bound to port number @number of the wildcard address; 0: any number. */
static int
bind_number(struct program *p, uint16_t number)
{
	struct karst_ctl_cm_addr any = {
		.family = AF_INET, .port_number = number, .ip = {[10] = 0xff, 0xff}};

	if (p->channel == 0)
		p->channel = cm_channel(p->c);
	cr_assert_eq(CALL(p->c, CM_CREATE_ID, cm_create_id, .channel = p->channel,
			     .port_space = KARST_RDMACM_PS_TCP, .qp_type = KARST_QPT_RC),
		0, "%s", p->c->why);
	p->id = RSP(p->c, cm_create_id)->id;
	return CALL(p->c, CM_BIND, cm_bind, .id = p->id, .addr = any);
}

static int
one_number(struct program *p)
{
	return bind_number(p, 0);
}

static const struct {
	enum eng_share_kind kind;
	int (*one)(struct program *p);
} things[] = {
	{ENG_SHARE_PDS, one_pd},
	{ENG_SHARE_QPS, one_qp},
	{ENG_SHARE_KEYS, one_key},
	{ENG_SHARE_AHS, one_ah},
	{ENG_SHARE_MCASTS, one_group},
	{ENG_SHARE_XRCDS, one_xrcd},
	{ENG_SHARE_DESCRIPTORS, one_channel},
	{ENG_SHARE_CM_NUMBERS, one_number},
};

static void
program_start(struct program *p, struct karst_engine *e, uid_t uid)
{
	*p = (struct program){.c = user(e, uid, 75)};
	p->pd = client_pd(p->c);
	client_cq(p->c, 16, 0, 0, &p->cq);
	client_qp(p->c, KARST_QPT_UD, p->pd, &p->cq, 0, 0, &p->ud);
}

static uint64_t
used(struct program *p, enum eng_share_kind kind)
{
	struct eng_share_info info;

	eng_share_info(p->c->s->share, &info);
	return info.used[kind];
}

/* Takes as many of @things[i] as possible, and checks the reason when no more are given. */
static void
fill(struct program *p, size_t i)
{
	while (p->n < 2000 && things[i].one(p) == 0)
		p->n++;
	cr_assert_eq(p->c->status, -ENOSPC, "%s: %s", eng_share_name(things[i].kind), p->c->why);
	cr_assert_not_null(strstr(p->c->why, "[limits] share, 75"), "%s", p->c->why);
	cr_assert_not_null(strstr(p->c->why, eng_share_what(things[i].kind)), "%s", p->c->why);
}

/*
 * One user takes as many as possible of each thing, with two programs: they get what one would get.
 * Another user gets three quarters of the rest, which is at least what there was for the first
 * user's second program; and when the first user's programs have ended, as much as that user had.
 */
Test(share, sessions_of_two_users, .timeout = 1500)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct program greedy[2], other;
	struct eng_share_info info;
	uint64_t total, left, had;
	struct engine_bed bed;
	size_t i;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	for (i = 0; i < KARST_DIM(things); i++) {
		enum eng_share_kind kind = things[i].kind;

		program_start(&greedy[0], bed.e, 1000);
		program_start(&greedy[1], bed.e, 1000);
		program_start(&other, bed.e, 1001);
		had = used(&other, kind);
		total = bed.e->shares.used[kind] + 64;
		eng_shares_set_total(&bed.e->shares, kind, total);
		fill(&greedy[0], i);
		fill(&greedy[1], i);
		cr_assert_eq(greedy[1].n, 0, "%s", eng_share_name(kind));
		cr_assert_eq(used(&greedy[0], kind), (total - had) * 3 / 4);
		left = total - used(&greedy[0], kind);
		fill(&other, i);
		cr_assert_gt(other.n, 0, "%s", eng_share_name(kind));
		cr_assert_eq(used(&other, kind), left * 3 / 4, "%s: %lu of %lu",
			eng_share_name(kind), used(&other, kind), left);
		client_close(greedy[0].c);
		client_close(greedy[1].c);
		fill(&other, i);
		cr_assert_eq(used(&other, kind), total * 3 / 4, "%s", eng_share_name(kind));
		eng_share_info(other.c->s->share, &info);
		cr_assert_eq(info.refused[kind], 2);
		client_close(other.c);
		cr_assert_eq(bed.e->shares.used[kind], 0);
	}
	engine_bed_down(&bed);
}

/* The port numbers that the engine chooses are shared out, also if programs ask for them by number;
 * other numbers are not. */
Test(share, numbers_by_name, .timeout = 1500)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct program p;
	uint16_t i;

	engine_bed_up(&bed, &cfg);
	eng_shares_set_total(&bed.e->shares, ENG_SHARE_CM_NUMBERS, 16);
	program_start(&p, bed.e, 1000);
	for (i = 0; i < 12; i++)
		cr_assert_eq(bind_number(&p, 60999 - i), 0, "%s", p.c->why);
	cr_assert_eq(bind_number(&p, 0), -ENOSPC);
	cr_assert_eq(bind_number(&p, 60999 - i), -ENOSPC);
	cr_assert_eq(bind_number(&p, 32768), -ENOSPC);
	cr_assert_eq(bind_number(&p, 32767), 0, "%s", p.c->why);
	cr_assert_eq(bind_number(&p, 61000), 0, "%s", p.c->why);
	cr_assert_eq(used(&p, ENG_SHARE_CM_NUMBERS), 12);
	/* a request that is refused for another reason takes none */
	eng_shares_set_total(&bed.e->shares, ENG_SHARE_CM_NUMBERS, 20);
	cr_assert_eq(bind_number(&p, 60999), -EADDRINUSE, "%s", p.c->why);
	cr_assert_eq(used(&p, ENG_SHARE_CM_NUMBERS), 12);
	client_close(p.c);
	cr_assert_eq(bed.e->shares.used[ENG_SHARE_CM_NUMBERS], 0);
	engine_bed_down(&bed);
}

/* The programs of one user take turns as one (karst_sched.h).  There is a number for each user,
 * even if each program belongs to another one, and a user who leaves gives the number to the
 * next. */
Test(share, turns_are_by_users)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 4}};
	const uid_t uids[4] = {1000, 1001, 1000, 1002};
	struct engine_bed bed;
	struct client *c[4];
	uint32_t i, k, round;

	engine_bed_up(&bed, &cfg);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 4; i++)
			c[i] = user(bed.e, uids[i], 75);
		/* one of two programs is replaced by one of another user */
		for (k = 0; k < 2; k++) {
			uint32_t n[4];

			for (i = 0; i < 4; i++)
				n[i] = c[i]->s->owner->sharer;
			for (i = 0; i < 4; i++)
				cr_assert(n[i] >= 1 && n[i] <= 4, "0 is the engine's program");
			cr_assert_eq(n[0] == n[2], k == 0);
			cr_assert(n[0] != n[1] && n[0] != n[3] && n[1] != n[2] && n[1] != n[3] &&
				n[2] != n[3]);
			if (k != 0)
				break;
			client_close(c[0]);
			c[0] = user(bed.e, 1003 + round, 75);
		}
		for (i = 0; i < 4; i++)
			client_close(c[i]);
	}
	engine_bed_down(&bed);
}

/* Device limits are reported as what the program's user may have. */
Test(share, devices_tell_the_share, .timeout = 1500)
{
	struct engine_bed_config cfg = {.engine = {.max_qps = 64,
						.max_keys = 64,
						.max_pds = 64,
						.max_ahs = 64,
						.max_mcasts = 64}};
	const struct karst_ctl_query_device_rsp *rsp;
	struct client *c;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	c = user(bed.e, 1000, 75);
	cr_assert_eq(CALL(c, QUERY_DEVICE, query_device, .reserved = 0), 0, "%s", c->why);
	rsp = RSP(c, query_device);
	cr_assert(rsp->max_qp == 48 && rsp->max_mr == 48 && rsp->max_mw == 48 &&
		rsp->max_pd == 48 && rsp->max_ah == 48 && rsp->max_mcasts == 48);
	client_close(c);
	c = user(bed.e, 0, 100);
	cr_assert_eq(CALL(c, QUERY_DEVICE, query_device, .reserved = 0), 0, "%s", c->why);
	rsp = RSP(c, query_device);
	cr_assert(rsp->max_qp == 64 && rsp->max_mr == 64 && rsp->max_pd == 64);
	client_close(c);
	engine_bed_down(&bed);
}

/* Attachments, and ring memory, which is given in chunks. */
Test(share, attachments_and_ring_memory, .timeout = 1500)
{
	const struct karst_session_init init = {
		.program = "greedy", .pidfd = -1, .uid = 1000, .limits = {.share = 75}};
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct karst_session *s[16];
	struct client *c;
	struct engine_bed bed;
	uint32_t n, i;
	int ret = 0;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	for (n = 0; ret == 0 && n < 16; n += ret == 0)
		ret = karst_session_create(bed.e, &init, &s[n]);
	cr_assert_eq(ret, -EUSERS);
	cr_assert_eq(n, 12);
	cr_assert_not(karst_session_admits(bed.e, 1000, 75));
	cr_assert(karst_session_admits(bed.e, 1001, 75));
	cr_assert(karst_session_admits(bed.e, 0, 100));
	client_close(user(bed.e, 1001, 75));
	for (i = 0; i < n; i++)
		karst_session_destroy(s[i]);
	cr_assert_eq(bed.e->shares.used[ENG_SHARE_CLIENTS], 0);
	cr_assert_eq(bed.e->shares.used[BYTES], 0);
	cr_assert_eq(bed.e->shares.used[ENG_SHARE_DESCRIPTORS], 0);

	eng_shares_set_total(&bed.e->shares, BYTES, 4 << 20);
	c = user(bed.e, 1000, 75);
	for (ret = 0; ret == 0;)
		ret = CALL(c, CREATE_CQ, create_cq, .entries = 4096);
	cr_assert_eq(ret, -ENOMEM, "%s", c->why);
	cr_assert_not_null(strstr(c->why, "[limits] share"), "%s", c->why);
	cr_assert_eq(bed.e->shares.used[BYTES], 2 << 20);
	client_close(c);
	engine_bed_down(&bed);
}

/* --- memory of programs --- */

/* A user who has held up an lcore is remembered, even while that user has no program. */
Test(share, who_is_not_trusted)
{
	struct eng_share_info info[2];
	struct eng_share *s;
	struct eng_shares t;

	eng_shares_init(&t);
	s = join(&t, 1000, &fair);
	cr_assert(eng_share_trusted(s));
	eng_share_eject(s);
	cr_assert_not(eng_share_trusted(s));
	eng_share_leave(s);
	s = eng_share_join(&t, 1001, &fair, 60 * SECOND);
	cr_assert(eng_share_trusted(s));
	eng_share_leave(s);
	s = eng_share_join(&t, 1000, &fair, 120 * SECOND);
	cr_assert_not(eng_share_trusted(s));
	cr_assert_eq(eng_share_list(&t, 0, info, 2), 1);
	cr_assert_eq(info[0].ejected, 1);
	eng_share_leave(s);
	cr_assert(eng_share_trusted(NULL));
	eng_share_eject(NULL);
	eng_shares_fini(&t);
}

#define PIECE 65536u

/* A session of a program that is another process to the engine; here it is this one. */
static struct client *
program_of(struct karst_engine *e, uid_t uid, uint64_t held, uint64_t addresses)
{
	struct karst_session_init init = {.program = "memory",
		.pid = getpid(),
		.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0),
		.uid = uid,
		.limits = {.share = 75, .max_held_bytes = held, .max_window_bytes = addresses}};
	struct karst_session *s;
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	struct client *c;

	cr_assert_eq(karst_session_create(e, &init, &s), 0);
	c = client_over(s, mem);
	close(mem);
	close(init.pidfd);
	return c;
}

/* Registers @len bytes at @mem: of the file @fd, or to be copied if @fd is -1. */
static int
reg(struct client *c, uint32_t pd, const uint8_t *mem, uint64_t len, int fd)
{
	struct {
		struct karst_ctl_reg_mr_req req;
		struct karst_ctl_piece piece;
	} body = {
		.req = {.pd = pd, .addr = (uintptr_t)mem, .len = len, .npieces = 1},
		.piece = {.addr = (uintptr_t)mem,
			.len = len,
			.kind = fd >= 0 ? KARST_CTL_PIECE_FD : KARST_CTL_PIECE_COPY},
	};

	return client_call_fds(c, KARST_CTL_REG_MR, &body, sizeof(body), &fd, fd >= 0);
}

/* Registers as many regions as possible, twice.  @return how many */
static uint32_t
reg_all(struct client *c, const uint8_t *mem, int fd, const char *limit)
{
	uint32_t key[64], n, turn, first = 0, pd = client_pd(c);

	for (turn = 0; turn < 2; turn++) {
		for (n = 0; n < KARST_DIM(key) && reg(c, pd, mem, PIECE, fd) == 0; n++)
			key[n] = RSP(c, reg_mr)->key;
		cr_assert_eq(c->status, -ENOMEM, "%u regions: %s", n, c->why);
		cr_assert_not_null(strstr(c->why, limit), "%s", c->why);
		cr_assert(turn == 0 || n == first);
		first = n;
		while (n > turn) /* the end of the session deregisters what is left */
			cr_assert_eq(CALL(c, DEREG_MR, dereg_mr, .key = key[--n]), 0);
	}
	return first;
}

/* Limits of mapped memory and of addresses hold for a user, not for a program; both are given back
 * with the region, or with the session. */
Test(share, memory_of_programs, .timeout = 1500)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	const uint64_t *sum;
	struct client *a, *b, *other;
	uint8_t *mem, *heap;
	struct engine_bed bed;
	int fd;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	sum = bed.e->shares.used;
	fd = memfd_create("share", MFD_CLOEXEC);
	cr_assert_eq(ftruncate(fd, PIECE), 0);
	mem = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	heap = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
		-1, 0);

	a = program_of(bed.e, 1000, 10 * PIECE, 1 << 30);
	b = program_of(bed.e, 1000, 10 * PIECE, 1 << 30);
	other = program_of(bed.e, 1001, 0, 8 * PIECE);
	cr_assert_eq(reg_all(a, mem, fd, "held_bytes"), 10);
	cr_assert_eq(sum[ENG_SHARE_HELD_BYTES], PIECE);
	cr_assert_eq(reg_all(b, mem, fd, "held_bytes"), 9, "one user");
	/* copied memory is not held, and needs addresses; another user has a share of its own */
	cr_assert_eq(reg_all(other, heap, -1, "window_bytes"), 8);
	cr_assert_eq(sum[ENG_SHARE_HELD_BYTES], 2 * PIECE);
	client_close(a);
	client_close(b);
	/* a share of all that there is */
	eng_shares_set_total(&bed.e->shares, ENG_SHARE_HELD_BYTES, 8 * PIECE);
	a = program_of(bed.e, 1000, 0, 1 << 30);
	cr_assert_eq(reg_all(a, mem, fd, "held_bytes"), 6);
	client_close(a);
	client_close(other);
	cr_assert_eq(sum[ENG_SHARE_HELD_BYTES], 0);
	cr_assert_eq(sum[ENG_SHARE_WINDOW_BYTES], 0);
	munmap(heap, PIECE);
	munmap(mem, PIECE);
	close(fd);
	engine_bed_down(&bed);
}

static atomic_uint warnings;

static void
count_warnings(enum karst_log_level level, const char *fmt, va_list ap)
{
	warnings += level <= KARST_LOG_WARNING;
}

/* Programs that take away their memory cause a log line each, but the number of lines is
 * limited. */
Test(share, faults_do_not_fill_the_log, .timeout = 1500)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct client *c;
	uint32_t i;

	engine_bed_up(&bed, &cfg);
	karst_log_set_sink(count_warnings);
	for (i = 0; i < 2 * KARST_LOG_SOME_LINES; i++) {
		c = program_of(bed.e, 1000, 0, 0);
		eng_space_fail(c->s->space);
		karst_session_attend(c->s);
		cr_assert_eq(CALL(c, ALLOC_PD, alloc_pd, .reserved = 0), -EIO, "%s", c->why);
		client_close(c);
	}
	cr_assert_eq(warnings, KARST_LOG_SOME_LINES);
	karst_log_set_sink(NULL);
	engine_bed_down(&bed);
}
