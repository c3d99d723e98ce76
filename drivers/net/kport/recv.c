/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Receiving.  A train is one message of up to 64 KiB, but the program needs datagrams, each with
 * its headers in a buffer of its own.  No payload is copied for that if the next train has the same
 * format as the last one: the message is received into a list of buffers that are as long as its
 * datagrams, with room for headers in front:
 *
 *       buffer 0   [headers|datagram 0]
 *       buffer 1   [.......|datagram 1]     the dots are written afterwards, from buffer 0's
 *       ...
 *       spill      the rest, if the guess was wrong
 *
 * If the guess was wrong (another size, other headers, a frame that is longer than buffer 0's
 * part), the bytes are copied to the right places, and the guess is changed.  Trains of small
 * datagrams are always copied, since a buffer for each would cost more.
 *
 * Everything that the kernel reports about a message is checked against its bytes: a program that
 * may send raw frames may also send wrong virtio headers.
 *
 * The datagrams of one recvmmsg() are returned before the next recvmmsg().  So when a program is
 * told that there is nothing, the socket becomes readable again with the next frame.
 *
 * Small frames need no recvmmsg() at all if the kernel puts them into a ring (ring.c).
 */
#include "recv.h"

#include <errno.h>

/* A train of at least this many datagrams determines the expected format. */
#define KP_LONG_TRAIN 4u
/* If a train's datagrams are so little longer than expected that at most these many bytes of them
 * are in the buffer behind their own, those bytes are moved, and not the datagrams. */
#define KP_SHIFT_MAX 64u

/* --- slots --- */

/* Address of the payload in a buffer in front of which headers are written later. */
static inline uint8_t *
payload_at(struct rte_mbuf *m, unsigned int hdr)
{
	return rte_pktmbuf_mtod_offset(m, uint8_t *, hdr);
}

/* Returns the number of buffers that a slot needs for the guess of its queue. */
static unsigned int
bufs_wanted(const struct kp_rxq *q)
{
	return q->seg == 0 ? 1 : RTE_MIN(KP_RX_BUFS, KP_IP_MAX / q->seg + 1);
}

/* Allocates or frees buffers of a slot.  A slot with fewer buffers than wanted can still be
 * used. */
static void
adjust_bufs(struct kp_rxq *q, struct kp_slot *s)
{
	unsigned int want = bufs_wanted(q);

	if (s->nbufs > want) {
		rte_pktmbuf_free_bulk(s->buf + want, s->nbufs - want);
		s->nbufs = (uint16_t)want;
	}
	while (s->nbufs < want) {
		unsigned int n = want - s->nbufs;

		if (rte_pktmbuf_alloc_bulk(q->pool, s->buf + s->nbufs, n) != 0) {
			n = 1;
			s->buf[s->nbufs] = rte_pktmbuf_alloc(q->pool);
			if (s->buf[s->nbufs] == NULL)
				return;
		}
		s->nbufs = (uint16_t)(s->nbufs + n);
	}
}

/* Prepares a slot for the queue's guess. */
static void
arm(struct kp_rxq *q, unsigned int index)
{
	struct kp_slot *s = &q->slot[index];
	struct msghdr *h = &q->msg[index].msg_hdr;
	unsigned int i, n = 0;

	adjust_bufs(q, s);
	s->seg = q->seg;
	s->hdr = q->hdr;
	s->iov[n++] = (struct iovec){.iov_base = &s->vnet, .iov_len = sizeof(s->vnet)};
	if (!q->port->vnet)
		n = 0;
	s->first = (uint16_t)(s->seg == 0 ? q->room : (uint32_t)s->hdr + s->seg);
	for (i = 0; i < s->nbufs; i++)
		s->iov[n++] = (struct iovec){.iov_base = payload_at(s->buf[i], i == 0 ? 0 : s->hdr),
			.iov_len = i == 0 ? s->first : s->seg};
	s->iov[n++] = (struct iovec){.iov_base = s->spill, .iov_len = KP_SPILL};
	h->msg_iov = s->iov;
	h->msg_iovlen = n;
	h->msg_control = s->control;
	h->msg_controllen = q->port->tags ? sizeof(s->control) : 0;
	h->msg_flags = 0;
}

/* --- reading a message whose bytes are in several places --- */

struct cursor {
	const struct iovec *iov;
	size_t off;
};

static void
cursor_skip(struct cursor *c, size_t n)
{
	while (n > 0 && n >= c->iov->iov_len - c->off) {
		n -= c->iov->iov_len - c->off;
		c->iov++;
		c->off = 0;
	}
	c->off += n;
}

static void
cursor_copy(struct cursor *c, uint8_t *to, size_t n)
{
	while (n > 0) {
		size_t part = RTE_MIN(n, c->iov->iov_len - c->off);

		rte_memcpy(to, (const uint8_t *)c->iov->iov_base + c->off, part);
		to += part;
		n -= part;
		cursor_skip(c, part);
	}
}

/* --- returning datagrams --- */

/* Puts the tag that the kernel has removed back into the frame, or beside it if the program wants
 * that.  @return the number of bytes by which the frame is longer. */
static __rte_noinline size_t
restore_tag(const struct kp_rxq *q, struct rte_mbuf *m, struct kp_tag tag)
{
	const rte_be16_t vlan[2] = {rte_cpu_to_be_16(tag.tpid), rte_cpu_to_be_16(tag.tci)};
	uint8_t *p;

	if (q->port->strip) {
		m->vlan_tci = tag.tci;
		m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
		return 0;
	}
	/* the headroom of a buffer that the driver has allocated */
	m->data_off = (uint16_t)(m->data_off - sizeof(vlan));
	p = rte_pktmbuf_mtod(m, uint8_t *);
	memmove(p, p + sizeof(vlan), 2 * RTE_ETHER_ADDR_LEN);
	memcpy(p + 2 * RTE_ETHER_ADDR_LEN, vlan, sizeof(vlan));
	return sizeof(vlan);
}

static inline void
give(struct kp_rxq *q, struct rte_mbuf *m, struct kp_tag tag, size_t len)
{
	if (unlikely(tag.present))
		len += restore_tag(q, m, tag);
	m->data_len = (uint16_t)len;
	m->pkt_len = (uint32_t)len;
	m->port = q->port_id;
	q->ready[q->nready++] = m;
	q->stats.frames++;
	q->stats.bytes += len;
}

/* Returns the tag that the kernel has removed, from the control data of a message. */
static struct kp_tag
tag_of(const struct kp_rxq *q, const struct msghdr *h)
{
	struct tpacket_auxdata aux;
	struct cmsghdr *c;

	if (!q->port->tags)
		return (struct kp_tag){0};
	for (c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)h, c)) {
		if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA)
			continue;
		memcpy(&aux, CMSG_DATA(c), sizeof(aux));
		return kp_tag_of(aux.tp_status, aux.tp_vlan_tpid, aux.tp_vlan_tci);
	}
	return (struct kp_tag){0};
}

static inline void
set_flags(struct rte_mbuf *m, bool no_sum)
{
	m->ol_flags = no_sum ? RTE_MBUF_F_RX_L4_CKSUM_NONE : 0;
}

/* Removes the first @n buffers of the slot, which now belong to the program. */
static void
slot_gave(struct kp_slot *s, unsigned int n)
{
	s->nbufs = (uint16_t)(s->nbufs - n);
	memmove(s->buf, s->buf + n, s->nbufs * sizeof(s->buf[0]));
}

/* If the sender has left the checksum to an adapter, it is not in the frame.  UDP allows to say
 * that there is none. */
static void
drop_partial_checksum(struct rte_mbuf *m, size_t len)
{
	uint8_t *data = rte_pktmbuf_mtod(m, uint8_t *);
	struct kp_hdrs h;

	m->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_NONE;
	if (kp_hdrs_find(data, len, &h))
		memset(data + h.l4 + 6, 0, 2);
}

/* Takes a single frame, of which at most the end is in another place. */
static void
slot_take_frame(
	struct kp_rxq *q, struct kp_slot *s, struct kp_tag tag, struct cursor at, size_t len)
{
	struct rte_mbuf *m = s->buf[0];

	if (s->nbufs == 0) {
		q->stats.no_bufs++;
		return;
	}
	if (len > q->room) {
		q->stats.too_long++;
		return;
	}
	if (len > s->first) {
		cursor_skip(&at, s->first);
		cursor_copy(&at, rte_pktmbuf_mtod_offset(m, uint8_t *, s->first), len - s->first);
	}
	set_flags(m, false);
	if (q->port->vnet && (s->vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0)
		drop_partial_checksum(m, len);
	slot_gave(s, 1);
	give(q, m, tag, len);
}

/* Whether the @n datagrams of @seg bytes are in their buffers, or at most KP_SHIFT_MAX bytes of
 * each are in the next one. */
static bool
is_in_place(const struct kp_rxq *q, const struct kp_slot *s, const struct kp_hdrs *hdrs,
	unsigned int n, uint16_t seg)
{
	unsigned int shift = n * (unsigned int)(seg - s->seg);

	if (s->seg == 0 || seg < s->seg || hdrs->bytes != s->hdr || n > s->nbufs)
		return false;
	/* addresses of headers remain a multiple of 4 */
	return shift == 0 ||
		(shift <= KP_SHIFT_MAX && (seg - s->seg) % 4 == 0 &&
			s->hdr + s->seg + shift <= q->room);
}

/* The datagrams are longer than expected, each by @more bytes: appends to each what is at the
 * beginning of the next buffer, and moves its begin behind what belongs to the one before. */
static void
shift_datagrams(struct kp_slot *s, unsigned int n, size_t payload, unsigned int more)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct rte_mbuf *m = s->buf[i];
		const uint8_t *next =
			i + 1 < s->nbufs ? payload_at(s->buf[i + 1], s->hdr) : s->spill;
		size_t rest = payload - (size_t)i * s->seg;

		if (rest > s->seg)
			memcpy(payload_at(m, s->hdr + s->seg), next,
				RTE_MIN(rest - s->seg, (size_t)(i + 1) * more));
	}
	for (i = 1; i < n; i++)
		s->buf[i]->data_off = (uint16_t)(s->buf[i]->data_off + i * more);
}

/* Takes a train of which is_in_place() is true, and whose datagrams lack their headers. */
static void
take_in_place(struct kp_rxq *q, struct kp_slot *s, struct kp_tag tag, const struct kp_hdrs *hdrs,
	size_t payload, uint16_t seg)
{
	const uint8_t *first = rte_pktmbuf_mtod(s->buf[0], const uint8_t *);
	unsigned int n = (unsigned int)((payload + seg - 1) / seg), i;

	if (seg != s->seg)
		shift_datagrams(s, n, payload, (unsigned int)(seg - s->seg));
	for (i = n; i-- > 0;) {
		struct rte_mbuf *m = s->buf[i];
		size_t part = RTE_MIN(payload - (size_t)i * seg, (size_t)seg);

		/* the first one last: the headers of the others are made from its headers */
		kp_hdrs_of_one(rte_pktmbuf_mtod(m, uint8_t *), first, hdrs, i, part);
		set_flags(m, hdrs->ip6);
	}
	for (i = 0; i < n; i++)
		give(q, s->buf[i], tag,
			hdrs->bytes + RTE_MIN(payload - (size_t)i * seg, (size_t)seg));
	slot_gave(s, n);
}

/* Takes a train by copying its datagrams. */
static void
take_copies(struct kp_rxq *q, struct kp_tag tag, struct cursor at, const uint8_t *first,
	const struct kp_hdrs *hdrs, size_t payload, uint16_t seg)
{
	unsigned int i;

	cursor_skip(&at, hdrs->bytes);
	for (i = 0; payload > 0; i++) {
		size_t part = RTE_MIN(payload, (size_t)seg);
		struct rte_mbuf *m;

		payload -= part;
		if (part + hdrs->bytes > q->room) {
			q->stats.too_long++;
			cursor_skip(&at, part);
			continue;
		}
		m = rte_pktmbuf_alloc(q->pool);
		if (m == NULL) {
			q->stats.no_bufs++;
			cursor_skip(&at, part);
			continue;
		}
		kp_hdrs_of_one(rte_pktmbuf_mtod(m, uint8_t *), first, hdrs, i, part);
		cursor_copy(&at, payload_at(m, hdrs->bytes), part);
		set_flags(m, hdrs->ip6);
		give(q, m, tag, hdrs->bytes + part);
		q->stats.copied++;
	}
}

/* Decides how the next train is expected.  One short train of another size does not change that,
 * because the ends of messages are such trains. */
static void
guess(struct kp_rxq *q, uint16_t seg, uint8_t hdr, unsigned int n)
{
	bool again = seg == q->other_seg;

	q->other_seg = seg;
	if (seg < KP_SCATTER_LEAST || (uint32_t)seg + hdr > q->room ||
		(q->seg != 0 && n < KP_LONG_TRAIN && !again))
		return;
	q->seg = seg;
	q->hdr = hdr;
}

/* @s: NULL if the train is not in a slot and therefore has to be copied. */
static void
take_train(struct kp_rxq *q, struct kp_slot *s, const struct virtio_net_hdr *vnet,
	struct kp_tag tag, struct cursor at, size_t len)
{
	struct cursor peek = at;
	uint8_t first[KP_HEADERS_MAX];
	size_t front = RTE_MIN(len, sizeof(first)), payload;
	uint16_t seg = vnet->gso_size;
	struct kp_hdrs hdrs;
	unsigned int n;
	bool in_place;

	cursor_copy(&peek, first, front);
	/* The upper bit means that there was congestion, which the headers say as well. */
	if (vnet->gso_type != KP_GSO_UDP_L4 || seg == 0 || !kp_hdrs_find(first, front, &hdrs) ||
		len <= hdrs.bytes || len - hdrs.l3 > KP_IP_MAX) {
		q->stats.bad++;
		return;
	}
	payload = len - hdrs.bytes;
	n = (unsigned int)((payload + seg - 1) / seg);
	if (n > KP_TRAIN_MAX_RX) {
		q->stats.bad++;
		return;
	}
	q->stats.trains++;
	q->stats.datagrams += n;
	in_place = s != NULL && is_in_place(q, s, &hdrs, n, seg);
	if (in_place && seg == s->seg)
		q->other_seg = 0;
	else if (s != NULL)
		guess(q, seg, hdrs.bytes, n);
	if (in_place)
		take_in_place(q, s, tag, &hdrs, payload, seg);
	else
		take_copies(q, tag, at, first, &hdrs, payload, seg);
}

static void
take(struct kp_rxq *q, unsigned int index)
{
	struct kp_slot *s = &q->slot[index];
	const struct msghdr *h = &q->msg[index].msg_hdr;
	size_t len = q->msg[index].msg_len;
	struct cursor at = {.iov = s->iov};
	struct kp_tag tag = tag_of(q, h);

	if (h->msg_flags & MSG_TRUNC) {
		q->stats.bad++;
		return;
	}
	if (!q->port->vnet) {
		slot_take_frame(q, s, tag, at, len);
		return;
	}
	at.iov++;
	if (len < sizeof(s->vnet)) {
		q->stats.bad++;
		return;
	}
	len -= sizeof(s->vnet);
	if (s->vnet.gso_type == VIRTIO_NET_HDR_GSO_NONE)
		slot_take_frame(q, s, tag, at, len);
	else
		take_train(q, s, &s->vnet, tag, at, len);
}

/* --- polls --- */

static uint16_t
hand_out(struct kp_rxq *q, struct rte_mbuf **bufs, uint16_t n)
{
	n = (uint16_t)RTE_MIN(q->nready - q->ready_head, (uint32_t)n);
	memcpy(bufs, q->ready + q->ready_head, n * sizeof(bufs[0]));
	q->ready_head += n;
	if (q->ready_head == q->nready)
		q->ready_head = q->nready = 0;
	return n;
}

int
kp_rx_messages(struct kp_rxq *q, unsigned int most)
{
	int i,
		got = q->port->tap ? kp_tap_recv(q->fd, q->msg, most)
				   : recvmmsg(q->fd, q->msg, most, MSG_DONTWAIT, NULL);

	if (got < 0) {
		got = -errno;
		/* Other errors, such as ENETDOWN, concern the interface; the link status reports
		 * them. */
		if (got != -EAGAIN && got != -EINTR)
			kp_add(&q->stats.errors, 1);
		return got;
	}
	for (i = 0; i < got; i++)
		take(q, (unsigned int)i);
	for (i = 0; i < got; i++)
		arm(q, (unsigned int)i);
	return got;
}

uint16_t
kp_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n)
{
	struct kp_rxq *q = queue;

	if (q->nready == 0) {
		if (q->ring != NULL)
			kp_ring_take(q, n);
		else
			kp_rx_messages(q, RTE_MIN((unsigned int)n, KP_RX_SLOTS));
	}
	return hand_out(q, bufs, n);
}

void
kp_rx_take_copied(struct kp_rxq *q, const struct virtio_net_hdr *vnet, struct kp_tag tag,
	const uint8_t *frame, size_t len)
{
	const struct iovec iov = {.iov_base = (void *)(uintptr_t)frame, .iov_len = len};
	struct cursor at = {.iov = &iov};
	struct rte_mbuf *m;

	if (vnet->gso_type != VIRTIO_NET_HDR_GSO_NONE) {
		take_train(q, NULL, vnet, tag, at, len);
		return;
	}
	if (len > q->room) {
		q->stats.too_long++;
		return;
	}
	m = rte_pktmbuf_alloc(q->pool);
	if (m == NULL) {
		q->stats.no_bufs++;
		return;
	}
	rte_memcpy(rte_pktmbuf_mtod(m, uint8_t *), frame, len);
	set_flags(m, false);
	if ((vnet->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0)
		drop_partial_checksum(m, len);
	give(q, m, tag, len);
}

int
kp_rxq_init(struct kp_rxq *q)
{
	unsigned int i;

	for (i = 0; i < KP_RX_SLOTS; i++) {
		q->slot[i].spill = rte_malloc_socket(
			"net_kport", KP_SPILL, RTE_CACHE_LINE_SIZE, q->port->data->numa_node);
		if (q->slot[i].spill == NULL)
			return -ENOMEM;
	}
	return 0;
}

void
kp_rxq_arm(struct kp_rxq *q)
{
	unsigned int i;

	q->seg = q->hdr = 0;
	for (i = 0; i < KP_RX_SLOTS; i++)
		arm(q, i);
}

void
kp_rxq_fini(struct kp_rxq *q)
{
	unsigned int i;

	while (q->ready_head < q->nready)
		rte_pktmbuf_free(q->ready[q->ready_head++]);
	q->ready_head = q->nready = 0;
	for (i = 0; i < KP_RX_SLOTS; i++) {
		rte_pktmbuf_free_bulk(q->slot[i].buf, q->slot[i].nbufs);
		q->slot[i].nbufs = 0;
		rte_free(q->slot[i].spill);
		q->slot[i].spill = NULL;
	}
}
