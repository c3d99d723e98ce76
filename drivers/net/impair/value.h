/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Parse the values of a rule file into members of struct imp_conf_rule, by type. */
#ifndef IMPAIR_VALUE_H
#define IMPAIR_VALUE_H

#include "rules.h"

enum imp_type {
	IMP_NUM,
	IMP_WORD,
	IMP_OPCODES,
	IMP_QPNS,
	IMP_PSNS,
	IMP_NTHS,
	IMP_TRANSMISSIONS,
	IMP_PROBABILITY,
};

/** A row of impair_keys.def. */
struct imp_key {
	const char *section, *name;
	enum imp_type type;
	uint64_t def, least, most;
	const char *form;
	uint32_t actions;
	size_t offset; /* of the member in the section's structure */
};

#define IMP_WHY 160u

/**
 * Parses the value @text of @k and stores it in @section.
 * @return NULL; or the position of the mistake in @text, and @why (IMP_WHY bytes) tells what is
 *   wrong, but not what is allowed.
 */
const char *imp_value_parse(const struct imp_key *k, const char *text, void *section, char *why);

/** Formats what is allowed: "1 to 16", "rx, tx or both", ... */
void imp_value_allowed(const struct imp_key *k, char *to, size_t len);

#endif /* IMPAIR_VALUE_H */
