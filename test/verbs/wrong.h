/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the files of verbs-wrong share (wrong.c). */
#ifndef WRONG_H
#define WRONG_H

#include "calls_bed.h"

/* One for all cases: a call that is refused in one case must not affect the next. */
extern struct rig *const r;

/** Reads the new reasons into heard.  @return how many there are */
unsigned int hear(void);
extern char heard[512];

/* The errno before each call; no call fails with it. */
#define BEFORE ENOTTY

/* Checks that @call fails with @want, sets errno to it if @sets, and prints @times reasons. */
#define ERR_SAID(what, call, want, sets, times)                                             \
	do {                                                                                \
		int want_ = (want), got_ = (errno = BEFORE, (call)), errno_ = errno;        \
		unsigned int said_ = hear();                                                \
		check(got_ == want_, __LINE__, what, "%s, not %s", strerror(got_),          \
			strerror(want_));                                                   \
		check(got_ == 0 || errno_ == ((sets) ? got_ : BEFORE), __LINE__, what,      \
			"errno: %s", strerror(errno_));                                     \
		check(said_ == (times), __LINE__, what, "said %u times: %s", said_, heard); \
	} while (0)
#define ERR(what, call, want) ERR_SAID(what, call, want, true, want_ != 0)
/* For calls that print no reason. */
#define SILENT(what, call, want) ERR_SAID(what, call, want, true, 0)
/* For calls that libibverbs refuses without calling karst: errno is not set either. */
#define THEIRS(what, call, want) ERR_SAID(what, call, want, false, 0)
/* As ERR(), for a call that returns a pointer. */
#define NONE(what, call, want) ERR(what, (call) == NULL ? errno : 0, want)
/* Checks the reason that the last call has printed. */
#define SAID(why) (check(strstr(heard, why) != NULL, __LINE__, why, "said: %s", heard))

union ibv_gid own_gid(void);
void apart(void);
/** Posts @wr.  @first_is_bad: if it is refused, it must be the one that is named as wrong. */
int post(struct ibv_qp *qp, struct ibv_send_wr *wr, bool first_is_bad);

/* --- the cases, by file --- */

/* wrong_objects.c */
void wrong_devices(void);
void wrong_domains(void);
void wrong_order(void);
void wrong_not_there(void);
void wrong_another_context(void);
/* wrong_memory.c */
void wrong_memory(void);
void wrong_advice(void);
void wrong_allocators(void);
void wrong_windows(void);
/* wrong_queues.c */
void wrong_completion_queues(void);
void wrong_queue_pairs(void);
void wrong_modify(void);
void wrong_addresses(void);
/* wrong_posting.c */
void wrong_sending(void);
void wrong_receiving(void);
void wrong_calls(void);

#endif
