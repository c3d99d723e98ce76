/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "flows.h"

#include <errno.h>
#include <stdlib.h>

#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_psn.h"

#define KEY_WORDS     (sizeof(struct fwd_flow_key) / 8)
#define MTU_SHIFT_MIN 8u /* 256 */

int
fwd_flows_init(struct fwd_flows *fs, uint32_t room)
{
	uint32_t slots = karst_pow2_ceil(2 * room);

	*fs = (struct fwd_flows){.room = room, .mask = slots - 1, .shift = 64 - karst_log2(slots)};
	fs->flows = aligned_alloc(KARST_CACHE_LINE, room * sizeof(*fs->flows));
	fs->slots = calloc(slots, sizeof(*fs->slots));
	if (fs->flows != NULL && fs->slots != NULL)
		return 0;
	fwd_flows_free(fs);
	return -ENOMEM;
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
	return __atomic_load_n(&fs->count, __ATOMIC_ACQUIRE); /* with that of add() */
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "key_of() puts members together so");
static_assert(offsetof(struct fwd_flow_key, qpn) == 32 &&
		offsetof(struct fwd_flow_key, src_qpn) == 36 &&
		offsetof(struct fwd_flow_key, port) == 40 &&
		offsetof(struct fwd_flow_key, ip6) == 42 &&
		offsetof(struct fwd_flow_key, kind) == 43,
	"and where they are");

/* struct fwd_flow_key in words, which never leaves registers: small stores that are loaded as words
 * would wait for each other. */
static inline void
key_of(uint64_t w[KEY_WORDS], const struct karst_pkt *p, uint16_t port)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);
	uint32_t op = karst_opcode_flags(p->opcode), v;
	uint64_t kind = FWD_FLOW_REQUESTS, ip6 = (p->flags & KARST_PKT_IP6) != 0;

	w[4] = p->dqpn;
	if (op & KARST_OPF_RESPONSE) {
		kind = FWD_FLOW_RESPONSES;
	} else if (op & KARST_OPF_DETH) {
		kind = FWD_FLOW_DATAGRAMS;
		w[4] |= (uint64_t)p->src_qpn << 32;
	}
	w[5] = port | ip6 << 16 | kind << 24;
	if (karst_unlikely(ip6)) {
		memcpy(&w[0], karst_ip6_src(l3), 16);
		memcpy(&w[2], karst_ip6_dst(l3), 16);
		return;
	}
	memcpy(&v, karst_ip4_src(l3), 4);
	w[0] = v;
	memcpy(&v, karst_ip4_dst(l3), 4);
	w[2] = v;
	w[1] = w[3] = 0;
}

static inline uint64_t
turned(uint64_t v, unsigned int bits)
{
	return v << bits | v >> (64 - bits);
}

/* Two products that do not wait for each other; the top bits, which are used, depend on all. */
static inline uint64_t
hash_of(const uint64_t w[KEY_WORDS])
{
	uint64_t addresses = w[0] ^ turned(w[1], 13) ^ turned(w[2], 32) ^ turned(w[3], 47);

	return addresses * UINT64_C(0x9e3779b97f4a7c15) +
		(w[4] ^ turned(w[5], 40)) * UINT64_C(0xbf58476d1ce4e5b9);
}

static inline bool
is_of(const struct fwd_flow *f, const uint64_t w[KEY_WORDS])
{
	uint64_t key[KEY_WORDS], differ = 0;
	size_t i;

	memcpy(key, &f->key, sizeof(key));
	for (i = 0; i < KEY_WORDS; i++)
		differ |= key[i] ^ w[i];
	return differ == 0;
}

static struct fwd_flow *
add(struct fwd_flows *fs, uint32_t *slot, const uint64_t w[KEY_WORDS])
{
	struct fwd_flow *f;

	if (fs->count == fs->room)
		return NULL;
	f = &fs->flows[fs->count];
	memset(f, 0, sizeof(*f));
	memcpy(&f->key, w, sizeof(f->key));
	f->next_psn = UINT32_MAX;
	*slot = fs->count + 1;
	__atomic_store_n(&fs->count, fs->count + 1, __ATOMIC_RELEASE); /* with fwd_flows_count() */
	return f;
}

struct fwd_flow *
fwd_flow_of(struct fwd_flows *fs, const struct karst_pkt *p, uint16_t port)
{
	uint64_t w[KEY_WORDS];
	uint32_t i;

	key_of(w, p, port);
	/* half of the slots are free, so this ends */
	for (i = (uint32_t)(hash_of(w) >> fs->shift);; i++) {
		uint32_t *slot = &fs->slots[i & fs->mask];

		if (*slot == 0)
			return add(fs, slot, w);
		if (karst_likely(is_of(&fs->flows[*slot - 1], w)))
			return &fs->flows[*slot - 1];
	}
}

static inline void
count(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

static inline void
mark(struct fwd_flow *f, uint32_t psn)
{
	f->seen[psn % FWD_FLOW_PSNS / 64] |= UINT64_C(1) << psn % 64;
}

static inline bool
is_marked(const struct fwd_flow *f, uint32_t psn)
{
	return (f->seen[psn % FWD_FLOW_PSNS / 64] >> psn % 64 & 1) != 0;
}

/* @n PSNs from @psn on were, or were not, seen. */
static void
mark_range(struct fwd_flow *f, uint32_t psn, uint32_t n, bool seen)
{
	for (n = karst_min_u32(n, FWD_FLOW_PSNS); n > 0; n--, psn = karst_psn_add(psn, 1)) {
		mark(f, psn);
		if (!seen)
			f->seen[psn % FWD_FLOW_PSNS / 64] ^= UINT64_C(1) << psn % 64;
	}
}

/* All that is older counts as seen: nobody knows it to be missing. */
static void
begin(struct fwd_flow *f, uint32_t psn)
{
	memset(f->seen, 0xff, sizeof(f->seen));
	f->next_psn = karst_psn_add(psn, 1);
}

static enum fwd_psn
behind(struct fwd_flow *f, uint32_t psn)
{
	if (is_marked(f, psn)) {
		count(&f->repeated, 1);
		return FWD_PSN_REPEATED;
	}
	mark(f, psn);
	count(&f->late, 1);
	return FWD_PSN_LATE;
}

/* @ahead PSNs were skipped, of which the first @slack may have been a READ's. */
static enum fwd_psn
skipped(struct fwd_flow *f, uint32_t psn, uint32_t ahead)
{
	uint32_t allowed = karst_min_u32(ahead, f->slack);

	mark_range(f, f->next_psn, allowed, true);
	mark_range(f, karst_psn_add(f->next_psn, allowed), ahead - allowed, false);
	mark(f, psn);
	f->next_psn = karst_psn_add(psn, 1);
	if (ahead == allowed)
		return FWD_PSN_NEXT;
	count(&f->gaps, 1);
	count(&f->missing, ahead - allowed);
	return FWD_PSN_GAP;
}

/* A packet whose PSN follows the last one's; it takes @span. */
static enum fwd_psn
follow(struct fwd_flow *f, uint32_t psn, uint32_t span)
{
	enum fwd_psn is = FWD_PSN_NEXT;
	int32_t ahead;

	if (karst_unlikely(f->next_psn == UINT32_MAX)) {
		begin(f, psn);
		f->slack = span - 1;
		return is;
	}
	ahead = karst_psn_diff(psn, f->next_psn);
	if (karst_likely(ahead == 0)) {
		mark(f, psn);
		f->next_psn = karst_psn_add(psn, 1);
	} else if (ahead < -(int32_t)FWD_FLOW_PSNS || ahead > (int32_t)f->slack + FWD_FLOW_JUMP) {
		begin(f, psn);
		f->open = false;
		count(&f->restarts, 1);
		is = FWD_PSN_RESTART;
	} else if (ahead < 0) {
		return behind(f, psn); /* what may be skipped from the newest on stays */
	} else {
		is = skipped(f, psn, (uint32_t)ahead);
	}
	f->slack = span - 1;
	return is;
}

/*
 * Responses to a READ follow each other from First to Last, and each First or Only may be anywhere.
 * If a First is missing, nobody knows how much more is: one is counted.
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
		is = follow(f, p->psn, 1);
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

static void
acknowledged(struct fwd_flow *f, uint32_t aeth)
{
	uint8_t type = karst_aeth_syndrome(aeth) & KARST_AETH_TYPE_MASK;

	if (type == KARST_AETH_NAK)
		count(&f->naks, 1);
	else if (type == KARST_AETH_RNR)
		count(&f->rnr_naks, 1);
}

enum fwd_psn
fwd_flow_packet(struct fwd_flow *f, const struct karst_pkt *p)
{
	uint32_t op = karst_opcode_flags(p->opcode), span = 1;

	count(&f->packets, 1);
	count(&f->bytes, p->len);
	f->opcode = p->opcode;
	if (p->flags & KARST_PKT_CE)
		count(&f->ce, 1);
	if (op & KARST_OPF_RESPONSE) {
		if (op & KARST_OPF_AETH)
			acknowledged(f, p->aeth);
		return response(f, p, op);
	}
	if (op & KARST_OPF_CNP)
		return FWD_PSN_NEXT;
	if (op & KARST_OPF_READ)
		span = karst_psn_count(p->dma_len, MTU_SHIFT_MIN);
	return follow(f, p->psn, karst_min_u32(span, 1u << 22));
}

bool
fwd_flows_see(struct fwd_flows *fs, const struct karst_pkt *p, uint16_t port)
{
	struct fwd_flow *f = fwd_flow_of(fs, p, port);

	if (karst_unlikely(f == NULL))
		return false;
	(void)fwd_flow_packet(f, p);
	return true;
}
