/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Deliberate faults, to test the tests.  A normal build has none: smc_mutant() is constant 0 there.
 * test/sim/smc builds lib/smc once more with all of them (-DKARST_SMC_MUTANTS), and a process has
 * the one that test/sim/mutant.c selected for it.
 */
#ifndef KARST_SMC_MUTANT_H
#define KARST_SMC_MUTANT_H

enum karst_smc_mutant {
	SMC_MUTANT_NONE,
	SMC_MUTANT_NO_SPLIT,   /* S12: a WRITE extends over the end of the element */
	SMC_MUTANT_NO_WINDOW,  /* S12: more is written than there is room for */
	SMC_MUTANT_NO_BLOCKED, /* S14: a blocked writer does not set the flag */
	SMC_MUTANT_NO_UPDATE,  /* S14: the consumer sends no update by itself */
	/* S17: what was under way when a link failed is not written again */
	SMC_MUTANT_NO_REWIND,
	SMC_MUTANT_NO_VALIDATE,     /* S17: no validation after failover */
	SMC_MUTANT_FREE_EARLY,      /* S12: the send buffer is freed before the WRITE is complete */
	SMC_MUTANT_CLOSE_EARLY,     /* S15: closes before everything is sent */
	SMC_MUTANT_NO_ABORT,        /* S15: closes without an abort with unread data */
	SMC_MUTANT_URGENT_LATE,     /* S16: the mark is after a later byte */
	SMC_MUTANT_NO_DELETE_RKEY,  /* S9: a key that the peer has is invalidated and not deleted */
	SMC_MUTANT_NO_CONFIRM_RKEY, /* S9: a key is sent on TCP before it is confirmed */
	SMC_MUTANT_FORGET_WAITING,  /* S12: a connection that waits for a slot is forgotten */
	/* S9: a key is kept although the sides have not both ended properly */
	SMC_MUTANT_KEEP_ANY,
	SMC_MUTANT_MAX
};

#ifdef KARST_SMC_MUTANTS
extern unsigned int karst_smc_mutant_now;
#define smc_mutant(name) (karst_smc_mutant_now == SMC_MUTANT_##name)
#else
#define smc_mutant(name) 0
#endif

#endif /* KARST_SMC_MUTANT_H */
