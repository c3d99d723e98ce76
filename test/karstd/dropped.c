/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Capabilities are taken from threads that do not answer at once (TAP).  A thread in vfork() takes
 * no signal until its child ends, like a thread that waits for a processor.  By then it has been
 * signalled many times, and none of those signals may arrive when the C library uses its signal
 * again.  A thread that does not answer until the caller gives up must not be killed by late
 * signals.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "caps.h"

#define THREADS  16
#define CHILD_NS 999000000
#define WITHIN_S 1u

static bool is_deaf; /* until it may end */
static atomic_uint in_vfork;
static atomic_bool may_end;

static void *
deaf(void *arg)
{
	const struct timespec t = {.tv_nsec = CHILD_NS}, soon = {.tv_nsec = 1000000};
	uint64_t *have = arg;
	pid_t pid;

	pid = vfork();
	if (pid == 0) {
		/* the memory is shared with the parent, which from now on takes no signals */
		atomic_fetch_add(&in_vfork, 1);
		do
			syscall(SYS_nanosleep, &t, NULL);
		while (is_deaf && !atomic_load(&may_end));
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	while (!atomic_load(&may_end))
		nanosleep(&soon, NULL);
	*have = kd_caps_have();
	return NULL;
}

static void
too_long(void)
{
	uint64_t have;
	pthread_t t;
	int rc;

	is_deaf = true;
	if (pthread_create(&t, NULL, deaf, &have) != 0)
		exit(1);
	while (atomic_load(&in_vfork) < 1)
		;
	rc = kd_caps_keep(0, WITHIN_S);
	atomic_store(&may_end, true);
	pthread_join(t, NULL);
	exit(rc == -ETIMEDOUT ? 0 : 2);
}

int
main(void)
{
	const struct timespec soon = {.tv_nsec = 50000000};
	uint64_t have[THREADS], more = 0;
	pthread_t t[THREADS];
	int rc, i, status = -1;
	pid_t pid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("1..3\n");
	if (kd_caps_have() == 0) {
		printf("ok 1 - threads that are busy # SKIP needs root\n"
		       "ok 2 - signals of the C library # SKIP needs root\n"
		       "ok 3 - a thread that is deaf # SKIP needs root\n");
		return 0;
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		too_long();
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, deaf, &have[i]) != 0)
			return 1;
	while (atomic_load(&in_vfork) < THREADS)
		nanosleep(&soon, NULL);
	nanosleep(&soon, NULL);
	rc = kd_caps_keep(0, KD_CAPS_WITHIN_S);
	/* the rest of the signals arrives now */
	nanosleep(&soon, NULL);
	atomic_store(&may_end, true);
	for (i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		more |= have[i];
	}
	printf("%s 1 - threads that are busy give up their capabilities, late\n",
		rc == 0 && more == 0 && kd_caps_have() == 0 ? "ok" : "not ok");
	/* whether every thread still gets a signal that the C library sends on its own */
	printf("%s 2 - the C library has its signal back\n",
		setresuid(getuid(), getuid(), getuid()) == 0 ? "ok" : "not ok");
	if (pid > 0)
		waitpid(pid, &status, 0);
	printf("# status %#x\n", (unsigned int)status);
	printf("%s 3 - a thread that does not answer is told of, and ends nobody\n",
		status == 0 ? "ok" : "not ok");
	return 0;
}
