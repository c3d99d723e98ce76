/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The last packets of a schedule, decoded only when they are printed. */
#include <stdarg.h>
#include <stdio.h>

#include "karst_opcode.h"
#include "sim.h"

static const char *const fates[] = {
	"sent", "LOST", "SPOILT", "DUPLICATED", "DELAYED", "received", "refused"};

static void
print_rec(const struct sim *s, const struct sim_trace_rec *r)
{
	const struct karst_pkt *p = &r->pkt;
	uint32_t fl;

	fprintf(stderr, "%12.3f us  %u>%u %-10s ", (double)r->ns / 1000, r->from, r->to,
		fates[r->fate]);
	if (!r->parsed) {
		fprintf(stderr, "(%s)\n", karst_drop_name((enum karst_drop)p->drop));
		return;
	}
	fl = karst_opcode_flags(p->opcode);
	fprintf(stderr, "%-20s qp %#08x psn %06x len %u%s%s", karst_opcode_name(p->opcode), p->dqpn,
		p->psn, p->pay_len, p->flags & KARST_PKT_ACKREQ ? " ackreq" : "",
		p->flags & KARST_PKT_SE ? " se" : "");
	if (fl & (KARST_OPF_RETH | KARST_OPF_ATOMICETH))
		fprintf(stderr, " va %#llx rkey %#x", (unsigned long long)p->va, p->rkey);
	if (fl & KARST_OPF_RETH)
		fprintf(stderr, " dma %u", p->dma_len);
	if (fl & KARST_OPF_AETH)
		fprintf(stderr, " syndrome %02x msn %u", p->aeth >> 24, p->aeth & 0xffffff);
	if (fl & (KARST_OPF_IMM | KARST_OPF_IETH))
		fprintf(stderr, " imm %#x", p->imm);
	if (fl & KARST_OPF_DETH)
		fprintf(stderr, " qkey %#x src %#x", p->qkey, p->src_qpn);
	if (p->drop != KARST_DROP_NONE && r->fate == FATE_RECEIVED)
		fprintf(stderr, " -> %s", karst_drop_name((enum karst_drop)p->drop));
	fputc('\n', stderr);
}

void
sim_trace(struct sim *s, enum sim_fate fate, uint8_t from, uint8_t to, const struct karst_pkt *p,
	bool parsed)
{
	struct sim_trace_rec *r = &s->trace[s->ntrace++ % SIM_TRACE];

	r->ns = s->now_ns;
	r->pkt = *p;
	r->from = from;
	r->to = to;
	r->fate = (uint8_t)fate;
	r->parsed = parsed;
	if (karst_unlikely(s->opt.verbose))
		print_rec(s, r);
}

void
sim_trace_print(const struct sim *s, uint32_t last)
{
	uint64_t n = s->ntrace < SIM_TRACE ? s->ntrace : SIM_TRACE, i;

	if (n > last)
		n = last;
	for (i = s->ntrace - n; i < s->ntrace; i++)
		print_rec(s, &s->trace[i % SIM_TRACE]);
}

void
sim_note(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (karst_likely(!s->opt.verbose))
		return;
	fprintf(stderr, "%12.3f us  ", (double)s->now_ns / 1000);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}
