/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Finds the lines of sections and entries in a file.  rte_cfgfile reads the same file afterwards,
 * and its n-th section and entry are the n-th ones here.  Lines that rte_cfgfile would misread or
 * silently ignore are errors here: lines that are neither sections nor entries, lines that are too
 * long, duplicate sections, NUL bytes.
 */
#ifndef KARSTD_CONF_SCAN_H
#define KARSTD_CONF_SCAN_H

#include "conf.h"

#define KD_COMMENT '#'

struct kd_scan {
	uint32_t nsections;
	uint32_t nentries;
	struct kd_scan_section {
		uint32_t line;
		uint32_t first; /* index of its first entry */
		char name[64];
	} * section;
	uint32_t *entry; /* lines of the entries */
};

/** @return 0, or -EINVAL if errors were reported.  kd_scan_free() is needed in both cases. */
int kd_scan_file(struct kd_scan *s, const char *path, struct kd_faults *f);
void kd_scan_free(struct kd_scan *s);

#endif /* KARSTD_CONF_SCAN_H */
