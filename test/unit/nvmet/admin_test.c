/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Admin commands: what the controller reports of itself, features, logs, events. */
#include "bed.h"

#include <unistd.h>

#include <criterion/criterion.h>

#define FAIL(code) ((code) | NVME_DNR)
#define NO_ANSWER  0xffff

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

TestSuite(nvmet_admin, .init = setup, .fini = teardown);

static uint16_t
admin(uint8_t opcode, uint32_t nsid, uint32_t len, uint32_t dw10, uint32_t dw11)
{
	uint8_t sqe[NVME_SQE_LEN];

	bed_sqe(sqe, opcode, nsid, len);
	nvme_put32(sqe + SQE_CDW10, dw10);
	nvme_put32(sqe + SQE_CDW11, dw11);
	return bed_run(&bed, &bed.admin, sqe, sizeof(sqe));
}

static uint16_t
identify(uint32_t nsid, uint32_t cns)
{
	memset(bed.host, 0xee, 4096);
	return admin(NVME_ADMIN_IDENTIFY, nsid, 4096, cns, 0);
}

static uint16_t
get_log(uint32_t page, uint32_t len)
{
	return admin(NVME_ADMIN_GET_LOG, NVME_NSID_ALL, len, page | (len / 4 - 1) << 16, 0);
}

Test(nvmet_admin, identify_controller)
{
	cr_assert_eq(identify(0, NVME_CNS_CTRL), NVME_OK);
	cr_expect_eq(nvme_get16(bed.host + 78), bed.admin.ctrl->cntlid);
	cr_expect_eq(bed.host[77], 3, "32 KiB are 8 pages");
	cr_expect_eq(nvme_get32(bed.host + 80), NVME_VERSION);
	cr_expect_eq(bed.host[111], 1, "an I/O controller");
	cr_expect_eq(bed.host[512], 0x66);
	cr_expect_eq(bed.host[513], 0x44);
	cr_expect_eq(nvme_get32(bed.host + 1792), (64 + 4096) / 16, "capsule");
	cr_expect_eq(nvme_get32(bed.host + 1796), 1, "response capsule");
	cr_expect_str_eq((const char *)bed.host + 768, BED_NQN);
	cr_expect_eq(nvme_get32(bed.host + 536) & 5, 5, "keyed SGLs");
	/* text is padded with blanks */
	cr_expect_eq(memcmp(bed.host + 24, "karst-nvmet     ", 16), 0);
}

Test(nvmet_admin, identify_namespaces)
{
	static const uint8_t none[4096];
	uint8_t uuid[16];

	cr_assert_eq(identify(BED_MEMORY, NVME_CNS_NS), NVME_OK);
	cr_expect_eq(nvme_get64(bed.host), BED_BLOCKS);
	cr_expect_eq(bed.host[130], 9, "blocks of 512 bytes");
	cr_assert_eq(identify(5, NVME_CNS_NS), NVME_OK);
	cr_expect_eq(memcmp(bed.host, none, 4096), 0, "one that is not there is zeroes");
	cr_expect_eq(identify(0, NVME_CNS_NS), FAIL(NVME_INVALID_NS));
	cr_expect_eq(identify(NT_MAX_NS + 1, NVME_CNS_NS), FAIL(NVME_INVALID_NS));

	cr_assert_eq(identify(0, NVME_CNS_ACTIVE), NVME_OK);
	cr_expect_eq(nvme_get32(bed.host), 1);
	cr_expect_eq(nvme_get32(bed.host + 4), 2);
	cr_expect_eq(nvme_get32(bed.host + 8), 0);
	cr_assert_eq(identify(1, NVME_CNS_ACTIVE), NVME_OK);
	cr_expect_eq(nvme_get32(bed.host), 2);
	cr_expect_eq(nvme_get32(bed.host + 4), 0);
	cr_expect_eq(identify(NVME_NSID_ALL, NVME_CNS_ACTIVE), FAIL(NVME_INVALID_NS));

	cr_assert_eq(identify(1, NVME_CNS_DESCRIPTORS), NVME_OK);
	cr_expect_eq(bed.host[0], 3, "a UUID");
	cr_expect_eq(bed.host[1], 16);
	memcpy(uuid, bed.host + 4, 16);
	cr_assert_eq(identify(2, NVME_CNS_DESCRIPTORS), NVME_OK);
	cr_expect_neq(memcmp(uuid, bed.host + 4, 16), 0);
	cr_expect_eq(identify(3, NVME_CNS_DESCRIPTORS), FAIL(NVME_INVALID_NS));
	cr_expect_eq(identify(1, 0x77), FAIL(NVME_INVALID_FIELD));
	cr_expect_eq(admin(NVME_ADMIN_IDENTIFY, 0, 512, NVME_CNS_CTRL, 0), FAIL(NVME_SGL_LENGTH));
}

Test(nvmet_admin, number_of_queues)
{
	struct nt_queue more;

	nt_queue_gone(&bed.io);
	cr_expect_eq(admin(NVME_ADMIN_SET_FEATURES, 0, 0, NVME_FEAT_QUEUES, 0x00010001), NVME_OK);
	cr_expect_eq(bed.result, 0x00010001, "two, counted from 0");
	cr_expect_eq(admin(NVME_ADMIN_SET_FEATURES, 0, 0, NVME_FEAT_QUEUES, 0x00630063), NVME_OK);
	cr_expect_eq(bed.result, 0x00030003, "as many as there may be");
	cr_expect_eq(admin(NVME_ADMIN_GET_FEATURES, 0, 0, NVME_FEAT_QUEUES, 0), NVME_OK);
	cr_expect_eq(bed.result, 0x00030003);
	cr_expect_eq(admin(NVME_ADMIN_SET_FEATURES, 0, 0, NVME_FEAT_QUEUES, 0xffff0000),
		FAIL(NVME_INVALID_FIELD));
	nt_queue_init(&more, &bed.target, 4, 64);
	cr_expect_eq(bed_connect(&bed, &more, BED_NQN, bed.admin.ctrl->cntlid), NVME_OK);
	cr_expect_eq(admin(NVME_ADMIN_SET_FEATURES, 0, 0, NVME_FEAT_QUEUES, 0), FAIL(NVME_SEQUENCE),
		"not while there are some");
	nt_queue_gone(&more);
}

Test(nvmet_admin, features)
{
	static const uint8_t kept[] = {NVME_FEAT_ARBITRATION, NVME_FEAT_TEMPERATURE,
		NVME_FEAT_ERROR_RECOVERY, NVME_FEAT_WRITE_ATOMICITY, NVME_FEAT_KATO};
	unsigned int i;

	for (i = 0; i < sizeof(kept); i++) {
		cr_expect_eq(admin(NVME_ADMIN_SET_FEATURES, 0, 0, kept[i], 7000 + i), NVME_OK);
		cr_expect_eq(admin(NVME_ADMIN_GET_FEATURES, 0, 0, kept[i], 0), NVME_OK);
		cr_expect_eq(bed.result, 7000 + i);
		cr_expect_eq(admin(NVME_ADMIN_GET_FEATURES, 0, 0, kept[i] | 1 << 8, 0), NVME_OK);
		cr_expect_eq(bed.result, 0, "the default of %#x", kept[i]);
		cr_expect_eq(admin(NVME_ADMIN_GET_FEATURES, 0, 0, kept[i] | 3 << 8, 0), NVME_OK);
		cr_expect_eq(bed.result, 4, "%#x can be changed", kept[i]);
		cr_expect_eq(admin(NVME_ADMIN_SET_FEATURES, 0, 0, kept[i] | 1u << 31, 1),
			FAIL(NVME_NOT_SAVEABLE));
	}
	cr_expect_eq(admin(NVME_ADMIN_GET_FEATURES, 0, 0, NVME_FEAT_KATO | 4 << 8, 0),
		FAIL(NVME_INVALID_FIELD));
	cr_expect_eq(admin(NVME_ADMIN_GET_FEATURES, 0, 0, 0x70, 0), FAIL(NVME_INVALID_FIELD));
	cr_expect_eq(admin(NVME_ADMIN_SET_FEATURES, 0, 0, 0x70, 0), FAIL(NVME_INVALID_FIELD));
	cr_expect_eq(admin(NVME_ADMIN_SET_FEATURES, 0, 0, NVME_FEAT_WRITE_CACHE, 0),
		FAIL(NVME_NOT_CHANGEABLE));
	cr_expect_eq(
		admin(NVME_ADMIN_SET_FEATURES, 0, 0, NVME_FEAT_HOST_ID, 1), FAIL(NVME_SEQUENCE));
	cr_assert_eq(admin(NVME_ADMIN_GET_FEATURES, 0, 16, NVME_FEAT_HOST_ID, 1), NVME_OK);
	cr_expect_eq(bed.host[0], 7);
}

Test(nvmet_admin, logs)
{
	cr_assert_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 1), NVME_OK);
	cr_assert_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, BED_BLOCKS, 1), FAIL(NVME_LBA_RANGE));
	cr_assert_eq(get_log(NVME_LOG_SMART, 512), NVME_OK);
	cr_expect_eq(nvme_get64(bed.host + 64), 2, "reads");
	cr_expect_eq(nvme_get64(bed.host + 176), 1, "errors");
	cr_assert_eq(get_log(NVME_LOG_ERROR, 128), NVME_OK);
	cr_expect_eq(nvme_get64(bed.host), 1);
	cr_expect_eq(nvme_get16(bed.host + 8), 1, "of queue 1");
	cr_expect_eq(nvme_get16(bed.host + 12), (uint16_t)(FAIL(NVME_LBA_RANGE) << 1));
	cr_expect_eq(nvme_get64(bed.host + 16), BED_BLOCKS);
	cr_expect_eq(nvme_get64(bed.host + 64), 0, "no more of them");
	cr_assert_eq(get_log(NVME_LOG_EFFECTS, 4096), NVME_OK);
	cr_expect_eq(nvme_get32(bed.host + 1024 + 4 * NVME_IO_WRITE), 3);
	cr_expect_eq(nvme_get32(bed.host + 1024 + 4 * 4), 0);
	cr_assert_eq(get_log(NVME_LOG_FIRMWARE, 512), NVME_OK);
	cr_expect_eq(bed.host[0], 1);
	cr_expect_eq(get_log(NVME_LOG_DISCOVERY, 1024), FAIL(NVME_INVALID_LOG));
	cr_expect_eq(get_log(0xc0, 512), FAIL(NVME_INVALID_LOG));
	/* longer than the page, than a transfer, than 32 bits */
	memset(bed.host, 0xee, 1024);
	cr_assert_eq(get_log(NVME_LOG_SMART, 1024), NVME_OK);
	cr_expect_eq(bed.host[1023], 0);
	cr_expect_eq(get_log(NVME_LOG_SMART, 65536), FAIL(NVME_INVALID_FIELD));
	cr_expect_eq(admin(NVME_ADMIN_GET_LOG, 0, 0, NVME_LOG_SMART | 0xffff0000, 0xffff),
		FAIL(NVME_INVALID_FIELD));
}

Test(nvmet_admin, more_errors_than_the_log_has_entries)
{
	uint32_t i;

	for (i = 0; i < 40; i++)
		bed_io(&bed, NVME_IO_READ, BED_MEMORY, BED_BLOCKS + i, 1);
	cr_assert_eq(get_log(NVME_LOG_ERROR, NT_ERRORS * 64), NVME_OK);
	for (i = 0; i < NT_ERRORS; i++)
		cr_expect_eq(nvme_get64(bed.host + i * 64), 40 - i, "the latest first");
}

Test(nvmet_admin, events)
{
	unsigned int i;

	for (i = 0; i < NT_AERS; i++)
		cr_expect_eq(admin(NVME_ADMIN_ASYNC_EVENT, 0, 0, 0, 0), NO_ANSWER);
	cr_expect_eq(admin(NVME_ADMIN_ASYNC_EVENT, 0, 0, 0, 0), FAIL(NVME_AER_LIMIT));
	/* no host has asked for the event */
	cr_assert_eq(truncate(bed.path, 512 * 4096), 0);
	bed.answers = 0;
	cr_expect_eq(nt_target_refresh(&bed.target), 1);
	cr_expect_eq(bed.answers, 0);
	cr_assert_eq(get_log(NVME_LOG_CHANGED_NS, 4096), NVME_OK);
	cr_expect_eq(nvme_get32(bed.host), BED_FILE);
	cr_expect_eq(nvme_get32(bed.host + 4), 0);
	cr_assert_eq(get_log(NVME_LOG_CHANGED_NS, 4096), NVME_OK);
	cr_expect_eq(nvme_get32(bed.host), 0, "it has been read");

	cr_assert_eq(
		admin(NVME_ADMIN_SET_FEATURES, 0, 0, NVME_FEAT_ASYNC_EVENT, NVME_AEN_NS_ATTRIBUTE),
		NVME_OK);
	cr_assert_eq(truncate(bed.path, 512 * 1024), 0);
	bed.answers = 0;
	cr_expect_eq(nt_target_refresh(&bed.target), 1);
	cr_expect_eq(bed.answers, 1);
	cr_expect_eq(bed.result, NVME_AER_NS_CHANGED);
	/* once, until the log page has been read */
	cr_assert_eq(truncate(bed.path, 512 * 2048), 0);
	cr_expect_eq(nt_target_refresh(&bed.target), 1);
	cr_expect_eq(bed.answers, 1);
	cr_assert_eq(get_log(NVME_LOG_CHANGED_NS, 4096), NVME_OK);
	cr_assert_eq(truncate(bed.path, 512 * 1024), 0);
	bed.answers = 0;
	cr_expect_eq(nt_target_refresh(&bed.target), 1);
	cr_expect_eq(bed.answers, 1);
	cr_expect_eq(nt_target_refresh(&bed.target), 0);
}

Test(nvmet_admin, all_opcodes)
{
	static const uint8_t there[] = {NVME_ADMIN_ABORT, NVME_ADMIN_KEEP_ALIVE};
	static const uint8_t elsewhere[] = {NVME_ADMIN_GET_LOG, NVME_ADMIN_IDENTIFY,
		NVME_ADMIN_SET_FEATURES, NVME_ADMIN_GET_FEATURES, NVME_ADMIN_ASYNC_EVENT,
		NVME_FABRICS};
	unsigned int opcode;

	for (opcode = 0; opcode < 256; opcode++) {
		if (memchr(elsewhere, (int)opcode, sizeof(elsewhere)) != NULL)
			continue;
		cr_expect_eq(admin((uint8_t)opcode, 0, 0, 0, 0),
			memchr(there, (int)opcode, sizeof(there)) != NULL
				? NVME_OK
				: FAIL(NVME_INVALID_OPCODE),
			"opcode %#x", opcode);
	}
	cr_assert_eq(admin(NVME_ADMIN_ABORT, 0, 0, 0, 0), NVME_OK);
	cr_expect_eq(bed.result, 1, "nothing was aborted");
}
