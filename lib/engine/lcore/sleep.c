/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What an lcore of karst_engine_start() does when there is nothing to do, with KARST_IDLE_SLEEP.
 *
 * For SLEEP_AFTER_NS the lcore continues to poll, since most pauses are short, and offers its
 * processor to other threads between two polls (sched_yield()).  If another thread uses the
 * processor, polling is wrong: a polling thread gets the processor back when the other's slice of
 * milliseconds is over, a sleeping thread when it is woken.  So for WANTED_NS after an offer that
 * took long (TAKEN_NS: a program that polls for completions returns the processor within a few
 * microseconds) the lcore polls for no longer than sleeping and waking would take.  Then it sleeps
 * in an epoll and can be woken by:
 *
 *   another lcore, a control call, a tap       its own eventfd, lc->wake_fd
 *   a thread that has made a copy for it       the same
 *   the end                                    the same
 *   the program that embeds the engine         the same
 *   an owner's program                         the eventfd of that owner for this lcore
 *   a port                                     the descriptor that the port was added with
 *   a timer                                    the timeout
 *
 * A busy lcore also offers its processor, in both polite modes: before it acknowledges what a
 * program is likely to answer (let_answer()), and from time to time when it is busy without a pause
 * (eng_sleep_busy()).  If the lcore never did so, the scheduler would delay a program that yields
 * the processor while it waits by a whole slice.
 *
 * No thread makes a system call for an lcore that is awake.  An lcore that is about to sleep sets
 * lc->asleep and the asleep word of each doorbell ring, executes a full fence, and checks once more
 * everything that those words stand for.  A thread that has queued work executes a fence, too, and
 * then reads the word: at least one of both sees the other.  Ports need no word, since their
 * descriptors are readable as long as frames wait.
 *
 * The eventfds are watched edge-triggered and never read: a program shares them, and could make a
 * read block.  A needless wake-up costs the lcore one turn; it is possible when a thread has
 * cleared the word just as the lcore woke up by itself.
 *
 * While it sleeps, the lcore is offline for RCU: it holds no pointer, and no thread waits for it.
 *
 * A port without a descriptor cannot wake the lcore, and a full queue does not signal when it has
 * drained; in both cases the lcore takes naps, which grow up to sleep_max_us.  If only frames of
 * such a port would go unnoticed, it takes the longer naps in the epoll, so that other work ends
 * them.
 */
#include "copies.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_AFTER_NS 50000u
/* If an offer of the processor took TAKEN_NS, another thread used it to compute; this is remembered
 * for WANTED_NS. */
#define TAKEN_NS  50000u
#define WANTED_NS 2000000u
/* An lcore that is busy without a pause offers the processor at this interval, so that the programs
 * that it serves do not wait for a whole slice. */
#define LCORE_BUSY_NS 100000u
/* After so many consecutive offers while idle that brought no work, the lcore first polls for a
 * while without offers: its work comes from elsewhere. */
#define VAIN_OFFERS   4u
#define LOOK_ALONE_NS 15000u
/* While other threads want the processor, it polls only for as long as sleeping and waking take. */
#define LOOK_WANTED_NS 5000u
/* Idle turns before the first nap, and the length of that nap. */
#define NAP_AFTER          64u
#define LCORE_NAP_FIRST_NS 2000u
/* Naps as short as this end before a wake-up would take effect: no thread needs to wake the
 * lcore. */
#define LCORE_NAP_SHORT_NS 16000u
#define NS                 1000000000u
/* How late timers of this thread may be. */
#define SLACK_NS 1000u

/* --- what can wake it --- */

int
eng_sleep_watch(struct eng_lcore *lc, int fd, bool edge)
{
	struct epoll_event want = {.events = edge ? EPOLLIN | EPOLLET : EPOLLIN};

	if (lc->epoll_fd < 0)
		return 0;
	return epoll_ctl(lc->epoll_fd, EPOLL_CTL_ADD, fd, &want) == 0 ? 0 : -errno;
}

void
eng_sleep_unwatch(struct eng_lcore *lc, int fd)
{
	if (lc->epoll_fd >= 0)
		epoll_ctl(lc->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

int
eng_sleep_init(struct eng_lcore *lc)
{
	lc->epoll_fd = lc->wake_fd = -1;
	if (lc->e->cfg.idle != KARST_IDLE_SLEEP)
		return 0;
	lc->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	lc->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (lc->epoll_fd < 0 || lc->wake_fd < 0)
		return -errno;
	return eng_sleep_watch(lc, lc->wake_fd, true);
}

void
eng_sleep_fini(struct eng_lcore *lc)
{
	if (lc->wake_fd >= 0)
		close(lc->wake_fd);
	if (lc->epoll_fd >= 0)
		close(lc->epoll_fd);
}

void
karst_engine_wake(int wake_fd)
{
	const uint64_t one = 1;
	ssize_t ret;

	/* The write fails only if the counter is full: then the lcore has been woken often
	 * enough. */
	ret = write(wake_fd, &one, sizeof(one));
	(void)ret;
}

void
eng_lcore_wake(struct eng_lcore *lc)
{
	if (lc->wake_fd < 0)
		return;
	/* Dekker with doze_off(): the work is queued before the asleep word is read */
	atomic_thread_fence(memory_order_seq_cst);
	if (karst_likely(atomic_load_explicit(&lc->asleep, memory_order_relaxed) == 0))
		return;
	/* relaxed: the eventfd orders.  Of many callers, one makes the system call. */
	if (atomic_exchange_explicit(&lc->asleep, 0, memory_order_relaxed) != 0)
		karst_engine_wake(lc->wake_fd);
}

/* --- sleeping --- */

static void
wake_up(struct eng_lcore *lc)
{
	uint32_t i;

	/* relaxed: a thread that sees the old value only makes a needless wake-up */
	atomic_store_explicit(&lc->asleep, 0, memory_order_relaxed);
	for (i = 0; i < lc->nbells; i++) {
		eng_bell_touch(lc, &lc->bells[i]);
		karst_bell_awake(&lc->bells[i].ring);
	}
	eng_bell_touch(lc, NULL);
}

static bool
bells_are_empty(struct eng_lcore *lc)
{
	bool empty = true;
	uint32_t i;

	for (i = 0; i < lc->nbells && empty; i++) {
		eng_bell_touch(lc, &lc->bells[i]);
		empty = karst_bell_empty(&lc->bells[i].ring);
	}
	eng_bell_touch(lc, NULL);
	return empty;
}

/* Announces that the lcore sleeps.  @return false: there is work after all. */
static bool
doze_off(struct eng_lcore *lc)
{
	uint32_t i;

	/* relaxed: the fence orders it */
	atomic_store_explicit(&lc->asleep, 1, memory_order_relaxed);
	for (i = 0; i < lc->nbells; i++) {
		eng_bell_touch(lc, &lc->bells[i]);
		karst_bell_doze(&lc->bells[i].ring);
	}
	eng_bell_touch(lc, NULL);
	/* Dekker with eng_lcore_wake() and karst_bell_must_wake() */
	atomic_thread_fence(memory_order_seq_cst);
	if (!rte_ring_empty(lc->mailbox) || !rte_ring_empty(lc->handoff) ||
		!rte_ring_empty(lc->loop) || lc->e->hooks->tap_waiting(lc) ||
		eng_copies_are_over(lc) ||
		!atomic_load_explicit(&lc->e->running, memory_order_relaxed))
		return false;
	return bells_are_empty(lc);
}

static void
pause_for(uint64_t ns)
{
	const struct timespec ts = {.tv_sec = (time_t)(ns / NS), .tv_nsec = (long)(ns % NS)};

	nanosleep(&ts, NULL);
}

/* Sleeps until the lcore is woken, until its next timer, or for @most_ns. */
static void
wait_for_work(struct eng_lcore *lc, uint64_t most_ns)
{
	uint64_t ns = karst_min_u64(eng_lcore_idle_ns(lc), most_ns);
	struct timespec ts = {.tv_sec = (time_t)(ns / NS), .tv_nsec = (long)(ns % NS)};
	struct epoll_event events[16];

	rte_rcu_qsbr_thread_offline(lc->e->rcu, lc->index);
	if (epoll_pwait2(lc->epoll_fd, events, (int)KARST_DIM(events),
		    ns == UINT64_MAX ? NULL : &ts, NULL) < 0 &&
		errno != EINTR)
		pause_for((uint64_t)lc->e->cfg.sleep_max_us * 1000); /* the kernel has no
								      * epoll_pwait2() */
	rte_rcu_qsbr_thread_online(lc->e->rcu, lc->index);
	stat_add(&lc->stats.sleeps, 1);
}

static void
lcore_sleep(struct eng_lcore *lc, uint64_t most_ns)
{
	if (doze_off(lc))
		wait_for_work(lc, most_ns);
	wake_up(lc);
}

/* Whether the lcore is woken for all work except frames of ports without descriptors, and what
 * queue pairs without copies send: these are tried again in each turn (tx.c). */
static bool
can_be_woken(const struct eng_lcore *lc)
{
	return lc->blocked == 0 && !karst_core_has_ready(lc->core) && lc->core->nlinger == 0;
}

/* Naps for a time that grows, but not past the next timer. */
static void
lcore_nap(struct eng_lcore *lc)
{
	uint32_t most_ns = lc->e->cfg.sleep_max_us * 1000;
	uint64_t ns;

	if (++lc->idle_run <= NAP_AFTER)
		return;
	/* a copier's wake-up ends a sleep, and comes late by at most a nap */
	ns = karst_min_u64(lc->nap_ns, eng_lcore_idle_ns(lc));
	lc->nap_ns = karst_min_u32(lc->nap_ns * 2, most_ns);
	if (ns == 0)
		return;
	if (ns > LCORE_NAP_SHORT_NS && can_be_woken(lc)) {
		lcore_sleep(lc, ns);
		return;
	}
	pause_for(ns);
	stat_add(&lc->stats.sleeps, 1);
}

/* Offers the processor to other threads, and measures whether one used it. */
static void
offer(struct eng_lcore *lc)
{
	uint64_t began = rte_rdtsc(), spent, spent_ns;

	sched_yield();
	lc->offered_tsc = rte_rdtsc();
	spent = lc->offered_tsc - began;
	lc->core->now_ns = engine_ns_at(lc->e, lc->offered_tsc);
	spent_ns = engine_ns_at(lc->e, lc->e->tsc_base + spent);
	eng_lcore_away(lc, spent_ns);
	if (spent_ns >= TAKEN_NS)
		lc->wanted_until = lc->core->now_ns + WANTED_NS;
	/* that time was used by others and is not part of the turn */
	lc->turn_tsc += spent;
	stat_add(&lc->stats.cycles, spent);
}

bool
eng_sleep_offer(struct eng_lcore *lc)
{
	if (lc->core->now_ns < lc->wanted_until)
		return false;
	offer(lc);
	return true;
}

/* Evaluates whether the offer before this turn let a program run that had work for the lcore. */
static void
judge_offer(struct eng_lcore *lc)
{
	if (!lc->offered_idle)
		return;
	lc->offered_idle = false;
	lc->vain_offers = lc->rang > 0 ? 0 : karst_min_u32(lc->vain_offers + 1, VAIN_OFFERS);
}

void
eng_sleep_idle_offer(struct eng_lcore *lc)
{
	uint64_t now = lc->core->now_ns;

	judge_offer(lc);
	if (lc->idle_since == 0)
		lc->idle_since = now;
	if (lc->vain_offers == VAIN_OFFERS && now - lc->idle_since < LOOK_ALONE_NS)
		return;
	offer(lc);
	lc->offered_idle = true;
}

/* Polls the send queues that have just become empty for the last time: from now on their programs
 * ring. */
static void
end_linger(struct eng_lcore *lc)
{
	while (lc->core->nlinger != 0)
		karst_core_linger(lc->core);
}

void
eng_sleep_reset(struct eng_lcore *lc)
{
	lc->idle_run = 0;
	lc->nap_ns = LCORE_NAP_FIRST_NS;
	lc->idle_since = 0;
}

void
eng_sleep_busy(struct eng_lcore *lc, bool polite)
{
	judge_offer(lc);
	eng_sleep_reset(lc);
	/* an offer in this turn is later than the beginning of the turn */
	if (polite && lc->turn_tsc > lc->offered_tsc &&
		engine_ns_at(lc->e, lc->e->tsc_base + lc->turn_tsc - lc->offered_tsc) >=
			LCORE_BUSY_NS)
		eng_sleep_offer(lc);
}

void
eng_sleep_idle(struct eng_lcore *lc)
{
	uint64_t now = lc->core->now_ns;

	bool wanted = now < lc->wanted_until;

	judge_offer(lc);
	if (wanted)
		end_linger(lc);
	if (lc->nblind > 0 || karst_core_has_active(lc->core) || !can_be_woken(lc)) {
		lcore_nap(lc);
		return;
	}
	if (lc->idle_since == 0)
		lc->idle_since = now;
	if (now - lc->idle_since < (wanted ? LOOK_WANTED_NS : SLEEP_AFTER_NS)) {
		if (!wanted)
			eng_sleep_idle_offer(lc);
		return;
	}
	lcore_sleep(lc, UINT64_MAX);
}

int
eng_sleep_begin(struct eng_lcore *lc)
{
	int slack;

	eng_sleep_reset(lc);
	if (lc->e->cfg.idle != KARST_IDLE_SLEEP)
		return 0;
	slack = prctl(PR_GET_TIMERSLACK);
	prctl(PR_SET_TIMERSLACK, SLACK_NS);
	return slack;
}

void
eng_sleep_end(int slack)
{
	if (slack > 0)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
}
