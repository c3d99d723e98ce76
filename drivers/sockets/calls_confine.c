/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs that confine themselves with a filter of system calls, set by prctl(), for example
 * sshd's child before the login.  Such a filter allows what the program does with its sockets,
 * perhaps read() and write().  This library uses other system calls instead, for which the filter
 * would end the program.
 *
 * Therefore a few instructions are put in front of the filter.  They allow, in this process, on the
 * descriptors that are connections at that time and on those that wake their peers, what read(),
 * write() and poll() may need here; and messages to the service, on the one descriptor of its
 * socket.  The program's own filter decides about everything else.  If the program has no
 * connections, its filter is set unchanged.
 *
 * Whatever it has, connections that the process makes later stay on TCP: SMC-R would need calls
 * that the filter of a program for TCP does not allow (bpf(), messages with descriptors, mmap()).
 * From then on, a process without connections makes no system calls but its own.
 */
#include "ks.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FDS_MAX   64u /* limit of connections and wakers; beyond it the filter is not changed */
#define AGREED_MS 2000
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

bool
ks_is_confined(void)
{
	return atomic_load_explicit(&confined, memory_order_relaxed);
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
	begin(f, SYS_rt_tgsigqueueinfo); /* a deferred signal */
	only_arg(f, 0, (uint32_t)getpid());
	allow(f);
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

/* Waits, for at most AGREED_MS, until the kind of each connection has been agreed on, and gets the
 * rings and the wakers.  @fds: the connections and the wakers.
 * @return how many there are, which may be more than FDS_MAX */
static unsigned int
prepare(int *fds)
{
	uint64_t began = ks_now();
	unsigned int n = ks_list(fds, FDS_MAX);

	for (unsigned int i = 0; i < n && i < FDS_MAX; i++) {
		struct ks_sock *s = ks_get(fds[i]);

		if (s == NULL)
			continue;
		while (atomic_load(&s->page->state) == KARST_SOCK_CONNECTING &&
			ks_now() - began < AGREED_MS * 1000000ull)
			(void)real(poll)(NULL, 0, 1);
		ks_need_rings(fds[i], s); /* so that they are mapped */
		ks_meet_peer(fds[i], s);
		ks_put(s);
	}
	return n > 0 ? ks_list(fds, FDS_MAX) : 0;
}

/* Builds our filter, followed by @theirs.  False: that is too long. */
static bool
build(struct filter *f, const int *fds, unsigned int n, const struct sock_fprog *theirs)
{
	unsigned int elsewhere;

	load(f, offsetof(struct seccomp_data, arch));
	put(f, BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0);
	elsewhere = f->n;
	put(f, BPF_JMP | BPF_JA, 0, 0, 0);
	allow_bytes(f, fds, n);
	allow_waiting(f);
	allow_service(f);
	f->code[elsewhere].k = f->n - elsewhere - 1;
	if (f->n + theirs->len > BPF_MAXINSNS)
		return false;
	memcpy(&f->code[f->n], theirs->filter, theirs->len * sizeof(f->code[0]));
	f->n += theirs->len;
	return true;
}

static int
confine(const struct sock_fprog *theirs)
{
	int fds[FDS_MAX], rc;
	unsigned int n = prepare(fds);
	struct sock_fprog both = *theirs;
	/* malloc() may be replaced by the program, or interrupted */
	struct filter *f =
		mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (f == MAP_FAILED)
		return -1;
	if (n > 0 && n <= FDS_MAX && ks_service() && build(f, fds, n, theirs))
		both = (struct sock_fprog){.len = (unsigned short)f->n, .filter = f->code};
	else
		munmap(f, sizeof(*f)); /* now, because the filter may forbid it */
	rc = real(prctl)(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &both, 0, 0);
	if (rc == 0)
		atomic_store(&confined, true);
	else if (both.filter != theirs->filter)
		munmap(f, sizeof(*f));
	return rc;
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
		return confine((const struct sock_fprog *)a[1]);
	return real(prctl)(option, a[0], a[1], a[2], a[3]);
}
