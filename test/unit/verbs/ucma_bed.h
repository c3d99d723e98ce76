/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Files of the rdma_cm device, written to as librdmacm does, over an engine in this process with
 * two joined ports, 10.0.0.1 and 10.0.0.2.
 */
#ifndef UCMA_BED_H
#define UCMA_BED_H

#include "ucma.h"

#include <netinet/in.h>

#include "client_bed.h"

/* enum rdma_cm_event_type of <rdma/rdma_cma.h>, which cannot be included with
 * <rdma/rdma_user_cm.h> */
enum {
	RDMA_CM_EVENT_ADDR_RESOLVED = 0,
	RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
	RDMA_CM_EVENT_CONNECT_REQUEST = 4,
	RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
	RDMA_CM_EVENT_REJECTED = 8,
	RDMA_CM_EVENT_ESTABLISHED = 9,
	RDMA_CM_EVENT_DISCONNECTED = 10,
	RDMA_CM_EVENT_MULTICAST_JOIN = 12,
};

#define HERE  0x0a000001u /* 10.0.0.1 */
#define THERE 0x0a000002u

extern struct client_bed bed;
extern struct kv_cm_engine engine;

void ucma_up(void);
/** The same with an engine that client_bed_kill() can kill. */
void ucma_up_forked(void);
/** Checks that all files are closed and nothing is left, so that the context can be closed. */
void ucma_down(void);

struct kv_cm_file *open_file(int flags);
void close_file(struct kv_cm_file *file);
/** @return 0 or errno. */
int command(struct kv_cm_file *file, uint32_t cmd, const void *in, size_t in_len, size_t out_len);
int create(struct kv_cm_file *file, uint64_t uid, uint16_t ps, uint32_t *id);
uint32_t created(struct kv_cm_file *file, uint64_t uid, uint16_t ps);
int destroy(struct kv_cm_file *file, uint32_t id, uint32_t *events);
struct sockaddr_in6 address(uint32_t ip, uint16_t port);
int bind_to(struct kv_cm_file *file, uint32_t id, uint32_t ip, uint16_t port);
int query(struct kv_cm_file *file, uint32_t id, struct rdma_ucm_query_route_resp *resp);
uint16_t bound_port(struct kv_cm_file *file, uint32_t id);
/** @return errno. */
int get_event(struct kv_cm_file *file, struct rdma_ucm_event_resp *resp);
/** Reads the next event, which must be @event. */
struct rdma_ucm_event_resp expect_event(struct kv_cm_file *file, uint32_t event);

#define COMMAND(file, cmd, in) command(file, RDMA_USER_CM_CMD_##cmd, &(in), sizeof(in), 0)
#define ASK(file, cmd, in, response) \
	command(file, RDMA_USER_CM_CMD_##cmd, &(in), sizeof(in), sizeof(response))

#endif /* UCMA_BED_H */
