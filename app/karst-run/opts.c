/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "opts.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "karst_base.h"

#define LINGER_S     5
#define LINGER_MAX_S 86400

enum {
	MODE = 256,
	SOCKET,
	PRIVATE,
	LINGER,
	ENGINE_LOG,
	PROVIDER,
	CPUS,
	NETLINK,
	KEEP_TREE,
	PRINT,
	SMC,
	REQUIRE,
	SHORT,
	IO_URING,
	DOCTOR,
	VERSION,
};

static const struct option options[] = {
	{"mode", required_argument, NULL, MODE},
	{"socket", required_argument, NULL, SOCKET},
	{"private", no_argument, NULL, PRIVATE},
	{"linger", required_argument, NULL, LINGER},
	{"engine-log", required_argument, NULL, ENGINE_LOG},
	{"provider", required_argument, NULL, PROVIDER},
	{"cpus", required_argument, NULL, CPUS},
	{"netlink", required_argument, NULL, NETLINK},
	{"keep-tree", required_argument, NULL, KEEP_TREE},
	{"print", no_argument, NULL, PRINT},
	{"smc", no_argument, NULL, SMC},
	{"require", no_argument, NULL, REQUIRE},
	{"short", required_argument, NULL, SHORT},
	{"io-uring", no_argument, NULL, IO_URING},
	{"doctor", no_argument, NULL, DOCTOR},
	{"verbose", no_argument, NULL, 'v'},
	{"version", no_argument, NULL, VERSION},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static void
usage(FILE *to)
{
	fputs("usage: karst-run [OPTION...] PROGRAM [ARGUMENT...]\n"
	      "       karst-run --smc [--require] [--short WHICH] [--io-uring] [--socket PATH] PROGRAM\n"
	      "                 [ARGUMENT...]\n"
	      "       karst-run [OPTION...] --doctor | --print | --keep-tree DIR\n"
	      "\n"
	      "Runs a program that uses libibverbs with karst's devices in view: karst0 for the\n"
	      "first port of the engine, karst1 for the second, and so on.\n"
	      "\n"
	      "  --socket PATH      the engine; default: $KARST_SOCKET, else\n"
	      "                     /run/karst/karst.sock, else a private one\n"
	      "  --private          an engine of this user alone, with one loopback port\n"
	      "  --linger SECONDS   how long that outlives the last program; default 5\n"
	      "  --engine-log FILE  what that says\n"
	      "  --mode MODE        ns: namespaces; env: variables; auto: ns if it can be had\n"
	      "  --cpus WHICH       spare: it runs not on CPUs of the engine's lcores; all:\n"
	      "                     anywhere; auto: spare if there are any\n"
	      "  --netlink WHAT     the kernel's own list of RDMA devices: keep, hide, auto\n"
	      "                     (hide if there is one)\n"
	      "  --provider FILE    libkarst-rdmav34.so, if it is not where it belongs\n"
	      "  --keep-tree DIR    write what programs would see to DIR, for containers\n"
	      "  --smc              a program of TCP sockets instead: its connections go by RDMA\n"
	      "                     (SMC-R) to peers that can, by TCP to others\n"
	      "  --require          with --smc: connections that would go by TCP fail\n"
	      "  --short WHICH      tcp: of many short connections to one peer few go by RDMA;\n"
	      "                     smc: all do; auto: as tcp, and with --require as smc\n"
	      "  --io-uring         with --smc: the program's io_uring does not accept, read or\n"
	      "                     write sockets; otherwise who has one stays on TCP\n"
	      "  --print            tell what would be done\n"
	      "  --doctor           check everything that is needed, one by one\n"
	      "  -v, --verbose      tell what is done\n"
	      "  --version          print the version\n"
	      "  -h, --help         print this\n"
	      "\n"
	      "Exit status: the program's; 125 karst-run failed, 126 the program cannot be run,\n"
	      "127 it is not there.  --doctor: 0 all is well, 1 something is not.\n",
		to);
}

static int
print_words(const char *fmt, va_list ap)
{
	char line[1024];

	vsnprintf(line, sizeof(line), fmt, ap);
	fprintf(stderr, "karst-run: %s\n", line);
	return KR_EXIT_FAILED;
}

int
kr_fail(const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = print_words(fmt, ap);
	va_end(ap);
	return rc;
}

void
kr_tell(const struct kr_opts *o, const char *fmt, ...)
{
	va_list ap;

	if (!o->verbose)
		return;
	va_start(ap, fmt);
	print_words(fmt, ap);
	va_end(ap);
}

/* @words: in the order of the enum of *@out. */
static int
opt_word(const char *option, const char *arg, const char *const *words, unsigned int n, int *out)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (strcmp(arg, words[i]) == 0) {
			*out = (int)i;
			return -1;
		}
	}
	return kr_fail(
		"%s %s: unknown; allowed: %s, %s or %s", option, arg, words[0], words[1], words[2]);
}

static int
seconds(const char *arg, unsigned int *out)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(arg, &end, 10);
	if (arg[0] < '0' || arg[0] > '9' || *end != '\0' || errno != 0 || v > LINGER_MAX_S)
		return kr_fail(
			"--linger %s: not allowed; allowed: 0 to %u (seconds)", arg, LINGER_MAX_S);
	*out = (unsigned int)v;
	return -1;
}

static int
opt_take(int c, struct kr_opts *o)
{
	static const char *const modes[] = {"auto", "ns", "env"};
	static const char *const netlinks[] = {"auto", "hide", "keep"};
	static const char *const cpus[] = {"auto", "spare", "all"};
	static const char *const shorts[] = {"auto", "tcp", "smc"};
	int value = 0, rc = -1;

	switch (c) {
	case MODE:
		rc = opt_word("--mode", optarg, modes, KARST_DIM(modes), &value);
		o->mode = (enum kr_mode)value;
		break;
	case CPUS:
		rc = opt_word("--cpus", optarg, cpus, KARST_DIM(cpus), &value);
		o->cpus = (enum kr_cpus)value;
		break;
	case NETLINK:
		rc = opt_word("--netlink", optarg, netlinks, KARST_DIM(netlinks), &value);
		o->netlink = (enum kr_netlink)value;
		break;
	case LINGER:
		rc = seconds(optarg, &o->linger_s);
		break;
	case SOCKET:
		o->socket = optarg;
		break;
	case PRIVATE:
		o->private_engine = true;
		break;
	case ENGINE_LOG:
		o->engine_log = optarg;
		break;
	case PROVIDER:
		o->provider = optarg;
		break;
	case KEEP_TREE:
		o->keep_tree = optarg;
		break;
	case PRINT:
		o->print = true;
		break;
	case SMC:
		o->smc = true;
		break;
	case REQUIRE:
		o->require = true;
		break;
	case SHORT:
		rc = opt_word("--short", optarg, shorts, KARST_DIM(shorts), &value);
		o->shorts = (enum kr_shorts)value;
		break;
	case IO_URING:
		o->io_uring = true;
		break;
	case DOCTOR:
		o->doctor = true;
		break;
	case 'v':
		o->verbose = true;
		break;
	case VERSION:
		puts("karst-run " KARST_VERSION);
		return KR_EXIT_OK;
	case 'h':
		usage(stdout);
		return KR_EXIT_OK;
	default:
		return kr_fail("--help lists what is allowed");
	}
	return rc;
}

static int
opts_check(const struct kr_opts *o)
{
	unsigned int whats = (unsigned int)o->doctor + o->print + (o->keep_tree != NULL);
	bool program = o->argv[0] != NULL;

	if (o->socket != NULL && o->private_engine)
		return kr_fail("--socket names an engine and --private starts another: give one");
	if (whats > 1)
		return kr_fail("--doctor, --print and --keep-tree: give one of them");
	if ((o->doctor || o->keep_tree != NULL) && program)
		return kr_fail(
			"\"%s\": no program is run with --doctor or --keep-tree", o->argv[0]);
	if (o->require && !o->smc)
		return kr_fail("--require says which connections --smc may make: give both");
	if (o->shorts != KR_SHORTS_AUTO && !o->smc)
		return kr_fail("--short says what --smc does with short connections: give both");
	if (o->shorts == KR_SHORTS_TCP && o->require)
		return kr_fail("--require has no connection go by TCP, and --short tcp has most of "
			       "the short ones: give one");
	if (o->io_uring && !o->smc)
		return kr_fail("--io-uring says what --smc may do for the program: give both");
	if (o->smc && (whats > 0 || o->private_engine || o->mode != KR_MODE_AUTO))
		return kr_fail("--smc: not with --private, --mode, --doctor, --print or "
			       "--keep-tree; it needs a karstd with [smc] enabled, and no devices");
	if (whats == 0 && !program)
		return kr_fail("no PROGRAM is given; --help tells more");
	return -1;
}

int
kr_opts_parse(int argc, char **argv, struct kr_opts *o)
{
	int c, rc;

	memset(o, 0, sizeof(*o));
	o->linger_s = LINGER_S;
	/* "+": the first word that is not an option is the program, and its arguments follow */
	while ((c = getopt_long(argc, argv, "+vh", options, NULL)) != -1) {
		rc = opt_take(c, o);
		if (rc >= 0)
			return rc;
	}
	o->argv = argv + optind;
	return opts_check(o);
}
