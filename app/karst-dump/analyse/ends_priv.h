/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Declarations that the files of ends_match() share.  ends.c reads the two files.  ends_clocks.c
 * estimates the difference of their clocks and its uncertainty.  ends_fates.c finds which of the
 * packets that were sent have arrived.
 */
#ifndef KARST_DUMP_ENDS_PRIV_H
#define KARST_DUMP_ENDS_PRIV_H

#include "an_priv.h"
#include "ends.h"

#define ENDS_WINDOW 65536u /* packets per direction, for each of sent and arrived; a power of two */
#define ENDS_GROUP  1024u  /* identical packets judged together, for each of sent and arrived */
#define ENDS_FEW    64u    /* as ENDS_GROUP, in ends_settle_plain() */
#define ENDS_NONE   UINT64_MAX

/* A packet that was sent or has arrived. */
struct ends_seen {
	uint64_t frame;
	double ns;             /* by the first clock, since the first capture began */
	uint64_t older, newer; /* neighbours with the same hash */
	uint64_t other;        /* for an arrival: index of the packet that was sent, or NONE */
	uint32_t psn, dqpn, icrc;
	uint16_t slot; /* its hash */
	uint8_t opcode;
	bool icrc_known; /* false: the capture has only its beginning, or it is damaged */
	bool damaged;
	bool matched;
	bool settled;
};

struct ends_window {
	struct ends_seen *at;      /* [ENDS_WINDOW] */
	uint64_t *newest, *oldest; /* [ENDS_WINDOW]: index by hash, or NONE */
	uint64_t n;                /* added so far */
};

/* Time from one clock to the other, the shortest of each block of packets (ends_clocks.c). */
struct ends_times {
	struct ends_block {
		double when, ns; /* of the shortest */
		double most;
	} * at;
	unsigned int n, stride, skipped, filled;
	struct ends_block next;
};

struct ends_lane {
	struct ends_window sent, arrived;
	struct ends_times times;
	double newest_ns; /* while times are measured: send time of the latest-sent arrival */
	uint64_t newest;  /* while fates are found: its index, or NONE */
	/* results of the previous reading */
	double longest_ns; /* longest time that a packet has taken */
	double most_ns;    /* upper bound of the time that packets take, as far as can be told */
	double reorder_ns; /* how much later than its successor a packet may have been sent */
};

/* Identical packets that have no verdict yet (ends_fates.c). */
struct ends_group {
	struct ends_seen *sent[ENDS_GROUP], *arrived[ENDS_GROUP];
	uint64_t sent_at[ENDS_GROUP], arrived_at[ENDS_GROUP]; /* their indices */
	unsigned int n_sent, n_arrived;
	unsigned int of[ENDS_GROUP];                  /* arrived: the sent packet, or ENDS_GROUP */
	unsigned int came[ENDS_GROUP];                /* sent: its arrival, or ENDS_GROUP */
	double after[ENDS_GROUP], before[ENDS_GROUP]; /* arrived: sent between these */
	bool late[ENDS_GROUP], unsure[ENDS_GROUP];    /* sent */
	unsigned int todo[ENDS_GROUP];
	double horizon; /* packets that were sent later are left for the next group */
};

enum ends_pass { ENDS_ROUGHLY, ENDS_EXACTLY, ENDS_FATES };

struct ends_reading {
	struct ends *e;
	enum ends_pass pass;
	struct ends_lane lane[2];      /* what end 0 sends, what end 1 sends */
	double begin_ns[2], end_ns[2]; /* of each capture, by its own clock */
	uint64_t key[2];               /* key of the hashes */
	struct ends_group group;
	bool failed; /* no memory */
};

/* --- windows (ends.c) --- */

static inline struct ends_seen *
ends_at(const struct ends_window *w, uint64_t i)
{
	return &w->at[i % ENDS_WINDOW];
}

static inline bool
ends_has(const struct ends_window *w, uint64_t i)
{
	return i != ENDS_NONE && i < w->n && i + ENDS_WINDOW >= w->n;
}

/** Whether destination QP, opcode and PSN are the same. */
bool ends_is_like(const struct ends_seen *a, const struct ends_seen *b);
/** As ends_is_like(), and also whether the ICRC is the same, as far as it is known. */
bool ends_is_same(const struct ends_seen *a, const struct ends_seen *b);
/** Converts a time by the clock of end @i to the first clock. */
double ends_by_first(const struct ends_reading *r, unsigned int i, double own);

/* --- clocks (ends_clocks.c) --- */

int ends_times_make(struct ends_times *t);
/** Adds a packet that was sent at @when and took @ns, by the clocks as estimated so far. */
void ends_times_add(struct ends_times *t, double when, double ns);
/** Estimates the clocks by medians.  @return whether there was any packet to do so. */
bool ends_clocks_roughly(struct ends_reading *r);
/** Refines the estimate by bounds, and sets its uncertainty. */
void ends_clocks_exactly(struct ends_reading *r);

/* --- fates (ends_fates.c) --- */

/**
 * Gives verdicts on the packets identical to @s, if as many of them have arrived as were sent.
 * They then serve to tell the order of other packets.
 */
void ends_settle_plain(struct ends_reading *r, unsigned int i, const struct ends_seen *s);
/** Gives verdicts on all packets identical to @s, which leaves its window. */
void ends_settle(struct ends_reading *r, unsigned int i, const struct ends_seen *s);
/** Handles an arrival from end @i that leaves its window. */
void ends_arrival_goes(struct ends_reading *r, unsigned int i, const struct ends_seen *s);

#endif /* KARST_DUMP_ENDS_PRIV_H */
