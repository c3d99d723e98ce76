/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connections of the SMC service as objects: opening with their memory and pair, finding, queueing
 * for a turn, counting and freeing.  smc_conn.c has what they do in between.
 *
 * Files that programs map are sealed, so that programs cannot take pages away.
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "karst_prf.h"

#define HELD_NS 100000000u /* how long a connection waits for its other end before CLC begins */

/* --- references --- */

static uint16_t
port_of(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET ? ((const struct sockaddr_in *)a)->sin_port
				       : ((const struct sockaddr_in6 *)a)->sin6_port;
}

/* Uses a secret key, since users choose addresses and ports, and which of many sockets they
 * keep. */
static uint64_t
end_hash(const struct kd_smc *s, const struct sockaddr_storage *a)
{
	uint64_t ip[2];

	svc_ip_of(a, (uint8_t *)ip);
	return karst_prf(s->hash_key, karst_prf(s->hash_key, ip[0], ip[1]), port_of(a));
}

uint32_t
svc_names_hash(const struct svc_conn *c, bool server)
{
	uint64_t ends = end_hash(c->smc, &c->local) + end_hash(c->smc, &c->peer);

	return (uint32_t)karst_prf(c->smc->hash_key, ends, c->netns ^ server) % SMC_HASH;
}

static uint32_t
cookie_hash(const struct kd_smc *s, uint64_t cookie)
{
	return (uint32_t)karst_prf(s->hash_key, cookie, 0) % SMC_HASH;
}

void
svc_conn_unname(struct svc_conn *c)
{
	if (!c->named)
		return;
	LIST_REMOVE(c, by_names);
	c->named = false;
}

static void
list_in(struct svc_conn *c)
{
	struct kd_smc *s = c->smc;

	LIST_INSERT_HEAD(&s->by_cookie[cookie_hash(s, c->cookie)], c, by_cookie);
	LIST_INSERT_HEAD(&s->by_names[svc_names_hash(c, c->server)], c, by_names);
	c->named = true;
	c->next = s->conns;
	c->pprev = &s->conns;
	if (c->next != NULL)
		c->next->pprev = &c->next;
	s->conns = c;
	s->nconns++;
	s->ndeclined += c->decline;
	svc_user_count(s, c->user, c->decline, 1);
}

static void
list_out(struct svc_conn *c)
{
	LIST_REMOVE(c, by_cookie);
	svc_conn_unname(c);
	if (c->next != NULL)
		c->next->pprev = c->pprev;
	*c->pprev = c->next;
	svc_conn_unhold(c);
	c->smc->nconns--;
	c->smc->ndeclined -= c->decline;
	svc_user_count(c->smc, c->user, c->decline, -1);
}

void
svc_conn_put(struct svc_conn *c)
{
	if (--c->refs != 0)
		return;
	list_out(c);
	c->next = c->smc->dead;
	c->smc->dead = c;
}

static void
conn_free(struct svc_conn *c)
{
	svc_direct_alone(c);
	if (c->tcp >= 0)
		svc_conn_put_tcp(c, false);
	if (c->pair >= 0) {
		svc_unwatch(c->smc, c->pair);
		svc_let_go(c->smc, c->uid, c->pair);
	}
	svc_rings_note(c);
	svc_page_put(c->page_of);
	svc_conn_unmap(c); /* the other end may continue to exist, idle */
	svc_rings_put(c->rings);
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
	c->refs++; /* the reference of the list */
}

/* --- a new connection --- */

static void
pair_ready(struct svc_source *src, uint32_t events)
{
	struct svc_conn *c = svc_of(src, struct svc_conn, pair_source);

	if (c->pair < 0)
		return;
	/* if the program is gone, only the end can be read, and what it rang for before is
	 * checked */
	c->rang = (events & (EPOLLIN | EPOLLHUP)) == EPOLLIN;
	if (c->rang)
		svc_direct_rang(c);
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->gone = c->shut = true;
	c->hung_up |= (events & EPOLLHUP) != 0;
	svc_conn_queue(c);
}

static void
tcp_ready(struct svc_source *src, uint32_t events)
{
	struct svc_conn *c = svc_of(src, struct svc_conn, tcp_source);

	if (c->tcp_over)
		return;
	c->tcp_news = true;
	c->tcp_ends |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
	svc_conn_queue(c);
}

/* Returns the names of a connected socket; only such a socket has a peer's name. */
static int
get_names(int fd, void *arg)
{
	struct svc_names *names = arg;
	socklen_t local = sizeof(names->local), peer = sizeof(names->peer);

	return getpeername(fd, (void *)&names->peer, &peer) != 0 ||
			getsockname(fd, (void *)&names->local, &local) != 0
		? -errno
		: 0;
}

int
svc_conn_ask_names(struct kd_smc *s, uid_t uid, int fd, struct svc_names *names)
{
	memset(names, 0, sizeof(*names));
	return svc_ask(s, uid, fd, get_names, names, sizeof(*names));
}

static void
name_from(struct sockaddr_storage *to, uint32_t family, const uint32_t ip[4], uint16_t port)
{
	struct sockaddr_in *v4 = (void *)to;
	struct sockaddr_in6 *v6 = (void *)to;

	to->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		v4->sin_addr.s_addr = ip[0];
		v4->sin_port = port;
	} else {
		memcpy(&v6->sin6_addr, ip, sizeof(v6->sin6_addr));
		v6->sin6_port = port;
	}
}

/* This does not need the socket's lock, which its program may hold. */
int
svc_conn_names(struct kd_smc *s, uid_t uid, int fd, struct svc_names *names)
{
	struct kd_smc_option_ends ends = {0};
	int rc = kd_smc_option_ends(&s->option, fd, &ends);

	if (rc != 0)
		return rc;
	if (ends.family == 0) {
		rc = svc_conn_ask_names(s, uid, fd, names);
	} else {
		memset(names, 0, sizeof(*names));
		name_from(&names->local, ends.family, ends.local_ip, ends.local_port);
		name_from(&names->peer, ends.family, ends.peer_ip, ends.peer_port);
	}
	names->netns = ends.netns;
	names->peer_listened = ends.peer_listened != 0;
	return rc;
}

static uint32_t
address_bytes(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

int
svc_make_file(uint64_t bytes, int *fd, void **mem)
{
	int f = memfd_create("karst-smc", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc = 0;
	void *m = MAP_FAILED;

	if (f < 0)
		return -errno;
	if (ftruncate(f, (off_t)bytes) != 0 ||
		fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		rc = -errno;
	if (rc == 0 && mem != NULL) {
		m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
		if (m == MAP_FAILED)
			rc = -errno;
		else
			*mem = m;
	}
	if (rc != 0) {
		close(f);
		return rc;
	}
	*fd = f;
	return 0;
}

void
svc_conn_arm(struct svc_conn *c)
{
	c->page->armed = 1;
	atomic_store(&c->page->none.dir[!c->dir].wanted, 1);
	atomic_fetch_or(&c->page->early, KARST_SOCK_EARLY_WANTED);
}

/* The first end, if its peer may be in this service, has no rings before the peer exists.  If it
 * has got some meanwhile, because something else was decided, both ends use those. */
static int
make_rings(struct svc_conn *c, struct svc_prog *prog, const struct svc_conn *other, bool polls)
{
	if (other == NULL && svc_direct_is_near(c)) {
		if (polls)
			svc_conn_arm(c);
		return 0;
	}
	if (other == NULL) {
		c->rings = svc_rings_remote(c, prog);
		if (c->rings != NULL)
			svc_rings_enter(c);
	} else if (other->rings == NULL) {
		c->rings = svc_rings_get(c->smc, other->page_of->prog, prog, c->server);
		if (c->rings != NULL)
			svc_rings_enter(c);
	} else {
		c->rings = other->rings;
		c->rings->refs++;
		c->rings->shared = true;
	}
	atomic_store(&c->page->early, KARST_SOCK_EARLY_CLOSED | KARST_SOCK_EARLY_READY);
	return c->rings != NULL ? 0 : -ENOMEM;
}

bool
svc_conn_map(struct svc_conn *c)
{
	unsigned int tx = c->dir;
	bool early = c->rings == NULL;
	void *map;

	if (c->txd != NULL)
		return true;
	if (early && (c->rings = svc_rings_make(c->smc, c)) == NULL)
		return false;
	if (!svc_rings_map(c->rings)) {
		if (early) {
			svc_rings_put(c->rings);
			c->rings = NULL;
		}
		return false;
	}
	if (early) {
		(void)svc_rings_take_early(c, NULL); /* no memory is needed if they are mapped */
		atomic_fetch_or(&c->page->early, KARST_SOCK_EARLY_READY);
	}
	map = c->rings->map;
	c->rings->nmapped++;
	c->was_mapped = true;
	c->txd = &karst_sock_rings(map, c->buffer)->dir[tx];
	c->rxd = &karst_sock_rings(map, c->buffer)->dir[!tx];
	c->tx = karst_sock_ring(map, c->buffer, tx);
	c->rx = karst_sock_ring(map, c->buffer, !tx);
	return true;
}

void
svc_conn_unmap(struct svc_conn *c)
{
	if (c->txd == NULL)
		return;
	c->txd = c->rxd = NULL;
	c->tx = c->rx = NULL;
	svc_rings_unmap(c->rings);
}

/* Makes the page, and the rings, or uses those of @other, which has the other side. */
static int
make_memory(struct svc_conn *c, struct svc_prog *prog, const struct svc_conn *other, bool polls)
{
	unsigned int tx = other != NULL;
	int rc = svc_page_get(prog, &c->page_of);

	if (rc != 0)
		return rc;
	c->page = c->page_of->mem;
	c->dir = tx;
	c->tx_shift = karst_sock_shift(c->buffer, tx);
	c->rx_shift = karst_sock_shift(c->buffer, !tx);
	rc = make_rings(c, prog, other, polls);
	if (rc != 0)
		return rc;
	c->page->buffer = c->buffer;
	c->page->tx = tx;
	c->page->poll_us = c->smc->conf->smc.poll_us;
	c->page->local = c->local;
	c->page->peer = c->peer;
	c->page->local_len = address_bytes(&c->local);
	c->page->peer_len = address_bytes(&c->peer);
	return 0;
}

/* Returns the pair that @other has for this end, if there is one, or a new one. */
static int
get_pair(struct svc_conn *c, struct svc_conn *other, int *end)
{
	struct svc_pair pair;
	int rc = 0;

	if (other != NULL && other->next_pair.far >= 0) {
		pair = other->next_pair;
		other->next_pair.far = other->next_pair.end = -1;
	} else {
		rc = svc_stock_pair(c->smc, &pair);
	}
	if (rc != 0)
		return rc;
	c->pair = pair.far;
	c->cookie = pair.cookie;
	*end = pair.end;
	return 0;
}

/* Opens the connection in lib/smc, which says what to send.  Without a port nothing is sent but the
 * reason. */
static int
begin_clc(struct svc_conn *c)
{
	struct kd_smc *s = c->smc;
	struct karst_smc_conn_attr attr = {
		.role = c->server ? KARST_SMC_SERVER : KARST_SMC_CLIENT,
		.size = (uint8_t)(__builtin_ctz(c->buffer) - 14),
		.send_bytes = c->buffer,
		.user = c,
	};
	bool port = svc_rdma_is_here(c) && svc_rdma_gid(s, &c->local, attr.local_gid);
	int rc;

	svc_ip_of(&c->peer, attr.peer_ip);
	rc = karst_smc_conn_open(s->core, &attr, &c->id);
	if (rc != 0) {
		c->id = SMC_NO_ID;
		return rc;
	}
	c->refs++; /* the reference of lib/smc */
	svc_spare_take(c);
	if (!port || c->decline)
		(void)karst_smc_conn_decline(
			s->core, c->id, port ? KARST_SMC_DECL_MEMORY : KARST_SMC_DECL_NO_DEVICE);
	return 0;
}

static int
begin(struct svc_conn *c)
{
	int rc = svc_watch(c->smc, c->tcp, SVC_TCP_CLC, &c->tcp_source);

	c->tcp_heard = rc == 0;
	return rc == 0 ? begin_clc(c) : rc;
}

/* If the other end is a program of this service, CLC is not needed, and the other end appears when
 * that program has accepted the connection.  So an end that has connected to a port at which a
 * program of this service listens first waits for that, because the first message of CLC is a good
 * part of the cost of a short connection.  But a listener of the same port may be another program,
 * so the wait is short.  The TCP connection is not watched meanwhile: the peer sends nothing
 * before, and having epoll report its end, in the rare case, would cost two system calls for each
 * connection. */
static bool
holds(struct svc_conn *c)
{
	struct kd_smc *s = c->smc;

	if (!c->peer_listened || c->server || !svc_direct_is_near(c))
		return false;
	c->held_until_ns = s->core->now_ns + HELD_NS;
	c->held_next = NULL;
	c->held_pprev = s->held_tail;
	*s->held_tail = c;
	s->held_tail = &c->held_next;
	return true;
}

void
svc_conn_unhold(struct svc_conn *c)
{
	if (c->held_pprev == NULL)
		return;
	*c->held_pprev = c->held_next;
	if (c->held_next != NULL)
		c->held_next->held_pprev = c->held_pprev;
	else
		c->smc->held_tail = c->held_pprev;
	c->held_pprev = NULL;
}

static int
listen_and_begin(struct svc_conn *c)
{
	int rc = svc_watch(
		c->smc, c->pair, c->hears_less ? SVC_PAIR_DIRECT : SVC_PAIR_RINGS, &c->pair_source);

	if (rc != 0 || c->what == SMC_DIRECT || holds(c))
		return rc;
	return begin(c);
}

/* It cannot begin. */
static void
begin_failed(struct svc_conn *c, int error)
{
	svc_conn_close_tcp(c, true);
	svc_conn_fail(c, error);
}

void
svc_conn_agree(struct svc_conn *c)
{
	int rc;

	if (c->held_pprev == NULL)
		return;
	svc_conn_unhold(c);
	if (c->what != SMC_AGREEING)
		return;
	rc = begin(c);
	if (rc != 0)
		begin_failed(c, -rc);
}

void
svc_conn_agree_held(struct kd_smc *s, bool all)
{
	while (s->held != NULL && (all || s->held->held_until_ns <= s->core->now_ns))
		svc_conn_agree(s->held);
}

void
svc_conn_begin(struct svc_conn *c)
{
	int rc;

	c->begun = true;
	if (c->pair < 0 || c->what == SMC_OVER)
		return;
	rc = listen_and_begin(c);
	if (rc == 0)
		return;
	/* nothing that its program does would be noticed */
	c->gone = c->shut = true;
	if (c->what != SMC_DIRECT)
		begin_failed(c, -rc);
}

uid_t
svc_of_two(uid_t uid, const struct svc_conn *other)
{
	return other != NULL && (uid == 0 || uid == geteuid()) ? other->uid : uid;
}

int
svc_conn_open(struct kd_smc *s, struct svc_prog *prog, int tcp, uint32_t flags, bool decline,
	struct svc_conn **conn, int *end)
{
	struct svc_conn *c, *other;
	struct svc_names names;
	int rc = svc_conn_names(s, prog->user->uid, tcp, &names);

	if (rc != 0)
		return rc;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	*c = (struct svc_conn){
		.smc = s,
		.pair_source.ready = pair_ready,
		.tcp_source.ready = tcp_ready,
		.id = SMC_NO_ID,
		.refs = 1, /* the reference of the program */
		.pair = -1,
		.tcp = tcp,
		.next_pair = {-1, -1, 0},
		.user = prog->user,
		.uid = prog->user->uid,
		.pid = prog->pid,
		.server = (flags & KARST_SOCK_SERVER) != 0,
		.require = (flags & KARST_SOCK_REQUIRE) != 0,
		.decline = decline,
		.buffer = (uint32_t)s->conf->smc.buffer,
	};
	*end = -1;
	c->local = names.local;
	c->peer = names.peer;
	c->netns = names.netns;
	c->peer_listened = names.peer_listened;
	other = !c->decline ? svc_direct_find(c) : NULL;
	rc = make_memory(c, prog, other, (flags & KARST_SOCK_POLLS) != 0);
	if (rc == 0)
		rc = get_pair(c, other, end);
	if (rc == 0 && other == NULL && svc_direct_is_near(c))
		rc = svc_stock_pair(s, &c->next_pair);
	else if (rc == 0 && other == NULL && !svc_conn_map(c))
		rc = -ENOMEM;
	c->hears_less = other != NULL;
	if (rc != 0) {
		if (*end >= 0)
			svc_let_go(s, svc_of_two(c->uid, other), *end);
		c->tcp = -1; /* belongs to the caller */
		conn_free(c);
		return rc;
	}
	list_in(c);
	c->number = ++s->opened;
	if (other != NULL)
		svc_direct_join(other, c, (flags & KARST_SOCK_POLLS) != 0);
	/* the remote peer works while the program gets the answer */
	if (other == NULL && !c->server && !c->decline && !svc_direct_is_near(c))
		svc_conn_begin(c);
	svc_conn_queue(c);
	*conn = c;
	return 0;
}

/* --- all connections --- */

struct svc_conn *
svc_conn_find(struct kd_smc *s, int fd)
{
	struct svc_conn *c;
	uint64_t cookie;
	socklen_t len = sizeof(cookie);

	/* not the inode: its number has 32 bits, and is reused */
	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) != 0)
		return NULL;
	LIST_FOREACH(c, &s->by_cookie[cookie_hash(s, cookie)], by_cookie)
		if (c->cookie == cookie && c->pair >= 0)
			break;
	return c;
}

void
svc_conn_end_all(struct kd_smc *s)
{
	struct svc_conn *c;

	for (c = s->conns; c != NULL; c = c->next) {
		if (c->id != SMC_NO_ID)
			(void)karst_smc_conn_abort(s->core, c->id);
		svc_conn_close_tcp(c, true);
		if (c->pair >= 0 && c->what == SMC_DIRECT)
			svc_direct_fail(c);
		else if (c->pair >= 0)
			svc_conn_fail(c, ECONNRESET);
	}
}
