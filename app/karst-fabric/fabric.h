/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A network in virtual time around lib/qp and lib/cm: what is simulated, and what came of it.
 *
 * The queue pairs are real, those of lib/qp with their requesters, responders, timers, CNPs and
 * pacing, and so is lib/cm, which connects them; links, switches and programs are simulated.  One
 * configuration, seed included, decides a run completely: the same result, to the byte of its
 * report.
 *
 *	fab_config_defaults(&c)		then set what is different
 *	fab_config_complete(&c)		what was not set follows from the rest; is it possible?
 *	fab_run(&c, &result)
 *	fab_result_free(&result)
 *
 * Threads: none of this is shared; runs may go on in parallel.
 */
#ifndef KARST_FABRIC_H
#define KARST_FABRIC_H

#include "karst_base.h"
#include "karst_congestion.h"

enum fab_topology {
	FAB_STAR,     /* one switch */
	FAB_DUMBBELL, /* two switches with one link between them, half of the hosts at each */
	FAB_CLOS,     /* leaves with hosts, each linked to all spines */
};

enum fab_workload {
	FAB_ONE,         /* host 0 to the last one */
	FAB_TWO,         /* hosts 0 and 1 to the last one */
	FAB_PERMUTATION, /* each host to another, each from another */
	FAB_INCAST,      /* hosts 1..fan_in to host 0 */
	FAB_RING,        /* ring allreduce of all hosts */
	FAB_TREE,        /* allreduce of all hosts by two binary trees */
	FAB_WEBSEARCH,   /* Poisson arrivals, sizes by distribution, between random hosts */
	FAB_FB_HADOOP,
	FAB_ALISTORAGE,
};

/* What does not say otherwise is 0 where something follows from the rest. */
struct fab_config {
	enum fab_topology topology;
	enum fab_workload workload;
	uint32_t hosts;
	uint32_t leaves;
	uint32_t spines;
	uint32_t fan_in;      /* incast; of a distribution: of the incasts beside it, 0: none */
	uint32_t connections; /* between two hosts, each with a flow */
	/* links: Mb/s, one way; ns, one way */
	uint64_t speed;
	uint64_t core_speed; /* between switches */
	uint64_t delay_ns;
	/* switches */
	uint64_t buffer; /* bytes of a switch, shared by its ports */
	double alpha;    /* dynamic threshold: a queue may have this share of what is free */
	bool pfc;
	bool marking;
	uint64_t kmin; /* bytes of queue, of a port as fast as hosts'; others in proportion */
	uint64_t kmax;
	double pmax;
	/* loss on the links to the hosts */
	double loss;       /* share of frames */
	uint64_t lose_nth; /* the n-th frame with a request, from 1, too; 0: none */
	double mad_loss;   /* share of messages of lib/cm; below 0: @loss */
	uint64_t lose_mad; /* the n-th of them, too */
	/* queue pairs */
	uint32_t mtu;
	bool read;        /* by READs instead of WRITEs */
	uint32_t message; /* bytes of each at most */
	uint32_t depth;   /* of a queue pair outstanding; a power of two */
	uint32_t window;  /* packets of a queue pair unacknowledged */
	uint32_t timeout; /* 4.096 us * 2^timeout */
	uint32_t retry;
	bool probes;    /* early retransmission (Q11) */
	bool repeat;    /* selectively (rules X): offered by who asks for a connection */
	bool decline;   /* who is asked does not agree to that */
	bool timed;     /* connections are made while it counts, when a flow begins */
	uint32_t spray; /* UDP source ports of a queue pair (X12) */
	struct karst_congestion_config cc;
	/* traffic */
	uint64_t size; /* bytes of a flow, or that is reduced; 0: without end, up to duration */
	double load;   /* of the hosts' links, 0..1 */
	uint64_t incast_size; /* of incasts beside a distribution: bytes of each sender */
	double incast_load;   /* and of the hosts' links, 0..1, besides @load */
	uint64_t flows;       /* of a distribution, at most; 0: as many as begin in duration */
	uint64_t stagger_ns;  /* flows between given hosts begin within it, by chance */
	uint64_t duration_ns; /* no flow begins later, and those without end end */
	uint64_t limit_ns;    /* nothing goes on later */
	uint64_t warmup_ns;   /* goodput without end, latency and queues count from here on */
	uint64_t seed;
	uint64_t memory; /* bytes that the run may need; 0: as many as there are */
	/* called now and then, if not NULL: how far it is */
	void (*progress)(uint64_t now_ns, uint64_t events, void *arg);
	void *progress_arg;
};

enum fab_flow_state {
	FAB_FLOW_RUNNING, /* at the end of the run */
	FAB_FLOW_DONE,
	FAB_FLOW_FAILED, /* its queue pair gave up */
};

struct fab_flow_result {
	uint32_t src;
	uint32_t dst;
	uint64_t size;     /* 0: without end */
	uint64_t bytes;    /* acknowledged */
	uint64_t start_ps; /* since the run began */
	uint64_t end_ps;   /* DONE, FAILED */
	uint64_t ideal_ps; /* that it would take alone; of size 0: 0 */
	double goodput;    /* bit/s */
	enum fab_flow_state state;
};

#define FAB_CLASSES 7

/* Flows that are done, of sizes up to a limit. */
struct fab_class {
	uint64_t most; /* bytes; UINT64_MAX in the last one */
	uint64_t flows;
	double p50, p95, p99; /* slowdown: time taken of ideal time */
};

#define FAB_PERCENTILES 101 /* 0 to 100 */

/* A queue of a switch, or of all of them: bytes, by time. */
struct fab_queue {
	char name[48]; /* which port */
	uint64_t max;
	uint64_t p99;
	double mean;
	uint64_t kmin; /* of its port */
	uint64_t kmax;
	uint64_t percentile[FAB_PERCENTILES];
};

/* From the post of a WRITE to its completion, of those that have completed while it counted. */
struct fab_latency {
	uint64_t messages;
	uint64_t p50_ps, p99_ps, p999_ps; /* up to 3 % too long */
	uint64_t max_ps;
	double mean_ps;
};

/* How connections came to be. */
struct fab_connections {
	uint64_t established;
	uint64_t failed;
	uint64_t repeat;                 /* of the established ones: agreed on selective repeat */
	uint64_t ended;                  /* by DREQ and DREP */
	uint64_t broken;                 /* by a DREQ that had no answer */
	uint64_t p50_ps, p99_ps, max_ps; /* from REQ to REP; percentiles up to 3 % too long */
	uint64_t mads;                   /* sent */
	uint64_t mads_again;             /* of these, since no answer came */
	uint64_t mads_lost;              /* on links, and dropped by switches */
};

struct fab_result {
	uint64_t nflows;
	struct fab_flow_result *flow;
	uint64_t done;
	uint64_t failed;
	uint64_t end_ps; /* when nothing was left to do, or the end was reached */
	double goodput;  /* bit/s, all flows */
	double jain;     /* of the goodput of flows; 0: none */
	double bus_bps;  /* ring, tree: 2 (N - 1) / N of its bytes in its time */
	struct fab_class cls[FAB_CLASSES + 1]; /* the last: all */
	struct fab_latency latency;
	struct fab_connections connections; /* counts not only while the workload goes on */
	struct fab_queue queue;             /* that with the highest p99 */
	uint64_t queue_max;                 /* of any */
	/* counts of the whole run */
	uint64_t requests;    /* frames sent with requests */
	uint64_t retransmits; /* of these, sent again */
	uint64_t timeouts;
	uint64_t probes;
	uint64_t seq_naks;
	uint64_t marks; /* by switches */
	uint64_t cnps_sent;
	uint64_t cnps_handled;
	uint64_t drops;     /* by switches, for want of buffer */
	uint64_t lost;      /* on links */
	uint64_t pauses;    /* PFC, XOFF sent */
	uint64_t paused_ps; /* of all senders together */
	uint64_t frames;    /* that arrived at hosts */
	uint64_t events;
	char error[256]; /* why fab_run() failed */
};

extern const char *const fab_topology_names[];
extern const char *const fab_workload_names[];

/** 100 Gb/s, 1 us, star of 2, one flow; congestion control off. */
void fab_config_defaults(struct fab_config *c);

/**
 * Fills in what is 0 and follows from the rest.  @return 0; -EINVAL: @why (@n bytes) says what
 * cannot be.
 */
int fab_config_complete(struct fab_config *c, char *why, size_t n);

/** @return 0, the caller's to free; -ENOMEM, -ENOSPC, -EINVAL: r->error says why, nothing to free.
 */
int fab_run(const struct fab_config *c, struct fab_result *r);
void fab_result_free(struct fab_result *r);

/** RED: does a frame that finds @queue bytes get a mark?  @u: equally distributed in [0, 1). */
bool fab_red(uint64_t queue, uint64_t kmin, uint64_t kmax, double pmax, double u);

#endif /* KARST_FABRIC_H */
