/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The descriptors that libibverbs opens, writes, reads and closes by itself, as if the kernel were
 * behind them.  The provider replaces these calls of libibverbs:
 *
 *   stat(), open("/dev/infiniband/uverbsN")   for karst devices that are in sysfs and not in /dev:
 *                                     a character device that refuses everything (/dev/full),
 *                                     which becomes the context's cmd_fd
 *   write(cmd_fd, CREATE_COMP_CHANNEL)  a completion channel of libkarst, whose descriptor the
 *                                     program may poll; all other commands are refused
 *   read(channel)                     the next event: the address of an ibv_cq
 *   read(async_fd)                    the next asynchronous event: the address of its object
 *   close(channel)                    destroys the libkarst channel
 *
 * A child inherits the descriptors, and may have closed them, as daemons do.  Then other files get
 * their numbers.  So in a child a descriptor is recognised by its inode, too.
 *
 * The engine's streams carry other records than the kernel's, so read() translates them.  It also
 * skips events of objects that are destroyed, because libibverbs would dereference their addresses.
 *
 * Two counts of events are kept: libibverbs counts the events that the program has acknowledged,
 * the provider counts those that it has delivered.  An object is destroyed only when the counts are
 * equal.  A program that has an event may still use its object, poll it or post to it, so the
 * provider waits for the acknowledgement before libkarst destroys the object.
 *
 * An object is closing from the time when all of its events are acknowledged until libkarst has
 * destroyed it or has refused to.  A thread that reads another event of the object in this time
 * waits for the result: if the object stays, the event must be delivered, and it cannot be put
 * back.  libkarst waits until no thread holds an event of the object, so the reader acknowledges
 * the event to libkarst before it waits.
 */
#include "provider.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#define DEVICES    "/dev/infiniband/"
#define EMPTY_CDEV "/dev/full"

enum stream_kind { STREAM_COMMANDS, STREAM_ASYNC, STREAM_CHANNEL };

/** A descriptor that the provider handles. */
struct stream {
	LIST_ENTRY(stream) next;
	int fd;
	dev_t dev; /* of fd */
	ino_t ino;
	bool inherited; /* by this process, which is a child */
	enum stream_kind kind;
	struct kv_context *ctx;
	struct karst_comp_channel *channel;
};

/* An event that a thread has read, on that thread's stack; listed while its object is closing. */
struct undecided {
	LIST_ENTRY(undecided) next;
	const struct kv_events *events; /* NULL: it is decided */
	uint32_t *count;
	bool waits; /* the object is closing: @out is valid once it is decided */
	bool out;   /* the event is to be delivered */
};

/* One for the process, like descriptors. */
static struct {
	/* protects the lists and all struct kv_events.  It is held during fork(), so no memory is
	 * freed under it: programs intercept that, and may call the provider from there. */
	struct karst_mutex lock;
	LIST_HEAD(, stream) streams[KV_FD_LISTS];
	LIST_HEAD(, undecided) undecided;
	pthread_cond_t decided;
	/* the functions that libibverbs called before */
	int (*stat)(const char *path, struct stat *st);
	int (*open)(const char *path, int flags, ...);
	ssize_t (*write)(int fd, const void *buf, size_t len);
	ssize_t (*read)(int fd, void *buf, size_t len);
	int (*close)(int fd);
} event_state = {.lock = KARST_MUTEX_INITIALIZER, .decided = PTHREAD_COND_INITIALIZER};

/* --- the table of streams --- */

/* Is the descriptor still that of the stream?  Only a child has to ask. */
static bool
is_of_stream(const struct stream *s)
{
	struct stat st;

	return !s->inherited ||
		(fstat(s->fd, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino);
}

/* Stores a copy of the stream of @fd, because another thread may remove the stream at any moment.
 * @return false: the descriptor is not the provider's */
static bool
fd_find(int fd, struct stream *copy)
{
	struct stream *s;

	karst_mutex_lock(&event_state.lock);
	LIST_FOREACH(s, &event_state.streams[kv_fd_list(fd)], next)
		if (s->fd == fd && is_of_stream(s))
			break;
	if (s != NULL)
		*copy = *s;
	karst_mutex_unlock(&event_state.lock);
	return s != NULL;
}

static int
fd_add(int fd, enum stream_kind kind, struct kv_context *ctx, struct karst_comp_channel *channel)
{
	struct stream *s = calloc(1, sizeof(*s));
	struct stat st = {0};

	if (s == NULL)
		return ENOMEM;
	/* if it fails, the descriptor is not recognised in a child */
	(void)fstat(fd, &st);
	*s = (struct stream){.fd = fd,
		.dev = st.st_dev,
		.ino = st.st_ino,
		.kind = kind,
		.ctx = ctx,
		.channel = channel};
	karst_mutex_lock(&event_state.lock);
	LIST_INSERT_HEAD(&event_state.streams[kv_fd_list(fd)], s, next);
	karst_mutex_unlock(&event_state.lock);
	return 0;
}

/* Removes the stream of a descriptor, or all streams of a context (@fd -1). */
static void
fd_forget(int fd, const struct kv_context *ctx)
{
	unsigned int first = fd >= 0 ? kv_fd_list(fd) : 0, i;
	unsigned int n = fd >= 0 ? 1 : KV_FD_LISTS;
	LIST_HEAD(, stream) gone = LIST_HEAD_INITIALIZER(gone);
	struct stream *s, *next;

	karst_mutex_lock(&event_state.lock);
	for (i = first; i < first + n; i++) {
		for (s = LIST_FIRST(&event_state.streams[i]); s != NULL; s = next) {
			next = LIST_NEXT(s, next);
			if (fd >= 0 ? s->fd != fd : s->ctx != ctx)
				continue;
			LIST_REMOVE(s, next);
			LIST_INSERT_HEAD(&gone, s, next);
		}
	}
	karst_mutex_unlock(&event_state.lock);
	while ((s = LIST_FIRST(&gone)) != NULL) {
		LIST_REMOVE(s, next);
		free(s);
	}
}

struct karst_comp_channel *
kv_events_channel(const struct ibv_comp_channel *channel)
{
	struct stream s;

	return fd_find(channel->fd, &s) && s.kind == STREAM_CHANNEL ? s.channel : NULL;
}

/* --- objects that events are about --- */

/* Counts an event that is about to be delivered: at once, or, if its object is closing, when that
 * is decided.  The caller acknowledges the event to libkarst, then calls event_is_out(). */
static void
event_count(struct undecided *u, struct kv_events *events, uint32_t *count)
{
	*u = (struct undecided){.count = count};
	karst_mutex_lock(&event_state.lock);
	if (events->closing) {
		u->events = events;
		u->waits = true;
		LIST_INSERT_HEAD(&event_state.undecided, u, next);
	} else {
		++*count;
		u->out = true;
	}
	karst_mutex_unlock(&event_state.lock);
}

/* Waits until it is decided whether the event is delivered.
 * @return false: its object is destroyed */
static bool
event_is_out(const struct undecided *u)
{
	if (!u->waits)
		return u->out;
	karst_mutex_lock(&event_state.lock);
	while (u->events != NULL)
		karst_mutex_wait(&event_state.lock, &event_state.decided);
	karst_mutex_unlock(&event_state.lock);
	return u->out;
}

/* Sets @events->closing if all delivered events are acknowledged.  @return whether they are */
static bool
events_try_close(struct kv_events *events, const uint32_t *comp, const uint32_t *async)
{
	bool done;

	karst_mutex_lock(&event_state.lock);
	done = (comp == NULL || *comp == events->comp) && *async == events->async;
	events->closing = done;
	karst_mutex_unlock(&event_state.lock);
	return done;
}

void
kv_events_close(struct kv_events *events, pthread_mutex_t *mutex, pthread_cond_t *cond,
	const uint32_t *comp, const uint32_t *async)
{
	/* a thread that is cancelled here would leave libibverbs' mutex locked */
	int cancel = karst_cancel_disable();

	pthread_mutex_lock(mutex);
	while (!events_try_close(events, comp, async))
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
	karst_cancel_restore(cancel);
}

void
kv_events_decide(struct kv_events *events, bool destroyed)
{
	struct undecided *u, *next;

	karst_mutex_lock(&event_state.lock);
	for (u = LIST_FIRST(&event_state.undecided); u != NULL; u = next) {
		next = LIST_NEXT(u, next);
		if (u->events != events)
			continue;
		LIST_REMOVE(u, next);
		*u->count += !destroyed;
		u->out = !destroyed;
		u->events = NULL;
	}
	events->closing = false;
	pthread_cond_broadcast(&event_state.decided);
	karst_mutex_unlock(&event_state.lock);
}

/* --- reading --- */

static const char no_room[] = "an event: no room for it";

static ssize_t
event_failed(int ret)
{
	/* for EAGAIN and EINTR no reason is printed: the program expects them */
	if (ret == -EAGAIN || ret == -EINTR)
		errno = -ret;
	else
		kv_fail(ret);
	return -1;
}

static ssize_t
read_channel(const struct stream *s, void *buf, size_t len)
{
	struct ib_uverbs_comp_event_desc desc;
	struct karst_cq *karst;
	struct undecided u;
	struct kv_cq *cq;
	void *context;
	int ret;

	if (len < sizeof(desc))
		return event_failed(kv_refuse(-EINVAL, no_room));
	do {
		ret = karst_get_cq_event(s->channel, &karst, &context);
		if (ret != 0)
			return event_failed(ret);
		cq = context;
		event_count(&u, &cq->events, &cq->events.comp);
		atomic_store_explicit(&cq->told, true, memory_order_relaxed);
		atomic_store_explicit(&cq->armed_fresh, false, memory_order_relaxed);
		karst_ack_cq_events(karst, 1);
	} while (!event_is_out(&u));
	desc.cq_handle = (uintptr_t)&cq->vcq.cq;
	memcpy(buf, &desc, sizeof(desc));
	return sizeof(desc);
}

/* Stores the value by which libibverbs identifies the event's object.  Calls event_count() if that
 * is a queue or a queue pair. */
static void
element_of(const struct karst_async_event *e, uint64_t *element, struct undecided *u)
{
	struct kv_cq *cq;
	struct kv_qp *qp;
	struct kv_srq *srq;

	*u = (struct undecided){.out = true};
	switch (e->object) {
	case KARST_ASYNC_OBJECT_CQ:
		cq = e->element.cq->cq_context;
		*element = (uintptr_t)&cq->vcq.cq;
		event_count(u, &cq->events, &cq->events.async);
		break;
	case KARST_ASYNC_OBJECT_QP:
		qp = e->element.qp->qp_context;
		*element = (uintptr_t)&qp->vqp.qp;
		event_count(u, &qp->events, &qp->events.async);
		break;
	case KARST_ASYNC_OBJECT_SRQ:
		srq = e->element.srq->srq_context;
		*element = (uintptr_t)&srq->vsrq.srq;
		event_count(u, &srq->events, &srq->events.async);
		break;
	case KARST_ASYNC_OBJECT_PORT:
		*element = 1; /* kv_attach() has asked for events of the device's port only */
		break;
	default:
		*element = 0;
	}
}

static ssize_t
read_async(const struct stream *s, void *buf, size_t len)
{
	struct ib_uverbs_async_event_desc desc = {0};
	struct karst_async_event event;
	struct undecided u;
	uint64_t element;
	int ret;

	if (len < sizeof(desc))
		return event_failed(kv_refuse(-EINVAL, no_room));
	do {
		ret = karst_get_async_event(s->ctx->karst, &event);
		if (ret != 0)
			return event_failed(ret);
		element_of(&event, &element, &u);
		karst_ack_async_event(&event);
	} while (!event_is_out(&u));
	desc.element = element;
	/* the port is a device of libibverbs */
	desc.event_type = event.event == KARST_EVENT_PORT_GONE ? IBV_EVENT_DEVICE_FATAL
							       : (uint32_t)event.event;
	memcpy(buf, &desc, sizeof(desc));
	return sizeof(desc);
}

/* --- commands --- */

static const char cut_short[] = "a command of libibverbs: part of one";

static ssize_t
create_channel(struct kv_context *ctx, const void *buf, size_t len)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_create_comp_channel cmd;
	} req;
	struct ib_uverbs_create_comp_channel_resp rsp;
	struct karst_comp_channel *channel;
	int ret;

	if (len < sizeof(req))
		return event_failed(kv_refuse(-EINVAL, cut_short));
	memcpy(&req, buf, sizeof(req));
	ret = karst_create_comp_channel(ctx->karst, &channel);
	if (ret != 0)
		return event_failed(ret);
	ret = fd_add(channel->fd, STREAM_CHANNEL, ctx, channel);
	if (ret != 0) {
		karst_destroy_comp_channel(channel);
		return event_failed(kv_refuse(-ret, "no memory"));
	}
	rsp.fd = (uint32_t)channel->fd;
	memcpy((void *)(uintptr_t)req.cmd.response, &rsp, sizeof(rsp));
	return (ssize_t)len;
}

/* --- the calls that are replaced --- */

/* Is @path the device node of a karst device, and does not exist?  If the provider was preloaded,
 * this is also called before libibverbs has loaded any driver. */
static bool
fd_stands_for(const char *path)
{
	const char *sysfs = getenv("SYSFS_PATH");
	char ibdev[IBV_SYSFS_PATH_MAX], name[8] = "";
	struct stat st;
	int fd;

	if (strncmp(path, DEVICES, sizeof(DEVICES) - 1) != 0 || event_state.stat(path, &st) == 0)
		return false;
	snprintf(ibdev, sizeof(ibdev), "%s/class/infiniband_verbs/%s/ibdev",
		sysfs != NULL ? sysfs : "/sys", path + sizeof(DEVICES) - 1);
	fd = event_state.open(ibdev, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (event_state.read(fd, name, sizeof(name) - 1) < 0)
		name[0] = 0;
	event_state.close(fd);
	return strncmp(name, "karst", 5) == 0;
}

static int
uverbs_stat(const char *path, struct stat *st)
{
	return event_state.stat(fd_stands_for(path) ? EMPTY_CDEV : path, st);
}

static int
uverbs_open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode = 0;

	if (fd_stands_for(path))
		return event_state.open(EMPTY_CDEV, O_RDWR | O_CLOEXEC);
	va_start(args, flags);
	/* O_TMPFILE has the bit of O_DIRECTORY, which takes no mode */
	if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE)
		mode = va_arg(args, mode_t);
	va_end(args);
	return event_state.open(path, flags, mode);
}

static ssize_t
uverbs_write(int fd, const void *buf, size_t len)
{
	struct ib_uverbs_cmd_hdr hdr;
	struct stream s;

	if (!fd_find(fd, &s) || s.kind != STREAM_COMMANDS)
		return event_state.write(fd, buf, len);
	if (len < sizeof(hdr))
		return event_failed(kv_refuse(-EINVAL, cut_short));
	memcpy(&hdr, buf, sizeof(hdr));
	if (hdr.command != IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL)
		return event_failed(kv_refuse(-EOPNOTSUPP, "this uverbs command is not supported"));
	return create_channel(s.ctx, buf, len);
}

static ssize_t
uverbs_read(int fd, void *buf, size_t len)
{
	struct stream s;

	if (!fd_find(fd, &s) || s.kind == STREAM_COMMANDS)
		return event_state.read(fd, buf, len);
	return s.kind == STREAM_CHANNEL ? read_channel(&s, buf, len) : read_async(&s, buf, len);
}

static int
uverbs_close(int fd)
{
	struct stream s;

	if (!fd_find(fd, &s))
		return event_state.close(fd);
	fd_forget(fd, NULL);
	/* libkarst closes the channel's descriptor; in a forked child its call fails */
	if (s.kind == STREAM_CHANNEL && karst_destroy_comp_channel(s.channel) == 0)
		return 0;
	return event_state.close(fd);
}

/* --- contexts, devices --- */

int
kv_events_context(struct kv_context *ctx)
{
	int ret = fd_add(ctx->ibv->cmd_fd, STREAM_COMMANDS, ctx, NULL);

	return ret != 0 ? ret : fd_add(ctx->ibv->async_fd, STREAM_ASYNC, ctx, NULL);
}

void
kv_events_context_end(struct kv_context *ctx)
{
	fd_forget(-1, ctx);
}

static void
events_before_fork(void)
{
	karst_mutex_lock(&event_state.lock);
}

static void
events_after_fork(void)
{
	karst_mutex_unlock(&event_state.lock);
}

/* Threads that wait for a decision exist only in the parent. */
static void
events_in_child(void)
{
	struct stream *s;
	unsigned int i;

	for (i = 0; i < KV_FD_LISTS; i++)
		LIST_FOREACH(s, &event_state.streams[i], next)
			s->inherited = true;
	LIST_INIT(&event_state.undecided);
	pthread_cond_init(&event_state.decided, NULL);
	karst_mutex_unlock(&event_state.lock);
}

void
kv_events_init(void)
{
	const struct kv_got_entry entries[] = {
		{"stat", (void *)uverbs_stat, (void **)&event_state.stat},
		{"open", (void *)uverbs_open, (void **)&event_state.open},
		{"write", (void *)uverbs_write, (void **)&event_state.write},
		{"read", (void *)uverbs_read, (void **)&event_state.read},
		{"close", (void *)uverbs_close, (void **)&event_state.close},
	};

	event_state.stat = stat;
	event_state.open = open;
	event_state.write = write;
	event_state.read = read;
	event_state.close = close;
	pthread_atfork(events_before_fork, events_after_fork, events_in_child);
	kv_got_patch("libibverbs.so", entries, KARST_DIM(entries));
}
