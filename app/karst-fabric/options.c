/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>

#include "karst_qp.h"
#include "value.h"

static const char usage_text[] =
	"usage: karst-fabric [OPTION...]\n"
	"Simulates a network with karst's real queue pairs at its hosts: what would it do?\n"
	"\n"
	"The network:\n"
	"  --topology NAME     star, dumbbell, clos [star]\n"
	"  --hosts N           2 to 4096 [what the workload needs, else 16]\n"
	"  --leaves N          clos: leaves, each with the same number of hosts [4]\n"
	"  --spines N          clos: spines [2]\n"
	"  --speed GBPS        of the hosts' links: 25, 100G, 500M [100]\n"
	"  --core-speed GBPS   of the links between switches [--speed]\n"
	"  --delay TIME        of a link, one way, with its unit: 600ns, 1us [1us]\n"
	"  --buffer BYTES      of a switch, shared by its ports; with K, M or G [32M]\n"
	"  --alpha X           dynamic threshold: share of the free buffer for a queue [1]\n"
	"  --pfc               switches pause who sends to them, and drop nothing\n"
	"  --marking WAY       on, off: RED marks what may be marked [on]\n"
	"  --kmin BYTES        of queue, of a port of --speed [100 KB per 25 Gb/s]\n"
	"  --kmax BYTES        [400 KB per 25 Gb/s]\n"
	"  --pmax X            probability of a mark at Kmax [0.2]\n"
	"  --loss X            share of the frames that are lost on their last link [0]\n"
	"  --lose-nth N        the N-th frame with data, from 1, is lost there [none]\n"
	"  --mad-loss X        the same of messages of connection management [--loss]\n"
	"  --lose-mad N        the N-th of these, from 1, is lost [none]\n"
	"\n"
	"The queue pairs:\n"
	"  --mtu N             256, 512, 1024, 2048, 4096 [4096]\n"
	"  --op NAME           write, read: what moves the data; READs are posted where it goes to\n"
	"                      [write]\n"
	"  --message BYTES     of a WRITE or READ at most [64K]\n"
	"  --depth N           of them outstanding, a power of two [16]\n"
	"  --window N          packets without acknowledgement [256]\n"
	"  --timeout N         local ACK timeout, 4.096 us * 2^N; 0: none [14]\n"
	"  --retry N           retry_cnt, 0 to 7 [7]\n"
	"  --probes WAY        on, off: silence of some round trips is answered by a probe [off]\n"
	"  --recovery WAY      gbn, sr: go-back-N, selective repeat; offer: as sr, but who is asked\n"
	"                      for a connection does not know of it [gbn]\n"
	"  --spray N           UDP source ports of a queue pair, by turns, 1 to 16; with sr [1]\n"
	"  --cc MODE           off, notify, dcqcn, swift [off]\n"
	"  --preset NAME       adapter, paper: parameters of DCQCN [adapter]\n"
	"  --set NAME=VALUE    and single ones, by the names in karst.conf, with commas between\n"
	"\n"
	"The traffic:\n"
	"  --workload NAME     one, two, permutation, incast, ring, tree, websearch, fb_hadoop, "
	"alistorage\n"
	"                      [one]\n"
	"  --fan-in N          incast: senders [--hosts less one, or 16]; distributions: of incasts\n"
	"                      beside them, to random hosts [none]\n"
	"  --incast-size BYTES of each sender of these [500000]\n"
	"  --incast-load X     of the hosts' links, besides --load, above 0, to 1 [0.02]\n"
	"  --connections N     between two hosts, each with a flow [1]\n"
	"  --connect WAY       before: connections take nothing of what counts; timed: a flow begins\n"
	"                      with the request for its connection; not with ring, tree [before]\n"
	"  --size BYTES        of a flow; ring, tree: what is reduced; 0: without end [0; 64M]\n"
	"  --load X            distributions: of the hosts' links, above 0, to 1 [0.5]\n"
	"  --flows N           distributions: at most\n"
	"  --stagger TIME      the flows of a workload begin within it, by chance [0us]\n"
	"  --duration TIME     no flow begins later; those without end are over [20ms]\n"
	"  --warmup TIME       goodput and queues count from then on [0us]\n"
	"  --limit TIME        nothing goes on later [100 times --duration]\n"
	"  --seed N            of all that is random [1]\n"
	"\n"
	"  --memory BYTES      that the simulation may need at most [4G]\n"
	"  --json              one JSON object instead of text\n"
	"  --quiet             no word about progress on standard error\n"
	"  -h, --help          this text\n"
	"  --version           the version\n"
	"\n"
	"Exit status: 0 the run came to its end, 1 it could not, 2 usage.\n";

enum {
	OPT_TOPOLOGY = 256,
	OPT_HOSTS,
	OPT_LEAVES,
	OPT_SPINES,
	OPT_SPEED,
	OPT_CORE_SPEED,
	OPT_DELAY,
	OPT_BUFFER,
	OPT_ALPHA,
	OPT_PFC,
	OPT_MARKING,
	OPT_KMIN,
	OPT_KMAX,
	OPT_PMAX,
	OPT_LOSS,
	OPT_LOSE_NTH,
	OPT_MAD_LOSS,
	OPT_LOSE_MAD,
	OPT_MTU, /* from here on, of queue pairs */
	OPT_OP,
	OPT_MESSAGE,
	OPT_DEPTH,
	OPT_WINDOW,
	OPT_TIMEOUT,
	OPT_RETRY,
	OPT_PROBES,
	OPT_RECOVERY,
	OPT_SPRAY,
	OPT_CC,
	OPT_PRESET,
	OPT_SET,
	OPT_WORKLOAD, /* from here on, of traffic */
	OPT_FAN_IN,
	OPT_INCAST_SIZE,
	OPT_INCAST_LOAD,
	OPT_CONNECTIONS,
	OPT_CONNECT,
	OPT_SIZE,
	OPT_LOAD,
	OPT_FLOWS,
	OPT_STAGGER,
	OPT_DURATION,
	OPT_WARMUP,
	OPT_LIMIT,
	OPT_SEED,
	OPT_MEMORY,
	OPT_JSON,
	OPT_QUIET,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{"topology", required_argument, NULL, OPT_TOPOLOGY},
	{"hosts", required_argument, NULL, OPT_HOSTS},
	{"leaves", required_argument, NULL, OPT_LEAVES},
	{"spines", required_argument, NULL, OPT_SPINES},
	{"speed", required_argument, NULL, OPT_SPEED},
	{"core-speed", required_argument, NULL, OPT_CORE_SPEED},
	{"delay", required_argument, NULL, OPT_DELAY},
	{"buffer", required_argument, NULL, OPT_BUFFER},
	{"alpha", required_argument, NULL, OPT_ALPHA},
	{"pfc", no_argument, NULL, OPT_PFC},
	{"marking", required_argument, NULL, OPT_MARKING},
	{"kmin", required_argument, NULL, OPT_KMIN},
	{"kmax", required_argument, NULL, OPT_KMAX},
	{"pmax", required_argument, NULL, OPT_PMAX},
	{"loss", required_argument, NULL, OPT_LOSS},
	{"lose-nth", required_argument, NULL, OPT_LOSE_NTH},
	{"mad-loss", required_argument, NULL, OPT_MAD_LOSS},
	{"lose-mad", required_argument, NULL, OPT_LOSE_MAD},
	{"mtu", required_argument, NULL, OPT_MTU},
	{"op", required_argument, NULL, OPT_OP},
	{"message", required_argument, NULL, OPT_MESSAGE},
	{"depth", required_argument, NULL, OPT_DEPTH},
	{"window", required_argument, NULL, OPT_WINDOW},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"retry", required_argument, NULL, OPT_RETRY},
	{"probes", required_argument, NULL, OPT_PROBES},
	{"recovery", required_argument, NULL, OPT_RECOVERY},
	{"spray", required_argument, NULL, OPT_SPRAY},
	{"cc", required_argument, NULL, OPT_CC},
	{"preset", required_argument, NULL, OPT_PRESET},
	{"set", required_argument, NULL, OPT_SET},
	{"workload", required_argument, NULL, OPT_WORKLOAD},
	{"fan-in", required_argument, NULL, OPT_FAN_IN},
	{"incast-size", required_argument, NULL, OPT_INCAST_SIZE},
	{"incast-load", required_argument, NULL, OPT_INCAST_LOAD},
	{"connections", required_argument, NULL, OPT_CONNECTIONS},
	{"connect", required_argument, NULL, OPT_CONNECT},
	{"size", required_argument, NULL, OPT_SIZE},
	{"load", required_argument, NULL, OPT_LOAD},
	{"flows", required_argument, NULL, OPT_FLOWS},
	{"stagger", required_argument, NULL, OPT_STAGGER},
	{"duration", required_argument, NULL, OPT_DURATION},
	{"warmup", required_argument, NULL, OPT_WARMUP},
	{"limit", required_argument, NULL, OPT_LIMIT},
	{"seed", required_argument, NULL, OPT_SEED},
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"json", no_argument, NULL, OPT_JSON},
	{"quiet", no_argument, NULL, OPT_QUIET},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

/* A time that is longer than any run: 1000 s. */
#define TIME_MAX       1000000000000ull
#define SIZE_MAX_BYTES (1ull << 50)

static int
parse_u32(const char *option, uint32_t least, uint32_t most, uint32_t *v)
{
	uint64_t n;
	int rc = fab_value_number(option, optarg, least, most, &n);

	if (rc == 0)
		*v = (uint32_t)n;
	return rc;
}

static int
parse_switch(const char *option, bool *on)
{
	static const char *const names[] = {"off", "on", NULL};
	unsigned int i = 0;
	int rc = fab_value_name(option, optarg, names, &i);

	*on = i != 0;
	return rc;
}

static int
parse_network(int c, struct fab_config *f)
{
	unsigned int i;
	int rc;

	switch (c) {
	case OPT_TOPOLOGY:
		rc = fab_value_name("--topology", optarg, fab_topology_names, &i);
		if (rc == 0)
			f->topology = (enum fab_topology)i;
		return rc;
	case OPT_HOSTS:
		return parse_u32("--hosts", 2, 4096, &f->hosts);
	case OPT_LEAVES:
		return parse_u32("--leaves", 2, 4096, &f->leaves);
	case OPT_SPINES:
		return parse_u32("--spines", 1, 4095, &f->spines);
	case OPT_SPEED:
		return fab_value_speed("--speed", optarg, &f->speed);
	case OPT_CORE_SPEED:
		return fab_value_speed("--core-speed", optarg, &f->core_speed);
	case OPT_DELAY:
		return fab_value_time("--delay", optarg, 1000000000, &f->delay_ns);
	case OPT_BUFFER:
		return fab_value_bytes("--buffer", optarg, 1, 1ull << 40, &f->buffer);
	case OPT_ALPHA:
		return fab_value_real("--alpha", optarg, 1.0 / 1024, 1024, &f->alpha);
	case OPT_PFC:
		f->pfc = true;
		return 0;
	case OPT_MARKING:
		return parse_switch("--marking", &f->marking);
	case OPT_KMIN:
		return fab_value_bytes("--kmin", optarg, 1, 1ull << 40, &f->kmin);
	case OPT_KMAX:
		return fab_value_bytes("--kmax", optarg, 1, 1ull << 40, &f->kmax);
	case OPT_PMAX:
		return fab_value_real("--pmax", optarg, 0, 1, &f->pmax);
	case OPT_LOSS:
		return fab_value_real("--loss", optarg, 0, 1, &f->loss);
	case OPT_MAD_LOSS:
		return fab_value_real("--mad-loss", optarg, 0, 1, &f->mad_loss);
	case OPT_LOSE_MAD:
		return fab_value_number("--lose-mad", optarg, 1, UINT64_MAX, &f->lose_mad);
	default:
		return fab_value_number("--lose-nth", optarg, 1, UINT64_MAX, &f->lose_nth);
	}
}

/* The parameters of the paper (doc/congestion.rst). */
static const char paper[] =
	"dce_tcp_g=1020,dce_tcp_rtt=55,rate_reduce_monitor_period=50,rpg_time_reset=55,"
	"rpg_byte_reset=10000000,rpg_threshold=5,rpg_ai_rate=40,rpg_hai_rate=400,clamp_tgt_rate=1,"
	"min_time_between_cnps=50";

static int
parse_preset(struct karst_congestion_config *cc)
{
	static const char *const names[] = {"adapter", "paper", NULL};
	enum karst_congestion_mode mode = cc->mode;
	unsigned int i;
	int rc = fab_value_name("--preset", optarg, names, &i);

	if (rc != 0)
		return rc;
	karst_congestion_defaults(cc);
	cc->mode = mode;
	return i == 1 ? fab_value_params("--preset", paper, cc) : 0;
}

static int
parse_power(const char *option, uint32_t least, uint32_t most, uint32_t *v)
{
	char what[96];
	uint32_t n = 0;

	if (parse_u32(option, least, most, &n) != 0)
		return -EINVAL;
	if (!karst_is_pow2(n)) {
		snprintf(what, sizeof(what), "a power of two, %u to %u, is allowed", least, most);
		return fab_value_wrong(option, optarg, what);
	}
	*v = n;
	return 0;
}

static int
parse_queue_pairs(int c, struct fab_config *f)
{
	static const char *const modes[] = {[KARST_CONGESTION_OFF] = "off",
		[KARST_CONGESTION_NOTIFY] = "notify",
		[KARST_CONGESTION_DCQCN] = "dcqcn",
		[KARST_CONGESTION_SWIFT] = "swift",
		NULL};
	static const char *const recoveries[] = {"gbn", "sr", "offer", NULL};
	static const char *const ops[] = {"write", "read", NULL};
	unsigned int i = 0;
	uint64_t n;
	int rc;

	switch (c) {
	case OPT_MTU:
		return parse_power("--mtu", 256, 4096, &f->mtu);
	case OPT_OP:
		rc = fab_value_name("--op", optarg, ops, &i);
		f->read = i != 0;
		return rc;
	case OPT_MESSAGE:
		rc = fab_value_bytes("--message", optarg, 1, 16u << 20, &n);
		if (rc == 0)
			f->message = (uint32_t)n;
		return rc;
	case OPT_DEPTH:
		return parse_power("--depth", 1, 1024, &f->depth);
	case OPT_WINDOW:
		return parse_u32("--window", 1, 1u << 22, &f->window);
	case OPT_TIMEOUT:
		return parse_u32("--timeout", 0, 31, &f->timeout);
	case OPT_RETRY:
		return parse_u32("--retry", 0, 7, &f->retry);
	case OPT_PROBES:
		return parse_switch("--probes", &f->probes);
	case OPT_RECOVERY:
		rc = fab_value_name("--recovery", optarg, recoveries, &i);
		f->repeat = i != 0;
		f->decline = i == 2;
		return rc;
	case OPT_SPRAY:
		return parse_power("--spray", 1, KARST_SPRAY_MAX, &f->spray);
	case OPT_PRESET:
		return parse_preset(&f->cc);
	case OPT_SET:
		return fab_value_params("--set", optarg, &f->cc);
	default:
		rc = fab_value_name("--cc", optarg, modes, &i);
		if (rc == 0)
			f->cc.mode = (enum karst_congestion_mode)i;
		return rc;
	}
}

static int
parse_traffic(int c, struct fab_config *f)
{
	static const char *const moments[] = {"before", "timed", NULL};
	unsigned int i = 0;
	int rc;

	switch (c) {
	case OPT_WORKLOAD:
		rc = fab_value_name("--workload", optarg, fab_workload_names, &i);
		if (rc == 0)
			f->workload = (enum fab_workload)i;
		return rc;
	case OPT_FAN_IN:
		return parse_u32("--fan-in", 1, 4095, &f->fan_in);
	case OPT_INCAST_SIZE:
		return fab_value_bytes("--incast-size", optarg, 1, SIZE_MAX_BYTES, &f->incast_size);
	case OPT_INCAST_LOAD:
		return fab_value_real("--incast-load", optarg, 0.0001, 1, &f->incast_load);
	case OPT_CONNECTIONS:
		return parse_u32("--connections", 1, 8192, &f->connections);
	case OPT_CONNECT:
		rc = fab_value_name("--connect", optarg, moments, &i);
		f->timed = i != 0;
		return rc;
	case OPT_SIZE:
		return fab_value_bytes("--size", optarg, 0, SIZE_MAX_BYTES, &f->size);
	case OPT_LOAD:
		return fab_value_real("--load", optarg, 0.0001, 1, &f->load);
	case OPT_FLOWS:
		return fab_value_number("--flows", optarg, 1, 100000000, &f->flows);
	case OPT_STAGGER:
		return fab_value_time("--stagger", optarg, TIME_MAX, &f->stagger_ns);
	case OPT_DURATION:
		return fab_value_time("--duration", optarg, TIME_MAX, &f->duration_ns);
	case OPT_WARMUP:
		return fab_value_time("--warmup", optarg, TIME_MAX, &f->warmup_ns);
	case OPT_LIMIT:
		return fab_value_time("--limit", optarg, 100 * TIME_MAX, &f->limit_ns);
	case OPT_SEED:
		return fab_value_number("--seed", optarg, 0, INT64_MAX, &f->seed);
	default:
		return fab_value_bytes("--memory", optarg, 1u << 20, 1ull << 50, &f->memory);
	}
}

static int
parse_option(int c, char **argv, struct options *o)
{
	switch (c) {
	case OPT_TOPOLOGY ... OPT_LOSE_MAD:
		return parse_network(c, &o->c);
	case OPT_MTU ... OPT_SET:
		return parse_queue_pairs(c, &o->c);
	case OPT_WORKLOAD ... OPT_MEMORY:
		return parse_traffic(c, &o->c);
	case OPT_JSON:
		o->json = true;
		return 0;
	case OPT_QUIET:
		o->quiet = true;
		return 0;
	case 'h':
		fputs(usage_text, stdout);
		return 1;
	case OPT_VERSION:
		puts("karst-fabric " KARST_VERSION);
		return 1;
	case ':':
		return fab_value_wrong(
			"option", argv[optind - 1], "needs a value: --help says which");
	default:
		return fab_value_wrong("option", argv[optind - 1],
			"not known, or given a value it does not take: --help lists all");
	}
}

int
options_parse(int argc, char **argv, struct options *o)
{
	char why[256];
	int c, rc = 0;

	opterr = 0;
	memset(o, 0, sizeof(*o));
	fab_config_defaults(&o->c);
	o->c.memory = 4ull << 30;
	while (rc == 0 && (c = getopt_long(argc, argv, ":h", long_options, NULL)) != -1)
		rc = parse_option(c, argv, o);
	if (rc != 0)
		return rc;
	if (optind < argc)
		return fab_value_wrong("argument", argv[optind], "only options are allowed");
	rc = fab_config_complete(&o->c, why, sizeof(why));
	if (rc != 0)
		fprintf(stderr, "karst-fabric: %s\nTry 'karst-fabric --help'.\n", why);
	return rc;
}
