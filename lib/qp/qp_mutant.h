/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Deliberate faults, to prove that the simulator's oracle detects them.  A normal build has none:
 * karst_mutant() is constant 0 there.  test/sim builds this folder once more with all of them
 * (-DKARST_MUTANTS), and a process has the one that test/sim/mutant.c selected for it.
 */
#ifndef KARST_QP_MUTANT_H
#define KARST_QP_MUTANT_H

enum karst_mutant {
	KARST_MUTANT_NONE,
	KARST_MUTANT_DUP_ATOMIC,      /* responder executes duplicate atomics again (R5) */
	KARST_MUTANT_DUP_SEND,        /* responder delivers duplicate SENDs again (R3) */
	KARST_MUTANT_DUP_WRITE,       /* responder executes duplicate WRITEs again (R3) */
	KARST_MUTANT_IGNORE_NAK,      /* requester takes a sequence NAK for an ACK (Q4) */
	KARST_MUTANT_READ_RETRY_PSN,  /* READ retry moves the address but not the PSN (Q5) */
	KARST_MUTANT_READ_RETRY_VA,   /* READ retry moves the PSN but not the address (Q5) */
	KARST_MUTANT_EARLY_COMPLETE,  /* RC sends complete before they are acknowledged (Q3) */
	KARST_MUTANT_ACK_PASSES_READ, /* an ACK past a lost READ response completes the READ (Q3) */
	KARST_MUTANT_NO_FENCE,        /* fence ignored (Q1) */
	KARST_MUTANT_NO_TIMEOUT,      /* acknowledgement timeout never acts (Q6) */
	KARST_MUTANT_RNR_EXECUTES,    /* RNR NAK sent although PSN is advanced (R8) */
	KARST_MUTANT_SEQ_ACCEPT,  /* responder accepts a request ahead of the expected PSN (R2) */
	KARST_MUTANT_LOST_SIGNAL, /* a signalled completion is swallowed now and then (Q1) */
	KARST_MUTANT_ORDER,       /* READ placed at the wrong offset after a retry (Q5) */
	KARST_MUTANT_UC_MIX,      /* UC continues a message after a PSN gap (U1) */
	KARST_MUTANT_PSN_WRAP,    /* PSN compared without wrap-around (P1) */
	KARST_MUTANT_WINDOW_KEY,  /* remote invalidate leaves the window usable (R9) */
	KARST_MUTANT_RD_LIMIT,    /* max_rd_atomic is not kept (Q5) */
	KARST_MUTANT_DEAF_FLUSH,  /* the newest request of a queue in Error is not flushed (Q8) */
	KARST_MUTANT_CREDIT,      /* end-to-end credits are not checked (Q9) */
	KARST_MUTANT_XRC_STICKS,  /* an XRC target keeps the first SRQ that was named (U3) */
	KARST_MUTANT_REFUSES_ON, /* a responder that has refused continues without an event (R13) */
	KARST_MUTANT_SAVED_FOR_EVER, /* saved READs and atomics do not age (P1) */
	KARST_MUTANT_ANSWERS_FIRST,  /* answers go before requests whatever has been sent (Q1) */
	KARST_MUTANT_FLUSH_WAITS,    /* nothing is flushed while the port takes no frames (Q8) */
	KARST_MUTANT_ENDLESS_VISIT,  /* requests that make no frame are not counted (Q1) */
	KARST_MUTANT_NO_CNP,         /* a mark is not answered (E4) */
	KARST_MUTANT_CNP_FLOOD,      /* every mark is answered, whatever the interval (E4) */
	KARST_MUTANT_CNP_FOR_ACK,    /* marks of acknowledgements are answered, too (E4) */
	KARST_MUTANT_CNP_TO_SELF,    /* the CNP names the queue pair that received (E3) */
	KARST_MUTANT_CNP_ECT,        /* CNPs may be marked (E3) */
	KARST_MUTANT_NO_RATE,        /* CNPs change no rate (E2) */
	KARST_MUTANT_NO_WAIT,        /* a queue pair without tokens sends nevertheless (E6) */
	KARST_MUTANT_PROBE_STORM,    /* probes of one silence have no end (Q11) */
	KARST_MUTANT_PROBE_SPENDS,   /* a probe spends a retry (Q11) */
	KARST_MUTANT_WARY_STORM,     /* a full window is probed again and again (Q12) */
	KARST_MUTANT_FLUSH_RIGHTS,   /* a queue pair's rights to FLUSH are not checked (R15) */
	KARST_MUTANT_FLUSH_AHEAD,    /* a FLUSH is answered before earlier requests (R15) */
	KARST_MUTANT_BIT_LIES,       /* a SACK has a bit for what is not held (X4) */
	KARST_MUTANT_BIT_FORGOTTEN,  /* what the peer has is sent again (X8) */
	KARST_MUTANT_SACK_UNASKED,   /* an ACK is called a SACK without agreement (X1) */
	KARST_MUTANT_SPRAY_UNASKED,  /* source ports change without agreement (X12) */
	KARST_MUTANT_GAP_PLACE,      /* a response behind a gap goes to the wrong place (X11) */
	KARST_MUTANT_GAP_CLOSED,     /* a response after a gap closes the gap (X11) */
	KARST_MUTANT_GAP_ALL,        /* a peer that agreed is asked for what has arrived (X11) */
	KARST_MUTANT_NO_WINDOW,      /* the window of control by delay is not kept (E7) */
	KARST_MUTANT_NO_PAUSE,       /* nor is the pause after what exceeds it (E7) */
	KARST_MUTANT_READ_FREE,      /* READs go out whatever the window (E7) */
	KARST_MUTANT_NO_MIGRATION,   /* exhausted retries fail the queue pair, ARMED or not (G4) */
	KARST_MUTANT_MIGRATE_SILENT, /* a migration is not signalled (G1) */
	KARST_MUTANT_ANY_ADDRESS,    /* an armed queue pair accepts packets from any address (G3) */
	KARST_MUTANT_OLD_PATH,       /* an atomic of the old path is lost after its copy (R5) */
	KARST_MUTANT_MAX
};

#ifdef KARST_MUTANTS
extern unsigned int karst_mutant_now;
#define karst_mutant(m) (karst_mutant_now == (m))
#else
#define karst_mutant(m) 0
#endif

#endif /* KARST_QP_MUTANT_H */
