/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Links: connecting their queue pairs, and a second one (S6, S7, S9, S10). */
#include "group_bed.h"

#include <errno.h>

Test(smc_link, s10_second_link)
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

/* Connecting a queue pair may have to wait. */
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

Test(smc_link, s6_connecting_takes_time)
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

Test(smc_link, s7_client_cannot_connect)
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
	bed_wait(b, 10 * SEC); /* on this one nothing is received */
	both_on_tcp(b, KARST_SMC_DECL_READY_LINK);
	bed_free(b);
}

/* The client waits for the link, so the client gives up. */
Test(smc_link, s7_server_cannot_connect)
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
Test(smc_link, s10_connecting_takes_time)
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

Test(smc_link, s10_one_cannot_connect)
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

/* A second port that was added later: earlier groups keep their one link. */
Test(smc_link, s10_as_many_links_as_ports)
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

/* The second port is removed between PROPOSAL and ACCEPT. */
Test(smc_link, s10_what_was_proposed_counts)
{
	struct bed *b = bed_two_ports();

	bed_open(b);
	cr_assert_eq(karst_smc_set_group_links(b->s[0].smc, 1), 0);
	bed_pump(b);
	cr_assert_eq(nlinks(b, 0), 2);
	bed_free(b);
}

/* A port of the client has come back, which the server cannot notice. */
Test(smc_link, s10_a_client_asks_for_the_second_link)
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

/* A bed with one of two links left; @lately: another link was made just before. */
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

/* Answers of the other system are lost. */
static void
forget_all(struct bed *b)
{
	for (unsigned int i = 0; i < 2; i++)
		for (; b->s[i].head != b->s[i].tail; b->s[i].head++)
			if (b->s[i].out[b->s[i].head % BED_QUEUE].kind == 's')
				karst_smc_link_sent(b->s[i].smc, b->s[i].links[0], 1);
}

/* A queue pair is expensive to create: a client asks for one, and refuses it, again and again. */
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

Test(smc_link, s10_a_client_that_asks_without_end)
{
	for (unsigned int lately = 0; lately < 2; lately++) {
		struct bed *b = bed_of_one_link(lately);

		asks_and_refuses(b);
		cr_assert_eq(b->s[1].nlinks, lately ? 2 : 3, "links that were ever made");
		bed_free(b);
	}
}

/* The client asks once, when it has a second port: a server that cannot offer a link then has to do
 * it later. */
Test(smc_link, s10_a_client_that_asks_too_soon)
{
	struct bed *b = bed_of_one_link(true);
	struct karst_smc_llc ask = {.type = KARST_SMC_LLC_REQ_ADD_LINK, .v2 = true};
	struct karst_smc_ev ev;
	bool asked = false;

	llc(b, 1, &ask);
	cr_assert_eq(nlinks(b, 1), 1);
	while (karst_smc_next_event(b->s[1].smc, &ev))
		asked |= (ev.what & KARST_SMC_EV_LINK_ASKED) != 0;
	cr_assert(asked);
	b->hold = false;
	bed_wait(b, SEC);
	cr_assert_eq(karst_smc_group_add_link(b->s[1].smc, 0), 0);
	bed_pump(b);
	cr_assert_eq(nlinks(b, 1), 2);
	bed_free(b);
}

/* And a server that offers one, and deletes it. */
Test(smc_link, s10_a_server_that_offers_without_end)
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

/* Queue pairs of two devices have equal numbers: the GID is what distinguishes the links. */
Test(smc_link, s11_accept_for_the_second_of_two_devices)
{
	struct bed *b = bed_two_ports();
	struct karst_smc_group_info info;
	struct karst_smc_clc m;
	struct bed_msg *accept;

	b->s[1].devices = true;
	cr_assert(bed_connect(b));
	cr_assert_eq(nlinks(b, 0), 2);
	cr_assert_eq(karst_smc_group_info(b->s[1].smc, 0, &info), 0);
	cr_assert_eq(info.local[0].qpn, info.local[1].qpn);
	bed_open(b);
	while (bed_info(b, 1).state != KARST_SMC_WAIT_CONFIRM)
		cr_assert(bed_step(b, 0) || bed_step(b, 1));
	accept = &b->s[1].out[(b->s[1].tail - 1) % BED_QUEUE];
	cr_assert_gt(karst_smc_clc_parse(accept->msg, accept->len, &m), 0);
	cr_assert_eq(m.type, KARST_SMC_CLC_ACCEPT);
	memcpy(m.accept.peer.gid, info.local[1].gid, 16); /* Linux uses both links */
	accept->len = (uint32_t)karst_smc_clc_build(&m, accept->msg, sizeof(accept->msg));
	while (bed_step(b, 1))
		;
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_WAIT_RKEY);
	cr_assert_eq(bed_info(b, 0).link, b->s[0].links[1]);
	bed_free(b);
}

/* DELETE_LINK is under way on one link while a message of a connection is complete on the other. */
Test(smc_link, s18_group_ends_when_the_peer_has_been_told)
{
	struct bed *b = bed_two_ports();
	struct bed_sys *s = &b->s[0];

	cr_assert(bed_connect(b));
	karst_smc_link_down(s->smc, s->links[0]);
	bed_pump(b);
	bed_wait(b, SEC);
	cr_assert_eq(karst_smc_group_add_link(b->s[1].smc, 0), 0);
	bed_pump(b);
	cr_assert_eq(nlinks(b, 0), 2);
	cr_assert_eq(bed_info(b, 0).link, s->links[1]);
	cr_assert_eq(bed_write(b, 0, 1, false), 0);
	cr_assert_eq(bed_last(b, 0)->link, s->links[1]);
	cr_assert_eq(karst_smc_group_end(s->smc, 0), 0);
	cr_assert_eq(bed_last(b, 0)->msg[0], KARST_SMC_LLC_DELETE_LINK | 0x20);
	cr_assert_eq(bed_last(b, 0)->link, s->links[2]);
	karst_smc_link_sent(s->smc, s->links[1], 1);
	cr_assert_eq(s->smc->ngroups, 1);
	karst_smc_link_sent(s->smc, s->links[2], 1);
	cr_assert_eq(s->smc->ngroups, 0);
	bed_free(b);
}

Test(smc_link, s10_a_client_of_one_link_does_not_ask)
{
	static const uint8_t gid[16] = {0};
	struct bed *b = bed_new(NULL);

	cr_assert(bed_connect(b));
	cr_assert_eq(karst_smc_group_ask_link(b->s[0].smc, 0, gid), -EINVAL);
	bed_free(b);
}
