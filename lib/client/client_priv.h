/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Declarations that the files of libkarst share.
 *
 * Three kinds of locks, taken in this order:
 *
 *   ctl      a mutex of the context: it serializes control requests and protects the mapped
 *            chunks.  It may be held for seconds while the engine resolves the path to a peer; a
 *            thread that holds another of these locks must not wait for it.
 *   reg      a mutex of the context: it protects the table of objects that events name, counts
 *            of events, channels of connection management, and use counts.  Held for a few
 *            instructions.
 *   struct karst_lock   one for each send queue, receive queue, shared receive queue and completion
 *            queue: posting and polling take only the lock of their queue.
 *
 * The state of a context is LIVE until a thread finds that the engine is gone (DEAD); a child's
 * copy is FORKED.  Calls check the state before they take any lock.
 */
#ifndef KARST_CLIENT_PRIV_H
#define KARST_CLIENT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "karst.h"
#include "karst_ctl.h"
#include "karst_lock.h"
#include "karst_mutex.h"

/* --- the context --- */

enum cli_state { CLI_LIVE, CLI_DEAD, CLI_FORKED };

enum cli_kind { CLI_FREE, CLI_CQ, CLI_QP, CLI_SRQ };

/** An object that events name: by index and generation, never by address. */
struct cli_entry {
	void *object;
	enum cli_kind kind;
	uint32_t generation;
	uint32_t next_free; /* index + 1, 0: none */
};

/** Counts of events that were returned and acknowledged; under reg. */
struct cli_events {
	uint64_t got;
	uint64_t acked;
};

struct karst_client;

/** A stream of records whose writer is the engine (stream.c). */
struct cli_stream {
	int fd;
	uint32_t bytes;           /* of a record */
	_Atomic uint64_t entered; /* calls of recv() that began */
	uint64_t left;            /* calls of recv() that ended; under reg */
	uint64_t stale;           /* number of records at the head that may belong to objects
				   * that are gone; under reg */
	/* With reg held: converts a record to an event, and counts the event.  @event NULL: only
	 * checks.
	 * @return false: the record has to be skipped. */
	bool (*take)(struct karst_client *c, const struct cli_stream *st, const void *record,
		void *event);
};

struct cli_chunk {
	void *at; /* NULL: not mapped yet */
	uint64_t bytes;
};

struct cli_cm_channel;

/* Whether the engine knows NO_WAIT of CREATE_AH and MODIFY_QP, which older ones refuse. */
enum cli_no_wait { CLI_NO_WAIT_UNKNOWN, CLI_NO_WAIT_KNOWN, CLI_NO_WAIT_ABSENT };

struct karst_client {
	struct karst_context pub;
	_Atomic int state;         /* enum cli_state */
	_Atomic uint32_t nobjects; /* objects of all kinds that exist */
	_Atomic uint32_t wakers;   /* threads that are about to write to a wake_fd */
	_Atomic uint32_t no_wait;  /* enum cli_no_wait */
	struct karst_ctl_conn conn;
	uint64_t migrate_min;
	uint32_t max_rd_atomic; /* limit of the device for a queue pair */
	bool ece;               /* RC queue pairs support ECE */
	char engine[KARST_CTL_NAME];
	char version[32];

	/* doorbells, by lcore of the engine; they do not change */
	struct karst_bell_shared *bell[64];
	uint32_t bell_mask;
	int wake_fd[64];
	int32_t cpu[64];
	bool polite; /* idle lcores yield their CPUs */

	struct karst_mutex ctl;
	uint32_t seq;
	void *reply; /* KARST_CTL_MAX bytes */
	struct cli_chunk *chunk;
	uint32_t nchunks;

	struct karst_mutex reg;
	pthread_cond_t acked;
	struct cli_entry *entry;
	uint32_t nentries;
	uint32_t free_entry; /* index + 1, 0: none */
	struct cli_stream async;
	bool fatal_told; /* KARST_EVENT_DEVICE_FATAL was returned */
	LIST_HEAD(, cli_cm_channel) cm_channels;

	/* the list of contexts that the fork handlers use */
	LIST_ENTRY(karst_client) next;
};

/** @return 0, or -EPERM or -EIO with a reason if requests to the engine are no longer possible. */
int cli_check(struct karst_client *c);

/** Is this a context that a forked child inherited? */
static inline int
cli_forked(const struct karst_client *c)
{
	return karst_unlikely(atomic_load_explicit(&c->state, memory_order_relaxed) == CLI_FORKED);
}
int cli_fail_forked(void);

/** Marks the engine as gone. */
void cli_set_dead(struct karst_client *c);

/** Asks the kernel whether the engine is there, which takes some hundred nanoseconds. */
bool cli_engine_alive(struct karst_client *c);

static inline bool
cli_is_dead(const struct karst_client *c)
{
	/* acquire, pairs with the release in cli_set_dead(): the engine no longer writes the
	 * rings */
	return atomic_load_explicit(&c->state, memory_order_acquire) == CLI_DEAD;
}

/* --- reasons (why.c) --- */

/** Stores the reason for karst_why().  @return @err. */
int cli_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/**
 * The same with a constant string, which costs nothing: for calls that fail in normal operation.
 */
int cli_fail_const(int err, const char *why);

/** The thread's reason, while a call is made whose failure does not concern the caller. */
struct cli_reason {
	const char *now;
	char words[KARST_CTL_WHY + 64];
};
void cli_reason_save(struct cli_reason *to);
void cli_reason_restore(const struct cli_reason *from);

/* --- control requests (call.c) --- */

/* A request's message; cli_call() fills the header. */
#define CLI_REQ(name)                               \
	struct {                                    \
		struct karst_ctl_hdr hdr;           \
		struct karst_ctl_##name##_req body; \
	}

/** The reply to a request. */
struct cli_reply {
	void *body;
	size_t len;    /* size of @body; a shorter reply is refused */
	int *fds;      /* the caller closes them; may be NULL if nfds is 0 */
	uint32_t nfds; /* in: room; out: how many were received */
};

/**
 * Sends a request and waits for its reply.  @req: header (filled in by this function) and body,
 * together @len bytes.
 * @return the status in the reply, with its reason; -EIO: the engine is gone; -EPROTO: the reply is
 * invalid; -EMFILE: no room for the descriptors of @reply; its body is filled in if the engine has
 * executed the request.
 */
int cli_call(struct karst_client *c, enum karst_ctl_op op, struct karst_ctl_hdr *req, size_t len,
	const int *fds, unsigned int nfds, struct cli_reply *reply);

/** The same with ctl held. */
int cli_call_locked(struct karst_client *c, enum karst_ctl_op op, struct karst_ctl_hdr *req,
	size_t len, const int *fds, unsigned int nfds, struct cli_reply *reply);

/**
 * The same for a request that is refused with -EAGAIN as long as the path to a peer is not known:
 * repeats it.  In between no lock is held, so that other threads' requests do not wait.
 * -EHOSTUNREACH: no answer in PATH_MS
 */
int cli_call_path(struct karst_client *c, enum karst_ctl_op op, struct karst_ctl_hdr *req,
	size_t len, struct cli_reply *reply);

/** The time, by the clock that the engine reads, too. */
uint64_t cli_now_ns(void);
/** After such a request was refused: whether the engine does not know NO_WAIT, and waits itself
 * without it.  Asks the engine once, and keeps the reason for karst_why(). */
bool cli_lacks_no_wait(struct karst_client *c);
/** Before the first such request: whether that is known already. */
static inline bool
cli_has_lacked_no_wait(const struct karst_client *c)
{
	return atomic_load_explicit(&c->no_wait, memory_order_relaxed) == CLI_NO_WAIT_ABSENT;
}

/**
 * Sends a request whose reply has no data.  If the engine is gone, there is nothing to undo, so
 * destroying is successful.
 */
int cli_destroy_call(struct karst_client *c, enum karst_ctl_op op, uint32_t handle);

/* --- ring memory (chunk.c) --- */

/** Stores the address of @bytes at @place.  -EPROTO: the place is smaller than that. */
int cli_place(struct karst_client *c, const struct karst_ctl_place *place, uint64_t bytes,
	const char *what, void **at);
/** The same with ctl held. */
int cli_place_locked(struct karst_client *c, const struct karst_ctl_place *place, uint64_t bytes,
	const char *what, void **at);
void cli_chunks_unmap(struct karst_client *c);
/**
 * With ctl held: maps the memory file that the engine wants to have mapped, and confirms that to
 * the engine.
 */
int cli_chunk_fetch_locked(struct karst_client *c);

/* --- objects that events name (object.c) --- */

/** @return the cookie for the engine; 0: no memory. */
uint64_t cli_object_add(struct karst_client *c, enum cli_kind kind, void *object);
/** With reg held.  @return NULL: there is no such object, or no longer. */
void *cli_object_find(const struct karst_client *c, enum cli_kind kind, uint64_t cookie);
void cli_object_del(struct karst_client *c, uint64_t cookie);
/**
 * Ends an object.  Afterwards no event finds the object, none of its events makes a descriptor
 * readable, and all of its events that were returned have been acknowledged.  @channel, @more: NULL
 * if the object has none.
 */
void cli_object_end(struct karst_client *c, uint64_t cookie, struct cli_stream *channel,
	const struct cli_events *events, const struct cli_events *more);

/* --- streams of events (stream.c, channel.c) --- */

/**
 * Reads the next record that is not to be skipped.  @event is passed to take() and is not NULL.
 * @return 0; -EIO: the stream has ended; -EAGAIN, -EINTR.
 */
int cli_stream_next(struct karst_client *c, struct cli_stream *st, void *record, void *event);

/**
 * With reg held, when an object is gone: removes its events from the stream's head, now and
 * whenever they reach the head.
 */
void cli_stream_purge(struct karst_client *c, struct cli_stream *st);

/** Opens the stream of pub.async_fd. */
void cli_async_open(struct karst_client *c);

/* --- objects --- */

struct cli_pd {
	struct karst_pd pub;
	_Atomic uint32_t users;
};

struct cli_xrcd {
	struct karst_xrcd pub;
	_Atomic uint32_t users;
};

struct cli_channel {
	struct karst_comp_channel pub;
	struct cli_stream stream;
};

struct cli_cq {
	struct karst_cq pub;
	struct karst_lock lock karst_cache_aligned;
	unsigned int flags; /* enum karst_cq_flags */
	/* the program's own lock, from karst_cq_init_attr */
	bool (*try_lock)(void *cq_context);
	void (*unlock)(void *cq_context);
	uint64_t look_ns;     /* time of the next check for the engine's death */
	struct cli_qp *sends; /* QPs that complete here */
	struct cli_qp *recvs;
	_Atomic uint32_t users;
	uint64_t cookie;
	struct cli_events events;
	struct cli_events async;
	struct karst_cq_lane lane[];
};

struct cli_srq {
	struct karst_srq pub;
	struct karst_lock lock karst_cache_aligned;
	_Atomic uint32_t users;
	uint64_t cookie;
	struct cli_events async;
};

/** The requests of a queue that are still to be flushed; under the lock of the CQ. */
struct cli_flush_cursor {
	uint32_t next; /* next request to be flushed */
	bool known;    /* @next is valid */
};

struct cli_qp {
	struct karst_qp pub;
	_Atomic uint32_t state; /* enum karst_qp_state, as the program last set it */
	bool sig_all;
	bool credits;
	struct karst_lock send_lock karst_cache_aligned;
	struct karst_lock recv_lock karst_cache_aligned;
	struct cli_flush_cursor send_flush;
	struct cli_flush_cursor recv_flush;
	struct cli_qp *next_send; /* lists of the CQs */
	struct cli_qp *next_recv;
	struct cli_qp **link_send; /* pointers to this entry in those lists */
	struct cli_qp **link_recv;
	uint64_t cookie;
	struct cli_events async;
};

static inline struct karst_client *
cli_of(const struct karst_context *ctx)
{
	return ctx->priv;
}

static inline struct cli_channel *
cli_channel_of(struct karst_comp_channel *channel)
{
	return karst_container_of(channel, struct cli_channel, pub);
}

static inline struct cli_cq *
cli_cq_of(struct karst_cq *cq)
{
	return karst_container_of(cq, struct cli_cq, pub);
}

static inline struct cli_qp *
cli_qp_of(struct karst_qp *qp)
{
	return karst_container_of(qp, struct cli_qp, pub);
}

static inline struct cli_srq *
cli_srq_of(struct karst_srq *srq)
{
	return karst_container_of(srq, struct cli_srq, pub);
}

static inline struct cli_xrcd *
cli_xrcd_of(struct karst_xrcd *xrcd)
{
	return karst_container_of(xrcd, struct cli_xrcd, pub);
}

static inline struct cli_pd *
cli_pd_of(struct karst_pd *pd)
{
	return karst_container_of(pd, struct cli_pd, pub);
}

/* --- after the engine's death (flush.c), with the CQ's lock held --- */

/**
 * Shows completions that are ready and not yet shown.  @return true: there is a completion to take.
 */
bool cli_flush_show_ready(struct cli_cq *cq);
/**
 * Flushes up to @n outstanding requests.  The caller has just called cli_flush_show_ready(), which
 * returned false.  @return how many.
 */
uint32_t cli_flush_requests(struct cli_cq *cq, uint32_t n, struct karst_cqe *cqes);
/** Is there a completion, or a request to be flushed? */
bool cli_flush_pending(struct cli_cq *cq);

/* --- helpers of several files --- */

/** Count the objects of @pd: one was created, one was destroyed. */
void cli_pd_get(struct karst_pd *pd);
void cli_pd_put(struct karst_pd *pd);

void cli_ah_attr_to_ctl(const struct karst_ah_attr *a, struct karst_ctl_ah_attr *w);
void cli_ah_attr_of_ctl(const struct karst_ctl_ah_attr *w, struct karst_ah_attr *a);
/** Converts all members except the sizes of the queues, which become 0. */
void cli_qp_attr_of_ctl(const struct karst_ctl_qp_attr *w, struct karst_qp_attr *a);

/** Returns the completion opcode of a send request (post.c). */
uint8_t cli_wc_opcode(uint8_t wr_opcode);

#endif /* KARST_CLIENT_PRIV_H */
