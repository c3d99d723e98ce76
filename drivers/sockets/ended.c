/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Options of a connection whose TCP socket does not exist any more: the service has closed it,
 * because the connection was reset, or the service itself has ended.  A TCP socket has its options
 * until it is closed, so a new one is made for the call, and given what the program has set since
 * the connection was made.  Options that were set before that have their defaults there.
 */
#include "ks.h"

#include <netinet/in.h>
#include <unistd.h>

/* At file scope: the calls of programs have no argument for it. */
static struct ks_pool sets_pool = {.bytes = sizeof(struct ks_sets)};

void
ks_drop_values(struct ks_sock *s)
{
	struct ks_sets *sets = atomic_load(&s->sets);

	if (sets != NULL)
		ks_pool_give(&sets_pool, sets);
}

void
ks_note_value(struct ks_sock *s, int level, int name, const void *value, socklen_t len)
{
	struct ks_sets *none = NULL, *sets = atomic_load(&s->sets);
	uint32_t i = 0;

	if (len > KS_VALUE_MAX)
		return;
	if (sets == NULL) {
		sets = ks_pool_take(&sets_pool);
		if (sets == NULL)
			return;
		if (!atomic_compare_exchange_strong(&s->sets, &none, sets)) {
			ks_pool_give(&sets_pool, sets);
			sets = none;
		}
	}
	ks_lock_tx(s);
	while (i < sets->n && (sets->set[i].level != level || sets->set[i].name != name))
		i++;
	if (i < KS_SETS_MAX) {
		sets->set[i].level = level;
		sets->set[i].name = name;
		sets->set[i].len = len;
		memcpy(sets->set[i].value, value, len);
		sets->n = i == sets->n ? i + 1 : sets->n;
	}
	ks_unlock_page(&s->page->tx_lock);
}

/* @return the new socket, or -1 and errno */
static int
stand_in(struct ks_sock *s)
{
	const struct ks_sets *sets = atomic_load(&s->sets);
	int fd = socket(s->page->local.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);

	if (fd < 0 || sets == NULL)
		return fd;
	ks_lock_tx(s);
	for (uint32_t i = 0; i < sets->n; i++)
		(void)real(setsockopt)(fd, sets->set[i].level, sets->set[i].name,
			sets->set[i].value, sets->set[i].len);
	ks_unlock_page(&s->page->tx_lock);
	return fd;
}

/* As getsockopt(), or setsockopt() if @set, which only reads @value and @len.
 * @return 0 or -errno */
static int
call_ended(struct ks_sock *s, bool set, int level, int name, void *value, socklen_t *len)
{
	int fd, rc = -1;

	ks_no_cancel();
	fd = stand_in(s);
	if (fd >= 0 && set)
		rc = real(setsockopt)(fd, level, name, value, *len);
	else if (fd >= 0)
		rc = real(getsockopt)(fd, level, name, value, len);
	rc = rc != 0 ? -errno : 0;
	if (fd >= 0)
		real(close)(fd);
	ks_no_cancel_end();
	return rc;
}

int
ks_get_ended(struct ks_sock *s, int level, int name, void *value, socklen_t *len)
{
	return call_ended(s, false, level, name, value, len);
}

int
ks_set_ended(struct ks_sock *s, int level, int name, const void *value, socklen_t len)
{
	return call_ended(s, true, level, name, (void *)(uintptr_t)value, &len);
}
