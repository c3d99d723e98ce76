/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Replaces entries of the global offset table (GOT), in which a loaded library keeps the addresses
 * of functions that it calls in other libraries.
 *
 * Where libibverbs asks the kernel without asking its provider first, it calls functions of the C
 * library through such entries.  Replacing an entry redirects the calls of that library only: other
 * callers of open() or read() are not affected.  In a library that was linked with "-z now" the
 * entries are read-only; they are made writable while they are changed.
 */
#include "provider.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct search {
	const char *library;
	const struct kv_got_entry *entries;
	unsigned int n;
	unsigned int replaced;
};

/* The part of a library's dynamic section that is needed. */
struct dynamic {
	const ElfW(Sym) * symbols;
	const char *names;
	const ElfW(Rela) * calls; /* lazily bound functions */
	size_t ncalls;
	const ElfW(Rela) * data; /* with -fno-plt these include functions */
	size_t ndata;
};

static void
read_dynamic(const struct dl_phdr_info *lib, const ElfW(Dyn) * d, struct dynamic *out)
{
	memset(out, 0, sizeof(*out));
	for (; d->d_tag != DT_NULL; d++) {
		/* glibc has relocated these addresses already on most architectures */
		uintptr_t at = d->d_un.d_ptr;

		if (at < lib->dlpi_addr)
			at += lib->dlpi_addr;
		switch (d->d_tag) {
		case DT_SYMTAB:
			out->symbols = (const void *)at;
			break;
		case DT_STRTAB:
			out->names = (const void *)at;
			break;
		case DT_JMPREL:
			out->calls = (const void *)at;
			break;
		case DT_PLTRELSZ:
			out->ncalls = d->d_un.d_val / sizeof(ElfW(Rela));
			break;
		case DT_RELA:
			out->data = (const void *)at;
			break;
		case DT_RELASZ:
			out->ndata = d->d_un.d_val / sizeof(ElfW(Rela));
			break;
		default:
			break;
		}
	}
}

/* The protection that the page of @at has by the program headers and RELRO. */
static int
got_protection(const struct dl_phdr_info *lib, uintptr_t at)
{
	int prot = PROT_READ | PROT_WRITE;
	unsigned int i;

	for (i = 0; i < lib->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &lib->dlpi_phdr[i];
		uintptr_t start = lib->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_GNU_RELRO && at >= start && at < start + p->p_memsz)
			prot = PROT_READ;
	}
	return prot;
}

static bool
got_write(const struct dl_phdr_info *lib, void **entry, const struct kv_got_entry *s)
{
	uintptr_t page = (uintptr_t)entry & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	size_t len = (uintptr_t)(entry + 1) - page;

	if (*entry == s->ours)
		return true;
	if (mprotect((void *)page, len, PROT_READ | PROT_WRITE) != 0)
		return false;
	if (s->theirs != NULL)
		*s->theirs = *entry;
	/* other threads may call through the entry at this moment: one atomic store */
	__atomic_store_n(entry, s->ours, __ATOMIC_RELEASE);
	mprotect((void *)page, len, got_protection(lib, (uintptr_t)entry));
	return true;
}

static unsigned int
got_patch(const struct dl_phdr_info *lib, const struct dynamic *d, const ElfW(Rela) * r, size_t n,
	const struct search *s)
{
	unsigned int i, replaced = 0;
	size_t k;

	for (k = 0; k < n; k++) {
		const ElfW(Sym) *sym = &d->symbols[ELF64_R_SYM(r[k].r_info)];
		const char *name = d->names + sym->st_name;

		/* imported, not a pointer into the library itself */
		if (ELF64_R_SYM(r[k].r_info) == 0 || sym->st_shndx != SHN_UNDEF)
			continue;
		for (i = 0; i < s->n; i++)
			if (strcmp(name, s->entries[i].name) == 0)
				replaced += got_write(lib,
					(void **)(lib->dlpi_addr + r[k].r_offset), &s->entries[i]);
	}
	return replaced;
}

static int
got_visit(struct dl_phdr_info *lib, size_t size, void *arg)
{
	struct search *s = arg;
	struct dynamic d;
	unsigned int i;

	(void)size;
	if (strstr(lib->dlpi_name, s->library) == NULL)
		return 0;
	for (i = 0; i < lib->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &lib->dlpi_phdr[i];

		if (p->p_type != PT_DYNAMIC)
			continue;
		read_dynamic(lib, (const ElfW(Dyn) *)(lib->dlpi_addr + p->p_vaddr), &d);
		s->replaced += got_patch(lib, &d, d.calls, d.ncalls, s);
		s->replaced += got_patch(lib, &d, d.data, d.ndata, s);
	}
	return 0;
}

unsigned int
kv_got_patch(const char *library, const struct kv_got_entry *entries, unsigned int n)
{
	struct search s = {.library = library, .entries = entries, .n = n};

	dl_iterate_phdr(got_visit, &s);
	return s.replaced;
}
