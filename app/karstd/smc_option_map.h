/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the BPF program of the TCP option (smc_option.bpf.c) shares with the daemon. */
#ifndef KARSTD_SMC_OPTION_MAP_H
#define KARSTD_SMC_OPTION_MAP_H

#include "karst_sock_option.h"

/* What it counts. */
enum kd_smc_count {
	KD_SMC_COUNT_OFFERED,      /* SYNs with the option, repeated ones too */
	KD_SMC_COUNT_ANSWERED,     /* SYN-ACKs with it */
	KD_SMC_COUNT_SEEN_ACTIVE,  /* connections of ours whose peer has answered it */
	KD_SMC_COUNT_SEEN_PASSIVE, /* connections to us that had it */
	KD_SMC_COUNT_HELD_BACK,    /* looks at an option that was not for a refused peer */
	KD_SMC_COUNT_NO_ROOM,      /* listeners that stay on TCP */
	KD_SMC_COUNTS
};

/* Of a connection both sides of which have sent the option: what it was made between. */
struct kd_smc_option_ends {
	unsigned long long netns; /* cookie */
	unsigned int family;      /* AF_INET, AF_INET6; 0: there are no addresses here */
	unsigned int over;        /* it is not connected any more */
	unsigned int
		peer_listened; /* of who has connected: to a port at which one of ours listens */
	unsigned int local_ip[4], peer_ip[4]; /* of IPv4 the first word */
	unsigned short local_port, peer_port; /* as on the wire, as the addresses */
};

#endif /* KARSTD_SMC_OPTION_MAP_H */
