/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program of TCP sockets needs no devices.  It needs libkarst-sockets.so, which LD_PRELOAD loads
 * into it and into the programs that it executes, and a karstd that provides the SMC service.
 */
#include "smc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine.h"
#include "karst.h"
#include "karst_sock.h"
#include "place.h"

/* Does a daemon provide the SMC service there? */
static int
try_service(const char *engine)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int n = snprintf(at.sun_path, sizeof(at.sun_path), "%s" KARST_SOCK_SUFFIX, engine), fd, rc;

	if (n >= (int)sizeof(at.sun_path))
		return kr_fail("%s: the path is too long", engine);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	rc = fd < 0 || connect(fd, (const void *)&at, sizeof(at)) != 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	if (rc == 0)
		return -1;
	return kr_fail("%s: %s; --smc needs a karstd with enabled = yes in section [smc] of "
		       "karst.conf",
		at.sun_path, strerror(rc));
}

static int
preload(const char *library)
{
	const char *there = getenv("LD_PRELOAD");
	char *both;
	int rc;

	if (asprintf(&both, "%s%s%s", library, there != NULL && there[0] != '\0' ? ":" : "",
		    there != NULL ? there : "") < 0)
		return -ENOMEM;
	rc = setenv("LD_PRELOAD", both, 1) != 0 ? -errno : 0;
	free(both);
	return rc;
}

int
kr_smc_prepare(const struct kr_opts *o)
{
	const char *engine = kr_engine_named(o);
	char library[PATH_MAX], pid[16];
	int rc = kr_place_sockets(library);

	if (engine == NULL)
		engine = KARST_DEFAULT_SOCKET;
	if (rc < 0)
		rc = try_service(engine);
	if (rc >= 0)
		return rc;
	/* the program keeps this process number; programs that it starts need no connection at
	 * once */
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (preload(library) != 0 || setenv("KARST_SMC_PID", pid, 1) != 0 ||
		setenv("KARST_SOCKET", engine, 1) != 0 ||
		setenv("KARST_SMC", o->require ? "require" : "offer", 1) != 0 ||
		setenv("KARST_SMC_SHORT", o->shorts == KR_SHORTS_SMC ? "smc" : "tcp", 1) != 0 ||
		(o->io_uring && setenv("KARST_SMC_URING", "1", 1) != 0))
		return kr_fail("the environment: %s", strerror(errno));
	kr_tell(o, "with %s, over %s", library, engine);
	return -1;
}
