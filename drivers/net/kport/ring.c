/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The ring of a packet socket: memory into which the kernel puts received frames, so that neither
 * polling nor receiving a small frame needs a system call.  Its slots have KP_RING_SLOT bytes,
 * since most frames that arrive singly are requests, acknowledgements and short messages.  Longer
 * frames, mainly trains, arrive through the socket.  Their slot in the ring contains only the
 * beginning of the frame and is marked accordingly (PACKET_COPY_THRESH, TP_STATUS_COPY).  Slots and
 * messages are in the same order:
 *
 *       ring     frame | long | frame | long | long | frame
 *       socket           |              |      `-- recvmmsg() of two
 *                        `-- of one
 *
 * A slot is returned to the kernel when its frame has been copied.  The slot of a long frame is
 * returned at once and counted as owed until its message has been read from the socket, whatever
 * happens in between.
 *
 * A frame can stop the ring.  Before the kernel writes a virtio header into a slot, it marks the
 * slot as in use.  If no virtio header can express what the frame is (a program may have written it
 * to a tap as UDP to be fragmented; old kernels have none for UDP trains), the kernel drops the
 * frame and keeps the mark, so it drops all later frames, too.  Each time the link is checked,
 * kp_rings_renew() looks for rings that are empty, have delivered nothing since the last check,
 * and have dropped frames, and replaces them:
 *
 *   1. the socket is bound to a protocol that does not exist, after which no frame is on its way
 *   2. memory of zeros replaces the shared memory at the same address: the lcore finds no frame
 *   3. the kernel makes a new ring, which replaces that memory
 *   4. "change" tells the lcore to begin with slot 0; then the socket is bound again
 *
 * The lcore reads "change" after the status of a slot.  So if it finds a frame of the new ring, it
 * also finds that the ring is new.
 */
#include "recv.h"

#include <errno.h>

/* Polls of an empty ring between two reads of the socket's error. */
#define ERROR_EVERY 256u

static inline uint32_t
head_of(const struct kp_ring *r)
{
	return atomic_load_explicit(&r->head, memory_order_relaxed);
}

static inline uint32_t
owed_of(const struct kp_ring *r)
{
	return atomic_load_explicit(&r->owed, memory_order_relaxed);
}

static inline void
set_owed(struct kp_ring *r, uint32_t owed)
{
	atomic_store_explicit(&r->owed, owed, memory_order_relaxed);
}

static inline struct tpacket2_hdr *
slot_at(const struct kp_ring *r, uint32_t index)
{
	return (struct tpacket2_hdr *)(r->base + (size_t)(index & r->mask) * KP_RING_SLOT);
}

static inline uint32_t
status_of(const struct tpacket2_hdr *h)
{
	/* acquire, pairs with the kernel's barrier before it writes the word: the frame is
	 * complete */
	return __atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE);
}

static inline void
hand_back(struct kp_ring *r, struct tpacket2_hdr *h)
{
	/* release: all reads of the slot come before this store */
	__atomic_store_n(&h->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	/* relaxed: kp_ring_empty() reads the slots as well */
	atomic_store_explicit(&r->head, head_of(r) + 1, memory_order_relaxed);
}

/* Takes note of what kp_rings_renew() has done.  @return whether there still is a ring. */
static __rte_noinline bool
take_note(struct kp_ring *r)
{
	/* acquire, pairs with the release of renew(): the new memory is in place */
	if (atomic_load_explicit(&r->change, memory_order_acquire) == KP_RING_GONE)
		return false;
	atomic_store_explicit(&r->head, 0, memory_order_relaxed);
	set_owed(r, 0);
	/* release, pairs with kp_rings_renew(), which then reads the head */
	atomic_store_explicit(&r->change, KP_RING_SAME, memory_order_release);
	return true;
}

static void
ring_take_frame(struct kp_rxq *q, const struct tpacket2_hdr *h, uint32_t status)
{
	static const struct virtio_net_hdr none;
	const uint8_t *frame = (const uint8_t *)h + h->tp_mac;
	struct virtio_net_hdr vnet = none;
	struct kp_tag tag = {0};

	/* The socket had no room for the whole frame. */
	if (h->tp_snaplen < h->tp_len) {
		kp_add(&q->stats.missed, 1);
		return;
	}
	if (q->port->vnet)
		memcpy(&vnet, frame - sizeof(vnet), sizeof(vnet));
	if (q->port->tags)
		tag = kp_tag_of(status, h->tp_vlan_tpid, h->tp_vlan_tci);
	kp_rx_take_copied(q, &vnet, tag, frame, h->tp_snaplen);
}

/* Receives the messages that the socket has for adjacent slots. */
static void
take_long(struct kp_rxq *q)
{
	struct kp_ring *r = q->ring;
	struct tpacket2_hdr *h = slot_at(r, head_of(r));
	uint32_t owed = owed_of(r);
	int got;

	while (owed < KP_RX_SLOTS &&
		(status_of(h) & (TP_STATUS_USER | TP_STATUS_COPY)) ==
			(TP_STATUS_USER | TP_STATUS_COPY)) {
		set_owed(r, ++owed); /* first: see kp_ring_empty() */
		hand_back(r, h);
		h = slot_at(r, head_of(r));
	}
	got = kp_rx_messages(q, owed);
	if (got == -EAGAIN)
		set_owed(r, 0); /* an empty socket has none of the owed messages */
	else if (got > 0)
		set_owed(r, owed - RTE_MIN((uint32_t)got, owed));
}

/*
 * The kernel leaves an error in the socket when the interface goes down.  Until it is read,
 * epoll_wait() returns at once, and an lcore that is to sleep uses a whole processor.  No other
 * call reads it: frames come by the ring.
 */
static __rte_noinline void
read_error(struct kp_rxq *q)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(q->fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err != 0)
		kp_add(&q->stats.errors, 1);
}

void
kp_ring_take(struct kp_rxq *q, unsigned int n)
{
	struct kp_ring *r = q->ring;

	n = RTE_MIN(n, KP_RX_READY - KP_TRAIN_MAX_RX);
	if (owed_of(r) > 0)
		take_long(q);
	while (q->nready < n && owed_of(r) == 0) {
		struct tpacket2_hdr *h = slot_at(r, head_of(r));
		uint32_t status = status_of(h);

		/* relaxed: the status orders */
		if (unlikely(atomic_load_explicit(&r->change, memory_order_relaxed) !=
			    KP_RING_SAME)) {
			if (!take_note(r)) {
				q->ring = NULL;
				return;
			}
			continue;
		}
		if ((status & TP_STATUS_USER) == 0) {
			if (++r->empty_polls % ERROR_EVERY == 0)
				read_error(q);
			return;
		}
		if ((status & TP_STATUS_COPY) == 0) {
			ring_take_frame(q, h, status);
			hand_back(r, h);
		} else if (q->nready == 0) {
			take_long(q);
		} else {
			return; /* one of these at a time: a train may contain many datagrams */
		}
	}
}

bool
kp_ring_empty(const struct kp_ring *r)
{
	uint32_t head = head_of(r);

	/* The lcore may have returned a slot, but not yet counted it: it reads the next one. */
	return status_of(slot_at(r, head)) == TP_STATUS_KERNEL &&
		status_of(slot_at(r, head + 1)) == TP_STATUS_KERNEL && owed_of(r) == 0;
}

void
kp_ring_drop(struct kp_ring *r)
{
	struct tpacket2_hdr *h;

	if (r->base == NULL)
		return;
	/* relaxed: the lcore does not receive any more */
	if (atomic_load_explicit(&r->change, memory_order_relaxed) == KP_RING_NEW)
		(void)take_note(r);
	while (h = slot_at(r, head_of(r)), (status_of(h) & TP_STATUS_USER) != 0)
		hand_back(r, h);
	set_owed(r, 0);
}
