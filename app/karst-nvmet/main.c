/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-nvmet: a small NVMe over RDMA target, written for libibverbs and librdmacm.  It does not
 * depend on karst: it is an example of a storage program, and runs on adapters as well.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "ns.h"
#include "opts.h"
#include "pool.h"
#include "server.h"

#define EXIT_USAGE 2

static int
add_namespaces(struct nt_target *target, const struct opts *opts)
{
	uint32_t i;

	for (i = 0; i < opts->nns; i++) {
		const struct opts_ns *o = &opts->ns[i];
		struct nt_ns *ns = o->path != NULL
			? nt_ns_file(o->path, opts->block_shift, opts->read_only)
			: nt_ns_memory(o->bytes, opts->block_shift, opts->read_only);

		if (ns == NULL)
			return -EIO;
		nt_target_add_ns(target, ns); /* cannot fail: options allow no more than fit */
	}
	return 0;
}

/* Called before threads are created, because they inherit the mask. */
static int
take_signals(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int
nvmet_serve(const struct opts *opts, struct nr_server *server, int signals)
{
	int rc = nr_server_start(server, &opts->config);

	if (rc == 0) {
		server->pool = nt_pool_start(opts->threads);
		if (server->pool == NULL) {
			fprintf(stderr, "karst-nvmet: %u threads cannot be started\n",
				opts->threads);
			rc = -ENOMEM;
		}
	}
	if (rc == 0)
		rc = nt_target_init(&server->target, &opts->config.target, &nr_ops, server->pool);
	if (rc == 0)
		rc = add_namespaces(&server->target, opts);
	if (rc == 0)
		rc = nr_server_open(server);
	if (rc == 0) {
		printf("karst-nvmet: %s is served at port %s\n", opts->config.target.nqn,
			opts->config.port);
		fflush(stdout);
		rc = nr_server_run(server, signals);
		nr_server_print(server);
	}
	if (server->pool != NULL)
		nt_pool_stop(server->pool);
	nt_target_fini(&server->target);
	nr_server_stop(server);
	return rc;
}

int
main(int argc, char **argv)
{
	static struct nr_server server;
	static struct opts opts;
	int rc, signals;

	rc = opts_parse(argc, argv, &opts);
	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	signals = take_signals();
	if (signals < 0) {
		fprintf(stderr, "karst-nvmet: signalfd: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	rc = nvmet_serve(&opts, &server, signals);
	close(signals);
	return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
