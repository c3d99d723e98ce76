/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program with queue pairs of every type keeps working, while a second thread of it writes random
 * values over every byte that it shares with the engine: rings, slots, lanes, doorbells, the asleep
 * and idle words.  The program also unmaps pages of memory that it has registered, or takes away
 * and restores the access rights to them, resizes its completion queues, writes and reads the
 * eventfds, and shuts down its streams of events.  What becomes of the program itself does not
 * matter.  It lives for some tens of milliseconds, is killed, and the next one runs with the next
 * seed.
 */
#include "hostile.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define AREAS         64
#define FDS           64
#define MEM_BYTES     (1u << 18)
#define DEFAULT_LIVES 40
#define LIFE_MS       150
#define TYPES         3
#define SCRIBBLERS    2

struct area {
	uint8_t *at;
	size_t len;
};

struct scribbler {
	struct report *r;
	struct dice dice;
	struct end end[TYPES + 1]; /* the last one is its peer's */
	struct area area[AREAS];
	uint32_t nareas;
	int fd[FDS];
	uint32_t nfds;
};

/* --- the memory to overwrite --- */

/* Finds the engine's memory files, as this process has mapped them. */
static void
find_areas(struct scribbler *s)
{
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");

	while (f != NULL && s->nareas < AREAS && fgets(line, sizeof(line), f) != NULL) {
		uintptr_t from, to;

		if (strstr(line, "memfd:karst:") != NULL &&
			sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2)
			s->area[s->nareas++] = (struct area){(uint8_t *)from, to - from};
	}
	if (f != NULL)
		fclose(f);
	if (s->nareas == 0)
		child_fail(s->r, "no ring memory found");
}

static void
find_fds(struct scribbler *s)
{
	char path[64], to[64];
	int fd;

	for (fd = 3; fd < 256 && s->nfds < FDS; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0 && (strncmp(to, "anon_inode", 10) == 0 || strncmp(to, "socket", 6) == 0))
			s->fd[s->nfds++] = fd;
	}
}

/* --- overwriting it --- */

/* A number as rings hold it, or one near that, or any. */
static uint32_t
word(struct scribbler *s, uint32_t is)
{
	switch (dice_below(&s->dice, 8)) {
	case 0:
		return 0;
	case 1:
		return 1;
	case 2:
		return is + dice_below(&s->dice, 5) - 2;
	case 3:
		return is + 1u + dice_below(&s->dice, 256);
	case 4:
		return UINT32_MAX - dice_below(&s->dice, 4);
	case 5:
		return s->end[dice_below(&s->dice, TYPES + 1)].qp->qp_num;
	case 6:
		return 1u << dice_below(&s->dice, 32);
	default:
		return (uint32_t)dice_roll(&s->dice);
	}
}

/* Rings are at the beginning of a memory file; and their words are at the beginning of cache
 * lines. */
static void
scribble(struct scribbler *s)
{
	const struct area *a = &s->area[dice_below(&s->dice, s->nareas)];
	uint32_t within = (uint32_t)(a->len >> dice_below(&s->dice, 8));
	uint32_t at = dice_below(&s->dice, within & ~3u), i, n;

	at &= dice_below(&s->dice, 2) ? ~63u : ~3u;
	switch (dice_below(&s->dice, 8)) {
	case 0: /* any bytes */
		n = 1 + dice_below(&s->dice, 64);
		for (i = 0; i < n && at + i < a->len; i++)
			a->at[at + i] = (uint8_t)dice_roll(&s->dice);
		break;
	case 1: /* a copy of another place */
		n = dice_below(&s->dice, within & ~63u);
		memmove(a->at + at, a->at + (n & ~63u), at + 64 <= a->len ? 64 : 4);
		break;
	default: {
		_Atomic uint32_t *w = (_Atomic uint32_t *)(void *)(a->at + at);

		atomic_store(w, word(s, atomic_load(w)));
	}
	}
}

/* Descriptors whose other end the engine has. */
static void
abuse_fd(struct scribbler *s)
{
	int fd = s->fd[dice_below(&s->dice, s->nfds)];
	uint64_t x[4] = {dice_roll(&s->dice), UINT64_MAX - 1, 1, 0};
	int was = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, was | O_NONBLOCK);
	switch (dice_below(&s->dice, 4)) {
	case 0:
	case 1:
		(void)!write(fd, &x[dice_below(&s->dice, 4)], 8);
		break;
	case 2:
		(void)!read(fd, x, sizeof(x));
		break;
	default:
		/* rarely: after it the program gets no events any more */
		if (dice_below(&s->dice, 512) == 0)
			shutdown(fd, (int)dice_below(&s->dice, 3));
	}
}

static void *
scribble_on(void *arg)
{
	struct scribbler *s = arg;
	uint32_t gentle = dice_below(&s->dice, 3);

	for (;;) {
		if (dice_below(&s->dice, 64) == 0 && s->nfds > 0)
			abuse_fd(s);
		else
			scribble(s);
		atomic_fetch_add(&s->r->ops, 1);
		/* so that the queues also make progress between two of them */
		if (gentle > 0)
			usleep(1 + dice_below(&s->dice, 200 * gentle));
	}
	return NULL;
}

/* Unmaps a page of registered memory, or takes away or restores the access rights to it. */
static void
abuse_memory(struct scribbler *s)
{
	struct end *e = &s->end[dice_below(&s->dice, TYPES)];
	size_t page = 4096, off = page * dice_below(&s->dice, MEM_BYTES / 4096);

	switch (dice_below(&s->dice, 3)) {
	case 0:
		munmap(e->mem + off, page);
		break;
	case 1:
		mprotect(e->mem + off, page, PROT_NONE);
		break;
	default:
		mprotect(e->mem + off, page, PROT_READ | PROT_WRITE);
	}
}

/* --- working meanwhile --- */

static void
work(struct scribbler *s)
{
	static const enum karst_wr_opcode ops[] = {KARST_WR_RDMA_WRITE, KARST_WR_RDMA_READ,
		KARST_WR_SEND, KARST_WR_ATOMIC_FAA, KARST_WR_RDMA_WRITE};
	struct karst_cqe cqes[16];
	uint32_t i;

	for (i = 0; i <= TYPES; i++) {
		struct end *e = &s->end[i], *peer = &s->end[i == 0 ? TYPES : 0];
		uint32_t len = 8 * (1 + dice_below(&s->dice, 2000));

		end_post_recv(e, i, 0, MEM_BYTES);
		end_post(e, ops[dice_below(&s->dice, KARST_DIM(ops))], i, 0, len, peer,
			8 * dice_below(&s->dice, 1000));
		karst_poll_cq(e->cq, KARST_DIM(cqes), cqes);
		if (dice_below(&s->dice, 4) == 0)
			karst_req_notify_cq(e->cq, dice_below(&s->dice, 2));
		/* the lanes that the engine copies from and to are being overwritten */
		if (dice_below(&s->dice, 32) == 0)
			karst_resize_cq(e->cq, 1u << dice_below(&s->dice, 14));
	}
	if (dice_below(&s->dice, 64) == 0)
		abuse_memory(s);
}

static void
open_all(struct scribbler *s, const struct attack_start *start)
{
	static const enum karst_qp_type types[TYPES + 1] = {
		KARST_QPT_RC, KARST_QPT_UC, KARST_QPT_UD, KARST_QPT_RC};
	uint32_t i;

	for (i = 0; i <= TYPES; i++)
		if (end_open(&s->end[i], start->host, "scribbler", MEM_BYTES,
			    dice_below(&s->dice, 2)) != 0 ||
			end_qp(&s->end[i], types[i]) != 0)
			child_fail(s->r, "attaching: %s", karst_why());
	for (i = 0; i <= TYPES; i++)
		if (end_connect(&s->end[i], s->end[i == 0 ? TYPES : 0].qp->qp_num) != 0)
			child_fail(s->r, "connecting: %s", karst_why());
}

void
attack_scribble(struct report *r, void *arg)
{
	const struct attack_start *start = arg;
	static struct scribbler s;
	pthread_t thread;

	s.r = r;
	s.dice.state = start->seed;
	open_all(&s, start);
	find_areas(&s);
	find_fds(&s);
	atomic_store(&r->ready, true);
	if (pthread_create(&thread, NULL, scribble_on, &s) != 0)
		child_fail(r, "no thread");
	for (;;)
		work(&s);
}

/* --- the case --- */

/* The life of one program.  @return false: it could not even attach. */
static bool
one_life(const struct host *h, uint64_t seed, struct dice *d, uint64_t *written)
{
	struct child c[SCRIBBLERS];
	bool good = true;
	int i;

	for (i = 0; i < SCRIBBLERS; i++) {
		struct attack_start s = {h, seed + (uint64_t)i};

		if (!child_start(&c[i], attack_scribble, &s))
			return false;
	}
	for (i = 0; i < SCRIBBLERS; i++) {
		if (!child_until_ready(&c[i])) {
			note("scribbler of seed %" PRIu64 ": %s", seed + (uint64_t)i,
				c[i].report->fault);
			good = false;
		}
	}
	sleep_ms(dice_below(d, LIFE_MS));
	for (i = 0; i < SCRIBBLERS; i++) {
		*written += atomic_load(&c[i].report->ops);
		child_kill(&c[i]);
	}
	return good;
}

bool
case_scribble(const struct options *o)
{
	uint64_t until = now_ms() + 1000ull * o->seconds, lives = 0, written = 0;
	struct dice d = {o->seed};
	struct innocents in;
	struct usage before;
	struct host h;
	bool good;

	if (!host_up(&h, o->karstd))
		return false;
	/* allocations that are made once and kept are made first */
	good = one_life(&h, dice_roll(&d), &d, &written);
	good = innocents_start(&in, &h, dice_roll(&d)) && good;
	sleep_ms(200);
	host_usage(&h, &before);
	while (good && (o->seconds != 0 ? now_ms() < until : lives < DEFAULT_LIVES)) {
		good = one_life(&h, dice_roll(&d), &d, &written) && innocents_go_on(&in);
		lives++;
	}
	note("%" PRIu64 " times %d scribblers, who wrote %" PRIu64 " times", lives, SCRIBBLERS,
		written);
	good &= host_settles(&h, &before, o->grown);
	good &= innocents_stop(&in);
	return host_end(&h, good);
}
