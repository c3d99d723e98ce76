/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The rdma_cm device: commands that are refused, files, and threads that wait for an event. */

#include "ucma_bed.h"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#ifndef AF_IB
#define AF_IB 27
#endif

TestSuite(ucma, .init = ucma_up, .fini = ucma_down);

/* --- commands that are refused --- */

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

/* Each command, a byte short; and each command with an answer, with a byte less of room. */
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

/* As with the kernel, for which 127.0.0.1 is any address; libfabric depends on it. */
Test(ucma, loopback_addresses_of_no_port)
{
	struct kv_cm_file *file = open_file(0);
	struct rdma_ucm_resolve_ip in = {.id = created(file, 1, RDMA_PS_TCP),
		.dst_addr = address(INADDR_LOOPBACK, 7000),
		.timeout_ms = BED_PATIENCE_MS};
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

/* Programs end without cleaning up; ucma_down() finds what is left. */
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

/* The program closed the descriptor without librdmacm, and has another file with that number. */
Test(ucma, a_descriptor_that_was_closed_behind_our_back)
{
	struct kv_cm_file *file = open_file(0);
	int pipes[2], fd = file->fd;
	char byte;

	cr_assert_eq(bind_to(file, created(file, 1, RDMA_PS_TCP), HERE, 7000), 0);
	cr_assert_eq(pipe(pipes), 0);
	cr_assert_eq(dup2(pipes[1], fd), fd);
	cr_expect_eq(kv_cm_write(fd, "x", 1), 1);
	cr_expect_eq(read(pipes[0], &byte, 1), 1);
	cr_expect_eq(kv_cm_close(fd), 0);
	cr_expect_eq(fcntl(fd, F_GETFD), -1);
	close(pipes[0]);
	close(pipes[1]);
	/* nothing of it is left */
	cr_expect_eq(engine.users, 1);
	file = open_file(0);
	cr_expect_eq(bind_to(file, created(file, 2, RDMA_PS_TCP), HERE, 7000), 0);
	close_file(file);
}

/* And opens a new one, which gets that number. */
Test(ucma, a_number_that_was_closed_behind_our_back)
{
	int fd, hole = dup(STDIN_FILENO); /* for the engine's end of the new one */
	struct kv_cm_file *file = open_file(0);

	fd = file->fd;
	cr_assert_eq(bind_to(file, created(file, 1, RDMA_PS_TCP), HERE, 7000), 0);
	close(fd);
	close(hole);
	file = open_file(0);
	cr_assert_eq(file->fd, fd);
	cr_expect_eq(engine.users, 2);
	cr_expect_eq(bind_to(file, created(file, 2, RDMA_PS_TCP), HERE, 7000), 0);
	close_file(file);
}

/* The kernel requires the credentials with which the file was opened. */
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
	created(file, 1, RDMA_PS_TCP); /* the parent's file is unchanged */
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

/* Waits until a thread is in the command, where it then sleeps. */
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
		.timeout_ms = BED_PATIENCE_MS};
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

/* The file stays until the thread has left it, as with the kernel; programs end like this. */
Test(ucma, a_file_is_closed_while_a_thread_waits)
{
	struct waiter w = {.file = open_file(0)};
	struct stat st;
	pthread_t t;

	cr_assert_eq(pthread_create(&t, NULL, wait_for_event, &w), 0);
	until_used(w.file);
	close_file(w.file);
	/* its number is not free and not in use; the channel would have taken this */
	cr_expect_eq(kv_cm_write(w.file->fd, "", 1), -1);
	cr_expect_eq(errno, EBADF);
	cr_expect_eq(kv_cm_fstat(w.file->fd, &st), -1);
	cr_expect_eq(kv_cm_close(w.file->fd), -1);
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
		.timeout_ms = BED_PATIENCE_MS};
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
