/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-replay-smc: captures of SMC-R between two Linux hosts, and lib/smc in the place of one:
 * CLC and its declines (S2, S6, S7), LLC (S3, S8, S9, S10), data and its end (S4, S12, S14, S15),
 * and a group that is used again (S5).
 *
 * What the peer sent goes in.  Whenever the captured host sent something, its program is made to
 * do what the message stands for (write, read, close, let go of the connection), and karst has to
 * have sent the same: CLC, LLC and CDC bit for bit, WRITEs with the same key, address and length.
 * What a host chooses (queue pairs, PSNs, keys, addresses of buffers) is taken from the capture,
 * so nothing has to be translated.  The captures are played one after the other, because the
 * hosts kept their link group; each from both sides.
 */
#include <stdio.h>
#include <stdlib.h>

#include "karst_hdr.h"
#include "karst_smc.h"

#define PCAP_HEADER 24u
#define PCAP_RECORD 16u
#define ETH_LEN     14u
#define BTH_LEN     12u
#define ICRC_LEN    4u
#define OUT_MAX     64u

#define CLC_SYSTEM_ID 8u /* where it is in a Proposal */

/* What Linux chose (smcr_echo.pcap): system, MAC, queue pairs, keys. */
static const struct host {
	uint8_t system_id[8], last_ip;
	char name;
	uint32_t psn, rkey, psn2, rkey2;
	uint64_t vaddr;
} hosts[2] = {
	{{0x89, 0x3c, 0x52, 0x54, 0, 0, 0, 1}, 1, 'A', 0xb159ed, 0x89c, 0, 0, 0xff1a51e6c4a50000},
	{{0x4e, 0xe3, 0x52, 0x54, 0, 0, 0, 2}, 2, 'B', 0xc3dfb8, 0x8f4, 0x895ed8, 0xa12,
		0xff2cf0e4572e0000},
};

struct out {
	bool write;
	uint32_t len; /* of a WRITE, or of msg */
	uint64_t vaddr;
	uint32_t rkey;
	uint8_t msg[256];
};

struct queue {
	struct out o[OUT_MAX];
	unsigned int head, tail;
};

struct side {
	unsigned int us; /* 0: client */
	struct karst_smc *smc;
	void *mem;
	uint32_t conn, link;
	bool open;
	bool no_device;
	struct queue clc, roce;
	unsigned int unsent; /* SENDs that the peer has not acknowledged */
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
put_msg(struct queue *q, const void *msg, size_t len)
{
	struct out *o = put(q);

	o->write = false;
	o->len = (uint32_t)len;
	memcpy(o->msg, msg, len);
}

static void
op_clc(void *user, uint32_t conn, void *conn_user, const void *msg, size_t len)
{
	(void)conn;
	(void)conn_user;
	put_msg(&((struct side *)user)->clc, msg, len);
}

static void
put_gid(uint8_t gid[16], uint8_t last)
{
	static const uint8_t start[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2};

	memcpy(gid, start, 16);
	gid[15] = last;
}

static int
op_link_open(void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local)
{
	struct side *s = user;
	const struct host *h = &hosts[s->us];

	if (s->no_device || (ask->number == 2 && s->us == 0))
		return -19; /* ENODEV */
	if (ask->number == 1)
		s->link = ask->link;
	put_gid(local->gid, h->last_ip);
	memcpy(local->mac, (uint8_t[6]){0x52, 0x54, 0, 0, 0, h->last_ip}, 6);
	local->qpn = ask->number == 1 ? 0x15 : 0x16;
	local->psn = ask->number == 1 ? h->psn : h->psn2;
	local->mtu = 3;
	return 0;
}

static int
op_link_connect(void *user, uint32_t link, const struct karst_smc_end *remote)
{
	(void)user;
	(void)link;
	return remote->qpn == 0x15 ? 0 : -5;
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

	(void)link;
	put_msg(&s->roce, msg, len);
	s->unsent++;
}

static void
op_write(void *user, const struct karst_smc_write *w)
{
	struct out *o = put(&((struct side *)user)->roce);

	o->write = true;
	o->len = w->len;
	o->vaddr = w->vaddr;
	o->rkey = w->rkey;
}

static int
op_rmb_open(void *user, uint32_t rmb, uint32_t bytes)
{
	(void)user;
	(void)rmb;
	return bytes == 65536 ? 0 : -12;
}

static int
op_rmb_key(
	void *user, uint32_t rmb, void *conn_user, uint32_t link, uint32_t *rkey, uint64_t *vaddr)
{
	struct side *s = user;
	const struct host *h = &hosts[s->us];

	(void)rmb;
	*rkey = link == s->link ? h->rkey : h->rkey2;
	*vaddr = h->vaddr;
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
side_init(struct side *s, unsigned int us, bool eid, const uint8_t *system_id)
{
	struct karst_smc_config cfg = {.release = KARST_SMC_DEFAULT,
		.features = 1,
		.group_links = 2,
		.neids = eid ? 1 : 0,
		.ops = &ops,
		.user = s};

	memset(s, 0, sizeof(*s));
	s->us = us;
	memcpy(cfg.system_id, system_id, 8);
	memset(cfg.hostname, ' ', sizeof(cfg.hostname));
	cfg.hostname[0] = (uint8_t)hosts[us].name;
	memset(cfg.eids[0], ' ', sizeof(cfg.eids[0]));
	memcpy(cfg.eids[0], "INTEROP1", 8);
	s->mem = aligned_alloc(64, karst_smc_bytes(&cfg));
	if (s->mem == NULL || karst_smc_init(s->mem, &cfg, 0, &s->smc) != 0)
		abort();
}

/* Bit for bit, but for one thing: a Proposal has the system's id here, and zeros there. */
static bool
same_message(const uint8_t *got, const struct out *o, const uint8_t *system_id)
{
	struct karst_smc_clc clc;
	uint8_t linux_has[sizeof(o->msg)];

	memcpy(linux_has, o->msg, o->len);
	if (karst_smc_clc_parse(o->msg, o->len, &clc) > 0 && clc.type == KARST_SMC_CLC_PROPOSAL)
		memcpy(linux_has + CLC_SYSTEM_ID, system_id, 8);
	return memcmp(got, linux_has, o->len) == 0;
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
	if (got->write != o->write || got->len != o->len)
		problem(s, frame, "karst sends something else");
	else if (o->write ? got->vaddr != o->vaddr || got->rkey != o->rkey
			  : !same_message(got->msg, o, hosts[s->us].system_id))
		problem(s, frame, "karst sends other bytes");
}

/* What the program did, as the CDC message @m says. */
static void
program(struct side *s, unsigned int frame, const struct karst_smc_cdc *m, uint32_t written)
{
	struct karst_smc_conn_info info;
	uint32_t consumed;

	if (karst_smc_conn_info(s->smc, s->conn, &info) != 0) {
		problem(s, frame, "no connection");
		return;
	}
	consumed = m->cons.count - (uint32_t)info.consumed_pos;
	if (consumed != 0 && karst_smc_conn_consumed(s->smc, s->conn, consumed) != 0)
		problem(s, frame, "what was read had not come");
	if (written != 0 && karst_smc_conn_send(s->smc, s->conn, written, false) != 0)
		problem(s, frame, "send");
	if (m->conn_flags & KARST_SMC_CDC_CLOSED)
		karst_smc_conn_close(s->smc, s->conn);
}

static void
our_send(struct side *s, unsigned int frame, const uint8_t *msg, uint32_t len)
{
	struct out o = {.len = len};
	struct karst_smc_cdc cdc;

	memcpy(o.msg, msg, len);
	if (karst_smc_cdc_parse(msg, len, &cdc) == 0)
		program(s, frame, &cdc, 0);
	else if (msg[0] == (KARST_SMC_LLC_V2 | KARST_SMC_LLC_DELETE_RKEY) && msg[3] == 0 &&
		karst_smc_conn_release(s->smc, s->conn) != 0)
		problem(s, frame, "the connection is not over");
	expect(s, &s->roce, frame, &o);
	karst_smc_link_sent(s->smc, s->link, s->unsent);
	s->unsent = 0;
}

/* --- frames --- */

struct frame {
	unsigned int number;
	unsigned int from;
	bool roce;
	uint8_t opcode, tcp_flags;
	const uint8_t *data; /* behind BTH and RETH, or of TCP */
	uint32_t len;
	uint64_t vaddr;
	uint32_t rkey, dma_len;
};

static bool
parse_frame(const uint8_t *p, uint32_t cap, struct frame *f)
{
	const uint8_t *ip = p + ETH_LEN, *l4 = ip + 20;
	uint32_t total;

	if (cap < ETH_LEN + 40 || karst_get_be16(p + 12) != 0x0800)
		return false;
	total = karst_get_be16(ip + 2);
	f->from = ip[15] - 1u;
	f->roce = ip[9] == 17;
	if (!f->roce) {
		uint32_t head = (uint32_t)(l4[12] >> 4) * 4;

		f->tcp_flags = l4[13];
		f->data = l4 + head;
		f->len = total - 20 - head;
		return ip[9] == 6;
	}
	f->opcode = l4[8];
	f->data = l4 + 8 + BTH_LEN;
	f->len = total - 20 - 8 - BTH_LEN - ICRC_LEN;
	if (f->opcode == 0x06 || f->opcode == 0x0a) {
		f->vaddr = karst_get_be64(f->data);
		f->rkey = karst_get_be32(f->data + 8);
		f->dma_len = karst_get_be32(f->data + 12);
	}
	return true;
}

/* The next CDC message of that side. */
static bool
next_cdc(const uint8_t *at, const uint8_t *end, unsigned int from, struct karst_smc_cdc *m)
{
	while (at + PCAP_RECORD <= end) {
		uint32_t cap = (uint32_t)(at[8] | at[9] << 8);
		struct frame f = {0};

		at += PCAP_RECORD;
		if (parse_frame(at, cap, &f) && f.roce && f.from == from && f.opcode == 4 &&
			karst_smc_cdc_parse(f.data, f.len, m) == 0)
			return true;
		at += cap;
	}
	return false;
}

static void
our_frame(struct side *s, const struct frame *f, const uint8_t *rest, const uint8_t *end)
{
	if (!f->roce && f->len != 0 && karst_smc_clc_begins(f->data, f->len)) {
		struct out o = {.len = f->len};

		memcpy(o.msg, f->data, f->len);
		expect(s, &s->clc, f->number, &o);
	} else if (f->roce && (f->opcode == 0x06 || f->opcode == 0x0a)) {
		struct out o = {
			.write = true, .len = f->dma_len, .vaddr = f->vaddr, .rkey = f->rkey};
		struct karst_smc_cdc m;

		/*
		 * What was read before is in the message behind the WRITE, or in one that was
		 * due.
		 */
		if (next_cdc(rest, end, s->us, &m))
			program(s, f->number, &m, f->dma_len);
		expect(s, &s->roce, f->number, &o);
	} else if (f->roce && f->opcode == 4) {
		our_send(s, f->number, f->data, f->len);
	}
}

static void
their_frame(struct side *s, const struct frame *f)
{
	if (f->roce && f->opcode == 4) {
		karst_smc_link_rx(s->smc, s->link, f->data, f->len);
	} else if (!f->roce && f->len != 0 && karst_smc_clc_begins(f->data, f->len)) {
		if (karst_smc_clc_rx(s->smc, s->conn, f->data, f->len) != (int)f->len)
			problem(s, f->number, "karst does not take the message");
	}
}

static void
new_connection(struct side *s, unsigned int frame)
{
	struct karst_smc_conn_attr attr = {.role = s->us == 0 ? KARST_SMC_CLIENT : KARST_SMC_SERVER,
		.size = 2,
		.send_bytes = 65536};

	put_gid(attr.local_gid, hosts[s->us].last_ip);
	if (karst_smc_conn_open(s->smc, &attr, &s->conn) != 0)
		problem(s, frame, "no connection can be opened");
	s->open = true;
}

static uint8_t *
read_file(const char *folder, const char *name, size_t *len)
{
	char path[4096];
	uint8_t *bytes = malloc(1 << 20);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.pcap", folder, name);
	f = fopen(path, "rb");
	if (f == NULL) {
		perror(path);
		exit(2);
	}
	*len = fread(bytes, 1, 1 << 20, f);
	fclose(f);
	return bytes;
}

static void
play(struct side *s, const char *folder, const char *name)
{
	size_t len;
	uint8_t *bytes = read_file(folder, name, &len), *at = bytes + PCAP_HEADER;
	struct frame f = {0};

	for (; at + PCAP_RECORD <= bytes + len;
		at += PCAP_RECORD + (uint32_t)(at[8] | at[9] << 8)) {
		uint32_t cap = (uint32_t)(at[8] | at[9] << 8);

		f.number++;
		if (!parse_frame(at + PCAP_RECORD, cap, &f))
			continue;
		s->smc->now_ns += 1000;
		if (!f.roce && f.tcp_flags == 2)
			new_connection(s, f.number);
		else if (s->open && f.from == s->us)
			our_frame(s, &f, at + PCAP_RECORD + cap, bytes + len);
		else if (s->open)
			their_frame(s, &f);
	}
	if (s->clc.head != s->clc.tail || s->roce.head != s->roce.tail)
		problem(s, f.number, "karst sends more than the captured host");
	free(bytes);
}

static unsigned int points, failed;

static void
point(struct side *s, const char *name)
{
	static const char *const sides[] = {"client", "server"};

	points++;
	failed += s->why[0] != '\0' || s->compared == 0;
	printf("%s %u - %s %s: %u messages compared\n",
		s->why[0] == '\0' && s->compared != 0 ? "ok" : "not ok", points, name, sides[s->us],
		s->compared);
	if (s->why[0] != '\0')
		printf("# %s\n", s->why);
	s->compared = 0;
	s->why[0] = '\0';
}

/* The hosts kept their group from one of these to the next. */
static void
play_group(const char *folder, unsigned int us)
{
	static const char *const names[] = {"smcr_echo", "smcr_echo_big", "smcr_second_conn"};
	struct side s;

	side_init(&s, us, true, hosts[us].system_id);
	for (size_t i = 0; i < KARST_DIM(names); i++) {
		play(&s, folder, names[i]);
		point(&s, names[i]);
	}
	karst_smc_fini(s.smc);
	free(s.mem);
}

static void
play_fallback(const char *folder, const char *name, unsigned int us, bool eid, bool no_device,
	const uint8_t *system_id)
{
	struct karst_smc_conn_info info;
	struct side s;

	side_init(&s, us, eid, system_id);
	s.no_device = no_device;
	play(&s, folder, name);
	if (karst_smc_conn_info(s.smc, s.conn, &info) != 0 || info.state != KARST_SMC_FELL_BACK ||
		info.reason != KARST_SMC_DECL_NO_DEVICE)
		problem(&s, 0, "it does not fall back for want of a device");
	point(&s, name);
	karst_smc_fini(s.smc);
	free(s.mem);
}

int
main(int argc, char **argv)
{
	static const uint8_t b2[8] = {0x39, 0xb2, 0x52, 0x54, 0, 0, 0, 2};

	if (argc < 2) {
		fprintf(stderr, "usage: karst-replay-smc CAPTURES [--expect-failure]\n");
		return 2;
	}
	play_group(argv[1], 0);
	play_group(argv[1], 1);
	play_fallback(argv[1], "smcr_v1_only_decline", 0, false, false, hosts[0].system_id);
	play_fallback(argv[1], "smc_fallback_decline", 0, true, false, hosts[0].system_id);
	play_fallback(argv[1], "smc_fallback_decline", 1, true, true, b2);
	printf("1..%u\n", points);
	return (failed != 0) != (argc > 2);
}
