/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Protection domains, memory regions, memory windows, and their keys.
 *
 * One table per engine, shared by all of its lcores.  Regions and windows have one kind of key: it
 * serves as L_Key and R_Key.  The upper 24 bits of a key are a secret permutation of (generation,
 * slot), so a peer cannot guess one from others and a stale one never matches; the low 8 bits are
 * random, except for type 2 windows, where the program chooses them at each bind (as ibv_inc_rkey
 * expects).
 *
 * Threads: functions marked "control" are called by one control thread at a time.  Functions marked
 * "lcore" may run on any lcore at any time, also concurrently with control functions; they never
 * block.  A host address obtained from a check is valid until the lcore's next quiescent point (the
 * end of its poll turn).  Deregistration is in two steps: _begin makes the key unusable, and after
 * every lcore has passed a quiescent point _end frees the slot (lib/engine waits with RCU; a
 * single-threaded user calls _end at once).
 */
#ifndef KARST_MEM_H
#define KARST_MEM_H

#include "karst_base.h"
#include "karst_verbs.h"

/** Outcome of a check.  Remote checks turn every failure into NAK remote access error (R1). */
enum karst_mem_status {
	KARST_MEM_OK,
	KARST_MEM_BAD_KEY,    /* no such key, or invalidated */
	KARST_MEM_BAD_PD,     /* another protection domain or, for a type 2 window, another QP */
	KARST_MEM_BAD_ACCESS, /* access flag missing */
	KARST_MEM_BAD_RANGE,  /* not wholly inside the region; wrap-around included */
};

/** The table; opaque except to the inline checks. */
struct karst_mem;

struct karst_mem_config {
	uint32_t max_keys; /* regions and windows together, 2..2^20, rounded up to a power of two */
	uint32_t max_pds;  /* 1..65536 */
	uint64_t seed[2];  /* secret; from getrandom(), except in tests */
};

/** Bytes that karst_mem_init() needs for @cfg; 0 if @cfg is out of range. */
size_t karst_mem_size(const struct karst_mem_config *cfg);

/** Makes an empty table in @buf (cache-line aligned, karst_mem_size() bytes).  -EINVAL. */
int karst_mem_init(void *buf, const struct karst_mem_config *cfg, struct karst_mem **mem);

/** Control.  @pd: a number from 1 on.  -ENOSPC */
int karst_pd_alloc(struct karst_mem *m, uint32_t *pd);
/** Control.  -EINVAL: no such PD; -EBUSY: it has regions, windows or users (karst_pd_ref). */
int karst_pd_free(struct karst_mem *m, uint32_t pd);
/** Control.  Adds a user (QP, SRQ, AH) of the PD.  -EINVAL: no such PD. */
int karst_pd_ref(struct karst_mem *m, uint32_t pd);
/** Control.  Reverts karst_pd_ref(). */
void karst_pd_unref(struct karst_mem *m, uint32_t pd);

/**
 * Control.  Registers @len bytes at @host, addressed as @va.. by work requests and peers
 * (KARST_ACCESS_ZERO_BASED: as 0..).  Remote write or atomic access requires local write.
 * @return 0 and *key; -EINVAL: no such PD, unknown or invalid flags, range that wraps around;
 *   -ENOSPC: table full.
 */
int karst_mr_reg(struct karst_mem *m, uint32_t pd, void *host, uint64_t va, uint64_t len,
	unsigned int access, uint32_t *key);

struct karst_mr_attr {
	uint32_t pd;
	unsigned int access;
	void *host;
	uint64_t va;
	uint64_t len;
};

/**
 * Control.  Re-registers: the key is unusable from _begin to _end, and does not change.  -EINVAL:
 * not a usable region's key; new attributes out of range; or a zero-based region would lose that
 * attribute without a new translation.  -EBUSY: windows are bound to it.  In these cases nothing
 * has changed.  _end takes the same arguments.
 */
int karst_mr_rereg_begin(
	struct karst_mem *m, uint32_t key, unsigned int what, const struct karst_mr_attr *attr);
void karst_mr_rereg_end(
	struct karst_mem *m, uint32_t key, unsigned int what, const struct karst_mr_attr *attr);

/**
 * Control.  Changes the host address of a region to @host, which must map the same bytes.  The key
 * stays usable throughout; lcores may use the old address until each has passed a quiescent point.
 * -EINVAL: @key is not a usable region's; -EBUSY: the region allows KARST_ACCESS_MW_BIND (windows
 * may be bound to it) or KARST_ACCESS_REMOTE_ATOMIC (all atomics must use one address).
 */
int karst_mr_remap(struct karst_mem *m, uint32_t key, void *host);

/** Control.  Also for a region that a local or remote invalidate has made unusable.
 *  -EINVAL: not a region's key; -EBUSY: windows are bound to it. */
int karst_mr_dereg_begin(struct karst_mem *m, uint32_t key);
void karst_mr_dereg_end(struct karst_mem *m, uint32_t key);

/** Control.  Allocates an unbound window of @type (MW1 or MW2).  -EINVAL, -ENOSPC. */
int karst_mw_alloc(struct karst_mem *m, uint32_t pd, enum karst_mem_type type, uint32_t *key);
/**
 * Control.  Unbinds and frees; two steps as with regions.  @key: current or original key.
 * -EINVAL.
 */
int karst_mw_free_begin(struct karst_mem *m, uint32_t key);
void karst_mw_free_end(struct karst_mem *m, uint32_t key);

struct karst_mw_bind {
	uint32_t pd;     /* of the QP that binds */
	uint32_t qpn;    /* QP that binds; owner of a type 2 window */
	uint32_t mw_key; /* current key of the window */
	/* type 2: the low 8 bits, which the program chooses; type 1: used only if it fits and is
	 * new */
	uint32_t new_key;
	uint32_t mr_key;
	uint64_t va;         /* inside the region, in the region's addresses */
	uint64_t len;        /* 0 unbinds a type 1 window; type 2: not 0 (IBTA o10-37.2.40) */
	unsigned int access; /* of KARST_ACCESS_REMOTE; type 2 also ZERO_BASED (IBTA o10-36.2.2) */
};

/**
 * Lcore.  Binds a window by work request (type 2) or by the bind verb (type 1).  Type 1 may be
 * rebound, and gets a new low byte, also when it is unbound: the program's, or a random one if that
 * is not usable.  Requires KARST_ACCESS_MW_BIND on the region, and local write for remote write or
 * atomic.  An access by the old key that has passed its check on another lcore may continue until
 * the end of that lcore's turn.
 * @return 0 and *bound_key; -EINVAL: keys, PDs, ranges or flags do not match, or a type 2 window is
 *   bound already; -EBUSY: another lcore is binding the same window.
 */
int karst_mw_bind(struct karst_mem *m, const struct karst_mw_bind *b, uint32_t *bound_key);

/**
 * Lcore.  Local (LOCAL_INV) or remote (SEND with Invalidate) invalidation by QP @qpn of @pd: a type
 * 2 window bound by this QP; @remote false: also a region of the PD.  After it the key matches
 * nothing until a bind (window) or deregistration (region).
 * @return 0; -EINVAL: the key is not one that this QP may invalidate (R9, L8), or a region to which
 *   windows are bound.
 */
int karst_mem_invalidate(struct karst_mem *m, uint32_t pd, uint32_t qpn, uint32_t key, bool remote);

/**
 * Control.  Unbinds all type 2 windows that QP @qpn has bound.  Called when that QP is destroyed
 * (its lcore does not use it any more) and before its number is given to another.  Returns at once
 * if the QP has none, according to a counter by hash of the number; else the function examines a
 * word for each key until the counter is 0.
 * @return how many were unbound.
 */
uint32_t karst_mw_release_qp(struct karst_mem *m, uint32_t qpn);

/** Control.  The attributes of a region or bound window with a usable key (zero-based: va 0).
 *  -EINVAL: the key is not usable. */
int karst_mem_query(const struct karst_mem *m, uint32_t key, struct karst_mr_attr *attr);

struct karst_mem_usage {
	uint32_t max_keys; /* regions and windows together */
	uint32_t mrs;
	uint32_t mws;
	uint32_t max_pds;
	uint32_t pds;
};

/** Control.  The usage of the table. */
void karst_mem_usage(const struct karst_mem *m, struct karst_mem_usage *usage);

#include "mem_check.h"

/*
 * mem_check.h defines, inline, for the data path:
 *
 * Lcore.  Checks whether a work request of protection domain @pd may use @len bytes at @va by @key,
 * with @access (0 to read, KARST_ACCESS_LOCAL_WRITE to write).  Only regions.  *host is set on OK.
 * Zero bytes are in range from the first address of a region to the one after its last.
 *
 *   enum karst_mem_status karst_mem_check_local(const struct karst_mem *m, uint32_t pd,
 *	uint32_t key, uint64_t va, uint32_t len, unsigned int access, uint8_t **host);
 *
 * Lcore.  Checks whether a peer of QP @qpn in @pd may do @access (flags of KARST_ACCESS_REMOTE) to
 * @len bytes at @va by @key.  Regions and windows.  For the whole region or window without a range:
 * 0 bytes at karst_mem_base_of().
 *
 *   enum karst_mem_status karst_mem_check_remote(const struct karst_mem *m, uint32_t pd,
 *	uint32_t qpn, uint32_t key, uint64_t va, uint32_t len, unsigned int access,
 *	uint8_t **host);
 *   uint64_t karst_mem_base_of(const struct karst_mem *m, uint32_t key);
 *
 * Lcore.  Prefetches the one cache line that a check of @key will read; any value of @key.
 *
 *   void karst_mem_prefetch(const struct karst_mem *m, uint32_t key);
 *
 * Lcore.  Atomics on 8 aligned bytes in host order, atomic with respect to other lcores, other QPs
 * and the application (R7).  They return the value before.
 *
 *   uint64_t karst_mem_cas(uint8_t *host, uint64_t compare, uint64_t swap);
 *   uint64_t karst_mem_faa(uint8_t *host, uint64_t add);
 *
 * Lcore.  ATOMIC WRITE: one indivisible store of 8 aligned bytes, in wire order.
 *
 *   void karst_mem_store8(uint8_t *host, const uint8_t *bytes);
 */

#endif /* KARST_MEM_H */
