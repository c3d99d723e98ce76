/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-dump --analyse: how both ends of captured connections behave, judged by the rules of
 * doc/protocol.rst.  One pass over the capture; what is remembered is bounded by the number of
 * flows (and by the injury log), not by the length of the capture.
 *
 * One capture by one thread: an_new(), an_frame() for each frame, an_finish(), reports, an_free().
 */
#ifndef KARST_DUMP_ANALYSE_H
#define KARST_DUMP_ANALYSE_H

#include "../capture.h"
#include "../judge.h"
#include "ends.h"

struct an;

/**
 * Where the capture was taken: what is missing in it says something only about packets seen there.
 */
enum an_tap {
	AN_TAP_UNKNOWN,
	AN_TAP_SENDERS,   /* every packet as its sender emitted it */
	AN_TAP_RECEIVERS, /* every packet as it arrived */
	AN_TAP_ADDRESS,   /* at one end: its packets as emitted, those to it as they arrived */
};

#define AN_TIMEOUT_UNKNOWN (-1)

struct an_options {
	enum an_tap tap;
	uint8_t tap_address[16];  /* AN_TAP_ADDRESS; IPv4 as ::ffff:a.b.c.d */
	int timeout;              /* local ACK timeout, 0 to 31, or AN_TIMEOUT_UNKNOWN (Q6) */
	uint32_t cnp_interval_us; /* 0: not known */
	const char *injuries;     /* path of the log of net_impair, or NULL */
	const char *counters;     /* path of the adapter's counters, or NULL */
	uint8_t counters_address[16];
	const struct ends_fates *fates; /* what arrived at the other end (ends.h), or NULL */
	bool plot;                      /* keep points for the sequence plots of an_report_html() */
};

/** An address as text ("192.0.2.1", "fd00::1") to 16 bytes.  @return whether it is one. */
bool an_address(const char *text, uint8_t address[16]);

/**
 * Begins.  @o has to last until an_free().
 * @return NULL after a message on standard error: a file of @o cannot be read.
 */
struct an *an_new(const struct an_options *o);

/** One frame, in the order of the capture.  @start_ns: time of the first one, since 1970. */
void an_frame(
	struct an *a, const struct capture_frame *f, const struct judge *j, uint64_t start_ns);

/** All frames have been seen; @broken: the file was damaged or cut short. */
void an_finish(struct an *a, bool broken);

/** Whether a check has failed. */
bool an_failed(const struct an *a);

void an_report_text(const struct an *a, FILE *out, const char *file);
/** One JSON object on one line. */
void an_report_json(const struct an *a, FILE *out, const char *file);
/** A whole page: verdicts and sequence plots, without anything from elsewhere. */
void an_report_html(const struct an *a, FILE *out, const char *file);

void an_free(struct an *a);

#endif /* KARST_DUMP_ANALYSE_H */
