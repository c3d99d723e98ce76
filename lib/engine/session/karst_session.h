/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A session: one program's attachment to an engine.  It carries out that program's control messages
 * (karst_ctl.h), owns everything that they create, enforces its limits, and frees all of it when it
 * ends, however the program ended.
 *
 * It does no socket I/O: karstd reads messages from a socket and passes them in; a program that
 * embeds the engine uses karst_session_conn().
 *
 * Messages are not trusted: every handle, key, size and descriptor is checked against this session,
 * and a request either takes full effect or none.
 *
 * Threads: a session is used by one thread at a time, which may block in it (for the lcores, and
 * for a neighbour's answer); different threads may use different sessions at once.
 */
#ifndef KARST_SESSION_H
#define KARST_SESSION_H

#include <sys/types.h>

#include "karst_ctl.h"
#include "karst_engine.h"
#include "karst_space_opener.h"

struct karst_session;

/** Limits of one program; zero means the default, which is the engine's own limit. */
struct karst_session_limits {
	uint32_t max_qps;
	uint32_t max_cqs;
	uint32_t max_srqs;
	uint32_t max_mrs;
	uint32_t max_mws;
	uint32_t max_pds;
	uint32_t max_ahs;
	uint32_t max_channels;
	uint32_t max_mcasts;     /* attachments of QPs to multicast groups */
	uint32_t max_xrcds;      /* default 1024 */
	uint32_t max_cm_ids;     /* identifiers of connection management, and groups */
	uint64_t max_ring_bytes; /* shared memory of its rings; default 256 MiB */
	uint64_t max_mr_bytes;   /* registered, summed; default: no limit */
	/*
	 * Share of the program's user, for all programs of the user together: for each resource,
	 * the percentage of what is free or already the user's that the user may have, 1 to 99;
	 * 100: as much as there is, which counts as used for other users; 0: no account.  See
	 * share.h.
	 */
	uint32_t share;
	uint32_t calls; /* control messages a second, with @share; 0: no limit */
	/* Its queue pairs may have a Q_Key with the high bit set, as that of QP 1 (U1). */
	bool controlled_qkeys;
	/* Limits of the user, for all programs of the user together, with @share: addresses of the
	 * engine for regions of other processes, default 512 GiB; memory of such regions that the
	 * engine has mapped, default: what the user's share allows of the machine's memory. */
	uint64_t max_window_bytes;
	uint64_t max_held_bytes;
};

struct karst_session_init {
	const char *program; /* shown until HELLO gives another name */
	/* Process whose memory it registers.  0: the engine's own process, whose addresses are used
	 * directly. */
	pid_t pid;
	/* Of pid; -1 if pid is 0, or if the kernel cannot tell which process it is
	 * (karst_ctl_peer()).  The session duplicates it. */
	int pidfd;
	uid_t uid;
	gid_t gid;
	struct karst_session_limits limits;
	/* Called while the session is created, or while a request has a long wait: false ends the
	 * wait with -ECANCELED.  May be NULL. */
	bool (*alive)(void *user);
	void *user;
	/* open NULL: the engine's process opens files itself, as far as it may. */
	struct karst_space_opener opener;
};

/** Waits if the user makes more control calls than allowed; a creation counts as several calls.
 *  -ENOMEM; -ENOSPC: the engine has the maximum of sessions (karst_engine_config); -EUSERS: one
 *  more is too much for this user; -ECANCELED: the program went during the wait. */
int karst_session_create(struct karst_engine *e, const struct karst_session_init *init,
	struct karst_session **session);

/** Whether a user with that share may have one more session; this may have changed when it is
 *  created.  A refusal is counted. */
bool karst_session_admits(struct karst_engine *e, uid_t uid, uint32_t share);

/** Destroys everything that the session has: QPs are destroyed, memory is unmapped, slots are
 *  freed.  Takes about a turn of each lcore, however much it is. */
void karst_session_destroy(struct karst_session *s);

/** As struct karst_ctl_conn.call; @req and @rsp are aligned to 8 bytes.  Malformed messages get a
 *  reply, too, with -EPROTO. */
int karst_session_handle(struct karst_session *s, const void *req, size_t len, const int *fds,
	unsigned int nfds, void *rsp, size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds);

/**
 * A descriptor that is readable when something has happened that cannot wait for the program's next
 * message: the session has failed, or the program has read events, so that others that wait can be
 * sent.  The thread that waits for messages must wait for this, too, and then call
 * karst_session_attend(), as it handles a message.
 */
int karst_session_fd(const struct karst_session *s);
void karst_session_attend(struct karst_session *s);

/**
 * Creates a session for this process; closing the control connection destroys it.
 *
 * Events that find no room in their stream wait until the session is attended to; each call of the
 * connection also does that.  So a program that does not make such calls again and again must wait
 * for karst_session_fd() of karst_session_of(), together with what else it waits for, and then call
 * karst_session_attend(), while no other thread makes a call of the connection.
 */
int karst_session_conn(struct karst_engine *e, const struct karst_session_limits *limits,
	struct karst_ctl_conn *conn);
/** The session of such a connection. */
struct karst_session *karst_session_of(const struct karst_ctl_conn *conn);

/** For telemetry and logs. */
struct karst_session_info {
	uint32_t client; /* number of the session */
	char program[KARST_CTL_NAME];
	pid_t pid;
	uid_t uid;
	uint32_t qps, cqs, srqs, mrs, mws, pds, ahs, channels, xrcds, cm_ids;
	uint64_t ring_bytes;
	uint64_t shared_bytes, migrated_bytes, copied_bytes; /* of its regions */
	uint64_t requests, refused;                          /* control messages */
	/* Of all its streams: events that were raised again while the first one waited for room;
	 * records that could not be sent because the program had closed its end (EPIPE) or the
	 * kernel had no memory (ENOMEM); of a channel of connection management, the byte that says
	 * that there are events, if it found no room. */
	uint64_t lost_events;
	uint64_t attached_ns; /* on the engine's clock */
	bool failed;          /* the program took memory away that the engine used; its QPs are in
			       * the Error state */
};

/** Lists all sessions of an engine, up to @max.  Any thread.  @return how many there are. */
unsigned int karst_session_list(
	struct karst_engine *e, struct karst_session_info *infos, unsigned int max);

#endif /* KARST_SESSION_H */
