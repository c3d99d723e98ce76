/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Telemetry of what programs have: memory, keys, buffers. */
#include "telemetry.h"

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
		for (o = e->owners; o != NULL; o = o->next) {
			ring_bytes += o->rings.used;
			ring_bytes_mapped += o->rings.mapped;
		}
		rte_tel_data_add_dict_u64(d, "owners", e->nowners);
		rte_tel_data_add_dict_u64(d, "ring_bytes", ring_bytes);
		rte_tel_data_add_dict_u64(d, "ring_bytes_mapped", ring_bytes_mapped);
		rte_tel_data_add_dict_u64(d, "mbufs", e->pool->size);
		rte_tel_data_add_dict_u64(d, "mbufs_free", rte_mempool_avail_count(e->pool));
		eng_ctl_leave(e);
	}
	eng_tel_close();
	return ret;
}

const struct tel_cmd eng_tel_clients[] = {
	{"/karst/memory", on_memory, "Keys, memory and buffers. Parameter: [engine]"},
	{NULL, NULL, NULL},
};
