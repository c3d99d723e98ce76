/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Parses a frame to struct karst_pkt (W1 to W6, and the checks of W9 that need no queue pair).
 */
#ifndef KARST_PARSE_H
#define KARST_PARSE_H

#include "karst_counters.h"
#include "karst_pkt.h"

/**
 * Parses one frame.
 *
 * In: p->data and p->len describe all received bytes (Ethernet padding may follow the IP packet);
 * p->port is unchanged.  Never reads outside [data, data + len).
 * Out: on KARST_DROP_NONE every field whose header is present is valid (a field whose header the
 * opcode lacks has an arbitrary value), p->len ends after the ICRC, and p->qp is NULL.  On
 * any other value only data, port and drop are meaningful.
 * The ICRC is not checked.  Any thread.
 *
 * @return p->drop.
 */
enum karst_drop karst_parse(struct karst_pkt *p);

/** Parses a burst, prefetching ahead.  @return how many have drop == KARST_DROP_NONE. */
unsigned int karst_parse_burst(struct karst_pkt *const *pkts, unsigned int n);

#endif /* KARST_PARSE_H */
