/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Control requests: one at a time on the control connection.  Replies are checked before they are
 * used.
 */
#include "client_priv.h"

#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "karst_ctl_msg.h"
#include "karst_ctl_sock.h"

/* Chunks that one request may wait for; more than any request needs. */
#define CHUNKS_MAX 64u

/* How long a path is sought, and the pauses between two attempts, which grow: a neighbour usually
 * answers at once. */
#define PATH_MS        3000u
#define PATH_FIRST_NAP 50000u
#define PATH_MOST_NAP  10000000u
/* After so long it rather does not answer at all. */
#define PATH_LATE_MS  100u
#define PATH_LATE_NAP 50000000u

int
cli_fail_forked(void)
{
	return cli_fail_const(-EPERM,
		"this context belongs to the parent process; after fork() the child opens its own");
}

int
cli_check(struct karst_client *c)
{
	switch (atomic_load_explicit(&c->state, memory_order_acquire)) {
	case CLI_LIVE:
		return 0;
	case CLI_FORKED:
		return cli_fail_forked();
	default:
		return cli_fail_const(
			-EIO, "the engine is gone; close the context and open another");
	}
}

void
cli_set_dead(struct karst_client *c)
{
	int live = CLI_LIVE;

	/* release, pairs with the acquire in cli_is_dead() */
	atomic_compare_exchange_strong_explicit(
		&c->state, &live, CLI_DEAD, memory_order_acq_rel, memory_order_relaxed);
}

bool
cli_engine_alive(struct karst_client *c)
{
	struct pollfd p = {.fd = c->conn.hup_fd};
	int cancel, n;

	if (p.fd >= 0) {
		/* the caller may hold the lock of a completion queue */
		cancel = karst_cancel_disable();
		n = poll(&p, 1, 0);
		karst_cancel_restore(cancel);
		if (n > 0 && (p.revents & (POLLHUP | POLLERR)))
			cli_set_dead(c);
	}
	return !cli_is_dead(c);
}

/* Checks a reply against the rules of messages and against the request. */
static int
check_reply(const struct karst_ctl_hdr *req, const struct karst_ctl_hdr *h, size_t len,
	unsigned int nfds, const struct cli_reply *reply)
{
	const struct karst_ctl_fault *fault = (const struct karst_ctl_fault *)(h + 1);
	char why[KARST_CTL_WHY];
	int ret = karst_ctl_check_reply(req, h, len, nfds, why);

	if (ret != 0)
		return cli_fail(ret, "reply of the engine: %s", why);
	if (h->status != 0)
		return cli_fail(h->status, "%s", fault->why);
	if (nfds > reply->nfds)
		return cli_fail(-EPROTO,
			"reply of the engine to request %u has %u descriptors, at most %u expected",
			req->op, nfds, reply->nfds);
	return 0;
}

static int
call_once(struct karst_client *c, enum karst_ctl_op op, struct karst_ctl_hdr *req, size_t len,
	const int *fds, unsigned int nfds, struct cli_reply *reply)
{
	int got_fds[KARST_CTL_MAX_FDS];
	unsigned int got_nfds = 0;
	size_t got = 0;
	bool no_room;
	int ret;

	ret = cli_check(c);
	if (ret != 0)
		return ret;
	*req = (struct karst_ctl_hdr){
		.magic = KARST_CTL_MAGIC,
		.version = KARST_CTL_VERSION,
		.op = (uint16_t)op,
		.len = (uint32_t)len,
		.seq = ++c->seq,
		.nfds = nfds,
	};
	ret = c->conn.call(c->conn.user, req, len, fds, nfds, c->reply, &got, got_fds, &got_nfds);
	if (ret == -EBADF || ret == -ETOOMANYREFS)
		return cli_fail(
			ret, "a descriptor could not be sent to the engine: %s", strerror(-ret));
	if (ret != 0 && ret != -EMFILE) {
		if (ret == -EIO)
			cli_set_dead(c);
		return cli_fail(ret, "no reply from the engine: %s",
			ret == -EIO ? "it is gone" : strerror(-ret));
	}
	no_room = ret == -EMFILE;
	ret = check_reply(req, c->reply, got, got_nfds, reply);
	if (ret != 0) {
		karst_ctl_close_fds(got_fds, got_nfds);
		return ret;
	}
	if (reply->len > 0)
		memcpy(reply->body, (struct karst_ctl_hdr *)c->reply + 1, reply->len);
	if (got_nfds > 0)
		memcpy(reply->fds, got_fds, got_nfds * sizeof(int));
	reply->nfds = got_nfds;
	if (no_room)
		return cli_fail_const(-EMFILE,
			"the program has no descriptors left for those that the engine sent "
			"(ulimit -n)");
	return 0;
}

int
cli_call_locked(struct karst_client *c, enum karst_ctl_op op, struct karst_ctl_hdr *req, size_t len,
	const int *fds, unsigned int nfds, struct cli_reply *reply)
{
	int ret = call_once(c, op, req, len, fds, nfds, reply);
	unsigned int tries;

	/* the engine first needs ring memory for the request: one or two files */
	for (tries = 0; ret == -ENOBUFS && op != KARST_CTL_GET_CHUNK &&
		op != KARST_CTL_SEAL_CHUNK && tries < CHUNKS_MAX;
		tries++) {
		ret = cli_chunk_fetch_locked(c);
		if (ret == 0)
			ret = call_once(c, op, req, len, fds, nfds, reply);
	}
	return ret;
}

int
cli_call(struct karst_client *c, enum karst_ctl_op op, struct karst_ctl_hdr *req, size_t len,
	const int *fds, unsigned int nfds, struct cli_reply *reply)
{
	int ret = cli_check(c);

	if (ret != 0)
		return ret;
	karst_mutex_lock(&c->ctl);
	ret = cli_call_locked(c, op, req, len, fds, nfds, reply);
	karst_mutex_unlock(&c->ctl);
	return ret;
}

uint64_t
cli_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
call_nap(struct karst_client *c, uint32_t ns)
{
	const struct timespec ts = {.tv_nsec = (long)ns};
	/* a thread that is cancelled here would leave the caller's object behind */
	int cancel = karst_cancel_disable();

	/* perhaps this thread polls the lcores that the answer comes to */
	if (c->conn.nap != NULL)
		c->conn.nap(c->conn.user, ns);
	else
		nanosleep(&ts, NULL);
	karst_cancel_restore(cancel);
}

int
cli_call_path(struct karst_client *c, enum karst_ctl_op op, struct karst_ctl_hdr *req, size_t len,
	struct cli_reply *reply)
{
	uint64_t start = cli_now_ns(), now = start;
	uint32_t nap = PATH_FIRST_NAP;
	int ret = cli_call(c, op, req, len, NULL, 0, reply);
	bool known = ret == 0 || ret == -EAGAIN;

	while (ret == -EAGAIN && now - start < PATH_MS * UINT64_C(1000000)) {
		call_nap(c, nap);
		now = cli_now_ns();
		nap = now - start < PATH_LATE_MS * UINT64_C(1000000)
			? karst_min_u32(2 * nap, PATH_MOST_NAP)
			: PATH_LATE_NAP;
		ret = cli_call(c, op, req, len, NULL, 0, reply);
	}
	/* relaxed: a thread that does not see it asks once more at most */
	if (known)
		atomic_store_explicit(&c->no_wait, CLI_NO_WAIT_KNOWN, memory_order_relaxed);
	/* karst_why() has the reason of the last attempt */
	return ret == -EAGAIN ? -EHOSTUNREACH : ret;
}

/* No engine makes an address handle without a protection domain.  One that does not know NO_WAIT
 * refuses the message before it looks for the domain. */
static void
ask_no_wait(struct karst_client *c)
{
	CLI_REQ(create_ah) m = {.body = {.no_wait = 1}};
	struct karst_ctl_create_ah_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	struct cli_reason reason;
	int ret;

	cli_reason_save(&reason);
	ret = cli_call(c, KARST_CTL_CREATE_AH, &m.hdr, sizeof(m), NULL, 0, &reply);
	cli_reason_restore(&reason);
	/* relaxed: as above */
	if (ret == -EPROTO || ret == -EINVAL)
		atomic_store_explicit(&c->no_wait,
			ret == -EPROTO ? CLI_NO_WAIT_ABSENT : CLI_NO_WAIT_KNOWN,
			memory_order_relaxed);
}

bool
cli_lacks_no_wait(struct karst_client *c)
{
	if (atomic_load_explicit(&c->no_wait, memory_order_relaxed) == CLI_NO_WAIT_UNKNOWN)
		ask_no_wait(c);
	return atomic_load_explicit(&c->no_wait, memory_order_relaxed) == CLI_NO_WAIT_ABSENT;
}

int
cli_destroy_call(struct karst_client *c, enum karst_ctl_op op, uint32_t handle)
{
	/* the bodies of all of these requests are a handle and a reserved word */
	CLI_REQ(destroy_qp) m = {.body.qp = handle};
	struct karst_ctl_destroy_qp_rsp rsp;
	struct cli_reply reply = {&rsp, sizeof(rsp), NULL, 0};
	int ret = cli_call(c, op, &m.hdr, sizeof(m), NULL, 0, &reply);

	return ret == -EIO && cli_is_dead(c) ? 0 : ret;
}
