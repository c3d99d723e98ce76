/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* How hosts connect, why they are refused, and how controllers end. */
#include "bed.h"

#include <criterion/criterion.h>

#define FAIL(code) ((code) | NVME_DNR)
#define IN_DATA    (1u << 16)

static struct bed bed;

static void
setup(void)
{
	bed_make(&bed);
}

static void
teardown(void)
{
	bed_end(&bed);
}

TestSuite(nvmet_fabrics, .init = setup, .fini = teardown);

Test(nvmet_fabrics, private_data)
{
	static const struct {
		uint16_t recfmt, qid, hrqsize, hsqsize;
		uint32_t len;
		enum nvme_rdma_reject why;
		uint16_t entries;
	} cases[] = {
		{0, 0, 32, 31, 56, NVME_RDMA_ACCEPT, 32}, /* Linux's admin queue */
		{0, 1, 64, 63, 56, NVME_RDMA_ACCEPT, 64},
		{0, 4, 2, 1, 32, NVME_RDMA_ACCEPT, 2},
		{0, 0, 32, 31, 31, NVME_RDMA_INVALID_LEN, 0},
		{0, 0, 32, 31, 0, NVME_RDMA_INVALID_LEN, 0},
		{1, 0, 32, 31, 56, NVME_RDMA_INVALID_RECFMT, 0},
		{0, 5, 64, 63, 56, NVME_RDMA_INVALID_QID, 0},
		{0, 0xffff, 64, 63, 56, NVME_RDMA_INVALID_QID, 0},
		{0, 0, 33, 32, 56, NVME_RDMA_INVALID_HSQSIZE, 0},
		{0, 1, 64, 64, 56, NVME_RDMA_INVALID_HSQSIZE, 0},
		{0, 1, 64, 0, 56, NVME_RDMA_INVALID_HSQSIZE, 0},
		{0, 1, 64, 0xffff, 56, NVME_RDMA_INVALID_HSQSIZE, 0},
		{0, 1, 0, 63, 56, NVME_RDMA_INVALID_HRQSIZE, 0},
	};
	uint16_t qid, entries;
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t data[56] = {0};

		nvme_put16(data + RDMA_REQ_RECFMT, cases[i].recfmt);
		nvme_put16(data + RDMA_REQ_QID, cases[i].qid);
		nvme_put16(data + RDMA_REQ_HRQSIZE, cases[i].hrqsize);
		nvme_put16(data + RDMA_REQ_HSQSIZE, cases[i].hsqsize);
		cr_expect_eq(
			nt_request_parse(&bed.target.config, data, cases[i].len, &qid, &entries),
			cases[i].why, "case %u", i);
		if (cases[i].why != NVME_RDMA_ACCEPT)
			continue;
		cr_expect_eq(qid, cases[i].qid, "case %u", i);
		cr_expect_eq(entries, cases[i].entries, "case %u", i);
	}
	cr_expect_eq(nt_request_parse(&bed.target.config, NULL, 56, &qid, &entries),
		NVME_RDMA_INVALID_LEN);
}

Test(nvmet_fabrics, connect_enable_shut_down)
{
	bed_ready(&bed);
	cr_expect_eq(bed_property_get(&bed, NVME_PROP_CAP, true), NVME_OK);
	cr_expect_eq(bed.result & 0xffff, 63, "entries that a queue may have, less one");
	cr_expect_eq(bed_property_get(&bed, NVME_PROP_VS, false), NVME_OK);
	cr_expect_eq(bed.result, NVME_VERSION);
	cr_expect_eq(bed_property_set(&bed, NVME_PROP_CC, 0x00464001u), NVME_OK);
	cr_expect_eq(bed_property_get(&bed, NVME_PROP_CSTS, false), NVME_OK);
	cr_expect_eq(bed.result & NVME_CSTS_SHST, NVME_CSTS_SHST_DONE);
	cr_expect_eq(bed_property_set(&bed, NVME_PROP_CC, 0x00460000u), NVME_OK);
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 1), FAIL(NVME_SEQUENCE));
}

Test(nvmet_fabrics, wrong_configuration_is_fatal)
{
	static const uint32_t wrong[] = {
		0x00450001, 0x00360001, 0x00460081, 0x00460811, 0x00460011};
	unsigned int i;

	cr_assert_eq(bed_connect(&bed, &bed.admin, BED_NQN, NVME_CNTLID_ANY), NVME_OK);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_expect_eq(bed_property_set(&bed, NVME_PROP_CC, 0), NVME_OK);
		cr_expect_eq(bed_property_set(&bed, NVME_PROP_CC, wrong[i]), NVME_OK);
		cr_expect_eq(bed_property_get(&bed, NVME_PROP_CSTS, false), NVME_OK);
		cr_expect_eq(bed.result, NVME_CSTS_CFS, "%#x", wrong[i]);
	}
}

Test(nvmet_fabrics, properties_that_are_not)
{
	cr_assert_eq(bed_connect(&bed, &bed.admin, BED_NQN, NVME_CNTLID_ANY), NVME_OK);
	cr_expect_eq(bed_property_get(&bed, NVME_PROP_CAP, false), FAIL(NVME_INVALID_FIELD));
	cr_expect_eq(bed_property_get(&bed, NVME_PROP_CSTS, true), FAIL(NVME_INVALID_FIELD));
	cr_expect_eq(bed_property_get(&bed, 0x20, false), FAIL(NVME_INVALID_FIELD));
	cr_expect_eq(bed_property_set(&bed, NVME_PROP_CSTS, 1), FAIL(NVME_INVALID_FIELD));
}

Test(nvmet_fabrics, nothing_before_connect)
{
	uint8_t sqe[NVME_SQE_LEN];

	cr_expect_eq(bed_property_get(&bed, NVME_PROP_CAP, true), FAIL(NVME_SEQUENCE));
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 1), FAIL(NVME_SEQUENCE));
	bed_sqe(sqe, NVME_ADMIN_IDENTIFY, 0, 4096);
	cr_expect_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), FAIL(NVME_SEQUENCE));
}

Test(nvmet_fabrics, connect_twice)
{
	bed_ready(&bed);
	cr_expect_eq(bed_connect(&bed, &bed.admin, BED_NQN, NVME_CNTLID_ANY), FAIL(NVME_SEQUENCE));
	cr_expect_eq(
		bed_connect(&bed, &bed.io, BED_NQN, bed.admin.ctrl->cntlid), FAIL(NVME_SEQUENCE));
}

Test(nvmet_fabrics, refusals)
{
	struct nt_queue other;
	uint8_t sqe[NVME_SQE_LEN];

	cr_expect_eq(bed_connect(&bed, &bed.admin, "nqn.test:other", NVME_CNTLID_ANY),
		FAIL(NVME_CONNECT_PARAM));
	cr_expect_eq(bed.result, IN_DATA | CONNECT_SUBNQN);
	cr_expect_eq(bed_connect(&bed, &bed.admin, "", NVME_CNTLID_ANY), FAIL(NVME_CONNECT_PARAM));
	cr_expect_eq(bed_connect(&bed, &bed.admin, BED_NQN, 1), FAIL(NVME_CONNECT_PARAM));
	cr_expect_eq(bed.result, IN_DATA | CONNECT_CNTLID);
	/* a queue of a controller that does not exist, and of discovery */
	cr_expect_eq(bed_connect(&bed, &bed.io, BED_NQN, 77), FAIL(NVME_CONNECT_PARAM));
	cr_expect_eq(bed_connect(&bed, &bed.io, NVME_DISCOVERY, 77), FAIL(NVME_CONNECT_PARAM));

	bed_ready(&bed);
	nt_queue_init(&other, &bed.target, 1, 64);
	cr_expect_eq(bed_connect(&bed, &other, BED_NQN, bed.admin.ctrl->cntlid),
		FAIL(NVME_SEQUENCE), "the controller has queue 1");
	nt_queue_init(&other, &bed.target, 2, 64);
	bed.admin.ctrl->hostid[0]++;
	cr_expect_eq(bed_connect(&bed, &other, BED_NQN, bed.admin.ctrl->cntlid),
		FAIL(NVME_CONNECT_PARAM), "another host's");
	bed.admin.ctrl->hostid[0]--;
	bed.admin.ctrl->io_queues = 1;
	cr_expect_eq(bed_connect(&bed, &other, BED_NQN, bed.admin.ctrl->cntlid),
		FAIL(NVME_CONNECT_PARAM), "more queues than were granted");
	cr_expect_eq(bed.result, SQE_QID);

	/* fields of the command */
	nt_queue_init(&other, &bed.target, 0, 32);
	bed_sqe(sqe, NVME_FABRICS, 0, NVME_CONNECT_LEN);
	sqe[SQE_FCTYPE] = NVME_FC_CONNECT;
	nvme_put16(sqe + SQE_SQSIZE, 32);
	cr_expect_eq(bed_run(&bed, &other, sqe, sizeof(sqe)), FAIL(NVME_CONNECT_PARAM));
	cr_expect_eq(bed.result, SQE_SQSIZE);
	nvme_put16(sqe + SQE_SQSIZE, 31);
	nvme_put16(sqe + SQE_QID, 1);
	cr_expect_eq(bed_run(&bed, &other, sqe, sizeof(sqe)), FAIL(NVME_CONNECT_PARAM));
	nvme_put16(sqe + SQE_RECFMT, 1);
	cr_expect_eq(bed_run(&bed, &other, sqe, sizeof(sqe)), FAIL(NVME_CONNECT_FORMAT));
}

Test(nvmet_fabrics, names_without_an_end)
{
	uint8_t sqe[NVME_SQE_LEN];

	bed_sqe(sqe, NVME_FABRICS, 0, NVME_CONNECT_LEN);
	sqe[SQE_FCTYPE] = NVME_FC_CONNECT;
	nvme_put16(sqe + SQE_SQSIZE, 31);
	memset(bed.host, 'x', NVME_CONNECT_LEN);
	cr_expect_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), FAIL(NVME_CONNECT_PARAM));
	cr_expect_eq(bed.result, IN_DATA | CONNECT_HOSTNQN);
	strcpy((char *)bed.host + CONNECT_HOSTNQN, BED_HOST);
	cr_expect_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), FAIL(NVME_CONNECT_PARAM));
	cr_expect_eq(bed.result, IN_DATA | CONNECT_SUBNQN);
}

Test(nvmet_fabrics, hosts_that_may)
{
	bed.target.config.nhosts = 1;
	strcpy(bed.target.config.hosts[0], "nqn.test:another");
	cr_expect_eq(
		bed_connect(&bed, &bed.admin, BED_NQN, NVME_CNTLID_ANY), FAIL(NVME_CONNECT_HOST));
	strcpy(bed.target.config.hosts[0], BED_HOST);
	cr_expect_eq(bed_connect(&bed, &bed.admin, BED_NQN, NVME_CNTLID_ANY), NVME_OK);
	cr_expect_eq(bed.target.counters.refused, 1);
}

Test(nvmet_fabrics, as_many_controllers_as_there_may_be)
{
	struct nt_queue queues[5];
	unsigned int i;

	for (i = 0; i < 5; i++) {
		nt_queue_init(&queues[i], &bed.target, 0, 32);
		cr_expect_eq(bed_connect(&bed, &queues[i], BED_NQN, NVME_CNTLID_ANY),
			i < 4 ? NVME_OK : NVME_CONNECT_BUSY);
	}
	cr_expect_neq(queues[0].ctrl->cntlid, queues[1].ctrl->cntlid);
	for (i = 0; i < 5; i++)
		nt_queue_gone(&queues[i]);
}

Test(nvmet_fabrics, an_end_takes_all_queues_along)
{
	bed_ready(&bed);
	nt_queue_gone(&bed.admin);
	cr_assert_eq(bed.nclosed, 1);
	cr_expect_eq(bed.closed[0], &bed.io);
	cr_expect_eq(bed_io(&bed, NVME_IO_READ, BED_MEMORY, 0, 1), FAIL(NVME_SEQUENCE));
	nt_queue_gone(&bed.io);
}

Test(nvmet_fabrics, an_io_queue_ends_alone)
{
	bed_ready(&bed);
	nt_queue_gone(&bed.io);
	cr_expect_eq(bed.nclosed, 0);
	nt_queue_init(&bed.io, &bed.target, 1, 64);
	cr_expect_eq(bed_connect(&bed, &bed.io, BED_NQN, bed.admin.ctrl->cntlid), NVME_OK);
}

Test(nvmet_fabrics, keep_alive)
{
	nt_target_tick(&bed.target, 1000);
	bed_ready(&bed);
	bed.admin.ctrl->kato_ms = 500;
	cr_assert_eq(bed_property_get(&bed, NVME_PROP_VS, false), NVME_OK);
	nt_target_tick(&bed.target, 1400);
	cr_assert_not_null(bed.admin.ctrl);
	/* any command keeps the connection alive, also one that fails */
	cr_expect_eq(bed_io(&bed, 0x7e, 1, 0, 1), FAIL(NVME_INVALID_OPCODE));
	nt_target_tick(&bed.target, 1899);
	cr_assert_not_null(bed.admin.ctrl);
	nt_target_tick(&bed.target, 1900);
	cr_expect_null(bed.admin.ctrl);
	cr_expect_null(bed.io.ctrl);
	cr_expect_eq(bed.nclosed, 2);
	cr_expect_eq(bed.target.counters.expired, 1);
}

/* A target that has not run for a while, on a busy machine, waits as long as after a command. */
Test(nvmet_fabrics, keep_alive_after_a_standstill)
{
	nt_target_tick(&bed.target, 1000);
	bed_ready(&bed);
	bed.admin.ctrl->kato_ms = 500;
	cr_assert_eq(bed_property_get(&bed, NVME_PROP_VS, false), NVME_OK);
	nt_target_tick(&bed.target, 9000);
	cr_assert_not_null(bed.admin.ctrl);
	nt_target_tick(&bed.target, 9499);
	cr_assert_not_null(bed.admin.ctrl);
	nt_target_tick(&bed.target, 9500);
	cr_expect_null(bed.admin.ctrl);
}

Test(nvmet_fabrics, discovery)
{
	uint8_t sqe[NVME_SQE_LEN];
	const uint8_t *entry = bed.host + NVME_DISC_ENTRY;

	cr_assert_eq(bed_connect(&bed, &bed.admin, NVME_DISCOVERY, NVME_CNTLID_ANY), NVME_OK);
	cr_assert_eq(bed_property_set(&bed, NVME_PROP_CC, NVME_CC_EN), NVME_OK);
	bed_sqe(sqe, NVME_ADMIN_GET_LOG, 0, 2048);
	nvme_put32(sqe + SQE_CDW10, NVME_LOG_DISCOVERY | (2048 / 4 - 1) << 16);
	cr_assert_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), NVME_OK);
	cr_expect(bed.invalidated);
	cr_expect_eq(nvme_get64(bed.host + 8), 1, "records");
	cr_expect_eq(entry[0], 1, "RDMA");
	cr_expect_eq(entry[2], 2, "an NVM subsystem");
	cr_expect_str_eq((const char *)entry + 32, "4420");
	cr_expect_str_eq((const char *)entry + 256, BED_NQN);
	cr_expect_str_eq((const char *)entry + 512, "192.0.2.2");

	/* the second half of it, and what is behind it */
	nvme_put64(sqe + SQE_CDW12, 1024);
	cr_assert_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), NVME_OK);
	cr_expect_eq(bed.host[0], 1);
	cr_expect_eq(bed.host[1024], 0);
	nvme_put64(sqe + SQE_CDW12, 2052);
	cr_expect_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), FAIL(NVME_INVALID_FIELD));
	nvme_put64(sqe + SQE_CDW12, UINT64_MAX - 3);
	cr_expect_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), FAIL(NVME_INVALID_FIELD));

	/* no information about namespaces */
	bed_sqe(sqe, NVME_ADMIN_IDENTIFY, 1, 4096);
	cr_expect_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), FAIL(NVME_INVALID_FIELD));
	bed_sqe(sqe, NVME_ADMIN_GET_LOG, 0, 512);
	nvme_put32(sqe + SQE_CDW10, NVME_LOG_SMART | 127 << 16);
	cr_expect_eq(bed_run(&bed, &bed.admin, sqe, sizeof(sqe)), FAIL(NVME_INVALID_LOG));
}
