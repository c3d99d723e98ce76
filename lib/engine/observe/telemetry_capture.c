/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Commands of packet capture.  Errors are reported in the answer, as "error", since rte_telemetry
 * itself would only return null.
 */
#include "capture.h"
#include "telemetry.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_SECONDS 60u
#define DEFAULT_BYTES   (256ull << 20)
#define PARAMS_MAX      512u

struct request {
	struct eng_capture_config cfg;
	const char *engine;
	bool has_qp;
};

/* Splits off the next "key=value" of @params.  @return false: there is none. */
static bool
next_pair(char **params, const char **key, const char **value)
{
	char *pair, *eq;

	do {
		pair = strsep(params, ",");
	} while (pair != NULL && *pair == '\0');
	if (pair == NULL)
		return false;
	eq = strchr(pair, '=');
	if (eq != NULL)
		*eq++ = '\0';
	*key = pair;
	*value = eq != NULL ? eq : "";
	return true;
}

static int
take_number(const char *key, const char *value, uint64_t min, uint64_t max, uint64_t *to,
	char why[CAPTURE_WHY])
{
	char *end = NULL;
	uint64_t v = 0;

	errno = 0;
	if (isdigit((unsigned char)value[0]))
		v = strtoull(value, &end, 0);
	if (end == NULL || *end != '\0' || errno != 0 || v < min || v > max) {
		snprintf(why, CAPTURE_WHY, "%s: a number from %llu to %llu, not '%.40s'", key,
			(unsigned long long)min, (unsigned long long)max, value);
		return -EINVAL;
	}
	*to = v;
	return 0;
}

static int
take_pair(struct request *r, const char *key, const char *value, char why[CAPTURE_WHY])
{
	uint64_t v = 0;
	int ret;

	if (strcmp(key, "engine") == 0) {
		r->engine = value;
		return 0;
	}
	if (strcmp(key, "file") == 0) {
		r->cfg.file = value;
		return 0;
	}
	if (strcmp(key, "count") == 0)
		return take_number(key, value, 1, UINT64_MAX, &r->cfg.count, why);
	if (strcmp(key, "seconds") == 0)
		return take_number(key, value, 1, CAPTURE_SECONDS_MAX, &r->cfg.seconds, why);
	if (strcmp(key, "bytes") == 0)
		return take_number(key, value, 1, CAPTURE_BYTES_MAX, &r->cfg.bytes, why);
	if (strcmp(key, "snaplen") == 0) {
		ret = take_number(key, value, CAPTURE_SNAPLEN_MIN, KARST_FRAME_MAX, &v, why);
		if (ret == 0)
			r->cfg.snaplen = (uint32_t)v;
		return ret;
	}
	if (strcmp(key, "qp") == 0) {
		ret = take_number(key, value, 0, 0xffffff, &v, why);
		r->cfg.qpn = (uint32_t)v;
		r->has_qp = true;
		return ret;
	}
	snprintf(why, CAPTURE_WHY,
		"unknown key '%.40s'; allowed: qp, engine, file, count, seconds, bytes, snaplen",
		key);
	return -EINVAL;
}

static int
capture_parse(char *params, struct request *r, char why[CAPTURE_WHY])
{
	const char *key, *value;

	*r = (struct request){.cfg = {.seconds = DEFAULT_SECONDS,
				      .bytes = DEFAULT_BYTES,
				      .snaplen = KARST_FRAME_MAX}};
	while (next_pair(&params, &key, &value)) {
		int ret = take_pair(r, key, value, why);

		if (ret != 0)
			return ret;
	}
	return 0;
}

/* A path may be longer than a value of telemetry: then only the file name is reported. */
static void
add_status(struct rte_tel_data *d, const struct eng_capture_status *st)
{
	const char *path = st->path;

	if (strlen(path) >= RTE_TEL_MAX_STRING_LEN)
		path = strrchr(path, '/') + 1;
	rte_tel_data_add_dict_u64(d, "running", st->running);
	rte_tel_data_add_dict_u64(d, "qp", st->qpn);
	rte_tel_data_add_dict_u64(d, "frames", st->frames);
	rte_tel_data_add_dict_u64(d, "bytes", st->bytes);
	rte_tel_data_add_dict_u64(d, "dropped", st->dropped);
	rte_tel_data_add_dict_string(d, "file", path);
	if (!st->running)
		rte_tel_data_add_dict_string(d, "ended", st->ended);
}

/* "error" has as many characters as telemetry allows for a value; longer texts continue in
 * "error_2". */
static void
add_error(struct rte_tel_data *d, const char *why)
{
	char part[RTE_TEL_MAX_STRING_LEN];

	snprintf(part, sizeof(part), "%.*s", (int)sizeof(part) - 1, why);
	rte_tel_data_add_dict_string(d, "error", part);
	if (strlen(why) >= sizeof(part))
		rte_tel_data_add_dict_string(d, "error_2", why + sizeof(part) - 1);
}

/* Runs @fn for the engine that @params names; puts its answer, or the error, into @d. */
static int
capture_command(const char *params, struct rte_tel_data *d,
	int (*fn)(struct karst_engine *e, const struct request *r, struct eng_capture_status *st,
		char why[CAPTURE_WHY]))
{
	char copy[PARAMS_MAX] = "", why[CAPTURE_WHY] = "";
	struct eng_capture_status st;
	struct karst_engine *e;
	struct request r;
	int ret;

	rte_tel_data_start_dict(d);
	if (params != NULL)
		snprintf(copy, sizeof(copy), "%s", params);
	ret = capture_parse(copy, &r, why);
	if (ret == 0) {
		ret = eng_tel_open_name(r.engine, &e);
		if (ret != 0)
			snprintf(why, sizeof(why), "there is no engine '%.40s'",
				r.engine != NULL ? r.engine : "");
	}
	if (ret == 0) {
		ret = fn(e, &r, &st, why);
		eng_tel_close();
	}
	if (ret == 0)
		add_status(d, &st);
	else
		add_error(d, why);
	return 0;
}

static int
do_start(struct karst_engine *e, const struct request *r, struct eng_capture_status *st,
	char why[CAPTURE_WHY])
{
	int ret;

	if (!r->has_qp) {
		snprintf(why, CAPTURE_WHY, "which queue pair?  qp=NUMBER is missing");
		return -EINVAL;
	}
	ret = eng_capture_start(e, &r->cfg, why);
	return ret == 0 ? eng_capture_status(e, st) : ret;
}

static int
do_stop(struct karst_engine *e, const struct request *r, struct eng_capture_status *st,
	char why[CAPTURE_WHY])
{
	int ret = eng_capture_stop(e, st);

	if (ret != 0)
		snprintf(why, CAPTURE_WHY, "%s has no capture", e->name);
	return ret;
}

static int
do_status(struct karst_engine *e, const struct request *r, struct eng_capture_status *st,
	char why[CAPTURE_WHY])
{
	int ret = eng_capture_status(e, st);

	if (ret != 0)
		snprintf(why, CAPTURE_WHY, "%s has no capture", e->name);
	return ret;
}

static int
on_start(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return capture_command(params, d, do_start);
}

static int
on_stop(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return capture_command(params, d, do_stop);
}

static int
on_status(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return capture_command(params, d, do_status);
}

const struct tel_cmd eng_tel_capture[] = {
	{"/karst/capture/start", on_start,
		"Captures a queue pair. Parameters: qp=N[,engine=][,file=][,count=][,seconds=]"
		"[,bytes=][,snaplen=]"},
	{"/karst/capture/stop", on_stop, "Ends a capture. Parameter: [engine=]"},
	{"/karst/capture/status", on_status, "The last capture. Parameter: [engine=]"},
	{NULL, NULL, NULL},
};
