/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The form of control messages, from the table of operations in karst_ctl.h.  A new operation needs
 * only its line in that table, and its reserved members in the list below.
 */
#include "karst_ctl_msg.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define HDR sizeof(struct karst_ctl_hdr)

#define HAS_FD(number)     ((number) == KARST_CTL_HELLO || (number) == KARST_CTL_OPEN_XRCD)
#define HAS_PIECES(number) ((number) == KARST_CTL_REG_MR || (number) == KARST_CTL_REREG_MR)

#define X(OP, body, number)                                         \
	[number] = {                                                \
		.name = #OP,                                        \
		.req_bytes = sizeof(struct karst_ctl_##body##_req), \
		.rsp_bytes = sizeof(struct karst_ctl_##body##_rsp), \
		.max_fds = HAS_PIECES(number) ? KARST_CTL_MAX_FDS   \
			: HAS_FD(number)      ? 1                   \
					      : 0,                       \
		.pieces = HAS_PIECES(number),                       \
	},
static const struct karst_ctl_op_info ops[] = {KARST_CTL_OPS(X)};
#undef X

#define X(OP, body, number)                                                               \
	static_assert(HDR + sizeof(struct karst_ctl_##body##_req) +                       \
				KARST_CTL_MAX_PIECES * sizeof(struct karst_ctl_piece) <=  \
			KARST_CTL_MAX,                                                    \
		"a request fits");                                                        \
	static_assert(HDR + sizeof(struct karst_ctl_##body##_rsp) <= KARST_CTL_REPLY_MAX, \
		"a reply fits");
KARST_CTL_OPS(X)
#undef X

/* Members of requests that must be 0. */
#define RESERVED(X)                                         \
	X(QUERY_DEVICE, query_device, reserved)             \
	X(QUERY_PORT, query_port, reserved)                 \
	X(GET_CHUNK, get_chunk, reserved)                   \
	X(SEAL_CHUNK, seal_chunk, reserved)                 \
	X(ALLOC_PD, alloc_pd, reserved)                     \
	X(FREE_PD, free_pd, reserved)                       \
	X(REG_MR, reg_mr, reserved)                         \
	X(REREG_MR, rereg_mr, reserved)                     \
	X(DEREG_MR, dereg_mr, reserved)                     \
	X(FREE_MW, free_mw, reserved)                       \
	X(CREATE_AH, create_ah, attr.reserved)              \
	X(DESTROY_AH, destroy_ah, reserved)                 \
	X(OPEN_XRCD, open_xrcd, reserved)                   \
	X(CLOSE_XRCD, close_xrcd, reserved)                 \
	X(CREATE_CHANNEL, create_channel, reserved)         \
	X(DESTROY_CHANNEL, destroy_channel, reserved)       \
	X(DESTROY_CQ, destroy_cq, reserved)                 \
	X(SWITCH_CQ, switch_cq, reserved)                   \
	X(RAISE_CQ, raise_cq, reserved)                     \
	X(CREATE_SRQ, create_srq, reserved)                 \
	X(QUERY_SRQ, query_srq, reserved)                   \
	X(DESTROY_SRQ, destroy_srq, reserved)               \
	X(MODIFY_QP, modify_qp, attr.ah.reserved)           \
	X(MODIFY_QP, modify_qp, attr.alt_ah.reserved)       \
	X(QUERY_QP, query_qp, reserved)                     \
	X(RATE_QP, rate_qp, reserved)                       \
	X(QUERY_ECE, query_ece, reserved)                   \
	X(SET_ECE, set_ece, reserved)                       \
	X(DESTROY_QP, destroy_qp, reserved)                 \
	X(ATTACH_MCAST, attach_mcast, reserved)             \
	X(DETACH_MCAST, detach_mcast, reserved)             \
	X(CM_CREATE_CHANNEL, cm_create_channel, reserved)   \
	X(CM_DESTROY_CHANNEL, cm_destroy_channel, reserved) \
	X(CM_GET_EVENT, cm_get_event, reserved)             \
	X(CM_CREATE_ID, cm_create_id, reserved)             \
	X(CM_DESTROY_ID, cm_destroy_id, reserved)           \
	X(CM_BIND, cm_bind, reserved)                       \
	X(CM_CONNECT, cm_connect, reserved)                 \
	X(CM_CONNECT, cm_connect, param.reserved)           \
	X(CM_ACCEPT, cm_accept, param.reserved)             \
	X(CM_REJECT, cm_reject, param.reserved)             \
	X(CM_DISCONNECT, cm_disconnect, reserved)           \
	X(CM_QUERY, cm_query, reserved)                     \
	X(CM_SET_OPTION, cm_set_option, reserved)           \
	X(CM_JOIN_MCAST, cm_join_mcast, reserved)           \
	X(CM_LEAVE_MCAST, cm_leave_mcast, reserved)

static const struct {
	uint16_t op;
	uint16_t off;
	uint16_t len;
	const char *name;
} reserved[] = {
#define X(NAME, op_name, member)                                               \
	{KARST_CTL_##NAME, offsetof(struct karst_ctl_##op_name##_req, member), \
		sizeof(((struct karst_ctl_##op_name##_req *)0)->member), #member},
	RESERVED(X)
#undef X
};

const struct karst_ctl_op_info *
karst_ctl_op_info(uint32_t op)
{
	return op < KARST_DIM(ops) && ops[op].name != NULL ? &ops[op] : NULL;
}

int
karst_ctl_reason(char *why, int ret, const char *fmt, ...)
{
	va_list ap;

	if (why == NULL)
		return ret;
	va_start(ap, fmt);
	vsnprintf(why, KARST_CTL_WHY, fmt, ap);
	va_end(ap);
	return ret;
}

/* --- checks --- */

static bool
msg_all_zero(const void *p, size_t n)
{
	const uint8_t *b = p;

	while (n > 0 && b[n - 1] == 0)
		n--;
	return n == 0;
}

/* Checks that requests and replies have in common. */
static int
msg_check_header(const struct karst_ctl_hdr *h, size_t len, unsigned int nfds, char *why)
{
	if (len < HDR)
		return karst_ctl_reason(why, -EPROTO,
			"message of %zu bytes is shorter than a header, %zu bytes", len, HDR);
	if (h->magic != KARST_CTL_MAGIC)
		return karst_ctl_reason(
			why, -EPROTO, "magic 0x%08x: not a control message of karst", h->magic);
	if (h->version != KARST_CTL_VERSION)
		return karst_ctl_reason(
			why, -EPROTO, "version %u, must be %u", h->version, KARST_CTL_VERSION);
	if (h->len != len)
		return karst_ctl_reason(
			why, -EPROTO, "len %u, but the message has %zu bytes", h->len, len);
	if (h->nfds != nfds)
		return karst_ctl_reason(
			why, -EPROTO, "nfds %u, but %u descriptors came", h->nfds, nfds);
	return 0;
}

/* Checks that a body has at least @known bytes, and that all further ones are 0. */
static int
msg_check_body(const char *name, const uint8_t *body, size_t have, size_t known, char *why)
{
	if (have < known)
		return karst_ctl_reason(why, -EPROTO, "%s: body of %zu bytes, must be at least %zu",
			name, have, known);
	if (!msg_all_zero(body + known, have - known))
		return karst_ctl_reason(why, -EPROTO,
			"%s: bytes of the body behind the first %zu are not 0", name, known);
	return 0;
}

static int
msg_check_reserved(uint32_t op, const uint8_t *body, char *why)
{
	size_t i;

	for (i = 0; i < KARST_DIM(reserved); i++)
		if (reserved[i].op == op && !msg_all_zero(body + reserved[i].off, reserved[i].len))
			return karst_ctl_reason(
				why, -EPROTO, "%s: %s is not 0", ops[op].name, reserved[i].name);
	return 0;
}

/* Returns the pieces of a request, and the number of pieces that it states. */
static const struct karst_ctl_piece *
pieces_of(uint32_t op, const void *body, uint32_t *n)
{
	const struct karst_ctl_rereg_mr_req *rereg = body;
	const struct karst_ctl_reg_mr_req *reg = body;

	*n = op == KARST_CTL_REG_MR ? reg->npieces : rereg->npieces;
	return op == KARST_CTL_REG_MR ? reg->piece : rereg->piece;
}

static int
msg_check_pieces(uint32_t op, const void *body, size_t have, char *why)
{
	const struct karst_ctl_piece *piece;
	uint32_t i, n;
	int ret;

	piece = pieces_of(op, body, &n);
	if (n > KARST_CTL_MAX_PIECES)
		return karst_ctl_reason(why, -EPROTO, "%s: npieces %u exceeds %u", ops[op].name, n,
			KARST_CTL_MAX_PIECES);
	ret = msg_check_body(ops[op].name, body, have, ops[op].req_bytes + n * sizeof(*piece), why);
	for (i = 0; ret == 0 && i < n; i++)
		if (piece[i].reserved != 0)
			ret = karst_ctl_reason(
				why, -EPROTO, "%s: piece[%u].reserved is not 0", ops[op].name, i);
	return ret;
}

int
karst_ctl_check_request(const void *msg, size_t len, unsigned int nfds, char *why)
{
	const struct karst_ctl_op_info *info;
	const struct karst_ctl_hdr *h = msg;
	const uint8_t *body = (const uint8_t *)msg + HDR;
	int ret = msg_check_header(h, len, nfds, why);

	if (ret != 0)
		return ret;
	info = karst_ctl_op_info(h->op);
	if (info == NULL)
		return karst_ctl_reason(why, -EOPNOTSUPP, "operation %u is unknown", h->op);
	if (h->status != 0)
		return karst_ctl_reason(why, -EPROTO, "%s: status %d in a request, must be 0",
			info->name, h->status);
	if (nfds > info->max_fds)
		return karst_ctl_reason(
			why, -EPROTO, "%s: nfds %u exceeds %u", info->name, nfds, info->max_fds);
	if (!info->pieces || len - HDR < info->req_bytes)
		ret = msg_check_body(info->name, body, len - HDR, info->req_bytes, why);
	else
		ret = msg_check_pieces(h->op, body, len - HDR, why);
	if (ret == 0)
		ret = msg_check_reserved(h->op, body, why);
	return ret;
}

int
karst_ctl_check_reply(
	const struct karst_ctl_hdr *req, const void *msg, size_t len, unsigned int nfds, char *why)
{
	const struct karst_ctl_fault *fault = (const void *)((const uint8_t *)msg + HDR);
	const struct karst_ctl_op_info *info = karst_ctl_op_info(req->op);
	const struct karst_ctl_hdr *h = msg;
	int ret = msg_check_header(h, len, nfds, why);

	if (ret != 0)
		return ret;
	if (h->op != req->op || h->seq != req->seq)
		return karst_ctl_reason(why, -EPROTO,
			"reply to operation %u, seq %u; the request was operation %u, seq %u",
			h->op, h->seq, req->op, req->seq);
	if (h->status > 0)
		return karst_ctl_reason(
			why, -EPROTO, "status %d in a reply is positive", h->status);
	if (h->status == 0 && info != NULL)
		return len - HDR >= info->rsp_bytes
			? 0
			: karst_ctl_reason(why, -EPROTO,
				  "%s: reply of %zu bytes, must be at least %u", info->name,
				  len - HDR, info->rsp_bytes);
	if (len - HDR < sizeof(*fault) || memchr(fault->why, 0, sizeof(fault->why)) == NULL)
		return karst_ctl_reason(why, -EPROTO, "a reply with an error has no reason");
	return 0;
}

/* --- replies --- */

size_t
karst_ctl_reply(const struct karst_ctl_hdr *req, void *rsp)
{
	size_t len = HDR + ops[req->op].rsp_bytes;
	struct karst_ctl_hdr *h = rsp;

	memset(rsp, 0, len);
	h->magic = KARST_CTL_MAGIC;
	h->version = KARST_CTL_VERSION;
	h->op = req->op;
	h->len = (uint32_t)len;
	h->seq = req->seq;
	return len;
}

size_t
karst_ctl_refuse(const void *req, size_t len, int status, const char *why, void *rsp)
{
	struct karst_ctl_hdr from = {0}, *h = rsp;
	struct karst_ctl_fault *fault = (void *)(h + 1);

	memcpy(&from, req, len < HDR ? len : HDR);
	memset(rsp, 0, HDR + sizeof(*fault));
	h->magic = KARST_CTL_MAGIC;
	h->version = KARST_CTL_VERSION;
	h->op = from.op;
	h->len = HDR + sizeof(*fault);
	h->seq = from.seq;
	h->status = status;
	memcpy(fault->why, why, strnlen(why, KARST_CTL_WHY - 1));
	return h->len;
}
