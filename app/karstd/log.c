/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include <rte_log.h>

#define LINE_BYTES 1024u

enum target { TO_STDERR, TO_JOURNAL, TO_SYSLOG, TO_FILE };

/* At file scope because the sinks of karst and of DPDK have no argument. */
static struct {
	pthread_mutex_t lock;
	enum target target;
	int fd;
	enum karst_log_level level;
	uint64_t lost;
	int lost_errno;
	FILE *dpdk; /* the stream that DPDK prints into */
} log_state = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = STDERR_FILENO, .level = KARST_LOG_NOTICE};

static const char *const level_names[] = {"error", "warning", "notice", "info", "debug"};
static const int priorities[] = {LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG};
static const uint32_t rte_levels[] = {
	RTE_LOG_ERR, RTE_LOG_WARNING, RTE_LOG_NOTICE, RTE_LOG_INFO, RTE_LOG_DEBUG};

/* Is stderr the journal, according to systemd's environment variable? */
static bool
stderr_is_journal(void)
{
	const char *env = getenv("JOURNAL_STREAM");
	uintmax_t dev, ino;
	struct stat st;

	return env != NULL && sscanf(env, "%ju:%ju", &dev, &ino) == 2 &&
		fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/* --- writing a line; under the lock --- */

static int
log_put(const char *line, size_t len)
{
	ssize_t n = write(log_state.fd, line, len);

	if (n == (ssize_t)len)
		return 0;
	log_state.lost++;
	log_state.lost_errno = n < 0 ? errno : ENOSPC;
	return -1;
}

static size_t
stamp(char *to, size_t room)
{
	struct timespec ts;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(to, room, "%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(to + n, room - n, ".%03ldZ ", ts.tv_nsec / 1000000);
}

static void
put_line(enum karst_log_level level, const char *text)
{
	char line[LINE_BYTES + 64];
	size_t n = 0;

	switch (log_state.target) {
	case TO_SYSLOG:
		syslog(priorities[level], "%s", text);
		return;
	case TO_JOURNAL:
		n = (size_t)snprintf(line, sizeof(line), "<%d>", priorities[level]);
		break;
	case TO_STDERR:
		n = (size_t)snprintf(line, sizeof(line), "karstd: ");
		break;
	case TO_FILE:
		n = stamp(line, sizeof(line));
		break;
	}
	n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s%s\n",
		log_state.target == TO_JOURNAL ? "" : level_names[level],
		log_state.target == TO_JOURNAL ? "" : ": ", text);
	log_put(line, n);
}

static void
report_lost(void)
{
	uint64_t lost = log_state.lost;
	char text[128];

	snprintf(text, sizeof(text), "%" PRIu64 " messages were lost: %s", lost,
		strerror(log_state.lost_errno));
	log_state.lost = 0;
	put_line(KARST_LOG_WARNING, text);
	if (log_state.lost != 0)
		log_state.lost = lost;
}

static void
log_line(enum karst_log_level level, const char *text)
{
	pthread_mutex_lock(&log_state.lock);
	if (log_state.lost != 0)
		report_lost();
	if (log_state.lost != 0)
		log_state.lost++;
	else
		put_line(level, text);
	pthread_mutex_unlock(&log_state.lock);
}

/* --- sources of lines --- */

static void
karst_sink(enum karst_log_level level, const char *fmt, va_list ap)
{
	char text[LINE_BYTES];

	if (level > __atomic_load_n(&log_state.level, __ATOMIC_RELAXED))
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	log_line(level, text);
}

/* Writes one or more lines of DPDK, which has already applied its own levels. */
static ssize_t
dpdk_write(void *cookie, const char *buf, size_t size)
{
	uint32_t rte = (uint32_t)rte_log_cur_msg_loglevel();
	enum karst_log_level level = KARST_LOG_ERR;
	size_t at = 0;

	(void)cookie;
	while (level < KARST_LOG_DEBUG && rte_levels[level] < rte)
		level++;
	while (at < size) {
		const char *end = memchr(buf + at, '\n', size - at);
		size_t len = end != NULL ? (size_t)(end - buf) - at : size - at;
		char text[LINE_BYTES], shown[LINE_BYTES];

		snprintf(text, sizeof(text), "%.*s",
			(int)(len < sizeof(text) ? len : sizeof(text) - 1), buf + at);
		karst_text_escape(shown, sizeof(shown), text);
		if (shown[0] != '\0')
			log_line(level, shown);
		at += len + 1;
	}
	return (ssize_t)size;
}

void
kd_log_take_karst(void)
{
	karst_log_set_sink(karst_sink);
}

void
kd_log_take_dpdk(void)
{
	static const cookie_io_functions_t io = {.write = dpdk_write};

	log_state.dpdk = fopencookie(NULL, "w", io);
	if (log_state.dpdk == NULL)
		return;
	setvbuf(log_state.dpdk, NULL, _IOLBF, LINE_BYTES);
	rte_openlog_stream(log_state.dpdk);
}

/* --- targets --- */

void
kd_log_begin(const struct kd_conf_log *c)
{
	struct kd_conf_log early = *c;

	if (early.file[0] == '/')
		strcpy(early.file, "stderr");
	kd_log_open(&early);
}

int
kd_log_open(const struct kd_conf_log *c)
{
	enum target target = TO_FILE;
	int fd = STDERR_FILENO, old = -1;

	if (strcmp(c->file, "stderr") == 0) {
		target = stderr_is_journal() ? TO_JOURNAL : TO_STDERR;
	} else if (strcmp(c->file, "syslog") == 0) {
		target = TO_SYSLOG;
		openlog("karstd", LOG_PID, LOG_DAEMON);
	} else {
		/* a link in a folder of the daemon's user must not lead to a file of root, which
		 * the capabilities of the start allow to be written */
		fd = open(c->file,
			O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK |
				O_NOFOLLOW,
			0640);
		if (fd < 0) {
			int err = errno;

			karst_log(KARST_LOG_ERR, "log file %s: %s", c->file, strerror(err));
			return -err;
		}
	}
	pthread_mutex_lock(&log_state.lock);
	if (log_state.target == TO_FILE)
		old = log_state.fd;
	log_state.target = target;
	log_state.fd = fd;
	__atomic_store_n(&log_state.level, c->level, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&log_state.lock);
	if (old >= 0)
		close(old);
	rte_log_set_level_pattern("*", (uint32_t)rte_levels[c->dpdk_level]);
	rte_log_set_level_pattern("karst", (uint32_t)rte_levels[c->level]);
	return 0;
}

void
kd_log_close(void)
{
	pthread_mutex_lock(&log_state.lock);
	if (log_state.target == TO_FILE)
		close(log_state.fd);
	log_state.target = TO_STDERR;
	log_state.fd = STDERR_FILENO;
	pthread_mutex_unlock(&log_state.lock);
}

/* By default libbpf writes to stderr. */
static int
log_libbpf(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	char text[512];

	if (level == LIBBPF_DEBUG)
		return 0;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	karst_log(level == LIBBPF_WARN ? KARST_LOG_WARNING : KARST_LOG_INFO, "%s", text);
	return 0;
}

void
kd_log_take_libbpf(void)
{
	libbpf_set_print(log_libbpf);
}

/* --- suppressing messages --- */

void
kd_log_hush(struct kd_hush *h, const char *type)
{
	h->type = rte_log_register(type);
	h->level = h->type < 0 ? -1 : rte_log_get_level((uint32_t)h->type);
	if (h->level >= 0)
		rte_log_set_level((uint32_t)h->type, RTE_LOG_CRIT);
}

void
kd_log_speak(const struct kd_hush *h)
{
	if (h->level >= 0)
		rte_log_set_level((uint32_t)h->type, (uint32_t)h->level);
}
