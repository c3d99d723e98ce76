/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * One karst_core under test, and everything around it under the test's control: the peer at frame
 * level, the program at ring level, the clock.  Tests read like traces of the wire:
 *
 *	send_pkt(b, RC_WRITE_ONLY, R(0), .va = VA, .rkey = b->key, .dma_len = 64, .pay_len = 64,
 *		.ackreq = true);
 *	expect_ack(b, R(0), 1);
 *
 * send_pkt() builds a frame, seals it, has it parsed, verified, looked up and delivered, and
 * returns why it was dropped.  expect_*() take the next frame that the core has sent (parsed back
 * and verified, too); when there is none they let the core have a turn first.  expect_wc() and
 * expect_recv() do the same for completions, and expect_event() for events.  bed_close() fails the
 * test if anything is left that the test has not consumed.
 *
 * R(n) and S(n) are the n-th PSN of the peer's and of our requests; both begin three before the end
 * of the number space, so that most tests cross it (P1).
 *
 * After each turn the invariants of the QPs are checked (selfcheck.h), and the memory around the
 * buffer must be unchanged.
 */
#ifndef QP_HARNESS_H
#define QP_HARNESS_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"
#include "karst_psn.h"
#include "karst_qp.h"

#define BUF_BYTES 65536u
#define VA        0x700000000000ull /* address of buf in work requests and for peers */
#define PEER_VA   0x123456789000ull
#define PEER_RKEY 0xabcdef01u
#define PEER_QPN  0x4711u
#define FIRST_PSN 0xfffffdu
#define MTU       256u
#define GUARD     4096u
#define US        1000ull
#define MS        1000000ull
#define RTO       (4096ull << 10) /* the timeout of setup_of() */

#define R(n) karst_psn_add(b->rq_psn, (uint32_t)(n))
#define S(n) karst_psn_add(b->sq_psn, (uint32_t)(n))

/** A QP with its rings. */
struct side {
	struct karst_core_qp *qp;
	uint32_t qpn;
	struct karst_wq sq;
	struct karst_wq rq;
	void *qp_mem;
	void *sq_mem;
	void *rq_mem;
};

struct out_frame {
	struct karst_pkt pkt;
	uint8_t data[KARST_FRAME_MAX];
};

struct event {
	enum karst_async_event_code event;
	const void *object;
};

#define OUT_MAX   600u
#define EVENT_MAX 64u
#define SIDES     72u

struct bed {
	struct karst_core *core;
	struct karst_mem *mem;
	struct karst_ah_table *ahs;
	uint32_t pd;
	uint32_t srq_pd;
	uint8_t *buf;     /* BUF_BYTES, guarded on both sides */
	uint32_t key;     /* buf, at VA, with all rights */
	uint8_t *pattern; /* BUF_BYTES: what the peer sends when .pay is not given */
	struct karst_path path;

	struct karst_core_cq *scq;
	struct karst_core_cq *rcq;
	struct karst_cq_lane slane;
	struct karst_cq_lane rlane;
	void *scq_shared;
	void *scq_lanes;
	void *rcq_shared;
	void *rcq_lanes;
	struct karst_core_srq *srq;
	struct karst_wq srq_wq;

	struct side side[SIDES];
	unsigned int nsides;
	struct side *s; /* the QP that helpers use unless told otherwise */
	uint32_t rq_psn;
	uint32_t sq_psn;

	struct out_frame *out;
	uint32_t out_head;
	uint32_t out_tail;
	struct event events[EVENT_MAX];
	uint32_t event_head;
	uint32_t event_tail;
	uint32_t cq_events;                                           /* of both queues */
	void (*at_cq_event)(struct bed *b, struct karst_core_cq *cq); /* if not NULL */
	uint32_t charge; /* of the last visit: bytes that are charged for requests without a
			  * frame */
	struct karst_cqe wc;
	struct karst_pkt rx_pkt; /* of the last frame that was delivered; its data is gone */
	void *mem_block[16];
	unsigned int nblocks;
	uint8_t *guarded;
};

/** How a bed is made: tests change the members that they need different. */
struct setup {
	struct karst_core_config core;
	struct karst_qp_init qp;
	struct karst_core_qp_attr attr;
	enum karst_qp_state state; /* the state to bring the QP to: RTS unless changed */
	uint32_t cq_entries;
	uint32_t srq_wr; /* not 0: use a shared receive queue */
	uint32_t srq_limit;
	uint32_t srq_xrcd; /* not 0: it is an XRC SRQ, of this domain */
	bool srq_own_pd;   /* it has a protection domain of its own: b->srq_pd */
};

struct setup setup_of(enum karst_qp_type type);
/** setup_of() with congestion control; @config, which the core goes on to use, gets adapters'
 * defaults. */
struct setup setup_congested(enum karst_qp_type type, enum karst_congestion_mode mode,
	struct karst_congestion_config *config);
struct bed *bed_open(const struct setup *s);
/** Opens a bed with an RC (UC, UD) QP in RTS, as setup_of() describes. */
struct bed *bed_rc(void);
/** Adds another QP of the same kind; it becomes b->s. */
struct side *bed_add(struct bed *b, const struct setup *s);
/** Checks that nothing is left over; then destroys everything. */
#define bed_close(b) bed_close_at(b, __FILE__, __LINE__)
void bed_close_at(struct bed *b, const char *file, int line);
void bed_destroy_side(struct bed *b, struct side *s);
/** Registers another region in buf. */
uint32_t bed_region(struct bed *b, uint32_t off, uint32_t len, unsigned int access);
void bed_dereg(struct bed *b, uint32_t key);

/** karst_qp_modify() of b->s. */
int bed_modify(struct bed *b, const struct karst_core_qp_attr *attr, unsigned int mask);
int bed_to_state(struct bed *b, enum karst_qp_state state);
/** Takes the QP from RESET to @to with the attributes of @s. */
void bed_bring_up(struct bed *b, const struct setup *s, enum karst_qp_state to);

/* --- the peer --- */

/** Delivers a frame. dqpn 0 means ours, pkey 0 means 0xffff; returns pkt.drop. */
enum karst_drop bed_rx(struct bed *b, const struct karst_ib_hdrs *ib);
#define send_pkt(b, opc, seq, ...) \
	bed_rx(b, &(struct karst_ib_hdrs){.opcode = KARST_##opc, .psn = (seq), ##__VA_ARGS__})
/** Builds the frame that bed_rx() would deliver, to be changed and given to bed_rx_frame(). */
struct karst_frame bed_frame(const struct bed *b, const struct karst_ib_hdrs *ib);
enum karst_drop bed_rx_frame(struct bed *b, const struct karst_frame *f);
/** Delivers @n packets as bed_rx() would, without payload and with PSNs from ib->psn on; all must
 * be accepted.  They are built and parsed once. */
void bed_rx_many(struct bed *b, const struct karst_ib_hdrs *ib, uint32_t n);

#define expect_drop(b, reason, call) cr_assert_eq((call), KARST_DROP_##reason, "%s", #call)
#define expect_taken(b, call)        expect_drop(b, NONE, call)

/** Sends an ACK of the peer, or a NAK with one of KARST_NAK_*; @return why it was dropped. */
static inline enum karst_drop
send_ack(struct bed *b, uint32_t psn, uint32_t msn)
{
	return send_pkt(b, RC_ACK, psn, .aeth = (uint32_t)KARST_AETH_CREDIT_UNLIMITED << 24 | msn);
}

static inline enum karst_drop
send_nak(struct bed *b, uint32_t psn, uint32_t code)
{
	return send_pkt(b, RC_ACK, psn, .aeth = ((uint32_t)KARST_AETH_NAK | code) << 24);
}

/** Sends an ACK that must be accepted. */
static inline void
ack(struct bed *b, uint32_t psn, uint32_t msn)
{
	expect_taken(b, send_ack(b, psn, msn));
}

/** Sends a WRITE Only to @off of buf, with AckReq. */
static inline enum karst_drop
send_write(struct bed *b, uint32_t psn, uint32_t off, uint32_t len)
{
	return send_pkt(b, RC_WRITE_ONLY, psn, .va = VA + off, .rkey = b->key, .dma_len = len,
		.pay_len = (uint16_t)len, .ackreq = true);
}

/* --- what the core sends --- */

const struct karst_pkt *expect_at(
	struct bed *b, const char *file, int line, uint8_t opcode, uint32_t psn);
#define expect_pkt(b, opc, seq) expect_at(b, __FILE__, __LINE__, KARST_##opc, seq)
void expect_aeth_at(
	struct bed *b, const char *file, int line, uint32_t psn, uint8_t syndrome, uint32_t msn);
#define expect_aeth(b, psn, syndrome, msn) expect_aeth_at(b, __FILE__, __LINE__, psn, syndrome, msn)
#define expect_ack(b, psn, msn)            expect_aeth(b, psn, 0x1f, msn)
#define expect_nak(b, psn, n, msn)         expect_aeth(b, psn, KARST_AETH_NAK | KARST_NAK_##n, msn)
#define expect_rnr(b, psn, code, msn)      expect_aeth(b, psn, KARST_AETH_RNR | (code), msn)
void expect_none_at(struct bed *b, const char *file, int line);
#define expect_none(b) expect_none_at(b, __FILE__, __LINE__)
/** Checks that the payload of a frame is @len bytes of buf from @off on. */
void expect_data_at(const struct bed *b, const char *file, int line, const struct karst_pkt *p,
	uint32_t off, uint32_t len);
#define expect_data(b, p, off, len) expect_data_at(b, __FILE__, __LINE__, p, off, len)
/** Checks that buf holds @len bytes of the pattern from @from on. */
void expect_mem_at(
	const struct bed *b, const char *file, int line, uint32_t off, uint32_t from, uint32_t len);
#define expect_mem(b, off, from, len) expect_mem_at(b, __FILE__, __LINE__, off, from, len)
/** Checks that buf holds what it held at the beginning. */
void expect_untouched_at(
	const struct bed *b, const char *file, int line, uint32_t off, uint32_t len);
#define expect_untouched(b, off, len) expect_untouched_at(b, __FILE__, __LINE__, off, len)

/** Expects packets of a WRITE that was posted as the only request, from number @from of @packets
 * on; the first one has S(@first). */
void expect_write(struct bed *b, uint32_t first, uint32_t from, uint32_t packets);

/** Runs timers, transmits until no QP has anything to send, flushes. */
void turn(struct bed *b);
/** Makes one visit to one QP, with room for @frames and @bytes; no timers.  @return whether the QP
 * has more to send. */
bool turn_once(struct bed *b, uint32_t frames, uint32_t bytes);
/** Makes one visit to the QP that the scheduler picks, with room for @frames; with @parked, does
 * instead what is done for a QP whose port is full.  @return that QP; NULL: none */
struct karst_core_qp *visit_picked(struct bed *b, uint32_t frames, struct karst_parked *parked);
/** Advances the clock, then calls turn(). */
void advance_time(struct bed *b, uint64_t ns);

/* --- the program --- */

struct wr {
	enum karst_wr_opcode op;
	uint64_t id;
	uint32_t off; /* offset in buf; with len the only SGE, unless sge is given */
	uint32_t len;
	uint32_t flags; /* enum karst_send_flags besides SIGNALED */
	bool quiet;     /* unsignaled */
	uint32_t imm;   /* or the key to invalidate */
	uint64_t va;    /* 0: PEER_VA */
	uint32_t rkey;  /* 0: PEER_RKEY */
	uint32_t srqn;  /* XRC */
	uint32_t lkey;  /* 0: b->key */
	const struct karst_sge *sge;
	uint32_t nsge;
	const void *inl; /* inline data, len bytes */
	uint64_t compare_add;
	uint64_t swap;
	uint32_t ah;
	uint32_t qpn;
	uint32_t qkey;
	struct karst_mw_bind bind;
	struct {
		uint32_t len;
		uint8_t type; /* enum karst_flush_type */
		uint8_t level;
	} flush;
};

void bed_post(struct bed *b, const struct wr *wr);
#define post(b, opc, wrid, ...) \
	bed_post(b, &(struct wr){.op = KARST_WR_##opc, .id = (wrid), ##__VA_ARGS__})
/** Posts a BIND_MW of window @mw, as @new_key (0: of type 1), to 64 bytes at VA of the bed's
 * memory. */
void bed_bind(struct bed *b, uint64_t id, uint32_t mw, uint32_t new_key, unsigned int access);
/** The next free slot of the send ring as bytes, and a call to publish it. */
struct karst_send_wqe *bed_slot(struct bed *b);
void bed_publish(struct bed *b, uint32_t n);
void post_recv(struct bed *b, uint64_t id, uint32_t off, uint32_t len);
void post_recv_sge(struct bed *b, uint64_t id, const struct karst_sge *sge, uint32_t nsge);

const struct karst_cqe *expect_wc_at(
	struct bed *b, const char *file, int line, bool recv, uint64_t id, enum karst_wc_status st);
#define expect_wc(b, id, st)   expect_wc_at(b, __FILE__, __LINE__, false, id, KARST_WC_##st)
#define expect_recv(b, id, st) expect_wc_at(b, __FILE__, __LINE__, true, id, KARST_WC_##st)
void expect_no_wc_at(struct bed *b, const char *file, int line);
#define expect_no_wc(b) expect_no_wc_at(b, __FILE__, __LINE__)
void expect_event_at(struct bed *b, const char *file, int line, enum karst_async_event_code event,
	const void *object);
/** Expects that the next event is about b->s. */
#define expect_event(b, ev) expect_event_at(b, __FILE__, __LINE__, KARST_EVENT_##ev, (b)->s->qp)
#define expect_event_of(b, ev, object) \
	expect_event_at(b, __FILE__, __LINE__, KARST_EVENT_##ev, object)
void expect_no_event_at(struct bed *b, const char *file, int line);
#define expect_no_event(b) expect_no_event_at(b, __FILE__, __LINE__)
void expect_state_at(struct bed *b, const char *file, int line, enum karst_qp_state state);
#define expect_state(b, st) expect_state_at(b, __FILE__, __LINE__, KARST_QPS_##st)

/** Discards all frames, completions and events so far. */
void bed_forget(struct bed *b);

#define drops(b, reason) ((b)->core->counters.drop[KARST_DROP_##reason])
#define count(b, ctr_)   ((b)->core->counters.ctr[KARST_CTR_##ctr_])

/* --- between the files of the harness --- */

/** Checks that memory around buf is unchanged. */
void bed_check_guards(const struct bed *b);

#endif /* QP_HARNESS_H */
