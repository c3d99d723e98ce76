/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Rings.  Creating a file for them, mapping it in two programs, touching and removing it is most of
 * the cost of a short connection.  So two programs keep the rings of their connections with each
 * other, and reuse them for the next ones.  No other program ever gets them: they still contain
 * bytes that these two have sent to each other.  The rings are destroyed when one of the two ends,
 * and not reused if another process, such as a child, may have them mapped (shared).
 *
 * Rings are free when the connection is freed at both ends, and both programs have said that they
 * do not access its page any more, for which each page has a reference.  Rings of a stream that has
 * touched more than the page with the positions are not kept, so that little memory is kept.  The
 * programs report the lengths themselves.  A false report gains nothing: the program could as well
 * touch the rest of free rings, which it has mapped, and no check of the file would prevent that.
 *
 * The service maps rings that are used for the second time, and writes into them for each
 * connection.  It needs no mapping of other rings, of which there may be many, and idle ones.
 */
#include "smc_priv.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_FREE_RINGS 1024u /* of all programs: each needs a descriptor and one or two pages */

static uint32_t
free_hash(const struct svc_prog *a, const struct svc_prog *b)
{
	return (uint32_t)(((uintptr_t)a ^ (uintptr_t)b) >> 6) * 2654435761u >> 26;
}
static_assert(SMC_FREE_HASH == 1u << 6, "the highest bits of 32");

static bool
are_sides(const struct svc_rings *r, const struct svc_prog *a, const struct svc_prog *b)
{
	return (r->side[0].prog == a && r->side[1].prog == b) ||
		(r->side[0].prog == b && r->side[1].prog == a);
}

struct svc_rings *
svc_rings_make(struct kd_smc *s, const struct svc_conn *c)
{
	struct svc_rings *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	if (svc_stock_rings(s, c, &r->fd) != 0) {
		free(r);
		return NULL;
	}
	r->smc = s;
	r->refs = 1;
	r->rmb = SMC_NO_ID;
	r->buffer = (uint32_t)s->conf->smc.buffer;
	return r;
}

bool
svc_rings_map(struct svc_rings *r)
{
	void *map = r->map;

	if (map == NULL)
		map = mmap(NULL, karst_sock_bytes(r->buffer), PROT_READ | PROT_WRITE, MAP_SHARED,
			r->fd, 0);
	if (map == MAP_FAILED)
		return false;
	r->map = map;
	return true;
}

void
svc_rings_unmap(struct svc_rings *r)
{
	if (--r->nmapped != 0 || r->used_again || r->keys != 0 || r->tx_mr != NULL)
		return;
	munmap(r->map, karst_sock_bytes(r->buffer));
	r->map = NULL;
}

static void
rings_destroy(struct svc_rings *r)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (r->side[i].prog != NULL)
			r->side[i].prog->rings[r->side[i].number - 1] = NULL;
	svc_rdma_tx_unkey(r);
	if (r->map != NULL)
		munmap(r->map, karst_sock_bytes(r->buffer));
	close(r->fd);
	free(r);
}

/* The rings are not in use. */
static void
remote_settle(struct svc_rings *r)
{
	if (r->keys == 0)
		rings_destroy(r);
	else
		svc_spare_settle(r); /* if they are not kept, they are destroyed with the key */
}

void
svc_rings_unkeyed(struct svc_rings *r)
{
	if (r->refs == 0 && r->keys == 0)
		rings_destroy(r);
}

void
svc_rings_note(const struct svc_conn *c)
{
	uint64_t head = c->page_of != NULL ? atomic_load(&c->page_of->mem->tx_head) : 0;

	if (c->rings != NULL &&
		!karst_sock_is_short(c->dir == 0 ? head : 0, c->dir != 0 ? head : 0))
		c->rings->grown = true;
}

/* Counted in the account of the user that has connected: users to whom others connect cannot
 * influence that number. */
static bool
may_keep_free(const struct svc_rings *r)
{
	return svc_user_may_keep(
		r->side[r->client].prog->user, SVC_KEPT_RINGS, r->smc->nfree_rings, MAX_FREE_RINGS);
}

void
svc_rings_put(struct svc_rings *r)
{
	struct svc_rings **at;

	if (r == NULL || --r->refs != 0)
		return;
	if (r->remote) {
		remote_settle(r);
		return;
	}
	if (!r->kept || r->shared || r->grown || r->side[0].prog == NULL ||
		r->side[1].prog == NULL || !may_keep_free(r) || !svc_rings_map(r)) {
		rings_destroy(r);
		return;
	}
	at = &r->smc->free_rings[free_hash(r->side[0].prog, r->side[1].prog)];
	r->next = *at;
	*at = r;
	r->smc->nfree_rings++;
	r->keeper = r->side[r->client].prog->user;
	r->keeper->kept[SVC_KEPT_RINGS]++;
}

/* Takes rings from the list of free ones. */
static struct svc_rings *
rings_take(struct kd_smc *s, struct svc_rings **at)
{
	struct svc_rings *r = *at;

	*at = r->next;
	s->nfree_rings--;
	r->keeper->kept[SVC_KEPT_RINGS]--;
	r->keeper = NULL;
	return r;
}

/* @return false: the program has the maximum number of rings. */
static bool
give_number(struct svc_rings *r, unsigned int i, struct svc_prog *p)
{
	uint32_t n;

	for (n = 0; n < KARST_SOCK_KEPT; n++)
		if (p->rings[n] == NULL) {
			p->rings[n] = r;
			r->side[i].prog = p;
			r->side[i].number = n + 1;
			return true;
		}
	return false;
}

/* Records which side is the client: the one that is not @server's, whichever it was before. */
static void
note_client(struct svc_rings *r, const struct svc_prog *server)
{
	r->client = r->side[0].prog == server;
}

struct svc_rings *
svc_rings_get(struct kd_smc *s, struct svc_prog *first, struct svc_prog *second, bool server)
{
	struct svc_rings **at = &s->free_rings[free_hash(first, second)], *r;

	if (first != NULL && second != NULL)
		for (; *at != NULL; at = &(*at)->next)
			if (are_sides(*at, first, second)) {
				r = rings_take(s, at);
				r->refs = 1;
				r->nmapped = 0;
				r->used_again = true;
				note_client(r, server ? second : first);
				return r;
			}
	r = svc_rings_make(s, NULL);
	if (r == NULL)
		return NULL;
	r->kept = first != NULL && second != NULL && give_number(r, 0, first) &&
		give_number(r, 1, second);
	note_client(r, server ? second : first);
	return r;
}

struct svc_rings *
svc_rings_remote(struct svc_conn *c, struct svc_prog *p)
{
	struct svc_rings *r;
	uint8_t ip[16];

	svc_ip_of(&c->peer, ip);
	r = svc_spare_find(c->smc, p, ip, c->server);
	if (r != NULL) {
		r->refs = 1;
		r->used_again = true;
		memset(karst_sock_rings(r->map, r->buffer), 0, sizeof(struct karst_sock_rings));
		return r;
	}
	r = svc_rings_make(c->smc, c);
	if (r == NULL)
		return NULL;
	r->remote = true;
	r->server = c->server;
	memcpy(r->peer_ip, ip, sizeof(ip));
	r->kept = give_number(r, 0, p);
	return r;
}

struct svc_rings_side *
svc_rings_side(struct svc_rings *r, const struct svc_conn *c)
{
	const struct svc_prog *p = c->page_of->prog;
	unsigned int i;

	if (!r->kept || p == NULL)
		return NULL;
	if (r->side[0].prog == r->side[1].prog) /* both ends belong to it */
		i = c->dir;
	else
		i = r->side[1].prog == p;
	return r->side[i].prog == p ? &r->side[i] : NULL;
}

void
svc_rings_enter(struct svc_conn *c)
{
	const struct svc_rings_side *side = svc_rings_side(c->rings, c);

	/* if the page has no number, its program cannot report that it has finished with the
	 * rings */
	if (side == NULL || c->page_of->adopted)
		c->rings->shared = true;
	if (side == NULL)
		return;
	c->has_rings = side->known;
	c->page_of->rings = c->rings;
	c->rings->refs++;
	/* the number may refer to earlier rings in the program until it gets these */
	atomic_store(&c->page->rings, side->known ? side->number : 0);
}

static void
remote_leave(struct svc_prog *p, struct svc_rings *r)
{
	p->rings[r->side[0].number - 1] = NULL;
	r->side[0].prog = NULL;
	if (r->refs == 0)
		remote_settle(r);
	else
		svc_spare_settle(r);
}

void
svc_rings_leave(struct svc_prog *p)
{
	uint32_t n;
	unsigned int i;

	for (n = 0; n < KARST_SOCK_KEPT; n++) {
		struct svc_rings *r = p->rings[n];
		struct svc_rings **at;

		if (r == NULL)
			continue;
		if (r->remote) {
			remote_leave(p, r);
			continue;
		}
		at = &p->smc->free_rings[free_hash(r->side[0].prog, r->side[1].prog)];
		while (*at != NULL && *at != r)
			at = &(*at)->next;
		if (r->refs == 0 && *at == r) {
			rings_destroy(rings_take(p->smc, at));
			continue;
		}
		for (i = 0; i < 2; i++)
			if (r->side[i].prog == p)
				r->side[i].prog = NULL;
		p->rings[n] = NULL;
	}
}

/* For new rings, which have not been mapped yet. */
static bool
write_early(const struct svc_conn *c, const struct karst_sock_rings *positions, uint32_t len)
{
	/* the layout of karst_sock.h; ring 0 ends at the positions and begins at KARST_SOCK_NEAR */
	off_t at = (off_t)(KARST_SOCK_NEAR + c->buffer);
	off_t ring = c->dir == 0 ? at - KARST_SOCK_NEAR : at + (off_t)sizeof(*positions);

	return pwrite(c->rings->fd, positions, sizeof(*positions), at) == sizeof(*positions) &&
		(len == 0 || pwrite(c->rings->fd, c->page->early_bytes, len, ring) == (ssize_t)len);
}
static_assert(KARST_SOCK_EARLY_BYTES <= KARST_SOCK_NEAR, "in one piece");

/* The page is untrusted.  The copied bytes belong to the program that has the page, and go to its
 * own peer.  Afterwards the positions contain nothing of an earlier connection of the two. */
bool
svc_rings_take_early(struct svc_conn *c, struct svc_conn *reader)
{
	uint32_t early = atomic_fetch_or(&c->page->early, KARST_SOCK_EARLY_CLOSED);
	uint32_t len = early & KARST_SOCK_EARLY_LEN;
	struct karst_sock_rings positions = {0};
	bool done = true;

	if (early & KARST_SOCK_EARLY_CLOSED)
		len = 0;
	if (len > KARST_SOCK_EARLY_BYTES) {
		c->smc->faults++;
		len = 0;
	}
	atomic_store(&positions.dir[c->dir].head, len);
	if (reader != NULL && len == 0) {
		atomic_store(&positions.dir[c->dir].wanted, 1);
		svc_conn_arm(reader);
	}
	atomic_store(&positions.dir[!c->dir].wanted, (early & KARST_SOCK_EARLY_WANTED) != 0);
	if (c->rings->map == NULL) {
		done = write_early(c, &positions, len);
	} else {
		karst_sock_copy_in(karst_sock_ring(c->rings->map, c->buffer, c->dir), c->buffer,
			c->tx_shift, c->page->early_bytes, len);
		memcpy(karst_sock_rings(c->rings->map, c->buffer), &positions, sizeof(positions));
	}
	return done;
}
