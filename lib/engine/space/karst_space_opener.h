/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How an engine without privileges gets at the files of other users' programs: somebody else opens
 * them (karst_session.h, karst_space.h).
 */
#ifndef KARST_SPACE_OPENER_H
#define KARST_SPACE_OPENER_H

struct karst_files_ask; /* lib/ctl, karst_files.h */

/** Who opens files of a program that only its own user may open. */
struct karst_space_opener {
	/** @memfd: the program's memory, as it has sent it; -1: it has not.  On the session's
	 *  thread. @return a descriptor, the session's; -1: it is not there, or may not be opened
	 *  */
	int (*open)(void *user, int memfd, const struct karst_files_ask *ask);
	void *user;
};

#endif /* KARST_SPACE_OPENER_H */
