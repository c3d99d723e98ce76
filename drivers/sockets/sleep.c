/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Who sleeps for bytes of a connection.  There may be several, threads or processes, and a token
 * that one of them takes is none for the others; so who reads has to know of them, and does more
 * than he would for himself.  Each holds a robust lock while he sleeps, which the kernel gives back
 * if he is killed: else he would be cared for as long as the connection lives.
 */
#include "ks.h"

#include <pthread.h>

/* The lock is the caller's, if it is nobody's who lives. */
static bool
sleep_take(pthread_mutex_t *lock, bool *died)
{
	int rc = pthread_mutex_trylock(lock);

	*died = rc == EOWNERDEAD;
	if (*died)
		pthread_mutex_consistent(lock);
	return rc == 0 || *died;
}

int
ks_sleep_begin(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	bool died;

	for (unsigned int i = 0; i < KARST_SOCK_SLEEPERS; i++)
		if (sleep_take(&p->sleeps[i], &died)) {
			p->sleepers += !died; /* he was counted */
			return (int)i;
		}
	p->sleepers++;
	p->crowd++;
	return -1;
}

void
ks_sleep_end(struct ks_sock *s, int place)
{
	s->page->sleepers--;
	if (place >= 0)
		pthread_mutex_unlock(&s->page->sleeps[place]);
	else
		s->page->crowd--;
}

bool
ks_sleeps(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	bool died;

	if (__builtin_expect(p->sleepers == 0, 1))
		return false;
	p->sleepers = p->crowd;
	for (unsigned int i = 0; i < KARST_SOCK_SLEEPERS; i++)
		if (sleep_take(&p->sleeps[i], &died))
			pthread_mutex_unlock(&p->sleeps[i]);
		else
			p->sleepers++;
	return p->sleepers != 0;
}
