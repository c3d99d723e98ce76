/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The program: see same.h. */
#include "same.h"

#include <stdarg.h>
#include <sys/wait.h>

static const struct same_case *const tables[] = {modify_cases, state_cases, error_cases,
	object_cases, memory_cases, cq_cases, srq_cases, ud_cases, wr_cases, id_cases,
	connection_cases, meeting_cases, later_cases, address_cases};
static const char *case_name;

const char *
error_name(int error)
{
	const char *name = error == 0 ? "ok" : strerrorname_np(error);

	/* Linux has two names for this number */
	return name == NULL ? "no number of an error" : error == EOPNOTSUPP ? "EOPNOTSUPP" : name;
}

void
say(const char *what, const char *fmt, ...)
{
	va_list ap;

	printf("%s: %s: ", case_name, what);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

void
say_rc(const char *what, int rc)
{
	say(what, "%s", error_name(rc == -1 ? errno : rc));
}

void
say_ptr(const char *what, const void *object)
{
	say(what, "%s", object != NULL ? "ok" : error_name(errno));
}

_Noreturn void
fail(const char *what)
{
	say(what, "the case cannot go on: %s", error_name(errno));
	_exit(1);
}

static bool
wanted(const char *name, char **names)
{
	if (*names == NULL)
		return true;
	for (; *names != NULL; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

/* Runs a case in a child process.  @return false: the process cannot be created */
static bool
run(const struct same_case *c)
{
	pid_t child;
	int status;

	case_name = c->name;
	fflush(stdout);
	child = fork();
	if (child == 0) {
		alarm(HANG_S);
		c->fn();
		fflush(stdout);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return false;
	if (status != 0)
		say("end", "status %#x", (unsigned int)status);
	return true;
}

int
main(int argc, char **argv)
{
	const struct same_case *c;
	size_t i;

	if (argc < 2) {
		fprintf(stderr, "usage: verbs-same DEVICE [CASE...]\n");
		return 2;
	}
	device_name = argv[1];
	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (c = tables[i]; c->name != NULL; c++)
			if (wanted(c->name, argv + 2) && !run(c)) {
				perror("verbs-same");
				return 1;
			}
	return 0;
}
