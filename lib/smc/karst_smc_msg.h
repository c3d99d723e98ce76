/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Parsers and builders for the messages of SMC-R (RFC 7609, and version 2 as Linux sends it): CLC
 * on the TCP connection, LLC and CDC as SENDs on the queue pairs of a link group.  Pure functions.
 *
 * The parsers trust nothing: every length, count and offset is checked against the bytes received.
 * Fields that SMC-R does not use (all of SMC-D) are skipped, and not stored.
 */
#ifndef KARST_SMC_MSG_H
#define KARST_SMC_MSG_H

#include "karst_base.h"

/* --- CLC: on TCP, before and beside the data (S2) --- */

#define KARST_SMC_CLC_HDR_LEN 8
#define KARST_SMC_CLC_MAX_LEN \
	2048 /* of what is accepted; the longest message that has a meaning is shorter */
#define KARST_SMC_CLC_BUILD_MAX \
	544 /* the longest that is built: a proposal with all EIDs and prefixes */
#define KARST_SMC_EID_LEN      32
#define KARST_SMC_EIDS_MAX     8
#define KARST_SMC_GIDS_MAX     8
#define KARST_SMC_HOSTNAME_LEN 32

enum karst_smc_clc_type {
	KARST_SMC_CLC_PROPOSAL = 1,
	KARST_SMC_CLC_ACCEPT = 2,
	KARST_SMC_CLC_CONFIRM = 3,
	KARST_SMC_CLC_DECLINE = 4,
};

/* The offer of a proposal in each version (S2). */
enum karst_smc_mode {
	KARST_SMC_MODE_R = 0, /* SMC-R */
	KARST_SMC_MODE_D = 1, /* SMC-D, which needs hardware that karst does not use */
	KARST_SMC_MODE_N = 2, /* nothing */
	KARST_SMC_MODE_B = 3, /* both */
};

/* Identity of a system: in proposals of version 1, accepts and confirms. */
struct karst_smc_peer {
	uint8_t system_id[8]; /* instance number and a MAC of the system */
	uint8_t gid[16];      /* IPv4 as ::ffff:a.b.c.d */
	uint8_t mac[6];
};

struct karst_smc_prefix6 {
	uint8_t prefix[16];
	uint8_t len;
};

struct karst_smc_proposal {
	uint8_t version;            /* 1 or 2: the highest offered version */
	uint8_t mode1;              /* enum karst_smc_mode of version 1 ... */
	uint8_t mode2;              /* ... and of version 2; N if version is 1 */
	struct karst_smc_peer peer; /* zeros if version 1 is not offered */
	uint32_t subnet;            /* mode1 != N: that of the client's IPv4 address, host order */
	uint8_t subnet_len;
	uint8_t nprefixes;
	struct karst_smc_prefix6 prefixes[8]; /* IPv6 prefixes */
	/* version 2: */
	uint8_t release;
	uint8_t neids;
	uint8_t eids[KARST_SMC_EIDS_MAX][KARST_SMC_EID_LEN];
	uint8_t roce[16];  /* the RoCEv2 GID */
	uint8_t max_conns; /* from release 1 on; 0 before */
	uint8_t max_links;
	uint16_t features;
};

/** An Accept or a Confirm. */
struct karst_smc_accept {
	uint8_t version;
	bool first_contact;
	struct karst_smc_peer peer;
	uint32_t qpn;
	uint32_t psn; /* the first PSN that its sender uses */
	uint32_t rkey;
	uint8_t index;  /* of the element in the RMB, from 1 */
	uint32_t token; /* names the connection in CDC messages to the sender of this message */
	uint8_t size;   /* of the element: 2^(14 + size) */
	uint8_t mtu;    /* as enum ibv_mtu */
	uint64_t vaddr; /* of the RMB */
	/* version 2: */
	uint8_t eid[KARST_SMC_EID_LEN]; /* the EID that both have */
	/* version 2 and first contact: */
	bool direct; /* no router between the two */
	uint8_t release;
	uint8_t os;
	uint8_t hostname[KARST_SMC_HOSTNAME_LEN];
	uint8_t max_conns;
	uint8_t max_links;
	uint16_t features;
	uint8_t ngids; /* Confirm: GIDs that a second link may use */
	uint8_t gids[KARST_SMC_GIDS_MAX][16];
};

struct karst_smc_decline {
	uint8_t version;
	bool out_of_sync; /* the link group is not known: it cannot be used any more */
	uint8_t system_id[8];
	uint32_t reason; /* enum karst_smc_reason */
	uint8_t os;      /* version 2 */
};

struct karst_smc_clc {
	enum karst_smc_clc_type type;
	union {
		struct karst_smc_proposal proposal;
		struct karst_smc_accept accept; /* also Confirm */
		struct karst_smc_decline decline;
	};
};

/* Why a connection stays on TCP; the codes are those of RFC 7609 and of Linux. */
enum karst_smc_reason {
#define KARST_SMC_REASON(symbol, code, meaning) KARST_SMC_##symbol = code,
#include "karst_smc_reason.def"
#undef KARST_SMC_REASON
};

/** A short text; NULL for an unknown code. */
const char *karst_smc_reason_text(uint32_t reason);

/** True if these are the first bytes of a CLC message: @len may be less than its length. */
bool karst_smc_clc_begins(const void *buf, size_t len);
/**
 * Parses the message at the start of @buf.
 * @return its length; -EAGAIN: more bytes are needed; -EPROTO: it is no message, or malformed
 */
int karst_smc_clc_parse(const void *buf, size_t len, struct karst_smc_clc *msg);
/** Builds @msg.  @return its length, or -ENOSPC */
int karst_smc_clc_build(const struct karst_smc_clc *msg, void *buf, size_t room);

/* --- LLC: on the queue pairs, about links and keys (S3) --- */

#define KARST_SMC_LLC_LEN     44   /* of all messages of version 1, and most of version 2 */
#define KARST_SMC_LLC_MAX_LEN 8192 /* required size of receives (S3) */
#define KARST_SMC_RKEYS_MAX   255  /* in an ADD_LINK of version 2 */
#define KARST_SMC_LLC_BUILD_MAX \
	4152 /* the longest that is built: an ADD_LINK of version 2 with all keys */

enum karst_smc_llc_type {
	KARST_SMC_LLC_CONFIRM_LINK = 1,
	KARST_SMC_LLC_ADD_LINK = 2,
	KARST_SMC_LLC_ADD_LINK_CONT = 3,
	KARST_SMC_LLC_DELETE_LINK = 4,
	KARST_SMC_LLC_REQ_ADD_LINK = 5,
	KARST_SMC_LLC_CONFIRM_RKEY = 6,
	KARST_SMC_LLC_TEST_LINK = 7,
	KARST_SMC_LLC_CONFIRM_RKEY_CONT = 8,
	KARST_SMC_LLC_DELETE_RKEY = 9,
};
#define KARST_SMC_LLC_V2 0x20u /* in the type */
#define KARST_SMC_CDC    0xFEu

/* Flags. */
#define KARST_SMC_LLC_RESPONSE      0x80u
#define KARST_SMC_LLC_REJECTED      0x40u /* ADD_LINK */
#define KARST_SMC_LLC_ALL           0x40u /* DELETE_LINK */
#define KARST_SMC_LLC_ORDERLY       0x20u /* DELETE_LINK */
#define KARST_SMC_LLC_NEGATIVE      0x20u /* CONFIRM_RKEY, DELETE_RKEY */
#define KARST_SMC_LLC_RETRY         0x10u /* CONFIRM_RKEY */
#define KARST_SMC_LLC_NO_EYECATCHER 0x03u /* CONFIRM_LINK: elements have no eyecatchers */

/* Why a link is deleted. */
enum karst_smc_delete_reason {
	KARST_SMC_DEL_LOST_PATH = 0x00010000,
	KARST_SMC_DEL_OPERATOR = 0x00020000,
	KARST_SMC_DEL_PROGRAM = 0x00030000,
	KARST_SMC_DEL_PROTOCOL = 0x00040000,
	KARST_SMC_DEL_ASYMMETRIC = 0x00050000,
	KARST_SMC_DEL_UNKNOWN = 0x00100000, /* in an answer: there is no such link */
};

/* A key on another link, or a new key. */
struct karst_smc_rtoken {
	/* CONFIRM_RKEY: number of the other link; ADD_LINK: the key on the old link */
	uint32_t link;
	uint32_t rkey;
	uint64_t vaddr;
};

struct karst_smc_llc {
	enum karst_smc_llc_type type;
	bool v2;
	uint8_t flags;
	uint8_t reject_reason; /* ADD_LINK of version 1 */
	/* Which of these are valid depends on the type: */
	uint8_t mac[6];
	uint8_t gid[16];
	uint32_t qpn;
	uint32_t psn;
	uint8_t link; /* number of the link */
	uint8_t link_uid[4];
	uint8_t max_links;
	uint8_t max_conns;
	uint8_t mtu;
	bool direct;        /* ADD_LINK of version 2 */
	uint8_t target[16]; /* ADD_LINK of version 2: the GID to connect to */
	uint32_t reason;    /* DELETE_LINK */
	uint8_t user_data[16];
	uint8_t error_mask; /* DELETE_RKEY of version 1 */
	/* CONFIRM_RKEY: of other links; ADD_LINK_CONT: still to be sent, including the two at most
	 * in this message; else all */
	uint16_t nrtokens;
	struct karst_smc_rtoken first; /* CONFIRM_RKEY: for the link that carries the message */
	struct karst_smc_rtoken rtokens[KARST_SMC_RKEYS_MAX];
	uint8_t ngids; /* REQ_ADD_LINK of version 2 */
	uint8_t gids[KARST_SMC_GIDS_MAX][16];
};

/** 0; -EPROTO if it is no LLC message, malformed, or a CDC message. */
int karst_smc_llc_parse(const void *buf, size_t len, struct karst_smc_llc *msg);
/** @return its length, or -ENOSPC */
int karst_smc_llc_build(const struct karst_smc_llc *msg, void *buf, size_t room);
const char *karst_smc_llc_name(enum karst_smc_llc_type type);

/* --- CDC: on the queue pairs, about the data of one connection (S4) --- */

#define KARST_SMC_CDC_LEN 44

/* Flags of the producer. */
#define KARST_SMC_CDC_BLOCKED        0x80u
#define KARST_SMC_CDC_URGENT_PENDING 0x40u
#define KARST_SMC_CDC_URGENT         0x20u /* the byte before the producer's cursor */
#define KARST_SMC_CDC_UPDATE         0x10u /* asks for the consumer's cursor */
/* failover: asks whether everything up to here was received */
#define KARST_SMC_CDC_VALIDATE 0x08u
/* Flags of the connection. */
#define KARST_SMC_CDC_DONE_WRITING 0x80u
#define KARST_SMC_CDC_CLOSED       0x40u
#define KARST_SMC_CDC_ABORT        0x20u

struct karst_smc_cursor {
	uint16_t wrap;
	uint32_t count; /* less than the size of the element */
};

struct karst_smc_cdc {
	uint16_t seq;
	uint32_t token;
	struct karst_smc_cursor prod;
	struct karst_smc_cursor cons;
	uint8_t prod_flags;
	uint8_t conn_flags;
};

/** 0; -EPROTO */
int karst_smc_cdc_parse(const void *buf, size_t len, struct karst_smc_cdc *msg);
void karst_smc_cdc_build(const struct karst_smc_cdc *msg, uint8_t buf[KARST_SMC_CDC_LEN]);

/** Bytes of an element of size class @size. */
static inline uint32_t
karst_smc_size_bytes(uint8_t size)
{
	return 1u << (14 + size);
}
#define KARST_SMC_SIZE_MAX 15 /* of the format, 512 MiB */

/** The cursor of position @pos of a stream in an element of @bytes (a power of two). */
static inline struct karst_smc_cursor
karst_smc_cursor_of(uint64_t pos, uint32_t bytes)
{
	return (struct karst_smc_cursor){
		(uint16_t)(pos >> karst_log2(bytes)), (uint32_t)pos & (bytes - 1)};
}

/**
 * The distance of cursor @c from position @pos, in bytes; negative: @c is behind.  @c->count is
 * less than @bytes.  Wraps are counted modulo 2^16, so the result is right within 2^15 wraps.
 */
static inline int64_t
karst_smc_cursor_ahead(struct karst_smc_cursor c, uint64_t pos, uint32_t bytes)
{
	int16_t wraps = (int16_t)(uint16_t)(c.wrap - (uint16_t)(pos >> karst_log2(bytes)));

	return (int64_t)wraps * (int64_t)bytes + (int64_t)c.count - (int64_t)(pos & (bytes - 1));
}

#endif /* KARST_SMC_MSG_H */
