/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Access to unmapped memory (karst_unmapped.h) by copies, which may take long.
 *
 * The core never waits for a copy.  An operation that needs unmapped bytes is done in two passes:
 *
 *   a packet  The first pass determines where the payload goes, changes nothing that would make the
 *             second pass differ, and parks the packet with a copy.  While it waits, later packets
 *             of that queue pair wait behind it.  When the copy is done, the same packet is
 *             delivered again.  The second pass acts as if it had written the bytes itself, or, if
 *             they could not be written, as if access to the memory had been refused.
 *   frames    A frame is begun only when its payload is available.  Unmapped payload is fetched,
 *             together with that of the next frames.  The half of the queue pair that needs it
 *             sends nothing until the fetch is done.
 *
 * The driver owns the memory of a copy.  A copy passes through the states from left to right:
 *
 *	karst_copy_ops.take()    OPEN   the core adds parts
 *	karst_copy_ops.submit()  BUSY   the driver's; the core reads only ->half and ->qp
 *	karst_copy_done()           DONE   the core's again
 *	karst_copy_ops.give_back(), also from BUSY: the copy is no longer wanted
 *
 * Everything here runs on the core's lcore.
 */
#ifndef KARST_COPY_H
#define KARST_COPY_H

#include "karst_base.h"
#include "karst_pkt.h"

struct karst_core;
struct karst_core_qp;

/** The purpose of a copy; a queue pair has at most one of each. */
enum karst_copy_half {
	KARST_COPY_RX,  /* of a received packet */
	KARST_COPY_REQ, /* of requests to send */
	KARST_COPY_RSP, /* of READ responses to send */
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

/* The maximum for a frame or packet of KARST_WQ_MAX_SGE segments, each in two copied parts. */
#define KARST_COPY_PARTS 72u
#define KARST_COPY_ROOM  65536u /* bytes fetched at once */
#define KARST_COPY_AHEAD 16u    /* frames fetched at once */
/* Limit of the packets of one queue pair that wait behind a parked one: more than a burst, and
 * fewer than would fill a window.  UD and UC packets are never sent again, so of these as many wait
 * as the driver keeps; the driver may refuse those beyond this limit in favour of other queue
 * pairs. */
#define KARST_COPY_BACKLOG 64u

/** Bytes that are contiguous at both ends.  Parts are copied in order. */
struct karst_copy_part {
	uint8_t *host; /* address of unmapped memory */
	uint8_t *local;
	uint32_t n;
};

/** A segment that a frame will request: @n bytes at @host. */
struct karst_copy_seg {
	const uint8_t *host;
	uint8_t *local;
	uint32_t n;
	uint32_t psn;
	uint32_t upto; /* bytes of the copy that must have been moved before it is available */
};

struct karst_copy {
	struct karst_core_qp *qp;
	uint8_t half;  /* enum karst_copy_half */
	uint8_t op;    /* enum karst_copy_op */
	uint8_t state; /* enum karst_copy_state */
	/* the last part ends a message: its last bytes are written after all others (R14) */
	bool end;
	uint32_t nparts;
	uint32_t bytes; /* sum over all parts */
	/* set by the driver: bytes moved before the first failure; equal to bytes: success */
	uint32_t moved;
	struct karst_copy_part part[KARST_COPY_PARTS];
	/* RX */
	struct karst_pkt *pkt;
	uint32_t nbacklog;
	uint32_t nsmall;
	/* lowest and highest PSN of the requests for which the backlog had no room */
	uint32_t missed_from;
	uint32_t missed_psn;
	bool missed;                    /* there were such requests */
	struct karst_pkt *backlog;      /* in order of arrival, linked by ->next */
	struct karst_pkt **backlog_end; /* where the next one is linked */
	uint8_t small[56]; /* sources that are in no packet: a GRH, the result of an atomic */
	uint64_t compare;
	uint64_t operand; /* value to swap in, to add or to store */
	uint64_t old;     /* set by the driver: the value before; not for STORE */
	/* REQ, RSP */
	uint8_t *room; /* set by the driver: KARST_COPY_ROOM bytes */
	uint32_t used;
	uint32_t nsegs;
	uint32_t seg_next; /* first segment of the next frame */
	struct karst_copy_seg seg[KARST_COPY_PARTS];
};

/** Operations of the driver that read and write unmapped memory. */
struct karst_copy_ops {
	/**
	 * Translates @host, an address of unmapped memory.  *n is how many bytes are wanted; on
	 * return it is how many of them are contiguous and have the same access method.
	 * @return an address that may be dereferenced until the end of the turn: these bytes are
	 *   mapped after all; NULL: they must be copied.
	 */
	uint8_t *(*map)(struct karst_core *core, const uint8_t *host, uint32_t *n);
	/** Returns an empty copy, with only ->room set; NULL: none is free at present. */
	struct karst_copy *(*take)(struct karst_core *core);
	/** Submits a copy.  @return false: not possible now; the copy still belongs to the core. */
	bool (*submit)(struct karst_core *core, struct karst_copy *c);
	/** The copy, and c->pkt, belong to the driver again.  Fetched bytes stay valid until the
	 *  end of the turn. */
	void (*give_back)(struct karst_core *core, struct karst_copy *c);
	/**
	 * Keeps @pkt, which is being delivered, with @c.
	 * @return the packet to use from now on, which may be another one of the same content;
	 *   NULL: it cannot be kept.
	 */
	struct karst_pkt *(*keep)(
		struct karst_core *core, struct karst_copy *c, struct karst_pkt *pkt);
	/** @pkt, for which keep() has just returned the packet itself, is not kept after all; it
	 *  remains with whoever delivers it. */
	void (*unkeep)(struct karst_core *core, struct karst_pkt *pkt);
	/** Returns a packet of a backlog to the driver. */
	void (*release)(struct karst_core *core, struct karst_pkt *pkt);
};

/** Ends copy @c.  Called at a safe point, outside all entry points of the core; @c->moved has the
 *  result. */
void karst_copy_done(struct karst_core *core, struct karst_copy *c);

/** Whether a sending half of @qp waits for bytes. */
bool karst_qp_fetching(const struct karst_core_qp *qp);

/** Gives back the bytes fetched for @qp, which cannot send for a while. */
void karst_qp_unfetch(struct karst_core *core, struct karst_core_qp *qp);

#endif /* KARST_COPY_H */
