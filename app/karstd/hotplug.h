/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * PCI adapters that come and go.  All on the daemon's thread.
 *
 *	begin -> leaves? -> let_go -> returns? -> take -> begin ...
 */
#ifndef KARSTD_HOTPLUG_H
#define KARSTD_HOTPLUG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Why an adapter that was let go is not taken. */
enum kd_hotplug_bar {
	KD_HOTPLUG_NONE,
	KD_HOTPLUG_DRIVER, /* the kernel has bound it to another one */
	KD_HOTPLUG_RIGHTS, /* its node in /dev/vfio is not this user's */
};

/** Of a port; all zero: no adapter that can be unplugged. */
struct kd_hotplug {
	char name[32];           /* 0000:03:00.0 */
	char driver[32];         /* the kernel's, as it was when the adapter was opened */
	_Atomic bool asked;      /* the kernel wants it back; by a thread of DPDK's */
	bool away;               /* let go, and not taken again */
	enum kd_hotplug_bar bar; /* what was in the way when it was looked at last */
	uint32_t wait;           /* calls of kd_hotplug_returns() until it is tried */
};

/** The kernel's driver of a PCI device; empty: none. */
void kd_hotplug_driver(const char *name, char *driver, size_t len);

/** Watches the adapter @name, which DPDK has opened. */
void kd_hotplug_begin(struct kd_hotplug *h, const char *name);

/** Watches it no more. */
void kd_hotplug_end(struct kd_hotplug *h);

/** Whether the kernel waits for it. */
bool kd_hotplug_leaves(const struct kd_hotplug *h);

/** Gives it up.  Its ethdev is closed already.  @failed: it could not be used. */
void kd_hotplug_let_go(struct kd_hotplug *h, bool failed);

/** Whether an adapter that was let go can be taken again; to be asked each second.  What is in the
 * way is said, once. */
bool kd_hotplug_returns(struct kd_hotplug *h);

/** Has DPDK open it.  0, or what DPDK says. */
int kd_hotplug_take(struct kd_hotplug *h);

#endif /* KARSTD_HOTPLUG_H */
