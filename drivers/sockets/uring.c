/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs with an io_uring.  What a ring is asked to do goes past the C library's functions: to
 * accept, read or write a connection of ours by a ring is to do so with what stands in its place.
 * So who may do that connects and listens by TCP, unless karst-run was told that his rings are for
 * files, or only wait for sockets (--io-uring).
 *
 * That is who has liburing, as many listen before they make a ring, and what was promised to peers
 * cannot be taken back; and who has a ring without it, as programs in Rust, among his descriptors.
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

/* Of a line of /proc/self/maps: of the file that is mapped, without its folder. */
static bool
is_library(const char *line)
{
	const char *name = strrchr(line, '/');

	return name != NULL && strncmp(name, LIBRARY, strlen(LIBRARY)) == 0 &&
		(name[strlen(LIBRARY)] == '.' || name[strlen(LIBRARY)] == '-') &&
		strstr(name, ".so") != NULL;
}

/* Whoever has brought it along, and whether others see it or not.  The loader is not asked: it has
 * locks, and malloc(), and this may be the handler of a signal that has interrupted either. */
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

/* Without malloc(), which the handler of a signal may have interrupted. */
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

/* @library: that may have come since, too. */
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
