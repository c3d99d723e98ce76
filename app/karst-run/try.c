/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "try.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "karst.h"
#include "hide.h"

#define LIBIBVERBS  "libibverbs.so.1"
#define PRIVATE_ABI "IBVERBS_PRIVATE_34"
#define REGISTER    "verbs_register_driver_34"
#define BYTES       (1u << 20) /* enough to be migrated to shared pages */

int
kr_try(kr_attempt *attempt, const char *arg, struct kr_answer *a)
{
	int fds[2], status = 0;
	ssize_t n = -1;
	pid_t pid;

	memset(a, 0, sizeof(*a));
	fflush(stdout);
	if (pipe2(fds, O_CLOEXEC) != 0) {
		a->ret = -errno;
		snprintf(a->text, sizeof(a->text), "a pipe: %s", strerror(errno));
		return a->ret;
	}
	pid = fork();
	if (pid == 0) {
		a->ret = attempt(arg, a);
		_exit(write(fds[1], a, sizeof(*a)) == sizeof(*a) ? 0 : 1);
	}
	close(fds[1]);
	if (pid > 0) {
		n = read(fds[0], a, sizeof(*a));
		waitpid(pid, &status, 0);
	}
	close(fds[0]);
	if (n != sizeof(*a)) {
		a->ret = -ECHILD;
		snprintf(a->text, sizeof(a->text), "the process that tried it %s %d",
			WIFSIGNALED(status) ? "was ended by signal" : "failed with status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	return a->ret;
}

/* --- libraries --- */

static int
try_loaded(const char *name, void **handle, struct kr_answer *a)
{
	*handle = dlopen(name, RTLD_NOW);
	if (*handle != NULL)
		return 0;
	snprintf(a->text, sizeof(a->text), "%s", dlerror());
	return -ENOENT;
}

int
kr_try_libibverbs(const char *arg, struct kr_answer *a)
{
	char path[PATH_MAX];
	struct link_map *map;
	void *handle;
	int ret = try_loaded(LIBIBVERBS, &handle, a);

	(void)arg;
	if (ret != 0)
		return ret;
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || realpath(map->l_name, path) == NULL)
		snprintf(path, sizeof(path), "%s", LIBIBVERBS);
	if (dlvsym(handle, REGISTER, PRIVATE_ABI) == NULL) {
		snprintf(a->text, sizeof(a->text),
			"%.400s is of another private ABI than " PRIVATE_ABI
			", that of rdma-core 36 to 55",
			path);
		return -EPROTO;
	}
	snprintf(a->text, sizeof(a->text), "%.400s, " PRIVATE_ABI, path);
	return 0;
}

int
kr_try_provider(const char *arg, struct kr_answer *a)
{
	void *handle;

	return try_loaded(arg, &handle, a);
}

/* --- filter, memory --- */

int
kr_try_netlink(const char *arg, struct kr_answer *a)
{
	int ret = kr_netlink_hide();

	(void)arg;
	if (ret == 0 && kr_netlink_present())
		ret = -EOPNOTSUPP;
	if (ret != 0)
		snprintf(a->text, sizeof(a->text), "seccomp: %s", strerror(-ret));
	return ret;
}

int
kr_try_memory(const char *arg, struct kr_answer *a)
{
	struct karst_context *ctx;
	struct karst_pd *pd;
	struct karst_mr *mr;
	void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ret = karst_open(arg, NULL, &ctx);

	if (ret == 0)
		ret = karst_alloc_pd(ctx, &pd);
	if (ret == 0)
		ret = karst_reg_mr(pd, p, BYTES, KARST_ACCESS_LOCAL_WRITE, &mr);
	if (ret != 0) {
		snprintf(a->text, sizeof(a->text), "%s", karst_why());
		return ret;
	}
	if (mr->copied_bytes == 0) {
		snprintf(a->text, sizeof(a->text), "private pages are moved into shared ones");
		return 0;
	}
	snprintf(a->text, sizeof(a->text),
		"private pages are copied, which costs time: userfaultfd is not allowed (sysctl "
		"vm.unprivileged_userfaultfd)");
	return 1;
}
