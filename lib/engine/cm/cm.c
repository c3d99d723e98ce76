/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The thread of connection management.  It passes received MADs to lib/cm, runs the timers of
 * lib/cm, resolves paths and sends MADs; it sleeps while there is nothing to do.
 *
 * Sessions use the same tables, on their own threads and under the same lock, and leave what has to
 * wait to this thread.
 */
#include "cm.h"
#include "karst_prf.h"

#include <errno.h>
#include <signal.h>
#include <sys/random.h>

#include <rte_lcore.h>

/* 1.07 s for an answer, as an exponent; 16 attempts in all. */
#define RESPONSE_TIMEOUT 18u
#define RX_AT_ONCE       64u
#define TIMERS_AT_ONCE   64u

struct eng_cm *
eng_cm_enter(struct karst_engine *e)
{
	struct eng_cm *cm = e->cm;

	pthread_mutex_lock(&cm->lock);
	cm->cm->now_ns = engine_now(e);
	return cm;
}

void
eng_cm_leave(struct eng_cm *cm)
{
	const struct cm_path *newest = TAILQ_FIRST(&cm->asking);
	bool wake = !STAILQ_EMPTY(&cm->out) || (newest != NULL && newest->look_ns < cm->wake_ns) ||
		karst_cm_next_ns(cm->cm) < cm->wake_ns;

	pthread_mutex_unlock(&cm->lock);
	if (wake)
		eng_gsi_wake(cm->e);
}

void
eng_cm_report(struct karst_engine *e, struct cm_report *report)
{
	struct eng_cm *cm = eng_cm_enter(e);

	*report = (struct cm_report){.stats = cm->stats,
		.counters = cm->cm->counters,
		.listeners = cm->nlisteners,
		.connections = cm->cm->nids,
		.half_open = cm->cm->nhalf_open,
		.npaths = cm->npaths};
	eng_cm_leave(cm);
}

uint32_t
eng_cm_random(struct eng_cm *cm)
{
	return (uint32_t)karst_prf(cm->random_key, cm->randoms++, 0);
}

/* @return whether there may be more. */
static bool
cm_receive(struct eng_cm *cm)
{
	struct eng_gsi_mad *mad;
	unsigned int n;

	for (n = 0; n < RX_AT_ONCE && (mad = eng_gsi_take(cm->e)) != NULL; n++) {
		struct karst_cm_path seen = {
			.port = mad->port,
			.pkey = mad->pkey,
			.tclass = mad->tclass,
		};
		uint8_t index;

		/* a loopback frame may be for an address of another port */
		(void)eng_cm_find_port(cm->e, mad->dst_ip, &seen.port, &index);
		memcpy(seen.local_ip, mad->dst_ip, sizeof(seen.local_ip));
		memcpy(seen.remote_ip, mad->src_ip, sizeof(seen.remote_ip));
		karst_cm_rx(cm->cm, &seen, mad->bytes, sizeof(mad->bytes));
		eng_gsi_give(cm->e, mad);
	}
	return n == RX_AT_ONCE;
}

static void *
cm_main(void *arg)
{
	struct eng_cm *cm = arg;
	uint64_t next, now;
	bool more;

	/* relaxed: it orders nothing, it only has to be seen */
	while (!atomic_load_explicit(&cm->stop, memory_order_relaxed)) {
		pthread_mutex_lock(&cm->lock);
		cm->cm->now_ns = engine_now(cm->e);
		/* from here on a thread that adds work wakes this one */
		cm->wake_ns = UINT64_MAX;
		more = cm_receive(cm);
		more |= karst_cm_expire(cm->cm, TIMERS_AT_ONCE) == TIMERS_AT_ONCE;
		next = eng_cm_path_work(cm);
		next = karst_min_u64(next, karst_cm_next_ns(cm->cm));
		cm->wake_ns = next;
		pthread_mutex_unlock(&cm->lock);
		now = engine_now(cm->e);
		if (more || next <= now)
			next = now;
		eng_gsi_wait(cm->e, next == UINT64_MAX ? next : next - now);
	}
	return NULL;
}

/* --- life --- */

static int
make_cm(struct eng_cm *cm)
{
	struct karst_cm_config cfg = {.max_ids = cm->e->cfg.max_cm_ids,
		.response_timeout = RESPONSE_TIMEOUT,
		.target_ack_delay = KARST_CA_ACK_DELAY,
		.ops = &eng_cm_ops,
		.user = cm};
	size_t bytes;

	/* not from e->secret: no two engines may have the same GUID, although tests give them the
	 * same seed */
	if (getrandom(cfg.secret, sizeof(cfg.secret), 0) != (ssize_t)sizeof(cfg.secret))
		return -errno;
	if (getrandom(cm->random_key, sizeof(cm->random_key), 0) != (ssize_t)sizeof(cm->random_key))
		return -errno;
	if (getrandom(cm->place_key, sizeof(cm->place_key), 0) != (ssize_t)sizeof(cm->place_key))
		return -errno;
	if (getrandom(&cfg.guid, sizeof(cfg.guid), 0) != (ssize_t)sizeof(cfg.guid))
		return -errno;
	cfg.guid |= 1;
	bytes = karst_cm_bytes(&cfg);
	if (bytes == 0)
		return -EINVAL;
	cm->cm_mem = eng_arena_alloc(&cm->e->objects, bytes);
	if (cm->cm_mem == NULL)
		return -ENOMEM;
	return karst_cm_init(cm->cm_mem, &cfg, engine_now(cm->e), &cm->cm);
}

int
eng_cm_init(struct karst_engine *e)
{
	struct eng_cm *cm = calloc(1, sizeof(*cm));
	sigset_t all, old;
	int ret;

	if (cm == NULL)
		return -ENOMEM;
	e->cm = cm;
	cm->e = e;
	eng_cm_number_init(cm);
	eng_cm_path_init(cm);
	pthread_mutex_init(&cm->lock, NULL);
	ret = make_cm(cm);
	if (ret == 0)
		ret = eng_gsi_init(e);
	if (ret != 0)
		return ret;
	/* signals are for the program's threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = rte_ctrl_thread_create(&cm->thread, "karst-cm", NULL, cm_main, cm);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	cm->running = ret == 0;
	return ret;
}

void
eng_cm_stop(struct karst_engine *e)
{
	struct eng_cm *cm = e->cm;

	if (cm == NULL || !cm->running)
		return;
	atomic_store_explicit(&cm->stop, true, memory_order_relaxed);
	eng_gsi_wake(e);
	pthread_join(cm->thread, NULL);
	cm->running = false;
}

void
eng_cm_fini(struct karst_engine *e)
{
	struct eng_cm *cm = e->cm;

	if (cm == NULL)
		return;
	eng_cm_stop(e);
	eng_cm_path_fini(cm);
	eng_cm_asked_fini(cm);
	eng_gsi_fini(e);
	pthread_mutex_destroy(&cm->lock);
	free(cm);
	e->cm = NULL;
}
