/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connections whose two ends both belong to programs of this service.  Both programs then have the
 * rings of both directions, and the service does not take part (karst_sock.h, state DIRECT).  A
 * byte is copied twice, into the ring and out of it.
 *
 * The ends of one connection are recognized by their addresses, which match each other when they
 * are joined, and by the network namespace.  The end that comes first waits for the other one if it
 * has connected to a listener of this service (smc_conn_life.c).  Otherwise it may have begun with
 * CLC, which was not answered yet; that is given up.  What it wrote meanwhile goes into the rings
 * of both ends, which are those of an earlier connection of the two programs if there are some
 * (smc_rings.c).
 *
 * The service sets the connection up and ends it: it has the far end of both pairs, and notices
 * when a program ends.  The information for that is in the two pages.  It needs the rings only for
 * what a program reports to it before that program knows the other end.  If the service itself
 * ends, the programs continue: each has the far end of the other one's pair.
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "opts.h"

/* A TCP connection has one other end.  But a program can hand that over several times; then the
 * service does not guarantee that the right one is found. */
#define MAX_SAME 8u

/* A listener of both families has IPv4 addresses in the form of IPv6. */
static void
address_of(const struct sockaddr_storage *a, uint8_t ip[16], uint16_t *port, uint32_t *scope)
{
	svc_ip_of(a, ip);
	*port = a->ss_family == AF_INET ? ((const struct sockaddr_in *)a)->sin_port
					: ((const struct sockaddr_in6 *)a)->sin6_port;
	*scope = a->ss_family == AF_INET ? 0 : ((const struct sockaddr_in6 *)a)->sin6_scope_id;
}

static bool
is_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	uint8_t ip[2][16];
	uint16_t port[2];
	uint32_t scope[2];

	address_of(a, ip[0], &port[0], &scope[0]);
	address_of(b, ip[1], &port[1], &scope[1]);
	return memcmp(ip[0], ip[1], sizeof(ip[0])) == 0 && port[0] == port[1] &&
		scope[0] == scope[1];
}

static bool
are_names(const struct svc_conn *c, const struct svc_names *now)
{
	return is_address(&now->local, &c->local) && is_address(&now->peer, &c->peer);
}

static bool
says_names(const struct svc_conn *c)
{
	struct svc_names now;

	return svc_conn_ask_names(c->smc, c->uid, c->tcp, &now) == 0 && are_names(c, &now);
}

/* The program of @o may have ended the TCP connection through another descriptor, and another
 * connection may have the addresses now.  Two sockets of a namespace that match each other now are
 * the two ends.  If they belong to different users, the sockets themselves are asked, since the
 * record of an end (smc_option.bpf.c) depends on other programs that are attached to the cgroup. */
static bool
are_ends(const struct svc_conn *c, const struct svc_conn *o)
{
	struct svc_names now;

	return svc_conn_names(o->smc, o->uid, o->tcp, &now) == 0 && are_names(o, &now) &&
		(c->uid == o->uid || (says_names(o) && says_names(c)));
}

/* Does it wait for its other end? lib/smc must not have agreed on anything either, of which the
 * event may still be pending. */
static bool
waits(const struct svc_conn *c)
{
	struct karst_smc_conn_info info;

	if (c->what != SMC_AGREEING || c->pair < 0 || c->tcp_over || c->decline)
		return false;
	if (c->rings != NULL && c->rings->used_again)
		return false; /* used only by its program, with the contents of earlier
			       * connections */
	return !c->begun || c->held_pprev != NULL ||
		(c->id != SMC_NO_ID && karst_smc_conn_info(c->smc->core, c->id, &info) == 0 &&
			info.state < KARST_SMC_FELL_BACK);
}

struct svc_conn *
svc_direct_find(const struct svc_conn *c)
{
	struct svc_conn *o;
	uint32_t asked = 0;

	if (c->smc->conf->smc.direct == KD_NO || c->netns == 0)
		return NULL;
	LIST_FOREACH(o, &c->smc->by_names[svc_names_hash(c, !c->server)], by_names) {
		if (o->server == c->server || o->netns != c->netns ||
			!is_address(&o->local, &c->peer) || !is_address(&o->peer, &c->local))
			continue;
		if (waits(o) && are_ends(c, o))
			return o;
		if (++asked == MAX_SAME)
			break;
	}
	return NULL;
}

static void
direct_put_token(struct svc_conn *c)
{
	(void)send(c->pair, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void
svc_direct_join(struct svc_conn *first, struct svc_conn *second, bool polls)
{
	struct kd_smc *s = first->smc;
	bool early = first->rings == NULL, whole = true;

	if (early) {
		first->rings = second->rings;
		first->rings->refs++;
		svc_rings_enter(first);
		whole = svc_rings_take_early(first, polls ? second : NULL);
	}
	svc_conn_unhold(first);
	svc_conn_leave_tcp(first);
	first->what = second->what = SMC_DIRECT;
	svc_conn_unname(first);
	svc_conn_unname(second);
	first->other = second;
	second->other = first;
	first->has_far = second->has_far = true;
	first->far_uid = second->uid;
	second->far_uid = first->uid;
	if (first->id != SMC_NO_ID)
		(void)karst_smc_conn_close(s->core, first->id); /* the event FAILED follows */
	/* the token was wanted by the service; @second sees what the program wrote before "wanted"
	 * was cleared */
	if (first->txd != NULL)
		(void)atomic_exchange(&first->txd->wanted, 0);
	second->has_waker = true;
	/* its program has not got the page yet, and then need not ask for the token */
	if (polls && atomic_load(&first->page->tx_head) != 0 &&
		atomic_load(&first->page->marked) == 0) {
		second->page->pending = 1;
		direct_put_token(second);
	}
	atomic_store(&second->page->state, KARST_SOCK_DIRECT);
	atomic_store(&first->page->state, KARST_SOCK_DIRECT);
	/* last: a program that writes into the rings and has to send a token must know where to */
	if (early)
		atomic_fetch_or(&first->page->early, KARST_SOCK_EARLY_READY);
	s->joined++;
	if (!whole) { /* each end learns of the end of the other one */
		svc_direct_fail(first);
		svc_direct_fail(second);
	}
	svc_conn_queue(first);
}

static bool
is_unread(const struct svc_conn *c, const struct karst_sock_dir *d)
{
	return karst_sock_written(d, c->buffer) != atomic_load(&d->tail);
}

/* The same according to what the two programs write in their pages.  The rings have it from the
 * programs, too, and a false statement harms only the program's own connection. */
static bool
has_left_bytes(const struct svc_conn *c)
{
	return c->other != NULL &&
		atomic_load(&c->other->page->tx_head) != atomic_load(&c->page->rx_tail);
}

/* Passes on what @c wrote before it knew that the service does not move its bytes any more, and
 * reported to the service.  If there is nothing, the other end continues to wait: a token would
 * make its poll() report bytes. */
static void
forward(struct svc_conn *c)
{
	/* in this order: a program that has met the other end reports later marks itself */
	if (c->other != NULL && !c->has_waker &&
		atomic_load(&c->txd->urgent) > atomic_load(&c->txd->tail) &&
		atomic_load(&c->page->met) == 0)
		svc_conn_urgent(c->other);
	if (c->other != NULL && is_unread(c, c->txd) && karst_sock_take_wanted(c->txd))
		direct_put_token(c->other);
}

/* Did its program report bytes by the pair before it knew the other end (the rings were mapped for
 * that), or leave an urgent mark? */
static bool
was_told(struct svc_conn *c)
{
	return (c->was_mapped || atomic_load(&c->page->marked) != 0) && svc_conn_map(c);
}

static void
end_direction(struct svc_conn *c)
{
	if (svc_conn_map(c))
		atomic_store(&c->txd->ended, 1);
	if (c->other != NULL)
		shutdown(c->other->pair, SHUT_WR);
}

/* Wakes a program that waits for room, which it does not need any more.  A program that fills its
 * pair says so before that, and checks the flags afterwards, which are set by now. */
static void
make_room(struct svc_conn *c)
{
	if (atomic_load(&c->page->filled) != 0)
		svc_conn_empty(c);
}

static void
direct_fail(struct svc_conn *c, int error)
{
	atomic_store(&c->page->error, error);
	atomic_fetch_or(&c->page->flags, KARST_SOCK_NO_SEND | KARST_SOCK_EOF);
	atomic_store(&c->page->state, KARST_SOCK_OVER);
	if (c->hung_up)
		return;
	/* wakes a program that waits for room, or for bytes */
	svc_conn_empty(c);
	svc_conn_hang_up(c);
}

/* Ends the connection for the other program, by a reset or not, and then for this one.  Its program
 * may still exist: if it has shut down both directions and bytes come, or if the other one has shut
 * down the far end, which both have.  Then it gets a reset. */
static void
direct_end(struct svc_conn *c, bool reset)
{
	struct svc_conn *o = c->other;
	bool ended = (atomic_load(&c->page->shut) & KARST_SOCK_SHUT_WR) != 0;

	if (o != NULL) { /* its page says that nothing more comes, as the rings would */
		o->other = NULL;
		if (reset) {
			if (ended)
				svc_conn_note_reset(o);
			direct_fail(o, ended ? 0 : ECONNRESET);
		} else {
			atomic_fetch_or(&o->page->flags,
				KARST_SOCK_NO_SEND | KARST_SOCK_EOF | KARST_SOCK_CLOSED);
			make_room(o);
			shutdown(o->pair, SHUT_WR);
		}
	}
	c->other = NULL;
	c->what = SMC_OVER;
	/* the two have exchanged no bytes on TCP, where a reset is one packet, and a normal end is
	 * four */
	svc_conn_close_tcp(c, true);
	if ((atomic_load(&c->page->flags) & KARST_SOCK_NO_SEND) == 0)
		svc_direct_fail(c);
	svc_conn_drop_program(c);
}

/* Its program has closed: like the kernel, resets the connection if bytes are unread. */
static void
direct_over(struct svc_conn *c)
{
	direct_end(c, atomic_load(&c->page->reset) != 0 || has_left_bytes(c));
}

/* The other program writes.  If this one has shut down both directions, the bytes are lost, and
 * both learn of it as from TCP: the other one by its next write, which fails. */
static void
refuse_late(struct svc_conn *c)
{
	if ((atomic_load(&c->page->shut) & KARST_SOCK_SHUT) == KARST_SOCK_SHUT)
		direct_end(c, false);
}

void
svc_direct_fail(struct svc_conn *c)
{
	direct_fail(c, ECONNRESET);
}

void
svc_direct_work(struct svc_conn *c)
{
	if (c->pair < 0)
		return;
	if (was_told(c))
		forward(c);
	c->shut |= (atomic_load(&c->page->shut) & KARST_SOCK_SHUT_WR) != 0;
	if (c->gone) {
		direct_over(c);
		return;
	}
	if (c->shut && !c->shut_told) {
		c->shut_told = true;
		end_direction(c);
	}
	if (c->hears_less)
		svc_conn_unmap(c);
}

/* @c reports nothing by the pair any more. */
static void
hear_less(struct svc_conn *c)
{
	struct epoll_event e = {.events = SVC_PAIR_DIRECT, .data.ptr = &c->pair_source};

	if (!c->hears_less)
		(void)epoll_ctl(c->smc->epoll, EPOLL_CTL_MOD, c->pair, &e);
	c->hears_less = true;
}

/* Its program does not report that it has met the other end; the service learns it when the program
 * fills its pair. */
void
svc_direct_rang(struct svc_conn *c)
{
	if (c->what == SMC_DIRECT && atomic_load(&c->page->met) != 0)
		hear_less(c);
}

/* A program that has the far end of another user's pair could send descriptors to that user's
 * program, and that program to the one that empties it, if the kernel lets them through.  Then the
 * service wakes and empties instead. */
static bool
may_wake(const struct svc_conn *c, const struct svc_conn *other)
{
	return !c->smc->rights_come || (other != NULL && c->uid == other->uid);
}

int
svc_direct_waker(struct svc_conn *c)
{
	if (c->what != SMC_DIRECT || c->other == NULL || c->other->pair < 0)
		return -ENOTCONN;
	if (!may_wake(c, c->other))
		return -EPERM;
	hear_less(c);
	c->rang = true;
	svc_conn_work(c);
	c->has_waker = true;
	return c->other != NULL ? c->other->pair : -ENOTCONN;
}

static bool
is_loopback(const uint8_t ip[16])
{
	static const uint8_t mapped[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};

	return memcmp(ip, mapped, sizeof(mapped)) == 0;
}

static bool
is_here(const struct svc_conn *c)
{
	uint8_t local[16], peer[16];

	svc_ip_of(&c->local, local);
	svc_ip_of(&c->peer, peer);
	return memcmp(local, peer, sizeof(local)) == 0 || (is_loopback(local) && is_loopback(peer));
}

bool
svc_direct_is_near(const struct svc_conn *c)
{
	if (c->smc->conf->smc.direct == KD_NO || c->netns == 0 || c->decline)
		return false;
	return is_here(c);
}

bool
svc_direct_is_own(const struct svc_conn *c)
{
	uint8_t gid[16];

	return is_here(c) || svc_rdma_gid(c->smc, &c->peer, gid);
}

int
svc_direct_early_waker(const struct svc_conn *c)
{
	if (!may_wake(c, c->other))
		return -1;
	if (c->what == SMC_DIRECT)
		return c->other != NULL ? c->other->pair : -1;
	return c->next_pair.far;
}

void
svc_direct_alone(struct svc_conn *c)
{
	if (c->next_pair.far < 0)
		return;
	svc_let_go(c->smc, c->uid, c->next_pair.far);
	svc_let_go(c->smc, c->uid, c->next_pair.end);
	c->next_pair.far = c->next_pair.end = -1;
}

/* epoll reports that, too, but the event may be queued behind this one. */
static void
look_whether_gone(struct svc_conn *c)
{
	struct pollfd p = {.fd = c->pair};

	if (poll(&p, 1, 0) <= 0 || (p.revents & POLLHUP) == 0)
		return;
	c->gone = c->shut = true;
	svc_direct_work(c);
}

void
svc_direct_wake(struct svc_conn *c, uint32_t flags)
{
	struct svc_conn *o = c->other;

	if (flags & KARST_SOCK_WAKE_SELF)
		direct_put_token(c);
	if (flags & KARST_SOCK_EMPTY_SELF)
		svc_conn_empty(c);
	if (flags & KARST_SOCK_URGENT_SELF)
		svc_conn_urgent(c);
	if (o == NULL || o->pair < 0)
		return;
	if (flags & KARST_SOCK_WAKE_PEER)
		direct_put_token(o);
	if (flags & KARST_SOCK_URGENT_PEER)
		svc_conn_urgent(o);
	if (flags & KARST_SOCK_EMPTY_PEER)
		svc_conn_empty(o);
	if (flags & KARST_SOCK_END_PEER)
		shutdown(o->pair, SHUT_WR);
	if (flags & KARST_SOCK_LATE_PEER)
		refuse_late(o);
	else if (flags & KARST_SOCK_LOOK_PEER)
		look_whether_gone(o);
}
