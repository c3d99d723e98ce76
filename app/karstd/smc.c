/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The thread: it handles completions, then timers, then queued connections, and the events of
 * lib/smc that result.  When nothing is left, it waits for all of their descriptors.
 */
#include "smc_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "karst_log.h"
#include "opts.h"

#define EVENTS     64
#define TIMERS     64u
#define MAX_CORK   16384u /* bytes that wait for a message before them */
#define MAX_ROUND  16u    /* passes through the list until other events are handled */
#define GOODBYE_NS 500000000ull
#define PAUSE_NS   10000000ull /* until the next check whether paused programs can continue */
#define STOCK_MS   1           /* ms without an event until the stock is filled */

/*
 * A link that does not carry a message ends within SVC_LINK_LIFE_MS.  So the wait for an answer on
 * it is longer; otherwise a group would end because a packet was lost twice.  The wait for CLC is
 * longer still, since CLC waits for these answers, and for a peer whose program has not called
 * accept() yet.
 */
#define LLC_WAIT_S 12u
/* A second link is not waited for: no keys are agreed on meanwhile. */
#define ADD_WAIT_S 2u
#define CLC_WAIT_S 60u
static_assert(LLC_WAIT_S * 1000 > SVC_LINK_LIFE_MS, "a link is patient");
static_assert(CLC_WAIT_S > 2 * LLC_WAIT_S, "one answer each way");

int
svc_watch(struct kd_smc *s, int fd, uint32_t events, struct svc_source *source)
{
	struct epoll_event e = {.events = events, .data.ptr = source};

	return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

void
svc_unwatch(struct kd_smc *s, int fd)
{
	(void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* --- turns --- */

static bool
take_events(struct kd_smc *s)
{
	struct karst_smc_ev ev;
	bool any = false;

	while (karst_smc_next_event(s->core, &ev)) {
		any = true;
		if (ev.what >= KARST_SMC_EV_GROUP_UP)
			svc_ports_event(s, &ev);
		else if (ev.user != NULL)
			svc_conn_event(ev.user, ev.what);
	}
	return any;
}

static bool
run_queue(struct kd_smc *s)
{
	struct svc_conn *c = s->run, *next;
	bool any = c != NULL;

	s->run = NULL;
	s->run_tail = &s->run;
	for (; c != NULL; c = next) {
		next = c->run_next;
		c->queued = false;
		svc_conn_work(c);
		svc_conn_put(c); /* the reference of the list */
	}
	return any;
}

static void
forget_refused(struct kd_smc *s)
{
	uint32_t i;

	for (i = 0; i < SMC_REFUSED; i++)
		if (s->refused[i].until_ns != 0 && s->refused[i].until_ns <= s->core->now_ns) {
			if (s->refused[i].by_all)
				kd_smc_option_refuse(&s->option, s->refused[i].ip, false);
			s->refused[i] = (struct svc_refused){.until_ns = 0};
			s->nrefused--;
		}
}

/* @return true: there was work. s->rest: there may be more that is not reported. */
static bool
turn(struct kd_smc *s)
{
	bool any, came;
	unsigned int i;

	s->core->now_ns = kd_clock_ns();
	any = came = svc_rdma_poll(s);
	any |= karst_smc_expire(s->core, TIMERS) != 0;
	svc_connect_expire(s);
	svc_ports_expire(s);
	svc_spare_expire(s);
	svc_conn_agree_held(s, false);
	for (i = 0; i < MAX_ROUND; i++) {
		bool more = take_events(s);

		more |= run_queue(s);
		if (!more)
			break;
		any = true;
	}
	s->rest = came || i == MAX_ROUND;
	if (s->nrefused != 0)
		forget_refused(s);
	return any;
}

static int
wait_ms(struct kd_smc *s)
{
	uint64_t next = karst_smc_next_ns(s->core), now = kd_clock_ns();
	uint32_t i;

	next = karst_min_u64(next, svc_connect_next_ns(s));
	next = karst_min_u64(next, svc_ports_next_ns(s));
	next = karst_min_u64(next, svc_close_next_ns(s));
	next = karst_min_u64(next, svc_spare_next_ns(s));
	if (s->held != NULL)
		next = karst_min_u64(next, s->held->held_until_ns);
	if (s->npaused != 0 || s->paused)
		next = karst_min_u64(next, now + PAUSE_NS);
	for (i = 0; s->nrefused != 0 && i < SMC_REFUSED; i++)
		if (s->refused[i].until_ns != 0)
			next = karst_min_u64(next, s->refused[i].until_ns);
	if (s->run != NULL || next <= now)
		return 0;
	if (next == UINT64_MAX)
		return -1;
	return (int)karst_min_u64((next - now) / 1000000 + 1, 60000);
}

/* Waits, without the lock, for up to @ms.  @return true: there were events. */
static bool
wait_and_hear(struct kd_smc *s, int ms)
{
	struct epoll_event e[EVENTS];
	int n, i;

	svc_close_begin(s);
	svc_conn_reap(s); /* the next connections can reuse what these had */
	pthread_mutex_unlock(&s->lock);
	n = epoll_wait(s->epoll, e, EVENTS, ms);
	pthread_mutex_lock(&s->lock);
	s->core->now_ns = kd_clock_ns();
	for (i = 0; i < n; i++) {
		struct svc_source *src = e[i].data.ptr;

		src->ready(src, e[i].events);
	}
	svc_conn_reap(s);
	svc_prog_reap(s);
	svc_close_expire(s);
	svc_prog_resume(s);
	return n > 0;
}

/* A program that was just answered may use this CPU first, and make further requests. */
static void
wait_and_stock(struct kd_smc *s)
{
	int ms = wait_ms(s);

	if (svc_stock_lacks(s, false)) {
		svc_stock_fill(s);
		wait_and_hear(s, 0);
	} else if (!svc_stock_lacks(s, true)) {
		wait_and_hear(s, ms);
	} else if (!wait_and_hear(s, ms >= 0 && ms < STOCK_MS ? ms : STOCK_MS)) {
		svc_stock_fill(s);
	}
}

/* Called after a turn.  Once completions have been asked for, epoll reports the first one.  If
 * there are none, as between two programs of this service, that need not be repeated. */
static bool
look_again(struct kd_smc *s)
{
	if (s->armed && !s->rest)
		return false;
	svc_rdma_arm(s);
	return turn(s); /* completions that arrived before the arming */
}

static void *
svc_main(void *arg)
{
	struct kd_smc *s = arg;
	uint64_t spin_ns = s->conf->smc.spin_us * 1000ull, busy_at = 0;

	pthread_setname_np(pthread_self(), "karst-smc");
	pthread_mutex_lock(&s->lock);
	while (!atomic_load(&s->stop)) {
		if (turn(s))
			busy_at = s->core->now_ns;
		if (spin_ns != 0 && kd_clock_ns() - busy_at < spin_ns) {
			wait_and_hear(s, 0);
		} else if (look_again(s)) {
			busy_at = s->core->now_ns;
			wait_and_hear(s, 0);
		} else {
			wait_and_stock(s);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* --- start and end --- */

static void
fill_blanks(uint8_t *to, size_t bytes, const char *text)
{
	size_t n = strnlen(text, bytes);

	memset(to, ' ', bytes);
	memcpy(to, text, n);
}

static int
make_core(struct kd_smc *s)
{
	struct karst_port_attr port;
	char name[KARST_SMC_HOSTNAME_LEN + 1] = "karst";
	struct karst_smc_config cfg = {
		.max_conns = karst_min_u32(SMC_TABLE * s->conf->smc.max_connections, 1u << 16),
		.max_rmbs = s->nrmbs,
		.max_groups = SMC_GROUPS,
		.neids = 1,
		.release = KARST_SMC_DEFAULT,
		.group_links = svc_ports_links(s),
		.send_slots = SMC_SLOTS,
		.clc_wait_ns = CLC_WAIT_S * 1000000000ull,
		.confirm_wait_ns = LLC_WAIT_S * 1000000000ull,
		.llc_wait_ns = LLC_WAIT_S * 1000000000ull,
		.add_wait_ns = ADD_WAIT_S * 1000000000ull,
		.group_idle_ns = s->conf->smc.group_idle_s * 1000000000ull,
		.cork_bytes = (uint32_t)karst_min_u64(s->conf->smc.buffer / 4, MAX_CORK),
		.ops = &svc_rdma_ops,
		.user = s,
	};
	size_t bytes;
	int rc = karst_query_port(s->ctx, 1, &port);

	if (rc != 0)
		return rc;
	/* two of its bytes distinguish daemons with the same MAC address */
	if (getrandom(cfg.system_id, 2, 0) != 2 ||
		getrandom(cfg.token_key, sizeof(cfg.token_key), 0) != sizeof(cfg.token_key) ||
		getrandom(s->hash_key, sizeof(s->hash_key), 0) != sizeof(s->hash_key))
		return -EIO;
	memcpy(cfg.system_id + 2, port.mac, 6);
	memcpy(cfg.mac, port.mac, 6);
	memcpy(s->system_id, cfg.system_id, sizeof(s->system_id));
	(void)gethostname(name, sizeof(name) - 1);
	fill_blanks(cfg.hostname, sizeof(cfg.hostname), name);
	fill_blanks(cfg.eids[0], sizeof(cfg.eids[0]), s->conf->smc.eid);
	bytes = karst_smc_bytes(&cfg);
	s->core_mem = bytes != 0 ? aligned_alloc(64, (bytes + 63) & ~(size_t)63) : NULL;
	if (s->core_mem == NULL)
		return -ENOMEM;
	return karst_smc_init(s->core_mem, &cfg, kd_clock_ns(), &s->core);
}

/* Returns the networks from which the option is sent. */
static uint32_t
own_networks(const struct kd_smc *s, struct karst_engine_addr *to)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->ngids && n < KD_MAX_ADDRS; i++) {
		struct karst_engine_addr *a = &to[n++];

		memcpy(a->ip, s->gids[i].gid.raw, sizeof(a->ip));
		a->prefix = karst_engine_addr_is_ip4(a) ? 32 : 128;
		if (karst_engine_addr_is_ip4(a) && a->ip[12] == 127)
			a->prefix = 8;
	}
	return n;
}

static int
load_option(struct kd_smc *s)
{
	const struct kd_conf_smc *c = &s->conf->smc;
	struct karst_engine_addr own[KD_MAX_ADDRS];
	uint32_t n = own_networks(s, own);

	if (c->addresses.n != 0)
		return kd_smc_option_load(&s->option, c->cgroup, c->addresses.addr, c->addresses.n,
			c->peers.addr, c->peers.n);
	return kd_smc_option_load(&s->option, c->cgroup, own, n, c->peers.addr, c->peers.n);
}

static void
stop_ready(struct svc_source *src, uint32_t events)
{
	/* the information is in s->stop */
}

int
kd_smc_create(struct karst_engine *e, const struct kd_conf *conf, struct kd_smc **smc)
{
	struct kd_smc *s = calloc(1, sizeof(*s));
	int rc;

	if (s == NULL)
		return -ENOMEM;
	s->engine = e;
	s->conf = conf;
	s->run_tail = &s->run;
	s->held_tail = &s->held;
	s->spares_tail = &s->spares;
	s->socket.fd = s->socket.lock_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->stop_source.ready = stop_ready;
	rc = s->epoll < 0 || s->stop_fd < 0 ? -errno
					    : svc_watch(s, s->stop_fd, EPOLLIN, &s->stop_source);
	if (rc == 0)
		rc = svc_rdma_init(s);
	if (rc == 0)
		rc = make_core(s);
	if (rc == 0)
		rc = load_option(s);
	if (rc == 0)
		rc = svc_ports_init(s);
	if (rc == 0)
		rc = svc_prog_init(s);
	if (rc != 0) {
		karst_log(KARST_LOG_ERR, "the SMC service: %s", strerror(-rc));
		kd_smc_destroy(s);
		return rc;
	}
	svc_tel_open(s);
	*smc = s;
	return 0;
}

int
kd_smc_start(struct kd_smc *s)
{
	int rc = pthread_create(&s->thread, NULL, svc_main, s);

	if (rc != 0) {
		karst_log(KARST_LOG_ERR, "the SMC service: a thread: %s", strerror(rc));
		return -rc;
	}
	s->started = true;
	if (kd_socket_listen(&s->socket, &s->socket_conf) != KD_EXIT_OK)
		return -EIO;
	return svc_watch(s, s->socket.fd, EPOLLIN, &s->listen_source);
}

/* Tells the peers that the groups end; otherwise they keep them until a test of the link fails. */
static void
say_goodbye(struct kd_smc *s)
{
	const uint64_t until = kd_clock_ns() + GOODBYE_NS;
	uint32_t i;

	for (i = 0; i < SMC_GROUPS; i++)
		(void)karst_smc_group_end(s->core, i);
	while (s->core->ngroups != 0 && kd_clock_ns() < until)
		if (!turn(s))
			usleep(1000);
}

void
kd_smc_destroy(struct kd_smc *s)
{
	const uint64_t one = 1;

	if (s == NULL)
		return;
	svc_tel_close(s);
	if (s->started) {
		atomic_store(&s->stop, true);
		if (write(s->stop_fd, &one, sizeof(one)) != sizeof(one))
			karst_log(KARST_LOG_WARNING, "the SMC service: waking it: %s",
				strerror(errno));
		pthread_join(s->thread, NULL);
	}
	if (s->core != NULL) {
		svc_conn_end_all(s);
		turn(s);
		say_goodbye(s);
		karst_smc_fini(s->core);
	}
	while (s->conns != NULL) {
		s->conns->refs = 1;
		svc_conn_put(s->conns);
	}
	svc_conn_reap(s);
	svc_prog_fini(s);
	svc_stock_fini(s);
	svc_ask_fini(s);
	svc_close_fini(s);
	svc_rdma_fini(s);
	kd_smc_option_unload(&s->option);
	if (s->epoll >= 0)
		close(s->epoll);
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	pthread_mutex_destroy(&s->lock);
	free(s->core_mem);
	free(s);
}
