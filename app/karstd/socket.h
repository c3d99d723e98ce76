/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The listening socket, and the lock that ensures that only one daemon has it.
 *
 * A lock file beside the socket, PATH.lock, is held as long as the daemon lives; the kernel
 * releases it however the daemon ends.  The holder of the lock may remove a socket that a dead
 * daemon has left behind.
 */
#ifndef KARSTD_SOCKET_H
#define KARSTD_SOCKET_H

#include "conf.h"

struct kd_socket {
	char path[KD_TEXT];
	char lock_path[KD_TEXT + 8];
	int lock_fd;
	int fd;       /* listening; -1: not yet */
	bool present; /* there is a socket at path, and this daemon has created it */
};

/** Takes the lock.  @return enum kd_exit; errors are logged. */
int kd_socket_lock(struct kd_socket *s, const struct kd_conf_socket *c);

/** Creates the socket, with owner, group and mode as configured.  @return enum kd_exit. */
int kd_socket_bind(struct kd_socket *s, const struct kd_conf_socket *c);

/** Lets programs connect from now on.  @return enum kd_exit. */
int kd_socket_listen(const struct kd_socket *s, const struct kd_conf_socket *c);

/** Removes the socket and releases the lock; also after failures. */
void kd_socket_close(struct kd_socket *s);

#endif /* KARSTD_SOCKET_H */
