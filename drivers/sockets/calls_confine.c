/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs that confine themselves with a filter of system calls, set by prctl() or seccomp(), for
 * example sshd's child before the login.  Such a filter allows what the program does with its
 * sockets, perhaps read() and write().  This library uses other system calls instead, for which the
 * filter would end the program.
 *
 * Therefore a few instructions are put in front of the filter.  They allow, in this process, on the
 * descriptors that are connections at that time and on those that wake their peers, what read(),
 * write() and poll() may need here; and messages to the service, on the one descriptor of its
 * socket.  The program's own filter decides about everything else.  If the program has no
 * connections, its filter is set unchanged.
 *
 * Whatever it has, connections that the process makes later stay on TCP, also if it has begun to
 * connect before: SMC-R would need calls that the filter of a program for TCP does not allow
 * (bpf(), messages with descriptors, mmap()).
 * From then on, a process without connections makes no system calls but its own.
 *
 * A program may also be started with a filter, for example by systemd (SystemCallFilter=).  Filters
 * of programs cannot be read.  So when the program begins, a child process makes the system calls
 * of SMC-R.  If the filter ends the child, or a call fails, the program's connections stay on TCP.
 * This takes a fraction of a millisecond, and each program tries for itself: its environment may
 * come from one whose filters were others.
 */
#include "ks.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX   64u /* limit of connections and wakers; beyond it the filter is not changed */
#define AGREED_MS 2000
#define GATE_MS   5    /* how long the gate is closed at first; each time twice as long */
#define ON_FDS    6u   /* number of rules that compare each of them */
#define OTHERS    100u /* instructions of all other rules, and of the beginnings of these */
static_assert(ON_FDS * 2 * FDS_MAX + OTHERS < BPF_MAXINSNS, "what we allow has room");

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#define NATIVE 0 /* matches no system: nothing is allowed */
#endif

struct filter {
	struct sock_filter code[BPF_MAXINSNS];
	unsigned int n;
	unsigned int leave[8]; /* jumps to the end of a rule, whose length is not known yet */
	unsigned int nleave;
};

/* At file scope: the calls of programs have no argument for it. */
static _Atomic bool confined;
/* A filter was set without our rules, so it may refuse any call that they would allow. */
static _Atomic bool unruled;
/* Of the memory for a filter (set_with_ours()).  A lock of this kind waits by system calls that our
 * rules allow, which those of a mutex are not. */
static struct karst_sock_lock place_lock;
/* Connections that threads are opening, and which the table will have soon. */
static _Atomic uint32_t opening;
/* The gate: a thread that sets a filter has it while no other thread may begin to open a
 * connection.  Those may have the lock of sock.c for sockets that have connected, which therefore
 * must not be taken meanwhile. */
static struct karst_sock_lock gate;

bool
ks_is_confined(void)
{
	return atomic_load_explicit(&confined, memory_order_relaxed);
}

void
ks_confine_open_begin(void)
{
	(void)ks_lock_page(&gate);
	atomic_fetch_add(&opening, 1);
	ks_unlock_page(&gate);
}

void
ks_confine_open_end(void)
{
	atomic_fetch_sub(&opening, 1);
}

/* --- instructions --- */

static void
put(struct filter *f, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
	f->code[f->n++] = (struct sock_filter){code, yes, no, k};
}

static void
load(struct filter *f, size_t offset)
{
	put(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* The rest of the rule applies only to this value. */
static void
only(struct filter *f, uint32_t value)
{
	put(f, BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
	f->leave[f->nleave++] = f->n;
	put(f, BPF_JMP | BPF_JA, 0, 0, 0);
}

static void
only_arg(struct filter *f, unsigned int arg, uint32_t value)
{
	size_t low = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0;

	load(f, offsetof(struct seccomp_data, args) + arg * 8 + low);
	only(f, value);
}

static void
begin(struct filter *f, int call)
{
	load(f, offsetof(struct seccomp_data, nr));
	only(f, (uint32_t)call);
}

static void
end(struct filter *f)
{
	while (f->nleave > 0) {
		unsigned int at = f->leave[--f->nleave];

		f->code[at].k = f->n - at - 1;
	}
}

static void
allow(struct filter *f)
{
	put(f, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	end(f);
}

/* Allows the call if its first argument is one of @fds. */
static void
allow_on(struct filter *f, const int *fds, unsigned int n)
{
	load(f, offsetof(struct seccomp_data, args));
	for (unsigned int i = 0; i < n; i++) {
		put(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)fds[i], 0, 1);
		put(f, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	}
	end(f);
}

/* --- what is allowed --- */

static void
allow_call(struct filter *f, int call)
{
	begin(f, call);
	allow(f);
}

static void
allow_bytes(struct filter *f, const int *fds, unsigned int n)
{
	begin(f, SYS_recvfrom);
	allow_on(f, fds, n);
	begin(f, SYS_sendto);
	only_arg(f, 4, 0); /* no destination address */
	only_arg(f, 5, 0);
	allow_on(f, fds, n);
	begin(f, SYS_shutdown);
	allow_on(f, fds, n);
	begin(f, SYS_getsockopt); /* time limits */
	allow_on(f, fds, n);
	begin(f, SYS_setsockopt); /* the number of bytes that fill the pair */
	only_arg(f, 1, SOL_SOCKET);
	only_arg(f, 2, SO_SNDBUF);
	allow_on(f, fds, n);
	begin(f, SYS_fcntl);
	only_arg(f, 1, F_GETFL);
	allow_on(f, fds, n);
}

static void
allow_waiting(struct filter *f)
{
	static const int calls[] = {
#ifdef SYS_poll
		SYS_poll,
#endif
		SYS_ppoll, SYS_sched_yield, SYS_clock_gettime, SYS_getpid, SYS_gettid};

	for (unsigned int i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		allow_call(f, calls[i]);
	begin(f, SYS_futex); /* of locks that processes share */
	only_arg(f, 1, FUTEX_WAIT);
	allow(f);
	begin(f, SYS_futex);
	only_arg(f, 1, FUTEX_WAKE);
	allow(f);
	begin(f, SYS_tkill); /* to check whether the owner of a lock lives: no signal is sent */
	only_arg(f, 1, 0);
	allow(f);
	begin(f, SYS_tgkill); /* SIGPIPE, to itself */
	only_arg(f, 0, (uint32_t)getpid());
	only_arg(f, 2, SIGPIPE);
	allow(f);
	begin(f, SYS_rt_tgsigqueueinfo); /* a deferred signal, and its mask */
	only_arg(f, 0, (uint32_t)getpid());
	allow(f);
	allow_call(f, SYS_rt_sigprocmask);
}

static void
allow_service(struct filter *f)
{
	int fd = ks_service_fd();

	if (fd < 0)
		return;
	begin(f, SYS_sendmsg);
	allow_on(f, &fd, 1);
	begin(f, SYS_recvmsg);
	allow_on(f, &fd, 1);
}

/* --- the call --- */

/* What our rules are for. */
struct known {
	int fds[FDS_MAX];   /* the connections and the wakers */
	unsigned int n;     /* how many there are, which may be more than FDS_MAX */
	uint32_t additions; /* ks_additions() before they were listed */
	bool connecting;    /* of one of them it is not known yet what was agreed on */
	uint64_t began;     /* 0: the clock was not read yet */
	uint64_t pass_end;  /* when the gate has to be opened; 0: it is open */
};

/* Reads the clock only where there is something to wait for: it may be a system call, which an
 * earlier filter of a program without connections need not allow. */
static bool
is_in_time(struct known *k)
{
	if (k->began == 0)
		k->began = ks_now();
	return ks_now() - k->began < AGREED_MS * 1000000ull;
}

static bool
may_wait(struct known *k)
{
	return is_in_time(k) && (k->pass_end == 0 || ks_now() < k->pass_end);
}

/* Waits, for at most AGREED_MS, until the kind of each connection has been agreed on, and gets the
 * rings and the wakers. */
static void
prepare(struct known *k)
{
	unsigned int n;

	k->additions = ks_additions();
	k->connecting = false;
	n = ks_list(k->fds, FDS_MAX);
	for (unsigned int i = 0; i < n && i < FDS_MAX; i++) {
		struct ks_sock *s = ks_get(k->fds[i]);

		if (s == NULL)
			continue;
		while (atomic_load(&s->page->state) == KARST_SOCK_CONNECTING && may_wait(k))
			(void)ks_poll_with(s, NULL, 0, 1);
		k->connecting |= atomic_load(&s->page->state) == KARST_SOCK_CONNECTING;
		ks_need_rings(k->fds[i], s); /* so that they are mapped */
		ks_meet_peer(k->fds[i], s);
		ks_put(s);
	}
	k->n = n > 0 ? ks_list(k->fds, FDS_MAX) : 0;
}

/* Whether another thread has opened a connection since they were listed, or is about to; or this
 * one has, by prepare(), got a waker; or the gate was not closed long enough. */
static bool
is_old(struct known *k)
{
	return (k->connecting || atomic_load(&opening) != 0 || ks_additions() != k->additions) &&
		is_in_time(k);
}

/* Whether the @bytes of the program's memory can be read, at least 8.  The kernel copies a set of
 * signals, of 8 bytes, before it refuses the operation -1 (EINVAL).  This system call is one that
 * our rules allow, so an earlier filter of the program that has them in front does not refuse it.
 * If one has not, nothing is checked. */
static bool
is_readable(const void *mem, size_t bytes)
{
	const size_t set = 8, page = 4096; /* the smallest of any system */
	const int err = errno;
	bool readable = mem != NULL; /* which means no set in this system call */

	if (atomic_load(&unruled))
		return readable;
	for (size_t at = 0; readable && at < bytes; at += page) {
		(void)syscall(SYS_rt_sigprocmask, -1, (const char *)mem + at, NULL, set);
		readable = errno == EINVAL;
	}
	if (readable) {
		(void)syscall(SYS_rt_sigprocmask, -1, (const char *)mem + bytes - set, NULL, set);
		readable = errno == EINVAL;
	}
	errno = err;
	return readable;
}

/* Builds our filter, followed by @theirs.  False: that is too long, or cannot be read. */
static bool
build(struct filter *f, const int *fds, unsigned int n, const struct sock_fprog *theirs)
{
	unsigned int elsewhere;
	struct sock_fprog prog;

	if (!is_readable(theirs, sizeof(*theirs)))
		return false;
	prog = *theirs;
	if (prog.len == 0 || !is_readable(prog.filter, prog.len * sizeof(*prog.filter)))
		return false;
	load(f, offsetof(struct seccomp_data, arch));
	put(f, BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0);
	elsewhere = f->n;
	put(f, BPF_JMP | BPF_JA, 0, 0, 0);
	allow_bytes(f, fds, n);
	allow_waiting(f);
	allow_service(f);
	f->code[elsewhere].k = f->n - elsewhere - 1;
	if (f->n + prog.len > BPF_MAXINSNS)
		return false;
	memcpy(&f->code[f->n], prog.filter, prog.len * sizeof(f->code[0]));
	f->n += prog.len;
	return true;
}

/* How a filter is set: by prctl(), or by seccomp() with these flags. */
struct way {
	bool seccomp;
	unsigned int flags;
};

static long
set_filter(struct way way, const struct sock_fprog *filter)
{
	long rc = way.seccomp ? ks_seccomp(SECCOMP_SET_MODE_FILTER, way.flags, filter)
			      : real(prctl)(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0);

	/* otherwise an error, or a thread that cannot have the same filter */
	if (rc == 0 || (rc > 0 && (way.flags & SECCOMP_FILTER_FLAG_NEW_LISTENER) != 0))
		atomic_store(&confined, true);
	return rc;
}

enum outcome {
	SET,     /* or refused by the kernel */
	NOT_SET, /* both are too long together, or there is no filter that can be read */
	OLD,     /* nothing was done, because there are more connections: is_old() */
};

/* Sets the filter with our rules in front of it. */
static enum outcome
set_with_ours(struct way way, const struct sock_fprog *theirs, struct known *k, long *rc)
{
	/* not mmap(), which an earlier filter may forbid, nor malloc(), which the program may have
	 * replaced, or a handler have interrupted */
	static struct filter place;
	struct sock_fprog both;
	enum outcome is = NOT_SET;

	/* no handler, which may set a filter of its own, fork, or leave by longjmp() */
	(void)ks_lock_page(&place_lock);
	place.n = place.nleave = 0;
	(void)ks_service();
	if (build(&place, k->fds, k->n, theirs))
		is = is_old(k) ? OLD : SET; /* last */
	if (is == SET) {
		both = (struct sock_fprog){.len = (unsigned short)place.n, .filter = place.code};
		*rc = set_filter(way, &both);
	}
	ks_unlock_page(&place_lock);
	return is;
}

/* Behind the gate: a connection that a thread has begun to open before has been counted, and one
 * that it begins to open afterwards finds the filter. */
static enum outcome
try_to_set(struct way way, const struct sock_fprog *theirs, struct known *k, long *rc)
{
	enum outcome is;

	prepare(k);
	if (k->n == 0)
		is = is_old(k) ? OLD : NOT_SET;
	else
		is = k->n <= FDS_MAX ? set_with_ours(way, theirs, k, rc) : NOT_SET;
	if (is == NOT_SET) { /* last: their filter may refuse any system call */
		*rc = set_filter(way, theirs);
		if (*rc >= 0)
			atomic_store(&unruled, true);
	}
	return is;
}

/* Without waiting. */
static enum outcome
try_at_once(struct way way, const struct sock_fprog *theirs, struct known *k, long *rc)
{
	enum outcome is;

	(void)ks_lock_page(&gate);
	k->pass_end = 1;
	is = try_to_set(way, theirs, k, rc);
	k->pass_end = 0;
	ks_unlock_page(&gate);
	return is;
}

/* Waits for at most @ms: what this waits for may be done by a thread of the same program that waits
 * at the gate. */
static enum outcome
try_alone(struct way way, const struct sock_fprog *theirs, struct known *k, uint32_t ms, long *rc)
{
	enum outcome is;

	(void)ks_lock_page(&gate);
	k->pass_end = ks_now() + ms * 1000000ull;
	while (atomic_load(&opening) != 0 && may_wait(k))
		(void)real(poll)(NULL, 0, 1);
	do
		is = try_to_set(way, theirs, k, rc);
	while (is == OLD && may_wait(k));
	k->pass_end = 0;
	ks_unlock_page(&gate);
	return is;
}

static long
confine(struct way way, const struct sock_fprog *theirs)
{
	struct known k = {0};
	enum outcome is;
	long rc = -1;

	ks_no_cancel(); /* the thread may be one that is cancelled at any instruction */
	if (!ks_is_confined())
		for (int fd = -1; (fd = ks_next_connecting(fd + 1)) >= 0;)
			ks_settle(fd);
	is = try_at_once(way, theirs, &k, &rc);
	for (uint32_t ms = GATE_MS; is == OLD; ms *= 2) {
		(void)real(poll)(NULL, 0, 1); /* for those who have waited at the gate */
		is = try_alone(way, theirs, &k, ms, &rc);
	}
	ks_no_cancel_end();
	return rc;
}

long
ks_confine(unsigned int flags, const void *theirs)
{
	return confine((struct way){true, flags}, theirs);
}

/* The threads that used the memory, or opened connections, do not exist in the child. */
void
ks_confine_forked(void)
{
	atomic_store(&opening, 0);
	atomic_store(&gate.owner, 0);
	atomic_store(&place_lock.owner, 0);
}

/* --- a filter that was inherited --- */

/* False: the process has no filter. */
static bool
may_be_filtered(void)
{
	char buf[4096];
	const char *at;
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? real(read)(fd, buf, sizeof(buf) - 1) : 0;

	if (fd >= 0)
		real(close)(fd);
	if (n <= 0)
		return true;
	buf[n] = '\0';
	at = strstr(buf, "\nSeccomp:\t");
	/* NULL: e.g. behind very many groups */
	return at == NULL || atoi(at + strlen("\nSeccomp:\t")) == SECCOMP_MODE_FILTER;
}

/* Whether the call that has just returned @rc was allowed: a filter answers with one of these, and
 * these calls do not otherwise. */
static bool
is_allowed(long rc)
{
	return rc >= 0 ||
		(errno != EPERM && errno != EACCES && errno != ENOSYS && errno != EAFNOSUPPORT);
}

/* In the child.  Most arguments are invalid on purpose. */
static bool
try_sockets(void)
{
	struct timeval limit = {.tv_sec = 1};
	struct pollfd p = {.fd = -1};
	const struct timespec now = {0};
	char byte;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int other = real(fcntl64)(fd, F_DUPFD_CLOEXEC, 0);
	socklen_t len = sizeof(limit);

	return fd >= 0 && other >= 0 && is_allowed(real(dup3)(fd, other, O_CLOEXEC)) &&
		is_allowed(real(connect)(fd, NULL, 0)) &&
		is_allowed(real(setsockopt)(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit))) &&
		is_allowed(real(getsockopt)(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &len)) &&
		is_allowed(real(getpeername)(fd, NULL, NULL)) &&
		is_allowed(real(sendmsg)(fd, NULL, 0)) && is_allowed(real(recvmsg)(fd, NULL, 0)) &&
		is_allowed(real(send)(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL)) &&
		is_allowed(real(recv)(fd, &byte, 1, MSG_DONTWAIT)) &&
		is_allowed(real(shutdown)(fd, SHUT_RDWR)) &&
		is_allowed(real(fcntl64)(fd, F_GETFL)) &&
		is_allowed(real(fcntl64)(fd, F_SETFL, O_NONBLOCK)) &&
		is_allowed(real(epoll_ctl)(-1, EPOLL_CTL_ADD, fd, NULL)) &&
		is_allowed(real(poll)(&p, 1, 0)) && is_allowed(real(ppoll)(&p, 1, &now, NULL)) &&
		is_allowed(real(close)(other));
}

static bool
try_others(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t word = 0;
	uint64_t signals; /* the kernel's set */
	cpu_set_t set;
	struct rlimit limit;
	void *mem = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return mem != MAP_FAILED && is_allowed(madvise(mem, page, MADV_POPULATE_WRITE)) &&
		is_allowed(munmap(mem, page)) && is_allowed(syscall(SYS_bpf, -1, NULL, 0)) &&
		is_allowed(syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0)) &&
		is_allowed(syscall(SYS_tkill, syscall(SYS_gettid), 0)) &&
		is_allowed(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0)) &&
		is_allowed(
			syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), 0, NULL)) &&
		is_allowed(
			syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &signals, sizeof(signals))) &&
		is_allowed(sched_getaffinity(0, sizeof(set), &set)) &&
		is_allowed(getrlimit(RLIMIT_NOFILE, &limit)) && is_allowed(sched_yield()) &&
		is_allowed(geteuid());
}

/* In the child, first: if the filter ends it, it leaves no core.  Filters that allow what SMC-R
 * needs allow this sooner than to set a limit by the system call of getrlimit(). */
static void
set_no_core(void)
{
	(void)real(prctl)(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* Makes the calls in a child whose end is reported to nobody else.  @return whether all are
 * allowed */
static bool
try_calls(void)
{
	pid_t child = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0), rc;
	int status = -1;

	if (child == 0) {
		set_no_core();
		_exit(try_sockets() && try_others() ? 0 : 1);
	}
	if (child < 0)
		return false;
	do
		rc = waitpid(child, &status, __WALL);
	while (rc < 0 && errno == EINTR);
	return rc == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void
ks_confine_begin(void)
{
	int err = errno;

	if (may_be_filtered() && !try_calls())
		atomic_store(&confined, true);
	errno = err;
}

KS_API int
prctl(int option, ...)
{
	unsigned long a[4];
	va_list ap;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (option == PR_SET_SECCOMP && a[0] == SECCOMP_MODE_FILTER && a[1] != 0 && ks_is_ours())
		return (int)confine((struct way){false, 0}, (const struct sock_fprog *)a[1]);
	return real(prctl)(option, a[0], a[1], a[2], a[3]);
}
