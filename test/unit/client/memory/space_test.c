/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program's memory in an engine of another process, moved by real queue pairs: the engine and
 * one end of each connection are the test's, the memory is a child's.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine_bed.h"
#include "karst_ctl_sock.h"
#include "karst_space.h"
#include "program.h"

#define ALL         (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE)
#define LOCAL       (16u << 20)
#define ROUNDS      6 /* of 64 regions with 10 MiB each, which cost page faults */
#define PATIENCE_NS 120000000000ull

/* --- one program, one engine, two pairs of QPs --- */

struct rig {
	struct engine_bed bed;
	struct program prog;
	struct karst_space *space;
	struct karst_engine_qp *near[2], *far[2]; /* the program's memory is used by far[] */
	uint8_t *local;                           /* ours */
	uint32_t local_key;
};

struct region {
	struct karst_space_region *r;
	uint64_t addr, len;
	uint32_t key;
	uint64_t shared, migrated, copied;
};

/* What a program sends with HELLO. */
static void
give_memory(struct karst_space *s, pid_t pid)
{
	char path[32], why[KARST_CTL_WHY];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDWR);
	cr_assert_eq(karst_space_reach(s, fd, why), 0, "%s", why);
	close(fd);
}

static void
rig_up_as(struct rig *rig, uid_t uid)
{
	const struct engine_bed_config cfg = {.engine = {.lcores = 2}};
	unsigned int i;

	program_start(&rig->prog, uid);
	engine_bed_up(&rig->bed, &cfg);
	cr_assert_eq(karst_space_create(
			     rig->bed.e, rig->prog.pid, rig->prog.pidfd, uid, uid, &rig->space),
		0);
	give_memory(rig->space, rig->prog.pid);
	for (i = 0; i < 2; i++) {
		rig->near[i] = engine_bed_qp(&rig->bed, KARST_QPT_RC, i);
		rig->far[i] = engine_bed_qp(&rig->bed, KARST_QPT_RC, i);
		engine_bed_connect(&rig->bed, rig->near[i], rig->far[i]);
	}
	rig->local = mmap(NULL, LOCAL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(rig->local, MAP_FAILED);
	rig->local_key = engine_bed_mr(&rig->bed, rig->local, LOCAL);
}

static void
rig_up(struct rig *rig)
{
	rig_up_as(rig, 0);
}

static void
rig_down(struct rig *rig)
{
	karst_space_destroy(rig->space);
	munmap(rig->local, LOCAL);
	engine_bed_down(&rig->bed);
}

static int
map_pieces(struct rig *rig, uint64_t addr, uint64_t len, bool write, struct program_pieces *p,
	struct region *out)
{
	int ret = karst_space_map(
		rig->space, addr, len, write, p->piece, p->n, p->fds, p->nfds, &out->r, p->why);

	karst_ctl_close_fds(p->fds, p->nfds);
	if (ret != 0)
		return ret;
	out->addr = addr;
	out->len = len;
	karst_space_bytes(out->r, &out->shared, &out->migrated, &out->copied);
	cr_assert_eq(out->shared + out->copied, len);
	cr_assert_leq(out->migrated, out->shared);
	cr_assert_eq(karst_engine_mr_reg(rig->bed.e, rig->bed.pd, karst_space_host(out->r), addr,
			     len, write ? ALL : KARST_ACCESS_REMOTE_READ, &out->key),
		0);
	return 0;
}

/* What a session does for REG_MR; errors of the program's side are returned, too. */
static int
region_make(
	struct rig *rig, uint64_t addr, uint64_t len, bool write, uint64_t min, struct region *out)
{
	static struct program_pieces p;
	int ret = program_register(&rig->prog, addr, len, write, min, &p);

	if (ret == 0)
		ret = map_pieces(rig, addr, len, write, &p, out);
	if (ret != 0)
		cr_assert_gt(strlen(p.why), 0, "a reason");
	return ret;
}

static void
region_drop(struct rig *rig, struct region *r)
{
	cr_assert_eq(karst_engine_mr_dereg(rig->bed.e, r->key), 0);
	karst_space_unmap(r->r);
}

/* --- traffic --- */

static enum karst_wc_status
wait_one(struct rig *rig)
{
	struct karst_cqe cqe;

	cr_assert(engine_bed_wait(&rig->bed, &cqe), "no completion");
	return (enum karst_wc_status)cqe.status;
}

/* The peer's requests: @op between our local memory and the program's. */
static enum karst_wc_status
remote_op(struct rig *rig, unsigned int pair, enum karst_wr_opcode op, uint64_t local_off,
	uint64_t addr, uint32_t len, uint32_t key)
{
	engine_bed_post(rig->near[pair], op, 1, rig->local + local_off, len, rig->local_key,
		(void *)(uintptr_t)addr, key);
	return wait_one(rig);
}

/* The program's own requests: its memory is local to far[]. */
static enum karst_wc_status
own_op(struct rig *rig, enum karst_wr_opcode op, uint64_t local_off, uint64_t addr, uint32_t len,
	uint32_t key)
{
	engine_bed_post(rig->far[0], op, 2, (void *)(uintptr_t)addr, len, key,
		rig->local + local_off, rig->local_key);
	return wait_one(rig);
}

static void
fill_local(struct rig *rig, uint64_t len, unsigned int seed)
{
	uint64_t i;

	for (i = 0; i < len; i++)
		rig->local[i] = program_byte(seed, i);
}

static void
expect_local(
	const struct rig *rig, uint64_t from, uint64_t len, unsigned int seed, const char *what)
{
	uint64_t i;

	for (i = 0; i < len; i++)
		if (rig->local[i] != program_byte(seed, from + i))
			cr_assert_fail("%s: byte %llu of %llu", what, (unsigned long long)i,
				(unsigned long long)len);
}

/* A message from near to a receive in the program's memory. */
static void
receive(struct rig *rig, uint64_t addr, uint32_t len, uint32_t key)
{
	engine_bed_post_recv(rig->far[0], 3, (void *)(uintptr_t)addr, len, key);
	engine_bed_post(rig->near[0], KARST_WR_SEND, 4, rig->local, len, rig->local_key, NULL, 0);
	cr_assert_eq(wait_one(rig), KARST_WC_SUCCESS);
	cr_assert_eq(wait_one(rig), KARST_WC_SUCCESS);
}

/* Every way in and out, with the bytes around the region watched. */
static void
exercise(struct rig *rig, const struct region *r, uint64_t edge)
{
	struct program *p = &rig->prog;
	uint32_t len = (uint32_t)r->len, third = len / 3;

	fill_local(rig, len, 2);
	cr_assert_eq(remote_op(rig, 0, KARST_WR_RDMA_WRITE, 0, r->addr, third, r->key), 0);
	cr_assert_eq(
		remote_op(rig, 1, KARST_WR_RDMA_WRITE, third, r->addr + third, len - third, r->key),
		0);
	cr_assert(program_shows(p, edge, len, 2, 0), "written");
	cr_assert(program_shows(p, 0, edge, 1, 0), "before it");

	program_fill(p, 3);
	memset(rig->local, 0, len);
	cr_assert_eq(remote_op(rig, 1, KARST_WR_RDMA_READ, 0, r->addr, len, r->key), 0);
	expect_local(rig, edge, len, 3, "read by a peer");

	program_fill(p, 4);
	cr_assert_eq(own_op(rig, KARST_WR_RDMA_WRITE, 0, r->addr, len, r->key), 0);
	expect_local(rig, edge, len, 4, "sent");

	fill_local(rig, len, 5);
	cr_assert_eq(own_op(rig, KARST_WR_RDMA_READ, 0, r->addr, len, r->key), 0);
	cr_assert(program_shows(p, edge, len, 5, 0), "the result of an own READ");

	fill_local(rig, len, 6);
	receive(rig, r->addr, len, r->key);
	cr_assert(program_shows(p, edge, len, 6, 0), "received");
	cr_assert(program_shows(p, 0, edge, 4, 0), "before it, to the end");
}

enum way { SHARED, MIGRATED, COPIED, SOME_OF_EACH };

static const struct {
	const char *name;
	enum way way;
	bool may_lack;
} kinds[KIND_COUNT] = {
	[KIND_ALLOC] = {"karst_alloc", SHARED},
	[KIND_ALLOC_SMALL] = {"karst_alloc, small", SHARED},
	[KIND_MALLOC] = {"malloc", MIGRATED},
	[KIND_MALLOC_HEAP] = {"malloc on the heap", MIGRATED},
	[KIND_MALLOC_SMALL] = {"malloc, small", COPIED},
	[KIND_ANONYMOUS] = {"anonymous", MIGRATED},
	[KIND_THP] = {"transparent huge pages", MIGRATED},
	[KIND_STACK] = {"stack", COPIED},
	[KIND_DATA] = {".data", COPIED},
	[KIND_BSS] = {".bss", MIGRATED},
	[KIND_PRIVATE_FILE] = {"private mapping of a file", COPIED},
	[KIND_SHARED_FILE] = {"shared mapping of a file", COPIED},
	[KIND_MEMFD] = {"memfd", SHARED},
	[KIND_SYSV] = {"SysV shm", SHARED, true},
	[KIND_POSIX_SHM] = {"POSIX shm", SHARED},
	[KIND_HUGETLB] = {"shared hugetlb", SHARED, true},
	[KIND_HUGETLB_PRIVATE] = {"private hugetlb", COPIED, true},
	[KIND_MIXED] = {"neighbours of all kinds", SOME_OF_EACH},
};

static void
check_way(const struct region *r, enum way way)
{
	switch (way) {
	case SHARED:
		cr_assert_eq(r->copied, 0, "%llu bytes copied", (unsigned long long)r->copied);
		cr_assert_eq(r->migrated, 0);
		break;
	case MIGRATED:
		cr_assert_eq(r->migrated, r->shared);
		cr_assert_leq(r->copied, 2 * 4096);
		break;
	case COPIED:
		cr_assert_eq(r->copied, r->len);
		break;
	case SOME_OF_EACH:
		cr_assert(r->copied > 0 && r->migrated > 0 && r->shared > r->migrated);
		break;
	}
}

static bool
can_move(void)
{
	/* tests of migration need the right to userfaultfd, for the kernel's accesses as well */
	return geteuid() == 0 || access("/dev/userfaultfd", R_OK | W_OK) == 0;
}

/* Huge pages are a resource of the machine: tests that need some reserve two more, and give them
 * back even if they fail.  Other tests change their number meanwhile, with the same lock
 * (test/common/bed.py, HugePages). */
#define NR_HUGE "/proc/sys/vm/nr_hugepages"

static int added_huge_pages;

static bool
add_huge_pages(int n)
{
	FILE *f = fopen(NR_HUGE, "r+");
	unsigned int had = 0;
	bool ok = f != NULL && flock(fileno(f), LOCK_EX) == 0 && fscanf(f, "%u", &had) == 1;

	if (ok) {
		rewind(f);
		ok = fprintf(f, "%d", (int)had + n) > 0 && fflush(f) == 0;
	}
	if (f != NULL)
		ok &= fclose(f) == 0;
	added_huge_pages += ok ? n : 0;
	return ok;
}

static void
one_kind(enum kind kind)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	bool huge = kind == KIND_HUGETLB || kind == KIND_HUGETLB_PRIVATE;
	int ret;

	if (!can_move())
		cr_skip("needs userfaultfd");
	rig_up(&rig);
	/* behind the engine, which takes what is free */
	if (huge && !add_huge_pages(2))
		cr_skip("huge pages cannot be reserved");
	ret = program_make(&rig.prog, kind, &addr, &len);
	if (ret == -EOPNOTSUPP && kinds[kind].may_lack)
		cr_skip("no %s here", kinds[kind].name);
	cr_assert_eq(ret, 0, "%s", kinds[kind].name);
	cr_assert_eq(region_make(&rig, addr + EDGE, len - 2 * EDGE - 1, true, 16384, &r), 0);
	check_way(&r, kinds[kind].way);
	if (kind == KIND_ANONYMOUS)
		program_fill(&rig.prog, 1);
	exercise(&rig, &r, EDGE);
	region_drop(&rig, &r);
	program_deregister(&rig.prog);
	if (kinds[kind].way == MIGRATED)
		cr_assert(program_is_private(&rig.prog, addr + len / 2), "private again");
	/* the pattern before, with what the last message brought */
	cr_assert(program_shows(&rig.prog, EDGE, len - 2 * EDGE - 1, 6, 0), "still there");
	program_end(&rig.prog);
	rig_down(&rig);
}

static void
release_huge(void)
{
	if (added_huge_pages > 0)
		add_huge_pages(-added_huge_pages);
}

#define KIND_TEST(name, kind)       \
	Test(space, content_##name) \
	{                           \
		one_kind(kind);     \
	}

KIND_TEST(alloc, KIND_ALLOC)
KIND_TEST(alloc_small, KIND_ALLOC_SMALL)
KIND_TEST(malloc, KIND_MALLOC)
KIND_TEST(malloc_heap, KIND_MALLOC_HEAP)
KIND_TEST(malloc_small, KIND_MALLOC_SMALL)
KIND_TEST(anonymous, KIND_ANONYMOUS)
KIND_TEST(thp, KIND_THP)
KIND_TEST(stack, KIND_STACK)
KIND_TEST(data, KIND_DATA)
KIND_TEST(bss, KIND_BSS)
KIND_TEST(private_file, KIND_PRIVATE_FILE)
KIND_TEST(shared_file, KIND_SHARED_FILE)
KIND_TEST(memfd, KIND_MEMFD)
KIND_TEST(sysv, KIND_SYSV)
KIND_TEST(posix_shm, KIND_POSIX_SHM)
KIND_TEST(mixed, KIND_MIXED)

Test(space, content_hugetlb, .fini = release_huge)
{
	one_kind(KIND_HUGETLB);
}

Test(space, content_hugetlb_private, .fini = release_huge)
{
	one_kind(KIND_HUGETLB_PRIVATE);
}

/* --- what cannot be registered --- */

Test(space, read_only_memory_is_for_reading)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_RDONLY_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), -EFAULT);
	cr_assert_eq(region_make(&rig, addr, len, false, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_READ, 0, addr, (uint32_t)len, r.key), 0);
	expect_local(&rig, 0, len, 1, "read-only file");
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 8, r.key),
		KARST_WC_REM_ACCESS_ERR);
	program_end(&rig.prog);
	rig_down(&rig);
}

Test(space, nothing_there)
{
	struct program_pieces p = {.n = 1};
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_ANONYMOUS, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, 4096, 4096, true, UINT64_MAX, &r), -EFAULT);
	cr_assert_eq(region_make(&rig, UINT64_MAX - 10, 100, true, UINT64_MAX, &r), -EINVAL);
	/* a hole, protected, or the same claimed by a program that has not looked */
	cr_assert_eq(program_munmap(&rig.prog, addr + 4 * 4096, 4096), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), -EFAULT);
	p.piece[0] = (struct karst_ctl_piece){.addr = addr, .len = len};
	cr_assert_eq(map_pieces(&rig, addr, len, true, &p, &r), -EFAULT);
	cr_assert_eq(program_protect(&rig.prog, addr, 4096, PROT_NONE), 0);
	cr_assert_eq(region_make(&rig, addr, 4096, false, UINT64_MAX, &r), -EFAULT);
	cr_assert_eq(program_protect(&rig.prog, addr, 4096, PROT_READ), 0);
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), -EFAULT);
	cr_assert_eq(region_make(&rig, addr, 4096, false, UINT64_MAX, &r), 0);
	/* no bytes are a region of no bytes */
	cr_assert_eq(region_make(&rig, addr, 0, true, UINT64_MAX, &r), 0);
	program_end(&rig.prog);
	rig_down(&rig);
}

static int
try_fd(struct rig *rig, int fd, uint64_t off, bool write)
{
	struct program_pieces p = {.n = 1, .nfds = 1};
	struct karst_space_region *r;
	int ret;

	p.piece[0] = (struct karst_ctl_piece){
		.addr = 1 << 30, .len = 8192, .file_off = off, .kind = KARST_CTL_PIECE_FD};
	p.fds[0] = fd;
	ret = karst_space_map(rig->space, 1 << 30, 8192, write, p.piece, 1, p.fds, 1, &r, p.why);
	if (ret == 0)
		karst_space_unmap(r);
	else
		cr_assert_gt(strlen(p.why), 0);
	return ret;
}

Test(space, descriptors_of_other_files)
{
	char path[64];
	struct rig rig;
	int fd, sv[2], pipes[2];

	rig_up(&rig);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	cr_assert_eq(pipe(pipes), 0);
	cr_assert_eq(try_fd(&rig, sv[0], 0, false), -EBADF);
	cr_assert_eq(try_fd(&rig, pipes[0], 0, false), -EBADF);
	cr_assert_eq(try_fd(&rig, open("/dev/zero", O_RDWR), 0, true), -EBADF);
	cr_assert_eq(try_fd(&rig, open("/", O_RDONLY | O_DIRECTORY), 0, false), -EBADF);
	cr_assert_eq(try_fd(&rig, open("/proc/self/maps", O_RDONLY), 0, false), -EBADF);
	cr_assert_eq(try_fd(&rig, 9999, 0, false), -EBADF);

	fd = memfd_create("short", MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(fd, 12288), 0);
	cr_assert_eq(try_fd(&rig, fd, 0, true), -EFAULT, "holes, and nothing there to copy");
	cr_assert_eq(fallocate(fd, 0, 0, 12288), 0);
	cr_assert_eq(try_fd(&rig, fd, 0, true), 0);
	cr_assert_eq(try_fd(&rig, fd, 8192, true), -EBADF, "behind its end");
	cr_assert_eq(try_fd(&rig, fd, UINT64_MAX - 4095, true), -EBADF, "far behind");
	cr_assert_eq(try_fd(&rig, fd, 100, true), -EINVAL, "not whole pages");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	cr_assert_eq(try_fd(&rig, open(path, O_RDONLY), 0, true), -EACCES);
	cr_assert_eq(try_fd(&rig, open(path, O_RDONLY), 0, false), 0);
	cr_assert_eq(try_fd(&rig, open(path, O_WRONLY), 0, true), -EACCES);
	cr_assert_eq(try_fd(&rig, open(path, O_PATH), 0, false), -EACCES);
	program_end(&rig.prog);
	rig_down(&rig);
}

Test(space, pieces_that_do_not_fit)
{
	static struct program_pieces p;
	struct karst_space_region *r;
	struct rig rig;
	uint64_t a, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_ANONYMOUS, &a, &len), 0);
#define TRY(addr, bytes, n) \
	karst_space_map(rig.space, addr, bytes, false, p.piece, n, p.fds, p.nfds, &r, p.why)
	p.piece[0] = (struct karst_ctl_piece){.addr = a, .len = 4096};
	p.piece[1] = (struct karst_ctl_piece){.addr = a + 8192, .len = 4096};
	cr_assert_eq(TRY(a, 12288, 2), -EINVAL, "a gap");
	cr_assert_eq(TRY(a, 8192, 1), -EINVAL, "too short");
	cr_assert_eq(TRY(a - 1, 8, 1), -EINVAL, "begins too late");
	cr_assert_eq(TRY(a, 8, 0), -EINVAL, "none");
	cr_assert_eq(TRY(a, 0, 1), -EINVAL, "of nothing");
	p.piece[1].addr = a;
	cr_assert_eq(TRY(a, 8192, 2), -EINVAL, "twice");
	p.piece[0].len = 0;
	cr_assert_eq(TRY(a, 8, 1), -EINVAL, "empty");
	p.piece[0].len = UINT64_MAX;
	cr_assert_eq(TRY(a, 8, 1), -EINVAL, "endless");
	p.piece[0] = (struct karst_ctl_piece){.addr = 1ull << 62, .len = 1ull << 62};
	cr_assert_eq(TRY(1ull << 62, 1ull << 62, 1), -EINVAL, "nobody has so much");
	p.piece[0] = (struct karst_ctl_piece){.addr = a, .len = 1ull << 42};
	cr_assert_eq(TRY(a + 4095, 1, 1), -EINVAL, "far behind the region");
	p.piece[0] = (struct karst_ctl_piece){.addr = a, .len = 8192};
	cr_assert_eq(TRY(a, 4096, 1), -EINVAL, "a page behind it");
	cr_assert_eq(TRY(a + 4096, 4096, 1), -EINVAL, "a page before it");
	p.piece[0] = (struct karst_ctl_piece){.addr = a, .len = 4096, .kind = 7};
	cr_assert_eq(TRY(a, 4096, 1), -EINVAL, "of no kind");
	p.piece[0] = (struct karst_ctl_piece){.addr = a, .len = 4096, .kind = 1, .fd = -1};
	cr_assert_eq(TRY(a, 4096, 1), -EBADF, "no such descriptor");
	/* a mapping that is not there, or is not shared, is copied: that is always right */
	p.piece[0] = (struct karst_ctl_piece){.addr = a,
		.len = 4096,
		.kind = KARST_CTL_PIECE_VMA,
		.vma_start = a,
		.vma_end = a + 4096};
	cr_assert_eq(TRY(a, 4096, 1), 0);
	cr_assert(karst_mem_is_unmapped(karst_space_host(r)));
#undef TRY
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- the descriptor of the memory --- */

static int
try_memory(struct karst_space *s, const char *path, int flags)
{
	char why[KARST_CTL_WHY] = "";
	int ret, fd = open(path, flags | O_CLOEXEC);

	cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
	ret = karst_space_reach(s, fd, why);
	cr_assert(ret == 0 || why[0] != 0);
	close(fd);
	return ret;
}

/* A program may send any descriptor: only one of an address space is used. */
Test(space, what_is_no_memory)
{
	struct karst_space *s;
	char why[KARST_CTL_WHY];
	struct rig rig;
	int fd;

	rig_up(&rig);
	cr_assert_eq(karst_space_create(rig.bed.e, rig.prog.pid, rig.prog.pidfd, 0, 0, &s), 0);
	cr_assert_eq(try_memory(s, "/proc/self/mem", O_RDONLY), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/self/mem", O_WRONLY), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/self/mem", O_PATH), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/self/environ", O_RDONLY), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/self/pagemap", O_RDONLY), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/self/comm", O_RDWR), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/self/oom_score_adj", O_RDWR), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/self/clear_refs", O_WRONLY), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/self/coredump_filter", O_RDWR), -EBADF);
	cr_assert_eq(try_memory(s, "/proc/sys/kernel/hostname", O_RDWR), -EBADF);
	cr_assert_eq(try_memory(s, "/dev/zero", O_RDWR), -EBADF);
	cr_assert_eq(try_memory(s, "/tmp", O_RDONLY | O_DIRECTORY), -EBADF);
	cr_assert_eq(karst_space_reach(s, 9999, why), -EBADF);
	fd = memfd_create("mem", MFD_CLOEXEC);
	cr_assert_eq(karst_space_reach(s, fd, why), -EBADF);
	close(fd);
	cr_assert_eq(try_memory(s, "/proc/self/mem", O_RDWR), 0);
	karst_space_destroy(s);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* How much of it is copied if a space of @rig's program, made with @pidfd, maps what the program
 * has found out; @memory: whose it sends. */
static int
map_with(struct rig *rig, int pidfd, pid_t memory, uint64_t addr, uint64_t len, uint64_t *copied)
{
	static struct program_pieces p;
	struct karst_space_region *r;
	struct karst_space *s;
	uint64_t shared, migrated;
	int ret;

	cr_assert_eq(program_register(&rig->prog, addr, len, true, UINT64_MAX, &p), 0);
	cr_assert_eq(karst_space_create(rig->bed.e, rig->prog.pid, pidfd, 0, 0, &s), 0);
	if (memory != 0)
		give_memory(s, memory);
	p.why[0] = 0;
	ret = karst_space_map(s, addr, len, true, p.piece, p.n, p.fds, p.nfds, &r, p.why);
	if (ret == 0)
		karst_space_bytes(r, &shared, &migrated, copied);
	else
		cr_assert_neq(p.why[0], 0);
	karst_ctl_close_fds(p.fds, p.nfds);
	karst_space_destroy(s);
	return ret;
}

/* Which of its files may be opened is known by its process; which is that, by the kernel, or
 * because its memory was opened there. */
Test(space, whose_mappings)
{
	struct program other;
	uint64_t addr, len, copied;
	struct rig rig;

	program_start(&other, 0);
	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_POSIX_SHM, &addr, &len), 0);
	cr_assert_eq(map_with(&rig, rig.prog.pidfd, rig.prog.pid, addr, len, &copied), 0);
	cr_assert_eq(copied, 0);
	cr_assert_eq(map_with(&rig, -1, rig.prog.pid, addr, len, &copied), 0);
	cr_assert_eq(copied, 0, "it has shown whose it is");
	cr_assert_eq(map_with(&rig, rig.prog.pidfd, 0, addr, len, &copied), 0);
	cr_assert_eq(copied, 0, "to share takes no copying");
	cr_assert_eq(map_with(&rig, -1, 0, addr, len, &copied), -EPERM, "neither");
	/* the other one has nothing there to be copied */
	cr_assert_eq(map_with(&rig, -1, other.pid, addr, len, &copied), -EFAULT);
	program_end(&rig.prog);
	program_end(&other);
	rig_down(&rig);
}

/* --- rights --- */

/* A root engine opens no file for a user who may not: what the program has is copied. */
Test(space, rights_of_the_user)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	if (geteuid() != 0)
		cr_skip("needs root, who may more than others");
	rig_up_as(&rig, 65534);
	cr_assert_eq(program_make(&rig.prog, KIND_POSIX_SHM, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, 0, "its own file");
	exercise(&rig, &r, 0);
	region_drop(&rig, &r);
	cr_assert_eq(getgroups(0, NULL), getgroups(0, NULL));
	cr_assert_eq(access("/proc/1/mem", R_OK), 0, "the thread is itself again");
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- memory that goes away --- */

Test(space, r13_unmapped_under_traffic)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_PRIVATE_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, len);
	cr_assert_eq(program_munmap(&rig.prog, addr + 8192, len - 8192), 0);
	/* what is left works, what is gone does not, and no byte of it is invented */
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 8192, r.key), 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key),
		KARST_WC_REM_ACCESS_ERR);
	cr_assert_eq(remote_op(&rig, 1, KARST_WR_RDMA_READ, 0, addr, 65536, r.key),
		KARST_WC_REM_ACCESS_ERR);
	cr_assert_not(karst_space_failed(rig.space), "it hurts its own requests alone");
	program_end(&rig.prog);
	rig_down(&rig);
}

Test(space, unmapped_under_own_requests)
{
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	unsigned int i, remote = 0, local = 0;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_PRIVATE_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(program_munmap(&rig.prog, addr + 8192, len - 8192), 0);
	cr_assert_eq(own_op(&rig, KARST_WR_RDMA_WRITE, 0, addr, 8192, r.key), 0);
	cr_assert_eq(
		own_op(&rig, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key), KARST_WC_LOC_PROT_ERR);
	/* a message to a receive that is gone: both sides are told */
	engine_bed_post_recv(rig.far[1], 3, (void *)(uintptr_t)addr, 65536, r.key);
	engine_bed_post(rig.near[1], KARST_WR_SEND, 4, rig.local, 65536, rig.local_key, NULL, 0);
	for (i = 0; i < 2; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		remote += cqe.status == KARST_WC_REM_OP_ERR && cqe.wr_id == 4;
		local += cqe.status == KARST_WC_LOC_PROT_ERR && cqe.wr_id == 3;
	}
	cr_assert(remote == 1 && local == 1);
	program_end(&rig.prog);
	rig_down(&rig);
}

Test(space, own_read_into_what_is_gone)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_PRIVATE_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(program_munmap(&rig.prog, addr + 8192, len - 8192), 0);
	cr_assert_eq(
		own_op(&rig, KARST_WR_RDMA_READ, 0, addr, 65536, r.key), KARST_WC_LOC_PROT_ERR);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* A file that shrinks under the engine: SIGBUS here, zeros in no frame, the program's keys dead. */
Test(space, truncated_under_traffic)
{
	struct karst_space *other;
	struct program second;
	struct region r, good;
	static struct program_pieces p;
	struct rig rig;
	uint64_t addr, len, addr2, len2;

	program_start(&second, 0);
	rig_up(&rig);
	cr_assert_eq(karst_space_create(rig.bed.e, second.pid, second.pidfd, 0, 0, &other), 0);
	give_memory(other, second.pid);
	cr_assert_eq(program_make(&second, KIND_MEMFD, &addr2, &len2), 0);
	cr_assert_eq(program_register(&second, addr2, len2, true, UINT64_MAX, &p), 0);
	cr_assert_eq(karst_space_map(
			     other, addr2, len2, true, p.piece, p.n, p.fds, p.nfds, &good.r, p.why),
		0);
	cr_assert_eq(karst_engine_mr_reg(rig.bed.e, rig.bed.pd, karst_space_host(good.r), addr2,
			     len2, ALL, &good.key),
		0);

	cr_assert_eq(program_make(&rig.prog, KIND_MEMFD, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, 0);
	fill_local(&rig, 65536, 9);
	cr_assert_eq(program_truncate(&rig.prog, 8192), 0);
	/* a READ of pages that are gone moves nothing but a refusal */
	cr_assert_neq(remote_op(&rig, 0, KARST_WR_RDMA_READ, 16384, addr + 16384, 16384, r.key), 0);
	expect_local(&rig, 0, 65536, 9, "what a failed READ left alone");
	cr_assert(karst_space_failed(rig.space));
	cr_assert_eq(remote_op(&rig, 1, KARST_WR_RDMA_WRITE, 0, addr, 8, r.key),
		KARST_WC_REM_ACCESS_ERR, "no key of it is good any more");

	/* another program has noticed nothing */
	rig.near[0] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
	rig.far[0] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
	engine_bed_connect(&rig.bed, rig.near[0], rig.far[0]);
	cr_assert_not(karst_space_failed(other));
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr2, 65536, good.key), 0);
	cr_assert(program_shows(&second, 0, 65536, 9, 0));
	karst_space_destroy(other);
	program_end(&rig.prog);
	program_end(&second);
	rig_down(&rig);
}

/* The same when the program's own requests read from it, and when something is written there. */
Test(space, truncated_under_own_requests)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_POSIX_SHM, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, 0);
	fill_local(&rig, 65536, 9);
	cr_assert_eq(program_truncate(&rig.prog, 0), 0);
	cr_assert_eq(
		own_op(&rig, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key), KARST_WC_LOC_PROT_ERR);
	expect_local(&rig, 0, 65536, 9, "the target of a request that failed");
	program_end(&rig.prog);
	rig_down(&rig);
}

Test(space, killed_under_traffic)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key), 0);
	program_kill(&rig.prog);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key),
		KARST_WC_REM_ACCESS_ERR);
	cr_assert_eq(remote_op(&rig, 1, KARST_WR_RDMA_READ, 0, addr, 65536, r.key),
		KARST_WC_REM_ACCESS_ERR);
	cr_assert(karst_space_failed(rig.space));
	rig_down(&rig);
}

struct releaser {
	struct program *prog;
	uint64_t addr, len;
};

static void *
release_writers(void *arg)
{
	const struct releaser *r = arg;

	usleep(20000);
	cr_assert_eq(program_release_writers(r->prog, r->addr, r->len), 0);
	return NULL;
}

/* As while libkarst moves a page of a region that is copied: a peer's WRITE to it waits. */
Test(space, writers_are_held)
{
	struct releaser held;
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	pthread_t t;

	if (!can_move())
		cr_skip("needs userfaultfd");
	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_ANONYMOUS, &addr, &len), 0);
	program_fill(&rig.prog, 1);
	cr_assert_eq(region_make(&rig, addr, 16 * 4096, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, r.len);
	held = (struct releaser){&rig.prog, addr + 3 * 4096, 2 * 4096};
	fill_local(&rig, r.len, 2);
	cr_assert_eq(program_hold_writers(held.prog, held.addr, held.len), 0);
	cr_assert_eq(pthread_create(&t, NULL, release_writers, &held), 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, (uint32_t)r.len, r.key),
		KARST_WC_SUCCESS);
	pthread_join(t, NULL);
	memset(rig.local, 0, r.len);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_READ, 0, addr, (uint32_t)r.len, r.key),
		KARST_WC_SUCCESS);
	expect_local(&rig, 0, r.len, 2, "written around and into held pages");
	/* a program that holds its writers for ever fails alone, and not before long */
	cr_assert_eq(program_hold_writers(held.prog, held.addr, held.len), 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, (uint32_t)r.len, r.key),
		KARST_WC_REM_ACCESS_ERR);
	program_kill(&rig.prog);
	rig_down(&rig);
}

/* Who polls an lcore does not wait for pages that never come: others go on, and in the end the
 * program that has them fails. */
Test(space, nobody_who_polls_waits)
{
	static struct program_pieces p = {.n = 1};
	bool failed = false;
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	int others = 0;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up(&rig);
	p.piece[0] = (struct karst_ctl_piece){
		.len = 65536, .kind = KARST_CTL_PIECE_COPY, .flags = KARST_CTL_PIECE_ON_DEMAND};
	cr_assert_eq(program_never(&rig.prog, 65536, &p.piece[0].addr), 0);
	cr_assert_eq(map_pieces(&rig, p.piece[0].addr, 65536, true, &p, &r), 0, "%s", p.why);
	engine_bed_post(rig.near[0], KARST_WR_RDMA_WRITE, 7, rig.local, 65536, rig.local_key,
		(void *)(uintptr_t)r.addr, r.key);
	/* memory that is nobody else's */
	engine_bed_post(rig.near[1], KARST_WR_RDMA_WRITE, 8, rig.local, 4096, rig.local_key,
		rig.local + 8192, rig.local_key);
	/* the first request may fail before, for having been sent too often */
	while (!failed || others == 0 || !karst_space_failed(rig.space)) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe), "no completion");
		if (cqe.wr_id == 7) {
			cr_assert_neq(cqe.status, KARST_WC_SUCCESS);
			failed = true;
			continue;
		}
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		others++;
		engine_bed_post(rig.near[1], KARST_WR_RDMA_WRITE, 8, rig.local, 4096, rig.local_key,
			rig.local + 8192, rig.local_key);
	}
	program_kill(&rig.prog);
	rig_down(&rig);
}

Test(space, no_such_process)
{
	struct karst_space *s;
	struct rig rig;

	int pidfd;

	rig_up(&rig);
	pidfd = dup(rig.prog.pidfd);
	program_end(&rig.prog);
	cr_assert_eq(karst_space_create(rig.bed.e, rig.prog.pid, pidfd, 0, 0, &s), -ESRCH);
	cr_assert_eq(karst_space_create(rig.bed.e, rig.prog.pid, -1, 0, 0, &s), -ESRCH);
	close(pidfd);
	rig_down(&rig);
}

/* --- atomics --- */

static void
post_faa(struct rig *rig, unsigned int pair, uint64_t addr, uint32_t key)
{
	struct karst_engine_qp *qp = rig->near[pair];
	struct karst_send_wqe *w;

	cr_assert_geq(karst_engine_send_room(qp, 1), 1);
	w = karst_engine_send_slot(qp, 0);
	memset(w, 0, sizeof(*w));
	w->opcode = KARST_WR_ATOMIC_FAA;
	w->flags = KARST_SEND_SIGNALED;
	w->num = 1;
	w->rdma.remote_addr = addr;
	w->rdma.rkey = key;
	w->atomic.compare_add = 1;
	w->atomic.sge[0] = (struct karst_sge){
		.addr = (uintptr_t)rig->local + 64 * pair, .len = 8, .lkey = rig->local_key};
	cr_assert_eq(karst_engine_post_send(qp, 1), 0);
}

/* R7 on memory that is copied: none of two lcores' additions is lost. */
Test(space, r7_atomics_on_copied_memory)
{
	struct engine_bed_poller second;
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len, value = 0;
	unsigned int i, done = 0;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	memset(rig.local, 0, 64);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_ATOMIC_WRITE, 0, addr, 8, r.key), 0);
	engine_bed_poller_start(&second, &rig.bed, 2);
	for (i = 0; i < 200; i++) {
		post_faa(&rig, 0, addr, r.key);
		post_faa(&rig, 1, addr, r.key);
		for (done = 0; done < 2; done++) {
			cr_assert(engine_bed_wait(&rig.bed, &cqe));
			cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		}
	}
	engine_bed_poller_stop(&second);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_READ, 128, addr, 8, r.key), 0);
	memcpy(&value, rig.local + 128, 8);
	cr_assert_eq(value, 400);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* R14: an atomic and a READ come after the WRITEs before them, whether queued or not. */
Test(space, r14_order_on_copied_memory)
{
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len, round, old, *w;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	w = (uint64_t *)(void *)(rig.local + 256);
	for (round = 1; round < 200; round++) {
		unsigned int i;

		*w = round * 1000;
		for (i = 0; i < 4; i++)
			engine_bed_post(rig.near[0], KARST_WR_RDMA_WRITE, i, w, 8, rig.local_key,
				(void *)(uintptr_t)addr, r.key);
		post_faa(&rig, 0, addr, r.key);
		engine_bed_post(rig.near[0], KARST_WR_RDMA_READ, 9, rig.local + 512, 8,
			rig.local_key, (void *)(uintptr_t)addr, r.key);
		for (i = 0; i < 6; i++) {
			cr_assert(engine_bed_wait(&rig.bed, &cqe));
			cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		}
		memcpy(&old, rig.local, 8);
		cr_assert_eq(old, round * 1000);
		memcpy(&old, rig.local + 512, 8);
		cr_assert_eq(old, round * 1000 + 1);
	}
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- without acknowledgements --- */

static void
connect_uc(struct rig *rig, struct karst_engine_qp *qp[2])
{
	struct karst_core_qp_attr attr;
	enum karst_qp_state to;
	int side;

	for (side = 0; side < 2; side++)
		qp[side] = engine_bed_qp(&rig->bed, KARST_QPT_UC, 0);
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		for (side = 0; side < 2; side++) {
			unsigned int mask = engine_bed_attr(
				&rig->bed, KARST_QPT_UC, side, qp[1 - side]->num, to, &attr);

			cr_assert_eq(karst_engine_qp_modify(rig->bed.e, qp[side], &attr, mask), 0);
		}
	}
}

/* Nobody hears when a WRITE without an acknowledgement has arrived, and other threads than the one
 * that polls make the copies. */
static bool
shows_in_time(struct rig *rig, uint64_t off, uint64_t len, unsigned int seed)
{
	uint64_t until = karst_engine_now_ns(rig->bed.e) + PATIENCE_NS;

	while (!program_shows(&rig->prog, off, len, seed, 0)) {
		if (karst_engine_now_ns(rig->bed.e) > until)
			return false;
		engine_bed_settle(&rig->bed);
	}
	return true;
}

/* UC (U1) completes at once, so it must know at once what is there and what is not. */
Test(space, u1_uc_on_copied_memory)
{
	struct karst_engine_qp *qp[2];
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	unsigned int i;

	rig_up(&rig);
	connect_uc(&rig, qp);
	cr_assert_eq(program_make(&rig.prog, KIND_PRIVATE_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, len);

	fill_local(&rig, 65536, 2);
	engine_bed_post_recv(qp[1], 3, (void *)(uintptr_t)addr, 65536, r.key);
	engine_bed_post(qp[0], KARST_WR_SEND, 4, rig.local, 65536, rig.local_key, NULL, 0);
	for (i = 0; i < 2; i++)
		cr_assert_eq(wait_one(&rig), KARST_WC_SUCCESS);
	cr_assert(program_shows(&rig.prog, 0, 65536, 2, 0), "received");

	engine_bed_post(qp[0], KARST_WR_RDMA_WRITE, 5, rig.local, 32768, rig.local_key,
		(void *)(uintptr_t)(addr + 100000), r.key);
	cr_assert_eq(wait_one(&rig), KARST_WC_SUCCESS);
	cr_assert(shows_in_time(&rig, 100000, 32768, 2), "written");

	program_fill(&rig.prog, 3);
	engine_bed_post(qp[1], KARST_WR_RDMA_WRITE, 6, (void *)(uintptr_t)addr, 65536, r.key,
		rig.local, rig.local_key);
	cr_assert_eq(wait_one(&rig), KARST_WC_SUCCESS);
	engine_bed_settle(&rig.bed);
	expect_local(&rig, 0, 65536, 3, "sent");

	cr_assert_eq(program_munmap(&rig.prog, addr + 8192, len - 8192), 0);
	engine_bed_post_recv(qp[1], 7, (void *)(uintptr_t)(addr + 4096), 65536, r.key);
	engine_bed_post(qp[0], KARST_WR_SEND, 8, rig.local, 65536, rig.local_key, NULL, 0);
	for (i = 0; i < 2; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		cr_assert_eq(cqe.status, cqe.wr_id == 7 ? KARST_WC_LOC_PROT_ERR : KARST_WC_SUCCESS);
	}
	engine_bed_post(
		qp[0], KARST_WR_SEND, 9, (void *)(uintptr_t)(addr + 4096), 65536, r.key, NULL, 0);
	cr_assert_eq(wait_one(&rig), KARST_WC_LOC_PROT_ERR);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- many --- */

static unsigned int
count_lines(const char *path)
{
	FILE *f = fopen(path, "r");
	unsigned int n = 0;
	int c;

	cr_assert_not_null(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* Mappings of the engine do not grow, whatever comes and goes. */
Test(space, regions_come_and_go)
{
	static struct program_pieces p;
	struct karst_space_region *r[64];
	struct rig rig;
	unsigned int i, k, before = 0;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_MALLOC, &addr, &len), 0);
	cr_assert_eq(program_register(&rig.prog, addr, len, true, 4096, &p), 0);
	for (k = 0; k < ROUNDS; k++) {
		for (i = 0; i < KARST_DIM(r); i++)
			cr_assert_eq(karst_space_map(rig.space, addr + i, len - 60 * i, true,
					     p.piece, p.n, p.fds, p.nfds, &r[i], p.why),
				0, "%s", p.why);
		for (i = 0; i < KARST_DIM(r); i++)
			karst_space_unmap(r[(i * 37) % KARST_DIM(r)]);
		if (k == 0)
			before = count_lines("/proc/self/maps");
	}
	cr_assert_leq(count_lines("/proc/self/maps"), before);
	karst_ctl_close_fds(p.fds, p.nfds);
	program_end(&rig.prog);
	rig_down(&rig);
}
