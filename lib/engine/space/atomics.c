/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Locks of programs whose memory is copied, for atomics on it (copies.c).
 *
 * A lock belongs to an address space, which may be attached several times.  It is found by the file
 * that the program has sent to reach that memory (/proc/PID/mem): while a descriptor of it is open,
 * each open() by the same process gives the same file, and no other process has it.  Process
 * numbers would not do: a program that has ended may still have the lock when its number is used
 * again, and programs in other PID namespaces all have the number 0.  The numbers of files have 32
 * bits, too, so that one may return; therefore the time of the file's last change (st_ctim) counts
 * as well, at first when the kernel made it.  The program can move it to the present (futimens(),
 * fchown()), but not to that of another file; then its next attachment has another lock, which
 * harms its own atomics only.  The user does not count: a process may change it between two
 * attachments.
 */
#include "space_priv.h"

#include <stdlib.h>
#include <sys/stat.h>

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, eng_atomics) list;
} all_atomics = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct eng_atomics *
eng_atomics_get(int memfd)
{
	struct eng_atomics *a = NULL;
	struct stat st;

	if (memfd < 0 || fstat(memfd, &st) != 0)
		st = (struct stat){0};
	pthread_mutex_lock(&all_atomics.lock);
	if (st.st_ino != 0)
		LIST_FOREACH(a, &all_atomics.list, next)
			if (a->dev == st.st_dev && a->ino == st.st_ino &&
				a->made.tv_sec == st.st_ctim.tv_sec &&
				a->made.tv_nsec == st.st_ctim.tv_nsec)
				break;
	if (a == NULL && (a = calloc(1, sizeof(*a))) != NULL) {
		a->dev = st.st_dev;
		a->ino = st.st_ino;
		a->made = st.st_ctim;
		pthread_mutex_init(&a->lock, NULL);
		LIST_INSERT_HEAD(&all_atomics.list, a, next);
	}
	if (a != NULL)
		a->users++;
	pthread_mutex_unlock(&all_atomics.lock);
	return a;
}

void
eng_atomics_put(struct eng_atomics *a)
{
	pthread_mutex_lock(&all_atomics.lock);
	if (--a->users == 0) {
		LIST_REMOVE(a, next);
		pthread_mutex_destroy(&a->lock);
		free(a);
	}
	pthread_mutex_unlock(&all_atomics.lock);
}
