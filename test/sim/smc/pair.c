/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The programs at both ends of each connection.  The byte at each position of a stream is known, so
 * that lost, duplicated or misplaced bytes are detected at once.
 */
#include "sim_smc.h"

static struct end *
other(const struct end *e)
{
	return &e->pair->e[e == &e->pair->e[0]];
}

uint8_t
pattern(const struct end *from, uint64_t pos)
{
	if (from->plan == PLAN_ECHO)
		from = other(from);
	return (uint8_t)(sim_mix(pos / 8 +
				 ((uint64_t)from->pair->n << 33 | (uint64_t)from->sys << 32)) >>
		8 * (pos % 8));
}

static struct karst_smc *
smc_of(struct world *w, const struct end *e)
{
	w->sys[e->sys].smc->now_ns = w->now_ns;
	return w->sys[e->sys].smc;
}

static void
soon(struct world *w, struct end *e, uint64_t max_ns)
{
	e->next_ns = karst_min_u64(e->next_ns, w->now_ns + rng_range(&w->rng, 1, (uint32_t)max_ns));
}

/* Makes an end of some pairs an echo.  It takes no random number: other pairs stay the same. */
static void
choose_echo(struct world *w, struct pair *p)
{
	struct end *e = &p->e[w->rng.state >> 50 & 1];

	if (p->e[0].plan != PLAN_NICE || p->e[1].plan != PLAN_NICE || (w->rng.state >> 44 & 7) != 0)
		return;
	e->plan = PLAN_ECHO;
	e->total = 0;
}

struct pair *
pair_new(struct world *w, unsigned int n)
{
	struct pair *p = calloc(1, sizeof(*p));

	p->n = n;
	p->open_ns = w->now_ns +
		(rng_one_in(&w->rng, 3) ? rng_range(&w->rng, 1, 200) * MSEC
					: rng_range(&w->rng, 1, 2000) * USEC);
	p->decline = rng_one_in(&w->rng, 40);
	for (unsigned int i = 0; i < 2; i++) {
		struct end *e = &p->e[i];

		e->pair = p;
		e->sys = i ^ (n & w->rng.state >> 40 & 1); /* both roles on both systems */
		e->plan = rng_below(&w->rng, 3) == 0 ? rng_below(&w->rng, PLAN_ECHO) : PLAN_NICE;
		e->send_bytes = rng_pow2(&w->rng, 512, 131072);
		e->send_buf = calloc(1, e->send_bytes);
		e->total = rng_one_in(&w->rng, 8)    ? 0
			: rng_below(&w->rng, 3) == 0 ? rng_range(&w->rng, 1, 300000)
						     : rng_log(&w->rng, 1, 300000);
		e->next_ns = NEVER;
		e->in.next_ns = NEVER;
	}
	p->e[1].sys = !p->e[0].sys;
	choose_echo(w, p);
	return p;
}

void
pair_free(struct pair *p)
{
	free(p->e[0].send_buf);
	free(p->e[1].send_buf);
	free(p);
}

/* --- TCP, and connections that fall back to it --- */

static void
tcp_mode(struct world *w, struct end *e)
{
	uint8_t buf[300];
	uint64_t want = karst_min_u64(e->total, sizeof(buf));

	for (; e->tcp_sent < want; e->tcp_sent++)
		buf[e->tcp_sent] = pattern(e, e->tcp_sent);
	if (want != 0)
		pipe_write(w, other(e), buf, (uint32_t)want);
}

void
pair_tcp(struct world *w, struct end *e)
{
	struct pipe *p = &e->in;
	int n = 1;

	while (n > 0 && !e->fallback && !e->failed && e->opened && !e->released && p->arrived > 0) {
		n = karst_smc_clc_rx(smc_of(w, e), e->id, p->buf, p->arrived);
		REQUIRE(w, n >= 0, "clc_rx: %d", n);
		if (n > 0) {
			memmove(p->buf, p->buf + n, p->len - (uint32_t)n);
			p->len -= (uint32_t)n;
			p->arrived -= (uint32_t)n;
		}
		pair_events(w, e->sys);
	}
	if (!e->fallback)
		return;
	for (uint32_t i = 0; i < p->arrived && !w->failed; i++, e->tcp_read++)
		REQUIRE(w, p->buf[i] == pattern(other(e), e->tcp_read),
			"pair %u: TCP byte %lu is wrong", e->pair->n, (unsigned long)e->tcp_read);
	memmove(p->buf, p->buf + p->arrived, p->len - p->arrived);
	p->len -= p->arrived;
	p->arrived = 0;
	soon(w, e, USEC);
}

/* --- SMC-R --- */

void
pair_check_send(struct world *w, const struct end *from, uint64_t pos, uint32_t len)
{
	for (uint32_t i = 0; i < len && !w->failed; i++)
		REQUIRE(w,
			from->send_buf[(pos + i) & (from->send_bytes - 1)] ==
				pattern(from, pos + i),
			"S12: pair %u: byte %lu was overwritten before its WRITE was complete",
			from->pair->n, (unsigned long)(pos + i));
}

/* Checks bytes that have arrived (S4); they must not change until they are consumed. */
static void
check_received(struct world *w, struct end *e, const struct karst_smc_conn_info *info)
{
	const struct rmb *r;

	REQUIRE(w, info->recv_pos >= e->seen, "S13: pair %u: what has come becomes less",
		e->pair->n);
	REQUIRE(w, info->recv_pos <= other(e)->given,
		"S12: pair %u: %lu bytes came, %lu were given", e->pair->n,
		(unsigned long)info->recv_pos, (unsigned long)other(e)->given);
	if (info->rmb == UINT32_MAX || w->failed)
		return;
	r = &w->sys[e->sys].rmbs[info->rmb];
	for (; e->seen < info->recv_pos && !w->failed; e->seen++)
		REQUIRE(w, r->mem[e->seen & (r->bytes - 1)] == pattern(other(e), e->seen),
			"S12: pair %u: byte %lu is wrong", e->pair->n, (unsigned long)e->seen);
}

void
pair_came(struct world *w, unsigned int sys)
{
	for (unsigned int i = 0; i < w->npairs && !w->failed; i++) {
		struct end *e = &w->pairs[i]->e[w->pairs[i]->e[0].sys != sys];
		struct karst_smc_conn_info info;
		uint64_t before = e->seen;

		if (!e->connected || e->released ||
			karst_smc_conn_info(w->sys[sys].smc, e->id, &info) != 0)
			continue;
		check_received(w, e, &info);
		REQUIRE(w,
			e->seen == before || info.recv_pos - info.consumed_pos != info.rmb_bytes ||
				info.peer_blocked,
			"S14: pair %u: the element is full, and the writer does not say so", i);
	}
}

/* Bytes may arrive after close() and before the peer is told of it: then it is an abort, too. */
static void
note_unread(const struct world *w, struct end *e)
{
	struct karst_smc_conn_info info;

	if (e->close_called && !e->released &&
		karst_smc_conn_info(w->sys[e->sys].smc, e->id, &info) == 0 &&
		info.recv_pos != info.consumed_pos)
		e->unread_at_close = true;
}

static bool
reset_excused(const struct world *w, const struct end *e)
{
	const struct end *o = other(e);

	return o->abort_called || o->unread_at_close || o->reset || o->failed || o->fallback ||
		e->abort_called || e->unread_at_close || w->deaths ||
		(w->kill_done && e->pair->decline); /* see pair_judge() */
}

/*
 * Checks an event: no connection falls back (S7), joins a group of another peer (S11), or is reset
 * without a reason.
 */
static void
event(struct world *w, struct end *e, uint32_t what)
{
	struct karst_smc_conn_info info;

	if (karst_smc_conn_info(w->sys[e->sys].smc, e->id, &info) != 0) {
		violated(w, "pair %u: an event, but no connection", e->pair->n);
		return;
	}
	note(w, "system %u: pair %u: events %#x, %s, %lu written, %lu received, %lu consumed",
		e->sys, e->pair->n, what, karst_smc_state_name(info.state),
		(unsigned long)info.written_pos, (unsigned long)info.recv_pos,
		(unsigned long)info.consumed_pos);
	e->error = info.error;
	note_unread(w, e);
	note_unread(w, other(e));
	if (info.state >= KARST_SMC_ACTIVE)
		check_received(w, e, &info); /* it may be full already when it is connected */
	if (what & KARST_SMC_EV_CONNECTED) {
		REQUIRE(w, !e->connected, "pair %u: connected twice", e->pair->n);
		e->connected = true;
	}
	if (what & KARST_SMC_EV_FALLBACK) {
		e->fallback = true;
		e->reason = info.reason;
		REQUIRE(w,
			e->pair->decline || w->no_common_eid || w->deaths || e->abort_called ||
				other(e)->abort_called || other(e)->failed,
			"pair %u: falls back without a reason: %#x", e->pair->n, info.reason);
		tcp_mode(w, e);
		soon(w, e, USEC);
	}
	if (what & KARST_SMC_EV_FAILED) {
		e->failed = true;
		REQUIRE(w,
			e->close_called || e->abort_called || other(e)->abort_called ||
				other(e)->close_called || w->deaths || other(e)->failed,
			"pair %u: failed without a reason: %d", e->pair->n, info.error);
	}
	if (what & KARST_SMC_EV_RESET) {
		e->reset = true;
		REQUIRE(w, reset_excused(w, e), "pair %u: system %u: reset without a reason: %d",
			e->pair->n, e->sys, info.error);
	}
	if (what & KARST_SMC_EV_URGENT) {
		bool found = false;

		for (unsigned int i = 0; i < other(e)->nurgent; i++)
			found |= other(e)->urgents[i] == info.urgent_pos;
		REQUIRE(w, found, "S16: pair %u: byte %lu is not urgent", e->pair->n,
			(unsigned long)info.urgent_pos);
		e->urgent_last = info.urgent_pos;
	}
	REQUIRE(w,
		!info.urgent || info.consumed_pos > info.urgent_pos ||
			info.recv_pos == info.urgent_pos + 1,
		"S16: pair %u: byte %lu came behind an urgent one that is not consumed", e->pair->n,
		(unsigned long)info.recv_pos);
	if (info.peer_done && !e->peer_done) {
		e->peer_done = true;
		REQUIRE(w,
			e->reset || info.error != 0 || e->close_called ||
				info.recv_pos == other(e)->given,
			"S15: pair %u: the end after %lu of %lu bytes", e->pair->n,
			(unsigned long)info.recv_pos, (unsigned long)other(e)->given);
		/* If the other end has not shut down, it has closed. */
		REQUIRE(w,
			!other(e)->must_abort || other(e)->shut_called || e->reset ||
				e->close_called,
			"S15: pair %u: bytes were not read, and nobody is told", e->pair->n);
	}
	if (what & KARST_SMC_EV_CLOSED)
		e->closed = true;
	soon(w, e, 10 * USEC);
}

void
pair_events(struct world *w, unsigned int sys)
{
	struct karst_smc_ev ev;

	while (!w->failed && karst_smc_next_event(w->sys[sys].smc, &ev)) {
		if (ev.what < KARST_SMC_EV_GROUP_UP)
			event(w, ev.user, ev.what);
		else
			note(w, "system %u: group %u: events %#x", sys, ev.id, ev.what);
	}
}

static void
write_some(struct world *w, struct end *e, const struct karst_smc_conn_info *info)
{
	uint64_t room = e->send_bytes - (e->given - info->free_pos), i;
	uint32_t n;
	bool urgent = rng_one_in(&w->rng, 60) && e->nurgent < 64;
	int rc;

	if (info->send_over) {
		e->send_over = true;
		e->total = e->given;
	}
	room = karst_min_u64(room, e->total - e->given);
	if (room == 0)
		return;
	n = rng_one_in(&w->rng, 2) ? (uint32_t)room : rng_log(&w->rng, 1, (uint32_t)room);
	for (i = 0; i < n; i++)
		e->send_buf[(e->given + i) & (e->send_bytes - 1)] = pattern(e, e->given + i);
	if (urgent)
		e->urgents[e->nurgent++] = e->given + n - 1;
	e->given += n; /* the other end may receive these bytes before the call returns */
	rc = karst_smc_conn_send(smc_of(w, e), e->id, n, urgent);
	if (rc == -EPIPE) {
		e->given -= n;
		e->send_over = true;
		e->total = e->given;
		e->nurgent -= urgent;
	} else {
		REQUIRE(w, rc == 0, "pair %u: send: %d", e->pair->n, rc);
	}
}

static void
read_some(struct world *w, struct end *e, const struct karst_smc_conn_info *info)
{
	const struct rmb *r = &w->sys[e->sys].rmbs[info->rmb];
	uint32_t n, i;

	if (info->recv_pos == info->consumed_pos || info->rmb == UINT32_MAX)
		return;
	n = rng_one_in(&w->rng, 3)
		? rng_log(&w->rng, 1, (uint32_t)(info->recv_pos - info->consumed_pos))
		: (uint32_t)(info->recv_pos - info->consumed_pos);
	for (i = 0; i < n && !w->failed; i++)
		REQUIRE(w, r->mem[(e->read + i) & (r->bytes - 1)] == pattern(other(e), e->read + i),
			"S12: pair %u: byte %lu was overwritten before it was consumed", e->pair->n,
			(unsigned long)(e->read + i));
	e->read += n;
	if (e->plan == PLAN_ECHO && !e->send_over)
		e->total = e->read;
	REQUIRE(w, karst_smc_conn_consumed(smc_of(w, e), e->id, n) == 0, "consumed");
}

static void
do_close(struct world *w, struct end *e, const struct karst_smc_conn_info *info)
{
	if (e->close_called)
		return;
	e->close_called = true;
	note(w, "system %u: pair %u: closes", e->sys, e->pair->n);
	if (info->recv_pos != info->consumed_pos)
		e->unread_at_close = e->must_abort = true;
	karst_smc_conn_close(smc_of(w, e), e->id);
}

/* Checks, when an end has read to the end and closes, that an echo has sent back every byte. */
static void
check_echo(struct world *w, const struct end *e, const struct karst_smc_conn_info *info)
{
	const struct end *o = other(e);

	if ((e->plan != PLAN_ECHO && o->plan != PLAN_ECHO) || e->close_called || info->error != 0 ||
		e->send_over || o->send_over)
		return;
	w->echoed += e->plan == PLAN_ECHO;
	REQUIRE(w, e->read == e->given, "S15: pair %u: %lu bytes read, %lu written with an echo",
		e->pair->n, (unsigned long)e->read, (unsigned long)e->given);
}

static void
work(struct world *w, struct end *e)
{
	struct karst_smc_conn_info info;
	bool all, over;

	if (karst_smc_conn_info(smc_of(w, e), e->id, &info) != 0) {
		violated(w, "pair %u: no connection", e->pair->n);
		return;
	}
	note_unread(w, e);
	if (e->reset) {
		do_close(w, e, &info);
		return;
	}
	if (!e->shut_called && !e->close_called && rng_below(&w->rng, 4) != 0)
		write_some(w, e, &info);
	if (!e->close_called && rng_below(&w->rng, 4) != 0) {
		karst_smc_conn_info(smc_of(w, e), e->id, &info);
		read_some(w, e, &info);
	}
	karst_smc_conn_info(smc_of(w, e), e->id, &info);
	all = e->given == e->total;
	over = e->peer_done && info.recv_pos == info.consumed_pos;
	if (e->plan == PLAN_ABORT && rng_one_in(&w->rng, 20) && !e->close_called) {
		e->abort_called = e->close_called = true;
		karst_smc_conn_abort(smc_of(w, e), e->id);
	} else if (all && e->plan == PLAN_CLOSE) {
		do_close(w, e, &info);
	} else if (all && !e->shut_called && !over && (e->plan != PLAN_ECHO || e->send_over)) {
		e->shut_called = true;
		karst_smc_conn_shutdown(smc_of(w, e), e->id);
	} else if (all && over) {
		check_echo(w, e, &info);
		do_close(w, e, &info);
	}
}

/* --- buffers that programs keep --- */

static unsigned int
owner_of(const struct end *e)
{
	return 1 + e->pair->n % OWNERS;
}

static void
keep(struct world *w, struct end *e)
{
	uint32_t rmb;

	if (!w->keeps || karst_smc_conn_keep(smc_of(w, e), e->id, &rmb) != 0)
		return;
	REQUIRE(w, !e->reset && !e->must_abort && !e->abort_called,
		"S9: pair %u did not end well, and its buffer is kept", e->pair->n);
	note(w, "system %u: pair %u: keeps buffer %u", e->sys, e->pair->n, rmb);
	w->sys[e->sys].rmbs[rmb].owner = owner_of(e);
	w->sys[e->sys].kept++;
}

/* Takes a buffer that the program has kept; sometimes drops one of its buffers first. */
static void
take(struct world *w, struct end *e)
{
	for (uint32_t i = 0; i < RMBS; i++) {
		struct rmb *r = &w->sys[e->sys].rmbs[i];
		int rc;

		if (r->owner != owner_of(e))
			continue;
		if (rng_one_in(&w->rng, 10)) {
			rc = karst_smc_rmb_drop(smc_of(w, e), i);
			r->owner = 0;
			REQUIRE(w, rc == 0 || rc == -ENOENT, "drop: %d", rc);
			continue;
		}
		rc = karst_smc_conn_take(smc_of(w, e), e->id, i);
		r->owner = 0;
		REQUIRE(w, rc == 0 || rc == -ENOENT, "take: %d", rc);
		w->sys[e->sys].taken += rc == 0;
		note(w, "system %u: pair %u: takes buffer %u: %d", e->sys, e->pair->n, i, rc);
		if (rc == 0)
			return;
	}
}

static void
release(struct world *w, struct end *e)
{
	int rc;

	keep(w, e);
	rc = karst_smc_conn_release(smc_of(w, e), e->id);
	REQUIRE(w, rc == 0, "pair %u: release: %d", e->pair->n, rc);
	e->released = true;
}

static void
start(struct world *w, struct pair *p)
{
	for (unsigned int i = 0; i < 2; i++) {
		struct end *e = &p->e[i];
		struct karst_smc_conn_attr attr = {
			.role = i == 0 ? KARST_SMC_CLIENT : KARST_SMC_SERVER,
			.size = (uint8_t)rng_below(&w->rng, 3),
			.send_bytes = e->send_bytes,
			.user = e};

		attr.local_gid[10] = attr.local_gid[11] = 0xff;
		attr.local_gid[12] = 192;
		attr.local_gid[14] = 1;
		attr.local_gid[15] = (uint8_t)(e->sys + 1);
		REQUIRE(w, karst_smc_conn_open(smc_of(w, e), &attr, &e->id) == 0, "open");
		e->opened = true;
		take(w, e);
		if (p->decline && i == 1)
			karst_smc_conn_decline(smc_of(w, e), e->id, KARST_SMC_DECL_OPTION);
		pair_events(w, e->sys);
	}
	p->open_ns = NEVER;
}

uint64_t
pair_next(const struct pair *p)
{
	return karst_min_u64(p->open_ns, karst_min_u64(p->e[0].next_ns, p->e[1].next_ns));
}

static void
end_turn(struct world *w, struct end *e)
{
	e->next_ns = NEVER;
	if (e->released)
		return;
	if (e->closed || e->failed) {
		pair_judge(w, e->pair);
		release(w, e);
	} else if (e->fallback) {
		if (e->tcp_read < karst_min_u64(other(e)->total, 300) && other(e)->fallback)
			return; /* more bytes will arrive */
		if (other(e)->fallback || other(e)->failed || other(e)->released)
			release(w, e);
	} else if (e->connected) {
		work(w, e);
		if (e->next_ns == NEVER)
			e->next_ns = w->now_ns +
				(rng_one_in(&w->rng, 30) ? rng_range(&w->rng, 1, 300) * MSEC
							 : rng_range(&w->rng, 1, 500) * USEC);
	}
	pair_events(w, e->sys);
	if (e->fallback && !e->released)
		soon(w, e, 20 * MSEC);
}

void
pair_turn(struct world *w, struct pair *p)
{
	if (p->open_ns <= w->now_ns)
		start(w, p);
	for (unsigned int i = 0; i < 2; i++) {
		if (p->e[i].next_ns <= w->now_ns)
			end_turn(w, &p->e[i]);
	}
	if (p->e[0].released && p->e[1].released)
		p->done = true;
}

/* Checks both ends when one of them has ended. */
void
pair_judge(struct world *w, struct pair *p)
{
	for (unsigned int i = 0; i < 2; i++) {
		struct end *e = &p->e[i], *o = other(e);

		/* reset: a link failed when only the client had the connection */
		REQUIRE(w, !(e->fallback && o->connected && !o->reset) || w->deaths,
			"S2: pair %u: one end is TCP, the other SMC-R", p->n);
	}
}
