/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory whose pages come late, or never, because the program serves them itself. */
#ifndef LATE_FILE_H
#define LATE_FILE_H

#include <stddef.h>
#include <stdint.h>

#define LATE_NEVER UINT32_MAX

/**
 * Maps a private file of @bytes, each page of which takes @delay_us to come.  Once in a process,
 * which has one thread yet; nobody else sees where it is mounted.
 * @return NULL; or what could not be had, and errno says why.
 */
const char *late_file_map(size_t bytes, uint32_t delay_us, void **p);

#endif /* LATE_FILE_H */
