/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Read capture files (pcap and pcapng, either byte order, any precision) with libpcap. */
#ifndef KARST_DUMP_CAPTURE_H
#define KARST_DUMP_CAPTURE_H

#include <pcap/pcap.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum capture_link {
	CAPTURE_ETHERNET,
	CAPTURE_INFINIBAND, /* packets start with the LRH */
};

struct capture {
	const char *path;
	FILE *file;
	pcap_t *pcap;
	int dlt;
	enum capture_link link;
	uint64_t frames;   /* read so far */
	uint64_t start_ns; /* time of the first frame */
	bool quiet;        /* print no message about damage */
};

/** One frame; the bytes are valid until the next call. */
struct capture_frame {
	uint8_t *data;
	uint32_t len;      /* captured */
	uint32_t wire_len; /* length on the wire */
	int64_t time_ns;   /* since the first frame of the file; may be negative */
	uint64_t number;   /* from 1 */
	enum capture_link link;
	bool known; /* false: an ERF record of another type */
};

/** Opens @path ("-": standard input).  @return 0 or -1, with a message on standard error. */
int capture_open(struct capture *c, const char *path);

/**
 * Reads the next frame.
 * @return 1: @f is set; 0: end of file; -1: the file is damaged, with a message on standard
 *   error that names the file, the frame and the byte.
 */
int capture_next(struct capture *c, struct capture_frame *f);

void capture_close(struct capture *c);

#endif /* KARST_DUMP_CAPTURE_H */
