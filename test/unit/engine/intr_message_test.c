/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What a peer of a net_memif port may send before it is connected: strings in its messages are
 * terminated, and it has at most as many rings as the device has queues. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "intr_message.h"

enum { HELLO = 2, INIT, ADD_REGION, ADD_RING, CONNECT, CONNECTED, DISCONNECT };

#define BYTES 65536

static const struct eng_memif_limits limits = {.least = {2, 2}, .most = {4, 4}};

struct talk_bed {
	struct eng_memif_talk talk;
	int region;
};

static struct talk_bed
bed_up(bool server)
{
	struct talk_bed bed = {.talk = {.server = server}, .region = memfd_create("region", 0)};

	cr_assert_geq(bed.region, 0);
	cr_assert_eq(ftruncate(bed.region, BYTES), 0);
	return bed;
}

/* Sends a message of a type; the rest of the message is @fill. */
static bool
says(struct talk_bed *bed, uint16_t type, const void *body, size_t len, uint8_t fill)
{
	uint8_t msg[ENG_MEMIF_MESSAGE];

	memset(msg, fill, sizeof(msg));
	memcpy(msg, &type, sizeof(type));
	memcpy(msg + sizeof(type), body, len);
	return eng_memif_may_say(&bed->talk, &limits, msg, sizeof(msg), bed->region,
		type == ADD_REGION || type == ADD_RING);
}

static bool
adds_ring(struct talk_bed *bed, bool to_server, uint8_t index)
{
	const uint8_t ring[15] = {[0] = to_server, [2] = index, [10] = 4};

	return says(bed, ADD_RING, ring, sizeof(ring), 0);
}

/* A client that has sent everything up to its rings, with so many rings in each direction. */
static struct talk_bed
client_of(uint8_t to_us, uint8_t from_us)
{
	const uint8_t init[] = {0, 2}, region[10] = {[4] = BYTES >> 16};
	struct talk_bed bed = bed_up(true);
	uint8_t i;

	cr_assert(says(&bed, INIT, init, sizeof(init), 0));
	cr_assert(says(&bed, ADD_REGION, region, sizeof(region), 0));
	for (i = 0; i < to_us; i++)
		cr_assert(adds_ring(&bed, true, i));
	for (i = 0; i < from_us; i++)
		cr_assert(adds_ring(&bed, false, i));
	return bed;
}

static void
expect_connects(uint8_t to_us, uint8_t from_us, bool may)
{
	struct talk_bed bed = client_of(to_us, from_us);

	cr_expect_eq(says(&bed, CONNECT, "", 1, 0), may, "%u, %u", to_us, from_us);
	cr_expect_eq(bed.talk.few, !may);
	close(bed.region);
}

Test(intr_message, a_client_has_fewer_rings_than_there_are_queues)
{
	expect_connects(1, 1, false);
	expect_connects(1, 2, false);
	expect_connects(2, 1, false);
	expect_connects(2, 2, true);
	expect_connects(3, 3, true);
}

static void
expect_greets(uint8_t max_to_client, uint8_t max_to_server, bool may)
{
	const uint8_t hello[43] = {[33] = 2,
		[35] = 2,
		[36] = 255,
		[38] = max_to_client,
		[40] = max_to_server,
		[42] = 14};
	struct talk_bed bed = bed_up(false);

	cr_expect_eq(says(&bed, HELLO, hello, sizeof(hello), 0), may, "%u, %u", max_to_client,
		max_to_server);
	cr_expect_eq(bed.talk.few, !may);
	close(bed.region);
}

/* The message names the last ring by its number. */
Test(intr_message, a_server_allows_fewer_rings_than_there_are_queues)
{
	expect_greets(0, 0, false);
	expect_greets(0, 1, false);
	expect_greets(1, 0, false);
	expect_greets(1, 1, true);
	expect_greets(255, 255, true);
}

/* The driver would read on beyond the message. */
static void
expect_text(struct talk_bed bed, uint16_t type, const void *body, size_t len)
{
	uint8_t ends[ENG_MEMIF_MESSAGE - 2];

	cr_expect_not(says(&bed, type, body, len, 'x'), "type %u", type);
	memset(ends, 'x', sizeof(ends));
	memcpy(ends, body, len);
	ends[sizeof(ends) - 1] = 0;
	cr_expect(says(&bed, type, ends, sizeof(ends), 0), "type %u, with an end", type);
	close(bed.region);
}

Test(intr_message, text_without_end)
{
	/* zeros in front of the string are not part of it */
	const uint8_t init[7] = {0, 2}, code[4] = {0};
	struct talk_bed greeted = bed_up(false);

	expect_text(bed_up(false), HELLO, "", 0);
	expect_text(bed_up(true), INIT, init, sizeof(init));
	expect_text(client_of(2, 2), CONNECT, "", 0);
	greeted.talk.begun = true;
	expect_text(greeted, CONNECTED, "", 0);
	expect_text(client_of(2, 2), DISCONNECT, code, sizeof(code));
}
