/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Owners.
 *
 * The program that embeds the engine is an owner, too (karst_engine.self), with rings in private
 * memory; so other code does not distinguish two kinds.
 *
 * Each owner has one doorbell ring and one eventfd for each lcore; bells.c describes how lcores
 * poll them.
 */
#include "karst_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "object.h"

/* If so many bytes have to be zeroed, or their pages created by the system, the lock is released
 * meanwhile, so that only the requesting caller waits: for the largest queues it takes
 * milliseconds. */
#define READY_APART (64u << 10)

/* Of owners with few QPs; 2 KiB.  Doorbells of QPs that have ended may be in the ring, too. */
#define MIN_BELL_CELLS 256u

/* --- users of the scheduler --- */

static void
sharer_join(struct karst_engine_owner *o)
{
	struct eng_sharer *all = o->e->sharers;
	uint32_t i, at = 0;

	/* there are as many elements as there may be owners: one is free */
	for (i = 1; o->rings.share != NULL && i <= o->e->cfg.max_owners; i++) {
		if (all[i].owners != 0 && all[i].share == o->rings.share) {
			at = i;
			break;
		}
		if (at == 0 && all[i].owners == 0)
			at = i;
	}
	all[at].share = o->rings.share;
	all[at].owners++;
	o->sharer = at;
}

/* --- life --- */

static void
owner_free(struct karst_engine_owner *o)
{
	uint32_t i;

	for (i = 0; i < o->e->nlcores && o != o->e->self; i++) {
		if (o->doorbell[i].wake_fd < 0)
			continue;
		/* the program has the file open, too, so closing it here does not end the watch */
		eng_sleep_unwatch(&o->e->lcore[i], o->doorbell[i].wake_fd);
		close(o->doorbell[i].wake_fd);
	}
	eng_arena_fini(&o->rings);
	free(o);
}

static struct karst_engine_owner *
owner_alloc(struct karst_engine *e, const struct karst_engine_owner_init *init)
{
	struct karst_engine_owner *o = calloc(1, sizeof(*o) + e->nlcores * sizeof(o->doorbell[0]));
	uint32_t i, max_qps = e->cfg.max_qps;

	if (o == NULL)
		return NULL;
	for (i = 0; i < e->nlcores; i++)
		o->doorbell[i].wake_fd = -1;
	o->e = e;
	o->ops = init->ops != NULL ? *init->ops : e->ops;
	o->user = init->ops != NULL ? init->user : e->cfg.user;
	snprintf(o->name, sizeof(o->name), "karst:%s", init->name != NULL ? init->name : "");
	o->max_mcasts = init->max_mcasts != 0 ? init->max_mcasts : e->cfg.max_mcasts;
	if (init->max_qps != 0)
		max_qps = karst_min_u32(max_qps, init->max_qps);
	/* A QP may ring once for each of its queues before the lcore processes it. */
	o->bell_cells =
		karst_pow2_ceil(max_qps < MIN_BELL_CELLS / 2 ? MIN_BELL_CELLS : 2 * max_qps);
	return o;
}

static int
bells_alloc(struct karst_engine_owner *o)
{
	uint32_t i;

	for (i = 0; i < o->e->nlcores; i++) {
		o->doorbell[i].bell = eng_arena_alloc(&o->rings, karst_bell_bytes(o->bell_cells));
		if (o->doorbell[i].bell == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int
eventfds_make(struct karst_engine_owner *o)
{
	uint32_t i;
	int ret;

	for (i = 0; i < o->e->nlcores; i++) {
		o->doorbell[i].wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (o->doorbell[i].wake_fd < 0)
			return -errno;
		ret = eng_sleep_watch(&o->e->lcore[i], o->doorbell[i].wake_fd, true);
		if (ret != 0)
			return ret;
	}
	return 0;
}

static void
owner_listen(struct karst_engine_owner *o)
{
	uint32_t i;

	for (i = 0; i < o->e->nlcores; i++)
		eng_mailbox_call(&o->e->lcore[i], eng_bell_add_on_lcore, o);
}

/* Makes the owner visible.  Nothing can fail from here on. */
static void
owner_enter(struct karst_engine_owner *o)
{
	sharer_join(o);
	if (!o->rings.seal)
		owner_listen(o);
	LIST_INSERT_HEAD(&o->e->owners, o, next);
	o->e->nowners++;
}

static void
owner_leave(struct karst_engine_owner *o)
{
	uint32_t i;

	for (i = 0; i < o->e->nlcores; i++)
		eng_mailbox_call(&o->e->lcore[i], eng_bell_del_on_lcore, o);
	/* no lcore accesses its bells any more; the watchdog may still be reading which bell an
	 * lcore was at */
	pthread_mutex_lock(&o->e->names_lock);
	LIST_REMOVE(o, next);
	pthread_mutex_unlock(&o->e->names_lock);
	o->e->nowners--;
	/* its queue pairs are already destroyed */
	o->e->sharers[o->sharer].owners--;
}

int
eng_owner_create_self(struct karst_engine *e)
{
	const struct karst_engine_owner_init init = {.name = "self"};
	struct karst_engine_owner *o = owner_alloc(e, &init);
	uint32_t i;
	int ret;

	e->sharers = eng_arena_alloc(&e->objects, (e->cfg.max_owners + 1) * sizeof(e->sharers[0]));
	if (o == NULL || e->sharers == NULL) {
		free(o);
		return -ENOMEM;
	}
	e->self = o;
	eng_arena_init(&o->rings);
	ret = bells_alloc(o);
	if (ret != 0) {
		owner_free(o);
		return ret;
	}
	/* its program is trusted, so the lcore's own eventfd is used */
	for (i = 0; i < e->nlcores; i++)
		o->doorbell[i].wake_fd = e->lcore[i].wake_fd;
	owner_enter(o);
	return 0;
}

void
eng_owners_fini(struct karst_engine *e)
{
	struct karst_engine_owner *o;

	while ((o = LIST_FIRST(&e->owners)) != NULL) {
		LIST_REMOVE(o, next);
		owner_free(o);
	}
}

int
karst_engine_owner_create(struct karst_engine *e, const struct karst_engine_owner_init *init,
	struct karst_engine_owner **owner)
{
	struct karst_engine_owner *o;
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	/* the engine's own owner is one more */
	o = e->nowners <= e->cfg.max_owners ? owner_alloc(e, init) : NULL;
	if (o == NULL) {
		ret = e->nowners <= e->cfg.max_owners ? -ENOMEM : -ENOSPC;
	} else {
		eng_arena_init_files(&o->rings, o->name, init->max_ring_bytes);
		o->rings.share = init->share;
		if (init->seals)
			eng_arena_seal_files(&o->rings);
		ret = bells_alloc(o);
		eng_arena_shared(&o->rings);
		if (ret == 0)
			ret = eventfds_make(o);
		if (ret != 0)
			owner_free(o);
		else
			owner_enter(o);
	}
	eng_ctl_leave(e);
	if (ret == 0)
		*owner = o;
	return ret;
}

int
karst_engine_owner_destroy(struct karst_engine_owner *o)
{
	struct karst_engine *e = o->e;
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	if (o->nobjects != 0)
		ret = -EBUSY;
	else
		owner_leave(o);
	eng_ctl_leave(e);
	/* the program may still be punching holes; this delays no other thread */
	if (ret == 0)
		owner_free(o);
	return ret;
}

void
karst_engine_owner_silence(struct karst_engine_owner *o)
{
	uint32_t i;

	if (eng_ctl_enter(o->e) != 0)
		return;
	for (i = 0; i < o->e->nlcores; i++)
		eng_mailbox_call(&o->e->lcore[i], eng_bell_del_on_lcore, o);
	eng_ctl_leave(o->e);
}

/* --- seals --- */

int
karst_engine_owner_unsealed(const struct karst_engine_owner *owner, uint32_t *chunk)
{
	return eng_arena_unsealed(&owner->rings, chunk);
}

int
karst_engine_owner_seal(struct karst_engine_owner *o, uint32_t chunk)
{
	uint64_t bytes;
	int fd, ret = eng_arena_file(&o->rings, chunk, &fd, &bytes);

	if (ret != 0)
		return ret;
	/* this waits while the kernel is punching a hole there; afterwards no hole can be
	 * punched */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0 &&
		(fcntl(fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) == 0)
		return -errno;
	ret = eng_ctl_enter(o->e);
	if (ret != 0)
		return ret;
	eng_arena_sealed(&o->rings, chunk);
	eng_ctl_leave(o->e);
	return 0;
}

void
karst_engine_owner_listen(struct karst_engine_owner *o)
{
	if (eng_ctl_enter(o->e) != 0)
		return;
	owner_listen(o);
	eng_ctl_leave(o->e);
}

/* --- memory --- */

void *
eng_owner_rings_alloc(struct karst_engine_owner *o, size_t bytes)
{
	bool stale, apart = bytes >= READY_APART;
	void *p = eng_arena_take(&o->rings, bytes, &stale);
	int ret = 0;

	if (p == NULL)
		return NULL;
	if (apart)
		eng_ctl_leave(o->e);
	eng_arena_ready(&o->rings, p, bytes, stale);
	if (apart)
		ret = eng_ctl_enter(o->e);
	/* this cannot be a callback: the call was entered before */
	assert(ret == 0);
	(void)ret;
	return p;
}

/* --- location of its memory --- */

int
karst_engine_owner_locate(
	const struct karst_engine_owner *owner, const void *p, uint32_t *chunk, uint64_t *off)
{
	return eng_arena_find(&owner->rings, p, chunk, off);
}

int
karst_engine_owner_chunk(
	const struct karst_engine_owner *owner, uint32_t chunk, int *fd, uint64_t *bytes)
{
	return eng_arena_file(&owner->rings, chunk, fd, bytes);
}

int
karst_engine_owner_bell(const struct karst_engine_owner *owner, uint32_t lcore,
	struct karst_bell_shared **bell, uint32_t *cells, int *wake_fd)
{
	if (lcore >= owner->e->nlcores)
		return -EINVAL;
	*bell = owner->doorbell[lcore].bell;
	*cells = owner->bell_cells;
	*wake_fd = owner->doorbell[lcore].wake_fd;
	return 0;
}

uint64_t
karst_engine_owner_ring_bytes(const struct karst_engine_owner *owner)
{
	return owner->rings.used;
}

bool
karst_engine_owner_over_share(const struct karst_engine_owner *owner)
{
	return owner->rings.share_refused;
}
