/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The second link of a group: the port that it uses, when it is added, and events of ports.
 *
 * The server offers the address of a port other than the first link's.  The client uses another
 * port of its own, if the kernel would send to that address from there.  So two links share no port
 * on either side; if that is impossible, a group has one link.
 *
 * A link dies when its queue pair gets no answer, which takes seconds, or at once when its port
 * loses the carrier and there is another link.  The server adds a link again when a port comes up,
 * and tries several times before that, because there is no event when a path beyond the port has
 * come back.  The client does the same by asking the server, which does not learn of the client's
 * ports.  The client waits twice as long, since in most cases the server comes first.
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "karst_log.h"

#define SEC_NS        1000000000ull
#define LINK_SETTLE_S 1u /* from the time when a port is up until the peer can be reached */
#define AGAIN_S       4u /* after a link has died; twice as long each time, up to AGAIN_MAX */
#define AGAIN_MAX     256u
#define CLIENT_LATER  2u /* times the server's wait */
#define DISCARD       9  /* no packet is sent to this port number */

bool
svc_ports_is_local(const uint8_t gid[16])
{
	return karst_engine_ip_is_ip4(gid)
		? gid[12] == 127
		: gid[0] == 0xfe || memcmp(gid, &in6addr_loopback, 16) == 0;
}

static bool
is_up(struct kd_smc *s, uint32_t port)
{
	struct karst_port_attr attr;

	return karst_query_port(s->ctx, port, &attr) == 0 && attr.state == KARST_PORT_ACTIVE;
}

uint8_t
svc_ports_links(const struct kd_smc *s)
{
	uint32_t i, first = 0;

	for (i = 0; i < s->ngids; i++) {
		if (svc_ports_is_local(s->gids[i].gid.raw))
			continue;
		if (first != 0 && s->gids[i].port_num != first)
			return 2;
		first = s->gids[i].port_num;
	}
	return 1;
}

/* --- the other port --- */

/* Returns the address from which the kernel would send to @to. */
static bool
source_of(const uint8_t to[16], uint8_t source[16])
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(DISCARD)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found;

	if (fd < 0)
		return false;
	memcpy(&at.sin6_addr, to, sizeof(at.sin6_addr));
	found = connect(fd, (void *)&at, sizeof(at)) == 0 &&
		getsockname(fd, (void *)&at, &len) == 0;
	memcpy(source, &at.sin6_addr, sizeof(at.sin6_addr));
	close(fd);
	return found;
}

static const struct svc_link *
first_link(const struct kd_smc *s, uint32_t group)
{
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++)
		if (s->links[i].id != SMC_NO_ID && s->links[i].group == group)
			return &s->links[i];
	return NULL;
}

const struct karst_gid_entry *
svc_ports_other(struct kd_smc *s, const struct karst_smc_link_ask *ask)
{
	const struct svc_link *first = first_link(s, ask->group);
	uint8_t source[16];
	uint32_t i;

	if (first == NULL || svc_ports_is_local(first->local.gid))
		return NULL;
	svc_rdma_load_gids(s);
	if (ask->remote_gid != NULL && !source_of(ask->remote_gid, source))
		return NULL;
	for (i = 0; i < s->ngids; i++) {
		const struct karst_gid_entry *e = &s->gids[i];

		if (e->port_num == first->qp.port || svc_ports_is_local(e->gid.raw) ||
			karst_engine_ip_is_ip4(e->gid.raw) !=
				karst_engine_ip_is_ip4(first->local.gid) ||
			!is_up(s, e->port_num))
			continue;
		if (ask->remote_gid == NULL || memcmp(e->gid.raw, source, sizeof(source)) == 0)
			return e;
	}
	return NULL;
}

/* --- adding a link again --- */

static void
schedule(struct kd_smc *s, struct svc_again *a, uint32_t wait_s)
{
	a->at_ns = s->core->now_ns + wait_s * SEC_NS;
	a->wait_s = 2 * wait_s;
	s->again_ns = karst_min_u64(s->again_ns, a->at_ns);
}

/* Schedules a second link after @wait_s, if both sides support one and there is none. */
static void
add_later(struct kd_smc *s, uint32_t group, uint32_t wait_s)
{
	struct karst_smc_group_info info;

	if (karst_smc_group_info(s->core, group, &info) == 0 && info.version > 1 &&
		info.max_links > 1 && info.nlinks == 1)
		schedule(s, &s->again[group], wait_s);
	else
		s->again[group] = (struct svc_again){0};
}

static uint32_t
turns(const struct kd_smc *s, uint32_t group)
{
	struct karst_smc_group_info info;

	return karst_smc_group_info(s->core, group, &info) == 0 && info.role == KARST_SMC_CLIENT
		? CLIENT_LATER
		: 1;
}

/* The peer asks only once: schedules a try as soon as one is possible, unless there is one
 * already. */
static void
add_soon(struct kd_smc *s, uint32_t group)
{
	const struct svc_again *a = &s->again[group];

	if (a->at_ns == 0 || a->at_ns > s->core->now_ns + LINK_SETTLE_S * SEC_NS)
		add_later(s, group, LINK_SETTLE_S);
}

static int
add_or_ask(struct kd_smc *s, uint32_t group)
{
	const struct karst_smc_link_ask ask = {.group = group};
	const struct karst_gid_entry *other;
	struct karst_smc_group_info info;

	if (karst_smc_group_info(s->core, group, &info) != 0)
		return -ENOENT;
	if (info.role == KARST_SMC_SERVER)
		return karst_smc_group_add_link(s->core, group);
	other = svc_ports_other(s, &ask);
	return other == NULL ? -ENODEV : karst_smc_group_ask_link(s->core, group, other->gid.raw);
}

void
svc_ports_event(struct kd_smc *s, const struct karst_smc_ev *ev)
{
	struct karst_smc_group_info info;

	if (ev->what & KARST_SMC_EV_LINK_DOWN)
		karst_log_some(&s->log, kd_clock_ns(), KARST_LOG_NOTICE,
			"smc: group %u: one of two links is lost", ev->id);
	/* of several events at once, the final state of the group counts */
	if ((ev->what & KARST_SMC_EV_LINK_UP) &&
		karst_smc_group_info(s->core, ev->id, &info) == 0 && info.nlinks == 2)
		karst_log_some(&s->log, kd_clock_ns(), KARST_LOG_NOTICE,
			"smc: group %u has two links", ev->id);
	if (ev->what == KARST_SMC_EV_LINK_ASKED)
		add_soon(s, ev->id);
	else
		add_later(s, ev->id, AGAIN_S * turns(s, ev->id));
}

void
svc_ports_expire(struct kd_smc *s)
{
	uint32_t i;
	int rc;

	if (s->core->now_ns < s->again_ns)
		return;
	for (i = 0; i < SMC_GROUPS; i++) {
		struct svc_again *a = &s->again[i];

		if (a->at_ns == 0 || a->at_ns > s->core->now_ns)
			continue;
		rc = add_or_ask(s, i);
		if (rc == -EBUSY)
			schedule(s, a, LINK_SETTLE_S);
		else if (a->wait_s <= AGAIN_MAX)
			add_later(s, i, a->wait_s);
		else
			*a = (struct svc_again){0};
	}
	s->again_ns = UINT64_MAX;
	for (i = 0; i < SMC_GROUPS; i++)
		if (s->again[i].at_ns != 0)
			s->again_ns = karst_min_u64(s->again_ns, s->again[i].at_ns);
}

uint64_t
svc_ports_next_ns(const struct kd_smc *s)
{
	return s->again_ns;
}

/* --- events of ports --- */

/*
 * If there is another link, does not wait until this one has got no answer.  The queue pair is set
 * to Error.  The flush completions come behind those of what has arrived, which the peer takes for
 * delivered.
 */
static void
port_down(struct kd_smc *s, uint32_t port)
{
	const struct karst_qp_attr attr = {.qp_state = KARST_QPS_ERR};
	struct karst_smc_group_info info;
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++) {
		struct svc_link *l = &s->links[i];

		if (l->id == SMC_NO_ID || l->qp.port != port || l->down ||
			karst_smc_group_info(s->core, l->group, &info) != 0 || info.nlinks != 2)
			continue;
		if (karst_modify_qp(l->qp.qp, &attr, KARST_QP_STATE) != 0)
			karst_log(KARST_LOG_WARNING, "smc: a queue pair of port %u: %s", port,
				karst_why());
	}
}

/* With the port, its queue pairs have gone to Error, also those in stock. */
static void
port_gone(struct kd_smc *s, uint32_t port)
{
	svc_rdma_load_gids(s);
	svc_link_unstock(s, port);
}

static void
port_up(struct kd_smc *s)
{
	uint32_t i;

	svc_rdma_load_gids(s);
	karst_smc_set_group_links(s->core, svc_ports_links(s));
	for (i = 0; i < SMC_GROUPS; i++)
		add_later(s, i, LINK_SETTLE_S * turns(s, i));
}

static void
async_ready(struct svc_source *src, uint32_t events)
{
	struct kd_smc *s = svc_of(src, struct kd_smc, async_source);
	struct karst_async_event e;

	while (karst_get_async_event(s->ctx, &e) == 0) {
		if (e.event == KARST_EVENT_PORT_ERR || e.event == KARST_EVENT_PORT_GONE)
			port_down(s, e.element.port_num);
		if (e.event == KARST_EVENT_PORT_GONE)
			port_gone(s, e.element.port_num);
		if (e.event == KARST_EVENT_PORT_ACTIVE || e.event == KARST_EVENT_GID_CHANGE)
			port_up(s);
		karst_ack_async_event(&e);
	}
}

int
svc_ports_init(struct kd_smc *s)
{
	s->async_source.ready = async_ready;
	if (fcntl(s->ctx->async_fd, F_SETFL, O_NONBLOCK) != 0)
		return -errno;
	return svc_watch(s, s->ctx->async_fd, EPOLLIN, &s->async_source);
}
