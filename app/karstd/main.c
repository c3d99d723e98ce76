/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karstd: an engine in a process of its own, which programs attach to.
 *
 * This file reads the configuration (opts.c, conf*.c) and calls daemon.c.
 */
#include "conf.h"
#include "daemon.h"
#include "opts.h"
#include "part.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "karst_log.h"

static void
print_words(void *user, const char *line)
{
	(void)user;
	fprintf(stderr, "karstd: %s\n", line);
}

static void
say_to_log(void *user, const char *line)
{
	(void)user;
	karst_log(KARST_LOG_ERR, "%s", line);
}

/* A file that cannot be accessed is there as well: reading it reports the error. */
static bool
is_absent(const char *path)
{
	/* access() would not take the capabilities into account that systemd gives a user */
	int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR;
	close(fd);
	return false;
}

/* Reads the file, then the command line.  Errors of both are reported.  A default file that was
 * there once is required from then on: with defaults instead, a reload would remove its ports. */
static int
read_conf(struct kd_opts *o, struct kd_conf *c, struct kd_faults *f)
{
	const char *path;

	kd_conf_defaults(c);
	if (o->config == NULL && !is_absent(KD_DEFAULT_CONF))
		o->config = KD_DEFAULT_CONF;
	path = o->config;
	c->file = path;
	if (path != NULL)
		kd_conf_read(c, path, f);
	if (o->loopback)
		kd_conf_only_loopback(c);
	if (o->socket != NULL)
		kd_conf_set(c, "socket", "path", o->socket, "--socket", f);
	if (o->name != NULL)
		kd_conf_set(c, "engine", "name", o->name, "--name", f);
	if (o->user != NULL)
		kd_conf_set(c, "engine", "user", o->user, "--user", f);
	if (o->log_level != NULL)
		kd_conf_set(c, "log", "level", o->log_level, "--log-level", f);
	if (f->n == 0)
		kd_conf_finish(c, path != NULL ? path : "defaults", f);
	kd_faults_end(f);
	return f->n == 0 ? 0 : -EINVAL;
}

static int
conf_reread(void *user, struct kd_conf *c)
{
	struct kd_faults faults = {.say = say_to_log};

	return read_conf(user, c, &faults);
}

int
main(int argc, char **argv)
{
	struct kd_faults faults = {.say = print_words};
	struct kd_conf *conf;
	struct kd_opts opts;
	int rc;

	/* only the daemon itself uses this option */
	if (argc == 2 && strcmp(argv[1], KD_PART_OPTION) == 0)
		return kd_part_main(KD_PART_CHANNEL);
	/* Each attached program has a thread here, which rarely allocates memory.  With an arena
	 * for each thread the C library would keep megabytes for programs that have gone. */
	mallopt(M_ARENA_MAX, 2);
	rc = kd_opts_parse(argc, argv, &opts);
	if (rc >= 0)
		return rc;
	conf = malloc(sizeof(*conf));
	if (conf == NULL) {
		fputs("karstd: no memory\n", stderr);
		return KD_EXIT_FAILED;
	}
	rc = KD_EXIT_OK;
	if (read_conf(&opts, conf, &faults) != 0)
		rc = KD_EXIT_WRONG;
	else if (!opts.check)
		rc = kd_daemon_run(conf, conf_reread, &opts);
	free(conf);
	return rc;
}
