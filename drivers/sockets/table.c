/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The table of descriptors.  Entries are never freed, so that they can be read without a lock: a
 * reader counts itself as a user of the entry until it has a reference to the connection.  A thread
 * that takes the connection out of the entry waits until the entry has no users.
 */
#include "ks.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_FDS 1024u
#define PAGES    (KS_MAX_FDS / PAGE_FDS)

struct entry {
	_Atomic uint32_t kind;
	_Atomic uint32_t users;
	struct ks_sock *_Atomic sock;
};

struct watch {
	struct watch *next;
	int epfd, fd;
	struct epoll_event event;
};

/* At file scope: the calls of programs have no argument for it. */
static struct entry *_Atomic table_pages[PAGES];
static pthread_mutex_t table_lock =
	PTHREAD_MUTEX_INITIALIZER; /* protects what follows, and new pages */
static struct watch *watches;
static pid_t pid;
static _Atomic bool listens;
static _Atomic uint32_t connections; /* number of entries that are connections */
static _Atomic uint32_t additions;   /* how often an entry has become one that ks_list() lists */

/* --- memory --- */

static struct ks_pool sock_pool = {.bytes = sizeof(struct ks_sock)};
static struct ks_pool watch_pool = {.bytes = sizeof(struct watch)};

struct ks_sock *
ks_sock_new(void)
{
	return ks_pool_take(&sock_pool);
}

void
ks_sock_free(struct ks_sock *s)
{
	ks_drop_values(s);
	ks_pool_give(&sock_pool, s);
}

/* --- entries --- */

static struct entry *
entry_of(int fd)
{
	struct entry *page;

	if (fd < 0 || (unsigned int)fd >= PAGES * PAGE_FDS)
		return NULL;
	page = atomic_load_explicit(
		&table_pages[(unsigned int)fd / PAGE_FDS], memory_order_acquire);
	return page != NULL ? &page[(unsigned int)fd % PAGE_FDS] : NULL;
}

static struct entry *
make_entry(int fd)
{
	struct entry *_Atomic *page = &table_pages[(unsigned int)fd / PAGE_FDS];

	ks_lock(&table_lock);
	if (atomic_load(page) == NULL)
		atomic_store(page, ks_map(PAGE_FDS * sizeof(struct entry)));
	ks_unlock(&table_lock);
	return entry_of(fd);
}

static void
touch_entry(int fd)
{
	struct entry *e = (unsigned int)fd < PAGES * PAGE_FDS ? make_entry(fd) : NULL;

	if (e != NULL)
		(void)atomic_fetch_or(&e->kind, 0);
}

void
ks_table_begin(int high)
{
	struct ks_sock *s = ks_sock_new();

	touch_entry(0);
	touch_entry(high);
	if (s != NULL)
		ks_sock_free(s);
}

enum ks_kind
ks_kind(int fd)
{
	struct entry *e = entry_of(fd);

	return e != NULL ? (enum ks_kind)atomic_load_explicit(&e->kind, memory_order_acquire)
			 : KS_PLAIN;
}

/* Signals are held. */
static void
note_ref(struct ks_sock *s)
{
	if (ks_held.nrefs < KS_REFS)
		ks_held.refs[ks_held.nrefs++] = s;
}

/* Signals are held.  False: the thread's call has no such reference. */
static bool
forget_ref(const struct ks_sock *s)
{
	uint32_t i = ks_held.nrefs;

	while (i > ks_held.ref_base && ks_held.refs[i - 1] != s)
		i--;
	if (i <= ks_held.ref_base)
		return false;
	ks_held.nrefs--;
	for (; i <= ks_held.nrefs; i++)
		ks_held.refs[i - 1] = ks_held.refs[i];
	return true;
}

struct ks_sock *
ks_get(int fd)
{
	struct entry *e = entry_of(fd);
	struct ks_sock *s;

	if (e == NULL || atomic_load_explicit(&e->kind, memory_order_acquire) != KS_SMC)
		return NULL;
	ks_hold(); /* so that a handler does not wait for a user that is its own thread */
	atomic_fetch_add(&e->users, 1);
	s = atomic_load(&e->sock);
	if (s != NULL) {
		atomic_fetch_add(&s->refs, 1);
		note_ref(s);
	}
	atomic_fetch_sub(&e->users, 1);
	ks_release();
	return s;
}

int
ks_still(int fd, const struct ks_sock *s)
{
	struct entry *e = entry_of(fd);

	return e != NULL && atomic_load(&e->sock) == s ? fd : -1;
}

int
ks_hide_own(int fd)
{
	fd = ks_hide(fd);
	ks_set(fd, KS_HIDDEN, NULL);
	return fd;
}

static void
close_own(int fd)
{
	if (fd < 0)
		return;
	ks_hold();
	ks_no_cancel();
	ks_set(fd, KS_PLAIN, NULL);
	real(close)(fd);
	ks_no_cancel_end();
	ks_release();
}

/* Once the page is given back, it may belong to another connection. */
static void
put_memory(struct ks_sock *s)
{
	bool shared = s->forks != ks_forks();
	uint64_t tx = atomic_load(&s->page->tx_head), rx = karst_sock_written(s->rxd, s->buffer);
	bool first = s->page->tx == 0;
	bool is_short = karst_sock_is_short(first ? tx : rx, first ? rx : tx);
	bool rdma = atomic_load(&s->page->state) == KARST_SOCK_RDMA;
	enum ks_keep keep = shared ? KS_KEEP_NOT
		: rdma             ? KS_KEEP_WHOLE
		: is_short         ? KS_KEEP_SMALL
				   : KS_KEEP_NOT;

	if (s->rings != 0)
		ks_rings_put(s->rings, s->generation, s->map, s->buffer, keep);
	else if (s->map != NULL)
		munmap(s->map, karst_sock_bytes(s->buffer));
	ks_page_put(s->page, s->number, s->generation, shared);
}

static void
put_ref(struct ks_sock *s)
{
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	ks_note_over(s);
	put_memory(s);
	close_own(s->waker);
	close_own(s->next_waker);
	ks_sock_free(s);
}

void
ks_put(struct ks_sock *s)
{
	ks_hold();
	(void)forget_ref(s);
	put_ref(s);
	ks_release();
}

void
ks_put_left(struct ks_sock *s)
{
	ks_hold();
	if (forget_ref(s))
		put_ref(s);
	ks_release();
}

void
ks_put_after(uint32_t base)
{
	ks_hold();
	while (ks_held.nrefs > base)
		put_ref(ks_held.refs[--ks_held.nrefs]);
	ks_release();
}

/* Signals are held. */
static void
set_entry(struct entry *e, enum ks_kind kind, struct ks_sock *s)
{
	struct ks_sock *old;

	if (kind == KS_LISTENS)
		atomic_store(&listens, true);
	atomic_store(&e->kind, KS_PLAIN);
	if (s != NULL)
		(void)forget_ref(s); /* it is the table's now */
	old = atomic_exchange(&e->sock, s);
	if ((old != NULL) != (s != NULL))
		atomic_fetch_add(&connections, s != NULL ? 1 : -1u);
	while (old != NULL && atomic_load(&e->users) != 0)
		sched_yield();
	if (old != NULL)
		put_ref(old);
	atomic_store_explicit(&e->kind, kind, memory_order_release);
	if (kind == KS_SMC || kind == KS_HIDDEN)
		atomic_fetch_add(&additions, 1);
}

void
ks_set(int fd, enum ks_kind kind, struct ks_sock *s)
{
	struct entry *e = entry_of(fd);

	if (e == NULL && kind == KS_PLAIN)
		return;
	if (e == NULL)
		e = (unsigned int)fd < PAGES * PAGE_FDS ? make_entry(fd) : NULL;
	if (e == NULL) {
		if (s != NULL)
			ks_put(s);
		return;
	}
	ks_hold();
	set_entry(e, kind, s);
	ks_release();
}

void
ks_forget(int fd)
{
	if (ks_kind(fd) == KS_PLAIN || ks_kind(fd) == KS_HIDDEN)
		return;
	if (ks_kind(fd) == KS_TRIES || ks_kind(fd) == KS_WAITS || ks_kind(fd) == KS_EARLY)
		ks_epoll_leave(fd);
	ks_set(fd, KS_PLAIN, NULL);
}

void
ks_copy(int from, int to)
{
	struct ks_sock *s = ks_get(from);
	enum ks_kind kind = ks_kind(from);

	if (kind == KS_HIDDEN)
		kind = KS_PLAIN;
	if (kind == KS_PLAIN && ks_kind(to) == KS_PLAIN)
		return;
	ks_set(to, kind, s);
}

bool
ks_listens(void)
{
	return atomic_load(&listens);
}

bool
ks_connects(void)
{
	return atomic_load(&connections) != 0;
}

uint32_t
ks_additions(void)
{
	return atomic_load(&additions);
}

unsigned int
ks_list(int *fds, unsigned int max)
{
	unsigned int n = 0;

	for (unsigned int p = 0; p < PAGES; p++) {
		struct entry *page = atomic_load_explicit(&table_pages[p], memory_order_acquire);

		for (unsigned int i = 0; page != NULL && i < PAGE_FDS; i++) {
			uint32_t kind = atomic_load(&page[i].kind);

			if (kind != KS_SMC && kind != KS_HIDDEN)
				continue;
			if (n < max)
				fds[n] = (int)(p * PAGE_FDS + i);
			n++;
		}
	}
	return n;
}

int
ks_next_connecting(int fd)
{
	for (; fd >= 0 && (unsigned int)fd < KS_MAX_FDS; fd++) {
		struct entry *e = entry_of(fd);
		uint32_t kind = e != NULL ? atomic_load(&e->kind) : KS_PLAIN;

		if (kind == KS_TRIES || kind == KS_WAITS)
			return fd;
		if (e == NULL) /* nor have the others of its page */
			fd |= (int)PAGE_FDS - 1;
	}
	return -1;
}

bool
ks_is_ours(void)
{
	/* what is confined and has no connections has nothing to be changed, and must not ask */
	return pid == 0 || (ks_is_confined() && !ks_connects()) || pid == getpid();
}

/* Other threads may have been users of an entry when the child was made.  They do not exist in the
 * child. */
static void
forget_users(void)
{
	for (unsigned int p = 0; p < PAGES; p++) {
		struct entry *page = atomic_load_explicit(&table_pages[p], memory_order_acquire);

		for (unsigned int i = 0; page != NULL && i < PAGE_FDS; i++)
			if (atomic_load_explicit(&page[i].users, memory_order_relaxed) != 0)
				atomic_store(&page[i].users, 0);
	}
}

void
ks_table_hold(void)
{
	ks_lock(&table_lock);
}

void
ks_table_release(void)
{
	ks_unlock(&table_lock);
}

void
ks_forked(void)
{
	pid = getpid();
	pthread_mutex_init(&table_lock, NULL);
	forget_users();
}

/* --- epoll --- */

static struct watch **
find_watch(int epfd, int fd)
{
	struct watch **at = &watches;

	while (*at != NULL && ((*at)->fd != fd || (epfd >= 0 && (*at)->epfd != epfd)))
		at = &(*at)->next;
	return at;
}

void
ks_epoll_note(int epfd, int op, int fd, const struct epoll_event *event)
{
	struct watch **at, *w;

	ks_lock(&table_lock);
	at = find_watch(epfd, fd);
	w = *at;
	if (op == EPOLL_CTL_DEL) {
		if (w != NULL) {
			*at = w->next;
			ks_pool_give(&watch_pool, w);
		}
	} else {
		if (w == NULL)
			w = *at = ks_pool_take(&watch_pool);
		if (w != NULL)
			*w = (struct watch){
				.next = w->next, .epfd = epfd, .fd = fd, .event = *event};
	}
	ks_unlock(&table_lock);
}

void
ks_epoll_leave(int fd)
{
	struct watch **at, *w;

	ks_lock(&table_lock);
	while (*(at = find_watch(-1, fd)) != NULL) {
		w = *at;
		*at = w->next;
		ks_pool_give(&watch_pool, w);
	}
	ks_unlock(&table_lock);
}

void
ks_epoll_remove(int fd)
{
	struct watch *w;

	ks_lock(&table_lock);
	for (w = watches; w != NULL; w = w->next)
		if (w->fd == fd)
			(void)real(epoll_ctl)(w->epfd, EPOLL_CTL_DEL, fd, NULL);
	ks_unlock(&table_lock);
}

void
ks_epoll_enter(int fd)
{
	struct watch *w;
	bool any = false;

	ks_lock(&table_lock);
	for (w = watches; w != NULL; w = w->next)
		if (w->fd == fd)
			any |= real(epoll_ctl)(w->epfd, EPOLL_CTL_ADD, fd, &w->event) == 0;
	ks_unlock(&table_lock);
	ks_epoll_leave(fd);
	if (any)
		ks_watch(fd);
}
