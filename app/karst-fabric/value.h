/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Values of options: with their units, within limits.  Errors are printed on standard error. */
#ifndef KARST_FABRIC_VALUE_H
#define KARST_FABRIC_VALUE_H

#include "fabric.h"

/** Prints "@option 'text': allowed".  @return -EINVAL */
int fab_value_wrong(const char *option, const char *text, const char *allowed);
/** A whole number. */
int fab_value_number(
	const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *v);
/** A number, with an optional decimal point, least..most. */
int fab_value_real(const char *option, const char *text, double least, double most, double *v);
/** Bytes: a number, with an optional decimal point, and nothing, K, M or G (of 1024). */
int fab_value_bytes(
	const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *v);
/** A time: a number and ns, us, ms or s, to ns. */
int fab_value_time(const char *option, const char *text, uint64_t most_ns, uint64_t *ns);
/** A speed: a number of Gb/s, or with M, of Mb/s; to Mb/s. */
int fab_value_speed(const char *option, const char *text, uint64_t *mbps);
/** One of @names, which ends with NULL. */
int fab_value_name(const char *option, const char *text, const char *const *names, unsigned int *i);
/** NAME=VALUE[,NAME=VALUE...]: parameters of congestion control. */
int fab_value_params(const char *option, const char *text, struct karst_congestion_config *cc);

#endif /* KARST_FABRIC_VALUE_H */
