/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * lib/cm of a host, connected to QP 1 as in an engine.  Each message is a UD SEND ONLY of 256
 * bytes, which is sent before all frames of the queue pairs and crosses the network like any other
 * frame; timers are events.  If connections must take no time (connect.c), the same frames are
 * delivered directly, one after the other.
 */
#include <errno.h>

#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_prf.h"
#include "sim.h"

/* The same as those of QP 1 of an engine (W1). */
#define UDP_SPORT 0xc001u
#define PKEY      0xffffu
#define TTL       64u
#define IP_DF     0x4000u
/* As in an engine: the timeout of an answer, 1.07 s, as an exponent; 16 attempts in total. */
#define RESPONSE_TIMEOUT 18u
#define EXPIRE_AT_ONCE   64u
/* The default of an engine. */
#define HALF_OPEN_MOST 2048u

void
fab_address(uint8_t ip[16], uint8_t mac[6], uint32_t host)
{
	memset(ip, 0, 16);
	memset(mac, 0, 6);
	ip[10] = ip[11] = 0xff;
	ip[12] = 10;
	ip[13] = (uint8_t)((host + 1) >> 16);
	ip[14] = (uint8_t)((host + 1) >> 8);
	ip[15] = (uint8_t)(host + 1);
	mac[0] = 2;
	memcpy(mac + 3, ip + 13, 3);
}

/* --- sending --- */

static uint8_t *
mad_get(struct fab_sim *s)
{
	uint8_t *mad = s->free_mads;

	s->mads++;
	if (mad == NULL)
		return fab_alloc(s, KARST_CM_MAD_LEN);
	memcpy(&s->free_mads, mad, sizeof(s->free_mads));
	return mad;
}

void
fab_mad_put(struct fab_sim *s, uint8_t *mad)
{
	memcpy(mad, &s->free_mads, sizeof(s->free_mads));
	s->free_mads = mad;
	s->mads--;
}

static void
build(struct fab_host *h, uint32_t to, const uint8_t *mad, struct fab_frame *f)
{
	struct karst_frame d = {
		.ttl = TTL,
		.ip_id = 1,
		.ip_frag = IP_DF,
		.sport = UDP_SPORT,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.opcode = KARST_UD_SEND_ONLY,
			.ackreq = true,
			.pkey = PKEY,
			.dqpn = KARST_CM_QPN,
			.psn = h->mad_psn++ & 0xffffff,
			.qkey = KARST_CM_QKEY,
			.src_qpn = KARST_CM_QPN,
			.pay = mad,
			.pay_len = KARST_CM_MAD_LEN},
	};
	uint8_t src[16], dst[16], all[2 * KARST_CM_MAD_LEN];
	struct karst_pkt pkt = {.opcode = KARST_UD_SEND_ONLY};
	int len;

	fab_address(src, d.smac, h->id);
	fab_address(dst, d.dmac, to);
	memcpy(d.saddr, src + 12, 4);
	memcpy(d.daddr, dst + 12, 4);
	len = karst_build_frame(all, sizeof(all), &d);
	assert(len > 0);
	memcpy(f->data, all, FAB_HEAD);
	pkt.len = (uint16_t)len;
	fab_frame_sent(f, &pkt);
	/* it is no request of the workload */
	f->request = false;
}

static void
on_send(void *user, const struct karst_cm_path *path, const uint8_t *mad)
{
	struct fab_host *h = user;
	struct fab_sim *s = h->s;
	struct fab_frame *f = fab_frame_get(s);

	build(h, (karst_get_be32(path->remote_ip + 12) & 0xffffff) - 1, mad, f);
	f->mad = mad_get(s);
	memcpy(f->mad, mad, KARST_CM_MAD_LEN);
	if (s->at_once) {
		*s->handed_tail = f;
		s->handed_tail = &f->next;
	} else {
		*h->mads_tail = f;
		h->mads_tail = &f->next;
	}
}

struct fab_frame *
fab_gsi_next(struct fab_host *h)
{
	struct fab_frame *f = h->mads;

	if (f == NULL)
		return NULL;
	h->mads = f->next;
	if (h->mads == NULL)
		h->mads_tail = &h->mads;
	f->next = NULL;
	return f;
}

/* --- receiving --- */

void
fab_gsi_rx(struct fab_sim *s, struct fab_host *h, const struct karst_pkt *pkt)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);
	struct karst_cm_path seen = {.pkey = pkt->pkey, .hop_limit = TTL};
	uint8_t mac[6];

	if (pkt->opcode != KARST_UD_SEND_ONLY || pkt->src_qpn != KARST_CM_QPN ||
		pkt->qkey != KARST_CM_QKEY || pkt->pay_len != KARST_CM_MAD_LEN)
		fab_bail(s, -EINVAL, "host %u: QP 1 has got what is no message of lib/cm", h->id);
	fab_address(seen.local_ip, mac, (karst_get_be32(karst_ip4_dst(l3)) & 0xffffff) - 1);
	fab_address(seen.remote_ip, mac, (karst_get_be32(karst_ip4_src(l3)) & 0xffffff) - 1);
	fab_host_enter(s, h);
	karst_cm_rx(h->cm, &seen, pkt->data + pkt->pay_off, pkt->pay_len);
	fab_gsi_run(s, h);
}

/* Delivers messages until no host has any left. */
static void
hand_over(struct fab_sim *s)
{
	struct fab_frame *f;

	if (s->handing)
		return;
	s->handing = true;
	while ((f = s->handed) != NULL) {
		s->handed = f->next;
		if (s->handed == NULL)
			s->handed_tail = &s->handed;
		f->at = &s->host[f->dst].port;
		fab_host_rx(s, f);
	}
	s->handing = false;
}

/* --- timers --- */

static void
cm_wake(struct fab_sim *s, void *arg)
{
	struct fab_host *h = arg;

	/* the event is obsolete: an earlier one has replaced it */
	if (h->cm_wake_ps != s->now_ps)
		return;
	h->cm_wake_ps = UINT64_MAX;
	fab_host_enter(s, h);
	while (karst_cm_expire(h->cm, EXPIRE_AT_ONCE) == EXPIRE_AT_ONCE)
		;
	fab_gsi_run(s, h);
}

void
fab_gsi_arm(struct fab_sim *s, struct fab_host *h)
{
	uint64_t ns = karst_cm_next_ns(h->cm), ps;

	if (ns == UINT64_MAX)
		return;
	ps = fab_host_moment_ps(s, ns);
	if (ps >= h->cm_wake_ps)
		return;
	h->cm_wake_ps = ps;
	fab_event_add(s, ps, cm_wake, h);
}

void
fab_gsi_run(struct fab_sim *s, struct fab_host *h)
{
	fab_gsi_arm(s, h);
	if (s->at_once)
		hand_over(s);
	else if (h->mads != NULL)
		fab_host_run(s, h);
}

/* --- life --- */

static const struct karst_cm_ops cm_ops = {.send = on_send, .event = fab_connect_event};

void
fab_gsi_init(struct fab_sim *s, struct fab_host *h)
{
	uint32_t ids = (uint32_t)fab_config_ids(s->c, h->id), listener;
	/* all may be from one peer, which may have half of the half-open connections */
	uint32_t half_open = karst_min_u32(2 * ids, HALF_OPEN_MOST);
	struct karst_cm_config cfg = {
		/* the listener needs one, too */
		.max_ids = half_open > ids ? half_open : ids + 1,
		.max_half_open = half_open,
		.guid = h->id + 1,
		.response_timeout = RESPONSE_TIMEOUT,
		.ops = &cm_ops,
		.user = h,
	};
	int rc;

	karst_prf_derive(s->secret, 2, h->id, cfg.secret);
	h->cm_wake_ps = UINT64_MAX;
	h->mads_tail = &h->mads;
	rc = karst_cm_init(fab_reserve(s, karst_cm_bytes(&cfg)), &cfg, 0, &h->cm);
	if (rc == 0)
		/* any service id: it is the number of the connection */
		rc = karst_cm_id_listen(h->cm, 0, 0, NULL, &listener);
	if (rc != 0)
		fab_bail(s, rc, "lib/cm of host %u: %s", h->id, strerror(-rc));
}
