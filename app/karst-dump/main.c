/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-dump: read captures of RoCEv2 and native InfiniBand, print each frame and check every CRC.
 * With --rebuild, encode each frame again and compare; with --analyse, judge how the ends of
 * captured connections behave.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

#include "analyse/ends.h"
#include "capture.h"
#include "judge.h"
#include "karst_crc.h"
#include "options.h"
#include "show.h"
#include "stats.h"

#define EXIT_BAD   1
#define EXIT_USAGE 2

/* @return whether any part of the file was read. */
static bool
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
		return false;
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
	return true;
}

static int
write_html(const struct an *a, const char *path, const char *file)
{
	FILE *out = fopen(path, "w");
	int err = 0;

	if (out != NULL) {
		an_report_html(a, out, file);
		err = ferror(out) ? EIO : 0;
		if (fclose(out) != 0 && err == 0)
			err = errno;
	} else {
		err = errno;
	}
	if (err != 0)
		fprintf(stderr, "karst-dump: --html %s: %s\n", path, strerror(err));
	return -err;
}

/* @return whether nothing has failed. */
static bool
analyse_file(const char *path, const struct options *o, const struct an_options *an)
{
	struct capture_frame f;
	struct capture c;
	struct judge j;
	struct an *a;
	int rc = 1;
	bool good;

	if (capture_open(&c, path) != 0)
		return false;
	a = an_new(an);
	if (a == NULL) {
		capture_close(&c);
		return false;
	}
	while ((o->count == 0 || c.frames < o->count) && (rc = capture_next(&c, &f)) > 0) {
		judge_frame(&f, &o->judge, &j);
		an_frame(a, &f, &j, c.start_ns);
	}
	capture_close(&c);
	an_finish(a, rc < 0);
	good = rc >= 0 && !an_failed(a);
	if (o->json)
		an_report_json(a, stdout, path);
	else if (!o->quiet)
		an_report_text(a, stdout, path);
	if (o->html != NULL && write_html(a, o->html, path) != 0)
		good = false;
	an_free(a);
	return good;
}

/* Match the captures of both ends.  @return as analyse_file(). */
static bool
analyse_ends(char **paths, const struct options *o)
{
	struct ends e = {.path = {paths[0], paths[1]}};
	bool good = true;
	unsigned int i;

	memcpy(e.address, o->end, sizeof(e.address));
	if (ends_match(&e, &o->judge) != 0) {
		ends_free(&e);
		return false;
	}
	for (i = 0; i < 2; i++) {
		struct an_options an = o->an;

		an.tap = AN_TAP_ADDRESS;
		memcpy(an.tap_address, o->end[i], sizeof(an.tap_address));
		an.fates = &e.way[i].fates;
		good &= analyse_file(paths[i], o, &an);
	}
	if (o->json)
		ends_report_json(&e, stdout);
	else if (!o->quiet)
		ends_report_text(&e, stdout);
	ends_free(&e);
	return good;
}

static int
analyse_all(char **paths, int n, const struct options *o)
{
	bool good = true;
	int i;

	if (o->both_ends)
		good = analyse_ends(paths, o);
	for (i = 0; !o->both_ends && i < n; i++)
		good &= analyse_file(paths[i], o, &o->an);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "karst-dump: standard output: %s\n", strerror(errno));
		return EXIT_BAD;
	}
	return good ? EXIT_SUCCESS : EXIT_BAD;
}

int
main(int argc, char **argv)
{
	struct stats total = {0};
	struct options o = {0};
	int i, rc, files, opened = 0;

	rc = options_parse(argc, argv, &o);
	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	rc = karst_crc_init(NULL);
	if (rc != 0) {
		fprintf(stderr, "karst-dump: CRC kernels: %s (environment variable KARST_CRC?)\n",
			strerror(-rc));
		return EXIT_USAGE;
	}
	files = argc - optind;
	if (o.analyse)
		return analyse_all(argv + optind, files, &o);
	for (i = optind; i < argc; i++) {
		struct stats st = {0};
		bool is_open = dump_file(argv[i], &o, &st);

		opened += is_open;
		if (files > 1 && (is_open || o.json))
			stats_print(&st, stdout, o.json, argv[i], o.judge.rebuild);
		stats_add(&total, &st);
	}
	/*
	 * If no file could be opened, a text of zeros would look like an empty file, so none is
	 * printed.  JSON is printed, as it contains the errors.
	 */
	if (opened != 0 || o.json)
		stats_print(&total, stdout, o.json, files > 1 || o.json ? NULL : argv[optind],
			o.judge.rebuild);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "karst-dump: standard output: %s\n", strerror(errno));
		return EXIT_BAD;
	}
	return stats_bad(&total) ? EXIT_BAD : EXIT_SUCCESS;
}
