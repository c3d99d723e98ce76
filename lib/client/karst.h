/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * libkarst: RDMA verbs over a karst engine, for programs that attach to karstd (karst_open())
 * and for programs that embed an engine (karst_open_conn(), karst_embed.h).
 *
 * Objects, calls and their meaning are those of libibverbs, under names that begin with karst_;
 * numbers (opcodes, states, flags, completion codes) are the same too.  What differs:
 *
 *   - calls return 0 or a negative errno (karst_poll_cq(): how many, or a negative errno), and
 *     hand objects out through a pointer; on failure nothing has changed, and karst_why() tells
 *     the calling thread the reason in words;
 *   - a completion is struct karst_cqe as the engine wrote it; its imm is a number in host order;
 *   - karst_alloc() gives memory that the engine reaches best, though any memory can be
 *     registered;
 *   - requests can be written straight into the ring (karst_send_room() and the following), and
 *     completions read straight from it (karst_cq_peek()).
 *
 * Threads: every call may be made from any thread at any time, as with verbs, but for the
 * zero-copy ones, which say what they need.  Posting and polling take no system call and no
 * lock but a thread's own uncontended spinlock on that queue.
 *
 * Life: an object must be destroyed before what it was made from (-EBUSY otherwise).
 *
 * When the engine dies: the asynchronous event KARST_EVENT_DEVICE_FATAL, completions in error for
 * all outstanding requests, -EIO from calls that need the engine; close and open again.
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

/** Where karst_open() looks when it is told nothing and $KARST_SOCKET is not set. */
#define KARST_DEFAULT_SOCKET "/run/karst/karst.sock"

/** Zero means the default. */
struct karst_open_attr {
	const char *program;         /* name in the engine's telemetry; default: the process's */
	uint64_t migrate_min;        /* private anonymous ranges of at least this many bytes are
				      * migrated; default 65536; UINT64_MAX: none is */
	uint32_t connect_timeout_ms; /* default 30000 */
};

/**
 * Attaches to the engine that listens at @socket (NULL: $KARST_SOCKET, else
 * KARST_DEFAULT_SOCKET).  @attr may be NULL.
 * -ENOENT, -ECONNREFUSED: no engine there; -EACCES: the socket's permissions; -EPROTO: another
 * version; -EUSERS: the engine's limit of clients is reached; -ETIMEDOUT: it does not answer.
 */
int karst_open(const char *socket, const struct karst_open_attr *attr, struct karst_context **ctx);

/** -EBUSY: objects are left.  Also after the engine's death. */
int karst_close(struct karst_context *ctx);

/**
 * Ends the attachment whatever is left in it: the engine destroys all of it, as when the program
 * ends.  Neither the context nor its objects may be used afterwards; their memory is not given
 * back.
 */
void karst_abandon(struct karst_context *ctx);

/** What went wrong in the calling thread's last failed call, in words; never NULL. */
const char *karst_why(void);

/** The library's version, as "0.1.0". */
const char *karst_version(void);

struct karst_context {
	int async_fd; /* readable: karst_get_async_event() has one */
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
	uint32_t max_mcast_qp_attach; /* to one group, of all programs */
	uint32_t max_total_mcast_qp_attach;
	uint32_t max_xrcd;
	uint32_t ece; /* 1: RC queue pairs have it, see karst_query_ece() */
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
	uint32_t gid_tbl_len; /* entries of the table, empty ones included */
	uint32_t mbps;        /* 0: not known */
	char name[64];        /* in karstd's configuration */
	char netdev[16];
};

/** As union ibv_gid; IPv4 as ::ffff:a.b.c.d. */
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
/** @port: from 1 on. */
int karst_query_port(struct karst_context *ctx, uint32_t port, struct karst_port_attr *attr);
/** -ENODATA: an empty entry. */
int karst_query_gid(struct karst_context *ctx, uint32_t port, uint32_t index, union karst_gid *gid);
/** All ports' valid entries, up to @max.  @return how many. */
int karst_query_gid_table(struct karst_context *ctx, struct karst_gid_entry *entries, size_t max);
/** The CPU that lcore @lcore of the engine is bound to.  Threads of the program should not run on
 *  it.  -ENODATA: the lcore is not bound to one; -EINVAL: there is no such lcore. */
int karst_query_lcore(struct karst_context *ctx, uint32_t lcore, uint32_t *cpu);
/**
 * For a thread that polls, when it has found that others use its CPU (it called sched_yield(), and
 * they ran): if that is so again and again, the thread is moved to the CPU of the engine's lcore
 * number @lcore, beside which it waits the shortest.  Its affinity stays what it was, so it
 * may be moved on by the system, and is not moved to a CPU that is not in it.  Nothing
 * happens if the lcore is bound to no CPU, or does not share it with others (idle = poll).
 * @return 1: moved; 0: not; -EINVAL: there is no such lcore.
 */
int karst_near_lcore(struct karst_context *ctx, uint32_t lcore);
/** The clock of the times of completions (KARST_CQ_TIMESTAMPS), now: ns of CLOCK_MONOTONIC. */
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
	/* how the engine reaches it: bytes by each method */
	uint64_t shared_bytes;
	uint64_t migrated_bytes;
	uint64_t copied_bytes;
};

/** @access: enum karst_access. */
int karst_reg_mr(
	struct karst_pd *pd, void *addr, size_t length, unsigned int access, struct karst_mr **mr);
/** The same, addressed from @iova on. */
int karst_reg_mr_iova(struct karst_pd *pd, void *addr, size_t length, uint64_t iova,
	unsigned int access, struct karst_mr **mr);
/** @what: enum karst_rereg; the key stays. */
int karst_rereg_mr(struct karst_mr *mr, unsigned int what, struct karst_pd *pd, void *addr,
	size_t length, unsigned int access);
int karst_dereg_mr(struct karst_mr *mr);

/** Memory that engines share: huge pages if there are any, page aligned, zeroed, for any
 *  context; NULL and errno.  Freed by karst_free(), after its regions are deregistered. */
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
	/* current; karst_bind_mw() changes it.  After a KARST_WR_BIND_MW the program does, before
	 * the next one. */
	uint32_t rkey;
	enum karst_mw_type type;
	uint32_t handle;
};

int karst_alloc_mw(struct karst_pd *pd, enum karst_mw_type type, struct karst_mw **mw);
int karst_dealloc_mw(struct karst_mw *mw);

/** The next key of a type 2 window, as ibv_inc_rkey(). */
static inline uint32_t
karst_inc_rkey(uint32_t rkey)
{
	return (rkey & 0xffffff00u) | ((rkey + 1) & 0xffu);
}

/* --- completion channels, queues, events --- */

struct karst_comp_channel {
	struct karst_context *context;
	int fd; /* readable: karst_get_cq_event() has one */
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
	uint32_t cqe; /* the least number of entries, for each lcore of the engine */
	void *cq_context;
	struct karst_comp_channel *channel; /* NULL: no events */
	uint32_t comp_vector; /* below num_comp_vectors; which one makes no difference, since each
			       * queue has a lane for each lcore and events come by the channel */
	unsigned int flags;   /* enum karst_cq_flags */
	/* The lock under which the program's threads call karst_cq_peek() and karst_cq_take();
	 * karst_resize_cq() takes it for as long as they must not.  try_lock() returns false if it
	 * is held, and does not wait: its holder may call libkarst.  Neither calls libkarst.
	 * NULL: there is none. */
	bool (*try_lock)(void *cq_context);
	void (*unlock)(void *cq_context);
};

int karst_create_cq_ex(
	struct karst_context *ctx, const struct karst_cq_init_attr *init, struct karst_cq **cq);
/** The same with vector 0 and no flags. */
int karst_create_cq(struct karst_context *ctx, uint32_t cqe, void *cq_context,
	struct karst_comp_channel *channel, struct karst_cq **cq);
/**
 * Changes the size to at least @cqe entries, while completions come in; cq->cqe says what it
 * became.  What has not been polled stays, in its order, and so do moderation, arming and channel.
 * karst_poll_cq() in other threads waits meanwhile; karst_cq_peek() and karst_cq_take() must not
 * be called, which try_lock() can see to, and what a peek has shown before is gone.
 * -EINVAL: out of range, or more unread completions than @cqe.
 */
int karst_resize_cq(struct karst_cq *cq, uint32_t cqe);
/** An event after @count completions or @period_us microseconds after the first of them. */
int karst_modify_cq(struct karst_cq *cq, uint16_t count, uint16_t period_us);
/** Whether queue pairs complete into @cq; in other threads that may change at once. */
bool karst_cq_in_use(const struct karst_cq *cq);
/** Waits until all events that were returned are acknowledged, and discards those that were not
 *  returned.  -EBUSY: QPs use it. */
int karst_destroy_cq(struct karst_cq *cq);
/**
 * Asks for one event at the next completion; @solicited_only: at the next receive whose sender
 * asked for it, or the next that failed.  Never weakens what was asked for before.  What had
 * completed before this call raises none: poll once more, and only then wait.  No system call; any
 * thread.
 */
int karst_req_notify_cq(struct karst_cq *cq, bool solicited_only);
/** If @cq is armed, its event is raised now.  For callers that arm without polling once more, and
 *  then see that something had completed before.  -EINVAL: it has no channel. */
int karst_raise_cq_event(struct karst_cq *cq);
/** Blocks unless the channel's fd is non-blocking (-EAGAIN). */
int karst_get_cq_event(struct karst_comp_channel *channel, struct karst_cq **cq, void **cq_context);
void karst_ack_cq_events(struct karst_cq *cq, unsigned int n);
/** Takes up to @n completions, without their times.  @return how many, or -EIO: the queue has
 *  overflown. */
int karst_poll_cq(struct karst_cq *cq, int n, struct karst_cqe *cqes);
/**
 * What karst_poll_cq() tells and karst_cq_peek() does not, for who uses the latter, now and then
 * when it shows nothing.  What has come meanwhile, or is shown only now, is left to the next peek.
 * @return how many completions were made up at *@cqes after the engine's death, at most @n; 0:
 * none, look again; -EIO: the queue has overflown, and all that came before was taken.
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
	uint32_t handle; /* what a work request names */
};

/** The engine resolves the path to the peer, which may take some seconds.  -EHOSTUNREACH */
int karst_create_ah(struct karst_pd *pd, const struct karst_ah_attr *attr, struct karst_ah **ah);
int karst_destroy_ah(struct karst_ah *ah);

/* --- XRC domains --- */

/*
 * Extended reliable connections: a requester (KARST_QPT_XRC_SEND) names in each of its requests the
 * shared receive queue (KARST_SRQT_XRC) that it is for, and the target that it is connected to
 * (KARST_QPT_XRC_RECV) puts it there.  Target and SRQ must be of one domain, but may be of several
 * programs.  Protection domain and completion queue of a message are its SRQ's, also for READs,
 * WRITEs and atomics; a completion's qpn is the target's number.
 *
 * A request that names an SRQ which does not exist, or one of another domain, ends the connection:
 * it completes with KARST_WC_REM_INV_REQ_ERR.
 */
struct karst_xrcd {
	struct karst_context *context;
	uint32_t handle;
};

/**
 * Opens the domain that device and inode of @fd name, for all programs that may read the file; it
 * ends with its last user.  @fd -1: a private domain, which nobody else can open.  @oflags:
 * O_CREAT, O_EXCL.  -ENOENT: there is none and O_CREAT is not set; -EEXIST: there is one and O_EXCL
 * is; -EINVAL: another flag; -EBADF, -EACCES: @fd is not open for reading; -ENOSPC: the context has
 * max_xrcd.
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
	/* KARST_SRQT_XRC: its domain, and where receives complete; otherwise ignored */
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
	uint32_t lcore; /* its QPs are there */
	/* XRC; else 0 and NULL */
	uint32_t srq_num; /* what requests name it by */
	struct karst_xrcd *xrcd;
	struct karst_cq *cq;
	/* private */
	struct karst_wq rq;
	uint32_t max_sge;
	void *priv;
};

int karst_create_srq(
	struct karst_pd *pd, const struct karst_srq_init_attr *init, struct karst_srq **srq);
/** Arms the limit event. */
int karst_modify_srq(struct karst_srq *srq, uint32_t srq_limit);
int karst_query_srq(struct karst_srq *srq, struct karst_srq_attr *attr);
/** Whether queue pairs use @srq; in other threads that may change at once. */
bool karst_srq_in_use(const struct karst_srq *srq);
/** Waits and discards as karst_destroy_cq() does.  -EBUSY: queue pairs use it. */
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
	/* XRC_SEND has no recv_cq, XRC_RECV has neither CQ: these members, and those of @cap for
	 * queues that the type does not have, are ignored */
	struct karst_cq *send_cq;
	struct karst_cq *recv_cq;
	struct karst_srq *srq;   /* NULL: own receive queue; not for XRC types */
	struct karst_xrcd *xrcd; /* XRC_RECV: its domain */
	struct karst_qp_cap cap; /* karst_create_qp() writes what it became */
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
	/* automatic path migration; queried: 0s if there is no alternate path */
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

/** @pd: XRC_RECV has none, NULL will do. */
int karst_create_qp(struct karst_pd *pd, struct karst_qp_init_attr *init, struct karst_qp **qp);
/** A further handle on an XRC_RECV queue pair, of whatever program: it can be modified and queried,
 *  has its events, and ends with its last handle.  -ENOENT: none of that number is in the domain.
 *  */
int karst_open_qp(struct karst_xrcd *xrcd, uint32_t qp_num, void *qp_context, struct karst_qp **qp);
/** @mask: enum karst_qp_attr_mask.  With KARST_QP_AV and KARST_QP_ALT_PATH the engine resolves the
 *  path to the peer, which may take some seconds: -EHOSTUNREACH.  Of path migration: rules G. */
int karst_modify_qp(struct karst_qp *qp, const struct karst_qp_attr *attr, unsigned int mask);

/** What a queue pair may send. */
struct karst_qp_rate_limit_attr {
	uint32_t rate_limit; /* kbit/s of frames, KARST_RATE_LIMIT_MIN..MAX; 0: no limit */
	uint32_t
		max_burst_sz; /* bytes at once after a pause, up to KARST_RATE_BURST_MAX; 0: what it
				* sends in some microseconds */
};
/** In RTR, RTS or SQD.  @qp sends no faster than @attr says, acknowledgements aside; RESET ends it.
 *  -EINVAL: out of range, or the state. */
int karst_modify_qp_rate_limit(struct karst_qp *qp, const struct karst_qp_rate_limit_attr *attr);
int karst_query_qp(
	struct karst_qp *qp, struct karst_qp_attr *attr, struct karst_qp_init_attr *init);

/** Enhanced connection establishment: a vendor, 24 bits, and what its ends can.  All 0: none. */
struct karst_ece {
	uint32_t vendor_id;
	uint32_t options; /* the vendor's matter: programs carry them, and look at none */
};
/**
 * What RC queue pair @qp may offer to its peer by a connect request; after karst_set_ece() what
 * holds, options of 0: nothing.  -EOPNOTSUPP: another type, or the engine's configuration has it
 * off (X1).
 */
int karst_query_ece(struct karst_qp *qp, struct karst_ece *ece);
/**
 * Before @qp goes to RTR: *@ece is what the peer has offered, or answered to what was offered.
 * Afterwards it is what holds, on the side that was asked also the answer for the peer; all 0: the
 * two have nothing in common.  It ends with RESET.
 * -EINVAL: another state, or another vendor's; -EOPNOTSUPP as above.
 */
int karst_set_ece(struct karst_qp *qp, struct karst_ece *ece);
int karst_destroy_qp(struct karst_qp *qp);

/**
 * @qp receives what is sent to the multicast group @gid (IPv4-mapped 224/4, or ff00::/8) by way of
 * its port, also what queue pairs of this engine send there, @qp included.  Attaching it a
 * second time does nothing.  Destroying @qp detaches it.
 * -EINVAL: not UD, or not a group; -ENOSPC: max_mcast_grp and the other limits.
 */
int karst_attach_mcast(struct karst_qp *qp, const union karst_gid *gid);
/** -EINVAL also: it is not attached. */
int karst_detach_mcast(struct karst_qp *qp, const union karst_gid *gid);

/* --- posting: lists --- */

struct karst_send_wr {
	uint64_t wr_id;
	const struct karst_send_wr *next;
	const struct karst_sge *sg_list; /* with KARST_SEND_INLINE: gathered at once */
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
		/* when it has completed, what was written before it is in place; it has no SGEs.
		 * Engines refuse KARST_FLUSH_PERSISTENT, other peers may have it */
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
			uint32_t length;    /* bytes; KARST_FLUSH_MR: no matter, nor remote_addr */
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
			uint32_t rkey; /* type 2: the new one */
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

/** Posts a list.  On failure *@bad (may be NULL) is the first that was not posted; those before
 *  it were.  -ENOMEM: the queue is full; -EINVAL: too many SGEs or inline bytes, unknown opcode or
 *  flag, or a state in which nothing can be posted. */
int karst_post_send(
	struct karst_qp *qp, const struct karst_send_wr *wr, const struct karst_send_wr **bad);
int karst_post_recv(
	struct karst_qp *qp, const struct karst_recv_wr *wr, const struct karst_recv_wr **bad);
int karst_post_srq_recv(
	struct karst_srq *srq, const struct karst_recv_wr *wr, const struct karst_recv_wr **bad);

/** Type 1 windows: posts a bind and sets mw->rkey, which is good once the bind has completed.
 *  If it fails, the window keeps its old key, which the program stores in mw->rkey again before
 *  the next bind. */
struct karst_mw_bind_info {
	const struct karst_mr *mr;
	uint64_t addr;
	uint64_t length;
	unsigned int access;
};
int karst_bind_mw(struct karst_qp *qp, struct karst_mw *mw, uint64_t wr_id, unsigned int send_flags,
	const struct karst_mw_bind_info *bind);

/* --- posting and polling without copies --- */

/* For one thread at a time on each queue, and not together with the lists above. */

/** Free slots of the send queue, at least @want if there are so many. */
static inline uint32_t
karst_send_room(struct karst_qp *qp, uint32_t want)
{
	return karst_wq_free(&qp->sq, want);
}

/** The @i-th of them, to be filled in place as karst_ring.h says. */
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

/** Rings the engine's bell for @qp, waking its lcore if that sleeps. */
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

/** Completions in place: how many stand at *@cqes; none taken yet.  Each call begins with another
 *  lcore's, so that none waits for ever.  0 also after the engine's death, of which
 *  karst_poll_cq() and karst_cq_look() tell. */
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
 * The times at which the engine published what the last karst_cq_peek() has shown, index by index,
 * until they are taken; NULL without KARST_CQ_TIMESTAMPS.  On the clock of karst_query_clock().
 * Completions that karst_poll_cq() or karst_cq_look() makes after the engine's death have none.
 */
static inline const uint64_t *
karst_cq_stamps(const struct karst_cq *cq)
{
	return karst_cq_lane_stamps(&cq->lane[cq->next]);
}

/** Takes the first @n of those that the last karst_cq_peek() has shown. */
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
