/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ports that are added, are removed, change addresses and lose their link,
 * while lcores run. */
#include <criterion/criterion.h>
#include <rte_ethdev.h>

#include "engine_bed.h"
#include "karst_neigh.h"
#include "karst_owner.h"

#define BUF 65536u

struct seen {
	atomic_uint gid_change, port_err, port_active, port_gone;
	atomic_uint port;
};

static void
on_event(void *user, const struct karst_engine_event *event)
{
	struct seen *seen = user;

	atomic_store(&seen->port, event->port);
	if (event->event == KARST_EVENT_GID_CHANGE)
		atomic_fetch_add(&seen->gid_change, 1);
	else if (event->event == KARST_EVENT_PORT_ERR)
		atomic_fetch_add(&seen->port_err, 1);
	else if (event->event == KARST_EVENT_PORT_ACTIVE)
		atomic_fetch_add(&seen->port_active, 1);
	else if (event->event == KARST_EVENT_PORT_GONE)
		atomic_fetch_add(&seen->port_gone, 1);
}

static const struct karst_engine_ops ops = {.async_event = on_event};

/* The peer asks for a new address and gets an answer; for the old address it
 * gets none. */
Test(port_life, addresses)
{
	struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000064);
	struct seen own = {0}, other = {0};
	const struct engine_bed_config cfg = {.engine = {.ops = &ops, .user = &own}};
	const struct karst_engine_owner_init init = {.name = "other", .ops = &ops, .user = &other};
	const struct karst_engine_resolve_opts opts = {.timeout_ms = 20000},
					       brief = {.timeout_ms = 50};
	struct karst_engine_owner *owner;
	struct karst_engine_port_info info;
	struct engine_bed_poller poller;
	struct karst_path path;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(karst_engine_owner_create(bed.e, &init, &owner), 0);
	engine_bed_poller_start(&poller, &bed, 1);
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, bed.port[1], 1, &addr), 0);
	cr_assert_eq(atomic_load(&own.gid_change), 1);
	cr_assert_eq(atomic_load(&other.gid_change), 1);
	cr_assert_eq(atomic_load(&other.port), bed.port[1]);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[1], &info), 0);
	cr_assert_eq(info.num_addrs, 1);
	cr_assert_arr_eq(info.addrs[0].ip, addr.ip, 16);
	cr_assert_eq(karst_engine_resolve(bed.e, bed.port[0], 0, addr.ip, &opts, &path), 0);
	cr_assert_eq(karst_engine_resolve(bed.e, bed.port[0], 0,
			     karst_engine_addr_ip4(0x0a000002).ip, &brief, &path),
		-EHOSTUNREACH);
	cr_assert_eq(karst_engine_resolve(bed.e, bed.port[1], 1, addr.ip, &opts, &path), -EINVAL);
	engine_bed_poller_stop(&poller);
	cr_assert_eq(karst_engine_owner_destroy(owner), 0);
	engine_bed_down(&bed);
}

/* A queue pair that sends datagrams from the second port, by a handle whose
 * source is that port's address. */
struct datagrams {
	struct engine_bed bed;
	struct karst_engine_qp *qp;
	uint8_t mem[64];
	uint32_t key, ah;
};

static const struct karst_engine_addr first_port[] = {{.ip = {[10] = 0xff, 0xff, 10, 0, 0, 1}}};
static const struct karst_engine_addr handles_own[] = {{.ip = {[10] = 0xff, 0xff, 10, 0, 0, 2}}};
static const struct karst_engine_addr another[] = {{.ip = {[10] = 0xff, 0xff, 10, 0, 0, 102}}};

static void
set_addr(const struct datagrams *d, unsigned int side, const struct karst_engine_addr *addr)
{
	cr_assert_eq(karst_engine_port_set_addrs(d->bed.e, d->bed.port[side], 1, addr), 0);
}

/* From RESET to RTS. */
static void
datagrams_ready(struct datagrams *d)
{
	struct karst_core_qp_attr attr;
	enum karst_qp_state to;

	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		unsigned int mask = engine_bed_attr(&d->bed, KARST_QPT_UD, 1, 0, to, &attr);

		cr_assert_eq(karst_engine_qp_modify(d->bed.e, d->qp, &attr, mask), 0, "to %d", to);
	}
}

static void
datagrams_up(struct datagrams *d)
{
	struct karst_engine_port_info dst;
	struct karst_path path;

	engine_bed_up(&d->bed, &(struct engine_bed_config){0});
	set_addr(d, 0, first_port);
	set_addr(d, 1, handles_own);
	d->key = engine_bed_mr(&d->bed, d->mem, sizeof(d->mem));
	d->qp = engine_bed_qp(&d->bed, KARST_QPT_UD, 0);
	datagrams_ready(d);
	cr_assert_eq(karst_engine_port_info(d->bed.e, d->bed.port[0], &dst), 0);
	cr_assert_eq(karst_engine_path_init(
			     d->bed.e, d->bed.port[1], 0, dst.mac, dst.addrs[0].ip, &path),
		0);
	cr_assert_eq(karst_engine_ah_create(d->bed.e, d->bed.pd, &path, &d->ah), 0);
}

/* Whether a datagram by the handle is sent; otherwise its request fails. */
static bool
datagram_leaves(struct datagrams *d)
{
	const struct karst_core_qp_attr rts = {.qp_state = KARST_QPS_RTS};
	struct karst_send_wqe *w = karst_engine_send_slot(d->qp, 0);
	struct karst_cqe cqe;

	*w = (struct karst_send_wqe){
		.opcode = KARST_WR_SEND, .flags = KARST_SEND_SIGNALED, .num = 1};
	w->ud.ah = d->ah;
	w->ud.remote_qpn = 5;
	w->sge[0] = (struct karst_sge){
		.addr = (uintptr_t)d->mem, .len = sizeof(d->mem), .lkey = d->key};
	cr_assert_eq(karst_engine_post_send(d->qp, 1), 0);
	cr_assert(engine_bed_wait(&d->bed, &cqe));
	if (cqe.status == KARST_WC_SUCCESS)
		return true;
	cr_assert_eq(cqe.status, KARST_WC_LOC_QP_OP_ERR, "status %u", cqe.status);
	cr_assert_eq(karst_engine_qp_modify(d->bed.e, d->qp, &rts, KARST_QP_STATE), 0);
	return false;
}

/* The second port is lost and comes back with one address. */
static void
comes_back_with(struct datagrams *d, const struct karst_engine_addr *addr)
{
	const struct karst_engine_port_config port = {.ethdev = d->bed.ethdev[1],
		.number = d->bed.port[1] + 1u,
		.mac = {2, 0, 0, 0, 0, 2},
		.num_addrs = 1,
		.addrs = addr};
	const struct karst_core_qp_attr reset = {.qp_state = KARST_QPS_RESET};

	cr_assert_eq(karst_engine_port_lose(d->bed.e, d->bed.port[1]), 0);
	cr_assert_eq(karst_engine_port_add(d->bed.e, &port, &d->bed.port[1]), 0);
	cr_assert_eq(karst_engine_qp_modify(d->bed.e, d->qp, &reset, KARST_QP_STATE), 0);
	datagrams_ready(d);
}

/* Nothing leaves from an address that was removed, whatever changes at another
 * port. */
Test(port_life, datagrams_from_a_removed_address)
{
	struct datagrams d;

	datagrams_up(&d);
	cr_assert(datagram_leaves(&d));
	set_addr(&d, 0, another);
	cr_assert(datagram_leaves(&d), "another port has changed");
	set_addr(&d, 1, another);
	cr_assert_not(datagram_leaves(&d), "the address is removed");
	set_addr(&d, 0, first_port);
	cr_assert_not(datagram_leaves(&d), "the address is removed, and another port has changed");
	set_addr(&d, 0, handles_own);
	cr_assert_not(datagram_leaves(&d), "another port has the address");
	set_addr(&d, 0, first_port);
	set_addr(&d, 1, handles_own);
	cr_assert(datagram_leaves(&d), "the address is back");
	engine_bed_down(&d.bed);
}

/* The second port gets another address, then its own again.  It is lost and comes back for one of
 * these changes: for the first one, if @without is set. */
static void
comes_back(bool without)
{
	struct datagrams d;

	datagrams_up(&d);
	if (without)
		comes_back_with(&d, another);
	else
		set_addr(&d, 1, another);
	cr_assert_not(datagram_leaves(&d), "the port has another address");
	if (without)
		set_addr(&d, 1, handles_own);
	else
		comes_back_with(&d, handles_own);
	cr_assert(datagram_leaves(&d), "the address is back");
	engine_bed_down(&d.bed);
}

Test(port_life, datagrams_from_a_port_that_comes_back_without_the_address)
{
	comes_back(true);
}

Test(port_life, datagrams_from_a_port_that_comes_back_with_the_address)
{
	comes_back(false);
}

static void
expect_places(const struct engine_bed *bed, const uint8_t *last, uint32_t n)
{
	struct karst_engine_port_info info;
	uint32_t i;

	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[0], &info), 0);
	cr_assert_eq(info.num_addrs, n, "%u places", info.num_addrs);
	for (i = 0; i < n; i++)
		cr_assert_eq(
			info.addrs[i].ip[15], last[i], "place %u: %u", i, info.addrs[i].ip[15]);
}

/* Sets the first port's addresses: those of net 10 with these last bytes; 0: no
 * address in this place. */
static void
set_places(const struct engine_bed *bed, const uint8_t *last, uint32_t n)
{
	struct karst_engine_addr addrs[KARST_ENGINE_MAX_ADDRS];
	uint32_t i;

	for (i = 0; i < n; i++)
		addrs[i] = karst_engine_addr_ip4(0x0a000000u + last[i]);
	cr_assert_eq(karst_engine_port_set_addrs(bed->e, bed->port[0], n, addrs), 0);
}

/* Programs name an address by its place (index). */
Test(port_life, addresses_keep_their_places)
{
	static const struct karst_engine_addr none;
	const struct karst_engine_addr ip6 = {.ip = {0xfe, 0x80, [15] = 7}, .prefix = 64};
	const uint8_t mac[6] = {2, 7, 7, 7, 7, 7};
	uint8_t many[KARST_ENGINE_MAX_ADDRS];
	struct engine_bed bed;
	struct karst_path path;
	uint8_t i;

	engine_bed_up(&bed, &(struct engine_bed_config){0});
	set_places(&bed, (const uint8_t[]){21, 22, 23}, 3);
	expect_places(&bed, (const uint8_t[]){21, 22, 23}, 3);
	/* in another order */
	set_places(&bed, (const uint8_t[]){23, 21, 22}, 3);
	expect_places(&bed, (const uint8_t[]){21, 22, 23}, 3);
	/* one is removed, and its place cannot be used */
	set_places(&bed, (const uint8_t[]){22, 23}, 2);
	expect_places(&bed, (const uint8_t[]){0, 22, 23}, 3);
	cr_assert_eq(karst_engine_path_init(bed.e, bed.port[0], 0, mac, none.ip, &path), -EINVAL);
	cr_assert_eq(karst_engine_path_init(bed.e, bed.port[0], 1, mac,
			     karst_engine_addr_ip4(0x0a000002).ip, &path),
		0);
	/* the same with another MAC address */
	cr_assert_eq(karst_engine_port_set_mac(bed.e, bed.port[0], mac), 0);
	expect_places(&bed, (const uint8_t[]){0, 22, 23}, 3);
	/* one is added, another one is removed from the end */
	set_places(&bed, (const uint8_t[]){22, 24}, 2);
	expect_places(&bed, (const uint8_t[]){24, 22}, 2);
	for (i = 0; i < KARST_ENGINE_MAX_ADDRS; i++)
		many[i] = (uint8_t)(20 + i);
	set_places(&bed, many, KARST_ENGINE_MAX_ADDRS);
	many[0] = 24;
	many[1] = 22;
	many[2] = 20;
	many[3] = 21;
	many[4] = 23;
	expect_places(&bed, many, KARST_ENGINE_MAX_ADDRS);
	/* :: stands for an empty place, and is an address neither of a port nor of a
   * peer */
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, bed.port[0], 1, &none), -EINVAL);
	cr_assert_eq(karst_engine_port_set_addrs(bed.e, bed.port[0], 1, &ip6), 0);
	cr_assert_eq(karst_engine_path_init(bed.e, bed.port[0], 0, mac, ip6.ip, &path), 0);
	cr_assert_neq(path.port, bed.port[0], "it leads back");
	cr_assert_eq(karst_engine_path_init(bed.e, bed.port[0], 0, mac, none.ip, &path), 0);
	cr_assert_eq(path.port, bed.port[0]);
	engine_bed_down(&bed);
}

/* Paths begin at the new MAC address, and the path MTU is what the new MTU
 * allows. */
Test(port_life, another_device)
{
	static const struct {
		uint16_t mtu, is;
		uint8_t path_mtu;
	} mtus[] = {{1500, 1500, 3}, {64, 64, 1}, {9000, 4180, 5}};
	const uint8_t mac[6] = {2, 7, 7, 7, 7, 7}, group[6] = {1, 0, 0x5e, 0, 0, 1};
	struct seen own = {0};
	const struct engine_bed_config cfg = {.engine = {.ops = &ops, .user = &own}};
	const struct karst_engine_resolve_opts opts = {.timeout_ms = 20000};
	struct karst_engine_port_info info;
	struct engine_bed_poller poller;
	struct karst_path path;
	struct engine_bed bed;
	size_t i;

	engine_bed_up(&bed, &cfg);
	engine_bed_poller_start(&poller, &bed, 1);
	cr_assert_eq(karst_engine_port_set_mac(bed.e, bed.port[0], group), -EINVAL);
	cr_assert_eq(karst_engine_port_set_mac(bed.e, 7, mac), -EINVAL);
	cr_assert_eq(atomic_load(&own.gid_change), 0);
	cr_assert_eq(karst_engine_port_set_mac(bed.e, bed.port[0], mac), 0);
	cr_assert_eq(atomic_load(&own.gid_change), 1);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[0], &info), 0);
	cr_assert_arr_eq(info.mac, mac, sizeof(mac));
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[1], &info), 0);
	cr_assert_eq(
		karst_engine_resolve(bed.e, bed.port[0], 0, info.addrs[0].ip, &opts, &path), 0);
	cr_assert_arr_eq(path.src_mac, mac, sizeof(mac));
	/* and a neighbour that asks gets the new address */
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[0], &info), 0);
	cr_assert_eq(
		karst_engine_resolve(bed.e, bed.port[1], 0, info.addrs[0].ip, &opts, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, sizeof(mac));
	for (i = 0; i < RTE_DIM(mtus); i++) {
		cr_assert_eq(karst_engine_port_set_mtu(bed.e, bed.port[0], mtus[i].mtu), 0);
		cr_assert_eq(karst_engine_port_info(bed.e, bed.port[0], &info), 0);
		cr_assert_eq(info.mtu, mtus[i].is, "%u: %u", mtus[i].mtu, info.mtu);
		cr_assert_eq(info.path_mtu, mtus[i].path_mtu, "%u", mtus[i].mtu);
	}
	cr_assert_eq(karst_engine_port_set_mtu(bed.e, bed.port[0], 0), -EINVAL);
	cr_assert_eq(karst_engine_port_set_mtu(bed.e, 7, 1500), -EINVAL);
	/* the engine reports the groups of this port itself */
	cr_assert_eq(karst_engine_port_join_again(bed.e, bed.port[0]), 0);
	cr_assert_eq(karst_engine_port_join_again(bed.e, 7), -EINVAL);
	engine_bed_poller_stop(&poller);
	engine_bed_down(&bed);
}

Test(port_life, links)
{
	struct seen seen = {0};
	const struct engine_bed_config cfg = {.engine = {.ops = &ops, .user = &seen}};
	struct karst_engine_port_info info;
	struct engine_bed_poller poller;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_poller_start(&poller, &bed, 1);
	karst_engine_links_check(bed.e); /* the links came up when the ports were started */
	cr_assert_eq(karst_engine_links_check(bed.e), 0);
	atomic_store(&seen.port_active, 0);
	cr_assert_eq(rte_eth_dev_set_link_down(bed.ethdev[1]), 0);
	cr_assert_eq(karst_engine_links_check(bed.e), 1);
	cr_assert_eq(atomic_load(&seen.port_err), 1);
	cr_assert_eq(atomic_load(&seen.port), bed.port[1]);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[1], &info), 0);
	cr_assert_not(info.link_up);
	cr_assert_eq(karst_engine_links_check(bed.e), 0);
	cr_assert_eq(rte_eth_dev_set_link_up(bed.ethdev[1]), 0);
	cr_assert_eq(karst_engine_links_check(bed.e), 1);
	cr_assert_eq(atomic_load(&seen.port_active), 1);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[1], &info), 0);
	cr_assert(info.link_up);
	engine_bed_poller_stop(&poller);
	engine_bed_down(&bed);
}

/* net_ring has no flow rules: it cannot be shared with the kernel, and works as
 * before after a request for it. */
Test(port_life, isolate_refused)
{
	struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000001);
	struct karst_engine_port_config port = {.num_addrs = 1, .addrs = &addr, .isolate = true};
	const struct engine_bed_config cfg = {0};
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(karst_engine_port_remove(bed.e, bed.port[0]), 0);
	port.ethdev = bed.ethdev[0];
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), -EINVAL);
	port.netdev = "eth0";
	cr_assert_lt(karst_engine_port_add(bed.e, &port, &bed.port[0]), 0);
	port.isolate = false;
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), 0);
	engine_bed_down(&bed);
}

/* A port is removed under a queue pair that sends, and comes back: lost frames
 * are sent again. */
Test(port_life, goes_under_traffic)
{
	static uint8_t from[BUF], to[BUF];
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}};
	struct karst_engine_addr addr[2] = {karst_engine_addr_ip4(0x0a000001)};
	struct karst_engine_port_config port = {
		.lcore_mask = 1, .mac = {2, 0, 0, 0, 0, 1}, .num_addrs = 1, .addrs = addr};
	struct karst_engine_qp *a, *b;
	struct engine_bed_poller poller;
	struct karst_cqe cqe;
	struct engine_bed bed;
	uint32_t lkey, rkey;
	unsigned int round, i;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	engine_bed_connect(&bed, a, b);
	lkey = engine_bed_mr(&bed, from, BUF);
	rkey = engine_bed_mr(&bed, to, BUF);
	port.ethdev = bed.ethdev[0];
	engine_bed_poller_start(&poller, &bed, 3);
	for (round = 0; round < 20; round++) {
		engine_bed_fill(from, BUF, round);
		for (i = 0; i < 8; i++)
			engine_bed_post(a, KARST_WR_RDMA_WRITE, i, from, BUF, lkey, to, rkey);
		cr_assert_eq(karst_engine_port_remove(bed.e, bed.port[0]), 0);
		cr_assert_eq(karst_engine_port_remove(bed.e, bed.port[0]), -EINVAL);
		cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), 0);
		cr_assert_eq(bed.port[0], 0, "the number is free again");
		for (i = 0; i < 8; i++) {
			cr_assert(engine_bed_wait(&bed, &cqe), "round %u", round);
			cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		}
		cr_assert_arr_eq(from, to, BUF);
	}
	engine_bed_poller_stop(&poller);
	engine_bed_down(&bed);
}

/* A device is unplugged under a queue pair that sends: posted requests are
 * flushed, the owner gets its event after that, and a queue pair of another
 * port, idle or not, is not affected.  The port that comes back has the number
 * that it had, though a lower one is free. */
Test(port_life, lost)
{
	static uint8_t from[BUF], to[BUF];
	struct seen seen = {0};
	const struct engine_bed_config cfg = {.engine = {.ops = &ops, .user = &seen}};
	struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000002);
	struct karst_engine_port_config port = {
		.mac = {2, 0, 0, 0, 0, 2}, .num_addrs = 1, .addrs = &addr};
	struct karst_core_qp_attr attr;
	struct karst_engine_qp *a, *b, *idle;
	struct karst_cqe cqe;
	struct engine_bed bed;
	uint32_t lkey, rkey;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	idle = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	engine_bed_connect(&bed, a, b);
	lkey = engine_bed_mr(&bed, from, BUF);
	rkey = engine_bed_mr(&bed, to, BUF);
	for (i = 0; i < 8; i++)
		engine_bed_post(b, KARST_WR_RDMA_WRITE, i, from, BUF, lkey, to, rkey);
	engine_bed_post_recv(b, 8, to, BUF, rkey);
	karst_engine_poll(bed.e, 0);
	cr_assert_eq(karst_engine_port_lose(bed.e, bed.port[1]), 0);
	cr_assert_eq(atomic_load(&seen.port_err), 1);
	cr_assert_eq(atomic_load(&seen.port_gone), 1);
	cr_assert_eq(atomic_load(&seen.port), bed.port[1]);
	cr_assert_eq(karst_engine_port_lose(bed.e, bed.port[1]), -EINVAL);
	for (i = 0; i < 9; i++) {
		cr_assert(engine_bed_wait(&bed, &cqe), "completion %u", i);
		cr_assert_eq(cqe.status, KARST_WC_WR_FLUSH_ERR, "completion %u: %u", i, cqe.status);
	}
	cr_assert_eq(karst_engine_qp_query(bed.e, b, &attr), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_ERR);
	cr_assert_eq(karst_engine_qp_query(bed.e, a, &attr), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_RTS);
	cr_assert_eq(karst_engine_qp_query(bed.e, idle, &attr), 0);
	cr_assert_eq(attr.qp_state, KARST_QPS_RESET);
	cr_assert_eq(karst_engine_port_remove(bed.e, bed.port[0]), 0);
	port.ethdev = bed.ethdev[1];
	port.number = bed.port[1] + 1u;
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[1]), 0);
	cr_assert_eq(bed.port[1], 1);
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), -EEXIST);
	port.number = KARST_ENGINE_MAX_PORTS + 1;
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), -EINVAL);
	engine_bed_down(&bed);
}
