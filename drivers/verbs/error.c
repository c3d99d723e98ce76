/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Errors of operations: converts a negative errno of libkarst or of the provider to the positive
 * errno that verbs return, and prints the reason on standard error if $KARST_VERBS_DEBUG is set.
 */
#include "provider.h"

#include <stdio.h>

/* The reason that the thread has given to kv_refuse(), until it calls kv_error(). */
static _Thread_local const char *refused;

int
kv_refuse(int ret, const char *why)
{
	refused = why;
	return ret;
}

int
kv_error(int ret)
{
	const char *why = refused != NULL ? refused : karst_why();

	refused = NULL;
	if (ret < 0 && why[0] != '\0' && getenv("KARST_VERBS_DEBUG") != NULL)
		fprintf(stderr, "karst: %s\n", why);
	return kv_errno(-ret);
}

void *
kv_fail(int ret)
{
	kv_error(ret);
	return NULL;
}
