/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Read a rule file: [impair] and any number of [rule NAME], followed by KEY = VALUE, and comments
 * that begin with '#'.  The whole file is read, and the first mistakes are reported with line and
 * column.  Of the others the number is reported, because a program that reports may wait for
 * whoever reads what it prints.
 */
#include "rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "value.h"

#define LINE_BYTES 4096u
#define LINES_MAX  65536u
#define SAID_MAX   20u /* mistakes that are reported one by one */
#define KEYS       (sizeof(keys) / sizeof(keys[0]))

struct imp_conf_impair {
	uint64_t seed, flows;
};

static const struct imp_key keys[] = {
#define IMP_KEY(s, k, t, d, lo, hi, f, a) \
	{#s, #k, IMP_##t, d, lo, hi, f, a, offsetof(struct imp_conf_##s, k)},
#include "impair_keys.def"
#undef IMP_KEY
};

static const char *const action_names[] = {
	"drop", "duplicate", "delay", "reorder", "corrupt", "truncate", "mark", "rate", "hold"};

const char *
imp_action_name(unsigned int action)
{
	return action < IMP_ACTIONS ? action_names[action] : "none";
}

struct reader {
	const char *path;
	imp_say say;
	void *user;
	uint32_t line;
	uint32_t mistakes;
	struct imp_rules *rules;
	struct imp_conf_impair impair;
	uint32_t impair_line;
	/* the current section */
	const char *section; /* "impair", "rule", NULL: none, or one that was rejected */
	void *to;
	bool refused;
	uint32_t key_line[KEYS]; /* line of each key in the section; 0: not given */
	uint32_t rule_line[IMP_RULES_MAX];
};

__attribute__((format(printf, 3, 4))) static void
mistake(struct reader *r, size_t column, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n;

	if (r->mistakes++ >= SAID_MAX)
		return;
	n = snprintf(line, sizeof(line), "%s:%u:%zu: ", r->path, r->line, column);
	va_start(ap, fmt);
	if (n > 0 && (size_t)n < sizeof(line))
		vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	r->say(r->user, line);
}

/* Reports how many mistakes were not reported one by one. */
static void
say_rest(const struct reader *r)
{
	char line[1024];

	snprintf(line, sizeof(line), "%s: %u more mistake%s", r->path, r->mistakes - SAID_MAX,
		r->mistakes == SAID_MAX + 1 ? "" : "s");
	r->say(r->user, line);
}

/* --- sections --- */

/* Whether the current section has a key, with a right or a wrong value. */
static bool
has_key(const struct reader *r, const char *name)
{
	size_t i;

	for (i = 0; i < KEYS; i++)
		if (r->key_line[i] != 0 && strcmp(keys[i].name, name) == 0)
			return true;
	return false;
}

/* Checks combinations of keys of a rule.  Mistakes are reported at the line of its section. */
static void
check_rule(struct reader *r, struct imp_conf_rule *rule)
{
	uint32_t choices = (rule->nnth != 0) + (rule->every != 0) + (rule->choice == IMP_CHANCE);
	size_t i;

	for (i = 0; i < KEYS; i++)
		if (r->key_line[i] != 0 && rule->action < IMP_ACTIONS &&
			(keys[i].actions >> rule->action & 1) == 0)
			mistake(r, 1, "[rule %s] %s, in line %u, is of no use with action = %s",
				rule->name, keys[i].name, r->key_line[i],
				imp_action_name(rule->action));
	if (rule->action == IMP_ACTIONS && !has_key(r, "action"))
		mistake(r, 1, "[rule %s] action is missing", rule->name);
	if (choices > 1)
		mistake(r, 1, "[rule %s] one of nth, every and chance, not several", rule->name);
	if (rule->per != 0 && (rule->choice == IMP_CHANCE || choices == 0))
		mistake(r, 1, "[rule %s] per = qpn is for nth and every", rule->name);
	if (rule->from_ms >= rule->until_ms)
		mistake(r, 1, "[rule %s] until_ms must be after from_ms", rule->name);
	if (rule->action == IMP_DELAY && !has_key(r, "delay_us"))
		mistake(r, 1, "[rule %s] action = delay needs delay_us", rule->name);
	if (rule->action == IMP_RATE && !has_key(r, "rate_kbps"))
		mistake(r, 1, "[rule %s] action = rate needs rate_kbps", rule->name);
	if (rule->action == IMP_HOLD && !has_key(r, "packets") && !has_key(r, "time_us"))
		mistake(r, 1, "[rule %s] action = hold needs packets or time_us", rule->name);
	if (rule->nnth != 0)
		rule->choice = IMP_NTH;
	else if (rule->every != 0)
		rule->choice = IMP_EVERY;
	if (rule->action == IMP_REORDER) {
		rule->packets = rule->packets != 0 ? rule->packets : 1;
		rule->time_us = rule->time_us != 0 ? rule->time_us : 20000;
	}
}

static void
end_section(struct reader *r)
{
	uint32_t line = r->line;

	if (r->section != NULL && strcmp(r->section, "rule") == 0) {
		r->line = r->rule_line[r->rules->n - 1];
		check_rule(r, r->to);
		r->line = line;
	}
	r->section = NULL;
}

static void
set_defaults(const char *section, void *to)
{
	size_t i;

	for (i = 0; i < KEYS; i++) {
		if (strcmp(keys[i].section, section) != 0)
			continue;
		if (keys[i].type == IMP_NUM)
			*(uint64_t *)((char *)to + keys[i].offset) = keys[i].def;
		else if (keys[i].type == IMP_WORD)
			*(uint32_t *)((char *)to + keys[i].offset) = (uint32_t)keys[i].def;
	}
}

static bool
name_is_good(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len < IMP_NAME_BYTES &&
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
		len;
}

static void
begin_rule(struct reader *r, const char *name, size_t column)
{
	struct imp_rules *rs = r->rules;
	struct imp_conf_rule *rule;
	uint32_t i;

	r->refused = true;
	if (!name_is_good(name)) {
		mistake(r, column,
			"a rule has a name, [rule NAME]; allowed: 1 to 31 letters, digits, '_', '-' "
			"or '.'");
		return;
	}
	for (i = 0; i < rs->n; i++)
		if (strcmp(rs->rule[i].name, name) == 0) {
			mistake(r, column, "there is a rule %s in line %u already", name,
				r->rule_line[i]);
			return;
		}
	if (rs->n == IMP_RULES_MAX) {
		mistake(r, column, "more rules than there may be; allowed: up to %u",
			IMP_RULES_MAX);
		return;
	}
	r->rule_line[rs->n] = r->line;
	rule = &rs->rule[rs->n++];
	set_defaults("rule", rule);
	memcpy(rule->name, name, strlen(name) + 1);
	r->section = "rule";
	r->to = rule;
	r->refused = false;
}

static void
begin_section(struct reader *r, char *text, size_t column)
{
	char *end = strchr(text, ']'), *name;

	end_section(r);
	memset(r->key_line, 0, sizeof(r->key_line));
	r->refused = true;
	if (end == NULL || end[1 + strspn(end + 1, " \t")] != '\0') {
		mistake(r, column, "a section is [NAME] and nothing behind it");
		return;
	}
	*end = '\0';
	name = text + 1;
	if (strcmp(name, "impair") == 0) {
		if (r->impair_line != 0) {
			mistake(r, column, "section [impair] is in line %u already",
				r->impair_line);
			return;
		}
		r->impair_line = r->line;
		r->section = "impair";
		r->to = &r->impair;
		r->refused = false;
	} else if (strncmp(name, "rule", 4) == 0 && strcspn(name, " \t") == 4) {
		size_t skip = 4 + strspn(name + 4, " \t");

		begin_rule(r, name + skip, column + 1 + skip);
	} else {
		mistake(r, column, "unknown section; allowed: [impair], [rule NAME]");
	}
}

/* --- keys --- */

static void
unknown_key(struct reader *r, const char *key, size_t column)
{
	char list[640] = "";
	size_t i, n = 0;

	for (i = 0; i < KEYS && n < sizeof(list); i++)
		if (strcmp(keys[i].section, r->section) == 0)
			n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
				n != 0 ? ", " : "", keys[i].name);
	mistake(r, column, "[%s] %s: unknown key; allowed: %s", r->section, key, list);
}

static void
store(struct reader *r, size_t i, const char *value, const char *line)
{
	char why[IMP_WHY], allowed[256];
	const char *at = imp_value_parse(&keys[i], value, r->to, why);

	if (at != NULL) {
		imp_value_allowed(&keys[i], allowed, sizeof(allowed));
		mistake(r, (size_t)(at - line) + 1, "[%s] %s = \"%.64s\": %s; allowed: %s",
			r->section, keys[i].name, value, why, allowed);
	} else if (keys[i].type == IMP_PROBABILITY) {
		((struct imp_conf_rule *)r->to)->choice = IMP_CHANCE;
	}
}

static void
strip_end(char *text)
{
	size_t len = strlen(text);

	while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
		text[--len] = '\0';
}

/* Reads KEY = VALUE.  @line: the whole line, where @text is the part after white space. */
static void
read_entry(struct reader *r, char *text, const char *line)
{
	char *value = strchr(text, '=');
	size_t column = (size_t)(text - line) + 1, i;

	if (value == NULL) {
		mistake(r, column, "neither [SECTION] nor KEY = VALUE nor # COMMENT");
		return;
	}
	*value++ = '\0';
	strip_end(text);
	value += strspn(value, " \t");
	if (r->section == NULL) {
		if (!r->refused) /* otherwise the section was reported already */
			mistake(r, column, "a key before the first [SECTION]");
		return;
	}
	for (i = 0; i < KEYS; i++)
		if (strcmp(keys[i].section, r->section) == 0 && strcmp(keys[i].name, text) == 0)
			break;
	if (i == KEYS) {
		unknown_key(r, text, column);
	} else if (r->key_line[i] != 0) {
		mistake(r, column, "[%s] %s is in line %u already", r->section, text,
			r->key_line[i]);
	} else {
		r->key_line[i] = r->line;
		store(r, i, value, line);
	}
}

static void
read_line(struct reader *r, char *line, size_t len)
{
	char *comment, *text;

	if (strlen(line) != len) {
		mistake(r, strlen(line) + 1, "a NUL byte");
		return;
	}
	if (len > LINE_BYTES) {
		mistake(r, LINE_BYTES + 1, "a line has up to %u characters", LINE_BYTES);
		return;
	}
	comment = strchr(line, '#');
	if (comment != NULL)
		*comment = '\0';
	strip_end(line);
	text = line + strspn(line, " \t");
	if (*text == '[')
		begin_section(r, text, (size_t)(text - line) + 1);
	else if (*text != '\0')
		read_entry(r, text, line);
}

static void
read_all(struct reader *r, FILE *file)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t len;

	while (r->line < LINES_MAX && (len = getline(&line, &room, file)) >= 0) {
		r->line++;
		read_line(r, line, (size_t)len);
	}
	if (ferror(file))
		mistake(r, 1, "%s", strerror(errno));
	else if (r->line == LINES_MAX && fgetc(file) != EOF)
		mistake(r, 1, "more than %u lines", LINES_MAX);
	end_section(r);
	free(line);
}

/* --- files --- */

struct imp_rules *
imp_rules_none(void)
{
	struct imp_rules *rules = calloc(1, sizeof(*rules));
	struct imp_conf_impair impair;

	if (rules == NULL)
		return NULL;
	set_defaults("impair", &impair);
	rules->seed = impair.seed;
	rules->flows = impair.flows;
	return rules;
}

struct imp_rules *
imp_rules_read(const char *path, imp_say say, void *user)
{
	struct reader r = {.path = path, .say = say, .user = user, .line = 1};
	struct stat st;
	FILE *file;

	r.rules = imp_rules_none();
	/* Check before opening, because opening a FIFO would block. */
	if (r.rules == NULL)
		mistake(&r, 1, "no memory to read it");
	else if (stat(path, &st) != 0)
		mistake(&r, 1, "%s", strerror(errno));
	else if (!S_ISREG(st.st_mode))
		mistake(&r, 1, "not a regular file");
	if (r.mistakes == 0) {
		file = fopen(path, "re");
		if (file == NULL) {
			mistake(&r, 1, "%s", strerror(errno));
		} else {
			r.line = 0;
			set_defaults("impair", &r.impair);
			read_all(&r, file);
			fclose(file);
			r.rules->seed = r.impair.seed;
			r.rules->flows = r.impair.flows;
		}
	}
	if (r.mistakes == 0)
		return r.rules;
	if (r.mistakes > SAID_MAX)
		say_rest(&r);
	free(r.rules);
	return NULL;
}

void
imp_rules_free(struct imp_rules *r)
{
	free(r);
}
