/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The thread becomes the program's user and group for as long as it opens something, with raw
 * system calls, because those of the C library change all threads.  Capabilities to read other
 * processes are laid aside: what the kernel then lets it open is what that user may look at.
 *
 * A mapping's file is opened only if that is harmless.  The link in map_files tells by its
 * permission bits how the program had opened it, and no more is asked for.  The list of mappings
 * decides: a link may have led to what another process has there, if the program executed something
 * else in between, but what is listed is the user's to look at.
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

/* false: it could not be done; give_back() in either case. */
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
	/* they tell no errors: asking for an impossible one tells the present one */
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
	/* should one fail, this thread may do less than before, not more */
	(void)syscall(SYS_setgroups, (size_t)old->ngroups, old->group);
	(void)caps_set(old->caps);
}

/* --- whose it is --- */

int
karst_files_dir(pid_t pid, int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* if it lives now, what was opened is its directory and not that of a successor */
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

/* Has the list of mappings this file where it is asked for, shared, and open for what is asked? */
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
	/* how the program had opened it */
	if (fstatat(of->procfd, path, &own, AT_SYMLINK_NOFOLLOW) != 0 ||
		(own.st_mode & S_IRUSR) == 0 || (a->write && (own.st_mode & S_IWUSR) == 0))
		return -1;
	/* O_PATH: opening other files may do things, or wait for somebody */
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
