/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The frames of a capture, and what the wire did to each of them.
 *
 * The files are classic pcap, little-endian, of Ethernet with microseconds; other formats are
 * handled by karst-dump and its tests only.  Each frame is there as its sender sent it; the last
 * column of MANIFEST.tsv says which of them were then lost, duplicated, delayed, damaged or marked.
 * Where a host lost or reordered frames before they reached the wire ("tc netem" in the commands
 * that set it up), the capture has the frames that were left.
 */
#include <errno.h>
#include <stdlib.h>

#include "karst_decode.h"
#include "karst_parse.h"
#include "replay.h"

#define PCAP_HEADER 24u
#define PCAP_RECORD 16u
#define MAC_BYTE    5 /* of the source: 1 is the client, 2 the server */
#define PORT_BYTE   4

enum column {
	COL_FILE,
	COL_SCENARIO,
	COL_COMMAND,
	COL_KERNEL,
	COL_RC,
	COL_FRAMES,
	COL_ROCE,
	COL_ICRC,
	COL_OPCODES,
	COL_WIRE,
	COLUMNS
};

/* --- the file --- */

static int
read_file(const char *folder, const char *name, uint8_t **bytes, size_t *len)
{
	char path[4096];
	FILE *f;
	long end;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (f == NULL)
		return -errno;
	fseek(f, 0, SEEK_END);
	end = ftell(f);
	rewind(f);
	*len = end > 0 ? (size_t)end : 0;
	*bytes = malloc(*len + 1);
	if (fread(*bytes, 1, *len, f) != *len) {
		free(*bytes);
		fclose(f);
		return -EIO;
	}
	fclose(f);
	return *len < PCAP_HEADER ? -EPROTO : 0;
}

static uint32_t
le32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static void
add_frame(struct rp_capture *c, uint32_t number, uint64_t ns, uint8_t *data, uint32_t len)
{
	struct karst_pkt pkt = {.data = data, .len = (uint16_t)len};
	struct rp_frame *f;

	if (karst_parse(&pkt) != KARST_DROP_NONE)
		return;
	c->frames = realloc(c->frames, (c->n + 1) * sizeof(*c->frames));
	f = &c->frames[c->n++];
	*f = (struct rp_frame){.number = number, .ns = ns, .opf = karst_opcode_flags(pkt.opcode)};
	karst_decode_frame(&pkt, &f->f);
	f->from = f->f.smac[MAC_BYTE] == 1 ? 0 : 1;
	f->port = f->f.smac[PORT_BYTE];
}

static int
take_frames(struct rp_capture *c, size_t len)
{
	size_t at = PCAP_HEADER;
	uint32_t number = 0;

	if (le32(c->bytes) != 0xa1b2c3d4 || le32(c->bytes + 20) != 1)
		return -EPROTO;
	while (at + PCAP_RECORD <= len) {
		const uint8_t *rec = c->bytes + at;
		uint32_t caplen = le32(rec + 8);
		uint64_t ns = le32(rec) * 1000000000ull + le32(rec + 4) * 1000ull;

		at += PCAP_RECORD;
		if (caplen > 65535 || caplen > len - at)
			return -EPROTO;
		add_frame(c, ++number, ns, c->bytes + at, caplen);
		at += caplen;
	}
	return at == len ? 0 : -EPROTO;
}

/* --- the manifest --- */

static int
fate_named(const char *word, enum rp_fate *fate)
{
	static const char *const names[] = {
		[RP_PASSED] = "", "drop", "dup", "delay", "corrupt", "ce"};
	unsigned int i;

	for (i = 1; i < KARST_DIM(names); i++) {
		if (strcmp(names[i], word) == 0) {
			*fate = (enum rp_fate)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int
take_fates(struct rp_capture *c, char *wire)
{
	char *item;

	while ((item = strsep(&wire, " ")) != NULL) {
		char *word = NULL;
		unsigned long number = strtoul(item, &word, 10);
		enum rp_fate fate;
		unsigned int i;

		if (*item == '\0')
			continue;
		if (*word != ':' || fate_named(word + 1, &fate) != 0)
			return -EINVAL;
		for (i = 0; i < c->n && c->frames[i].number != number; i++)
			;
		if (i == c->n)
			return -EINVAL;
		c->frames[i].fate = fate;
	}
	return 0;
}

/* The part of the command that runs on @side; "pre" parts are its set-up. */
static bool
part_of_command(const struct rp_capture *c, const char *prefix, const char *what)
{
	const char *at = strstr(c->command, prefix), *end, *hit;

	if (at == NULL)
		return false;
	end = strstr(at, " | ");
	hit = strstr(at, what);
	return hit != NULL && (end == NULL || hit < end);
}

bool
rp_uses_srq(const struct rp_capture *c, unsigned int side)
{
	const char *prefix = side == 0 ? "A: " : "B: ";

	return part_of_command(c, prefix, "ibv_srq_pingpong ") ||
		part_of_command(c, prefix, "vt -s -S");
}

uint32_t
rp_option(const struct rp_capture *c, unsigned int side, char letter, uint32_t without)
{
	const char prefixes[2][8] = {"A: vt ", "B: vt "};
	const char *at = strstr(c->command, prefixes[side]), *end;
	char word[8];

	if (at == NULL)
		return without;
	end = strstr(at, " | ");
	snprintf(word, sizeof(word), " -%c ", letter);
	at = strstr(at, word);
	if (at == NULL || (end != NULL && at > end))
		return without;
	return (uint32_t)strtoul(at + 4, NULL, 0);
}

int
rp_capture_read(const char *folder, const char *row, struct rp_capture *c)
{
	char *copy = strdup(row), *at = copy, *col[COLUMNS];
	size_t len = 0;
	int rc = 0, i;

	*c = (struct rp_capture){0};
	for (i = 0; i < COLUMNS; i++) {
		col[i] = strsep(&at, "\t");
		if (col[i] == NULL)
			rc = -EINVAL;
	}
	if (rc == 0) {
		c->name = strdup(col[COL_FILE]);
		c->command = strdup(col[COL_COMMAND]);
		rc = read_file(folder, col[COL_FILE], &c->bytes, &len);
	}
	if (rc == 0)
		rc = take_frames(c, len);
	if (rc == 0)
		rc = c->n == strtoul(col[COL_ROCE], NULL, 10) ? 0 : -EPROTO;
	if (rc == 0)
		rc = take_fates(c, col[COL_WIRE]);
	for (i = 0; rc == 0 && i < 2; i++) {
		const char *prefix = i == 0 ? "pre A:" : "pre B:";

		c->lossy[i] = part_of_command(c, prefix, "netem loss");
		c->shuffled[i] = part_of_command(c, prefix, "reorder");
	}
	free(copy);
	return rc;
}

void
rp_capture_free(struct rp_capture *c)
{
	free(c->name);
	free(c->command);
	free(c->frames);
	free(c->bytes);
}
