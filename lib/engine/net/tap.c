/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The exception path: frames that are not RoCE go to the kernel by a tap interface with the port's
 * MAC address, including their tags; frames that the kernel sends there leave by the port.
 *
 *	lcore --- to_kernel[lcore] ---+
 *	lcore --- to_kernel[lcore] ---+--> thread --- write() --> tap
 *	home lcore <-- from_kernel ------- thread <-- read() ---- tap
 *
 * Reading and writing a tap are system calls, and writing runs the kernel's receive path; so a
 * separate thread does both, and frames are passed through single-producer, single-consumer rings.
 * They are copied into the ring: buffers of the pool stay with the lcores, and no lcore ever waits
 * for a thread that the kernel may have preempted.  If a ring to the kernel is full, frames are
 * lost and counted; if from_kernel is full, the thread stops reading the tap, and the kernel's own
 * queue fills.
 *
 * The thread sleeps when there is nothing to do.  An lcore that puts a frame into a ring afterwards
 * wakes it by an eventfd: the thread sets "asleep" and checks the rings again; the lcore publishes
 * the frame and reads "asleep".  Each has a full fence between its two steps, so at least one of
 * them sees the other.
 */
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <net/if_arp.h>
#include <rte_ether.h>
#include <rte_lcore.h>

#include "karst_hdr.h"
#include "port.h"

#define SLOTS     256u /* of each ring */
#define BURST     32u
#define FULL_MS   1 /* interval of checks while from_kernel is full */
#define MTU_USUAL 1500u

struct slot {
	uint32_t len;
	uint8_t frame[]; /* frame_max bytes, and one more, by which a longer frame is detected */
};

/* One producer, one consumer; tail and head are counters and are masked when used. */
struct frame_ring {
	_Atomic uint32_t tail karst_cache_aligned; /* the producer's */
	_Atomic uint32_t head karst_cache_aligned; /* the consumer's */
	uint32_t slot_bytes karst_cache_aligned;
	size_t bytes; /* size of this structure */
	uint8_t slots[] karst_cache_aligned;
};

struct eng_tap {
	struct karst_engine *e;
	uint8_t port;
	bool running;
	bool gone; /* its interface was deleted; used by its thread */
	int fd;
	int wake_fd;
	uint32_t frame_max;
	char name[IF_NAMESIZE];
	pthread_t thread;
	_Atomic bool stop;
	_Atomic bool asleep;
	_Atomic uint64_t lost;
	struct frame_ring *from_kernel;
	struct frame_ring *to_kernel[KARST_ENGINE_MAX_LCORES]; /* NULL: does not serve the port */
};

/* --- rings --- */

static struct frame_ring *
ring_create(uint32_t frame_max)
{
	uint32_t slot = RTE_ALIGN_CEIL((uint32_t)sizeof(struct slot) + frame_max + 1, 64u);
	size_t bytes = sizeof(struct frame_ring) + (size_t)SLOTS * slot;
	struct frame_ring *r = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (r == MAP_FAILED)
		return NULL;
	r->slot_bytes = slot;
	r->bytes = bytes;
	return r;
}

static void
ring_destroy(struct frame_ring *r)
{
	if (r != NULL)
		munmap(r, r->bytes);
}

/* The producer's next slot; NULL: the ring is full. */
static struct slot *
ring_free_slot(struct frame_ring *r)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	/* acquire, pairs with the release in ring_pop(): the slot has been read */
	if (tail - atomic_load_explicit(&r->head, memory_order_acquire) == SLOTS)
		return NULL;
	return (struct slot *)(void *)(r->slots + (size_t)(tail % SLOTS) * r->slot_bytes);
}

static void
ring_push(struct frame_ring *r)
{
	/* release, pairs with the acquire in ring_first(): the slot is written */
	atomic_store_explicit(&r->tail, atomic_load_explicit(&r->tail, memory_order_relaxed) + 1,
		memory_order_release);
}

/* The consumer's next slot; NULL: the ring is empty. */
static const struct slot *
ring_first(struct frame_ring *r)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	/* acquire, pairs with the release in ring_push() */
	if (atomic_load_explicit(&r->tail, memory_order_acquire) == head)
		return NULL;
	return (const struct slot *)(void *)(r->slots + (size_t)(head % SLOTS) * r->slot_bytes);
}

static void
ring_pop(struct frame_ring *r)
{
	/* release, pairs with the acquire in ring_free_slot() */
	atomic_store_explicit(&r->head, atomic_load_explicit(&r->head, memory_order_relaxed) + 1,
		memory_order_release);
}

/* --- lcores --- */

static void
tap_wake(struct eng_tap *t)
{
	const uint64_t one = 1;

	/* The frame is published before "asleep" is read; pairs with the fence in tap_doze(). */
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&t->asleep, memory_order_relaxed))
		return;
	/* relaxed: one of the lcores has to write, and it is harmless if two do */
	atomic_store_explicit(&t->asleep, false, memory_order_relaxed);
	if (write(t->wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: the thread has been woken often enough */
}

bool
eng_tap_put(struct eng_tap *t, uint32_t lcore, const struct rte_mbuf *m)
{
	struct frame_ring *r = t->to_kernel[lcore];
	struct slot *s = ring_free_slot(r);

	if (s == NULL || m->nb_segs != 1 || m->data_len > t->frame_max)
		return false;
	s->len = m->data_len;
	memcpy(s->frame, rte_pktmbuf_mtod(m, const void *), m->data_len);
	ring_push(r);
	tap_wake(t);
	return true;
}

static unsigned int
send_frames(struct eng_lcore *lc, struct eng_tap *t)
{
	const struct eng_txq *q = &lc->tx[t->port];
	unsigned int n = 0;

	/* Frames that the queue does not take stay in from_kernel, so that they do not block queue
	 * pairs. */
	while (n < BURST && q->n < ENG_PENDING / 2) {
		const struct slot *s = ring_first(t->from_kernel);
		struct rte_mbuf *m;

		if (s == NULL)
			break;
		m = rte_pktmbuf_alloc(lc->pool);
		if (m == NULL) {
			stat_add(&lc->stats.no_mbufs, 1);
			break;
		}
		memcpy(rte_pktmbuf_append(m, (uint16_t)s->len), s->frame, s->len);
		ring_pop(t->from_kernel);
		eng_tx_frame(lc, t->port, m);
		n++;
	}
	stat_add(&lc->stats.tap_tx, n);
	return n;
}

unsigned int
eng_tap_poll(struct eng_lcore *lc)
{
	uint32_t ports = lc->tapped;
	unsigned int n = 0;

	for (; ports != 0; ports &= ports - 1)
		n += send_frames(lc, lc->e->port[__builtin_ctz(ports)].tap);
	return n;
}

bool
eng_tap_waiting(const struct eng_lcore *lc)
{
	uint32_t ports = lc->tapped;

	for (; ports != 0; ports &= ports - 1)
		if (ring_first(lc->e->port[__builtin_ctz(ports)].tap->from_kernel) != NULL)
			return true;
	return false;
}

/* --- the thread --- */

static void
tap_lose(struct eng_tap *t)
{
	atomic_fetch_add_explicit(&t->lost, 1, memory_order_relaxed);
}

/* @return how many frames were written to the tap. */
static unsigned int
write_frames(struct eng_tap *t)
{
	unsigned int i, n = 0, k;

	for (i = 0; i < t->e->nlcores; i++) {
		struct frame_ring *r = t->to_kernel[i];
		const struct slot *s;

		for (k = 0; r != NULL && k < BURST && (s = ring_first(r)) != NULL; k++) {
			if (write(t->fd, s->frame, s->len) != (ssize_t)s->len)
				/* the interface is down, or the kernel has no memory */
				tap_lose(t);
			ring_pop(r);
			n++;
		}
	}
	return n;
}

static unsigned int
read_frames(struct eng_tap *t)
{
	unsigned int n;

	for (n = 0; n < BURST; n++) {
		struct slot *s = ring_free_slot(t->from_kernel);
		ssize_t len;

		if (s == NULL)
			break;
		len = read(t->fd, s->frame, t->frame_max + 1);
		if (len < 0)
			break;
		if (len < RTE_ETHER_HDR_LEN || len > (ssize_t)t->frame_max) {
			tap_lose(t);
			continue;
		}
		s->len = (uint32_t)len;
		ring_push(t->from_kernel);
	}
	if (n > 0)
		eng_lcore_wake(&t->e->lcore[t->e->port[t->port].home]);
	return n;
}

static bool
anything_to_write(struct eng_tap *t)
{
	unsigned int i;

	for (i = 0; i < t->e->nlcores; i++)
		if (t->to_kernel[i] != NULL && ring_first(t->to_kernel[i]) != NULL)
			return true;
	return false;
}

/* From now on, each poll() of the descriptor would return at once. */
static void
tap_is_gone(struct eng_tap *t)
{
	t->gone = true;
	karst_log(KARST_LOG_WARNING,
		"%s: port %u: the exception tap \"%s\" was deleted: its frames "
		"are lost until the port is added again",
		t->e->name, t->port, t->name);
}

static void
tap_doze(struct eng_tap *t)
{
	bool full = ring_free_slot(t->from_kernel) == NULL;
	struct pollfd p[2] = {{.fd = t->wake_fd, .events = POLLIN},
		{.fd = full || t->gone ? -1 : t->fd, .events = POLLIN}};
	uint64_t count;

	atomic_store_explicit(&t->asleep, true, memory_order_relaxed);
	/* Set before the rings are checked again; pairs with the fence in tap_wake(). */
	atomic_thread_fence(memory_order_seq_cst);
	if (!anything_to_write(t) && poll(p, 2, full ? FULL_MS : -1) > 0 &&
		(p[1].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0)
		tap_is_gone(t);
	atomic_store_explicit(&t->asleep, false, memory_order_relaxed);
	if (read(t->wake_fd, &count, sizeof(count)) < 0)
		return; /* woken by the tap */
}

static void *
tap_main(void *arg)
{
	struct eng_tap *t = arg;

	while (!atomic_load_explicit(&t->stop, memory_order_relaxed))
		if (write_frames(t) + read_frames(t) == 0)
			tap_doze(t);
	return NULL;
}

/* --- the interface --- */

static int
tap_failed(const struct eng_tap *t, const char *what)
{
	int err = errno;
	const char *hint = "";

	if (err == EPERM || err == EACCES)
		hint = " (CAP_NET_ADMIN is needed)";
	else if (err == EBUSY || err == EINVAL)
		hint = " (is there an interface of that name already?)";
	karst_log(KARST_LOG_ERR, "%s: port %u: exception tap \"%s\": %s: %s%s", t->e->name, t->port,
		t->name, what, strerror(err), hint);
	return -err;
}

static int
interface_open(struct eng_tap *t)
{
	struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI};

	t->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (t->fd < 0)
		return tap_failed(t, "/dev/net/tun");
	memcpy(ifr.ifr_name, t->name, sizeof(ifr.ifr_name));
	if (ioctl(t->fd, TUNSETIFF, &ifr) != 0)
		return tap_failed(t, "making the interface");
	return 0;
}

/* Sets the MAC address and the MTU, and sets the interface up. */
static int
interface_setup(struct eng_tap *t, const struct karst_engine_port_info *info)
{
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret = 0;
	struct ifreq ifr = {0};

	if (sock < 0)
		return tap_failed(t, "socket");
	memcpy(ifr.ifr_name, t->name, sizeof(ifr.ifr_name));
	ifr.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	memcpy(ifr.ifr_hwaddr.sa_data, info->mac, sizeof(info->mac));
	if (ioctl(sock, SIOCSIFHWADDR, &ifr) != 0)
		ret = tap_failed(t, "setting the MAC address");
	/* Other hosts on the link may not accept longer frames than usual. */
	ifr.ifr_mtu = (int)karst_min_u32(info->mtu, MTU_USUAL);
	if (ret == 0 && ioctl(sock, SIOCSIFMTU, &ifr) != 0)
		ret = tap_failed(t, "setting the MTU");
	if (ret == 0 && ioctl(sock, SIOCGIFFLAGS, &ifr) != 0)
		ret = tap_failed(t, "reading its flags");
	ifr.ifr_flags |= IFF_UP;
	if (ret == 0 && ioctl(sock, SIOCSIFFLAGS, &ifr) != 0)
		ret = tap_failed(t, "bringing it up");
	close(sock);
	return ret;
}

static int
tap_make_rings(struct eng_tap *t, uint64_t lcore_mask)
{
	uint32_t i;

	t->from_kernel = ring_create(t->frame_max);
	if (t->from_kernel == NULL)
		return -ENOMEM;
	for (i = 0; i < t->e->nlcores; i++) {
		if ((lcore_mask >> i & 1) == 0)
			continue;
		t->to_kernel[i] = ring_create(t->frame_max);
		if (t->to_kernel[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int
tap_start(struct eng_tap *t)
{
	char name[16];
	int ret;

	t->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (t->wake_fd < 0)
		return tap_failed(t, "eventfd");
	snprintf(name, sizeof(name), "karst-tap%u", t->port);
	/* Not on the processors of EAL's lcores. */
	ret = rte_ctrl_thread_create(&t->thread, name, NULL, tap_main, t);
	if (ret != 0) {
		errno = ret < 0 ? -ret : ret;
		return tap_failed(t, "starting its thread");
	}
	t->running = true;
	return 0;
}

int
eng_tap_create(struct karst_engine *e, uint8_t port, const char *name, struct eng_tap **tap)
{
	const struct karst_engine_port_info *info = &e->port[port].info;
	struct eng_tap *t = calloc(1, sizeof(*t));
	int ret;

	if (t == NULL)
		return -ENOMEM;
	t->e = e;
	t->port = port;
	t->fd = t->wake_fd = -1;
	t->frame_max = info->mtu + KARST_ETH_LEN + 2 * KARST_VLAN_LEN;
	snprintf(t->name, sizeof(t->name), "%s", name);
	ret = tap_make_rings(t, info->lcore_mask);
	if (ret == 0)
		ret = interface_open(t);
	if (ret == 0)
		ret = interface_setup(t, info);
	if (ret == 0)
		ret = tap_start(t);
	if (ret != 0) {
		eng_tap_destroy(t);
		return ret;
	}
	*tap = t;
	return 0;
}

void
eng_tap_destroy(struct eng_tap *t)
{
	const uint64_t one = 1;
	unsigned int i;

	if (t == NULL)
		return;
	if (t->running) {
		atomic_store_explicit(&t->stop, true, memory_order_relaxed);
		if (write(t->wake_fd, &one, sizeof(one)) < 0)
			assert(errno == EAGAIN); /* the counter is full of wake-ups: the thread
						  * wakes */
		pthread_join(t->thread, NULL);
	}
	if (t->fd >= 0)
		close(t->fd);
	if (t->wake_fd >= 0)
		close(t->wake_fd);
	ring_destroy(t->from_kernel);
	for (i = 0; i < KARST_ENGINE_MAX_LCORES; i++)
		ring_destroy(t->to_kernel[i]);
	free(t);
}

void
eng_tap_carrier(struct eng_tap *t, bool up)
{
	int carrier = up;

	/* Older kernels do not support this; the interface then always seems to have a link. */
	(void)ioctl(t->fd, TUNSETCARRIER, &carrier);
}

uint64_t
eng_tap_lost(const struct eng_tap *t)
{
	return atomic_load_explicit(&t->lost, memory_order_relaxed);
}
