/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The XDP program (xdp_roce.bpf.c), which is embedded in the daemon. */
#ifndef KARSTD_XDP_H
#define KARSTD_XDP_H

#include "netdev.h"

/**
 * Creates a file that contains the program; net_af_xdp gets its path from kd_xdp_path().  @return
 * descriptor.
 */
int kd_xdp_file(void);
void kd_xdp_path(int fd, char *path, size_t len);

/**
 * Removes karst's program from an interface if a killed daemon has left it there.  The caller has
 * the socket of kd_netdev_silence(), so no living daemon uses the interface.  -EBUSY: another
 * program is attached.
 */
int kd_xdp_remove_stale(const struct kd_netdev *n);

/**
 * Returns a descriptor of the program that is attached to an interface; -1: there is none, or this
 * process has no permission to ask.
 */
int kd_xdp_program(const char *netdev);

/** Removes @program, if it is still the attached program. */
void kd_xdp_remove(const char *netdev, int program);

#endif /* KARSTD_XDP_H */
