/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The layers between two systems: TCP pipes, reliable queue pairs that keep the order and may fail,
 * and memory that is written by key.
 *
 * Each operation of a queue pair is delivered, and later acknowledged; both in order.  A queue pair
 * that fails loses the operations that were not delivered, and the completions of those that were,
 * so its user does not know which were delivered.  Or its other end does not detect the failure,
 * and the remaining operations arrive there late.
 */
#include "sim_smc.h"

static uint64_t
later(struct world *w, uint64_t now, uint32_t max_ns)
{
	uint64_t ns = rng_range(&w->rng, 1, max_ns);

	if (rng_ppm(&w->rng, w->stall_ppm))
		ns += rng_range(&w->rng, 1, 50) * MSEC;
	return now + ns;
}

/* --- TCP --- */

void
pipe_write(struct world *w, struct end *to, const void *buf, uint32_t len)
{
	struct pipe *p = &to->in;

	REQUIRE(w, p->len + len <= PIPE_MAX, "TCP: too many bytes");
	if (w->failed)
		return;
	memcpy(p->buf + p->len, buf, len);
	p->len += len;
	if (p->next_ns == NEVER)
		p->next_ns = later(w, w->now_ns, w->tcp_max_ns);
}

static void
pipe_turn(struct world *w, struct end *e)
{
	struct pipe *p = &e->in;

	p->arrived += rng_one_in(&w->rng, 3) ? rng_range(&w->rng, 1, p->len - p->arrived)
					     : p->len - p->arrived;
	p->next_ns = p->arrived < p->len ? later(w, w->now_ns, w->tcp_max_ns) : NEVER;
	pair_tcp(w, e);
}

/* --- ops --- */

static struct world *
world_of(void *user)
{
	return ((struct sys *)user)->w;
}

static unsigned int
sys_of(void *user)
{
	struct sys *s = user;

	return (unsigned int)(s - s->w->sys);
}

static struct qp *
qp_of(struct world *w, unsigned int sys, uint32_t link)
{
	for (unsigned int i = 0; i < w->nqps; i++) {
		if (w->qps[i].open && w->qps[i].sys == sys && w->qps[i].link == link)
			return &w->qps[i];
	}
	violated(w, "no queue pair of link %#x", link);
	return &w->qps[0];
}

/* A key that a CLC message names must have been confirmed, except for a first contact (S9).  From
 * then on the peer also has the key of a first contact. */
static void
look_at_clc(struct world *w, unsigned int sys, const void *msg, size_t len)
{
	struct karst_smc_clc m;

	REQUIRE(w, karst_smc_clc_parse(msg, len, &m) == (int)len, "CLC: malformed message sent");
	if (m.type != KARST_SMC_CLC_ACCEPT && m.type != KARST_SMC_CLC_CONFIRM)
		return;
	REQUIRE(w,
		m.accept.rkey > 0 && m.accept.rkey <= w->nkeys &&
			w->keys[m.accept.rkey - 1].valid && w->keys[m.accept.rkey - 1].sys == sys,
		"CLC: names key %#x, which is not valid", m.accept.rkey);
	if (w->failed)
		return;
	REQUIRE(w, m.accept.first_contact || w->keys[m.accept.rkey - 1].confirmed,
		"S9: key %#x is named before it was confirmed", m.accept.rkey);
	w->keys[m.accept.rkey - 1].said = w->keys[m.accept.rkey - 1].confirmed = true;
}

static void
op_clc(void *user, uint32_t conn, void *conn_user, const void *msg, size_t len)
{
	struct world *w = world_of(user);
	struct end *e = conn_user, *peer = &e->pair->e[e == &e->pair->e[0]];

	(void)conn;
	look_at_clc(w, sys_of(user), msg, len);
	note(w, "system %u: pair %u: CLC type %u, %zu bytes", sys_of(user), e->pair->n,
		((const uint8_t *)msg)[4], len);
	pipe_write(w, peer, msg, (uint32_t)len);
}

/*
 * Opens the queue pair of the first link of a group (S8) or of its second link (S10).  The other
 * end opens its own queue pair.
 */
static int
op_link_open(void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local)
{
	struct world *w = world_of(user);
	struct qp *qp;

	if (ask->number != 1 && !w->second_port)
		return -ENODEV;
	REQUIRE(w, w->nqps < QPS, "too many queue pairs");
	if (w->failed)
		return -ENOMEM;
	qp = &w->qps[w->nqps++];
	*qp = (struct qp){.open = true,
		.sys = sys_of(user),
		.link = ask->link,
		.number = ask->number,
		.down_ns = NEVER,
		.connect_ns = NEVER};
	memset(local, 0, sizeof(*local));
	local->gid[10] = local->gid[11] = 0xff;
	local->gid[12] = 192;
	local->gid[14] = (uint8_t)ask->number;
	local->gid[15] = (uint8_t)(sys_of(user) + 1);
	local->mac[5] = local->gid[15];
	local->qpn = w->nqps;
	local->psn = (uint32_t)rng_u64(&w->rng) & 0xffffff;
	local->mtu = 3;
	note(w, "system %u: link %#x opens queue pair %u", sys_of(user), ask->link, w->nqps);
	return 0;
}

static int
op_link_connect(void *user, uint32_t link, const struct karst_smc_end *remote)
{
	struct world *w = world_of(user);
	struct qp *qp = qp_of(w, sys_of(user), link);

	REQUIRE(w, remote->qpn > 0 && remote->qpn <= w->nqps, "connect: no queue pair %u",
		remote->qpn);
	if (w->failed)
		return -ENOMEM;
	qp->remote_qpn = remote->qpn;
	qp->peer = remote->qpn - 1;
	if (rng_one_in(&w->rng, 3)) {
		qp->connect_ns = later(w, w->now_ns, (uint32_t)(5 * MSEC));
		return -EINPROGRESS;
	}
	qp->connected = true;
	return 0;
}

static void
op_done(struct qp *qp)
{
	struct op *op = &qp->ops[qp->first];

	free(op->big);
	op->big = NULL;
	qp->first = (qp->first + 1) % OPS;
	qp->nops--;
}

static void
op_link_close(void *user, uint32_t link)
{
	struct world *w = world_of(user);
	struct qp *qp = qp_of(w, sys_of(user), link);

	note(w, "system %u: link %#x closes", sys_of(user), link);
	while (qp->nops > 0 && !qp->adrift)
		op_done(qp);
	qp->open = false;
}

static struct op *
post(struct world *w, struct qp *qp)
{
	static struct op nowhere;
	struct op *op = &qp->ops[(qp->first + qp->nops) % OPS];

	REQUIRE(w, qp->nops < OPS, "queue pair: too many work requests");
	REQUIRE(w, qp->connected, "queue pair: used before it is connected");
	if (qp->dead || w->failed)
		return &nowhere;
	qp->nops++;
	*op = (struct op){0};
	qp->last_deliver_ns =
		later(w, karst_max_u64(w->now_ns, qp->last_deliver_ns), w->rdma_max_ns);
	qp->last_ack_ns =
		later(w, karst_max_u64(qp->last_deliver_ns, qp->last_ack_ns), w->rdma_max_ns);
	op->deliver_ns = qp->last_deliver_ns;
	op->ack_ns = qp->last_ack_ns;
	return op;
}

/* Checks that a message is well formed (S3), and that it names valid keys (S9). */
static void
look_at_llc(struct world *w, unsigned int sys, const void *msg, size_t len)
{
	static struct karst_smc_llc m;

	if (*(const uint8_t *)msg == KARST_SMC_CDC) {
		struct karst_smc_cdc cdc;

		REQUIRE(w, karst_smc_cdc_parse(msg, len, &cdc) == 0, "CDC: malformed message sent");
		if (cdc.prod_flags & KARST_SMC_CDC_VALIDATE)
			w->sys[sys].validations++;
		note(w, "system %u: CDC %u to %u: produced %u:%u, consumed %u:%u, flags %#x %#x",
			sys, cdc.seq, cdc.token, cdc.prod.wrap, cdc.prod.count, cdc.cons.wrap,
			cdc.cons.count, cdc.prod_flags, cdc.conn_flags);
		return;
	}
	REQUIRE(w, karst_smc_llc_parse(msg, len, &m) == 0, "LLC: malformed message sent");
	note(w, "system %u: %s flags %#x", sys, karst_smc_llc_name(m.type), m.flags);
	if (m.flags & KARST_SMC_LLC_RESPONSE && m.type != KARST_SMC_LLC_ADD_LINK)
		return;
	if (m.type == KARST_SMC_LLC_CONFIRM_RKEY) {
		REQUIRE(w, m.first.rkey - 1 < w->nkeys && w->keys[m.first.rkey - 1].valid,
			"S9: CONFIRM_RKEY of a key that is not valid");
		w->keys[m.first.rkey - 1].confirmed = w->keys[m.first.rkey - 1].said = true;
	} else if (m.type == KARST_SMC_LLC_DELETE_RKEY) {
		w->keys[m.rtokens[0].rkey - 1].deleted = true;
	}
}

static void
op_send(void *user, uint32_t link, const void *msg, size_t len)
{
	struct world *w = world_of(user);
	struct qp *qp = qp_of(w, sys_of(user), link);
	struct op *op;

	look_at_llc(w, sys_of(user), msg, len);
	op = post(w, qp);
	op->send = true;
	op->len = (uint32_t)len;
	if (len <= sizeof(op->msg)) {
		memcpy(op->msg, msg, len);
	} else if (!qp->dead) {
		op->big = malloc(len);
		memcpy(op->big, msg, len);
	}
}

static void
op_write(void *user, const struct karst_smc_write *write)
{
	struct world *w = world_of(user);
	struct op *op = post(w, qp_of(w, sys_of(user), write->link));

	op->send = false;
	op->w = *write;
	op->len = write->len;
}

static int
op_rmb_open(void *user, uint32_t rmb, uint32_t bytes)
{
	struct world *w = world_of(user);
	struct rmb *r = &w->sys[sys_of(user)].rmbs[rmb];

	REQUIRE(w, r->mem == NULL, "buffer %u is open already", rmb);
	r->mem = calloc(1, bytes);
	r->bytes = bytes;
	return 0;
}

static int
op_rmb_key(
	void *user, uint32_t rmb, void *conn_user, uint32_t link, uint32_t *rkey, uint64_t *vaddr)
{
	struct world *w = world_of(user);
	struct qp *qp = qp_of(w, sys_of(user), link);

	REQUIRE(w, w->nkeys < KEYS, "too many keys");
	if (w->failed)
		return -ENOMEM;
	w->keys[w->nkeys] = (struct key){
		.valid = true, .sys = sys_of(user), .rmb = rmb, .qp = (unsigned int)(qp - w->qps)};
	*rkey = ++w->nkeys;
	*vaddr = (uint64_t)*rkey << 32;
	w->sys[sys_of(user)].rmbs[rmb].keyed = true;
	return 0;
}

static void
op_rmb_unkey(void *user, uint32_t rmb)
{
	struct world *w = world_of(user);

	w->sys[sys_of(user)].rmbs[rmb].keyed = false;
	w->sys[sys_of(user)].rmbs[rmb].owner = 0;
	for (unsigned int i = 0; i < w->nkeys; i++) {
		struct key *k = &w->keys[i];
		const struct qp *qp = &w->qps[k->qp];

		if (!k->valid || k->sys != sys_of(user) || k->rmb != rmb)
			continue;
		k->valid = false;
		REQUIRE(w,
			!k->said || k->deleted || !qp->open || qp->dead || qp->number != 1 ||
				w->kills,
			"S9: key %u is taken away, which the peer still has", i + 1);
	}
}

static void
op_rmb_close(void *user, uint32_t rmb)
{
	struct world *w = world_of(user);
	struct rmb *r = &w->sys[sys_of(user)].rmbs[rmb];

	REQUIRE(w, r->mem != NULL && !r->keyed, "buffer %u is closed, but not open or with a key",
		rmb);
	free(r->mem);
	r->mem = NULL;
}

const struct karst_smc_ops wire_ops = {op_clc, op_link_open, op_link_connect, op_link_close,
	op_send, op_write, op_rmb_open, op_rmb_key, op_rmb_unkey, op_rmb_close};

/* --- what happens --- */

/* Copies the bytes of WRITEs that will arrive late, because the sender's memory may change from now
 * on. */
static void
set_adrift(struct world *w, struct qp *qp)
{
	uint64_t late = rng_range(&w->rng, 1, (uint32_t)(50 * MSEC));

	while (qp->nops > 0 && qp->ops[qp->first].delivered)
		op_done(qp);
	for (unsigned int i = 0; i < qp->nops; i++) {
		struct op *op = &qp->ops[(qp->first + i) % OPS];
		const struct end *e = op->w.user;

		op->deliver_ns += late;
		if (op->send)
			continue;
		op->big = malloc(op->len);
		for (uint32_t n = 0; n < op->len; n++)
			op->big[n] = e->send_buf[(op->w.pos + n) & (e->send_bytes - 1)];
	}
	qp->adrift = true;
}

void
wire_kill(struct world *w, struct qp *qp)
{
	bool alone;

	if (qp->dead || !qp->open)
		return;
	note(w, "queue pair %u dies", (unsigned int)(qp - w->qps) + 1);
	qp->dead = true;
	qp->connect_ns = NEVER;
	alone = qp->connected && w->qps[qp->peer].open && !w->qps[qp->peer].dead &&
		rng_one_in(&w->rng, 2);
	if (alone)
		set_adrift(w, qp);
	while (qp->nops > 0 && !alone)
		op_done(qp);
	qp->down_ns = later(w, w->now_ns, (uint32_t)(100 * MSEC));
	if (qp->connected && !alone)
		wire_kill(w, &w->qps[qp->peer]);
}

static void
come(struct world *w, const struct qp *to, const struct op *op)
{
	struct karst_smc *smc = w->sys[to->sys].smc;

	smc->now_ns = w->now_ns;
	karst_smc_link_rx(smc, to->link, op->big != NULL ? op->big : op->msg, op->len);
	pair_came(w, to->sys);
	pair_events(w, to->sys);
}

/* Checks that only the peer of its connection writes into a buffer, also if the buffer was kept, or
 * the WRITE arrives late. */
static void
look_whose_buffer(struct world *w, const struct end *from, unsigned int sys, uint32_t rmb)
{
	for (unsigned int i = 0; i < 2 * w->npairs && !w->failed; i++) {
		const struct end *e = &w->pairs[i / 2]->e[i & 1];
		struct karst_smc_conn_info info;

		if (e->sys != sys || e->pair == from->pair || !e->opened || e->released ||
			karst_smc_conn_info(w->sys[sys].smc, e->id, &info) != 0)
			continue;
		REQUIRE(w, info.rmb != rmb, "S9: pair %u writes into the buffer of pair %u",
			from->pair->n, e->pair->n);
	}
}

static void
deliver_write(struct world *w, const struct op *op, unsigned int to)
{
	uint32_t n = (uint32_t)(op->w.vaddr >> 32);
	uint64_t at = op->w.vaddr & UINT32_MAX;
	const struct end *e = op->w.user;
	struct key *k = &w->keys[n - 1];
	struct rmb *r;

	REQUIRE(w, n == op->w.rkey && n <= w->nkeys && k->sys == to && k->valid,
		"S9: WRITE with key %u, which is not valid", op->w.rkey);
	if (w->failed)
		return;
	look_whose_buffer(w, e, to, k->rmb);
	r = &w->sys[to].rmbs[k->rmb];
	REQUIRE(w, at + op->w.len <= r->bytes, "S12: WRITE of %u bytes at %lu of a buffer of %u",
		op->w.len, (unsigned long)at, r->bytes);
	if (w->failed)
		return;
	for (uint32_t i = 0; i < op->w.len; i++)
		r->mem[at + i] = op->big != NULL
			? op->big[i]
			: e->send_buf[(op->w.pos + i) & (e->send_bytes - 1)];
}

/* Delivers the first operation of a queue pair that is adrift. */
static void
drift(struct world *w, struct qp *qp)
{
	struct qp *peer = &w->qps[qp->peer];
	struct op *op = &qp->ops[qp->first];
	bool valid = op->send || w->keys[op->w.rkey - 1].valid;

	if (peer->open && !peer->dead && !valid)
		wire_kill(w, peer); /* it has refused the access, and so has failed, too */
	if (peer->open && !peer->dead) {
		note(w, "queue pair %u: something comes late", qp->peer + 1);
		if (!op->send)
			deliver_write(w, op, peer->sys);
		else
			come(w, peer, op);
	}
	op_done(qp);
}

static void
deliver(struct world *w, struct qp *qp, struct op *op)
{
	struct qp *peer = &w->qps[qp->peer];

	if (!peer->open || peer->dead) { /* no response: the queue pair fails */
		wire_kill(w, qp);
		return;
	}
	if (!peer->connected) {
		for (unsigned int i = 0; i < qp->nops; i++) {
			qp->ops[(qp->first + i) % OPS].deliver_ns += MSEC;
			qp->ops[(qp->first + i) % OPS].ack_ns += MSEC;
		}
		qp->last_ack_ns += MSEC;
		qp->last_deliver_ns += MSEC;
		return;
	}
	op->delivered = true;
	if (!op->send) {
		deliver_write(w, op, peer->sys);
		return;
	}
	come(w, peer, op);
}

/* A WRITE may be sent again until it is acknowledged, so its buffer must not change before. */
static void
acknowledge(struct world *w, struct qp *qp)
{
	struct op *op = &qp->ops[qp->first];
	bool send = op->send;

	if (!send)
		pair_check_send(w, op->w.user, op->w.pos, op->w.len);
	op_done(qp);
	if (!send)
		return;
	w->sys[qp->sys].smc->now_ns = w->now_ns;
	karst_smc_link_sent(w->sys[qp->sys].smc, qp->link, 1);
	pair_events(w, qp->sys);
}

static struct op *
undelivered(const struct qp *qp)
{
	for (unsigned int i = 0; i < qp->nops; i++) {
		if (!qp->ops[(qp->first + i) % OPS].delivered)
			return (struct op *)&qp->ops[(qp->first + i) % OPS];
	}
	return NULL;
}

static uint64_t
qp_next(const struct qp *qp)
{
	const struct op *op;
	uint64_t at = qp->open ? karst_min_u64(qp->down_ns, qp->connect_ns) : NEVER;

	if (qp->adrift && qp->nops != 0)
		return karst_min_u64(at, qp->ops[qp->first].deliver_ns);
	if (!qp->open)
		return NEVER;
	if (qp->nops == 0)
		return at;
	if (qp->ops[qp->first].delivered)
		at = karst_min_u64(at, qp->ops[qp->first].ack_ns);
	op = undelivered(qp);
	return op != NULL ? karst_min_u64(at, op->deliver_ns) : at;
}

static void
qp_turn(struct world *w, struct qp *qp)
{
	struct op *op;

	if (qp->open && qp->connect_ns <= w->now_ns) {
		qp->connect_ns = NEVER;
		qp->connected = true;
		w->sys[qp->sys].smc->now_ns = w->now_ns;
		karst_smc_link_connected(w->sys[qp->sys].smc, qp->link, 0);
		pair_events(w, qp->sys);
		return;
	}
	if (qp->open && qp->down_ns <= w->now_ns) {
		qp->down_ns = NEVER;
		w->sys[qp->sys].smc->now_ns = w->now_ns;
		karst_smc_link_down(w->sys[qp->sys].smc, qp->link);
		pair_events(w, qp->sys);
		return;
	}
	if (qp->adrift) {
		drift(w, qp);
		return;
	}
	if (qp->ops[qp->first].delivered && qp->ops[qp->first].ack_ns <= w->now_ns) {
		acknowledge(w, qp);
		return;
	}
	op = undelivered(qp);
	if (op != NULL && op->deliver_ns <= w->now_ns)
		deliver(w, qp, op);
}

uint64_t
wire_next(const struct world *w)
{
	uint64_t at = NEVER;
	unsigned int i;

	for (i = 0; i < w->nqps; i++)
		at = karst_min_u64(at, qp_next(&w->qps[i]));
	for (i = 0; i < w->npairs; i++) {
		at = karst_min_u64(at, w->pairs[i]->e[0].in.next_ns);
		at = karst_min_u64(at, w->pairs[i]->e[1].in.next_ns);
	}
	return at;
}

void
wire_turn(struct world *w)
{
	for (unsigned int i = 0; i < w->nqps; i++) {
		if (qp_next(&w->qps[i]) <= w->now_ns) {
			qp_turn(w, &w->qps[i]);
			return;
		}
	}
	for (unsigned int i = 0; i < 2 * w->npairs; i++) {
		if (w->pairs[i / 2]->e[i & 1].in.next_ns <= w->now_ns) {
			pipe_turn(w, &w->pairs[i / 2]->e[i & 1]);
			return;
		}
	}
}

void
wire_judge(struct world *w, bool end)
{
	unsigned int i, s;

	for (i = 0; i < w->nqps; i++)
		REQUIRE(w, !w->qps[i].open, "queue pair %u is left", i + 1);
	for (s = 0; s < 2; s++) {
		for (i = 0; i < RMBS; i++) {
			REQUIRE(w, !w->sys[s].rmbs[i].keyed, "system %u: buffer %u has keys", s, i);
			REQUIRE(w, !end || w->sys[s].rmbs[i].mem == NULL,
				"system %u: buffer %u is left", s, i);
		}
	}
}

void
wire_free(struct world *w)
{
	unsigned int i;

	for (i = 0; i < w->nqps; i++) {
		while (w->qps[i].nops > 0)
			op_done(&w->qps[i]);
	}
	for (i = 0; i < RMBS; i++) {
		free(w->sys[0].rmbs[i].mem);
		free(w->sys[1].rmbs[i].mem);
	}
}
