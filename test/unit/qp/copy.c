/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory that has to be copied (karst_copy.h): buf once more, as a region whose addresses must not
 * be dereferenced.  Copies are made when a test says so, and as far as it says.
 */
#include "harness.h"

#define FAR      (VA + (1ull << 32)) /* buf's address in that region */
#define COPIES   8u
#define ALL      UINT32_MAX
#define ALL_MASK (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE)

/* --- the driver's side --- */

struct room {
	struct room *next;
	uint8_t bytes[KARST_COPY_ROOM];
};

static struct {
	struct karst_copy copy[COPIES];
	bool used[COPIES];
	struct karst_copy *todo[COPIES];
	uint32_t ntodo;
	uint32_t kept;
	bool in_place;         /* packets are kept where they are */
	bool full;             /* no copy is accepted */
	struct room *rooms;    /* with those that were given back, as frames may still refer to
			        * them */
	const uint8_t *mapped; /* memory from here on may be dereferenced */
} driver;

static uint8_t *
plain(const uint8_t *host)
{
	return (uint8_t *)((uintptr_t)host & ~(uintptr_t)KARST_MEM_UNMAPPED);
}

static uint8_t *
map(struct karst_core *core, const uint8_t *host, uint32_t *n)
{
	uint8_t *p = plain(host);

	if (driver.mapped != NULL && p >= driver.mapped)
		return p;
	if (driver.mapped != NULL)
		*n = karst_min_u32(*n, (uint32_t)(driver.mapped - p));
	return NULL;
}

static struct karst_copy *
take(struct karst_core *core)
{
	struct room *room;
	uint32_t i;

	for (i = 0; i < COPIES && driver.used[i]; i++)
		;
	if (i == COPIES)
		return NULL;
	driver.used[i] = true;
	room = malloc(sizeof(*room));
	room->next = driver.rooms;
	driver.rooms = room;
	driver.copy[i].room = room->bytes;
	return &driver.copy[i];
}

static bool
submit(struct karst_core *core, struct karst_copy *c)
{
	if (driver.full)
		return false;
	driver.todo[driver.ntodo++] = c;
	return true;
}

static void
release(struct karst_core *core, struct karst_pkt *pkt)
{
	driver.kept--;
	free(pkt->data);
	free(pkt);
}

static void
give_back(struct karst_core *core, struct karst_copy *c)
{
	uint32_t i, n = 0;

	for (i = 0; i < driver.ntodo; i++)
		if (driver.todo[i] != c)
			driver.todo[n++] = driver.todo[i];
	driver.ntodo = n;
	if (c->half == KARST_COPY_RX && c->pkt != NULL)
		release(core, c->pkt);
	driver.used[c - driver.copy] = false;
}

static struct karst_pkt *
keep(struct karst_core *core, struct karst_copy *c, struct karst_pkt *pkt)
{
	struct karst_pkt *copy;

	driver.kept++;
	if (driver.in_place)
		return pkt;
	copy = malloc(sizeof(*copy));
	*copy = *pkt;
	copy->data = malloc(pkt->len);
	memcpy(copy->data, pkt->data, pkt->len);
	return copy;
}

static void
unkeep(struct karst_core *core, struct karst_pkt *pkt)
{
	driver.kept--;
}

static const struct karst_copy_ops ops = {
	.map = map,
	.take = take,
	.submit = submit,
	.give_back = give_back,
	.keep = keep,
	.unkeep = unkeep,
	.release = release,
};

static uint32_t
move(struct karst_copy *c, uint32_t most)
{
	uint32_t i, moved = 0;

	for (i = 0; i < c->nparts && moved < most; i++) {
		const struct karst_copy_part *p = &c->part[i];
		uint32_t n = karst_min_u32(p->n, most - moved);
		uint64_t old;

		memcpy(&old, plain(p->host), sizeof(old));
		if (c->op == KARST_COPY_READ)
			memcpy(p->local, plain(p->host), n);
		else if (c->op == KARST_COPY_WRITE)
			memcpy(plain(p->host), p->local, n);
		else if (c->op == KARST_COPY_STORE)
			memcpy(plain(p->host), &c->operand, 8);
		c->old = old;
		if (c->op == KARST_COPY_FAA)
			old += c->operand;
		else if (c->op == KARST_COPY_CAS && old == c->compare)
			old = c->operand;
		if (c->op == KARST_COPY_FAA || c->op == KARST_COPY_CAS)
			memcpy(plain(p->host), &old, 8);
		moved += n;
	}
	return moved;
}

/* Makes all copies that are pending now, each up to byte @most.  @return how many. */
static uint32_t
copy_once(struct bed *b, uint32_t most)
{
	struct karst_copy *todo[COPIES];
	uint32_t i, n = driver.ntodo;

	memcpy(todo, driver.todo, sizeof(todo));
	driver.ntodo = 0;
	for (i = 0; i < n; i++) {
		todo[i]->moved = move(todo[i], most);
		karst_copy_done(b->core, todo[i]);
	}
	return n;
}

static void
copy_all(struct bed *b)
{
	while (copy_once(b, ALL) > 0)
		;
	turn(b);
}

/* --- a test bed with such a driver --- */

static uint32_t far_key;

static struct bed *
open_far_with(struct setup *s)
{
	struct bed *b;

	s->core.copy_ops = &ops;
	b = bed_open(s);
	cr_assert_eq(karst_mr_reg(b->mem, b->pd, (void *)((uintptr_t)b->buf | KARST_MEM_UNMAPPED),
			     FAR, BUF_BYTES, ALL_MASK, &far_key),
		0);
	return b;
}

static struct bed *
open_far(enum karst_qp_type type)
{
	struct setup s = setup_of(type);

	return open_far_with(&s);
}

static void
close_far(struct bed *b)
{
	struct room *room;
	uint32_t i;

	bed_dereg(b, far_key);
	bed_close(b);
	while ((room = driver.rooms) != NULL) {
		driver.rooms = room->next;
		free(room);
	}
	cr_assert_eq(driver.kept, 0, "packets");
	cr_assert_eq(driver.ntodo, 0, "copies to do");
	for (i = 0; i < COPIES; i++)
		cr_assert_not(driver.used[i], "copies");
}

#define FAR_SGE(off_, len_)                                          \
	{                                                            \
		.addr = FAR + (off_), .len = (len_), .lkey = far_key \
	}
#define write_far(b, seq, off_, len_)                                                              \
	send_pkt(b, RC_WRITE_ONLY, R(seq), .va = FAR + (off_), .rkey = far_key, .dma_len = (len_), \
		.pay_len = (len_), .ackreq = true)

/* --- packets --- */

Test(copy, write_parks_and_what_follows_waits)
{
	struct bed *b = open_far(KARST_QPT_RC);

	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b,
		send_pkt(b, RC_WRITE_ONLY, R(1), .va = VA + 128, .rkey = b->key, .dma_len = 64,
			.pay_len = 64, .ackreq = true));
	expect_taken(b, write_far(b, 0, 0, 64)); /* once more */
	expect_taken(b, write_far(b, 2, 256, 64));
	expect_none(b);
	expect_untouched(b, 0, 512);
	cr_assert_eq(copy_once(b, ALL), 1);
	expect_mem(b, 0, 0, 64);
	expect_mem(b, 128, 0, 64);
	expect_untouched(b, 256, 64);
	expect_ack(b, R(1), 2);
	copy_all(b);
	expect_mem(b, 256, 0, 64);
	expect_ack(b, R(2), 3);
	cr_assert_eq(drops(b, DUPLICATE), 1);
	cr_assert_eq(count(b, DUPLICATE_REQUEST), 1);
	close_far(b);
}

/* (R15): a FLUSH is not answered before the WRITEs in front of it have been copied, wherever its
 * range is. */
Test(copy, r15_flush_waits_for_copies)
{
	struct bed *b = open_far(KARST_QPT_RC);

	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b,
		send_pkt(b, RC_FLUSH, R(1), .feth = KARST_FLUSH_GLOBAL, .va = FAR, .rkey = far_key,
			.dma_len = 64, .ackreq = true));
	expect_taken(b,
		send_pkt(b, RC_FLUSH, R(2), .feth = KARST_FLUSH_GLOBAL, .va = VA, .rkey = b->key,
			.dma_len = 8, .ackreq = true));
	expect_none(b);
	expect_untouched(b, 0, 64);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	cr_assert_eq(expect_pkt(b, RC_READ_RESP_ONLY, R(1))->aeth, 0x1f000003);
	expect_pkt(b, RC_READ_RESP_ONLY, R(2));
	close_far(b);
}

/* A packet that is dropped because no copy is accepted takes no place of those that wait. */
Test(copy, write_whose_copy_is_not_accepted)
{
	struct bed *b = open_far(KARST_QPT_RC);

	driver.full = true;
	write_far(b, 0, 0, 64);
	cr_assert_eq(driver.kept, 0);
	driver.in_place = true;
	write_far(b, 0, 0, 64);
	cr_assert_eq(driver.kept, 0);
	cr_assert_eq(drops(b, COPY_FULL), 2);
	driver.full = driver.in_place = false;
	expect_taken(b, write_far(b, 0, 0, 64));
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(0), 1);
	close_far(b);
}

Test(copy, write_that_cannot_be_placed)
{
	struct bed *b = open_far(KARST_QPT_RC);

	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b, write_far(b, 1, 64, 64));
	copy_once(b, 63);
	expect_nak(b, R(0), REM_ACCESS, 0);
	expect_event(b, QP_ACCESS_ERR);
	expect_state(b, ERR);
	cr_assert_eq(drops(b, REQUEST), 1);
	cr_assert_eq(drops(b, QP_STATE), 1, "what waited behind it");
	close_far(b);
}

Test(copy, order_of_a_message)
{
	struct bed *b = open_far(KARST_QPT_RC);

	/* its end is mapped: nothing is stored there before the rest has been copied */
	driver.mapped = b->buf + 32;
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_untouched(b, 0, 64);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(0), 1);
	/* all of it is mapped */
	expect_taken(b, write_far(b, 1, 64, 64));
	cr_assert_eq(driver.ntodo, 0);
	expect_mem(b, 64, 0, 64);
	expect_ack(b, R(1), 2);
	close_far(b);
}

Test(copy, too_many_wait)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint32_t i;

	for (i = 0; i <= KARST_COPY_BACKLOG; i++)
		expect_taken(b, write_far(b, i, 64 * i, 64));
	expect_drop(b, COPY_FULL, write_far(b, i, 64 * i, 64));
	copy_all(b);
	expect_ack(b, R(i - 1), i);
	expect_mem(b, 64 * (i - 1), 0, 64);
	expect_untouched(b, 64 * i, 64);
	/* the peer goes back to the dropped request */
	expect_drop(b, SEQUENCE, write_far(b, i + 1, 0, 64));
	expect_nak(b, R(i), PSN_SEQ, i);
	close_far(b);
}

Test(copy, none_is_left)
{
	struct bed *b = open_far(KARST_QPT_RC);

	memset(driver.used, true, sizeof(driver.used));
	expect_drop(b, COPY_FULL, write_far(b, 0, 0, 64));
	memset(driver.used, false, sizeof(driver.used));
	expect_taken(b, write_far(b, 0, 0, 64));
	copy_all(b);
	expect_ack(b, R(0), 1);
	close_far(b);
}

Test(copy, message_into_a_receive)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge[] = {
		FAR_SGE(0, 100), {.addr = VA + 1024, .len = 300, .lkey = b->key}};

	post_recv_sge(b, 1, sge, 2);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = MTU));
	expect_taken(b, send_pkt(b, RC_SEND_LAST, R(1), .pay_len = 64, .ackreq = true));
	expect_no_wc(b);
	copy_all(b);
	expect_mem(b, 0, 0, 100);
	expect_mem(b, 1024, 100, MTU - 100);
	cr_assert_eq(expect_recv(b, 1, SUCCESS)->byte_len, MTU + 64);
	expect_ack(b, R(1), 1);
	close_far(b);
}

/* It has no bytes to place, but its completion says that the WRITEs before it have arrived
 * (R14). */
Test(copy, immediate_of_no_bytes_waits)
{
	struct bed *b = open_far(KARST_QPT_RC);

	post_recv(b, 1, 1024, 8);
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b,
		send_pkt(b, RC_WRITE_ONLY_IMM, R(1), .va = FAR, .rkey = far_key, .dma_len = 0,
			.imm = 7, .ackreq = true));
	expect_no_wc(b);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	cr_assert_eq(expect_recv(b, 1, SUCCESS)->byte_len, 0);
	expect_ack(b, R(1), 2);
	close_far(b);
}

Test(copy, receive_that_cannot_be_filled)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 100);

	post_recv_sge(b, 1, &sge, 1);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 64, .ackreq = true));
	copy_once(b, 0);
	expect_recv(b, 1, LOC_PROT_ERR);
	expect_nak(b, R(0), REM_OP, 0);
	expect_event(b, QP_REQ_ERR);
	expect_state(b, ERR);
	close_far(b);
}

Test(copy, atomics)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint64_t value = 41, now;

	memcpy(b->buf, &value, 8);
	expect_taken(b,
		send_pkt(b, RC_FETCH_ADD, R(0), .va = FAR, .rkey = far_key, .swap_add = 1,
			.ackreq = true));
	expect_none(b);
	copy_all(b);
	memcpy(&now, b->buf, 8);
	cr_assert_eq(now, 42);
	cr_assert_not_null(expect_pkt(b, RC_ATOMIC_ACK, R(0)));
	expect_taken(b,
		send_pkt(b, RC_FETCH_ADD, R(1), .va = FAR, .rkey = far_key, .swap_add = 1,
			.ackreq = true));
	copy_once(b, 0);
	expect_nak(b, R(1), REM_ACCESS, 1);
	expect_event(b, QP_ACCESS_ERR);
	close_far(b);
}

Test(copy, result_of_an_own_read)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);

	post(b, RDMA_READ, 1, .sge = &sge, .nsge = 1);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 64));
	expect_no_wc(b);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_wc(b, 1, SUCCESS);
	post(b, RDMA_READ, 2, .sge = &sge, .nsge = 1);
	expect_pkt(b, RC_READ_REQUEST, S(1));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1), .pay_len = 64));
	copy_once(b, 8);
	expect_wc(b, 2, LOC_PROT_ERR);
	expect_state(b, ERR);
	close_far(b);
}

Test(copy, uc)
{
	struct bed *b = open_far(KARST_QPT_UC);

	expect_taken(b,
		send_pkt(b, UC_WRITE_ONLY, R(0), .va = FAR, .rkey = far_key, .dma_len = 64,
			.pay_len = 64));
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_taken(b,
		send_pkt(b, UC_WRITE_ONLY, R(1), .va = FAR + 64, .rkey = far_key, .dma_len = 64,
			.pay_len = 64));
	copy_once(b, 0);
	cr_assert_eq(drops(b, UC_ACCESS), 1);
	expect_state(b, RTS);
	close_far(b);
}

Test(copy, ud)
{
	struct bed *b = open_far(KARST_QPT_UD);
	const struct karst_sge sge = FAR_SGE(0, 200);

	post_recv_sge(b, 1, &sge, 1);
	expect_taken(b,
		send_pkt(
			b, UD_SEND_ONLY, R(0), .pay_len = 64, .src_qpn = PEER_QPN, .qkey = 0x1234));
	expect_no_wc(b);
	copy_all(b);
	expect_mem(b, 40, 0, 64);
	cr_assert_eq(expect_recv(b, 1, SUCCESS)->byte_len, 104);
	close_far(b);
}

/* Datagrams are not sent again, so all wait for which there are receives and room in the driver. */
Test(copy, datagrams_wait)
{
	struct setup s = setup_of(KARST_QPT_UD);
	struct karst_sge sge;
	struct bed *b;
	uint32_t i;

	s.qp.max_recv_wr = s.cq_entries = 256;
	b = open_far_with(&s);
	sge = (struct karst_sge)FAR_SGE(0, 200);
	for (i = 0; i < 200; i++)
		post_recv_sge(b, i, &sge, 1);
	for (i = 0; i < 200; i++)
		expect_taken(b,
			send_pkt(b, UD_SEND_ONLY, R(i), .pay_len = 64, .src_qpn = PEER_QPN,
				.qkey = 0x1234));
	copy_all(b);
	for (i = 0; i < 200; i++)
		expect_recv(b, i, SUCCESS);
	cr_assert_eq(drops(b, COPY_FULL), 0);
	close_far(b);
}

/* --- frames --- */

Test(copy, message_from_copied_memory)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge[] = {FAR_SGE(0, 100), FAR_SGE(1000, 300)};
	const struct karst_pkt *p;

	post(b, RDMA_WRITE, 1, .sge = sge, .nsge = 2);
	post(b, SEND, 2, .sge = sge, .nsge = 1);
	expect_none(b);
	cr_assert_eq(copy_once(b, ALL), 1, "both requests at once");
	p = expect_pkt(b, RC_WRITE_FIRST, S(0));
	cr_assert_eq(memcmp(p->data + p->pay_off, b->buf, 100), 0);
	cr_assert_eq(memcmp(p->data + p->pay_off + 100, b->buf + 1000, MTU - 100), 0);
	p = expect_pkt(b, RC_WRITE_LAST, S(1));
	expect_data(b, p, 1000 + MTU - 100, 400 - MTU);
	p = expect_pkt(b, RC_SEND_ONLY, S(2));
	expect_data(b, p, 0, 100);
	expect_taken(b, send_pkt(b, RC_ACK, S(2)));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	close_far(b);
}

/* A queue pair that gets no copy is not visited again before it is fed; meanwhile it counts as
 * active. */
Test(copy, message_that_waits_for_a_copy)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);
	uint32_t i;

	driver.full = true;
	post(b, SEND, 1, .sge = &sge, .nsge = 1);
	karst_core_doorbell(b->core, b->s->qpn);
	for (i = 0; i < 3; i++) {
		cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp, "visit %u", i);
		cr_assert_null(visit_picked(b, 16, NULL));
		cr_assert(karst_core_has_active(b->core));
		karst_core_feed(b->core, 1);
	}
	driver.full = false;
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	cr_assert_not(karst_core_has_active(b->core));
	cr_assert_eq(copy_once(b, ALL), 1);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	expect_data(b, expect_pkt(b, RC_SEND_ONLY, S(0)), 0, 64);
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* A queue pair that gets no copy for an answer does not keep that of its request: many that did
 * would wait for each other. */
Test(copy, message_that_is_fetched_in_vain)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);
	uint32_t i;

	post(b, SEND, 1, .sge = &sge, .nsge = 1);
	karst_core_doorbell(b->core, b->s->qpn);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	cr_assert_eq(copy_once(b, ALL), 1);
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(0), .va = FAR, .rkey = far_key, .dma_len = 64));
	driver.full = true;
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	expect_data(b, expect_pkt(b, RC_SEND_ONLY, S(0)), 0, 64);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	for (i = 0; i < COPIES; i++)
		cr_assert_not(driver.used[i], "it keeps a copy");
	driver.full = false;
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	expect_data(b, expect_pkt(b, RC_READ_RESP_ONLY, R(0)), 0, 64);
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* Posts a SEND from copied memory on @side, which is visited. */
static void
send_far(struct bed *b, struct side *side)
{
	const struct karst_sge sge = FAR_SGE(0, 64);

	b->s = side;
	post(b, SEND, 1, .sge = &sge, .nsge = 1);
	karst_core_doorbell(b->core, side->qpn);
}

/* A queue pair that has used up its copy waits behind others of its user that have none. */
Test(copy, copies_go_round)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = open_far_with(&s);
	struct side *first = b->s, *second = bed_add(b, &s);

	turn(b);
	send_far(b, first);
	cr_assert_eq(visit_picked(b, 16, NULL), first->qp);
	driver.full = true;
	send_far(b, second);
	cr_assert_eq(visit_picked(b, 16, NULL), second->qp);
	driver.full = false;
	cr_assert_eq(copy_once(b, ALL), 1);
	send_far(b, first);
	cr_assert_eq(visit_picked(b, 16, NULL), first->qp);
	cr_assert_eq(driver.ntodo, 0, "it has the next copy");
	cr_assert_null(visit_picked(b, 16, NULL));
	karst_core_feed(b->core, 2);
	cr_assert_not_null(visit_picked(b, 16, NULL));
	cr_assert_not_null(visit_picked(b, 16, NULL));
	cr_assert_eq(driver.ntodo, 2);
	copy_all(b);
	b->out_head = b->out_tail;
	bed_destroy_side(b, second);
	b->s = first;
	bed_destroy_side(b, first);
	close_far(b);
}

/* Users whose queue pairs wait for copies take turns. */
Test(copy, waiting_users_take_turns)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct side *side[4];
	struct bed *b;
	uint32_t i;

	s.core.max_sharers = 2;
	b = open_far_with(&s);
	side[1] = bed_add(b, &s);
	side[2] = bed_add(b, &s);
	s.qp.sharer = 1;
	side[0] = bed_add(b, &s);
	side[3] = &b->side[0];
	turn(b);
	driver.full = true;
	for (i = 0; i < 4; i++) {
		send_far(b, side[i]);
		cr_assert_eq(visit_picked(b, 16, NULL), side[i]->qp);
	}
	driver.full = false;
	karst_core_feed(b->core, 2);
	cr_assert_neq(visit_picked(b, 16, NULL), visit_picked(b, 16, NULL));
	cr_assert_eq(driver.ntodo, 2);
	cr_assert(driver.todo[0]->qp == side[0]->qp || driver.todo[1]->qp == side[0]->qp,
		"a user waits behind another one's queue pairs");
	karst_core_feed(b->core, 4);
	copy_all(b);
	b->out_head = b->out_tail;
	for (i = 0; i < 4; i++)
		bed_destroy_side(b, side[i]);
	close_far(b);
}

/* Of one user, the queue pair that has waited for longest tries first, and one that has tried in
 * vain is the last. */
Test(copy, first_come_first_served)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = open_far_with(&s);
	struct side *side[4] = {b->s};
	uint32_t i;

	for (i = 1; i < 4; i++)
		side[i] = bed_add(b, &s);
	turn(b);
	driver.full = true;
	for (i = 0; i < 4; i++) {
		send_far(b, side[i]);
		cr_assert_eq(visit_picked(b, 16, NULL), side[i]->qp);
	}
	karst_core_feed(b->core, 1);
	cr_assert_eq(visit_picked(b, 16, NULL), side[0]->qp, "it came first");
	/* the last one, and one between others, leave */
	karst_core_activate(b->core, side[0]->qp);
	bed_destroy_side(b, side[0]);
	bed_destroy_side(b, side[2]);
	karst_core_feed(b->core, 1);
	cr_assert_eq(visit_picked(b, 16, NULL), side[1]->qp);
	driver.full = false;
	karst_core_feed(b->core, 1);
	cr_assert_eq(visit_picked(b, 16, NULL), side[3]->qp);
	karst_core_feed(b->core, 1);
	cr_assert_eq(visit_picked(b, 16, NULL), side[1]->qp);
	cr_assert_not(karst_core_has_active(b->core));
	copy_all(b);
	b->out_head = b->out_tail;
	bed_destroy_side(b, side[1]);
	bed_destroy_side(b, side[3]);
	close_far(b);
}

/* Requests that need no copy do not wait for an answer that gets none. */
Test(copy, request_beside_an_answer_without_copy)
{
	struct bed *b = open_far(KARST_QPT_RC);

	turn(b);
	driver.full = true;
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(0), .va = FAR, .rkey = far_key, .dma_len = 64));
	post(b, SEND, 1, .len = 64);
	karst_core_doorbell(b->core, b->s->qpn);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	driver.full = false;
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	expect_data(b, expect_pkt(b, RC_READ_RESP_ONLY, R(0)), 0, 64);
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* A repetition that gets no copy does not use up retries. */
Test(copy, no_timeout_without_copy)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint32_t i;

	send_far(b, b->s);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	driver.full = true;
	for (i = 0; i < 32; i++) {
		b->core->now_ns += 10000 * MS;
		karst_core_expire(b->core, 1000);
		karst_core_feed(b->core, 1);
		while (visit_picked(b, 16, NULL) != NULL)
			;
	}
	cr_assert_leq(count(b, LOCAL_ACK_TIMEOUT), 1);
	driver.full = false;
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* Makes time pass in which the queue pair tries to get copies. */
static void
wait_in_vain(struct bed *b)
{
	uint32_t i;

	driver.full = true;
	for (i = 0; i < 32; i++) {
		b->core->now_ns += 10000 * MS;
		karst_core_expire(b->core, 1000);
		karst_core_feed(b->core, 1);
		while (visit_picked(b, 16, NULL) != NULL)
			;
	}
	driver.full = false;
}

/* (Q6): a peer that is gone is noticed, although the next request gets no copy. */
Test(copy, q6_timeout_beside_a_request_without_copy)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.retry_cnt = 0;
	b = open_far_with(&s);
	send_far(b, b->s);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	driver.full = true;
	send_far(b, b->s);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	wait_in_vain(b);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1, "the peer's silence is not noticed");
	expect_wc(b, 1, RETRY_EXC_ERR);
	expect_wc(b, 1, WR_FLUSH_ERR);
	expect_state(b, ERR);
	close_far(b);
}

/* (Q6): the peer owes nothing as long as the packet that asks it to acknowledge gets no copy. */
Test(copy, q6_no_timeout_in_a_message_without_copy)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_sge sge;
	struct bed *b;
	uint32_t i;

	s.attr.retry_cnt = 0;
	b = open_far_with(&s);
	sge = (struct karst_sge)FAR_SGE(0, (KARST_COPY_AHEAD + 4) * MTU);
	post(b, RDMA_WRITE, 1, .sge = &sge, .nsge = 1);
	turn(b);
	cr_assert_eq(copy_once(b, ALL), 1);
	driver.full = true;
	for (i = 0; i < 3; i++)
		visit_picked(b, 32, NULL);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	for (i = 1; i < KARST_COPY_AHEAD; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_none(b);
	wait_in_vain(b);
	expect_no_wc(b);
	karst_core_feed(b->core, 1);
	turn(b);
	copy_all(b);
	for (; i < KARST_COPY_AHEAD + 3; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_pkt(b, RC_WRITE_LAST, S(i));
	expect_taken(b, send_pkt(b, RC_ACK, S(i)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

/* (Q6): time that has passed without a copy does not count either when there may be one again. */
Test(copy, q6_no_timeout_before_the_next_attempt)
{
	struct bed *b = open_far(KARST_QPT_RC);

	send_far(b, b->s);
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	driver.full = true;
	b->core->now_ns += 4 * RTO;
	karst_core_expire(b->core, 1000);
	cr_assert_eq(visit_picked(b, 16, NULL), b->s->qp);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	/* nearly as long as a repetition may wait, with two retries left */
	b->core->now_ns += 2 * 3 * RTO - 1;
	karst_core_feed(b->core, 1);
	b->core->now_ns += RTO;
	karst_core_expire(b->core, 1000);
	expect_state(b, RTS);
	driver.full = false;
	turn(b);
	copy_all(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0)));
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}

Test(copy, message_that_cannot_be_fetched)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 3 * MTU);

	post(b, RDMA_WRITE, 1, .sge = &sge, .nsge = 1);
	turn(b);
	copy_once(b, 2 * MTU + 1);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_pkt(b, RC_WRITE_MIDDLE, S(1));
	expect_wc(b, 1, LOC_PROT_ERR);
	expect_state(b, ERR);
	close_far(b);
}

Test(copy, answer_from_copied_memory)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_pkt *p;

	expect_taken(b,
		send_pkt(b, RC_READ_REQUEST, R(0), .va = FAR + 8, .rkey = far_key,
			.dma_len = 2 * MTU));
	expect_none(b);
	copy_all(b);
	p = expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_data(b, p, 8, MTU);
	p = expect_pkt(b, RC_READ_RESP_LAST, R(1));
	expect_data(b, p, 8 + MTU, MTU);
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(2), .va = FAR, .rkey = far_key, .dma_len = 64));
	turn(b);
	copy_once(b, 0);
	expect_nak(b, R(2), REM_ACCESS, 2);
	expect_event(b, QP_ACCESS_ERR);
	close_far(b);
}

/* (R4, D11): a READ that was answered is duplicated late, and its source has gone since: no answer.
 * The first answer that cannot be given is an error (R13). */
Test(copy, source_went_away)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint32_t i;

	for (i = 0; i < 2; i++) {
		expect_taken(b,
			send_pkt(b, RC_READ_REQUEST, R(0), .va = FAR, .rkey = far_key,
				.dma_len = 300));
		turn(b);
		copy_once(b, i == 0 ? ALL : 0);
		if (i == 0) {
			expect_pkt(b, RC_READ_RESP_FIRST, R(0));
			expect_pkt(b, RC_READ_RESP_LAST, R(1));
		}
	}
	/* the rest, which is fetched ahead, cannot be fetched either */
	while (driver.ntodo > 0 || karst_qp_fetching(b->s->qp)) {
		copy_once(b, 0);
		turn(b);
	}
	expect_none(b);
	expect_no_event(b);
	expect_state(b, RTS);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(2), .ackreq = true));
	expect_ack(b, R(2), 2);
	close_far(b);
}

/* --- queue pairs that do not wait for copies --- */

Test(copy, reset_while_parked)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);

	post(b, RDMA_WRITE, 1, .sge = &sge, .nsge = 1);
	turn(b);
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b, write_far(b, 1, 64, 64));
	cr_assert_eq(driver.ntodo, 2);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	cr_assert_eq(driver.kept, 0);
	expect_untouched(b, 0, 128);
	close_far(b);
}

Test(copy, destroyed_while_parked)
{
	struct bed *b = open_far(KARST_QPT_RC);

	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b, write_far(b, 1, 64, 64));
	close_far(b);
}

/* A receive that a copy may still write to is not flushed before the copy is complete. */
Test(copy, error_while_parked)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 100);

	post_recv_sge(b, 1, &sge, 1);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 64, .ackreq = true));
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	turn(b);
	expect_no_wc(b);
	copy_all(b);
	expect_recv(b, 1, WR_FLUSH_ERR);
	cr_assert_eq(drops(b, QP_STATE), 1);
	close_far(b);
}

/* The peer is not silent, so the timeout does not count. */
Test(copy, no_timeout_while_parked)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);

	post(b, RDMA_READ, 1, .sge = &sge, .nsge = 1);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 64));
	advance_time(b, 10000 * MS);
	advance_time(b, 10000 * MS);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	expect_none(b);
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}
