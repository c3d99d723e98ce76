/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Headers of trains, compared with frames that are written by hand here. */
#include <criterion/criterion.h>
#include <string.h>

#include "train.h"

#define PAY 100u

struct frame {
	uint8_t data[200];
	size_t len;
};

static uint16_t
get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void
put16(uint8_t *p, unsigned int v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* The one's complement sum of @len bytes: 0xffff if a checksum in them is right. */
static uint16_t
sum_of(const uint8_t *p, size_t len, uint32_t sum)
{
	size_t i;

	for (i = 0; i < len; i++)
		sum += (uint32_t)p[i] << (i % 2 == 0 ? 8 : 0);
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static struct frame
frame4(bool tagged, uint16_t id, size_t pay)
{
	struct frame f = {.len = 14u + (tagged ? 4 : 0) + 28 + pay};
	uint8_t *p = f.data;

	memcpy(p, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02", 12);
	p += 12;
	if (tagged) {
		put16(p, 0x8100);
		put16(p + 2, 5);
		p += 4;
	}
	put16(p, 0x0800);
	p += 2;
	p[0] = 0x45;
	put16(p + 2, (unsigned int)(28 + pay));
	put16(p + 4, id);
	p[6] = 0x40;
	p[8] = 64;
	p[9] = 17;
	memcpy(p + 12, "\xc0\x00\x02\x01\xc0\x00\x02\x02", 8);
	put16(p + 10, (uint16_t)~sum_of(p, 20, 0));
	p += 20;
	put16(p, 0xc123);
	put16(p + 2, 4791);
	put16(p + 4, (unsigned int)(8 + pay));
	memset(p + 8, 0xa5, pay);
	return f;
}

static struct frame
frame6(size_t pay)
{
	struct frame f = {.len = 14u + 48 + pay};
	uint8_t *p = f.data + 14;

	put16(f.data + 12, 0x86dd);
	p[0] = 0x60;
	put16(p + 4, (unsigned int)(8 + pay));
	p[6] = 17;
	p[7] = 64;
	p[8] = p[24] = 0x20;
	p[23] = 1;
	p[39] = 2;
	put16(p + 40, 0xc123);
	put16(p + 42, 4791);
	put16(p + 44, (unsigned int)(8 + pay));
	return f;
}

static struct kp_hdrs
hdrs_of(const struct frame *f)
{
	struct kp_hdrs h;

	cr_assert(kp_hdrs_find(f->data, f->len, &h));
	return h;
}

Test(train, headers_are_found)
{
	struct frame f = frame4(false, 1, PAY);
	struct kp_hdrs h = hdrs_of(&f);

	cr_assert(h.l3 == 14 && h.l4 == 34 && h.bytes == 42 && !h.ip6);
	f = frame4(true, 1, PAY);
	h = hdrs_of(&f);
	cr_assert(h.l3 == 18 && h.l4 == 38 && h.bytes == 46 && !h.ip6);
	f = frame6(PAY);
	h = hdrs_of(&f);
	cr_assert(h.l3 == 14 && h.l4 == 54 && h.bytes == 62 && h.ip6);
}

/* Frames that are not plain datagrams, or are truncated anywhere in their headers, are not
 * accepted. */
Test(train, other_frames_are_not)
{
	static const struct {
		unsigned int at;
		uint8_t value;
	} bad[] = {{13, 6}, {14, 0x46}, {14, 0x65}, {20, 0x60}, {21, 1}, {23, 6}};
	struct frame f, good = frame4(false, 1, PAY), v6 = frame6(PAY);
	struct kp_hdrs h;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		f = good;
		f.data[bad[i].at] = bad[i].value;
		cr_assert_not(kp_hdrs_find(f.data, f.len, &h), "byte %u", bad[i].at);
	}
	v6.data[20] = 44; /* a fragment header */
	cr_assert_not(kp_hdrs_find(v6.data, v6.len, &h));
	for (i = 0; i < 42; i++)
		cr_assert_not(kp_hdrs_find(good.data, i, &h), "%zu bytes", i);
}

Test(train, begins_with_a_whole_datagram_without_checksum)
{
	struct frame f = frame4(false, 1, PAY);
	struct kp_hdrs h = hdrs_of(&f);

	cr_assert(kp_train_begins(f.data, f.len, &h));
	/* padded, cut */
	cr_assert_not(kp_train_begins(f.data, f.len + 1, &h));
	cr_assert_not(kp_train_begins(f.data, f.len - 1, &h));
	f.data[41] = 1;
	cr_assert_not(kp_train_begins(f.data, f.len, &h));
	f.data[41] = 0;
	put16(f.data + 38, 8 + PAY - 1);
	cr_assert_not(kp_train_begins(f.data, f.len, &h));
	f = frame4(false, 1, 0);
	cr_assert_not(kp_train_begins(f.data, f.len, &h), "nothing in it");
}

/* Each field that the kernel takes from the first datagram must be the same in all. */
Test(train, joins_only_what_segmentation_gives_back)
{
	static const unsigned int fields[] = {0, 6, 15, 20, 22, 26, 30, 34, 36, 41};
	struct frame first = frame4(false, 0xffff, PAY), next = frame4(false, 0, PAY), f;
	struct kp_hdrs h = hdrs_of(&first);
	size_t i;

	cr_assert(kp_train_joins(first.data, &h, next.data, next.len, 1), "ids wrap around");
	cr_assert_not(kp_train_joins(first.data, &h, next.data, next.len, 2), "a gap");
	cr_assert_not(kp_train_joins(first.data, &h, next.data, next.len - 1, 1), "cut");
	f = frame4(false, 0, PAY - 9);
	cr_assert(kp_train_joins(first.data, &h, f.data, f.len, 1), "a shorter one");
	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		f = next;
		f.data[fields[i]] ^= 1;
		cr_assert_not(
			kp_train_joins(first.data, &h, f.data, f.len, 1), "byte %u", fields[i]);
	}
	first = frame6(PAY);
	next = frame6(PAY);
	h = hdrs_of(&first);
	cr_assert(kp_train_joins(first.data, &h, next.data, next.len, 1));
	next.data[17] ^= 1; /* the flow label */
	cr_assert_not(kp_train_joins(first.data, &h, next.data, next.len, 1));
}

/* For each datagram the headers are those that it would have had alone. */
Test(train, headers_of_each)
{
	struct frame first = frame4(true, 0xfffe, PAY), want;
	struct kp_hdrs h = hdrs_of(&first);
	uint8_t train[KP_HEADERS_MAX], one[KP_HEADERS_MAX];
	unsigned int i;

	kp_hdrs_of_train(train, first.data, &h, 5 * PAY + 7);
	cr_assert_eq(get16(train + h.l3 + 2), 28 + 5 * PAY + 7);
	cr_assert_eq(get16(train + h.l4 + 4), 8 + 5 * PAY + 7);
	cr_assert_eq(sum_of(train + h.l3, 20, 0), 0xffff);
	cr_assert_eq(get16(train + h.l4 + 6), sum_of(train + h.l3 + 12, 8, 17 + 8 + 5 * PAY + 7),
		"of the pseudo header");
	for (i = 0; i < 6; i++) {
		size_t pay = i < 5 ? PAY : 7;

		want = frame4(true, (uint16_t)(0xfffe + i), pay);
		kp_hdrs_of_one(one, train, &h, i, pay);
		cr_assert_arr_eq(one, want.data, h.bytes, "datagram %u", i);
	}
	/* the first one is written in place */
	kp_hdrs_of_one(train, train, &h, 0, PAY);
	cr_assert_arr_eq(train, first.data, h.bytes);
}

Test(train, headers_of_each_over_ip6)
{
	struct frame first = frame6(PAY), want = frame6(7);
	struct kp_hdrs h = hdrs_of(&first);
	uint8_t train[KP_HEADERS_MAX];

	kp_hdrs_of_train(train, first.data, &h, PAY + 7);
	cr_assert_eq(get16(train + 18), 8 + PAY + 7);
	cr_assert_eq(get16(train + 60), sum_of(train + 22, 32, 17 + 8 + PAY + 7));
	kp_hdrs_of_one(train, train, &h, 1, 7);
	cr_assert_arr_eq(train, want.data, h.bytes);
}
