/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the files of the provider share: the objects and the operations.  Each object begins with
 * the structure that libibverbs knows and refers to its counterpart in libkarst.
 *
 * Threads: any thread may call any operation, as verbs allow.  Posting and polling take only the
 * lock of the send queue, of the receive queue or of the completion queue.  One mutex protects the
 * descriptors that libibverbs reads (event.c).  Queues of a thread domain take no lock, nor do
 * completion queues that the program declares single-threaded.
 *
 * Errors: operations return a positive errno, or NULL, and set errno in both cases.  All of them
 * end in kv_errno(), most of them by way of kv_error() or kv_fail().  These two also print the
 * reason on standard error if $KARST_VERBS_DEBUG is set: libkarst's reason (karst_why()), or that
 * of the provider file that refused the call (kv_refuse()).
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

/** Lists of what has a descriptor.  The kernel assigns the lowest numbers that are free, so the
 *  lists are equally long.  Their number is fixed: no memory can be allocated under the locks of
 *  their tables. */
#define KV_FD_LISTS 4096u

static inline unsigned int
kv_fd_list(int fd)
{
	return (unsigned int)fd % KV_FD_LISTS;
}

struct kv_device {
	struct verbs_device vdev;
	LIST_ENTRY(kv_device) next;
	char socket[KV_SOCKET]; /* of the engine */
	uint32_t port;          /* of the engine, from 1: the device's only port */
};

struct kv_context {
	struct ibv_context *ibv;
	struct karst_context *karst;
	uint32_t port;
	struct karst_mutex lock;
	LIST_HEAD(, kv_mr) on_demand; /* on-demand regions; protected by the lock */
	pthread_cond_t advised;       /* a region's advising has become 0 */
	struct verbs_context *vctx;   /* allocated by libibverbs in its own size */
};

enum kv_kind { KV_PD, KV_TD, KV_MR, KV_MW, KV_AH, KV_XRCD, KV_CQ, KV_SRQ, KV_QP };

/** Part of each object: its entry in the list of existing objects (live.c). */
struct kv_live {
	LIST_ENTRY(kv_live) next;
	const struct ibv_context *ctx;
	const void *ibv; /* the address that the program has */
	enum kv_kind kind;
	uint32_t handle;    /* that the object was created with */
	const uint32_t *at; /* the handle that the program can overwrite; NULL: none */
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
	struct karst_pd *karst;  /* of a parent domain: that of the contained domain */
	struct kv_pd *contained; /* NULL: this is not a parent domain */
	struct kv_td *td;
	_Atomic uint32_t users; /* parent domains over this one, and objects with memory of this
				 * parent domain; libkarst counts the other objects */
	/* the program's allocators, which a parent domain may have: both or none */
	void *(*alloc)(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
		uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *context, void *ptr, uint64_t resource_type);
	void *alloc_context;
};

/** The purpose of the memory, as the program's allocators are told. */
enum kv_resource {
	KV_RESOURCE_CQ = 1,
	KV_RESOURCE_SRQ,
	KV_RESOURCE_QP,
};

/** Where the memory of an object comes from. */
struct kv_memory {
	struct kv_pd *parent; /* the object's parent domain; NULL: none */
	bool is_theirs;       /* the program's allocator returned it */
};

struct kv_mr {
	struct verbs_mr vmr;
	struct kv_live live;
	struct karst_mr *karst;
	/* protected by the context's lock */
	LIST_ENTRY(kv_mr) next; /* in the on_demand list */
	bool listed;
	uint32_t changing; /* calls under way that re-register or deregister it: it is not listed */
	uint32_t advising; /* prefetches of its pages under way: those calls wait for them */
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

/** Counts of events that were delivered to the program; protected by the lock of event.c. */
struct kv_events {
	uint32_t comp;
	uint32_t async;
	bool closing; /* the object is being destroyed: a reader of an event waits for the result */
};

struct kv_cq {
	struct verbs_cq vcq;
	struct kv_memory memory;
	struct karst_cq *karst;
	bool single; /* used by one thread: no lock */
	struct karst_lock lock karst_cache_aligned;
	/* the extended poll under way is at completion @at of the @n at @cqes.  n is 0 if the
	 * completion is not in the ring.  stamps is NULL if it has no timestamp */
	const struct karst_cqe *cqes;
	const uint64_t *stamps;
	uint32_t at;
	uint32_t n;
	_Atomic pthread_t poller; /* the thread of that poll; 0: there is none */
	/* held except while that thread lends the queue (poll.c) */
	struct karst_lock loan;
	bool on_loan; /* the loan is taken; protected by it */
	struct kv_cq *next_lent;
	/* the program has armed the queue and not polled since: its next poll reports only the
	 * completions from before the arming, if there are any (cq.c) */
	_Atomic bool armed_fresh;
	bool ends_early; /* the extended poll under way is that poll, and has found some of them */
	struct karst_lock arm_lock; /* for arming and for changing the lanes; taken after lock */
	/* an event was read and no poll has ended since: the program knows that the queue has
	 * completions */
	_Atomic bool told;
	/* for programs that wait for events: see poll.c */
	_Atomic bool armed;             /* the program asked for an event, which may have come */
	_Atomic bool soon;              /* the last completion came soon after an empty poll */
	_Atomic uint64_t empty_poll_ns; /* the time of that empty poll; 0: there was none */
	uint32_t empty;                 /* polls that found nothing in the ring */
	/* a completion, and its time: generated by libkarst after the engine's death, or kept by
	 * kv_cq_hold() */
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
	/* the completion queues that it uses, which libkarst counts.  Those in struct ibv_qp may
	 * be others: what the program named for a queue that its type does not have */
	struct kv_cq *send_cq, *recv_cq;
	bool single;
	struct kv_pd *pd;
	/* for posting */
	struct karst_lock send_lock karst_cache_aligned;
	struct karst_lock recv_lock karst_cache_aligned;
	/* a list of ibv_wr_*() calls under way, with the send lock held */
	struct karst_send_wqe *wqe; /* the last one */
	uint32_t nwqes;
	int wr_error;
	uint32_t rate_limit; /* kbit/s, as the program set it */
	uint32_t rate_burst; /* bytes, set together with it */
	struct kv_live live;
	struct kv_events events;
};

/* --- from libibverbs' pointers to the provider's --- */

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

/** Sets errno to @err unless it is 0.  For refusals that are part of normal operation: prints no
 *  reason.
 *  @return @err, a positive errno or 0 */
static inline int
kv_errno(int err)
{
	if (karst_unlikely(err != 0))
		errno = err;
	return err;
}

/** Sets errno, and prints the reason if $KARST_VERBS_DEBUG is set.  @ret: a negative errno of
 *  libkarst or of kv_refuse(), or 0.
 *  @return the positive errno, or 0 */
int kv_error(int ret);
/** As kv_error(), for operations that return a pointer.  @return NULL */
void *kv_fail(int ret);
/** For a call that the provider refuses, not libkarst: stores @why as the reason for kv_error() or
 *  kv_fail().  @why must stay valid.
 *  @return @ret, a negative errno */
int kv_refuse(int ret, const char *why);

/* --- the objects that exist (live.c) --- */

/** Called once, when the provider is loaded. */
void kv_live_init(void);
/** Lists an object of @ctx, which is complete.  @ibv: the address that the program has; @handle:
 *  the object's handle, NULL: it has none. */
void kv_live_add(struct kv_live *live, enum kv_kind kind, const struct ibv_context *ctx,
	const void *ibv, const uint32_t *handle);
/** Removes an object from the list, before libkarst destroys it. */
void kv_live_del(struct kv_live *live);
/** Called with the result of libkarst's destroy call, @ret: if that is an error, the object still
 *  exists and is listed again.  @return @ret */
int kv_live_decide(struct kv_live *live, int ret);
/** Calls @fn, which must not wait, for each object of @kind. */
void kv_live_each(enum kv_kind kind, void (*fn)(struct kv_live *live, void *arg), void *arg);
/** Removes all remaining objects of @ctx, which is being closed; the program may own their
 *  memory. */
void kv_live_end(const struct ibv_context *ctx);
/** Checks that @ibv, which may be any address, is an existing object of @kind and still has the
 *  handle that it was created with.  For kv_error() and kv_fail().
 *  @return 0; -EINVAL: @ibv is NULL; -ENOENT: there is no such object */
int kv_check(enum kv_kind kind, const void *ibv);
/** As kv_check(), for an object that another one is to use.  It must belong to @ctx, because each
 *  attachment has its own numbers.  -EINVAL also: the object belongs to another context. */
int kv_check_in(enum kv_kind kind, const struct ibv_context *ctx, const void *ibv);
/** As kv_check_in(); @ibv may also be NULL. */
int kv_check_in_if(enum kv_kind kind, const struct ibv_context *ctx, const void *ibv);

/* --- operations, by file --- */

/* device.c */
/** Checks that this process opened the context.  For kv_error() and kv_fail().
 *  @return 0; -EPERM: the parent process opened it */
int kv_check_process(struct ibv_context *ibv);
int kv_query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t attr_size);
int kv_query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *attr);
int kv_query_rt_values(struct ibv_context *ibv, struct ibv_values_ex *values);
/** Attaches to the device's engine.  @return NULL and errno on failure */
struct karst_context *kv_attach(const struct kv_device *dev);
/** Called once, when the provider is loaded. */
void kv_device_init(void);
/** The list of karst devices that libibverbs knows. */
void kv_device_add(struct kv_device *dev);
void kv_device_remove(struct kv_device *dev);
/** Stores the socket path of the first device's engine; @socket: KV_SOCKET bytes.
 *  @return false: there is no device */
bool kv_device_first(char *socket);
/** As ibv_get_device_guid(), for the device of port @port of the engine at @socket.
 *  @return 0: there is no such device */
uint64_t kv_device_guid(const char *socket, uint32_t port);

/* pd.c */
struct ibv_pd *kv_alloc_pd(struct ibv_context *ibv);
int kv_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *kv_alloc_td(struct ibv_context *ibv, struct ibv_td_init_attr *init);
int kv_dealloc_td(struct ibv_td *td);
struct ibv_pd *kv_alloc_parent_domain(
	struct ibv_context *ibv, struct ibv_parent_domain_init_attr *init);
/** Allocates zeroed, cache-aligned memory for an object in @pd, which may be NULL.
 *  @return NULL and errno on failure */
void *kv_object_new(struct kv_pd *pd, size_t size, enum kv_resource what, struct kv_memory *memory);
void kv_object_free(void *object, enum kv_resource what, struct kv_memory memory);
struct ibv_xrcd *kv_open_xrcd(struct ibv_context *ibv, struct ibv_xrcd_init_attr *init);
int kv_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_ah *kv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int kv_destroy_ah(struct ibv_ah *ah);
/** Converts an address vector.  @return 0; -EINVAL: @from is not for this device's port, or has no
 *  GRH */
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
/** Records that the program has asked for an event, or that it no longer waits for one: see
 *  poll.c. */
void kv_cq_set_armed(struct kv_cq *cq, bool armed);
/** Removes the completions of @qp that have not been polled. */
void kv_drop_completions(const struct kv_qp *qp);
/** Takes the queue's lock for a caller that is about to move or remove completions.  If the
 *  calling thread has an extended poll under way, it has the lock already; the function then saves
 *  the completion that the program is reading.  A queue that another thread lends can be taken as
 *  well.  The caller waits for no other queue until kv_cq_release().
 *  @return false: another thread has the lock */
bool kv_cq_hold(struct kv_cq *cq);
/** Releases what kv_cq_hold() took. */
void kv_cq_release(struct kv_cq *cq);
/** Lends the queues of which the calling thread has an extended poll under way, except @except.  A
 *  thread does so before it waits for kv_cq_hold() to succeed, and calls kv_polls_take_back()
 *  afterwards.
 *  @return the list of these queues; NULL: there are none */
struct kv_cq *kv_polls_lend(const struct kv_cq *except);
/** Waits until no thread holds any of the queues that kv_polls_lend() returned. */
void kv_polls_take_back(struct kv_cq *lent);
/** Sets the operations of extended polling that @wc_flags need. */
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

/** The access rights of a window.  Programs often ask for local write, which is not one of them. */
static inline unsigned int
kv_window_access(unsigned int access)
{
	return access & ~(unsigned int)IBV_ACCESS_LOCAL_WRITE;
}

/* wr.c */
/** Bytes that an ATOMIC WRITE carries in its request. */
#define KV_ATOMIC_WRITE_BYTES 8
/** Sets the ibv_wr_*() calls of a queue pair.
 *  @return 0; EOPNOTSUPP: @ops has a call that this type of queue pair does not support */
int kv_set_wr_ops(struct kv_qp *qp, uint64_t ops);

/* event.c: the descriptors that libibverbs opens, reads and closes by itself */

/** Replaces those calls in libibverbs; called once, when the provider is loaded. */
void kv_events_init(void);
/** Handles reads from the context's async_fd and commands on its cmd_fd from now on.
 *  @return 0, or a positive errno */
int kv_events_context(struct kv_context *ctx);
void kv_events_context_end(struct kv_context *ctx);
/** @return the libkarst channel behind a libibverbs channel; NULL: it is not a karst channel */
struct karst_comp_channel *kv_events_channel(const struct ibv_comp_channel *channel);

/** Waits until all delivered events of the object are acknowledged.  From then on no event is
 *  delivered until kv_events_decide().  Not a cancellation point.  @mutex, @cond, @comp (may be
 *  NULL) and @async are those with which libibverbs counts acknowledgements. */
void kv_events_close(struct kv_events *events, pthread_mutex_t *mutex, pthread_cond_t *cond,
	const uint32_t *comp, const uint32_t *async);
/** Ends what kv_events_close() began.  @destroyed: the object is destroyed, but its memory is not
 *  freed yet; false: the object continues to exist. */
void kv_events_decide(struct kv_events *events, bool destroyed);

/* got.c */
struct kv_got_entry {
	const char *name; /* of the function that the library imports */
	void *ours;
	void **theirs; /* receives the previous address; may be NULL */
};
/** Replaces functions that are imported by loaded libraries whose path contains @library.
 *  @return how many entries were replaced */
unsigned int kv_got_patch(const char *library, const struct kv_got_entry *entries, unsigned int n);

#endif /* KARST_VERBS_PROVIDER_H */
