/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory that has to be copied (karst_copy.h): buf once more, as a region whose addresses must not
 * be dereferenced.  Copies are made when a test says so, and as far as it says. */
#ifndef TEST_QP_COPY_BED_H
#define TEST_QP_COPY_BED_H

#include "harness.h"

#define FAR    (VA + (1ull << 32)) /* buf's address in that region */
#define COPIES 8u
#define ALL    UINT32_MAX

/** The side of the driver. */
struct copy_driver {
	struct karst_copy copy[COPIES];
	bool used[COPIES];
	struct karst_copy *todo[COPIES];
	uint32_t ntodo;
	uint32_t kept;
	bool in_place;         /* packets are kept where they are */
	bool full;             /* no copy is accepted */
	struct room *rooms;    /* with those that were given back, as frames may still refer to
			        * them */
	const uint8_t *mapped; /* memory from here on may be dereferenced */
};

extern struct copy_driver driver;
extern uint32_t far_key;

struct bed *open_far_with(struct setup *s);
struct bed *open_far(enum karst_qp_type type);
/** All packets and copies are the driver's again. */
void close_far(struct bed *b);

/** Makes all copies that are pending now, each up to byte @most.  @return how many. */
uint32_t copy_once(struct bed *b, uint32_t most);
/** Makes all copies that there will be. */
void copy_all(struct bed *b);

#define FAR_SGE(off_, len_)                                          \
	{                                                            \
		.addr = FAR + (off_), .len = (len_), .lkey = far_key \
	}
#define write_far(b, seq, off_, len_)                                                              \
	send_pkt(b, RC_WRITE_ONLY, R(seq), .va = FAR + (off_), .rkey = far_key, .dma_len = (len_), \
		.pay_len = (len_), .ackreq = true)

#endif /* TEST_QP_COPY_BED_H */
