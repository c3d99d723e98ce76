/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * XRC domains of a session, and targets that it opens.
 *
 * A shared domain is identified by the device and inode of a file.  The program sends a descriptor
 * to prove that it may read the file.  A descriptor opened with O_PATH proves nothing: any user
 * with search permission for the folder can get one.  The engine holds the inode of an open domain,
 * so that no other file gets its number meanwhile.  It does so by a descriptor opened with O_PATH,
 * because closing any other descriptor may wait for the server of the file system.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session_priv.h"

#define XRCD_KNOWN_FLAGS (KARST_CTL_XRCD_CREATE | KARST_CTL_XRCD_EXCL)

/* --- opening --- */

static void
xrcd_unpin(const struct karst_session *s, int pin_fd)
{
	if (pin_fd >= 0)
		close(pin_fd);
	eng_share_give(s->share, ENG_SHARE_DESCRIPTORS, 1);
}

static int
xrcd_pin(const struct karst_session *s, struct session_call *c, struct karst_engine_xrcd_init *init,
	int *pin_fd)
{
	int mode = fcntl(c->fds[0], F_GETFL);
	char path[32];
	struct stat st;

	if (mode == -1 || (mode & O_PATH) != 0)
		return reason(c, -EBADF,
			"the file of an XRC domain: a descriptor opened with O_PATH does not "
			"show that the program may read it");
	if ((mode & O_ACCMODE) != O_RDONLY && (mode & O_ACCMODE) != O_RDWR)
		return reason(c, -EACCES,
			"the file of an XRC domain: the descriptor is not open for reading");
	if (!eng_share_take(s->share, ENG_SHARE_DESCRIPTORS, 1))
		return eng_session_reason_share(s, c, ENG_SHARE_DESCRIPTORS);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", c->fds[0]);
	*pin_fd = open(path, O_PATH | O_CLOEXEC);
	if (*pin_fd < 0 || fstat(*pin_fd, &st) != 0) {
		int ret = -errno;

		xrcd_unpin(s, *pin_fd);
		*pin_fd = -1;
		return reason(c, ret, "the file of an XRC domain: %s", strerror(-ret));
	}
	init->shared = true;
	init->dev = st.st_dev;
	init->ino = st.st_ino;
	return 0;
}

static int
open_fault(struct session_call *c, int ret)
{
	switch (ret) {
	case -ENOENT:
		return reason(c, ret, "no XRC domain exists for this file, and flags lack CREATE");
	case -EEXIST:
		return reason(c, ret, "an XRC domain exists for this file, and flags have EXCL");
	default:
		return reason(c, ret, "XRC domain: %s", strerror(-ret));
	}
}

static void
free_xrcd(struct karst_session *s, struct session_xrcd *x)
{
	if (x->pin_fd >= 0)
		xrcd_unpin(s, x->pin_fd);
	if (x->handle != 0)
		eng_handles_del(&s->xrcds, x->handle);
	free(x);
}

int
eng_session_open_xrcd(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_open_xrcd_req *req = c->body;
	struct karst_engine_xrcd_init init = {.lcore = KARST_ENGINE_ANY_LCORE,
		.create = (req->flags & KARST_CTL_XRCD_CREATE) != 0,
		.exclusive = (req->flags & KARST_CTL_XRCD_EXCL) != 0};
	struct karst_ctl_open_xrcd_rsp *rsp = c->rsp;
	struct session_xrcd *x;
	int ret;

	if ((req->flags & ~(uint32_t)XRCD_KNOWN_FLAGS) != 0)
		return reason(c, -EINVAL, "flags 0x%x has unknown bits; known are 0x%x", req->flags,
			XRCD_KNOWN_FLAGS);
	x = calloc(1, sizeof(*x));
	if (x == NULL)
		return reason(c, -ENOMEM, "XRC domain: the engine has no memory");
	x->pin_fd = -1;
	ret = c->nfds != 0 ? xrcd_pin(s, c, &init, &x->pin_fd) : 0;
	if (ret == 0)
		ret = eng_session_handle_add(
			c, &s->xrcds, x, "XRC domains", "max_xrcds", &x->handle);
	if (ret == 0) {
		ret = karst_engine_xrcd_open(s->e, &init, &x->xrcd);
		if (ret != 0)
			open_fault(c, ret);
	}
	if (ret != 0) {
		free_xrcd(s, x);
		return ret;
	}
	rsp->xrcd = x->handle;
	rsp->lcore = x->xrcd->lcore;
	return 0;
}

/* --- closing --- */

int
eng_session_close_xrcd(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_close_xrcd_req *req = c->body;
	struct session_xrcd *x = eng_session_find(c, &s->xrcds, req->xrcd, "xrcd");
	int ret;

	if (x == NULL)
		return -EINVAL;
	if (x->users != 0)
		return reason(c, -EBUSY,
			"xrcd %u: %u shared receive queues and queue pairs of this program are "
			"in it",
			req->xrcd, x->users);
	ret = karst_engine_xrcd_close(s->e, x->xrcd);
	if (ret != 0)
		return reason(c, ret, "xrcd %u: %s", req->xrcd, strerror(-ret));
	free_xrcd(s, x);
	return 0;
}

void
eng_session_drop_xrcds(struct karst_session *s)
{
	struct session_xrcd *x;
	uint32_t at = 0;
	int ret;

	while ((x = eng_handles_next(&s->xrcds, &at)) != NULL) {
		assert(x->users == 0);
		ret = karst_engine_xrcd_close(s->e, x->xrcd);
		assert(ret == 0);
		(void)ret;
		free_xrcd(s, x);
	}
}

/* --- targets of the domain --- */

static int
open_qp_fault(struct session_call *c, const struct karst_ctl_open_qp_req *req, int ret)
{
	switch (ret) {
	case -ENOENT:
		return reason(c, ret, "qpn %u: xrcd %u has no XRC_RECV queue pair of that number",
			req->qpn, req->xrcd);
	case -EUSERS:
		return reason(c, ret, "qpn %u: it has %u handles already, which is the most",
			req->qpn, KARST_ENGINE_TARGET_HANDLES);
	default:
		return reason(c, ret, "queue pair: %s", strerror(-ret));
	}
}

int
eng_session_open_qp(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_open_qp_req *req = c->body;
	struct session_xrcd *x = eng_session_find(c, &s->xrcds, req->xrcd, "xrcd");
	struct karst_engine_qp_open open = {.qpn = req->qpn, .owner = s->owner};
	struct karst_ctl_open_qp_rsp *rsp = c->rsp;
	struct session_qp *qp;
	int ret;

	if (x == NULL)
		return -EINVAL;
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return reason(c, -ENOMEM, "queue pair: the engine has no memory");
	qp->cookie = req->cookie;
	qp->type = KARST_QPT_XRC_RECV;
	qp->max_dest_rd_atomic = KARST_QP_MAX_RD_ATOMIC;
	qp->xrcd = x;
	open.xrcd = x->xrcd;
	open.user = qp;
	ret = eng_session_handle_add(c, &s->qps, qp, "queue pairs", "max_qps", &qp->handle);
	if (ret != 0) {
		free(qp);
		return ret;
	}
	ret = karst_engine_qp_open(s->e, &open, &qp->qp);
	if (ret != 0) {
		eng_handles_del(&s->qps, qp->handle);
		free(qp);
		return open_qp_fault(c, req, ret);
	}
	x->users++;
	rsp->qp = qp->handle;
	rsp->lcore = qp->qp->lcore;
	return 0;
}
