/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A FUSE file system with one file whose pages arrive late.  A thread of this process serves it. */
#include "late_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE      4096u
#define MESSAGE   (1u << 17)
#define FILE_NODE 2

struct fs {
	int fd;
	size_t bytes;
	uint32_t delay_us;
	_Atomic bool kept; /* requests to close the file are not answered */
	bool write_back;   /* the kernel keeps what is written until a file is closed */
};

static void
answer(const struct fs *fs, const struct fuse_in_header *in, int error, const void *body,
	size_t len)
{
	struct fuse_out_header h = {
		.len = (uint32_t)(sizeof(h) + len), .error = -error, .unique = in->unique};
	struct iovec v[2] = {{&h, sizeof(h)}, {(void *)(uintptr_t)body, len}};

	/* the process that made the request may have ended */
	if (writev(fs->fd, v, len > 0 ? 2 : 1) < 0)
		return;
}

static struct fuse_attr
attr_of(const struct fs *fs, uint64_t node)
{
	if (node != FILE_NODE)
		return (struct fuse_attr){.ino = node, .mode = S_IFDIR | 0755, .nlink = 2};
	return (struct fuse_attr){.ino = node,
		.mode = S_IFREG | 0600,
		.nlink = 1,
		.size = fs->bytes,
		.blksize = PAGE};
}

static void
serve_read(struct fs *fs, const struct fuse_in_header *in, const struct fuse_read_in *r)
{
	static const uint8_t zeros[MESSAGE];
	const struct timespec t = {
		.tv_sec = fs->delay_us / 1000000, .tv_nsec = (long)(fs->delay_us % 1000000) * 1000};

	if (fs->delay_us == LATE_NEVER)
		return;
	nanosleep(&t, NULL);
	answer(fs, in, 0, zeros, r->size < sizeof(zeros) ? r->size : sizeof(zeros));
}

static void
serve_one(struct fs *fs, const struct fuse_in_header *in)
{
	const void *body = in + 1;

	switch (in->opcode) {
	case FUSE_INIT: {
		const struct fuse_init_in *i = body;
		const struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
			.minor = FUSE_KERNEL_MINOR_VERSION,
			.max_readahead = 0,
			.flags = i->flags &
				(FUSE_BIG_WRITES | (fs->write_back ? FUSE_WRITEBACK_CACHE : 0)),
			.max_write = MESSAGE / 2};

		answer(fs, in, 0, &out, sizeof(out));
		return;
	}
	case FUSE_LOOKUP: {
		const struct fuse_entry_out out = {.nodeid = FILE_NODE,
			.entry_valid = 3600,
			.attr_valid = 3600,
			.attr = attr_of(fs, FILE_NODE)};

		answer(fs, in, 0, &out, sizeof(out));
		return;
	}
	case FUSE_GETATTR: {
		const struct fuse_attr_out out = {
			.attr_valid = 3600, .attr = attr_of(fs, in->nodeid)};

		answer(fs, in, 0, &out, sizeof(out));
		return;
	}
	case FUSE_OPEN: {
		const struct fuse_open_out out = {.fh = 1, .open_flags = FOPEN_KEEP_CACHE};

		answer(fs, in, 0, &out, sizeof(out));
		return;
	}
	case FUSE_READ:
		serve_read(fs, in, body);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_WRITE:
		return;
	case FUSE_FLUSH:
		if (!atomic_load(&fs->kept))
			answer(fs, in, 0, NULL, 0);
		return;
	case FUSE_RELEASE:
	case FUSE_ACCESS:
		answer(fs, in, 0, NULL, 0);
		return;
	default:
		answer(fs, in, ENOSYS, NULL, 0);
	}
}

/* Reads a request and serves it.  @return false: there will be no more */
static bool
serve_next(struct fs *fs)
{
	static _Alignas(8) uint8_t buf[MESSAGE + PAGE];
	ssize_t n = read(fs->fd, buf, sizeof(buf));

	if (n >= (ssize_t)sizeof(struct fuse_in_header))
		serve_one(fs, (const struct fuse_in_header *)buf);
	return n > 0 || errno == EINTR || errno == EAGAIN || errno == ENOENT;
}

static void *
serve(void *arg)
{
	while (serve_next(arg))
		;
	return NULL;
}

static bool
put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* Mounts the file system in a namespace of its own.  @return NULL, or what failed. */
static const char *
mount_it(struct fs *fs, const char *folder)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	char text[128];

	if (unshare(CLONE_NEWNS | (uid != 0 ? CLONE_NEWUSER : 0)) != 0)
		return "unshare";
	snprintf(text, sizeof(text), "%u %u 1", (unsigned int)uid, (unsigned int)uid);
	if (uid != 0 && !put("/proc/self/uid_map", text))
		return "uid_map";
	fs->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fs->fd < 0)
		return "/dev/fuse";
	snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fs->fd,
		(unsigned int)uid, (unsigned int)gid);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		mount("late", folder, "fuse.late", MS_NOSUID | MS_NODEV, text) != 0)
		return "mount";
	return NULL;
}

/* Starts the thread that serves the file system, and opens the file, which then has no path. */
static const char *
open_it(struct fs *fs, int *fd)
{
	char folder[] = "/tmp/karst-late-XXXXXX", path[64];
	const char *fault;
	pthread_t t;

	if (mkdtemp(folder) == NULL)
		return "a folder";
	fault = mount_it(fs, folder);
	if (fault != NULL)
		return fault;
	errno = pthread_create(&t, NULL, serve, fs);
	if (errno != 0)
		return "a thread";
	snprintf(path, sizeof(path), "%s/file", folder);
	*fd = open(path, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return "the file";
	umount2(folder, MNT_DETACH);
	rmdir(folder);
	return NULL;
}

const char *
late_file_map(size_t bytes, uint32_t delay_us, void **p)
{
	static struct fs fs;
	const char *fault;
	int fd;

	fs.bytes = bytes;
	fs.delay_us = delay_us;
	fault = open_it(&fs, &fd);
	if (fault != NULL)
		return fault;
	*p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (*p == MAP_FAILED || madvise(*p, bytes, MADV_RANDOM) != 0)
		return "mmap";
	/* when the process ends, no thread would answer the requests for closing it */
	close(fd);
	return NULL;
}

static struct fs kept_fs;

const char *
late_file_open(int *fd)
{
	return open_it(&kept_fs, fd);
}

/* Opens the file in a process that does not serve it, and runs @program there. */
static _Noreturn void
run_beside(const struct fs *fs, const char *folder, void (*program)(int fd, void *arg), void *arg)
{
	char path[64];
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(fs->fd);
	snprintf(path, sizeof(path), "%s/file", folder);
	fd = open(path, O_RDWR | O_CLOEXEC);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
	program(fd, arg);
	_exit(0);
}

const char *
late_file_unwritten(void (*program)(int fd, void *arg), void *arg, const _Atomic bool *stop)
{
	static struct fs fs = {.bytes = PAGE, .write_back = true};
	char folder[] = "/tmp/karst-late-XXXXXX";
	const char *fault;
	pid_t pid;

	if (mkdtemp(folder) == NULL)
		return "a folder";
	fault = mount_it(&fs, folder);
	if (fault != NULL)
		return fault;
	pid = fork();
	if (pid == 0)
		run_beside(&fs, folder, program, arg);
	if (pid < 0 || fcntl(fs.fd, F_SETFL, O_NONBLOCK) != 0)
		return "fork";
	while (!atomic_load(stop)) {
		struct pollfd p = {.fd = fs.fd, .events = POLLIN};

		if (poll(&p, 1, 10) == 1 && !serve_next(&fs))
			return "serving";
	}
	return NULL;
}

void
late_file_keep(void)
{
	atomic_store(&kept_fs.kept, true);
}
