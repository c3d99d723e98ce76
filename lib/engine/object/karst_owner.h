/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Owners: to whom an object belongs, whose memory its rings are in, and who gets its events.
 *
 * An object without an owner belongs to the program that embeds the engine.  A session
 * (karst_session.h) makes an owner for its program.  Then
 *
 *   - rings are in memory files that only this program maps, in chunks, sealed against every
 *     change of size;
 *   - the program rings doorbells of its own, one for each lcore, and the lcore accepts only QPs of
 *     the owner whose bell rang;
 *   - an lcore that sleeps (KARST_IDLE_SLEEP) is woken by an eventfd of the owner, which the
 *     program writes if karst_bell_must_wake() says so;
 *   - events go to the owner's callbacks.
 *
 * These are control calls, as those of karst_engine.h.  The last five are for the thread that
 * creates the owner's objects, and take no lock.
 */
#ifndef KARST_OWNER_H
#define KARST_OWNER_H

#include "karst_engine.h"

struct eng_share;

struct karst_engine_owner_init {
	const char *name;        /* in logs and telemetry */
	uint64_t max_ring_bytes; /* bytes of all its rings, rounded up to chunks; 0: no limit */
	uint32_t max_qps;    /* QPs of one lcore, for the size of the doorbell rings; 0: as many as
			      * an lcore may have */
	uint32_t max_mcasts; /* 0: as many as the engine may have */
	/* account of the program's user, to which ring memory and multicast attachments are
	 * charged; NULL: none */
	struct eng_share *share;
	/* The program is not trusted: a chunk is not used before karst_engine_owner_seal(), and no
	 * lcore polls its doorbells before karst_engine_owner_listen(). */
	bool seals;
	/* NULL: the engine's callbacks.  Called on lcores, as those of the engine. */
	const struct karst_engine_ops *ops;
	void *user;
};

/** -ENOMEM; -ENOSPC: there are already max_owners */
int karst_engine_owner_create(struct karst_engine *e, const struct karst_engine_owner_init *init,
	struct karst_engine_owner **owner);

/** Its objects must have been destroyed: otherwise -EBUSY.  When it returns, no lcore accesses its
 *  memory any more. */
int karst_engine_owner_destroy(struct karst_engine_owner *owner);
/** When it returns, no lcore polls its doorbells any more. */
void karst_engine_owner_silence(struct karst_engine_owner *owner);

/** Location of @p, which points into a ring, doorbell ring or CQ of the owner.  -EINVAL: it does
 *  not. */
int karst_engine_owner_locate(
	const struct karst_engine_owner *owner, const void *p, uint32_t *chunk, uint64_t *off);

/** Finds a chunk that must be sealed before anything else is done for the owner.  -ENOENT: none. */
int karst_engine_owner_unsealed(const struct karst_engine_owner *owner, uint32_t *chunk);
/** The program has mapped a chunk: seals it.  If the program is punching a hole there, waits until
 *  that is done, with no lock held.  -EINVAL: no such chunk; -EPERM: the program has sealed it
 *  against seals */
int karst_engine_owner_seal(struct karst_engine_owner *owner, uint32_t chunk);
/** To be called once, when no chunk is unsealed: from now on lcores poll its doorbells. */
void karst_engine_owner_listen(struct karst_engine_owner *owner);

/** The sealed memory file of a chunk; the owner closes it.  Chunks are numbered from 0 in the order
 *  of their creation, and stay as long as the owner.  -EINVAL: no such chunk. */
int karst_engine_owner_chunk(
	const struct karst_engine_owner *owner, uint32_t chunk, int *fd, uint64_t *bytes);

/** The owner's bell of @lcore, its number of cells, and the eventfd that wakes the lcore (the owner
 *  closes it).  -EINVAL: no such lcore. */
int karst_engine_owner_bell(const struct karst_engine_owner *owner, uint32_t lcore,
	struct karst_bell_shared **bell, uint32_t *cells, int *wake_fd);

/** Whether the last allocation of ring memory failed because of its user's share. */
bool karst_engine_owner_over_share(const struct karst_engine_owner *owner);

/** Bytes of its rings. */
uint64_t karst_engine_owner_ring_bytes(const struct karst_engine_owner *owner);

#endif /* KARST_OWNER_H */
