/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Benchmark of CRC-32 over whole buffers, alone and together with a copy: karst's kernels and the
 * libraries that are the alternatives.
 *
 * A measurement walks over slots of one size.  In cache, it uses the same few KiB again and again.
 * Cold, it walks through a set far larger than any cache, so that 512 MiB of other slots are
 * between two uses of a slot.  Calls are independent of each other, like the calls for a burst.
 *
 * All candidates of a size and set run in turns of a short slice each, and the fastest slice of
 * each counts.  So disturbances of the machine affect all candidates alike, and a candidate needs
 * only one undisturbed slice.
 */
#include "crc_bench.h"

#include "karst_crc.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include <isa-l/crc.h>
#include <rte_net_crc.h>
#include <rte_vect.h>
#include <zlib.h>

#define COLD_SET       (512ull << 20)
#define COLD_SLICE     (4ull << 20)
#define HOT_SET        (16u << 10)
#define HOT_SLICE      (1u << 20)
#define SIZE_MAX_BYTES 65536u
#define MAX_SIZES      16
#define MAX_IMPLS      24
#define TIME_MAX_S     3600.0

enum set { SET_CACHE, SET_COLD, SETS };

static const char *const set_names[SETS] = {"cache", "512M"};

/* One slice of work: @n slots of @len bytes, @stride apart. */
struct walk {
	const struct karst_crc_ops *ops;
	const uint8_t *src;
	uint8_t *dst;
	size_t len, stride, n;
};

struct impl {
	char name[32];
	bool copies;
	enum rte_net_crc_alg alg; /* for those that use rte_net_crc */
	const struct karst_crc_ops *ops;
	uint32_t (*run)(const struct walk *w);
	bool selected;
};

struct bench {
	struct impl impls[MAX_IMPLS];
	unsigned int n_impls;
	size_t sizes[MAX_SIZES];
	unsigned int n_sizes;
	bool sets[SETS];
	bool json;
	double seconds;
	uint8_t *mem; /* COLD_SET bytes: sources in the lower half, destinations in the upper */
	size_t at;    /* position of the cold walk in the lower half */
	double ns[SETS][MAX_SIZES][MAX_IMPLS]; /* the shortest of all slices */
	/* for the mean of all slices, to compare with rates that are measured over a time, which
	 * include all disturbances of the processor */
	double sum_ns[SETS][MAX_SIZES][MAX_IMPLS];
	double slices[SETS][MAX_SIZES][MAX_IMPLS];
	uint32_t sink;
};

karst_always_inline uint32_t
walk(const struct walk *w, uint32_t (*one)(const struct walk *w, void *dst, const void *src))
{
	uint32_t sink = 0;

	for (size_t i = 0; i < w->n; i++)
		sink ^= one(w, w->dst + i * w->stride, w->src + i * w->stride);
	return sink;
}

static uint32_t
karst_one(const struct walk *w, void *dst, const void *src)
{
	return ~w->ops->update(KARST_CRC32_INIT, src, w->len);
}

static uint32_t
karst_copy_one(const struct walk *w, void *dst, const void *src)
{
	return ~w->ops->copy(KARST_CRC32_INIT, dst, src, w->len);
}

static uint32_t
isal_one(const struct walk *w, void *dst, const void *src)
{
	return crc32_gzip_refl(0, src, w->len);
}

static uint32_t
rte_one(const struct walk *w, void *dst, const void *src)
{
	return rte_net_crc_calc(src, (uint32_t)w->len, RTE_NET_CRC32_ETH);
}

static uint32_t
zlib_one(const struct walk *w, void *dst, const void *src)
{
	return (uint32_t)crc32(0, src, (uInt)w->len);
}

static uint32_t
memcpy_one(const struct walk *w, void *dst, const void *src)
{
	memcpy(dst, src, w->len);
	return 0;
}

static uint32_t
isal_copy_one(const struct walk *w, void *dst, const void *src)
{
	memcpy(dst, src, w->len);
	return isal_one(w, dst, src);
}

static uint32_t
rte_copy_one(const struct walk *w, void *dst, const void *src)
{
	memcpy(dst, src, w->len);
	return rte_one(w, dst, src);
}

static uint32_t
zlib_copy_one(const struct walk *w, void *dst, const void *src)
{
	memcpy(dst, src, w->len);
	return zlib_one(w, dst, src);
}

static uint32_t
run_karst(const struct walk *w)
{
	return walk(w, karst_one);
}

static uint32_t
run_karst_copy(const struct walk *w)
{
	return walk(w, karst_copy_one);
}

static uint32_t
run_isal(const struct walk *w)
{
	return walk(w, isal_one);
}

static uint32_t
run_rte(const struct walk *w)
{
	return walk(w, rte_one);
}

static uint32_t
run_zlib(const struct walk *w)
{
	return walk(w, zlib_one);
}

static uint32_t
run_memcpy(const struct walk *w)
{
	return walk(w, memcpy_one);
}

static uint32_t
run_isal_copy(const struct walk *w)
{
	return walk(w, isal_copy_one);
}

static uint32_t
run_rte_copy(const struct walk *w)
{
	return walk(w, rte_copy_one);
}

static uint32_t
run_zlib_copy(const struct walk *w)
{
	return walk(w, zlib_copy_one);
}

static bool
has_rte_avx512(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
#else
	return false;
#endif
}

static void
add_impl(struct bench *b, struct impl impl)
{
	impl.selected = true;
	b->impls[b->n_impls++] = impl;
}

static void
list_impls(struct bench *b, bool copies)
{
	const struct karst_crc_ops *ops;
	bool runs;

	for (unsigned int i = 0; (ops = karst_crc_ops_at(i, &runs)) != NULL; i++) {
		struct impl k = {
			.copies = copies, .ops = ops, .run = copies ? run_karst_copy : run_karst};

		snprintf(k.name, sizeof(k.name), "karst-%s%s", ops->name, copies ? "+copy" : "");
		if (runs)
			add_impl(b, k);
	}
	if (!copies) {
		add_impl(b, (struct impl){.name = "isal", .run = run_isal});
		add_impl(b,
			(struct impl){
				.name = "rte_net_crc", .run = run_rte, .alg = RTE_NET_CRC_SSE42});
		if (has_rte_avx512())
			add_impl(b,
				(struct impl){.name = "rte_net_crc-avx512",
					.run = run_rte,
					.alg = RTE_NET_CRC_AVX512});
		add_impl(b, (struct impl){.name = "zlib", .run = run_zlib});
		return;
	}
	add_impl(b, (struct impl){.name = "memcpy", .copies = true, .run = run_memcpy});
	add_impl(b, (struct impl){.name = "isal+memcpy", .copies = true, .run = run_isal_copy});
	add_impl(b,
		(struct impl){.name = "rte_net_crc+memcpy",
			.copies = true,
			.run = run_rte_copy,
			.alg = RTE_NET_CRC_SSE42});
	if (has_rte_avx512())
		add_impl(b,
			(struct impl){.name = "rte_net_crc-avx512+memcpy",
				.copies = true,
				.run = run_rte_copy,
				.alg = RTE_NET_CRC_AVX512});
	add_impl(b, (struct impl){.name = "zlib+memcpy", .copies = true, .run = run_zlib_copy});
}

static uint64_t
bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nanoseconds per slot of one slice. */
static double
bench_slice(struct bench *b, const struct impl *impl, enum set set, size_t len)
{
	struct walk w = {.ops = impl->ops, .len = len, .stride = (len + 63) & ~(size_t)63};
	size_t rounds = 1, bytes = COLD_SLICE;
	uint64_t begin;

	w.src = b->mem;
	if (set == SET_CACHE) {
		bytes = HOT_SET > w.stride ? HOT_SET : w.stride;
		rounds = HOT_SLICE / bytes + 1;
	} else {
		if (b->at + bytes > COLD_SET / 2)
			b->at = 0;
		w.src += b->at;
		b->at += bytes;
	}
	w.dst = (uint8_t *)(uintptr_t)w.src + COLD_SET / 2;
	w.n = bytes / w.stride;
	if (impl->run == run_rte || impl->run == run_rte_copy)
		rte_net_crc_set_alg(impl->alg);
	if (set == SET_CACHE)
		b->sink ^= impl->run(&w);
	begin = bench_now_ns();
	for (size_t i = 0; i < rounds; i++)
		b->sink ^= impl->run(&w);
	return (double)(bench_now_ns() - begin) / (double)(rounds * w.n);
}

static void
bench_measure(struct bench *b, enum set set, unsigned int size, double seconds)
{
	uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);

	do {
		for (unsigned int i = 0; i < b->n_impls; i++) {
			double *best = &b->ns[set][size][i], ns;

			if (!b->impls[i].selected)
				continue;
			ns = bench_slice(b, &b->impls[i], set, b->sizes[size]);
			if (*best == 0 || ns < *best)
				*best = ns;
			/* slices of one implementation are of equally many slots */
			b->sum_ns[set][size][i] += ns;
			b->slices[set][size][i]++;
		}
	} while (bench_now_ns() < end);
}

static void
bench_print_json(const struct bench *b, enum set set, unsigned int size)
{
	for (unsigned int i = 0; i < b->n_impls; i++) {
		double ns = b->ns[set][size][i];

		if (b->impls[i].selected)
			printf("{\"impl\": \"%s\", \"bytes\": %zu, \"set\": \"%s\", \"ns\": %.2f, "
			       "\"gbps\": %.2f, \"mean_ns\": %.2f}\n",
				b->impls[i].name, b->sizes[size], set_names[set], ns,
				(double)b->sizes[size] * 8 / ns,
				b->sum_ns[set][size][i] / b->slices[set][size][i]);
	}
	fflush(stdout);
}

/* The time of the kernel that karst selects here, plain or copying; 0 if it was not measured. */
static double
bench_picked(const struct bench *b, enum set set, unsigned int size, bool copies)
{
	for (unsigned int i = 0; i < b->n_impls; i++) {
		const struct impl *m = &b->impls[i];

		if (m->selected && m->copies == copies && m->ops == karst_crc_ops())
			return b->ns[set][size][i];
	}
	return 0;
}

/* The shortest time of the others, plain or copying; 0 if none was measured. */
static double
best_other(const struct bench *b, enum set set, unsigned int size, bool copies)
{
	double best = 0;

	for (unsigned int i = 0; i < b->n_impls; i++) {
		const struct impl *m = &b->impls[i];
		double ns = b->ns[set][size][i];

		if (m->selected && m->copies == copies && m->ops == NULL && m->run != run_memcpy &&
			(best == 0 || ns < best))
			best = ns;
	}
	return best;
}

static double
bench_time_of(const struct bench *b, enum set set, unsigned int size,
	uint32_t (*run)(const struct walk *w))
{
	for (unsigned int i = 0; i < b->n_impls; i++)
		if (b->impls[i].selected && b->impls[i].run == run)
			return b->ns[set][size][i];
	return 0;
}

static void
print_ratio(const struct bench *b, enum set set, bool copies, const char *what,
	uint32_t (*than)(const struct walk *w), bool inverse)
{
	printf("  %-28s", what);
	for (unsigned int s = 0; s < b->n_sizes; s++) {
		double mine = bench_picked(b, set, s, copies);
		double other = than != NULL ? bench_time_of(b, set, s, than)
					    : best_other(b, set, s, copies);

		if (mine == 0 || other == 0)
			printf(" %9s", "-");
		else
			printf(" %8.2fx", inverse ? mine / other : other / mine);
	}
	printf("\n");
}

static void
bench_print_table(const struct bench *b, enum set set, bool copies)
{
	bool any = false;

	for (unsigned int i = 0; i < b->n_impls; i++)
		any |= b->impls[i].selected && b->impls[i].copies == copies;
	if (!any)
		return;
	printf("\n%s, %s: ns per buffer\n  %-28s", copies ? "copy and CRC-32" : "CRC-32",
		set == SET_CACHE ? "in cache" : "over 512 MiB", "bytes");
	for (unsigned int s = 0; s < b->n_sizes; s++)
		printf(" %9zu", b->sizes[s]);
	printf("\n");
	for (unsigned int i = 0; i < b->n_impls; i++) {
		if (!b->impls[i].selected || b->impls[i].copies != copies)
			continue;
		printf("  %-28s", b->impls[i].name);
		for (unsigned int s = 0; s < b->n_sizes; s++)
			printf(" %9.1f", b->ns[set][s][i]);
		printf("\n");
	}
	print_ratio(b, set, copies, "best other / karst's pick", NULL, false);
	if (copies)
		print_ratio(b, set, copies, "karst's pick / memcpy", run_memcpy, true);
	else
		print_ratio(b, set, copies, "isal / karst's pick", run_isal, false);
}

static void
bench_usage(FILE *to)
{
	fprintf(to,
		"usage: karst-perf crc [--json] [--size N,...] [--set cache|512M|both]\n"
		"                      [--impl NAME,...] [--time SECONDS]\n"
		"Compares CRC-32 kernels, alone and together with a copy.\n"
		"  --json          one JSON object a line: impl, bytes, set, ns, gbps (gigabit/s),\n"
		"                  mean_ns, the mean of all slices\n"
		"  --size N,...    buffer sizes, 1 to %u bytes, at most %u of them\n"
		"                  (default 64,256,1024,4096,9000)\n"
		"  --set SET       cache: a few KiB again and again; 512M: a walk over 512 MiB,\n"
		"                  copies from its lower to its upper half; both (default)\n"
		"  --impl NAME,... only these; --impl help lists them (default all)\n"
		"  --time SECONDS  how long to measure in all (default 12)\n"
		"The fastest of many short slices counts; the candidates take turns.\n",
		SIZE_MAX_BYTES, MAX_SIZES);
}

static int
parse_sizes(struct bench *b, const char *arg)
{
	const char *p = arg;

	b->n_sizes = 0;
	do {
		char *end;
		unsigned long v;

		errno = 0;
		v = strtoul(p, &end, 10);
		if (*p < '0' || *p > '9' || (*end != ',' && *end != '\0') || errno != 0 || v < 1 ||
			v > SIZE_MAX_BYTES || b->n_sizes == MAX_SIZES) {
			fprintf(stderr,
				"karst-perf crc: --size %s: at \"%s\": expected up to %u sizes of 1 to "
				"%u bytes, separated by commas\n",
				arg, p, MAX_SIZES, SIZE_MAX_BYTES);
			return -EINVAL;
		}
		b->sizes[b->n_sizes++] = v;
		p = *end == ',' ? end + 1 : NULL;
	} while (p != NULL);
	return 0;
}

static int
parse_impls(struct bench *b, const char *arg)
{
	for (unsigned int i = 0; i < b->n_impls; i++)
		b->impls[i].selected = false;
	for (const char *p = arg; p != NULL;) {
		size_t n = strcspn(p, ",");
		bool found = false;

		for (unsigned int i = 0; i < b->n_impls; i++) {
			if (strlen(b->impls[i].name) == n && memcmp(b->impls[i].name, p, n) == 0)
				found = b->impls[i].selected = true;
		}
		if (!found) {
			fprintf(stderr,
				"karst-perf crc: --impl %s: at \"%.*s\": this machine has\n", arg,
				(int)n, p);
			for (unsigned int i = 0; i < b->n_impls; i++)
				fprintf(stderr, "  %s\n", b->impls[i].name);
			return -EINVAL;
		}
		p = p[n] == ',' ? p + n + 1 : NULL;
	}
	return 0;
}

static int
parse_set(struct bench *b, const char *arg)
{
	bool both = strcmp(arg, "both") == 0;

	for (unsigned int s = 0; s < SETS; s++)
		b->sets[s] = both || strcmp(arg, set_names[s]) == 0;
	if (b->sets[SET_CACHE] || b->sets[SET_COLD])
		return 0;
	fprintf(stderr, "karst-perf crc: --set %s: expected cache, 512M or both\n", arg);
	return -EINVAL;
}

static int
parse_time(struct bench *b, const char *arg)
{
	char *end;

	b->seconds = strtod(arg, &end);
	if (end != arg && *end == '\0' && b->seconds > 0 && b->seconds <= TIME_MAX_S)
		return 0;
	fprintf(stderr, "karst-perf crc: --time %s: expected seconds, more than 0, at most %g\n",
		arg, TIME_MAX_S);
	return -EINVAL;
}

/* @return 0, 1 after printing the help, or -EINVAL after an error message. */
static int
bench_parse(struct bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"size", required_argument, NULL, 's'},
		{"set", required_argument, NULL, 'S'},
		{"impl", required_argument, NULL, 'i'},
		{"time", required_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int c, rc = 0;

	optind = 1;
	while (rc == 0 && (c = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
		if (c == 'j') {
			b->json = true;
		} else if (c == 's') {
			rc = parse_sizes(b, optarg);
		} else if (c == 'S') {
			rc = parse_set(b, optarg);
		} else if (c == 'i') {
			rc = parse_impls(b, optarg);
		} else if (c == 't') {
			rc = parse_time(b, optarg);
		} else if (c == 'h') {
			bench_usage(stdout);
			return 1;
		} else {
			fprintf(stderr, "karst-perf crc: %s: %s\n", argv[optind - 1],
				c == ':' ? "needs a value" : "no such option");
			bench_usage(stderr);
			rc = -EINVAL;
		}
	}
	if (rc == 0 && optind < argc) {
		fprintf(stderr, "karst-perf crc: %s: unexpected argument\n", argv[optind]);
		bench_usage(stderr);
		rc = -EINVAL;
	}
	return rc;
}

static void
bench_run(struct bench *b)
{
	double share = b->seconds / (b->n_sizes * (b->sets[SET_CACHE] + b->sets[SET_COLD]));

	for (unsigned int set = 0; set < SETS; set++) {
		if (!b->sets[set])
			continue;
		for (unsigned int s = 0; s < b->n_sizes; s++) {
			bench_measure(b, set, s, share);
			if (b->json)
				bench_print_json(b, set, s);
		}
		if (!b->json) {
			bench_print_table(b, set, false);
			bench_print_table(b, set, true);
			fflush(stdout);
		}
	}
}

int
karst_perf_crc_main(int argc, char **argv)
{
	struct bench b = {.sizes = {64, 256, 1024, 4096, 9000},
		.n_sizes = 5,
		.sets = {true, true},
		.seconds = 12};
	int rc;

	list_impls(&b, false);
	list_impls(&b, true);
	rc = bench_parse(&b, argc, argv);
	if (rc != 0)
		return rc < 0 ? 2 : 0;
	rc = karst_crc_init(NULL);
	if (rc < 0)
		return rc == -EIO ? 1 : 2;
	rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
	b.mem = mmap(NULL, COLD_SET, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.mem == MAP_FAILED) {
		fprintf(stderr, "karst-perf crc: no memory for a 512 MiB set: %s\n",
			strerror(errno));
		return 1;
	}
	madvise(b.mem, COLD_SET, MADV_HUGEPAGE);
	for (size_t i = 0; i < COLD_SET; i += 8)
		memcpy(b.mem + i, &(uint64_t){i * 0x9e3779b97f4a7c15u}, 8);
	if (!b.json)
		printf("karst picks %s here\n", karst_crc_ops()->name);
	bench_run(&b);
	munmap(b.mem, COLD_SET);
	return 0;
}
