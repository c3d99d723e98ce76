/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Attributes of queue pairs, and addresses: checks what a program may ask for, with a reason for
 * each refusal, and translates it for lib/qp.
 *
 * lib/qp checks the same again, on its lcore, where the state cannot change any more.  The checks
 * here come first so that the program learns which member was wrong, and so that no neighbour is
 * resolved for a queue pair that would refuse the path.
 */
#include "session_priv.h"

#include <stdio.h>

#include "karst_neigh.h"
#include "port.h"

#define FLOW_LABEL_MAX 0xfffffu
#define SL_MAX         7u
#define NUM_MAX        0xffffffu
#define QP_ACCESS      (KARST_ACCESS_REMOTE | KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_MW_BIND)
#define ALL_BITS       (((unsigned int)KARST_QP_DEST_QPN << 1) - 1)
#define CONTROLLED     0x80000000u /* U1: a Q_Key that not every program may use */

/* --- names --- */

static const char *const bit_names[] = {"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS",
	"PKEY_INDEX", "PORT", "QKEY", "AV", "PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY",
	"RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC",
	"PATH_MIG_STATE", "CAP", "DEST_QPN"};
static_assert(ALL_BITS == (1u << KARST_DIM(bit_names)) - 1, "a name for each bit");

/* Lists the names of the bits in @mask. */
static const char *
names_of(unsigned int mask, char *buf, size_t size)
{
	size_t i, n = 0;

	buf[0] = 0;
	for (i = 0; i < KARST_DIM(bit_names) && n < size; i++)
		if (mask & 1u << i)
			n += (size_t)snprintf(
				buf + n, size - n, "%s%s", n > 0 ? " " : "", bit_names[i]);
	return buf;
}

/* --- addresses --- */

/* Finds the port with the program's number @number. */
static int
attr_check_port(const struct karst_session *s, struct session_call *c, const char *member,
	uint32_t number, struct karst_engine_port_info *info)
{
	if (number >= 1 && karst_engine_port_info(s->e, (uint8_t)(number - 1), info) == 0)
		return 0;
	return reason(c, -EINVAL, "%s %u: no such port; ports are 1 to %u", member, number,
		eng_session_nports(s->e));
}

static bool
attr_all_zero(const uint8_t *p, size_t n)
{
	while (n > 0 && p[n - 1] == 0)
		n--;
	return n == 0;
}

static int
check_dgid(struct session_call *c, const struct karst_engine_addr *dst,
	const struct karst_engine_addr *src)
{
	bool ip4 = karst_engine_addr_is_ip4(dst);

	if (attr_all_zero(dst->ip, 16) || (ip4 && attr_all_zero(dst->ip + 12, 4)))
		return reason(c, -EINVAL, "dgid: all zero");
	if (ip4 != karst_engine_addr_is_ip4(src))
		return reason(c, -EINVAL,
			"dgid is an %s address and the source, by sgid_index, an %s address: both "
			"must be of one family",
			ip4 ? "IPv4" : "IPv6", ip4 ? "IPv6" : "IPv4");
	return 0;
}

static int
check_ah(const struct karst_session *s, struct session_call *c,
	const struct karst_ctl_ah_attr *attr, struct karst_engine_port_info *info)
{
	struct karst_engine_addr dst = {0};
	int ret = attr_check_port(s, c, "ah.port_num", attr->port_num, info);

	if (ret != 0)
		return ret;
	if (attr->sgid_index >= info->num_addrs)
		return reason(c, -EINVAL, "sgid_index %u: port %u has %u GIDs, numbered from 0",
			attr->sgid_index, attr->port_num, info->num_addrs);
	if (karst_engine_ip_is_none(info->addrs[attr->sgid_index].ip))
		return reason(c, -EINVAL, "sgid_index %u: port %u has no GID there",
			attr->sgid_index, attr->port_num);
	if (attr->flow_label > FLOW_LABEL_MAX)
		return reason(c, -EINVAL, "flow_label 0x%x exceeds 0x%x", attr->flow_label,
			FLOW_LABEL_MAX);
	if (attr->sl > SL_MAX)
		return reason(c, -EINVAL, "sl %u exceeds %u", attr->sl, SL_MAX);
	memcpy(dst.ip, attr->dgid, sizeof(dst.ip));
	return check_dgid(c, &dst, &info->addrs[attr->sgid_index]);
}

static int
resolve_fault(struct session_call *c, int ret, const struct karst_ctl_ah_attr *attr)
{
	const uint8_t *d = attr->dgid;

	if (ret != -EHOSTUNREACH && ret != -EAGAIN)
		return reason(c, ret, "resolving the path to the peer: %s", strerror(-ret));
	if (d[10] == 0xff && d[11] == 0xff && attr_all_zero(d, 10))
		return reason(c, ret, "no path from port %u to %u.%u.%u.%u: no route, or no answer",
			attr->port_num, d[12], d[13], d[14], d[15]);
	return reason(c, ret,
		"no path from port %u to %02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:"
		"%02x%02x:%02x%02x: no route, or no answer",
		attr->port_num, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], d[9], d[10],
		d[11], d[12], d[13], d[14], d[15]);
}

/* Waits for an answer, or not, as @opts say. */
static int
find_path(struct karst_session *s, struct session_call *c, const struct karst_ctl_ah_attr *attr,
	const struct karst_engine_resolve_opts *opts, struct karst_path *path)
{
	int ret = karst_engine_resolve(
		s->e, (uint8_t)(attr->port_num - 1), attr->sgid_index, attr->dgid, opts, path);

	return ret == 0 ? 0 : resolve_fault(c, ret, attr);
}

/* Makes one attempt. */
static int
seek_path(struct karst_session *s, struct session_call *c, const struct karst_ctl_ah_attr *attr,
	const struct karst_engine_resolve_opts *opts, struct karst_path *path)
{
	struct session_seek_key key = {.port = attr->port_num, .sgid_index = attr->sgid_index};
	struct karst_engine_resolve_opts once = *opts;
	bool send, counted;
	int ret;

	memcpy(key.ip, attr->dgid, sizeof(key.ip));
	counted = eng_session_seek(s, &key, &send);
	once.no_wait = true;
	once.look_only = !send;
	ret = find_path(s, c, attr, &once, path);
	if (ret == -EAGAIN && !counted)
		return reason(c, ret,
			"path: programs look for so many addresses without an answer that the "
			"engine looks for no more at a time");
	if (ret != -EAGAIN && counted)
		eng_session_seek_end(s, &key);
	return ret;
}

int
eng_session_path(struct karst_session *s, struct session_call *c,
	const struct karst_ctl_ah_attr *attr, bool no_wait, struct karst_path *path)
{
	/* the program gets the reason; in the log it could write as much as it likes */
	const struct karst_engine_resolve_opts opts = {
		.alive = s->alive, .user = s->user, .quiet = true};
	struct karst_engine_port_info info;
	int ret = check_ah(s, c, attr, &info);

	if (ret != 0)
		return ret;
	if (no_wait)
		ret = seek_path(s, c, attr, &opts, path);
	else
		ret = find_path(s, c, attr, &opts, path);
	if (ret != 0)
		return ret;
	path->tclass = attr->traffic_class;
	path->hop_limit = attr->hop_limit;
	path->flow_label = attr->flow_label;
	if (path->has_vlan)
		path->vlan_tci = (uint16_t)((path->vlan_tci & 0xfff) | attr->sl << 13);
	return 0;
}

int
eng_session_create_ah(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_create_ah_req *req = c->body;
	const struct session_pd *pd = eng_session_find(c, &s->pds, req->pd, "pd");
	struct karst_ctl_create_ah_rsp *rsp = c->rsp;
	struct session_ah *ah;
	struct karst_path path;
	int ret;

	if (pd == NULL)
		return -EINVAL;
	if (req->no_wait > 1)
		return reason(c, -EINVAL, "no_wait %u: must be 0 or 1", req->no_wait);
	ret = eng_session_key_reserve(c, &s->ahs, "address handles", "max_ahs");
	if (ret == 0)
		ret = eng_session_path(s, c, &req->attr, req->no_wait != 0, &path);
	if (ret != 0)
		return ret;
	ah = calloc(1, sizeof(*ah));
	if (ah == NULL)
		return reason(c, -ENOMEM, "address handle: the engine has no memory");
	ret = karst_engine_ah_create(s->e, pd->pd, &path, &rsp->ah);
	if (ret != 0) {
		free(ah);
		return ret == -ENOSPC
			? reason(c, ret, "address handle: the engine's limit of %u is reached",
				  s->e->cfg.max_ahs)
			: reason(c, ret, "address handle: %s", strerror(-ret));
	}
	eng_keys_add(&s->ahs, &ah->node, rsp->ah);
	return 0;
}

/* The next queue pairs of @pd, from *@at on, that have datagrams posted.  @return how many */
static uint32_t
next_senders(const struct karst_session *s, uint32_t pd, uint32_t *at, struct karst_engine_qp **qps)
{
	const struct session_qp *q;
	uint32_t n = 0;

	while (n < ENG_SENDS_AT_ONCE && (q = eng_handles_next(&s->qps, at)) != NULL)
		if (q->type == KARST_QPT_UD && q->qp->pd == pd && eng_qp_has_posted(q->qp))
			qps[n++] = q->qp;
	return n;
}

/* Whether datagrams may be sent: an lcore that blocked at the program's doorbells would block at
 * its rings, too, and memory that is gone is not sent. */
static bool
may_send_datagrams(const struct karst_session *s)
{
	return s->space == NULL ||
		(!karst_space_failed(s->space) && !karst_space_silenced(s->space));
}

/* Asks each queue pair once.  @return whether some may have more to send. */
static bool
send_round(struct karst_session *s, uint32_t pd, struct eng_tries *tries)
{
	struct karst_engine_qp *qps[ENG_SENDS_AT_ONCE];
	uint32_t n, at = 0, groups = 0;
	bool more = false;

	while (may_send_datagrams(s) && (n = next_senders(s, pd, &at, qps)) > 0) {
		/* the first group is part of the request, which has been paced */
		if (groups++ > 0)
			(void)eng_session_pace(s, 1);
		more |= eng_qps_send_posted(s->e, qps, n, tries) == -EAGAIN;
	}
	return more;
}

/*
 * Sends the datagrams that refer to an address handle before it is destroyed.  An adapter reads the
 * handle when a datagram is posted, and programs destroy the handle directly afterwards.
 *
 * The program determines which queue pairs have posted something, by its rings, and may have
 * thousands.  So they share the time that one control call may wait for memory, and each group of
 * them is paced like a call.  First all are asked once, so that those with slow memory, after which
 * there may be no time left, do not delay the others.
 */
static void
send_datagrams(struct karst_session *s, uint32_t pd)
{
	struct eng_tries tries = {0};

	if (send_round(s, pd, NULL))
		send_round(s, pd, &tries);
}

int
eng_session_destroy_ah(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_destroy_ah_req *req = c->body;
	struct key_node *node = eng_keys_get(&s->ahs, req->ah);
	int ret;

	if (node == NULL)
		return reason(c, -EINVAL, "ah 0x%x does not exist in this program", req->ah);
	send_datagrams(s, karst_ah_pd(s->e->ahs, req->ah));
	ret = karst_engine_ah_destroy(s->e, req->ah);
	if (ret != 0)
		return reason(c, ret, "ah 0x%x: %s", req->ah, strerror(-ret));
	eng_keys_del(&s->ahs, node);
	free(karst_container_of(node, struct session_ah, node));
	return 0;
}

void
eng_session_drop_ahs(struct karst_session *s)
{
	uint32_t ah[DROP_BATCH], n, at = 0;
	struct key_node *node;

	for (; s->ahs.used > 0; karst_engine_ah_destroy_many(s->e, ah, n))
		for (n = 0; n < DROP_BATCH && (node = eng_keys_any(&s->ahs, &at)) != NULL; n++) {
			ah[n] = node->key;
			eng_keys_del(&s->ahs, node);
			free(karst_container_of(node, struct session_ah, node));
		}
}

/* --- attributes: what is allowed --- */

/* Checks every numeric attribute against its maximum. */
static int
check_numbers(const struct session_qp *qp, struct session_call *c,
	const struct karst_ctl_qp_attr *a, unsigned int mask)
{
	const struct {
		unsigned int bit;
		const char *name;
		uint32_t value, least, most;
	} numbers[] = {
		{KARST_QP_STATE, "qp_state", a->qp_state, 0, KARST_QPS_ERR},
		{KARST_QP_CUR_STATE, "cur_qp_state", a->cur_qp_state, 0, KARST_QPS_ERR},
		{KARST_QP_PKEY_INDEX, "pkey_index", a->pkey_index, 0, 0},
		{KARST_QP_PATH_MTU, "path_mtu", a->path_mtu, 1, 5},
		{KARST_QP_TIMEOUT, "timeout", a->timeout, 0, 31},
		{KARST_QP_RETRY_CNT, "retry_cnt", a->retry_cnt, 0, 7},
		{KARST_QP_RNR_RETRY, "rnr_retry", a->rnr_retry, 0, 7},
		{KARST_QP_MIN_RNR_TIMER, "min_rnr_timer", a->min_rnr_timer, 0, 31},
		{KARST_QP_RQ_PSN, "rq_psn", a->rq_psn, 0, NUM_MAX},
		{KARST_QP_SQ_PSN, "sq_psn", a->sq_psn, 0, NUM_MAX},
		{KARST_QP_DEST_QPN, "dest_qpn", a->dest_qpn, 0, NUM_MAX},
		{KARST_QP_ALT_PATH, "alt_pkey_index", a->alt_pkey_index, 0, 0},
		{KARST_QP_ALT_PATH, "alt_timeout", a->alt_timeout, 0, 31},
		{KARST_QP_PATH_MIG_STATE, "path_mig_state", a->path_mig_state, KARST_MIG_MIGRATED,
			KARST_MIG_REARM},
		{KARST_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", a->max_rd_atomic, 0,
			KARST_QP_MAX_RD_ATOMIC},
		{KARST_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", a->max_dest_rd_atomic, 0,
			qp->max_dest_rd_atomic},
	};
	size_t i;

	for (i = 0; i < KARST_DIM(numbers); i++)
		if ((mask & numbers[i].bit) != 0 &&
			(numbers[i].value < numbers[i].least || numbers[i].value > numbers[i].most))
			return reason(c, -EINVAL, "%s %u: must be %u to %u", numbers[i].name,
				numbers[i].value, numbers[i].least, numbers[i].most);
	if ((mask & KARST_QP_ACCESS_FLAGS) != 0 && (a->access_flags & ~(uint32_t)QP_ACCESS) != 0)
		return reason(c, -EINVAL,
			"access_flags 0x%x has bits that are not allowed; allowed are 0x%x",
			a->access_flags, QP_ACCESS);
	return 0;
}

/* Checks that the transition exists, and that it takes these attributes. */
static int
attr_check_transition(const struct session_qp *qp, struct session_call *c, uint32_t from,
	const struct karst_ctl_qp_attr *a, unsigned int mask)
{
	uint32_t to = mask & KARST_QP_STATE ? a->qp_state : from;
	unsigned int required, optional, rest = mask & ~(unsigned int)KARST_QP_STATE;
	char names[160];

	if ((mask & KARST_QP_CUR_STATE) != 0 && a->cur_qp_state != from)
		return reason(c, -EINVAL, "cur_qp_state is %s, but the queue pair is in %s",
			eng_qp_state_name(a->cur_qp_state), eng_qp_state_name(from));
	if (karst_qp_transition(qp->type, (enum karst_qp_state)from, (enum karst_qp_state)to,
		    &required, &optional) != 0)
		return reason(c, -EINVAL, "%s to %s: %s queue pairs have no such transition",
			eng_qp_state_name(from), eng_qp_state_name(to), eng_qp_type_name(qp->type));
	if ((required & ~rest) != 0)
		return reason(c, -EINVAL, "%s to %s (%s): missing %s", eng_qp_state_name(from),
			eng_qp_state_name(to), eng_qp_type_name(qp->type),
			names_of(required & ~rest, names, sizeof(names)));
	if ((rest & ~(required | optional)) != 0)
		return reason(c, -EINVAL, "%s to %s (%s): not allowed %s", eng_qp_state_name(from),
			eng_qp_state_name(to), eng_qp_type_name(qp->type),
			names_of(rest & ~(required | optional), names, sizeof(names)));
	return 0;
}

/* U1.  A datagram that is posted with such a Q_Key is sent with the queue pair's own Q_Key, so this
 * is the only place where a program could get one. */
static int
check_qkey(const struct karst_session *s, struct session_call *c, const struct karst_ctl_qp_attr *a,
	unsigned int mask)
{
	if ((mask & KARST_QP_QKEY) == 0 || (a->qkey & CONTROLLED) == 0 ||
		s->limits.controlled_qkeys)
		return 0;
	return reason(c, -EPERM,
		"qkey 0x%x: Q_Keys from 0x%x on are for root, and for whom [limits] "
		"controlled_qkeys allows them",
		a->qkey, CONTROLLED);
}

static int
check_mask(struct session_call *c, unsigned int mask)
{
	if ((mask & KARST_QP_CAP) != 0)
		return reason(c, -EOPNOTSUPP, "CAP: resizing is not supported");
	if ((mask & ~ALL_BITS) != 0)
		return reason(
			c, -EINVAL, "mask 0x%x has unknown bits; known are 0x%x", mask, ALL_BITS);
	return 0;
}

/* G2: checks which changes of path migration are possible now. */
static int
check_migration(struct session_call *c, const struct karst_core_qp_attr *is,
	const struct karst_ctl_qp_attr *a, unsigned int mask)
{
	bool loads = (mask & KARST_QP_ALT_PATH) != 0;
	bool rearms = (mask & KARST_QP_PATH_MIG_STATE) != 0 && a->path_mig_state == KARST_MIG_REARM;

	if (loads && !rearms && is->path_mig_state != KARST_MIG_MIGRATED)
		return reason(c, -EINVAL,
			"ALT_PATH: in REARM and ARMED another path is loaded only with "
			"PATH_MIG_STATE REARM");
	if (rearms && !loads && is->alt_port_num == 0)
		return reason(
			c, -EINVAL, "path_mig_state REARM: there is no alternate path (ALT_PATH)");
	if ((mask & KARST_QP_PATH_MIG_STATE) != 0 && !rearms &&
		is->path_mig_state == KARST_MIG_REARM)
		return reason(c, -EINVAL,
			"path_mig_state MIGRATED: the queue pair is in REARM, its peer has not armed "
			"it yet");
	return 0;
}

/* @path_mtu: of the queue pair, or the one that the same call sets. */
static int
check_carried(struct session_call *c, uint32_t path_mtu, uint32_t port_num,
	const struct karst_engine_port_info *info)
{
	return path_mtu <= info->path_mtu
		? 0
		: reason(c, -EINVAL, "path_mtu %u (%u bytes): MTU %u of port %u carries %u",
			  path_mtu, 128u << path_mtu, info->mtu, port_num, 128u << info->path_mtu);
}

/* Checks the alternate path: its port must be one that the queue pair's lcore serves. */
static int
check_alternate(const struct karst_session *s, struct session_call *c, const struct session_qp *qp,
	const struct karst_ctl_qp_attr *a, uint32_t path_mtu)
{
	struct karst_engine_port_info info;
	char why[KARST_CTL_WHY];
	int ret;

	if (a->alt_port_num != a->alt_ah.port_num)
		return reason(c, -EINVAL, "alt_port_num %u: alt_ah has port_num %u",
			a->alt_port_num, a->alt_ah.port_num);
	ret = check_ah(s, c, &a->alt_ah, &info);
	if (ret == 0)
		ret = check_carried(c, path_mtu, a->alt_port_num, &info);
	if (ret != 0) {
		memcpy(why, c->why, sizeof(why));
		return reason(c, ret, "alternate path: %.200s", why);
	}
	if ((info.lcore_mask >> qp->qp->lcore & 1) == 0)
		return reason(c, -EINVAL,
			"alt_port_num %u: the queue pair is on lcore %u, which does not serve that "
			"port",
			a->alt_port_num, qp->qp->lcore);
	return 0;
}

/* Checks ports and their path MTUs. */
static int
attr_check_ports(const struct karst_session *s, struct session_call *c, const struct session_qp *qp,
	const struct karst_core_qp_attr *is, const struct karst_ctl_qp_attr *a, unsigned int mask)
{
	uint32_t path_mtu = (mask & KARST_QP_PATH_MTU) != 0 ? a->path_mtu : is->path_mtu;
	struct karst_engine_port_info info;
	int ret = 0;

	if ((mask & KARST_QP_PORT) != 0)
		ret = attr_check_port(s, c, "port_num", a->port_num, &info);
	if (ret == 0 && (mask & KARST_QP_AV) != 0) {
		ret = check_ah(s, c, &a->ah, &info);
		if (ret == 0)
			ret = check_carried(c, path_mtu, a->ah.port_num, &info);
	}
	if (ret == 0 && (mask & KARST_QP_ALT_PATH) != 0)
		ret = check_alternate(s, c, qp, a, path_mtu);
	return ret;
}

/* --- modify, query --- */

static void
attr_translate(const struct karst_ctl_qp_attr *a, struct karst_core_qp_attr *attr)
{
	attr->qp_state = (enum karst_qp_state)a->qp_state;
	attr->cur_qp_state = (enum karst_qp_state)a->cur_qp_state;
	attr->path_mtu = (uint8_t)a->path_mtu;
	attr->qkey = a->qkey;
	attr->rq_psn = a->rq_psn;
	attr->sq_psn = a->sq_psn;
	attr->dest_qpn = a->dest_qpn;
	attr->access_flags = a->access_flags;
	attr->pkey_index = a->pkey_index;
	attr->en_sqd_async_notify = a->en_sqd_async_notify;
	attr->max_rd_atomic = a->max_rd_atomic;
	attr->max_dest_rd_atomic = a->max_dest_rd_atomic;
	attr->min_rnr_timer = a->min_rnr_timer;
	attr->port_num = a->port_num;
	attr->timeout = a->timeout;
	attr->retry_cnt = a->retry_cnt;
	attr->rnr_retry = a->rnr_retry;
	attr->path_mig_state = (enum karst_mig_state)a->path_mig_state;
	attr->alt_pkey_index = a->alt_pkey_index;
	attr->alt_timeout = a->alt_timeout;
}

static bool
same_path(const struct karst_path *a, const struct karst_path *b)
{
	return a->port == b->port && memcmp(a->src_ip, b->src_ip, 16) == 0 &&
		memcmp(a->dst_ip, b->dst_ip, 16) == 0 && a->tclass == b->tclass &&
		a->hop_limit == b->hop_limit && a->flow_label == b->flow_label;
}

/* Remembers paths as they were set, for queries, also of a queue pair that has migrated
 * meanwhile. */
static void
remember_paths(struct session_qp *qp, const struct karst_ctl_qp_attr *a,
	const struct karst_core_qp_attr *was, const struct karst_core_qp_attr *attr,
	unsigned int mask)
{
	if ((mask & KARST_QP_ALT_PATH) != 0) {
		if (same_path(&was->path, &qp->alternate.path))
			qp->primary = qp->alternate;
		qp->alternate = (struct session_av){.ah = a->alt_ah, .path = attr->alt_path};
	}
	if ((mask & KARST_QP_AV) != 0)
		qp->primary = (struct session_av){.ah = a->ah, .path = attr->path};
}

int
eng_session_modify_qp(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_modify_qp_req *req = c->body;
	struct session_qp *qp = eng_session_find(c, &s->qps, req->qp, "qp");
	unsigned int mask = req->mask & ~KARST_CTL_QP_NO_WAIT;
	bool no_wait = mask != req->mask;
	struct karst_core_qp_attr attr = {0}, is;
	int ret;

	if (qp == NULL)
		return -EINVAL;
	ret = check_mask(c, mask);
	if (ret == 0)
		ret = check_numbers(qp, c, &req->attr, mask);
	if (ret != 0)
		return ret;
	ret = karst_engine_qp_query(s->e, qp->qp, &is);
	if (ret != 0)
		return reason(c, ret, "qp %u: %s", req->qp, strerror(-ret));
	ret = attr_check_transition(qp, c, is.qp_state, &req->attr, mask);
	if (ret == 0)
		ret = check_qkey(s, c, &req->attr, mask);
	if (ret == 0)
		ret = check_migration(c, &is, &req->attr, mask);
	if (ret == 0)
		ret = attr_check_ports(s, c, qp, &is, &req->attr, mask);
	if (ret == 0 && (mask & KARST_QP_AV) != 0)
		ret = eng_session_path(s, c, &req->attr.ah, no_wait, &attr.path);
	if (ret == 0 && (mask & KARST_QP_ALT_PATH) != 0)
		ret = eng_session_path(s, c, &req->attr.alt_ah, no_wait, &attr.alt_path);
	if (ret != 0)
		return ret;
	attr_translate(&req->attr, &attr);
	ret = karst_engine_qp_modify(s->e, qp->qp, &attr, mask);
	if (ret != 0)
		return reason(c, ret,
			"qp %u, lcore %u: its state is not %s any more, or its lcore does not "
			"serve the port",
			req->qp, qp->qp->lcore, eng_qp_state_name(is.qp_state));
	remember_paths(qp, &req->attr, &is, &attr, mask);
	return 0;
}

/* The address as the engine has it, for a handle that has not set it itself. */
static void
ah_of_path(
	const struct karst_session *s, const struct karst_path *path, struct karst_ctl_ah_attr *ah)
{
	struct karst_engine_port_info info;
	uint8_t port = eng_port_base(path->port);

	if (attr_all_zero(path->dst_ip, 16) || karst_engine_port_info(s->e, port, &info) != 0)
		return;
	memcpy(ah->dgid, path->dst_ip, sizeof(ah->dgid));
	ah->flow_label = path->flow_label;
	ah->port_num = (uint8_t)(port + 1);
	ah->hop_limit = path->hop_limit;
	ah->traffic_class = path->tclass;
	ah->sl = path->has_vlan ? (uint8_t)(path->vlan_tci >> 13) : 0;
	while (ah->sgid_index + 1u < info.num_addrs &&
		memcmp(info.addrs[ah->sgid_index].ip, path->src_ip, 16) != 0)
		ah->sgid_index++;
}

static void
ah_as_set(const struct karst_session *s, const struct session_qp *qp, const struct karst_path *path,
	struct karst_ctl_ah_attr *ah)
{
	if (same_path(path, &qp->primary.path))
		*ah = qp->primary.ah;
	else if (same_path(path, &qp->alternate.path))
		*ah = qp->alternate.ah;
	else
		ah_of_path(s, path, ah);
}

int
eng_session_rate_qp(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_rate_qp_req *req = c->body;
	struct session_qp *qp = eng_session_find(c, &s->qps, req->qp, "qp");
	int ret;

	if (qp == NULL)
		return -EINVAL;
	if (req->rate_kbps > KARST_RATE_LIMIT_MAX)
		return reason(c, -EINVAL, "rate_limit %u: at most %u kbit/s", req->rate_kbps,
			KARST_RATE_LIMIT_MAX);
	if (req->burst > KARST_RATE_BURST_MAX)
		return reason(c, -EINVAL, "max_burst_sz %u: at most %u bytes", req->burst,
			KARST_RATE_BURST_MAX);
	ret = karst_engine_qp_rate_limit(s->e, qp->qp, req->rate_kbps, req->burst);
	if (ret != 0)
		return reason(
			c, ret, "rate_limit of qp %u: its state must be RTR, RTS or SQD", req->qp);
	return 0;
}

/* --- enhanced connection establishment --- */

static int
ece_fault(struct session_call *c, int ret, uint32_t qp)
{
	if (ret == -EOPNOTSUPP)
		return reason(c, ret,
			"ECE of qp %u: RC queue pairs have it, and only if the engine's "
			"configuration says so ([engine] ece)",
			qp);
	return reason(c, ret,
		"ECE of qp %u: its state must be RESET or INIT, and the vendor this engine's, or 0",
		qp);
}

int
eng_session_query_ece(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_query_ece_req *req = c->body;
	struct session_qp *qp = eng_session_find(c, &s->qps, req->qp, "qp");
	struct karst_ctl_query_ece_rsp *rsp = c->rsp;
	int ret;

	if (qp == NULL)
		return -EINVAL;
	ret = karst_engine_qp_query_ece(s->e, qp->qp, &rsp->ece.vendor, &rsp->ece.options);
	return ret == 0 ? 0 : ece_fault(c, ret, req->qp);
}

int
eng_session_set_ece(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_set_ece_req *req = c->body;
	struct session_qp *qp = eng_session_find(c, &s->qps, req->qp, "qp");
	struct karst_ctl_set_ece_rsp *rsp = c->rsp;
	struct karst_ctl_ece ece = req->ece;
	int ret;

	if (qp == NULL)
		return -EINVAL;
	ret = karst_engine_qp_set_ece(s->e, qp->qp, &ece.vendor, &ece.options);
	if (ret != 0)
		return ece_fault(c, ret, req->qp);
	rsp->ece = ece;
	return 0;
}

int
eng_session_query_qp(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_query_qp_req *req = c->body;
	struct session_qp *qp = eng_session_find(c, &s->qps, req->qp, "qp");
	struct karst_ctl_query_qp_rsp *rsp = c->rsp;
	struct karst_core_qp_attr is;
	int ret;

	if (qp == NULL)
		return -EINVAL;
	ret = karst_engine_qp_query(s->e, qp->qp, &is);
	if (ret != 0)
		return reason(c, ret, "qp %u: %s", req->qp, strerror(-ret));
	rsp->attr = (struct karst_ctl_qp_attr){
		.qp_state = is.qp_state,
		.cur_qp_state = is.cur_qp_state,
		.path_mtu = is.path_mtu,
		.qkey = is.qkey,
		.rq_psn = is.rq_psn,
		.sq_psn = is.sq_psn,
		.dest_qpn = is.dest_qpn,
		.access_flags = is.access_flags,
		.pkey_index = is.pkey_index,
		.en_sqd_async_notify = is.en_sqd_async_notify,
		.sq_draining = is.sq_draining,
		.max_rd_atomic = is.max_rd_atomic,
		.max_dest_rd_atomic = is.max_dest_rd_atomic,
		.min_rnr_timer = is.min_rnr_timer,
		.port_num = is.port_num,
		.timeout = is.timeout,
		.retry_cnt = is.retry_cnt,
		.rnr_retry = is.rnr_retry,
		.path_mig_state = (uint8_t)is.path_mig_state,
		.alt_port_num = is.alt_port_num,
		.alt_timeout = is.alt_timeout,
	};
	ah_as_set(s, qp, &is.path, &rsp->attr.ah);
	if (is.alt_port_num != 0)
		ah_as_set(s, qp, &is.alt_path, &rsp->attr.alt_ah);
	return 0;
}
