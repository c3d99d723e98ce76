/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory that a driver unmaps in EAL's interrupt thread, while lcores may be using it.
 *
 * When the other end of a net_memif port goes, the driver of DPDK 22.11 says in a flag that the
 * port is not connected, and then unmaps the memory that both ends shared.  Its burst functions
 * look at the flag and then at the memory, and nothing makes the driver wait for who is in
 * between: an lcore that loses its processor there reads what is not mapped any more, and the
 * process ends.  A driver that waits by itself makes this file superfluous.
 *
 * So munmap() is ours: in the interrupt thread it waits until each lcore of each engine has
 * ended the turn that it was in.  Whoever calls a burst function after that has seen the flag.
 * All else is as in libc, whose function makes the same system call.  Drivers are libraries of
 * their own, and find the definition of the executable before that of libc; it is weak, for
 * programs that have one themselves.  What is in libkarst-engine.so is of its version, and
 * drivers do not find it: programs that embed the engine by that library and not by the archive
 * have the fault of the driver.
 *
 * It costs nothing where frames are received and sent.  A program that polls lcores itself and
 * stops to without karst_engine_release() makes the interrupt thread wait as it makes control
 * calls wait.
 */
#include "intr_unmap.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, karst_engine) engines = LIST_HEAD_INITIALIZER(engines);

void
eng_intr_unmap_add(struct karst_engine *e)
{
	eng_lock_patiently(e, &lock);
	LIST_INSERT_HEAD(&engines, e, unmap_next);
	pthread_mutex_unlock(&lock);
}

void
eng_intr_unmap_del(struct karst_engine *e)
{
	eng_lock_patiently(e, &lock);
	LIST_REMOVE(e, unmap_next);
	pthread_mutex_unlock(&lock);
}

static void
wait_for_lcores(void)
{
	struct karst_engine *e;

	pthread_mutex_lock(&lock);
	LIST_FOREACH(e, &engines, unmap_next)
		eng_ctl_quiesce(e);
	pthread_mutex_unlock(&lock);
}

/* By the name that drivers look for. */
__attribute__((weak, visibility("default"))) int eng_munmap(void *addr, size_t len) __asm__(
	"munmap");

int
eng_munmap(void *addr, size_t len)
{
	if (rte_thread_is_intr() != 0)
		wait_for_lcores();
	return (int)syscall(SYS_munmap, addr, len);
}
