/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Telemetry of congestion control: reads the configuration, and sets the parameters of the reaction
 * point (E2, E7) while the engine runs.  Errors are reported in the answer, as "error"; then
 * nothing has changed.
 */
#include "telemetry.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define PARAMS_MAX 512u
#define WHY_MAX    RTE_TEL_MAX_STRING_LEN

static const char *
mode_name(enum karst_congestion_mode mode)
{
	static const char *const names[] = {"off", "notify", "dcqcn", "swift"};

	return (size_t)mode < KARST_DIM(names) ? names[mode] : "?";
}

/* Parses "name=value" into @p. */
static int
take_setting(struct karst_rp_params *p, const char *name, const char *text, char why[WHY_MAX])
{
	uint32_t *value, least, most;
	unsigned long long v = 0;
	const char *known;
	char *end = NULL;
	unsigned int i;

	for (i = 0; (known = karst_rp_param(p, i, &value, &least, &most)) != NULL; i++)
		if (strcmp(known, name) == 0)
			break;
	if (known == NULL) {
		snprintf(why, WHY_MAX, "unknown parameter '%.30s'", name);
		return -EINVAL;
	}
	errno = 0;
	if (isdigit((unsigned char)text[0]))
		v = strtoull(text, &end, 10);
	if (end == NULL || *end != '\0' || errno != 0 || v < least || v > most) {
		snprintf(why, WHY_MAX, "%s: a number from %u to %u, not '%.20s'", name, least, most,
			text);
		return -EINVAL;
	}
	*value = (uint32_t)v;
	return 0;
}

static int
congestion_set_on_lcore(struct eng_lcore *lc, void *arg)
{
	return karst_core_set_rp(lc->core, arg);
}

/* Applies the settings of @list, all of them or none. */
static int
change(struct karst_engine *e, char *list, char why[WHY_MAX])
{
	struct karst_rp_params p = e->congestion.rp;
	char *pair, *value;
	uint32_t i;
	int ret;

	if (e->congestion.mode < KARST_CONGESTION_DCQCN) {
		snprintf(why, WHY_MAX, "congestion is %s: nothing to set",
			mode_name(e->congestion.mode));
		return -EINVAL;
	}
	while ((pair = strsep(&list, ",")) != NULL) {
		value = strchr(pair, '=');
		if (value != NULL)
			*value++ = '\0';
		ret = take_setting(&p, pair, value != NULL ? value : "", why);
		if (ret != 0)
			return ret;
	}
	if (!karst_rp_params_valid(&p)) {
		snprintf(why, WHY_MAX, "rpg_byte_reset: 0, or 1024 and more");
		return -EINVAL;
	}
	for (i = 0; i < e->nlcores; i++)
		eng_mailbox_call(&e->lcore[i], congestion_set_on_lcore, &p);
	e->congestion.rp = p;
	return 0;
}

static void
show(const struct karst_congestion_config *c, struct rte_tel_data *d)
{
	struct karst_rp_params p = c->rp;
	uint32_t *value, least, most;
	const char *name;
	unsigned int i;

	rte_tel_data_add_dict_string(d, "mode", mode_name(c->mode));
	rte_tel_data_add_dict_u64(d, "min_time_between_cnps", c->np.min_time_between_cnps);
	rte_tel_data_add_dict_u64(d, "cnp_scope", c->np.cnp_scope);
	rte_tel_data_add_dict_u64(d, "cnp_dscp", c->np.cnp_dscp);
	rte_tel_data_add_dict_u64(d, "cnp_802p_prio", c->np.cnp_802p_prio);
	for (i = 0; (name = karst_rp_param(&p, i, &value, &least, &most)) != NULL; i++)
		rte_tel_data_add_dict_u64(d, name, *value);
}

/* @text: "[ENGINE][,NAME=VALUE]...". */
static int
congestion(char *text, struct rte_tel_data *d)
{
	char *list = text, *engine = NULL, why[WHY_MAX] = "";
	struct karst_engine *e;
	int ret;

	if (strchr(text, '=') == NULL || strcspn(text, ",") < strcspn(text, "="))
		engine = strsep(&list, ",");
	ret = eng_tel_open_name(engine, &e);
	if (ret != 0)
		return ret;
	ret = eng_ctl_enter(e);
	if (ret == 0) {
		if (list != NULL && *list != '\0')
			ret = change(e, list, why);
		if (ret == 0)
			show(&e->congestion, d);
		eng_ctl_leave(e);
	}
	eng_tel_close();
	if (why[0] == '\0')
		return ret;
	rte_tel_data_add_dict_string(d, "error", why);
	return 0;
}

static int
on_congestion(const char *cmd, const char *params, struct rte_tel_data *d)
{
	char text[PARAMS_MAX];

	rte_tel_data_start_dict(d);
	if (snprintf(text, sizeof(text), "%s", params == NULL ? "" : params) >= (int)sizeof(text))
		return -EINVAL;
	return congestion(text, d);
}

const struct tel_cmd eng_tel_congestion[] = {
	{"/karst/congestion", on_congestion,
		"Congestion control. Parameters: [engine][,name=value]..., which sets some of it"},
	{NULL, NULL, NULL},
};
