/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-replay-smc: captures of SMC-R between two Linux hosts, with lib/smc in the place of one:
 * CLC and its declines (S2, S6, S7), LLC (S3, S8, S9, S10), data (S4) around the buffer (S12) and
 * with blocked writers (S14), urgent bytes (S16), all ends (S15), a link that fails (S17, S18), and
 * a group that is used again (S5).
 *
 * What the peer sent is received.  Whenever the captured host sent something, the test's program
 * makes the call that the message implies (write, read, end, close, abandon the connection), and
 * karst has to have sent the same: CLC, LLC and CDC bit for bit (except for what README.rst lists),
 * WRITEs with the same key, address and length.  What a host chooses (queue pairs, PSNs, keys,
 * addresses and sizes of buffers) is taken from the capture, so nothing has to be translated.  Each
 * capture is played from both sides.  Three are played one after the other, because the hosts kept
 * their link group; the others begin with a new one.
 *
 * In addition, all messages of each capture are parsed and built again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "smc_replay.h"

#define OUT_MAX    64u
#define SEND_BYTES 65536u /* more than Linux had: writes do not wait for room there */

#define CLC_SYSTEM_ID   8u /* where it is in a Proposal */
#define LLC_FLAGS       3u
#define ADD_LINK_NUMBER 31u

struct out {
	bool write;
	unsigned int port;
	uint32_t len; /* of a WRITE, or of msg */
	uint64_t vaddr;
	uint32_t rkey;
	uint8_t msg[256];
};

struct queue {
	struct out o[OUT_MAX];
	unsigned int head, tail;
};

struct link {
	uint32_t id;
	const struct rs_end *end;
	unsigned int unsent; /* SENDs that the peer has not acknowledged */
};

struct side {
	unsigned int us; /* 0: client */
	const struct rs_capture *capture;
	struct rs_host host;
	struct karst_smc *smc;
	void *mem;
	uint32_t conn, group;
	uint16_t more; /* CDC messages that Linux did not send */
	bool open;
	uint8_t said; /* flags of the connection that the captured host has sent */
	bool no_device;
	struct link links[RS_PORTS];
	const struct rs_frame *question; /* an LLC message that was received and is answered
					  * later */
	unsigned int
		taken[RS_PORTS]; /* frames of the capture in which the peer's SENDs were taken */
	unsigned int nopened;
	struct queue clc, roce;
	unsigned int compared;
	char why[256];
};

static void
problem(struct side *s, unsigned int frame, const char *what)
{
	if (s->why[0] == '\0')
		snprintf(s->why, sizeof(s->why), "frame %u: %s", frame, what);
}

/* --- ops --- */

static struct out *
put(struct queue *q)
{
	return &q->o[q->tail++ % OUT_MAX];
}

static void
put_msg(struct queue *q, unsigned int port, const void *msg, size_t len)
{
	struct out *o = put(q);

	*o = (struct out){.port = port, .len = (uint32_t)len};
	memcpy(o->msg, msg, len);
}

static unsigned int
port_of(const struct side *s, uint32_t link)
{
	return link == s->links[1].id && s->links[1].end != NULL;
}

static void
op_clc(void *user, uint32_t conn, void *conn_user, const void *msg, size_t len)
{
	(void)conn;
	(void)conn_user;
	put_msg(&((struct side *)user)->clc, 0, msg, len);
}

/* Uses the next one that the captured host has opened, or those added at its second port. */
static int
op_link_open(void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local)
{
	struct side *s = user;
	const struct rs_end *end = &s->host.ends[s->nopened];

	if (s->no_device || s->nopened == s->host.nends)
		return -19; /* ENODEV */
	s->nopened++;
	if (end->refused)
		return -19;
	s->group = ask->group;
	s->links[ask->number - 1] = (struct link){.id = ask->link, .end = end};
	*local = end->end;
	return 0;
}

static int
op_link_connect(void *user, uint32_t link, const struct karst_smc_end *remote)
{
	(void)user;
	(void)link;
	return remote->qpn != 0 ? 0 : -5;
}

static void
op_link_close(void *user, uint32_t link)
{
	(void)user;
	(void)link;
}

static void
op_send(void *user, uint32_t link, const void *msg, size_t len)
{
	struct side *s = user;

	put_msg(&s->roce, port_of(s, link), msg, len);
	s->links[port_of(s, link)].unsent++;
}

static void
op_write(void *user, const struct karst_smc_write *w)
{
	struct side *s = user;

	*put(&s->roce) = (struct out){.write = true,
		.port = port_of(s, w->link),
		.len = w->len,
		.vaddr = w->vaddr,
		.rkey = w->rkey};
}

static int
op_rmb_open(void *user, uint32_t rmb, uint32_t bytes)
{
	(void)rmb;
	return bytes == karst_smc_size_bytes(((struct side *)user)->host.size) ? 0 : -12;
}

static int
op_rmb_key(
	void *user, uint32_t rmb, void *conn_user, uint32_t link, uint32_t *rkey, uint64_t *vaddr)
{
	struct side *s = user;
	const struct rs_end *end = s->links[port_of(s, link)].end;

	(void)rmb;
	(void)conn_user;
	*rkey = end->rkey;
	*vaddr = end->vaddr;
	return 0;
}

static void
op_rmb(void *user, uint32_t rmb)
{
	(void)user;
	(void)rmb;
}

static const struct karst_smc_ops ops = {op_clc, op_link_open, op_link_connect, op_link_close,
	op_send, op_write, op_rmb_open, op_rmb_key, op_rmb, op_rmb};

/* --- a side --- */

static void
side_init(struct side *s, unsigned int us, bool eid, const struct rs_capture *capture)
{
	struct karst_smc_config cfg = {.release = KARST_SMC_DEFAULT,
		.features = 1,
		.group_links = 2,
		.neids = eid ? 1 : 0,
		.ops = &ops,
		.user = s};

	*s = (struct side){.us = us, .capture = capture};
	rs_learn(capture, us, &s->host);
	memcpy(cfg.system_id, s->host.system_id, 8);
	memcpy(cfg.hostname, s->host.hostname, sizeof(cfg.hostname));
	memset(cfg.eids[0], ' ', sizeof(cfg.eids[0]));
	memcpy(cfg.eids[0], "INTEROP1", 8);
	s->mem = aligned_alloc(64, karst_smc_bytes(&cfg));
	if (s->mem == NULL || karst_smc_init(s->mem, &cfg, 0, &s->smc) != 0)
		abort();
}

static void
side_fini(struct side *s)
{
	karst_smc_fini(s->smc);
	free(s->mem);
}

/* What karst sends in place of what @o has; the differences are in README.rst. */
static void
as_karst(const struct side *s, struct out *o)
{
	struct karst_smc_clc clc;
	struct karst_smc_cdc cdc;

	if (karst_smc_clc_parse(o->msg, o->len, &clc) > 0) {
		if (clc.type == KARST_SMC_CLC_PROPOSAL)
			memcpy(o->msg + CLC_SYSTEM_ID, s->host.system_id, 8);
		if (clc.type == KARST_SMC_CLC_CONFIRM && clc.accept.ngids > 1) {
			clc.accept.ngids = 1;
			o->len = (uint32_t)karst_smc_clc_build(&clc, o->msg, sizeof(o->msg));
		}
	} else if (karst_smc_cdc_parse(o->msg, o->len, &cdc) == 0) {
		if (cdc.conn_flags & KARST_SMC_CDC_ABORT)
			cdc.prod_flags &= (uint8_t)~KARST_SMC_CDC_BLOCKED;
		cdc.seq = (uint16_t)(cdc.seq + s->more);
		karst_smc_cdc_build(&cdc, o->msg);
	} else if (o->msg[0] == (KARST_SMC_LLC_V2 | KARST_SMC_LLC_DELETE_LINK) &&
		!(o->msg[LLC_FLAGS] & KARST_SMC_LLC_RESPONSE)) {
		o->msg[LLC_FLAGS] &= (uint8_t)~KARST_SMC_LLC_ORDERLY;
	} else if (o->msg[0] == (KARST_SMC_LLC_V2 | KARST_SMC_LLC_ADD_LINK) &&
		!(o->msg[LLC_FLAGS] & KARST_SMC_LLC_RESPONSE)) {
		o->msg[ADD_LINK_NUMBER] = (uint8_t)((o->msg[ADD_LINK_NUMBER] - 1) % RS_PORTS + 1);
	}
}

static void
expect(struct side *s, struct queue *q, unsigned int frame, const struct out *o)
{
	const struct out *got = &q->o[q->head % OUT_MAX];

	if (q->head == q->tail) {
		problem(s, frame, "karst sends nothing");
		return;
	}
	q->head++;
	s->compared++;
	if (got->write != o->write || got->port != o->port)
		problem(s, frame, "karst sends something else");
	else if (got->len != o->len || got->vaddr != o->vaddr || got->rkey != o->rkey ||
		(!o->write && memcmp(got->msg, o->msg, o->len) != 0))
		problem(s, frame, "karst sends other bytes");
}

/* --- what the program did --- */

/*
 * The position up to which the program had written when @m was sent, from frame @at on: what the
 * message announces; if an urgent byte is pending, that one, too; and for a blocked writer also
 * what it announced when it was not blocked any more.
 */
static uint64_t
given_by(const struct side *s, unsigned int at, const struct karst_smc_cdc *m, uint32_t peer_bytes,
	bool *urgent)
{
	const uint8_t any_urgent = KARST_SMC_CDC_URGENT | KARST_SMC_CDC_URGENT_PENDING;
	struct karst_smc_cdc last = *m, next;
	uint8_t until = m->prod_flags & any_urgent ? KARST_SMC_CDC_URGENT : 0;

	*urgent = until != 0;
	while (until ? !(last.prod_flags & until) : last.prod_flags & KARST_SMC_CDC_BLOCKED) {
		if (!rs_next_cdc(s->capture, ++at, s->us, &next) ||
			(!until && next.prod_flags & any_urgent))
			break;
		last = next;
	}
	return rs_pos(last.prod, peer_bytes);
}

/* Does what the program did before @m, the message of frame @at or the next one, was sent. */
static void
program(struct side *s, unsigned int at, const struct karst_smc_cdc *m, uint8_t *said)
{
	const struct rs_frame *f = &s->capture->frames[at];
	struct karst_smc_conn_info info;
	uint64_t consumed, given;
	bool urgent;

	if (karst_smc_conn_info(s->smc, s->conn, &info) != 0) {
		problem(s, f->number, "no connection");
		return;
	}
	consumed = rs_pos(m->cons, info.rmb_bytes) - info.consumed_pos;
	if (consumed != 0 && karst_smc_conn_consumed(s->smc, s->conn, (uint32_t)consumed) != 0)
		problem(s, f->number, "what was read had not come");
	given = given_by(s, at, m, info.peer_bytes, &urgent);
	if (given > info.sent_pos &&
		karst_smc_conn_send(s->smc, s->conn, (uint32_t)(given - info.sent_pos), urgent) !=
			0)
		problem(s, f->number, "send");
	if (said == NULL)
		return;
	if (m->conn_flags & ~*said & KARST_SMC_CDC_DONE_WRITING)
		karst_smc_conn_shutdown(s->smc, s->conn);
	if (m->conn_flags & ~*said & (KARST_SMC_CDC_CLOSED | KARST_SMC_CDC_ABORT))
		karst_smc_conn_close(s->smc, s->conn);
	*said |= m->conn_flags;
}

static bool
is_llc(const struct rs_frame *f, bool answer)
{
	return rs_is_send(f) && f->data[0] != KARST_SMC_CDC &&
		answer == !!(f->data[3] & KARST_SMC_LLC_RESPONSE);
}

/*
 * The first link has failed at this host (S17), if its peer has not announced that already.
 * Linux's validation has the number of the message before the last complete one, and nothing else;
 * karst's has that of the last one, and the cursors, which karst then sends once more.
 */
static void
fails_over(struct side *s, const struct rs_frame *f, const struct karst_smc_cdc *validation)
{
	struct karst_smc_cdc got[2];
	struct link *link = &s->links[f->port];

	karst_smc_link_down(s->smc, s->links[!f->port].id);
	for (unsigned int i = 0; i < KARST_DIM(got); i++) {
		const struct out *o = &s->roce.o[s->roce.head % OUT_MAX];

		if (s->roce.head == s->roce.tail || o->port != f->port ||
			karst_smc_cdc_parse(o->msg, o->len, &got[i]) != 0) {
			problem(s, f->number, "karst does not go over to that link");
			return;
		}
		s->roce.head++;
		s->compared++;
	}
	if (got[0].prod_flags != KARST_SMC_CDC_VALIDATE || got[0].token != validation->token ||
		got[0].seq != validation->seq + 1 || got[1].prod_flags != 0 ||
		got[1].seq != got[0].seq + 1)
		problem(s, f->number, "karst validates something else");
	s->more++;
	karst_smc_link_sent(s->smc, link->id, link->unsent);
	link->unsent = 0;
}

static void
our_send(struct side *s, unsigned int at)
{
	const struct rs_frame *f = &s->capture->frames[at];
	struct link *link = &s->links[f->port];
	struct out o = {.port = f->port, .len = f->len};
	struct karst_smc_cdc cdc;

	memcpy(o.msg, f->data, f->len);
	if (s->question != NULL && is_llc(f, true) && f->data[0] == s->question->data[0]) {
		karst_smc_link_rx(s->smc, s->links[s->question->port].id, s->question->data,
			s->question->len);
		s->question = NULL;
	}
	if (karst_smc_cdc_parse(f->data, f->len, &cdc) == 0 &&
		cdc.prod_flags & KARST_SMC_CDC_VALIDATE) {
		fails_over(s, f, &cdc);
		return;
	}
	if (karst_smc_cdc_parse(f->data, f->len, &cdc) == 0)
		program(s, at, &cdc, &s->said);
	else if (f->data[0] == (KARST_SMC_LLC_V2 | KARST_SMC_LLC_DELETE_RKEY) && f->data[3] == 0 &&
		karst_smc_conn_release(s->smc, s->conn) != 0)
		problem(s, f->number, "the connection is not over");
	/* the first one comes by itself */
	if (f->data[0] == (KARST_SMC_LLC_V2 | KARST_SMC_LLC_ADD_LINK) && is_llc(f, false) &&
		s->roce.head == s->roce.tail)
		karst_smc_group_add_link(s->smc, s->group);
	as_karst(s, &o);
	expect(s, &s->roce, f->number, &o);
	karst_smc_link_sent(s->smc, link->id, link->unsent);
	link->unsent = 0;
}

/* --- frames --- */

/* Whether the captured host answers the message of frame @at. */
static bool
is_answered(const struct side *s, unsigned int at)
{
	const struct rs_frame *question = &s->capture->frames[at];

	if (!is_llc(question, false))
		return false;
	while (++at < s->capture->n) {
		const struct rs_frame *f = &s->capture->frames[at];

		if (f->from == s->us && is_llc(f, true) && f->data[0] == question->data[0])
			return true;
	}
	return false;
}

/*
 * A message has arrived when the captured host acknowledges it: what that host sends before is no
 * answer.  Linux answers LLC messages some time later, and karst at once: so a message that is
 * answered is delivered just before its answer.
 */
static void
acked(struct side *s, unsigned int at)
{
	const struct rs_frame *ack = &s->capture->frames[at];
	unsigned int *next = &s->taken[ack->port];

	for (; *next < at; (*next)++) {
		const struct rs_frame *f = &s->capture->frames[*next];

		if (f->from == s->us || f->port != ack->port || !rs_is_send(f))
			continue;
		if (karst_psn_before(ack->psn, f->psn))
			break;
		if (f->data[0] == KARST_SMC_CDC && s->roce.head != s->roce.tail)
			problem(s, f->number, "karst did not wait for this");
		if (is_answered(s, *next))
			s->question = f;
		else
			karst_smc_link_rx(s->smc, s->links[f->port].id, f->data, f->len);
	}
}

static void
our_frame(struct side *s, unsigned int at)
{
	const struct rs_frame *f = &s->capture->frames[at];

	if (rs_is_clc(f)) {
		struct out o = {.len = f->len};

		memcpy(o.msg, f->data, f->len);
		as_karst(s, &o);
		expect(s, &s->clc, f->number, &o);
	} else if (f->roce && (f->opcode == RS_WRITE_FIRST || f->opcode == RS_WRITE_ONLY)) {
		struct out o = {.write = true,
			.port = f->port,
			.len = f->dma_len,
			.vaddr = f->vaddr,
			.rkey = f->rkey};
		struct karst_smc_cdc m;

		/*
		 * Data that was read before is reported in the message behind the WRITE, or in one
		 * that was due.
		 */
		if (rs_next_cdc(s->capture, at, s->us, &m))
			program(s, at, &m, NULL);
		expect(s, &s->roce, f->number, &o);
	} else if (rs_is_send(f)) {
		our_send(s, at);
	} else if (f->roce && f->opcode == RS_ACK) {
		acked(s, at);
	}
}

static void
their_frame(struct side *s, const struct rs_frame *f)
{
	if (rs_is_clc(f)) {
		if (karst_smc_clc_rx(s->smc, s->conn, f->data, f->len) != (int)f->len)
			problem(s, f->number, "karst does not take the message");
	}
}

static void
new_connection(struct side *s, unsigned int frame)
{
	struct karst_smc_conn_attr attr = {.role = s->us == 0 ? KARST_SMC_CLIENT : KARST_SMC_SERVER,
		.size = s->host.size,
		.send_bytes = SEND_BYTES};

	memcpy(attr.local_gid, s->host.gid, 16);
	if (karst_smc_conn_open(s->smc, &attr, &s->conn) != 0)
		problem(s, frame, "no connection can be opened");
	s->open = true;
	s->said = 0;
}

static void
play(struct side *s, const struct rs_capture *c)
{
	unsigned int last = 0;

	s->capture = c;
	s->taken[0] = s->taken[1] = 0;
	s->question = NULL;
	for (unsigned int at = 0; at < c->n; at++) {
		const struct rs_frame *f = &c->frames[at];

		last = f->number;
		s->smc->now_ns += 1000;
		if (!f->roce && f->tcp_flags == 2)
			new_connection(s, f->number);
		else if (s->open && f->from == s->us)
			our_frame(s, at);
		else if (s->open)
			their_frame(s, f);
	}
	if (s->clc.head != s->clc.tail || s->roce.head != s->roce.tail)
		problem(s, last, "karst sends more than the captured host");
}

static unsigned int points, failed;

static void
report(bool good, const char *name, const char *what, unsigned int n, const char *why)
{
	points++;
	failed += !good;
	printf("%s %u - %s %s: %u messages compared\n", good ? "ok" : "not ok", points, name, what,
		n);
	if (why[0] != '\0')
		printf("# %s\n", why);
}

static void
point(struct side *s, const char *name)
{
	report(s->why[0] == '\0' && s->compared != 0, name, s->us == 0 ? "client" : "server",
		s->compared, s->why);
	s->compared = 0;
	s->why[0] = '\0';
}

/* Plays @n captures of hosts that kept their group from one to the next. */
static void
play_group(const char *folder, const char *const *names, size_t n, unsigned int us)
{
	struct rs_capture c;
	struct side s;

	for (size_t i = 0; i < n; i++) {
		rs_capture_read(folder, names[i], &c);
		if (i == 0)
			side_init(&s, us, true, &c);
		play(&s, &c);
		point(&s, names[i]);
		rs_capture_free(&c);
	}
	side_fini(&s);
}

static void
play_fallback(const char *folder, const char *name, unsigned int us, bool eid, bool no_device)
{
	struct karst_smc_conn_info info;
	struct rs_capture c;
	struct side s;

	rs_capture_read(folder, name, &c);
	side_init(&s, us, eid, &c);
	s.no_device = no_device;
	play(&s, &c);
	if (karst_smc_conn_info(s.smc, s.conn, &info) != 0 || info.state != KARST_SMC_FELL_BACK ||
		info.reason != KARST_SMC_DECL_NO_DEVICE)
		problem(&s, 0, "it does not fall back for want of a device");
	point(&s, name);
	side_fini(&s);
	rs_capture_free(&c);
}

static void
play_rebuild(const char *folder, const char *name)
{
	struct rs_capture c;
	unsigned int bad, n;
	char why[64] = "";

	rs_capture_read(folder, name, &c);
	n = rs_rebuild(&c, &bad);
	if (bad != 0)
		snprintf(why, sizeof(why), "frame %u: other bytes are built", bad);
	report(n != 0 && bad == 0, name, "rebuilt", n, why);
	rs_capture_free(&c);
}

int
main(int argc, char **argv)
{
	static const char *const kept[] = {"smcr_echo", "smcr_echo_big", "smcr_second_conn"};
	static const char *const alone[] = {"smcr_wrap", "smcr_blocked", "smcr_urgent",
		"smcr_urgent_blocked", "smcr_half_close", "smcr_abort", "smcr_abort_blocked",
		"smcr_linger", "smcr_two_links", "smcr_failover"};

	if (argc < 2) {
		fprintf(stderr, "usage: karst-replay-smc CAPTURES [--expect-failure]\n");
		return 2;
	}
	for (unsigned int us = 0; us < 2; us++) {
		play_group(argv[1], kept, KARST_DIM(kept), us);
		for (size_t i = 0; i < KARST_DIM(alone); i++)
			play_group(argv[1], &alone[i], 1, us);
	}
	play_fallback(argv[1], "smcr_v1_only_decline", 0, false, false);
	play_fallback(argv[1], "smc_fallback_decline", 0, true, false);
	play_fallback(argv[1], "smc_fallback_decline", 1, true, true);
	for (size_t i = 0; i < KARST_DIM(kept); i++)
		play_rebuild(argv[1], kept[i]);
	for (size_t i = 0; i < KARST_DIM(alone); i++)
		play_rebuild(argv[1], alone[i]);
	printf("1..%u\n", points);
	return (failed != 0) != (argc > 2);
}
