/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Files of the rdma_cm device, written to as librdmacm does, over an engine in this process with
 * two ports, 10.0.0.1 and 10.0.0.2, that are joined.
 */
#include "ucma.h"

#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "client_bed.h"

#ifndef AF_IB
#define AF_IB 27
#endif

/* enum rdma_cm_event_type of <rdma/rdma_cma.h>, which does not go with <rdma/rdma_user_cm.h> */
enum {
	RDMA_CM_EVENT_ADDR_RESOLVED = 0,
	RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
	RDMA_CM_EVENT_CONNECT_REQUEST = 4,
	RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
	RDMA_CM_EVENT_REJECTED = 8,
	RDMA_CM_EVENT_ESTABLISHED = 9,
	RDMA_CM_EVENT_DISCONNECTED = 10,
	RDMA_CM_EVENT_MULTICAST_JOIN = 12,
};

#define HERE   0x0a000001u /* 10.0.0.1 */
#define THERE  0x0a000002u
#define SOCKET "the engine's socket"

static struct client_bed bed;
static struct kv_cm_engine engine;

/* --- devices, files --- */

/* What libibverbs would have found in sysfs. */
static struct {
	struct verbs_sysfs_dev sysfs;
	struct kv_device dev;
} device[2];

static void
make_device(unsigned int i)
{
	struct verbs_sysfs_dev *sysfs = &device[i].sysfs;
	char path[sizeof(sysfs->ibdev_path) + 16];
	FILE *f;

	snprintf(sysfs->ibdev_path, sizeof(sysfs->ibdev_path), "/tmp/karst-ucma-XXXXXX");
	cr_assert_not_null(mkdtemp(sysfs->ibdev_path));
	snprintf(path, sizeof(path), "%s/node_guid", sysfs->ibdev_path);
	f = fopen(path, "w");
	cr_assert_not_null(f);
	fprintf(f, "0200:00ff:fe00:%04x\n", i + 1);
	fclose(f);
	device[i].dev = (struct kv_device){.vdev.sysfs = sysfs, .port = i + 1};
	snprintf(device[i].dev.vdev.device.name, IBV_SYSFS_NAME_MAX, "karst%u", i);
	strcpy(device[i].dev.socket, SOCKET);
	kv_device_add(&device[i].dev);
}

static void
remove_device(unsigned int i)
{
	char path[sizeof(device[i].sysfs.ibdev_path) + 16];

	kv_device_remove(&device[i].dev);
	snprintf(path, sizeof(path), "%s/node_guid", device[i].sysfs.ibdev_path);
	unlink(path);
	rmdir(device[i].sysfs.ibdev_path);
}

static void
up(void)
{
	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	engine = (struct kv_cm_engine){.karst = bed.ctx, .users = 1, .socket = SOCKET};
	make_device(0);
	make_device(1);
}

/* All files are closed, and nothing is left: the context closes. */
static void
down(void)
{
	cr_expect_eq(engine.users, 1);
	remove_device(0);
	remove_device(1);
	client_bed_down(&bed);
}

TestSuite(ucma, .init = up, .fini = down);

static struct kv_cm_file *
open_file(int flags)
{
	struct kv_cm_file *file;

	cr_assert_eq(kv_cm_file_open(&engine, flags, &file), 0, "%s", karst_why());
	engine.users++;
	return file;
}

static void
close_file(struct kv_cm_file *file)
{
	cr_expect_eq(kv_cm_close(file->fd), 0);
}

/* --- commands --- */

/* @return 0 or errno. */
static int
command(struct kv_cm_file *file, uint32_t cmd, const void *in, size_t in_len, size_t out_len)
{
	struct rdma_ucm_cmd_hdr hdr = {
		.cmd = cmd, .in = (uint16_t)in_len, .out = (uint16_t)out_len};
	uint8_t buf[1024];
	ssize_t n;

	memcpy(buf, &hdr, sizeof(hdr));
	memcpy(buf + sizeof(hdr), in, in_len);
	n = kv_cm_write(file->fd, buf, sizeof(hdr) + in_len);
	if (n < 0)
		return errno;
	cr_expect_eq(n, (ssize_t)(sizeof(hdr) + in_len));
	return 0;
}

#define COMMAND(file, cmd, in) command(file, RDMA_USER_CM_CMD_##cmd, &(in), sizeof(in), 0)
#define ASK(file, cmd, in, response) \
	command(file, RDMA_USER_CM_CMD_##cmd, &(in), sizeof(in), sizeof(response))

static int
create(struct kv_cm_file *file, uint64_t uid, uint16_t ps, uint32_t *id)
{
	struct rdma_ucm_create_id_resp resp = {.id = UINT32_MAX};
	struct rdma_ucm_create_id in = {.uid = uid, .response = (uintptr_t)&resp, .ps = ps};
	int err = ASK(file, CREATE_ID, in, resp);

	*id = resp.id;
	return err;
}

static uint32_t
created(struct kv_cm_file *file, uint64_t uid, uint16_t ps)
{
	uint32_t id;

	cr_assert_eq(create(file, uid, ps, &id), 0);
	return id;
}

static int
destroy(struct kv_cm_file *file, uint32_t id, uint32_t *events)
{
	struct rdma_ucm_destroy_id_resp resp = {.events_reported = UINT32_MAX};
	struct rdma_ucm_destroy_id in = {.response = (uintptr_t)&resp, .id = id};
	int err = ASK(file, DESTROY_ID, in, resp);

	*events = resp.events_reported;
	return err;
}

static struct sockaddr_in6
address(uint32_t ip, uint16_t port)
{
	struct sockaddr_in v4 = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(ip)};
	struct sockaddr_in6 addr = {0};

	memcpy(&addr, &v4, sizeof(v4));
	return addr;
}

static int
bind_to(struct kv_cm_file *file, uint32_t id, uint32_t ip, uint16_t port)
{
	struct rdma_ucm_bind_ip in = {.addr = address(ip, port), .id = id};

	return COMMAND(file, BIND_IP, in);
}

static int
query(struct kv_cm_file *file, uint32_t id, struct rdma_ucm_query_route_resp *resp)
{
	struct rdma_ucm_query in = {.response = (uintptr_t)resp, .id = id};

	memset(resp, 0, sizeof(*resp));
	return ASK(file, QUERY_ROUTE, in, *resp);
}

static uint16_t
bound_port(struct kv_cm_file *file, uint32_t id)
{
	struct rdma_ucm_query_route_resp resp;

	cr_assert_eq(query(file, id, &resp), 0);
	return ntohs(((struct sockaddr_in *)&resp.src_addr)->sin_port);
}

/* @return errno. */
static int
get_event(struct kv_cm_file *file, struct rdma_ucm_event_resp *resp)
{
	struct rdma_ucm_get_event in = {.response = (uintptr_t)resp};

	memset(resp, 0, sizeof(*resp));
	return ASK(file, GET_EVENT, in, *resp);
}

/* The next event, which must be @event. */
static struct rdma_ucm_event_resp
expect_event(struct kv_cm_file *file, uint32_t event)
{
	struct pollfd p = {.fd = file->fd, .events = POLLIN};
	struct rdma_ucm_event_resp resp;

	cr_assert_eq(poll(&p, 1, (int)BED_PATIENCE_MS), 1, "no event");
	cr_assert_eq(get_event(file, &resp), 0);
	cr_assert_eq(resp.event, event, "event %u, status %d, not %u", resp.event, (int)resp.status,
		event);
	return resp;
}

/* --- what is refused --- */

Test(ucma, commands_that_are_none)
{
	struct rdma_ucm_cmd_hdr hdr = {.cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = 25};
	struct kv_cm_file *file = open_file(0);
	static const uint32_t unknown[] = {RDMA_USER_CM_CMD_GET_OPTION, RDMA_USER_CM_CMD_QUERY,
		RDMA_USER_CM_CMD_BIND, RDMA_USER_CM_CMD_RESOLVE_ADDR, RDMA_USER_CM_CMD_JOIN_MCAST};
	uint8_t nothing[512] = {0};
	unsigned int i;

	cr_expect_eq(kv_cm_write(file->fd, &hdr, sizeof(hdr) - 1), -1);
	cr_expect_eq(errno, EINVAL);
	cr_expect_eq(kv_cm_write(file->fd, &hdr, sizeof(hdr)), -1, "longer than what is written");
	cr_expect_eq(errno, EINVAL);
	for (i = 0; i < KARST_DIM(unknown); i++)
		cr_expect_eq(command(file, unknown[i], nothing, sizeof(nothing), 512), ENOSYS);
	cr_expect_eq(command(file, RDMA_USER_CM_CMD_JOIN_MCAST + 1, nothing, 8, 0), EINVAL);
	cr_expect_eq(command(file, UINT32_MAX, nothing, 8, 0), EINVAL);
	close_file(file);
}

/* Each command, a byte short; and each that answers, with a byte less of room. */
Test(ucma, commands_that_are_short)
{
	static const struct {
		uint32_t cmd;
		uint16_t in, out;
	} all[] = {
		{RDMA_USER_CM_CMD_CREATE_ID, 24, 4},
		{RDMA_USER_CM_CMD_DESTROY_ID, 16, 4},
		{RDMA_USER_CM_CMD_BIND_IP, 40, 0},
		{RDMA_USER_CM_CMD_RESOLVE_IP, 64, 0},
		{RDMA_USER_CM_CMD_RESOLVE_ROUTE, 8, 0},
		{RDMA_USER_CM_CMD_QUERY_ROUTE, 12, 200},
		{RDMA_USER_CM_CMD_CONNECT, 280, 0},
		{RDMA_USER_CM_CMD_LISTEN, 8, 0},
		{RDMA_USER_CM_CMD_ACCEPT, 288, 0},
		{RDMA_USER_CM_CMD_REJECT, 264, 0},
		{RDMA_USER_CM_CMD_DISCONNECT, 4, 0},
		{RDMA_USER_CM_CMD_INIT_QP_ATTR, 16, 144},
		{RDMA_USER_CM_CMD_GET_EVENT, 8, 324},
		{RDMA_USER_CM_CMD_SET_OPTION, 24, 0},
		{RDMA_USER_CM_CMD_NOTIFY, 8, 0},
		{RDMA_USER_CM_CMD_JOIN_IP_MCAST, 48, 4},
		{RDMA_USER_CM_CMD_LEAVE_MCAST, 16, 4},
		{RDMA_USER_CM_CMD_MIGRATE_ID, 16, 4},
	};
	struct kv_cm_file *file = open_file(O_NONBLOCK);
	uint8_t in[512] = {0};
	unsigned int i;

	for (i = 0; i < KARST_DIM(all); i++) {
		cr_expect_eq(command(file, all[i].cmd, in, all[i].in - 1u, 1024), EINVAL,
			"command %u", all[i].cmd);
		if (all[i].out != 0)
			cr_expect_eq(command(file, all[i].cmd, in, all[i].in, all[i].out - 1u),
				ENOSPC, "command %u", all[i].cmd);
	}
	close_file(file);
}

Test(ucma, identifiers_of_nobody_and_of_other_files)
{
	struct kv_cm_file *a = open_file(0), *b = open_file(0);
	uint32_t id = created(a, 1, RDMA_PS_TCP), other, events;

	cr_expect_eq(destroy(b, id, &events), EINVAL);
	cr_expect_eq(destroy(a, id + 1, &events), ENOENT);
	cr_expect_eq(bind_to(b, id, 0, 0), EINVAL);
	cr_expect_eq(bind_to(a, UINT32_MAX, 0, 0), ENOENT);
	cr_expect_eq(create(a, 1, RDMA_PS_IB, &other), EINVAL);
	cr_expect_eq(create(a, 1, RDMA_PS_IPOIB, &other), EINVAL);
	cr_expect_eq(destroy(a, id, &events), 0);
	cr_expect_eq(events, 0);
	cr_expect_eq(destroy(a, id, &events), ENOENT);
	close_file(a);
	close_file(b);
}

Test(ucma, addresses_that_are_none)
{
	struct kv_cm_file *file = open_file(0);
	struct rdma_ucm_resolve_ip in = {.id = created(file, 1, RDMA_PS_TCP), .timeout_ms = 1000};
	struct rdma_ucm_bind_ip b = {.id = in.id, .addr = {.sin6_family = AF_IB}};

	cr_expect_eq(COMMAND(file, BIND_IP, b), EINVAL);
	cr_expect_eq(COMMAND(file, RESOLVE_IP, in), EINVAL, "no destination");
	in.dst_addr = address(THERE, 1);
	in.src_addr.sin6_family = AF_UNIX;
	cr_expect_eq(COMMAND(file, RESOLVE_IP, in), EINVAL);
	cr_expect_eq(bind_to(file, in.id, 0xc0000201, 0), EADDRNOTAVAIL);
	close_file(file);
}

/* As with the kernel, to which 127.0.0.1 is any address; libfabric counts on it. */
Test(ucma, loopback_addresses_of_no_port)
{
	struct kv_cm_file *file = open_file(0);
	struct rdma_ucm_resolve_ip in = {.id = created(file, 1, RDMA_PS_TCP),
		.dst_addr = address(INADDR_LOOPBACK, 7000),
		.timeout_ms = 5000};
	struct rdma_ucm_bind_ip v6 = {
		.addr = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT},
		.id = created(file, 2, RDMA_PS_TCP)};

	cr_expect_eq(bind_to(file, in.id, INADDR_LOOPBACK, 7001), 0);
	cr_expect_eq(bound_port(file, in.id), 7001);
	cr_expect_eq(COMMAND(file, RESOLVE_IP, in), 0);
	expect_event(file, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_expect_eq(COMMAND(file, BIND_IP, v6), 0);
	close_file(file);
}

/* --- files --- */

Test(ucma, a_file_looks_like_the_device)
{
	struct kv_cm_file *file = open_file(0);
	int other = open("/", O_RDONLY | O_CLOEXEC), pipes[2];
	struct stat st;

	cr_assert_eq(kv_cm_fstat(file->fd, &st), 0);
	cr_expect(S_ISCHR(st.st_mode));
	cr_assert_eq(kv_cm_fstat(other, &st), 0);
	cr_expect(S_ISDIR(st.st_mode), "other descriptors are what they are");
	cr_expect_eq(kv_cm_close(other), 0);
	cr_expect_eq(fcntl(other, F_GETFD), -1);
	cr_assert_eq(pipe(pipes), 0);
	cr_expect_eq(kv_cm_write(pipes[1], "x", 1), 1);
	close(pipes[0]);
	close(pipes[1]);
	cr_expect_eq(fcntl(file->fd, F_GETFL) & O_NONBLOCK, 0);
	cr_expect_neq(fcntl(file->fd, F_GETFD) & FD_CLOEXEC, 0);
	close_file(file);
}

/* As programs end that care for nothing; down() finds what is left. */
Test(ucma, a_file_is_closed_with_identifiers)
{
	struct kv_cm_file *file = open_file(0);
	struct rdma_ucm_listen in = {.id = created(file, 1, RDMA_PS_TCP), .backlog = 3};
	uint32_t id;
	int fd = file->fd;

	cr_expect_eq(bind_to(file, in.id, HERE, 7000), 0);
	cr_expect_eq(COMMAND(file, LISTEN, in), 0);
	created(file, 2, RDMA_PS_UDP);
	close_file(file);
	cr_expect_eq(fcntl(fd, F_GETFD), -1);
	file = open_file(0);
	id = created(file, 3, RDMA_PS_TCP);
	cr_expect_eq(bind_to(file, id, HERE, 7000), 0, "the address is free again");
	close_file(file);
}

/* The program closed it without librdmacm, and has another file of that number. */
Test(ucma, a_descriptor_that_was_closed_behind_our_back)
{
	struct kv_cm_file *file = open_file(0);
	int pipes[2], fd = file->fd;
	char byte;

	created(file, 1, RDMA_PS_TCP);
	cr_assert_eq(pipe(pipes), 0);
	cr_assert_eq(dup2(pipes[1], fd), fd);
	cr_expect_eq(kv_cm_write(fd, "x", 1), 1);
	cr_expect_eq(read(pipes[0], &byte, 1), 1);
	cr_expect_eq(kv_cm_close(fd), 0);
	cr_expect_eq(fcntl(fd, F_GETFD), -1);
	close(pipes[0]);
	close(pipes[1]);
	/* what was in it stays until the attachment ends */
	engine.users--;
	karst_abandon(bed.ctx);
	bed.ctx = client_bed_open(&bed);
	cr_assert_eq(karst_alloc_pd(bed.ctx, &bed.pd), 0);
	cr_assert_eq(karst_create_cq(bed.ctx, 16, NULL, NULL, &bed.cq), 0);
}

/* The kernel wants the credentials that the file was opened with. */
Test(ucma, a_child_may_not_use_its_parents_file)
{
	struct kv_cm_file *file = open_file(0);
	uint32_t id = 0;
	int status, fd = file->fd;
	pid_t pid = fork();

	if (pid == 0) {
		struct rdma_ucm_create_id in = {.response = (uintptr_t)&id, .ps = RDMA_PS_TCP};
		struct rdma_ucm_cmd_hdr hdr = {.in = sizeof(in), .out = 4};
		uint8_t buf[sizeof(hdr) + sizeof(in)];
		bool ok;

		memcpy(buf, &hdr, sizeof(hdr));
		memcpy(buf + sizeof(hdr), &in, sizeof(in));
		ok = kv_cm_write(fd, buf, sizeof(buf)) == -1 && errno == EACCES;
		ok = ok && kv_cm_close(fd) == 0 && fcntl(fd, F_GETFD) == -1;
		_exit(ok ? 0 : 1);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	created(file, 1, RDMA_PS_TCP); /* the parent's is what it was */
	close_file(file);
}

/* --- waiting --- */

struct waiter {
	struct kv_cm_file *file;
	int err;
	struct rdma_ucm_event_resp event;
};

static void *
wait_for_event(void *arg)
{
	struct waiter *w = arg;

	w->err = get_event(w->file, &w->event);
	return NULL;
}

/* Is a thread in the command?  It waits in the end, and that is where it is to be found. */
static void
until_used(const struct kv_cm_file *file)
{
	while (__atomic_load_n(&file->users, __ATOMIC_RELAXED) < 2)
		client_bed_pause();
}

Test(ucma, events_of_nobody)
{
	struct kv_cm_file *file = open_file(O_NONBLOCK);
	struct rdma_ucm_event_resp resp;

	cr_expect_eq(get_event(file, &resp), EAGAIN);
	close_file(file);
	file = open_file(0);
	cr_expect_eq(fcntl(file->fd, F_SETFL, O_NONBLOCK), 0);
	cr_expect_eq(get_event(file, &resp), EAGAIN, "as the program says by itself");
	close_file(file);
}

Test(ucma, a_thread_waits_for_an_event)
{
	struct waiter w = {.file = open_file(0)};
	struct rdma_ucm_resolve_ip in = {.id = created(w.file, 77, RDMA_PS_TCP),
		.src_addr = address(HERE, 0),
		.dst_addr = address(THERE, 7000),
		.timeout_ms = 5000};
	struct rdma_ucm_query_route_resp route;
	pthread_t t;

	cr_assert_eq(pthread_create(&t, NULL, wait_for_event, &w), 0);
	until_used(w.file);
	cr_assert_eq(COMMAND(w.file, RESOLVE_IP, in), 0);
	pthread_join(t, NULL);
	cr_assert_eq(w.err, 0);
	cr_expect_eq(w.event.event, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_expect_eq(w.event.uid, 77);
	cr_expect_eq(w.event.id, in.id);
	cr_expect_eq(w.event.status, 0);
	cr_assert_eq(query(w.file, in.id, &route), 0);
	cr_expect_eq(route.port_num, 1);
	cr_expect_eq(be64toh(route.node_guid), 0x020000fffe000001);
	cr_expect_eq(route.num_paths, 0);
	cr_expect_eq(route.ib_route[0].dgid[15], 2);
	close_file(w.file);
}

/* The file stays until the thread is gone, as with the kernel; programs end like this. */
Test(ucma, a_file_is_closed_while_a_thread_waits)
{
	struct waiter w = {.file = open_file(0)};
	pthread_t t;

	cr_assert_eq(pthread_create(&t, NULL, wait_for_event, &w), 0);
	until_used(w.file);
	close_file(w.file);
	cr_expect_eq(kv_cm_file_get(w.file->fd), NULL);
	cr_expect_eq(engine.users, 2);
	pthread_cancel(t);
	pthread_join(t, NULL);
}

Test(ucma, a_thread_that_waits_is_cancelled)
{
	struct waiter w = {.file = open_file(0)};
	void *result;
	pthread_t t;

	cr_assert_eq(pthread_create(&t, NULL, wait_for_event, &w), 0);
	until_used(w.file);
	pthread_cancel(t);
	pthread_join(t, &result);
	cr_expect_eq(result, PTHREAD_CANCELED);
	cr_expect_eq(w.file->users, 1);
	created(w.file, 1, RDMA_PS_TCP); /* no lock is held */
	close_file(w.file);
}

static void
ignore(int signal)
{
	(void)signal;
}

static void
handle(int flags)
{
	struct sigaction sa = {.sa_handler = ignore, .sa_flags = flags};

	sigaction(SIGUSR1, &sa, NULL);
}

Test(ucma, a_signal_comes_to_a_thread_that_waits)
{
	struct waiter w = {.file = open_file(0)};
	struct rdma_ucm_resolve_ip in = {.id = created(w.file, 5, RDMA_PS_TCP),
		.dst_addr = address(THERE, 7000),
		.timeout_ms = 5000};
	pthread_t t;

	handle(SA_RESTART);
	cr_assert_eq(pthread_create(&t, NULL, wait_for_event, &w), 0);
	until_used(w.file);
	pthread_kill(t, SIGUSR1);
	cr_assert_eq(COMMAND(w.file, RESOLVE_IP, in), 0);
	pthread_join(t, NULL);
	cr_expect_eq(w.err, 0, "restarted");
	handle(0);
	cr_assert_eq(pthread_create(&t, NULL, wait_for_event, &w), 0);
	while (pthread_tryjoin_np(t, NULL) != 0) {
		pthread_kill(t, SIGUSR1);
		client_bed_pause();
	}
	cr_expect_eq(w.err, EINTR);
	close_file(w.file);
}

/* --- connections --- */

struct ends {
	struct kv_cm_file *server, *client;
	uint32_t listener, active, passive;
};

/* Up to the request, which has come. */
static struct ends
request(uint16_t ps)
{
	struct ends e = {.server = open_file(0), .client = open_file(0)};
	struct rdma_ucm_resolve_ip resolve = {.timeout_ms = 5000};
	struct rdma_ucm_resolve_route route = {.timeout_ms = 5000};
	struct rdma_ucm_listen listen = {.backlog = 8};
	struct rdma_ucm_connect connect = {.conn_param = {.valid = 1,
						   .qp_num = 0x123456,
						   .responder_resources = 3,
						   .initiator_depth = 2,
						   .retry_count = 7,
						   .rnr_retry_count = 6,
						   .private_data_len = 4,
						   .private_data = "ping"}};
	struct rdma_ucm_event_resp got;

	e.listener = listen.id = created(e.server, 10, ps);
	cr_assert_eq(bind_to(e.server, e.listener, THERE, 0), 0);
	cr_assert_eq(COMMAND(e.server, LISTEN, listen), 0);
	e.active = resolve.id = route.id = connect.id = created(e.client, 20, ps);
	resolve.src_addr = address(HERE, 0);
	resolve.dst_addr = address(THERE, bound_port(e.server, e.listener));
	cr_assert_eq(COMMAND(e.client, RESOLVE_IP, resolve), 0);
	expect_event(e.client, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_assert_eq(COMMAND(e.client, RESOLVE_ROUTE, route), 0);
	expect_event(e.client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	cr_assert_eq(COMMAND(e.client, CONNECT, connect), 0);
	got = expect_event(e.server, RDMA_CM_EVENT_CONNECT_REQUEST);
	cr_expect_eq(got.uid, 10, "the listener's");
	cr_expect_neq(got.id, e.listener);
	e.passive = got.id;
	if (ps == RDMA_PS_UDP) {
		cr_expect_geq(got.param.ud.private_data_len, 4);
		cr_expect_arr_eq(got.param.ud.private_data, "ping", 4);
	} else {
		cr_expect_eq(got.param.conn.qp_num, 0x123456);
		cr_expect_eq(got.param.conn.responder_resources, 2, "as this side has it");
		cr_expect_eq(got.param.conn.initiator_depth, 3);
		cr_expect_eq(got.param.conn.retry_count, 7);
		cr_expect_eq(got.param.conn.rnr_retry_count, 6);
		cr_expect_geq(got.param.conn.private_data_len, 4);
		cr_expect_arr_eq(got.param.conn.private_data, "ping", 4);
	}
	return e;
}

static int
accept_with(struct kv_cm_file *file, uint32_t id, uint64_t uid, bool valid)
{
	struct rdma_ucm_accept in = {.uid = uid,
		.id = id,
		.conn_param = {.valid = valid,
			.qp_num = 0x654321,
			.qkey = 0x1234,
			.rnr_retry_count = 7,
			.private_data_len = 4,
			.private_data = "pong"}};

	return COMMAND(file, ACCEPT, in);
}

static void
expect_destroyed(struct kv_cm_file *file, uint32_t id, uint32_t events)
{
	uint32_t got;

	cr_expect_eq(destroy(file, id, &got), 0);
	cr_expect_eq(got, events, "%u events of %u, not %u", got, id, events);
}

static void
attributes(struct kv_cm_file *file, uint32_t id, uint32_t state, struct ib_uverbs_qp_attr *resp)
{
	struct rdma_ucm_init_qp_attr in = {
		.response = (uintptr_t)resp, .id = id, .qp_state = state};

	memset(resp, 0, sizeof(*resp));
	cr_assert_eq(ASK(file, INIT_QP_ATTR, in, *resp), 0);
	cr_expect_eq(resp->qp_state, state);
}

Test(ucma, a_connection)
{
	struct ends e = request(RDMA_PS_TCP);
	struct rdma_ucm_query_route_resp route;
	struct rdma_ucm_disconnect end = {.id = e.active};
	struct rdma_ucm_event_resp got;
	struct ib_uverbs_qp_attr attr;

	cr_assert_eq(query(e.client, e.active, &route), 0);
	cr_expect_eq(route.num_paths, 1);
	cr_expect_eq(route.ib_route[0].mtu_selector, 2);
	cr_expect_eq(route.ib_route[0].pkey, 0xffff);
	attributes(e.server, e.passive, IBV_QPS_INIT, &attr);
	cr_expect_eq(attr.qp_attr_mask,
		IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	cr_expect_eq(attr.port_num, 1, "the device's only one");
	attributes(e.server, e.passive, IBV_QPS_RTR, &attr);
	cr_expect_eq(attr.dest_qp_num, 0x123456);
	cr_expect_eq(attr.ah_attr.is_global, 1);
	cr_expect_eq(attr.ah_attr.port_num, 1);
	cr_expect_eq(attr.ah_attr.grh.dgid[15], 1);
	cr_assert_eq(accept_with(e.server, e.passive, 11, true), 0);
	got = expect_event(e.client, RDMA_CM_EVENT_CONNECT_RESPONSE);
	cr_expect_eq(got.uid, 20);
	cr_expect_eq(got.param.conn.qp_num, 0x654321);
	cr_expect_arr_eq(got.param.conn.private_data, "pong", 4);
	attributes(e.client, e.active, IBV_QPS_RTS, &attr);
	cr_assert_eq(accept_with(e.client, e.active, 0, false), 0);
	got = expect_event(e.server, RDMA_CM_EVENT_ESTABLISHED);
	cr_expect_eq(got.uid, 11, "as accept said");
	cr_expect_eq(got.id, e.passive);
	cr_assert_eq(COMMAND(e.client, DISCONNECT, end), 0);
	expect_event(e.server, RDMA_CM_EVENT_DISCONNECTED);
	end.id = e.passive;
	cr_assert_eq(COMMAND(e.server, DISCONNECT, end), 0);
	expect_event(e.client, RDMA_CM_EVENT_DISCONNECTED);
	expect_destroyed(e.client, e.active, 4);
	expect_destroyed(e.server, e.passive, 2);
	expect_destroyed(e.server, e.listener, 1);
	close_file(e.client);
	close_file(e.server);
}

Test(ucma, a_request_is_rejected)
{
	struct ends e = request(RDMA_PS_TCP);
	struct rdma_ucm_reject in = {.id = e.passive, .private_data_len = 2, .private_data = "no"};
	struct rdma_ucm_event_resp got;

	cr_assert_eq(COMMAND(e.server, REJECT, in), 0);
	got = expect_event(e.client, RDMA_CM_EVENT_REJECTED);
	cr_expect_eq(got.status, 28, "the consumer's");
	cr_expect_arr_eq(got.param.conn.private_data, "no", 2);
	close_file(e.client);
	close_file(e.server); /* with the rest in it */
}

Test(ucma, datagrams)
{
	struct ends e = request(RDMA_PS_UDP);
	struct rdma_ucm_event_resp got;

	cr_assert_eq(accept_with(e.server, e.passive, 11, true), 0);
	got = expect_event(e.client, RDMA_CM_EVENT_ESTABLISHED);
	cr_expect_eq(got.param.ud.qp_num, 0x654321);
	cr_expect_eq(got.param.ud.qkey, 0x1234);
	cr_expect_eq(got.param.ud.ah_attr.is_global, 1);
	cr_expect_eq(got.param.ud.ah_attr.port_num, 1);
	cr_expect_eq(got.param.ud.ah_attr.grh.dgid[15], 2);
	cr_expect_arr_eq(got.param.ud.private_data, "pong", 4);
	close_file(e.client);
	close_file(e.server);
}

/* With what waits for it, as rdma_get_request() does. */
Test(ucma, an_identifier_moves_to_another_file)
{
	struct ends e = request(RDMA_PS_TCP);
	struct kv_cm_file *to = open_file(0);
	struct rdma_ucm_migrate_resp resp;
	struct rdma_ucm_migrate_id in = {
		.response = (uintptr_t)&resp, .id = e.passive, .fd = (uint32_t)e.server->fd};
	uint32_t events;

	in.fd = (uint32_t)e.client->fd;
	cr_expect_eq(ASK(to, MIGRATE_ID, in, resp), EINVAL, "it is not there");
	in.fd = 0;
	cr_expect_eq(ASK(to, MIGRATE_ID, in, resp), EINVAL, "not a file of ours");
	in.fd = (uint32_t)e.server->fd;
	cr_assert_eq(ASK(to, MIGRATE_ID, in, resp), 0);
	cr_expect_eq(resp.events_reported, 0);
	cr_expect_eq(destroy(e.server, e.passive, &events), EINVAL);
	cr_assert_eq(accept_with(to, e.passive, 12, true), 0);
	expect_event(e.client, RDMA_CM_EVENT_CONNECT_RESPONSE);
	cr_assert_eq(accept_with(e.client, e.active, 0, false), 0);
	cr_expect_eq(expect_event(to, RDMA_CM_EVENT_ESTABLISHED).uid, 12);
	close_file(e.server);
	close_file(e.client);
	expect_event(to, RDMA_CM_EVENT_DISCONNECTED);
	expect_destroyed(to, e.passive, 2);
	close_file(to);
}

Test(ucma, options)
{
	struct kv_cm_file *file = open_file(0);
	uint32_t id = created(file, 1, RDMA_PS_TCP);
	uint8_t tos = 0x20;
	struct rdma_ucm_set_option in = {.optval = (uintptr_t)&tos,
		.id = id,
		.level = RDMA_OPTION_ID,
		.optname = RDMA_OPTION_ID_TOS,
		.optlen = 1};

	cr_expect_eq(COMMAND(file, SET_OPTION, in), 0);
	in.optlen = 2;
	cr_expect_eq(COMMAND(file, SET_OPTION, in), EINVAL);
	in.level = RDMA_OPTION_IB;
	in.optname = RDMA_OPTION_IB_PATH;
	cr_expect_eq(COMMAND(file, SET_OPTION, in), ENOSYS);
	in.id = id + 1;
	cr_expect_eq(COMMAND(file, SET_OPTION, in), ENOENT);
	close_file(file);
}

Test(ucma, a_group)
{
	struct kv_cm_file *file = open_file(0);
	uint32_t id = created(file, 30, RDMA_PS_UDP);
	struct rdma_ucm_create_id_resp group;
	struct rdma_ucm_join_ip_mcast in = {
		.response = (uintptr_t)&group, .uid = 31, .addr = address(0xe0010203, 0), .id = id};
	struct rdma_ucm_destroy_id_resp left;
	struct rdma_ucm_destroy_id leave = {.response = (uintptr_t)&left};
	struct rdma_ucm_event_resp got;

	cr_assert_eq(bind_to(file, id, HERE, 0), 0);
	cr_assert_eq(ASK(file, JOIN_IP_MCAST, in, group), 0);
	got = expect_event(file, RDMA_CM_EVENT_MULTICAST_JOIN);
	cr_expect_eq(got.uid, 31);
	cr_expect_eq(got.param.ud.qp_num, 0xffffff);
	cr_expect_eq(got.param.ud.ah_attr.grh.dgid[12], 0xe0);
	leave.id = group.id;
	cr_assert_eq(ASK(file, LEAVE_MCAST, leave, left), 0);
	cr_expect_eq(left.events_reported, 1);
	expect_destroyed(file, id, 1);
	close_file(file);
}
