/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Open files of the rdma_cm device and their identifiers.  The descriptor of a file is that of a
 * libkarst channel, so that the program's own poll(), epoll and fcntl() work on it.
 *
 * A command may wait for an event while another thread closes the file.  As in the kernel, the file
 * then exists until the command ends; unlike in the kernel, the descriptor's number stays in use
 * until then.  In this time calls for the number fail as for a closed file.  Otherwise a write
 * would go into the channel, and end the program by SIGPIPE if the other end is closed.
 */
#include "ucma.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* One for the process, like descriptors. */
static struct {
	/* protects the lists, and the users and ids of all files.  It is held during fork(), so
	 * under it no libkarst call is made and no memory is allocated or freed: programs intercept
	 * that, and may call libkarst from there */
	struct karst_mutex lock;
	LIST_HEAD(, kv_cm_file) open[KV_FD_LISTS]; /* by descriptor */
} files = {.lock = KARST_MUTEX_INITIALIZER};

/* --- identifiers of a file --- */

/* With the lock held. */
static struct kv_cm_id *
id_find(const struct kv_cm_file *file, uint32_t id)
{
	struct kv_cm_id *i;

	LIST_FOREACH(i, &file->ids[id % KV_CM_ID_LISTS], next)
		if (i->id == id)
			break;
	return i;
}

static void
id_put(struct kv_cm_file *file, struct kv_cm_id *id)
{
	LIST_INSERT_HEAD(&file->ids[id->id % KV_CM_ID_LISTS], id, next);
}

int
kv_cm_id_add(struct kv_cm_file *file, uint32_t id, bool is_ud)
{
	struct kv_cm_id *new = malloc(sizeof(*new));

	if (new == NULL)
		return -ENOMEM;
	*new = (struct kv_cm_id){.id = id, .is_ud = is_ud};
	karst_mutex_lock(&files.lock);
	id_put(file, new);
	karst_mutex_unlock(&files.lock);
	return 0;
}

uint32_t
kv_cm_id_remove(struct kv_cm_file *file, uint32_t id)
{
	struct kv_cm_id *found;
	uint32_t events;

	karst_mutex_lock(&files.lock);
	found = id_find(file, id);
	if (found != NULL)
		LIST_REMOVE(found, next);
	karst_mutex_unlock(&files.lock);
	events = found != NULL ? found->events : 0;
	free(found);
	return events;
}

void
kv_cm_id_told(struct kv_cm_file *file, uint32_t id)
{
	struct kv_cm_id *found;

	karst_mutex_lock(&files.lock);
	found = id_find(file, id);
	if (found != NULL)
		found->events++;
	karst_mutex_unlock(&files.lock);
}

void
kv_cm_id_move(struct kv_cm_file *from, struct kv_cm_file *to, uint32_t id)
{
	struct kv_cm_id *found;

	karst_mutex_lock(&files.lock);
	found = id_find(from, id);
	if (found != NULL) {
		LIST_REMOVE(found, next);
		id_put(to, found);
	}
	karst_mutex_unlock(&files.lock);
}

/* With the lock held: whether any open file has the identifier. */
static bool
id_is_open(uint32_t id)
{
	const struct kv_cm_file *f;
	unsigned int i;

	for (i = 0; i < KV_FD_LISTS; i++)
		LIST_FOREACH(f, &files.open[i], link)
			if (id_find(f, id) != NULL)
				return true;
	return false;
}

int
kv_cm_id_check(struct kv_cm_file *file, uint32_t id)
{
	const char *why = "no such identifier";
	int ret = -ENOENT;

	karst_mutex_lock(&files.lock);
	/* @file is searched first: it may have been closed meanwhile, and not be in a list */
	if (id_find(file, id) != NULL)
		ret = 0;
	else if (id_is_open(id))
		ret = -EINVAL;
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

	LIST_FOREACH(f, &files.open[kv_fd_list(fd)], link)
		if (f->fd == fd)
			return f;
	return NULL;
}

/* Called with the lock held when the descriptor's number belongs to another file: the program has
 * closed the descriptor without kv_cm_close().
 * @return @file, if it was open until now: the caller calls kv_cm_file_put(); else NULL */
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
	LIST_INSERT_HEAD(&files.open[kv_fd_list(f->fd)], f, link);
	f->listed = true;
	karst_mutex_unlock(&files.lock);
	if (lost != NULL)
		kv_cm_file_put(lost);
	*file = f;
	return 0;
}

/* Called after the descriptor has been closed. */
static void
file_free(struct kv_cm_file *file)
{
	karst_mutex_lock(&files.lock);
	file_unlist(file);
	karst_mutex_unlock(&files.lock);
	free(file);
}

/* Removes one of the file's identifiers from its list and returns it; NULL: none is left. */
static struct kv_cm_id *
id_take_any(struct kv_cm_file *file)
{
	struct kv_cm_id *id = NULL;
	unsigned int i;

	karst_mutex_lock(&files.lock);
	for (i = 0; i < KV_CM_ID_LISTS && id == NULL; i++)
		id = LIST_FIRST(&file->ids[i]);
	if (id != NULL)
		LIST_REMOVE(id, next);
	karst_mutex_unlock(&files.lock);
	return id;
}

/* Frees the identifiers of a file that has no users; other threads may still search it.  @karst:
 * the engine's identifiers are destroyed, too; NULL: they are not, because they belong to the
 * parent process. */
static void
ids_end(struct kv_cm_file *file, struct karst_context *karst)
{
	struct kv_cm_id *id;

	while ((id = id_take_any(file)) != NULL) {
		if (karst != NULL)
			karst_rdmacm_destroy_id(karst, id->id, NULL);
		free(id);
	}
}

/* Called when the file has no user any more. */
static void
file_end(struct kv_cm_file *file)
{
	if (file->pid != getpid()) {
		/* the channel and the engine's identifiers belong to the parent process */
		if (!file->lost)
			close(file->fd);
		ids_end(file, NULL);
		file_free(file);
		return;
	}
	/* like the kernel, destroy the identifiers that the program has left in the file */
	ids_end(file, file->engine->karst);
	if (file->lost)
		file->channel->fd = -1;
	/* if this fails, kv_cm_engine_put() ends the channel with the attachment */
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

/* Commands under way exist only in the parent: here an open file has one user, and a closed file
 * that only waited for its commands is freed now. */
static void
files_in_child(void)
{
	struct kv_cm_file *f, *next;
	unsigned int i;

	karst_mutex_unlock(&files.lock);
	for (i = 0; i < KV_FD_LISTS; i++) {
		for (f = LIST_FIRST(&files.open[i]); f != NULL; f = next) {
			next = LIST_NEXT(f, link);
			f->users = 1;
			if (f->closed)
				kv_cm_file_put(f);
		}
	}
	kv_cm_engine_forget();
}

void
kv_cm_files_init(void)
{
	pthread_atfork(files_before_fork, files_after_fork, files_in_child);
}
