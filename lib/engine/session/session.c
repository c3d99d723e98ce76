/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Life cycle of a session, and the processing of a message: form (lib/ctl), order (HELLO first,
 * nothing after a failure), the operation's handler, the reply.
 *
 * A session fails when its program has taken away memory that the engine uses
 * (karst_space_failed()): what its queue pairs would send from then on is not what the program
 * meant.  They are moved to the Error state, the program gets KARST_EVENT_DEVICE_FATAL, and can
 * only end the session.  A broken ring has a smaller effect: it fails the queue that it belongs to
 * (doc/ring-abi.rst).
 */
#include "session_priv.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "cm.h"
#include "karst_ctl_sock.h"

#define DEFAULT_RING_BYTES   (256ull << 20)
#define DEFAULT_WINDOW_BYTES (512ull << 30)
#define DEFAULT_QUEUES       65536u
#define DEFAULT_XRCDS        1024u
/* How often a paced session checks whether its program is still there. */
#define PACE_NAP_NS 20000000u
/* Descriptors of a session without objects, except those of its lcores and ring memory: socket,
 * four of the process, attend_fd, poll_fd, both ends of its events. */
#define SESSION_FDS 9u
/* An attachment counts as so many control messages. */
#define SESSION_CALLS 20u

/* --- failure --- */

static void
session_fail(struct karst_session *s)
{
	s->failed = true;
	karst_log_some(&s->e->faults_log, engine_now(s->e), KARST_LOG_WARNING,
		"%s: client %u (%s, process %d): memory that it registered has vanished; its "
		"keys are revoked",
		s->e->name, s->info.client, s->info.program, (int)s->info.pid);
	eng_session_stop_qps(s);
	eng_session_stop_srqs(s);
	eng_session_tell_fatal(s);
}

static void
look_for_failure(struct karst_session *s)
{
	if (s->space == NULL)
		return;
	/* first: an lcore would block there again */
	if (!s->silenced && karst_space_silenced(s->space)) {
		s->silenced = true;
		karst_engine_owner_silence(s->owner);
	}
	if (!s->failed && karst_space_failed(s->space))
		session_fail(s);
}

int
karst_session_fd(const struct karst_session *s)
{
	return s->poll_fd;
}

/* Publishes the session's numbers for other threads. */
static void
session_publish(struct karst_session *s, unsigned int requests, unsigned int refused)
{
	struct karst_session_info *info = &s->info;

	pthread_mutex_lock(&s->e->session_lock);
	info->qps = s->qps.used;
	info->cqs = s->cqs.used;
	info->srqs = s->srqs.used;
	info->mrs = s->mrs.used;
	info->mws = s->mws.used;
	info->pds = s->pds.used;
	info->ahs = s->ahs.used;
	info->channels = s->channels.used;
	info->xrcds = s->xrcds.used;
	info->ring_bytes = karst_engine_owner_ring_bytes(s->owner);
	info->shared_bytes = s->shared;
	info->migrated_bytes = s->migrated;
	info->copied_bytes = s->copied;
	info->requests += requests;
	info->refused += refused;
	info->failed = s->failed;
	pthread_mutex_unlock(&s->e->session_lock);
}

void
karst_session_attend(struct karst_session *s)
{
	bool told, room = eng_session_hear_room(s, &told);
	uint64_t n;

	/* before the events, so that one that begins to wait meanwhile makes it readable again */
	told = told && read(s->attend_fd, &n, sizeof(n)) == sizeof(n);
	if (room || told)
		eng_session_send_waiting(s);
	if (!told)
		return;
	eng_ctl_for(s->share);
	look_for_failure(s);
	eng_ctl_for(NULL);
	session_publish(s, 0, 0);
}

/* --- messages --- */

typedef int (*operation)(struct karst_session *s, struct session_call *c);

#define X(OP, body, number) [number] = eng_session_##body,
static const operation operations[] = {KARST_CTL_OPS(X)};
#undef X

/* Whether the program must map a chunk first. */
static int
check_seals(const struct karst_session *s, char *why)
{
	uint32_t chunk;

	if (karst_engine_owner_unsealed(s->owner, &chunk) != 0)
		return 0;
	return karst_ctl_reason(why, -ENOBUFS,
		"chunk %u of the ring memory is to be mapped and sealed first (SEAL_CHUNK)", chunk);
}

static bool
is_of_chunks(uint32_t op)
{
	return op == KARST_CTL_HELLO || op == KARST_CTL_GET_CHUNK || op == KARST_CTL_SEAL_CHUNK;
}

/* Whether a well-formed message of operation @op is allowed now. */
static int
check_order(struct karst_session *s, uint32_t op, char *why)
{
	if (!s->greeted && op != KARST_CTL_HELLO)
		return karst_ctl_reason(why, -EPROTO, "%s: HELLO must be the first request",
			karst_ctl_op_info(op)->name);
	if (s->greeted && op == KARST_CTL_HELLO)
		return karst_ctl_reason(why, -EPROTO, "HELLO was already served");
	look_for_failure(s);
	if (s->failed)
		return karst_ctl_reason(why, -EIO,
			"memory that this program registered has vanished; only closing is left");
	return s->listened_to || is_of_chunks(op) ? 0 : check_seals(s, why);
}

/* Delays the reply if the program's user sends more messages than allowed. */
int
eng_session_pace(const struct karst_session *s, uint32_t n)
{
	uint64_t wait = eng_share_pace(s->share, n, engine_now(s->e));

	while (wait > 0) {
		uint64_t nap = karst_min_u64(wait, PACE_NAP_NS);
		const struct timespec ts = {.tv_nsec = (long)nap};

		if (s->alive != NULL && !s->alive(s->user))
			return -ECANCELED;
		nanosleep(&ts, NULL);
		wait -= nap;
	}
	return 0;
}

/* Perhaps nobody attends to the session of a program that embeds the engine. */
static void
send_what_waits(struct karst_session *s)
{
	bool told, send = s->look_again;

	send |= atomic_load_explicit(&s->some_wait, memory_order_relaxed);
	if (s->nawaited != 0)
		send |= eng_session_hear_room(s, &told);
	if (send)
		eng_session_send_waiting(s);
}

int
karst_session_handle(struct karst_session *s, const void *req, size_t len, const int *fds,
	unsigned int nfds, void *rsp, size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	const struct karst_ctl_hdr *h = req;
	struct karst_ctl_hdr *out = rsp;
	struct session_call c = {
		.body = h + 1, .fds = fds, .nfds = nfds, .rsp = out + 1, .rsp_fds = rsp_fds};
	int ret = karst_ctl_check_request(req, len, nfds, c.why);

	(void)eng_session_pace(s, 1);
	eng_ctl_for(s->share);
	if (ret == 0)
		ret = check_order(s, h->op, c.why);
	if (ret == 0) {
		*rsp_len = karst_ctl_reply(h, rsp);
		ret = operations[h->op](s, &c);
		/* it needs a new chunk, which exists now */
		if (ret == -ENOMEM && check_seals(s, c.why) != 0)
			ret = -ENOBUFS;
	}
	eng_ctl_for(NULL);
	send_what_waits(s);
	eng_keys_settle(&s->mrs);
	eng_keys_settle(&s->mws);
	eng_keys_settle(&s->ahs);
	if (ret != 0) {
		karst_ctl_close_fds(rsp_fds, c.nrsp_fds);
		c.nrsp_fds = 0;
		*rsp_len = karst_ctl_refuse(req, len, ret, c.why, rsp);
	}
	out->nfds = *nrsp_fds = c.nrsp_fds;
	/* neither of these is the last word: the program repeats the request */
	session_publish(s, 1, ret != 0 && ret != -ENOBUFS && ret != -EAGAIN);
	return 0;
}

/* --- HELLO --- */

/* Names that programs choose are shown to people, in logs and telemetry, so they are cleaned. */
static void
put_name(char *to, size_t room, const char *name)
{
	snprintf(to, room, "%s", name);
	karst_text_clean(to);
}

static uint32_t
count_chunks(const struct karst_session *s)
{
	uint64_t bytes;
	uint32_t n = 0;
	int fd;

	while (karst_engine_owner_chunk(s->owner, n, &fd, &bytes) == 0)
		n++;
	return n;
}

static int
put_bells(struct karst_session *s, struct session_call *c, struct karst_ctl_hello_rsp *rsp)
{
	struct karst_bell_shared *bell;
	int ret, wake_fd;
	uint32_t i;

	for (i = 0; i < s->e->nlcores; i++) {
		ret = karst_engine_owner_bell(s->owner, i, &bell, &rsp->bell_cells, &wake_fd);
		assert(ret == 0);
		eng_session_place(s, bell, karst_bell_bytes(rsp->bell_cells), &rsp->bell[i]);
		/* relaxed: only for information */
		rsp->cpu[i] = atomic_load_explicit(&s->e->lcore[i].cpu, memory_order_relaxed);
		ret = eng_session_give_fd(c, wake_fd);
		if (ret != 0)
			return ret;
	}
	return 0;
}

static_assert(KARST_ENGINE_MAX_LCORES <= KARST_DIM(((struct karst_ctl_hello_rsp *)0)->bell),
	"a doorbell for each lcore");
static_assert(KARST_ENGINE_MAX_LCORES < KARST_CTL_MAX_FDS, "descriptors of HELLO");

int
eng_session_hello(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_hello_req *req = c->body;
	struct karst_ctl_hello_rsp *rsp = c->rsp;
	int ret;

	if (memchr(req->program, 0, sizeof(req->program)) == NULL)
		return reason(c, -EINVAL,
			"program: must be a name of at most %zu bytes, terminated by 0",
			sizeof(req->program) - 1);
	if (req->abi != KARST_RING_ABI)
		return reason(c, -EPROTO,
			"abi %u: the rings of this engine have version %u; the program's "
			"libkarst is of another version",
			req->abi, KARST_RING_ABI);
	ret = c->nfds != 0 && s->space != NULL ? karst_space_reach(s->space, c->fds[0], c->why) : 0;
	if (ret == 0)
		ret = eng_session_give_fd(c, s->async_reader);
	if (ret == 0)
		ret = put_bells(s, c, rsp);
	if (ret != 0)
		return ret;
	put_name(rsp->engine, sizeof(rsp->engine), s->e->name);
	put_name(rsp->version, sizeof(rsp->version), KARST_VERSION);
	rsp->abi = KARST_RING_ABI;
	rsp->nlcores = s->e->nlcores;
	rsp->nports = eng_session_nports(s->e);
	rsp->client = s->info.client;
	rsp->nchunks = count_chunks(s);
	rsp->engine_pid = getpid();
	rsp->polite = s->e->cfg.idle != KARST_IDLE_POLL;
	close(s->async_reader);
	s->async_reader = -1;
	s->greeted = true;
	/* relaxed: events that are raised at this moment may come or not */
	atomic_store_explicit(&s->event_port, req->port, memory_order_relaxed);
	if (req->program[0] != 0) {
		pthread_mutex_lock(&s->e->session_lock);
		put_name(s->info.program, sizeof(s->info.program), req->program);
		pthread_mutex_unlock(&s->e->session_lock);
	}
	return 0;
}

/* --- life --- */

static void
limit_default(uint32_t *v, uint32_t value)
{
	if (*v == 0)
		*v = value;
}

static void
fill_limits(const struct karst_engine *e, struct karst_session_limits *l)
{
	uint64_t qps = (uint64_t)e->cfg.max_qps * e->nlcores;

	limit_default(&l->max_qps, (uint32_t)karst_min_u64(qps, HANDLES_MAX));
	limit_default(&l->max_cqs, DEFAULT_QUEUES);
	limit_default(&l->max_srqs, DEFAULT_QUEUES);
	limit_default(&l->max_mrs, e->cfg.max_keys);
	limit_default(&l->max_mws, e->cfg.max_keys);
	limit_default(&l->max_pds, e->cfg.max_pds);
	limit_default(&l->max_ahs, e->cfg.max_ahs);
	limit_default(&l->max_channels, DEFAULT_QUEUES);
	limit_default(&l->max_mcasts, e->cfg.max_mcasts);
	limit_default(&l->max_xrcds, DEFAULT_XRCDS);
	limit_default(&l->max_cm_ids, e->cfg.max_cm_ids);
	if (l->max_ring_bytes == 0)
		l->max_ring_bytes = DEFAULT_RING_BYTES;
	if (l->max_window_bytes == 0)
		l->max_window_bytes = DEFAULT_WINDOW_BYTES;
	if (l->max_mr_bytes == 0)
		l->max_mr_bytes = UINT64_MAX;
}

static void
init_tables(struct karst_session *s)
{
	const struct karst_session_limits *l = &s->limits;

	eng_handles_init(&s->pds, l->max_pds);
	eng_handles_init(&s->channels, l->max_channels);
	eng_handles_init(&s->xrcds, l->max_xrcds);
	eng_handles_init(&s->cqs, l->max_cqs);
	eng_handles_init(&s->srqs, l->max_srqs);
	eng_handles_init(&s->qps, l->max_qps);
	eng_handles_init(&s->cm.channels, l->max_channels);
	eng_handles_init(&s->cm.ids, l->max_cm_ids);
	eng_handles_init(&s->cm.groups, l->max_cm_ids);
	eng_keys_init(&s->mrs, l->max_mrs);
	eng_keys_init(&s->mws, l->max_mws);
	eng_keys_init(&s->ahs, l->max_ahs);
	eng_handles_charge(&s->pds, s->share, ENG_SHARE_PDS);
	eng_handles_charge(&s->channels, s->share, ENG_SHARE_DESCRIPTORS);
	eng_handles_charge(&s->xrcds, s->share, ENG_SHARE_XRCDS);
	eng_handles_charge(&s->qps, s->share, ENG_SHARE_QPS);
	eng_handles_charge(&s->cm.channels, s->share, ENG_SHARE_DESCRIPTORS);
	eng_handles_charge(&s->cm.ids, s->share, ENG_SHARE_CM_IDS);
	eng_handles_charge(&s->cm.groups, s->share, ENG_SHARE_CM_IDS);
	eng_keys_charge(&s->mrs, s->share, ENG_SHARE_KEYS);
	eng_keys_charge(&s->mws, s->share, ENG_SHARE_KEYS);
	eng_keys_charge(&s->ahs, s->share, ENG_SHARE_AHS);
}

/* --- the user's account --- */

static int
join_share(struct karst_session *s, uid_t uid)
{
	const struct eng_share_rule rule = {
		.percent = karst_min_u32(s->limits.share, 100),
		.calls = s->limits.calls,
		.most = {[ENG_SHARE_WINDOW_BYTES] = s->limits.max_window_bytes,
			[ENG_SHARE_HELD_BYTES] = s->limits.max_held_bytes},
	};

	if (rule.percent == 0)
		return 0;
	s->share = eng_share_join(&s->e->shares, uid, &rule, engine_now(s->e));
	if (s->share == NULL)
		return -ENOMEM;
	if (!eng_share_take(s->share, ENG_SHARE_CLIENTS, 1)) {
		eng_share_leave(s->share);
		s->share = NULL;
		return -EUSERS;
	}
	if (!eng_share_take(s->share, ENG_SHARE_DESCRIPTORS, SESSION_FDS + s->e->nlcores))
		return -EUSERS;
	s->share_fds = SESSION_FDS + s->e->nlcores;
	/* here, and not with the next message: a program that only attaches and detaches sends
	 * none */
	return eng_session_pace(s, SESSION_CALLS);
}

static void
leave_share(struct karst_session *s)
{
	if (s->share == NULL)
		return;
	eng_share_give(s->share, ENG_SHARE_DESCRIPTORS, s->share_fds);
	eng_share_give(s->share, ENG_SHARE_CLIENTS, 1);
	eng_share_leave(s->share);
}

static void
link_session(struct karst_session *s)
{
	struct karst_engine *e = s->e;

	pthread_mutex_lock(&e->session_lock);
	s->info.client = ++e->last_client;
	s->owner->client = s->info.client; /* it has no objects yet */
	LIST_INSERT_HEAD(&e->sessions, s, next);
	pthread_mutex_unlock(&e->session_lock);
}

static void
unlink_session(struct karst_session *s)
{
	pthread_mutex_lock(&s->e->session_lock);
	LIST_REMOVE(s, next);
	pthread_mutex_unlock(&s->e->session_lock);
}

/* Frees everything except the objects, also of a session that is only partly created.  The thread
 * makes no more control calls for its user. */
static void
free_session(struct karst_session *s)
{
	if (s->owner != NULL) {
		int ret = karst_engine_owner_destroy(s->owner);

		assert(ret == 0);
		(void)ret;
	}
	eng_ctl_for(NULL);
	if (s->space != NULL)
		karst_space_destroy(s->space); /* attend_fd is closed when nothing uses the space
						* any more */
	else if (s->attend_fd >= 0)
		close(s->attend_fd);
	if (s->poll_fd >= 0)
		close(s->poll_fd);
	eng_stream_close(&s->async);
	if (s->async_reader >= 0)
		close(s->async_reader);
	eng_handles_fini(&s->pds);
	eng_handles_fini(&s->channels);
	eng_handles_fini(&s->xrcds);
	eng_handles_fini(&s->cqs);
	eng_handles_fini(&s->srqs);
	eng_handles_fini(&s->qps);
	eng_handles_fini(&s->cm.channels);
	eng_handles_fini(&s->cm.ids);
	eng_handles_fini(&s->cm.groups);
	eng_keys_fini(&s->mrs);
	eng_keys_fini(&s->mws);
	eng_keys_fini(&s->ahs);
	leave_share(s);
	free(s);
}

static int
open_attend(struct karst_session *s)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL}; /* no stream */

	s->attend_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->attend_fd < 0)
		return -errno;
	s->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (s->poll_fd < 0)
		return -errno;
	return epoll_ctl(s->poll_fd, EPOLL_CTL_ADD, s->attend_fd, &ev) == 0 ? 0 : -errno;
}

static int
open_session(struct karst_session *s, const struct karst_session_init *init)
{
	struct karst_engine_owner_init owner = {
		.name = s->info.program,
		.max_ring_bytes = s->limits.max_ring_bytes,
		.max_qps = s->limits.max_qps,
		.max_mcasts = s->limits.max_mcasts,
		.share = s->share,
		.seals = true,
		.ops = &eng_session_ops,
		.user = s,
	};
	int ret;

	ret = open_attend(s);
	if (ret != 0)
		return ret;
	ret = eng_stream_open(&s->async, &s->lost_events, &s->async_reader);
	if (ret == 0 && init->pid != 0) {
		ret = karst_space_create(
			s->e, init->pid, init->pidfd, init->uid, init->gid, &s->space);
		if (ret == 0) {
			karst_space_watch(s->space, s->attend_fd);
			karst_space_charge(s->space, s->share);
			karst_space_set_opener(s->space, &init->opener);
		}
	}
	if (ret == 0)
		ret = karst_engine_owner_create(s->e, &owner, &s->owner);
	if (ret == 0)
		atomic_store_explicit(&s->owner->space, s->space, memory_order_relaxed);
	return ret;
}

bool
karst_session_admits(struct karst_engine *e, uid_t uid, uint32_t share)
{
	const struct eng_share_rule rule = {.percent = karst_min_u32(share, 100)};

	return share == 0 || eng_share_admits(&e->shares, uid, &rule, ENG_SHARE_CLIENTS);
}

int
karst_session_create(struct karst_engine *e, const struct karst_session_init *init,
	struct karst_session **session)
{
	struct karst_session *s = calloc(1, sizeof(*s));
	int ret;

	if (s == NULL)
		return -ENOMEM;
	s->e = e;
	s->limits = init->limits;
	s->alive = init->alive;
	s->user = init->user;
	s->async.fd = s->attend_fd = s->poll_fd = s->async_reader = -1;
	s->event_port = NO_PORT;
	s->info.pid = init->pid != 0 ? init->pid : getpid();
	s->info.uid = init->uid;
	s->cm.uid = init->uid;
	s->info.attached_ns = karst_engine_now_ns(e);
	put_name(s->info.program, sizeof(s->info.program),
		init->program != NULL ? init->program : "");
	fill_limits(e, &s->limits);
	ret = join_share(s, init->uid);
	init_tables(s);
	eng_ctl_for(s->share);
	if (ret == 0)
		ret = open_session(s, init);
	if (ret == -EUSERS || ret == -ECANCELED) {
		free_session(s);
		return ret;
	}
	if (ret != 0) {
		karst_log_some(&e->faults_log, engine_now(e), KARST_LOG_ERR,
			"%s: a session for process %d: %s", e->name, (int)s->info.pid,
			strerror(-ret));
		free_session(s);
		return ret;
	}
	eng_ctl_for(NULL);
	link_session(s);
	*session = s;
	return 0;
}

void
karst_session_destroy(struct karst_session *s)
{
	unlink_session(s);
	eng_ctl_for(s->share);
	eng_session_drop_seeks(s);
	eng_session_drop_cm(s);
	eng_session_drop_windows(s);
	eng_session_drop_qps(s);
	eng_session_drop_queues(s);
	eng_session_drop_xrcds(s);
	eng_session_drop_ahs(s);
	eng_session_drop_memory(s);
	eng_session_drop_pds(s);
	free_session(s);
}

unsigned int
karst_session_list(struct karst_engine *e, struct karst_session_info *infos, unsigned int max)
{
	const struct karst_session *s;
	unsigned int n = 0;
	struct eng_cm *cm;

	/* first this lock, as in tell_all_identifiers() */
	pthread_mutex_lock(&e->session_lock);
	cm = eng_cm_enter(e);
	LIST_FOREACH(s, &e->sessions, next) {
		if (n++ >= max)
			continue;
		infos[n - 1] = s->info;
		infos[n - 1].cm_ids = s->cm.ids.used;
		infos[n - 1].lost_events =
			atomic_load_explicit(&s->lost_events, memory_order_relaxed);
	}
	eng_cm_leave(cm);
	pthread_mutex_unlock(&e->session_lock);
	return n;
}

/* --- the control connection --- */

static int
conn_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	return karst_session_handle(user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

static void
conn_close(void *user)
{
	karst_session_destroy(user);
}

static void
conn_nap(void *user, uint32_t ns)
{
	const struct karst_session *s = user;

	eng_nap(s->e, ns);
}

struct karst_session *
karst_session_of(const struct karst_ctl_conn *conn)
{
	assert(conn->call == conn_call);
	return conn->user;
}

int
karst_session_conn(struct karst_engine *e, const struct karst_session_limits *limits,
	struct karst_ctl_conn *conn)
{
	struct karst_session_init init = {
		.program = e->name, .pidfd = -1, .uid = getuid(), .gid = getgid()};
	struct karst_session *s;
	int ret;

	if (limits != NULL)
		init.limits = *limits;
	/* a program that embeds the engine can send anything in any case */
	init.limits.controlled_qkeys = true;
	ret = karst_session_create(e, &init, &s);
	if (ret != 0)
		return ret;
	*conn = (struct karst_ctl_conn){
		.call = conn_call, .close = conn_close, .nap = conn_nap, .user = s, .hup_fd = -1};
	return 0;
}
