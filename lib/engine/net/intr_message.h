/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What peers of net_memif may say (intr_message.c). */
#ifndef ENG_INTR_MESSAGE_H
#define ENG_INTR_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENG_MEMIF_REGIONS 256u

/* A connection, as far as it was talked about. */
struct eng_memif_talk {
	bool server;    /* it is we who listen */
	bool begun;     /* INIT, or HELLO, has come */
	bool connected; /* and nothing is added any more */
	bool over;      /* it was shut down */
	bool few;       /* it was refused for having fewer rings than the device has queues */
	uint32_t nregions;
	uint32_t nrings[2]; /* to the client [0], to the server [1] */
	uint64_t bytes[ENG_MEMIF_REGIONS];
	int fds[ENG_MEMIF_REGIONS]; /* as long as it is not connected, nobody else closes them */
};

/* Of a direction, so many queues do devices have: from us [0], to us [1]. */
struct eng_memif_limits {
	uint32_t least[2];
	uint32_t most[2];
};

#define ENG_MEMIF_MESSAGE 128u

/**
 * May the driver hear this message of @len bytes, with which @nfds descriptors came, @fd the first
 * of them?  Then it was noted in @t.
 */
bool eng_memif_may_say(struct eng_memif_talk *t, const struct eng_memif_limits *limits,
	const uint8_t *msg, size_t len, int fd, unsigned int nfds);

/** The driver has forgotten it. */
void eng_memif_forget(struct eng_memif_talk *t);

#endif /* ENG_INTR_MESSAGE_H */
