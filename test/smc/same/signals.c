/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Signals that report the arrival of bytes. */
#include "same.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- signals that bytes have come --- */

static void
signals_of_bytes(int from, int to)
{
	char byte;

	for (int i = 0; i < 2; i++) {
		came = 0;
		tell(send(from, "x", 1, 0));
		while (came == 0)
			usleep(1000);
		tell(recv(to, &byte, 1, 0));
	}
}

static void
signals_by_ioctl(void)
{
	int on = 1, owner = (int)getpid();

	handle(SIGIO, SA_RESTART);
	open_both();
	tell(ioctl(far, FIOSETOWN, &owner));
	tell(ioctl(far, FIOASYNC, &on));
	signals_of_bytes(near, far);
}

static void
signals_by_fcntl(void)
{
	handle(SIGUSR2, SA_RESTART);
	open_both();
	tell(fcntl(far, F_SETOWN, getpid()));
	tell(fcntl(far, F_SETSIG, SIGUSR2));
	tell(fcntl(far, F_SETFL, O_ASYNC));
	signals_of_bytes(near, far);
}

static void
signals_from_before(void)
{
	handle(SIGUSR2, SA_RESTART);
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(fcntl(near, F_SETOWN, getpid()));
	tell(fcntl(near, F_SETSIG, SIGUSR2));
	tell(fcntl(near, F_SETFL, O_ASYNC));
	if (connect(near, (void *)&address, sizeof(address)) != 0)
		fail("connect");
	far = accept(listener, NULL, NULL);
	greet();
	signals_of_bytes(far, near);
}

const struct same_case signals[] = {
	{"SIGIO by ioctl", signals_by_ioctl},
	{"another signal by fcntl", signals_by_fcntl},
	{"a signal that was asked for before connect", signals_from_before},
	{NULL, NULL},
};
