/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Files whose pages arrive late or never, or whose close never returns.  The program serves them
 * itself. */
#ifndef LATE_FILE_H
#define LATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LATE_NEVER UINT32_MAX

/**
 * Maps a private file of @bytes, each page of which arrives after @delay_us.  May be called once in
 * a process, while it has one thread; other processes do not see the mount.
 * @return NULL; or a text that says what failed, with the reason in errno.
 */
const char *late_file_map(size_t bytes, uint32_t delay_us, void **p);

/** Like late_file_map(), but opens the file. */
const char *late_file_open(int *fd);
/**
 * From now on, close() of a descriptor of that file waits until this process has ended.  This
 * process must not have such a descriptor any more, or it could not end.
 */
void late_file_keep(void);

/**
 * Runs @program in another process with a descriptor of a file, -1 if it cannot be opened, and
 * serves the file until *@stop.  Bytes that are written to it are not accepted.  From then on,
 * whoever drops the last reference to a struct file of it waits until this process has ended: also
 * one who discards a message with a descriptor.  This process has none, so that it can end.
 */
const char *late_file_unwritten(
	void (*program)(int fd, void *arg), void *arg, const _Atomic bool *stop);

#endif /* LATE_FILE_H */
