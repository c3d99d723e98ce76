/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Writes capture files in the pcapng format (little-endian, nanoseconds, Ethernet).
 *
 * DPDK's rte_pcapng uses ethdevs as interfaces, and loopback ports of karst are none; therefore the
 * few block types are written here.  Order of calls: a section, then interfaces and packets, an
 * interface before its first packet, then statistics.  At the end ferror() tells whether everything
 * was written.
 */
#ifndef ENGINE_PCAPNG_H
#define ENGINE_PCAPNG_H

#include <stdio.h>

#include "karst_base.h"

enum pcapng_direction {
	PCAPNG_IN = 1,
	PCAPNG_OUT = 2,
};

/** @program and @comment: for display. */
void eng_pcapng_section(FILE *f, const char *program, const char *comment);

/** The interfaces of a file are numbered from 0 as they are written. */
void eng_pcapng_interface(
	FILE *f, const char *name, const char *description, const uint8_t mac[6], uint32_t snaplen);

struct pcapng_packet {
	uint32_t interface;
	uint64_t time_ns; /* since 1970 */
	uint32_t len;     /* length on the wire */
	uint32_t have;    /* captured part of it */
	enum pcapng_direction direction;
	const uint8_t *data;
};

void eng_pcapng_packet(FILE *f, const struct pcapng_packet *p);

/** How many packets of an interface were seen, and how many of these were lost because the ring was
 *  full. */
void eng_pcapng_statistics(
	FILE *f, uint32_t interface, uint64_t time_ns, uint64_t received, uint64_t dropped);

#endif /* ENGINE_PCAPNG_H */
