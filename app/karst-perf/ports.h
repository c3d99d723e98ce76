/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The pair of DPDK ports and the engine that drives them.  Port 0 with address 10.0.0.1 is that of
 * the client, which posts; port 1 with 10.0.0.2 is that of the server.  A single lcore serves both
 * ports; of two lcores each serves one.
 *
 * The default pair is two net_ring ports over two single-producer, single-consumer rings: one end
 * transmits pointers, which the other end receives.  A ring holds one frame less than it has slots;
 * with few slots the frames stay in the cache.
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
 * Creates ports and engine; EAL must be running.  @max_qps: of each end.
 * @return 0; 2: the ports do not support what the options need; 1: they do not work.  Errors are
 *   printed on stderr.
 */
int perf_ports_open(const struct perf_opts *opts, uint32_t max_qps, struct perf_ports *ports);

/** May be called only when no lcore is attached. */
void perf_ports_close(struct perf_ports *ports);

#endif /* PERF_PORTS_H */
