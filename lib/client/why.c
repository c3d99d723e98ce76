/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The reason for a thread's last failed call, in words. */
#include "client_priv.h"

#include <stdarg.h>
#include <stdio.h>

/* Per thread, as errno is: the calls have no argument to return a sentence in. */
static _Thread_local char words[sizeof(((struct cli_reason *)NULL)->words)];
static _Thread_local const char *now;

const char *
karst_why(void)
{
	return now != NULL ? now : "";
}

int
cli_fail_const(int err, const char *why)
{
	now = why;
	return err;
}

int
cli_fail(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	now = words;
	return err;
}

void
cli_reason_save(struct cli_reason *to)
{
	to->now = now;
	memcpy(to->words, words, sizeof(words));
}

void
cli_reason_restore(const struct cli_reason *from)
{
	now = from->now;
	memcpy(words, from->words, sizeof(words));
}

const char *
karst_version(void)
{
	return KARST_VERSION;
}
