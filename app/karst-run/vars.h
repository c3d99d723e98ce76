/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The environment variables that a program is started with. */
#ifndef KARST_RUN_VARS_H
#define KARST_RUN_VARS_H

#include <stdbool.h>
#include <stddef.h>

#define KR_MAX_VARS 5

struct kr_var {
	const char *name;
	char *value; /* NULL: removed from the environment */
};

struct kr_vars {
	struct kr_var var[KR_MAX_VARS];
	unsigned int n;
};

/**
 * @provider: its path, or NULL if there is none.  @tree: the path of the tree, for a program
 * without a namespace of its own, or NULL.  @driver_file: libibverbs will find the provider without
 * a variable.  -ENOMEM
 */
int kr_vars_make(struct kr_vars *v, const char *socket, const char *provider, const char *tree,
	bool driver_file);
int kr_vars_set(const struct kr_vars *v);
void kr_vars_free(struct kr_vars *v);

#endif /* KARST_RUN_VARS_H */
