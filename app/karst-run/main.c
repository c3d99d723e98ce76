/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-run: runs a program that uses libibverbs with karst's devices in view.
 *
 *   engine.c   finds the engine, or starts a private one
 *   view.c     asks it for its ports
 *   tree.c     writes what sysfs would say of them
 *   ns.c       puts that where the program looks, in namespaces of its own
 *   vars.c     or tells the program by variables
 *   netlink.c  and keeps it from asking the kernel
 *   minder.c   cleans up afterwards
 *
 * karst-run becomes the program in the end: see minder.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "minder.h"
#include "netlink.h"
#include "ns.h"
#include "opts.h"
#include "place.h"
#include "tree.h"
#include "vars.h"

/* Everything that is found out before anything is done. */
struct run {
	struct kr_opts o;
	struct kr_places places;
	struct kr_engine engine;
	char folder[KR_FOLDER];
	char tree[KR_FOLDER + 24];
	bool ns;
};

/* --- how --- */

static int
choose_mode(struct run *r)
{
	enum kr_ns_kind kind;
	char why[KR_NS_WHY];

	r->ns = r->o.mode != KR_MODE_ENV;
	if (r->o.mode != KR_MODE_AUTO)
		return -1;
	if (kr_ns_try(&r->engine.view, r->places.provider, &kind, why) == 0) {
		kr_tell(&r->o, "in its own %s", kr_ns_name(kind));
		return -1;
	}
	kr_tell(&r->o, "by variables, because namespaces cannot be had: %s", why);
	r->ns = false;
	return -1;
}

static int
make_tree(const struct run *r)
{
	int dir, ret = 0;

	kr_tree_remove(r->tree); /* of a process that had our number, and no minder any more */
	if (mkdir(r->tree, 0700) != 0)
		ret = -errno;
	dir = ret == 0 ? open(r->tree, O_DIRECTORY | O_CLOEXEC) : -1;
	if (ret == 0)
		ret = dir < 0 ? -errno : kr_tree_write(dir, &r->engine.view);
	if (dir >= 0)
		close(dir);
	if (ret != 0)
		return kr_fail("writing %s: %s", r->tree, strerror(-ret));
	return -1;
}

static int
start_minder(struct run *r)
{
	const char *tree = r->ns ? NULL : r->tree;
	int ret = 0;

	if (tree == NULL && r->engine.hold < 0)
		return -1; /* nothing will be left */
	snprintf(r->tree, sizeof(r->tree), "%s/tree.%d", r->folder, (int)getpid());
	if (tree != NULL)
		ret = kr_folder_make(r->folder);
	if (ret == 0)
		ret = kr_minder_start(r->folder, tree, r->engine.hold);
	return ret == 0 ? -1 : KR_EXIT_FAILED;
}

static int
set_vars(const struct run *r)
{
	const char *provider = r->places.has_provider ? r->places.provider : NULL;
	struct kr_vars v;
	int ret;

	ret = kr_vars_make(&v, r->engine.view.socket, provider, r->ns ? NULL : r->tree,
		r->ns && kr_ns_has_drivers());
	if (ret == 0)
		ret = kr_vars_set(&v);
	kr_vars_free(&v);
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
prepare(struct run *r)
{
	char why[KR_NS_WHY];
	int rc = choose_mode(r);

	if (rc < 0)
		rc = start_minder(r);
	if (rc < 0 && !r->ns)
		rc = make_tree(r);
	if (rc < 0)
		rc = set_vars(r);
	if (rc < 0 && r->ns && kr_ns_enter(&r->engine.view, r->places.provider, why) != 0)
		rc = kr_fail("namespaces cannot be had (%s); --mode env does without", why);
	return rc < 0 ? hide_netlink(r) : rc;
}

static int
become(char **argv)
{
	execvp(argv[0], argv);
	kr_fail("%s: %s", argv[0], strerror(errno));
	return errno == ENOENT ? KR_EXIT_NO_PROGRAM : KR_EXIT_NO_EXEC;
}

static int
run(struct run *r)
{
	int rc;

	if (!r->places.has_provider)
		kr_fail("%s is not there: programs will have no use of the devices",
			r->places.provider);
	rc = kr_engine_find(&r->o, &r->places, r->folder, &r->engine);
	if (rc >= 0)
		return rc;
	rc = prepare(r);
	if (rc < 0)
		rc = become(r->o.argv);
	kr_view_free(&r->engine.view);
	return rc;
}

int
main(int argc, char **argv)
{
	struct run r = {.engine.hold = -1};
	int rc = kr_opts_parse(argc, argv, &r.o);

	if (rc >= 0)
		return rc;
	kr_folder_path(r.folder);
	rc = kr_places_find(r.o.provider, &r.places);
	return rc >= 0 ? rc : run(&r);
}
