/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Unmapped memory (karst_unmapped.h) is reached by copies, which may take long.
 *
 * The core never waits for a copy.  What needs unmapped bytes is done in two passes:
 *
 *   a packet  The first pass finds out where its payload goes, changes nothing that the second
 *             would not find as it was, and parks the packet with a copy.  While it waits, what
 *             comes after it on that queue pair waits behind it.  When the copy is done, the same
 *             packet is delivered again, as if its bytes had been written by this pass; or, if
 *             they could not, as if their memory had been refused.
 *   frames    A frame is begun only when its payload is here.  Unmapped payload is fetched, with
 *             that of the next frames, and the half of the queue pair that needs it sends nothing
 *             until the fetch is done.
 *
 * A copy is the driver's memory.  It fills states from the left to the right:
 *
 *	karst_copy_ops.take()    OPEN   the core adds parts
 *	karst_copy_ops.submit()  BUSY   the driver's; the core looks at nothing but ->half, ->qp
 *	karst_copy_done()           DONE   the core's again
 *	karst_copy_ops.give_back(), also from BUSY: whoever wanted it has gone
 *
 * Everything here runs on the core's lcore.
 */
#ifndef KARST_COPY_H
#define KARST_COPY_H

#include "karst_base.h"
#include "karst_pkt.h"

struct karst_core;
struct karst_core_qp;

/** Whose copy it is; a queue pair has at most one of each. */
enum karst_copy_half {
	KARST_COPY_RX,  /* of a packet that came */
	KARST_COPY_REQ, /* of requests that go out */
	KARST_COPY_RSP, /* of READ responses that go out */
	KARST_COPY_HALVES,
};

enum karst_copy_op {
	KARST_COPY_WRITE, /* into unmapped memory */
	KARST_COPY_READ,  /* from unmapped memory */
	/* eight bytes, aligned, of one part */
	KARST_COPY_CAS,
	KARST_COPY_FAA,
	KARST_COPY_STORE, /* ATOMIC WRITE */
};

enum karst_copy_state { KARST_COPY_OPEN, KARST_COPY_BUSY, KARST_COPY_DONE };

/* What a frame or packet of KARST_WQ_MAX_SGE segments can need, each in two copied parts. */
#define KARST_COPY_PARTS 72u
#define KARST_COPY_ROOM  65536u /* bytes fetched at once */
#define KARST_COPY_AHEAD 16u    /* frames fetched at once */
/* Packets of one queue pair that wait behind one that is parked: more than a burst, and less than
 * what a window would fill.  Of UD and UC, whose packets nobody sends again, as many as the driver
 * keeps; those beyond this number are what it may refuse in favour of others. */
#define KARST_COPY_BACKLOG 64u

/** Bytes that lie together, here and there.  Parts are moved in order. */
struct karst_copy_part {
	uint8_t *host; /* address of unmapped memory */
	uint8_t *local;
	uint32_t n;
};

/** What a frame will ask for: @n bytes at @host. */
struct karst_copy_seg {
	const uint8_t *host;
	uint8_t *local;
	uint32_t n;
	uint32_t psn;
	uint32_t upto; /* bytes that must have moved for it to be there */
};

struct karst_copy {
	struct karst_core_qp *qp;
	uint8_t half;  /* enum karst_copy_half */
	uint8_t op;    /* enum karst_copy_op */
	uint8_t state; /* enum karst_copy_state */
	bool end;      /* the last part ends a message: its last bytes after all others (R14) */
	uint32_t nparts;
	uint32_t bytes; /* of all parts */
	uint32_t moved; /* driver: of these, before the first that failed; all: success */
	struct karst_copy_part part[KARST_COPY_PARTS];
	/* RX */
	struct karst_pkt *pkt;
	uint32_t nbacklog;
	uint32_t nsmall;
	struct karst_pkt *backlog;      /* in their order, linked by ->next */
	struct karst_pkt **backlog_end; /* where the next one is linked */
	uint8_t small[56]; /* sources that are in no packet: a GRH, the result of an atomic */
	uint64_t compare;
	uint64_t operand; /* swapped in, added or stored */
	uint64_t old;     /* driver: the value before; not for STORE */
	/* REQ, RSP */
	uint8_t *room; /* driver: KARST_COPY_ROOM bytes */
	uint32_t used;
	uint32_t nsegs;
	uint32_t seg_next; /* that the next frame begins with */
	struct karst_copy_seg seg[KARST_COPY_PARTS];
};

/** How the driver reads and writes unmapped memory. */
struct karst_copy_ops {
	/**
	 * Translates @host, an address of unmapped memory.  *n is how many bytes are wanted, and
	 * becomes how many of them are contiguous and reached in the same manner.
	 * @return an address that may be dereferenced until the end of the turn: these bytes are
	 *   mapped after all; NULL: they must be copied.
	 */
	uint8_t *(*map)(struct karst_core *core, const uint8_t *host, uint32_t *n);
	/** An empty copy, but for ->room; NULL: there is none left at present. */
	struct karst_copy *(*take)(struct karst_core *core);
	/** false: not now; the copy is still the core's. */
	bool (*submit)(struct karst_core *core, struct karst_copy *c);
	/** The copy, and c->pkt, are the driver's again; what it fetched is good until the end of
	 *  the turn. */
	void (*give_back)(struct karst_core *core, struct karst_copy *c);
	/**
	 * Keeps @pkt, which is being delivered, with @c.  @return the packet from now on, which may
	 * be another one of the same content; NULL: it cannot be kept.
	 */
	struct karst_pkt *(*keep)(
		struct karst_core *core, struct karst_copy *c, struct karst_pkt *pkt);
	/** A packet of a backlog is the driver's again. */
	void (*release)(struct karst_core *core, struct karst_pkt *pkt);
};

/** At a safe point, outside of all entry points of the core: @c->moved says what has become of
 *  @c. */
void karst_copy_done(struct karst_core *core, struct karst_copy *c);

/** Does a half of @qp that sends wait for bytes? */
bool karst_qp_fetching(const struct karst_core_qp *qp);

/** Gives back what was fetched for @qp, which cannot send for a while. */
void karst_qp_unfetch(struct karst_core *core, struct karst_core_qp *qp);

#endif /* KARST_COPY_H */
