/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "opts.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "conf.h"

enum { CONFIG = 256, CHECK, SOCKET, FOREGROUND, LOG_LEVEL, NAME, LOOPBACK, USER, VERSION };

static const struct option options[] = {
	{"config", required_argument, NULL, CONFIG},
	{"check", no_argument, NULL, CHECK},
	{"socket", required_argument, NULL, SOCKET},
	{"foreground", no_argument, NULL, FOREGROUND},
	{"log-level", required_argument, NULL, LOG_LEVEL},
	{"name", required_argument, NULL, NAME},
	{"loopback", no_argument, NULL, LOOPBACK},
	{"user", required_argument, NULL, USER},
	{"version", no_argument, NULL, VERSION},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static void
usage(FILE *to)
{
	fputs("usage: karstd [OPTION...]\n"
	      "\n"
	      "The RDMA engine that programs on this machine attach to.  Stays in the foreground.\n"
	      "\n"
	      "  --config FILE      configuration; default " KD_DEFAULT_CONF ", if it exists\n"
	      "  --check            check the configuration and exit\n"
	      "  --socket PATH      instead of [socket] path\n"
	      "  --name NAME        instead of [engine] name\n"
	      "  --log-level LEVEL  instead of [log] level: error, warning, notice, info, debug\n"
	      "  --user USER        instead of [engine] user: whom to become if started as root\n"
	      "  --loopback         instead of the configured ports: one without a wire\n"
	      "  --foreground       as it is anyway\n"
	      "  --version          print the version\n"
	      "  -h, --help         print this\n"
	      "\n"
	      "SIGHUP reads limits, log settings and ports' addresses again, and closes ports that\n"
	      "are not configured any more; SIGTERM and SIGINT stop.\n"
	      "Exit status: 0 stopped as asked, 1 failed, 2 wrong options or configuration,\n"
	      "3 another karstd serves the socket.\n",
		to);
}

int
kd_opts_parse(int argc, char **argv, struct kd_opts *o)
{
	int c;

	memset(o, 0, sizeof(*o));
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case CONFIG:
			o->config = optarg;
			break;
		case CHECK:
			o->check = true;
			break;
		case SOCKET:
			o->socket = optarg;
			break;
		case FOREGROUND:
			break;
		case LOG_LEVEL:
			o->log_level = optarg;
			break;
		case NAME:
			o->name = optarg;
			break;
		case USER:
			o->user = optarg;
			break;
		case LOOPBACK:
			o->loopback = true;
			break;
		case VERSION:
			puts("karstd " KARST_VERSION);
			return KD_EXIT_OK;
		case 'h':
			usage(stdout);
			return KD_EXIT_OK;
		default:
			fputs("karstd: --help lists what is allowed\n", stderr);
			return KD_EXIT_WRONG;
		}
	}
	if (optind == argc)
		return -1;
	fprintf(stderr, "karstd: \"%s\": not an option; allowed: options only, see --help\n",
		argv[optind]);
	return KD_EXIT_WRONG;
}
