/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The program that net_af_xdp attaches to a kernel interface.  RoCEv2 (UDP to port 4791 over IPv4
 * or IPv6) goes to the AF_XDP socket of its receive queue.  Everything else goes on to the kernel;
 * so does RoCE while there is no socket.
 *
 * RoCE of VLANs goes to the kernel, too, since it is for the kernel's VLAN interfaces: the port of
 * an interface has no VLAN.  A tag with VLAN id 0 contains only a priority.  The program does not
 * see a tag that the adapter has removed (ethtool -K DEV rxvlan on).
 *
 * IPv4 packets with options go to the kernel: RoCE peers do not send them, and the ICRC does not
 * cover options.  Fragments go to the kernel as well, since a RoCE packet is never fragmented.
 *
 * "frags": the program also accepts frames that do not fit into one page, so that the administrator
 * of the interface can set any MTU.  Their headers are in the first part.  RoCE frames of that
 * length are lost, since net_af_xdp does not accept a frame in two buffers.
 *
 * xsks_map is the name by which the driver finds the map; it has a slot for each receive queue.
 * None of the helpers requires another license than that of the file.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_PORT  4791
#define MAX_QUEUES 64
#define VLAN_ID    0x0fff
#define FRAGMENT   0x3fff /* offset, and "more fragments" */

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

struct tag {
	__be16 tci;
	__be16 proto;
};

static __always_inline int
is_roce_udp(const struct udphdr *udp, const void *end)
{
	return (const void *)(udp + 1) <= end && udp->dest == bpf_htons(ROCE_PORT);
}

static __always_inline int
is_roce_ip4(const struct iphdr *ip, const void *end)
{
	return (const void *)(ip + 1) <= end && ip->ihl == 5 && ip->protocol == IPPROTO_UDP &&
		(ip->frag_off & bpf_htons(FRAGMENT)) == 0 &&
		is_roce_udp((const void *)(ip + 1), end);
}

static __always_inline int
is_roce_ip6(const struct ipv6hdr *ip, const void *end)
{
	return (const void *)(ip + 1) <= end && ip->nexthdr == IPPROTO_UDP &&
		is_roce_udp((const void *)(ip + 1), end);
}

SEC("xdp.frags")
int
karst_roce(struct xdp_md *ctx)
{
	const void *at = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *eth = at;
	__be16 proto;

	if ((const void *)(eth + 1) > end)
		return XDP_PASS;
	proto = eth->h_proto;
	at = eth + 1;
	if (proto == bpf_htons(ETH_P_8021Q)) {
		const struct tag *tag = at;

		if ((const void *)(tag + 1) > end || (tag->tci & bpf_htons(VLAN_ID)) != 0)
			return XDP_PASS;
		proto = tag->proto;
		at = tag + 1;
	}
	if ((proto == bpf_htons(ETH_P_IP) && is_roce_ip4(at, end)) ||
		(proto == bpf_htons(ETH_P_IPV6) && is_roce_ip6(at, end)))
		return (int)bpf_redirect_map(&xsks_map, ctx->rx_queue_index, XDP_PASS);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "BSD-3-Clause";
