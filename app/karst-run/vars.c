/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Without a namespace, another variable is needed besides those that libibverbs has for the purpose
 * (SYSFS_PATH, RDMAV_DRIVERS). libibverbs ignores a device whose node in /dev/infiniband does not
 * exist, and checks that before it loads any driver.  So the provider must be in the process
 * before, to answer that call as well; LD_PRELOAD does that.
 */
#include "vars.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place.h"

static int
var_add(struct kr_vars *v, const char *name, const char *value)
{
	char *copy = value != NULL ? strdup(value) : NULL;

	if (value != NULL && copy == NULL)
		return -ENOMEM;
	v->var[v->n++] = (struct kr_var){name, copy};
	return 0;
}

/* Adds @value in front of the present value. */
static int
add_before(struct kr_vars *v, const char *name, int len, const char *value, const char *there)
{
	char *both;
	int ret;

	if (asprintf(&both, "%.*s%s%s", len, value, there != NULL ? ":" : "",
		    there != NULL ? there : "") < 0)
		return -ENOMEM;
	ret = var_add(v, name, both);
	free(both);
	return ret;
}

static const char *
var_of(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : NULL;
}

/* libibverbs uses IBV_DRIVERS only if there is no RDMAV_DRIVERS. */
static int
add_driver(struct kr_vars *v, const char *provider)
{
	const char *there = var_of("RDMAV_DRIVERS");

	return add_before(v, "RDMAV_DRIVERS", (int)(strlen(provider) - strlen(KR_PROVIDER_END)),
		provider, there != NULL ? there : var_of("IBV_DRIVERS"));
}

int
kr_vars_make(struct kr_vars *v, const char *socket, const char *provider, const char *tree,
	bool driver_file)
{
	int ret;

	memset(v, 0, sizeof(*v));
	ret = var_add(v, "KARST_SOCKET", socket);
	if (ret == 0)
		ret = var_add(v, "SYSFS_PATH", tree);
	if (ret == 0 && provider != NULL && !driver_file)
		ret = add_driver(v, provider);
	if (ret == 0 && provider != NULL && tree != NULL)
		ret = add_before(
			v, "LD_PRELOAD", (int)strlen(provider), provider, var_of("LD_PRELOAD"));
	if (ret != 0)
		kr_vars_free(v);
	return ret;
}

int
kr_vars_set(const struct kr_vars *v)
{
	unsigned int i;

	for (i = 0; i < v->n; i++) {
		const struct kr_var *e = &v->var[i];

		if ((e->value != NULL ? setenv(e->name, e->value, 1) : unsetenv(e->name)) != 0)
			return -errno;
	}
	return 0;
}

void
kr_vars_free(struct kr_vars *v)
{
	while (v->n > 0)
		free(v->var[--v->n].value);
}
