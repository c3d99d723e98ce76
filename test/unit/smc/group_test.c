/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* CLC, LLC and groups (S1 to S3, S5 to S11, S18, S19). */
#include "group_bed.h"

#include <errno.h>

Test(smc_group, s5_first_contact_and_reuse)
{
	struct bed *b = bed_new(NULL);

	cr_assert(bed_connect(b));
	close_both(b);
	cr_assert_eq(b->s[0].unkeys, 1, "S9: the key is no longer valid");
	cr_assert(bed_connect(b));
	cr_assert_eq(b->s[0].smc->ngroups, 1);
	cr_assert_eq(counter(b, 0, KARST_SMC_CTR_FIRST_CONTACT), 1);
	cr_assert_eq(counter(b, 0, KARST_SMC_CTR_CONNECTED), 2);
	close_both(b);
	bed_wait(b, 620 * SEC); /* S18 */
	cr_assert_eq(b->s[0].smc->ngroups, 0);
	cr_assert_eq(b->s[1].smc->ngroups, 0);
	cr_assert_eq(karst_smc_next_ns(b->s[0].smc), UINT64_MAX);
	bed_free(b);
}

/* A group is identified by system id and GID: a peer that restarts at the same address is another
 * peer. */
Test(smc_group, s6_proposals_have_the_system_id)
{
	struct bed *b = bed_new(NULL);
	struct karst_smc_clc msg;

	bed_open(b);
	cr_assert_gt(karst_smc_clc_parse(b->s[0].out[0].msg, b->s[0].out[0].len, &msg), 0);
	cr_assert_eq(msg.type, KARST_SMC_CLC_PROPOSAL);
	cr_assert_eq(msg.proposal.mode1, KARST_SMC_MODE_N, "version 2 alone");
	cr_assert_eq(msg.proposal.peer.system_id[7], 1);
	bed_pump(b);
	bed_free(b);
}

/* CONFIRM_LINK says that elements have no eyecatchers, and is refused otherwise. */
Test(smc_group, s8_confirm_link)
{
	struct bed *b = bed_new(NULL);
	struct bed_msg *m;

	bed_open(b);
	while ((m = bed_last(b, 1)) == NULL && (bed_step(b, 0) || bed_step(b, 1)))
		;
	cr_assert_not_null(m);
	cr_assert_eq(m->msg[0], 0x21);
	cr_assert_eq(m->msg[1], 44);
	cr_assert_eq(m->msg[3], 0x03);
	m->msg[3] = 0;
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).reason, KARST_SMC_DECL_EYECATCHER);
	cr_assert(bed_info(b, 0).local && !bed_info(b, 1).local);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	cr_assert_eq(b->s[0].smc->ngroups + b->s[1].smc->ngroups, 0);
	bed_free(b);
}

/* The RDMA path is dead: the client gives up first, and both fall back to TCP. */
Test(smc_group, s7_confirm_link_times_out)
{
	struct bed *b = bed_new(NULL);
	struct bed_msg *m;

	bed_open(b);
	while ((m = bed_last(b, 1)) == NULL && (bed_step(b, 0) || bed_step(b, 1)))
		;
	m->kind = 0; /* lost */
	bed_wait(b, 10 * SEC);
	cr_assert_eq(bed_info(b, 0).reason, KARST_SMC_DECL_TIMEOUT_CONFIRM_LINK);
	cr_assert(bed_info(b, 0).local && !bed_info(b, 1).local);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	bed_free(b);
}

/* The link fails on both sides while the client's Confirm is under way, and the client declines: if
 * the server declined, too, each would take the other's message for data. */
Test(smc_group, s7_one_gives_up)
{
	struct bed *b = bed_new(NULL);

	bed_open(b);
	cr_assert(bed_step(b, 0) && bed_step(b, 1));
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_WAIT_CONFIRM);
	karst_smc_link_down(b->s[1].smc, b->s[1].links[b->s[1].nlinks - 1]);
	karst_smc_link_down(b->s[0].smc, b->s[0].links[b->s[0].nlinks - 1]);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_FELL_BACK);
	cr_assert(bed_step(b, 0));
	cr_assert_eq(b->s[1].head, b->s[1].tail, "it says nothing to the Confirm");
	cr_assert(bed_step(b, 0));
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	cr_assert(!bed_info(b, 1).local);
	cr_assert(!bed_step(b, 0) && !bed_step(b, 1));
	bed_free(b);
}

/* The link may belong to a peer that is gone: the next connection makes another group. */
Test(smc_group, s5_a_silent_link_is_not_used_again)
{
	struct bed *b = bed_new(NULL);
	struct bed_msg *m;

	cr_assert(bed_connect(b));
	close_both(b);
	bed_open(b);
	while ((m = bed_last(b, 1)) == NULL && (bed_step(b, 0) || bed_step(b, 1)))
		;
	cr_assert_not_null(m);
	cr_assert_eq(m->msg[0], KARST_SMC_LLC_CONFIRM_RKEY | 0x20);
	m->kind = 0; /* lost */
	bed_wait(b, 2 * SEC);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_ACTIVE);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
	cr_assert_eq(counter(b, 1, KARST_SMC_CTR_FIRST_CONTACT), 2);
	cr_assert_eq(counter(b, 1, KARST_SMC_CTR_DECLINED), 0);
	bed_free(b);
}

/* A side that receives nothing must not fall back on its own. */
Test(smc_group, s2_silence_is_failure)
{
	struct bed *b = bed_new(NULL);

	bed_open(b);
	b->s[0].head = b->s[0].tail; /* the proposal is lost */
	bed_wait(b, 7 * SEC);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_FAILED);
	cr_assert_eq(bed_info(b, 0).error, ETIMEDOUT);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FAILED);
	bed_free(b);
}

Test(smc_group, s2_data_instead_of_clc)
{
	struct bed *b = bed_new(NULL);

	bed_open(b);
	cr_assert_eq(karst_smc_clc_rx(b->s[1].smc, b->s[1].conn, "GET /", 5), 0, "not taken");
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	cr_assert_eq(karst_smc_clc_rx(b->s[0].smc, b->s[0].conn, "220 hi", 6), 0);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_FAILED);
	cr_assert_eq(bed_info(b, 0).error, EPROTO);
	bed_free(b);
}

/* The server declines: it first reads the proposal from the stream. */
Test(smc_group, s7_refusal_waits_for_the_peer)
{
	struct bed *b = bed_new(NULL);

	bed_open(b);
	cr_assert_eq(karst_smc_conn_decline(b->s[1].smc, b->s[1].conn, KARST_SMC_DECL_OPTION), 0);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_WAIT_PROPOSAL);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	cr_assert_eq(bed_info(b, 0).reason, KARST_SMC_DECL_OPTION);
	bed_free(b);
}

static uint32_t
reason_with(int (*op)(struct bed *b), struct karst_smc_config *cfg)
{
	struct bed *b = bed_new(cfg);
	uint32_t reason;

	if (op != NULL)
		op(b);
	bed_open(b);
	bed_pump(b);
	reason = bed_info(b, 1).reason;
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_FELL_BACK);
	cr_assert_eq(bed_info(b, 0).reason, reason);
	bed_free(b);
	return reason;
}

static int
no_device(struct bed *b)
{
	return b->s[1].link_open_rc = -ENODEV;
}

static int
no_route(struct bed *b)
{
	return b->s[0].link_open_rc = -EHOSTUNREACH;
}

Test(smc_group, s7_reasons)
{
	cr_assert_eq(reason_with(no_device, NULL), KARST_SMC_DECL_NO_DEVICE);
	cr_assert_eq(reason_with(no_route, NULL), KARST_SMC_DECL_NO_ROUTE);
}

/* Version 1 between two sides that have nothing else. */
Test(smc_group, s6_version_1)
{
	struct karst_smc_config cfg = bed_config();
	struct bed *b;

	cfg.neids = 0;
	cfg.v1 = true;
	b = bed_new(&cfg);
	cr_assert(bed_connect(b));
	cr_assert_eq(bed_write(b, 1, 10, false), 0);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).recv_pos, 10);
	close_both(b);
	bed_free(b);
}

/* Release 0 waits for ADD_LINK: it is sent without an MTU, and is refused at once. */
Test(smc_group, s10_release_0)
{
	struct karst_smc_config cfg = bed_config();
	struct bed *b;

	cfg.release = 0;
	b = bed_new(&cfg);
	cr_assert(bed_connect(b), "without that time passes");
	bed_free(b);
}

/* The peer does not know the group: no other connection is put into it, and those in it keep it. */
Test(smc_group, s11_out_of_sync)
{
	struct bed *b = bed_new(NULL);
	struct karst_smc_clc m = {.type = KARST_SMC_CLC_DECLINE,
		.decline = {
			.version = 2, .out_of_sync = true, .reason = KARST_SMC_DECL_OUT_OF_SYNC}};
	uint8_t buf[64];
	uint32_t first[2];
	int len = karst_smc_clc_build(&m, buf, sizeof(buf));
	struct karst_smc_group_info info;

	cr_assert(bed_connect(b));
	first[1] = b->s[1].conn;
	bed_open(b);
	while (bed_info(b, 1).state != KARST_SMC_WAIT_CONFIRM && (bed_step(b, 0) || bed_step(b, 1)))
		;
	cr_assert_eq(karst_smc_clc_rx(b->s[1].smc, b->s[1].conn, buf, (size_t)len), len);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	karst_smc_group_info(b->s[1].smc, 0, &info);
	cr_assert(!info.reusable);
	b->s[1].conn = first[1];
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
	bed_free(b);
}

/* The client has no room in the group: that is no disagreement, after which Linux would end the
 * group with all connections, and karst would not use it again. */
Test(smc_group, s11_full_group_is_not_out_of_sync)
{
	struct karst_smc_config cfg = bed_config();
	struct karst_smc_group_info info;
	struct bed *b;

	cfg.max_conns = cfg.max_rmbs = KARST_SMC_CONNS + 1;
	b = bed_new(&cfg);
	for (unsigned int i = 0; i < KARST_SMC_CONNS; i++)
		cr_assert(bed_connect(b), "%u", i);
	cr_assert_eq(karst_smc_group_info(b->s[0].smc, 0, &info), 0);
	cr_assert_eq(info.nconns, KARST_SMC_CONNS);
	for (unsigned int i = 0; i < 2; i++)
		cr_assert_eq(karst_smc_conn_close(b->s[i].smc, b->s[i].conn), 0);
	bed_pump(b);
	cr_assert_eq(karst_smc_conn_release(b->s[1].smc, b->s[1].conn), 0, "at the server only");
	bed_pump(b);
	cr_assert_not(bed_connect(b));
	cr_assert(bed_info(b, 0).local);
	cr_assert_eq(bed_info(b, 1).reason, KARST_SMC_DECL_MEMORY);
	cr_assert_eq(karst_smc_group_info(b->s[1].smc, 0, &info), 0);
	cr_assert(info.reusable, "the DECLINE does not say that the sides are out of sync");
	bed_free(b);
}

/* A connection from address @ip to system 1, in which system @id proposes.  @return the type of the
 * answer, 0: none */
static unsigned int
propose(struct bed *b, uint8_t ip, uint8_t id, struct karst_smc_clc *answer)
{
	struct karst_smc_conn_attr attr = {.role = KARST_SMC_SERVER, .send_bytes = BED_BYTES};
	struct karst_smc_clc m = {.type = KARST_SMC_CLC_PROPOSAL,
		.proposal = {.version = 2,
			.mode1 = KARST_SMC_MODE_N,
			.mode2 = KARST_SMC_MODE_R,
			.release = 1,
			.neids = 1,
			.max_conns = 255,
			.max_links = 1}};
	struct bed_sys *s = &b->s[1];
	uint8_t buf[512];
	int len;

	m.proposal.peer.system_id[7] = id;
	m.proposal.roce[15] = 1;
	memcpy(m.proposal.eids[0], bed_config().eids[0], sizeof(m.proposal.eids[0]));
	attr.local_gid[15] = 2;
	attr.peer_ip[10] = attr.peer_ip[11] = 0xff;
	attr.peer_ip[15] = ip;
	cr_assert_eq(karst_smc_conn_open(s->smc, &attr, &s->conn), 0);
	len = karst_smc_clc_build(&m, buf, sizeof(buf));
	cr_assert_gt(len, 0);
	cr_assert_eq(karst_smc_clc_rx(s->smc, s->conn, buf, (size_t)len), len);
	if (s->head == s->tail)
		return 0;
	s->tail--;
	cr_assert_gt(karst_smc_clc_parse(s->out[s->tail % BED_QUEUE].msg,
			     s->out[s->tail % BED_QUEUE].len, answer),
		0);
	return answer->type;
}

/* A client that uses the id of another system is not taken for that system: it is not waited for,
 * it does not end the other system's group, and it gets no place in it. */
Test(smc_group, s11_system_id_of_another)
{
	struct bed *b = bed_new(NULL);
	struct karst_smc_clc answer;
	struct karst_smc_group_info info;

	cr_assert_eq(propose(b, 1, 1, &answer), KARST_SMC_CLC_ACCEPT);
	cr_assert(answer.accept.first_contact);
	cr_assert_eq(propose(b, 1, 1, &answer), 0, "waits for the group of the first");
	cr_assert_eq(propose(b, 2, 1, &answer), KARST_SMC_CLC_ACCEPT, "does not");
	cr_assert(answer.accept.first_contact);
	cr_assert_eq(b->s[1].smc->ngroups, 2);
	cr_assert_eq(karst_smc_group_info(b->s[1].smc, 0, &info), 0);
	cr_assert_eq(info.nconns, 1);
	bed_free(b);
}

/* The program of the first client, or its peer, delays what makes the group: others do not wait for
 * that. */
Test(smc_group, s11_group_that_does_not_come)
{
	struct bed *b = bed_new(NULL);
	struct karst_smc_clc answer;

	cr_assert_eq(propose(b, 1, 1, &answer), KARST_SMC_CLC_ACCEPT);
	cr_assert_eq(propose(b, 1, 1, &answer), 0, "waits for the group of the first");
	bed_wait(b, 4 * SEC);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_WAIT_CONFIRM, "makes one of its own");
	cr_assert_eq(b->s[1].smc->ngroups, 2);
	cr_assert_eq(propose(b, 1, 1, &answer), 0, "waits for that of the second");
	cr_assert_eq(b->s[1].smc->ngroups, 2);
	bed_free(b);
}

/* One address claims to be many systems. */
Test(smc_group, s11_flood_from_one_address)
{
	struct karst_smc_config cfg = bed_config();
	struct karst_smc_clc answer;
	struct bed *b;
	uint8_t i;

	cfg.max_groups = 4;
	b = bed_new(&cfg);
	for (i = 1; i <= 3; i++)
		cr_assert_eq(propose(b, 1, i, &answer), KARST_SMC_CLC_ACCEPT);
	cr_assert_eq(propose(b, 1, i, &answer), KARST_SMC_CLC_DECLINE);
	cr_assert_eq(answer.decline.reason, KARST_SMC_DECL_MEMORY);
	cr_assert_eq(propose(b, 2, i, &answer), KARST_SMC_CLC_ACCEPT, "there is room for others");
	bed_free(b);
}

/* Keys: used before they were confirmed, deleted under a connection, unknown. */
Test(smc_group, s9_keys)
{
	struct bed *b = bed_new(NULL);
	struct karst_smc_llc m = {.type = KARST_SMC_LLC_DELETE_RKEY, .v2 = true, .nrtokens = 1};

	cr_assert(bed_connect(b));
	m.rtokens[0].rkey = 0x999;
	llc(b, 1, &m);
	cr_assert_eq(bed_last(b, 1)->msg[3], KARST_SMC_LLC_RESPONSE | KARST_SMC_LLC_NEGATIVE);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
	m.rtokens[0].rkey = 0x100;
	llc(b, 1, &m);
	cr_assert_eq(bed_info(b, 1).error, ECONNRESET, "only that connection");
	cr_assert_eq(b->s[1].smc->ngroups, 1);
	bed_free(b);
}

/* Opens another connection, up to where the client has asked the server to confirm its key.  The
 * client has accepted the server's key by then. */
static void
open_until_wait_rkey(struct bed *b)
{
	bed_open(b);
	while (bed_info(b, 0).state != KARST_SMC_WAIT_RKEY)
		cr_assert(bed_step(b, 0) || bed_step(b, 1));
}

/*
 * The client's program, which has the socket, too, sends a DECLINE: the server falls back, and
 * deletes the key that the client has accepted.  A WRITE with it would end the link for all.
 */
Test(smc_group, s9_key_deleted_while_a_connection_is_made)
{
	struct karst_smc_clc m = {.type = KARST_SMC_CLC_DECLINE,
		.decline = {.version = 2, .reason = KARST_SMC_DECL_OPTION}};
	struct bed *b = bed_new(NULL);
	uint8_t buf[64];
	int len = karst_smc_clc_build(&m, buf, sizeof(buf));
	uint32_t first;

	cr_assert(bed_connect(b));
	first = b->s[0].conn;
	open_until_wait_rkey(b);
	cr_assert_eq(karst_smc_clc_rx(b->s[1].smc, b->s[1].conn, buf, (size_t)len), len);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	cr_assert(bed_step(b, 1), "DELETE_RKEY");
	bed_pump(b);
	cr_assert_eq(b->s[1].unkeys, 1);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_FELL_BACK);
	cr_assert_eq(bed_info(b, 0).reason, KARST_SMC_DECL_RTOKEN);
	b->s[0].conn = first;
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_ACTIVE, "others have the link");
	bed_free(b);
}

/* From CONFIRM_LINK on a connection cannot fall back (S7): it is connected, and reset. */
Test(smc_group, s9_key_deleted_while_a_group_is_made)
{
	struct karst_smc_llc m = {.type = KARST_SMC_LLC_DELETE_RKEY,
		.v2 = true,
		.nrtokens = 1,
		.rtokens = {{.rkey = 0x100}}};

	for (unsigned int sys = 0; sys < 2; sys++) {
		struct bed *b = bed_two_ports();

		bed_open(b);
		while (bed_info(b, sys).state != KARST_SMC_WAIT_ADD_LINK)
			cr_assert(bed_step(b, 0) || bed_step(b, 1));
		llc(b, sys, &m);
		cr_assert_eq(bed_info(b, sys).error, ECONNRESET);
		bed_pump(b);
		cr_assert_eq(bed_write(b, sys, 1, false), -EPIPE);
		cr_assert(b->s[0].smc->ngroups == 1 && b->s[1].smc->ngroups == 1);
		bed_free(b);
	}
}

/* The Confirm of a second connection, sent by a program in place of ours: with the key of the first
 * one, and @index and @size.  @return the server's connection then */
static struct karst_smc_conn_info
confirm_instead(struct bed *b, uint8_t index, uint8_t size)
{
	struct bed_sys *s = &b->s[0];
	struct karst_smc_clc m;
	struct bed_msg *confirm;

	bed_open(b);
	while (bed_info(b, 0).state != KARST_SMC_ACTIVE)
		cr_assert(bed_step(b, 0) || bed_step(b, 1));
	confirm = &s->out[s->head % BED_QUEUE];
	cr_assert_gt(karst_smc_clc_parse(confirm->msg, confirm->len, &m), 0);
	cr_assert_eq(m.type, KARST_SMC_CLC_CONFIRM);
	m.accept.rkey = 0x100;
	m.accept.vaddr = 0;
	m.accept.index = index;
	m.accept.size = size;
	confirm->len = (uint32_t)karst_smc_clc_build(&m, confirm->msg, sizeof(confirm->msg));
	bed_pump(b);
	return bed_info(b, 1);
}

/* A connection whose key stays when the connection has ended. */
static struct bed *
bed_used_key(void)
{
	struct bed *b = bed_new(NULL);

	b->keeps_keys = true;
	cr_assert(bed_connect(b));
	close_both(b);
	return b;
}

/* A write beyond the peer's buffer would end the link, and all connections of the group with it. */
Test(smc_group, s19_element_that_is_too_large)
{
	struct bed *b = bed_used_key();

	cr_assert_eq(confirm_instead(b, 1, 10).reason, KARST_SMC_DECL_RTOKEN);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	cr_assert_eq(b->s[1].smc->ngroups, 1);
	bed_free(b);
}

Test(smc_group, s19_element_that_is_none)
{
	struct bed *b = bed_used_key();

	cr_assert_eq(confirm_instead(b, 2, 0).reason, KARST_SMC_DECL_RTOKEN);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	bed_free(b);
}

Test(smc_group, s19_element_as_it_was)
{
	struct bed *b = bed_used_key();

	cr_assert_eq(confirm_instead(b, 1, 0).state, KARST_SMC_ACTIVE);
	bed_free(b);
}

/* Data written to it would be read as another connection's. */
Test(smc_group, s19_element_of_another)
{
	struct bed *b = bed_new(NULL);

	cr_assert(bed_connect(b));
	cr_assert_eq(confirm_instead(b, 1, 0).reason, KARST_SMC_DECL_RTOKEN);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	cr_assert_eq(b->s[1].smc->ngroups, 1);
	bed_free(b);
}

static uint32_t
token_of_proposed(struct bed *b, uint8_t id)
{
	struct karst_smc_clc answer;

	cr_assert_eq(propose(b, id, id, &answer), KARST_SMC_CLC_ACCEPT);
	return answer.accept.token;
}

/* CDC messages name their connection only by the token, so the token of one connection must not
 * help to guess others. */
Test(smc_group, s4_tokens_are_not_to_be_guessed)
{
	struct karst_smc_config cfg = bed_config();
	uint32_t token[2][3], i, k;

	for (k = 0; k < 2; k++) {
		struct bed *b;

		cfg.token_key[1] = k + 1;
		b = bed_new(&cfg);
		for (i = 0; i < 3; i++)
			token[k][i] = token_of_proposed(b, (uint8_t)(i + 1));
		bed_free(b);
	}
	for (i = 0; i < 3; i++)
		cr_assert_neq(token[0][i], token[1][i], "it is the key's");
	for (k = 0; k < 2; k++)
		cr_assert_neq(token[k][1] - token[k][0], token[k][2] - token[k][1]);
}

/* More keys than a group may have connections. */
Test(smc_group, s19_too_many_keys)
{
	struct bed *b = bed_new(NULL);
	struct karst_smc_llc m = {.type = KARST_SMC_LLC_CONFIRM_RKEY, .v2 = true};

	cr_assert(bed_connect(b));
	for (unsigned int i = 0; i < 300; i++) {
		m.first.rkey = 0x1000 + i;
		llc(b, 1, &m);
		cr_assert_eq(bed_last(b, 1)->msg[3] & KARST_SMC_LLC_NEGATIVE,
			i < 254 ? 0 : KARST_SMC_LLC_NEGATIVE, "key %u", i);
		bed_pump(b);
	}
	bed_free(b);
}

/* A peer that asks for more than can be answered gets as many answers as there is room for. */
Test(smc_group, s19_flood)
{
	struct bed *b = bed_new(NULL);
	struct karst_smc_llc m = {.type = KARST_SMC_LLC_TEST_LINK, .v2 = true};

	cr_assert(bed_connect(b));
	for (unsigned int i = 0; i < 100; i++)
		llc(b, 1, &m);
	cr_assert_eq(counter(b, 1, KARST_SMC_CTR_LLC_NO_SLOT), 100 - 16 - 8);
	bed_pump(b);
	cr_assert_eq(bed_write(b, 1, 1, false), 0);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).recv_pos, 1);
	bed_free(b);
}

/* Messages that do not fit role or state have no effect. */
Test(smc_group, s19_unexpected)
{
	static const enum karst_smc_llc_type types[] = {KARST_SMC_LLC_CONFIRM_LINK,
		KARST_SMC_LLC_ADD_LINK, KARST_SMC_LLC_ADD_LINK_CONT,
		KARST_SMC_LLC_CONFIRM_RKEY_CONT};
	struct bed *b = bed_new(NULL);

	cr_assert(bed_connect(b));
	for (size_t i = 0; i < KARST_DIM(types); i++) {
		struct karst_smc_llc m = {
			.type = types[i], .v2 = types[i] != KARST_SMC_LLC_ADD_LINK_CONT};

		llc(b, 1, &m);
		cr_assert_eq(counter(b, 1, KARST_SMC_CTR_LLC_BAD), i + 1, "%s",
			karst_smc_llc_name(types[i]));
	}
	cr_assert_null(bed_last(b, 1));
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
	bed_free(b);
}

/* A silent link is tested; one that does not answer is dead, and its group with it. */
Test(smc_group, s18_test_link)
{
	struct bed *b = bed_new(NULL);

	cr_assert(bed_connect(b));
	bed_wait(b, 100 * SEC);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_ACTIVE);
	b->hold = true;
	bed_wait(b, 40 * SEC);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_CLOSED);
	cr_assert_eq(bed_info(b, 0).error, ECONNRESET);
	cr_assert_eq(b->s[0].smc->ngroups, 0);
	bed_free(b);
}

Test(smc_group, s18_delete_link)
{
	struct bed *b = bed_new(NULL);

	cr_assert(bed_connect(b));
	cr_assert_eq(karst_smc_group_end(b->s[1].smc, 0), 0);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_CLOSED);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_CLOSED);
	cr_assert_eq(b->s[0].smc->ngroups + b->s[1].smc->ngroups, 0);
	bed_free(b);
}

/*
 * S1 itself, the TCP option, belongs to the code that opens TCP connections; without EID nothing is
 * proposed.
 */
Test(smc_group, s1_nothing_to_offer)
{
	struct karst_smc_config cfg = bed_config();
	struct bed *b;

	cfg.neids = 0;
	b = bed_new(&cfg);
	bed_open(b);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).reason, KARST_SMC_DECL_NO_DEVICE);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_FELL_BACK);
	bed_free(b);
}
