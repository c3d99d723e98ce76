/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* For programs that end when a call fails. */
#ifndef VERBS_MUST_H
#define VERBS_MUST_H

#include <stdio.h>
#include <stdlib.h>

static inline void
must(int ret, const char *what)
{
	if (ret == 0)
		return;
	perror(what);
	exit(1);
}

#endif /* VERBS_MUST_H */
