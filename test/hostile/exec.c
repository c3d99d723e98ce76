/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A user's program attaches, registers memory, forks without calling libkarst, and executes a
 * setuid program, which then is the process that attached.  The child still has the socket and the
 * rings.  It must not read or write a byte of the privileged program: not through regions from
 * before, not through new ones, with any access method.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec.h"

#define OWN    0x4f
#define FORGED 0x57

enum way { COPIED, ON_DEMAND, SHARED, WAYS };

static const char *const ways[WAYS] = {"copied", "on demand", "shared"};

struct plan {
	const struct host *host;
	char program[96]; /* path of the setuid copy */
	enum way way;
	bool before; /* registered before the program is executed; else afterwards */
};

/* --- the attacker's memory and queue pairs --- */

static void
map_own(struct report *r, void *at, int flags, int fd)
{
	void *p = mmap(at, EXEC_BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, fd, 0);

	if (p != at)
		child_fail(r, "mmap: %s", strerror(errno));
	memset(p, OWN, EXEC_BYTES);
}

static void
make_memory(struct report *r)
{
	int fd = memfd_create("own", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, EXEC_BYTES) != 0)
		child_fail(r, "memory file: %s", strerror(errno));
	map_own(r, EXEC_PRIVATE_AT, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	map_own(r, EXEC_SHARED_AT, MAP_SHARED, fd);
}

static int
register_way(struct end *e, enum way way, struct end *target)
{
	unsigned int access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE;

	*target = (struct end){.mem = way == SHARED ? EXEC_SHARED_AT : EXEC_PRIVATE_AT};
	if (way == ON_DEMAND)
		access |= KARST_ACCESS_ON_DEMAND;
	return karst_reg_mr(e->pd, target->mem, EXEC_BYTES, access, &target->mr);
}

/* Runs one request over a new connection between two queue pairs of @e; @return its status, or
 * -1. */
static int
request(struct report *r, const struct end *e, enum karst_wr_opcode op, const struct end *target)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	struct end a = *e, b = *e;
	struct karst_cqe cqe;
	int n = 0;

	/* once the session has failed nothing of this works any more, which is right */
	if (end_qp(&a, KARST_QPT_RC) != 0)
		return -1;
	if (end_qp(&b, KARST_QPT_RC) != 0 || end_connect(&a, b.qp->qp_num) != 0 ||
		end_connect(&b, a.qp->qp_num) != 0 ||
		end_post(&a, op, 1, 0, EXEC_BYTES, target, 0) != 0)
		return -1;
	while (n == 0 && now_ms() < until)
		n = karst_poll_cq(e->cq, 1, &cqe);
	if (n != 1)
		child_fail(r, "a request does not complete");
	karst_destroy_qp(a.qp);
	karst_destroy_qp(b.qp);
	return cqe.status;
}

static bool
all_are(const uint8_t *p, uint8_t value)
{
	return p[0] == value && memcmp(p, p + 1, EXEC_BYTES - 1) == 0;
}

/* Checks that a request works at all before the attack. */
static void
first_try(struct report *r, const struct end *e, const struct end *target)
{
	if (request(r, e, KARST_WR_RDMA_READ, target) != KARST_WC_SUCCESS || !all_are(e->mem, OWN))
		child_fail(r, "READ of own memory: %s", karst_why());
	memset(e->mem, FORGED, EXEC_BYTES);
	if (request(r, e, KARST_WR_RDMA_WRITE, target) != KARST_WC_SUCCESS ||
		!all_are(target->mem, FORGED))
		child_fail(r, "WRITE to own memory: %s", karst_why());
}

/* --- the attack --- */

/* libkarst keeps its rings from children; an attacker can undo that. */
static void
keep_rings(struct report *r)
{
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		uintptr_t from, to;

		if (strstr(line, "/memfd:karst") != NULL &&
			sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2)
			n += madvise((void *)from, to - from, MADV_DOFORK) == 0;
	}
	if (f != NULL)
		fclose(f);
	if (n == 0)
		child_fail(r, "no ring memory found");
}

static void
attack(struct report *r, struct end *e, struct end *target, const struct plan *plan)
{
	/* a refusal is right */
	if (!plan->before && register_way(e, plan->way, target) != 0)
		return;
	memset(e->mem, 0, EXEC_BYTES);
	request(r, e, KARST_WR_RDMA_READ, target);
	if (memchr(e->mem, EXEC_SECRET, EXEC_BYTES) != NULL)
		child_fail(r, "has read the privileged program's memory");
	memset(e->mem, FORGED, EXEC_BYTES);
	request(r, e, KARST_WR_RDMA_WRITE, target);
}

static void
execute(const char *program, const int in[2], const int out[2])
{
	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	execl(program, program, (char *)NULL);
	_exit(1);
}

static char
hear(int fd)
{
	char c = 0;

	return read(fd, &c, 1) == 1 ? c : 0;
}

static void
attacker(struct report *r, void *arg)
{
	const struct plan *plan = arg;
	struct end e, target = {0};
	int in[2], out[2];
	long child;
	char c;

	child_become_nobody(r);
	make_memory(r);
	if (end_open(&e, plan->host, "attacker", EXEC_BYTES, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	if (register_way(&e, plan->way, &target) != 0)
		child_fail(r, "registering: %s", karst_why());
	first_try(r, &e, &target);
	if (!plan->before && karst_dereg_mr(target.mr) != 0)
		child_fail(r, "deregistering: %s", karst_why());
	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		child_fail(r, "pipe: %s", strerror(errno));
	keep_rings(r);
	/* not fork(): no fork handlers run */
	child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (child != 0)
		execute(plan->program, in, out);
	close(in[0]);
	close(out[1]);
	if (hear(out[0]) != 'r')
		child_fail(r, "the privileged program did not start");
	attack(r, &e, &target, plan);
	c = write(in[1], "?", 1) == 1 ? hear(out[0]) : 0;
	if (c != 'k')
		child_fail(r,
			c == 'x' ? "has written the privileged program's memory"
				 : "the privileged program has died");
	atomic_store(&r->ready, true);
	/* its end ends the privileged program, and so the attempt */
	_exit(0);
}

/* @return false, after a note of the reason. */
static bool
one_attack(struct plan *plan, enum way way, bool before)
{
	struct child c;
	uint64_t until = now_ms() + 2 * HANG_S * 1000;
	bool good;

	plan->way = way;
	plan->before = before;
	if (!child_start(&c, attacker, plan))
		return false;
	while (child_alive(&c) && !atomic_load(&c.report->ready) && now_ms() < until)
		sleep_ms(5);
	good = atomic_load(&c.report->ready);
	if (!good)
		note("memory that is %s, registered %s: %s", ways[way],
			before ? "before" : "afterwards", c.report->fault);
	child_kill(&c);
	return good;
}

/* --- the case --- */

/* Makes a setuid copy of "privileged", which is in this program's folder. */
static bool
install(struct plan *plan)
{
	char own[256], from[300], cmd[512];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	struct statvfs fs;

	if (n <= 0)
		return false;
	own[n] = '\0';
	*strrchr(own, '/') = '\0';
	snprintf(from, sizeof(from), "%s/privileged", own);
	snprintf(plan->program, sizeof(plan->program), "%s/privileged", plan->host->folder);
	snprintf(cmd, sizeof(cmd), "cp '%s' '%s'", from, plan->program);
	if (system(cmd) != 0 || chmod(plan->host->folder, 0711) != 0 ||
		chmod(plan->host->sock, 0666) != 0 || chmod(plan->program, 04755) != 0 ||
		statvfs(plan->program, &fs) != 0) {
		note("%s: %s", plan->program, strerror(errno));
		return false;
	}
	if ((fs.f_flag & ST_NOSUID) == 0)
		return true;
	note("%s: its file system ignores setuid", plan->program);
	return false;
}

bool
case_exec(const struct options *o)
{
	struct plan plan;
	struct host h;
	bool good;
	int way;

	if (geteuid() != 0) {
		note("needs root, to install a setuid program");
		return false;
	}
	if (!host_up(&h, o->karstd))
		return false;
	plan.host = &h;
	good = install(&plan);
	for (way = 0; way < WAYS && good; way++)
		good = one_attack(&plan, (enum way)way, true) &
			one_attack(&plan, (enum way)way, false);
	unlink(plan.program);
	return host_end(&h, good);
}
