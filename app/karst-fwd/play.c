/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "play.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_parse.h"
#include "opts.h"
#include "template.h"

#define FRAME_MAX 65535u
#define WORD_MAX  1024

static const char keys_text[] = "allowed: file=PATH src=IP dst=IP smac=MAC dmac=MAC loops=N";

/* What to change, and the two ends of the capture. */
struct change {
	char file[WORD_MAX];
	bool mac_set[2], ip_set[2], ip6[2];
	uint8_t mac[2][6], ip[2][16]; /* new addresses of source and destination */
	bool known;                   /* whether the members below are set */
	bool old_ip6;
	uint8_t old[2][16];
};

struct reader {
	struct fwd_play *play;
	struct change change;
	uint64_t bytes, room; /* of play->data */
	uint32_t frames_room;
	char *why;
	size_t why_room;
};

static int
set_word(struct reader *r, const char *word)
{
	const char *value = strchr(word, '=');
	struct change *c = &r->change;
	bool ok = false;
	int dst = word[0] == 'd';

	if (value == NULL)
		goto out;
	value++;
	if (strncmp(word, "file=", 5) == 0) {
		snprintf(c->file, sizeof(c->file), "%s", value);
		ok = value[0] != '\0';
	} else if (strncmp(word, "src=", 4) == 0 || strncmp(word, "dst=", 4) == 0) {
		ok = c->ip_set[dst] = fwd_ip_parse(value, &c->ip6[dst], c->ip[dst]);
	} else if (strncmp(word, "smac=", 5) == 0 || strncmp(word, "dmac=", 5) == 0) {
		ok = c->mac_set[dst] = fwd_mac_parse(value, c->mac[dst]);
	} else if (strncmp(word, "loops=", 6) == 0) {
		ok = fwd_number(value, 0, UINT32_MAX, &r->play->loops);
	}
out:
	if (!ok)
		snprintf(r->why, r->why_room, "'%.100s': %s", word, keys_text);
	return ok ? 0 : -1;
}

static int
read_words(struct reader *r, const char *text)
{
	char word[WORD_MAX];
	struct change *c = &r->change;

	for (;;) {
		size_t len;

		text += strspn(text, " \t\n");
		len = strcspn(text, " \t\n");
		if (len == 0)
			break;
		if (len >= sizeof(word)) {
			snprintf(r->why, r->why_room, "a word is too long; %s", keys_text);
			return -1;
		}
		memcpy(word, text, len);
		word[len] = '\0';
		if (set_word(r, word) != 0)
			return -1;
		text += len;
	}
	if (c->file[0] != '\0' && (!c->ip_set[0] || !c->ip_set[1] || c->ip6[0] == c->ip6[1]))
		return 0;
	snprintf(r->why, r->why_room, "%s",
		c->file[0] == '\0' ? "no file; allowed: file=PATH and others"
				   : "src, dst: two addresses of one kind are allowed");
	return -1;
}

/*
 * Checks that new addresses have the IP version of the capture.  Others could not replace any
 * address.
 */
static int
check_kind(struct reader *r)
{
	const struct change *c = &r->change;
	int i;

	for (i = 0; c->known && i < 2; i++)
		if (c->ip_set[i] && c->ip6[i] != c->old_ip6) {
			snprintf(r->why, r->why_room,
				"%s: the first RoCEv2 frame of %.200s is IPv%d; an IPv%d address is "
				"allowed",
				i == 0 ? "src" : "dst", c->file, c->old_ip6 ? 6 : 4,
				c->old_ip6 ? 6 : 4);
			return -1;
		}
	return 0;
}

/* Locates the source or the destination address. */
static uint8_t *
address(uint8_t *l3, bool ip6, int dst)
{
	return l3 + (ip6 ? 8 + 16 * dst : 12 + 4 * dst);
}

/* @return the end of the capture that has this address: 0 source, 1 destination, -1 neither. */
static int
end_of(const struct change *c, const uint8_t *addr, bool ip6)
{
	size_t len = ip6 ? 16 : 4;

	if (ip6 != c->old_ip6)
		return -1;
	if (memcmp(c->old[0], addr, len) == 0)
		return 0;
	return memcmp(c->old[1], addr, len) == 0 ? 1 : -1;
}

static void
ip4_checksum(uint8_t *ip)
{
	uint32_t sum = 0, i;

	karst_put_be16(ip + 10, 0);
	for (i = 0; i < KARST_IP4_LEN; i += 2)
		sum += karst_get_be16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	karst_put_be16(ip + 10, (uint16_t) ~(sum + (sum >> 16)));
}

/* Replaces the frame's source (@which is 0) or destination address by the new one of its end. */
static void
change_end(const struct change *c, uint8_t *frame, uint8_t *l3, bool ip6, int which)
{
	uint8_t *addr = address(l3, ip6, which);
	int end = end_of(c, addr, ip6);

	if (end < 0)
		return;
	if (c->ip_set[end] && c->ip6[end] == ip6)
		memcpy(addr, c->ip[end], ip6 ? 16 : 4);
	if (c->mac_set[end])
		memcpy(frame + (which == 0 ? 6 : 0), c->mac[end], 6);
}

static void
rewrite(struct reader *r, struct karst_pkt *p)
{
	struct change *c = &r->change;
	unsigned int l3_off = karst_pkt_l3_off(p);
	bool ip6 = (p->flags & KARST_PKT_IP6) != 0;
	uint8_t *l3 = p->data + l3_off, *udp = p->data + p->bth_off - KARST_UDP_LEN;
	uint8_t *end = p->data + p->len - KARST_ICRC_LEN;
	uint32_t icrc, was;

	memcpy(&was, end, sizeof(was));
	icrc = karst_icrc_rocev2(l3, (size_t)(end - l3), ip6);
	r->play->mended += was != icrc;
	if (!c->known) {
		c->known = true;
		c->old_ip6 = ip6;
		memcpy(c->old[0], address(l3, ip6, 0), ip6 ? 16 : 4);
		memcpy(c->old[1], address(l3, ip6, 1), ip6 ? 16 : 4);
	}
	change_end(c, p->data, l3, ip6, 0);
	change_end(c, p->data, l3, ip6, 1);
	if (!ip6)
		ip4_checksum(l3);
	icrc = karst_icrc_rocev2(l3, (size_t)(end - l3), ip6);
	memcpy(end, &icrc, sizeof(icrc)); /* least significant byte first, as on this machine */
	if (karst_udp_checksum(udp) != 0)
		karst_build_udp_checksum(udp, karst_get_be16(udp + 4), ip6);
}

/* Makes room for one more frame.  Memory grows by a factor of two. */
static int
grow(struct reader *r, uint32_t len)
{
	struct fwd_play *p = r->play;

	if (r->bytes + len > FWD_PLAY_BYTES_MAX) {
		snprintf(r->why, r->why_room,
			"%.200s: more than %u MiB of frames; captures up to that are allowed",
			r->change.file, FWD_PLAY_BYTES_MAX >> 20);
		return -1;
	}
	if (r->bytes + len > r->room) {
		uint64_t room = karst_max_u64(2 * r->room, UINT64_C(1) << 17);
		uint8_t *data = realloc(p->data, room);

		if (data == NULL)
			goto no_memory;
		p->data = data;
		r->room = room;
	}
	if (p->nframes == r->frames_room) {
		uint32_t n = r->frames_room == 0 ? 1024 : 2 * r->frames_room;
		struct fwd_play_frame *frames = realloc(p->frames, n * sizeof(*frames));

		if (frames == NULL)
			goto no_memory;
		p->frames = frames;
		r->frames_room = n;
	}
	return 0;
no_memory:
	snprintf(r->why, r->why_room, "no memory");
	return -1;
}

static int
add(struct reader *r, const struct pcap_pkthdr *hdr, const uint8_t *data)
{
	struct fwd_play *p = r->play;
	struct karst_pkt pkt;

	if (hdr->caplen < hdr->len || hdr->caplen > FRAME_MAX || hdr->caplen < KARST_ETH_LEN) {
		p->left_out++;
		return 0;
	}
	if (grow(r, hdr->caplen) != 0)
		return -1;
	memcpy(p->data + r->bytes, data, hdr->caplen);
	pkt = (struct karst_pkt){.data = p->data + r->bytes, .len = (uint16_t)hdr->caplen};
	if (karst_parse(&pkt) == KARST_DROP_NONE) {
		rewrite(r, &pkt);
		p->roce++;
	} else {
		p->other++;
	}
	p->frames[p->nframes++] = (struct fwd_play_frame){(uint32_t)r->bytes, hdr->caplen};
	r->bytes += hdr->caplen;
	if (hdr->caplen > p->longest)
		p->longest = hdr->caplen;
	return 0;
}

static int
read_all(struct reader *r, pcap_t *pcap)
{
	struct pcap_pkthdr *hdr;
	const u_char *data;
	const char *name;
	int rc, dlt = pcap_datalink(pcap);

	if (dlt != DLT_EN10MB) {
		name = pcap_datalink_val_to_name(dlt);
		snprintf(r->why, r->why_room, "%.200s: link type %d (%s); Ethernet is allowed",
			r->change.file, dlt, name != NULL ? name : "unknown");
		return -1;
	}
	while ((rc = pcap_next_ex(pcap, &hdr, &data)) == 1)
		if (add(r, hdr, data) != 0)
			return -1;
	if (rc != PCAP_ERROR_BREAK)
		snprintf(r->why, r->why_room, "%.200s: damaged behind frame %llu: %s",
			r->change.file, (unsigned long long)r->play->nframes + r->play->left_out,
			pcap_geterr(pcap));
	else if (r->play->nframes == 0)
		snprintf(r->why, r->why_room, "%.200s: no whole frame in it", r->change.file);
	else
		return check_kind(r);
	return -1;
}

struct fwd_play *
fwd_play_open(const char *text, char *why, size_t room)
{
	struct reader r = {.why = why, .why_room = room};
	char err[PCAP_ERRBUF_SIZE] = "";
	pcap_t *pcap;
	int rc;

	r.play = calloc(1, sizeof(*r.play));
	if (r.play == NULL) {
		snprintf(why, room, "no memory");
		return NULL;
	}
	r.play->loops = 1;
	rc = read_words(&r, text);
	if (rc == 0 && access(r.change.file, R_OK) != 0) {
		snprintf(why, room, "%.200s: %s", r.change.file, strerror(errno));
		rc = -1;
	}
	if (rc == 0) {
		pcap = pcap_open_offline(r.change.file, err);
		rc = pcap == NULL ? -1 : read_all(&r, pcap);
		if (pcap == NULL)
			snprintf(why, room, "not a pcap or pcapng file: %s", err);
		else
			pcap_close(pcap);
	}
	if (rc == 0)
		return r.play;
	fwd_play_free(r.play);
	return NULL;
}

void
fwd_play_free(struct fwd_play *p)
{
	if (p == NULL)
		return;
	free(p->data);
	free(p->frames);
	free(p);
}
