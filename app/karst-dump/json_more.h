/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Counters, and text from outside, in JSON. */
#ifndef KARST_DUMP_JSON_MORE_H
#define KARST_DUMP_JSON_MORE_H

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline void
json_set_uint(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

/** @text as it is; if it is not UTF-8, as names of files need not be, ASCII with "?" for the rest. */
static inline json_t *
json_text(const char *text)
{
	json_t *o = json_string(text);
	char *plain = o == NULL ? strdup(text) : NULL, *c;

	if (plain == NULL)
		return o;
	for (c = plain; *c != '\0'; c++)
		if ((unsigned char)*c > 0x7f)
			*c = '?';
	o = json_string(plain);
	free(plain);
	return o;
}

#endif /* KARST_DUMP_JSON_MORE_H */
