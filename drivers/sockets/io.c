/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Copies bytes between a program and the buffers of a connection.  karst_sock.h has the rules.  A
 * call that has to wait does so by a call on the pair, so that signals, SA_RESTART, cancellation,
 * O_NONBLOCK and time limits work as with any socket.
 */
#include "ks.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>

#define PEEK_MS 1
#define MOST    0x7ffff000u /* limit of bytes of one call, as in the kernel */

/* If the service has closed its end before it read all tokens, the pair has an error of its own,
 * which poll() would go on to report. */
int
ks_take_error(int fd, struct ks_sock *s)
{
	int err = atomic_exchange(&s->page->error, 0), of_pair;
	socklen_t len = sizeof(of_pair);

	if (err != 0)
		(void)real(getsockopt)(fd, SOL_SOCKET, SO_ERROR, &of_pair, &len);
	return err;
}

static size_t
sum(const struct iovec *iov, int n)
{
	size_t total = 0;

	for (int i = 0; i < n && total < MOST; i++)
		total += iov[i].iov_len < MOST ? iov[i].iov_len : MOST;
	return total < MOST ? total : MOST;
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
			karst_sock_copy_in(s->tx, s->buffer, pos + s->tx_shift, mem, len);
		else
			karst_sock_copy_out(mem, s->rx, s->buffer, pos + s->rx_shift, len);
		pos += len;
		n -= len;
		skip = 0;
	}
}

/* --- receiving --- */

/* The other side has written invalid values: this process trusts nothing more from it, and ends the
 * connection.  The service notices that this end is gone. */
static void
give_up(int fd, struct ks_sock *s)
{
	const uint32_t over = KARST_SOCK_NO_SEND | KARST_SOCK_EOF;

	if ((atomic_load(&s->page->flags) & over) == over)
		return;
	atomic_store(&s->page->error, ECONNABORTED);
	atomic_fetch_or(&s->page->flags, over);
	(void)real(shutdown)(fd, SHUT_RDWR);
}

void
ks_mark(int fd, struct ks_sock *s)
{
	if (atomic_load_explicit(&s->page->watched, memory_order_relaxed) == 0 && !ks_sleeps(s))
		return;
	ks_urgent_restore(fd, s);
	if (ks_has_bytes(fd, s))
		ks_mark_filled(fd, s);
	else
		ks_mark_empty(fd, s);
}

uint64_t
ks_look(int fd, struct ks_sock *s, uint64_t *tail)
{
	struct karst_sock_page *p = s->page;
	uint64_t there;

	*tail = atomic_load_explicit(&p->rx_tail, memory_order_relaxed);
	there = ks_written(fd, s) - *tail;
	if (there > s->buffer || there < p->rx_head - *tail) {
		give_up(fd, s);
		return 0;
	}
	p->rx_head = *tail + there;
	ks_urgent_look(s, tail, &there);
	return there;
}

/* Under rx_lock: called when @n bytes were taken. */
static void
took(int fd, struct ks_sock *s, uint64_t tail, size_t n)
{
	atomic_store_explicit(&s->page->rx_tail, tail + n, memory_order_relaxed);
	atomic_store_explicit(&s->rxd->tail, tail + n, memory_order_release);
	ks_urgent_moved(fd, s);
	ks_read(fd, s, atomic_load_explicit(&s->page->rx_tail, memory_order_relaxed));
	ks_mark(fd, s);
}

/* Takes what is there now; @skip bytes were taken before.  @iov NULL: the bytes are discarded.
 * *@stop: the next byte is urgent.  *@fresh: a mark was found before all other bytes, and was not
 * passed. */
static size_t
take_some(int fd, struct ks_sock *s, const struct iovec *iov, size_t skip, size_t want, int flags,
	bool *stop, bool *fresh)
{
	bool peek = (flags & MSG_PEEK) != 0;
	uint64_t tail, there, hole, mark;
	size_t n;

	ks_enter_rx(fd, s);
	mark = s->page->urgent_end;
	there = ks_look(fd, s, &tail);
	*fresh = s->page->urgent_end != mark && ks_urgent_here(s);
	if (*fresh) {
		*stop = true;
		(void)ks_urgent_came(fd); /* the signal may be on its way to this thread */
		ks_unlock_page(&s->page->rx_lock);
		return 0;
	}
	n = karst_min_u64(ks_urgent_limit(s, tail, there, peek, &hole), want);
	if (n > 0 && iov != NULL)
		copy_iov(s, false, tail + hole, n, iov, skip);
	if (n + hole > 0 && !peek)
		took(fd, s, tail, n + hole);
	else if (there == 0)
		ks_mark(fd, s);
	*stop = ks_urgent_here(s);
	ks_unlock_page(&s->page->rx_lock);
	return n;
}

/* A write of this many bytes does not wait, unless another thread writes to the pipe. */
static size_t
pipe_room(int pipe)
{
	struct pollfd p = {.fd = pipe, .events = POLLOUT};
	int filled = 0, all;

	if (ks_poll_now(&p) <= 0)
		return 0;
	all = real(fcntl64)(pipe, F_GETPIPE_SZ);
	if (all < PIPE_BUF || real(ioctl)(pipe, FIONREAD, &filled) != 0 || filled != 0)
		return PIPE_BUF;
	return (size_t)all;
}

ssize_t
ks_pour(int fd, struct ks_sock *s, int pipe, size_t n)
{
	uint64_t tail, there, hole;
	size_t done = 0, len, room;
	ssize_t put = 0;

	ks_enter_rx(fd, s);
	there = ks_look(fd, s, &tail);
	there = ks_urgent_limit(s, tail, there, false, &hole);
	if (hole != 0)
		took(fd, s, tail, 1);
	tail += hole;
	while (done < n && done < there && (room = pipe_room(pipe)) != 0) {
		size_t at = (tail + done + s->rx_shift) & (s->buffer - 1);

		len = karst_min_u64(karst_min_u64(n, there) - done, s->buffer - at);
		len = karst_min_u64(len, room);
		ks_no_cancel();
		put = real(write)(pipe, s->rx + at, len);
		ks_no_cancel_end();
		if (put < 0)
			break;
		done += (size_t)put;
	}
	if (done > 0)
		took(fd, s, tail, done);
	ks_unlock_page(&s->page->rx_lock);
	return done > 0 ? (ssize_t)done : put < 0 ? -1 : 0;
}

/* Handles the end of the stream, or of the service.  @return as recv() */
static ssize_t
at_end(int fd, struct ks_sock *s, bool service)
{
	int err = ks_take_error(fd, s);

	if (err == 0 && service && !ks_has_ended(s) && atomic_load(&s->page->shut) == 0) {
		/* the service is gone without an end of the stream, or the other program pretends
		 * that it is */
		atomic_fetch_or(&s->page->flags, KARST_SOCK_NO_SEND | KARST_SOCK_EOF);
		err = ECONNRESET;
	}
	if (err == 0)
		return 0;
	errno = err;
	return -1;
}

/* Waits for more bytes than were peeked at already.  These stay in the ring, and their token in the
 * pair, so the function only sleeps for PEEK_MS, and the caller checks again.  False: the ring is
 * full, a signal came, or the call must not wait, or not any longer. */
static bool
wait_for_more(int fd, struct ks_sock *s, int flags, uint64_t since)
{
	return ks_written(fd, s) - atomic_load(&s->page->rx_tail) < s->buffer &&
		!ks_is_late(fd, flags, SO_RCVTIMEO, since) &&
		ks_poll_with(s, NULL, 0, PEEK_MS) == 0;
}

static bool
is_there(int fd, const struct ks_sock *s)
{
	uint64_t n = ks_written(fd, s) - atomic_load(&s->page->rx_tail);

	return ks_has_bytes(fd, s) && n <= s->buffer;
}

ssize_t
ks_recv(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	size_t want = sum(iov, n), got = 0, some;
	uint32_t handlers = ks_held.ended, all = ks_held.handled;
	uint64_t since = 0; /* when it began to wait */
	bool peek = (flags & MSG_PEEK) != 0, stop, fresh;
	int rc;

	ks_meet_peer(fd, s);
	if (flags & MSG_ERRQUEUE) {
		errno = EAGAIN;
		return -1;
	}
	if (flags & MSG_OOB)
		return ks_recv_urgent(fd, s, iov, n, flags);
	if (flags & MSG_TRUNC)
		iov = NULL; /* as TCP: bytes are discarded */
	for (;;) {
		bool ended = ks_has_ended(s); /* first: bytes before the end are there by now */

		if (peek)
			got = 0; /* each time from the beginning */
		some = take_some(fd, s, iov, got, want - got, flags, &stop, &fresh);
		got += some;
		/* a call for no bytes waits, too, as with TCP */
		if ((got == want && (want > 0 || ks_has_bytes(fd, s))) ||
			(got > 0 && (stop || (flags & MSG_WAITALL) == 0)))
			return (ssize_t)got;
		if (fresh && ks_held.ended != handlers) { /* the handler of SIGURG has run */
			ks_interrupted(fd, flags, SO_RCVTIMEO);
			return -1;
		}
		if (fresh || (ended && some > 0 && !peek))
			continue;
		if (ended)
			return got > 0 ? (ssize_t)got : at_end(fd, s, false);
		if (since == 0)
			since = ks_now();
		else if (some == 0 && ks_is_late(fd, flags, SO_RCVTIMEO, since))
			return got > 0 ? (ssize_t)got : -1;
		if (peek && got > 0) {
			if (ks_held.handled != all || !wait_for_more(fd, s, flags, since))
				return (ssize_t)got;
			fd = ks_still(fd, s);
			continue;
		}
		rc = ks_wait_bytes(fd, s, flags, handlers);
		/* the service closed its end before it read all tokens: the page says why */
		if (rc < 0 && errno == ECONNRESET)
			rc = 0;
		fd = ks_still(fd, s);
		if (rc < 0)
			return got > 0 ? (ssize_t)got : -1;
		if (rc == 0 && !ks_has_ended(s) && !is_there(fd, s))
			return got > 0 ? (ssize_t)got : at_end(fd, s, true);
	}
}

/* --- sending --- */

/* Writes into the page while there are no rings; under tx_lock.  False: there are rings by now, or
 * they are needed.  As with the rest of the page, another process may have put invalid values
 * there. */
static bool
put_early(struct ks_sock *s, const struct iovec *iov, size_t skip, size_t n, int flags)
{
	struct karst_sock_page *p = s->page;
	uint32_t early = atomic_load(&p->early), len = early & KARST_SOCK_EARLY_LEN;

	if ((early & KARST_SOCK_EARLY_CLOSED) || (flags & MSG_OOB) ||
		len > KARST_SOCK_EARLY_BYTES || n > KARST_SOCK_EARLY_BYTES - len)
		return false;
	copy_iov(s, true, len, n, iov, skip);
	while (!atomic_compare_exchange_weak(&p->early, &early, early + (uint32_t)n))
		if (early & KARST_SOCK_EARLY_CLOSED)
			return false;
	atomic_store_explicit(&p->tx_head, len + n, memory_order_relaxed);
	atomic_store_explicit(&p->in_middle, 0, memory_order_relaxed);
	return true;
}

/* Writes as much as there is room for.  If an urgent message is sent in parts, each part ends with
 * an urgent byte until the next part is written, as with TCP. */
static size_t
put_some(int fd, struct ks_sock *s, const struct iovec *iov, size_t skip, size_t want, int flags)
{
	struct karst_sock_page *p = s->page;
	uint64_t head, used;
	size_t n = 0;

	ks_lock_tx(s);
	while (!atomic_load(&s->attached)) {
		bool put = !atomic_load(&s->no_rings) && put_early(s, iov, skip, want, flags);

		if (put || atomic_load(&s->no_rings)) {
			ks_unlock_page(&s->page->tx_lock);
			return put ? want : 0;
		}
		ks_unlock_page(&s->page->tx_lock); /* rx_lock has to be taken first */
		ks_need_rings(fd, s);
		ks_lock_tx(s);
	}
	head = atomic_load_explicit(&p->tx_head, memory_order_relaxed);
	used = head - atomic_load_explicit(&s->txd->tail, memory_order_acquire);
	if (used > head - p->tx_tail || used > s->buffer) { /* tail has gone back, or is ahead */
		give_up(fd, s);
	} else {
		p->tx_tail = head - used;
		n = s->buffer - used < want ? (size_t)(s->buffer - used) : want;
	}
	atomic_store_explicit(&p->in_middle, n < want, memory_order_relaxed);
	if (n > 0) {
		copy_iov(s, true, head, n, iov, skip);
		/* first: the byte may be read through its mark before head has moved */
		atomic_store_explicit(&p->tx_head, head + n, memory_order_relaxed);
		if (flags & MSG_OOB)
			ks_wrote_urgent(fd, s, head + n);
		atomic_store_explicit(&s->txd->head, head + n, memory_order_release);
		ks_wrote(fd, s);
	}
	if (used + n == s->buffer &&
		atomic_load_explicit(&s->page->watched, memory_order_relaxed) != 0)
		ks_mark_full(fd, s);
	ks_unlock_page(&s->page->tx_lock);
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

/* As with TCP, where a write after the peer has closed is answered by a reset, too late for that
 * call.  But a program that was in the middle of a write that had no room gets the error now,
 * because not every program checks whether all bytes were sent. */
static bool
is_lost(const struct ks_sock *s)
{
	return (atomic_load(&s->page->flags) & KARST_SOCK_CLOSED) != 0 &&
		(atomic_load(&s->page->shut) & KARST_SOCK_SHUT_WR) == 0 &&
		atomic_load(&s->page->in_middle) == 0 && atomic_load(&s->page->lost) == 0;
}

/* Called when nothing can be sent any more.  If this call has sent bytes, the error is left to the
 * next call. */
static ssize_t
send_ended(int fd, struct ks_sock *s, size_t done, size_t want, int flags)
{
	int err;

	if (done > 0)
		return (ssize_t)done;
	if (fd < 0) { /* another thread has closed it (ks_still()), which ended the connection */
		errno = EBADF;
		return -1;
	}
	err = ks_take_error(fd, s);
	if (err == 0 && is_lost(s)) {
		if (want == 0)
			return 0; /* a write of no bytes has no answer */
		if (atomic_exchange(&s->page->lost, KARST_SOCK_LOST_UNTOLD) == 0) {
			(void)real(shutdown)(fd, SHUT_RDWR); /* so that poll() reports it, too */
			return (ssize_t)want;
		}
	}
	if (atomic_load(&s->page->lost) != 0)
		atomic_store(&s->page->lost, KARST_SOCK_LOST_TOLD);
	return broken(flags, err != 0 ? err : EPIPE);
}

static bool
send_is_over(const struct ks_sock *s)
{
	return (atomic_load(&s->page->flags) & KARST_SOCK_NO_SEND) != 0 ||
		(atomic_load(&s->page->shut) & KARST_SOCK_SHUT_WR) != 0 ||
		atomic_load(&s->page->error) != 0;
}

/* Checks what the other side has done that it does not wait for. */
static void
look_at_left(int fd, struct ks_sock *s, size_t want)
{
	if (!send_is_over(s))
		ks_notice_close(fd, s);
	if (!send_is_over(s) && want > 0)
		ks_notice_shut(fd, s);
}

ssize_t
ks_send(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	size_t want = sum(iov, n), done = 0, some;
	uint32_t handlers = ks_held.ended;
	uint64_t since = 0; /* when it began to wait */

	if (__builtin_expect((flags & MSG_FASTOPEN) != 0, 0)) { /* it would connect */
		errno = EISCONN;
		return -1;
	}
	ks_meet_peer(fd, s);
	for (;;) {
		if (__builtin_expect(atomic_load_explicit(&s->txd->left, memory_order_acquire), 0))
			look_at_left(fd, s, want);
		if (send_is_over(s))
			return send_ended(fd, s, done, want, flags);
		some = put_some(fd, s, iov, done, want - done, flags);
		done += some;
		if (done == want)
			return (ssize_t)done;
		if (since == 0)
			since = ks_now();
		else if (some == 0 && ks_is_late(fd, flags, SO_SNDTIMEO, since))
			return done > 0 ? (ssize_t)done : -1;
		if (ks_wait_room(fd, s, flags, handlers) < 0) {
			/* the latter as in ks_recv() */
			if (errno == EPIPE || (errno == ECONNRESET && send_is_over(s)))
				return send_ended(fd, s, done, want, flags);
			return done > 0 ? (ssize_t)done : -1;
		}
		fd = ks_still(fd, s);
	}
}
