/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opts.h"

/* Returns XDG_RUNTIME_DIR, unless it belongs to another user (as su and sudo leave it). */
static const char *
runtime_dir(void)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (dir == NULL || dir[0] != '/' || strlen(dir) + sizeof("/karst") > KR_FOLDER)
		return NULL;
	if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		return NULL;
	return access(dir, W_OK | X_OK) == 0 ? dir : NULL;
}

void
kr_folder_path(char *path)
{
	const char *dir = runtime_dir();

	if (dir != NULL)
		snprintf(path, KR_FOLDER, "%s/karst", dir);
	else
		snprintf(path, KR_FOLDER, "/tmp/karst-%u", (unsigned int)geteuid());
}

int
kr_folder_check(const char *path)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		return -EAGAIN; /* removed by another process that has ended */
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
		return 0;
	kr_fail("%s must be a folder that is yours alone (mode 0700): remove it, or set "
		"XDG_RUNTIME_DIR to a folder of yours",
		path);
	return -EPERM;
}

int
kr_folder_make(const char *path)
{
	if (mkdir(path, 0700) != 0 && errno != EEXIST) {
		int rc = -errno;

		kr_fail("making the folder %s: %s", path, strerror(-rc));
		return rc;
	}
	return kr_folder_check(path);
}

void
kr_folder_leave(const char *path)
{
	if (strncmp(path, "/tmp/", 5) != 0 || strchr(path + 5, '/') != NULL)
		rmdir(path);
}

/* --- the lock --- */

#define LOCK "lock"

static void
lock_path(const char *folder, char *path)
{
	snprintf(path, KR_FOLDER + sizeof(LOCK) + 1, "%s/" LOCK, folder);
}

/* Another process may have removed the file meanwhile. */
static bool
lock_is_current(int fd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_dev == b.st_dev &&
		a.st_ino == b.st_ino;
}

int
kr_folder_lock(const char *path)
{
	char lock[KR_FOLDER + sizeof(LOCK) + 1];
	int fd, ret;

	lock_path(path, lock);
	for (;;) {
		ret = kr_folder_make(path);
		if (ret == -EAGAIN)
			continue;
		if (ret != 0)
			return ret;
		fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0 || flock(fd, LOCK_EX) != 0) {
			ret = -errno;
			kr_fail("locking %s: %s", lock, strerror(-ret));
			if (fd >= 0)
				close(fd);
			return ret;
		}
		/* the folder may have been replaced since it was checked, but with the file in it
		 * it cannot be */
		ret = kr_folder_check(path);
		if (ret == 0 && lock_is_current(fd, lock))
			return fd;
		close(fd);
		if (ret != 0 && ret != -EAGAIN)
			return ret;
	}
}

void
kr_folder_unlock(const char *path, int lock)
{
	char file[KR_FOLDER + sizeof(LOCK) + 1];

	lock_path(path, file);
	unlink(file); /* before the lock is released, so that no other process has this file yet */
	close(lock);
	kr_folder_leave(path);
}
