/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "remote.h"
#include "check.h"
#include "run.h"
#include "tcp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Turns without work between two checks of the link. */
#define LOOK_EVERY 64u

struct remote {
	const struct perf_opts *opts;
	struct perf_attach *attach;
	void *stack;
	struct perf_link link;
	struct perf_opts theirs; /* of the client: options that both ends must share */
	struct perf_memory memory;
	struct perf_job job;
	struct perf_bed bed;
	struct perf_run *run; /* NULL: no measurement is going on */
	enum perf_phase phase;
	int rc; /* reason for the end */
};

/* --- the client's part of the conversation --- */

int
perf_remote_hello(
	struct perf_link *link, const struct perf_opts *o, uint64_t bytes, uint64_t lat_bytes)
{
	return perf_link_ask(link,
		json_pack("{s:i, s:b, s:b, s:b, s:I, s:I, s:I}", "hello", PERF_REMOTE_VERSION,
			"verify", o->verify, "latency", o->latency, "events", o->events, "seed",
			(json_int_t)o->seed, "bytes", (json_int_t)bytes, "lat_bytes",
			(json_int_t)lat_bytes),
		NULL);
}

/* The members of a job that are sent over the link. */
/* clang-format off */
#define JOB_MEMBERS(X) \
	X(op) X(transport) X(size) X(mtu) X(qps) X(depth) X(inflight) X(batch) X(slots) \
	X(stride) X(headroom) X(working_set) X(recv_depth) X(rd_atomic) X(inlined) X(timeout)
/* clang-format on */

static json_t *
describe_job(const struct perf_job *j)
{
	json_t *o = json_object();

#define X(member) json_object_set_new(o, #member, json_integer((json_int_t)j->member));
	JOB_MEMBERS(X)
#undef X
	return o;
}

int
perf_remote_connect(struct perf_link *link, struct perf_bed *bed)
{
	json_t *answer;
	int rc;

	rc = perf_link_ask(link,
		json_pack("{s:o, s:o}", "job", describe_job(bed->job), "end",
			perf_attach_describe(bed)),
		&answer);
	if (rc != 0)
		return rc;
	rc = perf_attach_learn(bed, json_object_get(answer, "end"));
	json_decref(answer);
	if (rc != 0) {
		fprintf(stderr, "karst-perf: %s: its answer does not fit\n", link->peer);
		return rc;
	}
	return perf_attach_bed_connect(bed);
}

/* --- the server: measurements --- */

__attribute__((format(printf, 1, 2))) static json_t *
remote_complaint(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "karst-perf: %s\n", text);
	return json_pack("{s:s}", "error", text);
}

static json_t *
remote_fine(void)
{
	return json_pack("{s:b}", "ok", 1);
}

static void
end_job(struct remote *r)
{
	if (r->run == NULL)
		return;
	perf_run_end(r->run);
	free(r->run);
	r->run = NULL;
	r->phase = PERF_PHASE_PARK;
	perf_attach_bed_destroy(&r->bed);
}

/* Do the places of a job fit in @bytes, and is no divisor zero? */
static bool
job_possible(const struct perf_job *j, uint64_t bytes)
{
	return j->op < PERF_OP_MAX && j->transport < PERF_TRANSPORT_MAX && j->size >= 1 &&
		j->size <= 1u << 30 && karst_is_pow2(j->mtu) && j->mtu >= 256 && j->mtu <= 4096 &&
		j->qps >= 1 && j->qps <= 500000 && j->depth >= 1 && j->depth <= 16384 &&
		j->batch >= 1 && j->batch <= j->depth && j->slots >= j->batch &&
		j->slots % j->batch == 0 && j->headroom <= PERF_GRH_ROOM &&
		j->stride >= j->size + j->headroom && j->stride % KARST_CACHE_LINE == 0 &&
		j->inflight <= 1u << 20 && j->recv_depth <= 65536 && j->rd_atomic <= 128 &&
		j->timeout <= 31 && (!j->inlined || j->size <= 1024) &&
		j->working_set == (uint64_t)j->slots * j->qps * j->stride &&
		j->working_set <= bytes;
}

static int
read_job(const json_t *o, uint64_t bytes, struct perf_job *j)
{
	uint64_t v;

	memset(j, 0, sizeof(*j));
	j->lcores = 1;
#define X(member)                                                   \
	if (perf_link_number(o, #member, UINT64_MAX >> 1, &v) != 0) \
		return -EPROTO;                                     \
	j->member = (__typeof__(j->member))v;                       \
	if ((uint64_t)j->member != v)                               \
		return -EPROTO;
	JOB_MEMBERS(X)
#undef X
	return job_possible(j, bytes) ? 0 : -EPROTO;
}

static int
begin_run(struct remote *r)
{
	void *p;
	int rc;

	if (posix_memalign(&p, KARST_CACHE_LINE, sizeof(*r->run)) != 0)
		return -ENOMEM;
	r->run = p;
	memset(r->run, 0, sizeof(*r->run));
	r->run->opts = &r->theirs;
	r->run->job = &r->job;
	r->run->bed = &r->bed;
	r->run->pingpong = r->theirs.latency;
	rc = perf_run_begin(r->run);
	if (rc == 0 && r->theirs.verify)
		perf_check_expect(&r->run->server);
	if (rc != 0) {
		free(r->run);
		r->run = NULL;
	}
	return rc;
}

static json_t *
on_job(struct remote *r, const json_t *o)
{
	json_t *end;
	int rc;

	end_job(r);
	if (r->memory.base[PERF_SERVER] == NULL)
		return remote_complaint("a job before the hello");
	if (read_job(json_object_get(o, "job"), r->memory.bytes, &r->job) != 0)
		return remote_complaint("a job that is not possible");
	if (perf_attach_bed_create(r->attach, &r->job, &r->memory, r->theirs.latency, &r->bed) != 0)
		return remote_complaint("the server's karstd refused; its output says what");
	rc = perf_attach_learn(&r->bed, json_object_get(o, "end"));
	if (rc == 0)
		rc = perf_attach_bed_connect(&r->bed);
	if (rc == 0)
		rc = begin_run(r);
	if (rc != 0) {
		perf_attach_bed_destroy(&r->bed);
		return remote_complaint("the server cannot connect: %s", strerror(-rc));
	}
	end = perf_attach_describe(&r->bed);
	return json_pack("{s:o}", "end", end);
}

/* --- the server: requests --- */

static json_t *
on_hello(struct remote *r, const json_t *o)
{
	uint64_t version, bytes, lat_bytes, seed, most = UINT64_C(1) << 40;
	enum perf_memory_kind kind = r->opts->memory;

	if (perf_link_number(o, "hello", UINT32_MAX, &version) != 0 ||
		version != PERF_REMOTE_VERSION)
		return remote_complaint("%s has another version of karst-perf", r->link.peer);
	if (perf_link_number(o, "bytes", most, &bytes) != 0 ||
		perf_link_number(o, "lat_bytes", most, &lat_bytes) != 0 ||
		perf_link_number(o, "seed", UINT64_MAX, &seed) != 0 ||
		r->memory.base[PERF_SERVER] != NULL)
		return remote_complaint("a hello that is not one");
	if (kind == PERF_MEMORY_STACK && bytes + lat_bytes > PERF_STACK_BYTES)
		return remote_complaint("--memory stack at the server: %" PRIu64
					" bytes of buffers; allowed: --working-set up to %" PRIu64,
			bytes, (uint64_t)PERF_STACK_BYTES - lat_bytes);
	r->theirs = *r->opts;
	r->theirs.seed = seed;
	r->theirs.verify = json_is_true(json_object_get(o, "verify"));
	r->theirs.latency = json_is_true(json_object_get(o, "latency"));
	r->attach->waits = json_is_true(json_object_get(o, "events"));
	if (perf_memory_create(kind, 1u << PERF_SERVER, bytes, lat_bytes, r->stack, &r->memory) !=
		0)
		return remote_complaint("no memory at the server for %" PRIu64 " bytes", bytes);
	return remote_fine();
}

static json_t *
on_settle(struct remote *r, const json_t *posted)
{
	uint32_t i;

	if (json_array_size(posted) != r->job.qps)
		return remote_complaint("a settlement that does not fit");
	for (i = 0; i < r->job.qps; i++) {
		const json_t *v = json_array_get(posted, i);
		uint64_t n = (uint64_t)json_integer_value(v);

		/* at most as many as there are places, since the last time */
		if (!json_is_integer(v) || n - r->run->server.sinks[i].checked > r->job.slots)
			return remote_complaint("a settlement that does not fit");
		perf_server_settle(&r->run->server, i, n);
	}
	return remote_fine();
}

static json_t *
on_result(const struct perf_run *run)
{
	const struct perf_tally *t = &run->server.tally;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "completed",
		(json_int_t)t->completed, "errors", (json_int_t)t->errors, "wrong",
		(json_int_t)t->wrong, "lost", (json_int_t)t->lost, "pong",
		(json_int_t)run->pong.errors, "events", (json_int_t)run->bed->attach->events,
		"status", run->server.first_error);
}

static json_t *
on_phase(struct remote *r, const json_t *v)
{
	json_int_t phase = json_integer_value(v);

	if (!json_is_integer(v) || phase < 0 || phase > PERF_PHASE_QUIT)
		return remote_complaint("no such phase");
	if (phase == PERF_PHASE_PINGPONG && !r->run->pingpong)
		return remote_complaint("ping-pong was not asked for");
	r->phase = (enum perf_phase)phase;
	if (phase == PERF_PHASE_QUIT)
		end_job(r);
	return remote_fine();
}

static json_t *
remote_answer(struct remote *r, const json_t *o)
{
	const json_t *v;

	if (json_object_get(o, "hello") != NULL)
		return on_hello(r, o);
	if (json_object_get(o, "job") != NULL)
		return on_job(r, o);
	if (r->run == NULL)
		return remote_complaint("a request without a job");
	if ((v = json_object_get(o, "phase")) != NULL)
		return on_phase(r, v);
	if ((v = json_object_get(o, "settle")) != NULL)
		return on_settle(r, v);
	if (json_object_get(o, "count") != NULL)
		return json_pack("{s:I}", "completed", (json_int_t)r->run->server.tally.completed);
	if (json_object_get(o, "targets") != NULL)
		return json_pack(
			"{s:I}", "targets", (json_int_t)perf_check_targets(&r->run->server));
	if (json_object_get(o, "result") != NULL)
		return on_result(r->run);
	return remote_complaint("a request that this version does not know");
}

/* Does the server have work in this phase besides answering requests? */
static bool
remote_works(const struct remote *r)
{
	if (r->run == NULL)
		return false;
	if (r->phase == PERF_PHASE_TRAFFIC)
		return r->job.recv_depth != 0;
	return r->phase == PERF_PHASE_PINGPONG && !r->run->pong.fetches;
}

/* Handles one request.  Without @wait there may be none.  @return false: the server ends. */
static bool
remote_attend(struct remote *r, bool wait)
{
	json_t *o;
	int rc = perf_link_recv(&r->link, wait, &o);

	if (rc == -EAGAIN)
		return true;
	if (rc != 0) {
		/* the client closes the link when it has finished */
		if (rc == -EPROTO)
			fprintf(stderr, "karst-perf: %s does not speak as karst-perf does\n",
				r->link.peer);
		r->rc = rc == -EPIPE && r->run == NULL ? 0 : 1;
		return false;
	}
	if (json_object_get(o, "tcp") != NULL && r->memory.base[PERF_SERVER] != NULL)
		rc = perf_tcp_serve(&r->link, r->attach);
	else
		rc = perf_link_send(&r->link, remote_answer(r, o));
	json_decref(o);
	if (rc != 0)
		r->rc = 1;
	return rc == 0;
}

static void
remote_serve(struct remote *r)
{
	uint32_t idle = 0;

	while (remote_attend(r, !remote_works(r))) {
		for (idle = 0; remote_works(r) && idle < LOOK_EVERY; idle++) {
			if (r->phase == PERF_PHASE_TRAFFIC) {
				if (perf_server_turn(&r->run->server) > 0)
					continue;
				if (r->attach->waits) {
					if (perf_attach_wait(r->attach, r->link.fd))
						break;
					continue;
				}
			} else {
				perf_pong(&r->run->pong);
			}
			if (r->opts->yield != 0)
				perf_attach_rest(r->attach);
		}
	}
	end_job(r);
}

int
perf_remote_serve(const struct perf_opts *opts, struct perf_attach *a, void *stack)
{
	struct remote r = {.opts = opts, .attach = a, .stack = stack};
	uint16_t port = opts->tcp_port;
	int listener = perf_link_listen(&port), rc;

	if (listener < 0) {
		fprintf(stderr, "karst-perf: --tcp-port: port %u: %s\n", port, strerror(-listener));
		return 1;
	}
	printf("karst-perf: server on TCP port %u\n", port);
	fflush(stdout);
	rc = perf_link_accept(listener, &r.link);
	close(listener);
	if (rc != 0) {
		fprintf(stderr, "karst-perf: no client: %s\n", strerror(-rc));
		return 1;
	}
	remote_serve(&r);
	perf_link_close(&r.link);
	perf_memory_destroy(&r.memory);
	return r.rc;
}
