/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A minimal program's end of a session: messages are written by hand, rings are used where the
 * replies say that they are.
 */
#ifndef SESSION_BED_H
#define SESSION_BED_H

#include "engine_bed.h"
#include "karst_ctl_msg.h"
#include "karst_session.h"

#define CLIENT_CHUNKS 64u

struct client {
	struct karst_session *s;
	struct karst_ctl_conn conn;
	int status;
	char why[KARST_CTL_WHY];    /* the reason of a refusal */
	int fds[KARST_CTL_MAX_FDS]; /* those of the last reply, not closed */
	unsigned int nfds;
	int async_fd;
	uint32_t nlcores;
	uint32_t number;
	bool maps;                     /* whether to map chunks that the engine offers */
	uint8_t *chunk[CLIENT_CHUNKS]; /* those that are mapped */
	uint64_t chunk_bytes[CLIENT_CHUNKS];
	struct karst_bell_shared *bell[KARST_ENGINE_MAX_LCORES];
	uint32_t bell_cells;
	uint8_t req[KARST_CTL_MAX] karst_aligned(8);
	uint8_t rsp[KARST_CTL_MAX] karst_aligned(8);
};

/** Opens a session of this process, before HELLO and after it; the test ends if it fails. */
struct client *client_open_raw(struct karst_engine *e, const struct karst_session_limits *limits);
struct client *client_open(struct karst_engine *e, const struct karst_session_limits *limits);
/** The same, over a session that exists. */
struct client *client_over(struct karst_session *s, int mem_fd);
/** The same, for another process of this user. */
struct client *client_of_process(struct karst_engine *e, pid_t pid, int pidfd);
void client_close(struct client *c);
/** Frees what is left when the session has ended. */
void client_free(struct client *c);

/** Sends one request of @op.  @return the status of the reply; its body is at client_rsp(). */
int client_call(struct client *c, uint32_t op, const void *body, size_t bytes);
int client_call_fds(struct client *c, uint32_t op, const void *body, size_t bytes, const int *fds,
	unsigned int nfds);

static inline const void *
client_rsp(const struct client *c)
{
	return c->rsp + sizeof(struct karst_ctl_hdr);
}

/* A call with its body written in place: CALL(c, FREE_PD, free_pd, .pd = 1) */
#define CALL(c, OP, name, ...)                                                        \
	client_call(c, KARST_CTL_##OP, &(struct karst_ctl_##name##_req){__VA_ARGS__}, \
		sizeof(struct karst_ctl_##name##_req))
#define RSP(c, name) ((const struct karst_ctl_##name##_rsp *)client_rsp(c))

/** Expects that the call is refused with @ret, and that the reason contains @word. */
#define refused(c, ret, word, call)                                                   \
	do {                                                                          \
		cr_assert_eq(call, ret, "%s: %d %s", word, (c)->status, (c)->why);    \
		cr_assert_not_null(strstr((c)->why, word), "%s: %s", word, (c)->why); \
	} while (0)

/** What the engine reports of this session; the test ends if there is none. */
struct karst_session_info client_info(struct karst_engine *e, const struct client *c);

/** The address of a place in this process. */
void *client_at(struct client *c, const struct karst_ctl_place *place);

/* Create objects; the test ends if they cannot be made. */
uint32_t client_pd(struct client *c);
uint32_t client_mr(struct client *c, uint32_t pd, void *mem, size_t len);

struct client_cq {
	uint32_t handle;
	uint32_t nlanes;
	struct karst_cq_shared *sh;
	struct karst_cq_lane lane[KARST_ENGINE_MAX_LCORES];
};
void client_cq(struct client *c, uint32_t entries, uint32_t channel, uint64_t cookie,
	struct client_cq *cq);
/** Takes a completion.  @return how many it took: 0 or 1. */
unsigned int client_poll(struct client_cq *cq, struct karst_cqe *cqe);

struct client_qp {
	uint32_t handle;
	uint32_t num;
	uint32_t lcore;
	struct karst_wq sq;
	struct karst_wq rq;
	struct karst_bell_shared *bell;
	uint32_t bell_mask;
};
/** @srq: 0 for none. */
void client_qp(struct client *c, enum karst_qp_type type, uint32_t pd, const struct client_cq *cq,
	uint32_t srq, uint64_t cookie, struct client_qp *qp);
/** Takes the QP to @to, from the state before, with all attributes that the step needs.  @return
 * the status. */
int client_step(struct client *c, const struct engine_bed *bed, const struct client_qp *qp,
	int side, uint32_t peer, enum karst_qp_state to);
/** Connects a QP on port A with one on port B. */
void client_connect(const struct engine_bed *bed, struct client *ca, const struct client_qp *a,
	struct client *cb, const struct client_qp *b);
void client_post(struct client_qp *qp, enum karst_wr_opcode op, uint64_t wr_id, const void *local,
	uint32_t len, uint32_t lkey, uint64_t remote, uint32_t rkey);
void client_post_recv(struct client_qp *qp, uint64_t wr_id, void *buf, uint32_t len, uint32_t lkey);
/** Polls the engine until @cq has a completion. */
bool client_wait(struct engine_bed *bed, struct client_cq *cq, struct karst_cqe *cqe);

#endif /* SESSION_BED_H */
