/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * An lcore that blocks in the middle of a turn.  No program is known that could still cause that
 * (its memory is mapped with all its pages, or copied by threads that may wait), so the test does
 * it itself.  Like a debugger, it takes a page of a program's memory from the thread that drives
 * the lcore, and leaves the thread stopped at the instruction that accesses the page.
 *
 * One attachment writes into the memory of another, which never sends anything, not even an
 * acknowledgement.  When the lcore is stopped while it reads for the first one, it has to eject the
 * first one, and when it is stopped while it writes for the second, the second; the other one must
 * not be affected.  The next program of that user is copied.
 *
 * The same with the doorbells of the first one, which an lcore reads in every turn.  A program that
 * was ejected for that, and stays attached, has no doorbells any more: the lcore does not read them
 * again.  That also holds for a program that was ejected before, for another reason.
 */
#include "hostile.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES       65536u
#define TICKS       20
#define LOOKS       20      /* checks whether it stays away by now */
#define INSTRUCTION 0x050fl /* "syscall", as it is in memory */

/* In report.word. */
enum {
	MEM_OF_SENDER,
	MEM_OF_RECEIVER,
	BELL_OF_SENDER,
	SENDER_EJECTED,
	RECEIVER_EJECTED,
	SLOWLY /* the sender rings slowly */
};

/* --- two attachments of one process --- */

/* The device has failed, which is all that an ejected program learns. */
static bool
is_ejected(const struct end *e)
{
	struct pollfd p = {.fd = e->ctx->async_fd, .events = POLLIN};
	struct karst_async_event ev;
	bool fatal = false;

	while (poll(&p, 1, 0) == 1 && karst_get_async_event(e->ctx, &ev) == 0) {
		fatal |= ev.event == KARST_EVENT_DEVICE_FATAL;
		karst_ack_async_event(&ev);
	}
	return fatal;
}

/* The next cell of the doorbell ring: the lcore reads it in every turn. */
static uintptr_t
next_cell(const struct karst_qp *qp)
{
	const struct karst_bell_cell *cell = (const struct karst_bell_cell *)(qp->bell + 1);

	return (uintptr_t)&cell[atomic_load(&qp->bell->tail) & qp->bell_mask];
}

static void
programs(struct report *r, void *arg)
{
	struct karst_cqe cqe[16];
	struct end a, b;

	if (end_open(&a, arg, "sender", BYTES, false) != 0 ||
		end_open(&b, arg, "receiver", BYTES, false) != 0 || end_qp(&a, KARST_QPT_UC) != 0 ||
		end_qp(&b, KARST_QPT_UC) != 0 || end_connect(&b, a.qp->qp_num) != 0 ||
		end_connect(&a, b.qp->qp_num) != 0)
		child_fail(r, "attaching: %s", karst_why());
	atomic_store(&r->word[MEM_OF_SENDER], (uintptr_t)a.mem);
	atomic_store(&r->word[MEM_OF_RECEIVER], (uintptr_t)b.mem);
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->stop)) {
		/* so that the next cell is on the same page for long */
		if (atomic_load(&r->word[SLOWLY]) != 0) {
			atomic_store(&r->word[BELL_OF_SENDER], next_cell(a.qp));
			sleep_ms(100);
		}
		while (end_post(&a, KARST_WR_RDMA_WRITE, 0, 0, BYTES, &b, 0) == 0)
			;
		if (karst_poll_cq(a.cq, KARST_DIM(cqe), cqe) <= 0)
			sleep_ms(0);
		atomic_fetch_add(&r->word[SENDER_EJECTED], is_ejected(&a));
		atomic_fetch_add(&r->word[RECEIVER_EJECTED], is_ejected(&b));
	}
	_exit(0);
}

/* --- where a process has mapped what another one has --- */

struct spot {
	char file[32]; /* device and inode */
	uint64_t off;
};

/* Parses a line of /proc/PID/maps. */
static bool
parse(const char *line, uint64_t *from, uint64_t *to, uint64_t *off, char file[32])
{
	char device[12], inode[16];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %11s %15s", from, to, off, device,
		    inode) != 5)
		return false;
	snprintf(file, 32, "%s %s", device, inode);
	return true;
}

/* Finds what is mapped at @addr (fills in @s), or, if @addr is 0, where @s is mapped.  @return the
 * address */
static uint64_t
look_up(pid_t pid, uint64_t addr, struct spot *s)
{
	char path[64], line[512], file[32];
	uint64_t from, to, off, found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "r");
	while (f != NULL && found == 0 && fgets(line, sizeof(line), f) != NULL) {
		if (!parse(line, &from, &to, &off, file))
			continue;
		if (addr != 0 && addr >= from && addr < to) {
			found = addr;
			s->off = off + addr - from;
			memcpy(s->file, file, sizeof(file));
		} else if (addr == 0 && strcmp(file, s->file) == 0 && s->off >= off &&
			s->off < off + to - from) {
			found = from + s->off - off;
		}
	}
	if (f != NULL)
		fclose(f);
	return found;
}

/* --- the lcore's thread --- */

static long
ran(const struct host *h, const char *task, bool *drives)
{
	unsigned long user = 0, kernel = 0;
	char path[320], text[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)h->pid, task);
	f = fopen(path, "r");
	if (f == NULL || fgets(text, sizeof(text), f) == NULL)
		text[0] = '\0';
	if (f != NULL)
		fclose(f);
	*drives = strstr(text, "(karst-lcore-0)") != NULL &&
		sscanf(strrchr(text, ')') + 1,
			" %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu", &user,
			&kernel) == 2;
	return (long)(user + kernel);
}

/* The thread that has run, for long enough to tell: no copy is made here that another thread would
 * take over. 0: none yet. */
static pid_t
find_driver(const struct host *h)
{
	const struct dirent *d;
	char path[64];
	long most = TICKS;
	pid_t tid = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)h->pid);
	dir = opendir(path);
	while (dir != NULL && (d = readdir(dir)) != NULL) {
		bool drives;
		long n = ran(h, d->d_name, &drives);

		if (!drives || n <= most)
			continue;
		most = n;
		tid = (pid_t)strtol(d->d_name, NULL, 10);
	}
	if (dir != NULL)
		closedir(dir);
	return tid;
}

/* Where an ELF program begins: code that is not executed again after the start. */
static uint64_t
entry(pid_t pid)
{
	unsigned long pair[2];
	uint64_t at = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/auxv", (int)pid);
	f = fopen(path, "re");
	while (f != NULL && at == 0 && fread(pair, sizeof(pair), 1, f) == 1)
		if (pair[0] == AT_ENTRY)
			at = pair[1];
	if (f != NULL)
		fclose(f);
	return at;
}

/* Makes thread @tid of @pid, which is stopped, set the protection of the page of @addr to @prot,
 * and restores the thread's registers. */
static bool
protect(pid_t pid, pid_t tid, uint64_t addr, int prot)
{
	const uint64_t at = entry(pid), page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct user_regs_struct before, call;
	long result = -1, code;

	errno = 0;
	code = ptrace(PTRACE_PEEKTEXT, tid, at, NULL);
	if (errno != 0 || ptrace(PTRACE_GETREGS, tid, NULL, &before) != 0)
		return false;
	call = before;
	call.rip = at;
	call.rax = SYS_mprotect;
	/* the interrupted system call is restarted afterwards, not here */
	call.orig_rax = ~0ull;
	call.rdi = addr & ~(page - 1);
	call.rsi = page;
	call.rdx = (unsigned int)prot;
	if (ptrace(PTRACE_POKETEXT, tid, at, (code & ~0xffffl) | INSTRUCTION) == 0 &&
		ptrace(PTRACE_SETREGS, tid, NULL, &call) == 0 &&
		ptrace(PTRACE_SINGLESTEP, tid, NULL, NULL) == 0 &&
		waitpid(tid, NULL, __WALL) == tid && ptrace(PTRACE_GETREGS, tid, NULL, &call) == 0)
		result = (long)call.rax;
	return ptrace(PTRACE_POKETEXT, tid, at, code) == 0 &&
		ptrace(PTRACE_SETREGS, tid, NULL, &before) == 0 && result == 0;
}

static void
let_go(pid_t pid, pid_t tid, uint64_t addr)
{
	protect(pid, tid, addr, PROT_READ | PROT_WRITE);
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
}

/* Stops thread @tid of @pid when it next accesses the page of @addr, until let_go(). */
static bool
stop_at(pid_t pid, pid_t tid, uint64_t addr, bool writes)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	pid_t got = 0;
	int status = 0;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0 ||
		ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0 ||
		waitpid(tid, NULL, __WALL) != tid ||
		!protect(pid, tid, addr, writes ? PROT_READ : PROT_NONE) ||
		ptrace(PTRACE_CONT, tid, NULL, NULL) != 0) {
		note("to protect a page for thread %d of karstd: %s", (int)tid, strerror(errno));
		return false;
	}
	while ((got = waitpid(tid, &status, __WALL | WNOHANG)) == 0 && now_ms() < until)
		sleep_ms(1);
	if (got == tid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSEGV)
		return true;
	note("thread %d of karstd does not come by: status %d", (int)tid, status);
	if (got == 0 && ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0)
		waitpid(tid, NULL, __WALL);
	return false;
}

/* --- the case --- */

static bool
until_word(struct child *c, int word)
{
	uint64_t until = now_ms() + HANG_S * 1000;

	while (child_alive(c) && atomic_load(&c->report->word[word]) == 0 && now_ms() < until)
		sleep_ms(2);
	return atomic_load(&c->report->word[word]) != 0;
}

static bool
until_ejected(const struct host *h, long before)
{
	uint64_t until = now_ms() + HANG_S * 1000;

	while (now_ms() < until)
		if (host_ask(h, "/karst/lcores", "ejected_programs") > before)
			return true;
		else
			sleep_ms(20);
	note("nobody was ejected");
	return false;
}

/* If one program of a user was ejected, nothing of that user is mapped any more. */
static void
next(struct report *r, void *arg)
{
	struct end e;

	if (end_open(&e, arg, "next", BYTES, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	if (e.mr->copied_bytes != BYTES)
		child_fail(
			r, "%lu of %u bytes are copied", (unsigned long)e.mr->copied_bytes, BYTES);
	end_close(&e);
}

/* The program still exists, with its doorbell ring; but the lcore, which works for another program,
 * does not access the page of @addr. */
static bool
stays_away(const struct host *h, pid_t tid, uint64_t addr)
{
	struct child c;
	int status = 0;
	bool good;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0 ||
		ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0 ||
		waitpid(tid, NULL, __WALL) != tid || !protect(h->pid, tid, addr, PROT_NONE) ||
		ptrace(PTRACE_CONT, tid, NULL, NULL) != 0 ||
		!child_start(&c, next, (void *)(uintptr_t)h))
		return false;
	while (child_alive(&c) && waitpid(tid, &status, __WALL | WNOHANG) == 0)
		sleep_ms(1);
	good = !WIFSTOPPED(status);
	if (!good)
		note("the lcore came by again");
	else if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0)
		waitpid(tid, NULL, __WALL);
	let_go(h->pid, tid, addr);
	return child_stop(&c, "the user's next program") && good;
}

static bool
log_has(const struct host *h, const char *words)
{
	char path[96], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", h->folder);
	f = fopen(path, "r");
	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
		found = strstr(line, words) != NULL;
	if (f != NULL)
		fclose(f);
	return found;
}

/* The lcore's thread; the programs must keep it busy meanwhile. 0: the programs have ended. */
static pid_t
until_driver(const struct host *h, struct child *c)
{
	pid_t tid;

	while ((tid = find_driver(h)) == 0 && child_alive(c))
		sleep_ms(20);
	return tid;
}

/* The address in karstd of what the programs report in word @whose, when they have reported it. 0:
 * they do not. */
static uint64_t
find_spot(const struct host *h, struct child *c, int whose)
{
	struct spot spot;

	if (!until_word(c, whose) ||
		look_up(c->pid, atomic_load(&c->report->word[whose]), &spot) == 0)
		return 0;
	return look_up(h->pid, 0, &spot);
}

/* The sender has been ejected, and now stops the lcore at its doorbells: no event tells when that
 * has been handled. */
static bool
then_bells(const struct host *h, struct child *c)
{
	uint64_t until = now_ms() + HANG_S * 1000, addr;
	pid_t tid = until_driver(h, c);
	int i;

	atomic_store(&c->report->word[SLOWLY], 1);
	addr = find_spot(h, c, BELL_OF_SENDER);
	if (tid == 0 || addr == 0 || !stop_at(h->pid, tid, addr, false))
		return false;
	while (!log_has(h, "at its doorbells") && now_ms() < until)
		sleep_ms(20);
	let_go(h->pid, tid, addr);
	for (i = 0; i < LOOKS; i++)
		if (stays_away(h, tid, addr))
			return true;
	return false;
}

/* Stops the lcore at the memory of @whose: exactly that program is ejected. */
static bool
stop_for(const struct host *h, struct child *c, int whose)
{
	static const char *const did[] = {"sent", "received", "looked at doorbells"};
	bool writes = whose == MEM_OF_RECEIVER, bell = whose == BELL_OF_SENDER;
	int guilty = writes ? RECEIVER_EJECTED : SENDER_EJECTED;
	int other = writes ? SENDER_EJECTED : RECEIVER_EJECTED;
	long before = host_ask(h, "/karst/lcores", "ejected_programs");
	pid_t tid = until_driver(h, c);
	uint64_t addr;
	bool good;

	/* not earlier: with an lcore that mostly sleeps it takes minutes to find which thread
	 * drives it */
	atomic_store(&c->report->word[SLOWLY], bell);
	addr = find_spot(h, c, whose);
	good = tid != 0 && addr != 0 && stop_at(h->pid, tid, addr, writes) &&
		until_ejected(h, before);
	let_go(h->pid, tid, addr);
	good = good && until_word(c, guilty);
	/* the next turns do not access that page any more */
	good = good && (!bell || stays_away(h, tid, addr));
	note("stopped as it %s: the sender was ejected %d times, the receiver %d times", did[whose],
		(int)atomic_load(&c->report->word[SENDER_EJECTED]),
		(int)atomic_load(&c->report->word[RECEIVER_EJECTED]));
	return good && atomic_load(&c->report->word[other]) == 0;
}

static bool
with_programs(const struct host *h, int whose)
{
	struct child c;
	bool good;

	if (!child_start(&c, programs, (void *)(uintptr_t)h))
		return false;
	good = until_word(&c, MEM_OF_RECEIVER) && stop_for(h, &c, whose) &&
		(whose != MEM_OF_SENDER || then_bells(h, &c));
	return child_stop(&c, "programs") && good;
}

/* Uses a karstd of its own, for that reason. */
static bool
once(const struct options *o, int whose)
{
	struct child c;
	struct host h;
	bool good;

	if (!host_up(&h, o->karstd))
		return false;
	good = with_programs(&h, whose) && child_start(&c, next, &h) &&
		child_stop(&c, "the user's next program");
	return host_end(&h, good);
}

bool
case_stuck(const struct options *o)
{
	return once(o, MEM_OF_RECEIVER) && once(o, MEM_OF_SENDER) && once(o, BELL_OF_SENDER);
}
