/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Common code of the targets of lib/smc: what must hold after every step, whatever the peer did. */
#ifndef KARST_TEST_FUZZ_SMC_H
#define KARST_TEST_FUZZ_SMC_H

#include "bed.h"
#include "input.h"

/* All that system @sys has sent has been delivered, and was complete. */
static inline void
smc_swallow(struct bed *b, unsigned int sys)
{
	struct bed_sys *s = &b->s[sys];

	while (s->head != s->tail) {
		struct bed_msg *m = &s->out[s->head++ % BED_QUEUE];

		if (m->kind == 's')
			karst_smc_link_sent(s->smc, m->link, 1);
	}
}

static inline void
smc_holds(struct bed *b, unsigned int sys)
{
	struct karst_smc_conn_info i;

	if (karst_smc_conn_info(b->s[sys].smc, b->s[sys].conn, &i) != 0)
		return;
	CHECK(i.state != KARST_SMC_FREE && karst_smc_state_name(i.state) != NULL);
	CHECK(i.consumed_pos <= i.recv_pos && i.recv_pos - i.consumed_pos <= i.rmb_bytes);
	CHECK(i.free_pos <= i.written_pos && i.written_pos <= i.sent_pos);
	CHECK(i.state < KARST_SMC_ACTIVE || i.peer_pos <= i.written_pos);
	CHECK(i.state < KARST_SMC_ACTIVE || i.written_pos - i.peer_pos <= i.peer_bytes);
	CHECK(i.state != KARST_SMC_FELL_BACK || karst_smc_reason_text(i.reason) != NULL ||
		!i.local);
	CHECK(i.state != KARST_SMC_FAILED || i.error != 0);
}

/* Lets time pass until everything has ended, and checks that nothing is left. */
static inline void
smc_ends(struct bed *b, unsigned int sys)
{
	struct bed_sys *s = &b->s[sys];
	struct karst_smc_conn_info i;

	karst_smc_conn_close(s->smc, s->conn);
	for (unsigned int turn = 0; turn < 2000 && karst_smc_next_ns(s->smc) != UINT64_MAX;
		turn++) {
		smc_swallow(b, sys);
		if (karst_smc_conn_info(s->smc, s->conn, &i) == 0 &&
			i.state == KARST_SMC_PROCESS_ABORT)
			karst_smc_conn_close(s->smc, s->conn);
		karst_smc_conn_release(s->smc, s->conn);
		s->smc->now_ns = karst_smc_next_ns(s->smc) == UINT64_MAX
			? s->smc->now_ns
			: karst_smc_next_ns(s->smc);
		karst_smc_expire(s->smc, 100);
	}
	smc_swallow(b, sys);
	karst_smc_conn_release(s->smc, s->conn);
	CHECK(s->smc->nconns == 0);
	CHECK(s->smc->ngroups == 0);
}

#endif /* KARST_TEST_FUZZ_SMC_H */
