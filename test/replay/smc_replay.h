/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A capture of SMC-R, and what its hosts chose. */
#ifndef SMC_REPLAY_H
#define SMC_REPLAY_H

#include <stdlib.h>

#include "karst_hdr.h"
#include "karst_psn.h"
#include "karst_smc.h"

#define RS_ENDS_MAX 4u
#define RS_PORTS    2u
#define RS_FILE_MAX (1u << 20)

enum rs_opcode {
	RS_SEND_ONLY = 0x04,
	RS_WRITE_FIRST = 0x06,
	RS_WRITE_ONLY = 0x0a,
	RS_ACK = 0x11,
};

struct rs_frame {
	unsigned int number; /* in the file, from 1 */
	unsigned int from;   /* 0: of the client */
	unsigned int port;   /* each link is between two of the same */
	bool roce;
	uint8_t opcode, tcp_flags;
	uint32_t psn;
	const uint8_t *data; /* behind BTH, or of TCP */
	uint32_t len;
	uint64_t vaddr;
	uint32_t rkey, dma_len;
};

struct rs_capture {
	uint8_t *bytes;
	struct rs_frame *frames;
	unsigned int n;
};

/** An end of a link, and the key of the one buffer there; refused: it was not opened. */
struct rs_end {
	struct karst_smc_end end;
	uint32_t rkey;
	uint64_t vaddr;
	bool refused;
};

/** What a host chose, taken from its messages. */
struct rs_host {
	uint8_t system_id[8];
	uint8_t hostname[KARST_SMC_HOSTNAME_LEN];
	uint8_t gid[16];
	uint8_t size;                    /* the size class of the element */
	struct rs_end ends[RS_ENDS_MAX]; /* in the order in which they were opened */
	unsigned int nends;
};

/** Reads the capture, or ends the process. */
void rs_capture_read(const char *folder, const char *name, struct rs_capture *c);
void rs_capture_free(struct rs_capture *c);
void rs_learn(const struct rs_capture *c, unsigned int us, struct rs_host *host);
/** Whether it is a CLC message, or a SEND. */
bool rs_is_clc(const struct rs_frame *f);
bool rs_is_send(const struct rs_frame *f);
/** The next CDC message of that side, from frame @at on, that is not a validation. */
bool rs_next_cdc(
	const struct rs_capture *c, unsigned int at, unsigned int from, struct karst_smc_cdc *m);
/** Parses each message and builds it again.  @return how many; *bad: the first wrong one */
unsigned int rs_rebuild(const struct rs_capture *c, unsigned int *bad);

/** The position of a cursor, in a stream of less than 2^16 elements of @bytes. */
static inline uint64_t
rs_pos(struct karst_smc_cursor c, uint32_t bytes)
{
	return (uint64_t)c.wrap * bytes + c.count;
}

#endif /* SMC_REPLAY_H */
