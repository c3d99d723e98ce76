/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * verbs-same: prints the results that a program gets from libibverbs and librdmacm, as lines that
 * can be compared.
 *
 *   verbs-same DEVICE [CASE...]
 *
 * It runs over the kernel's soft-RoCE and over karst, and must print the same lines, except for
 * those in known.tsv (../cases_same.py).  Each case is a process of its own and opens the device.
 * A line is
 *
 *   CASE: WHAT: RESULT
 *
 * and has only results that a program may rely on: the name of an error, the valid fields of a
 * completion, whether a capability is at least what was asked for.
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
#define HANG_S    120  /* limit of a case */
#define RECV_ID   100u /* post_recv() adds this to the wr_id */
#define QKEY      0x1234u
#define ALL_ACCESS                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)

struct same_case {
	const char *name;
	void (*fn)(void);
};

/* The cases of each file; the last entry has no name. */
extern const struct same_case modify_cases[], state_cases[], error_cases[], object_cases[],
	cq_cases[], srq_cases[], ud_cases[], memory_cases[], id_cases[], connection_cases[],
	wr_cases[], meeting_cases[], later_cases[], address_cases[];

/* --- printing --- */

/** Prints a line: "CASE: WHAT: ", and the formatted text. */
void say(const char *what, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Prints the result of a call that returns 0 or an error, or that returns -1 and sets errno. */
void say_rc(const char *what, int rc);
/** Prints the result of a call that returns an object, or NULL and sets errno. */
void say_ptr(const char *what, const void *object);
const char *error_name(int error);
/** Ends the case, which cannot continue. */
_Noreturn void fail(const char *what);
#define MUST(ok)                   \
	do {                       \
		if (!(ok))         \
			fail(#ok); \
	} while (0)

/* --- objects that the cases share, created by bed_open() --- */

extern const char *device_name;
extern char own_address[64]; /* of the port: IPv4, as text */
extern struct ibv_context *ctx;
extern struct ibv_pd *pd;
extern struct ibv_cq *cq; /* of 256 entries */
extern struct ibv_mr *mr; /* of buf, with ALL_ACCESS and windows */
extern uint8_t *buf;      /* BUF_BYTES */
extern int own_index;     /* in the GID table */
extern union ibv_gid own_gid;

struct ibv_context *open_device(void);
/** Creates all of the above. */
void bed_open(void);

/** Attributes for 16 sends, 16 receives, 2 SGEs, 32 inline bytes. */
struct ibv_qp_init_attr qp_init(enum ibv_qp_type type);
struct ibv_qp *make_qp(enum ibv_qp_type type);
/** Valid values for all attributes.  The path leads to the port itself, to queue pair @peer. */
struct ibv_qp_attr full_attr(enum ibv_qp_state state, uint32_t peer);
/** The mask of the attributes that a transition from the state before @to needs. */
int needed(enum ibv_qp_type type, enum ibv_qp_state to);
int move(struct ibv_qp *qp, enum ibv_qp_state to, uint32_t peer);
/** Modifies a queue pair from RESET to INIT, RTR, RTS, SQD or ERR through the states between. */
void bring_to(struct ibv_qp *qp, enum ibv_qp_state to, uint32_t peer);
enum ibv_qp_state state_of(struct ibv_qp *qp);
const char *state_name(enum ibv_qp_state state);
/** qp[0] and qp[1], connected in RTS. */
extern struct ibv_qp *qp[2];
void connect_pair(enum ibv_qp_type type);
/** Resets qp[0] and qp[1] and connects them again, after an error. */
void again(void);

struct ibv_sge piece(size_t off, uint32_t len);
struct ibv_send_wr send_wr(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge *sge);
int post_send(struct ibv_qp *q, uint64_t id, size_t off, uint32_t len);
int post_recv(struct ibv_qp *q, uint64_t id, size_t off, uint32_t len);
/** Waits for a completion. */
struct ibv_wc next_wc(struct ibv_cq *q);
/** Waits for @n completions of @q, and prints them sorted by queue: the sends of qp[0] first. */
void say_wcs(const char *what, struct ibv_cq *q, int n);
/** Waits for a short time, and prints "none" or the completion that has come. */
void say_none(const char *what, struct ibv_cq *q);
/** Waits for an asynchronous event, and prints it. */
void say_async(const char *what);
/** Waits for this event and prints it; ignores other events before it. */
void say_until(const char *what, enum ibv_event_type type);

#endif
