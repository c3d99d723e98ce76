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
	uint8_t *big; /* a longer message; or the bytes of a WRITE of a queue pair that is adrift */
};

struct qp {
	bool open, connected, dead;
	bool adrift; /* failed, but what it has sent arrives late, if the other end still exists */
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
	bool said;      /* the peer has got it by CLC or CONFIRM_RKEY */
	bool confirmed; /* the peer was asked to confirm it */
	bool deleted;   /* the peer was asked to delete it */
	unsigned int sys, qp;
	uint32_t rmb;
};

struct rmb {
	uint8_t *mem;
	uint32_t bytes;
	bool keyed;
	unsigned int owner; /* the program that keeps it, 1 to OWNERS; 0: none */
};

struct sys {
	struct world *w;
	struct karst_smc *smc;
	void *mem;
	struct rmb rmbs[RMBS];
	uint64_t validations;
	uint64_t kept, taken; /* buffers */
};

/* Bytes in flight in one direction of a TCP connection. */
struct pipe {
	uint8_t buf[PIPE_MAX];
	uint32_t len, arrived; /* bytes; how many of them have arrived at the reader */
	uint64_t next_ns;
};

enum plan {
	PLAN_NICE,  /* writes everything, shuts down, reads to the end, closes */
	PLAN_CLOSE, /* writes everything and closes; may leave unread bytes */
	PLAN_ABORT, /* aborts at any time */
	PLAN_ECHO,  /* sends back what it reads, over SMC-R only; the other is PLAN_NICE */
};

struct end {
	unsigned int sys;
	struct pair *pair;
	bool opened, connected, fallback, failed, reset, peer_done, closed, released;
	bool send_over; /* it can write no more */
	bool shut_called, close_called, abort_called, unread_at_close, must_abort;
	uint32_t id;
	enum plan plan;
	uint8_t *send_buf;
	uint32_t send_bytes;
	uint64_t total; /* bytes that it will write; PLAN_ECHO: what it has read so far */
	uint64_t given;
	uint64_t freed; /* seen as free */
	uint64_t seen;  /* bytes checked when they arrived */
	uint64_t read;
	uint64_t urgent_last; /* position of the last urgent byte that it was told of */
	unsigned int nurgent;
	uint64_t urgents[64];
	uint64_t next_ns;
	uint64_t tcp_sent, tcp_read; /* after fallback */
	int error;
	uint32_t reason;
	struct pipe in; /* bytes that TCP brings to this end */
};

struct pair {
	struct end e[2]; /* client, server */
	unsigned int n;
	uint64_t open_ns;
	bool done;
	bool decline; /* one end declines SMC-R, or the connection may fall back */
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
	bool second_port; /* both systems have one */
	bool kills;       /* links fail */
	bool one_kill;    /* one of two links fails, once */
	bool kill_done;
	uint64_t kill_ns;
	bool no_common_eid;
	bool deaths;         /* a group may have died */
	unsigned int echoed; /* pairs whose echo has sent back all that it was sent */
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
/** Checks that no queue pair is open and no buffer has a key; @end: and that no buffer is open. */
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
/** Checks that the bytes of @from at @pos of its send buffer have not changed. */
void pair_check_send(struct world *w, const struct end *from, uint64_t pos, uint32_t len);
/** Called after each message that has arrived at a system. */
void pair_came(struct world *w, unsigned int sys);

#endif /* SIM_SMC_H */
