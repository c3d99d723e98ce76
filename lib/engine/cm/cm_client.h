/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A program in connection management: a part of its session. */
#ifndef ENG_CM_CLIENT_H
#define ENG_CM_CLIENT_H

#include <sys/types.h>

#include "handles.h"

/* Protected by the lock of connection management (cm.h). */
struct cm_client {
	struct handles channels, ids, groups;
	uid_t uid;
};

#endif /* ENG_CM_CLIENT_H */
