/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The neighbours of one port: the MAC address of each IP address.  No I/O, no clock: the caller
 * passes the time, and sends the requests that these functions ask for.
 *
 *	            use            answer           age, a claim
 *	  (absent) -----> ASKED ----------> KNOWN ---------------> DOUBTED
 *	                    ^                 ^      answer           |
 *	                    |                 +-----------------------+
 *	                    +--- too many questions without answer ---+
 *
 * A doubted neighbour stays in use while it is queried again.  The table learns nothing from
 * answers without a request, or from requests of others: a path is used as long as its queue pair
 * lives, so it is worth a round trip to get it from the owner of the address.  An unsolicited claim
 * can only cast doubt on an entry, so that it is queried again.
 *
 * The table is set-associative: an address has ENG_NEIGH_WAYS places, found by a secret hash.  If
 * all are taken, the least recently used entry is replaced.  Only the engine's own requests create
 * entries; a flood of frames costs a few comparisons for each and displaces no entry.
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
	uint8_t asks;      /* requests since the last answer */
	uint64_t since_ns; /* when confirmed; ASKED: first request */
	uint64_t asked_ns; /* last request */
	uint64_t used_ns;
};

struct eng_neigh_table {
	uint64_t key[2]; /* key of the hash */
	struct eng_neigh_entry entry[KARST_ENGINE_NEIGH_MAX];
};

/** @key must be secret: with it, an attacker could choose addresses that displace others. */
void eng_neigh_table_init(struct eng_neigh_table *t, const uint64_t key[2]);

/**
 * Looks up @ip.  *ask: send a request now.
 * @return true: @mac is its address; false: not known yet.
 */
bool eng_neigh_use(struct eng_neigh_table *t, const uint8_t ip[16], uint64_t now_ns, uint8_t mac[6],
	bool *ask);

/** Whether there is an entry of @ip, in any state. */
bool eng_neigh_present(struct eng_neigh_table *t, const uint8_t ip[16]);

/** Processes an answer: @ip has @mac.  @return false: there was no request. */
bool eng_neigh_answer(
	struct eng_neigh_table *t, const uint8_t ip[16], const uint8_t mac[6], uint64_t now_ns);

/** Processes an unsolicited claim that @ip has @mac. */
void eng_neigh_claim(struct eng_neigh_table *t, const uint8_t ip[16], const uint8_t mac[6]);

/** @return how many entries there are; up to @max are written, without their port. */
unsigned int eng_neigh_entries(const struct eng_neigh_table *t, uint64_t now_ns,
	struct karst_engine_neigh *list, unsigned int max);

#endif /* NEIGH_TABLE_H */
