/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "ns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tree.h"

/* The new folders are created here.  It is covered in the new namespace only, and only meanwhile,
 * so no separate folder is needed, and none is left behind. */
#define STAGE   "/tmp"
#define DRIVERS "/etc/libibverbs.d"
#define NODES   "/dev/infiniband"

bool
kr_ns_has_drivers(void)
{
	return access(DRIVERS, F_OK) == 0;
}

const char *
kr_ns_name(enum kr_ns_kind kind)
{
	switch (kind) {
	case KR_NS_MOUNT:
		return "mount namespace";
	case KR_NS_USER:
		return "user and mount namespaces";
	default:
		return "none";
	}
}

__attribute__((format(printf, 2, 3))) static int
ns_failed(char *why, const char *fmt, ...)
{
	int err = errno;
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(why, KR_NS_WHY, fmt, ap);
	va_end(ap);
	n = strlen(why);
	snprintf(why + n, KR_NS_WHY - n, ": %s", strerror(err));
	return err != 0 ? -err : -EIO;
}

/* --- namespaces --- */

static int
write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		ret = -errno;
	close(fd);
	return ret;
}

/* An unprivileged process may map only its own user and group. */
static int
enter_user(char *why)
{
	unsigned int uid = geteuid(), gid = getegid();
	char map[64];
	int ret;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return ns_failed(why, "a user namespace");
	/* kernels before 3.19 have no setgroups file and allow the map without it */
	ret = write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%u %u 1\n", uid, uid);
	if (ret == 0 || ret == -ENOENT)
		ret = write_file("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "%u %u 1\n", gid, gid);
	if (ret == 0)
		ret = write_file("/proc/self/gid_map", map);
	if (ret != 0) {
		errno = -ret;
		return ns_failed(why, "the users of a user namespace");
	}
	return 0;
}

static int
ns_enter(enum kr_ns_kind *kind, char *why)
{
	int ret = 0;

	*kind = KR_NS_MOUNT;
	if (unshare(CLONE_NEWNS) != 0) {
		*kind = KR_NS_USER;
		ret = enter_user(why);
	}
	/* later mounts of the machine are seen here; mounts here are not seen outside */
	if (ret == 0 && mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
		ret = ns_failed(why, "a mount namespace");
	if (ret != 0)
		*kind = KR_NS_NONE;
	return ret;
}

/* --- folders with the same entries --- */

static int
ns_bind(const char *from, const char *to, char *why)
{
	if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) != 0)
		return ns_failed(why, "binding %s", from);
	return 0;
}

static int
copy_link(const char *from, const char *to, char *why)
{
	char target[PATH_MAX];
	ssize_t n = readlink(from, target, sizeof(target) - 1);

	if (n >= 0) {
		target[n] = '\0';
		if (symlink(target, to) == 0)
			return 0;
	}
	return ns_failed(why, "the link %s", from);
}

static int
mirror_entry(const char *from, const char *to, char *why)
{
	struct stat st;
	int fd;

	if (lstat(to, &st) == 0)
		return 0; /* karst's entry has precedence */
	if (lstat(from, &st) != 0)
		return errno == ENOENT ? 0 : ns_failed(why, "%s", from);
	if (S_ISLNK(st.st_mode))
		return copy_link(from, to, why);
	if (S_ISDIR(st.st_mode)) {
		if (mkdir(to, 0755) != 0)
			return ns_failed(why, "%s", to);
	} else {
		fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			return ns_failed(why, "%s", to);
		close(fd);
	}
	return ns_bind(from, to, why);
}

/* Makes every entry of @from appear in @to, unless there is one of that name. */
static int
dir_mirror(const char *from, const char *to, char *why)
{
	char source[PATH_MAX], dest[PATH_MAX];
	struct dirent *e;
	int ret = 0;
	DIR *dir = opendir(from);

	if (dir == NULL)
		return ns_failed(why, "%s", from);
	while (ret == 0 && (e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(source, sizeof(source), "%s/%s", from, e->d_name);
		snprintf(dest, sizeof(dest), "%s/%s", to, e->d_name);
		ret = mirror_entry(source, dest, why);
	}
	closedir(dir);
	return ret;
}

/* --- karst's entries --- */

static int
dir_ours(const struct kr_view *v, const char *provider, char *why)
{
	int stage = open(STAGE, O_DIRECTORY | O_CLOEXEC), ret;

	if (stage < 0)
		return ns_failed(why, STAGE);
	ret = kr_tree_write(stage, v);
	if (ret == 0)
		ret = kr_tree_nodes(stage, &NODES[1], v);
	if (ret == 0)
		ret = kr_tree_driver(stage, "drivers", provider);
	close(stage);
	if (ret != 0) {
		errno = -ret;
		return ns_failed(why, "writing to " STAGE);
	}
	return 0;
}

void
kr_ns_print(void)
{
	puts("cover /sys/class");
	if (kr_ns_has_drivers())
		puts("cover " DRIVERS);
	puts(access(NODES, F_OK) == 0 ? "cover " NODES : "cover /dev");
}

/* Covers /dev/infiniband if it exists; otherwise /dev, because an ordinary process cannot create
 * the folder there. */
static int
cover_nodes(char *why)
{
	int ret;

	if (access(NODES, F_OK) == 0) {
		ret = dir_mirror(NODES, STAGE NODES, why);
		return ret == 0 ? ns_bind(STAGE NODES, NODES, why) : ret;
	}
	ret = dir_mirror("/dev", STAGE "/dev", why);
	return ret == 0 ? ns_bind(STAGE "/dev", "/dev", why) : ret;
}

static int
cover_drivers(char *why)
{
	int ret;

	if (!kr_ns_has_drivers())
		return 0; /* then a variable names the provider */
	ret = dir_mirror(DRIVERS, STAGE "/drivers", why);
	return ret == 0 ? ns_bind(STAGE "/drivers", DRIVERS, why) : ret;
}

static int
ns_arrange(const struct kr_view *v, const char *provider, char *why)
{
	int ret;

	if (mount("karst", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m") != 0)
		return ns_failed(why, "a file system in memory");
	ret = dir_ours(v, provider, why);
	if (ret == 0)
		ret = dir_mirror("/sys/class", STAGE "/class", why);
	if (ret == 0)
		ret = ns_bind(STAGE "/class", "/sys/class", why);
	if (ret == 0)
		ret = cover_drivers(why);
	if (ret == 0)
		ret = cover_nodes(why);
	if (ret == 0 && umount2(STAGE, MNT_DETACH) != 0)
		ret = ns_failed(why, "uncovering " STAGE);
	return ret;
}

int
kr_ns_enter(const struct kr_view *v, const char *provider, enum kr_ns_kind *kind, char *why)
{
	int ret = ns_enter(kind, why);

	return ret == 0 ? ns_arrange(v, provider, why) : ret;
}

/* --- trying --- */

struct trial {
	int ret;
	enum kr_ns_kind kind;
	char why[KR_NS_WHY];
};

static void
try_it(const struct kr_view *v, const char *provider, int fd)
{
	struct trial t = {.kind = KR_NS_NONE};

	t.ret = kr_ns_enter(v, provider, &t.kind, t.why);
	_exit(write(fd, &t, sizeof(t)) == sizeof(t) ? 0 : 1);
}

int
kr_ns_try(const struct kr_view *v, const char *provider, enum kr_ns_kind *kind, char *why)
{
	struct trial t;
	int fds[2];
	ssize_t n;
	pid_t pid;

	*kind = KR_NS_NONE;
	if (pipe2(fds, O_CLOEXEC) != 0)
		return ns_failed(why, "a pipe");
	pid = fork();
	if (pid == 0)
		try_it(v, provider, fds[1]);
	close(fds[1]);
	n = pid < 0 ? -1 : read(fds[0], &t, sizeof(t));
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	if (n != (ssize_t)sizeof(t))
		return ns_failed(why, "a process to try it");
	*kind = t.kind;
	snprintf(why, KR_NS_WHY, "%s", t.why);
	return t.ret;
}
