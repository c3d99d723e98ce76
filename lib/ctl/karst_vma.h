/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The mappings of a process, from /proc/PID/maps.  Nothing is cached: each question is asked
 * again. */
#ifndef KARST_VMA_H
#define KARST_VMA_H

#include "karst_base.h"

struct karst_vma {
	uint64_t start, end;
	uint64_t off; /* in its file */
	uint64_t ino; /* 0: no file */
	uint32_t major, minor;
	uint32_t page; /* page size of the mapping, as far as known; too large a guess does no
		        * harm */
	bool read, write, exec, shared;
};

struct karst_vmas {
	int fd;
	bool text; /* the kernel cannot be asked for one mapping, so the list is read */
	bool eof;
	uint32_t at, got; /* positions in buf */
	struct karst_vma last;
	char buf[4096];
};

/** @process: descriptor of /proc/PID; AT_FDCWD: this process.  -errno */
int karst_vmas_open(struct karst_vmas *v, int process);
/**
 * The same with a descriptor of "maps", positioned at its beginning; karst_vmas_close() closes it.
 */
void karst_vmas_use(struct karst_vmas *v, int fd);
void karst_vmas_close(struct karst_vmas *v);

/**
 * Returns the first mapping that ends behind @addr.  Between opening and closing, @addr may only
 * increase.
 * @return 1; 0: there is none; or -errno.
 */
int karst_vmas_next(struct karst_vmas *v, uint64_t addr, struct karst_vma *vma);

#endif /* KARST_VMA_H */
