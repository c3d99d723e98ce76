/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Feeds every file of a corpus to a fuzz target, whole and cut at some lengths, from heap buffers
 * of exactly that size.  Prints TAP; a target that finds something wrong aborts, which the test
 * harness sees.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define INPUT_MAX (1 << 20)

static void
feed(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size != 0 ? size : 1);

	if (copy == NULL)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

/* @return 0, or a negative errno. */
static int
replay(const char *folder, const char *name)
{
	static uint8_t data[INPUT_MAX];
	char path[4096];
	size_t size, cut;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (f == NULL)
		return -errno;
	size = fread(data, 1, sizeof(data), f);
	fclose(f);
	feed(data, size);
	for (cut = 0; cut < size && cut < 160; cut++)
		feed(data, cut);
	return 0;
}

int
main(int argc, char **argv)
{
	unsigned int done = 0, failed = 0;
	struct dirent *e;
	DIR *dir;

	if (argc != 2) {
		fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
		return 2;
	}
	dir = opendir(argv[1]);
	if (dir == NULL) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		return 2;
	}
	LLVMFuzzerInitialize(&argc, &argv);
	printf("1..1\n");
	fflush(stdout); /* before a target aborts */
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		failed += replay(argv[1], e->d_name) != 0;
		done++;
	}
	closedir(dir);
	printf("%s 1 - %u inputs replayed, %u unreadable\n",
		done > 0 && failed == 0 ? "ok" : "not ok", done, failed);
	return done > 0 && failed == 0 ? 0 : 1;
}
