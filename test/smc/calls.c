/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What programs that do not know of SMC-R may do besides using a connection, and in which contexts:
 *
 *   smc-calls listens ADDRESS PORT    a signal handler listens.  It may do that, and must not
 *                                     allocate memory, because it may have interrupted an
 *                                     allocation
 *   smc-calls forks ADDRESS PORT      a thread forks while another one's connection is being made
 *   smc-calls handles ADDRESS PORT    a handler forks that has interrupted a use of the connection
 *   smc-calls executes ADDRESS PORT   children that share this memory execute other programs
 *
 * Each prints whether all was well.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE    4096u /* size of a mapping that each connection has */
#define STAY_US 200000
#define FORKS   100
#define HANG_S  60

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *mem, size_t bytes);

static struct sockaddr_in address;
static volatile sig_atomic_t in_handler, allocated;
static _Atomic int maps;   /* the next connection is about to be made */
static _Atomic int inside; /* the memory of that connection is being mapped */
static sem_t is_inside;
static int the_conn;

static void __attribute__((noreturn)) fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- these replace the C library's functions, for libraries, too --- */

#ifndef __SANITIZE_ADDRESS__ /* which has functions of its own */
void *
malloc(size_t bytes)
{
	allocated += in_handler;
	return __libc_malloc(bytes);
}

void *
calloc(size_t n, size_t bytes)
{
	allocated += in_handler;
	return __libc_calloc(n, bytes);
}

void *
realloc(void *mem, size_t bytes)
{
	allocated += in_handler;
	return __libc_realloc(mem, bytes);
}
#endif

/* Not the mmap() of programs with large files: this program may be one, libkarst-sockets.so is
 * not. */
void *map_here(void *at, size_t bytes, int prot, int flags, int fd, off_t from) __asm__("mmap");

void *
map_here(void *at, size_t bytes, int prot, int flags, int fd, off_t from)
{
	bool stays = bytes == PAGE && (flags & MAP_SHARED) && atomic_exchange(&maps, 0) != 0;
	void *mem;

	if (stays) {
		atomic_store(&inside, 1);
		sem_post(&is_inside);
		usleep(STAY_US);
	}
	mem = (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, from);
	if (stays)
		atomic_store(&inside, 0);
	return mem;
}

/* --- */

static int
connected(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (void *)&address, sizeof(address)) != 0)
		fail("connect");
	return fd;
}

/* The peer echoes bytes. */
static void
talk(int fd)
{
	char byte = 'x';

	if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
		fail("send");
	byte = 0;
	if (recv(fd, &byte, 1, MSG_WAITALL) != 1 || byte != 'x')
		fail("recv");
}

static void
on_listen(int sig)
{
	int err = errno, fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)sig;
	in_handler = 1;
	if (listen(fd, 1) != 0)
		abort();
	in_handler = 0;
	close(fd);
	errno = err;
}

static void
listens(void)
{
	signal(SIGUSR1, on_listen);
	raise(SIGUSR1);
	raise(SIGUSR1);
	if (allocated != 0) {
		printf("a handler allocated %d times\n", (int)allocated);
		exit(1);
	}
}

static void *
make(void *arg)
{
	atomic_store(&maps, 1);
	talk(connected());
	return arg;
}

static void
ends(pid_t child, const char *what)
{
	int status = 0;

	if (child < 0 || waitpid(child, &status, 0) != child)
		fail(what);
	if (status != 0) {
		printf("%s: status %d\n", what, status);
		exit(1);
	}
}

/* In the child no thread continues what the other thread has begun. */
static void
forks(void)
{
	pthread_t thread;
	pid_t child;

	sem_init(&is_inside, 0, 0);
	if (pthread_create(&thread, NULL, make, NULL) != 0)
		fail("a thread");
	sem_wait(&is_inside);
	child = fork();
	if (child == 0)
		_exit(atomic_load(&inside));
	ends(child, "a child was made in the middle");
	pthread_join(thread, NULL);
}

static void
on_fork(int sig)
{
	int err = errno, status;
	pid_t child = fork();

	(void)sig;
	if (child == 0) {
		alarm(HANG_S);
		close(the_conn);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		abort();
	in_handler++;
	errno = err;
}

static void
handles(void)
{
	struct itimerval soon = {.it_value.tv_usec = 1};
	int n = -1;

	the_conn = connected();
	signal(SIGALRM, on_fork);
	while (in_handler < FORKS) {
		if (in_handler != n) {
			n = in_handler;
			soon.it_value.tv_usec = 1 + n * 7 % 50;
			setitimer(ITIMER_REAL, &soon, NULL);
		}
		talk(the_conn);
	}
	in_handler = 0;
	talk(the_conn);
}

/* As Python's subprocess: the child shares this memory until it executes a program. */
static pid_t
child_of(int fd, bool all)
{
	pid_t child = vfork();

	if (child == 0) {
		dup2(fd, 0);
		fcntl(fd, F_DUPFD, 100);
		close(fd);
		if (all)
			close_range(1, ~0u, 0);
		else
			closefrom(1);
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	return child;
}

static pid_t
spawned(int fd)
{
	posix_spawn_file_actions_t what;
	char *const argv[] = {"true", NULL}, *const env[] = {NULL};
	pid_t child = -1;

	posix_spawn_file_actions_init(&what);
	posix_spawn_file_actions_adddup2(&what, fd, 0);
	posix_spawn_file_actions_addclose(&what, fd);
	posix_spawn_file_actions_addclosefrom_np(&what, 1);
	if (posix_spawn(&child, "/bin/true", &what, NULL, argv, env) != 0)
		child = -1;
	posix_spawn_file_actions_destroy(&what);
	return child;
}

static void
executes(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), i;
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	if (connect(fd, (void *)&address, sizeof(address)) != 0 && errno != EINPROGRESS)
		fail("connect");
	/* the socket has connected by now, and no call has noticed */
	ends(child_of(fd, false), "a child of a socket that connects");
	if (poll(&p, 1, -1) != 1)
		fail("poll");
	fcntl(fd, F_SETFL, 0);
	talk(fd);
	for (i = 0; i < 4; i++) {
		ends(i < 2 ? child_of(fd, i == 0) : spawned(fd), "a child");
		talk(fd);
	}
}

int
main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*what)(void);
	} all[] = {{"listens", listens}, {"forks", forks}, {"handles", handles},
		{"executes", executes}};

	address.sin_family = AF_INET;
	if (argc != 4 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1)
		return 2;
	address.sin_port = htons((uint16_t)atoi(argv[3]));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(argv[1], all[i].name) == 0) {
			all[i].what();
			printf("well\n");
			return 0;
		}
	return 2;
}
