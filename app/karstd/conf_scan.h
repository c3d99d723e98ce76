/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Reads the sections and entries of a file, with their lines.  A line that is neither, or that is
 * too long, is reported, and the lines after it are read all the same, so that one run reports all
 * errors of a file.
 */
#ifndef KARSTD_CONF_SCAN_H
#define KARSTD_CONF_SCAN_H

#include "conf.h"

struct kd_scan_entry {
	uint32_t line;
	char name[64];
	char value[KD_TEXT];
};

struct kd_scan {
	uint32_t nsections;
	uint32_t nentries;
	struct kd_scan_section {
		uint32_t line;
		uint32_t first; /* index of its first entry */
		bool refused;   /* a duplicate, or not a section's name; it was reported */
		char name[64];
	} * section;
	struct kd_scan_entry *entry;
};

/** Reads @path and reports its errors to @f.  kd_scan_free() is needed in any case. */
void kd_scan_file(struct kd_scan *s, const char *path, struct kd_faults *f);
void kd_scan_free(struct kd_scan *s);

#endif /* KARSTD_CONF_SCAN_H */
