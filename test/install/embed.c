/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program outside of the tree: what pkg-config says is all it is built with.  It makes an
 * engine, registers memory, and takes everything down again.
 */
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>

#include <karst_engine.h>

int
main(int argc, char **argv)
{
	static uint8_t buffer[4096];
	struct karst_engine_config cfg = {.name = "embed"};
	struct karst_engine *e = NULL;
	uint32_t pd, key;

	if (rte_eal_init(argc, argv) < 0)
		return 1;
	if (karst_engine_create(&cfg, &e) != 0 || karst_engine_pd_alloc(e, &pd) != 0 ||
		karst_engine_mr_reg(e, pd, buffer, (uintptr_t)buffer, sizeof(buffer),
			KARST_ACCESS_LOCAL_WRITE, &key) != 0)
		return 1;
	karst_engine_poll(e, 0);
	karst_engine_release(e, 0);
	if (karst_engine_mr_dereg(e, key) != 0 || karst_engine_pd_free(e, pd) != 0 ||
		karst_engine_destroy(e) != 0)
		return 1;
	puts("embedded");
	return rte_eal_cleanup();
}
