/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A net_memif port is removed while its peer disconnects, or connects. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>

#include "../idle.h"
#include "memif_wire.h"

/* --- the interrupt thread --- */

static void
was_called(void *arg)
{
	uint64_t n;

	cr_assert_eq(read(*(int *)arg, &n, sizeof(n)), (ssize_t)sizeof(n));
	__atomic_store_n((int *)arg, -1, __ATOMIC_RELAXED);
}

/* The interrupt thread has finished everything that it was doing. */
static void
intr_turn(void)
{
	struct rte_intr_handle *h = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	uint64_t one = 1;
	int fd = eventfd(0, EFD_CLOEXEC), called = fd;

	cr_assert_geq(fd, 0);
	cr_assert_not_null(h);
	cr_assert_eq(rte_intr_fd_set(h, fd), 0);
	cr_assert_eq(rte_intr_type_set(h, RTE_INTR_HANDLE_EXT), 0);
	cr_assert_eq(rte_intr_callback_register(h, was_called, &called), 0);
	cr_assert_eq(write(fd, &one, sizeof(one)), (ssize_t)sizeof(one));
	while (__atomic_load_n(&called, __ATOMIC_RELAXED) != -1)
		usleep(IDLE_US);
	/* -EAGAIN: the callback has not quite returned */
	while (rte_intr_callback_unregister(h, was_called, &called) == -EAGAIN)
		usleep(IDLE_US);
	rte_intr_instance_free(h);
	close(fd);
}

/* --- what both ends have mapped --- */

static void *
mapped_at(size_t *len)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long from = 0, to = 0;
	char line[512];

	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		if (strstr(line, "/memfd:" MEMIF) != NULL)
			cr_assert_eq(sscanf(line, "%lx-%lx", &from, &to), 2);
	fclose(f);
	*len = to - from;
	return (void *)from;
}

static bool
is_mapped(void *at, size_t len)
{
	/* otherwise -ENOMEM */
	return msync(at, len, MS_ASYNC) == 0;
}

/* --- its peer disconnects --- */

/* The interrupt thread is about to unmap memory: it waits for the lcore, which this thread
 * polls. */
Test(intr_pause, a_port_is_removed_as_its_peer_goes)
{
	struct wire w;
	size_t len;
	void *at, *mine;

	wire_up(&w, NULL);
	wire_wait(&w, true);
	karst_engine_poll(w.bed.e, 0);
	cr_assert_eq(rte_eth_dev_stop(w.other), 0);
	wire_wait(&w, false);
	usleep(LONG_US);
	cr_assert_eq(engine_bed_mappings(MEMIF), 1);
	at = mapped_at(&len);

	cr_assert_eq(karst_engine_port_remove(w.bed.e, w.port), 0);
	cr_expect_eq(engine_bed_mappings(MEMIF), 0);
	/* that address range is other memory now */
	mine = mmap(at, len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	cr_assert_eq(mine, at, "%s", strerror(errno));
	engine_bed_release(&w.bed);
	intr_turn();
	cr_expect(is_mapped(mine, len), "the driver has unmapped it a second time");
	wire_down(&w);
}

/* --- its peer connects --- */

static unsigned int closed;

static void
peer_comes_and_device_goes(void *arg)
{
	struct wire *w = arg;
	bool paused;

	cr_assert_eq(rte_eth_dev_stop(w->other), 0);
	cr_assert_eq(rte_eth_dev_start(w->other), 0);
	usleep(LONG_US);
	cr_expect_not(wire_link_is_up(w->ours));
	cr_expect_not(wire_link_is_up(w->other));
	paused = karst_engine_intr_pause(w->ours);
	cr_expect(paused);
	cr_assert_eq(rte_eal_hotplug_remove("vdev", "net_memif0"), 0);
	karst_engine_intr_resume(paused);
	closed++;
}

Test(intr_pause, nobody_comes_between_stop_and_close)
{
	struct wire w;
	bool paused;

	wire_up(&w, peer_comes_and_device_goes);
	wire_wait(&w, true);
	cr_assert_eq(karst_engine_port_remove(w.bed.e, w.port), 0);
	cr_assert_eq(closed, 1);
	/* Both devices use one socket of the driver, which stays.  So the driver accepts the other
	 * device's connection, and that device maps what it would share and is then told that the
	 * port it asks for does not exist.  It may not have got so far yet: so it is stopped as the
	 * engine stops a port. */
	intr_turn();
	while (engine_bed_mappings(MEMIF) != 0) {
		cr_assert_not(wire_link_is_up(w.other));
		intr_turn();
	}
	cr_expect_not(wire_link_is_up(w.other));
	paused = karst_engine_intr_pause(w.other);
	cr_expect(paused);
	cr_assert_eq(rte_eth_dev_stop(w.other), 0);
	karst_engine_intr_resume(paused);
	intr_turn();
	wire_down(&w);
}

/* --- the descriptor number of a connection is used again --- */

static bool
has_name(int (*ask)(int fd, struct sockaddr *name, socklen_t *len), int fd)
{
	struct sockaddr_un name;
	socklen_t len = sizeof(name);

	return ask(fd, (struct sockaddr *)&name, &len) == 0 && name.sun_family == AF_UNIX &&
		len > offsetof(struct sockaddr_un, sun_path);
}

/* Finds the descriptor of one end of the connection: the client's end has no name. */
static int
fd_of(bool server)
{
	int fd, is;
	socklen_t len = sizeof(is);

	for (fd = 0; fd < 1024; fd++)
		if (has_name(server ? getsockname : getpeername, fd) &&
			getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is, &len) == 0 && is == 0)
			return fd;
	cr_assert_fail("there is none");
	return -1;
}

struct reuse {
	struct wire *w;
	int fd;
};

/* The server closes its connection, and the client's new connection gets the descriptor number. */
static void *
pause_and_reuse(void *arg)
{
	const struct reuse *r = arg;
	bool paused = karst_engine_intr_pause(r->w->ours);
	int fill[1024], n = 0;

	cr_assert(paused);
	cr_assert_eq(rte_eth_dev_stop(r->w->ours), 0);
	cr_assert_eq(rte_eth_dev_stop(r->w->other), 0);
	do {
		cr_assert_lt(n, 1024);
		fill[n] = dup(STDERR_FILENO);
	} while (fill[n++] < r->fd);
	cr_assert_eq(fill[n - 1], r->fd);
	close(r->fd);
	cr_assert_eq(rte_eth_dev_start(r->w->other), 0);
	cr_assert_eq(fcntl(r->fd, F_GETFL) & O_ACCMODE, O_RDWR);
	karst_engine_intr_resume(paused);
	while (--n > 0)
		close(fill[n - 1]);
	return NULL;
}

/* Keeps the interrupt thread busy until it is told to go on. */
static void
wait_for_word(void *arg)
{
	int *state = arg;

	__atomic_store_n(&state[1], 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&state[1], __ATOMIC_ACQUIRE) != 2)
		usleep(IDLE_US);
	was_called(state);
}

/* EAL has read two events at once: a request to pause the interrupt thread, and data on the
 * connection with that descriptor number.  The driver would wait for data on the new connection,
 * whose other end this thread serves, too. */
Test(intr_pause, an_event_of_another_connection_is_none)
{
	struct rte_intr_handle *h = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	int fd = eventfd(1, EFD_CLOEXEC), state[2] = {fd, 0};
	struct wire w;
	struct reuse r = {.w = &w};
	pthread_t thread;

	wire_up(&w, NULL);
	wire_wait(&w, true);
	r.fd = fd_of(true);
	cr_assert_eq(rte_intr_fd_set(h, fd), 0);
	cr_assert_eq(rte_intr_type_set(h, RTE_INTR_HANDLE_EXT), 0);
	cr_assert_eq(rte_intr_callback_register(h, wait_for_word, state), 0);
	while (__atomic_load_n(&state[1], __ATOMIC_ACQUIRE) != 1)
		usleep(IDLE_US);
	/* the first event, and then the other one; if the first is late, this test shows nothing */
	cr_assert_eq(pthread_create(&thread, NULL, pause_and_reuse, &r), 0);
	usleep(LONG_US);
	cr_assert_eq(send(fd_of(false), "", 1, 0), 1);
	__atomic_store_n(&state[1], 2, __ATOMIC_RELEASE);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	intr_turn();
	while (rte_intr_callback_unregister(h, wait_for_word, state) == -EAGAIN)
		usleep(IDLE_US);
	rte_intr_instance_free(h);
	close(fd);
	wire_down(&w);
}

/* --- its socket --- */

static int
connect_to(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	cr_assert_geq(fd, 0);
	/* an abstract socket, as the driver makes it */
	memcpy(to.sun_path + 1, path, strlen(path));
	if (connect(fd, (struct sockaddr *)&to,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path))) == 0)
		return fd;
	close(fd);
	return -1;
}

/* The interrupt thread needs some turns to close what is to be closed; if a descriptor stays open,
 * this waits for as long as a test may take. */
static void
await_open_fds(unsigned int n)
{
	while (engine_bed_open_fds() != n)
		usleep(IDLE_US);
}

static void
close_device(void *arg)
{
	cr_assert_eq(rte_eal_hotplug_remove("vdev", "net_memif0"), 0);
}

static void
add_server(struct engine_bed *bed, const char *path, uint8_t *number)
{
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000101);
	struct karst_engine_port_config port = {
		.num_addrs = 1, .addrs = &addr, .stopped = close_device};
	char args[128];

	snprintf(args, sizeof(args), "role=server,id=7,socket=%s", path);
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_memif0", args), 0);
	cr_assert_eq(rte_eth_dev_get_port_by_name("net_memif0", &port.ethdev), 0);
	cr_assert_eq(karst_engine_port_add(bed->e, &port, number), 0);
}

/* Connects and receives the driver's first message: the driver has accepted. */
static int
greeted(const char *path)
{
	int fd = connect_to(path);
	char hello[256];

	cr_assert_geq(fd, 0);
	cr_assert_gt(recv(fd, hello, sizeof(hello), 0), 0);
	return fd;
}

Test(intr_socket, the_socket_goes_with_the_port)
{
	struct engine_bed bed;
	unsigned int i, fds;
	char path[64], end;
	uint8_t port;
	int fd;

	engine_bed_up(&bed, &(struct engine_bed_config){.engine = {.lcores = 1}});
	engine_bed_release(&bed);
	snprintf(path, sizeof(path), "karst-listener-%d", (int)getpid());
	fds = engine_bed_open_fds();
	for (i = 0; i < 3; i++) {
		add_server(&bed, path, &port);
		/* this peer does not send its request before the port has gone */
		fd = greeted(path);
		cr_assert_eq(karst_engine_port_remove(bed.e, port), 0);
		cr_expect_eq(connect_to(path), -1, "time %u", i);
		cr_expect_eq(recv(fd, &end, 1, MSG_DONTWAIT), 0, "time %u", i);
		close(fd);
		intr_turn();
		intr_turn();
		await_open_fds(fds);
	}
	engine_bed_down(&bed);
}

/* Peers send nothing, and have disconnected when the interrupt thread looks: the next peer gets the
 * same descriptors at this end, and is a peer like any other. */
Test(intr_socket, peers_have_gone_before_they_are_greeted)
{
	struct engine_bed bed;
	unsigned int i, fds;
	char path[64];
	uint16_t id;
	uint8_t port;
	bool paused;

	engine_bed_up(&bed, &(struct engine_bed_config){.engine = {.lcores = 1}});
	engine_bed_release(&bed);
	snprintf(path, sizeof(path), "karst-listener-%d", (int)getpid());
	add_server(&bed, path, &port);
	cr_assert_eq(rte_eth_dev_get_port_by_name("net_memif0", &id), 0);
	fds = engine_bed_open_fds();
	for (i = 0; i < 5; i++) {
		paused = karst_engine_intr_pause(id);
		cr_assert(paused);
		close(connect_to(path));
		karst_engine_intr_resume(paused);
		intr_turn();
		intr_turn();
		close(greeted(path));
		await_open_fds(fds);
	}
	cr_assert_eq(karst_engine_port_remove(bed.e, port), 0);
	engine_bed_down(&bed);
}

/* Sends a message as the driver expects it of a client: messages have 128 bytes. */
static ssize_t
say(int fd, uint16_t type, const void *body, size_t len, int pass)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} ctl = {0};
	char msg[128] = {0};
	struct iovec iov = {.iov_base = msg, .iov_len = sizeof(msg)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	memcpy(msg, &type, sizeof(type));
	memcpy(msg + sizeof(type), body, len);
	if (pass >= 0) {
		mh.msg_control = &ctl;
		mh.msg_controllen = sizeof(ctl);
		ctl.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&ctl.head), &pass, sizeof(pass));
	}
	return sendmsg(fd, &mh, MSG_NOSIGNAL);
}

/* The driver answers each message, until there is no room for answers. */
Test(intr_socket, a_peer_does_not_read)
{
	const uint8_t init[] = {0, 2, 7, 0, 0, 0, 0}, ring[15] = {[0] = 1, [10] = 10};
	struct engine_bed bed;
	char path[64];
	uint8_t port;
	int fd;

	engine_bed_up(&bed, &(struct engine_bed_config){.engine = {.lcores = 1}});
	engine_bed_release(&bed);
	snprintf(path, sizeof(path), "karst-listener-%d", (int)getpid());
	add_server(&bed, path, &port);
	fd = greeted(path);
	cr_assert_gt(say(fd, 3, init, sizeof(init), -1), 0);
	/* waits for ever if the interrupt thread does */
	while (say(fd, 5, ring, sizeof(ring), fd) > 0)
		;
	cr_expect(errno == EPIPE || errno == ECONNRESET, "%s", strerror(errno));
	cr_assert_eq(karst_engine_port_remove(bed.e, port), 0);
	close(fd);
	intr_turn();
	engine_bed_down(&bed);
}

/* Both ends in one process share one socket of the driver, which frees it when the last one
 * goes. */
Test(intr_socket, the_client_of_the_same_process_goes_last)
{
	struct engine_bed bed;
	char path[64], args[128];
	unsigned int fds;
	uint8_t port;

	engine_bed_up(&bed, &(struct engine_bed_config){.engine = {.lcores = 1}});
	engine_bed_release(&bed);
	snprintf(path, sizeof(path), "karst-listener-%d", (int)getpid());
	fds = engine_bed_open_fds();
	add_server(&bed, path, &port);
	snprintf(args, sizeof(args), "role=client,id=1,socket=%s", path);
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_memif1", args), 0);
	cr_assert_eq(karst_engine_port_remove(bed.e, port), 0);
	cr_assert_eq(rte_eal_hotplug_remove("vdev", "net_memif1"), 0);
	cr_expect_eq(connect_to(path), -1);
	intr_turn();
	await_open_fds(fds);
	engine_bed_down(&bed);
}
