/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Copies of an lcore: the driver's side of karst_copy.h.
 *
 * What lib/qp submits is done at the next safe point of the lcore's turn (lcore.c), after frames
 * were received or after they were sent: there, no entry point of the core is active, and all state
 * of the lcore is in its structure.  Nearly all copies are made there inline, since a copy takes
 * about as long as the packet that it belongs to; copies that would make the turn long wait for the
 * safe points of later turns.  If a program polls the lcore, copiers make all copies, since the
 * lcore cannot be taken from a thread of the program that waits.
 *
 * A copy refers to its bytes by the program's addresses and not by windows of this process, so a
 * region can be removed during the copy; the copy stops at the first byte that does not exist any
 * more.
 *
 * Order (R14): the last bytes of a message are a list entry of their own, after the others.
 *
 * Atomics on copied bytes are a read and a write under a lock of the program: they are atomic among
 * all lcores, but not with respect to the program's own instructions, to another program that
 * shares the page, or to an engine that has mapped it.  doc/memory.rst documents this for programs.
 * Each program has its own lock, because its holder may have to wait for that program.
 */
#include "copies.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "workers.h"

#define TAIL_BYTES 8u
#define PAGE       4096u
/* Free copies whose rooms keep their pages.  More are needed only when the memory of very many
 * programs is copied; the pages of the others return to the system. */
#define ROOMS_KEPT 16u
#define IOVS       (KARST_COPY_PARTS + 1)
/* A safe point begins no further copies after this time; the rest wait for the next safe point. */
#define COPY_NS 500000u

/* Most packets that an lcore keeps waiting.  They occupy buffers that are meant for rings and
 * windows.  Each copy has a place for its own packet; the others are for packets behind those. */
#define KEPT_MAX    1024u
#define KEPT_BEHIND (KEPT_MAX - ENG_COPIES)
/* A packet behind another one is kept only while more places are free than its user has.  For those
 * behind one that waits for a slow program, two further limits hold, so that most places are left
 * to other programs; but not for a user who has few: anyone's program may be taken for a slow
 * one. */
#define KEPT_SLOW (KEPT_BEHIND * 3 / 4)
#define KEPT_USER (KEPT_BEHIND / 4)
#define KEPT_FEW  (KEPT_BEHIND / 8)
/* In the mbuf of a packet that is kept: counted for no user. */
#define KEPT_FOR_NONE UINT32_MAX

static struct eng_copies *
copies_of(struct karst_core *core)
{
	return ((struct eng_lcore *)core->user)->copies;
}

/* --- moving bytes --- */

/* Builds the kernel's lists for the parts from @i up to @end that are in one space.  @return the
 * first part after them; *bytes: their length. */
static uint32_t
collect(const struct eng_copy *c, uint32_t i, uint32_t end, struct iovec *local,
	struct iovec *remote, unsigned int *niov, size_t *bytes)
{
	const struct karst_space *s = c->where[i].space;
	unsigned int v = 0;

	*bytes = 0;
	for (; i < end && c->where[i].space == s; i++) {
		const struct karst_copy_part *p = &c->pub.part[i];
		uint64_t there = c->where[i].remote;
		uint32_t n = p->n, tail = 0;

		*bytes += n;
		if (c->pub.end && i + 1 == c->pub.nparts && n > TAIL_BYTES)
			tail = TAIL_BYTES;
		n -= tail;
		if (v > 0 && (uint8_t *)local[v - 1].iov_base + local[v - 1].iov_len == p->local &&
			(uintptr_t)remote[v - 1].iov_base + remote[v - 1].iov_len == there) {
			local[v - 1].iov_len += n;
			remote[v - 1].iov_len += n;
		} else {
			local[v] = (struct iovec){p->local, n};
			remote[v++] = (struct iovec){(void *)(uintptr_t)there, n};
		}
		if (tail == 0)
			continue;
		local[v] = (struct iovec){p->local + n, tail};
		remote[v++] = (struct iovec){(void *)(uintptr_t)(there + n), tail};
	}
	*niov = v;
	return i;
}

static uint64_t
compute(const struct karst_copy *a, uint64_t old)
{
	switch (a->op) {
	case KARST_COPY_CAS:
		return old == a->compare ? a->operand : old;
	case KARST_COPY_FAA:
		return old + a->operand;
	default:
		return a->operand;
	}
}

/* A thread does not wait for the program while it waits for another thread of this process, which
 * may have no processor, or for the kernel to finish with this process's memory (watch.c). */
static void
set_inside(struct eng_copy *c, bool inside)
{
	/* relaxed: the watchdog checks repeatedly */
	atomic_store_explicit(&c->inside, inside, memory_order_relaxed);
}

/* From now on the thread waits for the program. */
static void
go_outside(struct eng_copy *c, const struct karst_space *s, _Atomic uint64_t *beat)
{
	if (beat != NULL)
		atomic_store_explicit(beat, engine_now(s->e), memory_order_relaxed);
	set_inside(c, false);
}

/* Touches the destination pages, so that their page faults happen here and not in the call that may
 * wait for the program. */
static void
touch_pages(const struct eng_copy *c)
{
	uint32_t i;

	for (i = 0; i < c->pub.nparts; i++) {
		volatile uint8_t *to = c->pub.part[i].local;
		uintptr_t at = (uintptr_t)to, end = at + c->pub.part[i].n;

		for (; at < end; at = (at | (PAGE - 1)) + 1)
			to[at - (uintptr_t)to] = 0;
	}
}

static bool
move_atomic(struct eng_copy *c, struct karst_space *s, _Atomic uint64_t *beat)
{
	struct iovec there = {(void *)(uintptr_t)c->where[0].remote, 8}, here = {&c->pub.old, 8};
	uint64_t value;
	bool ok;

	set_inside(c, true);
	pthread_mutex_lock(&s->atomics->lock);
	go_outside(c, s, beat);
	/* the request of a copy that was given up meanwhile has failed */
	ok = !karst_space_failed(s) &&
		(c->pub.op == KARST_COPY_STORE || eng_space_read(s, &here, &there, 1) == 8);
	value = compute(&c->pub, c->pub.old);
	here.iov_base = &value;
	if (ok)
		ok = eng_space_write(s, &here, &there, 1) == 8;
	pthread_mutex_unlock(&s->atomics->lock);
	return ok;
}

static uint32_t
move(struct eng_copy *c, uint64_t now_ns, _Atomic uint64_t *beat)
{
	struct iovec local[IOVS], remote[IOVS];
	uint32_t i = 0, moved = 0;

	while (i < c->pub.nparts) {
		struct karst_space *s = c->where[i].space;
		unsigned int niov;
		size_t bytes;
		ssize_t n;

		if (!eng_space_alive(s, now_ns))
			break;
		if (c->pub.op > KARST_COPY_READ)
			return move_atomic(c, s, beat) ? 8 : 0;
		i = collect(
			c, i, beat != NULL ? i + 1 : c->pub.nparts, local, remote, &niov, &bytes);
		n = c->pub.op == KARST_COPY_WRITE ? eng_space_write(s, local, remote, niov)
						  : eng_space_read(s, local, remote, niov);
		if (n == -ESRCH)
			eng_space_fail(s);
		if (n > 0)
			moved += (uint32_t)n;
		if (n != (ssize_t)bytes)
			break;
		if (beat == NULL)
			continue;
		now_ns = engine_now(s->e);
		atomic_store_explicit(beat, now_ns, memory_order_relaxed);
	}
	return moved;
}

uint32_t
eng_copy_execute(struct eng_copy *c, uint64_t now_ns, _Atomic uint64_t *beat)
{
	uint32_t moved;

	set_inside(c, true);
	if (c->pub.op == KARST_COPY_READ)
		touch_pages(c);
	go_outside(c, c->where[0].space, beat);
	moved = move(c, now_ns, beat);
	/* handing the copy in takes a lock */
	set_inside(c, true);
	/* relaxed: that lock orders the rest */
	atomic_store_explicit(&c->made, true, memory_order_relaxed);
	return moved;
}

/* --- what lib/qp asks for --- */

static struct karst_copy *
take(struct karst_core *core)
{
	struct eng_copies *cs = copies_of(core);
	struct eng_copy *c = cs->free;

	if (c != NULL) {
		cs->free = c->next;
		cs->nfree--;
	} else if (cs->cold != NULL) {
		c = cs->cold;
		cs->cold = c->next;
	} else if (cs->nused < ENG_COPIES) {
		c = &cs->copy[cs->nused];
		c->pub.room = cs->room[cs->nused++];
	} else {
		return NULL;
	}
	atomic_store_explicit(&c->phase, ENG_COPY_CORE, memory_order_relaxed);
	atomic_store_explicit(&c->made, false, memory_order_relaxed);
	c->dropped = c->handed = c->queued = c->awaited = c->unused = c->counted = c->slow = false;
	return &c->pub;
}

static uint16_t
user_hash(const struct eng_copies *cs, uid_t uid)
{
	return (uint16_t)((uint64_t)((uint32_t)uid * cs->salt) * ENG_USER_HASHES >> 32);
}

/* Whether there may be one more copy of its user: while more are free than he has, so users who
 * collude leave some to others, too.  The first one is not refused for the sake of packets that
 * arrive: two users who collude take all that there are for sending. */
static bool
may_copy(const struct eng_copies *cs, const struct eng_copy *c)
{
	uint32_t mine = cs->of_user[c->user].ncounted;
	bool first = c->pub.half == KARST_COPY_RX || mine == 0;

	return mine + cs->ncounted < (first ? ENG_COPIES : ENG_COPIES_MOST);
}

/* @return false: too many copies of its program wait. */
static bool
copy_accept(struct eng_lcore *lc, struct eng_workers *workers, struct eng_copy *c)
{
	bool allowed = eng_copy_allowed(lc->e, c);

	if (workers != NULL && allowed &&
		(workers->polled || eng_deferred_must(workers, c, lc->core->now_ns)))
		return eng_deferred_submit(lc, c);
	eng_copy_set(c, allowed ? ENG_COPY_TODO : ENG_COPY_VOID);
	eng_copy_append(&lc->copies->todo, c);
	return true;
}

static bool
submit(struct karst_core *core, struct karst_copy *pub)
{
	struct eng_lcore *lc = core->user;
	struct eng_copy *c = karst_container_of(pub, struct eng_copy, pub);
	/* acquire, pairs with the release in the thread that created it */
	struct eng_workers *workers = atomic_load_explicit(&lc->workers, memory_order_acquire);
	struct eng_copies *cs = lc->copies;
	uint32_t i;

	for (i = 0; i < pub->nparts; i++)
		c->where[i] = eng_place_of(pub->part[i].host, pub->part[i].n);
	c->user = user_hash(cs, c->where[0].space->uid);
	if (may_copy(cs, c) && copy_accept(lc, workers, c)) {
		cs->ncounted++;
		cs->of_user[c->user].ncounted++;
		c->counted = true;
		return true;
	}
	c->unused = true;
	return false;
}

/* The buffer whose private area is @pkt. */
static struct rte_mbuf *
mbuf_of(struct karst_pkt *pkt)
{
	return (struct rte_mbuf *)pkt - 1;
}

static void
release(struct karst_core *core, struct karst_pkt *pkt)
{
	struct eng_lcore *lc = core->user;
	struct rte_mbuf *m = mbuf_of(pkt);

	lc->copies->nkept--;
	if (m->hash.usr != KEPT_FOR_NONE) {
		lc->copies->nbehind--;
		lc->copies->of_user[m->hash.usr % ENG_USER_HASHES].nbehind--;
	}
	buffer_free(lc, m);
}

/* Nothing refers to the room of the copy any more. */
static void
make_free(struct eng_copies *cs, struct eng_copy *c)
{
	struct eng_copy **to = &cs->free;

	if (karst_unlikely(cs->nfree >= ROOMS_KEPT)) {
		madvise(c->pub.room, KARST_COPY_ROOM, MADV_DONTNEED);
		to = &cs->cold;
	} else {
		cs->nfree++;
	}
	c->next = *to;
	*to = c;
}

/* Frees a copy; until the next safe point, frames may still refer to its room. */
static void
spend(struct eng_lcore *lc, struct eng_copy *c)
{
	struct eng_copies *cs = lc->copies;
	if (c->counted) {
		cs->ncounted--;
		cs->of_user[c->user].ncounted--;
		cs->nspent += karst_core_has_starved(lc->core);
	}
	if (c->pub.pkt != NULL)
		release(lc->core, c->pub.pkt);
	c->pub.pkt = NULL;
	/* those that are not accepted must not keep others from getting one in this turn */
	if (c->unused) {
		make_free(cs, c);
		return;
	}
	c->next = cs->spent;
	cs->spent = c;
}

static void
give_back(struct karst_core *core, struct karst_copy *pub)
{
	struct eng_copy *c = karst_container_of(pub, struct eng_copy, pub);
	enum eng_copy_phase phase = eng_copy_phase(c);

	if (phase == ENG_COPY_CORE) {
		spend(core->user, c);
		return;
	}
	c->dropped = true;
	/* the next safe point may be far off, e.g. if the engine has been stopped */
	if (phase == ENG_COPY_TODO || phase == ENG_COPY_WAITING)
		eng_copy_set(c, ENG_COPY_VOID);
}

/* Copies a packet into a buffer of its own. */
static struct karst_pkt *
copy_of(struct eng_lcore *lc, const struct karst_pkt *pkt)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(lc->pool);
	struct karst_pkt *copy;

	if (m == NULL)
		return NULL;
	if (rte_pktmbuf_append(m, pkt->len) == NULL) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	copy = rte_mbuf_to_priv(m);
	*copy = *pkt;
	copy->data = rte_pktmbuf_mtod(m, uint8_t *);
	memcpy(copy->data, pkt->data, pkt->len);
	return copy;
}

/* Whether another packet may be kept with @c, which has the phase @phase. */
static bool
may_keep(const struct eng_copies *cs, const struct eng_copy *c, uint8_t phase)
{
	uint32_t mine = cs->of_user[c->user].nbehind, all = mine + cs->nbehind;

	/* the packet of the copy itself: it has a place */
	if (phase == ENG_COPY_CORE)
		return true;
	/* a long backlog grows only while more places are free than it has, so that a few QPs
	 * cannot take all places */
	if (all >= KEPT_BEHIND ||
		(c->pub.nbacklog >= KARST_COPY_BACKLOG &&
			c->pub.nbacklog + cs->nbehind >= KEPT_BEHIND))
		return false;
	/* also while it is not known yet that a program is slow: what is kept then may wait for as
	 * long as the rest */
	return !c->slow || mine < KEPT_FEW || (mine < KEPT_USER && all < KEPT_SLOW);
}

static struct karst_pkt *
keep(struct karst_core *core, struct karst_copy *pub, struct karst_pkt *pkt)
{
	const struct eng_copy *c = karst_container_of(pub, const struct eng_copy, pub);
	struct eng_lcore *lc = core->user;
	struct eng_copies *cs = lc->copies;
	/* relaxed: if it has just been made, the packet may be dropped without need */
	uint8_t phase = atomic_load_explicit(&c->phase, memory_order_relaxed);

	if (!may_keep(cs, c, phase))
		return NULL;
	if (cs->fleeting)
		pkt = copy_of(lc, pkt);
	if (pkt == NULL)
		return NULL;
	cs->nkept++;
	/* the packet of the copy itself is kept before it is known where it goes */
	mbuf_of(pkt)->hash.usr = phase == ENG_COPY_CORE ? KEPT_FOR_NONE : c->user;
	if (phase != ENG_COPY_CORE) {
		cs->nbehind++;
		cs->of_user[c->user].nbehind++;
	}
	return pkt;
}

static void
unkeep(struct karst_core *core, struct karst_pkt *pkt)
{
	(void)pkt;
	copies_of(core)->nkept--;
}

const struct karst_copy_ops eng_unmapped_ops = {
	.map = eng_unmapped_map,
	.take = take,
	.submit = submit,
	.give_back = give_back,
	.keep = keep,
	.unkeep = unkeep,
	.release = release,
};

/* Keeps packets that lib/qp holds until their turn (X4), in the buffers in which they arrived: the
 * pool has so many additional buffers. */
static struct karst_pkt *
hold(struct karst_core *core, struct karst_pkt *pkt)
{
	struct eng_lcore *lc = core->user;

	return lc->copies->fleeting ? copy_of(lc, pkt) : pkt;
}

static void
unhold(struct karst_core *core, struct karst_pkt *pkt)
{
	buffer_free(core->user, mbuf_of(pkt));
}

const struct karst_hold_ops eng_hold_ops = {.hold = hold, .release = unhold};

/* --- safe points --- */

void
eng_copy_finish(struct eng_lcore *lc, struct eng_copy *c, bool back)
{
	lc->copies->nawaited -= c->awaited;
	c->awaited = false;
	c->pub.moved = back ? c->result : 0;
	if (back)
		eng_copy_set(c, ENG_COPY_CORE);
	/* if a thread still works on it (not @back), lib/qp drops it later, and this function is
	 * called once more when the thread returns */
	if (!c->dropped)
		karst_copy_done(lc->core, &c->pub);
	else if (back)
		spend(lc, c);
}

void
eng_copy_return(struct eng_copies *cs, struct eng_copy *c)
{
	struct eng_copy *first = atomic_load_explicit(&cs->returned, memory_order_relaxed);

	/* release, pairs with take_returned() */
	do
		c->next = first;
	while (!atomic_compare_exchange_weak_explicit(
		&cs->returned, &first, c, memory_order_release, memory_order_relaxed));
}

static void
take_returned(struct eng_lcore *lc)
{
	struct eng_copy *c = NULL, *next;

	if (karst_unlikely(
		    atomic_load_explicit(&lc->copies->returned, memory_order_relaxed) != NULL))
		c = atomic_exchange_explicit(&lc->copies->returned, NULL, memory_order_acquire);
	for (; c != NULL; c = next) {
		next = c->next;
		eng_copy_finish(lc, c, true);
	}
}

/* @return false: another thread has the lcore now. */
static bool
copy_now(struct eng_lcore *lc, struct eng_workers *workers, struct eng_copy *c)
{
	uint64_t now = lc->core->now_ns, tsc = rte_rdtsc(), ns;
	bool asks = eng_copy_asks(c, now);
	struct eng_cost before = {0}, after;

	if (asks)
		eng_copy_cost(&before);

	if (workers == NULL)
		c->result = eng_copy_execute(c, now, NULL);
	else if (!eng_workers_copy(workers, c))
		return false;
	ns = (uint64_t)((unsigned __int128)(rte_rdtsc() - tsc) * lc->e->tsc_mul >> 32);
	if (ns < ENG_COPY_SLOW_NS)
		return true;
	if (asks)
		eng_copy_cost(&after);
	/* if the thread has slept, it is assumed to have waited for the program; otherwise it may
	 * have waited for the processor, and its CPU time counts */
	if (asks && after.sleeps == before.sleeps)
		ns = after.cpu_ns - before.cpu_ns;
	eng_copy_took(lc, c, now, asks ? ns : 0);
	return true;
}

void
eng_copies_hold(struct eng_copies *cs)
{
	struct eng_copy *c;

	for (c = cs->todo.head; c != NULL; c = c->next)
		if (eng_copy_phase(c) == ENG_COPY_TODO)
			eng_copy_set(c, ENG_COPY_WAITING);
}

bool
eng_copies_run(struct eng_lcore *lc)
{
	struct eng_workers *workers = atomic_load_explicit(&lc->workers, memory_order_acquire);
	uint64_t until = engine_now(lc->e) + COPY_NS;
	struct eng_copies *cs = lc->copies;
	struct eng_copy *c;
	struct eng_copy *waits = NULL;
	bool first, make;

	take_returned(lc);
	while ((c = cs->spent) != NULL) {
		cs->spent = c->next;
		make_free(cs, c);
	}
	if (workers != NULL)
		eng_deferred_exchange(workers);
	/* at least one, however slow the thread is, so that there is always progress */
	for (first = true;
		(first || engine_now(lc->e) < until) && (c = eng_copy_first(&cs->todo)) != NULL;
		first = false) {
		/* programs of its user may hold too many threads by now */
		make = eng_copy_phase(c) != ENG_COPY_VOID && eng_copy_allowed(lc->e, c);
		if (karst_unlikely(make && workers != NULL &&
			    eng_deferred_must(workers, c, lc->core->now_ns))) {
			/* e.g. the program became slow after this copy was submitted: another
			 * driver must not wait for it, too */
			if (eng_deferred_submit(lc, c))
				continue;
			eng_copy_append(&cs->todo, c);
			if (c == waits)
				break;
			if (waits == NULL)
				waits = c;
			continue;
		}
		c->result = 0;
		if (make && !copy_now(lc, workers, c))
			return false;
		eng_copy_finish(lc, c, true);
	}
	eng_copies_hold(cs);
	return true;
}

bool
eng_copies_are_over(const struct eng_lcore *lc)
{
	const struct eng_workers *workers =
		atomic_load_explicit(&lc->workers, memory_order_acquire);

	/* acquire, pairs with the copier's release */
	return workers != NULL &&
		karst_unlikely(atomic_load_explicit(&workers->over_any, memory_order_acquire));
}

bool
eng_copies_wait(const struct eng_lcore *lc)
{
	const struct eng_copies *cs = lc->copies;

	/* relaxed: take_returned() loads it again */
	return karst_unlikely(cs->todo.head != NULL || cs->unsent.head != NULL ||
		       cs->spent != NULL ||
		       atomic_load_explicit(&cs->returned, memory_order_relaxed) != NULL) ||
		eng_copies_are_over(lc);
}

/* --- life --- */

int
eng_copies_init(struct eng_lcore *lc)
{
	/* pages are allocated on first use; most lcores never use it */
	void *p = mmap(NULL, sizeof(struct eng_copies), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	uint64_t key[2];

	if (p == MAP_FAILED)
		return -ENOMEM;
	lc->copies = p;
	eng_secret(lc->e, ENG_SECRET_COPIES, lc->index, key);
	/* odd, so that each bit of a number has an effect */
	lc->copies->salt = (uint32_t)key[0] | 1;
	lc->breaks = eng_window_breaks();
	return 0;
}

void
eng_copies_fini(struct eng_lcore *lc)
{
	struct eng_copy *c;

	if (lc->copies == NULL)
		return;
	/* those that wait for the next start */
	for (c = lc->copies->todo.head; c != NULL; c = c->next)
		eng_copy_set(c, ENG_COPY_VOID);
	if (!lc->copies->left_behind)
		munmap(lc->copies, sizeof(struct eng_copies));
}
