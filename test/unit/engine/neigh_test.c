/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Neighbours and paths over two ports joined by net_ring; and frames that must not be believed. */
#include <stdlib.h>

#include <criterion/criterion.h>
#include <rte_arp.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "engine_bed.h"
#include "karst_hdr.h"
#include "karst_neigh.h"

static const uint8_t mac_b[6] = {2, 0, 0, 0, 0, 2};

static struct karst_engine_addr
addr_of(const struct engine_bed *bed, int side, uint32_t index)
{
	struct karst_engine_port_info info;

	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[side], &info), 0);
	return info.addrs[index];
}

static int
resolve(struct engine_bed *bed, uint32_t addr, const uint8_t ip[16], uint32_t ms,
	struct karst_path *path)
{
	const struct karst_engine_resolve_opts opts = {.timeout_ms = ms};

	memset(path, 0, sizeof(*path));
	return karst_engine_resolve(bed->e, bed->port[0], addr, ip, &opts, path);
}

/* A caller that must not wait calls again later. */
Test(neigh, who_does_not_wait)
{
	const struct karst_engine_resolve_opts opts = {.no_wait = true, .quiet = true};
	const struct engine_bed_config cfg = {0};
	struct karst_engine_addr dst;
	struct karst_path path;
	struct engine_bed bed;
	int ret;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	dst = addr_of(&bed, 1, 0);
	cr_assert_eq(karst_engine_resolve(bed.e, bed.port[0], 0, dst.ip, &opts, &path), -EAGAIN);
	do {
		engine_bed_settle(&bed);
		ret = karst_engine_resolve(bed.e, bed.port[0], 0, dst.ip, &opts, &path);
	} while (ret == -EAGAIN);
	cr_assert_eq(ret, 0);
	cr_assert_arr_eq(path.dst_mac, mac_b, 6);
	/* no such host */
	cr_assert_eq(karst_engine_resolve(bed.e, bed.port[0], 0,
			     karst_engine_addr_ip4(0x0a000007).ip, &opts, &path),
		-EAGAIN);
	engine_bed_down(&bed);
}

static void
check_both_families(const struct engine_bed_config *cfg)
{
	struct karst_path path;
	struct engine_bed bed;
	uint32_t i;

	engine_bed_up(&bed, cfg);
	engine_bed_settle(&bed); /* attaches this thread, so that resolve() polls */
	for (i = 0; i < 2; i++) {
		struct karst_engine_addr dst = addr_of(&bed, 1, i), src = addr_of(&bed, 0, i);

		cr_assert_eq(resolve(&bed, i, dst.ip, 20000, &path), 0);
		cr_assert_arr_eq(path.dst_mac, mac_b, 6);
		cr_assert_arr_eq(path.src_ip, src.ip, 16);
		cr_assert_arr_eq(path.dst_ip, dst.ip, 16);
		cr_assert_eq(path.ip6, !karst_engine_addr_is_ip4(&dst));
		cr_assert_eq(path.has_vlan, cfg->vlan != 0);
		cr_assert_eq(path.vlan_tci, cfg->vlan);
		cr_assert_eq(path.port, bed.port[0]);
		/* a source of the other address family */
		cr_assert_eq(resolve(&bed, 1 - i, dst.ip, 1, &path), -EINVAL);
	}
	cr_assert_eq(resolve(&bed, 2, addr_of(&bed, 1, 0).ip, 1, &path), -EINVAL);
	engine_bed_down(&bed);
}

Test(neigh, both_families)
{
	const struct engine_bed_config cfg = {0};

	check_both_families(&cfg);
}

Test(neigh, tagged)
{
	const struct engine_bed_config cfg = {.vlan = 9};

	check_both_families(&cfg);
}

/* Frames arrive at an lcore that is not the port's home. */
Test(neigh, by_way_of_another_lcore)
{
	const struct engine_bed_config cfg = {.engine.lcores = 2};

	check_both_families(&cfg);
}

/* --- forged frames --- */

struct hostile {
	struct engine_bed bed;
	struct rte_mempool *pool;
};

static void
hostile_up(struct hostile *h, const struct engine_bed_config *cfg)
{
	engine_bed_up(&h->bed, cfg);
	h->pool = rte_pktmbuf_pool_create("other", 255, 0, sizeof(struct karst_pkt), 2048, 0);
	cr_assert_not_null(h->pool);
	engine_bed_settle(&h->bed);
}

static void
hostile_down(struct hostile *h)
{
	engine_bed_settle(&h->bed);
	cr_assert_eq(
		rte_mempool_avail_count(h->pool), 255, "a buffer of the other pool is missing");
	engine_bed_down(&h->bed);
	rte_mempool_free(h->pool);
}

static uint64_t
drops(struct hostile *h, enum karst_drop why)
{
	struct karst_counters now;

	karst_engine_counters(h->bed.e, KARST_ENGINE_ANY_LCORE, &now);
	return now.drop[why];
}

static uint64_t
sent(struct hostile *h)
{
	struct karst_engine_lcore_stats st;

	cr_assert_eq(karst_engine_lcore_stats(h->bed.e, 0, &st), 0);
	return st.neigh_tx;
}

/* Puts @len bytes on A's wire, in queue @queue. */
static void
put(struct hostile *h, const void *frame, uint16_t len, unsigned int queue)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(h->pool);

	cr_assert_not_null(m);
	memcpy(rte_pktmbuf_append(m, len), frame, len);
	cr_assert_eq(rte_ring_enqueue(h->bed.ring[1][queue], m), 0);
}

struct arp_frame {
	uint8_t dst[6], src[6], type[2], head[6], op[2], sha[6], spa[4], tha[6], tpa[4];
};
static_assert(sizeof(struct arp_frame) == 42, "layout");

/* A frame from 10.0.0.@host at 02:bb:...:@host to A. */
static struct arp_frame
arp(uint8_t op, uint8_t host)
{
	struct arp_frame f = {
		.dst = {2, 0, 0, 0, 0, 1},
		.src = {2, 0xbb, 0, 0, 0, host},
		.type = {8, 6},
		.head = {0, 1, 8, 0, 6, 4},
		.op = {0, op},
		.sha = {2, 0xbb, 0, 0, 0, host},
		.spa = {10, 0, 0, host},
		.tha = {2, 0, 0, 0, 0, 1},
		.tpa = {10, 0, 0, 1},
	};
	return f;
}

static void
put_arp(struct hostile *h, const struct arp_frame *f)
{
	put(h, f, sizeof(*f), 0);
	engine_bed_settle(&h->bed);
}

static unsigned int
known(struct hostile *h)
{
	int n = karst_engine_neigh_list(h->bed.e, h->bed.port[0], NULL, 0);

	cr_assert_geq(n, 0);
	return (unsigned int)n;
}

/* Nothing is learnt from an answer that was not asked for, nor from one that is for another
 * host. */
Test(neigh, forged_answers)
{
	const struct engine_bed_config cfg = {0};
	struct karst_engine_neigh list[4];
	struct karst_path path;
	struct arp_frame f;
	struct hostile h;
	unsigned int before;
	uint64_t bad;

	hostile_up(&h, &cfg);
	before = known(&h);
	cr_assert_eq(before, 0);
	bad = drops(&h, KARST_DROP_NEIGHBOUR);
	f = arp(2, 50);
	put_arp(&h, &f);
	cr_assert_eq(drops(&h, KARST_DROP_NEIGHBOUR), ++bad);
	/* asked for, and answered to another MAC address */
	cr_assert_eq(
		resolve(&h.bed, 0, karst_engine_addr_ip4(0x0a000032).ip, 1, &path), -EHOSTUNREACH);
	f.tha[5] = 9;
	put_arp(&h, &f);
	cr_assert_eq(drops(&h, KARST_DROP_NEIGHBOUR), ++bad);
	cr_assert_eq(
		resolve(&h.bed, 0, karst_engine_addr_ip4(0x0a000032).ip, 1, &path), -EHOSTUNREACH);
	/* from a group address, from our own, cut short, of another hardware type */
	f = arp(2, 50);
	f.sha[0] |= 1;
	put_arp(&h, &f);
	f = arp(1, 1);
	put_arp(&h, &f);
	f = arp(2, 50);
	put(&h, &f, 41, 0);
	f.head[1] = 7;
	put_arp(&h, &f);
	bad += 4;
	cr_assert_eq(drops(&h, KARST_DROP_NEIGHBOUR), bad);
	cr_assert_eq(known(&h), before + 1); /* the answer that was asked for */
	/* the right one */
	f = arp(2, 50);
	put_arp(&h, &f);
	cr_assert_eq(resolve(&h.bed, 0, karst_engine_addr_ip4(0x0a000032).ip, 1, &path), 0);
	cr_assert_arr_eq(path.dst_mac, f.sha, 6);
	/* a second answer, and a claim: the first address stays in use, and is asked for again */
	f.sha[1] = 0xee;
	put_arp(&h, &f);
	cr_assert_eq(drops(&h, KARST_DROP_NEIGHBOUR), ++bad);
	f = arp(1, 50);
	f.sha[1] = 0xee;
	memcpy(f.tpa, f.spa, 4);
	put_arp(&h, &f);
	cr_assert_eq(resolve(&h.bed, 0, karst_engine_addr_ip4(0x0a000032).ip, 1, &path), 0);
	cr_assert_eq(path.dst_mac[1], 0xbb);
	cr_assert_leq(karst_engine_neigh_list(h.bed.e, h.bed.port[0], list, 4), 4);
	hostile_down(&h);
}

/* Questions are answered, at a limited rate; the hosts that ask are not remembered. */
Test(neigh, flood)
{
	const struct engine_bed_config cfg = {0};
	struct karst_path path;
	struct arp_frame f;
	struct hostile h;
	unsigned int i;
	uint64_t before;

	hostile_up(&h, &cfg);
	cr_assert_eq(resolve(&h.bed, 0, addr_of(&h.bed, 1, 0).ip, 20000, &path), 0);
	before = sent(&h);
	for (i = 0; i < 20000; i++) {
		f = arp(1, 0);
		f.spa[1] = (uint8_t)(i >> 14);
		f.spa[2] = (uint8_t)(i >> 7 & 0x7f);
		f.spa[3] = (uint8_t)(i & 0x7f) | 0x80;
		put(&h, &f, sizeof(f), 0);
		if (i % 32 == 31)
			engine_bed_settle(&h.bed);
	}
	engine_bed_settle(&h.bed);
	cr_assert_eq(known(&h), 1);
	cr_assert_gt(sent(&h), before);
	/* each question is answered, or counted as dropped */
	cr_assert_eq(sent(&h) - before + drops(&h, KARST_DROP_NEIGHBOUR), 20000);
	/* still known: no question is sent */
	before = sent(&h);
	cr_assert_eq(resolve(&h.bed, 0, addr_of(&h.bed, 1, 0).ip, 1, &path), 0);
	cr_assert_eq(sent(&h), before);
	hostile_down(&h);
}

/* Random bytes in place of ARP and neighbour discovery. */
Test(neigh, noise)
{
	const struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_path path;
	unsigned int seed = 7, i, k;
	struct hostile h;

	hostile_up(&h, &cfg);
	for (i = 0; i < 20000; i++) {
		uint8_t frame[120];
		struct arp_frame f = arp((uint8_t)(1 + i % 2), (uint8_t)i);
		uint16_t len = sizeof(f);

		for (k = 0; k < sizeof(frame); k++)
			frame[k] = (uint8_t)rand_r(&seed);
		memcpy(frame, &f, sizeof(f));
		if (i % 3 != 0) {
			/* IPv6, ICMPv6, solicitation or advertisement */
			memcpy(frame + 12, "\x86\xdd\x60\0\0\0\0\x20\x3a\xff", 10);
			frame[54] = (uint8_t)(135 + i % 2);
			len = (uint16_t)(54 + (unsigned int)rand_r(&seed) % 66);
		} else {
			frame[14 + (unsigned int)rand_r(&seed) % 28] ^= (uint8_t)rand_r(&seed);
		}
		put(&h, frame, len, i % 2);
		if (i % 32 == 31)
			engine_bed_settle(&h.bed);
	}
	engine_bed_settle(&h.bed);
	cr_assert_eq(resolve(&h.bed, 0, addr_of(&h.bed, 1, 0).ip, 20000, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac_b, 6);
	hostile_down(&h);
}

/* A question arrives at another lcore than the port's home. */
Test(neigh, another_lcore)
{
	const struct engine_bed_config cfg = {.engine.lcores = 2};
	struct arp_frame f = arp(1, 60);
	struct hostile h;
	uint64_t before;

	hostile_up(&h, &cfg);
	before = sent(&h);
	put(&h, &f, sizeof(f), 1);
	engine_bed_settle(&h.bed);
	cr_assert_eq(sent(&h), before + 1);
	hostile_down(&h);
}

/* --- paths --- */

Test(neigh, groups_and_impossible_addresses)
{
	static const uint8_t group6[16] = {0xff, 0x0e, [12] = 1, 2, 3, 4};
	static const uint32_t bad4[] = {0, 0x00000001, 0x7f000001, 0xffffffff, 0xf0000001};
	static const uint8_t bad6[2][16] = {{0}, {[15] = 1}};
	const struct engine_bed_config cfg = {0};
	struct karst_path path;
	struct engine_bed bed;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	cr_assert_eq(resolve(&bed, 0, karst_engine_addr_ip4(0xef810203).ip, 1, &path), 0);
	cr_assert_arr_eq(path.dst_mac, ((const uint8_t[]){1, 0, 0x5e, 1, 2, 3}), 6);
	cr_assert_eq(resolve(&bed, 1, group6, 1, &path), 0);
	cr_assert_arr_eq(path.dst_mac, ((const uint8_t[]){0x33, 0x33, 1, 2, 3, 4}), 6);
	for (i = 0; i < KARST_DIM(bad4); i++)
		cr_assert_eq(resolve(&bed, 0, karst_engine_addr_ip4(bad4[i]).ip, 20000, &path),
			-EHOSTUNREACH);
	for (i = 0; i < 2; i++)
		cr_assert_eq(resolve(&bed, 1, bad6[i], 20000, &path), -EHOSTUNREACH);
	/* the engine itself */
	cr_assert_eq(resolve(&bed, 0, addr_of(&bed, 0, 0).ip, 1, &path), 0);
	engine_bed_down(&bed);
}

struct canceller {
	unsigned int asked;
};

static bool
until_asked_twice(void *user)
{
	struct canceller *c = user;

	return ++c->asked < 2;
}

Test(neigh, gateway_timeout_cancel)
{
	struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000001);
	struct karst_engine_port_config port = {
		.mac = {2, 0, 0, 0, 0, 1}, .num_addrs = 1, .addrs = &addr};
	struct karst_engine_resolve_opts opts = {.timeout_ms = 600000, .alive = until_asked_twice};
	const struct engine_bed_config cfg = {0};
	struct canceller c = {0};
	struct karst_path path;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	/* A once more, now with a prefix */
	cr_assert_eq(karst_engine_port_remove(bed.e, bed.port[0]), 0);
	cr_assert_eq(resolve(&bed, 0, karst_engine_addr_ip4(0x0a000002).ip, 1, &path), -EINVAL);
	addr.prefix = 24;
	port.ethdev = bed.ethdev[0];
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), 0);
	cr_assert_eq(bed.port[0], 0);
	cr_assert_eq(resolve(&bed, 0, karst_engine_addr_ip4(0x0a000002).ip, 20000, &path), 0);
	cr_assert_eq(resolve(&bed, 0, karst_engine_addr_ip4(0x0a000102).ip, 600000, &path),
		-EHOSTUNREACH);
	/* and with a gateway, which is B */
	cr_assert_eq(karst_engine_port_remove(bed.e, bed.port[0]), 0);
	port.gateway4 = karst_engine_addr_ip4(0x0a000002);
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), 0);
	cr_assert_eq(resolve(&bed, 0, karst_engine_addr_ip4(0x0a000102).ip, 20000, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac_b, 6);
	cr_assert_arr_eq(path.dst_ip, karst_engine_addr_ip4(0x0a000102).ip, 16);
	/* no such host */
	cr_assert_eq(
		resolve(&bed, 0, karst_engine_addr_ip4(0x0a000007).ip, 20, &path), -EHOSTUNREACH);
	opts.user = &c;
	cr_assert_eq(karst_engine_resolve(
			     bed.e, 0, 0, karst_engine_addr_ip4(0x0a000007).ip, &opts, &path),
		-ECANCELED);
	cr_assert_eq(c.asked, 2);
	addr.prefix = 33;
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 0, 1, &addr), -EINVAL);
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 0, 0, &addr), -EINVAL);
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, 7, 1, &addr), -EINVAL);
	engine_bed_down(&bed);
}
