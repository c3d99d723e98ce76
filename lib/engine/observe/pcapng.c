/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A block is its type, its length, a body of whole 32-bit words that ends in options, and its
 * length again.  An option is a code, a length and a value padded to 32 bits.
 */
#include "pcapng.h"

#include <endian.h>

#define BLOCK_SECTION    0x0a0d0d0au
#define BLOCK_INTERFACE  1u
#define BLOCK_STATISTICS 5u
#define BLOCK_PACKET     6u
#define BYTE_ORDER_MAGIC 0x1a2b3c4du
#define LINK_ETHERNET    1u
#define OPT_END          0
#define OPT_COMMENT      1
#define SHB_USERAPPL     4
#define IF_NAME          2
#define IF_DESCRIPTION   3
#define IF_MACADDR       6
#define IF_TSRESOL       9
#define EPB_FLAGS        2
#define ISB_IFRECV       4
#define ISB_IFDROP       5
#define BLOCK_MAX        1024u /* all except the data of packets; strings are cut to fit */

/* A block, or the part of it before or after a packet's data. */
struct block {
	uint32_t n;
	uint8_t bytes[BLOCK_MAX];
};

static void
pcapng_put32(struct block *b, uint32_t v)
{
	v = htole32(v);
	memcpy(b->bytes + b->n, &v, sizeof(v));
	b->n += sizeof(v);
}

/* The high word first, each word in the byte order of the file. */
static void
put_time(struct block *b, uint64_t ns)
{
	pcapng_put32(b, (uint32_t)(ns >> 32));
	pcapng_put32(b, (uint32_t)ns);
}

static void
put_option(struct block *b, uint16_t code, const void *value, size_t len)
{
	uint32_t padded = (uint32_t)(len + 3) & ~3u;

	pcapng_put32(b, (uint32_t)len << 16 | code);
	memset(b->bytes + b->n, 0, padded);
	if (len > 0)
		memcpy(b->bytes + b->n, value, len);
	b->n += padded;
}

static void
pcapng_put_text(struct block *b, uint16_t code, const char *text)
{
	if (text[0] != '\0')
		put_option(b, code, text, strnlen(text, BLOCK_MAX / 4));
}

static void
put_u64(struct block *b, uint16_t code, uint64_t v)
{
	v = htole64(v);
	put_option(b, code, &v, sizeof(v));
}

static void
pcapng_begin(struct block *b, uint32_t type)
{
	b->n = 0;
	pcapng_put32(b, type);
	pcapng_put32(b, 0); /* the length, set when it is known */
}

/* Sets the length of a block, at both of its ends. */
static void
set_length(struct block *head, struct block *tail, uint32_t length)
{
	pcapng_put32(tail, length);
	length = htole32(length);
	memcpy(head->bytes + 4, &length, sizeof(length));
}

static void
write_block(FILE *f, struct block *b)
{
	put_option(b, OPT_END, NULL, 0);
	set_length(b, b, b->n + 4);
	fwrite(b->bytes, b->n, 1, f);
}

void
eng_pcapng_section(FILE *f, const char *program, const char *comment)
{
	struct block b;

	pcapng_begin(&b, BLOCK_SECTION);
	pcapng_put32(&b, BYTE_ORDER_MAGIC);
	pcapng_put32(&b, 1);          /* version 1.0 */
	pcapng_put32(&b, UINT32_MAX); /* length of the section: not known */
	pcapng_put32(&b, UINT32_MAX);
	pcapng_put_text(&b, OPT_COMMENT, comment);
	pcapng_put_text(&b, SHB_USERAPPL, program);
	write_block(f, &b);
}

void
eng_pcapng_interface(
	FILE *f, const char *name, const char *description, const uint8_t mac[6], uint32_t snaplen)
{
	const uint8_t nanoseconds = 9;
	struct block b;

	pcapng_begin(&b, BLOCK_INTERFACE);
	pcapng_put32(&b, LINK_ETHERNET);
	pcapng_put32(&b, snaplen);
	pcapng_put_text(&b, IF_NAME, name);
	pcapng_put_text(&b, IF_DESCRIPTION, description);
	put_option(&b, IF_MACADDR, mac, 6);
	put_option(&b, IF_TSRESOL, &nanoseconds, 1);
	write_block(f, &b);
}

void
eng_pcapng_packet(FILE *f, const struct pcapng_packet *p)
{
	static const uint8_t zero[4];
	uint32_t pad = -p->have & 3, flags = htole32(p->direction);
	struct block head, tail = {.n = 0};

	pcapng_begin(&head, BLOCK_PACKET);
	pcapng_put32(&head, p->interface);
	put_time(&head, p->time_ns);
	pcapng_put32(&head, p->have);
	pcapng_put32(&head, p->len);
	put_option(&tail, EPB_FLAGS, &flags, sizeof(flags));
	put_option(&tail, OPT_END, NULL, 0);
	set_length(&head, &tail, head.n + p->have + pad + tail.n + 4);
	fwrite(head.bytes, head.n, 1, f);
	fwrite(p->data, p->have, 1, f);
	fwrite(zero, pad, 1, f);
	fwrite(tail.bytes, tail.n, 1, f);
}

void
eng_pcapng_statistics(
	FILE *f, uint32_t interface, uint64_t time_ns, uint64_t received, uint64_t dropped)
{
	struct block b;

	pcapng_begin(&b, BLOCK_STATISTICS);
	pcapng_put32(&b, interface);
	put_time(&b, time_ns);
	put_u64(&b, ISB_IFRECV, received);
	put_u64(&b, ISB_IFDROP, dropped);
	write_block(f, &b);
}
