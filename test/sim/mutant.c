/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Which deliberate fault of lib/qp a process has: the one that the environment names, as in
 * KARST_MUTANT=no-fence.  Linked into the executables that have all of them, and into no others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* an enum karst_mutant; 0 is none */
unsigned int karst_mutant_now;

static void __attribute__((constructor)) choose(void)
{
	/* in the order of the enum, as mutants.py prints them */
	static const char *const names[] = {MUTANT_NAMES};
	const char *name = getenv("KARST_MUTANT");
	unsigned int i;

	for (i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			karst_mutant_now = i + 1;
	if (karst_mutant_now != 0)
		return;
	fprintf(stderr, "KARST_MUTANT must name one of the faults in lib/qp/qp_mutant.h\n");
	exit(2);
}
