/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Simulates a network in virtual time around lib/qp and lib/cm: the configuration and the result.
 *
 * The queue pairs are real, those of lib/qp with their requesters, responders, timers, CNPs and
 * pacing, and so is lib/cm, which connects them; links, switches and programs are simulated.  The
 * configuration, including the seed, determines a run completely: the reports of two runs with the
 * same configuration are identical.
 *
 *	fab_config_defaults(&c)		then set what is different
 *	fab_config_complete(&c)		derives unset members from the rest, and checks all
 *	fab_run(&c, &result)
 *	fab_result_free(&result)
 *
 * Threads: runs share no state and may execute in parallel.
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

/* Unless a comment says otherwise, a member of 0 is derived from the rest. */
struct fab_config {
	enum fab_topology topology;
	enum fab_workload workload;
	uint32_t hosts;
	uint32_t leaves;
	uint32_t spines;
	uint32_t fan_in;      /* senders of an incast; of added incasts, 0: none */
	uint32_t connections; /* between two hosts, each with a flow */
	/* links: Mb/s, one way; ns, one way */
	uint64_t speed;
	uint64_t core_speed; /* between switches */
	uint64_t delay_ns;
	/* switches */
	uint64_t buffer; /* bytes of a switch, shared by its ports */
	double alpha;    /* dynamic threshold: a queue may hold this times the free bytes */
	bool pfc;
	bool marking;
	uint64_t kmin; /* bytes of queue, for the speed of host ports; others in proportion */
	uint64_t kmax;
	double pmax;
	/* loss on the links to the hosts */
	double loss;       /* share of frames */
	uint64_t lose_nth; /* also the n-th frame with a request, from 1; 0: none */
	double mad_loss;   /* share of messages of lib/cm; below 0: @loss */
	uint64_t lose_mad; /* also the n-th message of lib/cm, from 1; 0: none */
	/* queue pairs */
	uint32_t mtu;
	bool read;        /* READs instead of WRITEs */
	uint32_t message; /* maximum bytes of each */
	uint32_t depth;   /* outstanding requests of a queue pair; a power of two */
	uint32_t window;  /* unacknowledged packets of a queue pair */
	uint32_t timeout; /* 4.096 us * 2^timeout */
	uint32_t retry;
	bool probes;    /* early retransmission (Q11) */
	bool repeat;    /* the active side offers selective repeat (rules X) */
	bool decline;   /* the passive side does not agree to that */
	bool timed;     /* connections are made during the measured time, when a flow begins */
	uint32_t spray; /* UDP source ports of a queue pair (X12) */
	struct karst_congestion_config cc;
	/* traffic */
	uint64_t size; /* bytes of a flow, or bytes to reduce; 0: without end, up to duration */
	double load;   /* of the hosts' links, 0..1 */
	uint64_t incast_size; /* of incasts added to a distribution: bytes of each sender */
	double incast_load;   /* their load of the hosts' links, 0..1, in addition to @load */
	uint64_t flows;       /* of a distribution, at most; 0: as many as begin in duration */
	uint64_t stagger_ns;  /* flows between given hosts begin at random within this time */
	uint64_t duration_ns; /* no flow begins later, and those without end stop */
	uint64_t limit_ns;    /* the run stops here */
	uint64_t warmup_ns;   /* goodput without end, latency and queues count from here on */
	uint64_t seed;
	uint64_t memory; /* limit of the run's memory, in bytes; 0: no limit */
	/* called from time to time, if not NULL, to report progress */
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
	uint64_t ideal_ps; /* time that it would take alone; of size 0: 0 */
	double goodput;    /* bit/s */
	enum fab_flow_state state;
};

#define FAB_CLASSES 7

/* Completed flows of sizes up to a limit. */
struct fab_class {
	uint64_t most; /* bytes; UINT64_MAX in the last one */
	uint64_t flows;
	double p50, p95, p99; /* slowdown: time divided by ideal time */
};

#define FAB_PERCENTILES 101 /* 0 to 100 */

/* Length of a queue of a switch, or of all queues: bytes, weighted by time. */
struct fab_queue {
	char name[48]; /* which port */
	uint64_t max;
	uint64_t p99;
	double mean;
	uint64_t kmin; /* of its port */
	uint64_t kmax;
	uint64_t percentile[FAB_PERCENTILES];
};

/* Time from post to completion of the WRITEs that completed in the measured time. */
struct fab_latency {
	uint64_t messages;
	uint64_t p50_ps, p99_ps, p999_ps; /* up to 3 % too long */
	uint64_t max_ps;
	double mean_ps;
};

/* Results of connection management. */
struct fab_connections {
	uint64_t established;
	uint64_t failed;
	uint64_t repeat;                 /* of the established ones: agreed on selective repeat */
	uint64_t ended;                  /* by DREQ and DREP */
	uint64_t broken;                 /* by a DREQ that had no answer */
	uint64_t p50_ps, p99_ps, max_ps; /* from REQ to REP; percentiles up to 3 % too long */
	uint64_t mads;                   /* sent */
	uint64_t mads_again;             /* of these, repeated because there was no answer */
	uint64_t mads_lost;              /* on links, and dropped by switches */
};

struct fab_result {
	uint64_t nflows;
	struct fab_flow_result *flow;
	uint64_t done;
	uint64_t failed;
	uint64_t end_ps; /* when no events were left, or the end was reached */
	double goodput;  /* bit/s, all flows */
	double jain;     /* of the goodput of flows; 0: none */
	double bus_bps;  /* ring, tree: 2 (N - 1) / N of its bytes in its time */
	struct fab_class cls[FAB_CLASSES + 1]; /* the last: all */
	struct fab_latency latency;
	struct fab_connections connections; /* counted over the whole run */
	struct fab_queue queue;             /* the queue with the highest p99 */
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
	uint64_t drops;     /* by switches, because the buffer was full */
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
 * Derives members that are 0 from the rest, and checks all.  @return 0; -EINVAL: the text in @why
 * (@n bytes) says what is not possible.
 */
int fab_config_complete(struct fab_config *c, char *why, size_t n);

/** @return 0: the caller frees the result; -ENOMEM, -ENOSPC, -EINVAL: r->error says why, and there
 *  is nothing to free. */
int fab_run(const struct fab_config *c, struct fab_result *r);
void fab_result_free(struct fab_result *r);

/** RED: is a frame marked that arrives at a queue of @queue bytes?  @u: uniform in [0, 1). */
bool fab_red(uint64_t queue, uint64_t kmin, uint64_t kmax, double pmax, double u);

#endif /* KARST_FABRIC_H */
