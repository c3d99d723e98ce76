/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The configuration of karstd.
 *
 * conf_keys.def has every section and key; each key is the member of the same name in the structure
 * of its section here.  Padding of the structures is zero, and they contain no pointers except to
 * rows of tables, so two structures can be compared as bytes.
 *
 * conf_scan.c finds sections, keys and values in a file, and conf.c checks and stores them, using
 * conf_value.c.  Errors are reported with their lines, so that one run shows all that are wrong in
 * a file.  rte_cfgfile has no lines, and ignores what it does not understand.
 */
#ifndef KARSTD_CONF_H
#define KARSTD_CONF_H

#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "karst_engine.h"

#define KD_TEXT         256u /* size of a value */
#define KD_NAME         32u
#define KD_EID          36u /* 32 characters and the terminating 0 */
#define KD_MAX_CPUS     1024u
#define KD_MAX_ADDRS    KARST_ENGINE_MAX_ADDRS
#define KD_MAX_PORTS    KARST_ENGINE_MAX_PORTS
#define KD_MAX_LIMITS   64u        /* sections [limits WHO] */
#define KD_DEFAULT_CONF KARST_CONF /* where "meson install" puts it */

/* The words of a KARSTD_WORD(), where no other header defines their order. */
enum kd_tristate { KD_NO, KD_YES, KD_AUTO };
enum kd_allowed { KD_BY_USER, KD_FORBIDDEN, KD_ALLOWED };
enum kd_driver { KD_DRIVER_AUTO, KD_KPORT, KD_AF_PACKET, KD_AF_XDP };

struct kd_port_kind; /* port_kind.h */

struct kd_cpus {
	uint32_t n;
	uint16_t cpu[KARST_ENGINE_MAX_LCORES]; /* in the order of the file */
};

struct kd_addrs {
	uint32_t n;
	struct karst_engine_addr addr[KD_MAX_ADDRS];
};

struct kd_ip {
	bool set;
	uint8_t ip[16];
};

struct kd_mac {
	bool set;
	uint8_t mac[6];
};

struct kd_conf_engine {
	char name[16];
	uint32_t user; /* UINT32_MAX: the user karst, if it exists */
	struct kd_cpus lcores;
	uint32_t idle; /* enum karst_idle */
	uint32_t sleep_max_us;
	uint32_t max_qps, max_keys, max_pds, max_ahs, max_mcasts, max_cm_ids;
	uint32_t window_packets, ack_interval;
	uint32_t loss_ppm, loss_seed;
	uint32_t migreq;
	uint32_t latch_source_port;
	uint32_t early_retransmission;
	uint32_t divide_writes;
	uint32_t congestion; /* enum karst_congestion_mode */
	struct kd_addrs selective_repeat;
	uint32_t ece; /* enum karst_engine_ece */
	uint32_t held_frames;
	uint32_t spray_ports;
	uint32_t mbufs;
	uint32_t huge_pages; /* enum kd_tristate */
	uint64_t memory;
};

struct kd_conf_socket {
	char path[KD_TEXT];
	uint32_t mode;
	uint32_t owner, group; /* UINT32_MAX: unchanged */
	uint32_t backlog;
	uint32_t max_clients;
};

struct kd_conf_limits {
	char who[KD_NAME];     /* empty: everybody; otherwise a user, or @group */
	uint32_t id;           /* number of the user or the group */
	uint32_t share, calls; /* as kd_conf_limits_of() returns them: calls 0 is no limit */
	uint32_t clients;
	uint32_t qps, cqs, srqs, mrs, mws, pds, ahs, channels, mcasts, xrcds, cm_ids;
	uint64_t ring_bytes, mr_bytes, held_bytes, window_bytes;
	uint32_t controlled_qkeys; /* enum kd_allowed */
};

struct kd_conf_port {
	char name[KD_NAME];
	char device[KD_TEXT];
	const struct kd_port_kind *kind; /* derived from device */
	uint32_t driver;                 /* enum kd_driver */
	struct kd_addrs addresses;
	uint32_t link_local;
	struct kd_ip gateway4, gateway6;
	uint32_t vlan;
	uint32_t mtu;
	struct kd_mac mac;
	struct kd_cpus lcores;
	uint32_t rx_slots, tx_slots;
	char exception_tap[16];
	uint32_t isolate;
	char impair[KD_TEXT], impair_log[KD_TEXT];
};

struct kd_conf_congestion {
	uint32_t min_time_between_cnps, cnp_scope, cnp_dscp, cnp_802p_prio;
#define KARST_RP_PARAM(name, def, least, most) uint32_t name;
#include "karst_rp_param.def"
#undef KARST_RP_PARAM
};

struct kd_conf_log {
	uint32_t level;      /* enum karst_log_level */
	uint32_t dpdk_level; /* the same */
	char file[KD_TEXT];
};

struct kd_conf_smc {
	uint64_t buffer;
	uint32_t enabled;
	uint32_t max_connections;
	uint32_t retry_s;
	uint32_t group_idle_s;
	uint32_t direct;
	uint32_t poll_us;
	uint32_t spin_us;
	char eid[KD_EID];
	struct kd_addrs addresses, peers;
	char cgroup[KD_TEXT];
};

struct kd_conf {
	const char *file; /* that was read, or NULL */
	struct kd_conf_engine engine;
	struct kd_conf_socket socket;
	struct kd_conf_limits limits[1 + KD_MAX_LIMITS]; /* [0]: limits of everybody */
	uint32_t nlimits;
	struct kd_conf_port port[KD_MAX_PORTS];
	uint32_t nports;
	struct kd_conf_congestion congestion;
	struct kd_conf_smc smc;
	struct kd_conf_log log;
};

/** Where errors are reported, one line each for the first 20 of them, and the number of all. */
struct kd_faults {
	void (*say)(void *user, const char *line);
	void *user;
	uint32_t n;
};

void kd_fault(struct kd_faults *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** Reports how many errors were not reported one by one. */
void kd_faults_end(const struct kd_faults *f);

/** Sets the values that apply without a file. */
void kd_conf_defaults(struct kd_conf *c);

/**
 * Reads @path over the defaults, without kd_conf_finish().  @return 0, or -EINVAL if errors were
 * added to @f.
 */
int kd_conf_read(struct kd_conf *c, const char *path, struct kd_faults *f);

/** Stores one value, like a line of a file; error messages begin with @at (such as "--socket"). */
int kd_conf_set(struct kd_conf *c, const char *section, const char *key, const char *value,
	const char *at, struct kd_faults *f);

/** Replaces the ports by one loopback port. */
void kd_conf_only_loopback(struct kd_conf *c);

/**
 * Completes the configuration after everything has been read: derives values from others, and
 * checks values that depend on each other.  @at: the origin of the values, for error messages.
 * @return 0 or -EINVAL.
 */
int kd_conf_finish(struct kd_conf *c, const char *at, struct kd_faults *f);

/**
 * Copies the values from @to that can change while the daemon runs.  Calls @other, which may be
 * NULL, for each section that differs and cannot change.
 */
void kd_conf_reload(struct kd_conf *c, const struct kd_conf *to,
	void (*other)(void *user, const char *section), void *user);

/** Replaces the values of @l that are set in @by. */
void kd_conf_limits_over(struct kd_conf_limits *l, const struct kd_conf_limits *by);

/**
 * Returns the limits of a user who is in these groups.  Values that are 0 have no limit of their
 * own; values that depend on the user are filled in.
 */
struct kd_conf_limits kd_conf_limits_of(
	const struct kd_conf *c, uint32_t uid, const uint32_t *gids, uint32_t ngids);

#endif /* KARSTD_CONF_H */
