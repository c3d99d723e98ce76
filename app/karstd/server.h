/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs that attach: each connection has a thread and a session (karst_session.h).
 *
 * A connection that may not attach also gets an answer: its first request is refused with the
 * reason.
 */
#ifndef KARSTD_SERVER_H
#define KARSTD_SERVER_H

#include "conf.h"
#include "part.h"

struct kd_server;

/** Copies the parts of @conf that it needs; @part must outlive the server.  NULL: no memory. */
struct kd_server *kd_server_create(
	struct karst_engine *e, const struct kd_conf *conf, struct kd_part *part);

/** Accepts a connection, if one waits.  @return 0; -EAGAIN, -EMFILE, ...: try again later. */
int kd_server_accept(struct kd_server *s, int listen_fd);

/** Sets the limits for programs that attach from now on. */
void kd_server_set_limits(struct kd_server *s, const struct kd_conf *conf);

/**
 * Called from time to time: interrupts threads that only wait because closing a descriptor that a
 * program has sent takes long.
 */
void kd_server_watch(struct kd_server *s);

/**
 * Ends all attachments, and waits until the last one has ended.  @return false: some do not end, so
 * the engine and the server stay in use until this process ends.
 */
bool kd_server_destroy(struct kd_server *s);

/**
 * Afterwards, immediately before this process ends without its threads: tells the programs that the
 * engine is gone.  A thread that no signal ends keeps all descriptors open.
 */
void kd_server_hang_up(struct kd_server *s);

#endif /* KARSTD_SERVER_H */
