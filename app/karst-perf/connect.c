/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* --op connect: the engine, the two ends, and the output. */
#include "connect.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_pause.h>

#include "attach.h"
#include "daemon.h"
#include "eal.h"
#include "karst_embed.h"
#include "karst_session.h"
#include "karst_yield.h"
#include "ports.h"

#define MIB           (UINT64_C(1) << 20)
#define BASE_BYTES    (256 * MIB)
#define CONN_BYTES    (64u << 10) /* of EAL's memory: queue pairs of both ends, buffers */
#define SESSION_RINGS (UINT64_C(1) << 34)

struct connect_run {
	struct perf_opts *opts;
	struct connect_client client;
	struct connect_server server;
	struct perf_attach attach[PERF_ENDS]; /* over karstd */
	/* embedded */
	struct perf_eal eal;
	struct perf_ports ports;
	bool yield;
	atomic_bool stop;
};

/* --- figures --- */

struct connect_result {
	uint64_t connections; /* made and ended */
	double rate;
	uint64_t lost; /* begun, and not ended at both ends */
	uint64_t wrong;
	uint64_t errors;
};

static void
sum_up(const struct connect_run *r, struct connect_result *x)
{
	const struct connect_end *c = &r->client.end, *s = &r->server.end;

	x->connections = c->ended;
	x->rate = r->client.seconds > 0 ? (double)c->ended / r->client.seconds : 0;
	x->lost = c->begun - karst_min_u64(c->begun, karst_min_u64(c->ended, s->ended));
	x->wrong = c->wrong + s->wrong;
	x->errors = c->errors + s->errors;
}

static const double fractions[] = {0.5, 0.99, 0.999, 1};

static void
print_table(const struct connect_run *r, const struct connect_result *x)
{
	const struct perf_hist *h[] = {r->client.connect_ns, r->client.disconnect_ns};
	uint32_t i, k;

	printf("                                     connect, us           disconnect, us      "
	       "          bad\n"
	       "op       conns  ended     per s      p50       p99       p50       p99     lost  "
	       "data  errors\n");
	printf("connect  %5u %6" PRIu64 " %9.0f", r->opts->conns, x->connections, x->rate);
	for (i = 0; i < 2; i++)
		for (k = 0; k < 2; k++)
			printf(" %9.1f", (double)perf_hist_percentile(h[i], fractions[k]) / 1e3);
	printf(" %8" PRIu64 " %5" PRIu64 " %7" PRIu64 "\n", x->lost, x->wrong, x->errors);
}

static json_t *
connect_latency(const struct perf_hist *h)
{
	static const char *const names[] = {"p50", "p99", "p999", "max"};
	json_t *o = json_object();
	uint32_t i;

	for (i = 0; i < KARST_DIM(names); i++)
		json_object_set_new(o, names[i],
			json_integer((json_int_t)perf_hist_percentile(h, fractions[i])));
	return o;
}

static json_t *
connect_counts(const struct connect_end *e)
{
	return json_pack("{s:I, s:I, s:I}", "begun", (json_int_t)e->begun, "established",
		(json_int_t)e->established, "ended", (json_int_t)e->ended);
}

static int
print_json(const struct connect_run *r, const struct connect_result *x)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:b, s:i, s:I, s:f, s:f}", "op", "connect", "mode",
		perf_opts_mode(r->opts), "port",
		r->ports.engine != NULL ? r->ports.driver : "karstd", "queue_pairs",
		r->client.end.with_qps, "conns", (int)r->opts->conns, "connections",
		(json_int_t)x->connections, "seconds", r->client.seconds, "per_second", x->rate);
	int rc = o == NULL;

	rc |= json_object_set_new(o, "connect_ns", connect_latency(r->client.connect_ns));
	rc |= json_object_set_new(o, "disconnect_ns", connect_latency(r->client.disconnect_ns));
	rc |= json_object_set_new(o, "client", connect_counts(&r->client.end));
	rc |= json_object_set_new(o, "server", connect_counts(&r->server.end));
	rc |= json_object_set_new(o, "lost", json_integer((json_int_t)x->lost));
	rc |= json_object_set_new(o, "verify_errors", json_integer((json_int_t)x->wrong));
	rc |= json_object_set_new(o, "errors", json_integer((json_int_t)x->errors));
	if (rc == 0)
		rc = json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	json_decref(o);
	putchar('\n');
	return rc == 0 ? 0 : 1;
}

static int
connect_print(const struct connect_run *r)
{
	struct connect_result x;
	int rc = 0;

	sum_up(r, &x);
	if (r->opts->json)
		rc = print_json(r, &x);
	else
		print_table(r, &x);
	fflush(stdout);
	if (x.lost != 0)
		fprintf(stderr, "karst-perf: %" PRIu64 " connections are lost\n", x.lost);
	if (x.wrong != 0)
		fprintf(stderr, "karst-perf: %" PRIu64 " times private data were wrong\n", x.wrong);
	return rc != 0 || x.lost + x.wrong + x.errors != 0;
}

/* --- the two ends --- */

static int
connect_prepare(struct connect_run *r)
{
	struct connect_client *c = &r->client;

	c->end.name = "the client";
	r->server.end.name = "the server";
	c->end.next_qpn = 2;
	r->server.end.next_qpn = 3;
	c->opts = r->opts;
	c->end.seed = r->server.end.seed = r->opts->seed;
	c->end.with_qps = r->server.end.with_qps = !r->opts->no_qps;
	atomic_init(&r->server.expected, UINT64_MAX);
	c->conns = calloc(r->opts->conns, sizeof(*c->conns));
	c->connect_ns = perf_hist_create();
	c->disconnect_ns = perf_hist_create();
	return c->conns != NULL && c->connect_ns != NULL && c->disconnect_ns != NULL ? 0 : -ENOMEM;
}

/* Runs both ends, which have contexts and addresses. */
static int
run_ends(struct connect_run *r)
{
	struct connect_client *c = &r->client;
	struct connect_server *s = &r->server;
	int rc = connect_end_up(&c->end);

	if (rc == 0)
		rc = connect_end_up(&s->end);
	if (rc == 0)
		rc = connect_server_listen(s);
	if (rc == 0) {
		c->to = s->at;
		rc = pthread_create(&s->thread, NULL, connect_server_main, s);
		if (rc != 0)
			fputs("karst-perf: no thread\n", stderr);
	}
	if (rc == 0) {
		rc = connect_client_run(c);
		/* release, pairs with the acquire of the server's thread */
		atomic_store_explicit(&s->expected, c->end.ended, memory_order_release);
		pthread_join(s->thread, NULL);
		rc = connect_print(r) != 0 || rc != 0;
	}
	connect_end_down(&c->end);
	connect_end_down(&s->end);
	return rc == 0 ? 0 : 1;
}

/* --- over karstd --- */

static void
connect_address_of(const union karst_gid *gid, struct sockaddr_storage *sa)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_in6 *in6 = (void *)sa;
	struct sockaddr_in *in = (void *)sa;

	memset(sa, 0, sizeof(*sa));
	if (memcmp(gid->raw, prefix, sizeof(prefix)) == 0) {
		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, gid->raw + 12, 4);
	} else {
		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, gid->raw, 16);
	}
}

static int
connect_attached(struct connect_run *r)
{
	struct perf_daemon daemon = {.dir = ""};
	int rc = 0;

	if (r->opts->daemon)
		rc = perf_daemon_start(r->opts, &daemon);
	if (rc == 0)
		rc = perf_attach_open(r->opts, PERF_CLIENT, &r->attach[PERF_CLIENT]);
	if (rc == 0)
		rc = perf_attach_open(r->opts, PERF_SERVER, &r->attach[PERF_SERVER]);
	if (rc == 0) {
		r->client.end.ctx = r->attach[PERF_CLIENT].ctx;
		r->server.end.ctx = r->attach[PERF_SERVER].ctx;
		connect_address_of(&r->attach[PERF_CLIENT].gid, &r->client.from);
		connect_address_of(&r->attach[PERF_SERVER].gid, &r->server.at);
		rc = run_ends(r);
	}
	perf_attach_close(&r->attach[PERF_SERVER]);
	perf_attach_close(&r->attach[PERF_CLIENT]);
	if (r->opts->daemon)
		perf_daemon_stop(&daemon);
	return rc;
}

/* --- embedded --- */

static int
connect_poll_engine(void *arg)
{
	struct karst_yield yield = {0};
	struct connect_run *r = arg;

	/* relaxed: no other data depends on it */
	while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
		if (karst_engine_poll(r->ports.engine, 0) != 0)
			continue;
		if (r->yield)
			karst_yield(&yield);
		else
			rte_pause();
	}
	karst_engine_release(r->ports.engine, 0);
	return 0;
}

static int
open_context(struct connect_run *r, enum perf_end end, struct connect_end *e,
	struct sockaddr_storage *sa)
{
	const struct karst_session_limits limits = {.max_ring_bytes = SESSION_RINGS};
	struct karst_engine_port_info info;
	struct karst_ctl_conn conn;
	union karst_gid gid;
	int rc = karst_session_conn(r->ports.engine, &limits, &conn);

	if (rc == 0) {
		rc = karst_open_conn(&conn, NULL, &e->ctx);
		if (rc == 0)
			e->session = karst_session_of(&conn);
		else
			conn.close(conn.user);
	}
	if (rc == 0)
		rc = karst_engine_port_info(r->ports.engine, r->ports.port[end], &info);
	if (rc != 0) {
		fprintf(stderr, "karst-perf: control connection to the engine: %s\n",
			strerror(-rc));
		return 1;
	}
	memcpy(gid.raw, info.addrs[0].ip, sizeof(gid.raw));
	connect_address_of(&gid, sa);
	return 0;
}

static int
run_embedded(struct connect_run *r)
{
	int rc = rte_eal_remote_launch(connect_poll_engine, r, r->eal.lcores[0]);

	if (rc != 0) {
		fputs("karst-perf: a worker is busy\n", stderr);
		return 1;
	}
	rc = open_context(r, PERF_CLIENT, &r->client.end, &r->client.from);
	if (rc == 0)
		rc = open_context(r, PERF_SERVER, &r->server.end, &r->server.at);
	if (rc == 0)
		rc = run_ends(r);
	if (r->server.end.ctx != NULL)
		karst_close(r->server.end.ctx);
	if (r->client.end.ctx != NULL)
		karst_close(r->client.end.ctx);
	atomic_store_explicit(&r->stop, true, memory_order_relaxed);
	rte_eal_wait_lcore(r->eal.lcores[0]);
	return rc;
}

static int
connect_embedded(struct connect_run *r)
{
	uint64_t bytes = BASE_BYTES + (uint64_t)CONN_BYTES * r->opts->conns +
		(uint64_t)r->opts->ring_size * 4 * 8192;
	int rc = perf_eal_start(r->opts, bytes, &r->eal);

	if (rc != 0)
		return rc;
	/* with few processors, idle lcores yield to the threads of the ends */
	r->yield = r->opts->yield >= 0 ? r->opts->yield != 0 : r->eal.num_cpus < 4;
	rc = perf_ports_open(r->opts, 2 * r->opts->conns, &r->ports);
	if (rc == 0) {
		rc = run_embedded(r);
		perf_ports_close(&r->ports);
	}
	rte_eal_cleanup();
	return rc;
}

int
perf_connect_main(struct perf_opts *o)
{
	struct connect_run *r = calloc(1, sizeof(*r));
	int rc = 1;

	if (r == NULL)
		return 1;
	r->opts = o;
	if (connect_prepare(r) != 0)
		fputs("karst-perf: no memory\n", stderr);
	else
		rc = perf_opts_attached(o) ? connect_attached(r) : connect_embedded(r);
	free(r->client.conns);
	free(r->client.connect_ns);
	free(r->client.disconnect_ns);
	free(r);
	return rc;
}
