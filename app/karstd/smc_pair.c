/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Pairs: that by which a program waits (karst_sock.h).
 */
#include "smc_priv.h"

#include <errno.h>
#include <unistd.h>

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
	const int on = 1;
	socklen_t len = sizeof(p->cookie);
	int fds[2], rc;

	/* its program sets the flags of its end, if they are to be others */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
		return -errno;
	/* else an urgent byte, which anyone who has the far end can send, stays there; and a
	 * program knows by that of what descriptors it may have to ask (KARST_SOCK_ADOPT) */
	if (setsockopt(fds[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) != 0 ||
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
