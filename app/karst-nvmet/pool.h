/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Threads for work that may block.  Commands wait in a list without a limit of its own: there are
 * at most as many as the transport has requests.
 */
#ifndef POOL_H
#define POOL_H

#include <stdint.h>

struct nt_cmd;
struct nt_cmds;
struct nt_pool;

/* @return NULL: no memory, or threads cannot be created. */
struct nt_pool *nt_pool_start(uint32_t threads);
/* Waits for the work in progress; the caller submits no more commands. */
void nt_pool_stop(struct nt_pool *pool);

/* A thread calls cmd->work(), which sets cmd->status. */
void nt_pool_submit(struct nt_pool *pool, struct nt_cmd *cmd);
/* Readable when commands are done. */
int nt_pool_fd(const struct nt_pool *pool);
/* Returns commands that are done. */
void nt_pool_reap(struct nt_pool *pool, struct nt_cmds *done);

#endif
