/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The rdma_cm device: replaces the calls by which librdmacm opens, examines, writes and closes it,
 * as if the kernel were behind it.
 *
 * librdmacm may be loaded before this provider or after it.  In both cases it lists the devices
 * before it opens anything, and libibverbs calls opendir() each time that it lists them.  That call
 * is replaced, too, and checks whether librdmacm has been loaded.
 *
 * A command may wait for an event while another thread closes the file (ucma_file.c).  A thread can
 * be cancelled only while it waits, because libkarst holds locks at other times.
 */
#include "ucma.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define RDMA_CM "/dev/infiniband/rdma_cm"
/* the device number that sysfs has for rdma_cm: that of /dev/full */
#define CDEV makedev(1, 7)

/* The function that libibverbs called before. */
static DIR *(*real_opendir)(const char *path) = opendir;

/* --- the calls that are replaced --- */

static int
open_on(const char *socket, int flags)
{
	struct kv_cm_engine *engine;
	struct kv_cm_file *file;
	int ret = kv_cm_engine_get(socket, &engine);

	if (ret != 0)
		return ret;
	ret = kv_cm_file_open(engine, flags, &file);
	if (ret == 0)
		return file->fd;
	if (ret == -EIO)
		kv_cm_engine_retire(engine);
	kv_cm_engine_put(engine);
	return ret;
}

static int
open_rdma_cm(const char *socket, int flags)
{
	int cancel, ret;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	ret = open_on(socket, flags);
	/* the attachment is to an engine that has ended; there may be another engine by now */
	if (ret == -EIO)
		ret = open_on(socket, flags);
	pthread_setcancelstate(cancel, NULL);
	if (ret >= 0)
		return ret;
	errno = kv_error(ret);
	return -1;
}

static int
ucma_open(const char *path, int flags, ...)
{
	char socket[KV_SOCKET];
	va_list args;
	mode_t mode;

	if (strcmp(path, RDMA_CM) == 0 && kv_device_first(socket))
		return open_rdma_cm(socket, flags);
	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	return open(path, flags, mode);
}

/* Fails as a call for a closed descriptor does. */
static int
bad_descriptor(void)
{
	errno = EBADF;
	return -1;
}

int
kv_cm_fstat(int fd, struct stat *st)
{
	bool closed;
	struct kv_cm_file *file = kv_cm_file_get(fd, &closed);
	int ret = fstat(fd, st);

	if (file == NULL)
		return closed ? bad_descriptor() : ret;
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = CDEV;
	kv_cm_file_put(file);
	return ret;
}

ssize_t
kv_cm_write(int fd, const void *buf, size_t len)
{
	bool closed;
	struct kv_cm_file *file = kv_cm_file_get(fd, &closed);
	int cancel;
	ssize_t n;

	if (file == NULL)
		return closed ? bad_descriptor() : write(fd, buf, len);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	/* the kernel requires the credentials that the file was opened with, and a child has
	 * others: it is refused there, too */
	n = file->pid == getpid() ? kv_cm_command(file, cancel, buf, len)
				  : kv_refuse(-EACCES, kv_cm_parents);
	/* for EAGAIN and EINTR no reason is printed: the program expects them */
	if (n < 0 && n != -EAGAIN && n != -EINTR)
		kv_fail((int)n);
	else if (n < 0)
		errno = (int)-n;
	kv_cm_file_put(file);
	pthread_setcancelstate(cancel, NULL);
	return n < 0 ? -1 : n;
}

int
kv_cm_close(int fd)
{
	bool closed;
	struct kv_cm_file *file = kv_cm_file_get(fd, &closed);
	int cancel;

	if (file == NULL)
		return closed ? bad_descriptor() : close(fd);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	kv_cm_file_close(file);
	kv_cm_file_put(file);
	pthread_setcancelstate(cancel, NULL);
	return 0;
}

static void
patch_librdmacm(void)
{
	static const struct kv_got_entry entries[] = {
		{"open", (void *)ucma_open, NULL},
		{"fstat", (void *)kv_cm_fstat, NULL},
		{"write", (void *)kv_cm_write, NULL},
		{"close", (void *)kv_cm_close, NULL},
	};

	kv_got_patch("librdmacm.so", entries, KARST_DIM(entries));
}

static DIR *
ucma_opendir(const char *path)
{
	patch_librdmacm();
	return real_opendir(path);
}

void
kv_cm_init(void)
{
	const struct kv_got_entry entries[] = {
		{"opendir", (void *)ucma_opendir, (void **)&real_opendir}};

	kv_cm_files_init();
	kv_got_patch("libibverbs.so", entries, KARST_DIM(entries));
	patch_librdmacm();
}
