/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Arguments, and the steps that they ask for. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

#define DEFAULT_HOSTNQN "nqn.2014-08.org.example:host"
#define MAX_ENTRIES     128u

static const char usage[] =
	"nvme-host [OPTION...] ADDRESS STEP...\n"
	"A host of NVMe over RDMA that checks every byte and every answer.\n"
	"\n"
	"  --port PORT         4420 by default\n"
	"  --nqn NQN           the subsystem\n"
	"  --hostnqn NQN       the host's own name\n"
	"  --queues N          for I/O (1)\n"
	"  --entries N         of each (32), of which one less are used\n"
	"  --windows           keys are those of memory windows, and the target invalidates them\n"
	"  --kato MS           for the target to wait for signs of life (none)\n"
	"  --seed N            of data, sizes and places (1)\n"
	"  --patience SECONDS  with a target that does nothing (120)\n"
	"\n"
	"Steps, in their order:\n"
	"  discover            prints what the discovery service lists\n"
	"  refuse=STATUS       Connect is refused with this status (hexadecimal)\n"
	"  reject              connections are rejected whose request is wrong\n"
	"  nobody              nobody listens there\n"
	"  connect             a controller, its namespaces, its I/O queues\n"
	"  sizes=NSID          a write and a read of many lengths\n"
	"  load=NSID,N         so many commands, as many as possible at a time\n"
	"  flush=NSID  zeroes=NSID\n"
	"  beyond=NSID         a read beyond the end is refused\n"
	"  unknown=NSID        an opcode that is not there is refused\n"
	"  save=NSID,FILE      what the namespace must hold now\n"
	"  event               waits until a namespace changes\n"
	"  keep-alive=SECONDS  says nothing else\n"
	"  off                 the end of the controller, in order\n"
	"  stale=NSID          the target uses a key that it has invalidated (--windows): the last\n"
	"  hold=NSID           asks for much, and takes no answer, for ever: the last\n"
	"  silence             until the target ends all connections: the last\n";

void
nh_die(const char *format, ...)
{
	va_list ap;

	fflush(stdout);
	fputs("nvme-host: ", stderr);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void
nh_must(bool well, const char *what)
{
	if (!well)
		nh_die("%s: %s", what, strerror(errno));
}

uint32_t
nh_random(struct nh *h, uint32_t below)
{
	h->random = h->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((h->random >> 32) * below >> 32);
}

static uint32_t
number(const char *text, int base, uint32_t least, uint32_t most)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, base);
	if (errno != 0 || end == text || (*end != '\0' && *end != ',') || v < least || v > most)
		nh_die("'%s' is not a number from %u to %u", text, least, most);
	return (uint32_t)v;
}

/* The text after the comma. */
static const char *
second(const char *text)
{
	const char *comma = strchr(text, ',');

	if (comma == NULL)
		nh_die("'%s': something is missing", text);
	return comma + 1;
}

/* --- steps --- */

static void
discover(struct nh *h, const char *arg)
{
	uint16_t status = nh_ctrl_connect(h, NVME_DISCOVERY);

	(void)arg;
	if (status != NVME_OK)
		nh_die("the discovery service refuses: status %#x", status);
	nh_ctrl_enable(h, false);
	nh_ctrl_discovery(h);
	nh_ctrl_off(h);
}

static void
refuse(struct nh *h, const char *arg)
{
	uint16_t status = nh_ctrl_connect(h, h->opt.nqn);

	if (status != number(arg, 16, 1, 0x7fff))
		nh_die("Connect: status %#x instead of 0x%s", status, arg);
	printf("refused: status %#x\n", status);
}

static void
reject(struct nh *h, const char *arg)
{
	int why;

	(void)arg;
	why = nh_ctrl_reject(h, NVME_AQ_ENTRIES, 1);
	if (why != NVME_RDMA_INVALID_RECFMT)
		nh_die("a request of format 1 is rejected with %d", why);
	why = nh_ctrl_reject(h, NVME_AQ_ENTRIES + 1, 0);
	if (why != NVME_RDMA_INVALID_HSQSIZE)
		nh_die("a request of too many entries is rejected with %d", why);
	printf("rejected\n");
}

static void
nobody(struct nh *h, const char *arg)
{
	int why = nh_ctrl_reject(h, NVME_AQ_ENTRIES, 0);

	(void)arg;
	if (why != -1)
		nh_die("somebody rejects it with %d", why);
	printf("nobody is there\n");
}

static void
connect_all(struct nh *h, const char *arg)
{
	uint16_t status = nh_ctrl_connect(h, h->opt.nqn);

	(void)arg;
	if (status != NVME_OK)
		nh_die("Connect: status %#x", status);
	nh_ctrl_enable(h, true);
	nh_ctrl_identify(h);
	nh_ctrl_namespaces(h);
	nh_ctrl_io_queues(h);
}

static struct nh_ns *
ns_of(struct nh *h, const char *arg)
{
	return nh_ns_of(h, number(arg, 10, 1, UINT32_MAX - 1));
}

static void
sizes(struct nh *h, const char *arg)
{
	nh_io_sizes(h, ns_of(h, arg));
}

static void
load(struct nh *h, const char *arg)
{
	nh_io_load(h, ns_of(h, arg), number(second(arg), 10, 1, UINT32_MAX));
}

static void
flush(struct nh *h, const char *arg)
{
	nh_io_flush(h, ns_of(h, arg));
}

static void
zeroes(struct nh *h, const char *arg)
{
	nh_io_zeroes(h, ns_of(h, arg));
}

static void
beyond(struct nh *h, const char *arg)
{
	nh_io_beyond(h, ns_of(h, arg));
}

static void
unknown(struct nh *h, const char *arg)
{
	nh_io_unknown(h, ns_of(h, arg));
}

static void
save(struct nh *h, const char *arg)
{
	nh_io_save(ns_of(h, arg), second(arg));
}

static void
stale(struct nh *h, const char *arg)
{
	nh_io_stale(h, ns_of(h, arg));
}

static void
hold(struct nh *h, const char *arg)
{
	nh_io_hold(h, ns_of(h, arg));
}

static void
event(struct nh *h, const char *arg)
{
	(void)arg;
	nh_ctrl_event(h);
}

static void
keep_alive(struct nh *h, const char *arg)
{
	nh_ctrl_keep_alive(h, number(arg, 10, 1, 1000));
}

static void
silence(struct nh *h, const char *arg)
{
	(void)arg;
	nh_ctrl_silence(h);
}

static void
off(struct nh *h, const char *arg)
{
	(void)arg;
	nh_ctrl_off(h);
	printf("off\n");
}

static const struct step {
	const char *name;
	void (*run)(struct nh *h, const char *arg);
	bool alone; /* without a controller */
	bool arg;
} steps[] = {
	{"discover", discover, true, false},
	{"refuse", refuse, true, true},
	{"reject", reject, true, false},
	{"nobody", nobody, true, false},
	{"connect", connect_all, true, false},
	{"sizes", sizes, false, true},
	{"load", load, false, true},
	{"flush", flush, false, true},
	{"zeroes", zeroes, false, true},
	{"beyond", beyond, false, true},
	{"unknown", unknown, false, true},
	{"save", save, false, true},
	{"stale", stale, false, true},
	{"hold", hold, false, true},
	{"event", event, false, false},
	{"keep-alive", keep_alive, false, true},
	{"silence", silence, false, false},
	{"off", off, false, false},
};

static void
take_step(struct nh *h, const char *word)
{
	size_t len = strcspn(word, "="), i;
	const struct step *step = NULL;

	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (strncmp(steps[i].name, word, len) == 0 && steps[i].name[len] == '\0')
			step = &steps[i];
	if (step == NULL || step->arg != (word[len] == '='))
		nh_die("'%s' is not a step; see --help", word);
	if (step->alone != (h->queue[0] == NULL))
		nh_die("'%s' is not for %s", word,
			step->alone ? "who is connected" : "who is not connected");
	step->run(h, step->arg ? word + len + 1 : NULL);
}

/* --- options --- */

static void
take_options(struct nh_options *opt, int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},
		{"nqn", required_argument, NULL, 'n'},
		{"hostnqn", required_argument, NULL, 'h'},
		{"queues", required_argument, NULL, 'q'},
		{"entries", required_argument, NULL, 'e'},
		{"windows", no_argument, NULL, 'w'},
		{"kato", required_argument, NULL, 'k'},
		{"seed", required_argument, NULL, 's'},
		{"patience", required_argument, NULL, 't'},
		{"help", no_argument, NULL, '?'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'p':
			opt->port = optarg;
			break;
		case 'n':
			opt->nqn = optarg;
			break;
		case 'h':
			opt->hostnqn = optarg;
			break;
		case 'q':
			opt->queues = number(optarg, 10, 1, NH_MAX_QUEUES);
			break;
		case 'e':
			opt->entries = number(optarg, 10, 2, MAX_ENTRIES);
			break;
		case 'w':
			opt->windows = true;
			break;
		case 'k':
			opt->kato_ms = number(optarg, 10, 0, 600000);
			break;
		case 's':
			opt->seed = number(optarg, 10, 0, UINT32_MAX);
			break;
		case 't':
			opt->patience_s = number(optarg, 10, 1, 3600);
			break;
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	if (optind == argc) {
		fputs(usage, stderr);
		exit(2);
	}
	opt->address = argv[optind];
}

int
main(int argc, char **argv)
{
	struct nh h = {.opt = {.port = "4420",
			       .nqn = "nqn.2014-08.org.example:karst",
			       .hostnqn = DEFAULT_HOSTNQN,
			       .queues = 1,
			       .entries = 32,
			       .seed = 1,
			       .patience_s = 120}};
	const struct nh_counters *c = &h.counters;
	uint32_t i;

	take_options(&h.opt, argc, argv);
	h.random = h.opt.seed;
	for (i = (uint32_t)optind + 1; i < (uint32_t)argc; i++)
		take_step(&h, argv[i]);
	printf("%llu commands: %llu with data in the capsule, %llu that were fetched, %llu to here; "
	       "%llu keys bound, %llu invalidated\n",
		(unsigned long long)c->commands, (unsigned long long)c->in_capsule,
		(unsigned long long)c->to_target, (unsigned long long)c->from_target,
		(unsigned long long)c->bound, (unsigned long long)c->invalidated);
	return 0;
}
