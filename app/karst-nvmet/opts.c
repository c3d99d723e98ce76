/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "opts.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_NQN "nqn.2014-08.org.example:karst"

static const char usage_text[] =
	"usage: karst-nvmet [OPTION...] --file PATH | --ramdisk SIZE ...\n"
	"Serves files or memory as an NVMe over RDMA subsystem, to any host that speaks NVMe over\n"
	"Fabrics, as Linux does (nvme connect -t rdma).  Over karst: karst-run karst-nvmet ...\n"
	"\n"
	"  --file PATH         a namespace: a file or a block device\n"
	"  --ramdisk SIZE      a namespace in memory, which is lost at the end\n"
	"                      (up to 16 namespaces in all, numbered from 1 in this order)\n"
	"  --nqn NAME          of the subsystem (" DEFAULT_NQN ")\n"
	"  --address ADDRESS   to listen at, up to 16 times (0.0.0.0)\n"
	"  --port PORT         (4420)\n"
	"  --allow-host NQN    a host that may connect, up to 16 times (any)\n"
	"  --read-only         nothing can be written\n"
	"  --block-size N      512 or 4096 bytes (512)\n"
	"  --io-queues N       of a controller, 1 to 64 (8)\n"
	"  --queue-size N      commands of a queue, 16 to 1024 (128)\n"
	"  --in-capsule BYTES  of data that come with a write, 0 to 65536, a multiple of 16 (4096)\n"
	"  --max-transfer SIZE of a command, a power of two from 4K to 1M (128K)\n"
	"  --buffers N         of that size, for all connections, 1 to 65536 (64)\n"
	"  --controllers N     at a time, 1 to 1024 (64)\n"
	"  --threads N         that read and write files, 1 to 64 (2)\n"
	"  --ack-timeout N     wait 4.096 us * 2^N for a host, then send again, 1 to 31 (what the\n"
	"                      host's connection asks for)\n"
	"  --verbose           say who comes and goes\n"
	"  -h, --help          this text\n"
	"  --version           the version\n"
	"\n"
	"SIZE takes a suffix K, M, G or T.  SIGUSR1: print counters; SIGHUP: look at the sizes of\n"
	"files again; SIGTERM, SIGINT: end.\n"
	"Exit status: 0 ended by a signal, 1 it failed, 2 usage.\n";

enum {
	OPT_FILE = 256,
	OPT_RAMDISK,
	OPT_NQN,
	OPT_ADDRESS,
	OPT_PORT,
	OPT_ALLOW_HOST,
	OPT_READ_ONLY,
	OPT_BLOCK_SIZE,
	OPT_IO_QUEUES,
	OPT_QUEUE_SIZE,
	OPT_IN_CAPSULE,
	OPT_MAX_TRANSFER,
	OPT_BUFFERS,
	OPT_CONTROLLERS,
	OPT_THREADS,
	OPT_ACK_TIMEOUT,
	OPT_VERBOSE,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{"file", required_argument, NULL, OPT_FILE},
	{"ramdisk", required_argument, NULL, OPT_RAMDISK},
	{"nqn", required_argument, NULL, OPT_NQN},
	{"address", required_argument, NULL, OPT_ADDRESS},
	{"port", required_argument, NULL, OPT_PORT},
	{"allow-host", required_argument, NULL, OPT_ALLOW_HOST},
	{"read-only", no_argument, NULL, OPT_READ_ONLY},
	{"block-size", required_argument, NULL, OPT_BLOCK_SIZE},
	{"io-queues", required_argument, NULL, OPT_IO_QUEUES},
	{"queue-size", required_argument, NULL, OPT_QUEUE_SIZE},
	{"in-capsule", required_argument, NULL, OPT_IN_CAPSULE},
	{"max-transfer", required_argument, NULL, OPT_MAX_TRANSFER},
	{"buffers", required_argument, NULL, OPT_BUFFERS},
	{"controllers", required_argument, NULL, OPT_CONTROLLERS},
	{"threads", required_argument, NULL, OPT_THREADS},
	{"ack-timeout", required_argument, NULL, OPT_ACK_TIMEOUT},
	{"verbose", no_argument, NULL, OPT_VERBOSE},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{0},
};

static int
opt_wrong(const char *what, const char *value, const char *allowed)
{
	fprintf(stderr, "karst-nvmet: %s '%s': %s\nTry 'karst-nvmet --help'.\n", what, value,
		allowed);
	return -EINVAL;
}

/* Parses a number, with a suffix if it is in @suffixes; false: not a number, or more than 64
 * bits. */
static bool
get_number(const char *text, const char *suffixes, uint64_t *value)
{
	const char *found;
	unsigned int shift = 0;
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || errno != 0)
		return false;
	if (*end != '\0') {
		found = strchr(suffixes, *end);
		if (found == NULL || end[1] != '\0')
			return false;
		shift = 10 * (unsigned int)(found - suffixes + 1);
	}
	if (*value > UINT64_MAX >> shift)
		return false;
	*value <<= shift;
	return true;
}

static int
get_u32(const char *what, const char *text, uint32_t least, uint32_t most, uint32_t *value)
{
	char allowed[64];
	uint64_t v;

	if (!get_number(text, "", &v) || v < least || v > most) {
		snprintf(
			allowed, sizeof(allowed), "a number from %u to %u is allowed", least, most);
		return opt_wrong(what, text, allowed);
	}
	*value = (uint32_t)v;
	return 0;
}

static int
opt_get_nqn(const char *what, const char *text, char *nqn)
{
	if (text[0] == '\0' || strlen(text) > NVME_NQN_LEN)
		return opt_wrong(what, text, "a name of 1 to 223 bytes is allowed");
	strcpy(nqn, text);
	return 0;
}

static int
add_ns(struct opts *opts, const char *what, const char *text)
{
	struct opts_ns *ns = &opts->ns[opts->nns];

	if (opts->nns == NT_MAX_NS)
		return opt_wrong(
			what, text, "there are 16 namespaces already, and no more are allowed");
	if (what[2] == 'f') {
		ns->path = text;
	} else if (!get_number(text, "KMGT", &ns->bytes) || ns->bytes < NVME_PAGE ||
		ns->bytes > UINT64_C(1) << 46 || ns->bytes % NVME_PAGE != 0) {
		return opt_wrong(what, text, "a multiple of 4096 bytes up to 64T is allowed");
	}
	opts->nns++;
	return 0;
}

static int
add_text(const char *what, const char *text, char *list, size_t len, uint32_t most, uint32_t *n)
{
	if (*n == most)
		return opt_wrong(what, text, "there are 16 already, and no more are allowed");
	if (text[0] == '\0' || strlen(text) >= len)
		return opt_wrong(what, text, "empty, or too long");
	strcpy(list + *n * len, text);
	++*n;
	return 0;
}

static int
parse_port(struct nr_config *config, const char *text)
{
	uint32_t port;
	int rc = get_u32("--port", text, 1, 65535, &port);

	if (rc == 0)
		snprintf(config->port, sizeof(config->port), "%u", port);
	return rc;
}

static int
parse_block_size(struct opts *opts, const char *text)
{
	if (strcmp(text, "512") != 0 && strcmp(text, "4096") != 0)
		return opt_wrong("--block-size", text, "512 or 4096 is allowed");
	opts->block_shift = text[0] == '5' ? 9 : 12;
	return 0;
}

static int
parse_in_capsule(struct nt_config *config, const char *text)
{
	int rc = get_u32("--in-capsule", text, 0, 65536, &config->in_capsule);

	if (rc == 0 && config->in_capsule % 16 != 0)
		return opt_wrong("--in-capsule", text, "a multiple of 16 bytes is allowed");
	return rc;
}

static int
parse_max_transfer(struct nt_config *config, const char *text)
{
	uint64_t v;

	if (!get_number(text, "KMGT", &v) || v < NVME_PAGE || v > 1 << 20 || (v & (v - 1)) != 0)
		return opt_wrong("--max-transfer", text, "a power of two from 4K to 1M is allowed");
	config->max_transfer = (uint32_t)v;
	return 0;
}

/* @return 0: continue; 1: the program can exit; -EINVAL. */
static int
parse_one(int c, char **argv, struct opts *opts)
{
	struct nr_config *config = &opts->config;
	struct nt_config *target = &config->target;

	switch (c) {
	case OPT_FILE:
		return add_ns(opts, "--file", optarg);
	case OPT_RAMDISK:
		return add_ns(opts, "--ramdisk", optarg);
	case OPT_NQN:
		return opt_get_nqn("--nqn", optarg, target->nqn);
	case OPT_ADDRESS:
		return add_text("--address", optarg, config->listen[0], NT_ADDRESS_LEN,
			NR_MAX_LISTEN, &config->nlisten);
	case OPT_PORT:
		return parse_port(config, optarg);
	case OPT_ALLOW_HOST:
		return add_text("--allow-host", optarg, target->hosts[0], sizeof(target->hosts[0]),
			NT_MAX_HOSTS, &target->nhosts);
	case OPT_READ_ONLY:
		opts->read_only = true;
		return 0;
	case OPT_BLOCK_SIZE:
		return parse_block_size(opts, optarg);
	case OPT_IO_QUEUES:
		return get_u32("--io-queues", optarg, 1, NT_MAX_IO, &target->max_io);
	case OPT_QUEUE_SIZE:
		return get_u32("--queue-size", optarg, 16, 1024, &target->queue_size);
	case OPT_IN_CAPSULE:
		return parse_in_capsule(target, optarg);
	case OPT_MAX_TRANSFER:
		return parse_max_transfer(target, optarg);
	case OPT_BUFFERS:
		return get_u32("--buffers", optarg, 1, 65536, &config->buffers);
	case OPT_CONTROLLERS:
		return get_u32("--controllers", optarg, 1, NT_MAX_CTRLS, &target->max_ctrls);
	case OPT_THREADS:
		return get_u32("--threads", optarg, 1, 64, &opts->threads);
	case OPT_ACK_TIMEOUT:
		return get_u32("--ack-timeout", optarg, 1, 31, &config->ack_timeout);
	case OPT_VERBOSE:
		config->verbose = true;
		return 0;
	case 'h':
		fputs(usage_text, stdout);
		return 1;
	case OPT_VERSION:
		puts("karst-nvmet " KARST_VERSION);
		return 1;
	case ':':
		return opt_wrong("option", argv[optind - 1], "needs a value");
	default:
		return opt_wrong(
			"option", argv[optind - 1], "not known, or given a value it has none of");
	}
}

int
opts_parse(int argc, char **argv, struct opts *opts)
{
	static const struct opts defaults = {
		.config = {.target = {.nqn = DEFAULT_NQN,
				   .max_ctrls = 64,
				   .max_io = 8,
				   .queue_size = 128,
				   .in_capsule = 4096,
				   .max_transfer = 128 << 10},
			.port = "4420",
			.buffers = 64},
		.block_shift = 9,
		.threads = 2,
	};
	int c, rc = 0;

	*opts = defaults;
	opterr = 0;
	while (rc == 0 && (c = getopt_long(argc, argv, ":h", long_options, NULL)) != -1)
		rc = parse_one(c, argv, opts);
	if (rc != 0)
		return rc;
	if (optind < argc)
		return opt_wrong("argument", argv[optind], "none is allowed beside the options");
	if (opts->nns == 0) {
		fputs("karst-nvmet: no namespace: --file PATH or --ramdisk SIZE is needed\n"
		      "Try 'karst-nvmet --help'.\n",
			stderr);
		return -EINVAL;
	}
	if (opts->config.nlisten == 0)
		strcpy(opts->config.listen[opts->config.nlisten++], "0.0.0.0");
	return 0;
}
