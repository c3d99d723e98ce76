/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Declarations that receiving from a socket (recv.c) and from its ring (ring.c) share. */
#ifndef KPORT_RECV_H
#define KPORT_RECV_H

#include <linux/if_packet.h>

#include "kport.h"

/** A VLAN tag that the kernel has removed from a frame. */
struct kp_tag {
	bool present;
	uint16_t tpid, tci;
};

/**
 * Returns the tag that the kernel reports.  @status: TP_STATUS_*; old kernels report no TPID.
 */
static inline struct kp_tag
kp_tag_of(uint32_t status, uint16_t tpid, uint16_t tci)
{
	if ((status & TP_STATUS_VLAN_VALID) == 0)
		return (struct kp_tag){0};
	if ((status & TP_STATUS_VLAN_TPID_VALID) == 0)
		tpid = RTE_ETHER_TYPE_VLAN;
	return (struct kp_tag){true, tpid, tci};
}

/**
 * Makes one recvmmsg() of at most @most messages (up to KP_RX_SLOTS) and makes their datagrams
 * ready.  @return how many messages; -errno.
 */
int kp_rx_messages(struct kp_rxq *q, unsigned int most);

/**
 * Copies the message at @frame and makes its datagrams ready.  The memory is the kernel's again
 * afterwards.
 */
void kp_rx_take_copied(struct kp_rxq *q, const struct virtio_net_hdr *vnet, struct kp_tag tag,
	const uint8_t *frame, size_t len);

/** Makes the datagrams of the ring ready, up to about @n. */
void kp_ring_take(struct kp_rxq *q, unsigned int n);

#endif /* KPORT_RECV_H */
