/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A TCP program that does not know of SMC-R and forks while another of its threads uses the
 * connection:
 *
 *   smc-forks ADDRESS PORT
 *
 * Each child closes the connection and ends.  The program prints how many did, up to the first that
 * did not.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMES  300
#define HANG_S 60

static int conn; /* also used by the thread */

static void *
look(void *arg)
{
	char byte;

	for (;;)
		(void)!recv(conn, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	return arg;
}

static int
child_ends(void)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		alarm(HANG_S); /* this ends the child if it hangs */
		close(conn);
		_exit(0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int
main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	pthread_t thread;
	int n = 0;

	conn = socket(AF_INET, SOCK_STREAM, 0);
	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	if (connect(conn, (void *)&to, sizeof(to)) != 0 || send(conn, "x", 1, 0) != 1 ||
		pthread_create(&thread, NULL, look, NULL) != 0)
		return 2;
	while (n < TIMES && child_ends())
		n++;
	printf("ended %d\n", n);
	return n != TIMES;
}
