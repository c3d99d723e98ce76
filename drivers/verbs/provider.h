/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the files of the provider share: the objects, each of which begins with what libibverbs
 * knows of it and names its counterpart in libkarst, and the operations.
 *
 * Threads: as verbs, any.  The locks are those of the send queue, the receive queue and the
 * completion queue, which posting and polling take and nothing else; and one mutex over the
 * descriptors that libibverbs reads (event.c).  Queues of a thread domain, and completion queues
 * that the program says it polls from one thread, take none.
 *
 * Errors: operations return a positive errno, or NULL, and set errno in any case.  All of them end
 * in kv_errno(), most by kv_error() or kv_fail(), which also say the reason on standard error if
 * $KARST_VERBS_DEBUG is set: libkarst's sentence (karst_why()), or that of the file here that
 * refused (kv_refuse()).
 */
#ifndef KARST_VERBS_PROVIDER_H
#define KARST_VERBS_PROVIDER_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "abi34.h"
#include "karst.h"
#include "karst_lock.h"
#include "karst_mutex.h"

/* --- objects --- */

#define KV_SOCKET 108 /* bytes of a socket's path */

struct kv_device {
	struct verbs_device vdev;
	LIST_ENTRY(kv_device) next;
	char socket[KV_SOCKET]; /* of the engine */
	uint32_t port;          /* of the engine, from 1; this device's only one */
};

struct kv_context {
	struct ibv_context *ibv;
	struct karst_context *karst;
	uint32_t port;
	struct karst_mutex lock;
	LIST_HEAD(, kv_mr) on_demand; /* regions; under the lock */
	struct verbs_context *vctx;   /* last: libibverbs allocates it in its own size */
};

enum kv_kind { KV_PD, KV_TD, KV_MR, KV_MW, KV_AH, KV_XRCD, KV_CQ, KV_SRQ, KV_QP };

/** In each object: that it is there (live.c). */
struct kv_live {
	LIST_ENTRY(kv_live) next;
	const struct ibv_context *ctx;
	const void *ibv; /* as the program knows it */
	enum kv_kind kind;
	uint32_t handle;    /* which it was given */
	const uint32_t *at; /* where the program can change it; NULL: nowhere */
};

struct kv_td {
	struct ibv_td ibv;
	struct kv_live live;
	_Atomic uint32_t users;
};

/** A protection domain, or a parent domain over one. */
struct kv_pd {
	struct ibv_pd ibv;
	struct kv_live live;
	struct karst_pd *karst; /* of the contained one, if this is a parent */
	struct kv_pd *contained;
	struct kv_td *td;
	_Atomic uint32_t users; /* parents, and objects with memory of a parent; all else that is in
				 * it libkarst counts, by its own domain */
	/* the program's allocators, which a parent may have; both or none */
	void *(*alloc)(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
		uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *context, void *ptr, uint64_t resource_type);
	void *alloc_context;
};

/** What the program's allocators are told that the memory is for. */
enum kv_resource {
	KV_RESOURCE_CQ = 1,
	KV_RESOURCE_SRQ,
	KV_RESOURCE_QP,
};

/** Where the memory of an object is from. */
struct kv_memory {
	struct kv_pd *parent; /* the parent domain that it is in; NULL: none */
	bool is_theirs;       /* the program's allocator gave it */
};

struct kv_mr {
	struct verbs_mr vmr;
	struct kv_live live;
	struct karst_mr *karst;
	LIST_ENTRY(kv_mr) next; /* of those on demand */
};

struct kv_mw {
	struct ibv_mw ibv;
	struct kv_live live;
	struct karst_mw *karst;
};

struct kv_ah {
	struct ibv_ah ibv;
	struct kv_live live;
	struct karst_ah *karst;
};

struct kv_xrcd {
	struct verbs_xrcd vxrcd;
	struct kv_live live;
	struct karst_xrcd *karst;
};

/** Events that were handed to the program; under a lock of event.c. */
struct kv_events {
	uint32_t comp;
	uint32_t async;
	bool closing; /* the object may be about to go: who reads one waits for that */
};

struct kv_cq {
	struct verbs_cq vcq;
	struct kv_memory memory;
	struct karst_cq *karst;
	bool single; /* one thread: no lock */
	struct karst_lock lock karst_cache_aligned;
	/* an extended poll under way: completion @at of @n that stand at @cqes; n is 0 if that is
	 * not in the ring.  stamps NULL: it has no time */
	const struct karst_cqe *cqes;
	const uint64_t *stamps;
	uint32_t at;
	uint32_t n;
	_Atomic pthread_t poller; /* whose poll that is; 0: nobody's */
	/* the program has armed the queue: what came before is for its next poll, alone (cq.c) */
	_Atomic bool armed_fresh;
	bool ends_early; /* the extended poll under way is that one, and has shown some of it */
	struct karst_lock arm_lock; /* of who arms, and who changes the lanes; after lock */
	/* an event was read, and no poll has ended since: the program knows that there is
	 * something */
	_Atomic bool told;
	/* of a program that waits for events: see poll.c */
	_Atomic bool armed;             /* it has asked for one, which may have come since */
	_Atomic bool soon;              /* the last completion after such a poll came at once */
	_Atomic uint64_t empty_poll_ns; /* when that poll was; 0: there was none */
	uint32_t empty;                 /* polls that found nothing in the ring */
	/* made up by libkarst after the engine's death, or kept by kv_cq_hold(); and its time */
	struct karst_cqe last;
	uint64_t last_stamp;
	struct kv_live live;
	struct kv_events events;
};

struct kv_srq {
	struct verbs_srq vsrq;
	struct kv_live live;
	struct kv_memory memory;
	struct karst_srq *karst;
	struct karst_lock lock karst_cache_aligned;
	struct kv_events events;
};

struct kv_qp {
	struct verbs_qp vqp;
	struct kv_memory memory;
	struct karst_qp *karst;
	bool single;
	struct kv_pd *pd;
	/* for posting */
	struct karst_lock send_lock karst_cache_aligned;
	struct karst_lock recv_lock karst_cache_aligned;
	/* a list of ibv_wr_*() calls under way, with the send lock held */
	struct karst_send_wqe *wqe; /* the last one */
	uint32_t nwqes;
	int wr_error;
	uint32_t rate_limit; /* kbit/s, as it was set */
	struct kv_live live;
	struct kv_events events;
};

/* --- from libibverbs' pointers to ours --- */

struct kv_context *kv_context_of(struct ibv_context *ibv);

static inline struct kv_pd *
kv_pd_of(struct ibv_pd *ibv)
{
	return karst_container_of(ibv, struct kv_pd, ibv);
}

static inline struct kv_td *
kv_td_of(struct ibv_td *ibv)
{
	return karst_container_of(ibv, struct kv_td, ibv);
}

static inline struct kv_mr *
kv_mr_of(struct ibv_mr *ibv)
{
	return karst_container_of(ibv, struct kv_mr, vmr.ibv_mr);
}

static inline struct kv_mw *
kv_mw_of(struct ibv_mw *ibv)
{
	return karst_container_of(ibv, struct kv_mw, ibv);
}

static inline struct kv_ah *
kv_ah_of(struct ibv_ah *ibv)
{
	return karst_container_of(ibv, struct kv_ah, ibv);
}

static inline struct kv_xrcd *
kv_xrcd_of(struct ibv_xrcd *ibv)
{
	return karst_container_of(ibv, struct kv_xrcd, vxrcd.xrcd);
}

static inline struct kv_cq *
kv_cq_of(struct ibv_cq *ibv)
{
	return karst_container_of(ibv, struct kv_cq, vcq.cq);
}

static inline struct kv_srq *
kv_srq_of(struct ibv_srq *ibv)
{
	return karst_container_of(ibv, struct kv_srq, vsrq.srq);
}

static inline struct kv_qp *
kv_qp_of(struct ibv_qp *ibv)
{
	return karst_container_of(ibv, struct kv_qp, vqp.qp);
}

/* --- errors --- */

/** @return @err, a positive errno or 0; and an errno is in errno, too.  For refusals in the normal
 *  course, which print no reason. */
static inline int
kv_errno(int err)
{
	if (karst_unlikely(err != 0))
		errno = err;
	return err;
}

/** Of libkarst's @ret, a negative errno, or of kv_refuse()'s: the positive one, said aloud if that
 *  is wanted.  0: 0 */
int kv_error(int ret);
/** The same for operations that return a pointer. */
void *kv_fail(int ret);
/** @return @ret, a negative errno, for kv_error() or kv_fail(), which then say @why: it was refused
 *  here and not by libkarst.  @why lives on. */
int kv_refuse(int ret, const char *why);

/* --- what there is (live.c) --- */

/** Once, when the provider is loaded. */
void kv_live_init(void);
/** An object of @ctx is made, and complete.  @ibv: as the program knows it; @handle: its, NULL: it
 *  has none. */
void kv_live_add(struct kv_live *live, enum kv_kind kind, const struct ibv_context *ctx,
	const void *ibv, const uint32_t *handle);
/** It is about to go: before libkarst destroys it. */
void kv_live_del(struct kv_live *live);
/** libkarst has answered @ret: it is gone, or, if that is an error, it stays.  @return @ret */
int kv_live_decide(struct kv_live *live, int ret);
/** So is @ctx, with all that is left in it, whose memory may be the program's. */
void kv_live_end(const struct ibv_context *ctx);
/** Is this such an object, with the handle that it was given?  @ibv may be any address.
 *  @return 0; -EINVAL: NULL; -ENOENT: no.  For kv_error() and kv_fail(). */
int kv_check(enum kv_kind kind, const void *ibv);
/** The same of one that another is to stand on, so that it must be of @ctx: each attachment has
 *  numbers of its own.  -EINVAL also: it is not. */
int kv_check_in(enum kv_kind kind, const struct ibv_context *ctx, const void *ibv);
/** The same of one that may also be NULL. */
int kv_check_in_if(enum kv_kind kind, const struct ibv_context *ctx, const void *ibv);

/* --- operations, by file --- */

/* device.c */
/** -EPERM: it was opened by the parent process.  For kv_error() and kv_fail(). */
int kv_check_process(struct ibv_context *ibv);
int kv_query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t attr_size);
int kv_query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *attr);
int kv_query_rt_values(struct ibv_context *ibv, struct ibv_values_ex *values);
/** Attaches to the device's engine.  NULL and errno. */
struct karst_context *kv_attach(const struct kv_device *dev);
/** Once, when the provider is loaded. */
void kv_device_init(void);
/** The devices that libibverbs has of us. */
void kv_device_add(struct kv_device *dev);
void kv_device_remove(struct kv_device *dev);
/** Where the engine of the first one listens; @socket: KV_SOCKET bytes.  @return false: none. */
bool kv_device_first(char *socket);
/** As ibv_get_device_guid(), of the device of port @port of the engine at @socket; 0: none. */
uint64_t kv_device_guid(const char *socket, uint32_t port);

/* pd.c */
struct ibv_pd *kv_alloc_pd(struct ibv_context *ibv);
int kv_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *kv_alloc_td(struct ibv_context *ibv, struct ibv_td_init_attr *init);
int kv_dealloc_td(struct ibv_td *td);
struct ibv_pd *kv_alloc_parent_domain(
	struct ibv_context *ibv, struct ibv_parent_domain_init_attr *init);
/** Cache-aligned memory of an object in @pd (NULL: in none) that begins with zeros.
 *  NULL and errno. */
void *kv_object_new(struct kv_pd *pd, size_t size, enum kv_resource what, struct kv_memory *memory);
void kv_object_free(void *object, enum kv_resource what, struct kv_memory memory);
struct ibv_xrcd *kv_open_xrcd(struct ibv_context *ibv, struct ibv_xrcd_init_attr *init);
int kv_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_ah *kv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int kv_destroy_ah(struct ibv_ah *ah);
/** -EINVAL: not an address of this device's port. */
int kv_ah_attr(
	const struct kv_context *ctx, const struct ibv_ah_attr *from, struct karst_ah_attr *to);
void kv_ah_attr_back(const struct karst_ah_attr *from, struct ibv_ah_attr *to);

/* mr.c */
struct ibv_mr *kv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access);
int kv_rereg_mr(
	struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access);
int kv_dereg_mr(struct verbs_mr *vmr);
int kv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	struct ibv_sge *sges, uint32_t nsges);
struct ibv_mw *kv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int kv_dealloc_mw(struct ibv_mw *mw);
int kv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* cq.c */
struct ibv_cq *kv_create_cq(
	struct ibv_context *ibv, int cqe, struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *kv_create_cq_ex(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *init);
int kv_destroy_cq(struct ibv_cq *cq);
int kv_resize_cq(struct ibv_cq *cq, int cqe);
int kv_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int kv_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* poll.c */
int kv_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
/** An event was asked for, or is not waited for any more: see poll.c. */
void kv_cq_set_armed(struct kv_cq *cq, bool armed);
/** Completions of @qp that have not been polled are gone. */
void kv_drop_completions(const struct kv_qp *qp);
/** The caller is about to move or remove completions: takes the lock, unless the extended poll
 *  under way is the caller's own, which then keeps what it shows.  @return false: another thread
 *  has the lock, and @wait is false. */
bool kv_cq_hold(struct kv_cq *cq, bool wait);
/** Gives back what kv_cq_hold() took. */
void kv_cq_release(struct kv_cq *cq);
/** Sets the extended operations that @wc_flags need. */
void kv_set_poll_ops(struct kv_cq *cq, uint64_t wc_flags);

/* srq.c */
struct ibv_srq *kv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init);
struct ibv_srq *kv_create_srq_ex(struct ibv_context *ibv, struct ibv_srq_init_attr_ex *init);
int kv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int kv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int kv_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
int kv_destroy_srq(struct ibv_srq *srq);
int kv_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);

/* qp.c */
struct ibv_qp *kv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
struct ibv_qp *kv_create_qp_ex(struct ibv_context *ibv, struct ibv_qp_init_attr_ex *init);
struct ibv_qp *kv_open_qp(struct ibv_context *ibv, struct ibv_qp_open_attr *attr);
int kv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int kv_query_qp(
	struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int kv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);
int kv_destroy_qp(struct ibv_qp *qp);
int kv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int kv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int kv_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
int kv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int kv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);

/* post.c */
int kv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int kv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int kv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/** Rights of a window: a right to write locally, which programs often ask for, is none. */
static inline unsigned int
kv_window_access(unsigned int access)
{
	return access & ~(unsigned int)IBV_ACCESS_LOCAL_WRITE;
}

/* wr.c */
/** Bytes that an ATOMIC WRITE carries in its request. */
#define KV_ATOMIC_WRITE_BYTES 8
/** The ibv_wr_*() calls that @ops ask for.  EOPNOTSUPP: one that this type of QP does not have. */
int kv_set_wr_ops(struct kv_qp *qp, uint64_t ops);

/* event.c: the descriptors that libibverbs opens, reads and closes by itself */

/** Takes those calls over; once, when the provider is loaded. */
void kv_events_init(void);
/** What is read from the context's async_fd, and asked for through its cmd_fd. */
int kv_events_context(struct kv_context *ctx);
void kv_events_context_end(struct kv_context *ctx);
/** The libkarst channel behind a libibverbs one. */
struct karst_comp_channel *kv_events_channel(const struct ibv_comp_channel *channel);

/** Returns when all events of the object that were handed out are acknowledged; no cancellation
 *  point.  From then on none is handed out until kv_events_decide().  @mutex, @cond, @comp (may be
 *  NULL), @async: where libibverbs counts. */
void kv_events_close(struct kv_events *events, pthread_mutex_t *mutex, pthread_cond_t *cond,
	const uint32_t *comp, const uint32_t *async);
/** The object is destroyed, and its memory still there; or it stays after all. */
void kv_events_decide(struct kv_events *events, bool destroyed);

/* got.c */
struct kv_got_entry {
	const char *name; /* of the function that the library imports */
	void *ours;
	void **theirs; /* may be NULL: where to keep the one that was there */
};
/** Replaces functions that loaded libraries whose path contains @library import.
 *  @return how many entries were replaced. */
unsigned int kv_got_patch(const char *library, const struct kv_got_entry *entries, unsigned int n);

#endif /* KARST_VERBS_PROVIDER_H */
