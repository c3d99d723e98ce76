/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * net_virtio_user: the port is the guest's end of vhost-user.  Its backend, a switch in another
 * process, may disappear and return.
 *
 * The driver of DPDK 22.11 does not support that.  While it creates its device, it waits for a
 * backend without limit.  As a client it never connects again.  As a server it accepts the next
 * backend in the thread that asks for the link, or in EAL's interrupt thread; there it leaves a
 * callback with a descriptor that is closed later, and EAL then ends the process.  A backend that
 * connects and sends nothing blocks any thread that asks for the link.  And if a backend does not
 * respond correctly, what the driver has opened for it stays open.
 *
 * So connections are made here, without waiting, and the driver is always a client, which gets its
 * connection through karst_engine_connects().  When the backend disappears, the port is removed
 * like an adapter that is unplugged, and the device is created anew for the next backend.  A
 * missing answer ends the connection: recv() is overridden here, too.  The driver sets alarms, for
 * the interrupt thread, to remove a callback that it only has if link interrupts are used; the
 * device may be gone by then.  So rte_eal_alarm_set() is overridden for this driver, and sets no
 * alarm.
 *
 * The wait for a backend that disappears again and again, or does not use the protocol correctly,
 * becomes longer each time.
 *
 * Paths of a kernel device (/dev/vhost-net) are left to the driver.
 */
#include "port_kind.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ether.h>

#include "few_drivers.h"
#include "karst_log.h"
#include "log.h"

#define VIRTIO_DEVICE  "net_virtio_user"
#define VIRTIO_LIBRARY "librte_net_virtio"
#define ANSWER_US      500000 /* the daemon's thread waits meanwhile */
#define WAIT_MOST      30u    /* calls of virtio_follow() */
#define MAX_EVENTS     64u
#define VIRTIO_ARGS    (KD_TEXT + 32u)

/* --- resources of the driver --- */

/* Valid while the driver creates a device; used by that thread. */
struct virtio_making {
	int peer; /* its connection, whose descriptor belongs to this file */
	int fd;   /* and the driver's descriptor; -1: none yet */
	uint32_t nevents;
	struct {
		int fd;
		uint64_t id;
	} event[MAX_EVENTS];
};

static _Thread_local struct virtio_making *virtio_making;

static bool
virtio_is_caller(const void *code)
{
	Dl_info where;

	return dladdr(code, &where) != 0 && where.dli_fname != NULL &&
		strstr(where.dli_fname, VIRTIO_LIBRARY) != NULL;
}

/* Returns a number that is unique for each eventfd. 0: it is not an eventfd. */
static uint64_t
virtio_event_id(int fd)
{
	uint64_t id = 0;
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (f == NULL)
		return 0;
	/* starts at 1 here; the kernel starts at 0 */
	while (id == 0 && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "eventfd-id: %" SCNu64, &id) == 1)
			id++;
	fclose(f);
	return id;
}

/* Overrides functions that the driver calls by these names; as in lib/engine/net/intr_unmap.c. */
__attribute__((weak, visibility("default"))) int virtio_eventfd(
	unsigned int value, int flags) __asm__("eventfd");
__attribute__((weak, visibility("default"))) ssize_t virtio_recv(
	int fd, void *buf, size_t len, int flags) __asm__("recv");
__attribute__((weak, visibility("default"))) int virtio_alarm_set(
	uint64_t us, rte_eal_alarm_callback fn, void *arg) __asm__("rte_eal_alarm_set");

/* Replaces the driver's connect(). */
static int
virtio_connect(void *arg, int fd)
{
	struct virtio_making *m = arg;

	if (dup3(m->peer, fd, O_CLOEXEC) < 0)
		return -1;
	m->fd = fd;
	return 0;
}

int
virtio_eventfd(unsigned int value, int flags)
{
	int fd = (int)syscall(SYS_eventfd2, value, flags);
	struct virtio_making *m = virtio_making;

	if (m != NULL && fd >= 0 && m->nevents < MAX_EVENTS) {
		m->event[m->nevents].fd = fd;
		m->event[m->nevents++].id = virtio_event_id(fd);
	}
	return fd;
}

ssize_t
virtio_recv(int fd, void *buf, size_t len, int flags)
{
	ssize_t n = recvfrom(fd, buf, len, flags, NULL, NULL);

	if (n < 0 && errno == EAGAIN && (flags & MSG_DONTWAIT) == 0 &&
		virtio_is_caller(__builtin_return_address(0))) {
		/* ends the connection, so that no thread waits for it again */
		shutdown(fd, SHUT_RDWR);
		errno = EAGAIN;
	}
	return n;
}

int
virtio_alarm_set(uint64_t us, rte_eal_alarm_callback fn, void *arg)
{
	int (*of_eal)(uint64_t, rte_eal_alarm_callback, void *);

	if (virtio_is_caller(__builtin_return_address(0)))
		return 0;
	*(void **)&of_eal = dlsym(RTLD_NEXT, "rte_eal_alarm_set");
	return of_eal(us, fn, arg);
}

/* Closes what the driver has left open. */
static void
virtio_sweep(const struct virtio_making *m)
{
	struct stat mine, its;
	uint32_t i;

	if (m->fd >= 0 && fstat(m->peer, &mine) == 0 && fstat(m->fd, &its) == 0 &&
		mine.st_dev == its.st_dev && mine.st_ino == its.st_ino)
		close(m->fd);
	for (i = 0; i < m->nevents; i++)
		if (m->event[i].id != 0 && virtio_event_id(m->event[i].fd) == m->event[i].id)
			close(m->event[i].fd);
}

/* --- messages of the driver --- */

static const char *const virtio_logs[] = {
	"pmd.net.virtio.init", "pmd.net.virtio.driver", "lib.eal"};

struct virtio_hush {
	struct kd_hush of[KARST_DIM(virtio_logs)];
};

/* The driver and EAL log messages of their own, several each time, for events that are logged
 * here. */
static void
virtio_hush(struct virtio_hush *h)
{
	size_t i;

	for (i = 0; i < KARST_DIM(virtio_logs); i++)
		kd_log_hush(&h->of[i], virtio_logs[i]);
}

static void
virtio_speak(const struct virtio_hush *h)
{
	size_t i;

	for (i = 0; i < KARST_DIM(virtio_logs); i++)
		kd_log_speak(&h->of[i]);
}

/* --- arguments --- */

static bool
virtio_matches(const char *device)
{
	return strncmp(device, VIRTIO_DEVICE, strlen(VIRTIO_DEVICE)) == 0;
}

static void
virtio_name(const struct kd_conf_port *p, char *name, size_t len)
{
	snprintf(name, len, "%.*s", (int)strcspn(p->device, ","), p->device);
}

/* Returns the value of @key, such as "path=", of the device; "": there is none. */
static void
virtio_value(const struct kd_conf_port *p, const char *key, char value[KD_TEXT])
{
	const char *at = p->device;

	value[0] = '\0';
	while ((at = strchr(at, ',')) != NULL) {
		at++;
		if (strncmp(at, key, strlen(key)) != 0)
			continue;
		at += strlen(key);
		snprintf(value, KD_TEXT, "%.*s", (int)strcspn(at, ","), at);
	}
}

/* Returns all arguments except server=, and the MAC address that the device had before, because
 * otherwise the driver would generate a new one each time. */
static void
virtio_args(struct kd_port *port, char args[VIRTIO_ARGS])
{
	const char *at = strchr(port->conf->device, ',');
	uint8_t *m = port->backend.mac;
	bool mac = false;
	size_t n = 0;

	for (args[0] = '\0'; at != NULL; at = strchr(at, ',')) {
		at++;
		mac |= strncmp(at, "mac=", 4) == 0;
		if (strncmp(at, "server=", 7) != 0)
			n += (size_t)snprintf(args + n, VIRTIO_ARGS - n, "%s%.*s",
				n != 0 ? "," : "", (int)strcspn(at, ","), at);
	}
	if (mac)
		return;
	if (m[0] == 0)
		rte_eth_random_addr(m);
	snprintf(args + n, VIRTIO_ARGS - n, ",mac=%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2],
		m[3], m[4], m[5]);
}

static bool
virtio_is_server(const struct kd_conf_port *p)
{
	char value[KD_TEXT];

	virtio_value(p, "server=", value);
	return strtoul(value, NULL, 0) != 0;
}

/* Is the path that of a socket, or does it not exist yet? */
static bool
virtio_has_socket(const struct kd_conf_port *p, struct sockaddr_un *at)
{
	char path[KD_TEXT];
	struct stat st;

	memset(at, 0, sizeof(*at));
	at->sun_family = AF_UNIX;
	virtio_value(p, "path=", path);
	if (path[0] == '\0' || strlen(path) >= sizeof(at->sun_path))
		return false;
	memcpy(at->sun_path, path, strlen(path));
	return stat(path, &st) == 0 ? S_ISSOCK(st.st_mode) : errno == ENOENT;
}

/* --- connections --- */

static int
virtio_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* @return true: a process listens there. */
static bool
virtio_is_listening(const struct sockaddr_un *at)
{
	int fd = virtio_socket();
	bool is =
		fd < 0 || connect(fd, (const void *)at, sizeof(*at)) == 0 || errno != ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return is;
}

/* Creates the listening socket.  -EIO: the reason was logged. */
static int
virtio_listen(struct kd_port *port, const struct sockaddr_un *at)
{
	int fd = virtio_socket(), rc;

	rc = fd < 0 ? -1 : bind(fd, (const void *)at, sizeof(*at));
	/* a socket that was left there when its owner died */
	if (rc != 0 && errno == EADDRINUSE && !virtio_is_listening(at) && unlink(at->sun_path) == 0)
		rc = bind(fd, (const void *)at, sizeof(*at));
	if (rc == 0)
		rc = listen(fd, 1);
	if (rc == 0) {
		port->backend.listen_fd = fd;
		return 0;
	}
	rc = errno;
	if (fd >= 0)
		close(fd);
	return kd_port_fault(port->conf, "listening at %s: %s", at->sun_path, strerror(rc));
}

/* @return the connection with a backend; -EAGAIN: there is none; -EIO: the reason was logged. */
static int
virtio_meet(struct kd_port *port, const struct sockaddr_un *at)
{
	const struct timeval most = {.tv_usec = ANSWER_US};
	bool server = virtio_is_server(port->conf);
	int fd, rc = 0;

	if (server && port->backend.listen_fd < 0)
		rc = virtio_listen(port, at);
	if (rc != 0)
		return rc;
	if (server)
		fd = accept4(port->backend.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	else
		fd = virtio_socket();
	if (fd >= 0 && (server || connect(fd, (const void *)at, sizeof(*at)) == 0) &&
		fcntl(fd, F_SETFL, 0) == 0 &&
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) == 0 &&
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) == 0)
		return fd;
	if (!port->backend.said)
		karst_log(KARST_LOG_WARNING,
			"port %s: no backend %s %s%s%s: the port comes with it", port->conf->name,
			server ? "has come to" : "at", at->sun_path, server ? "" : ": ",
			server ? "" : strerror(errno));
	port->backend.said = true;
	if (fd >= 0)
		close(fd);
	return -EAGAIN;
}

static int
virtio_plug(struct kd_port *port, int peer)
{
	struct virtio_making making = {.peer = peer, .fd = -1};
	char name[KD_TEXT], args[VIRTIO_ARGS];
	int rc;

	virtio_name(port->conf, name, sizeof(name));
	virtio_args(port, args);
	virtio_making = &making;
	karst_engine_connects(virtio_connect, &making);
	rc = rte_eal_hotplug_add("vdev", name, args);
	karst_engine_connects(NULL, NULL);
	virtio_making = NULL;
	if (rc == 0)
		rc = rte_eth_dev_get_port_by_name(name, &port->ethdev);
	if (rc == 0)
		port->probed = true;
	else
		virtio_sweep(&making);
	return rc;
}

/* --- the kind of port --- */

static void
virtio_wait(struct kd_port *port)
{
	port->backend.wait = port->backend.patience;
	port->backend.patience = karst_min_u32(2 * port->backend.patience + 1, WAIT_MOST);
	port->backend.lived = 0;
}

/* The device can be created if its backend exists. */
static int
virtio_there(struct kd_port *port)
{
	struct sockaddr_un at;
	struct virtio_hush hush;
	char why[512];
	int fd, rc;

	if (few_drivers_load(VIRTIO_DEVICE, why, sizeof(why)) != 0)
		return kd_port_fault(port->conf, "%s", why);
	if (!virtio_has_socket(port->conf, &at))
		return 1;
	port->backend.away = true;
	fd = virtio_meet(port, &at);
	if (fd < 0)
		return fd == -EAGAIN ? 0 : fd;
	if (port->backend.unlike)
		virtio_hush(&hush);
	rc = virtio_plug(port, fd);
	if (port->backend.unlike)
		virtio_speak(&hush);
	close(fd);
	if (rc == 0)
		return 1;
	if (!port->backend.unlike)
		karst_log(KARST_LOG_WARNING,
			"port %s: its backend at %s does not answer as one of vhost-user does, or "
			"has gone before; DPDK's words are above",
			port->conf->name, at.sun_path);
	port->backend.unlike = true;
	virtio_wait(port);
	return 0;
}

static int
virtio_open(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port)
{
	char name[KD_TEXT];
	const char *comma = strchr(port->conf->device, ',');

	if (port->probed) {
		karst_log(KARST_LOG_NOTICE,
			"port %s: the backend of net_virtio_user has all memory of packets, and "
			"the driver believes what it writes there: it has to be trusted like this "
			"process",
			port->conf->name);
		port->backend.away = port->backend.said = port->backend.unlike = false;
		return 0;
	}
	virtio_name(port->conf, name, sizeof(name));
	return kd_port_plug(port, name, comma != NULL ? comma + 1 : "");
}

static void
virtio_fill(const struct kd_ports *ps, struct kd_port *port, struct karst_engine_port_config *cfg)
{
	cfg->force_mtu = port->conf->mtu != 0;
}

/* Removes the device from the bus as well, where it would be taken for an existing one. */
static void
virtio_unplug(struct kd_port *port)
{
	struct virtio_hush hush;
	char name[KD_TEXT];

	virtio_name(port->conf, name, sizeof(name));
	virtio_hush(&hush);
	kd_port_close_device(port);
	(void)rte_eal_hotplug_remove("vdev", name);
	virtio_speak(&hush);
}

static bool
virtio_has_backend(const struct kd_port *port)
{
	uint16_t ethdev = port->impaired ? port->below : port->ethdev;
	struct rte_eth_link link = {0};
	struct virtio_hush hush;
	int rc;

	virtio_hush(&hush);
	rc = rte_eth_link_get_nowait(ethdev, &link);
	virtio_speak(&hush);
	return rc != 0 || link.link_status == RTE_ETH_LINK_UP;
}

static void
virtio_goes(struct kd_port *port, struct karst_engine *e)
{
	karst_log(KARST_LOG_WARNING,
		"port %s: its backend has gone, or does not answer: the port comes back with it",
		port->conf->name);
	karst_engine_port_lose(e, port->number);
	virtio_unplug(port);
	port->backend.away = port->backend.said = true;
	virtio_wait(port);
}

static void
virtio_follow(
	struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, struct karst_engine *e)
{
	struct sockaddr_un at;

	if (port->added) {
		if (!virtio_has_socket(port->conf, &at))
			return;
		if (!virtio_has_backend(port))
			virtio_goes(port, e);
		else if (++port->backend.lived == WAIT_MOST)
			port->backend.patience = 0;
		return;
	}
	if (!port->backend.away)
		return;
	if (port->backend.wait > 0) {
		port->backend.wait--;
		return;
	}
	if (virtio_there(port) > 0 && kd_port_open(ps, c, e, port) != 0) {
		virtio_unplug(port);
		port->backend.away = true;
		virtio_wait(port);
	}
}

static void
virtio_close(struct kd_port *port)
{
	struct sockaddr_un at;

	virtio_unplug(port);
	if (port->backend.listen_fd < 0)
		return;
	if (virtio_has_socket(port->conf, &at))
		unlink(at.sun_path);
	close(port->backend.listen_fd);
	port->backend.listen_fd = -1;
}

const struct kd_port_kind kd_port_virtio = {
	.form = VIRTIO_DEVICE "...",
	.matches = virtio_matches,
	.there = virtio_there,
	.open = virtio_open,
	.fill = virtio_fill,
	.follow = virtio_follow,
	.close = virtio_close,
};
