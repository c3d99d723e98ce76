/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Which CPUs a program gets when the engine is bound to some. */
#include "cpus.h"

#include <stdint.h>

#include <criterion/criterion.h>

static cpu_set_t
set_of(uint64_t bits)
{
	cpu_set_t set;
	int cpu;

	CPU_ZERO(&set);
	for (cpu = 0; cpu < 64; cpu++)
		if (bits >> cpu & 1)
			CPU_SET(cpu, &set);
	return set;
}

static uint64_t
bits_of(const cpu_set_t *set)
{
	uint64_t bits = 0;
	int cpu;

	for (cpu = 0; cpu < 64; cpu++)
		bits |= (uint64_t)(CPU_ISSET(cpu, set) != 0) << cpu;
	return bits;
}

Test(run_cpus, choice)
{
	static const struct {
		enum kr_cpus how;
		uint64_t may, lcores, gets;
		int ret;
	} cases[] = {
		{KR_CPUS_AUTO, 0x3, 0x2, 0x1, 0}, {KR_CPUS_SPARE, 0x3, 0x2, 0x1, 0},
		{KR_CPUS_ALL, 0x3, 0x2, 0x3, 0},
		{KR_CPUS_AUTO, 0x2, 0x2, 0x2, 0}, /* nothing is left */
		{KR_CPUS_SPARE, 0x2, 0x2, 0x2, -1},
		{KR_CPUS_AUTO, 0xf0, 0x0f, 0xf0, 0}, /* the two sets do not overlap */
		{KR_CPUS_AUTO, 0xff, 0x00, 0xff, 0}, /* bound to none */
	};
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cpu_set_t may = set_of(cases[i].may), lcores = set_of(cases[i].lcores), out;

		cr_expect_eq(kr_cpus_choose(cases[i].how, &may, &lcores, &out), cases[i].ret,
			"case %u", i);
		cr_expect_eq(bits_of(&out), cases[i].gets, "case %u", i);
	}
}
