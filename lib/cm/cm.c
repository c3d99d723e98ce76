/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The entry points of communication management: received MADs, expired timers, queries of an id.
 */
#include "cm_priv.h"

#define DEFAULT_MAX_IDS          8192u
#define MAX_MAX_IDS              (1u << 20)
#define DEFAULT_RESPONSE_TIMEOUT 20
#define DEFAULT_RETRIES          15
#define DEFAULT_MRA              24
#define MAX_RESPONSE_TIMEOUT     25
#define NEVER                    255

static const struct {
	const char *name, *meaning;
} counters[KARST_CM_CTRS] = {
#define KARST_CM_COUNTER(symbol, text, what) [KARST_CM_CTR_##symbol] = {text, what},
#include "karst_cm_counter.def"
#undef KARST_CM_COUNTER
};

const char *
karst_cm_counter_name(enum karst_cm_counter counter)
{
	return counter < KARST_CM_CTRS ? counters[counter].name : NULL;
}

const char *
karst_cm_counter_meaning(enum karst_cm_counter counter)
{
	return counter < KARST_CM_CTRS ? counters[counter].meaning : NULL;
}

/* --- creation --- */

/* Fills in the defaults of the configuration; false if it is impossible. */
static bool
config_complete(const struct karst_cm_config *in, struct karst_cm_config *cfg)
{
	*cfg = *in;
	if (cfg->max_ids == 0)
		cfg->max_ids = DEFAULT_MAX_IDS;
	if (cfg->max_half_open == 0)
		cfg->max_half_open = (cfg->max_ids + 3) / 4;
	if (cfg->response_timeout == 0)
		cfg->response_timeout = DEFAULT_RESPONSE_TIMEOUT;
	if (cfg->max_retries == 0)
		cfg->max_retries = DEFAULT_RETRIES;
	if (cfg->mra_service_timeout == 0)
		cfg->mra_service_timeout = DEFAULT_MRA;
	return cfg->max_ids >= 2 && cfg->max_ids <= MAX_MAX_IDS &&
		cfg->max_half_open <= cfg->max_ids && cfg->guid != 0 &&
		cfg->response_timeout <= MAX_RESPONSE_TIMEOUT && cfg->max_retries <= 15 &&
		(cfg->mra_service_timeout <= 31 || cfg->mra_service_timeout == NEVER) &&
		cfg->target_ack_delay <= 31 && cfg->ops != NULL;
}

static size_t
table_hash_bytes(const struct karst_cm_config *cfg)
{
	return karst_pow2_ceil(cfg->max_ids) * sizeof(void *);
}

size_t
karst_cm_bytes(const struct karst_cm_config *in)
{
	struct karst_cm_config cfg;

	if (!config_complete(in, &cfg))
		return 0;
	return sizeof(struct cm_core) + cfg.max_ids * sizeof(struct cm_id) +
		cfg.max_half_open * sizeof(struct cm_source) + 4 * table_hash_bytes(&cfg);
}

int
karst_cm_init(void *buf, const struct karst_cm_config *in, uint64_t now_ns, struct karst_cm **cm)
{
	struct karst_cm_config cfg;
	struct cm_core *c = buf;
	struct cm_source *sources;
	uint8_t *p;

	if (!config_complete(in, &cfg))
		return -EINVAL;
	memset(c, 0, sizeof(*c));
	c->pub.now_ns = now_ns;
	karst_wheel_init(&c->wheel, now_ns);
	c->ops = cfg.ops;
	c->user = cfg.user;
	c->guid = cfg.guid;
	c->max_ids = cfg.max_ids;
	c->max_half_open = cfg.max_half_open;
	c->pub.half_open_of_one = (cfg.max_half_open + 1) / 2;
	c->slot_bits = karst_log2(karst_pow2_ceil(cfg.max_ids));
	c->response_timeout = cfg.response_timeout;
	c->max_retries = cfg.max_retries;
	c->mra_service_timeout = cfg.mra_service_timeout;
	c->target_ack_delay = cfg.target_ack_delay;
	c->slots = (struct cm_id *)(c + 1);
	sources = (struct cm_source *)(c->slots + cfg.max_ids);
	p = (uint8_t *)(sources + cfg.max_half_open);
	memset(p, 0, 4 * table_hash_bytes(&cfg));
	c->remote_ids = (struct cm_link **)p;
	c->remote_qpns = (struct cm_link **)(p + table_hash_bytes(&cfg));
	c->services = (struct cm_link **)(p + 2 * table_hash_bytes(&cfg));
	c->sources = (struct cm_source **)(p + 3 * table_hash_bytes(&cfg));
	c->hash_mask = karst_pow2_ceil(cfg.max_ids) - 1;
	cm_table_init(c, cfg.secret, sources);
	*cm = &c->pub;
	return 0;
}

/* --- received messages --- */

static void
count_refused(struct cm_core *c, enum karst_cm_parse verdict)
{
	switch (verdict) {
	case KARST_CM_PARSE_CLASS:
		count(c, KARST_CM_CTR_OTHER_CLASS);
		break;
	case KARST_CM_PARSE_ATTRIBUTE:
		count(c, KARST_CM_CTR_ATTRIBUTE);
		break;
	default:
		count(c, KARST_CM_CTR_MALFORMED);
		break;
	}
}

struct cm_id *
cm_rx_find(struct cm_core *c, const struct karst_cm_path *seen, const struct karst_cm_msg *m)
{
	struct cm_id *id = cm_id_find(c, m->remote_id);

	if (id == NULL || id->state == KARST_CM_LISTENING) {
		count(c, KARST_CM_CTR_NO_ID);
		return NULL;
	}
	if (!same_ip(id->path.remote_ip, seen->remote_ip) ||
		!same_ip(id->path.local_ip, seen->local_ip) ||
		(id->remote_id != 0 && id->remote_id != m->local_id)) {
		count(c, KARST_CM_CTR_FORGED);
		return NULL;
	}
	return id;
}

void
karst_cm_rx(struct karst_cm *cm, const struct karst_cm_path *seen, const void *mad, size_t len)
{
	struct cm_core *c = core_of(cm);
	struct karst_cm_msg m;
	enum karst_cm_parse verdict = karst_cm_msg_parse(mad, len, &m);

	if (verdict != KARST_CM_PARSE_OK) {
		count_refused(c, verdict);
		return;
	}
	cm->counters.rx[m.kind]++;
	switch (m.kind) {
	case KARST_CM_REQ:
		cm_rx_req(c, seen, &m);
		break;
	case KARST_CM_MRA:
		cm_rx_mra(c, seen, &m);
		break;
	case KARST_CM_REJ:
		cm_rx_rej(c, seen, &m);
		break;
	case KARST_CM_REP:
		cm_rx_rep(c, seen, &m);
		break;
	case KARST_CM_RTU:
		cm_rx_rtu(c, seen, &m);
		break;
	case KARST_CM_DREQ:
		cm_rx_dreq(c, seen, &m);
		break;
	case KARST_CM_DREP:
		cm_rx_drep(c, seen, &m);
		break;
	case KARST_CM_SIDR_REQ:
		cm_rx_sidr_req(c, seen, &m);
		break;
	case KARST_CM_SIDR_REP:
		cm_rx_sidr_rep(c, seen, &m);
		break;
	case KARST_CM_LAP:
		cm_rx_lap(c, seen, &m);
		break;
	case KARST_CM_APR:
		cm_rx_apr(c, seen, &m);
		break;
	case KARST_CM_KINDS: /* not a kind */
		break;
	}
}

/* --- timers --- */

/* There was no answer to any retry: ends the exchange and reports that. */
static void
id_retries_exhausted(struct cm_core *c, struct cm_id *id, enum karst_cm_ev_code code)
{
	cm_abandon(c, id);
	cm_notify_code(c, id, code);
}

static void
id_expire(struct cm_core *c, struct cm_id *id)
{
	if (id->stale) {
		cm_give_up(c, id, KARST_CM_REJ_STALE_CONN);
		return;
	}
	switch (id->state) {
	case KARST_CM_REQ_SENT:
		if (!cm_retry(c, id))
			id_retries_exhausted(c, id, KARST_CM_EV_REQ_ERROR);
		return;
	case KARST_CM_REP_SENT:
		if (!cm_retry(c, id))
			id_retries_exhausted(c, id, KARST_CM_EV_REP_ERROR);
		return;
	case KARST_CM_ESTABLISHED:
		cm_lap_expire(c, id);
		return;
	case KARST_CM_DREQ_SENT:
		if (cm_retry(c, id))
			return;
		cm_enter_timewait(c, id);
		cm_notify_code(c, id, KARST_CM_EV_DREQ_ERROR);
		return;
	case KARST_CM_TIMEWAIT:
		cm_timewait_over(c, id);
		return;
	case KARST_CM_SIDR_REQ_SENT:
		if (cm_retry(c, id))
			return;
		cm_idle(c, id);
		cm_notify_code(c, id, KARST_CM_EV_SIDR_ERROR);
		return;
	case KARST_CM_SIDR_REP_SENT:
		cm_idle(c, id);
		return;
	default: /* REQ_RCVD, SIDR_REQ_RCVD: the peer has given up by now */
		count(c, KARST_CM_CTR_TIMEOUTS);
		cm_give_up(c, id, KARST_CM_REJ_TIMEOUT);
		return;
	}
}

unsigned int
karst_cm_expire(struct karst_cm *cm, unsigned int budget)
{
	struct cm_core *c = core_of(cm);
	struct karst_timer *t;
	unsigned int n;

	/* one by one: the user's reaction to an event may end another id */
	for (n = 0; n < budget; n++) {
		if (karst_wheel_advance(&c->wheel, cm->now_ns, &t, 1) == 0)
			break;
		id_expire(c, karst_container_of(t, struct cm_id, timer));
	}
	return n;
}

uint64_t
karst_cm_next_ns(const struct karst_cm *cm)
{
	return karst_wheel_next_ns(&karst_container_of(cm, const struct cm_core, pub)->wheel);
}

/* --- ids of any kind --- */

int
karst_cm_id_set_user(struct karst_cm *cm, uint32_t number, void *user)
{
	struct cm_id *id = cm_id_of_user(core_of(cm), number);

	if (id == NULL)
		return -ENOENT;
	id->user = user;
	return 0;
}

int
karst_cm_id_info(const struct karst_cm *cm, uint32_t number, struct karst_cm_info *info)
{
	const struct cm_core *c = karst_container_of(cm, const struct cm_core, pub);
	const struct cm_id *id = cm_id_of_user(c, number);

	if (id == NULL)
		return -ENOENT;
	info->state = id->state;
	info->remote_id = id->remote_id;
	info->remote_guid = id->remote_guid;
	info->service_id = id->service_id;
	info->local_qpn = id->local_qpn;
	info->remote_qpn = id->remote_qpn;
	info->path = id->path;
	return 0;
}

bool
cm_path_valid(const struct karst_cm_path *path)
{
	return path->flow_label < 1u << 20 && path->sl < 16 && path->rate < 64 && path->mtu >= 1 &&
		path->mtu <= 5 && path->ack_timeout < 32;
}

bool
cm_param_valid(const struct karst_cm_param *param)
{
	return param->qpn != 0 && param->qpn < 1u << 24 && param->psn < 1u << 24 &&
		param->retry_count < 8 && param->rnr_retry_count < 8;
}
