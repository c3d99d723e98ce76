/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "value.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct unit {
	const char *name;
	double factor;
};

int
fab_value_wrong(const char *option, const char *text, const char *allowed)
{
	fprintf(stderr, "karst-fabric: %s '%s': %s\n", option, text, allowed);
	fprintf(stderr, "Try 'karst-fabric --help'.\n");
	return -EINVAL;
}

int
fab_value_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *v)
{
	unsigned long long n;
	char what[96], *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && n >= least &&
		n <= most) {
		*v = n;
		return 0;
	}
	snprintf(what, sizeof(what), "a number from %" PRIu64 " to %" PRIu64 " is allowed", least,
		most);
	return fab_value_wrong(option, text, what);
}

/* Parses a decimal number; @end: the text after it. */
static bool
scan(const char *text, double *v, char **end)
{
	if (text[0] < '0' || text[0] > '9' || text[1] == 'x' || text[1] == 'X')
		return false;
	errno = 0;
	*v = strtod(text, end);
	return errno == 0 && isfinite(*v);
}

/* The same, followed by one of @units. */
static bool
scan_unit(const char *text, const struct unit *units, double *v)
{
	char *end;

	if (!scan(text, v, &end))
		return false;
	for (; units->name != NULL; units++) {
		if (strcmp(end, units->name) == 0) {
			*v *= units->factor;
			return true;
		}
	}
	return false;
}

int
fab_value_real(const char *option, const char *text, double least, double most, double *v)
{
	char what[96], *end;
	double n;

	if (scan(text, &n, &end) && *end == '\0' && n >= least && n <= most) {
		*v = n;
		return 0;
	}
	snprintf(what, sizeof(what), "a number from %g to %g is allowed", least, most);
	return fab_value_wrong(option, text, what);
}

int
fab_value_bytes(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *v)
{
	static const struct unit units[] = {
		{"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {NULL, 0}};
	char what[128];
	double n;

	if (scan_unit(text, units, &n) && n >= (double)least && n <= (double)most) {
		*v = (uint64_t)n;
		return 0;
	}
	snprintf(what, sizeof(what),
		"%" PRIu64 " to %" PRIu64 " bytes are allowed, with K, M or G for powers of 1024",
		least, most);
	return fab_value_wrong(option, text, what);
}

int
fab_value_time(const char *option, const char *text, uint64_t most_ns, uint64_t *ns)
{
	static const struct unit units[] = {
		{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
	char what[96];
	double n;

	if (scan_unit(text, units, &n) && n <= (double)most_ns && (n >= 1 || n == 0)) {
		*ns = (uint64_t)(n + 0.5);
		return 0;
	}
	snprintf(what, sizeof(what), "a time up to %gs with its unit, ns, us, ms or s, is allowed",
		(double)most_ns / 1e9);
	return fab_value_wrong(option, text, what);
}

int
fab_value_speed(const char *option, const char *text, uint64_t *mbps)
{
	static const struct unit units[] = {{"", 1e3}, {"G", 1e3}, {"M", 1}, {NULL, 0}};
	double n;

	if (scan_unit(text, units, &n) && n >= 1 && n <= 1e7) {
		*mbps = (uint64_t)(n + 0.5);
		return 0;
	}
	return fab_value_wrong(option, text,
		"a speed from 1M (Mb/s) to 10000 (Gb/s) is allowed: 25, 100G, 400, 2.5G, 500M");
}

int
fab_value_name(const char *option, const char *text, const char *const *names, unsigned int *i)
{
	char what[256] = "allowed:";
	unsigned int n;

	for (n = 0; names[n] != NULL; n++) {
		if (strcmp(text, names[n]) == 0) {
			*i = n;
			return 0;
		}
		snprintf(what + strlen(what), sizeof(what) - strlen(what), " %s", names[n]);
	}
	return fab_value_wrong(option, text, what);
}

/* --- parameters of congestion control --- */

static int
unknown_param(const char *option, const char *name, struct karst_congestion_config *cc)
{
	char what[1024] =
		"not a parameter that can be set; allowed: min_time_between_cnps cnp_scope";
	uint32_t *value, least, most;
	const char *p;
	unsigned int i;

	for (i = 0; (p = karst_rp_param(&cc->rp, i, &value, &least, &most)) != NULL; i++)
		snprintf(what + strlen(what), sizeof(what) - strlen(what), " %s", p);
	return fab_value_wrong(option, name, what);
}

static int
set_param(
	const char *option, const char *name, const char *text, struct karst_congestion_config *cc)
{
	static const char *const scopes[] = {[KARST_CNP_QP] = "queue_pair",
		[KARST_CNP_ADDRESS] = "address",
		[KARST_CNP_PORT] = "port",
		NULL};
	uint32_t *value = &cc->np.min_time_between_cnps, least = 0, most = 1000000;
	char what[96];
	const char *p;
	unsigned int i;
	uint64_t v;

	snprintf(what, sizeof(what), "%s %s", option, name);
	if (strcmp(name, "cnp_scope") == 0)
		return fab_value_name(what, text, scopes, &cc->np.cnp_scope);
	if (strcmp(name, "min_time_between_cnps") != 0) {
		for (i = 0; (p = karst_rp_param(&cc->rp, i, &value, &least, &most)) != NULL; i++)
			if (strcmp(p, name) == 0)
				break;
		if (p == NULL)
			return unknown_param(option, name, cc);
	}
	if (fab_value_number(what, text, least, most, &v) != 0)
		return -EINVAL;
	*value = (uint32_t)v;
	return 0;
}

int
fab_value_params(const char *option, const char *text, struct karst_congestion_config *cc)
{
	char *copy = strdup(text), *item, *save = NULL, *equals;
	int rc = copy != NULL ? 0 : -ENOMEM;

	for (item = rc == 0 ? strtok_r(copy, ",", &save) : NULL; item != NULL && rc == 0;
		item = strtok_r(NULL, ",", &save)) {
		equals = strchr(item, '=');
		if (equals == NULL) {
			rc = fab_value_wrong(option, item, "NAME=VALUE[,NAME=VALUE...] is allowed");
			break;
		}
		*equals = '\0';
		rc = set_param(option, item, equals + 1, cc);
	}
	free(copy);
	return rc;
}
