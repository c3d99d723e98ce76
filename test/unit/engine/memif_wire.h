/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A net_memif link between the engine and a device that no thread polls, both in this process. */
#ifndef MEMIF_WIRE_H
#define MEMIF_WIRE_H

#include "engine_bed.h"

/* The driver's name for the memory that both ends have mapped. */
#define MEMIF "memif_region"
/* Far longer than the driver takes between reporting that the link is down and unmapping. */
#define LONG_US 200000u

struct wire {
	struct engine_bed bed;
	char socket[64];
	uint16_t ours, other;
	uint8_t port;
};

/** Creates both ends; the engine's is the server.  @stopped: as in karst_engine_port_config, with
 * @w. */
void wire_up(struct wire *w, void (*stopped)(void *w));
bool wire_link_is_up(uint16_t ethdev);
/** Waits at both ends for the link: the driver must not be stopped while its interrupt thread
 * connects. */
void wire_wait(const struct wire *w, bool up);
void wire_down(struct wire *w);

#endif /* MEMIF_WIRE_H */
