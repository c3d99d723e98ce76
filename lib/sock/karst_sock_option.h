/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The entry for a TCP socket in the map "sockets" of the TCP option's BPF program.  A program
 * changes and reads the entries of its own sockets, by their descriptors.
 */
#ifndef KARST_SOCK_OPTION_H
#define KARST_SOCK_OPTION_H

struct karst_sock_option {
	unsigned char want; /* written before connect() or listen(): SMC-R is requested */
	unsigned char seen; /* the connection is established, and both sides have sent the option */
	unsigned char reserved[2];
	/* never taken: a program cannot freeze a map that contains a lock for all others (Linux 6.5
	 * and later, bpf(BPF_MAP_FREEZE)) */
#ifdef __bpf__
	struct bpf_spin_lock lock;
#else
	unsigned int lock;
#endif
};

#endif /* KARST_SOCK_OPTION_H */
