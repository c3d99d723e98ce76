/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-sim: the command line, and the workers that share the seeds.
 *
 * Each worker is a separate process with a separate world.  Workers take seeds from a counter in
 * shared memory and store their figures there, so a crash of one loses only its schedule, and the
 * seed that caused it is known.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

#define MAX_JOBS    64
#define ARENA_BYTES ((size_t)256 << 20)

#ifndef SIM_VERSION
#define SIM_VERSION "unknown"
#endif

static const char *const profiles[] = {"lossless", "mild", "brutal", "faults", "hostile", "all"};

struct seed_entry {
	uint64_t seed;
	enum sim_profile profile;
};

struct options {
	struct sim_options sim;
	uint64_t first, last;
	struct seed_entry *list; /* of --seeds-file, else NULL */
	uint64_t nlist;
	unsigned int jobs;
	bool progress, json, expect_failure;
};

struct worker {
	struct sim_stats stats;
	uint64_t seed; /* being run */
	enum sim_profile profile;
	bool running, failed;
} karst_cache_aligned;

struct shared {
	_Atomic uint64_t next; /* index of the next seed to run */
	_Atomic bool stop;
	struct worker worker[MAX_JOBS];
};

static const char usage_text[] =
	"usage: karst-sim [options]\n"
	"Runs the transport on virtual time over bad links and judges what it does.\n"
	"\n"
	"      --seeds A..B      schedules to run (default 1..1000)\n"
	"      --seed N          only this one\n"
	"      --seeds-file F    those of a file: a seed and a profile on each line\n"
	"      --profile P       lossless, mild, brutal, faults, hostile or all (default)\n"
	"  -v, --verbose         print every packet\n"
	"      --jobs N          processes, 1..64 (default 1)\n"
	"      --last N          packets to show when a schedule fails, 0..256 (default 60)\n"
	"      --progress        print how far it is, once a second\n"
	"      --json            print the result as JSON\n"
	"      --laps            let a connection of each go once around its 2^24 PSNs (seconds)\n"
	"      --no-icrc         let receivers take damaged frames: the oracle must notice\n"
	"      --expect-failure  succeed only if a schedule fails (for builds with a known fault)\n"
	"  -h, --help            print this\n"
	"      --version         print the version\n"
	"\n"
	"Exit status: 0 nothing was violated, 1 something was, 2 wrong usage.\n";

static void __attribute__((noreturn, format(printf, 1, 2))) usage_error(const char *fmt, ...)
{
	va_list ap;

	fputs("karst-sim: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\nTry karst-sim --help.\n", stderr);
	exit(2);
}

/* --- options --- */

static uint64_t
number(const char *opt, const char *text, char **end)
{
	uint64_t v;

	errno = 0;
	if (!isdigit((unsigned char)*text))
		usage_error("%s: \"%s\" is not a number", opt, text);
	v = strtoull(text, end, 0);
	if (errno != 0)
		usage_error("%s: %s is larger than 2^64 - 1", opt, text);
	return v;
}

static uint64_t
whole_number(const char *opt, const char *text, uint64_t lo, uint64_t hi)
{
	char *end;
	uint64_t v = number(opt, text, &end);

	if (*end != '\0')
		usage_error("%s: \"%s\" is not a number", opt, text);
	if (v < lo || v > hi)
		usage_error("%s: %s is not in %llu..%llu", opt, text, (unsigned long long)lo,
			(unsigned long long)hi);
	return v;
}

static void
parse_seeds(struct options *o, const char *text)
{
	char *end;

	o->first = number("--seeds", text, &end);
	if (strncmp(end, "..", 2) != 0)
		usage_error("--seeds: \"%s\" is not of the form A..B", text);
	o->last = number("--seeds", end + 2, &end);
	if (*end != '\0')
		usage_error("--seeds: \"%s\" is not of the form A..B", text);
	if (o->first > o->last)
		usage_error("--seeds: %s is empty, the first must not be above the last", text);
}

static bool
find_profile(const char *text, enum sim_profile *p)
{
	uint32_t i;

	for (i = 0; i < KARST_DIM(profiles); i++) {
		if (strcmp(text, profiles[i]) == 0) {
			*p = (enum sim_profile)i;
			return true;
		}
	}
	return false;
}

static void
read_seeds(struct options *o, const char *path)
{
	FILE *f = fopen(path, "r");
	char line[256], name[32];
	unsigned long long seed;
	unsigned int at = 0;

	if (f == NULL)
		usage_error("--seeds-file: %s: %s", path, strerror(errno));
	o->list = calloc(1, sizeof(*o->list));
	while (fgets(line, sizeof(line), f) != NULL) {
		struct seed_entry *e;

		at++;
		if (line[strspn(line, " \t\r\n")] == '\0' || line[0] == '#')
			continue;
		o->list = realloc(o->list, (o->nlist + 1) * sizeof(*o->list));
		if (o->list == NULL)
			usage_error("--seeds-file: %s: out of memory", path);
		e = &o->list[o->nlist++];
		if (sscanf(line, "%llu %31s", &seed, name) != 2 || !find_profile(name, &e->profile))
			usage_error("%s:%u: not a seed and one of the profiles lossless, mild, "
				    "brutal, faults, hostile, all",
				path, at);
		e->seed = seed;
	}
	fclose(f);
}

enum {
	OPT_SEEDS = 256,
	OPT_SEED,
	OPT_FILE,
	OPT_PROFILE,
	OPT_JOBS,
	OPT_LAST,
	OPT_PROGRESS,
	OPT_JSON,
	OPT_EXPECT,
	OPT_NO_ICRC,
	OPT_LAPS,
	OPT_VERSION
};

static const struct option long_options[] = {
	{"seeds", required_argument, NULL, OPT_SEEDS},
	{"seed", required_argument, NULL, OPT_SEED},
	{"seeds-file", required_argument, NULL, OPT_FILE},
	{"profile", required_argument, NULL, OPT_PROFILE},
	{"verbose", no_argument, NULL, 'v'},
	{"jobs", required_argument, NULL, OPT_JOBS},
	{"last", required_argument, NULL, OPT_LAST},
	{"progress", no_argument, NULL, OPT_PROGRESS},
	{"json", no_argument, NULL, OPT_JSON},
	{"expect-failure", no_argument, NULL, OPT_EXPECT},
	{"laps", no_argument, NULL, OPT_LAPS},
	{"no-icrc", no_argument, NULL, OPT_NO_ICRC},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static void
take_option(struct options *o, int c)
{
	switch (c) {
	case OPT_SEEDS:
		parse_seeds(o, optarg);
		break;
	case OPT_SEED:
		o->first = o->last = whole_number("--seed", optarg, 0, UINT64_MAX);
		break;
	case OPT_FILE:
		read_seeds(o, optarg);
		break;
	case OPT_PROFILE:
		if (!find_profile(optarg, &o->sim.profile))
			usage_error("--profile: \"%s\" is none of lossless, mild, brutal, faults, "
				    "hostile, all",
				optarg);
		break;
	case 'v':
		o->sim.verbose = true;
		break;
	case OPT_JOBS:
		o->jobs = (unsigned int)whole_number("--jobs", optarg, 1, MAX_JOBS);
		break;
	case OPT_LAST:
		o->sim.trace_packets = (uint32_t)whole_number("--last", optarg, 0, SIM_TRACE);
		break;
	case OPT_PROGRESS:
		o->progress = true;
		break;
	case OPT_JSON:
		o->json = true;
		break;
	case OPT_EXPECT:
		o->expect_failure = true;
		break;
	case OPT_LAPS:
		o->sim.laps = true;
		break;
	case OPT_NO_ICRC:
		o->sim.no_icrc = true;
		break;
	case 'h':
		fputs(usage_text, stdout);
		exit(0);
	case OPT_VERSION:
		puts("karst-sim " SIM_VERSION);
		exit(0);
	default:
		fputs("Try karst-sim --help.\n", stderr);
		exit(2);
	}
}

static void
parse_options(struct options *o, int argc, char **argv)
{
	int c;

	*o = (struct options){.first = 1, .last = 1000, .jobs = 1};
	o->sim.profile = SIM_ALL;
	o->sim.trace_packets = 60;
	while ((c = getopt_long(argc, argv, "vh", long_options, NULL)) != -1)
		take_option(o, c);
	if (optind < argc)
		usage_error("\"%s\": no arguments are taken, only options", argv[optind]);
}

/* --- a worker --- */

static void
report(const struct sim *s, const struct options *o)
{
	fprintf(stderr, "karst-sim: seed %llu, profile %s (%s), at %.3f us: %s\n",
		(unsigned long long)s->seed, profiles[s->opt.profile], profiles[s->profile],
		(double)s->now_ns / 1000, s->why);
	if (o->expect_failure)
		return;
	if (s->opt.trace_packets != 0 && !s->opt.verbose) {
		fputs("The last packets:\n", stderr);
		sim_trace_print(s, s->opt.trace_packets);
	}
	fprintf(stderr, "Again: karst-sim --profile %s --seed %llu -v\n", profiles[s->opt.profile],
		(unsigned long long)s->seed);
}

static bool
take_seed(const struct options *o, struct shared *sh, uint64_t *seed, enum sim_profile *profile)
{
	uint64_t i;

	if (atomic_load(&sh->stop))
		return false;
	i = atomic_fetch_add(&sh->next, 1);
	if (o->list != NULL) {
		if (i >= o->nlist)
			return false;
		*seed = o->list[i].seed;
		*profile = o->list[i].profile;
		return true;
	}
	if (i > o->last - o->first)
		return false;
	*seed = o->first + i;
	*profile = o->sim.profile;
	return true;
}

static int
work(const struct options *o, struct shared *sh, struct worker *w)
{
	struct sim *s = calloc(1, sizeof(*s));
	bool ok = true;
	uint64_t seed;

	if (s == NULL || sim_arena_init(&s->arena, ARENA_BYTES) != 0) {
		fputs("karst-sim: out of memory\n", stderr);
		return 1;
	}
	s->opt = o->sim;
	while (ok && take_seed(o, sh, &seed, &s->opt.profile)) {
		w->seed = seed;
		w->profile = s->opt.profile;
		w->running = true;
		ok = sim_run(s, seed);
		w->running = false;
		w->stats = s->stats;
		if (!ok) {
			w->failed = true;
			atomic_store(&sh->stop, true);
			report(s, o);
		}
	}
	free(s);
	return ok ? 0 : 1;
}

/* --- figures --- */

static void
add_stats(struct sim_stats *sum, const struct sim_stats *x)
{
	uint64_t *a = (uint64_t *)sum;
	const uint64_t *b = (const uint64_t *)x;
	size_t i;

	for (i = 0; i < sizeof(*sum) / sizeof(*a); i++)
		a[i] += b[i];
}

static struct sim_stats
total(const struct options *o, const struct shared *sh)
{
	struct sim_stats sum = {0};
	unsigned int i;

	for (i = 0; i < o->jobs; i++)
		add_stats(&sum, &sh->worker[i].stats);
	return sum;
}

static double
now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void
print_line(FILE *f, const struct sim_stats *t, double secs)
{
	fprintf(f,
		"%llu schedules, %llu packets, %llu completions, %llu retransmits, %llu lost, "
		"%llu spoilt, %.1f s, %.0f schedules/s\n",
		(unsigned long long)t->schedules, (unsigned long long)t->packets,
		(unsigned long long)t->completions, (unsigned long long)t->retransmits,
		(unsigned long long)t->dropped, (unsigned long long)t->corrupted, secs,
		(double)t->schedules / secs);
}

static void
print_json(const struct sim_stats *t, double secs, bool failed)
{
	printf("{\"schedules\": %llu, \"packets\": %llu, \"completions\": %llu, \"errors\": %llu, "
	       "\"retransmits\": %llu, \"timeouts\": %llu, \"sacks\": %llu, \"naks\": %llu, "
	       "\"rnr_naks\": %llu, "
	       "\"lost\": %llu, \"spoilt\": %llu, \"duplicated\": %llu, \"events\": %llu, "
	       "\"marked\": %llu, \"cnps\": %llu, \"migrations\": %llu, "
	       "\"virtual_seconds\": %.3f, \"seconds\": %.3f, \"failed\": %s}\n",
		(unsigned long long)t->schedules, (unsigned long long)t->packets,
		(unsigned long long)t->completions, (unsigned long long)t->errors,
		(unsigned long long)t->retransmits, (unsigned long long)t->timeouts,
		(unsigned long long)t->sacks, (unsigned long long)t->naks,
		(unsigned long long)t->rnrs, (unsigned long long)t->dropped,
		(unsigned long long)t->corrupted, (unsigned long long)t->duplicated,
		(unsigned long long)t->events, (unsigned long long)t->marked,
		(unsigned long long)t->cnps, (unsigned long long)t->migrations,
		(double)t->virtual_ns / 1e9, secs, failed ? "true" : "false");
}

/* --- the parent --- */

static bool
reap(const struct shared *sh, const pid_t *pids, unsigned int jobs, unsigned int *left, int flags)
{
	bool failed = false;
	unsigned int i;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, flags)) > 0) {
		for (i = 0; i < jobs && pids[i] != pid; i++)
			;
		(*left)--;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		failed = true;
		if (i < jobs && !sh->worker[i].failed)
			fprintf(stderr,
				"karst-sim: seed %llu, profile %s: the process ended with %s %d\n"
				"Again: karst-sim --profile %s --seed %llu -v\n",
				(unsigned long long)sh->worker[i].seed,
				profiles[sh->worker[i].profile],
				WIFSIGNALED(status) ? "signal" : "status",
				WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
				profiles[sh->worker[i].profile],
				(unsigned long long)sh->worker[i].seed);
	}
	return failed;
}

static bool
supervise(const struct options *o, struct shared *sh, const pid_t *pids, double start)
{
	unsigned int left = o->jobs;
	double told = start;
	bool failed = false;

	while (left > 0) {
		struct timespec tick = {.tv_nsec = 20000000};

		if (!o->progress) {
			failed |= reap(sh, pids, o->jobs, &left, 0);
			continue;
		}
		failed |= reap(sh, pids, o->jobs, &left, WNOHANG);
		nanosleep(&tick, NULL);
		if (now_s() - told >= 1) {
			struct sim_stats t = total(o, sh);

			told = now_s();
			print_line(stderr, &t, told - start);
		}
	}
	return failed;
}

int
main(int argc, char **argv)
{
	struct options o;
	struct shared *sh;
	struct sim_stats t;
	pid_t pids[MAX_JOBS];
	double start = now_s(), secs;
	unsigned int i;
	bool failed;
	int rc;

	parse_options(&o, argc, argv);
	rc = karst_crc_init(NULL);
	if (rc != 0) {
		fprintf(stderr, "karst-sim: no CRC kernel: %s\n", strerror(-rc));
		return 1;
	}
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED) {
		perror("karst-sim: mmap");
		return 1;
	}
	for (i = 0; i < o.jobs; i++) {
		pids[i] = fork();
		if (pids[i] < 0) {
			perror("karst-sim: fork");
			return 1;
		}
		if (pids[i] == 0)
			exit(work(&o, sh, &sh->worker[i]));
	}
	failed = supervise(&o, sh, pids, start);
	secs = now_s() - start;
	t = total(&o, sh);
	if (o.json)
		print_json(&t, secs, failed);
	else
		print_line(stdout, &t, secs);
	free(o.list);
	if (o.expect_failure) {
		printf("%s\n", failed ? "caught, as it must be" : "NOT CAUGHT");
		return failed ? 0 : 1;
	}
	return failed ? 1 : 0;
}
