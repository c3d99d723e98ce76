/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Capabilities belong to threads.  When the ports are open, there are already threads of DPDK and
 * of the engine, which cannot be asked to call capset().  Each of them is interrupted by a signal
 * whose handler does it, as the C library does for setuid().
 *
 * The signal is the one that the C library reserves for that purpose, because it is the only one
 * that no thread has blocked: threads of a library block all signals that they can.  Its handler is
 * restored afterwards, and must not be called by a late signal from here.  Such signals are queued.
 * So a thread gets the next one only when the last one is no longer pending, and the work is done
 * only when no thread has one pending.
 */
#include "caps.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "karst_log.h"

#define BIT(cap)     (UINT64_C(1) << (cap))
#define SIGSETXID    33  /* of the C library; pthread_sigmask() and sigaction() do not change it */
#define KERNEL_BYTES 256 /* at least the size of the kernel's struct sigaction on any machine */
#define MASK_BYTES   8   /* size of the kernel's signal set */
#define TRY_NS       1000000

#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

/* --- required capabilities --- */

/* Does this kernel have a capability of that number? */
static bool
kernel_has(int cap)
{
	FILE *f = fopen("/proc/sys/kernel/cap_last_cap", "re");
	int last = -1;

	if (f == NULL)
		return true;
	if (fscanf(f, "%d", &last) != 1)
		last = cap;
	fclose(f);
	return cap <= last;
}

uint64_t
kd_caps_of_part(bool xdp)
{
	/* SETUID and SETGID to take on the identity under which programs' files and lists of
	 * mappings are opened; the third for /proc/PID/map_files. */
	uint64_t need = BIT(CAP_SETUID) | BIT(CAP_SETGID);

	need |= kernel_has(CAP_CHECKPOINT_RESTORE) ? BIT(CAP_CHECKPOINT_RESTORE)
						   : BIT(CAP_SYS_ADMIN);
	/* to remove XDP programs when the daemon has ended */
	if (xdp)
		need |= BIT(CAP_NET_ADMIN);
	return need;
}

/* --- one thread --- */

struct sets {
	struct __user_cap_data_struct half[2];
};

static int
caps_get(struct sets *s)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &h, s->half) == 0 ? 0 : -errno;
}

/* Async-signal-safe. */
static int
caps_set(const struct sets *s)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capset, &h, s->half) == 0 ? 0 : -errno;
}

uint64_t
kd_caps_have(void)
{
	struct sets s;

	return caps_get(&s) == 0 ? s.half[0].permitted | (uint64_t)s.half[1].permitted << 32 : 0;
}

uint64_t
kd_caps_ambient(void)
{
	uint64_t all = 0;
	int cap;

	for (cap = 0; cap < 64; cap++)
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1)
			all |= BIT(cap);
	return all;
}

int
kd_caps_hand_over(uint64_t keep)
{
	struct sets s;
	int rc = caps_get(&s), i, cap;

	for (i = 0; i < 2; i++)
		s.half[i].inheritable = (uint32_t)(keep >> (32 * i));
	if (rc == 0)
		rc = caps_set(&s);
	if (rc == 0 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
		rc = -errno;
	for (cap = 0; rc == 0 && cap < 64; cap++)
		if ((keep & BIT(cap)) != 0 &&
			prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) != 0)
			rc = -errno;
	return rc;
}

int
kd_caps_raise(void)
{
	struct sets s;
	int i, rc = caps_get(&s);

	for (i = 0; i < 2; i++)
		s.half[i].effective = s.half[i].permitted;
	return rc == 0 ? caps_set(&s) : rc;
}

/* --- all threads --- */

/* At file scope because a signal handler has no argument. */
static uint64_t kept;
static _Atomic int fault;

static void
caps_drop(int signo)
{
	int saved = errno, rc, i;
	struct sets s;

	(void)signo;
	rc = caps_get(&s);
	for (i = 0; i < 2; i++) {
		s.half[i].permitted &= (uint32_t)(kept >> (32 * i));
		s.half[i].effective &= (uint32_t)(kept >> (32 * i));
		/* a capability that is not inheritable is not ambient either */
		s.half[i].inheritable = 0;
	}
	if (rc == 0)
		rc = caps_set(&s);
	/* relaxed: it orders no other accesses */
	if (rc != 0)
		atomic_store_explicit(&fault, rc, memory_order_relaxed);
	errno = saved;
}

/* Does thread @tid have more capabilities than allowed, or a pending signal (*pending)?  A thread
 * that has ended has neither. */
static bool
has_more(const char *tid, bool *pending)
{
	unsigned long long v;
	char path[64], line[256];
	bool more = false;
	FILE *f;

	*pending = false;
	snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", tid);
	f = fopen(path, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "CapPrm: %llx", &v) == 1 || sscanf(line, "CapEff: %llx", &v) == 1)
			more |= (v & ~kept) != 0;
		else if (sscanf(line, "CapInh: %llx", &v) == 1)
			more |= v != 0;
		else if (sscanf(line, "SigPnd: %llx", &v) == 1)
			*pending = (v & BIT(SIGSETXID - 1)) != 0;
	if (f != NULL)
		fclose(f);
	return more;
}

/* Interrupts all threads that have too many capabilities and no pending signal.  @return the number
 * of threads that have too many or a pending signal, or -errno. */
static int
interrupt_all(char *last, size_t len)
{
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *d;
	bool pending;
	int n = 0;

	if (dir == NULL)
		return -errno;
	while ((d = readdir(dir)) != NULL)
		if (d->d_name[0] != '.' && (has_more(d->d_name, &pending) || pending)) {
			n++;
			snprintf(last, len, "%.20s", d->d_name);
			if (!pending)
				syscall(SYS_tgkill, getpid(), atoi(d->d_name), SIGSETXID);
		}
	closedir(dir);
	return n;
}

static time_t
caps_seconds(void)
{
	return (time_t)(kd_clock_ns() / 1000000000);
}

/* Ends when two passes in a row find no thread with too many: a thread that was created during the
 * first pass, by a thread that had too many, is found by the second. */
static int
drop_all(unsigned int within_s)
{
	const struct timespec pause = {.tv_nsec = TRY_NS};
	const time_t until = caps_seconds() + (time_t)within_s;
	char last[32] = "";
	int n, clean = 0, rc;

	do {
		n = interrupt_all(last, sizeof(last));
		/* relaxed: as above */
		rc = n < 0 ? n : atomic_load_explicit(&fault, memory_order_relaxed);
		if (rc != 0) {
			karst_log(KARST_LOG_ERR, "giving up capabilities: %s", strerror(-rc));
			return rc;
		}
		clean = n == 0 ? clean + 1 : 0;
		if (clean == 2)
			return 0;
		if (n > 0)
			nanosleep(&pause, NULL);
	} while (caps_seconds() < until);
	karst_log(KARST_LOG_ERR, "thread %s keeps its capabilities", last);
	return -ETIMEDOUT;
}

int
kd_caps_keep(uint64_t keep, unsigned int within_s)
{
	const struct sigaction act = {.sa_handler = caps_drop, .sa_flags = SA_RESTART};
	uint8_t ours[KERNEL_BYTES], theirs[KERNEL_BYTES];
	struct sigaction old;
	int rc;

	kept = keep;
	/* Copies the kernel's form of the action from a signal that the C library allows to be
	 * set. */
	if (sigaction(SIGRTMAX, &act, &old) != 0)
		return -errno;
	if (syscall(SYS_rt_sigaction, SIGRTMAX, NULL, ours, MASK_BYTES) != 0 ||
		syscall(SYS_rt_sigaction, SIGSETXID, ours, theirs, MASK_BYTES) != 0) {
		rc = -errno;
		sigaction(SIGRTMAX, &old, NULL);
		return rc;
	}
	rc = drop_all(within_s);
	/* If a thread has not responded, its signal is still pending, and would call the C
	 * library's handler.  So that handler is restored only on success; after a failure the
	 * daemon ends and does not need it. */
	if (rc == 0)
		syscall(SYS_rt_sigaction, SIGSETXID, theirs, NULL, MASK_BYTES);
	sigaction(SIGRTMAX, &old, NULL);
	return rc;
}
