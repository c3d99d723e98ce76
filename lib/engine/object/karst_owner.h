/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Owners: whose an object is, whose memory its rings are in, and who is told of its events.
 *
 * Without one, an object belongs to the program that embeds the engine.  A session
 * (karst_session.h) makes an owner for its program, and then
 *
 *   - rings come from memory files that this program alone maps, sealed against every change of
 *     size, in chunks;
 *   - the program rings doorbells of its own, one for each lcore, and the lcore looks only at QPs
 *     of the owner whose bell rang;
 *   - an lcore that sleeps (KARST_IDLE_SLEEP) is woken by an eventfd of the owner's, which the
 *     program writes if karst_bell_must_wake() says so;
 *   - events go to the owner's callbacks.
 *
 * Control calls, as those of karst_engine.h.  The last five are for the thread that makes the
 * owner's objects, and take no lock.
 */
#ifndef KARST_OWNER_H
#define KARST_OWNER_H

#include "karst_engine.h"

struct eng_share;

struct karst_engine_owner_init {
	const char *name;        /* in logs and telemetry */
	uint64_t max_ring_bytes; /* of all its rings, rounded up to chunks; 0: no limit */
	uint32_t max_qps;    /* of one lcore; sizes the doorbell rings; 0: all that it may have */
	uint32_t max_mcasts; /* 0: all that the engine may have */
	/* the account of the program's user, which is charged with ring memory and multicast
	 * attachments; NULL: none */
	struct eng_share *share;
	/* The program is not trusted: nothing is in a chunk before karst_engine_owner_seal(), and
	 * nobody listens to its doorbells before karst_engine_owner_listen(). */
	bool seals;
	/* NULL: the engine's.  Called on lcores, as those of the engine. */
	const struct karst_engine_ops *ops;
	void *user;
};

/** -ENOMEM; -ENOSPC: there are max_owners */
int karst_engine_owner_create(struct karst_engine *e, const struct karst_engine_owner_init *init,
	struct karst_engine_owner **owner);

/** Its objects are destroyed already: -EBUSY otherwise.  No lcore touches its memory afterwards. */
int karst_engine_owner_destroy(struct karst_engine_owner *owner);
/** No lcore listens to its doorbells any more. */
void karst_engine_owner_silence(struct karst_engine_owner *owner);

/** Where @p, inside of a ring, doorbell ring or CQ of the owner, lies.  -EINVAL: nowhere. */
int karst_engine_owner_locate(
	const struct karst_engine_owner *owner, const void *p, uint32_t *chunk, uint64_t *off);

/** A chunk that has to be sealed before anything else is done for the owner.  -ENOENT: none. */
int karst_engine_owner_unsealed(const struct karst_engine_owner *owner, uint32_t *chunk);
/** The program has mapped a chunk.  Waits for the end of a hole that it punches there, with nothing
 *  locked.  -EINVAL: no such chunk; -EPERM: the program has sealed it against seals */
int karst_engine_owner_seal(struct karst_engine_owner *owner, uint32_t chunk);
/** Once, with no chunk unsealed: lcores listen to its doorbells. */
void karst_engine_owner_listen(struct karst_engine_owner *owner);

/** The sealed memory file of a chunk, the owner's to close.  Chunks are numbered from 0 as they
 *  come, and stay as long as the owner.  -EINVAL: no such chunk. */
int karst_engine_owner_chunk(
	const struct karst_engine_owner *owner, uint32_t chunk, int *fd, uint64_t *bytes);

/** The owner's bell of @lcore, how many cells it has, and the eventfd that wakes the lcore (the
 *  owner's to close).  -EINVAL: no such lcore. */
int karst_engine_owner_bell(const struct karst_engine_owner *owner, uint32_t lcore,
	struct karst_bell_shared **bell, uint32_t *cells, int *wake_fd);

/** Whether ring memory could not be had, the last time, because of its share. */
bool karst_engine_owner_over_share(const struct karst_engine_owner *owner);

/** Bytes of the rings that it has. */
uint64_t karst_engine_owner_ring_bytes(const struct karst_engine_owner *owner);

#endif /* KARST_OWNER_H */
