/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The SMC service: carries TCP connections of programs (drivers/sockets) over RDMA; lib/smc decides
 * what has to be done.  It is a client of the engine in the engine's process, on a thread of its
 * own.
 *
 *   smc.c             the thread: what it waits for, and the order of its work
 *   smc_prog.c        programs: the socket on which they hand over connections
 *   smc_conn.c        an active connection: events of its program, its peer and lib/smc
 *   smc_conn_life.c   opening a connection with its control page and pair, counting, freeing
 *   smc_pair.c        pairs of sockets by which programs wait
 *   smc_ask.c         calls on sockets by which a program may block the caller
 *   smc_page.c        control pages, which programs keep
 *   smc_direct.c      connections whose two ends both belong to this service
 *   smc_relay.c       a connection that stays on TCP
 *   smc_rdma.c        queue pairs, keys, WRITEs: what lib/smc asks for
 *   smc_option.c      the TCP option
 *   smc_tel.c         telemetry
 */
#ifndef KARSTD_SMC_H
#define KARSTD_SMC_H

#include "conf.h"

struct kd_smc;

/**
 * Call when ports are open and capabilities are not yet given up: loads the program of the TCP
 * option and binds the socket. 0 or -errno, logged.
 */
int kd_smc_create(struct karst_engine *e, const struct kd_conf *conf, struct kd_smc **smc);

/** Call when lcores run: programs can connect from now on. 0 or -errno, logged. */
int kd_smc_start(struct kd_smc *s);

/** Ends connections as if their peers had gone.  Lcores must still run.  NULL is ignored. */
void kd_smc_destroy(struct kd_smc *s);

#endif /* KARSTD_SMC_H */
