/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* CLC, LLC and groups (S1 to S3, S5 to S11, S18, S19). */
#include <criterion/criterion.h>

#include <errno.h>

#include "bed.h"

#define SEC UINT64_C(1000000000)

static uint64_t
counter(struct bed *b, unsigned int sys, enum karst_smc_counter c)
{
	return b->s[sys].smc->counters[c];
}

static void
llc(struct bed *b, unsigned int to, const struct karst_smc_llc *m)
{
	uint8_t buf[KARST_SMC_LLC_MAX_LEN];
	int len = karst_smc_llc_build(m, buf, sizeof(buf));

	cr_assert_gt(len, 0);
	karst_smc_link_rx(b->s[to].smc, b->s[to].links[0], buf, (size_t)len);
}

static void
close_both(struct bed *b)
{
	for (unsigned int i = 0; i < 2; i++)
		karst_smc_conn_close(b->s[i].smc, b->s[i].conn);
	bed_pump(b);
	for (unsigned int i = 0; i < 2; i++)
		cr_assert_eq(karst_smc_conn_release(b->s[i].smc, b->s[i].conn), 0);
	bed_pump(b);
}

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

/* A group is known by system id and GID: who begins anew at the same address is another peer. */
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

/* CONFIRM_LINK says that elements have no eyecatchers, and is refused without. */
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

/* The path of RDMA is dead: the client gives up first, and both are on TCP. */
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

/* The link dies on both sides while the client's Confirm is on its way, and the client says so: if
 * the server did, too, each would take the other's word for data. */
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

/* The link may be that of a peer which is gone: the next connection makes another group. */
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

/* Nobody falls back by himself because he hears nothing. */
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

/* The server does not want it: the proposal is taken out of the stream before it says so. */
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

/* Version 1 between two that have nothing else. */
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

/* Release 0 waits for ADD_LINK: it comes with no MTU, and is refused at once. */
Test(smc_group, s10_release_0)
{
	struct karst_smc_config cfg = bed_config();
	struct bed *b;

	cfg.release = 0;
	b = bed_new(&cfg);
	cr_assert(bed_connect(b), "without that time passes");
	bed_free(b);
}

static unsigned int
nlinks(struct bed *b, unsigned int sys)
{
	struct karst_smc_group_info info;

	cr_assert_eq(karst_smc_group_info(b->s[sys].smc, 0, &info), 0);
	return info.nlinks;
}

Test(smc_group, s10_second_link)
{
	struct karst_smc_group_info info;
	struct bed *b = bed_two_ports();

	cr_assert(bed_connect(b));
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert_eq(karst_smc_group_info(b->s[i].smc, 0, &info), 0);
		cr_assert_eq(info.nlinks, 2);
	}
	close_both(b);
	cr_assert(bed_connect(b), "S9: the key is confirmed for both links");
	bed_free(b);
}

/* Connecting a queue pair may have to wait for somebody. */
static void
connecting(struct bed *b, unsigned int sys)
{
	b->s[sys].connect_rc = -EINPROGRESS;
}

static void
connected(struct bed *b, unsigned int sys, int rc)
{
	karst_smc_link_connected(b->s[sys].smc, b->s[sys].connects, rc);
	b->s[sys].connect_rc = 0;
	bed_pump(b);
}

Test(smc_group, s6_connecting_takes_time)
{
	struct bed *b = bed_new(NULL);

	connecting(b, 0);
	connecting(b, 1);
	bed_open(b);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_WAIT_LINK);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_WAIT_CONFIRM, "nothing was said yet");
	connected(b, 0, 0);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_WAIT_CONFIRM_LINK);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_WAIT_CONFIRM_LINK);
	cr_assert_null(bed_last(b, 1), "nor by the link");
	connected(b, 1, 0);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_ACTIVE);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
	connected(b, 0, -EHOSTUNREACH); /* of one that is connected already */
	connected(b, 1, 0);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_ACTIVE);
	for (unsigned int i = 0; i < 2; i++)
		cr_assert_eq(counter(b, i, KARST_SMC_CTR_LLC_BAD), 0);
	bed_free(b);
}

static void
both_on_tcp(struct bed *b, uint32_t reason)
{
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert_eq(bed_info(b, i).state, KARST_SMC_FELL_BACK);
		cr_assert_eq(bed_info(b, i).reason, reason);
		cr_assert_eq(b->s[i].smc->ngroups, 0);
		cr_assert_eq(b->s[i].smc->counters[KARST_SMC_CTR_CLC_BAD], 0);
	}
}

Test(smc_group, s7_client_cannot_connect)
{
	struct bed *b = bed_new(NULL);

	connecting(b, 0);
	bed_open(b);
	bed_pump(b);
	connected(b, 0, -EHOSTUNREACH);
	both_on_tcp(b, KARST_SMC_DECL_READY_LINK);
	connecting(b, 0);
	bed_open(b);
	bed_pump(b);
	bed_wait(b, 10 * SEC); /* of this one nothing is heard */
	both_on_tcp(b, KARST_SMC_DECL_READY_LINK);
	bed_free(b);
}

/* The client waits for the link, so it is the one to give up. */
Test(smc_group, s7_server_cannot_connect)
{
	struct bed *b = bed_new(NULL);

	connecting(b, 1);
	bed_open(b);
	bed_pump(b);
	connected(b, 1, -EHOSTUNREACH);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_WAIT_CONFIRM_LINK);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_WAIT_CONFIRM_LINK);
	cr_assert_eq(b->s[1].smc->ngroups, 0);
	bed_wait(b, 10 * SEC);
	both_on_tcp(b, KARST_SMC_DECL_TIMEOUT_CONFIRM_LINK);
	bed_free(b);
}

/* Each side in turn, for the second link. */
Test(smc_group, s10_connecting_takes_time)
{
	for (unsigned int sys = 0; sys < 2; sys++) {
		struct bed *b = bed_two_ports();

		bed_open(b);
		while (bed_info(b, sys).state < KARST_SMC_WAIT_CONFIRM_LINK)
			cr_assert(bed_step(b, 0) || bed_step(b, 1));
		connecting(b, sys);
		bed_pump(b);
		cr_assert_eq(bed_info(b, 0).state, KARST_SMC_ACTIVE);
		cr_assert_eq(bed_info(b, 1).state,
			sys == 0 ? KARST_SMC_WAIT_ADD_LINK : KARST_SMC_ACTIVE,
			"for the client's answer it waits");
		cr_assert(nlinks(b, 0) == 1 && nlinks(b, 1) == 1);
		connected(b, sys, 0);
		cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
		cr_assert(nlinks(b, 0) == 2 && nlinks(b, 1) == 2);
		close_both(b);
		cr_assert(bed_connect(b), "S9: the key is confirmed for both links");
		bed_free(b);
	}
}

Test(smc_group, s10_one_cannot_connect)
{
	for (unsigned int sys = 0; sys < 2; sys++) {
		struct bed *b = bed_two_ports();

		bed_open(b);
		while (bed_info(b, sys).state < KARST_SMC_WAIT_CONFIRM_LINK)
			cr_assert(bed_step(b, 0) || bed_step(b, 1));
		connecting(b, sys);
		bed_pump(b);
		connected(b, sys, -EHOSTUNREACH);
		bed_wait(b, 10 * SEC);
		cr_assert(nlinks(b, 0) == 1 && nlinks(b, 1) == 1);
		cr_assert_eq(karst_smc_group_add_link(b->s[1].smc, 0), 0, "once more");
		close_both(b);
		cr_assert(bed_connect(b), "and nothing waits for that link");
		bed_free(b);
	}
}

/* A second port that came later: groups from before keep their one link. */
Test(smc_group, s10_as_many_links_as_ports)
{
	struct bed *b = bed_two_ports();
	struct karst_smc *client = b->s[0].smc;

	cr_assert_eq(karst_smc_set_group_links(client, 0), -EINVAL);
	cr_assert_eq(karst_smc_set_group_links(client, KARST_SMC_LINKS + 1), -EINVAL);
	cr_assert_eq(karst_smc_set_group_links(client, 1), 0);
	cr_assert(bed_connect(b));
	cr_assert(nlinks(b, 0) == 1 && nlinks(b, 1) == 1);
	cr_assert_eq(karst_smc_set_group_links(client, 2), 0);
	close_both(b);
	cr_assert(bed_connect(b));
	cr_assert(nlinks(b, 0) == 1 && nlinks(b, 1) == 1, "it is the same group");
	bed_free(b);
}

/* The second port goes between PROPOSAL and ACCEPT. */
Test(smc_group, s10_what_was_proposed_counts)
{
	struct bed *b = bed_two_ports();

	bed_open(b);
	cr_assert_eq(karst_smc_set_group_links(b->s[0].smc, 1), 0);
	bed_pump(b);
	cr_assert_eq(nlinks(b, 0), 2);
	bed_free(b);
}

/* A port of the client's has come back, of which the server hears nothing. */
Test(smc_group, s10_a_client_asks_for_the_second_link)
{
	static const uint8_t gid[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 129};
	struct bed *b = bed_two_ports();
	struct karst_smc_llc m;

	cr_assert(bed_connect(b));
	cr_assert_eq(karst_smc_group_ask_link(b->s[0].smc, 0, gid), -EBUSY, "there is one");
	cr_assert_eq(karst_smc_group_ask_link(b->s[0].smc, 1, gid), -ENOENT);
	cr_assert_eq(karst_smc_group_ask_link(b->s[1].smc, 0, gid), -EINVAL, "a server adds it");
	karst_smc_link_down(b->s[0].smc, b->s[0].links[1]);
	bed_pump(b);
	cr_assert(nlinks(b, 0) == 1 && nlinks(b, 1) == 1);
	bed_wait(b, SEC);
	cr_assert_eq(karst_smc_group_ask_link(b->s[0].smc, 0, gid), 0);
	cr_assert_not_null(bed_last(b, 0), "it is sent");
	cr_assert_eq(karst_smc_llc_parse(bed_last(b, 0)->msg, bed_last(b, 0)->len, &m), 0);
	cr_assert_eq(m.type, KARST_SMC_LLC_REQ_ADD_LINK);
	cr_assert(m.ngids == 1 && memcmp(m.gids[0], gid, sizeof(gid)) == 0);
	bed_pump(b);
	cr_assert(nlinks(b, 0) == 2 && nlinks(b, 1) == 2);
	cr_assert_eq(
		counter(b, 0, KARST_SMC_CTR_LLC_BAD) + counter(b, 1, KARST_SMC_CTR_LLC_BAD), 0);
	bed_free(b);
}

/* With one link that is left of two; whether another one was made a moment ago. */
static struct bed *
bed_of_one_link(bool lately)
{
	struct bed *b = bed_two_ports();

	cr_assert(bed_connect(b));
	karst_smc_link_down(b->s[0].smc, b->s[0].links[1]);
	bed_pump(b);
	cr_assert(nlinks(b, 0) == 1 && nlinks(b, 1) == 1);
	if (!lately)
		bed_wait(b, SEC);
	b->hold = true;
	return b;
}

/* What the other system would answer is not to be heard. */
static void
forget_all(struct bed *b)
{
	for (unsigned int i = 0; i < 2; i++)
		for (; b->s[i].head != b->s[i].tail; b->s[i].head++)
			if (b->s[i].out[b->s[i].head % BED_QUEUE].kind == 's')
				karst_smc_link_sent(b->s[i].smc, b->s[i].links[0], 1);
}

/* A queue pair is dear to make: a client that asks for one, and refuses it, again and again. */
static void
asks_and_refuses(struct bed *b)
{
	struct karst_smc_llc ask = {.type = KARST_SMC_LLC_REQ_ADD_LINK, .v2 = true},
			     no = {.type = KARST_SMC_LLC_ADD_LINK,
				     .v2 = true,
				     .flags = KARST_SMC_LLC_RESPONSE | KARST_SMC_LLC_REJECTED};

	for (unsigned int i = 0; i < 5; i++) {
		llc(b, 1, &ask);
		llc(b, 1, &no);
		forget_all(b);
	}
}

Test(smc_group, s10_a_client_that_asks_without_end)
{
	for (unsigned int lately = 0; lately < 2; lately++) {
		struct bed *b = bed_of_one_link(lately);

		asks_and_refuses(b);
		cr_assert_eq(b->s[1].nlinks, lately ? 2 : 3, "links that were ever made");
		bed_free(b);
	}
}

/* And a server that offers one, and deletes it. */
Test(smc_group, s10_a_server_that_offers_without_end)
{
	struct karst_smc_llc add = {.type = KARST_SMC_LLC_ADD_LINK,
				     .v2 = true,
				     .qpn = 7,
				     .link = 2,
				     .mtu = 3},
			     gone = {.type = KARST_SMC_LLC_DELETE_LINK, .v2 = true, .link = 2};

	for (unsigned int lately = 0; lately < 2; lately++) {
		struct bed *b = bed_of_one_link(lately);

		for (unsigned int i = 0; i < 5; i++) {
			llc(b, 0, &add);
			llc(b, 0, &gone);
			forget_all(b);
		}
		cr_assert_eq(b->s[0].nlinks, lately ? 2 : 3, "links that were ever made");
		bed_free(b);
	}
}

Test(smc_group, s10_a_client_of_one_link_does_not_ask)
{
	static const uint8_t gid[16] = {0};
	struct bed *b = bed_new(NULL);

	cr_assert(bed_connect(b));
	cr_assert_eq(karst_smc_group_ask_link(b->s[0].smc, 0, gid), -EINVAL);
	bed_free(b);
}

/* The peer does not know the group: nobody else is put into it, and those in it keep it. */
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

/* A connection from address @ip to system 1, by which system @id proposes.  @return the type of
 * what is answered, 0: nothing */
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

/* Who says that he is somebody else is not taken for him: neither is he waited for, nor does he end
 * the other one's group, nor has he a place in it. */
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

/* The first one's program, or its peer's, keeps what makes the group: others do not wait for that.
 * */
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

/* One address says that it is many systems. */
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

/* Keys: named before they were confirmed, deleted under a connection, never heard of. */
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

/* The Confirm of a second connection, which its program says in place of ours: of the key of the
 * first one, with @index and @size.  @return what the server's is then */
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

/* A connection whose key stays when it has ended. */
static struct bed *
bed_used_key(void)
{
	struct bed *b = bed_new(NULL);

	b->keeps_keys = true;
	cr_assert(bed_connect(b));
	close_both(b);
	return b;
}

/* What was to be written beyond the peer's buffer would end the link, and with it all of the
 * group's. */
/* --- buffers that are kept --- */

/* A connection ends on both sides, each of which wants to keep its buffer.  @return how many did */
static unsigned int
end_and_keep(struct bed *b, uint32_t rmb[2])
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < 2; i++)
		karst_smc_conn_close(b->s[i].smc, b->s[i].conn);
	bed_pump(b);
	for (unsigned int i = 0; i < 2; i++) {
		kept += karst_smc_conn_keep(b->s[i].smc, b->s[i].conn, &rmb[i]) == 0;
		cr_assert_eq(karst_smc_conn_release(b->s[i].smc, b->s[i].conn), 0);
	}
	bed_pump(b);
	return kept;
}

static bool
connect_with(struct bed *b, const uint32_t rmb[2])
{
	bed_open(b);
	for (unsigned int i = 0; i < 2; i++)
		cr_assert_eq(karst_smc_conn_take(b->s[i].smc, b->s[i].conn, rmb[i]), 0);
	bed_pump(b);
	return bed_info(b, 0).state == KARST_SMC_ACTIVE && bed_info(b, 1).state == KARST_SMC_ACTIVE;
}

Test(smc_group, s9_kept_key)
{
	struct bed *b = bed_new(NULL);
	uint32_t rmb[2];

	cr_assert(bed_connect(b));
	for (unsigned int n = 0; n < 10; n++) {
		cr_assert_eq(end_and_keep(b, rmb), 2);
		cr_assert(connect_with(b, rmb));
		cr_assert_eq(bed_info(b, 0).rmb, rmb[0]);
		cr_assert_eq(bed_write(b, 0, 1000, false), 0);
		bed_pump(b);
		cr_assert_eq(bed_info(b, 1).recv_pos, 1000, "it begins at the first byte");
		cr_assert_eq(karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 1000), 0);
		bed_pump(b);
	}
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert_eq(b->s[i].keys, 1);
		cr_assert_eq(b->s[i].unkeys, 0);
		cr_assert_eq(counter(b, i, KARST_SMC_CTR_RMB_REUSED), 10);
		cr_assert_eq(counter(b, i, KARST_SMC_CTR_RKEY_ASKED), 0);
	}
	cr_assert_eq(karst_smc_conn_take(b->s[0].smc, b->s[0].conn, rmb[0]), -ENOENT, "it has it");
	bed_free(b);
}

/* Not if somebody may go on writing, or may have lost what came. */
Test(smc_group, s9_no_key_is_kept_of_what_ended_badly)
{
	struct bed *b = bed_new(NULL);
	uint32_t rmb;

	cr_assert(bed_connect(b));
	cr_assert_eq(karst_smc_conn_keep(b->s[0].smc, b->s[0].conn, &rmb), -EINVAL, "it lives");
	karst_smc_conn_close(b->s[0].smc, b->s[0].conn);
	bed_pump(b);
	cr_assert_eq(karst_smc_conn_keep(b->s[0].smc, b->s[0].conn, &rmb), -EINVAL, "half of it");
	karst_smc_conn_abort(b->s[1].smc, b->s[1].conn);
	bed_pump(b);
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert_eq(bed_info(b, i).state, KARST_SMC_CLOSED);
		cr_assert_eq(
			karst_smc_conn_keep(b->s[i].smc, b->s[i].conn, &rmb), -EINVAL, "aborted");
		cr_assert_eq(karst_smc_conn_release(b->s[i].smc, b->s[i].conn), 0);
	}
	bed_pump(b);
	cr_assert(b->s[0].unkeys == 1 && b->s[1].unkeys == 1);
	cr_assert_eq(karst_smc_conn_keep(b->s[0].smc, b->s[0].conn, &rmb), -ENOENT);
	bed_free(b);
}

/* The peer may have begun anew meanwhile (s5_a_silent_link_is_not_used_again). */
Test(smc_group, s9_after_a_silence_the_peer_is_asked)
{
	struct bed *b = bed_new(NULL);
	uint32_t rmb[2];

	cr_assert(bed_connect(b));
	cr_assert_eq(end_and_keep(b, rmb), 2);
	bed_wait(b, 2 * SEC);
	cr_assert(connect_with(b, rmb));
	cr_assert_eq(bed_info(b, 1).rmb, rmb[1]);
	cr_assert_eq(counter(b, 1, KARST_SMC_CTR_RMB_REUSED), 0);
	cr_assert_eq(counter(b, 1, KARST_SMC_CTR_RKEY_ASKED), 1);
	bed_free(b);
}

/* By another link bytes may be written once more, and it has keys of its own. */
Test(smc_group, s9_no_key_is_kept_over_a_change_of_links)
{
	struct bed *b = bed_two_ports();
	uint32_t rmb[2];

	cr_assert(bed_connect(b));
	cr_assert_eq(nlinks(b, 0), 2);
	cr_assert_eq(end_and_keep(b, rmb), 0, "the second link has come since");
	cr_assert(bed_connect(b));
	cr_assert_eq(end_and_keep(b, rmb), 2);
	cr_assert_eq(b->s[0].unkeys, 1);
	karst_smc_link_down(b->s[0].smc, b->s[0].links[1]);
	bed_pump(b);
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert_eq(b->s[i].unkeys, 2, "S9: deleted");
		cr_assert_eq(karst_smc_rmb_drop(b->s[i].smc, rmb[i]), -ENOENT);
	}
	bed_wait(b, SEC); /* until there may be another one */
	cr_assert(bed_connect(b));
	cr_assert_eq(nlinks(b, 0), 1);
	cr_assert_eq(end_and_keep(b, rmb), 2);
	cr_assert(connect_with(b, rmb));
	karst_smc_group_add_link(b->s[1].smc, 0);
	bed_pump(b);
	cr_assert_eq(nlinks(b, 0), 2);
	cr_assert_eq(end_and_keep(b, rmb), 0);
	bed_free(b);
}

/* It was kept in a group that has ended, or takes nobody: the connection gets another one. */
Test(smc_group, s9_kept_key_of_another_group)
{
	struct bed *b = bed_new(NULL);
	uint32_t rmb[2], other[2];

	cr_assert(bed_connect(b));
	cr_assert_eq(end_and_keep(b, rmb), 2);
	cr_assert_eq(karst_smc_group_end(b->s[1].smc, 0), 0);
	bed_pump(b);
	cr_assert(b->s[0].unkeys == 1 && b->s[1].unkeys == 1, "with its group");
	cr_assert_eq(karst_smc_rmb_drop(b->s[0].smc, rmb[0]), -ENOENT);
	cr_assert(bed_connect(b));
	cr_assert_eq(end_and_keep(b, rmb), 2);
	bed_open(b);
	cr_assert_eq(karst_smc_conn_take(b->s[0].smc, b->s[0].conn, rmb[0]), 0);
	cr_assert_eq(karst_smc_conn_take(b->s[1].smc, b->s[1].conn, rmb[1]), 0);
	cr_assert_eq(karst_smc_group_end(b->s[1].smc, 0), 0);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_ACTIVE);
	cr_assert_eq(counter(b, 0, KARST_SMC_CTR_FIRST_CONTACT), 3);
	cr_assert(b->s[0].unkeys == 2 && b->s[1].unkeys == 2);
	cr_assert_eq(end_and_keep(b, other), 2);
	cr_assert_eq(karst_smc_rmb_drop(b->s[0].smc, other[0]), 0);
	bed_pump(b);
	cr_assert_eq(b->s[0].unkeys, 3, "S9: when it is answered");
	bed_free(b);
}

/* A peer has room for 255 keys: what is kept goes before a connection cannot be made. */
Test(smc_group, s9_as_many_kept_keys_as_there_is_room)
{
	struct karst_smc_config cfg = bed_config();
	struct bed *b;
	uint32_t rmb[2];

	cfg.max_rmbs = 2 * KARST_SMC_CONNS;
	b = bed_new(&cfg);
	for (unsigned int n = 0; n < KARST_SMC_CONNS; n++) {
		cr_assert(bed_connect(b));
		cr_assert_eq(end_and_keep(b, rmb), 2, "%u", n);
	}
	for (unsigned int n = 0; n < 3; n++) {
		cr_assert(bed_connect(b));
		cr_assert_eq(b->s[0].unkeys, n + 1);
		cr_assert_eq(b->s[1].unkeys, n + 1);
		if (n == 0)
			cr_assert_eq(karst_smc_rmb_drop(b->s[0].smc, 0), -ENOENT, "the oldest");
		cr_assert_eq(end_and_keep(b, rmb), 2, "in its place");
	}
	cr_assert_eq(counter(b, 0, KARST_SMC_CTR_FIRST_CONTACT), 1);
	cr_assert_eq(counter(b, 0, KARST_SMC_CTR_DECLINED), 0);
	bed_free(b);
}

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

/* What was written to it would be read as another connection's. */
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

/* CDC messages have nothing but the token for what they are about, so who has a connection must not
 * know from its own what others' are. */
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

/* Who asks for more than can be answered is answered as far as there is room. */
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

/* What does not fit role or state has no effect. */
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

/* A link that is silent is tested; one that does not answer is dead, and its group with it. */
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
 * S1 itself, the TCP option, is for those who open TCP connections; without EID nothing is
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
