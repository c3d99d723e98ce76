/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The header that the RDMA CM puts in front of a program's private data in REQ and SIDR REQ (C1):
 *
 *   0  version (0)   1  IP version << 4   2  source port   4  source address   20  destination
 *
 * An IPv4 address is in the last four of the sixteen bytes, behind zeros.
 */
#include "karst_cm.h"

#include <errno.h>

#include "karst_hdr.h"

#define SRC_OFFSET 4
#define DST_OFFSET 20

static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

static void
put_ip(uint8_t *p, const uint8_t ip[16], bool ip6)
{
	if (ip6) {
		memcpy(p, ip, 16);
		return;
	}
	memset(p, 0, 12);
	memcpy(p + 12, ip + 12, 4);
}

static void
get_ip(uint8_t ip[16], const uint8_t *p, bool ip6)
{
	memcpy(ip, p, 16);
	if (!ip6)
		memcpy(ip, v4_mapped, sizeof(v4_mapped));
}

void
karst_cm_ip_build(const struct karst_cm_ip *ip, uint8_t header[KARST_CM_IP_LEN])
{
	header[0] = 0;
	header[1] = (uint8_t)((ip->ip6 ? 6 : 4) << 4);
	karst_put_be16(header + 2, ip->src_port);
	put_ip(header + SRC_OFFSET, ip->src_ip, ip->ip6);
	put_ip(header + DST_OFFSET, ip->dst_ip, ip->ip6);
}

int
karst_cm_ip_parse(const void *private_data, size_t len, struct karst_cm_ip *ip)
{
	const uint8_t *p = private_data;

	if (len < KARST_CM_IP_LEN || p[0] != 0 || (p[1] >> 4 != 4 && p[1] >> 4 != 6))
		return -EPROTO;
	ip->ip6 = p[1] >> 4 == 6;
	ip->src_port = karst_get_be16(p + 2);
	get_ip(ip->src_ip, p + SRC_OFFSET, ip->ip6);
	get_ip(ip->dst_ip, p + DST_OFFSET, ip->ip6);
	return 0;
}
