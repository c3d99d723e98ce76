/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Parses and builds messages of communication management: MADs of 256 bytes of management class 7
 * (U2, C1, C2).  Pure functions.  A message that is parsed and built again is the same bit for bit,
 * unless reserved bits were set.
 */
#ifndef KARST_CM_MSG_H
#define KARST_CM_MSG_H

#include "karst_base.h"

#define KARST_CM_MAD_LEN 256

/* Maximum private data of each message. */
#define KARST_CM_REQ_PRIVATE      92
#define KARST_CM_MRA_PRIVATE      222
#define KARST_CM_REJ_PRIVATE      148
#define KARST_CM_REP_PRIVATE      196
#define KARST_CM_RTU_PRIVATE      224
#define KARST_CM_DREQ_PRIVATE     220
#define KARST_CM_DREP_PRIVATE     224
#define KARST_CM_LAP_PRIVATE      168
#define KARST_CM_APR_PRIVATE      148
#define KARST_CM_SIDR_REQ_PRIVATE 216
#define KARST_CM_SIDR_REP_PRIVATE 136

#define KARST_CM_REJ_INFO 72 /* additional information in REJ, APR and SIDR REP */

/* The attribute id minus 0x10. */
enum karst_cm_kind {
	KARST_CM_REQ,
	KARST_CM_MRA,
	KARST_CM_REJ,
	KARST_CM_REP,
	KARST_CM_RTU,
	KARST_CM_DREQ,
	KARST_CM_DREP,
	KARST_CM_SIDR_REQ,
	KARST_CM_SIDR_REP,
	KARST_CM_LAP,
	KARST_CM_APR,
	KARST_CM_KINDS
};

/* Which message an MRA or REJ is about. */
enum karst_cm_about {
	KARST_CM_ABOUT_REQ = 0,
	KARST_CM_ABOUT_REP = 1,
	KARST_CM_ABOUT_OTHER = 2, /* REJ: none; MRA: a LAP */
};

enum karst_cm_rej_reason {
	KARST_CM_REJ_NO_QP = 1,
	KARST_CM_REJ_NO_EEC = 2,
	KARST_CM_REJ_NO_RESOURCES = 3,
	KARST_CM_REJ_TIMEOUT = 4, /* information: the sender's GUID */
	KARST_CM_REJ_UNSUPPORTED = 5,
	KARST_CM_REJ_INVALID_COMM_ID = 6,
	KARST_CM_REJ_INVALID_COMM_INSTANCE = 7,
	KARST_CM_REJ_INVALID_SERVICE_ID = 8,
	KARST_CM_REJ_INVALID_TRANSPORT_TYPE = 9,
	KARST_CM_REJ_STALE_CONN = 10,
	KARST_CM_REJ_RDC_NOT_EXIST = 11,
	KARST_CM_REJ_INVALID_GID = 12, /* information: an acceptable GID */
	KARST_CM_REJ_INVALID_LID = 13,
	KARST_CM_REJ_INVALID_SL = 14,
	KARST_CM_REJ_INVALID_TRAFFIC_CLASS = 15,
	KARST_CM_REJ_INVALID_HOP_LIMIT = 16,
	KARST_CM_REJ_INVALID_PACKET_RATE = 17,
	KARST_CM_REJ_INVALID_ALT_GID = 18,
	KARST_CM_REJ_INVALID_ALT_LID = 19,
	KARST_CM_REJ_INVALID_ALT_SL = 20,
	KARST_CM_REJ_INVALID_ALT_TRAFFIC_CLASS = 21,
	KARST_CM_REJ_INVALID_ALT_HOP_LIMIT = 22,
	KARST_CM_REJ_INVALID_ALT_PACKET_RATE = 23,
	KARST_CM_REJ_PORT_CM_REDIRECT = 24,
	KARST_CM_REJ_PORT_REDIRECT = 25,
	KARST_CM_REJ_INVALID_MTU = 26, /* information: an acceptable path MTU, one byte */
	KARST_CM_REJ_INSUFFICIENT_RESOURCES = 27,
	KARST_CM_REJ_CONSUMER_DEFINED = 28,
	KARST_CM_REJ_INVALID_RNR_RETRY = 29,
	KARST_CM_REJ_DUPLICATE_LOCAL_COMM_ID = 30,
	KARST_CM_REJ_INVALID_CLASS_VERSION = 31,
	KARST_CM_REJ_INVALID_FLOW_LABEL = 32,
	KARST_CM_REJ_INVALID_ALT_FLOW_LABEL = 33,
};

enum karst_cm_sidr_status {
	KARST_CM_SIDR_SUCCESS = 0,
	KARST_CM_SIDR_UNSUPPORTED = 1, /* the service id is not supported */
	KARST_CM_SIDR_REJECT = 2,      /* rejected by the service */
	KARST_CM_SIDR_NO_QP = 3,
	KARST_CM_SIDR_REDIRECT = 4,
	KARST_CM_SIDR_UNSUPPORTED_VERSION = 5,
};

enum karst_cm_apr_status {
	KARST_CM_APR_LOADED = 0,
	KARST_CM_APR_INVALID_COMM_ID = 1,
	KARST_CM_APR_UNSUPPORTED = 2,
	KARST_CM_APR_REJECTED = 3,
	KARST_CM_APR_REDIRECT = 4,
	KARST_CM_APR_IS_CURRENT = 5, /* the path is the current primary path */
	KARST_CM_APR_INVALID_QPN = 6,
	KARST_CM_APR_INVALID_LID = 7,
	KARST_CM_APR_INVALID_GID = 8,
	KARST_CM_APR_INVALID_FLOW_LABEL = 9,
	KARST_CM_APR_INVALID_TCLASS = 10,
	KARST_CM_APR_INVALID_HOP_LIMIT = 11,
	KARST_CM_APR_INVALID_RATE = 12,
	KARST_CM_APR_INVALID_SL = 13,
};

/* The answer in a REP about the alternate path of the REQ. */
enum karst_cm_failover {
	KARST_CM_FAILOVER_ACCEPTED = 0, /* or there was none */
	KARST_CM_FAILOVER_UNSUPPORTED = 1,
	KARST_CM_FAILOVER_REJECTED = 2,
};

/* Values of struct karst_cm_req's transport. */
enum karst_cm_transport {
	KARST_CM_TRANSPORT_RC = 0,
	KARST_CM_TRANSPORT_UC = 1,
	KARST_CM_TRANSPORT_RD = 2,
	KARST_CM_TRANSPORT_EXTENDED = 3, /* which: extended_transport */
	KARST_CM_EXTENDED_XRC = 1,
};

/**
 * Enhanced connection establishment: what the two ends of a vendor tell each other about their
 * abilities.  All 0: none.  karst_cm_ece.h defines the value of karst.
 */
struct karst_cm_ece {
	uint32_t vendor;  /* 24 bits: an OUI */
	uint32_t options; /* in the header of the MAD, defined by the vendor */
};

/** A path, as REQ and LAP carry it. */
struct karst_cm_wire_path {
	uint8_t local_gid[16];  /* the sender's */
	uint8_t remote_gid[16]; /* the receiver's */
	uint16_t local_lid;
	uint16_t remote_lid;
	uint32_t flow_label;
	uint8_t rate;
	uint8_t tclass;
	uint8_t hop_limit;
	uint8_t sl;
	uint8_t ack_timeout;
	bool subnet_local;
};

struct karst_cm_req {
	uint64_t service_id;
	uint64_t guid; /* the sender's */
	uint32_t qkey;
	uint32_t qpn;
	uint32_t eecn;
	uint32_t remote_eecn;
	uint32_t psn;
	uint16_t pkey;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t remote_response_timeout; /* how long the receiver may take to respond, as an
					  * exponent */
	uint8_t local_response_timeout;  /* how long the sender may take to respond */
	uint8_t transport;               /* enum karst_cm_transport */
	uint8_t extended_transport;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t mtu;
	uint8_t max_retries;
	bool flow_control;
	bool rdc_exists;
	bool srq;
	struct karst_cm_wire_path primary;
	struct karst_cm_wire_path alternate;
	struct karst_cm_ece ece;
};

struct karst_cm_rep {
	uint64_t guid;
	uint32_t qkey;
	uint32_t qpn;
	uint32_t eecn; /* XRC: the target's QP number is here */
	uint32_t psn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t target_ack_delay;
	uint8_t failover; /* enum karst_cm_failover */
	uint8_t rnr_retry_count;
	bool flow_control;
	bool srq;
	struct karst_cm_ece ece;
};

struct karst_cm_lap {
	uint32_t qpn; /* the receiver's */
	uint8_t remote_response_timeout;
	struct karst_cm_wire_path alternate;
};

struct karst_cm_msg {
	enum karst_cm_kind kind;
	uint64_t tid;
	uint32_t local_id;  /* the sender's; SIDR: the request id */
	uint32_t remote_id; /* the receiver's; not in REQ and SIDR */
	union {
		struct karst_cm_req req;
		struct karst_cm_rep rep;
		struct karst_cm_lap lap;
		struct {
			uint8_t message; /* enum karst_cm_about */
			uint8_t service_timeout;
		} mra;
		struct {
			uint8_t message; /* enum karst_cm_about */
			uint16_t reason;
		} rej;
		struct {
			uint32_t qpn; /* the receiver's */
		} dreq;
		struct {
			uint8_t status;
		} apr;
		struct {
			uint64_t service_id;
			uint16_t pkey;
		} sidr_req;
		struct {
			uint64_t service_id;
			uint32_t qpn;
			uint32_t qkey;
			uint8_t status;
		} sidr_rep;
	};
	/* REJ, APR, SIDR REP; parsed: points into the MAD */
	const uint8_t *info;
	uint8_t info_len; /* valid bytes of the KARST_CM_REJ_INFO bytes */
	/* If parsed: points into the MAD, and always has the full length. */
	const uint8_t *private_data;
	uint8_t private_data_len;
};

/** Returns the maximum private data of a message of @kind. */
unsigned int karst_cm_private_max(enum karst_cm_kind kind);
/** Returns the name, such as "REQ"; NULL if there is no such kind. */
const char *karst_cm_kind_name(enum karst_cm_kind kind);

/** The result of karst_cm_msg_parse(). */
enum karst_cm_parse {
	KARST_CM_PARSE_OK,
	KARST_CM_PARSE_LENGTH,    /* not 256 bytes */
	KARST_CM_PARSE_CLASS,     /* not a MAD of communication management */
	KARST_CM_PARSE_VERSION,   /* of that class, but of another version */
	KARST_CM_PARSE_METHOD,    /* not Send, or the status is not 0, or a modifier without
				   * meaning is not 0 */
	KARST_CM_PARSE_ATTRIBUTE, /* an unknown message */
	KARST_CM_PARSE_FIELD,     /* a length or kind in it is impossible */
};

/** @m is written only on success; it points into @mad. */
enum karst_cm_parse karst_cm_msg_parse(const void *mad, size_t len, struct karst_cm_msg *m);

/** The kind of a MAD that was built or parsed. */
enum karst_cm_kind karst_cm_mad_kind(const uint8_t *mad);

/** -EMSGSIZE: private data or information is too long for the message; @mad is unchanged. */
int karst_cm_msg_build(const struct karst_cm_msg *m, uint8_t mad[KARST_CM_MAD_LEN]);

#endif /* KARST_CM_MSG_H */
