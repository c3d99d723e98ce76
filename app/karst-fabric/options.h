/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The command line of karst-fabric. */
#ifndef KARST_FABRIC_OPTIONS_H
#define KARST_FABRIC_OPTIONS_H

#include "fabric.h"

struct options {
	struct fab_config c;
	bool json;
	bool quiet; /* do not report progress */
};

/** @return 0 to go on, 1 to exit (help, version), negative errno after a message. */
int options_parse(int argc, char **argv, struct options *o);

#endif /* KARST_FABRIC_OPTIONS_H */
