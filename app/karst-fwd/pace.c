/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "pace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slack: up to a second during which the lcore could not send is caught up. */
#define SLACK_MS      1000u
#define LEAST_BITS    1000u
#define LEAST_PACKETS 1u
#define MOST          UINT64_C(1000000000000000)

static const char allowed[] =
	"max, or a number with kbps, Mbps, Gbps, bps, pps, kpps or Mpps is allowed, from 1 kbps or 1 pps on";

struct rate_unit {
	const char *name;
	enum fwd_rate_unit unit;
	double times;
};

static const struct rate_unit units[] = {
	{"bps", FWD_RATE_BITS, 1},
	{"kbps", FWD_RATE_BITS, 1e3},
	{"Mbps", FWD_RATE_BITS, 1e6},
	{"Gbps", FWD_RATE_BITS, 1e9},
	{"pps", FWD_RATE_PACKETS, 1},
	{"kpps", FWD_RATE_PACKETS, 1e3},
	{"Mpps", FWD_RATE_PACKETS, 1e6},
};

int
fwd_rate_parse(const char *text, struct fwd_rate *r, const char **why)
{
	double value;
	char *end;
	size_t i;

	*why = allowed;
	if (strcmp(text, "max") == 0) {
		*r = (struct fwd_rate){.unit = FWD_RATE_MAX};
		return 0;
	}
	if (text[0] < '0' || text[0] > '9' || text[1] == 'x' || text[1] == 'X')
		return -1;
	value = strtod(text, &end);
	for (i = 0; i < KARST_DIM(units); i++) {
		if (strcmp(end, units[i].name) != 0)
			continue;
		value *= units[i].times;
		if (!(value <= (double)MOST) ||
			value < (units[i].unit == FWD_RATE_BITS ? LEAST_BITS : LEAST_PACKETS))
			return -1;
		*r = (struct fwd_rate){.unit = units[i].unit, .value = (uint64_t)(value + 0.5)};
		return 0;
	}
	return -1;
}

void
fwd_rate_text(const struct fwd_rate *r, char text[FWD_RATE_TEXT])
{
	size_t i, first = r->unit == FWD_RATE_BITS ? 0 : 4, last = r->unit == FWD_RATE_BITS ? 3 : 6;

	if (r->unit == FWD_RATE_MAX) {
		snprintf(text, FWD_RATE_TEXT, "max");
		return;
	}
	for (i = last; i > first && (double)r->value < units[i].times; i--)
		;
	snprintf(text, FWD_RATE_TEXT, "%.6g%s", (double)r->value / units[i].times, units[i].name);
}

/* Computes @hz * @share * @times / @value in units of 2^-32. */
static unsigned __int128
cycles_of(uint64_t hz, uint32_t share, uint32_t times, uint64_t value)
{
	return ((unsigned __int128)hz * share * times << 32) / value;
}

void
fwd_pace_init(
	struct fwd_pace *p, const struct fwd_rate *r, uint32_t share, uint64_t hz, uint64_t now)
{
	*p = (struct fwd_pace){.due = now, .slack = hz / 1000 * SLACK_MS};
	if (r->unit == FWD_RATE_BITS)
		p->per_byte = cycles_of(hz, share, 8, r->value);
	else if (r->unit == FWD_RATE_PACKETS)
		p->per_packet = cycles_of(hz, share, 1, r->value);
}
