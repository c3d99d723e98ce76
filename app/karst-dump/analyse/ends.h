/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Match two captures of the same traffic, taken at its two ends: find which packets that one end
 * has sent have arrived at the other, and when.
 *
 * A packet is identified by its destination queue pair, opcode, PSN and ICRC.  The clocks of the
 * two captures may differ by any amount.  The difference is estimated first, such that the shortest
 * delay is the same in both directions, and so is the uncertainty of this estimate.  A
 * retransmission is identical to the first transmission, to the last bit.  Where neither order nor
 * clocks tell which of several identical packets has arrived, the report says that this cannot be
 * told.
 *
 * Memory is bounded: for each direction, the last ENDS_WINDOW packets and all that were lost.
 */
#ifndef KARST_DUMP_ENDS_H
#define KARST_DUMP_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../judge.h"

/** Fates of packets that an end has sent, in the order of its capture. */
struct ends_fates {
	struct ends_fate {
		uint64_t frame; /* number in the sender's capture */
		uint8_t fate;   /* AN_LOST or AN_MAYBE */
		bool unsure;    /* AN_MAYBE, because identical packets cannot be told apart */
	} * at;
	size_t n, room;
};

/**
 * One direction: what became of the packets that one end has sent to the other.  Each of them has
 * arrived, is lost, is not covered by the other capture, or is unsure.
 */
struct ends_way {
	uint64_t sent;
	uint64_t arrived;
	uint64_t lost;
	uint64_t damaged;   /* arrived with a wrong ICRC */
	uint64_t doubled;   /* arrivals of a packet that had already arrived */
	uint64_t late;      /* arrived after one that was sent later */
	uint64_t uncovered; /* sent while the other capture did not run, or perhaps did not */
	uint64_t unsure;    /* cannot be told apart from identical packets */
	uint64_t unsure_lost, unsure_damaged; /* how many of the unsure ones */
	uint64_t strange;                     /* arrived, but not in the sender's capture */
	/* of the packets that arrived */
	int64_t delay_min_ns, delay_max_ns;
	double delay_sum_ns;
	struct ends_fates fates;
};

struct ends {
	uint8_t address[2][16];
	const char *path[2];
	struct ends_way way[2]; /* what end 0 has sent, what end 1 has sent */
	double ahead_ns;        /* second clock minus first, at the start of the first capture */
	double drift;           /* growth of ahead_ns, in seconds per second */
	double known_ns;        /* uncertainty of that difference */
	bool one_way;           /* packets of only one direction: delays count from the shortest */
};

/**
 * Reads both captures, several times.  @e: addresses and paths are set, all other members are 0.
 * @return 0 or -1, after a message on standard error.
 */
int ends_match(struct ends *e, const struct judge_options *o);

void ends_report_text(const struct ends *e, FILE *out);
/** Prints one JSON object on one line. */
void ends_report_json(const struct ends *e, FILE *out);

void ends_free(struct ends *e);

#endif /* KARST_DUMP_ENDS_H */
