/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Limits the system calls of a running daemon. */
#ifndef KARSTD_CONFINE_H
#define KARSTD_CONFINE_H

#include <stdbool.h>

struct kd_confine {
	enum { KD_CONFINE_ENGINE, KD_CONFINE_PART } part; /* which list applies; part.h */
	bool bpf;                                         /* the list of the engine includes
							   * bpf() */
};

/**
 * From here on the threads of the process can make only the system calls in the list in confine.c;
 * others return ENOSYS.  This cannot be undone.  Does nothing in a build with sanitizers, which
 * need more system calls. 0 or -errno.
 */
int kd_confine(const struct kd_confine *c);

#endif /* KARSTD_CONFINE_H */
