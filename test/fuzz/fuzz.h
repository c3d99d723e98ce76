/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The functions of a fuzz target: called by libFuzzer in builds with -Dfuzz=true, by replay.c in
 * all others.  KARST_LIBFUZZER is defined in the former.
 */
#ifndef KARST_TEST_FUZZ_H
#define KARST_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

/* Defined by libFuzzer. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

#endif /* KARST_TEST_FUZZ_H */
