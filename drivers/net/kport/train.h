/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Trains: UDP datagrams of one flow and one size (the last one may be shorter) as one frame of up
 * to 64 KiB, with the headers of the first and the payloads end to end.  The kernel calls that UDP
 * segmentation.  It divides the payload at every segment size.  Each piece gets the headers, with
 * its own lengths, and over IPv4 an identification that is one higher than that of the piece
 * before.
 *
 * The functions do no I/O and keep no state.  Received headers may be wrong: lengths are checked
 * against the actual number of bytes.
 */
#ifndef KPORT_TRAIN_H
#define KPORT_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Maximum length of the headers: Ethernet with a tag, IPv6 and UDP. */
#define KP_HEADERS_MAX 66u
/**
 * Maximum number of datagrams in a train that is sent, which is also Linux's limit for its own
 * sockets.
 */
#define KP_TRAIN_MAX 64u
/** The same for a received train: the maximum that any kernel makes. */
#define KP_TRAIN_MAX_RX 128u
/** Maximum length of an IP packet. */
#define KP_IP_MAX 65535u

/** Offsets of the headers of a datagram. */
struct kp_hdrs {
	uint8_t l3;    /**< offset of the IP header */
	uint8_t l4;    /**< of the UDP header */
	uint8_t bytes; /**< of all headers: where the payload begins */
	bool ip6;
};

/**
 * Finds the headers of a frame: Ethernet with at most one tag; IPv4 without options and not a
 * fragment, or IPv6 without extension headers; UDP.  @data has @len bytes, which may be only the
 * beginning of the frame.  @return false: it is another kind of frame.
 */
bool kp_hdrs_find(const uint8_t *data, size_t len, struct kp_hdrs *h);

/**
 * Returns the payload bytes that the headers announce; -1: the lengths of IP and UDP do not belong
 * to one datagram.
 */
int kp_hdrs_payload(const uint8_t *data, const struct kp_hdrs *h);

/**
 * Can a train begin with this frame of @len bytes, whose headers are @h at @data?  It must be a
 * whole datagram with correct lengths and without a UDP checksum.
 */
bool kp_train_begins(const uint8_t *data, size_t len, const struct kp_hdrs *h);

/**
 * Can the frame of @len bytes at @data be number @index of the train that begins at @first with @h?
 * The function compares headers.  It does not compare sizes, but it checks that the lengths in the
 * headers match @len.
 */
bool kp_train_joins(const uint8_t *first, const struct kp_hdrs *h, const uint8_t *data, size_t len,
	unsigned int index);

/**
 * Writes the headers of datagram @index of a train.  @first: headers of the train; @to: room for
 * @h->bytes, may be @first; @payload: payload bytes of this datagram.  The UDP checksum becomes 0.
 */
void kp_hdrs_of_one(uint8_t *to, const uint8_t *first, const struct kp_hdrs *h, unsigned int index,
	size_t payload);

/**
 * Writes the headers of a train in the form that the kernel expects from a sender: with the lengths
 * of the whole train, and with the sum of the pseudo header in place of the UDP checksum.
 * Parameters as above.
 */
void kp_hdrs_of_train(uint8_t *to, const uint8_t *first, const struct kp_hdrs *h, size_t payload);

/** Computes the checksum of an IPv4 header without options. */
void kp_ip4_checksum(uint8_t *l3);

/**
 * Returns the sum of the pseudo header, in the form that is put in place of the UDP checksum (not
 * inverted).
 */
uint16_t kp_pseudo_sum(const uint8_t *data, const struct kp_hdrs *h, size_t udp_len);

#endif /* KPORT_TRAIN_H */
