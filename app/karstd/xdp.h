/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The XDP program (xdp_roce.bpf.c), which the daemon carries in itself. */
#ifndef KARSTD_XDP_H
#define KARSTD_XDP_H

#include "netdev.h"

/** The program as a file; net_af_xdp gets its path from kd_xdp_path().  @return descriptor. */
int kd_xdp_file(void);
void kd_xdp_path(int fd, char *path, size_t len);

/**
 * Takes our program off an interface where a killed daemon has left it.  The caller has
 * kd_netdev_silence()'s socket, so no living daemon has the interface.
 * -EBUSY: another program than ours is there.
 */
int kd_xdp_remove_stale(const struct kd_netdev *n);

/** A descriptor of the program that is attached to an interface; -1: there is none, or this process
 *  may not ask. */
int kd_xdp_program(const char *netdev);

/** Takes @program away, if it still is what is attached. */
void kd_xdp_remove(const char *netdev, int program);

#endif /* KARSTD_XDP_H */
