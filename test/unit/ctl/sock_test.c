/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Messages over sockets: received whole or refused, with all their descriptors or none. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_ctl_sock.h"
#include "message.h"

static struct message m, got;
static int fds[256];
static unsigned int nfds;
static size_t len;

static void
make_pair(int pair[2])
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

static unsigned int
open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static int
receive(int fd)
{
	memset(&got, 0xee, sizeof(got));
	return karst_ctl_recv(fd, &got, &len, fds, &nfds);
}

Test(sock, one_message)
{
	size_t sent = message_request(&m, KARST_CTL_HELLO, 72);
	int pair[2];

	make_pair(pair);
	cr_assert_eq(karst_ctl_send(pair[0], &m, sent, NULL, 0), 0);
	cr_assert_eq(receive(pair[1]), 0);
	cr_assert_eq(len, sent);
	cr_assert_eq(nfds, 0);
	cr_assert_eq(memcmp(&m, &got, sent), 0);
	sent = message_request(&m, KARST_CTL_HELLO, KARST_CTL_MAX - sizeof(struct karst_ctl_hdr));
	cr_assert_eq(sent, KARST_CTL_MAX);
	cr_assert_eq(karst_ctl_send(pair[0], &m, sent, NULL, 0), 0);
	cr_assert_eq(receive(pair[1]), 0);
	cr_assert_eq(len, sent);
	cr_assert_eq(karst_ctl_send(pair[0], &m, sent + 1, NULL, 0), -EMSGSIZE);
}

Test(sock, descriptors)
{
	int pair[2], sent[KARST_CTL_MAX_FDS];
	unsigned int i, before;
	uint64_t v;

	make_pair(pair);
	for (i = 0; i < KARST_CTL_MAX_FDS; i++)
		sent[i] = eventfd(i + 1, 0);
	before = open_fds();
	cr_assert_eq(karst_ctl_send(pair[0], &m, 100, sent, KARST_CTL_MAX_FDS), 0);
	cr_assert_eq(receive(pair[1]), 0);
	cr_assert_eq(nfds, KARST_CTL_MAX_FDS);
	for (i = 0; i < nfds; i++) {
		cr_assert_eq(read(fds[i], &v, sizeof(v)), 8);
		cr_assert_eq(v, i + 1, "in order");
		cr_assert(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
	}
	karst_ctl_close_fds(fds, nfds);
	cr_assert_eq(open_fds(), before);
	cr_assert_eq(karst_ctl_send(pair[0], &m, 100, sent, KARST_CTL_MAX_FDS + 1), -EMSGSIZE);
}

/* Sends without the checks of the library. */
static void
raw_send(int fd, size_t bytes, const int *send_fds, unsigned int n)
{
	struct iovec iov = {&m, bytes};
	char anc[CMSG_SPACE(250 * sizeof(int))] karst_aligned(8) = {0};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c = (void *)anc;

	if (n > 0) {
		mh.msg_control = anc;
		mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(n * sizeof(int)),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(c), send_fds, n * sizeof(int));
	}
	cr_assert_eq(sendmsg(fd, &mh, 0), (ssize_t)bytes);
}

/* No descriptor of a truncated message stays open. */
Test(sock, truncated)
{
	int pair[2], sent[200], i;
	unsigned int before;

	make_pair(pair);
	for (i = 0; i < 200; i++)
		sent[i] = pair[0];
	before = open_fds();
	raw_send(pair[0], KARST_CTL_MAX + 1, sent, 3);
	cr_assert_eq(receive(pair[1]), -EMSGSIZE);
	cr_assert_eq(len, KARST_CTL_MAX);
	cr_assert_eq(open_fds(), before);
	raw_send(pair[0], 50, sent, KARST_CTL_MAX_FDS + 1);
	cr_assert_eq(receive(pair[1]), -EMFILE);
	cr_assert_eq(len, 50);
	cr_assert_eq(nfds, 0);
	cr_assert_eq(open_fds(), before);
	raw_send(pair[0], 50, sent, 200);
	cr_assert_eq(receive(pair[1]), -EMFILE);
	cr_assert_eq(open_fds(), before);
	raw_send(pair[0], 50, sent, 1);
	cr_assert_eq(receive(pair[1]), 0, "and it goes on");
	cr_assert_eq(nfds, 1);
}

/* A receiver that may not open more descriptors. */
Test(sock, no_descriptors_left)
{
	struct rlimit r;
	int pair[2], sent[8], i;
	unsigned int before;

	make_pair(pair);
	for (i = 0; i < 8; i++)
		sent[i] = pair[0];
	before = open_fds();
	cr_assert_eq(karst_ctl_send(pair[0], &m, 50, sent, 8), 0);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &r), 0);
	/* the lowest free number, so that 2 of the 8 fit */
	i = dup(pair[0]);
	close(i);
	r.rlim_cur = (rlim_t)i + 2;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
	cr_assert_eq(receive(pair[1]), -EMFILE);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	cr_assert_eq(open_fds(), before);
}

Test(sock, hang_up)
{
	int pair[2];

	make_pair(pair);
	cr_assert_not(karst_ctl_hung_up(pair[1]));
	cr_assert_eq(karst_ctl_send(pair[0], &m, 50, NULL, 0), 0);
	close(pair[0]);
	cr_assert(karst_ctl_hung_up(pair[1]), "although there is a message yet");
	cr_assert_eq(receive(pair[1]), 0);
	cr_assert_eq(receive(pair[1]), -ECONNRESET);
	/* an error, and no signal */
	cr_assert_eq(karst_ctl_send(pair[1], &m, 50, NULL, 0), -EPIPE);
	make_pair(pair);
	cr_assert_eq(send(pair[0], &m, 0, 0), 0);
	cr_assert_eq(receive(pair[1]), -ECONNRESET, "an empty packet");
}

/* The credentials are those of the process that connected, not of the caller. */
Test(sock, peer)
{
	struct karst_ctl_peer peer;
	int pair[2], status;
	struct pollfd p;
	pid_t child;

	make_pair(pair);
	cr_assert_eq(karst_ctl_peer(pair[0], &peer), 0);
	cr_assert_eq(peer.pid, getpid());
	cr_assert_eq(peer.uid, geteuid());
	cr_assert_eq(peer.gid, getegid());
	p = (struct pollfd){.fd = peer.pidfd, .events = POLLIN};
	cr_assert_eq(poll(&p, 1, 0), 0, "alive");
	close(peer.pidfd);
	/* the process that makes a pair is the peer of both ends */
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	close(pair[1]);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	cr_assert(karst_ctl_hung_up(pair[0]));
}

/* --- both ends --- */

struct server {
	struct karst_ctl_server srv;
	int fd;
	pthread_t thread;
	unsigned int handled, attended;
	int ret;
	int stream[2];
};

static int
handle(void *user, const void *req, size_t req_len, const int *req_fds, unsigned int req_nfds,
	void *rsp, size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	const struct karst_ctl_hdr *h = req;
	char text[KARST_CTL_WHY] = "";
	struct server *s = user;
	int ret = karst_ctl_check_request(req, req_len, req_nfds, text);

	s->handled++;
	*nrsp_fds = 0;
	if (ret != 0) {
		*rsp_len = karst_ctl_refuse(req, req_len, ret, text, rsp);
		return 0;
	}
	*rsp_len = karst_ctl_reply(h, rsp);
	if (h->op == KARST_CTL_CREATE_CHANNEL) {
		rsp_fds[0] = dup(s->stream[0]);
		*nrsp_fds = ((struct karst_ctl_hdr *)rsp)->nfds = 1;
	} else if (h->op == KARST_CTL_REG_MR) {
		uint64_t v = 5;

		cr_assert_eq(write(req_fds[0], &v, sizeof(v)), 8);
	} else if (h->op == KARST_CTL_QUERY_SRQ) {
		((struct karst_ctl_hdr *)rsp)->seq++; /* a wrong reply */
	} else if (h->op == KARST_CTL_QUERY_QP) {
		return -EIO;
	}
	return 0;
}

static void
attend(void *user)
{
	struct server *s = user;
	uint64_t v;

	cr_assert_eq(read(s->srv.attend_fd, &v, sizeof(v)), 8);
	s->attended++;
}

static void *
serve(void *arg)
{
	struct server *s = arg;

	s->ret = karst_ctl_serve(s->fd, &s->srv);
	close(s->fd);
	return NULL;
}

static void
start(struct server *s, struct karst_ctl_conn *conn)
{
	int pair[2];

	make_pair(pair);
	*s = (struct server){.fd = pair[1],
		.srv = {.handle = handle,
			.attend = attend,
			.attend_fd = eventfd(0, EFD_NONBLOCK),
			.user = s}};
	cr_assert_eq(pipe(s->stream), 0);
	cr_assert_eq(pthread_create(&s->thread, NULL, serve, s), 0);
	cr_assert_eq(karst_ctl_socket_conn(pair[0], conn), 0);
}

static int
call(struct karst_ctl_conn *conn, uint32_t op, size_t body, const int *with, unsigned int n)
{
	size_t sent = message_request(&m, op, body);

	message_hdr(&m)->nfds = n;
	return conn->call(conn->user, &m, sent, with, n, &got, &len, fds, &nfds);
}

Test(conn, calls)
{
	struct karst_ctl_conn conn;
	unsigned int before, i;
	struct server s;
	uint64_t v = 0;
	int efd;

	start(&s, &conn);
	efd = eventfd(0, 0);
	before = open_fds();
	for (i = 0; i < 1000; i++) {
		cr_assert_eq(call(&conn, KARST_CTL_CREATE_CHANNEL, 8, NULL, 0), 0);
		cr_assert_eq(message_hdr(&got)->status, 0);
		cr_assert_eq(nfds, 1);
		close(fds[0]);
		cr_assert_eq(call(&conn, KARST_CTL_REG_MR, 40, &efd, 1), 0);
		cr_assert_eq(message_hdr(&got)->status, 0);
	}
	cr_assert_eq(open_fds(), before);
	cr_assert_eq(read(efd, &v, sizeof(v)), 8);
	cr_assert_eq(v, 5000);
	cr_assert_eq(call(&conn, 8888, 8, NULL, 0), 0);
	cr_assert_eq(message_hdr(&got)->status, -EOPNOTSUPP);
	/* a request that the handler never gets */
	message_request(&m, KARST_CTL_ALLOC_PD, KARST_CTL_MAX);
	raw_send(conn.hup_fd, KARST_CTL_MAX + 5, NULL, 0);
	cr_assert_eq(receive(conn.hup_fd), 0);
	cr_assert_eq(message_hdr(&got)->status, -EMSGSIZE);
	v = 1;
	cr_assert_eq(write(s.srv.attend_fd, &v, sizeof(v)), 8);
	cr_assert_eq(call(&conn, KARST_CTL_ALLOC_PD, 8, NULL, 0), 0);
	conn.close(conn.user);
	pthread_join(s.thread, NULL);
	cr_assert_eq(s.ret, 0);
	cr_assert_eq(s.handled, 2002);
	cr_assert_leq(s.attended, 1); /* the connection may end first */
}

/* Attending alone wakes the loop. */
Test(conn, attend)
{
	struct karst_ctl_conn conn;
	struct pollfd p;
	struct server s;
	uint64_t v = 1;

	start(&s, &conn);
	cr_assert_eq(write(s.srv.attend_fd, &v, sizeof(v)), 8);
	p = (struct pollfd){.fd = s.srv.attend_fd, .events = POLLIN};
	while (poll(&p, 1, 0) > 0)
		usleep(100);
	shutdown(s.fd, SHUT_RDWR);
	pthread_join(s.thread, NULL);
	cr_assert_eq(s.ret, 0);
	cr_assert_eq(s.attended, 1);
	cr_assert_eq(call(&conn, KARST_CTL_ALLOC_PD, 8, NULL, 0), -EIO);
	conn.close(conn.user);
}

static _Atomic bool ended;

static void *
end_later(void *arg)
{
	usleep(50000);
	atomic_store(&ended, true);
	close(*(const int *)arg);
	return NULL;
}

/* An engine that receives no more requests is not gone: its lcores may still complete what was
 * posted.  A call fails only when it has closed its end. */
Test(conn, end_of_the_engine)
{
	struct karst_ctl_conn conn;
	struct pollfd p;
	pthread_t thread;
	int pair[2];

	make_pair(pair);
	cr_assert_eq(karst_ctl_socket_conn(pair[0], &conn), 0);
	shutdown(pair[1], SHUT_RD);
	cr_assert(karst_ctl_hung_up(pair[1]));
	p = (struct pollfd){.fd = pair[0]};
	cr_assert_eq(poll(&p, 1, 0), 0);
	cr_assert_eq(pthread_create(&thread, NULL, end_later, &pair[1]), 0);
	cr_assert_eq(call(&conn, KARST_CTL_ALLOC_PD, 8, NULL, 0), -EIO);
	cr_assert(atomic_load(&ended));
	pthread_join(thread, NULL);
	conn.close(conn.user);
}

/* No answer comes, and the call does not wait for ever. */
Test(conn, silence)
{
	const struct timeval tv = {.tv_usec = 20000};
	struct karst_ctl_conn conn;
	int pair[2];

	make_pair(pair);
	cr_assert_eq(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
	cr_assert_eq(karst_ctl_socket_conn(pair[0], &conn), 0);
	cr_assert_eq(call(&conn, KARST_CTL_ALLOC_PD, 8, NULL, 0), -ETIMEDOUT);
	cr_assert_eq(call(&conn, KARST_CTL_ALLOC_PD, 8, NULL, 0), -EIO);
	conn.close(conn.user);
	close(pair[1]);
}

/* A child that was forked just before has the socket as well, and may keep it for long. */
Test(conn, closed_for_all)
{
	struct karst_ctl_conn conn;
	int pair[2], childs;
	char byte;

	make_pair(pair);
	cr_assert_eq(karst_ctl_socket_conn(pair[0], &conn), 0);
	childs = dup(pair[0]);
	conn.close(conn.user);
	cr_assert_eq(recv(pair[1], &byte, 1, MSG_DONTWAIT), 0);
	close(childs);
	close(pair[1]);
}

/* A connection with a wrong answer, or none, stays broken. */
Test(conn, broken)
{
	struct karst_ctl_conn conn;
	struct server s;

	start(&s, &conn);
	cr_assert_eq(call(&conn, KARST_CTL_QUERY_SRQ, 8, NULL, 0), 0);
	cr_assert_eq(karst_ctl_check_reply(message_hdr(&m), &got, len, nfds, NULL), -EPROTO);
	cr_assert_eq(call(&conn, KARST_CTL_ALLOC_PD, 8, NULL, 0), -EIO);
	conn.close(conn.user);
	pthread_join(s.thread, NULL);
	start(&s, &conn);
	cr_assert_eq(call(&conn, KARST_CTL_QUERY_QP, 8, NULL, 0), -EIO);
	cr_assert_eq(call(&conn, KARST_CTL_ALLOC_PD, 8, NULL, 0), -EIO);
	pthread_join(s.thread, NULL);
	cr_assert_eq(s.ret, -EIO);
	conn.close(conn.user);
}

/* A descriptor that is not open fails the request alone; the socket's own descriptor fails the
 * connection. */
Test(conn, descriptors_that_are_not_open)
{
	const int none[2] = {0, INT_MAX};
	struct karst_ctl_conn conn;
	struct server s;

	start(&s, &conn);
	cr_assert_eq(call(&conn, KARST_CTL_REG_MR, 40, none, 2), -EBADF);
	cr_assert_eq(nfds, 0);
	cr_assert_eq(call(&conn, KARST_CTL_ALLOC_PD, 8, NULL, 0), 0);
	cr_assert_eq(message_hdr(&got)->status, 0);
	close(conn.hup_fd);
	pthread_join(s.thread, NULL);
	cr_assert_eq(call(&conn, KARST_CTL_REG_MR, 40, none, 1), -EIO);
	cr_assert_eq(s.handled, 1);
	conn.close(conn.user);
}

/* The program has no room for the descriptor that comes with a reply. */
Test(conn, no_descriptors_left)
{
	struct karst_ctl_conn conn;
	int pair[2], lowest;
	struct rlimit r;

	make_pair(pair);
	cr_assert_eq(karst_ctl_socket_conn(pair[0], &conn), 0);
	/* the reply is sent before it is asked for */
	message_request(&m, KARST_CTL_CREATE_CHANNEL, 8);
	len = karst_ctl_reply(message_hdr(&m), &got);
	message_hdr(&got)->nfds = 1;
	cr_assert_eq(karst_ctl_send(pair[1], &got, len, &pair[1], 1), 0);
	cr_assert_eq(karst_ctl_send(pair[1], &got, len, &pair[1], 1), 0);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &r), 0);
	lowest = dup(0);
	close(lowest);
	r.rlim_cur = (rlim_t)lowest;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
	cr_assert_eq(call(&conn, KARST_CTL_CREATE_CHANNEL, 8, NULL, 0), -EMFILE);
	cr_assert_eq(karst_ctl_check_reply(message_hdr(&m), &got, len, 0, NULL), 0);
	cr_assert_eq(message_hdr(&got)->status, 0, "the engine has done it");
	cr_assert_eq(nfds, 0);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	cr_assert_eq(call(&conn, KARST_CTL_CREATE_CHANNEL, 8, NULL, 0), 0);
	cr_assert_eq(message_hdr(&got)->status, 0);
	cr_assert_eq(nfds, 1);
	conn.close(conn.user);
}

#define DEAF_CALLS 100u
#define DEAF_MOST  32u

/* A peer that sends requests and does not read the replies is disconnected early.  Descriptors in
 * unread replies count as the engine's, and the number of descriptors in flight is limited.  @own:
 * each request carries the sender's own end of the connection, which therefore stays open as long
 * as not all requests have been read. */
static void
be_deaf(bool own)
{
	struct karst_ctl_conn conn;
	struct server s;
	unsigned int i;
	size_t sent;

	start(&s, &conn);
	for (i = 0; i < DEAF_CALLS; i++) {
		sent = message_request(&m, KARST_CTL_CREATE_CHANNEL, 8);
		message_hdr(&m)->nfds = own;
		/* the server may have disconnected by now */
		if (karst_ctl_send(conn.hup_fd, &m, sent, &conn.hup_fd, own) != 0)
			break;
	}
	pthread_join(s.thread, NULL);
	cr_assert_eq(s.ret, -EAGAIN, "%d", s.ret);
	cr_assert_leq(s.handled, DEAF_MOST);
	conn.close(conn.user);
}

Test(conn, answers_that_are_not_read)
{
	be_deaf(false);
	be_deaf(true);
}
