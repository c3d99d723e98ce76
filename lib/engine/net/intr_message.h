/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Which messages peers of net_memif may send (intr_message.c). */
#ifndef ENG_INTR_MESSAGE_H
#define ENG_INTR_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENG_MEMIF_REGIONS 256u

/* State of a connection, from the messages so far. */
struct eng_memif_talk {
	bool server;    /* the engine's side listens */
	bool begun;     /* INIT, or HELLO, has been received */
	bool connected; /* CONNECT, or CONNECTED, has been received: nothing more is added */
	bool over;      /* shut down */
	bool few;       /* refused because it has fewer rings than the device has queues */
	uint32_t nregions;
	uint32_t nrings[2]; /* rings to the client [0], to the server [1] */
	uint64_t bytes[ENG_MEMIF_REGIONS];
	int fds[ENG_MEMIF_REGIONS]; /* until it is connected, only this file closes them */
};

/* Fewest and most queues that devices have in a direction: from the engine [0], to the engine
 * [1]. */
struct eng_memif_limits {
	uint32_t least[2];
	uint32_t most[2];
};

#define ENG_MEMIF_MESSAGE 128u

/**
 * Whether the driver may get this message of @len bytes, which came with @nfds descriptors, the
 * first of them @fd.  If so, notes the message in @t.
 */
bool eng_memif_may_say(struct eng_memif_talk *t, const struct eng_memif_limits *limits,
	const uint8_t *msg, size_t len, int fd, unsigned int nfds);

/** The driver has closed the connection. */
void eng_memif_forget(struct eng_memif_talk *t);

#endif /* ENG_INTR_MESSAGE_H */
