/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * libkarst in the process of its engine: the control connection comes from karst_session_conn().
 * API, messages and rings are the same as those of a program that attaches through a socket.
 */
#ifndef KARST_EMBED_H
#define KARST_EMBED_H

#include "karst.h"
#include "karst_ctl.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * As karst_open().  The control connection belongs to the context, and karst_close() closes it; if
 * the call fails, it stays the caller's.
 *
 * No thread of karst attends to the session behind the connection.  Events that found no room
 * because the program had not read earlier ones are sent at its next control call, or when the
 * program attends to the session.  So a program that waits for events must attend to it, in the
 * loop in which it waits: see karst_session_conn().
 */
int karst_open_conn(const struct karst_ctl_conn *conn, const struct karst_open_attr *attr,
	struct karst_context **ctx);

#ifdef __cplusplus
}
#endif

#endif /* KARST_EMBED_H */
