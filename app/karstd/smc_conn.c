/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A connection as its program has it (karst_sock.h says what the two share).
 *
 * The page is hostile.  Of what the program writes there, a position is read once and taken over if
 * it is possible: it has not gone back, and not past what there was.  Else the connection ends as
 * if the program had been killed, and that is counted.  The file is sealed, so that its pages
 * cannot be taken away.
 *
 * Whatever happens to a connection, svc_conn_work() is what looks: it takes over what the program
 * has written and read, tells lib/smc or the TCP socket, and shows the program what has become of
 * it.
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "karst_log.h"

#define CLC_BYTES 2048

/* --- to the program --- */

static void
put_token(struct svc_conn *c)
{
	uint64_t tokens = atomic_load_explicit(&c->page->rx_tokens, memory_order_relaxed);

	/* pairs with the program, which counts a token as taken and then looks for bytes */
	if (tokens != atomic_load(&c->page->tokens_taken))
		return;
	if (send(c->pair, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		atomic_store(&c->page->rx_tokens, tokens + 1);
}

/* What the program has sent into the pair to wake us, or to fill it. */
static void
empty_pair(struct svc_conn *c)
{
	uint64_t stops = atomic_load(&c->page->stops);
	char buf[4096];

	while (recv(c->pair, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	c->stopped = false;
	atomic_store(&c->page->stops_taken, stops);
}

static bool
has_room(const struct svc_conn *c)
{
	return c->what == SMC_OVER || c->tx_head - c->tx_tail <= c->buffer - c->buffer / 4;
}

void
svc_conn_show(struct svc_conn *c)
{
	struct karst_sock_page *p = c->page;

	atomic_store(&p->tx_tail, c->tx_tail);
	atomic_store(&p->rx_head, c->rx_head);
	if (c->rx_head != c->rx_tail)
		put_token(c);
	if (atomic_load(&p->stops) != atomic_load_explicit(&p->stops_taken, memory_order_relaxed))
		c->stopped = true;
	if (!c->stopped || has_room(c))
		empty_pair(c);
}

void
svc_conn_eof(struct svc_conn *c)
{
	if (c->eof)
		return;
	c->eof = true;
	atomic_fetch_or(&c->page->flags, KARST_SOCK_EOF);
	shutdown(c->pair, SHUT_WR);
}

void
svc_conn_fail(struct svc_conn *c, int error)
{
	c->what = SMC_OVER;
	atomic_store(&c->page->error, error != 0 ? error : ECONNRESET);
	atomic_fetch_or(&c->page->flags, KARST_SOCK_NO_SEND);
	atomic_store(&c->page->state, KARST_SOCK_OVER);
	svc_conn_show(c);
	svc_conn_eof(c);
	shutdown(c->pair, SHUT_RDWR);
}

/* --- its life --- */

void
svc_conn_close_tcp(struct svc_conn *c, bool reset)
{
	const struct linger now = {.l_onoff = 1};
	const struct sockaddr none = {.sa_family = AF_UNSPEC};

	if (c->tcp < 0 || c->tcp_over)
		return;
	c->tcp_over = true;
	if (!c->gone) { /* its options may be asked for */
		if (reset)
			(void)connect(c->tcp, &none, sizeof(none));
		else
			shutdown(c->tcp, SHUT_RDWR);
		return;
	}
	if (reset)
		setsockopt(c->tcp, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(c->tcp);
	c->tcp = -1;
}

void
svc_conn_put(struct svc_conn *c)
{
	if (--c->refs != 0)
		return;
	if (c->next != NULL)
		c->next->pprev = c->pprev;
	*c->pprev = c->next;
	c->smc->nconns--;
	c->next = c->smc->dead;
	c->smc->dead = c;
}

static void
conn_free(struct svc_conn *c)
{
	svc_rdma_tx_unkey(c);
	if (c->tcp >= 0)
		close(c->tcp);
	if (c->pair >= 0)
		close(c->pair);
	if (c->page != NULL)
		munmap(c->page, karst_sock_bytes(c->buffer));
	if (c->memfd >= 0)
		close(c->memfd);
	free(c);
}

void
svc_conn_reap(struct kd_smc *s)
{
	struct svc_conn *c;

	while ((c = s->dead) != NULL) {
		s->dead = c->next;
		conn_free(c);
	}
}

void
svc_conn_queue(struct svc_conn *c)
{
	if (c->queued)
		return;
	c->queued = true;
	c->run_next = NULL;
	*c->smc->run_tail = c;
	c->smc->run_tail = &c->run_next;
	c->refs++; /* the list's */
}

/* The program is gone, and nobody else needs the pair. */
static void
drop_program(struct svc_conn *c)
{
	if (c->pair < 0)
		return;
	close(c->pair);
	c->pair = -1;
	svc_conn_put(c);
}

/* --- what the program has done --- */

static void
conn_hostile(struct svc_conn *c, const char *what)
{
	c->smc->faults++;
	karst_log(KARST_LOG_NOTICE, "smc: process %d: impossible %s in a control page", (int)c->pid,
		what);
	if (c->id != SMC_NO_ID)
		(void)karst_smc_conn_abort(c->smc->core, c->id);
	if (c->what == SMC_RELAY)
		svc_conn_close_tcp(c, true);
	svc_conn_fail(c, ECONNABORTED);
}

/* Takes over its positions.  False: they are impossible. */
static bool
take_positions(struct svc_conn *c)
{
	uint64_t head = atomic_load(&c->page->tx_head);
	uint64_t tail = atomic_load_explicit(&c->page->rx_tail, memory_order_acquire);

	if (head - c->tx_tail > c->buffer || head - c->tx_tail < c->tx_head - c->tx_tail) {
		conn_hostile(c, "end of what was written");
		return false;
	}
	if (tail - c->rx_tail > c->rx_head - c->rx_tail) {
		conn_hostile(c, "end of what was read");
		return false;
	}
	if (c->what == SMC_RDMA && c->id != SMC_NO_ID) {
		if (head != c->tx_head)
			(void)karst_smc_conn_send(
				c->smc->core, c->id, (uint32_t)(head - c->tx_head), false);
		if (tail != c->rx_tail)
			(void)karst_smc_conn_consumed(
				c->smc->core, c->id, (uint32_t)(tail - c->rx_tail));
	}
	c->tx_head = head;
	c->rx_tail = tail;
	return true;
}

static void
take_info(struct svc_conn *c)
{
	struct karst_smc_conn_info info;

	if (c->id == SMC_NO_ID || karst_smc_conn_info(c->smc->core, c->id, &info) != 0)
		return;
	c->tx_tail = info.send_over ? c->tx_head : info.free_pos;
	c->rx_head = info.recv_pos;
	if (info.error != 0)
		return; /* svc_conn_fail() says so before it says that this is the end */
	if (info.send_over)
		atomic_fetch_or(&c->page->flags, KARST_SOCK_NO_SEND);
	if (info.peer_blocked)
		atomic_fetch_or(&c->page->flags, KARST_SOCK_PEER_BLOCKED);
	else
		atomic_fetch_and(&c->page->flags, ~KARST_SOCK_PEER_BLOCKED);
	if (info.peer_done) {
		svc_conn_show(c);
		svc_conn_eof(c);
	}
}

/* Tells lib/smc of the ends of the program's direction, or of all of it. */
static void
tell_end(struct svc_conn *c)
{
	if (c->ended || c->id == SMC_NO_ID)
		return;
	if (c->gone) {
		c->ended = true;
		if (atomic_load(&c->page->reset) != 0)
			(void)karst_smc_conn_abort(c->smc->core, c->id);
		else
			(void)karst_smc_conn_close(c->smc->core, c->id);
	} else if (c->shut && !c->shut_told) {
		c->shut_told = true;
		(void)karst_smc_conn_shutdown(c->smc->core, c->id);
	}
}

/* Bytes of CLC on TCP; what is none stays there. */
static void
read_clc(struct svc_conn *c)
{
	uint8_t buf[CLC_BYTES];
	ssize_t n;
	int used = 1;

	while (used > 0 && c->what == SMC_AGREEING && c->id != SMC_NO_ID && !c->tcp_over) {
		n = recv(c->tcp, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT);
		if (n < 0)
			return;
		if (n == 0) {
			/* it has gone before it said anything */
			(void)karst_smc_conn_abort(c->smc->core, c->id);
			return;
		}
		used = karst_smc_clc_rx(c->smc->core, c->id, buf, (size_t)n);
		if (used > 0)
			used = (int)recv(c->tcp, buf, (size_t)used, MSG_DONTWAIT);
	}
}

void
svc_conn_work(struct svc_conn *c)
{
	if (c->what == SMC_AGREEING)
		read_clc(c);
	if (c->what != SMC_OVER) {
		/* first: what was written before it is taken over */
		c->shut |= atomic_load(&c->page->shut) != 0;
		if (!take_positions(c))
			return;
	}
	if (c->what == SMC_RDMA) {
		tell_end(c);
		take_info(c);
	} else if (c->what == SMC_RELAY) {
		svc_relay_work(c);
	}
	if (c->pair < 0)
		return;
	svc_conn_show(c);
	/* pairs with the program, which writes, and then looks whether that was seen */
	atomic_store(&c->page->tx_seen, c->tx_head);
	if (atomic_load(&c->page->tx_head) != c->tx_head && c->what != SMC_OVER)
		svc_conn_queue(c);
	/* pairs with the program, which reads, and then looks at the flag */
	if ((atomic_load(&c->page->flags) & KARST_SOCK_PEER_BLOCKED) &&
		atomic_load(&c->page->rx_tail) != c->rx_tail)
		svc_conn_queue(c);
	if (c->gone && c->what != SMC_AGREEING && (c->what != SMC_RELAY || c->tcp_over))
		drop_program(c);
}

/* --- what has happened to it --- */

static void
conn_over(struct svc_conn *c)
{
	uint32_t id = c->id;

	c->id = SMC_NO_ID;
	(void)karst_smc_conn_release(c->smc->core, id);
	svc_rdma_tx_unkey(c);
	svc_conn_put(c); /* lib/smc's */
}

static void
on_connected(struct svc_conn *c)
{
	if (svc_rdma_tx_key(c) != 0) {
		(void)karst_smc_conn_abort(c->smc->core, c->id);
		return;
	}
	c->what = SMC_RDMA;
	atomic_store(&c->page->state, KARST_SOCK_RDMA);
	/* what was written meanwhile */
	if (c->tx_head != 0)
		(void)karst_smc_conn_send(c->smc->core, c->id, (uint32_t)c->tx_head, false);
}

static void
on_fallback(struct svc_conn *c)
{
	struct karst_smc_conn_info info = {0};

	(void)karst_smc_conn_info(c->smc->core, c->id, &info);
	conn_over(c);
	svc_relay_begin(c, info.reason);
}

static void
on_failed(struct svc_conn *c)
{
	struct karst_smc_conn_info info = {0};

	(void)karst_smc_conn_info(c->smc->core, c->id, &info);
	conn_over(c);
	svc_conn_close_tcp(c, true);
	svc_conn_fail(c, info.error);
}

static void
on_reset(struct svc_conn *c)
{
	struct karst_smc_conn_info info = {0};

	(void)karst_smc_conn_info(c->smc->core, c->id, &info);
	take_info(c);
	svc_conn_fail(c, info.error);
	if (!c->ended) {
		c->ended = true;
		(void)karst_smc_conn_close(c->smc->core, c->id);
	}
}

void
svc_conn_event(struct svc_conn *c, uint32_t what)
{
	if (what & KARST_SMC_EV_CONNECTED)
		on_connected(c);
	if (what & KARST_SMC_EV_FALLBACK) {
		on_fallback(c);
	} else if (what & KARST_SMC_EV_FAILED) {
		on_failed(c);
	} else {
		if (what & KARST_SMC_EV_RESET)
			on_reset(c);
		if (what & KARST_SMC_EV_CLOSED) {
			if (c->what == SMC_RDMA)
				take_info(c);
			svc_conn_close_tcp(c, false);
			if (c->what != SMC_OVER && !c->gone)
				svc_conn_fail(c, ECONNABORTED);
			c->what = SMC_OVER;
			atomic_store(&c->page->state, KARST_SOCK_OVER);
			c->refs++; /* until it is looked at */
			conn_over(c);
			svc_conn_queue(c);
			svc_conn_put(c);
			return;
		}
	}
	svc_conn_queue(c);
}

static void
pair_ready(struct svc_source *src, uint32_t events)
{
	struct svc_conn *c = svc_of(src, struct svc_conn, pair_source);

	if (c->pair < 0)
		return;
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->gone = c->shut = true;
	svc_conn_queue(c);
}

static void
tcp_ready(struct svc_source *src, uint32_t events)
{
	struct svc_conn *c = svc_of(src, struct svc_conn, tcp_source);

	if (!c->tcp_over)
		svc_conn_queue(c);
}

/* --- a new one --- */

static int
check_tcp(struct kd_smc *s, int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(int);
	int value;

	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &len) != 0 || value != IPPROTO_TCP)
		return -ENOTSOCK;
	len = sizeof(info);
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return -errno;
	if (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT)
		return -ENOTCONN;
	return kd_smc_option_seen(&s->option, fd) ? 0 : -ENODATA;
}

static int
make_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;
	int rc = pthread_mutexattr_init(&attr);

	if (rc == 0)
		rc = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	if (rc == 0)
		rc = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	if (rc == 0)
		rc = pthread_mutex_init(lock, &attr);
	return -rc;
}

static int
make_memory(struct svc_conn *c)
{
	const uint64_t bytes = karst_sock_bytes(c->buffer);
	void *mem;
	int rc;

	c->memfd = memfd_create("karst-smc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (c->memfd < 0 || ftruncate(c->memfd, (off_t)bytes) != 0 ||
		fcntl(c->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		return -errno;
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->memfd, 0);
	if (mem == MAP_FAILED)
		return -errno;
	c->page = mem;
	c->tx = (uint8_t *)mem + KARST_SOCK_PAGE;
	c->rx = c->tx + c->buffer;
	rc = make_lock(&c->page->rx_lock);
	if (rc == 0)
		rc = make_lock(&c->page->tx_lock);
	c->page->buffer = c->buffer;
	c->page->local_len = c->page->peer_len = sizeof(struct sockaddr_storage);
	if (getsockname(c->tcp, (void *)&c->page->local, &c->page->local_len) != 0 ||
		getpeername(c->tcp, (void *)&c->page->peer, &c->page->peer_len) != 0)
		return -errno;
	c->local = c->page->local;
	c->peer = c->page->peer;
	return rc;
}

static int
make_pair(struct svc_conn *c, int *end)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	const int room = KARST_SOCK_SNDBUF;
	struct stat st;
	uint64_t number;
	int fds[2], n, rc;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number) ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return -errno;
	n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, KARST_SOCK_NAME "%016llx",
		(unsigned long long)number);
	if (bind(fds[0], (void *)&name,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) != 0 ||
		setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) != 0 ||
		fstat(fds[1], &st) != 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) {
		rc = -errno;
		close(fds[0]);
		close(fds[1]);
		return rc;
	}
	c->pair = fds[0];
	c->inode = st.st_ino;
	*end = fds[1];
	return 0;
}

/* lib/smc says what to send; nothing is sent if there is no port, but the peer hears why. */
static int
begin(struct svc_conn *c)
{
	struct kd_smc *s = c->smc;
	struct karst_smc_conn_attr attr = {
		.role = c->server ? KARST_SMC_SERVER : KARST_SMC_CLIENT,
		.size = (uint8_t)(__builtin_ctz(c->buffer) - 14),
		.send_bytes = c->buffer,
		.user = c,
	};
	bool port = svc_rdma_gid(s, &c->local, attr.local_gid);
	int rc = karst_smc_conn_open(s->core, &attr, &c->id);

	if (rc != 0) {
		c->id = SMC_NO_ID;
		return rc;
	}
	c->refs++; /* lib/smc's */
	if (!port)
		(void)karst_smc_conn_decline(s->core, c->id, KARST_SMC_DECL_NO_DEVICE);
	return 0;
}

int
svc_conn_open(struct kd_smc *s, const struct svc_prog *prog, int tcp, uint32_t flags,
	struct svc_conn **conn, int *end)
{
	struct svc_conn *c;
	int rc = check_tcp(s, tcp);

	if (rc != 0)
		return rc;
	if (s->nconns >= s->conf->smc.max_connections)
		return -ENOSPC;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	*c = (struct svc_conn){
		.smc = s,
		.pair_source.ready = pair_ready,
		.tcp_source.ready = tcp_ready,
		.id = SMC_NO_ID,
		.refs = 1, /* the program's */
		.pair = -1,
		.tcp = tcp,
		.memfd = -1,
		.uid = prog->uid,
		.pid = prog->pid,
		.server = (flags & KARST_SOCK_SERVER) != 0,
		.require = (flags & KARST_SOCK_REQUIRE) != 0,
		.buffer = (uint32_t)s->conf->smc.buffer,
	};
	*end = -1;
	rc = make_memory(c);
	if (rc == 0)
		rc = make_pair(c, end);
	if (rc == 0)
		rc = svc_watch(s, c->pair, EPOLLIN | EPOLLRDHUP | EPOLLET, &c->pair_source);
	if (rc == 0)
		rc = svc_watch(
			s, c->tcp, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &c->tcp_source);
	if (rc == 0)
		rc = begin(c);
	if (rc != 0) {
		if (*end >= 0)
			close(*end);
		c->tcp = -1; /* the caller's */
		conn_free(c);
		return rc;
	}
	c->next = s->conns;
	c->pprev = &s->conns;
	if (c->next != NULL)
		c->next->pprev = &c->next;
	s->conns = c;
	s->nconns++;
	c->number = ++s->opened;
	svc_conn_queue(c);
	*conn = c;
	return 0;
}

struct svc_conn *
svc_conn_find(struct kd_smc *s, int fd)
{
	struct svc_conn *c;
	struct stat st;

	if (fstat(fd, &st) != 0 || !S_ISSOCK(st.st_mode))
		return NULL;
	for (c = s->conns; c != NULL; c = c->next)
		if (c->inode == st.st_ino && c->pair >= 0)
			return c;
	return NULL;
}

void
svc_conn_end_all(struct kd_smc *s)
{
	struct svc_conn *c;

	for (c = s->conns; c != NULL; c = c->next) {
		if (c->id != SMC_NO_ID)
			(void)karst_smc_conn_abort(s->core, c->id);
		svc_conn_close_tcp(c, true);
		if (c->pair >= 0)
			svc_conn_fail(c, ECONNRESET);
	}
}
