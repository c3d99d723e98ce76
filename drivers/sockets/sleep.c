/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Who sleeps for bytes of a connection.  There may be several, threads or processes, and a token
 * that one of them takes is none for the others; so who reads has to know of them, and does more
 * than he would for himself.  Each holds a lock while he sleeps, so that it is seen when he has
 * been killed: else he would be cared for as long as the connection lives.
 */
#include "ks.h"

int
ks_sleep_begin(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	bool died;

	for (unsigned int i = 0; i < KARST_SOCK_SLEEPERS; i++)
		if (ks_take_place(&p->sleeps[i], &died)) {
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
		ks_leave_place(&s->page->sleeps[place]);
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
		if (ks_take_place(&p->sleeps[i], &died))
			ks_leave_place(&p->sleeps[i]);
		else
			p->sleepers++;
	return p->sleepers != 0;
}
