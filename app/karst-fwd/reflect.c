/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A stateless responder, for tests of generators.  It knows no queue pair, executes nothing, and
 * accepts any PSN:
 *
 *	RC, XRC  A SEND or WRITE packet with AckReq gets an acknowledgement, a READ its response
 *	         (zeros), an atomic 0 as the original value, FLUSH and ATOMIC WRITE their empty
 *	         response.
 *	UD       A SEND is returned to its source queue pair.
 *	others   No answer: UC has no responses, and responses are not answered.
 *
 * Packets to or from a group address are not answered, because a frame must not have such a source.
 *
 * The destination queue pair of an answer is that of the request, because the requester's queue
 * pair is not known: both ends of a flow have the same number.  The MSN is the PSN plus one.
 *
 * All fields of a packet are decoded, changed and built again.  This is slow, but no field can be
 * forgotten.
 */
#include "check.h"
#include "fwd.h"
#include "karst_build.h"
#include "karst_decode.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"
#include "karst_psn.h"

/*
 * A longer READ is refused with a NAK, so that one packet cannot cause an unlimited number of
 * others.
 */
#define READ_MAX 65536u

#define ANSWER_TTL   64
#define REFLECT_ECT0 2
#define REFLECT_CE   3
#define MAC_GROUP    1 /* in the first byte */

/* Answers that are not sent yet. */
struct answers {
	struct fwd_lcore *lc;
	struct fwd_stream *s;
	uint32_t n;
	struct rte_mbuf *m[FWD_BURST_MAX];
};

static void
flush(struct answers *a)
{
	if (a->n != 0)
		fwd_send(a->s, a->m, a->n);
	a->n = 0;
}

/* Builds an answer from @f, with its ICRC. */
static void
answer(struct answers *a, const struct karst_frame *f)
{
	struct fwd *fwd = a->lc->fwd;
	struct rte_mbuf *m = rte_pktmbuf_alloc(fwd->pool);
	uint8_t *data;
	uint32_t icrc;
	int len;

	if (m == NULL) {
		fwd_add(&a->s->tx_dropped, 1);
		return;
	}
	data = rte_pktmbuf_mtod(m, uint8_t *);
	len = karst_build_frame(data, rte_pktmbuf_tailroom(m), f);
	if (len < 0) { /* does not fit into the buffer */
		rte_pktmbuf_free(m);
		fwd_add(&a->s->tx_dropped, 1);
		return;
	}
	icrc = karst_icrc_rocev2(data + (f->vlan ? 18 : 14),
		(size_t)len - (f->vlan ? 18 : 14) - KARST_ICRC_LEN, f->ip6);
	memcpy(data + len - KARST_ICRC_LEN, &icrc, sizeof(icrc)); /* little endian */
	m->data_len = (uint16_t)len;
	m->pkt_len = (uint32_t)len;
	a->m[a->n++] = m;
	if (a->n == FWD_BURST_MAX)
		flush(a);
}

static void
swap(void *a, void *b, size_t len)
{
	uint8_t t[16];

	memcpy(t, a, len);
	memcpy(a, b, len);
	memcpy(b, t, len);
}

/* Turns a request into an answer: swaps the addresses, and clears what only requests have. */
static void
turn_round(struct karst_frame *f)
{
	swap(f->dmac, f->smac, 6);
	swap(f->daddr, f->saddr, 16);
	f->udp_checksum = 0;
	f->ttl = ANSWER_TTL;
	/* the mark belongs to the path of the request */
	if ((f->tclass & REFLECT_CE) == REFLECT_CE)
		f->tclass ^= REFLECT_CE ^ REFLECT_ECT0;
	f->ib.resv6 = f->ib.resv7 = 0;
	f->ib.se = f->ib.ackreq = f->ib.fecn = f->ib.becn = false;
	f->ib.aeth = (uint32_t)KARST_AETH_CREDIT_UNLIMITED << 24 | karst_psn_add(f->ib.psn, 1);
}

static void
answer_read(struct answers *a, struct karst_frame *f, uint8_t transport)
{
	uint32_t mtu = a->lc->fwd->opts.reflect_mtu, left = f->ib.dma_len, i;
	uint32_t n = karst_psn_count(left, karst_log2(mtu));

	f->ib.pay = NULL;
	if (left > READ_MAX) {
		f->ib.opcode = transport | KARST_OPERATION_ACK;
		f->ib.pay_len = 0;
		f->ib.aeth = (uint32_t)(KARST_AETH_NAK | KARST_NAK_INV_REQ) << 24 |
			karst_aeth_msn(f->ib.aeth);
		answer(a, f);
		return;
	}
	for (i = 0; i < n; i++, left -= f->ib.pay_len) {
		uint8_t op = n == 1  ? KARST_OPERATION_READ_RESP_ONLY
			: i == 0     ? KARST_OPERATION_READ_RESP_FIRST
			: i + 1 == n ? KARST_OPERATION_READ_RESP_LAST
				     : KARST_OPERATION_READ_RESP_MIDDLE;

		f->ib.opcode = transport | op;
		f->ib.pay_len = (uint16_t)karst_min_u32(left, mtu);
		answer(a, f);
		f->ib.psn = karst_psn_add(f->ib.psn, 1);
	}
}

static void
answer_reliable(struct answers *a, struct karst_frame *f, uint32_t op)
{
	uint8_t transport = f->ib.opcode & KARST_TRANSPORT_MASK;
	bool ackreq = f->ib.ackreq;

	/* responses of XRC have no XRCETH; RD is not supported */
	turn_round(f);
	if (op & KARST_OPF_READ) {
		answer_read(a, f, transport);
		return;
	}
	f->ib.pay = NULL;
	f->ib.pay_len = 0;
	f->ib.orig = 0;
	if (op & KARST_OPF_ATOMIC)
		f->ib.opcode = transport | KARST_OPERATION_ATOMIC_ACK;
	else if (op & (KARST_OPF_FLUSH | KARST_OPF_ATOMICWRITE))
		f->ib.opcode = transport | KARST_OPERATION_READ_RESP_ONLY;
	else if (ackreq)
		f->ib.opcode = transport | KARST_OPERATION_ACK;
	else
		return;
	answer(a, f);
}

static void
answer_packet(struct answers *a, const struct karst_pkt *p)
{
	uint32_t op = karst_opcode_flags(p->opcode);
	uint8_t transport = p->opcode & KARST_TRANSPORT_MASK;
	struct karst_frame f;

	if (p->drop != KARST_DROP_NONE || !(op & KARST_OPF_REQUEST))
		return;
	karst_decode_frame(p, &f);
	if ((f.dmac[0] | f.smac[0]) & MAC_GROUP)
		return;
	if (transport == KARST_TRANSPORT_RC || transport == KARST_TRANSPORT_XRC) {
		answer_reliable(a, &f, op);
	} else if (transport == KARST_TRANSPORT_UD) {
		uint32_t qpn = f.ib.dqpn;

		turn_round(&f);
		f.ib.dqpn = f.ib.src_qpn;
		f.ib.src_qpn = qpn;
		answer(a, &f);
	}
}

uint32_t
fwd_turn_reflect(struct fwd_lcore *lc, struct fwd_stream *s)
{
	struct answers a = {.lc = lc, .s = s};
	struct rte_mbuf *m[FWD_BURST_MAX];
	uint32_t i, n = fwd_receive(lc, s, m);

	if (n == 0)
		return 0;
	fwd_check_burst(lc->check, m, n, s->rx->id, true);
	for (i = 0; i < n; i++)
		answer_packet(&a, &lc->check->pkts[i]);
	rte_pktmbuf_free_bulk(m, n); /* only now, as answers read payloads from these buffers */
	flush(&a);
	return n;
}
