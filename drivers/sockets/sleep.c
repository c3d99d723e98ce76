/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The threads that sleep until bytes of a connection arrive.  There may be several, also of several
 * processes, and a token that one of them takes does not wake the others.  So a reader has to know
 * of them, and does more than it needs for itself.  Each of these threads holds a lock while it
 * sleeps, so that its death is detected: otherwise readers would consider it as long as the
 * connection exists.
 */
#include "ks.h"

int
ks_sleep_begin(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	bool died;

	for (unsigned int i = 0; i < KARST_SOCK_SLEEPERS; i++)
		if (ks_take_place(&p->sleeps[i], &died)) {
			p->sleepers += !died; /* a dead owner is still counted */
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
