/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Alternate paths by libkarst (G2 to G5).  The first queue pair's primary path is from port 1 to
 * port 2, and its alternate path from port 2 to port 1; its peer's are the reverse.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include <criterion/criterion.h>

#include "client_bed.h"
#include "karst_log.h"

#define BYTES 4096u
#define BOTH  (KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE)

static uint8_t mem[2][BYTES];

struct ends {
	struct client_bed b;
	struct karst_qp *qp[2];
	struct karst_mr *mr[2];
};

static void
ends_up(struct ends *t)
{
	int i;

	client_bed_up(&t->b, &(struct client_bed_config){.lcores = 1});
	for (i = 0; i < 2; i++) {
		t->qp[i] = client_bed_qp(&t->b, KARST_QPT_RC);
		t->mr[i] = client_bed_mr(&t->b, mem[i], BYTES);
	}
	client_bed_connect(t->qp[0], t->qp[1]);
}

static void
ends_down(struct ends *t)
{
	int i;

	for (i = 0; i < 2; i++) {
		cr_assert_eq(karst_destroy_qp(t->qp[i]), 0);
		cr_assert_eq(karst_dereg_mr(t->mr[i]), 0);
	}
	client_bed_down(&t->b);
}

/* The path from @port to the other port, to be armed. */
static struct karst_qp_attr
alternate(const struct ends *t, uint8_t port)
{
	struct karst_qp_attr a = {
		.alt_port_num = port,
		.alt_timeout = 16,
		.alt_ah_attr = {.port_num = port, .traffic_class = 0x20, .hop_limit = 9, .sl = 3},
		.path_mig_state = KARST_MIG_REARM,
	};

	cr_assert_eq(karst_query_gid(t->b.ctx, 3u - port, 0, &a.alt_ah_attr.dgid), 0);
	return a;
}

static struct karst_qp_attr
query(struct karst_qp *qp)
{
	struct karst_qp_attr a;

	cr_assert_eq(karst_query_qp(qp, &a, NULL), 0, "%s", karst_why());
	return a;
}

static void
write_once(struct ends *t, int side)
{
	struct karst_cqe c;

	memset(mem[side], mem[1 - side][0] + 1, BYTES);
	cr_assert_eq(client_bed_post(t->qp[side], KARST_WR_RDMA_WRITE, 1, t->mr[side], 0, BYTES,
			     t->mr[1 - side], 0),
		0);
	c = client_bed_wait(t->b.cq);
	cr_assert_eq(c.status, KARST_WC_SUCCESS, "%s", karst_wc_status_str(c.status));
	cr_assert_arr_eq(mem[0], mem[1], BYTES);
}

/* Waits for one event of each queue pair, in any order. */
static void
expect_migrated(struct ends *t)
{
	struct karst_async_event e;
	bool seen[2] = {false, false};
	int i, which;

	for (i = 0; i < 2; i++) {
		do {
			cr_assert_eq(karst_get_async_event(t->b.ctx, &e), 0, "%s", karst_why());
			karst_ack_async_event(&e);
		} while (e.event == KARST_EVENT_COMM_EST);
		cr_assert_eq(e.event, KARST_EVENT_PATH_MIG);
		cr_assert_eq(e.object, KARST_ASYNC_OBJECT_QP);
		which = e.element.qp == t->qp[1];
		cr_assert_eq(e.element.qp, t->qp[which]);
		cr_assert_not(seen[which], "twice");
		seen[which] = true;
	}
}

static void
expect_primary(struct ends *t, int side, uint8_t port)
{
	struct karst_qp_attr is = query(t->qp[side]);

	cr_assert_eq(is.path_mig_state, KARST_MIG_MIGRATED);
	cr_assert_eq(is.port_num, port);
	cr_assert_eq(is.ah_attr.port_num, port);
	cr_assert_eq(is.alt_port_num, 0);
	cr_assert_eq(is.alt_ah_attr.port_num, 0);
}

/* (G2, G3, G4): loaded, armed by the peer, and migrated to; queries report the attributes as they
 * were set. */
Test(client_path, g4_between_two_ports)
{
	const struct karst_qp_attr go = {.path_mig_state = KARST_MIG_MIGRATED};
	struct karst_qp_attr to, is;
	struct ends t;
	uint8_t i;

	ends_up(&t);
	for (i = 0; i < 2; i++) {
		to = alternate(&t, 2 - i);
		cr_assert_eq(karst_modify_qp(t.qp[i], &to, BOTH), 0, "%s", karst_why());
		is = query(t.qp[i]);
		cr_assert_eq(is.alt_port_num, 2 - i);
		cr_assert_eq(is.alt_timeout, 16);
		cr_assert_eq(memcmp(&is.alt_ah_attr, &to.alt_ah_attr, sizeof(to.alt_ah_attr)), 0);
		cr_assert_eq(is.ah_attr.port_num, 1 + i);
	}
	write_once(&t, 0);
	write_once(&t, 1);
	for (i = 0; i < 2; i++)
		cr_assert_eq(query(t.qp[i]).path_mig_state, KARST_MIG_ARMED);
	cr_assert_eq(karst_modify_qp(t.qp[0], &go, KARST_QP_PATH_MIG_STATE), 0, "%s", karst_why());
	write_once(&t, 0);
	expect_migrated(&t);
	for (i = 0; i < 2; i++) {
		expect_primary(&t, i, 2 - i);
		is = query(t.qp[i]);
		cr_assert_eq(is.timeout, 16);
		cr_assert_eq(is.ah_attr.traffic_class, 0x20);
		cr_assert_eq(is.ah_attr.hop_limit, 9);
		cr_assert_eq(is.ah_attr.sl, 3);
	}
	/* and back: the path that is primary now is reported as it was set, too */
	for (i = 0; i < 2; i++) {
		to = alternate(&t, 1 + i);
		cr_assert_eq(karst_modify_qp(t.qp[i], &to, BOTH), 0, "%s", karst_why());
		cr_assert_eq(query(t.qp[i]).ah_attr.sl, 3);
	}
	write_once(&t, 0);
	write_once(&t, 1);
	cr_assert_eq(karst_modify_qp(t.qp[1], &go, KARST_QP_PATH_MIG_STATE), 0, "%s", karst_why());
	write_once(&t, 1);
	expect_migrated(&t);
	for (i = 0; i < 2; i++)
		expect_primary(&t, i, 1 + i);
	ends_down(&t);
}

/* (G2): what is refused, with a reason, and changes nothing. */
Test(client_path, g2_refused)
{
	struct karst_qp_attr to;
	struct ends t;

	ends_up(&t);
	to = alternate(&t, 1);
	to.path_mig_state = KARST_MIG_ARMED;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("path_mig_state 2: must be 0 to 1");
	to = alternate(&t, 1);
	to.alt_port_num = 2;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alt_port_num 2: alt_ah has port_num 1");
	to.alt_port_num = to.alt_ah_attr.port_num = 3;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alternate path: ah.port_num 3: no such port");
	to = alternate(&t, 1);
	to.alt_ah_attr.sgid_index = 77;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alternate path: sgid_index 77");
	to = alternate(&t, 1);
	to.alt_timeout = 32;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alt_timeout 32: must be 0 to 31");
	to = alternate(&t, 1);
	to.alt_pkey_index = 1;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alt_pkey_index 1");
	to = alternate(&t, 1);
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_PATH_MIG_STATE), -EINVAL);
	says("there is no alternate path");
	cr_assert_eq(query(t.qp[0]).alt_port_num, 0);
	cr_assert_eq(query(t.qp[0]).path_mig_state, KARST_MIG_MIGRATED);
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), 0, "%s", karst_why());
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_ALT_PATH), -EINVAL);
	says("only with PATH_MIG_STATE REARM");
	to.path_mig_state = KARST_MIG_MIGRATED;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_PATH_MIG_STATE), -EINVAL);
	says("in REARM");
	cr_assert_eq(query(t.qp[0]).path_mig_state, KARST_MIG_REARM);
	/* RESET forgets the alternate path, whatever was loaded */
	to.qp_state = KARST_QPS_RESET;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_STATE), 0);
	cr_assert_eq(query(t.qp[0]).alt_port_num, 0);
	ends_down(&t);
}

static atomic_uint lines;

static void
count_lines(enum karst_log_level level, const char *fmt, va_list ap)
{
	lines += level <= KARST_LOG_NOTICE;
}

/* An MTU that the port of an alternate path does not carry is reported to the program, and not to
 * the log, which the program could make as long as it likes. */
Test(client_path, g2_mtu)
{
	struct karst_qp_attr to, sqd = {.qp_state = KARST_QPS_SQD};
	struct ends t;

	ends_up(&t);
	cr_assert_eq(karst_engine_port_set_mtu(t.b.e, 1, 600), 0);
	karst_log_set_sink(count_lines);
	to = alternate(&t, 2);
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alternate path: path_mtu 3 (1024 bytes): MTU 600 of port 2 carries 512");
	cr_assert_eq(karst_modify_qp(t.qp[0], &sqd, KARST_QP_STATE), 0, "%s", karst_why());
	to.ah_attr = to.alt_ah_attr;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_AV), -EINVAL);
	says("path_mtu 3 (1024 bytes): MTU 600 of port 2 carries 512");
	cr_assert_eq(lines, 0);
	cr_assert_eq(query(t.qp[0]).ah_attr.port_num, 1);
	ends_down(&t);
}

/* (G5): the port of an alternate path is removed. */
Test(client_path, g5_port_is_gone)
{
	struct karst_async_event e;
	struct karst_qp_attr to;
	struct ends t;

	ends_up(&t);
	to = alternate(&t, 2);
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), 0, "%s", karst_why());
	cr_assert_eq(karst_engine_port_lose(t.b.e, 1), 0);
	do {
		cr_assert_eq(karst_get_async_event(t.b.ctx, &e), 0, "%s", karst_why());
		karst_ack_async_event(&e);
	} while (e.event == KARST_EVENT_COMM_EST);
	cr_assert_eq(e.event, KARST_EVENT_PATH_MIG_ERR, "event %d", e.event);
	cr_assert_eq(e.element.qp, t.qp[0]);
	cr_assert_eq(query(t.qp[0]).alt_port_num, 0);
	cr_assert_eq(query(t.qp[0]).path_mig_state, KARST_MIG_MIGRATED);
	ends_down(&t);
}
