/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * In the guest: what smc-tools' smcr and smc_pnet would do, which Debian 12 has not.
 *
 *   interop-smcset eid NAME              adds a UEID
 *   interop-smcset no-eids               takes all away
 *   interop-smcset pnet ID ETH DEVICE    interface and RDMA device are of the same network
 *   interop-smcset groups                "group ID role client|server conns N release N type N",
 *                                        1: one link, 2: two, 3 and 4: two that share a port, of
 *                                        the peer's and of its own
 *   interop-smcset links                 "link N device NAME state N conns N", 3: is active
 *   interop-smcset active N              waits until so many links are active
 *   interop-smcset reasons               "reason 0xNNNNNNNN side client|server count N"
 */
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/smc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_BYTES 1024u
#define ANSWER_BYTES  65536u
#define ATTRS         32u
#define ACTIVE        3u
#define LOOK_US       100000

struct request {
	struct nlmsghdr nl;
	struct genlmsghdr genl;
	uint8_t attrs[REQUEST_BYTES];
};

static int sock;

static void __attribute__((noreturn)) fail(const char *what, int error)
{
	fprintf(stderr, "interop-smcset: %s: %s\n", what, strerror(error));
	exit(1);
}

static void
begin(struct request *r, uint16_t family, uint8_t command, uint8_t version, bool dump)
{
	memset(r, 0, sizeof(*r));
	r->nl.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	r->nl.nlmsg_type = family;
	r->nl.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | (dump ? NLM_F_DUMP : NLM_F_ACK));
	r->genl.cmd = command;
	r->genl.version = version;
}

static void
add(struct request *r, uint16_t type, const void *data, size_t len)
{
	struct nlattr *a = (void *)((uint8_t *)r + NLMSG_ALIGN(r->nl.nlmsg_len));

	a->nla_type = type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + len);
	memcpy((uint8_t *)a + NLA_HDRLEN, data, len);
	r->nl.nlmsg_len = NLMSG_ALIGN(r->nl.nlmsg_len) + NLA_ALIGN(a->nla_len);
}

static void
add_text(struct request *r, uint16_t type, const char *text)
{
	if (strlen(text) > 64)
		fail(text, EINVAL);
	add(r, type, text, strlen(text) + 1);
}

/* Finds attributes of @len bytes, by type. */
static void
parse(const void *data, size_t len, const struct nlattr *found[ATTRS])
{
	const struct nlattr *a = data;

	memset(found, 0, ATTRS * sizeof(found[0]));
	while (len >= NLA_HDRLEN && a->nla_len >= NLA_HDRLEN && a->nla_len <= len) {
		size_t step = NLA_ALIGN(a->nla_len);

		if ((a->nla_type & NLA_TYPE_MASK) < ATTRS)
			found[a->nla_type & NLA_TYPE_MASK] = a;
		if (step >= len)
			return;
		a = (const void *)((const uint8_t *)a + step);
		len -= step;
	}
}

static void
inside(const struct nlattr *nest, const struct nlattr *found[ATTRS])
{
	if (nest != NULL)
		parse((const uint8_t *)nest + NLA_HDRLEN, nest->nla_len - NLA_HDRLEN, found);
	else
		memset(found, 0, ATTRS * sizeof(found[0]));
}

static uint32_t
number(const struct nlattr *a)
{
	uint32_t n = 0;

	if (a != NULL)
		memcpy(&n, (const uint8_t *)a + NLA_HDRLEN,
			a->nla_len - NLA_HDRLEN < 4 ? a->nla_len - NLA_HDRLEN : 4);
	return n;
}

/* Sends a request, and calls a function for each answer, up to the last. */
static void
ask(struct request *r, void (*show)(const struct nlattr **top))
{
	static uint8_t buf[ANSWER_BYTES] __attribute__((aligned(8)));
	const struct nlattr *top[ATTRS];
	struct nlmsghdr *nl;
	ssize_t n;

	if (send(sock, r, r->nl.nlmsg_len, 0) < 0)
		fail("send", errno);
	for (;;) {
		n = recv(sock, buf, sizeof(buf), 0);
		if (n <= 0)
			fail("recv", errno);
		for (nl = (void *)buf; NLMSG_OK(nl, n); nl = NLMSG_NEXT(nl, n)) {
			if (nl->nlmsg_type == NLMSG_DONE)
				return;
			if (nl->nlmsg_type == NLMSG_ERROR) {
				const struct nlmsgerr *e = NLMSG_DATA(nl);

				if (e->error != 0)
					fail("the kernel", -e->error);
				return;
			}
			parse((uint8_t *)NLMSG_DATA(nl) + GENL_HDRLEN,
				nl->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), top);
			show(top);
		}
	}
}

static uint16_t family_id;

static void
take_family(const struct nlattr **top)
{
	family_id = (uint16_t)number(top[CTRL_ATTR_FAMILY_ID]);
}

static uint16_t
family(const char *name)
{
	struct request r;

	begin(&r, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 1, false);
	add_text(&r, CTRL_ATTR_FAMILY_NAME, name);
	ask(&r, take_family);
	return family_id;
}

static void
show_group(const struct nlattr **top)
{
	const struct nlattr *group[ATTRS], *common[ATTRS];

	inside(top[SMC_GEN_LGR_SMCR], group);
	inside(group[SMC_NLA_LGR_R_V2_COMMON], common);
	printf("group %08x role %s conns %u release %u type %u\n", number(group[SMC_NLA_LGR_R_ID]),
		number(group[SMC_NLA_LGR_R_ROLE]) != 0 ? "server" : "client",
		number(group[SMC_NLA_LGR_R_CONNS_NUM]), number(common[SMC_NLA_LGR_V2_REL]),
		number(group[SMC_NLA_LGR_R_TYPE]));
}

/* The kernel reports each group, and behind it its links. */
static void
show_link(const struct nlattr **top)
{
	const struct nlattr *link[ATTRS];

	if (top[SMC_GEN_LINK_SMCR] == NULL)
		return;
	inside(top[SMC_GEN_LINK_SMCR], link);
	printf("link %u device %s state %u conns %u\n", number(link[SMC_NLA_LINK_ID]) & 0xff,
		link[SMC_NLA_LINK_IB_DEV] != NULL
			? (const char *)link[SMC_NLA_LINK_IB_DEV] + NLA_HDRLEN
			: "-",
		number(link[SMC_NLA_LINK_STATE]), number(link[SMC_NLA_LINK_CONN_CNT]));
}

static unsigned int active;

static void
count_link(const struct nlattr **top)
{
	const struct nlattr *link[ATTRS];

	inside(top[SMC_GEN_LINK_SMCR], link);
	active += number(link[SMC_NLA_LINK_STATE]) == ACTIVE;
}

static void
show_reason(const struct nlattr **top)
{
	const struct nlattr *found[ATTRS];

	inside(top[SMC_GEN_FBACK_STATS], found);
	printf("reason 0x%08x side %s count %u\n", number(found[SMC_NLA_FBACK_STATS_RSN_CODE]),
		number(found[SMC_NLA_FBACK_STATS_TYPE]) != 0 ? "server" : "client",
		number(found[SMC_NLA_FBACK_STATS_RSN_CNT]) & 0xffff);
}

/* In one process, while the host would need one for each check. */
static void
wait_for_links(uint16_t id, unsigned int wanted)
{
	struct request r;

	for (;;) {
		active = 0;
		begin(&r, id, SMC_NETLINK_GET_LINK_SMCR, SMC_GENL_FAMILY_VERSION, true);
		ask(&r, count_link);
		if (active == wanted)
			return;
		usleep(LOOK_US);
	}
}

/* The kernel requires padding with blanks. */
static void
add_eid(struct request *r, const char *name)
{
	char eid[SMC_MAX_EID_LEN + 1];

	if (strlen(name) > SMC_MAX_EID_LEN)
		fail(name, EINVAL);
	snprintf(eid, sizeof(eid), "%-*s", SMC_MAX_EID_LEN, name);
	add(r, SMC_NLA_EID_TABLE_ENTRY, eid, sizeof(eid));
}

static void
obey(int n, char **words)
{
	bool pnet = strcmp(words[0], "pnet") == 0;
	uint16_t id = family(pnet ? SMCR_GENL_FAMILY_NAME : SMC_GENL_FAMILY_NAME);
	uint8_t version = pnet ? SMCR_GENL_FAMILY_VERSION : SMC_GENL_FAMILY_VERSION, port = 1;
	struct request r;

	if (pnet && n == 4) {
		begin(&r, id, SMC_PNETID_ADD, version, false);
		add_text(&r, SMC_PNETID_NAME, words[1]);
		add_text(&r, SMC_PNETID_ETHNAME, words[2]);
		add_text(&r, SMC_PNETID_IBNAME, words[3]);
		add(&r, SMC_PNETID_IBPORT, &port, sizeof(port));
		ask(&r, NULL);
	} else if (strcmp(words[0], "eid") == 0 && n == 2) {
		begin(&r, id, SMC_NETLINK_ADD_UEID, version, false);
		add_eid(&r, words[1]);
		ask(&r, NULL);
	} else if (strcmp(words[0], "no-eids") == 0) {
		begin(&r, id, SMC_NETLINK_FLUSH_UEID, version, false);
		ask(&r, NULL);
	} else if (strcmp(words[0], "groups") == 0) {
		begin(&r, id, SMC_NETLINK_GET_LGR_SMCR, version, true);
		ask(&r, show_group);
	} else if (strcmp(words[0], "links") == 0) {
		begin(&r, id, SMC_NETLINK_GET_LINK_SMCR, version, true);
		ask(&r, show_link);
	} else if (strcmp(words[0], "active") == 0 && n == 2) {
		wait_for_links(id, (unsigned int)atoi(words[1]));
	} else if (strcmp(words[0], "reasons") == 0) {
		begin(&r, id, SMC_NETLINK_GET_FBACK_STATS, version, true);
		ask(&r, show_reason);
	} else {
		fail(words[0], EINVAL);
	}
}

int
main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	sock = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	if (sock < 0)
		fail("netlink", errno);
	obey(argc - 1, argv + 1);
	return 0;
}
