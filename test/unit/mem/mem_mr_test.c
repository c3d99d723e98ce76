/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Protection domains and regions: every rule of karst_mem.h, and the edges of every range. */
#include <criterion/criterion.h>

#include "mem_bed.h"

#define VA 0x7000000000ull

static uint8_t bytes[4096] karst_aligned(64);

static enum karst_mem_status
local(const struct karst_mem *m, uint32_t pd, uint32_t key, uint64_t va, uint32_t len,
	unsigned int access)
{
	uint8_t *host = NULL;
	enum karst_mem_status s = karst_mem_check_local(m, pd, key, va, len, access, &host);

	cr_assert_eq(host != NULL, s == KARST_MEM_OK);
	return s;
}

static enum karst_mem_status
remote(const struct karst_mem *m, uint32_t pd, uint32_t key, uint64_t va, uint32_t len,
	unsigned int access)
{
	uint8_t *host = NULL;
	enum karst_mem_status s = karst_mem_check_remote(m, pd, 3, key, va, len, access, &host);

	cr_assert_eq(host != NULL, s == KARST_MEM_OK);
	return s;
}

Test(mem_mr, pd_life)
{
	struct karst_mem *m = bed_open(4, 3);
	uint32_t pd[3], other, key, i;

	cr_assert_eq(karst_pd_free(m, 1), -EINVAL);
	for (i = 0; i < 3; i++) {
		pd[i] = bed_pd(m);
		cr_assert(i == 0 || pd[i] != pd[i - 1]);
	}
	cr_assert_eq(karst_pd_alloc(m, &other), -ENOSPC);
	cr_assert_eq(karst_pd_free(m, 0), -EINVAL);
	cr_assert_eq(karst_pd_free(m, 4), -EINVAL);
	cr_assert_eq(karst_pd_free(m, UINT32_MAX), -EINVAL);
	cr_assert_eq(karst_pd_ref(m, 0), -EINVAL);
	cr_assert_eq(karst_pd_ref(m, pd[0]), 0);
	cr_assert_eq(karst_pd_free(m, pd[0]), -EBUSY);
	karst_pd_unref(m, pd[0]);
	key = bed_mr(m, pd[0], bytes, 0, 1, 0);
	cr_assert_eq(karst_pd_free(m, pd[0]), -EBUSY);
	cr_assert_eq(karst_mr_dereg_begin(m, key), 0);
	cr_assert_eq(karst_pd_free(m, pd[0]), -EBUSY, "held until _end");
	karst_mr_dereg_end(m, key);
	cr_assert_eq(karst_mw_alloc(m, pd[0], KARST_MEM_MW2, &key), 0);
	cr_assert_eq(karst_pd_free(m, pd[0]), -EBUSY);
	cr_assert_eq(bed_mw_free(m, key), 0);
	cr_assert_eq(karst_pd_free(m, pd[0]), 0);
	cr_assert_eq(karst_pd_free(m, pd[0]), -EINVAL);
	cr_assert_eq(karst_mr_reg(m, pd[0], bytes, 0, 1, 0, &key), -EINVAL);
	cr_assert_eq(bed_pd(m), pd[0]);
	bed_close(m);
}

Test(mem_mr, usage)
{
	struct karst_mem *m = bed_open(4, 3);
	uint32_t pd = bed_pd(m), mr = bed_mr(m, pd, bytes, 0, 1, 0), mw1, mw2;
	struct karst_mem_usage u;

	cr_assert_eq(karst_mw_alloc(m, pd, KARST_MEM_MW1, &mw1), 0);
	cr_assert_eq(karst_mw_alloc(m, pd, KARST_MEM_MW2, &mw2), 0);
	karst_mem_usage(m, &u);
	cr_assert_eq(u.max_keys, 4);
	cr_assert_eq(u.mrs, 1);
	cr_assert_eq(u.mws, 2);
	cr_assert_eq(u.max_pds, 3);
	cr_assert_eq(u.pds, 1);
	cr_assert_eq(bed_mw_free(m, mw1), 0);
	cr_assert_eq(karst_mr_dereg_begin(m, mr), 0);
	karst_mem_usage(m, &u);
	cr_assert_eq(u.mrs, 1, "held until _end");
	karst_mr_dereg_end(m, mr);
	cr_assert_eq(bed_mw_free(m, mw2), 0);
	cr_assert_eq(karst_pd_free(m, pd), 0);
	karst_mem_usage(m, &u);
	cr_assert_eq(u.mrs + u.mws + u.pds, 0);
	bed_close(m);
}

Test(mem_mr, bad_registrations)
{
	static const struct {
		uintptr_t host;
		uint64_t va, len;
		unsigned int access;
		int rc;
	} t[] = {
		{0x1000, VA, 4096, 0, 0},
		{0x1000, VA, 4096, 1u << 6, -EINVAL}, /* unknown flags */
		{0x1000, VA, 4096, 1u << 31, -EINVAL},
		{0x1000, VA, 4096, KARST_ACCESS_REMOTE_WRITE, -EINVAL},
		{0x1000, VA, 4096, KARST_ACCESS_REMOTE_ATOMIC, -EINVAL},
		{0x1000, VA, 4096, KARST_ACCESS_REMOTE_READ, 0},
		{0x1000, VA, 4096, KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_LOCAL_WRITE, 0},
		{0x1000, VA, 4096, KARST_ACCESS_RELAXED_ORDERING, 0},
		{0x1000, VA, 4096, KARST_ACCESS_HUGETLB, 0},
		{0x1000, 0, 0, 0, 0}, /* holds nothing */
		{0x1000, UINT64_MAX, 0, 0, 0},
		{0x1000, UINT64_MAX, 1, 0, 0}, /* ends at 2^64 */
		{0x1000, UINT64_MAX, 2, 0, -EINVAL},
		{0x1000, UINT64_MAX - 4095, 4096, 0, 0},
		{0x1000, UINT64_MAX - 4094, 4096, 0, -EINVAL},
		{0x1000, 1, UINT64_MAX, 0, -EINVAL}, /* host wraps */
		{0, 1, UINT64_MAX, 0, 0},
		{0, 2, UINT64_MAX, 0, -EINVAL},
		{1, 0, UINT64_MAX, 0, 0},
		{UINTPTR_MAX, 0, 2, 0, -EINVAL},
		/* zero-based: the address does not count */
		{0x1000, UINT64_MAX, 4096, KARST_ACCESS_ZERO_BASED, 0},
	};
	struct karst_mem *m = bed_open(64, 1);
	uint32_t pd = bed_pd(m), key, i;
	int rc;

	for (i = 0; i < KARST_DIM(t); i++) {
		key = 0x55;
		rc = karst_mr_reg(m, pd, (void *)t[i].host, t[i].va, t[i].len, t[i].access, &key);
		cr_assert_eq(rc, t[i].rc, "case %u", i);
		cr_assert_eq(key == 0x55, rc != 0, "case %u: output only on success", i);
	}
	cr_assert_eq(karst_mr_reg(m, 0, bytes, VA, 1, 0, &key), -EINVAL);
	cr_assert_eq(karst_mr_reg(m, 2, bytes, VA, 1, 0, &key), -EINVAL);
	bed_close(m);
}

/* In and out of [base, base + len) by one byte, and by amounts that wrap at 2^64 and 2^32. */
static void
check_bounds(struct karst_mem *m, uint32_t pd, uint32_t key, uint64_t base, uint64_t len)
{
	const struct {
		uint64_t va;
		uint32_t len;
		bool ok;
	} t[] = {
		{base, 1, len >= 1},
		{base, (uint32_t)len, len <= UINT32_MAX},
		{base, (uint32_t)len + 1, false},
		{base + len - 1, 1, len >= 1},
		{base + len - 1, 2, false},
		{base + len, 1, false},
		{base + len, UINT32_MAX, false},
		{base - 1, 1, false},
		{base - 1, 2, false},
		{base - 1, (uint32_t)len, false},
		{base - UINT32_MAX, UINT32_MAX, false},
		{base, 0, true},
		{base + len, 0, true},
		{base + len + 1, 0, false},
		{base - 1, 0, false},
		{base + (1ull << 63), 1, false},
		{base + 1, (uint32_t)len, false},
		{base + 1, UINT32_MAX, false},
	};
	uint32_t i;
	uint8_t *host;

	for (i = 0; i < KARST_DIM(t); i++) {
		enum karst_mem_status want = t[i].ok ? KARST_MEM_OK : KARST_MEM_BAD_RANGE;

		host = NULL;
		cr_assert_eq(karst_mem_check_local(m, pd, key, t[i].va, t[i].len, 0, &host), want,
			"base %#lx len %#lx case %u", base, len, i);
		cr_assert_eq(host, t[i].ok ? bytes + (t[i].va - base) : NULL);
		host = NULL;
		cr_assert_eq(karst_mem_check_remote(m, pd, 3, key, t[i].va, t[i].len,
				     KARST_ACCESS_REMOTE_READ, &host),
			want, "base %#lx len %#lx case %u", base, len, i);
		cr_assert_eq(host, t[i].ok ? bytes + (t[i].va - base) : NULL);
	}
}

Test(mem_mr, bounds)
{
	static const uint64_t base[] = {0, 1, 0x1000, VA, 1ull << 32, UINT64_MAX - 5000,
		UINT64_MAX - 4095, (1ull << 63) - 7};
	static const uint64_t len[] = {1, 2, 7, 64, 4095, 4096};
	struct karst_mem *m = bed_open(64, 1);
	uint32_t pd = bed_pd(m), key, i, j;

	for (i = 0; i < KARST_DIM(base); i++) {
		for (j = 0; j < KARST_DIM(len); j++) {
			key = bed_mr(m, pd, bytes, base[i], len[j], KARST_ACCESS_REMOTE_READ);
			check_bounds(m, pd, key, base[i], len[j]);
			cr_assert_eq(bed_dereg(m, key), 0);
		}
		key = bed_mr(m, pd, bytes, base[i], 4096,
			KARST_ACCESS_REMOTE_READ | KARST_ACCESS_ZERO_BASED);
		check_bounds(m, pd, key, 0, 4096);
		cr_assert_eq(bed_dereg(m, key), 0);
	}
	bed_close(m);
}

/* The length of an access has 32 bits, that of a region 64. */
Test(mem_mr, huge_and_empty)
{
	struct karst_mem *m = bed_open(4, 1);
	uint32_t pd = bed_pd(m), all, none;
	uint8_t *host;

	all = bed_mr(m, pd, NULL, 0, UINT64_MAX, KARST_ACCESS_REMOTE_READ);
	none = bed_mr(m, pd, bytes, VA, 0, KARST_ACCESS_REMOTE_READ);
	cr_assert_eq(karst_mem_check_local(m, pd, all, VA, UINT32_MAX, 0, &host), KARST_MEM_OK);
	cr_assert_eq((uintptr_t)host, VA);
	cr_assert_eq(remote(m, pd, all, UINT64_MAX - 1, 1, KARST_ACCESS_REMOTE_READ), KARST_MEM_OK);
	cr_assert_eq(
		remote(m, pd, all, UINT64_MAX, 1, KARST_ACCESS_REMOTE_READ), KARST_MEM_BAD_RANGE);
	cr_assert_eq(remote(m, pd, all, UINT64_MAX - 9, UINT32_MAX, KARST_ACCESS_REMOTE_READ),
		KARST_MEM_BAD_RANGE);
	cr_assert_eq(local(m, pd, none, VA, 1, 0), KARST_MEM_BAD_RANGE);
	cr_assert_eq(local(m, pd, none, VA, 0, 0), KARST_MEM_OK);
	cr_assert_eq(remote(m, pd, none, VA, 1, KARST_ACCESS_REMOTE_READ), KARST_MEM_BAD_RANGE);
	bed_close(m);
}

Test(mem_mr, access_flags)
{
	static const unsigned int asked[] = {KARST_ACCESS_LOCAL_WRITE, KARST_ACCESS_REMOTE_WRITE,
		KARST_ACCESS_REMOTE_READ, KARST_ACCESS_REMOTE_ATOMIC, KARST_ACCESS_FLUSH_GLOBAL};
	struct karst_mem *m = bed_open(64, 1);
	uint32_t pd = bed_pd(m), key;
	unsigned int n, access, i;

	for (n = 0; n < 128; n++) {
		access = (n & 63) | (n & 64 ? KARST_ACCESS_FLUSH_GLOBAL : 0);
		if (karst_mr_reg(m, pd, bytes, 0, 64, access, &key) != 0) {
			cr_assert((access & 1) == 0 && (access & 0xa) != 0);
			continue;
		}
		cr_assert_eq(local(m, pd, key, 0, 64, 0), KARST_MEM_OK);
		for (i = 0; i < KARST_DIM(asked); i++) {
			enum karst_mem_status want =
				access & asked[i] ? KARST_MEM_OK : KARST_MEM_BAD_ACCESS;

			cr_assert_eq(local(m, pd, key, 0, 64, asked[i]), want);
			cr_assert_eq(remote(m, pd, key, 0, 64, asked[i]), want);
		}
		cr_assert_eq(bed_dereg(m, key), 0);
	}
	bed_close(m);
}

Test(mem_mr, pd_mismatch)
{
	struct karst_mem *m = bed_open(4, 2);
	uint32_t a = bed_pd(m), b = bed_pd(m);
	uint32_t key = bed_mr(m, a, bytes, VA, 64, ACCESS_ALL);

	cr_assert_eq(local(m, a, key, VA, 64, 0), KARST_MEM_OK);
	cr_assert_eq(local(m, b, key, VA, 64, 0), KARST_MEM_BAD_PD);
	cr_assert_eq(local(m, 0, key, VA, 64, 0), KARST_MEM_BAD_PD);
	cr_assert_eq(remote(m, b, key, VA, 64, KARST_ACCESS_REMOTE_READ), KARST_MEM_BAD_PD);
	cr_assert_eq(remote(m, a, key, VA, 64, KARST_ACCESS_REMOTE_READ), KARST_MEM_OK);
	bed_close(m);
}

Test(mem_mr, dereg_in_two_steps)
{
	struct karst_mem *m = bed_open(2, 1);
	uint32_t pd = bed_pd(m), a, b, c;

	a = bed_mr(m, pd, bytes, VA, 64, ACCESS_ALL);
	b = bed_mr(m, pd, bytes, VA, 64, ACCESS_ALL);
	cr_assert_eq(karst_mr_dereg_begin(m, a ^ 1), -EINVAL);
	cr_assert_eq(karst_mr_dereg_begin(m, a), 0);
	cr_assert_eq(local(m, pd, a, VA, 1, 0), KARST_MEM_BAD_KEY);
	cr_assert_eq(remote(m, pd, a, VA, 1, KARST_ACCESS_REMOTE_READ), KARST_MEM_BAD_KEY);
	cr_assert_eq(karst_mr_dereg_begin(m, a), -EINVAL);
	cr_assert_eq(karst_mr_reg(m, pd, bytes, VA, 64, 0, &c), -ENOSPC, "slot kept until _end");
	karst_mr_dereg_end(m, a);
	c = bed_mr(m, pd, bytes, VA, 64, ACCESS_ALL);
	cr_assert_neq(c >> 8, a >> 8);
	cr_assert_eq(local(m, pd, a, VA, 1, 0), KARST_MEM_BAD_KEY);
	cr_assert_eq(local(m, pd, b, VA, 1, 0), KARST_MEM_OK);
	bed_close(m);
}

Test(mem_mr, rereg)
{
	struct karst_mem *m = bed_open(4, 2);
	uint32_t a = bed_pd(m), b = bed_pd(m), key = bed_mr(m, a, bytes, VA, 64, ACCESS_ALL);
	struct karst_mr_attr attr = {.pd = b,
		.access = KARST_ACCESS_REMOTE_READ,
		.host = bytes + 128,
		.va = 16,
		.len = 32};
	struct karst_mr_attr got;
	uint8_t *host;

	/* Translation alone, in two steps. */
	cr_assert_eq(karst_mr_rereg_begin(m, key, KARST_REREG_TRANSLATION, &attr), 0);
	cr_assert_eq(local(m, a, key, VA, 1, 0), KARST_MEM_BAD_KEY);
	cr_assert_eq(karst_mr_rereg_begin(m, key, KARST_REREG_TRANSLATION, &attr), -EINVAL);
	karst_mr_rereg_end(m, key, KARST_REREG_TRANSLATION, &attr);
	cr_assert_eq(local(m, a, key, VA, 1, 0), KARST_MEM_BAD_RANGE);
	cr_assert_eq(karst_mem_check_local(m, a, key, 17, 31, KARST_ACCESS_LOCAL_WRITE, &host), 0);
	cr_assert_eq(host, bytes + 129);
	/* PD alone: the old one is free, the new one held. */
	cr_assert_eq(bed_rereg(m, key, KARST_REREG_PD, &attr), 0);
	cr_assert_eq(local(m, a, key, 16, 32, 0), KARST_MEM_BAD_PD);
	cr_assert_eq(local(m, b, key, 16, 32, KARST_ACCESS_LOCAL_WRITE), KARST_MEM_OK);
	cr_assert_eq(karst_pd_free(m, a), 0);
	cr_assert_eq(karst_pd_free(m, b), -EBUSY);
	/* Access alone. */
	cr_assert_eq(bed_rereg(m, key, KARST_REREG_ACCESS, &attr), 0);
	cr_assert_eq(local(m, b, key, 16, 32, KARST_ACCESS_LOCAL_WRITE), KARST_MEM_BAD_ACCESS);
	cr_assert_eq(remote(m, b, key, 16, 32, KARST_ACCESS_REMOTE_READ), KARST_MEM_OK);
	cr_assert_eq(karst_mem_query(m, key, &got), 0);
	cr_assert(got.pd == b && got.access == attr.access && got.host == attr.host &&
		got.va == 16 && got.len == 32);
	/* All at once, and it can still be deregistered. */
	attr = (struct karst_mr_attr){b, ACCESS_ALL | KARST_ACCESS_ZERO_BASED, bytes, VA, 8};
	cr_assert_eq(bed_rereg(m, key, 7, &attr), 0);
	cr_assert_eq(local(m, b, key, 0, 8, KARST_ACCESS_LOCAL_WRITE), KARST_MEM_OK);
	cr_assert_eq(bed_dereg(m, key), 0);
	cr_assert_eq(karst_pd_free(m, b), 0);
	bed_close(m);
}

/* Other addresses for the same bytes: the key and everything else stay as they are. */
Test(mem_mr, move)
{
	struct karst_mem *m = bed_open(4, 1);
	uint32_t pd = bed_pd(m);
	unsigned int plain = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE;
	uint32_t key = bed_mr(m, pd, bytes, VA, 64, plain), other;
	uint8_t *host;

	cr_assert_eq(karst_mr_remap(m, key, bytes + 128), 0);
	cr_assert_eq(
		karst_mem_check_remote(m, pd, 0, key, VA + 1, 63, KARST_ACCESS_REMOTE_WRITE, &host),
		0);
	cr_assert_eq(host, bytes + 129);
	cr_assert_eq(
		karst_mem_check_local(m, pd, key, VA + 2, 62, KARST_ACCESS_LOCAL_WRITE, &host), 0);
	cr_assert_eq(host, bytes + 130);
	cr_assert_eq(remote(m, pd, key, VA, 65, KARST_ACCESS_REMOTE_WRITE), KARST_MEM_BAD_RANGE);
	cr_assert_eq(karst_mr_remap(m, key, (void *)(UINTPTR_MAX - 10)), -EINVAL);
	cr_assert_eq(karst_mr_remap(m, key + 256, bytes), -EINVAL);
	other = bed_mr(m, pd, bytes, VA, 64, plain | KARST_ACCESS_MW_BIND);
	cr_assert_eq(karst_mr_remap(m, other, bytes + 128), -EBUSY);
	cr_assert_eq(bed_dereg(m, other), 0);
	other = bed_mr(m, pd, bytes, VA, 64, plain | KARST_ACCESS_REMOTE_ATOMIC);
	cr_assert_eq(karst_mr_remap(m, other, bytes + 128), -EBUSY);
	cr_assert_eq(karst_mem_invalidate(m, pd, 0, key, false), 0);
	cr_assert_eq(karst_mr_remap(m, key, bytes), -EINVAL);
	bed_close(m);
}

Test(mem_mr, rereg_refused)
{
	struct karst_mem *m = bed_open(4, 2);
	uint32_t pd = bed_pd(m), key = bed_mr(m, pd, bytes, VA, 64, 0);
	uint32_t zero = bed_mr(m, pd, bytes, VA, 64, KARST_ACCESS_ZERO_BASED);
	struct karst_mr_attr attr = {.pd = 2,
		.access = KARST_ACCESS_REMOTE_WRITE,
		.host = bytes,
		.va = UINT64_MAX,
		.len = 2};
	uint32_t mw;

	cr_assert_eq(karst_mr_rereg_begin(m, key, 0, &attr), -EINVAL);
	cr_assert_eq(karst_mr_rereg_begin(m, key, 8, &attr), -EINVAL);
	cr_assert_eq(karst_mr_rereg_begin(m, key, KARST_REREG_PD, &attr), -EINVAL);
	cr_assert_eq(karst_mr_rereg_begin(m, key, KARST_REREG_ACCESS, &attr), -EINVAL);
	cr_assert_eq(karst_mr_rereg_begin(m, key, KARST_REREG_TRANSLATION, &attr), -EINVAL);
	cr_assert_eq(karst_mr_rereg_begin(m, key ^ 1, KARST_REREG_PD, &attr), -EINVAL);
	attr.access = 0;
	cr_assert_eq(karst_mr_rereg_begin(m, zero, KARST_REREG_ACCESS, &attr), -EINVAL);
	cr_assert_eq(local(m, pd, key, VA, 64, 0), KARST_MEM_OK, "nothing has changed");
	cr_assert_eq(local(m, pd, zero, 0, 64, 0), KARST_MEM_OK);
	cr_assert_eq(karst_mw_alloc(m, pd, KARST_MEM_MW1, &mw), 0);
	attr.len = 1;
	cr_assert_eq(karst_mr_rereg_begin(m, mw, KARST_REREG_TRANSLATION, &attr), -EINVAL);
	bed_close(m);
}

Test(mem_mr, local_invalidate)
{
	struct karst_mem *m = bed_open(4, 2);
	uint32_t pd = bed_pd(m), other = bed_pd(m), key = bed_mr(m, pd, bytes, VA, 64, ACCESS_ALL);
	struct karst_mr_attr attr = {.access = 0};

	cr_assert_eq(karst_mem_invalidate(m, other, 3, key, false), -EINVAL);
	cr_assert_eq(karst_mem_invalidate(m, pd, 3, key, true), -EINVAL, "a peer may not");
	cr_assert_eq(karst_mem_invalidate(m, pd, 3, key ^ 0x80, false), -EINVAL);
	cr_assert_eq(local(m, pd, key, VA, 64, 0), KARST_MEM_OK);
	cr_assert_eq(karst_mem_invalidate(m, pd, 3, key, false), 0);
	cr_assert_eq(local(m, pd, key, VA, 64, 0), KARST_MEM_BAD_KEY);
	cr_assert_eq(remote(m, pd, key, VA, 64, KARST_ACCESS_REMOTE_READ), KARST_MEM_BAD_KEY);
	cr_assert_eq(karst_mem_invalidate(m, pd, 3, key, false), -EINVAL);
	cr_assert_eq(karst_mem_query(m, key, &attr), -EINVAL);
	cr_assert_eq(karst_mr_rereg_begin(m, key, KARST_REREG_ACCESS, &attr), -EINVAL);
	cr_assert_eq(karst_pd_free(m, pd), -EBUSY);
	cr_assert_eq(bed_dereg(m, key), 0);
	cr_assert_eq(karst_pd_free(m, pd), 0);
	bed_close(m);
}

Test(mem_mr, atomics)
{
	uint64_t v karst_aligned(8) = 10;
	uint8_t *p = (uint8_t *)&v;
	uint8_t wire[9] = {0xff, 1, 2, 3, 4, 5, 6, 7, 8};

	cr_assert_eq(karst_mem_cas(p, 11, 99), 10);
	cr_assert_eq(v, 10);
	cr_assert_eq(karst_mem_cas(p, 10, 99), 10);
	cr_assert_eq(v, 99);
	cr_assert_eq(karst_mem_faa(p, UINT64_MAX), 99);
	cr_assert_eq(v, 98);
	karst_mem_store8(p, wire + 1);
	cr_assert_arr_eq(p, wire + 1, 8);
}
