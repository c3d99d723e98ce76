/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ports that are added, removed, or change their link state, while lcores run.
 *
 * A device is configured and started by the thread that adds it, before any lcore knows it, and
 * stopped after the last lcore has removed it from its tables.  In between each lcore that serves
 * it has it in its own tables, which the lcore changes itself, on request by mailbox.  The home
 * lcore, the first of them, removes it last: until then, frames on their way to the home lcore find
 * everything in place.
 */
#include "port_kind.h"

#include "member_port.h"
#include "tap.h"

/* --- adding and removing --- */

struct serve_call {
	uint8_t port;
	uint16_t queue;
};

/* @return @fd, or -1 if it cannot wake the lcore. */
static int
watch_port(struct eng_lcore *lc, int fd)
{
	int ret;

	if (fd < 0)
		return -1;
	ret = eng_sleep_watch(lc, fd, false);
	if (ret == 0)
		return fd;
	karst_log(KARST_LOG_WARNING, "%s: lcore %u polls instead of waiting for interrupts: %s",
		lc->e->name, lc->index, rte_strerror(-ret));
	return -1;
}

static void
unwatch_port(struct eng_lcore *lc, const struct eng_rxq *q)
{
	if (q->wake_fd >= 0)
		eng_sleep_unwatch(lc, q->wake_fd);
	else
		lc->nblind--;
}

static int
serve_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct serve_call *call = arg;
	const struct eng_port *p = &lc->e->port[call->port];
	struct eng_txq *twin = &lc->tx[karst_engine_port_loop(lc->e, call->port)];
	struct eng_txq *tx = &lc->tx[call->port];

	twin->loop = twin->served = true;
	if (twin == tx)
		return 0;
	lc->rxq[lc->nrxq++] = (struct eng_rxq){.ethdev = p->info.ethdev,
		.queue = call->queue,
		.port = call->port,
		.wake_fd = watch_port(lc, p->wake_fd[call->queue])};
	lc->nblind += lc->rxq[lc->nrxq - 1].wake_fd < 0;
	tx->ethdev = p->info.ethdev;
	tx->queue = call->queue;
	tx->loop = false;
	tx->served = true;
	lc->core->line_mbps[call->port] = p->info.link_mbps;
	if (p->home == lc->index && p->tap != NULL)
		lc->tapped |= 1u << call->port;
	return 0;
}

/* Frames that wait in the queue are lost. */
static void
close_txq(struct eng_lcore *lc, unsigned int port)
{
	struct eng_txq *tx = &lc->tx[port];
	uint32_t i;

	for (i = 0; i < tx->n; i++)
		buffer_free(lc, tx->pend[i]);
	stat_add(&lc->stats.tx_dropped, tx->n);
	tx->n = 0;
	tx->served = false;
	lc->blocked &= ~(1ull << port);
	/* What these QPs build from now on is dropped. */
	karst_core_unpark(lc->core, &tx->back, UINT32_MAX);
	karst_core_unpark(lc->core, &tx->parked, UINT32_MAX);
}

static int
leave_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct serve_call *call = arg;
	struct eng_port *p = &lc->e->port[call->port];
	uint32_t i, k = 0;

	for (i = 0; i < lc->nrxq; i++) {
		if (lc->rxq[i].port != call->port) {
			lc->rxq[k++] = lc->rxq[i];
			continue;
		}
		unwatch_port(lc, &lc->rxq[i]);
	}
	lc->nrxq = k;
	close_txq(lc, call->port);
	close_txq(lc, karst_engine_port_loop(lc->e, call->port));
	if (p->home == lc->index) {
		lc->tapped &= ~(1u << call->port);
		p->neigh = NULL;
		p->members = NULL;
		p->tap = NULL;
	}
	return 0;
}

/* Calls @fn on each lcore that serves the port; the home lcore is first or last. */
static void
port_on_lcores(struct karst_engine *e, uint8_t port, eng_fn fn, bool home_last)
{
	const struct eng_port *p = &e->port[port];
	struct serve_call call = {.port = port};
	uint16_t home_queue = 0;
	uint32_t i;

	for (i = 0; i < e->nlcores; i++) {
		if ((p->info.lcore_mask >> i & 1) == 0)
			continue;
		if (i == p->home && home_last)
			home_queue = call.queue;
		else
			eng_mailbox_call(&e->lcore[i], fn, &call);
		call.queue++;
	}
	call.queue = home_queue;
	if (home_last)
		eng_mailbox_call(&e->lcore[p->home], fn, &call);
}

/* Frees what make_link() has created. */
static void
free_link(struct eng_members *members, struct eng_neigh *nb, struct eng_tap *tap)
{
	eng_member_destroy(members);
	eng_neigh_destroy(nb);
	eng_tap_destroy(tap);
}

int
eng_port_join(struct karst_engine *e, uint8_t port)
{
	struct eng_port *p = &e->port[port];
	int ret = 0;

	if (p->ops->make_link != NULL)
		ret = p->ops->make_link(e, port);
	if (ret != 0) {
		free_link(p->members, p->neigh, p->tap);
		return ret;
	}
	if (p->tap != NULL)
		eng_tap_carrier(p->tap, p->info.link_up);
	port_on_lcores(e, port, serve_on_lcore, false);
	/* release, pairs with the acquire in eng_port_present() */
	atomic_store_explicit(&p->present, true, memory_order_release);
	if (p->ops->announce != NULL)
		p->ops->announce(e, port);
	return 0;
}

void
eng_port_stop(struct eng_port *p)
{
	if (p->ops->stop != NULL)
		p->ops->stop(p);
}

int
eng_port_remove(struct karst_engine *e, uint8_t port)
{
	struct eng_port *p = &e->port[port];
	struct eng_members *members = p->members;
	struct eng_neigh *nb = p->neigh;
	struct eng_tap *tap = p->tap;

	if (!eng_port_present(e, port)) {
		karst_log(KARST_LOG_ERR, "%s: port %u does not exist", e->name, port);
		return -EINVAL;
	}
	atomic_store_explicit(&p->present, false, memory_order_relaxed);
	port_on_lcores(e, port, leave_on_lcore, true);
	eng_port_stop(p);
	eng_member_kernel_fini(p);
	free_link(members, nb, tap);
	return 0;
}

int
karst_engine_port_remove(struct karst_engine *e, uint8_t port)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = eng_port_remove(e, port);
	eng_ctl_leave(e);
	return ret;
}

static int
rewatch_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct serve_call *call = arg;
	uint32_t i;

	for (i = 0; i < lc->nrxq; i++) {
		struct eng_rxq *q = &lc->rxq[i];

		if (q->port != call->port)
			continue;
		unwatch_port(lc, q);
		q->wake_fd = watch_port(lc, lc->e->port[call->port].wake_fd[call->queue]);
		lc->nblind += q->wake_fd < 0;
	}
	return 0;
}

int
karst_engine_port_set_wake_fds(struct karst_engine *e, uint8_t port, const int *fds, uint32_t n)
{
	struct eng_port *p = &e->port[port];
	int ret = eng_ctl_enter(e);
	uint32_t i;

	if (ret != 0)
		return ret;
	if (!eng_port_present(e, port) || (n > 1 && n != p->nq)) {
		karst_log(KARST_LOG_ERR,
			"%s: port %u: %u descriptors to wait for; one for all "
			"queues, or one for each of a port that is there",
			e->name, port, n);
		ret = -EINVAL;
	} else {
		for (i = 0; i < p->nq; i++)
			p->wake_fd[i] = n == 0 ? -1 : fds[n == 1 ? 0 : i];
		port_on_lcores(e, port, rewatch_on_lcore, false);
	}
	eng_ctl_leave(e);
	return ret;
}

void
eng_port_fini(struct karst_engine *e, uint8_t port)
{
	struct eng_port *p = &e->port[port];

	if (!eng_port_present(e, port))
		return;
	eng_port_stop(p);
	eng_member_kernel_fini(p);
	free_link(p->members, p->neigh, p->tap);
}

/* --- events and links --- */

struct event_call {
	struct karst_engine_event ev;
};

static int
event_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct event_call *call = arg;

	eng_async_event_all(lc, &call->ev);
	return 0;
}

void
eng_port_event(struct karst_engine *e, uint8_t port, enum karst_async_event_code event)
{
	struct event_call call = {.ev = {.event = event, .port = port}};

	eng_mailbox_call(&e->lcore[e->port[port].home], event_on_lcore, &call);
}

/* Checks the link of a port.  @return whether the link has gone up or down. */
static bool
link_look(struct eng_port *p)
{
	bool up = true, was = __atomic_load_n(&p->info.link_up, __ATOMIC_RELAXED);
	uint32_t mbps = 0;

	if (p->ops->link != NULL)
		up = p->ops->link(p, &mbps);
	__atomic_store_n(&p->info.link_mbps, mbps, __ATOMIC_RELAXED);
	__atomic_store_n(&p->info.link_up, up, __ATOMIC_RELAXED);
	if (up != was && p->tap != NULL)
		eng_tap_carrier(p->tap, up);
	return up != was;
}

void
eng_port_link_init(struct eng_port *p)
{
	link_look(p);
}

static int
line_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct serve_call *call = arg;

	lc->core->line_mbps[call->port] = lc->e->port[call->port].info.link_mbps;
	return 0;
}

/* Rates that CNPs reduce begin at the rate of the link (E2), which may be another one after a cable
 * was plugged in. */
static bool
link_follow(struct karst_engine *e, uint8_t port)
{
	struct eng_port *p = &e->port[port];
	uint32_t mbps = p->info.link_mbps;
	bool changed = link_look(p);

	if (p->info.link_mbps != mbps)
		port_on_lcores(e, port, line_on_lcore, false);
	return changed;
}

int
karst_engine_links_check(struct karst_engine *e)
{
	int ret = eng_ctl_enter(e), changed = 0;
	unsigned int i;

	if (ret != 0)
		return ret;
	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++) {
		struct eng_port *p = &e->port[i];

		if (!eng_port_present(e, i) || !link_follow(e, (uint8_t)i))
			continue;
		changed++;
		karst_log(KARST_LOG_NOTICE, "%s: port %u (%s): link %s", e->name, i, p->name,
			p->info.link_up ? "up" : "down");
		eng_port_event(e, (uint8_t)i,
			p->info.link_up ? KARST_EVENT_PORT_ACTIVE : KARST_EVENT_PORT_ERR);
	}
	eng_ctl_leave(e);
	return changed;
}
