/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The queues between a program and the engine: send and receive work queues, completion queues,
 * doorbells.  This header has the layout of the shared memory and the program's side;
 * karst_ring_engine.h has the engine's side.
 *
 * All of it is memory plus C11 atomics: no system call, no lock, no pointer in the shared part.
 * Indices run freely modulo 2^32 and are masked at use; each index has one writer.  The writers
 * are:
 *
 *   work queue        slots, tail: program        head: engine
 *                     idle: set by the engine, cleared by the thread that rings
 *   completion lane   entries, ready, tail: engine   head: program
 *   doorbell ring     cells: programs             (the engine reads and frees cells)
 *                     asleep: set by the engine, cleared by the thread that wakes it
 *
 * A program posts in three steps: it fills slots, publishes the tail, and rings the doorbell if the
 * engine had gone idle on that queue.  The idle flag and the tail are a Dekker pair: the program
 * stores the tail and then loads the flag; the engine stores the flag and then loads the tail
 * again; a full fence between store and load on both sides means that at least one of them sees the
 * other's store.
 *
 * A sleeping engine is woken in the same manner: the cell of the doorbell ring and the asleep word
 * are a Dekker pair, too.  To wake it takes a system call (an eventfd), which is not in this
 * header: the program makes it when karst_bell_must_wake() returns true.
 *
 * The engine trusts nothing in here; see karst_ring_engine.h.
 *
 * Threads: the program's side of one queue is for one thread at a time (the client library locks
 * where verbs must be thread-safe).
 */
#ifndef KARST_RING_H
#define KARST_RING_H

#include <errno.h>

#include "karst_base.h"

/** A word that both sides use.  C++ has the same types and functions under other names (until its
 *  <stdatomic.h> of 2023). */
#ifdef __cplusplus
#include <atomic>
using std::atomic_compare_exchange_weak;
using std::atomic_compare_exchange_weak_explicit;
using std::atomic_exchange_explicit;
using std::atomic_fetch_and_explicit;
using std::atomic_load_explicit;
using std::atomic_store_explicit;
using std::atomic_thread_fence;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;
typedef std::atomic<uint32_t> karst_word;
#else
#include <stdatomic.h>
typedef _Atomic uint32_t karst_word;
#endif

/** Version of these layouts and of the rules of doc/ring-abi.rst.  A program and an engine with
 *  different versions do not communicate. */
#define KARST_RING_ABI 5u

/* --- work requests --- */

/* Operations of send work requests; the values are those of enum ibv_wr_opcode. */
enum karst_wr_opcode {
	KARST_WR_RDMA_WRITE = 0,
	KARST_WR_RDMA_WRITE_WITH_IMM = 1,
	KARST_WR_SEND = 2,
	KARST_WR_SEND_WITH_IMM = 3,
	KARST_WR_RDMA_READ = 4,
	KARST_WR_ATOMIC_CAS = 5,
	KARST_WR_ATOMIC_FAA = 6,
	KARST_WR_LOCAL_INV = 7,
	KARST_WR_BIND_MW = 8,
	KARST_WR_SEND_WITH_INV = 9,
	KARST_WR_FLUSH = 14,
	KARST_WR_ATOMIC_WRITE = 15,
	KARST_WR_MAX = 16,
};

/* The values are those of enum ibv_send_flags. */
enum karst_send_flags {
	KARST_SEND_FENCE = 1u << 0,
	KARST_SEND_SIGNALED = 1u << 1,
	KARST_SEND_SOLICITED = 1u << 2,
	KARST_SEND_INLINE = 1u << 3,
};

struct karst_sge {
	uint64_t addr;
	uint32_t len; /* bytes */
	uint32_t lkey;
};

/** A send work request in the ring: 64 bytes, longer with more SGEs or inline data. */
struct karst_send_wqe {
	uint64_t wr_id;
	uint8_t opcode; /* enum karst_wr_opcode */
	uint8_t flags;  /* enum karst_send_flags */
	uint16_t num;   /* SGEs; with KARST_SEND_INLINE: bytes of inline_data */
	uint32_t imm;   /* immediate data as a big-endian number, or the R_Key to invalidate */
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
			uint32_t srqn; /* XRC_SEND, also for SENDs: the peer's SRQ, 24 bits */
		} rdma;                /* WRITE, READ, atomics, ATOMIC WRITE, FLUSH */
		struct {
			uint32_t ah; /* address handle number */
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	};
	union {
		struct karst_sge sge[2]; /* as many as the queue's max_sge */
		uint8_t inline_data[32]; /* as many as the queue's max_inline */
		struct {
			uint64_t compare_add;
			uint64_t swap;
			struct karst_sge sge[1]; /* destination of the old value: 8 bytes */
		} atomic;
		struct {
			uint64_t addr;
			uint64_t len;
			uint32_t mw_key;
			uint32_t new_key;
			uint32_t mr_key;
			uint32_t access;
		} bind;
		struct {
			uint32_t len;  /* bytes of the range */
			uint8_t type;  /* enum karst_flush_type */
			uint8_t level; /* enum karst_flush_level */
			uint16_t reserved;
		} flush;
	};
};
static_assert(sizeof(struct karst_send_wqe) == 64, "one cache line");
static_assert(offsetof(struct karst_send_wqe, sge) == 32, "SGEs follow a 32-byte header");

#define KARST_SEND_WQE_HDR 32u
#define KARST_RECV_WQE_HDR 16u

/** A receive work request. */
struct karst_recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t reserved;
	struct karst_sge sge[1]; /* as many as the queue's max_sge */
};
static_assert(sizeof(struct karst_recv_wqe) == 32, "half a cache line");

/* --- work queue: layout --- */

/** Header of a work queue in shared memory; the slots follow. */
struct karst_wq_shared {
	karst_word tail; /* program: number of slots ever filled */
	uint8_t pad0[KARST_CACHE_LINE - 4];
	/* engine: number of slots ever given back, which may be filled again.  Stored after the
	 * completions of these are ready but before they are published, so that a program that has
	 * seen a completion has room. */
	karst_word head;
	/* engine sets it: 1 = ring the doorbell after posting; the thread that rings clears it */
	karst_word idle;
	uint8_t pad1[KARST_CACHE_LINE - 8];
} karst_cache_aligned;
static_assert(sizeof(struct karst_wq_shared) == 128, "one line per writer");

/* Limits of one queue; other values are -EINVAL. */
#define KARST_WQ_MAX_SLOTS  65536u
#define KARST_WQ_MAX_SGE    32u
#define KARST_WQ_MAX_INLINE 1024u

/**
 * Bytes of a slot for @max_sge SGEs and @max_inline inline bytes: a power of two, at least 64
 * (send) or 32 (receive).
 */
static inline uint32_t
karst_wq_stride(bool send, uint32_t max_sge, uint32_t max_inline)
{
	uint32_t body = max_sge * (uint32_t)sizeof(struct karst_sge);

	if (send) {
		if (body < max_inline)
			body = max_inline;
		return karst_pow2_ceil(KARST_SEND_WQE_HDR + (body < 32 ? 32 : body));
	}
	return karst_pow2_ceil(KARST_RECV_WQE_HDR + (body < 16 ? 16 : body));
}

/** Bytes of shared memory of a work queue with @slots (a power of two). */
static inline size_t
karst_wq_bytes(uint32_t slots, uint32_t stride)
{
	return sizeof(struct karst_wq_shared) + (size_t)slots * stride;
}

/* --- work queue: the program's side --- */

struct karst_wq {
	struct karst_wq_shared *sh;
	uint8_t *slots;
	uint32_t mask;
	uint8_t shift;      /* log2 of the stride */
	bool cross_cpu;     /* set by the owner: the engine runs on another CPU */
	uint32_t tail;      /* filled, perhaps not published yet */
	uint32_t head_seen; /* last value of sh->head */
};

/** Makes a view of shared memory of karst_wq_bytes() as a queue; the engine has initialised it. */
static inline void
karst_wq_attach(struct karst_wq *wq, void *shared, uint32_t slots, uint32_t stride)
{
	wq->sh = (struct karst_wq_shared *)shared;
	wq->slots = (uint8_t *)shared + sizeof(*wq->sh);
	wq->mask = slots - 1;
	wq->shift = (uint8_t)karst_log2(stride);
	wq->cross_cpu = false;
	wq->tail = atomic_load_explicit(&wq->sh->tail, memory_order_relaxed);
	wq->head_seen = atomic_load_explicit(&wq->sh->head, memory_order_relaxed);
}

/** The number of free slots, at least @want if there are so many.  Reads the engine's cache line
 *  only if necessary. */
static inline uint32_t
karst_wq_free(struct karst_wq *wq, uint32_t want)
{
	uint32_t room = wq->mask + 1 - (wq->tail - wq->head_seen);

	if (karst_unlikely(room < want)) {
		/* acquire, pairs with the release in karst_wqe_publish_head(): the engine has read
		 * the old contents before this side overwrites them */
		wq->head_seen = atomic_load_explicit(&wq->sh->head, memory_order_acquire);
		room = wq->mask + 1 - (wq->tail - wq->head_seen);
	}
	return room;
}

/** The @i-th free slot, to be filled in place; @i below karst_wq_free(). */
static inline void *
karst_wq_slot(const struct karst_wq *wq, uint32_t i)
{
	return wq->slots + ((size_t)((wq->tail + i) & wq->mask) << wq->shift);
}

/**
 * Publishes the next @n slots to the engine.
 * @return true if the doorbell must be rung: the engine does not poll this queue.  (It polls a
 *   receive queue when a packet needs a receive; receive queues are idle only in the Error state.)
 */
static inline bool
karst_wq_publish(struct karst_wq *wq, uint32_t n)
{
	uint32_t i;

	/* The engine loads these one after the other, unless they are in a cache nearer to it.  It
	 * reads a single one before the line could have been moved. */
	if (wq->cross_cpu && n > 1) {
		for (i = 0; i < n; i++)
			karst_demote(karst_wq_slot(wq, i));
	}
	wq->tail += n;
	/* release, pairs with the acquire in karst_wqe_poll(): the slots are written */
	atomic_store_explicit(&wq->sh->tail, wq->tail, memory_order_release);
	/* Dekker with karst_wqe_idle(), or its halves: tail before idle flag */
	atomic_thread_fence(memory_order_seq_cst);
	if (karst_likely(atomic_load_explicit(&wq->sh->idle, memory_order_relaxed) == 0))
		return false;
	/* the thread that clears the flag rings: once, however much is posted before the engine has
	 * seen the doorbell.  acquire, pairs with the release in karst_wqe_idle_begin(): the engine
	 * has freed the cell of the last doorbell of this queue, and earlier ones */
	return atomic_exchange_explicit(&wq->sh->idle, 0, memory_order_acquire) != 0;
}

/* --- completion queue --- */

/* Completion status; the values are those of enum ibv_wc_status. */
enum karst_wc_status {
	KARST_WC_SUCCESS = 0,
	KARST_WC_LOC_LEN_ERR = 1,
	KARST_WC_LOC_QP_OP_ERR = 2,
	KARST_WC_LOC_PROT_ERR = 4,
	KARST_WC_WR_FLUSH_ERR = 5,
	KARST_WC_MW_BIND_ERR = 6,
	KARST_WC_BAD_RESP_ERR = 7,
	KARST_WC_LOC_ACCESS_ERR = 8,
	KARST_WC_REM_INV_REQ_ERR = 9,
	KARST_WC_REM_ACCESS_ERR = 10,
	KARST_WC_REM_OP_ERR = 11,
	KARST_WC_RETRY_EXC_ERR = 12,
	KARST_WC_RNR_RETRY_EXC_ERR = 13,
	KARST_WC_FATAL_ERR = 19,
	KARST_WC_GENERAL_ERR = 21,
};

/* What completed; low values as enum ibv_wc_opcode, receives have bit 7. */
enum karst_wc_opcode {
	KARST_WC_SEND = 0,
	KARST_WC_RDMA_WRITE = 1,
	KARST_WC_RDMA_READ = 2,
	KARST_WC_COMP_SWAP = 3,
	KARST_WC_FETCH_ADD = 4,
	KARST_WC_BIND_MW = 5,
	KARST_WC_LOCAL_INV = 6,
	KARST_WC_FLUSH = 8,
	KARST_WC_ATOMIC_WRITE = 9,
	KARST_WC_RECV = 128,
	KARST_WC_RECV_RDMA_WITH_IMM = 129,
};

/* The values are those of enum ibv_wc_flags, but for the last. */
enum karst_wc_flags {
	KARST_WC_GRH = 1u << 0,
	KARST_WC_WITH_IMM = 1u << 1,
	KARST_WC_WITH_INV = 1u << 3,
	KARST_WC_IP4 = 1u << 7, /* with GRH: the packet was received over IPv4, not IPv6 */
};

/** A completion, 32 bytes. */
struct karst_cqe {
	uint64_t wr_id;
	uint32_t qpn;
	uint32_t byte_len;
	uint32_t imm;     /* immediate data as a big-endian number, or the R_Key invalidated */
	uint32_t src_qpn; /* UD receives */
	uint8_t status;   /* enum karst_wc_status */
	uint8_t opcode;   /* enum karst_wc_opcode */
	uint8_t flags;    /* enum karst_wc_flags */
	uint8_t syndrome; /* AETH syndrome of the NAK that caused an error, else 0 */
	uint32_t slot;    /* index of the request in its queue; 0 with a shared receive queue */
};
static_assert(sizeof(struct karst_cqe) == 32, "two a cache line");

/* The armed word: what a program waits for (karst_cq_arm), 0 = nothing, and which completions it
 * has seen. */
enum karst_cq_armed {
	KARST_CQ_ARM_SOLICITED = 1,
	KARST_CQ_ARM_NEXT = 2,
	KARST_CQ_ARM_WHAT = 3, /* mask of these */
	/* armed_at of each lane is valid: entries published before that cause no event */
	KARST_CQ_ARM_BEHIND = 4,
	/* from this bit on: how often it was armed, modulo the remaining bits */
	KARST_CQ_ARM_COUNT = 8,
};

/* Options of a completion queue. */
enum karst_cq_flags {
	KARST_CQ_TIMESTAMPS = 1u << 0, /* a timestamp for each entry */
};

/** The part of a completion queue that its lanes share.  The lanes are elsewhere, and can be
 *  replaced by larger or smaller ones. */
struct karst_cq_shared {
	/* enum karst_cq_armed: set by the program; the engine clears it, except the count, when it
	 * signals */
	karst_word armed;
	/* engine: 1 = a lane was full, and a completion is lost that would follow those that the
	 * lane has published */
	karst_word overflown;
	uint8_t pad[KARST_CACHE_LINE - 8];
} karst_cache_aligned;

/** One lane: written by one lcore.  Its entries follow; then, with KARST_CQ_TIMESTAMPS, a 64-bit
 *  timestamp for each of them: ns of CLOCK_MONOTONIC. */
struct karst_lane_shared {
	karst_word tail; /* engine: number of entries ever published */
	karst_word live; /* engine: 1 = the lane is in use; 0 = not yet, or no longer */
	/* engine: number of entries that are complete and about to be published; stored before the
	 * heads of their queues.  If the engine has died, the program publishes these entries
	 * itself */
	karst_word ready;
	uint8_t pad0[KARST_CACHE_LINE - 12];
	karst_word head;     /* program: number of entries ever read */
	karst_word armed_at; /* program: entries that were published when it armed the queue */
	uint8_t pad1[KARST_CACHE_LINE - 8];
} karst_cache_aligned;

#define KARST_CQ_MAX_ENTRIES (1u << 22)

/** Bytes of a lane of @entries (a power of two); whole cache lines for 2 or more entries. */
static inline size_t
karst_lane_bytes(uint32_t entries, unsigned int flags)
{
	size_t bytes =
		sizeof(struct karst_lane_shared) + (size_t)entries * sizeof(struct karst_cqe);

	if (flags & KARST_CQ_TIMESTAMPS)
		bytes += ((size_t)entries * sizeof(uint64_t) + KARST_CACHE_LINE - 1) &
			~(size_t)(KARST_CACHE_LINE - 1);
	return bytes;
}

/** Bytes of shared memory of a CQ's lanes. */
static inline size_t
karst_cq_lanes_bytes(uint32_t entries, uint32_t nlanes, unsigned int flags)
{
	return nlanes * karst_lane_bytes(entries, flags);
}

/** Lane number @lane of @lanes. */
static inline struct karst_lane_shared *
karst_cq_lane(void *lanes, uint32_t entries, unsigned int flags, uint32_t lane)
{
	return (struct karst_lane_shared *)((uint8_t *)lanes +
		lane * karst_lane_bytes(entries, flags));
}

/** The timestamps of a lane's entries; NULL: it has none. */
static inline uint64_t *
karst_lane_stamps(struct karst_lane_shared *sh, uint32_t entries, unsigned int flags)
{
	struct karst_cqe *cqes = (struct karst_cqe *)(sh + 1);

	return flags & KARST_CQ_TIMESTAMPS ? (uint64_t *)(cqes + entries) : NULL;
}

/** The program's view of a lane. */
struct karst_cq_lane {
	struct karst_lane_shared *sh;
	const uint64_t *stamps; /* NULL: none */
	uint32_t mask;
	uint32_t head;
	uint32_t tail_seen;
};

static inline void
karst_cq_lane_attach(
	struct karst_cq_lane *l, struct karst_lane_shared *sh, uint32_t entries, unsigned int flags)
{
	l->sh = sh;
	l->stamps = karst_lane_stamps(sh, entries, flags);
	l->mask = entries - 1;
	l->head = atomic_load_explicit(&sh->head, memory_order_relaxed);
	l->tail_seen = l->head;
}

/**
 * Returns completions in place, without taking them.
 * @return how many entries are contiguous at *@cqes, up to the end of the ring; 0 if none.
 */
static inline uint32_t
karst_cq_lane_peek(struct karst_cq_lane *l, const struct karst_cqe **cqes)
{
	uint32_t i = l->head & l->mask, n;

	*cqes = (const struct karst_cqe *)(l->sh + 1) + i;
	if (l->tail_seen == l->head) {
		/* both lines come from the engine; this loads them at the same time */
		__builtin_prefetch(*cqes);
		/* acquire, pairs with the release in karst_lane_publish(): the entries and the
		 * data that they announce are written (R14) */
		l->tail_seen = atomic_load_explicit(&l->sh->tail, memory_order_acquire);
	}
	n = karst_min_u32(l->tail_seen - l->head, l->mask + 1 - i);
	return n;
}

/** As karst_cq_lane_peek(), but only for entries that were published when karst_cq_arm_behind()
 *  armed the queue. */
static inline uint32_t
karst_cq_lane_peek_before(struct karst_cq_lane *l, const struct karst_cqe **cqes)
{
	uint32_t n = karst_cq_lane_peek(l, cqes);
	uint32_t left = atomic_load_explicit(&l->sh->armed_at, memory_order_relaxed) - l->head;

	/* more than the ring can hold: the head is past armed_at */
	return left <= l->mask + 1 ? karst_min_u32(n, left) : 0;
}

/** The timestamps of the entries that karst_cq_lane_peek() has returned, until these are taken;
 *  NULL: there are none. */
static inline const uint64_t *
karst_cq_lane_stamps(const struct karst_cq_lane *l)
{
	return l->stamps != NULL ? l->stamps + (l->head & l->mask) : NULL;
}

/** Takes @n entries that karst_cq_lane_peek() has returned. */
static inline void
karst_cq_lane_take(struct karst_cq_lane *l, uint32_t n)
{
	l->head += n;
	/* release, pairs with the acquire in karst_lane_room(): this side has read the entries */
	atomic_store_explicit(&l->sh->head, l->head, memory_order_release);
}

/**
 * Discards the untaken entries of queue pair @qpn: the others are moved together, towards the end,
 * in their order.  Entries that karst_cq_lane_peek() has returned are invalid then.
 */
static inline void
karst_cq_lane_drop(struct karst_cq_lane *l, uint32_t qpn)
{
	struct karst_cqe *cqes = (struct karst_cqe *)(l->sh + 1);
	uint64_t *stamps = (uint64_t *)(uintptr_t)l->stamps;
	uint32_t from, to;

	/* acquire: as in karst_cq_lane_peek() */
	l->tail_seen = atomic_load_explicit(&l->sh->tail, memory_order_acquire);
	for (from = to = l->tail_seen; from != l->head;) {
		if (cqes[--from & l->mask].qpn == qpn)
			continue;
		if (--to == from)
			continue;
		cqes[to & l->mask] = cqes[from & l->mask];
		if (stamps != NULL)
			stamps[to & l->mask] = stamps[from & l->mask];
	}
	karst_cq_lane_take(l, to - l->head);
}

/* Entries that the lanes have published until now cause no event. */
static inline void
karst_cq_lanes_arm(const struct karst_cq_lane *lane, uint32_t nlanes)
{
	uint32_t i;

	for (i = 0; i < nlanes; i++)
		atomic_store_explicit(&lane[i].sh->armed_at,
			atomic_load_explicit(&lane[i].sh->tail, memory_order_relaxed),
			memory_order_relaxed);
}

/**
 * Requests an event at the next completion (@solicited_only: the next solicited or failed one).  As
 * with verbs: arm, then poll once more, then wait.  Entries that the @nlanes of @lane had published
 * before this call raise no event, even if the engine has yet to check whether it must raise one:
 * the poll after this call finds them.  Without lanes they may raise one.  One thread at a time, if
 * there are lanes.
 */
static inline void
karst_cq_arm_behind(struct karst_cq_shared *sh, const struct karst_cq_lane *lane, uint32_t nlanes,
	bool solicited_only)
{
	uint32_t want = solicited_only ? KARST_CQ_ARM_SOLICITED : KARST_CQ_ARM_NEXT, to;
	uint32_t is = atomic_load_explicit(&sh->armed, memory_order_relaxed);

	/* never weaken an armed queue */
	while ((is & KARST_CQ_ARM_WHAT) < want) {
		if ((is & KARST_CQ_ARM_WHAT) == 0) {
			karst_cq_lanes_arm(lane, nlanes);
			to = (is & ~(uint32_t)KARST_CQ_ARM_BEHIND) + KARST_CQ_ARM_COUNT + want;
			if (nlanes > 0)
				to |= KARST_CQ_ARM_BEHIND;
		} else {
			/* a solicited completion before this call may still be a reason for an
			 * event */
			to = (is & ~(uint32_t)(KARST_CQ_ARM_WHAT | KARST_CQ_ARM_BEHIND)) | want;
		}
		/* release, pairs with the acquire in signal_lane() of lib/qp: the values of
		 * armed_at */
		if (atomic_compare_exchange_weak_explicit(
			    &sh->armed, &is, to, memory_order_release, memory_order_relaxed))
			break;
	}
	/* Dekker with the engine: arm before the program's last poll */
	atomic_thread_fence(memory_order_seq_cst);
}

static inline void
karst_cq_arm(struct karst_cq_shared *sh, bool solicited_only)
{
	karst_cq_arm_behind(sh, NULL, 0, solicited_only);
}

/** Whether an event was requested that has not been raised.  It may be raised a moment later. */
static inline bool
karst_cq_is_armed(const struct karst_cq_shared *sh)
{
	return (atomic_load_explicit(&sh->armed, memory_order_relaxed) & KARST_CQ_ARM_WHAT) != 0;
}

/** Changes each time that a queue is armed which was not armed. */
static inline uint32_t
karst_cq_arm_count(const struct karst_cq_shared *sh)
{
	return atomic_load_explicit(&sh->armed, memory_order_relaxed) / KARST_CQ_ARM_COUNT;
}

/** After karst_cq_arm_behind(): whether the lane has published anything since that call began.  If
 *  not, the engine will see that the queue is armed when it publishes. */
static inline bool
karst_cq_lane_came(const struct karst_cq_lane *l)
{
	return atomic_load_explicit(&l->sh->tail, memory_order_relaxed) !=
		atomic_load_explicit(&l->sh->armed_at, memory_order_relaxed);
}

/** Whether the lane has published entries that were not taken.  Any thread. */
static inline bool
karst_cq_lane_unread(const struct karst_cq_lane *l)
{
	return atomic_load_explicit(&l->sh->tail, memory_order_relaxed) !=
		atomic_load_explicit(&l->sh->head, memory_order_relaxed);
}

/** Disarms.  @return whether it was armed: the caller that has disarmed it raises the event. */
static inline bool
karst_cq_disarm(struct karst_cq_shared *sh)
{
	/* relaxed: the event provides the order */
	return (atomic_fetch_and_explicit(
			&sh->armed, ~(uint32_t)KARST_CQ_ARM_WHAT, memory_order_relaxed) &
		       KARST_CQ_ARM_WHAT) != 0;
}

/* --- doorbell ring: many producers, one consumer; one per client and lcore --- */

/** A cell: the sequence number says which side may use it, as in a bounded queue with tickets. */
struct karst_bell_cell {
	karst_word seq;
	uint32_t qpn;
};

struct karst_bell_shared {
	karst_word tail; /* producers: number of tickets ever taken */
	uint8_t pad0[KARST_CACHE_LINE - 4];
	/* engine sets it: 1 = wake the lcore after ringing; the thread that wakes it clears it */
	karst_word asleep;
	uint8_t pad1[KARST_CACHE_LINE - 4];
} karst_cache_aligned;
static_assert(sizeof(struct karst_bell_shared) == 128, "one line per purpose");

/** Bytes of shared memory of a doorbell ring; @cells a power of two. */
static inline size_t
karst_bell_bytes(uint32_t cells)
{
	return sizeof(struct karst_bell_shared) + (size_t)cells * sizeof(struct karst_bell_cell);
}

/**
 * Rings the doorbell of @qpn.  Any number of threads.  The ring has a cell for every send queue
 * that may ring at the same time (each rings at most once until the engine has seen it), so -EAGAIN
 * (full) means that a program has violated the rules.
 */
static inline int
karst_bell_ring(struct karst_bell_shared *sh, uint32_t mask, uint32_t qpn)
{
	struct karst_bell_cell *cells = (struct karst_bell_cell *)(sh + 1), *c;
	/* acquire, pairs with the release of the previous ticket: the thread that took it knew that
	 * the cells before its own were free.  Without this, a free cell could look taken, and the
	 * ring full */
	uint32_t pos = atomic_load_explicit(&sh->tail, memory_order_acquire);

	for (;;) {
		int32_t turn;

		c = &cells[pos & mask];
		/* acquire, pairs with the release in karst_bell_poll(): the cell is free */
		turn = (int32_t)(atomic_load_explicit(&c->seq, memory_order_acquire) - pos);
		if (turn < 0)
			return -EAGAIN;
		if (turn > 0) {
			pos = atomic_load_explicit(&sh->tail, memory_order_acquire);
			continue;
		}
		/* acquire and release, pair with each other, as above */
		if (atomic_compare_exchange_weak_explicit(
			    &sh->tail, &pos, pos + 1, memory_order_acq_rel, memory_order_acquire))
			break;
	}
	c->qpn = qpn;
	/* release, pairs with the acquire in karst_bell_poll(): the QPN is written */
	atomic_store_explicit(&c->seq, pos + 1, memory_order_release);
	return 0;
}

/**
 * After one or more calls of karst_bell_ring().
 * @return true: the engine sleeps, and the caller has to wake it by the eventfd of the ring.  If
 *   several threads ring at the same time, one of them gets true.
 */
static inline bool
karst_bell_must_wake(struct karst_bell_shared *sh)
{
	/* Dekker with karst_bell_sleep(): the cell before the asleep word */
	atomic_thread_fence(memory_order_seq_cst);
	if (karst_likely(atomic_load_explicit(&sh->asleep, memory_order_relaxed) == 0))
		return false;
	/* the thread that clears the word has to wake the engine.  relaxed: the eventfd provides
	 * the order */
	return atomic_exchange_explicit(&sh->asleep, 0, memory_order_relaxed) != 0;
}

#endif /* KARST_RING_H */
