/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The connection to the SMC service.  There is one for the process, made when it is needed for the
 * first time.  In the program that was given to karst-run it is made when the program begins: then
 * the first TCP connection does not wait for the service, nor for memory that has not been touched
 * yet.  The descriptors of the connection and of the map have high numbers and are hidden from the
 * program, which may close descriptors that it did not open.
 *
 * The library polls for an answer before it sleeps.  The service mostly has nothing else to do, and
 * if the program sleeps, the service needs a call to wake it, and both need context switches.
 *
 * If no service answers, the program uses TCP; the library tries again after a second.  The end of
 * the service is looked for once in a second when the program listens, connects or accepts: a
 * program whose connections all stay on TCP sends the service nothing, and would not notice.
 */
#include "ks.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/karst/karst.sock"
#define ANSWER_S       10
#define HIGH           32768
#define HIDE_EACH      64 /* descriptors between two queries of the limit */
#define ASK_EACH       64 /* connections between two queries of the number of processors */
#define MAX_FULL_S     64

bool ks_require;

static struct {
	pthread_mutex_t lock;
	_Atomic int fd, map;
	_Atomic int64_t failed_at;          /* seconds */
	_Atomic int64_t looked_at;          /* when it was last seen to be there, seconds */
	_Atomic int64_t full_until, full_s; /* 0: the service never was full */
	uint32_t seq;
	_Atomic bool early; /* made in advance, by a process of this user: */
	uid_t uid;
	_Atomic bool several; /* there were several processors at the last query */
	uint64_t look_ns;     /* how long to poll for an answer, from poll_us */
	struct ks_patience patience;
} service = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .map = -1};

static int64_t
service_now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + 1;
}

/* --- descriptors --- */

bool
ks_is_hidden(int fd)
{
	return fd >= 0 &&
		(fd == atomic_load_explicit(&service.fd, memory_order_relaxed) ||
			fd == atomic_load_explicit(&service.map, memory_order_relaxed) ||
			ks_kind(fd) == KS_HIDDEN);
}

/* Uses high numbers, where a program that goes through its descriptors does not get.  The limit
 * seldom changes: it is queried once in a while, and when a number is too high. */
int
ks_hide(int fd)
{
	static _Atomic uint32_t asked;
	static _Atomic int from = -1; /* a number that no descriptor has */
	struct rlimit lim = {.rlim_cur = 1024};
	int high = -1;

	if (atomic_fetch_add(&asked, 1) % HIDE_EACH != 0)
		high = real(fcntl64)(fd, F_DUPFD_CLOEXEC, atomic_load(&from));
	if (high < 0) {
		(void)getrlimit(RLIMIT_NOFILE, &lim);
		atomic_store(&from, (int)(lim.rlim_cur > 2 * HIGH ? HIGH : lim.rlim_cur / 2));
		high = real(fcntl64)(fd, F_DUPFD_CLOEXEC, atomic_load(&from));
	}
	if (high < 0)
		return fd;
	real(close)(fd);
	return high;
}

static void
hang_up(void)
{
	int fd = atomic_exchange(&service.fd, -1), map = atomic_exchange(&service.map, -1);

	if (fd >= 0)
		real(close)(fd);
	if (map >= 0)
		real(close)(map);
	ks_pages_forget();
	atomic_store(&service.failed_at, service_now_s());
}

/* --- a message each way --- */

static int
service_send(int to, const struct karst_sock_msg *msg, int fd)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = sizeof(*msg)};
	union {
		struct cmsghdr hdr;
		char bytes[CMSG_SPACE(sizeof(int))];
	} anc = {0};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		mh.msg_control = &anc;
		mh.msg_controllen = sizeof(anc.bytes);
		anc.hdr.cmsg_level = SOL_SOCKET;
		anc.hdr.cmsg_type = SCM_RIGHTS;
		anc.hdr.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&anc.hdr), &fd, sizeof(fd));
	}
	return real(sendmsg)(to, &mh, MSG_NOSIGNAL) == sizeof(*msg) ? 0 : -EIO;
}

/* Queried once in a while, because it seldom changes. */
bool
ks_has_processors(void)
{
	static _Atomic uint32_t asked;
	cpu_set_t set;

	if (atomic_fetch_add(&asked, 1) % ASK_EACH == 0)
		atomic_store(&service.several,
			sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 1);
	return atomic_load(&service.several);
}

/* As recvmsg(), but without sleeping.  -1: the answer has not come.  The function yields, because
 * the service may need this processor.  If other programs need it, a yield waits for them, and it
 * is better to be woken; then polling counts as unsuccessful, too. */
static ssize_t
look_for_answer(int from, struct msghdr *mh)
{
	uint64_t began, took;
	ssize_t n = -1;

	/* from what is known: a query needs system calls that a confined program may not have */
	if (service.look_ns == 0 || !atomic_load(&service.several) ||
		!ks_may_look(&service.patience))
		return n;
	began = ks_now();
	do {
		sched_yield();
		n = real(recvmsg)(from, mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		took = ks_now() - began;
	} while (n < 0 && errno == EAGAIN && took < service.look_ns);
	ks_looked(&service.patience, n >= 0 && took < service.look_ns);
	return n;
}

static int
service_recv(int from, struct karst_sock_msg *msg, int fds[KARST_SOCK_FDS])
{
	struct iovec iov = {.iov_base = msg, .iov_len = sizeof(*msg)};
	union {
		struct cmsghdr hdr;
		char bytes[CMSG_SPACE(KARST_SOCK_FDS * sizeof(int))];
	} anc = {0};
	struct msghdr mh = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &anc,
		.msg_controllen = sizeof(anc.bytes)};
	const struct cmsghdr *c;
	ssize_t n;

	memset(fds, -1, KARST_SOCK_FDS * sizeof(fds[0]));
	n = look_for_answer(from, &mh);
	if (n < 0)
		do {
			n = real(recvmsg)(from, &mh, MSG_CMSG_CLOEXEC); /* for up to ANSWER_S */
		} while (n < 0 && errno == EINTR);
	if (n != sizeof(*msg))
		return -EIO;
	for (c = CMSG_FIRSTHDR(&mh); c != NULL;
		c = CMSG_NXTHDR(&mh, (struct cmsghdr *)(uintptr_t)c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return 0;
}

/* The next three functions are called with the lock held. */
static int
ask_begin(struct karst_sock_msg *msg, int fd)
{
	int rc;

	msg->abi = KARST_SOCK_ABI;
	msg->seq = ++service.seq;
	rc = service_send(atomic_load(&service.fd), msg, fd);
	if (rc != 0)
		hang_up();
	return rc;
}

static int
ask_end(struct karst_sock_msg *msg, int fds[KARST_SOCK_FDS])
{
	int rc = service_recv(atomic_load(&service.fd), msg, fds);

	if (rc == 0 && (msg->abi != KARST_SOCK_ABI || msg->seq != service.seq))
		rc = -EPROTO;
	if (rc != 0)
		hang_up();
	return rc == 0 ? msg->status : rc;
}

static int
ask_locked(struct karst_sock_msg *msg, int fd, int fds[KARST_SOCK_FDS])
{
	int rc = ask_begin(msg, fd);

	return rc == 0 ? ask_end(msg, fds) : rc;
}

/* @return false if the path is too long */
static bool
service_address(struct sockaddr_un *at)
{
	const char *path = getenv("KARST_SOCKET");
	int n;

	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(at->sun_path, sizeof(at->sun_path), "%s" KARST_SOCK_SUFFIX,
		path != NULL && path[0] != '\0' ? path : DEFAULT_SOCKET);
	return n < (int)sizeof(at->sun_path);
}

static void
meet(void)
{
	struct sockaddr_un at;
	struct karst_sock_msg msg = {.op = KARST_SOCK_HELLO};
	const struct timeval answer = {.tv_sec = ANSWER_S};
	int fds[KARST_SOCK_FDS], fd;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (!service_address(&at) ||
		real(setsockopt)(fd, SOL_SOCKET, SO_RCVTIMEO, &answer, sizeof(answer)) != 0 ||
		real(connect)(fd, (const void *)&at, sizeof(at)) != 0) {
		real(close)(fd);
		atomic_store(&service.failed_at, service_now_s());
		return;
	}
	atomic_store(&service.fd, ks_hide(fd));
	if (ask_locked(&msg, -1, fds) != 0 || fds[0] < 0)
		hang_up();
	else
		atomic_store(&service.map, ks_hide(fds[0]));
	atomic_store(&service.looked_at, service_now_s());
	service.look_ns = msg.buffer * 1000ull; /* without a service this is not used */
	(void)ks_has_processors();
}

/* Begins a time in which the option is not offered (except with --require), unless one is under
 * way.  Each is twice as long as the one before, up to MAX_FULL_S, because connections that were
 * offered the option meanwhile have to be declined. */
void
ks_note_full(void)
{
	int64_t now = service_now_s(), wait = atomic_load(&service.full_s);

	if (now < atomic_load(&service.full_until))
		return;
	wait = wait == 0 ? 1 : wait < MAX_FULL_S ? 2 * wait : wait;
	atomic_store(&service.full_s, wait);
	atomic_store(&service.full_until, now + wait);
}

bool
ks_has_room(void)
{
	return atomic_load_explicit(&service.full_until, memory_order_relaxed) == 0 ||
		service_now_s() >= atomic_load(&service.full_until);
}

/* Since the connection was made, the program may have become another user, which the service does
 * not see.  It may also have closed all descriptors by direct system calls; then the descriptor
 * that has this number now must not be closed by this library. */
static void
check_early(void)
{
	struct sockaddr_un at, is = {.sun_family = AF_UNSPEC};
	socklen_t len = sizeof(is);
	int fd = atomic_load(&service.fd);

	if (fd >= 0 &&
		(!service_address(&at) || real(getpeername)(fd, (void *)&is, &len) != 0 ||
			is.sun_family != AF_UNIX || strcmp(is.sun_path, at.sun_path) != 0)) {
		atomic_store(&service.fd, -1);
		atomic_store(&service.map, -1);
	} else if (fd >= 0 && geteuid() != service.uid) {
		hang_up();
	}
	atomic_store(&service.failed_at, 0);
	atomic_store(&service.early, false);
}

/* @return true once in a second */
static bool
is_time_to_look(void)
{
	int64_t now = service_now_s();

	return atomic_load_explicit(&service.looked_at, memory_order_relaxed) != now &&
		atomic_exchange(&service.looked_at, now) != now;
}

static void
check_end(void)
{
	struct pollfd end = {.fd = atomic_load(&service.fd)};

	if (end.fd >= 0 && real(poll)(&end, 1, 0) > 0)
		hang_up();
}

bool
ks_service(void)
{
	bool has = atomic_load(&service.map) >= 0 && !atomic_load(&service.early);
	int err = errno;

	if (has && (ks_is_confined() || !is_time_to_look()))
		return true;
	if (!has && (ks_is_confined() || atomic_load(&service.failed_at) == service_now_s()))
		return false;
	ks_lock(&service.lock);
	if (atomic_load(&service.early))
		check_early();
	check_end();
	if (atomic_load(&service.fd) < 0)
		meet();
	ks_unlock(&service.lock);
	errno = err;
	return atomic_load(&service.map) >= 0;
}

extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

/* The first access to a page of memory takes longer than most system calls, and the first
 * connection would touch all of these pages. */
static void
touch_own(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)__bss_start & ~(page - 1);

	(void)madvise((void *)from, (uintptr_t)_end - from, MADV_POPULATE_WRITE);
	ks_table_begin(atomic_load(&service.fd));
}

void
ks_service_begin(void)
{
	const char *pid = getenv("KARST_SMC_PID");

	if (pid == NULL || strtol(pid, NULL, 10) != getpid())
		return;
	if (ks_service())
		touch_own();
	service.uid = geteuid();
	atomic_store(&service.early, true);
	atomic_store(&service.failed_at, 0); /* try again when the program needs the service */
}

int
ks_service_fd(void)
{
	return atomic_load(&service.fd);
}

/*
 * A child needs a connection of its own.  If the child has connections, or listeners that have
 * promised SMC-R, it needs one at once, because it may give up the right to connect, as servers do
 * that begin as root.
 */
void
ks_service_forked(bool at_once)
{
	bool had = atomic_load(&service.fd) >= 0;

	pthread_mutex_init(&service.lock, NULL);
	ks_pages_forked();
	hang_up();
	atomic_store(&service.failed_at, 0);
	if (had && at_once)
		(void)ks_service();
}

int
ks_ask(struct karst_sock_msg *msg, int fd, int fds[KARST_SOCK_FDS])
{
	int rc = -EIO;

	memset(fds, -1, KARST_SOCK_FDS * sizeof(fds[0]));
	if (!ks_service())
		return rc;
	ks_lock(&service.lock);
	if (atomic_load(&service.fd) >= 0)
		rc = ask_locked(msg, fd, fds);
	ks_unlock(&service.lock);
	return rc;
}

int
ks_open_begin(struct karst_sock_msg *msg, int fd, uint32_t *generation)
{
	int rc = -EIO;

	if (!ks_service())
		return rc;
	ks_lock(&service.lock);
	if (atomic_load(&service.fd) >= 0) {
		*generation = ks_pages_report(msg);
		msg->left = ks_peers_left();
		rc = ask_begin(msg, fd);
	}
	if (rc != 0)
		ks_unlock(&service.lock);
	return rc;
}

int
ks_open_end(struct karst_sock_msg *msg, int fds[KARST_SOCK_FDS])
{
	int rc = ask_end(msg, fds);

	ks_unlock(&service.lock);
	return rc;
}

/* --- the option --- */

static int
map_call(int cmd, int fd, struct karst_sock_option *value)
{
	union bpf_attr attr = {0};

	attr.map_fd = (uint32_t)atomic_load(&service.map);
	attr.key = (uintptr_t)&fd;
	attr.value = (uintptr_t)value;
	return (int)syscall(SYS_bpf, cmd, &attr, sizeof(attr));
}

void
ks_option_want(int fd, bool want)
{
	struct karst_sock_option value = {.want = want};
	int err = errno;

	(void)map_call(BPF_MAP_UPDATE_ELEM, fd, &value);
	errno = err;
}

bool
ks_option_seen(int fd)
{
	struct karst_sock_option value = {0};
	int err = errno;
	bool seen = map_call(BPF_MAP_LOOKUP_ELEM, fd, &value) == 0 && value.seen != 0;

	errno = err;
	return seen;
}
