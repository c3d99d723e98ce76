/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The server: the target with its transport, and the loop that runs them. */
#ifndef SERVER_H
#define SERVER_H

struct nr_config;
struct nr_server;

/* Creates buffers and the channel of connection management.  After a failure nr_server_stop() is
 * needed, too.  Errors are printed on standard error. */
int nr_server_start(struct nr_server *server, const struct nr_config *config);
/* Starts listening; server->target and server->pool must be set. */
int nr_server_open(struct nr_server *server);
/*
 * Runs until a signal ends it.
 *
 * @param signals a signalfd: SIGUSR1 prints counters, SIGHUP reads the sizes of files again, others
 * end the server
 * @return 0, or -ENODEV: the device is gone.
 */
int nr_server_run(struct nr_server *server, int signals);
void nr_server_stop(struct nr_server *server);
/* Prints the counters on standard error. */
void nr_server_print(const struct nr_server *server);

#endif
