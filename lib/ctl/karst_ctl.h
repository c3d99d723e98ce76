/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Control messages between a program (libkarst) and an engine (karstd, or one in the same process):
 * attach, create, modify, register, destroy.  Work requests and completions are not control
 * messages; they go through shared memory (karst_ring.h).
 *
 * A message is one packet of a SOCK_SEQPACKET socket: struct karst_ctl_hdr, a body that depends on
 * the operation, and file descriptors beside it.  A program sends a request and gets one reply with
 * the same sequence number and operation; the requests of a connection are answered in order.  The
 * first request is HELLO.  The engine sends nothing without a request: events come through streams,
 * and the descriptor of the reading end is in a reply.  (Streams are socket pairs, because the
 * reader of a pipe can hold the lock of the pipe, and thus block the writer, for as long as it
 * likes.)
 *
 * All data is little-endian and naturally aligned; reserved members are 0 and are checked.  A body
 * may be longer than the one that the receiver knows: it is accepted if the rest is 0, so that
 * members can be added.  A shorter body is -EPROTO.  KARST_CTL_VERSION changes when an old reader
 * would misinterpret a message.
 *
 * Handles (PD, XRC domain, CQ, SRQ, QP, channel, identifiers of connection management) are 32-bit
 * numbers of this connection, never 0.  Keys are L_Keys and R_Keys; address handles are the numbers
 * that work requests contain.
 *
 * A request that fails changes nothing.  Its reply has a negative errno as status and struct
 * karst_ctl_fault as body: a sentence that says what was wrong and what is allowed.
 *
 * doc/control-abi.rst describes the same without C.
 */
#ifndef KARST_CTL_H
#define KARST_CTL_H

#include <stddef.h>

#include "karst_base.h"

#define KARST_CTL_MAGIC   0x6c74636bu /* "kctl" */
#define KARST_CTL_VERSION 1u
#define KARST_CTL_MAX     65536u /* maximum size of a message in bytes, header included */
#define KARST_CTL_MAX_FDS 128u   /* with one message */

/* Operations.  X(NAME, name, value): the body of a request is struct karst_ctl_<name>_req, that of
 * a reply struct karst_ctl_<name>_rsp. */
#define KARST_CTL_OPS(X)                              \
	X(HELLO, hello, 1)                            \
	X(QUERY_DEVICE, query_device, 2)              \
	X(QUERY_PORT, query_port, 3)                  \
	X(QUERY_GIDS, query_gids, 4)                  \
	X(GET_CHUNK, get_chunk, 5)                    \
	X(SEAL_CHUNK, seal_chunk, 6)                  \
	X(ALLOC_PD, alloc_pd, 16)                     \
	X(FREE_PD, free_pd, 17)                       \
	X(REG_MR, reg_mr, 18)                         \
	X(REREG_MR, rereg_mr, 19)                     \
	X(DEREG_MR, dereg_mr, 20)                     \
	X(ALLOC_MW, alloc_mw, 21)                     \
	X(FREE_MW, free_mw, 22)                       \
	X(CREATE_AH, create_ah, 23)                   \
	X(DESTROY_AH, destroy_ah, 24)                 \
	X(OPEN_XRCD, open_xrcd, 25)                   \
	X(CLOSE_XRCD, close_xrcd, 26)                 \
	X(CREATE_CHANNEL, create_channel, 32)         \
	X(DESTROY_CHANNEL, destroy_channel, 33)       \
	X(CREATE_CQ, create_cq, 34)                   \
	X(MODIFY_CQ, modify_cq, 35)                   \
	X(DESTROY_CQ, destroy_cq, 36)                 \
	X(RESIZE_CQ, resize_cq, 37)                   \
	X(SWITCH_CQ, switch_cq, 38)                   \
	X(RAISE_CQ, raise_cq, 39)                     \
	X(CREATE_SRQ, create_srq, 40)                 \
	X(MODIFY_SRQ, modify_srq, 41)                 \
	X(QUERY_SRQ, query_srq, 42)                   \
	X(DESTROY_SRQ, destroy_srq, 43)               \
	X(CREATE_QP, create_qp, 48)                   \
	X(MODIFY_QP, modify_qp, 49)                   \
	X(QUERY_QP, query_qp, 50)                     \
	X(DESTROY_QP, destroy_qp, 51)                 \
	X(OPEN_QP, open_qp, 52)                       \
	X(RATE_QP, rate_qp, 53)                       \
	X(QUERY_ECE, query_ece, 54)                   \
	X(SET_ECE, set_ece, 55)                       \
	X(ATTACH_MCAST, attach_mcast, 56)             \
	X(DETACH_MCAST, detach_mcast, 57)             \
	X(CM_CREATE_CHANNEL, cm_create_channel, 64)   \
	X(CM_DESTROY_CHANNEL, cm_destroy_channel, 65) \
	X(CM_GET_EVENT, cm_get_event, 66)             \
	X(CM_CREATE_ID, cm_create_id, 67)             \
	X(CM_DESTROY_ID, cm_destroy_id, 68)           \
	X(CM_MIGRATE_ID, cm_migrate_id, 69)           \
	X(CM_BIND, cm_bind, 70)                       \
	X(CM_RESOLVE_ADDR, cm_resolve_addr, 71)       \
	X(CM_RESOLVE_ROUTE, cm_resolve_route, 72)     \
	X(CM_LISTEN, cm_listen, 73)                   \
	X(CM_CONNECT, cm_connect, 74)                 \
	X(CM_ACCEPT, cm_accept, 75)                   \
	X(CM_REJECT, cm_reject, 76)                   \
	X(CM_DISCONNECT, cm_disconnect, 77)           \
	X(CM_NOTIFY, cm_notify, 78)                   \
	X(CM_INIT_QP_ATTR, cm_init_qp_attr, 79)       \
	X(CM_QUERY, cm_query, 80)                     \
	X(CM_SET_OPTION, cm_set_option, 81)           \
	X(CM_JOIN_MCAST, cm_join_mcast, 82)           \
	X(CM_LEAVE_MCAST, cm_leave_mcast, 83)

enum karst_ctl_op {
#define X(NAME, name, value) KARST_CTL_##NAME = value,
	KARST_CTL_OPS(X)
#undef X
};

struct karst_ctl_hdr {
	uint32_t magic;   /* KARST_CTL_MAGIC */
	uint16_t version; /* KARST_CTL_VERSION */
	uint16_t op;      /* enum karst_ctl_op */
	uint32_t len;     /* bytes of the whole message */
	uint32_t seq;     /* chosen by the requester; the reply repeats it */
	int32_t status;   /* request: 0; reply: 0 or a negative errno */
	uint32_t nfds;    /* descriptors beside this message */
};
static_assert(sizeof(struct karst_ctl_hdr) == 24, "layout");

#define KARST_CTL_WHY 232u

/** Body of the reply to a failed request. */
struct karst_ctl_fault {
	char why[KARST_CTL_WHY]; /* UTF-8, terminated by 0 */
};

/* --- where shared memory is --- */

/**
 * A place in the ring memory of the connection: @off bytes from the start of memory file @chunk.
 */
struct karst_ctl_place {
	uint32_t chunk;
	uint32_t reserved;
	uint64_t off;
	uint64_t len;
};

/* --- attach, queries --- */

#define KARST_CTL_NAME 64u

/**
 * The first request.  Its descriptors: none, or one of the program's /proc/self/mem, open for
 * reading and writing.  Without it memory can be shared, but not copied.
 */
struct karst_ctl_hello_req {
	char program[KARST_CTL_NAME]; /* shown in telemetry and logs; terminated by 0 */
	uint32_t abi;                 /* KARST_RING_ABI of the program */
	uint32_t port; /* the only port whose events the program gets, from 1; 0: it gets all */
};

/**
 * Descriptors: the reading end of the stream of asynchronous events (struct karst_ctl_async), then
 * for each lcore an eventfd that wakes it.
 */
struct karst_ctl_hello_rsp {
	char engine[KARST_CTL_NAME]; /* the engine's name */
	char version[32];            /* version of karst */
	uint32_t abi;
	uint32_t nlcores;
	uint32_t nports;
	uint32_t client; /* number of this connection in telemetry and logs */
	uint32_t bell_cells;
	uint32_t nchunks; /* chunks that exist now; the program has to map and seal them first */
	int32_t engine_pid;
	uint32_t polite;                 /* 1: idle lcores yield their CPUs; 0: they do not */
	struct karst_ctl_place bell[64]; /* [nlcores]: struct karst_bell_shared */
	int32_t cpu[64]; /* [nlcores]: CPU that the lcore is bound to; -1: to no single one */
};

/** Returns the limits of this connection, and attributes of the device. */
struct karst_ctl_query_device_req {
	uint64_t reserved;
};
struct karst_ctl_query_device_rsp {
	uint64_t node_guid;
	uint64_t max_mr_bytes;
	uint32_t nports;
	uint32_t max_qp, max_qp_wr, max_sge, max_inline;
	uint32_t max_cq, max_cqe;
	uint32_t max_mr, max_mw, max_pd, max_ah;
	uint32_t max_srq, max_srq_wr, max_srq_sge;
	uint32_t max_qp_rd_atom;
	uint32_t max_channels;
	uint32_t max_mcasts; /* attachments of queue pairs to multicast groups */
	uint32_t max_xrcd;
	uint32_t max_mcast_qps; /* in one group, by all programs together */
	uint32_t ece;           /* 1: RC queue pairs support ECE (QUERY_ECE); 0: no */
};

struct karst_ctl_query_port_req {
	uint32_t port; /* from 1 */
	uint32_t reserved;
};
struct karst_ctl_query_port_rsp {
	uint8_t state; /* enum ibv_port_state: 1 down, 4 active */
	uint8_t max_mtu;
	uint8_t active_mtu; /* enum ibv_mtu */
	uint8_t mac[6];
	uint8_t reserved0;
	uint16_t vlan;
	uint16_t mtu; /* IP MTU */
	uint16_t reserved1;
	uint32_t gids; /* entries of the GID table, including empty ones */
	uint32_t mbps; /* 0: unknown */
	uint32_t reserved2;
	char name[KARST_CTL_NAME]; /* the port's name in the configuration */
	char netdev[16];           /* kernel interface; empty: none */
};

#define KARST_CTL_GIDS 64u

struct karst_ctl_query_gids_req {
	uint32_t port;
	uint32_t first;
};
struct karst_ctl_query_gids_rsp {
	uint32_t n; /* entries in this reply */
	uint32_t reserved;
	struct {
		uint8_t gid[16];
		uint16_t vlan; /* 0: none */
		uint8_t type;  /* 2: RoCEv2 */
		uint8_t valid;
		uint32_t ifindex;
	} gid[KARST_CTL_GIDS];
};

/**
 * Returns the memory file of a chunk for mapping.  Descriptor of the reply: the file, whose size is
 * sealed.
 */
struct karst_ctl_get_chunk_req {
	uint32_t chunk; /* KARST_CTL_CHUNK_UNSEALED, all ones: any that is not sealed */
	uint32_t reserved;
};
struct karst_ctl_get_chunk_rsp {
	uint64_t bytes;
	uint32_t chunk;
	uint32_t reserved;
};
#define KARST_CTL_CHUNK_UNSEALED UINT32_MAX

/**
 * Confirms that the program has mapped the chunk for writing: from now on no process can map it for
 * writing, or punch holes into it.  Until the chunks that HELLO reports are sealed, all other
 * requests except GET_CHUNK are refused with -ENOBUFS.  A request that needs a new chunk is refused
 * in the same way at any time; the program has to send it again when the chunk is sealed.
 */
struct karst_ctl_seal_chunk_req {
	uint32_t chunk;
	uint32_t reserved;
};
struct karst_ctl_seal_chunk_rsp {
	uint64_t reserved;
};

/* --- protection, memory --- */

struct karst_ctl_alloc_pd_req {
	uint64_t reserved;
};
struct karst_ctl_alloc_pd_rsp {
	uint32_t pd;
	uint32_t reserved;
};
struct karst_ctl_free_pd_req {
	uint32_t pd;
	uint32_t reserved;
};

/* How the engine reaches a piece of a region. */
enum karst_ctl_piece_kind {
	KARST_CTL_PIECE_COPY = 0, /* through the descriptor that came with HELLO */
	KARST_CTL_PIECE_FD = 1,   /* descriptor number fd of this message, at file_off */
	KARST_CTL_PIECE_VMA = 2,  /* a shared mapping of the program: /proc/PID/map_files */
};

/**
 * Pieces are adjacent and cover the region.  All except COPY are whole pages, in the page size of
 * the file.
 */
struct karst_ctl_piece {
	uint64_t addr;
	uint64_t len;
	uint64_t file_off;
	uint64_t vma_start, vma_end; /* VMA: as in the program's /proc/self/maps */
	uint32_t kind;               /* enum karst_ctl_piece_kind */
	int32_t fd;                  /* FD: index among the message's descriptors */
	uint32_t flags;              /* KARST_CTL_PIECE_* */
	uint32_t reserved;
};
#define KARST_CTL_PIECE_MIGRATED  (1u << 0) /* for statistics: the memory was private before */
#define KARST_CTL_PIECE_RDONLY    (1u << 1) /* the program itself cannot write there */
#define KARST_CTL_PIECE_ON_DEMAND (1u << 2) /* COPY: nothing has to be mapped until it is used */

#define KARST_CTL_MAX_PIECES 512u

struct karst_ctl_reg_mr_req {
	uint32_t pd;
	uint32_t access; /* enum karst_access */
	uint64_t addr;   /* address in the program */
	uint64_t len;
	uint64_t iova; /* first address for work requests and peers */
	uint32_t npieces;
	uint32_t reserved;
	struct karst_ctl_piece piece[]; /* [npieces] */
};
struct karst_ctl_reg_mr_rsp {
	uint32_t key;
	uint32_t reserved;
	uint64_t shared_bytes, migrated_bytes, copied_bytes;
};

/* Not of enum karst_rereg; not combined with those: changes the pieces by which the same bytes are
 * reached. pd, access and iova are 0, addr and len are unchanged.  The key can be used throughout.
 * -EBUSY: the region has the right to bind windows or the right for atomics */
#define KARST_CTL_REREG_PIECES (1u << 16)

struct karst_ctl_rereg_mr_req {
	uint32_t key;
	/* enum karst_rereg, or KARST_CTL_REREG_PIECES.  Without TRANSLATION npieces is 0.  If the
	 * new access includes writing and the old access did not, TRANSLATION is needed, too. */
	uint32_t what;
	uint32_t pd;
	uint32_t access;
	uint64_t addr;
	uint64_t len;
	uint64_t iova;
	uint32_t npieces;
	uint32_t reserved;
	struct karst_ctl_piece piece[];
};
struct karst_ctl_rereg_mr_rsp {
	uint32_t key;
	uint32_t reserved;
	uint64_t shared_bytes, migrated_bytes, copied_bytes;
};

/** After the reply the engine no longer accesses the memory. */
struct karst_ctl_dereg_mr_req {
	uint32_t key;
	uint32_t reserved;
};

struct karst_ctl_alloc_mw_req {
	uint32_t pd;
	uint32_t type; /* 1 or 2, enum ibv_mw_type */
};
struct karst_ctl_alloc_mw_rsp {
	uint32_t key;
	uint32_t reserved;
};
struct karst_ctl_free_mw_req {
	uint32_t key; /* as allocated; the low 8 bits are ignored */
	uint32_t reserved;
};

/* --- addresses: the engine resolves the path (neighbours, routes), which may take seconds --- */

struct karst_ctl_ah_attr {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t port_num; /* from 1 */
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t sl;
	uint8_t reserved[7];
};
static_assert(sizeof(struct karst_ctl_ah_attr) == 32, "layout");

/**
 * The path is resolved, which may take seconds.  With @no_wait the request is refused with -EAGAIN
 * as long as there is no answer; the program repeats it, and can send other requests meanwhile.
 */
struct karst_ctl_create_ah_req {
	uint32_t pd;
	uint32_t no_wait; /* 0 or 1 */
	struct karst_ctl_ah_attr attr;
};
struct karst_ctl_create_ah_rsp {
	uint32_t ah;
	uint32_t reserved;
};
struct karst_ctl_destroy_ah_req {
	uint32_t ah;
	uint32_t reserved;
};

/* --- XRC domains --- */

/**
 * Descriptors of the request: none (a private domain, which no other program can open), or one of
 * the file whose device and inode identify the domain, open for reading.  -EBADF, -EACCES: it is
 * not open for reading; -ENOENT: the domain does not exist and CREATE is not set; -EEXIST: it
 * exists and EXCL is set.
 */
struct karst_ctl_open_xrcd_req {
	uint32_t flags; /* KARST_CTL_XRCD_* */
	uint32_t reserved;
};
#define KARST_CTL_XRCD_CREATE (1u << 0)
#define KARST_CTL_XRCD_EXCL   (1u << 1)
struct karst_ctl_open_xrcd_rsp {
	uint32_t xrcd;
	uint32_t lcore; /* of all objects in the domain */
};
/** -EBUSY: the domain has SRQs or queue pairs of this connection. */
struct karst_ctl_close_xrcd_req {
	uint32_t xrcd;
	uint32_t reserved;
};

/* --- completion channels and queues --- */

/**
 * Descriptor of the reply: the reading end of a stream in which each event is one 8-byte cookie of
 * the CQ.  The writing end is non-blocking; the program chooses that for its own end.
 */
struct karst_ctl_create_channel_req {
	uint64_t reserved;
};
struct karst_ctl_create_channel_rsp {
	uint32_t channel;
	uint32_t reserved;
};
struct karst_ctl_destroy_channel_req {
	uint32_t channel;
	uint32_t reserved;
};

struct karst_ctl_create_cq_req {
	uint32_t entries;
	uint32_t channel;     /* 0: none, no events */
	uint64_t cookie;      /* identifies the CQ in events */
	uint32_t comp_vector; /* below nlcores */
	uint32_t flags;       /* enum karst_cq_flags */
};
struct karst_ctl_create_cq_rsp {
	uint32_t cq;
	uint32_t entries; /* of each lane */
	uint32_t nlanes;
	uint32_t reserved;
	struct karst_ctl_place place; /* struct karst_cq_shared */
	struct karst_ctl_place lanes; /* [nlanes]: struct karst_lane_shared and what follows it */
};
/** Raises the event of an armed queue now, whether or not anything completes. */
struct karst_ctl_raise_cq_req {
	uint32_t cq;
	uint32_t reserved;
};
/**
 * Moderation: an event after @count completions or @period_us after the first one, whichever is
 * sooner; 0, 0: without delay.
 */
struct karst_ctl_modify_cq_req {
	uint32_t cq;
	uint16_t count;
	uint16_t period_us;
};
struct karst_ctl_destroy_cq_req {
	uint32_t cq;
	uint32_t reserved;
};
/**
 * Creates lanes of another size, which are not used before SWITCH_CQ; lanes of an earlier RESIZE_CQ
 * are freed.
 */
struct karst_ctl_resize_cq_req {
	uint32_t cq;
	uint32_t entries;
};
struct karst_ctl_resize_cq_rsp {
	uint32_t entries; /* of each lane */
	uint32_t nlanes;
	struct karst_ctl_place lanes;
};
/**
 * The engine switches to the lanes of the last RESIZE_CQ and moves unread entries there.  Meanwhile
 * the program must not access the old or the new lanes.  Then the engine frees the old lanes.  If
 * the engine dies meanwhile, the lanes, old or new, whose word "live" is set are the valid ones.
 */
struct karst_ctl_switch_cq_req {
	uint32_t cq;
	uint32_t reserved;
};

/* --- shared receive queues --- */

struct karst_ctl_create_srq_req {
	uint32_t pd;
	uint32_t max_wr, max_sge, limit;
	uint64_t cookie; /* identifies the SRQ in asynchronous events */
	uint32_t type;   /* enum karst_srq_type */
	uint32_t xrcd;   /* XRC: its domain, and the CQ of its receives; else 0 */
	uint32_t cq;
	uint32_t reserved;
};
struct karst_ctl_create_srq_rsp {
	uint32_t srq;
	uint32_t max_wr; /* actual size */
	uint32_t max_sge;
	uint32_t stride;
	uint32_t lcore;
	uint32_t srqn;                /* XRC: its number in requests; else 0 */
	struct karst_ctl_place place; /* struct karst_wq_shared */
};
struct karst_ctl_modify_srq_req {
	uint32_t srq;
	uint32_t limit;
};
struct karst_ctl_query_srq_req {
	uint32_t srq;
	uint32_t reserved;
};
struct karst_ctl_query_srq_rsp {
	uint32_t max_wr, max_sge, limit, reserved;
};
struct karst_ctl_destroy_srq_req {
	uint32_t srq;
	uint32_t reserved;
};

/* --- queue pairs --- */

/**
 * XRC_SEND: recv_cq, srq, max_recv_wr and max_recv_sge are 0.  XRC_RECV: all members from pd to
 * max_inline are 0.
 */
struct karst_ctl_create_qp_req {
	uint32_t type; /* enum karst_qp_type */
	uint32_t pd;
	uint32_t send_cq, recv_cq;
	uint32_t srq; /* 0: own receive queue */
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
	uint32_t max_dest_rd_atomic;
	uint32_t flags;  /* KARST_CTL_QP_* */
	uint32_t lcore;  /* UINT32_MAX: the engine chooses */
	uint32_t xrcd;   /* XRC_RECV: its domain; else 0 */
	uint64_t cookie; /* identifies the QP in asynchronous events */
};
#define KARST_CTL_QP_SIG_ALL (1u << 0) /* every send request completes */
#define KARST_CTL_QP_CREDITS (1u << 1) /* end-to-end credits are advertised (Q9) */

struct karst_ctl_create_qp_rsp {
	uint32_t qp;
	uint32_t qpn;
	uint32_t lcore;
	/* actual sizes */
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
	uint32_t send_stride, recv_stride;
	struct karst_ctl_place sq; /* struct karst_wq_shared; len 0: none */
	struct karst_ctl_place rq; /* len 0: none */
};

struct karst_ctl_qp_attr {
	uint32_t qp_state, cur_qp_state;
	uint32_t path_mtu, qkey, rq_psn, sq_psn, dest_qpn, access_flags;
	uint16_t pkey_index;
	uint8_t en_sqd_async_notify, sq_draining;
	uint8_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num;
	uint8_t timeout, retry_cnt, rnr_retry;
	uint8_t path_mig_state;  /* enum karst_mig_state */
	uint16_t alt_pkey_index; /* with ALT_PATH; in replies 0 if there is no alternate path */
	uint8_t alt_port_num;    /* same as in alt_ah */
	uint8_t alt_timeout;
	struct karst_ctl_ah_attr ah;
	struct karst_ctl_ah_attr alt_ah;
};
static_assert(sizeof(struct karst_ctl_qp_attr) == 112, "layout");

#define KARST_CTL_QP_NO_WAIT (1u << 31) /* as no_wait of CREATE_AH, for AV and ALT_PATH */

struct karst_ctl_modify_qp_req {
	uint32_t qp;
	uint32_t mask; /* enum karst_qp_attr_mask, KARST_CTL_QP_NO_WAIT */
	struct karst_ctl_qp_attr attr;
};
/** Sets the rate limit, in RTR, RTS or SQD; RESET ends it. */
struct karst_ctl_rate_qp_req {
	uint32_t qp;
	uint32_t rate_kbps; /* KARST_RATE_LIMIT_MIN..MAX; 0: no limit */
	uint32_t burst;     /* bytes, up to KARST_RATE_BURST_MAX; 0: the engine chooses */
	uint32_t reserved;
};
/** Enhanced connection establishment: a vendor (24 bits) and options.  All 0: none. */
struct karst_ctl_ece {
	uint32_t vendor;
	uint32_t options;
};
/** -EOPNOTSUPP: not RC, or the engine's configuration disables ECE. */
struct karst_ctl_query_ece_req {
	uint32_t qp;
	uint32_t reserved;
};
/** What may be offered to the peer; after SET_ECE what is in effect, options of 0: nothing. */
struct karst_ctl_query_ece_rsp {
	struct karst_ctl_ece ece;
};
/**
 * In RESET or INIT: sets what the peer has offered or answered; RESET ends it.  -EINVAL: another
 * state, or another vendor; -EOPNOTSUPP as with QUERY_ECE.
 */
struct karst_ctl_set_ece_req {
	uint32_t qp;
	uint32_t reserved;
	struct karst_ctl_ece ece; /* all 0: the peer has sent none */
};
/** What is in effect; after an offer it is also the answer for the peer.  All 0: nothing. */
struct karst_ctl_set_ece_rsp {
	struct karst_ctl_ece ece;
};
struct karst_ctl_query_qp_req {
	uint32_t qp;
	uint32_t reserved;
};
struct karst_ctl_query_qp_rsp {
	struct karst_ctl_qp_attr attr;
};
struct karst_ctl_destroy_qp_req {
	uint32_t qp;
	uint32_t reserved;
};

/** Attaching a second time does nothing. */
struct karst_ctl_attach_mcast_req {
	uint32_t qp;
	uint32_t reserved;
	uint8_t gid[16]; /* of the group */
};
struct karst_ctl_detach_mcast_req {
	uint32_t qp;
	uint32_t reserved;
	uint8_t gid[16];
};

/**
 * Opens another handle on an XRC_RECV queue pair of any connection.  The handle can modify and
 * query the queue pair, which ends with its last handle.  -ENOENT: the domain has no queue pair of
 * that number.
 */
struct karst_ctl_open_qp_req {
	uint32_t xrcd;
	uint32_t qpn;
	uint64_t cookie; /* identifies the QP in asynchronous events */
};
struct karst_ctl_open_qp_rsp {
	uint32_t qp;
	uint32_t lcore;
};

/* Replies that contain only their status. */
#define KARST_CTL_PLAIN_REPLY(name)     \
	struct karst_ctl_##name##_rsp { \
		uint64_t reserved;      \
	}
KARST_CTL_PLAIN_REPLY(free_pd);
KARST_CTL_PLAIN_REPLY(dereg_mr);
KARST_CTL_PLAIN_REPLY(free_mw);
KARST_CTL_PLAIN_REPLY(destroy_ah);
KARST_CTL_PLAIN_REPLY(close_xrcd);
KARST_CTL_PLAIN_REPLY(destroy_channel);
KARST_CTL_PLAIN_REPLY(modify_cq);
KARST_CTL_PLAIN_REPLY(raise_cq);
KARST_CTL_PLAIN_REPLY(destroy_cq);
KARST_CTL_PLAIN_REPLY(switch_cq);
KARST_CTL_PLAIN_REPLY(modify_srq);
KARST_CTL_PLAIN_REPLY(destroy_srq);
KARST_CTL_PLAIN_REPLY(modify_qp);
KARST_CTL_PLAIN_REPLY(destroy_qp);
KARST_CTL_PLAIN_REPLY(rate_qp);
KARST_CTL_PLAIN_REPLY(attach_mcast);
KARST_CTL_PLAIN_REPLY(detach_mcast);

/* --- asynchronous events --- */

/** A record of the stream of asynchronous events; always written completely. */
struct karst_ctl_async {
	uint32_t event;  /* enum karst_async_event_code */
	uint32_t handle; /* of the CQ, SRQ or QP; a port's number; 0: the device */
	uint64_t cookie; /* the object's */
};
static_assert(sizeof(struct karst_ctl_async) == 16, "layout");

/* --- control connections --- */

/**
 * Carries a program's requests to an engine and the replies back: through a socket
 * (karst_ctl_socket_conn()), or by calls of a session in the same process (karst_session_conn()).
 * karst_open() uses a socket; karst_open_conn() accepts both.
 */
struct karst_ctl_conn {
	/**
	 * Makes one request and returns its reply; any thread, one at a time.  @fds belong to the
	 * caller; the receiver duplicates those that it keeps.  @rsp has room for KARST_CTL_MAX
	 * bytes, @rsp_fds for KARST_CTL_MAX_FDS descriptors, which the caller has to close.
	 * @return 0: there is a reply, of any status, which the caller checks against the request;
	 * if the reply does not match its request, the connection is broken.
	 * -EMFILE: there is a reply, but this process had no room for its descriptors; the reply
	 * then says that there were none.
	 * -EBADF, -ETOOMANYREFS: nothing was sent, since one of @fds is not open, or the kernel has
	 * too many descriptors in transit already.
	 * -EIO: the engine is gone, or the connection is broken.
	 * -ETIMEDOUT: no reply within the socket's receive timeout; the connection is broken.
	 */
	int (*call)(void *user, const void *req, size_t len, const int *fds, unsigned int nfds,
		void *rsp, size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds);
	/** Ends the attachment and destroys everything that belongs to it. */
	void (*close)(void *user);
	/** Passes @ns between two attempts of a request; any thread, also beside other calls.  The
	 * lcores of an engine in this process that are attached to the thread are polled
	 * meanwhile.  NULL: sleep. */
	void (*nap)(void *user, uint32_t ns);
	void *user;
	int hup_fd; /* poll() returns POLLHUP once the engine is gone; -1: there is none */
};

/* included here, since it uses the definitions above */
#include "karst_ctl_cm.h"

#endif /* KARST_CTL_H */
