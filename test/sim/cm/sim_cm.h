/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-sim-cm: lib/cm on virtual time.  One seed determines a schedule completely: the nodes, the
 * connections between them, what each user answers and when, and what happens to each message.
 *
 * main.c  command line; draws a schedule and runs it
 * link.c  messages in flight: lost, duplicated, delayed, reordered
 * user.c  the users of both ends, and which events they may get: the oracle
 */
#ifndef SIM_CM_H
#define SIM_CM_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "../rng.h"
#include "karst_cm.h"
#include "karst_cm_ece.h"

#define MS         UINT64_C(1000000)
#define SECOND     UINT64_C(1000000000)
#define NODES      3u
#define CONNS      24u
#define FLIGHTS    4096u
#define SERVICE    UINT64_C(0x0000000001060000) /* nodes listen for even ones */
#define NEVER      UINT64_MAX
#define ECE_WINDOW 10u

enum profile {
	LOSSLESS, /* nothing may be sent twice */
	MILD,     /* no connection may fail but by its users */
	BRUTAL,   /* anything may fail, but must end */
	PROFILES
};

struct flight {
	uint64_t at;
	uint64_t order; /* of those that arrive at the same time */
	uint32_t node;
	struct karst_cm_path seen;
	uint8_t mad[KARST_CM_MAD_LEN];
};

/* How far an end is, as its user knows. */
enum step {
	NOT_YET,
	CONNECTING,    /* connect called, or SIDR request */
	ASKED,         /* EV_REQ, EV_SIDR_REQ */
	ACCEPTED,      /* accept called */
	ANSWERED,      /* EV_REP */
	ESTABLISHED,   /* ready called, or EV_RTU */
	DISCONNECTING, /* disconnect called */
	TOLD_TO_END,   /* EV_DREQ */
	ENDED,         /* EV_DREP, EV_DREQ_ERROR, or disconnect_reply called: time-wait */
	OVER,          /* nothing more may come */
	GONE           /* destroyed */
};

/* What a user answers. */
enum answer { AGREE, REJECT, DESTROY, ANSWERS };

/** One side of a connection. */
struct end {
	uint32_t node;
	uint32_t id;
	uint32_t qpn;
	uint32_t psn;
	enum step step;
	enum answer answer; /* to REQ or REP */
	uint64_t answer_ns; /* how long it takes */
	bool mra;           /* asks for patience meanwhile */
	bool disconnects;   /* begins to end the connection */
	bool ends_by_destroy;
	uint64_t stay_ns; /* until it does */
	uint64_t act_at;  /* its next action; NEVER: it waits to be told */
	/* what it has done, for the other side's oracle */
	bool did_ready, did_reject, did_disconnect, did_reply, did_destroy, did_give_up;
	/* alternate paths (C4): has offered one, was offered one and said this, was answered */
	bool did_lap, told_lap, told_apr;
	uint8_t said;      /* enum karst_cm_apr_status */
	unsigned int told; /* events */
};

struct conn {
	bool sidr;
	bool unheard; /* nobody listens */
	struct end active;
	struct end passive;
	struct karst_cm_ece asked; /* what the REQ said by ECE */
};

struct world {
	uint64_t seed;
	enum profile profile;
	struct sim_rng rng;
	bool verbose;
	uint64_t now_ns;
	uint32_t nnodes;
	struct karst_cm *cm[NODES];
	void *mem[NODES];
	uint32_t listener[NODES];
	uint32_t nconns;
	struct conn conns[CONNS];
	/* the link */
	uint32_t loss_ppm;
	uint32_t double_ppm;
	uint64_t delay_min_ns;
	uint64_t delay_max_ns;
	struct flight *flights[FLIGHTS];
	uint32_t nflights;
	uint64_t sent;
	uint64_t established;
	/* the first violation */
	bool failed;
	char why[256];
};

/** Says what is wrong; the first one counts. */
void violated(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define REQUIRE(w, cond, ...) ((cond) ? (void)0 : violated(w, __VA_ARGS__))

/* --- link.c --- */

void node_address(uint32_t node, uint8_t ip[16]);
void link_send(
	struct world *w, uint32_t node, const struct karst_cm_path *path, const uint8_t *mad);
/** When the next message arrives. */
uint64_t link_next(const struct world *w);
/** Delivers it. */
void link_deliver(struct world *w);
void link_clear(struct world *w);

/* --- user.c --- */

void user_draw(struct world *w);
void user_event(struct world *w, uint32_t node, const struct karst_cm_ev *ev);
/** When a user next does something. */
uint64_t user_next(const struct world *w);
void user_act(struct world *w);
/** Nothing moves any more: ends that may hang are ended.  @return whether there were any. */
bool user_rouse(struct world *w);
/** At the end, when nothing moves any more. */
void user_judge(struct world *w);

#endif /* SIM_CM_H */
