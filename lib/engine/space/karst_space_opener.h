/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How an engine without privileges accesses the files of other users' programs: another process
 * opens them (karst_session.h, karst_space.h).
 */
#ifndef KARST_SPACE_OPENER_H
#define KARST_SPACE_OPENER_H

struct karst_files_ask; /* lib/ctl, karst_files.h */

/** Opens files of a program that only the program's user may open. */
struct karst_space_opener {
	/** @memfd: the program's memory, as it was sent; -1: it was not sent.  Called on the
	 *  session's thread.  @return a descriptor, which the session takes over; -1: the file does
	 *  not exist, or may not be opened */
	int (*open)(void *user, int memfd, const struct karst_files_ask *ask);
	void *user;
};

#endif /* KARST_SPACE_OPENER_H */
