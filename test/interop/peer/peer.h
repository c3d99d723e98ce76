/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * interop-peer: a program of libibverbs that checks what another instance of it does to its memory.
 *
 * One instance is the server, one the client; peer.c has the order of things.  A script of steps
 * is run on both.  In a step one end acts (or both do): it posts the step's work requests, its
 * items, at once and checks their completions; the other is the target and checks what arrives.
 *
 * Each end has three buffers (struct image), filled anew in each step with bytes that follow from
 * the step, the end and the offset (pattern_*), so that both ends know all contents of both:
 *
 *   local   what an actor sends from and reads into
 *   area    what a target lets the other end write, read and change
 *   recvs   where a target receives
 *
 * Afterwards each buffer must be, to the last byte and also where no item pointed at, what the
 * items make of it.
 */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define MAX_ITEMS   128  /* work requests of a step */
#define MAX_STEPS   1024 /* of a script */
#define MAX_SGE     4u
#define SCRIPT_SIZE 8192u
#define NOTES_SIZE  2048u
#define GUARD       4096u /* bytes behind each buffer that no region covers */
#define GRH_BYTES   40u
#define WINDOW_OFF  4096u /* in the area */

enum op {
	OP_SEND,
	OP_SEND_IMM,
	OP_SEND_INV,
	OP_WRITE,
	OP_WRITE_IMM,
	OP_READ,
	OP_CAS,
	OP_FAA,
	OP_AWRITE,
	OP_MIX,       /* a step of different items */
	OP_BIND1,     /* the target binds a window of type 1 */
	OP_BIND2,     /* and of type 2 */
	OP_LOCAL_INV, /* the target invalidates its window */
	OP_SLEEP,
	OP_NEW, /* a queue pair anew */
	OP_COUNT,
};

/* Variations of a step; the names are in peer_script.c. */
enum flag {
	F_INLINE = 1 << 0,
	F_SOLICITED = 1 << 1,
	F_FENCE = 1 << 2,
	F_UNSIGNALLED = 1 << 3, /* all but the last */
	F_WINDOW = 1 << 4,      /* by the key of the window */
	F_BAD_KEY = 1 << 5,     /* a key that nobody gave out */
	F_DEAD_KEY = 1 << 6,    /* of a region that was deregistered */
	F_OTHER_PD = 1 << 7,    /* of a region in another domain */
	F_READ_ONLY = 1 << 8,   /* of a region (or: a window) with remote read only */
	F_WRITE_ONLY = 1 << 9,
	F_NO_REMOTE = 1 << 10,
	F_END = 1 << 11,       /* the range begins within the region or window and ends behind it */
	F_ODD = 1 << 12,       /* a misaligned address */
	F_BAD_LKEY = 1 << 13,  /* the actor's own key is wrong */
	F_BAD_QKEY = 1 << 14,  /* UD */
	F_NO_RECV = 1 << 15,   /* the target posts no receive */
	F_DEAF = 1 << 16,      /* the target's queue pair is in error already */
	F_LOST = 1 << 17,      /* completes at the actor, and never arrives */
	F_BAD_RECV = 1 << 18,  /* the receive's own key is wrong */
	F_TARGET_UP = 1 << 19, /* after an error the target is as it was */
	F_TARGET_DOWN = 1 << 20,
};

struct item {
	enum op op;
	uint32_t len;
	uint32_t local_off; /* in the actor's local */
	uint32_t area_off;  /* in the target's area */
	uint64_t add;       /* added or compared with; immediate data */
	uint64_t swap;
};

struct step {
	enum op op;
	uint32_t flags;
	uint32_t len; /* bytes; ms of OP_SLEEP; the seed of OP_MIX */
	uint32_t count;
	uint32_t actors;     /* bit 0: the client acts, bit 1: the server */
	uint32_t late_ms;    /* receives are posted so much later */
	int32_t recv_len;    /* -1: as long as needed */
	uint32_t sge;        /* pieces at the actor */
	uint32_t recv_sge;   /* and of a receive */
	uint32_t at;         /* the item that fails or is lost; those before it succeed */
	int32_t status;      /* ibv_wc_status of that item */
	int32_t recv_status; /* of its receive; -1: anything but success */
	char text[48];       /* as the user wrote it */
};

/* What the client decides for both ends. */
struct options {
	uint32_t size; /* of this structure: both ends must be the same build */
	uint32_t qp_type;
	uint32_t mtu;
	uint32_t psn[2]; /* with which the client, the server begins */
	uint32_t timeout, retry_cnt, rnr_retry, min_rnr_timer, rd_atomic;
	uint32_t srq;
	uint32_t events;
	uint32_t patience_s; /* for anything that ought to happen */
	char gid[64];
	char script[SCRIPT_SIZE];
};

struct image {
	uint8_t *bytes; /* size + GUARD */
	uint8_t *want;
	uint8_t *late; /* for so many steps something may still arrive there, or not: no check */
	uint32_t size;
	uint64_t seed;
	const char *name;
};

/* Keys of the regions over a target's area. */
enum key { KEY_ALL, KEY_READ, KEY_WRITE, KEY_NONE, KEY_OTHER_PD, KEY_DEAD, KEY_COUNT };

/* What an end sends to the other when a queue pair is created. */
struct end {
	uint32_t qpn;
	uint32_t atomic_write; /* whether it supports ATOMIC WRITE */
	uint64_t area;
	uint32_t rkey[KEY_COUNT];
	union ibv_gid gid;
};

/* A receive that was posted and has not completed. */
struct recv {
	uint32_t off, len; /* in recvs; with the GRH */
};

struct peer {
	struct options opt;
	uint32_t me; /* 0 the client, 1 the server */
	int ctl;     /* control channel */

	struct ibv_context *ctx;
	uint8_t gid_index;
	union ibv_gid gid;
	struct ibv_pd *pd, *other_pd;
	struct ibv_comp_channel *channel; /* NULL: polls */
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx; /* NULL: no ATOMIC WRITE */
	struct ibv_ah *ah;     /* UD */
	struct ibv_mw *mw;
	struct ibv_mr *local_mr, *recv_mr, *area_mr[KEY_COUNT];
	struct end mine, other;
	uint32_t window_rkey[2]; /* of each end's window */
	uint32_t window_len;     /* at WINDOW_OFF of the area */
	uint32_t bad_key;        /* what no region of this program has */

	struct image local, area, recvs;
	struct recv posted[MAX_ITEMS];
	uint32_t n_posted, recv_cursor;
	uint64_t verified; /* bytes of messages */
	uint32_t problems; /* of the step, and what they are */
	char notes[NOTES_SIZE];

	struct step *step; /* the current one */
	uint32_t number;   /* its number, from 1 */
};

/* --- peer_script.c --- */

extern const char *const op_names[OP_COUNT];
/** Parses the steps of @text.  @return how many, or -1 with a message on stderr. */
int script_parse(const char *text, const struct options *opt, struct step *steps, uint32_t max);
/** @return the name of a status as scripts have it, OK for success. */
const char *status_name(int status);
/** Prints the words of a script, for --help. */
void script_help(void);

/* --- peer_ctl.c --- */

/** Opens the control channel: @where is NULL for a server on TCP @port, the server's host name for
 *  a client, unix:PATH or file:PATH for either. @return the descriptor; without one the program
 *  ends. */
int ctl_open(const char *where, const char *port, uint32_t patience_s);
/** Both ends call it; sends @mine to the other end and receives the same number of bytes from it.
 * Ends the program if the other end does not reach the same point of the script. */
void ctl_swap(struct peer *p, uint32_t point, const void *mine, void *other, uint32_t len);
/** One direction only. */
void ctl_put(struct peer *p, const void *data, uint32_t len);
void ctl_get(struct peer *p, void *data, uint32_t len);
/** Notes that the step has failed in some respect. */
void problem(struct peer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Sends the noted problems to the other end, receives its problems, and prints both.  @return
 * whether there are none at both ends. */
bool ctl_verdict(struct peer *p);
/** For a condition without which the program cannot continue: reports it here and at the other
 * end. */
_Noreturn void die(struct peer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- peer_qp.c --- */

/** Opens the device that has the address; @dev may be NULL. */
void device_open(struct peer *p, const char *dev, const char *gid);
/** Registers memory for steps of @local, @area and @recvs bytes, and makes completion queues. */
void memory_make(struct peer *p, uint32_t local, uint32_t area, uint32_t recvs);
/** Creates a queue pair, connected to one that the other end creates. */
void qp_make(struct peer *p);
void qp_unmake(struct peer *p);
void device_close(struct peer *p);
/** The target's part of OP_BIND1, OP_BIND2, OP_LOCAL_INV. */
void window_step(struct peer *p);
/** Waits until the queue pair is in @state, and notes a problem if it does not get there. */
void qp_state_is(struct peer *p, enum ibv_qp_state state);
/** Moves this end's queue pair to the error state. */
void qp_fail(struct peer *p);

/* --- peer_wr.c --- */

/** The items of a step, and how many bytes of each kind of buffer they need: the same at both
 *  ends. @return how many. */
uint32_t step_items(const struct peer *p, const struct step *s, struct item *items,
	uint32_t *local_bytes, uint32_t *area_bytes, uint32_t *recv_bytes);
bool item_receives(const struct item *item);
/** Posts the receives that @n items need. */
void recvs_post(struct peer *p, const struct item *items, uint32_t n);
void items_post(struct peer *p, const struct item *items, uint32_t n);
/** The next completion of @cq. @return false, with a note, if none comes in time. */
bool wait_cq(struct peer *p, struct ibv_cq *cq, struct ibv_wc *wc);

/* --- peer_check.c --- */

/** The seed of a buffer of an end in a step. */
uint64_t pattern_seed(const struct peer *p, uint32_t end, uint32_t buffer);
enum { BUFFER_LOCAL, BUFFER_AREA, BUFFER_RECVS };
void pattern_fill(uint8_t *to, uint64_t seed, uint64_t off, uint32_t len);
/** A number out of @x. */
uint64_t pattern_mix(uint64_t x);
/** Fills all buffers for the step. */
void images_begin(struct peer *p);
/** Gives half of the compare-and-swaps of @n items, whose target is @end, the current value. */
void items_resolve(const struct peer *p, struct item *items, uint32_t n, uint32_t end);
/** Compares the buffers with what they must be. */
void images_end(struct peer *p);
/** Waits for the completions of an actor's items; then its buffers must have the results. */
void actor_check(struct peer *p, const struct item *items, uint32_t n);
/** Waits for the target's completions that are successes, if any. */
void target_collect(struct peer *p, const struct item *items, uint32_t n);
/** After the actor has ended: the rest of a target's completions, none too many, its state. */
void target_check(struct peer *p, const struct item *items, uint32_t n);

#endif /* PEER_H */
