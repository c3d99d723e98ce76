/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The interface between a TCP program (drivers/sockets) and the SMC service of karstd: messages
 * over a socket, and for each connection a control page, two rings of bytes, and a pair of AF_UNIX
 * stream sockets.
 *
 *     file of the page      struct karst_sock_page: only for this end
 *     file of the rings     nothing | ring 0 | struct karst_sock_rings | ring 1
 *
 * There is a ring for each direction.  Mapping and touching a page is expensive, and short streams
 * are common, so a short stream uses one page: it has the positions in its middle, the last
 * KARST_SOCK_NEAR bytes of ring 0 before them, and the first bytes of ring 1 after them.  Byte p of
 * direction 0 is at p - KARST_SOCK_NEAR modulo the size of the ring; byte p of direction 1, into
 * which a peer may write by RDMA, is at p modulo that size.
 *
 * If the peer may be on this machine, an end starts without rings: rings are kept for the next
 * connections of the same two programs, and at that time only one of the programs is known.  Until
 * the other program is known, or the connection turns out to be of another kind, written bytes are
 * in the page (early), which only the program and the service see.  Then the service closes this
 * area (KARST_SOCK_EARLY_CLOSED), copies it into rings, and announces that these can be used
 * (KARST_SOCK_EARLY_READY).  A program that finds the area closed has written nothing more; it uses
 * the rings by their number, or requests them.
 *
 * The writer moves head, the reader moves tail.  On the other side of a ring is the service, which
 * moves the bytes by RDMA or TCP; or, if both programs use the same service, the other program
 * itself (state DIRECT).  In both cases neither side trusts what the other writes: a position is
 * copied once, and a position that is impossible, or has gone back, ends the connection.  A program
 * does not trust its own positions in a ring either: these are in the page, and the ring has copies
 * for the other side.  A page contains locks, so no other program sees it, except processes that
 * also have the connection; the program keeps it for its next connections.  These processes may
 * belong to different users, so the page has only numbers, and the bytes written before there were
 * rings: no addresses, and so no locks of the C library.
 *
 * A program waits by means of the pair.  Its end is the program's descriptor, in place of the TCP
 * socket, so that the kernel itself implements poll(), epoll, signals, time limits and fork():
 *
 *   readable       a byte, the token, is in the pair.  A reader that wants to be notified sets
 *                  wanted; a writer that has written clears wanted, and sends a token if it was
 *                  set.  So there are no tokens while the reader is busy.  A descriptor that poll()
 *                  or epoll watches (watched) needs a token whenever its ring has become empty.
 *   not writable   a writer that found no room and wants to be notified sets blocked and fills the
 *                  pair; a reader that frees room clears blocked, and empties the pair if it was
 *                  set.
 *   urgent         an urgent byte (MSG_OOB) is in the pair: a byte of the stream is marked.  The
 *                  writer publishes the mark (urgent), sends this byte, and moves head past the
 *                  marked byte, in this order.  With the byte in the pair, the mark is equivalent
 *                  to head: the bytes before it are in the ring.  So a reader that sees the byte in
 *                  the pair finds that of the stream, and a reader that sees that of the stream by
 *                  head finds the other one; the mark alone means nothing.
 *   end of file    no more bytes will arrive
 *   gone           the last descriptor of the program's end was closed, or its processes died
 *
 * Tokens for the service go in the other direction: a byte in the pair asks the service to check
 * this connection.  The service has the other end of the pair (the far end).  In state DIRECT the
 * other program also has it (its waker), to send tokens, empty the pair, and end it.
 *
 * A process that does not know which end belongs to which connection (after an exec, or with a
 * descriptor received in a message) asks with KARST_SOCK_ADOPT.  Few other AF_UNIX sockets have
 * SO_OOBINLINE, so the service rarely gets unnecessary requests.
 */
#ifndef KARST_SOCK_H
#define KARST_SOCK_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "karst_base.h"
#include "karst_sock_option.h"

#define KARST_SOCK_ABI    14u
#define KARST_SOCK_SUFFIX ".smc" /* suffix of the service's socket, appended to the engine's path */

/* --- messages: one packet of SOCK_SEQPACKET each way --- */

enum karst_sock_op {
	/* The program's first message.  Answer: the map of the TCP option, as a descriptor, and in
	 * buffer how many us the program may poll for an answer before it sleeps. */
	KARST_SOCK_HELLO = 1,
	/* With a TCP socket that has seen the option: the service takes it over.
	 * In left: how many connections of the program have stayed on TCP since its last report,
	 * because connections to their peer are short.
	 * In data: numbers of pages, each of 32 bits, that the program does not use any more, nor
	 * the rings that it had with them; KARST_SOCK_SHARED says that another process may.
	 * Answer: the program's end of the pair; the file of the page, unless KARST_SOCK_PAGE_KEPT
	 * says that the program has it; that of the rings if KARST_SOCK_RINGS_COME is set; and a
	 * waker if KARST_SOCK_WAKES is set. */
	KARST_SOCK_OPEN,
	/* With the end of a pair.  Answer: the files of the page and of the rings. */
	KARST_SOCK_ADOPT,
	/* With the end of a pair, state DIRECT.  Answer: the far end of the other program's
	 * pair. */
	KARST_SOCK_WAKER,
	/* With the end of a pair, in any state: does what a waker does, and what a waker cannot
	 * do. */
	KARST_SOCK_WAKE,
	/* With the end of a pair: an option of the TCP socket. */
	KARST_SOCK_GETOPT,
	KARST_SOCK_SETOPT,
	/* With the end of a pair.  Answer: the file of the rings, and in page their number. */
	KARST_SOCK_RINGS,
};

#define KARST_SOCK_DATA 256u

/* flags of KARST_SOCK_OPEN */
#define KARST_SOCK_SERVER  1u /* the socket was accepted */
#define KARST_SOCK_REQUIRE 2u /* fail rather than stay on TCP */
#define KARST_SOCK_POLLS \
	4u /* it does not block: a token has to be in the pair if there are bytes */

/* flags of the answer to KARST_SOCK_OPEN */
/* there is no room: do not offer the option for a while */
#define KARST_SOCK_FULL 1u
/* the connection cannot even stay on TCP through the service: the socket is the program's again.
 * Nothing else is in the answer.  -EAGAIN instead: try again when there is something to read, as
 * server */
#define KARST_SOCK_PLAIN 2u
/* the answer has a waker, for state DIRECT, which the connection may never reach */
#define KARST_SOCK_WAKES 4u
/* the page is one that the program has kept: the one with this number */
#define KARST_SOCK_PAGE_KEPT 8u
/* the answer has rings; otherwise they are those of the number in the page, or there are none
 * yet */
#define KARST_SOCK_RINGS_COME 16u

/* flag in the number of a page */
#define KARST_SOCK_SHARED 0x80000000u

/* flags of KARST_SOCK_WAKE */
#define KARST_SOCK_WAKE_SELF   1u /* a token into the program's own pair */
#define KARST_SOCK_WAKE_PEER   2u
#define KARST_SOCK_EMPTY_SELF  4u /* empty the program's own pair */
#define KARST_SOCK_EMPTY_PEER  8u
#define KARST_SOCK_END_PEER    16u /* the peer's direction ends */
#define KARST_SOCK_URGENT_SELF 32u /* an urgent byte into the program's own pair */
#define KARST_SOCK_URGENT_PEER 64u
/* check whether the peer has closed, and record that in the page */
#define KARST_SOCK_LOOK_PEER 128u
/* bytes are written to a peer that has shut down both directions: a reset, as with TCP */
#define KARST_SOCK_LATE_PEER 256u

#define KARST_SOCK_FDS 4 /* limit of descriptors in an answer */
/* limit of the pages, and of the rings, that a program keeps, in use or not */
#define KARST_SOCK_KEPT 512u

struct karst_sock_msg {
	uint32_t abi;
	uint32_t op;
	uint32_t seq;   /* that of the request, in an answer */
	int32_t status; /* of an answer: 0 or -errno */
	uint32_t flags;
	uint32_t buffer; /* answer: bytes of each buffer */
	int32_t level, name;
	uint32_t len;  /* length of data */
	uint32_t left; /* KARST_SOCK_OPEN */
	uint32_t page; /* answer: its number, 1 to KARST_SOCK_KEPT; 0: do not keep the page */
	uint8_t data[KARST_SOCK_DATA];
};

/* --- the memory of a connection --- */

#define KARST_SOCK_PAGE 4096u
#define KARST_SOCK_NEAR 2048u
/* This number of bytes fills a pair.  A side that is about to fill it sets this send buffer for its
 * end: */
#define KARST_SOCK_STOP   4096u
#define KARST_SOCK_SNDBUF 1 /* selects the kernel's minimum */
/* Number of such reads that empty a pair.  A side that has given its end a larger buffer, and
 * continues to fill it meanwhile, has to cope with the remainder. */
#define KARST_SOCK_EMPTIES 16

#define KARST_SOCK_SLEEPERS 8u /* sleeping threads whose death is detected */

/* The mark of urgent data, for the reader: drivers/sockets/urgent.c */
enum karst_sock_urgent {
	KARST_SOCK_URGENT_NONE,
	KARST_SOCK_URGENT_VALID,
	KARST_SOCK_URGENT_READ,
	KARST_SOCK_URGENT_PASSED,
};

enum karst_sock_state {
	KARST_SOCK_CONNECTING, /* the negotiation is in progress; bytes may be written */
	KARST_SOCK_RDMA,
	KARST_SOCK_TCP,    /* the service copies to and from the TCP socket */
	KARST_SOCK_DIRECT, /* the other program uses the other side of the rings */
	KARST_SOCK_OVER,   /* no more data is sent or received */
};

/* flags of the page */
#define KARST_SOCK_EOF          1u /* no bytes follow after head */
#define KARST_SOCK_NO_SEND      2u /* written bytes are lost: EPIPE */
#define KARST_SOCK_PEER_BLOCKED 4u /* the peer waits for room: notify it when there is some */
#define KARST_SOCK_CLOSED       8u /* with NO_SEND: the peer has closed, without a reset */

/* shut */
#define KARST_SOCK_SHUT_WR 1u /* EPIPE */
#define KARST_SOCK_SHUT_RD 2u
#define KARST_SOCK_SHUT    3u /* both */

/* Values of lost: bytes were written to a peer that has closed, and the program has not yet got
 * EPIPE for that, or has got it. */
#define KARST_SOCK_LOST_UNTOLD 1u
#define KARST_SOCK_LOST_TOLD   2u

/* What a reader has done; the writer clears it when it looks. */
#define KARST_SOCK_LEFT_CLOSED 1u /* closed a descriptor; check whether that was the last */
#define KARST_SOCK_LEFT_SHUT   2u /* shut down both directions: written bytes cause a reset */

/* Held by one thread of all processes; released if its owner has died (drivers/sockets/lock.c). */
struct karst_sock_lock {
	_Atomic uint32_t owner; /* number of the owner, and whether a thread waits; 0: free */
	_Atomic uint32_t space; /* number space of @owner */
};

/* A direction.  Both sides write here: neither trusts the other. */
struct karst_sock_dir {
	/* written by the writer of the ring */
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint32_t blocked;
	_Atomic uint32_t ended;  /* no bytes follow after head */
	_Atomic uint64_t urgent; /* position after the last urgent byte; 0: there was none */
	/* written by the reader */
	_Alignas(64) _Atomic uint64_t tail;
	_Atomic uint32_t wanted;
	_Atomic uint32_t left; /* DIRECT: KARST_SOCK_LEFT_* */
};

struct karst_sock_rings {
	struct karst_sock_dir dir[2];
};

/* early */
#define KARST_SOCK_EARLY_BYTES 1024u   /* limit; the number of bytes written is in: */
#define KARST_SOCK_EARLY_LEN   0xffffu /* set by the program, like the next one */
/* wanted of the direction from which the program reads */
#define KARST_SOCK_EARLY_WANTED 0x10000u
#define KARST_SOCK_EARLY_CLOSED 0x40000000u /* set by the service, like the next one */
#define KARST_SOCK_EARLY_READY  0x80000000u

struct karst_sock_page {
	/* written by the service */
	_Alignas(64) _Atomic uint32_t state; /* enum karst_sock_state */
	_Atomic uint32_t flags;
	_Atomic int32_t error;   /* errno, for the first caller that takes it */
	_Atomic uint32_t reason; /* state TCP: the reason, enum karst_smc_reason */
	_Atomic uint32_t rings;  /* number of the rings, if the program has them; 0: it has not */

	/* written by the program */
	_Alignas(64) _Atomic uint64_t rx_told; /* tail at the last notification of the service */
	_Atomic uint32_t reset;                /* SO_LINGER with 0 seconds: the close is a reset */
	_Atomic uint32_t shut;                 /* what was shut down */
	_Atomic uint32_t watched;              /* by poll(), epoll or a signal */
	_Atomic uint32_t nonblock;             /* O_NONBLOCK, as far as known */
	_Atomic uint32_t in_middle;            /* the last write had no room for all */
	_Atomic uint32_t lost;                 /* KARST_SOCK_LOST_*, or 0 */
	_Atomic uint32_t oob_inline;           /* SO_OOBINLINE */
	_Atomic uint32_t met;                  /* DIRECT: the program has begun to use its waker */
	_Atomic uint32_t marked;               /* the program has sent urgent data */
	_Atomic uint32_t filled;               /* the program has filled its pair, or is about to */
	_Atomic uint32_t inq;                  /* TCP_INQ */

	/* shared by the program's threads and processes: one reads, one writes */
	_Alignas(64) struct karst_sock_lock rx_lock;
	uint32_t armed;              /* wanted was set, and may have been cleared since */
	uint32_t pending;            /* tokens that have arrived or are under way */
	_Atomic uint64_t rx_tail;    /* position of the reader */
	uint64_t rx_head;            /* position of the other side when it was last read */
	_Atomic uint64_t urgent_end; /* position after the last mark that was taken over */
	uint32_t urgent;             /* enum karst_sock_urgent */
	_Atomic uint32_t hole; /* 1: the next byte is urgent, and is not read with the others */
	_Alignas(64) struct karst_sock_lock tx_lock;
	_Atomic uint64_t tx_head; /* position of the writer */
	uint64_t tx_tail;         /* as rx_head */
	uint32_t strays;          /* there may be a byte in the pair that no thread takes */
	/* threads that sleep until bytes arrive, under rx_lock: each holds one of the locks, so
	 * that its death is detected; those for which none was free are counted */
	_Alignas(64) uint32_t sleepers;
	uint32_t crowd;
	struct karst_sock_lock sleeps[KARST_SOCK_SLEEPERS];

	/* constant */
	_Alignas(64) struct sockaddr_storage local;
	struct sockaddr_storage peer;
	uint32_t local_len, peer_len;
	uint32_t buffer;  /* bytes of a ring */
	uint32_t tx;      /* the direction to which this end writes: 0 or 1 */
	uint32_t poll_us; /* how long a program may poll for more before it sleeps */
	/* seconds during which the option must not be offered to the peer again */
	_Atomic uint32_t retry_s;

	/* used before there are rings */
	_Alignas(64) _Atomic uint32_t early;
	uint32_t attached; /* under rx_lock: a process has taken over the state of armed */
	_Alignas(64) struct karst_sock_rings none;
	uint8_t early_bytes[KARST_SOCK_EARLY_BYTES];
};
static_assert(sizeof(struct karst_sock_page) <= KARST_SOCK_PAGE, "the page has room for it");

static_assert(KARST_SOCK_NEAR + sizeof(struct karst_sock_rings) < KARST_SOCK_PAGE, "in one page");
static_assert(KARST_SOCK_EARLY_BYTES <= KARST_SOCK_EARLY_LEN, "it can be counted");
static_assert(sizeof(struct karst_sock_rings) % 64 == 0, "a ring begins with a line");

/** Whether a mark is ahead of head, which is about to follow.  A mark that cannot be in a ring of
 *  @bytes is ignored. */
static inline bool
karst_sock_is_ahead(uint64_t urgent, uint64_t head, uint32_t bytes)
{
	return urgent - head - 1 < bytes;
}

/** The end of the written bytes of a direction, at most: head, or a mark that is ahead of it. */
static inline uint64_t
karst_sock_written(const struct karst_sock_dir *d, uint32_t bytes)
{
	uint64_t head = atomic_load_explicit(&d->head, memory_order_acquire);
	uint64_t urgent = atomic_load_explicit(&d->urgent, memory_order_acquire);

	return karst_sock_is_ahead(urgent, head, bytes) ? urgent : head;
}

/** Size of the file of the rings. */
static inline uint64_t
karst_sock_bytes(uint32_t buffer)
{
	return KARST_SOCK_PAGE + 2 * (uint64_t)buffer;
}

/** Limit of the rings that a program keeps for other connections after use by RDMA, when all of
 *  their pages are allocated. */
static inline uint32_t
karst_sock_spares(uint32_t buffer)
{
	return karst_min_u32(32, (32u << 20) / (uint32_t)karst_sock_bytes(buffer));
}

/** The positions in the file, which is mapped at @map. */
static inline struct karst_sock_rings *
karst_sock_rings(void *map, uint32_t buffer)
{
	return (struct karst_sock_rings *)(void *)((uint8_t *)map + KARST_SOCK_NEAR + buffer);
}

static inline uint8_t *
karst_sock_ring(void *map, uint32_t buffer, unsigned int dir)
{
	return (uint8_t *)map + KARST_SOCK_NEAR +
		(dir != 0 ? sizeof(struct karst_sock_rings) + (size_t)buffer : 0);
}

/** The number to add to a position to get the place of its byte in the ring. */
static inline uint32_t
karst_sock_shift(uint32_t buffer, unsigned int dir)
{
	return dir == 0 ? buffer - KARST_SOCK_NEAR : 0;
}

/** Whether neither direction has exceeded the page of the rings that has the positions.  Rings of
 *  longer streams are kept only after use by RDMA (karst_sock_spares()). */
static inline bool
karst_sock_is_short(uint64_t dir0, uint64_t dir1)
{
	return dir0 <= KARST_SOCK_NEAR &&
		dir1 <= KARST_SOCK_PAGE - KARST_SOCK_NEAR - sizeof(struct karst_sock_rings);
}

/** For a writer that has moved head: whether to notify the reader.  True once only. */
static inline bool
karst_sock_take_wanted(struct karst_sock_dir *d)
{
	/* pairs with the reader, which sets wanted and then reads the position */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&d->wanted, memory_order_relaxed) != 0 &&
		atomic_exchange(&d->wanted, 0) != 0;
}

/** For a reader that has moved tail: whether to notify the writer. */
static inline bool
karst_sock_take_blocked(struct karst_sock_dir *d)
{
	atomic_thread_fence(memory_order_seq_cst); /* the same */
	return atomic_load_explicit(&d->blocked, memory_order_relaxed) != 0 &&
		atomic_exchange(&d->blocked, 0) != 0;
}

/** Copies @n bytes from position @pos of a ring. */
static inline void
karst_sock_copy_out(void *to, const uint8_t *ring, uint32_t bytes, uint64_t pos, size_t n)
{
	size_t at = pos & (bytes - 1), first = bytes - at < n ? bytes - at : n;

	memcpy(to, ring + at, first);
	memcpy((uint8_t *)to + first, ring, n - first);
}

static inline void
karst_sock_copy_in(uint8_t *ring, uint32_t bytes, uint64_t pos, const void *from, size_t n)
{
	size_t at = pos & (bytes - 1), first = bytes - at < n ? bytes - at : n;

	memcpy(ring + at, from, first);
	memcpy(ring, (const uint8_t *)from + first, n - first);
}

#endif /* KARST_SOCK_H */
