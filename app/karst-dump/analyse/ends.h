/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Two captures of the same traffic, taken at its two ends: which of the packets that one end has
 * sent have arrived at the other, and when.
 *
 * A packet is known by its destination queue pair, opcode, PSN and ICRC.  The two clocks may differ
 * by any time: it is estimated first, so that the shortest way is as long in both directions, and
 * how well it is known.  What is sent again is the same to the last bit; where neither order nor
 * clocks tell which of several has arrived, it is said that this cannot be told.
 *
 * Memory is bounded: of each direction ENDS_WINDOW packets are remembered, and what was lost.
 */
#ifndef KARST_DUMP_ENDS_H
#define KARST_DUMP_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../judge.h"

/** Fates of the packets that an end has sent, in the order of its capture. */
struct ends_fates {
	struct ends_fate {
		uint64_t frame; /* number in the sender's capture */
		uint8_t fate;   /* AN_LOST or AN_MAYBE */
		bool unsure;    /* AN_MAYBE, as it cannot be told from others that are the same */
	} * at;
	size_t n, room;
};

/**
 * One direction: what became of what that end has sent to the other.  Each packet has arrived, was
 * lost, is not covered, or is not sure.
 */
struct ends_way {
	uint64_t sent;
	uint64_t arrived;
	uint64_t lost;
	uint64_t damaged;   /* of those that arrived, with a wrong ICRC */
	uint64_t doubled;   /* arrived once more */
	uint64_t late;      /* arrived behind one that was sent later */
	uint64_t uncovered; /* sent while the other capture did not run, or not for sure */
	uint64_t unsure;    /* not told from others that are the same */
	uint64_t unsure_lost, unsure_damaged; /* so many of those were, whichever they are */
	uint64_t strange; /* arrived, but the sender's capture does not have it */
	/* of those that arrived */
	int64_t delay_min_ns, delay_max_ns;
	double delay_sum_ns;
	struct ends_fates fates;
};

struct ends {
	uint8_t address[2][16];
	const char *path[2];
	struct ends_way way[2]; /* what end 0 has sent, what end 1 has sent */
	double ahead_ns;        /* the second clock less the first, at the beginning of the first */
	double drift;           /* by which that grows, in seconds a second */
	double known_ns;        /* so far away from that the difference may be */
	bool one_way; /* packets of one direction alone tell: delays are from the shortest */
};

/**
 * Reads both captures, several times.  @e: addresses and paths are set, all else 0.
 * @return 0 or -1, after a message on standard error.
 */
int ends_match(struct ends *e, const struct judge_options *o);

void ends_report_text(const struct ends *e, FILE *out);
/** One JSON object on one line. */
void ends_report_json(const struct ends *e, FILE *out);

void ends_free(struct ends *e);

#endif /* KARST_DUMP_ENDS_H */
