/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Bytes between a program and the buffers of a connection.  karst_sock.h has the rules; who waits
 * does so by a call on the pair, so that signals, SA_RESTART, cancellation, O_NONBLOCK and time
 * limits are as they are with any socket.
 */
#include "ks.h"

#include <pthread.h>
#include <signal.h>

static void
lock_one(pthread_mutex_t *lock)
{
	/* who died with it had not moved a position, which comes last */
	if (pthread_mutex_lock(lock) == EOWNERDEAD)
		pthread_mutex_consistent(lock);
}

void
ks_ring(int fd)
{
	(void)real(send)(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* An error that the service has noted is told once. */
static int
take_error(struct ks_sock *s)
{
	return atomic_exchange(&s->page->error, 0);
}

static size_t
sum(const struct iovec *iov, int n)
{
	size_t total = 0;

	for (int i = 0; i < n; i++)
		total += iov[i].iov_len;
	return total;
}

/* Copies @n bytes between the program's @iov, from @skip bytes on, and position @pos of the buffer
 * that it sends from or receives into. */
static void
copy_iov(
	struct ks_sock *s, bool sends, uint64_t pos, size_t n, const struct iovec *iov, size_t skip)
{
	for (; n > 0; iov++) {
		size_t len;
		char *mem;

		if (skip >= iov->iov_len) {
			skip -= iov->iov_len;
			continue;
		}
		len = iov->iov_len - skip < n ? iov->iov_len - skip : n;
		mem = (char *)iov->iov_base + skip;
		if (sends)
			karst_sock_copy_in(s->tx, s->buffer, pos, mem, len);
		else
			karst_sock_copy_out(mem, s->rx, s->buffer, pos, len);
		pos += len;
		n -= len;
		skip = 0;
	}
}

/* --- receiving --- */

/* The buffer is empty: so that nobody is told that there is something, the token goes. */
static void
take_token(int fd, struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	char byte;

	if (atomic_load(&p->rx_tokens) == atomic_load(&p->tokens_taken))
		return;
	if (real(recv)(fd, &byte, 1, MSG_DONTWAIT) != 1)
		return;
	atomic_fetch_add(&p->tokens_taken, 1);
	/* pairs with the service, which moves rx_head and then looks for a token */
	if (atomic_load(&p->rx_head) != atomic_load(&p->rx_tail) &&
		atomic_load(&p->rx_tokens) == atomic_load(&p->tokens_taken))
		ks_ring(fd);
}

/* Bytes were taken: the peer may be waiting for the room. */
static void
tell_room(int fd, struct ks_sock *s, uint64_t tail)
{
	struct karst_sock_page *p = s->page;

	if (tail - atomic_load_explicit(&p->rx_told, memory_order_relaxed) < s->buffer / 4 &&
		(atomic_load(&p->flags) & KARST_SOCK_PEER_BLOCKED) == 0)
		return;
	atomic_store_explicit(&p->rx_told, tail, memory_order_relaxed);
	ks_ring(fd);
}

/* What is there now, behind @skip bytes that were got before.  @iov NULL: it is thrown away. */
static size_t
take_some(int fd, struct ks_sock *s, const struct iovec *iov, size_t skip, size_t want, int flags)
{
	struct karst_sock_page *p = s->page;
	uint64_t tail, head;
	size_t n;

	lock_one(&p->rx_lock);
	tail = atomic_load_explicit(&p->rx_tail, memory_order_relaxed);
	head = atomic_load_explicit(&p->rx_head, memory_order_acquire);
	n = head - tail < want ? (size_t)(head - tail) : want;
	if (n > 0 && iov != NULL)
		copy_iov(s, false, tail, n, iov, skip);
	if (n > 0 && (flags & MSG_PEEK) == 0) {
		tail += n;
		atomic_store(&p->rx_tail, tail);
		tell_room(fd, s, tail);
	}
	if (atomic_load(&p->rx_head) == tail)
		take_token(fd, s);
	pthread_mutex_unlock(&p->rx_lock);
	return n;
}

/* Waits for the token.  1: look again; 0: nothing will come; -1: errno. */
static int
wait_for_some(int fd, struct ks_sock *s, int flags)
{
	char byte;
	ssize_t n = real(recv)(fd, &byte, 1, flags & MSG_DONTWAIT);

	if (n == 1)
		atomic_fetch_add(&s->page->tokens_taken, 1);
	return (int)n;
}

/* The end of the stream, or of the service.  @return as recv() */
static ssize_t
at_end(struct ks_sock *s, bool service)
{
	int err = take_error(s);

	if (err == 0 && service && (atomic_load(&s->page->flags) & KARST_SOCK_EOF) == 0 &&
		atomic_load(&s->page->shut) == 0)
		err = ECONNRESET; /* the service has gone without a word */
	if (err == 0)
		return 0;
	errno = err;
	return -1;
}

ssize_t
ks_recv(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	size_t want = sum(iov, n), got = 0;
	int rc;

	if (flags & (MSG_OOB | MSG_ERRQUEUE)) {
		errno = flags & MSG_OOB ? EINVAL : EAGAIN;
		return -1;
	}
	if (flags & MSG_TRUNC)
		iov = NULL; /* as TCP: bytes are thrown away */
	for (;;) {
		got += take_some(fd, s, iov, got, want - got, flags);
		if (got == want || (got > 0 && (flags & (MSG_WAITALL | MSG_PEEK)) != MSG_WAITALL))
			return (ssize_t)got;
		if (atomic_load(&s->page->flags) & KARST_SOCK_EOF) {
			/* bytes that came in front of it */
			if (atomic_load(&s->page->rx_head) != atomic_load(&s->page->rx_tail))
				continue;
			return got > 0 ? (ssize_t)got : at_end(s, false);
		}
		rc = wait_for_some(fd, s, flags);
		if (rc < 0)
			return got > 0 ? (ssize_t)got : -1;
		if (rc == 0 && (atomic_load(&s->page->flags) & KARST_SOCK_EOF) == 0)
			return got > 0 ? (ssize_t)got : at_end(s, true);
	}
}

/* --- sending --- */

/* There was no room: so that nobody is told that there is, the pair is filled. */
static void
fill_pair(int fd, struct ks_sock *s)
{
	static const char bytes[KARST_SOCK_STOP];
	struct karst_sock_page *p = s->page;

	if (atomic_load(&p->stops) != atomic_load(&p->stops_taken))
		return; /* it is */
	atomic_fetch_add(&p->stops, 1);
	(void)real(send)(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* As much as there is room for. */
static size_t
put_some(int fd, struct ks_sock *s, const struct iovec *iov, size_t skip, size_t want)
{
	struct karst_sock_page *p = s->page;
	uint64_t head, tail;
	size_t n;

	lock_one(&p->tx_lock);
	head = atomic_load_explicit(&p->tx_head, memory_order_relaxed);
	tail = atomic_load_explicit(&p->tx_tail, memory_order_acquire);
	n = s->buffer - (size_t)(head - tail);
	n = n < want ? n : want;
	if (n > 0) {
		copy_iov(s, true, head, n, iov, skip);
		atomic_store(&p->tx_head, head + n);
		/* who has not seen what was there before will see this, too */
		if (atomic_load(&p->tx_seen) == head)
			ks_ring(fd);
	} else {
		fill_pair(fd, s);
	}
	pthread_mutex_unlock(&p->tx_lock);
	return n;
}

static ssize_t
broken(int flags, int err)
{
	if (err == EPIPE && (flags & MSG_NOSIGNAL) == 0)
		pthread_kill(pthread_self(), SIGPIPE);
	errno = err;
	return -1;
}

/* Nothing can be sent any more.  The error is left to the next call if this one has sent bytes. */
static ssize_t
send_ended(struct ks_sock *s, size_t done, int flags)
{
	int err;

	if (done > 0)
		return (ssize_t)done;
	err = take_error(s);
	return broken(flags, err != 0 ? err : EPIPE);
}

static bool
send_is_over(const struct ks_sock *s)
{
	return (atomic_load(&s->page->flags) & KARST_SOCK_NO_SEND) != 0 ||
		atomic_load(&s->page->shut) != 0 || atomic_load(&s->page->error) != 0;
}

ssize_t
ks_send(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	size_t want = sum(iov, n), done = 0;

	if (flags & MSG_OOB) {
		errno = EOPNOTSUPP;
		return -1;
	}
	for (;;) {
		if (send_is_over(s))
			return send_ended(s, done, flags);
		done += put_some(fd, s, iov, done, want - done);
		if (done == want)
			return (ssize_t)done;
		/* the pair is full, or will be: this waits until it is not */
		if (atomic_load(&s->page->tx_head) - atomic_load(&s->page->tx_tail) == s->buffer) {
			lock_one(&s->page->tx_lock);
			fill_pair(fd, s);
			pthread_mutex_unlock(&s->page->tx_lock);
			if (real(send)(fd, "", 1, (flags & MSG_DONTWAIT) | MSG_NOSIGNAL) < 0) {
				if (errno == EPIPE)
					return send_ended(s, done, flags);
				return done > 0 ? (ssize_t)done : -1;
			}
		}
	}
}
