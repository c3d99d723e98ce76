/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Pairs: that by which a program waits (karst_sock.h).
 */
#include "smc_priv.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

/* Each is used once.  False: there is none. */
static bool
take_name(struct kd_smc *s, uint64_t *number)
{
	if (s->nnames == 0) {
		if (getrandom(s->names, sizeof(s->names), 0) != sizeof(s->names))
			return false;
		s->nnames = SMC_NAMES;
	}
	*number = s->names[--s->nnames];
	return true;
}

/* No descriptor comes to a program by its pair, where it does not look for any: it would go when
 * the token is read that it came with, and that may take long (smc_close.c).  Nor does one to the
 * far end, which the other program empties.  Where they come, an urgent byte is to be one of the
 * others: else it goes, with what came with it, when the byte behind it is read. */
static bool
keep_rights_out(struct kd_smc *s, const int ends[2])
{
	const int off = 0, on = 1;
	int i;

	for (i = 0; i < 2 && !s->rights_come; i++)
		if (setsockopt(ends[i], SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) != 0)
			s->rights_come = true; /* before Linux 6.16 */
	return !s->rights_come ||
		setsockopt(ends[0], SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0;
}

int
svc_pair_make(struct kd_smc *s, struct svc_pair *p)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	const int room = KARST_SOCK_SNDBUF, on = 1;
	socklen_t len = sizeof(p->cookie);
	uint64_t number;
	int fds[2], n, rc;

	/* its program sets the flags of its end, if they are to be others */
	if (!take_name(s, &number))
		return -EIO;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
		return -errno;
	n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, KARST_SOCK_NAME "%016llx",
		(unsigned long long)number);
	if (bind(fds[0], (void *)&name,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) != 0 ||
		setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) != 0 ||
		/* else an urgent byte, which anyone who has the far end can send, stays there */
		setsockopt(fds[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) != 0 ||
		getsockopt(fds[1], SOL_SOCKET, SO_COOKIE, &p->cookie, &len) != 0 ||
		!keep_rights_out(s, fds)) {
		rc = -errno;
		close(fds[0]);
		close(fds[1]);
		return rc;
	}
	p->far = fds[0];
	p->end = fds[1];
	return 0;
}
