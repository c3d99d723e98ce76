/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS        15000
#define STOP_MS         5000
#define DAEMON_LOOK_MS  10
#define DAEMON_MAX_ARGS 16
#define CONF            "karst.conf"

/* --- children --- */

/* @fds: a pipe that becomes the standard output of the child, or NULL.  -errno */
static pid_t
daemon_spawn(const char *program, char *const *argv, const int *fds)
{
	pid_t parent = getpid(), pid = fork();

	if (pid != 0)
		return pid < 0 ? -errno : pid;
	/* the child ends when this process ends, for whatever reason */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	/* its output goes to the standard error: the standard output is for results */
	dup2(fds != NULL ? fds[1] : STDERR_FILENO, STDOUT_FILENO);
	execvp(program, argv);
	fprintf(stderr, "karst-perf: %s: %s\n", program, strerror(errno));
	_exit(127);
}

static void
daemon_nap(void)
{
	const struct timespec ts = {.tv_nsec = DAEMON_LOOK_MS * 1000000L};

	nanosleep(&ts, NULL);
}

static bool
has_ended(pid_t *pid)
{
	int status;

	if (waitpid(*pid, &status, WNOHANG) != *pid)
		return false;
	*pid = 0;
	return true;
}

static void
daemon_stop(pid_t *pid)
{
	int ms;

	if (*pid <= 0)
		return;
	kill(*pid, SIGTERM);
	for (ms = 0; ms < STOP_MS; ms += DAEMON_LOOK_MS) {
		if (has_ended(pid))
			return;
		daemon_nap();
	}
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

/* --- karstd --- */

static int
write_config(const struct perf_opts *o, const char *path)
{
	FILE *f = fopen(path, "w");
	int bad;

	if (f == NULL)
		return -errno;
	fprintf(f, "[engine]\nname = perf%d\nuser = %u\n", (int)getpid() % 100000,
		(unsigned int)geteuid());
	fprintf(f, "idle = %s\n", o->yield == 0 ? "poll" : "yield");
	fprintf(f, "max_qps = %u\n", 2 * (o->connections ? 2 * o->conns : o->qps) + 64);
	if (o->window != 0)
		fprintf(f, "window_packets = %u\n", o->window);
	if (o->repeat)
		fprintf(f, "selective_repeat = 127.0.0.1/8, ::1/128\n");
	if (o->early)
		fprintf(f, "early_retransmission = yes\n");
	fprintf(f, "congestion = %s\n", perf_congestion_name(o->congestion));
	if (o->loss > 0)
		fprintf(f, "loss_ppm = %u\nloss_seed = %u\n", (unsigned int)(o->loss * 1e6),
			(uint32_t)o->seed | 1);
	fputs("[limits]\nring_bytes = 16G\n[port lo]\ndevice = loopback\n", f);
	bad = ferror(f);
	return fclose(f) != 0 || bad ? -EIO : 0;
}

/* Finds karstd relative to this program, as built or as installed. */
static void
find_karstd(char *path, size_t bytes)
{
	static const char *const beside[] = {"karstd", "../karstd/karstd"};
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	unsigned int i;
	char *slash;

	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		if (slash != NULL)
			*slash = '\0';
		for (i = 0; i < KARST_DIM(beside); i++) {
			snprintf(path, bytes, "%s/%s", self, beside[i]);
			if (access(path, X_OK) == 0)
				return;
		}
	}
	snprintf(path, bytes, "karstd"); /* on the PATH */
}

static bool
daemon_answers(const char *socket_path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool yes;

	if (fd < 0)
		return false;
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", socket_path);
	yes = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
	close(fd);
	return yes;
}

static int
start_karstd(const struct perf_opts *o, struct perf_daemon *d)
{
	char conf[96], program[600];
	char *argv[DAEMON_MAX_ARGS];
	int n = 0, ms, rc;

	snprintf(conf, sizeof(conf), "%s/" CONF, d->dir);
	rc = write_config(o, conf);
	if (rc != 0) {
		fprintf(stderr, "karst-perf: %s: %s\n", conf, strerror(-rc));
		return 1;
	}
	if (o->karstd != NULL)
		snprintf(program, sizeof(program), "%s", o->karstd);
	else
		find_karstd(program, sizeof(program));
	argv[n++] = program;
	argv[n++] = (char *)(uintptr_t) "--config";
	argv[n++] = conf;
	argv[n++] = (char *)(uintptr_t) "--socket";
	argv[n++] = d->socket;
	argv[n++] = (char *)(uintptr_t) "--log-level";
	argv[n++] = (char *)(uintptr_t) "warning";
	argv[n] = NULL;
	d->karstd = daemon_spawn(program, argv, NULL);
	if (d->karstd < 0) {
		fprintf(stderr, "karst-perf: %s: %s\n", program, strerror(-d->karstd));
		return 1;
	}
	for (ms = 0; ms < START_MS; ms += DAEMON_LOOK_MS) {
		if (daemon_answers(d->socket))
			return 0;
		if (has_ended(&d->karstd))
			break;
		daemon_nap();
	}
	fprintf(stderr, "karst-perf: --daemon: %s did not start%s\n", program,
		d->karstd > 0 ? " in time" : "; its own words are above");
	return 1;
}

/* --- the server --- */

/* Reads the server's line with the port on which it listens. */
static int
read_port(int fd, uint16_t *port)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char line[128];
	size_t n = 0;
	unsigned int v;

	while (n < sizeof(line) - 1) {
		if (poll(&p, 1, START_MS) <= 0 || read(fd, line + n, 1) != 1)
			return -EPIPE;
		if (line[n++] == '\n')
			break;
	}
	line[n] = '\0';
	if (sscanf(line, "karst-perf: server on TCP port %u", &v) != 1 || v > UINT16_MAX)
		return -EPROTO;
	*port = (uint16_t)v;
	return 0;
}

static int
start_server(struct perf_opts *o, struct perf_daemon *d)
{
	const char *const words[] = {"karst-perf", "--connect", d->socket, "--server", "--tcp-port",
		"0", "--memory", perf_memory_name(o->memory), "--idle",
		o->yield == 0 ? "poll" : "yield", o->odp ? "--odp" : NULL};
	char *argv[KARST_DIM(words) + 1];
	unsigned int i;
	int fds[2], rc;

	for (i = 0; i < KARST_DIM(words); i++)
		argv[i] = (char *)(uintptr_t)words[i];
	argv[i] = NULL;
	if (pipe(fds) != 0) {
		perror("karst-perf: pipe");
		return 1;
	}
	d->server = daemon_spawn("/proc/self/exe", argv, fds);
	close(fds[1]);
	rc = d->server < 0 ? (int)d->server : read_port(fds[0], &o->tcp_port);
	close(fds[0]);
	if (rc != 0)
		fputs("karst-perf: --daemon: the server did not start\n", stderr);
	return rc == 0 ? 0 : 1;
}

int
perf_daemon_start(struct perf_opts *o, struct perf_daemon *d)
{
	int rc;

	memset(d, 0, sizeof(*d));
	snprintf(d->dir, sizeof(d->dir), "/tmp/karst-perf-XXXXXX");
	if (mkdtemp(d->dir) == NULL) {
		perror("karst-perf: /tmp");
		d->dir[0] = '\0';
		return 1;
	}
	snprintf(d->socket, sizeof(d->socket), "%s/karst.sock", d->dir);
	rc = start_karstd(o, d);
	if (rc == 0 && !o->connections)
		rc = start_server(o, d);
	o->connect = d->socket;
	/* not "localhost": resolving that name needs a file that a small system may lack */
	o->peer = o->connections ? NULL : "127.0.0.1";
	return rc;
}

void
perf_daemon_stop(struct perf_daemon *d)
{
	char conf[128];

	daemon_stop(&d->server);
	daemon_stop(&d->karstd);
	if (d->dir[0] == '\0')
		return;
	snprintf(conf, sizeof(conf), "%s/" CONF, d->dir);
	unlink(conf);
	unlink(d->socket);
	snprintf(conf, sizeof(conf), "%s.lock", d->socket);
	unlink(conf);
	rmdir(d->dir);
	memset(d, 0, sizeof(*d));
}
