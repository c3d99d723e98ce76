/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * libkarst: RDMA verbs over a karst engine, for programs that attach to karstd (karst_open()) and
 * for programs that embed an engine (karst_open_conn(), karst_embed.h).
 *
 * Objects, calls and their meaning are those of libibverbs, under names that begin with karst_.
 * Numbers (opcodes, states, flags, completion codes) are the same too.  The differences are:
 *
 *   - Calls return 0 or a negative errno (karst_poll_cq(): the number of completions or a negative
 *     errno) and return objects through a pointer. A call that fails has changed nothing, and
 *     karst_why() returns the reason to the calling thread in words.
 *   - A completion is a struct karst_cqe as the engine wrote it. Its imm is a number in host order.
 *   - karst_alloc() returns memory that the engine reaches by the fastest method, but any memory
 *     can be registered.
 *   - A program can write requests straight into the ring (karst_send_room() and the functions that
 *     follow it) and read completions straight from it (karst_cq_peek()).
 *
 * Threads: any thread may make any call at any time, as with verbs, except the zero-copy calls,
 * whose comments name their conditions.  Posting and polling make no system call and take no lock
 * except an uncontended spinlock on the queue.
 *
 * Lifetime: an object must be destroyed before the object that it was created from (-EBUSY
 * otherwise).
 *
 * When the engine dies, the program gets the asynchronous event KARST_EVENT_DEVICE_FATAL and
 * completions in error for all outstanding requests, and calls that need the engine return -EIO.
 * The program has to close the context and open another one.
 *
 * After fork() the child may not use a context that it inherited (-EPERM); it may open its own.
 */
#ifndef KARST_KARST_H
#define KARST_KARST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "karst_ring.h"
#include "karst_verbs.h"

#ifdef __cplusplus
extern "C" {
#endif

struct karst_context;
struct karst_client; /* private */

/* --- opening --- */

/** The socket of karst_open() if its argument is NULL and $KARST_SOCKET is not set. */
#define KARST_DEFAULT_SOCKET "/run/karst/karst.sock"

/** Members that are zero select the default. */
struct karst_open_attr {
	const char *program;         /* name in the engine's telemetry; default: the process's */
	uint64_t migrate_min;        /* private anonymous ranges of at least this many bytes are
				      * migrated; default 65536; UINT64_MAX: none is migrated */
	uint32_t connect_timeout_ms; /* default 30000 */
	uint32_t event_port;         /* the only port whose events the context gets, from 1;
				      * default: it gets those of all ports */
};

/**
 * Attaches to the engine that listens at @socket (NULL: $KARST_SOCKET, or KARST_DEFAULT_SOCKET if
 * that is not set).  @attr may be NULL.
 * -ENOENT, -ECONNREFUSED: no engine listens there; -EACCES: the permissions of the socket; -EPROTO:
 * the engine has another version; -EUSERS: the engine has reached its limit of clients; -ETIMEDOUT:
 * the engine does not answer.
 */
int karst_open(const char *socket, const struct karst_open_attr *attr, struct karst_context **ctx);

/** -EBUSY: objects of the context still exist, also after the engine's death. */
int karst_close(struct karst_context *ctx);

/**
 * Ends the attachment whatever objects it still has.  The engine destroys all of them, as when the
 * program ends.  Neither the context nor its objects may be used afterwards; their memory is not
 * freed.
 */
void karst_abandon(struct karst_context *ctx);

/** Returns the reason for the calling thread's last failed call, in words; never NULL. */
const char *karst_why(void);

/** Returns the library's version, such as "0.1.0". */
const char *karst_version(void);

struct karst_context {
	int async_fd; /* readable when karst_get_async_event() has an event */
	uint32_t nports;
	uint32_t nlcores; /* of the engine */
	uint32_t client;  /* number of this attachment in the engine's telemetry */
	struct karst_client *priv;
};

/* --- the device and its ports --- */

struct karst_device_attr {
	char engine[64];
	char version[32]; /* of the engine */
	uint64_t node_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t nports;
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t max_sge;
	uint32_t max_inline_data;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_mr;
	uint32_t max_mw;
	uint32_t max_pd;
	uint32_t max_ah;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_srq_sge;
	uint32_t max_qp_rd_atom;
	uint32_t max_channels;
	uint32_t num_comp_vectors;
	/* multicast: attachments of queue pairs to groups */
	uint32_t max_mcast_grp;
	uint32_t max_mcast_qp_attach; /* to one group, by all programs together */
	uint32_t max_total_mcast_qp_attach;
	uint32_t max_xrcd;
	uint32_t ece; /* 1: RC queue pairs support ECE, see karst_query_ece() */
};

/** The values are those of enum ibv_port_state. */
enum karst_port_state {
	KARST_PORT_DOWN = 1,
	KARST_PORT_ACTIVE = 4,
};

/** The values are those of enum ibv_mtu. */
enum karst_mtu {
	KARST_MTU_256 = 1,
	KARST_MTU_512 = 2,
	KARST_MTU_1024 = 3,
	KARST_MTU_2048 = 4,
	KARST_MTU_4096 = 5,
};

struct karst_port_attr {
	enum karst_port_state state;
	enum karst_mtu max_mtu;
	enum karst_mtu active_mtu;
	uint16_t ip_mtu;
	uint16_t vlan; /* 0: none */
	uint8_t mac[6];
	uint32_t gid_tbl_len; /* entries of the table, including empty ones */
	uint32_t mbps;        /* 0: unknown */
	char name[64];        /* the port's name in karstd's configuration */
	char netdev[16];
};

/** As union ibv_gid; an IPv4 address is ::ffff:a.b.c.d. */
union karst_gid {
	uint8_t raw[16];
	struct {
		uint64_t subnet_prefix; /* big-endian */
		uint64_t interface_id;
	} global;
};

struct karst_gid_entry {
	union karst_gid gid;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type; /* 2: RoCEv2 */
	uint32_t ndev_ifindex;
	uint16_t vlan;
};

int karst_query_device(struct karst_context *ctx, struct karst_device_attr *attr);
/** @port starts at 1. */
int karst_query_port(struct karst_context *ctx, uint32_t port, struct karst_port_attr *attr);
/** -ENODATA: the entry is empty. */
int karst_query_gid(struct karst_context *ctx, uint32_t port, uint32_t index, union karst_gid *gid);
/** Stores the valid entries of all ports, at most @max.  @return how many. */
int karst_query_gid_table(struct karst_context *ctx, struct karst_gid_entry *entries, size_t max);
/**
 * Stores the CPU that lcore @lcore of the engine is bound to.  Threads of the program should not
 * run on that CPU.  -ENODATA: the lcore is not bound to a CPU; -EINVAL: there is no such lcore.
 */
int karst_query_lcore(struct karst_context *ctx, uint32_t lcore, uint32_t *cpu);
/**
 * For a polling thread that has found that other threads use its CPU: it called sched_yield() and
 * other threads ran.  If the thread reports that often enough, the function moves the thread to the
 * CPU of the engine's lcore number @lcore, where its waits are shortest.  The thread's affinity
 * stays as it was, so the scheduler may move the thread again, and the function does not move the
 * thread to a CPU outside that affinity.  The function does nothing if the lcore is not bound to a
 * CPU, or if the lcore does not share its CPU (idle = poll).
 * @return 1: moved; 0: not moved; -EINVAL: there is no such lcore.
 */
int karst_near_lcore(struct karst_context *ctx, uint32_t lcore);
/** Reads the clock of the completion times (KARST_CQ_TIMESTAMPS): ns of CLOCK_MONOTONIC. */
int karst_query_clock(struct karst_context *ctx, uint64_t *ns);

/* --- protection domains, memory --- */

struct karst_pd {
	struct karst_context *context;
	uint32_t handle;
};

int karst_alloc_pd(struct karst_context *ctx, struct karst_pd **pd);
int karst_dealloc_pd(struct karst_pd *pd);

struct karst_mr {
	struct karst_context *context;
	struct karst_pd *pd;
	void *addr;
	size_t length;
	uint64_t iova;
	uint32_t lkey;
	uint32_t rkey;
	/* how the engine reaches the region: bytes by each access method */
	uint64_t shared_bytes;
	uint64_t migrated_bytes;
	uint64_t copied_bytes;
};

/** @access: enum karst_access. */
int karst_reg_mr(
	struct karst_pd *pd, void *addr, size_t length, unsigned int access, struct karst_mr **mr);
/** The same, but the region's addresses begin at @iova. */
int karst_reg_mr_iova(struct karst_pd *pd, void *addr, size_t length, uint64_t iova,
	unsigned int access, struct karst_mr **mr);
/** @what: enum karst_rereg.  The key does not change. */
int karst_rereg_mr(struct karst_mr *mr, unsigned int what, struct karst_pd *pd, void *addr,
	size_t length, unsigned int access);
int karst_dereg_mr(struct karst_mr *mr);

/**
 * Allocates memory that can be shared with engines: from huge pages if there are any, page aligned,
 * zeroed, for any context.  Returns NULL and sets errno on failure.  karst_free() frees it, after
 * its regions are deregistered.
 */
void *karst_alloc(size_t size);
void karst_free(void *p);

/** The values are those of enum ibv_mw_type. */
enum karst_mw_type {
	KARST_MW_TYPE_1 = 1,
	KARST_MW_TYPE_2 = 2,
};

struct karst_mw {
	struct karst_context *context;
	struct karst_pd *pd;
	/* current key; karst_bind_mw() changes it.  After a KARST_WR_BIND_MW the program has to
	 * change it before it posts the next one. */
	uint32_t rkey;
	enum karst_mw_type type;
	uint32_t handle;
};

int karst_alloc_mw(struct karst_pd *pd, enum karst_mw_type type, struct karst_mw **mw);
int karst_dealloc_mw(struct karst_mw *mw);

/** Returns the next key of a type 2 window, as ibv_inc_rkey() does. */
static inline uint32_t
karst_inc_rkey(uint32_t rkey)
{
	return (rkey & 0xffffff00u) | ((rkey + 1) & 0xffu);
}

/* --- completion channels, queues, events --- */

struct karst_comp_channel {
	struct karst_context *context;
	int fd; /* readable when karst_get_cq_event() has an event */
	uint32_t handle;
	uint32_t refs;
};

int karst_create_comp_channel(struct karst_context *ctx, struct karst_comp_channel **channel);
/** -EBUSY: queues use it. */
int karst_destroy_comp_channel(struct karst_comp_channel *channel);

struct karst_cq {
	struct karst_context *context;
	struct karst_comp_channel *channel;
	void *cq_context;
	uint32_t cqe; /* entries of each lane */
	uint32_t handle;
	/* private */
	struct karst_cq_shared *sh;
	uint32_t nlanes;
	uint32_t next;
	struct karst_cq_lane *lane;
	void *priv;
};

struct karst_cq_init_attr {
	uint32_t cqe; /* minimum number of entries for each lcore of the engine */
	void *cq_context;
	struct karst_comp_channel *channel; /* NULL: no events */
	uint32_t comp_vector; /* below num_comp_vectors; all vectors are equal, because each
			       * queue has a lane for each lcore and events come through the
			       * channel */
	unsigned int flags;   /* enum karst_cq_flags */
	/* The lock under which the program's threads call karst_cq_peek() and karst_cq_take().
	 * karst_resize_cq() holds it while those calls are not allowed. try_lock() returns false if
	 * the lock is held and does not wait, because the lock's holder may call libkarst.  Neither
	 * function calls libkarst.  NULL: there is no such lock. */
	bool (*try_lock)(void *cq_context);
	void (*unlock)(void *cq_context);
};

int karst_create_cq_ex(
	struct karst_context *ctx, const struct karst_cq_init_attr *init, struct karst_cq **cq);
/** The same as karst_create_cq_ex() with vector 0 and no flags. */
int karst_create_cq(struct karst_context *ctx, uint32_t cqe, void *cq_context,
	struct karst_comp_channel *channel, struct karst_cq **cq);
/**
 * Changes the size to at least @cqe entries while completions come in; cq->cqe is set to the new
 * size.  Completions that have not been polled stay, in their order; so do moderation, arming and
 * channel.  karst_poll_cq() in other threads waits during the call.  karst_cq_peek() and
 * karst_cq_take() must not be called during it (try_lock() can ensure that), and completions that
 * an earlier peek returned are no longer valid.
 * -EINVAL: out of range, or more unread completions than @cqe.
 */
int karst_resize_cq(struct karst_cq *cq, uint32_t cqe);
/**
 * Moderation: raises an event after @count completions, or @period_us microseconds after the first
 * of them.
 */
int karst_modify_cq(struct karst_cq *cq, uint16_t count, uint16_t period_us);
/** Do queue pairs complete into @cq?  Other threads may change that at any time. */
bool karst_cq_in_use(const struct karst_cq *cq);
/**
 * Waits until all events that were returned are acknowledged, and discards those that were not
 * returned.  -EBUSY: queue pairs use the queue.
 */
int karst_destroy_cq(struct karst_cq *cq);
/**
 * Asks for one event at the next completion.  With @solicited_only the event comes at the next
 * receive whose sender requested an event, or at the next completion in error.  The call never
 * weakens an earlier request.  A completion that arrived before this call raises no event, so the
 * program has to poll once more before it waits.  Makes no system call; any thread.
 */
int karst_req_notify_cq(struct karst_cq *cq, bool solicited_only);
/**
 * If @cq is armed, raises its event now.  For callers that arm the queue without polling once more,
 * and then find a completion that arrived earlier.  -EINVAL: the queue has no channel.
 */
int karst_raise_cq_event(struct karst_cq *cq);
/** Blocks unless the channel's fd is non-blocking (-EAGAIN). */
int karst_get_cq_event(struct karst_comp_channel *channel, struct karst_cq **cq, void **cq_context);
void karst_ack_cq_events(struct karst_cq *cq, unsigned int n);
/**
 * Takes up to @n completions, without their times.  @return how many, or -EIO: the queue has
 * overflown.
 */
int karst_poll_cq(struct karst_cq *cq, int n, struct karst_cqe *cqes);
/**
 * Reports what karst_poll_cq() reports and karst_cq_peek() does not.  A program that uses
 * karst_cq_peek() calls it from time to time when the peek returns nothing.  It leaves completions
 * that have arrived, or that become visible only now, to the next peek.
 * @return how many completions were generated at *@cqes after the engine's death, at most @n; 0:
 * none, peek again; -EIO: the queue has overflown, and all completions before that were taken.
 */
int karst_cq_look(struct karst_cq *cq, int n, struct karst_cqe *cqes);

/** Which member of an event's element is set. */
enum karst_async_object {
	KARST_ASYNC_OBJECT_NONE,
	KARST_ASYNC_OBJECT_CQ,
	KARST_ASYNC_OBJECT_QP,
	KARST_ASYNC_OBJECT_SRQ,
	KARST_ASYNC_OBJECT_PORT,
};

struct karst_async_event {
	enum karst_async_object object;
	enum karst_async_event_code event;
	union {
		struct karst_cq *cq;
		struct karst_qp *qp;
		struct karst_srq *srq;
		uint32_t port_num;
	} element;
};

/** Blocks unless async_fd is non-blocking (-EAGAIN). */
int karst_get_async_event(struct karst_context *ctx, struct karst_async_event *event);
void karst_ack_async_event(const struct karst_async_event *event);

/* --- address handles --- */

struct karst_ah_attr {
	union karst_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t sl;
	uint8_t port_num; /* from 1 */
};

struct karst_ah {
	struct karst_context *context;
	struct karst_pd *pd;
	uint32_t handle; /* work requests refer to it by this number */
};

/** The engine resolves the path to the peer, which may take some seconds, in which calls of other
 *  threads do not wait; -EHOSTUNREACH. */
int karst_create_ah(struct karst_pd *pd, const struct karst_ah_attr *attr, struct karst_ah **ah);
int karst_destroy_ah(struct karst_ah *ah);

/* --- XRC domains --- */

/*
 * Extended reliable connections: each request of a requester (KARST_QPT_XRC_SEND) names the shared
 * receive queue (KARST_SRQT_XRC) that it is for.  The target that the requester is connected to
 * (KARST_QPT_XRC_RECV) delivers the request to that queue.  The target and the SRQ must belong to
 * one domain, but may belong to different programs.  The protection domain and the completion queue
 * of a message are those of its SRQ, also for READs, WRITEs and atomics; the qpn of a completion is
 * the target's number.
 *
 * A request that names an SRQ which does not exist, or an SRQ of another domain, ends the
 * connection: it completes with KARST_WC_REM_INV_REQ_ERR.
 */
struct karst_xrcd {
	struct karst_context *context;
	uint32_t handle;
};

/**
 * Opens the domain that is identified by the device and inode of @fd.  All programs that may read
 * the file share it; the domain ends with its last user.  @fd -1: a private domain, which no other
 * program can open.  @oflags: O_CREAT, O_EXCL.
 * -ENOENT: the domain does not exist and O_CREAT is not set; -EEXIST: the domain exists and O_EXCL
 * is set; -EINVAL: another flag; -EBADF, -EACCES: @fd is not open for reading; -ENOSPC: the context
 * has max_xrcd domains.
 */
int karst_open_xrcd(struct karst_context *ctx, int fd, int oflags, struct karst_xrcd **xrcd);
/** -EBUSY: SRQs or QPs of this context are in it. */
int karst_close_xrcd(struct karst_xrcd *xrcd);

/* --- shared receive queues --- */

struct karst_srq_init_attr {
	void *srq_context;
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t srq_limit;
	enum karst_srq_type srq_type;
	/* KARST_SRQT_XRC: its domain, and the CQ that its receives complete into; otherwise
	 * ignored */
	struct karst_xrcd *xrcd;
	struct karst_cq *cq;
};

struct karst_srq_attr {
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t srq_limit;
};

struct karst_srq {
	struct karst_context *context;
	struct karst_pd *pd;
	void *srq_context;
	uint32_t handle;
	uint32_t lcore; /* the lcore of its queue pairs */
	/* XRC; else 0 and NULL */
	uint32_t srq_num; /* the number that requests name it by */
	struct karst_xrcd *xrcd;
	struct karst_cq *cq;
	/* private */
	struct karst_wq rq;
	uint32_t max_sge;
	void *priv;
};

int karst_create_srq(
	struct karst_pd *pd, const struct karst_srq_init_attr *init, struct karst_srq **srq);
/** Sets the limit and arms the limit event. */
int karst_modify_srq(struct karst_srq *srq, uint32_t srq_limit);
int karst_query_srq(struct karst_srq *srq, struct karst_srq_attr *attr);
/** Do queue pairs use @srq?  Other threads may change that at any time. */
bool karst_srq_in_use(const struct karst_srq *srq);
/** Waits for and discards events as karst_destroy_cq() does.  -EBUSY: queue pairs use the queue. */
int karst_destroy_srq(struct karst_srq *srq);

/* --- queue pairs --- */

struct karst_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct karst_qp_init_attr {
	void *qp_context;
	/* XRC_SEND has no recv_cq, XRC_RECV has neither CQ.  These members, and the members of @cap
	 * for queues that the type does not have, are ignored. */
	struct karst_cq *send_cq;
	struct karst_cq *recv_cq;
	struct karst_srq *srq;   /* NULL: own receive queue; not for XRC types */
	struct karst_xrcd *xrcd; /* XRC_RECV: its domain */
	struct karst_qp_cap cap; /* karst_create_qp() stores the actual sizes */
	enum karst_qp_type qp_type;
	bool sq_sig_all;
	bool credits;  /* advertise end-to-end credits */
	bool on_lcore; /* true: on engine lcore number @lcore */
	uint32_t lcore;
};

struct karst_qp_attr {
	enum karst_qp_state qp_state;
	enum karst_qp_state cur_qp_state;
	enum karst_mtu path_mtu;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct karst_qp_cap cap;
	struct karst_ah_attr ah_attr;
	uint16_t pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	/* automatic path migration; when queried: all 0 if there is no alternate path */
	uint8_t alt_port_num; /* any port that the queue pair's lcore serves */
	uint8_t alt_timeout;  /* instead of @timeout after migration */
	uint16_t alt_pkey_index;
	struct karst_ah_attr alt_ah_attr; /* its port_num is alt_port_num */
	enum karst_mig_state path_mig_state;
};

struct karst_qp {
	struct karst_context *context;
	struct karst_pd *pd; /* XRC_RECV: NULL */
	struct karst_cq *send_cq;
	struct karst_cq *recv_cq;
	struct karst_srq *srq;
	struct karst_xrcd *xrcd; /* XRC_RECV */
	void *qp_context;
	uint32_t handle;
	uint32_t qp_num;
	enum karst_qp_type qp_type;
	uint32_t lcore;
	/* private: what posting needs */
	struct karst_wq sq;
	struct karst_wq rq;
	struct karst_bell_shared *bell;
	uint32_t bell_mask;
	int wake_fd;
	struct karst_qp_cap cap;
	void *priv;
};

/** @pd may be NULL for XRC_RECV, which has no protection domain. */
int karst_create_qp(struct karst_pd *pd, struct karst_qp_init_attr *init, struct karst_qp **qp);
/**
 * Opens another handle on an XRC_RECV queue pair of any program.  The handle can modify and query
 * the queue pair and gets its events.  The queue pair ends with its last handle.  -ENOENT: the
 * domain has no queue pair of that number.
 */
int karst_open_qp(struct karst_xrcd *xrcd, uint32_t qp_num, void *qp_context, struct karst_qp **qp);
/**
 * @mask: enum karst_qp_attr_mask.  With KARST_QP_AV and KARST_QP_ALT_PATH the engine resolves the
 * path to the peer, which may take some seconds, in which calls of other threads do not wait;
 * -EHOSTUNREACH.  For path migration see rules G.
 */
int karst_modify_qp(struct karst_qp *qp, const struct karst_qp_attr *attr, unsigned int mask);

/** Limits of what a queue pair may send. */
struct karst_qp_rate_limit_attr {
	uint32_t rate_limit; /* kbit/s of frames, KARST_RATE_LIMIT_MIN..MAX; 0: no limit */
	uint32_t
		max_burst_sz; /* bytes at once after a pause, up to KARST_RATE_BURST_MAX; 0: what it
				* sends in some microseconds */
};
/**
 * In RTR, RTS or SQD.  @qp sends no faster than @attr allows, except acknowledgements; RESET ends
 * the limit.  -EINVAL: out of range, or the state does not allow it.
 */
int karst_modify_qp_rate_limit(struct karst_qp *qp, const struct karst_qp_rate_limit_attr *attr);
int karst_query_qp(
	struct karst_qp *qp, struct karst_qp_attr *attr, struct karst_qp_init_attr *init);

/** Enhanced connection establishment: a vendor (24 bits) and options.  All 0: none. */
struct karst_ece {
	uint32_t vendor_id;
	uint32_t options; /* defined by the vendor; programs pass them on and do not interpret
			   * them */
};
/**
 * Stores what RC queue pair @qp may offer to its peer in a connect request.  After karst_set_ece(),
 * stores what is in effect; options of 0 mean that nothing is.  -EOPNOTSUPP: another type, or the
 * engine's configuration disables ECE (X1).
 */
int karst_query_ece(struct karst_qp *qp, struct karst_ece *ece);
/**
 * Sets the ECE of @qp before it goes to RTR: *@ece is what the peer has offered, or the peer's
 * answer to an offer.  The call stores in *@ece what is in effect; on the passive side that is also
 * the answer for the peer.  All 0: the two sides have nothing in common.  RESET ends it.
 * -EINVAL: another state, or another vendor's ECE; -EOPNOTSUPP as for karst_query_ece().
 */
int karst_set_ece(struct karst_qp *qp, struct karst_ece *ece);
int karst_destroy_qp(struct karst_qp *qp);

/**
 * @qp receives what is sent to the multicast group @gid (IPv4-mapped 224/4, or ff00::/8) through
 * its port.  That includes what queue pairs of this engine send to the group, also @qp itself.
 * Attaching @qp a second time does nothing.  Destroying @qp detaches it.
 * -EINVAL: @qp is not UD, or @gid is not a group; -ENOSPC: max_mcast_grp and the other limits.
 */
int karst_attach_mcast(struct karst_qp *qp, const union karst_gid *gid);
/** -EINVAL also if @qp is not attached. */
int karst_detach_mcast(struct karst_qp *qp, const union karst_gid *gid);

/* --- posting: lists --- */

struct karst_send_wr {
	uint64_t wr_id;
	const struct karst_send_wr *next;
	const struct karst_sge *sg_list; /* with KARST_SEND_INLINE: gathered during the call */
	uint32_t num_sge;
	enum karst_wr_opcode opcode;
	unsigned int send_flags; /* enum karst_send_flags */
	uint32_t imm_data;       /* host order */
	uint32_t invalidate_rkey;
	uint32_t remote_srqn; /* XRC_SEND: srq_num of the peer's SRQ, with every operation */
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		/* When it has completed, data that was written before it is in place.  It has no
		 * SGEs.  Engines refuse KARST_FLUSH_PERSISTENT, but other peers may support it. */
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
			uint32_t length;    /* bytes; KARST_FLUSH_MR ignores this and remote_addr */
			unsigned int type;  /* enum karst_flush_type, not 0 */
			unsigned int level; /* enum karst_flush_level */
		} flush;
		struct {
			const struct karst_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
		struct {
			const struct karst_mw *mw;
			const struct karst_mr *mr;
			uint64_t addr;
			uint64_t length;
			uint32_t rkey; /* type 2: the new key */
			unsigned int access;
		} bind_mw;
	};
};

struct karst_recv_wr {
	uint64_t wr_id;
	const struct karst_recv_wr *next;
	const struct karst_sge *sg_list;
	uint32_t num_sge;
};

/**
 * Posts a list.  On failure *@bad (which may be NULL) is the first request that was not posted;
 * those before it were posted.  -ENOMEM: the queue is full; -EINVAL: too many SGEs or inline bytes,
 * an unknown opcode or flag, or a state in which nothing can be posted.
 */
int karst_post_send(
	struct karst_qp *qp, const struct karst_send_wr *wr, const struct karst_send_wr **bad);
int karst_post_recv(
	struct karst_qp *qp, const struct karst_recv_wr *wr, const struct karst_recv_wr **bad);
int karst_post_srq_recv(
	struct karst_srq *srq, const struct karst_recv_wr *wr, const struct karst_recv_wr **bad);

/**
 * Type 1 windows: posts a bind and sets mw->rkey, which is valid once the bind has completed.  If
 * the bind fails, the window keeps its old key; the program has to store that key in mw->rkey again
 * before the next bind.
 */
struct karst_mw_bind_info {
	const struct karst_mr *mr;
	uint64_t addr;
	uint64_t length;
	unsigned int access;
};
int karst_bind_mw(struct karst_qp *qp, struct karst_mw *mw, uint64_t wr_id, unsigned int send_flags,
	const struct karst_mw_bind_info *bind);

/* --- posting and polling without copies --- */

/* Only one thread at a time may use these on a queue, and no thread may use the calls for lists on
 * that queue at the same time. */

/**
 * Returns the number of free slots of the send queue, which is at least @want if that many are
 * free.
 */
static inline uint32_t
karst_send_room(struct karst_qp *qp, uint32_t want)
{
	return karst_wq_free(&qp->sq, want);
}

/** Returns the @i-th free slot, which the caller fills in place as karst_ring.h describes. */
static inline struct karst_send_wqe *
karst_send_slot(const struct karst_qp *qp, uint32_t i)
{
	return (struct karst_send_wqe *)karst_wq_slot(&qp->sq, i);
}

static inline uint32_t
karst_recv_room(struct karst_qp *qp, uint32_t want)
{
	return karst_wq_free(&qp->rq, want);
}

static inline struct karst_recv_wqe *
karst_recv_slot(const struct karst_qp *qp, uint32_t i)
{
	return (struct karst_recv_wqe *)karst_wq_slot(&qp->rq, i);
}

/** Rings the engine's doorbell for @qp and wakes its lcore if the lcore sleeps. */
int karst_ring_bell(struct karst_qp *qp);

/** Hands the first @n filled slots to the engine. */
static inline int
karst_send_publish(struct karst_qp *qp, uint32_t n)
{
	return karst_wq_publish(&qp->sq, n) ? karst_ring_bell(qp) : 0;
}

static inline int
karst_recv_publish(struct karst_qp *qp, uint32_t n)
{
	return karst_unlikely(karst_wq_publish(&qp->rq, n)) ? karst_ring_bell(qp) : 0;
}

/**
 * Stores the address of completions in place in *@cqes and returns how many there are; it takes
 * none.  Each call begins with the lane of another lcore, so that no lane waits forever.  Returns 0
 * after the engine's death too, which karst_poll_cq() and karst_cq_look() report.
 */
static inline uint32_t
karst_cq_peek(struct karst_cq *cq, const struct karst_cqe **cqes)
{
	uint32_t i, n;

	for (i = 0; i < cq->nlanes; i++) {
		cq->next = cq->next + 1 < cq->nlanes ? cq->next + 1 : 0;
		n = karst_cq_lane_peek(&cq->lane[cq->next], cqes);
		if (n > 0)
			return n;
	}
	return 0;
}

/**
 * Returns the times at which the engine published the completions that the last karst_cq_peek()
 * returned, with the same indices.  They are valid until the completions are taken.  The clock is
 * that of karst_query_clock().  NULL without KARST_CQ_TIMESTAMPS.  Completions that karst_poll_cq()
 * or karst_cq_look() generates after the engine's death have no times.
 */
static inline const uint64_t *
karst_cq_stamps(const struct karst_cq *cq)
{
	return karst_cq_lane_stamps(&cq->lane[cq->next]);
}

/** Takes the first @n completions that the last karst_cq_peek() returned. */
static inline void
karst_cq_take(struct karst_cq *cq, uint32_t n)
{
	karst_cq_lane_take(&cq->lane[cq->next], n);
}

/* --- names of numbers, for messages --- */

const char *karst_wc_status_str(enum karst_wc_status status);
const char *karst_wr_opcode_str(enum karst_wr_opcode opcode);
const char *karst_event_str(enum karst_async_event_code event);
const char *karst_qp_state_str(enum karst_qp_state state);

#ifdef __cplusplus
}
#endif

#endif /* KARST_KARST_H */
