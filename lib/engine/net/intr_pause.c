/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Pauses EAL's interrupt thread while devices are stopped and closed.
 *
 * net_memif (DPDK 22.11) connects and disconnects in that thread, when its peer comes and goes, and
 * disconnects in the calling thread when it is stopped; the two are not serialized.  A device that
 * is stopped at the moment when its peer goes is disconnected twice: descriptors and memory are
 * closed and unmapped that may have another use by then.  And a peer may connect to a device that
 * is stopped but not yet closed; its connection then outlives the device.
 *
 * So an eventfd calls the interrupt thread, which waits in its callback until the device is closed.
 * No other callback can be running then, so drivers can unregister theirs at once.
 *
 * This is done only for drivers that are known to need it: drivers of adapters may wait in their
 * stop function for an interrupt, which would not come.  Other drivers that use the thread
 * serialize this themselves.
 *
 * A thread that waits here serves its own lcores, since the interrupt thread may be waiting for
 * them (intr_unmap.c).  A thread that has paused the interrupt thread waits for nothing but
 * devices, and must not make control calls.
 */
#include "intr_pause.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>

#include "intr_unmap.h"
#include "karst_engine.h"

enum pause_state { PAUSE_NONE, PAUSE_WANTED, PAUSE_HELD };

static pthread_mutex_t pause_turn = PTHREAD_MUTEX_INITIALIZER; /* held by the thread that pauses
								* it */
static pthread_mutex_t pause_lock = PTHREAD_MUTEX_INITIALIZER; /* for the following */
static pthread_cond_t pause_end = PTHREAD_COND_INITIALIZER;
static enum pause_state pause_state;
static struct rte_intr_handle *pause_handle;
static _Thread_local unsigned int pause_depth;

/* net_impair stops the device below it. */
static const char *const pause_drivers[] = {"net_memif", "net_impair"};

static void
pause_callback(void *arg)
{
	uint64_t n;

	/* the eventfd may be empty */
	if (read(rte_intr_fd_get(pause_handle), &n, sizeof(n)) < 0)
		return;
	pthread_mutex_lock(&pause_lock);
	if (pause_state == PAUSE_WANTED)
		pause_state = PAUSE_HELD;
	while (pause_state == PAUSE_HELD)
		pthread_cond_wait(&pause_end, &pause_lock);
	pthread_mutex_unlock(&pause_lock);
}

static int
pause_register(void)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), ret;
	struct rte_intr_handle *handle;

	if (fd < 0)
		return -errno;
	handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	ret = handle == NULL ? -ENOMEM : 0;
	if (ret == 0 &&
		(rte_intr_fd_set(handle, fd) != 0 ||
			rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) != 0))
		ret = -EINVAL;
	pause_handle = handle;
	if (ret == 0)
		ret = rte_intr_callback_register(handle, pause_callback, NULL);
	if (ret == 0)
		return 0;
	pause_handle = NULL;
	rte_intr_instance_free(handle);
	close(fd);
	return ret;
}

int
eng_intr_pause_init(void)
{
	int ret = 0;

	pthread_mutex_lock(&pause_lock);
	if (pause_handle == NULL)
		ret = pause_register();
	pthread_mutex_unlock(&pause_lock);
	return ret;
}

static bool
is_concerned(uint16_t ethdev)
{
	struct rte_eth_dev_info info;
	unsigned int i;

	if (rte_eth_dev_info_get(ethdev, &info) != 0 || info.driver_name == NULL)
		return false;
	for (i = 0; i < KARST_DIM(pause_drivers); i++)
		if (strcmp(info.driver_name, pause_drivers[i]) == 0)
			return true;
	return false;
}

static void
pause_nap(void)
{
	const struct timespec nap = {.tv_nsec = 50000};

	eng_intr_serve_mine();
	nanosleep(&nap, NULL);
}

static bool
is_held(void)
{
	bool held;

	pthread_mutex_lock(&pause_lock);
	held = pause_state == PAUSE_HELD;
	pthread_mutex_unlock(&pause_lock);
	return held;
}

static void
pause_set(enum pause_state to)
{
	pthread_mutex_lock(&pause_lock);
	pause_state = to;
	pthread_cond_signal(&pause_end);
	pthread_mutex_unlock(&pause_lock);
}

bool
karst_engine_intr_pause(uint16_t ethdev)
{
	const uint64_t one = 1;

	if (pause_handle == NULL || rte_thread_is_intr() != 0 || !is_concerned(ethdev))
		return false;
	if (pause_depth++ != 0)
		return true;
	while (pthread_mutex_trylock(&pause_turn) != 0)
		pause_nap();
	pause_set(PAUSE_WANTED);
	/* the counter cannot overflow: the callback reads it each time */
	(void)!write(rte_intr_fd_get(pause_handle), &one, sizeof(one));
	while (!is_held())
		pause_nap();
	return true;
}

void
karst_engine_intr_resume(bool paused)
{
	if (!paused || --pause_depth != 0)
		return;
	pause_set(PAUSE_NONE);
	pthread_mutex_unlock(&pause_turn);
}
