/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Frames of a real peer, Linux soft-RoCE, with the ICRC that it computed. */

#ifndef ICRC_FRAMES_H
#define ICRC_FRAMES_H

#include <stdint.h>

struct icrc_frame {
	const char *name;
	const uint8_t *bytes;
	uint16_t len;
	uint8_t flags; /* KARST_PKT_IP6, KARST_PKT_VLAN */
};

#define ICRC_FRAMES 6u
extern const struct icrc_frame icrc_frames[ICRC_FRAMES];

#endif /* ICRC_FRAMES_H */
