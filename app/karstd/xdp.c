/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "xdp.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "log.h"
#include "xdp_roce_object.h" /* made from xdp_roce.bpf.c */

#define XDP_PROGRAM_NAME "karst_roce"

int
kd_xdp_file(void)
{
	int fd = memfd_create("karst_xdp_roce", MFD_CLOEXEC);

	kd_log_take_libbpf();
	if (fd < 0)
		return -errno;
	if (write(fd, xdp_roce_object, sizeof(xdp_roce_object)) == sizeof(xdp_roce_object))
		return fd;
	close(fd);
	return -EIO;
}

void
kd_xdp_path(int fd, char *path, size_t len)
{
	snprintf(path, len, "/proc/self/fd/%d", fd);
}

static bool
prog_is_karsts(uint32_t id)
{
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof(info);
	int fd = bpf_prog_get_fd_by_id(id);
	bool ours;

	if (fd < 0)
		return false;
	ours = bpf_obj_get_info_by_fd(fd, &info, &len) == 0 &&
		strcmp(info.name, XDP_PROGRAM_NAME) == 0;
	close(fd);
	return ours;
}

int
kd_xdp_program(const char *netdev)
{
	unsigned int index = if_nametoindex(netdev);
	uint32_t id = 0;

	if (index == 0 || bpf_xdp_query_id((int)index, 0, &id) != 0 || id == 0)
		return -1;
	return bpf_prog_get_fd_by_id(id);
}

void
kd_xdp_remove(const char *netdev, int program)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, opts, .old_prog_fd = program);
	unsigned int index = if_nametoindex(netdev);

	if (index != 0)
		(void)bpf_xdp_detach((int)index, 0, &opts);
}

int
kd_xdp_remove_stale(const struct kd_netdev *n)
{
	uint32_t id = 0;

	if (bpf_xdp_query_id((int)n->index, 0, &id) != 0 || id == 0)
		return 0;
	if (!prog_is_karsts(id))
		return -EBUSY;
	return bpf_xdp_detach((int)n->index, 0, NULL);
}
