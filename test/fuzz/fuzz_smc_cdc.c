/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: CDC, from a peer with a connection, and a program that uses it.
 *
 * An input is a list of steps: a CDC message, whole or as changes to what a correct peer would
 * send, or a call of the program.  What must hold: no sanitizer report; positions stay in order and
 * within buffers; no WRITE goes outside of the peer's element; and everything ends.
 */
#include "fuzz.h"
#include "smc.h"

static void
message(struct bed *b, struct input *in, bool whole)
{
	struct karst_smc_conn_info i = bed_info(b, 1);
	struct karst_smc_cdc m;
	uint8_t buf[KARST_SMC_CDC_LEN];

	if (whole) {
		bytes(in, buf, sizeof(buf));
	} else {
		m = (struct karst_smc_cdc){.seq = u8(in),
			.token = 1,
			.prod = karst_smc_cursor_of(
				i.recv_pos + u16(in) % 20000 - 100 * (u8(in) & 1), i.rmb_bytes),
			.prod_flags = u8(in),
			.conn_flags = (uint8_t)(u8(in) & 0xe0 & u8(in))};
		m.cons = i.peer_bytes == 0
			? m.prod
			: karst_smc_cursor_of(i.peer_pos + u16(in) % 20000, i.peer_bytes);
		karst_smc_cdc_build(&m, buf);
	}
	karst_smc_link_rx(b->s[1].smc, b->s[1].links[0], buf, sizeof(buf));
}

static void
look_at_writes(struct bed *b)
{
	for (unsigned int n = b->s[1].head; n != b->s[1].tail; n++) {
		const struct bed_msg *m = &b->s[1].out[n % BED_QUEUE];

		CHECK(m->kind != 'w' || (uint32_t)m->w.vaddr + m->w.len <= BED_BYTES);
	}
}

static void
step(struct bed *b, struct input *in)
{
	struct bed_sys *s = &b->s[1];
	uint8_t what = u8(in);

	switch (what & 7) {
	case 0:
		message(b, in, true);
		break;
	case 1:
	case 2:
		message(b, in, false);
		break;
	case 3:
		karst_smc_conn_send(s->smc, s->conn, u16(in), what & 8);
		break;
	case 4:
		karst_smc_conn_consumed(s->smc, s->conn, u16(in));
		break;
	case 5:
		karst_smc_conn_shutdown(s->smc, s->conn);
		break;
	case 6:
		if (what & 8)
			karst_smc_conn_close(s->smc, s->conn);
		else if (what & 16)
			karst_smc_conn_abort(s->smc, s->conn);
		break;
	case 7:
		s->smc->now_ns += UINT64_C(1000000) << (what >> 4);
		karst_smc_expire(s->smc, 10);
	}
	look_at_writes(b);
	if (what & 64)
		smc_swallow(b, 1);
	smc_holds(b, 1);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct bed *b = bed_new(NULL);
	unsigned int steps = 40;

	CHECK(bed_connect(b));
	while (in.left > 0 && steps-- > 0)
		step(b, &in);
	smc_ends(b, 1);
	bed_free(b);
	return 0;
}
