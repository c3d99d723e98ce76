/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Positions in the rings of a connection: what there is to read, and how much room to write. */
#include "ks.h"

#include <sys/socket.h>

/* poll() reports the byte before the kernel has sent its signal, in the middle of a call.  recv()
 * waits for that call to end. */
bool
ks_urgent_came(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLPRI};
	int err = errno;
	bool has = ks_poll_now(&p) > 0 && (p.revents & POLLPRI) != 0;
	char byte;

	if (has)
		(void)ks_recv_now(fd, &byte, 1, MSG_PEEK);
	errno = err;
	return has;
}

uint64_t
ks_written(int fd, const struct ks_sock *s)
{
	uint64_t head, urgent;

	/* ignore what another process may have put into the page in place of rings */
	if (__builtin_expect(!atomic_load_explicit(&s->attached, memory_order_acquire), 0))
		return atomic_load_explicit(&s->page->rx_tail, memory_order_relaxed);
	head = atomic_load_explicit(&s->rxd->head, memory_order_acquire);
	urgent = atomic_load_explicit(&s->rxd->urgent, memory_order_acquire);
	if (__builtin_expect(!karst_sock_is_ahead(urgent, head, s->buffer), 1))
		return head;
	/* do not check again whether it has come: it may have been taken */
	return urgent == atomic_load_explicit(&s->page->urgent_end, memory_order_relaxed) ||
			ks_urgent_came(fd)
		? urgent
		: head;
}

bool
ks_has_bytes(int fd, const struct ks_sock *s)
{
	return ks_written(fd, s) !=
		atomic_load_explicit(&s->page->rx_tail, memory_order_relaxed) +
		atomic_load_explicit(&s->page->hole, memory_order_relaxed);
}

bool
ks_is_full(const struct ks_sock *s)
{
	return atomic_load_explicit(&s->page->tx_head, memory_order_relaxed) -
		atomic_load_explicit(&s->txd->tail, memory_order_acquire) >=
		s->buffer;
}

size_t
ks_room(const struct ks_sock *s)
{
	uint64_t used = atomic_load_explicit(&s->page->tx_head, memory_order_relaxed) -
		atomic_load_explicit(&s->txd->tail, memory_order_acquire);

	return used < s->buffer ? s->buffer - (size_t)used : 0;
}
