/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Builds the headers in front of each packet from a resolved path (W1); and the table of address
 * handles, which are such headers for UD.
 *
 * The control thread writes an address handle, and any lcore reads it.  Its slot has a state word
 * that is published last and withdrawn first.  The number of a handle contains a generation, so a
 * work request with the number of a destroyed handle matches none.  Nor does one with the number of
 * a handle whose source address the port does not have at the moment.
 */
#include "qp_priv.h"

#include <errno.h>

#define ROCE_PORT_MIN 0xc000u

static bool
gid_is_zero(const uint8_t *p, size_t n)
{
	while (n > 0 && p[n - 1] == 0)
		n--;
	return n == 0;
}

int
karst_path_check(const struct karst_path *path)
{
	const uint8_t *s = path->src_ip, *d = path->dst_ip;

	if (path->udp_sport != 0 && path->udp_sport < ROCE_PORT_MIN)
		return -EINVAL;
	if (path->flow_label > 0xfffff)
		return -EINVAL;
	if (path->ip6)
		return gid_is_zero(s, 16) || gid_is_zero(d, 16) ? -EINVAL : 0;
	return gid_is_zero(s + 12, 4) || gid_is_zero(d + 12, 4) ? -EINVAL : 0;
}

/* W1: constant for a QP; without a flow label derived from the two QPNs. */
static uint16_t
source_port(const struct karst_path *path, uint32_t sqpn, uint32_t dqpn)
{
	uint32_t v = path->flow_label;

	if (path->udp_sport != 0)
		return path->udp_sport;
	if (v == 0) {
		uint64_t x = (uint64_t)sqpn * dqpn;

		x ^= x >> 20;
		x ^= x >> 40;
		v = (uint32_t)x & 0xfffff;
	}
	/* the upper bits of the label are folded in, so that all of it counts */
	return (uint16_t)(((v & 0x3fff) ^ ((v & 0xfc000) >> 14)) | ROCE_PORT_MIN);
}

static uint8_t *
put_ip4(struct karst_tmpl *t, uint8_t *p, const struct karst_path *path, uint8_t tclass)
{
	uint32_t sum = 0;
	unsigned int i;

	p[0] = 0x45;
	p[1] = tclass;
	p[6] = 0x40; /* DF */
	p[8] = path->hop_limit != 0 ? path->hop_limit : 64;
	p[9] = 17; /* UDP */
	memcpy(p + 12, path->src_ip + 12, 4);
	memcpy(p + 16, path->dst_ip + 12, 4);
	for (i = 0; i < KARST_IP4_LEN; i += 2)
		sum += karst_get_be16(p + i);
	sum = (sum & 0xffff) + (sum >> 16);
	t->ip_sum = (uint16_t)(sum + (sum >> 16));
	return p + KARST_IP4_LEN;
}

static uint8_t *
put_ip6(uint8_t *p, const struct karst_path *path, uint8_t tclass)
{
	karst_put_be32(p, 6u << 28 | (uint32_t)tclass << 20 | path->flow_label);
	p[6] = 17; /* UDP */
	p[7] = path->hop_limit != 0 ? path->hop_limit : 64;
	memcpy(p + 8, path->src_ip, 16);
	memcpy(p + 24, path->dst_ip, 16);
	return p + KARST_IP6_LEN;
}

void
karst_tmpl_init(struct karst_tmpl *t, const struct karst_path *path, uint8_t tclass, uint32_t sqpn,
	uint32_t dqpn, uint16_t pkey)
{
	uint8_t *p = t->bytes;

	memset(t, 0, sizeof(*t));
	memcpy(p, path->dst_mac, 6);
	memcpy(p + 6, path->src_mac, 6);
	p += 12;
	if (path->has_vlan) {
		karst_put_be16(p, 0x8100);
		karst_put_be16(p + 2, path->vlan_tci);
		p += KARST_VLAN_LEN;
	}
	karst_put_be16(p, path->ip6 ? 0x86dd : 0x0800);
	p += 2;
	t->l3_off = (uint8_t)(p - t->bytes);
	p = path->ip6 ? put_ip6(p, path, tclass) : put_ip4(t, p, path, tclass);
	karst_put_be16(p, source_port(path, sqpn, dqpn));
	karst_put_be16(p + 2, KARST_ROCE_UDP_PORT);
	p += KARST_UDP_LEN;
	t->bth_off = (uint8_t)(p - t->bytes);
	karst_bth_init(p, 0, 0, 0, pkey, dqpn, false, 0);
	t->ip6 = path->ip6;
	t->port = path->port;
}

void
karst_path_multicast_mac(struct karst_path *path)
{
	if (path->ip6) {
		path->dst_mac[0] = path->dst_mac[1] = 0x33;
		memcpy(path->dst_mac + 2, path->dst_ip + 12, 4);
	} else {
		path->dst_mac[0] = 0x01;
		path->dst_mac[1] = 0x00;
		path->dst_mac[2] = 0x5e;
		path->dst_mac[3] = path->dst_ip[13] & 0x7f;
		memcpy(path->dst_mac + 4, path->dst_ip + 14, 2);
	}
}

/* --- address handles --- */

struct ah {
	struct karst_tmpl tmpl;
	uint32_t pd;
	_Atomic uint32_t number; /* 0: free, or suspended */
	uint32_t held;           /* the number that its owner has; 0: free */
	uint8_t src_ip[16];      /* IPv4: mapped */
	uint32_t generation;
	uint32_t next_free;
} karst_cache_aligned;

struct karst_ah_table {
	uint32_t mask; /* slots - 1 */
	uint32_t bits;
	uint32_t free_head; /* slot + 1; 0 = none; slots are reused first in, first out */
	uint32_t free_tail;
	bool ect;
	struct ah ah[];
};

static uint32_t
ah_slots(uint32_t max_ahs)
{
	return max_ahs == 0 || max_ahs > 1u << 20 ? 0 : karst_pow2_ceil(max_ahs);
}

size_t
karst_ah_table_bytes(uint32_t max_ahs)
{
	uint32_t n = ah_slots(max_ahs);

	return n == 0 ? 0 : sizeof(struct karst_ah_table) + (size_t)n * sizeof(struct ah);
}

int
karst_ah_table_init(void *buf, uint32_t max_ahs, struct karst_ah_table **table)
{
	uint32_t i, n = ah_slots(max_ahs);
	struct karst_ah_table *t = buf;

	if (n == 0)
		return -EINVAL;
	memset(t, 0, karst_ah_table_bytes(max_ahs));
	t->mask = n - 1;
	t->bits = karst_log2(n);
	for (i = 0; i < n; i++)
		t->ah[i].next_free = i + 1 < n ? i + 2 : 0;
	t->free_head = 1;
	t->free_tail = n;
	*table = t;
	return 0;
}

void
karst_ah_table_set_ect(struct karst_ah_table *t, bool ect)
{
	t->ect = ect;
}

int
karst_ah_create(struct karst_ah_table *t, uint32_t pd, const struct karst_path *path, uint32_t *ah)
{
	uint32_t slot = t->free_head - 1, number;
	struct ah *a;
	int rc = karst_path_check(path);

	if (rc != 0)
		return rc;
	if (t->free_head == 0)
		return -ENOSPC;
	a = &t->ah[slot];
	t->free_head = a->next_free;
	if (t->free_head == 0)
		t->free_tail = 0;
	do {
		number = ++a->generation << t->bits | slot;
	} while (number == 0);
	karst_tmpl_init(&a->tmpl, path, karst_tclass(path, t->ect), slot, a->generation, 0xffff);
	memcpy(a->src_ip, path->src_ip, sizeof(a->src_ip));
	if (!path->ip6) {
		memset(a->src_ip, 0, 10);
		memset(a->src_ip + 10, 0xff, 2);
	}
	a->pd = pd;
	a->held = number;
	/* release, pairs with the acquire in karst_ah_lookup(): the headers are written */
	atomic_store_explicit(&a->number, number, memory_order_release);
	*ah = number;
	return 0;
}

int
karst_ah_destroy(struct karst_ah_table *t, uint32_t number)
{
	uint32_t slot = number & t->mask;
	struct ah *a = &t->ah[slot];

	if (number == 0 || a->held != number)
		return -EINVAL;
	a->held = 0;
	/* relaxed: a reader that still sees it finishes with intact headers, because the slot goes
	 * to the end of the free list and the caller waits for quiescence before it can be
	 * reused */
	atomic_store_explicit(&a->number, 0, memory_order_relaxed);
	a->next_free = 0;
	if (t->free_tail != 0)
		t->ah[t->free_tail - 1].next_free = slot + 1;
	else
		t->free_head = slot + 1;
	t->free_tail = slot + 1;
	return 0;
}

void
karst_ah_suspend(struct karst_ah_table *t,
	bool (*may)(const void *user, uint8_t port, const uint8_t src_ip[16]), const void *user)
{
	uint32_t i;

	for (i = 0; i <= t->mask; i++) {
		struct ah *a = &t->ah[i];

		/* release: as in karst_ah_create() */
		if (a->held != 0)
			atomic_store_explicit(&a->number,
				may(user, a->tmpl.port, a->src_ip) ? a->held : 0,
				memory_order_release);
	}
}

uint32_t
karst_ah_pd(const struct karst_ah_table *t, uint32_t number)
{
	return t->ah[number & t->mask].pd;
}

const struct karst_tmpl *
karst_ah_lookup(const struct karst_ah_table *t, uint32_t number, uint32_t pd)
{
	const struct ah *a;

	if (t == NULL || number == 0)
		return NULL;
	a = &t->ah[number & t->mask];
	/* acquire, pairs with the release in karst_ah_create() */
	if (atomic_load_explicit(&a->number, memory_order_acquire) != number || a->pd != pd)
		return NULL;
	return &a->tmpl;
}
