/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A connection whose sides have sent the option but have not agreed on SMC-R.  It stays a TCP
 * connection.  Because its program already uses the pair and the buffers, the service copies
 * between those and the TCP socket.
 *
 * That costs more than TCP alone, so the option is not offered to such a peer for a while: its next
 * connections are handled by the kernel only.
 */
#include "smc_priv.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "karst_log.h"

#define BURST (1u << 20) /* bytes of a direction before other connections get their turn */
#define ASKED 32768u     /* bytes in one call if a separate thread sends them */

static const struct {
	uint32_t number;
	const char *text;
} reasons[] = {
#define KARST_SMC_REASON(symbol, number, text) {number, text},
#include "karst_smc_reason.def"
#undef KARST_SMC_REASON
	{0, "another reason"},
};
static_assert(KARST_DIM(reasons) <= SMC_REASONS, "each has a counter");

unsigned int
svc_reason_row(uint32_t reason)
{
	unsigned int i = 0;

	while (reasons[i].number != 0 && reasons[i].number != reason)
		i++;
	return i;
}

const char *
svc_reason_text(unsigned int row, uint32_t *number)
{
	if (row >= KARST_DIM(reasons))
		return NULL;
	*number = reasons[row].number;
	return reasons[row].text;
}

/* --- peers to which the option is not offered --- */

/* Not peers that this side has declined itself for lack of room, and not this machine: any of its
 * programs can decline without affecting the others.  Also not addresses that a program has chosen
 * itself, in a network namespace of its own. */
static bool
is_to_refuse(const struct svc_conn *c)
{
	return c->smc->conf->smc.retry_s != 0 && !c->server && !c->decline && svc_rdma_is_here(c) &&
		!svc_direct_is_own(c);
}

void
svc_ip_of(const struct sockaddr_storage *a, uint8_t ip[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	memcpy(ip, mapped, sizeof(mapped));
	if (a->ss_family == AF_INET)
		memcpy(ip + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
	else
		memcpy(ip, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
}

/* Returns the entry of the peer, or one that can be replaced: first those that only one user has
 * caused. */
static struct svc_refused *
refused_of(struct kd_smc *s, const uint8_t ip[16])
{
	struct svc_refused *r, *worst = &s->refused[0];

	for (r = s->refused; r < &s->refused[SMC_REFUSED]; r++) {
		if (r->until_ns != 0 && memcmp(r->ip, ip, sizeof(r->ip)) == 0)
			return r;
		if (worst->until_ns != 0 &&
			(r->until_ns == 0 || r->by_all < worst->by_all ||
				(r->by_all == worst->by_all && r->until_ns < worst->until_ns)))
			worst = r;
	}
	if (worst->by_all)
		kd_smc_option_refuse(&s->option, worst->ip, false);
	s->nrefused += worst->until_ns == 0;
	*worst = (struct svc_refused){.nobody = true};
	memcpy(worst->ip, ip, sizeof(worst->ip));
	return worst;
}

/*
 * A program can spoil the agreement with a peer that works correctly, through a descriptor of the
 * TCP socket that it has kept.  So what happens to one user only affects that user's programs, each
 * for itself (drivers/sockets/peers.c).  What happens to two users, or to a trusted one, affects
 * all.
 */
static void
refuse_peer(struct svc_conn *c)
{
	struct kd_smc *s = c->smc;
	struct svc_refused *r;
	uint8_t ip[16];

	atomic_store(&c->page->retry_s, s->conf->smc.retry_s);
	svc_ip_of(&c->peer, ip);
	r = refused_of(s, ip);
	if (r->nobody)
		r->uid = c->uid;
	r->nobody = false;
	r->until_ns = kd_clock_ns() + s->conf->smc.retry_s * 1000000000ull;
	if (!r->by_all && (svc_is_trusted(c->uid) || r->uid != c->uid)) {
		r->by_all = true;
		kd_smc_option_refuse(&s->option, ip, true);
	}
}

/* --- the relay --- */

static int
put_urgent_inline(int fd, void *arg)
{
	const int on = 1;

	return setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0 ? 0 : -errno;
}

void
svc_relay_begin(struct svc_conn *c, uint32_t reason)
{
	unsigned int row = svc_reason_row(reason);
	struct epoll_event e = {.events = SVC_TCP_RELAY, .data.ptr = &c->tcp_source};

	c->reason = reason;
	c->smc->fell_back[row]++;
	karst_log(KARST_LOG_INFO, "smc: a connection of process %d stays on TCP: %s (0x%08x)",
		(int)c->pid, reasons[row].text, reason);
	if (is_to_refuse(c))
		refuse_peer(c);
	atomic_store(&c->page->reason, reason);
	if (c->require) {
		svc_conn_close_tcp(c, true);
		svc_conn_fail(c, ECONNABORTED);
		return;
	}
	(void)svc_ask(c->smc, c->uid, c->tcp, put_urgent_inline, NULL, 0);
	if (c->tcp_heard && epoll_ctl(c->smc->epoll, EPOLL_CTL_MOD, c->tcp, &e) != 0) {
		svc_conn_close_tcp(c, true);
		svc_conn_fail(c, ENOMEM);
		return;
	}
	c->what = SMC_RELAY;
	svc_conn_unname(c);
	atomic_store(&c->page->state, KARST_SOCK_TCP);
}

/* Returns how much of @n bytes is contiguous in a ring, from byte @at on. */
static size_t
piece(const struct svc_conn *c, uint64_t at, uint64_t n)
{
	return karst_min_u64(n, c->buffer - at);
}

/* Bytes that a separate thread sends or receives.  They are not in the rings, because the thread
 * may be left behind, and the rings may be freed. */
struct relayed {
	uint32_t n; /* in: at most; out: how many */
	int flags;
	bool urgent;
	uint8_t bytes[ASKED];
};

static int
ask_send(int fd, void *arg)
{
	struct relayed *p = arg;
	ssize_t n = send(fd, p->bytes, p->n, p->flags);

	p->n = n < 0 ? 0 : (uint32_t)n;
	return n < 0 ? -errno : 0;
}

/* Returns the result as the system call would. */
static ssize_t
relay_answer(int rc, const struct relayed *p)
{
	if (rc == 0)
		return p->n;
	errno = -rc;
	return -1;
}

/* An urgent byte is sent alone, because the kernel marks the last byte of a message, or of a part
 * of it. */
static ssize_t
send_piece(struct svc_conn *c)
{
	uint64_t n = c->tx_head - c->tx_tail;
	uint64_t at = (c->tx_tail + c->tx_shift) & (c->buffer - 1);
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	struct relayed p;

	if (c->tx_urgent == c->tx_tail + 1)
		flags |= MSG_OOB;
	if (c->tx_urgent > c->tx_tail)
		n = flags & MSG_OOB ? 1 : c->tx_urgent - 1 - c->tx_tail;
	if (svc_is_trusted(c->uid))
		return send(c->tcp, c->tx + at, piece(c, at, n), flags);
	p.n = (uint32_t)karst_min_u64(piece(c, at, n), sizeof(p.bytes));
	p.flags = flags;
	memcpy(p.bytes, c->tx + at, p.n);
	return relay_answer(svc_ask(c->smc, c->uid, c->tcp, ask_send, &p,
				    offsetof(struct relayed, bytes) + p.n),
		&p);
}

/* @return 0; -errno: the connection is broken. */
static int
relay_send(struct svc_conn *c)
{
	uint64_t before = c->tx_tail;

	while (c->tx_tail != c->tx_head && c->tx_tail - before < BURST) {
		ssize_t n = send_piece(c);

		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		c->tx_tail += (uint64_t)n;
	}
	if (c->tx_tail != c->tx_head)
		svc_conn_queue(c);
	return 0;
}

/*
 * A read stops in front of an urgent byte, but may begin with one.  So the mark is queried, which
 * needs a byte in the queue: for a byte that is there the answer does not change.  If a byte can be
 * read but none is in the queue, the program, which may have kept a descriptor, has told the kernel
 * to leave out urgent bytes (SO_OOBINLINE), and that lasts as long as the program likes.
 * @return as recv(); *@urgent is set if the byte that was read is urgent
 */
static ssize_t
recv_at(int fd, uint8_t *to, size_t room, bool *urgent)
{
	int there = 0, mark = 0;
	bool seen;
	ssize_t n;

	for (seen = false;; seen = true) {
		if (ioctl(fd, SIOCINQ, &there) != 0)
			return -1;
		if (there > 0)
			break;
		if (seen) {
			errno = EPROTO;
			return -1;
		}
		n = recv(fd, to, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n <= 0)
			return n;
	}
	if (ioctl(fd, SIOCATMARK, &mark) != 0)
		return -1;
	*urgent = mark != 0;
	return recv(fd, to, mark ? 1 : karst_min_u64(room, (uint64_t)there), MSG_DONTWAIT);
}

static int
ask_recv(int fd, void *arg)
{
	struct relayed *p = arg;
	ssize_t n = recv_at(fd, p->bytes, p->n, &p->urgent);

	p->n = n < 0 ? 0 : (uint32_t)n;
	return n < 0 ? -errno : 0;
}

static ssize_t
recv_piece(struct svc_conn *c, uint64_t room, bool *urgent)
{
	uint64_t at = (c->rx_head + c->rx_shift) & (c->buffer - 1);
	struct relayed p;
	ssize_t n;

	room = piece(c, at, room);
	if (svc_is_trusted(c->uid))
		return recv_at(c->tcp, c->rx + at, room, urgent);
	p.n = (uint32_t)karst_min_u64(room, sizeof(p.bytes));
	p.urgent = false;
	n = relay_answer(svc_ask(c->smc, c->uid, c->tcp, ask_recv, &p, sizeof(p)), &p);
	if (n > 0)
		memcpy(c->rx + at, p.bytes, (size_t)n);
	*urgent = p.urgent;
	return n;
}

/* What the kernel says of the connection. */
struct relay_state {
	int error;
	bool closed;
};

static int
ask_state(int fd, void *arg)
{
	struct relay_state *p = arg;
	struct tcp_info info;
	socklen_t error = sizeof(p->error), len = sizeof(info);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &p->error, &error) != 0 ||
		getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return -errno;
	p->closed = info.tcpi_state == TCP_CLOSE;
	return 0;
}

/* Whether there is an end, if reads say so: if the program has shut down both directions, reads
 * always say so, and whether the peer's direction has ended is seen from the state.
 * @return 1, 0, or -errno: the connection was reset */
static int
is_end(const struct svc_conn *c)
{
	struct relay_state state = {0};
	int rc;

	if (!c->shut_both)
		return 1;
	rc = svc_ask(c->smc, c->uid, c->tcp, ask_state, &state, sizeof(state));
	return rc != 0 ? rc : state.error != 0 ? -state.error : state.closed;
}

/* After the end of the peer's direction only a reset can come. */
static int
look_for_reset(struct svc_conn *c)
{
	struct relay_state state = {0};
	int rc;

	if (!c->eof || !c->tcp_news)
		return 0;
	c->tcp_news = false;
	rc = svc_ask(c->smc, c->uid, c->tcp, ask_state, &state, sizeof(state));
	return rc != 0 ? rc : -state.error;
}

static int
relay_recv(struct svc_conn *c)
{
	uint64_t before = c->rx_head;

	while (!c->eof && c->rx_head - before < BURST) {
		uint64_t room = c->buffer - (c->rx_head - c->rx_tail);
		bool urgent;
		ssize_t n;
		int end;

		if (room == 0) {
			atomic_fetch_or(&c->page->flags, KARST_SOCK_PEER_BLOCKED);
			return 0;
		}
		urgent = false;
		n = recv_piece(c, room, &urgent);
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (n == 0) {
			end = is_end(c);
			if (end <= 0)
				return end;
			svc_conn_show(c);
			svc_conn_eof(c);
		}
		c->rx_head += (uint64_t)n;
		if (urgent && n > 0)
			c->rx_urgent = c->rx_head;
	}
	if (!c->eof)
		svc_conn_queue(c);
	return 0;
}

/* If the program has shut down both directions, the kernel resets the connection when bytes
 * come. */
static void
end_directions(struct svc_conn *c)
{
	bool both = (atomic_load(&c->page->shut) & KARST_SOCK_SHUT) == KARST_SOCK_SHUT;

	if (both && !c->shut_both) {
		c->ended = c->shut_both = true;
		(void)svc_end_open(c->smc, c->uid, c->tcp, SVC_END_SHUTS);
	} else if (c->shut && !c->ended) {
		c->ended = true;
		(void)svc_end_open(c->smc, c->uid, c->tcp, SVC_END_WRITES);
	}
}

void
svc_relay_work(struct svc_conn *c)
{
	int rc;

	if (c->tcp_over)
		return;
	if (c->gone && atomic_load(&c->page->reset) != 0) {
		/* with TCP, what there was room for has left before the reset */
		(void)relay_send(c);
		svc_conn_close_tcp(c, true);
		return;
	}
	atomic_fetch_and(&c->page->flags, ~KARST_SOCK_PEER_BLOCKED);
	rc = relay_send(c);
	if (rc == 0 && !c->gone)
		rc = relay_recv(c);
	if (rc == 0 && !c->gone)
		rc = look_for_reset(c);
	if (rc != 0) {
		svc_conn_close_tcp(c, false);
		svc_conn_fail(c, -rc);
		return;
	}
	if (c->tx_tail != c->tx_head)
		return;
	if (c->gone) /* like the kernel: unread bytes cause a reset */
		svc_conn_close_tcp(c, c->rx_head != c->rx_tail);
	else
		end_directions(c);
}
