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
#include "calls_bed.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

/* One for all cases: a call that is refused in one case must not affect the next. */
static struct rig rig, *const r = &rig;

/* --- the reasons that were printed --- */

static int heard_fd;      /* standard error is this file */
static char heard[512];   /* what was written to it since the last hear() */
static off_t heard_bytes; /* bytes of the file that were read before */

static void
listen_to_errors(void)
{
	MUST(setenv("KARST_VERBS_DEBUG", "1", 1) == 0);
	MUST((heard_fd = memfd_create("stderr", MFD_CLOEXEC)) >= 0);
	MUST(dup2(heard_fd, STDERR_FILENO) >= 0);
}

/* Reads the new reasons.  @return how many there are */
static unsigned int
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

/* The errno before each call; no call fails with it. */
#define BEFORE ENOTTY

/* Checks that @call fails with @want, sets errno to it if @sets, and prints @times reasons. */
#define ERR_SAID(what, call, want, sets, times)                                             \
	do {                                                                                \
		int want_ = (want), got_ = (errno = BEFORE, (call)), errno_ = errno;        \
		unsigned int said_ = hear();                                                \
		check(got_ == want_, __LINE__, what, "%s, not %s", strerror(got_),          \
			strerror(want_));                                                   \
		check(got_ == 0 || errno_ == ((sets) ? got_ : BEFORE), __LINE__, what,      \
			"errno: %s", strerror(errno_));                                     \
		check(said_ == (times), __LINE__, what, "said %u times: %s", said_, heard); \
	} while (0)
#define ERR(what, call, want) ERR_SAID(what, call, want, true, want_ != 0)
/* For calls that print no reason. */
#define SILENT(what, call, want) ERR_SAID(what, call, want, true, 0)
/* For calls that libibverbs refuses without calling karst: errno is not set either. */
#define THEIRS(what, call, want) ERR_SAID(what, call, want, false, 0)
/* As ERR(), for a call that returns a pointer. */
#define NONE(what, call, want) ERR(what, (call) == NULL ? errno : 0, want)
/* Checks the reason that the last call has printed. */
#define SAID(why) (check(strstr(heard, why) != NULL, __LINE__, why, "said: %s", heard))

/* --- device, completion queues --- */

static union ibv_gid
own_gid(void)
{
	union ibv_gid gid;

	MUST(ibv_query_gid(r->ctx, 1, 0, &gid) == 0);
	return gid;
}

static void
apart(void)
{
	EQ(ibv_destroy_qp(r->qp[0]), 0);
	EQ(ibv_destroy_qp(r->qp[1]), 0);
	r->qp[0] = r->qp[1] = NULL;
}

static void
devices(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	ERR("port 0", ibv_query_port(r->ctx, 0, &port), EINVAL);
	ERR("port 2", ibv_query_port(r->ctx, 2, &port), EINVAL);
	CHECK(ibv_query_gid(r->ctx, 1, 9999, &gid) != 0, "a GID beyond the table");
	CHECK(ibv_query_pkey(r->ctx, 1, 1, &pkey) != 0, "a P_Key beyond the table");
}

static struct ibv_cq *
cq_ex(struct ibv_context *ctx, uint64_t wc_flags, uint32_t mask, uint32_t flags)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16, .wc_flags = wc_flags, .comp_mask = mask, .flags = flags};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &init);

	return cq != NULL ? ibv_cq_ex_to_cq(cq) : NULL;
}

static void
completion_queues(void)
{
	struct ibv_device_attr dev;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_context *other = open_device();
	struct ibv_modify_cq_attr attr = {.attr_mask = 1u << 7};
	struct ibv_poll_cq_attr unknown = {.comp_mask = 1};
	struct ibv_cq *cq;

	MUST(channel != NULL && ibv_query_device(r->ctx, &dev) == 0);
	NONE("a CQ of 0", ibv_create_cq(r->ctx, 0, NULL, NULL, 0), EINVAL);
	NONE("a CQ of -1", ibv_create_cq(r->ctx, -1, NULL, NULL, 0), EINVAL);
	NONE("a CQ too large", ibv_create_cq(r->ctx, dev.max_cqe + 1, NULL, NULL, 0), EINVAL);
	NONE("a vector too high", ibv_create_cq(r->ctx, 16, NULL, NULL, r->ctx->num_comp_vectors),
		EINVAL);
	NONE("vector -1", ibv_create_cq(r->ctx, 16, NULL, NULL, -1), EINVAL);
	NONE("another context's channel", ibv_create_cq(other, 16, NULL, channel, 0), EINVAL);
	SILENT("unknown wc_flags", cq_ex(r->ctx, 1u << 20, 0, 0) == NULL ? errno : 0, EOPNOTSUPP);
	NONE("an unknown mask", cq_ex(r->ctx, 0, 1u << 20, 0), EOPNOTSUPP);
	NONE("unknown flags", cq_ex(r->ctx, 0, IBV_CQ_INIT_ATTR_MASK_FLAGS, 1u << 20), EOPNOTSUPP);
	MUST((cq = cq_ex(r->ctx, 0, 0, 0)) != NULL);
	ERR("polling with a mask", ibv_start_poll((struct ibv_cq_ex *)cq, &unknown), EINVAL);
	ERR("its CQ", ibv_destroy_cq(cq), 0);
	cq = ibv_create_cq(r->ctx, 16, NULL, channel, 0);
	MUST(cq != NULL);
	ERR("ibv_modify_cq of nothing known", ibv_modify_cq(cq, &attr), EOPNOTSUPP);
	ERR("ibv_resize_cq to 0", ibv_resize_cq(cq, 0), EINVAL);
	ERR("ibv_resize_cq too large", ibv_resize_cq(cq, dev.max_cqe + 1), EINVAL);
	THEIRS("a channel with a CQ", ibv_destroy_comp_channel(channel), EBUSY);
	ERR("that CQ", ibv_destroy_cq(cq), 0);
	ERR("now the channel", ibv_destroy_comp_channel(channel), 0);
	ERR("the other context", ibv_close_device(other), 0);
}

/* --- memory --- */

static void
memory(void)
{
	const int write = IBV_ACCESS_LOCAL_WRITE;
	uint8_t *gap, *text;
	struct ibv_mr *mr;

	gap = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	text = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(gap != MAP_FAILED && text != MAP_FAILED);
	munmap(gap + 4096, 4096);
	NONE("memory that is not there", ibv_reg_mr(r->pd, gap + 4096, 4096, write), EFAULT);
	NONE("memory with a gap", ibv_reg_mr(r->pd, gap, 3 * 4096, write), EFAULT);
	NONE("read-only memory to write", ibv_reg_mr(r->pd, text, 4096, write), EFAULT);
	NONE("around the end of addresses", ibv_reg_mr(r->pd, gap, SIZE_MAX, write), EINVAL);
	NONE("remote write alone", ibv_reg_mr(r->pd, gap, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NONE("remote atomics alone", ibv_reg_mr(r->pd, gap, 4096, IBV_ACCESS_REMOTE_ATOMIC),
		EINVAL);
	NONE("unknown access", ibv_reg_mr(r->pd, gap, 4096, 1 << 15), EINVAL);
	NONE("FLUSH to persistence", ibv_reg_mr(r->pd, gap, 4096, 1 << 9), EINVAL);
	mr = ibv_reg_mr(r->pd, gap, 4096, 1 << 8);
	NONE("memory that peers may FLUSH", mr, 0);
	ERR("it is there", ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(r->pd, text, 4096, IBV_ACCESS_REMOTE_READ);
	NONE("read-only memory to read", mr, 0);
	CHECK(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT,
		"ibv_rereg_mr with an unknown flag");
	ERR("a region into no domain",
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) != 0 ? errno : 0,
		EINVAL);
	SAID("an object that the call needs is NULL");
	ERR("it is still there", ibv_dereg_mr(mr), 0);
	munmap(gap, 4096);
	munmap(gap + 2 * 4096, 4096);
	munmap(text, 4096);
}

/* --- advice --- */

static int
advise(const struct ibv_mr *mr, enum ibv_advise_mr_advice advice, uint32_t flags, size_t off)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr + off, 4096, mr->lkey};

	return ibv_advise_mr(r->pd, advice, flags, &sge, 1);
}

static void
advice(void)
{
	const enum ibv_advise_mr_advice prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
	const uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
	struct ibv_pd *other = ibv_alloc_pd(r->ctx);
	struct ibv_mr *mr, *read_only;
	struct ibv_sge sge;
	uint8_t *gap;

	gap = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(gap != MAP_FAILED);
	mr = ibv_reg_mr(r->pd, gap, 2 * 4096, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
	read_only = ibv_reg_mr(r->pd, gap, 2 * 4096, IBV_ACCESS_ON_DEMAND);
	MUST(other != NULL && mr != NULL && read_only != NULL);
	sge = (struct ibv_sge){(uintptr_t)gap, 4096, mr->lkey};
	munmap(gap + 4096, 4096);
	ERR("advice", advise(mr, prefetch, flush, 0), 0);
	ERR("unknown flags", advise(mr, prefetch, 1u << 7, 0), EINVAL);
	SAID("flags: only IBV_ADVISE_MR_FLAG_FLUSH");
	ERR("unknown advice", advise(mr, (enum ibv_advise_mr_advice)77, flush, 0), EOPNOTSUPP);
	SAID("only the PREFETCH advices");
	ERR("beyond the region", advise(mr, prefetch, flush, 2 * 4096), EFAULT);
	SAID("not within its region");
	ERR("partly beyond the region", advise(mr, prefetch, flush, 4097), EFAULT);
	ERR("before the region", advise(mr, prefetch, flush, (size_t)-4096), EFAULT);
	ERR("not on demand", advise(r->mr, prefetch, flush, 0), ENOENT);
	SAID("no on-demand region");
	ERR("of another domain", ibv_advise_mr(other, prefetch, flush, &sge, 1), EPERM);
	SAID("in another protection domain");
	ERR("to write what is read-only",
		advise(read_only, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flush, 0), EPERM);
	SAID("without local write access");
	ERR("memory that has gone", advise(mr, prefetch, flush, 4096), EFAULT);
	SAID("nothing is mapped at the address");
	ERR("the region", ibv_dereg_mr(mr), 0);
	ERR("the other", ibv_dereg_mr(read_only), 0);
	ERR("the other domain", ibv_dealloc_pd(other), 0);
	munmap(gap, 4096);
}

/* --- allocators of parent domains --- */

static void *
allocate(struct ibv_pd *pd, void *context, size_t size, size_t align, uint64_t what)
{
	(void)pd, (void)size, (void)align, (void)what;
	return *(void **)context;
}

static void
give_back(struct ibv_pd *pd, void *context, void *p, uint64_t what)
{
	(void)pd, (void)context, (void)p, (void)what;
}

static void
allocators(void)
{
	static _Alignas(64) uint8_t memory[128];
	void *next = NULL;
	struct ibv_parent_domain_init_attr init = {
		.pd = r->pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = allocate,
		.free = give_back,
		.pd_context = &next,
	};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_pd *parent = ibv_alloc_parent_domain(r->ctx, &init);

	MUST(parent != NULL);
	NONE("no memory", ibv_create_srq(parent, &srq), ENOMEM);
	SAID("alloc() returned NULL");
	next = memory + 8;
	NONE("memory that is not aligned", ibv_create_srq(parent, &srq), EINVAL);
	SAID("not aligned");
	ERR("the parent domain", ibv_dealloc_pd(parent), 0);
}

/* --- queue pairs --- */

static struct ibv_qp *
qp_with(enum ibv_qp_type type, struct ibv_qp_cap cap, bool cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq ? r->cq : NULL,
		.recv_cq = r->cq,
		.cap = cap,
		.qp_type = type,
	};

	return ibv_create_qp(r->pd, &init);
}

static void
queue_pairs(void)
{
	const struct ibv_qp_cap cap = {16, 16, 2, 2, 64};
	struct ibv_device_attr dev;
	struct ibv_qp_cap large = cap;

	MUST(ibv_query_device(r->ctx, &dev) == 0);
	NONE("no send CQ", qp_with(IBV_QPT_RC, cap, false), EINVAL);
	NONE("raw packets", qp_with(IBV_QPT_RAW_PACKET, cap, true), EOPNOTSUPP);
	NONE("no type", qp_with((enum ibv_qp_type)77, cap, true), EINVAL);
	NONE("type 0", qp_with((enum ibv_qp_type)0, cap, true), EINVAL);
	large.max_send_wr = (uint32_t)dev.max_qp_wr + 1;
	NONE("too many requests", qp_with(IBV_QPT_RC, large, true), EINVAL);
	large = cap;
	large.max_recv_sge = (uint32_t)dev.max_sge + 1;
	NONE("too many pieces", qp_with(IBV_QPT_RC, large, true), EINVAL);
	large = cap;
	large.max_inline_data = 1u << 20;
	NONE("too much inline data", qp_with(IBV_QPT_RC, large, true), EINVAL);
}

/* Modifies a queue pair step by step to RTS, at each step with one wrong attribute at a time. */
static void
modify(void)
{
	struct ibv_qp *qp = make_qp(r, IBV_QPT_RC, NULL);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1}, a;
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid = own_gid()},
	};
	const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	ERR("RESET to RTR", ibv_modify_qp(qp, &rtr, to_rtr), EINVAL);
	ERR("INIT without a port", ibv_modify_qp(qp, &init, to_init & ~IBV_QP_PORT), EINVAL);
	ERR("INIT with a Q_Key of RC", ibv_modify_qp(qp, &init, to_init | IBV_QP_QKEY), EINVAL);
	a = init;
	a.port_num = 2;
	ERR("INIT at port 2", ibv_modify_qp(qp, &a, to_init), EINVAL);
	a = init;
	a.pkey_index = 1;
	ERR("INIT with P_Key 1", ibv_modify_qp(qp, &a, to_init), EINVAL);
	a = init;
	a.qp_access_flags = 1 << 15;
	ERR("INIT with a right that there is not", ibv_modify_qp(qp, &a, to_init), EINVAL);
	SAID("no right");
	a = init;
	a.cur_qp_state = IBV_QPS_RTS;
	ERR("INIT, and it is in RTS", ibv_modify_qp(qp, &a, to_init | IBV_QP_CUR_STATE), EINVAL);
	ERR("INIT", ibv_modify_qp(qp, &init, to_init), 0);
	ERR("RTR without an address", ibv_modify_qp(qp, &rtr, to_rtr & ~IBV_QP_AV), EINVAL);
	a = rtr;
	a.ah_attr.is_global = 0;
	ERR("RTR without a GRH", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.ah_attr.grh.sgid_index = 99;
	ERR("RTR from a GID beyond the table", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.ah_attr.port_num = 2;
	ERR("RTR at port 2", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.path_mtu = (enum ibv_mtu)9;
	ERR("RTR with an MTU that is none", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.max_dest_rd_atomic = 255;
	ERR("RTR with too many READs", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	a = rtr;
	a.min_rnr_timer = 32;
	ERR("RTR with an RNR timer that is none", ibv_modify_qp(qp, &a, to_rtr), EINVAL);
	ERR("RTR", ibv_modify_qp(qp, &rtr, to_rtr), 0);
	ERR("it can be destroyed", ibv_destroy_qp(qp), 0);
}

/* --- posting --- */

static int
post(struct ibv_qp *qp, struct ibv_send_wr *wr, bool first_is_bad)
{
	struct ibv_send_wr *bad = NULL;
	int ret = ibv_post_send(qp, wr, &bad);

	if (ret != 0 && first_is_bad && bad != wr)
		CHECK(bad == wr, "bad_wr is not the request that was wrong");
	return ret;
}

static void
sending(void)
{
	struct ibv_qp *a;
	struct ibv_sge sge[3] = {{(uintptr_t)r->buf, 8, r->mr->lkey},
		{(uintptr_t)r->buf, 8, r->mr->lkey}, {(uintptr_t)r->buf, 8, r->mr->lkey}};
	const struct ibv_send_wr good = {
		.wr_id = 1,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)r->buf + 4096, r->mr->rkey},
	};
	struct ibv_send_wr wr = good, list[40], *bad = NULL;
	unsigned int i;

	a = make_qp(r, IBV_QPT_RC, NULL);
	SILENT("SEND in RESET", post(a, &wr, true), EINVAL);
	EQ(ibv_destroy_qp(a), 0);
	rig_connect(r, IBV_QPT_RC);
	a = r->qp[0];
	wr.opcode = (enum ibv_wr_opcode)99;
	SILENT("no operation", post(a, &wr, true), EINVAL);
	wr.opcode = (enum ibv_wr_opcode)14;
	SILENT("FLUSH, which has no members here", post(a, &wr, true), EINVAL);
	wr = good;
	wr.num_sge = 3;
	SILENT("too many pieces to send", post(a, &wr, true), EINVAL);
	wr = good;
	wr.num_sge = -1;
	SILENT("-1 pieces", post(a, &wr, true), EINVAL);
	wr = good;
	wr.send_flags = 1u << 20;
	SILENT("unknown flags", post(a, &wr, true), EINVAL);
	wr = good;
	wr.send_flags |= IBV_SEND_INLINE;
	sge[0].length = 65;
	SILENT("inline data too long", post(a, &wr, true), ENOMEM);
	sge[0].length = 8;
	wr = good;
	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags |= IBV_SEND_INLINE;
	SILENT("an inline READ", post(a, &wr, true), EINVAL);
	wr = good;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.num_sge = 2;
	SILENT("an atomic of two pieces", post(a, &wr, true), EINVAL);
	for (i = 0; i < 3; i++) {
		list[i] = good;
		list[i].wr_id = 10 + i;
		list[i].next = i < 2 ? &list[i + 1] : NULL;
	}
	list[2].num_sge = 3;
	SILENT("a list whose third is wrong", ibv_post_send(a, list, &bad), EINVAL);
	CHECK(bad == &list[2], "bad_wr is the third");
	CHECK(wait_for(r->cq).wr_id == 10 && wait_for(r->cq).wr_id == 11,
		"the two before are sent");
	for (i = 0; i < 40; i++) {
		list[i] = good;
		list[i].send_flags = 0;
		list[i].next = i < 39 ? &list[i + 1] : NULL;
	}
	SILENT("more than the queue holds", ibv_post_send(a, list, &bad), ENOMEM);
	CHECK(bad >= &list[16], "as many as fit are posted");
	apart();
}

static void
receiving(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 2}};
	struct ibv_srq_attr limit = {.srq_limit = 1000};
	struct ibv_qp *qp = make_qp(r, IBV_QPT_RC, NULL);
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_sge sge[3] = {{(uintptr_t)r->buf, 8, r->mr->lkey}};
	struct ibv_recv_wr *bad = NULL, wr = {.sg_list = sge, .num_sge = 1};
	int i, ret = 0;

	MUST(srq != NULL);
	SILENT("a receive in RESET", ibv_post_recv(qp, &wr, &bad), EINVAL);
	MUST(to_init(qp) == 0);
	wr.num_sge = 3;
	SILENT("too many pieces to receive", ibv_post_recv(qp, &wr, &bad), EINVAL);
	SILENT("the same at an SRQ", ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	for (i = 0; i < 100 && ret == 0; i++)
		ret = ibv_post_recv(qp, &wr, &bad);
	SILENT("a full receive queue", ibv_post_recv(qp, &wr, &bad), ENOMEM);
	CHECK(bad == &wr && i > 16, "after as many as were asked for");
	for (ret = i = 0; i < 100 && ret == 0; i++)
		ret = ibv_post_srq_recv(srq, &wr, &bad);
	SILENT("a full SRQ", ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	ERR("a limit above the size", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), EINVAL);
	ERR("an SRQ of another size", ibv_modify_srq(srq, &limit, IBV_SRQ_MAX_WR), EOPNOTSUPP);
	init.attr.max_sge = 1000;
	NONE("an SRQ of too many pieces", ibv_create_srq(r->pd, &init), EINVAL);
	init.attr = (struct ibv_srq_attr){.max_wr = 1u << 30, .max_sge = 1};
	NONE("an SRQ too large", ibv_create_srq(r->pd, &init), EINVAL);
	ERR("the SRQ", ibv_destroy_srq(srq), 0);
	ERR("its queue pair", ibv_destroy_qp(qp), 0);
}

/* --- addresses, groups, windows --- */

static void
addresses(void)
{
	const struct ibv_ah_attr good = {.is_global = 1, .port_num = 1, .grh.dgid = own_gid()};
	struct ibv_ah_attr a = good;
	struct ibv_qp *rc = make_qp(r, IBV_QPT_RC, NULL), *ud = make_qp(r, IBV_QPT_UD, NULL);
	struct ibv_sge sge = {(uintptr_t)r->buf, 8, r->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	union ibv_gid gid = own_gid(), group = {.raw = {0xff, 0x0e, [15] = 1}};
	struct ibv_ah *ah;

	a.is_global = 0;
	NONE("an address without a GRH", ibv_create_ah(r->pd, &a), EINVAL);
	a = good;
	a.port_num = 2;
	NONE("an address at port 2", ibv_create_ah(r->pd, &a), EINVAL);
	a = good;
	a.grh.sgid_index = 99;
	NONE("an address from a GID beyond the table", ibv_create_ah(r->pd, &a), EINVAL);
	a = good;
	ah = ibv_create_ah(r->pd, &a);
	NONE("an address", ah, 0);
	ERR("a domain with an address", ibv_dealloc_pd(r->pd), EBUSY);
	MUST(to_init(ud) == 0 && to_rtr(ud, 0) == 0 && to_rts(ud) == 0);
	SILENT("a datagram without an address", post(ud, &wr, true), EINVAL);
	wr.wr.ud.ah = ah;
	wr.opcode = IBV_WR_RDMA_WRITE;
	SILENT("a WRITE over UD", post(ud, &wr, true), EINVAL);
	ERR("a group of RC", ibv_attach_mcast(rc, &group, 0), EINVAL);
	ERR("a group that is none", ibv_attach_mcast(ud, &gid, 0), EINVAL);
	ERR("leaving a group", ibv_detach_mcast(ud, &group, 0), EINVAL);
	ERR("ibv_destroy_ah", ibv_destroy_ah(ah), 0);
	ERR("ibv_destroy_qp of UD", ibv_destroy_qp(ud), 0);
	ERR("ibv_destroy_qp of RC", ibv_destroy_qp(rc), 0);
}

static void
windows(void)
{
	struct ibv_qp *a;
	struct ibv_mw *one = ibv_alloc_mw(r->pd, IBV_MW_TYPE_1);
	struct ibv_mw *two = ibv_alloc_mw(r->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {r->mr, (uintptr_t)r->buf, 4096, IBV_ACCESS_REMOTE_WRITE},
	};

	MUST(one != NULL && two != NULL);
	NONE("no type of window", ibv_alloc_mw(r->pd, (enum ibv_mw_type)9), EINVAL);
	rig_connect(r, IBV_QPT_RC);
	a = r->qp[0];
	THEIRS("type 2 by ibv_bind_mw", ibv_bind_mw(a, two, &bind), EINVAL);
	ERR("a window", ibv_bind_mw(a, one, &bind), 0);
	CHECK(wait_for(r->cq).status == IBV_WC_SUCCESS, "is bound");
	ERR("a region with a window", ibv_dereg_mr(r->mr), EBUSY);
	ERR("a domain with all that", ibv_dealloc_pd(r->pd), EBUSY);
	bind.bind_info.addr += BUF_BYTES;
	ERR("a window beyond the region", ibv_bind_mw(a, one, &bind), 0);
	CHECK(wait_for(r->cq).status == IBV_WC_MW_BIND_ERR, "is refused by its completion");
	ERR("ibv_dealloc_mw", ibv_dealloc_mw(one), 0);
	ERR("ibv_dealloc_mw of type 2", ibv_dealloc_mw(two), 0);
	apart();
}

/* --- the wrong order --- */

static void
order(void)
{
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(r->pd, &srq_init);
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.srq = srq,
		.cap = {.max_send_wr = 1, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_sge sge = {(uintptr_t)r->buf, 8, r->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &init);

	MUST(srq != NULL && qp != NULL);
	MUST(to_init(qp) == 0);
	SILENT("a receive where there is an SRQ", ibv_post_recv(qp, &wr, &bad), EINVAL);
	ERR("an SRQ with a queue pair", ibv_destroy_srq(srq), EBUSY);
	ERR("a CQ with a queue pair", ibv_destroy_cq(r->cq), EBUSY);
	ERR("a domain with a queue pair", ibv_dealloc_pd(r->pd), EBUSY);
	ERR("the queue pair", ibv_destroy_qp(qp), 0);
	ERR("a domain with an SRQ", ibv_dealloc_pd(r->pd), EBUSY);
	ERR("its SRQ", ibv_destroy_srq(srq), 0);
	ERR("a domain with a region", ibv_dealloc_pd(r->pd), EBUSY);
}

/* --- rarely used calls --- */

static void
domains(void)
{
	struct ibv_td_init_attr td_init = {.comp_mask = 1};
	struct ibv_parent_domain_init_attr parent = {.comp_mask = 1u << 20};
	struct ibv_xrcd_init_attr xrcd = {.comp_mask = 1u << 20};
	struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM};
	struct ibv_pd *pd;
	struct ibv_td *td;

	NONE("a thread domain with a mask", ibv_alloc_td(r->ctx, &td_init), EOPNOTSUPP);
	NONE("a parent domain with a mask", ibv_alloc_parent_domain(r->ctx, &parent), EOPNOTSUPP);
	parent.comp_mask = 0;
	NONE("a parent of nothing", ibv_alloc_parent_domain(r->ctx, &parent), EINVAL);
	td_init.comp_mask = 0;
	MUST((td = ibv_alloc_td(r->ctx, &td_init)) != NULL);
	parent.pd = r->pd;
	parent.td = td;
	MUST((pd = ibv_alloc_parent_domain(r->ctx, &parent)) != NULL);
	ERR("a thread domain in use", ibv_dealloc_td(td), EBUSY);
	ERR("a domain that is contained", ibv_dealloc_pd(r->pd), EBUSY);
	ERR("the parent", ibv_dealloc_pd(pd), 0);
	ERR("the thread domain", ibv_dealloc_td(td), 0);
	NONE("an XRC domain with a mask", ibv_open_xrcd(r->ctx, &xrcd), EOPNOTSUPP);
	xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD;
	NONE("half an XRC domain", ibv_open_xrcd(r->ctx, &xrcd), EINVAL);
	xrcd = (struct ibv_xrcd_init_attr){
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = INT_MAX,
		.oflags = O_CREAT,
	};
	NONE("an XRC domain of no file", ibv_open_xrcd(r->ctx, &xrcd), EBADF);
	NONE("half a queue pair to open", ibv_open_qp(r->ctx, &open), EINVAL);
}

static void
not_there(void)
{
	const struct ibv_query_device_ex_input input = {.comp_mask = 1};
	struct ibv_values_ex values = {.comp_mask = 1u << 7};
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1};
	struct ibv_ops_wr *bad_op = NULL, op = {.wr_id = 1};
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_qp *qp = make_qp(r, IBV_QPT_RC, NULL);
	struct ibv_device_attr_ex attr;
	struct ibv_ece ece = {0};
	uint32_t num;

	THEIRS("a device with a mask", ibv_query_device_ex(r->ctx, &input, &attr), EINVAL);
	ERR("values that there are not", ibv_query_rt_values_ex(r->ctx, &values), EOPNOTSUPP);
	EQ(values.comp_mask, 1u << 7);
	ERR("the number of an SRQ that has none", ibv_get_srq_num(srq, &num), EOPNOTSUPP);
	ERR("a rate limit in RESET", ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	rate.rate_limit = UINT32_MAX;
	ERR("a rate beyond all", ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	rate.comp_mask = 1;
	ERR("a rate limit with a mask", ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	SILENT("ibv_query_ece", ibv_query_ece(qp, &ece), EOPNOTSUPP);
	SILENT("ibv_set_ece", ibv_set_ece(qp, &ece), EOPNOTSUPP);
	SILENT("tags to match", ibv_post_srq_ops(srq, &op, &bad_op), EOPNOTSUPP);
	CHECK(bad_op == &op, "bad_op is that");
	ERR("the SRQ", ibv_destroy_srq(srq), 0);
	ERR("the queue pair", ibv_destroy_qp(qp), 0);
}

/* Handles are numbers of one attachment: an object of another attachment must not be mistaken for
 * the object with the same number in this one. */
static void
another_context(void)
{
	struct ibv_xrcd_init_attr xrcd_init = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_td_init_attr td_init = {0};
	struct ibv_parent_domain_init_attr parent_init = {.pd = r->pd};
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_srq_init_attr_ex srq = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.srq_type = IBV_SRQT_XRC,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE |
			IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	};
	struct ibv_cq_init_attr_ex cq = {.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh.dgid = own_gid()};
	struct ibv_sge sge = {(uintptr_t)r->buf, 8, r->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_qp *ud = make_qp(r, IBV_QPT_UD, NULL);
	struct rig other;

	rig_up(&other);
	ERR("a region into its domain",
		ibv_rereg_mr(r->mr, IBV_REREG_MR_CHANGE_PD, other.pd, NULL, 0, 0) != 0 ? errno : 0,
		EINVAL);
	SAID("another context");
	MUST((target.xrcd = ibv_open_xrcd(other.ctx, &xrcd_init)) != NULL);
	NONE("a target in its XRC domain", ibv_create_qp_ex(r->ctx, &target), EINVAL);
	open.xrcd = target.xrcd;
	NONE("one to open in it", ibv_open_qp(r->ctx, &open), EINVAL);
	srq.pd = other.pd;
	srq.xrcd = target.xrcd;
	srq.cq = other.cq;
	NONE("an SRQ of all that", ibv_create_srq_ex(r->ctx, &srq), EINVAL);
	ERR("its XRC domain", ibv_close_xrcd(target.xrcd), 0);
	MUST((parent_init.td = ibv_alloc_td(other.ctx, &td_init)) != NULL);
	NONE("a parent domain with its thread domain",
		ibv_alloc_parent_domain(r->ctx, &parent_init), EINVAL);
	parent_init.pd = other.pd;
	MUST((cq.parent_domain = ibv_alloc_parent_domain(other.ctx, &parent_init)) != NULL);
	NONE("a CQ in its parent domain", ibv_create_cq_ex(r->ctx, &cq), EINVAL);
	ERR("its parent domain", ibv_dealloc_pd(cq.parent_domain), 0);
	ERR("its thread domain", ibv_dealloc_td(parent_init.td), 0);
	MUST((wr.wr.ud.ah = ibv_create_ah(other.pd, &to)) != NULL);
	MUST(to_init(ud) == 0 && to_rtr(ud, 0) == 0 && to_rts(ud) == 0);
	SILENT("a datagram by its address", post(ud, &wr, true), EINVAL);
	ERR("its address", ibv_destroy_ah(wr.wr.ud.ah), 0);
	ERR("the queue pair", ibv_destroy_qp(ud), 0);
	rig_down(&other);
}

/* Requests by ibv_wr_*() calls: ibv_wr_complete() returns the first error of a list. */
static void
calls(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = r->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(r->ctx, &init);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ex->wr_flags = 0;
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	SILENT("a call in RESET", ibv_wr_complete(ex), EINVAL);
	MUST(to_init(qp) == 0 && to_rtr(qp, 0) == 0 && to_rts(qp) == 0);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, NULL, 1, 1);
	SILENT("a call without an address", ibv_wr_complete(ex), EINVAL);
	ex->wr_flags = 1u << 20;
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	SILENT("a call with unknown flags", ibv_wr_complete(ex), EINVAL);
	ERR("its queue pair", ibv_destroy_qp(qp), 0);
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
	run_case("devices", devices);
	run_case("completion queues", completion_queues);
	run_case("memory", memory);
	run_case("advice", advice);
	run_case("allocators", allocators);
	run_case("queue pairs", queue_pairs);
	run_case("attributes of queue pairs", modify);
	run_case("sending", sending);
	run_case("receiving", receiving);
	run_case("addresses and groups", addresses);
	run_case("windows", windows);
	run_case("the wrong order", order);
	run_case("domains of other kinds", domains);
	run_case("what is not there", not_there);
	run_case("objects of another context", another_context);
	run_case("requests by calls", calls);
	run_case("all of it still works, and can be destroyed", end);
	return cases_end();
}
