/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The command line of the main job, checked word by word; plan.h checks what goes together. */
#ifndef PERF_OPTS_H
#define PERF_OPTS_H

#include "karst_base.h"

enum perf_op {
	PERF_OP_WRITE,
	PERF_OP_WRITE_IMM,
	PERF_OP_READ,
	PERF_OP_SEND,
	PERF_OP_CAS,
	PERF_OP_FAA,
	PERF_OP_ATOMIC_WRITE,
	PERF_OP_MAX,
};

enum perf_transport {
	PERF_RC,
	PERF_UC,
	PERF_UD,
	PERF_TRANSPORT_MAX,
};

/** What buffers are made of; an embedded run has PRIVATE. */
enum perf_memory_kind {
	PERF_MEMORY_PRIVATE, /* anonymous, in huge pages if the kernel has some */
	PERF_MEMORY_ALLOC,   /* karst_alloc() */
	PERF_MEMORY_MALLOC,
	PERF_MEMORY_STACK,
	PERF_MEMORY_HUGETLB, /* private huge pages, reserved by the administrator */
	PERF_MEMORY_MAX,
};

#define PERF_MAX_SIZES    64u
#define PERF_MAX_EAL_ARGS 64u

struct perf_opts {
	/* what is measured: every one of @ops with every one of @sizes */
	uint32_t ops; /* bit set of enum perf_op */
	bool all_ops; /* --op all: those that the transport has */
	enum perf_transport transport;
	uint32_t sizes[PERF_MAX_SIZES]; /* bytes */
	uint32_t num_sizes;
	bool all_sizes; /* --size all, or none given: what does not fit is left out */
	uint32_t mtu;   /* path MTU, bytes */
	uint32_t qps;
	uint32_t depth;    /* messages outstanding of a queue pair; 0: the plan's choice */
	uint32_t inflight; /* messages outstanding altogether; 0: the plan's choice */
	uint32_t batch;    /* messages posted at once; 0: the plan's choice */
	uint32_t inline_bytes;
	uint32_t rd_atomic; /* READs and atomics outstanding of a queue pair */
	uint32_t lcores;    /* 1 or 2 */
	double duration_s;
	uint64_t iters; /* 0: by duration */
	bool latency;
	bool verify;
	bool no_baselines;
	bool compare_tcp; /* measure the kernel's TCP beside it */
	/* --op connect, which is measured alone */
	bool connections;
	bool no_qps;
	uint32_t conns; /* being made or ended at a time */
	double loss;
	uint64_t working_set; /* bytes; 0: the plan's choice */
	/* protocol */
	uint32_t window;     /* packets; 0: the engine's default */
	bool repeat;         /* selectively */
	bool early;          /* retransmission (Q11) */
	uint32_t congestion; /* enum karst_congestion_mode */
	int32_t timeout;     /* code; -1: the plan's choice */
	uint64_t seed;
	int32_t yield; /* 1: idle turns give the processor away; 0: no; -1: by CPUs */
	/* ports */
	const char *vdevs[2];
	uint32_t num_vdevs;
	uint32_t ring_size;
	bool force_mtu;
	const char *eal_args[PERF_MAX_EAL_ARGS]; /* what followed "--" */
	uint32_t num_eal_args;
	/* over a karstd */
	const char *connect; /* its socket; NULL: an engine of our own */
	bool server;
	const char *peer; /* host of the server */
	bool daemon;      /* a karstd and a server of our own */
	const char *karstd;
	uint16_t tcp_port;
	uint32_t port;     /* of the device, from 1 */
	bool hold;         /* wait for the word to begin */
	int32_t gid_index; /* -1: the plan's choice */
	enum perf_memory_kind memory;
	bool odp;    /* its regions are on demand */
	bool events; /* programs sleep until completions come */
	/* output */
	bool json;
};

/** As on the command line, in JSON and in tables. */
const char *perf_op_name(enum perf_op op);
const char *perf_congestion_name(uint32_t mode);
const char *perf_transport_name(enum perf_transport transport);
/** "embedded", "attached" or "daemon". */
const char *perf_opts_mode(const struct perf_opts *o);
const char *perf_memory_name(enum perf_memory_kind kind);

/** Is the engine in another process? */
static inline bool
perf_opts_attached(const struct perf_opts *o)
{
	return o->connect != NULL || o->daemon;
}

/**
 * Reads the command line.
 * @return -1: go on with *opts; else the exit status: 0 (--help and --version have printed), 2
 *   (said on stderr what is wrong, where, and what is allowed).
 */
int perf_opts_parse(int argc, char **argv, struct perf_opts *opts);

#endif /* PERF_OPTS_H */
