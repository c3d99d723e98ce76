/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: the form of control messages.
 *
 * The first byte of an input is the number of descriptors; the rest is a message.  It is checked as
 * a request and as the reply to a request of its own operation.  The sanitizers watch the reads, as
 * the buffer has exactly the length of the message.  A message that is accepted is read as a
 * handler would read it: whole fixed body, all pieces.  A refusal has a reason, and is itself a
 * well-formed reply.
 *
 * A mutator of its own repairs magic number, version and length half of the time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "karst_ctl_msg.h"

#define HDR sizeof(struct karst_ctl_hdr)

#define CHECK(cond) check(cond, #cond, __LINE__)

static void
check(bool ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "line %d: not so: %s\n", line, what);
	abort();
}

static uint64_t
sum(const void *p, size_t n)
{
	const uint8_t *b = p;
	uint64_t s = 0;

	while (n-- > 0)
		s += *b++;
	return s;
}

/* Reads a message that was found well formed. */
static void
read_request(const struct karst_ctl_hdr *h, size_t len, unsigned int nfds)
{
	const struct karst_ctl_op_info *info = karst_ctl_op_info(h->op);
	const uint8_t *body = (const uint8_t *)(h + 1);
	const struct karst_ctl_rereg_mr_req *rereg = (const void *)body;
	const struct karst_ctl_reg_mr_req *reg = (const void *)body;
	const struct karst_ctl_piece *piece = NULL;
	size_t known;
	uint32_t n = 0;

	CHECK(info != NULL && h->len == len && h->nfds == nfds && h->status == 0);
	CHECK(nfds <= info->max_fds);
	known = HDR + info->req_bytes;
	CHECK(len >= known);
	sum(body, info->req_bytes);
	if (h->op == KARST_CTL_REG_MR) {
		n = reg->npieces;
		piece = reg->piece;
	} else if (h->op == KARST_CTL_REREG_MR) {
		n = rereg->npieces;
		piece = rereg->piece;
	}
	CHECK(n <= KARST_CTL_MAX_PIECES);
	known += n * sizeof(*piece);
	CHECK(len >= known);
	if (piece != NULL)
		sum(piece, n * sizeof(*piece));
	CHECK(sum((const uint8_t *)h + known, len - known) == 0);
}

static void
try_request(const void *msg, size_t len, unsigned int nfds)
{
	static uint8_t rsp[KARST_CTL_MAX] karst_aligned(8);
	char why[KARST_CTL_WHY] = "";
	struct karst_ctl_hdr req = {0};
	int ret = karst_ctl_check_request(msg, len, nfds, why);
	size_t n;

	memcpy(&req, msg, len < HDR ? len : HDR);
	CHECK(ret == karst_ctl_check_request(msg, len, nfds, NULL));
	if (ret == 0) {
		read_request(msg, len, nfds);
		n = karst_ctl_reply(msg, rsp);
	} else {
		CHECK(ret == -EPROTO || ret == -EOPNOTSUPP);
		CHECK(why[0] != 0 && memchr(why, 0, sizeof(why)) != NULL);
		n = karst_ctl_refuse(msg, len, ret, why, rsp);
	}
	CHECK(n <= sizeof(rsp));
	CHECK(karst_ctl_check_reply(&req, rsp, n, 0, why) == 0);
}

static void
try_reply(const void *msg, size_t len, unsigned int nfds)
{
	const struct karst_ctl_fault *fault = (const void *)((const uint8_t *)msg + HDR);
	struct karst_ctl_hdr req = {0};
	const struct karst_ctl_hdr *h = msg;

	memcpy(&req, msg, len < HDR ? len : HDR);
	if (karst_ctl_check_reply(&req, msg, len, nfds, NULL) != 0)
		return;
	CHECK(h->status <= 0);
	if (h->status < 0)
		CHECK(strlen(fault->why) < sizeof(fault->why));
	else if (karst_ctl_op_info(h->op) != NULL)
		sum(h + 1, karst_ctl_op_info(h->op)->rsp_bytes);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = size - 1;
	void *msg;

	if (size == 0 || len > KARST_CTL_MAX)
		return 0;
	msg = malloc(len != 0 ? len : 1);
	if (msg == NULL)
		abort();
	memcpy(msg, data + 1, len);
	try_request(msg, len, data[0]);
	try_reply(msg, len, data[0]);
	free(msg);
	return 0;
}

#ifdef KARST_LIBFUZZER
size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	struct karst_ctl_hdr h;

	size = LLVMFuzzerMutate(data, size, max_size);
	if ((seed & 1) == 0 || size < 1 + HDR)
		return size;
	memcpy(&h, data + 1, HDR);
	h.magic = KARST_CTL_MAGIC;
	h.version = KARST_CTL_VERSION;
	h.len = (uint32_t)(size - 1);
	h.nfds = data[0];
	if (seed & 2)
		h.status = 0;
	memcpy(data + 1, &h, HDR);
	return size;
}
#endif
