/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "sim_cm.h"

#include <getopt.h>

static const char *const profiles[PROFILES] = {"lossless", "mild", "brutal"};

void
violated(struct world *w, const char *fmt, ...)
{
	va_list ap;

	if (w->failed)
		return;
	w->failed = true;
	va_start(ap, fmt);
	vsnprintf(w->why, sizeof(w->why), fmt, ap);
	va_end(ap);
}

/* --- the CM's ops: the user pointer identifies the node --- */

struct node_ref {
	struct world *w;
	uint32_t node;
};

static void
on_send(void *user, const struct karst_cm_path *path, const uint8_t *mad)
{
	const struct node_ref *n = user;

	link_send(n->w, n->node, path, mad);
}

static void
on_event(void *user, const struct karst_cm_ev *ev)
{
	const struct node_ref *n = user;

	user_event(n->w, n->node, ev);
}

static const struct karst_cm_ops ops = {on_send, on_event};

/* --- a schedule --- */

static void
draw_link(struct world *w)
{
	struct sim_rng *r = &w->rng;

	w->delay_min_ns = rng_log(r, 1, 1000) * 1000;
	w->delay_max_ns = w->delay_min_ns;
	if (w->profile == LOSSLESS) {
		w->delay_max_ns += rng_below(r, 2) * rng_log(r, 1, 50000) * 1000;
		return;
	}
	w->delay_max_ns += rng_log(r, 1, w->profile == MILD ? 300000 : 1000000) * UINT64_C(1000);
	w->loss_ppm = rng_below(r, w->profile == MILD ? 80000 : 600000);
	w->double_ppm = rng_below(r, w->profile == MILD ? 80000 : 300000);
}

static void
open_node(struct world *w, uint32_t node, struct node_ref *ref)
{
	struct karst_cm_config cfg = {.max_ids = 256,
		.guid = 0x1000 + node,
		.secret = {rng_u64(&w->rng)},
		.ops = &ops,
		.user = ref};

	cfg.response_timeout = (uint8_t)rng_range(&w->rng, w->profile == BRUTAL ? 12 : 18, 20);
	cfg.max_retries = (uint8_t)rng_range(&w->rng, w->profile == BRUTAL ? 1 : 12, 15);
	if (w->profile == BRUTAL && rng_one_in(&w->rng, 3))
		cfg.mra_service_timeout = 255;
	ref->w = w;
	ref->node = node;
	w->mem[node] = aligned_alloc(64, (karst_cm_bytes(&cfg) + 63) / 64 * 64);
	if (w->mem[node] == NULL || karst_cm_init(w->mem[node], &cfg, w->now_ns, &w->cm[node]) != 0)
		abort();
	/* even service ids below 64 K */
	if (karst_cm_id_listen(w->cm[node], SERVICE, ~UINT64_C(0xfffe), NULL, &w->listener[node]) !=
		0)
		abort();
}

static uint64_t
cm_next(const struct world *w)
{
	uint64_t at = NEVER;
	uint32_t i;

	for (i = 0; i < w->nnodes; i++)
		at = karst_min_u64(at, karst_cm_next_ns(w->cm[i]));
	return at;
}

/* Lets the first of the next actions happen. */
static bool
turn(struct world *w)
{
	uint64_t user = user_next(w), link = link_next(w), cm = cm_next(w);
	uint64_t at = karst_min_u64(user, karst_min_u64(link, cm));
	uint32_t i;

	if (at == NEVER)
		return false;
	if (at > w->now_ns)
		w->now_ns = at;
	if (at == link) {
		link_deliver(w);
		return true;
	}
	if (at == user) {
		user_act(w);
		return true;
	}
	for (i = 0; i < w->nnodes; i++) {
		w->cm[i]->now_ns = w->now_ns;
		karst_cm_expire(w->cm[i], rng_range(&w->rng, 1, 3));
	}
	return true;
}

static uint64_t
total(const uint64_t *of)
{
	uint64_t n = 0;
	unsigned int i;

	for (i = 0; i < KARST_CM_KINDS; i++)
		n += of[i];
	return n;
}

static void
judge_node(struct world *w, uint32_t node)
{
	static const enum karst_cm_counter never[] = {KARST_CM_CTR_MALFORMED,
		KARST_CM_CTR_ATTRIBUTE, KARST_CM_CTR_FORGED, KARST_CM_CTR_INVALID,
		KARST_CM_CTR_STALE, KARST_CM_CTR_FLOOD, KARST_CM_CTR_TABLE_FULL};
	const struct karst_cm *cm = w->cm[node];
	const uint64_t *other = cm->counters.other;
	uint32_t i;

	REQUIRE(w, cm->nids == 1 && cm->nhalf_open == 0, "node %u: %u ids are left, %u half open",
		node, cm->nids, cm->nhalf_open);
	for (i = 0; i < KARST_DIM(never); i++)
		REQUIRE(w, other[never[i]] == 0, "node %u: %s, with honest peers", node,
			karst_cm_counter_name(never[i]));
	if (w->profile == LOSSLESS)
		/* except LAPs: a LAP may overtake the RTU and is ignored until that arrives (C4) */
		REQUIRE(w, total(cm->counters.tx_retries) == cm->counters.tx_retries[KARST_CM_LAP],
			"node %u: something was sent twice on a good link", node);
}

static void
run(struct world *w)
{
	struct node_ref refs[NODES];
	uint32_t i, turns = 0;

	w->rng.state = w->seed;
	w->profile = rng_below(&w->rng, PROFILES);
	w->now_ns = rng_u64(&w->rng) % (1000 * SECOND);
	w->nnodes = rng_range(&w->rng, 1, NODES);
	draw_link(w);
	for (i = 0; i < w->nnodes; i++)
		open_node(w, i, &refs[i]);
	user_draw(w);
	while (!w->failed && (turn(w) || user_rouse(w)))
		REQUIRE(w, ++turns < 200000, "it does not end");
	if (!w->failed)
		user_judge(w);
	for (i = 0; i < w->nnodes; i++) {
		if (!w->failed)
			judge_node(w, i);
		free(w->mem[i]);
	}
	link_clear(w);
}

/* --- the command line --- */

static void
usage(FILE *f)
{
	fprintf(f,
		"usage: karst-sim-cm [--seeds A..B | --seed N] [-v] [--expect-failure]\n"
		"  --seeds A..B      schedules to run (default 1..2000)\n"
		"  --seed N          one of them\n"
		"  -v, --verbose     say everything that happens\n"
		"  --expect-failure  succeed if one of them fails\n");
}

static bool
parse_seeds(const char *s, uint64_t *from, uint64_t *to)
{
	char *end;

	*from = strtoull(s, &end, 0);
	if (end == s || strncmp(end, "..", 2) != 0)
		return false;
	s = end + 2;
	*to = strtoull(s, &end, 0);
	return end != s && *end == 0 && *from <= *to;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"seeds", required_argument, NULL, 's'},
		{"seed", required_argument, NULL, 'n'}, {"verbose", no_argument, NULL, 'v'},
		{"expect-failure", no_argument, NULL, 'x'}, {"help", no_argument, NULL, 'h'}, {0}};
	static struct world w;
	uint64_t from = 1, to = 2000, seed, failures = 0, sent = 0, established = 0;
	bool verbose = false, expect_failure = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "vh", options, NULL)) != -1) {
		if (opt == 's' && !parse_seeds(optarg, &from, &to)) {
			fprintf(stderr, "karst-sim-cm: --seeds %s: not A..B\n", optarg);
			return 2;
		}
		if (opt == 'n')
			from = to = strtoull(optarg, NULL, 0);
		verbose |= opt == 'v';
		expect_failure |= opt == 'x';
		if (opt == 'h' || opt == '?') {
			usage(opt == 'h' ? stdout : stderr);
			return opt == 'h' ? 0 : 2;
		}
	}
	for (seed = from; seed <= to && (failures == 0 || !expect_failure); seed++) {
		memset(&w, 0, sizeof(w));
		w.seed = seed;
		w.verbose = verbose;
		run(&w);
		sent += w.sent;
		established += w.established;
		if (!w.failed)
			continue;
		failures++;
		printf("seed %llu, %s: %s\nAgain: karst-sim-cm --seed %llu -v\n",
			(unsigned long long)seed, profiles[w.profile], w.why,
			(unsigned long long)seed);
	}
	printf("%llu schedules, %llu messages, %llu connections, %llu failed\n",
		(unsigned long long)(seed - from), (unsigned long long)sent,
		(unsigned long long)established, (unsigned long long)failures);
	if (expect_failure) {
		printf("%s\n", failures != 0 ? "caught, as it must be" : "NOT CAUGHT");
		return failures != 0 ? 0 : 1;
	}
	return failures != 0 ? 1 : 0;
}
