/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* An assertion that fails, for differs.sh: the lines of both values are shown. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

Test(criterion, shows_what_differs)
{
	char ours[] = "one\ntwo\n", theirs[] = "one\nthree\n";

	cr_assert(eq(str, ours, theirs));
}
