/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "migrate_bed.h"

const struct karst_path alt_path = {.src_mac = {2, 0, 0, 0, 1, 1},
	.dst_mac = {2, 0, 0, 0, 1, 2},
	.src_ip = {[12] = 198, 51, 100, 1},
	.dst_ip = {[12] = 198, 51, 100, 2},
	.port = 1};

void *
migrate_memory(void)
{
	static uint64_t mem[32];

	cr_assert_leq(karst_qp_alternate_bytes(), sizeof(mem));
	return mem;
}

int
migrate_load(
	struct bed *b, const struct karst_path *path, enum karst_mig_state state, unsigned int mask)
{
	struct karst_core_qp_attr a = {.alt_path = *path,
		.alt_port_num = 2,
		.alt_timeout = ALT_TIMEOUT,
		.alternate_mem = migrate_memory(),
		.path_mig_state = state};

	return bed_modify(b, &a, mask);
}

int
migrate_rearm(struct bed *b)
{
	return migrate_load(
		b, &alt_path, KARST_MIG_REARM, KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE);
}

int
migrate_set(struct bed *b, enum karst_mig_state state)
{
	return migrate_load(b, &alt_path, state, KARST_QP_PATH_MIG_STATE);
}

void
expect_exhausted(struct bed *b)
{
	unsigned int i;

	post(b, RDMA_WRITE, 1, .len = 1);
	for (i = 0; i < 5; i++)
		advance_time(b, 4 * RTO);
	expect_wc(b, 1, RETRY_EXC_ERR);
	bed_forget(b);
}

void
expect_mig_at(struct bed *b, int line, enum karst_mig_state state)
{
	struct karst_core_qp_attr a;

	karst_qp_query(b->s->qp, &a);
	cr_assert_eq(a.path_mig_state, state, "line %d: in state %d", line, a.path_mig_state);
}

void
expect_path_at(struct bed *b, int line, const struct karst_path *path)
{
	struct karst_core_qp_attr a;

	karst_qp_query(b->s->qp, &a);
	cr_assert_eq(memcmp(a.path.dst_ip, path->dst_ip, 16), 0, "line %d", line);
	cr_assert_eq(a.path.port, path->port, "line %d", line);
	cr_assert_eq(karst_qp_port(b->s->qp), path->port, "line %d", line);
}

void
expect_via_at(int line, const struct karst_pkt *p, const struct karst_path *path, bool migreq)
{
	cr_assert_eq(memcmp(p->data, path->dst_mac, 6), 0, "line %d", line);
	cr_assert_eq(memcmp(p->data + 26, path->src_ip + 12, 4), 0, "line %d", line);
	cr_assert_eq(memcmp(p->data + 30, path->dst_ip + 12, 4), 0, "line %d", line);
	cr_assert_eq((p->flags & KARST_PKT_MIGREQ) != 0, migreq, "line %d", line);
}

struct bed *
bed_armed(enum karst_qp_type type)
{
	struct setup s = setup_of(type);

	return bed_armed_as(type, &s);
}

struct bed *
bed_armed_as(enum karst_qp_type type, const struct setup *s)
{
	struct bed *b = bed_open(s);

	cr_assert_eq(migrate_rearm(b), 0);
	expect_mig(b, REARM);
	if (type == KARST_QPT_RC) {
		expect_taken(b, send_write(b, R(0), 0, 8));
		expect_via(b, expect_pkt(b, RC_ACK, R(0)), &b->path, false);
	} else {
		expect_taken(b, send_pkt(b, UC_WRITE_ONLY, R(0), .va = VA, .rkey = b->key));
	}
	expect_mig(b, ARMED);
	return b;
}

struct karst_path
peer_migrates(struct bed *b)
{
	struct karst_path old = b->path;

	b->path = alt_path;
	return old;
}
