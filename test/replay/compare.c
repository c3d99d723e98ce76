/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Compares a frame of karst with one of the capture, field by field (W2 to W6): all of the base
 * transport header, the headers that the opcode has, payload and pad.
 */
#include "replay.h"

struct field {
	const char *name;
	uint64_t ours;
	uint64_t theirs;
};

#define FIELDS_MAX 24u
#define BITS(what) ((unsigned int)(what))

static unsigned int
list(struct field *f, const struct karst_ib_hdrs *o, const struct karst_ib_hdrs *t)
{
	uint32_t opf = karst_opcode_flags(o->opcode);
	unsigned int n = 0;

#define FIELD(member) f[n++] = (struct field){#member, o->member, t->member}
	FIELD(tver);
	FIELD(resv6);
	FIELD(resv7);
	FIELD(se);
	FIELD(migreq);
	FIELD(fecn);
	FIELD(becn);
	FIELD(ackreq);
	FIELD(pkey);
	FIELD(dqpn);
	FIELD(pay_len);
	if (opf & KARST_OPF_DETH)
		FIELD(qkey);
	if (opf & (KARST_OPF_RETH | KARST_OPF_ATOMICETH)) {
		FIELD(va);
		FIELD(rkey);
	}
	if (opf & KARST_OPF_RETH)
		FIELD(dma_len);
	if (opf & KARST_OPF_ATOMICETH) {
		FIELD(swap_add);
		FIELD(compare);
	}
	if (opf & KARST_OPF_AETH) {
		f[n++] = (struct field){"syndrome", o->aeth >> 24, t->aeth >> 24};
		f[n++] = (struct field){"MSN", o->aeth & 0xffffff, t->aeth & 0xffffff};
	}
	if (opf & KARST_OPF_ATOMICACK)
		FIELD(orig);
	if (opf & KARST_OPF_IMM)
		FIELD(imm);
	if (opf & KARST_OPF_IETH)
		FIELD(inv_rkey);
#undef FIELD
	return n;
}

static bool
payload_same(const struct karst_ib_hdrs *o, const struct karst_ib_hdrs *t)
{
	return o->pay_len != t->pay_len || memcmp(o->pay, t->pay, o->pay_len) == 0;
}

bool
rp_same(const struct karst_ib_hdrs *ours, const struct karst_ib_hdrs *theirs)
{
	struct field f[FIELDS_MAX];
	unsigned int i, n;

	if (ours->opcode != theirs->opcode || ours->psn != theirs->psn)
		return false;
	n = list(f, ours, theirs);
	for (i = 0; i < n && f[i].ours == f[i].theirs; i++)
		;
	return i == n && payload_same(ours, theirs);
}

unsigned int
rp_compare(
	struct rp_report *r, const struct karst_ib_hdrs *ours, const struct karst_ib_hdrs *theirs)
{
	struct field f[FIELDS_MAX];
	unsigned int i, n, wrong = 0;

	if (ours->opcode != theirs->opcode || ours->psn != theirs->psn) {
		if (ours->psn != theirs->psn)
			wrong += !rp_differs(r, theirs->psn, "%s at PSN %06x instead of %s",
				karst_opcode_symbol(ours->opcode), ours->psn,
				karst_opcode_symbol(theirs->opcode));
		else
			wrong += !rp_differs(r, theirs->psn, "%s (%02x) instead of %s",
				karst_opcode_symbol(ours->opcode),
				BITS(karst_opcode_flags(ours->opcode) & KARST_OPF_AETH
						? ours->aeth >> 24
						: 0),
				karst_opcode_symbol(theirs->opcode));
		return wrong;
	}
	n = list(f, ours, theirs);
	for (i = 0; i < n; i++) {
		if (f[i].ours != f[i].theirs)
			wrong += !rp_differs(r, theirs->psn, "%s %llx instead of %llx", f[i].name,
				(unsigned long long)f[i].ours, (unsigned long long)f[i].theirs);
	}
	if (!payload_same(ours, theirs))
		wrong += !rp_differs(r, theirs->psn, "another payload");
	r->compared++;
	return wrong;
}
