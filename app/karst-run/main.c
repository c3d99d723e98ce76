/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-run: runs a program that uses libibverbs so that it sees karst's devices.
 *
 *   engine.c   finds the engine, or starts a private one
 *   view.c     asks it for its ports
 *   tree.c     writes what sysfs would contain about them
 *   ns.c       mounts that where the program looks, in namespaces of its own
 *   vars.c     or tells the program by environment variables
 *   cpus.c     keeps the program off the engine's CPUs
 *   hide.c     and keeps it from asking the kernel
 *   reaper.c   cleans up afterwards
 *   smc.c      or, for a program of TCP sockets, only preloads a library
 *   plan.c     prints what would be done
 *   doctor.c   prints what is missing
 *
 * In the end karst-run executes the program in its own process: see reaper.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"
#include "engine.h"
#include "reaper.h"
#include "hide.h"
#include "ns.h"
#include "opts.h"
#include "place.h"
#include "plan.h"
#include "smc.h"
#include "tree.h"
#include "vars.h"

/* Everything that is found out before anything is changed. */
struct run {
	struct kr_opts o;
	struct kr_places places;
	struct kr_engine engine;
	char folder[KR_FOLDER];
	char tree[KR_FOLDER + 24];
	enum kr_ns_kind ns;
};

/* --- preparation --- */

static int
no_namespaces(const char *why)
{
	return kr_fail("namespaces cannot be had (%s); --mode env does without", why);
}

static int
choose_mode(struct run *r)
{
	char why[KR_NS_WHY];

	r->ns = KR_NS_NONE;
	if (r->o.mode == KR_MODE_ENV)
		return -1;
	if (kr_ns_try(&r->engine.view, r->places.provider, &r->ns, why) == 0)
		return -1;
	r->ns = KR_NS_NONE;
	if (r->o.mode == KR_MODE_NS)
		return no_namespaces(why);
	kr_tell(&r->o, "by variables, because namespaces cannot be had (%s)", why);
	return -1;
}

/* Writes the tree to @path, an empty folder, which is removed on failure. */
static int
write_tree(const struct run *r, const char *path)
{
	int ret, dir;

	dir = open(path, O_DIRECTORY | O_CLOEXEC);
	ret = dir < 0 ? -errno : kr_tree_write(dir, &r->engine.view);
	if (ret == 0)
		ret = kr_tree_nodes(dir, "dev/infiniband", &r->engine.view);
	if (ret == 0)
		ret = kr_tree_driver(dir, "libibverbs.d", r->places.provider);
	if (dir >= 0)
		close(dir);
	if (ret == 0)
		return -1;
	kr_tree_remove(path);
	return kr_fail("writing %s: %s", path, strerror(-ret));
}

/* Creates the tree.  The folder above it may be removed whenever it is empty; then both are created
 * again. */
static int
make_tree(const struct run *r)
{
	int ret;

	do {
		ret = kr_folder_make(r->folder);
		if (ret != 0)
			continue;
		kr_tree_remove(r->tree); /* left by a process that had the same number and whose
					  * reaper is gone */
		if (mkdir(r->tree, 0700) != 0)
			ret = errno == ENOENT ? -EAGAIN : -errno;
		else
			ret = kr_folder_check(r->folder);
	} while (ret == -EAGAIN);
	if (ret == 0)
		return write_tree(r, r->tree);
	return kr_fail("making %s: %s", r->tree, strerror(-ret));
}

static int
start_reaper(struct run *r)
{
	const char *tree = r->ns != KR_NS_NONE ? NULL : r->tree;

	if (tree == NULL && r->engine.hold < 0)
		return -1; /* nothing has to be cleaned up */
	return kr_reaper_start(r->folder, tree, r->engine.hold) == 0 ? -1 : KR_EXIT_FAILED;
}

static int
make_vars(const struct run *r, struct kr_vars *v)
{
	const char *provider = r->places.has_provider ? r->places.provider : NULL;
	bool ns = r->ns != KR_NS_NONE;

	return kr_vars_make(
		v, r->engine.view.socket, provider, ns ? NULL : r->tree, ns && kr_ns_has_drivers());
}

static int
set_vars(const struct run *r)
{
	struct kr_vars v;
	int ret = make_vars(r, &v);

	if (ret == 0) {
		ret = kr_vars_set(&v);
		kr_vars_free(&v);
	}
	return ret == 0 ? -1 : kr_fail("the environment: %s", strerror(-ret));
}

static int
hide_netlink(const struct run *r)
{
	int ret;

	if (!kr_netlink_hides(r->o.netlink, kr_netlink_present))
		return -1;
	kr_tell(&r->o, "the kernel's list of RDMA devices is hidden from it");
	ret = kr_netlink_hide();
	if (ret == 0)
		return -1;
	return kr_fail("the kernel's list of RDMA devices must be hidden from the program, which "
		       "does not see karst otherwise, and cannot (seccomp: %s)",
		strerror(-ret));
}

static int
choose_cpus(const struct run *r)
{
	int ret = kr_cpus_set(r->o.cpus, &r->engine.view.lcores);

	if (ret == -ENODATA)
		return kr_fail("--cpus spare: it may run on the CPUs of the engine's lcores alone; "
			       "--cpus all lets it");
	return ret == 0 ? -1 : kr_fail("--cpus: %s", strerror(-ret));
}

static int
enter_namespaces(struct run *r)
{
	char why[KR_NS_WHY];

	if (kr_ns_enter(&r->engine.view, r->places.provider, &r->ns, why) != 0)
		return no_namespaces(why);
	kr_tell(&r->o, "in its own %s", kr_ns_name(r->ns));
	return -1;
}

static int
run_prepare(struct run *r)
{
	/* trying namespaces takes as long as entering them, so that is only done if there is an
	 * alternative */
	bool must = r->o.mode == KR_MODE_NS, ns;
	int rc = must ? -1 : choose_mode(r);

	if (must)
		r->ns = KR_NS_MOUNT; /* provisional; set when the namespace is entered */
	ns = r->ns != KR_NS_NONE;
	snprintf(r->tree, sizeof(r->tree), "%s/tree.%d", r->folder, (int)getpid());
	if (rc < 0)
		rc = start_reaper(r);
	if (rc < 0 && !ns)
		rc = make_tree(r);
	if (rc < 0)
		rc = set_vars(r);
	if (rc < 0 && ns)
		rc = enter_namespaces(r);
	if (rc < 0)
		rc = choose_cpus(r);
	return rc < 0 ? hide_netlink(r) : rc;
}

static int
become(char **argv)
{
	int err;

	execvp(argv[0], argv);
	err = errno;
	kr_fail("%s: %s", argv[0], strerror(err));
	return err == ENOENT ? KR_EXIT_NO_PROGRAM : KR_EXIT_NO_EXEC;
}

/* --- actions --- */

static int
run_program(struct run *r)
{
	int rc = kr_engine_find(&r->o, &r->places, r->folder, &r->engine);

	if (rc < 0)
		rc = run_prepare(r);
	return rc < 0 ? become(r->o.argv) : rc;
}

static int
print_plan(struct run *r)
{
	struct kr_vars v;
	int rc = kr_engine_look(&r->o, &r->engine);

	if (rc > KR_EXIT_OK)
		return rc;
	if (rc == KR_EXIT_OK) {
		kr_plan_private(&r->places, r->folder);
		snprintf(r->engine.view.socket, sizeof(r->engine.view.socket), "%s/karst.sock",
			r->folder);
	} else {
		kr_plan_engine(&r->engine.view);
	}
	rc = choose_mode(r);
	snprintf(r->tree, sizeof(r->tree), "%s/tree.PID", r->folder);
	if (rc < 0 && make_vars(r, &v) == 0) {
		kr_plan_program(r->places.provider, &v, r->ns,
			kr_netlink_hides(r->o.netlink, kr_netlink_present), r->o.argv);
		kr_vars_free(&v);
	}
	return rc < 0 ? KR_EXIT_OK : rc;
}

static int
keep_tree(struct run *r)
{
	int rc = kr_engine_look(&r->o, &r->engine);

	if (rc == KR_EXIT_OK)
		return kr_fail("--keep-tree: no engine answers, and a private one would not stay: "
			       "start karstd, or name its socket with --socket");
	if (rc < 0 && mkdir(r->o.keep_tree, 0755) != 0)
		rc = kr_fail("making %s: %s", r->o.keep_tree, strerror(errno));
	if (rc < 0)
		rc = write_tree(r, r->o.keep_tree);
	return rc < 0 ? KR_EXIT_OK : rc;
}

static int
act(struct run *r)
{
	int rc;

	if (r->o.smc) {
		rc = kr_smc_prepare(&r->o);
		return rc < 0 ? become(r->o.argv) : rc;
	}
	rc = kr_places_find(r->o.provider, &r->places);
	if (rc >= 0)
		return rc;
	if (r->o.doctor)
		return kr_doctor(&r->o, &r->places, r->folder);
	if (!r->places.has_provider)
		return kr_fail("the provider, %s, is not there: build or install all of karst, or "
			       "name it with --provider",
			r->places.provider);
	if (r->o.print)
		return print_plan(r);
	return r->o.keep_tree != NULL ? keep_tree(r) : run_program(r);
}

int
main(int argc, char **argv)
{
	struct run r = {.engine.hold = -1};
	int rc = kr_opts_parse(argc, argv, &r.o);

	if (rc >= 0)
		return rc;
	kr_folder_path(r.folder);
	rc = act(&r);
	kr_view_free(&r.engine.view);
	return rc;
}
