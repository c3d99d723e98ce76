/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * All attacks at the same time against one karstd, each by a user of its own, for a given time, or
 * until each has done what its line of the table below says.
 *
 * The checks are those of the other cases: the innocents make progress and find no wrong byte, and
 * afterwards karstd has the resources that it had before, when nothing was attached either.  How
 * long programs had to wait is printed, in two measures.  An innocent's longest pause is wall clock
 * time, and a busy machine adds to it.  The longest turn of the lcore is CPU time of the lcore,
 * which is what one attacker can take from all others, and should stay below GOAL_MS.  Neither is
 * judged: both depend on the machine.
 *
 * An attacker that fails is replaced: with limits for users, much is refused to those who take all
 * that there is.  An attack that makes no progress for as long as the longest wait here fails the
 * case, because it shows nothing, whether its processes cannot attach or hang.
 */
#include "hostile.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PROGRESS_S 30
#define LIFE_MS    400 /* of processes that are killed, at most */
#define NOT_YET    UINT64_MAX
#define LOOK_MS    20
#define GOAL_MS    5
#define WARM_PART  2      /* of what an attack has to do, before checks start */
#define ATTACKER   61236u /* the first of the users without names, if this is root */

static const struct attack {
	const char *name;
	void (*run)(struct report *r, void *arg);
	uint32_t processes;
	bool killed;     /* killed from time to time; the others are told to stop at the end */
	bool own_user;   /* it changes its user by itself, and needs root for that */
	uint64_t enough; /* operations that are enough, in a run without a given time */
} attacks[] = {
	{"scribble", attack_scribble, 2, true, false, 2000},
	{"kill", attack_kill, 2, true, false, 100},
	{"talk", attack_talk, 2, false, false, 4000},
	{"churn", attack_churn, 1, false, false, 100},
	{"takeaway", attack_takeaway, 1, false, false, 6},
	{"greed", attack_greed, 1, false, true, 200},
};

#define PLACES (KARST_DIM(attacks) * 4)

/* A process of an attack, and its successors. */
struct place {
	const struct attack *attack;
	struct child child; /* pid 0: none */
	uint64_t until;     /* when it is killed */
};

struct tally {
	uint64_t ops;   /* of processes that have ended */
	uint64_t lives; /* started */
	uint64_t ended; /* by themselves */
	uint64_t seen;  /* done, at the last check, */
	uint64_t since; /* and when that had changed */
	char fault[sizeof(((struct report *)NULL)->fault)];
};

struct soak {
	struct host host;
	struct dice dice;
	struct place place[PLACES];
	uint32_t nplaces;
	struct tally tally[KARST_DIM(attacks)];
	uint64_t pause_ms; /* the longest of an innocent, in the last round */
};

struct start {
	struct attack_start attack;
	const struct attack *what;
};

/* --- processes --- */

/* Another user than that of the innocents, as others on the machine are. */
static void
become_neighbour(struct report *r, uid_t uid)
{
	pid_t parent = getppid();

	if (geteuid() != 0)
		return;
	if (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0 ||
		setresuid(uid, uid, uid) != 0)
		child_fail(r, "becoming user %u: %s", uid, strerror(errno));
	/* a change of user resets both */
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

static void
attacker(struct report *r, void *arg)
{
	struct start *s = arg;

	if (!s->what->own_user)
		become_neighbour(r, ATTACKER + (uid_t)(s->what - attacks));
	s->what->run(r, &s->attack);
}

static uint64_t
end_of_life(struct soak *s, uint64_t now)
{
	return now + 1 + dice_below(&s->dice, LIFE_MS);
}

static bool
begin(struct soak *s, struct place *p, uint64_t now)
{
	struct start start = {{&s->host, dice_roll(&s->dice)}, p->attack};

	s->tally[p->attack - attacks].lives++;
	/* every second one has time to attach, however slow that is, before its time is counted */
	p->until = dice_below(&s->dice, 2) ? NOT_YET : end_of_life(s, now);
	return child_start(&p->child, attacker, &start);
}

static void
end(struct soak *s, struct place *p, bool by_itself)
{
	struct tally *t = &s->tally[p->attack - attacks];

	t->ops += atomic_load(&p->child.report->ops);
	if (by_itself) {
		t->ended++;
		memcpy(t->fault, p->child.report->fault, sizeof(t->fault));
	}
	child_kill(&p->child);
}

/* Replaces processes that have ended, and kills those whose time is over. */
static bool
mind(struct soak *s, uint64_t now)
{
	bool good = true;
	uint32_t i;

	for (i = 0; i < s->nplaces; i++) {
		struct place *p = &s->place[i];
		bool alive = p->child.pid != 0 && child_alive(&p->child);

		if (alive && p->until == NOT_YET && atomic_load(&p->child.report->ready))
			p->until = end_of_life(s, now);
		if (alive && !(p->attack->killed && now >= p->until))
			continue;
		if (p->child.pid != 0)
			end(s, p, !alive);
		good &= begin(s, p, now);
	}
	return good;
}

static bool
dismiss(struct soak *s)
{
	bool good = true;
	uint32_t i;

	for (i = 0; i < s->nplaces; i++) {
		struct place *p = &s->place[i];

		if (p->child.pid == 0)
			continue;
		if (p->attack->killed || !child_alive(&p->child)) {
			end(s, p, false);
			continue;
		}
		s->tally[p->attack - attacks].ops += atomic_load(&p->child.report->ops);
		good &= child_stop(&p->child, p->attack->name);
	}
	return good;
}

static void
fill_places(struct soak *s)
{
	uint32_t i, j;

	s->nplaces = 0;
	for (i = 0; i < KARST_DIM(attacks); i++)
		for (j = 0; j < attacks[i].processes && s->nplaces < PLACES; j++)
			s->place[s->nplaces++] = (struct place){.attack = &attacks[i]};
}

/* --- reports --- */

static double
longest_turn_ms(const struct host *h)
{
	return (double)host_ask(h, "/karst/lcores", "longest_turn_ns") / 1e6;
}

static uint64_t
longest_pause_ms(const struct innocents *in)
{
	uint64_t most = 0;
	int i;

	for (i = 0; i < INNOCENTS; i++) {
		uint64_t ms = atomic_load(&in->child[i].report->pause_ms);

		most = ms > most ? ms : most;
	}
	return most;
}

static uint64_t
ops_of(const struct soak *s, size_t attack)
{
	uint64_t ops = s->tally[attack].ops;
	uint32_t i;

	for (i = 0; i < s->nplaces; i++)
		if (s->place[i].attack == &attacks[attack] && s->place[i].child.pid != 0)
			ops += atomic_load(&s->place[i].child.report->ops);
	return ops;
}

/* @return false, after a note: an attack makes no progress. */
static bool
all_attack(struct soak *s, uint64_t now)
{
	size_t i;

	for (i = 0; i < KARST_DIM(attacks); i++) {
		struct tally *t = &s->tally[i];
		uint64_t ops = ops_of(s, i);

		if (ops != t->seen || t->since == 0) {
			t->seen = ops;
			t->since = now;
		} else if (now - t->since > HANG_S * 1000) {
			note("%s stands still after %" PRIu64 " operations; the last that ended: "
			     "%s",
				attacks[i].name, ops, t->fault);
			return false;
		}
	}
	return true;
}

static bool
all_did_enough(const struct soak *s, uint32_t part)
{
	size_t i;

	for (i = 0; i < KARST_DIM(attacks); i++)
		if (ops_of(s, i) < attacks[i].enough / part)
			return false;
	return true;
}

static void
progress(const struct soak *s, const struct innocents *in, uint64_t ms)
{
	char text[512];
	size_t i, n = 0;

	for (i = 0; i < KARST_DIM(attacks) && n < sizeof(text); i++)
		n += (size_t)snprintf(
			text + n, sizeof(text) - n, ", %s %" PRIu64, attacks[i].name, ops_of(s, i));
	note("%" PRIu64 " s: longest turn %.2f ms, longest pause %" PRIu64 " ms; done%s", ms / 1000,
		longest_turn_ms(&s->host), longest_pause_ms(in), text + 1);
}

/* @return false: an attack has done nothing. */
static bool
summary(const struct soak *s, double before_ms, double turn_ms, uint64_t pause_ms)
{
	bool good = true;
	size_t i;

	for (i = 0; i < KARST_DIM(attacks); i++) {
		const struct tally *t = &s->tally[i];

		note("%-10s %8" PRIu64 " processes, %8" PRIu64 " ended by themselves, did %" PRIu64
		     "%s%s",
			attacks[i].name, t->lives, t->ended, t->ops,
			t->fault[0] != '\0' ? "; the last that ended: " : "", t->fault);
		if (t->ops == 0) {
			note("%s has done nothing", attacks[i].name);
			good = false;
		}
	}
	note("longest pause of an innocent: %" PRIu64 " ms on the clock", pause_ms);
	note("longest turn of the lcore: %.2f ms of its CPU time (%.2f while all was made for the "
	     "first time); the goal is less than %d: %s",
		turn_ms, before_ms, GOAL_MS, turn_ms < GOAL_MS ? "kept" : "missed");
	note("%ld of its %ld turns took 5 ms or more",
		host_ask(&s->host, "/karst/lcores", "long_turns"),
		host_ask(&s->host, "/karst/lcores", "turns"));
	return good;
}

/* --- the case --- */

/* Runs for @ms, or, if that is 0, until each attack has done this part of enough. */
static bool
rage(struct soak *s, uint64_t ms, uint32_t part, struct innocents *in)
{
	uint64_t began = now_ms(), told = 0, now = began;
	bool good = true;

	fill_places(s);
	while (good && (ms != 0 ? now < began + ms : !all_did_enough(s, part))) {
		good = mind(s, now) && host_alive(&s->host);
		if (!good)
			note("karstd is gone, or no process can be made");
		good = good && innocents_go_on(in) && all_attack(s, now_ms());
		sleep_ms(LOOK_MS);
		now = now_ms();
		if ((now - began) / (PROGRESS_S * 1000) > told) {
			told = (now - began) / (PROGRESS_S * 1000);
			progress(s, in, now - began);
		}
	}
	return dismiss(s) && good;
}

/* Innocents among attacks. */
static bool
with_innocents(struct soak *s, uint64_t ms, uint32_t part)
{
	struct innocents in;
	bool good;

	good = innocents_start(&in, &s->host, dice_roll(&s->dice)) && rage(s, ms, part, &in);
	s->pause_ms = longest_pause_ms(&in);
	return innocents_stop(&in) && good;
}

/* Waits until all sessions have ended, and what is kept for a little while has gone. */
static bool
wait_until_alone(const struct soak *s, long owners)
{
	uint64_t until = now_ms() + HANG_S * 1000;

	while (host_ask(&s->host, "/karst/memory", "owners") > owners) {
		if (now_ms() > until) {
			note("sessions of programs that have gone do not end");
			return false;
		}
		sleep_ms(20);
	}
	sleep_ms(3000);
	return true;
}

bool
case_soak(const struct options *o)
{
	static struct soak s;
	double before_ms, turn_ms;
	struct usage fresh, before;
	bool good;

	s.dice.state = o->seed;
	if (!host_up(&s.host, o->karstd) || !host_for_all(&s.host))
		return false;
	host_usage(&s.host, &fresh);
	/* allocations that are made once and kept are made first */
	good = with_innocents(&s, 0, WARM_PART) && wait_until_alone(&s, fresh.owners);
	memset(s.tally, 0, sizeof(s.tally));
	host_usage(&s.host, &before);
	before_ms = longest_turn_ms(&s.host);
	good = good && with_innocents(&s, 1000ull * o->seconds, 1);
	turn_ms = longest_turn_ms(&s.host);
	good &= host_settles(&s.host, &before, o->grown);
	good &= summary(&s, before_ms, turn_ms, s.pause_ms);
	return host_end(&s.host, good);
}
