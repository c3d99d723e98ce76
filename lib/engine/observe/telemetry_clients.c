/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Telemetry of attached programs, and of memory: keys, regions, buffers. */
#include "karst_session.h"
#include "telemetry.h"

#include <stdio.h>
#include <stdlib.h>

/* All sessions; *n: how many.  NULL: no memory. */
static struct karst_session_info *
all_sessions(struct karst_engine *e, unsigned int *n)
{
	struct karst_session_info *infos = calloc(KARST_ENGINE_MAX_OWNERS, sizeof(*infos));

	if (infos != NULL)
		*n = RTE_MIN(karst_session_list(e, infos, KARST_ENGINE_MAX_OWNERS),
			KARST_ENGINE_MAX_OWNERS);
	return infos;
}

static void
fill_client(const struct karst_session_info *s, uint64_t now_ns, struct tel_row *row)
{
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{"pid", (uint64_t)s->pid},
		{"uid", s->uid},
		{"attached_ms", (now_ns - s->attached_ns) / 1000000},
		{"qps", s->qps},
		{"cqs", s->cqs},
		{"srqs", s->srqs},
		{"regions", s->mrs},
		{"windows", s->mws},
		{"pds", s->pds},
		{"ahs", s->ahs},
		{"channels", s->channels},
		{"xrcds", s->xrcds},
		{"cm_ids", s->cm_ids},
		{"ring_bytes", s->ring_bytes},
		{"shared_bytes", s->shared_bytes},
		{"migrated_bytes", s->migrated_bytes},
		{"copied_bytes", s->copied_bytes},
		{"requests", s->requests},
		{"refused", s->refused},
		{"lost_events", s->lost_events},
		{"failed", s->failed},
	};
	size_t i;

	tel_row_str(row, "program", s->program);
	for (i = 0; i < KARST_DIM(rows); i++)
		tel_row_u64(row, rows[i].name, rows[i].value);
}

/* Lists clients by their number, from @from on; the next page begins where this one ends. */
static void
list_clients(struct karst_engine *e, uint64_t from, const struct karst_session_info *infos,
	unsigned int n, struct tel_list *list)
{
	uint64_t now_ns = engine_now(e);
	unsigned int i;

	/* the newest is the first of the list, and has the highest number */
	for (i = n; i-- > 0;) {
		struct tel_row row;
		char name[16];

		if (infos[i].client < from)
			continue;
		if (!tel_row_begin(&row))
			return;
		fill_client(&infos[i], now_ns, &row);
		snprintf(name, sizeof(name), "%u", infos[i].client);
		if (!tel_list_add(list, name, &row, infos[i].client))
			return;
	}
}

static int
on_clients(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct karst_session_info *infos;
	struct karst_engine *e;
	struct tel_list list;
	uint64_t from = 0;
	unsigned int n;
	int ret;

	tel_list_begin(&list, d);
	ret = eng_tel_open(params, &e, &from);
	if (ret != 0)
		return ret;
	infos = all_sessions(e, &n);
	if (infos != NULL)
		list_clients(e, from, infos, n, &list);
	else
		ret = -ENOMEM;
	eng_tel_close();
	free(infos);
	return ret;
}

/* --- users --- */

/* A user's row: what the user's programs have, and which requests were refused. */
static bool
add_user(const struct eng_share_info *u, struct tel_list *list)
{
	struct tel_row row;
	char name[32];
	unsigned int i;

	if (!tel_row_begin(&row))
		return false;
	tel_row_u64(&row, "share", u->rule.percent);
	for (i = 0; i < ENG_SHARE_KINDS; i++)
		tel_row_u64(&row, eng_share_name(i), u->used[i]);
	for (i = 0; i < ENG_SHARE_KINDS; i++) {
		snprintf(name, sizeof(name), "refused_%s", eng_share_name(i));
		tel_row_u64(&row, name, u->refused[i]);
	}
	tel_row_u64(&row, "calls", u->calls);
	tel_row_u64(&row, "calls_late", u->calls_late);
	tel_row_u64(&row, "ejected_programs", u->ejected);
	snprintf(name, sizeof(name), "%u", u->uid);
	return tel_list_add(list, name, &row, u->uid);
}

static int
on_users(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct eng_share_info u;
	struct karst_engine *e;
	struct tel_list list;
	uint64_t from = 0;
	int ret;

	tel_list_begin(&list, d);
	ret = eng_tel_open(params, &e, &from);
	if (ret != 0)
		return ret;
	while (from <= UINT32_MAX && eng_share_list(&e->shares, (uid_t)from, &u, 1) == 1 &&
		add_user(&u, &list))
		from = (uint64_t)u.uid + 1;
	eng_tel_close();
	return 0;
}

/* Access methods of programs' memory, for all programs together. */
static void
add_ways(struct karst_engine *e, struct rte_tel_data *d)
{
	uint64_t shared = 0, migrated = 0, copied = 0;
	struct karst_session_info *infos;
	unsigned int i, n = 0;

	infos = all_sessions(e, &n);
	for (i = 0; infos != NULL && i < n; i++) {
		shared += infos[i].shared_bytes;
		migrated += infos[i].migrated_bytes;
		copied += infos[i].copied_bytes;
	}
	free(infos);
	rte_tel_data_add_dict_u64(d, "shared_bytes", shared);
	rte_tel_data_add_dict_u64(d, "migrated_bytes", migrated);
	rte_tel_data_add_dict_u64(d, "copied_bytes", copied);
}

static int
on_memory(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct karst_mem_usage mem;
	struct karst_engine *e;
	uint64_t none = 0, ring_bytes = 0, ring_bytes_mapped = 0;
	const struct karst_engine_owner *o;
	int ret;

	rte_tel_data_start_dict(d);
	ret = eng_tel_open(params, &e, &none);
	if (ret != 0)
		return ret;
	ret = eng_ctl_enter(e);
	if (ret == 0) {
		karst_mem_usage(e->mem, &mem);
		rte_tel_data_add_dict_u64(d, "max_keys", mem.max_keys);
		rte_tel_data_add_dict_u64(d, "regions", mem.mrs);
		rte_tel_data_add_dict_u64(d, "windows", mem.mws);
		rte_tel_data_add_dict_u64(d, "max_pds", mem.max_pds);
		rte_tel_data_add_dict_u64(d, "pds", mem.pds);
		rte_tel_data_add_dict_u64(d, "object_bytes", e->objects.used);
		rte_tel_data_add_dict_u64(d, "object_bytes_mapped", e->objects.mapped);
		LIST_FOREACH(o, &e->owners, next) {
			ring_bytes += o->rings.used;
			ring_bytes_mapped += o->rings.mapped;
		}
		rte_tel_data_add_dict_u64(d, "owners", e->nowners);
		rte_tel_data_add_dict_u64(d, "ring_bytes", ring_bytes);
		rte_tel_data_add_dict_u64(d, "ring_bytes_mapped", ring_bytes_mapped);
		rte_tel_data_add_dict_u64(d, "mbufs", e->pool->size);
		rte_tel_data_add_dict_u64(d, "mbufs_free", rte_mempool_avail_count(e->pool));
		eng_ctl_leave(e);
		add_ways(e, d);
	}
	eng_tel_close();
	return ret;
}

const struct tel_cmd eng_tel_clients[] = {
	{"/karst/clients", on_clients, "Programs that are attached. Parameter: [engine][:first]"},
	{"/karst/users", on_users, "Users who have programs attached. Parameter: [engine][:first]"},
	{"/karst/memory", on_memory, "Keys, memory and buffers. Parameter: [engine]"},
	{NULL, NULL, NULL},
};
