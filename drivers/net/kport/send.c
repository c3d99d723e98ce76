/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Sending.  Consecutive frames of a burst that are datagrams of one flow and size are sent as one
 * train: the kernel then passes through its stack once for all of them.  This file recognizes them
 * by their headers, whatever program made them.  Over IPv4 their identifications must be
 * consecutive, because the kernel will write consecutive ones.  That matters to a transport that
 * protects the identification by a checksum of its own, as RoCE does.
 *
 * A program may also pass a train itself, in DPDK's form for UDP segmentation: a chain of buffers
 * with RTE_MBUF_F_TX_UDP_SEG and the lengths of headers and segments.
 *
 * No payload is copied here: a message consists of the train's headers, which are written anew, and
 * the buffers.  The kernel has copied them when the call returns, so they can be freed.
 *
 * A kernel or interface that does not support trains refuses the first one; then frames are sent
 * one by one, and trains of the program are divided here.
 */
#include "kport.h"

#include <errno.h>

/* Iovecs that a message may need: one for the virtio header, one for the headers, and one for each
 * buffer. */
#define EXTRA 2u

struct gather {
	struct kp_txq *q;
	unsigned int nmsg, niov;
};

static struct iovec *
add_piece(struct gather *g, const void *base, size_t len)
{
	struct iovec *v = &g->q->iov[g->niov++];

	*v = (struct iovec){.iov_base = (void *)(uintptr_t)base, .iov_len = len};
	return v;
}

/* Begins a message with an empty virtio header. */
static struct virtio_net_hdr *
begin(struct gather *g)
{
	struct virtio_net_hdr *v = &g->q->vnet[g->nmsg];
	struct msghdr *h = &g->q->msg[g->nmsg].msg_hdr;

	memset(v, 0, sizeof(*v));
	memset(h, 0, sizeof(*h));
	h->msg_iov = &g->q->iov[g->niov];
	if (g->q->port->vnet)
		add_piece(g, v, sizeof(*v));
	return v;
}

static void
end(struct gather *g, unsigned int mbufs, unsigned int pieces, size_t bytes)
{
	struct msghdr *h = &g->q->msg[g->nmsg].msg_hdr;

	h->msg_iovlen = (size_t)(&g->q->iov[g->niov] - h->msg_iov);
	g->q->mbufs[g->nmsg] = (uint16_t)mbufs;
	g->q->pieces[g->nmsg] = (uint16_t)pieces;
	g->q->bytes[g->nmsg] = (uint32_t)bytes;
	g->nmsg++;
}

/* Adds @len bytes of a chain, from @skip bytes on. */
static void
add_chain(struct gather *g, const struct rte_mbuf *m, size_t skip, size_t len)
{
	for (; m != NULL && len > 0; m = m->next) {
		size_t part = m->data_len - RTE_MIN(skip, (size_t)m->data_len);

		part = RTE_MIN(part, len);
		if (part > 0)
			add_piece(g, rte_pktmbuf_mtod_offset(m, const uint8_t *, skip), part);
		skip -= RTE_MIN(skip, (size_t)m->data_len);
		len -= part;
	}
}

/* Fills in the virtio header of a train. */
static void
describe_train(struct virtio_net_hdr *v, const struct kp_hdrs *h, size_t seg)
{
	v->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	v->gso_type = KP_GSO_UDP_L4;
	v->hdr_len = h->bytes;
	v->gso_size = (uint16_t)seg;
	v->csum_start = h->l4;
	v->csum_offset = 6;
}

/* Does a datagram of @len bytes of IP exceed the interface's MTU?  The kernel checks that for
 * single frames, but not for the datagrams of a train; for a tap, whose port is the other end, it
 * checks neither. */
static inline bool
exceeds_mtu(const struct kp_port *p, size_t len)
{
	/* relaxed: it may change at any time */
	return !p->tap && len > __atomic_load_n(&p->mtu, __ATOMIC_RELAXED);
}

/* --- trains that are recognized --- */

/* Returns how many of the @n frames from @bufs on form a train with the first one. */
static unsigned int
find_train(const struct kp_port *p, struct rte_mbuf *const *bufs, unsigned int n, struct kp_hdrs *h)
{
	const uint8_t *first = rte_pktmbuf_mtod(bufs[0], const uint8_t *);
	size_t len = bufs[0]->data_len, total = len;
	unsigned int i;

	if (n < 2 || bufs[1]->data_len > len || !kp_hdrs_find(first, len, h) ||
		!kp_train_begins(first, len, h) || exceeds_mtu(p, len - h->l3))
		return 1;
	for (i = 1; i < n && i < KP_TRAIN_MAX; i++) {
		const struct rte_mbuf *m = bufs[i];

		total += m->data_len - (size_t)h->bytes;
		if (m->nb_segs != 1 || (m->ol_flags & RTE_MBUF_F_TX_OFFLOAD_MASK) != 0 ||
			m->data_len > len || total - h->l3 > KP_IP_MAX ||
			!kp_train_joins(
				first, h, rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, i))
			break;
		/* A shorter frame is the last of a train, unless another frame of its size follows:
		 * then it begins the next train.  That train is longer, and the receiver need not
		 * change its expected size for this one. */
		if (m->data_len < len)
			return i + 1 < n && bufs[i + 1]->data_len == m->data_len ? i : i + 1;
	}
	return i;
}

static void
add_train(struct gather *g, struct rte_mbuf *const *bufs, unsigned int n, const struct kp_hdrs *h)
{
	const uint8_t *first = rte_pktmbuf_mtod(bufs[0], const uint8_t *);
	size_t seg = bufs[0]->data_len - (size_t)h->bytes, payload = 0;
	uint8_t *hdr = g->q->hdr[g->nmsg];
	unsigned int i;

	describe_train(begin(g), h, seg);
	add_piece(g, hdr, h->bytes);
	for (i = 0; i < n; i++) {
		size_t part = bufs[i]->data_len - (size_t)h->bytes;

		add_piece(g, rte_pktmbuf_mtod_offset(bufs[i], const uint8_t *, h->bytes), part);
		payload += part;
	}
	kp_hdrs_of_train(hdr, first, h, payload);
	end(g, n, n, payload + (size_t)n * h->bytes);
}

/* --- offloads that programs ask for --- */

/* Finds the headers of a frame with offloads.  @return false: they do not match the flags. */
static bool
offload_hdrs(const struct rte_mbuf *m, struct kp_hdrs *h)
{
	return kp_hdrs_find(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, h) &&
		m->data_len >= h->bytes && m->pkt_len > h->bytes && m->pkt_len - h->l3 <= KP_IP_MAX;
}

/* Adds a frame whose checksum the kernel has to write.  The kernel sums up to the end of the frame,
 * so bytes behind the @payload, which pad the frame, are left out. */
static void
add_checksummed(struct gather *g, const struct rte_mbuf *m, const struct kp_hdrs *h, size_t payload)
{
	struct virtio_net_hdr *v = begin(g);
	uint8_t *hdr = g->q->hdr[g->nmsg];

	kp_hdrs_of_train(hdr, rte_pktmbuf_mtod(m, const uint8_t *), h, payload);
	v->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	v->csum_start = h->l4;
	v->csum_offset = 6;
	add_piece(g, hdr, h->bytes);
	add_chain(g, m, h->bytes, payload);
	end(g, 1, 1, m->pkt_len);
}

static void
add_program_train(struct gather *g, const struct rte_mbuf *m, const struct kp_hdrs *h)
{
	size_t payload = m->pkt_len - h->bytes, seg = m->tso_segsz;
	uint8_t *hdr = g->q->hdr[g->nmsg];

	describe_train(begin(g), h, seg);
	kp_hdrs_of_train(hdr, rte_pktmbuf_mtod(m, const uint8_t *), h, payload);
	add_piece(g, hdr, h->bytes);
	add_chain(g, m, h->bytes, payload);
	end(g, 1, (unsigned int)((payload + seg - 1) / seg), m->pkt_len);
}

/* --- a burst --- */

/* Copies @len bytes of a chain from @from on. */
static void
copy_out(const struct rte_mbuf *m, size_t from, size_t len, uint8_t *to)
{
	const uint8_t *p = rte_pktmbuf_read(m, (uint32_t)from, (uint32_t)len, to);

	if (p != NULL && p != to)
		memcpy(to, p, len);
}

static int
send_one(const struct kp_txq *q, const struct msghdr *msg)
{
	struct mmsghdr one = {.msg_hdr = *msg};

	return q->port->tap ? kp_tap_send(q->fd, &one, 1) : (int)sendmsg(q->fd, msg, MSG_DONTWAIT);
}

/* Divides a program's train if the kernel does not: one call for each datagram.
 * @return -EAGAIN: there was no room for the first one, and nothing was sent. */
static int
send_pieces(struct kp_txq *q, const struct rte_mbuf *m, const struct kp_hdrs *h)
{
	uint8_t frame[KP_HEADERS_MAX + UINT16_MAX];
	const uint8_t *first = rte_pktmbuf_mtod(m, const uint8_t *);
	size_t payload = m->pkt_len - h->bytes, at;
	struct virtio_net_hdr v = {0};
	unsigned int i = 0;
	int rc = 0;

	for (at = 0; at < payload; at += m->tso_segsz, i++) {
		size_t part = RTE_MIN(payload - at, (size_t)m->tso_segsz);
		struct iovec iov[2] = {{&v, sizeof(v)}, {frame, h->bytes + part}};
		struct msghdr msg = {.msg_iov = iov + (q->port->vnet ? 0 : 1),
			.msg_iovlen = q->port->vnet ? 2 : 1};

		kp_hdrs_of_one(frame, first, h, i, part);
		copy_out(m, h->bytes + at, part, frame + h->bytes);
		if (send_one(q, &msg) < 0) {
			rc = errno == EAGAIN || errno == ENOBUFS ? -EAGAIN : -errno;
			break;
		}
	}
	if (i == 0)
		return rc;
	kp_add(&q->stats.frames, i);
	kp_add(&q->stats.bytes, h->bytes + RTE_MIN(at, payload));
	/* The caller must not send these pieces again, so the rest of the train is lost. */
	return rc == -EAGAIN ? -ENOBUFS : rc;
}

/* Adds a datagram of which only the checksum is missing.  @return false: its lengths are wrong. */
static bool
add_datagram(struct gather *g, const struct rte_mbuf *m, const struct kp_hdrs *h)
{
	int payload = kp_hdrs_payload(rte_pktmbuf_mtod(m, const uint8_t *), h);

	if (payload < 0 || (uint32_t)payload > m->pkt_len - h->bytes)
		return false;
	add_checksummed(g, m, h, (size_t)payload);
	return true;
}

/* Adds one frame.  @return false: it cannot be sent in this form. */
static bool
add_frame(struct gather *g, const struct rte_mbuf *m)
{
	struct kp_hdrs h;

	if ((m->ol_flags & (RTE_MBUF_F_TX_UDP_SEG | RTE_MBUF_F_TX_L4_MASK)) != 0) {
		bool train = (m->ol_flags & RTE_MBUF_F_TX_UDP_SEG) != 0;

		if (!offload_hdrs(m, &h) || (train && m->tso_segsz == 0) || !g->q->port->vnet)
			return false;
		if (!train)
			return add_datagram(g, m, &h);
		if (m->tso_segsz >= m->pkt_len - h.bytes) {
			add_checksummed(g, m, &h, m->pkt_len - h.bytes);
			return true;
		}
		if (exceeds_mtu(g->q->port, (size_t)m->tso_segsz + h.bytes - h.l3))
			return false;
		add_program_train(g, m, &h);
		return true;
	}
	begin(g);
	add_chain(g, m, 0, m->pkt_len);
	end(g, 1, 1, m->pkt_len);
	return true;
}

static inline bool
is_train(const struct rte_mbuf *m)
{
	return (m->ol_flags & RTE_MBUF_F_TX_UDP_SEG) != 0;
}

/* Makes messages of as many of the @n frames as there is room for.  @return false: the first frame
 * cannot be sent in this way. */
static bool
gather(struct gather *g, struct rte_mbuf *const *bufs, unsigned int n)
{
	bool trains = atomic_load_explicit(&g->q->port->tx_trains, memory_order_relaxed);
	unsigned int i = 0;
	struct kp_hdrs h;

	while (i < n && g->nmsg < KP_TX_MSGS) {
		const struct rte_mbuf *m = bufs[i];
		unsigned int room = KP_TX_IOVS - g->niov, len;

		if (room < m->nb_segs + EXTRA || (!trains && is_train(m)))
			break;
		if (!trains || m->nb_segs != 1 || (m->ol_flags & RTE_MBUF_F_TX_OFFLOAD_MASK) != 0) {
			if (!add_frame(g, m))
				break;
			i++;
			continue;
		}
		len = find_train(g->q->port, bufs + i, RTE_MIN(n - i, room - EXTRA), &h);
		if (len > 1)
			add_train(g, bufs + i, len, &h);
		else
			add_frame(g, m);
		i += len;
	}
	return g->nmsg > 0;
}

/* Counts the frames of the first @n messages.  @return the number of their mbufs. */
static unsigned int
account(struct kp_txq *q, unsigned int n)
{
	uint64_t bytes = 0, frames = 0, trains = 0, datagrams = 0;
	unsigned int i, mbufs = 0;

	for (i = 0; i < n; i++) {
		mbufs += q->mbufs[i];
		frames += q->pieces[i];
		bytes += q->bytes[i];
		trains += q->pieces[i] > 1;
		datagrams += q->pieces[i] > 1 ? q->pieces[i] : 0;
	}
	kp_add(&q->stats.frames, frames);
	kp_add(&q->stats.bytes, bytes);
	kp_add(&q->stats.trains, trains);
	kp_add(&q->stats.datagrams, datagrams);
	return mbufs;
}

/* Handles the kernel's refusal of the first message.  @return the number of mbufs that are done;
 * -EAGAIN: there is no room now. */
static int
refused(struct kp_txq *q, int err)
{
	bool train = q->pieces[0] > 1;

	if (err == EAGAIN || err == ENOBUFS || err == ENOMEM)
		return -EAGAIN;
	if (err == EINTR)
		return 0;
	if (train && (err == EINVAL || err == EOPNOTSUPP || err == EMSGSIZE)) {
		kp_say_once(q->port, KP_SAID_TRAINS,
			"the kernel refuses trains (%s; they need Linux 6.2): frames go one by one",
			strerror(err));
		atomic_store_explicit(&q->port->tx_trains, false, memory_order_relaxed);
		return 0;
	}
	if (err == EMSGSIZE)
		kp_say_once(q->port, KP_SAID_TOO_LONG,
			"a frame of %u bytes is more than the interface's MTU allows: such are lost",
			q->bytes[0]);
	kp_add(&q->stats.errors, q->pieces[0]);
	return q->mbufs[0];
}

/* Sends a frame that is not one message; the kernel refuses datagrams of a train that are too long.
 * @return 1: done; -EAGAIN. */
static int
send_odd(struct kp_txq *q, const struct rte_mbuf *m)
{
	struct kp_hdrs h;
	int rc = -EINVAL;

	if (is_train(m) && m->tso_segsz != 0 && offload_hdrs(m, &h))
		rc = send_pieces(q, m, &h);
	if (rc == -EAGAIN)
		return rc;
	if (rc != 0)
		kp_add(&q->stats.errors, 1);
	return 1;
}

uint16_t
kp_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t n)
{
	struct kp_txq *q = queue;
	unsigned int done = 0;

	while (done < n) {
		struct gather g = {.q = q};
		int rc;

		if (!gather(&g, bufs + done, n - done)) {
			rc = send_odd(q, bufs[done]);
		} else {
			rc = q->port->tap ? kp_tap_send(q->fd, q->msg, g.nmsg)
					  : sendmmsg(q->fd, q->msg, g.nmsg, MSG_DONTWAIT);
			rc = rc > 0 ? (int)account(q, (unsigned int)rc) : refused(q, errno);
		}
		if (rc < 0) {
			kp_add(&q->stats.full, 1);
			break;
		}
		done += (unsigned int)rc;
	}
	rte_pktmbuf_free_bulk(bufs, done);
	return (uint16_t)done;
}
