/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "neigh_table.h"

#include "karst_prf.h"

#define SETS (KARST_ENGINE_NEIGH_MAX / ENG_NEIGH_WAYS)
static_assert((SETS & (SETS - 1)) == 0, "a hash is masked");

#define MS_NS         UINT64_C(1000000)
#define FRESH_NS      (60000 * MS_NS)  /* after this, an entry is doubted */
#define KEPT_NS       (300000 * MS_NS) /* after this, it must be confirmed before use */
#define ASK_FIRST_NS  (100 * MS_NS)    /* between the first two requests; then doubled, ... */
#define ASK_MOST_NS   (1000 * MS_NS)   /* ... up to this */
#define ASK_AGAIN_NS  (5000 * MS_NS)   /* after so long without a request, as at first */
#define ASKS_IN_DOUBT 4u               /* unanswered requests after which the neighbour has gone */

void
eng_neigh_table_init(struct eng_neigh_table *t, const uint64_t key[2])
{
	memset(t, 0, sizeof(*t));
	memcpy(t->key, key, sizeof(t->key));
}

static struct eng_neigh_entry *
set_of(struct eng_neigh_table *t, const uint8_t ip[16])
{
	uint64_t half[2];

	memcpy(half, ip, sizeof(half)); /* an address may be unaligned */
	return &t->entry[(karst_prf(t->key, half[0], half[1]) & (SETS - 1)) * ENG_NEIGH_WAYS];
}

static struct eng_neigh_entry *
neigh_find(struct eng_neigh_table *t, const uint8_t ip[16])
{
	struct eng_neigh_entry *set = set_of(t, ip);
	unsigned int i;

	for (i = 0; i < ENG_NEIGH_WAYS; i++)
		if (set[i].taken && memcmp(set[i].ip, ip, 16) == 0)
			return &set[i];
	return NULL;
}

bool
eng_neigh_present(struct eng_neigh_table *t, const uint8_t ip[16])
{
	return neigh_find(t, ip) != NULL;
}

/* Finds a place for @ip, which has none. */
static struct eng_neigh_entry *
neigh_place(struct eng_neigh_table *t, const uint8_t ip[16], uint64_t now_ns)
{
	struct eng_neigh_entry *set = set_of(t, ip), *best = set;
	unsigned int i;

	for (i = 0; i < ENG_NEIGH_WAYS && best->taken; i++)
		if (!set[i].taken || set[i].used_ns < best->used_ns)
			best = &set[i];
	*best = (struct eng_neigh_entry){
		.taken = true, .state = KARST_NEIGH_ASKED, .since_ns = now_ns, .used_ns = now_ns};
	memcpy(best->ip, ip, 16);
	return best;
}

/* Whether a further request is due; if so, counts it. */
static bool
may_ask(struct eng_neigh_entry *n, uint64_t now_ns)
{
	uint64_t pause = ASK_FIRST_NS << karst_min_u32(n->asks == 0 ? 0 : n->asks - 1u, 8);

	if (n->asks != 0 && now_ns - n->asked_ns >= ASK_AGAIN_NS)
		n->asks = 0;
	if (n->asks != 0 && now_ns - n->asked_ns < karst_min_u64(pause, ASK_MOST_NS))
		return false;
	n->asked_ns = now_ns;
	if (n->asks < UINT8_MAX)
		n->asks++;
	return true;
}

bool
eng_neigh_use(
	struct eng_neigh_table *t, const uint8_t ip[16], uint64_t now_ns, uint8_t mac[6], bool *ask)
{
	struct eng_neigh_entry *n = neigh_find(t, ip);

	if (n == NULL)
		n = neigh_place(t, ip, now_ns);
	n->used_ns = now_ns;
	if (n->state == KARST_NEIGH_KNOWN && now_ns - n->since_ns >= FRESH_NS)
		n->state = KARST_NEIGH_DOUBTED;
	if (n->state == KARST_NEIGH_DOUBTED &&
		(n->asks >= ASKS_IN_DOUBT || now_ns - n->since_ns >= KEPT_NS)) {
		n->state = KARST_NEIGH_ASKED;
		n->since_ns = now_ns;
	}
	*ask = n->state != KARST_NEIGH_KNOWN && may_ask(n, now_ns);
	if (n->state == KARST_NEIGH_ASKED)
		return false;
	memcpy(mac, n->mac, 6);
	return true;
}

static void
neigh_confirm(struct eng_neigh_entry *n, const uint8_t mac[6], uint64_t now_ns)
{
	memcpy(n->mac, mac, 6);
	n->state = KARST_NEIGH_KNOWN;
	n->since_ns = now_ns;
	n->asks = 0;
}

bool
eng_neigh_answer(
	struct eng_neigh_table *t, const uint8_t ip[16], const uint8_t mac[6], uint64_t now_ns)
{
	struct eng_neigh_entry *n = neigh_find(t, ip);

	if (n == NULL || n->asks == 0 || now_ns - n->asked_ns >= ASK_AGAIN_NS)
		return false;
	neigh_confirm(n, mac, now_ns);
	return true;
}

void
eng_neigh_claim(struct eng_neigh_table *t, const uint8_t ip[16], const uint8_t mac[6])
{
	struct eng_neigh_entry *n = neigh_find(t, ip);

	if (n != NULL && n->state == KARST_NEIGH_KNOWN && memcmp(n->mac, mac, 6) != 0)
		n->state = KARST_NEIGH_DOUBTED;
}

unsigned int
eng_neigh_entries(const struct eng_neigh_table *t, uint64_t now_ns, struct karst_engine_neigh *list,
	unsigned int max)
{
	unsigned int i, n = 0;

	for (i = 0; i < KARST_ENGINE_NEIGH_MAX; i++) {
		const struct eng_neigh_entry *from = &t->entry[i];

		if (!from->taken)
			continue;
		if (n < max) {
			memset(&list[n], 0, sizeof(list[n]));
			memcpy(list[n].ip, from->ip, sizeof(list[n].ip));
			memcpy(list[n].mac, from->mac, sizeof(list[n].mac));
			list[n].state = from->state;
			if (from->state == KARST_NEIGH_KNOWN && now_ns - from->since_ns >= FRESH_NS)
				list[n].state = KARST_NEIGH_DOUBTED;
			list[n].age_ns = now_ns - from->since_ns;
		}
		n++;
	}
	return n;
}
