/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * verbs-same: what a program is told by libibverbs and librdmacm, as lines that can be compared.
 *
 *   verbs-same DEVICE [CASE...]
 *
 * It is run over the kernel's soft-RoCE and over karst, and has to say the same, but for what is in
 * known.tsv (../cases_same.py).  Each case is a process of its own and opens the device.  A line is
 *
 *   CASE: WHAT: RESULT
 *
 * and tells only of what a program may rely on: an error's name, those fields of a completion that
 * are valid, that a capability is at least what was asked for.
 */
#ifndef SAME_H
#define SAME_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define BUF_BYTES 65536u
#define HANG_S    120  /* of a case */
#define RECV_ID   100u /* and more: a wr_id of post_recv() */
#define QKEY      0x1234u
#define ALL_ACCESS                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)

struct same_case {
	const char *name;
	void (*fn)(void);
};

/* Of each file, ended by one without a name. */
extern const struct same_case modify_cases[], state_cases[], error_cases[], object_cases[],
	cq_cases[], srq_cases[], ud_cases[], memory_cases[], id_cases[], connection_cases[],
	wr_cases[], meeting_cases[], later_cases[], address_cases[];

/* --- what is said --- */

/** "CASE: WHAT: ", and what follows. */
void say(const char *what, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Of a call that returns 0 or an error, or -1 and sets errno. */
void say_rc(const char *what, int rc);
/** Of a call that returns an object, or NULL and sets errno. */
void say_ptr(const char *what, const void *object);
const char *error_name(int error);
/** Ends the case: it cannot go on. */
_Noreturn void fail(const char *what);
#define MUST(ok)                   \
	do {                       \
		if (!(ok))         \
			fail(#ok); \
	} while (0)

/* --- what cases stand on: the device, made by bed_open() --- */

extern const char *device_name;
extern char own_address[64]; /* of the port: IPv4, as text */
extern struct ibv_context *ctx;
extern struct ibv_pd *pd;
extern struct ibv_cq *cq; /* of 256 entries */
extern struct ibv_mr *mr; /* of buf, with ALL_ACCESS */
extern uint8_t *buf;      /* BUF_BYTES */
extern int own_index;     /* in the GID table */
extern union ibv_gid own_gid;

struct ibv_context *open_device(void);
/** All of the above. */
void bed_open(void);

/** 16 requests each way, 2 pieces, 32 inline bytes. */
struct ibv_qp_init_attr qp_init(enum ibv_qp_type type);
struct ibv_qp *make_qp(enum ibv_qp_type type);
/** Right values for all attributes.  The way leads to the port itself, and to @peer there. */
struct ibv_qp_attr full_attr(enum ibv_qp_state state, uint32_t peer);
/** Those that a transition from the state before needs. */
int needed(enum ibv_qp_type type, enum ibv_qp_state to);
int move(struct ibv_qp *qp, enum ibv_qp_state to, uint32_t peer);
/** From RESET to INIT, RTR, RTS, SQD or ERR by all states between. */
void bring_to(struct ibv_qp *qp, enum ibv_qp_state to, uint32_t peer);
enum ibv_qp_state state_of(struct ibv_qp *qp);
const char *state_name(enum ibv_qp_state state);
/** qp[0] and qp[1], connected in RTS. */
extern struct ibv_qp *qp[2];
void connect_pair(enum ibv_qp_type type);
/** To RESET, and connected again: after an error. */
void again(void);

struct ibv_sge piece(size_t off, uint32_t len);
struct ibv_send_wr send_wr(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge *sge);
int post_send(struct ibv_qp *q, uint64_t id, size_t off, uint32_t len);
int post_recv(struct ibv_qp *q, uint64_t id, size_t off, uint32_t len);
/** Waits for one. */
struct ibv_wc next_wc(struct ibv_cq *q);
/** Waits for @n of @q, and says them by queue: the sends of qp[0] first. */
void say_wcs(const char *what, struct ibv_cq *q, int n);
/** No completion is there, after a while in which one could have come. */
void say_none(const char *what, struct ibv_cq *q);
/** Waits for an asynchronous event, and says it. */
void say_async(const char *what);
/** Waits for this one: there may be others before it. */
void say_until(const char *what, enum ibv_event_type type);

#endif
