/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst.h"
#include "karst_ctl_sock.h"
#include "late_file.h"
#include "memory.h"
#include "karst_vma.h"

#define HUGE  (2u << 20)
#define BIG   (300u * 1024)
#define SMALL 1000u

enum op {
	OP_MAKE,
	OP_REGISTER,
	OP_DEREGISTER,
	OP_FILL,
	OP_SHOWS,
	OP_MUNMAP,
	OP_TRUNCATE,
	OP_PROTECT,
	OP_PRIVATE,
	OP_HOLD,
	OP_NEVER,
	OP_RELEASE,
};

struct order {
	uint32_t op;
	uint32_t kind;
	uint64_t addr, len, min, shift;
	uint32_t seed;
	uint32_t flag;
};

struct answer {
	int32_t ret;
	uint32_t npieces;
	uint64_t addr, len;
	char why[KARST_CTL_WHY];
	struct karst_ctl_piece piece[KARST_CTL_MAX_PIECES];
};

/* --- in the program --- */

#define MAX_REGISTERED 64

/* State of the child, which has one thread. */
static struct {
	uint8_t *at;
	uint64_t len;
	int fd;
	int uffd;
	struct karst_memory *reg[MAX_REGISTERED];
	unsigned int first, next;
} mine;

static uint8_t data_bytes[BIG] = {1};
static uint8_t bss_bytes[BIG];
static uint8_t *stack_bytes; /* a buffer on the stack of main_loop() */

static void
fill(unsigned int seed)
{
	uint64_t i;

	for (i = 0; i < mine.len; i++)
		mine.at[i] = program_byte(seed, i);
}

static int
temp_file(uint64_t len, bool in_memory)
{
	char name[] = "/tmp/karst_memory_XXXXXX";
	int fd = in_memory ? memfd_create("program", MFD_CLOEXEC) : mkstemp(name);
	uint64_t i;

	if (fd < 0)
		return -errno;
	if (!in_memory)
		unlink(name);
	for (i = 0; i < len; i++) {
		uint8_t b = program_byte(1, i);

		if (pwrite(fd, &b, 1, (off_t)i) != 1)
			return -errno;
	}
	return fd;
}

static int
use_map(uint64_t len, int prot, int flags, int fd)
{
	void *p = mmap(NULL, len, prot, flags, fd, 0);

	if (p == MAP_FAILED)
		return (flags & MAP_HUGETLB) ? -EOPNOTSUPP : -errno;
	mine.at = p;
	mine.len = len;
	mine.fd = fd;
	return 0;
}

static int
use(void *p, uint64_t len)
{
	mine.at = p;
	mine.len = len;
	return p != NULL ? 0 : -ENOMEM;
}

static int
make_file(enum kind kind)
{
	int fd = -1, rw = PROT_READ | PROT_WRITE;
	char path[64], name[32];

	switch (kind) {
	case KIND_MEMFD:
		fd = memfd_create("program", 0);
		break;
	case KIND_POSIX_SHM:
		snprintf(name, sizeof(name), "/karst_memory_%d", (int)getpid());
		fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		shm_unlink(name);
		break;
	case KIND_HUGETLB:
		fd = memfd_create("program", MFD_HUGETLB);
		if (fd < 0 || ftruncate(fd, HUGE) != 0 || use_map(HUGE, rw, MAP_SHARED, fd) != 0)
			return -EOPNOTSUPP;
		return 0;
	default:
		fd = temp_file(BIG, kind == KIND_RDONLY_FILE);
	}
	if (fd < 0 || ftruncate(fd, BIG) != 0)
		return -errno;
	if (kind == KIND_PRIVATE_FILE)
		return use_map(BIG, rw, MAP_PRIVATE, fd);
	if (kind != KIND_RDONLY_FILE)
		return use_map(BIG, rw, MAP_SHARED, fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return use_map(BIG, PROT_READ, MAP_SHARED, open(path, O_RDONLY));
}

/* Makes four adjacent ranges of four pages each, each of another kind. */
static int
make_mixed(void)
{
	uint64_t part = 16 * 4096;
	int i, rw = PROT_READ | PROT_WRITE,
	       ret = use_map(5 * part, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	int fd = memfd_create("program", 0), file = temp_file(1, false);

	if (ret != 0 || fd < 0 || file < 0 || ftruncate(fd, (off_t)part) != 0 ||
		ftruncate(file, (off_t)part) != 0)
		return -ENOMEM;
	for (i = 1; i < 4; i++) {
		uint8_t *at = mine.at + (uint64_t)i * part;
		int flags = MAP_FIXED | (i == 3 ? MAP_PRIVATE : MAP_SHARED);

		if (i == 2)
			continue; /* private and anonymous, between the others: done already */
		if (mmap(at, part, rw, flags, i == 1 ? fd : file, 0) == MAP_FAILED)
			return -errno;
	}
	return 0;
}

static int
make(enum kind kind)
{
	int id, rw = PROT_READ | PROT_WRITE;
	void *p;

	switch (kind) {
	case KIND_ALLOC:
		return use(karst_alloc(3 * HUGE / 2), 3 * HUGE / 2);
	case KIND_ALLOC_SMALL:
		return use(karst_alloc(SMALL), SMALL);
	case KIND_MALLOC:
		return use(malloc(5 * HUGE), 5 * HUGE);
	case KIND_MALLOC_HEAP:
		p = malloc(100);
		return use(malloc(100 * 1024), 100 * 1024) | (p == NULL);
	case KIND_MALLOC_SMALL:
		return use(malloc(SMALL), SMALL);
	case KIND_ANONYMOUS:
		return use_map(BIG, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	case KIND_THP:
		if (use_map(4 * HUGE, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1) != 0)
			return -ENOMEM;
		madvise(mine.at, mine.len, MADV_HUGEPAGE);
		return 0;
	case KIND_STACK:
		return use(stack_bytes, BIG);
	case KIND_DATA:
		return use(data_bytes, sizeof(data_bytes));
	case KIND_BSS:
		return use(bss_bytes, sizeof(bss_bytes));
	case KIND_SYSV:
		id = shmget(IPC_PRIVATE, BIG, IPC_CREAT | 0600);
		if (id < 0)
			return -EOPNOTSUPP;
		p = shmat(id, NULL, 0);
		shmctl(id, IPC_RMID, NULL);
		return use(p, BIG);
	case KIND_HUGETLB_PRIVATE:
		return use_map(HUGE, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	case KIND_MIXED:
		return make_mixed();
	default:
		return make_file(kind);
	}
}

static bool
shows(const struct order *o)
{
	uint64_t i;

	for (i = 0; i < o->len; i++)
		if (mine.at[o->addr + i] != program_byte(o->seed, i + o->shift))
			return false;
	return true;
}

static bool
is_private(uint64_t addr)
{
	struct karst_vmas vmas;
	struct karst_vma v;
	bool yes;

	if (karst_vmas_open(&vmas, AT_FDCWD) != 0)
		return false;
	yes = karst_vmas_next(&vmas, addr, &v) == 1 && v.start <= addr && !v.shared && v.ino == 0;
	karst_vmas_close(&vmas);
	return yes;
}

/* Write-protects whole pages by userfaultfd; no thread handles the faults that wait there. */
static int
hold(uint64_t addr, uint64_t len)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
	struct uffdio_register reg = {.range = {addr, len}, .mode = UFFDIO_REGISTER_MODE_WP};
	struct uffdio_writeprotect wp = {.range = {addr, len}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

	mine.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (mine.uffd < 0 || ioctl(mine.uffd, UFFDIO_API, &api) != 0 ||
		ioctl(mine.uffd, UFFDIO_REGISTER, &reg) != 0 ||
		ioctl(mine.uffd, UFFDIO_WRITEPROTECT, &wp) != 0)
		return -errno;
	return 0;
}

/* Makes pages for which a fault never ends. */
static int
never(const struct order *o, struct answer *a)
{
	void *p;

	if (late_file_map(o->len, LATE_NEVER, &p) != NULL)
		return -errno;
	a->addr = (uintptr_t)p;
	return 0;
}

static int
release(uint64_t addr, uint64_t len)
{
	struct uffdio_writeprotect wp = {.range = {addr, len}};
	int ret = ioctl(mine.uffd, UFFDIO_WRITEPROTECT, &wp);

	return ret != 0 ? -errno : close(mine.uffd);
}

static void
enlist(const struct order *o, struct answer *a, struct karst_memory **m)
{
	a->ret = karst_memory_get(
		(const void *)(uintptr_t)o->addr, o->len, o->flag != 0, o->min, m, a->why);
	if (a->ret != 0)
		return;
	mine.reg[mine.next++ % MAX_REGISTERED] = *m;
	a->npieces = (*m)->npieces;
	memcpy(a->piece, (*m)->piece, a->npieces * sizeof(a->piece[0]));
}

static void
obey(const struct order *o, struct answer *a, struct karst_memory **m)
{
	void *at = (void *)(uintptr_t)o->addr;

	switch ((enum op)o->op) {
	case OP_MAKE:
		a->ret = make((enum kind)o->kind);
		a->addr = (uintptr_t)mine.at;
		a->len = mine.len;
		if (a->ret == 0 && o->kind != KIND_RDONLY_FILE && o->kind != KIND_ANONYMOUS)
			fill(1);
		break;
	case OP_REGISTER:
		enlist(o, a, m);
		break;
	case OP_DEREGISTER:
		karst_memory_put(mine.reg[mine.first++ % MAX_REGISTERED]);
		break;
	case OP_FILL:
		fill(o->seed);
		break;
	case OP_SHOWS:
		a->ret = shows(o);
		break;
	case OP_MUNMAP:
		a->ret = munmap(at, o->len) == 0 ? 0 : -errno;
		break;
	case OP_TRUNCATE:
		a->ret = ftruncate(mine.fd, (off_t)o->len) == 0 ? 0 : -errno;
		break;
	case OP_PROTECT:
		a->ret = mprotect(at, o->len, (int)o->flag) == 0 ? 0 : -errno;
		break;
	case OP_PRIVATE:
		a->ret = is_private(o->addr);
		break;
	case OP_HOLD:
		a->ret = hold(o->addr, o->len);
		break;
	case OP_NEVER:
		a->ret = never(o, a);
		break;
	case OP_RELEASE:
		a->ret = release(o->addr, o->len);
		break;
	}
}

static void
main_loop(int sock)
{
	static struct answer a;
	uint8_t room[BIG + 2 * 4096];
	struct order o;

	stack_bytes = room + 4096;
	while (recv(sock, &o, sizeof(o), 0) == (ssize_t)sizeof(o)) {
		struct karst_memory *m = NULL;

		memset(&a, 0, sizeof(a));
		obey(&o, &a, &m);
		if (karst_ctl_send(sock, &a, sizeof(a), m != NULL ? m->fds : NULL,
			    m != NULL ? m->nfds : 0) != 0)
			_exit(2);
	}
	_exit(0);
}

/* --- in the test --- */

void
program_start(struct program *p, uid_t uid)
{
	int sv[2], big = 1 << 20;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	p->pid = fork();
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sv[0]);
		if (uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0))
			_exit(3);
		/* a change of user makes a process undumpable, so that others may not look into
		 * it */
		prctl(PR_SET_DUMPABLE, 1);
		main_loop(sv[1]);
	}
	cr_assert_gt(p->pid, 0);
	close(sv[1]);
	p->sock = sv[0];
	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	cr_assert_geq(p->pidfd, 0);
}

static void
reap(struct program *p, int *status)
{
	cr_assert_eq(waitpid(p->pid, status, 0), p->pid);
	close(p->sock);
	close(p->pidfd);
}

void
program_end(struct program *p)
{
	int status;

	shutdown(p->sock, SHUT_RDWR);
	reap(p, &status);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the program ended with %#x",
		status);
}

void
program_kill(struct program *p)
{
	int status;

	kill(p->pid, SIGKILL);
	reap(p, &status);
}

static void
tell(struct program *p, const struct order *o, struct answer *a, struct program_pieces *out)
{
	static uint8_t buf[KARST_CTL_MAX];
	int fds[KARST_CTL_MAX_FDS];
	unsigned int nfds = 0;
	size_t len = 0;

	cr_assert_eq(send(p->sock, o, sizeof(*o), 0), (ssize_t)sizeof(*o));
	cr_assert_eq(karst_ctl_recv(p->sock, buf, &len, fds, &nfds), 0, "the program is gone");
	cr_assert_eq(len, sizeof(*a));
	memcpy(a, buf, sizeof(*a));
	if (out != NULL) {
		out->n = a->npieces;
		out->nfds = nfds;
		memcpy(out->fds, fds, sizeof(fds));
		memcpy(out->piece, a->piece, sizeof(a->piece));
		memcpy(out->why, a->why, sizeof(a->why));
	}
}

static int
simple(struct program *p, const struct order *o)
{
	static struct answer a;

	tell(p, o, &a, NULL);
	return a.ret;
}

int
program_make(struct program *p, enum kind kind, uint64_t *addr, uint64_t *len)
{
	static struct answer a;

	tell(p, &(struct order){.op = OP_MAKE, .kind = kind}, &a, NULL);
	*addr = a.addr;
	*len = a.len;
	return a.ret;
}

int
program_register(struct program *p, uint64_t addr, uint64_t len, bool write, uint64_t migrate_min,
	struct program_pieces *out)
{
	const struct order o = {
		.op = OP_REGISTER, .addr = addr, .len = len, .flag = write, .min = migrate_min};
	static struct answer a;

	tell(p, &o, &a, out);
	return a.ret;
}

int
program_deregister(struct program *p)
{
	return simple(p, &(struct order){.op = OP_DEREGISTER});
}

void
program_fill(struct program *p, unsigned int seed)
{
	simple(p, &(struct order){.op = OP_FILL, .seed = seed});
}

bool
program_shows(struct program *p, uint64_t off, uint64_t len, unsigned int seed, uint64_t shift)
{
	return simple(p,
		       &(struct order){.op = OP_SHOWS,
			       .addr = off,
			       .len = len,
			       .seed = seed,
			       .shift = shift}) == 1;
}

int
program_munmap(struct program *p, uint64_t addr, uint64_t len)
{
	return simple(p, &(struct order){.op = OP_MUNMAP, .addr = addr, .len = len});
}

int
program_truncate(struct program *p, uint64_t len)
{
	return simple(p, &(struct order){.op = OP_TRUNCATE, .len = len});
}

int
program_protect(struct program *p, uint64_t addr, uint64_t len, int prot)
{
	return simple(p,
		&(struct order){
			.op = OP_PROTECT, .addr = addr, .len = len, .flag = (uint32_t)prot});
}

int
program_hold_writers(struct program *p, uint64_t addr, uint64_t len)
{
	return simple(p, &(struct order){.op = OP_HOLD, .addr = addr, .len = len});
}

int
program_never(struct program *p, uint64_t len, uint64_t *addr)
{
	static struct answer a;

	tell(p, &(struct order){.op = OP_NEVER, .len = len}, &a, NULL);
	*addr = a.addr;
	return a.ret;
}

int
program_release_writers(struct program *p, uint64_t addr, uint64_t len)
{
	return simple(p, &(struct order){.op = OP_RELEASE, .addr = addr, .len = len});
}

bool
program_is_private(struct program *p, uint64_t addr)
{
	return simple(p, &(struct order){.op = OP_PRIVATE, .addr = addr}) == 1;
}
