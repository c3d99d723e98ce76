/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The rdma_cm device as librdmacm sees it (rdma/rdma_user_cm.h, ABI 4): a file that takes commands
 * and is readable while events wait.
 *
 *   ucma.c         the calls of librdmacm that are taken over
 *   ucma_file.c    the files: opened, found by descriptor, closed; their identifiers
 *   ucma_engine.c  the attachment to an engine that files share
 *   ucma_cmd.c     the commands that are written to them
 *   ucma_query.c   those among them that ask for much
 */
#ifndef KARST_VERBS_UCMA_H
#define KARST_VERBS_UCMA_H

#include <sys/queue.h>
#include <sys/stat.h>

#include <rdma/rdma_user_cm.h>

#include "karst_rdmacm.h"
#include "provider.h"

/** An engine, and an attachment to it of the connection manager's own: identifiers may move
 *  from file to file. */
struct kv_cm_engine {
	LIST_ENTRY(kv_cm_engine) next;
	struct karst_context *karst;
	unsigned int users; /* files */
	char socket[KV_SOCKET];
};

#define KV_CM_ID_LISTS 64u

/** An open file. */
struct kv_cm_file {
	LIST_ENTRY(kv_cm_file) link; /* of those whose descriptor's number is not free */
	bool listed;
	bool closed; /* by the program: some command may still go on */
	bool lost;   /* closed without us: fd is another file, or none */
	struct kv_cm_engine *engine;
	struct karst_rdmacm_channel *channel; /* whose descriptor is the file's */
	int fd;
	ino_t ino;          /* of it */
	pid_t pid;          /* whose it is; a child inherits the descriptor and not the file */
	unsigned int users; /* its being open, and commands under way */
	/* by their numbers, the lowest bits of which the engine gives out in turn */
	LIST_HEAD(, kv_cm_id) ids[KV_CM_ID_LISTS];
};

/** An identifier, of the file that has its events. */
struct kv_cm_id {
	LIST_ENTRY(kv_cm_id) next;
	uint32_t id;
	bool is_ud;
};

/* --- ucma.c; all calls return a negative errno --- */

/** Takes over what librdmacm calls, whenever it is loaded. */
void kv_cm_init(void);

/** What librdmacm calls instead of the C library: the same for descriptors that are not ours. */
int kv_cm_fstat(int fd, struct stat *st);
ssize_t kv_cm_write(int fd, const void *buf, size_t len);
int kv_cm_close(int fd);

/* --- ucma_file.c --- */

/** Once, when the provider is loaded. */
void kv_cm_files_init(void);
/** A new file over @engine, which is then its own; @flags: O_NONBLOCK.  */
int kv_cm_file_open(struct kv_cm_engine *engine, int flags, struct kv_cm_file **file);
/** The file stays until it is put back.  NULL: the descriptor is not one of ours, or *@closed: the
 *  program has closed it (EBADF). */
struct kv_cm_file *kv_cm_file_get(int fd, bool *closed);
void kv_cm_file_put(struct kv_cm_file *file);
/** No longer open; the end comes with the last kv_cm_file_put(). */
void kv_cm_file_close(struct kv_cm_file *file);

/** -ENOMEM */
int kv_cm_id_add(struct kv_cm_file *file, uint32_t id, bool is_ud);
void kv_cm_id_remove(struct kv_cm_file *file, uint32_t id);
void kv_cm_id_move(struct kv_cm_file *from, struct kv_cm_file *to, uint32_t id);
/** -ENOENT: there is none; -EINVAL: it is another file's. */
int kv_cm_id_check(struct kv_cm_file *file, uint32_t id);
bool kv_cm_id_is_ud(struct kv_cm_file *file, uint32_t id);

/* --- ucma_cmd.c --- */

/** Why a child is refused. */
extern const char kv_cm_parents[];

/** What write() does.  The thread's cancellation is disabled; @cancel: the state that it has while
 *  it waits for an event, and then @file is put back first.  @return @len, or a negative errno. */
ssize_t kv_cm_command(struct kv_cm_file *file, int cancel, const void *buf, size_t len);

/* --- ucma_query.c --- */

int kv_cm_query_route(struct kv_cm_file *file, uint32_t id, struct rdma_ucm_query_route_resp *resp);
int kv_cm_init_qp_attr(
	struct kv_cm_file *file, uint32_t id, uint32_t state, struct ib_uverbs_qp_attr *resp);
int kv_cm_get_event(struct kv_cm_file *file, int cancel, struct rdma_ucm_event_resp *resp);

/* --- ucma_engine.c --- */

/** The engine at @socket.  As karst_open(). */
int kv_cm_engine_get(const char *socket, struct kv_cm_engine **engine);
void kv_cm_engine_put(struct kv_cm_engine *engine);
/** It does not answer any more: who comes next attaches anew. */
void kv_cm_engine_retire(struct kv_cm_engine *engine);
/** In a forked child: all attachments are the parent's. */
void kv_cm_engine_forget(void);

#endif /* KARST_VERBS_UCMA_H */
