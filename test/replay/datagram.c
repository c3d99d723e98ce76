/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * UD (U1, U4).  A karst queue pair has to receive each datagram of a capture with its addresses in
 * front; and another one has to send the same datagrams to the same addresses, also to groups.
 * Datagrams are not answered; captures do not show what their receivers made of them.
 */
#include <stdlib.h>

#include "karst_hdr.h"
#include "replay.h"

static struct rp_bed *
open_bed(const struct rp_stream *s, bool mine)
{
	struct rp_qp_setup setup = {.type = KARST_QPT_UD,
		.example = s->requests[0],
		.mine = mine,
		.sq_psn = rp_first_psn(s),
		.qkey = s->requests[0]->f.ib.qkey};

	return rp_bed_open(&setup, s->requests[0]->ns);
}

/* --- receiving --- */

/* U1: 40 bytes in front of the payload, of which IPv4 uses the last 20. */
static bool
addresses_there(const struct rp_bed *b, const struct karst_frame *f)
{
	const uint8_t *ip4 = b->recv + KARST_GRH_LEN - KARST_IP4_LEN;

	if (f->ip6)
		return memcmp(b->recv + 8, f->saddr, 16) == 0 &&
			memcmp(b->recv + 24, f->daddr, 16) == 0;
	return memcmp(ip4 + 12, f->saddr, 4) == 0 && memcmp(ip4 + 16, f->daddr, 4) == 0;
}

static void
check_received(struct rp_report *r, struct rp_bed *b, const struct rp_frame *f)
{
	const struct karst_cqe *c = rp_bed_completion(b);
	const struct karst_ib_hdrs *ib = &f->f.ib;

	r->compared++;
	if (c == NULL || c->status != KARST_WC_SUCCESS ||
		c->byte_len != KARST_GRH_LEN + (uint32_t)ib->pay_len || c->src_qpn != ib->src_qpn) {
		rp_problem(r, "frame %u: not received as it was sent", f->number);
		return;
	}
	if ((f->opf & KARST_OPF_IMM) && (c->imm != ib->imm || !(c->flags & KARST_WC_WITH_IMM)))
		rp_problem(r, "frame %u: immediate data are wrong", f->number);
	if (!(c->flags & KARST_WC_GRH) || !(c->flags & KARST_WC_IP4) != f->f.ip6 ||
		!addresses_there(b, &f->f))
		rp_problem(r, "frame %u: its addresses are not in front", f->number);
	if (memcmp(b->recv + KARST_GRH_LEN, ib->pay, ib->pay_len) != 0)
		rp_problem(r, "frame %u: another payload", f->number);
}

void
rp_datagrams_in(struct rp_report *r, const struct rp_stream *s)
{
	struct rp_bed *b = open_bed(s, false);
	unsigned int i, n;
	struct rp_arrival *all = rp_arrivals(s->requests, s->nrequests, &n);

	for (i = 0; i < n; i++) {
		rp_bed_time(b, all[i].ns);
		rp_bed_post_receive(b, RP_RECV_LEN);
		rp_bed_receive(b, &all[i].frame->f, all[i].frame->fate);
		rp_bed_send(b, 1);
		if (b->nout != 0)
			rp_problem(r, "frame %u: something was answered", all[i].frame->number);
		check_received(r, b, all[i].frame);
	}
	free(all);
	rp_bed_close(b);
}

/* --- sending --- */

static void
post(struct rp_bed *b, const struct rp_frame *f, uint32_t ah)
{
	struct karst_send_wqe *w = rp_bed_slot(b);
	const struct karst_ib_hdrs *ib = &f->f.ib;

	memcpy(b->recv, ib->pay, ib->pay_len);
	w->wr_id = ib->psn;
	w->opcode = f->opf & KARST_OPF_IMM ? KARST_WR_SEND_WITH_IMM : KARST_WR_SEND;
	w->flags |= ib->se ? KARST_SEND_SOLICITED : 0;
	w->imm = ib->imm;
	w->ud.ah = ah;
	w->ud.remote_qpn = ib->dqpn;
	w->ud.remote_qkey = ib->qkey;
	w->num = ib->pay_len != 0;
	w->sge[0] = (struct karst_sge){RP_LOCAL_VA, ib->pay_len, b->recv_key};
	rp_bed_post(b);
}

static void
check_sent(struct rp_report *r, struct rp_bed *b, const struct rp_frame *f)
{
	const struct rp_out *o = &b->out[0];
	const struct karst_cqe *c = rp_bed_completion(b);

	if (b->nout != 1 || c == NULL || c->status != KARST_WC_SUCCESS) {
		rp_problem(r, "frame %u: not sent", f->number);
		return;
	}
	rp_compare(r, &o->f.ib, &f->f.ib);
	/* U4: groups have hardware addresses of their own */
	if (memcmp(o->f.dmac, f->f.dmac, 6) != 0 || memcmp(o->f.daddr, f->f.daddr, 16) != 0 ||
		o->f.sport != f->f.sport)
		rp_problem(r, "frame %u: sent to another address", f->number);
}

void
rp_datagrams_out(struct rp_report *r, const struct rp_stream *s)
{
	struct rp_bed *b = open_bed(s, true);
	struct karst_path path = b->path;
	unsigned int i;
	uint32_t ah;

	if (s->dqpn == KARST_QPN_MULTICAST) {
		memset(path.dst_mac, 0, 6);
		karst_path_multicast_mac(&path);
	}
	if (karst_ah_create(b->ahs, b->pd, &path, &ah) != 0) {
		rp_problem(r, "no address handle");
		return;
	}
	for (i = 0; i < s->nrequests; i++) {
		rp_bed_time(b, s->requests[i]->ns);
		post(b, s->requests[i], ah);
		rp_bed_send(b, 2);
		check_sent(r, b, s->requests[i]);
	}
	rp_bed_close(b);
}
