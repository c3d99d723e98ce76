/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The mappings of a process, from /proc/PID/maps: for each question anew, nothing is kept. */
#ifndef KARST_VMA_H
#define KARST_VMA_H

#include "karst_base.h"

struct karst_vma {
	uint64_t start, end;
	uint64_t off; /* in its file */
	uint64_t ino; /* 0: no file */
	uint32_t major, minor;
	uint32_t page; /* of the mapping, as far as known; a guess that is too large does no harm */
	bool read, write, exec, shared;
};

struct karst_vmas {
	int fd;
	bool text; /* the kernel has no way to ask for one mapping: its list is read */
	bool eof;
	uint32_t at, got; /* of buf */
	struct karst_vma last;
	char buf[4096];
};

/** @process: descriptor of /proc/PID; AT_FDCWD: this process.  -errno */
int karst_vmas_open(struct karst_vmas *v, int process);
/** The same with a descriptor of "maps", at its beginning; karst_vmas_close() closes it. */
void karst_vmas_use(struct karst_vmas *v, int fd);
void karst_vmas_close(struct karst_vmas *v);

/**
 * The first mapping that ends behind @addr; addresses of one opening only grow.
 * @return 1, 0: there is none, or -errno.
 */
int karst_vmas_next(struct karst_vmas *v, uint64_t addr, struct karst_vma *vma);

#endif /* KARST_VMA_H */
