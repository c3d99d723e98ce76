/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory that comes late, or never: regions on demand over a file of a file system that the program
 * serves itself.  Its queue pairs write into that memory, read it and send from it.  A page that
 * comes after 0.9 ms, or after 100 ms, holds up that program alone; one that never comes ends it.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE      4096u
#define PAGES     16384u
#define NEVER     UINT32_MAX
#define MESSAGE   (1u << 17)
#define FILE_NODE 2
/* Of a program whose pages come, beside innocents: a second or two. */
#define LATE_OPS(delay_us) ((delay_us) < 10000 ? 512u : 16u)

struct start {
	const struct host *host;
	uint32_t delay_us;
};

/* --- a file system of one file --- */

struct fs {
	int fd;
	uint32_t delay_us;
};

static void
answer(const struct fs *fs, const struct fuse_in_header *in, int error, const void *body,
	size_t len)
{
	struct fuse_out_header h = {
		.len = (uint32_t)(sizeof(h) + len), .error = -error, .unique = in->unique};
	struct iovec v[2] = {{&h, sizeof(h)}, {(void *)(uintptr_t)body, len}};

	/* who asked may have gone */
	if (writev(fs->fd, v, len > 0 ? 2 : 1) < 0)
		return;
}

static struct fuse_attr
attr_of(uint64_t node)
{
	if (node != FILE_NODE)
		return (struct fuse_attr){.ino = node, .mode = S_IFDIR | 0755, .nlink = 2};
	return (struct fuse_attr){.ino = node,
		.mode = S_IFREG | 0600,
		.nlink = 1,
		.size = (uint64_t)PAGES * PAGE,
		.blksize = PAGE};
}

static void
serve_read(struct fs *fs, const struct fuse_in_header *in, const struct fuse_read_in *r)
{
	static const uint8_t zeros[MESSAGE];
	const struct timespec t = {
		.tv_sec = fs->delay_us / 1000000, .tv_nsec = (long)(fs->delay_us % 1000000) * 1000};

	if (fs->delay_us == NEVER)
		return;
	nanosleep(&t, NULL);
	answer(fs, in, 0, zeros, r->size < sizeof(zeros) ? r->size : sizeof(zeros));
}

static void
serve_one(struct fs *fs, const struct fuse_in_header *in)
{
	const void *body = in + 1;

	switch (in->opcode) {
	case FUSE_INIT: {
		const struct fuse_init_in *i = body;
		const struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
			.minor = FUSE_KERNEL_MINOR_VERSION,
			.max_readahead = 0,
			.flags = i->flags & FUSE_BIG_WRITES,
			.max_write = MESSAGE / 2};

		answer(fs, in, 0, &out, sizeof(out));
		return;
	}
	case FUSE_LOOKUP: {
		const struct fuse_entry_out out = {.nodeid = FILE_NODE,
			.entry_valid = 3600,
			.attr_valid = 3600,
			.attr = attr_of(FILE_NODE)};

		answer(fs, in, 0, &out, sizeof(out));
		return;
	}
	case FUSE_GETATTR: {
		const struct fuse_attr_out out = {.attr_valid = 3600, .attr = attr_of(in->nodeid)};

		answer(fs, in, 0, &out, sizeof(out));
		return;
	}
	case FUSE_OPEN: {
		const struct fuse_open_out out = {.fh = 1, .open_flags = FOPEN_KEEP_CACHE};

		answer(fs, in, 0, &out, sizeof(out));
		return;
	}
	case FUSE_READ:
		serve_read(fs, in, body);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_ACCESS:
		answer(fs, in, 0, NULL, 0);
		return;
	default:
		answer(fs, in, ENOSYS, NULL, 0);
	}
}

static void *
serve(void *arg)
{
	static _Alignas(8) uint8_t buf[MESSAGE + PAGE];
	struct fs *fs = arg;
	ssize_t n;

	while ((n = read(fs->fd, buf, sizeof(buf))) > 0 || errno == EINTR || errno == EAGAIN ||
		errno == ENOENT)
		if (n >= (ssize_t)sizeof(struct fuse_in_header))
			serve_one(fs, (const struct fuse_in_header *)buf);
	return NULL;
}

static bool
put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* Mounts it where nobody else sees it.  NULL: its memory. */
static const char *
mount_it(struct fs *fs, const char *folder)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	char text[128];

	if (unshare(CLONE_NEWNS | (uid != 0 ? CLONE_NEWUSER : 0)) != 0)
		return "unshare";
	snprintf(text, sizeof(text), "%u %u 1", (unsigned int)uid, (unsigned int)uid);
	if (uid != 0 && !put("/proc/self/uid_map", text))
		return "uid_map";
	fs->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fs->fd < 0)
		return "/dev/fuse";
	snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fs->fd,
		(unsigned int)uid, (unsigned int)gid);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		mount("late", folder, "fuse.late", MS_NOSUID | MS_NODEV, text) != 0)
		return "mount";
	return NULL;
}

static uint8_t *
late_memory(struct report *r, struct fs *fs)
{
	char folder[] = "/tmp/karst-late-XXXXXX", path[64];
	const char *fault;
	pthread_t t;
	void *p;
	int fd;

	if (mkdtemp(folder) == NULL)
		child_fail(r, "%s: %s", folder, strerror(errno));
	fault = mount_it(fs, folder);
	if (fault != NULL)
		child_fail(r, "%s: %s", fault, strerror(errno));
	if (pthread_create(&t, NULL, serve, fs) != 0)
		child_fail(r, "no thread");
	snprintf(path, sizeof(path), "%s/file", folder);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		child_fail(r, "%s: %s", path, strerror(errno));
	p = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED || madvise(p, (size_t)PAGES * PAGE, MADV_RANDOM) != 0)
		child_fail(r, "mmap: %s", strerror(errno));
	/* at the end of the process nobody would answer what closing it asks */
	close(fd);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
	return p;
}

/* --- the program --- */

static void
connect_ends(struct report *r, const struct host *h, struct end *a, struct end *b, uint8_t *late)
{
	unsigned int access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE |
		KARST_ACCESS_REMOTE_READ | KARST_ACCESS_REMOTE_ATOMIC;

	if (end_open(a, h, "late a", 8 * PAGE, false) != 0 ||
		end_open(b, h, "late b", 8 * PAGE, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	if (karst_dereg_mr(b->mr) != 0 ||
		karst_reg_mr(b->pd, late, (size_t)PAGES * PAGE, access | KARST_ACCESS_ON_DEMAND,
			&b->mr) != 0)
		child_fail(r, "memory on demand: %s", karst_why());
	b->mem = late;
	if (end_qp(a, KARST_QPT_RC) != 0 || end_qp(b, KARST_QPT_RC) != 0 ||
		end_connect(b, a->qp->qp_num) != 0 || end_connect(a, b->qp->qp_num) != 0)
		child_fail(r, "connecting: %s", karst_why());
}

/* Page after page, written, read, sent from, added to. */
static int
post(struct end *a, struct end *b, uint32_t i)
{
	size_t page = (size_t)(i % PAGES) * PAGE;

	switch (i % 4) {
	case 0:
		return end_post(a, KARST_WR_RDMA_WRITE, i, 0, 64, b, page + 100);
	case 1:
		return end_post(a, KARST_WR_RDMA_READ, i, 0, 64, b, page);
	case 2:
		return end_post(b, KARST_WR_RDMA_WRITE, i, page, 64, a, 0);
	default:
		return end_post(a, KARST_WR_ATOMIC_FAA, i, 0, 8, b, page + 8);
	}
}

static void
late(struct report *r, void *arg)
{
	const struct start *s = arg;
	static struct fs fs;
	struct end a, b;
	uint32_t posted = 0, done = 0;
	uint8_t *mem;

	fs.delay_us = s->delay_us;
	mem = late_memory(r, &fs);
	connect_ends(r, s->host, &a, &b, mem);
	while (!atomic_load(&r->stop)) {
		struct karst_cqe cqe[16];
		int i, n;

		if (posted - done < 16 && post(&a, &b, posted) == 0)
			posted++;
		n = karst_poll_cq(a.cq, 16, cqe);
		if (n <= 0)
			n = karst_poll_cq(b.cq, 16, cqe);
		for (i = 0; i < n; i++) {
			atomic_fetch_add(&r->ops, cqe[i].status == KARST_WC_SUCCESS);
			if (cqe[i].status != KARST_WC_SUCCESS && s->delay_us != NEVER)
				child_fail(r, "%s",
					karst_wc_status_str((enum karst_wc_status)cqe[i].status));
			if (cqe[i].status != KARST_WC_SUCCESS)
				atomic_store(&r->ready, true);
			done++;
		}
		sleep_ms(0);
	}
	_exit(0);
}

/* --- the case --- */

static bool
start_late(struct child *c, const struct start *s)
{
	return child_start(c, late, (void *)(uintptr_t)s);
}

static bool
until_ready(struct child *c)
{
	uint64_t until = now_ms() + HANG_S * 1000;

	while (child_alive(c) && !atomic_load(&c->report->ready) && now_ms() < until)
		sleep_ms(2);
	if (atomic_load(&c->report->ready))
		return true;
	note("late program: %s", c->report->fault[0] != '\0' ? c->report->fault : "nothing failed");
	return false;
}

static bool
enough(const struct child *c, uint32_t delay_us)
{
	return delay_us == NEVER ? atomic_load(&c->report->ready)
				 : atomic_load(&c->report->ops) >= LATE_OPS(delay_us);
}

/* Innocents go on beside a program whose pages take @delay_us. */
static bool
beside(const struct options *o, struct innocents *in, uint32_t delay_us)
{
	const struct start s = {.host = in->host, .delay_us = delay_us};
	uint64_t began = now_ms(), until = began + 1000ull * o->seconds;
	long turns = host_ask(in->host, "/karst/lcores", "turns");
	struct child c;
	bool good;

	if (!start_late(&c, &s))
		return false;
	good = innocents_go_on(in);
	while (good && (o->seconds != 0 ? now_ms() < until : !enough(&c, delay_us))) {
		good = innocents_go_on(in) && child_alive(&c) &&
			now_ms() - began < HANG_S * 1000 + 1000ull * o->seconds;
		sleep_ms(1);
	}
	if (delay_us == NEVER)
		good = good && until_ready(&c);
	note("pages after %d us: %llu operations of the late program, %ld turns of the lcore",
		(int)delay_us, (unsigned long long)atomic_load(&c.report->ops),
		host_ask(in->host, "/karst/lcores", "turns") - turns);
	good &= delay_us == NEVER || atomic_load(&c.report->ops) > 0;
	if (delay_us == NEVER && host_ask(in->host, "/karst/lcores", "overdue_programs") < 1) {
		note("nobody was overdue");
		good = false;
	}
	return child_stop(&c, "late program") && good;
}

/* One round beside innocents. */
static bool
round_of(const struct options *o, struct host *h)
{
	struct innocents in;
	bool good = innocents_start(&in, h, o->seed) && beside(o, &in, 900) &&
		beside(o, &in, 100000) && beside(o, &in, NEVER) && innocents_go_on(&in);

	return innocents_stop(&in) && good;
}

bool
case_late(const struct options *o)
{
	struct usage before;
	struct host h;
	bool good;

	if (access("/dev/fuse", R_OK | W_OK) != 0) {
		note("no /dev/fuse");
		return true;
	}
	if (!host_up(&h, o->karstd))
		return false;
	/* what threads once needed stays for the next ones */
	good = round_of(o, &h);
	sleep_ms(3000);
	host_usage(&h, &before);
	good = good && round_of(o, &h) && host_settles(&h, &before, o->grown) && host_stop(&h);
	if (host_alive(&h))
		host_kill(&h);
	if (good)
		host_remove(&h);
	return good;
}

/* --- threads for many --- */

#define CROWD 8
#define STAY  3
/* One drives, one is there to take over, and one copies for each who is still late. */
#define CREW (2 + STAY)

static bool
until_threads(const struct host *h, struct child *c, long from, long to)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	long n = -1;

	while (child_alive(c) && now_ms() < until) {
		n = host_threads(h, "karst-lcore-0");
		if (n >= from && n <= to)
			return true;
		sleep_ms(2);
	}
	note("lcore 0 has %ld threads, and not %ld to %ld: %s", n, from, to, c->report->fault);
	return false;
}

/* Threads that many programs needed go, though some of these go on. */
bool
case_couriers(const struct options *o)
{
	struct child c[CROWD] = {{0}};
	struct host h;
	struct start s = {.host = &h, .delay_us = 900};
	bool good = true;
	int i;

	if (access("/dev/fuse", R_OK | W_OK) != 0) {
		note("no /dev/fuse");
		return true;
	}
	if (!host_up(&h, o->karstd))
		return false;
	for (i = 0; i < CROWD; i++)
		good = good && start_late(&c[i], &s);
	good = good && until_threads(&h, &c[0], CREW + 2, LONG_MAX);
	for (i = STAY; i < CROWD; i++)
		good = c[i].pid != 0 && child_stop(&c[i], "late program") && good;
	good = good && until_threads(&h, &c[0], 1, CREW);
	for (i = 0; i < STAY; i++)
		good = c[i].pid != 0 && child_stop(&c[i], "late program") && good;
	good &= host_stop(&h);
	if (good)
		host_remove(&h);
	return good;
}
