/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Management datagrams to peers, from queue pair 1; gsi_rx.h has those from peers. */
#ifndef ENG_GSI_H
#define ENG_GSI_H

#include "gsi_rx.h"

/* Most MADs of one eng_gsi_send(). */
#define ENG_GSI_BURST 32u

/* A MAD to be sent. */
struct eng_gsi_out {
	struct karst_path path;
	const uint8_t *mad; /* ENG_GSI_MAD_BYTES */
};

/* A control call: sends up to ENG_GSI_BURST MADs.  A MAD that cannot be sent is counted and lost,
 * as any datagram may be. */
void eng_gsi_send(struct karst_engine *e, const struct eng_gsi_out *out, unsigned int n);

#endif /* ENG_GSI_H */
