/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages of connection management, all under its lock: identifiers, channels, groups, and their
 * destruction.  Other messages: session_cm_addr.c, session_cm_conn.c.
 */
#include "session_cm.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

/* Identifiers of a program that are destroyed before other threads get the lock, and the sleep that
 * lets them. */
#define IDS_AT_ONCE 64u
#define IDS_NAP_NS  50000

/* --- identifiers by their handles --- */

static struct cm_id *
find_id(struct karst_session *s, struct session_call *c, uint32_t handle)
{
	struct cm_id *id = eng_handles_get(&s->cm.ids, handle);

	/* an identifier whose request was not read does not belong to the program yet */
	if (id != NULL && (!id->passive || id->told))
		return id;
	reason(c, -EINVAL, "identifier %u does not exist in this program", handle);
	return NULL;
}

int
eng_cm_with_id(struct karst_session *s, struct session_call *c, uint32_t handle,
	int (*op)(struct eng_cm *cm, struct session_call *c, struct cm_id *id))
{
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_id *id = find_id(s, c, handle);
	int ret = id != NULL ? op(cm, c, id) : -EINVAL;

	eng_cm_leave(cm);
	return ret;
}

int
eng_cm_state_fault(
	struct session_call *c, const struct cm_id *id, const char *what, const char *wanted)
{
	return reason(c, -EINVAL, "%s: identifier %u is not %s", what, id->handle, wanted);
}

/* --- channels, events --- */

int
eng_session_cm_create_channel(struct karst_session *s, struct session_call *c)
{
	struct karst_ctl_cm_create_channel_rsp *rsp = c->rsp;
	struct cm_channel *ch = calloc(1, sizeof(*ch));
	struct eng_cm *cm;
	int ret, reader;

	if (ch == NULL)
		return reason(c, -ENOMEM, "channel: the engine has no memory");
	ret = eng_stream_open(&ch->stream, &s->lost_events, &reader);
	if (ret != 0) {
		free(ch);
		return reason(
			c, ret, "channel: the engine has no descriptors left (its ulimit -n)");
	}
	ch->client = &s->cm;
	TAILQ_INIT(&ch->events);
	cm = eng_cm_enter(s->e);
	ret = eng_session_handle_add(c, &s->cm.channels, ch, "channels of connection management",
		"max_channels", &ch->handle);
	rsp->channel = ch->handle;
	eng_cm_leave(cm);
	if (ret != 0) {
		close(reader);
		eng_stream_close(&ch->stream);
		free(ch);
		return ret;
	}
	c->rsp_fds[c->nrsp_fds++] = reader;
	return 0;
}

static void
cm_channel_free(struct karst_session *s, struct cm_channel *ch)
{
	eng_stream_close(&ch->stream);
	eng_handles_del(&s->cm.channels, ch->handle);
	free(ch);
}

int
eng_session_cm_destroy_channel(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_destroy_channel_req *req = c->body;
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_channel *ch = eng_session_find(c, &s->cm.channels, req->channel, "channel");
	int ret = -EINVAL;

	if (ch != NULL && ch->ids != 0) {
		ret = reason(c, -EBUSY, "channel %u: %u identifiers use it", req->channel, ch->ids);
	} else if (ch != NULL) {
		cm_channel_free(s, ch);
		ret = 0;
	}
	eng_cm_leave(cm);
	return ret;
}

/* Reports an event to the program. */
static void
cm_tell(struct cm_event *ev, struct karst_ctl_cm_get_event_rsp *rsp)
{
	struct cm_id *id = ev->id;

	*rsp = ev->rsp;
	rsp->uid = id->uid;
	rsp->id = id->handle;
	id->reported++;
	if (ev->conn != NULL) {
		rsp->id = ev->conn->handle;
		rsp->listen_id = id->handle;
		ev->conn->told = true;
		ev->conn->request = NULL;
		eng_cm_backlog_give(ev->conn);
	} else if (ev->group != NULL) {
		rsp->uid = ev->group->uid;
		rsp->id = ev->group->handle;
		ev->group->reported++;
	}
}

int
eng_session_cm_get_event(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_get_event_req *req = c->body;
	struct karst_ctl_cm_get_event_rsp *rsp = c->rsp;
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_channel *ch = eng_session_find(c, &s->cm.channels, req->channel, "channel");
	bool emptied;
	struct cm_event *ev = ch != NULL ? eng_cm_event_take(ch, &emptied) : NULL;
	int ret = -EINVAL;

	if (ev != NULL) {
		cm_tell(ev, rsp);
		rsp->emptied = emptied;
		ret = 0;
	} else if (ch != NULL) {
		ret = reason(c, -EAGAIN, "channel %u has no event", req->channel);
	}
	eng_cm_leave(cm);
	free(ev);
	return ret;
}

/* --- life of identifiers --- */

static int
cm_check_kind(struct session_call *c, const struct karst_ctl_cm_create_id_req *req)
{
	bool ud = req->port_space == KARST_RDMACM_PS_UDP;

	if (!ud && req->port_space != KARST_RDMACM_PS_TCP)
		return reason(c, -EPROTONOSUPPORT,
			"port space 0x%04x: must be 0x%04x (TCP) or 0x%04x (UDP)", req->port_space,
			KARST_RDMACM_PS_TCP, KARST_RDMACM_PS_UDP);
	switch (req->qp_type) {
	case KARST_QPT_RC:
	case KARST_QPT_UC:
	case KARST_QPT_XRC_SEND:
	case KARST_QPT_XRC_RECV:
		if (!ud)
			return 0;
		break;
	case KARST_QPT_UD:
		if (ud)
			return 0;
		break;
	default:
		break;
	}
	return reason(c, -EINVAL,
		"qp_type %u: must be RC, UC or XRC with port space TCP, UD with UDP", req->qp_type);
}

int
eng_session_cm_create_id(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_create_id_req *req = c->body;
	struct karst_ctl_cm_create_id_rsp *rsp = c->rsp;
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_channel *ch = eng_session_find(c, &s->cm.channels, req->channel, "channel");
	struct cm_id *id;
	int ret = ch != NULL ? cm_check_kind(c, req) : -EINVAL;

	if (ret == 0) {
		ret = eng_cm_id_new(cm, &s->cm, ch, &id);
		if (ret == -ENOSPC && s->cm.ids.used < s->cm.ids.max)
			eng_session_reason_share(s, c, ENG_SHARE_CM_IDS);
		else if (ret != 0)
			reason(c, ret,
				"identifiers: the engine has no memory, or this program's limit "
				"of %u is reached (max_cm_ids)",
				s->cm.ids.used);
	}
	if (ret == 0) {
		id->uid = req->uid;
		id->port_space = req->port_space;
		id->qp_type = req->qp_type;
		rsp->id = id->handle;
	}
	eng_cm_leave(cm);
	return ret;
}

static int
destroy_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	struct karst_ctl_cm_destroy_id_rsp *rsp = c->rsp;

	rsp->events = id->reported;
	rsp->channel = id->channel->handle;
	rsp->emptied = eng_cm_id_free(cm, id);
	return 0;
}

int
eng_session_cm_destroy_id(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_destroy_id_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, destroy_id);
}

static int
migrate_id(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_migrate_id_req *req = c->body;
	struct karst_ctl_cm_migrate_id_rsp *rsp = c->rsp;
	struct cm_channel *to = eng_session_find(c, &id->client->channels, req->channel, "channel");

	if (to == NULL)
		return -EINVAL;
	rsp->channel = id->channel->handle;
	rsp->events = id->reported;
	if (to == id->channel)
		return 0;
	rsp->emptied = eng_cm_event_move(cm, id, to);
	id->channel->ids--;
	id->channel = to;
	to->ids++;
	return 0;
}

int
eng_session_cm_migrate_id(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_migrate_id_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, migrate_id);
}

/* --- groups --- */

static int
join_mcast(struct eng_cm *cm, struct session_call *c, struct cm_id *id)
{
	const struct karst_ctl_cm_join_mcast_req *req = c->body;
	struct karst_ctl_cm_join_mcast_rsp *rsp = c->rsp;
	struct cm_group *g;
	struct cm_event *ev;
	int ret = eng_cm_check_addr(c->why, &req->addr);

	if (ret == 0 && !eng_ip_is_group(req->addr.ip))
		ret = reason(c, -EINVAL, "not a group: 224.0.0.0/4 or ff00::/8");
	if (ret != 0)
		return ret;
	if (id->qp_type != KARST_QPT_UD || !id->has_port || id->state == CM_ID_LISTEN)
		return eng_cm_state_fault(
			c, id, "join_mcast", "of UDP and bound to an address of a port");
	if (id->passive && !id->named)
		return eng_cm_state_fault(c, id, "join_mcast", "accepted yet");
	g = calloc(1, sizeof(*g));
	if (g == NULL)
		return reason(c, -ENOMEM, "group: the engine has no memory");
	ret = eng_session_handle_add(c, &id->client->groups, g, "groups", "max_cm_ids", &g->handle);
	ev = ret == 0 ? eng_cm_event(cm, id, KARST_RDMACM_MULTICAST_JOIN, 0) : NULL;
	if (ev == NULL) {
		if (ret == 0) {
			eng_handles_del(&id->client->groups, g->handle);
			ret = reason(c, -ENOMEM, "group: the engine has no memory");
		}
		free(g);
		return ret;
	}
	g->uid = req->uid;
	g->id = id;
	memcpy(g->ip, req->addr.ip, sizeof(g->ip));
	LIST_INSERT_HEAD(&id->groups, g, next);
	ev->group = g;
	ev->rsp.ud_qpn = 0xffffff;
	ev->rsp.ud_qkey = CM_UDP_QKEY;
	(void)eng_cm_ah(cm->e, id, g->ip, &ev->rsp.ah);
	if (ev->rsp.ah.hop_limit == 0)
		ev->rsp.ah.hop_limit = 1;
	rsp->group = g->handle;
	return 0;
}

int
eng_session_cm_join_mcast(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_join_mcast_req *req = c->body;

	return eng_cm_with_id(s, c, req->id, join_mcast);
}

int
eng_session_cm_leave_mcast(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_cm_leave_mcast_req *req = c->body;
	struct karst_ctl_cm_leave_mcast_rsp *rsp = c->rsp;
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_group *g = eng_session_find(c, &s->cm.groups, req->group, "group");

	if (g != NULL) {
		rsp->events = g->reported;
		rsp->channel = g->id->channel->handle;
		rsp->emptied = eng_cm_event_purge(cm, g->id, g);
		LIST_REMOVE(g, next);
		eng_handles_del(&s->cm.groups, g->handle);
		free(g);
	}
	eng_cm_leave(cm);
	return g != NULL ? 0 : -EINVAL;
}

/* --- the end --- */

/* Destroys some of the identifiers, from slot *@at on.  Destroying a listener also destroys its
 * requests that were not read, which may be in any slot. */
static void
drop_some_ids(struct eng_cm *cm, struct karst_session *s, uint32_t *at)
{
	uint32_t left = s->cm.ids.used - karst_min_u32(s->cm.ids.used, IDS_AT_ONCE);
	struct cm_id *id;

	while (s->cm.ids.used > left) {
		id = eng_handles_next(&s->cm.ids, at);
		if (id == NULL)
			*at = 0;
		else if (!id->passive || id->told)
			eng_cm_id_free(cm, id);
	}
}

void
eng_session_drop_cm(struct karst_session *s)
{
	const struct timespec nap = {.tv_nsec = IDS_NAP_NS};
	struct eng_cm *cm = eng_cm_enter(s->e);
	struct cm_channel *ch;
	uint32_t at = 0;

	for (drop_some_ids(cm, s, &at); s->cm.ids.used > 0; drop_some_ids(cm, s, &at)) {
		/* a thread that only releases the lock has it again before others wake up */
		eng_cm_leave(cm);
		nanosleep(&nap, NULL);
		cm = eng_cm_enter(s->e);
	}
	for (at = 0; (ch = eng_handles_next(&s->cm.channels, &at)) != NULL;)
		cm_channel_free(s, ch);
	eng_cm_leave(cm);
}
