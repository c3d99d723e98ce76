/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory that a driver maps and unmaps in EAL's interrupt thread, while lcores may be using it.
 *
 * Burst functions of net_memif (DPDK 22.11) load the address of the memory that both ends share,
 * look at a flag that says whether the port is connected, and read the memory; and nothing makes
 * the interrupt thread wait for who is in between.  So an lcore that loses its processor there ends
 * the process:
 *
 *   - when the other end goes, the flag is cleared, and the memory unmapped;
 *   - when another one comes, the memory is mapped, and the flag set: the lcore may have an address
 *     from before, of what was unmapped, or of nothing.
 *
 * A driver that waits by itself makes this file superfluous.
 *
 * Two functions are ours, which in the interrupt thread wait until each lcore of each engine has
 * ended the turn that it was in: munmap(), and rte_eal_process_type(), which the driver calls when
 * all is mapped and before it sets the flag.  Whoever calls a burst function after that has seen
 * the flag, or the address.  All else is as in libc, whose function makes the same system call, and
 * in EAL.  Drivers are libraries of their own, and find the definitions of the executable before
 * those; they are weak, for programs that have some themselves, and with EAL as an archive its own
 * is taken.  What is in libkarst-engine.so is of its version, and drivers do not find it: programs
 * that embed the engine by that library and not by the archive have the fault of the driver.
 *
 * It costs nothing where frames are received and sent.  A program that polls lcores itself and
 * stops to without karst_engine_release() makes the interrupt thread wait as it makes control
 * calls wait.
 */
#include "intr_unmap.h"

#include "intr_socket.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_rwlock_t unmap_lock = PTHREAD_RWLOCK_INITIALIZER;
static LIST_HEAD(, karst_engine) unmap_engines = LIST_HEAD_INITIALIZER(unmap_engines);

void
eng_intr_serve_mine(void)
{
	struct karst_engine *e;

	pthread_rwlock_rdlock(&unmap_lock);
	LIST_FOREACH(e, &unmap_engines, unmap_next)
		eng_serve_mine(e);
	pthread_rwlock_unlock(&unmap_lock);
}

/* The interrupt thread reads the list while it waits for lcores. */
static void
lock_for_change(struct karst_engine *e)
{
	unsigned int times = 0;

	while (pthread_rwlock_trywrlock(&unmap_lock) != 0) {
		eng_intr_serve_mine();
		eng_back_off(e, &times);
	}
}

void
eng_intr_unmap_add(struct karst_engine *e)
{
	lock_for_change(e);
	LIST_INSERT_HEAD(&unmap_engines, e, unmap_next);
	pthread_rwlock_unlock(&unmap_lock);
}

void
eng_intr_unmap_del(struct karst_engine *e)
{
	lock_for_change(e);
	LIST_REMOVE(e, unmap_next);
	pthread_rwlock_unlock(&unmap_lock);
}

static void
wait_for_lcores(void)
{
	struct karst_engine *e;

	pthread_rwlock_rdlock(&unmap_lock);
	LIST_FOREACH(e, &unmap_engines, unmap_next)
		eng_ctl_quiesce(e);
	pthread_rwlock_unlock(&unmap_lock);
}

/* By the names that drivers look for. */
__attribute__((weak, visibility("default"))) int eng_munmap(void *addr, size_t len) __asm__(
	"munmap");

int
eng_munmap(void *addr, size_t len)
{
	if (rte_thread_is_intr() != 0)
		wait_for_lcores();
	return (int)syscall(SYS_munmap, addr, len);
}

__attribute__((weak, visibility("default"))) enum rte_proc_type_t eng_process_type(void) __asm__(
	"rte_eal_process_type");

enum rte_proc_type_t
eng_process_type(void)
{
	enum rte_proc_type_t (*of_eal)(void);

	/* EAL asks the same with locks of its memory held, for which an lcore's program may wait */
	if (rte_thread_is_intr() != 0 && eng_intr_is_memif(__builtin_return_address(0)))
		wait_for_lcores();
	*(void **)&of_eal = dlsym(RTLD_NEXT, "rte_eal_process_type");
	return of_eal();
}
