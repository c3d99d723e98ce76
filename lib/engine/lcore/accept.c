/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Whether a frame is for a port: checks addresses and VLANs for the receive path.  port_addr.c
 * changes the addresses.
 */
#include "karst_hdr.h"
#include "lcore.h"

bool
eng_port_present(const struct karst_engine *e, unsigned int port)
{
	/* acquire, pairs with the release of the thread that adds the port: the port is complete */
	return port < KARST_ENGINE_MAX_PORTS &&
		atomic_load_explicit(&e->port[port].present, memory_order_acquire);
}

bool
eng_port_has_addr(const struct eng_port *p, const uint8_t ip[16])
{
	const struct eng_addrs *a = eng_port_addrs(p);

	return karst_engine_addr_in(a->addr, a->n, ip) != NULL;
}

static karst_noinline bool
accepts_slowly(const struct eng_port *port, const struct karst_pkt *pkt, enum karst_drop *why)
{
	struct karst_engine_addr dst;
	uint16_t vlan = 0;

	if (pkt->flags & KARST_PKT_VLAN)
		vlan = karst_get_be16(pkt->data + KARST_ETH_LEN) & 0xfff;
	/* A tag with VLAN id 0 carries only a priority. */
	if (vlan != port->info.vlan) {
		*why = KARST_DROP_VLAN;
		return false;
	}
	dst = eng_pkt_dst(pkt);
	if (!eng_port_has_addr(port, dst.ip) && !eng_ip_is_group(dst.ip)) {
		*why = KARST_DROP_DEST_ADDRESS;
		return false;
	}
	return true;
}

bool
eng_port_accepts(const struct eng_port *port, const struct karst_pkt *pkt, enum karst_drop *why)
{
	uint32_t dst;

	/* The common case: IPv4 without a tag, to the first address. */
	memcpy(&dst, karst_ip4_dst(pkt->data + KARST_ETH_LEN), sizeof(dst));
	if (karst_likely((pkt->flags & (KARST_PKT_IP6 | KARST_PKT_VLAN)) == 0 &&
		    dst == atomic_load_explicit(&port->ip4, memory_order_relaxed)))
		return true;
	return accepts_slowly(port, pkt, why);
}

bool
eng_loop_accepts(const struct karst_engine *e, const struct karst_pkt *pkt, enum karst_drop *why)
{
	const struct eng_port *port = &e->port[eng_port_base(pkt->port)];
	struct karst_engine_addr dst;
	uint32_t dst4, i;

	memcpy(&dst4, karst_ip4_dst(pkt->data + KARST_ETH_LEN), sizeof(dst4));
	if (karst_likely((pkt->flags & (KARST_PKT_IP6 | KARST_PKT_VLAN)) == 0 &&
		    dst4 == atomic_load_explicit(&port->ip4, memory_order_relaxed)))
		return true;
	dst = eng_pkt_dst(pkt);
	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++)
		if (eng_port_present(e, i) && eng_port_has_addr(&e->port[i], dst.ip))
			return true;
	*why = KARST_DROP_DEST_ADDRESS;
	return eng_ip_is_group(dst.ip);
}
