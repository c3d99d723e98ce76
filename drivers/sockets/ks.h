/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Inside of libkarst-sockets.so, which is preloaded into TCP programs (LD_PRELOAD, by karst-run
 * --smc) and takes the place of the C library's calls about sockets.
 *
 *   real.c     the C library's own
 *   table.c    what each descriptor is
 *   service.c  the SMC service: requests, and the map of the TCP option
 *   pages.c    control pages and rings, which are kept
 *   peers.c    peers to which connections stay on TCP
 *   sock.c     a connection: how a TCP socket becomes one, and one that came from elsewhere
 *   io.c       bytes in and out
 *   wake.c     how the two sides of a ring wake each other
 *   urgent.c   urgent data
 *   lock.c     locks of a connection, which processes share
 *   sleep.c    who sleeps for bytes, and has not died
 *   watch.c    poll() and its kin, before which a connection has to know of them
 *   calls_confine.c  filters of system calls that programs set for themselves
 *   calls_signal.c  handlers of signals, which do not interrupt what holds a lock
 *   calls_stream.c  streams of the C library, which reads and writes by itself
 *   calls_*.c  what programs call
 *
 * A descriptor of a connection is one end of a pair of AF_UNIX sockets (karst_sock.h), so poll(),
 * select(), epoll, fcntl(), signals, time limits, fork() and exec() are the kernel's.  All other
 * descriptors go straight to the C library, after a look at the table.
 */
#ifndef KS_H
#define KS_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>

#include "karst_sock.h"

#define KS_API __attribute__((visibility("default")))

typedef void (*ks_handler)(int);

/* --- real.c --- */

struct ks_real {
#define KS_REAL(ret, name, args) ret(*name) args;
#include "real.def"
#undef KS_REAL
};
extern struct ks_real ks_real;
void ks_real_find(void);

#define real(name) (ks_real.name != NULL ? ks_real.name : (ks_real_find(), ks_real.name))

/* --- calls_signal.c --- */

struct ks_held {
	uint32_t depth; /* of what must not be interrupted by the program */
	bool late;      /* a signal waits for its end */
	/* handlers that this thread has run: all, and those without SA_RESTART.  One that comes
	 * after a call of ours has begun, and before it waits in the kernel, ends the wait, too */
	volatile uint32_t handled, ended;
	uint32_t thread; /* the kernel's number of it; 0: it has not been asked for */
};
extern __thread struct ks_held ks_held __attribute__((tls_model("initial-exec")));
void ks_deliver(void);
/** In a child: the signal that waits is the parent's. */
void ks_drop_late(void);

/** From here to ks_release() no handler of the program's runs in this thread: what it may wait for
 *  there is held by its own thread.  They nest.  Nobody waits for the program in between. */
static inline void
ks_hold(void)
{
	ks_held.depth++;
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void
ks_release(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	ks_held.depth--;
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(ks_held.late, 0) && ks_held.depth == 0)
		ks_deliver();
}

/* --- table.c --- */

#define KS_MAX_FDS (1u << 20) /* that are looked after */

enum ks_kind {
	KS_PLAIN, /* nothing of ours */
	KS_EARLY, /* a TCP socket that an epoll set has, and that is not connected */
	KS_TRIES, /* a TCP socket that connects without waiting, and has offered the option */
	KS_WAITS, /* the same, and a thread is in connect() */
	KS_LISTENS,
	KS_NEVER,  /* a TCP socket with an option that SMC-R has not */
	KS_HIDDEN, /* ours, and none of the program's business */
	KS_SMC,
};

/* How looking for more before one sleeps has ended lately. */
struct ks_patience {
	uint32_t failed; /* in a row */
	uint32_t skip;   /* so many times it is not tried */
};

struct ks_sock {
	_Atomic uint32_t refs;
	/* far end of the other program's pair; -1: not asked for, or there is none */
	_Atomic int waker;
	int next_waker; /* what it will be in state DIRECT; -1: that has to be asked for */
	_Atomic bool no_waker;
	bool small;  /* under tx_lock: the pair has KARST_SOCK_SNDBUF */
	bool client; /* this process has connected it */
	/* without waiting, and has not called connect() again to hear how that ended */
	_Atomic bool untold;
	uint32_t buffer;
	struct karst_sock_page *page;
	uint32_t number, generation; /* the page's */
	uint32_t forks;              /* ks_forks() when it was made */
	/* The rings.  Until they are there, the rest points into the page (early).  All of it
	 * changes once, under both locks, and is looked at without one */
	void *map;
	uint32_t rings;        /* their number; 0: they are not kept */
	_Atomic bool attached; /* they are there */
	_Atomic bool no_rings; /* and cannot be got */
	struct karst_sock_dir *_Atomic txd, *_Atomic rxd;
	uint8_t *tx, *rx;
	uint32_t tx_shift, rx_shift; /* karst_sock_shift() */
	uint64_t poll_ns;
	struct ks_patience rx_patience, tx_patience;
};

enum ks_kind ks_kind(int fd);
/** A reference to what @fd is connected by; NULL: it is no connection of ours. */
struct ks_sock *ks_get(int fd);
void ks_put(struct ks_sock *s);
/** Behind a wait: @fd if it is @s's still, or -1: another thread has closed it, and what has the
 *  number now is not to be touched. */
int ks_still(int fd, const struct ks_sock *s);
/** @fd gets a high number that the program does not see, for ks_sock's wakers. */
int ks_hide_own(int fd);
/** From now on @fd is this; a reference of the caller's goes to the table. */
void ks_set(int fd, enum ks_kind kind, struct ks_sock *s);
/** @fd was or will be closed. */
void ks_forget(int fd);
/** @to is a duplicate of @from. */
void ks_copy(int from, int to);
/** False in the child of vfork(), which has our memory, but descriptors of its own. */
bool ks_is_ours(void);
/** Some descriptor listens, or did. */
bool ks_listens(void);
/** Some descriptor is a connection. */
bool ks_connects(void);
/** Descriptors that are connections, or wake their peers, up to @max.
 *  @return how many there are */
unsigned int ks_list(int *fds, unsigned int max);
void ks_forked(void);
/** Before a fork(), and behind it in the parent: what a child is to have is not being changed. */
void ks_table_hold(void);
/** Memory for the first connections, and their wakers near @high, has been touched after this. */
void ks_table_begin(int high);
void ks_table_release(void);

/** Zeroed memory for a connection, which is not malloc()'s: that may have been interrupted by the
 *  handler whose call this is.  NULL: there is none. */
struct ks_sock *ks_sock_new(void);
void ks_sock_free(struct ks_sock *s);

/* Registrations of a descriptor that is not connected yet, to be moved to the pair. */
void ks_epoll_note(int epfd, int op, int fd, const struct epoll_event *event);
/** Nothing is to be moved: forgotten. */
void ks_epoll_leave(int fd);
/** Before the pair takes the number: the TCP socket stays open elsewhere, and would be reported. */
void ks_epoll_remove(int fd);
/** After that. */
void ks_epoll_enter(int fd);

/* --- service.c --- */

extern bool ks_require;

/** The service has room for more connections, as far as is known. */
bool ks_has_room(void);
void ks_note_full(void);
/** Whether there is a service; connects to it. */
bool ks_service(void);
/** The same in advance, in the program that karst-run was told. */
void ks_service_begin(void);
/** A request with a descriptor; @fds: what came back, -1 behind it.  0 or -errno. */
int ks_ask(struct karst_sock_msg *msg, int fd, int fds[KARST_SOCK_FDS]);
/** The same for KARST_SOCK_OPEN, in two parts, between which the service works.  If the first one
 *  returns 0 the second one has to follow.  @generation: of the page's number */
int ks_open_begin(struct karst_sock_msg *msg, int fd, uint32_t *generation);
int ks_open_end(struct karst_sock_msg *msg, int fds[KARST_SOCK_FDS]);
/** @fd gets a high number that the program does not see; as it is, if there is none. */
int ks_hide(int fd);
void ks_option_want(int fd, bool want);
bool ks_option_seen(int fd);
/** A descriptor that the program does not see. */
bool ks_is_hidden(int fd);
/** @at_once: it connects again, if it was. */
void ks_service_forked(bool at_once);
/** Its descriptor, -1: there is none. */
int ks_service_fd(void);
/** The process may run on several processors. */
bool ks_has_processors(void);

/* --- pages.c --- */

/** In front of a request: says which pages are free.  @return the generation of numbers */
uint32_t ks_pages_report(struct karst_sock_msg *msg);
/** The page that the service has given out: one of those that are here, or the file @fd; NULL.
 *  *@number is 0 if it is not to be kept.  */
struct karst_sock_page *ks_page_get(uint32_t *number, uint32_t generation, bool kept, int fd);
/** It is not used any more.  @shared: by this process, but a child may have it */
void ks_page_put(struct karst_sock_page *mem, uint32_t number, uint32_t generation, bool shared);
/** The rings of this number, which are used from here on; NULL: they are not here. */
void *ks_rings_get(uint32_t number, uint32_t generation);
/** New ones of this number, which are used.  False: they are the caller's to unmap. */
bool ks_rings_keep(uint32_t number, uint32_t generation, void *map, uint32_t buffer);
enum ks_keep {
	KS_KEEP_NOT,
	KS_KEEP_SMALL, /* a page of them is there */
	KS_KEEP_WHOLE, /* and these with all of their pages: if there are not too many */
};
/** They are not used any more.  @keep: by this connection, but by later ones */
void ks_rings_put(
	uint32_t number, uint32_t generation, void *map, uint32_t buffer, enum ks_keep keep);
/** How often this process has forked: a child has what was mapped before. */
uint32_t ks_forks(void);
void ks_note_fork(void);
/** The connection to the service has ended. */
void ks_pages_forget(void);
/** In a child, before anything else. */
void ks_pages_forked(void);
/** As ks_table_hold(). */
void ks_pages_hold(void);
void ks_pages_release(void);

/* --- peers.c --- */

/** When the program begins. */
void ks_peers_begin(void);
/** A connection is about to be made to this peer: is it to stay on TCP, because the peer did not
 *  answer the option lately, or because the connections there are short? */
bool ks_peer_stays(const struct sockaddr *to);
/** The connected peer of @fd has not answered the option. */
void ks_note_cannot(int fd);
/** Is over: what it has come to counts for the next ones to its peer. */
void ks_note_over(const struct ks_sock *s);
/** How many connections have stayed on TCP, since this was asked last, because those to their peer
 *  are short. */
uint32_t ks_peers_left(void);

/* --- sock.c --- */

/** The connection of @fd is made: it becomes a pair if both sides have sent the option.
 *  @accepted: as a server, just now, by accept4() with these flags; -1: as a client
 *  0: whatever it is now, it can be used; -errno: it cannot, and is still open. */
int ks_become(int fd, int accepted);
/** It gets its rings, if there are some by now or not.  No lock is held. */
void ks_need_rings(int fd, struct ks_sock *s);
/** The same under both locks.  False: it cannot, and is over. */
bool ks_attach(int fd, struct ks_sock *s);
/** @fd came from somewhere: an end of a pair is a connection, and a TCP socket may listen. */
void ks_look_at(int fd);
bool ks_is_tcp(int fd);
/** What a TCP socket may have been set to, which its pair is to have then. */
#define KS_SET_OPTION 1u /* time limits, SO_LINGER, SO_OOBINLINE */
#define KS_SET_OWNER  2u /* who gets its signals, and which */
#define KS_SET_ANY    (KS_SET_OPTION | KS_SET_OWNER)
void ks_note_set(uint32_t what);
/** An option of a TCP socket is about to be set. */
void ks_note_option(int level, int name);
/** A TCP socket that neither is connected nor connects nor listens. */
bool ks_is_unused(int fd);
/** @fd has connected meanwhile, perhaps. */
void ks_settle(int fd);
/** The same, of who is in connect(): it has.  As ks_become(). */
int ks_settle_own(int fd);
/** And it has not: @kind is what is to become of it. */
void ks_settle_not(int fd, enum ks_kind kind);

/** Sees to one that connects, which a thread may be about to see, and others to use. */
static inline void
ks_settle_early(int fd)
{
	enum ks_kind kind = ks_kind(fd);

	if ((kind == KS_TRIES || kind == KS_WAITS) && ks_is_ours())
		ks_settle(fd);
}

/* --- wake.c --- */

/** With ks_hold(), as each lock of ours. */
void ks_lock(pthread_mutex_t *lock);
void ks_unlock(pthread_mutex_t *lock);
void ks_lock_rx(struct ks_sock *s);
/** The same for who looks at the rings, if there are some. */
void ks_enter_rx(int fd, struct ks_sock *s);
/** Who died with it had not moved a position, which comes last. */
void ks_lock_tx(struct ks_sock *s);
/** The rings, if there are some by now, and in state DIRECT what is needed to wake the other
 *  program. No lock is held. */
void ks_meet_peer(int fd, struct ks_sock *s);
/** The service is to look at the connection. */
void ks_ring(int fd);
/** Behind @end is an urgent byte, which is about to be shown; under tx_lock. */
void ks_wrote_urgent(int fd, struct ks_sock *s, uint64_t end);
/** Of what was written the reader is told if he wants to be; under tx_lock. */
void ks_wrote(int fd, struct ks_sock *s);
/** Of what was read up to @tail the writer; under rx_lock. */
void ks_read(int fd, struct ks_sock *s, uint64_t tail);
/** So that poll() says the truth: there is nothing to read, or there is; under rx_lock. */
void ks_mark_empty(int fd, struct ks_sock *s);
void ks_mark_filled(int fd, struct ks_sock *s);
/** And no room; under tx_lock. */
void ks_mark_full(int fd, struct ks_sock *s);
/** An urgent byte lies in the pair.  Its signal, if it is this thread's, has come as well. */
bool ks_urgent_came(int fd);
/** How far the other side has written: a mark that is ahead of head counts when its urgent byte has
 *  come. */
uint64_t ks_written(int fd, const struct ks_sock *s);
/** Bytes that poll() may tell of. */
bool ks_has_bytes(int fd, const struct ks_sock *s);
/** The kernel says that the pair can be read: is there nothing to be read for all that?  Then that
 *  is out of the pair.  No lock is held. */
bool ks_is_stray(int fd, struct ks_sock *s);
/** Takes out some of what is in the pair, as recv(); under rx_lock. */
ssize_t ks_take_tokens(int fd, struct ks_sock *s);
/** The service is to put an urgent byte into our pair. */
void ks_ask_urgent(int fd);
/** If we are its program's, the service is to look; in state DIRECT nothing happens. */
void ks_tell_service(int fd, struct ks_sock *s);
/** Waits for bytes.  @ended: ks_held.ended when the call began.
 *  1: look again; 0: nothing will come; -1: errno. */
int ks_wait_bytes(int fd, struct ks_sock *s, int flags, uint32_t ended);
/** Waits for room.  0: look again; -1: errno. */
int ks_wait_room(int fd, struct ks_sock *s, int flags, uint32_t ended);
/** errno of a call that was interrupted: EINTR, or EAGAIN if it would not have waited. */
void ks_interrupted(int fd, int flags, int name);
/** Was a wait in vain, and another one is none of the call's: it does not wait, or has done so for
 *  the time limit @name of the pair, since @since_ns?  Then errno is set. */
bool ks_is_late(int fd, int flags, int name, uint64_t since_ns);
uint64_t ks_now(void);
/** Is it worth to look before one sleeps?  Then ks_looked() says how it ended. */
bool ks_may_look(struct ks_patience *p);
void ks_looked(struct ks_patience *p, bool found);
/** Bytes that can be written now; not more than are free. */
size_t ks_room(const struct ks_sock *s);
/** In state DIRECT, when one of the other side has closed: if that was the last, the page says that
 *  the connection is over when this returns.  No lock is held. */
void ks_notice_close(int fd, struct ks_sock *s);
/** Our direction has ended. */
void ks_end(int fd, struct ks_sock *s);
/** From now on readiness is looked at by poll(), epoll or signals. */
void ks_watch(int fd);

/** There are rings, and they are to be taken. */
static inline bool
ks_is_detached(const struct ks_sock *s)
{
	return __builtin_expect(!atomic_load_explicit(&s->attached, memory_order_acquire), 0) &&
		!atomic_load(&s->no_rings) &&
		(atomic_load(&s->page->early) & KARST_SOCK_EARLY_CLOSED) != 0;
}

static inline bool
ks_has_ended(const struct ks_sock *s)
{
	return (atomic_load(&s->page->flags) & KARST_SOCK_EOF) != 0 ||
		atomic_load(&s->rxd->ended) != 0;
}

/* --- urgent.c --- */

/* These under rx_lock: */
/** A mark that has come is taken over. */
void ks_urgent_look(struct ks_sock *s, uint64_t *tail, uint64_t *there);
/** How many of @there bytes a read may take, *@hole bytes behind @tail. */
uint64_t ks_urgent_limit(
	struct ks_sock *s, uint64_t tail, uint64_t there, bool peek, uint64_t *hole);
/** rx_tail was moved. */
void ks_urgent_moved(int fd, struct ks_sock *s);
/** The next byte is the marked one: a read ends here. */
bool ks_urgent_here(const struct ks_sock *s);

/** So that poll() says that there is urgent data: who sleeps may have taken out what says so. */
void ks_urgent_restore(int fd, struct ks_sock *s);

/* Without a lock: */
/** The same, before somebody looks. */
void ks_urgent_watch(int fd);
/** MSG_OOB */
ssize_t ks_recv_urgent(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags);
/** SIOCATMARK */
bool ks_urgent_at_mark(int fd, struct ks_sock *s);
/** FIONREAD */
uint64_t ks_urgent_inq(int fd, struct ks_sock *s);
/** Nothing is there but an urgent byte, which is no byte to read. */
bool ks_urgent_alone(int fd, struct ks_sock *s);
/** SO_OOBINLINE */
void ks_urgent_inline(struct ks_sock *s, bool on);

/* --- lock.c --- */

/** With ks_hold().  @return whether who had it has died */
bool ks_lock_page(struct karst_sock_lock *l);
void ks_unlock_page(struct karst_sock_lock *l);
/** The same without waiting, and without ks_hold(): false if it is somebody's who lives. */
bool ks_take_place(struct karst_sock_lock *l, bool *died);
void ks_leave_place(struct karst_sock_lock *l);
/** When the process begins, and in a child: threads have other numbers. */
void ks_locks_began(void);
void ks_locks_forked(void);

/* --- sleep.c; all under rx_lock --- */

/** The caller is one of those who sleep.  @return what it gives to ks_sleep_end() */
int ks_sleep_begin(struct ks_sock *s);
void ks_sleep_end(struct ks_sock *s, int place);
/** Whether anybody is: who has died is not. */
bool ks_sleeps(struct ks_sock *s);

/* --- calls_io.c --- */

/** What the kernel refuses before it looks at anything else.  @many: errno of too many parts
 *  @return 0, or an errno */
int ks_refuse_iov(const struct iovec *iov, size_t n, int many);

/* --- calls_life.c --- */

/** Around a close() of @fd, or of a stream, that is the C library's.
 *  @return the connection that it is, for ks_close_end(), or NULL */
struct ks_sock *ks_close_begin(int fd);
void ks_close_end(struct ks_sock *s);

/* --- calls_stream.c --- */

/** After 0, 1 or 2 has become something else: whether stdin, stdout or stderr is a connection. */
void ks_streams_look(int fd);
/** In a child. */
void ks_streams_forked(void);

/* --- calls_confine.c --- */

/** System calls of this process are filtered: it connects neither to the service nor by it. */
bool ks_is_confined(void);

/* --- uring.c --- */

/** When the program begins. */
void ks_uring_begin(void);
/** Before it listens, or connects: a ring may read and write what is its socket, so it is to have
 *  TCP. */
bool ks_uring_listens(void);
bool ks_uring_connects(void);
/** A ring may wait for any connection, which nobody will be told of. */
bool ks_uring_waits(void);

/* --- watch.c --- */

/** O_NONBLOCK of @fd was set, or taken away. */
void ks_note_nonblock(int fd, bool on);

/* --- io.c --- */

/** Under rx_lock.  @return how many bytes are there, behind *tail */
uint64_t ks_look(int fd, struct ks_sock *s, uint64_t *tail);
/** Under rx_lock: so that poll(), and others who sleep, know what there is now. */
void ks_mark(int fd, struct ks_sock *s);
ssize_t ks_recv(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags);
ssize_t ks_send(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags);
/** What is there, up to @n bytes, into @pipe, as far as that need not be waited for. */
ssize_t ks_pour(int fd, struct ks_sock *s, int pipe, size_t n);

/** Most calls begin so: the connection of @fd, if it has become one by now. */
static inline struct ks_sock *
ks_enter(int fd)
{
	if (__builtin_expect(ks_kind(fd) == KS_PLAIN, 1))
		return NULL;
	ks_settle_early(fd);
	return ks_get(fd);
}

#endif /* KS_H */
