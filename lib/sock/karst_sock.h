/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What a TCP program (drivers/sockets) and the SMC service of karstd share: messages over a socket,
 * and for each connection a memory file and a pair of AF_UNIX stream sockets.
 *
 * The file has a control page, a buffer for what is sent and one for what is received:
 *
 *     0          KARST_SOCK_PAGE        + buffer bytes         + buffer bytes
 *     | struct karst_sock_page | what the program sends | what has come |
 *
 * Byte p of a stream lies at p modulo the size of its buffer.  The program writes bytes and moves
 * tx_head; the service frees them by tx_tail.  What has come lies in front of rx_head; the program
 * reads it and moves rx_tail.  The service believes nothing of what programs write there: it copies
 * a position once, and ends a connection whose positions are impossible.
 *
 * The pair is how the program waits.  Its end is the program's descriptor, in the place of the TCP
 * socket, so that poll(), epoll, signals, time limits and fork() are the kernel's own:
 *
 *   readable       a byte, the token, lies in it while there is something to read: whoever has
 *                  emptied the buffer takes the token out, and the service puts a new one in.
 *                  rx_tokens and tokens_taken count them.
 *   not writable   who found no room fills the pair (stops), and the service empties it when there
 *                  is room (stops_taken).
 *   to the service a byte says "look here"
 *   end of file    the service has shut its end down: nothing will come any more
 *   gone           the last descriptor of the program's end was closed, or its processes died
 *
 * Whoever has lost which end belongs to which connection (a program that was executed, a descriptor
 * that came by a message) sees KARST_SOCK_NAME in the name of the pair's other end and asks with
 * KARST_SOCK_ADOPT.
 */
#ifndef KARST_SOCK_H
#define KARST_SOCK_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "karst_base.h"
#include "karst_sock_option.h"

#define KARST_SOCK_ABI    1u
#define KARST_SOCK_SUFFIX ".smc" /* of the service's socket, behind the engine's path */
/** Name of the service's end of a pair, in the abstract name space, with a number behind it. */
#define KARST_SOCK_NAME "karst-smc-"

/* --- messages: one packet of SOCK_SEQPACKET each way --- */

enum karst_sock_op {
	/* The program's first.  Answer: the map of the TCP option, as a descriptor. */
	KARST_SOCK_HELLO = 1,
	/* With a TCP socket that has seen the option: it is the service's from here on.
	 * Answer: the memory file and the program's end of the pair. */
	KARST_SOCK_OPEN,
	/* With the end of a pair.  Answer: the memory file. */
	KARST_SOCK_ADOPT,
	/* With the end of a pair: an option of the TCP socket. */
	KARST_SOCK_GETOPT,
	KARST_SOCK_SETOPT,
};

#define KARST_SOCK_DATA 256u

/* flags of KARST_SOCK_OPEN */
#define KARST_SOCK_SERVER  1u /* the socket was accepted */
#define KARST_SOCK_REQUIRE 2u /* rather fail than stay on TCP */

struct karst_sock_msg {
	uint32_t abi;
	uint32_t op;
	uint32_t seq;   /* an answer has its request's */
	int32_t status; /* of an answer: 0 or -errno */
	uint32_t flags;
	uint32_t buffer; /* answer: bytes of each buffer */
	int32_t level, name;
	uint32_t len; /* of what is in data */
	uint32_t reserved;
	uint8_t data[KARST_SOCK_DATA];
};

/* --- the memory of a connection --- */

#define KARST_SOCK_PAGE   4096u
#define KARST_SOCK_STOP   16384u /* so many bytes fill a pair, whose send buffer this is */
#define KARST_SOCK_SNDBUF 8192   /* the kernel doubles it */

enum karst_sock_state {
	KARST_SOCK_CONNECTING, /* what is agreed on is being found out; bytes may be written */
	KARST_SOCK_RDMA,
	KARST_SOCK_TCP,  /* the service copies to and from the TCP socket */
	KARST_SOCK_OVER, /* nothing is sent or received any more */
};

/* flags of the page */
#define KARST_SOCK_EOF          1u /* nothing comes behind rx_head */
#define KARST_SOCK_NO_SEND      2u /* what is written is lost: EPIPE */
#define KARST_SOCK_PEER_BLOCKED 4u /* the peer waits for room: say so when some is free */

struct karst_sock_page {
	/* the service's */
	_Alignas(64) _Atomic uint64_t rx_head;
	_Atomic uint64_t tx_tail;
	_Atomic uint64_t rx_tokens;
	_Atomic uint64_t stops_taken;
	_Atomic uint64_t tx_seen; /* of tx_head: a program need not ring again before this moves */
	_Atomic uint32_t state;   /* enum karst_sock_state */
	_Atomic uint32_t flags;
	_Atomic int32_t error;   /* errno, for whoever takes it first */
	_Atomic uint32_t reason; /* state TCP: why, enum karst_smc_reason */

	/* the program's */
	_Alignas(64) _Atomic uint64_t tx_head;
	_Atomic uint64_t rx_tail;
	_Atomic uint64_t rx_told; /* rx_tail when the service was told last */
	_Atomic uint64_t tokens_taken;
	_Atomic uint64_t stops;
	_Atomic uint32_t reset; /* SO_LINGER with 0 seconds: the close is a reset */
	_Atomic uint32_t shut;  /* its direction was ended: EPIPE */

	/* among the program's threads and processes: one reads, one writes */
	_Alignas(64) pthread_mutex_t rx_lock;
	_Alignas(64) pthread_mutex_t tx_lock;

	/* constant */
	_Alignas(64) struct sockaddr_storage local;
	struct sockaddr_storage peer;
	uint32_t local_len, peer_len;
	uint32_t buffer;
};
static_assert(sizeof(struct karst_sock_page) <= KARST_SOCK_PAGE, "the page has room for it");

static inline uint64_t
karst_sock_bytes(uint32_t buffer)
{
	return KARST_SOCK_PAGE + 2 * (uint64_t)buffer;
}

/** Copies @n bytes from @pos of a stream on out of its buffer. */
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
