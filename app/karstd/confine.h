/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The system calls that a running daemon is left with. */
#ifndef KARSTD_CONFINE_H
#define KARSTD_CONFINE_H

#include <stdbool.h>

struct kd_confine {
	enum { KD_CONFINE_ENGINE, KD_CONFINE_PART } part; /* whose list; part.h */
	bool bpf;                                         /* the engine's has bpf() */
};

/**
 * From here on, no thread of the process makes another system call than those of the list in
 * confine.c; others return ENOSYS.  Cannot be taken back.
 * Nothing happens in a build with sanitizers, which do more.  0 or -errno.
 */
int kd_confine(const struct kd_confine *c);

#endif /* KARSTD_CONFINE_H */
