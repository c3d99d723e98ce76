/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Values of a rule file: text to members of struct imp_conf_rule, by type. */
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
	size_t offset; /* of the member */
};

#define IMP_WHY 160u

/**
 * Stores the value @text of @k in @section.
 * @return NULL; else where in @text the mistake is, and in @why (IMP_WHY bytes) what is wrong,
 *   without what is allowed.
 */
const char *imp_value_parse(const struct imp_key *k, const char *text, void *section, char *why);

/** "1 to 16", "rx, tx or both", ... */
void imp_value_allowed(const struct imp_key *k, char *to, size_t len);

#endif /* IMPAIR_VALUE_H */
