/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What a sleeping lcore can wait for: the sockets in which drivers of kernel interfaces receive,
 * and taps.
 * DPDK does not say which they are, so they are found by comparing the descriptors of this process
 * before and after the device was made.
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

/** Descriptors that a driver receives frames from: AF_PACKET and AF_XDP sockets, or else taps, in
 *  the order in which they were opened, which is that of the queues. */
void kd_wake_scan(struct kd_fds *fds, bool taps);

/** Takes out of @fds what is in @before. */
void kd_wake_only_new(struct kd_fds *fds, const struct kd_fds *before);

/** Is it an AF_PACKET socket? */
bool kd_wake_is_packet(int fd);

#endif /* KARSTD_WAKE_H */
