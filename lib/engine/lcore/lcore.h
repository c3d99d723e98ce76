/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Functions that the files of lcore share with each other and with the folders above.
 *
 *	lcore.c    one turn of an lcore; sleep.c  idling
 *	rx.c       frames from a port: classify, pass on; accept.c  whether they are for the port;
 *	           loop.c  loopback frames
 *	dispatch.c packets to their queue pairs; handoff.c  to other lcores; group.c  to groups;
 *	           gsi_rx.c  to queue pair 1
 *	bells.c    doorbells
 *	tx.c       buffers and the ports' queues (lib/qp chooses the queue pair that builds frames)
 *	mailbox.c  control calls across threads
 *	copies.c   memory that is not mapped; unmapped.c  where its addresses lead
 *	workers.c  threads of an lcore; deferred.c  slow programs; watch.c  the watchdog
 *	capture_ring.c  frames for a capture
 *	stats.c    counters, clock, keys
 */
#ifndef ENGINE_LCORE_H
#define ENGINE_LCORE_H

#include "engine_priv.h"
#include "karst_hdr.h"

/* --- small things --- */

/* data_off, refcnt, nb_segs and port of an mbuf, which one store can set. */
static inline uint64_t *
mbuf_rearm(struct rte_mbuf *m)
{
	return (uint64_t *)(void *)((uint8_t *)m + offsetof(struct rte_mbuf, rearm_data));
}

/* Adds to a counter with a single writer; other threads never see a torn value. */
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

/* The lcore that has QP @qpn, if that QP exists; NULL: no lcore can have it. */
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

/* The engine port of @port, which may be its loopback port. */
static inline uint8_t
eng_port_base(uint8_t port)
{
	return port % KARST_ENGINE_MAX_PORTS;
}

/* Source and destination address of a packet; IPv4 addresses as ::ffff:a.b.c.d. */
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

/* The addresses of a port; call it on its lcores or with ctl_lock held. */
static inline const struct eng_addrs *
eng_port_addrs(const struct eng_port *p)
{
	/* acquire, pairs with the release in eng_port_store_addrs() */
	return &p->addrs[atomic_load_explicit(&p->addr_seq, memory_order_acquire) & 1];
}

/* --- stats.c --- */

/* Purposes of the keys that are derived from the engine's secret. */
enum eng_secret_use {
	ENG_SECRET_CORE = 1,
	ENG_SECRET_NEIGH,
	ENG_SECRET_MEMBERS,
	ENG_SECRET_XRCDS,
	ENG_SECRET_COPIES,
};

/* Derives the key of object @n for a purpose.  What peers see of one key reveals nothing about
 * another. */
void eng_secret(const struct karst_engine *e, enum eng_secret_use use, uint32_t n, uint64_t key[2]);

/* --- pool.c --- */

/** Creates e->pool.  @return 0 or -errno; errors are logged. */
int eng_pool_create(struct karst_engine *e);
/** Longest frame of a buffer that occupies one page. */
uint32_t eng_pool_page_room(void);

/* --- mailbox.c --- */

/* Runs @fn on lcore @lc: at once if the caller may, else by mailbox.  @return the value of @fn. */
int eng_mailbox_call(struct eng_lcore *lc, eng_fn fn, void *arg);

/* On the lcore's thread: handles the messages in the mailbox, at least one, and begins no further
 * one after @ns.  @return how many. */
unsigned int eng_mailbox_serve(struct eng_lcore *lc, uint64_t ns);

/* Runs one turn of each lcore that is attached to this thread.  @return how much was done. */
unsigned int eng_poll_mine(struct karst_engine *e);
/* Passes @ns, less than a second: polls the lcores that are attached to this thread, or sleeps if
 * there are none. */
void eng_nap(struct karst_engine *e, uint32_t ns);

/* Attaches @lc to this thread if it is attached to none.  -EBUSY: it is another thread's. */
int eng_lcore_attach(struct eng_lcore *lc);
void eng_lcore_detach(struct eng_lcore *lc);

/* From now on this thread makes control calls for a program of that user; NULL: for no user in
 * particular.  Not to be called inside a control call. */
void eng_ctl_for(struct eng_share *user);
/* Begins a control call: takes ctl_lock, and serves the thread's own mailboxes while it waits.
 * -EDEADLK: the thread is in a callback. */
int eng_ctl_enter(struct karst_engine *e);
void eng_ctl_leave(struct karst_engine *e);

/* Serves the mailboxes of the lcores of @e that are attached to this thread, and reports them
 * quiescent.  Does nothing in a callback of @e. */
void eng_serve_mine(struct karst_engine *e);
/* Waits for a short time, which grows with the number of calls; @times is 0 at first. */
void eng_back_off(struct karst_engine *e, unsigned int *times);

/* Waits until every lcore has ended its current turn.  Any thread. */
void eng_ctl_quiesce(struct karst_engine *e);

/* --- lcore.c --- */

/* Notes that the thread of @lc has not run for @ns.  If that is long, expired timers wait until the
 * frames that have arrived meanwhile are processed. */
void eng_lcore_away(struct eng_lcore *lc, uint64_t ns);
int eng_lcore_init(struct karst_engine *e, uint32_t index);
void eng_lcore_fini(struct eng_lcore *lc);
/* Calls karst_core_flush(), with the time if a completion queue needs it. */
void eng_flush(struct eng_lcore *lc);
/* On an lcore, in a control call, whose lock protects the list of owners: sends all owners an event
 * that belongs to no object. */
void eng_async_event_all(struct eng_lcore *lc, const struct karst_engine_event *ev);
/* ns until the next timer, UINT64_MAX if none; 0: there is work.  A thread that makes a copy for
 * the lcore wakes it before that time. */
uint64_t eng_lcore_idle_ns(const struct eng_lcore *lc);
/* The loop of karst_engine_start().  @return false: this thread has lost the lcore. */
bool eng_lcore_loop(struct eng_lcore *lc);
/* On an EAL worker, until the engine stops. */
int eng_lcore_main(void *arg);

/* --- sleep.c --- */

int eng_sleep_init(struct eng_lcore *lc);
void eng_sleep_fini(struct eng_lcore *lc);
/* Any thread: lets @fd wake the lcore, by each write (@edge) or while it is readable. */
int eng_sleep_watch(struct eng_lcore *lc, int fd, bool edge);
void eng_sleep_unwatch(struct eng_lcore *lc, int fd);
/* Any thread, after it has queued work for the lcore: wakes the lcore if it sleeps. */
void eng_lcore_wake(struct eng_lcore *lc);
/* On the lcore's thread: begin and end surround the loop; busy is for after a turn that did
 * something, idle for after other turns. */
int eng_sleep_begin(struct eng_lcore *lc);
void eng_sleep_end(int slack);
void eng_sleep_reset(struct eng_lcore *lc);
void eng_sleep_busy(struct eng_lcore *lc, bool polite);
/* After an idle turn: offers the processor to other threads, unless the lcore's work seems to come
 * from elsewhere. */
void eng_sleep_idle_offer(struct eng_lcore *lc);
/* In a turn: offers the processor, unless an offer is known to take long.  @return whether it
 * did. */
bool eng_sleep_offer(struct eng_lcore *lc);
void eng_sleep_idle(struct eng_lcore *lc);

/* --- rx.c, dispatch.c, handoff.c: @return frames handled --- */

unsigned int eng_rx_poll(struct eng_lcore *lc);
/* Processes frames from @port, or ENG_RX_LOOP. */
void eng_rx_burst(struct eng_lcore *lc, struct rte_mbuf **mbufs, unsigned int n, unsigned int port);
unsigned int eng_loop_poll(struct eng_lcore *lc);
/* As rte_eth_tx_burst(), for the loopback port @port. */
uint16_t eng_loop_send(
	struct eng_lcore *lc, unsigned int port, struct rte_mbuf **mbufs, uint16_t n);
/* Delivers parsed packets of this lcore and frees their mbufs. */
void eng_dispatch(
	struct eng_lcore *lc, struct rte_mbuf **mbufs, struct karst_pkt **pkts, unsigned int n);
/* Passes parsed packets to the lcores that own their QPs. */
void eng_handoff_put(struct eng_lcore *lc, struct rte_mbuf **mbufs, unsigned int n);
/* Passes one packet to lcore @to: one that is not RoCE for the engine, or one for a multicast
 * group. */
void eng_handoff_give(struct eng_lcore *lc, uint32_t to, struct rte_mbuf *m);
unsigned int eng_handoff_poll(struct eng_lcore *lc);

/* --- bells.c --- */

/* For the watchdog: the lcore is about to access bell @b; NULL: none any more. */
static inline void
eng_bell_touch(struct eng_lcore *lc, const struct eng_bell *b)
{
	atomic_store_explicit(&lc->at_bell, b != NULL ? b->owner : NULL, memory_order_relaxed);
}

/* Checks doorbells.  @return how many rang. */
unsigned int eng_bells_poll(struct eng_lcore *lc);
/* On the lcore: takes ENG_BELLS doorbells of owner @o.  To be called before a queue pair of @o ends
 * or goes to RESET, after which it may ring again: its doorbells, at most 2, must not stay in the
 * ring, which has room for 2 of each queue pair. */
void eng_bell_poll_of(struct eng_lcore *lc, const struct karst_engine_owner *o);
/* To be run on the lcore: adds and removes the doorbell of an owner, @arg. */
int eng_bell_add_on_lcore(struct eng_lcore *lc, void *arg);
int eng_bell_del_on_lcore(struct eng_lcore *lc, void *arg);

/* --- accept.c --- */

/* Whether there is a port with that number.  Any thread. */
bool eng_port_present(const struct karst_engine *e, unsigned int port);
/* Call it on the port's lcores or with ctl_lock held. */
bool eng_port_has_addr(const struct eng_port *p, const uint8_t ip[16]);
/* Whether a loopback frame is for an address of any port. */
bool eng_loop_accepts(
	const struct karst_engine *e, const struct karst_pkt *pkt, enum karst_drop *why);
bool eng_port_accepts(
	const struct eng_port *port, const struct karst_pkt *pkt, enum karst_drop *why);

/* --- tx.c --- */

unsigned int eng_tx_poll(struct eng_lcore *lc);
/* Sends a frame that the engine built itself, in a buffer of the pool; drops it if the queue is
 * full. */
void eng_tx_frame(struct eng_lcore *lc, unsigned int port, struct rte_mbuf *m);
/* Returns all buffers to the pool. */
void eng_tx_fini(struct eng_lcore *lc);
void eng_stash_spill(struct eng_lcore *lc);

/* Frees a buffer of a frame that was received or could not be sent. */
static inline void
buffer_free(struct eng_lcore *lc, struct rte_mbuf *m)
{
	/* A buffer of this pool without other references, in the state in which the pool has
	 * buffers? */
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
