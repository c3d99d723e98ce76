/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Two systems with SMC-R, in virtual time.  wire.c simulates the layers below them: TCP, queue
 * pairs, memory; pair.c the programs, and checks what they receive.
 */
#ifndef SIM_SMC_H
#define SIM_SMC_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <errno.h>

#include "../rng.h"
#include "karst_smc.h"

#define NEVER    UINT64_MAX
#define USEC     UINT64_C(1000)
#define MSEC     UINT64_C(1000000)
#define SEC      UINT64_C(1000000000)
#define PAIRS    300
#define QPS      256
#define KEYS     4096
#define RMBS     512
#define OPS      512
#define OWNERS   2 /* programs of a system that keep buffers */
#define PIPE_MAX 65536

struct world;

struct op {
	bool send, delivered;
	uint64_t deliver_ns, ack_ns;
	struct karst_smc_write w;
	uint32_t len;
	uint8_t msg[128];
	uint8_t *big; /* a longer one; of a WRITE that is adrift its bytes */
};

struct qp {
	bool open, connected, dead;
	bool adrift; /* dead, and what it has sent arrives late, if the other end is there */
	unsigned int sys, peer;
	uint32_t link;
	uint8_t number;
	uint32_t remote_qpn;
	unsigned int first, nops;
	struct op ops[OPS];
	uint64_t last_deliver_ns, last_ack_ns, down_ns, connect_ns;
};

struct key {
	bool valid;
	bool said;      /* the peer was told of it by CLC or CONFIRM_RKEY */
	bool confirmed; /* the peer was asked to confirm it */
	bool deleted;   /* the peer was asked to delete it */
	unsigned int sys, qp;
	uint32_t rmb;
};

struct rmb {
	uint8_t *mem;
	uint32_t bytes;
	bool keyed;
	unsigned int owner; /* who keeps it for his next connection, 1 to OWNERS; 0: nobody */
};

struct sys {
	struct world *w;
	struct karst_smc *smc;
	void *mem;
	struct rmb rmbs[RMBS];
	uint64_t validations;
	uint64_t kept, taken; /* buffers */
};

/* Bytes on their way in one direction of a TCP connection. */
struct pipe {
	uint8_t buf[PIPE_MAX];
	uint32_t len, arrived; /* of len: arrived at the reader */
	uint64_t next_ns;
};

enum plan {
	PLAN_NICE,  /* writes all, shuts down, reads to the end, closes */
	PLAN_CLOSE, /* writes all and closes; may leave something unread */
	PLAN_ABORT, /* goes away at any time */
	PLAN_ECHO,  /* gives back what it reads */
	PLANS
};

struct end {
	unsigned int sys;
	struct pair *pair;
	bool opened, connected, fallback, failed, reset, peer_done, closed, released;
	bool shut_called, close_called, abort_called, unread_at_close, must_abort;
	uint32_t id;
	enum plan plan;
	uint8_t *send_buf;
	uint32_t send_bytes;
	uint64_t total; /* what it wants to write */
	uint64_t given;
	uint64_t freed; /* seen as free */
	uint64_t seen;  /* bytes checked as they came */
	uint64_t read;
	uint64_t urgent_last; /* position of the last urgent byte it gave */
	unsigned int nurgent;
	uint64_t urgents[64];
	uint64_t next_ns;
	uint64_t tcp_sent, tcp_read; /* after fallback */
	int error;
	uint32_t reason;
	struct pipe in; /* what comes on TCP */
};

struct pair {
	struct end e[2]; /* client, server */
	unsigned int n;
	uint64_t open_ns;
	bool done;
	bool decline; /* one of them does not want it */
	bool no_reset_excuse;
};

struct world {
	uint64_t seed;
	struct sim_rng rng;
	uint64_t now_ns;
	bool verbose;
	bool failed;
	char why[512];
	struct sys sys[2];
	struct qp qps[QPS];
	unsigned int nqps;
	struct key keys[KEYS];
	unsigned int nkeys;
	struct pair *pairs[PAIRS];
	unsigned int npairs;
	/* drawn from the seed */
	uint32_t rdma_max_ns, tcp_max_ns, stall_ppm;
	bool keeps;       /* buffers */
	bool second_port; /* both have one */
	bool kills;       /* links die */
	bool one_kill;    /* one of two, once */
	bool kill_done;
	uint64_t kill_ns;
	bool no_common_eid;
	bool deaths; /* a group may have died */
};

void violated(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define REQUIRE(w, cond, ...)                       \
	do {                                        \
		if (!(cond))                        \
			violated((w), __VA_ARGS__); \
	} while (0)

void note(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- wire.c --- */

extern const struct karst_smc_ops wire_ops;
uint64_t wire_next(const struct world *w);
void wire_turn(struct world *w);
void wire_kill(struct world *w, struct qp *qp);
void wire_free(struct world *w);
/** Everything that is open must be accounted for; @end: and gone. */
void wire_judge(struct world *w, bool end);
void pipe_write(struct world *w, struct end *to, const void *buf, uint32_t len);

/* --- pair.c --- */

struct pair *pair_new(struct world *w, unsigned int n);
void pair_free(struct pair *p);
uint64_t pair_next(const struct pair *p);
void pair_turn(struct world *w, struct pair *p);
void pair_events(struct world *w, unsigned int sys);
/** TCP bytes have arrived at @e. */
void pair_tcp(struct world *w, struct end *e);
uint8_t pattern(const struct end *from, uint64_t pos);
void pair_judge(struct world *w, struct pair *p);
/** Bytes of @from that are in its send buffer at @pos are still what they have to be. */
void pair_check_send(struct world *w, const struct end *from, uint64_t pos, uint32_t len);
/** After each message that came to a system. */
void pair_came(struct world *w, unsigned int sys);

#endif /* SIM_SMC_H */
