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
#define SERVICE    UINT64_C(0x0000000001060000) /* nodes listen for even service ids */
#define NEVER      UINT64_MAX
#define ECE_WINDOW 10u

enum profile {
	LOSSLESS, /* no message may be sent twice */
	MILD,     /* only users may end connections */
	BRUTAL,   /* any connection may fail, but all must end */
	PROFILES
};

struct flight {
	uint64_t at;
	uint64_t order; /* among messages that arrive at the same time */
	uint32_t node;
	struct karst_cm_path seen;
	uint8_t mad[KARST_CM_MAD_LEN];
};

/* The state of an end, as its user knows it. */
enum step {
	NOT_YET,
	CONNECTING,    /* connect or a SIDR request called */
	ASKED,         /* EV_REQ, EV_SIDR_REQ */
	ACCEPTED,      /* accept called */
	ANSWERED,      /* EV_REP */
	ESTABLISHED,   /* ready called, or EV_RTU */
	DISCONNECTING, /* disconnect called */
	TOLD_TO_END,   /* EV_DREQ */
	ENDED,         /* EV_DREP, EV_DREQ_ERROR, or disconnect_reply called: time-wait */
	OVER,          /* no more events may follow */
	GONE           /* destroyed */
};

/* The answer of a user. */
enum answer { AGREE, REJECT, DESTROY, ANSWERS };

/** One side of a connection. */
struct end {
	uint32_t node;
	uint32_t id;
	uint32_t qpn;
	uint32_t psn;
	enum step step;
	enum answer answer; /* to REQ or REP */
	uint64_t answer_ns; /* time until the answer */
	bool mra;           /* sends an MRA meanwhile */
	bool disconnects;   /* starts to disconnect */
	bool ends_by_destroy;
	uint64_t stay_ns; /* time until it does */
	uint64_t act_at;  /* time of its next action; NEVER: it waits for an event */
	/* what it has done, for the checks of the other end */
	bool did_ready, did_reject, did_disconnect, did_reply, did_destroy, did_give_up;
	/* alternate paths (C4): it has offered one; it was offered one, and answered with @said;
	 * its offer was answered */
	bool did_lap, told_lap, told_apr;
	uint8_t said;      /* enum karst_cm_apr_status */
	unsigned int told; /* number of events */
};

struct conn {
	bool sidr;
	bool unheard; /* no user listens */
	struct end active;
	struct end passive;
	struct karst_cm_ece asked; /* ECE in the REQ */
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

/** Records a violation; only the first one counts. */
void violated(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define REQUIRE(w, cond, ...) ((cond) ? (void)0 : violated(w, __VA_ARGS__))

/* --- link.c --- */

void node_address(uint32_t node, uint8_t ip[16]);
void link_send(
	struct world *w, uint32_t node, const struct karst_cm_path *path, const uint8_t *mad);
/** Time at which the next message arrives. */
uint64_t link_next(const struct world *w);
/** Delivers that message. */
void link_deliver(struct world *w);
void link_clear(struct world *w);

/* --- user.c --- */

void user_draw(struct world *w);
void user_event(struct world *w, uint32_t node, const struct karst_cm_ev *ev);
/** Time of the next action of a user. */
uint64_t user_next(const struct world *w);
void user_act(struct world *w);
/** Nothing more happens: ends that may hang will be destroyed.  @return whether there were any. */
bool user_rouse(struct world *w);
/** Checks the end of a schedule, when nothing more happens. */
void user_judge(struct world *w);

#endif /* SIM_CM_H */
