/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Controllers: Connect, properties, identify data, their I/O queues, their end. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host.h"

#define POLL_US      10000u
#define ADMIN_DATA   8192u
#define LIST_ENTRIES 1024u
#define MQES(cap)    ((uint32_t)((cap)&0xffff) + 1)
#define QUEUES(n)    (((n)-1) | ((n)-1) << 16)
#define DISC_MAX     (ADMIN_DATA / NVME_DISC_ENTRY - 1)
#define SUBNQN_PRINT (int)NVME_NQN_LEN

static const uint8_t hostid[NVME_HOSTID_LEN] = "karst nvme host";

/* --- fabrics --- */

static uint16_t
connect_cmd(struct nh_queue *queue, const char *nqn, uint16_t cntlid)
{
	struct nh_cmd *cmd = nh_cmd_get(queue, NVME_FABRICS, 0);
	const struct nh_options *opt = &queue->host->opt;
	uint16_t status;

	cmd->capsule[SQE_FCTYPE] = NVME_FC_CONNECT;
	nvme_put16(cmd->capsule + SQE_QID, queue->qid);
	nvme_put16(cmd->capsule + SQE_SQSIZE, (uint16_t)(queue->shape.entries - 1));
	if (queue->qid == 0)
		nvme_put32(cmd->capsule + SQE_KATO, opt->kato_ms);
	nh_cmd_data(cmd, NH_TO_TARGET, NVME_CONNECT_LEN, true);
	memset(cmd->data, 0, NVME_CONNECT_LEN);
	memcpy(cmd->data + CONNECT_HOSTID, hostid, sizeof(hostid));
	nvme_put16(cmd->data + CONNECT_CNTLID, cntlid);
	snprintf((char *)cmd->data + CONNECT_SUBNQN, NVME_NQN_FIELD, "%s", nqn);
	snprintf((char *)cmd->data + CONNECT_HOSTNQN, NVME_NQN_FIELD, "%s", opt->hostnqn);
	status = nh_run(cmd);
	if (status == NVME_OK)
		queue->host->cntlid = (uint16_t)cmd->result;
	nh_cmd_put(cmd);
	return status;
}

static uint64_t
property(struct nh *h, enum nvme_property offset, bool wide)
{
	struct nh_cmd *cmd = nh_cmd_get(h->queue[0], NVME_FABRICS, 0);
	uint64_t value;

	cmd->capsule[SQE_FCTYPE] = NVME_FC_PROPERTY_GET;
	cmd->capsule[SQE_PROP_ATTRIB] = wide ? NVME_PROP_8BYTES : 0;
	nvme_put32(cmd->capsule + SQE_PROP_OFFSET, offset);
	nh_run_to(cmd, NVME_OK, "Property Get");
	value = cmd->result;
	return value;
}

static void
set_cc(struct nh *h, uint32_t value)
{
	struct nh_cmd *cmd = nh_cmd_get(h->queue[0], NVME_FABRICS, 0);

	cmd->capsule[SQE_FCTYPE] = NVME_FC_PROPERTY_SET;
	nvme_put32(cmd->capsule + SQE_PROP_OFFSET, NVME_PROP_CC);
	nvme_put64(cmd->capsule + SQE_PROP_VALUE, value);
	nh_run_to(cmd, NVME_OK, "Property Set");
}

static void
wait_csts(struct nh *h, uint32_t bits, uint32_t wanted)
{
	uint32_t csts, left = h->opt.patience_s * (1000000 / POLL_US);

	while (((csts = (uint32_t)property(h, NVME_PROP_CSTS, false)) & bits) != wanted) {
		if ((csts & NVME_CSTS_CFS) != 0 || left-- == 0)
			nh_die("the controller's status is %#x", csts);
		usleep(POLL_US);
	}
}

uint16_t
nh_ctrl_connect(struct nh *h, const char *nqn)
{
	const struct nh_shape shape = {.entries = NVME_AQ_ENTRIES, .max_data = ADMIN_DATA};
	struct nh_queue *queue;
	uint16_t status;
	int why;

	queue = nh_queue_open(h, 0, &shape, &why);
	if (queue == NULL)
		nh_die("the target rejects the connection, status %d", why);
	status = connect_cmd(queue, nqn, NVME_CNTLID_ANY);
	if (status != NVME_OK)
		nh_queue_close(queue);
	return status;
}

int
nh_ctrl_reject(struct nh *h, uint32_t entries, uint16_t format)
{
	const struct nh_shape shape = {
		.entries = entries, .max_data = ADMIN_DATA, .format = format};
	int why;

	if (nh_queue_open(h, 0, &shape, &why) != NULL)
		nh_die("the target does not reject the connection");
	return why;
}

static void
identify_early(struct nh *h)
{
	struct nh_cmd *cmd = nh_cmd_get(h->queue[0], NVME_ADMIN_IDENTIFY, 0);

	cmd->capsule[SQE_CDW10] = NVME_CNS_CTRL;
	nh_cmd_data(cmd, NH_FROM_TARGET, NVME_IDENTIFY_LEN, false);
	nh_run_to(cmd, NVME_SEQUENCE, "Identify, before the controller is ready");
}

void
nh_ctrl_enable(struct nh *h, bool early)
{
	uint64_t cap = property(h, NVME_PROP_CAP, true);

	if (early)
		identify_early(h);
	if (MQES(cap) < h->opt.entries)
		nh_die("queues have %u entries at the most", MQES(cap));
	set_cc(h, NVME_CC_EN | NVME_IO_SQE_SHIFT << 16 | NVME_IO_CQE_SHIFT << 20);
	wait_csts(h, NVME_CSTS_RDY, NVME_CSTS_RDY);
	printf("controller %u: version %#x, queues of %u entries\n", h->cntlid,
		(uint32_t)property(h, NVME_PROP_VS, false), MQES(cap));
}

/* --- identify data --- */

/* The result is in the data of the command that is returned. */
static struct nh_cmd *
identify(struct nh *h, enum nvme_cns what, uint32_t nsid)
{
	struct nh_cmd *cmd = nh_cmd_get(h->queue[0], NVME_ADMIN_IDENTIFY, nsid);

	cmd->capsule[SQE_CDW10] = (uint8_t)what;
	nh_cmd_data(cmd, NH_FROM_TARGET, NVME_IDENTIFY_LEN, false);
	if (nh_run(cmd) != NVME_OK)
		nh_die("Identify %u of namespace %u: status %#x", what, nsid, cmd->status);
	return cmd;
}

void
nh_ctrl_identify(struct nh *h)
{
	struct nh_cmd *cmd = identify(h, NVME_CNS_CTRL, 0);
	const uint8_t *d = cmd->data;
	uint32_t mdts = d[ID_MDTS], ioccsz = nvme_get32(d + ID_IOCCSZ) * 16;
	uint32_t sgls = nvme_get32(d + ID_SGLS);

	if (strncmp((const char *)d + ID_SUBNQN, h->opt.nqn, NVME_NQN_FIELD) != 0)
		nh_die("the subsystem's name is %.*s", SUBNQN_PRINT, d + ID_SUBNQN);
	if (nvme_get16(d + ID_CNTLID) != h->cntlid)
		nh_die("the controller's number is %u", nvme_get16(d + ID_CNTLID));
	if ((sgls & NVME_SGLS_KEYED) == 0 || (sgls & NVME_SGLS_OFFSET) == 0 ||
		ioccsz < NVME_SQE_LEN || nvme_get16(d + ID_ICDOFF) != 0 ||
		nvme_get32(d + ID_IORCSZ) * 16 != NVME_CQE_LEN)
		nh_die("not as RDMA wants it: SGLS %#x, capsules of %u bytes", sgls, ioccsz);
	/* this program's capsule length, which the target does not know */
	h->in_capsule = ioccsz - NVME_SQE_LEN;
	h->max_data = mdts == 0 || mdts > 8 ? 1u << 20 : NVME_PAGE << mdts;
	printf("%.40s: commands of %u bytes, %u of them in the capsule\n", d + ID_MN, h->max_data,
		h->in_capsule);
	nh_cmd_put(cmd);
}

static void
identify_ns(struct nh *h, uint32_t nsid)
{
	struct nh_cmd *cmd = identify(h, NVME_CNS_NS, nsid);
	uint32_t format = cmd->data[NS_FLBAS] & 15u;
	struct nh_ns *ns = &h->ns[h->nns++];

	ns->nsid = nsid;
	ns->blocks = nvme_get64(cmd->data + NS_NSZE);
	ns->shift = cmd->data[NS_LBADS + 4 * format];
	if (ns->blocks == 0 || ns->shift < 9 || ns->shift > 12)
		nh_die("namespace %u: %llu blocks of 2^%u bytes", nsid,
			(unsigned long long)ns->blocks, ns->shift);
	printf("namespace %u: %llu blocks of %u bytes\n", nsid, (unsigned long long)ns->blocks,
		1u << ns->shift);
	nh_cmd_put(cmd);
}

void
nh_ctrl_namespaces(struct nh *h)
{
	struct nh_cmd *cmd = identify(h, NVME_CNS_ACTIVE, 0);
	uint32_t i, nsid;

	for (i = 0; i < LIST_ENTRIES && (nsid = nvme_get32(cmd->data + 4 * i)) != 0; i++) {
		if (i == NH_MAX_NS)
			nh_die("more than %u namespaces", NH_MAX_NS);
		identify_ns(h, nsid);
	}
	nh_cmd_put(cmd);
}

struct nh_cmd *
nh_ctrl_log(struct nh *h, enum nvme_log page, uint64_t offset, uint32_t len)
{
	struct nh_cmd *cmd = nh_cmd_get(h->queue[0], NVME_ADMIN_GET_LOG, 0);

	if (page != NVME_LOG_DISCOVERY)
		nvme_put32(cmd->capsule + SQE_NSID, NVME_NSID_ALL);
	nvme_put32(cmd->capsule + SQE_CDW10, page | (len / 4 - 1) << 16);
	nvme_put64(cmd->capsule + SQE_CDW12, offset);
	nh_cmd_data(cmd, NH_FROM_TARGET, len, false);
	if (nh_run(cmd) != NVME_OK)
		nh_die("Get Log Page %#x: status %#x", page, cmd->status);
	return cmd;
}

void
nh_ctrl_discovery(struct nh *h)
{
	struct nh_cmd *cmd = nh_ctrl_log(h, NVME_LOG_DISCOVERY, 0, 16);
	uint64_t generation = nvme_get64(cmd->data + DISC_GENERATION);
	uint64_t n = nvme_get64(cmd->data + DISC_COUNT), i;
	const uint8_t *d;

	nh_cmd_put(cmd);
	if (n > DISC_MAX)
		nh_die("%llu entries of the discovery log", (unsigned long long)n);
	cmd = nh_ctrl_log(h, NVME_LOG_DISCOVERY, 0, (uint32_t)(n + 1) * NVME_DISC_ENTRY);
	if (nvme_get64(cmd->data + DISC_GENERATION) != generation)
		nh_die("the discovery log has changed");
	for (i = 0, d = cmd->data + NVME_DISC_ENTRY; i < n; i++, d += NVME_DISC_ENTRY) {
		if (d[DISC_TRTYPE] != DISC_RDMA || d[DISC_CMS] != DISC_RDMA_CM)
			nh_die("entry %llu of the discovery log is not of RDMA",
				(unsigned long long)i);
		printf("discovered: %.*s at %.256s, port %.32s\n", SUBNQN_PRINT, d + DISC_SUBNQN,
			d + DISC_TRADDR, d + DISC_TRSVCID);
	}
	nh_cmd_put(cmd);
}

/* --- I/O queues --- */

static uint64_t
set_feature(struct nh *h, enum nvme_feature feature, uint32_t value)
{
	struct nh_cmd *cmd = nh_cmd_get(h->queue[0], NVME_ADMIN_SET_FEATURES, 0);

	cmd->capsule[SQE_CDW10] = (uint8_t)feature;
	nvme_put32(cmd->capsule + SQE_CDW11, value);
	nh_run_to(cmd, NVME_OK, "Set Features");
	return cmd->result;
}

void
nh_ctrl_io_queues(struct nh *h)
{
	const struct nh_shape shape = {
		.entries = h->opt.entries, .in_capsule = h->in_capsule, .max_data = h->max_data};
	uint64_t got = set_feature(h, NVME_FEAT_QUEUES, QUEUES(h->opt.queues));
	struct nh_queue *queue;
	uint16_t qid, status;
	int why;

	if ((got & 0xffff) + 1 < h->opt.queues || (got >> 16 & 0xffff) + 1 < h->opt.queues)
		nh_die("the target has not so many queues: %#llx", (unsigned long long)got);
	for (qid = 1; qid <= h->opt.queues; qid++) {
		queue = nh_queue_open(h, qid, &shape, &why);
		if (queue == NULL)
			nh_die("the target rejects queue %u, status %d", qid, why);
		status = connect_cmd(queue, h->opt.nqn, h->cntlid);
		if (status != NVME_OK)
			nh_die("queue %u: Connect: status %#x", qid, status);
	}
	printf("%u queues of %u entries\n", h->opt.queues, h->opt.entries);
}

/* --- time passes --- */

void
nh_ctrl_keep_alive(struct nh *h, uint32_t seconds)
{
	uint64_t left_us = seconds * UINT64_C(1000000);
	uint32_t pause_us = h->opt.kato_ms * 1000 / 4;

	if (pause_us == 0)
		nh_die("Connect says that nothing is to be kept alive");
	for (; left_us >= pause_us; left_us -= pause_us) {
		usleep(pause_us);
		nh_run_to(nh_cmd_get(h->queue[0], NVME_ADMIN_KEEP_ALIVE, 0), NVME_OK, "Keep Alive");
	}
	printf("alive for %u s\n", seconds);
}

static bool
any_connected(const struct nh *h)
{
	uint32_t i;

	for (i = 0; i <= NH_MAX_QUEUES; i++)
		if (h->queue[i] != NULL && !h->queue[i]->gone)
			return true;
	return false;
}

static void
close_all(struct nh *h)
{
	uint32_t i;

	for (i = 0; i <= NH_MAX_QUEUES; i++)
		if (h->queue[i] != NULL)
			nh_queue_close(h->queue[i]);
}

void
nh_ctrl_silence(struct nh *h)
{
	h->may_end = true;
	while (any_connected(h))
		nh_wait(h);
	close_all(h);
	printf("the target has ended all connections\n");
}

void
nh_ctrl_event(struct nh *h)
{
	struct nh_cmd *event = nh_cmd_get(h->queue[0], NVME_ADMIN_ASYNC_EVENT, 0), *log;
	uint32_t i, nsid;

	set_feature(h, NVME_FEAT_ASYNC_EVENT, NVME_AEN_NS_ATTRIBUTE);
	nh_cmd_post(event);
	printf("an event is waited for\n");
	fflush(stdout);
	nh_run_to(event, NVME_OK, "Asynchronous Event Request");
	if ((uint32_t)event->result != NVME_AER_NS_CHANGED)
		nh_die("the event is %#x", (uint32_t)event->result);
	log = nh_ctrl_log(h, NVME_LOG_CHANGED_NS, 0, NVME_IDENTIFY_LEN);
	for (i = 0; i < LIST_ENTRIES && (nsid = nvme_get32(log->data + 4 * i)) != 0; i++)
		printf("namespace %u has changed\n", nsid);
	nh_cmd_put(log);
}

void
nh_ctrl_off(struct nh *h)
{
	uint32_t i;

	for (i = 1; i <= NH_MAX_QUEUES; i++)
		if (h->queue[i] != NULL)
			nh_queue_close(h->queue[i]);
	set_cc(h, (uint32_t)property(h, NVME_PROP_CC, false) | NVME_CC_SHN_NORMAL);
	wait_csts(h, NVME_CSTS_SHST, NVME_CSTS_SHST_DONE);
	nh_queue_close(h->queue[0]);
	h->nns = 0;
}
