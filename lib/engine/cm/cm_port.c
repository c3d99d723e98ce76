/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Addresses and port numbers of identifiers.
 *
 * A port number may be shared by identifiers with different addresses, and by identifiers with the
 * reuse option as long as none of them listens, up to CM_NUMBER_SHARED.  Ephemeral numbers are
 * shared out by users, even if a program has chosen one explicitly.  Identifiers that listen on one
 * number, each with its address or a wildcard, share a listener of lib/cm, which knows only service
 * ids; a request goes to the identifier with its destination address, else to a wildcard.
 *
 * Identifiers that a request created use the number of their listener without holding it.
 */
#include <errno.h>
#include <sys/socket.h>

#include "cm.h"
#include "port.h"

#define EPHEMERAL_FIRST 32768u
#define EPHEMERAL_LAST  60999u
#define EPHEMERALS      (EPHEMERAL_LAST - EPHEMERAL_FIRST + 1)
/* Random attempts before numbers are tried in sequence: if a program has taken many adjacent
 * numbers, others shall not have to search past them with the lock held. */
#define DRAWS 64u

static const uint8_t any4[16] = {[10] = 0xff, [11] = 0xff};
static const uint8_t any6[16];

static bool
same_ip(const uint8_t a[16], const uint8_t b[16])
{
	return memcmp(a, b, 16) == 0;
}

bool
eng_cm_is_any(const struct karst_ctl_cm_addr *a)
{
	return same_ip(a->ip, any6) || same_ip(a->ip, any4);
}

bool
eng_cm_is_scoped(const struct karst_ctl_cm_addr *a)
{
	return a->family == AF_INET6 && eng_ip_is_link_local6(a->ip);
}

void
eng_cm_set_scope(struct karst_ctl_cm_addr *a, uint8_t port)
{
	if (eng_cm_is_scoped(a))
		a->scope_id = port + 1u;
}

int
eng_cm_check_addr(char *why, const struct karst_ctl_cm_addr *a)
{
	if (a->family != AF_INET && a->family != AF_INET6)
		return karst_ctl_reason(why, -EAFNOSUPPORT,
			"address family %u: must be %u (IPv4) or %u (IPv6)", a->family, AF_INET,
			AF_INET6);
	if (eng_cm_is_scoped(a) && a->scope_id > KARST_ENGINE_MAX_PORTS)
		return karst_ctl_reason(why, -ENODEV,
			"link-local address: port %u, its scope, does not exist", a->scope_id);
	if ((a->family == AF_INET) != karst_engine_ip_is_ip4(a->ip) && !same_ip(a->ip, any6))
		return karst_ctl_reason(why, -EINVAL,
			"an IPv4 address must be of family %u and written as ::ffff:a.b.c.d, an "
			"IPv6 address of family %u",
			AF_INET, AF_INET6);
	return 0;
}

/* --- choice of the engine's port --- */

int
eng_cm_find_port(const struct karst_engine *e, const uint8_t ip[16], uint8_t *port, uint8_t *index)
{
	struct karst_engine_port_info info;
	uint32_t i, k, first = *port;

	/* empty places have this address */
	if (karst_engine_ip_is_none(ip))
		return -EADDRNOTAVAIL;
	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++) {
		uint8_t at = (uint8_t)((first + i) % KARST_ENGINE_MAX_PORTS);

		if (karst_engine_port_info(e, at, &info) != 0)
			continue;
		for (k = 0; k < info.num_addrs; k++)
			if (same_ip(info.addrs[k].ip, ip)) {
				*port = at;
				*index = (uint8_t)k;
				return 0;
			}
	}
	return -EADDRNOTAVAIL;
}

int
eng_cm_index(const struct karst_engine *e, const struct cm_id *id, uint8_t *index)
{
	uint8_t port = id->port, at = 0;
	int ret = eng_cm_find_port(e, id->src.ip, &port, &at);

	if (ret != 0 || port != id->port)
		return -EADDRNOTAVAIL;
	*index = at;
	return 0;
}

int
eng_cm_find_own(const struct karst_engine *e, const struct karst_ctl_cm_addr *a, uint8_t *port)
{
	uint8_t at = 0, k = 0;
	int ret;

	if (eng_cm_is_scoped(a) && a->scope_id != 0)
		at = (uint8_t)(a->scope_id - 1);
	ret = eng_cm_find_port(e, a->ip, &at, &k);
	if (eng_cm_is_scoped(a) && a->scope_id != 0 && (ret != 0 || at != a->scope_id - 1))
		return -ENODEV;
	if (ret == 0)
		*port = at;
	return ret;
}

/* Length of the common prefix of an own address and @ip, if @ip is on its link. */
static unsigned int
link_bits(const struct karst_engine_addr *own, const uint8_t ip[16])
{
	unsigned int from = karst_engine_ip_is_ip4(ip) ? 12 : 0, n = own->prefix, i;

	for (i = 0; i < n; i++)
		if (((own->ip[from + i / 8] ^ ip[from + i / 8]) >> (7 - i % 8) & 1) != 0)
			return 0;
	return n;
}

/*
 * How well the address suits to reach @ip from; 0: not at all.  Best on its link, the longer the
 * prefix the better; then by a gateway or the kernel's routes; then an address whose link has all
 * addresses (prefix 0).
 */
static unsigned int
listener_fitness(const struct karst_engine_port_info *info, const struct karst_engine_addr *own,
	const uint8_t ip[16])
{
	static const uint8_t none[16];
	const uint8_t *gateway = karst_engine_ip_is_ip4(ip) ? info->gateway4.ip : info->gateway6.ip;
	unsigned int bits;

	if (karst_engine_ip_is_none(own->ip) ||
		karst_engine_ip_is_ip4(own->ip) != karst_engine_ip_is_ip4(ip))
		return 0;
	if (eng_ip_is_link_local6(own->ip) != eng_ip_is_link_local6(ip) && !eng_ip_is_group(ip))
		return 0;
	bits = link_bits(own, ip);
	if (bits != 0)
		return 16 + bits;
	if (memcmp(gateway, none, sizeof(none)) != 0)
		return 4;
	if (info->netdev[0] != '\0')
		return 3;
	return own->prefix == 0 || eng_ip_is_group(ip) || eng_ip_is_link_local6(ip) ? 2 : 0;
}

/* A wildcard destination is this engine: its first address of the family. */
static int
choose_self(const struct karst_engine *e, uint16_t family, uint8_t *port, uint8_t src_ip[16])
{
	struct karst_engine_port_info info;
	uint32_t i, k;

	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++) {
		if (karst_engine_port_info(e, (uint8_t)i, &info) != 0)
			continue;
		for (k = 0; k < info.num_addrs; k++)
			if (!karst_engine_ip_is_none(info.addrs[k].ip) &&
				karst_engine_ip_is_ip4(info.addrs[k].ip) == (family == AF_INET)) {
				*port = (uint8_t)i;
				memcpy(src_ip, info.addrs[k].ip, 16);
				return 0;
			}
	}
	return -ENETUNREACH;
}

int
eng_cm_choose_port(const struct karst_engine *e, const struct karst_ctl_cm_addr *dst, uint8_t *port,
	uint8_t src_ip[16])
{
	struct karst_engine_port_info info;
	unsigned int best = 0;
	uint32_t i, k;

	if (eng_cm_is_any(dst))
		return choose_self(e, dst->family, port, src_ip);
	/* to one of our own addresses: use that address as source */
	if (eng_cm_find_own(e, dst, port) == 0) {
		memcpy(src_ip, dst->ip, 16);
		return 0;
	}
	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++) {
		if (eng_cm_is_scoped(dst) && dst->scope_id != 0 && dst->scope_id != i + 1)
			continue;
		if (karst_engine_port_info(e, (uint8_t)i, &info) != 0)
			continue;
		for (k = 0; k < info.num_addrs; k++) {
			unsigned int fit = listener_fitness(&info, &info.addrs[k], dst->ip);

			if (fit <= best)
				continue;
			best = fit;
			*port = (uint8_t)i;
			memcpy(src_ip, info.addrs[k].ip, 16);
		}
	}
	return best != 0 ? 0 : -ENETUNREACH;
}

/* --- port numbers --- */

static struct cm_number_bucket *
number_bucket_of(struct eng_cm *cm, uint16_t port_space, uint16_t number)
{
	return &cm->number[(port_space * 31u + number) % CM_PORT_BUCKETS];
}

/* Link-local addresses with different scopes are different addresses. */
static bool
same_addr(const struct karst_ctl_cm_addr *a, const struct karst_ctl_cm_addr *b)
{
	return same_ip(a->ip, b->ip) &&
		(a->scope_id == b->scope_id || a->scope_id == 0 || b->scope_id == 0);
}

/* Whether a packet may be for both of them. */
static bool
number_overlap(const struct cm_id *a, const struct cm_id *b)
{
	bool any_a = eng_cm_is_any(&a->src), any_b = eng_cm_is_any(&b->src);

	if (a->src.family == b->src.family)
		return any_a || any_b || same_addr(&a->src, &b->src);
	/* An IPv6 wildcard includes IPv4, too, unless its option excludes that. */
	return (a->src.family == AF_INET6 && any_a && !a->af_only) ||
		(b->src.family == AF_INET6 && any_b && !b->af_only);
}

/* Whether another identifier has number @number in a way that excludes @id. */
static bool
is_taken(struct eng_cm *cm, const struct cm_id *id, uint16_t number, bool to_listen)
{
	const struct cm_id *at;

	LIST_FOREACH(at, number_bucket_of(cm, id->port_space, number), port_next) {
		if (at == id || at->port_space != id->port_space || at->src.port_number != number)
			continue;
		if (!to_listen && at->reuse_addr && id->reuse_addr && at->state != CM_ID_LISTEN)
			continue;
		if (number_overlap(at, id))
			return true;
	}
	return false;
}

/* Whether the number is already shared by the maximum. */
static bool
is_crowded(struct eng_cm *cm, uint16_t port_space, uint16_t number)
{
	const struct cm_id *at;
	uint32_t n = 0;

	LIST_FOREACH(at, number_bucket_of(cm, port_space, number), port_next)
		n += at->port_space == port_space && at->src.port_number == number;
	return n >= CM_NUMBER_SHARED;
}

static bool
is_ephemeral(uint32_t number)
{
	return number >= EPHEMERAL_FIRST && number <= EPHEMERAL_LAST;
}

void
eng_cm_number_init(struct eng_cm *cm)
{
	/* for both port spaces together */
	eng_shares_set_total(&cm->e->shares, ENG_SHARE_CM_NUMBERS, EPHEMERALS);
}

/* A number without a conflict; 0: there is none. */
static uint16_t
free_number(struct eng_cm *cm, struct cm_id *id)
{
	bool reuse = id->reuse_addr, taken = true;
	uint32_t i, at = 0;

	/* a number that is chosen here must not be in use */
	id->reuse_addr = false;
	for (i = 0; i < DRAWS + EPHEMERALS && taken; i++) {
		at = (i < DRAWS ? eng_cm_random(cm) : at + 1) % EPHEMERALS;
		taken = is_taken(cm, id, (uint16_t)(EPHEMERAL_FIRST + at), false);
	}
	id->reuse_addr = reuse;
	return taken ? 0 : (uint16_t)(EPHEMERAL_FIRST + at);
}

static int
choose_number(struct eng_cm *cm, struct cm_id *id, uint16_t *number)
{
	uint16_t wanted = id->src.port_number;

	if (wanted != 0 && is_taken(cm, id, wanted, false))
		return -EADDRINUSE;
	if (wanted != 0 && is_crowded(cm, id->port_space, wanted))
		return -EUSERS;
	*number = wanted != 0 ? wanted : free_number(cm, id);
	return *number != 0 ? 0 : -EADDRINUSE;
}

int
eng_cm_number(struct eng_cm *cm, struct cm_id *id)
{
	bool ephemeral = id->src.port_number == 0 || is_ephemeral(id->src.port_number);
	struct eng_share *share = id->client->ids.share;
	uint16_t number;
	int ret;

	if (ephemeral && !eng_share_take(share, ENG_SHARE_CM_NUMBERS, 1))
		return -EDQUOT;
	ret = choose_number(cm, id, &number);
	if (ret != 0) {
		if (ephemeral)
			eng_share_give(share, ENG_SHARE_CM_NUMBERS, 1);
		return ret;
	}
	id->src.port_number = number;
	LIST_INSERT_HEAD(number_bucket_of(cm, id->port_space, number), id, port_next);
	id->numbered = true;
	return 0;
}

void
eng_cm_unnumber(struct eng_cm *cm, struct cm_id *id)
{
	if (!id->numbered)
		return;
	if (is_ephemeral(id->src.port_number))
		eng_share_give(id->client->ids.share, ENG_SHARE_CM_NUMBERS, 1);
	LIST_REMOVE(id, port_next);
	id->numbered = false;
}

/* --- listening --- */

static struct cm_service *
service_of(struct eng_cm *cm, uint16_t port_space, uint16_t number)
{
	const struct cm_id *at;

	LIST_FOREACH(at, number_bucket_of(cm, port_space, number), port_next)
		if (at->service != NULL && at->port_space == port_space &&
			at->src.port_number == number)
			return at->service;
	return NULL;
}

int
eng_cm_service_join(struct eng_cm *cm, struct cm_id *id)
{
	struct cm_service *s = service_of(cm, id->port_space, id->src.port_number);
	int ret;

	if (is_taken(cm, id, id->src.port_number, true))
		return -EADDRINUSE;
	if (s == NULL) {
		s = calloc(1, sizeof(*s));
		if (s == NULL)
			return -ENOMEM;
		s->port_space = id->port_space;
		s->port_number = id->src.port_number;
		ret = karst_cm_id_listen(cm->cm, karst_cm_service_id(s->port_space, s->port_number),
			UINT64_MAX, s, &s->cm_id);
		if (ret != 0) {
			free(s);
			return ret;
		}
	}
	s->listeners++;
	cm->nlisteners++;
	id->service = s;
	return 0;
}

void
eng_cm_service_leave(struct eng_cm *cm, struct cm_id *id)
{
	struct cm_service *s = id->service;

	if (s == NULL)
		return;
	id->service = NULL;
	cm->nlisteners--;
	if (--s->listeners != 0)
		return;
	karst_cm_id_destroy(cm->cm, s->cm_id);
	free(s);
}

struct cm_id *
eng_cm_listener(struct eng_cm *cm, const struct cm_service *service, const struct karst_cm_ip *ip,
	uint8_t port)
{
	struct cm_id *at, *found = NULL;

	LIST_FOREACH(
		at, number_bucket_of(cm, service->port_space, service->port_number), port_next) {
		if (at->service != service)
			continue;
		if (same_ip(at->src.ip, ip->dst_ip) &&
			(at->src.scope_id == 0 || at->src.scope_id == port + 1u))
			return at;
		if (!eng_cm_is_any(&at->src))
			continue;
		/* of two wildcards, the one of the request's family */
		if (at->src.family == (ip->ip6 ? AF_INET6 : AF_INET))
			found = at;
		else if (at->src.family == AF_INET6 && !at->af_only && found == NULL)
			found = at;
	}
	return found;
}
