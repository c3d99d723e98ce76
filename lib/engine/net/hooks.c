/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The functions of this folder that lcores call; lcore/ does not depend on this folder. */
#include "exception.h"
#include "member_port.h"
#include "port.h"
#include "tap.h"

const struct eng_lcore_hooks eng_net_hooks = {
	.exception = eng_exception,
	.tap_poll = eng_tap_poll,
	.tap_waiting = eng_tap_waiting,
	.member_expire = eng_member_expire,
};
