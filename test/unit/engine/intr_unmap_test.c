/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The other end of a net_memif port disconnects while an lcore is within a turn: the shared memory
 * stays mapped until that turn has ended.  And the other end connects: there is no link until
 * then. */
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_ethdev.h>

#include "../idle.h"
#include "memif_wire.h"

Test(intr_unmap, an_lcore_is_within_a_turn)
{
	unsigned int turns = 0;
	struct wire w;

	wire_up(&w, NULL);
	wire_wait(&w, true);
	cr_assert_eq(engine_bed_mappings(MEMIF), 2, "%u", engine_bed_mappings(MEMIF));
	/* from now on this thread has the lcore; between two calls the lcore is within a turn that
	 * lasts */
	karst_engine_poll(w.bed.e, 0);
	cr_assert_eq(rte_eth_dev_stop(w.other), 0);
	wire_wait(&w, false);
	usleep(LONG_US);
	cr_expect_eq(engine_bed_mappings(MEMIF), 1, "%u", engine_bed_mappings(MEMIF));
	while (engine_bed_mappings(MEMIF) != 0) {
		karst_engine_poll(w.bed.e, 0);
		idle_after(&turns, false);
	}
	wire_down(&w);
}

Test(intr_unmap, another_end_comes)
{
	unsigned int i, turns = 0;
	struct wire w;

	wire_up(&w, NULL);
	wire_wait(&w, true);
	for (i = 0; i < 2; i++) {
		cr_assert_eq(rte_eth_dev_stop(w.other), 0);
		while (engine_bed_mappings(MEMIF) != 0)
			usleep(IDLE_US);
		karst_engine_poll(w.bed.e, 0);
		cr_assert_eq(rte_eth_dev_start(w.other), 0);
		/* the last thing that is done before the wait */
		while (engine_bed_mappings(MEMIF) != 2)
			usleep(IDLE_US);
		usleep(LONG_US);
		cr_expect_not(wire_link_is_up(w.ours), "time %u", i);
		while (!wire_link_is_up(w.ours) || !wire_link_is_up(w.other)) {
			karst_engine_poll(w.bed.e, 0);
			idle_after(&turns, false);
		}
		engine_bed_release(&w.bed);
	}
	wire_down(&w);
}

/* Meanwhile the thread that has the lcore creates and destroys engines. */
Test(intr_unmap, engines_come_and_go)
{
	const struct karst_engine_config cfg = {.name = "second", .max_qps = 16};
	struct karst_engine *second, *third;
	struct wire w;

	wire_up(&w, NULL);
	cr_assert_eq(karst_engine_create(&cfg, &second), 0);
	wire_wait(&w, true);
	karst_engine_poll(w.bed.e, 0);
	cr_assert_eq(rte_eth_dev_stop(w.other), 0);
	wire_wait(&w, false);
	usleep(LONG_US);
	cr_expect_eq(engine_bed_mappings(MEMIF), 1, "%u", engine_bed_mappings(MEMIF));
	cr_assert_eq(karst_engine_destroy(second), 0);
	cr_assert_eq(karst_engine_create(&cfg, &third), 0);
	cr_assert_eq(karst_engine_destroy(third), 0);
	engine_bed_release(&w.bed);
	while (engine_bed_mappings(MEMIF) != 0)
		usleep(IDLE_US);
	wire_down(&w);
}

/* The driver does not wait for an lcore to which no thread is attached. */
Test(intr_unmap, no_lcore_is_attached)
{
	struct wire w;

	wire_up(&w, NULL);
	wire_wait(&w, true);
	karst_engine_poll(w.bed.e, 0);
	engine_bed_release(&w.bed);
	cr_assert_eq(rte_eth_dev_stop(w.other), 0);
	while (engine_bed_mappings(MEMIF) != 0)
		usleep(IDLE_US);
	wire_down(&w);
}
