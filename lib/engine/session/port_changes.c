/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Changes of a port, except of its link (port_life.c), and the events that programs get for them.
 *
 * Other addresses, another MAC address: identifiers of connection management that are bound to a
 * removed address, or to the port, get ADDR_CHANGE, and all programs GID_CHANGE.  Queue pairs do
 * not change: they continue as far as the network between them and their peers allows, and the
 * program knows that it may need other ones.
 *
 * A device that is gone: unplugged, bound to another driver, deleted, or dead.  For a verbs program
 * that port was a device, and the program must not wait until its retries are exhausted, or for
 * ever if it only receives.  So its queue pairs are moved to the Error state, which completes what
 * was posted; but a queue pair that is armed migrates to its alternate path, if that uses another
 * port, and alternate paths over the port that is gone are deleted (G5).  Identifiers of connection
 * management that are bound to the port get DEVICE_REMOVAL.  Then each program gets the events that
 * the port is down and gone; they come last, so that a program that has got them finds the rest
 * done.  Programs that use other ports lose nothing.
 *
 * An lcore processes a part of its queue pairs in one call, so that its turns stay short.
 */
#include "cm.h"
#include "member_port.h"
#include "port.h"
#include "session_priv.h"

/* Limits of one call: slots of an lcore's table, and queue pairs of the port. */
#define LOOKS 4096u
#define FAILS 64u

struct lost_call {
	uint8_t port_num; /* from 1 */
	uint32_t at;      /* slot of the table */
};

/* A queue pair that migrates gets another port. */
static uint8_t
port_num_of(const struct karst_core_qp *qp, const struct karst_core_qp_attr *is)
{
	return karst_qp_type(qp) == KARST_QPT_UD
		? ((const struct eng_qp *)karst_qp_user(qp))->port_num
		: is->port_num;
}

/* @return whether the queue pair used that port. */
static bool
lose_port(struct karst_core *core, struct karst_core_qp *qp, uint8_t port_num)
{
	const struct karst_core_qp_attr to = {
		.qp_state = KARST_QPS_ERR, .path_mig_state = KARST_MIG_MIGRATED};
	const struct karst_path *alt = karst_qp_alternate(qp);
	struct karst_core_qp_attr is;

	if (alt != NULL && eng_port_base(alt->port) + 1 == port_num)
		karst_qp_alternate_lost(core, qp);
	karst_qp_query(qp, &is);
	if (port_num_of(qp, &is) != port_num)
		return false;
	if (is.path_mig_state == KARST_MIG_ARMED &&
		karst_qp_modify(core, qp, &to, KARST_QP_PATH_MIG_STATE) == 0)
		return true;
	/* there is a transition to Error from every other state */
	karst_qp_modify(core, qp, &to, KARST_QP_STATE);
	return true;
}

/* @return 1: there are more slots to process. */
static int
fail_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct lost_call *call = arg;
	uint32_t end = karst_min_u32(lc->core->qpns, call->at + LOOKS), n = 0;

	for (; call->at < end && n < FAILS; call->at++) {
		struct karst_core_qp *qp = lc->core->qps[call->at];

		if (qp != NULL && karst_qp_state(qp) != KARST_QPS_RESET &&
			lose_port(lc->core, qp, call->port_num))
			n++;
	}
	return call->at < lc->core->qpns;
}

static void
fail_queue_pairs(struct karst_engine *e, uint8_t port)
{
	uint32_t i;

	for (i = 0; i < e->nlcores; i++) {
		struct lost_call call = {.port_num = port + 1u};

		while (eng_mailbox_call(&e->lcore[i], fail_on_lcore, &call) == 1)
			;
	}
}

/* Event for the identifiers at a port. */
struct news {
	enum karst_rdmacm_event_type event;
	uint8_t port;
	bool some; /* only for those that are bound to one of these addresses; empty places match
		    * none */
	uint32_t n;
	struct karst_engine_addr gone[KARST_ENGINE_MAX_ADDRS];
};

static bool
concerns(const struct news *news, const struct cm_id *id)
{
	uint32_t i;

	if (!id->has_port || id->port != news->port)
		return false;
	for (i = 0; i < news->n; i++)
		if (memcmp(news->gone[i].ip, id->src.ip, sizeof(id->src.ip)) == 0)
			return true;
	return !news->some;
}

static void
tell_identifiers(struct eng_cm *cm, struct karst_session *s, const struct news *news)
{
	struct cm_id *id;
	uint32_t at = 0;

	while ((id = eng_handles_next(&s->cm.ids, &at)) != NULL)
		if (concerns(news, id))
			eng_cm_event(cm, id, news->event, 0);
}

/* Takes the lock of sessions before that of connection management; no thread takes them in the
 * other order. */
static void
tell_all_identifiers(struct karst_engine *e, const struct news *news)
{
	struct karst_session *s;
	struct eng_cm *cm;

	pthread_mutex_lock(&e->session_lock);
	cm = eng_cm_enter(e);
	LIST_FOREACH(s, &e->sessions, next)
		tell_identifiers(cm, s, news);
	eng_cm_leave(cm);
	pthread_mutex_unlock(&e->session_lock);
}

int
karst_engine_port_lose(struct karst_engine *e, uint8_t port)
{
	const struct news news = {.event = KARST_RDMACM_DEVICE_REMOVAL, .port = port};
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = eng_port_remove(e, port);
	if (ret == 0) {
		fail_queue_pairs(e, port);
		tell_all_identifiers(e, &news);
		eng_port_event(e, port, KARST_EVENT_PORT_ERR);
		eng_port_event(e, port, KARST_EVENT_PORT_GONE);
	}
	eng_ctl_leave(e);
	return ret;
}

/* --- other addresses --- */

/* @fault: what is wrong with the change itself, or NULL.  To be called within a control call. */
static int
refused(struct karst_engine *e, uint8_t port, const char *what, const char *fault)
{
	if (fault == NULL && !eng_port_present(e, port))
		fault = "no such port";
	if (fault == NULL)
		return 0;
	karst_log(KARST_LOG_ERR, "%s: %s of port %u: %s", e->name, what, port, fault);
	return -EINVAL;
}

/* Finds the addresses of the port that are not among @addrs. */
static void
news_of_addrs(const struct karst_engine *e, uint8_t port, uint32_t n,
	const struct karst_engine_addr *addrs, struct news *news)
{
	struct karst_engine_port_info is;
	uint32_t i;

	*news = (struct news){.event = KARST_RDMACM_ADDR_CHANGE, .port = port, .some = true};
	if (karst_engine_port_info(e, port, &is) != 0)
		return;
	for (i = 0; i < is.num_addrs; i++)
		if (!karst_engine_ip_is_none(is.addrs[i].ip) &&
			karst_engine_addr_in(addrs, n, is.addrs[i].ip) == NULL)
			news->gone[news->n++] = is.addrs[i];
}

int
karst_engine_port_set_addrs(struct karst_engine *e, uint8_t port, uint32_t num_addrs,
	const struct karst_engine_addr *addrs)
{
	struct news news;
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = refused(e, port, "addresses", eng_port_addrs_fault(num_addrs, addrs));
	if (ret == 0) {
		news_of_addrs(e, port, num_addrs, addrs, &news);
		eng_port_set_addrs(e, port, num_addrs, addrs);
		tell_all_identifiers(e, &news);
		eng_port_event(e, port, KARST_EVENT_GID_CHANGE);
	}
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_port_set_mac(struct karst_engine *e, uint8_t port, const uint8_t mac[6])
{
	const struct news news = {.event = KARST_RDMACM_ADDR_CHANGE, .port = port};
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = refused(e, port, "MAC address", mac[0] & 1 ? "it is a group's" : NULL);
	if (ret == 0) {
		eng_port_set_mac(e, port, mac);
		tell_all_identifiers(e, &news);
		eng_port_event(e, port, KARST_EVENT_GID_CHANGE);
	}
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_port_set_mtu(struct karst_engine *e, uint8_t port, uint16_t mtu)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = refused(e, port, "MTU", mtu == 0 ? "it is 0" : NULL);
	if (ret == 0)
		eng_port_follow_mtu(e, &e->port[port], mtu);
	eng_ctl_leave(e);
	return ret;
}

int
karst_engine_port_join_again(struct karst_engine *e, uint8_t port)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = refused(e, port, "multicast groups", NULL);
	if (ret == 0)
		eng_member_kernel_renew(e, &e->port[port]);
	eng_ctl_leave(e);
	return ret;
}
