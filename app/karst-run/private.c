/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "supervisor.h"

#define START_MS   60000
#define LOOK_MS    10
#define BUSY       3 /* karstd's exit status: another daemon still has the socket */
#define TAIL_BYTES 2048

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Prints the last lines of karstd's log. */
static void
say_log(const char *path)
{
	char text[TAIL_BYTES + 1];
	FILE *f = fopen(path, "re");
	char *line, *rest = text;
	size_t n;

	if (f == NULL)
		return;
	if (fseek(f, -TAIL_BYTES, SEEK_END) != 0)
		rewind(f);
	n = fread(text, 1, TAIL_BYTES, f);
	text[n] = '\0';
	fclose(f);
	while ((line = strsep(&rest, "\n")) != NULL)
		if (line[0] != '\0')
			kr_fail("  %s", line);
}

/* --- starting --- */

static int
write_conf(const char *path)
{
	FILE *f = fopen(path, "we");
	int bad;

	if (f == NULL)
		return -errno;
	fprintf(f,
		"# written by karst-run\n[engine]\nname = run-%u\nuser = %u\n[socket]\n"
		"mode = 0600\n[port lo]\ndevice = loopback\n",
		(unsigned int)geteuid(), (unsigned int)geteuid());
	bad = ferror(f);
	return fclose(f) != 0 || bad ? -EIO : 0;
}

/* Waits until karstd answers.  @return -1, an exit status of karst-run, or BUSY. */
static int
private_await(const struct kr_supervised *k, int report, struct kr_view *v)
{
	int64_t until = now_ms() + START_MS;
	struct pollfd p = {.fd = report, .events = POLLIN};
	const char *why = "";
	int status;

	while (now_ms() < until) {
		if (poll(&p, 1, LOOK_MS) > 0) {
			if (read(report, &status, sizeof(status)) == sizeof(status) &&
				WIFEXITED(status) && WEXITSTATUS(status) == BUSY)
				return BUSY;
			kr_fail("the private engine, %s, did not start:", k->karstd);
			say_log(k->log);
			return KR_EXIT_FAILED;
		}
		if (kr_view_take(k->socket, v, &why) == 0)
			return -1;
	}
	kr_fail("the private engine, %s, did not start in time: %s", k->karstd, why);
	say_log(k->log);
	return KR_EXIT_FAILED;
}

/* Prepares the engine and starts its supervisor.  *both: the FIFO with both ends open, until the
 * supervisor has its own end, because it must not see the end of file before the first user.
 * *report as kr_supervisor_start() returns it. */
static int
engine_prepare(struct kr_supervised *k, int *both, int *report)
{
	int ret = write_conf(k->conf);

	unlink(k->alive); /* it has no reader */
	if (ret == 0 && mkfifo(k->alive, 0600) != 0)
		ret = -errno;
	*both = ret == 0 ? open(k->alive, O_RDWR | O_CLOEXEC) : -1;
	if (ret == 0)
		ret = *both < 0 ? -errno : kr_supervisor_start(k);
	if (ret < 0) {
		if (*both >= 0)
			close(*both);
		return kr_fail("preparing a private engine in %s: %s", k->folder, strerror(-ret));
	}
	*report = ret;
	return -1;
}

/* Called with the lock. */
static int
engine_start(struct kr_supervised *k, struct kr_view *v, int *hold)
{
	int both, report = -1, rc;

	k->log_fd = open(k->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (k->log_fd < 0)
		return kr_fail("the private engine's log, %s: %s", k->log, strerror(errno));
	rc = engine_prepare(k, &both, &report);
	close(k->log_fd);
	if (rc >= 0) {
		kr_supervised_remove(k);
		return rc;
	}
	rc = private_await(k, report, v);
	if (rc < 0) {
		*hold = open(k->alive, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
		if (*hold < 0) {
			rc = kr_fail("the private engine ended: %s", strerror(errno));
			kr_view_free(v);
		}
	}
	close(both);
	close(report);
	return rc;
}

/* --- joining --- */

/* Called with the lock.  @return -1, an exit status of karst-run, or BUSY: not yet. */
static int
private_join(const struct kr_opts *o, struct kr_supervised *k, struct kr_view *v, int *hold)
{
	const char *why;

	*hold = open(k->alive, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (*hold < 0 && errno != ENXIO && errno != ENOENT)
		return kr_fail("%s: %s", k->alive, strerror(errno));
	if (*hold < 0) {
		kr_tell(o, "starting a private engine, %s", k->karstd);
		return engine_start(k, v, hold);
	}
	if (kr_view_take(k->socket, v, &why) == 0) {
		kr_tell(o, "the private engine is there already");
		return -1;
	}
	close(*hold); /* the engine is about to end */
	*hold = -1;
	return BUSY;
}

static void
sleep_ms(void)
{
	const struct timespec ts = {.tv_nsec = LOOK_MS * 1000000L};

	nanosleep(&ts, NULL);
}

int
kr_private_join(const struct kr_opts *o, const struct kr_places *places, const char *folder,
	struct kr_view *v, int *hold)
{
	int64_t until = now_ms() + START_MS;
	struct kr_supervised k;
	int lock, rc;

	if (!places->has_karstd)
		return kr_fail(
			"no engine answers, and to start a private one karstd is missing: %s",
			places->karstd);
	kr_supervised_init(&k, o, places->karstd, folder);
	do {
		lock = kr_folder_lock(folder);
		if (lock < 0) {
			rc = KR_EXIT_FAILED;
			break;
		}
		rc = private_join(o, &k, v, hold);
		kr_folder_unlock(folder, lock);
		if (rc == BUSY)
			sleep_ms();
	} while (rc == BUSY && now_ms() < until);
	if (rc == BUSY)
		rc = kr_fail("a private engine in %s neither answers nor ends", folder);
	return rc;
}
