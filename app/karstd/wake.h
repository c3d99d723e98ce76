/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Finds the descriptors that a sleeping lcore can wait for: taps, and the sockets in which drivers
 * of kernel interfaces receive.  DPDK does not report them, so they are found by comparing the
 * descriptors of this process before and after the device is created.
 */
#ifndef KARSTD_WAKE_H
#define KARSTD_WAKE_H

#include <stdbool.h>
#include <stdint.h>

#define KD_MAX_FDS 256u

struct kd_fds {
	uint32_t n;
	int fd[KD_MAX_FDS];
};

/**
 * Returns the descriptors that a driver receives frames from: AF_PACKET and AF_XDP sockets, or with
 * @taps taps instead.  They are in the order in which they were opened, which is that of the
 * queues.
 */
void kd_wake_scan(struct kd_fds *fds, bool taps);

/** Removes the descriptors from @fds that are in @before. */
void kd_wake_only_new(struct kd_fds *fds, const struct kd_fds *before);

/** Is it an AF_PACKET socket? */
bool kd_wake_is_packet(int fd);

#endif /* KARSTD_WAKE_H */
