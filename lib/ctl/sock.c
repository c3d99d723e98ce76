/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Sends and receives one message over a socket, and identifies the process at the other end.
 */
#include "karst_ctl_sock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* Room for the descriptors of a message, with the alignment that the kernel requires. */
union ancillary {
	struct cmsghdr hdr;
	uint8_t bytes[CMSG_SPACE(KARST_CTL_MAX_FDS * sizeof(int))];
};

void
karst_ctl_close_fds(const int *fds, unsigned int n)
{
	while (n > 0)
		close(fds[--n]);
}

static int
sock_send(int fd, const void *msg, size_t len, const int *fds, unsigned int nfds, int flags)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	union ancillary anc;
	ssize_t n;

	if (len > KARST_CTL_MAX || nfds > KARST_CTL_MAX_FDS)
		return -EMSGSIZE;
	if (nfds > 0) {
		memset(&anc, 0, sizeof(anc));
		mh.msg_control = &anc;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		anc.hdr.cmsg_level = SOL_SOCKET;
		anc.hdr.cmsg_type = SCM_RIGHTS;
		anc.hdr.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&anc.hdr), fds, nfds * sizeof(int));
	}
	do {
		n = sendmsg(fd, &mh, MSG_NOSIGNAL | flags);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int
karst_ctl_send(int fd, const void *msg, size_t len, const int *fds, unsigned int nfds)
{
	return sock_send(fd, msg, len, fds, nfds, 0);
}

int
karst_ctl_send_now(int fd, const void *msg, size_t len, const int *fds, unsigned int nfds)
{
	return sock_send(fd, msg, len, fds, nfds, MSG_DONTWAIT);
}

/* Stores the descriptors in @mh, and closes those for which there is no room. */
static unsigned int
take_fds(struct msghdr *mh, int *fds)
{
	struct cmsghdr *c;
	unsigned int n = 0;

	for (c = CMSG_FIRSTHDR(mh); c != NULL; c = CMSG_NXTHDR(mh, c)) {
		size_t i, have = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (i = 0; i < have; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (n < KARST_CTL_MAX_FDS)
				fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

int
karst_ctl_recv(int fd, void *buf, size_t *len, int *fds, unsigned int *nfds)
{
	struct iovec iov = {.iov_base = buf, .iov_len = KARST_CTL_MAX};
	union ancillary anc;
	struct msghdr mh = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &anc,
		.msg_controllen = sizeof(anc)};
	ssize_t n;

	do {
		n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*len = (size_t)n;
	*nfds = take_fds(&mh, fds);
	if (n > 0 && (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0)
		return 0;
	karst_ctl_close_fds(fds, *nfds);
	*nfds = 0;
	if (n == 0)
		return -ECONNRESET;
	return mh.msg_flags & MSG_TRUNC ? -EMSGSIZE : -EMFILE;
}

bool
karst_ctl_hung_up(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
}

/* Returns a descriptor of the process that connected; *pidfd -1: this kernel does not provide
 * it. */
static int
peer_pidfd(int fd, int *pidfd)
{
	socklen_t size = sizeof(*pidfd);

	/* lets tests check the behaviour with a kernel before Linux 6.5 */
	if (secure_getenv("KARST_TEST_NO_PEERPIDFD") == NULL &&
		getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, pidfd, &size) == 0)
		return 0;
	else if (secure_getenv("KARST_TEST_NO_PEERPIDFD") == NULL && errno != ENOPROTOOPT)
		return -errno;
	/* Not pidfd_open(): the number may belong to another process by now. */
	*pidfd = -1;
	return 0;
}

int
karst_ctl_peer(int fd, struct karst_ctl_peer *peer)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);
	int ret;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0)
		return -errno;
	if (cred.pid <= 0)
		return -ESRCH;
	ret = peer_pidfd(fd, &peer->pidfd);
	if (ret != 0)
		return ret;
	peer->pid = cred.pid;
	peer->uid = cred.uid;
	peer->gid = cred.gid;
	return 0;
}
