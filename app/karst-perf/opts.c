/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The command line of karst-perf: its options, each parsed and stored. */
#include "opts.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "opts_value.h"

#define DEFAULT_CONNS 64u

static const char *const op_names[PERF_OP_MAX] = {
	"write", "write-imm", "read", "send", "cas", "faa", "atomic-write"};
static const char *const transport_names[PERF_TRANSPORT_MAX] = {"rc", "uc", "ud"};

static const char *const memory_names[PERF_MEMORY_MAX] = {
	"private", "alloc", "malloc", "stack", "hugetlb"};
/* by enum karst_congestion_mode */
static const char *const congestion_names[] = {"off", "notify", "dcqcn", "swift"};

static const uint32_t all_sizes[] = {64, 256, 1024, 4096, 16384, 65536, 1048576};

const char *
perf_op_name(enum perf_op op)
{
	return op_names[op];
}

const char *
perf_congestion_name(uint32_t mode)
{
	return congestion_names[mode];
}

const char *
perf_transport_name(enum perf_transport transport)
{
	return transport_names[transport];
}

const char *
perf_memory_name(enum perf_memory_kind kind)
{
	return memory_names[kind];
}

const char *
perf_opts_mode(const struct perf_opts *o)
{
	return o->daemon ? "daemon" : o->connect != NULL ? "attached" : "embedded";
}

static void
usage(FILE *to)
{
	fputs("usage: karst-perf [OPTION...] [-- EAL-OPTION...]\n"
	      "       karst-perf --connect SOCKET --server [OPTION...]\n"
	      "       karst-perf --connect SOCKET --peer HOST [OPTION...]\n"
	      "       karst-perf --daemon [OPTION...]\n"
	      "       karst-perf crc [OPTION...]      CRC kernels; see karst-perf crc --help\n"
	      "\n"
	      "Two endpoints in one process exchange RoCEv2 frames over a pair of DPDK ports; or, over\n"
	      "karstd, two processes that attach to one daemon or to two.\n"
	      "\n"
	      "  what\n"
	      "  --op OP[,OP...]      write, write-imm, read, send, cas, faa, atomic-write, all [write]\n"
	      "  --op connect         connections made and ended; see below\n"
	      "  --transport T        rc, uc, ud [rc]\n"
	      "  --size N[K|M][,...]  bytes of a message, 1..1G, or all [64K; cas, faa, atomic-write: 8]\n"
	      "  --mtu N              256, 512, 1024, 2048, 4096: path MTU [4096]\n"
	      "  --qps N              queue pairs, used in turn, 1..500000 [1]\n"
	      "  --depth N            messages outstanding of each, 1..16384 [64, or what fits]\n"
	      "  --inflight N         messages outstanding of all [1024 or 64 MiB worth, or the depth]\n"
	      "  --batch N            messages posted at once [64 KiB worth, at most 16]\n"
	      "  --inline N           messages up to N bytes are posted inline, 0..1024 [0]\n"
	      "  --rd-atomic N        READs and atomics outstanding of a queue pair, 1..128 [16]\n"
	      "  --working-set N[K|M|G]  bytes that messages walk through, each end [64M, or more]\n"
	      "\n"
	      "  how\n"
	      "  --lcores 1|2         one polls both ends, or one each [1]\n"
	      "  --duration S         seconds of traffic for each measurement, 0.01..86400 [1]\n"
	      "  --iters N            messages for each measurement, instead\n"
	      "  --lat                also measure ping-pong latency\n"
	      "  --verify             check every byte\n"
	      "  --no-baselines       traffic alone, as for a profiler\n"
	      "  --compare tcp        over karstd: also the same work by the kernel's TCP, between\n"
	      "                       the addresses of the ports if the kernel has them\n"
	      "  --loss P             drop received packets with probability 0..0.5 [0]\n"
	      "  --selective-repeat   what is lost alone is sent again, not all behind it\n"
	      "  --early-retransmission  a queue pair that hears nothing probes, before its timeout\n"
	      "  --congestion MODE    off, notify, dcqcn, swift: control of congestion [off]\n"
	      "  --window N           unacknowledged packets of a queue pair [the engine's]\n"
	      "  --timeout N          RC timeout 4.096 us * 2^N, 1..31 [17; with --loss 8 or 11]\n"
	      "  --idle poll|yield    what an idle lcore does [poll; yield if CPUs are too few]\n"
	      "  --seed N             of loss, patterns and queue pair numbers [1]\n"
	      "\n"
	      "  ports\n"
	      "  --ring-size N        slots of the net_ring ports, a power of two, 32..32768 [256]\n"
	      "  --vdev SPEC          twice: a pair of other DPDK devices that are linked\n"
	      "  --force-mtu          they carry frames of --mtu, whatever their drivers say\n"
	      "\n"
	      "  over karstd\n"
	      "  --connect SOCKET     attach to the daemon that listens there\n"
	      "  --server             be the server: wait for one client\n"
	      "  --peer HOST          be the client of the server on HOST\n"
	      "  --daemon             start a karstd with a loopback port and a server, and be the client\n"
	      "  --karstd PROGRAM     that daemon [the karstd beside this program, or on the PATH]\n"
	      "  -e, --events         sleep until completion events come, instead of polling\n"
	      "  --memory KIND        alloc, malloc, stack, hugetlb: buffers of this end [alloc]\n"
	      "  --odp                they are registered on demand, hence copied\n"
	      "  --tcp-port N         of the server [18515]\n"
	      "  --ib-port N          port of the daemon [1]\n"
	      "  --gid-index N        [the first of IPv4]\n"
	      "  --hold               once connected, say so and wait for a line on standard input\n"
	      "\n"
	      "  connections: --op connect, and of the others --duration or --iters (connections),\n"
	      "  --loss, --idle, --seed, those of ports, and --daemon, or --connect without a peer\n"
	      "  --conns N            being made or ended at a time, 1..16384 [64]\n"
	      "  --no-qps             without queue pairs, which are made for each otherwise\n"
	      "\n"
	      "  output\n"
	      "  --json               an object a line for each measurement, instead of a table\n"
	      "  -h, --help           this\n"
	      "  --version\n"
	      "\n"
	      "EAL options after -- go to DPDK.  Exit status: 0; 1 errors or wrong data; 2 usage.\n"
	      "karst-perf(1) defines every figure.\n",
		to);
}

static int
add_op(const char *text, struct perf_opts *o)
{
	int op = perf_opt_find(text, op_names, PERF_OP_MAX);

	if (strcmp(text, "all") == 0) {
		o->ops = (1u << PERF_OP_MAX) - 1;
		o->all_ops = true;
		return 0;
	}
	if (strcmp(text, "connect") == 0) {
		o->connections = true;
		return 0;
	}
	if (op < 0)
		return perf_opt_wrong("--op", text,
			"write, write-imm, read, send, cas, faa, atomic-write, all, connect");
	o->ops |= 1u << op;
	return 0;
}

static int
add_size(const char *text, struct perf_opts *o)
{
	uint64_t v;

	if (strcmp(text, "all") == 0) {
		memcpy(o->sizes, all_sizes, sizeof(all_sizes));
		o->num_sizes = KARST_DIM(all_sizes);
		o->all_sizes = true;
		return 0;
	}
	if (perf_opt_scaled(text, &v) != 0 || v < 1 || v > 1u << 30)
		return perf_opt_wrong("--size", text, "bytes from 1 to 1G, with K, M or G, or all");
	if (o->num_sizes == PERF_MAX_SIZES)
		return perf_opt_wrong("--size", text, "at most 64 sizes");
	o->sizes[o->num_sizes++] = (uint32_t)v;
	return 0;
}

/* Calls @add for each of the words between commas. */
static int
parse_list(const char *text, struct perf_opts *o, int (*add)(const char *, struct perf_opts *))
{
	char *copy = strdup(text), *rest = copy, *word;
	int rc = 0;

	if (copy == NULL)
		return 1;
	while (rc == 0 && (word = strsep(&rest, ",")) != NULL)
		rc = add(word, o);
	free(copy);
	return rc;
}

static int
parse_mtu(const char *text, struct perf_opts *o)
{
	static const char *const mtus[] = {"256", "512", "1024", "2048", "4096"};
	int i = perf_opt_find(text, mtus, KARST_DIM(mtus));

	if (i < 0)
		return perf_opt_wrong("--mtu", text, "256, 512, 1024, 2048, 4096");
	o->mtu = 256u << i;
	return 0;
}

static int
parse_ring_size(const char *text, struct perf_opts *o)
{
	uint64_t v;

	if (perf_opt_scaled(text, &v) != 0 || !karst_is_pow2(v) || v < 32 || v > 32768)
		return perf_opt_wrong("--ring-size", text, "a power of two from 32 to 32768");
	o->ring_size = (uint32_t)v;
	return 0;
}

static int
parse_working_set(const char *text, struct perf_opts *o)
{
	if (perf_opt_scaled(text, &o->working_set) != 0 || o->working_set < 4096 ||
		o->working_set > UINT64_C(1) << 40)
		return perf_opt_wrong(
			"--working-set", text, "bytes from 4K to 1024G, with K, M or G");
	return 0;
}

static int
add_vdev(const char *text, struct perf_opts *o)
{
	if (o->num_vdevs == KARST_DIM(o->vdevs))
		return perf_opt_wrong("--vdev", text, "two devices, no more");
	if (strncmp(text, "net_", 4) != 0 && strncmp(text, "eth_", 4) != 0)
		return perf_opt_wrong("--vdev", text,
			"a DPDK network device with its arguments, as net_tap0,iface=x");
	o->vdevs[o->num_vdevs++] = text;
	return 0;
}

/* Values that getopt_long() returns for long options. */
enum {
	OPT_OP = 256,
	OPT_TRANSPORT,
	OPT_SIZE,
	OPT_MTU,
	OPT_QPS,
	OPT_DEPTH,
	OPT_INFLIGHT,
	OPT_BATCH,
	OPT_INLINE,
	OPT_RD_ATOMIC,
	OPT_WORKING_SET,
	OPT_LCORES,
	OPT_DURATION,
	OPT_ITERS,
	OPT_LAT,
	OPT_VERIFY,
	OPT_NO_BASELINES,
	OPT_COMPARE,
	OPT_LOSS,
	OPT_REPEAT,
	OPT_EARLY,
	OPT_CONGESTION,
	OPT_WINDOW,
	OPT_TIMEOUT,
	OPT_IDLE,
	OPT_SEED,
	OPT_RING_SIZE,
	OPT_VDEV,
	OPT_FORCE_MTU,
	OPT_CONNECT,
	OPT_SERVER,
	OPT_PEER,
	OPT_DAEMON,
	OPT_KARSTD,
	OPT_MEMORY,
	OPT_ODP,
	OPT_TCP_PORT,
	OPT_IB_PORT,
	OPT_GID_INDEX,
	OPT_HOLD,
	OPT_CONNS,
	OPT_NO_QPS,
	OPT_JSON,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{"op", required_argument, NULL, OPT_OP},
	{"transport", required_argument, NULL, OPT_TRANSPORT},
	{"size", required_argument, NULL, OPT_SIZE},
	{"mtu", required_argument, NULL, OPT_MTU},
	{"qps", required_argument, NULL, OPT_QPS},
	{"depth", required_argument, NULL, OPT_DEPTH},
	{"inflight", required_argument, NULL, OPT_INFLIGHT},
	{"batch", required_argument, NULL, OPT_BATCH},
	{"inline", required_argument, NULL, OPT_INLINE},
	{"rd-atomic", required_argument, NULL, OPT_RD_ATOMIC},
	{"working-set", required_argument, NULL, OPT_WORKING_SET},
	{"lcores", required_argument, NULL, OPT_LCORES},
	{"duration", required_argument, NULL, OPT_DURATION},
	{"iters", required_argument, NULL, OPT_ITERS},
	{"lat", no_argument, NULL, OPT_LAT},
	{"verify", no_argument, NULL, OPT_VERIFY},
	{"no-baselines", no_argument, NULL, OPT_NO_BASELINES},
	{"compare", required_argument, NULL, OPT_COMPARE},
	{"loss", required_argument, NULL, OPT_LOSS},
	{"selective-repeat", no_argument, NULL, OPT_REPEAT},
	{"early-retransmission", no_argument, NULL, OPT_EARLY},
	{"congestion", required_argument, NULL, OPT_CONGESTION},
	{"window", required_argument, NULL, OPT_WINDOW},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"idle", required_argument, NULL, OPT_IDLE},
	{"seed", required_argument, NULL, OPT_SEED},
	{"ring-size", required_argument, NULL, OPT_RING_SIZE},
	{"vdev", required_argument, NULL, OPT_VDEV},
	{"force-mtu", no_argument, NULL, OPT_FORCE_MTU},
	{"connect", required_argument, NULL, OPT_CONNECT},
	{"server", no_argument, NULL, OPT_SERVER},
	{"peer", required_argument, NULL, OPT_PEER},
	{"daemon", no_argument, NULL, OPT_DAEMON},
	{"karstd", required_argument, NULL, OPT_KARSTD},
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"odp", no_argument, NULL, OPT_ODP},
	{"events", no_argument, NULL, 'e'},
	{"tcp-port", required_argument, NULL, OPT_TCP_PORT},
	{"ib-port", required_argument, NULL, OPT_IB_PORT},
	{"gid-index", required_argument, NULL, OPT_GID_INDEX},
	{"hold", no_argument, NULL, OPT_HOLD},
	{"conns", required_argument, NULL, OPT_CONNS},
	{"no-qps", no_argument, NULL, OPT_NO_QPS},
	{"json", no_argument, NULL, OPT_JSON},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

/* Options that say what is measured.  -1: not one of them. */
static int
parse_what(int opt, const char *arg, struct perf_opts *o)
{
	int i;

	switch (opt) {
	case OPT_OP:
		return parse_list(arg, o, add_op);
	case OPT_TRANSPORT:
		i = perf_opt_find(arg, transport_names, PERF_TRANSPORT_MAX);
		if (i < 0)
			return perf_opt_wrong("--transport", arg, "rc, uc, ud");
		o->transport = (enum perf_transport)i;
		return 0;
	case OPT_SIZE:
		return parse_list(arg, o, add_size);
	case OPT_MTU:
		return parse_mtu(arg, o);
	case OPT_QPS:
		return perf_opt_u32("--qps", arg, 1, 500000, &o->qps);
	case OPT_DEPTH:
		return perf_opt_u32("--depth", arg, 1, 16384, &o->depth);
	case OPT_INFLIGHT:
		return perf_opt_u32("--inflight", arg, 1, 1u << 20, &o->inflight);
	case OPT_BATCH:
		return perf_opt_u32("--batch", arg, 1, 1024, &o->batch);
	case OPT_INLINE:
		return perf_opt_u32("--inline", arg, 0, 1024, &o->inline_bytes);
	case OPT_RD_ATOMIC:
		return perf_opt_u32("--rd-atomic", arg, 1, 128, &o->rd_atomic);
	case OPT_WORKING_SET:
		return parse_working_set(arg, o);
	case OPT_CONNS:
		return perf_opt_u32("--conns", arg, 1, 16384, &o->conns);
	case OPT_NO_QPS:
		o->no_qps = true;
		return 0;
	default:
		return -1;
	}
}

static int
parse_memory(const char *text, struct perf_opts *o)
{
	int kind = perf_opt_find(text, memory_names, PERF_MEMORY_MAX);

	if (kind <= PERF_MEMORY_PRIVATE)
		return perf_opt_wrong("--memory", text, "alloc, malloc, stack, hugetlb");
	o->memory = (enum perf_memory_kind)kind;
	return 0;
}

/* Options about a karstd.  -1: not one of them. */
static int
parse_where(int opt, const char *arg, struct perf_opts *o)
{
	uint32_t v = 0;
	int rc = 0;

	switch (opt) {
	case OPT_CONNECT:
		o->connect = arg;
		break;
	case OPT_SERVER:
		o->server = true;
		break;
	case OPT_PEER:
		o->peer = arg;
		break;
	case OPT_DAEMON:
		o->daemon = true;
		break;
	case OPT_KARSTD:
		o->karstd = arg;
		break;
	case OPT_MEMORY:
		rc = parse_memory(arg, o);
		break;
	case OPT_ODP:
		o->odp = true;
		break;
	case 'e':
		o->events = true;
		break;
	case OPT_TCP_PORT:
		/* 0: any free port, for programs that start the server */
		rc = perf_opt_u32("--tcp-port", arg, 0, 65535, &v);
		o->tcp_port = (uint16_t)v;
		break;
	case OPT_IB_PORT:
		rc = perf_opt_u32("--ib-port", arg, 1, 255, &o->port);
		break;
	case OPT_HOLD:
		o->hold = true;
		break;
	case OPT_GID_INDEX:
		rc = perf_opt_u32("--gid-index", arg, 0, 255, &v);
		o->gid_index = (int32_t)v;
		break;
	default:
		return -1;
	}
	return rc;
}

static int
parse_congestion(const char *arg, struct perf_opts *o)
{
	int mode = perf_opt_find(arg, congestion_names, KARST_DIM(congestion_names));

	if (mode < 0)
		return perf_opt_wrong("--congestion", arg, "off, notify, dcqcn, swift");
	o->congestion = (uint32_t)mode;
	return 0;
}

/* All others. */
static int
parse_how(int opt, const char *arg, struct perf_opts *o)
{
	uint32_t v;
	int rc;

	switch (opt) {
	case OPT_LCORES:
		return perf_opt_u32("--lcores", arg, 1, 2, &o->lcores);
	case OPT_DURATION:
		return perf_opt_real("--duration", arg, 0.01, 86400, &o->duration_s);
	case OPT_ITERS:
		return perf_opt_number("--iters", arg, 1, UINT64_C(1) << 48, &o->iters);
	case OPT_LAT:
		o->latency = true;
		return 0;
	case OPT_VERIFY:
		o->verify = true;
		return 0;
	case OPT_NO_BASELINES:
		o->no_baselines = true;
		return 0;
	case OPT_COMPARE:
		if (strcmp(arg, "tcp") != 0)
			return perf_opt_wrong("--compare", arg, "tcp");
		o->compare_tcp = true;
		return 0;
	case OPT_LOSS:
		return perf_opt_real("--loss", arg, 0, 0.5, &o->loss);
	case OPT_REPEAT:
		o->repeat = true;
		return 0;
	case OPT_EARLY:
		o->early = true;
		return 0;
	case OPT_CONGESTION:
		return parse_congestion(arg, o);
	case OPT_WINDOW:
		return perf_opt_u32("--window", arg, 1, 1u << 22, &o->window);
	case OPT_TIMEOUT:
		rc = perf_opt_u32("--timeout", arg, 1, 31, &v);
		if (rc == 0)
			o->timeout = (int32_t)v;
		return rc;
	case OPT_IDLE:
		if (strcmp(arg, "poll") != 0 && strcmp(arg, "yield") != 0)
			return perf_opt_wrong("--idle", arg, "poll, yield");
		o->yield = arg[0] == 'y';
		return 0;
	case OPT_SEED:
		return perf_opt_number("--seed", arg, 0, UINT64_MAX, &o->seed);
	case OPT_RING_SIZE:
		return parse_ring_size(arg, o);
	case OPT_FORCE_MTU:
		o->force_mtu = true;
		return 0;
	case OPT_VDEV:
		return add_vdev(arg, o);
	default:
		o->json = true; /* OPT_JSON, the last that is left */
		return 0;
	}
}

/* Prints an error that getopt has found. */
static int
opt_misused(int opt, const char *word)
{
	if (opt == ':')
		fprintf(stderr, "karst-perf: %s: a value is missing\n", word);
	else
		fprintf(stderr,
			"karst-perf: '%s': no such option; allowed: those of karst-perf --help\n",
			word);
	return 2;
}

/* All arguments after "--" are for EAL; no other arguments may be left. */
static int
take_rest(int argc, char **argv, struct perf_opts *o)
{
	bool dashes = optind > 0 && strcmp(argv[optind - 1], "--") == 0;
	int i;

	if (optind < argc && !dashes) {
		fprintf(stderr,
			"karst-perf: '%s': options begin with --; allowed: those of karst-perf --help, "
			"or first of all the word crc\n",
			argv[optind]);
		return 2;
	}
	for (i = optind; i < argc; i++) {
		if (o->num_eal_args == PERF_MAX_EAL_ARGS)
			return perf_opt_wrong("--", argv[i], "at most 64 EAL options");
		o->eal_args[o->num_eal_args++] = argv[i];
	}
	return 0;
}

static void
set_defaults(struct perf_opts *o)
{
	memset(o, 0, sizeof(*o));
	o->mtu = 4096;
	o->qps = 1;
	o->rd_atomic = 16;
	o->lcores = 1;
	o->duration_s = 1;
	o->timeout = -1;
	o->yield = -1;
	o->seed = 1;
	o->ring_size = 256;
	o->tcp_port = 18515;
	o->port = 1;
	o->gid_index = -1;
	o->conns = DEFAULT_CONNS;
}

/* Is the option only for connections (@connections), or else only for messages? */
static bool
is_for(int opt, bool connections)
{
	static const int both[] = {OPT_OP, OPT_DURATION, OPT_ITERS, OPT_LOSS, OPT_IDLE, OPT_SEED,
		OPT_RING_SIZE, OPT_VDEV, OPT_CONNECT, OPT_SERVER, OPT_PEER, OPT_DAEMON, OPT_KARSTD,
		OPT_IB_PORT, OPT_GID_INDEX, OPT_JSON};
	uint32_t i;

	for (i = 0; i < KARST_DIM(both); i++)
		if (both[i] == opt)
			return false;
	return (opt == OPT_CONNS || opt == OPT_NO_QPS) == connections;
}

/* @alone: the first option that is only for messages, and the first only for connections. */
static int
check_op(const struct perf_opts *o, const int alone[2])
{
	char name[64];
	uint32_t i;

	if (o->connections && o->ops != 0) {
		fputs("karst-perf: --op: connect is not allowed beside others; allowed: alone\n",
			stderr);
		return 2;
	}
	for (i = 0; i < KARST_DIM(long_options) - 1; i++) {
		if (long_options[i].val != alone[!o->connections])
			continue;
		snprintf(name, sizeof(name), "--%s", long_options[i].name);
		return perf_opt_misplaced(
			name, o->connections ? "without --op connect" : "with --op connect");
	}
	return 0;
}

int
perf_opts_parse(int argc, char **argv, struct perf_opts *o)
{
	int alone[2] = {0, 0}; /* only for messages, only for connections */
	bool timed = false;
	int opt, rc, i;

	set_defaults(o);
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "+:he", long_options, NULL)) != -1) {
		if (opt == 'h') {
			usage(stdout);
			return 0;
		}
		if (opt == OPT_VERSION) {
			puts("karst-perf " KARST_VERSION);
			return 0;
		}
		if (opt == ':' || opt == '?')
			return opt_misused(opt, argv[optind - 1]);
		timed |= opt == OPT_DURATION;
		for (i = 0; i < 2; i++)
			if (alone[i] == 0 && is_for(opt, i != 0))
				alone[i] = opt;
		rc = parse_what(opt, optarg, o);
		if (rc < 0)
			rc = parse_where(opt, optarg, o);
		if (rc < 0)
			rc = parse_how(opt, optarg, o);
		if (rc != 0)
			return rc;
	}
	rc = take_rest(argc, argv, o);
	if (rc != 0)
		return rc;
	if (timed && o->iters != 0)
		return perf_opt_wrong("--iters", "with --duration", "one of the two");
	rc = check_op(o, alone);
	if (rc == 0)
		rc = perf_opts_check_where(o);
	if (rc != 0)
		return rc;
	if (o->num_vdevs == 1)
		return perf_opt_wrong(
			"--vdev", o->vdevs[0], "two devices, or none for a net_ring pair");
	if (o->ops == 0 && !o->connections)
		o->ops = 1u << PERF_OP_WRITE;
	return -1;
}
