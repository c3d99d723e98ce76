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
	unsigned char reserved[6];
};

#endif /* KARST_SOCK_OPTION_H */
