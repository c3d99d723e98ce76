/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Life cycle of an engine: configuration, tables, lcores; start and stop.
 */
#include "karst_engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_malloc.h>

#include "capture.h"
#include "cm.h"
#include "intr_pause.h"
#include "intr_unmap.h"
#include "workers.h"
#include "log.h"
#include "object.h"
#include "port.h"
#include "telemetry.h"

#define DEFAULT_MBUFS_EACH 2048u /* for each lcore, and as many for the ports */
#define DEFAULT_HELD       1024u
#define FRAME_ROOM         (ENG_ROOM - RTE_PKTMBUF_HEADROOM)
#define FRAME_ROOM_LEAST   512u
#define MAX_XRCDS          16384u /* domains that programs have open */

/* --- configuration --- */

static void
default_u32(uint32_t *v, uint32_t value)
{
	if (*v == 0)
		*v = value;
}

static void
fill_defaults(struct karst_engine_config *c)
{
	default_u32(&c->lcores, 1);
	default_u32(&c->max_qps, 1024);
	default_u32(&c->max_keys, 4096);
	default_u32(&c->max_ahs, 1024);
	default_u32(&c->max_pds, 256);
	default_u32(&c->max_mcasts, 1024);
	default_u32(&c->max_xrc_srqs, 1024);
	default_u32(&c->max_owners, 64);
	default_u32(&c->max_cm_ids, 4096);
	default_u32(&c->rx_burst, 32);
	default_u32(&c->rx_bytes, 16 << 10);
	default_u32(&c->tx_burst, 32);
	default_u32(&c->tx_bytes, 128 << 10);
	default_u32(&c->quantum_bytes, 16 << 10);
	default_u32(&c->frame_bytes, c->page_buffers ? eng_pool_page_room() : FRAME_ROOM);
	if (c->nrepeat_peers != 0 || c->ece != KARST_ENGINE_ECE_OFF)
		default_u32(&c->held_frames, DEFAULT_HELD);
	else
		c->held_frames = 0;
	default_u32(&c->spray_ports, 1);
	default_u32(&c->mbufs, DEFAULT_MBUFS_EACH * (c->lcores + 1) + c->held_frames * c->lcores);
	default_u32(&c->handoff_slots, 1024);
	default_u32(&c->sleep_max_us, 50);
}

/* What is wrong with a configuration whose defaults are filled in; NULL if nothing is. */
static const char *
config_fault(const struct karst_engine_config *c)
{
	if (c->lcores > KARST_ENGINE_MAX_LCORES)
		return "lcores: 1 to 64";
	if (c->max_qps > 1u << 22)
		return "max_qps: 1 to 4194304";
	if (c->max_xrc_srqs > ENG_MAX_XRC_SRQS)
		return "max_xrc_srqs: 1 to 65536";
	if (c->max_owners > KARST_ENGINE_MAX_OWNERS)
		return "max_owners: 1 to 4096";
	if (c->max_cm_ids < 2 || c->max_cm_ids > 1u << 20)
		return "max_cm_ids: 2 to 1048576";
	if (c->max_mcasts > 65536)
		return "max_mcasts: 1 to 65536";
	if (c->rx_burst > ENG_MAX_BURST || c->tx_burst > ENG_MAX_BURST)
		return "rx_burst, tx_burst: 1 to 64";
	if (c->tx_bytes > 1u << 24 || c->rx_bytes > 1u << 24 || c->quantum_bytes > 1u << 24)
		return "rx_bytes, tx_bytes, quantum_bytes: 1 to 16777216";
	if (c->frame_bytes < FRAME_ROOM_LEAST || c->frame_bytes > FRAME_ROOM)
		return "frame_bytes: 512 to 4352";
	if (c->page_buffers && c->frame_bytes > eng_pool_page_room())
		return "frame_bytes: at most 3712 with page_buffers";
	if (c->mbufs < c->lcores * (ENG_STASH + 2 * ENG_MAX_BURST))
		return "mbufs: at least 256 for each lcore";
	if (c->held_frames > 1u << 16)
		return "held_frames: 1 to 65536";
	if (c->ece > KARST_ENGINE_ECE_OFFER)
		return "ece: unknown mode";
	if (!karst_is_pow2(c->spray_ports) || c->spray_ports > KARST_SPRAY_MAX)
		return "spray_ports: 1, 2, 4, 8, 16";
	if (c->nrepeat_peers > ENG_REPEAT_PEERS)
		return "repeat_peers: up to 16";
	if (c->handoff_slots > 1u << 20)
		return "handoff_slots: 1 to 1048576";
	if (c->sleep_max_us > 1000000)
		return "sleep_max_us: 1 to 1000000";
	if (!karst_congestion_valid(c->congestion))
		return "congestion: a value out of its range";
	if (c->idle > KARST_IDLE_SLEEP)
		return "idle: unknown mode";
	if (c->name != NULL && strlen(c->name) >= sizeof(((struct karst_engine *)NULL)->name))
		return "name: up to 15 characters";
	return NULL;
}

static int
seed_from(uint64_t seed[2])
{
	return getrandom(seed, 2 * sizeof(*seed), 0) == 2 * sizeof(*seed) ? 0 : -errno;
}

/* --- tables --- */

static int
init_memory_table(struct karst_engine *e)
{
	struct karst_mem_config cfg = {
		.max_keys = e->cfg.max_keys, .max_pds = e->cfg.max_pds, .seed = {e->cfg.seed}};
	size_t bytes = karst_mem_size(&cfg);
	void *buf;
	int ret;

	if (bytes == 0)
		return -EINVAL;
	e->secret[0] = e->cfg.seed;
	if (e->cfg.seed == 0) {
		ret = seed_from(cfg.seed);
		if (ret == 0)
			ret = seed_from(e->secret);
		if (ret != 0)
			return ret;
	}
	eng_secret(e, ENG_SECRET_XRCDS, 0, e->xrcd_key);
	buf = eng_arena_alloc(&e->objects, bytes);
	return buf == NULL ? -ENOMEM : karst_mem_init(buf, &cfg, &e->mem);
}

static int
init_ah_table(struct karst_engine *e)
{
	size_t bytes = karst_ah_table_bytes(e->cfg.max_ahs);
	void *buf;
	int ret;

	if (bytes == 0)
		return -EINVAL;
	buf = eng_arena_alloc(&e->objects, bytes);
	if (buf == NULL)
		return -ENOMEM;
	ret = karst_ah_table_init(buf, e->cfg.max_ahs, &e->ahs);
	if (ret == 0 && e->congestion.mode != KARST_CONGESTION_OFF)
		karst_ah_table_set_ect(e->ahs, true);
	return ret;
}

/* Reads a number from a file of /proc; returns @otherwise if that fails. */
static uint64_t
read_number(const char *path, uint64_t otherwise)
{
	FILE *f = fopen(path, "re");
	uint64_t n = otherwise;

	if (f == NULL)
		return otherwise;
	if (fscanf(f, "%" SCNu64, &n) != 1)
		n = otherwise;
	fclose(f);
	return n;
}

/* Sets the totals that users share.  The engine keeps a part of what the kernel limits. */
static void
init_shares(struct karst_engine *e)
{
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct rlimit files = {.rlim_cur = 1024};
	struct eng_shares *t = &e->shares;

	getrlimit(RLIMIT_NOFILE, &files);
	eng_shares_set_total(t, ENG_SHARE_CLIENTS, e->cfg.max_owners);
	eng_shares_set_total(t, ENG_SHARE_QPS, (uint64_t)e->cfg.max_qps * e->nlcores);
	eng_shares_set_total(t, ENG_SHARE_KEYS, e->cfg.max_keys);
	eng_shares_set_total(t, ENG_SHARE_PDS, e->cfg.max_pds);
	eng_shares_set_total(t, ENG_SHARE_AHS, e->cfg.max_ahs);
	eng_shares_set_total(t, ENG_SHARE_PATHS, ENG_SEEKS_MAX);
	eng_shares_set_total(t, ENG_SHARE_MCASTS, e->cfg.max_mcasts);
	eng_shares_set_total(t, ENG_SHARE_XRCDS, MAX_XRCDS);
	eng_shares_set_total(t, ENG_SHARE_CM_IDS, e->cfg.max_cm_ids);
	eng_shares_set_total(t, ENG_SHARE_DESCRIPTORS, (uint64_t)files.rlim_cur / 4 * 3);
	eng_shares_set_total(
		t, ENG_SHARE_MAPPINGS, read_number("/proc/sys/vm/max_map_count", 65530) / 4 * 3);
	eng_shares_set_total(t, ENG_SHARE_RING_BYTES, pages * page / 2);
	eng_shares_set_total(t, ENG_SHARE_HELD_BYTES, pages * page);
}

static int
init_rcu(struct karst_engine *e)
{
	size_t bytes = rte_rcu_qsbr_get_memsize(e->nlcores);
	uint32_t i;

	e->rcu = eng_arena_alloc(&e->objects, bytes);
	if (e->rcu == NULL)
		return -ENOMEM;
	rte_rcu_qsbr_init(e->rcu, e->nlcores);
	for (i = 0; i < e->nlcores; i++)
		rte_rcu_qsbr_thread_register(e->rcu, i);
	return 0;
}

static int
init_lcores(struct karst_engine *e)
{
	uint32_t i;
	int ret;

	e->lcore = eng_arena_alloc(&e->objects, e->nlcores * sizeof(e->lcore[0]));
	if (e->lcore == NULL)
		return -ENOMEM;
	for (i = 0; i < e->nlcores; i++) {
		ret = eng_lcore_init(e, i);
		if (ret != 0)
			return ret;
	}
	return 0;
}

/* --- life --- */

static void
free_engine(struct karst_engine *e)
{
	/* acquire, pairs with the release of the last thread of a pool (workers.c) */
	bool left = atomic_load_explicit(&e->holders, memory_order_acquire) > 1;
	uint32_t i;

	eng_cm_fini(e);
	for (i = 0; i < e->nports; i++)
		eng_port_fini(e, (uint8_t)i);
	for (i = 0; e->lcore != NULL && i < e->nlcores; i++)
		eng_lcore_fini(&e->lcore[i]);
	eng_owners_fini(e);
	/* threads that are left behind copy from packets in its buffers.  They do not free it: EAL
	 * may have ended by then. */
	if (!left)
		rte_mempool_free(e->pool);
	eng_arena_fini(&e->objects);
	eng_shares_fini(&e->shares);
	pthread_mutex_destroy(&e->session_lock);
	pthread_mutex_destroy(&e->names_lock);
	pthread_mutex_destroy(&e->ctl_lock);
	eng_engine_put(e); /* they read its clock */
}

static void
init_clock(struct karst_engine *e)
{
	e->tsc_mul = (uint64_t)(((unsigned __int128)1000000000 << 32) / rte_get_tsc_hz());
	e->tsc_base = rte_rdtsc();
}

static int
init_engine(struct karst_engine *e)
{
	int ret;

	ret = init_memory_table(e);
	if (ret == 0)
		ret = init_ah_table(e);
	if (ret == 0)
		ret = init_rcu(e);
	if (ret == 0)
		ret = eng_pool_create(e);
	if (ret == 0)
		ret = init_lcores(e);
	if (ret == 0)
		ret = eng_owner_create_self(e);
	if (ret == 0)
		ret = eng_cm_init(e);
	if (ret == 0)
		ret = eng_intr_pause_init();
	return ret;
}

int
karst_engine_create(const struct karst_engine_config *cfg, struct karst_engine **engine)
{
	struct karst_engine *e = calloc(1, sizeof(*e));
	const char *fault;
	int ret;

	if (e == NULL)
		return -ENOMEM;
	atomic_init(&e->holders, 1);
	eng_log_init();
	e->cfg = *cfg;
	e->hooks = &eng_net_hooks;
	fill_defaults(&e->cfg);
	karst_congestion_defaults(&e->congestion);
	if (cfg->congestion != NULL)
		e->congestion = *cfg->congestion;
	e->cfg.congestion = &e->congestion;
	if (cfg->nrepeat_peers != 0 && cfg->nrepeat_peers <= ENG_REPEAT_PEERS)
		memcpy(e->repeat_peers, cfg->repeat_peers,
			cfg->nrepeat_peers * sizeof(e->repeat_peers[0]));
	e->cfg.repeat_peers = e->repeat_peers;
	if (cfg->ops != NULL)
		e->ops = *cfg->ops;
	eng_arena_init(&e->objects);
	pthread_mutex_init(&e->ctl_lock, NULL);
	pthread_mutex_init(&e->session_lock, NULL);
	pthread_mutex_init(&e->names_lock, NULL);
	eng_shares_init(&e->shares);
	fault = config_fault(&e->cfg);
	if (fault != NULL) {
		karst_log(KARST_LOG_ERR, "engine configuration: %s", fault);
		free_engine(e);
		return -EINVAL;
	}
	e->nlcores = e->cfg.lcores;
	e->lcore_bits = karst_log2(karst_pow2_ceil(e->nlcores));
	init_clock(e);
	init_shares(e);
	ret = eng_telemetry_add(e);
	if (ret != 0) {
		free_engine(e);
		return ret;
	}
	ret = init_engine(e);
	if (ret != 0) {
		karst_log(
			KARST_LOG_ERR, "%s: creating the engine: %s", e->name, rte_strerror(-ret));
		eng_telemetry_del(e);
		free_engine(e);
		return ret;
	}
	eng_intr_unmap_add(e);
	eng_telemetry_ready(e);
	*engine = e;
	return 0;
}

static bool
any_attached(const struct karst_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->nlcores; i++)
		if (atomic_load_explicit(&e->lcore[i].owner, memory_order_relaxed) != 0)
			return true;
	return false;
}

int
karst_engine_destroy(struct karst_engine *e)
{
	if (any_attached(e)) {
		karst_log(KARST_LOG_ERR, "%s: destroyed while lcores are attached", e->name);
		return -EBUSY;
	}
	eng_cm_stop(e);
	eng_workers_stop(e);
	eng_telemetry_del(e);
	eng_capture_stop(e, NULL);
	eng_intr_unmap_del(e);
	free_engine(e);
	return 0;
}

const struct karst_engine_config *
karst_engine_config(const struct karst_engine *e)
{
	return &e->cfg;
}

/* --- start and stop --- */

/* Finds an EAL worker for each lcore. */
static int
choose_workers(struct karst_engine *e, const unsigned int *eal_lcores)
{
	unsigned int next = rte_get_next_lcore(-1, 1, 0);
	uint32_t i;

	for (i = 0; i < e->nlcores; i++) {
		if (eal_lcores == NULL) {
			while (next < RTE_MAX_LCORE && rte_eal_get_lcore_state(next) != WAIT)
				next = rte_get_next_lcore(next, 1, 0);
			e->lcore[i].eal_lcore = next;
			if (next < RTE_MAX_LCORE)
				next = rte_get_next_lcore(next, 1, 0);
		} else {
			e->lcore[i].eal_lcore = eal_lcores[i];
		}
		if (e->lcore[i].eal_lcore >= RTE_MAX_LCORE) {
			karst_log(KARST_LOG_ERR, "%s: %u lcores need as many free EAL workers",
				e->name, e->nlcores);
			return -ENOSPC;
		}
	}
	return 0;
}

/* From now on a program may poll the lcores itself, so worker threads make the copies.  A failure
 * is logged; the engine tries again with the next memory that is registered. */
static void
resume_copies(struct karst_engine *e)
{
	if (e->copies)
		e->copies = eng_workers_start(e) == 0;
}

/* Whether threads of lcores are being created or ended, and copies that wait will have some.
 * relaxed: whoever finds it late looks again. */
static void
set_launched(struct karst_engine *e, bool launched)
{
	uint32_t i;

	for (i = 0; i < e->nlcores; i++)
		atomic_store_explicit(&e->lcore[i].launched, launched, memory_order_relaxed);
}

void
karst_engine_stop(struct karst_engine *e)
{
	uint32_t i;

	if (!e->started)
		return;
	atomic_store_explicit(&e->running, false, memory_order_relaxed);
	for (i = 0; i < e->nlcores; i++)
		eng_lcore_wake(&e->lcore[i]);
	for (i = 0; i < e->nlcores; i++)
		if (e->lcore[i].eal_lcore < RTE_MAX_LCORE)
			rte_eal_wait_lcore(e->lcore[i].eal_lcore);
	if (eng_ctl_enter(e) != 0)
		return;
	/* calls on lcores that no thread drives read its counts */
	eng_watch_stop(e);
	e->started = false;
	resume_copies(e);
	set_launched(e, false);
	eng_ctl_leave(e);
}

/* Ends the copiers of lcores that a program may have polled.  Other control calls do not wait for
 * threads that are in copies. */
static int
end_copiers(struct karst_engine *e)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	set_launched(e, true);
	e->started = true; /* memory that is registered meanwhile starts no others */
	eng_ctl_leave(e);
	eng_workers_end(e);
	return 0;
}

static int
prepare_start(struct karst_engine *e)
{
	int ret = end_copiers(e);

	if (ret == 0)
		ret = eng_ctl_enter(e);
	if (ret != 0)
		return ret;
	/* calls on lcores that no thread drives read its counts */
	eng_watch_stop(e);
	ret = eng_watch_start(e);
	if (ret == 0) {
		atomic_store_explicit(&e->running, true, memory_order_relaxed);
	} else {
		e->started = false;
		resume_copies(e);
		set_launched(e, false);
	}
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_start(struct karst_engine *e, const unsigned int *eal_lcores)
{
	uint32_t i;
	int ret;

	if (e->started || any_attached(e))
		return -EBUSY;
	ret = choose_workers(e, eal_lcores);
	if (ret == 0)
		ret = prepare_start(e);
	if (ret != 0)
		return ret;
	for (i = 0; i < e->nlcores; i++) {
		ret = rte_eal_remote_launch(eng_lcore_main, &e->lcore[i], e->lcore[i].eal_lcore);
		if (ret != 0) {
			karst_log(KARST_LOG_ERR, "%s: EAL worker %u: %s", e->name,
				e->lcore[i].eal_lcore, rte_strerror(-ret));
			for (; i < e->nlcores; i++)
				e->lcore[i].eal_lcore = RTE_MAX_LCORE;
			karst_engine_stop(e);
			return ret;
		}
	}
	return 0;
}

/* --- loss --- */

struct loss_call {
	uint64_t threshold;
	uint64_t seed;
};

static int
set_loss_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct loss_call *call = arg;

	lc->loss = call->threshold;
	/* Each lcore has its own sequence; the state of xorshift must not be 0. */
	lc->loss_state = (call->seed + lc->index) * 0x9e3779b97f4a7c15ull | 1;
	return 0;
}

int
karst_engine_set_loss(struct karst_engine *e, double probability, uint64_t seed)
{
	struct loss_call call = {.seed = seed};
	uint32_t i;
	int ret;

	if (!(probability >= 0 && probability <= 1))
		return -EINVAL;
	call.threshold = probability == 1 ? UINT64_MAX : (uint64_t)(probability * 0x1p64);
	ret = eng_ctl_enter(e);
	if (ret != 0)
		return ret;
	for (i = 0; i < e->nlcores; i++)
		eng_mailbox_call(&e->lcore[i], set_loss_on_lcore, &call);
	eng_ctl_leave(e);
	return 0;
}
