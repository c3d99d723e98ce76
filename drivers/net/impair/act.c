/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Apply actions to packets that a rule has hit.  A buffer that is shared, or that is in external
 * memory, is copied before it is changed.  If an action is not possible, the packet passes
 * unchanged, and the log tells why.
 */
#include "impair.h"

#include <rte_ip.h>

#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"

/* The longest packet whose ICRC can be computed again. */
#define REPAIR_BYTES 16384u

/* Offsets from the first byte of a packet. */
struct parts {
	uint32_t pay, pay_end; /* payload without pad */
	uint32_t end;          /* after the ICRC */
	uint32_t opcode_len;   /* length of BTH and extended headers */
};

/* Locates a byte of a packet, in whichever segment it is. */
static uint8_t *
byte_at(struct rte_mbuf *m, uint32_t off)
{
	while (off >= m->data_len) {
		off -= m->data_len;
		m = m->next;
	}
	return rte_pktmbuf_mtod_offset(m, uint8_t *, off);
}

static void
write_back(struct rte_mbuf *m, const uint8_t *from, uint32_t len)
{
	for (; len > 0; m = m->next) {
		uint32_t n = RTE_MIN(len, m->data_len);

		memcpy(rte_pktmbuf_mtod(m, void *), from, n);
		from += n;
		len -= n;
	}
}

/* --- buffers --- */

/*
 * Copies a packet, with a buffer from the same pool if that pool has room for data.  If the packet
 * is one segment, the copy is one too, with the same data offset, so that the data fits.
 * @return NULL: there is no buffer.
 */
static struct rte_mbuf *
copy_of(struct imp_queue *q, const struct rte_mbuf *m)
{
	struct rte_mempool *pool = m->pool;
	struct rte_mbuf *c;
	uint32_t room;

	if (!RTE_MBUF_DIRECT(m) || rte_pktmbuf_data_room_size(pool) == 0)
		pool = RTE_MBUF_CLONED(m)
			? rte_mbuf_from_indirect((struct rte_mbuf *)(uintptr_t)m)->pool
			: q->pool;
	if (pool == NULL)
		return NULL;
	room = rte_pktmbuf_data_room_size(pool);
	if (m->nb_segs == 1 && (uint32_t)m->data_off + m->data_len <= room &&
		(uint32_t)m->data_len + RTE_PKTMBUF_HEADROOM > room) {
		c = rte_pktmbuf_alloc(pool);
		if (c == NULL)
			return NULL;
		__rte_pktmbuf_copy_hdr(c, m);
		c->ol_flags &= ~(RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL);
		c->data_off = m->data_off;
		c->data_len = m->data_len;
		c->pkt_len = m->pkt_len;
		memcpy(rte_pktmbuf_mtod(c, void *), rte_pktmbuf_mtod(m, void *), m->data_len);
		return c;
	}
	return rte_pktmbuf_copy(m, pool, 0, UINT32_MAX);
}

/*
 * Makes sure that the packet has buffers of its own.
 * @return the packet, or a copy; NULL: there are no buffers, and the packet is unchanged.
 */
static struct rte_mbuf *
own(struct imp_queue *q, struct rte_mbuf *m)
{
	const struct rte_mbuf *s;
	struct rte_mbuf *c;

	for (s = m; s != NULL && RTE_MBUF_DIRECT(s) && rte_mbuf_refcnt_read(s) == 1; s = s->next)
		;
	if (s == NULL)
		return m;
	c = copy_of(q, m);
	if (c != NULL)
		rte_pktmbuf_free(m);
	return c;
}

/*
 * Clears the checksum flags of a received packet, because they are no longer valid after a change.
 */
static void
unsay_checksums(const struct imp_queue *q, struct rte_mbuf *m)
{
	if (q->direction == IMP_RX)
		m->ol_flags &= ~(RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
}

/* --- parts of a packet --- */

/*
 * Finds the parts of a packet by its headers, limited to the bytes that are there.
 * @return false: the packet ends before its ICRC.
 */
static bool
find_parts(const struct rte_mbuf *m, const struct imp_frame *f, struct parts *p)
{
	uint32_t ip_len =
		f->ip6 ? karst_get_be16(f->l3 + 4) + KARST_IP6_LEN : karst_get_be16(f->l3 + 2);
	uint32_t pad = karst_bth_pad(f->bth);

	p->opcode_len = karst_opcode_table[f->opcode].hdr_len;
	if (p->opcode_len == 0)
		p->opcode_len = KARST_BTH_LEN;
	p->end = RTE_MIN(f->l3_off + ip_len, m->pkt_len);
	p->pay = f->bth_off + p->opcode_len;
	if (p->end < p->pay + KARST_ICRC_LEN)
		return false;
	p->pay_end = p->end - KARST_ICRC_LEN;
	if (pad <= p->pay_end - p->pay)
		p->pay_end -= pad;
	return true;
}

/*
 * Sets lengths, IPv4 header checksum and ICRC of a packet of @end bytes in one piece.  The UDP
 * checksum becomes 0 (none).
 */
static void
make_right(uint8_t *d, const struct imp_frame *f, uint32_t end)
{
	uint32_t udp = f->bth_off - KARST_UDP_LEN, crc;

	if (f->ip6) {
		karst_put_be16(d + f->l3_off + 4, (uint16_t)(end - f->l3_off - KARST_IP6_LEN));
	} else {
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(d + f->l3_off);

		karst_put_be16(d + f->l3_off + 2, (uint16_t)(end - f->l3_off));
		ip->hdr_checksum = 0;
		ip->hdr_checksum = rte_ipv4_cksum(ip);
	}
	karst_put_be16(d + udp + 4, (uint16_t)(end - udp));
	karst_put_be16(d + udp + 6, 0);
	crc = karst_icrc_rocev2(d + f->l3_off, end - f->l3_off - KARST_ICRC_LEN, f->ip6);
	memcpy(d + end - KARST_ICRC_LEN, &crc, sizeof(crc));
}

/* Makes the first @end bytes of a packet correct again. */
static __attribute__((noinline)) enum imp_why
repair(struct rte_mbuf *m, const struct imp_frame *f, uint32_t end)
{
	uint8_t scratch[REPAIR_BYTES], *d;

	if (end > sizeof(scratch))
		return IMP_WHY_NO_ROOM;
	d = (uint8_t *)(uintptr_t)rte_pktmbuf_read(m, 0, end, scratch);
	make_right(d, f, end);
	if (d == scratch)
		write_back(m, d, end);
	return IMP_WHY_NONE;
}

/* --- the actions --- */

static enum imp_why
corrupt(const struct imp_conf_rule *c, struct rte_mbuf *m, const struct imp_frame *f,
	uint32_t *detail)
{
	struct parts p;
	uint32_t from, to, at;

	if (!find_parts(m, f, &p))
		return IMP_WHY_NO_PART;
	from = c->part == IMP_PART_HEADER  ? f->bth_off
		: c->part == IMP_PART_ICRC ? p.end - KARST_ICRC_LEN
					   : p.pay;
	to = c->part == IMP_PART_HEADER ? p.pay : c->part == IMP_PART_ICRC ? p.end : p.pay_end;
	if (from == to)
		return IMP_WHY_NO_PART;
	at = c->offset != UINT64_MAX          ? from + (uint32_t)c->offset
		: c->part == IMP_PART_PAYLOAD ? to - 1
					      : from;
	if (at >= to)
		return IMP_WHY_NO_PART;
	*detail = at;
	*byte_at(m, at) ^= (uint8_t)c->mask;
	return c->repair && c->part != IMP_PART_ICRC ? repair(m, f, p.end) : IMP_WHY_NONE;
}

/* Truncates a chain of segments to @len bytes. */
static void
chop(struct rte_mbuf *m, uint32_t len)
{
	struct rte_mbuf *s = m;
	uint32_t left = len;

	while (left > s->data_len) {
		left -= s->data_len;
		s = s->next;
	}
	s->data_len = (uint16_t)left;
	if (s->next != NULL) {
		struct rte_mbuf *rest = s->next;

		s->next = NULL;
		rte_pktmbuf_free(rest);
	}
	m->pkt_len = len;
	m->nb_segs = 0;
	for (s = m; s != NULL; s = s->next)
		m->nb_segs++;
}

static enum imp_why
truncate_packet(const struct imp_conf_rule *c, struct rte_mbuf *m, const struct imp_frame *f,
	uint32_t *detail)
{
	uint32_t bytes = (uint32_t)c->bytes, payload;
	struct parts p;
	uint8_t *flags;

	if (!c->repair) {
		if (bytes + KARST_ETH_LEN > m->pkt_len)
			return IMP_WHY_TOO_SHORT;
		*detail = m->pkt_len - bytes;
		chop(m, m->pkt_len - bytes);
		return IMP_WHY_NONE;
	}
	if (!find_parts(m, f, &p))
		return IMP_WHY_TOO_SHORT;
	payload = p.end - KARST_ICRC_LEN - p.pay; /* with pad, a multiple of 4 */
	bytes = (bytes + 3) & ~3u;
	if (bytes > payload)
		return IMP_WHY_TOO_SHORT;
	if (p.end - bytes > REPAIR_BYTES)
		return IMP_WHY_NO_ROOM;
	flags = byte_at(m, f->bth_off + 1);
	*flags = (uint8_t)(*flags & 0xcf); /* the pad was cut off */
	*detail = p.end - bytes;
	chop(m, p.end - bytes);
	return repair(m, f, p.end - bytes);
}

/*
 * Sets ECN CE.  The ICRC does not cover this field.  The IPv4 header checksum is updated by the
 * difference of one word (RFC 1624), unless the device will compute it.
 */
static enum imp_why
mark(const struct imp_queue *q, struct rte_mbuf *m, const struct imp_frame *f)
{
	uint8_t *tos = byte_at(m, f->l3_off + 1), *sum_hi, *sum_lo;
	uint32_t sum;

	if (f->ip6) {
		*tos |= 0x30;
		return IMP_WHY_NONE;
	}
	sum_hi = byte_at(m, f->l3_off + 10);
	sum_lo = byte_at(m, f->l3_off + 11);
	if (q->direction == IMP_RX || (m->ol_flags & RTE_MBUF_F_TX_IP_CKSUM) == 0) {
		/* ~(~sum + ~old + new), where only the low byte of a word has changed */
		sum = (uint32_t)(uint16_t) ~(*sum_hi << 8 | *sum_lo) + (uint16_t) ~(uint16_t)*tos +
			(*tos | 3u);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = ~sum;
		*sum_hi = (uint8_t)(sum >> 8);
		*sum_lo = (uint8_t)sum;
	}
	*tos |= 3;
	return IMP_WHY_NONE;
}

static enum imp_why
change(struct imp_queue *q, const struct imp_verdict *v, struct imp_frame *f, uint32_t *detail,
	struct imp_outcome *o)
{
	const struct imp_conf_rule *c = v->live->conf;
	uint8_t copy[IMP_HEADERS];
	enum imp_why why;

	o->m = own(q, o->m);
	if (o->m == NULL)
		return IMP_WHY_NO_BUFFER;
	(void)imp_frame_read(o->m, f, copy); /* the headers may have moved */
	switch (c->action) {
	case IMP_CORRUPT:
		why = corrupt(c, o->m, f, detail);
		break;
	case IMP_TRUNCATE:
		why = truncate_packet(c, o->m, f, detail);
		break;
	default:
		return mark(q, o->m, f);
	}
	if (why == IMP_WHY_NONE)
		unsay_checksums(q, o->m);
	return why;
}

static enum imp_why
duplicate(struct imp_queue *q, const struct imp_conf_rule *c, uint32_t room, struct imp_outcome *o)
{
	if (c->copies > room)
		return IMP_WHY_NO_ROOM;
	while (o->ncopies < c->copies) {
		o->copy[o->ncopies] = copy_of(q, o->m);
		if (o->copy[o->ncopies] == NULL)
			return o->ncopies > 0 ? IMP_WHY_NONE : IMP_WHY_NO_BUFFER;
		o->ncopies++;
	}
	return IMP_WHY_NONE;
}

/* --- waiting --- */

/*
 * Computes when a rate allows a packet of @len bytes to leave: a leaky bucket that lets the bytes
 * of @tau cycles pass at once.  @return false: the packet would wait too long.
 */
static bool
rate_due(struct imp_live *l, uint32_t len, uint64_t now, uint64_t *due)
{
	uint64_t next = RTE_MAX(l->due, now);

	*due = next > now + l->tau ? next - l->tau : now;
	if (*due - now > l->queue)
		return false;
	l->due = next + (uint64_t)((unsigned __int128)len * l->byte_cycles >> 32);
	return true;
}

/* Holds the packet.  If that is not necessary or not possible, it passes or is dropped. */
static enum imp_why
keep(struct imp_queue *q, const struct imp_verdict *v, const struct imp_record *r, uint64_t now,
	struct imp_outcome *o, bool *logged)
{
	struct imp_live *l = v->live;
	struct imp_waiting w = {.m = o->m, .record = *r, .due = UINT64_MAX};
	bool held;

	switch (l->conf->action) {
	case IMP_RATE:
		if (!rate_due(l, o->m->pkt_len, now, &w.due)) {
			rte_pktmbuf_free(o->m);
			o->m = NULL;
			return IMP_WHY_QUEUE_FULL;
		}
		if (w.due <= now) {
			*logged = false; /* not held, so not impaired */
			return IMP_WHY_NONE;
		}
		held = imp_hold_timed(&q->held, &w);
		break;
	case IMP_DELAY:
		w.due = now + l->delay;
		held = imp_hold_timed(&q->held, &w);
		break;
	default:
		w.due = l->conf->time_us != 0 ? now + l->hold : UINT64_MAX;
		w.left = (uint32_t)l->conf->packets;
		w.any = l->conf->action == IMP_HOLD;
		held = w.left == 0 ? imp_hold_timed(&q->held, &w) : imp_hold_counted(&q->held, &w);
	}
	if (!held)
		return IMP_WHY_NO_ROOM;
	o->m = NULL;
	return IMP_WHY_NONE;
}

void
imp_act(struct imp_queue *q, struct rte_mbuf *m, const struct imp_verdict *v, uint64_t packet,
	uint64_t now, uint32_t room, struct imp_outcome *o)
{
	const struct imp_conf_rule *c = v->live->conf;
	uint8_t copy[IMP_HEADERS];
	enum imp_why why = IMP_WHY_NONE;
	struct imp_record r;
	struct imp_frame f;
	bool logged = true;

	(void)imp_frame_read(m, &f, copy);
	imp_record_init(&r, q, m, &f, v, packet, now);
	o->m = m;
	o->ncopies = 0;
	switch (c->action) {
	case IMP_DROP:
		rte_pktmbuf_free(m);
		o->m = NULL;
		break;
	case IMP_DUPLICATE:
		why = duplicate(q, c, room, o);
		r.detail = o->ncopies;
		break;
	case IMP_CORRUPT:
	case IMP_TRUNCATE:
	case IMP_MARK:
		why = change(q, v, &f, &r.detail, o);
		o->m = o->m != NULL ? o->m : m;
		break;
	default:
		why = keep(q, v, &r, now, o, &logged);
	}
	if (!logged)
		return;
	if (why == IMP_WHY_NONE || why == IMP_WHY_QUEUE_FULL) {
		imp_add(&q->stats.action[c->action], 1);
		if (why == IMP_WHY_QUEUE_FULL)
			imp_add(&q->stats.rate_dropped, 1);
		imp_log_put(q, &r, IMP_INJURED, why);
	} else {
		imp_add(&q->stats.spared, 1);
		imp_log_put(q, &r, IMP_SPARED, why);
	}
}
