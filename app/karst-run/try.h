/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Things that karst-run --doctor tries, each in a child. */
#ifndef KARST_RUN_TRY_H
#define KARST_RUN_TRY_H

struct kr_answer {
	int ret; /* 0: it works; 1: it does, but not well; -errno */
	char text[512];
};

typedef int kr_attempt(const char *arg, struct kr_answer *a);

/** @return a->ret, also if the child has not lived to tell. */
int kr_try(kr_attempt *attempt, const char *arg, struct kr_answer *a);

/** Is libibverbs there, and of the private ABI that the provider is for?  Text: its file. */
kr_attempt kr_try_libibverbs;
/** Can the provider @arg be loaded, and is libibverbs told of it? */
kr_attempt kr_try_provider;
/** Does the filter work? */
kr_attempt kr_try_netlink;
/** Can memory be registered with the engine at @arg?  Text: how it is reached. */
kr_attempt kr_try_memory;

#endif /* KARST_RUN_TRY_H */
