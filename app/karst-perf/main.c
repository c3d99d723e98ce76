/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-perf: measures traffic between two endpoints at full speed, in one process over a pair of
 * DPDK ports, or in two processes over karstd.
 *
 * Steps: the command line (opts.c) is turned into a list of measurements (plan.c); DPDK is started
 * (eal.c); ports, engine (ports.c) and buffers (memory.c) are created once.  Then for each
 * measurement queue pairs are created and connected (bed.c), worker threads run it (run.c, which
 * calls client.c, server.c, pingpong.c and baseline.c) while the main thread shows progress, and
 * the figures are printed (report.c).
 *
 * Over karstd the bed consists of libkarst's objects (attach.c), and the server is a separate
 * process (remote.c) that the client controls over TCP (link.c); --daemon starts the server and a
 * karstd (daemon.c).
 *
 * --op connect is separate from all of this and is in connect.c.
 */
#include "attach.h"
#include "connect.h"
#include "crc_bench.h"
#include "daemon.h"
#include "eal.h"
#include "remote.h"
#include "report.h"
#include "tcp.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_launch.h>

#define MIB            (UINT64_C(1) << 20)
#define EAL_BASE_BYTES (256 * MIB)
#define WATCH_NS       5000000 /* interval of the main thread's checks */

struct perf_app {
	struct perf_opts opts;
	struct perf_plan plan;
	struct perf_eal eal;
	struct perf_ports ports;   /* embedded */
	struct perf_attach attach; /* over karstd */
	struct perf_link link;
	struct perf_daemon daemon;
	struct perf_memory memory;
	struct perf_baseline baseline;
	FILE *progress;
	bool tty;                  /* progress may overwrite its line */
	struct perf_result result; /* of the last measurement */
};

/* --- progress --- */

static double
now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void
clear_progress(const struct perf_app *app)
{
	if (app->tty)
		fputs("\r\033[K", app->progress);
	fflush(app->progress);
}

static void
show_progress(const struct perf_app *app, const struct perf_run *r, uint32_t nr, double seconds,
	uint64_t messages)
{
	double done = (double)__atomic_load_n(&r->elapsed_ns, __ATOMIC_RELAXED) / 1e9;
	char size[24];

	perf_report_size(size, sizeof(size), r->job->size);
	fprintf(app->progress, "%s[%u/%u] %s %s %s: %.1f s measured", app->tty ? "\r\033[K" : "",
		nr + 1, app->plan.num_jobs, perf_op_name(r->job->op),
		perf_transport_name(r->job->transport), size, done);
	if (app->opts.iters == 0)
		fprintf(app->progress, " of %g", app->opts.duration_s);
	fprintf(app->progress, ", %.2f Gb/s, %.3f Mmsg/s (pauses included)%s",
		(double)messages * r->job->size * 8 / seconds / 1e9,
		(double)messages / seconds / 1e6, app->tty ? "" : "\n");
	fflush(app->progress);
}

/* Has the leader, which is one of two lcores or a thread, not finished yet? */
static bool
is_running(const struct perf_app *app, const struct perf_run *r, uint32_t worker)
{
	if (r->ports == NULL)
		/* acquire, pairs with the release in lead_thread(): what it did is seen */
		return !atomic_load_explicit(&r->done, memory_order_acquire);
	return rte_eal_get_lcore_state(app->eal.lcores[worker]) == RUNNING;
}

static void
main_watch(const struct perf_app *app, const struct perf_run *r, uint32_t nr)
{
	const struct timespec nap = {.tv_nsec = WATCH_NS};
	uint64_t before = 0;
	double shown = now_s();
	uint32_t i;

	for (i = 0; i < app->opts.lcores; i++) {
		while (is_running(app, r, i)) {
			double now = now_s();

			if (now - shown >= 1) {
				uint64_t all = perf_tally_read(&r->client.tally.completed);

				show_progress(app, r, nr, now - shown, all - before);
				before = all;
				shown = now;
			}
			nanosleep(&nap, NULL);
		}
		if (r->ports != NULL)
			rte_eal_wait_lcore(app->eal.lcores[i]);
	}
	clear_progress(app);
}

/* --- one measurement --- */

static void *
lead_thread(void *arg)
{
	struct perf_run *r = arg;

	perf_run_lead(r);
	/* release, pairs with the acquire in is_running() */
	atomic_store_explicit(&r->done, true, memory_order_release);
	return NULL;
}

static int
launch_attached(const struct perf_app *app, struct perf_run *r, uint32_t nr)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, lead_thread, r) != 0) {
		fputs("karst-perf: no thread\n", stderr);
		return 1;
	}
	main_watch(app, r, nr);
	pthread_join(thread, NULL);
	return 0;
}

static int
main_launch(const struct perf_app *app, struct perf_run *r, uint32_t nr)
{
	int rc = 0;

	if (r->ports == NULL)
		return launch_attached(app, r, nr);
	if (app->opts.lcores > 1)
		rc = rte_eal_remote_launch(perf_run_follow, r, app->eal.lcores[1]);
	if (rc == 0)
		rc = rte_eal_remote_launch(perf_run_lead, r, app->eal.lcores[0]);
	if (rc != 0) {
		fputs("karst-perf: a worker is busy\n", stderr);
		return 1;
	}
	main_watch(app, r, nr);
	return 0;
}

static int
main_print(struct perf_app *app, const struct perf_run *r)
{
	struct perf_result *x = &app->result;

	perf_result_make(r, x);
	if (!app->opts.json)
		perf_report_table_row(stdout, r, x);
	else if (perf_report_json(stdout, r, x) != 0)
		return 1;
	perf_report_trouble(r, x);
	return perf_result_bad(x);
}

static int
make_bed(struct perf_app *app, const struct perf_job *j, struct perf_bed *bed)
{
	if (!perf_opts_attached(&app->opts))
		return perf_bed_create(j, &app->ports, &app->memory, app->opts.latency, bed);
	if (perf_attach_bed_create(&app->attach, j, &app->memory, app->opts.latency, bed) != 0)
		return 1;
	if (perf_remote_connect(&app->link, bed) == 0)
		return 0;
	perf_attach_bed_destroy(bed);
	return 1;
}

static void
prepare_run(
	struct perf_app *app, const struct perf_job *j, struct perf_bed *bed, struct perf_run *r)
{
	bool attached = perf_opts_attached(&app->opts);
	uint32_t cpus = app->opts.lcores;

	/* the CPUs may be shared with the server and the lcores of two daemons: a thread that polls
	 * on the CPU of one of them stops it for the kernel's time slice of milliseconds */
	if (attached)
		cpus = 4;
	memset(r, 0, sizeof(*r));
	r->opts = &app->opts;
	r->job = j;
	r->ports = attached ? NULL : &app->ports;
	r->link = attached ? &app->link : NULL;
	r->bed = bed;
	r->baseline = &app->baseline;
	r->pingpong = app->opts.latency;
	r->yield = app->opts.yield >= 0 ? app->opts.yield != 0 : app->eal.num_cpus < cpus;
	r->rtt_cpu = attached && app->eal.num_cpus > 1 ? app->eal.cpus[0] : -1;
}

/* --hold: lets several clients begin at the same time. */
static void
wait_for_word(void)
{
	int c;

	fputs("karst-perf: connected; a line on standard input begins\n", stderr);
	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

static int
run_once(struct perf_app *app, struct perf_run *r, uint32_t nr)
{
	int rc = perf_run_begin(r);

	if (rc != 0) {
		fputs("karst-perf: no memory for a measurement\n", stderr);
		return 1;
	}
	rc = main_launch(app, r, nr);
	if (rc == 0)
		rc = main_print(app, r);
	perf_run_end(r);
	return rc;
}

/* Atomics and datagrams have no counterpart in TCP. */
static int
compare_tcp(struct perf_app *app, const struct perf_job *j)
{
	double seconds = app->opts.iters != 0 ? 1 : app->opts.duration_s;
	struct perf_tcp t;

	if (perf_op_atomic(j->op) || j->transport == PERF_UD)
		return 0;
	if (perf_tcp_measure(&app->link, &app->attach, j, seconds, &t) != 0)
		return 1;
	if (app->opts.json)
		perf_report_tcp_json(stdout, j, &t);
	else
		perf_report_tcp_row(stdout, j, &app->result, &t);
	free(t.rtt);
	return 0;
}

static int
main_measure(struct perf_app *app, uint32_t nr)
{
	const struct perf_job *j = &app->plan.jobs[nr];
	double began = now_s();
	struct perf_run *r;
	struct perf_bed bed;
	int rc;

	if (posix_memalign((void **)&r, KARST_CACHE_LINE, sizeof(*r)) != 0)
		return 1;
	rc = make_bed(app, j, &bed);
	if (rc == 0) {
		prepare_run(app, j, &bed, r);
		r->connect_s = now_s() - began;
		if (app->opts.hold)
			wait_for_word();
		rc = run_once(app, r, nr);
		if (bed.attach != NULL)
			perf_attach_bed_destroy(&bed);
		else
			perf_bed_destroy(&bed);
	}
	free(r);
	if (rc == 0 && app->opts.compare_tcp)
		rc = compare_tcp(app, j);
	return rc;
}

/* --- all of them --- */

/* Upper bound of the memory that the engine needs from EAL: buffers, rings and queue pairs of both
 * ends. */
static uint64_t
eal_bytes(const struct perf_app *app)
{
	uint64_t most = 0;
	uint32_t i;

	for (i = 0; i < app->plan.num_jobs; i++) {
		const struct perf_job *j = &app->plan.jobs[i];
		uint64_t qp = 8192 + 64 * (uint64_t)karst_pow2_ceil(j->depth) + 64 * j->recv_depth;

		most = karst_max_u64(most, qp * 2 * j->qps);
	}
	return EAL_BASE_BYTES + most + (uint64_t)app->opts.ring_size * 4 * 8192;
}

static uint64_t
lat_bytes(const struct perf_app *app)
{
	uint64_t most = 0;
	uint32_t i;

	if (!app->opts.latency)
		return 0;
	for (i = 0; i < app->plan.num_jobs; i++)
		most = karst_max_u64(most, perf_pinger_bytes(app->plan.jobs[i].size));
	return most;
}

static void
say_embedded(const struct perf_app *app, FILE *to)
{
	const struct perf_opts *o = &app->opts;

	fprintf(to, "karst-perf: %s ports", app->ports.driver);
	if (o->num_vdevs == 0)
		fprintf(to, " of %u slots", o->ring_size);
	fprintf(to, ", %s memory, ", app->eal.huge ? "huge page" : "ordinary (no huge pages)");
	if (o->lcores == 1)
		fprintf(to, "both ends on CPU %d", app->eal.cpus[0]);
	else
		fprintf(to, "client on CPU %d, server on CPU %d", app->eal.cpus[0],
			app->eal.cpus[1]);
}

static void
say_attached(const struct perf_app *app, FILE *to)
{
	const struct perf_opts *o = &app->opts;
	struct karst_device_attr dev = {.engine = "?"};

	(void)karst_query_device(app->attach.ctx, &dev);
	fprintf(to, "karst-perf: attached to engine %s at %s, server on %s, %s memory", dev.engine,
		o->connect, app->link.peer, perf_memory_name(o->memory));
}

static void
say_setup(const struct perf_app *app)
{
	const struct perf_opts *o = &app->opts;
	FILE *to = o->json ? stderr : stdout;

	if (perf_opts_attached(o))
		say_attached(app, to);
	else
		say_embedded(app, to);
	fprintf(to, "; MTU %u, %u QP%s, depth %u", o->mtu, o->qps, o->qps == 1 ? "" : "s",
		app->plan.jobs[0].depth);
	if (o->loss > 0)
		fprintf(to, ", loss %g", o->loss);
	if (o->repeat)
		fputs(", selective repeat", to);
	if (o->early)
		fputs(", early retransmission", to);
	if (o->congestion != 0)
		fprintf(to, ", congestion %s", perf_congestion_name(o->congestion));
	if (o->verify)
		fputs(", every byte verified", to);
	fprintf(to, ", latency %s\n", o->latency ? "of ping-pong" : "under load");
	if (!perf_opts_attached(o) && app->eal.num_cpus < o->lcores)
		fprintf(to, "karst-perf: %u CPUs for %u lcores: idle lcores yield\n",
			app->eal.num_cpus, o->lcores);
	fflush(to);
}

static int
run_all(struct perf_app *app)
{
	uint32_t i;
	int worst = 0;

	say_setup(app);
	if (!app->opts.json)
		perf_report_table_head(stdout);
	for (i = 0; i < app->plan.num_jobs; i++) {
		int rc = main_measure(app, i);

		worst = rc > worst ? rc : worst;
	}
	return worst;
}

/* Creates buffers and baselines, then runs the measurements. */
static int
buffers_and_run(struct perf_app *app, uint32_t ends, void *stack)
{
	int rc = perf_memory_create(app->opts.memory, ends, app->plan.max_working_set,
		lat_bytes(app), stack, &app->memory);

	if (rc != 0)
		return 1;
	if (perf_baseline_create(app->opts.ring_size, &app->baseline) == 0) {
		rc = run_all(app);
		perf_baseline_destroy(&app->baseline);
	} else {
		fputs("karst-perf: no memory for the baselines\n", stderr);
		rc = 1;
	}
	perf_memory_destroy(&app->memory);
	return rc;
}

static int
main_embedded(struct perf_app *app)
{
	int rc = perf_eal_start(&app->opts, eal_bytes(app), &app->eal);

	if (rc != 0)
		return rc;
	rc = perf_ports_open(&app->opts, app->opts.qps + 1, &app->ports);
	if (rc == 0) {
		rc = buffers_and_run(app, 1u << PERF_CLIENT | 1u << PERF_SERVER, NULL);
		perf_ports_close(&app->ports);
	}
	rte_eal_cleanup();
	return rc;
}

static int
attached_client(struct perf_app *app, void *stack)
{
	const struct perf_opts *o = &app->opts;
	int rc;

	if (o->memory == PERF_MEMORY_STACK &&
		app->plan.max_working_set + lat_bytes(app) > PERF_STACK_BYTES) {
		fprintf(stderr,
			"karst-perf: --memory stack: %" PRIu64
			" bytes of buffers; allowed: up to %" PRIu64
			", with a smaller --working-set\n",
			app->plan.max_working_set + lat_bytes(app), PERF_STACK_BYTES);
		return 2;
	}
	rc = perf_attach_open(o, PERF_CLIENT, &app->attach);
	if (rc == 0 && perf_link_connect(o->peer, o->tcp_port, &app->link) == 0) {
		rc = perf_remote_hello(&app->link, o, app->plan.max_working_set, lat_bytes(app)) ==
				0
			? buffers_and_run(app, 1u << PERF_CLIENT, stack)
			: 1;
		perf_link_close(&app->link);
	} else if (rc == 0) {
		rc = 1;
	}
	perf_attach_close(&app->attach);
	return rc;
}

static int
attached_server(struct perf_app *app, void *stack)
{
	int rc = perf_attach_open(&app->opts, PERF_SERVER, &app->attach);

	if (rc != 0)
		return rc;
	rc = perf_remote_serve(&app->opts, &app->attach, stack);
	perf_attach_close(&app->attach);
	return rc;
}

static int
main_attached(struct perf_app *app)
{
	struct perf_opts *o = &app->opts;
	void *stack = NULL;
	int rc = 0;

	if (o->memory == PERF_MEMORY_STACK)
		stack = __builtin_alloca(PERF_STACK_BYTES);
	/* children inherit the affinity, so they start before this thread restricts its own */
	if (o->daemon)
		rc = perf_daemon_start(o, &app->daemon);
	if (rc == 0)
		rc = perf_eal_start_attached(&app->eal);
	if (rc == 0) {
		rc = o->server ? attached_server(app, stack) : attached_client(app, stack);
		rte_eal_cleanup();
	}
	if (o->daemon)
		perf_daemon_stop(&app->daemon);
	return rc;
}

int
main(int argc, char **argv)
{
	struct perf_app *app;
	int rc;

	if (argc > 1 && strcmp(argv[1], "crc") == 0)
		return karst_perf_crc_main(argc - 1, argv + 1);
	if (posix_memalign((void **)&app, KARST_CACHE_LINE, sizeof(*app)) != 0)
		return 1;
	memset(app, 0, sizeof(*app));
	rc = perf_opts_parse(argc, argv, &app->opts);
	if (rc < 0 && app->opts.connections) {
		rc = perf_connect_main(&app->opts);
		goto out;
	}
	if (rc < 0)
		rc = perf_plan_make(&app->opts, perf_eal_free_memory() / 10 * 8, &app->plan);
	else
		goto out;
	if (rc == 0) {
		app->progress = app->opts.json || !isatty(STDOUT_FILENO) ? stderr : stdout;
		app->tty = isatty(fileno(app->progress)) != 0;
		rc = perf_opts_attached(&app->opts) ? main_attached(app) : main_embedded(app);
		perf_plan_free(&app->plan);
	}
out:
	free(app);
	return rc;
}
