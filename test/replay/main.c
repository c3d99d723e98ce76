/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-replay: captures of real peers, played to karst; TAP, one point for each capture and half.
 *
 *	karst-replay CAPTURES DIFFERENCES.tsv [-v] [--list] [--expect-failure] [NAME.pcap...]
 *
 * CAPTURES is the folder with MANIFEST.tsv.  A further point says whether every listed difference
 * was seen; without names only.  -v: every frame.  --list: differences met, as rows.
 * --expect-failure: exit status 0 if a point has failed (for builds with a deliberate fault).
 */
#include <stdlib.h>

#include "replay.h"

struct run {
	struct rp_differences differences;
	unsigned int points;
	unsigned int failed;
	unsigned int compared;
	bool verbose;
	bool list;
};

enum half { RESPONDER, REQUESTER, HALVES };

static void
point(struct run *run, const char *name, const char *half, unsigned int compared, bool ok,
	const char *text)
{
	printf("%s %u - %s, %s: %u compared\n", ok ? "ok" : "not ok", ++run->points, name, half,
		compared);
	fputs(text, stdout);
	run->failed += !ok;
	run->compared += compared;
	fflush(stdout);
}

static void
stream_play(struct rp_report *r, const struct rp_stream *s, enum half half)
{
	if (s->type == KARST_QPT_UD) {
		if (half == RESPONDER)
			rp_datagrams_in(r, s);
		else
			rp_datagrams_out(r, s);
	} else if (half == RESPONDER) {
		int refusal, last = rp_responder_refuses(s) ? RP_REFUSALS : RP_UNKNOWN_KEY + 1;

		for (refusal = RP_UNKNOWN_KEY; refusal < last; refusal++)
			rp_responder(r, s, (enum rp_refusal)refusal);
		rp_responder_burst(r, s);
	} else {
		rp_requester(r, s);
	}
}

static struct rp_report
begin(struct run *run, const struct rp_capture *c, const char *half, char **text, size_t *room)
{
	return (struct rp_report){.capture = c->name,
		.half = half,
		.differences = &run->differences,
		.text = open_memstream(text, room),
		.verbose = run->verbose,
		.list = run->list};
}

static void
end(struct run *run, struct rp_report *r, char **text)
{
	fclose(r->text);
	if (r->compared == 0)
		r->problems++; /* nothing was played: that is a failure */
	point(run, r->capture, r->half, r->compared, r->problems == 0, *text);
	free(*text);
}

static void
play_capture(struct run *run, const struct rp_capture *c)
{
	static const char *const names[HALVES] = {"responder", "requester"};
	unsigned int i, n, side;
	struct rp_stream *streams = rp_streams(c, &n);
	struct rp_report r;
	char *text;
	size_t room;
	int half;

	for (half = 0; half < HALVES && n != 0; half++) {
		r = begin(run, c, names[half], &text, &room);
		for (i = 0; i < n; i++)
			stream_play(&r, &streams[i], (enum half)half);
		end(run, &r, &text);
	}
	rp_streams_free(streams, n);
	for (i = 0; i < c->n && c->frames[i].f.ib.dqpn != 1; i++)
		;
	for (side = 0; side < 2 && i < c->n; side++) {
		r = begin(run, c, side == 0 ? "cm client" : "cm server", &text, &room);
		rp_cm(&r, c, side);
		end(run, &r, &text);
	}
}

static bool
wanted(int argc, char **argv, const char *name)
{
	bool all = true;

	for (; argc > 0; argc--, argv++) {
		if (argv[0][0] == '-')
			continue;
		all = false;
		if (strcmp(argv[0], name) == 0)
			return true;
	}
	return all;
}

/* Every row of the list has to occur. */
static void
check_list(struct run *run)
{
	unsigned int i, stale = 0;
	char text[8192] = "";
	size_t at = 0;

	for (i = 0; i < run->differences.n; i++) {
		const struct rp_difference *d = &run->differences.rows[i];

		if (d->seen != 0)
			continue;
		stale++;
		if (at < sizeof(text) - 512)
			at += (size_t)snprintf(text + at, sizeof(text) - at,
				"# not seen: %s %s %s '%s' (%s)\n", d->capture, d->half, d->psn,
				d->kind, d->id);
	}
	point(run, "differences.tsv", "every row", run->differences.n, stale == 0, text);
}

int
main(int argc, char **argv)
{
	struct run run = {0};
	bool expect_failure = false, some = false;
	char path[4096], *line = NULL;
	size_t room = 0;
	FILE *f;
	int i;

	if (argc < 3 || rp_differences_read(argv[2], &run.differences) != 0) {
		fprintf(stderr,
			"usage: karst-replay CAPTURES DIFFERENCES.tsv [-v] "
			"[--list] [--expect-failure] [NAME.pcap...]\n");
		return 2;
	}
	for (i = 3; i < argc; i++) {
		run.verbose |= strcmp(argv[i], "-v") == 0;
		run.list |= strcmp(argv[i], "--list") == 0;
		expect_failure |= strcmp(argv[i], "--expect-failure") == 0;
		some |= argv[i][0] != '-';
	}
	snprintf(path, sizeof(path), "%s/MANIFEST.tsv", argv[1]);
	f = fopen(path, "r");
	if (f == NULL || getline(&line, &room, f) < 0) {
		perror(path);
		return 2;
	}
	while (getline(&line, &room, f) > 0) {
		struct rp_capture c;
		int rc;

		line[strcspn(line, "\n")] = '\0';
		rc = rp_capture_read(argv[1], line, &c);
		if (rc != 0)
			point(&run, line, strerror(-rc), 0, false, "");
		else if (wanted(argc - 3, argv + 3, c.name))
			play_capture(&run, &c);
		rp_capture_free(&c);
	}
	fclose(f);
	free(line);
	if (!some)
		check_list(&run);
	rp_differences_free(&run.differences);
	printf("1..%u\n", run.points);
	printf("# %u frames, completions and places in memory compared\n", run.compared);
	return (run.failed != 0) != expect_failure;
}
