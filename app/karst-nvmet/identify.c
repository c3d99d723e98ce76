/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Identify: the data about the controller and its namespaces. */
#include <stdio.h>

#include "ns.h"
#include "target_priv.h"

#define MODEL    "karst-nvmet"
#define FIRMWARE KARST_VERSION

#define SN_LEN              20
#define MN_LEN              40
#define FR_LEN              8
#define OAES_NS_ATTRIBUTE   0x100u
#define CTRATT_HOSTID_128   0x01u
#define CTRATT_TBKAS        0x40u /* every command restarts the keep-alive timer */
#define CNTRLTYPE_IO        1
#define CNTRLTYPE_DISCOVERY 2
#define FRMW_READ_ONLY      3 /* one slot */
#define LPA_EFFECTS         0x02
#define LPA_EXTENDED        0x04
#define KAS_100MS           10   /* granularity of keep-alive timeouts: whole seconds */
#define ONCS                0x0d /* Compare, Dataset Management, Write Zeroes */
#define VWC_THERE           0x07 /* Flush also works for all namespaces together */
#define WARM_K              343
#define HOT_K               353

#define NSFEAT_THIN      0x01
#define NMIC_SHARED      0x01
#define DLFEAT_ZEROES    0x01
#define NSATTR_PROTECTED 0x01

#define NIDT_UUID 3
#define NIDT_CSI  4

/* Writes text, padded with blanks and without a NUL. */
static void
put_text(uint8_t *at, const char *text, size_t len)
{
	size_t n = strlen(text);

	memset(at, ' ', len);
	memcpy(at, text, n < len ? n : len);
}

static uint8_t
log2_of(uint32_t v)
{
	return (uint8_t)(31 - __builtin_clz(v));
}

/* Derives the serial number from the name of the subsystem. */
static void
put_serial(uint8_t *at, const char *nqn)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	char text[SN_LEN + 1];

	for (; *nqn != '\0'; nqn++)
		h = (h ^ (uint8_t)*nqn) * UINT64_C(0x100000001b3);
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)h);
	put_text(at, text, SN_LEN);
}

static void
identify_ctrl(const struct nt_target *target, const struct nt_ctrl *ctrl, uint8_t *d)
{
	const struct nt_config *config = &target->config;

	put_serial(d + ID_SN, config->nqn);
	put_text(d + ID_MN, MODEL, MN_LEN);
	put_text(d + ID_FR, FIRMWARE, FR_LEN);
	d[ID_MDTS] = log2_of(config->max_transfer / NVME_PAGE);
	nvme_put16(d + ID_CNTLID, ctrl->cntlid);
	nvme_put32(d + ID_VER, NVME_VERSION);
	nvme_put32(d + ID_CTRATT, CTRATT_HOSTID_128 | CTRATT_TBKAS);
	d[ID_CNTRLTYPE] = ctrl->discovery ? CNTRLTYPE_DISCOVERY : CNTRLTYPE_IO;
	d[ID_AERL] = NT_AERS - 1;
	d[ID_LPA] = LPA_EXTENDED;
	d[ID_ELPE] = NT_ERRORS - 1;
	nvme_put16(d + ID_KAS, KAS_100MS);
	nvme_put16(d + ID_MAXCMD, (uint16_t)config->queue_size);
	nvme_put32(d + ID_SGLS, NVME_SGLS_ALLOWED | NVME_SGLS_KEYED | NVME_SGLS_OFFSET);
	snprintf((char *)d + ID_SUBNQN, NVME_NQN_FIELD, "%s",
		ctrl->discovery ? NVME_DISCOVERY : config->nqn);
	if (ctrl->discovery)
		return;
	nvme_put32(d + ID_OAES, OAES_NS_ATTRIBUTE);
	d[ID_FRMW] = FRMW_READ_ONLY;
	d[ID_LPA] |= LPA_EFFECTS;
	nvme_put16(d + ID_WCTEMP, WARM_K);
	nvme_put16(d + ID_CCTEMP, HOT_K);
	d[ID_SQES] = NVME_IO_SQE_SHIFT << 4 | NVME_IO_SQE_SHIFT;
	d[ID_CQES] = NVME_IO_CQE_SHIFT << 4 | NVME_IO_CQE_SHIFT;
	nvme_put32(d + ID_NN, NT_MAX_NS);
	nvme_put16(d + ID_ONCS, ONCS);
	d[ID_VWC] = VWC_THERE;
	nvme_put32(d + ID_IOCCSZ, (NVME_SQE_LEN + config->in_capsule) / 16);
	nvme_put32(d + ID_IORCSZ, NVME_CQE_LEN / 16);
	d[ID_MSDBD] = 1;
}

static void
identify_ns(const struct nt_ns *ns, uint8_t *d)
{
	uint64_t blocks = nt_ns_blocks(ns);

	nvme_put64(d + NS_NSZE, blocks);
	nvme_put64(d + NS_NCAP, blocks);
	nvme_put64(d + NS_NUSE, blocks);
	d[NS_NSFEAT] = NSFEAT_THIN;
	d[NS_NMIC] = NMIC_SHARED;
	d[NS_DLFEAT] = ns->punches ? DLFEAT_ZEROES : 0;
	d[NS_NSATTR] = ns->read_only ? NSATTR_PROTECTED : 0;
	d[NS_LBADS] = (uint8_t)ns->shift;
}

static void
active_list(const struct nt_target *target, uint32_t after, uint8_t *d)
{
	uint32_t i;

	for (i = 0; i < target->nns; i++) {
		if (target->ns[i]->nsid <= after)
			continue;
		nvme_put32(d, target->ns[i]->nsid);
		d += 4;
	}
}

static void
put_descriptors(const struct nt_ns *ns, uint8_t *d)
{
	d[0] = NIDT_UUID;
	d[1] = sizeof(ns->uuid);
	memcpy(d + 4, ns->uuid, sizeof(ns->uuid));
	d += 4 + sizeof(ns->uuid);
	d[0] = NIDT_CSI;
	d[1] = 1; /* 0: the NVM command set */
}

uint16_t
nt_identify(struct nt_cmd *cmd)
{
	const struct nt_target *target = cmd->queue->target;
	const struct nt_ctrl *ctrl = cmd->queue->ctrl;
	uint32_t nsid = nt_dword(cmd, SQE_NSID);
	const struct nt_ns *ns = nt_ns_of(target, nsid);
	uint8_t cns = cmd->sqe[SQE_CDW10];

	memset(cmd->data, 0, cmd->len);
	if (ctrl->discovery && cns != NVME_CNS_CTRL)
		return NT_FAIL(NVME_INVALID_FIELD);
	switch (cns) {
	case NVME_CNS_CTRL:
		identify_ctrl(target, ctrl, cmd->data);
		return NVME_OK;
	case NVME_CNS_NS:
		if (nsid == 0 || (nsid > NT_MAX_NS && nsid != NVME_NSID_ALL))
			return NT_FAIL(NVME_INVALID_NS);
		if (ns != NULL) /* a namespace that does not exist is all zeroes */
			identify_ns(ns, cmd->data);
		return nsid == NVME_NSID_ALL ? NT_FAIL(NVME_INVALID_NS) : NVME_OK;
	case NVME_CNS_ACTIVE:
		if (nsid >= NVME_NSID_ALL - 1)
			return NT_FAIL(NVME_INVALID_NS);
		active_list(target, nsid, cmd->data);
		return NVME_OK;
	case NVME_CNS_DESCRIPTORS:
		if (ns == NULL)
			return NT_FAIL(NVME_INVALID_NS);
		put_descriptors(ns, cmd->data);
		return NVME_OK;
	default:
		return NT_FAIL(NVME_INVALID_FIELD);
	}
}
