/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A program outside of the tree that attaches; there is no engine, and it is told so. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <karst.h>

int
main(void)
{
	struct karst_context *ctx;
	int ret = karst_open("/nonexistent/karst.sock", NULL, &ctx);

	if (ret != -ENOENT || strstr(karst_why(), "/nonexistent/karst.sock") == NULL)
		return 1;
	printf("attached programs use karst %s: %s\n", karst_version(), karst_why());
	return 0;
}
