/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-fabric: simulates, in virtual time, a network with karst's queue pairs at its hosts, and
 * prints a report.  The report depends only on the command line; progress and speed of a long run
 * are printed on standard error.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "options.h"
#include "report.h"

#define EXIT_BAD   1
#define EXIT_USAGE 2

/* Interval of progress messages. */
#define EVERY_S 2.0

struct progress {
	const struct fab_config *c;
	double said_s;
};

static double
clock_s(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The speed is per processor time, because other programs may run at the same time. */
static void
say_speed(const char *before, uint64_t events)
{
	double took = clock_s(CLOCK_PROCESS_CPUTIME_ID);

	fprintf(stderr, "%s%.1f million events in %.1f s, %.2f million a second\n", before,
		(double)events / 1e6, took, (double)events / 1e6 / took);
}

static void
say_progress(uint64_t now_ns, uint64_t events, void *arg)
{
	struct progress *p = arg;
	double now = clock_s(CLOCK_MONOTONIC);

	if (now < p->said_s + EVERY_S)
		return;
	p->said_s = now;
	fprintf(stderr, "karst-fabric: at %.3f ms", (double)now_ns / 1e6);
	if (p->c->duration_ns != 0)
		fprintf(stderr, " of %.3f", (double)p->c->duration_ns / 1e6);
	say_speed(", ", events);
}

static int
report(const struct options *o, const struct fab_result *r)
{
	int rc = 0;

	errno = 0;
	if (o->json)
		rc = fab_report_json(stdout, &o->c, r);
	else
		fab_report_text(stdout, &o->c, r);
	if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		rc = errno != 0 ? -errno : -EIO;
	if (rc != 0)
		fprintf(stderr, "karst-fabric: standard output: %s\n", strerror(-rc));
	return rc;
}

int
main(int argc, char **argv)
{
	struct progress p = {.said_s = clock_s(CLOCK_MONOTONIC)};
	struct fab_result r;
	struct options o;
	int rc;

	rc = options_parse(argc, argv, &o);
	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	p.c = &o.c;
	if (!o.quiet) {
		o.c.progress = say_progress;
		o.c.progress_arg = &p;
	}
	rc = fab_run(&o.c, &r);
	if (rc != 0) {
		fprintf(stderr, "karst-fabric: %s\n", r.error[0] != '\0' ? r.error : strerror(-rc));
		return EXIT_BAD;
	}
	rc = report(&o, &r);
	if (r.connections.failed != 0) {
		fprintf(stderr, "karst-fabric: %llu connections were not established\n",
			(unsigned long long)r.connections.failed);
		rc = -ENOTCONN;
	}
	if (!o.quiet)
		say_speed("karst-fabric: ", r.events);
	fab_result_free(&r);
	return rc == 0 ? EXIT_SUCCESS : EXIT_BAD;
}
