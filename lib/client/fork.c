/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * fork() with migrated memory.
 *
 * A child shares shared pages with its parent.  But migrated memory was private when the program
 * allocated it, so the child makes a private copy of all of it before it continues. fork() returns
 * in the parent only after that, so that the copy contains nothing that the parent writes later.
 * The child reports through a pipe; if the child dies, the pipe's end of file does the same.
 *
 * vfork(), posix_spawn() and system() run no handlers and need none: such a child uses its parent's
 * memory until it executes another program.
 */
#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "alloc.h"
#include "memory.h"
#include "migrate.h"
#include "pages.h"

/* Process-wide; done[] is under cli_pages_lock(), which is held from fork_prepare() on. */
static struct {
	pthread_once_t once;
	int ret;
	int done[2]; /* -1: there is nothing to wait for */
} state = {.once = PTHREAD_ONCE_INIT, .done = {-1, -1}};

static void
fork_prepare(void)
{
	cli_pages_lock();
	/* without a pipe the parent continues at once */
	if (cli_migrated_count() == 0 || pipe2(state.done, O_CLOEXEC) != 0)
		state.done[0] = state.done[1] = -1;
}

static void
fork_parent(void)
{
	char byte;

	if (state.done[0] >= 0) {
		close(state.done[1]);
		while (read(state.done[0], &byte, 1) < 0 && errno == EINTR)
			;
		close(state.done[0]);
	}
	cli_pages_unlock();
}

static void
fork_child(void)
{
	cli_pages_lock_reset();
	cli_memory_forget();
	cli_migrated_forget();
	cli_alloc_inherit();
	cli_pages_forget();
	if (state.done[0] < 0)
		return;
	close(state.done[0]);
	(void)!write(state.done[1], "", 1);
	close(state.done[1]);
}

static void
fork_register(void)
{
	state.ret = -pthread_atfork(fork_prepare, fork_parent, fork_child);
}

int
cli_fork_init(void)
{
	pthread_once(&state.once, fork_register);
	return state.ret;
}
