/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Everything is tried, if possible, instead of asking whether it should work.  That is done in a
 * child, because a loaded provider cannot be unloaded, a namespace cannot be left, and a filter
 * cannot be removed.
 */
#include "doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine.h"
#include "hide.h"
#include "ns.h"
#include "private.h"
#include "try.h"

#define MEMLOCK_LEAST 32768 /* libibverbs warns at this limit or below */
#define HUGE_PAGES    "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
#define YAMA          "/proc/sys/kernel/yama/ptrace_scope"

struct visit {
	const struct kr_opts *o;
	const struct kr_places *places;
	const char *folder;
	struct kr_engine engine;
	bool has_engine; /* it answers */
	unsigned int nwrong;
};

/* --- printing --- */

__attribute__((format(printf, 3, 4))) static void
doctor_line(struct visit *v, const char *verdict, const char *fmt, ...)
{
	va_list ap;

	printf("%-6s ", verdict);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	v->nwrong += strcmp(verdict, "wrong") == 0;
}

#define ok(v, ...)    doctor_line(v, "ok", __VA_ARGS__)
#define note(v, ...)  doctor_line(v, "note", __VA_ARGS__)
#define wrong(v, ...) doctor_line(v, "wrong", __VA_ARGS__)

static long
number_in(const char *path)
{
	FILE *f = fopen(path, "re");
	long n = -1;

	if (f == NULL)
		return -1;
	if (fscanf(f, "%ld", &n) != 1)
		n = -1;
	fclose(f);
	return n;
}

/* --- the engine --- */

/* Checks the private engine that each program of this user will use. */
static void
doctor_check_private(struct visit *v)
{
	int rc;

	fflush(stdout);
	rc = kr_private_join(v->o, v->places, v->folder, &v->engine.view, &v->engine.hold);
	v->has_engine = rc < 0;
	if (v->has_engine)
		ok(v, "engine: a private one, %s at %s, karst %s", v->engine.view.engine.engine,
			v->engine.view.socket, v->engine.view.engine.version);
	else
		wrong(v,
			"engine: none answers, and a private one cannot be had, for the reason above: "
			"remove that, or start karstd and name its socket with --socket");
}

static void
check_running(struct visit *v, const char *socket)
{
	const struct karst_device_attr *e = &v->engine.view.engine;

	v->has_engine = true;
	if (strcmp(e->version, karst_version()) == 0)
		ok(v, "engine: %s at %s, karst %s", e->engine, socket, e->version);
	else
		note(v, "engine: %s at %s is karst %s, and this is %s; they work together",
			e->engine, socket, e->version, karst_version());
}

static void
check_engine(struct visit *v)
{
	const char *named = kr_engine_named(v->o), *why;
	const char *socket = named != NULL ? named : KARST_DEFAULT_SOCKET;
	int ret;

	if (v->o->private_engine) {
		doctor_check_private(v);
		return;
	}
	ret = kr_view_take(socket, &v->engine.view, &why);
	if (ret == 0)
		check_running(v, socket);
	else if (named == NULL && (ret == -ENOENT || ret == -ECONNREFUSED))
		doctor_check_private(v);
	else if (ret == -EACCES)
		wrong(v, "engine: %s; [socket] mode, owner and group of karst.conf(5) say who may",
			why);
	else if (ret == -EPROTO)
		wrong(v, "engine: %s; start karstd %s there", why, karst_version());
	else
		wrong(v,
			"engine: %s%s \"karstd --socket %s\" starts one there; --socket names another",
			why, ret == -ENOENT || ret == -ECONNREFUSED ? "" : ";", socket);
}

static void
doctor_check_ports(struct visit *v)
{
	static const union karst_gid none;
	uint32_t i, k, n;

	for (i = 0; i < v->engine.view.ndevs; i++) {
		const struct kr_device *d = &v->engine.view.dev[i];

		for (k = n = 0; k < d->attr.gid_tbl_len; k++)
			n += memcmp(&d->gid[k], &none, sizeof(none)) != 0;
		if (n == 0)
			wrong(v,
				"device %s: port %s has no address, so nobody can be reached by it: "
				"give it one in karst.conf",
				d->name, d->attr.name);
		else if (d->attr.state != KARST_PORT_ACTIVE)
			note(v, "device %s: the link of port %s is down", d->name, d->attr.name);
		else
			ok(v, "device %s: port %s, %u GIDs", d->name, d->attr.name, n);
	}
	if (v->has_engine && v->engine.view.ndevs == 0)
		wrong(v, "devices: the engine has no port: give it one in karst.conf");
}

/* --- libraries --- */

static void
check_libraries(struct visit *v)
{
	struct kr_answer a;

	if (kr_try(kr_try_libibverbs, NULL, &a) == 0)
		ok(v, "libibverbs: %s", a.text);
	else
		wrong(v, "libibverbs: %s", a.text);
	if (!v->places->has_provider)
		wrong(v,
			"provider: %s is not there: build or install all of karst, or name it with "
			"--provider",
			v->places->provider);
	else if (kr_try(kr_try_provider, v->places->provider, &a) == 0)
		ok(v, "provider: %s", v->places->provider);
	else
		wrong(v, "provider: it cannot be loaded: %s", a.text);
}

/* --- how programs see the devices --- */

static void
check_namespaces(struct visit *v)
{
	enum kr_ns_kind kind;
	char why[KR_NS_WHY];

	if (kr_ns_try(&v->engine.view, v->places->provider, &kind, why) == 0)
		ok(v, "namespaces: %s", kr_ns_name(kind));
	else
		note(v,
			"namespaces: none (%s): programs are told by variables, and those that read "
			"/sys/class/infiniband themselves see nothing; the sysctls are "
			"user.max_user_namespaces, kernel.unprivileged_userns_clone and "
			"kernel.apparmor_restrict_unprivileged_userns",
			why);
}

static void
check_netlink(struct visit *v)
{
	struct kr_answer a;

	if (!kr_netlink_present()) {
		ok(v, "netlink: the kernel has no list of RDMA devices of its own");
		return;
	}
	if (v->o->netlink == KR_NETLINK_KEEP)
		wrong(v,
			"netlink: the kernel has a list of RDMA devices, which libibverbs reads and "
			"karst is not in: leave out --netlink keep");
	else if (kr_try(kr_try_netlink, NULL, &a) == 0)
		ok(v, "netlink: the kernel's list of RDMA devices is hidden from programs");
	else
		wrong(v, "netlink: the kernel's list of RDMA devices cannot be hidden: %s", a.text);
}

/* --- memory --- */

static void
check_memory(struct visit *v)
{
	long scope = number_in(YAMA);
	struct kr_answer a;

	if (!v->has_engine)
		return;
	if (kr_try(kr_try_memory, v->engine.view.socket, &a) >= 0)
		doctor_line(v, a.ret == 0 ? "ok" : "note",
			"memory: the engine reaches that of programs; %s", a.text);
	else
		wrong(v, "memory: the engine does not reach that of programs: %s", a.text);
	if (scope > 0 && a.ret < 0)
		wrong(v,
			"ptrace: kernel.yama.ptrace_scope is %ld, which keeps an engine that is not "
			"root from memory of programs: set it to 0, or run karstd as root",
			scope);
}

static void
check_limits(struct visit *v)
{
	long huge = number_in(HUGE_PAGES);
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r) == 0 && geteuid() != 0 && r.rlim_cur <= MEMLOCK_LEAST)
		note(v,
			"limits: libibverbs will warn that RLIMIT_MEMLOCK is %llu; karst does not "
			"need it: ulimit -l ends the warning",
			(unsigned long long)r.rlim_cur);
	if (huge > 0)
		ok(v, "huge pages: %ld of 2 MiB are free", huge);
	else
		note(v,
			"huge pages: none is free; karst does without, somewhat slower: "
			"sysctl vm.nr_hugepages");
}

int
kr_doctor(const struct kr_opts *o, const struct kr_places *places, const char *folder)
{
	struct visit v = {.o = o, .places = places, .folder = folder, .engine.hold = -1};

	check_engine(&v);
	doctor_check_ports(&v);
	check_libraries(&v);
	check_namespaces(&v);
	check_netlink(&v);
	check_memory(&v);
	check_limits(&v);
	kr_view_free(&v.engine.view);
	if (v.engine.hold >= 0)
		close(v.engine.hold);
	if (v.nwrong == 0)
		puts("all is well");
	else
		printf("%u wrong\n", v.nwrong);
	return v.nwrong == 0 ? KR_EXIT_OK : KR_EXIT_UNWELL;
}
