/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "conf_scan.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COMMENT        '#'
#define LINE_MAX_BYTES 323   /* a key and a value, with " = " and the end of the line */
#define MANY           4096u /* limit for sections and entries */

struct reader {
	struct kd_scan *s;
	struct kd_faults *f;
	const char *path;
	uint32_t line;
	bool full; /* there are too many sections or entries to read on */
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

/* Reports what is wrong with a section, and reads no entry of it. */
static void
refuse(const struct reader *r, struct kd_scan_section *sec, const char *what)
{
	fault(r, what);
	sec->refused = true;
}

static void
add_section(struct reader *r, char *text)
{
	struct kd_scan *s = r->s;
	struct kd_scan_section *sec = &s->section[s->nsections];
	char *end = strchr(text, ']');
	char what[128];
	uint32_t i;

	sec->line = r->line;
	sec->first = s->nentries;
	s->nsections++;
	if (end == NULL || *strip(end + 1) != '\0') {
		refuse(r, sec, "a section is [NAME] and nothing behind it");
		return;
	}
	*end = '\0';
	text = strip(text + 1);
	if (text[0] == '\0' || strlen(text) >= sizeof(sec->name)) {
		refuse(r, sec, "the name of a section has 1 to 63 characters");
		return;
	}
	memcpy(sec->name, text, strlen(text) + 1);
	for (i = 0; strcmp(s->section[i].name, text) != 0; i++)
		;
	if (&s->section[i] != sec) {
		snprintf(what, sizeof(what), "section [%s] is in line %u already", text,
			s->section[i].line);
		refuse(r, sec, what);
	}
}

static void
add_entry(struct reader *r, char *text)
{
	struct kd_scan *s = r->s;
	struct kd_scan_entry *e = &s->entry[s->nentries];
	char *value = strchr(text, '=');

	if (value == NULL) {
		fault(r, "neither [SECTION] nor KEY = VALUE nor # COMMENT");
		return;
	}
	*value++ = '\0';
	text = strip(text);
	value = strip(value);
	if (text[0] == '\0' || strlen(text) >= sizeof(e->name)) {
		fault(r, "a key has 1 to 63 characters");
	} else if (strlen(value) >= sizeof(e->value)) {
		fault(r, "a value has up to 255 characters");
	} else if (s->nsections == 0) {
		fault(r, "a key before the first [SECTION]");
	} else {
		e->line = r->line;
		memcpy(e->name, text, strlen(text) + 1);
		memcpy(e->value, value, strlen(value) + 1);
		s->nentries++;
	}
}

static void
scan_line(struct reader *r, char *text)
{
	char *comment = strchr(text, COMMENT);

	if (comment != NULL)
		*comment = '\0';
	text = strip(text);
	if (text[0] == '\0')
		return;
	r->full = r->s->nsections == MANY || r->s->nentries == MANY;
	if (r->full)
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

	while (!r->full && (len = getline(&line, &room, file)) >= 0) {
		r->line++;
		if (strlen(line) != (size_t)len)
			fault(r, "a NUL byte");
		else if (len > LINE_MAX_BYTES)
			fault(r, "a line has up to 320 characters");
		else if (strchr(line, '\\') != NULL)
			fault(r, "a backslash has no meaning here");
		else
			scan_line(r, line);
	}
	if (ferror(file))
		kd_fault(r->f, "%s: %s", r->path, strerror(errno));
	free(line);
}

void
kd_scan_file(struct kd_scan *s, const char *path, struct kd_faults *f)
{
	struct reader r = {.s = s, .f = f, .path = path};
	struct stat st;
	FILE *file;

	memset(s, 0, sizeof(*s));
	file = fopen(path, "re");
	if (file == NULL || fstat(fileno(file), &st) != 0) {
		kd_fault(f, "%s: %s", path, strerror(errno));
		if (file != NULL)
			fclose(file);
		return;
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
}

void
kd_scan_free(struct kd_scan *s)
{
	free(s->section);
	free(s->entry);
	memset(s, 0, sizeof(*s));
}
