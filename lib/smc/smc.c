/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory, ids, timers and events of a struct karst_smc. */
#include "smc_priv.h"

#include "karst_prf.h"

#define SEC UINT64_C(1000000000)

static uint32_t
or_default(uint32_t v, uint32_t def)
{
	return v != 0 ? v : def;
}

static uint64_t
or_default_ns(uint64_t v, uint64_t def)
{
	return v != 0 ? v : def;
}

/* Copies @given and sets its defaults; false if it is invalid. */
static bool
smc_complete(const struct karst_smc_config *given, struct karst_smc_config *cfg)
{
	*cfg = *given;
	cfg->max_conns = or_default(cfg->max_conns, 1024);
	cfg->max_groups = or_default(cfg->max_groups, 64);
	cfg->max_rmbs = or_default(cfg->max_rmbs, cfg->max_conns);
	cfg->group_conns = (uint8_t)or_default(cfg->group_conns, KARST_SMC_CONNS);
	cfg->group_links = (uint8_t)or_default(cfg->group_links, 1);
	cfg->send_slots = (uint8_t)or_default(cfg->send_slots, 16);
	if (cfg->release == KARST_SMC_DEFAULT)
		cfg->release = RELEASE_MAX;
	cfg->clc_wait_ns = or_default_ns(cfg->clc_wait_ns, 6 * SEC);
	cfg->confirm_wait_ns = or_default_ns(cfg->confirm_wait_ns, 5 * SEC);
	cfg->llc_wait_ns = or_default_ns(cfg->llc_wait_ns, 2 * SEC);
	cfg->add_wait_ns = or_default_ns(cfg->add_wait_ns, cfg->llc_wait_ns);
	cfg->test_ns = or_default_ns(cfg->test_ns, 30 * SEC);
	cfg->close_wait_ns = or_default_ns(cfg->close_wait_ns, 60 * SEC);
	cfg->group_idle_ns = or_default_ns(cfg->group_idle_ns, 600 * SEC);
	cfg->heard_ns = or_default_ns(cfg->heard_ns, SEC);
	return cfg->max_conns <= 1u << 16 && cfg->max_groups <= 1u << 12 &&
		cfg->max_rmbs <= 1u << 16 && cfg->group_conns >= CONNS_MIN &&
		cfg->group_links <= KARST_SMC_LINKS && cfg->send_slots >= 8 &&
		cfg->send_slots <= SLOTS_MAX && cfg->release <= RELEASE_MAX &&
		cfg->neids <= KARST_SMC_EIDS_MAX && cfg->ops != NULL;
}

static size_t
smc_aligned(size_t n)
{
	return (n + KARST_CACHE_LINE - 1) & ~(size_t)(KARST_CACHE_LINE - 1);
}

static uint32_t
hash_slots(const struct karst_smc_config *cfg)
{
	return karst_pow2_ceil(cfg->max_conns);
}

size_t
karst_smc_bytes(const struct karst_smc_config *given)
{
	struct karst_smc_config cfg;

	if (!smc_complete(given, &cfg))
		return 0;
	return smc_aligned(sizeof(struct smc_core)) +
		smc_aligned(cfg.max_conns * sizeof(struct smc_conn)) +
		smc_aligned(cfg.max_groups * sizeof(struct smc_group)) +
		smc_aligned(cfg.max_rmbs * sizeof(struct smc_rmb)) +
		smc_aligned(hash_slots(&cfg) * sizeof(uint32_t));
}

static void
chain_free(struct smc_core *c)
{
	uint32_t i;

	for (i = 0; i < c->cfg.max_conns; i++)
		c->conns[i].group_next = i + 1 < c->cfg.max_conns ? i + 1 : NIL;
	for (i = 0; i < c->cfg.max_groups; i++)
		c->groups[i].next_free = i + 1 < c->cfg.max_groups ? i + 1 : NIL;
	for (i = 0; i < c->cfg.max_rmbs; i++)
		c->rmbs[i].next = i + 1 < c->cfg.max_rmbs ? i + 1 : NIL;
	memset(c->hash, 0xff, (c->hash_mask + 1) * sizeof(uint32_t));
	memset(c->idle_rmbs, 0xff, sizeof(c->idle_rmbs));
	c->ev_conn = c->ev_conn_tail = c->ev_group = c->ev_group_tail = NIL;
}

int
karst_smc_init(
	void *buf, const struct karst_smc_config *given, uint64_t now_ns, struct karst_smc **smc)
{
	struct smc_core *c = buf;
	size_t bytes = karst_smc_bytes(given);
	uint8_t *at = (uint8_t *)buf + smc_aligned(sizeof(*c));

	if (bytes == 0)
		return -EINVAL;
	memset(buf, 0, bytes);
	smc_complete(given, &c->cfg);
	c->conns = (void *)at;
	at += smc_aligned(c->cfg.max_conns * sizeof(struct smc_conn));
	c->groups = (void *)at;
	at += smc_aligned(c->cfg.max_groups * sizeof(struct smc_group));
	c->rmbs = (void *)at;
	at += smc_aligned(c->cfg.max_rmbs * sizeof(struct smc_rmb));
	c->hash = (void *)at;
	c->hash_mask = hash_slots(&c->cfg) - 1;
	chain_free(c);
	c->pub.now_ns = now_ns;
	karst_wheel_init(&c->wheel, now_ns);
	*smc = &c->pub;
	return 0;
}

int
karst_smc_set_group_links(struct karst_smc *smc, uint8_t links)
{
	if (links < 1 || links > KARST_SMC_LINKS)
		return -EINVAL;
	core_of(smc)->cfg.group_links = links;
	return 0;
}

void
karst_smc_fini(struct karst_smc *smc)
{
	struct smc_core *c = core_of(smc);
	uint32_t i, n;

	for (i = 0; i < c->cfg.max_groups; i++) {
		for (n = 0; n < KARST_SMC_LINKS; n++) {
			if (c->groups[i].links[n].state != LINK_NONE)
				smc_link_close(c, &c->groups[i].links[n]);
		}
	}
	for (i = 0; i < c->cfg.max_rmbs; i++) {
		if (c->rmbs[i].state > RMB_IDLE)
			c->cfg.ops->rmb_unkey(c->cfg.user, i);
		if (c->rmbs[i].state != RMB_NONE)
			c->cfg.ops->rmb_close(c->cfg.user, i);
		c->rmbs[i].state = RMB_NONE;
	}
}

/* --- ids --- */

struct smc_conn *
smc_conn_find(const struct smc_core *c, uint32_t id)
{
	uint32_t i = id & 0xffff;

	if (i >= c->cfg.max_conns || c->conns[i].state == KARST_SMC_FREE ||
		c->conns[i].generation != id >> 16)
		return NULL;
	return &c->conns[i];
}

struct smc_link *
smc_link_find(const struct smc_core *c, uint32_t id)
{
	uint32_t i = id & 0xffff;
	struct smc_link *link;

	if (i / KARST_SMC_LINKS >= c->cfg.max_groups)
		return NULL;
	link = &c->groups[i / KARST_SMC_LINKS].links[i % KARST_SMC_LINKS];
	return link->state != LINK_NONE && link->generation == id >> 16 ? link : NULL;
}

struct smc_conn *
smc_conn_by_token(const struct smc_core *c, const struct smc_group *g, uint32_t token)
{
	uint32_t i = c->hash[token & c->hash_mask];

	while (i != NIL && c->conns[i].token != token)
		i = c->conns[i].hash_next;
	return i != NIL && c->conns[i].group == g ? &c->conns[i] : NULL;
}

static bool
token_used(const struct smc_core *c, uint32_t token)
{
	uint32_t i = c->hash[token & c->hash_mask];

	while (i != NIL && c->conns[i].token != token)
		i = c->conns[i].hash_next;
	return i != NIL;
}

static uint32_t
next_token(struct smc_core *c)
{
	const uint64_t *key = c->cfg.token_key;

	c->ntokens++;
	return (uint32_t)((key[0] | key[1]) != 0 ? karst_prf(key, c->ntokens, 0) : c->ntokens);
}

void
smc_conn_name(struct smc_core *c, struct smc_conn *conn)
{
	uint32_t *head;

	do
		conn->token = next_token(c);
	while (conn->token == 0 || token_used(c, conn->token));
	head = &c->hash[conn->token & c->hash_mask];
	conn->hash_next = *head;
	*head = conn_index(c, conn);
}

void
smc_conn_unname(struct smc_core *c, struct smc_conn *conn)
{
	uint32_t *at = &c->hash[conn->token & c->hash_mask], self = conn_index(c, conn);

	if (conn->token == 0)
		return;
	while (*at != self)
		at = &c->conns[*at].hash_next;
	*at = conn->hash_next;
	conn->token = 0;
}

/* --- timers --- */

void
smc_timer_set(struct smc_core *c, struct karst_timer *t, uint64_t ns_from_now)
{
	karst_wheel_add(&c->wheel, t, c->pub.now_ns + ns_from_now);
}

void
smc_timer_stop(struct smc_core *c, struct karst_timer *t)
{
	karst_wheel_del(&c->wheel, t);
}

static void
smc_fire(struct smc_core *c, struct karst_timer *t)
{
	switch ((enum smc_timer)t->kind) {
	case TIMER_CONN:
		smc_conn_timeout(c, karst_container_of(t, struct smc_conn, timer));
		break;
	case TIMER_GROUP:
		smc_group_timeout(c, karst_container_of(t, struct smc_group, timer));
		break;
	case TIMER_LINK:
		smc_link_timeout(c, karst_container_of(t, struct smc_link, timer));
		break;
	}
}

/* One timer at a time: the action of one may stop the next. */
unsigned int
karst_smc_expire(struct karst_smc *smc, unsigned int budget)
{
	struct smc_core *c = core_of(smc);
	struct karst_timer *t;
	unsigned int n = 0;

	while (n < budget && karst_wheel_advance(&c->wheel, smc->now_ns, &t, 1) == 1) {
		smc_fire(c, t);
		n++;
	}
	return n;
}

uint64_t
karst_smc_next_ns(const struct karst_smc *smc)
{
	return karst_wheel_next_ns(&karst_container_of(smc, const struct smc_core, pub)->wheel);
}

/* --- events --- */

void
smc_conn_event(struct smc_core *c, struct smc_conn *conn, uint32_t what)
{
	uint32_t self = conn_index(c, conn);

	conn->ev |= what;
	if (conn->ev_listed)
		return;
	conn->ev_listed = true;
	conn->ev_next = NIL;
	if (c->ev_conn == NIL)
		c->ev_conn = self;
	else
		c->conns[c->ev_conn_tail].ev_next = self;
	c->ev_conn_tail = self;
}

void
smc_group_event(struct smc_core *c, struct smc_group *g, uint32_t what)
{
	uint32_t self = group_index(c, g);

	g->ev |= what;
	if (g->ev_listed)
		return;
	g->ev_listed = true;
	g->ev_next = NIL;
	if (c->ev_group == NIL)
		c->ev_group = self;
	else
		c->groups[c->ev_group_tail].ev_next = self;
	c->ev_group_tail = self;
}

static bool
next_conn_event(struct smc_core *c, struct karst_smc_ev *ev)
{
	while (c->ev_conn != NIL) {
		struct smc_conn *conn = &c->conns[c->ev_conn];

		c->ev_conn = conn->ev_next;
		conn->ev_listed = false;
		if (conn->ev == 0)
			continue; /* it was released */
		*ev = (struct karst_smc_ev){conn->ev, conn_id(c, conn), conn->user};
		conn->ev = 0;
		return true;
	}
	return false;
}

bool
karst_smc_next_event(struct karst_smc *smc, struct karst_smc_ev *ev)
{
	struct smc_core *c = core_of(smc);
	struct smc_group *g;

	if (next_conn_event(c, ev))
		return true;
	if (c->ev_group == NIL)
		return false;
	g = &c->groups[c->ev_group];
	c->ev_group = g->ev_next;
	g->ev_listed = false;
	*ev = (struct karst_smc_ev){g->ev, group_index(c, g), NULL};
	g->ev = 0;
	return true;
}

/* --- queries --- */

int
karst_smc_conn_info(const struct karst_smc *smc, uint32_t id, struct karst_smc_conn_info *info)
{
	const struct smc_core *c = karst_container_of(smc, const struct smc_core, pub);
	const struct smc_conn *conn = smc_conn_find(c, id);

	if (conn == NULL)
		return -ENOENT;
	*info = (struct karst_smc_conn_info){
		.state = conn->state,
		.role = conn->role,
		.group = conn->group != NULL ? group_index(c, conn->group) : NIL,
		.link = conn->link != NULL ? link_id(c, conn->link) : NIL,
		.rmb = conn->rmb != NULL ? rmb_index(c, conn->rmb) : NIL,
		.rmb_bytes = conn->rmb_bytes,
		.peer_bytes = conn->peer_bytes,
		.sent_pos = conn->snd_pos,
		.written_pos = conn->prod,
		.free_pos = smc_mutant(FREE_EARLY) ? conn->prod : conn->fin,
		.peer_pos = conn->peer_cons,
		.recv_pos = conn->recv_pos,
		.consumed_pos = conn->cons,
		.urgent_pos = conn->urgent_pos,
		.urgent = conn->urgent_seen,
		/* Linux also sets "pending" for a byte that is present */
		.urgent_coming = (conn->rx_prod_flags &
					 (KARST_SMC_CDC_URGENT | KARST_SMC_CDC_URGENT_PENDING)) ==
			KARST_SMC_CDC_URGENT_PENDING,
		.peer_done = conn->rx_flags != 0,
		.send_over = conn->dead,
		.peer_blocked = conn->rx_prod_flags & KARST_SMC_CDC_BLOCKED,
		.error = conn->error,
		.reason = conn->reason,
		.local = conn->local_reason,
		.user = conn->user,
	};
	return 0;
}

int
karst_smc_group_info(const struct karst_smc *smc, uint32_t group, struct karst_smc_group_info *info)
{
	const struct smc_core *c = karst_container_of(smc, const struct smc_core, pub);
	const struct smc_group *g;

	if (group >= c->cfg.max_groups || c->groups[group].state == GROUP_NONE)
		return -ENOENT;
	g = &c->groups[group];
	*info = (struct karst_smc_group_info){
		.role = g->role,
		.version = g->version,
		.release = g->release,
		.max_conns = g->max_conns,
		.max_links = g->max_links,
		.nconns = g->nconns,
		.reusable = g->state == GROUP_ACTIVE && !g->no_reuse,
		.peer = g->peer,
	};
	for (unsigned int i = 0; i < KARST_SMC_LINKS; i++) {
		info->links[i] = link_id(c, &g->links[i]);
		info->local[i] = g->links[i].local;
		info->remote[i] = g->links[i].remote;
		info->active[i] = link_usable(&g->links[i]);
		info->nlinks = (uint8_t)(info->nlinks + info->active[i]);
	}
	return 0;
}

static const struct {
	const char *name, *meaning;
} counters[] = {
#define KARST_SMC_COUNTER(symbol, name, meaning) {name, meaning},
#include "karst_smc_counter.def"
#undef KARST_SMC_COUNTER
};

const char *
karst_smc_counter_name(enum karst_smc_counter counter)
{
	return counter < KARST_SMC_CTRS ? counters[counter].name : NULL;
}

const char *
karst_smc_counter_meaning(enum karst_smc_counter counter)
{
	return counter < KARST_SMC_CTRS ? counters[counter].meaning : NULL;
}

const char *
karst_smc_state_name(enum karst_smc_state state)
{
	static const char *const names[KARST_SMC_STATES] = {"free", "wait-proposal", "parked",
		"wait-accept", "wait-rkey", "wait-link", "wait-confirm", "wait-confirm-link",
		"wait-add-link", "tcp", "failed", "active", "peer-close-wait-1",
		"peer-close-wait-2", "app-close-wait-1", "app-close-wait-2", "app-fin-close-wait",
		"peer-fin-close-wait", "peer-abort-wait", "process-abort", "closed"};

	return state < KARST_SMC_STATES ? names[state] : NULL;
}
