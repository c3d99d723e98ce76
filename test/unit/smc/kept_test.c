/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Buffers that are kept with their keys for another connection (S9). */
#include "group_bed.h"

#include <errno.h>

/* Ends a connection on both sides, each of which wants to keep its buffer.  @return how many did */
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

Test(smc_kept, s9_kept_key)
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

/* Not if the peer may go on writing, or may have lost what was sent. */
Test(smc_kept, s9_no_key_is_kept_of_what_ended_badly)
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

/* The peer may have restarted meanwhile (s5_a_silent_link_is_not_used_again). */
Test(smc_kept, s9_after_a_silence_the_peer_is_asked)
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

/* How many times the server has asked the client to delete a key. */
static unsigned int
deletes(struct bed *b)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i != b->s[1].tail; i++) {
		cr_assert_lt(i, BED_QUEUE);
		n += b->s[1].out[i].kind == 's' &&
			b->s[1].out[i].msg[0] == (KARST_SMC_LLC_DELETE_RKEY | 0x20) &&
			(b->s[1].out[i].msg[3] & KARST_SMC_LLC_RESPONSE) == 0;
	}
	return n;
}

/* The peer has the key from the previous connection, whether it is asked again or not. */
Test(smc_kept, s9_kept_key_of_a_connection_that_was_not_made)
{
	struct bed *b = bed_new(NULL);
	uint32_t rmb[2], other[2];

	cr_assert(bed_connect(b));
	cr_assert_eq(end_and_keep(b, rmb), 2);
	bed_wait(b, 2 * SEC);
	bed_open(b);
	memcpy(other, (uint32_t[]){b->s[0].conn, b->s[1].conn}, sizeof(other));
	cr_assert(bed_step(b, 0));
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_WAIT_RKEY, "the server asks about its key");
	bed_open(b);
	cr_assert_eq(karst_smc_conn_take(b->s[1].smc, b->s[1].conn, rmb[1]), 0);
	cr_assert(bed_step(b, 0));
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_WAIT_RKEY, "this one waits for that");
	cr_assert_eq(bed_info(b, 1).rmb, rmb[1]);
	cr_assert_eq(karst_smc_conn_close(b->s[1].smc, b->s[1].conn), 0);
	for (unsigned int i = 0; i < 2; i++)
		b->s[i].conn = other[i];
	cr_assert_eq(b->s[1].unkeys, 0);
	bed_pump(b);
	cr_assert_eq(deletes(b), 1);
	cr_assert_eq(b->s[1].unkeys, 1);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
	bed_free(b);
}

Test(smc_kept, s9_kept_key_of_which_nothing_is_heard)
{
	struct bed *b = bed_new(NULL);
	uint32_t rmb[2];

	cr_assert(bed_connect(b));
	cr_assert_eq(end_and_keep(b, rmb), 2);
	bed_wait(b, 2 * SEC);
	bed_open(b);
	cr_assert_eq(karst_smc_conn_take(b->s[1].smc, b->s[1].conn, rmb[1]), 0);
	cr_assert(bed_step(b, 0));
	cr_assert_eq(bed_last(b, 1)->msg[0], KARST_SMC_LLC_CONFIRM_RKEY | 0x20);
	bed_last(b, 1)->kind = 0; /* lost */
	bed_wait(b, 3 * SEC);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE, "in a group of its own");
	cr_assert_eq(deletes(b), 1);
	cr_assert_eq(b->s[1].unkeys, 1);
	bed_free(b);
}

/* After a change of links bytes may be written once more, and the other link has keys of its
 * own. */
Test(smc_kept, s9_no_key_is_kept_over_a_change_of_links)
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

/* It was kept in a group that has ended, or accepts no connections: the connection gets another
 * one. */
Test(smc_kept, s9_kept_key_of_another_group)
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

/* A peer has room for 255 keys: kept ones are deleted before a connection would fail. */
Test(smc_kept, s9_as_many_kept_keys_as_there_is_room)
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
