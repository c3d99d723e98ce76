/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The command line of measurements, checked option by option; plan.h checks combinations. */
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

/** The kind of memory of the buffers; an embedded run uses PRIVATE. */
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
	/* what is measured: each of @ops with each of @sizes */
	uint32_t ops; /* bit set of enum perf_op */
	bool all_ops; /* --op all: all that the transport supports */
	enum perf_transport transport;
	uint32_t sizes[PERF_MAX_SIZES]; /* bytes */
	uint32_t num_sizes;
	bool all_sizes; /* --size all, or none given: sizes that do not fit are left out */
	uint32_t mtu;   /* path MTU, bytes */
	uint32_t qps;
	uint32_t depth;    /* messages outstanding of a queue pair; 0: the plan's choice */
	uint32_t inflight; /* messages outstanding of all queue pairs; 0: the plan's choice */
	uint32_t batch;    /* messages posted at once; 0: the plan's choice */
	uint32_t inline_bytes;
	uint32_t rd_atomic; /* READs and atomics outstanding of a queue pair */
	uint32_t lcores;    /* 1 or 2 */
	double duration_s;
	uint64_t iters; /* 0: by duration */
	bool latency;
	bool verify;
	bool no_baselines;
	bool compare_tcp; /* measure the kernel's TCP, too */
	/* --op connect, which cannot be combined with other operations */
	bool connections;
	bool no_qps;
	uint32_t conns; /* being made or ended at the same time */
	double loss;
	uint64_t working_set; /* bytes; 0: the plan's choice */
	/* protocol */
	uint32_t window;     /* packets; 0: the engine's default */
	bool repeat;         /* selective repeat */
	bool early;          /* early retransmission (Q11) */
	uint32_t congestion; /* enum karst_congestion_mode */
	int32_t timeout;     /* code; -1: the plan's choice */
	uint64_t seed;
	int32_t yield; /* 1: idle turns yield the processor; 0: no; -1: by number of CPUs */
	/* ports */
	const char *vdevs[2];
	uint32_t num_vdevs;
	uint32_t ring_size;
	bool force_mtu;
	const char *eal_args[PERF_MAX_EAL_ARGS]; /* what followed "--" */
	uint32_t num_eal_args;
	/* over a karstd */
	const char *connect; /* its socket; NULL: an embedded engine */
	bool server;
	const char *peer; /* host of the server */
	bool daemon;      /* start a karstd and a server */
	const char *karstd;
	uint16_t tcp_port;
	uint32_t port;     /* of the device, from 1 */
	bool hold;         /* wait for a line on stdin before each measurement */
	int32_t gid_index; /* -1: the plan's choice */
	enum perf_memory_kind memory;
	bool odp;    /* register regions on demand */
	bool events; /* programs sleep until completions arrive */
	/* output */
	bool json;
};

/** The name on the command line, in JSON and in tables. */
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
 * @return -1: go on with *opts; else the exit status: 0 (after the output of --help or --version)
 *   or 2 (after a message on stderr that says what is wrong, where, and what is allowed).
 */
int perf_opts_parse(int argc, char **argv, struct perf_opts *opts);

#endif /* PERF_OPTS_H */
