/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Copies that wait for this process, and not for the program: the program does not count as slow,
 * however long that takes.  And copies that wait behind one that a program holds up, or while their
 * region is remapped.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "copies.h"
#include "engine_priv.h"
#include "inside_bed.h"
#include "karst_ctl_sock.h"
#include "karst_owner.h"
#include "workers.h"

#define WAIT_NS 7000000000ull /* longer than a program has for a part of a copy */

/* Waits until a copy is under way, and then for longer than a program may take. */
static void
wait_long(struct rig *rig)
{
	uint64_t until = karst_engine_now_ns(rig->bed.e) + PATIENCE_NS;

	while (space_copies(rig) == 0) {
		cr_assert_lt(karst_engine_now_ns(rig->bed.e), until, "no copy was begun");
		poll_a_while(rig);
	}
	until = karst_engine_now_ns(rig->bed.e) + WAIT_NS;
	while (karst_engine_now_ns(rig->bed.e) < until && !karst_space_failed(rig->space))
		poll_a_while(rig);
	cr_assert_not(karst_space_failed(rig->space), "it was not the program that was late");
	cr_assert_gt(space_copies(rig), 0, "and the copy waits still");
}

/* The thread that has the lock of the program's atomics, here this thread, may get no processor. */
Test(inside, a_lock_that_a_thread_of_ours_has)
{
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	pthread_mutex_lock(&rig.space->atomics->lock);
	post_faa(&rig, 0, addr, r.key);
	wait_long(&rig);
	pthread_mutex_unlock(&rig.space->atomics->lock);
	/* its queue pair may have retried too often meanwhile */
	cr_assert(engine_bed_wait(&rig.bed, &cqe));
	cr_assert_eq(remote_op(&rig, 1, KARST_WR_RDMA_WRITE, 0, addr, 64, r.key), KARST_WC_SUCCESS);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* An attachment of the program @p, with a process number that tells nothing: programs in another
 * PID namespace have the number 0. */
static struct karst_space *
attach_unnumbered(struct rig *rig, const struct program *p, uid_t uid)
{
	struct karst_space *s;

	cr_assert_eq(karst_space_create(rig->bed.e, 0, p->pidfd, uid, 0, &s), 0);
	give_memory(s, p->pid);
	return s;
}

/* All attachments of a program have one lock, and no other program has it: not one of the same
 * process number, which may be used again while the lock is held. */
Test(inside, a_lock_for_each_program)
{
	struct karst_space *again, *changed, *other;
	struct program second;
	struct rig rig;

	program_start(&second, 0);
	rig_up(&rig);
	again = attach_unnumbered(&rig, &rig.prog, 0);
	changed = attach_unnumbered(&rig, &rig.prog, 65534);
	other = attach_unnumbered(&rig, &second, 0);
	cr_expect_eq(again->atomics, rig.space->atomics, "the same program's");
	cr_expect_eq(changed->atomics, again->atomics, "the same program's, as another user");
	cr_expect_neq(other->atomics, again->atomics, "another program's, of the same number");
	/* as when HELLO is repeated */
	give_memory(again, rig.prog.pid);
	cr_expect_eq(again->atomics, rig.space->atomics, "the same program's");
	karst_space_destroy(other);
	karst_space_destroy(changed);
	karst_space_destroy(again);
	program_end(&second);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* From now on an access to a page of the buffers that copies are made to waits until the descriptor
 * that this returns is closed. */
static int
hold_rooms(struct rig *rig)
{
	struct uffdio_api api = {.api = UFFD_API};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	uint32_t i;

	cr_assert_geq(fd, 0);
	cr_assert_eq(ioctl(fd, UFFDIO_API, &api), 0);
	for (i = 0; i < rig->bed.e->nlcores; i++) {
		struct eng_copies *cs = rig->bed.e->lcore[i].copies;
		struct uffdio_register reg = {
			.range = {(uintptr_t)cs->room, sizeof(cs->room)},
			.mode = UFFDIO_REGISTER_MODE_MISSING,
		};

		cr_assert_eq(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
	}
	return fd;
}

/* The kernel can make a thread wait for memory of this process, too, while other threads change its
 * mappings. */
Test(inside, pages_of_ours_that_come_late)
{
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	int fd;

	if (!can_migrate())
		cr_skip("needs userfaultfd, for accesses of the kernel as well");
	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	fd = hold_rooms(&rig);
	engine_bed_post(rig.near[0], KARST_WR_RDMA_READ, 1, rig.local, 4096, rig.local_key,
		(void *)(uintptr_t)addr, r.key);
	wait_long(&rig);
	close(fd);
	cr_assert(engine_bed_wait(&rig.bed, &cqe));
	cr_assert_eq(
		remote_op(&rig, 1, KARST_WR_RDMA_READ, 0, addr, 4096, r.key), KARST_WC_SUCCESS);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* A page that never becomes available blocks a thread that has the lock, and that thread blocks the
 * next: both count as stuck. */
Test(inside, a_lock_that_is_held_by_the_program)
{
	struct region r;
	struct rig rig;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up(&rig);
	never_region(&rig, &r);
	stick(&rig, r.addr, r.key);
	program_kill(&rig.prog);
	rig_down(&rig);
}

/* --- sleep --- */

#define SLEEPS 16u

/* An lcore that has a port which cannot wake it naps, also while copiers wait for a program. */
Test(inside, naps_while_a_copy_waits)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct karst_engine_lcore_stats stats;
	const struct eng_lcore *lc;
	uint64_t first = 0;
	struct region r;
	struct rig rig;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up_started(&rig);
	lc = &rig.bed.e->lcore[0];
	cr_assert_gt(lc->nblind, 0);
	never_region(&rig, &r);
	/* a driver makes the first copy, a copier the next */
	write_more(&rig, r.addr, r.key);
	while (atomic_load(&rig.space->slow.times) == 0)
		nanosleep(&nap, NULL);
	write_more(&rig, r.addr, r.key);
	do {
		cr_assert_eq(karst_engine_lcore_stats(rig.bed.e, 0, &stats), 0);
		if (__atomic_load_n(&lc->copies->nawaited, __ATOMIC_RELAXED) == 0)
			first = 0;
		else if (first == 0)
			first = stats.sleeps;
		cr_assert_not(karst_space_failed(rig.space),
			"it slept %u times while the copy waited",
			(unsigned int)(first != 0 ? stats.sleeps - first : 0));
		nanosleep(&nap, NULL);
	} while (first == 0 || stats.sleeps - first < SLEEPS);
	program_kill(&rig.prog);
	karst_engine_stop(rig.bed.e);
	rig_down(&rig);
}

/* --- no threads --- */

#define NO_THREADS_UID 54321 /* has none, and may have no more */

/* From now on no thread of this process can create another one, until it has its limit back. */
static void
forbid_threads(struct rlimit *limit)
{
	struct rlimit none;

	cr_assert_eq(getrlimit(RLIMIT_NPROC, limit), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit->rlim_max};
	cr_assert_eq(setresuid(NO_THREADS_UID, NO_THREADS_UID, 0), 0);
	cr_assert_eq(setrlimit(RLIMIT_NPROC, &none), 0);
}

/* A thread that waits for a program cannot be replaced, because there is no further thread.  A
 * second program does not stop the lcore: nothing of it is copied until there is a thread. */
Test(inside, no_thread_to_replace_the_driver)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct karst_space *other;
	struct program second;
	struct karst_cqe cqe;
	struct rlimit limit;
	struct eng_lcore *lc;
	struct region r;
	uint64_t addr;
	struct rig rig;
	uint32_t key;
	bool stands;

	if (access("/dev/fuse", R_OK | W_OK) != 0 || geteuid() != 0)
		cr_skip("needs /dev/fuse, and root");
	program_start(&second, 0);
	rig_up_started(&rig);
	lc = &rig.bed.e->lcore[0];
	never_region(&rig, &r);
	key = never_of(&rig, &second, &other, &addr);
	forbid_threads(&limit);
	write_more(&rig, r.addr, r.key);
	while (atomic_load(&lc->watched.taken_over) == 0)
		nanosleep(&nap, NULL);
	write_more(&rig, addr, key);
	while (atomic_load(&lc->watched.no_threads) == 0)
		nanosleep(&nap, NULL);
	engine_bed_post(rig.near[0], KARST_WR_RDMA_WRITE, 7, rig.local, 64, rig.local_key,
		rig.local + 64, rig.local_key);
	stands = !engine_bed_wait(&rig.bed, &cqe);
	cr_assert_eq(setrlimit(RLIMIT_NPROC, &limit), 0);
	/* then a thread copies for the second program, and waits for it */
	while (!stands && atomic_load(&other->slow.queued) != 0)
		nanosleep(&nap, NULL);
	/* this thread alone: others do not answer */
	cr_assert_eq(syscall(SYS_setresuid, 0, 0, 0), 0);
	/* this process cannot end as long as they exist */
	program_kill(&second);
	program_kill(&rig.prog);
	cr_assert_not(stands, "the lcore stands still");
	cr_assert_eq(cqe.wr_id, 7);
	karst_engine_stop(rig.bed.e);
	cr_assert_eq(karst_engine_mr_dereg_many(rig.bed.e, rig.key, rig.nkeys), 0);
	rig.nkeys = 0;
	karst_space_destroy(other);
	rig_down(&rig);
}

/* The driver makes copies again as soon as a thread has come back that could replace it, although
 * no further one can be created. */
Test(inside, a_thread_comes_back)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	const struct eng_workers *workers;
	struct rlimit limit;
	struct region r;
	struct rig rig;
	uint32_t i;

	if (access("/dev/fuse", R_OK | W_OK) != 0 || geteuid() != 0)
		cr_skip("needs /dev/fuse, and root");
	rig_up_started(&rig);
	while ((workers = atomic_load(&rig.bed.e->lcore[0].workers)) == NULL)
		nanosleep(&nap, NULL);
	never_region(&rig, &r);
	forbid_threads(&limit);
	write_more(&rig, r.addr, r.key);
	while (!atomic_load(&workers->alone))
		nanosleep(&nap, NULL);
	/* this thread alone; others cannot create threads */
	cr_assert_eq(syscall(SYS_setresuid, 0, 0, 0), 0);
	program_kill(&rig.prog);
	for (i = 0; i < PATIENCE_NS / 1000000 && atomic_load(&workers->alone); i++)
		nanosleep(&nap, NULL);
	cr_assert_not(atomic_load(&workers->alone), "copiers still make all copies");
	cr_assert_eq(setrlimit(RLIMIT_NPROC, &limit), 0);
	karst_engine_stop(rig.bed.e);
	rig_down(&rig);
}

/* --- a page of a ring that does not come --- */

/* Two queue pairs of lcore 0 that belong to two programs, and the pages of their send queues. */
static struct {
	struct karst_engine_owner *owner[2];
	struct karst_engine_cq *cq[2];
	struct karst_engine_qp *qp[2];
	uint8_t *page[2];
	int release[2]; /* a pipe: the first queue's page comes when it is closed */
} late;

static void
let_access(unsigned int i, int rights)
{
	if (mprotect(late.page[i], 4096, rights) != 0)
		abort();
}

/* The second queue pair is being visited: from now on the page of the first one does not come.  An
 * access to that page: the lcore sleeps. */
static void
on_fault(int sig, siginfo_t *info, void *context)
{
	const uint8_t *at = info->si_addr;
	char c;

	(void)sig;
	(void)context;
	if (at >= late.page[1] && at < late.page[1] + 4096) {
		let_access(1, PROT_READ | PROT_WRITE);
		let_access(0, PROT_NONE);
	} else if (at >= late.page[0] && at < late.page[0] + 4096) {
		while (read(late.release[0], &c, 1) > 0)
			;
		let_access(0, PROT_READ | PROT_WRITE);
	} else {
		abort();
	}
}

/* On the lcore, in a turn that then visits both, in this order. */
static int
ring_for_both(struct eng_lcore *lc, void *arg)
{
	struct rig *rig = arg;
	unsigned int i;

	/* queues that become empty go idle at once */
	lc->core->linger_turns = 0;
	for (i = 0; i < 2; i++) {
		/* instead of its doorbell, which would be looked at later in the turn */
		atomic_store(&late.qp[i]->sq.sh->idle, 0);
		engine_bed_post(late.qp[i], KARST_WR_RDMA_WRITE, i, rig->local, 64, rig->local_key,
			rig->local + 4096, rig->local_key);
		karst_core_doorbell(lc->core, late.qp[i]->num);
	}
	let_access(1, PROT_NONE);
	return 0;
}

/* Makes queue pair @i, whose rings are in pages of its own, for the program of @space. */
static void
late_make(struct rig *rig, unsigned int i, struct karst_space *space)
{
	const struct karst_engine_owner_init owner = {.name = "late", .max_qps = 4};
	struct karst_engine_cq_init cq = {.entries = 64};
	struct karst_engine_qp_init qp = {.type = KARST_QPT_RC,
		.pd = rig->bed.pd,
		.max_send_wr = 16,
		.max_recv_wr = 16,
		.max_dest_rd_atomic = 16};
	struct karst_engine *e = rig->bed.e;

	cr_assert_eq(karst_engine_owner_create(e, &owner, &late.owner[i]), 0);
	cq.owner = qp.owner = late.owner[i];
	cr_assert_eq(karst_engine_cq_create(e, &cq, &late.cq[i]), 0);
	qp.send_cq = qp.recv_cq = late.cq[i];
	cr_assert_eq(karst_engine_qp_create(e, &qp, &late.qp[i]), 0);
	engine_bed_connect(&rig->bed, late.qp[i], engine_bed_qp(&rig->bed, KARST_QPT_RC, 1));
	late.page[i] = (uint8_t *)((uintptr_t)late.qp[i]->sq.sh & ~4095ull);
	pthread_mutex_lock(&e->names_lock);
	e->lcore[0].space_of[late.qp[i]->num >> e->lcore_bits] = space;
	pthread_mutex_unlock(&e->names_lock);
}

static void
late_destroy(struct rig *rig, unsigned int i)
{
	struct karst_engine *e = rig->bed.e;

	pthread_mutex_lock(&e->names_lock);
	e->lcore[0].space_of[late.qp[i]->num >> e->lcore_bits] = NULL;
	pthread_mutex_unlock(&e->names_lock);
	cr_assert_eq(karst_engine_qp_destroy(e, late.qp[i]), 0);
	cr_assert_eq(karst_engine_cq_destroy(e, late.cq[i]), 0);
	cr_assert_eq(karst_engine_owner_destroy(late.owner[i]), 0);
}

/* The page of the first queue does not come, and the lcore loads its tail: the program whose queue
 * it is fails, within MOST_LATE_MS, and the other program does not.  Calls @fn on the lcore until
 * it returns 0; from then on the lcore comes to the page in the same turn. */
#define MOST_LATE_MS 20000u

static void
sleep_at_late(struct rig *rig, eng_fn fn)
{
	struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, was;
	const struct timespec nap = {.tv_nsec = 1000000};
	struct karst_space *space[2];
	struct karst_cqe cqe;
	uint32_t i;

	rig_up_started(rig);
	/* else queues end to linger before it sleeps */
	karst_engine_stop(rig->bed.e);
	rig->bed.e->cfg.idle = KARST_IDLE_POLL;
	cr_assert_eq(karst_engine_start(rig->bed.e, NULL), 0);
	space[0] = rig->space;
	space[1] = attach_unnumbered(rig, &rig->prog, 0);
	cr_assert_eq(pipe(late.release), 0);
	for (i = 0; i < 2; i++)
		late_make(rig, i, space[i]);
	cr_assert_eq(sigaction(SIGSEGV, &act, &was), 0);
	while (eng_mailbox_call(&rig->bed.e->lcore[0], fn, rig) != 0)
		nanosleep(&nap, NULL);
	for (i = 0;
		i < MOST_LATE_MS && !karst_space_failed(space[0]) && !karst_space_failed(space[1]);
		i++)
		nanosleep(&nap, NULL);
	cr_expect(karst_space_failed(space[0]), "the program whose queue it was");
	cr_expect_not(karst_space_failed(space[1]), "the other program");
	close(late.release[1]);
	for (i = 0; i < 2; i++)
		while (karst_engine_cq_poll(late.cq[i], &cqe, 1) == 0)
			nanosleep(&nap, NULL);
	cr_assert_eq(sigaction(SIGSEGV, &was, NULL), 0);
	close(late.release[0]);
	karst_engine_stop(rig->bed.e);
	for (i = 0; i < 2; i++)
		late_destroy(rig, i);
	karst_space_destroy(space[1]);
	program_end(&rig->prog);
	rig_down(rig);
}

/* An lcore sleeps as it looks once more into the queue of one program, after it has visited a queue
 * pair of another one. */
Test(inside, a_queue_that_is_looked_into_once_more)
{
	struct rig rig;

	sleep_at_late(&rig, ring_for_both);
}

/* On the lcore, until both queues have become empty and are polled.  The first call posts. */
static int
wait_for_lingering(struct eng_lcore *lc, void *arg)
{
	static bool posted;
	struct rig *rig = arg;
	unsigned int i;

	lc->core->linger_turns = 1u << 30;
	for (i = 0; i < 2 && !posted; i++)
		engine_bed_post(late.qp[i], KARST_WR_RDMA_WRITE, i, rig->local, 64, rig->local_key,
			rig->local + 4096, rig->local_key);
	posted = true;
	if (lc->core->nlinger < 2)
		return -EAGAIN;
	let_access(0, PROT_NONE);
	return 0;
}

/* An lcore sleeps as it polls a queue that became empty recently. */
Test(inside, a_queue_that_lingers)
{
	struct rig rig;

	sleep_at_late(&rig, wait_for_lingering);
}

/* --- many packets for a program that is not slow --- */

#define ROUNDS 50u
#define PAIRS  96u

struct load {
	uint32_t pairs;
	uint32_t messages; /* of a pair, each of one packet: fewer than may wait behind one */
};

static uint32_t
end_round(struct rig *rig, const struct load *l, struct karst_engine_qp **near, uint64_t addr,
	uint32_t key)
{
	struct karst_cqe cqe;
	uint32_t i, k, n;

	for (i = 0; i < l->pairs; i++)
		for (k = 0; k < l->messages; k++)
			engine_bed_post(near[i], KARST_WR_RDMA_WRITE, 1, rig->local, 1024,
				rig->local_key, (void *)(uintptr_t)(addr + i * 1024), key);
	for (n = 0; n < l->pairs * l->messages && engine_bed_wait(&rig->bed, &cqe); n++)
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	return n;
}

/* No packet was dropped for want of a copy; unless the program has seemed slow, as it may on a busy
 * machine. */
static void
expect_no_drops(struct rig *rig)
{
	struct karst_counters sum;
	uint32_t n;

	karst_engine_counters(rig->bed.e, KARST_ENGINE_ANY_LCORE, &sum);
	n = (uint32_t)sum.drop[KARST_DROP_COPY_FULL];
	cr_log_info("%u packets were dropped", n);
	if (atomic_load(&rig->space->slow.until_ns) == 0)
		cr_assert_eq(n, 0, "%u packets were dropped", n);
}

static void
load_lcore(const struct load *l)
{
	struct karst_engine_qp *near[PAIRS], *far;
	uint64_t addr, len, began;
	struct region r;
	struct rig rig;
	uint32_t i;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, PAIRS * 1024, true, UINT64_MAX, &r), 0);
	for (i = 0; i < l->pairs; i++) {
		near[i] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
		far = engine_bed_qp(&rig.bed, KARST_QPT_RC, 1);
		engine_bed_connect(&rig.bed, near[i], far);
	}
	began = karst_engine_now_ns(rig.bed.e);
	for (i = 0; i < ROUNDS; i++)
		cr_assert_eq(end_round(&rig, l, near, addr, r.key), l->pairs * l->messages);
	cr_log_info("%u messages in %u ms", ROUNDS * l->pairs * l->messages,
		(unsigned int)((karst_engine_now_ns(rig.bed.e) - began) / 1000000));
	expect_no_drops(&rig);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* Copiers make all copies of an lcore that is polled.  The packets that wait for them meanwhile are
 * not those of a slow program, and none is dropped as such. */
Test(inside, many_packets_of_a_polled_lcore)
{
	load_lcore(&(struct load){8, 48});
}

Test(inside, many_queue_pairs_of_a_polled_lcore)
{
	load_lcore(&(struct load){PAIRS, 2});
}

/* Slow programs of others have all copies that copiers make for slow programs.  Packets of a
 * program that is not slow get copies nevertheless, also a second one of its user. */
Test(inside, copies_beside_those_of_slow_programs)
{
	struct karst_engine_qp *near[2];
	struct eng_copies *cs;
	struct karst_cqe cqe;
	uint64_t addr, len;
	struct region r;
	struct rig rig;
	uint32_t i;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	near[0] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
	near[1] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
	for (i = 0; i < 2; i++)
		engine_bed_connect(&rig.bed, near[i], engine_bed_qp(&rig.bed, KARST_QPT_RC, 1));
	/* the first copy of an lcore makes its copiers */
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 64, r.key), KARST_WC_SUCCESS);
	cs = rig.bed.e->lcore[1].copies;
	cs->nawaited += ENG_COPIES_MOST;
	for (i = 0; i < 2; i++)
		engine_bed_post(near[i], KARST_WR_RDMA_WRITE, 1, rig.local, 64, rig.local_key,
			(void *)(uintptr_t)addr, r.key);
	for (i = 0; i < 2; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	}
	cs->nawaited -= ENG_COPIES_MOST;
	expect_no_drops(&rig);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* A copy of @user in @phase, with as many packets behind it as are kept.  @return how many. */
static uint32_t
keep_all(struct eng_lcore *lc, struct eng_copy *c, uint16_t user, enum eng_copy_phase phase,
	struct karst_pkt **kept)
{
	uint32_t n = 0;

	c->user = user;
	atomic_store(&c->phase, phase);
	for (;;) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(lc->pool);

		cr_assert_not_null(m);
		kept[n] = eng_unmapped_ops.keep(lc->core, &c->pub, rte_mbuf_to_priv(m));
		if (kept[n] == NULL) {
			rte_pktmbuf_free(m);
			return n;
		}
		n++;
	}
}

static struct eng_copy *
take_copy(struct eng_lcore *lc)
{
	return karst_container_of(eng_unmapped_ops.take(lc->core), struct eng_copy, pub);
}

static void
give_up(struct eng_lcore *lc, struct eng_copy *c, struct karst_pkt **kept, uint32_t n)
{
	while (n > 0)
		eng_unmapped_ops.release(lc->core, kept[--n]);
	atomic_store(&c->phase, ENG_COPY_CORE);
	eng_unmapped_ops.give_back(lc->core, &c->pub);
}

#define PLACES 1024 /* for packets that an lcore keeps, of which a quarter is for those of copies */

/* A slow program's copy that copiers cannot have yet waits for a safe point.  Behind it there are
 * no more packets than behind one that copiers have: others' packets have to be kept, too. */
Test(inside, packets_behind_a_copy_that_no_copier_has)
{
	struct karst_pkt *kept[PLACES + 1];
	struct eng_copy *c;
	struct eng_lcore *lc;
	struct rig rig;
	uint32_t n;

	rig_up(&rig);
	lc = &rig.bed.e->lcore[0];
	c = take_copy(lc);
	c->slow = true;
	n = keep_all(lc, c, 1, ENG_COPY_TODO, kept);
	cr_expect_leq(n, PLACES / 4, "%u packets are kept", n);
	give_up(lc, c, kept, n);
	rig_down(&rig);
}

/* Many packets of two users arrive before it is known that these users' programs are slow.  Then
 * they wait for as long as their memory does not come: a third one's packets are kept, too. */
Test(inside, packets_behind_copies_of_programs_that_become_slow)
{
	static struct karst_pkt *kept[3][PLACES + 1];
	struct eng_copy *c[3];
	struct eng_lcore *lc;
	struct rig rig;
	uint32_t i, n[3];

	rig_up(&rig);
	lc = &rig.bed.e->lcore[0];
	for (i = 0; i < 3; i++) {
		c[i] = take_copy(lc);
		n[i] = keep_all(lc, c[i], (uint16_t)(i + 1),
			i < 2 ? ENG_COPY_TODO : ENG_COPY_RUNNING, kept[i]);
	}
	cr_expect_geq(n[2], PLACES / 16, "after %u and %u packets, %u are kept", n[0], n[1], n[2]);
	for (i = 0; i < 3; i++)
		give_up(lc, c[i], kept[i], n[i]);
	rig_down(&rig);
}

/* --- queue pairs that wait for a copy --- */

#define WAITERS 32u
#define TURNS   4u /* in which those that wait try again: a quarter of them at most */

static struct {
	struct karst_copy_ops ops;
	uint32_t tries;
} no_copies;

static struct karst_copy *
take_none(struct karst_core *core)
{
	(void)core;
	no_copies.tries++;
	return NULL;
}

/* On the lcore: from now on it has no copies. */
static int
give_none(struct eng_lcore *lc, void *arg)
{
	(void)arg;
	no_copies.ops = *lc->core->copy_ops;
	no_copies.ops.take = take_none;
	lc->core->copy_ops = &no_copies.ops;
	return 0;
}

/* An lcore has made many copies, and then it has none for many queue pairs, which wait.  Only a few
 * of them try again in each turn, however many copies were made before. */
Test(inside, many_queue_pairs_that_wait_after_many_copies)
{
	struct karst_engine_qp *near, *far;
	uint64_t addr, len;
	struct region r;
	struct rig rig;
	uint32_t i;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	cr_assert_eq(rig.far[0]->lcore, 0);
	for (i = 0; i < 2 * WAITERS; i++)
		cr_assert_eq(
			own_op(&rig, KARST_WR_RDMA_WRITE, 0, addr, 64, r.key), KARST_WC_SUCCESS);
	engine_bed_settle(&rig.bed);
	cr_assert_eq(eng_mailbox_call(&rig.bed.e->lcore[0], give_none, NULL), 0);
	for (i = 0; i < WAITERS; i++) {
		near = engine_bed_qp(&rig.bed, KARST_QPT_RC, 1);
		far = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
		engine_bed_connect(&rig.bed, near, far);
		engine_bed_post(far, KARST_WR_RDMA_WRITE, 1, (void *)(uintptr_t)addr, 64, r.key,
			rig.local, rig.local_key);
	}
	while (no_copies.tries < WAITERS)
		karst_engine_poll(rig.bed.e, 0);
	for (i = 0; i < TURNS; i++)
		karst_engine_poll(rig.bed.e, 0);
	cr_assert_gt(no_copies.tries, WAITERS, "none has tried again");
	cr_assert_lt(
		no_copies.tries, 2 * WAITERS, "all have tried again: %u tries", no_copies.tries);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- a region that is remapped --- */

#define COPIES 8u /* more than copiers work on at a time for one program: some have not started */

/* Copies that wait for the program go on when its region is remapped to other addresses of the
 * engine, as after KARST_CTL_REREG_PIECES.  That call does not wait for the copies, because the
 * program that holds them up may be the one that waits for the call.  Memory that now has the old
 * addresses is not written to. */
Test(inside, copies_go_on_when_their_region_moves)
{
	const unsigned int rights =
		KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_READ;
	static struct program_pieces p;
	struct karst_space_region *again;
	struct karst_engine_qp *qp[2];
	struct region r, other;
	struct karst_cqe cqe;
	uint64_t addr, len;
	struct rig rig;
	uint32_t key, i;
	void *was;

	if (!can_migrate())
		cr_skip("needs userfaultfd");
	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_ANONYMOUS, &addr, &len), 0);
	cr_assert_geq(len, 32 * 4096);
	program_fill(&rig.prog, 1);
	cr_assert_eq(region_make(&rig, addr, 16 * 4096, true, UINT64_MAX, &r), 0);
	was = karst_space_host(r.r);
	/* a key without the right to atomics, which would keep the region at its addresses */
	cr_assert_eq(karst_engine_mr_reg(rig.bed.e, rig.bed.pd, was, addr, r.len, rights, &key), 0);
	rig.key[rig.nkeys++] = key;
	fill_local(&rig, r.len, 2);
	cr_assert_eq(program_hold_writers(&rig.prog, addr, r.len), 0);
	for (i = 0; i < COPIES; i++) {
		qp[0] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
		qp[1] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
		engine_bed_connect(&rig.bed, qp[0], qp[1]);
		engine_bed_post(qp[0], KARST_WR_RDMA_WRITE, 1, rig.local + i * 4096, 4096,
			rig.local_key, (void *)(uintptr_t)(addr + i * 4096), key);
	}
	while (space_copies(&rig) < COPIES)
		karst_engine_poll(rig.bed.e, 0);
	/* as a session does for the call */
	cr_assert_eq(program_register(&rig.prog, addr, r.len, true, UINT64_MAX, &p), 0);
	cr_assert_eq(karst_space_map(rig.space, addr, r.len, true, p.piece, p.n, p.fds, p.nfds,
			     &again, p.why),
		0, "%s", p.why);
	karst_ctl_close_fds(p.fds, p.nfds);
	cr_assert_eq(karst_engine_mr_remap(rig.bed.e, key, karst_space_host(again)), 0);
	region_drop(&rig, &r);
	cr_assert_eq(region_make(&rig, addr + 16 * 4096, 16 * 4096, true, UINT64_MAX, &other), 0);
	cr_assert_eq(karst_space_host(other.r), was);
	cr_assert_gt(space_copies(&rig), 0, "they wait yet");
	cr_assert_eq(program_release_writers(&rig.prog, addr, r.len), 0);
	for (i = 0; i < COPIES; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	}
	memset(rig.local, 0, r.len);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_READ, 0, addr, COPIES * 4096, key),
		KARST_WC_SUCCESS);
	expect_local(&rig, 0, COPIES * 4096, 2, "where it was meant to go");
	cr_assert(program_shows(&rig.prog, COPIES * 4096, len - COPIES * 4096, 1, COPIES * 4096),
		"and nowhere else");
	program_end(&rig.prog);
	rig_down(&rig);
}
