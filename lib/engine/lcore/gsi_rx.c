/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Received MADs: an lcore copies each into a slot, so that no buffer of the pool is held while it
 * waits.  Slots circulate between two rings, free and full.  If no slot is free, the MAD is dropped
 * and counted, and its sender retries.
 */
#include "gsi_rx.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "karst_hdr.h"
#include "karst_opcode.h"

/* --- life --- */

static struct rte_ring *
gsi_make_ring(const struct karst_engine *e, const char *what, unsigned int flags)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "%s_%s", e->name, what);
	return rte_ring_create(name, ENG_GSI_SLOTS, (int)rte_socket_id(), flags | RING_F_EXACT_SZ);
}

int
eng_gsi_init(struct karst_engine *e)
{
	struct eng_gsi *g = calloc(1, sizeof(*g));
	uint32_t i;

	if (g == NULL)
		return -ENOMEM;
	e->gsi = g;
	/* as after eng_gsi_wait() */
	atomic_init(&g->asleep, 1);
	g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->wake_fd < 0)
		return -errno;
	g->mads = calloc(ENG_GSI_SLOTS, sizeof(*g->mads));
	if (g->mads == NULL)
		return -ENOMEM;
	g->free = gsi_make_ring(e, "gf", RING_F_SP_ENQ);
	g->full = gsi_make_ring(e, "gq", RING_F_SC_DEQ);
	if (g->free == NULL || g->full == NULL)
		return -rte_errno;
	for (i = 0; i < ENG_GSI_SLOTS; i++)
		rte_ring_sp_enqueue(g->free, &g->mads[i]);
	return 0;
}

void
eng_gsi_fini(struct karst_engine *e)
{
	struct eng_gsi *g = e->gsi;

	if (g == NULL)
		return;
	rte_ring_free(g->free);
	rte_ring_free(g->full);
	if (g->wake_fd >= 0)
		close(g->wake_fd);
	free(g->mads);
	free(g);
	e->gsi = NULL;
}

/* --- sleep --- */

void
eng_gsi_wake(struct karst_engine *e)
{
	struct eng_gsi *g = e->gsi;

	/* Dekker with eng_gsi_wait(): the MAD is queued before the asleep word is read */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&g->asleep, memory_order_relaxed) == 0)
		return;
	/* relaxed: the eventfd orders.  Of many callers, one makes the system call. */
	if (atomic_exchange_explicit(&g->asleep, 0, memory_order_relaxed) != 0)
		karst_engine_wake(g->wake_fd);
}

void
eng_gsi_wait(struct karst_engine *e, uint64_t ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
	struct eng_gsi *g = e->gsi;
	struct pollfd p = {.fd = g->wake_fd, .events = POLLIN};
	uint64_t count;

	if (rte_ring_empty(g->full) && ppoll(&p, 1, ns == UINT64_MAX ? NULL : &ts, NULL) > 0)
		(void)!read(g->wake_fd, &count, sizeof(count));
	/* From here on, a thread with work writes the eventfd again.  The caller sees work that is
	 * queued before its next check; work that is queued later ends the next wait. */
	atomic_store_explicit(&g->asleep, 1, memory_order_relaxed);
	/* Dekker with eng_gsi_wake() */
	atomic_thread_fence(memory_order_seq_cst);
}

/* --- in --- */

static bool
is_mad(struct eng_lcore *lc, const struct karst_pkt *pkt)
{
	enum karst_drop why = KARST_DROP_NONE;

	if (pkt->opcode != KARST_UD_SEND_ONLY)
		why = KARST_DROP_QP_TYPE;
	else if ((pkt->pkey & 0x7fff) != (ENG_GSI_PKEY & 0x7fff))
		why = KARST_DROP_PKEY;
	else if (pkt->qkey != ENG_GSI_QKEY)
		why = KARST_DROP_QKEY;
	else if (pkt->src_qpn != ENG_GSI_QPN)
		why = KARST_DROP_GSI_SOURCE;
	else if (pkt->pay_len != ENG_GSI_MAD_BYTES)
		why = KARST_DROP_UD_LENGTH;
	if (why == KARST_DROP_NONE)
		return true;
	karst_count_drop(&lc->core->counters, why);
	return false;
}

static void
copy_addresses(const struct karst_pkt *pkt, struct eng_gsi_mad *m)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);
	const struct karst_engine_addr src = eng_pkt_src(pkt), dst = eng_pkt_dst(pkt);
	const bool ip6 = (pkt->flags & KARST_PKT_IP6) != 0;

	memcpy(m->src_ip, src.ip, sizeof(src.ip));
	memcpy(m->dst_ip, dst.ip, sizeof(dst.ip));
	m->tclass = ip6 ? karst_ip6_tclass(l3) : karst_ip4_tos(l3);
	m->hop_limit = ip6 ? karst_ip6_hop_limit(l3) : karst_ip4_ttl(l3);
}

karst_noinline void
eng_gsi_rx(struct eng_lcore *lc, const struct karst_pkt *pkt)
{
	struct eng_gsi *g = lc->e->gsi;
	struct eng_gsi_mad *m;
	void *p;

	if (!is_mad(lc, pkt))
		return;
	if (rte_ring_mc_dequeue(g->free, &p) != 0) {
		karst_count_drop(&lc->core->counters, KARST_DROP_GSI_FULL);
		return;
	}
	m = p;
	copy_addresses(pkt, m);
	m->pkey = pkt->pkey;
	m->port = eng_port_base(pkt->port);
	memcpy(m->bytes, pkt->data + pkt->pay_off, sizeof(m->bytes));
	/* the ring has as many places as there are slots */
	rte_ring_mp_enqueue(g->full, m);
	karst_count(&lc->core->counters, KARST_CTR_RX_MADS);
	eng_gsi_wake(lc->e);
}

struct eng_gsi_mad *
eng_gsi_take(struct karst_engine *e)
{
	void *p;

	return rte_ring_sc_dequeue(e->gsi->full, &p) == 0 ? p : NULL;
}

void
eng_gsi_give(struct karst_engine *e, struct eng_gsi_mad *mad)
{
	rte_ring_sp_enqueue(e->gsi->free, mad);
}
