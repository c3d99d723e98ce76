/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Runs the cases of a program that was written with Criterion's macros.  Criterion's own library
 * starts each case as a new program: it executes the file once more, loads its libraries, and
 * starts threads for messages.  With the address sanitizer that takes 0.1 s of a processor for each
 * case, and most cases take less than a millisecond.  Here each case has a process of its own as
 * well, but one that is forked from the program after it is loaded.
 *
 *   runner.c   the program: its cases, a process for each, their results, TAP
 *   case.c     in the process of a case: what Criterion's macros call
 *   text.c     the texts of assertions
 *
 * Criterion's library is not linked: a program that uses what these files lack (theories,
 * redirection, files to compare) does not link.
 */
#ifndef TEST_UNIT_CRITERION_RUNNER_H
#define TEST_UNIT_CRITERION_RUNNER_H

#include <criterion/criterion.h>

/* A report of a case to the runner: a byte, and for some reports a text. */
enum case_word {
	CASE_SETUP = 'i', /* the case begins */
	CASE_MAIN = 'm',
	CASE_FINI = 'f',
	CASE_END = 'e',     /* it came to its end: a case without this report has not passed */
	CASE_FAILED = 'F',  /* an assertion failed: text */
	CASE_SKIPPED = 's', /* text */
	CASE_LOG = 'l',     /* text */
};

#define CASE_TEXT_MAX 16384u /* bytes of a text; a longer one is cut */

/**
 * In the process of a case: runs the case, and ends the process.
 *
 * @fd: where the reports go, a socket of type SOCK_SEQPACKET; -1 to print them.
 */
_Noreturn void case_run(const struct criterion_suite *suite, const struct criterion_test *test,
	void *param, int fd);

/** Sends a report; does not return if that fails. */
void case_say(enum case_word word, const char *text);

#endif
