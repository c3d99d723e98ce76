/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program that waits on both ends of its own connection.  Each wait is interrupted by a signal
 * that comes when the call has begun and does not wait in the kernel yet: in the code of
 * libkarst-sockets before that, where it waits for a lock of the connection.  The handlers only
 * record that they ran, as those of Python do, so a call that still began to wait would wait for
 * ever.
 *
 *   smc-interrupted ADDRESS PORT
 *
 * The program prints what each call returned.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "karst_sock.h"

#define NOBODY 0x3fffffffu /* beyond the kernel's limit of thread numbers */
#define TRIES  1000

static volatile sig_atomic_t armed, came;
static int near, far;
static struct karst_sock_page *page; /* the page of near */

/* Replaces the C library's function, for libraries, too. */
long
syscall(long number, ...)
{
	long (*next)(long, ...), a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	if (armed && number == SYS_futex) {
		armed = 0;
		raise(SIGUSR1);
		atomic_store(&page->rx_lock.owner, 0);
		atomic_store(&page->tx_lock.owner, 0);
	}
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void
arm(void)
{
	atomic_store(&page->rx_lock.owner, NOBODY);
	atomic_store(&page->tx_lock.owner, NOBODY);
	armed = 1;
}

/* Finds the page whose peer has @port. */
static struct karst_sock_page *
find_page(in_port_t port)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		struct karst_sock_page *p;

		if (strstr(line, "memfd:karst-smc") == NULL ||
			sscanf(line, "%lx-%lx", &from, &to) != 2 || to - from != KARST_SOCK_PAGE)
			continue;
		p = (struct karst_sock_page *)from;
		if (((const struct sockaddr_in *)&p->peer)->sin_port == port) {
			fclose(f);
			return p;
		}
	}
	fprintf(stderr, "no page\n");
	exit(1);
}

static void
note(int sig)
{
	(void)sig;
	came++;
}

/* For a call that is to be restarted: sends what the call waits for. */
static void
send_byte(int sig)
{
	(void)sig;
	came++;
	if (send(far, "b", 1, 0) != 1)
		abort();
}

static void
handle(void (*handler)(int), int flags)
{
	const struct sigaction act = {.sa_handler = handler, .sa_flags = flags};

	(void)sigaction(SIGUSR1, &act, NULL);
}

/* The C library's header marks it as deprecated, but programs still call it. */
int interrupt_calls(int sig, int interrupts) __asm__("siginterrupt");

static void
tell(const char *what, long rc)
{
	printf("%s %s %d%s\n", what, rc >= 0 ? "returned" : strerrorname_np(errno), (int)came,
		armed ? " without a lock" : "");
	fflush(stdout);
	came = armed = 0;
}

static void
wait_in_each(void)
{
	struct pollfd p = {.fd = near, .events = POLLIN | POLLPRI};
	static char data[1 << 20];
	int tries = 0;
	ssize_t sent;
	fd_set set;
	char byte;

	handle(note, 0);
	arm();
	tell("recv", recv(near, &byte, 1, 0));
	handle(note, SA_RESTART);
	(void)interrupt_calls(SIGUSR1, 1);
	arm();
	tell("recv after siginterrupt", recv(near, &byte, 1, 0));
	arm();
	tell("recv at once", recv(near, &byte, 1, MSG_DONTWAIT));
	arm();
	tell("poll", poll(&p, 1, -1));
	FD_ZERO(&set);
	FD_SET(near, &set);
	arm();
	tell("select", select(near + 1, NULL, NULL, &set, NULL));
	/* bytes may still be on their way to the peer's buffer, and leave room behind them */
	do {
		while (send(near, data, sizeof(data), MSG_DONTWAIT) > 0)
			continue;
		came = 0;
		arm();
		sent = send(near, data, sizeof(data), 0);
	} while (sent > 0 && ++tries < TRIES);
	tell("send", sent);
	handle(send_byte, SA_RESTART);
	arm();
	tell("recv again", recv(near, &byte, 1, 0));
}

int
main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1) {
		fprintf(stderr, "usage: smc-interrupted ADDRESS PORT\n");
		return 2;
	}
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(fd, (void *)&at, sizeof(at)) != 0 || listen(fd, 1) != 0 ||
		connect(near, (void *)&at, sizeof(at)) != 0 || (far = accept(fd, NULL, NULL)) < 0) {
		perror("a connection");
		return 1;
	}
	page = find_page(at.sin_port);
	wait_in_each();
	return 0;
}
