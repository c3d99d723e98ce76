/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Communication ids: slots, and the tables that find them.
 *
 * The number of an id is its slot and the slot's use count, enciphered.  A late message finds the
 * slot in use again, but with another number; and a peer that knows the numbers of its own
 * connections cannot guess those of others.  Slots are reused in the order in which they were
 * freed, so that each is reused as late as possible.
 */
#include "cm_priv.h"
#include "karst_prf.h"

/* Purposes of the keys that are derived from a secret. */
enum key_use { USE_ID = 1, USE_TID, USE_HASH, USE_FIRST };

/* Rounds of the cipher for numbers; four would be enough with a good round function. */
#define ROUNDS 6u

static uint64_t
hash_ip(const struct cm_core *c, const uint8_t ip[16])
{
	uint64_t half[2];

	memcpy(half, ip, sizeof(half));
	return karst_prf(c->hash_key, half[0], half[1]);
}

static uint32_t
hash_bucket(const struct cm_core *c, const uint8_t ip[16], uint64_t guid, uint32_t number)
{
	uint64_t peer = karst_prf(c->hash_key, hash_ip(c, ip), guid);

	return (uint32_t)karst_prf(c->hash_key, peer, number) & c->hash_mask;
}

/* --- lists and chains --- */

static void
link_in(struct cm_link **at, struct cm_link *link)
{
	link->next = *at;
	link->pprev = at;
	if (link->next != NULL)
		link->next->pprev = &link->next;
	*at = link;
}

static void
link_out(struct cm_link *link)
{
	if (link->pprev == NULL)
		return;
	*link->pprev = link->next;
	if (link->next != NULL)
		link->next->pprev = link->pprev;
	link->pprev = NULL;
}

static void
list_append(struct cm_list *list, struct cm_id *id)
{
	id->list = list;
	link_in(list->tail, &id->age);
	list->tail = &id->age.next;
}

static void
list_remove(struct cm_id *id)
{
	if (id->list == NULL)
		return;
	if (id->list->tail == &id->age.next)
		id->list->tail = id->age.pprev;
	link_out(&id->age);
	id->list = NULL;
}

/* --- addresses that have half-open connections --- */

/* Returns the link to the entry of @ip, or the end of its bucket, where the entry belongs. */
static struct cm_source **
source_find(const struct cm_core *c, const uint8_t ip[16])
{
	struct cm_source **at = &c->sources[hash_ip(c, ip) & c->hash_mask];

	while (*at != NULL && !same_ip((*at)->ip, ip))
		at = &(*at)->next;
	return at;
}

static void
source_free(struct cm_core *c, struct cm_source *source)
{
	source->next = c->free_sources;
	c->free_sources = source;
}

/* --- slots --- */

/* A Feistel network: a permutation of all 32-bit numbers. */
static uint32_t
id_encipher(const struct cm_core *c, uint32_t v)
{
	uint32_t left = v >> 16, right = v & 0xffff, i, next;

	for (i = 0; i < ROUNDS; i++) {
		next = left ^ (karst_prf(c->id_key, i, right) & 0xffff);
		left = right;
		right = next;
	}
	return left << 16 | right;
}

static uint32_t
id_decipher(const struct cm_core *c, uint32_t v)
{
	uint32_t left = v >> 16, right = v & 0xffff, i, next;

	for (i = ROUNDS; i-- > 0;) {
		next = right ^ (karst_prf(c->id_key, i, left) & 0xffff);
		right = left;
		left = next;
	}
	return left << 16 | right;
}

static uint32_t
id_number(const struct cm_core *c, uint32_t slot, uint32_t uses)
{
	return id_encipher(c, uses << c->slot_bits | slot);
}

uint64_t
cm_tid(const struct cm_core *c, const struct cm_id *id)
{
	return karst_prf(c->tid_key, id->id, 0);
}

void
cm_table_init(struct cm_core *c, const uint64_t secret[2], struct cm_source *sources)
{
	uint32_t i;

	/* the secret itself, not derived */
	memcpy(c->first_key, secret, sizeof(c->first_key));
	karst_prf_derive(secret, USE_ID, 0, c->id_key);
	karst_prf_derive(secret, USE_TID, 0, c->tid_key);
	karst_prf_derive(secret, USE_HASH, 0, c->hash_key);
	c->free.tail = &c->free.head;
	c->half_open.tail = &c->half_open.head;
	c->answered.tail = &c->answered.head;
	c->orphans.tail = &c->orphans.head;
	for (i = 0; i < c->max_half_open; i++)
		source_free(c, &sources[i]);
}

/* Frees the oldest orphan, which has waited longest for its peer.  Requests come first: any host
 * can send thousands that are refused, and a connection's peer has to learn that it has ended. */
static void
reclaim_orphan(struct cm_core *c)
{
	const struct cm_list *list = c->answered.head != NULL ? &c->answered : &c->orphans;

	if (list->head != NULL)
		cm_id_free(c, karst_container_of(list->head, struct cm_id, age));
}

/* Returns a slot.  Slots that were never used come first, so that memory is touched only when it is
 * needed, and slots are reused as late as possible.  NULL: there is none. */
static struct cm_id *
take_slot(struct cm_core *c)
{
	struct cm_id *id;

	if (c->untouched < c->max_ids) {
		id = &c->slots[c->untouched];
		id->uses = (uint32_t)karst_prf(c->first_key, USE_FIRST, c->untouched++);
		return id;
	}
	if (c->free.head == NULL)
		reclaim_orphan(c);
	if (c->free.head == NULL)
		return NULL;
	id = karst_container_of(c->free.head, struct cm_id, age);
	list_remove(id);
	return id;
}

struct cm_id *
cm_id_new(struct cm_core *c, enum karst_cm_state state, void *user)
{
	struct cm_id *id = take_slot(c);
	uint32_t uses;

	if (id == NULL)
		return NULL;
	uses = id->uses + 1;
	if (id_number(c, (uint32_t)(id - c->slots), uses) == 0)
		uses++;
	memset(id, 0, sizeof(*id));
	id->uses = uses;
	id->id = id_number(c, (uint32_t)(id - c->slots), uses);
	id->state = state;
	id->user = user;
	id->mra = CM_NO_MRA;
	id->born_ns = c->pub.now_ns;
	c->pub.nids++;
	return id;
}

void
cm_id_free(struct cm_core *c, struct cm_id *id)
{
	karst_wheel_del(&c->wheel, &id->timer);
	cm_half_open_remove(c, id);
	list_remove(id);
	cm_id_unhash(id);
	id->id = 0;
	id->user = NULL;
	list_append(&c->free, id);
	c->pub.nids--;
}

struct cm_id *
cm_id_find(const struct cm_core *c, uint32_t number)
{
	uint32_t slot;

	if (number == 0)
		return NULL;
	slot = id_decipher(c, number) & ((1u << c->slot_bits) - 1);
	if (slot >= c->untouched || c->slots[slot].id != number)
		return NULL;
	return &c->slots[slot];
}

struct cm_id *
cm_id_of_user(const struct cm_core *c, uint32_t number)
{
	struct cm_id *id = cm_id_find(c, number);

	return id != NULL && !id->orphan ? id : NULL;
}

/* --- by the peer's numbers --- */

void
cm_id_hash_remote(struct cm_core *c, struct cm_id *id)
{
	uint32_t b = hash_bucket(c, id->path.remote_ip, id->remote_guid, id->remote_id);

	link_out(&id->by_remote_id);
	link_in(&c->remote_ids[b], &id->by_remote_id);
}

struct cm_id *
cm_id_by_remote(const struct cm_core *c, const uint8_t ip[16], uint64_t guid, uint32_t remote_id)
{
	struct cm_link *l = c->remote_ids[hash_bucket(c, ip, guid, remote_id)];
	struct cm_id *id;

	for (; l != NULL; l = l->next) {
		id = karst_container_of(l, struct cm_id, by_remote_id);
		if (id->remote_id == remote_id && id->remote_guid == guid &&
			same_ip(id->path.remote_ip, ip))
			return id;
	}
	return NULL;
}

void
cm_id_hash_qpn(struct cm_core *c, struct cm_id *id)
{
	uint32_t b = hash_bucket(c, id->path.remote_ip, id->remote_guid, id->remote_qpn);

	link_out(&id->by_remote_qpn);
	link_in(&c->remote_qpns[b], &id->by_remote_qpn);
}

struct cm_id *
cm_id_by_qpn(const struct cm_core *c, const uint8_t ip[16], uint64_t guid, uint32_t qpn)
{
	struct cm_link *l = c->remote_qpns[hash_bucket(c, ip, guid, qpn)];
	struct cm_id *id;

	for (; l != NULL; l = l->next) {
		id = karst_container_of(l, struct cm_id, by_remote_qpn);
		if (id->remote_qpn == qpn && id->remote_guid == guid &&
			same_ip(id->path.remote_ip, ip))
			return id;
	}
	return NULL;
}

void
cm_id_unhash_qpn(struct cm_id *id)
{
	link_out(&id->by_remote_qpn);
}

void
cm_id_unhash(struct cm_id *id)
{
	link_out(&id->by_remote_id);
	cm_id_unhash_qpn(id);
	link_out(&id->by_service);
}

/* --- listeners --- */

static uint32_t
service_bucket(const struct cm_core *c, uint64_t service_id)
{
	return (uint32_t)karst_prf(c->hash_key, service_id, UINT64_MAX) & c->hash_mask;
}

static struct cm_id *
service_in(struct cm_link *l, uint64_t service_id, uint64_t mask)
{
	struct cm_id *id;

	for (; l != NULL; l = l->next) {
		id = karst_container_of(l, struct cm_id, by_service);
		if (id->mask == mask && id->service_id == (service_id & mask))
			return id;
	}
	return NULL;
}

int
cm_service_add(struct cm_core *c, struct cm_id *id)
{
	struct cm_link **at = &c->masked;

	if (id->mask == UINT64_MAX)
		at = &c->services[service_bucket(c, id->service_id)];
	if (service_in(*at, id->service_id, id->mask) != NULL)
		return -EADDRINUSE;
	/* in the list of masks: behind those that are at least as narrow */
	while (id->mask != UINT64_MAX && *at != NULL &&
		__builtin_popcountll(karst_container_of(*at, struct cm_id, by_service)->mask) >=
			__builtin_popcountll(id->mask))
		at = &(*at)->next;
	link_in(at, &id->by_service);
	return 0;
}

struct cm_id *
cm_service_find(const struct cm_core *c, uint64_t service_id)
{
	struct cm_link *l = c->services[service_bucket(c, service_id)];
	struct cm_id *id = service_in(l, service_id, UINT64_MAX);

	if (id != NULL)
		return id;
	for (l = c->masked; l != NULL; l = l->next) {
		id = karst_container_of(l, struct cm_id, by_service);
		if (id->service_id == (service_id & id->mask))
			return id;
	}
	return NULL;
}

/* --- half-open connections, orphans --- */

bool
cm_half_open_full(const struct cm_core *c, const uint8_t ip[16])
{
	const struct cm_source *from = *source_find(c, ip);

	return from != NULL && from->nhalf_open >= c->pub.half_open_of_one;
}

void
cm_half_open_add(struct cm_core *c, struct cm_id *id)
{
	struct cm_source **at = source_find(c, id->path.remote_ip);

	if (*at == NULL) {
		*at = c->free_sources; /* there are as many entries as half-open connections */
		c->free_sources = (*at)->next;
		**at = (struct cm_source){.next = NULL};
		memcpy((*at)->ip, id->path.remote_ip, sizeof((*at)->ip));
	}
	id->source = *at;
	list_append(&c->half_open, id);
	id->source->nhalf_open++;
	c->pub.nhalf_open++;
}

void
cm_half_open_remove(struct cm_core *c, struct cm_id *id)
{
	struct cm_source *from = id->source, **at;

	if (id->list != &c->half_open)
		return;
	list_remove(id);
	id->source = NULL;
	c->pub.nhalf_open--;
	if (--from->nhalf_open != 0)
		return;
	at = source_find(c, from->ip);
	*at = from->next;
	source_free(c, from);
}

void
cm_orphan_add(struct cm_core *c, struct cm_id *id)
{
	cm_half_open_remove(c, id);
	id->orphan = true;
	id->user = NULL;
	list_append(
		id->spent || id->state == KARST_CM_SIDR_REP_SENT ? &c->answered : &c->orphans, id);
}
