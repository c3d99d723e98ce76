/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Options of karst-fwd after "--".  Their names are those of testpmd where the meaning is the same.
 */
#ifndef FWD_OPTS_H
#define FWD_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>

#include "pace.h"
#include "template.h"

#define FWD_BURST_MAX     512u
#define FWD_QUEUES_MAX    64u
#define FWD_PEERS_MAX     32u
#define FWD_TEMPLATES_MAX 16u
#define FWD_FLOWS_MAX     (1u << 20)

enum fwd_topology { FWD_PAIRED, FWD_CHAINED, FWD_LOOP };
enum fwd_idle { FWD_POLL, FWD_YIELD, FWD_SLEEP };

struct fwd_peer {
	uint16_t port;
	struct rte_ether_addr mac;
};

struct fwd_opts {
	bool interactive, auto_start;
	const char *cmdline_file;
	const char *mode;  /* name of the forward mode */
	uint32_t nb_cores; /* 0: as many as available */
	uint32_t rxq, txq, rxd, txd, burst;
	uint32_t mbuf_size, total_mbufs, mbcache, max_pkt_len; /* 0: not given */
	uint64_t portmask;
	bool portmask_set;
	enum fwd_topology topology;
	enum fwd_idle idle;
	uint32_t stats_period_s, tx_first;
	const char *stats_json;
	uint32_t npeers;
	struct fwd_peer peers[FWD_PEERS_MAX];
	uint32_t flows;       /* capacity of roce-check for each lcore */
	uint32_t reflect_mtu; /* for READ responses */
	uint32_t ntemplates;
	struct fwd_template templates[FWD_TEMPLATES_MAX];
	const char *gen_pcap; /* NULL: none */
	struct fwd_rate rate;
};

/** @return 0 to continue; 1: all is done; -1 after a message. */
int fwd_opts_parse(struct fwd_opts *o, int argc, char **argv);
/** Parses "poll", "yield" or "sleep".  @return -1: none of these. */
int fwd_idle_of(const char *name);
const char *fwd_idle_name(enum fwd_idle idle);
const char *fwd_topology_name(enum fwd_topology topology);
/**
 * Parses a decimal or 0x number from @least to @most that ends the text.  @return whether it is
 * one.
 */
bool fwd_number(const char *text, uint64_t least, uint64_t most, uint64_t *value);

/** Prints the options, for --help without EAL. */
void fwd_opts_help(void);

#endif /* FWD_OPTS_H */
