/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Finds the lines of sections and entries in a file.  rte_cfgfile reads the same file afterwards,
 * and its n-th section and entry are the n-th ones here.  Lines that rte_cfgfile would misread or
 * silently ignore are errors here: lines that are neither sections nor entries, lines that are too
 * long, NUL bytes.  A duplicate section is an error, too, but does not prevent the rest from being
 * read.
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
		bool again;     /* a duplicate, which was reported */
		char name[64];
	} * section;
	uint32_t *entry; /* lines of the entries */
};

/**
 * @return 0, or -EINVAL if rte_cfgfile would not find what is found here; the errors were reported.
 * kd_scan_free() is needed in both cases.
 */
int kd_scan_file(struct kd_scan *s, const char *path, struct kd_faults *f);
void kd_scan_free(struct kd_scan *s);

#endif /* KARSTD_CONF_SCAN_H */
