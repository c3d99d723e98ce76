/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-dump: reads captures of RoCEv2 and native InfiniBand, prints each frame, checks every
 * CRC, and with --rebuild encodes each frame anew and compares.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

#include "capture.h"
#include "judge.h"
#include "karst_crc.h"
#include "show.h"
#include "stats.h"

#define EXIT_BAD   1
#define EXIT_USAGE 2

struct options {
	struct judge_options judge;
	bool json;
	bool quiet;
	uint64_t count; /* frames per file; 0: all */
};

static const char usage_text[] =
	"usage: karst-dump [OPTION...] FILE...\n"
	"Prints captured RoCEv2 and native InfiniBand frames and checks their CRCs.\n"
	"FILE is pcap or pcapng; \"-\" is standard input.\n"
	"\n"
	"  --rebuild           encode each frame anew from its fields and compare bit for bit\n"
	"  --json              one JSON object per frame, then one per file and the total\n"
	"  --quiet             no frames, only the summary\n"
	"  --count N           stop after N frames of each file (N from 1)\n"
	"  --quirk flush-icrc  accept FLUSH as Linux 6.12 seals it\n"
	"  -h, --help          this text\n"
	"  --version           the version\n"
	"\n"
	"Exit status: 0 nothing is bad, 1 something is (or a file cannot be read), 2 usage.\n";

static int
usage_error(const char *what, const char *value, const char *allowed)
{
	fprintf(stderr, "karst-dump: %s '%s': %s\n", what, value, allowed);
	fprintf(stderr, "Try 'karst-dump --help'.\n");
	return -EINVAL;
}

static int
parse_count(const char *text, uint64_t *count)
{
	char *end;

	errno = 0;
	*count = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || *count == 0)
		return usage_error("--count", text, "a number of frames from 1 is allowed");
	return 0;
}

static int
parse_quirk(const char *text, unsigned int *quirks)
{
	if (strcmp(text, "flush-icrc") != 0)
		return usage_error("--quirk", text, "no such quirk; allowed: flush-icrc");
	*quirks |= JUDGE_QUIRK_FLUSH_ICRC;
	return 0;
}

enum { OPT_REBUILD = 256, OPT_JSON, OPT_QUIET, OPT_COUNT, OPT_QUIRK, OPT_VERSION };

static const struct option long_options[] = {
	{"rebuild", no_argument, NULL, OPT_REBUILD},
	{"json", no_argument, NULL, OPT_JSON},
	{"quiet", no_argument, NULL, OPT_QUIET},
	{"count", required_argument, NULL, OPT_COUNT},
	{"quirk", required_argument, NULL, OPT_QUIRK},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

/* @return 0 to go on, 1 when all is done, negative errno after a message. */
static int
parse_options(int argc, char **argv, struct options *o)
{
	int c, rc = 0;

	opterr = 0;
	while (rc == 0 && (c = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
		switch (c) {
		case OPT_REBUILD:
			o->judge.rebuild = true;
			break;
		case OPT_JSON:
			o->json = true;
			break;
		case OPT_QUIET:
			o->quiet = true;
			break;
		case OPT_COUNT:
			rc = parse_count(optarg, &o->count);
			break;
		case OPT_QUIRK:
			rc = parse_quirk(optarg, &o->judge.quirks);
			break;
		case 'h':
			fputs(usage_text, stdout);
			return 1;
		case OPT_VERSION:
			puts("karst-dump " KARST_VERSION);
			return 1;
		case ':':
			return usage_error("option", argv[optind - 1],
				"needs a value: --count N, --quirk flush-icrc");
		default:
			return usage_error("option", argv[optind - 1],
				"not known, or given a value it does not take; allowed: --rebuild "
				"--json --quiet --count N --quirk flush-icrc --help --version");
		}
	}
	if (rc == 0 && optind == argc) {
		fputs("karst-dump: no FILE given; one or more pcap or pcapng files are needed\n"
		      "Try 'karst-dump --help'.\n",
			stderr);
		return -EINVAL;
	}
	return rc;
}

static void
dump_file(const char *path, const struct options *o, struct stats *st)
{
	struct capture_frame f;
	struct capture c;
	struct sink sink;
	struct judge j;
	int rc;

	sink_init(&sink, stdout, o->json);
	if (capture_open(&c, path) != 0) {
		st->errors++;
		return;
	}
	while ((o->count == 0 || st->frames < o->count) && (rc = capture_next(&c, &f)) != 0) {
		if (rc < 0) {
			st->errors++;
			break;
		}
		judge_frame(&f, &o->judge, &j);
		stats_count(st, &f, &j);
		if (!o->quiet)
			show_frame(&sink, &f, &j);
	}
	capture_close(&c);
}

int
main(int argc, char **argv)
{
	struct stats total = {0};
	struct options o = {0};
	int i, rc, files;

	rc = parse_options(argc, argv, &o);
	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	rc = karst_crc_init(NULL);
	if (rc != 0) {
		fprintf(stderr, "karst-dump: CRC kernels: %s (environment variable KARST_CRC?)\n",
			strerror(-rc));
		return EXIT_USAGE;
	}
	files = argc - optind;
	for (i = optind; i < argc; i++) {
		struct stats st = {0};

		dump_file(argv[i], &o, &st);
		if (files > 1)
			stats_print(&st, stdout, o.json, argv[i], o.judge.rebuild);
		stats_add(&total, &st);
	}
	stats_print(
		&total, stdout, o.json, files > 1 || o.json ? NULL : argv[optind], o.judge.rebuild);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "karst-dump: standard output: %s\n", strerror(errno));
		return EXIT_BAD;
	}
	return stats_bad(&total) ? EXIT_BAD : EXIT_SUCCESS;
}
