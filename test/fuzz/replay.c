/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Stands in for libFuzzer in ordinary builds: feeds every file of a corpus to the target, whole,
 * cut at some lengths, and with --mutate changed at random, from exactly sized heap buffers.
 * Prints TAP; a target that finds something wrong aborts, which the test harness sees.
 *
 * --mutate N: each file N times more, with some bytes changed, taken out, doubled, or replaced by
 * those of the file before.  --seed S repeats a run; else it is drawn, and printed.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fuzz.h"

#define INPUT_MAX    (1 << 20)
#define MOST_CHANGES 8u  /* the largest number of changes to one input */
#define RUN          32u /* the largest number of bytes in one change */

static uint64_t dice;

/* splitmix64.  @return less than @n. */
static uint64_t
roll(uint64_t n)
{
	uint64_t z = dice += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % n;
}

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

/* Makes one change to @data, which has room for INPUT_MAX bytes.  @return its new size. */
static size_t
change(uint8_t *data, size_t size, const uint8_t *donor, size_t donor_size)
{
	static const uint64_t edges[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff,
		0xffffffff, INT64_MAX, UINT64_MAX};
	size_t at = roll(size), n = 1 + roll(size - at < RUN ? size - at : RUN), from;
	uint64_t edge;

	switch (roll(5)) {
	case 0:
		data[at] ^= (uint8_t)(1u << roll(8));
		break;
	case 1: /* a number at the limit of a type */
		edge = edges[roll(sizeof(edges) / sizeof(edges[0]))];
		memcpy(data + at, &edge, n < sizeof(edge) ? n : sizeof(edge));
		break;
	case 2:
		memmove(data + at, data + at + n, size - at - n);
		size -= n;
		break;
	case 3:
		if (size + n > INPUT_MAX)
			break;
		memmove(data + at + n, data + at, size - at);
		size += n;
		break;
	default:
		if (donor_size == 0)
			break;
		from = roll(donor_size);
		n = n < donor_size - from ? n : donor_size - from;
		memcpy(data + at, donor + from, n);
		break;
	}
	return size;
}

static void
mutate(const uint8_t *data, size_t size, unsigned int times)
{
	static uint8_t before[INPUT_MAX], copy[INPUT_MAX];
	static size_t before_size;
	uint64_t left;
	size_t n;

	for (; times > 0; times--) {
		memcpy(copy, data, size);
		n = size;
		for (left = 1 + roll(MOST_CHANGES); left > 0 && n > 0; left--)
			n = change(copy, n, before, before_size);
		feed(copy, n);
	}
	memcpy(before, data, size);
	before_size = size;
}

/* @return 0, or a negative errno. */
static int
replay(const char *folder, const char *name, unsigned int mutations)
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
	mutate(data, size, mutations);
	return 0;
}

static int
usage(const char *program)
{
	fprintf(stderr, "usage: %s [--mutate N] [--seed S] CORPUS-FOLDER\n", program);
	return 2;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"mutate", required_argument, NULL, 'm'},
		{"seed", required_argument, NULL, 's'}, {0}};
	unsigned int done = 0, failed = 0, mutations = 0;
	struct dirent *e;
	DIR *dir;
	int c;

	if (getrandom(&dice, sizeof(dice), 0) != sizeof(dice))
		return 2;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (c == 'm')
			mutations = (unsigned int)strtoul(optarg, NULL, 0);
		else if (c == 's')
			dice = strtoull(optarg, NULL, 0);
		else
			return usage(argv[0]);
	if (optind != argc - 1)
		return usage(argv[0]);
	dir = opendir(argv[optind]);
	if (dir == NULL) {
		fprintf(stderr, "%s: %s\n", argv[optind], strerror(errno));
		return 2;
	}
	LLVMFuzzerInitialize(&argc, &argv);
	printf("1..1\n");
	if (mutations > 0)
		printf("# --mutate %u --seed %" PRIu64 "\n", mutations, dice);
	fflush(stdout); /* before a target aborts */
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		failed += replay(argv[optind], e->d_name, mutations) != 0;
		done++;
	}
	closedir(dir);
	printf("%s 1 - %u inputs replayed, %u unreadable\n",
		done > 0 && failed == 0 ? "ok" : "not ok", done, failed);
	return done > 0 && failed == 0 ? 0 : 1;
}
