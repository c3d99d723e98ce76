/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * One struct karst_cm under test; the test controls the peer at message level, the user and the
 * clock.  Tests read as traces:
 *
 *	send_msg(b, peer_req(b, 0));
 *	id = expect_ev(b, REQ)->id;
 *	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
 *	expect_msg(b, REP);
 *
 * send_msg() delivers a message of the peer; expect_msg() and expect_ev() take the next message
 * sent and the next event, and fail if it is another one; advance() lets time pass. cm_bed_down()
 * fails the test if anything is left that the test has not consumed.  After each step the
 * invariants of the tables are checked.
 */
#ifndef CM_BED_H
#define CM_BED_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "karst_cm.h"

#define MS           UINT64_C(1000000)
#define SECOND       UINT64_C(1000000000)
#define OUR_GUID     UINT64_C(0x0200000000000001)
#define PEER_GUID    UINT64_C(0x0200000000000002)
#define SERVICE      UINT64_C(0x0000000001061c06)
#define PEER_ID      0x50000001u
#define PEER_QPN     0x2000u
#define OUR_QPN      0x1000u
#define TID          UINT64_C(0x1122334400000000)
#define BED_QUEUE    512u
#define BED_LISTENER ((void *)&bed_listener)
#define BED_USER     ((void *)&bed_user)

extern char bed_listener, bed_user; /* only their addresses matter */

struct cm_bed_msg {
	struct karst_cm_path path;
	uint8_t mad[KARST_CM_MAD_LEN];
	struct karst_cm_msg m;
};

struct cm_bed_ev {
	struct karst_cm_ev ev;
	struct karst_cm_path path, alternate;
	uint8_t private_data[256];
	uint8_t info[KARST_CM_REJ_INFO];
};

struct cm_bed {
	struct karst_cm *cm;
	void *mem;
	struct karst_cm_path path;   /* from us to the peer */
	struct karst_cm_param param; /* of this side's queue pair */
	struct cm_bed_msg out[BED_QUEUE];
	uint32_t out_head, out_tail;
	struct cm_bed_ev evs[BED_QUEUE];
	uint32_t ev_head, ev_tail;
	/* if set, called with each event, after it was recorded */
	void (*on_event)(struct cm_bed *b, const struct karst_cm_ev *ev);
};

/** @cfg may be NULL; guid, seed and ops are filled in.  @return @bed */
struct cm_bed *cm_bed_up(struct cm_bed *bed, const struct karst_cm_config *cfg);
void cm_bed_down(struct cm_bed *bed);

/** The path from the n-th peer address, which is that of the path with another last byte. */
struct karst_cm_path seen_from(const struct cm_bed *b, unsigned int n);
void send_msg(struct cm_bed *b, struct karst_cm_msg m);
void send_from(struct cm_bed *b, unsigned int n, struct karst_cm_msg m);
void send_raw(struct cm_bed *b, const void *mad, size_t len);
void advance(struct cm_bed *b, uint64_t ns);

/** The REQ of the peer's n-th connection: its comm id, QP number and TID are n more. */
struct karst_cm_msg peer_req(const struct cm_bed *b, uint32_t n);
/** A message of the peer about our @id, as the answer to @about (may be NULL: the n-th REQ). */
struct karst_cm_msg peer_msg(
	enum karst_cm_kind kind, uint32_t id, const struct cm_bed_msg *about, uint32_t n);
struct karst_cm_msg peer_rep(const struct cm_bed_msg *req, uint32_t n);
struct karst_cm_msg peer_dreq(uint32_t id, uint32_t n);
/** The peer's LAP about our @id, of the n-th connection: a path between other addresses, with every
 * member set. */
struct karst_cm_msg peer_lap(const struct cm_bed *b, uint32_t id, uint32_t n);
/** The same path, seen from this side. */
struct karst_cm_path alternate_path(const struct cm_bed *b);

struct cm_bed_msg *cm_bed_msg_at(struct cm_bed *b, enum karst_cm_kind kind, int line);
const struct karst_cm_ev *cm_bed_ev_at(struct cm_bed *b, enum karst_cm_ev_code code, int line);
void cm_bed_no_msg_at(struct cm_bed *b, int line);
void cm_bed_no_ev_at(struct cm_bed *b, int line);
#define expect_msg(b, kind) cm_bed_msg_at(b, KARST_CM_##kind, __LINE__)
#define expect_ev(b, code)  cm_bed_ev_at(b, KARST_CM_EV_##code, __LINE__)
#define expect_no_msg(b)    cm_bed_no_msg_at(b, __LINE__)
#define expect_no_ev(b)     cm_bed_no_ev_at(b, __LINE__)

/** A counter, by the symbol of karst_cm_counter.def. */
#define counted(b, symbol)  ((b)->cm->counters.other[KARST_CM_CTR_##symbol])
#define duplicates(b, kind) ((b)->cm->counters.rx_duplicates[KARST_CM_##kind])

/** Shortcuts to a state, for the n-th connection; @return its id. */
uint32_t cm_bed_listen(struct cm_bed *b);
uint32_t cm_bed_req_rcvd(struct cm_bed *b, uint32_t n);
uint32_t cm_bed_rep_sent(struct cm_bed *b, uint32_t n);
uint32_t cm_bed_passive(struct cm_bed *b, uint32_t n); /* established */
uint32_t cm_bed_req_sent(struct cm_bed *b, uint32_t n, struct cm_bed_msg *req);
uint32_t cm_bed_rep_rcvd(struct cm_bed *b, uint32_t n, struct cm_bed_msg *req);
uint32_t cm_bed_active(struct cm_bed *b, uint32_t n); /* established */

enum karst_cm_state state_of(struct cm_bed *b, uint32_t id);

#endif /* CM_BED_H */
