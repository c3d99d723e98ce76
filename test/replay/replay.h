/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Plays captures of real peers to karst: declarations that the parts of karst-replay share.
 *
 *   capture.c      a file's frames, and what the wire did to each (MANIFEST.tsv)
 *   stream.c       the requests of one queue pair and their answers
 *   bed.c          one karst_core with one queue pair; frames in, frames out, the clock
 *   compare.c      compares a frame of karst with one of the capture
 *   regions.c      memory behind the keys that requests name
 *   responder.c    requests in; karst's answers against those of the peer that was captured
 *   messages.c     work requests, as the packets of a requester imply them
 *   requester.c    work requests and answers in; karst's requests against those captured
 *   datagram.c     UD: both directions
 *   cm_replay.c    management datagrams, both directions, against lib/cm; cm_fields.c compares them
 *   differences.c  the list of allowed differences, and their reasons
 *   main.c         one TAP point for each capture and half
 *
 * Frames are translated before they are played, in the three things that karst chooses itself: the
 * destination queue pair's number, R_Keys, and communication ids.  Everything else is unchanged.
 */
#ifndef TEST_REPLAY_H
#define TEST_REPLAY_H

#include <stdio.h>

#include "karst_frame.h"
#include "karst_opcode.h"
#include "karst_psn.h"
#include "karst_qp.h"

#define RP_MS 1000000ull

/* --- differences and reports --- */

/** An allowed difference: one row of differences.tsv. */
struct rp_difference {
	char *capture; /* a pattern of fnmatch(3) */
	char *half;
	char *psn; /* six hexadecimal digits, or "*" */
	char *kind;
	char *id; /* of doc/differences.rst */
	unsigned int seen;
};

struct rp_differences {
	struct rp_difference *rows;
	unsigned int n;
};

int rp_differences_read(const char *path, struct rp_differences *d);
void rp_differences_free(struct rp_differences *d);

/** The report of one TAP point. */
struct rp_report {
	const char *capture;
	const char *half;
	struct rp_differences *differences;
	FILE *text;            /* what went wrong, in lines */
	unsigned int problems; /* lines of it */
	unsigned int compared; /* frames, completions and memory that were found to be the same */
	bool verbose;
	bool list; /* print each difference as a row of the list */
};

/** Reports that something is wrong. */
void rp_problem(struct rp_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Whether there is such a row.  Nothing is counted and nothing is reported. */
bool rp_may_differ(const struct rp_report *r, uint32_t psn, const char *kind);
/** Reports that karst does @kind at @psn; wrong unless it is listed.  @return true if it is
 * listed. */
bool rp_differs(struct rp_report *r, uint32_t psn, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* --- captures --- */

/** What the wire did to a frame after it was captured. */
enum rp_fate { RP_PASSED, RP_DROPPED, RP_DOUBLED, RP_DELAYED, RP_CORRUPTED, RP_MARKED };

/** A RoCE frame of a capture. */
struct rp_frame {
	uint32_t number; /* in the file, from 1 */
	uint64_t ns;     /* when it was captured */
	enum rp_fate fate;
	uint32_t opf;         /* flags of its opcode */
	unsigned int from;    /* 0: of the client, 1: of the server */
	unsigned int port;    /* of either side; queue pairs of two ports may have the same
			       * number */
	struct karst_frame f; /* its payload points into the capture's memory */
};

struct rp_capture {
	char *name;
	uint8_t *bytes; /* of the file */
	struct rp_frame *frames;
	unsigned int n;
	/* What each side sent was lost, or reordered, before it was captured. */
	bool lossy[2];
	bool shuffled[2];
	char *command;
};

/** -errno; a row of the manifest and the file that it names. */
int rp_capture_read(const char *folder, const char *row, struct rp_capture *c);
void rp_capture_free(struct rp_capture *c);
/** Whether the command of that side receives from a shared queue. */
bool rp_uses_srq(const struct rp_capture *c, unsigned int side);
/** Value of an option of the client's or server's (@side) command, if it is the exerciser "vt". */
uint32_t rp_option(const struct rp_capture *c, unsigned int side, char letter, uint32_t without);

/* --- streams --- */

/** The requests that one queue pair sent to another, and their answers. */
struct rp_stream {
	const struct rp_capture *capture;
	enum karst_qp_type type;
	unsigned int from; /* the requester's side */
	unsigned int port;
	uint32_t rqpn; /* requester; 0: not known (nothing came back) */
	uint32_t dqpn; /* responder */
	uint8_t mtu;   /* enum ibv_mtu */
	const struct rp_frame **requests;
	unsigned int nrequests;
	const struct rp_frame **answers;
	unsigned int nanswers;
};

/** @return streams of the capture, without those of queue pair 1; @n how many. */
struct rp_stream *rp_streams(const struct rp_capture *c, unsigned int *n);
void rp_streams_free(struct rp_stream *s, unsigned int n);
/** PSNs that a request packet takes. */
uint32_t rp_npsn(const struct rp_stream *s, const struct rp_frame *f);

/** The PSN that the stream begins with. */
uint32_t rp_first_psn(const struct rp_stream *s);

/** A frame as it reached the other side. */
struct rp_arrival {
	const struct rp_frame *frame;
	uint64_t ns;
};
/** The frames in the order of arrival, with what the wire did; the caller frees the array. */
struct rp_arrival *rp_arrivals(
	const struct rp_frame *const *frames, unsigned int nframes, unsigned int *n);

/* --- the bed --- */

struct rp_out {
	struct karst_pkt pkt;
	struct karst_frame f;
	uint8_t data[KARST_FRAME_MAX];
};

#define RP_OUT_MAX  256u
#define RP_RECV_LEN (1u << 18)
#define RP_CQ_SIZE  4096u
#define RP_WQ_SLOTS 1024u
#define RP_BLOCKS   24u
#define RP_LOCAL_VA 0x700000000000ull

struct rp_bed {
	struct karst_core *core;
	struct karst_mem *mem;
	struct karst_ah_table *ahs;
	uint32_t pd;
	struct karst_core_cq *cq;
	struct karst_cq_lane lane;
	struct karst_core_qp *qp;
	struct karst_core_srq *srq; /* NULL: none */
	uint32_t qpn;
	struct karst_wq sq;
	struct karst_wq rq; /* its own, or the shared one */
	uint8_t *recv;      /* RP_RECV_LEN bytes at RP_LOCAL_VA, where receives go */
	uint32_t recv_key;
	unsigned int receives; /* posted and not completed */
	struct karst_path path;
	struct rp_out *out; /* what the last rp_bed_send() has sent */
	unsigned int nout;
	unsigned int errors; /* asynchronous events of the QP that tell of an error */
	void *blocks[RP_BLOCKS];
	unsigned int nblocks;
};

/** Parameters of a bed's QP: the path from a frame that it sent (@mine) or received. */
struct rp_qp_setup {
	enum karst_qp_type type;
	const struct rp_frame *example;
	bool mine;
	uint32_t dest_qpn;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t qkey;
	uint8_t mtu;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t min_rnr_timer;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	bool srq; /* receives from a shared queue */
};

struct rp_bed *rp_bed_open(const struct rp_qp_setup *s, uint64_t now_ns);
void rp_bed_close(struct rp_bed *b);
/** Plays frame @f unchanged except for the QP number; @return why it was dropped. */
enum karst_drop rp_bed_receive(struct rp_bed *b, const struct karst_frame *f, enum rp_fate fate);
/** Runs the timers that are due at @now_ns. */
void rp_bed_time(struct rp_bed *b, uint64_t now_ns);
/** Lets the QP send up to @frames frames, which are then in b->out; flushes. */
void rp_bed_send(struct rp_bed *b, unsigned int frames);
/** The next completion; NULL: there is none. */
const struct karst_cqe *rp_bed_completion(struct rp_bed *b);
/** Posts a receive of @len bytes at b->recv. */
void rp_bed_post_receive(struct rp_bed *b, uint32_t len);
/** The send work request to be filled in (zeros), and a call to post it. */
struct karst_send_wqe *rp_bed_slot(struct rp_bed *b);
void rp_bed_post(struct rp_bed *b);

/**
 * Compares a frame that karst sent with one of the capture, field by field; differences are
 * reported to @r.  Not compared are the number of the sender in a DETH, and what is outside of BTH,
 * headers, payload and pad.
 * @return how many differences were not listed.
 */
unsigned int rp_compare(
	struct rp_report *r, const struct karst_ib_hdrs *ours, const struct karst_ib_hdrs *theirs);
/** Whether they are the same in all that rp_compare() compares. */
bool rp_same(const struct karst_ib_hdrs *ours, const struct karst_ib_hdrs *theirs);

/* --- memory behind keys --- */

/** Why the key of a request that was refused for its key is invalid. */
enum rp_refusal { RP_UNKNOWN_KEY, RP_NO_PERMISSION, RP_OUT_OF_BOUNDS, RP_REFUSALS };

struct rp_region {
	uint32_t rkey; /* as captured */
	uint64_t va;
	uint64_t end;
	bool good;        /* some request by it was not refused */
	bool invalidated; /* a SEND with Invalidate names it: a window of type 2 */
	uint32_t key;     /* karst's */
	uint8_t *host;
};

struct rp_regions {
	struct rp_region *all;
	unsigned int n;
};

void rp_regions_open(
	struct rp_regions *g, struct rp_bed *b, const struct rp_stream *s, enum rp_refusal refusal);
void rp_regions_close(struct rp_regions *g);
/** The address of a captured key's memory; NULL: none. */
uint8_t *rp_region_at(const struct rp_regions *g, uint32_t rkey, uint64_t va, uint32_t len);
/** Replaces captured keys by karst's. */
void rp_regions_translate(const struct rp_regions *g, struct karst_ib_hdrs *ib, uint32_t opf);

/* --- messages --- */

/** A work request that was posted by the captured program. */
struct rp_message {
	enum karst_wr_opcode op;
	uint32_t psn;
	uint32_t npsn;
	uint32_t len;
	uint32_t expect_len; /* what its RETH says */
	uint32_t feth;       /* FLUSH */
	bool solicited;
	uint32_t imm; /* or the key to invalidate */
	uint64_t va;
	uint32_t rkey;
	uint64_t compare;
	uint64_t swap_add;
	uint8_t *data;   /* what is sent; READ, atomics: where the result goes */
	uint8_t *expect; /* READ, atomics: what the captured requester got */
	bool posted;
};

/** @return the work requests behind a stream, in order. */
struct rp_message *rp_messages(struct rp_report *r, const struct rp_stream *s, unsigned int *n);
void rp_messages_free(struct rp_message *m, unsigned int n);
void rp_message_post(struct rp_bed *b, struct rp_message *m);

/* --- halves --- */

void rp_responder(struct rp_report *r, const struct rp_stream *s, enum rp_refusal refusal);
/** Whether a key was refused, so that the reason matters. */
bool rp_responder_refuses(const struct rp_stream *s);
/** The same, where everything that arrived between two answers is delivered at once: ACKs may be
 * coalesced (R11). */
void rp_responder_burst(struct rp_report *r, const struct rp_stream *s);
void rp_requester(struct rp_report *r, const struct rp_stream *s);
void rp_datagrams_in(struct rp_report *r, const struct rp_stream *s);
void rp_datagrams_out(struct rp_report *r, const struct rp_stream *s);
/** Plays both sides of all management datagrams of a capture.  @return how many there are. */
unsigned int rp_cm(struct rp_report *r, const struct rp_capture *c, unsigned int side);

#endif /* TEST_REPLAY_H */
