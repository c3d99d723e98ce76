/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Helpers that put counters and text from outside into JSON. */
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

/**
 * Make a JSON string of @text.  Text that is not UTF-8 (file names need not be) has "?" in place of
 * each byte that is not ASCII.
 */
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
