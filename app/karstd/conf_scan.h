/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Where sections and entries of a file are.  rte_cfgfile reads the same file afterwards, and its
 * n-th section and entry are the n-th here; what it would misread or pass over in silence is an
 * error here: lines that are neither, lines that are too long, sections twice, NUL bytes.
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
		uint32_t first; /* entry */
		char name[64];
	} * section;
	uint32_t *entry; /* lines */
};

/** @return 0, or -EINVAL with errors said.  kd_scan_free() in both cases. */
int kd_scan_file(struct kd_scan *s, const char *path, struct kd_faults *f);
void kd_scan_free(struct kd_scan *s);

#endif /* KARSTD_CONF_SCAN_H */
