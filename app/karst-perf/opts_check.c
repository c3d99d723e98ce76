/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Checks which options are allowed with an embedded engine, and which with a karstd. */

#include "opts_value.h"

#define STACK_WORKING_SET (UINT64_C(2) << 20) /* a stack is small */

/* Checks options that need an embedded engine, or a karstd. */
int
perf_opts_check_where(struct perf_opts *o)
{
	static const char over[] = "with --connect or --daemon";
	static const char own[] = "without --connect and --daemon: they are the daemon's";

	if (!perf_opts_attached(o)) {
		if (o->server || o->peer != NULL)
			return perf_opt_misplaced(
				o->server ? "--server" : "--peer", "with --connect");
		if (o->memory != PERF_MEMORY_PRIVATE || o->hold || o->compare_tcp || o->odp ||
			o->events)
			return perf_opt_misplaced(o->hold ? "--hold"
					: o->compare_tcp  ? "--compare"
					: o->odp          ? "--odp"
					: o->events       ? "--events"
							  : "--memory",
				over);
		return o->karstd != NULL ? perf_opt_misplaced("--karstd", "with --daemon") : 0;
	}
	if (o->server && (o->compare_tcp || o->events))
		return perf_opt_misplaced(o->events ? "--events" : "--compare", "at the client");
	/* some round trips end with a change in memory, which raises no event */
	if (o->events && o->latency)
		return perf_opt_misplaced("--events", "without --lat");
	if (o->daemon && (o->connect != NULL || o->server || o->peer != NULL))
		return perf_opt_misplaced("--daemon", "without --connect, --server and --peer");
	if (o->connections && (o->server || o->peer != NULL))
		return perf_opt_misplaced(
			o->server ? "--server" : "--peer", "without --op connect");
	if (o->connect != NULL && !o->connections && o->server == (o->peer != NULL))
		return perf_opt_misplaced("--connect", "with one of --server and --peer HOST");
	if (o->karstd != NULL && !o->daemon)
		return perf_opt_misplaced("--karstd", "with --daemon");
	if (o->num_vdevs != 0 || o->force_mtu || o->num_eal_args != 0)
		return perf_opt_misplaced(o->num_vdevs != 0 ? "--vdev"
				: o->force_mtu              ? "--force-mtu"
							    : "--",
			own);
	if (o->lcores != 1)
		return perf_opt_misplaced("--lcores", own);
	if (!o->daemon &&
		(o->loss > 0 || o->window != 0 || o->repeat || o->early || o->congestion != 0))
		return perf_opt_misplaced(o->loss > 0 ? "--loss"
				: o->repeat           ? "--selective-repeat"
				: o->early            ? "--early-retransmission"
				: o->congestion != 0  ? "--congestion"
						      : "--window",
			"with --daemon, or without --connect: they are the daemon's");
	if (o->memory == PERF_MEMORY_PRIVATE)
		o->memory = PERF_MEMORY_ALLOC;
	if (o->memory == PERF_MEMORY_STACK && o->working_set == 0)
		o->working_set = STACK_WORKING_SET;
	return 0;
}
