/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * POSIX lets signal handlers read, write, poll and close.  A handler that interrupts its own thread
 * while that thread holds one of our locks would wait for the lock for ever.  So a handler that the
 * program sets is called by a handler of this library.  If that one interrupts code that must not
 * be interrupted (ks_hold()), it saves the signal, lets the thread's signals be blocked when it
 * returns, and the signal is sent again as soon as it may come (ks_release()).  This costs no
 * system call on the data path.
 *
 * So no handler runs while a lock is held, and none that leaves by longjmp() leaves a lock behind.
 * Signals that the processor causes (SIGSEGV and the like) cannot be deferred, nor can signals
 * whose handlers were set without the C library's functions: neither is changed.
 *
 * A handler that runs inside a call of this library, just before the call waits in the kernel, does
 * not end that wait, although the program may rely on it.  So handlers are counted, and a call that
 * is about to wait checks whether one has run since it began.
 *
 * A handler that leaves by siglongjmp() also leaves the call that it has interrupted.  What the
 * call has beyond references to connections, it gives back in cleanups of its own, or it holds
 * signals.
 */
#include "ks.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define SIGNALS   65
#define SET_BYTES 8 /* size of the kernel's set of signals */

/* The signals that the processor causes, and two of the C library's, which the program does not
 * see. */
#define BIT(sig) (1ull << ((sig)-1))
#define NEVER                                                                                  \
	(BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGSYS) | \
		BIT(SIGABRT) | BIT(32) | BIT(33))

_Static_assert(sizeof(void (*)(int)) == sizeof(void *), "handlers of both kinds in one place");

__thread struct ks_held ks_held;

/* The deferred signal.  There is only one, because all signals are blocked from then on. */
static __thread struct {
	int sig;
	siginfo_t info;
	uint64_t mask; /* the thread's mask before */
} late_signal;

/* The program's handlers, at file scope because handlers have no argument for it. */
static struct {
	_Atomic(void *) handler;
	_Atomic int flags;
} actions[SIGNALS];

/* A handler has interrupted a call that has references of connections, and leaves by siglongjmp(),
 * or ends the thread.  The call does not continue. */
static void
put_left(void *arg)
{
	uint32_t base = *(const uint32_t *)arg;

	ks_hold();
	ks_put_after(base);
	ks_held.ref_base = base;
	ks_release();
}

static uintptr_t
interrupted_at(const ucontext_t *uc)
{
#if defined(__x86_64__)
	return (uintptr_t)uc->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
	return uc->uc_mcontext.sp;
#else
	(void)uc;
	return 0;
#endif
}

/* The C library finds the cleanups that siglongjmp() leaves by their place on the stack, and takes
 * each stack but the thread's own for one that is below that.  So it may not find them if the
 * handler has a stack which is a part of the thread's own, for example an array of main().  The
 * thread's variables are above its own stack; those of the first thread are below it. */
static bool
is_in_own_stack(const ucontext_t *uc)
{
	uintptr_t at = (uintptr_t)__builtin_frame_address(0), low = (uintptr_t)uc->uc_stack.ss_sp;
	uintptr_t before = interrupted_at(uc), top = (uintptr_t)&ks_held;

	if (at - low >= uc->uc_stack.ss_size)
		return false;
	if (before - low < uc->uc_stack.ss_size) /* of which stack that is part is not known */
		return true;
	return low > before && (top < before || low < top);
}

static void
call_handler(void (*handler)(int, siginfo_t *, void *), int sig, siginfo_t *info, void *context)
{
	struct _pthread_cleanup_buffer left;
	uint32_t base = ks_held.ref_base;

	if (ks_held.nrefs == base || is_in_own_stack(context)) {
		handler(sig, info, context);
		return;
	}
	_pthread_cleanup_push(&left, put_left, &base);
	ks_held.ref_base = ks_held.nrefs;
	handler(sig, info, context);
	ks_held.ref_base = base;
	_pthread_cleanup_pop(&left, 0);
}

static void
call(int sig, siginfo_t *info, void *context)
{
	void (*handler)(int, siginfo_t *, void *);
	const struct sigaction none = {.sa_handler = SIG_DFL};
	int flags = atomic_load(&actions[sig].flags);
	uint32_t calls;
	int type;

	*(void **)&handler = atomic_load(&actions[sig].handler);
	if (flags & (int)SA_RESETHAND)
		(void)real(sigaction)(sig, &none, NULL);
	ks_held.handled++;
	if ((flags & SA_RESTART) == 0)
		ks_held.ended++;
	type = ks_defer_leave();
	calls = ks_no_cancel_leave();
	call_handler(handler, sig, info, context);
	ks_no_cancel_return(calls);
	ks_defer_return(type); /* last: the thread may be cancelled here */
}

static void
on_signal(int sig, siginfo_t *info, void *context)
{
	/* the kernel's set is shorter than a sigset_t */
	uint64_t *mask = (uint64_t *)(void *)&((ucontext_t *)context)->uc_sigmask;

	if (ks_held.depth == 0) {
		call(sig, info, context);
		return;
	}
	late_signal.sig = sig;
	late_signal.info = *info;
	late_signal.mask = *mask;
	*mask = ~NEVER;
	ks_held.late = true;
}

static void
deliver(void)
{
	uint64_t mask = late_signal.mask;
	int err = errno;

	ks_held.late = false;
	/* the signal stays pending, because it is blocked; if the kernel has no room for its data,
	 * it is sent without */
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), late_signal.sig,
		    &late_signal.info) != 0)
		(void)syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), late_signal.sig);
	(void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, SET_BYTES);
	errno = err;
}

void
ks_held_end(void)
{
	if (ks_held.late)
		deliver();
	if (ks_held.async)
		ks_defer_end();
}

void
ks_drop_late(void)
{
	if (ks_held.late)
		(void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &late_signal.mask, NULL, SET_BYTES);
	ks_held.late = false;
}

/* --- what programs call --- */

static bool
is_function(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN &&
		act->sa_handler != SIG_ERR;
}

static bool
is_ours(const struct sigaction *act)
{
	return (act->sa_flags & SA_SIGINFO) && act->sa_sigaction == on_signal;
}

/* Replaces our handler in @act by the one that the program has set. */
static void
show(struct sigaction *act, void *handler, int flags)
{
	const int kept = SA_SIGINFO | (int)SA_RESETHAND;

	if (!is_ours(act))
		return;
	memcpy(&act->sa_handler, &handler, sizeof(handler));
	act->sa_flags = (act->sa_flags & ~kept) | (flags & kept);
}

/* Not in the child of vfork(), which shares this memory but has signal handlers of its own. */
static bool
may_defer(int sig, const struct sigaction *act)
{
	return act != NULL && is_function(act) && (NEVER & BIT(sig)) == 0 && ks_is_ours();
}

KS_API int
sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	bool known = sig > 0 && sig < SIGNALS;
	void *handler = known ? atomic_load(&actions[sig].handler) : NULL, *new;
	int flags = known ? atomic_load(&actions[sig].flags) : 0, rc;
	struct sigaction ours;

	if (known && may_defer(sig, act)) {
		ours = *act;
		ours.sa_sigaction = on_signal;
		ours.sa_flags = (act->sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
		memcpy(&new, &act->sa_handler, sizeof(new));
		atomic_store(&actions[sig].flags, act->sa_flags);
		atomic_store(&actions[sig].handler, new);
		act = &ours;
	}
	rc = real(sigaction)(sig, act, old);
	if (rc == 0 && old != NULL)
		show(old, handler, flags);
	return rc;
}

/* The functions that set a handler by the signal's number alone set flags of their own, which are
 * kept. */
static ks_handler
set_by(ks_handler (*set)(int, ks_handler), int sig, ks_handler handler)
{
	bool known = sig > 0 && sig < SIGNALS;
	void *before = known ? atomic_load(&actions[sig].handler) : NULL;
	ks_handler old = set(sig, handler);
	struct sigaction act;

	if (old == SIG_ERR)
		return old;
	if (known && real(sigaction)(sig, NULL, &act) == 0 && !is_ours(&act) &&
		may_defer(sig, &act))
		(void)sigaction(sig, &act, NULL);
	if (memcmp(&old, &(void (*)(int, siginfo_t *, void *)){on_signal}, sizeof(old)) == 0)
		memcpy(&old, &before, sizeof(old));
	return old;
}

KS_API ks_handler
signal(int sig, ks_handler handler)
{
	return set_by(real(signal), sig, handler);
}

ks_handler bsd_signal(int sig, ks_handler handler);
ks_handler __sysv_signal(int sig, ks_handler handler);

KS_API ks_handler
bsd_signal(int sig, ks_handler handler)
{
	return set_by(real(signal), sig, handler);
}

KS_API ks_handler
ssignal(int sig, ks_handler handler)
{
	return set_by(real(signal), sig, handler);
}

KS_API ks_handler
sysv_signal(int sig, ks_handler handler)
{
	return set_by(real(sysv_signal), sig, handler);
}

KS_API ks_handler
__sysv_signal(int sig, ks_handler handler)
{
	return set_by(real(sysv_signal), sig, handler);
}

KS_API ks_handler
sigset(int sig, ks_handler handler)
{
	return set_by(real(sigset), sig, handler);
}

/* The C library changes the flags of the kernel's handler, which is ours. */
KS_API int
siginterrupt(int sig, int interrupts)
{
	int rc = real(siginterrupt)(sig, interrupts);

	if (rc == 0 && interrupts)
		atomic_fetch_and(&actions[sig].flags, ~SA_RESTART);
	else if (rc == 0)
		atomic_fetch_or(&actions[sig].flags, SA_RESTART);
	return rc;
}
