/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * PCI adapters that are unplugged and plugged in again.  All functions run on the daemon's thread.
 *
 *   begin -> leaves? -> let_go -> returns? -> take -> begin ...
 */
#ifndef KARSTD_HOTPLUG_H
#define KARSTD_HOTPLUG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The reason why an adapter that was released cannot be opened. */
enum kd_hotplug_bar {
	KD_HOTPLUG_NONE,
	KD_HOTPLUG_DRIVER, /* the kernel has bound it to another driver */
	KD_HOTPLUG_RIGHTS, /* the user of the daemon has no access to its node in /dev/vfio */
};

/** State of a port; all zero: it has no adapter that can be unplugged. */
struct kd_hotplug {
	char name[32];           /* 0000:03:00.0 */
	char driver[32];         /* the kernel's driver when the adapter was opened */
	_Atomic bool asked;      /* the kernel wants it back; set by a thread of DPDK */
	bool away;               /* released, and not opened again */
	enum kd_hotplug_bar bar; /* the obstacle that was found last */
	uint32_t wait;           /* calls of kd_hotplug_returns() until the next try */
};

/** Returns the kernel's driver of a PCI device; empty: none. */
void kd_hotplug_driver(const char *name, char *driver, size_t len);

/** Starts watching the adapter @name, which DPDK has opened. */
void kd_hotplug_begin(struct kd_hotplug *h, const char *name);

/** Stops watching it. */
void kd_hotplug_end(struct kd_hotplug *h);

/** Does the kernel wait for the adapter? */
bool kd_hotplug_leaves(const struct kd_hotplug *h);

/** Releases the adapter.  Its ethdev is closed already.  @failed: it could not be used. */
void kd_hotplug_let_go(struct kd_hotplug *h, bool failed);

/**
 * Can a released adapter be opened again?  To be called every second.  An obstacle is logged once.
 */
bool kd_hotplug_returns(struct kd_hotplug *h);

/** Lets DPDK open it. 0, or DPDK's error. */
int kd_hotplug_take(struct kd_hotplug *h);

#endif /* KARSTD_HOTPLUG_H */
