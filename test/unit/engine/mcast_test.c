/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Multicast groups (U4): every member receives each message, whichever its lcore, and no other QP
 * does. */
#include <errno.h>
#include <sched.h>

#include <criterion/criterion.h>

#include "engine_bed.h"
#include "engine_priv.h"
#include "karst_neigh.h"
#include "karst_owner.h"
#include "member_msg.h"

#define GROUP   0xffffffu /* destination QP */
#define QKEY    0x1234u   /* of engine_bed_attr() */
#define GRH     40u
#define BYTES   100u
#define MEMBERS 16u
#define SLOT    256u

static const uint8_t group4[16] = {[10] = 0xff, 0xff, 239, 1, 2, 3};
static const uint8_t other4[16] = {[10] = 0xff, 0xff, 239, 1, 2, 4};
static const uint8_t group6[16] = {0xff, 0x0e, [15] = 9};

struct party {
	struct engine_bed bed;
	uint32_t key;
	struct karst_engine_qp *qp[MEMBERS];
	uint32_t n;
};

static uint8_t mem[MEMBERS + 1][SLOT]; /* a receive buffer for each member; the last one is what is
				        * sent */

static void
party_up(struct party *p, const struct engine_bed_config *cfg)
{
	memset(p, 0, sizeof(*p));
	engine_bed_up(&p->bed, cfg);
	p->key = engine_bed_mr(&p->bed, mem, sizeof(mem));
	memset(mem, 0, sizeof(mem));
	engine_bed_fill(mem[MEMBERS], BYTES, 5);
}

static void
to_rts(struct engine_bed *bed, struct karst_engine_qp *qp, int side)
{
	struct karst_core_qp_attr attr;
	enum karst_qp_state to;

	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		unsigned int mask = engine_bed_attr(bed, KARST_QPT_UD, side, 0, to, &attr);

		cr_assert_eq(karst_engine_qp_modify(bed->e, qp, &attr, mask), 0);
	}
}

/* A UD QP that can receive one message. */
static struct karst_engine_qp *
guest(struct party *p, int side, uint32_t lcore)
{
	struct karst_engine_qp *qp = engine_bed_qp(&p->bed, KARST_QPT_UD, lcore);

	to_rts(&p->bed, qp, side);
	engine_bed_post_recv(qp, p->n, mem[p->n], SLOT, p->key);
	p->qp[p->n++] = qp;
	return qp;
}

static void
join(struct party *p, struct karst_engine_qp *qp, const uint8_t group[16])
{
	cr_assert_eq(karst_engine_qp_attach_mcast(p->bed.e, qp, group), 0);
}

static uint32_t
ah_to(struct party *p, int side, const uint8_t ip[16])
{
	struct karst_path path;
	uint32_t ah;

	cr_assert_eq(karst_engine_resolve(p->bed.e, p->bed.port[side], 0, ip, NULL, &path), 0);
	path.hop_limit = 3;
	cr_assert_eq(karst_engine_ah_create(p->bed.e, p->bed.pd, &path, &ah), 0);
	return ah;
}

static void
post(struct party *p, struct karst_engine_qp *qp, uint32_t ah, uint32_t qpn)
{
	struct karst_send_wqe *w;

	cr_assert_geq(karst_engine_send_room(qp, 1), 1);
	w = karst_engine_send_slot(qp, 0);
	*w = (struct karst_send_wqe){.wr_id = 1000,
		.opcode = KARST_WR_SEND,
		.flags = KARST_SEND_SIGNALED,
		.num = 1,
		.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY}};
	w->sge[0] = (struct karst_sge){(uintptr_t)mem[MEMBERS], BYTES, p->key};
	cr_assert_eq(karst_engine_post_send(qp, 1), 0);
}

/* Checks what a message from @from causes: its own completion, and one for each member in @want. */
static void
expect(struct party *p, const struct karst_engine_qp *from, uint64_t want, const uint8_t group[16])
{
	struct karst_cqe e;
	bool sent = false;

	while (want != 0 || !sent) {
		cr_assert(engine_bed_wait(&p->bed, &e), "members 0x%lx got nothing",
			(unsigned long)want);
		cr_assert_eq(e.status, KARST_WC_SUCCESS);
		if (e.opcode == KARST_WC_SEND) {
			cr_assert_not(sent);
			sent = true;
			continue;
		}
		cr_assert_eq(e.opcode, KARST_WC_RECV);
		cr_assert(want >> e.wr_id & 1, "member %lu, again or unasked",
			(unsigned long)e.wr_id);
		want &= ~(1ull << e.wr_id);
		cr_assert_eq(e.qpn, p->qp[e.wr_id]->num);
		cr_assert_eq(e.byte_len, GRH + BYTES);
		cr_assert_eq(e.src_qpn, from->num);
		cr_assert(e.flags & KARST_WC_GRH);
		cr_assert_eq(memcmp(mem[e.wr_id] + GRH, mem[MEMBERS], BYTES), 0);
		if (group == group6)
			cr_assert_eq(memcmp(mem[e.wr_id] + 24, group, 16), 0);
		else
			cr_assert_eq(memcmp(mem[e.wr_id] + 36, group + 12, 4), 0);
		/* the hop limit that was asked for */
		cr_assert_eq(mem[e.wr_id][group == group6 ? 7 : 28], 3);
		engine_bed_post_recv(p->qp[e.wr_id], e.wr_id, mem[e.wr_id], SLOT, p->key);
	}
	engine_bed_settle(&p->bed);
	cr_assert_eq(karst_engine_cq_poll(p->bed.cq, &e, 1), 0, "one too many");
}

static uint64_t
drops(const struct party *p, enum karst_drop why)
{
	struct karst_counters sum;

	karst_engine_counters(p->bed.e, KARST_ENGINE_ANY_LCORE, &sum);
	return sum.drop[why];
}

static void
expect_drops(const struct party *p, enum karst_drop why, uint64_t n)
{
	uint64_t all = 0;
	unsigned int i;

	for (i = KARST_DROP_NONE + 1; i < KARST_DROP_MAX; i++)
		all += drops(p, (enum karst_drop)i);
	cr_assert_eq(drops(p, why), n, "%lu", (unsigned long)drops(p, why));
	cr_assert_eq(all, n, "%lu of all kinds", (unsigned long)all);
}

/* Members on both sides of the wire and on each lcore, the sender itself among them: members on the
 * sender's port receive by loopback, members on the other port over the wire. */
static void
everybody(uint32_t lcores, bool ip6)
{
	const uint8_t *group = ip6 ? group6 : group4;
	const struct engine_bed_config cfg = {.engine = {.lcores = lcores}, .ip6 = ip6};
	struct karst_engine_port_info info;
	struct party p;
	uint32_t i, ah;
	uint64_t all;

	party_up(&p, &cfg);
	for (i = 0; i < 2 * lcores; i++)
		join(&p, guest(&p, i & 1, i / 2), group);
	/* two members on one lcore; and QPs that are not members */
	join(&p, guest(&p, 1, 0), group);
	all = (1ull << p.n) - 1;
	guest(&p, 1, lcores - 1);
	if (!ip6)
		join(&p, guest(&p, 0, 0), other4);
	cr_assert_eq(karst_engine_port_info(p.bed.e, p.bed.port[0], &info), 0);
	cr_assert_eq(info.mcast_groups, ip6 ? 1 : 2);
	for (i = 0; i < lcores; i++) {
		ah = ah_to(&p, 0, group);
		post(&p, p.qp[2 * i], ah, GROUP);
		expect(&p, p.qp[2 * i], all, group);
	}
	expect_drops(&p, KARST_DROP_NO_GROUP, 0);
	engine_bed_down(&p.bed);
}

Test(mcast, u4_everybody_on_one_lcore)
{
	everybody(1, false);
}

Test(mcast, u4_everybody_on_two_lcores)
{
	everybody(2, false);
}

/* The low bits of QP 0xffffff, which would name an lcore, name none. */
Test(mcast, u4_everybody_on_three_lcores)
{
	everybody(3, false);
}

Test(mcast, u4_everybody_on_four_lcores)
{
	everybody(4, false);
}

Test(mcast, u4_everybody_ip6)
{
	everybody(3, true);
}

/* One member has another Q_Key, one has no receive request, one is in Error: the others do not
 * notice. */
Test(mcast, u4_members_do_not_hold_each_other_up)
{
	const struct engine_bed_config cfg = {.engine = {.lcores = 2}};
	struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_RTS, .qkey = 9};
	struct karst_engine_qp *from, *poor;
	struct karst_cqe e;
	struct party p;
	uint32_t i;

	party_up(&p, &cfg);
	for (i = 0; i < 6; i++)
		join(&p, guest(&p, 1, i & 1), group4);
	from = guest(&p, 0, 0);
	cr_assert_eq(
		karst_engine_qp_modify(p.bed.e, p.qp[0], &attr, KARST_QP_STATE | KARST_QP_QKEY), 0);
	attr.qp_state = KARST_QPS_ERR;
	cr_assert_eq(karst_engine_qp_modify(p.bed.e, p.qp[3], &attr, KARST_QP_STATE), 0);
	cr_assert(engine_bed_wait(&p.bed, &e));
	cr_assert_eq(e.status, KARST_WC_WR_FLUSH_ERR);
	poor = engine_bed_qp(&p.bed, KARST_QPT_UD, 1);
	to_rts(&p.bed, poor, 1);
	join(&p, poor, group4);
	post(&p, from, ah_to(&p, 0, group4), GROUP);
	expect(&p, from, 1u << 1 | 1u << 2 | 1u << 4 | 1u << 5, group4);
	cr_assert_eq(drops(&p, KARST_DROP_QKEY), 1);
	cr_assert_eq(drops(&p, KARST_DROP_QP_STATE), 1);
	cr_assert_eq(drops(&p, KARST_DROP_NO_WQE), 1);
	engine_bed_down(&p.bed);
}

Test(mcast, u4_joining_and_leaving)
{
	static const uint8_t host[16] = {[10] = 0xff, 0xff, 10, 0, 0, 1};
	static const uint8_t host6[16] = {0xfe, 0x80, [15] = 1};
	const struct engine_bed_config cfg = {.engine = {.lcores = 2}};
	struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_RESET};
	struct karst_engine_qp *from, *a, *b, *rc;
	struct karst_engine *e;
	struct party p;
	uint32_t ah;

	party_up(&p, &cfg);
	e = p.bed.e;
	from = guest(&p, 0, 0);
	a = guest(&p, 1, 0);
	b = guest(&p, 1, 1);
	rc = engine_bed_qp(&p.bed, KARST_QPT_RC, 0);
	ah = ah_to(&p, 0, group4);
	cr_assert_eq(karst_engine_qp_detach_mcast(e, a, group4), -EINVAL);
	cr_assert_eq(karst_engine_qp_attach_mcast(e, rc, group4), -EINVAL);
	cr_assert_eq(karst_engine_qp_attach_mcast(e, a, host), -EINVAL);
	cr_assert_eq(karst_engine_qp_attach_mcast(e, a, host6), -EINVAL);
	post(&p, from, ah, GROUP);
	expect(&p, from, 0, group4);
	expect_drops(&p, KARST_DROP_NO_GROUP, 1);
	/* joining twice is joining once */
	join(&p, a, group4);
	join(&p, a, group4);
	join(&p, b, group4);
	post(&p, from, ah, GROUP);
	expect(&p, from, 1u << 1 | 1u << 2, group4);
	cr_assert_eq(karst_engine_qp_detach_mcast(e, a, group4), 0);
	cr_assert_eq(karst_engine_qp_detach_mcast(e, a, group4), -EINVAL);
	cr_assert_eq(karst_engine_qp_detach_mcast(e, b, other4), -EINVAL);
	post(&p, from, ah, GROUP);
	expect(&p, from, 1u << 2, group4);
	expect_drops(&p, KARST_DROP_NO_GROUP, 1);
	/* a destroyed QP leaves */
	cr_assert_eq(karst_engine_qp_destroy(e, b), 0);
	post(&p, from, ah, GROUP);
	expect(&p, from, 0, group4);
	expect_drops(&p, KARST_DROP_NO_GROUP, 2);
	/* moves to the other port, by way of RESET: only messages on that port are received */
	join(&p, a, group4);
	cr_assert_eq(karst_engine_qp_modify(e, a, &attr, KARST_QP_STATE), 0);
	to_rts(&p.bed, a, 0);
	engine_bed_post_recv(a, 1, mem[1], SLOT, p.key);
	post(&p, from, ah, GROUP);
	expect(&p, from, 1u << 1, group4);
	expect_drops(&p, KARST_DROP_NO_GROUP, 3);
	engine_bed_down(&p.bed);
}

/* A QP joins before it has a port. */
Test(mcast, u4_joining_in_reset)
{
	const struct engine_bed_config cfg = {.engine = {.lcores = 2}};
	struct karst_engine_qp *from, *early;
	struct karst_engine_port_info info;
	struct party p;

	party_up(&p, &cfg);
	from = guest(&p, 0, 0);
	early = engine_bed_qp(&p.bed, KARST_QPT_UD, 1);
	join(&p, early, group4);
	join(&p, early, other4);
	cr_assert_eq(karst_engine_port_info(p.bed.e, p.bed.port[1], &info), 0);
	cr_assert_eq(info.mcast_groups, 0);
	to_rts(&p.bed, early, 1);
	cr_assert_eq(karst_engine_port_info(p.bed.e, p.bed.port[1], &info), 0);
	cr_assert_eq(info.mcast_groups, 2);
	p.qp[p.n] = early;
	engine_bed_post_recv(early, p.n, mem[p.n], SLOT, p.key);
	p.n++;
	post(&p, from, ah_to(&p, 0, group4), GROUP);
	expect(&p, from, 1u << 1, group4);
	cr_assert_eq(karst_engine_qp_detach_mcast(p.bed.e, early, other4), 0);
	cr_assert_eq(karst_engine_qp_detach_mcast(p.bed.e, early, group4), 0);
	engine_bed_down(&p.bed);
}

/* QP 0xffffff with a host's address; and a group address with the number of one QP. */
Test(mcast, u4_neither_nor)
{
	const struct engine_bed_config cfg = {.engine = {.lcores = 2}};
	struct karst_engine_port_info info;
	struct karst_engine_qp *from, *to;
	struct karst_path path;
	struct party p;
	uint32_t ah;

	party_up(&p, &cfg);
	from = guest(&p, 0, 0);
	to = guest(&p, 1, 1);
	join(&p, from, group4);
	join(&p, to, group4);
	cr_assert_eq(karst_engine_port_info(p.bed.e, p.bed.port[1], &info), 0);
	cr_assert_eq(karst_engine_path_init(
			     p.bed.e, p.bed.port[0], 0, info.mac, info.addrs[0].ip, &path),
		0);
	cr_assert_eq(karst_engine_ah_create(p.bed.e, p.bed.pd, &path, &ah), 0);
	post(&p, from, ah, GROUP);
	expect(&p, from, 0, group4);
	expect_drops(&p, KARST_DROP_NO_QP, 1);
	post(&p, from, ah_to(&p, 0, group4), to->num);
	expect(&p, from, 1u << 1, group4);
	engine_bed_down(&p.bed);
}

Test(mcast, limits)
{
	const struct engine_bed_config cfg = {.engine = {.max_mcasts = 3}};
	const struct karst_engine_owner_init init = {.name = "guest", .max_mcasts = 2};
	struct karst_engine_cq_init cq = {.entries = 16};
	struct karst_engine_qp_init qp = {.type = KARST_QPT_UD, .max_send_wr = 1, .max_recv_wr = 1};
	struct karst_engine_owner *owner;
	struct karst_engine_cq *their_cq;
	struct karst_engine_qp *theirs, *ours;
	struct party p;

	party_up(&p, &cfg);
	ours = engine_bed_qp(&p.bed, KARST_QPT_UD, 0);
	cr_assert_eq(karst_engine_owner_create(p.bed.e, &init, &owner), 0);
	cq.owner = qp.owner = owner;
	qp.pd = p.bed.pd;
	cr_assert_eq(karst_engine_cq_create(p.bed.e, &cq, &their_cq), 0);
	qp.send_cq = qp.recv_cq = their_cq;
	cr_assert_eq(karst_engine_qp_create(p.bed.e, &qp, &theirs), 0);
	join(&p, theirs, group4);
	join(&p, theirs, other4);
	cr_assert_eq(karst_engine_qp_attach_mcast(p.bed.e, theirs, group6), -EDQUOT);
	join(&p, theirs, group4);
	join(&p, ours, group4);
	cr_assert_eq(karst_engine_qp_attach_mcast(p.bed.e, ours, group6), -ENOSPC);
	cr_assert_eq(karst_engine_qp_detach_mcast(p.bed.e, theirs, other4), 0);
	join(&p, theirs, group6);
	cr_assert_eq(karst_engine_qp_destroy(p.bed.e, theirs), 0);
	join(&p, ours, other4);
	join(&p, ours, group6);
	cr_assert_eq(karst_engine_cq_destroy(p.bed.e, their_cq), 0);
	cr_assert_eq(karst_engine_owner_destroy(owner), 0);
	engine_bed_down(&p.bed);
}

/* A group has a limited number of members. */
Test(mcast, a_group_has_so_many_members)
{
	const struct engine_bed_config cfg = {.engine = {.lcores = 2}};
	struct karst_engine_qp *first = NULL, *qp;
	struct party p;
	uint32_t i;

	party_up(&p, &cfg);
	for (i = 0; i < KARST_ENGINE_GROUP_QPS; i++) {
		qp = engine_bed_qp(&p.bed, KARST_QPT_UD, i & 1);
		first = i == 0 ? qp : first;
		to_rts(&p.bed, qp, i & 1);
		join(&p, qp, group4);
	}
	qp = engine_bed_qp(&p.bed, KARST_QPT_UD, 0);
	cr_assert_eq(karst_engine_qp_attach_mcast(p.bed.e, qp, group4), -EUSERS);
	join(&p, qp, other4);
	join(&p, first, group4);
	cr_assert_eq(karst_engine_qp_detach_mcast(p.bed.e, first, group4), 0);
	join(&p, qp, group4);
	engine_bed_down(&p.bed);
}

/* Attributes of a QP of a program whose user has an account. */
static struct karst_engine_qp_init
users_qps(struct party *p, uid_t uid)
{
	const struct eng_share_rule rule = {.percent = 75};
	struct karst_engine_owner_init init = {
		.name = "user", .share = eng_share_join(&p->bed.e->shares, uid, &rule, 0)};
	struct karst_engine_cq_init cq = {.entries = 16};
	struct karst_engine_qp_init qp = {
		.type = KARST_QPT_UD, .max_send_wr = 1, .max_recv_wr = 1, .pd = p->bed.pd};

	cr_assert_eq(karst_engine_owner_create(p->bed.e, &init, &qp.owner), 0);
	cq.owner = qp.owner;
	cr_assert_eq(karst_engine_cq_create(p->bed.e, &cq, &qp.send_cq), 0);
	qp.recv_cq = qp.send_cq;
	return qp;
}

/* Joins a group with new queue pairs until that is refused.  @return how many joined */
static uint32_t
fill_group(struct party *p, const struct karst_engine_qp_init *init, const uint8_t group[16])
{
	struct karst_engine_qp *qp;
	uint32_t n = 0;
	int ret;

	for (;; n++) {
		cr_assert_eq(karst_engine_qp_create(p->bed.e, init, &qp), 0);
		ret = karst_engine_qp_attach_mcast(p->bed.e, qp, group);
		if (ret != 0)
			break;
	}
	cr_assert_eq(ret, -EUSERS);
	return n;
}

/* Whatever one user does, there is room in a group for the next user, who gets three quarters of
 * what is left. */
Test(mcast, nobody_has_all_of_a_group)
{
	struct karst_engine_qp_init one, other;
	struct party p;

	party_up(&p, &(struct engine_bed_config){.engine = {.lcores = 1}});
	one = users_qps(&p, 1001);
	other = users_qps(&p, 1002);
	cr_assert_eq(fill_group(&p, &one, group4), 192);
	cr_assert_eq(fill_group(&p, &other, group4), 48);
	cr_assert_eq(fill_group(&p, &one, other4), 192);
	engine_bed_down(&p.bed);
}

static void
numbered(uint8_t ip[16], uint32_t i)
{
	memcpy(ip, other4, 16);
	ip[13] = (uint8_t)(i >> 8);
	ip[14] = (uint8_t)i;
}

static struct karst_engine_port_info
port_info(const struct party *p, int side)
{
	struct karst_engine_port_info info;

	cr_assert_eq(karst_engine_port_info(p->bed.e, p->bed.port[side], &info), 0);
	return info;
}

#define MANY 1440u

/* One call of one program changes any number of groups: an lcore reports that in a few messages at
 * once, and the rest in its following turns.  The groups of other programs stay. */
Test(mcast, many_groups_move_together)
{
	const struct engine_bed_config cfg = {.engine = {.lcores = 1, .max_mcasts = 3 * MANY}};
	struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_RESET};
	struct karst_engine_qp *wander, *stays[2];
	uint64_t said, all = MANY * 2 / 3 / ENG_MEMBER_RECORDS;
	struct party p;
	uint8_t ip[16];
	uint32_t i;

	party_up(&p, &cfg);
	stays[0] = guest(&p, 0, 0);
	stays[1] = guest(&p, 1, 0);
	wander = engine_bed_qp(&p.bed, KARST_QPT_UD, 0);
	for (i = 0; i < MANY; i++) {
		numbered(ip, i);
		join(&p, wander, ip);
		if (i % 3 != 0)
			join(&p, stays[i % 3 - 1], ip);
	}
	engine_bed_settle(&p.bed);
	cr_assert_eq(port_info(&p, 1).mcast_groups, MANY / 3);
	to_rts(&p.bed, wander, 0);
	cr_assert_eq(port_info(&p, 0).mcast_groups, MANY);
	cr_assert_eq(karst_engine_qp_modify(p.bed.e, wander, &attr, KARST_QP_STATE), 0);
	said = port_info(&p, 1).mcast_reports;
	to_rts(&p.bed, wander, 1);
	cr_assert_eq(port_info(&p, 0).mcast_groups, MANY / 3);
	cr_assert_eq(port_info(&p, 1).mcast_groups, MANY);
	/* eight at once; if this thread was late, the lcore has had turns and sent them again */
	cr_assert_lt(port_info(&p, 1).mcast_reports, said + all);
	while (port_info(&p, 1).mcast_reports < said + all)
		karst_engine_poll(p.bed.e, 0);
	/* each group is found in its place */
	for (i = 0; i < MANY; i += 2) {
		numbered(ip, i);
		cr_assert_eq(karst_engine_qp_detach_mcast(p.bed.e, wander, ip), 0);
	}
	cr_assert_eq(karst_engine_qp_destroy(p.bed.e, wander), 0);
	for (i = 0; i < MANY; i++) {
		numbered(ip, i);
		if (i % 3 != 0)
			cr_assert_eq(
				karst_engine_qp_detach_mcast(p.bed.e, stays[i % 3 - 1], ip), 0);
	}
	cr_assert_eq(port_info(&p, 0).mcast_groups, 0);
	cr_assert_eq(port_info(&p, 1).mcast_groups, 0);
	engine_bed_down(&p.bed);
}

struct churn {
	struct party *p;
	atomic_bool stop;
};

/* Joins and leaves groups with a QP that has no receive requests. */
static void *
churn(void *arg)
{
	struct churn *c = arg;
	struct karst_engine *e = c->p->bed.e;
	struct karst_engine_qp *qp = engine_bed_qp(&c->p->bed, KARST_QPT_UD, 1);
	uint8_t group[16];
	uint32_t i;

	to_rts(&c->p->bed, qp, 1);
	memcpy(group, group4, sizeof(group));
	for (i = 0; !atomic_load(&c->stop); i++) {
		group[15] = (uint8_t)(i % 5);
		if (i / 5 % 2 == 0)
			join(c->p, qp, group);
		else
			cr_assert_eq(karst_engine_qp_detach_mcast(e, qp, group), 0);
	}
	cr_assert_eq(karst_engine_qp_destroy(e, qp), 0);
	return NULL;
}

/* A member that stays gets every packet, whatever other members do. */
Test(mcast, u4_under_changes)
{
	const struct engine_bed_config cfg = {.engine = {.lcores = 2}};
	struct karst_engine_qp *from;
	struct engine_bed_poller poller;
	struct churn c = {.stop = false};
	struct party p;
	pthread_t t;
	uint32_t i, ah;

	party_up(&p, &cfg);
	from = guest(&p, 0, 0);
	join(&p, guest(&p, 1, 1), group4);
	join(&p, guest(&p, 1, 0), group4);
	join(&p, from, group4);
	ah = ah_to(&p, 0, group4);
	engine_bed_poller_start(&poller, &p.bed, 2);
	c.p = &p;
	cr_assert_eq(pthread_create(&t, NULL, churn, &c), 0);
	for (i = 0; i < 2000; i++) {
		post(&p, from, ah, GROUP);
		expect(&p, from, 7, group4);
	}
	atomic_store(&c.stop, true);
	/* that thread makes calls about this thread's lcore */
	while (pthread_tryjoin_np(t, NULL) != 0)
		engine_bed_settle(&p.bed);
	engine_bed_poller_stop(&poller);
	engine_bed_down(&p.bed);
}

/* Reports fit into small buffers. */
Test(mcast, many_groups_and_small_buffers)
{
	const struct engine_bed_config cfg = {
		.engine = {.lcores = 1, .frame_bytes = 512}, .ip6 = true};
	uint8_t ip[16] = {0xff, 5};
	struct karst_engine_qp *qp;
	uint64_t said;
	struct party p;
	uint32_t i;

	party_up(&p, &cfg);
	qp = engine_bed_qp(&p.bed, KARST_QPT_UD, 0);
	to_rts(&p.bed, qp, 0);
	for (i = 0; i < 48; i++) {
		ip[15] = (uint8_t)(i + 1);
		join(&p, qp, ip);
	}
	engine_bed_settle(&p.bed);
	said = port_info(&p, 0).mcast_reports;
	/* all leave at once */
	cr_assert_eq(karst_engine_qp_destroy(p.bed.e, qp), 0);
	engine_bed_settle(&p.bed);
	cr_assert_gt(port_info(&p, 0).mcast_reports, said);
	engine_bed_down(&p.bed);
}
