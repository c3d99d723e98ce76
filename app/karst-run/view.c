/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "view.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_NODES 1024

/* --- names --- */

bool
kr_view_other_driver(const char *class, const char *name)
{
	char path[PATH_MAX], ibdev[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/%s/%s", class, name);
	if (access(path, F_OK) != 0)
		return false;
	snprintf(path, sizeof(path), "/sys/class/%s/%s/ibdev", class, name);
	f = fopen(path, "re");
	if (f != NULL) {
		if (fscanf(f, "%63s", ibdev) == 1)
			name = ibdev;
		fclose(f);
	}
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/karst", name);
	return access(path, F_OK) != 0;
}

/* Returns the first name from @from on for which the kernel has no @class/@prefixN. */
static int
free_name(const char *class, const char *prefix, uint32_t *from, char *name, size_t size)
{
	for (; *from < MAX_NODES; (*from)++) {
		snprintf(name, size, "%s%u", prefix, *from);
		if (!kr_view_other_driver(class, name)) {
			(*from)++;
			return 0;
		}
	}
	return -ENFILE;
}

/* Returns the EUI-64 of a MAC address, as RoCE adapters use it. */
static uint64_t
guid_of(const uint8_t *mac)
{
	return (uint64_t)(mac[0] ^ 2u) << 56 | (uint64_t)mac[1] << 48 | (uint64_t)mac[2] << 40 |
		0xfffeull << 24 | (uint64_t)mac[3] << 16 | (uint64_t)mac[4] << 8 | mac[5];
}

void
kr_view_guid(uint64_t guid, char *text)
{
	snprintf(text, 20, "%04x:%04x:%04x:%04x", (unsigned int)(guid >> 48),
		(unsigned int)(guid >> 32 & 0xffff), (unsigned int)(guid >> 16 & 0xffff),
		(unsigned int)(guid & 0xffff));
}

void
kr_view_gid(const union karst_gid *gid, char *text)
{
	unsigned int i;

	for (i = 0; i < 8; i++)
		snprintf(text + 5 * i, KR_GID_TEXT - 5 * i, "%02x%02x%s", gid->raw[2 * i],
			gid->raw[2 * i + 1], i < 7 ? ":" : "");
}

/* --- queries --- */

static int
path_absolute(const char *path, char *out, size_t size)
{
	char cwd[PATH_MAX] = "";

	if (path[0] != '/' && getcwd(cwd, sizeof(cwd)) == NULL)
		return -errno;
	if (snprintf(out, size, "%s%s%s", cwd, cwd[0] != '\0' ? "/" : "", path) >= (int)size)
		return -ENAMETOOLONG;
	return 0;
}

static int
query_port(struct karst_context *ctx, struct kr_device *d)
{
	int ret = karst_query_port(ctx, d->port, &d->attr);

	if (ret != 0)
		return ret;
	d->guid = guid_of(d->attr.mac);
	d->gid = calloc(d->attr.gid_tbl_len + 1, sizeof(*d->gid));
	d->gid_type = calloc(d->attr.gid_tbl_len + 1, sizeof(*d->gid_type));
	return d->gid == NULL || d->gid_type == NULL ? -ENOMEM : 0;
}

static int
query_gids(struct karst_context *ctx, struct kr_view *v)
{
	struct karst_gid_entry *e;
	uint32_t i, max = 1;
	int n, k;

	for (i = 0; i < v->ndevs; i++)
		max += v->dev[i].attr.gid_tbl_len;
	e = calloc(max, sizeof(*e));
	if (e == NULL)
		return -ENOMEM;
	n = karst_query_gid_table(ctx, e, max);
	for (k = 0; k < n; k++) {
		struct kr_device *d = &v->dev[e[k].port_num - 1];

		if (e[k].gid_index >= d->attr.gid_tbl_len)
			continue; /* added since query_port() */
		d->gid[e[k].gid_index] = e[k].gid;
		d->gid_type[e[k].gid_index] = (uint8_t)e[k].gid_type;
	}
	free(e);
	return n < 0 ? n : 0;
}

static int
device_query(struct karst_context *ctx, struct kr_view *v)
{
	uint32_t i, name = 0, node = 0;
	int ret = karst_query_device(ctx, &v->engine);

	if (ret != 0)
		return ret;
	v->dev = calloc(v->engine.nports + 1, sizeof(*v->dev));
	if (v->dev == NULL)
		return -ENOMEM;
	for (i = 0; i < v->engine.nports && ret == 0; i++) {
		struct kr_device *d = &v->dev[v->ndevs++];

		d->port = i + 1;
		ret = free_name("infiniband", "karst", &name, d->name, sizeof(d->name));
		if (ret == 0)
			ret = free_name(
				"infiniband_verbs", "uverbs", &node, d->node, sizeof(d->node));
		if (ret == 0)
			ret = query_port(ctx, d);
	}
	return ret == 0 ? query_gids(ctx, v) : ret;
}

static void
query_lcores(struct karst_context *ctx, struct kr_view *v)
{
	uint32_t i, cpu;

	for (i = 0; i < ctx->nlcores; i++)
		if (karst_query_lcore(ctx, i, &cpu) == 0 && cpu < CPU_SETSIZE)
			CPU_SET(cpu, &v->lcores);
}

int
kr_view_take(const char *socket, struct kr_view *v, const char **why)
{
	struct karst_open_attr attr = {.program = "karst-run"};
	struct karst_context *ctx;
	int ret;

	memset(v, 0, sizeof(*v));
	ret = path_absolute(socket, v->socket, sizeof(v->socket));
	if (ret != 0) {
		*why = "the path of a socket has up to 107 bytes";
		return ret;
	}
	ret = karst_open(v->socket, &attr, &ctx);
	if (ret != 0) {
		*why = karst_why();
		return ret;
	}
	query_lcores(ctx, v);
	ret = device_query(ctx, v);
	*why = ret == -ENOMEM || ret == -ENFILE ? strerror(-ret) : karst_why();
	karst_close(ctx);
	if (ret != 0)
		kr_view_free(v);
	return ret;
}

void
kr_view_free(struct kr_view *v)
{
	uint32_t i;

	for (i = 0; i < v->ndevs; i++) {
		free(v->dev[i].gid);
		free(v->dev[i].gid_type);
	}
	free(v->dev);
	v->dev = NULL;
	v->ndevs = 0;
}
