/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The daemon changes its user before it opens anything, so that everything it creates belongs to
 * that user: it has to remove its socket and to reopen its log file after it has given up the
 * capabilities that it starts with (caps.c).
 *
 * DPDK keeps its telemetry socket in /var/run for root, and in a run-time folder for other users
 * (run_folder.h).  Under systemd it is in the service's own folder; for a daemon that changes its
 * user it is beside the socket.
 */
#include "user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "caps.h"
#include "karst_log.h"
#include "opts.h"
#include "run_folder.h"

#define USER     "karst"
#define MAKE     "useradd --system --no-create-home --shell /usr/sbin/nologin " USER
#define FROM_ENV "RUNTIME_DIRECTORY"

struct identity {
	const char *name; /* NULL: no user has this number */
	uid_t uid;
	gid_t gid;
};

/* Selects the user.  @return false: none; the daemon keeps its user. */
static bool
user_choose(const struct kd_conf_engine *c, struct identity *id)
{
	const struct passwd *pw = c->user == UINT32_MAX ? getpwnam(USER) : getpwuid(c->user);

	if (pw == NULL && c->user == UINT32_MAX) {
		karst_log(KARST_LOG_NOTICE,
			"there is no user " USER ", so this daemon stays root; \"" MAKE
			"\" makes one, and --user root says that it is meant so");
		return false;
	}
	*id = (struct identity){.uid = c->user, .gid = c->user};
	if (pw != NULL)
		*id = (struct identity){pw->pw_name, pw->pw_uid, pw->pw_gid};
	return id->uid != 0;
}

static void
folder_of(const char *path, char *folder, size_t len)
{
	const char *slash = strrchr(path, '/');

	snprintf(folder, len, "%.*s", (int)(slash - path), path);
}

/* Creates the last folder of the socket's path if it is missing, and gives it to the user. */
static int
give_folder(const struct kd_conf *c, const struct identity *id)
{
	char folder[KD_TEXT];

	folder_of(c->socket.path, folder, sizeof(folder));
	if (folder[0] == '\0' || mkdir(folder, 0755) != 0)
		return 0; /* an existing folder that cannot be used causes an error later */
	return chown(folder, id->uid, id->gid) == 0 ? 0 : -errno;
}

static int
user_change(const struct identity *id)
{
	int rc;

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
		return -errno;
	rc = id->name != NULL ? initgroups(id->name, id->gid) : setgroups(0, NULL);
	if (rc != 0 || setresgid(id->gid, id->gid, id->gid) != 0 ||
		setresuid(id->uid, id->uid, id->uid) != 0)
		return -errno;
	rc = kd_caps_raise();
	prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
	return rc;
}

/* systemd separates several folders by colons, which DPDK does not support. */
static int
choose_runtime_folder(const struct kd_conf *c, bool changed)
{
	const char *env = getenv(FROM_ENV);
	char folder[KD_TEXT], why[256];

	if (env != NULL && strchr(env, ':') != NULL)
		snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(env, ":"), env);
	else if (env == NULL && changed)
		folder_of(c->socket.path, folder, sizeof(folder));
	else if (run_folder_choose(why, sizeof(why)) == 0)
		return KD_EXIT_OK;
	else {
		karst_log(KARST_LOG_ERR, "%s", why);
		return KD_EXIT_FAILED;
	}
	setenv(FROM_ENV, folder, 1);
	return KD_EXIT_OK;
}

int
kd_user_become(const struct kd_conf *c)
{
	struct identity id;
	int rc;

	if (geteuid() != 0) {
		if (c->engine.user == UINT32_MAX || c->engine.user == geteuid())
			return choose_runtime_folder(c, false);
		karst_log(KARST_LOG_ERR,
			"[engine] user is number %u, which only a daemon that is started as root "
			"can become; this is user %u",
			c->engine.user, geteuid());
		return KD_EXIT_FAILED;
	}
	if (!user_choose(&c->engine, &id))
		return choose_runtime_folder(c, false);
	rc = give_folder(c, &id);
	if (rc == 0)
		rc = user_change(&id);
	if (rc == 0) {
		karst_log(KARST_LOG_INFO, "runs as user %s (%u), group %u",
			id.name != NULL ? id.name : "without a name", id.uid, id.gid);
		return choose_runtime_folder(c, true);
	}
	karst_log(KARST_LOG_ERR, "becoming user %u: %s", id.uid, strerror(-rc));
	return KD_EXIT_FAILED;
}
