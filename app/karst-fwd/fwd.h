/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst-fwd: forward, check, answer and generate RoCEv2 frames, as testpmd does with packets.
 *
 *	main.c      start and end; the loop of the main lcore
 *	opts.c      options
 *	ports.c     ports and their mbufs
 *	streams.c   which lcore polls which queue; start and stop
 *	modes.c     the table of forward modes, and the simple ones
 *	check.c     roce-check: verifies and counts frames, and follows flows (flows.c); memo.c
 *	            recognises headers that have come before
 *	reflect.c   a stateless responder
 *	gen.c       the generator; template.c and packet.c define its frames, pace.c their times,
 *	            and play.c takes frames from a capture
 *	prompt.c    reads commands; commands.c and commands_set.c implement them
 *	report.c    makes reports as JSON, with report_roce.c; show.c prints them
 *
 * A stream is a receive queue and a transmit queue.  Between start and stop it belongs to one
 * worker lcore.  Everything else belongs to the main lcore.  Each counter has one writer, and is
 * read relaxed.
 */
#ifndef KARST_FWD_H
#define KARST_FWD_H

#include <stdatomic.h>
#include <stdio.h>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "karst_base.h"
#include "opts.h"

struct fwd;
struct fwd_check;
struct fwd_gen;
struct fwd_lcore;
struct fwd_play;

struct fwd_port {
	uint16_t id; /* DPDK port number */
	char name[RTE_ETH_NAME_MAX_LEN];
	_Atomic bool gone; /* set by any thread that learns of the removal */
	bool said_gone;
	bool started;
	struct rte_ether_addr mac, peer;
	uint64_t last_tsc; /* of the last report, for rates; 0: none */
	struct rte_eth_stats last;
};

struct fwd_stream {
	struct fwd_port *rx, *tx;
	uint16_t rx_queue, tx_queue;
	uint32_t number;
	uint64_t rx_packets, tx_packets, tx_dropped;
	struct fwd_gen *gen; /* NULL: does not generate */
} karst_cache_aligned;

struct fwd_lcore {
	struct fwd *fwd;
	unsigned int id; /* DPDK lcore number */
	uint32_t nstreams;
	struct fwd_stream **streams;
	struct fwd_check *check; /* NULL: the mode does not check frames */
} karst_cache_aligned;

struct fwd_mode {
	const char *name;
	bool checks; /* lcores have a struct fwd_check */
	bool loops;  /* frames from a port are answered at that port, whatever the topology */
	bool generates;
	/** One turn of a stream.  @return number of packets received and sent. */
	uint32_t (*turn)(struct fwd_lcore *lc, struct fwd_stream *s);
};

struct fwd {
	struct fwd_opts opts;
	struct rte_mempool *pool;
	uint32_t nports;
	struct fwd_port ports[RTE_MAX_ETHPORTS];
	const struct fwd_mode *mode;
	_Atomic bool stop; /* ends the loops of the lcores */
	bool running;
	uint32_t nstreams, nlcores;
	struct fwd_stream *streams;
	struct fwd_lcore *lcores;
	struct fwd_play *play; /* NULL: the generator uses templates */
	uint64_t start_tsc, stop_tsc;
};

/** Adds to a counter that has a single writer.  Other threads never read a partial value. */
static inline void
fwd_add(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

static inline uint64_t
fwd_read(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

/* --- ports.c --- */

/** Sets up all ports that the options name.  @return 0, or an exit status after a message. */
int fwd_ports_open(struct fwd *f);
/** Prints which ports have been removed since the last call. */
void fwd_ports_look(struct fwd *f);
/** Stops and closes all ports.  Lcores must not poll any more. */
void fwd_ports_close(struct fwd *f);
/** Finds the port of a DPDK port number.  @return NULL: the program does not use that port. */
struct fwd_port *fwd_port_of(struct fwd *f, uint16_t id);

static inline bool
fwd_port_is_gone(const struct fwd_port *p)
{
	return atomic_load_explicit(&p->gone, memory_order_relaxed);
}

/* --- modes.c --- */

/** @return NULL: there is no such mode. */
const struct fwd_mode *fwd_mode_of(const char *name);
/** @return the @i-th mode; NULL past the end. */
const struct fwd_mode *fwd_mode_at(unsigned int i);
/** Formats the names of all modes: "io|mac|..." */
void fwd_mode_names(char *text, size_t room);
/**
 * Sends packets that @s has received.  Packets that the port does not accept are freed and counted.
 */
void fwd_send(struct fwd_stream *s, struct rte_mbuf **m, uint32_t n);

static inline uint32_t
fwd_receive(struct fwd_lcore *lc, struct fwd_stream *s, struct rte_mbuf **m)
{
	uint16_t n = rte_eth_rx_burst(s->rx->id, s->rx_queue, m, (uint16_t)lc->fwd->opts.burst);

	if (n != 0)
		fwd_add(&s->rx_packets, n);
	return n;
}

uint32_t fwd_turn_check(struct fwd_lcore *lc, struct fwd_stream *s);
uint32_t fwd_turn_reflect(struct fwd_lcore *lc, struct fwd_stream *s);
uint32_t fwd_turn_gen(struct fwd_lcore *lc, struct fwd_stream *s);

/* --- streams.c --- */

/**
 * Starts forwarding on the lcores.  @tx_first: number of bursts that each stream sends first.
 * @return 0, -1 after a message.
 */
int fwd_start(struct fwd *f, uint32_t tx_first);
/** Stops forwarding.  Does nothing if the lcores do not forward. */
void fwd_stop(struct fwd *f);
/** Frees what the last start has allocated. */
void fwd_streams_free(struct fwd *f);
/** Whether all generators have finished, or cannot, because their ports are gone. */
bool fwd_generated(const struct fwd *f);
/** @return a port that is gone before its generator has finished; NULL: none. */
const struct fwd_port *fwd_cut_generator(const struct fwd *f);
/** Whether any port that a stream receives from is still present. */
bool fwd_can_receive(const struct fwd *f);
/** @return the number of packets that all streams have received since the start. */
uint64_t fwd_received(const struct fwd *f);

#endif /* KARST_FWD_H */
