/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What Criterion calls of libgit2, which it has for one thing: to show the lines in which two
 * values of a failed assertion differ.  It runs each test in a process of its own, and in each the
 * loader brought in libgit2 with the fifteen libraries for networks and ciphers that it is linked
 * to, and libgit2 read all certificates that the system trusts: half of the time of a short test.
 *
 * This library has libgit2's name, so that the loader takes it where Criterion asks for that one;
 * the tests are linked to it.  libgit2 itself is loaded when there is something to be shown.
 */
#include <dlfcn.h>
#include <git2.h>
#include <stdio.h>

typedef int init_fn(void);
typedef int diff_fn(const void *, size_t, const char *, const void *, size_t, const char *,
	const git_diff_options *, git_diff_file_cb, git_diff_binary_cb, git_diff_hunk_cb,
	git_diff_line_cb, void *);

int
git_libgit2_init(void)
{
	return 1;
}

int
git_libgit2_shutdown(void)
{
	return 0;
}

int
git_diff_buffers(const void *old, size_t old_len, const char *old_path, const void *new,
	size_t new_len, const char *new_path, const git_diff_options *options,
	git_diff_file_cb file, git_diff_binary_cb binary, git_diff_hunk_cb hunk,
	git_diff_line_cb line, void *payload)
{
	void *lib = dlopen(KARST_LIBGIT2, RTLD_NOW | RTLD_LOCAL);
	init_fn *init = NULL;
	diff_fn *diff = NULL;

	if (lib != NULL) {
		init = (init_fn *)dlsym(lib, "git_libgit2_init");
		diff = (diff_fn *)dlsym(lib, "git_diff_buffers");
	}
	if (init == NULL || diff == NULL || init() < 0) {
		const char *why = dlerror();

		fprintf(stderr, "%s shows no difference: %s\n", KARST_LIBGIT2,
			why != NULL ? why : "it does not start");
		return -1;
	}
	return diff(old, old_len, old_path, new, new_len, new_path, options, file, binary, hunk,
		line, payload);
}
