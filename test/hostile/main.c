/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* hostile KARSTD CASE [OPTION...]: one case, one TAP point. */
#include "hostile.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const struct {
	const char *name;
	bool (*run)(const struct options *o);
	const char *what;
} cases[] = {
	{"scribble", case_scribble, "programs that scribble over all that they share"},
	{"kill", case_kill, "programs that are killed"},
	{"churn", case_churn, "programs that come and go, regions that come and go"},
	{"talk", case_talk, "programs that talk nonsense to the socket"},
	{"death", case_death, "the engine is killed"},
	{"takeaway", case_takeaway, "programs that take away what they have registered"},
	{"punch", case_punch,
		"a program that punches its memory slowly while the engine writes there"},
	{"exec", case_exec, "a program that executes another, and leaves its rings to a child"},
	{"soak", case_soak, "all attacks side by side"},
	{"greed", case_greed, "a user who takes all that he can get, with many programs"},
	{"late", case_late, "programs whose memory comes late, or never"},
	{"barred", case_barred, "a user whose programs' memory never comes"},
	{"many", case_many, "many attachments whose memory never comes, at once"},
	{"fresh", case_fresh, "many new attachments whose memory comes late"},
	{"colluders", case_colluders, "the same by several users"},
	{"crowds", case_crowds, "many queue pairs whose memory never comes"},
	{"deferred", case_deferred, "many programs that are late at once, then few"},
	{"linger", case_linger, "descriptors that keep waiting who closes them"},
	{"unclosed", case_unclosed, "descriptors whose close never returns, without end"},
	{"leave", case_leave, "programs that hold threads of a karstd that is told to end"},
	{"stuck", case_stuck, "an lcore that is stuck at a program's queue pair"},
};

static void
usage(FILE *to)
{
	size_t i;

	fprintf(to,
		"usage: hostile KARSTD CASE [--seed N] [--seconds N] [--kills N] [--attaches N]\n"
		"               [--registrations N] [--grown]\n\n");
	for (i = 0; i < KARST_DIM(cases); i++)
		fprintf(to, "  %-10s %s\n", cases[i].name, cases[i].what);
	fprintf(to, "\n--grown: karstd's private memory is not judged.\n");
}

static bool
number(const char *name, const char *text, uint64_t max, uint64_t *n)
{
	char *end;

	*n = strtoull(text, &end, 0);
	if (*text >= '0' && *text <= '9' && *end == '\0' && *n <= max)
		return true;
	fprintf(stderr, "hostile: --%s wants a number up to %" PRIu64 ", not '%s'\n", name, max,
		text);
	return false;
}

static bool
parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"seed", required_argument, NULL, 's'},
		{"seconds", required_argument, NULL, 't'},
		{"kills", required_argument, NULL, 'k'},
		{"attaches", required_argument, NULL, 'a'},
		{"registrations", required_argument, NULL, 'r'},
		{"grown", no_argument, NULL, 'g'},
		{NULL, 0, NULL, 0},
	};
	int c, at = 0;
	uint64_t n = 0;

	while ((c = getopt_long(argc, argv, "", longs, &at)) != -1) {
		if (c == '?')
			return false;
		if (c != 'g' &&
			!number(longs[at].name, optarg, c == 's' ? UINT64_MAX : 100000000, &n))
			return false;
		switch (c) {
		case 's':
			o->seed = n;
			break;
		case 't':
			o->seconds = (uint32_t)n;
			break;
		case 'k':
			o->kills = (uint32_t)n;
			break;
		case 'a':
			o->attaches = (uint32_t)n;
			break;
		case 'r':
			o->registrations = (uint32_t)n;
			break;
		default:
			o->grown = true;
		}
	}
	return true;
}

int
main(int argc, char **argv)
{
	struct options o = {0};
	size_t i;

	if (argc < 3) {
		usage(stderr);
		return 2;
	}
	o.karstd = argv[1];
	if (getrandom(&o.seed, sizeof(o.seed), 0) != sizeof(o.seed) ||
		!parse(argc - 2, argv + 2, &o)) {
		usage(stderr);
		return 2;
	}
	for (i = 0; i < KARST_DIM(cases) && strcmp(cases[i].name, argv[2]) != 0;)
		i++;
	if (i == KARST_DIM(cases)) {
		usage(stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	printf("1..1\n");
	note("hostile %s %s --seed %" PRIu64, argv[1], argv[2], o.seed);
	if (cases[i].run(&o)) {
		printf("ok 1 - %s\n", cases[i].what);
		return 0;
	}
	printf("not ok 1 - %s\n", cases[i].what);
	return 1;
}
