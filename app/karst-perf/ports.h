/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The pair of DPDK ports and the engine that drives them: port 0 with address 10.0.0.1 is the
 * client's (it posts), port 1 with 10.0.0.2 the server's.  With one lcore it serves both, with
 * two each serves one.
 *
 * The default pair is two net_ring ports over two single-producer, single-consumer rings: what
 * one end transmits is a pointer that the other end receives.  A ring holds as many frames as
 * it has slots less one; few slots keep the frames in the cache.
 */
#ifndef PERF_PORTS_H
#define PERF_PORTS_H

#include "karst_engine.h"
#include "memory.h"

struct perf_ports {
	struct karst_engine *engine;
	char driver[32];                   /* of the ports: "net_ring", ... */
	uint8_t port[PERF_ENDS];           /* the engine's numbers */
	uint32_t lcore[PERF_ENDS];         /* the engine's lcore of each end */
	struct karst_path path[PERF_ENDS]; /* to the other end */
	uint32_t ring_size;
};

/**
 * Makes ports and engine; EAL runs.  @max_qps: of each end.
 * @return 0; 2: the ports do not carry what the options want; 1: they do not work.  Said on
 *   stderr.
 */
int perf_ports_open(const struct perf_opts *opts, uint32_t max_qps, struct perf_ports *ports);

/** No lcore is attached. */
void perf_ports_close(struct perf_ports *ports);

#endif /* PERF_PORTS_H */
