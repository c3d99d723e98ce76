/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A session: one program's attachment to an engine.  It answers that program's control messages
 * (karst_ctl.h), owns everything that they create, keeps to its limits, and takes all of it back
 * when it ends, however the program ended.
 *
 * It does no socket I/O: karstd reads messages from a socket and hands them in; a program that
 * embeds the engine goes through karst_session_conn().
 *
 * What a message says is hostile: every handle, key, size and descriptor is checked against this
 * session, and a request either does all of what it says or nothing.
 *
 * Threads: a session is used by one thread at a time, which may block in it (for the lcores, and
 * for a neighbour's answer); different sessions by different threads at once.
 */
#ifndef KARST_SESSION_H
#define KARST_SESSION_H

#include <sys/types.h>

#include "karst_ctl.h"
#include "karst_engine.h"
#include "karst_space_opener.h"

struct karst_session;

/** What one program may have; zero means the default, which is what the engine itself may. */
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
	 * The program's user, with all his programs: percent of what is free together with what
	 * he has that he may have of each thing, 1 to 99; 100: as much as there is, which counts as
	 * used for others; 0: he has no account.  See share.h.
	 */
	uint32_t share;
	uint32_t calls; /* control messages a second, with @share; 0: any number */
	/* Its queue pairs may have a Q_Key whose high bit is set, as that of QP 1 (U1). */
	bool controlled_qkeys;
	/* The user's, with all his programs, with @share: addresses of the engine for regions of
	 * other processes, default 512 GiB; memory of such regions that the engine has mapped,
	 * default: what his share allows of the machine's memory. */
	uint64_t max_window_bytes;
	uint64_t max_held_bytes;
};

struct karst_session_init {
	const char *program; /* shown until HELLO says another */
	/* Whose memory it registers.  0: the engine's own process, whose addresses are used as
	 * they are. */
	pid_t pid;
	/* Of pid; -1 with pid 0, and if the kernel cannot tell which process it is
	 * (karst_ctl_peer()).  The session duplicates it. */
	int pidfd;
	uid_t uid;
	gid_t gid;
	struct karst_session_limits limits;
	/* Asked while the session is made, or a request waits for something long: false ends the
	 * wait with -ECANCELED.  May be NULL. */
	bool (*alive)(void *user);
	void *user;
	/* open NULL: the engine's process opens them itself, as far as it may. */
	struct karst_space_opener opener;
};

/** Waits if the user makes more control calls than he may, of which this is some.
 *  -ENOMEM, -ENOSPC: the engine has as many sessions as it may (karst_engine_config); -EUSERS: one
 *  more is too much for this user; -ECANCELED: the program went while it waited. */
int karst_session_create(struct karst_engine *e, const struct karst_session_init *init,
	struct karst_session **session);

/** Whether a session more is not too much for a user with that share; it may be by the time that it
 *  is made.  That it is too much is counted. */
bool karst_session_admits(struct karst_engine *e, uid_t uid, uint32_t share);

/** Destroys everything that the session has: QPs leave without a trace, memory is unmapped, slots
 *  are free.  Takes about a turn of each lcore, however much it is. */
void karst_session_destroy(struct karst_session *s);

/** As struct karst_ctl_conn.call; @req and @rsp are aligned to 8 bytes.  Malformed messages get a
 *  reply, too, with -EPROTO. */
int karst_session_handle(struct karst_session *s, const void *req, size_t len, const int *fds,
	unsigned int nfds, void *rsp, size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds);

/**
 * Readable when something has happened that cannot wait for the program's next message: the
 * session has failed.  The thread that waits for messages waits for this too, and then calls
 * karst_session_attend() as if a message had come.
 */
int karst_session_fd(const struct karst_session *s);
void karst_session_attend(struct karst_session *s);

/** Makes a session of this process; closing the control connection destroys it. */
int karst_session_conn(struct karst_engine *e, const struct karst_session_limits *limits,
	struct karst_ctl_conn *conn);

/** For telemetry and logs. */
struct karst_session_info {
	uint32_t client; /* its number */
	char program[KARST_CTL_NAME];
	pid_t pid;
	uid_t uid;
	uint32_t qps, cqs, srqs, mrs, mws, pds, ahs, channels, xrcds, cm_ids;
	uint64_t ring_bytes;
	uint64_t shared_bytes, migrated_bytes, copied_bytes; /* of its regions */
	uint64_t requests, refused;                          /* control messages */
	uint64_t lost_events; /* of all its streams, because it did not read them */
	uint64_t attached_ns; /* on the engine's clock */
	bool failed;          /* it took memory away under the engine; its QPs are in Error */
};

/** All sessions of an engine, up to @max.  Any thread.  @return how many there are. */
unsigned int karst_session_list(
	struct karst_engine *e, struct karst_session_info *infos, unsigned int max);

#endif /* KARST_SESSION_H */
