/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "template.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX  128
#define SPORT_MIN 49152u

enum kind { KIND_CHOICE, KIND_NUMBER, KIND_MAC, KIND_IP, KIND_VLAN };

/* A key, the place of its value, and the values that are allowed. */
struct key {
	const char *name;
	enum kind kind;
	uint16_t at;
	uint8_t bytes; /* size of a number or choice */
	uint64_t least, most;
	const char *choices; /* "a|b", with values from 0 on */
	const char *help;
};

#define AT(member) offsetof(struct fwd_template, member), sizeof(((struct fwd_template *)0)->member)

static const struct key keys[] = {
	{"transport", KIND_CHOICE, AT(transport), 0, 0, "rc|uc|ud", "rc|uc|ud [rc]"},
	{"op", KIND_CHOICE, AT(op), 0, 0, "send|send-imm|write|write-imm|read|fetch-add|cmp-swap",
		"send|send-imm|write|write-imm|read|fetch-add|cmp-swap [write]"},
	{"size", KIND_NUMBER, AT(size), 0, 1u << 30, NULL, "bytes of a message [1024]"},
	{"mtu", KIND_NUMBER, AT(mtu), 256, 4096, NULL, "256, 512, 1024, 2048 or 4096 [1024]"},
	{"flows", KIND_NUMBER, AT(flows), 1, FWD_TEMPLATE_FLOWS_MAX, NULL,
		"queue pairs of each queue, numbered on from qpn [1]"},
	{"count", KIND_NUMBER, AT(count), 0, UINT64_MAX, NULL,
		"messages of each flow, 0 without end [0]"},
	{"ackreq", KIND_CHOICE, AT(ackreq), 0, 0, "last|all|none",
		"which packets of a message ask for an acknowledgement: last|all|none [last]"},
	{"smac", KIND_MAC, AT(smac), 0, 0, NULL, "source MAC address [the port's]"},
	{"dmac", KIND_MAC, AT(dmac), 0, 0, NULL, "destination MAC address [--eth-peer]"},
	{"src", KIND_IP, AT(src), 0, 0, NULL, "source address, IPv4 or IPv6 [192.0.2.1]"},
	{"dst", KIND_IP, AT(dst), 0, 0, NULL, "destination address, of the same kind [192.0.2.2]"},
	{"sport", KIND_NUMBER, AT(sport), SPORT_MIN, 65535, NULL,
		"UDP source port of the first flow [49152]"},
	{"tclass", KIND_NUMBER, AT(tclass), 0, 255, NULL, "DSCP and ECN [2]"},
	{"ttl", KIND_NUMBER, AT(ttl), 1, 255, NULL, "time to live, hop limit [64]"},
	{"vlan", KIND_VLAN, AT(vlan), 0, 65535, NULL, "TCI of an 802.1Q tag [none]"},
	{"pkey", KIND_NUMBER, AT(pkey), 0, 65535, NULL, "P_Key [0xffff]"},
	{"qpn", KIND_NUMBER, AT(qpn), 0, 0xffffff, NULL, "destination QP of the first flow [0x11]"},
	{"src-qpn", KIND_NUMBER, AT(src_qpn), 0, 0xffffff, NULL, "source QP of datagrams [0x11]"},
	{"qkey", KIND_NUMBER, AT(qkey), 0, UINT32_MAX, NULL, "Q_Key of datagrams [0x11111111]"},
	{"psn", KIND_NUMBER, AT(psn), 0, 0xffffff, NULL, "first PSN [0]"},
	{"va", KIND_NUMBER, AT(va), 0, UINT64_MAX, NULL, "virtual address [0]"},
	{"rkey", KIND_NUMBER, AT(rkey), 0, UINT32_MAX, NULL, "R_Key [0x1000]"},
	{"imm", KIND_NUMBER, AT(imm), 0, UINT32_MAX, NULL, "immediate data [0]"},
};

void
fwd_template_default(struct fwd_template *t)
{
	*t = (struct fwd_template){
		.transport = FWD_RC,
		.op = FWD_WRITE,
		.size = 1024,
		.mtu = 1024,
		.flows = 1,
		.src = {192, 0, 2, 1},
		.dst = {192, 0, 2, 2},
		.sport = SPORT_MIN,
		.tclass = 2,
		.ttl = 64,
		.pkey = 0xffff,
		.qpn = 0x11,
		.src_qpn = 0x11,
		.qkey = 0x11111111,
		.rkey = 0x1000,
	};
}

const char *
fwd_template_help(void)
{
	static char text[4096];
	size_t at = 0, i;

	for (i = 0; i < KARST_DIM(keys) && at < sizeof(text); i++)
		at += (size_t)snprintf(
			text + at, sizeof(text) - at, "  %-10s %s\n", keys[i].name, keys[i].help);
	return text;
}

bool
fwd_mac_parse(const char *text, uint8_t mac[6])
{
	unsigned int b[6];
	int end = 0, i;

	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%n", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
		    &end) != 6 ||
		text[end] != '\0' || text[strspn(text, "0123456789abcdefABCDEF:")] != '\0')
		return false;
	for (i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	return true;
}

bool
fwd_ip_parse(const char *text, bool *ip6, uint8_t addr[16])
{
	uint8_t a[16] = {0};

	*ip6 = strchr(text, ':') != NULL;
	if (inet_pton(*ip6 ? AF_INET6 : AF_INET, text, a) != 1)
		return false;
	memcpy(addr, a, sizeof(a));
	return true;
}

void
fwd_ip_text(bool ip6, const uint8_t addr[16], char text[64])
{
	inet_ntop(ip6 ? AF_INET6 : AF_INET, addr, text, 64);
}

static int
wrong(char why[FWD_WHY], const struct key *k, const char *value)
{
	int at = snprintf(why, FWD_WHY, "%s=%.100s: allowed: %s", k->name, value, k->help);

	if (k->most != 0 && at > 0 && at < FWD_WHY)
		snprintf(why + at, FWD_WHY - (size_t)at, ", from %" PRIu64 " to %" PRIu64, k->least,
			k->most);
	return -1;
}

static void
store(struct fwd_template *t, const struct key *k, uint64_t v)
{
	memcpy((uint8_t *)t + k->at, &v, k->bytes); /* karst runs on little endian machines only */
}

static bool
choice(struct fwd_template *t, const struct key *k, const char *value)
{
	size_t len = strlen(value);
	const char *c = k->choices;
	uint64_t i;

	/* "a|b" begins like the list, and is none of its words */
	if (len == 0 || strchr(value, '|') != NULL)
		return false;
	for (i = 0; c != NULL; i++) {
		if (strncmp(c, value, len) == 0 && (c[len] == '|' || c[len] == '\0')) {
			store(t, k, i);
			return true;
		}
		c = strchr(c, '|');
		if (c != NULL)
			c++;
	}
	return false;
}

static bool
number(struct fwd_template *t, const struct key *k, const char *value)
{
	uint64_t v;
	char *end;

	errno = 0;
	v = strtoull(value, &end, 0);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || v < k->least ||
		v > k->most)
		return false;
	store(t, k, v);
	return true;
}

/* @src_kind, @dst_kind: 0 not given, 1 IPv4, 2 IPv6. */
static int
set(struct fwd_template *t, const struct key *k, const char *value, int addr_kind[2],
	char why[FWD_WHY])
{
	bool ok = false, ip6;

	switch (k->kind) {
	case KIND_CHOICE:
		ok = choice(t, k, value);
		break;
	case KIND_VLAN:
		t->vlan_set = true;
		ok = number(t, k, value);
		break;
	case KIND_NUMBER:
		ok = number(t, k, value);
		break;
	case KIND_MAC:
		*(k->name[0] == 's' ? &t->smac_set : &t->dmac_set) = true;
		ok = fwd_mac_parse(value, (uint8_t *)t + k->at);
		break;
	case KIND_IP:
		ok = fwd_ip_parse(value, &ip6, (uint8_t *)t + k->at);
		addr_kind[k->name[0] == 'd'] = ok && ip6 ? 2 : 1;
		break;
	}
	return ok ? 0 : wrong(why, k, value);
}

static const struct key *
key_named(const char *word, size_t len)
{
	size_t i;

	for (i = 0; i < KARST_DIM(keys); i++)
		if (strlen(keys[i].name) == len && memcmp(keys[i].name, word, len) == 0)
			return &keys[i];
	return NULL;
}

static int
unknown(const char *word, char why[FWD_WHY])
{
	size_t i;
	int at = snprintf(why, FWD_WHY, "'%.60s': key=value is allowed, with the keys", word);

	for (i = 0; i < KARST_DIM(keys) && at < FWD_WHY; i++)
		at += snprintf(why + at, FWD_WHY - (size_t)at, " %s", keys[i].name);
	return -1;
}

/* Checks the combination of keys. */
static int
check(const struct fwd_template *t, const int addr_kind[2], char why[FWD_WHY])
{
	const char *problem = NULL;

	if (!karst_is_pow2(t->mtu))
		problem = "mtu: allowed: 256, 512, 1024, 2048 or 4096";
	else if (t->transport == FWD_UD && t->op != FWD_SEND && t->op != FWD_SEND_IMM)
		problem = "op: of transport=ud send and send-imm are allowed";
	else if (t->transport == FWD_UC && t->op >= FWD_READ)
		problem = "op: of transport=uc send, send-imm, write and write-imm are allowed";
	else if (t->transport == FWD_UD && t->size > t->mtu)
		problem = "size: a datagram of up to mtu bytes is allowed";
	else if (addr_kind[0] != addr_kind[1])
		problem = "src, dst: two addresses are allowed, both IPv4 or both IPv6";
	else if (t->qpn + t->flows > 0x1000000)
		problem = "flows: QP numbers up to 0xffffff are allowed";
	if (problem == NULL)
		return 0;
	snprintf(why, FWD_WHY, "%s", problem);
	return -1;
}

int
fwd_template_parse(struct fwd_template *t, const char *text, char why[FWD_WHY])
{
	struct fwd_template new;
	int addr_kind[2] = {1, 1};
	char word[WORD_MAX];

	fwd_template_default(&new);
	for (;;) {
		const struct key *k;
		const char *value;
		size_t len;

		text += strspn(text, " \t\n");
		len = strcspn(text, " \t\n");
		if (len == 0)
			break;
		snprintf(word, sizeof(word), "%.*s", (int)karst_min_u64(len, WORD_MAX - 1), text);
		value = strchr(word, '=');
		k = value == NULL ? NULL : key_named(word, (size_t)(value - word));
		if (k == NULL || len >= WORD_MAX)
			return unknown(word, why);
		if (set(&new, k, value + 1, addr_kind, why) != 0)
			return -1;
		text += len;
	}
	new.ip6 = addr_kind[0] == 2;
	if (check(&new, addr_kind, why) != 0)
		return -1;
	*t = new;
	return 0;
}
