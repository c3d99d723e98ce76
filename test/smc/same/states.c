/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What a program asks about the state of a connection: TCP_INFO, what is not sent or not confirmed
 * yet, and options that change what later calls do.
 */
#include "same.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the C library's struct tcp_info is too old to have is in "rest". */
union info {
	struct tcp_info i;
	uint32_t rest[64];
};

#define NOTSENT 36 /* place of tcpi_notsent_bytes in "rest" */

static union info
info_of(int fd)
{
	union info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		fail("TCP_INFO");
	return info;
}

/* The state follows what has arrived, which takes a moment. */
static void
tell_state(int fd, int wanted)
{
	for (int i = 0; i < 200 && info_of(fd).i.tcpi_state != wanted; i++)
		usleep(10000);
	printf(" %d", info_of(fd).i.tcpi_state);
}

enum {
	ESTABLISHED = 1,
	FIN_WAIT1 = 4,
	FIN_WAIT2,
	TIME_WAIT,
	CLOSED,
	CLOSE_WAIT,
	LAST_ACK,
	LISTENS
};

static void
states_of_client_end(void)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell_state(near, CLOSED);
	close(near);
	tell_state(listener, LISTENS);
	open_both();
	tell_state(near, ESTABLISHED);
	tell_state(far, ESTABLISHED);
	shutdown(near, SHUT_WR);
	tell_state(near, FIN_WAIT2);
	tell_state(far, CLOSE_WAIT);
	tell(send(far, "abc", 3, 0));
	tell_state(far, CLOSE_WAIT);
	shutdown(far, SHUT_WR);
	tell_state(near, CLOSED);
	tell_state(far, CLOSED);
	tell(recv(near, data, 9, 0));
	tell_state(near, CLOSED);
}

static void
states_of_close(void)
{
	const struct linger none = {0};
	const int one = 1;

	open_both();
	close(near);
	tell_state(far, CLOSE_WAIT);
	tell(recv(far, data, 9, 0));
	tell_state(far, CLOSE_WAIT);
	tell(send(far, "x", 1, 0));
	tell_state(far, CLOSED);
	tell(setsockopt(far, SOL_SOCKET, SO_LINGER, &none, sizeof(none)));
	tell(setsockopt(far, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
	tell(setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	open_both();
	reset(near);
	tell_state(far, CLOSED);
	tell(recv(far, data, 9, 0));
	tell_state(far, CLOSED);
	open_both();
	shutdown(far, SHUT_RD);
	tell_state(far, ESTABLISHED);
	tell_state(near, ESTABLISHED);
	shutdown(far, SHUT_RDWR);
	tell_state(far, FIN_WAIT2);
	tell_state(near, CLOSE_WAIT);
	open_both();
	give(near, 3);
	close(near);
	tell_state(far, CLOSE_WAIT);
	tell(recv(far, data, 9, 0));
}

/* Fields that programs read. */
static void
fields(void)
{
	union info all;
	struct tcp_info i;

	open_both();
	for (int n = 0; n < 200 && info_of(near).i.tcpi_unacked != 0; n++)
		usleep(10000);
	all = info_of(near);
	i = all.i;
	printf(" %d %d %d %u %u %d", i.tcpi_ca_state, i.tcpi_retransmits, i.tcpi_backoff,
		i.tcpi_unacked, all.rest[NOTSENT], i.tcpi_rtt > 0 && i.tcpi_rtt < 1000000);
	printf(" %d %d %d", i.tcpi_snd_mss > 500, i.tcpi_rto > 0, i.tcpi_snd_cwnd > 0);
}

static void
tell_queue(int fd, unsigned long request, int wanted)
{
	int n = -1;

	for (int i = 0; i < 100 && ioctl(fd, request, &n) == 0 && (n != 0) != wanted; i++)
		usleep(10000);
	printf(" %s", n == 0 ? "none" : n > 0 ? "some" : "-");
}

/* What has come to the other machine counts as sent, whether or not its program reads it. */
static void
queues(void)
{
	ssize_t unread = 1000;
	int n = -1;

	open_both();
	tell_queue(near, SIOCOUTQ, 0);
	tell_queue(near, SIOCOUTQNSD, 0);
	give(near, (size_t)unread);
	tell_queue(near, SIOCOUTQ, 0);
	tell_queue(near, SIOCOUTQNSD, 0);
	tell(ioctl(far, SIOCINQ, &n));
	printf("=%d", n);
	unread -= recv(far, data, 100, 0);
	tell(unread);
	tell(ioctl(far, SIOCINQ, &n));
	printf("=%d", n);
	unread += fill();
	tell_queue(near, SIOCOUTQ, 1);
	tell_queue(near, SIOCOUTQNSD, 1);
	printf(" %d", info_of(near).rest[NOTSENT] > 0);
	drain(unread);
	tell_queue(near, SIOCOUTQ, 0);
	tell_queue(near, SIOCOUTQNSD, 0);
	printf(" %d", info_of(near).rest[NOTSENT] > 0);
	give(near, 10);
	shutdown(near, SHUT_WR);
	await(far, POLLRDHUP);
	tell_queue(near, SIOCOUTQ, 0);
	tell(ioctl(far, SIOCINQ, &n));
	printf("=%d", n);
	tell(recv(far, data, sizeof(data), 0));
	tell(recv(far, data, sizeof(data), MSG_DONTWAIT));
	tell(ioctl(far, SIOCINQ, &n));
	printf("=%d", n);
	tell(recv(far, data, sizeof(data), 0));
	tell(ioctl(far, SIOCINQ, &n));
	printf("=%d", n);
	close(far);
	tell_queue(near, SIOCOUTQ, 0);
	tell(ioctl(near, SIOCINQ, &n));
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(ioctl(near, SIOCINQ, &n));
	printf("=%d", n);
	tell(ioctl(near, SIOCOUTQ, &n));
	printf("=%d", n);
	tell(ioctl(listener, SIOCINQ, &n));
	tell(ioctl(listener, SIOCOUTQ, &n));
}

static void
queues_after_reset(void)
{
	int n = -1;

	open_both();
	give(near, 1000);
	reset(near);
	await(far, POLLRDHUP);
	tell(ioctl(far, SIOCINQ, &n));
	printf("=%d", n);
	tell(ioctl(far, SIOCOUTQ, &n));
	printf("=%d", n);
	tell(recv(far, data, 9, 0));
	tell(ioctl(far, SIOCINQ, &n));
	printf("=%d", n);
}

static void
tell_int(int fd, int level, int name)
{
	int v = -1;
	socklen_t len = sizeof(v);

	tell(getsockopt(fd, level, name, &v, &len));
	printf("=%d/%u", v, len);
}

static const struct {
	int name, set;
} numbers[] = {
	{SO_BUSY_POLL, 0},
	{SO_PREFER_BUSY_POLL, 0},
	{SO_INCOMING_CPU, 1},
	{SO_BUF_LOCK, 0},
	{SO_TXREHASH, 1},
	{SO_SNDLOWAT, 1},
	{SO_RCVLOWAT, 5},
	{SO_PEERSEC, -1},
	{SO_BINDTOIFINDEX, 1},
	{SO_DEBUG, -1},
	{SO_NO_CHECK, 1},
	{SO_PASSCRED, 1},
	{SO_RXQ_OVFL, 1},
	{SO_WIFI_STATUS, 1},
	{SO_NOFCS, 1},
	{SO_SELECT_ERR_QUEUE, 1},
	{SO_BPF_EXTENSIONS, -1},
	{SO_DETACH_FILTER, 1},
	{SO_LOCK_FILTER, 1},
	{9999, 1},
};

static void
other_numbers(void)
{
	open_both();
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (numbers[i].set >= 0)
			tell(setsockopt(
				near, SOL_SOCKET, numbers[i].name, &numbers[i].set, sizeof(int)));
		tell_int(near, SOL_SOCKET, numbers[i].name);
	}
}

static const struct {
	int name, set;
} tcp_numbers[] = {
	{TCP_MAXSEG, 1000},
	{TCP_DEFER_ACCEPT, 3},
	{TCP_WINDOW_CLAMP, 50000},
	{TCP_SAVE_SYN, 1},
	{TCP_TIMESTAMP, 0},
	{TCP_FASTOPEN, 1},
	{TCP_FASTOPEN_CONNECT, 1},
	{TCP_FASTOPEN_NO_COOKIE, 1},
	{999, 1},
};

static void
tcp_others(void)
{
	open_both();
	for (size_t i = 0; i < sizeof(tcp_numbers) / sizeof(tcp_numbers[0]); i++) {
		int v = -1, name = tcp_numbers[i].name;
		socklen_t len = sizeof(v);

		printf(" %d:", name);
		if (tcp_numbers[i].set >= 0)
			tell(setsockopt(near, IPPROTO_TCP, name, &tcp_numbers[i].set, sizeof(int)));
		tell(getsockopt(near, IPPROTO_TCP, name, &v, &len));
	}
}

static void
other_levels(void)
{
	static const int names[][2] = {{IPPROTO_IP, IP_TRANSPARENT}, {IPPROTO_IP, IP_NODEFRAG},
		{IPPROTO_IP, IP_HDRINCL}, {IPPROTO_IP, IP_RECVOPTS}, {IPPROTO_IP, IP_RETOPTS},
		{IPPROTO_IP, IP_MULTICAST_TTL}, {IPPROTO_IP, IP_MULTICAST_LOOP},
		{IPPROTO_IP, IP_CHECKSUM}, {IPPROTO_IP, IP_UNICAST_IF}, {IPPROTO_UDP, 1},
		{9999, 1}};
	const int one = 1;

	open_both();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		tell_int(near, names[i][0], names[i][1]);
	tell(setsockopt(near, IPPROTO_UDP, 1, &one, sizeof(one)));
	tell(setsockopt(near, 9999, 1, &one, sizeof(one)));
}

const struct same_case states[] = {
	{"states of a connection", states_of_client_end},
	{"states of a connection, closed and reset", states_of_close},
	{"fields of TCP_INFO", fields},
	{"SIOCINQ and SIOCOUTQ", queues},
	{"SIOCINQ after a reset", queues_after_reset},
	{"other options of sockets", other_numbers},
	{"other options of TCP", tcp_others},
	{"options of other levels", other_levels},
	{NULL, NULL},
};
