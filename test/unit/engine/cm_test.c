/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Tables of connection management that peers and programs can fill. */
#include <criterion/criterion.h>

#include "cm.h"
#include "engine_bed.h"
#include "lcore.h"

/* --- paths --- */

#define PATHS 400u /* fewer than MADs may wait for */

static unsigned int
longest_path_bucket(const struct eng_cm *cm)
{
	unsigned int i, n, longest = 0;
	const struct cm_path *w;

	for (i = 0; i < CM_PATH_BUCKETS; i++) {
		n = 0;
		LIST_FOREACH(w, &cm->paths[i], next)
			n++;
		longest = n > longest ? n : longest;
	}
	return longest;
}

/* A peer that sends from many addresses cannot choose them so that all paths to them are kept at
 * one place, where everybody would walk past them.  By a product with a number that everybody knows
 * these were. */
Test(engine_cm, places_cannot_be_told)
{
	const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
	const uint64_t inverse = UINT64_C(0xf1de83e19937733d);
	static const uint8_t mad[ENG_GSI_MAD_BYTES];
	struct karst_cm_path path = {.local_ip = {0xfd, [15] = 1}, .remote_ip = {0xfd, 1}};
	uint64_t words[3], h = 0, last;
	struct engine_bed bed;
	unsigned int i, longest;
	struct eng_cm *cm;

	cr_assert_eq(factor * inverse, 1);
	memcpy(words, path.local_ip, 16);
	memcpy(words + 2, path.remote_ip, 8);
	for (i = 0; i < 3; i++)
		h = (h ^ words[i]) * factor;
	engine_bed_up(&bed, &(struct engine_bed_config){0});
	cm = eng_cm_enter(bed.e);
	for (i = 0; i < PATHS; i++) {
		last = h ^ i * inverse;
		memcpy(path.remote_ip + 8, &last, 8);
		eng_cm_path_send(cm, &path, mad);
	}
	longest = longest_path_bucket(cm);
	cr_assert_eq(cm->npaths, PATHS);
	eng_cm_leave(cm);
	cr_assert_lt(longest, PATHS / 10, "%u", longest);
	engine_bed_down(&bed);
}
