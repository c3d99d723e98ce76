/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The thread takes on the user and group of the program for as long as it opens something.  It uses
 * raw system calls, because those of the C library change all threads.  It gives up the capability
 * to read other processes meanwhile: what the kernel then lets it open is what that user may read.
 *
 * The file of a mapping is opened only if that is harmless.  The permission bits of the link in
 * map_files show how the program opened the file, and it is opened with no more rights than that.
 * The list of mappings decides: the link may have led to a file of another process, if the program
 * executed another one in between, but the user may read files that are listed.
 */
#include "karst_files.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "karst_vma.h"

#define GROUPS 64

/* --- the program's user --- */

struct identity {
	gid_t group[GROUPS];
	int ngroups; /* -1: nothing was changed */
	uid_t uid;
	gid_t gid;
	struct __user_cap_data_struct caps[2];
};

static bool
caps_get(struct __user_cap_data_struct *caps)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &h, caps) == 0;
}

static bool
caps_set(const struct __user_cap_data_struct *caps)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capset, &h, caps) == 0;
}

/* Takes on the program's identity.  @return false: not possible; files_give_back() is needed in
 * either case. */
static bool
take_on(const struct karst_files *of, struct identity *old)
{
	struct __user_cap_data_struct caps[2];

	*old = (struct identity){.ngroups = -1};
	if (of->uid == geteuid() && of->gid == getegid())
		return true;
	if (!caps_get(old->caps))
		return false;
	memcpy(caps, old->caps, sizeof(caps));
	caps[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
	old->ngroups = getgroups(GROUPS, old->group);
	if (old->ngroups < 0 || !caps_set(caps))
		return false;
	old->gid = (gid_t)setfsgid(of->gid);
	old->uid = (uid_t)setfsuid(of->uid);
	/* these calls return no errors, but called with an invalid id they return the present
	 * one */
	return (uid_t)setfsuid((uid_t)-1) == of->uid && (gid_t)setfsgid((gid_t)-1) == of->gid &&
		syscall(SYS_setgroups, (size_t)0, NULL) == 0;
}

static void
files_give_back(const struct identity *old)
{
	if (old->ngroups < 0)
		return;
	setfsuid(old->uid);
	setfsgid(old->gid);
	/* if one of these fails, this thread has fewer rights than before, not more */
	(void)syscall(SYS_setgroups, (size_t)old->ngroups, old->group);
	(void)caps_set(old->caps);
}

/* --- identification of the process --- */

int
karst_files_dir(pid_t pid, int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* if the process still lives, the directory is that of the process, not of a successor with
	 * the same number */
	if (poll(&p, 1, 0) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -ESRCH;
}

bool
karst_files_is_of(int procfd, int memfd)
{
	struct stat here, there;

	return procfd >= 0 && fstat(memfd, &here) == 0 &&
		fstatat(procfd, "mem", &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

bool
karst_files_in_memory(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 &&
		((uint32_t)fs.f_type == TMPFS_MAGIC || (uint32_t)fs.f_type == HUGETLBFS_MAGIC);
}

/* --- opening, as the program's user --- */

static int
open_maps(const struct karst_files *of)
{
	return openat(of->procfd, "maps", O_RDONLY | O_CLOEXEC);
}

/* Does the list of mappings have this file at the given place, shared, and open for the given
 * access? */
static bool
is_listed(const struct karst_files *of, const struct karst_files_ask *a, const struct stat *file)
{
	struct karst_vmas vmas;
	struct karst_vma v;
	int fd = open_maps(of);
	bool yes;

	if (fd < 0)
		return false;
	karst_vmas_use(&vmas, fd);
	yes = karst_vmas_next(&vmas, a->addr, &v) == 1 && v.start <= a->addr &&
		a->len <= v.end - a->addr && v.shared && v.read && (v.write || !a->write) &&
		v.ino == file->st_ino && v.major == major(file->st_dev) &&
		v.minor == minor(file->st_dev) && v.off + (a->addr - v.start) == a->off;
	karst_vmas_close(&vmas);
	return yes;
}

static int
open_mapping(const struct karst_files *of, const struct karst_files_ask *a)
{
	struct stat own, file;
	char path[64];
	int fd, ret = -1;

	snprintf(path, sizeof(path), "map_files/%llx-%llx", (unsigned long long)a->start,
		(unsigned long long)a->end);
	/* how the program has opened it */
	if (fstatat(of->procfd, path, &own, AT_SYMLINK_NOFOLLOW) != 0 ||
		(own.st_mode & S_IRUSR) == 0 || (a->write && (own.st_mode & S_IWUSR) == 0))
		return -1;
	/* O_PATH: opening other kinds of files may have side effects or block */
	fd = openat(of->procfd, path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && karst_files_in_memory(fd) &&
		is_listed(of, a, &file)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ret = open(
			path, (a->write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	}
	close(fd);
	return ret;
}

int
karst_files_open(const struct karst_files *of, const struct karst_files_ask *ask)
{
	struct identity old;
	int fd = -1;

	if (of->procfd < 0)
		return -1;
	if (take_on(of, &old)) {
		if (ask->kind == KARST_FILES_MAPS)
			fd = open_maps(of);
		else if (ask->kind == KARST_FILES_MAPPING)
			fd = open_mapping(of, ask);
	}
	files_give_back(&old);
	return fd;
}
