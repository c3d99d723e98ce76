/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Code that runs in the process of a case: see runner.h. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runner.h"

#define CASE_FAILS 1 /* the exit status of a failed case, whatever the runner has received */

static struct {
	const struct criterion_suite *suite;
	const struct criterion_test *test;
	void *param;
	int fd;
	pid_t pid;
	sigjmp_buf back;
	bool can_go_back;
} the_case;
static atomic_bool case_has_failed; /* set by any thread */

struct criterion_options criterion_options; /* the macros use its full_stats */

/* Whether this is another thread, or a child of the case: these can neither jump back nor end the
 * case. */
static bool
case_elsewhere(void)
{
	return gettid() != the_case.pid;
}

static void
case_print(enum case_word word, const char *text)
{
	if (word == CASE_FAILED || word == CASE_SKIPPED || word == CASE_LOG)
		fprintf(stderr, "%s%s\n",
			word == CASE_FAILED            ? "failed: "
				: word == CASE_SKIPPED ? "skipped: "
						       : "",
			text);
}

void
case_say(enum case_word word, const char *text)
{
	char kind = (char)word;
	struct iovec part[2] = {{&kind, 1}, {(void *)(uintptr_t)text, strlen(text)}};
	struct msghdr m = {.msg_iov = part, .msg_iovlen = 2};
	ssize_t sent;

	if (word == CASE_FAILED)
		case_has_failed = true;
	if (the_case.fd < 0) {
		case_print(word, text);
		return;
	}
	if (part[1].iov_len > CASE_TEXT_MAX)
		part[1].iov_len = CASE_TEXT_MAX;
	do
		sent = sendmsg(the_case.fd, &m, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent != (ssize_t)(1 + part[1].iov_len)) {
		fprintf(stderr, "the runner is not told \"%c%s\": %s\n", kind, text,
			strerror(errno));
		_exit(CASE_FAILS);
	}
}

/* A phase belongs to the case's own process: a child that runs on into the rest of its parent's
 * case must not report its end. */
static void
case_phase(enum case_word word)
{
	if (case_elsewhere()) {
		case_say(CASE_FAILED, "a child of the case, or a thread, went on in its place");
		_exit(CASE_FAILS);
	}
	case_say(word, "");
}

void
case_run(
	const struct criterion_suite *suite, const struct criterion_test *test, void *param, int fd)
{
	the_case.suite = suite;
	the_case.test = test;
	the_case.param = param;
	the_case.fd = fd;
	the_case.pid = getpid();
	test->test();
	exit(case_has_failed ? CASE_FAILS : 0);
}

/* @return false if criterion_abort_test() ended @fn. */
static bool
case_step(void (*fn)(void), void (*with)(void *))
{
	bool done = false;

	if (sigsetjmp(the_case.back, 1) == 0) {
		the_case.can_go_back = true;
		if (fn != NULL)
			fn();
		if (with != NULL)
			with(the_case.param);
		done = true;
	}
	the_case.can_go_back = false;
	return done;
}

void
criterion_internal_test_setup(void)
{
	const struct criterion_suite *suite = the_case.suite;

	case_phase(CASE_SETUP);
	if ((suite->data != NULL && !case_step(suite->data->init, NULL)) ||
		!case_step(the_case.test->data->init, NULL))
		exit(CASE_FAILS);
}

void
criterion_internal_test_main(void (*fn)(void))
{
	case_phase(CASE_MAIN);
	if (the_case.test->data->param_ != NULL)
		case_step(NULL, (void (*)(void *))(uintptr_t)fn);
	else
		case_step(fn, NULL);
	case_phase(CASE_FINI);
}

void
criterion_internal_test_teardown(void)
{
	const struct criterion_suite *suite = the_case.suite;

	if (case_step(the_case.test->data->fini, NULL) && suite->data != NULL)
		case_step(suite->data->fini, NULL);
	case_phase(CASE_END);
}

void
criterion_send_assert(struct criterion_assert_stats *stats)
{
	char *text = NULL;

	if (stats->passed)
		return;
	cr_asprintf(&text, "%s:%u: %s", stats->file, stats->line, stats->message);
	case_say(CASE_FAILED, text);
	cr_asprintf_free(text);
}

void
cri_asserts_passed_incr(void)
{
}

void
criterion_abort_test(void)
{
	if (!case_elsewhere() && the_case.can_go_back)
		siglongjmp(the_case.back, 1);
	_exit(CASE_FAILS);
}

void
criterion_continue_test(void)
{
}

void
criterion_skip_test(const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	cr_vasprintf(&text, format, args);
	va_end(args);
	if (case_elsewhere()) {
		case_say(CASE_FAILED, "a case is skipped by another process, or a thread");
		_exit(CASE_FAILS);
	}
	case_say(CASE_SKIPPED, text);
	free(text);
	exit(case_has_failed ? CASE_FAILS : 0);
}

void
criterion_test_die(const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	cr_vasprintf(&text, format, args);
	va_end(args);
	case_say(CASE_FAILED, text);
	_exit(CASE_FAILS);
}

void
cr_log(enum criterion_severity severity, const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	cr_vasprintf(&text, format, args);
	va_end(args);
	case_say(severity == CR_LOG_INFO ? CASE_LOG : CASE_FAILED, text);
	free(text);
}
