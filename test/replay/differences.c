/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The differences that are allowed between karst and the captured peers, and reports.
 *
 * A row of differences.tsv allows one kind of difference in some captures, at a PSN or at any; its
 * last column names the paragraph of doc/differences.rst that gives the reason.  A difference that
 * is not allowed is a failure, and so is a row that never occurs.
 */
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdlib.h>

#include "replay.h"

/* --- the list --- */

int
rp_differences_read(const char *path, struct rp_differences *d)
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;
	int rc = 0;

	*d = (struct rp_differences){0};
	if (f == NULL)
		return -errno;
	while (rc == 0 && getline(&line, &room, f) > 0) {
		struct rp_difference *row;
		char *at = line, *field[5] = {0};
		unsigned int i;

		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#' || line[0] == '\0')
			continue;
		for (i = 0; i < KARST_DIM(field) && at != NULL; i++) {
			field[i] = strdup(strsep(&at, "\t"));
		}
		if (i != KARST_DIM(field) || at != NULL) {
			rc = -EINVAL;
			break;
		}
		d->rows = realloc(d->rows, (d->n + 1) * sizeof(*d->rows));
		row = &d->rows[d->n++];
		*row = (struct rp_difference){field[0], field[1], field[2], field[3], field[4], 0};
	}
	free(line);
	fclose(f);
	return rc;
}

void
rp_differences_free(struct rp_differences *d)
{
	unsigned int i;

	for (i = 0; i < d->n; i++) {
		free(d->rows[i].capture);
		free(d->rows[i].half);
		free(d->rows[i].psn);
		free(d->rows[i].kind);
		free(d->rows[i].id);
	}
	free(d->rows);
}

/* --- reports --- */

void
rp_problem(struct rp_report *r, const char *fmt, ...)
{
	va_list args;

	/* further problems are consequences of the first few */
	if (r->problems++ >= 12)
		return;
	va_start(args, fmt);
	fprintf(r->text, "# %s, %s: ", r->capture, r->half);
	vfprintf(r->text, fmt, args);
	fputc('\n', r->text);
	va_end(args);
}

bool
rp_may_differ(const struct rp_report *r, uint32_t psn, const char *kind)
{
	char hex[8];
	unsigned int i;

	snprintf(hex, sizeof(hex), "%06x", psn);
	for (i = 0; i < r->differences->n; i++) {
		const struct rp_difference *row = &r->differences->rows[i];

		if (strcmp(row->half, r->half) == 0 && strcmp(row->kind, kind) == 0 &&
			(strcmp(row->psn, "*") == 0 || strcmp(row->psn, hex) == 0) &&
			fnmatch(row->capture, r->capture, 0) == 0)
			return true;
	}
	return false;
}

bool
rp_differs(struct rp_report *r, uint32_t psn, const char *fmt, ...)
{
	char kind[128], hex[8];
	unsigned int i;
	va_list args;

	va_start(args, fmt);
	vsnprintf(kind, sizeof(kind), fmt, args);
	va_end(args);
	snprintf(hex, sizeof(hex), "%06x", psn);
	for (i = 0; i < r->differences->n; i++) {
		struct rp_difference *row = &r->differences->rows[i];

		if (strcmp(row->half, r->half) == 0 && strcmp(row->kind, kind) == 0 &&
			(strcmp(row->psn, "*") == 0 || strcmp(row->psn, hex) == 0) &&
			fnmatch(row->capture, r->capture, 0) == 0) {
			row->seen++;
			if (r->list)
				printf("#=%s\t%s\t%s\t%s\t%s\n", r->capture, r->half, hex, kind,
					row->id);
			return true;
		}
	}
	if (r->list)
		printf("#=%s\t%s\t%s\t%s\t?\n", r->capture, r->half, hex, kind);
	rp_problem(r, "at PSN %s: %s", hex, kind);
	return false;
}
