/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the files of lcore, and those of the folders above it, call of each other.
 *
 *	lcore.c    one turn of the wheel; sleep.c  idling
 *	rx.c       frames from a port: classify, hand on; accept.c  whether they are for it;
 *	           loop.c  frames that never leave
 *	dispatch.c packets to their queue pairs; handoff.c  to other lcores; group.c  to groups;
 *	           gsi_rx.c  to queue pair 1
 *	bells.c    doorbells
 *	tx.c       buffers and the ports' queues (lib/qp chooses the queue pair that builds frames)
 *	mailbox.c  control calls across threads
 *	copies.c   memory that is not mapped; unmapped.c  where addresses lead to
 *	workers.c  threads of an lcore; deferred.c  slow programs; watch.c  that none holds it
 *	capture_ring.c  frames for a capture
 *	stats.c    counters, clock, keys
 */
#ifndef ENGINE_LCORE_H
#define ENGINE_LCORE_H

#include "engine_priv.h"
#include "karst_hdr.h"

/* --- small things --- */

/* data_off, refcnt, nb_segs and port of an mbuf: one store sets them all. */
static inline uint64_t *
mbuf_rearm(struct rte_mbuf *m)
{
	return (uint64_t *)(void *)((uint8_t *)m + offsetof(struct rte_mbuf, rearm_data));
}

/* Single writer: other threads see whole values. */
static inline void
stat_add(uint64_t *stat, uint64_t n)
{
	__atomic_store_n(stat, *stat + n, __ATOMIC_RELAXED);
}

static inline uint64_t
engine_ns_at(const struct karst_engine *e, uint64_t tsc)
{
	return (uint64_t)((unsigned __int128)(tsc - e->tsc_base) * e->tsc_mul >> 32);
}

static inline uint64_t
engine_now(const struct karst_engine *e)
{
	return engine_ns_at(e, rte_rdtsc());
}

/* The lcore that QP @qpn is on, if there is such a QP; NULL: there is none. */
static inline struct eng_lcore *
lcore_of_qpn(const struct karst_engine *e, uint32_t qpn)
{
	uint32_t lcore = qpn & ((1u << e->lcore_bits) - 1);

	return lcore < e->nlcores ? &e->lcore[lcore] : NULL;
}

static inline uintptr_t
this_thread(void)
{
	return (uintptr_t)pthread_self();
}

static inline bool
eng_ip_is_group(const uint8_t ip[16])
{
	return karst_engine_ip_is_ip4(ip) ? ip[12] >> 4 == 14 : ip[0] == 0xff;
}

static inline bool
eng_ip_is_link_local6(const uint8_t ip[16])
{
	return ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

/* The engine port of which @port may be the loopback twin. */
static inline uint8_t
eng_port_base(uint8_t port)
{
	return port % KARST_ENGINE_MAX_PORTS;
}

/* Source and destination of a packet; IPv4 addresses as ::ffff:a.b.c.d. */
static inline struct karst_engine_addr
eng_pkt_src(const struct karst_pkt *pkt)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);
	struct karst_engine_addr a;

	if ((pkt->flags & KARST_PKT_IP6) == 0)
		return karst_engine_addr_ip4(karst_get_be32(karst_ip4_src(l3)));
	memcpy(a.ip, karst_ip6_src(l3), sizeof(a.ip));
	return a;
}

static inline struct karst_engine_addr
eng_pkt_dst(const struct karst_pkt *pkt)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);
	struct karst_engine_addr a;

	if ((pkt->flags & KARST_PKT_IP6) == 0)
		return karst_engine_addr_ip4(karst_get_be32(karst_ip4_dst(l3)));
	memcpy(a.ip, karst_ip6_dst(l3), sizeof(a.ip));
	return a;
}

/* The addresses of a port: on its lcores, or with ctl_lock held. */
static inline const struct eng_addrs *
eng_port_addrs(const struct eng_port *p)
{
	/* acquire, pairs with the release in eng_port_store_addrs() */
	return &p->addrs[atomic_load_explicit(&p->addr_seq, memory_order_acquire) & 1];
}

/* --- stats.c --- */

/* What the keys of the engine's secret are for. */
enum eng_secret_use { ENG_SECRET_CORE = 1, ENG_SECRET_NEIGH, ENG_SECRET_MEMBERS, ENG_SECRET_XRCDS };

/* The key of object @n of a purpose: nothing that peers see of one tells of another. */
void eng_secret(const struct karst_engine *e, enum eng_secret_use use, uint32_t n, uint64_t key[2]);

/* --- pool.c --- */

/** e->pool.  -errno; errors are logged. */
int eng_pool_create(struct karst_engine *e);
/** Longest frame of a buffer that takes a page. */
uint32_t eng_pool_page_room(void);

/* --- mailbox.c --- */

/* Runs @fn on lcore @lc: at once if the caller may, else by mailbox.  @return what @fn does. */
int eng_mailbox_call(struct eng_lcore *lc, eng_fn fn, void *arg);

/* On the lcore's thread: does what is in the mailbox, one message at least, and no other after @ns.
 * @return how many. */
unsigned int eng_mailbox_serve(struct eng_lcore *lc, uint64_t ns);

/* One turn of each lcore that is attached to this thread.  @return how much was done. */
unsigned int eng_poll_mine(struct karst_engine *e);

/* Gives @lc to this thread if it is free.  -EBUSY: it is another's. */
int eng_lcore_attach(struct eng_lcore *lc);
void eng_lcore_detach(struct eng_lcore *lc);

/* From now on this thread makes control calls for a program of that user; NULL: for nobody in
 * particular.  Not within a call. */
void eng_ctl_for(struct eng_share *user);
/* Begins a control call: takes ctl_lock while answering own mailboxes.  -EDEADLK: in a callback. */
int eng_ctl_enter(struct karst_engine *e);
void eng_ctl_leave(struct karst_engine *e);

/* Answers the mailboxes of lcores of @e that are this thread's, and reports them quiescent, unless
 * it is in a callback of @e. */
void eng_serve_mine(struct karst_engine *e);
/* Waits a little, the longer the more often; @times is 0 at first. */
void eng_back_off(struct karst_engine *e, unsigned int *times);

/* Waits until every lcore has ended the turn that it is in.  Any thread. */
void eng_ctl_quiesce(struct karst_engine *e);

/* --- lcore.c --- */

/* The thread of @lc has not run for @ns: if that is long, its timers wait for the frames that have
 * come meanwhile. */
void eng_lcore_away(struct eng_lcore *lc, uint64_t ns);
int eng_lcore_init(struct karst_engine *e, uint32_t index);
void eng_lcore_fini(struct eng_lcore *lc);
/* karst_core_flush(), with the time if somebody wants it. */
void eng_flush(struct eng_lcore *lc);
/* On an lcore, for a control call, whose lock keeps the owners: tells all of them of something that
 * is no object's. */
void eng_async_event_all(struct eng_lcore *lc, const struct karst_engine_event *ev);
/* ns until the next timer, UINT64_MAX if none; 0: there is something to do.  Whoever waits so long
 * is woken by who makes a copy for the lcore. */
uint64_t eng_lcore_idle_ns(const struct eng_lcore *lc);
/* The loop of karst_engine_start().  @return false: this thread has lost the lcore. */
bool eng_lcore_loop(struct eng_lcore *lc);
/* On an EAL worker, until the engine stops. */
int eng_lcore_main(void *arg);

/* --- sleep.c --- */

int eng_sleep_init(struct eng_lcore *lc);
void eng_sleep_fini(struct eng_lcore *lc);
/* Any thread: @fd wakes the lcore; by each write (@edge), or while it is readable. */
int eng_sleep_watch(struct eng_lcore *lc, int fd, bool edge);
void eng_sleep_unwatch(struct eng_lcore *lc, int fd);
/* Any thread, after giving the lcore something: wakes it if it sleeps. */
void eng_lcore_wake(struct eng_lcore *lc);
/* On the lcore's thread: around the loop, after a turn that did something, and after others. */
int eng_sleep_begin(struct eng_lcore *lc);
void eng_sleep_end(struct eng_lcore *lc, int slack);
void eng_sleep_reset(struct eng_lcore *lc);
void eng_sleep_busy(struct eng_lcore *lc, bool polite);
/* After a turn with nothing to do: offers the processor to others, unless what there is to do comes
 * from elsewhere, as it seems. */
void eng_sleep_idle_offer(struct eng_lcore *lc);
/* In a turn: likewise, unless that is known to take long.  @return whether. */
bool eng_sleep_offer(struct eng_lcore *lc);
void eng_sleep_idle(struct eng_lcore *lc);

/* --- rx.c, dispatch.c, handoff.c: @return frames handled --- */

unsigned int eng_rx_poll(struct eng_lcore *lc);
/* Frames from @port, or ENG_RX_LOOP. */
void eng_rx_burst(struct eng_lcore *lc, struct rte_mbuf **mbufs, unsigned int n, unsigned int port);
unsigned int eng_loop_poll(struct eng_lcore *lc);
/* As rte_eth_tx_burst(), by the loopback twin @port. */
uint16_t eng_loop_send(
	struct eng_lcore *lc, unsigned int port, struct rte_mbuf **mbufs, uint16_t n);
/* Delivers parsed packets of this lcore and frees their mbufs. */
void eng_dispatch(
	struct eng_lcore *lc, struct rte_mbuf **mbufs, struct karst_pkt **pkts, unsigned int n);
/* Gives parsed packets to the lcores that own their QPs. */
void eng_handoff_put(struct eng_lcore *lc, struct rte_mbuf **mbufs, unsigned int n);
/* Gives one to lcore @to: what is not RoCE, as the parser said, or is for a multicast group. */
void eng_handoff_give(struct eng_lcore *lc, uint32_t to, struct rte_mbuf *m);
unsigned int eng_handoff_poll(struct eng_lcore *lc);

/* --- bells.c --- */

/* For the watch: the lcore is about to touch @b, or, if that is NULL, no bell. */
static inline void
eng_bell_touch(struct eng_lcore *lc, const struct eng_bell *b)
{
	atomic_store_explicit(&lc->at_bell, b != NULL ? b->owner : NULL, memory_order_relaxed);
}

/* Looks at doorbells.  @return how many rang. */
unsigned int eng_bells_poll(struct eng_lcore *lc);
/* Calls of the lcore: it listens to the bell of an owner, @arg, and does not any more. */
int eng_bell_add_on_lcore(struct eng_lcore *lc, void *arg);
int eng_bell_del_on_lcore(struct eng_lcore *lc, void *arg);

/* --- accept.c --- */

/* Any thread: is there a port of that number? */
bool eng_port_present(const struct karst_engine *e, unsigned int port);
/* On its lcores, or with ctl_lock held. */
bool eng_port_has_addr(const struct eng_port *p, const uint8_t ip[16]);
/* Is a frame that never left for an address of any port? */
bool eng_loop_accepts(
	const struct karst_engine *e, const struct karst_pkt *pkt, enum karst_drop *why);
bool eng_port_accepts(
	const struct eng_port *port, const struct karst_pkt *pkt, enum karst_drop *why);

/* --- tx.c --- */

unsigned int eng_tx_poll(struct eng_lcore *lc);
/* Sends a frame of our own making, in a buffer of the pool; dropped if the queue is full. */
void eng_tx_frame(struct eng_lcore *lc, unsigned int port, struct rte_mbuf *m);
/* Gives all buffers back to the pool. */
void eng_tx_fini(struct eng_lcore *lc);
void eng_stash_spill(struct eng_lcore *lc);

/* Frees a buffer of a frame that was received or could not be sent. */
static inline void
buffer_free(struct eng_lcore *lc, struct rte_mbuf *m)
{
	/* One of ours that nobody else holds, as it would come back from the pool? */
	if (karst_likely(m->pool == lc->pool && rte_mbuf_refcnt_read(m) == 1 && m->nb_segs == 1 &&
		    RTE_MBUF_DIRECT(m))) {
		if (karst_unlikely(lc->nstash == ENG_STASH))
			eng_stash_spill(lc);
		lc->stash[lc->nstash++] = m;
		return;
	}
	rte_pktmbuf_free(m);
}

#endif /* ENGINE_LCORE_H */
