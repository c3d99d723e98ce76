/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Shared code of the tests of connection management: programs, each with its own context and
 * channel, and the two ends of a connection.  Any error ends the test.
 */
#ifndef RDMACM_BED_H
#define RDMACM_BED_H

#include "client_bed.h"
#include "karst_rdmacm.h"

#define SERVICE 7471u

struct program {
	struct client_bed b; /* its own context, PD and CQ */
	struct karst_rdmacm_channel *ch;
	struct karst_mr *mr;
	uint8_t mem[8192];
};

struct program *program_up(struct client_bed *bed);
/** Of an engine of one's own, with a context that is there. */
struct program *program_over(struct karst_context *ctx);
void program_down(struct program *p);

/** An identifier of RC. */
uint32_t make_id(struct program *p, uint64_t uid);
/** Of UD. */
uint32_t make_ud_id(struct program *p, uint64_t uid);
/** @events: as many as must have been got of it. */
void destroy_id(struct program *p, uint32_t id, uint32_t events);
/** Good for the next three calls. */
const struct sockaddr *addr(const char *ip, uint16_t port);

bool readable(const struct program *p, int ms);
/** Nothing waits, and the descriptor says so. */
void expect_silence(struct program *p);
/** The next event. */
struct karst_rdmacm_event expect(
	struct program *p, enum karst_rdmacm_event_type type, uint64_t uid);

struct end {
	struct program *p;
	uint32_t id;
	struct karst_qp *qp;
};

/** As the connection says. */
void to_state(struct end *e, enum karst_qp_state state);
uint32_t listen_on(struct program *p, const char *ip, uint16_t port, uint64_t uid);
/** Up to where it can connect to SERVICE at @dst; @src NULL: the engine chooses. */
void resolve(struct end *e, const char *src, const char *dst, uint64_t uid);
struct karst_rdmacm_conn_param param_of(const struct end *e, const char *text);
/** An identifier and a queue pair in INIT: all but the request. */
void ready_end(struct end *e, const char *src, const char *dst, uint64_t uid);
/** The same, and the request. */
void connect_end(struct end *e, const char *src, const char *dst, uint64_t uid, const char *text);
/** The answer to such a request, with "welcome". */
void accept_end(struct end *e, uint64_t listen_uid, uint64_t uid, const char *expected);
/** What the asking end does with it. */
void finish_end(struct end *e, uint64_t uid, uint32_t peer_qpn);
/** Messages from @a to @b. */
void exchange(struct end *a, struct end *b);

#endif /* RDMACM_BED_H */
