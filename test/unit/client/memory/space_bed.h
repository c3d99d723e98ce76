/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program's memory in an engine of another process, used by real queue pairs: the engine and both
 * ends of each connection are the test's, the memory is a child's (program.h).
 */
#ifndef SPACE_BED_H
#define SPACE_BED_H

#include <sys/types.h>

#include "engine_bed.h"
#include "karst_space.h"
#include "program.h"

#define SPACE_ALL   (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE)
#define SPACE_LOCAL (16u << 20)
#define SPACE_KEYS  64

/* One program, one engine, two connections. */
struct rig {
	struct engine_bed bed;
	struct program prog;
	struct karst_space *space;
	struct karst_engine_qp *near[2], *far[2]; /* far[] uses the program's memory */
	uint8_t *local;                           /* memory of the test */
	uint32_t local_key;
	uint32_t key[SPACE_KEYS], nkeys; /* keys of the regions that still exist */
};

struct region {
	struct karst_space_region *r;
	uint64_t addr, len;
	uint32_t key;
	uint64_t shared, migrated, copied;
};

/** Hands over what a program sends with HELLO. */
void give_memory(struct karst_space *s, pid_t pid);
void rig_up_as(struct rig *rig, uid_t uid);
void rig_up(struct rig *rig);
/** With lcores of karst_engine_start(), which sleep when they are idle. */
void rig_up_started(struct rig *rig);
void rig_down(struct rig *rig);
int map_pieces(struct rig *rig, uint64_t addr, uint64_t len, bool write, struct program_pieces *p,
	struct region *out);
/** Makes a region as a session does for REG_MR; returns errors of the program's side, too. */
int region_make(
	struct rig *rig, uint64_t addr, uint64_t len, bool write, uint64_t min, struct region *out);
void region_drop(struct rig *rig, struct region *r);
enum karst_wc_status wait_one(struct rig *rig);
/** Runs a request of the peer: @op between our local memory and the program's. */
enum karst_wc_status remote_op(struct rig *rig, unsigned int pair, enum karst_wr_opcode op,
	uint64_t local_off, uint64_t addr, uint32_t len, uint32_t key);
/** Runs a request of the program: its memory is local to far[]. */
enum karst_wc_status own_op(struct rig *rig, enum karst_wr_opcode op, uint64_t local_off,
	uint64_t addr, uint32_t len, uint32_t key);
void fill_local(struct rig *rig, uint64_t len, unsigned int seed);
void expect_local(
	const struct rig *rig, uint64_t from, uint64_t len, unsigned int seed, const char *what);
/** Runs every operation that reads or writes the region, and watches the bytes around it. */
void exercise(struct rig *rig, const struct region *r, uint64_t edge);
/** Tests of migration need userfaultfd that also handles accesses by the kernel. */
bool can_migrate(void);

/** Posts a fetch and add of 1 to near[@pair]; the old value is written to its part of local. */
void post_faa(struct rig *rig, unsigned int pair, uint64_t addr, uint32_t key);

#endif /* SPACE_BED_H */
