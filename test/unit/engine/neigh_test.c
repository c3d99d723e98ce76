/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Neighbours and paths over two ports joined by net_ring; and frames that nobody should believe. */
#include <criterion/criterion.h>
#include <rte_arp.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "bed.h"
#include "karst_hdr.h"
#include "karst_neigh.h"

static const uint8_t mac_b[6] = {2, 0, 0, 0, 0, 2};

static struct karst_engine_addr
addr_of(const struct bed *bed, int side, uint32_t index)
{
	struct karst_engine_port_info info;

	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[side], &info), 0);
	return info.addrs[index];
}

static int
resolve(struct bed *bed, uint32_t addr, const uint8_t ip[16], uint32_t ms, struct karst_path *path)
{
	const struct karst_engine_resolve_opts opts = {.timeout_ms = ms};

	memset(path, 0, sizeof(*path));
	return karst_engine_resolve(bed->e, bed->port[0], addr, ip, &opts, path);
}

static void
check_both_families(const struct bed_config *cfg)
{
	struct karst_path path;
	struct bed bed;
	uint32_t i;

	bed_up(&bed, cfg);
	bed_settle(&bed); /* attached, so that resolve() polls */
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
		/* the other family's source */
		cr_assert_eq(resolve(&bed, 1 - i, dst.ip, 1, &path), -EINVAL);
	}
	cr_assert_eq(resolve(&bed, 2, addr_of(&bed, 1, 0).ip, 1, &path), -EINVAL);
	bed_down(&bed);
}

Test(neigh, both_families)
{
	const struct bed_config cfg = {0};

	check_both_families(&cfg);
}

Test(neigh, tagged)
{
	const struct bed_config cfg = {.vlan = 9};

	check_both_families(&cfg);
}

/* Frames reach an lcore that is not the port's home. */
Test(neigh, by_way_of_another_lcore)
{
	const struct bed_config cfg = {.engine.lcores = 2};

	check_both_families(&cfg);
}
