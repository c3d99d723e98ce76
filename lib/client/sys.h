/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory system calls without libc.  Some programs (UCX, Open MPI) hook libc's functions to learn
 * when registered memory goes away, and would take libkarst's calls for calls of the program.
 */
#ifndef KARST_CLIENT_SYS_H
#define KARST_CLIENT_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLI_PAGE 4096u
#define CLI_HUGE (2u << 20)

/** Returns MAP_FAILED and sets errno on failure, as mmap(). */
static inline void *
sys_mmap(void *at, size_t len, int prot, int flags, int fd, uint64_t off)
{
	return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, (long)off);
}

static inline int
sys_munmap(void *at, size_t len)
{
	return (int)syscall(SYS_munmap, at, len);
}

static inline int
sys_madvise(void *at, size_t len, int advice)
{
	return (int)syscall(SYS_madvise, at, len, advice);
}

static inline int
sys_mprotect(void *at, size_t len, int prot)
{
	return (int)syscall(SYS_mprotect, at, len, prot);
}

/** Moves a mapping to @to and replaces what is mapped there. */
static inline int
sys_mremap(void *from, size_t len, void *to)
{
	void *p = (void *)syscall(SYS_mremap, from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to);

	return p == MAP_FAILED ? -1 : 0;
}

#endif /* KARST_CLIENT_SYS_H */
