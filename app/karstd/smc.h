/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The SMC service: TCP connections of programs (drivers/sockets) that go by RDMA, with what lib/smc
 * says is to be done.  It is a client of the engine in the engine's process, on a thread of its
 * own.
 *
 *   smc.c             the thread: what it waits for, and in which order it looks
 *   smc_prog.c        programs: the socket on which they hand over connections
 *   smc_conn.c        a connection at work: what its program, its peer and lib/smc have done
 *   smc_conn_life.c   a connection opened, with its control page and pair, counted and freed
 *   smc_pair.c        pairs of sockets by which programs wait
 *   smc_ask.c         calls on sockets by which a program may have the caller wait
 *   smc_page.c        control pages, which programs keep
 *   smc_direct.c      two ends that are both of this service
 *   smc_relay.c       a connection that stays on TCP
 *   smc_rdma.c        queue pairs, keys, WRITEs: what lib/smc asks for
 *   smc_option.c      the TCP option
 *   smc_tel.c         telemetry
 */
#ifndef KARSTD_SMC_H
#define KARSTD_SMC_H

#include "conf.h"

struct kd_smc;

/** Ports are open, and capabilities not given up: the TCP option's program is loaded, the socket
 *  bound.  0 or -errno, said. */
int kd_smc_create(struct karst_engine *e, const struct kd_conf *conf, struct kd_smc **smc);

/** Lcores run: programs may come.  0 or -errno, said. */
int kd_smc_start(struct kd_smc *s);

/** Connections end as if their peers had gone.  Lcores still run.  NULL is ignored. */
void kd_smc_destroy(struct kd_smc *s);

#endif /* KARSTD_SMC_H */
