/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Captures of SMC-R: frames of TCP and RoCEv2, and what a host chose itself, which is in its CLC
 * (S2) and ADD_LINK (S10) messages: ids, queue pairs, PSNs, keys and addresses of buffers.
 */
#include <stdio.h>

#include "smc_replay.h"

#define PCAP_HEADER 24u
#define PCAP_RECORD 16u
#define ETH_LEN     14u
#define BTH_LEN     12u
#define ICRC_LEN    4u
#define SECOND_PORT 128u /* from here on in the last byte of an address */

/* --- frames --- */

static void
parse_roce(struct rs_frame *f, const uint8_t *udp, uint32_t len)
{
	f->roce = true;
	f->opcode = udp[8];
	f->psn = karst_get_be32(udp + 8 + 8) & KARST_PSN_MASK;
	f->data = udp + 8 + BTH_LEN;
	f->len = len - 8 - BTH_LEN - ICRC_LEN;
	if (f->opcode == RS_WRITE_FIRST || f->opcode == RS_WRITE_ONLY) {
		f->vaddr = karst_get_be64(f->data);
		f->rkey = karst_get_be32(f->data + 8);
		f->dma_len = karst_get_be32(f->data + 12);
	}
}

static bool
parse_frame(struct rs_frame *f, const uint8_t *p, uint32_t cap)
{
	const uint8_t *ip = p + ETH_LEN, *l4 = ip + 20;
	uint32_t len, head;

	if (cap < ETH_LEN + 40 || karst_get_be16(p + 12) != 0x0800)
		return false;
	len = karst_get_be16(ip + 2) - 20u;
	f->port = ip[15] >= SECOND_PORT;
	f->from = ip[15] % SECOND_PORT - 1u;
	if (ip[9] == 17) {
		parse_roce(f, l4, len);
		return true;
	}
	head = (uint32_t)(l4[12] >> 4) * 4;
	f->tcp_flags = l4[13];
	f->data = l4 + head;
	f->len = len - head;
	return ip[9] == 6;
}

void
rs_capture_read(const char *folder, const char *name, struct rs_capture *c)
{
	char path[4096];
	size_t len, at = PCAP_HEADER;
	unsigned int number = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.pcap", folder, name);
	f = fopen(path, "rb");
	*c = (struct rs_capture){.bytes = malloc(RS_FILE_MAX)};
	if (f == NULL || c->bytes == NULL) {
		perror(path);
		exit(2);
	}
	len = fread(c->bytes, 1, RS_FILE_MAX, f);
	fclose(f);
	c->frames = calloc(len / PCAP_RECORD + 1, sizeof(*c->frames));
	while (c->frames != NULL && at + PCAP_RECORD <= len) {
		uint32_t cap = (uint32_t)(c->bytes[at + 8] | c->bytes[at + 9] << 8);
		struct rs_frame frame = {.number = ++number};

		at += PCAP_RECORD;
		if (at + cap <= len && parse_frame(&frame, c->bytes + at, cap))
			c->frames[c->n++] = frame;
		at += cap;
	}
}

void
rs_capture_free(struct rs_capture *c)
{
	free(c->frames);
	free(c->bytes);
}

bool
rs_is_clc(const struct rs_frame *f)
{
	return !f->roce && f->len != 0 && karst_smc_clc_begins(f->data, f->len);
}

bool
rs_is_send(const struct rs_frame *f)
{
	return f->roce && f->opcode == RS_SEND_ONLY;
}

bool
rs_next_cdc(const struct rs_capture *c, unsigned int at, unsigned int from, struct karst_smc_cdc *m)
{
	for (; at < c->n; at++) {
		const struct rs_frame *f = &c->frames[at];

		if (rs_is_send(f) && f->from == from &&
			karst_smc_cdc_parse(f->data, f->len, m) == 0 &&
			!(m->prod_flags & KARST_SMC_CDC_VALIDATE))
			return true;
	}
	return false;
}

/* --- what a host chose --- */

static void
learn_accept(struct rs_host *host, const struct karst_smc_accept *a)
{
	memcpy(host->system_id, a->peer.system_id, 8);
	memcpy(host->gid, a->peer.gid, 16);
	host->size = a->size;
	if (!a->first_contact)
		return;
	memcpy(host->hostname, a->hostname, sizeof(host->hostname));
	host->ends[0] = (struct rs_end){
		.end = {.qpn = a->qpn, .psn = a->psn, .mtu = a->mtu},
		.rkey = a->rkey,
		.vaddr = a->vaddr,
	};
	memcpy(host->ends[0].end.gid, a->peer.gid, 16);
	memcpy(host->ends[0].end.mac, a->peer.mac, 6);
	host->nends = 1;
}

static void
learn_add_link(struct rs_host *host, const struct karst_smc_llc *m)
{
	struct rs_end *e = &host->ends[host->nends];

	if (host->nends == RS_ENDS_MAX)
		return;
	host->nends++;
	*e = (struct rs_end){
		.end = {.qpn = m->qpn, .psn = m->psn, .mtu = m->mtu},
		.rkey = m->rtokens[0].rkey,
		.vaddr = m->rtokens[0].vaddr,
		.refused = m->flags & KARST_SMC_LLC_REJECTED,
	};
	memcpy(e->end.gid, m->gid, 16);
	memcpy(e->end.mac, m->mac, 6);
}

void
rs_learn(const struct rs_capture *c, unsigned int us, struct rs_host *host)
{
	static struct karst_smc_llc llc;
	struct karst_smc_clc clc;

	*host = (struct rs_host){0};
	for (unsigned int i = 0; i < c->n; i++) {
		const struct rs_frame *f = &c->frames[i];

		if (f->from != us)
			continue;
		if (rs_is_clc(f) && karst_smc_clc_parse(f->data, f->len, &clc) > 0) {
			if (clc.type == KARST_SMC_CLC_DECLINE)
				memcpy(host->system_id, clc.decline.system_id, 8);
			else if (clc.type != KARST_SMC_CLC_PROPOSAL)
				learn_accept(host, &clc.accept);
			else
				memcpy(host->gid, clc.proposal.roce, 16);
		} else if (rs_is_send(f) && karst_smc_llc_parse(f->data, f->len, &llc) == 0 &&
			llc.type == KARST_SMC_LLC_ADD_LINK) {
			learn_add_link(host, &llc);
		}
	}
}

/* --- parse and build --- */

/* @return the length of what is built; 0: it cannot be built */
static int
rebuild(const struct rs_frame *f, uint8_t *buf, size_t room)
{
	static struct karst_smc_llc llc;
	struct karst_smc_clc clc;
	struct karst_smc_cdc cdc;

	if (!f->roce)
		return karst_smc_clc_parse(f->data, f->len, &clc) > 0
			? karst_smc_clc_build(&clc, buf, room)
			: 0;
	if (karst_smc_cdc_parse(f->data, f->len, &cdc) == 0) {
		karst_smc_cdc_build(&cdc, buf);
		return KARST_SMC_CDC_LEN;
	}
	return karst_smc_llc_parse(f->data, f->len, &llc) == 0
		? karst_smc_llc_build(&llc, buf, room)
		: 0;
}

unsigned int
rs_rebuild(const struct rs_capture *c, unsigned int *bad)
{
	static uint8_t buf[KARST_SMC_LLC_MAX_LEN];
	unsigned int n = 0;

	*bad = 0;
	for (unsigned int i = 0; i < c->n; i++) {
		const struct rs_frame *f = &c->frames[i];

		if (!rs_is_clc(f) && !rs_is_send(f))
			continue;
		n++;
		if (*bad == 0 &&
			(rebuild(f, buf, sizeof(buf)) != (int)f->len ||
				memcmp(buf, f->data, f->len) != 0))
			*bad = f->number;
	}
	return n;
}
