/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What a TCP program (drivers/sockets) and the SMC service of karstd share: messages over a socket,
 * and for each connection a control page, two rings of bytes, and a pair of AF_UNIX stream sockets.
 *
 *     file of the page      struct karst_sock_page: of this end alone
 *     file of the rings     nothing | ring 0 | struct karst_sock_rings | ring 1
 *
 * There is a ring for each direction.  A page that is mapped and touched is dear, and short streams
 * are many, so theirs is one page: it has the positions in its middle, the last KARST_SOCK_NEAR
 * bytes of ring 0 in front of them, and the first bytes of ring 1 behind.  Byte p of direction 0
 * lies at p - KARST_SOCK_NEAR, and of direction 1, into which a peer may write by RDMA, at p, as
 * a remainder by the size of the ring.
 *
 * An end whose peer may be on this machine begins without rings, because those are kept for the
 * next connections of the same two programs, of which only one is known yet.  Until the other one
 * is there, or what else becomes of the connection, what is written lies in the page (early), where
 * nobody sees it but the program and the service.  Then the service closes that
 * (KARST_SOCK_EARLY_CLOSED), copies it into rings, and says that they can be used
 * (KARST_SOCK_EARLY_READY): a program that finds it closed has written nothing more, and takes the
 * rings by their number, or asks for them.
 *
 * Who writes moves head, who reads tail.  At the other side of a ring is the service, which moves
 * the bytes by RDMA or TCP; or, if both programs are of the same service, the other program, and
 * nobody stands between them (state DIRECT).  In both cases nobody believes what the other side
 * writes: a position is copied once, and one that is impossible, or has gone back, ends the
 * connection.  Nor does a program believe what a ring says of its own positions: those are in the
 * page, and the ring shows them.  A page has locks in it, so no other program sees it, but
 * processes that have the connection, too; the program keeps it for its next connections.  As
 * these processes may be of different users, there is nothing in it but numbers, and what was
 * written before there were rings: no address, and so no lock of the C library's.
 *
 * The pair is how a program waits.  Its end is the program's descriptor, in the place of the TCP
 * socket, so that poll(), epoll, signals, time limits and fork() are the kernel's own:
 *
 *   readable       a byte, the token, lies in it.  Who reads sets wanted when it is to be told; who
 *                  has written takes wanted away, and if it was set sends a token.  So there are no
 *                  tokens while the reader is busy.  What is watched by poll() or epoll (watched)
 *                  wants one whenever its ring has become empty.
 *   not writable   who found no room and is to be told sets blocked and fills the pair; who makes
 *                  room takes blocked away, and if it was set empties the pair.
 *   urgent         an urgent byte (MSG_OOB) lies in it: a byte of the stream is marked.  Who writes
 *                  shows the mark (urgent), sends this, and moves head over that byte, in this
 *                  order.  With the byte in the pair the mark says as much as head: what is in
 *                  front of it is in the ring.  So who sees the byte in the pair finds that of the
 *                  stream, and who sees that by head finds the other one; the mark alone is none.
 *   end of file    nothing will come any more
 *   gone           the last descriptor of the program's end was closed, or its processes died
 *
 * Tokens for the service go the other way: a byte in the pair says "look here".  The service has
 * the other end of the pair (the far end).  In state DIRECT the other program has it, too (its
 * waker), to send tokens, empty the pair, and end it.
 *
 * Whoever has lost which end belongs to which connection (a program that was executed, a descriptor
 * that came by a message) asks with KARST_SOCK_ADOPT.  Of other AF_UNIX sockets hardly any has
 * SO_OOBINLINE, so the service is seldom asked in vain.
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
#define KARST_SOCK_SUFFIX ".smc" /* of the service's socket, behind the engine's path */

/* --- messages: one packet of SOCK_SEQPACKET each way --- */

enum karst_sock_op {
	/* The program's first.  Answer: the map of the TCP option, as a descriptor, and in buffer
	 * how many us it may look for an answer before it sleeps. */
	KARST_SOCK_HELLO = 1,
	/* With a TCP socket that has seen the option: it is the service's from here on.
	 * In left: how many connections of the program's have stayed on TCP, since it said so last,
	 * because those to their peer are short.
	 * In data: numbers of pages, each of 32 bits, that the program does not touch any more, nor
	 * the rings that it had with them; KARST_SOCK_SHARED says that somebody else may.
	 * Answer: the program's end of the pair, the file of the page unless KARST_SOCK_PAGE_KEPT
	 * says that the program has it, that of the rings if KARST_SOCK_RINGS_COME does, and a
	 * waker if KARST_SOCK_WAKES does. */
	KARST_SOCK_OPEN,
	/* With the end of a pair.  Answer: the files of the page and of the rings. */
	KARST_SOCK_ADOPT,
	/* With the end of a pair, state DIRECT.  Answer: the far end of the other one's pair. */
	KARST_SOCK_WAKER,
	/* With the end of a pair, of any state: what a waker is for, and what none is for. */
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
#define KARST_SOCK_REQUIRE 2u /* rather fail than stay on TCP */
#define KARST_SOCK_POLLS \
	4u /* it does not block: a token is to lie in the pair if bytes are there */

/* flags of the answer to KARST_SOCK_OPEN */
/* there is no room: the option is not to be offered for a while */
#define KARST_SOCK_FULL 1u
/* not even to stay on TCP by way of the service: the socket is the program's.  Nothing comes with
 * this; -EAGAIN instead of it: once more when there is something to read, of a server */
#define KARST_SOCK_PLAIN 2u
/* a waker comes, for when the state is DIRECT, which it may never be */
#define KARST_SOCK_WAKES 4u
/* the page is one that the program has kept: that of this number */
#define KARST_SOCK_PAGE_KEPT 8u
/* rings come; else they are those of the number in the page, or there are none yet */
#define KARST_SOCK_RINGS_COME 16u

/* with the number of a page */
#define KARST_SOCK_SHARED 0x80000000u

/* flags of KARST_SOCK_WAKE */
#define KARST_SOCK_WAKE_SELF   1u /* a token into one's own pair */
#define KARST_SOCK_WAKE_PEER   2u
#define KARST_SOCK_EMPTY_SELF  4u /* one's own pair is emptied */
#define KARST_SOCK_EMPTY_PEER  8u
#define KARST_SOCK_END_PEER    16u /* its direction ends */
#define KARST_SOCK_URGENT_SELF 32u /* an urgent byte into one's own pair */
#define KARST_SOCK_URGENT_PEER 64u
#define KARST_SOCK_LOOK_PEER   128u /* whether it has closed: then the page says so */

#define KARST_SOCK_FDS  4    /* with an answer, at most */
#define KARST_SOCK_KEPT 512u /* pages, and rings, that a program keeps, in use or not */

struct karst_sock_msg {
	uint32_t abi;
	uint32_t op;
	uint32_t seq;   /* an answer has its request's */
	int32_t status; /* of an answer: 0 or -errno */
	uint32_t flags;
	uint32_t buffer; /* answer: bytes of each buffer */
	int32_t level, name;
	uint32_t len;  /* of what is in data */
	uint32_t left; /* KARST_SOCK_OPEN */
	uint32_t page; /* answer: its number, 1 to KARST_SOCK_KEPT; 0: it is not to be kept */
	uint8_t data[KARST_SOCK_DATA];
};

/* --- the memory of a connection --- */

#define KARST_SOCK_PAGE 4096u
#define KARST_SOCK_NEAR 2048u
/* So many bytes fill a pair.  Who is about to fill it gives his end this as its send buffer: */
#define KARST_SOCK_STOP   4096u
#define KARST_SOCK_SNDBUF 1 /* the least that the kernel has */
/* Reads of as many bytes that empty a pair.  Who has given his end a larger buffer, and goes on to
 * fill it meanwhile, has to do with what is left. */
#define KARST_SOCK_EMPTIES 16

#define KARST_SOCK_SLEEPERS 8u /* of whom it is seen that they have died */

/* The mark of urgent data, for who reads: drivers/sockets/urgent.c */
enum karst_sock_urgent {
	KARST_SOCK_URGENT_NONE,
	KARST_SOCK_URGENT_VALID,
	KARST_SOCK_URGENT_READ,
	KARST_SOCK_URGENT_PASSED,
};

enum karst_sock_state {
	KARST_SOCK_CONNECTING, /* what is agreed on is being found out; bytes may be written */
	KARST_SOCK_RDMA,
	KARST_SOCK_TCP,    /* the service copies to and from the TCP socket */
	KARST_SOCK_DIRECT, /* the other program has the other side of the rings */
	KARST_SOCK_OVER,   /* nothing is sent or received any more */
};

/* flags of the page */
#define KARST_SOCK_EOF          1u /* nothing comes behind head */
#define KARST_SOCK_NO_SEND      2u /* what is written is lost: EPIPE */
#define KARST_SOCK_PEER_BLOCKED 4u /* the peer waits for room: say so when some is free */
#define KARST_SOCK_CLOSED       8u /* with NO_SEND: the peer has closed, and that was no reset */

/* shut */
#define KARST_SOCK_SHUT_WR 1u /* EPIPE */
#define KARST_SOCK_SHUT_RD 2u

/* Held by one thread of all processes, and nobody's who has died (drivers/sockets/lock.c). */
struct karst_sock_lock {
	_Atomic uint32_t owner; /* its number, and that somebody waits; 0: nobody's */
	_Atomic uint32_t space; /* whose numbers these are */
};

/* A direction.  Both sides write here: neither believes the other. */
struct karst_sock_dir {
	/* who writes into the ring */
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint32_t blocked;
	_Atomic uint32_t ended;  /* nothing comes behind head */
	_Atomic uint64_t urgent; /* behind the last byte that is urgent; 0: there was none */
	/* who reads */
	_Alignas(64) _Atomic uint64_t tail;
	_Atomic uint32_t wanted;
	_Atomic uint32_t left; /* DIRECT: has closed a descriptor; was it the last? */
};

struct karst_sock_rings {
	struct karst_sock_dir dir[2];
};

/* early */
#define KARST_SOCK_EARLY_BYTES  1024u       /* at most; so many were written: */
#define KARST_SOCK_EARLY_LEN    0xffffu     /* the program's, as the next one */
#define KARST_SOCK_EARLY_WANTED 0x10000u    /* wanted of the direction from which it reads */
#define KARST_SOCK_EARLY_CLOSED 0x40000000u /* the service's, as the next one */
#define KARST_SOCK_EARLY_READY  0x80000000u

struct karst_sock_page {
	/* the service's */
	_Alignas(64) _Atomic uint32_t state; /* enum karst_sock_state */
	_Atomic uint32_t flags;
	_Atomic int32_t error;   /* errno, for whoever takes it first */
	_Atomic uint32_t reason; /* state TCP: why, enum karst_smc_reason */
	_Atomic uint32_t rings;  /* their number, if the program has them; 0: it has not */

	/* the program's */
	_Alignas(64) _Atomic uint64_t rx_told; /* tail when the service was told last */
	_Atomic uint32_t reset;                /* SO_LINGER with 0 seconds: the close is a reset */
	_Atomic uint32_t shut;                 /* what was shut down */
	_Atomic uint32_t watched;              /* by poll(), epoll or a signal */
	_Atomic uint32_t nonblock;             /* O_NONBLOCK, as far as is known */
	_Atomic uint32_t in_middle;            /* the last write had no room for all */
	_Atomic uint32_t lost;                 /* bytes were written to a peer that has closed */
	_Atomic uint32_t oob_inline;           /* SO_OOBINLINE */
	_Atomic uint32_t met;                  /* DIRECT: it has begun to use its waker */
	_Atomic uint32_t marked;               /* it has sent urgent data */
	_Atomic uint32_t filled;               /* it has filled its pair, or is about to */

	/* among the program's threads and processes: one reads, one writes */
	_Alignas(64) struct karst_sock_lock rx_lock;
	uint32_t armed;              /* wanted was set, and may have been taken away */
	uint32_t pending;            /* tokens that came or are coming */
	_Atomic uint64_t rx_tail;    /* where who reads is */
	uint64_t rx_head;            /* where the other side was when it was looked at last */
	_Atomic uint64_t urgent_end; /* behind the last mark that was taken over */
	uint32_t urgent;             /* enum karst_sock_urgent */
	_Atomic uint32_t hole; /* 1: the next byte is urgent, and not to be read as the others */
	_Alignas(64) struct karst_sock_lock tx_lock;
	_Atomic uint64_t tx_head; /* where who writes is */
	uint64_t tx_tail;         /* as rx_head */
	uint32_t strays;          /* there may be a byte in the pair that nobody takes */
	/* who sleep for bytes, under rx_lock: each holds one of the locks, so that it is seen when
	 * he is dead, and those for whom none was free are counted */
	_Alignas(64) uint32_t sleepers;
	uint32_t crowd;
	struct karst_sock_lock sleeps[KARST_SOCK_SLEEPERS];

	/* constant */
	_Alignas(64) struct sockaddr_storage local;
	struct sockaddr_storage peer;
	uint32_t local_len, peer_len;
	uint32_t buffer;          /* bytes of a ring */
	uint32_t tx;              /* the direction into which this end writes: 0 or 1 */
	uint32_t poll_us;         /* how long a program may look for more before it sleeps */
	_Atomic uint32_t retry_s; /* so long the peer is not to be offered the option again */

	/* before there are rings */
	_Alignas(64) _Atomic uint32_t early;
	uint32_t attached; /* under rx_lock: a process has taken over what armed says */
	_Alignas(64) struct karst_sock_rings none;
	uint8_t early_bytes[KARST_SOCK_EARLY_BYTES];
};
static_assert(sizeof(struct karst_sock_page) <= KARST_SOCK_PAGE, "the page has room for it");

static_assert(KARST_SOCK_NEAR + sizeof(struct karst_sock_rings) < KARST_SOCK_PAGE, "in one page");
static_assert(KARST_SOCK_EARLY_BYTES <= KARST_SOCK_EARLY_LEN, "it can be counted");
static_assert(sizeof(struct karst_sock_rings) % 64 == 0, "a ring begins with a line");

/** A mark is ahead of head, which is about to follow.  One that cannot be in a ring of @bytes is
 *  none. */
static inline bool
karst_sock_is_ahead(uint64_t urgent, uint64_t head, uint32_t bytes)
{
	return urgent - head - 1 < bytes;
}

/** How far a direction is written, at most: up to head, or to a mark that is ahead of it. */
static inline uint64_t
karst_sock_written(const struct karst_sock_dir *d, uint32_t bytes)
{
	uint64_t head = atomic_load_explicit(&d->head, memory_order_acquire);
	uint64_t urgent = atomic_load_explicit(&d->urgent, memory_order_acquire);

	return karst_sock_is_ahead(urgent, head, bytes) ? urgent : head;
}

/** Of the file of the rings. */
static inline uint64_t
karst_sock_bytes(uint32_t buffer)
{
	return KARST_SOCK_PAGE + 2 * (uint64_t)buffer;
}

/** Rings that were used by RDMA, which are there with all of their pages, that a program keeps for
 *  other connections. */
static inline uint32_t
karst_sock_spares(uint32_t buffer)
{
	return karst_min_u32(32, (32u << 20) / (uint32_t)karst_sock_bytes(buffer));
}

/** In the file, which is mapped at @map. */
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

/** To be added to a position, for where in the ring its byte lies. */
static inline uint32_t
karst_sock_shift(uint32_t buffer, unsigned int dir)
{
	return dir == 0 ? buffer - KARST_SOCK_NEAR : 0;
}

/** Streams of which neither direction is longer have not touched another page of the rings than
 *  that of the positions; others' rings are not kept. */
static inline bool
karst_sock_is_short(uint64_t dir0, uint64_t dir1)
{
	return dir0 <= KARST_SOCK_NEAR &&
		dir1 <= KARST_SOCK_PAGE - KARST_SOCK_NEAR - sizeof(struct karst_sock_rings);
}

/** Who has written, and moved head: does the reader want to be told?  He is told once. */
static inline bool
karst_sock_take_wanted(struct karst_sock_dir *d)
{
	/* pairs with him, who sets it, and then looks at the position */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&d->wanted, memory_order_relaxed) != 0 &&
		atomic_exchange(&d->wanted, 0) != 0;
}

/** Who has read, and moved tail: does the writer? */
static inline bool
karst_sock_take_blocked(struct karst_sock_dir *d)
{
	atomic_thread_fence(memory_order_seq_cst); /* the same */
	return atomic_load_explicit(&d->blocked, memory_order_relaxed) != 0 &&
		atomic_exchange(&d->blocked, 0) != 0;
}

/** Copies @n bytes from @pos of a ring on out of it. */
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
