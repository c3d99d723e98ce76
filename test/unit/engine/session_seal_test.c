/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ring memory of sessions: programs that could punch holes into it while other threads wait for
 * such pages. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine_priv.h"
#include "karst_ctl_sock.h"
#include "session_bed.h"

/* --- HELLO --- */

#define HOLE (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

static uint32_t
bells_of(const struct engine_bed *bed)
{
	return bed->e->lcore[0].nbells;
}

/* A chunk with an early mapping and a second descriptor, as a hostile program would keep them. */
struct kept {
	uint32_t chunk;
	uint64_t bytes;
	int fd[2];
	uint8_t *at;
};

static void
keep_chunk(struct client *c, struct kept *k)
{
	char path[32];

	cr_assert_eq(
		CALL(c, GET_CHUNK, get_chunk, .chunk = KARST_CTL_CHUNK_UNSEALED), 0, "%s", c->why);
	k->chunk = RSP(c, get_chunk)->chunk;
	k->bytes = RSP(c, get_chunk)->bytes;
	k->fd[0] = c->fds[0];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", k->fd[0]);
	k->fd[1] = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(k->fd[1], 0);
	k->at = mmap(NULL, k->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, k->fd[0], 0);
	cr_assert_neq(k->at, MAP_FAILED);
}

static void
drop_kept(const struct kept *k)
{
	munmap(k->at, k->bytes);
	close(k->fd[0]);
	close(k->fd[1]);
}

static void
no_holes(const struct kept *k)
{
	uint8_t *twice = mremap(k->at, 0, k->bytes, MREMAP_MAYMOVE);
	unsigned int i;

	for (i = 0; i < 2; i++) {
		cr_assert(fallocate(k->fd[i], HOLE, 0, (off_t)k->bytes) < 0 && errno == EPERM);
		cr_assert(ftruncate(k->fd[i], 0) < 0 && errno == EPERM);
		cr_assert_eq(mmap(NULL, k->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, k->fd[i], 0),
			MAP_FAILED);
	}
	cr_assert(madvise(k->at, k->bytes, MADV_REMOVE) < 0 && errno == EPERM);
	cr_assert_neq(twice, MAP_FAILED);
	cr_assert(madvise(twice, k->bytes, MADV_REMOVE) < 0 && errno == EPERM);
	munmap(twice, k->bytes);
}

/* As long as a program can punch holes into a chunk, the chunk holds nothing, no lcore reads it,
 * and the program gets no objects. */
Test(session_seal, chunks_are_sealed_first)
{
	struct engine_bed_config cfg = {.engine.lcores = 1};
	struct karst_session_info was;
	uint32_t before, cqs;
	struct engine_bed bed;
	struct kept k[2];
	struct client *c;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	before = bells_of(&bed);
	c = client_open_raw(bed.e, NULL);
	cr_assert_eq(CALL(c, HELLO, hello, .program = "test", .abi = KARST_RING_ABI), 0);
	c->number = RSP(c, hello)->client;
	cr_assert_eq(RSP(c, hello)->nchunks, 1);
	karst_ctl_close_fds(c->fds, c->nfds);
	refused(c, -ENOBUFS, "chunk 0", CALL(c, ALLOC_PD, alloc_pd, .reserved = 0));
	refused(c, -ENOBUFS, "chunk 0", CALL(c, CREATE_CQ, create_cq, .entries = 8));
	refused(c, -EINVAL, "chunk 1", CALL(c, SEAL_CHUNK, seal_chunk, .chunk = 1));
	keep_chunk(c, &k[0]);
	cr_assert_eq(k[0].chunk, 0);
	cr_assert_eq(fallocate(k[0].fd[1], HOLE, 0, (off_t)k[0].bytes), 0);
	cr_assert_eq(bells_of(&bed), before);
	cr_assert_eq(CALL(c, SEAL_CHUNK, seal_chunk, .chunk = 0), 0, "%s", c->why);
	cr_assert_eq(bells_of(&bed), before + 1);
	no_holes(&k[0]);
	/* a second time: nothing happens */
	cr_assert_eq(CALL(c, SEAL_CHUNK, seal_chunk, .chunk = 0), 0, "%s", c->why);
	cr_assert_eq(bells_of(&bed), before + 1);
	refused(c, -EINVAL, "sealed",
		CALL(c, GET_CHUNK, get_chunk, .chunk = KARST_CTL_CHUNK_UNSEALED));
	/* a request that needs another chunk has changed nothing */
	cr_assert_eq(CALL(c, CREATE_CQ, create_cq, .entries = 8), 0, "%s", c->why);
	was = client_info(bed.e, c);
	cqs = bed.e->ncqs;
	refused(c, -ENOBUFS, "chunk 1", CALL(c, CREATE_CQ, create_cq, .entries = 100000));
	refused(c, -ENOBUFS, "chunk 1", CALL(c, CREATE_CQ, create_cq, .entries = 100000));
	cr_assert_eq(client_info(bed.e, c).cqs, was.cqs);
	cr_assert_eq(client_info(bed.e, c).ring_bytes, was.ring_bytes);
	cr_assert_eq(client_info(bed.e, c).refused, was.refused);
	cr_assert_eq(bed.e->ncqs, cqs);
	/* and a request that needs none succeeds */
	cr_assert_eq(CALL(c, CREATE_CQ, create_cq, .entries = 8), 0, "%s", c->why);
	cr_assert_eq(CALL(c, DESTROY_CQ, destroy_cq, .cq = RSP(c, create_cq)->cq), 0, "%s", c->why);
	keep_chunk(c, &k[1]);
	cr_assert_eq(k[1].chunk, 1);
	cr_assert_eq(CALL(c, SEAL_CHUNK, seal_chunk, .chunk = 1), 0, "%s", c->why);
	no_holes(&k[1]);
	cr_assert_eq(CALL(c, CREATE_CQ, create_cq, .entries = 100000), 0, "%s", c->why);
	cr_assert_eq(RSP(c, create_cq)->lanes.chunk, 1);
	client_close(c);
	drop_kept(&k[0]);
	drop_kept(&k[1]);
	engine_bed_down(&bed);
}

/* A program that forbids further seals, or ends without sealing the chunk, has got nothing. */
Test(session_seal, chunks_that_cannot_be_sealed)
{
	struct engine_bed_config cfg = {.engine.lcores = 1};
	struct engine_bed bed;
	struct client *c;
	struct kept k;
	uint32_t before;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	before = bells_of(&bed);
	c = client_open_raw(bed.e, NULL);
	cr_assert_eq(CALL(c, HELLO, hello, .program = "test", .abi = KARST_RING_ABI), 0);
	karst_ctl_close_fds(c->fds, c->nfds);
	keep_chunk(c, &k);
	cr_assert_eq(fcntl(k.fd[0], F_ADD_SEALS, F_SEAL_SEAL), 0);
	refused(c, -EPERM, "chunk 0", CALL(c, SEAL_CHUNK, seal_chunk, .chunk = 0));
	refused(c, -ENOBUFS, "chunk 0", CALL(c, CREATE_CQ, create_cq, .entries = 8));
	cr_assert_eq(bells_of(&bed), before);
	client_close(c);
	drop_kept(&k);
	cr_assert_eq(bells_of(&bed), before);
	cr_assert_eq(karst_session_list(bed.e, NULL, 0), 0);
	engine_bed_down(&bed);
}

/* --- large queues --- */

/* Where the engine has mapped a chunk. */
static uintptr_t
engines_mapping(const struct kept *k)
{
	unsigned long from, to, inode;
	uintptr_t at = 0;
	char line[256];
	struct stat st;
	FILE *f = fopen("/proc/self/maps", "re");

	cr_assert_not_null(f);
	cr_assert_eq(fstat(k->fd[0], &st), 0);
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) == 3 &&
			inode == st.st_ino && from != (uintptr_t)k->at)
			at = from;
	fclose(f);
	cr_assert_neq(at, 0);
	return at;
}

/* From now on an access to a missing page waits until the descriptor that this returns is closed;
 * the descriptor becomes readable when a thread waits. */
static int
hold_pages(uintptr_t at, uint64_t bytes)
{
	struct uffdio_register reg = {.range = {at, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MISSING_SHMEM};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ioctl(fd, UFFDIO_API, &api), 0);
	cr_assert_eq(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
	return fd;
}

static void *
make_large(void *arg)
{
	struct client *c = arg;

	CALL(c, CREATE_CQ, create_cq, .entries = 100000);
	return NULL;
}

/* Making the pages of a queue of the largest size takes milliseconds: the calls of other programs
 * do not wait for that.  Here it takes as long as the test likes. */
Test(session_seal, large_queues_keep_nobody_waiting)
{
	struct engine_bed_config cfg = {.engine.lcores = 1};
	struct client *c, *other;
	struct engine_bed bed;
	pthread_t thread;
	struct pollfd p;
	struct kept k;

	engine_bed_up(&bed, &cfg);
	c = client_open(bed.e, NULL);
	other = client_open(bed.e, NULL);
	c->maps = false;
	refused(c, -ENOBUFS, "chunk 1", CALL(c, CREATE_CQ, create_cq, .entries = 100000));
	keep_chunk(c, &k);
	cr_assert_eq(CALL(c, SEAL_CHUNK, seal_chunk, .chunk = k.chunk), 0, "%s", c->why);
	p = (struct pollfd){.fd = hold_pages(engines_mapping(&k), k.bytes), .events = POLLIN};
	cr_assert_eq(pthread_create(&thread, NULL, make_large, c), 0);
	cr_assert_eq(poll(&p, 1, -1), 1);
	client_pd(other);
	close(p.fd);
	pthread_join(thread, NULL);
	cr_assert_eq(c->status, 0, "%s", c->why);
	client_close(other);
	client_close(c);
	drop_kept(&k);
	engine_bed_down(&bed);
}
