/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How a TCP socket becomes a connection of the service: the socket is handed over, and the
 * program's end of a pair takes its descriptor number, with the flags and time limits that the
 * socket had.  Whatever the two sides then agree on, the program may write and wait at once.
 */
#include "ks.h"

#include <fcntl.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_MS 2000 /* wait for the first message of a peer that has to be declined */
#define SEEN_ROW 16u

bool
ks_is_tcp(int fd)
{
	int protocol = 0, err = errno;
	socklen_t len = sizeof(protocol);
	bool yes = real(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
		protocol == IPPROTO_TCP;

	errno = err;
	return yes;
}

bool
ks_is_unused(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);
	int err = errno;
	bool yes = real(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
		info.tcpi_state == TCP_CLOSE;

	errno = err;
	return yes;
}

static void *
map_file(int fd, uint64_t bytes)
{
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return mem != MAP_FAILED ? mem : NULL;
}

/* --- rings --- */

/* Until there are rings, written bytes go into the page, and nothing is received. */
static void
use_page(struct ks_sock *s)
{
	unsigned int tx = s->page->tx != 0;

	s->txd = &s->page->none.dir[tx];
	s->rxd = &s->page->none.dir[!tx];
	s->tx = s->rx = s->page->early_bytes;
}

/* Under both locks.  The first process of those that share the page takes over the earlier state.
 * Bytes in early that are not yet in tx_head were written by a writer that has died.  If a token is
 * wanted and early did not have the request in time, wanted is set again. */
static void
use_rings(struct ks_sock *s, void *map, uint32_t number)
{
	struct karst_sock_rings *rings = karst_sock_rings(map, s->buffer);
	struct karst_sock_page *p = s->page;
	uint32_t early = atomic_load(&p->early);
	unsigned int tx = p->tx != 0;

	s->map = map;
	s->rings = number;
	s->tx = karst_sock_ring(map, s->buffer, tx);
	s->rx = karst_sock_ring(map, s->buffer, !tx);
	s->tx_shift = karst_sock_shift(s->buffer, tx);
	s->rx_shift = karst_sock_shift(s->buffer, !tx);
	if (!p->attached) {
		p->attached = 1;
		if (atomic_load(&p->tx_head) < (early & KARST_SOCK_EARLY_LEN))
			atomic_store(&p->tx_head, early & KARST_SOCK_EARLY_LEN);
		if (p->armed && (early & KARST_SOCK_EARLY_WANTED) == 0)
			atomic_store(&rings->dir[!tx].wanted, 1);
	}
	s->txd = &rings->dir[tx];
	s->rxd = &rings->dir[!tx];
	atomic_store_explicit(&s->attached, true, memory_order_release);
}

/* Maps the file @fd.  Sets *@number to 0 if the rings must not be kept.  NULL: it cannot be
 * mapped. */
static void *
new_rings(const struct ks_sock *s, uint32_t *number, int fd)
{
	void *map = map_file(fd, karst_sock_bytes(s->buffer));

	if (map != NULL) /* the page with the positions, which all streams touch */
		(void)madvise((uint8_t *)map + s->buffer, KARST_SOCK_PAGE, MADV_POPULATE_WRITE);
	if (map != NULL &&
		(s->number == 0 || !ks_rings_keep(*number, s->generation, map, s->buffer)))
		*number = 0;
	return map;
}

static void *
ask_rings(int fd, const struct ks_sock *s, uint32_t *number)
{
	struct karst_sock_msg msg = {.op = KARST_SOCK_RINGS};
	int fds[KARST_SOCK_FDS];
	void *map = NULL;

	if (ks_ask(&msg, fd, fds) == 0 && fds[0] >= 0) {
		*number = msg.page;
		map = new_rings(s, number, fds[0]);
	}
	for (int i = 0; i < KARST_SOCK_FDS; i++)
		if (fds[i] >= 0)
			real(close)(fds[i]);
	return map;
}

/* While the service is still making the rings (before EARLY_READY), its answer comes after that.  A
 * child may have written another number into the page, so if there is a child the number comes from
 * the service. */
bool
ks_attach(int fd, struct ks_sock *s)
{
	uint32_t number = 0;
	void *map = NULL;
	int err = errno;

	if (atomic_load(&s->attached))
		return true;
	if (atomic_load(&s->no_rings))
		return false;
	ks_no_cancel();
	if (s->number != 0 && s->forks == ks_forks() &&
		(atomic_load(&s->page->early) & KARST_SOCK_EARLY_READY)) {
		number = atomic_load(&s->page->rings);
		map = ks_rings_get(number, s->generation);
	}
	if (map == NULL)
		map = ask_rings(fd, s, &number);
	if (map != NULL) {
		use_rings(s, map, number);
	} else if (fd >= 0) { /* ks_still() */
		atomic_store(&s->no_rings, true);
		atomic_store(&s->page->error, ECONNABORTED);
		atomic_fetch_or(&s->page->flags, KARST_SOCK_NO_SEND | KARST_SOCK_EOF);
		(void)real(shutdown)(fd, SHUT_RDWR);
	}
	ks_no_cancel_end();
	errno = err;
	return map != NULL;
}

void
ks_need_rings(int fd, struct ks_sock *s)
{
	ks_lock_rx(s);
	ks_lock_tx(s);
	(void)ks_attach(fd, s);
	ks_unlock_page(&s->page->tx_lock);
	ks_unlock_page(&s->page->rx_lock);
}

/* --- a connection --- */

/* @number, @generation: those of the page, which this function takes over.  @rings -1: the rings do
 * not come with the page. */
static struct ks_sock *
make_sock(struct karst_sock_page *page, uint32_t number, uint32_t generation, int rings,
	uint32_t buffer)
{
	struct ks_sock *s = page != NULL ? ks_sock_new() : NULL;
	uint32_t kept;
	void *map;

	if (s == NULL) {
		if (page != NULL)
			ks_page_put(page, number, generation, false);
		return NULL;
	}
	s->page = page;
	s->number = number;
	s->generation = generation;
	s->forks = ks_forks();
	s->refs = 1;
	s->waker = s->next_waker = -1;
	s->buffer = buffer;
	s->poll_ns = ks_has_processors() ? s->page->poll_us * 1000ull : 0;
	use_page(s);
	if (rings < 0)
		return s;
	kept = atomic_load(&page->rings);
	map = new_rings(s, &kept, rings);
	if (map == NULL) {
		ks_put(s);
		return NULL;
	}
	ks_lock_rx(s);
	ks_lock_tx(s);
	use_rings(s, map, kept);
	ks_unlock_page(&page->tx_lock);
	ks_unlock_page(&page->rx_lock);
	return s;
}

/* --- what a socket was set to --- */

/* Settings of the TCP socket, which the pair takes over. */
struct settings {
	int flags;
	bool cloexec, in_line;
	struct f_owner_ex owner; /* 0: there is no owner */
	int sig;
	struct timeval limits[2];
	struct linger linger;
	int inq;
};

static const int limit_names[2] = {SO_RCVTIMEO, SO_SNDTIMEO};

/* Whether a socket of this process may have one of these settings: through a call that this library
 * has seen, or from another process, if the socket came from there. */
static _Atomic uint32_t may_have;

void
ks_note_set(uint32_t what)
{
	if ((atomic_load_explicit(&may_have, memory_order_relaxed) & what) != what)
		atomic_fetch_or(&may_have, what);
}

void
ks_note_option(int level, int name)
{
	if (level == SOL_SOCKET &&
		(name == SO_RCVTIMEO || name == SO_SNDTIMEO || name == SO_LINGER ||
			name == SO_OOBINLINE))
		ks_note_set(KS_SET_OPTION);
	if (level == IPPROTO_TCP && name == TCP_INQ)
		ks_note_set(KS_SET_INQ);
}

static void
see_options(int fd, struct settings *is)
{
	socklen_t len = sizeof(is->linger);

	if (real(getsockopt)(fd, SOL_SOCKET, SO_LINGER, &is->linger, &len) != 0)
		is->linger = (struct linger){0};
	for (int i = 0; i < 2; i++) {
		len = sizeof(is->limits[i]);
		if (real(getsockopt)(fd, SOL_SOCKET, limit_names[i], &is->limits[i], &len) != 0)
			is->limits[i] = (struct timeval){0};
	}
}

static void
see_inq(int fd, struct settings *is)
{
	socklen_t len = sizeof(is->inq);

	if (real(getsockopt)(fd, IPPROTO_TCP, TCP_INQ, &is->inq, &len) != 0)
		is->inq = 0;
}

static void
see_owner(int fd, struct settings *is)
{
	is->sig = real(fcntl64)(fd, F_GETSIG);
	if (real(fcntl64)(fd, F_GETOWN_EX, &is->owner) != 0)
		is->owner = (struct f_owner_ex){0};
}

/* Called while the service works.  A socket that was just accepted has the flags that were asked
 * for, and no owner. */
static void
see_settings(int fd, int accepted, struct settings *is)
{
	uint32_t set = atomic_load(&may_have);

	is->flags = accepted >= 0 ? accepted & SOCK_NONBLOCK : real(fcntl64)(fd, F_GETFL);
	is->cloexec = accepted >= 0 ? (accepted & SOCK_CLOEXEC) != 0
				    : (real(fcntl64)(fd, F_GETFD) & FD_CLOEXEC) != 0;
	if (set & KS_SET_OPTION)
		see_options(fd, is);
	if (set & KS_SET_INQ)
		see_inq(fd, is);
	if (accepted < 0 && (set & KS_SET_OWNER))
		see_owner(fd, is);
}

static void
copy_settings(const struct settings *is, int end, struct ks_sock *s)
{
	if (is->owner.pid != 0)
		(void)real(fcntl64)(end, F_SETOWN_EX, &is->owner);
	if (is->sig > 0)
		(void)real(fcntl64)(end, F_SETSIG, is->sig);
	for (int i = 0; i < 2; i++)
		if (is->limits[i].tv_sec != 0 || is->limits[i].tv_usec != 0) /* a pair has none */
			(void)real(setsockopt)(end, SOL_SOCKET, limit_names[i], &is->limits[i],
				sizeof(is->limits[i]));
	atomic_store(&s->page->reset, is->linger.l_onoff && is->linger.l_linger == 0);
	atomic_store(&s->page->oob_inline, is->in_line);
	atomic_store(&s->page->inq, is->inq != 0);
	atomic_store(&s->page->nonblock, (is->flags & O_NONBLOCK) != 0);
	if ((is->flags & ~O_ACCMODE) != O_NONBLOCK) /* as the service has set it */
		(void)real(fcntl64)(end, F_SETFL, is->flags);
}

static int
take_number(int fd, int end, struct ks_sock *s, const struct settings *is)
{
	copy_settings(is, end, s);
	ks_epoll_remove(fd);
	if (real(dup3)(end, fd, is->cloexec ? O_CLOEXEC : 0) < 0) {
		ks_put(s);
		return -errno;
	}
	ks_set(fd, KS_SMC, s);
	if (fd <= STDERR_FILENO)
		ks_streams_look(fd);
	if (ks_uring_waits() || (is->flags & O_ASYNC) != 0)
		ks_watch(fd);
	return 0;
}

/* A peer that sends first uses TCP; a peer that supports SMC-R waits for our first message. */
static bool
has_data(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return real(poll)(&p, 1, 0) > 0;
}

/* For a connection that was reset meanwhile: discards what has come, which is not a stream, so that
 * the program gets the error. */
static void
throw_away(int fd)
{
	char buf[1024];
	int n = 0;

	if (real(ioctl)(fd, FIONREAD, &n) != 0)
		return;
	while (n > 0) {
		ssize_t got = real(recv)(
			fd, buf, (size_t)n < sizeof(buf) ? (size_t)n : sizeof(buf), MSG_DONTWAIT);

		if (got <= 0)
			return;
		n -= (int)got;
	}
}

/* Queries the TCP socket, which must be done before the service gets it. */
static bool
socket_is_inline(int fd)
{
	int on = 0;
	socklen_t len = sizeof(on);

	return (atomic_load(&may_have) & KS_SET_OPTION) != 0 &&
		real(getsockopt)(fd, SOL_SOCKET, SO_OOBINLINE, &on, &len) == 0 && on != 0;
}

/* Asks the service to open a connection.  If the service has no room, it first has to see what the
 * peer says.  From the answer to ks_release() by the caller, no handler runs, which might end the
 * thread or leave by longjmp(): the descriptors of the answer would stay open. */
static int
ask_open(int fd, int accepted, struct karst_sock_msg *msg, int fds[KARST_SOCK_FDS],
	uint32_t *generation, struct settings *is)
{
	const struct karst_sock_msg req = {.op = KARST_SOCK_OPEN,
		.flags = (accepted >= 0 ? KARST_SOCK_SERVER : 0) |
			(accepted >= 0 && (accepted & SOCK_NONBLOCK) ? KARST_SOCK_POLLS : 0) |
			(ks_require ? KARST_SOCK_REQUIRE : 0)};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t began = ks_now();
	int rc;

	memset(fds, -1, KARST_SOCK_FDS * sizeof(fds[0]));
	do {
		*msg = req;
		ks_hold();
		ks_confine_open_begin();
		if (accepted < 0 && ks_is_confined()) { /* by now */
			msg->flags = KARST_SOCK_PLAIN;
			return 0;
		}
		rc = ks_open_begin(msg, fd, generation);
		if (rc == 0) {
			see_settings(fd, accepted, is);
			rc = ks_open_end(msg, fds);
		}
		if (rc != -EAGAIN)
			return rc;
		ks_confine_open_end();
		ks_release();
		if (real(poll)(&p, 1, FIRST_MS) <= 0)
			break;
		(void)real(poll)(NULL, 0, 1); /* a part of the message may be there */
	} while (ks_now() - began < FIRST_MS * 1000000ull);
	ks_hold();
	ks_confine_open_begin();
	return rc;
}

/* Takes the descriptors of the answer: the end of the pair, the page if it is new, rings if the
 * flags say so, and a waker. */
static struct ks_sock *
take_answer(const struct karst_sock_msg *msg, int fds[KARST_SOCK_FDS], uint32_t generation)
{
	bool kept = (msg->flags & KARST_SOCK_PAGE_KEPT) != 0;
	bool come = (msg->flags & KARST_SOCK_RINGS_COME) != 0;
	uint32_t number = msg->page;
	int *rings = &fds[kept ? 1 : 2], *waker = rings + come;
	struct karst_sock_page *page = ks_page_get(&number, generation, kept, kept ? -1 : fds[1]);
	struct ks_sock *s = make_sock(page, number, generation, come ? *rings : -1, msg->buffer);

	if (s != NULL && ks_is_detached(s))
		ks_need_rings(fds[0], s); /* rings that this process has kept */
	if (s == NULL || (msg->flags & KARST_SOCK_WAKES) == 0 || *waker < 0)
		return s;
	/* the second of two ends knows the other end, and uses the waker from the beginning */
	if (s->page->tx != 0)
		atomic_store(&s->waker, ks_hide_own(*waker));
	else
		s->next_waker = ks_hide_own(*waker);
	*waker = -1;
	return s;
}

/* How many consecutive connections have seen the option, as a client and as a server.  After
 * SEEN_ROW of them this library no longer checks before it opens one, because the service checks,
 * too. */
static _Atomic uint32_t seen_row[2];

static bool
look_whether_seen(int fd, bool server)
{
	bool seen = ks_option_seen(fd);

	if (!seen)
		atomic_store(&seen_row[server], 0);
	else if (atomic_load(&seen_row[server]) < SEEN_ROW)
		atomic_fetch_add(&seen_row[server], 1);
	return seen;
}

/* The connection is the kernel's TCP, and stays so.  @return as ks_become() */
static int
leave(int fd)
{
	ks_forget(fd);
	return ks_require ? -ECONNABORTED : 0;
}

static int
leave_unseen(int fd, bool server)
{
	if (!server)
		ks_note_cannot(fd);
	return leave(fd);
}

/* @return 0 or -errno, from the service; *@plain: the service does not take the socket */
static int
open_at_service(int fd, int accepted, bool *plain)
{
	struct karst_sock_msg msg;
	int fds[KARST_SOCK_FDS], rc, i;
	uint32_t generation = 0;
	struct settings is = {.in_line = socket_is_inline(fd)};
	struct ks_sock *s;

	rc = ask_open(fd, accepted, &msg, fds, &generation, &is);
	if (rc == 0 && (msg.flags & KARST_SOCK_FULL))
		ks_note_full();
	*plain = rc == 0 && (msg.flags & KARST_SOCK_PLAIN) != 0;
	s = rc == 0 && !*plain ? take_answer(&msg, fds, generation) : NULL;
	if (s != NULL)
		s->client = accepted < 0;
	if (rc == 0 && s == NULL && !*plain)
		rc = -ENOMEM;
	if (rc == 0 && !*plain)
		rc = take_number(fd, fds[0], s, &is);
	for (i = 0; i < KARST_SOCK_FDS; i++)
		if (fds[i] >= 0)
			real(close)(fds[i]);
	ks_confine_open_end();
	ks_release();
	return rc;
}

static int
become(int fd, int accepted)
{
	bool server = accepted >= 0, plain = false;
	bool known = atomic_load(&seen_row[server]) >= SEEN_ROW;
	int rc;

	if (!server && ks_is_confined())
		return leave(fd);
	if (!known && !look_whether_seen(fd, server))
		return leave_unseen(fd, server);
	if (!server && has_data(fd))
		return leave(fd);
	rc = open_at_service(fd, accepted, &plain);
	if (plain)
		return leave(fd);
	/* if it was seen, there was no memory to record that; the peer relies on SMC-R, so this is
	 * an error */
	if (rc == -ENODATA && known && !look_whether_seen(fd, server))
		return leave_unseen(fd, server);
	if (rc == -ENOTCONN) {
		throw_away(fd);
		ks_forget(fd);
		return 0;
	}
	return rc == 0 ? 0 : -ECONNABORTED;
}

int
ks_become(int fd, int accepted)
{
	int err = errno, rc;

	ks_no_cancel();
	rc = become(fd, accepted);
	ks_no_cancel_end();
	errno = err;
	return rc;
}

static int
become_or_end(int fd)
{
	int rc = ks_become(fd, -1);

	if (rc != 0)
		(void)real(shutdown)(fd, SHUT_RDWR);
	else if (ks_kind(fd) == KS_SMC)
		ks_epoll_enter(fd);
	return rc;
}

/* As with TCP, where connect() reports once a success that it did not wait for. */
static void
note_untold(int fd)
{
	struct ks_sock *s = ks_get(fd);

	if (s == NULL)
		return;
	atomic_store(&s->untold, true);
	ks_put(s);
}

static void
settle(int fd)
{
	bool tries = ks_kind(fd) == KS_TRIES;
	struct tcp_info info;
	socklen_t len = sizeof(info);

	if (real(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
		info.tcpi_state == TCP_SYN_SENT ||
		(info.tcpi_state == TCP_CLOSE && ks_kind(fd) == KS_WAITS))
		return;
	if (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT)
		ks_forget(fd); /* for example refused: the kernel reports it */
	else if (become_or_end(fd) == 0 && tries)
		note_untold(fd);
}

/* Held by the thread that handles a socket which has connected; several threads may notice it. */
static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER;

void
ks_settle(int fd)
{
	int err = errno;

	ks_lock(&settling);
	if (ks_kind(fd) == KS_TRIES || ks_kind(fd) == KS_WAITS)
		settle(fd);
	ks_unlock(&settling);
	errno = err;
}

/* Another thread may have been first, for example one that has waited for the descriptor. */
int
ks_settle_own(int fd)
{
	int rc = 0;

	ks_lock(&settling);
	if (ks_kind(fd) == KS_WAITS)
		rc = become_or_end(fd);
	else if (ks_require && ks_kind(fd) == KS_PLAIN)
		rc = -ECONNABORTED;
	if (ks_kind(fd) == KS_WAITS)
		ks_forget(fd);
	ks_unlock(&settling);
	return rc;
}

void
ks_settle_not(int fd, enum ks_kind kind)
{
	int err = errno;

	ks_lock(&settling);
	if (ks_kind(fd) == KS_WAITS)
		ks_set(fd, kind, NULL);
	ks_unlock(&settling);
	errno = err;
}

/* Whether @fd may be an end of a pair.  Other sockets may look the same; the service knows. */
static bool
may_be_end(int fd)
{
	int on = 0, domain = 0;
	socklen_t len = sizeof(on);

	return real(getsockopt)(fd, SOL_SOCKET, SO_OOBINLINE, &on, &len) == 0 && on != 0 &&
		real(getsockopt)(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
		domain == AF_UNIX;
}

static void
adopt(int fd)
{
	struct karst_sock_msg msg = {.op = KARST_SOCK_ADOPT};
	struct ks_sock *s;
	int fds[KARST_SOCK_FDS], err = errno;

	if (may_be_end(fd) && ks_ask(&msg, fd, fds) == 0) {
		s = make_sock(map_file(fds[0], KARST_SOCK_PAGE), 0, 0, fds[1], msg.buffer);
		if (s != NULL)
			ks_set(fd, KS_SMC, s);
		if (s != NULL && fd <= STDERR_FILENO)
			ks_streams_look(fd);
		if (s != NULL && ks_uring_waits())
			ks_watch(fd);
		real(close)(fds[0]);
		real(close)(fds[1]);
	}
	errno = err;
}

void
ks_look_at(int fd)
{
	int on = 0;
	socklen_t len = sizeof(on);

	ks_no_cancel();
	if (ks_is_tcp(fd)) {
		ks_note_set(KS_SET_ANY);
		if (real(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on)
			ks_set(fd, KS_LISTENS, NULL);
	} else {
		adopt(fd);
	}
	ks_no_cancel_end();
}

/* --- when the program begins --- */

/* Checks the descriptors that the program has inherited by exec(), or has opened before. */
static void
look_at_all(void)
{
	DIR *d = opendir("/proc/self/fd");
	const struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && fd != dirfd(d))
			ks_look_at(fd);
	}
	closedir(d);
}

/* If one of the two processes changes a setting of a listening socket that both have, the other one
 * does not notice. */
static void
share_settings(void)
{
	if (ks_listens())
		ks_note_set(KS_SET_ANY);
}

/* No thread waits while it holds these locks.  A handler that forks has not interrupted a thread
 * that holds one (calls_signal.c). */
static void
before_fork(void)
{
	ks_streams_hold();
	ks_pages_hold();
	ks_table_hold();
	ks_memory_hold();
}

static void
has_forked(void)
{
	ks_memory_release();
	ks_table_release();
	ks_pages_release();
	ks_streams_release();
	ks_note_fork();
	share_settings();
}

static void
on_fork(void)
{
	ks_memory_forked();
	ks_forked();
	ks_pages_forked();
	ks_drop_late();
	ks_confine_forked();
	ks_life_forked();
	pthread_mutex_init(&settling, NULL);
	ks_streams_forked();
	/* for the four locks that before_fork() has taken.  From now on signal handlers may run,
	 * and use any lock */
	ks_unlocked();
	ks_unlocked();
	ks_unlocked();
	ks_unlocked();
	share_settings();
	ks_locks_forked();
	ks_service_forked(ks_listens() || ks_connects());
}

__attribute__((constructor)) static void
ks_begin(void)
{
	const char *mode = getenv("KARST_SMC");

	ks_real_find();
	ks_forked();
	ks_locks_began();
	ks_require = mode != NULL && strcmp(mode, "require") == 0;
	ks_confine_begin();
	ks_peers_begin();
	pthread_atfork(before_fork, has_forked, on_fork);
	if (ks_is_confined()) /* what these would ask may be forbidden */
		return;
	ks_uring_begin();
	look_at_all();
	ks_service_begin();
}
