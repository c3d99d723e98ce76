/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Files whose pages come late, or never, or whose closing never ends: the program serves them
 * itself. */
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

/** Opens a file, as above. */
const char *late_file_open(int *fd);
/**
 * Whoever closes a descriptor of that file from now on waits as long as this process is there.  It
 * has none any more itself, or it could not end.
 */
void late_file_keep(void);

#endif /* LATE_FILE_H */
