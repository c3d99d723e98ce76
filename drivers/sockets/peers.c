/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Peers to which connections stay on TCP, because of how earlier connections to the same address
 * and port ended.  A program that connects there repeatedly does so at the cost of the kernel's
 * TCP.
 *
 * A peer that has not answered the option lately is not offered it for two seconds.  A peer that
 * has answered, but with which no SMC-R connection was made then, is not offered it for as long as
 * the service says; the service applies this to programs of other users only if it happens to them,
 * too.
 *
 * The third case is a peer to which many short connections are made: a short connection never
 * regains what it costs more than TCP to make and to end (doc/smc.rst).  When SHORT_ROW consecutive
 * connections have ended within a second, none of which moved SHORT_BYTES, from then on only one in
 * SHORT_EACH is offered the option; those show when connections have become longer.  This state
 * also ends when SHORT_ROW connections take more than a second to begin, or when none begins for a
 * second.  So a program that connects at the pace of a human is never affected.
 */
#include "ks.h"

#include <netinet/in.h>
#include <stdlib.h>

#define PEERS       64u /* entries, by a hash of the address; later peers replace earlier ones */
#define NS          1000000000ull /* nanoseconds in a second */
#define KEPT_S      2u
#define SHORT_ROW   128u
#define SHORT_EACH  16u
#define SHORT_BYTES 16384u /* both directions together */
#define SHORT_NS    NS

/* The table of the process.  An entry is found by the peer's key, so two peers with the same key
 * are treated as one.  Several threads may update it at once, so the counts are not exact. */
struct peer {
	_Atomic uint64_t key;
	_Atomic uint64_t until_ns;
	_Atomic bool brief;       /* connections to the peer are short */
	_Atomic uint32_t n;       /* in this row: short ones that ended or, if brief, began */
	_Atomic uint64_t row_ns;  /* start of the row */
	_Atomic uint64_t last_ns; /* if brief: when the last connection began */
};
static struct peer peers[PEERS];
static _Atomic uint32_t left_to_tcp;
static bool all_are_offered;

static uint64_t
mix(uint64_t key, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		key = (key ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull; /* FNV-1a */
	return key;
}

/* @return 0 if the address family is not handled */
static uint64_t
key_of(const struct sockaddr *at)
{
	const struct sockaddr_in *v4 = (const void *)at;
	const struct sockaddr_in6 *v6 = (const void *)at;
	uint64_t key = 0xcbf29ce484222325ull;

	if (at->sa_family == AF_INET) {
		key = mix(key, &v4->sin_addr, sizeof(v4->sin_addr));
		return mix(key, &v4->sin_port, sizeof(v4->sin_port)) | 1;
	}
	if (at->sa_family == AF_INET6) {
		key = mix(key, &v6->sin6_addr, sizeof(v6->sin6_addr));
		return mix(key, &v6->sin6_port, sizeof(v6->sin6_port)) | 1;
	}
	return 0;
}

static struct peer *
place_of(uint64_t key)
{
	return &peers[(unsigned int)(key >> 32) % PEERS];
}

/* Takes the entry of the peer for this key. */
static struct peer *
take_place(uint64_t key)
{
	struct peer *p = place_of(key);

	if (atomic_load(&p->key) == key)
		return p;
	atomic_store(&p->until_ns, 0);
	atomic_store(&p->brief, false);
	atomic_store(&p->n, 0);
	atomic_store(&p->key, key);
	return p;
}

/* --- those that cannot --- */

static void
note(const struct sockaddr *at, uint32_t kept_s)
{
	uint64_t key = key_of(at), until_ns = ks_now() + kept_s * NS;
	struct peer *p;

	if (key == 0)
		return;
	p = take_place(key);
	if (atomic_load(&p->until_ns) < until_ns)
		atomic_store(&p->until_ns, until_ns);
}

void
ks_note_cannot(int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);

	if (real(getpeername)(fd, (void *)&at, &len) == 0)
		note((void *)&at, KEPT_S);
}

static void
note_refused(const struct ks_sock *s)
{
	uint32_t retry_s = atomic_load(&s->page->retry_s);
	struct sockaddr_storage at;

	if (retry_s == 0)
		return;
	at = s->page->peer;
	note((void *)&at, retry_s);
}

/* --- those whose connections are short --- */

static void
begin_row(struct peer *p, uint64_t now)
{
	atomic_store(&p->n, 0);
	atomic_store(&p->row_ns, now);
}

static void
note_length(const struct ks_sock *s)
{
	uint64_t moved = atomic_load(&s->page->tx_head) + karst_sock_written(s->rxd, s->buffer);
	struct sockaddr_storage at = s->page->peer; /* a copy: the service might change it */
	uint64_t key = key_of((void *)&at), now = ks_now();
	struct peer *p;
	uint32_t n;

	if (key == 0)
		return;
	p = take_place(key);
	if (moved >= SHORT_BYTES) {
		atomic_store(&p->brief, false);
		begin_row(p, now);
		return;
	}
	if (atomic_load(&p->brief))
		return;
	n = atomic_fetch_add(&p->n, 1);
	if (n == 0)
		atomic_store(&p->row_ns, now);
	if (n + 1 < SHORT_ROW)
		return;
	if (now - atomic_load(&p->row_ns) <= SHORT_NS) {
		atomic_store(&p->last_ns, now);
		atomic_store(&p->brief, true);
	}
	begin_row(p, now);
}

/* Called when a connection is about to be made.  @return whether it stays on TCP */
static bool
stays_short(struct peer *p, uint64_t now)
{
	uint32_t n = atomic_fetch_add(&p->n, 1) + 1;
	bool row = n >= SHORT_ROW;

	if (now - atomic_exchange(&p->last_ns, now) > SHORT_NS ||
		(row && now - atomic_load(&p->row_ns) > SHORT_NS)) {
		atomic_store(&p->brief, false);
		begin_row(p, now);
		return false;
	}
	if (row)
		begin_row(p, now);
	if (n % SHORT_EACH == 0)
		return false;
	atomic_fetch_add(&left_to_tcp, 1);
	return true;
}

/* --- both --- */

bool
ks_peer_stays(const struct sockaddr *to)
{
	uint64_t key = key_of(to), now;
	struct peer *p = place_of(key);

	if (key == 0 || atomic_load(&p->key) != key)
		return false;
	now = ks_now();
	if (now < atomic_load(&p->until_ns))
		return true;
	return !all_are_offered && atomic_load(&p->brief) && stays_short(p, now);
}

void
ks_note_over(const struct ks_sock *s)
{
	note_refused(s);
	if (s->client)
		note_length(s);
}

uint32_t
ks_peers_left(void)
{
	return atomic_exchange(&left_to_tcp, 0);
}

void
ks_peers_begin(void)
{
	const char *what = getenv("KARST_SMC_SHORT");

	all_are_offered = what != NULL && strcmp(what, "smc") == 0;
}
