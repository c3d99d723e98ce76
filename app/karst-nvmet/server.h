/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The server: the target over its transport, and the loop that runs them. */
#ifndef SERVER_H
#define SERVER_H

struct nr_config;
struct nr_server;

/* Buffers and the channel of connection management.  On failure call nr_server_stop() all the same.
 * Errors have been told on standard error. */
int nr_server_start(struct nr_server *server, const struct nr_config *config);
/* server->target and server->pool are there: hosts may come. */
int nr_server_open(struct nr_server *server);
/*
 * Until a signal says that it is to end.
 *
 * @param signals a signalfd: SIGUSR1 prints counters, SIGHUP looks at files again, others end it
 * @return 0, or -ENODEV: the device is gone.
 */
int nr_server_run(struct nr_server *server, int signals);
void nr_server_stop(struct nr_server *server);
/* Counters, to standard error. */
void nr_server_print(const struct nr_server *server);

#endif
