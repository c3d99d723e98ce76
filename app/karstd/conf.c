/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "conf.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "conf_scan.h"
#include "conf_value.h"

/* Errors that are reported one by one.  A file of another kind would fill the log. */
#define FAULTS_SAID 20u

/* --- the table --- */

static const struct kd_key keys[] = {
#define ROW(s, k, t, d, lo, hi, f, u)                      \
	{.section = #s,                                    \
		.name = #k,                                \
		.type = t,                                 \
		.def = d,                                  \
		.least = lo,                               \
		.most = hi,                                \
		.form = f,                                 \
		.unit = u,                                 \
		.offset = offsetof(struct kd_conf_##s, k), \
		.size = sizeof(((struct kd_conf_##s *)NULL)->k)},
#define KARSTD_SECTION(section, reload, what)
#define KARSTD_NUM(s, k, type, def, least, most, unit, what) \
	ROW(s, k, KD_##type, def, least, most, "", unit)
#define KARSTD_WORD(s, k, def, words, what)      ROW(s, k, KD_WORD, def, 0, 0, words, "")
#define KARSTD_TEXT(s, k, type, def, form, what) ROW(s, k, KD_##type, def, 0, 0, form, "")
#include "conf_keys.def"
#undef KARSTD_SECTION
#undef KARSTD_NUM
#undef KARSTD_WORD
#undef KARSTD_TEXT
#undef ROW
};

static const struct kd_key *
find_key(const char *section, const char *name)
{
	size_t i;

	for (i = 0; i < KARST_DIM(keys); i++)
		if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

void
kd_fault(struct kd_faults *f, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (f->n++ < FAULTS_SAID)
		f->say(f->user, line);
}

void
kd_faults_end(const struct kd_faults *f)
{
	char line[64];

	if (f->n <= FAULTS_SAID)
		return;
	snprintf(line, sizeof(line), "%u more error%s", f->n - FAULTS_SAID,
		f->n == FAULTS_SAID + 1 ? "" : "s");
	f->say(f->user, line);
}

/* Stores @value; @at names the place of its origin for error messages. */
static void
store(const struct kd_key *k, const char *value, void *section, const char *at, struct kd_faults *f)
{
	char why[KD_WHY], allowed[KD_TEXT];

	if (kd_value_parse(k, value, (char *)section + k->offset, why) == 0)
		return;
	kd_value_allowed(k, allowed, sizeof(allowed));
	kd_fault(f, "%s = \"%s\": %s; allowed: %s", at, value, why, allowed);
}

/* --- defaults --- */

static void
never(void *user, const char *line)
{
	(void)user;
	(void)line;
	assert(!"the defaults of conf_keys.def are good");
}

static void
set_defaults(const char *section, void *to)
{
	struct kd_faults f = {.say = never};
	size_t i;

	/* A device has no default: the member stays empty until the file sets it. */
	for (i = 0; i < KARST_DIM(keys); i++)
		if (strcmp(keys[i].section, section) == 0 && keys[i].type != KD_DEVICE)
			store(&keys[i], keys[i].def, to, section, &f);
}

void
kd_conf_defaults(struct kd_conf *c)
{
	memset(c, 0, sizeof(*c));
	set_defaults("engine", &c->engine);
	set_defaults("socket", &c->socket);
	set_defaults("limits", &c->limits[0]);
	set_defaults("congestion", &c->congestion);
	set_defaults("smc", &c->smc);
	set_defaults("log", &c->log);
	c->nlimits = 1;
}

static struct kd_conf_port *
new_port(struct kd_conf *c, const char *name)
{
	struct kd_conf_port *p = &c->port[c->nports++];

	set_defaults("port", p);
	snprintf(p->name, sizeof(p->name), "%s", name);
	return p;
}

void
kd_conf_only_loopback(struct kd_conf *c)
{
	memset(c->port, 0, sizeof(c->port));
	c->nports = 0;
	strcpy(new_port(c, "loopback")->device, "loopback");
}

/* --- sections --- */

static void *
port_section(struct kd_conf *c, const char *name, const char *at, struct kd_faults *f)
{
	uint32_t i;

	if (!kd_name_is_good(name) || strlen(name) >= sizeof(c->port[0].name)) {
		kd_fault(f,
			"%s: a port has a name, [port NAME]; allowed: 1 to 31 letters, digits, "
			"'_', '-' or '.'",
			at);
		return NULL;
	}
	for (i = 0; i < c->nports; i++)
		if (strcmp(c->port[i].name, name) == 0) {
			kd_fault(f, "%s: there is a port \"%s\" already", at, name);
			return NULL;
		}
	if (c->nports == KD_MAX_PORTS) {
		kd_fault(f, "%s: more ports than an engine has; allowed: up to %u", at,
			KD_MAX_PORTS);
		return NULL;
	}
	return new_port(c, name);
}

/* Returns the number of a user, or of a group if the name begins with '@'. */
static bool
find_who(const char *who, uint32_t *id)
{
	const struct passwd *pw;
	const struct group *gr;

	if (who[0] == '@') {
		gr = getgrnam(who + 1);
		*id = gr != NULL ? gr->gr_gid : 0;
		return gr != NULL;
	}
	pw = getpwnam(who);
	*id = pw != NULL ? pw->pw_uid : 0;
	return pw != NULL;
}

static void *
limits_section(struct kd_conf *c, const char *who, const char *at, struct kd_faults *f)
{
	struct kd_conf_limits *l = &c->limits[c->nlimits];
	uint32_t i, id;

	if (who[0] == '\0')
		return &c->limits[0];
	if (strlen(who) >= sizeof(l->who) || !find_who(who, &id)) {
		kd_fault(f,
			"%s: there is no such user or group; allowed: [limits USER], "
			"[limits @GROUP]",
			at);
		return NULL;
	}
	for (i = 1; i < c->nlimits; i++)
		if (strcmp(c->limits[i].who, who) == 0) {
			kd_fault(f, "%s: there are limits of %s already", at, who);
			return NULL;
		}
	if (c->nlimits == KARST_DIM(c->limits)) {
		kd_fault(f, "%s: too many sections of limits; allowed: %u", at, KD_MAX_LIMITS);
		return NULL;
	}
	memset(l, 0, sizeof(*l));
	snprintf(l->who, sizeof(l->who), "%s", who);
	l->id = id;
	c->nlimits++;
	return l;
}

/* Returns the structure of a section, and its kind in @kind (KD_NAME bytes).  NULL: the error was
 * reported. */
static void *
find_section(
	struct kd_conf *c, const char *section, char *kind, const char *at, struct kd_faults *f)
{
	size_t len = strcspn(section, " \t");
	const char *rest = section + len + strspn(section + len, " \t");

	snprintf(kind, KD_NAME, "%.*s", (int)len, section);
	if (strcmp(kind, "port") == 0)
		return port_section(c, rest, at, f);
	if (strcmp(kind, "limits") == 0)
		return limits_section(c, rest, at, f);
	if (rest[0] == '\0') {
		if (strcmp(kind, "engine") == 0)
			return &c->engine;
		if (strcmp(kind, "socket") == 0)
			return &c->socket;
		if (strcmp(kind, "congestion") == 0)
			return &c->congestion;
		if (strcmp(kind, "smc") == 0)
			return &c->smc;
		if (strcmp(kind, "log") == 0)
			return &c->log;
	}
	kd_fault(f,
		"%s: unknown section; allowed: [engine], [socket], [limits], [limits USER], "
		"[limits @GROUP], [port NAME], [congestion], [smc], [log]",
		at);
	return NULL;
}

/* --- files --- */

static void
unknown_key(const char *kind, const char *name, const char *at, struct kd_faults *f)
{
	char list[640] = "", other[128] = "";
	size_t i, n = 0, o = 0;

	for (i = 0; i < KARST_DIM(keys); i++)
		if (strcmp(keys[i].section, kind) == 0 && n < sizeof(list))
			n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
				n != 0 ? ", " : "", keys[i].name);
		else if (strcmp(keys[i].name, name) == 0 && o < sizeof(other))
			o += (size_t)snprintf(other + o, sizeof(other) - o, "%s[%s%s]",
				o != 0 ? ", " : ", it belongs to ", keys[i].section,
				strcmp(keys[i].section, "port") == 0 ? " NAME" : "");
	kd_fault(f, "%s: unknown key%s; allowed: %s", at, other, list);
}

/* Stores all entries of a section. */
static void
read_entries(const struct kd_scan_entry *e, uint32_t n, const char *kind, const char *section,
	void *to, const char *path, struct kd_faults *f)
{
	char at[512];
	uint32_t i, j;

	for (i = 0; i < n; i++) {
		const struct kd_key *k = find_key(kind, e[i].name);

		snprintf(at, sizeof(at), "%s:%u: [%s] %s", path, e[i].line, section, e[i].name);
		for (j = 0; j < i && strcmp(e[j].name, e[i].name) != 0; j++)
			;
		if (k == NULL)
			unknown_key(kind, e[i].name, at, f);
		else if (j < i && k->type != KD_ADDRS)
			kd_fault(f, "%s: it is in line %u already", at, e[j].line);
		else
			store(k, e[i].value, to, at, f);
	}
}

static void
read_section(struct kd_conf *c, const struct kd_scan *s, uint32_t index, const char *path,
	struct kd_faults *f)
{
	const struct kd_scan_section *sec = &s->section[index];
	uint32_t end = index + 1 < s->nsections ? sec[1].first : s->nentries;
	char kind[KD_NAME], at[512];
	void *to;

	if (sec->refused)
		return;
	snprintf(at, sizeof(at), "%s:%u: [%s]", path, sec->line, sec->name);
	to = find_section(c, sec->name, kind, at, f);
	if (to != NULL)
		read_entries(s->entry + sec->first, end - sec->first, kind, sec->name, to, path, f);
}

int
kd_conf_read(struct kd_conf *c, const char *path, struct kd_faults *f)
{
	uint32_t i, before = f->n;
	struct kd_scan scan;

	kd_scan_file(&scan, path, f);
	for (i = 0; i < scan.nsections; i++)
		read_section(c, &scan, i, path, f);
	kd_scan_free(&scan);
	return f->n == before ? 0 : -EINVAL;
}

int
kd_conf_set(struct kd_conf *c, const char *section, const char *key, const char *value,
	const char *at, struct kd_faults *f)
{
	const struct kd_key *k = find_key(section, key);
	uint32_t before = f->n;
	char kind[KD_NAME];
	void *to;

	assert(k != NULL);
	to = find_section(c, section, kind, at, f);
	if (to != NULL)
		store(k, value, to, at, f);
	return f->n == before ? 0 : -EINVAL;
}

void
kd_conf_limits_over(struct kd_conf_limits *l, const struct kd_conf_limits *by)
{
	static const uint8_t none[sizeof(*l)];
	size_t i;

	for (i = 0; i < KARST_DIM(keys); i++) {
		const uint8_t *from = (const uint8_t *)by + keys[i].offset;

		if (strcmp(keys[i].section, "limits") == 0 && memcmp(from, none, keys[i].size) != 0)
			memcpy((uint8_t *)l + keys[i].offset, from, keys[i].size);
	}
}

/* --- reloading --- */

void
kd_conf_reload(struct kd_conf *c, const struct kd_conf *to,
	void (*other)(void *user, const char *section), void *user)
{
	if (other != NULL) {
		if (memcmp(&c->engine, &to->engine, sizeof(c->engine)) != 0)
			other(user, "engine");
		if (memcmp(&c->socket, &to->socket, sizeof(c->socket)) != 0)
			other(user, "socket");
		if (memcmp(&c->congestion, &to->congestion, sizeof(c->congestion)) != 0)
			other(user, "congestion");
		if (memcmp(&c->smc, &to->smc, sizeof(c->smc)) != 0)
			other(user, "smc");
	}
	c->log = to->log;
	memcpy(c->limits, to->limits, sizeof(c->limits));
	c->nlimits = to->nlimits;
}
