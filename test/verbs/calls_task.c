/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Threads whose control requests can be delayed (while the provider holds its locks) or made to
 * fail, and that can be interrupted when they free memory or ask for the page size.  For this the
 * program has its own sendmsg(), recvmsg(), free() and sysconf(): a program's symbols take
 * precedence over a library's.
 */
#include "calls_task.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HEADER_BYTES 24u /* of a control message: struct karst_ctl_hdr */

static _Thread_local struct task *mine;

ssize_t
sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct task *t = mine;

	if (t != NULL && t->spoil && t->spare-- == 0) {
		/* requests to destroy or modify an object begin with its handle */
		uint32_t *handle = (uint32_t *)((uint8_t *)m->msg_iov->iov_base + HEADER_BYTES);

		t->spoil = false;
		*handle ^= 0x5a5a5a5au;
	}
	return syscall(SYS_sendmsg, fd, m, flags);
}

ssize_t
recvmsg(int fd, struct msghdr *m, int flags)
{
	struct task *t = mine;

	if (t != NULL && t->hold) {
		t->hold = false;
		sem_post(&t->inside);
		while (sem_wait(&t->go) != 0)
			;
	}
	if (t != NULL)
		t->freeing = t->at_free != NULL;
	return syscall(SYS_recvmsg, fd, m, flags);
}

void
free(void *p)
{
	static void (*next)(void *p);
	void (*at_free)(struct task * t);
	struct task *t = mine;

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "free");
	if (p == NULL || t == NULL || !t->freeing || t->at_free == NULL) {
		next(p);
		return;
	}
	at_free = t->at_free;
	t->at_free = NULL;
	memset(p, 0xdd, malloc_usable_size(p)); /* to detect use after free */
	next(p);
	at_free(t);
}

/* The provider calls sysconf() in ibv_advise_mr(). */
long
sysconf(int name)
{
	static long (*next)(int name);
	void (*at_sysconf)(struct task * t);
	struct task *t = mine;

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "sysconf");
	if (t != NULL && t->at_sysconf != NULL) {
		at_sysconf = t->at_sysconf;
		t->at_sysconf = NULL;
		at_sysconf(t);
	}
	return next(name);
}

void
task_is_mine(struct task *t)
{
	mine = t;
}

void
task_begin(struct task *t, void *(*fn)(void *))
{
	sem_init(&t->inside, 0, 0);
	sem_init(&t->go, 0, 0);
	MUST(pthread_create(&t->thread, NULL, fn, t) == 0);
}

void
task_begin_held(struct task *t, void *(*fn)(void *))
{
	t->hold = true;
	task_begin(t, fn);
	while (sem_wait(&t->inside) != 0)
		;
}

void
task_end(struct task *t)
{
	sem_post(&t->go);
	EQ(pthread_join(t->thread, NULL), 0);
	CHECK(t->finished, "not finished");
}

/* @return the system call in which the thread sleeps; -1: it does not sleep */
static long
sleeps_in(const struct task *t)
{
	char path[64], word[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)t->tid);
	f = fopen(path, "r");
	MUST(f != NULL);
	if (fscanf(f, "%31s", word) != 1)
		word[0] = '-';
	fclose(f);
	return word[0] >= '0' && word[0] <= '9' ? atol(word) : -1;
}

bool
task_waits(const struct task *t)
{
	return t->tid != 0 && sleeps_in(t) == SYS_futex;
}

void
until_it_waits(const struct task *t)
{
	while (!task_waits(t))
		usleep(1000);
}

void
until_it_has_read(const struct task *t, int fd)
{
	int bytes;

	do {
		usleep(1000);
		bytes = -1;
		MUST(ioctl(fd, FIONREAD, &bytes) == 0);
	} while (bytes != 0 || t->tid == 0 || sleeps_in(t) < 0);
}
