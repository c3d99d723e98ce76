/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Where messages go: karst's own (karst_log()) and DPDK's, to stderr, syslog or a file.
 *
 * Writing never fails for the caller.  What a file does not take, because its disk is full, is
 * counted, and the count is the first thing written when it takes some again.
 */
#ifndef KARSTD_LOG_H
#define KARSTD_LOG_H

#include "conf.h"
#include "karst_log.h"

/** Before anything else logs, and again at SIGHUP: the file is opened anew.  -errno with words on
 *  stderr if a file cannot be opened; the previous target stays. */
int kd_log_open(const struct kd_conf_log *c);

/** Makes karst_log() come here.  An engine sets a sink of its own when it is created, so this is
 *  to be called before and after that. */
void kd_log_take_karst(void);

/** The same for DPDK; before rte_eal_init(). */
void kd_log_take_dpdk(void);

/** The same for libbpf; before its first call. */
void kd_log_take_libbpf(void);

void kd_log_close(void);

struct kd_hush {
	int type, level; /* -1: it has no such type */
};

/** DPDK's logs of a type, "pmd.net.memif", are kept back, but for what is critical, until ... */
void kd_log_hush(struct kd_hush *h, const char *type);
void kd_log_speak(const struct kd_hush *h);

#endif /* KARSTD_LOG_H */
