/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Events that wait for room in their stream: raised as lcores raise them, attended to as karstd
 * does. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine_priv.h"
#include "session_bed.h"
#include "session_priv.h"

/* --- epoll_ctl(), by which a session waits until a program has read --- */

static struct {
	int fd;             /* the calls that add this descriptor or change it */
	void (*call)(void); /* called once, before the first of them; may be NULL */
	bool fail;          /* whether they fail */
} hook = {.fd = -1};

int __real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);

int
__wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	void (*call)(void) = hook.call;

	if (fd != hook.fd || op == EPOLL_CTL_DEL)
		return __real_epoll_ctl(epfd, op, fd, ev);
	hook.call = NULL;
	if (call != NULL)
		call();
	if (!hook.fail)
		return __real_epoll_ctl(epfd, op, fd, ev);
	errno = ENOSPC;
	return -1;
}

/* --- a program with small streams --- */

#define SMALL_STREAM 65536
#define MANY_CQS     800u
#define FILLING      UINT64_MAX /* cookie of the records that fill a stream */

struct program {
	struct engine_bed bed;
	struct client *c;
	struct karst_session *s;
};

struct channel {
	struct session_channel *ch;
	int fd;
};

static bool
readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void
make_small(const struct eng_stream *st)
{
	const int bytes = SMALL_STREAM;

	cr_assert_eq(setsockopt(st->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
}

static void
program_up(struct program *p)
{
	engine_bed_up(&p->bed, &(struct engine_bed_config){0});
	p->c = client_open(p->bed.e, NULL);
	p->s = p->c->s;
	make_small(&p->s->async);
}

static void
program_down(struct program *p)
{
	client_close(p->c);
	engine_bed_down(&p->bed);
}

static struct channel
make_channel(struct program *p)
{
	struct channel c;

	cr_assert_eq(CALL(p->c, CREATE_CHANNEL, create_channel, .reserved = 0), 0);
	c.fd = p->c->fds[0];
	c.ch = eng_handles_get(&p->s->channels, RSP(p->c, create_channel)->channel);
	make_small(&c.ch->stream);
	return c;
}

static struct session_cq *
make_cq(struct program *p, const struct channel *c, uint64_t cookie)
{
	struct client_cq cq;

	client_cq(p->c, 1, c->ch->handle, cookie, &cq);
	return eng_handles_get(&p->s->cqs, cq.handle);
}

static void
fill(const struct channel *c)
{
	const uint64_t cookie = FILLING;

	while (eng_stream_try(&c->ch->stream, &cookie, sizeof(cookie)))
		;
}

/* As the thread does that waits for the program's messages. */
static void
attend_while_asked(const struct program *p)
{
	unsigned int n;

	for (n = 0; readable(karst_session_fd(p->s)); n++) {
		cr_assert_lt(n, 100);
		karst_session_attend(p->s);
	}
}

/* Reads the events that come, without those that filled the stream.  @return how many had
 * @cookie. */
static unsigned int
count_of(const struct program *p, const struct channel *c, uint64_t cookie)
{
	unsigned int n = 0;
	uint64_t got;

	for (attend_while_asked(p); readable(c->fd); attend_while_asked(p)) {
		cr_assert_eq(read(c->fd, &got, sizeof(got)), sizeof(got));
		n += got == cookie;
	}
	return n;
}

/* --- the tests --- */

static struct {
	struct karst_session *s;
	struct session_cq *cq;
} late;

static void
raise_late(void)
{
	eng_session_raise(late.s, late.cq);
}

/* An event that begins to wait when the session's thread has already looked at its queue. */
Test(session_events, raised_while_attended)
{
	struct channel first, second;
	struct session_cq *cq;
	struct program p;

	program_up(&p);
	first = make_channel(&p);
	second = make_channel(&p);
	cq = make_cq(&p, &first, 1);
	late.s = p.s;
	late.cq = make_cq(&p, &second, 2);
	fill(&first);
	fill(&second);
	eng_session_raise(p.s, cq);
	hook.fd = first.ch->stream.fd;
	hook.call = raise_late;
	attend_while_asked(&p);
	cr_assert_null(hook.call);
	cr_assert_eq(count_of(&p, &second, 2), 1);
	cr_assert_eq(count_of(&p, &first, 1), 1);
	close(first.fd);
	close(second.fd);
	program_down(&p);
}

/* What each of many queues has an event in. */
struct many {
	struct program p;
	struct session_cq *cq[MANY_CQS];
	int fd;
	size_t bytes, at; /* of a record, and of its cookie */
	void (*raise)(struct many *m, struct session_cq *cq);
};

/* Reads what is there, and only then raises an event again for each that was read.  @return how
 * many there were. */
static uint32_t
round_of_many(struct many *m, bool *seen)
{
	static uint64_t cookie[MANY_CQS];
	uint8_t record[64];
	uint32_t n, i;

	for (n = 0; readable(m->fd); n++) {
		cr_assert_lt(n, MANY_CQS);
		cr_assert_eq(read(m->fd, record, m->bytes), m->bytes);
		memcpy(&cookie[n], record + m->at, sizeof(cookie[n]));
		cr_assert_lt(cookie[n], MANY_CQS);
		seen[cookie[n]] = true;
	}
	for (i = 0; i < n; i++)
		m->raise(m, m->cq[cookie[i]]);
	attend_while_asked(&m->p);
	return n;
}

static void
each_has_its_turn(struct many *m)
{
	static bool seen[MANY_CQS];
	uint32_t i, room, rounds;

	for (i = 0; i < MANY_CQS; i++)
		m->raise(m, m->cq[i]);
	attend_while_asked(&m->p);
	room = round_of_many(m, seen);
	cr_assert_gt(room, 0);
	cr_assert_gt(MANY_CQS, 2 * room);
	for (rounds = 2 * MANY_CQS / room; rounds > 0; rounds--)
		cr_assert_gt(round_of_many(m, seen), 0);
	for (i = 0; i < MANY_CQS; i++)
		cr_assert(seen[i], "queue %u has had no event; room for %u", i, room);
}

static void
raise_completion(struct many *m, struct session_cq *cq)
{
	eng_session_raise(m->p.s, cq);
}

/* A program that has new completions for each event that it reads, on more queues than its channel
 * has room for. */
Test(session_events, each_queue_has_its_turn)
{
	static struct many m = {.bytes = sizeof(uint64_t), .raise = raise_completion};
	struct channel c;
	uint32_t i;

	program_up(&m.p);
	c = make_channel(&m.p);
	m.fd = c.fd;
	for (i = 0; i < MANY_CQS; i++)
		m.cq[i] = make_cq(&m.p, &c, i);
	each_has_its_turn(&m);
	close(c.fd);
	program_down(&m.p);
}

static void
raise_error(struct many *m, struct session_cq *cq)
{
	const struct karst_engine_event ev = {.event = KARST_EVENT_CQ_ERR, .cq = cq->cq};

	eng_session_ops.async_event(m->p.s, &ev);
}

/* The same with asynchronous events. */
Test(session_events, each_object_has_its_turn)
{
	static struct many m = {.bytes = sizeof(struct karst_ctl_async),
		.at = offsetof(struct karst_ctl_async, cookie),
		.raise = raise_error};
	struct channel c;
	uint32_t i;

	program_up(&m.p);
	c = make_channel(&m.p);
	m.fd = m.p.c->async_fd;
	for (i = 0; i < MANY_CQS; i++)
		m.cq[i] = make_cq(&m.p, &c, i);
	each_has_its_turn(&m);
	close(c.fd);
	program_down(&m.p);
}

/* When it is known that a stream is full, further events for it give nobody work before the program
 * has read. */
Test(session_events, nobody_is_woken_in_vain)
{
	struct session_cq *cq[3];
	struct program p;
	struct channel c;
	uint32_t i;

	program_up(&p);
	c = make_channel(&p);
	for (i = 0; i < 3; i++)
		cq[i] = make_cq(&p, &c, 1);
	fill(&c);
	eng_session_raise(p.s, cq[0]);
	cr_assert(readable(karst_session_fd(p.s)));
	attend_while_asked(&p);
	for (i = 1; i < 3; i++) {
		eng_session_raise(p.s, cq[i]);
		cr_assert_not(readable(karst_session_fd(p.s)), "after queue %u", i);
	}
	cr_assert_eq(count_of(&p, &c, 1), 3);
	/* and again */
	fill(&c);
	eng_session_raise(p.s, cq[0]);
	cr_assert(readable(karst_session_fd(p.s)));
	cr_assert_eq(count_of(&p, &c, 1), 1);
	close(c.fd);
	program_down(&p);
}

/* A session that nobody attends to, as that of a program that embeds the engine may be: requests do
 * it. */
Test(session_events, requests_attend)
{
	struct session_cq *cq[2];
	struct program p;
	struct channel c;
	uint64_t cookie;
	uint32_t i;

	program_up(&p);
	c = make_channel(&p);
	for (i = 0; i < 2; i++)
		cq[i] = make_cq(&p, &c, 1);
	fill(&c);
	eng_session_raise(p.s, cq[0]);
	(void)client_pd(p.c);
	eng_session_raise(p.s, cq[1]);
	while (readable(c.fd))
		cr_assert_eq(read(c.fd, &cookie, sizeof(cookie)), sizeof(cookie));
	(void)client_pd(p.c);
	for (i = 0; i < 2; i++) {
		cr_assert(readable(c.fd), "after %u", i);
		cr_assert_eq(read(c.fd, &cookie, sizeof(cookie)), sizeof(cookie));
		cr_assert_eq(cookie, 1);
	}
	close(c.fd);
	program_down(&p);
}

/* A channel is destroyed while the session waits for room in it; another one may have its
 * descriptor's number. */
Test(session_events, full_channel_destroyed)
{
	struct session_cq *cq;
	struct program p;
	struct channel c;
	uint32_t i;

	program_up(&p);
	for (i = 0; i < 3; i++) {
		c = make_channel(&p);
		cq = make_cq(&p, &c, 1);
		fill(&c);
		eng_session_raise(p.s, cq);
		attend_while_asked(&p);
		cr_assert_eq(CALL(p.c, DESTROY_CQ, destroy_cq, .cq = cq->handle), 0);
		cr_assert_eq(
			CALL(p.c, DESTROY_CHANNEL, destroy_channel, .channel = c.ch->handle), 0);
		attend_while_asked(&p);
		close(c.fd);
	}
	program_down(&p);
}

/* The kernel refuses to wait for room (fs.epoll.max_user_watches): the next request looks. */
Test(session_events, room_cannot_be_awaited)
{
	struct session_cq *cq[2];
	struct program p;
	struct channel c;
	uint64_t cookie;
	uint32_t i;

	program_up(&p);
	c = make_channel(&p);
	for (i = 0; i < 2; i++)
		cq[i] = make_cq(&p, &c, 1);
	fill(&c);
	hook.fd = c.ch->stream.fd;
	hook.fail = true;
	eng_session_raise(p.s, cq[0]);
	attend_while_asked(&p);
	while (readable(c.fd))
		cr_assert_eq(read(c.fd, &cookie, sizeof(cookie)), sizeof(cookie));
	(void)client_pd(p.c);
	cr_assert(readable(c.fd));
	cr_assert_eq(count_of(&p, &c, 1), 1);
	/* an event that comes later still wakes the thread */
	fill(&c);
	eng_session_raise(p.s, cq[1]);
	cr_assert(readable(karst_session_fd(p.s)));
	close(c.fd);
	program_down(&p);
}

/* --- events of ports --- */

#define PORT_OF_EVENTS 1u

static void
raise_port(const struct program *p, uint32_t event)
{
	const struct karst_engine_event ev = {.event = event, .port = PORT_OF_EVENTS};

	eng_session_ops.async_event(p->s, &ev);
}

/* Raises the events of a port while the stream is full.  The program must then read @expect; both
 * end with 0. */
static void
ports_in_order(const uint32_t *raised, const uint32_t *expect)
{
	const struct karst_ctl_async filling = {.event = KARST_EVENT_DEVICE_FATAL};
	struct karst_ctl_async ev = filling;
	struct program p;
	uint32_t i;

	program_up(&p);
	while (eng_stream_try(&p.s->async, &filling, sizeof(filling)))
		;
	for (i = 0; raised[i] != 0; i++) {
		raise_port(&p, raised[i]);
		attend_while_asked(&p);
	}
	for (i = 0; readable(p.c->async_fd); attend_while_asked(&p)) {
		cr_assert_eq(read(p.c->async_fd, &ev, sizeof(ev)), sizeof(ev));
		if (ev.event == filling.event)
			continue;
		cr_assert_eq(ev.event, expect[i], "event %u: %#x, not %#x", i, ev.event, expect[i]);
		cr_assert_eq(ev.handle, PORT_OF_EVENTS + 1);
		i++;
	}
	cr_assert_eq(expect[i], 0, "%u events only", i);
	program_down(&p);
}

/* A port is lost, comes back and loses its link: the program does not hear last that it is gone. */
Test(session_events, a_link_that_is_lost_after_its_port)
{
	static const uint32_t raised[] = {KARST_EVENT_PORT_ERR, KARST_EVENT_PORT_GONE,
		KARST_EVENT_GID_CHANGE, KARST_EVENT_PORT_ACTIVE, KARST_EVENT_PORT_ERR, 0};
	static const uint32_t expect[] = {
		KARST_EVENT_PORT_GONE, KARST_EVENT_GID_CHANGE, KARST_EVENT_PORT_ERR, 0};

	ports_in_order(raised, expect);
}

/* Then it is lost again: the program does not hear last of its addresses. */
Test(session_events, a_port_that_is_lost_twice)
{
	static const uint32_t raised[] = {KARST_EVENT_PORT_ERR, KARST_EVENT_PORT_GONE,
		KARST_EVENT_GID_CHANGE, KARST_EVENT_PORT_ACTIVE, KARST_EVENT_PORT_ERR,
		KARST_EVENT_PORT_GONE, 0};
	static const uint32_t expect[] = {KARST_EVENT_PORT_ERR, KARST_EVENT_PORT_GONE, 0};

	ports_in_order(raised, expect);
}
