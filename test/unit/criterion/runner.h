/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Runs the cases of a program that was written with Criterion's macros, instead of Criterion's
 * library, which starts each case as a program of its own: it executes the file once more, loads
 * its libraries, starts threads for messages.  With the address sanitizer that is 0.1 s of a
 * processor for each case, and most cases take less than a millisecond.  Here each case has a
 * process of its own as well, but one that is forked from the program once that is loaded.
 *
 *   runner.c   the program: its cases, a process for each, what has become of it, TAP
 *   case.c     in the process of a case: what Criterion's macros call
 *   text.c     the words of assertions
 *
 * Criterion's library is not linked: what these do not have (theories, redirection, files to
 * compare) does not link, instead of being run by something that does not know about the case.
 */
#ifndef TEST_UNIT_CRITERION_RUNNER_H
#define TEST_UNIT_CRITERION_RUNNER_H

#include <criterion/criterion.h>

/* What a case says to the runner: a byte, and for some words a text. */
enum case_word {
	CASE_SETUP = 'i', /* it begins */
	CASE_MAIN = 'm',
	CASE_FINI = 'f',
	CASE_END = 'e',     /* it came to its end: without that no case has passed */
	CASE_FAILED = 'F',  /* an assertion: text */
	CASE_SKIPPED = 's', /* text */
	CASE_LOG = 'l',     /* text */
};

#define CASE_TEXT_MAX 16384u /* bytes of a text; what is longer is cut */

/**
 * In the process of a case: runs it, and ends the process.
 *
 * @fd: where the words go, a socket of type SOCK_SEQPACKET; -1 to print them.
 */
_Noreturn void case_run(const struct criterion_suite *suite, const struct criterion_test *test,
	void *param, int fd);

/** Sends a word; does not return if that fails. */
void case_say(enum case_word word, const char *text);

#endif
