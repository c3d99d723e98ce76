/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Pairs of sockets by which programs wait (karst_sock.h).
 */
#include "smc_priv.h"

#include <errno.h>
#include <unistd.h>

/* Keeps descriptors out of the pair: the program does not expect any there, and would close one
 * when it reads the token that it came with, which may take long (smc_close.c).  The same is true
 * of the far end, which the other program empties.  If the kernel cannot do that, an urgent byte
 * has to be inline: otherwise it is discarded, with a descriptor that came with it, when the byte
 * behind it is read. */
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

	/* the program sets the flags of its end if it needs other ones */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
		return -errno;
	/* Otherwise an urgent byte, which any process that has the far end can send, would stay
	 * there.  A program also recognizes by this option the descriptors for which it may have to
	 * ask (KARST_SOCK_ADOPT). */
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
