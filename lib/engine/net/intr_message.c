/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Checks the messages of the peer of a net_memif port before the driver gets them.
 *
 * The driver of DPDK 22.11 trusts its peer.  If a descriptor comes with a message that needs none,
 * the driver never closes it; the same holds for the descriptor of a ring that is added twice.  A
 * ring that is added twice also counts as two, of which the driver then uses one that does not
 * exist.  A ring may lie beyond the end of its region, a region may be longer than its file, and a
 * peer can change both while lcores use them.  If a peer disconnects before it has connected, the
 * descriptors of its regions stay open.
 *
 * If there are fewer rings than the device has queues, the driver uses for the other queues what
 * the last connection has left in them, or the first ring, which two lcores then use.  And it
 * copies names up to a terminating zero, which may be missing.
 *
 * So this file accepts only the messages that a peer must send, each once and in their order, with
 * the descriptor that belongs to them, and only if there are as many rings as queues.  Rings and
 * regions must be numbered from 0, as DPDK and VPP do.
 *
 * It does not check what the shared memory contains afterwards.
 */
#include "intr_message.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_common.h>

#include "karst_base.h"

enum memif_type {
	MEMIF_ACK = 1,
	MEMIF_HELLO,
	MEMIF_INIT,
	MEMIF_ADD_REGION,
	MEMIF_ADD_RING,
	MEMIF_CONNECT,
	MEMIF_CONNECTED,
	MEMIF_DISCONNECT,
};

/* After the type, in host byte order. */
struct memif_region_msg {
	uint16_t index;
	uint64_t bytes;
} __attribute__((packed));

struct memif_ring_msg {
	uint16_t flags;
	uint16_t index;
	uint16_t region;
	uint32_t offset;
	uint8_t log2_size;
} __attribute__((packed));

struct memif_hello_msg {
	uint8_t name[32];
	uint16_t min_version;
	uint16_t max_version;
	uint16_t max_region;
	uint16_t max_ring[2]; /* to the client, to the server: the greatest number */
	uint8_t max_log2_size;
} __attribute__((packed));

#define MEMIF_C2S       1u /* flag of a ring */
#define MEMIF_LOG2_MAX  14u
#define MEMIF_RING_HEAD 128u
#define MEMIF_DESC      16u

/* Tries the mapping that the driver will make: if that failed, the driver would leave some regions
 * open.  This mapping is not used, so it is removed without munmap(), which waits for lcores
 * (intr_unmap.c). */
static bool
can_be_mapped(int fd, uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return false;
	(void)syscall(SYS_munmap, p, bytes);
	return true;
}

static bool
add_region(struct eng_memif_talk *t, const uint8_t *body, int fd)
{
	struct memif_region_msg m;
	struct stat st;

	memcpy(&m, body, sizeof(m));
	if (m.index != t->nregions || m.index >= ENG_MEMIF_REGIONS || fstat(fd, &st) != 0 ||
		st.st_size <= 0 || m.bytes == 0 || m.bytes > (uint64_t)st.st_size ||
		!can_be_mapped(fd, m.bytes))
		return false;
	t->fds[t->nregions] = fd;
	t->bytes[t->nregions++] = m.bytes;
	return true;
}

static bool
add_ring(struct eng_memif_talk *t, const struct eng_memif_limits *limits, const uint8_t *body)
{
	struct memif_ring_msg m;
	uint32_t *nrings;

	memcpy(&m, body, sizeof(m));
	nrings = &t->nrings[(m.flags & MEMIF_C2S) != 0];
	if (m.index != *nrings || m.index >= limits->most[(m.flags & MEMIF_C2S) != 0] ||
		m.region >= t->nregions || m.log2_size > MEMIF_LOG2_MAX || m.offset % 8 != 0 ||
		m.offset + MEMIF_RING_HEAD + ((uint64_t)MEMIF_DESC << m.log2_size) >
			t->bytes[m.region])
		return false;
	++*nrings;
	return true;
}

static bool
connects(struct eng_memif_talk *t, const struct eng_memif_limits *limits)
{
	if (t->connected)
		return false;
	/* a device without queues needs a ring, too */
	t->few = t->server &&
		(t->nrings[0] < RTE_MAX(limits->least[0], 1u) ||
			t->nrings[1] < RTE_MAX(limits->least[1], 1u));
	t->connected = !t->few;
	return t->connected;
}

/* A HELLO: the client then creates as many rings as the server allows. */
static bool
greets(struct eng_memif_talk *t, const struct eng_memif_limits *limits, const uint8_t *body)
{
	struct memif_hello_msg m;

	memcpy(&m, body, sizeof(m));
	/* the engine's transmit direction is to the server */
	t->few = m.max_ring[0] + 1u < limits->least[1] || m.max_ring[1] + 1u < limits->least[0];
	return !t->few;
}

static bool
begins(struct eng_memif_talk *t, const struct eng_memif_limits *limits, const uint8_t *body)
{
	bool first = !t->begun;

	t->begun = true;
	return first && (t->server || greets(t, limits, body));
}

/* Whether there is a zero between the start of the message's text and the end of the message, where
 * the text must end. */
static bool
text_ends(uint16_t type, const uint8_t *msg)
{
	static const uint8_t starts[] = {[MEMIF_HELLO] = 2,
		[MEMIF_INIT] = 33,
		[MEMIF_CONNECT] = 2,
		[MEMIF_CONNECTED] = 2,
		[MEMIF_DISCONNECT] = 6};

	return type >= KARST_DIM(starts) || starts[type] == 0 ||
		memchr(msg + starts[type], 0, ENG_MEMIF_MESSAGE - starts[type]) != NULL;
}

bool
eng_memif_may_say(struct eng_memif_talk *t, const struct eng_memif_limits *limits,
	const uint8_t *msg, size_t len, int fd, unsigned int nfds)
{
	const uint8_t *body = msg + sizeof(uint16_t);
	uint16_t type;

	if (len != ENG_MEMIF_MESSAGE)
		return false;
	memcpy(&type, msg, sizeof(type));
	if (nfds != (type == MEMIF_ADD_REGION || type == MEMIF_ADD_RING) || !text_ends(type, msg))
		return false;
	if (type == (t->server ? MEMIF_INIT : MEMIF_HELLO))
		return begins(t, limits, body);
	if (!t->begun)
		return type == MEMIF_DISCONNECT && !t->server;
	switch (type) {
	case MEMIF_ACK:
	case MEMIF_DISCONNECT:
		return true;
	case MEMIF_ADD_REGION:
		return t->server && !t->connected && add_region(t, body, fd);
	case MEMIF_ADD_RING:
		return t->server && !t->connected && add_ring(t, limits, body);
	case MEMIF_CONNECT:
		return t->server && connects(t, limits);
	case MEMIF_CONNECTED:
		return !t->server && connects(t, limits);
	default:
		return false;
	}
}

void
eng_memif_forget(struct eng_memif_talk *t)
{
	uint32_t i;

	for (i = 0; i < t->nregions && !t->connected; i++)
		close(t->fds[i]);
}
