/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What an engine has, as verbs programs are to see it: a device for each port.
 */
#ifndef KARST_RUN_VIEW_H
#define KARST_RUN_VIEW_H

#include <sched.h>

#include "karst.h"

struct kr_device {
	char name[16]; /* karst0: the device */
	char node[16]; /* uverbs0: its character device */
	uint32_t port; /* of the engine, from 1 */
	uint64_t guid;
	struct karst_port_attr attr;
	union karst_gid *gid; /* attr.gid_tbl_len of them; an empty one is zero */
	uint8_t *gid_type;
};

struct kr_view {
	char socket[108]; /* absolute */
	struct karst_device_attr engine;
	struct kr_device *dev;
	uint32_t ndevs;
	cpu_set_t lcores; /* CPUs that the engine is bound to */
};

/** Asks the engine at @socket.  @return 0, or karst_open()'s -errno; *why is then a sentence, valid
 *  until the next call.  Names are chosen that the kernel has not given
 *  (kr_view_other_driver()). */
int kr_view_take(const char *socket, struct kr_view *v, const char **why);
void kr_view_free(struct kr_view *v);

/** Is CLASS/NAME in /sys/class a device of the kernel, and not one that another karst-run has put
 *  there around us? */
bool kr_view_other_driver(const char *class, const char *name);

/** As sysfs has it: xxxx:xxxx:xxxx:xxxx.  @text: 20 bytes. */
void kr_view_guid(uint64_t guid, char *text);
#define KR_GID_TEXT 40u
/** The same of a GID.  @text: KR_GID_TEXT bytes. */
void kr_view_gid(const union karst_gid *gid, char *text);

#endif /* KARST_RUN_VIEW_H */
