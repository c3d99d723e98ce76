/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: LLC, from a peer with a connection.
 *
 * An input is a byte of configuration and steps: a byte with the kind of step, and a message behind
 * its length.  What must hold: no sanitizer report; a parsed message can be built and parsed again;
 * tables do not overflow; and everything ends.
 */
#include "fuzz.h"
#include "smc.h"

static void
there_and_back(const uint8_t *data, size_t size)
{
	static struct karst_smc_llc m, again;
	static uint8_t buf[KARST_SMC_LLC_MAX_LEN];
	int len;

	if (karst_smc_llc_parse(data, size, &m) != 0)
		return;
	len = karst_smc_llc_build(&m, buf, sizeof(buf));
	CHECK(len > 0);
	CHECK(karst_smc_llc_parse(buf, (size_t)len, &again) == 0);
	CHECK(again.type == m.type && again.flags == m.flags && again.nrtokens == m.nrtokens);
}

static void
step(struct bed *b, unsigned int us, struct input *in)
{
	uint8_t what = u8(in), msg[600];
	size_t len = karst_min_u32(u16(in) % sizeof(msg), (uint32_t)in->left);
	struct bed_sys *s = &b->s[us];

	bytes(in, msg, len);
	there_and_back(msg, len);
	karst_smc_link_rx(s->smc, s->links[what >> 4 & 1], msg, len);
	if (what & 1)
		smc_swallow(b, us);
	if (what & 2) {
		s->smc->now_ns += UINT64_C(1500000000);
		karst_smc_expire(s->smc, 10);
	}
	if (what & 4)
		karst_smc_group_add_link(s->smc, 0);
	if (what & 8)
		karst_smc_link_down(s->smc, s->links[what >> 5 & 1]);
	smc_holds(b, us);
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
	struct input in;
	unsigned int us, steps = 64;
	struct bed *b;

	if (size < 2)
		return 0;
	in = (struct input){data + 1, size - 1};
	us = data[0] & 1;
	cfg.v1 = data[0] & 2;
	if (cfg.v1)
		cfg.neids = 0;
	cfg.group_links = 2;
	b = bed_new(&cfg);
	b->s[0].ports = 1 + (data[0] >> 2 & 1);
	b->s[1].ports = 1 + (data[0] >> 3 & 1);
	CHECK(bed_connect(b));
	while (in.left > 0 && steps-- > 0)
		step(b, us, &in);
	smc_ends(b, us);
	bed_free(b);
	return 0;
}
