/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Numbers that programs, control messages and the engine share.  They are those of libibverbs, so a
 * shim above karst passes them on unchanged.  Work request opcodes, send flags and completion codes
 * are in karst_ring.h, with the layouts that contain them.
 */
#ifndef KARST_VERBS_H
#define KARST_VERBS_H

/* Access flags; the values are those of enum ibv_access_flags. */
enum karst_access {
	KARST_ACCESS_LOCAL_WRITE = 1u << 0,
	KARST_ACCESS_REMOTE_WRITE = 1u << 1,
	KARST_ACCESS_REMOTE_READ = 1u << 2,
	KARST_ACCESS_REMOTE_ATOMIC = 1u << 3,
	KARST_ACCESS_MW_BIND = 1u << 4,
	KARST_ACCESS_ZERO_BASED = 1u << 5,
	KARST_ACCESS_ON_DEMAND = 1u << 6,    /* only for libkarst: see doc/memory.rst */
	KARST_ACCESS_HUGETLB = 1u << 7,      /* accepted, no effect */
	KARST_ACCESS_FLUSH_GLOBAL = 1u << 8, /* peers may FLUSH to global visibility */
	/* refused: an engine has no persistent memory (R15) */
	KARST_ACCESS_FLUSH_PERSISTENT = 1u << 9,
	KARST_ACCESS_RELAXED_ORDERING = 1u << 20, /* accepted, no effect */
};

/* The rights that a peer may have. */
#define KARST_ACCESS_REMOTE                                                                  \
	(KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_READ | KARST_ACCESS_REMOTE_ATOMIC | \
		KARST_ACCESS_FLUSH_GLOBAL)

/* Placement types of a FLUSH: where it brings earlier writes; one of them, or both.  The values are
 * those of enum ibv_placement_type, and of the FETH (W3). */
enum karst_flush_type {
	KARST_FLUSH_GLOBAL = 1u << 0,     /* every program of the peer's host sees the data */
	KARST_FLUSH_PERSISTENT = 1u << 1, /* the data survives a loss of power */
};
#define KARST_FLUSH_TYPES (KARST_FLUSH_GLOBAL | KARST_FLUSH_PERSISTENT)

/* Selectivity levels of a FLUSH; the values are those of enum ibv_selectivity_level, and of the
 * FETH. */
enum karst_flush_level {
	KARST_FLUSH_RANGE = 0,
	KARST_FLUSH_MR = 1, /* the whole region or window of the key */
	KARST_FLUSH_LEVELS
};

/* What a re-registration changes; the values are those of enum ibv_rereg_mr_flags. */
enum karst_rereg {
	KARST_REREG_TRANSLATION = 1u << 0,
	KARST_REREG_PD = 1u << 1,
	KARST_REREG_ACCESS = 1u << 2,
};

/* The types of object that a key names. */
enum karst_mem_type {
	KARST_MEM_FREE,
	KARST_MEM_MR,
	KARST_MEM_MW1, /* type 1 window: bound by a bind verb, belongs to the PD */
	/* type 2 window (2B): bound and invalidated by work requests, belongs to a QP */
	KARST_MEM_MW2,
};

/* The values are those of enum ibv_qp_type. */
enum karst_qp_type {
	KARST_QPT_RC = 2,
	KARST_QPT_UC = 3,
	KARST_QPT_UD = 4,
	KARST_QPT_XRC_SEND = 9,  /* initiator: a requester without a receive side */
	KARST_QPT_XRC_RECV = 10, /* target: a responder whose receives are in SRQs of its domain */
};

/* The values are those of enum ibv_srq_type. */
enum karst_srq_type {
	KARST_SRQT_BASIC = 0, /* used by queue pairs that were created with it */
	KARST_SRQT_XRC = 1,   /* used by every target of its domain; requests carry its number */
};

/* The values are those of enum ibv_qp_state. */
enum karst_qp_state {
	KARST_QPS_RESET = 0,
	KARST_QPS_INIT = 1,
	KARST_QPS_RTR = 2,
	KARST_QPS_RTS = 3,
	KARST_QPS_SQD = 4,
	KARST_QPS_SQE = 5,
	KARST_QPS_ERR = 6,
};

/* Attributes of a queue pair; the values are those of enum ibv_qp_attr_mask. */
enum karst_qp_attr_mask {
	KARST_QP_STATE = 1u << 0,
	KARST_QP_CUR_STATE = 1u << 1,
	KARST_QP_EN_SQD_ASYNC_NOTIFY = 1u << 2,
	KARST_QP_ACCESS_FLAGS = 1u << 3,
	KARST_QP_PKEY_INDEX = 1u << 4,
	KARST_QP_PORT = 1u << 5,
	KARST_QP_QKEY = 1u << 6,
	KARST_QP_AV = 1u << 7,
	KARST_QP_PATH_MTU = 1u << 8,
	KARST_QP_TIMEOUT = 1u << 9,
	KARST_QP_RETRY_CNT = 1u << 10,
	KARST_QP_RNR_RETRY = 1u << 11,
	KARST_QP_RQ_PSN = 1u << 12,
	KARST_QP_MAX_QP_RD_ATOMIC = 1u << 13,
	KARST_QP_ALT_PATH = 1u << 14,
	KARST_QP_MIN_RNR_TIMER = 1u << 15,
	KARST_QP_SQ_PSN = 1u << 16,
	KARST_QP_MAX_DEST_RD_ATOMIC = 1u << 17,
	KARST_QP_PATH_MIG_STATE = 1u << 18,
	KARST_QP_CAP = 1u << 19, /* refused: no resizing */
	KARST_QP_DEST_QPN = 1u << 20,
	KARST_QP_REPEAT = 1u << 30, /* not in verbs: selective repeat (X1) */
};

/* States of path migration; the values are those of enum ibv_mig_state. */
enum karst_mig_state {
	KARST_MIG_MIGRATED = 0, /* stays on the primary path */
	KARST_MIG_REARM = 1,    /* becomes ARMED as soon as the peer is ready for it */
	KARST_MIG_ARMED = 2,    /* migrates to the alternate path if necessary */
};

/* How long an engine may take to acknowledge, 4.096 us * 2^this (134 ms): it may share its
 * processor.  In REPs and in local_ca_ack_delay. */
#define KARST_CA_ACK_DELAY 15u

/* Limits of struct karst_qp_rate_limit_attr. */
#define KARST_RATE_LIMIT_MIN 1u          /* kbit/s */
#define KARST_RATE_LIMIT_MAX 400000000u  /* kbit/s */
#define KARST_RATE_BURST_MAX (16u << 20) /* bytes */

/* Asynchronous events; the values are those of enum ibv_event_type, except the last. */
enum karst_async_event_code {
	KARST_EVENT_CQ_ERR = 0,
	KARST_EVENT_QP_FATAL = 1,
	KARST_EVENT_QP_REQ_ERR = 2,
	KARST_EVENT_QP_ACCESS_ERR = 3,
	KARST_EVENT_COMM_EST = 4,
	KARST_EVENT_SQ_DRAINED = 5,
	KARST_EVENT_PATH_MIG = 6,     /* the alternate path is the primary one from now on */
	KARST_EVENT_PATH_MIG_ERR = 7, /* the alternate path was lost */
	KARST_EVENT_DEVICE_FATAL = 8, /* the engine is gone */
	KARST_EVENT_PORT_ACTIVE = 9,
	KARST_EVENT_PORT_ERR = 10,
	KARST_EVENT_SRQ_ERR = 14,
	KARST_EVENT_SRQ_LIMIT_REACHED = 15,
	KARST_EVENT_QP_LAST_WQE_REACHED = 16,
	KARST_EVENT_GID_CHANGE = 18,
	/* the port's device was removed, and its queue pairs are in Error; with verbs, where a port
	 * is a device of its own, this is IBV_EVENT_DEVICE_FATAL */
	KARST_EVENT_PORT_GONE = 64,
};

/* --- connection management --- */

/** The values are those of enum rdma_port_space, which has none for an InfiniBand address. */
enum karst_rdmacm_port_space {
	KARST_RDMACM_PS_TCP = 0x0106,
	KARST_RDMACM_PS_UDP = 0x0111,
};

/** The values are those of enum rdma_cm_event_type. */
enum karst_rdmacm_event_type {
	KARST_RDMACM_ADDR_RESOLVED = 0,
	KARST_RDMACM_ADDR_ERROR = 1,
	KARST_RDMACM_ROUTE_RESOLVED = 2,
	KARST_RDMACM_ROUTE_ERROR = 3,
	KARST_RDMACM_CONNECT_REQUEST = 4,
	KARST_RDMACM_CONNECT_RESPONSE = 5,
	KARST_RDMACM_CONNECT_ERROR = 6,
	KARST_RDMACM_UNREACHABLE = 7,
	KARST_RDMACM_REJECTED = 8,
	KARST_RDMACM_ESTABLISHED = 9,
	KARST_RDMACM_DISCONNECTED = 10,
	KARST_RDMACM_DEVICE_REMOVAL = 11,
	KARST_RDMACM_MULTICAST_JOIN = 12,
	KARST_RDMACM_MULTICAST_ERROR = 13,
	KARST_RDMACM_ADDR_CHANGE = 14,
	KARST_RDMACM_TIMEWAIT_EXIT = 15,
};

#endif /* KARST_VERBS_H */
