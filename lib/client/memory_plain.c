/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Registered memory, all of it copied. */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>

#include "karst_ctl_msg.h"

int
karst_memory_get(const void *addr, size_t len, bool write, uint64_t migrate_min,
	struct karst_memory **m, char *why)
{
	struct karst_memory *mem;

	if ((uintptr_t)addr + len < (uintptr_t)addr)
		return karst_ctl_say(why, -EINVAL, "%zu bytes at %p wrap around", len, addr);
	mem = calloc(1, sizeof(*mem));
	if (mem != NULL)
		mem->piece = calloc(1, sizeof(*mem->piece));
	if (mem == NULL || mem->piece == NULL) {
		free(mem);
		return karst_ctl_say(why, -ENOMEM, "no memory");
	}
	mem->piece->addr = (uintptr_t)addr;
	mem->piece->len = len;
	mem->npieces = len != 0;
	*m = mem;
	return 0;
}

void
karst_memory_put(struct karst_memory *m)
{
	free(m->piece);
	free(m);
}
