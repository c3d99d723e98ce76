/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Streams of records, which the engine writes and programs wait for.
 *
 * A descriptor must be readable only if there is an event to get.  So the events of an object that
 * is destroyed must be removed from its stream.  They may be behind other events, and a socket can
 * only be read from its head.  A stream therefore records up to where such events may be.  They are
 * removed as soon as they are at its head: when the object is destroyed, or when the records before
 * them have been read.  Reading an event costs nothing more while there are none of them.
 *
 * Reading the head with MSG_PEEK and removing it are two system calls, and no other thread may read
 * between them.  Threads that wait in recv() hold no lock, so they are counted; if there are any,
 * the last one to return does the work.  That is soon, because there is something to read.  A
 * thread that enters during the work finds SWEEPING in the count, and waits for reg.
 *
 * recv() is used instead of read() because it is faster, by about what counting costs.
 */
#include "client_priv.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* How many bytes of a stream are checked in one step. */
#define HEAD_BYTES 1024u

/* In @entered: a thread that holds reg has exclusive use of the stream. */
#define SWEEPING (1ull << 63)

/* Removes records that have to be skipped, as far as they are at the head. */
static void
stream_sweep_locked(struct karst_client *c, struct cli_stream *st)
{
	const size_t room = HEAD_BYTES / st->bytes;
	uint8_t head[HEAD_BYTES] __attribute__((aligned(8)));
	size_t n, i;
	ssize_t got;

	while (st->stale > 0) {
		got = recv(st->fd, head, room * st->bytes, MSG_PEEK | MSG_DONTWAIT);
		n = got > 0 ? (size_t)got / st->bytes : 0;
		for (i = 0; i < n && !st->take(c, st, head + i * st->bytes, NULL); i++)
			;
		if (i > 0 && recv(st->fd, head, i * st->bytes, MSG_DONTWAIT) < 0)
			n = 0;
		/* none: the stream is empty, or has ended */
		st->stale = n == 0 || i >= st->stale ? 0 : st->stale - i;
		if (i < n)
			return;
	}
}

/* The same unless threads are reading; with reg held. */
static void
stream_sweep(struct karst_client *c, struct cli_stream *st)
{
	uint64_t nobody = st->left;

	/* pairs with stream_enter(): either this thread sees a reader that enters, or the reader
	 * sees SWEEPING */
	if (!atomic_compare_exchange_strong(&st->entered, &nobody, nobody | SWEEPING))
		return;
	stream_sweep_locked(c, st);
	atomic_fetch_sub(&st->entered, SWEEPING);
}

void
cli_stream_purge(struct karst_client *c, struct cli_stream *st)
{
	int bytes = 0;

	if (ioctl(st->fd, FIONREAD, &bytes) != 0)
		return;
	/* a reader may have received one of them already, and will count it */
	st->stale = (uint64_t)bytes / st->bytes + (atomic_load(&st->entered) - st->left);
	stream_sweep(c, st);
}

/* --- reading --- */

struct reader {
	struct karst_client *c;
	struct cli_stream *st;
};

static void
stream_enter(const struct reader *r)
{
	/* pairs with stream_sweep() */
	while (karst_unlikely(atomic_fetch_add(&r->st->entered, 1) & SWEEPING)) {
		atomic_fetch_sub(&r->st->entered, 1);
		karst_mutex_lock(&r->c->reg);
		karst_mutex_unlock(&r->c->reg);
	}
}

/* With reg held: the thread has returned from recv() with @n records. */
static void
stream_leave(const struct reader *r, uint64_t n)
{
	r->st->left++;
	if (karst_likely(r->st->stale == 0))
		return;
	r->st->stale -= n;
	stream_sweep(r->c, r->st);
}

/* Cleanup handler: the thread was cancelled in recv(). */
static void
stream_cancelled(void *arg)
{
	const struct reader *r = arg;

	karst_mutex_lock(&r->c->reg);
	stream_leave(r, 0);
	karst_mutex_unlock(&r->c->reg);
}

/* Reads one record.  @return 0; -EIO: the stream has ended; -EAGAIN, -EINTR. */
static int
read_record(struct reader *r, void *record)
{
	int err = 0;
	ssize_t n;

	pthread_cleanup_push(stream_cancelled, r);
	n = recv(r->st->fd, record, r->st->bytes, 0);
	err = errno;
	pthread_cleanup_pop(0);
	if (n == (ssize_t)r->st->bytes)
		return 0;
	if (n < 0 && (err == EAGAIN || err == EINTR))
		return cli_fail_const(-err, err == EAGAIN ? "no event" : "interrupted by a signal");
	return -EIO;
}

int
cli_stream_next(struct karst_client *c, struct cli_stream *st, void *record, void *event)
{
	struct reader r = {c, st};
	bool taken = false;
	int ret = 0;

	while (ret == 0 && !taken) {
		stream_enter(&r);
		ret = read_record(&r, record);
		karst_mutex_lock(&c->reg);
		taken = ret == 0 && st->take(c, st, record, event);
		stream_leave(&r, ret == 0);
		karst_mutex_unlock(&c->reg);
	}
	return ret;
}
