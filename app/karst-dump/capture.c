/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Read capture files with libpcap, which handles pcap and pcapng and both byte orders, and gives
 * nanoseconds when asked.  This file opens the capture itself and passes it to libpcap, so that the
 * position in the file is known when libpcap finds damage.
 *
 * InfiniBand packets come as DLT_INFINIBAND (the packet from the LRH on) or in ERF records
 * (DLT_ERF).  An ERF record has a header of 16 bytes, then extension headers of 8 bytes as long as
 * the top bit of the type is set.
 */
#include "capture.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#ifndef DLT_INFINIBAND
#define DLT_INFINIBAND 247
#endif

#define ERF_HDR_LEN         16
#define ERF_EXT_LEN         8
#define ERF_MORE            0x80
#define ERF_TYPE_INFINIBAND 21

#define PLACE_ROOM 64

/* Format a position in the file.  The text is empty for a pipe, which has no positions. */
static const char *__attribute__((format(printf, 2, 0)))
place(char text[PLACE_ROOM], const char *format, long at)
{
	text[0] = '\0';
	if (at >= 0)
		snprintf(text, PLACE_ROOM, format, at);
	return text;
}

/*
 * The position where the frame after the @c->frames ones that were read begins; -1: the file is
 * not a regular one, or has changed.  To ask for the position before each frame would cost a
 * system call each, so the file is read once more.
 */
static long
frame_place(const struct capture *c)
{
	char err[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *hdr;
	const u_char *data;
	struct stat st;
	uint64_t i = 0;
	pcap_t *pcap;
	FILE *file;
	long at;

	if (c->file == stdin || fstat(fileno(c->file), &st) != 0 || !S_ISREG(st.st_mode))
		return -1;
	file = fopen(c->path, "rb");
	if (file == NULL)
		return -1;
	pcap = pcap_fopen_offline(file, err);
	if (pcap == NULL) {
		fclose(file);
		return -1;
	}
	while (i < c->frames && pcap_next_ex(pcap, &hdr, &data) == 1)
		i++;
	at = i == c->frames ? ftell(file) : -1;
	pcap_close(pcap);
	return at;
}

static int
check_link(struct capture *c)
{
	const char *name;

	c->dlt = pcap_datalink(c->pcap);
	switch (c->dlt) {
	case DLT_EN10MB:
		c->link = CAPTURE_ETHERNET;
		return 0;
	case DLT_INFINIBAND:
	case DLT_ERF:
		c->link = CAPTURE_INFINIBAND;
		return 0;
	default:
		name = pcap_datalink_val_to_name(c->dlt);
		fprintf(stderr,
			"karst-dump: %s: link type %d (%s) is not supported; "
			"allowed are Ethernet (1), InfiniBand (247) and ERF (197)\n",
			c->path, c->dlt, name != NULL ? name : "unknown");
		return -1;
	}
}

int
capture_open(struct capture *c, const char *path)
{
	char err[PCAP_ERRBUF_SIZE] = "", text[PLACE_ROOM];

	*c = (struct capture){.path = path};
	c->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
	if (c->file == NULL) {
		fprintf(stderr, "karst-dump: %s: %s\n", path, strerror(errno));
		return -1;
	}
	c->pcap =
		pcap_fopen_offline_with_tstamp_precision(c->file, PCAP_TSTAMP_PRECISION_NANO, err);
	if (c->pcap == NULL) {
		fprintf(stderr, "karst-dump: %s:%s not a pcap or pcapng file: %s\n", path,
			place(text, " byte %ld:", ftell(c->file)), err);
		if (c->file != stdin)
			fclose(c->file);
		return -1;
	}
	if (check_link(c) != 0) {
		capture_close(c);
		return -1;
	}
	return 0;
}

/*
 * Remove the ERF header.  A record of another type, or one that is too short for its headers, is
 * marked as not known.
 */
static void
strip_erf(struct capture_frame *f)
{
	uint32_t off = ERF_HDR_LEN;
	uint8_t more;

	f->known = false;
	if (f->len < ERF_HDR_LEN || (f->data[8] & ~ERF_MORE) != ERF_TYPE_INFINIBAND)
		return;
	for (more = f->data[8] & ERF_MORE; more != 0; off += ERF_EXT_LEN) {
		if (f->len < off + ERF_EXT_LEN)
			return;
		more = f->data[off] & ERF_MORE;
	}
	f->wire_len = (uint32_t)f->data[14] << 8 | f->data[15];
	f->data += off;
	f->len -= off;
	if (f->len > f->wire_len)
		f->len = f->wire_len; /* records are padded to 8 bytes */
	f->known = true;
}

int
capture_next(struct capture *c, struct capture_frame *f)
{
	struct pcap_pkthdr *hdr;
	const u_char *data;
	char text[PLACE_ROOM];
	uint64_t ns;
	int rc;

	rc = pcap_next_ex(c->pcap, &hdr, &data);
	if (rc == PCAP_ERROR_BREAK)
		return 0;
	if (rc != 1 && !c->quiet)
		fprintf(stderr, "karst-dump: %s: frame %llu%s: %s\n", c->path,
			(unsigned long long)c->frames + 1,
			place(text, ", which starts at byte %ld", frame_place(c)),
			pcap_geterr(c->pcap));
	if (rc != 1)
		return -1;
	ns = (uint64_t)hdr->ts.tv_sec * 1000000000 + (uint64_t)hdr->ts.tv_usec;
	if (c->frames++ == 0)
		c->start_ns = ns;
	*f = (struct capture_frame){
		.data = (uint8_t *)(uintptr_t)data, /* libpcap's own buffer; never written to */
		.len = hdr->caplen,
		.wire_len = hdr->len,
		.time_ns = (int64_t)(ns - c->start_ns),
		.number = c->frames,
		.link = c->link,
		.known = true,
	};
	if (c->dlt == DLT_ERF)
		strip_erf(f);
	return 1;
}

void
capture_close(struct capture *c)
{
	if (c->pcap != NULL)
		pcap_close(c->pcap); /* closes the file, unless it is standard input */
	c->pcap = NULL;
}
