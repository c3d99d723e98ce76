/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * In the guest, which has no Python: sends commands to a telemetry socket (rte_telemetry).
 *
 *   ask SOCKET COMMAND...      prints the greeting and each answer, one line each
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define ANSWER_BYTES 65536u
#define PATIENCE_S   240

/* @return whether there was something to print. */
static int
answer(int fd)
{
	static char text[ANSWER_BYTES];
	ssize_t n = recv(fd, text, sizeof(text), 0);

	if (n <= 0)
		return 0;
	printf("%.*s\n", (int)n, text);
	return 1;
}

int
main(int argc, char **argv)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), i;

	if (argc < 2 || fd < 0)
		return 2;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", argv[1]);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || !answer(fd)) {
		perror(argv[1]);
		return 1;
	}
	for (i = 2; i < argc; i++)
		if (send(fd, argv[i], strlen(argv[i]), 0) < 0 || !answer(fd)) {
			perror(argv[i]);
			return 1;
		}
	return 0;
}
