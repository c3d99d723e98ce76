/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Sending: buffers, one burst a turn, and the ports' queues.
 *
 * Empty buffers wait in tx_mbuf[], each described by the tx_pkt of the same index, so a turn that
 * builds two frames prepares only two new buffers.  A small stack is between the lcore and the
 * mempool: a buffer that was received and freed is the next one to be sent, while it is still in
 * the cache.
 *
 * Back-pressure: frames that a port's queue does not take stay in its pend[].  As long as pend[] is
 * not empty, the scheduler parks the QPs of that port (sched.c), so no frame is built that could
 * not leave.  This holds for UD, too: a UD QP is parked at the port of its next packet.
 */
#include "capture_ring.h"
#include "copies.h"
#include "group.h"
#include "karst_opcode.h"
#include "unmapped.h"

/* In a burst of at most so many frames, each is checked. */
#define FEW_BUILT 8u
/* Bytes of frames of one length that a port may send together: what fits into an IP packet. */
#define TRAIN_BYTES 65535u
/* Queue pairs that resume in one turn at a port that takes frames again. */
#define COME_BACK 64u
/* Queue pairs that may try again in a turn to get a copy, besides one for each copy that has become
 * free. */
#define FED 2u

/* Returns the most recently used buffers to the pool, where an lcore that has none left takes
 * them. */
void
eng_stash_spill(struct eng_lcore *lc)
{
	lc->nstash -= ENG_SPILL;
	lc->nstash_cold = karst_min_u32(lc->nstash_cold, lc->nstash);
	rte_mempool_put_bulk(lc->pool, (void **)&lc->stash[lc->nstash], ENG_SPILL);
}

/*
 * Whether a port that copies frames, such as a kernel interface's, has already returned to the pool
 * what was sent last.  The pool is last in, first out, so these buffers are still in this
 * processor's cache.
 */
static bool
came_back(const struct eng_lcore *lc, unsigned int n)
{
	unsigned int i;

	if (lc->tx_last == NULL)
		return false;
	for (i = 0; i < n; i++)
		if (lc->stash[i] == lc->tx_last)
			return true;
	return false;
}

static bool
stash_fill(struct eng_lcore *lc)
{
	unsigned int n = ENG_SPILL;

	/* An almost empty pool may still have a few. */
	while (rte_mempool_get_bulk(lc->pool, (void **)lc->stash, n) != 0) {
		n /= 2;
		if (n == 0)
			return false;
	}
	lc->nstash = n;
	lc->nstash_cold = came_back(lc, n) ? 0 : n;
	return true;
}

/* Where a frame begins in a fresh buffer; the layout is the same for all, so the mbuf is not
 * read. */
static inline uint8_t *
frame_of(struct rte_mbuf *m)
{
	return (uint8_t *)rte_mbuf_to_priv(m) + sizeof(struct karst_pkt) + ENG_FRAME_OFF;
}

/*
 * A buffer from the pool was freed by another lcore, whose cache still has its lines, unless a port
 * has returned it at once.  The lines are prefetched: those of the mbuf some buffers ahead, those
 * of the headers now, those of the payload while the frame before is sealed.
 */
static inline bool
take_cold(struct eng_lcore *lc, struct rte_mbuf *m)
{
	const uint8_t *data = frame_of(m);

	if (karst_likely(lc->nstash >= lc->nstash_cold))
		return false;
	lc->nstash_cold = lc->nstash;
	if (lc->nstash >= ENG_FETCH_AHEAD)
		karst_prefetchw(lc->stash[lc->nstash - ENG_FETCH_AHEAD]);
	karst_prefetchw(data);
	karst_prefetchw(data + KARST_CACHE_LINE);
	karst_prefetchw(data + 2 * KARST_CACHE_LINE);
	return true;
}

/* Puts a fresh buffer into tx_mbuf[@i].  @return false: there is none. */
static inline bool
fresh(struct eng_lcore *lc, unsigned int i)
{
	struct rte_mbuf *m;

	if (karst_unlikely(lc->nstash == 0 && !stash_fill(lc)))
		return false;
	m = lc->stash[--lc->nstash];
	lc->seals[i].cold = take_cold(lc, m);
	*mbuf_rearm(m) = lc->rearm;
	m->ol_flags = 0;
	lc->tx_mbuf[i] = m;
	lc->tx_pkt[i].data = frame_of(m);
	return true;
}

/* Replaces the first @used buffers, which were used. */
static void
refill(struct eng_lcore *lc, unsigned int used)
{
	unsigned int i, ready = lc->tx_ready;

	for (i = 0; i < used && fresh(lc, i); i++)
		;
	/* No more buffers: entries from the end fill the gap. */
	for (; karst_unlikely(i < used && ready > used); i++) {
		ready--;
		lc->tx_mbuf[i] = lc->tx_mbuf[ready];
		lc->seals[i].cold = lc->seals[ready].cold;
		lc->tx_pkt[i].data = lc->tx_pkt[ready].data;
	}
	lc->tx_ready = i < used ? i : ready;
	/* from now on it is not known who has it */
	lc->tx_last = NULL;
}

/* The port takes frames again.  All QPs that have waited may belong to one user, and other users
 * must not be delayed: so only a few QPs resume in a turn, and all of them resume before any that
 * has to wait again. */
static karst_noinline void
come_back(struct eng_lcore *lc, unsigned int port)
{
	struct eng_txq *q = &lc->tx[port];

	if (LIST_EMPTY(&q->back))
		karst_core_park_over(&q->parked, &q->back);
	if (karst_core_unpark(lc->core, &q->back, COME_BACK) && LIST_EMPTY(&q->parked))
		lc->blocked &= ~(1ull << port);
}

/* Passes frames to the port until its queue is full. */
static void
flush_port(struct eng_lcore *lc, unsigned int port)
{
	struct eng_txq *q = &lc->tx[port];
	uint16_t sent;

	if (karst_unlikely(q->n == 0)) {
		come_back(lc, port);
		return;
	}
	if (q->loop)
		sent = eng_loop_send(lc, port, q->pend, q->n);
	else
		sent = rte_eth_tx_burst(q->ethdev, q->queue, q->pend, q->n);
	stat_add(&lc->stats.tx_bursts, 1);
	stat_add(&lc->stats.tx_frames, sent);
	if (karst_likely(sent > 0 && !q->loop))
		lc->tx_last = q->pend[sent - 1];
	if (karst_likely(sent == q->n)) {
		q->n = 0;
		if (karst_unlikely(lc->blocked >> port & 1))
			come_back(lc, port);
		return;
	}
	q->n = (uint16_t)(q->n - sent);
	memmove(q->pend, q->pend + sent, q->n * sizeof(q->pend[0]));
	lc->blocked |= 1ull << port;
	stat_add(&lc->stats.tx_full, 1);
}

/* A frame that is sent to a multicast group: makes a copy for the members in this engine.
 * @return bit set of the ports touched. */
static karst_noinline uint64_t
echo(struct eng_lcore *lc, const struct rte_mbuf *m, unsigned int port)
{
	unsigned int twin = port + KARST_ENGINE_MAX_PORTS;
	struct eng_txq *q = &lc->tx[twin % ENG_TXQS];
	struct rte_mbuf *copy;

	/* a loopback frame reaches the members anyway */
	if (lc->tx[port].loop)
		return 0;
	copy = eng_group_echo(lc, m, (uint8_t)port);
	if (copy == NULL)
		return 0;
	if (!q->served || q->n == ENG_PENDING) {
		stat_add(&lc->stats.tx_dropped, 1);
		buffer_free(lc, copy);
		return 0;
	}
	q->pend[q->n++] = copy;
	return 1ull << twin;
}

/* Queues frame @i of the burst for its port.  @return bit set of the ports touched. */
static inline uint64_t
queue_frame(struct eng_lcore *lc, unsigned int i, bool groups)
{
	const struct karst_pkt *pkt = &lc->tx_pkt[i];
	struct rte_mbuf *m = lc->tx_mbuf[i];
	unsigned int port = pkt->port % ENG_TXQS;
	struct eng_txq *q = &lc->tx[port];

	if (karst_unlikely(!q->served || q->n == ENG_PENDING)) {
		stat_add(&lc->stats.tx_dropped, 1);
		buffer_free(lc, m);
		return 0;
	}
	m->data_len = pkt->len;
	m->pkt_len = pkt->len;
	q->pend[q->n++] = m;
	return 1ull << port |
		(karst_unlikely(groups && (pkt->data[0] & 1) != 0) ? echo(lc, m, port) : 0);
}

static inline bool
is_ack(const struct karst_pkt *pkt)
{
	return (pkt->opcode & KARST_OPERATION_MASK) == KARST_OPERATION_ACK;
}

/* With few frames, sends data that a peer waits for before acknowledgements, since on some ports
 * each frame takes a while.  No frame is built behind an acknowledgement that it must not
 * overtake. */
static uint64_t
acks_last(struct eng_lcore *lc, unsigned int n, bool groups)
{
	uint64_t touched = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (!is_ack(&lc->tx_pkt[i]))
			touched |= queue_frame(lc, i, groups);
	for (i = 0; i < n; i++)
		if (is_ack(&lc->tx_pkt[i]))
			touched |= queue_frame(lc, i, groups);
	return touched;
}

/* Queues the @n frames of the burst for their ports.  @return bit set of the ports. */
static uint64_t
sort_by_port(struct eng_lcore *lc, unsigned int n)
{
	bool groups = eng_group_any(lc->e);
	uint64_t touched = 0;
	unsigned int i;

	if (n <= FEW_BUILT)
		return acks_last(lc, n, groups);
	for (i = 0; i < n; i++)
		touched |= queue_frame(lc, i, groups);
	return touched;
}

static void
flush_ports(struct eng_lcore *lc, uint64_t ports)
{
	while (ports != 0) {
		flush_port(lc, (unsigned int)__builtin_ctzll(ports));
		ports &= ports - 1;
	}
}

/* Frees the frames of the set @lost.  @return how many are left, moved to the front in their
 * order. */
static karst_noinline unsigned int
drop_lost(struct eng_lcore *lc, unsigned int n, uint64_t lost)
{
	struct rte_mbuf *gone[ENG_MAX_BURST];
	unsigned int i, kept = 0, ngone = 0;

	for (i = 0; i < n; i++) {
		if (lost >> i & 1) {
			gone[ngone++] = lc->tx_mbuf[i];
			continue;
		}
		lc->tx_mbuf[kept] = lc->tx_mbuf[i];
		lc->tx_pkt[kept++] = lc->tx_pkt[i];
	}
	for (i = 0; i < ngone; i++)
		buffer_free(lc, gone[i]);
	return kept;
}

void
eng_tx_frame(struct eng_lcore *lc, unsigned int port, struct rte_mbuf *m)
{
	struct eng_txq *q = &lc->tx[port];

	if (!q->served || q->n == ENG_PENDING) {
		stat_add(&lc->stats.tx_dropped, 1);
		buffer_free(lc, m);
		return;
	}
	q->pend[q->n++] = m;
	if ((lc->blocked >> port & 1) == 0)
		flush_port(lc, port);
}

/* Whether there is room for another frame, with any number of payload segments. */
static inline bool
room(const struct karst_tx_burst *b, uint32_t max_bytes)
{
	return b->n < b->max && b->nsegs + KARST_WQ_MAX_SGE <= b->max_segs &&
		b->bytes + b->charge < max_bytes;
}

/* Where a burst of about @max_bytes ends.  A port may send frames of one length together, as many
 * as TRAIN_BYTES hold (drivers/net/kport).  If all frames until now have one length, as those of
 * SENDs of several packets have, the burst ends behind a whole number of such trains.  This is only
 * determined when the end is near: bursts of small frames never come there. */
static inline uint32_t
burst_end(const struct karst_tx_burst *b, uint32_t max_bytes)
{
	uint32_t len, train, n;

	if (karst_likely(b->n == 0 || b->bytes + TRAIN_BYTES < max_bytes))
		return max_bytes;
	len = b->pkts[b->n - 1]->len;
	if (len == 0 || b->bytes != b->n * len)
		return max_bytes;
	train = TRAIN_BYTES / len * len;
	n = (max_bytes + train / 2) / train;
	return n == 0 ? max_bytes : n * train;
}

/* Lets active QPs build into @b. */
static inline void
build(struct eng_lcore *lc, struct karst_tx_burst *b, uint32_t max_bytes)
{
	/* QPs may have work that makes no frames; this bounds it. */
	unsigned int visits = 2 * ENG_MAX_BURST;
	uint32_t most;

	while (room(b, most = burst_end(b, max_bytes)) && visits-- > 0) {
		struct karst_core_qp *qp = karst_core_pick(lc->core);
		uint32_t first = b->n;
		struct eng_txq *q;

		if (qp == NULL)
			break;
		q = &lc->tx[karst_qp_port(qp) % ENG_TXQS];
		if (karst_unlikely(q->n > 0)) {
			karst_core_park(lc->core, b, &q->parked);
			continue;
		}
		atomic_store_explicit(&lc->at, karst_qp_num(qp), memory_order_relaxed);
		karst_core_visit(lc->core, b, most);
		if (karst_unlikely(lc->capture != NULL))
			eng_capture_built(lc, qp, first, b->n);
	}
}

unsigned int
eng_tx_poll(struct eng_lcore *lc)
{
	const struct karst_engine_config *cfg = &lc->e->cfg;
	struct karst_tx_burst b = {
		.pkts = lc->tx_pkts, .seals = lc->seals, .segs = lc->segs, .max_segs = ENG_SEGS};
	unsigned int n, sends;
	uint64_t lost = 0;

	if (karst_unlikely(lc->blocked != 0))
		flush_ports(lc, lc->blocked);
	sends = karst_core_sends(lc->core);
	if (sends == 0)
		return 0;
	if (karst_unlikely((sends & KARST_SENDS_STARVED) != 0)) {
		karst_core_feed(lc->core, FED + lc->copies->nspent);
		lc->copies->nspent = 0;
	}
	lc->tx_last = NULL;
	while (karst_unlikely(lc->tx_ready < cfg->tx_burst) && fresh(lc, lc->tx_ready))
		lc->tx_ready++;
	if (karst_unlikely(lc->tx_ready == 0)) {
		stat_add(&lc->stats.no_mbufs, 1);
		return 0;
	}
	b.max = lc->tx_ready;
	build(lc, &b, cfg->tx_bytes);
	karst_core_recheck(lc->core);
	atomic_store_explicit(&lc->at, ENG_AT_NONE, memory_order_relaxed);
	if (b.n == 0)
		return b.charge != 0; /* something was done */
	lc->nseals = b.n;
	atomic_store_explicit(&lc->at, ENG_AT_SEAL, memory_order_relaxed);
	karst_icrc_seal_burst(b.seals, b.n);
	atomic_store_explicit(&lc->at, ENG_AT_NONE, memory_order_relaxed);
	if (eng_unmapped_is_broken(lc))
		lost |= eng_unmapped_broken(lc, &b);
	if (karst_unlikely(lc->capture != NULL))
		eng_capture_tx(lc, b.n, lost);
	n = karst_likely(lost == 0) ? b.n : drop_lost(lc, b.n, lost);
	flush_ports(lc, sort_by_port(lc, n));
	refill(lc, b.n);
	return b.n;
}

void
eng_tx_fini(struct eng_lcore *lc)
{
	unsigned int i, port;

	for (i = 0; i < lc->tx_ready; i++)
		rte_mempool_put(lc->pool, lc->tx_mbuf[i]);
	for (port = 0; port < ENG_TXQS; port++)
		rte_pktmbuf_free_bulk(lc->tx[port].pend, lc->tx[port].n);
	if (lc->nstash > 0)
		rte_mempool_put_bulk(lc->pool, (void **)lc->stash, lc->nstash);
	lc->tx_ready = lc->nstash = 0;
}
