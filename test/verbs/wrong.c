/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Every call with wrong arguments, and objects destroyed in the wrong order; run under karst-run,
 * prints TAP.  The errors are those that the man pages name, or, where these say nothing, the
 * kernel's and mlx5's.  A refused call changes nothing: in the end all objects still work and can
 * be destroyed.
 *
 * A call that karst refuses prints the reason, one sentence on standard error, because
 * $KARST_VERBS_DEBUG is set; a call that succeeds prints nothing.  Calls that post, and calls that
 * libibverbs itself refuses, print nothing either.  A call that karst refuses sets errno to the
 * error that it returns, whatever errno was before.
 */
#include "wrong.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static struct rig wrong_rig;
struct rig *const r = &wrong_rig;

/* --- the reasons that were printed --- */

static int heard_fd;      /* standard error is this file */
char heard[512];          /* what was written to it since the last hear() */
static off_t heard_bytes; /* bytes of the file that were read before */

static void
listen_to_errors(void)
{
	MUST(setenv("KARST_VERBS_DEBUG", "1", 1) == 0);
	MUST((heard_fd = memfd_create("stderr", MFD_CLOEXEC)) >= 0);
	MUST(dup2(heard_fd, STDERR_FILENO) >= 0);
}

unsigned int
hear(void)
{
	ssize_t n = pread(heard_fd, heard, sizeof(heard) - 1, heard_bytes);
	unsigned int lines = 0;
	const char *at;

	heard[n > 0 ? n : 0] = 0;
	heard_bytes += n > 0 ? n : 0;
	for (at = heard; strncmp(at, "karst: ", 7) == 0 && strchr(at, '\n') != NULL; lines++)
		at = strchr(at, '\n') + 1;
	return *at == 0 ? lines : 99;
}

/* --- what several cases use --- */

union ibv_gid
own_gid(void)
{
	union ibv_gid gid;

	MUST(ibv_query_gid(r->ctx, 1, 0, &gid) == 0);
	return gid;
}

void
apart(void)
{
	EQ(ibv_destroy_qp(r->qp[0]), 0);
	EQ(ibv_destroy_qp(r->qp[1]), 0);
	r->qp[0] = r->qp[1] = NULL;
}

int
post(struct ibv_qp *qp, struct ibv_send_wr *wr, bool first_is_bad)
{
	struct ibv_send_wr *bad = NULL;
	int ret = ibv_post_send(qp, wr, &bad);

	if (ret != 0 && first_is_bad && bad != wr)
		CHECK(bad == wr, "bad_wr is not the request that was wrong");
	return ret;
}

/* --- all of them --- */

static void
begin(void)
{
	rig_up(r);
}

static void
end(void)
{
	rig_connect(r, IBV_QPT_RC);
	EQ(post_recv(r, r->qp[1], 1, 4096, 100), 0);
	memset(r->buf, 0x5a, 100);
	EQ(post_send(r, r->qp[0], 2, 0, 100, IBV_SEND_SIGNALED), 0);
	EQ(wait_for(r->cq).status, IBV_WC_SUCCESS);
	EQ(wait_for(r->cq).status, IBV_WC_SUCCESS);
	CHECK(memcmp(r->buf, r->buf + 4096, 100) == 0, "other bytes");
	rig_down(r);
}

int
main(void)
{
	listen_to_errors();
	run_case("a device and what is made of it", begin);
	run_case("devices", wrong_devices);
	run_case("completion queues", wrong_completion_queues);
	run_case("memory", wrong_memory);
	run_case("advice", wrong_advice);
	run_case("allocators", wrong_allocators);
	run_case("queue pairs", wrong_queue_pairs);
	run_case("attributes of queue pairs", wrong_modify);
	run_case("sending", wrong_sending);
	run_case("receiving", wrong_receiving);
	run_case("addresses and groups", wrong_addresses);
	run_case("windows", wrong_windows);
	run_case("the wrong order", wrong_order);
	run_case("domains of other kinds", wrong_domains);
	run_case("what is not there", wrong_not_there);
	run_case("objects of another context", wrong_another_context);
	run_case("requests by calls", wrong_calls);
	run_case("all of it still works, and can be destroyed", end);
	return cases_end();
}
