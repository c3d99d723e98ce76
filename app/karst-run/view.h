/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The contents of an engine as verbs programs will see them: a device for each port.
 */
#ifndef KARST_RUN_VIEW_H
#define KARST_RUN_VIEW_H

#include <sched.h>

#include "karst.h"

struct kr_device {
	char name[16]; /* name of the device, karst0 */
	char node[16]; /* name of its character device, uverbs0 */
	uint32_t port; /* of the engine, from 1 */
	uint64_t guid;
	struct karst_port_attr attr;
	union karst_gid *gid; /* [attr.gid_tbl_len]; an empty entry is zero */
	uint8_t *gid_type;
};

struct kr_view {
	char socket[108]; /* absolute */
	struct karst_device_attr engine;
	struct kr_device *dev;
	uint32_t ndevs;
	cpu_set_t lcores; /* CPUs that the engine is bound to */
};

/**
 * Asks the engine at @socket.  @return 0, or karst_open()'s -errno; *why is then a sentence, valid
 * until the next call.  The chosen names are not used by the kernel (kr_view_other_driver()).
 */
int kr_view_take(const char *socket, struct kr_view *v, const char **why);
void kr_view_free(struct kr_view *v);

/**
 * Is CLASS/NAME in /sys/class a device of the kernel? false if another karst-run around this one
 * has put it there.
 */
bool kr_view_other_driver(const char *class, const char *name);

/** Formats a GUID as in sysfs: xxxx:xxxx:xxxx:xxxx.  @text: 20 bytes. */
void kr_view_guid(uint64_t guid, char *text);
#define KR_GID_TEXT 40u
/** The same for a GID.  @text: KR_GID_TEXT bytes. */
void kr_view_gid(const union karst_gid *gid, char *text);

#endif /* KARST_RUN_VIEW_H */
