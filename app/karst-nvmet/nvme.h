/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Numbers of NVM Express 1.4, of NVMe over Fabrics 1.1 and of its RDMA transport: opcodes, status
 * codes, and offsets of fields.  All fields are little-endian; the accessors below read and write
 * them at any alignment.
 */
#ifndef NVME_H
#define NVME_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define NVME_SQE_LEN      64u
#define NVME_CQE_LEN      16u
#define NVME_NQN_LEN      223u /* without the terminating NUL */
#define NVME_NQN_FIELD    256u
#define NVME_PAGE         4096u
#define NVME_NSID_ALL     0xffffffffu
#define NVME_CNTLID_ANY   0xffffu
#define NVME_AQ_ENTRIES   32u
#define NVME_VERSION      0x00010400u
#define NVME_DISCOVERY    "nqn.2014-08.org.nvmexpress.discovery"
#define NVME_HOSTID_LEN   16u
#define NVME_CONNECT_LEN  1024u
#define NVME_DISC_ENTRY   1024u
#define NVME_DSM_RANGE    16u
#define NVME_IDENTIFY_LEN 4096u

/* Offsets of the fields of a command. */
enum nvme_sqe_byte {
	SQE_OPCODE = 0,
	SQE_FLAGS = 1,
	SQE_CID = 2,
	SQE_NSID = 4,
	SQE_FCTYPE = 4,
	SQE_SGL = 24,
	SQE_CDW10 = 40,
	SQE_CDW11 = 44,
	SQE_CDW12 = 48,
	SQE_CDW13 = 52,
	SQE_CDW14 = 56,
	/* Connect */
	SQE_RECFMT = 40,
	SQE_QID = 42,
	SQE_SQSIZE = 44,
	SQE_CATTR = 46,
	SQE_KATO = 48,
	/* Property Get, Property Set */
	SQE_PROP_ATTRIB = 40,
	SQE_PROP_OFFSET = 44,
	SQE_PROP_VALUE = 48,
};

/* Offsets of the fields of a completion. */
enum nvme_cqe_byte {
	CQE_RESULT = 0,
	CQE_SQHD = 8,
	CQE_CID = 12,
	CQE_STATUS = 14, /* shifted left by one */
};

/* Offsets of the fields of the data of Connect. */
enum nvme_connect_byte {
	CONNECT_HOSTID = 0,
	CONNECT_CNTLID = 16,
	CONNECT_SUBNQN = 256,
	CONNECT_HOSTNQN = 512,
};

#define NVME_FLAGS_FUSE       0x03u
#define NVME_FLAGS_PSDT       0xc0u
#define NVME_FLAGS_PSDT_SGL   0x40u
#define NVME_CATTR_NO_SQ_FLOW 0x04u

/* The last byte of the descriptor: type in the upper half, subtype in the lower half. */
#define NVME_SGL_DATA_OFFSET 0x01u
#define NVME_SGL_KEYED       0x40u
#define NVME_SGL_KEYED_INV   0x4fu

enum nvme_admin_opcode {
	NVME_ADMIN_GET_LOG = 0x02,
	NVME_ADMIN_IDENTIFY = 0x06,
	NVME_ADMIN_ABORT = 0x08,
	NVME_ADMIN_SET_FEATURES = 0x09,
	NVME_ADMIN_GET_FEATURES = 0x0a,
	NVME_ADMIN_ASYNC_EVENT = 0x0c,
	NVME_ADMIN_KEEP_ALIVE = 0x18,
	NVME_FABRICS = 0x7f,
};

enum nvme_io_opcode {
	NVME_IO_FLUSH = 0x00,
	NVME_IO_WRITE = 0x01,
	NVME_IO_READ = 0x02,
	NVME_IO_COMPARE = 0x05,
	NVME_IO_WRITE_ZEROES = 0x08,
	NVME_IO_DSM = 0x09,
};

enum nvme_fctype {
	NVME_FC_PROPERTY_SET = 0x00,
	NVME_FC_CONNECT = 0x01,
	NVME_FC_PROPERTY_GET = 0x04,
};

enum nvme_property {
	NVME_PROP_CAP = 0x00,
	NVME_PROP_VS = 0x08,
	NVME_PROP_CC = 0x14,
	NVME_PROP_CSTS = 0x1c,
};

#define NVME_PROP_8BYTES 1u /* in SQE_PROP_ATTRIB */

#define NVME_CC_EN          0x00000001u
#define NVME_CC_CSS         0x00000070u
#define NVME_CC_MPS         0x00000780u
#define NVME_CC_AMS         0x00003800u
#define NVME_CC_SHN         0x0000c000u
#define NVME_CC_SHN_NORMAL  0x00004000u
#define NVME_CC_IOSQES(cc)  ((cc) >> 16 & 15)
#define NVME_CC_IOCQES(cc)  ((cc) >> 20 & 15)
#define NVME_CSTS_RDY       0x1u
#define NVME_CSTS_CFS       0x2u
#define NVME_CSTS_SHST      0xcu
#define NVME_CSTS_SHST_DONE 0x8u
#define NVME_IO_SQE_SHIFT   6u
#define NVME_IO_CQE_SHIFT   4u

enum nvme_feature {
	NVME_FEAT_ARBITRATION = 0x01,
	NVME_FEAT_POWER = 0x02,
	NVME_FEAT_TEMPERATURE = 0x04,
	NVME_FEAT_ERROR_RECOVERY = 0x05,
	NVME_FEAT_WRITE_CACHE = 0x06,
	NVME_FEAT_QUEUES = 0x07,
	NVME_FEAT_WRITE_ATOMICITY = 0x0a,
	NVME_FEAT_ASYNC_EVENT = 0x0b,
	NVME_FEAT_KATO = 0x0f,
	NVME_FEAT_HOST_ID = 0x81,
};

enum nvme_log {
	NVME_LOG_ERROR = 0x01,
	NVME_LOG_SMART = 0x02,
	NVME_LOG_FIRMWARE = 0x03,
	NVME_LOG_CHANGED_NS = 0x04,
	NVME_LOG_EFFECTS = 0x05,
	NVME_LOG_DISCOVERY = 0x70,
};

enum nvme_cns {
	NVME_CNS_NS = 0x00,
	NVME_CNS_CTRL = 0x01,
	NVME_CNS_ACTIVE = 0x02,
	NVME_CNS_DESCRIPTORS = 0x03,
};

/* Offsets of the fields in the data of Identify for a controller. */
enum nvme_id_ctrl_byte {
	ID_SN = 4,
	ID_MN = 24,
	ID_FR = 64,
	ID_MDTS = 77,
	ID_CNTLID = 78,
	ID_VER = 80,
	ID_OAES = 92,
	ID_CTRATT = 96,
	ID_CNTRLTYPE = 111,
	ID_AERL = 259,
	ID_FRMW = 260,
	ID_LPA = 261,
	ID_ELPE = 262,
	ID_WCTEMP = 266,
	ID_CCTEMP = 268,
	ID_KAS = 320,
	ID_SQES = 512,
	ID_CQES = 513,
	ID_MAXCMD = 514,
	ID_NN = 516,
	ID_ONCS = 520,
	ID_VWC = 525,
	ID_SGLS = 536,
	ID_SUBNQN = 768,
	ID_IOCCSZ = 1792,
	ID_IORCSZ = 1796,
	ID_ICDOFF = 1800,
	ID_MSDBD = 1803,
};

#define NVME_SGLS_ALLOWED 0x000001u
#define NVME_SGLS_KEYED   0x000004u
#define NVME_SGLS_OFFSET  0x100000u

/* The same for a namespace. */
enum nvme_id_ns_byte {
	NS_NSZE = 0,
	NS_NCAP = 8,
	NS_NUSE = 16,
	NS_NSFEAT = 24,
	NS_FLBAS = 26,
	NS_NMIC = 30,
	NS_DLFEAT = 33,
	NS_NSATTR = 99,
	NS_LBADS = 130, /* of the first format */
};

/* The same for an entry of the discovery log; the first entry follows a header of the same
 * length. */
enum nvme_disc_byte {
	DISC_TRTYPE = 0,
	DISC_ADRFAM = 1,
	DISC_SUBTYPE = 2,
	DISC_TREQ = 3,
	DISC_PORTID = 4,
	DISC_CNTLID = 6,
	DISC_ASQSZ = 8,
	DISC_TRSVCID = 32,
	DISC_SUBNQN = 256,
	DISC_TRADDR = 512,
	DISC_QPTYPE = 768,
	DISC_PRTYPE = 769,
	DISC_CMS = 770,
};

#define DISC_RDMA    1
#define DISC_RDMA_CM 1

/* The same for that header. */
enum nvme_disc_head_byte {
	DISC_GENERATION = 0,
	DISC_COUNT = 8,
};

/* Code and, from bit 8 on, type.  NVME_MORE: the error log has more information; NVME_DNR: a retry
 * would fail as well. */
enum nvme_status {
	NVME_OK = 0x000,
	NVME_INVALID_OPCODE = 0x001,
	NVME_INVALID_FIELD = 0x002,
	NVME_INTERNAL = 0x006,
	NVME_INVALID_NS = 0x00b,
	NVME_SEQUENCE = 0x00c,
	NVME_SGL_LENGTH = 0x00f,
	NVME_SGL_TYPE = 0x011,
	NVME_SGL_OFFSET = 0x016,
	NVME_WRITE_PROTECTED = 0x020,
	NVME_LBA_RANGE = 0x080,
	NVME_CAPACITY = 0x081,
	NVME_AER_LIMIT = 0x105,
	NVME_INVALID_LOG = 0x109,
	NVME_NOT_SAVEABLE = 0x10d,
	NVME_NOT_CHANGEABLE = 0x10e,
	NVME_CONNECT_FORMAT = 0x180,
	NVME_CONNECT_BUSY = 0x181,
	NVME_CONNECT_PARAM = 0x182,
	NVME_CONNECT_HOST = 0x184,
	NVME_WRITE_FAULT = 0x280,
	NVME_READ_ERROR = 0x281,
	NVME_COMPARE_FAILURE = 0x285,
	NVME_MORE = 0x2000,
	NVME_DNR = 0x4000,
};

#define NVME_AEN_NS_ATTRIBUTE 0x00000100u
#define NVME_AER_NS_CHANGED   0x00040002u /* a notice; namespace attributes; log page 4 */

/* Private data of the RDMA transport's REQ, REP and REJ. */
#define NVME_RDMA_PRIV_LEN 32u
#define NVME_RDMA_REJ_LEN  4u
enum nvme_rdma_byte {
	RDMA_REQ_RECFMT = 0,
	RDMA_REQ_QID = 2,
	RDMA_REQ_HRQSIZE = 4,
	RDMA_REQ_HSQSIZE = 6,
	RDMA_REP_CRQSIZE = 2,
	RDMA_REJ_STATUS = 2,
};

enum nvme_rdma_reject {
	NVME_RDMA_ACCEPT = 0,
	NVME_RDMA_INVALID_LEN = 1,
	NVME_RDMA_INVALID_RECFMT = 2,
	NVME_RDMA_INVALID_QID = 3,
	NVME_RDMA_INVALID_HSQSIZE = 4,
	NVME_RDMA_INVALID_HRQSIZE = 5,
	NVME_RDMA_NO_RESOURCES = 6,
};

static inline uint16_t
nvme_get16(const void *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

static inline uint32_t
nvme_get32(const void *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static inline uint64_t
nvme_get64(const void *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

static inline void
nvme_put16(void *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof(v));
}

static inline void
nvme_put32(void *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static inline void
nvme_put64(void *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

#endif
