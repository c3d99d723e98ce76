/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program of root's that others may execute (exec.c installs it setuid), with secrets in its
 * memory.  Prints "r" when they are there, and, when it is told something, "k" if no byte of them
 * has changed, "x" otherwise.  Ends when its standard input ends.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exec.h"

static unsigned char *
secret(void *at, int flags, int fd)
{
	unsigned char *p =
		mmap(at, EXEC_BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, fd, 0);

	if (p != at)
		_exit(1);
	memset(p, EXEC_SECRET, EXEC_BYTES);
	return p;
}

int
main(void)
{
	int i, fd = memfd_create("secret", MFD_CLOEXEC);
	const unsigned char *p, *s;
	char c;

	if (geteuid() != 0 || fd < 0 || ftruncate(fd, EXEC_BYTES) != 0)
		return 1;
	p = secret(EXEC_PRIVATE_AT, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	s = secret(EXEC_SHARED_AT, MAP_SHARED, fd);
	if (write(STDOUT_FILENO, "r", 1) != 1)
		return 1;
	if (read(STDIN_FILENO, &c, 1) != 1)
		return 1;
	for (i = 0; i < (int)EXEC_BYTES && p[i] == EXEC_SECRET && s[i] == EXEC_SECRET; i++)
		;
	if (write(STDOUT_FILENO, i == (int)EXEC_BYTES ? "k" : "x", 1) != 1)
		return 1;
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	return 0;
}
