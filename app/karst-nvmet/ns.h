/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Namespaces: blocks in a file, in a block device or in memory.  Calls that move data are made by
 * any thread, with ranges that were checked with nt_ns_holds(); a file that became shorter since
 * then makes them fail.
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
	uint64_t mapped;         /* bytes of it */
	_Atomic uint64_t blocks; /* relaxed: a number, and nothing that goes with it */
	uint32_t shift;          /* a block has 1 << shift bytes */
	bool read_only;
	bool punches; /* what was deallocated reads as zeroes */
	uint8_t uuid[16];
};

/*
 * A file of blocks of 1 << @shift bytes; what is left at its end is not used.
 * @return NULL after a line on standard error.
 */
struct nt_ns *nt_ns_file(const char *path, uint32_t shift, bool read_only);
struct nt_ns *nt_ns_memory(uint64_t bytes, uint32_t shift, bool read_only);
void nt_ns_close(struct nt_ns *ns);

/* The number, and the same UUID whenever it is the same subsystem, number and path. */
void nt_ns_name(struct nt_ns *ns, const char *nqn, uint32_t nsid);
/* @return the file has another size than it had. */
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

/* @return 0 or a negative errno; compare: -EILSEQ if it differs. */
int nt_ns_read(struct nt_ns *ns, uint64_t lba, void *data, uint32_t len);
int nt_ns_write(struct nt_ns *ns, uint64_t lba, const void *data, uint32_t len);
int nt_ns_compare(struct nt_ns *ns, uint64_t lba, const void *data, uint32_t len);
int nt_ns_zero(struct nt_ns *ns, uint64_t lba, uint64_t n);
/* Whether it is done is not said: it is advice. */
void nt_ns_deallocate(struct nt_ns *ns, uint64_t lba, uint64_t n);
/* What was written stays, whatever happens to the machine. */
int nt_ns_flush(struct nt_ns *ns);

#endif
