/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * PCI adapters that are unplugged and plugged in again while the daemon runs.
 *
 * The kernel does not take an adapter away from a process that has it open: vfio-pci asks for it,
 * and waits.  DPDK gets that request on a thread of its own, which only sets a flag here.  The
 * daemon's thread then releases the adapter, so that the kernel can continue.  The engine tells all
 * programs (karst_engine_port_lose).
 *
 * An adapter is opened again when one with the same address is bound to the same kernel driver as
 * before and may be opened.  Access to its group in /dev/vfio is checked, because by now the daemon
 * runs as an ordinary user.  The kernel may need a moment to remove the old adapter, during which
 * it seems to be present.  So for HOTPLUG_SETTLE_S nothing is tried unless the adapter has been
 * seen to be gone.
 */
#include "hotplug.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "karst_log.h"

#define HOTPLUG_SETTLE_S 5u  /* calls of kd_hotplug_returns() */
#define RETRY_S          30u /* after an adapter that was present could not be opened */
#define SYSFS            "/sys/bus/pci/devices/"

void
kd_hotplug_driver(const char *name, char *driver, size_t len)
{
	char path[128], link[256];
	const char *slash;
	ssize_t n;

	snprintf(path, sizeof(path), SYSFS "%s/driver", name);
	n = readlink(path, link, sizeof(link) - 1);
	link[n > 0 ? n : 0] = '\0';
	slash = strrchr(link, '/');
	snprintf(driver, len, "%s", slash != NULL ? slash + 1 : "");
}

/* Returns the adapter's node in /dev/vfio; empty: it has none, or none of that kind. */
static void
vfio_node(const char *name, char *node, size_t len)
{
	char path[128], link[256];
	const char *slash;
	ssize_t n;

	snprintf(path, sizeof(path), SYSFS "%s/iommu_group", name);
	n = readlink(path, link, sizeof(link) - 1);
	link[n > 0 ? n : 0] = '\0';
	slash = strrchr(link, '/');
	snprintf(node, len, "%s%s", slash != NULL ? "/dev/vfio/" : "",
		slash != NULL ? slash + 1 : "");
}

/* --- unplugged --- */

/* Runs on a thread of DPDK. */
static void
on_device_event(const char *name, enum rte_dev_event_type event, void *arg)
{
	struct kd_hotplug *h = arg;

	(void)name;
	/* relaxed: it orders no other accesses */
	if (event == RTE_DEV_EVENT_REMOVE)
		atomic_store_explicit(&h->asked, true, memory_order_relaxed);
}

void
kd_hotplug_begin(struct kd_hotplug *h, const char *name)
{
	snprintf(h->name, sizeof(h->name), "%s", name);
	kd_hotplug_driver(name, h->driver, sizeof(h->driver));
	atomic_store_explicit(&h->asked, false, memory_order_relaxed);
	h->away = false;
	if (rte_dev_event_callback_register(h->name, on_device_event, h) != 0)
		karst_log(KARST_LOG_WARNING, "%s: unplugging of this adapter is not noticed", name);
}

void
kd_hotplug_end(struct kd_hotplug *h)
{
	/* -EAGAIN: the callback is running */
	while (h->name[0] != '\0' && !h->away &&
		rte_dev_event_callback_unregister(h->name, on_device_event, h) == -EAGAIN)
		usleep(1000);
}

bool
kd_hotplug_leaves(const struct kd_hotplug *h)
{
	return h->name[0] != '\0' && !h->away &&
		atomic_load_explicit(&h->asked, memory_order_relaxed);
}

void
kd_hotplug_let_go(struct kd_hotplug *h, bool failed)
{
	int rc;

	kd_hotplug_end(h);
	rc = rte_eal_hotplug_remove("pci", h->name);
	if (rc != 0)
		karst_log(KARST_LOG_WARNING, "%s: DPDK cannot detach the adapter: %s", h->name,
			rte_strerror(-rc));
	h->away = true;
	h->bar = KD_HOTPLUG_NONE;
	h->wait = failed ? RETRY_S : HOTPLUG_SETTLE_S;
}

/* --- plugged in again --- */

/* Returns the obstacle for an adapter with that driver; logs it once as long as it is the same. */
static enum kd_hotplug_bar
bar_of(const struct kd_hotplug *h, const char *driver)
{
	char path[128];

	if (strcmp(driver, h->driver) != 0) {
		if (h->bar != KD_HOTPLUG_DRIVER)
			karst_log(KARST_LOG_WARNING,
				"the adapter %s is back, but its kernel driver is %s: bind it to "
				"%s (dpdk-devbind.py -b %s %s)",
				h->name, driver, h->driver, h->driver, h->name);
		return KD_HOTPLUG_DRIVER;
	}
	vfio_node(h->name, path, sizeof(path));
	if (strncmp(driver, "vfio", 4) == 0 && path[0] != '\0' && access(path, R_OK | W_OK) != 0) {
		if (h->bar != KD_HOTPLUG_RIGHTS)
			karst_log(KARST_LOG_WARNING,
				"the adapter %s is back, but %s is not for user %u to open: %s; "
				"\"chown %u %s\"",
				h->name, path, getuid(), strerror(errno), getuid(), path);
		return KD_HOTPLUG_RIGHTS;
	}
	return KD_HOTPLUG_NONE;
}

bool
kd_hotplug_returns(struct kd_hotplug *h)
{
	char driver[sizeof(h->driver)];

	if (!h->away)
		return false;
	/* there is no driver while it is being bound, either */
	kd_hotplug_driver(h->name, driver, sizeof(driver));
	if (driver[0] == '\0') {
		h->bar = KD_HOTPLUG_NONE;
		h->wait = 0;
		return false;
	}
	if (h->wait > 0) {
		h->wait--;
		return false;
	}
	h->bar = bar_of(h, driver);
	return h->bar == KD_HOTPLUG_NONE;
}

int
kd_hotplug_take(struct kd_hotplug *h)
{
	int rc = rte_eal_hotplug_add("pci", h->name, "");

	h->wait = RETRY_S;
	return rc;
}
