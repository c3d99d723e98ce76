/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Namespaces: blocks in a file, in a block device or in memory.  Any thread may make the calls that
 * move data, with ranges that were checked with nt_ns_holds().  If a file has become shorter since,
 * the calls fail.
 */
#ifndef NS_H
#define NS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct nt_ns {
	uint32_t nsid;
	char *path; /* NULL: memory */
	int fd;
	uint8_t *memory;
	uint64_t mapped;         /* size of the mapping in bytes */
	_Atomic uint64_t blocks; /* relaxed: no other data depends on it */
	uint32_t shift;          /* a block has 1 << shift bytes */
	bool read_only;
	bool punches; /* deallocated blocks read as zeroes */
	uint8_t uuid[16];
};

/*
 * Opens a file of blocks of 1 << @shift bytes; a remainder at its end is not used.
 * @return NULL after a line on standard error.
 */
struct nt_ns *nt_ns_file(const char *path, uint32_t shift, bool read_only);
struct nt_ns *nt_ns_memory(uint64_t bytes, uint32_t shift, bool read_only);
void nt_ns_close(struct nt_ns *ns);

/* Sets the number, and a UUID that is the same for the same subsystem, number and path. */
void nt_ns_name(struct nt_ns *ns, const char *nqn, uint32_t nsid);
/* @return true: the size of the file has changed. */
bool nt_ns_refresh(struct nt_ns *ns);

static inline uint64_t
nt_ns_blocks(const struct nt_ns *ns)
{
	return atomic_load_explicit(&ns->blocks, memory_order_relaxed);
}

static inline bool
nt_ns_holds(const struct nt_ns *ns, uint64_t lba, uint64_t n)
{
	uint64_t blocks = nt_ns_blocks(ns);

	return lba <= blocks && n <= blocks - lba;
}

/* @return 0 or a negative errno; compare: -EILSEQ if the data differs. */
int nt_ns_read(struct nt_ns *ns, uint64_t lba, void *data, uint32_t len);
int nt_ns_write(struct nt_ns *ns, uint64_t lba, const void *data, uint32_t len);
int nt_ns_compare(struct nt_ns *ns, uint64_t lba, const void *data, uint32_t len);
int nt_ns_zero(struct nt_ns *ns, uint64_t lba, uint64_t n);
/* Returns no result, because deallocation is advice. */
void nt_ns_deallocate(struct nt_ns *ns, uint64_t lba, uint64_t n);
/* Makes written data durable. */
int nt_ns_flush(struct nt_ns *ns);

#endif
