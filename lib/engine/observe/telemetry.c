/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * rte_telemetry: the state of the engines of this process.
 *
 * rte_telemetry has one table of commands for the process and passes no pointer to the callbacks,
 * so there is a global list of engines here.  Its lock is held while a command runs, so that no
 * engine is destroyed meanwhile.
 *
 * doc/observability.rst describes the commands and their answers.
 */
#include "telemetry.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "karst_crc.h"

static struct {
	pthread_mutex_t lock;
	STAILQ_HEAD(, karst_engine) list; /* oldest first */
	unsigned int count;               /* engines ever created, for names */
	bool registered;
} engines = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.list = STAILQ_HEAD_INITIALIZER(engines.list),
};

/* --- choice of an engine --- */

/* The engine whose name is the first @n characters of @name; if @n is 0, the oldest. */
static struct karst_engine *
find_engine(const char *name, size_t n)
{
	struct karst_engine *e;

	STAILQ_FOREACH(e, &engines.list, next)
		if (e->ready && (n == 0 || (strlen(e->name) == n && !strncmp(e->name, name, n))))
			return e;
	return NULL;
}

static int
open_named(const char *name, size_t n, struct karst_engine **e)
{
	pthread_mutex_lock(&engines.lock);
	*e = find_engine(name, n);
	if (*e != NULL)
		return 0;
	pthread_mutex_unlock(&engines.lock);
	return -ENOENT;
}

int
eng_tel_open(const char *params, struct karst_engine **e, uint64_t *number)
{
	const char *text = params == NULL ? "" : params, *colon = strrchr(text, ':');
	const char *num = colon != NULL ? colon + 1 : text;
	size_t n = colon != NULL ? (size_t)(colon - text) : strlen(text);
	char *end;

	if (colon == NULL && isdigit((unsigned char)text[0]))
		n = 0;
	else if (colon == NULL)
		num = NULL;
	if (num != NULL && *num != '\0') {
		if (!isdigit((unsigned char)*num))
			return -EINVAL;
		*number = strtoull(num, &end, 0);
		if (*end != '\0')
			return -EINVAL;
	}
	return open_named(text, n, e);
}

int
eng_tel_open_name(const char *name, struct karst_engine **e)
{
	return open_named(name, name == NULL ? 0 : strlen(name), e);
}

void
eng_tel_close(void)
{
	pthread_mutex_unlock(&engines.lock);
}

/* --- rows --- */

static unsigned int
tel_digits(uint64_t v)
{
	unsigned int n = 1;

	for (; v >= 10; v /= 10)
		n++;
	return n;
}

bool
tel_row_begin(struct tel_row *row)
{
	row->bytes = 2; /* {} */
	row->d = rte_tel_data_alloc();
	if (row->d != NULL)
		rte_tel_data_start_dict(row->d);
	return row->d != NULL;
}

void
tel_row_u64(struct tel_row *row, const char *name, uint64_t v)
{
	if (rte_tel_data_add_dict_u64(row->d, name, v) == 0)
		row->bytes += strlen(name) + tel_digits(v) + 4; /* "": and a comma */
}

void
tel_row_str(struct tel_row *row, const char *name, const char *v)
{
	/* each character may become an escape of six */
	if (rte_tel_data_add_dict_string(row->d, name, v) == 0)
		row->bytes += strlen(name) + 6 * strlen(v) + 6;
}

void
tel_list_begin(struct tel_list *list, struct rte_tel_data *d)
{
	*list = (struct tel_list){.d = d};
	rte_tel_data_start_dict(d);
}

bool
tel_list_add(struct tel_list *list, const char *name, struct tel_row *row, uint64_t next)
{
	size_t bytes = row->bytes + strlen(name) + 4;

	if (list->bytes + bytes > TEL_ANSWER_MAX && list->rows > 0) {
		rte_tel_data_free(row->d);
		rte_tel_data_add_dict_u64(list->d, "next", next);
		return false;
	}
	rte_tel_data_add_dict_container(list->d, name, row->d, 0);
	list->bytes += bytes;
	list->rows++;
	return true;
}

/* --- columns --- */

bool
tel_table_begin(
	struct tel_table *t, struct rte_tel_data *d, const char *const *names, uint32_t text)
{
	unsigned int i;

	*t = (struct tel_table){.d = d, .names = names};
	rte_tel_data_start_dict(d);
	for (i = 0; names[i] != NULL; i++) {
		assert(i < TEL_COLUMNS);
		t->col[i] = rte_tel_data_alloc();
		if (t->col[i] == NULL) {
			while (i-- > 0)
				rte_tel_data_free(t->col[i]);
			return false;
		}
		rte_tel_data_start_array(
			t->col[i], text >> i & 1 ? RTE_TEL_STRING_VAL : RTE_TEL_U64_VAL);
		t->bytes += strlen(names[i]) + 6;
	}
	return true;
}

bool
tel_table_row(struct tel_table *t)
{
	if (t->bytes + TEL_ROW_MAX > TEL_ANSWER_MAX || t->rows == RTE_TEL_MAX_ARRAY_ENTRIES)
		return false;
	t->rows++;
	return true;
}

void
tel_table_u64(struct tel_table *t, unsigned int col, uint64_t v)
{
	rte_tel_data_add_array_u64(t->col[col], v);
	t->bytes += tel_digits(v) + 1;
}

void
tel_table_str(struct tel_table *t, unsigned int col, const char *v)
{
	rte_tel_data_add_array_string(t->col[col], v);
	t->bytes += strlen(v) + 3;
}

void
tel_table_end(struct tel_table *t, uint64_t next)
{
	unsigned int i;

	for (i = 0; t->names[i] != NULL; i++)
		rte_tel_data_add_dict_container(t->d, t->names[i], t->col[i], 0);
	if (next != 0)
		rte_tel_data_add_dict_u64(t->d, "next", next);
}

/* --- engines --- */

static int
on_engines(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct karst_engine *e;

	rte_tel_data_start_array(d, RTE_TEL_STRING_VAL);
	pthread_mutex_lock(&engines.lock);
	STAILQ_FOREACH(e, &engines.list, next)
		if (e->ready)
			rte_tel_data_add_array_string(d, e->name);
	pthread_mutex_unlock(&engines.lock);
	return 0;
}

static const char *
idle_name(enum karst_idle idle)
{
	static const char *const names[] = {[KARST_IDLE_YIELD] = "yield",
		[KARST_IDLE_POLL] = "poll",
		[KARST_IDLE_SLEEP] = "sleep"};

	return (size_t)idle < KARST_DIM(names) ? names[idle] : "?";
}

static int
on_engine(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct karst_engine *e;
	uint64_t none = 0;
	uint32_t i, qps = 0;
	int ret;

	rte_tel_data_start_dict(d);
	ret = eng_tel_open(params, &e, &none);
	if (ret != 0)
		return ret;
	ret = eng_ctl_enter(e);
	if (ret == 0) {
		for (i = 0; i < e->nlcores; i++)
			qps += e->nqps[i];
		rte_tel_data_add_dict_string(d, "name", e->name);
		rte_tel_data_add_dict_u64(d, "pid", (uint64_t)getpid());
		rte_tel_data_add_dict_u64(d, "uptime_ns", engine_now(e));
		rte_tel_data_add_dict_u64(d, "tsc_hz", rte_get_tsc_hz());
		rte_tel_data_add_dict_u64(d, "lcores", e->nlcores);
		rte_tel_data_add_dict_u64(d, "ports", e->nports);
		rte_tel_data_add_dict_u64(d, "qps", qps);
		rte_tel_data_add_dict_u64(d, "cqs", e->ncqs);
		rte_tel_data_add_dict_u64(d, "srqs", e->nsrqs);
		rte_tel_data_add_dict_string(d, "idle", idle_name(e->cfg.idle));
		/* of the process */
		rte_tel_data_add_dict_u64(d, "memif_refused", karst_engine_memif_refused());
		eng_ctl_leave(e);
	}
	eng_tel_close();
	return ret;
}

/* --- the list of commands and of engines --- */

static const struct tel_cmd own_cmds[] = {
	{"/karst/engines", on_engines, "Names of the karst engines. No parameters."},
	{"/karst/engine", on_engine, "One engine. Parameter: [engine]"},
	{NULL, NULL, NULL},
};

static void
register_commands(void)
{
	const struct tel_cmd *const tables[] = {own_cmds, eng_tel_lcores, eng_tel_ports,
		eng_tel_qps, eng_tel_clients, eng_tel_cm, eng_tel_capture, eng_tel_congestion};
	const struct tel_cmd *c;
	size_t i;

	for (i = 0; i < KARST_DIM(tables); i++)
		for (c = tables[i]; c->cmd != NULL; c++)
			rte_telemetry_register_cmd(c->cmd, c->fn, c->help);
}

static int
add_locked(struct karst_engine *e)
{
	const struct karst_engine *other;

	if (!engines.registered) {
		int ret = karst_crc_init(NULL);

		if (ret != 0) {
			karst_log(KARST_LOG_ERR, "choosing CRC kernels: %s", rte_strerror(-ret));
			return ret;
		}
		/* With --no-telemetry they are registered but never called. */
		register_commands();
		engines.registered = true;
	}
	if (e->cfg.name != NULL)
		snprintf(e->name, sizeof(e->name), "%s", e->cfg.name);
	else
		snprintf(e->name, sizeof(e->name), "karst%u", engines.count);
	e->cfg.name = e->name;
	STAILQ_FOREACH(other, &engines.list, next) {
		if (strcmp(other->name, e->name) == 0) {
			karst_log(KARST_LOG_ERR, "there is an engine \"%s\" already", e->name);
			return -EEXIST;
		}
	}
	STAILQ_INSERT_TAIL(&engines.list, e, next);
	engines.count++;
	return 0;
}

int
eng_telemetry_add(struct karst_engine *e)
{
	int ret;

	pthread_mutex_lock(&engines.lock);
	ret = add_locked(e);
	pthread_mutex_unlock(&engines.lock);
	return ret;
}

void
eng_telemetry_ready(struct karst_engine *e)
{
	pthread_mutex_lock(&engines.lock);
	e->ready = true;
	pthread_mutex_unlock(&engines.lock);
}

void
eng_telemetry_del(struct karst_engine *e)
{
	const struct karst_engine *at;

	pthread_mutex_lock(&engines.lock);
	STAILQ_FOREACH(at, &engines.list, next)
		if (at == e)
			break;
	if (at != NULL) /* else it was never added */
		STAILQ_REMOVE(&engines.list, e, karst_engine, next);
	pthread_mutex_unlock(&engines.lock);
}
