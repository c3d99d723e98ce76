/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Commands of the NVM command set, over memory and over a file; invalid capsules. */
#include "bed.h"

#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "ns.h"

#define FAIL(code) ((code) | NVME_DNR)

static struct bed bed;

static void
setup(void)
{
	bed_make(&bed);
	bed_ready(&bed);
}

static void
teardown(void)
{
	bed_end(&bed);
}

TestSuite(nvmet_io, .init = setup, .fini = teardown);

static void
fill(uint8_t seed, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		bed.host[i] = (uint8_t)(i * 7 + i / 512 + seed);
}

static bool
filled(uint8_t seed, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		if (bed.host[i] != (uint8_t)(i * 7 + i / 512 + seed))
			return false;
	return true;
}

Test(nvmet_io, write_read_compare)
{
	uint32_t nsid;

	for (nsid = BED_MEMORY; nsid <= BED_FILE; nsid++) {
		fill(3, 64 * 512);
		cr_assert_eq(bed_io(&bed, NVME_IO_WRITE, nsid, 100, 64), NVME_OK);
		memset(bed.host, 0, 64 * 512);
		cr_assert_eq(bed_io(&bed, NVME_IO_READ, nsid, 100, 64), NVME_OK);
		cr_expect(filled(3, 64 * 512));
		cr_expect_eq(bed_io(&bed, NVME_IO_COMPARE, nsid, 100, 64), NVME_OK);
		bed.host[64 * 512 - 1] ^= 1;
		cr_expect_eq(
			bed_io(&bed, NVME_IO_COMPARE, nsid, 100, 64), FAIL(NVME_COMPARE_FAILURE));
		cr_expect_eq(bed_io(&bed, NVME_IO_FLUSH, nsid, 0, 1), NVME_OK);
	}
	cr_expect_eq(bed_io(&bed, NVME_IO_FLUSH, NVME_NSID_ALL, 0, 1), NVME_OK);
	cr_expect_eq(bed.target.counters.written_bytes, 2u * 64 * 512);
}

Test(nvmet_io, namespaces_are_apart)
{
	fill(9, 512);
	cr_assert_eq(bed_io(&bed, NVME_IO_WRITE, BED_MEMORY, 5, 1), NVME_OK);
	cr_assert_eq(bed_io(&bed, NVME_IO_READ, BED_FILE, 5, 1), NVME_OK);
	cr_expect_eq(bed.host[0], 0);
}

Test(nvmet_io, ends_of_a_namespace)
{
	uint32_t nsid;

	for (nsid = BED_MEMORY; nsid <= BED_FILE; nsid++) {
		fill(1, 512);
		cr_expect_eq(bed_io(&bed, NVME_IO_WRITE, nsid, BED_BLOCKS - 1, 1), NVME_OK);
		cr_expect_eq(
			bed_io(&bed, NVME_IO_WRITE, nsid, BED_BLOCKS - 1, 2), FAIL(NVME_LBA_RANGE));
		cr_expect_eq(bed_io(&bed, NVME_IO_READ, nsid, BED_BLOCKS, 1), FAIL(NVME_LBA_RANGE));
		cr_expect_eq(bed_io(&bed, NVME_IO_READ, nsid, UINT64_MAX, 2), FAIL(NVME_LBA_RANGE));
		cr_expect_eq(bed_io(&bed, NVME_IO_WRITE_ZEROES, nsid, BED_BLOCKS - 1, 2),
			FAIL(NVME_LBA_RANGE));
	}
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, 0, 0, 1), FAIL(NVME_INVALID_NS));
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, 3, 0, 1), FAIL(NVME_INVALID_NS));
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, NVME_NSID_ALL, 0, 1), FAIL(NVME_INVALID_NS));
	cr_expect_eq(bed_io(&bed, NVME_IO_FLUSH, 3, 0, 1), FAIL(NVME_INVALID_NS));
}

Test(nvmet_io, in_the_capsule)
{
	uint8_t capsule[NVME_SQE_LEN + 4096];
	uint8_t *sgl = capsule + SQE_SGL;
	static const struct {
		uint64_t offset;
		uint32_t len;
		uint16_t status;
	} cases[] = {
		{0, 512, NVME_OK},
		{3584, 512, NVME_OK},
		{3585, 512, FAIL(NVME_SGL_OFFSET)},
		{4096, 512, FAIL(NVME_SGL_OFFSET)},
		{UINT64_MAX, 512, FAIL(NVME_SGL_OFFSET)},
		{UINT64_MAX - 511, 512, FAIL(NVME_SGL_OFFSET)},
		{0, 511, FAIL(NVME_SGL_LENGTH)},
		{0, 1024, FAIL(NVME_SGL_LENGTH)},
		{0, 0, FAIL(NVME_SGL_LENGTH)},
	};
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(capsule, 0x5a, sizeof(capsule));
		bed_sqe(capsule, NVME_IO_WRITE, BED_MEMORY, 0);
		nvme_put64(capsule + SQE_CDW10, i);
		nvme_put64(sgl, cases[i].offset);
		nvme_put32(sgl + 8, cases[i].len);
		nvme_put32(sgl + 12, 0);
		sgl[15] = NVME_SGL_DATA_OFFSET;
		cr_expect_eq(bed_run(&bed, &bed.io, capsule, sizeof(capsule)), cases[i].status,
			"case %u", i);
		cr_expect_not(bed.invalidated);
	}
	/* shorter than its header says; a read has no data in the capsule */
	nvme_put64(sgl, 0);
	nvme_put32(sgl + 8, 512);
	cr_expect_eq(bed_run(&bed, &bed.io, capsule, NVME_SQE_LEN + 511), FAIL(NVME_SGL_OFFSET));
	cr_expect_eq(bed_run(&bed, &bed.io, capsule, NVME_SQE_LEN), FAIL(NVME_SGL_OFFSET));
	capsule[SQE_OPCODE] = NVME_IO_READ;
	cr_expect_eq(bed_run(&bed, &bed.io, capsule, sizeof(capsule)), FAIL(NVME_SGL_TYPE));
	cr_assert_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 1, 1), NVME_OK);
	cr_expect_eq(bed.host[511], 0x5a);
}

Test(nvmet_io, descriptors_of_other_types)
{
	uint8_t sqe[NVME_SQE_LEN];
	unsigned int type;

	for (type = 0; type < 256; type++) {
		uint16_t status;

		bed_sqe(sqe, NVME_IO_READ, BED_MEMORY, 512);
		sqe[SQE_SGL + 15] = (uint8_t)type;
		status = bed_run(&bed, &bed.io, sqe, sizeof(sqe));
		cr_expect_eq(status,
			type == NVME_SGL_KEYED || type == NVME_SGL_KEYED_INV ? NVME_OK
									     : FAIL(NVME_SGL_TYPE),
			"type %#x", type);
		cr_expect_eq(bed.invalidated, type == NVME_SGL_KEYED_INV);
	}
}

Test(nvmet_io, capsules_too_short)
{
	uint8_t sqe[NVME_SQE_LEN];
	uint32_t len;

	bed_sqe(sqe, NVME_IO_READ, BED_MEMORY, 512);
	for (len = 0; len < sizeof(sqe); len++)
		cr_expect_eq(bed_run(&bed, &bed.io, sqe, len), FAIL(NVME_INVALID_FIELD));
}

Test(nvmet_io, flags)
{
	uint8_t sqe[NVME_SQE_LEN];
	static const uint8_t wrong[] = {0x00, 0x80, 0xc0, 0x41, 0x42, 0x43};
	unsigned int i;

	for (i = 0; i < sizeof(wrong); i++) {
		bed_sqe(sqe, NVME_IO_READ, BED_MEMORY, 512);
		sqe[SQE_FLAGS] = wrong[i];
		cr_expect_eq(bed_run(&bed, &bed.io, sqe, sizeof(sqe)), FAIL(NVME_INVALID_FIELD));
	}
}

Test(nvmet_io, more_than_a_command_may_move)
{
	uint8_t sqe[NVME_SQE_LEN];

	cr_expect_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 64), NVME_OK);
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 65), FAIL(NVME_INVALID_FIELD));
	bed_sqe(sqe, NVME_IO_DSM, BED_MEMORY, 0xffffff);
	nvme_put32(sqe + SQE_CDW11, 4);
	cr_expect_eq(bed_run(&bed, &bed.io, sqe, sizeof(sqe)), FAIL(NVME_INVALID_FIELD));
}

Test(nvmet_io, length_of_data)
{
	uint8_t sqe[NVME_SQE_LEN];
	uint32_t len;

	for (len = 0; len <= 2048; len += 256) {
		bed_sqe(sqe, NVME_IO_READ, BED_MEMORY, len);
		nvme_put16(sqe + SQE_CDW12, 1);
		cr_expect_eq(bed_run(&bed, &bed.io, sqe, sizeof(sqe)),
			len == 1024 ? NVME_OK : FAIL(NVME_SGL_LENGTH), "%u bytes", len);
	}
}

static uint16_t
deallocate(uint32_t nsid, uint8_t n, uint32_t len)
{
	uint8_t sqe[NVME_SQE_LEN];

	bed_sqe(sqe, NVME_IO_DSM, nsid, len);
	sqe[SQE_CDW10] = (uint8_t)(n - 1);
	nvme_put32(sqe + SQE_CDW11, 4);
	return bed_run(&bed, &bed.io, sqe, sizeof(sqe));
}

static void
put_range(uint32_t i, uint64_t lba, uint32_t blocks)
{
	nvme_put32(bed.host + i * 16 + 4, blocks);
	nvme_put64(bed.host + i * 16 + 8, lba);
}

Test(nvmet_io, zeroes_and_deallocation)
{
	uint32_t nsid, i;

	for (nsid = BED_MEMORY; nsid <= BED_FILE; nsid++) {
		fill(1, 8 * 512);
		cr_assert_eq(bed_io(&bed, NVME_IO_WRITE, nsid, 0, 8), NVME_OK);
		cr_assert_eq(bed_io(&bed, NVME_IO_WRITE_ZEROES, nsid, 1, 2), NVME_OK);
		memset(bed.host, 0, 32);
		put_range(0, 4, 1);
		put_range(1, 6, 2);
		cr_assert_eq(deallocate(nsid, 2, 4096), NVME_OK); /* as Linux: a page for two */
		cr_assert_eq(bed_io(&bed, NVME_IO_READ, nsid, 0, 8), NVME_OK);
		for (i = 0; i < 8; i++) {
			bool zero = i == 1 || i == 2 || i == 4 || i == 6 || i == 7;

			cr_expect_eq(bed.host[i * 512 + 5] == 0, zero, "block %u", i);
		}
	}
}

static uint32_t
pages_in_memory(const struct nt_ns *ns)
{
	static unsigned char there[BED_BLOCKS * 512 / 4096];
	uint32_t i, n = 0;

	cr_assert_eq(mincore(ns->memory, ns->mapped, there), 0);
	for (i = 0; i < sizeof(there); i++)
		n += there[i] & 1;
	return n;
}

/* A disk in memory may be larger than memory, and hosts discard all of it before they make a file
 * system. */
Test(nvmet_io, deallocation_needs_no_memory)
{
	const struct nt_ns *ns = bed.target.ns[BED_MEMORY - 1];
	uint32_t i;

	memset(bed.host, 0, 16);
	put_range(0, 0, BED_BLOCKS);
	cr_assert_eq(deallocate(BED_MEMORY, 1, 16), NVME_OK);
	cr_expect_eq(pages_in_memory(ns), 0);
	/* not whole pages: the bytes next to them stay */
	fill(1, 64 * 512);
	cr_assert_eq(bed_io(&bed, NVME_IO_WRITE, BED_MEMORY, 0, 64), NVME_OK);
	memset(bed.host, 0, 16);
	put_range(0, 3, 30);
	cr_assert_eq(deallocate(BED_MEMORY, 1, 16), NVME_OK);
	cr_expect_eq(pages_in_memory(ns), 8 - 3);
	cr_assert_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 64), NVME_OK);
	for (i = 0; i < 64; i++)
		cr_expect_eq(bed.host[i * 512 + 5] == 0, i >= 3 && i < 33, "block %u", i);
}

Test(nvmet_io, deallocation_out_of_range)
{
	memset(bed.host, 0, 32);
	put_range(0, 0, 1);
	put_range(1, BED_BLOCKS - 1, 2);
	cr_expect_eq(deallocate(BED_FILE, 2, 32), FAIL(NVME_LBA_RANGE));
	put_range(1, UINT64_MAX, 0xffffffff);
	cr_expect_eq(deallocate(BED_FILE, 2, 32), FAIL(NVME_LBA_RANGE));
	cr_expect_eq(deallocate(BED_FILE, 3, 32), FAIL(NVME_SGL_LENGTH), "no room for so many");
}

Test(nvmet_io, read_only)
{
	bed.target.ns[0]->read_only = true;
	cr_expect_eq(bed_io(&bed, NVME_IO_WRITE, BED_MEMORY, 0, 1), FAIL(NVME_WRITE_PROTECTED));
	cr_expect_eq(
		bed_io(&bed, NVME_IO_WRITE_ZEROES, BED_MEMORY, 0, 1), FAIL(NVME_WRITE_PROTECTED));
	cr_expect_eq(deallocate(BED_MEMORY, 1, 16), FAIL(NVME_WRITE_PROTECTED));
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 1), NVME_OK);
}

Test(nvmet_io, a_file_that_shrinks)
{
	uint32_t nsid = BED_FILE;

	cr_assert_eq(truncate(bed.path, 512 * 10), 0);
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, nsid, 9, 1), NVME_OK);
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, nsid, 10, 1), NVME_READ_ERROR);
	cr_expect_eq(nt_target_refresh(&bed.target), 1);
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, nsid, 10, 1), FAIL(NVME_LBA_RANGE));
}

Test(nvmet_io, all_opcodes)
{
	static const uint8_t there[] = {
		NVME_IO_FLUSH, NVME_IO_WRITE, NVME_IO_READ, NVME_IO_COMPARE, NVME_IO_WRITE_ZEROES};
	unsigned int opcode;

	for (opcode = 0; opcode < 256; opcode++) {
		uint16_t status;

		if (opcode == NVME_IO_DSM || opcode == NVME_FABRICS)
			continue;
		memset(bed.host, 0, 512);
		status = bed_io(&bed, (uint8_t)opcode, BED_MEMORY, 0, 1);
		cr_expect_eq(status,
			memchr(there, (int)opcode, sizeof(there)) != NULL
				? NVME_OK
				: FAIL(NVME_INVALID_OPCODE),
			"opcode %#x", opcode);
	}
}

Test(nvmet_io, head_of_the_queue)
{
	unsigned int i;

	for (i = 2; i < 70; i++) { /* Connect was the first of 64 */
		cr_assert_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 1), NVME_OK);
		cr_expect_eq(nvme_get16(bed.cqe + 8), i % 64);
	}
	bed.io.no_sq_flow = true;
	cr_assert_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 1), NVME_OK);
	cr_expect_eq(nvme_get16(bed.cqe + 8), 0xffff);
}
