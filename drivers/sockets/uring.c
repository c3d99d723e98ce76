/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs with an io_uring.  Operations of a ring bypass the C library's functions.  If a ring
 * accepts, reads or writes a connection of this library, it operates on the descriptor that takes
 * the TCP socket's place.  So a program that may do that listens and connects by TCP, unless
 * karst-run was told that the program's rings are for files, or only wait for sockets (--io-uring).
 *
 * A program counts as such if it has liburing loaded, because many programs listen before they
 * create a ring, and what was promised to peers cannot be withdrawn; or if there is a ring among
 * its descriptors, as in programs in Rust, which do without liburing.
 */
#include "ks.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RING_LINK "anon_inode:[io_uring]"
#define LIBRARY   "/liburing"

static bool uring_allowed;
static _Atomic bool uring_there;

/* Whether a line of /proc/self/maps names the library.  Checks the name of the mapped file without
 * its folder. */
static bool
is_library(const char *line)
{
	const char *name = strrchr(line, '/');

	return name != NULL && strncmp(name, LIBRARY, strlen(LIBRARY)) == 0 &&
		(name[strlen(LIBRARY)] == '.' || name[strlen(LIBRARY)] == '-') &&
		strstr(name, ".so") != NULL;
}

/* Finds the library whatever has loaded it, and whether its symbols are visible or not.  The loader
 * is not asked: it has locks and uses malloc(), and this may run in a signal handler that has
 * interrupted either. */
static bool
has_library(void)
{
	int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	char buf[4096], *line, *end;
	size_t kept = 0;
	bool found = false;
	ssize_t n;

	if (maps < 0)
		return false;
	while (!found && (n = real(read)(maps, buf + kept, sizeof(buf) - 1 - kept)) > 0) {
		kept += (size_t)n;
		buf[kept] = '\0';
		for (line = buf; !found && (end = strchr(line, '\n')) != NULL; line = end + 1) {
			*end = '\0';
			found = is_library(line);
		}
		kept = strlen(line);
		if (kept == sizeof(buf) - 1)
			kept = 0; /* longer than a path */
		memmove(buf, line, kept);
	}
	real(close)(maps);
	return found;
}

static bool
is_ring(int dir, const char *name)
{
	char link[sizeof(RING_LINK)];

	return readlinkat(dir, name, link, sizeof(link)) == (ssize_t)strlen(RING_LINK) &&
		memcmp(link, RING_LINK, strlen(RING_LINK)) == 0;
}

/* Does not use malloc(), which the signal handler that calls this may have interrupted. */
static bool
has_ring(void)
{
	int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(struct dirent64) char buf[4096];
	bool found = false;
	long n, at;

	if (dir < 0)
		return false;
	while (!found && (n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
		for (at = 0; !found && at < n;) {
			const struct dirent64 *e = (const void *)(buf + at);

			found = is_ring(dir, e->d_name);
			at += e->d_reclen;
		}
	real(close)(dir);
	return found;
}

/* @library: also check for the library, which may have been loaded since. */
static bool
uring_look(bool library)
{
	int err = errno;

	if (!uring_allowed && !atomic_load(&uring_there) &&
		((library && has_library()) || has_ring()))
		atomic_store(&uring_there, true);
	errno = err;
	return atomic_load(&uring_there);
}

void
ks_uring_begin(void)
{
	uring_allowed = getenv("KARST_SMC_URING") != NULL;
	(void)uring_look(true);
}

bool
ks_uring_waits(void)
{
	return uring_allowed;
}

bool
ks_uring_listens(void)
{
	return uring_look(true);
}

bool
ks_uring_connects(void)
{
	static _Atomic uint32_t asked;
	uint32_t n = atomic_fetch_add(&asked, 1) + 1;

	/* the 1st, 2nd, 4th, 8th time, and so on: a program may have many descriptors */
	return (n & (n - 1)) == 0 ? uring_look(false) : atomic_load(&uring_there);
}
