/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Hostile programs beside innocent ones, against a real karstd.
 *
 * A case starts a karstd with a loopback port, and two innocent pairs: processes of their own that
 * move data between two attachments and check every byte (innocent.c).  Then it attacks for a
 * while.  Afterwards
 *
 *   - the innocents have made progress, have found no wrong byte and no error, and their queue
 *     pairs have sent nothing twice;
 *   - karstd is alive, and has as many descriptors, mappings, keys, queues, buffers and threads as
 *     before, and about as much memory.
 *
 * Processes communicate through one page of shared memory each (struct report).  Every random
 * choice comes from the seed that is printed; scheduling is not repeatable.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "karst.h"

#define HANG_S 300 /* the longest wait for anything, however busy the machine is */

struct options {
	const char *karstd;
	uint64_t seed;
	uint32_t seconds; /* of scribbling or sending nonsense; 0: the case's default */
	uint32_t kills;
	uint32_t attaches;
	uint32_t registrations;
	bool grown; /* do not judge karstd's memory: sanitizers keep what was freed */
};

/* --- random numbers --- */

struct dice {
	uint64_t state;
};

static inline uint64_t
dice_roll(struct dice *d)
{
	uint64_t z = d->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/** A random number from 0 to @n - 1. */
static inline uint32_t
dice_below(struct dice *d, uint32_t n)
{
	return (uint32_t)((dice_roll(d) >> 32) * n >> 32);
}

/* --- a karstd --- */

struct host {
	const char *karstd;
	char folder[64];
	char sock[96];
	char name[16];
	pid_t pid;
};

/** The resources that a program could leak. */
struct usage {
	long fds;
	long mappings;
	long shared;  /* of these */
	long threads; /* except those of lcores */
	long rss_kib;
	/* telemetry: */
	long clients, qps, cqs, srqs, regions, windows, pds, owners, object_bytes, ring_bytes,
		mbufs_used;
};

/** Starts it in a new folder.  @return false, after a note of the reason. */
bool host_up(struct host *h, const char *karstd);
/** The same with @more configuration. */
bool host_up_with(struct host *h, const char *karstd, const char *more);
/** The same with more keys of its first section, @engine, too. */
bool host_up_as(struct host *h, const char *karstd, const char *engine, const char *more);
/** Starts it again, in the same folder. */
bool host_start(struct host *h);
/** @return false, after a note: it had died, or did not end as it should. */
bool host_stop(struct host *h);
void host_kill(struct host *h);
void host_remove(const struct host *h);
/** Ends a case: stops it, and removes its folder unless something has failed.
 * @return whether @good, and it ended as it should */
bool host_end(struct host *h, bool good);
bool host_alive(const struct host *h);

/** Lets programs of all users attach. */
bool host_for_all(const struct host *h);

/** A number from telemetry; -1: there is no such number. */
long host_ask(const struct host *h, const char *cmd, const char *key);
/** Notes a whole answer, to help find a reason. */
void host_show(const struct host *h, const char *cmd);

/** Reads from /proc what a process uses. */
void process_usage(pid_t pid, struct usage *u);
void host_usage(const struct host *h, struct usage *u);
/** How many of its threads have a name that begins with @named, and how many of these (added to
 * *@raised, if not NULL) have real-time priority. */
long host_threads(const struct host *h, const char *named, long *raised);
/** Waits until @least to @most threads of lcores are written off, because copies block them.
 * @return false, after a note how many are */
bool host_until_stuck(const struct host *h, long least, long most);
/** Waits until no resource exceeds what it was.  @return false, after a note which one does. */
bool host_settles(const struct host *h, const struct usage *before, bool grown);
/** Call while no innocent moves data: waits until lcores have ended the threads that slow copies
 * needed.  @return false, after a note: they have not. */
bool host_rests(const struct host *h);

/* --- processes --- */

/** What a process reports, and what it is told. */
struct report {
	_Atomic bool stop;
	_Atomic bool ready;
	_Atomic uint64_t ops;      /* done, and checked */
	_Atomic uint64_t bytes;    /* of these operations */
	_Atomic uint64_t pause_ms; /* the longest time without any */
	_Atomic uint64_t word[6];  /* defined by each case */
	uint32_t qpn[2];           /* before ready */
	char fault[512];           /* of a process that has ended badly */
};

struct child {
	pid_t pid;
	struct report *report;
};

/** Runs @fn in a new process, which ends when @fn returns. */
bool child_start(struct child *c, void (*fn)(struct report *r, void *arg), void *arg);
/** The same, and its qpn[1] is @peer_qpn. */
bool child_start_told(
	struct child *c, void (*fn)(struct report *r, void *arg), void *arg, uint32_t peer_qpn);
/** In the child: reports the fault, and ends the process. */
__attribute__((noreturn, format(printf, 2, 3))) void child_fail(
	struct report *r, const char *fmt, ...);
/** In the child, if it is root: becomes another user. */
void child_become(struct report *r, uid_t uid);
/** The same: a user without rights. */
#define NOBODY 65534u
void child_become_nobody(struct report *r);
bool child_alive(struct child *c);
/** Waits until the child reports that it is ready.  @return false: it has ended, or it is not ready
 * in time, which is noted. */
bool child_until_ready(struct child *c);
/** Tells the child to stop, and waits.  @return false, after a note of the reason: it has
 * failed. */
bool child_stop(struct child *c, const char *what);
/** kill -9 */
void child_kill(struct child *c);

/* --- two queue pairs, connected, in one process --- */

struct end {
	struct karst_context *ctx;
	struct karst_pd *pd;
	struct karst_cq *cq;
	struct karst_mr *mr;
	struct karst_qp *qp;
	uint8_t *mem;
	bool copied;     /* memory of malloc() */
	uint8_t timeout; /* of RC; 0: no timeout, so nothing is sent again because of one */
};

/** An attachment with a completion queue and @len bytes of memory registered; @copied: memory that
 *  the engine has to copy. */
int end_open(struct end *e, const struct host *h, const char *program, size_t len, bool copied);
int end_qp(struct end *e, enum karst_qp_type type);
/** Brings the queue pair of @e to RTS, towards @peer. */
int end_connect(struct end *e, uint32_t peer);
int end_post(struct end *e, enum karst_wr_opcode op, uint64_t wr_id, size_t off, uint32_t len,
	const struct end *peer, size_t peer_off);
int end_post_recv(struct end *e, uint64_t wr_id, size_t off, uint32_t len);
/** Destroys what exists of it. */
int end_close(struct end *e);

/* --- innocents --- */

#define INNOCENTS 2

struct innocents {
	const struct host *host;
	struct child child[INNOCENTS];
	uint64_t ops[INNOCENTS];
};

bool innocents_start(struct innocents *in, const struct host *h, uint64_t seed);
/** Waits until each has made progress.  @return false, after a note which one has not. */
bool innocents_go_on(struct innocents *in);
/** Call last, when no others move data.  @return false, after a note of the reason: one failed, or
 * sent something twice, or karstd does not come to rest afterwards. */
bool innocents_stop(struct innocents *in);

/* --- attacks --- */

struct attack_start {
	const struct host *host;
	uint64_t seed;
};

/** Attacks run in processes of their own, with a struct attack_start: until they are told to stop,
 * or killed. soak.c lists them. */
void attack_scribble(struct report *r, void *arg);
void attack_talk(struct report *r, void *arg);
void attack_kill(struct report *r, void *arg);
void attack_churn(struct report *r, void *arg);
void attack_takeaway(struct report *r, void *arg);
void attack_greed(struct report *r, void *arg);

/* --- cases --- */

bool case_scribble(const struct options *o);
bool case_kill(const struct options *o);
bool case_churn(const struct options *o);
bool case_talk(const struct options *o);
bool case_death(const struct options *o);
bool case_exec(const struct options *o);
bool case_takeaway(const struct options *o);
bool case_punch(const struct options *o);
bool case_soak(const struct options *o);
bool case_greed(const struct options *o);
bool case_late(const struct options *o);
bool case_barred(const struct options *o);
bool case_many(const struct options *o);
bool case_fresh(const struct options *o);
bool case_colluders(const struct options *o);
bool case_crowds(const struct options *o);
bool case_deferred(const struct options *o);
bool case_linger(const struct options *o);
bool case_unclosed(const struct options *o);
bool case_leave(const struct options *o);
bool case_stuck(const struct options *o);

/** Whether this process can serve files (late_file.h), and whether its children can be of two
 * users.  @return false, after a note: not on this machine */
bool can_serve_files(void);
bool can_be_two_users(void);

/** Prints a line of comment in the TAP stream. */
__attribute__((format(printf, 1, 2))) void note(const char *fmt, ...);

uint64_t now_ms(void);
void sleep_ms(uint32_t ms);
/** Call between two polls of a completion queue: pauses for about as long as a request takes, so
 * that processes that only wait leave the processors to those that are tested. */
void await_completions(void);

#endif /* HOSTILE_H */
