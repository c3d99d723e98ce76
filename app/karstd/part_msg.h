/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages between the engine and the privileged part, one packet each.
 *
 *   channel             from the engine                          answer
 *   the daemon's        struct kd_part_setup, once, first        struct kd_part_answer
 *                       READY, once, with the XDP program        struct kd_part_answer
 *                       that is attached to each interface
 *                       PROGRAM, with its socket, the far end    none
 *                       of a line, and perhaps its memory
 *   a program's line    struct karst_files_ask                   struct kd_part_answer, and the
 *                                                                descriptor if it is 0
 */
#ifndef KARSTD_PART_MSG_H
#define KARSTD_PART_MSG_H

#include <stdint.h>

#include "conf.h"

struct kd_part_setup {
	char socket[KD_TEXT]; /* the socket that programs connect to */
	uint32_t max_lines;
	uint32_t nxdp;
	char xdp[KD_MAX_PORTS][16]; /* interfaces with XDP programs */
};

enum kd_part_kind { KD_PART_READY = 1, KD_PART_PROGRAM };

struct kd_part_msg {
	uint32_t kind;
};

/* Descriptors of KD_PART_PROGRAM, in this order. */
enum { KD_PART_FD_SOCKET, KD_PART_FD_LINE, KD_PART_FD_MEMORY };

struct kd_part_answer {
	int32_t status; /* 0 or -errno */
};

#endif /* KARSTD_PART_MSG_H */
