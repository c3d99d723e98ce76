/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Cases for verdicts.py, which knows the result that each must have: "good" cases pass, whatever
 * they look like, and "bad" ones, which fail in every way that a case can, must never count as
 * passed.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "runner.h"

/* Cases that hang do so for ever, so a short time is enough. */
#define SHORT_S 0.3
#define LONG_S  300 /* for cases that end by themselves */

static int changed;

static void
fails(void)
{
	cr_assert_eq(changed, 1);
}

static void
crashes(void)
{
	raise(SIGKILL);
}

static void
exits(void)
{
	_exit(0);
}

static void
nothing(void)
{
}

/* --- good --- */

Test(good, passes)
{
	cr_assert_eq(changed++, 0);
}

Test(good, passes_by_itself)
{
	cr_assert_eq(changed++, 0);
}

static void
change(void)
{
	changed = 5;
}

static void
is_changed(void)
{
	cr_assert_eq(changed, 6);
}

Test(good, has_setup_and_teardown, .init = change, .fini = is_changed)
{
	cr_assert_eq(changed++, 5);
}

Test(good, skips)
{
	cr_skip("for %s", "good reason");
}

Test(good, is_disabled, .disabled = true)
{
	cr_assert_fail();
}

Test(good, gets_its_signal, .signal = SIGUSR1)
{
	raise(SIGUSR1);
}

Test(good, gets_its_status, .exit_code = 3)
{
	exit(3);
}

Test(good, says_something)
{
	cr_log_info("said by a case");
	printf("printed by a case\n");
}

/* A child that outlives its case has all descriptors open that the case had. */
Test(good, leaves_a_child, .timeout = LONG_S)
{
	pid_t runner = getppid();

	if (fork() == 0) {
		while (kill(runner, 0) == 0)
			usleep(1000);
		_exit(0);
	}
}

ParameterizedTestParameters(good, parameters)
{
	static int three[] = {1, 2, 3};

	return cr_make_param_array(int, three, 3);
}

ParameterizedTest(int *value, good, parameters)
{
	cr_assert(*value >= 1 && *value <= 3);
	*value = 0;
}

/* --- an assertion --- */

Test(bad, fails)
{
	fails();
}

Test(bad, fails_and_goes_on)
{
	cr_expect_eq(changed, 1, "expected so");
	cr_assert_eq(changed, 0);
}

Test(bad, fails_at_length)
{
	char *text = malloc(4 * CASE_TEXT_MAX);

	memset(text, 'x', 4 * CASE_TEXT_MAX - 1);
	text[4 * CASE_TEXT_MAX - 1] = '\0';
	cr_expect_str_eq(text, "");
	free(text);
}

Test(bad, fails_ten_thousand_times)
{
	int i;

	for (i = 0; i < 10000; i++)
		cr_expect_eq(i, -1);
}

Test(bad, fails_in_setup, .init = fails)
{
}

Test(bad, fails_in_teardown, .fini = fails)
{
}

static void
skip_it(void)
{
	cr_skip("after a failure");
}

Test(bad, fails_and_skips)
{
	cr_expect_eq(changed, 1);
	skip_it();
}

Test(bad, fails_and_exits)
{
	cr_expect_eq(changed, 1);
	exit(0);
}

Test(bad, fails_with_its_signal, .signal = SIGUSR1)
{
	cr_expect_eq(changed, 1);
	raise(SIGUSR1);
}

Test(bad, fails_with_its_status, .exit_code = 3)
{
	cr_expect_eq(changed, 1);
	exit(3);
}

static void *
fails_in_thread(void *arg)
{
	fails();
	return NULL;
}

static void *
skips_in_thread(void *arg)
{
	skip_it();
	return NULL;
}

static void
in_thread(void *(*fn)(void *))
{
	pthread_t t;

	cr_assert_eq(pthread_create(&t, NULL, fn, NULL), 0);
	pthread_join(t, NULL);
}

Test(bad, fails_in_a_thread)
{
	in_thread(fails_in_thread);
}

Test(bad, skips_in_a_thread)
{
	in_thread(skips_in_thread);
}

Test(bad, fails_in_a_child)
{
	pid_t child = fork();

	if (child == 0)
		fails();
	waitpid(child, NULL, 0);
}

Test(bad, returns_in_a_child)
{
	pid_t child = fork();

	if (child == 0)
		return;
	waitpid(child, NULL, 0);
}

static void
fails_at_exit(void)
{
	fails();
}

Test(bad, fails_at_exit)
{
	atexit(fails_at_exit);
}

Test(bad, logs_an_error)
{
	cr_log_error("an error");
}

ParameterizedTestParameters(bad, parameters)
{
	static int three[] = {0, 1, 0};

	return cr_make_param_array(int, three, 3);
}

ParameterizedTest(int *value, bad, parameters)
{
	cr_assert_eq(*value, 2);
}

static void
suite_fails(void)
{
	cr_expect_eq(changed, 1);
}

TestSuite(bad_suite, .init = nothing, .fini = suite_fails);

Test(bad_suite, fails_in_teardown)
{
}

TestSuite(bad_suite_setup, .init = suite_fails);

Test(bad_suite_setup, fails_in_setup)
{
}

/* --- its end --- */

Test(bad, crashes)
{
	crashes();
}

Test(bad, crashes_in_setup, .init = crashes)
{
}

Test(bad, crashes_in_teardown, .fini = crashes)
{
}

Test(bad, crashes_at_exit)
{
	atexit(crashes);
}

Test(bad, writes_to_null)
{
	*(volatile int *)(uintptr_t)8 = 1;
}

Test(bad, aborts)
{
	abort();
}

Test(bad, exits)
{
	exit(0);
}

Test(bad, exits_at_once)
{
	exits();
}

Test(bad, exits_in_setup, .init = exits)
{
}

Test(bad, exits_in_teardown, .fini = exits)
{
}

Test(bad, exits_with_another_status)
{
	exit(7);
}

static void *
exits_in_thread(void *arg)
{
	exits();
	return NULL;
}

Test(bad, exits_in_a_thread)
{
	in_thread(exits_in_thread);
}

Test(bad, becomes_another_program)
{
	execlp("true", "true", NULL);
}

static void
exits_badly(void)
{
	_exit(9);
}

Test(bad, exits_with_another_status_at_exit)
{
	atexit(exits_badly);
}

Test(bad, skips_and_exits_with_another_status)
{
	atexit(exits_badly);
	skip_it();
}

Test(bad, gets_another_signal, .signal = SIGUSR1)
{
	signal(SIGUSR2, SIG_DFL); /* "perf record" makes its program ignore this signal */
	raise(SIGUSR2);
}

Test(bad, gets_no_signal, .signal = SIGUSR1)
{
}

Test(bad, gets_its_signal_too_late, .signal = SIGKILL, .fini = crashes)
{
}

Test(bad, has_another_status, .exit_code = 3)
{
	exit(4);
}

Test(bad, has_no_status, .exit_code = 3)
{
}

Test(bad, closes_what_it_has_not_opened)
{
	closefrom(0);
}

/* --- cases that do not end --- */

Test(bad, hangs, .timeout = SHORT_S)
{
	for (;;)
		pause();
}

Test(bad, fails_for_ever, .timeout = SHORT_S)
{
	for (;;)
		cr_expect_eq(changed, 1);
}

Test(bad, turns_in_circles, .timeout = SHORT_S)
{
	while (*(volatile int *)&changed == 0)
		;
}

static void
hangs_here(void)
{
	for (;;)
		pause();
}

Test(bad, hangs_in_teardown, .fini = hangs_here, .timeout = SHORT_S)
{
}

Test(bad, hangs_at_exit, .timeout = SHORT_S)
{
	atexit(hangs_here);
}

Test(bad, stops, .timeout = SHORT_S)
{
	raise(SIGSTOP);
}

TestSuite(bad_limit, .timeout = SHORT_S);

Test(bad_limit, hangs)
{
	hangs_here();
}

/* --- cases that depend on the runner --- */

Test(alone, hangs)
{
	FILE *f = fopen(getenv("KARST_CASE"), "w");

	if (f != NULL) {
		fprintf(f, "%d\n", (int)getpid());
		fclose(f);
	}
	hangs_here();
}

#ifdef __SANITIZE_ADDRESS__
static char *volatile memory;

static void
leak(void)
{
	unsigned int i;

	/* many: the address of the last one may still be on the stack, or in a register */
	for (i = 0; i < 16; i++) {
		memory = malloc(100);
		memory[0] = 1;
	}
	memory = NULL;
}

Test(bad, leaks)
{
	leak();
}

Test(bad, leaks_in_teardown, .fini = leak)
{
}

Test(bad, leaks_and_skips)
{
	leak();
	cr_skip("after a leak");
}

Test(bad, uses_after_free)
{
	memory = malloc(10);
	free(memory);
	memory[1] = 1;
}
#endif
