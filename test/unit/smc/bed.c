/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "bed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(cond)                                                                         \
	do {                                                                               \
		if (!(cond)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                           \
		}                                                                          \
	} while (0)

static struct bed_msg *
put(struct bed_sys *s, uint8_t kind, uint32_t link)
{
	struct bed_msg *m = &s->out[s->tail++ % BED_QUEUE];

	MUST(s->tail - s->head <= BED_QUEUE);
	m->kind = kind;
	m->link = link;
	return m;
}

static void
put_bytes(struct bed_sys *s, uint8_t kind, uint32_t link, const void *msg, size_t len)
{
	struct bed_msg *m = put(s, kind, link);

	MUST(len <= sizeof(m->msg));
	m->len = (uint32_t)len;
	memcpy(m->msg, msg, len);
}

static void
op_clc(void *user, uint32_t conn, void *conn_user, const void *msg, size_t len)
{
	(void)conn;
	(void)conn_user;
	put_bytes(user, 'c', 0, msg, len);
}

static int
op_link_open(void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local)
{
	struct bed_sys *s = user;

	if (s->link_open_rc != 0)
		return s->link_open_rc;
	if (ask->number > s->ports || s->nlinks == KARST_DIM(s->links))
		return -ENODEV;
	local->gid[15] = (uint8_t)(1 + (s == &s->bed->s[1]));
	local->qpn = s->nlinks;
	if (s->devices) {
		local->gid[14] = ask->number;
		local->qpn = 16;
	}
	local->psn = 100;
	local->mtu = 3;
	s->links[s->nlinks++] = ask->link;
	return 0;
}

static int
op_link_connect(void *user, uint32_t link, const struct karst_smc_end *remote)
{
	struct bed_sys *s = user;

	(void)remote;
	s->connects = link;
	return s->connect_rc;
}

static void
op_link_close(void *user, uint32_t link)
{
	struct bed_sys *s = user;

	for (unsigned int i = s->head; i != s->tail; i++) {
		if (s->out[i % BED_QUEUE].kind != 'c' && s->out[i % BED_QUEUE].link == link)
			s->out[i % BED_QUEUE].kind = 0; /* lost */
	}
}

static void
op_send(void *user, uint32_t link, const void *msg, size_t len)
{
	put_bytes(user, 's', link, msg, len);
}

static void
op_write(void *user, const struct karst_smc_write *w)
{
	put(user, 'w', w->link)->w = *w;
}

static int
op_rmb_open(void *user, uint32_t rmb, uint32_t bytes)
{
	struct bed_sys *s = user;

	(void)rmb; /* nothing is written to buffers beyond s->rmb */
	return bytes <= sizeof(s->rmb[0]) ? 0 : -ENOMEM;
}

static int
op_rmb_key(
	void *user, uint32_t rmb, void *conn_user, uint32_t link, uint32_t *rkey, uint64_t *vaddr)
{
	struct bed_sys *s = user;

	(void)link;
	*rkey = 0x100 + rmb;
	*vaddr = (uint64_t)rmb << 32;
	s->keys++;
	return 0;
}

static void
op_rmb_unkey(void *user, uint32_t rmb)
{
	(void)rmb;
	((struct bed_sys *)user)->unkeys++;
}

static void
op_rmb_close(void *user, uint32_t rmb)
{
	(void)user;
	(void)rmb;
}

static const struct karst_smc_ops ops = {op_clc, op_link_open, op_link_connect, op_link_close,
	op_send, op_write, op_rmb_open, op_rmb_key, op_rmb_unkey, op_rmb_close};

struct karst_smc_config
bed_config(void)
{
	struct karst_smc_config cfg = {
		.max_conns = 8, .max_groups = 4, .max_rmbs = 8, .neids = 1, .release = 1};

	memset(cfg.eids[0], ' ', sizeof(cfg.eids[0]));
	cfg.eids[0][0] = 'K';
	return cfg;
}

struct bed *
bed_new(const struct karst_smc_config *given)
{
	struct bed *b = calloc(1, sizeof(*b));
	unsigned int i;

	MUST(b != NULL);
	for (i = 0; i < 2; i++) {
		struct karst_smc_config cfg = given != NULL ? *given : bed_config();

		cfg.ops = &ops;
		cfg.user = &b->s[i];
		cfg.system_id[7] = (uint8_t)(i + 1);
		b->s[i].bed = b;
		b->s[i].ports = 1;
		b->s[i].mem = aligned_alloc(64, karst_smc_bytes(&cfg));
		MUST(b->s[i].mem != NULL &&
			karst_smc_init(b->s[i].mem, &cfg, 0, &b->s[i].smc) == 0);
	}
	return b;
}

struct bed *
bed_two_ports(void)
{
	struct karst_smc_config cfg = bed_config();
	struct bed *b;

	cfg.group_links = 2;
	b = bed_new(&cfg);
	b->s[0].ports = b->s[1].ports = 2;
	return b;
}

void
bed_free(struct bed *b)
{
	for (unsigned int i = 0; i < 2; i++) {
		karst_smc_fini(b->s[i].smc);
		free(b->s[i].mem);
	}
	free(b);
}

static void
take_events(struct bed_sys *s)
{
	struct karst_smc_ev ev;

	while (karst_smc_next_event(s->smc, &ev)) {
		if (ev.what < KARST_SMC_EV_GROUP_UP && ev.id == s->conn)
			s->events |= ev.what;
	}
}

uint32_t
bed_take_events(struct bed *b, unsigned int sys)
{
	uint32_t ev;

	take_events(&b->s[sys]);
	ev = b->s[sys].events;
	b->s[sys].events = 0;
	return ev;
}

void
bed_open(struct bed *b)
{
	for (unsigned int i = 0; i < 2; i++) {
		struct karst_smc_conn_attr attr = {
			.role = i == 0 ? KARST_SMC_CLIENT : KARST_SMC_SERVER,
			.send_bytes = BED_BYTES};

		attr.local_gid[15] = (uint8_t)(i + 1);
		MUST(karst_smc_conn_open(b->s[i].smc, &attr, &b->s[i].conn) == 0);
	}
}

/* Which of the peer's links corresponds to @link: links are opened in pairs. */
static uint32_t
peer_link(const struct bed_sys *s, const struct bed_sys *peer, uint32_t link)
{
	for (unsigned int i = 0; i < s->nlinks; i++) {
		if (s->links[i] == link && i < peer->nlinks)
			return peer->links[i];
	}
	return UINT32_MAX;
}

static void
deliver_write(struct bed_sys *s, struct bed_sys *peer, const struct karst_smc_write *w)
{
	uint32_t rmb = w->rkey - 0x100, at = (uint32_t)w->vaddr;

	MUST(rmb < KARST_DIM(peer->rmb) && w->vaddr >> 32 == rmb);
	MUST(at + w->len <= sizeof(peer->rmb[0]));
	for (uint32_t i = 0; i < w->len; i++)
		peer->rmb[rmb][at + i] = s->send_buf[(w->pos + i) % BED_BYTES];
}

/* Confirms a DELETE_RKEY in place of the receiver, which does not get it.  @return whether @m is
 * one. */
static bool
answer_delete(struct bed_sys *s, const struct bed_msg *m)
{
	struct karst_smc_llc llc;
	uint8_t buf[KARST_SMC_LLC_MAX_LEN];
	int len;

	if (karst_smc_llc_parse(m->msg, m->len, &llc) != 0 ||
		llc.type != KARST_SMC_LLC_DELETE_RKEY || llc.flags & KARST_SMC_LLC_RESPONSE)
		return false;
	llc.flags |= KARST_SMC_LLC_RESPONSE;
	len = karst_smc_llc_build(&llc, buf, sizeof(buf));
	MUST(len > 0);
	karst_smc_link_sent(s->smc, m->link, 1);
	karst_smc_link_rx(s->smc, m->link, buf, (size_t)len);
	return true;
}

bool
bed_step(struct bed *b, unsigned int from)
{
	struct bed_sys *s = &b->s[from], *peer = &b->s[!from];
	struct bed_msg m;

	if (s->head == s->tail)
		return false;
	m = s->out[s->head++ % BED_QUEUE];
	if (m.kind == 'c') {
		karst_smc_clc_rx(peer->smc, peer->conn, m.msg, m.len);
	} else if (m.kind == 'w') {
		deliver_write(s, peer, &m.w);
	} else if (m.kind == 's' && !(b->keeps_keys && from == 0 && answer_delete(s, &m))) {
		karst_smc_link_rx(peer->smc, peer_link(s, peer, m.link), m.msg, m.len);
		karst_smc_link_sent(s->smc, m.link, 1);
	}
	take_events(s);
	take_events(peer);
	return true;
}

void
bed_pump(struct bed *b)
{
	unsigned int turns = 100000;

	while (bed_step(b, 0) || bed_step(b, 1))
		MUST(turns-- > 0);
}

void
bed_wait(struct bed *b, uint64_t ns)
{
	uint64_t until = b->now_ns + ns, next;

	for (;;) {
		next = karst_min_u64(
			karst_smc_next_ns(b->s[0].smc), karst_smc_next_ns(b->s[1].smc));
		b->now_ns = karst_min_u64(until, karst_max_u64(next, b->now_ns));
		b->s[0].smc->now_ns = b->s[1].smc->now_ns = b->now_ns;
		karst_smc_expire(b->s[0].smc, 100);
		karst_smc_expire(b->s[1].smc, 100);
		take_events(&b->s[0]);
		take_events(&b->s[1]);
		if (!b->hold)
			bed_pump(b);
		if (next > until)
			return;
	}
}

struct karst_smc_conn_info
bed_info(struct bed *b, unsigned int sys)
{
	struct karst_smc_conn_info info;

	MUST(karst_smc_conn_info(b->s[sys].smc, b->s[sys].conn, &info) == 0);
	return info;
}

bool
bed_connect(struct bed *b)
{
	bed_open(b);
	bed_pump(b);
	return bed_info(b, 0).state == KARST_SMC_ACTIVE && bed_info(b, 1).state == KARST_SMC_ACTIVE;
}

int
bed_write(struct bed *b, unsigned int sys, uint32_t n, bool urgent)
{
	uint64_t pos = bed_info(b, sys).sent_pos;

	for (uint32_t i = 0; i < n; i++)
		b->s[sys].send_buf[(pos + i) % BED_BYTES] = (uint8_t)(pos + i);
	return karst_smc_conn_send(b->s[sys].smc, b->s[sys].conn, n, urgent);
}

struct bed_msg *
bed_last(struct bed *b, unsigned int sys)
{
	struct bed_sys *s = &b->s[sys];

	for (unsigned int i = s->tail; i != s->head; i--) {
		if (s->out[(i - 1) % BED_QUEUE].kind == 's')
			return &s->out[(i - 1) % BED_QUEUE];
	}
	return NULL;
}

struct karst_smc_cdc
bed_honest(struct bed *b, unsigned int from)
{
	struct karst_smc_conn_info info = bed_info(b, from);

	return (struct karst_smc_cdc){.seq = 1000,
		.token = 1,
		.prod = karst_smc_cursor_of(info.written_pos, info.peer_bytes),
		.cons = karst_smc_cursor_of(info.consumed_pos, info.rmb_bytes)};
}

void
bed_cdc(struct bed *b, unsigned int from, const struct karst_smc_cdc *m)
{
	uint8_t buf[KARST_SMC_CDC_LEN];

	karst_smc_cdc_build(m, buf);
	karst_smc_link_rx(b->s[!from].smc, bed_info(b, !from).link, buf, sizeof(buf));
	take_events(&b->s[!from]);
}
