/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Functions that the cases of rdma_cm share. */
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
/** @text "": the wildcard address. */
struct sockaddr_in address_of(const char *text, int port);
int bind_to(struct rdma_cm_id *id, const char *text, int port);
/** Waits for an event, which the caller must acknowledge. */
struct rdma_cm_event *next_cm_event(const char *what);
/** Waits for an event and prints its kind and status.
 *  @return the event, which the caller must acknowledge */
struct rdma_cm_event *say_cm_event(const char *what);
/** As say_cm_event(), and acknowledges the event. */
void take(const char *what);
/** Prints "no event", or the event that has come. */
void say_no_cm_event(const char *what);
/** Resolves the address of the port itself and the route to it; prints no events. */
void resolve(struct rdma_cm_id *id, int port);
void add_qp(struct rdma_cm_id *id);

#endif
