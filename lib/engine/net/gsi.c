/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * MADs in: an lcore copies each into a slot, so that no buffer of the pool is held while it waits;
 * slots go around between two rings, the free ones and the full ones.  No free slot: the MAD is
 * dropped and counted, and its sender asks again.
 *
 * MADs out: frames are built here, by the slow and complete builder, on the caller's thread, and
 * the home lcore of their port puts them into its queue.
 */
#include "gsi.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "karst_build.h"
#include "karst_crc.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"

#define PKEY_DEFAULT 0xffffu
/* W1 without a flow label, of QP 1 and QP 1 */
#define GSI_UDP_SPORT 0xc001u

struct eng_gsi {
	struct rte_ring *free;
	struct rte_ring *full;
	struct eng_gsi_mad *mads; /* [ENG_GSI_SLOTS] */
	int wake_fd;
	_Atomic uint32_t asleep; /* who takes MADs sleeps */
	uint32_t psn;            /* of the next MAD sent */
	uint16_t ip_id;
};

/* --- life --- */

static struct rte_ring *
make_ring(const struct karst_engine *e, const char *what, unsigned int flags)
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
	g->free = make_ring(e, "gf", RING_F_SP_ENQ);
	g->full = make_ring(e, "gq", RING_F_SC_DEQ);
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

	/* Dekker with eng_gsi_wait(): what was put there before the asleep word */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&g->asleep, memory_order_relaxed) == 0)
		return;
	/* relaxed: the eventfd orders.  Of many, one makes the system call. */
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
	/* From here on whoever has something writes the eventfd again.  What comes before the
	 * caller looks it sees; what comes after ends the next wait. */
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
	else if ((pkt->pkey & 0x7fff) != (PKEY_DEFAULT & 0x7fff))
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
	struct karst_engine_addr a;

	if (pkt->flags & KARST_PKT_IP6) {
		memcpy(m->src_ip, l3 + 8, 16);
		memcpy(m->dst_ip, l3 + 24, 16);
		m->tclass = (uint8_t)(karst_get_be16(l3) >> 4);
		m->hop_limit = l3[7];
		return;
	}
	a = karst_engine_addr_ip4(karst_get_be32(l3 + 12));
	memcpy(m->src_ip, a.ip, 16);
	a = karst_engine_addr_ip4(karst_get_be32(l3 + 16));
	memcpy(m->dst_ip, a.ip, 16);
	m->tclass = l3[1];
	m->hop_limit = l3[8];
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
	/* there are as many places as slots */
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

/* --- out --- */

/* Frames for the ports of one home lcore, or of all. */
struct burst {
	unsigned int n;
	uint8_t port[ENG_GSI_BURST]; /* or its twin */
	struct rte_mbuf *m[ENG_GSI_BURST];
};

static void
describe(struct eng_gsi *g, const struct eng_gsi_out *out, struct karst_frame *f)
{
	const struct karst_path *path = &out->path;
	unsigned int skip = path->ip6 ? 0 : 12;

	*f = (struct karst_frame){
		.vlan = path->has_vlan,
		.vlan_tci = path->vlan_tci,
		.ip6 = path->ip6,
		.tclass = karst_path_tclass(path),
		.ttl = path->hop_limit != 0 ? path->hop_limit : 64,
		/* L1: never 0 */
		.ip_id = g->ip_id = g->ip_id == UINT16_MAX ? 1 : (uint16_t)(g->ip_id + 1),
		.ip_frag = 0x4000,
		.flow_label = path->flow_label,
		.sport = GSI_UDP_SPORT,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.opcode = KARST_UD_SEND_ONLY,
			/* L1: MADs ask for what nobody sends */
			.ackreq = true,
			.pkey = PKEY_DEFAULT,
			.dqpn = ENG_GSI_QPN,
			.psn = g->psn++ & 0xffffff,
			.qkey = ENG_GSI_QKEY,
			.src_qpn = ENG_GSI_QPN,
			.pay = out->mad,
			.pay_len = ENG_GSI_MAD_BYTES},
	};
	memcpy(f->dmac, path->dst_mac, sizeof(f->dmac));
	memcpy(f->smac, path->src_mac, sizeof(f->smac));
	memcpy(f->saddr, path->src_ip + skip, 16 - skip);
	memcpy(f->daddr, path->dst_ip + skip, 16 - skip);
}

/* A buffer with the frame of a MAD; NULL: there is none. */
static struct rte_mbuf *
frame_of(struct karst_engine *e, const struct eng_gsi_out *out)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(e->pool);
	struct karst_frame f;
	uint8_t *data, *l3;
	uint32_t icrc;
	int len;

	if (m == NULL)
		return NULL;
	data = rte_pktmbuf_mtod(m, uint8_t *);
	describe(e->gsi, out, &f);
	len = karst_build_frame(data, rte_pktmbuf_tailroom(m), &f);
	assert(len > 0);
	l3 = data + KARST_ETH_LEN + (f.vlan ? KARST_VLAN_LEN : 0);
	icrc = karst_icrc_rocev2(l3, (size_t)(data + len - l3) - KARST_ICRC_LEN, f.ip6);
	memcpy(data + len - KARST_ICRC_LEN, &icrc, sizeof(icrc));
	m->data_len = (uint16_t)len;
	m->pkt_len = (uint32_t)len;
	return m;
}

static int
send_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct burst *b = arg;
	unsigned int i, kept = 0;

	for (i = 0; i < b->n; i++) {
		if (lc->e->port[eng_port_base(b->port[i])].home != lc->index) {
			b->port[kept] = b->port[i];
			b->m[kept++] = b->m[i];
			continue;
		}
		eng_tx_frame(lc, b->port[i], b->m[i]);
		karst_count(&lc->core->counters, KARST_CTR_TX_MADS);
	}
	b->n = kept;
	return 0;
}

void
eng_gsi_send(struct karst_engine *e, const struct eng_gsi_out *out, unsigned int n)
{
	struct burst b = {0};
	unsigned int i;

	assert(n <= ENG_GSI_BURST);
	if (eng_ctl_enter(e) != 0)
		return;
	for (i = 0; i < n; i++) {
		uint8_t base = eng_port_base(out[i].path.port);

		/* it may have been removed meanwhile */
		if (out[i].path.port >= ENG_TXQS || !eng_port_present(e, base))
			continue;
		b.m[b.n] = frame_of(e, &out[i]);
		b.port[b.n] = out[i].path.port;
		b.n += b.m[b.n] != NULL;
	}
	while (b.n > 0)
		eng_mailbox_call(
			&e->lcore[e->port[eng_port_base(b.port[0])].home], send_on_lcore, &b);
	eng_ctl_leave(e);
}
