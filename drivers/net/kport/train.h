/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Trains: UDP datagrams of one flow and one size, the last one perhaps shorter, as one frame of up
 * to 64 KiB with the headers of the first and the payloads end to end.  It is what the kernel calls
 * UDP segmentation: it cuts the payload every segment size, and gives each piece the headers,
 * lengths of its own, and over IPv4 the identification of the one before plus one.
 *
 * Nothing here does I/O or keeps anything.  What arrives may lie: lengths are checked against the
 * bytes that are there.
 */
#ifndef KPORT_TRAIN_H
#define KPORT_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Most bytes of Ethernet with a tag, IPv6 and UDP headers. */
#define KP_HEADERS_MAX 66u
/** Datagrams in a train: what Linux takes from its own sockets, too. */
#define KP_TRAIN_MAX 64u
/** Likewise, taken from others: the most that any kernel makes. */
#define KP_TRAIN_MAX_RX 128u
/** Bytes of an IP packet. */
#define KP_IP_MAX 65535u

/** Where the headers of a datagram are. */
struct kp_hdrs {
	uint8_t l3;    /**< offset of the IP header */
	uint8_t l4;    /**< of the UDP header */
	uint8_t bytes; /**< of all headers: where the payload begins */
	bool ip6;
};

/**
 * Finds the headers of a frame: Ethernet with at most one tag, IPv4 without options that is no
 * fragment, or IPv6 without extension headers; UDP.  @data has @len bytes, which may be only its
 * beginning.  @return false: it is something else.
 */
bool kp_hdrs_find(const uint8_t *data, size_t len, struct kp_hdrs *h);

/**
 * Is this frame of @len bytes, which begins with @h at @data, a whole datagram whose lengths are
 * right and which has no UDP checksum?  Then a train may begin with it.
 */
bool kp_train_begins(const uint8_t *data, size_t len, const struct kp_hdrs *h);

/**
 * May the frame of @len bytes at @data be number @index of the train that begins at @first with @h?
 * The headers are compared, not the sizes, but for what the lengths say.
 */
bool kp_train_joins(const uint8_t *first, const struct kp_hdrs *h, const uint8_t *data, size_t len,
	unsigned int index);

/**
 * Writes the headers of datagram @index of a train.  @first: those of the train; @to: room for
 * @h->bytes, may be @first; @payload: bytes of this one.  The UDP checksum becomes 0.
 */
void kp_hdrs_of_one(uint8_t *to, const uint8_t *first, const struct kp_hdrs *h, unsigned int index,
	size_t payload);

/**
 * Writes the headers of a train as the kernel wants them from one who sends it: lengths of the
 * whole, and in place of the UDP checksum the sum of the pseudo header.  Parameters as above.
 */
void kp_hdrs_of_train(uint8_t *to, const uint8_t *first, const struct kp_hdrs *h, size_t payload);

/** Computes the checksum of an IPv4 header without options. */
void kp_ip4_checksum(uint8_t *l3);

/** The sum of the pseudo header, as it stands in place of the UDP checksum (not inverted). */
uint16_t kp_pseudo_sum(const uint8_t *data, const struct kp_hdrs *h, size_t udp_len);

#endif /* KPORT_TRAIN_H */
