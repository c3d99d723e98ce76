/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The rdma_cm device as librdmacm sees it (rdma/rdma_user_cm.h, ABI 4): a file that accepts
 * commands and is readable while events are pending.
 *
 *   ucma.c         replaces the calls of librdmacm
 *   ucma_file.c    open files, looked up by descriptor; their identifiers
 *   ucma_engine.c  the attachment to an engine, which files share
 *   ucma_cmd.c     the commands that librdmacm writes to the files
 *   ucma_query.c   the commands with long answers
 */
#ifndef KARST_VERBS_UCMA_H
#define KARST_VERBS_UCMA_H

#include <sys/queue.h>
#include <sys/stat.h>

#include <rdma/rdma_user_cm.h>

#include "karst_rdmacm.h"
#include "provider.h"

/** An attachment to an engine for connection management.  All files of the engine share it, because
 *  identifiers may migrate from one file to another. */
struct kv_cm_engine {
	LIST_ENTRY(kv_cm_engine) next;
	struct karst_context *karst;
	unsigned int users; /* files */
	char socket[KV_SOCKET];
};

#define KV_CM_ID_LISTS 64u

/** An open file. */
struct kv_cm_file {
	LIST_ENTRY(kv_cm_file) link; /* in a list of files whose descriptor number is in use */
	bool listed;
	bool closed; /* by the program; a command may still be under way */
	bool lost;   /* closed without kv_cm_close(): fd is another file, or none */
	struct kv_cm_engine *engine;
	struct karst_rdmacm_channel *channel; /* its descriptor is the file's descriptor */
	int fd;
	ino_t ino;          /* of fd */
	pid_t pid;          /* of the owner: a child inherits the descriptor but not the file */
	unsigned int users; /* commands under way, and 1 while the file is open */
	/* hashed by number: the engine assigns the lowest bits in turn */
	LIST_HEAD(, kv_cm_id) ids[KV_CM_ID_LISTS];
};

/** An identifier in the list of the file that receives its events. */
struct kv_cm_id {
	LIST_ENTRY(kv_cm_id) next;
	uint32_t id;
	bool is_ud;
	/* that the program has got, without those of groups: the engine counts all of them, but may
	 * be gone when the count is needed */
	uint32_t events;
};

/* --- ucma.c; all calls return a negative errno --- */

/** Replaces the calls of librdmacm, whether it is loaded before the provider or after it. */
void kv_cm_init(void);

/** librdmacm calls these functions instead of the C library's.  They pass calls for descriptors
 *  that are not karst's on to the C library. */
int kv_cm_fstat(int fd, struct stat *st);
ssize_t kv_cm_write(int fd, const void *buf, size_t len);
int kv_cm_close(int fd);

/* --- ucma_file.c --- */

/** Called once, when the provider is loaded. */
void kv_cm_files_init(void);
/** Opens a file over @engine.  On success the file takes over the caller's reference to @engine.
 *  @flags: O_NONBLOCK. */
int kv_cm_file_open(struct kv_cm_engine *engine, int flags, struct kv_cm_file **file);
/** Looks up a file and takes a reference to it, which kv_cm_file_put() releases.
 *  @return NULL: the descriptor is not karst's; with *@closed set: the program has closed it
 *  (EBADF) */
struct kv_cm_file *kv_cm_file_get(int fd, bool *closed);
void kv_cm_file_put(struct kv_cm_file *file);
/** Marks the file as closed; the last kv_cm_file_put() frees it. */
void kv_cm_file_close(struct kv_cm_file *file);

/** @return 0 or -ENOMEM */
int kv_cm_id_add(struct kv_cm_file *file, uint32_t id, bool is_ud);
/** @return the number of its events, see struct kv_cm_id */
uint32_t kv_cm_id_remove(struct kv_cm_file *file, uint32_t id);
/** Counts an event of the identifier. */
void kv_cm_id_told(struct kv_cm_file *file, uint32_t id);
void kv_cm_id_move(struct kv_cm_file *from, struct kv_cm_file *to, uint32_t id);
/** @return 0; -ENOENT: there is no such identifier; -EINVAL: it belongs to another file */
int kv_cm_id_check(struct kv_cm_file *file, uint32_t id);
bool kv_cm_id_is_ud(struct kv_cm_file *file, uint32_t id);

/* --- ucma_cmd.c --- */

/** The reason for refusing a call in a forked child. */
extern const char kv_cm_parents[];

/** Executes the command that was passed to write().  The thread's cancellation is disabled except
 *  while the command waits for an event: it then has the state @cancel, and @file is put back if
 *  the thread is cancelled.
 *  @return @len, or a negative errno */
ssize_t kv_cm_command(struct kv_cm_file *file, int cancel, const void *buf, size_t len);

/* --- ucma_query.c --- */

int kv_cm_query_route(struct kv_cm_file *file, uint32_t id, struct rdma_ucm_query_route_resp *resp);
int kv_cm_init_qp_attr(
	struct kv_cm_file *file, uint32_t id, uint32_t state, struct ib_uverbs_qp_attr *resp);
int kv_cm_get_event(struct kv_cm_file *file, int cancel, struct rdma_ucm_event_resp *resp);

/* --- ucma_engine.c --- */

/** Takes a reference to the attachment to the engine at @socket; attaches if there is none.  Errors
 *  as karst_open(). */
int kv_cm_engine_get(const char *socket, struct kv_cm_engine **engine);
void kv_cm_engine_put(struct kv_cm_engine *engine);
/** Called if the engine no longer answers: the next kv_cm_engine_get() attaches anew. */
void kv_cm_engine_retire(struct kv_cm_engine *engine);
/** Called in a forked child: forgets all attachments, which belong to the parent. */
void kv_cm_engine_forget(void);

#endif /* KARST_VERBS_UCMA_H */
