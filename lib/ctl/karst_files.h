/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What only the user of a process may open: its list of mappings, and the files behind them.
 *
 * An engine needs both for programs of other users.  karst_files_open() is called by a process that
 * has the rights for it (CAP_SETUID, CAP_SETGID, for mappings CAP_CHECKPOINT_RESTORE): the engine's
 * own, or one beside it that does nothing else.  It takes on the program's identity meanwhile, so
 * that nothing is opened that the program's user could not open.
 *
 * Any thread; other threads keep their identity.  Opening may wait as long as the process keeps its
 * address space locked.
 */
#ifndef KARST_FILES_H
#define KARST_FILES_H

#include <sys/types.h>

#include "karst_base.h"

/** Whose files: a directory of proc that is certainly the program's, and who it is. */
struct karst_files {
	int procfd; /* karst_files_dir() */
	uid_t uid;
	gid_t gid;
};

enum karst_files_kind {
	KARST_FILES_MAPS,    /* the list, for reading */
	KARST_FILES_MAPPING, /* the file of a shared mapping that is in memory (tmpfs, hugetlbfs) */
};

/** What to open.  Hostile, where it comes from somebody else. */
struct karst_files_ask {
	uint32_t kind;
	uint32_t write;          /* MAPPING: for reading and writing, else for reading */
	uint64_t start, end;     /* the mapping, as /proc/PID/map_files has it */
	uint64_t addr, len, off; /* what of it is wanted, and where in the file that is */
};

/**
 * /proc/PID, which goes on meaning one process; @pidfd is the same process's.
 * @return the caller's to close; -1: it cannot be opened; -ESRCH: the process is gone.
 */
int karst_files_dir(pid_t pid, int pidfd);

/** Was @memfd, a descriptor of some /proc/PID/mem, opened in @procfd? */
bool karst_files_is_of(int procfd, int memfd);

/** Is @fd of a file system whose page faults wait for nobody: neither a program, as with FUSE or a
 *  disk image of its own, nor a disk? */
bool karst_files_in_memory(int fd);

/** @return a descriptor, the caller's to close; -1: it is not there, or its user may not open it */
int karst_files_open(const struct karst_files *of, const struct karst_files_ask *ask);

#endif /* KARST_FILES_H */
