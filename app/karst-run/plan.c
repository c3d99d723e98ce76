/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "plan.h"

#include <stdio.h>
#include <string.h>

static void
print_gids(const struct kr_device *d)
{
	static const union karst_gid none;
	char text[KR_GID_TEXT];
	uint32_t i;

	for (i = 0; i < d->attr.gid_tbl_len; i++) {
		if (memcmp(&d->gid[i], &none, sizeof(none)) == 0)
			continue;
		kr_view_gid(&d->gid[i], text);
		printf("  gid %u: %s\n", i, text);
	}
}

void
kr_plan_engine(const struct kr_view *v)
{
	uint32_t i;

	printf("engine %s: %s, karst %s\n", v->socket, v->engine.engine, v->engine.version);
	for (i = 0; i < v->ndevs; i++) {
		const struct kr_device *d = &v->dev[i];
		const char *netdev = d->attr.netdev;

		printf("device %s: %s, port %u, %s%s%s\n", d->name, d->node, d->port, d->attr.name,
			netdev[0] != '\0' ? ", on " : "", netdev);
		print_gids(d);
	}
}

void
kr_plan_private(const struct kr_places *places, const char *folder)
{
	printf("engine %s/karst.sock: private, started by %s if it does not run yet\n", folder,
		places->karstd);
}

void
kr_plan_program(const char *provider, const struct kr_vars *vars, enum kr_ns_kind ns, bool hidden,
	char **argv)
{
	unsigned int i;

	printf("provider %s\n", provider);
	if (ns != KR_NS_NONE) {
		printf("namespaces: %s\n", kr_ns_name(ns));
		kr_ns_print();
	} else {
		puts("namespaces: none");
	}
	for (i = 0; i < vars->n; i++) {
		const struct kr_var *v = &vars->var[i];

		if (v->value != NULL)
			printf("set %s=%s\n", v->name, v->value);
		else
			printf("unset %s\n", v->name);
	}
	printf("netlink: %s\n", hidden ? "hidden" : "kept");
	if (argv[0] != NULL)
		printf("run %s\n", argv[0]);
}
