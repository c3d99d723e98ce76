/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Opens files that only the user of a process may open: the list of its mappings, and the files
 * behind them.
 *
 * An engine needs both for programs of other users.  karst_files_open() is called by a process that
 * has the rights for it (CAP_SETUID, CAP_SETGID, for mappings CAP_CHECKPOINT_RESTORE): the engine
 * itself, or a separate process that does nothing else.  During the call the thread takes on the
 * identity of the program, so that it cannot open anything that the program's user cannot open.
 *
 * Any thread; other threads keep their identity.  Opening may wait as long as the process keeps its
 * address space locked.
 */
#ifndef KARST_FILES_H
#define KARST_FILES_H

#include <sys/types.h>

#include "karst_base.h"

/** A program: a directory of proc that is certainly the program's, and its user and group. */
struct karst_files {
	int procfd; /* karst_files_dir() */
	uid_t uid;
	gid_t gid;
};

enum karst_files_kind {
	KARST_FILES_MAPS,    /* the list of mappings, for reading */
	KARST_FILES_MAPPING, /* the file of a shared mapping that is in memory (tmpfs, hugetlbfs) */
};

/** What to open.  Its members are untrusted if they come from another process. */
struct karst_files_ask {
	uint32_t kind;
	uint32_t write;          /* MAPPING: for reading and writing, else for reading */
	uint64_t start, end;     /* the mapping, as /proc/PID/map_files has it */
	uint64_t addr, len, off; /* the wanted part of it, and the offset of that part in the
				  * file */
};

/**
 * Opens /proc/PID, which keeps referring to one process; @pidfd refers to the same process.
 * @return a descriptor, which the caller closes; -1: it cannot be opened; -ESRCH: the process is
 * gone.
 */
int karst_files_dir(pid_t pid, int pidfd);

/** Was @memfd, a descriptor of some /proc/PID/mem, opened in @procfd? */
bool karst_files_is_of(int procfd, int memfd);

/**
 * Is @fd in a file system whose page faults do not wait, neither for a program (as with FUSE or a
 * disk image of the program) nor for a disk?
 */
bool karst_files_in_memory(int fd);

/**
 * @return a descriptor, which the caller closes; -1: the file does not exist, or the user may not
 * open it
 */
int karst_files_open(const struct karst_files *of, const struct karst_files_ask *ask);

#endif /* KARST_FILES_H */
