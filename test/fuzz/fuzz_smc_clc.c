/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: CLC, from a peer that may send anything.
 *
 * An input is a byte of configuration and the bytes received over TCP.  What must hold: no
 * sanitizer report; a parsed message can be built and parsed again; never more is consumed than
 * there is; and everything ends.
 */
#include "fuzz.h"
#include "smc.h"

static void
there_and_back(const uint8_t *data, size_t size)
{
	struct karst_smc_clc m, again;
	uint8_t buf[KARST_SMC_CLC_BUILD_MAX], twice[KARST_SMC_CLC_BUILD_MAX];
	int len;

	if (karst_smc_clc_parse(data, size, &m) < 0)
		return;
	len = karst_smc_clc_build(&m, buf, sizeof(buf));
	CHECK(len > 0);
	CHECK(karst_smc_clc_parse(buf, (size_t)len, &again) == len);
	CHECK(karst_smc_clc_build(&again, twice, sizeof(twice)) == len);
	CHECK(memcmp(buf, twice, (size_t)len) == 0);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct karst_smc_config cfg = bed_config();
	unsigned int us;
	struct bed *b;
	int n = 1;

	if (size < 2)
		return 0;
	us = data[0] & 1;
	cfg.v1 = data[0] & 2;
	cfg.release = data[0] >> 2 & 1;
	cfg.group_links = (uint8_t)(1 + (data[0] >> 3 & 1));
	memcpy(cfg.eids[0], "INTEROP1                        ", KARST_SMC_EID_LEN);
	data++;
	size--;
	there_and_back(data, size);
	b = bed_new(&cfg);
	bed_open(b);
	while (n > 0 && size > 0) {
		n = karst_smc_clc_rx(b->s[us].smc, b->s[us].conn, data, size);
		CHECK(n >= 0 && (size_t)n <= size);
		data += n;
		size -= (size_t)n;
		smc_swallow(b, us);
		smc_holds(b, us);
	}
	smc_ends(b, us);
	bed_free(b);
	return 0;
}
