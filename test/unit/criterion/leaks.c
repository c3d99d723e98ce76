/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* For leaks.sh: memory that static memory points to, and memory that nothing points to. */
#include <stdlib.h>

#include <criterion/criterion.h>

#define FAR 2000000u

static void *kept[2 * FAR];
static void *initialised = &kept;

__attribute__((noinline)) static void *
allocated(void)
{
	return malloc(100);
}

Test(criterion, leaks_not)
{
	kept[FAR] = allocated();
	initialised = allocated();
	cr_assert_not_null(kept[FAR]);
	cr_assert_not_null(initialised);
}

Test(criterion, leaks)
{
	void *volatile p = allocated();

	cr_assert_not_null(p);
	p = NULL;
}
