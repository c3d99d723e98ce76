/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "sample.h"

#include <criterion/criterion.h>
#include <sys/mman.h>
#include <unistd.h>

#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_opcode.h"

static const uint8_t payload[4096] = {0xa5, 0x5a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};

bool
sample_takes_payload(uint8_t opcode)
{
	return (karst_opcode_flags(opcode) & (KARST_OPF_PAYLOAD | KARST_OPF_CNP)) != 0;
}

struct karst_frame
sample_frame(uint8_t opcode, bool ip6, bool vlan, uint16_t pay_len, uint32_t seed)
{
	struct karst_frame f = {
		.dmac = {0x02, 0, 0, 0, 0, 0x02},
		.smac = {0x02, 0, 0, 0, 0, 0x01},
		.vlan = vlan,
		.vlan_tci = vlan ? 0x2123 : 0,
		.ip6 = ip6,
		.tclass = (uint8_t)(seed * 5),
		.ttl = 64,
		.ip_id = ip6 ? 0 : 0x1234,
		.ip_frag = ip6 ? 0 : 0x4000,
		.flow_label = ip6 ? 0x9abcd : 0,
		.saddr = {192, 0, 2, 1},
		.daddr = {192, 0, 2, 2},
		.sport = 0xc123,
		.dport = KARST_ROCE_UDP_PORT,
		.ib =
			{
				.opcode = opcode,
				.se = seed & 1,
				.migreq = seed & 2,
				.fecn = seed & 4,
				.becn = seed & 8,
				.ackreq = seed & 16,
				.pkey = 0xfffe,
				.dqpn = 0x123456,
				.psn = 0xfedcba,
				.eec = 0x0e0e0e,
				.qkey = 0x80010000,
				.src_qpn = 0xabcdef,
				.srqn = 0x345678,
				.feth = 0x31,
				.va = 0x1122334455667788,
				.rkey = 0x99aabbcc,
				.dma_len = 0xddeeff01,
				.swap_add = 0x0102030405060708,
				.compare = 0x1112131415161718,
				.aeth = 0x1f000007 + seed,
				.orig = 0x2122232425262728,
				.imm = 0x0a0b0c0d,
				.inv_rkey = 0x31323334,
				.pay = payload,
				.pay_len = pay_len,
			},
	};

	if (ip6) {
		memcpy(f.saddr, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
		memcpy(f.daddr, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 16);
	}
	return f;
}

unsigned int
sample_build(uint8_t *buf, size_t room, const struct karst_frame *f)
{
	int len = karst_build_frame(buf, room, f);

	cr_assert_gt(len, 0, "opcode 0x%02x: %d", f->ib.opcode, len);
	karst_put_be32(buf + len - 4, 0xdeadbeef); /* an ICRC, which is not checked here */
	return (unsigned int)len;
}

void
sample_fix_ip4(uint8_t *ip4)
{
	uint32_t sum = 0;
	int i;

	karst_put_be16(ip4 + 10, 0);
	for (i = 0; i < 20; i += 2)
		sum += karst_get_be16(ip4 + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	karst_put_be16(ip4 + 10, (uint16_t)~sum);
}

#define SAME(a, b)   cr_assert_eq(a, b, "%s: " #a, karst_opcode_name(p->opcode))
#define BIT(flag, b) SAME((p->flags & (flag)) != 0, b)

void
sample_check_fields(const struct karst_pkt *p, const struct karst_frame *f)
{
	uint32_t op = karst_opcode_flags(f->ib.opcode);

	SAME(p->opcode, f->ib.opcode);
	SAME(p->pkey, f->ib.pkey);
	SAME(p->dqpn, f->ib.dqpn);
	SAME(p->psn, f->ib.psn);
	SAME(p->pay_len, f->ib.pay_len);
	SAME(p->qp, NULL);
	BIT(KARST_PKT_IP6, f->ip6);
	BIT(KARST_PKT_VLAN, f->vlan);
	BIT(KARST_PKT_SE, f->ib.se);
	BIT(KARST_PKT_ACKREQ, f->ib.ackreq);
	BIT(KARST_PKT_CE, (f->tclass & 3) == 3);
	BIT(KARST_PKT_BECN, f->ib.becn);
	BIT(KARST_PKT_MIGREQ, f->ib.migreq);
	if (op & (KARST_OPF_RETH | KARST_OPF_ATOMICETH)) {
		SAME(p->va, f->ib.va);
		SAME(p->rkey, f->ib.rkey);
	}
	if (op & KARST_OPF_RETH)
		SAME(p->dma_len, f->ib.dma_len);
	if (op & KARST_OPF_IMM)
		SAME(p->imm, f->ib.imm);
	if (op & KARST_OPF_IETH)
		SAME(p->inv_rkey, f->ib.inv_rkey);
	if (op & KARST_OPF_AETH)
		SAME(p->aeth, f->ib.aeth);
	if (op & KARST_OPF_DETH) {
		SAME(p->qkey, f->ib.qkey);
		SAME(p->src_qpn, f->ib.src_qpn);
	}
	if (op & KARST_OPF_XRCETH)
		SAME(p->srqn, f->ib.srqn);
}

void
guard_init(struct guard *g, size_t room)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	g->room = (room + page - 1) / page * page;
	g->map_len = g->room + 2 * page;
	g->map = mmap(NULL, g->map_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(g->map, MAP_FAILED);
	g->first = g->map + page;
	cr_assert_eq(mprotect(g->first, g->room, PROT_READ | PROT_WRITE), 0);
}

void
guard_free(struct guard *g)
{
	munmap(g->map, g->map_len);
}

uint8_t *
guard_tail(struct guard *g, const void *src, size_t len)
{
	uint8_t *p = g->first + g->room - len;

	cr_assert_leq(len, g->room);
	memcpy(p, src, len);
	return p;
}

uint8_t *
guard_head(struct guard *g, const void *src, size_t len)
{
	cr_assert_leq(len, g->room);
	memcpy(g->first, src, len);
	return g->first;
}

uint64_t
sample_rand(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x * 0x2545f4914f6cdd1d;
}
