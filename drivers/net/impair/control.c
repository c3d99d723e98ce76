/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Change rules while packets pass, and answer telemetry requests.
 *
 * Each queue gets a set of rules of its own (set.c) and takes it between two bursts.  So a queue
 * has the set in use, the next one, and previous ones: two, if it took rules while the next ones
 * came, else one.  Previous sets are freed here when the next rules come, or with the queue.  No
 * thread waits for another one.  A queue that is never polled costs no more than the memory of its
 * next set.
 */
#include "impair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_telemetry.h>

static LIST_HEAD(, imp_port) ports = LIST_HEAD_INITIALIZER(ports);
static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t port_unused = PTHREAD_COND_INITIALIZER;

/* --- rules --- */

struct imp_set *
imp_control_set(struct imp_port *p, unsigned int direction, uint16_t queue)
{
	return imp_set_new(p->rules, direction, queue, p->generation, rte_rdtsc());
}

static int
make_sets(struct imp_port *p, struct imp_rules *rules, struct imp_set *to[IMP_BOTH][IMP_MAX_QUEUES])
{
	uint64_t now = rte_rdtsc();
	unsigned int d, i;

	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++) {
			if (p->queue[d][i] == NULL)
				continue;
			to[d][i] = imp_set_new(rules, d, (uint16_t)i, p->generation + 1, now);
			if (to[d][i] == NULL)
				return -ENOMEM;
		}
	return 0;
}

static void
hand_over(struct imp_queue *q, struct imp_set *s)
{
	/* acquire: pairs with the release of adopt() in burst.c, which does not use it any more */
	imp_sets_free(atomic_exchange_explicit(&q->retired, NULL, memory_order_acquire));
	/*
	 * release: pairs with the acquire of adopt(); acquire: pairs with the release of an earlier
	 * call whose set was not taken
	 */
	imp_set_free(atomic_exchange_explicit(&q->next, s, memory_order_acq_rel));
}

int
imp_control_apply(struct imp_port *p, struct imp_rules *rules, const char *path)
{
	struct imp_set *set[IMP_BOTH][IMP_MAX_QUEUES] = {{NULL}};
	unsigned int d, i;
	int rc;

	rules->users++; /* the port's own reference */
	rc = make_sets(p, rules, set);
	/* before a queue takes them and logs what they do */
	if (rc == 0 && p->log != NULL)
		imp_log_rules(p->log, path, rules, p->generation + 1);
	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++)
			if (rc != 0)
				imp_set_free(set[d][i]);
			else if (set[d][i] != NULL)
				hand_over(p->queue[d][i], set[d][i]);
	if (rc != 0) {
		rules->users--;
		return rc;
	}
	if (p->rules != NULL && --p->rules->users == 0)
		imp_rules_free(p->rules);
	p->rules = rules;
	p->generation++;
	return 0;
}

int
imp_control_load(struct imp_port *p, const char *path, imp_say say, void *user)
{
	struct imp_rules *rules = imp_rules_read(path, say, user);
	char line[128];
	int rc;

	if (rules == NULL)
		return -EINVAL;
	pthread_mutex_lock(&p->lock);
	rc = imp_control_apply(p, rules, path);
	if (rc == 0 && path != p->rules_path)
		snprintf(p->rules_path, sizeof(p->rules_path), "%s", path);
	pthread_mutex_unlock(&p->lock);
	if (rc != 0) {
		imp_rules_free(rules);
		snprintf(line, sizeof(line), "no memory for the rules, those before stay");
		say(user, line);
	}
	return rc;
}

/* --- telemetry --- */

/*
 * Finds the port whose name or number the parameters begin with.  @rest: the text after the comma.
 */
static struct imp_port *
find_param(const char *params, const char **rest)
{
	char name[RTE_ETH_NAME_MAX_LEN];
	struct imp_port *p;
	size_t len;
	char *end;
	unsigned long id;

	if (params == NULL)
		return NULL;
	len = strcspn(params, ",");
	*rest = params[len] == ',' ? params + len + 1 : "";
	if (len == 0 || len >= sizeof(name))
		return NULL;
	memcpy(name, params, len);
	name[len] = '\0';
	id = strtoul(name, &end, 10);
	LIST_FOREACH(p, &ports, list)
		if (strcmp(p->dev->data->name, name) == 0 ||
			(*end == '\0' && p->dev->data->port_id == id))
			return p;
	return NULL;
}

static int
tel_list(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct imp_port *p;

	(void)cmd;
	(void)params;
	rte_tel_data_start_array(d, RTE_TEL_STRING_VAL);
	pthread_mutex_lock(&ports_lock);
	LIST_FOREACH(p, &ports, list)
		rte_tel_data_add_array_string(d, p->dev->data->name);
	pthread_mutex_unlock(&ports_lock);
	return 0;
}

/* Of an answer, which has up to 16 KiB. */
#define MISTAKES_BYTES 15000u
#define INDENT         "  "

struct mistakes {
	struct rte_tel_data *list;
	uint32_t bytes, left_out;
};

/* @return how much of @line to put into a string of up to @room characters: up to a space near its
 * end, if there is one. */
static size_t
fold(const char *line, size_t room)
{
	size_t at = strlen(line);

	if (at <= room)
		return at;
	for (at = room; at > room / 2; at--)
		if (line[at - 1] == ' ')
			return at;
	return room;
}

/* A string of telemetry has up to 127 characters: a longer message continues in the next one. */
static void
control_say_mistake(void *user, const char *line)
{
	struct mistakes *m = user;
	char text[RTE_TEL_MAX_STRING_LEN];
	const char *indent = "", *at;

	IMP_LOG(ERR, "%s\n", line);
	if (m->left_out != 0 || m->bytes + 2 * strlen(line) > MISTAKES_BYTES) {
		m->left_out++;
		return;
	}
	for (; *line != '\0'; indent = INDENT) {
		size_t n = fold(line, sizeof(text) - sizeof(INDENT));

		snprintf(text, sizeof(text), "%s%.*s", indent, (int)n, line);
		rte_tel_data_add_array_string(m->list, text);
		/* quotes and backslashes are escaped */
		m->bytes += (uint32_t)strlen(text) + 3;
		for (at = text; (at = strpbrk(at, "\"\\")) != NULL; at++)
			m->bytes++;
		line += n;
	}
}

/*
 * Handles "/impair/rules,PORT[,FILE]": reads the file, or the current one again, and reports the
 * result.
 */
static int
tel_rules(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct mistakes m = {.list = rte_tel_data_alloc()};
	const char *file = "";
	struct imp_port *p;
	int rc = -EINVAL;
	char text[64];

	(void)cmd;
	if (m.list == NULL)
		return -ENOMEM;
	rte_tel_data_start_array(m.list, RTE_TEL_STRING_VAL);
	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&ports_lock);
	p = find_param(params, &file);
	if (p == NULL) {
		control_say_mistake(&m,
			"no such port: /impair/rules,PORT[,FILE]; /impair/list has those that there are");
	} else if (file[0] == '\0' && p->rules_path[0] == '\0') {
		control_say_mistake(&m, "the port has no rule file: /impair/rules,PORT,FILE");
	} else if (strlen(file) >= sizeof(p->rules_path)) {
		control_say_mistake(&m, "the file's path is too long");
	} else {
		rc = imp_control_load(
			p, file[0] != '\0' ? file : p->rules_path, control_say_mistake, &m);
	}
	rte_tel_data_add_dict_string(d, "result", rc == 0 ? "ok" : "refused");
	if (p != NULL) {
		rte_tel_data_add_dict_u64(d, "rules", p->rules->n);
		rte_tel_data_add_dict_u64(d, "generation", p->generation);
	}
	pthread_mutex_unlock(&ports_lock);
	if (m.left_out != 0) {
		snprintf(text, sizeof(text), "%u more, which are in the log of the program",
			m.left_out);
		rte_tel_data_add_array_string(m.list, text);
	}
	rte_tel_data_add_dict_container(d, "mistakes", m.list, 0);
	return 0;
}

/*
 * @return the generation that all queues have reached: if it is the newest, all use the new rules.
 */
static uint32_t
oldest_generation(const struct imp_port *p)
{
	uint32_t oldest = p->generation;
	unsigned int d, i;

	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++)
			if (p->queue[d][i] != NULL)
				oldest = RTE_MIN(oldest,
					/* acquire: pairs with the release of adopt() */
					__atomic_load_n(&p->queue[d][i]->set, __ATOMIC_ACQUIRE)
						->generation);
	return oldest;
}

static void
add_direction(struct rte_tel_data *d, const struct imp_port *p, unsigned int direction)
{
	struct rte_tel_data *to = rte_tel_data_alloc();
	struct imp_queue_stats sum;
	uint64_t frames = 0;
	unsigned int i;

	if (to == NULL)
		return;
	imp_stats_sum(p, direction, &sum);
	for (i = 0; i < IMP_MAX_QUEUES; i++)
		if (p->queue[direction][i] != NULL)
			frames +=
				__atomic_load_n(&p->queue[direction][i]->frames, __ATOMIC_RELAXED);
	rte_tel_data_start_dict(to);
	rte_tel_data_add_dict_u64(to, "frames", frames);
	for (i = 0; i < IMP_ACTIONS; i++)
		rte_tel_data_add_dict_u64(to, imp_action_name(i), sum.action[i]);
	rte_tel_data_add_dict_u64(to, "spared", sum.spared);
	rte_tel_data_add_dict_u64(to, "released", sum.released);
	rte_tel_data_add_dict_u64(to, "discarded", sum.discarded);
	rte_tel_data_add_dict_u64(to, "flows_evicted", sum.evicted);
	rte_tel_data_add_dict_u64(to, "rate_dropped", sum.rate_dropped);
	rte_tel_data_add_dict_u64(to, "waiting", imp_stats_waiting(p, direction));
	rte_tel_data_add_dict_container(d, direction == IMP_RX ? "rx" : "tx", to, 0);
}

/* Adds two lists, because names of members must not have all characters of rule names. */
static void
add_rules(struct rte_tel_data *d, const struct imp_port *p)
{
	struct rte_tel_data *names = rte_tel_data_alloc(), *hits = rte_tel_data_alloc();
	uint32_t i;

	if (names == NULL || hits == NULL) {
		rte_tel_data_free(names);
		rte_tel_data_free(hits);
		return;
	}
	rte_tel_data_start_array(names, RTE_TEL_STRING_VAL);
	rte_tel_data_start_array(hits, RTE_TEL_U64_VAL);
	for (i = 0; i < p->rules->n; i++) {
		rte_tel_data_add_array_string(names, p->rules->rule[i].name);
		rte_tel_data_add_array_u64(hits, imp_stats_rule(p, i));
	}
	rte_tel_data_add_dict_container(d, "rules", names, 0);
	rte_tel_data_add_dict_container(d, "hits", hits, 0);
}

/* Handles "/impair/stats,PORT". */
static int
tel_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const char *rest = "";
	struct imp_port *p;

	(void)cmd;
	pthread_mutex_lock(&ports_lock);
	p = find_param(params, &rest);
	if (p == NULL) {
		pthread_mutex_unlock(&ports_lock);
		return -EINVAL;
	}
	pthread_mutex_lock(&p->lock);
	if (p->log != NULL)
		imp_log_flush(p->log);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "below", p->below_name);
	rte_tel_data_add_dict_string(d, "state", p->gone ? "removed" : "there");
	rte_tel_data_add_dict_u64(d, "generation", p->generation);
	rte_tel_data_add_dict_u64(d, "generation_in_use", oldest_generation(p));
	add_direction(d, p, IMP_RX);
	add_direction(d, p, IMP_TX);
	add_rules(d, p);
	rte_tel_data_add_dict_u64(d, "log_records", p->log != NULL ? imp_log_written(p->log) : 0);
	rte_tel_data_add_dict_u64(d, "log_lost", p->log != NULL ? imp_log_lost(p->log) : 0);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&ports_lock);
	return 0;
}

int
imp_control_add(struct imp_port *p)
{
	static bool registered;

	pthread_mutex_lock(&ports_lock);
	if (!registered) {
		registered = true;
		rte_telemetry_register_cmd(
			"/impair/list", tel_list, "Names of ports of net_impair. No parameters.");
		rte_telemetry_register_cmd("/impair/rules", tel_rules,
			"Reads rules. Parameters: port, and the file if it is another.");
		rte_telemetry_register_cmd(
			"/impair/stats", tel_stats, "What rules have done. Parameters: port.");
	}
	LIST_INSERT_HEAD(&ports, p, list);
	pthread_mutex_unlock(&ports_lock);
	return 0;
}

/* --- users of a port --- */

/* The uses of this thread, the last one first. */
static __thread struct imp_use *own_uses;

struct imp_port *
imp_control_use(struct imp_use *u, uint16_t port_id)
{
	struct imp_port *p;

	pthread_mutex_lock(&ports_lock);
	LIST_FOREACH(p, &ports, list)
		if (p->dev->data->port_id == port_id)
			break;
	if (p != NULL)
		p->uses++;
	pthread_mutex_unlock(&ports_lock);
	*u = (struct imp_use){.port = p, .outer = own_uses};
	own_uses = u;
	return p;
}

void
imp_control_leave(struct imp_use *u)
{
	own_uses = u->outer;
	if (u->port == NULL)
		return;
	pthread_mutex_lock(&ports_lock);
	if (--u->port->uses == 0)
		pthread_cond_broadcast(&port_unused);
	pthread_mutex_unlock(&ports_lock);
}

void
imp_control_remove(struct imp_port *p)
{
	struct imp_use *u;

	pthread_mutex_lock(&ports_lock);
	LIST_REMOVE(p, list);
	for (u = own_uses; u != NULL; u = u->outer)
		if (u->port == p) {
			u->port = NULL;
			p->uses--;
		}
	while (p->uses != 0)
		pthread_cond_wait(&port_unused, &ports_lock);
	pthread_mutex_unlock(&ports_lock);
}
