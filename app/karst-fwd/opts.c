/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "opts.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "fwd.h"

static const char usage_text[] =
	"usage: karst-fwd [EAL-OPTION...] -- [OPTION...]\n"
	"Forwards, checks, answers and generates RoCEv2 frames over DPDK ports, as testpmd does with\n"
	"packets.  Options have testpmd's names where they mean the same.\n"
	"\n"
	"  -i, --interactive        read commands from standard input; 'help' lists them\n"
	"  -a, --auto-start         start forwarding before the prompt\n"
	"  --cmdline-file FILE      run the commands of FILE first\n"
	"  --forward-mode MODE      io, mac, sink, roce-check, reflect, gen [io]\n"
	"  --nb-cores N             lcores that forward [1]; 0: all but the main one\n"
	"  --rxq N                  receive queues of a port, 1 to 64 [1]\n"
	"  --txq N                  transmit queues, not less than --rxq [--rxq]\n"
	"  --rxd N                  descriptors of a receive queue [what the port wants, or 512]\n"
	"  --txd N                  and of a transmit queue\n"
	"  --burst N                packets at a time, 1 to 512 [32]\n"
	"  --portmask MASK          ports to use, hexadecimal [all]\n"
	"  --port-topology WAY      paired, chained, loop [paired; loop with one port]\n"
	"  --eth-peer PORT,MAC      destination of what a port sends, in modes that set it\n"
	"                           [02:00:00:00:00:PORT]\n"
	"  --mbuf-size N            bytes of a buffer [4352, for an MTU of 4096]\n"
	"  --total-num-mbufs N      [what the queues need]\n"
	"  --mbcache N              buffers that an lcore keeps, 0 to 512 [250]\n"
	"  --max-pkt-len N          longest frame that ports take, with its 4 bytes of FCS\n"
	"  --tx-first               each stream first sends a burst (--gen-template has its frames)\n"
	"  --stats-period N         print counters every N seconds\n"
	"  --stats-json FILE        write all counters to FILE at the end, '-' for standard output\n"
	"  --idle WAY               what an lcore does that has nothing to do: poll, yield, sleep [poll]\n"
	"  --flows N                flows that roce-check can follow on each lcore [4096]\n"
	"  --reflect-mtu N          256, 512, 1024, 2048, 4096: payload of READ responses [1024]\n"
	"  --gen-template TEXT      what to generate, see below; up to 16 of them take turns\n"
	"  --gen-pcap TEXT          a capture to play: words file=PATH src=IP dst=IP smac=MAC dmac=MAC\n"
	"                           loops=N\n"
	"  --gen-rate RATE          of each port: 10Gbps, 2.5Mbps, 1000pps, max [max]\n"
	"  -h, --help               this text\n"
	"  --version                the version\n"
	"\n"
	"A template is words key=value with blanks between:\n";

static const char usage_end[] =
	"\n"
	"Exit status: 0 all is well, 1 a port or a command failed, 2 usage.\n";

enum {
	OPT_CMDLINE_FILE = 256,
	OPT_MODE,
	OPT_NB_CORES,
	OPT_RXQ,
	OPT_TXQ,
	OPT_RXD,
	OPT_TXD,
	OPT_BURST,
	OPT_PORTMASK,
	OPT_TOPOLOGY,
	OPT_PEER,
	OPT_MBUF_SIZE,
	OPT_MBUFS,
	OPT_MBCACHE,
	OPT_MAX_PKT_LEN,
	OPT_TX_FIRST,
	OPT_PERIOD,
	OPT_JSON,
	OPT_IDLE,
	OPT_FLOWS,
	OPT_REFLECT_MTU,
	OPT_TEMPLATE,
	OPT_PCAP,
	OPT_RATE,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{"interactive", no_argument, NULL, 'i'},
	{"auto-start", no_argument, NULL, 'a'},
	{"cmdline-file", required_argument, NULL, OPT_CMDLINE_FILE},
	{"forward-mode", required_argument, NULL, OPT_MODE},
	{"nb-cores", required_argument, NULL, OPT_NB_CORES},
	{"rxq", required_argument, NULL, OPT_RXQ},
	{"txq", required_argument, NULL, OPT_TXQ},
	{"rxd", required_argument, NULL, OPT_RXD},
	{"txd", required_argument, NULL, OPT_TXD},
	{"burst", required_argument, NULL, OPT_BURST},
	{"portmask", required_argument, NULL, OPT_PORTMASK},
	{"port-topology", required_argument, NULL, OPT_TOPOLOGY},
	{"eth-peer", required_argument, NULL, OPT_PEER},
	{"mbuf-size", required_argument, NULL, OPT_MBUF_SIZE},
	{"total-num-mbufs", required_argument, NULL, OPT_MBUFS},
	{"mbcache", required_argument, NULL, OPT_MBCACHE},
	{"max-pkt-len", required_argument, NULL, OPT_MAX_PKT_LEN},
	{"tx-first", no_argument, NULL, OPT_TX_FIRST},
	{"stats-period", required_argument, NULL, OPT_PERIOD},
	{"stats-json", required_argument, NULL, OPT_JSON},
	{"idle", required_argument, NULL, OPT_IDLE},
	{"flows", required_argument, NULL, OPT_FLOWS},
	{"reflect-mtu", required_argument, NULL, OPT_REFLECT_MTU},
	{"gen-template", required_argument, NULL, OPT_TEMPLATE},
	{"gen-pcap", required_argument, NULL, OPT_PCAP},
	{"gen-rate", required_argument, NULL, OPT_RATE},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{0},
};

static const char *const idle_names[] = {
	[FWD_POLL] = "poll", [FWD_YIELD] = "yield", [FWD_SLEEP] = "sleep"};
static const char *const topology_names[] = {
	[FWD_PAIRED] = "paired", [FWD_CHAINED] = "chained", [FWD_LOOP] = "loop"};

static int
wrong(const char *what, const char *value, const char *allowed)
{
	fprintf(stderr, "karst-fwd: %s '%s': %s\nTry 'karst-fwd --help'.\n", what, value, allowed);
	return -1;
}

static int
index_of(const char *name, const char *const *names, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

int
fwd_idle_of(const char *name)
{
	return index_of(name, idle_names, (int)KARST_DIM(idle_names));
}

const char *
fwd_idle_name(enum fwd_idle idle)
{
	return idle_names[idle];
}

const char *
fwd_topology_name(enum fwd_topology topology)
{
	return topology_names[topology];
}

bool
fwd_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 0);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || v < least || v > most)
		return false;
	*value = v;
	return true;
}

static int
get_u32(const char *what, const char *text, uint32_t least, uint32_t most, uint32_t *to)
{
	char allowed[64];
	uint64_t v;

	if (fwd_number(text, least, most, &v)) {
		*to = (uint32_t)v;
		return 0;
	}
	snprintf(allowed, sizeof(allowed), "a number from %u to %u is allowed", least, most);
	return wrong(what, text, allowed);
}

static int
get_mask(struct fwd_opts *o, const char *text)
{
	char *end;

	errno = 0;
	o->portmask = strtoull(text, &end, 16);
	o->portmask_set = true;
	if (text[0] == '\0' || text[0] == '-' || *end != '\0' || errno != 0 || o->portmask == 0)
		return wrong("--portmask", text,
			"a hexadecimal mask of ports 0 to 63 is allowed, not empty");
	return 0;
}

static int
get_peer(struct fwd_opts *o, const char *text)
{
	struct fwd_peer *p = &o->peers[o->npeers];
	const char *comma = strchr(text, ',');
	char number[8] = "";
	uint64_t port;

	if (o->npeers == FWD_PEERS_MAX)
		return wrong("--eth-peer", text, "32 are given already, and no more are allowed");
	if (comma != NULL && comma - text < (long)sizeof(number))
		memcpy(number, text, (size_t)(comma - text));
	if (!fwd_number(number, 0, RTE_MAX_ETHPORTS - 1, &port) ||
		!fwd_mac_parse(comma + 1, p->mac.addr_bytes))
		return wrong("--eth-peer", text,
			"PORT,XX:XX:XX:XX:XX:XX is allowed, with the number of a port");
	p->port = (uint16_t)port;
	o->npeers++;
	return 0;
}

static int
get_mode(struct fwd_opts *o, const char *text)
{
	char names[128], allowed[160];

	o->mode = text;
	if (fwd_mode_of(text) != NULL)
		return 0;
	fwd_mode_names(names, sizeof(names));
	snprintf(allowed, sizeof(allowed), "allowed: %s", names);
	return wrong("--forward-mode", text, allowed);
}

static int
get_choice(const char *what, const char *text, const char *const *names, int n, int *to)
{
	char allowed[128] = "allowed:";
	int i;

	*to = index_of(text, names, n);
	if (*to >= 0)
		return 0;
	for (i = 0; i < n; i++)
		snprintf(allowed + strlen(allowed), sizeof(allowed) - strlen(allowed), " %s",
			names[i]);
	return wrong(what, text, allowed);
}

static int
get_template(struct fwd_opts *o, const char *text)
{
	char why[FWD_WHY];

	if (o->ntemplates == FWD_TEMPLATES_MAX)
		return wrong(
			"--gen-template", text, "16 are given already, and no more are allowed");
	if (fwd_template_parse(&o->templates[o->ntemplates], text, why) != 0)
		return wrong("--gen-template", text, why);
	o->ntemplates++;
	return 0;
}

static int
get_rate(struct fwd_opts *o, const char *text)
{
	const char *why;

	return fwd_rate_parse(text, &o->rate, &why) == 0 ? 0 : wrong("--gen-rate", text, why);
}

static int
get_mtu(struct fwd_opts *o, const char *text)
{
	uint64_t v;

	if (!fwd_number(text, 256, 4096, &v) || !karst_is_pow2(v))
		return wrong("--reflect-mtu", text, "256, 512, 1024, 2048 or 4096 is allowed");
	o->reflect_mtu = (uint32_t)v;
	return 0;
}

/* Parses options of ports, queues and buffers.  @return 1: the option is none of these. */
static int
parse_port_option(struct fwd_opts *o, int c)
{
	int rc, i = 0;

	switch (c) {
	case OPT_NB_CORES:
		return get_u32("--nb-cores", optarg, 0, RTE_MAX_LCORE - 1, &o->nb_cores);
	case OPT_RXQ:
		return get_u32("--rxq", optarg, 1, FWD_QUEUES_MAX, &o->rxq);
	case OPT_TXQ:
		return get_u32("--txq", optarg, 1, FWD_QUEUES_MAX, &o->txq);
	case OPT_RXD:
		return get_u32("--rxd", optarg, 1, 32768, &o->rxd);
	case OPT_TXD:
		return get_u32("--txd", optarg, 1, 32768, &o->txd);
	case OPT_BURST:
		return get_u32("--burst", optarg, 1, FWD_BURST_MAX, &o->burst);
	case OPT_PORTMASK:
		return get_mask(o, optarg);
	case OPT_TOPOLOGY:
		rc = get_choice("--port-topology", optarg, topology_names,
			(int)KARST_DIM(topology_names), &i);
		o->topology = (enum fwd_topology)i;
		return rc;
	case OPT_PEER:
		return get_peer(o, optarg);
	case OPT_MBUF_SIZE:
		return get_u32("--mbuf-size", optarg, 512, 65535, &o->mbuf_size);
	case OPT_MBUFS:
		return get_u32("--total-num-mbufs", optarg, 64, 1u << 26, &o->total_mbufs);
	case OPT_MBCACHE:
		return get_u32("--mbcache", optarg, 0, 512, &o->mbcache);
	case OPT_MAX_PKT_LEN:
		return get_u32("--max-pkt-len", optarg, 64, 65535, &o->max_pkt_len);
	default:
		return 1;
	}
}

static int
parse_option(struct fwd_opts *o, int c, char **argv)
{
	int rc, i = 0;

	switch (c) {
	case 'i':
		o->interactive = true;
		return 0;
	case 'a':
		o->auto_start = true;
		return 0;
	case OPT_CMDLINE_FILE:
		o->cmdline_file = optarg;
		return 0;
	case OPT_MODE:
		return get_mode(o, optarg);
	case OPT_TX_FIRST:
		o->tx_first = 1;
		return 0;
	case OPT_PERIOD:
		return get_u32("--stats-period", optarg, 1, 86400, &o->stats_period_s);
	case OPT_JSON:
		o->stats_json = optarg;
		return 0;
	case OPT_IDLE:
		rc = get_choice("--idle", optarg, idle_names, (int)KARST_DIM(idle_names), &i);
		o->idle = (enum fwd_idle)i;
		return rc;
	case OPT_FLOWS:
		return get_u32("--flows", optarg, 1, FWD_FLOWS_MAX, &o->flows);
	case OPT_REFLECT_MTU:
		return get_mtu(o, optarg);
	case OPT_TEMPLATE:
		return get_template(o, optarg);
	case OPT_PCAP:
		o->gen_pcap = optarg;
		return 0;
	case OPT_RATE:
		return get_rate(o, optarg);
	case ':':
		return wrong("option", argv[optind - 1], "it needs a value");
	default:
		return wrong("option", argv[optind - 1],
			"not known, or given a value that it does not take; --help lists those that "
			"are allowed");
	}
}

void
fwd_opts_help(void)
{
	fputs(usage_text, stdout);
	fputs(fwd_template_help(), stdout);
	fputs(usage_end, stdout);
}

static void
set_defaults(struct fwd_opts *o)
{
	*o = (struct fwd_opts){
		.mode = "io",
		.nb_cores = 1,
		.rxq = 1,
		.burst = 32,
		.mbuf_size = 4352,
		.mbcache = 250,
		.flows = 4096,
		.reflect_mtu = 1024,
		.rate = {.unit = FWD_RATE_MAX},
	};
}

int
fwd_opts_parse(struct fwd_opts *o, int argc, char **argv)
{
	char text[16];
	int c, rc;

	set_defaults(o);
	opterr = 0;
	optind = 1;
	while ((c = getopt_long(argc, argv, ":iah", long_options, NULL)) != -1) {
		if (c == 'h') {
			fwd_opts_help();
			return 1;
		}
		if (c == OPT_VERSION) {
			puts("karst-fwd " KARST_VERSION);
			return 1;
		}
		rc = parse_port_option(o, c);
		if (rc > 0)
			rc = parse_option(o, c, argv);
		if (rc != 0)
			return -1;
	}
	if (optind < argc)
		return wrong("argument", argv[optind], "none is allowed besides options");
	if (o->txq == 0)
		o->txq = o->rxq;
	snprintf(text, sizeof(text), "%u", o->txq);
	if (o->txq < o->rxq)
		return wrong("--txq", text,
			"not less than --rxq is allowed, so that what is received can be sent");
	return 0;
}
