/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Values of options: numbers within limits, sizes, words of a list. */

#include "opts_value.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int
perf_opt_wrong(const char *option, const char *value, const char *allowed)
{
	fprintf(stderr, "karst-perf: %s: '%s' is not allowed; allowed: %s\n", option, value,
		allowed);
	return 2;
}

int
perf_opt_misplaced(const char *option, const char *allowed)
{
	fprintf(stderr, "karst-perf: %s: not allowed here; allowed: %s\n", option, allowed);
	return 2;
}

/* A number with an optional K, M or G; the whole of @text. */
int
perf_opt_scaled(const char *text, uint64_t *value)
{
	unsigned int shift = 0;
	uint64_t v;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno != 0)
		return -EINVAL;
	switch (*end) {
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'g':
	case 'G':
		shift = 30;
		break;
	default:
		break;
	}
	if (shift != 0)
		end++;
	if (*end != '\0' || v > (UINT64_MAX >> shift))
		return -EINVAL;
	*value = v << shift;
	return 0;
}

/* A plain number within limits. */
int
perf_opt_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	char allowed[64];
	uint64_t v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 0);
	if (!isdigit((unsigned char)*text) || errno != 0 || *end != '\0' || v < min || v > max) {
		snprintf(allowed, sizeof(allowed), "a number from %" PRIu64 " to %" PRIu64, min,
			max);
		return perf_opt_wrong(option, text, allowed);
	}
	*value = v;
	return 0;
}

int
perf_opt_u32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *value)
{
	uint64_t v;
	int rc = perf_opt_number(option, text, min, max, &v);

	if (rc == 0)
		*value = (uint32_t)v;
	return rc;
}

int
perf_opt_real(const char *option, const char *text, double min, double max, double *value)
{
	char allowed[64];
	char *end;
	double v;

	errno = 0;
	v = strtod(text, &end);
	if (end == text || errno != 0 || *end != '\0' || !(v >= min && v <= max)) {
		snprintf(allowed, sizeof(allowed), "a number from %g to %g", min, max);
		return perf_opt_wrong(option, text, allowed);
	}
	*value = v;
	return 0;
}

/* Index of @text in @names, or -1. */
int
perf_opt_find(const char *text, const char *const *names, uint32_t num)
{
	uint32_t i;

	for (i = 0; i < num; i++)
		if (strcmp(text, names[i]) == 0)
			return (int)i;
	return -1;
}
