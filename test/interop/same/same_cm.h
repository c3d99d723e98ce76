/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the cases of rdma_cm have in common. */
#ifndef SAME_CM_H
#define SAME_CM_H

#include <arpa/inet.h>
#include <netinet/in.h>

#include <rdma/rdma_cma.h>

#include "same.h"

#define CM_PORT    7471
#define RESOLVE_MS 2000

extern struct rdma_event_channel *channel;

void cm_open(void);
struct rdma_cm_id *make_id(enum rdma_port_space space);
/** @text "": any address. */
struct sockaddr_in address_of(const char *text, int port);
int bind_to(struct rdma_cm_id *id, const char *text, int port);
/** Waits for it; it is to be acknowledged. */
struct rdma_cm_event *next_cm_event(const char *what);
/** Waits for it; says its kind, status, and @return it, to be acknowledged. */
struct rdma_cm_event *say_cm_event(const char *what);
/** And acknowledges it. */
void take(const char *what);
/** There is none. */
void say_no_cm_event(const char *what);
/** Resolves the way to the port itself; the events are taken silently. */
void resolve(struct rdma_cm_id *id, int port);
void add_qp(struct rdma_cm_id *id);

#endif
