/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Selects the deliberate fault of lib/qp or lib/smc that a process has: the environment names it,
 * as in KARST_MUTANT=no-fence.  Linked only into the executables that contain all of these faults.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* of the enum in qp_mutant.h or smc_mutant.h; 0 is none */
unsigned int MUTANT_NOW;

static void __attribute__((constructor)) choose(void)
{
	/* in the order of the enum, as mutants.py prints them */
	static const char *const names[] = {MUTANT_NAMES};
	const char *name = getenv("KARST_MUTANT");
	unsigned int i;

	for (i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			MUTANT_NOW = i + 1;
	if (MUTANT_NOW != 0)
		return;
	fprintf(stderr, "KARST_MUTANT must name one of the faults: qp_mutant.h, smc_mutant.h\n");
	exit(2);
}
