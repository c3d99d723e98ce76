/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Structures and functions that the files of a session share.
 *
 *	session.c         life cycle, HELLO, dispatch of messages, the list, the control connection
 *	session_call.c    common parts of message handlers: reasons, handles, places
 *	session_events.c  the callbacks that send events to programs; events that wait for room
 *	session_device.c  queries, ring memory, protection domains
 *	session_memory.c  regions, windows
 *	session_queues.c  channels, completion queues, shared receive queues
 *	session_qp.c      queue pairs
 *	session_cm*.c     connection management: programs' requests to cm.h
 *	session_xrc.c     XRC domains, and opening of targets
 *	session_seek.c    limits of the paths that are sought at a time
 *	session_attr.c    attributes of queue pairs and addresses: checks, translation
 *
 * Threads: everything here belongs to the thread that uses the session, except atomics, and what
 * the callbacks read, which does not change while the object exists: its cookie, its handle, its
 * channel's stream.  The engine's session_lock protects "info".
 *
 * An operation first looks up and checks everything, then takes a handle or room for a key, then
 * calls the engine.  So the engine's call is the last one that can fail, and only the handle has to
 * be released then.  An operation refuses by returning the result of reason().
 */
#ifndef SESSION_PRIV_H
#define SESSION_PRIV_H

#include <stdlib.h>
#include <sys/queue.h>

#include "cm_client.h"
#include "handles.h"
#include "karst_ctl_msg.h"
#include "karst_owner.h"
#include "karst_session.h"
#include "karst_space.h"
#include "object.h"
#include "stream.h"

/* --- session_events.c --- */

extern const struct karst_engine_ops eng_session_ops;

struct session_cq;

/* Raises the event of a completion queue that has a channel. */
void eng_session_raise(struct karst_session *s, struct session_cq *cq);
/* Raises KARST_EVENT_DEVICE_FATAL. */
void eng_session_tell_fatal(struct karst_session *s);
/* Sends events that wait for room, as far as there is room now.  Where there is not, the session's
 * poll_fd becomes readable when the program has read. */
void eng_session_send_waiting(struct karst_session *s);
/* Whether programs have read from streams that were awaited: their events can be sent.  *told:
 * attend_fd is readable. */
bool eng_session_hear_room(struct karst_session *s, bool *told);
/* To be called before a stream of the session is closed. */
void eng_session_forget_room(struct karst_session *s, struct eng_stream *st);

/* --- objects --- */

/* Events of an object that wait for room in its stream: bits, by their codes; EVENT_COMPLETION is a
 * completion queue's event for its channel.  Each waits once, however often it is raised.  Those of
 * ports have bits of their own (session_events.c). */
typedef _Atomic uint32_t session_waiting;
#define EVENT_COMPLETION 31u

struct session_pd {
	uint32_t handle;
	uint32_t pd; /* the engine's number */
};

struct session_channel {
	uint32_t handle;
	uint32_t cqs;  /* CQs that use it */
	bool full;     /* there was no room just now */
	uint32_t from; /* slot of the CQ whose event found no room: sending continues there */
	struct eng_stream stream;
};

struct session_cq {
	uint32_t handle;
	uint64_t cookie;
	struct session_channel *channel; /* NULL: none */
	struct karst_engine_cq *cq;
	session_waiting waiting;
};

struct session_xrcd {
	uint32_t handle;
	uint32_t users; /* SRQs and QPs of this session */
	int pin_fd;     /* of the file that identifies it; -1: none */
	struct karst_engine_xrcd *xrcd;
};

struct session_srq {
	uint32_t handle;
	uint64_t cookie;
	uint32_t max_sge;
	struct session_xrcd *xrcd; /* NULL: basic */
	struct karst_engine_srq *srq;
	session_waiting waiting;
};

/* An address as a program has set it, and the path that it was resolved to. */
struct session_av {
	struct karst_ctl_ah_attr ah;
	struct karst_path path;
};

struct session_qp {
	uint32_t handle;
	uint64_t cookie;
	enum karst_qp_type type;
	uint32_t max_dest_rd_atomic;
	struct session_xrcd *xrcd;            /* XRC_RECV */
	struct session_av primary, alternate; /* as set last, by this handle */
	struct karst_engine_qp *qp;
	session_waiting waiting;
};

/* Regions and windows are looked up by the upper 24 bits of their keys. */
struct session_mr {
	struct key_node node;
	uint32_t key;
	uint32_t access;
	uint64_t addr, len;                /* address and length in the program */
	bool writable;                     /* the engine may write where it is mapped */
	struct karst_space_region *region; /* NULL: this process's own memory */
	uint64_t shared, migrated, copied; /* bytes by access method */
	uint32_t maps;                     /* number of MAPPINGS that it is charged with */
};

struct session_mw {
	struct key_node node;
	uint32_t key;
};

/* The key of the node is the number of the address handle. */
struct session_ah {
	struct key_node node;
};

/* --- a session --- */

#define NO_PORT UINT32_MAX /* of event_port */

struct karst_session {
	struct karst_engine *e;
	struct karst_engine_owner *owner;
	struct karst_space *space; /* NULL: this process */
	struct karst_session_limits limits;
	struct eng_share *share; /* of the program's user; NULL: none */
	uint32_t share_fds;      /* DESCRIPTORS that the session is charged with from its
				  * creation */
	bool (*alive)(void *user);
	void *user;
	bool greeted;
	bool listened_to;      /* its first chunks are sealed */
	bool failed, silenced; /* copies of the flags of its space */
	int attend_fd;
	int poll_fd; /* an epoll of attend_fd, and of streams that events wait for */
	/* some events have begun to wait for room since eng_session_send_waiting(), in streams
	 * that were not awaited */
	_Atomic bool some_wait;
	uint32_t nawaited;       /* streams that poll_fd waits for */
	bool look_again;         /* and some that it cannot wait for */
	session_waiting waiting; /* events of the session itself */
	session_waiting port_waiting[KARST_ENGINE_MAX_PORTS];
	int async_reader; /* until HELLO; then -1 */
	/* the only port whose events the program gets, from 1; 0: all; NO_PORT: none, until HELLO
	 * says which */
	_Atomic uint32_t event_port;
	struct eng_stream async;
	/* the table of objects, and the slot, whose event found no room in async: sending
	 * continues there */
	uint32_t async_table, async_from;
	_Atomic uint64_t lost_events;
	struct handles pds, channels, xrcds, cqs, srqs, qps;
	struct keys mrs, mws, ahs;
	struct cm_client cm; /* protected by the lock of connection management */
	uint64_t mr_bytes;
	uint64_t shared, migrated, copied;
	/* protected by session_lock */
	struct karst_session_info info;
	uint32_t nseeks;
	LIST_ENTRY(karst_session) next;
};

/* --- operations --- */

struct session_call {
	const void *body; /* checked by karst_ctl_check_request() */
	const int *fds;   /* the caller's */
	unsigned int nfds;
	void *rsp;    /* body of the reply, zero */
	int *rsp_fds; /* passed to the caller */
	unsigned int nrsp_fds;
	char why[KARST_CTL_WHY];
};

/* Each returns 0, with the body of the reply written, or a negative errno, with why written. */
#define X(OP, body, number) int eng_session_##body(struct karst_session *s, struct session_call *c);
KARST_CTL_OPS(X)
#undef X

#define reason(c, ret, ...) karst_ctl_reason((c)->why, ret, __VA_ARGS__)

/* Counts @n more control calls of the program's user: waits if the user makes more than allowed
 * (session.c).  -ECANCELED: the wait was cut short, as the program has gone. */
int eng_session_pace(const struct karst_session *s, uint32_t n);

/* Duplicates @fd for the program.  -EMFILE, with the reason set */
int eng_session_give_fd(struct session_call *c, int fd);

/* Takes a handle for @item.  @what, @limit: their names, for reasons. */
int eng_session_handle_add(struct session_call *c, struct handles *h, void *item, const char *what,
	const char *limit, uint32_t *handle);
/* The same, for room in a table of keys. */
int eng_session_key_reserve(
	struct session_call *c, struct keys *k, const char *what, const char *limit);

/* Sets the reason that one more of @kind is too much for the program's user.  @return -ENOSPC */
int eng_session_reason_share(
	const struct karst_session *s, struct session_call *c, enum eng_share_kind kind);
/* Whether @n of @kind are too much; if so, sets the reason. */
bool eng_session_share_fault(const struct karst_session *s, struct session_call *c,
	enum eng_share_kind kind, uint64_t n);
/* Whether an allocation of ring memory failed because of this; if so, sets the reason. */
bool eng_session_ring_fault(const struct karst_session *s, struct session_call *c);

/* The object of @handle, or NULL, with the reason set. */
void *eng_session_find(
	struct session_call *c, const struct handles *h, uint32_t handle, const char *what);

/* Describes the location of @p, which is in ring memory. */
void eng_session_place(
	const struct karst_session *s, const void *p, uint64_t len, struct karst_ctl_place *place);

/* --- session_device.c --- */

/* The highest port number, from 1; 0: there is no port. */
uint32_t eng_session_nports(const struct karst_engine *e);

/* --- session_queues.c --- */

/* The most entries that a completion queue of this program may have, on each lane. */
uint32_t eng_session_max_cqe(const struct karst_session *s);
uint32_t eng_session_max_wr(const struct karst_session *s);
void eng_session_max_queues(
	const struct karst_session *s, uint32_t *qps, uint32_t *cqs, uint32_t *srqs);

/* --- session_attr.c --- */

/* Resolves the path for @attr; waits for neighbours.  -EAGAIN: with @no_wait, no answer yet */
int eng_session_path(struct karst_session *s, struct session_call *c,
	const struct karst_ctl_ah_attr *attr, bool no_wait, struct karst_path *path);

/* --- session_seek.c --- */

/* An address that a program looks for. */
struct session_seek_key {
	uint8_t ip[16];
	uint32_t port, sgid_index;
};

/* Before an attempt to find an address that does not wait.  *send: requests may be sent for it.
 * @return false: the program, its user or all programs look for too many addresses already */
bool eng_session_seek(struct karst_session *s, const struct session_seek_key *key, bool *send);
/* It was found, or cannot be found. */
void eng_session_seek_end(struct karst_session *s, const struct session_seek_key *key);

/* --- the end of a session, in this order; nothing can fail --- */

/* Objects that are destroyed together: the engine waits for its lcores once for each batch. */
#define DROP_BATCH 512u

void eng_session_drop_seeks(struct karst_session *s);
void eng_session_drop_cm(struct karst_session *s);
void eng_session_drop_qps(struct karst_session *s);
void eng_session_drop_queues(struct karst_session *s);
void eng_session_drop_xrcds(struct karst_session *s);
void eng_session_drop_ahs(struct karst_session *s);
void eng_session_drop_windows(struct karst_session *s);
void eng_session_drop_memory(struct karst_session *s);
void eng_session_drop_pds(struct karst_session *s);

/* Moves all queue pairs to the Error state, except XRC targets that other programs have open. */
void eng_session_stop_qps(struct karst_session *s);
/* Withdraws its SRQs from all XRC targets. */
void eng_session_stop_srqs(struct karst_session *s);

#endif /* SESSION_PRIV_H */
