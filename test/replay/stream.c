/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Which queue pair sent requests to which.  A packet names the queue pair that it is for, not the
 * one that it is from; but requests and answers agree in their PSNs.  So the answers to the
 * requests for queue pair D are those in the other direction, to the queue pair R for which most
 * PSNs fit.
 */
#include <stdlib.h>

#include "replay.h"

#define DELAY_NS (20 * RP_MS) /* of frames that the wire delayed */

static bool
is_stream(const struct rp_stream *s, const struct rp_frame *f)
{
	return s->dqpn == f->f.ib.dqpn && s->from == f->from && s->port == f->port;
}

static enum karst_qp_type
type_of(uint8_t opcode)
{
	switch (opcode & KARST_TRANSPORT_MASK) {
	case KARST_TRANSPORT_UC:
		return KARST_QPT_UC;
	case KARST_TRANSPORT_UD:
		return KARST_QPT_UD;
	default:
		return KARST_QPT_RC;
	}
}

static void
append(const struct rp_frame ***list, unsigned int *n, const struct rp_frame *f)
{
	*list = realloc(*list, (*n + 1) * sizeof(**list));
	(*list)[(*n)++] = f;
}

uint32_t
rp_npsn(const struct rp_stream *s, const struct rp_frame *f)
{
	if (!(f->opf & KARST_OPF_READ))
		return 1;
	return f->f.ib.dma_len == 0 ? 1 : (f->f.ib.dma_len - 1) / (128u << s->mtu) + 1;
}

uint32_t
rp_first_psn(const struct rp_stream *s)
{
	uint32_t first = s->requests[0]->f.ib.psn;
	unsigned int i;

	for (i = 1; i < s->nrequests; i++) {
		if (karst_psn_before(s->requests[i]->f.ib.psn, first))
			first = s->requests[i]->f.ib.psn;
	}
	return first;
}

/* --- the path MTU --- */

/* First and Middle packets are as long as the MTU, others not longer. */
static void
find_mtu(struct rp_stream *s)
{
	uint32_t exact = 0, least = 1024;
	unsigned int i;

	for (i = 0; i < s->capture->n; i++) {
		const struct rp_frame *f = &s->capture->frames[i];

		if (!(f->opf & KARST_OPF_PAYLOAD) || f->port != s->port ||
			(f->f.ib.dqpn != s->dqpn && f->f.ib.dqpn != s->rqpn))
			continue;
		if (!(f->opf & KARST_OPF_END))
			exact = f->f.ib.pay_len;
		else if (f->f.ib.pay_len > least)
			least = karst_pow2_ceil(f->f.ib.pay_len);
	}
	s->mtu = (uint8_t)(karst_log2(exact != 0 ? exact : least) - 7);
}

/* --- answers --- */

static bool
is_response(const struct rp_stream *s, const struct rp_frame *f)
{
	return f->from != s->from && f->port == s->port && (f->opf & KARST_OPF_RESPONSE);
}

/* Counts the responses to queue pair @qpn whose PSN is one of the requests'. */
static unsigned int
fits(const struct rp_stream *s, uint32_t qpn)
{
	unsigned int i, k, n = 0;

	for (i = 0; i < s->capture->n; i++) {
		const struct rp_frame *f = &s->capture->frames[i];

		if (!is_response(s, f) || f->f.ib.dqpn != qpn)
			continue;
		for (k = 0; k < s->nrequests; k++) {
			const struct rp_frame *q = s->requests[k];

			if (karst_psn_distance(f->f.ib.psn, q->f.ib.psn) < rp_npsn(s, q)) {
				n++;
				break;
			}
		}
	}
	return n;
}

static void
find_answers(struct rp_stream *s)
{
	unsigned int i, best = 0;

	for (i = 0; i < s->capture->n; i++) {
		const struct rp_frame *f = &s->capture->frames[i];
		unsigned int n;

		if (!is_response(s, f) || f->f.ib.dqpn == s->rqpn)
			continue;
		n = fits(s, f->f.ib.dqpn);
		if (n > best) {
			best = n;
			s->rqpn = f->f.ib.dqpn;
		}
	}
	for (i = 0; best != 0 && i < s->capture->n; i++) {
		const struct rp_frame *f = &s->capture->frames[i];

		if (is_response(s, f) && f->f.ib.dqpn == s->rqpn)
			append(&s->answers, &s->nanswers, f);
	}
}

struct rp_stream *
rp_streams(const struct rp_capture *c, unsigned int *n)
{
	struct rp_stream *all = NULL;
	unsigned int i, k;

	*n = 0;
	for (i = 0; i < c->n; i++) {
		const struct rp_frame *f = &c->frames[i];

		if (!(f->opf & KARST_OPF_REQUEST) || f->f.ib.dqpn == 1)
			continue;
		for (k = 0; k < *n && !is_stream(&all[k], f); k++)
			;
		if (k == *n) {
			all = realloc(all, (*n + 1) * sizeof(*all));
			all[(*n)++] = (struct rp_stream){.capture = c,
				.type = type_of(f->f.ib.opcode),
				.from = f->from,
				.port = f->port,
				.dqpn = f->f.ib.dqpn};
		}
		append(&all[k].requests, &all[k].nrequests, f);
	}
	for (k = 0; k < *n; k++) {
		find_mtu(&all[k]); /* counting the PSNs of READs needs it */
		if (all[k].type == KARST_QPT_RC)
			find_answers(&all[k]);
		find_mtu(&all[k]);
	}
	return all;
}

void
rp_streams_free(struct rp_stream *s, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		free(s[i].requests);
		free(s[i].answers);
	}
	free(s);
}

/* --- arrivals --- */

static int
earlier(const void *pa, const void *pb)
{
	const struct rp_arrival *a = pa, *b = pb;

	if (a->ns != b->ns)
		return a->ns < b->ns ? -1 : 1;
	return a->frame->number < b->frame->number ? -1 : a->frame->number > b->frame->number;
}

struct rp_arrival *
rp_arrivals(const struct rp_frame *const *frames, unsigned int nframes, unsigned int *n)
{
	struct rp_arrival *all = calloc(2 * nframes + 1, sizeof(*all));
	unsigned int i;

	*n = 0;
	for (i = 0; i < nframes; i++) {
		const struct rp_frame *f = frames[i];
		uint64_t ns = f->ns + (f->fate == RP_DELAYED ? DELAY_NS : 0);
		unsigned int times = f->fate == RP_DROPPED ? 0 : f->fate == RP_DOUBLED ? 2 : 1;

		while (times-- != 0)
			all[(*n)++] = (struct rp_arrival){f, ns};
	}
	qsort(all, *n, sizeof(*all), earlier);
	return all;
}
