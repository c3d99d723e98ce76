/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Internals of libkarst-sockets.so.  karst-run --smc preloads this library into TCP programs
 * (LD_PRELOAD), where it replaces the C library's socket calls.
 *
 *   real.c     the C library's own functions
 *   memory.c   memory of objects, without malloc()
 *   table.c    the kind of each descriptor
 *   service.c  the SMC service: requests, and the map of the TCP option
 *   pages.c    control pages and rings, which are kept
 *   peers.c    peers to which connections stay on TCP
 *   sock.c     connections: made from a TCP socket, or received from elsewhere
 *   io.c       bytes in and out
 *   positions.c  what there is to read, and how much room to write
 *   wake.c     how this program notifies the other side, and the service
 *   token.c    what makes poll() report correctly whether there are bytes, or room
 *   sleep.c    how a thread waits for bytes or room, and which threads do
 *   urgent.c   urgent data
 *   lock.c     mutexes, and the locks of a connection, which processes share
 *   cancel.c   threads that are cancelled
 *   watch.c    poll(), select() and the like, which a connection must be told of first
 *   ended.c    options of connections that have no TCP socket any more
 *   calls_confine.c  filters of system calls that programs set for themselves, or inherit
 *   calls_direct.c   syscall()
 *   calls_signal.c  signal handlers, which must not interrupt a thread that holds a lock
 *   calls_stream.c  streams of the C library, which reads and writes them internally
 *   calls_*.c  functions that programs call
 *
 * The descriptor of a connection is one end of a pair of AF_UNIX sockets (karst_sock.h), so the
 * kernel implements poll(), select(), epoll, fcntl(), signals, time limits, fork() and exec().
 * Calls on all other descriptors go to the C library after a lookup in the table.
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

#define KS_REFS 8u /* more than a call has at a time, and the handlers that interrupt it */

struct ks_sock;

struct ks_held {
	uint32_t depth; /* number of ks_hold() calls in effect */
	bool late;      /* a signal is deferred until depth is 0 */
	bool async;     /* the program has set the asynchronous type of cancellation */
	/* number of handlers that this thread has run: all, and those without SA_RESTART.  A
	 * handler that runs after one of our calls has begun, and before the call waits in the
	 * kernel, must also end the wait */
	volatile uint32_t handled, ended;
	uint32_t thread;    /* the kernel's thread ID; 0: not queried yet */
	uint32_t no_cancel; /* number of ks_no_cancel() calls in effect */
	int cancel_state;   /* of the thread before the first of them */
	/* references of ks_get() that were not put yet: if a handler leaves by siglongjmp(), those
	 * of the call that it has interrupted are put (calls_signal.c).  Those before ref_base are
	 * of calls that the running handler has interrupted */
	struct ks_sock *refs[KS_REFS];
	uint32_t nrefs, ref_base;
};
extern __thread struct ks_held ks_held __attribute__((tls_model("initial-exec")));
/** Called when depth has become 0: delivers the deferred signal, and restores the type of
 *  cancellation.  The thread may be cancelled there. */
void ks_held_end(void);
/** In a child: discards the deferred signal, which is the parent's. */
void ks_drop_late(void);

/** From here to ks_defer_end() the type of cancellation is the deferred one. */
void ks_defer(void);
void ks_defer_end(void);
/** Called before a signal handler of the program, and before ks_no_cancel_leave(): sets the type
 *  that the program has set.  @return what the other one takes */
int ks_defer_leave(void);
void ks_defer_return(int type);

/** From here to ks_release() no signal handler of the program runs in this thread: a lock that the
 *  handler might wait for may be held by its own thread.  Nor is the thread cancelled, except at a
 *  cancellation point.  Calls nest.  The code in between must not wait for the program. */
static inline void
ks_hold(void)
{
	if (__builtin_expect(ks_held.async, 0))
		ks_defer();
	ks_held.depth++;
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void
ks_release(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	ks_held.depth--;
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(ks_held.late || ks_held.async, 0) && ks_held.depth == 0)
		ks_held_end();
}

/* --- cancel.c --- */

/** From here to ks_no_cancel_end() this thread is not cancelled.  Calls nest.  Unlike ks_hold(),
 *  this may wait for the program. */
void ks_no_cancel(void);
void ks_no_cancel_end(void);
/** Called before a signal handler of the program, which may leave by siglongjmp(): the thread's
 *  state is again as the program has set it.  @return what the other one takes when the handler has
 *  returned */
uint32_t ks_no_cancel_leave(void);
void ks_no_cancel_return(uint32_t calls);
/** As send(), recv(), and poll() for one descriptor, but without waiting, and no cancellation
 *  points.  They imply ks_hold(), too. */
ssize_t ks_send_now(int fd, const void *buf, size_t n, int flags);
ssize_t ks_recv_now(int fd, void *buf, size_t n, int flags);
int ks_poll_now(struct pollfd *p);
/** Functions of the C library that its headers do not declare.  Unlike pthread_cleanup_push(), they
 *  also call @fn if a handler of the program leaves by siglongjmp(), and the thread can end after
 *  that: pthread_cleanup_push() would leave an address of the stack behind, to which the end of the
 *  thread would jump.  Another signal may interrupt @fn, and its handler leave, too: then @fn is
 *  called again. */
void _pthread_cleanup_push(struct _pthread_cleanup_buffer *left, void (*fn)(void *), void *arg);
void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *left, int run);
/** As poll(), read(), pread64(), and send() of a byte; cancellation points.  If the thread is
 *  cancelled, or a handler leaves by siglongjmp(), the caller's reference to @s is given back.  So
 *  a program cannot go back into a call that it has left in this way. */
int ks_poll_with(struct ks_sock *s, struct pollfd *p, nfds_t n, int ms);
ssize_t ks_read_with(struct ks_sock *s, int fd, void *buf, size_t n);
ssize_t ks_pread_with(struct ks_sock *s, int fd, void *buf, size_t n, off64_t at);
ssize_t ks_send_with(struct ks_sock *s, int fd, int flags);

/* --- memory.c --- */

/* Objects of one size.  Their memory is never returned to the kernel. */
struct ks_pool {
	size_t bytes;  /* of an object, set by the user */
	void *free;    /* each begins with a pointer to the next one */
	uint8_t *slab; /* the unused rest, not touched yet: touching a page is expensive */
	size_t left;
};

/** @return an object of zeros; NULL: there is no memory */
void *ks_pool_take(struct ks_pool *p);
void ks_pool_give(struct ks_pool *p, void *mem);
/** Maps private memory of zeros.  NULL: there is none. */
void *ks_map(size_t bytes);
/** As ks_table_hold() and ks_table_release(). */
void ks_memory_hold(void);
void ks_memory_release(void);
/** Called in a child. */
void ks_memory_forked(void);

/* --- table.c --- */

#define KS_MAX_FDS (1u << 20) /* limit of descriptors in the table */

enum ks_kind {
	KS_PLAIN, /* not handled by this library */
	KS_EARLY, /* a TCP socket that is in an epoll set, and is not connected */
	KS_TRIES, /* a TCP socket that is connecting, with the option offered */
	KS_WAITS, /* as KS_TRIES, and a thread is in connect() */
	KS_LISTENS,
	KS_NEVER,  /* a TCP socket with an option that SMC-R does not support */
	KS_HIDDEN, /* a descriptor of this library, hidden from the program */
	KS_SMC,
};

/* Recent results of polling before a sleep. */
struct ks_patience {
	uint32_t failed; /* consecutive unsuccessful polls */
	uint32_t skip;   /* number of next waits that do not poll */
};

/* Options of the TCP socket that were set since the connection was made, for ended.c. */
#define KS_SETS_MAX  8u
#define KS_VALUE_MAX 8u /* bytes of a value, as of struct linger */
struct ks_sets {
	uint32_t n;
	struct {
		int level, name;
		socklen_t len;
		uint8_t value[KS_VALUE_MAX];
	} set[KS_SETS_MAX];
};

struct ks_sock {
	_Atomic uint32_t refs;
	/* far end of the other program's pair; -1: not requested yet, or there is none */
	_Atomic int waker;
	int next_waker; /* the waker to use in state DIRECT; -1: it has to be requested */
	_Atomic bool no_waker;
	bool small;  /* under tx_lock: the pair has the send buffer KARST_SOCK_SNDBUF */
	bool client; /* this process made the connection by connect() */
	/* connect() did not wait, and the program has not called it again to get the result */
	_Atomic bool untold;
	uint32_t buffer;
	struct karst_sock_page *page;
	uint32_t number, generation; /* of the page */
	uint32_t forks;              /* ks_forks() when the connection was made */
	/* The rings.  Before they exist, the pointers refer to the page (early).  All of this
	 * changes once, under both locks, and is read without a lock */
	void *map;
	uint32_t rings;        /* number of the rings; 0: they are not kept */
	_Atomic bool attached; /* the rings are mapped */
	_Atomic bool no_rings; /* the rings cannot be obtained */
	struct karst_sock_dir *_Atomic txd, *_Atomic rxd;
	uint8_t *tx, *rx;
	uint32_t tx_shift, rx_shift; /* karst_sock_shift() */
	uint64_t poll_ns;
	struct ks_patience rx_patience, tx_patience;
	struct ks_sets *_Atomic sets; /* NULL: none.  The contents are under tx_lock */
};

enum ks_kind ks_kind(int fd);
/** @return a reference to the connection of @fd; NULL: @fd is not a connection of this library */
struct ks_sock *ks_get(int fd);
void ks_put(struct ks_sock *s);
/** The same for a cleanup handler, if the thread's call still has the reference. */
void ks_put_left(struct ks_sock *s);
/** Puts the references of the thread after the first @base. */
void ks_put_after(uint32_t base);
/** For use after a wait.  @return @fd if it still belongs to @s; -1 if another thread has closed
 *  it, so that the descriptor that now has this number must not be used. */
int ks_still(int fd, const struct ks_sock *s);
/** Moves @fd to a high number that the program does not see; for the wakers of struct ks_sock. */
int ks_hide_own(int fd);
/** Sets the kind of @fd, and its connection.  The table takes over a reference of the caller's to
 *  @s. */
void ks_set(int fd, enum ks_kind kind, struct ks_sock *s);
/** Removes @fd, which was closed or will be closed. */
void ks_forget(int fd);
/** Called when @to has become a duplicate of @from. */
void ks_copy(int from, int to);
/** False in the child of vfork(), which shares this memory but has descriptors of its own. */
bool ks_is_ours(void);
/** Whether a descriptor listens, or has listened. */
bool ks_listens(void);
/** Whether a descriptor is a connection. */
bool ks_connects(void);
/** Lists descriptors that are connections or wake their peers, up to @max.
 *  @return how many there are */
unsigned int ks_list(int *fds, unsigned int max);
/** @return the first descriptor from @fd on that is connecting; -1: there is none */
int ks_next_connecting(int fd);
/** Changes each time that there is one more of them. */
uint32_t ks_additions(void);
void ks_forked(void);
/** Called before a fork(), and after it in the parent: takes and releases the lock, so that what
 *  the child inherits is not being changed. */
void ks_table_hold(void);
/** Touches the memory for the first connections, and for their wakers near @high. */
void ks_table_begin(int high);
void ks_table_release(void);

/** A connection of zeros.  NULL: there is no memory. */
struct ks_sock *ks_sock_new(void);
void ks_sock_free(struct ks_sock *s);

/* Records epoll registrations of a descriptor that is not connected yet, to move them to the
 * pair. */
void ks_epoll_note(int epfd, int op, int fd, const struct epoll_event *event);
/** Forgets the registrations of @fd: they will not be moved. */
void ks_epoll_leave(int fd);
/** Called before the pair takes the number of @fd: the TCP socket stays open elsewhere, so epoll
 *  would still report it. */
void ks_epoll_remove(int fd);
/** Called after that: registers the pair in the same epoll sets. */
void ks_epoll_enter(int fd);

/* --- service.c --- */

extern bool ks_require;

/** Whether the service has room for more connections, as far as is known. */
bool ks_has_room(void);
void ks_note_full(void);
/** Whether there is a service.  Connects to it if necessary, also to the next one after its end. */
bool ks_service(void);
/** Connects to the service in advance, in the program that was given to karst-run. */
void ks_service_begin(void);
/** Sends a request with a descriptor.  @fds: the descriptors of the answer, the rest -1.  @return 0
 *  or -errno. */
int ks_ask(struct karst_sock_msg *msg, int fd, int fds[KARST_SOCK_FDS]);
/** The same for KARST_SOCK_OPEN, in two parts, so that the caller can continue while the service
 *  works.  If the first part returns 0, the caller must call the second.  @generation: that of the
 *  page's number */
int ks_open_begin(struct karst_sock_msg *msg, int fd, uint32_t *generation);
int ks_open_end(struct karst_sock_msg *msg, int fds[KARST_SOCK_FDS]);
/** Moves @fd to a high number that the program does not see.  @return the new number, or @fd if
 *  there is none. */
int ks_hide(int fd);
void ks_option_want(int fd, bool want);
bool ks_option_seen(int fd);
/** Whether @fd is a descriptor that the program does not see. */
bool ks_is_hidden(int fd);
/** In a child.  @at_once: connects again at once, if the parent was connected. */
void ks_service_forked(bool at_once);
/** @return the descriptor of the connection to the service; -1: there is none */
int ks_service_fd(void);
/** Whether the process may run on several processors. */
bool ks_has_processors(void);

/* --- pages.c --- */

/** Adds to a request which pages are free.  @return the generation of numbers */
uint32_t ks_pages_report(struct karst_sock_msg *msg);
/** Gets the page that the service has assigned: one that this process has kept, or the file @fd.
 *  NULL: there is none.  Sets *@number to 0 if the page must not be kept. */
struct karst_sock_page *ks_page_get(uint32_t *number, uint32_t generation, bool kept, int fd);
/** Releases a page.  @shared: this process does not use it any more, but a child may have it */
void ks_page_put(struct karst_sock_page *mem, uint32_t number, uint32_t generation, bool shared);
/** Gets the kept rings of this number, and marks them used.  NULL: this process does not have
 *  them. */
void *ks_rings_get(uint32_t number, uint32_t generation);
/** Records new rings of this number as used.  False: they are not kept, and the caller has to unmap
 *  them. */
bool ks_rings_keep(uint32_t number, uint32_t generation, void *map, uint32_t buffer);
enum ks_keep {
	KS_KEEP_NOT,
	KS_KEEP_SMALL, /* with one page allocated */
	KS_KEEP_WHOLE, /* with all pages allocated; not kept if there are too many of these */
};
/** Releases rings.  @keep: whether to keep them for later connections */
void ks_rings_put(
	uint32_t number, uint32_t generation, void *map, uint32_t buffer, enum ks_keep keep);
/** How often this process has forked: a child has what was mapped before the fork. */
uint32_t ks_forks(void);
void ks_note_fork(void);
/** Called when the connection to the service has ended. */
void ks_pages_forget(void);
/** Called in a child, before anything else. */
void ks_pages_forked(void);
/** As ks_table_hold() and ks_table_release(). */
void ks_pages_hold(void);
void ks_pages_release(void);

/* --- peers.c --- */

/** Called when the program begins. */
void ks_peers_begin(void);
/** Whether a connection that is about to be made to this peer must stay on TCP, because the peer
 *  has not answered the option lately, or because connections to it are short. */
bool ks_peer_stays(const struct sockaddr *to);
/** Records that the connected peer of @fd has not answered the option. */
void ks_note_cannot(int fd);
/** Records the outcome of a connection that has ended, for the next connections to its peer. */
void ks_note_over(const struct ks_sock *s);
/** @return how many connections have stayed on TCP since the last call of this function, because
 *  connections to their peer are short */
uint32_t ks_peers_left(void);

/* --- calls_confine.c --- */

/** Whether this process has a filter of system calls that may not allow what SMC-R needs.  Then it
 *  neither connects to the service nor makes connections through it. */
bool ks_is_confined(void);
/** Called when the program begins: it may have inherited a filter. */
void ks_confine_begin(void);
/** Called in a child. */
void ks_confine_forked(void);
/** Called before the service opens a connection, or a descriptor becomes a duplicate of one, and
 *  after the table has it.  Signals are held in between.  The first one waits while another thread
 *  sets a filter, if that cannot be set otherwise: the caller holds no lock except that of
 *  ks_settle(). */
void ks_confine_open_begin(void);
void ks_confine_open_end(void);
/** As seccomp(SECCOMP_SET_MODE_FILTER). */
long ks_confine(unsigned int flags, const void *theirs);

/* --- sock.c --- */

/** Called when the TCP connection of @fd is established: turns it into a pair if both sides have
 *  sent the option.
 *  @accepted: the flags of accept4(), which has just returned @fd; -1: @fd was connected
 *  @return 0: @fd can be used, as a pair or as TCP; -errno: it cannot be used, and is still open */
int ks_become(int fd, int accepted);
/** Gets the rings of @s, whether or not they exist already.  The caller holds no lock. */
void ks_need_rings(int fd, struct ks_sock *s);
/** The same, with both locks held.  False: there are no rings, and the connection is over. */
bool ks_attach(int fd, struct ks_sock *s);
/** Called when @fd was received from elsewhere: an end of a pair becomes a connection, and a TCP
 *  socket may listen. */
void ks_look_at(int fd);
bool ks_is_tcp(int fd);
/** Settings that a TCP socket may have, and that its pair has to take over. */
#define KS_SET_OPTION 1u /* time limits, SO_LINGER, SO_OOBINLINE */
#define KS_SET_OWNER  2u /* who gets its signals, and which signal */
#define KS_SET_ANY    (KS_SET_OPTION | KS_SET_OWNER)
#define KS_SET_INQ    4u /* TCP_INQ, if it was set by this process */
void ks_note_set(uint32_t what);
/** Called when an option of a TCP socket is about to be set. */
void ks_note_option(int level, int name);
/** Whether @fd is a TCP socket that is not connected, not connecting and not listening. */
bool ks_is_unused(int fd);
/** Checks whether @fd has connected meanwhile. */
void ks_settle(int fd);
/** The same for the thread in connect(), when the socket has connected.  @return as ks_become() */
int ks_settle_own(int fd);
/** The same when it has not connected.  @kind: the new kind of @fd. */
void ks_settle_not(int fd, enum ks_kind kind);

/** Whether a socket may become a connection yet.  If the program has a filter, sockets stay on TCP,
 *  as a filter for TCP need not allow what that takes. */
static inline bool
ks_may_settle(void)
{
	return ks_require || !ks_is_confined();
}

/** Checks a socket that is connecting: a thread may be about to find it connected, and other
 *  threads to use it. */
static inline void
ks_settle_early(int fd)
{
	enum ks_kind kind = ks_kind(fd);

	if ((kind == KS_TRIES || kind == KS_WAITS) && ks_may_settle() && ks_is_ours())
		ks_settle(fd);
}

/* --- wake.c --- */

/** Asks the service to wake one side, or to check the connection: KARST_SOCK_WAKE with @flags. */
void ks_ask_wake(int fd, uint32_t flags);
/** Gets the rings if they exist by now, and in state DIRECT what is needed to wake the other
 *  program.  The caller holds no lock. */
void ks_meet_peer(int fd, struct ks_sock *s);
/** Asks the service to check the connection. */
void ks_ring(int fd);
/** The same; in state DIRECT nothing happens. */
void ks_tell_service(int fd, struct ks_sock *s);
/** Asks the service to put an urgent byte into our pair. */
void ks_ask_urgent(int fd);
/** Publishes the mark of an urgent byte, which is the last one before @end; under tx_lock. */
void ks_wrote_urgent(int fd, struct ks_sock *s, uint64_t end);
/** Notifies the reader of written bytes if the reader wants to be notified; under tx_lock. */
void ks_wrote(int fd, struct ks_sock *s);
/** Notifies the writer of what was read up to @tail; under rx_lock. */
void ks_read(int fd, struct ks_sock *s, uint64_t tail);
/** In state DIRECT, when a process of the other side has closed a descriptor: if that was the last
 *  one, the page says on return that the connection is over.  The caller holds no lock. */
void ks_notice_close(int fd, struct ks_sock *s);
/** Called before bytes are written, in state DIRECT: if the other side has shut down both
 *  directions, the page says on return that the connection is over.  The caller holds no lock. */
void ks_notice_shut(int fd, struct ks_sock *s);
/** Ends our direction. */
void ks_end(int fd, struct ks_sock *s);

/* --- token.c --- */

/** Makes poll() report correctly that there is nothing to read, or that there is; under rx_lock. */
void ks_mark_empty(int fd, struct ks_sock *s);
void ks_mark_filled(int fd, struct ks_sock *s);
/** The same when there is no room; under tx_lock. */
void ks_mark_full(int fd, struct ks_sock *s);
/** Called when the kernel reports that the pair can be read.  @return whether there is nothing to
 *  read nevertheless; then this function has removed from the pair what made it readable.  The
 *  caller holds no lock. */
bool ks_is_stray(int fd, struct ks_sock *s);
/** Called when poll(), epoll or signals will report readiness of @fd from now on. */
void ks_watch(int fd);
/* The following functions are called under rx_lock: */
/** Takes tokens out of the pair: up to @n, and up to 64.  @return as recv() */
ssize_t ks_take_tokens(int fd, struct ks_sock *s, size_t n);
/** Requests a token for the next bytes; and the opposite. */
void ks_arm(int fd, struct ks_sock *s);
void ks_disarm(struct ks_sock *s);
/** Counts a token if the writer has sent one since ks_arm(). */
void ks_look_at_wanted(struct ks_sock *s);

/* --- positions.c --- */

/** Whether an urgent byte is in the pair.  On return its signal, if it is for this thread, has also
 *  come. */
bool ks_urgent_came(int fd);
/** @return the position up to which the other side has written.  A mark that is ahead of head
 *  counts if its urgent byte has come. */
uint64_t ks_written(int fd, const struct ks_sock *s);
/** Whether there are bytes that poll() may report. */
bool ks_has_bytes(int fd, const struct ks_sock *s);
bool ks_is_full(const struct ks_sock *s);
/** Number of bytes that can be written now, at most what is free. */
size_t ks_room(const struct ks_sock *s);

/** Whether there are rings that this process has not mapped yet. */
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

/* The following functions are called under rx_lock: */
/** Takes over a mark that has come. */
void ks_urgent_look(struct ks_sock *s, uint64_t *tail, uint64_t *there);
/** @return how many of @there bytes a read may take, starting *@hole bytes after @tail */
uint64_t ks_urgent_limit(
	struct ks_sock *s, uint64_t tail, uint64_t there, bool peek, uint64_t *hole);
/** Called when rx_tail was moved. */
void ks_urgent_moved(int fd, struct ks_sock *s);
/** Whether the next byte is the marked one, so that a read ends here. */
bool ks_urgent_here(const struct ks_sock *s);

/** Makes poll() report urgent data: a sleeping thread may have taken out of the pair the byte that
 *  does so. */
void ks_urgent_restore(int fd, struct ks_sock *s);

/* The following functions are called without a lock: */
/** The same, before a thread checks for readiness. */
void ks_urgent_watch(int fd);
/** Implements MSG_OOB. */
ssize_t ks_recv_urgent(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags);
/** Implements SIOCATMARK. */
bool ks_urgent_at_mark(int fd, struct ks_sock *s);
/** Implements FIONREAD. */
uint64_t ks_urgent_inq(int fd, struct ks_sock *s);
/** Whether there is only an urgent byte, which is not a byte to read. */
bool ks_urgent_alone(int fd, struct ks_sock *s);
/** Implements SO_OOBINLINE. */
void ks_urgent_inline(struct ks_sock *s, bool on);

/* --- lock.c --- */

/** Mutexes of this process.  Implies ks_hold(), as each lock of this library does, and
 *  ks_no_cancel(). */
void ks_lock(pthread_mutex_t *lock);
void ks_unlock(pthread_mutex_t *lock);
/** In a child, which initializes a lock that its parent held for it: the rest of ks_unlock(). */
void ks_unlocked(void);
/** A lock in a page.  Implies ks_hold().  @return whether the previous owner has died */
bool ks_lock_page(struct karst_sock_lock *l);
void ks_unlock_page(struct karst_sock_lock *l);
/** The same without waiting and without ks_hold().  False: a live thread has the lock. */
bool ks_take_place(struct karst_sock_lock *l, bool *died);
void ks_leave_place(struct karst_sock_lock *l);
/** Called when the process begins, and in a child, whose threads have other numbers. */
void ks_locks_began(void);
void ks_locks_forked(void);
void ks_lock_rx(struct ks_sock *s);
/** The same, but waits only until @end_ns (ks_now()).  False: the lock was not taken. */
bool ks_lock_rx_until(struct ks_sock *s, uint64_t end_ns);
/** The same for a caller that reads the rings, if there are any. */
void ks_enter_rx(int fd, struct ks_sock *s);
/** A thread that died with this lock had not yet moved a position, because that comes last. */
void ks_lock_tx(struct ks_sock *s);
/** Gets the rings if they exist; under rx_lock. */
void ks_attach_rx(int fd, struct ks_sock *s);

/* --- sleep.c --- */

/** Waits for bytes.  @ended: ks_held.ended when the call began.
 *  @return 1: check again; 0: nothing will come; -1: errno */
int ks_wait_bytes(int fd, struct ks_sock *s, int flags, uint32_t ended);
/** Waits for room.
 *  @return 0: check again; -1: errno */
int ks_wait_room(int fd, struct ks_sock *s, int flags, uint32_t ended);
/** Sets errno of a call that was interrupted: EINTR, or EAGAIN if the call would not have
 *  waited. */
void ks_interrupted(int fd, int flags, int name);
/** Called after a wait without result.  @return whether the call must not wait again, because it
 *  does not block, or has waited since @since_ns for the time limit @name of the pair.  Then errno
 *  is set. */
bool ks_is_late(int fd, int flags, int name, uint64_t since_ns);
uint64_t ks_now(void);
/** Whether to poll before a sleep.  If so, the caller reports the result by ks_looked(). */
bool ks_may_look(struct ks_patience *p);
void ks_looked(struct ks_patience *p, bool found);
/** Whether a thread sleeps.  Threads that have died do not count.  Under rx_lock. */
bool ks_sleeps(struct ks_sock *s);

/* --- calls_io.c --- */

/** Checks for what the kernel rejects before it checks anything else.  @many: the errno for too
 *  many parts
 *  @return 0, or an errno */
int ks_refuse_iov(const struct iovec *iov, size_t n, int many);

/* --- calls_msg.c --- */

/** Checks the descriptors that came with a message, which may be connections. */
void ks_look_at_rights(struct msghdr *m);

/* --- calls_life.c --- */

/** Called in a child. */
void ks_life_forked(void);

/** Called before the C library closes @fd, or a stream.
 *  @return the connection of @fd, for ks_close_end(), or NULL */
struct ks_sock *ks_close_begin(int fd);
void ks_close_end(struct ks_sock *s);

/* --- calls_stream.c --- */

/** Called after descriptor 0, 1 or 2 has changed: checks whether stdin, stdout and stderr are
 *  connections. */
void ks_streams_look(int fd);
/** As ks_table_hold() and ks_table_release(). */
void ks_streams_hold(void);
void ks_streams_release(void);
/** Called in a child. */
void ks_streams_forked(void);

/* --- ended.c --- */

/** Frees the record. */
void ks_drop_values(struct ks_sock *s);
/** Records the value of an option that was set.  The caller holds no lock. */
void ks_note_value(struct ks_sock *s, int level, int name, const void *value, socklen_t len);
/** As getsockopt() and setsockopt(), when there is no TCP socket any more.  @return 0 or -errno */
int ks_get_ended(struct ks_sock *s, int level, int name, void *value, socklen_t *len);
int ks_set_ended(struct ks_sock *s, int level, int name, const void *value, socklen_t len);

/* --- calls_direct.c --- */

/** As seccomp(), without being noticed. */
long ks_seccomp(unsigned int op, unsigned int flags, const void *filter);

/* --- uring.c --- */

/** Called when the program begins. */
void ks_uring_begin(void);
/** Called before the program listens or connects.  @return whether the socket has to stay on TCP,
 *  because an io_uring may read and write what takes its place */
bool ks_uring_listens(void);
bool ks_uring_connects(void);
/** Whether an io_uring may wait for any connection, without notice to this library. */
bool ks_uring_waits(void);

/* --- watch.c --- */

/** Called when O_NONBLOCK of @fd was set or cleared. */
void ks_note_nonblock(int fd, bool on);

/* --- io.c --- */

/** Under rx_lock.  @return how many bytes there are after *@tail */
uint64_t ks_look(int fd, struct ks_sock *s, uint64_t *tail);
/** Under rx_lock: makes the current state visible to poll() and to other threads that sleep. */
void ks_mark(int fd, struct ks_sock *s);
/** @return the error that the service has recorded, which is reported once, or 0 */
int ks_take_error(int fd, struct ks_sock *s);
ssize_t ks_recv(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags);
ssize_t ks_send(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags);
/** Moves what is there, up to @n bytes, into @pipe, as far as possible without waiting. */
ssize_t ks_pour(int fd, struct ks_sock *s, int pipe, size_t n);

/** Most calls begin with this.  @return the connection of @fd, if it has become one by now */
static inline struct ks_sock *
ks_enter(int fd)
{
	if (__builtin_expect(ks_kind(fd) == KS_PLAIN, 1))
		return NULL;
	ks_settle_early(fd);
	return ks_get(fd);
}

/** The same for calls that are cancellation points.  TCP acts on a cancellation before it transfers
 *  bytes, also if it need not wait for them. */
static inline struct ks_sock *
ks_enter_cancelled(int fd)
{
	if (__builtin_expect(ks_kind(fd) == KS_PLAIN, 1))
		return NULL;
	pthread_testcancel();
	return ks_enter(fd);
}

#endif /* KS_H */
