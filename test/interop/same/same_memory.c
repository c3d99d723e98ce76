/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Regions and windows. */
#include "same.h"

#include <sys/mman.h>

#define REMOTE (BUF_BYTES / 2)

static void
try_mr(const char *what, void *addr, size_t len, int access)
{
	struct ibv_mr *made = ibv_reg_mr(pd, addr, len, access);

	say_ptr(what, made);
	if (made == NULL)
		return;
	if (made->addr != addr || made->length != len || made->pd != pd)
		say(what, "another region");
	ibv_dereg_mr(made);
}

static void
regions(void)
{
	void *read_only, *none;
	struct ibv_mr *one, *two;

	bed_open();
	try_mr("no rights", buf, 4096, 0);
	try_mr("remote read", buf, 4096, IBV_ACCESS_REMOTE_READ);
	try_mr("remote write without local write", buf, 4096, IBV_ACCESS_REMOTE_WRITE);
	try_mr("remote atomic without local write", buf, 4096, IBV_ACCESS_REMOTE_ATOMIC);
	try_mr("windows without local write", buf, 4096, IBV_ACCESS_MW_BIND);
	try_mr("an unknown right", buf, 4096, IBV_ACCESS_LOCAL_WRITE | 1 << 14);
	try_mr("an unknown optional right", buf, 4096, IBV_ACCESS_LOCAL_WRITE | 1 << 27);
	try_mr("relaxed order", buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	try_mr("one byte", buf + 1, 1, IBV_ACCESS_LOCAL_WRITE);
	try_mr("around the end of all addresses", (void *)(UINTPTR_MAX - 4095), 8192,
		IBV_ACCESS_LOCAL_WRITE);
	read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	try_mr("read-only memory, to read", read_only, 4096, IBV_ACCESS_REMOTE_READ);
	try_mr("read-only memory, to write", read_only, 4096, IBV_ACCESS_LOCAL_WRITE);
	none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	try_mr("memory that cannot be read", none, 4096, 0);
	munmap(none, 4096);
	try_mr("no memory", none, 4096, IBV_ACCESS_LOCAL_WRITE);
	MUST((one = ibv_reg_mr(pd, buf, 4096, ALL_ACCESS)) != NULL);
	MUST((two = ibv_reg_mr(pd, buf, 4096, ALL_ACCESS)) != NULL);
	say("two of the same memory", "%d", one->rkey != two->rkey && one->lkey != two->lkey);
	say_rc("gone", ibv_dereg_mr(one));
	say_rc("the other", ibv_dereg_mr(two));
}

static void
write_by(const char *what, uint32_t rkey, uint64_t addr)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge), *bad;

	wr.wr.rdma.rkey = rkey;
	wr.wr.rdma.remote_addr = addr;
	say_rc(what, ibv_post_send(qp[0], &wr, &bad));
	say_wcs(what, cq, 1);
	if (state_of(qp[0]) == IBV_QPS_ERR)
		again();
}

static void
iova(void)
{
	struct ibv_mr *at, *zero;

	bed_open();
	connect_pair(IBV_QPT_RC);
	at = ibv_reg_mr_iova(pd, buf + 4096, 4096, 0x10000, ALL_ACCESS);
	say_ptr("with an address of its own", at);
	if (at != NULL) {
		write_by("write there", at->rkey, 0x10008);
		write_by("write to the memory's address", at->rkey, (uintptr_t)buf + 4096);
	}
	zero = ibv_reg_mr(pd, buf + 4096, 4096, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	say_ptr("zero based", zero);
	if (zero != NULL)
		write_by("write to 8", zero->rkey, 8);
}

static void
again_registered(void)
{
	struct ibv_mr *one;

	bed_open();
	MUST((one = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE)) != NULL);
#define AGAIN(what, ...) say(what, "%d", ibv_rereg_mr(one, __VA_ARGS__) == IBV_REREG_MR_ERR_INPUT)
	AGAIN("an unknown change", 1 << 8, NULL, NULL, 0, 0);
	AGAIN("no domain", IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0);
	AGAIN("no length", IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, 0, 0);
	AGAIN("no address", IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 4096, 0);
	say_rc("gone", ibv_dereg_mr(one));
}

/* --- windows --- */

static struct ibv_mw_bind_info
all_of(struct ibv_mr *of, size_t off, size_t len, unsigned int access)
{
	return (struct ibv_mw_bind_info){
		.mr = of, .addr = (uintptr_t)buf + off, .length = len, .mw_access_flags = access};
}

static void
windows1(void)
{
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = {.wr_id = 7, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mr *no_bind;
	uint32_t first;

	bed_open();
	connect_pair(IBV_QPT_RC);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	say_ptr("made", mw);
	MUST(mw != NULL);
	bind.bind_info = all_of(mr, REMOTE, 4096, IBV_ACCESS_REMOTE_WRITE);
	say_rc("bound", ibv_bind_mw(qp[1], mw, &bind));
	say_wcs("bound", cq, 1);
	first = mw->rkey;
	write_by("written", mw->rkey, (uintptr_t)buf + REMOTE);
	say_rc("a region with a window goes", ibv_dereg_mr(mr));
	say_rc("bound again", ibv_bind_mw(qp[1], mw, &bind));
	say_wcs("bound again", cq, 1);
	say("another key", "%d", first != mw->rkey);
	write_by("by the old key", first, (uintptr_t)buf + REMOTE);
	bind.bind_info.length = 0;
	say_rc("unbound", ibv_bind_mw(qp[1], mw, &bind));
	say_wcs("unbound", cq, 1);
	write_by("unbound", mw->rkey, (uintptr_t)buf + REMOTE);
	MUST((no_bind = ibv_reg_mr(pd, buf, 4096, ALL_ACCESS)) != NULL);
	bind.bind_info = all_of(no_bind, 0, 4096, IBV_ACCESS_REMOTE_WRITE);
	say("a region without that right", "%d", ibv_bind_mw(qp[1], mw, &bind) != 0);
	say_rc("window gone", ibv_dealloc_mw(mw));
}

static void
bind2(const char *what, struct ibv_mw *mw, uint32_t key, struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = {.wr_id = 5,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {.mw = mw, .rkey = key, .bind_info = info}};
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(qp[1], &wr, &bad);

	say_rc(what, rc);
	if (rc == 0)
		say_wcs(what, cq, 1);
	say(what, "%s", state_name(state_of(qp[1])));
	if (state_of(qp[1]) == IBV_QPS_ERR)
		again();
	else if (rc == 0)
		mw->rkey = key;
}

static void
invalidate(const char *what, uint32_t key)
{
	struct ibv_send_wr wr = {.wr_id = 6,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = key};
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(qp[1], &wr, &bad);

	say_rc(what, rc);
	if (rc == 0)
		say_wcs(what, cq, 1);
	say(what, "%s", state_name(state_of(qp[1])));
	if (state_of(qp[1]) == IBV_QPS_ERR)
		again();
}

static void
windows2(void)
{
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = {.wr_id = 7, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw_bind_info info;
	struct ibv_mr *readable;

	bed_open();
	connect_pair(IBV_QPT_RC);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	say_ptr("made", mw);
	MUST(mw != NULL);
	info = all_of(mr, REMOTE, 4096, IBV_ACCESS_REMOTE_WRITE);
	bind.bind_info = info;
	say("by ibv_bind_mw", "%d", ibv_bind_mw(qp[1], mw, &bind) != 0);
	bind2("bound", mw, ibv_inc_rkey(mw->rkey), info);
	write_by("written", mw->rkey, (uintptr_t)buf + REMOTE);
	bind2("bound twice", mw, ibv_inc_rkey(mw->rkey), info);
	bind2("bound after that", mw, ibv_inc_rkey(mw->rkey), info);
	invalidate("invalidated", mw->rkey);
	write_by("invalidated", mw->rkey, (uintptr_t)buf + REMOTE);
	/* no test invalidates a window that is not bound: Linux 6.12 would crash (L19) */
	MUST((readable = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ)) !=
		NULL);
	bind2("to write what is to be read", mw, ibv_inc_rkey(mw->rkey),
		all_of(readable, 0, 4096, IBV_ACCESS_REMOTE_WRITE));
	say_rc("window gone", ibv_dealloc_mw(mw));
	say("type 0", "%d", ibv_alloc_mw(pd, 0) != NULL);
	say("type 3", "%d", ibv_alloc_mw(pd, 3) != NULL);
}

const struct same_case memory_cases[] = {
	{"regions", regions},
	{"addresses of regions", iova},
	{"regions again", again_registered},
	{"windows of type 1", windows1},
	{"windows of type 2", windows2},
	{0},
};
