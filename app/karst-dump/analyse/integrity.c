/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Check each packet by itself (ICRC, pad, reserved bits) and the order of packets in a message (W6,
 * W7, W10).
 */
#include "an_priv.h"

static bool
zeros(const uint8_t *p, size_t n)
{
	while (n-- > 0)
		if (*p++ != 0)
			return false;
	return true;
}

static void
check_icrc(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	if (p->j->icrc_is != JUDGE_CRC_BAD)
		an_pass(a, f, AN_ICRC, p->frame);
	else if (p->fate & (AN_MAYBE | AN_LOST))
		an_say(a, f, AN_ICRC, AN_UNKNOWN, p->frame, 0,
			"the ICRC is wrong, and the injury log has this packet");
	else
		an_say(a, f, AN_ICRC, AN_FAIL, p->frame, 0,
			"%s, PSN %06x: ICRC %08x instead of %08x",
			karst_opcode_symbol(p->ib->opcode), p->ib->psn, p->j->icrc,
			p->j->icrc_want);
}

static void
check_form(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	unsigned int pad = -p->ib->pay_len & 3;

	if (p->j->icrc_is == JUDGE_CRC_BAD)
		return; /* damaged: tells nothing about the sender */
	if (!zeros(p->ib->pay + p->ib->pay_len, p->ib->pay != NULL ? pad : 0))
		an_say(a, f, AN_FORM, AN_FAIL, p->frame, 0, "%u pad bytes are not all zero", pad);
	else if (p->ib->resv7 != 0 || p->ib->resv6 != 0)
		an_say(a, f, AN_FORM, AN_FAIL, p->frame, 0, "reserved bits of the BTH are set");
	else
		an_pass(a, f, AN_FORM, p->frame);
}

void
an_integrity(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	check_icrc(a, f, p);
	check_form(a, f, p);
}

/* --- messages --- */

static void
wrong(struct an *a, struct an_flow *f, const struct an_pkt *p, const char *what)
{
	f->req.msg = AN_MSG_UNKNOWN;
	an_say(a, f, AN_MESSAGE, AN_FAIL, p->frame, 0, "%s, PSN %06x, %u bytes: %s",
		karst_opcode_symbol(p->ib->opcode), p->ib->psn, p->ib->pay_len, what);
}

/* Handles a First or Only packet. */
static bool
start(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	bool write = (p->flags & KARST_OPF_WRITE) != 0;

	if (s->msg == AN_MSG_SEND || s->msg == AN_MSG_WRITE) {
		wrong(a, f, p, "begins while a message is in progress");
		return false;
	}
	s->msg = write ? AN_MSG_WRITE : AN_MSG_SEND;
	s->msg_len = 0;
	s->msg_want = write ? p->ib->dma_len : 0;
	s->msg_frame = p->frame;
	return true;
}

/* @return whether the payload size is right for the packet's position in its message. */
static bool
size(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_stream *s = &f->req;
	uint32_t len = p->ib->pay_len;

	if (!(p->flags & KARST_OPF_END)) {
		if (!an_is_mtu(len) || (s->mtu != 0 && len != s->mtu)) {
			wrong(a, f, p, "First and Middle have as many as the path MTU");
			return false;
		}
		if (s->mtu == 0)
			an_set_mtu(a, f, len);
	} else if (len > (s->mtu != 0 ? s->mtu : 4096)) {
		wrong(a, f, p, "more than the path MTU");
		return false;
	} else if (len == 0 && !(p->flags & KARST_OPF_START)) {
		wrong(a, f, p, "an empty Last");
		return false;
	}
	return true;
}

void
an_message(struct an *a, struct an_flow *f, const struct an_pkt *p, bool follows)
{
	struct an_stream *s = &f->req;
	bool message = (p->flags & (KARST_OPF_SEND | KARST_OPF_WRITE)) != 0;

	if (!follows)
		s->msg = AN_MSG_UNKNOWN;
	if (!message) {
		if (s->msg == AN_MSG_SEND || s->msg == AN_MSG_WRITE)
			wrong(a, f, p, "comes while a message is in progress");
		s->msg = AN_MSG_NONE;
		return;
	}
	if (p->flags & KARST_OPF_START) {
		if (!start(a, f, p))
			return;
	} else if (s->msg == AN_MSG_NONE) {
		wrong(a, f, p, "no message has begun");
		return;
	} else if (s->msg == AN_MSG_UNKNOWN) {
		if (p->flags & KARST_OPF_END)
			s->msg = AN_MSG_NONE;
		return; /* the beginning of the message is not known */
	} else if ((s->msg == AN_MSG_WRITE) != ((p->flags & KARST_OPF_WRITE) != 0)) {
		wrong(a, f, p, "goes on with another operation");
		return;
	}
	if (!size(a, f, p))
		return;
	s->msg_len += p->ib->pay_len;
	if (!(p->flags & KARST_OPF_END))
		return;
	if (s->msg == AN_MSG_WRITE && s->msg_len != s->msg_want)
		an_say(a, f, AN_MESSAGE, AN_FAIL, s->msg_frame, p->frame,
			"a WRITE of %llu bytes, its RETH says %llu", (unsigned long long)s->msg_len,
			(unsigned long long)s->msg_want);
	else
		an_pass(a, f, AN_MESSAGE, p->frame);
	s->msg = AN_MSG_NONE;
}
