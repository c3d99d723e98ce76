/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Converts values of karst.conf from text to structure members, depending on the type. */
#ifndef KARSTD_CONF_VALUE_H
#define KARSTD_CONF_VALUE_H

#include <stddef.h>

#include "conf.h"

enum kd_type {
	KD_U32,   /* uint32_t */
	KD_BYTES, /* uint64_t, suffixes K, M, G, T */
	KD_WORD,  /* uint32_t: index of the word */
	KD_LABEL, /* char[] */
	KD_CPUS,
	KD_PATH, /* char[] */
	KD_MODE,
	KD_USER,
	KD_GROUP,
	KD_DEVICE, /* char[] */
	KD_ADDRS,  /* adds to the list */
	KD_IP4,
	KD_IP6,
	KD_MAC,
	KD_IFNAME, /* char[] */
	KD_LOGFILE,
	KD_EIDENT, /* char[] */
	KD_FOLDER, /* char[]; may be empty */
};

/** A row of conf_keys.def. */
struct kd_key {
	const char *section;
	const char *name;
	enum kd_type type;
	const char *def;
	uint64_t least, most; /* range of a number */
	const char *form;     /* the words of KD_WORD; for other types a description of what is
			       * allowed */
	const char *unit;
	size_t offset; /* in the section's structure */
	size_t size;
};

#define KD_WHY 256u

/**
 * @return 0, or -EINVAL with the reason in @why (KD_WHY bytes), which does not include what is
 * allowed.
 */
int kd_value_parse(const struct kd_key *k, const char *text, void *at, char *why);

/** Describes the allowed values: "1 to 1000 us", "yield, poll or sleep", ... */
void kd_value_allowed(const struct kd_key *k, char *to, size_t len);

/** Is it a valid name of a port or an engine?  Letters, digits, '_', '-', '.'. */
bool kd_name_is_good(const char *name);

/** Does the kernel accept it as the name of an interface? */
bool kd_name_is_ifname(const char *name);

#endif /* KARSTD_CONF_VALUE_H */
