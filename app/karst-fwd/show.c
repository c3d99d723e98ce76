/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "show.h"

#include <errno.h>

#include "report.h"

/* Maximum number of flows as text; JSON has all. */
#define FLOWS_SHOWN 64u

static void
print_json(json_t *o)
{
	json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
	putchar('\n');
}

static void
print_value(json_t *v)
{
	const char *key;
	json_t *inner;
	bool first = true;

	switch (json_typeof(v)) {
	case JSON_INTEGER:
		printf("%" JSON_INTEGER_FORMAT, json_integer_value(v));
		break;
	case JSON_REAL:
		printf("%.3f", json_real_value(v));
		break;
	case JSON_STRING:
		printf("%s", json_string_value(v));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		printf("%s", json_is_true(v) ? "yes" : "no");
		break;
	case JSON_OBJECT:
		if (json_object_size(v) == 0)
			printf("none");
		json_object_foreach(v, key, inner)
		{
			printf("%s%s ", first ? "" : ", ", key);
			print_value(inner);
			first = false;
		}
		break;
	default:
		break;
	}
}

/* Prints one line for each member.  Members that are lists follow, one line for each object. */
static void
print_object(json_t *o)
{
	const char *key;
	json_t *v, *entry;
	size_t i;

	json_object_foreach(o, key, v)
	{
		if (json_is_array(v)) {
			json_array_foreach(v, i, entry)
			{
				printf("  ");
				print_value(entry);
				putchar('\n');
			}
			continue;
		}
		printf("  %-20s ", key);
		print_value(v);
		putchar('\n');
	}
}

static json_int_t
count_of(json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* Prints in testpmd's layout, which users and their scripts know. */
static void
print_port_stats(json_t *o)
{
	printf("\n  ######################## NIC statistics for port %-2lld ########################\n",
		(long long)count_of(o, "port"));
	if (json_is_true(json_object_get(o, "gone")))
		printf("  the port is gone\n");
	printf("  RX-packets: %-10lld RX-missed: %-10lld RX-bytes:  %-lld\n",
		(long long)count_of(o, "rx_packets"), (long long)count_of(o, "rx_missed"),
		(long long)count_of(o, "rx_bytes"));
	printf("  RX-errors: %-lld\n", (long long)count_of(o, "rx_errors"));
	printf("  RX-nombuf:  %-10lld\n", (long long)count_of(o, "rx_nombuf"));
	printf("  TX-packets: %-10lld TX-errors: %-10lld TX-bytes:  %-lld\n",
		(long long)count_of(o, "tx_packets"), (long long)count_of(o, "tx_errors"),
		(long long)count_of(o, "tx_bytes"));
	printf("\n  Throughput (since last show)\n");
	printf("  Rx-pps: %12lld          Rx-bps: %12lld\n", (long long)count_of(o, "rx_pps"),
		(long long)count_of(o, "rx_bps"));
	printf("  Tx-pps: %12lld          Tx-bps: %12lld\n", (long long)count_of(o, "tx_pps"),
		(long long)count_of(o, "tx_bps"));
	printf("  ############################################################################\n");
}

void
fwd_show_port(struct fwd_port *p, const char *what, bool json)
{
	json_t *o;

	if (strcmp(what, "stats") == 0)
		o = fwd_report_port(p);
	else if (strcmp(what, "xstats") == 0)
		o = fwd_report_xstats(p);
	else
		o = fwd_report_info(p);
	if (json) {
		print_json(o);
	} else if (strcmp(what, "stats") == 0) {
		print_port_stats(o);
	} else {
		printf("port %u (%s)\n", p->id, p->name);
		if (strcmp(what, "xstats") == 0)
			print_object(json_object_get(o, "xstats"));
		else
			print_object(o);
	}
	json_decref(o);
}

static void
print_forward(json_t *o)
{
	json_t *p;
	size_t i;

	json_array_foreach(json_object_get(o, "ports"), i, p) printf(
		"\n  ---------------------- Forward statistics for port %-2lld ----------------------\n"
		"  RX-packets: %-14lld\n"
		"  TX-packets: %-14lld TX-dropped: %-14lld\n",
		(long long)count_of(p, "port"), (long long)count_of(p, "rx_packets"),
		(long long)count_of(p, "tx_packets"), (long long)count_of(p, "tx_dropped"));
	printf("\n  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++\n"
	       "  RX-packets: %-14lld\n"
	       "  TX-packets: %-14lld TX-dropped: %-14lld\n",
		(long long)count_of(o, "rx_packets"), (long long)count_of(o, "tx_packets"),
		(long long)count_of(o, "tx_dropped"));
}

static void
print_flows(json_t *list)
{
	json_t *o;
	size_t i;

	printf("%zu flows\n", json_array_size(list));
	json_array_foreach(list, i, o)
	{
		if (i == FLOWS_SHOWN) {
			printf("  and %zu more: show qp json\n", json_array_size(list) - i);
			break;
		}
		printf("  ");
		print_value(o);
		putchar('\n');
	}
}

static json_t *
make(struct fwd *f, const char *what)
{
	if (strcmp(what, "roce") == 0)
		return fwd_report_roce(f);
	if (strcmp(what, "qp") == 0)
		return fwd_report_flows(f);
	if (strcmp(what, "gen") == 0)
		return fwd_report_gen(f);
	if (strcmp(what, "latency") == 0)
		return fwd_report_latency(f);
	if (strcmp(what, "fwd") == 0)
		return fwd_report_forward(f);
	if (strcmp(what, "config") == 0)
		return fwd_report_config(f);
	return fwd_report_all(f);
}

void
fwd_show(struct fwd *f, const char *what, bool json)
{
	json_t *o = make(f, what);

	if (json || strcmp(what, "all") == 0)
		print_json(o);
	else if (strcmp(what, "fwd") == 0)
		print_forward(o);
	else if (strcmp(what, "qp") == 0)
		print_flows(o);
	else
		print_object(o);
	json_decref(o);
}

void
fwd_show_period(struct fwd *f)
{
	uint32_t i;

	for (i = 0; i < f->nports; i++)
		fwd_show_port(&f->ports[i], "stats", false);
	if (f->mode != NULL && f->mode->checks)
		fwd_show(f, "roce", false);
	fflush(stdout);
}

int
fwd_show_json_file(struct fwd *f, const char *path)
{
	FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
	json_t *o;
	int rc;

	if (out == NULL) {
		fprintf(stderr, "karst-fwd: --stats-json %s: %s\n", path, strerror(errno));
		return -1;
	}
	o = fwd_report_all(f);
	rc = json_dumpf(o, out, JSON_PRESERVE_ORDER | JSON_COMPACT);
	fputc('\n', out);
	json_decref(o);
	if (fflush(out) != 0 || ferror(out) || (out != stdout && fclose(out) != 0))
		rc = -1;
	if (rc != 0)
		fprintf(stderr, "karst-fwd: --stats-json %s: it cannot be written\n", path);
	return rc == 0 ? 0 : -1;
}
