/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The BPF program of the TCP option (smc_option.bpf.c).  It is embedded in the daemon, which loads
 * it and attaches it to a folder of cgroup2.  It is removed when its descriptors are closed, also
 * at the end of the daemon.
 */
#ifndef KARSTD_SMC_OPTION_H
#define KARSTD_SMC_OPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "karst_engine.h"
#include "smc_option_map.h"

struct kd_smc_option {
	struct bpf_object *object;
	struct bpf_link *link;
	int sockets, agreed, refused; /* maps */
	_Atomic uint64_t *counts;     /* KD_SMC_COUNTS counters, in the order of the program */
};

/**
 * Loads and attaches the program.  Needs CAP_BPF and CAP_NET_ADMIN.  @cgroup empty: the root.
 * @locals: networks of this machine's addresses; @peers: networks of peers, none means all. 0 or
 * -errno, logged.
 */
int kd_smc_option_load(struct kd_smc_option *o, const char *cgroup,
	const struct karst_engine_addr *locals, uint32_t nlocals,
	const struct karst_engine_addr *peers, uint32_t npeers);
void kd_smc_option_unload(struct kd_smc_option *o);

/**
 * Is @fd a TCP socket of a connection on which both sides have sent the option?  @return 0;
 * -ENOTSOCK or -ENODATA if not; -ENOTCONN: the connection has ended since
 */
int kd_smc_option_ends(const struct kd_smc_option *o, int fd, struct kd_smc_option_ends *ends);

/** Stops or resumes offering the option to a peer. */
void kd_smc_option_refuse(const struct kd_smc_option *o, const uint8_t ip[16], bool refuse);

#endif /* KARSTD_SMC_OPTION_H */
