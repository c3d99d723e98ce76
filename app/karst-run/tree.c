/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "karst_base.h"
#include "place.h"

#define UVERBS_ABI  6 /* of the character devices, the same in all kernels since 2.6 */
#define RDMA_CM_ABI 4
#define NODE_NUMBER "1:7" /* of KR_NODE_TARGET */
#define PHYS_DOWN   "3: Disabled"
#define PHYS_UP     "5: LinkUp"
#define CAP_MASK    0x04010000u /* IP-based GIDs, communication management */
#define FULL_MEMBER 0xffffu     /* the default P_Key */
#define WALK_OPEN   16

/* --- files --- */

/* Creates the folders above @path. */
static int
make_folders(int dir, const char *path)
{
	char part[PATH_MAX];
	const char *slash = path;

	while ((slash = strchr(slash, '/')) != NULL) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (mkdirat(dir, part, 0755) != 0 && errno != EEXIST)
			return -errno;
		slash++;
	}
	return 0;
}

int
kr_tree_put(int dir, const char *path, const char *fmt, ...)
{
	int ret = make_folders(dir, path), fd, n;
	va_list ap;

	if (ret != 0)
		return ret;
	fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	va_start(ap, fmt);
	n = vdprintf(fd, fmt, ap);
	va_end(ap);
	ret = n < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	remove(path);
	return 0;
}

void
kr_tree_remove(const char *path)
{
	nftw(path, remove_one, WALK_OPEN, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* --- a device --- */

/* Returns the rate in the kernel's format, with the width and speed that the provider reports. */
static const char *
port_rate(uint32_t mbps)
{
	static const struct {
		uint32_t mbps;
		const char *text;
	} rates[] = {
		{400000, "400 Gb/sec (8X HDR)"},
		{200000, "200 Gb/sec (4X HDR)"},
		{100000, "100 Gb/sec (4X EDR)"},
		{50000, "50 Gb/sec (1X HDR)"},
		{40000, "40 Gb/sec (4X QDR)"},
		{25000, "25 Gb/sec (1X EDR)"},
		{10000, "10 Gb/sec (1X QDR)"},
		{5000, "5 Gb/sec (1X DDR)"},
		{0, "2.5 Gb/sec (1X SDR)"},
	};
	unsigned int i;

	for (i = 0; mbps < rates[i].mbps; i++)
		;
	return rates[i].text;
}

/* Copies a file of the device of the port's kernel interface, if both exist; otherwise writes
 * @otherwise. */
static int
put_of_netdev(int dir, const struct kr_device *d, const char *name, const char *otherwise)
{
	char path[96], text[4096];
	size_t n = 0;
	FILE *f = NULL;

	snprintf(path, sizeof(path), "/sys/class/net/%s/device/%s", d->attr.netdev, name);
	if (d->attr.netdev[0] != '\0')
		f = fopen(path, "re");
	if (f != NULL) {
		n = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	text[n] = '\0';
	snprintf(path, sizeof(path), "device/%s", name);
	return kr_tree_put(dir, path, "%s", n > 0 ? text : otherwise);
}

/* Returns a mask of all CPUs in the kernel's format: 32 CPUs between two commas. */
static void
all_cpus(char *text, size_t size)
{
	long n = sysconf(_SC_NPROCESSORS_CONF), word = n > 0 ? (n - 1) / 32 : 0;
	uint32_t mask = n > 0 && n % 32 != 0 ? (1u << n % 32) - 1 : UINT32_MAX;
	size_t at = 0;

	for (; word >= 0 && at + 12 < size; word--) {
		at += (size_t)snprintf(text + at, size - at, "%08x%s", mask, word > 0 ? "," : "\n");
		mask = UINT32_MAX;
	}
}

static int
write_bus(int dir, const struct kr_device *d)
{
	char path[64], cpus[512] = "";
	/* the same vendor and device as the provider reports */
	int ret = kr_tree_put(dir, "device/modalias", "rdma_device:N%s\n", d->name);

	all_cpus(cpus, sizeof(cpus));
	if (ret == 0)
		ret = kr_tree_put(dir, "device/vendor", "0x4b52\n");
	if (ret == 0)
		ret = kr_tree_put(dir, "device/device", "0x0001\n");
	if (ret == 0)
		ret = put_of_netdev(dir, d, "numa_node", "-1\n");
	if (ret == 0)
		ret = put_of_netdev(dir, d, "local_cpus", cpus);
	if (ret == 0 && d->attr.netdev[0] != '\0') {
		snprintf(path, sizeof(path), "device/net/%s/", d->attr.netdev);
		ret = make_folders(dir, path);
	}
	return ret;
}

/* Writes a file for empty entries, too: libibverbs reads the table from 0 up to its size, and a
 * missing file is an error. */
static int
write_gid(int dir, const struct kr_device *d, uint32_t i)
{
	static const union karst_gid none;
	char path[64], text[KR_GID_TEXT];
	int ret;

	kr_view_gid(&d->gid[i], text);
	snprintf(path, sizeof(path), "ports/1/gids/%u", i);
	ret = kr_tree_put(dir, path, "%s\n", text);
	snprintf(path, sizeof(path), "ports/1/gid_attrs/types/%u", i);
	if (ret == 0)
		ret = kr_tree_put(dir, path, "RoCE v2\n");
	snprintf(path, sizeof(path), "ports/1/gid_attrs/ndevs/%u", i);
	/* Without a kernel interface there is no file, and libibverbs knows of none.  A name that
	 * the kernel does not know would be an error. */
	if (ret == 0 && d->attr.netdev[0] != '\0' && memcmp(&d->gid[i], &none, sizeof(none)) != 0)
		ret = kr_tree_put(dir, path, "%s\n", d->attr.netdev);
	return ret;
}

static int
write_port(int dir, const struct kr_device *d)
{
	bool up = d->attr.state == KARST_PORT_ACTIVE;
	struct {
		const char *path;
		const char *text;
	} files[] = {
		{"ports/1/state", up ? "4: ACTIVE" : "1: DOWN"},
		{"ports/1/phys_state", up ? PHYS_UP : PHYS_DOWN},
		{"ports/1/rate", port_rate(d->attr.mbps)},
		{"ports/1/link_layer", "Ethernet"},
		{"ports/1/lid", "0x0"},
		{"ports/1/lid_mask_count", "0"},
		{"ports/1/sm_lid", "0x0"},
		{"ports/1/sm_sl", "0"},
	};
	unsigned int i;
	int ret = 0;

	for (i = 0; i < KARST_DIM(files) && ret == 0; i++)
		ret = kr_tree_put(dir, files[i].path, "%s\n", files[i].text);
	if (ret == 0)
		ret = kr_tree_put(dir, "ports/1/cap_mask", "0x%08x\n", CAP_MASK);
	if (ret == 0)
		ret = kr_tree_put(dir, "ports/1/pkeys/0", "0x%04x\n", FULL_MEMBER);
	if (ret == 0)
		ret = make_folders(dir, "ports/1/gid_attrs/ndevs/");
	for (i = 0; i < d->attr.gid_tbl_len && ret == 0; i++)
		ret = write_gid(dir, d, i);
	return ret;
}

static int
write_device(int dir, const struct kr_view *v, const struct kr_device *d)
{
	char guid[20], sys_guid[20];
	int ret;

	kr_view_guid(d->guid, guid);
	kr_view_guid(v->engine.node_guid, sys_guid);
	ret = kr_tree_put(dir, "node_type", "1: CA\n");
	if (ret == 0)
		ret = kr_tree_put(dir, "node_guid", "%s\n", guid);
	if (ret == 0)
		ret = kr_tree_put(dir, "sys_image_guid", "%s\n", sys_guid);
	if (ret == 0)
		ret = kr_tree_put(dir, "node_desc", "%s %s\n", v->engine.engine, d->attr.name);
	if (ret == 0)
		ret = kr_tree_put(dir, "fw_ver", "%s\n", v->engine.version);
	if (ret == 0)
		ret = kr_tree_put(dir, "hca_type", "karst\n");
	if (ret == 0)
		ret = kr_tree_put(dir, "hw_rev", "0\n");
	if (ret == 0)
		ret = kr_tree_put(dir, "board_id", "karst\n");
	if (ret == 0)
		ret = kr_tree_put(dir, "karst/socket", "%s\n", v->socket);
	if (ret == 0)
		ret = kr_tree_put(dir, "karst/port", "%u\n", d->port);
	if (ret == 0)
		ret = write_bus(dir, d);
	return ret == 0 ? write_port(dir, d) : ret;
}

static int
write_node(int class, const struct kr_device *d)
{
	char path[64];
	int ret;

	snprintf(path, sizeof(path), "infiniband_verbs/%s/ibdev", d->node);
	ret = kr_tree_put(class, path, "%s\n", d->name);
	snprintf(path, sizeof(path), "infiniband_verbs/%s/dev", d->node);
	if (ret == 0)
		ret = kr_tree_put(class, path, NODE_NUMBER "\n");
	snprintf(path, sizeof(path), "infiniband_verbs/%s/abi_version", d->node);
	return ret == 0 ? kr_tree_put(class, path, "1\n") : ret;
}

/* The connection manager that librdmacm uses.  There is one for all devices, so the kernel's own,
 * if there is one, is not seen. */
static int
write_rdma_cm(int class)
{
	int ret = kr_tree_put(class, "misc/" KR_RDMA_CM "/abi_version", "%d\n", RDMA_CM_ABI);

	return ret == 0 ? kr_tree_put(class, "misc/" KR_RDMA_CM "/dev", NODE_NUMBER "\n") : ret;
}

/* --- all devices --- */

/* Links the kernel's own devices of a class, except names that karst uses. */
static int
link_other_driver(int class, const char *name)
{
	char path[PATH_MAX], target[PATH_MAX];
	struct dirent *e;
	int ret = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/%s", name);
	dir = opendir(path);
	if (dir == NULL)
		return 0;
	while (ret == 0 && (e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.' || e->d_type != DT_LNK ||
			!kr_view_other_driver(name, e->d_name))
			continue;
		snprintf(path, sizeof(path), "/sys/class/%s/%s", name, e->d_name);
		if (realpath(path, target) == NULL)
			continue; /* unplugged */
		snprintf(path, sizeof(path), "%s/%s", name, e->d_name);
		if (symlinkat(target, class, path) != 0 && errno != EEXIST)
			ret = -errno;
	}
	closedir(dir);
	return ret;
}

static int
write_class(int class, const struct kr_view *v)
{
	int ret = kr_tree_put(class, "infiniband_verbs/abi_version", "%d\n", UVERBS_ABI);
	uint32_t i;

	for (i = 0; i < v->ndevs && ret == 0; i++) {
		char path[64];
		int dir;

		snprintf(path, sizeof(path), "infiniband/%s/", v->dev[i].name);
		ret = make_folders(class, path);
		dir = ret == 0 ? openat(class, path, O_DIRECTORY | O_CLOEXEC) : -1;
		if (ret == 0)
			ret = dir < 0 ? -errno : write_device(dir, v, &v->dev[i]);
		if (dir >= 0)
			close(dir);
		if (ret == 0)
			ret = write_node(class, &v->dev[i]);
	}
	if (ret == 0)
		ret = write_rdma_cm(class);
	if (ret == 0)
		ret = link_other_driver(class, "infiniband");
	if (ret == 0)
		ret = link_other_driver(class, "infiniband_verbs");
	return ret == 0 ? link_other_driver(class, "misc") : ret;
}

int
kr_tree_write(int dir, const struct kr_view *v)
{
	int class, ret;

	if (mkdirat(dir, "class", 0755) != 0)
		return -errno;
	class = openat(dir, "class", O_DIRECTORY | O_CLOEXEC);
	if (class < 0)
		return -errno;
	ret = write_class(class, v);
	close(class);
	return ret;
}

static int
make_node(int dir, const char *folder, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return symlinkat(KR_NODE_TARGET, dir, path) == 0 ? 0 : -errno;
}

int
kr_tree_nodes(int dir, const char *folder, const struct kr_view *v)
{
	char path[64];
	uint32_t i;
	int ret;

	snprintf(path, sizeof(path), "%s/", folder);
	ret = make_folders(dir, path);
	for (i = 0; i < v->ndevs && ret == 0; i++)
		ret = make_node(dir, folder, v->dev[i].node);
	return ret == 0 ? make_node(dir, folder, KR_RDMA_CM) : ret;
}

int
kr_tree_driver(int dir, const char *folder, const char *provider)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/karst.driver", folder);
	/* libibverbs appends the name of its private ABI */
	return kr_tree_put(dir, path, "driver %.*s\n",
		(int)(strlen(provider) - strlen(KR_PROVIDER_END)), provider);
}
