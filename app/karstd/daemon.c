/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The order of the start:
 *
 *   - signals are blocked, so that all threads inherit that; they are read from a descriptor
 *   - the user that the daemon runs as, and the log, which is opened as that user
 *   - the lock on the socket, before anything is touched that another daemon may use
 *   - the privileged part (part.h), which is created while there is one thread
 *   - DPDK, the engine, its ports, its lcores
 *   - the listening socket, to which nothing can connect yet
 *
 * When all is open, this process gives up all capabilities, and the system calls that only the
 * start needs.  Only then programs can connect.  The end is the same in reverse order, with what is
 * left; the privileged part is the last to end before the lock is released.
 */
#include "daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <rte_eal.h>

#include "caps.h"
#include "clock.h"
#include "confine.h"
#include "eal.h"
#include "follow.h"
#include "karst_log.h"
#include "log.h"
#include "notify.h"
#include "opts.h"
#include "part.h"
#include "place.h"
#include "port_kind.h"
#include "server.h"
#include "smc.h"
#include "socket.h"
#include "user.h"

#define WATCH_MS 1000
#define RETRY_MS 100 /* after a connection could not be accepted */
/* Bytes of a train of frames, and a burst that has room for a train and other frames. */
#define TRAIN_QUANTUM 65536u
/* A train has up to 15 packets of path MTU 4096.  If WRITEs are divided, trains follow each other:
 * a visit to a queue pair ends behind one, and not behind the first packet of another one. */
#define DIVIDED_QUANTUM (61u << 10)
#define TRAIN_BURST     64u

struct daemon {
	struct kd_conf *conf;  /* including values that were chosen automatically */
	struct kd_conf *asked; /* as it was last read */
	kd_reread_fn reread;
	void *user;
	int signal_fd;
	struct kd_socket socket;
	struct kd_part part;
	struct kd_eal eal;
	bool eal_started;
	struct karst_engine *engine;
	bool running; /* lcores run */
	struct kd_ports ports;
	struct kd_smc *smc;
	struct kd_server *server;
};

/* --- signals --- */

static int
take_signals(struct daemon *d)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) == 0)
		d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (d->signal_fd >= 0)
		return KD_EXIT_OK;
	karst_log(KARST_LOG_ERR, "signals: %s", strerror(errno));
	return KD_EXIT_FAILED;
}

static void
cannot_change(void *user, const char *section)
{
	(void)user;
	karst_log(KARST_LOG_NOTICE,
		"[%s] has changed; that takes effect when karstd is started again", section);
}

static void
reload(struct daemon *d)
{
	struct kd_conf *fresh = malloc(sizeof(*fresh));

	kd_notify("RELOADING=1");
	if (fresh == NULL || d->reread(d->user, fresh) != 0) {
		karst_log(KARST_LOG_ERR, "the configuration is not changed");
	} else {
		kd_conf_reload(d->asked, fresh, cannot_change, NULL);
		if (kd_ports_reload(&d->ports, d->asked, fresh, d->engine))
			cannot_change(NULL, "port");
		kd_server_set_limits(d->server, d->asked);
		if (kd_log_open(&d->asked->log) == 0)
			karst_log(KARST_LOG_NOTICE, "limits and log settings are read again");
		else
			karst_log(KARST_LOG_ERR,
				"limits are read again, but the log goes on as before");
	}
	free(fresh);
	kd_notify("READY=1");
}

/* @return false: the daemon has to stop. */
static bool
serve_signal(struct daemon *d)
{
	struct signalfd_siginfo info;

	if (read(d->signal_fd, &info, sizeof(info)) != sizeof(info))
		return true;
	if (info.ssi_signo == SIGHUP) {
		reload(d);
		return true;
	}
	karst_log(KARST_LOG_NOTICE, "signal %u from process %u: stopping", info.ssi_signo,
		info.ssi_pid);
	return false;
}

/* --- start --- */

/* Each program needs some descriptors.  The engine's watchdog has the lowest real-time priority,
 * which no thread can request any more when system calls are limited (confine.c). */
static void
raise_limits(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
	/* AF_XDP's memory on kernels that account it, and locked memory of DPDK. */
	lim.rlim_cur = lim.rlim_max = RLIM_INFINITY;
	setrlimit(RLIMIT_MEMLOCK, &lim);
	lim.rlim_cur = lim.rlim_max = 1;
	setrlimit(RLIMIT_RTPRIO, &lim);
}

static struct karst_congestion_config
congestion_of(const struct kd_conf *conf)
{
	const struct kd_conf_congestion *c = &conf->congestion;

	return (struct karst_congestion_config){
		.mode = (enum karst_congestion_mode)conf->engine.congestion,
		.np = {.min_time_between_cnps = c->min_time_between_cnps,
			.cnp_scope = c->cnp_scope,
			.cnp_dscp = c->cnp_dscp,
			.cnp_802p_prio = c->cnp_802p_prio},
#define KARST_RP_PARAM(name, def, least, most) .rp.name = c->name,
#include "karst_rp_param.def"
#undef KARST_RP_PARAM
	};
}

static int
make_engine(struct daemon *d)
{
	const struct kd_conf_engine *c = &d->conf->engine;
	const struct kd_port_needs needs = kd_port_needs_any(d->conf);
	const struct karst_congestion_config congestion = congestion_of(d->conf);
	const struct karst_engine_config cfg = {
		.name = c->name,
		.lcores = c->lcores.n,
		.max_qps = c->max_qps,
		.max_keys = c->max_keys,
		.max_ahs = c->max_ahs,
		.max_pds = c->max_pds,
		.max_mcasts = c->max_mcasts,
		.max_cm_ids = c->max_cm_ids,
		.max_owners = d->conf->socket.max_clients + (d->conf->smc.enabled ? 1 : 0),
		.window_packets = c->window_packets,
		.ack_interval = c->ack_interval,
		.no_migreq = !c->migreq,
		.latch_sport = c->latch_source_port,
		.early_retransmission = c->early_retransmission,
		.congestion = &congestion,
		.repeat_peers = c->selective_repeat.addr,
		.nrepeat_peers = c->selective_repeat.n,
		.ece = (enum karst_engine_ece)c->ece,
		.held_frames = c->held_frames,
		.spray_ports = c->spray_ports,
		.page_buffers = needs.page_buffers,
		.mbufs = d->eal.mbufs,
		.cross_cpu = true,
		/* a visit to a queue pair makes whole trains */
		.quantum_bytes = !needs.trains ? 0
			: c->divide_writes     ? DIVIDED_QUANTUM
					       : TRAIN_QUANTUM,
		.tx_burst = needs.trains ? TRAIN_BURST : 0,
		.divide_writes = c->divide_writes,
		.idle = (enum karst_idle)c->idle,
		.sleep_max_us = c->sleep_max_us,
	};
	int rc = karst_engine_create(&cfg, &d->engine);

	kd_log_take_karst(); /* the engine has set its own sink */
	if (rc == 0 && c->loss_ppm != 0)
		rc = karst_engine_set_loss(d->engine, c->loss_ppm / 1e6, c->loss_seed);
	if (rc == 0)
		return KD_EXIT_OK;
	karst_log(KARST_LOG_ERR, "the engine: %s", strerror(-rc));
	return KD_EXIT_FAILED;
}

static int
start_engine(struct daemon *d)
{
	int rc;

	if (kd_eal_start(d->conf, &d->eal) != 0)
		return KD_EXIT_FAILED;
	d->eal_started = true;
	rc = make_engine(d);
	if (rc != KD_EXIT_OK)
		return rc;
	if (kd_ports_open(&d->ports, d->conf, d->engine) != 0)
		return KD_EXIT_FAILED;
	rc = karst_engine_start(d->engine, d->eal.lcore);
	if (rc != 0) {
		karst_log(KARST_LOG_ERR, "starting the lcores: %s", strerror(-rc));
		return KD_EXIT_FAILED;
	}
	d->running = true;
	return KD_EXIT_OK;
}

/* Gives up what only the start needs. */
static int
daemon_give_up(const struct daemon *d)
{
	const struct kd_confine confine = {.part = KD_CONFINE_ENGINE,
		.bpf = kd_port_needs_any(d->conf).xdp || d->conf->smc.enabled != KD_NO};
	int rc;

	if (kd_caps_keep(0, KD_CAPS_WITHIN_S) != 0)
		return KD_EXIT_FAILED;
	rc = kd_confine(&confine);
	if (rc == 0)
		return KD_EXIT_OK;
	karst_log(KARST_LOG_ERR, "limiting system calls (seccomp): %s", strerror(-rc));
	return KD_EXIT_FAILED;
}

/* With a prefix such as /usr/local the system's file is not the default, but looks like it. */
static void
announce_conf(const struct kd_conf *c)
{
	static const char system_conf[] = "/etc/karst/karst.conf";

	if (c->file != NULL)
		karst_log(KARST_LOG_NOTICE, "configuration: %s", c->file);
	else
		karst_log(KARST_LOG_NOTICE, "configuration: defaults, as there is no %s",
			KD_DEFAULT_CONF);
	if ((c->file == NULL || strcmp(c->file, KD_DEFAULT_CONF) == 0) &&
		strcmp(KD_DEFAULT_CONF, system_conf) != 0 && access(system_conf, F_OK) == 0)
		karst_log(KARST_LOG_WARNING, "%s is not read; --config names another file",
			system_conf);
}

static int
daemon_start(struct daemon *d)
{
	int rc = take_signals(d);

	d->asked = malloc(sizeof(*d->asked));
	if (d->asked == NULL)
		return KD_EXIT_FAILED;
	*d->asked = *d->conf;
	raise_limits();
	if (rc == KD_EXIT_OK)
		rc = kd_user_become(d->conf);
	if (rc == KD_EXIT_OK && kd_log_open(&d->conf->log) != 0)
		rc = KD_EXIT_FAILED;
	if (rc == KD_EXIT_OK)
		announce_conf(d->conf);
	if (rc == KD_EXIT_OK)
		rc = kd_socket_lock(&d->socket, &d->conf->socket);
	if (rc == KD_EXIT_OK && (kd_ports_check(d->conf) != 0 || kd_place_choose(d->conf) != 0))
		rc = KD_EXIT_FAILED;
	if (rc == KD_EXIT_OK && kd_part_start(&d->part, d->conf) != 0)
		rc = KD_EXIT_FAILED;
	if (rc == KD_EXIT_OK)
		rc = start_engine(d);
	if (rc != KD_EXIT_OK)
		return rc;
	if (kd_part_ready(&d->part, d->conf) != 0)
		return KD_EXIT_FAILED;
	d->ports.news_fd = kd_news_open();
	if (d->conf->smc.enabled && kd_smc_create(d->engine, d->conf, &d->smc) != 0)
		return KD_EXIT_FAILED;
	d->server = kd_server_create(d->engine, d->conf, &d->part);
	if (d->server == NULL)
		return KD_EXIT_FAILED;
	rc = kd_socket_bind(&d->socket, &d->conf->socket);
	if (rc == KD_EXIT_OK)
		rc = daemon_give_up(d);
	if (rc == KD_EXIT_OK)
		rc = kd_socket_listen(&d->socket, &d->conf->socket);
	if (rc == KD_EXIT_OK && d->smc != NULL && kd_smc_start(d->smc) != 0)
		rc = KD_EXIT_FAILED;
	return rc;
}

/* --- running --- */

static uint64_t
now_ms(void)
{
	return kd_clock_ns() / 1000000;
}

static void
loop(struct daemon *d)
{
	uint64_t watch_at = now_ms() + WATCH_MS, accept_at = 0;
	bool go_on = true;

	while (go_on) {
		uint64_t now = now_ms(), until = watch_at;
		struct pollfd fds[4] = {{.fd = d->signal_fd, .events = POLLIN},
			{.fd = d->socket.fd, .events = POLLIN},
			{.fd = atomic_load(&d->part.gone) ? -1 : d->part.fd, .events = POLLRDHUP},
			{.fd = d->ports.news_fd, .events = POLLIN}};

		if (accept_at > now) {
			fds[1].fd = -1;
			until = karst_min_u64(until, accept_at);
		}
		if (poll(fds, KARST_DIM(fds), until > now ? (int)(until - now) : 0) < 0 &&
			errno != EINTR)
			break;
		if (fds[1].revents != 0 && kd_server_accept(d->server, d->socket.fd) != 0)
			accept_at = now_ms() + RETRY_MS;
		if (fds[2].revents != 0)
			kd_part_lost(&d->part);
		if (fds[3].revents != 0) {
			kd_news_read(&d->ports);
			watch_at = 0;
		}
		if (now_ms() >= watch_at) {
			kd_ports_watch(&d->ports, d->conf, d->engine);
			kd_server_watch(d->server);
			watch_at = now_ms() + WATCH_MS;
		}
		if (fds[0].revents != 0)
			go_on = serve_signal(d);
	}
}

/* --- end --- */

/* Threads of programs are still in the engine: cleans up everything that is visible outside, and
 * leaves the rest to the end of the process.  The process may exist for long, since no signal ends
 * some waits, so devices are closed for the next daemon. */
static _Noreturn void
daemon_leave(struct daemon *d, int rc)
{
	kd_ports_withdraw(&d->ports, d->engine);
	kd_ports_close(&d->ports);
	kd_part_stop(&d->part);
	kd_socket_close(&d->socket);
	kd_server_hang_up(d->server);
	kd_log_close();
	_exit(rc);
}

static void
daemon_stop(struct daemon *d, int rc)
{
	kd_notify("STOPPING=1");
	if (d->ports.news_fd >= 0)
		close(d->ports.news_fd);
	kd_smc_destroy(d->smc);
	if (d->server != NULL && !kd_server_destroy(d->server))
		daemon_leave(d, rc);
	if (d->running)
		karst_engine_stop(d->engine);
	if (d->engine != NULL && karst_engine_destroy(d->engine) != 0)
		karst_log(KARST_LOG_ERR, "the engine is still in use");
	kd_ports_close(&d->ports);
	if (d->eal_started)
		rte_eal_cleanup();
	kd_part_stop(&d->part);
	kd_socket_close(&d->socket);
	if (d->signal_fd >= 0)
		close(d->signal_fd);
	free(d->asked);
}

int
kd_daemon_run(struct kd_conf *c, kd_reread_fn reread, void *user)
{
	struct daemon d = {.conf = c, .reread = reread, .user = user, .signal_fd = -1};
	uint64_t began = now_ms();
	int rc;

	kd_log_take_karst();
	kd_log_take_dpdk();
	d.socket.fd = d.socket.lock_fd = d.ports.xdp_fd = d.ports.news_fd = d.part.fd = -1;
	kd_log_begin(&c->log);
	rc = daemon_start(&d);
	if (rc == KD_EXIT_OK) {
		karst_log(KARST_LOG_NOTICE,
			"karst " KARST_VERSION
			", engine %s on %u lcore%s, listens on %s after %u ms, "
			"in %s memory",
			c->engine.name, c->engine.lcores.n, c->engine.lcores.n == 1 ? "" : "s",
			d.socket.path, (unsigned int)(now_ms() - began),
			d.eal.huge ? "huge page" : "ordinary");
		kd_notify("READY=1");
		loop(&d);
	}
	daemon_stop(&d, rc);
	kd_log_close();
	return rc;
}
