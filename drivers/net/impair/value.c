/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "value.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "karst_opcode.h"

#define ITEM_BYTES 64u
/* Digits after the decimal point. */
#define CHANCE_DIGITS 12u
#define CHANCE_ONE    UINT64_C(1000000000000)

/* One entry of a list, without surrounding white space. */
struct item {
	const char *at; /* position in the value */
	char text[ITEM_BYTES];
};

/*
 * Reads the entry at *@text, and advances *@text past it and its comma.  @return false: there is
 * none, or it is too long.
 */
static bool
next_item(const char **text, struct item *to)
{
	const char *at = *text + strspn(*text, " \t");
	size_t len = strcspn(at, ",");

	*text = at + len + (at[len] == ',');
	while (len > 0 && isspace((unsigned char)at[len - 1]))
		len--;
	to->at = at;
	snprintf(to->text, sizeof(to->text), "%.*s", (int)len, at);
	return len > 0 && len < sizeof(to->text);
}

/* Parses a number.  *@end: where it ends.  @return false: there is none. */
static bool
number(const char *text, const char **end, uint64_t *to)
{
	unsigned int base = 10;
	uint64_t v = 0;
	const char *p = text;

	if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
		base = 16;
		p += 2;
	}
	*end = p;
	for (; isxdigit((unsigned char)*p); p++) {
		unsigned int digit = isdigit((unsigned char)*p)
			? (unsigned int)(*p - '0')
			: (unsigned int)(tolower((unsigned char)*p) - 'a') + 10;

		if (digit >= base)
			break;
		if (__builtin_mul_overflow(v, (uint64_t)base, &v) ||
			__builtin_add_overflow(v, (uint64_t)digit, &v))
			return false;
	}
	if (p == *end)
		return false;
	*end = p;
	*to = v;
	return true;
}

static const char *
value_parse_number(const struct imp_key *k, const char *text, uint64_t *to, char *why)
{
	const char *end;
	uint64_t v;

	if (!number(text, &end, &v) || *end != '\0') {
		snprintf(why, IMP_WHY, "not a number");
		return text;
	}
	if (v < k->least || v > k->most) {
		snprintf(why, IMP_WHY, "out of range");
		return text;
	}
	*to = v;
	return NULL;
}

static const char *
parse_word(const struct imp_key *k, const char *text, uint32_t *to, char *why)
{
	const char *word = k->form;
	uint32_t n;

	for (n = 0; *word != '\0'; n++) {
		size_t len = strcspn(word, "|");

		if (strlen(text) == len && memcmp(word, text, len) == 0) {
			*to = n;
			return NULL;
		}
		word += len + (word[len] == '|');
	}
	snprintf(why, IMP_WHY, "no such word");
	return text;
}

static const char *
parse_opcodes(const char *text, uint64_t to[4], char *why)
{
	struct item it;
	unsigned int op;

	do {
		bool any = false;

		if (!next_item(&text, &it)) {
			snprintf(why, IMP_WHY, "an empty entry, or one that is too long");
			return it.at;
		}
		for (op = 0; op < 256; op++)
			if (karst_opcode_flags((uint8_t)op) != 0 &&
				fnmatch(it.text, karst_opcode_symbol((uint8_t)op), 0) == 0) {
				to[op / 64] |= UINT64_C(1) << (op % 64);
				any = true;
			}
		if (!any) {
			snprintf(why, IMP_WHY, "no opcode is called %s", it.text);
			return it.at;
		}
	} while (*text != '\0');
	return NULL;
}

/* Parses a number of 24 bits, or two with '-' in between. */
static bool
range(const char *text, bool wraps, struct imp_range *to)
{
	uint64_t first, last;
	const char *end;

	if (!number(text, &end, &first))
		return false;
	last = first;
	if (*end == '-' && !number(end + 1, &end, &last))
		return false;
	*to = (struct imp_range){(uint32_t)first, (uint32_t)last};
	return *end == '\0' && first <= 0xffffff && last <= 0xffffff && (wraps || first <= last);
}

static const char *
parse_ranges(const char *text, bool wraps, struct imp_range *to, uint32_t *n, char *why)
{
	struct item it;

	do {
		if (!next_item(&text, &it) || *n == IMP_LIST_MAX ||
			!range(it.text, wraps, &to[*n])) {
			snprintf(why, IMP_WHY, "%s",
				*n == IMP_LIST_MAX ? "more than 64 entries" : "not a range");
			return it.at;
		}
		(*n)++;
	} while (*text != '\0');
	return NULL;
}

static int
compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static const char *
parse_nths(const char *text, struct imp_conf_rule *r, char *why)
{
	struct item it;
	const char *end;
	uint32_t i;

	do {
		if (!next_item(&text, &it) || r->nnth == IMP_LIST_MAX ||
			!number(it.text, &end, &r->nth[r->nnth]) || *end != '\0' ||
			r->nth[r->nnth] == 0) {
			snprintf(why, IMP_WHY, "%s",
				r->nnth == IMP_LIST_MAX ? "more than 64 entries"
							: "not a number from 1");
			return it.at;
		}
		for (i = 0; i < r->nnth; i++)
			if (r->nth[i] == r->nth[r->nnth]) {
				snprintf(why, IMP_WHY, "%s is there twice", it.text);
				return it.at;
			}
		r->nnth++;
	} while (*text != '\0');
	qsort(r->nth, r->nnth, sizeof(r->nth[0]), compare_numbers);
	return NULL;
}

static const char *
parse_transmissions(const char *text, uint32_t *to, char *why)
{
	struct item it;
	const char *end;
	uint64_t v;

	do {
		if (!next_item(&text, &it)) {
			snprintf(why, IMP_WHY, "an empty entry, or one that is too long");
			return it.at;
		}
		if (strcmp(it.text, "first") == 0) {
			*to |= 1;
		} else if (strcmp(it.text, "again") == 0) {
			*to |= ~1u;
		} else if (number(it.text, &end, &v) && *end == '\0' && v >= 1 &&
			v < IMP_TRANSMISSION_MAX) {
			*to |= 1u << v;
		} else {
			snprintf(why, IMP_WHY, "no transmission is called %s", it.text);
			return it.at;
		}
	} while (*text != '\0');
	return NULL;
}

/*
 * Parses a probability.  Does not use the conversions of the C library, which depend on the locale.
 */
static const char *
parse_chance(const char *text, uint64_t *to, char *why)
{
	uint64_t v = 0, unit = CHANCE_ONE;
	const char *p = text;
	bool any = false;

	for (; isdigit((unsigned char)*p) && v <= CHANCE_ONE; p++, any = true)
		v = v * 10 + (uint64_t)(*p - '0') * CHANCE_ONE;
	if (*p == '.')
		for (p++; isdigit((unsigned char)*p) && unit > 1; p++, any = true) {
			unit /= 10;
			v += (uint64_t)(*p - '0') * unit;
		}
	if (*p != '\0' || !any || v == 0 || v > CHANCE_ONE) {
		snprintf(why, IMP_WHY, "%s",
			isdigit((unsigned char)*p) && v <= CHANCE_ONE
				? "more than 12 digits behind the point"
				: "not such a number");
		return text;
	}
	*to = v == CHANCE_ONE ? 0 : (uint64_t)(((unsigned __int128)v << 64) / CHANCE_ONE);
	return NULL;
}

const char *
imp_value_parse(const struct imp_key *k, const char *text, void *section, char *why)
{
	struct imp_conf_rule *r = section;
	void *to = (char *)section + k->offset;

	switch (k->type) {
	case IMP_NUM:
		return value_parse_number(k, text, to, why);
	case IMP_WORD:
		return parse_word(k, text, to, why);
	case IMP_OPCODES:
		return parse_opcodes(text, to, why);
	case IMP_QPNS:
		return parse_ranges(text, false, r->qpn, &r->nqpn, why);
	case IMP_PSNS:
		return parse_ranges(text, true, r->psn, &r->npsn, why);
	case IMP_NTHS:
		return parse_nths(text, r, why);
	case IMP_TRANSMISSIONS:
		return parse_transmissions(text, to, why);
	case IMP_PROBABILITY:
		return parse_chance(text, to, why);
	}
	return NULL;
}

void
imp_value_allowed(const struct imp_key *k, char *to, size_t len)
{
	const char *p;
	size_t n = 0;

	if (k->type == IMP_NUM) {
		snprintf(to, len, "%llu to %llu", (unsigned long long)k->least,
			(unsigned long long)k->most);
		return;
	}
	if (k->type != IMP_WORD) {
		snprintf(to, len, "%s", k->form);
		return;
	}
	for (p = k->form; *p != '\0' && n + 5 < len; p++) {
		if (*p != '|')
			to[n++] = *p;
		else
			n += (size_t)snprintf(
				to + n, len - n, "%s", strchr(p + 1, '|') != NULL ? ", " : " or ");
	}
	to[n] = '\0';
}
