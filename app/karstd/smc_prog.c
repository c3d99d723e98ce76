/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs: each process has one connection to the service's socket.  On it the process hands over
 * TCP connections and gets their memory and descriptors.  Requests are answered at once.
 *
 * Requests about a connection contain the connection's own descriptor, so a program cannot get
 * anything of another program's.
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "karst_ctl_sock.h"
#include "karst_log.h"
#include "opts.h"

/* An answer takes the time to wake this thread, and its work: that is longer than the time until
 * the other side of a connection has more to send. */
#define ANSWER_TIMES 6u    /* poll_us */
#define LEFT_MAX     4096u /* connections on TCP that one request may report */

/* Limit for answers that a program has not read.  Descriptors in them count as the daemon's, and
 * their number is limited.  So this is the minimum of the kernel, a few messages. */
#define ANSWERS_SNDBUF 1

/* How long no program is accepted after there was no descriptor for one. */
#define FULL_NS 10000000u

#ifndef IP_LOCAL_PORT_RANGE /* Linux 6.3 */
#define IP_LOCAL_PORT_RANGE 51
#endif

/* --- shares --- */

/* A user has at most three times as many as the number left for others, as with attachments
 * (server.c). */
static bool
user_may_have(uid_t uid, uint32_t his, uint32_t all, uint32_t max)
{
	if (all >= max)
		return false;
	return uid == 0 || uid == geteuid() || his == 0 || his < 3 * (max - all);
}

/* Counts connections that are declined for lack of room and other connections separately: neither
 * kind takes the place of the other. */
static bool
may_open(const struct kd_smc *s, const struct svc_user *u, bool decline)
{
	return user_may_have(u->uid, u->conns[decline],
		decline ? s->ndeclined : s->nconns - s->ndeclined, s->conf->smc.max_connections);
}

static bool
may_come(const struct kd_smc *s, const struct svc_user *u)
{
	return user_may_have(u->uid, u->progs, s->nprogs, SMC_PROGS + s->conf->smc.max_connections);
}

bool
svc_user_may_keep(const struct svc_user *u, enum svc_kept what, uint32_t all, uint32_t max)
{
	return user_may_have(u->uid, u->kept[what], all, max);
}

/* Returns the user, which is new if necessary.  NULL: no memory.  A new one has no objects yet, and
 * has to be freed by user_leave() if it gets none. */
static struct svc_user *
user_of(struct kd_smc *s, uid_t uid)
{
	struct svc_user *u;

	for (u = s->users; u != NULL && u->uid != uid; u = u->next)
		continue;
	if (u == NULL && (u = calloc(1, sizeof(*u))) != NULL) {
		u->uid = uid;
		u->next = s->users;
		s->users = u;
	}
	return u;
}

/* Frees the user if there are no objects left. */
static void
user_leave(struct kd_smc *s, struct svc_user *u)
{
	struct svc_user **at = &s->users;

	if (u == NULL || u->progs + u->conns[0] + u->conns[1] != 0)
		return;
	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	free(u);
}

void
svc_user_count(struct kd_smc *s, struct svc_user *u, bool decline, int more)
{
	u->conns[decline] += (uint32_t)more;
	user_leave(s, u);
}

/* --- requests --- */

/* The descriptors of an answer.  With @own, the first one is a copy that is closed after
 * sending. */
struct handed {
	int fds[KARST_SOCK_FDS];
	unsigned int n, own;
	uid_t uid; /* the user who may have sent something to that one */
};

static int
on_hello(struct svc_prog *p, struct karst_sock_msg *rsp, struct handed *out)
{
	rsp->buffer = ANSWER_TIMES * p->smc->conf->smc.poll_us;
	out->fds[out->n++] = p->smc->option.sockets;
	return 0;
}

/* Adds the memory of a connection to the answer. */
static void
hand_out(struct svc_conn *c, struct karst_sock_msg *rsp, struct handed *out)
{
	struct svc_rings_side *side = c->rings != NULL ? svc_rings_side(c->rings, c) : NULL;

	rsp->page = c->page_of->number;
	if (c->page_of->kept)
		rsp->flags |= KARST_SOCK_PAGE_KEPT;
	else
		out->fds[out->n++] = c->page_of->fd;
	if (c->rings == NULL || (side != NULL && side->known))
		return;
	c->has_rings = true;
	if (side != NULL) {
		side->known = true;
		atomic_store(&c->page->rings, side->number);
	}
	rsp->flags |= KARST_SOCK_RINGS_COME;
	out->fds[out->n++] = c->rings->fd;
}

static int
on_open(struct svc_prog *p, const struct karst_sock_msg *req, int tcp, struct karst_sock_msg *rsp,
	struct handed *out)
{
	bool decline = !may_open(p->smc, p->user, false);
	struct svc_names names;
	struct svc_conn *c;
	int rc, end, waker;

	svc_page_unmapped(p, req);
	p->smc->short_on_tcp += karst_min_u32(req->left, LEFT_MAX);
	if (req->flags & ~(KARST_SOCK_SERVER | KARST_SOCK_REQUIRE | KARST_SOCK_POLLS))
		return -EINVAL;
	if (decline) /* its peer, if it belongs to this service, has to begin CLC, so that it can
		      * be declined */
		svc_conn_agree_held(p->smc, true);
	if (decline && !may_open(p->smc, p->user, true)) {
		rc = svc_conn_names(p->smc, p->user->uid, tcp, &names);
		if (rc == 0)
			rc = svc_decline(
				p->smc, p->user->uid, tcp, (req->flags & KARST_SOCK_SERVER) != 0);
		p->smc->turned_away += rc == 0;
		rsp->flags = KARST_SOCK_FULL | KARST_SOCK_PLAIN;
		return rc;
	}
	rc = svc_conn_open(p->smc, p, tcp, req->flags, decline, &c, &end);
	if (rc != 0)
		return rc;
	rsp->buffer = c->buffer;
	rsp->flags = decline ? KARST_SOCK_FULL : 0;
	out->fds[out->n++] = end;
	out->own = 1;
	out->uid = svc_of_two(c->uid, c->other);
	hand_out(c, rsp, out);
	waker = svc_direct_early_waker(c);
	if (waker >= 0) {
		rsp->flags |= KARST_SOCK_WAKES;
		out->fds[out->n++] = waker;
	}
	return 0;
}

static int
on_adopt(struct svc_prog *p, int end, struct karst_sock_msg *rsp, struct handed *out)
{
	struct svc_conn *c = svc_conn_find(p->smc, end);

	if (c == NULL)
		return -ENOENT;
	if (c->rings == NULL && !svc_conn_map(c))
		return -ENOMEM;
	svc_page_share(c->page_of);
	c->has_rings = true;
	c->rings->shared = true;
	out->fds[out->n++] = c->page_of->fd;
	out->fds[out->n++] = c->rings->fd;
	rsp->buffer = c->buffer;
	return 0;
}

/* Answers a program that has not got the rings yet, or a child that has inherited the
 * connection. */
static int
on_rings(struct svc_prog *p, int end, struct karst_sock_msg *rsp, struct handed *out)
{
	struct svc_conn *c = svc_conn_find(p->smc, end);
	struct svc_rings_side *side;

	if (c == NULL)
		return -ENOENT;
	if (c->rings == NULL && !svc_conn_map(c))
		return -ENOMEM;
	side = svc_rings_side(c->rings, c);
	if (side != NULL && side->prog == p) {
		side->known = true;
		rsp->page = side->number;
	} else if (c->page_of->prog != p) {
		svc_page_share(c->page_of);
		c->rings->shared = true;
	}
	out->fds[out->n++] = c->rings->fd;
	if (!c->has_rings && atomic_load(&c->page->state) == KARST_SOCK_OVER)
		shutdown(c->pair, SHUT_RDWR);
	c->has_rings = true;
	return 0;
}

static int
on_waker(struct svc_prog *p, int end, struct handed *out)
{
	struct svc_conn *c = svc_conn_find(p->smc, end);
	int waker = c != NULL ? svc_direct_waker(c) : -ENOENT;

	if (waker < 0)
		return waker;
	out->fds[out->n++] = waker;
	return 0;
}

static int
on_wake(struct svc_prog *p, const struct karst_sock_msg *req, int end)
{
	struct svc_conn *c = svc_conn_find(p->smc, end);

	if (c == NULL)
		return -ENOENT;
	svc_direct_wake(c, req->flags);
	svc_conn_queue(c);
	return 0;
}

/* Options whose values are only numbers and names.  Others contain addresses (SO_ATTACH_FILTER,
 * TCP_ZEROCOPY_RECEIVE), which would be addresses in the daemon. */
static bool
is_harmless(int level, int name)
{
	static const struct {
		int level, name;
	} harmless[] = {
		{SOL_SOCKET, SO_KEEPALIVE},
		{SOL_SOCKET, SO_LINGER},
		{SOL_SOCKET, SO_SNDBUF},
		{SOL_SOCKET, SO_RCVBUF},
		{SOL_SOCKET, SO_REUSEADDR},
		{SOL_SOCKET, SO_REUSEPORT},
		{SOL_SOCKET, SO_PRIORITY},
		{SOL_SOCKET, SO_DONTROUTE},
		{SOL_SOCKET, SO_DOMAIN},
		{SOL_SOCKET, SO_PROTOCOL},
		{SOL_SOCKET, SO_INCOMING_CPU},
		{SOL_SOCKET, SO_BUSY_POLL},
		{SOL_SOCKET, SO_BROADCAST},
		{SOL_SOCKET, SO_PEERCRED},
		{SOL_SOCKET, SO_MARK},
		{SOL_SOCKET, SO_MAX_PACING_RATE},
		{SOL_SOCKET, SO_COOKIE},
		{SOL_SOCKET, SO_MEMINFO},
		{SOL_SOCKET, SO_INCOMING_NAPI_ID},
		{SOL_SOCKET, SO_PREFER_BUSY_POLL},
		{SOL_SOCKET, SO_BUSY_POLL_BUDGET},
		{SOL_SOCKET, SO_BINDTODEVICE},
		{SOL_SOCKET, SO_BINDTOIFINDEX},
		{SOL_SOCKET, SO_SNDLOWAT},
		{SOL_SOCKET, SO_BUF_LOCK},
		{SOL_SOCKET, SO_TXREHASH},
		{SOL_SOCKET, SO_DEBUG},
		{SOL_SOCKET, SO_NO_CHECK},
		{SOL_SOCKET, SO_BSDCOMPAT},
		{SOL_SOCKET, SO_PASSCRED},
		{SOL_SOCKET, SO_PASSSEC},
		{SOL_SOCKET, SO_RXQ_OVFL},
		{SOL_SOCKET, SO_WIFI_STATUS},
		{SOL_SOCKET, SO_NOFCS},
		{SOL_SOCKET, SO_DETACH_FILTER},
		{SOL_SOCKET, SO_LOCK_FILTER},
		{SOL_SOCKET, SO_SELECT_ERR_QUEUE},
		{SOL_SOCKET, SO_BPF_EXTENSIONS},
		{IPPROTO_TCP, TCP_NODELAY},
		{IPPROTO_TCP, TCP_MAXSEG},
		{IPPROTO_TCP, TCP_CORK},
		{IPPROTO_TCP, TCP_KEEPIDLE},
		{IPPROTO_TCP, TCP_KEEPINTVL},
		{IPPROTO_TCP, TCP_KEEPCNT},
		{IPPROTO_TCP, TCP_SYNCNT},
		{IPPROTO_TCP, TCP_LINGER2},
		{IPPROTO_TCP, TCP_DEFER_ACCEPT},
		{IPPROTO_TCP, TCP_WINDOW_CLAMP},
		{IPPROTO_TCP, TCP_INFO},
		{IPPROTO_TCP, TCP_QUICKACK},
		{IPPROTO_TCP, TCP_CONGESTION},
		{IPPROTO_TCP, TCP_USER_TIMEOUT},
		{IPPROTO_TCP, TCP_NOTSENT_LOWAT},
		{IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS},
		{IPPROTO_TCP, TCP_THIN_DUPACK},
		{IPPROTO_TCP, TCP_CC_INFO},
		{IPPROTO_TCP, TCP_SAVE_SYN},
		{IPPROTO_TCP, TCP_TIMESTAMP},
		{IPPROTO_TCP, TCP_FASTOPEN},
		{IPPROTO_TCP, TCP_FASTOPEN_CONNECT},
		{IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE},
		{IPPROTO_TCP, TCP_SAVED_SYN},
		{IPPROTO_IP, IP_TOS},
		{IPPROTO_IP, IP_TTL},
		{IPPROTO_IP, IP_MTU},
		{IPPROTO_IP, IP_MTU_DISCOVER},
		{IPPROTO_IP, IP_OPTIONS},
		{IPPROTO_IP, IP_MINTTL},
		{IPPROTO_IP, IP_PKTINFO},
		{IPPROTO_IP, IP_RECVTOS},
		{IPPROTO_IP, IP_RECVTTL},
		{IPPROTO_IP, IP_FREEBIND},
		{IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT},
		{IPPROTO_IP, IP_TRANSPARENT},
		{IPPROTO_IP, IP_NODEFRAG},
		{IPPROTO_IP, IP_CHECKSUM},
		{IPPROTO_IP, IP_HDRINCL},
		{IPPROTO_IP, IP_ROUTER_ALERT},
		{IPPROTO_IP, IP_MULTICAST_TTL},
		{IPPROTO_IP, IP_MULTICAST_LOOP},
		{IPPROTO_IP, IP_RECVOPTS},
		{IPPROTO_IP, IP_RETOPTS},
		{IPPROTO_IP, IP_PASSSEC},
		{IPPROTO_IP, IP_UNICAST_IF},
		{IPPROTO_IP, IP_LOCAL_PORT_RANGE},
		{IPPROTO_IPV6, IPV6_V6ONLY},
		{IPPROTO_IPV6, IPV6_TCLASS},
		{IPPROTO_IPV6, IPV6_UNICAST_HOPS},
		{IPPROTO_IPV6, IPV6_MTU},
		{IPPROTO_IPV6, IPV6_MTU_DISCOVER},
		{IPPROTO_IPV6, IPV6_MINHOPCOUNT},
		{IPPROTO_IPV6, IPV6_AUTOFLOWLABEL},
		{IPPROTO_IPV6, IPV6_RECVTCLASS},
		{IPPROTO_IPV6, IPV6_RECVPKTINFO},
		{IPPROTO_IPV6, IPV6_RECVHOPLIMIT},
		{IPPROTO_IPV6, IPV6_DONTFRAG},
		{IPPROTO_IPV6, IPV6_FREEBIND},
		{IPPROTO_IPV6, IPV6_MULTICAST_HOPS},
	};
	uint32_t i;

	for (i = 0; i < KARST_DIM(harmless); i++)
		if (harmless[i].level == level && harmless[i].name == name)
			return true;
	return false;
}

/* A TCP socket has no options of other levels, and the kernel says with which error. */
static bool
has_level(int level)
{
	return level == SOL_SOCKET || level == IPPROTO_TCP || level == IPPROTO_IP ||
		level == IPPROTO_IPV6;
}

struct asked_option {
	bool set;
	int level, name;
	socklen_t len;
	uint8_t data[KARST_SOCK_DATA];
};

static int
ask_option(int fd, void *arg)
{
	struct asked_option *o = arg;
	int rc = o->set ? setsockopt(fd, o->level, o->name, o->data, o->len)
			: getsockopt(fd, o->level, o->name, o->data, &o->len);

	return rc == 0 ? 0 : -errno;
}

/* Gets or sets an option of a program's own socket, without using any capability. */
static int
on_option(struct svc_prog *p, const struct karst_sock_msg *req, int end, struct karst_sock_msg *rsp)
{
	const struct svc_conn *c = svc_conn_find(p->smc, end);
	struct asked_option o = {.set = req->op == KARST_SOCK_SETOPT,
		.level = req->level,
		.name = req->name,
		.len = req->len};
	int rc;

	if (c == NULL || c->tcp < 0)
		return -ENOENT;
	if (req->len > KARST_SOCK_DATA ||
		!(is_harmless(req->level, req->name) || (!o.set && !has_level(req->level))))
		return -ENOPROTOOPT;
	if (o.set)
		memcpy(o.data, req->data, req->len);
	rc = svc_ask(p->smc, c->uid, c->tcp, ask_option, &o, sizeof(o));
	if (!o.set && rc == 0) {
		rsp->len = o.len;
		memcpy(rsp->data, o.data, o.len);
	}
	return rc;
}

static int
serve(struct svc_prog *p, const struct karst_sock_msg *req, int *fds, unsigned int nfds,
	struct karst_sock_msg *rsp, struct handed *out)
{
	int rc;

	if (req->abi != KARST_SOCK_ABI)
		return -EPROTO;
	if (nfds != (req->op != KARST_SOCK_HELLO))
		return -EPROTO;
	switch (req->op) {
	case KARST_SOCK_HELLO:
		return on_hello(p, rsp, out);
	case KARST_SOCK_OPEN:
		rc = on_open(p, req, fds[0], rsp, out);
		if (out->n != 0)
			fds[0] = -1; /* belongs to the connection */
		return rc;
	case KARST_SOCK_ADOPT:
		return on_adopt(p, fds[0], rsp, out);
	case KARST_SOCK_RINGS:
		return on_rings(p, fds[0], rsp, out);
	case KARST_SOCK_WAKER:
		return on_waker(p, fds[0], out);
	case KARST_SOCK_WAKE:
		return on_wake(p, req, fds[0]);
	case KARST_SOCK_GETOPT:
	case KARST_SOCK_SETOPT:
		return on_option(p, req, fds[0], rsp);
	default:
		return -EOPNOTSUPP;
	}
}

static void
prog_leave(struct svc_prog *p)
{
	if (p->fd < 0)
		return;
	svc_unwatch(p->smc, p->fd);
	svc_let_go(p->smc, p->user->uid, p->fd);
	p->fd = -1;
	p->smc->npaused -= p->paused;
	svc_page_leave(p);
	svc_rings_leave(p);
	if (p->next != NULL)
		p->next->pprev = p->pprev;
	*p->pprev = p->next;
	p->smc->nprogs--;
	p->user->progs--;
	user_leave(p->smc, p->user);
	p->next = p->smc->dead_progs;
	p->smc->dead_progs = p;
}

/* Handles one request.  @return 0; -EAGAIN: there is none; otherwise the program is gone, or the
 * request is invalid. */
static int
one_request(struct svc_prog *p)
{
	static const struct karst_sock_msg none;
	const uid_t uid = p->user->uid;
	struct handed out = {.n = 0};
	struct karst_sock_msg req, rsp = none;
	size_t len = sizeof(req);
	unsigned int nfds;
	int rc, fd = -1;

	rc = svc_recv(p->smc, uid, p->fd, &req, &len, &fd, &nfds);
	if (rc == 0 && len == sizeof(req)) {
		rsp.status = serve(p, &req, &fd, nfds, &rsp, &out);
		rsp.abi = KARST_SOCK_ABI;
		rsp.op = req.op;
		rsp.seq = req.seq;
		rc = karst_ctl_send(p->fd, &rsp, sizeof(rsp), out.fds, out.n);
		if (rc == -EAGAIN)
			rc = -EPROTO; /* it sends requests, and does not read the answers */
	} else if (rc == 0) {
		rc = -EPROTO;
	}
	if (out.own != 0)
		svc_let_go(p->smc, out.uid, out.fds[0]);
	if (fd >= 0)
		svc_let_go(p->smc, uid, fd);
	return rc;
}

static void
prog_ready(struct svc_source *src, uint32_t events)
{
	struct svc_prog *p = svc_of(src, struct svc_prog, source);
	int rc;

	if (p->fd < 0)
		return;
	if (svc_is_behind(p->smc, p->user->uid)) {
		svc_unwatch(p->smc, p->fd);
		p->paused = true;
		p->smc->npaused++;
		return;
	}
	/* Only one request before others are handled: the program waits for the answer before it
	 * sends the next one. */
	rc = one_request(p);
	if (rc != 0 && rc != -EAGAIN)
		prog_leave(p);
}

void
svc_prog_resume(struct kd_smc *s)
{
	struct svc_prog *p, *next;

	for (p = s->npaused != 0 ? s->progs : NULL; p != NULL; p = next) {
		next = p->next;
		if (!p->paused || svc_is_behind(s, p->user->uid))
			continue;
		p->paused = false;
		s->npaused--;
		if (svc_watch(s, p->fd, EPOLLIN, &p->source) != 0)
			prog_leave(p);
	}
	if (s->paused && !svc_is_full(s) && kd_clock_ns() >= s->paused_until_ns)
		s->paused = svc_watch(s, s->socket.fd, EPOLLIN, &s->listen_source) != 0;
}

/* --- new programs --- */

static void
listen_pause(struct kd_smc *s)
{
	svc_unwatch(s, s->socket.fd);
	s->paused = true;
}

/* The first request of a program has no descriptor, so no program has to send one before this. */
static bool
let_in(struct kd_smc *s, int fd)
{
	const int room = ANSWERS_SNDBUF, on = 1;

	return setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0 &&
		(s->rights_wait || setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof(on)) == 0);
}

static void
listen_ready(struct svc_source *src, uint32_t events)
{
	struct kd_smc *s = svc_of(src, struct kd_smc, listen_source);
	struct ucred cred = {.uid = UINT32_MAX};
	socklen_t len = sizeof(cred);
	struct svc_user *u = NULL;
	struct svc_prog *p;
	int fd;

	if (svc_is_full(s)) {
		listen_pause(s);
		return;
	}
	fd = accept4(s->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		/* No descriptor, or no memory: the connection stays pending, and epoll would report
		 * it forever. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			listen_pause(s);
			s->paused_until_ns = kd_clock_ns() + FULL_NS;
		}
		return;
	}
	p = calloc(1, sizeof(*p));
	if (p != NULL && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0)
		u = user_of(s, cred.uid);
	if (u != NULL && may_come(s, u) && let_in(s, fd))
		*p = (struct svc_prog){
			.smc = s, .fd = fd, .pid = cred.pid, .user = u, .source.ready = prog_ready};
	else
		s->turned_away++;
	if (p == NULL || p->user == NULL || svc_watch(s, fd, EPOLLIN, &p->source) != 0) {
		user_leave(s, u);
		if (p != NULL && p->user != NULL)
			svc_let_go(s, cred.uid, fd);
		else
			svc_turn_away(s, cred.uid, fd);
		free(p);
		return;
	}
	u->progs++;
	p->next = s->progs;
	p->pprev = &s->progs;
	if (p->next != NULL)
		p->next->pprev = &p->next;
	s->progs = p;
	s->nprogs++;
}

void
svc_prog_reap(struct kd_smc *s)
{
	struct svc_prog *p;

	while ((p = s->dead_progs) != NULL) {
		s->dead_progs = p->next;
		free(p);
	}
}

int
svc_prog_init(struct kd_smc *s)
{
	const int off = 0;

	s->socket_conf = s->conf->socket;
	if (strlen(s->socket_conf.path) + strlen(KARST_SOCK_SUFFIX) > 107) {
		karst_log(KARST_LOG_ERR,
			"[smc]: the path of the socket, with \"" KARST_SOCK_SUFFIX
			"\" behind it, is longer than 107 bytes");
		return -ENAMETOOLONG;
	}
	strcat(s->socket_conf.path, KARST_SOCK_SUFFIX);
	if (kd_socket_lock(&s->socket, &s->socket_conf) != KD_EXIT_OK ||
		kd_socket_bind(&s->socket, &s->socket_conf) != KD_EXIT_OK)
		return -EBUSY;
	/* accepted sockets inherit that, until let_in() */
	s->rights_wait =
		setsockopt(s->socket.fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) != 0;
	s->listen_source.ready = listen_ready;
	return 0;
}

void
svc_prog_fini(struct kd_smc *s)
{
	while (s->progs != NULL)
		prog_leave(s->progs);
	svc_prog_reap(s);
	kd_socket_close(&s->socket);
}
