/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What tests of connection management have in common: programs, each with its own context and
 * channel, and the two ends of a connection.  An unexpected result ends the test.
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
/** A program with an engine of its own, over a context that exists. */
struct program *program_over(struct karst_context *ctx);
void program_down(struct program *p);

/** Creates an identifier of RC. */
uint32_t make_id(struct program *p, uint64_t uid);
/** Creates an identifier of UD. */
uint32_t make_ud_id(struct program *p, uint64_t uid);
/** @events: how many events of the identifier the program must have got. */
void destroy_id(struct program *p, uint32_t id, uint32_t events);
/** The result is valid for the next three calls. */
const struct sockaddr *addr(const char *ip, uint16_t port);

bool readable(const struct program *p, int ms);
/** Expects that no event waits, and that the descriptor is not readable. */
void expect_silence(struct program *p);
/** Waits for the next event. */
struct karst_rdmacm_event expect(
	struct program *p, enum karst_rdmacm_event_type type, uint64_t uid);

struct end {
	struct program *p;
	uint32_t id;
	struct karst_qp *qp;
};

/** Takes the queue pair to @state with the attributes that the connection reports. */
void to_state(struct end *e, enum karst_qp_state state);
uint32_t listen_on(struct program *p, const char *ip, uint16_t port, uint64_t uid);
/** Resolves up to where the end can connect to SERVICE at @dst; @src NULL: the engine chooses. */
void resolve(struct end *e, const char *src, const char *dst, uint64_t uid);
struct karst_rdmacm_conn_param param_of(const struct end *e, const char *text);
/** Makes an identifier and a queue pair in INIT: all but the request. */
void ready_end(struct end *e, const char *src, const char *dst, uint64_t uid);
/** The same, and sends the request. */
void connect_end(struct end *e, const char *src, const char *dst, uint64_t uid, const char *text);
/** Accepts such a request, with "welcome" as private data. */
void accept_end(struct end *e, uint64_t listen_uid, uint64_t uid, const char *expected);
/** What the active end does after the answer. */
void finish_end(struct end *e, uint64_t uid, uint32_t peer_qpn);
/** Sends messages from @a to @b. */
void exchange(struct end *a, struct end *b);

#endif /* RDMACM_BED_H */
