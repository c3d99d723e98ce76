/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Tables of a program's handles and keys.
 *
 * Handles are numbers that a session assigns: an index into a table and a generation, so that the
 * handle of a destroyed object does not match its successor.  Slots are reused first in, first out,
 * as late as possible.
 *
 * Keys are numbers that the engine has assigned (L_Keys, address handles); a hash table has those
 * that belong to this session.
 *
 * Both grow as they are filled, look up in O(1), and are used by one thread.  Their contents can be
 * charged to a user's account: exactly what is in the table is charged.
 */
#ifndef ENGINE_HANDLES_H
#define ENGINE_HANDLES_H

#include "karst_base.h"
#include "share.h"

#define HANDLES_MAX (1u << 22)

struct handle_slot {
	void *item; /* NULL: free */
	uint32_t generation;
	uint32_t next_free; /* slot + 1 */
};

struct handles {
	struct handle_slot *slot;
	uint32_t slots; /* allocated */
	uint32_t used;
	uint32_t max;
	uint32_t free_head; /* slot + 1; 0: none */
	uint32_t free_tail;
	struct eng_share *share; /* NULL: none */
	enum eng_share_kind kind;
};

/** @max: maximum of items, at most HANDLES_MAX. */
void eng_handles_init(struct handles *h, uint32_t max);
void eng_handles_fini(struct handles *h);

/** Each added item counts as one of @kind for @share. */
void eng_handles_charge(struct handles *h, struct eng_share *share, enum eng_share_kind kind);

/** *handle: a number for @item, never 0.  -ENOSPC: there are @max, or the user's share is used up;
 *  -ENOMEM */
int eng_handles_add(struct handles *h, void *item, uint32_t *handle);

/** NULL: the number matches nothing. */
void *eng_handles_get(const struct handles *h, uint32_t handle);

/** @handle must be valid. */
void eng_handles_del(struct handles *h, uint32_t handle);

/** The first item in slot *at or after it; advances *at.  NULL: none. */
void *eng_handles_next(const struct handles *h, uint32_t *at);

/** Member of an item in a table of keys. */
struct key_node {
	struct key_node *next;
	uint32_t key;
};

struct keys {
	struct key_node **bucket;
	uint32_t buckets; /* a power of two, or 0 */
	uint32_t used;
	uint32_t max;
	struct eng_share *share;
	enum eng_share_kind kind;
	bool ahead; /* one is charged that was not added yet */
};

void eng_keys_init(struct keys *k, uint32_t max);
/** Clears the table; does not free the items. */
void eng_keys_fini(struct keys *k);

void eng_keys_charge(struct keys *k, struct eng_share *share, enum eng_share_kind kind);

/** Reserves room for one more, so that eng_keys_add() cannot fail.  -ENOSPC: there are @max, or the
 *  user's share is used up; -ENOMEM */
int eng_keys_reserve(struct keys *k);
/** If a reservation was not used, uncharges it. */
void eng_keys_settle(struct keys *k);
void eng_keys_add(struct keys *k, struct key_node *node, uint32_t key);
/** NULL: the key is not in the table. */
struct key_node *eng_keys_get(const struct keys *k, uint32_t key);
void eng_keys_del(struct keys *k, struct key_node *node);
/** Any item; NULL: none is left.  *at is 0 at first; for removing all items. */
struct key_node *eng_keys_any(const struct keys *k, uint32_t *at);

#endif /* ENGINE_HANDLES_H */
