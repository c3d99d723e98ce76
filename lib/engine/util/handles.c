/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "handles.h"

#include <errno.h>
#include <stdlib.h>

/* A handle: the generation, from 1, above the slot's index. */
#define INDEX_BITS  22u
#define INDEX_MASK  ((1u << INDEX_BITS) - 1)
#define GENERATIONS (1u << (32 - INDEX_BITS))
#define SLOTS_FIRST 16u

static_assert(HANDLES_MAX == 1u << INDEX_BITS, "an index fits");

/* --- handles --- */

void
eng_handles_init(struct handles *h, uint32_t max)
{
	*h = (struct handles){.max = karst_min_u32(max, HANDLES_MAX)};
}

void
eng_handles_fini(struct handles *h)
{
	free(h->slot);
	*h = (struct handles){0};
}

void
eng_handles_charge(struct handles *h, struct eng_share *share, enum eng_share_kind kind)
{
	assert(h->used == 0);
	h->share = share;
	h->kind = kind;
}

static void
free_append(struct handles *h, uint32_t i)
{
	h->slot[i].next_free = 0;
	if (h->free_tail != 0)
		h->slot[h->free_tail - 1].next_free = i + 1;
	else
		h->free_head = i + 1;
	h->free_tail = i + 1;
}

static int
handles_grow(struct handles *h)
{
	uint32_t i, n = h->slots == 0 ? SLOTS_FIRST : h->slots * 2;
	struct handle_slot *slot;

	n = karst_min_u32(n, h->max);
	slot = realloc(h->slot, n * sizeof(*slot));
	if (slot == NULL)
		return -ENOMEM;
	h->slot = slot;
	for (i = h->slots; i < n; i++) {
		slot[i] = (struct handle_slot){.generation = 1};
		free_append(h, i);
	}
	h->slots = n;
	return 0;
}

int
eng_handles_add(struct handles *h, void *item, uint32_t *handle)
{
	struct handle_slot *slot;
	uint32_t i;
	int ret;

	if (h->used == h->max)
		return -ENOSPC;
	if (h->free_head == 0) {
		ret = handles_grow(h);
		if (ret != 0)
			return ret;
	}
	if (!eng_share_take(h->share, h->kind, 1))
		return -ENOSPC;
	i = h->free_head - 1;
	slot = &h->slot[i];
	h->free_head = slot->next_free;
	if (h->free_head == 0)
		h->free_tail = 0;
	slot->item = item;
	h->used++;
	*handle = slot->generation << INDEX_BITS | i;
	return 0;
}

void *
eng_handles_get(const struct handles *h, uint32_t handle)
{
	uint32_t i = handle & INDEX_MASK;

	if (i >= h->slots || h->slot[i].generation != handle >> INDEX_BITS)
		return NULL;
	return h->slot[i].item;
}

void
eng_handles_del(struct handles *h, uint32_t handle)
{
	uint32_t i = handle & INDEX_MASK;
	struct handle_slot *slot = &h->slot[i];

	assert(eng_handles_get(h, handle) != NULL);
	slot->item = NULL;
	slot->generation = slot->generation + 1 == GENERATIONS ? 1 : slot->generation + 1;
	free_append(h, i);
	h->used--;
	eng_share_give(h->share, h->kind, 1);
}

void *
eng_handles_next(const struct handles *h, uint32_t *at)
{
	while (*at < h->slots) {
		void *item = h->slot[(*at)++].item;

		if (item != NULL)
			return item;
	}
	return NULL;
}

/* --- keys --- */

/* Multiplicative hash: keys are random in their upper bits, address handles count in their lower
 * bits. */
static uint32_t
keys_bucket_of(const struct keys *k, uint32_t key)
{
	return key * 0x9e3779b1u >> (32 - karst_log2(k->buckets));
}

void
eng_keys_init(struct keys *k, uint32_t max)
{
	*k = (struct keys){.max = max};
}

void
eng_keys_charge(struct keys *k, struct eng_share *share, enum eng_share_kind kind)
{
	assert(k->used == 0);
	k->share = share;
	k->kind = kind;
}

void
eng_keys_fini(struct keys *k)
{
	free(k->bucket);
	*k = (struct keys){0};
}

static void
keys_insert(struct keys *k, struct key_node *node)
{
	struct key_node **head = &k->bucket[keys_bucket_of(k, node->key)];

	node->next = *head;
	*head = node;
}

static int
grow_keys(struct keys *k)
{
	struct keys bigger = *k;
	uint32_t i;

	bigger.buckets = k->buckets == 0 ? SLOTS_FIRST : k->buckets * 2;
	bigger.bucket = calloc(bigger.buckets, sizeof(*bigger.bucket));
	if (bigger.bucket == NULL)
		return -ENOMEM;
	for (i = 0; i < k->buckets; i++) {
		struct key_node *node, *next;

		for (node = k->bucket[i]; node != NULL; node = next) {
			next = node->next;
			keys_insert(&bigger, node);
		}
	}
	free(k->bucket);
	*k = bigger;
	return 0;
}

int
eng_keys_reserve(struct keys *k)
{
	int ret = 0;

	if (k->used == k->max)
		return -ENOSPC;
	if (k->used == k->buckets)
		ret = grow_keys(k);
	if (ret == 0 && !k->ahead)
		ret = eng_share_take(k->share, k->kind, 1) ? 0 : -ENOSPC;
	k->ahead |= ret == 0;
	return ret;
}

void
eng_keys_settle(struct keys *k)
{
	if (k->ahead)
		eng_share_give(k->share, k->kind, 1);
	k->ahead = false;
}

void
eng_keys_add(struct keys *k, struct key_node *node, uint32_t key)
{
	assert(k->used < k->buckets && k->ahead);
	k->ahead = false;
	node->key = key;
	keys_insert(k, node);
	k->used++;
}

struct key_node *
eng_keys_get(const struct keys *k, uint32_t key)
{
	struct key_node *node = k->buckets == 0 ? NULL : k->bucket[keys_bucket_of(k, key)];

	while (node != NULL && node->key != key)
		node = node->next;
	return node;
}

void
eng_keys_del(struct keys *k, struct key_node *node)
{
	struct key_node **at = &k->bucket[keys_bucket_of(k, node->key)];

	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	k->used--;
	eng_share_give(k->share, k->kind, 1);
}

struct key_node *
eng_keys_any(const struct keys *k, uint32_t *at)
{
	while (*at < k->buckets && k->bucket[*at] == NULL)
		(*at)++;
	return *at < k->buckets ? k->bucket[*at] : NULL;
}
