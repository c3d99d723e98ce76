/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#ifndef CTL_TEST_MESSAGE_H
#define CTL_TEST_MESSAGE_H

#include "karst_ctl_msg.h"

/** A buffer of the largest message, aligned as messages are. */
struct message {
	uint8_t bytes[KARST_CTL_MAX + 64] karst_aligned(8);
};

static inline struct karst_ctl_hdr *
message_hdr(struct message *m)
{
	return (struct karst_ctl_hdr *)m->bytes;
}

static inline uint8_t *
message_body(struct message *m)
{
	return m->bytes + sizeof(struct karst_ctl_hdr);
}

/** A request of @op with a body of @body zeros.  @return its length. */
static inline size_t
message_request(struct message *m, uint32_t op, size_t body)
{
	size_t len = sizeof(struct karst_ctl_hdr) + body;

	memset(m, 0, len);
	*message_hdr(m) = (struct karst_ctl_hdr){.magic = KARST_CTL_MAGIC,
		.version = KARST_CTL_VERSION,
		.op = (uint16_t)op,
		.len = (uint32_t)len,
		.seq = 4711};
	return len;
}

#endif /* CTL_TEST_MESSAGE_H */
