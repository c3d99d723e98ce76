/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * interop-peer: both ends of an exchange by libibverbs in which everything is checked.
 *
 *   interop-peer [OPTION...]                    a server, for one client
 *   interop-peer [OPTION...] SERVER STEP...     the client, which says what both do
 *
 * It does not know karst: over karst it runs by karst-run, and in a virtual machine it runs over
 * Linux's own soft-RoCE.  The exit status is 0 only if everything was right at both ends.
 *
 * A step: both ends fill their buffers; the target posts receives; they meet; the actor posts its
 * items and checks its completions; they meet; the target checks the rest; both compare their
 * buffers, and exchange the problems that they found.
 */
#include "peer.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	OPT_GID = 256,
	OPT_PSN,
	OPT_RETRY,
	OPT_RNR_RETRY,
	OPT_RNR_TIMER,
	OPT_RD_ATOMIC,
	OPT_PATIENCE
};

static const struct option options[] = {
	{"port", required_argument, NULL, 'p'},
	{"dev", required_argument, NULL, 'd'},
	{"gid", required_argument, NULL, OPT_GID},
	{"qp", required_argument, NULL, 'q'},
	{"mtu", required_argument, NULL, 'm'},
	{"psn", required_argument, NULL, OPT_PSN},
	{"timeout", required_argument, NULL, 't'},
	{"retry-cnt", required_argument, NULL, OPT_RETRY},
	{"rnr-retry", required_argument, NULL, OPT_RNR_RETRY},
	{"min-rnr-timer", required_argument, NULL, OPT_RNR_TIMER},
	{"rd-atomic", required_argument, NULL, OPT_RD_ATOMIC},
	{"srq", no_argument, NULL, 's'},
	{"events", no_argument, NULL, 'e'},
	{"patience", required_argument, NULL, OPT_PATIENCE},
	{"verbose", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static const char usage[] =
	"usage: interop-peer [OPTION...]                  a server, for one client\n"
	"       interop-peer [OPTION...] SERVER STEP...   the client\n"
	"SERVER: a host name, unix:PATH, or file:PATH of a character device; a server takes the\n"
	"latter two as well.\n"
	"\n"
	"  -p, --port PORT         of the control channel (18519)\n"
	"  -d, --dev NAME          device (any that has the address)\n"
	"      --gid WHICH         v4, v6, ll, an address or an index; the server's is the client's\n"
	"                          kind unless it is given one\n"
	"  -v, --verbose           a line for each step\n"
	"by the client, for both ends:\n"
	"  -q, --qp TYPE           rc, uc or ud (rc)\n"
	"  -m, --mtu BYTES         256 to 4096 (1024)\n"
	"      --psn CLIENT[,SERVER]  first PSNs (some)\n"
	"  -t, --timeout N         4.096 us * 2^N (18)\n"
	"      --retry-cnt N, --rnr-retry N  (7)\n"
	"      --min-rnr-timer N   (12)\n"
	"      --rd-atomic N       READs and atomics outstanding (4)\n"
	"  -s, --srq               receive from a shared receive queue\n"
	"  -e, --events            sleep until a completion event\n"
	"      --patience S        for anything that ought to happen (120)\n";

struct arguments {
	const char *port, *dev, *gid, *where;
	bool verbose;
};

static _Noreturn void
refuse(const char *what, const char *value)
{
	fprintf(stderr, "interop-peer: %s%s%s; --help says more\n", what, value ? " " : "",
		value ? value : "");
	exit(2);
}

static uint32_t
option_number(const char *text, uint32_t max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);

	if (*text == '\0' || *end != '\0' || n > max)
		refuse("not a number, or too large:", text);
	return (uint32_t)n;
}

static void
psns(struct options *o, char *text)
{
	char *comma = strchr(text, ',');

	if (comma != NULL)
		*comma++ = '\0';
	o->psn[0] = option_number(text, 0xffffff);
	o->psn[1] = comma != NULL ? option_number(comma, 0xffffff) : o->psn[0];
}

static void
qp_type(struct options *o, const char *text)
{
	if (strcmp(text, "rc") == 0)
		o->qp_type = IBV_QPT_RC;
	else if (strcmp(text, "uc") == 0)
		o->qp_type = IBV_QPT_UC;
	else if (strcmp(text, "ud") == 0)
		o->qp_type = IBV_QPT_UD;
	else
		refuse("--qp takes rc, uc, ud, not", text);
}

static void
set(struct options *o, struct arguments *a, int c, char *text)
{
	switch (c) {
	case 'p':
		a->port = text;
		break;
	case 'd':
		a->dev = text;
		break;
	case 'v':
		a->verbose = true;
		break;
	case OPT_GID:
		a->gid = text;
		break;
	case 'q':
		qp_type(o, text);
		break;
	case 'm':
		o->mtu = option_number(text, 4096);
		if (o->mtu < 256 || (o->mtu & (o->mtu - 1)) != 0)
			refuse("--mtu takes 256, 512, 1024, 2048, 4096, not", text);
		break;
	case OPT_PSN:
		psns(o, text);
		break;
	case 't':
		o->timeout = option_number(text, 31);
		break;
	case OPT_RETRY:
		o->retry_cnt = option_number(text, 7);
		break;
	case OPT_RNR_RETRY:
		o->rnr_retry = option_number(text, 7);
		break;
	case OPT_RNR_TIMER:
		o->min_rnr_timer = option_number(text, 31);
		break;
	case OPT_RD_ATOMIC:
		o->rd_atomic = option_number(text, 128);
		break;
	case 's':
		o->srq = 1;
		break;
	case 'e':
		o->events = 1;
		break;
	case OPT_PATIENCE:
		o->patience_s = option_number(text, 3600);
		break;
	case 'h':
		fputs(usage, stdout);
		script_help();
		exit(0);
	default:
		exit(2);
	}
}

static void
add_word(struct options *o, const char *word)
{
	size_t used = strlen(o->script);

	if (used + strlen(word) + 2 > sizeof(o->script))
		refuse("the script is too long", NULL);
	snprintf(o->script + used, sizeof(o->script) - used, "%s ", word);
}

static void
arguments(struct peer *p, struct arguments *a, int argc, char **argv)
{
	struct options *o = &p->opt;
	struct timespec now;
	int c;

	clock_gettime(CLOCK_REALTIME, &now);
	*a = (struct arguments){.port = "18519"};
	*o = (struct options){
		.size = sizeof(*o),
		.qp_type = IBV_QPT_RC,
		.mtu = 1024,
		.psn = {pattern_mix((uint64_t)now.tv_nsec) & 0xffffff,
			pattern_mix((uint64_t)now.tv_nsec + 1) & 0xffffff},
		.timeout = 18, /* 8.6 s with all retries: the peer may wait for a processor */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 12,
		.rd_atomic = 4,
		.patience_s = 120,
	};
	while ((c = getopt_long(argc, argv, "p:d:q:m:t:sevh", options, NULL)) != -1)
		set(o, a, c, optarg);
	if (optind < argc)
		a->where = argv[optind++];
	/* a server may be told of a channel, but not of steps */
	p->me = optind == argc;
	for (; optind < argc; optind++)
		add_word(o, argv[optind]);
	if (p->me == 1) {
		if (a->where != NULL && strchr(a->where, ':') == NULL)
			refuse("a client needs steps for", a->where);
		return;
	}
	snprintf(o->gid, sizeof(o->gid), "%s", a->gid != NULL ? a->gid : "v4");
}

/* --- a step --- */

static bool
acts(const struct peer *p, uint32_t end)
{
	return p->step->actors >> end & 1;
}

/* Before the ends meet: the target is ready. */
static void
prepare(struct peer *p, const struct item *items, uint32_t n)
{
	const struct step *s = p->step;

	if (!acts(p, !p->me))
		return;
	if (s->op == OP_BIND1 || s->op == OP_BIND2 || s->op == OP_LOCAL_INV)
		window_step(p);
	else if (s->flags & F_DEAF)
		qp_fail(p);
	else if (!(s->flags & F_NO_RECV) && s->late_ms == 0)
		recvs_post(p, items, n);
}

static void
step_run(struct peer *p)
{
	static struct item mine[MAX_ITEMS], others[MAX_ITEMS];
	const struct step *s = p->step;
	uint32_t bytes, n;

	images_begin(p);
	n = step_items(p, s, mine, &bytes, &bytes, &bytes);
	memcpy(others, mine, sizeof(mine));
	items_resolve(p, mine, n, !p->me);
	items_resolve(p, others, n, p->me);
	prepare(p, others, n);
	if (s->op == OP_BIND1 || s->op == OP_BIND2)
		p->window_len = s->len;
	ctl_swap(p, p->number << 4, &p->window_rkey[p->me], &p->window_rkey[!p->me],
		sizeof(p->window_rkey[0]));
	if (s->op == OP_SLEEP)
		usleep(s->len * 1000);
	if (acts(p, p->me))
		items_post(p, mine, n);
	/* later than the requests, however slow the actor is */
	if (s->late_ms > 0)
		ctl_swap(p, p->number << 4 | 2, &n, &bytes, sizeof(n));
	if (s->late_ms > 0 && acts(p, !p->me)) {
		usleep(s->late_ms * 1000);
		recvs_post(p, others, n);
	}
	if (acts(p, p->me) && n > 0)
		actor_check(p, mine, n);
	if (acts(p, !p->me))
		target_collect(p, others, n);
	ctl_swap(p, p->number << 4 | 1, &n, &bytes, sizeof(n));
	if (acts(p, !p->me) && n > 0)
		target_check(p, others, n);
	images_end(p);
}

/* Whether the queue pairs have to be created again. */
static bool
ends_pair(const struct step *s)
{
	return s->op == OP_NEW || s->status != IBV_WC_SUCCESS || s->recv_status > IBV_WC_SUCCESS;
}

/* Memory for the largest step. */
static void
plan(struct peer *p, const struct step *steps, uint32_t n)
{
	uint32_t need[3] = {0}, most[3] = {2 * WINDOW_OFF, 2 * WINDOW_OFF, 2 * WINDOW_OFF}, i, k;
	static struct item items[MAX_ITEMS];

	for (i = 0; i < n; i++) {
		step_items(p, &steps[i], items, &need[0], &need[1], &need[2]);
		for (k = 0; k < 3; k++)
			if (need[k] > most[k])
				most[k] = need[k];
	}
	/* receives of lost messages stay in addition to those of the next */
	most[2] *= 2;
	for (k = 0; k < 3; k++)
		most[k] = (most[k] + 4095) / 4096 * 4096;
	memory_make(p, most[0], most[1], most[2]);
}

/* @return whether all steps went as they should. */
static bool
run(struct peer *p, struct step *steps, uint32_t n, bool verbose)
{
	bool well = true;

	qp_make(p);
	for (p->number = 1; p->number <= n && well; p->number++) {
		p->step = &steps[p->number - 1];
		step_run(p);
		well = ctl_verdict(p);
		if (verbose)
			printf("%s %u %s\n", well ? "ok" : "wrong", p->number, p->step->text);
		if (well && ends_pair(p->step)) {
			qp_unmake(p);
			qp_make(p);
		}
	}
	qp_unmake(p);
	return well;
}

int
main(int argc, char **argv)
{
	static struct step steps[MAX_STEPS];
	static struct peer peer;
	struct peer *p = &peer;
	struct arguments a;
	bool well;
	int n;

	p->ctl = -1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN); /* the other end may be gone: writing says so */
	arguments(p, &a, argc, argv);
	/* parse before the other end is involved */
	n = p->me == 0 ? script_parse(p->opt.script, &p->opt, steps, MAX_STEPS) : 0;
	if (n < 0)
		return 2;
	p->ctl = ctl_open(a.where, a.port, p->opt.patience_s);
	if (p->me == 0) {
		ctl_put(p, &p->opt, sizeof(p->opt));
	} else {
		ctl_get(p, &p->opt, sizeof(p->opt));
		n = p->opt.size == sizeof(p->opt)
			? script_parse(p->opt.script, &p->opt, steps, MAX_STEPS)
			: -1;
		if (n < 0)
			die(p, "the client is of another build");
	}
	device_open(p, a.dev, a.gid != NULL ? a.gid : p->opt.gid);
	plan(p, steps, (uint32_t)n);
	well = run(p, steps, (uint32_t)n, a.verbose);
	device_close(p);
	close(p->ctl);
	printf("%s: %d steps, %llu bytes verified\n", well ? "all is well" : "not as it should be",
		n, (unsigned long long)p->verified);
	return well ? 0 : 1;
}
