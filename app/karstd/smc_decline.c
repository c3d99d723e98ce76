/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Declines a connection for which there is not even room to copy its bytes.  Both sides have sent
 * the option, so the peer has to be told that it stays on TCP, and the peer's CLC messages must not
 * reach the program.  A client declines at once.  A server answers the peer's first message, which
 * it has to read; if that has not arrived, the program asks again when there is something to read.
 *
 * Then the socket belongs to the program, and nothing of the connection is kept.
 */
#include "smc_priv.h"

#include <errno.h>
#include <sys/socket.h>

static int
say_decline(const uint8_t system_id[8], int tcp, uint8_t version)
{
	struct karst_smc_clc msg = {.type = KARST_SMC_CLC_DECLINE,
		.decline = {.version = version,
			.reason = KARST_SMC_DECL_MEMORY,
			.os = KARST_SMC_OS_LINUX}};
	uint8_t buf[KARST_SMC_CLC_BUILD_MAX];
	int len;

	memcpy(msg.decline.system_id, system_id, sizeof(msg.decline.system_id));
	len = karst_smc_clc_build(&msg, buf, sizeof(buf));
	if (len < 0 || send(tcp, buf, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) != len)
		return -ENOTCONN;
	return 0;
}

static int
decline_server(const uint8_t system_id[8], int tcp)
{
	uint8_t buf[KARST_SMC_CLC_MAX_LEN];
	struct karst_smc_clc msg;
	ssize_t n = recv(tcp, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT);
	int len;

	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : -ENOTCONN;
	if (n == 0 || !karst_smc_clc_begins(buf, (size_t)n))
		return 0; /* the peer does not use CLC, or has ended the connection */
	len = karst_smc_clc_parse(buf, (size_t)n, &msg);
	if (len < 0)
		return len;
	if (recv(tcp, buf, (size_t)len, MSG_DONTWAIT) != len)
		return -ENOTCONN;
	if (msg.type == KARST_SMC_CLC_DECLINE)
		return 0;
	return msg.type == KARST_SMC_CLC_PROPOSAL
		? say_decline(system_id, tcp, msg.proposal.version)
		: -EPROTO;
}

struct declined {
	bool server;
	uint8_t system_id[8];
};

static int
decline(int tcp, void *arg)
{
	const struct declined *d = arg;

	return d->server ? decline_server(d->system_id, tcp) : say_decline(d->system_id, tcp, 2);
}

int
svc_decline(struct kd_smc *s, uid_t uid, int tcp, bool server)
{
	struct declined d = {.server = server};
	int rc;

	memcpy(d.system_id, s->system_id, sizeof(d.system_id));
	rc = svc_ask(s, uid, tcp, decline, &d, sizeof(d));

	if (rc == 0)
		s->fell_back[svc_reason_row(KARST_SMC_DECL_MEMORY)]++;
	return rc;
}
