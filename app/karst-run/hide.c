/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "hide.h"

#include <errno.h>
#include <linux/netlink.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

bool
kr_netlink_present(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

bool
kr_netlink_hides(enum kr_netlink want, bool (*present)(void))
{
	if (want == KR_NETLINK_AUTO)
		return present();
	return want == KR_NETLINK_HIDE;
}

/* The kernel uses only the lower half of an int argument; so does the filter. */
static struct scmp_arg_cmp
name_is(unsigned int arg, uint32_t value)
{
	return (struct scmp_arg_cmp){arg, SCMP_CMP_MASKED_EQ, UINT32_MAX, value};
}

/* With @nnp the program cannot gain privileges by executing a file, which the kernel requires of an
 * unprivileged process. */
static int
filter_load(bool nnp)
{
	const struct scmp_arg_cmp args[] = {name_is(0, AF_NETLINK), name_is(2, NETLINK_RDMA)};
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int ret;

	if (filter == NULL)
		return -ENOMEM;
	/* calls of programs of another architecture are not filtered, and such programs do not see
	 * karst */
	ret = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW);
	if (ret == 0)
		ret = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, nnp);
	if (ret == 0)
		ret = seccomp_attr_set(filter, SCMP_FLTATR_API_SYSRAWRC, 1);
	if (ret == 0)
		ret = seccomp_rule_add_array(
			filter, SCMP_ACT_ERRNO(EPROTONOSUPPORT), SCMP_SYS(socket), 2, args);
	if (ret == 0)
		ret = seccomp_load(filter);
	seccomp_release(filter);
	return ret;
}

int
kr_netlink_hide(void)
{
	int ret = filter_load(false);

	return ret == -EACCES ? filter_load(true) : ret;
}
