/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Protects memory that a driver maps and unmaps in EAL's interrupt thread while lcores may use it.
 *
 * Burst functions of net_memif (DPDK 22.11) load the address of the memory that both ends share,
 * check a flag that says whether the port is connected, and read the memory; nothing makes the
 * interrupt thread wait for a thread between these steps.  So an lcore that loses its processor
 * there crashes the process:
 *
 *   - when the peer goes, the flag is cleared and the memory unmapped;
 *   - when another peer comes, the memory is mapped and the flag set: the lcore may still have an
 *     old address, of unmapped memory, or NULL.
 *
 * A driver that waits by itself makes this file superfluous.
 *
 * This file defines two functions, which in the interrupt thread wait until each lcore of each
 * engine has ended its current turn: munmap(), and rte_eal_process_type(), which the driver calls
 * when everything is mapped and before it sets the flag.  Burst functions that are called after
 * that see the flag, or the address.  In all other respects they act as in libc, whose function
 * makes the same system call, and as in EAL.  Drivers are shared libraries and find the definitions
 * of the executable before those of libc and EAL.  The definitions are weak, for programs that have
 * their own; if EAL is linked as an archive, EAL's own definition is used.  Drivers do not find the
 * definitions in libkarst-engine.so, since its symbols are versioned: programs that embed the
 * engine by that shared library and not by the archive have the fault of the driver.
 *
 * Receiving and sending frames costs nothing more.  A program that polls lcores itself and stops
 * polling without karst_engine_release() makes the interrupt thread wait, as it makes control calls
 * wait.
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

/* Locks the list for a change.  The interrupt thread reads the list while it waits for lcores. */
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

/* Defined under the names that drivers call. */
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

	/* EAL calls the same function while it holds locks of its memory, for which an lcore's
	 * program may wait */
	if (rte_thread_is_intr() != 0 && eng_intr_is_memif(__builtin_return_address(0)))
		wait_for_lcores();
	*(void **)&of_eal = dlsym(RTLD_NEXT, "rte_eal_process_type");
	return of_eal();
}
