/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Tables of handles and of keys. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "handles.h"

#define MANY 5000u

Test(handles, add_get_del)
{
	int items[3];
	uint32_t handle[3], i;
	struct handles h;

	eng_handles_init(&h, 2);
	cr_assert_null(eng_handles_get(&h, 0));
	cr_assert_null(eng_handles_get(&h, UINT32_MAX));
	for (i = 0; i < 2; i++) {
		cr_assert_eq(eng_handles_add(&h, &items[i], &handle[i]), 0);
		cr_assert_neq(handle[i], 0);
	}
	cr_assert_neq(handle[0], handle[1]);
	cr_assert_eq(eng_handles_add(&h, &items[2], &handle[2]), -ENOSPC);
	cr_assert_eq(h.used, 2);
	cr_assert_eq(eng_handles_get(&h, handle[0]), &items[0]);
	cr_assert_eq(eng_handles_get(&h, handle[1]), &items[1]);
	eng_handles_del(&h, handle[0]);
	cr_assert_null(eng_handles_get(&h, handle[0]));
	cr_assert_eq(eng_handles_add(&h, &items[2], &handle[2]), 0);
	cr_assert_neq(handle[2], handle[0]);
	cr_assert_null(eng_handles_get(&h, handle[0]));
	eng_handles_fini(&h);
}

/* A handle that was destroyed is given again as late as possible, and its number is never 0. */
Test(handles, generations)
{
	struct handles h;
	uint32_t handle, first, i;
	int item;

	eng_handles_init(&h, 1);
	cr_assert_eq(eng_handles_add(&h, &item, &first), 0);
	eng_handles_del(&h, first);
	for (i = 0; i < 3000; i++) {
		cr_assert_eq(eng_handles_add(&h, &item, &handle), 0);
		cr_assert_neq(handle, 0);
		if (i < 1000)
			cr_assert_neq(handle, first);
		eng_handles_del(&h, handle);
	}
	eng_handles_fini(&h);
}

Test(handles, growth_and_walk)
{
	static uint32_t handle[MANY], item[MANY];
	uint32_t i, at = 0, n = 0;
	struct handles h;

	eng_handles_init(&h, MANY);
	for (i = 0; i < MANY; i++)
		cr_assert_eq(eng_handles_add(&h, &item[i], &handle[i]), 0);
	cr_assert_eq(eng_handles_add(&h, &item[0], &i), -ENOSPC);
	for (i = 0; i < MANY; i += 2)
		eng_handles_del(&h, handle[i]);
	while (eng_handles_next(&h, &at) != NULL)
		n++;
	cr_assert_eq(n, MANY / 2);
	for (i = 0; i < MANY; i++)
		cr_assert_eq(eng_handles_get(&h, handle[i]), i % 2 == 0 ? NULL : &item[i]);
	eng_handles_fini(&h);
}

Test(keys, add_get_del)
{
	static struct key_node node[MANY];
	struct key_node *any;
	uint32_t i, at = 0;
	struct keys k;

	eng_keys_init(&k, MANY);
	cr_assert_null(eng_keys_get(&k, 1));
	cr_assert_null(eng_keys_any(&k, &at));
	for (i = 0; i < MANY; i++) {
		cr_assert_eq(eng_keys_reserve(&k), 0);
		eng_keys_add(&k, &node[i], i * 77);
	}
	cr_assert_eq(eng_keys_reserve(&k), -ENOSPC);
	for (i = 0; i < MANY; i++)
		cr_assert_eq(eng_keys_get(&k, i * 77), &node[i]);
	cr_assert_null(eng_keys_get(&k, 78));
	for (i = 0; i < MANY; i += 3) {
		eng_keys_del(&k, &node[i]);
		cr_assert_null(eng_keys_get(&k, i * 77));
	}
	at = 0;
	for (i = k.used; (any = eng_keys_any(&k, &at)) != NULL; i--)
		eng_keys_del(&k, any);
	cr_assert_eq(i, 0);
	cr_assert_eq(k.used, 0);
	eng_keys_fini(&k);
}
