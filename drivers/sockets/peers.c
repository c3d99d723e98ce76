/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Peers that have not answered the option lately.  It is not offered to them for a second or two: a
 * program that connects to one again and again does so at the price of the kernel's TCP.  Those
 * with which it has come to nothing behind that are not offered it for as long as the service says,
 * which tells other users' programs only if it happens to them, too.
 */
#include "ks.h"

#include <netinet/in.h>
#include <time.h>

#define PEERS 64u /* by the hash of their addresses; who comes later takes the place */
#define KEPT  2   /* whole seconds, of which the first has begun */

/* Of the process.  A peer's place is found by its key, so two of the same key are taken for one. */
static struct {
	_Atomic uint64_t key;
	_Atomic int64_t until;
} peers[PEERS];

static int64_t
peers_now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static uint64_t
mix(uint64_t key, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		key = (key ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull; /* FNV-1a */
	return key;
}

/* 0: it has no address of ours. */
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

bool
ks_peer_cannot(const struct sockaddr *to)
{
	uint64_t key = key_of(to);
	unsigned int i = (unsigned int)(key >> 32) % PEERS;

	return key != 0 && atomic_load(&peers[i].key) == key &&
		peers_now_s() < atomic_load(&peers[i].until);
}

static void
note(const struct sockaddr *at, int64_t kept_s)
{
	uint64_t key = key_of(at);
	unsigned int i = (unsigned int)(key >> 32) % PEERS;
	int64_t until = peers_now_s() + kept_s;

	if (key == 0 || (atomic_load(&peers[i].key) == key && until < atomic_load(&peers[i].until)))
		return;
	atomic_store(&peers[i].until, until);
	atomic_store(&peers[i].key, key);
}

void
ks_note_cannot(int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);

	if (real(getpeername)(fd, (void *)&at, &len) == 0)
		note((void *)&at, KEPT);
}

void
ks_note_refused(const struct ks_sock *s)
{
	uint32_t retry_s = atomic_load(&s->page->retry_s);
	struct sockaddr_storage at;

	if (retry_s == 0)
		return;
	at = s->page->peer;
	note((void *)&at, retry_s);
}
