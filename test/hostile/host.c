/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A karstd under test: starting and stopping it, its telemetry, and its resources. */
#include "hostile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TELEMETRY_BYTES 65536
/* Threads of the one lcore: one drives it, and one can take over. */
#define POOL_AT_REST 2

/* What follows "[engine]".  greed.c has to use up all that there is, and karstd has to clean up
 * afterwards, so the limits are low. */
static const char conf[] = "max_qps = 1024\n"
			   "max_keys = 2048\n"
			   "max_pds = 1024\n"
			   "max_ahs = 2048\n"
			   /* other tests add huge pages of the machine for a while */
			   "huge_pages = no\n"
			   "[socket]\n"
			   "mode = 0666\n" /* the folder's mode decides who has access */
			   "max_clients = 64\n"
			   "[limits]\n"
			   "qps = 512\n"
			   "held_bytes = 64M\n"
			   "ring_bytes = 16M\n"
			   "channels = 24\n"
			   "xrcds = 64\n"
			   "[limits root]\n"
			   "held_bytes = 1T\n"
			   "[log]\n"
			   "level = warning\n";

/* --- life --- */

bool
host_start(struct host *h)
{
	const struct karst_open_attr attr = {.connect_timeout_ms = HANG_S * 1000};
	char conf_path[96], log_path[96], user[16];
	uint64_t until = now_ms() + HANG_S * 1000;

	snprintf(conf_path, sizeof(conf_path), "%s/karst.conf", h->folder);
	snprintf(log_path, sizeof(log_path), "%s/log", h->folder);
	snprintf(user, sizeof(user), "%u", geteuid()); /* the folder belongs to this user */
	h->pid = fork();
	if (h->pid == 0) {
		int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);

		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		close(fd);
		execl(h->karstd, h->karstd, "--config", conf_path, "--socket", h->sock, "--name",
			h->name, "--user", user, (char *)NULL);
		_exit(127);
	}
	while (host_alive(h) && now_ms() < until) {
		struct karst_context *ctx;

		if (karst_open(h->sock, &attr, &ctx) == 0) {
			karst_close(ctx);
			return true;
		}
		sleep_ms(20);
	}
	note("karstd did not start: %s; its log is %s", karst_why(), log_path);
	return false;
}

bool
host_up(struct host *h, const char *karstd)
{
	return host_up_as(h, karstd, "", "");
}

bool
host_up_with(struct host *h, const char *karstd, const char *more)
{
	return host_up_as(h, karstd, "", more);
}

bool
host_up_as(struct host *h, const char *karstd, const char *engine, const char *more)
{
	char path[96];
	FILE *f;

	*h = (struct host){.karstd = karstd};
	snprintf(h->folder, sizeof(h->folder), "/tmp/karst-hostile-XXXXXX");
	if (mkdtemp(h->folder) == NULL) {
		note("%s: %s", h->folder, strerror(errno));
		return false;
	}
	snprintf(h->sock, sizeof(h->sock), "%s/sock", h->folder);
	snprintf(h->name, sizeof(h->name), "hostile%d", (int)getpid() % 1000000);
	snprintf(path, sizeof(path), "%s/karst.conf", h->folder);
	f = fopen(path, "w");
	if (f == NULL || fprintf(f, "[engine]\n%s%s%s", engine, conf, more) < 0 || fclose(f) != 0) {
		note("%s: %s", path, strerror(errno));
		return false;
	}
	return host_start(h);
}

bool
host_for_all(const struct host *h)
{
	if (chmod(h->folder, 0711) == 0)
		return true;
	note("%s: %s", h->folder, strerror(errno));
	return false;
}

bool
host_alive(const struct host *h)
{
	return h->pid > 0 && waitpid(h->pid, NULL, WNOHANG) == 0;
}

void
host_kill(struct host *h)
{
	kill(h->pid, SIGKILL);
	waitpid(h->pid, NULL, 0);
	h->pid = 0;
}

/* Shows the end of the log, which has the reason. */
static void
show_log(const struct host *h)
{
	char path[96], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", h->folder);
	f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		note("karstd: %.*s", (int)strcspn(line, "\n"), line);
	if (f != NULL)
		fclose(f);
}

bool
host_stop(struct host *h)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	int status = 0;
	pid_t got;

	if (h->pid <= 0) {
		/* pid 0 would signal the whole process group */
		note("karstd: not started again");
		return false;
	}
	kill(h->pid, SIGTERM);
	while ((got = waitpid(h->pid, &status, WNOHANG)) == 0 && now_ms() < until)
		sleep_ms(10);
	if (got == h->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		h->pid = 0;
		return true;
	}
	if (got == 0)
		host_kill(h);
	note("karstd: %s %d", got == 0 ? "did not stop within" : "ended with wait status",
		got == 0 ? HANG_S : status);
	show_log(h);
	return false;
}

void
host_remove(const struct host *h)
{
	static const char *const names[] = {"sock", "sock.lock", "karst.conf", "log"};
	char path[96];
	size_t i;

	for (i = 0; i < KARST_DIM(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", h->folder, names[i]);
		unlink(path);
	}
	rmdir(h->folder);
}

bool
host_end(struct host *h, bool good)
{
	good &= host_stop(h);
	if (good)
		host_remove(h);
	return good;
}

/* --- telemetry --- */

static int
telemetry_connect(const struct host *h)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const struct timeval patience = {.tv_sec = HANG_S};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "/var/run/dpdk/%s/dpdk_telemetry.v2", h->name);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	note("%s: %s", a.sun_path, strerror(errno));
	close(fd);
	return -1;
}

/* Reads the answer, and terminates it with 0. */
static bool
telemetry(const struct host *h, const char *cmd, char *answer)
{
	int fd = telemetry_connect(h);
	ssize_t n = -1;

	if (fd < 0)
		return false;
	if (recv(fd, answer, TELEMETRY_BYTES - 1, 0) > 0 && send(fd, cmd, strlen(cmd), 0) > 0)
		n = recv(fd, answer, TELEMETRY_BYTES - 1, 0);
	if (n <= 0)
		note("%s: %s", cmd, n < 0 ? strerror(errno) : "no answer");
	close(fd);
	if (n <= 0)
		return false;
	answer[n] = '\0';
	return true;
}

static long
number(const char *answer, const char *key)
{
	char name[64];
	const char *at;

	snprintf(name, sizeof(name), "\"%s\":", key);
	at = strstr(answer, name);
	return at != NULL ? strtol(at + strlen(name), NULL, 10) : -1;
}

long
host_ask(const struct host *h, const char *cmd, const char *key)
{
	char answer[TELEMETRY_BYTES];

	return telemetry(h, cmd, answer) ? number(answer, key) : -1;
}

void
host_show(const struct host *h, const char *cmd)
{
	char answer[TELEMETRY_BYTES];

	if (telemetry(h, cmd, answer))
		note("%s", answer);
}

/* --- its resources --- */

static long
count_entries(pid_t pid, const char *what)
{
	const struct dirent *d;
	char path[64];
	long n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
	dir = opendir(path);
	while (dir != NULL && (d = readdir(dir)) != NULL)
		n += d->d_name[0] != '.';
	if (dir != NULL)
		closedir(dir);
	return n;
}

/* How many threads have a name that begins with @named; *others: how many do not. */
static long
threads_named(pid_t pid, const char *named, long *raised, long *others)
{
	char path[320], name[64];
	const struct dirent *d;
	long n = 0;
	bool is;
	DIR *dir;
	FILE *f;

	*others = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir != NULL && (d = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid, d->d_name);
		f = d->d_name[0] != '.' ? fopen(path, "r") : NULL;
		if (f == NULL)
			continue;
		is = fgets(name, sizeof(name), f) != NULL &&
			strncmp(name, named, strlen(named)) == 0;
		n += is;
		*others += !is;
		if (is && raised != NULL)
			*raised += sched_getscheduler((pid_t)atoi(d->d_name)) > SCHED_OTHER;
		fclose(f);
	}
	if (dir != NULL)
		closedir(dir);
	return n;
}

void
process_usage(pid_t pid, struct usage *u)
{
	char path[64], line[512];
	FILE *f;

	u->fds = count_entries(pid, "fd");
	/* threads of lcores come and go with slow copies; host_rests() checks them */
	threads_named(pid, "karst-lcore-", NULL, &u->threads);
	u->mappings = u->shared = u->rss_kib = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		char flags[8] = "";

		u->mappings++;
		u->shared += sscanf(line, "%*s %7s", flags) == 1 && flags[3] == 's';
	}
	if (f != NULL)
		fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "RssAnon: %ld", &u->rss_kib) == 1)
			break;
	if (f != NULL)
		fclose(f);
}

void
host_usage(const struct host *h, struct usage *u)
{
	char engine[TELEMETRY_BYTES] = "", memory[TELEMETRY_BYTES] = "";

	/* first: telemetry serves each request by a descriptor and a thread, which may outlive the
	 * answer a little */
	process_usage(h->pid, u);
	telemetry(h, "/karst/engine", engine);
	telemetry(h, "/karst/memory", memory);
	u->qps = number(engine, "qps");
	u->cqs = number(engine, "cqs");
	u->srqs = number(engine, "srqs");
	u->regions = number(memory, "regions");
	u->windows = number(memory, "windows");
	u->pds = number(memory, "pds");
	u->owners = number(memory, "owners");
	u->object_bytes = number(memory, "object_bytes");
	u->ring_bytes = number(memory, "ring_bytes");
	u->mbufs_used = number(memory, "mbufs") - number(memory, "mbufs_free");
}

/* Names what has grown by more than it may. */
static const char *
grown_member(const struct usage *was, const struct usage *is, bool grown, long *by)
{
	const struct {
		const char *name;
		long was, is, slack;
	} rows[] = {
		{"queue pairs", was->qps, is->qps, 0},
		{"completion queues", was->cqs, is->cqs, 0},
		{"shared receive queues", was->srqs, is->srqs, 0},
		{"regions", was->regions, is->regions, 0},
		{"windows", was->windows, is->windows, 0},
		{"protection domains", was->pds, is->pds, 0},
		{"owners", was->owners, is->owners, 0},
		{"bytes of objects", was->object_bytes, is->object_bytes, 0},
		{"bytes of rings", was->ring_bytes, is->ring_bytes, 0},
		{"descriptors", was->fds, is->fds, 0},
		{"threads", was->threads, is->threads, 0},
		{"shared mappings", was->shared, is->shared, 0},
		/* the C library keeps some stacks and arenas of threads that have ended */
		{"mappings", was->mappings, is->mappings, 128},
		{"KiB of private memory", was->rss_kib, is->rss_kib, grown ? 1 << 30 : 6144},
		/* in flight */
		{"packet buffers", was->mbufs_used, is->mbufs_used, 1024},
	};
	size_t i;

	for (i = 0; i < KARST_DIM(rows); i++) {
		*by = rows[i].is - rows[i].was;
		if (*by > rows[i].slack)
			return rows[i].name;
	}
	return NULL;
}

long
host_threads(const struct host *h, const char *named, long *raised)
{
	long others;

	return threads_named(h->pid, named, raised, &others);
}

bool
host_until_stuck(const struct host *h, long least, long most)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	long stuck;

	for (;;) {
		stuck = host_ask(h, "/karst/lcores", "stuck_threads");
		if (stuck >= least && stuck <= most)
			return true;
		if (now_ms() > until)
			break;
		sleep_ms(10);
	}
	note("%ld threads of lcores are stuck, and not %ld to %ld", stuck, least, most);
	return false;
}

static void
show_threads(const struct host *h)
{
	static const char *const names[] = {"karstd", "karst-lcore-0", "karst-watch", "karst-cm"};
	size_t i;

	for (i = 0; i < KARST_DIM(names); i++)
		note("%ld threads %s", host_threads(h, names[i], NULL), names[i]);
}

bool
host_settles(const struct host *h, const struct usage *before, bool grown)
{
	uint64_t began = now_ms(), until = began + HANG_S * 1000;
	const char *what = "?", *last = NULL;
	struct usage is;
	long by = 0, least = 0;

	while (host_alive(h)) {
		host_usage(h, &is);
		what = grown_member(before, &is, grown, &by);
		if (what == NULL) {
			note("karstd: %ld threads, %ld descriptors, %ld mappings, %ld KiB of "
			     "private memory; before %ld, %ld, %ld, %ld",
				is.threads, is.fds, is.mappings, is.rss_kib, before->threads,
				before->fds, before->mappings, before->rss_kib);
			if (last != NULL)
				note("that took %d ms; the last to go were %s",
					(int)(now_ms() - began), last);
			return true;
		}
		/* as long as it still shrinks, it is not leaked */
		if (what != last || by < least) {
			last = what;
			least = by;
			until = now_ms() + HANG_S * 1000;
		}
		if (now_ms() > until)
			break;
		sleep_ms(20);
	}
	if (!host_alive(h)) {
		note("karstd is gone");
		show_log(h);
	} else {
		note("karstd has kept something: %ld more %s", by, what);
		show_threads(h);
	}
	return false;
}

bool
host_rests(const struct host *h)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	long n;

	while ((n = host_threads(h, "karst-lcore-", NULL)) > POOL_AT_REST) {
		if (now_ms() > until) {
			note("karstd has kept %ld threads of lcores, and not %d", n, POOL_AT_REST);
			return false;
		}
		sleep_ms(20);
	}
	return true;
}
