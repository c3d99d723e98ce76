/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Writes messages of karst (karst_log()) and of DPDK to stderr, syslog or a file.
 *
 * Writing never fails for the caller.  Messages that could not be written to a file, because its
 * disk is full, are counted, and the count is the first thing that is written when that is possible
 * again.
 */
#ifndef KARSTD_LOG_H
#define KARSTD_LOG_H

#include "conf.h"
#include "karst_log.h"

/**
 * Call before anything else logs.  A log file is not opened yet, because it has to belong to the
 * user that the daemon becomes: until kd_log_open() messages are written to stderr instead.
 */
void kd_log_begin(const struct kd_conf_log *c);

/**
 * Call when the daemon has its user, and again at SIGHUP, which opens the file again.  If a file
 * cannot be opened: -errno, with a message to the previous target, which stays.
 */
int kd_log_open(const struct kd_conf_log *c);

/**
 * Redirects karst_log() to this file.  An engine sets a sink of its own when it is created, so this
 * has to be called before and after that.
 */
void kd_log_take_karst(void);

/** The same for DPDK; before rte_eal_init(). */
void kd_log_take_dpdk(void);

/** The same for libbpf; before its first call. */
void kd_log_take_libbpf(void);

void kd_log_close(void);

struct kd_hush {
	int type, level; /* -1: DPDK has no such type */
};

/**
 * Suppresses DPDK's messages of a type, such as "pmd.net.memif", except critical ones, until
 * kd_log_speak().
 */
void kd_log_hush(struct kd_hush *h, const char *type);
void kd_log_speak(const struct kd_hush *h);

#endif /* KARSTD_LOG_H */
