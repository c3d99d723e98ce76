/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The command line of karst-dump. */
#ifndef KARST_DUMP_OPTIONS_H
#define KARST_DUMP_OPTIONS_H

#include "analyse/analyse.h"
#include "judge.h"

struct options {
	struct judge_options judge;
	bool json;
	bool quiet;
	uint64_t count; /* frames per file; 0: all */
	bool analyse;
	struct an_options an;
	bool both_ends; /* the two files were captured at the two ends */
	uint8_t end[2][16];
	const char *html; /* path of the report, or NULL */
};

/** @return 0 to continue, 1 when all is done (help, version), negative errno after a message. */
int options_parse(int argc, char **argv, struct options *o);

#endif /* KARST_DUMP_OPTIONS_H */
