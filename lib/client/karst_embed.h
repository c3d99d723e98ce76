/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * libkarst in the process of its engine: the door comes from karst_session_door() and leads to
 * the same API, through the same messages and rings, without a socket.
 */
#ifndef KARST_EMBED_H
#define KARST_EMBED_H

#include "karst.h"
#include "karst_ctl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** As karst_open().  The door belongs to the context, which closes it in karst_close(); on
 *  failure it stays the caller's. */
int karst_open_door(const struct karst_ctl_door *door, const struct karst_open_attr *attr,
	struct karst_context **ctx);

#ifdef __cplusplus
}
#endif

#endif /* KARST_EMBED_H */
