/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "conf_value.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <net/if.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "port_kind.h"

#define SUFFIXES "KMGT"

__attribute__((format(printf, 2, 3))) static int
wrong(char *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, KD_WHY, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* --- numbers --- */

/* Parses decimal digits, then possibly a suffix, and nothing else. */
static int
parse_u64(const char *text, bool suffix, uint64_t *v, char *why)
{
	const char *at;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return wrong(why, "not a number");
	errno = 0;
	*v = strtoull(text, &end, 10);
	if (errno == ERANGE)
		return wrong(why, "too large");
	if (suffix && *end != '\0' && (at = strchr(SUFFIXES, toupper((unsigned char)*end)))) {
		uint32_t shift = 10 * (uint32_t)(at - SUFFIXES + 1);

		if (*v > UINT64_MAX >> shift)
			return wrong(why, "too large");
		*v <<= shift;
		end++;
	}
	if (*end != '\0')
		return wrong(why, "\"%s\" does not belong to a number", end);
	return 0;
}

static int
parse_number(const struct kd_key *k, const char *text, void *at, char *why)
{
	uint64_t v = 0;
	int rc = 0;

	if (strcmp(text, "auto") != 0 || strcmp(k->def, "auto") != 0) {
		rc = parse_u64(text, k->type == KD_BYTES, &v, why);
		if (rc == 0 && v < k->least)
			rc = wrong(why, "too small");
		else if (rc == 0 && v > k->most)
			rc = wrong(why, "too large");
	}
	if (rc == 0 && k->type == KD_BYTES)
		*(uint64_t *)at = v;
	else if (rc == 0)
		*(uint32_t *)at = (uint32_t)v;
	return rc;
}

static int
parse_word(const struct kd_key *k, const char *text, void *at, char *why)
{
	const char *word = k->form;
	uint32_t i;

	for (i = 0; word != NULL; i++) {
		size_t len = strcspn(word, "|");

		if (strlen(text) == len && strncmp(text, word, len) == 0) {
			*(uint32_t *)at = i;
			return 0;
		}
		word = word[len] == '|' ? word + len + 1 : NULL;
	}
	return wrong(why, "unknown");
}

static int
parse_mode(const char *text, void *at, char *why)
{
	unsigned long v;
	char *end;

	v = strtoul(text, &end, 8);
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || v > 0777)
		return wrong(why, "not a mode");
	*(uint32_t *)at = (uint32_t)v;
	return 0;
}

/* --- CPUs --- */

static int
add_cpus(struct kd_cpus *to, uint64_t first, uint64_t last, char *why)
{
	uint32_t i;

	for (; first <= last; first++) {
		if (first >= KD_MAX_CPUS)
			return wrong(why, "there is no CPU %llu", (unsigned long long)first);
		for (i = 0; i < to->n; i++)
			if (to->cpu[i] == first)
				return wrong(why, "CPU %u twice", to->cpu[i]);
		if (to->n == KARST_ENGINE_MAX_LCORES)
			return wrong(why, "more than %u CPUs", KARST_ENGINE_MAX_LCORES);
		to->cpu[to->n++] = (uint16_t)first;
	}
	return 0;
}

/* "3" or "4-7" */
static bool
parse_range(char *word, uint64_t *first, uint64_t *last)
{
	char why[KD_WHY], *dash;

	word += strspn(word, " \t");
	word[strcspn(word, " \t")] = '\0';
	dash = strchr(word, '-');
	if (dash != NULL)
		*dash++ = '\0';
	return parse_u64(word, false, first, why) == 0 &&
		parse_u64(dash != NULL ? dash : word, false, last, why) == 0 && *first <= *last;
}

static int
parse_cpus(const char *text, struct kd_cpus *at, char *why)
{
	struct kd_cpus cpus = {0};
	char copy[KD_TEXT], *word, *save = NULL;
	int rc = 0;

	if (strcmp(text, "auto") != 0) {
		snprintf(copy, sizeof(copy), "%s", text);
		word = strtok_r(copy, ",", &save);
		if (word == NULL)
			return wrong(why, "no CPU");
		for (; rc == 0 && word != NULL; word = strtok_r(NULL, ",", &save)) {
			uint64_t first = 0, last = 0;

			if (parse_range(word, &first, &last))
				rc = add_cpus(&cpus, first, last, why);
			else
				rc = wrong(why, "\"%s\" is no CPU and no range of them", word);
		}
	}
	if (rc == 0)
		*at = cpus;
	return rc;
}

/* --- addresses --- */

static bool
parse_ip(const char *text, uint8_t ip[16], bool *is4)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (inet_pton(AF_INET, text, ip + 12) == 1) {
		memcpy(ip, mapped, sizeof(mapped));
		*is4 = true;
		return true;
	}
	*is4 = false;
	return inet_pton(AF_INET6, text, ip) == 1;
}

/* Returns why a port cannot have this address; NULL: it can. */
static const char *
address_fault(const uint8_t ip[16], bool is4)
{
	static const uint8_t zero[16];

	if (is4 && ip[12] == 0)
		return "is no host's address";
	if (is4 && ip[12] >= 224)
		return "is a multicast or reserved address";
	if (!is4 && memcmp(ip, zero, sizeof(zero)) == 0)
		return "is no host's address";
	if (!is4 && ip[0] == 0xff)
		return "is a multicast address";
	return NULL;
}

static int
parse_address(char *text, struct karst_engine_addr *to, char *why)
{
	char *slash = strchr(text, '/');
	const char *fault;
	uint64_t prefix;
	bool is4;

	memset(to, 0, sizeof(*to));
	if (slash == NULL)
		return wrong(why, "\"%s\" has no prefix length", text);
	*slash = '\0';
	if (!parse_ip(text, to->ip, &is4))
		return wrong(why, "\"%s\" is no IP address", text);
	fault = address_fault(to->ip, is4);
	if (fault != NULL)
		return wrong(why, "%s %s", text, fault);
	if (parse_u64(slash + 1, false, &prefix, why) != 0 || prefix < 1 ||
		prefix > (is4 ? 32 : 128))
		return wrong(why, "the prefix length of %s is \"%s\", not 1 to %u", text, slash + 1,
			is4 ? 32 : 128);
	to->prefix = (uint8_t)prefix;
	return 0;
}

static int
parse_addrs(const char *text, struct kd_addrs *at, char *why)
{
	struct kd_addrs addrs = *at;
	char copy[KD_TEXT], *word, *save = NULL;
	uint32_t i;
	int rc;

	snprintf(copy, sizeof(copy), "%s", text);
	for (word = strtok_r(copy, ", \t", &save); word != NULL;
		word = strtok_r(NULL, ", \t", &save)) {
		if (addrs.n == KD_MAX_ADDRS)
			return wrong(why, "more than %u addresses", KD_MAX_ADDRS);
		rc = parse_address(word, &addrs.addr[addrs.n], why);
		if (rc != 0)
			return rc;
		for (i = 0; i < addrs.n; i++)
			if (memcmp(addrs.addr[i].ip, addrs.addr[addrs.n].ip, 16) == 0)
				return wrong(why, "%s twice", word);
		addrs.n++;
	}
	*at = addrs;
	return 0;
}

static int
parse_gateway(const char *text, bool want4, struct kd_ip *at, char *why)
{
	struct kd_ip ip = {.set = text[0] != '\0'};
	const char *fault;
	bool is4;

	if (ip.set) {
		if (!parse_ip(text, ip.ip, &is4) || is4 != want4)
			return wrong(why, "not an %s address", want4 ? "IPv4" : "IPv6");
		fault = address_fault(ip.ip, is4);
		if (fault != NULL)
			return wrong(why, "it %s", fault);
	}
	*at = ip;
	return 0;
}

static int
parse_mac(const char *text, struct kd_mac *at, char *why)
{
	static const uint8_t zero[6];
	struct kd_mac mac = {.set = text[0] != '\0'};
	uint8_t *m = mac.mac;
	int end = 0;

	if (mac.set) {
		if (sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", &m[0], &m[1], &m[2],
			    &m[3], &m[4], &m[5], &end) != 6 ||
			text[end] != '\0')
			return wrong(why, "not a MAC address");
		if (m[0] & 1 || memcmp(m, zero, sizeof(zero)) == 0)
			return wrong(
				why, "%s", m[0] & 1 ? "a group's address" : "nobody's address");
	}
	*at = mac;
	return 0;
}

/* --- names --- */

bool
kd_name_is_good(const char *name)
{
	return name[0] != '\0' &&
		name[strspn(name,
			"abcdefghijklmnopqrstuvwxyz"
			"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			"0123456789_-.")] == '\0';
}

bool
kd_name_is_ifname(const char *text)
{
	return text[0] != '\0' && strlen(text) < IF_NAMESIZE && strcmp(text, ".") != 0 &&
		strcmp(text, "..") != 0 && strpbrk(text, "/: \t,") == NULL;
}

static int
parse_user(const char *text, void *at, char *why)
{
	uint32_t id = UINT32_MAX;
	const struct passwd *pw;
	uint64_t number;

	if (text[0] != '\0' && parse_u64(text, false, &number, why) == 0 && number < UINT32_MAX)
		id = (uint32_t)number;
	else if (text[0] != '\0') {
		pw = getpwnam(text);
		if (pw == NULL)
			return wrong(why, "there is no such user");
		id = pw->pw_uid;
	}
	*(uint32_t *)at = id;
	return 0;
}

static int
parse_group(const char *text, void *at, char *why)
{
	uint32_t id = UINT32_MAX;
	const struct group *gr;
	uint64_t number;

	if (text[0] != '\0' && parse_u64(text, false, &number, why) == 0 && number < UINT32_MAX)
		id = (uint32_t)number;
	else if (text[0] != '\0') {
		gr = getgrnam(text);
		if (gr == NULL)
			return wrong(why, "there is no such group");
		id = gr->gr_gid;
	}
	*(uint32_t *)at = id;
	return 0;
}

/* Returns what is wrong with a text that is stored unchanged, or NULL. */
static const char *
text_fault(const struct kd_key *k, const char *text)
{
	if (strlen(text) >= k->size)
		return "too long";
	switch (k->type) {
	case KD_LABEL:
		return kd_name_is_good(text) ? NULL : "not a name";
	case KD_PATH:
		if (text[0] != '/' || text[strlen(text) - 1] == '/')
			return "not the absolute path of a file";
		return strlen(text) > 107 ? "too long" : NULL;
	case KD_LOGFILE:
		if (strcmp(text, "stderr") == 0 || strcmp(text, "syslog") == 0)
			return NULL;
		return text[0] == '/' && text[strlen(text) - 1] != '/'
			? NULL
			: "not the absolute path of a file";
	case KD_EIDENT:
		return text[0] >= 'A' && text[0] <= 'Z' &&
				text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")] == '\0'
			? NULL
			: "not an identifier";
	case KD_FOLDER:
		return text[0] == '\0' || text[0] == '/' ? NULL : "not an absolute path";
	case KD_DEVICE:
		return kd_port_kind_of(text) != NULL ? NULL : "no kind of device looks like that";
	case KD_IFNAME:
		return text[0] == '\0' || kd_name_is_ifname(text) ? NULL
								  : "not the name of an interface";
	default:
		return "not a text";
	}
}

/* --- all types --- */

int
kd_value_parse(const struct kd_key *k, const char *text, void *at, char *why)
{
	const char *fault;

	switch (k->type) {
	case KD_U32:
	case KD_BYTES:
		return parse_number(k, text, at, why);
	case KD_WORD:
		return parse_word(k, text, at, why);
	case KD_MODE:
		return parse_mode(text, at, why);
	case KD_CPUS:
		return parse_cpus(text, at, why);
	case KD_ADDRS:
		return parse_addrs(text, at, why);
	case KD_IP4:
	case KD_IP6:
		return parse_gateway(text, k->type == KD_IP4, at, why);
	case KD_MAC:
		return parse_mac(text, at, why);
	case KD_USER:
		return parse_user(text, at, why);
	case KD_GROUP:
		return parse_group(text, at, why);
	default:
		break;
	}
	fault = text_fault(k, text);
	if (fault != NULL)
		return wrong(why, "%s", fault);
	memset(at, 0, k->size);
	memcpy(at, text, strlen(text));
	return 0;
}

/* Shows round numbers of bytes with a suffix. */
static void
show_number(const struct kd_key *k, uint64_t v, char *to, size_t len)
{
	uint32_t i = 0;

	if (k->type == KD_BYTES)
		for (; i < 4 && v >= 1024 && v % 1024 == 0; i++)
			v /= 1024;
	snprintf(to, len, "%llu%.*s", (unsigned long long)v, i != 0, &SUFFIXES[i != 0 ? i - 1 : 0]);
}

void
kd_value_allowed(const struct kd_key *k, char *to, size_t len)
{
	char least[24], most[24];
	const char *p;
	size_t n = 0;

	switch (k->type) {
	case KD_U32:
	case KD_BYTES:
		show_number(k, k->least, least, sizeof(least));
		show_number(k, k->most, most, sizeof(most));
		snprintf(to, len, "%s to %s (%s)%s", least, most, k->unit,
			strcmp(k->def, "auto") == 0 ? ", or auto" : "");
		break;
	case KD_WORD:
		for (p = k->form; *p != '\0' && n + 5 < len; p++)
			if (*p != '|')
				to[n++] = *p;
			else
				n += (size_t)snprintf(to + n, len - n,
					strchr(p + 1, '|') != NULL ? ", " : " or ");
		to[n] = '\0';
		break;
	default:
		snprintf(to, len, "%s", k->form);
	}
}
