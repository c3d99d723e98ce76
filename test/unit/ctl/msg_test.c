/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The form of control messages: what is accepted, and that the reason is given for what is not. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "message.h"

#define HDR sizeof(struct karst_ctl_hdr)

static struct message m;
static char why[KARST_CTL_WHY];

static int
check(size_t len, unsigned int nfds)
{
	memset(why, 0, sizeof(why));
	return karst_ctl_check_request(&m, len, nfds, why);
}

/* Refused as malformed, with a reason that names what was wrong. */
static void
refused(size_t len, unsigned int nfds, const char *word)
{
	cr_assert_eq(check(len, nfds), -EPROTO, "%s", word);
	cr_assert_not_null(strstr(why, word), "'%s' in: %s", word, why);
}

Test(msg, operations)
{
	const struct karst_ctl_op_info *info = karst_ctl_op_info(KARST_CTL_REG_MR);
	uint32_t op, n = 0;

	cr_assert_str_eq(info->name, "REG_MR");
	cr_assert_eq(info->req_bytes, 40);
	cr_assert(info->pieces);
	for (op = 0; op < 70000; op++)
		n += karst_ctl_op_info(op) != NULL;
	cr_assert_eq(n, 59);
	cr_assert_null(karst_ctl_op_info(0));
	cr_assert_null(karst_ctl_op_info(UINT32_MAX));
}

Test(msg, header)
{
	size_t len = message_request(&m, KARST_CTL_ALLOC_PD, 8);

	cr_assert_eq(check(len, 0), 0);
	refused(0, 0, "24");
	refused(23, 0, "23 bytes");
	message_hdr(&m)->magic++;
	refused(len, 0, "magic");
	message_request(&m, KARST_CTL_ALLOC_PD, 8);
	message_hdr(&m)->version = 7;
	refused(len, 0, "version 7");
	message_request(&m, KARST_CTL_ALLOC_PD, 8);
	message_hdr(&m)->len++;
	refused(len, 0, "len 33");
	message_request(&m, KARST_CTL_ALLOC_PD, 8);
	message_hdr(&m)->status = -1;
	refused(len, 0, "status -1");
	message_request(&m, KARST_CTL_ALLOC_PD, 8);
	message_hdr(&m)->nfds = 1;
	refused(len, 0, "nfds 1");
	refused(len, 1, "ALLOC_PD");
	len = message_request(&m, 9999, 8);
	cr_assert_eq(check(len, 0), -EOPNOTSUPP);
	cr_assert_not_null(strstr(why, "9999"));
}

/* A body of any length: too short, exact, longer with zeros, longer with other bytes. */
Test(msg, every_length_of_every_operation)
{
	uint32_t op;
	size_t body;

	for (op = 0; op < 128; op++) {
		const struct karst_ctl_op_info *info = karst_ctl_op_info(op);

		if (info == NULL)
			continue;
		for (body = 0; body < info->req_bytes; body++)
			refused(message_request(&m, op, body), 0, "at least");
		for (; body < 4096; body += 7)
			cr_assert_eq(check(message_request(&m, op, body), 0), 0, "%s", info->name);
		for (body = info->req_bytes + 1; body < 300; body++) {
			message_request(&m, op, body);
			message_body(&m)[body - 1] = 1;
			refused(HDR + body, 0, "not 0");
		}
		cr_assert_eq(check(message_request(&m, op, KARST_CTL_MAX - HDR), 0), 0);
	}
}

/* Sets each byte of each body: the message is refused if the byte is reserved, and this check does
 * not refuse it otherwise. */
Test(msg, reserved_members)
{
	uint32_t op, found = 0;

	for (op = 0; op < 128; op++) {
		const struct karst_ctl_op_info *info = karst_ctl_op_info(op);
		uint32_t i;

		for (i = 0; info != NULL && i < info->req_bytes; i++) {
			size_t len = message_request(&m, op, info->req_bytes);
			int ret;

			message_body(&m)[i] = 1;
			ret = check(len, 0);
			cr_assert(ret == 0 || ret == -EPROTO);
			if (ret != 0 && strstr(why, "reserved") != NULL)
				found++;
		}
	}
	/* in bytes; counted by hand from doc/control-abi.rst */
	cr_assert_eq(found,
		8 + 4 + 4 + 4 /* queries, chunks */ + 8 + 4 /* PD */ + 4 + 4 + 4 /* MR */ +
			4 /* MW */ + 7 + 4 /* AH */ + 4 + 4 /* XRCD */ + 8 + 4 /* channel */ + 4 +
			4 + 4 /* CQ */ + 4 + 4 + 4 /* SRQ */ + 7 + 7 + 4 + 4 + 4 /* QP */ + 4 +
			4 /* ECE */ + 4 +
			4 /* multicast */
			/* connection management */
			+ 8 + 4 + 4 + 1 + 4 + 4 + 4 + 1 + 1 + 1 + 4 + 4 + 4 + 4 + 4);
}

static size_t
register_request(uint32_t npieces, size_t have)
{
	size_t len = message_request(&m, KARST_CTL_REG_MR,
		sizeof(struct karst_ctl_reg_mr_req) + have * sizeof(struct karst_ctl_piece));

	((struct karst_ctl_reg_mr_req *)message_body(&m))->npieces = npieces;
	return len;
}

Test(msg, pieces)
{
	struct karst_ctl_reg_mr_req *req = (void *)message_body(&m);

	cr_assert_eq(check(register_request(0, 0), 0), 0);
	cr_assert_eq(check(register_request(3, 3), 0), 0);
	cr_assert_eq(check(register_request(3, 3), 0), 0);
	refused(register_request(3, 2), 0, "at least");
	cr_assert_eq(check(register_request(KARST_CTL_MAX_PIECES, KARST_CTL_MAX_PIECES), 0), 0);
	refused(register_request(KARST_CTL_MAX_PIECES + 1, KARST_CTL_MAX_PIECES + 1), 0, "npieces");
	refused(register_request(UINT32_MAX, 4), 0, "npieces");
	register_request(3, 3);
	req->piece[2].reserved = 1;
	refused(message_hdr(&m)->len, 0, "piece[2]");
	register_request(2, 3);
	req->piece[2].addr = 1;
	refused(message_hdr(&m)->len, 0, "not 0");
	register_request(1, 1);
	message_hdr(&m)->nfds = 5;
	cr_assert_eq(check(message_hdr(&m)->len, 5), 0);
}

/* How many descriptors each operation takes. */
Test(msg, descriptors)
{
	size_t len =
		message_request(&m, KARST_CTL_OPEN_XRCD, sizeof(struct karst_ctl_open_xrcd_req));

	message_hdr(&m)->nfds = 1;
	cr_assert_eq(check(len, 1), 0);
	message_hdr(&m)->nfds = 2;
	refused(len, 2, "nfds 2 exceeds 1");
	len = message_request(&m, KARST_CTL_ALLOC_PD, sizeof(struct karst_ctl_alloc_pd_req));
	message_hdr(&m)->nfds = 1;
	refused(len, 1, "nfds 1 exceeds 0");
}

/* --- replies --- */

static struct message reply;

static int
check_reply(size_t len, unsigned int nfds)
{
	return karst_ctl_check_reply(message_hdr(&m), &reply, len, nfds, why);
}

Test(msg, replies)
{
	struct karst_ctl_hdr *h = message_hdr(&reply);
	size_t len;

	message_request(&m, KARST_CTL_CREATE_CQ, sizeof(struct karst_ctl_create_cq_req));
	memset(&reply, 0xff, sizeof(reply));
	len = karst_ctl_reply(message_hdr(&m), &reply);
	cr_assert_eq(len, HDR + sizeof(struct karst_ctl_create_cq_rsp));
	cr_assert_eq(message_body(&reply)[len - HDR - 1], 0);
	cr_assert_eq(check_reply(len, 0), 0);
	cr_assert_eq(check_reply(len, 1), -EPROTO);
	cr_assert_eq(check_reply(len - 1, 0), -EPROTO);
	h->len = (uint32_t)(len - 1);
	cr_assert_eq(check_reply(len - 1, 0), -EPROTO);
	h->len = (uint32_t)len;
	h->seq++;
	cr_assert_eq(check_reply(len, 0), -EPROTO);
	h->seq--;
	h->op++;
	cr_assert_eq(check_reply(len, 0), -EPROTO);
	h->op--;
	h->status = 1;
	cr_assert_eq(check_reply(len, 0), -EPROTO);
	h->status = -EINVAL;
	cr_assert_eq(check_reply(len, 0), -EPROTO, "no reason");
}

Test(msg, refusals)
{
	struct karst_ctl_fault *fault = (void *)message_body(&reply);
	char longest[1000];
	size_t len;

	len = message_request(&m, KARST_CTL_CREATE_CQ, 24);
	len = karst_ctl_refuse(&m, len, -ENOMEM, "because", &reply);
	cr_assert_eq(len, HDR + KARST_CTL_WHY);
	cr_assert_eq(check_reply(len, 0), 0);
	cr_assert_eq(message_hdr(&reply)->status, -ENOMEM);
	cr_assert_str_eq(fault->why, "because");
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = 0;
	len = karst_ctl_refuse(&m, HDR, -ENOMEM, longest, &reply);
	cr_assert_eq(strlen(fault->why), KARST_CTL_WHY - 1);
	cr_assert_eq(check_reply(len, 0), 0);
	memset(fault->why, 'x', sizeof(fault->why));
	cr_assert_eq(check_reply(len, 0), -EPROTO, "without an end");
	/* too short for a header: copies the part that there is */
	karst_ctl_refuse(&m, 0, -EPROTO, "short", &reply);
	cr_assert_eq(message_hdr(&reply)->seq, 0);
	karst_ctl_refuse(&m, 16, -EPROTO, "short", &reply);
	cr_assert_eq(message_hdr(&reply)->seq, 4711);
}

/* Random bytes: no report of a sanitizer, and a reason for every refusal. */
Test(msg, noise)
{
	unsigned int seed = 1, i, j;

	for (i = 0; i < 200000; i++) {
		size_t body = (size_t)rand_r(&seed) % 200, len;
		uint8_t *copy;

		len = message_request(&m, (uint32_t)rand_r(&seed) % 56, body);
		for (j = 0; j < 4; j++)
			m.bytes[(size_t)rand_r(&seed) % len] = (uint8_t)rand_r(&seed);
		/* exactly as long as the message, for the sanitizer */
		copy = malloc(len);
		memcpy(copy, &m, len);
		why[0] = 0;
		if (karst_ctl_check_request(copy, len, 0, why) != 0)
			cr_assert_neq(why[0], 0);
		free(copy);
	}
}
