/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What may not be registered, and whose memory it is: pages that do not exist, pieces that do not
 * fit, descriptors of something else, processes and users without the right.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_ctl_sock.h"
#include "space_bed.h"

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
	/* a hole, protected pages, or the same claimed by a program that has not checked its
	 * memory */
	cr_assert_eq(program_munmap(&rig.prog, addr + 4 * 4096, 4096), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), -EFAULT);
	p.piece[0] = (struct karst_ctl_piece){.addr = addr, .len = len};
	cr_assert_eq(map_pieces(&rig, addr, len, true, &p, &r), -EFAULT);
	cr_assert_eq(program_protect(&rig.prog, addr, 4096, PROT_NONE), 0);
	cr_assert_eq(region_make(&rig, addr, 4096, false, UINT64_MAX, &r), -EFAULT);
	cr_assert_eq(program_protect(&rig.prog, addr, 4096, PROT_READ), 0);
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), -EFAULT);
	cr_assert_eq(region_make(&rig, addr, 4096, false, UINT64_MAX, &r), 0);
	/* no bytes make a region of no bytes */
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
	/* a mapping that does not exist, or is not shared, is copied: that is always right */
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

/* Stores how much of the memory is copied if a space of @rig's program, made with @pidfd, maps the
 * pieces that the program has found; @memory: whose memory descriptor it sends. */
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

/* The program's process decides which of its files may be opened.  Which process that is, is known
 * from the kernel, or because the memory was opened there. */
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
	/* the other process has nothing at this address that could be copied */
	cr_assert_eq(map_with(&rig, -1, other.pid, addr, len, &copied), -EFAULT);
	program_end(&rig.prog);
	program_end(&other);
	rig_down(&rig);
}

/* --- rights --- */

/* An engine of root opens no file for a user who may not open it: that memory is copied. */
Test(space, rights_of_the_user)
{
	int groups = getgroups(0, NULL);
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
	cr_assert_eq(getgroups(0, NULL), groups);
	cr_assert_eq(access("/proc/1/mem", R_OK), 0, "the thread is itself again");
	program_end(&rig.prog);
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
