/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "telemetry.h"

const struct tel_cmd eng_tel_capture[] = {
	{NULL, NULL, NULL},
};
