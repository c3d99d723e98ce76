/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program whose memory becomes available late, or never: on-demand regions over a file in a file
 * system that the program serves itself.  Its queue pairs write into that memory, read it and send
 * from it.  A page that takes 0.9 ms, or 100 ms, delays that program alone; a page that never comes
 * ends the program's session.
 */
#ifndef HOSTILE_LATE_PROGRAM_H
#define HOSTILE_LATE_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "hostile.h"

struct late_program {
	const struct host *host;
	uint32_t delay_us; /* of each page; LATE_NEVER */
	bool nobody;       /* it is another user's than the innocents are */
};

/** It counts in ops what has been done without an error.  It is ready when an operation has ended
 * with an error, which only LATE_NEVER permits.  @s has to exist until it is stopped. */
bool late_program_start(struct child *c, const struct late_program *s);
/** Starts those of @n that have ended: if its file system gets no processor, a program may be ended
 * for being slow.  @return false, after a note of the reason */
bool late_programs_keep_going(struct child *c, int n, const struct late_program *s);
/** Stops those of @n that were started.  @return false, after a note: one has failed. */
bool late_programs_stop(struct child *c, int n);

#endif /* HOSTILE_LATE_PROGRAM_H */
