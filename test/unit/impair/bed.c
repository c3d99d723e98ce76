/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ip.h>
#include <rte_ring.h>

#include "impair.h"
#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"
#include "karst_parse.h"

#define ROOM  2048u
#define SLOTS 4096u

struct bed bed;

static FILE *log_stream;

void
bed_eal(void)
{
	char *argv[] = {"impair", "--no-huge", "--no-shconf", "-m", "128", "--no-pci",
		"--no-telemetry", "--lcores=0", NULL};

	cr_assert_geq(rte_eal_init(8, argv), 0);
	bed.pool = rte_pktmbuf_pool_create(
		"bufs", BUFS, 0, 0, ROOM + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	cr_assert_not_null(bed.pool);
	bed.in = rte_ring_create("in", SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	bed.out = rte_ring_create("out", SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	snprintf(bed.folder, sizeof(bed.folder), "/tmp/unit_impair.XXXXXX");
	cr_assert_not_null(mkdtemp(bed.folder));
	snprintf(bed.rules, sizeof(bed.rules), "%s/rules", bed.folder);
	snprintf(bed.log, sizeof(bed.log), "%s/log", bed.folder);
}

void
bed_write(const char *rules)
{
	FILE *f = fopen(bed.rules, "w");

	cr_assert_not_null(f);
	fputs(rules, f);
	fclose(f);
}

static void
configure(uint16_t queues)
{
	struct rte_eth_conf conf = {0};
	uint16_t i;

	cr_assert_eq(rte_eth_dev_configure(bed.port, queues, queues, &conf), 0);
	for (i = 0; i < queues; i++) {
		cr_assert_eq(
			rte_eth_rx_queue_setup(bed.port, i, 256, SOCKET_ID_ANY, NULL, bed.pool), 0);
		cr_assert_eq(rte_eth_tx_queue_setup(bed.port, i, 256, SOCKET_ID_ANY, NULL), 0);
	}
	cr_assert_eq(rte_eth_dev_start(bed.port), 0);
}

void
bed_open_queues(const char *rules, const char *more, uint16_t queues)
{
	struct rte_ring *in[16], *out[16];
	char args[512];
	uint16_t i;
	int below;

	for (i = 0; i < queues; i++) {
		in[i] = bed.in;
		out[i] = bed.out;
	}
	memset(bed.said, 0, sizeof(bed.said));
	log_stream = fmemopen(bed.said, sizeof(bed.said) - 1, "w");
	setvbuf(log_stream, NULL, _IONBF, 0);
	rte_openlog_stream(log_stream);
	unlink(bed.log);
	below = rte_eth_from_rings("bed", in, queues, out, queues, 0);
	cr_assert_geq(below, 0);
	bed.below = (uint16_t)below;
	if (rules != NULL)
		bed_write(rules);
	snprintf(args, sizeof(args), "port=net_ring_bed,log=%s%s%s%s", bed.log,
		rules != NULL ? ",rules=" : "", rules != NULL ? bed.rules : "", more);
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_impair0", args), 0, "%s", bed.said);
	cr_assert_eq(rte_eth_dev_get_port_by_name("net_impair0", &bed.port), 0);
	configure(queues);
}

void
bed_open(const char *rules, const char *more)
{
	bed_open_queues(rules, more, 1);
}

static void
empty(struct rte_ring *r)
{
	void *m;

	while (rte_ring_dequeue(r, &m) == 0)
		rte_pktmbuf_free(m);
}

void
bed_close(void)
{
	char path[128];

	if (rte_eth_dev_is_valid_port(bed.port)) {
		rte_eth_dev_stop(bed.port);
		cr_expect_eq(rte_eal_hotplug_remove("vdev", "net_impair0"), 0);
	}
	if (rte_eth_dev_get_port_by_name("net_ring_bed", &bed.below) == 0)
		cr_expect_eq(rte_eal_hotplug_remove("vdev", "net_ring_bed"), 0);
	empty(bed.in);
	empty(bed.out);
	cr_expect_eq(rte_mempool_avail_count(bed.pool), BUFS, "%u buffers are back",
		rte_mempool_avail_count(bed.pool));
	rte_openlog_stream(NULL);
	fclose(log_stream);
	unlink(bed.rules);
	unlink(bed.log);
	snprintf(path, sizeof(path), "%s", bed.folder);
	rmdir(path);
	mkdir(path, 0700);
}

/* --- frames --- */

static uint8_t
opcode_of(char letter)
{
	switch (letter) {
	case 'w':
		return KARST_RC_WRITE_FIRST;
	case 'm':
		return KARST_RC_SEND_MIDDLE;
	case 'a':
		return KARST_RC_ACK;
	case 'r':
		return KARST_RC_READ_REQUEST;
	case 'u':
		return KARST_UD_SEND_ONLY;
	case 'n':
		return KARST_CNP;
	default:
		return KARST_RC_SEND_ONLY;
	}
}

static uint8_t payload[PAYLOAD];

static size_t
build(uint8_t *to, const char *word)
{
	char letter = strchr("wmarusvcpn", word[0]) != NULL ? word[0] : '\0';
	struct karst_frame f = {.dmac = {2, 0, 0, 0, 0, 1},
		.smac = {2, 0, 0, 0, 0, 2},
		.vlan = letter == 'v',
		.ip6 = letter == 'v' || letter == 's',
		.tclass = 2,
		.ttl = 64,
		.ip_frag = 0x4000,
		.saddr = {192, 0, 2, 1, [15] = 1},
		.daddr = {192, 0, 2, 2, [15] = 2},
		.sport = 0xc000,
		.dport = 4791};
	unsigned int qpn, psn;
	uint32_t crc, l3;
	int len, i;

	cr_assert_eq(sscanf(word + (letter != '\0'), "%x:%u", &qpn, &psn), 2, "%s", word);
	f.sport = (uint16_t)(f.sport + (letter == 'p' ? psn & 0x3fff : 0));
	for (i = 0; i < (int)PAYLOAD; i++)
		payload[i] = (uint8_t)(psn * 7 + (unsigned int)i);
	f.ib = (struct karst_ib_hdrs){.opcode = opcode_of(letter),
		.pkey = 0xffff,
		.dqpn = qpn,
		.psn = psn,
		.pay = payload,
		.pay_len = letter == 'a' || letter == 'r' || letter == 'n' ? 0 : PAYLOAD};
	len = karst_build_frame(to, ROOM, &f);
	cr_assert_gt(len, 0);
	l3 = f.vlan ? 18 : 14;
	crc = karst_icrc_rocev2(to + l3, (size_t)len - l3 - 4, f.ip6);
	memcpy(to + len - 4, &crc, sizeof(crc));
	return (size_t)len;
}

/* Puts the frame into segments of @each bytes. */
static struct rte_mbuf *
scatter(const uint8_t *frame, size_t len, size_t piece)
{
	struct rte_mbuf *head = NULL, *m;
	size_t n;

	for (; len > 0; frame += n, len -= n) {
		n = len < piece ? len : piece;
		m = rte_pktmbuf_alloc(bed.pool);
		cr_assert_not_null(m);
		memcpy(rte_pktmbuf_append(m, (uint16_t)n), frame, n);
		if (head == NULL)
			head = m;
		else
			cr_assert_eq(rte_pktmbuf_chain(head, m), 0);
	}
	return head;
}

struct rte_mbuf *
bed_frame(const char *word)
{
	uint8_t frame[ROOM];
	size_t len;

	if (word[0] == 'x') {
		memset(frame, 0x5a, 60);
		return scatter(frame, 60, ROOM);
	}
	len = build(frame, word);
	return scatter(frame, len, word[0] == 'c' ? 23 : ROOM);
}

static const char *
letter_of(const struct karst_pkt *p)
{
	if (p->flags & KARST_PKT_VLAN)
		return "v";
	if (p->flags & KARST_PKT_IP6)
		return "s";
	switch (p->opcode) {
	case KARST_RC_WRITE_FIRST:
		return "w";
	case KARST_RC_SEND_MIDDLE:
		return "m";
	case KARST_RC_ACK:
		return "a";
	case KARST_RC_READ_REQUEST:
		return "r";
	case KARST_UD_SEND_ONLY:
		return "u";
	case KARST_CNP:
		return "n";
	default:
		return karst_udp_sport(p->data + karst_pkt_l3_off(p) + KARST_IP4_LEN) == 0xc000
			? ""
			: "p";
	}
}

/* Whether the frame is as it was sent, except for a mark. */
static bool
is_whole(const uint8_t *d, size_t len, const struct karst_pkt *p)
{
	uint8_t want[ROOM];
	char word[64];
	size_t n;

	snprintf(word, sizeof(word), "%s%x:%u", letter_of(p), p->dqpn, p->psn);
	n = build(want, word);
	if (p->flags & KARST_PKT_CE) {
		uint32_t l3 = karst_pkt_l3_off(p);

		if (p->flags & KARST_PKT_IP6) {
			want[l3 + 1] |= 0x30;
		} else {
			struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(want + l3);

			ip->type_of_service |= 3;
			ip->hdr_checksum = 0;
			ip->hdr_checksum = rte_ipv4_cksum(ip);
		}
	}
	return n == len && memcmp(want, d, n) == 0;
}

void
bed_describe(char *to, const struct rte_mbuf *m)
{
	uint8_t copy[ROOM];
	struct karst_pkt p = {.data = copy, .len = (uint16_t)m->pkt_len}, *one = &p;
	const void *d = rte_pktmbuf_read(m, 0, m->pkt_len, copy);
	size_t n = strlen(to);
	bool whole;

	cr_assert_not_null(d);
	if (d != copy)
		memcpy(copy, d, m->pkt_len);
	n += (size_t)sprintf(to + n, "%s", n > 0 ? " " : "");
	if (copy[0] == 0x5a) {
		strcpy(to + n, "x");
		return;
	}
	if (karst_parse(&p) != KARST_DROP_NONE) {
		sprintf(to + n, "-%u", p.drop);
		return;
	}
	whole = is_whole(copy, m->pkt_len, &p);
	karst_icrc_verify_burst(&one, 1);
	sprintf(to + n, "%s%x:%u%s%s", letter_of(&p), p.dqpn, p.psn,
		p.flags & KARST_PKT_CE ? "^" : "",
		p.drop == KARST_DROP_ICRC ? "!"
			: whole           ? ""
					  : "*");
}

/* --- bursts --- */

static char text[TEXT];

static void
collect(bool rx)
{
	struct rte_mbuf *m[32];
	uint16_t n, i;

	do {
		n = rx ? rte_eth_rx_burst(bed.port, 0, m, 32)
		       : (uint16_t)rte_ring_dequeue_burst(bed.out, (void **)m, 32, NULL);
		for (i = 0; i < n; i++) {
			bed_describe(text, m[i]);
			rte_pktmbuf_free(m[i]);
		}
	} while (n > 0);
}

static void
pass_burst(bool rx, const char *line, size_t len)
{
	struct rte_mbuf *m[512];
	char copy[TEXT], *word, *rest;
	uint16_t n = 0, sent;

	snprintf(copy, sizeof(copy), "%.*s", (int)len, line);
	for (word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
		m[n++] = bed_frame(word);
	if (rx) {
		cr_assert_eq(rte_ring_enqueue_bulk(bed.in, (void **)m, n, NULL), n);
		return;
	}
	sent = rte_eth_tx_burst(bed.port, 0, m, n);
	cr_assert_eq(sent, n, "%u of %u were sent", sent, n);
}

const char *
bed_pass_once(bool rx, const char *words)
{
	size_t len;

	text[0] = '\0';
	do {
		len = strcspn(words, "\n");
		pass_burst(rx, words, len);
		collect(rx);
		words += len + (words[len] == '\n');
	} while (*words != '\0');
	return text;
}

const char *
bed_pass(bool rx, const char *words)
{
	bed_pass_once(rx, words);
	if (!rx)
		(void)rte_eth_tx_burst(bed.port, 0, NULL, 0);
	collect(rx);
	return text;
}

void
bed_cases(const struct bed_case *cases, size_t n, bool rx)
{
	const char *got;
	size_t i;

	for (i = 0; i < n; i++) {
		bed_open(cases[i].rules, "");
		got = bed_pass(rx, cases[i].in);
		cr_expect_str_eq(
			got, cases[i].out, "%s, %s: \"%s\"", cases[i].name, rx ? "rx" : "tx", got);
		bed_close();
	}
}

/* --- what the driver reports --- */

uint64_t
bed_xstat(const char *name)
{
	uint64_t id, value = 0;

	cr_assert_eq(rte_eth_xstats_get_id_by_name(bed.port, name, &id), 0, "%s", name);
	cr_assert_eq(rte_eth_xstats_get_by_id(bed.port, &id, &value, 1), 1);
	return value;
}

struct imp_port *
bed_port(void)
{
	struct rte_eth_dev *dev = rte_eth_dev_allocated("net_impair0");

	return dev != NULL ? dev->data->dev_private : NULL;
}

const char *
bed_log(void)
{
	static char all[1 << 20];
	const struct imp_port *p = bed_port();
	size_t n;
	FILE *f;

	if (p != NULL)
		imp_log_flush(p->log);
	f = fopen(bed.log, "r");
	cr_assert_not_null(f);
	n = fread(all, 1, sizeof(all) - 1, f);
	all[n] = '\0';
	fclose(f);
	return all;
}

const char *
bed_member(const char *line, const char *name)
{
	static char value[256];
	char key[64];
	const char *at, *end = line + strcspn(line, "\n");
	size_t len;

	snprintf(key, sizeof(key), "\"%s\":", name);
	at = strstr(line, key);
	value[0] = '\0';
	if (at == NULL || at >= end)
		return value;
	at += strlen(key);
	at += *at == '"';
	len = strcspn(at, "\",}");
	if (at[-1] == '"')
		len = strcspn(at, "\"");
	snprintf(value, sizeof(value), "%.*s", (int)len, at);
	return value;
}

unsigned int
bed_log_count(const char *what)
{
	const char *at = bed_log();
	unsigned int n = 0;

	for (; (at = strstr(at, what)) != NULL; at++)
		n++;
	return n;
}

const char *
bed_said(void)
{
	fflush(log_stream);
	return bed.said;
}
