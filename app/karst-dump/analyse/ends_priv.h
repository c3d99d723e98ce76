/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the parts of ends_match() share: ends.c reads the two files, ends_clocks.c finds out what
 * their clocks differ by and how well that is known, ends_fates.c which of the packets that were
 * sent have arrived.
 */
#ifndef KARST_DUMP_ENDS_PRIV_H
#define KARST_DUMP_ENDS_PRIV_H

#include "an_priv.h"
#include "ends.h"

#define ENDS_WINDOW 65536u /* packets of a direction, each of sent and arrived; a power of two */
#define ENDS_GROUP  1024u  /* equal packets that are judged at once, each of sent and arrived */
#define ENDS_FEW    64u    /* and at once with those that tell of the order */
#define ENDS_NONE   UINT64_MAX

/* A packet that was sent or has arrived. */
struct ends_seen {
	uint64_t frame;
	double ns;             /* by the first clock, since the first capture began */
	uint64_t older, newer; /* with the same hash */
	uint64_t other;        /* arrived: index of what was sent, or NONE */
	uint32_t psn, dqpn, icrc;
	uint16_t slot; /* its hash */
	uint8_t opcode;
	bool icrc_known; /* false: the capture holds its beginning only, or it is damaged */
	bool damaged;
	bool matched;
	bool settled;
};

struct ends_window {
	struct ends_seen *at;      /* [ENDS_WINDOW] */
	uint64_t *newest, *oldest; /* [ENDS_WINDOW]: with that hash, or NONE */
	uint64_t n;                /* so far */
};

/* The time from one clock to the other, of each so many packets (ends_clocks.c). */
struct ends_times {
	struct ends_block {
		double when, ns; /* the shortest */
		double most;
	} * at;
	unsigned int n, stride, skipped, filled;
	struct ends_block next;
};

struct ends_lane {
	struct ends_window sent, arrived;
	struct ends_times times;
	double newest_ns; /* sent latest of those that have arrived; while times are taken */
	uint64_t newest;  /* its index, while fates are found; or NONE */
	/* as the reading before has shown */
	double longest_ns; /* that a packet has taken */
	double most_ns;    /* no packet takes longer, as far as can be told */
	double reorder_ns; /* so much later may have been sent what arrives before */
};

/* Equal packets, as far as they are not settled (ends_fates.c). */
struct ends_group {
	struct ends_seen *sent[ENDS_GROUP], *arrived[ENDS_GROUP];
	uint64_t sent_at[ENDS_GROUP], arrived_at[ENDS_GROUP]; /* their indices */
	unsigned int n_sent, n_arrived;
	unsigned int of[ENDS_GROUP];                  /* arrived: which was sent; or ENDS_GROUP */
	unsigned int came[ENDS_GROUP];                /* sent: as which it arrived; or ENDS_GROUP */
	double after[ENDS_GROUP], before[ENDS_GROUP]; /* arrived: sent between these */
	bool late[ENDS_GROUP], unsure[ENDS_GROUP];    /* sent */
	unsigned int todo[ENDS_GROUP];
	double horizon; /* what was sent later is left for the next group */
};

enum ends_pass { ENDS_ROUGHLY, ENDS_EXACTLY, ENDS_FATES };

struct ends_reading {
	struct ends *e;
	enum ends_pass pass;
	struct ends_lane lane[2];      /* what end 0 sends, what end 1 sends */
	double begin_ns[2], end_ns[2]; /* of both captures, each by its own clock */
	uint64_t key[2];               /* of hashes */
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

/** Destination, opcode and PSN are the same. */
bool ends_is_like(const struct ends_seen *a, const struct ends_seen *b);
/** And the ICRC, as far as it is known. */
bool ends_is_same(const struct ends_seen *a, const struct ends_seen *b);
/** Time by the clock of end @i, by the first clock. */
double ends_by_first(const struct ends_reading *r, unsigned int i, double own);

/* --- clocks (ends_clocks.c) --- */

int ends_times_make(struct ends_times *t);
/** A packet that was sent at @when has taken @ns, both as the clocks are taken to be. */
void ends_times_add(struct ends_times *t, double when, double ns);
/** Puts the clocks right, by medians.  @return whether anything has told. */
bool ends_clocks_roughly(struct ends_reading *r);
/** Puts them right by what cannot be, and says how well they are known. */
void ends_clocks_exactly(struct ends_reading *r);

/* --- fates (ends_fates.c) --- */

/** Packets equal to @s of which as many have arrived as were sent: they tell of the order. */
void ends_settle_plain(struct ends_reading *r, unsigned int i, const struct ends_seen *s);
/** All that are equal to @s, which leaves its window. */
void ends_settle(struct ends_reading *r, unsigned int i, const struct ends_seen *s);
/** An arrival from end @i leaves its window. */
void ends_arrival_goes(struct ends_reading *r, unsigned int i, const struct ends_seen *s);

#endif /* KARST_DUMP_ENDS_PRIV_H */
