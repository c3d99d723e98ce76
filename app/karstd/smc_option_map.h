/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Data that the BPF program of the TCP option (smc_option.bpf.c) shares with the daemon. */
#ifndef KARSTD_SMC_OPTION_MAP_H
#define KARSTD_SMC_OPTION_MAP_H

#include "karst_sock_option.h"

/* The counters of the program. */
enum kd_smc_count {
	KD_SMC_COUNT_OFFERED,      /* SYNs with the option, including repeated ones */
	KD_SMC_COUNT_ANSWERED,     /* SYN-ACKs with the option */
	KD_SMC_COUNT_SEEN_ACTIVE,  /* outgoing connections whose peer has answered the option */
	KD_SMC_COUNT_SEEN_PASSIVE, /* incoming connections with the option */
	KD_SMC_COUNT_HELD_BACK,    /* checks in which an option was withheld because the peer is
				    * refused */
	KD_SMC_COUNT_NO_ROOM,      /* listeners that stay on TCP */
	KD_SMC_COUNTS
};

/* The ends of a connection on which both sides have sent the option. */
struct kd_smc_option_ends {
	unsigned long long netns;   /* cookie */
	unsigned int family;        /* AF_INET, AF_INET6; 0: the addresses are not recorded here */
	unsigned int over;          /* the socket is no longer connected */
	unsigned int peer_listened; /* active side: it has connected to a port at which a program of
			        * this service listens */
	unsigned int local_ip[4], peer_ip[4]; /* for IPv4 only the first word */
	unsigned short local_port, peer_port; /* in network byte order, like the addresses */
};

#endif /* KARSTD_SMC_OPTION_MAP_H */
