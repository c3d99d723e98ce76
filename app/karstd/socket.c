/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "karst_log.h"
#include "opts.h"

static int
socket_failed(const char *what, const char *path)
{
	karst_log(KARST_LOG_ERR, "%s %s: %s", what, path, strerror(errno));
	return KD_EXIT_FAILED;
}

/* The usual case is a user other than root with the default path of the socket. */
static int
place_failed(const char *what, const char *path)
{
	if (errno != EACCES)
		return socket_failed(what, path);
	karst_log(KARST_LOG_ERR, "%s %s: %s; --socket, or [socket] path, names another place", what,
		path, strerror(errno));
	return KD_EXIT_FAILED;
}

static void
socket_folder(const char *path, char *folder, size_t len)
{
	snprintf(folder, len, "%.*s", (int)(strrchr(path, '/') - path), path);
}

/* Creates the last folder of @path, if it is missing. */
static int
make_folder(const char *path)
{
	char folder[KD_TEXT];

	socket_folder(path, folder, sizeof(folder));
	if (folder[0] == '\0' || mkdir(folder, 0755) == 0 || errno == EEXIST)
		return KD_EXIT_OK;
	return place_failed("making the folder", folder);
}

/* Warns if a daemon has changed its user and cannot remove its files: the capabilities with which
 * it created them are gone when it ends. access() does not take capabilities into account. */
static void
warn_of_folder(const char *path)
{
	char folder[KD_TEXT];

	socket_folder(path, folder, sizeof(folder));
	if (folder[0] == '\0' || access(folder, W_OK | X_OK) == 0)
		return;
	karst_log(KARST_LOG_WARNING,
		"user %u may not write to %s, so socket and lock file stay there when this daemon "
		"ends: give the folder to that user, or remove it before the start",
		(unsigned int)getuid(), folder);
}

/* --- the lock --- */

static void
say_busy(const struct kd_socket *s, int fd)
{
	char pid[16] = "";
	ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

	pid[n > 0 ? strspn(pid, "0123456789") : 0] = '\0';
	karst_log(KARST_LOG_ERR,
		"another karstd%s%s serves %s already: stop it, or use another socket (--socket)",
		pid[0] != '\0' ? ", process " : "", pid, s->path);
}

/* Is the file of @fd still the one at the path?  A daemon that stops removes its file. */
static bool
lock_is_current(int fd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
		a.st_ino == b.st_ino;
}

static void
write_pid(int fd)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	/* For information only; the lock is what matters, so a full disk does no harm. */
	if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
		karst_log(
			KARST_LOG_INFO, "the lock file has no process number: %s", strerror(errno));
}

int
kd_socket_lock(struct kd_socket *s, const struct kd_conf_socket *c)
{
	int fd, rc;

	memset(s, 0, sizeof(*s));
	s->lock_fd = s->fd = -1;
	snprintf(s->path, sizeof(s->path), "%s", c->path);
	snprintf(s->lock_path, sizeof(s->lock_path), "%s.lock", c->path);
	rc = make_folder(s->path);
	while (rc == KD_EXIT_OK && s->lock_fd < 0) {
		fd = open(s->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (fd < 0)
			return place_failed("the lock file", s->lock_path);
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			if (errno == EWOULDBLOCK) {
				say_busy(s, fd);
				rc = KD_EXIT_BUSY;
			} else {
				rc = socket_failed("locking", s->lock_path);
			}
			close(fd);
		} else if (lock_is_current(fd, s->lock_path)) {
			s->lock_fd = fd;
			write_pid(fd);
			warn_of_folder(s->path);
		} else {
			close(fd);
		}
	}
	return rc;
}

/* --- the socket --- */

static int
fill_address(const struct kd_socket *s, struct sockaddr_un *at)
{
	memset(at, 0, sizeof(*at));
	at->sun_family = AF_UNIX;
	if (strlen(s->path) >= sizeof(at->sun_path)) /* conf_value.c has checked it */
		return -ENAMETOOLONG;
	memcpy(at->sun_path, s->path, strlen(s->path));
	return 0;
}

/* Does a process accept connections there?  It might do that without holding the lock. */
static bool
somebody_listens(const struct sockaddr_un *at)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes = fd >= 0 && (connect(fd, (const void *)at, sizeof(*at)) == 0 || errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return yes;
}

/* Removes a socket that a dead daemon has left; nothing else is touched. */
static int
remove_stale(const struct kd_socket *s, const struct sockaddr_un *at)
{
	struct stat st;

	if (lstat(s->path, &st) != 0)
		return errno == ENOENT ? KD_EXIT_OK : socket_failed("the socket", s->path);
	if (!S_ISSOCK(st.st_mode)) {
		karst_log(KARST_LOG_ERR,
			"%s exists and is not a socket: remove it, or use another path (--socket)",
			s->path);
		return KD_EXIT_FAILED;
	}
	if (somebody_listens(at)) {
		karst_log(KARST_LOG_ERR,
			"another program listens on %s: stop it, or use another socket (--socket)",
			s->path);
		return KD_EXIT_BUSY;
	}
	return unlink(s->path) == 0 ? KD_EXIT_OK
				    : socket_failed("removing the old socket", s->path);
}

static int
set_permissions(const struct kd_socket *s, const struct kd_conf_socket *c)
{
	if ((c->owner != UINT32_MAX || c->group != UINT32_MAX) &&
		chown(s->path, c->owner, c->group) != 0)
		return socket_failed("setting owner and group of", s->path);
	if (chmod(s->path, c->mode) != 0)
		return socket_failed("setting the mode of", s->path);
	return KD_EXIT_OK;
}

int
kd_socket_bind(struct kd_socket *s, const struct kd_conf_socket *c)
{
	struct sockaddr_un at;
	mode_t mask;
	int rc;

	if (fill_address(s, &at) != 0)
		return KD_EXIT_WRONG;
	rc = remove_stale(s, &at);
	if (rc != KD_EXIT_OK)
		return rc;
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0)
		return socket_failed("a socket for", s->path);
	mask = umask(0777); /* no process can connect before the permissions are set */
	rc = bind(s->fd, (const void *)&at, sizeof(at)) == 0 ? KD_EXIT_OK
							     : socket_failed("the socket", s->path);
	umask(mask);
	if (rc != KD_EXIT_OK)
		return rc;
	s->present = true;
	return set_permissions(s, c);
}

int
kd_socket_listen(const struct kd_socket *s, const struct kd_conf_socket *c)
{
	return listen(s->fd, (int)c->backlog) == 0 ? KD_EXIT_OK
						   : socket_failed("listening on", s->path);
}

void
kd_socket_close(struct kd_socket *s)
{
	int fd;

	if (s->present)
		unlink(s->path);
	if (s->fd >= 0) {
		/* Not close(): descriptors in messages of connections that were not accepted may
		 * make it wait.  The end of this process closes all of them. */
		shutdown(s->fd, SHUT_RDWR);
		while ((fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
			shutdown(fd, SHUT_RDWR);
	}
	if (s->lock_fd >= 0) {
		unlink(s->lock_path); /* before the lock is released, so that no other daemon has
				       * it yet */
		close(s->lock_fd);
	}
	s->present = false;
	s->fd = s->lock_fd = -1;
}
