/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "conf_scan.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <rte_cfgfile.h>

/* The limit of rte_cfgfile, with the end of the line. */
#define LINE_MAX_BYTES (CFG_NAME_LEN + CFG_VALUE_LEN + 3)
#define MANY           4096u /* limit for sections and entries */

struct reader {
	struct kd_scan *s;
	struct kd_faults *f;
	const char *path;
	uint32_t line;
	uint32_t again; /* duplicate sections */
};

static void
fault(const struct reader *r, const char *what)
{
	kd_fault(r->f, "%s:%u: %s", r->path, r->line, what);
}

/* Removes white space at both ends. */
static char *
strip(char *text)
{
	size_t len;

	while (isspace((unsigned char)*text))
		text++;
	len = strlen(text);
	while (len > 0 && isspace((unsigned char)text[len - 1]))
		text[--len] = '\0';
	return text;
}

static void
add_section(struct reader *r, char *text)
{
	struct kd_scan *s = r->s;
	struct kd_scan_section *sec;
	char *end = strchr(text, ']');
	uint32_t i;

	if (end == NULL || *strip(end + 1) != '\0') {
		fault(r, "a section is [NAME] and nothing behind it");
		return;
	}
	*end = '\0';
	text = strip(text + 1);
	if (text[0] == '\0' || strlen(text) >= sizeof(sec->name)) {
		fault(r, "the name of a section has 1 to 63 characters");
		return;
	}
	for (i = 0; i < s->nsections && strcmp(s->section[i].name, text) != 0; i++)
		;
	sec = &s->section[s->nsections];
	if (i < s->nsections++) {
		kd_fault(r->f, "%s:%u: section [%s] is in line %u already", r->path, r->line, text,
			s->section[i].line);
		sec->again = true;
		r->again++;
	}
	sec->line = r->line;
	sec->first = s->nentries;
	memcpy(sec->name, text, strlen(text) + 1);
}

static void
add_entry(struct reader *r, char *text)
{
	char *value = strchr(text, '=');

	if (value == NULL) {
		fault(r, "neither [SECTION] nor KEY = VALUE nor # COMMENT");
		return;
	}
	*value++ = '\0';
	text = strip(text);
	if (text[0] == '\0' || strlen(text) >= CFG_NAME_LEN)
		fault(r, "a key has 1 to 63 characters");
	else if (strlen(strip(value)) >= CFG_VALUE_LEN)
		fault(r, "a value has up to 255 characters");
	else if (r->s->nsections == 0)
		fault(r, "a key before the first [SECTION]");
	else
		r->s->entry[r->s->nentries++] = r->line;
}

static void
read_line(struct reader *r, char *text)
{
	char *comment = strchr(text, KD_COMMENT);

	if (comment != NULL)
		*comment = '\0';
	text = strip(text);
	if (text[0] == '\0')
		return;
	if (r->s->nsections == MANY || r->s->nentries == MANY)
		fault(r, "more than 4096 sections or keys");
	else if (text[0] == '[')
		add_section(r, text);
	else
		add_entry(r, text);
}

static void
read_all(struct reader *r, FILE *file)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t len;

	while ((len = getline(&line, &room, file)) >= 0) {
		r->line++;
		if (strlen(line) != (size_t)len)
			fault(r, "a NUL byte");
		else if (len > LINE_MAX_BYTES)
			fault(r, "a line has up to 320 characters");
		else if (strchr(line, '\\') != NULL)
			fault(r, "a backslash has no meaning here");
		else
			read_line(r, line);
	}
	if (ferror(file))
		kd_fault(r->f, "%s: %s", r->path, strerror(errno));
	free(line);
}

int
kd_scan_file(struct kd_scan *s, const char *path, struct kd_faults *f)
{
	struct reader r = {.s = s, .f = f, .path = path};
	uint32_t before = f->n;
	struct stat st;
	FILE *file;

	memset(s, 0, sizeof(*s));
	file = fopen(path, "re");
	if (file == NULL || fstat(fileno(file), &st) != 0) {
		kd_fault(f, "%s: %s", path, strerror(errno));
		if (file != NULL)
			fclose(file);
		return -EINVAL;
	}
	s->section = calloc(MANY, sizeof(*s->section));
	s->entry = calloc(MANY, sizeof(*s->entry));
	if (!S_ISREG(st.st_mode))
		kd_fault(f, "%s: not a regular file", path);
	else if (s->section == NULL || s->entry == NULL)
		kd_fault(f, "%s: no memory to read it", path);
	else
		read_all(&r, file);
	fclose(file);
	return f->n == before + r.again ? 0 : -EINVAL;
}

void
kd_scan_free(struct kd_scan *s)
{
	free(s->section);
	free(s->entry);
	memset(s, 0, sizeof(*s));
}
