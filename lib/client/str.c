/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Names of numbers, for messages. */
#include "karst.h"

const char *
karst_wc_status_str(enum karst_wc_status status)
{
	switch (status) {
	case KARST_WC_SUCCESS:
		return "success";
	case KARST_WC_LOC_LEN_ERR:
		return "local length error";
	case KARST_WC_LOC_QP_OP_ERR:
		return "local QP operation error";
	case KARST_WC_LOC_PROT_ERR:
		return "local protection error";
	case KARST_WC_WR_FLUSH_ERR:
		return "work request flushed";
	case KARST_WC_MW_BIND_ERR:
		return "memory window bind error";
	case KARST_WC_BAD_RESP_ERR:
		return "bad response";
	case KARST_WC_LOC_ACCESS_ERR:
		return "local access error";
	case KARST_WC_REM_INV_REQ_ERR:
		return "remote invalid request";
	case KARST_WC_REM_ACCESS_ERR:
		return "remote access error";
	case KARST_WC_REM_OP_ERR:
		return "remote operation error";
	case KARST_WC_RETRY_EXC_ERR:
		return "transport retries exceeded";
	case KARST_WC_RNR_RETRY_EXC_ERR:
		return "receiver-not-ready retries exceeded";
	case KARST_WC_FATAL_ERR:
		return "fatal error";
	case KARST_WC_GENERAL_ERR:
		return "general error";
	}
	return "unknown";
}

const char *
karst_wr_opcode_str(enum karst_wr_opcode opcode)
{
	switch (opcode) {
	case KARST_WR_RDMA_WRITE:
		return "RDMA WRITE";
	case KARST_WR_RDMA_WRITE_WITH_IMM:
		return "RDMA WRITE with immediate";
	case KARST_WR_SEND:
		return "SEND";
	case KARST_WR_SEND_WITH_IMM:
		return "SEND with immediate";
	case KARST_WR_RDMA_READ:
		return "RDMA READ";
	case KARST_WR_ATOMIC_CAS:
		return "compare and swap";
	case KARST_WR_ATOMIC_FAA:
		return "fetch and add";
	case KARST_WR_LOCAL_INV:
		return "local invalidate";
	case KARST_WR_BIND_MW:
		return "bind memory window";
	case KARST_WR_SEND_WITH_INV:
		return "SEND with invalidate";
	case KARST_WR_FLUSH:
		return "FLUSH";
	case KARST_WR_ATOMIC_WRITE:
		return "ATOMIC WRITE";
	case KARST_WR_MAX:
		break;
	}
	return "unknown";
}

const char *
karst_event_str(enum karst_async_event_code event)
{
	switch (event) {
	case KARST_EVENT_CQ_ERR:
		return "completion queue error";
	case KARST_EVENT_QP_FATAL:
		return "queue pair fatal";
	case KARST_EVENT_QP_REQ_ERR:
		return "queue pair invalid request";
	case KARST_EVENT_QP_ACCESS_ERR:
		return "queue pair access error";
	case KARST_EVENT_COMM_EST:
		return "communication established";
	case KARST_EVENT_SQ_DRAINED:
		return "send queue drained";
	case KARST_EVENT_PATH_MIG:
		return "path migrated";
	case KARST_EVENT_PATH_MIG_ERR:
		return "alternate path lost";
	case KARST_EVENT_DEVICE_FATAL:
		return "engine gone";
	case KARST_EVENT_PORT_ACTIVE:
		return "port active";
	case KARST_EVENT_PORT_ERR:
		return "port down";
	case KARST_EVENT_PORT_GONE:
		return "port gone";
	case KARST_EVENT_SRQ_ERR:
		return "shared receive queue error";
	case KARST_EVENT_SRQ_LIMIT_REACHED:
		return "shared receive queue limit reached";
	case KARST_EVENT_QP_LAST_WQE_REACHED:
		return "last request of a shared receive queue reached";
	case KARST_EVENT_GID_CHANGE:
		return "address table changed";
	}
	return "unknown";
}

const char *
karst_qp_state_str(enum karst_qp_state state)
{
	static const char *const names[] = {
		[KARST_QPS_RESET] = "RESET",
		[KARST_QPS_INIT] = "INIT",
		[KARST_QPS_RTR] = "RTR",
		[KARST_QPS_RTS] = "RTS",
		[KARST_QPS_SQD] = "SQD",
		[KARST_QPS_SQE] = "SQE",
		[KARST_QPS_ERR] = "ERR",
	};

	return (unsigned int)state < KARST_DIM(names) ? names[state] : "unknown";
}
