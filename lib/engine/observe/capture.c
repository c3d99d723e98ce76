/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Packet capture: the writer, and the life cycle of a capture (capture.h).
 *
 * Security: the commands come by the telemetry socket, which only the engine's user can open.  Even
 * so they can only name files in one directory that do not exist yet: O_EXCL does not follow links.
 */
#include "capture.h"
#include "object.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>

#include "karst_realtime.h"

#define WRITE_BURST 64u
#define NAP_NS      2000000

struct eng_capture {
	struct eng_capture_ring ring; /* of the lcore, and the part that both share */
	_Atomic bool stop;
	_Atomic bool ended;

	/* of the writer */
	struct karst_engine *e;
	struct eng_lcore *lc;
	struct eng_capture_config cfg;
	pthread_t thread;
	FILE *f;
	uint64_t frames; /* these two are read by others */
	uint64_t bytes;
	uint64_t start_ns; /* on the engine's clock */
	struct karst_realtime time;
	uint32_t nports;
	/* of each port, from 1; 0: not in the file yet */
	uint8_t interface[KARST_ENGINE_MAX_PORTS];
	uint64_t seen[KARST_ENGINE_MAX_PORTS];
	char path[PATH_MAX];
	char why[CAPTURE_WHY]; /* set before ended */
};

/* --- the writer --- */

static uint64_t
capture_since_1970(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Reads the clocks again, so that times are exact however long the capture has been running. */
static void
capture_read_clocks(struct eng_capture *c)
{
	uint64_t tsc, ns;

	karst_realtime_read(rte_rdtsc, capture_since_1970, &tsc, &ns);
	karst_realtime_pair(&c->time, tsc, ns);
}

/* The interface of @port in the file, created with its first frame. */
static uint32_t
interface_of(struct eng_capture *c, uint8_t port)
{
	struct karst_engine_port_info info;
	char name[40];

	if (c->interface[port] != 0)
		return c->interface[port] - 1u;
	if (karst_engine_port_info(c->e, port, &info) != 0)
		memset(&info, 0, sizeof(info)); /* it was removed meanwhile */
	if (info.name[0] != '\0')
		snprintf(name, sizeof(name), "%s", info.name);
	else
		snprintf(name, sizeof(name), "port%u", port);
	eng_pcapng_interface(c->f, name, c->e->port[port].name, info.mac, c->ring.snaplen);
	c->interface[port] = (uint8_t)++c->nports;
	return c->interface[port] - 1u;
}

static void
write_slot(struct eng_capture *c, const struct eng_capture_slot *s)
{
	const struct pcapng_packet p = {
		.interface = interface_of(c, s->port),
		.time_ns = karst_realtime_at(&c->time, s->tsc),
		.len = s->len,
		.have = s->have,
		.direction = s->out ? PCAPNG_OUT : PCAPNG_IN,
		.data = s->data,
	};

	eng_pcapng_packet(c->f, &p);
	c->seen[s->port]++;
}

/* Writes frames from the ring, up to a budget.  @return how many. */
static uint32_t
capture_drain(struct eng_capture *c)
{
	uint32_t head = atomic_load_explicit(&c->ring.shared_head, memory_order_relaxed);
	/* acquire, pairs with the release in capture_take() */
	uint32_t tail = atomic_load_explicit(&c->ring.shared_tail, memory_order_acquire);
	uint32_t i, n = karst_min_u32(tail - head, WRITE_BURST);

	capture_read_clocks(c);
	for (i = 0; i < n; i++)
		write_slot(c, eng_capture_slot_at(&c->ring, head + i));
	/* release, pairs with the acquire in capture_take() */
	atomic_store_explicit(&c->ring.shared_head, head + n, memory_order_release);
	stat_add(&c->frames, n);
	if (n > 0)
		__atomic_store_n(&c->bytes, (uint64_t)ftello(c->f), __ATOMIC_RELAXED);
	return n;
}

/* Why the capture shall end, or NULL. */
static const char *
reason_to_end(const struct eng_capture *c)
{
	if (ferror(c->f))
		return "the file cannot be written";
	if (atomic_load_explicit(&c->stop, memory_order_relaxed))
		return "stopped";
	if (c->cfg.count != 0 && c->frames >= c->cfg.count)
		return "count reached";
	if (c->bytes >= c->cfg.bytes)
		return "bytes reached";
	if (engine_now(c->e) - c->start_ns >= c->cfg.seconds * 1000000000)
		return "time is up";
	return NULL;
}

static int
detach_on_lcore(struct eng_lcore *lc, void *arg)
{
	lc->capture = NULL;
	return 0;
}

/* Writes the frames that are left in the ring, within the limits of the file, and the
 * statistics. */
static void
capture_finish(struct eng_capture *c)
{
	uint32_t port;

	while (!ferror(c->f) && c->bytes < c->cfg.bytes && capture_drain(c) > 0)
		;
	for (port = 0; port < KARST_ENGINE_MAX_PORTS; port++) {
		if (c->interface[port] == 0)
			continue;
		/* drops are not counted by port: the first port gets all */
		eng_pcapng_statistics(c->f, c->interface[port] - 1u,
			karst_realtime_at(&c->time, rte_rdtsc()), c->seen[port],
			c->interface[port] == 1 ? c->ring.dropped : 0);
	}
}

static void *
capture_writer(void *arg)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	struct eng_capture *c = arg;
	const char *why;

	while ((why = reason_to_end(c)) == NULL) {
		if (capture_drain(c) > 0)
			continue;
		/* so that readers that follow the file see it at once */
		fflush(c->f);
		nanosleep(&nap, NULL);
	}
	eng_mailbox_call(c->lc, detach_on_lcore, NULL);
	capture_finish(c);
	if (fflush(c->f) != 0 || ferror(c->f))
		why = "the file cannot be written";
	__atomic_store_n(&c->bytes, (uint64_t)ftello(c->f), __ATOMIC_RELAXED);
	snprintf(c->why, sizeof(c->why), "%s", why);
	karst_log(KARST_LOG_INFO, "%s: capture of QP %u ended: %s", c->e->name, c->ring.qpn, why);
	/* release, pairs with the acquire in eng_capture_status() */
	atomic_store_explicit(&c->ended, true, memory_order_release);
	return NULL;
}

/* --- life cycle --- */

static bool
name_ok(const char *name)
{
	static const char chars[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

	return name[0] != '\0' && name[0] != '.' && name[0] != '-' &&
		strlen(name) <= CAPTURE_NAME_MAX && strspn(name, chars) == strlen(name);
}

static int
open_file(struct eng_capture *c, char why[CAPTURE_WHY])
{
	const char *dir =
		c->e->cfg.capture_dir != NULL ? c->e->cfg.capture_dir : rte_eal_get_runtime_dir();
	char made_up[CAPTURE_NAME_MAX];
	const char *name = c->cfg.file;
	int fd, at;

	if (name == NULL) {
		snprintf(made_up, sizeof(made_up), "%s-qp%u-%llx.pcapng", c->e->name, c->ring.qpn,
			(unsigned long long)c->start_ns);
		name = made_up;
	}
	if (!name_ok(name)) {
		snprintf(why, CAPTURE_WHY,
			"file: a name of up to %u letters, digits, '.', '_' and '-', without a path; "
			"it is made in %s",
			CAPTURE_NAME_MAX, dir);
		return -EINVAL;
	}
	snprintf(c->path, sizeof(c->path), "%s/%s", dir, name);
	at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = at < 0 ? -1
		    : openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	c->f = fd < 0 ? NULL : fdopen(fd, "wb");
	if (c->f == NULL) {
		int ret = -errno;

		snprintf(why, CAPTURE_WHY, "%.200s: %s", c->path, strerror(-ret));
		if (fd >= 0)
			close(fd);
		if (at >= 0)
			close(at);
		return ret;
	}
	close(at);
	return 0;
}

static void
capture_free(struct eng_capture *c)
{
	if (c->f != NULL)
		fclose(c->f);
	if (c->ring.slots != NULL)
		munmap(c->ring.slots, (size_t)ENG_CAPTURE_SLOTS * c->ring.stride);
	free(c);
}

static int
ring_alloc(struct eng_capture *c)
{
	void *p;

	c->ring.stride = (uint32_t)(sizeof(struct eng_capture_slot) + c->ring.snaplen + 63) & ~63u;
	p = mmap(NULL, (size_t)ENG_CAPTURE_SLOTS * c->ring.stride, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	c->ring.slots = p;
	return 0;
}

static struct eng_capture *
capture_new(struct karst_engine *e, const struct eng_capture_config *cfg, char why[CAPTURE_WHY])
{
	struct eng_capture *c = aligned_alloc(KARST_CACHE_LINE, sizeof(*c));
	uint64_t tsc, ns;

	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->e = e;
	c->cfg = *cfg;
	c->ring.qpn = cfg->qpn;
	c->ring.snaplen = cfg->snaplen;
	c->ring.left = cfg->count != 0 ? cfg->count : UINT64_MAX;
	c->lc = lcore_of_qpn(e, cfg->qpn); /* the caller has found the QP there */
	c->start_ns = engine_now(e);
	karst_realtime_read(rte_rdtsc, capture_since_1970, &tsc, &ns);
	karst_realtime_init(&c->time, rte_get_tsc_hz(), tsc, ns);
	if (ring_alloc(c) != 0) {
		snprintf(why, CAPTURE_WHY, "no memory for a ring of %u frames", ENG_CAPTURE_SLOTS);
		free(c);
		return NULL;
	}
	return c;
}

static int
attach_on_lcore(struct eng_lcore *lc, void *arg)
{
	lc->capture = arg;
	return 0;
}

static int
capture_run(struct eng_capture *c, char why[CAPTURE_WHY])
{
	char comment[80];
	int ret = open_file(c, why);

	if (ret != 0)
		return ret;
	snprintf(comment, sizeof(comment), "queue pair %u of engine %s", c->ring.qpn, c->e->name);
	eng_pcapng_section(c->f, "karst", comment);
	eng_mailbox_call(c->lc, attach_on_lcore, &c->ring);
	ret = -rte_ctrl_thread_create(&c->thread, "karst-capture", NULL, capture_writer, c);
	if (ret != 0) {
		snprintf(why, CAPTURE_WHY, "no thread for it: %s", strerror(abs(ret)));
		eng_mailbox_call(c->lc, detach_on_lcore, NULL);
		unlink(c->path);
		return -abs(ret);
	}
	return 0;
}

int
eng_capture_start(
	struct karst_engine *e, const struct eng_capture_config *cfg, char why[CAPTURE_WHY])
{
	struct eng_qp_report report;
	struct eng_capture *c;
	int ret;

	if (e->capture != NULL && !atomic_load_explicit(&e->capture->ended, memory_order_acquire)) {
		snprintf(why, CAPTURE_WHY, "a capture of QP %u is running; there is one at a time",
			e->capture->ring.qpn);
		return -EBUSY;
	}
	ret = eng_qp_by_number(e, cfg->qpn, &report);
	if (ret != 0) {
		snprintf(why, CAPTURE_WHY, "%s has no queue pair %u", e->name, cfg->qpn);
		return ret;
	}
	c = capture_new(e, cfg, why);
	if (c == NULL)
		return -ENOMEM;
	ret = capture_run(c, why);
	if (ret != 0) {
		capture_free(c);
		return ret;
	}
	eng_capture_stop(e, NULL); /* the previous one, which has ended */
	e->capture = c;
	karst_log(KARST_LOG_NOTICE, "%s: capture of QP %u into %s", e->name, c->ring.qpn, c->path);
	return 0;
}

int
eng_capture_status(const struct karst_engine *e, struct eng_capture_status *st)
{
	const struct eng_capture *c = e->capture;

	if (c == NULL)
		return -ENOENT;
	memset(st, 0, sizeof(*st));
	/* acquire, pairs with the release in capture_writer(): the reason is written */
	st->running = !atomic_load_explicit(&c->ended, memory_order_acquire);
	st->qpn = c->ring.qpn;
	st->frames = __atomic_load_n(&c->frames, __ATOMIC_RELAXED);
	st->bytes = __atomic_load_n(&c->bytes, __ATOMIC_RELAXED);
	st->dropped = __atomic_load_n(&c->ring.dropped, __ATOMIC_RELAXED);
	snprintf(st->path, sizeof(st->path), "%s", c->path);
	if (!st->running)
		snprintf(st->ended, sizeof(st->ended), "%s", c->why);
	return 0;
}

int
eng_capture_stop(struct karst_engine *e, struct eng_capture_status *status)
{
	struct eng_capture *c = e->capture;

	if (c == NULL)
		return -ENOENT;
	atomic_store_explicit(&c->stop, true, memory_order_relaxed);
	pthread_join(c->thread, NULL);
	if (status != NULL)
		eng_capture_status(e, status);
	e->capture = NULL;
	capture_free(c);
	return 0;
}
