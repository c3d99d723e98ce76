/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Linked into tests with the address sanitizer, and into programs that they start often: speeds up
 * the sanitizer's search for leaks.  By default the search reads all static memory of a process,
 * including 6 MB of the sanitizer itself, so the kernel maps pages that were never used.  For 1,400
 * cases, with a process each, this took longer than the cases.  This file copies all words that may
 * be pointers, from pages that were used, to one place, and registers that place.  It is only one
 * place, because the sanitizer reads all of /proc/self/maps for each registered place.  The
 * sanitizer's own memory never points to memory that a test allocates.
 */
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sanitizer/lsan_interface.h>

#define AT_ONCE 256u /* pages that the kernel is asked about */
/* Bits of an entry of /proc/self/pagemap: the page is present, or swapped out. */
#define CONTENT (UINT64_C(3) << 62)

/* Range of words that may be pointers: neither in the first page nor in the kernel's half. */
#define LOWEST  UINT64_C(0x1000)
#define HIGHEST UINT64_C(0x7fffffffffff)

#define ROOM (64u << 20) /* bytes of addresses for the copy: memory is only what is written */

/* The place that is searched for pointers: words of static memory that may be pointers. */
struct roots {
	uint64_t *words;
	size_t n;
	int pagemap;
};

__attribute__((no_sanitize("address"))) static void
roots_add(struct roots *r, const uint64_t *at, const uint64_t *end)
{
	for (; at < end && r->n < ROOM / sizeof(*at); at++)
		if (*at >= LOWEST && *at <= HIGHEST)
			r->words[r->n++] = *at;
}

/* Adds the pages from @at to @end that have content.  If that cannot be queried, all have. */
__attribute__((no_sanitize("address"))) static void
roots_look_at(struct roots *r, uintptr_t at, uintptr_t end, uintptr_t page)
{
	uint64_t entry[AT_ONCE];
	uintptr_t i, n;

	for (; at < end; at += n * page) {
		n = (end - at) / page;
		n = n < AT_ONCE ? n : AT_ONCE;
		if (pread(r->pagemap, entry, n * sizeof(entry[0]),
			    (off_t)(at / page * sizeof(entry[0]))) !=
			(ssize_t)(n * sizeof(entry[0])))
			memset(entry, 0xff, sizeof(entry));
		for (i = 0; i < n; i++)
			if ((entry[i] & CONTENT) != 0)
				roots_add(r, (const uint64_t *)(at + i * page),
					(const uint64_t *)(at + (i + 1) * page));
	}
}

static int
is_sanitizer(const char *name)
{
	return strstr(name, "/libasan.so") != NULL || strstr(name, "/libubsan.so") != NULL;
}

static int
on_object(struct dl_phdr_info *info, size_t size, void *user)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	int i;

	(void)size;
	if (is_sanitizer(info->dlpi_name))
		return 0;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + h->p_vaddr;

		if (h->p_type == PT_LOAD && (h->p_flags & PF_W) != 0)
			roots_look_at(user, at / page * page,
				(at + h->p_memsz + page - 1) / page * page, page);
	}
	return 0;
}

static void
tell_roots(void)
{
	struct roots r = {.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)};
	void *at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		abort();
	r.words = at;
	dl_iterate_phdr(on_object, &r);
	if (r.pagemap >= 0)
		close(r.pagemap);
	__lsan_register_root_region(r.words, r.n * sizeof(r.words[0]));
}

/* Registers an exit handler last, so that it runs first, before the search. */
__attribute__((constructor)) static void
tell_roots_at_exit(void)
{
	atexit(tell_roots);
}

const char *
__lsan_default_options(void)
{
	return "use_globals=0";
}
