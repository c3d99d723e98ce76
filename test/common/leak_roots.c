/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Linked into tests with the address sanitizer: where its search for leaks begins.  By itself it
 * reads all static memory of a process, 6 MB of its own as well, and so makes the kernel map pages
 * that nobody has used: for 1,400 cases, a process each, that took longer than the cases.  Here it
 * is told of the pages that have been used, but not of its own, which never point to what a test
 * allocates.
 */
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sanitizer/lsan_interface.h>

#define AT_ONCE 256u /* pages that the kernel is asked about */
#define GAP     16u  /* up to so many pages without content do not divide a region */
/* Of an entry of /proc/self/pagemap: the page is present, or swapped out. */
#define CONTENT (UINT64_C(3) << 62)

/* Pages from @from to @to that have content, with the gaps between them. */
struct run {
	uintptr_t from, to;
};

static void
run_end(struct run *r)
{
	if (r->to > r->from)
		__lsan_register_root_region((const void *)r->from, r->to - r->from);
	r->from = r->to = 0;
}

static void
run_add(struct run *r, uintptr_t at, uintptr_t page)
{
	if (r->to != 0 && at - r->to > GAP * page)
		run_end(r);
	if (r->to == 0)
		r->from = at;
	r->to = at + page;
}

/* What cannot be asked about has content. */
static void
look_at(int pagemap, uintptr_t at, uintptr_t end, uintptr_t page)
{
	uint64_t entry[AT_ONCE];
	struct run r = {0, 0};
	uintptr_t i, n;

	for (; at < end; at += n * page) {
		n = (end - at) / page;
		n = n < AT_ONCE ? n : AT_ONCE;
		if (pread(pagemap, entry, n * sizeof(entry[0]),
			    (off_t)(at / page * sizeof(entry[0]))) !=
			(ssize_t)(n * sizeof(entry[0])))
			memset(entry, 0xff, sizeof(entry));
		for (i = 0; i < n; i++)
			if ((entry[i] & CONTENT) != 0)
				run_add(&r, at + i * page, page);
	}
	run_end(&r);
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
			look_at(*(const int *)user, at / page * page,
				(at + h->p_memsz + page - 1) / page * page, page);
	}
	return 0;
}

static void
tell_roots(void)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	dl_iterate_phdr(on_object, &pagemap);
	if (pagemap >= 0)
		close(pagemap);
}

/* What is registered last comes first: before the search. */
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
