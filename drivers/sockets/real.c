/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "ks.h"

#include <dlfcn.h>

struct ks_real ks_real;

/* Constructors of other libraries may call these functions before ours has run. */
void
ks_real_find(void)
{
#define KS_REAL(ret, name, args) *(void **)&ks_real.name = dlsym(RTLD_NEXT, #name);
#include "real.def"
#undef KS_REAL
}
