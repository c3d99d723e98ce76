/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The environment variables with which a program is started. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "vars.h"

#define SOCKET   "/run/k.sock"
#define PROVIDER "/lib/libkarst-rdmav34.so"

static struct kr_vars vars;

static void
clean(void)
{
	unsetenv("RDMAV_DRIVERS");
	unsetenv("IBV_DRIVERS");
	unsetenv("LD_PRELOAD");
	setenv("SYSFS_PATH", "/before", 1);
}

static void
made(const char *provider, const char *tree, bool driver_file)
{
	cr_assert_eq(kr_vars_make(&vars, SOCKET, provider, tree, driver_file), 0);
	cr_assert_eq(kr_vars_set(&vars), 0);
	kr_vars_free(&vars);
}

static void
is(const char *name, const char *value)
{
	const char *found = getenv(name);

	if (value == NULL)
		cr_assert_null(found, "%s=%s", name, found);
	else
		cr_assert_str_eq(found, value, "%s", name);
}

TestSuite(vars, .init = clean);

Test(vars, namespace_needs_none)
{
	made(PROVIDER, NULL, true);
	is("KARST_SOCKET", SOCKET);
	is("SYSFS_PATH", NULL);
	is("RDMAV_DRIVERS", NULL);
	is("LD_PRELOAD", NULL);
}

Test(vars, namespace_without_a_folder_of_drivers)
{
	made(PROVIDER, NULL, false);
	is("SYSFS_PATH", NULL);
	is("RDMAV_DRIVERS", "/lib/libkarst");
	is("LD_PRELOAD", NULL);
}

Test(vars, no_namespace)
{
	made(PROVIDER, "/tree", false);
	is("SYSFS_PATH", "/tree");
	is("RDMAV_DRIVERS", "/lib/libkarst");
	is("LD_PRELOAD", PROVIDER);
}

Test(vars, what_is_there_stays_behind)
{
	setenv("RDMAV_DRIVERS", "mlx5", 1);
	setenv("IBV_DRIVERS", "rxe", 1);
	setenv("LD_PRELOAD", "libx.so", 1);
	made(PROVIDER, "/tree", false);
	is("RDMAV_DRIVERS", "/lib/libkarst:mlx5");
	is("LD_PRELOAD", PROVIDER ":libx.so");
}

/* libibverbs ignores it when RDMAV_DRIVERS is set. */
Test(vars, the_older_name_counts)
{
	setenv("IBV_DRIVERS", "rxe", 1);
	made(PROVIDER, "/tree", false);
	is("RDMAV_DRIVERS", "/lib/libkarst:rxe");
}

Test(vars, no_provider)
{
	made(NULL, "/tree", false);
	is("SYSFS_PATH", "/tree");
	is("RDMAV_DRIVERS", NULL);
	is("LD_PRELOAD", NULL);
}
