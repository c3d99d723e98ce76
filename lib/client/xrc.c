/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* XRC domains. */
#include "client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

static int
check_open(int fd, int oflags)
{
	if ((oflags & ~(O_CREAT | O_EXCL)) != 0)
		return cli_fail(-EINVAL, "oflags %#x: only O_CREAT and O_EXCL are allowed", oflags);
	if (fd < -1)
		return cli_fail(
			-EBADF, "fd %d: must be a descriptor, or -1 for a private domain", fd);
	return 0;
}

int
karst_open_xrcd(struct karst_context *ctx, int fd, int oflags, struct karst_xrcd **xrcd)
{
	struct karst_client *c = cli_of(ctx);
	CLI_REQ(open_xrcd)
	m = {.body.flags = (oflags & O_CREAT ? KARST_CTL_XRCD_CREATE : 0) |
			(oflags & O_EXCL ? KARST_CTL_XRCD_EXCL : 0)};
	struct karst_ctl_open_xrcd_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	struct cli_xrcd *x;
	int ret = check_open(fd, oflags);

	if (ret != 0)
		return ret;
	x = calloc(1, sizeof(*x));
	if (x == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	ret = cli_call(c, KARST_CTL_OPEN_XRCD, &m.hdr, sizeof(m), &fd, fd >= 0 ? 1 : 0, &reply);
	if (ret != 0) {
		free(x);
		return ret;
	}
	x->pub.context = ctx;
	x->pub.handle = r.xrcd;
	atomic_fetch_add(&c->nobjects, 1);
	*xrcd = &x->pub;
	return 0;
}

int
karst_close_xrcd(struct karst_xrcd *xrcd)
{
	struct karst_client *c = cli_of(xrcd->context);
	struct cli_xrcd *x = cli_xrcd_of(xrcd);
	uint32_t users;
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	users = atomic_load(&x->users);
	if (users != 0)
		return cli_fail(-EBUSY,
			"%u shared receive queues and queue pairs are in this XRC domain", users);
	ret = cli_destroy_call(c, KARST_CTL_CLOSE_XRCD, xrcd->handle);
	if (ret != 0)
		return ret;
	atomic_fetch_sub(&c->nobjects, 1);
	free(x);
	return 0;
}
