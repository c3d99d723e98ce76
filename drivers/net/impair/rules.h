/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Rules as read from a file: which packets they match, and what is done to these.  impair_keys.def
 * has the keys; doc/man/karst-impair.5 explains them.
 */
#ifndef IMPAIR_RULES_H
#define IMPAIR_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMP_RULES_MAX  256u
#define IMP_NAME_BYTES 32u
#define IMP_LIST_MAX   64u /* maximum entries of a list */

enum imp_direction { IMP_RX, IMP_TX, IMP_BOTH };

enum imp_action {
	IMP_DROP,
	IMP_DUPLICATE,
	IMP_DELAY,
	IMP_REORDER,
	IMP_CORRUPT,
	IMP_TRUNCATE,
	IMP_MARK,
	IMP_RATE,
	IMP_HOLD,
	IMP_ACTIONS
};

/** Which of the matching packets are hit. */
enum imp_choice { IMP_ALL, IMP_NTH, IMP_EVERY, IMP_CHANCE };

enum imp_part { IMP_PART_PAYLOAD, IMP_PART_HEADER, IMP_PART_ICRC };

/** Of PSNs, the last one may be smaller than the first, because the numbers wrap around. */
struct imp_range {
	uint32_t first, last;
};

/*
 * Bits of a transmission: bit 0 is the first, bit k the k-th retransmission, bit 31 all later ones.
 */
#define IMP_TRANSMISSION_MAX 31u

struct imp_conf_rule {
	char name[IMP_NAME_BYTES];
	/* which packets match; an empty list matches any */
	uint32_t direction; /* enum imp_direction */
	uint64_t opcode[4]; /* a bit for each opcode */
	struct imp_range qpn[IMP_LIST_MAX], psn[IMP_LIST_MAX];
	uint32_t nqpn, npsn, nnth;
	uint64_t source_ports; /* bit k: UDP source ports whose lowest four bits are k */
	uint32_t transmission; /* a bit for each transmission; 0: any */
	uint64_t from_ms, until_ms;
	/* which of the matching packets are hit */
	uint32_t choice;            /* enum imp_choice */
	uint64_t nth[IMP_LIST_MAX]; /* ascending */
	uint64_t every;
	uint64_t chance; /* in units of 2^-64; 0: certain */
	uint64_t seed;
	uint32_t per; /* 0: count all that match, 1: count separately for each destination QP */
	uint64_t count;
	/* the action */
	uint32_t action; /* enum imp_action */
	uint32_t part;   /* enum imp_part */
	uint32_t repair;
	uint64_t offset; /* UINT64_MAX: the last byte of the payload, the first of any other part */
	uint64_t mask, bytes, copies, delay_us;
	uint64_t packets, time_us; /* 0: none */
	uint64_t rate_kbps, burst_bytes, queue_us;
};

struct imp_rules {
	uint64_t seed, flows;
	uint32_t n;
	uint32_t users; /* sets that refer to these rules (set.c), and the port */
	struct imp_conf_rule rule[IMP_RULES_MAX];
	_Atomic uint64_t taken[IMP_RULES_MAX]; /* hits so far of rules with a limit, all queues */
};

/** Called for each of the first 20 mistakes with "FILE:LINE:COLUMN: ..."; if there are more, called
 *  once more with "FILE: N more mistakes". */
typedef void (*imp_say)(void *user, const char *line);

/**
 * Reads a file.
 * @return the rules, for imp_rules_free(); NULL: the mistakes were reported by @say.
 */
struct imp_rules *imp_rules_read(const char *path, imp_say say, void *user);
/** Makes an empty set of rules.  @return NULL: no memory. */
struct imp_rules *imp_rules_none(void);
void imp_rules_free(struct imp_rules *r);

/** @return "drop", ... */
const char *imp_action_name(unsigned int action);

#endif /* IMPAIR_RULES_H */
