/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Windows of both types: binding, its checks, invalidation, and the regions underneath. */
#include <criterion/criterion.h>

#include "mem_bed.h"

#define VA  0x40000ull
#define QPN 17u

static uint8_t bytes[4096] karst_aligned(64);

struct bed {
	struct karst_mem *m;
	uint32_t pd, other, mr, w1, w2;
};

static void
open_bed(struct bed *t)
{
	t->m = bed_open(16, 2);
	t->pd = bed_pd(t->m);
	t->other = bed_pd(t->m);
	t->mr = bed_mr(t->m, t->pd, bytes, VA, sizeof(bytes), ACCESS_ALL);
	cr_assert_eq(karst_mw_alloc(t->m, t->pd, KARST_MEM_MW1, &t->w1), 0);
	cr_assert_eq(karst_mw_alloc(t->m, t->pd, KARST_MEM_MW2, &t->w2), 0);
}

/* A request to bind bytes 256..511 of the region to a window; valid for both types. */
static struct karst_mw_bind
request(const struct bed *t, uint32_t mw_key)
{
	return (struct karst_mw_bind){.pd = t->pd,
		.qpn = QPN,
		.mw_key = mw_key,
		.new_key = (mw_key & ~0xffu) | ((mw_key + 1) & 0xff),
		.mr_key = t->mr,
		.va = VA + 256,
		.len = 256,
		.access = KARST_ACCESS_REMOTE_READ | KARST_ACCESS_REMOTE_WRITE};
}

static enum karst_mem_status
look(const struct bed *t, uint32_t pd, uint32_t qpn, uint32_t key, uint64_t va, uint32_t len)
{
	uint8_t *host = NULL;
	enum karst_mem_status s = karst_mem_check_remote(
		t->m, pd, qpn, key, va, len, KARST_ACCESS_REMOTE_WRITE, &host);

	cr_assert_eq(host != NULL, s == KARST_MEM_OK);
	return s;
}

/* The whole window is accessible, and nothing beside it. */
static void
check_window(const struct bed *t, uint32_t key, uint64_t base)
{
	uint8_t *host = NULL;

	cr_assert_eq(karst_mem_check_remote(
			     t->m, t->pd, QPN, key, base + 1, 255, KARST_ACCESS_REMOTE_READ, &host),
		KARST_MEM_OK);
	cr_assert_eq(host, bytes + 257);
	cr_assert_eq(look(t, t->pd, QPN, key, base, 256), KARST_MEM_OK);
	cr_assert_eq(look(t, t->pd, QPN, key, base - 1, 1), KARST_MEM_BAD_RANGE);
	cr_assert_eq(look(t, t->pd, QPN, key, base, 257), KARST_MEM_BAD_RANGE);
	cr_assert_eq(look(t, t->pd, QPN, key, base + 256, 1), KARST_MEM_BAD_RANGE);
	cr_assert_eq(look(t, t->other, QPN, key, base, 256), KARST_MEM_BAD_PD);
	cr_assert_eq(karst_mem_check_remote(
			     t->m, t->pd, QPN, key, base, 8, KARST_ACCESS_REMOTE_ATOMIC, &host),
		KARST_MEM_BAD_ACCESS);
	cr_assert_neq(karst_mem_check_local(t->m, t->pd, key, base, 8, 0, &host), KARST_MEM_OK,
		"a window is no L_Key");
}

Test(mem_mw, alloc)
{
	struct bed t;
	uint32_t key = 0;

	open_bed(&t);
	cr_assert_eq(karst_mw_alloc(t.m, t.pd, KARST_MEM_MR, &key), -EINVAL);
	cr_assert_eq(karst_mw_alloc(t.m, t.pd, KARST_MEM_FREE, &key), -EINVAL);
	cr_assert_eq(karst_mw_alloc(t.m, 99, KARST_MEM_MW1, &key), -EINVAL);
	cr_assert_eq(key, 0);
	cr_assert_eq(look(&t, t.pd, QPN, t.w1, 0, 1), KARST_MEM_BAD_KEY, "not bound");
	cr_assert_eq(look(&t, t.pd, QPN, t.w2, 0, 1), KARST_MEM_BAD_KEY);
	cr_assert_eq(karst_mr_dereg_begin(t.m, t.w1), -EINVAL);
	cr_assert_eq(karst_mw_free_begin(t.m, t.mr), -EINVAL);
	cr_assert_eq(bed_mw_free(t.m, t.w1), 0);
	cr_assert_eq(karst_mw_free_begin(t.m, t.w1), -EINVAL);
	cr_assert_eq(bed_mw_free(t.m, t.w2), 0);
	bed_close(t.m);
}

Test(mem_mw, type1)
{
	struct karst_mw_bind b;
	struct bed t;
	uint32_t k1 = 0, k2 = 0, i, changes = 0;

	open_bed(&t);
	b = request(&t, t.w1);
	cr_assert_eq(karst_mw_bind(t.m, &b, &k1), 0);
	cr_assert_eq(k1 >> 8, t.w1 >> 8);
	cr_assert_neq(k1, t.w1);
	check_window(&t, k1, VA + 256);
	cr_assert_eq(look(&t, t.pd, QPN + 1, k1, VA + 256, 8), KARST_MEM_OK, "any QP of the PD");
	cr_assert_eq(karst_mw_bind(t.m, &b, &k2), -EINVAL, "not the current key");
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, k1, false), -EINVAL);
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, k1, true), -EINVAL);
	b.mw_key = k1;
	b.new_key = (k1 & ~0xffu) | ((k1 + 77) & 0xff);
	cr_assert_eq(karst_mw_bind(t.m, &b, &k2), 0);
	cr_assert_eq(k2, b.new_key, "the program's choice");
	k1 = k2;
	for (i = 0; i < 1000; i++) {
		b.mw_key = k1;
		b.new_key = i & 1 ? k1 : ~k1; /* the same key; another window's key */
		cr_assert_eq(karst_mw_bind(t.m, &b, &k2), 0);
		cr_assert_neq(k1, k2);
		cr_assert_eq(look(&t, t.pd, QPN, k1, VA + 256, 8), KARST_MEM_BAD_KEY);
		cr_assert_eq(look(&t, t.pd, QPN, k2, VA + 256, 8), KARST_MEM_OK);
		changes += ((k2 - k1) & 0xff) != 1;
		k1 = k2;
	}
	cr_assert_gt(changes, 900, "the new low byte is random");
	/* The region is held; unbinding with length 0 releases it, whatever else is requested. */
	cr_assert_eq(karst_mr_dereg_begin(t.m, t.mr), -EBUSY);
	b = (struct karst_mw_bind){.pd = t.pd, .mw_key = k1};
	cr_assert_eq(karst_mw_bind(t.m, &b, &k2), 0);
	cr_assert_neq(k1, k2);
	cr_assert_eq(look(&t, t.pd, QPN, k1, VA + 256, 8), KARST_MEM_BAD_KEY);
	cr_assert_eq(look(&t, t.pd, QPN, k2, VA + 256, 8), KARST_MEM_BAD_KEY);
	b.mw_key = k2;
	cr_assert_eq(karst_mw_bind(t.m, &b, &k1), 0, "unbinding twice is fine");
	cr_assert_eq(bed_dereg(t.m, t.mr), 0);
	cr_assert_eq(bed_mw_free(t.m, t.w1), 0, "by its original key");
	bed_close(t.m);
}

Test(mem_mw, type2)
{
	struct karst_mw_bind b;
	struct bed t;
	uint32_t key = 0, k;

	open_bed(&t);
	b = request(&t, t.w2);
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	cr_assert_eq(key, b.new_key);
	check_window(&t, key, VA + 256);
	cr_assert_eq(look(&t, t.pd, QPN + 1, key, VA + 256, 8), KARST_MEM_BAD_PD, "its QP only");
	/* Bound: it cannot be bound again, neither by the old nor by the present key. */
	cr_assert_eq(karst_mw_bind(t.m, &b, &k), -EINVAL);
	b = request(&t, key);
	cr_assert_eq(karst_mw_bind(t.m, &b, &k), -EINVAL);
	/* Only its QP invalidates it, once. */
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN + 1, key, false), -EINVAL);
	cr_assert_eq(karst_mem_invalidate(t.m, t.other, QPN, key, false), -EINVAL);
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, t.w2, false), -EINVAL);
	cr_assert_eq(look(&t, t.pd, QPN, key, VA + 256, 8), KARST_MEM_OK);
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, key, false), 0);
	cr_assert_eq(look(&t, t.pd, QPN, key, VA + 256, 8), KARST_MEM_BAD_KEY);
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, key, false), -EINVAL);
	/* Bound again by another QP, invalidated by its peer. */
	b.qpn = QPN + 1;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	cr_assert_eq(look(&t, t.pd, QPN, key, VA + 256, 8), KARST_MEM_BAD_PD);
	cr_assert_eq(look(&t, t.pd, QPN + 1, key, VA + 256, 8), KARST_MEM_OK);
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN + 1, key, true), 0);
	cr_assert_eq(bed_dereg(t.m, t.mr), 0);
	bed_close(t.m);
}

/* The same key may be bound again after an invalidation, if the program chooses it. */
Test(mem_mw, type2_key_choice)
{
	struct karst_mw_bind b;
	struct bed t;
	uint32_t key, low;

	open_bed(&t);
	b = request(&t, t.w2);
	for (low = 0; low < 256; low++) {
		b.new_key = (t.w2 & ~0xffu) | low;
		cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
		cr_assert_eq(key, b.new_key);
		cr_assert_eq(look(&t, t.pd, QPN, key, VA + 256, 256), KARST_MEM_OK);
		cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, key, false), 0);
		b.mw_key = key;
	}
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	cr_assert_eq(key, b.mw_key);
	cr_assert_eq(bed_mw_free(t.m, key), 0, "bound windows can be freed");
	cr_assert_eq(look(&t, t.pd, QPN, key, VA + 256, 256), KARST_MEM_BAD_KEY);
	cr_assert_eq(karst_mw_release_qp(t.m, QPN), 0);
	cr_assert_eq(bed_dereg(t.m, t.mr), 0);
	bed_close(t.m);
}

Test(mem_mw, zero_based)
{
	struct karst_mw_bind b;
	struct bed t;
	uint32_t key, zmr;

	open_bed(&t);
	b = request(&t, t.w2);
	b.access |= KARST_ACCESS_ZERO_BASED;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	check_window(&t, key, 0);
	b = request(&t, t.w1);
	b.access |= KARST_ACCESS_ZERO_BASED;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), -EINVAL, "type 2 only");
	/* A region that is zero-based itself is addressed from 0 in the request. */
	zmr = bed_mr(t.m, t.pd, bytes, VA, sizeof(bytes), ACCESS_ALL | KARST_ACCESS_ZERO_BASED);
	b = request(&t, t.w1);
	b.mr_key = zmr;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), -EINVAL);
	b.va = 256;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	check_window(&t, key, 256);
	bed_close(t.m);
}

/* One thing wrong at a time: -EINVAL, and window and region are as they were. */
Test(mem_mw, refused)
{
	struct bed t;
	unsigned int i, which;
	uint32_t key, weak, unbindable, other_pd;

	open_bed(&t);
	weak = bed_mr(t.m, t.pd, bytes, VA, 4096, KARST_ACCESS_REMOTE_READ | KARST_ACCESS_MW_BIND);
	unbindable = bed_mr(t.m, t.pd, bytes, VA, 4096, ACCESS_ALL & ~KARST_ACCESS_MW_BIND);
	other_pd = bed_mr(t.m, t.other, bytes, VA, 4096, ACCESS_ALL);
	for (which = 0; which < 2; which++) {
		struct karst_mw_bind good = request(&t, which == 0 ? t.w1 : t.w2);
		struct karst_mw_bind bad[16];

		for (i = 0; i < KARST_DIM(bad); i++)
			bad[i] = good;
		bad[0].pd = t.other;
		bad[1].mw_key ^= 0x40;
		bad[2].mw_key ^= 0x4000;
		bad[3].mw_key = t.mr;
		bad[4].mr_key ^= 1;
		bad[5].mr_key = weak;
		bad[6].mr_key = unbindable;
		bad[7].mr_key = other_pd;
		bad[8].mr_key = good.mw_key;
		bad[9].va = VA - 1;
		bad[10].va = VA + 4096 - 255;
		bad[11].len = 4096 - 255;
		bad[12].len = UINT64_MAX - 100;
		bad[13].access |= KARST_ACCESS_LOCAL_WRITE;
		bad[14].access |= KARST_ACCESS_MW_BIND;
		bad[15].access |= 1u << 20;
		for (i = 0; i < KARST_DIM(bad); i++) {
			key = 0x99;
			cr_assert_eq(karst_mw_bind(t.m, &bad[i], &key), -EINVAL, "case %u", i);
			cr_assert_eq(key, 0x99);
		}
		if (which == 1) {
			bad[0] = good;
			bad[0].len = 0;
			cr_assert_eq(karst_mw_bind(t.m, &bad[0], &key), -EINVAL);
		}
		cr_assert_eq(bed_dereg(t.m, which == 0 ? weak : unbindable), 0, "none is bound");
		cr_assert_eq(karst_mw_bind(t.m, &good, &key), 0, "the good one still works");
	}
	bed_close(t.m);
}

/* The program chooses only the low eight bits of the new key, as with adapters and rxe: the bits
 * above them are ignored, and the key with the window's own index is returned. */
Test(mem_mw, type2_upper_bits_are_not_looked_at)
{
	static const uint32_t upper[] = {0x00000100, 0x80000000, 0xffffff00, 0x12345600};
	struct karst_mw_bind b;
	struct bed t;
	uint32_t key, i;

	open_bed(&t);
	b = request(&t, t.w2);
	for (i = 0; i < KARST_DIM(upper); i++) {
		b.new_key = (t.w2 ^ upper[i]) & ~0xffu;
		b.new_key |= i * 77;
		cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
		cr_assert_eq(key, (t.w2 & ~0xffu) | i * 77);
		cr_assert_eq(look(&t, t.pd, QPN, key, VA + 256, 8), KARST_MEM_OK);
		cr_assert_eq(look(&t, t.pd, QPN, b.new_key, VA + 256, 8), KARST_MEM_BAD_KEY);
		cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, key, false), 0);
		b.mw_key = key;
	}
	bed_close(t.m);
}

/* Read-only windows need no local write. */
Test(mem_mw, read_only)
{
	struct karst_mw_bind b;
	struct bed t;
	uint32_t key, ro;

	open_bed(&t);
	ro = bed_mr(t.m, t.pd, bytes, VA, 4096, KARST_ACCESS_MW_BIND);
	b = request(&t, t.w2);
	b.mr_key = ro;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), -EINVAL);
	b.access = KARST_ACCESS_REMOTE_ATOMIC;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), -EINVAL);
	b.access = KARST_ACCESS_REMOTE_READ;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	cr_assert_eq(look(&t, t.pd, QPN, key, VA + 256, 8), KARST_MEM_BAD_ACCESS);
	bed_close(t.m);
}

/* As long as windows are bound, the region cannot be changed; an unusable region takes no
 * windows. */
Test(mem_mw, region_is_held)
{
	struct karst_mr_attr attr = {.host = bytes, .va = 0, .len = 8};
	struct karst_mw_bind b1, b2;
	struct bed t;
	uint32_t k1, k2;

	open_bed(&t);
	b1 = request(&t, t.w1);
	b2 = request(&t, t.w2);
	cr_assert_eq(karst_mw_bind(t.m, &b1, &k1), 0);
	cr_assert_eq(karst_mw_bind(t.m, &b2, &k2), 0);
	cr_assert_eq(bed_mw_free(t.m, t.w1), 0);
	cr_assert_eq(karst_mr_dereg_begin(t.m, t.mr), -EBUSY);
	cr_assert_eq(karst_mr_rereg_begin(t.m, t.mr, KARST_REREG_TRANSLATION, &attr), -EBUSY);
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, t.mr, false), -EINVAL);
	cr_assert_eq(look(&t, t.pd, QPN, t.mr, VA, 8), KARST_MEM_OK);
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, k2, false), 0);
	cr_assert_eq(karst_mem_invalidate(t.m, t.pd, QPN, t.mr, false), 0);
	b2.mw_key = k2;
	cr_assert_eq(karst_mw_bind(t.m, &b2, &k2), -EINVAL);
	cr_assert_eq(bed_dereg(t.m, t.mr), 0);
	cr_assert_eq(karst_mw_bind(t.m, &b2, &k2), -EINVAL);
	bed_close(t.m);
}

Test(mem_mw, rebind_to_another_region)
{
	struct karst_mw_bind b;
	struct bed t;
	uint32_t key, mr2;

	open_bed(&t);
	mr2 = bed_mr(t.m, t.pd, bytes + 2048, VA, 1024, ACCESS_ALL);
	b = request(&t, t.w1);
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	b.mw_key = key;
	b.mr_key = mr2;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	cr_assert_eq(karst_mr_dereg_begin(t.m, mr2), -EBUSY);
	cr_assert_eq(bed_dereg(t.m, t.mr), 0);
	b.mw_key = key;
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0, "within the same region");
	cr_assert_eq(bed_mw_free(t.m, key), 0);
	cr_assert_eq(bed_dereg(t.m, mr2), 0);
	bed_close(t.m);
}

/* When a QP is destroyed its windows are free for others, and those of other QPs stay bound. */
Test(mem_mw, release_qp)
{
	enum { N = 200 };
	struct karst_mem *m = bed_open(512, 1);
	uint32_t pd = bed_pd(m), mr = bed_mr(m, pd, bytes, VA, 4096, ACCESS_ALL), key[N], i;
	struct karst_mw_bind b = {
		.pd = pd, .mr_key = mr, .va = VA, .len = 64, .access = KARST_ACCESS_REMOTE_READ};
	uint8_t *host;

	cr_assert_eq(karst_mw_release_qp(m, 1), 0);
	for (i = 0; i < N; i++) {
		cr_assert_eq(karst_mw_alloc(m, pd, KARST_MEM_MW2, &b.mw_key), 0);
		b.qpn = i % 5;
		b.new_key = b.mw_key;
		cr_assert_eq(karst_mw_bind(m, &b, &key[i]), 0);
	}
	cr_assert_eq(karst_mw_release_qp(m, 3), N / 5);
	cr_assert_eq(karst_mw_release_qp(m, 3), 0);
	for (i = 0; i < N; i++) {
		cr_assert_eq(karst_mem_check_remote(
				     m, pd, i % 5, key[i], VA, 8, KARST_ACCESS_REMOTE_READ, &host),
			i % 5 == 3 ? KARST_MEM_BAD_KEY : KARST_MEM_OK);
		b.mw_key = b.new_key = key[i];
		b.qpn = 77;
		cr_assert_eq(karst_mw_bind(m, &b, &key[i]), i % 5 == 3 ? 0 : -EINVAL);
	}
	cr_assert_eq(karst_mw_release_qp(m, 77), N / 5);
	for (i = 0; i < 5; i++)
		karst_mw_release_qp(m, i);
	cr_assert_eq(bed_dereg(m, mr), 0);
	bed_close(m);
}

Test(mem_mw, query)
{
	struct karst_mr_attr a = {.pd = 0};
	struct karst_mw_bind b;
	struct bed t;
	uint32_t key;

	open_bed(&t);
	cr_assert_eq(karst_mem_query(t.m, t.w2, &a), -EINVAL);
	b = request(&t, t.w2);
	cr_assert_eq(karst_mw_bind(t.m, &b, &key), 0);
	cr_assert_eq(karst_mem_query(t.m, key, &a), 0);
	cr_assert(a.pd == t.pd && a.access == b.access && a.host == bytes + 256 &&
		a.va == VA + 256 && a.len == 256);
	cr_assert_eq(karst_mem_query(t.m, t.mr, &a), 0);
	cr_assert(a.access == ACCESS_ALL && a.host == bytes && a.va == VA && a.len == 4096);
	bed_close(t.m);
}
