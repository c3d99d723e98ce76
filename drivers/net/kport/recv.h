/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What receiving from a socket (recv.c) and from its ring (ring.c) have of each other. */
#ifndef KPORT_RECV_H
#define KPORT_RECV_H

#include <linux/if_packet.h>

#include "kport.h"

/** A VLAN tag that the kernel has taken out of a frame. */
struct kp_tag {
	bool present;
	uint16_t tci;
};

/** One recvmmsg() of at most @most (KP_RX_SLOTS), whose datagrams become ready.  @return how many;
 *  -errno. */
int kp_rx_messages(struct kp_rxq *q, unsigned int most);

/** A message at @frame, which is the kernel's again afterwards: copied, its datagrams are ready. */
void kp_rx_take_copied(struct kp_rxq *q, const struct virtio_net_hdr *vnet, struct kp_tag tag,
	const uint8_t *frame, size_t len);

/** What the ring has, up to about @n datagrams, becomes ready. */
void kp_ring_take(struct kp_rxq *q, unsigned int n);

#endif /* KPORT_RECV_H */
