/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Counters in JSON. */
#ifndef KARST_DUMP_JSON_UINT_H
#define KARST_DUMP_JSON_UINT_H

#include <jansson.h>
#include <stdint.h>

static inline void
json_set_uint(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

#endif /* KARST_DUMP_JSON_UINT_H */
