/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-dump --analyse: judge by the rules of doc/protocol.rst how both ends of captured
 * connections behave.  The analysis is one pass over the capture.  Its memory is bounded by the
 * number of flows and the size of the injury log, not by the length of the capture.
 *
 * One thread analyses one capture: an_new(), an_frame() for each frame, an_finish(), reports,
 * an_free().
 */
#ifndef KARST_DUMP_ANALYSE_H
#define KARST_DUMP_ANALYSE_H

#include "../capture.h"
#include "../judge.h"
#include "ends.h"

struct an;

/**
 * Where the capture was taken.  A packet that is missing in the capture means something only if
 * packets of its kind show at that place.
 */
enum an_tap {
	AN_TAP_UNKNOWN,
	AN_TAP_SENDERS,   /* every packet as its sender sent it */
	AN_TAP_RECEIVERS, /* every packet as it arrived */
	AN_TAP_ADDRESS,   /* at one end: its own packets as sent, those for it as they arrived */
};

#define AN_TIMEOUT_UNKNOWN (-1)

struct an_options {
	enum an_tap tap;
	uint8_t tap_address[16];  /* for AN_TAP_ADDRESS; IPv4 as ::ffff:a.b.c.d */
	int timeout;              /* local ACK timeout, 0 to 31, or AN_TIMEOUT_UNKNOWN (Q6) */
	uint32_t cnp_interval_us; /* 0: not known */
	const char *injuries;     /* path of the log of net_impair, or NULL */
	const char *counters;     /* path of the adapter's counters, or NULL */
	uint8_t counters_address[16];
	const struct ends_fates *fates; /* fates according to the other end's capture, or NULL */
	bool plot;                      /* keep points for the sequence plots of an_report_html() */
};

/** Parses an address ("192.0.2.1", "fd00::1") into 16 bytes.  @return whether @text is one. */
bool an_address(const char *text, uint8_t address[16]);

/**
 * Begins an analysis.  @o has to last until an_free().
 * @return NULL after a message on standard error: no memory, or a file of @o cannot be read.
 */
struct an *an_new(const struct an_options *o);

/** Takes one frame, in the order of the capture.  @start_ns: time of the first one, since 1970. */
void an_frame(
	struct an *a, const struct capture_frame *f, const struct judge *j, uint64_t start_ns);

/** Ends the analysis after the last frame.  @broken: the file was damaged or cut short. */
void an_finish(struct an *a, bool broken);

/** Whether a check has failed. */
bool an_failed(const struct an *a);

void an_report_text(const struct an *a, FILE *out, const char *file);
/** Prints one JSON object on one line. */
void an_report_json(const struct an *a, FILE *out, const char *file);
/** Prints a complete page with verdicts and sequence plots, which refers to no other files. */
void an_report_html(const struct an *a, FILE *out, const char *file);

void an_free(struct an *a);

#endif /* KARST_DUMP_ANALYSE_H */
