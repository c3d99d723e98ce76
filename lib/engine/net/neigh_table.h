/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The neighbours of one port: which MAC address an IP address has.  No I/O, no clock: the caller
 * passes the time, and sends the questions that these functions ask for.
 *
 *	            use            answer           age, a claim
 *	  (absent) -----> ASKED ----------> KNOWN ---------------> DOUBTED
 *	                    ^                 ^      answer           |
 *	                    |                 +-----------------------+
 *	                    +--- too many questions without answer ---+
 *
 * A doubted neighbour is used as it was, while it is asked again.  Nothing is learnt from an
 * answer to which there was no question, nor from those who ask us: a path is used as long as its
 * queue pair lives, so it is worth a round trip to have it from who was asked.  What a stranger
 * claims casts doubt at most, so that we ask.
 *
 * The table is set-associative: an address has ENG_NEIGH_WAYS places, found by a secret hash.
 * When they are taken, the one unused for longest makes room.  Only our own questions make entries;
 * a flood costs a few comparisons a frame, and displaces nobody.
 */
#ifndef NEIGH_TABLE_H
#define NEIGH_TABLE_H

#include "karst_neigh.h"

#define ENG_NEIGH_WAYS 8u

struct eng_neigh_entry {
	uint8_t ip[16];
	uint8_t mac[6];
	bool taken;
	uint8_t state;     /* enum karst_neigh_state */
	uint8_t asks;      /* questions since the last answer */
	uint64_t since_ns; /* confirmed; ASKED: the first question */
	uint64_t asked_ns; /* last question */
	uint64_t used_ns;
};

struct eng_neigh_table {
	uint64_t key[2]; /* of the hash */
	struct eng_neigh_entry entry[KARST_ENGINE_NEIGH_MAX];
};

/** @key: secret, or else who knows it makes others make room for him. */
void eng_neigh_table_init(struct eng_neigh_table *t, const uint64_t key[2]);

/**
 * Looks for @ip.  *ask: send a question now.
 * @return true: @mac is its address; false: not yet known.
 */
bool eng_neigh_use(struct eng_neigh_table *t, const uint8_t ip[16], uint64_t now_ns, uint8_t mac[6],
	bool *ask);

/** An answer: @ip has @mac.  @return false: nobody had asked. */
bool eng_neigh_answer(
	struct eng_neigh_table *t, const uint8_t ip[16], const uint8_t mac[6], uint64_t now_ns);

/** Somebody says unasked that @ip has @mac. */
void eng_neigh_claim(struct eng_neigh_table *t, const uint8_t ip[16], const uint8_t mac[6]);

/** @return how many entries there are; up to @max are written, without their port. */
unsigned int eng_neigh_entries(const struct eng_neigh_table *t, uint64_t now_ns,
	struct karst_engine_neigh *list, unsigned int max);

#endif /* NEIGH_TABLE_H */
