/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Computes how long a flow would take alone.  All of its frames follow one another along its path,
 * each switch stores a frame before it forwards it, and the last frame is acknowledged.  For READs
 * it is the first request, its responses, and the responses of the other READs, which are requested
 * in the meantime.
 *
 * For each link the time is kept at which its last frame was sent: the next frame begins then, or
 * when it has arrived, whichever is later.  All equal-cost paths are equally fast.
 */
#include "karst_hdr.h"
#include "sim.h"

#define MAX_HOPS 8u

/* Ethernet, IPv4, UDP, BTH and ICRC. */
#define HEADERS (14u + KARST_IP4_LEN + KARST_UDP_LEN + KARST_BTH_LEN + KARST_ICRC_LEN)
#define ACK_LEN (HEADERS + KARST_AETH_LEN)

struct way {
	const struct fab_port *hop[MAX_HOPS];
	uint32_t n;
	uint64_t sent_ps[MAX_HOPS]; /* since the first frame began */
};

static void
find_way(struct fab_sim *s, uint32_t src, uint32_t dst, struct way *w)
{
	static const uint64_t any[2] = {0, 0};
	const struct fab_port *p = &s->host[src].port;

	memset(w, 0, sizeof(*w));
	for (;;) {
		if (w->n == MAX_HOPS)
			fab_bail(
				s, -EINVAL, "the way from host %u to host %u has no end", src, dst);
		w->hop[w->n++] = p;
		if (p->peer->host != NULL)
			return;
		p = fab_switch_out(p->peer->sw, dst, any);
	}
}

/* Sends a frame.  @return when it has arrived. */
static uint64_t
send_frame(struct way *w, uint32_t len)
{
	uint32_t wire = fab_wire_bytes(len), i;
	uint64_t at = 0;

	for (i = 0; i < w->n; i++) {
		w->sent_ps[i] = karst_max_u64(at, w->sent_ps[i]) + fab_serial_ps(w->hop[i], wire);
		at = w->sent_ps[i] + w->hop[i]->prop_ps;
	}
	return at;
}

/* A WRITE of @n bytes; @imm: with immediate data. */
static uint64_t
send_message(const struct fab_sim *s, struct way *w, uint32_t n, bool imm)
{
	uint32_t off = 0, part, len;
	uint64_t at = 0;

	do {
		part = karst_min_u32(s->c->mtu, n - off);
		len = HEADERS + ((part + 3) & ~3u);
		if (off == 0)
			len += KARST_RETH_LEN;
		off += part;
		if (off == n && imm)
			len += KARST_IMM_LEN;
		at = send_frame(w, len);
	} while (off < n);
	return at;
}

/* The answer to a READ of @n bytes. */
static uint64_t
send_answer(const struct fab_sim *s, struct way *w, uint32_t n)
{
	uint32_t off = 0, part, len;
	uint64_t at = 0;

	do {
		part = karst_min_u32(s->c->mtu, n - off);
		len = HEADERS + ((part + 3) & ~3u);
		if (off == 0 || off + part == n)
			len += KARST_AETH_LEN;
		off += part;
		at = send_frame(w, len);
	} while (off < n);
	return at;
}

uint64_t
fab_ideal_ps(struct fab_sim *s, uint32_t src, uint32_t dst, uint64_t size, bool tell)
{
	struct way there, back;
	uint64_t at = 0, off, n;

	if (size == 0)
		return 0;
	find_way(s, src, dst, &there);
	find_way(s, dst, src, &back);
	if (s->c->read)
		there.sent_ps[0] = send_frame(&back, HEADERS + KARST_RETH_LEN);
	for (off = 0; off < size; off += n) {
		n = karst_min_u64(s->c->message, size - off);
		at = s->c->read ? send_answer(s, &there, (uint32_t)n)
				: send_message(s, &there, (uint32_t)n, tell && off + n == size);
	}
	return s->c->read ? at : at + send_frame(&back, ACK_LEN);
}
