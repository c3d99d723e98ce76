/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The test bed of libkarst: a real engine with two ports joined by net_ring, polled by a thread,
 * and contexts that use the control connection of a session.  As an alternative the engine runs in
 * a child process, is reached through a socket, and can be killed.
 */
#ifndef CLIENT_BED_H
#define CLIENT_BED_H

#include <pthread.h>
#include <stdatomic.h>

#include "karst.h"
#include "karst_embed.h"
#include "karst_session.h"

/* libkarst's reason contains this word.  For files that include criterion. */
#define says(word) cr_assert_not_null(strstr(karst_why(), word), "it says: %s", karst_why())

#define BED_PATIENCE_MS 120000u

struct client_bed_config {
	uint32_t lcores;
	bool bound;  /* the lcores are bound, to the last CPU that there is */
	bool forked; /* the engine is in a child process, reached through a socket */
	bool alone;  /* no thread polls the lcores, except as the test does it */
	enum karst_engine_ece ece;
	uint32_t max_cm_ids; /* 0: the engine's default */
};

struct client_bed {
	struct karst_engine *e; /* NULL: the engine is in a child process */
	pthread_t poller;
	atomic_bool stop;
	bool bound, alone;
	atomic_bool at_work;
	pid_t child;
	struct karst_context *ctx;
	struct karst_pd *pd;
	struct karst_cq *cq;
};

/** Creates an engine, a context, a PD and a CQ of 1024; ends the test if anything fails.  @return
 * @bed */
struct client_bed *client_bed_up(struct client_bed *bed, const struct client_bed_config *cfg);
void client_bed_down(struct client_bed *b);
/** Opens another context of the engine in this process. */
struct karst_context *client_bed_open(struct client_bed *b);

/** With "alone": runs one turn of each lcore. */
void client_bed_turn(struct client_bed *b);

/** Kills a forked engine (SIGKILL); returns when it is dead. */
void client_bed_kill(struct client_bed *b);

struct karst_qp_init_attr client_bed_init(struct client_bed *b, enum karst_qp_type type);
/** Creates a QP of 16 requests, 4 SGEs and 64 inline bytes, in RESET, with the bed's PD and CQ. */
struct karst_qp *client_bed_qp(struct client_bed *b, enum karst_qp_type type);
/** Takes @qp to state @to, on port @port (1 or 2) towards QP number @peer on the other port.
 * @return as modify. */
int client_bed_to(struct karst_qp *qp, enum karst_qp_state to, uint32_t port, uint32_t peer);
/** Takes both to RTS, @a on port 1 with @b on port 2. */
void client_bed_connect(struct karst_qp *a, struct karst_qp *b);
struct karst_mr *client_bed_mr(struct client_bed *b, void *mem, size_t len);

/** Waits for one completion; ends the test if none comes. */
struct karst_cqe client_bed_wait(struct karst_cq *cq);
/** Gives the engine time to run; ends the test if it has been called for too long. */
void client_bed_pause(void);
/** Tells whether thread @tid of this process waits in system call @number. */
bool client_bed_in_syscall(pid_t tid, long number);
/** Expects no completion while the engine runs a number of turns. */
void client_bed_nothing(struct karst_cq *cq);

/** Posts one signaled request of one SGE. */
int client_bed_post(struct karst_qp *qp, enum karst_wr_opcode op, uint64_t wr_id,
	struct karst_mr *mr, size_t off, uint32_t len, struct karst_mr *remote, size_t remote_off);
int client_bed_recv(
	struct karst_qp *qp, uint64_t wr_id, struct karst_mr *mr, size_t off, uint32_t len);

#endif /* CLIENT_BED_H */
