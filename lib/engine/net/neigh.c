/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * ARP (RFC 826, 5227) and the part of neighbour discovery (RFC 4861) that a host with a configured
 * address needs: solicitations and advertisements.  No router discovery, no duplicate address
 * detection: addresses and gateways come from the configuration.
 *
 * What is trusted:
 *
 *	an answer to a request of ours             the neighbour is known
 *	anything else that names its sender        if it contradicts an entry, we query again
 *
 * Requests for our addresses are answered, up to a limit of the rate.  A received frame is read in
 * place and never changed; frames to send are built in a buffer of the lcore.
 */
#include "neigh.h"

#include <netinet/icmp6.h>
#include <stdlib.h>

#include <rte_arp.h>
#include <rte_ether.h>
#include <rte_ip.h>

#include "karst_hdr.h"
#include "port.h"

#define FRAME_MIN     60u /* without its FCS */
#define PROTO_ICMP6   58u
#define ND_HOP_LIMIT  255u /* proves that the sender is on the link */
#define ANSWERS_BURST 256u
#define ANSWERS_NS    UINT64_C(100000) /* interval after which one more may be sent */

/* A neighbour discovery message as we send it: solicitation or advertisement, and one option with
 * our MAC address. */
struct nd_msg {
	struct icmp6_hdr icmp;
	uint8_t target[16];
	uint8_t opt_type;
	uint8_t opt_len;
	uint8_t opt_mac[6];
} __rte_packed;
static_assert(sizeof(struct nd_msg) == 32, "layout");

static const uint8_t broadcast_mac[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
static const uint8_t all_nodes[16] = {0xff, 0x02, [15] = 1};
static const uint8_t ip_none[16];

int
eng_neigh_create(struct karst_engine *e, struct eng_neigh **nb)
{
	struct eng_neigh *n = calloc(1, sizeof(*n));
	uint64_t key[2];

	if (n == NULL)
		return -ENOMEM;
	eng_secret(e, ENG_SECRET_NEIGH, 0, key);
	eng_neigh_table_init(&n->table, key);
	n->tokens = ANSWERS_BURST;
	*nb = n;
	return 0;
}

void
eng_neigh_destroy(struct eng_neigh *nb)
{
	free(nb);
}

/* --- parsing --- */

bool
eng_l3_find(const struct rte_mbuf *m, struct eng_l3 *l3)
{
	const uint8_t *d = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t off = KARST_ETH_LEN;

	if (m->data_len < KARST_ETH_LEN + KARST_VLAN_LEN)
		return false;
	l3->type = karst_get_be16(d + 12);
	l3->vlan = 0;
	if (l3->type == RTE_ETHER_TYPE_VLAN) {
		l3->vlan = karst_get_be16(d + 14) & 0xfff;
		l3->type = karst_get_be16(d + 16);
		off += KARST_VLAN_LEN;
	}
	l3->p = d + off;
	l3->len = m->data_len - off;
	return true;
}

static bool
is_nd(const struct eng_l3 *l3)
{
	uint8_t type;

	if (l3->type != RTE_ETHER_TYPE_IPV6 ||
		l3->len < sizeof(struct rte_ipv6_hdr) + sizeof(struct icmp6_hdr) ||
		l3->p[6] != PROTO_ICMP6)
		return false;
	type = l3->p[sizeof(struct rte_ipv6_hdr)];
	return type == ND_NEIGHBOR_SOLICIT || type == ND_NEIGHBOR_ADVERT;
}

bool
eng_neigh_wants(const struct rte_mbuf *m)
{
	struct eng_l3 l3;

	return eng_l3_find(m, &l3) && (l3.type == RTE_ETHER_TYPE_ARP || is_nd(&l3));
}

static bool
mac_ok(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return (mac[0] & 1) == 0 && memcmp(mac, zero, 6) != 0;
}

/* Whether an IPv4 host can have this address. */
static bool
ip4_ok(uint32_t ip4)
{
	return ip4 >> 24 != 0 && ip4 >> 24 != 127 && ip4 >> 28 < 14;
}

static bool
is_ours(const struct eng_port *p, const uint8_t ip[16])
{
	return eng_port_has_addr(p, ip);
}

/* --- sending --- */

struct rte_mbuf *
eng_frame_new(struct eng_lcore *lc, const struct eng_port *p, const uint8_t dst[6], uint16_t type,
	uint32_t len, uint8_t **payload)
{
	uint32_t off = p->info.vlan != 0 ? KARST_ETH_LEN + KARST_VLAN_LEN : KARST_ETH_LEN;
	uint32_t total = off + len < FRAME_MIN ? FRAME_MIN : off + len;
	struct rte_mbuf *m = rte_pktmbuf_alloc(lc->pool);
	uint8_t *d;

	if (m == NULL) {
		stat_add(&lc->stats.no_mbufs, 1);
		return NULL;
	}
	d = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)total);
	if (d == NULL) {
		buffer_free(lc, m);
		return NULL;
	}
	memset(d, 0, total);
	memcpy(d, dst, 6);
	memcpy(d + 6, p->info.mac, 6);
	if (p->info.vlan != 0) {
		karst_put_be16(d + 12, RTE_ETHER_TYPE_VLAN);
		karst_put_be16(d + 14, p->info.vlan);
	}
	karst_put_be16(d + off - 2, type);
	*payload = d + off;
	return m;
}

static void
neigh_emit(struct eng_lcore *lc, uint8_t port, struct rte_mbuf *m)
{
	stat_add(&lc->stats.neigh_tx, 1);
	eng_tx_frame(lc, port, m);
}

static void
send_arp(struct eng_lcore *lc, uint8_t port, uint16_t op, const uint8_t dst[6], uint32_t sip,
	const uint8_t tha[6], uint32_t tip)
{
	const struct eng_port *p = &lc->e->port[port];
	struct rte_arp_hdr *arp;
	struct rte_mbuf *m;
	uint8_t *at;

	m = eng_frame_new(lc, p, dst, RTE_ETHER_TYPE_ARP, sizeof(*arp), &at);
	if (m == NULL)
		return;
	arp = (struct rte_arp_hdr *)at;
	arp->arp_hardware = rte_cpu_to_be_16(RTE_ARP_HRD_ETHER);
	arp->arp_protocol = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	arp->arp_hlen = 6;
	arp->arp_plen = 4;
	arp->arp_opcode = rte_cpu_to_be_16(op);
	memcpy(&arp->arp_data.arp_sha, p->info.mac, 6);
	arp->arp_data.arp_sip = rte_cpu_to_be_32(sip);
	if (tha != NULL)
		memcpy(&arp->arp_data.arp_tha, tha, 6);
	arp->arp_data.arp_tip = rte_cpu_to_be_32(tip);
	neigh_emit(lc, port, m);
}

/* @flags: flags of an advertisement. */
static void
send_nd(struct eng_lcore *lc, uint8_t port, uint8_t type, const uint8_t dst_mac[6],
	const uint8_t src[16], const uint8_t dst[16], const uint8_t target[16], uint32_t flags)
{
	const struct eng_port *p = &lc->e->port[port];
	struct rte_ipv6_hdr *ip;
	struct nd_msg *nd;
	struct rte_mbuf *m;
	uint8_t *at;

	m = eng_frame_new(lc, p, dst_mac, RTE_ETHER_TYPE_IPV6, sizeof(*ip) + sizeof(*nd), &at);
	if (m == NULL)
		return;
	ip = (struct rte_ipv6_hdr *)at;
	ip->vtc_flow = rte_cpu_to_be_32(6u << 28);
	ip->payload_len = rte_cpu_to_be_16(sizeof(*nd));
	ip->proto = PROTO_ICMP6;
	ip->hop_limits = ND_HOP_LIMIT;
	memcpy(ip->src_addr, src, 16);
	memcpy(ip->dst_addr, dst, 16);
	nd = (struct nd_msg *)(ip + 1);
	nd->icmp.icmp6_type = type;
	nd->icmp.icmp6_dataun.icmp6_un_data32[0] = flags;
	memcpy(nd->target, target, 16);
	nd->opt_type =
		type == ND_NEIGHBOR_SOLICIT ? ND_OPT_SOURCE_LINKADDR : ND_OPT_TARGET_LINKADDR;
	nd->opt_len = 1;
	memcpy(nd->opt_mac, p->info.mac, 6);
	nd->icmp.icmp6_cksum = rte_ipv6_udptcp_cksum(ip, nd);
	neigh_emit(lc, port, m);
}

/* The solicited-node group of @ip, and the group's MAC address. */
static void
solicited_node(const uint8_t ip[16], uint8_t group[16], uint8_t mac[6])
{
	static const uint8_t head[13] = {0xff, 0x02, [11] = 1, [12] = 0xff};

	memcpy(group, head, sizeof(head));
	memcpy(group + 13, ip + 13, 3);
	mac[0] = mac[1] = 0x33;
	memcpy(mac + 2, group + 12, 4);
}

static void
neigh_ask(struct eng_lcore *lc, uint8_t port, const uint8_t src[16], const uint8_t ip[16])
{
	uint8_t group[16], mac[6];

	if (karst_engine_ip_is_ip4(ip)) {
		send_arp(lc, port, RTE_ARP_OP_REQUEST, broadcast_mac, karst_get_be32(src + 12),
			NULL, karst_get_be32(ip + 12));
		return;
	}
	solicited_node(ip, group, mac);
	send_nd(lc, port, ND_NEIGHBOR_SOLICIT, mac, src, group, ip, 0);
}

static bool
may_answer(struct eng_neigh *nb, uint64_t now_ns)
{
	uint64_t more = (now_ns - nb->refilled_ns) / ANSWERS_NS;

	if (more != 0) {
		nb->tokens = (uint32_t)karst_min_u64(nb->tokens + more, ANSWERS_BURST);
		nb->refilled_ns = now_ns;
	}
	if (nb->tokens == 0)
		return false;
	nb->tokens--;
	return true;
}

/* --- receiving --- */

/* An unsolicited answer: the kernel may have asked, as it can have the same address on the port's
 * tap.  The kernel judges for itself; the engine learns nothing from it. */
static enum eng_neigh_fate
neigh_unasked(const struct eng_port *p)
{
	return p->tap != NULL ? ENG_NEIGH_SHARE : ENG_NEIGH_BAD;
}

static enum eng_neigh_fate
rx_arp(struct eng_lcore *lc, uint8_t port, const struct eng_l3 *l3)
{
	const struct eng_port *p = &lc->e->port[port];
	struct eng_neigh *nb = p->neigh;
	uint64_t now = lc->core->now_ns;
	const struct rte_arp_hdr *arp = (const struct rte_arp_hdr *)l3->p;
	struct karst_engine_addr sender, target;
	uint16_t op;
	uint32_t sip, tip;
	const uint8_t *sha;

	if (l3->len < sizeof(*arp) || arp->arp_hardware != rte_cpu_to_be_16(RTE_ARP_HRD_ETHER) ||
		arp->arp_protocol != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) || arp->arp_hlen != 6 ||
		arp->arp_plen != 4)
		return ENG_NEIGH_BAD;
	op = rte_be_to_cpu_16(arp->arp_opcode);
	sha = arp->arp_data.arp_sha.addr_bytes;
	sip = rte_be_to_cpu_32(arp->arp_data.arp_sip);
	tip = rte_be_to_cpu_32(arp->arp_data.arp_tip);
	if (!mac_ok(sha) || (sip != 0 && !ip4_ok(sip)))
		return ENG_NEIGH_BAD;
	sender = karst_engine_addr_ip4(sip);
	target = karst_engine_addr_ip4(tip);
	if (is_ours(p, sender.ip))
		return ENG_NEIGH_BAD; /* another host claims our address */
	if (op == RTE_ARP_OP_REPLY && is_ours(p, target.ip)) {
		if (memcmp(&arp->arp_data.arp_tha, p->info.mac, 6) != 0)
			return ENG_NEIGH_BAD;
		return eng_neigh_answer(&nb->table, sender.ip, sha, now) ? ENG_NEIGH_SHARE
									 : neigh_unasked(p);
	}
	if (op == RTE_ARP_OP_REQUEST && is_ours(p, target.ip)) {
		if (!may_answer(nb, now))
			return ENG_NEIGH_BAD;
		eng_neigh_claim(&nb->table, sender.ip, sha);
		send_arp(lc, port, RTE_ARP_OP_REPLY, sha, tip, sha, sip);
		return ENG_NEIGH_DONE;
	}
	eng_neigh_claim(&nb->table, sender.ip, sha);
	return ENG_NEIGH_SHARE;
}

/* Finds the link-layer address among the options of a message; @mac does not change if there is
 * none.
 * @return false: an option is malformed. */
static bool
nd_option(const uint8_t *p, uint32_t len, uint8_t type, uint8_t mac[6])
{
	while (len >= 8) {
		uint32_t n = p[1] * 8u;

		if (n == 0 || n > len)
			return false;
		if (p[0] == type)
			memcpy(mac, p + 2, 6);
		p += n;
		len -= n;
	}
	return len == 0;
}

struct nd_seen {
	const struct rte_ipv6_hdr *ip;
	const struct nd_msg *msg; /* its option may be missing */
	uint8_t mac[6];
};

static bool
checksum_ok(const struct rte_ipv6_hdr *ip, const struct nd_msg *msg, uint32_t len)
{
	uint32_t sum = rte_ipv6_phdr_cksum(ip, 0) + (uint32_t)rte_raw_cksum(msg, len);

	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/* Checks what RFC 4861, 7.1 requires of any message. */
static bool
nd_valid(const struct eng_l3 *l3, const struct rte_mbuf *m, struct nd_seen *nd)
{
	const uint32_t head = offsetof(struct nd_msg, opt_type);
	uint32_t len;

	nd->ip = (const struct rte_ipv6_hdr *)l3->p;
	nd->msg = (const struct nd_msg *)(nd->ip + 1);
	len = rte_be_to_cpu_16(nd->ip->payload_len);
	if (l3->p[0] >> 4 != 6 || len < head || len > l3->len - sizeof(*nd->ip) ||
		nd->ip->hop_limits != ND_HOP_LIMIT || nd->msg->icmp.icmp6_code != 0)
		return false;
	if (nd->msg->target[0] == 0xff || nd->ip->src_addr[0] == 0xff)
		return false;
	if (!checksum_ok(nd->ip, nd->msg, len))
		return false;
	memcpy(nd->mac, rte_pktmbuf_mtod(m, const uint8_t *) + 6, 6);
	return nd_option((const uint8_t *)nd->msg + head, len - head,
		       nd->msg->icmp.icmp6_type == ND_NEIGHBOR_SOLICIT ? ND_OPT_SOURCE_LINKADDR
								       : ND_OPT_TARGET_LINKADDR,
		       nd->mac) &&
		mac_ok(nd->mac);
}

static enum eng_neigh_fate
rx_solicitation(struct eng_lcore *lc, uint8_t port, const struct nd_seen *nd)
{
	const struct eng_port *p = &lc->e->port[port];
	bool probe = memcmp(nd->ip->src_addr, ip_none, 16) == 0;
	struct eng_neigh *nb = p->neigh;
	uint64_t now = lc->core->now_ns;
	uint8_t group[16], mac[6];

	if (!is_ours(p, nd->msg->target))
		return ENG_NEIGH_SHARE;
	solicited_node(nd->msg->target, group, mac);
	if (is_ours(p, nd->ip->src_addr) ||
		(memcmp(nd->ip->dst_addr, group, 16) != 0 && !is_ours(p, nd->ip->dst_addr)) ||
		!may_answer(nb, now))
		return ENG_NEIGH_BAD;
	if (probe) {
		/* Another host probes for our address: announce to all nodes that it is ours. */
		static const uint8_t mac_all[6] = {0x33, 0x33, 0, 0, 0, 1};

		send_nd(lc, port, ND_NEIGHBOR_ADVERT, mac_all, nd->msg->target, all_nodes,
			nd->msg->target, ND_NA_FLAG_OVERRIDE);
		return ENG_NEIGH_DONE;
	}
	eng_neigh_claim(&nb->table, nd->ip->src_addr, nd->mac);
	send_nd(lc, port, ND_NEIGHBOR_ADVERT, nd->mac, nd->msg->target, nd->ip->src_addr,
		nd->msg->target, ND_NA_FLAG_SOLICITED | ND_NA_FLAG_OVERRIDE);
	return ENG_NEIGH_DONE;
}

static enum eng_neigh_fate
rx_advertisement(struct eng_lcore *lc, uint8_t port, const struct nd_seen *nd)
{
	const struct eng_port *p = &lc->e->port[port];
	struct eng_neigh *nb = p->neigh;

	if (is_ours(p, nd->msg->target))
		return ENG_NEIGH_BAD; /* another host claims our address */
	if (is_ours(p, nd->ip->dst_addr) &&
		(nd->msg->icmp.icmp6_dataun.icmp6_un_data32[0] & ND_NA_FLAG_SOLICITED) != 0)
		return eng_neigh_answer(&nb->table, nd->msg->target, nd->mac, lc->core->now_ns)
			? ENG_NEIGH_SHARE
			: neigh_unasked(p);
	eng_neigh_claim(&nb->table, nd->msg->target, nd->mac);
	return ENG_NEIGH_SHARE;
}

enum eng_neigh_fate
eng_neigh_rx(struct eng_lcore *lc, uint8_t port, const struct rte_mbuf *m)
{
	const struct eng_port *p = &lc->e->port[port];
	struct nd_seen nd;
	struct eng_l3 l3;

	if (p->neigh == NULL || !eng_l3_find(m, &l3) || l3.vlan != p->info.vlan)
		return ENG_NEIGH_OTHER;
	stat_add(&lc->stats.neigh_rx, 1);
	if (l3.type == RTE_ETHER_TYPE_ARP)
		return rx_arp(lc, port, &l3);
	if (!nd_valid(&l3, m, &nd))
		return ENG_NEIGH_BAD;
	if (nd.msg->icmp.icmp6_type == ND_NEIGHBOR_SOLICIT)
		return rx_solicitation(lc, port, &nd);
	return rx_advertisement(lc, port, &nd);
}

/* --- for control threads --- */

int
eng_neigh_use_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct eng_neigh_call *call = arg;
	struct eng_neigh *nb = lc->e->port[call->port].neigh;
	bool known, do_ask;

	if (call->look_only && !eng_neigh_present(&nb->table, call->ip))
		return -EAGAIN;
	known = eng_neigh_use(&nb->table, call->ip, lc->core->now_ns, call->mac, &do_ask);
	if (do_ask)
		neigh_ask(lc, call->port, call->src, call->ip);
	return known ? 0 : -EAGAIN;
}

int
eng_neigh_announce_on_lcore(struct eng_lcore *lc, void *arg)
{
	static const uint8_t mac_all[6] = {0x33, 0x33, 0, 0, 0, 1};
	const struct eng_neigh_call *call = arg;
	const struct eng_addrs *a = eng_port_addrs(&lc->e->port[call->port]);
	uint32_t i;

	for (i = 0; i < a->n; i++) {
		const uint8_t *ip = a->addr[i].ip;

		if (karst_engine_ip_is_none(ip))
			continue;
		if (karst_engine_ip_is_ip4(ip))
			send_arp(lc, call->port, RTE_ARP_OP_REQUEST, broadcast_mac,
				karst_get_be32(ip + 12), NULL, karst_get_be32(ip + 12));
		else
			send_nd(lc, call->port, ND_NEIGHBOR_ADVERT, mac_all, ip, all_nodes, ip,
				ND_NA_FLAG_OVERRIDE);
	}
	return 0;
}

int
eng_neigh_list_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct eng_neigh_call *call = arg;
	const struct eng_neigh *nb = lc->e->port[call->port].neigh;

	return (int)eng_neigh_entries(&nb->table, lc->core->now_ns, call->list, call->max);
}
