/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * In the guest: records the frames of an interface, for ports whose frames cannot be captured
 * elsewhere.
 *
 *   frames INTERFACE FILE      until it is killed, or the file is full
 *
 * Writes a pcap file with nanoseconds, with the times at which the kernel had the frames; it is
 * complete after each frame.
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define FRAME_MAX 65536
#define FILE_MAX  (16u << 20)
#define BUFFER    (16 << 20)

struct record {
	uint32_t sec;
	uint32_t nsec;
	uint32_t have;
	uint32_t len;
};

/* Receives a frame, and the time when the kernel had it, which may be much earlier than now. */
static ssize_t
receive(int fd, void *frame, struct timespec *when)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(*when))];
	} control;
	struct iovec iov = {frame, FRAME_MAX};
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(fd, &m, 0);
	const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS)
		memcpy(when, CMSG_DATA(c), sizeof(*when));
	else
		clock_gettime(CLOCK_REALTIME, when);
	return n;
}

int
main(int argc, char **argv)
{
	static uint8_t frame[FRAME_MAX];
	const uint32_t head[6] = {0xa1b23c4d, 2 | 4 << 16, 0, 0, FRAME_MAX, 1};
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	int size = BUFFER, on = 1;
	size_t written = sizeof(head);
	struct timespec now;
	struct record r;
	FILE *f;
	ssize_t n;

	if (argc != 3)
		return 2;
	at.sll_ifindex = (int)if_nametoindex(argv[1]);
	f = fopen(argv[2], "wb");
	if (fd < 0 || f == NULL || at.sll_ifindex == 0 ||
		bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
		perror("frames");
		return 1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
	if (fwrite(head, sizeof(head), 1, f) != 1 || fflush(f) != 0)
		return 1;
	while (written < FILE_MAX && (n = receive(fd, frame, &now)) > 0) {
		r = (struct record){
			(uint32_t)now.tv_sec, (uint32_t)now.tv_nsec, (uint32_t)n, (uint32_t)n};
		written += sizeof(r) + (size_t)n;
		if (fwrite(&r, sizeof(r), 1, f) != 1 || fwrite(frame, (size_t)n, 1, f) != 1 ||
			fflush(f) != 0)
			break;
	}
	return 0;
}
