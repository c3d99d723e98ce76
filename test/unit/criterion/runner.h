/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Runs the cases of a program that uses Criterion's macros, in place of Criterion's library.  That
 * library starts each case as a separate program: it executes the file again, loads its libraries,
 * and starts threads for messages.  With the address sanitizer this takes 0.1 s of processor time
 * for each case, while most cases take less than a millisecond.  Here each case also has a process
 * of its own, but that process is forked from the loaded program.
 *
 *   runner.c   the main program: its cases, a process for each, their results, TAP
 *   case.c     in the process of a case: the functions that Criterion's macros call
 *   text.c     the text of assertions
 *
 * Criterion's library is not linked.  So a program that uses features that are missing here
 * (theories, redirection, comparison of files) does not link, instead of running incorrectly.
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
