/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Tests of karst-run --doctor, each in a child. */
#ifndef KARST_RUN_TRY_H
#define KARST_RUN_TRY_H

struct kr_answer {
	int ret; /* 0: it works; 1: it works, but not well; -errno */
	char text[512];
};

typedef int kr_attempt(const char *arg, struct kr_answer *a);

/** @return a->ret, also if the child has died before it could report. */
int kr_try(kr_attempt *attempt, const char *arg, struct kr_answer *a);

/** Does libibverbs exist, with the private ABI that the provider needs?  Text: its file. */
kr_attempt kr_try_libibverbs;
/** Can the provider @arg be loaded, so that it registers with libibverbs? */
kr_attempt kr_try_provider;
/** Does the filter work? */
kr_attempt kr_try_netlink;
/** Can memory be registered with the engine at @arg?  Text: how it is reached. */
kr_attempt kr_try_memory;

#endif /* KARST_RUN_TRY_H */
