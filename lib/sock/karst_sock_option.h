/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the map "sockets" of the TCP option's BPF program has for a TCP socket.  A program changes and
 * reads that of its own sockets, by their descriptors.
 */
#ifndef KARST_SOCK_OPTION_H
#define KARST_SOCK_OPTION_H

struct karst_sock_option {
	unsigned char want; /* written before connect() or listen(): SMC-R is wanted */
	unsigned char seen; /* the connection is made, and both sides have sent the option */
	unsigned char reserved[2];
	/* nobody takes it: a map with a lock in it is none that a program can freeze for all (Linux
	 * 6.5 and later, bpf(BPF_MAP_FREEZE)) */
#ifdef __bpf__
	struct bpf_spin_lock lock;
#else
	unsigned int lock;
#endif
};

#endif /* KARST_SOCK_OPTION_H */
