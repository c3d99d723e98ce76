/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

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
	"  --analyse           judge how both ends behave, instead of printing frames\n"
	"\n"
	"With --analyse:\n"
	"  --html FILE         write a page with verdicts and sequence plots as well\n"
	"  --tap WHERE         where it was captured: an end's address, senders or receivers\n"
	"  --ends A,B          two FILEs, captured at the ends with these addresses: what was\n"
	"                      lost between them, and each end judged with that\n"
	"  --injuries FILE     net_impair's log of what was done to which packet\n"
	"  --timeout N         the local ACK timeout is 4.096 us * 2^N (N up to 31)\n"
	"  --cnp-interval US   the interval of CNPs that is configured\n"
	"  --counters ADDRESS=FILE  what the adapter at ADDRESS has counted meanwhile\n"
	"\n"
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

static int
parse_number(const char *option, const char *text, uint32_t max, uint32_t *value)
{
	unsigned long v;
	char what[64], *end;

	errno = 0;
	v = strtoul(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && v <= max) {
		*value = (uint32_t)v;
		return 0;
	}
	snprintf(what, sizeof(what), "a number from 0 to %u is allowed", max);
	return usage_error(option, text, what);
}

static int
parse_tap(const char *text, struct an_options *an)
{
	if (strcmp(text, "senders") == 0)
		an->tap = AN_TAP_SENDERS;
	else if (strcmp(text, "receivers") == 0)
		an->tap = AN_TAP_RECEIVERS;
	else if (an_address(text, an->tap_address))
		an->tap = AN_TAP_ADDRESS;
	else
		return usage_error("--tap", text, "an IP address, senders or receivers is allowed");
	return 0;
}

static int
parse_ends(const char *text, struct options *o)
{
	const char *comma = strchr(text, ',');
	char first[64];

	if (comma != NULL && (size_t)(comma - text) < sizeof(first)) {
		snprintf(first, sizeof(first), "%.*s", (int)(comma - text), text);
		if (an_address(first, o->end[0]) && an_address(comma + 1, o->end[1]) &&
			memcmp(o->end[0], o->end[1], 16) != 0) {
			o->both_ends = true;
			return 0;
		}
	}
	return usage_error("--ends", text,
		"two different IP addresses with a comma between them are allowed, of the end "
		"where the first FILE was captured and of that of the second");
}

static int
parse_counters(char *text, struct an_options *an)
{
	char *file = strchr(text, '='), address[64];

	if (file != NULL && (size_t)(file - text) < sizeof(address)) {
		snprintf(address, sizeof(address), "%.*s", (int)(file - text), text);
		an->counters = file + 1;
		if (an_address(address, an->counters_address))
			return 0;
	}
	return usage_error("--counters", text, "ADDRESS=FILE is allowed");
}

static int
parse_timeout(const char *text, struct an_options *an)
{
	uint32_t v;
	int rc = parse_number("--timeout", text, 31, &v);

	if (rc == 0)
		an->timeout = (int)v;
	return rc;
}

enum {
	OPT_REBUILD = 256,
	OPT_JSON,
	OPT_QUIET,
	OPT_COUNT,
	OPT_QUIRK,
	OPT_VERSION,
	OPT_ANALYSE, /* from here on, options of --analyse */
	OPT_HTML,
	OPT_TAP,
	OPT_ENDS,
	OPT_INJURIES,
	OPT_TIMEOUT,
	OPT_CNP_INTERVAL,
	OPT_COUNTERS,
};

static const struct option long_options[] = {
	{"rebuild", no_argument, NULL, OPT_REBUILD},
	{"json", no_argument, NULL, OPT_JSON},
	{"quiet", no_argument, NULL, OPT_QUIET},
	{"count", required_argument, NULL, OPT_COUNT},
	{"quirk", required_argument, NULL, OPT_QUIRK},
	{"analyse", no_argument, NULL, OPT_ANALYSE},
	{"html", required_argument, NULL, OPT_HTML},
	{"tap", required_argument, NULL, OPT_TAP},
	{"ends", required_argument, NULL, OPT_ENDS},
	{"injuries", required_argument, NULL, OPT_INJURIES},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"cnp-interval", required_argument, NULL, OPT_CNP_INTERVAL},
	{"counters", required_argument, NULL, OPT_COUNTERS},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static int
parse_analyse(int c, struct options *o, bool *given)
{
	*given = c != OPT_ANALYSE ? true : *given;
	switch (c) {
	case OPT_HTML:
		o->html = optarg;
		o->an.plot = true;
		return 0;
	case OPT_TAP:
		return parse_tap(optarg, &o->an);
	case OPT_ENDS:
		return parse_ends(optarg, o);
	case OPT_INJURIES:
		o->an.injuries = optarg;
		return 0;
	case OPT_TIMEOUT:
		return parse_timeout(optarg, &o->an);
	case OPT_CNP_INTERVAL:
		return parse_number("--cnp-interval", optarg, 1000000, &o->an.cnp_interval_us);
	case OPT_COUNTERS:
		return parse_counters(optarg, &o->an);
	default:
		o->analyse = true;
		return 0;
	}
}

/*
 * --ends excludes the options that say where a capture was taken and what was lost.  It reads the
 * files several times, so they cannot be pipes.
 */
static int
check_ends(const struct options *o, char *const *file, int files)
{
	static const char not_with[] = "does not go with --ends";

	if (files != 2)
		return usage_error("option", "--ends",
			"two FILEs are needed: captured at the first address, and at the second");
	if (strcmp(file[0], "-") == 0 || strcmp(file[1], "-") == 0)
		return usage_error("FILE", "-", not_with);
	if (o->an.tap != AN_TAP_UNKNOWN)
		return usage_error("option", "--tap", not_with);
	if (o->an.injuries != NULL)
		return usage_error("option", "--injuries", not_with);
	if (o->count != 0)
		return usage_error("option", "--count", not_with);
	if (o->html != NULL || o->an.counters != NULL)
		return usage_error("option", o->html != NULL ? "--html" : "--counters", not_with);
	return 0;
}

/*
 * Reject combinations of options that exclude each other.  @file: the @files names on the command
 * line.
 */
static int
options_check(const struct options *o, char *const *file, int files, bool given)
{
	if (files == 0) {
		fputs("karst-dump: no FILE given; one or more pcap or pcapng files are needed\n"
		      "Try 'karst-dump --help'.\n",
			stderr);
		return -EINVAL;
	}
	if (given && !o->analyse)
		return usage_error("option",
			"--html, --tap, --ends, --injuries, --timeout, --cnp-interval or "
			"--counters",
			"goes with --analyse only");
	if (o->analyse && o->judge.rebuild)
		return usage_error("option", "--rebuild", "does not go with --analyse");
	if (o->both_ends)
		return check_ends(o, file, files);
	if (files > 1 && (o->html != NULL || o->an.counters != NULL))
		return usage_error(
			"option", o->html != NULL ? "--html" : "--counters", "is for one FILE");
	return 0;
}

int
options_parse(int argc, char **argv, struct options *o)
{
	bool given = false;
	int c, rc = 0;

	opterr = 0;
	o->an.timeout = AN_TIMEOUT_UNKNOWN;
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
			return usage_error(
				"option", argv[optind - 1], "needs a value: --help says which");
		case OPT_ANALYSE ... OPT_COUNTERS:
			rc = parse_analyse(c, o, &given);
			break;
		default:
			return usage_error("option", argv[optind - 1],
				"not known, or given a value it does not take; allowed: --rebuild "
				"--json --quiet --count N --quirk flush-icrc --analyse --html FILE "
				"--tap WHERE --ends A,B --injuries FILE --timeout N --cnp-interval US "
				"--counters ADDRESS=FILE --help --version");
		}
	}
	return rc != 0 ? rc : options_check(o, argv + optind, argc - optind, given);
}
