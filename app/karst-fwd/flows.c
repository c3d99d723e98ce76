/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "flows.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "karst_counters.h"
#include "karst_hdr.h"
#include "karst_opcode.h"

#define CHUNK         32u /* packets that are looked up together */
#define MTU_SHIFT_MIN 8u  /* 256 */

int
fwd_flows_init(struct fwd_flows *fs, uint32_t room)
{
	uint32_t slots = karst_pow2_ceil(2 * room);

	*fs = (struct fwd_flows){.room = room, .mask = slots - 1, .shift = 64 - karst_log2(slots)};
	if (getrandom(fs->key, sizeof(fs->key), 0) != sizeof(fs->key))
		return -errno;
	fs->flows = aligned_alloc(KARST_CACHE_LINE, room * sizeof(*fs->flows));
	fs->slots = aligned_alloc(KARST_CACHE_LINE, slots * sizeof(*fs->slots));
	if (fs->flows == NULL || fs->slots == NULL) {
		fwd_flows_free(fs);
		return -ENOMEM;
	}
	memset(fs->slots, 0, slots * sizeof(*fs->slots));
	return 0;
}

void
fwd_flows_free(struct fwd_flows *fs)
{
	free(fs->flows);
	free(fs->slots);
	*fs = (struct fwd_flows){0};
}

uint32_t
fwd_flows_count(const struct fwd_flows *fs)
{
	/* acquire: pairs with the release of add() */
	return __atomic_load_n(&fs->count, __ATOMIC_ACQUIRE);
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "look_of() has addresses as words");

/* The lookup key of a packet. */
struct look {
	uint64_t addresses; /* IPv4: source below destination in the word; IPv6: a hash */
	uint64_t ends;      /* queue pairs of 24 bits each; kind and IP version in between */
	uint32_t port;
};

#define ENDS_KIND    24
#define ENDS_IP6     (UINT64_C(1) << 31)
#define ENDS_SRC_QPN 32

/*
 * Folds both halves of a product into 64 bits, each of which depends on nearly all bits of both
 * factors.
 */
static inline uint64_t
folded_product(uint64_t a, uint64_t b)
{
	unsigned __int128 v = (unsigned __int128)a * b;

	return (uint64_t)v ^ (uint64_t)(v >> 64);
}

static inline uint64_t
load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline struct look
look_of(const struct fwd_flows *fs, const struct karst_pkt *p, uint16_t port, uint32_t op)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);
	struct look w = {.ends = p->dqpn, .port = port};

	if (op & KARST_OPF_RESPONSE)
		w.ends |= (uint64_t)FWD_FLOW_RESPONSES << ENDS_KIND;
	else if (op & KARST_OPF_DETH)
		w.ends |= (uint64_t)FWD_FLOW_DATAGRAMS << ENDS_KIND |
			(uint64_t)p->src_qpn << ENDS_SRC_QPN;
	if (karst_unlikely(p->flags & KARST_PKT_IP6)) {
		const uint8_t *a = karst_ip6_src(l3); /* the destination follows */

		w.ends |= ENDS_IP6;
		w.addresses = folded_product(load64(a) ^ fs->key[2], load64(a + 8) ^ fs->key[3]) +
			folded_product(load64(a + 16) ^ fs->key[4], load64(a + 24) ^ fs->key[5]);
	} else {
		w.addresses = load64(karst_ip4_src(l3)); /* the destination follows */
	}
	return w;
}

/*
 * Hashes a lookup key.  A sender that does not know the secret key cannot make packets whose flows
 * all collide.
 *
 * This is weaker than karst_prf(), which is for numbers that others can see.  These hashes only
 * select a place in this process, and each packet costs one.  So there is one product for each two
 * words.  Each word from the packet has its own word of the secret key, six in all with IPv6:
 * otherwise a sender that knew one factor could make it zero, and so the product.
 */
static inline uint64_t
hash_of(const struct fwd_flows *fs, const struct look *w)
{
	return folded_product(
		w->addresses ^ fs->key[0], (w->ends ^ (uint64_t)w->port << 56) ^ fs->key[1]);
}

static inline uint32_t
slot_of(const struct fwd_flows *fs, const struct look *w)
{
	return (uint32_t)(hash_of(fs, w) >> fs->shift);
}

static inline bool
is_of(const struct fwd_flow_slot *s, const struct look *w)
{
	return ((s->addresses ^ w->addresses) | (s->ends ^ w->ends) | (s->port ^ w->port)) == 0;
}

static bool
has_addresses(const struct fwd_flow *f, const struct karst_pkt *p)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);

	return memcmp(f->key.src, karst_ip6_src(l3), 16) == 0 &&
		memcmp(f->key.dst, karst_ip6_dst(l3), 16) == 0;
}

static void
key_of(struct fwd_flow_key *k, const struct look *w, const struct karst_pkt *p)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);

	*k = (struct fwd_flow_key){.qpn = p->dqpn,
		.src_qpn = (uint32_t)(w->ends >> ENDS_SRC_QPN),
		.port = (uint16_t)w->port,
		.ip6 = (w->ends & ENDS_IP6) != 0,
		.kind = w->ends >> ENDS_KIND & 3};
	memcpy(k->src, k->ip6 ? karst_ip6_src(l3) : karst_ip4_src(l3), k->ip6 ? 16 : 4);
	memcpy(k->dst, k->ip6 ? karst_ip6_dst(l3) : karst_ip4_dst(l3), k->ip6 ? 16 : 4);
}

static karst_noinline struct fwd_flow *
add(struct fwd_flows *fs, struct fwd_flow_slot *slot, const struct look *w,
	const struct karst_pkt *p)
{
	struct fwd_flow *f;

	if (fs->count == fs->room)
		return NULL;
	f = &fs->flows[fs->count];
	memset(f, 0, sizeof(*f));
	key_of(&f->key, w, p);
	f->next_psn = f->old.next_psn = UINT32_MAX;
	*slot = (struct fwd_flow_slot){
		.addresses = w->addresses, .ends = w->ends, .port = w->port, .flow = fs->count + 1};
	/* release: pairs with the acquire of fwd_flows_count() */
	__atomic_store_n(&fs->count, fs->count + 1, __ATOMIC_RELEASE);
	return f;
}

/* Finds or adds a flow.  The loop ends because half of the slots are free. */
static inline struct fwd_flow *
find(struct fwd_flows *fs, const struct karst_pkt *p, const struct look *w, uint32_t i)
{
	for (;; i++) {
		struct fwd_flow_slot *slot = &fs->slots[i & fs->mask];
		struct fwd_flow *f;

		if (karst_unlikely(slot->flow == 0))
			return add(fs, slot, w, p);
		if (karst_unlikely(!is_of(slot, w)))
			continue;
		f = &fs->flows[slot->flow - 1];
		if (karst_likely(!(p->flags & KARST_PKT_IP6)) || has_addresses(f, p))
			return f;
	}
}

struct fwd_flow *
fwd_flow_of(struct fwd_flows *fs, const struct karst_pkt *p, uint16_t port)
{
	struct look w = look_of(fs, p, port, karst_opcode_flags(p->opcode));

	return find(fs, p, &w, slot_of(fs, &w));
}

static inline void
count(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

/* Marks @n PSNs from @psn on as seen, or as not seen. */
static void
mark_range(struct fwd_flow *f, uint32_t psn, uint32_t n, bool seen)
{
	uint32_t k;

	for (n = karst_min_u32(n, FWD_FLOW_PSNS); n > 0; n -= k, psn = karst_psn_add(psn, k)) {
		uint64_t *word = &f->seen[psn % FWD_FLOW_PSNS / 64], bits;

		k = karst_min_u32(n, 64 - psn % 64);
		bits = UINT64_MAX >> (64 - k) << psn % 64;
		*word = seen ? *word | bits : *word & ~bits;
	}
}

/* Sets the bits of the run. */
static void
settle(struct fwd_flow *f)
{
	uint32_t n = (uint32_t)karst_min_u64(f->run, FWD_FLOW_PSNS);

	mark_range(f, (f->next_psn - n) & 0xffffff, n, true);
	f->run = 0;
}

/* Begins a flow.  All older PSNs count as seen, because it is not known whether any is missing. */
static void
begin(struct fwd_flow *f, uint32_t psn)
{
	f->next_psn = karst_psn_add(psn, 1);
	f->run = FWD_FLOW_PSNS;
}

static enum fwd_psn
behind(struct fwd_flow *f, uint32_t psn)
{
	uint64_t *word = &f->seen[psn % FWD_FLOW_PSNS / 64], bit = UINT64_C(1) << psn % 64;

	settle(f);
	if (*word & bit) {
		count(&f->repeated, 1);
		return FWD_PSN_REPEATED;
	}
	*word |= bit;
	count(&f->late, 1);
	return FWD_PSN_LATE;
}

/*
 * Handles a PSN that is @ahead PSNs after the expected one.  The first @slack of the skipped ones
 * may belong to a READ.
 */
static enum fwd_psn
skipped(struct fwd_flow *f, uint32_t psn, uint32_t ahead)
{
	uint32_t allowed = karst_min_u32(ahead, f->slack);

	settle(f);
	mark_range(f, f->next_psn, allowed, true);
	mark_range(f, karst_psn_add(f->next_psn, allowed), ahead - allowed, false);
	f->next_psn = karst_psn_add(psn, 1);
	f->run = 1;
	if (ahead == allowed)
		return FWD_PSN_NEXT;
	count(&f->gaps, 1);
	count(&f->missing, ahead - allowed);
	return FWD_PSN_GAP;
}

/* Restarts the flow, and keeps what was known, in case that this is only an old packet. */
static void
restart(struct fwd_flow *f, uint32_t psn)
{
	f->old.next_psn = f->next_psn;
	f->old.run = f->run;
	f->old.slack = f->slack;
	f->old.restart = psn;
	begin(f, psn);
	f->open = false;
	count(&f->restarts, 1);
}

/*
 * Goes on where the flow was before the last restart, if this is a PSN that could follow there, and
 * only a few packets, in order, have come since.  As the run tells, no bit in @seen has changed
 * then.
 */
static bool
resumed(struct fwd_flow *f, uint32_t psn)
{
	uint32_t since = (f->next_psn - f->old.restart) & 0xffffff;
	uint32_t ahead = (psn - f->old.next_psn) & 0xffffff;

	if (f->old.next_psn == UINT32_MAX || ahead > f->old.slack || since > FWD_FLOW_OLD ||
		f->run != FWD_FLOW_PSNS + since - 1)
		return false;
	f->next_psn = f->old.next_psn;
	f->run = f->old.run;
	f->slack = f->old.slack;
	f->old.next_psn = UINT32_MAX;
	if (ahead != 0) {
		(void)skipped(f, psn, ahead); /* all within the slack, so no gap */
	} else {
		f->next_psn = karst_psn_add(psn, 1);
		f->run++;
	}
	return true;
}

enum fwd_psn
fwd_flow_elsewhere(struct fwd_flow *f, uint32_t psn, uint32_t span)
{
	enum fwd_psn is = FWD_PSN_NEXT;
	int32_t ahead = karst_psn_diff(psn, f->next_psn);

	if (karst_unlikely(f->next_psn == UINT32_MAX)) {
		begin(f, psn);
	} else if (resumed(f, psn)) {
		; /* as if the packets since the restart had not come */
	} else if (ahead < -(int32_t)FWD_FLOW_PSNS || ahead > (int32_t)f->slack + FWD_FLOW_JUMP) {
		restart(f, psn);
		is = FWD_PSN_RESTART;
	} else if (ahead < 0) {
		return behind(f, psn); /* the slack after the newest packet remains */
	} else {
		is = skipped(f, psn, (uint32_t)ahead);
	}
	f->slack = span - 1;
	return is;
}

/*
 * Responses to a READ have consecutive PSNs from First to Last.  A First or Only may have any PSN.
 * If a First is missing, the number of missing packets is unknown, and one is counted.
 */
static enum fwd_psn
response(struct fwd_flow *f, const struct karst_pkt *p, uint32_t op)
{
	enum fwd_psn is = FWD_PSN_NEXT;

	if (!(op & KARST_OPF_READ))
		return is;
	if (op & KARST_OPF_START || f->next_psn == UINT32_MAX) {
		begin(f, p->psn);
	} else if (f->open) {
		is = fwd_flow_follow(f, p->psn, 1);
	} else if (karst_psn_before(p->psn, f->next_psn)) {
		count(&f->repeated, 1);
		is = FWD_PSN_REPEATED;
	} else {
		begin(f, p->psn);
		count(&f->gaps, 1);
		count(&f->missing, 1);
		is = FWD_PSN_GAP;
	}
	if (is != FWD_PSN_REPEATED && is != FWD_PSN_LATE)
		f->open = !(op & KARST_OPF_END);
	return is;
}

void
fwd_flow_acknowledged(struct fwd_flow *f, uint32_t aeth)
{
	uint8_t type = karst_aeth_syndrome(aeth) & KARST_AETH_TYPE_MASK;

	if (type == KARST_AETH_NAK)
		count(&f->naks, 1);
	else if (type == KARST_AETH_RNR)
		count(&f->rnr_naks, 1);
}

karst_always_inline enum fwd_psn
packet(struct fwd_flow *f, const struct karst_pkt *p, uint32_t op)
{
	uint32_t span = 1;

	count(&f->packets, 1);
	count(&f->bytes, p->len);
	f->opcode = p->opcode;
	if (p->flags & KARST_PKT_CE)
		count(&f->ce, 1);
	if (op & KARST_OPF_RESPONSE) {
		if (op & KARST_OPF_AETH)
			fwd_flow_acknowledged(f, p->aeth);
		return response(f, p, op);
	}
	/* a UD QP has one PSN counter for all its destinations */
	if (op & (KARST_OPF_CNP | KARST_OPF_DETH))
		return FWD_PSN_NEXT;
	if (op & KARST_OPF_READ)
		span = karst_psn_count(p->dma_len, MTU_SHIFT_MIN);
	return fwd_flow_follow(f, p->psn, karst_min_u32(span, 1u << 22));
}

enum fwd_psn
fwd_flow_packet(struct fwd_flow *f, const struct karst_pkt *p)
{
	return packet(f, p, karst_opcode_flags(p->opcode));
}

/* Prefetches the fields that a packet of the flow needs. */
static inline void
fetch(const struct fwd_flow *f)
{
	__builtin_prefetch(&f->next_psn);
	__builtin_prefetch(&f->packets);
}

/*
 * Handles up to CHUNK packets of many flows.  It looks them up in three passes; each pass
 * prefetches what the next one needs.
 */
static uint32_t
see_many(struct fwd_flows *fs, struct karst_pkt *const *pkts, uint32_t n, uint16_t port)
{
	uint32_t i, slots[CHUNK], untracked = 0;
	struct look looks[CHUNK];

	for (i = 0; i < n; i++) {
		looks[i] = look_of(fs, pkts[i], port, karst_opcode_flags(pkts[i]->opcode));
		slots[i] = slot_of(fs, &looks[i]);
		__builtin_prefetch(&fs->slots[slots[i]]);
	}
	for (i = 0; i < n; i++) {
		uint32_t flow = fs->slots[slots[i]].flow;

		if (karst_likely(flow != 0))
			fetch(&fs->flows[flow - 1]);
	}
	for (i = 0; i < n; i++) {
		struct fwd_flow *f = find(fs, pkts[i], &looks[i], slots[i]);

		if (karst_likely(f != NULL))
			(void)packet(f, pkts[i], karst_opcode_flags(pkts[i]->opcode));
		else
			untracked++;
	}
	return untracked;
}

/* Handles packets of few flows, which are in the cache. */
static uint32_t
see_few(struct fwd_flows *fs, struct karst_pkt *const *pkts, struct fwd_flow **known, uint32_t n,
	uint16_t port)
{
	uint32_t i, untracked = 0;

	for (i = 0; i < n; i++) {
		const struct karst_pkt *p = pkts[i];
		uint32_t op = karst_opcode_flags(p->opcode);

		if (karst_unlikely(p->drop != KARST_DROP_NONE))
			continue;
		if (known[i] == NULL) {
			struct look w = look_of(fs, p, port, op);

			known[i] = find(fs, p, &w, slot_of(fs, &w));
		}
		if (karst_likely(known[i] != NULL))
			(void)packet(known[i], p, op);
		else
			untracked++;
	}
	return untracked;
}

uint32_t
fwd_flows_see(struct fwd_flows *fs, struct karst_pkt *const *pkts, struct fwd_flow **known,
	uint32_t n, uint16_t port)
{
	struct karst_pkt *right[CHUNK];
	uint32_t i = 0, untracked = 0;

	if (fwd_flows_are_few(fs))
		return see_few(fs, pkts, known, n, port);
	while (i < n) {
		uint32_t k = 0;

		for (; i < n && k < CHUNK; i++) {
			right[k] = pkts[i];
			k += pkts[i]->drop == KARST_DROP_NONE;
		}
		untracked += see_many(fs, right, k, port);
	}
	return untracked;
}
