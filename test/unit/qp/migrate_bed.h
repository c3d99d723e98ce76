/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A queue pair with two paths: the primary one is from 192.0.2.1 to 192.0.2.2, the alternate one
 * (alt_path) from 198.51.100.1 to 198.51.100.2, through port 2.
 */
#ifndef MIGRATE_BED_H
#define MIGRATE_BED_H

#include "harness.h"

#define ALT_TIMEOUT 9u
#define ALT_RTO     (4096ull << ALT_TIMEOUT)

extern const struct karst_path alt_path;

/** Memory for the alternate path of a queue pair; a test needs only one. */
void *migrate_memory(void);

/** Loads @path, sets @state, or both, as @mask says. */
int migrate_load(struct bed *b, const struct karst_path *path, enum karst_mig_state state,
	unsigned int mask);
int migrate_rearm(struct bed *b);
int migrate_set(struct bed *b, enum karst_mig_state state);

/** A queue pair in ARMED, after a WRITE of the peer's. */
struct bed *bed_armed(enum karst_qp_type type);
struct bed *bed_armed_as(enum karst_qp_type type, const struct setup *s);
/** From now on the peer sends from the other end of the alternate path.  @return its path before */
struct karst_path peer_migrates(struct bed *b);

/** Expects that an unanswered WRITE ends the queue pair, and causes no migration. */
void expect_exhausted(struct bed *b);

void expect_mig_at(struct bed *b, int line, enum karst_mig_state state);
#define expect_mig(b, st) expect_mig_at(b, __LINE__, KARST_MIG_##st)
/** Expects this primary path. */
void expect_path_at(struct bed *b, int line, const struct karst_path *path);
#define expect_path(b, path) expect_path_at(b, __LINE__, path)
/** Expects that a frame was sent over this path, and with this MigReq. */
void expect_via_at(int line, const struct karst_pkt *p, const struct karst_path *path, bool migreq);
#define expect_via(b, pkt, path, migreq) expect_via_at(__LINE__, pkt, path, migreq)

#endif /* MIGRATE_BED_H */
