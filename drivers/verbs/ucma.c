/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Files of the rdma_cm device: what librdmacm opens, looks at, writes to and closes, thinking that
 * the kernel is behind it.  The descriptor that it is given is that of a libkarst channel, so the
 * program's own poll(), epoll and fcntl() work on it without our help.
 *
 * librdmacm may be loaded before this provider or after it.  Either way it lists the devices
 * before it opens anything, and libibverbs opens a folder each time that it lists them: that call
 * is taken over, too, and is the moment to look whether there is a librdmacm now.
 *
 * A command may wait for an event while another thread closes the file.  As with the kernel, the
 * file then stays until the command ends; other than there its descriptor's number is not free
 * before.  A thread that waits may be cancelled, but nowhere else: libkarst holds locks.
 */
#include "ucma.h"

#include <dirent.h>
#include <fcntl.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define RDMA_CM "/dev/infiniband/rdma_cm"
/* what sysfs says of it: that of /dev/full */
#define CDEV makedev(1, 7)

/* Of the process, as descriptors are. */
static struct {
	pthread_mutex_t lock; /* over the list and all files' users and ids; held over fork(), so no
			       * call of libkarst is made under it */
	struct kv_cm_file *files;
	DIR *(*opendir)(const char *path);
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- identifiers of a file --- */

static int
id_compare(const void *a, const void *b)
{
	uint32_t x = ((const struct kv_cm_id *)a)->id, y = ((const struct kv_cm_id *)b)->id;

	return (x > y) - (x < y);
}

/* With the lock held. */
static struct kv_cm_id *
find_id(const struct kv_cm_file *file, uint32_t id)
{
	const struct kv_cm_id key = {.id = id};
	struct kv_cm_id **node = tfind(&key, &file->ids, id_compare);

	return node != NULL ? *node : NULL;
}

static struct kv_cm_id *
take_id(struct kv_cm_file *file, uint32_t id)
{
	struct kv_cm_id *found = find_id(file, id);

	if (found != NULL)
		tdelete(found, &file->ids, id_compare);
	return found;
}

static bool
put_id(struct kv_cm_file *file, struct kv_cm_id *id)
{
	return tsearch(id, &file->ids, id_compare) != NULL;
}

int
kv_cm_id_add(struct kv_cm_file *file, uint32_t id, bool is_ud)
{
	struct kv_cm_id *new = malloc(sizeof(*new));
	bool done;

	if (new == NULL)
		return -ENOMEM;
	*new = (struct kv_cm_id){.id = id, .is_ud = is_ud};
	pthread_mutex_lock(&state.lock);
	done = put_id(file, new);
	pthread_mutex_unlock(&state.lock);
	if (!done)
		free(new);
	return done ? 0 : -ENOMEM;
}

void
kv_cm_id_remove(struct kv_cm_file *file, uint32_t id)
{
	pthread_mutex_lock(&state.lock);
	free(take_id(file, id));
	pthread_mutex_unlock(&state.lock);
}

void
kv_cm_id_move(struct kv_cm_file *from, struct kv_cm_file *to, uint32_t id)
{
	struct kv_cm_id *found;

	pthread_mutex_lock(&state.lock);
	found = take_id(from, id);
	if (found != NULL && !put_id(to, found))
		free(found);
	pthread_mutex_unlock(&state.lock);
}

int
kv_cm_id_check(struct kv_cm_file *file, uint32_t id)
{
	const struct kv_cm_file *f;
	const char *why = "no such identifier";
	int ret = -ENOENT;

	pthread_mutex_lock(&state.lock);
	for (f = state.files; f != NULL && ret == -ENOENT; f = f->next)
		if (find_id(f, id) != NULL)
			ret = -EINVAL;
	/* it may have been closed meanwhile, and not be in the list */
	if (find_id(file, id) != NULL)
		ret = 0;
	pthread_mutex_unlock(&state.lock);
	if (ret == -EINVAL)
		why = "the identifier is on another channel";
	return ret == 0 ? 0 : kv_refuse(ret, why);
}

bool
kv_cm_id_is_ud(struct kv_cm_file *file, uint32_t id)
{
	const struct kv_cm_id *found;
	bool is_ud;

	pthread_mutex_lock(&state.lock);
	found = find_id(file, id);
	is_ud = found != NULL && found->is_ud;
	pthread_mutex_unlock(&state.lock);
	return is_ud;
}

/* --- files --- */

static ino_t
inode(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

int
kv_cm_file_open(struct kv_cm_engine *engine, int flags, struct kv_cm_file **file)
{
	struct kv_cm_file *f = calloc(1, sizeof(*f));
	int ret;

	if (f == NULL)
		return kv_refuse(-ENOMEM, "no memory");
	ret = karst_rdmacm_create_channel(engine->karst, &f->channel);
	if (ret != 0) {
		free(f);
		return ret;
	}
	f->engine = engine;
	f->fd = f->channel->fd;
	f->ino = inode(f->fd);
	f->pid = getpid();
	f->users = 1;
	fcntl(f->fd, F_SETFL, flags & O_NONBLOCK);
	pthread_mutex_lock(&state.lock);
	f->next = state.files;
	state.files = f;
	pthread_mutex_unlock(&state.lock);
	*file = f;
	return 0;
}

/* The last user is gone, so no lock is needed. */
static void
file_end(struct kv_cm_file *file)
{
	if (file->pid != getpid()) {
		/* the rest is the parent's */
		close(file->fd);
		tdestroy(file->ids, free);
		free(file);
		return;
	}
	/* as the kernel does it, with what the program has left in it */
	while (file->ids != NULL) {
		struct kv_cm_id *id = *(struct kv_cm_id **)file->ids;

		karst_rdmacm_destroy_id(file->engine->karst, id->id, NULL);
		tdelete(id, &file->ids, id_compare);
		free(id);
	}
	if (karst_rdmacm_destroy_channel(file->channel) != 0)
		close(file->fd); /* the end of the attachment is that of the channel, too */
	kv_cm_engine_put(file->engine);
	free(file);
}

void
kv_cm_file_put(struct kv_cm_file *file)
{
	bool is_last;

	pthread_mutex_lock(&state.lock);
	is_last = --file->users == 0;
	pthread_mutex_unlock(&state.lock);
	if (is_last)
		file_end(file);
}

/* With the lock held.  @return false: it was not in the list any more. */
static bool
file_unlist(struct kv_cm_file *file)
{
	struct kv_cm_file **at = &state.files;

	while (*at != NULL && *at != file)
		at = &(*at)->next;
	if (*at == NULL)
		return false;
	*at = file->next;
	return true;
}

void
kv_cm_file_close(struct kv_cm_file *file)
{
	bool was_open;

	pthread_mutex_lock(&state.lock);
	was_open = file_unlist(file);
	pthread_mutex_unlock(&state.lock);
	if (was_open)
		kv_cm_file_put(file);
}

struct kv_cm_file *
kv_cm_file_get(int fd)
{
	struct kv_cm_file *f;

	pthread_mutex_lock(&state.lock);
	for (f = state.files; f != NULL && f->fd != fd; f = f->next)
		;
	/* a program that closed it by itself has another file of that number by now; what is left
	 * of ours goes with the attachment */
	if (f != NULL && inode(fd) != f->ino) {
		file_unlist(f);
		f = NULL;
	}
	if (f != NULL)
		f->users++;
	pthread_mutex_unlock(&state.lock);
	return f;
}

/* --- the calls that are taken over --- */

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
	/* an attachment from before the engine ended; now there may be another engine */
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

int
kv_cm_fstat(int fd, struct stat *st)
{
	struct kv_cm_file *file = kv_cm_file_get(fd);
	int ret = fstat(fd, st);

	if (file == NULL)
		return ret;
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = CDEV;
	kv_cm_file_put(file);
	return ret;
}

ssize_t
kv_cm_write(int fd, const void *buf, size_t len)
{
	struct kv_cm_file *file = kv_cm_file_get(fd);
	int cancel;
	ssize_t n;

	if (file == NULL)
		return write(fd, buf, len);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	/* the kernel wants the credentials that the file was opened with, which a child's are
	 * not */
	n = file->pid == getpid()
		? kv_cm_command(file, cancel, buf, len)
		: kv_refuse(-EACCES, "rdma_cm: the channel is the parent process's");
	/* who does not wait, or was interrupted, knows why */
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
	struct kv_cm_file *file = kv_cm_file_get(fd);
	int cancel;

	if (file == NULL)
		return close(fd);
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
	return state.opendir(path);
}

/* --- fork --- */

static void
ucma_before_fork(void)
{
	pthread_mutex_lock(&state.lock);
}

static void
ucma_after_fork(void)
{
	pthread_mutex_unlock(&state.lock);
}

static void
ucma_in_child(void)
{
	pthread_mutex_unlock(&state.lock);
	kv_cm_engine_forget();
}

void
kv_cm_init(void)
{
	const struct kv_got_entry entries[] = {
		{"opendir", (void *)ucma_opendir, (void **)&state.opendir}};

	state.opendir = opendir;
	pthread_atfork(ucma_before_fork, ucma_after_fork, ucma_in_child);
	kv_got_patch("libibverbs.so", entries, KARST_DIM(entries));
	patch_librdmacm();
}
