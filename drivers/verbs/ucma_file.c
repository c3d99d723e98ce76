/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Files of the rdma_cm device, and the identifiers of each.  The descriptor of a file is that of a
 * libkarst channel, so that the program's own poll(), epoll and fcntl() work on it.
 *
 * A command may wait for an event while another thread closes the file.  As with the kernel, the
 * file then stays until the command ends; unlike there, the descriptor's number is not free before.
 * Until it is, the number means a file that is closed: what was written to it would go into the
 * channel, and end the program by SIGPIPE where nobody reads that any more.
 */
#include "ucma.h"

#include <fcntl.h>
#include <search.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the process, as descriptors are. */
static struct {
	/* over the list and all files' users and ids; held over fork(), so no call of libkarst
	 * is made under it */
	struct karst_mutex lock;
	LIST_HEAD(, kv_cm_file) open;
} files = {.lock = KARST_MUTEX_INITIALIZER};

/* --- identifiers of a file --- */

static int
id_compare(const void *a, const void *b)
{
	uint32_t x = ((const struct kv_cm_id *)a)->id, y = ((const struct kv_cm_id *)b)->id;

	return (x > y) - (x < y);
}

/* With the lock held. */
static struct kv_cm_id *
id_find(const struct kv_cm_file *file, uint32_t id)
{
	const struct kv_cm_id key = {.id = id};
	struct kv_cm_id **node = tfind(&key, &file->ids, id_compare);

	return node != NULL ? *node : NULL;
}

static struct kv_cm_id *
id_take(struct kv_cm_file *file, uint32_t id)
{
	struct kv_cm_id *found = id_find(file, id);

	if (found != NULL)
		tdelete(found, &file->ids, id_compare);
	return found;
}

static bool
id_put(struct kv_cm_file *file, struct kv_cm_id *id)
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
	karst_mutex_lock(&files.lock);
	done = id_put(file, new);
	karst_mutex_unlock(&files.lock);
	if (!done)
		free(new);
	return done ? 0 : -ENOMEM;
}

void
kv_cm_id_remove(struct kv_cm_file *file, uint32_t id)
{
	karst_mutex_lock(&files.lock);
	free(id_take(file, id));
	karst_mutex_unlock(&files.lock);
}

void
kv_cm_id_move(struct kv_cm_file *from, struct kv_cm_file *to, uint32_t id)
{
	struct kv_cm_id *found;

	karst_mutex_lock(&files.lock);
	found = id_take(from, id);
	if (found != NULL && !id_put(to, found))
		free(found);
	karst_mutex_unlock(&files.lock);
}

int
kv_cm_id_check(struct kv_cm_file *file, uint32_t id)
{
	const struct kv_cm_file *f;
	const char *why = "no such identifier";
	int ret = -ENOENT;

	karst_mutex_lock(&files.lock);
	LIST_FOREACH(f, &files.open, link)
		if (id_find(f, id) != NULL)
			ret = -EINVAL;
	/* it may have been closed meanwhile, and not be in the list */
	if (id_find(file, id) != NULL)
		ret = 0;
	karst_mutex_unlock(&files.lock);
	if (ret == -EINVAL)
		why = "the identifier is on another channel";
	return ret == 0 ? 0 : kv_refuse(ret, why);
}

bool
kv_cm_id_is_ud(struct kv_cm_file *file, uint32_t id)
{
	const struct kv_cm_id *found;
	bool is_ud;

	karst_mutex_lock(&files.lock);
	found = id_find(file, id);
	is_ud = found != NULL && found->is_ud;
	karst_mutex_unlock(&files.lock);
	return is_ud;
}

/* --- files --- */

static ino_t
fd_inode(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* With the lock held. */
static void
file_unlist(struct kv_cm_file *file)
{
	if (file->listed)
		LIST_REMOVE(file, link);
	file->listed = false;
}

/* With the lock held. */
static struct kv_cm_file *
file_of(int fd)
{
	struct kv_cm_file *f;

	LIST_FOREACH(f, &files.open, link)
		if (f->fd == fd)
			return f;
	return NULL;
}

/* With the lock held: a program has closed it by itself, for its number is another file's.
 * @return it, if its being open has ended by that: kv_cm_file_put() follows; else NULL */
static struct kv_cm_file *
file_lose(struct kv_cm_file *file)
{
	bool was_closed = file->closed;

	file_unlist(file);
	file->lost = file->closed = true;
	return was_closed ? NULL : file;
}

int
kv_cm_file_open(struct kv_cm_engine *engine, int flags, struct kv_cm_file **file)
{
	struct kv_cm_file *f = calloc(1, sizeof(*f)), *lost;
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
	f->ino = fd_inode(f->fd);
	f->pid = getpid();
	f->users = 1;
	fcntl(f->fd, F_SETFL, flags & O_NONBLOCK);
	karst_mutex_lock(&files.lock);
	lost = file_of(f->fd);
	if (lost != NULL)
		lost = file_lose(lost);
	LIST_INSERT_HEAD(&files.open, f, link);
	f->listed = true;
	karst_mutex_unlock(&files.lock);
	if (lost != NULL)
		kv_cm_file_put(lost);
	*file = f;
	return 0;
}

/* Its descriptor is closed. */
static void
file_free(struct kv_cm_file *file)
{
	karst_mutex_lock(&files.lock);
	file_unlist(file);
	karst_mutex_unlock(&files.lock);
	free(file);
}

/* The last user is gone. */
static void
file_end(struct kv_cm_file *file)
{
	if (file->pid != getpid()) {
		/* the rest is the parent's */
		if (!file->lost)
			close(file->fd);
		tdestroy(file->ids, free);
		file->ids = NULL;
		file_free(file);
		return;
	}
	/* as the kernel does it, with what the program has left in it */
	while (file->ids != NULL) {
		struct kv_cm_id *id = *(struct kv_cm_id **)file->ids;

		karst_rdmacm_destroy_id(file->engine->karst, id->id, NULL);
		tdelete(id, &file->ids, id_compare);
		free(id);
	}
	if (file->lost)
		file->channel->fd = -1;
	/* the end of the attachment is that of the channel, too */
	if (karst_rdmacm_destroy_channel(file->channel) != 0 && !file->lost)
		close(file->fd);
	kv_cm_engine_put(file->engine);
	file_free(file);
}

void
kv_cm_file_put(struct kv_cm_file *file)
{
	bool is_last;

	karst_mutex_lock(&files.lock);
	is_last = --file->users == 0;
	karst_mutex_unlock(&files.lock);
	if (is_last)
		file_end(file);
}

void
kv_cm_file_close(struct kv_cm_file *file)
{
	bool was_open;

	karst_mutex_lock(&files.lock);
	was_open = file->listed && !file->closed;
	file->closed = true;
	karst_mutex_unlock(&files.lock);
	if (was_open)
		kv_cm_file_put(file);
}

struct kv_cm_file *
kv_cm_file_get(int fd, bool *closed)
{
	struct kv_cm_file *f, *lost = NULL;

	*closed = false;
	karst_mutex_lock(&files.lock);
	f = file_of(fd);
	if (f != NULL && fd_inode(fd) != f->ino) {
		lost = file_lose(f);
		f = NULL;
	}
	if (f != NULL && f->closed) {
		*closed = true;
		f = NULL;
	}
	if (f != NULL)
		f->users++;
	karst_mutex_unlock(&files.lock);
	if (lost != NULL)
		kv_cm_file_put(lost);
	return f;
}

/* --- fork --- */

static void
files_before_fork(void)
{
	karst_mutex_lock(&files.lock);
}

static void
files_after_fork(void)
{
	karst_mutex_unlock(&files.lock);
}

static void
files_in_child(void)
{
	karst_mutex_unlock(&files.lock);
	kv_cm_engine_forget();
}

void
kv_cm_files_init(void)
{
	pthread_atfork(files_before_fork, files_after_fork, files_in_child);
}
