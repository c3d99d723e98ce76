/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "wake.h"

#include <dirent.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Returns the address family of a socket; -1: it is not a socket. */
static int
family_of(int fd)
{
	socklen_t len = sizeof(int);
	int domain;

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 ? domain : -1;
}

bool
kd_wake_is_packet(int fd)
{
	return family_of(fd) == AF_PACKET;
}

static bool
receives(int fd)
{
	int family = family_of(fd);

	return family == AF_PACKET || family == AF_XDP;
}

static bool
is_tap(int fd)
{
	struct ifreq ifr = {0};

	return ioctl(fd, TUNGETIFF, &ifr) == 0;
}

static int
wake_compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

void
kd_wake_scan(struct kd_fds *fds, bool taps)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *d;

	fds->n = 0;
	if (dir == NULL)
		return;
	while ((d = readdir(dir)) != NULL && fds->n < KD_MAX_FDS) {
		int fd = atoi(d->d_name);

		if (d->d_name[0] == '.' || fd == dirfd(dir))
			continue;
		if (taps ? is_tap(fd) : receives(fd))
			fds->fd[fds->n++] = fd;
	}
	closedir(dir);
	qsort(fds->fd, fds->n, sizeof(fds->fd[0]), wake_compare);
}

void
kd_wake_only_new(struct kd_fds *fds, const struct kd_fds *before)
{
	uint32_t i, j, n = 0;

	for (i = 0; i < fds->n; i++) {
		for (j = 0; j < before->n && before->fd[j] != fds->fd[i]; j++)
			;
		if (j == before->n)
			fds->fd[n++] = fds->fd[i];
	}
	fds->n = n;
}
