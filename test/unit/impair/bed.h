/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A port of net_impair over a net_ring whose rings the test holds: what the test puts into one ring
 * is received, what is sent comes out of the other.
 *
 * Packets are written as words, one burst a line: "11:5" is an RC SEND Only to QP 0x11 with PSN 5;
 * a letter in front is another opcode (below), "x" a frame that is not RoCE.  Results are written
 * the same way, with signs behind: "!" its ICRC is wrong, "^" it is marked CE, "-" its length is
 * not what its headers say, "*" it is intact but not what was sent.
 *
 *	w  RC WRITE First   m  RC SEND Middle   a  RC ACK   r  RC READ Request   u  UD SEND Only
 *	s  RC SEND Only over IPv6   v  the same with a VLAN tag   c  RC SEND Only in many segments
 *	n  CNP   p  RC SEND Only from source port 0xc000 + PSN, not 0xc000 as all others
 */
#ifndef IMPAIR_BED_H
#define IMPAIR_BED_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define BUFS    4095u
#define TEXT    65536u
#define PAYLOAD 64u
#define HANG_S  300

struct bed {
	struct rte_mempool *pool;
	struct rte_ring *in, *out;
	uint16_t below, port;
	char folder[64], rules[96], log[96], said[4096];
};

extern struct bed bed;

/** Initializes EAL and makes a pool; once a test. */
void bed_eal(void);
/** Opens a port with a file of these rules, NULL: none; and more arguments of the device, "" or
 * ",KEY=VALUE". */
void bed_open(const char *rules, const char *more);
void bed_open_queues(const char *rules, const char *more, uint16_t queues);
/** Closes it; checks that all buffers are back. */
void bed_close(void);
void bed_write(const char *rules);
/** @return the driver's own data of the port, which is not closed meanwhile; NULL: none */
struct imp_port *bed_port(void);

/** Builds the frame of a word. */
struct rte_mbuf *bed_frame(const char *word);
/** Passes bursts of words through the port in a direction.  @return what comes out, in the same
 * form. */
const char *bed_pass(bool rx, const char *words);
/** The same without polling once more for held frames: the next call may get them. */
const char *bed_pass_once(bool rx, const char *words);

/** What @rules make of @in. */
struct bed_case {
	const char *name, *rules, *in, *out;
};
/** Checks each case over a port of its own, received or sent. */
void bed_cases(const struct bed_case *cases, size_t n, bool rx);
/** Appends the word of a frame to @to. */
void bed_describe(char *to, const struct rte_mbuf *m);

uint64_t bed_xstat(const char *name);
/** Returns the current log, complete. */
const char *bed_log(void);
/** The value of a member of a line of JSON, as text; "": it has none. */
const char *bed_member(const char *line, const char *name);
/** Counts the lines of the log with this text. */
unsigned int bed_log_count(const char *text);
/** Returns what DPDK has logged of the driver since the bed was opened. */
const char *bed_said(void);

#endif /* IMPAIR_BED_H */
