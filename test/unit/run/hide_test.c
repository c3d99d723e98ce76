/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* When the kernel's list of RDMA devices is hidden from a program. */
#include <criterion/criterion.h>

#include "hide.h"

static unsigned int asked;

static bool
there(void)
{
	asked++;
	return true;
}

static bool
absent(void)
{
	asked++;
	return false;
}

Test(hide, is_hidden_where_there_is_one)
{
	cr_assert(kr_netlink_hides(KR_NETLINK_AUTO, there));
	cr_assert_not(kr_netlink_hides(KR_NETLINK_AUTO, absent));
	cr_assert_eq(asked, 2);
}

/* The check would load kernel modules. */
Test(hide, is_not_asked_when_the_user_decides)
{
	cr_assert(kr_netlink_hides(KR_NETLINK_HIDE, absent));
	cr_assert_not(kr_netlink_hides(KR_NETLINK_KEEP, there));
	cr_assert_eq(asked, 0);
}

Test(hide, hidden_is_hidden)
{
	cr_assert_eq(kr_netlink_hide(), 0);
	cr_assert_not(kr_netlink_present());
	cr_assert_not(kr_netlink_hides(KR_NETLINK_AUTO, kr_netlink_present));
	cr_assert_eq(kr_netlink_hide(), 0, "twice");
}
