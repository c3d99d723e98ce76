/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* How targets read their input, one number after the other, and report violations. */
#ifndef KARST_TEST_FUZZ_INPUT_H
#define KARST_TEST_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the run if @cond is false. */
#define CHECK(cond) check(cond, #cond, __FILE__, __LINE__)

/* The rest of an input; after its end, zeros are read. */
struct input {
	const uint8_t *p;
	size_t left;
};

static inline void
check(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
	abort();
}

static inline uint8_t
u8(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->p++;
}

static inline uint16_t
u16(struct input *in)
{
	uint16_t v = u8(in);

	return (uint16_t)(v << 8 | u8(in));
}

static inline uint32_t
u32(struct input *in)
{
	uint32_t v = u16(in);

	return v << 16 | u16(in);
}

static inline void
bytes(struct input *in, uint8_t *to, size_t n)
{
	while (n-- > 0)
		*to++ = u8(in);
}

#endif /* KARST_TEST_FUZZ_INPUT_H */
