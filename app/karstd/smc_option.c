/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "smc_option.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "karst_log.h"
#include "log.h"
#include "smc_option_object.h" /* made from smc_option.bpf.c */

#define OPTION_PROGRAM_NAME "karst_smc"
#define MOUNTS              "/proc/self/mounts"

struct prefix {
	uint32_t bits;
	uint8_t ip[16];
};

/* --- the cgroup --- */

static int
find_root(char *path, size_t len)
{
	FILE *f = setmntent(MOUNTS, "re");
	const struct mntent *m;
	int rc = -ENOENT;

	if (f == NULL)
		return -errno;
	while (rc != 0 && (m = getmntent(f)) != NULL)
		if (strcmp(m->mnt_type, "cgroup2") == 0 && strlen(m->mnt_dir) < len) {
			strcpy(path, m->mnt_dir);
			rc = 0;
		}
	endmntent(f);
	return rc;
}

/* The root may not be mounted in this mount namespace, for example with "ip netns exec". */
static int
mount_root(void)
{
	int fs = fsopen("cgroup2", FSOPEN_CLOEXEC), fd = -1;

	if (fs < 0)
		return -1;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	close(fs);
	return fd;
}

static int
open_cgroup(const char *cgroup)
{
	char path[PATH_MAX];
	int fd;

	if (cgroup[0] == '\0' && find_root(path, sizeof(path)) != 0) {
		fd = mount_root();
		snprintf(path, sizeof(path), "no cgroup2 is mounted");
	} else {
		if (cgroup[0] != '\0')
			snprintf(path, sizeof(path), "%s", cgroup);
		fd = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	}
	if (fd >= 0)
		return fd;
	karst_log(KARST_LOG_ERR,
		"[smc] cgroup: %s: %s; that is where the program of the TCP option is attached",
		path, strerror(errno));
	return -errno;
}

/* --- the program and its maps --- */

static int
put_networks(int map, const struct karst_engine_addr *addrs, uint32_t n)
{
	const uint32_t yes = 1;
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct prefix p = {.bits = addrs[i].prefix};

		if (karst_engine_addr_is_ip4(&addrs[i]))
			p.bits += 96;
		memcpy(p.ip, addrs[i].ip, sizeof(p.ip));
		if (bpf_map_update_elem(map, &p, &yes, BPF_ANY) != 0)
			return -errno;
	}
	return 0;
}

static int
fill(struct kd_smc_option *o, const struct karst_engine_addr *locals, uint32_t nlocals,
	const struct karst_engine_addr *peers, uint32_t npeers)
{
	const struct prefix all = {0};
	const uint32_t yes = 1;
	int locals_map = bpf_object__find_map_fd_by_name(o->object, "locals");
	int peers_map = bpf_object__find_map_fd_by_name(o->object, "peers");
	int counts = bpf_object__find_map_fd_by_name(o->object, "counts");
	int rc = put_networks(locals_map, locals, nlocals);

	if (rc == 0 && npeers == 0 && bpf_map_update_elem(peers_map, &all, &yes, BPF_ANY) != 0)
		rc = -errno;
	if (rc == 0)
		rc = put_networks(peers_map, peers, npeers);
	if (rc != 0)
		return rc;
	o->sockets = bpf_object__find_map_fd_by_name(o->object, "sockets");
	o->agreed = bpf_object__find_map_fd_by_name(o->object, "agreed");
	o->refused = bpf_object__find_map_fd_by_name(o->object, "refused");
	o->counts =
		mmap(NULL, KD_SMC_COUNTS * sizeof(*o->counts), PROT_READ, MAP_SHARED, counts, 0);
	if (o->counts == MAP_FAILED) {
		o->counts = NULL;
		return -errno;
	}
	return 0;
}

static int
attach(struct kd_smc_option *o, const char *cgroup)
{
	const struct bpf_program *p =
		bpf_object__find_program_by_name(o->object, OPTION_PROGRAM_NAME);
	int fd = open_cgroup(cgroup), rc = 0;

	if (fd < 0)
		return fd;
	o->link = bpf_program__attach_cgroup(p, fd);
	if (o->link == NULL) {
		rc = -errno;
		karst_log(KARST_LOG_ERR, "attaching the program of the TCP option to cgroup2: %s",
			strerror(errno));
	}
	close(fd);
	return rc;
}

int
kd_smc_option_load(struct kd_smc_option *o, const char *cgroup,
	const struct karst_engine_addr *locals, uint32_t nlocals,
	const struct karst_engine_addr *peers, uint32_t npeers)
{
	int rc;

	memset(o, 0, sizeof(*o));
	kd_log_take_libbpf();
	o->object = bpf_object__open_mem(smc_option_object, sizeof(smc_option_object), NULL);
	if (o->object == NULL)
		return -errno;
	rc = bpf_object__load(o->object);
	if (rc == 0)
		rc = fill(o, locals, nlocals, peers, npeers);
	if (rc != 0)
		karst_log(KARST_LOG_ERR,
			"loading the program of the TCP option (BPF): %s; [smc] needs CAP_BPF and "
			"CAP_NET_ADMIN at the start, or enabled = no",
			strerror(-rc));
	else
		rc = attach(o, cgroup);
	if (rc != 0)
		kd_smc_option_unload(o);
	return rc;
}

void
kd_smc_option_unload(struct kd_smc_option *o)
{
	if (o->link != NULL)
		bpf_link__destroy(o->link);
	if (o->counts != NULL)
		munmap((void *)o->counts, KD_SMC_COUNTS * sizeof(*o->counts));
	if (o->object != NULL)
		bpf_object__close(o->object);
	memset(o, 0, sizeof(*o));
}

int
kd_smc_option_ends(const struct kd_smc_option *o, int fd, struct kd_smc_option_ends *ends)
{
	if (bpf_map_lookup_elem(o->agreed, &fd, ends) == 0)
		return ends->over ? -ENOTCONN : 0;
	return errno == ENOENT ? -ENODATA : -ENOTSOCK;
}

void
kd_smc_option_refuse(const struct kd_smc_option *o, const uint8_t ip[16], bool refuse)
{
	const uint64_t yes = 1;

	if (refuse)
		(void)bpf_map_update_elem(o->refused, ip, &yes, BPF_ANY);
	else
		(void)bpf_map_delete_elem(o->refused, ip);
}
