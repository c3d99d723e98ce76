/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The mappings of this process, from /proc/self/maps: for each question anew, nothing is kept. */
#ifndef KARST_CLIENT_VMA_H
#define KARST_CLIENT_VMA_H

#include "karst_base.h"

struct cli_vma {
	uint64_t start, end;
	uint64_t off; /* in its file */
	uint64_t ino; /* 0: no file */
	uint32_t major, minor;
	uint32_t page; /* of the mapping, as far as known; a guess that is too large does no harm */
	bool read, write, exec, shared;
};

struct cli_vmas {
	int fd;
	bool text; /* the kernel has no way to ask for one mapping: its list is read */
	bool eof;
	uint32_t at, got; /* of buf */
	struct cli_vma last;
	char buf[4096];
};

/** -errno */
int cli_vmas_open(struct cli_vmas *v);
void cli_vmas_close(struct cli_vmas *v);

/**
 * The first mapping that ends behind @addr; addresses of one opening only grow.
 * @return 1, 0: there is none, or -errno.
 */
int cli_vmas_next(struct cli_vmas *v, uint64_t addr, struct cli_vma *vma);

#endif /* KARST_CLIENT_VMA_H */
