/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Receiving and sending over a socket pair: the test writes what the kernel would write, which may
 * be wrong, and splits what the driver sends as the kernel would.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mempool.h>

#include <linux/if_packet.h>

#include "kport.h"

#define BUFS 1023u
#define ROOM 4352u

static struct {
	struct kp_port *port;
	struct rte_mempool *pool;
	struct kp_rxq *rx;
	struct kp_txq *tx;
	int peer;
} t;

static void
set_up(void)
{
	char *argv[] = {"kport", "--no-huge", "--no-shconf", "-m", "64", "--no-pci",
		"--no-telemetry", "--lcores=0", NULL};
	int fds[2], big = 1 << 22;

	cr_assert_geq(rte_eal_init(8, argv), 0);
	t.pool = rte_pktmbuf_pool_create(
		"bufs", BUFS, 0, 0, ROOM + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	cr_assert_not_null(t.pool);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), 0);
	setsockopt(fds[0], SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof(big));
	setsockopt(fds[1], SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof(big));
	t.peer = fds[1];
	t.port = calloc(1, sizeof(*t.port));
	t.port->data = calloc(1, sizeof(*t.port->data));
	t.port->roce = true;
	t.port->vnet = true;
	t.port->tx_trains = true;
	t.port->mtu = 9000;
	t.rx = calloc(1, sizeof(*t.rx));
	*t.rx = (struct kp_rxq){.fd = fds[0], .port = t.port, .pool = t.pool, .room = ROOM};
	t.tx = calloc(1, sizeof(*t.tx));
	t.tx->fd = fds[0];
	t.tx->port = t.port;
	cr_assert_eq(kp_rxq_init(t.rx), 0);
	kp_rxq_arm(t.rx);
}

/* Checks that all buffers are back. */
static void
tear_down(void)
{
	kp_rxq_fini(t.rx);
	cr_expect_eq(rte_mempool_avail_count(t.pool), BUFS, "%u buffers are back",
		rte_mempool_avail_count(t.pool));
	close(t.rx->fd);
	close(t.peer);
}

TestSuite(io, .init = set_up, .fini = tear_down, .timeout = 300);

/* --- frames --- */

static void
put16(uint8_t *p, unsigned int v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static uint8_t
byte_of(unsigned int datagram, size_t at)
{
	return (uint8_t)(datagram * 31 + at);
}

/* Writes a frame whose headers announce @pay bytes to @p.  @return bytes of headers. */
static size_t
headers(uint8_t *p, uint16_t id, size_t pay)
{
	memset(p, 0, 42);
	p[0] = p[6] = 2;
	put16(p + 12, 0x0800);
	p[14] = 0x45;
	put16(p + 16, (unsigned int)pay + 28);
	put16(p + 18, id);
	p[22] = 64;
	p[23] = 17;
	p[26] = p[30] = 10;
	p[33] = 1;
	kp_ip4_checksum(p + 14);
	put16(p + 34, 0xc001);
	put16(p + 36, 4791);
	put16(p + 38, (unsigned int)pay + 8);
	return 42;
}

static uint8_t message[sizeof(struct virtio_net_hdr) + 70000];

/* Writes a train of @n datagrams of @seg bytes, the last one of @last, numbered from @first. */
static size_t
write_train(uint16_t first, unsigned int n, size_t seg, size_t last)
{
	struct virtio_net_hdr v = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = n > 1 ? KP_GSO_UDP_L4 : 0,
		.gso_size = (uint16_t)(n > 1 ? seg : 0),
		.csum_start = 34,
		.csum_offset = 6};
	uint8_t *p = message + sizeof(v);
	size_t pay = (n - 1) * seg + last, i;

	memcpy(message, &v, sizeof(v));
	p += headers(p, first, pay);
	for (i = 0; i < pay; i++)
		p[i] = byte_of((unsigned int)(uint16_t)(first + i / seg), i % seg);
	return sizeof(v) + 42 + pay;
}

static void
deliver(size_t len)
{
	cr_assert_eq(write(t.peer, message, len), (ssize_t)len);
}

/* Expects that the next datagram is number @id, with @pay bytes. */
static void
expect_datagram(const struct rte_mbuf *m, uint16_t id, size_t pay)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);
	uint8_t want[42];
	size_t i;

	headers(want, id, pay);
	cr_assert_eq(m->pkt_len, 42 + pay, "%u bytes of %zu", m->pkt_len, 42 + pay);
	cr_assert_eq(m->nb_segs, 1);
	cr_assert_arr_eq(p, want, 42, "headers of %u", id);
	for (i = 0; i < pay; i++)
		cr_assert_eq(p[42 + i], byte_of(id, i), "byte %zu of %u", i, id);
}

static unsigned int
receive(struct rte_mbuf **bufs, unsigned int most)
{
	unsigned int n = 0, got;

	while (n < most && (got = kp_rx_burst(t.rx, bufs + n, (uint16_t)(most - n))) > 0)
		n += got;
	return n;
}

/* --- receiving --- */

/* Any sequence of sizes, whether the driver guesses the size or not. */
Test(io, trains_of_all_sizes_arrive)
{
	static const size_t sizes[] = {16, 92, 511, 512, 1040, 1056, 4112, 4128, 4310};
	unsigned int seed = (unsigned int)getpid(), round, i, k, copied = 0;
	struct rte_mbuf *bufs[KP_TRAIN_MAX_RX];
	uint16_t id = 65000;

	cr_log_info("seed %u", seed);
	for (round = 0; round < 600; round++) {
		size_t seg = sizes[(unsigned int)rand_r(&seed) % RTE_DIM(sizes)], last;
		unsigned int again = 1 + (unsigned int)rand_r(&seed) % 3;
		unsigned int n = 1 + (unsigned int)rand_r(&seed) % KP_TRAIN_MAX;

		n = RTE_MIN(n, (unsigned int)(65000 / seg));
		last = 1 + (size_t)rand_r(&seed) % seg;
		for (k = 0; k < again; k++) {
			deliver(write_train(id, n, seg, last));
			cr_assert_eq(receive(bufs, RTE_DIM(bufs)), n, "seed %u", seed);
			for (i = 0; i < n; i++)
				expect_datagram(
					bufs[i], (uint16_t)(id + i), i < n - 1 ? seg : last);
			rte_pktmbuf_free_bulk(bufs, n);
			id = (uint16_t)(id + n);
		}
	}
	copied = (unsigned int)t.rx->stats.copied;
	cr_assert(copied > 0 && copied < t.rx->stats.datagrams);
	cr_assert_eq(t.rx->stats.bad, 0);
}

/* --- the ring, in which the test plays the kernel --- */

#define SLOTS 8u

static struct kp_ring ring;
static uint8_t *slots;
static uint32_t filled;

static void
ring_up(void)
{
	slots = aligned_alloc(4096, SLOTS * KP_RING_SLOT);
	cr_assert_not_null(slots);
	memset(slots, 0, SLOTS * KP_RING_SLOT);
	ring = (struct kp_ring){.base = slots, .mask = SLOTS - 1};
	t.rx->ring = &ring;
	filled = 0;
}

/* Puts the message into the next slot, as much as fits; @status in addition to the bit that it is
 * there. */
static void
fill_slot(size_t len, uint32_t status)
{
	struct tpacket2_hdr *h =
		(struct tpacket2_hdr *)(slots + (size_t)(filled++ % SLOTS) * KP_RING_SLOT);
	size_t room = KP_RING_SLOT - 66;

	cr_assert_eq(h->tp_status, TP_STATUS_KERNEL, "a slot was not handed back");
	h->tp_mac = 76;
	h->tp_len = (uint32_t)(len - sizeof(struct virtio_net_hdr));
	memcpy((uint8_t *)h + 66, message, RTE_MIN(len, room));
	h->tp_snaplen = (uint32_t)(RTE_MIN(len, room) - sizeof(struct virtio_net_hdr));
	h->tp_status = TP_STATUS_USER | status;
}

/* The kernel has removed a tag. */
static void
tag_slot(size_t len, uint16_t tci)
{
	struct tpacket2_hdr *h =
		(struct tpacket2_hdr *)(slots + (size_t)(filled % SLOTS) * KP_RING_SLOT);

	h->tp_vlan_tci = tci;
	h->tp_vlan_tpid = 0x8100;
	fill_slot(len, TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID);
}

static void
fill_long(size_t len)
{
	deliver(len);
	fill_slot(len, TP_STATUS_COPY);
}

static void
expect_ids(struct rte_mbuf **bufs, unsigned int n, uint16_t first, size_t pay)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		expect_datagram(bufs[i], (uint16_t)(first + i), pay);
	rte_pktmbuf_free_bulk(bufs, n);
}

/* Frames in slots, trains in slots and frames that are too long for a slot come in the order in
 * which they arrived, however many a poll takes. */
Test(io, slots_and_messages_are_in_order)
{
	unsigned int round, i, most;
	struct rte_mbuf *bufs[128];

	ring_up();
	for (round = 0; round < 64; round++) {
		uint16_t id = (uint16_t)(round * 32);

		fill_slot(write_train(id, 1, 100, 100), 0);
		fill_long(write_train((uint16_t)(id + 1), 1, 3000, 3000));
		fill_slot(write_train((uint16_t)(id + 2), 5, 100, 100), 0);
		fill_long(write_train((uint16_t)(id + 7), 10, 1000, 1000));
		fill_long(write_train((uint16_t)(id + 17), 1, 4000, 4000));
		fill_slot(write_train((uint16_t)(id + 18), 1, 1, 1), 0);
		most = 1 + round % 8;
		for (i = 0; i < 19;) {
			unsigned int got = kp_rx_burst(t.rx, bufs + i, (uint16_t)most);

			cr_assert(got >= 1 && got <= most, "%u of %u after %u", got, most, i);
			i += got;
		}
		cr_assert_eq(kp_rx_burst(t.rx, bufs + i, 8), 0);
		expect_ids(bufs, 1, id, 100);
		expect_ids(bufs + 1, 1, (uint16_t)(id + 1), 3000);
		expect_ids(bufs + 2, 5, (uint16_t)(id + 2), 100);
		expect_ids(bufs + 7, 10, (uint16_t)(id + 7), 1000);
		expect_ids(bufs + 17, 1, (uint16_t)(id + 17), 4000);
		expect_ids(bufs + 18, 1, (uint16_t)(id + 18), 1);
	}
	cr_assert_eq(ring.owed, 0);
	cr_assert_eq(t.rx->stats.missed, 0);
	free(slots);
}

/* The kernel removes tags.  They are in the frames again, unless the program has asked for tags
 * beside the frames. */
Test(io, tags)
{
	const uint8_t tag[6] = {0x81, 0, 0x20, 100, 8, 0};
	struct rte_mbuf *bufs[4];
	unsigned int i, strip;

	ring_up();
	t.port->tags = true;
	for (strip = 0; strip < 2; strip++) {
		t.port->strip = strip != 0;
		tag_slot(write_train(1, 1, 64, 64), 0x2064);
		tag_slot(write_train(2, 2, 100, 100), 0x2064);
		cr_assert_eq(receive(bufs, 4), 3);
		for (i = 0; i < 3; i++) {
			const uint8_t *p = rte_pktmbuf_mtod(bufs[i], const uint8_t *);
			bool flag = (bufs[i]->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;

			cr_assert_eq(flag, strip != 0);
			if (strip != 0) {
				cr_assert_eq(bufs[i]->vlan_tci, 0x2064);
				continue;
			}
			cr_assert_arr_eq(p + 12, tag, sizeof(tag));
			/* as if it had not been there */
			memmove(rte_pktmbuf_adj(bufs[i], 4), p, 12);
		}
		expect_ids(bufs, 1, 1, 64);
		expect_ids(bufs + 1, 2, 2, 100);
	}
	free(slots);
}

/* The socket had no room for the whole message: what comes behind it is not affected. */
Test(io, what_was_cut_is_missed)
{
	struct rte_mbuf *bufs[4];

	ring_up();
	fill_slot(write_train(1, 1, 4000, 4000), 0);
	fill_slot(write_train(2, 1, 64, 64), 0);
	cr_assert_eq(receive(bufs, 4), 1);
	expect_ids(bufs, 1, 2, 64);
	cr_assert_eq(t.rx->stats.missed, 1);
	free(slots);
}

/* Frames from before a stop are not received after it, and the ring continues where it was. */
Test(io, a_stop_empties_the_ring)
{
	struct rte_mbuf *bufs[4];

	ring_up();
	fill_slot(write_train(1, 1, 64, 64), 0);
	fill_slot(write_train(2, 1, 4000, 4000), TP_STATUS_COPY);
	ring.owed = 3;
	kp_ring_drop(&ring);
	fill_slot(write_train(3, 1, 64, 64), 0);
	cr_assert_eq(receive(bufs, 4), 1);
	expect_ids(bufs, 1, 3, 64);
	free(slots);
}

/* A message that is missing for a slot is received before anything else, if it comes late; and
 * nothing waits for a message that does not exist. */
Test(io, what_is_owed)
{
	struct rte_mbuf *bufs[4];
	size_t len = write_train(1, 1, 4000, 4000);

	ring_up();
	fill_slot(len, TP_STATUS_COPY);
	cr_assert_eq(receive(bufs, 4), 0, "the socket has nothing");
	fill_long(write_train(2, 1, 4000, 4000));
	fill_slot(write_train(3, 1, 64, 64), 0);
	cr_assert_eq(receive(bufs, 4), 2);
	expect_ids(bufs, 1, 2, 4000);
	expect_ids(bufs + 1, 1, 3, 64);
	free(slots);
}

/* From the second train of its size on, none is copied. */
Test(io, trains_of_one_size_are_not_copied)
{
	struct rte_mbuf *bufs[64];
	unsigned int i;

	for (i = 0; i < 30; i++) {
		uint64_t before = t.rx->stats.copied;

		deliver(write_train((uint16_t)(i * 15), 15, 4112, 4112));
		cr_assert_eq(receive(bufs, 64), 15);
		rte_pktmbuf_free_bulk(bufs, 15);
		/* those for which buffers were prepared before the first one came */
		cr_assert(i < KP_RX_SLOTS || t.rx->stats.copied == before, "train %u", i);
	}
}

/* Trains whose datagrams are a little longer than expected are not copied, either: such as the last
 * packet of a READ response and the first of the next, which have an AETH (4 bytes), between
 * trains of packets that have none. */
Test(io, slightly_longer_trains_are_not_copied)
{
	static const size_t more[] = {4, 4, 20, 4, 32, 8};
	struct rte_mbuf *bufs[64];
	uint16_t id = 1;
	unsigned int i;

	for (i = 0; i < 60; i++) {
		size_t seg = 4112 + more[i % RTE_DIM(more)], last = i % 5 == 0 ? seg - i : seg;
		unsigned int n = more[i % RTE_DIM(more)] == 4 ? 2 + i % 3 : 2;
		uint64_t before;

		deliver(write_train(id, 14, 4112, 4112));
		cr_assert_eq(receive(bufs, 64), 14);
		expect_ids(bufs, 14, id, 4112);
		id = (uint16_t)(id + 14);
		before = t.rx->stats.copied;
		deliver(write_train(id, n, seg, last));
		cr_assert_eq(receive(bufs, 64), n);
		expect_datagram(bufs[n - 1], (uint16_t)(id + n - 1), last);
		rte_pktmbuf_free(bufs[n - 1]);
		expect_ids(bufs, n - 1, id, seg);
		id = (uint16_t)(id + n);
		/* as above */
		cr_assert(i < KP_RX_SLOTS || t.rx->stats.copied == before, "train %u", i);
	}
	cr_assert_eq(t.rx->stats.bad, 0);
}

static void
expect_bad(const struct virtio_net_hdr *v, size_t len, const char *what)
{
	uint64_t before = t.rx->stats.bad;
	struct rte_mbuf *bufs[KP_TRAIN_MAX_RX];

	if (v != NULL)
		memcpy(message, v, sizeof(*v));
	deliver(len);
	cr_assert_eq(receive(bufs, RTE_DIM(bufs)), 0, "%s", what);
	cr_assert_eq(t.rx->stats.bad, before + 1, "%s", what);
}

Test(io, lies_are_counted_as_bad)
{
	const struct virtio_net_hdr honest = {
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_type = KP_GSO_UDP_L4, .gso_size = 1000};
	struct virtio_net_hdr v = honest;
	size_t len = write_train(1, 5, 1000, 1000);
	unsigned int i;

	v.gso_size = 0;
	expect_bad(&v, len, "no segment size");
	v.gso_size = 1;
	expect_bad(&v, len, "5000 datagrams");
	for (i = 1; i < 256; i++) {
		v = honest;
		v.gso_type = (uint8_t)i;
		if (i != KP_GSO_UDP_L4)
			expect_bad(&v, len, "another kind");
	}
	for (i = 0; i < sizeof(honest) + 43; i++)
		if (i < sizeof(honest) || i > sizeof(honest))
			expect_bad(&honest, i, "cut");
	message[sizeof(v) + 14] = 0x46;
	expect_bad(NULL, len, "options");
	write_train(1, 5, 1000, 1000);
	message[sizeof(v) + 23] = 6;
	expect_bad(NULL, len, "TCP");
	message[sizeof(v) + 12] = 0x86;
	message[sizeof(v) + 13] = 0xdd;
	expect_bad(NULL, len, "not IPv6");
	write_train(1, 5, 1000, 1000);
	expect_bad(NULL, sizeof(v) + 14 + 65536, "longer than IP");
}

/* A frame that does not fit into any buffer is dropped, and the next one is not affected. */
Test(io, what_is_too_long_is_dropped)
{
	struct rte_mbuf *bufs[64];

	deliver(write_train(7, 1, 5000, 5000));
	deliver(write_train(9, 3, 5000, 100));
	deliver(write_train(20, 1, 100, 100));
	cr_assert_eq(receive(bufs, 64), 2);
	expect_datagram(bufs[0], 11, 100);
	expect_datagram(bufs[1], 20, 100);
	rte_pktmbuf_free_bulk(bufs, 2);
	cr_assert_eq(t.rx->stats.too_long, 3);
}

/* Without buffers datagrams are lost and counted, and with buffers they arrive again. */
Test(io, without_buffers)
{
	struct rte_mbuf *bufs[64], *hold[BUFS];
	unsigned int n = 0, i;

	for (i = 0; i < 2 * KP_RX_SLOTS; i++) {
		deliver(write_train(0, 15, 4112, 4112));
		n = receive(bufs, 64);
		rte_pktmbuf_free_bulk(bufs, n);
	}
	for (n = 0; n < BUFS && (hold[n] = rte_pktmbuf_alloc(t.pool)) != NULL; n++)
		;
	for (i = 0; i < 4 * KP_RX_SLOTS; i++) {
		unsigned int got;

		deliver(write_train(0, 15, 4112, 4112));
		got = receive(bufs, 64);
		cr_assert_leq(got, 15);
		/* they are kept: there are fewer and fewer */
		for (; got > 0; got--)
			hold[n++] = bufs[got - 1];
	}
	cr_assert_gt(t.rx->stats.no_bufs, 0);
	rte_pktmbuf_free_bulk(hold, n);
	for (i = 0; i < 2 * KP_RX_SLOTS; i++) {
		deliver(write_train(0, 15, 4112, 4112));
		n = receive(bufs, 64);
		rte_pktmbuf_free_bulk(bufs, n);
	}
	cr_assert_eq(n, 15);
}

/* --- sending --- */

static uint8_t *
append(struct rte_mbuf *m, size_t len)
{
	char *p = rte_pktmbuf_append(m, (uint16_t)len);

	cr_assert_not_null(p);
	return (uint8_t *)p;
}

static struct rte_mbuf *
make_frame(uint16_t id, size_t pay)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(t.pool);
	uint8_t *p = append(m, 42 + pay);
	size_t i;

	headers(p, id, pay);
	for (i = 0; i < pay; i++)
		p[42 + i] = byte_of(id, i);
	return m;
}

/* Receives one message and checks its datagrams, which start with @id.  @return how many. */
static unsigned int
expect_message(uint16_t id, size_t seg)
{
	ssize_t len = read(t.peer, message, sizeof(message));
	struct virtio_net_hdr v;
	const uint8_t *p = message + sizeof(v) + 42;
	size_t pay, i;

	cr_assert_gt(len, (ssize_t)sizeof(v) + 42);
	memcpy(&v, message, sizeof(v));
	pay = (size_t)len - sizeof(v) - 42;
	if (v.gso_type == 0) {
		cr_assert_eq(pay, seg);
	} else {
		cr_assert(v.gso_type == KP_GSO_UDP_L4 && v.flags == VIRTIO_NET_HDR_F_NEEDS_CSUM);
		cr_assert(v.csum_start == 34 && v.csum_offset == 6 && v.gso_size == seg);
	}
	for (i = 0; i < pay; i++)
		cr_assert_eq(p[i], byte_of((uint16_t)(id + i / seg), i % seg), "byte %zu", i);
	return (unsigned int)((pay + seg - 1) / seg);
}

Test(io, frames_in_a_row_make_trains)
{
	struct rte_mbuf *bufs[40];
	unsigned int i;

	/* WRITE of 64 KiB and the start of the next one: first, 15 others, first, one other */
	for (i = 0; i < 18; i++)
		bufs[i] = make_frame((uint16_t)(65530 + i), i == 0 || i == 16 ? 4128 : 4112);
	cr_assert_eq(kp_tx_burst(t.tx, bufs, 18), 18);
	cr_assert_eq(expect_message(65530, 4128), 1);
	cr_assert_eq(expect_message(65531, 4112), 15);
	/* the shorter last */
	cr_assert_eq(expect_message((uint16_t)(65530 + 16), 4128), 2);
	/* a gap in the identifications, another flow, a checksum */
	for (i = 0; i < 8; i++)
		bufs[i] = make_frame((uint16_t)(i < 2 ? i : i + 10), 100);
	rte_pktmbuf_mtod(bufs[4], uint8_t *)[35] = 2;
	rte_pktmbuf_mtod(bufs[6], uint8_t *)[41] = 1;
	cr_assert_eq(kp_tx_burst(t.tx, bufs, 8), 8);
	cr_assert_eq(expect_message(0, 100), 2);
	cr_assert_eq(expect_message(12, 100), 2);
	cr_assert_eq(expect_message(14, 100), 1);
	cr_assert_eq(expect_message(15, 100), 1);
	cr_assert_eq(expect_message(16, 100), 1);
	cr_assert_eq(expect_message(17, 100), 1);
	cr_assert_eq(t.tx->stats.frames, 26);
	cr_assert_eq(t.tx->stats.datagrams, 21);
}

/* A chain of mbufs as DPDK defines it, of segments that are independent of the datagrams' sizes. */
static struct rte_mbuf *
make_chain(uint16_t id, size_t seg, size_t pay)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(t.pool);
	size_t i;

	headers(append(m, 42), id, pay);
	for (i = 0; i < pay; i++) {
		uint8_t *p;

		if (i % 1009 == 0) {
			struct rte_mbuf *more = rte_pktmbuf_alloc(t.pool);

			cr_assert_eq(rte_pktmbuf_chain(m, more), 0);
		}
		p = append(m, 1);
		*p = byte_of((uint16_t)(id + i / seg), i % seg);
	}
	m->ol_flags = RTE_MBUF_F_TX_UDP_SEG | RTE_MBUF_F_TX_IPV4;
	m->l2_len = 14;
	m->l3_len = 20;
	m->l4_len = 8;
	m->tso_segsz = (uint16_t)seg;
	return m;
}

Test(io, trains_of_a_program)
{
	struct rte_mbuf *bufs[2] = {make_chain(3, 1040, 9 * 1040 + 5), make_chain(40, 16, 16)};
	unsigned int i;

	cr_assert_eq(kp_tx_burst(t.tx, bufs, 2), 2);
	cr_assert_eq(expect_message(3, 1040), 10);
	cr_assert_eq(expect_message(40, 16), 1);
	/* where the kernel does not accept trains they are split */
	t.port->tx_trains = false;
	bufs[0] = make_chain(3, 1040, 9 * 1040 + 5);
	bufs[1] = make_frame(99, 100);
	cr_assert_eq(kp_tx_burst(t.tx, bufs, 2), 2);
	for (i = 0; i < 9; i++)
		cr_assert_eq(expect_message((uint16_t)(3 + i), 1040), 1);
	cr_assert_eq(expect_message(12, 5), 1);
	cr_assert_eq(expect_message(99, 100), 1);
	cr_assert_eq(t.tx->stats.errors, 0);
}

/* The kernel does not compare the datagrams of a train with the interface's MTU.  Those that are
 * too long are sent alone, so that it refuses them; the kernel's side of a tap takes any. */
Test(io, no_trains_beyond_the_mtu)
{
	struct rte_mbuf *bufs[2];
	unsigned int i, tap;

	t.port->mtu = 1500;
	for (tap = 0; tap < 2; tap++) {
		t.port->tap = tap != 0;
		bufs[0] = make_frame(1, 1472);
		bufs[1] = make_frame(2, 1472);
		cr_assert_eq(kp_tx_burst(t.tx, bufs, 2), 2);
		cr_assert_eq(expect_message(1, 1472), 2);
		bufs[0] = make_frame(1, 1473);
		bufs[1] = make_frame(2, 1473);
		cr_assert_eq(kp_tx_burst(t.tx, bufs, 2), 2);
		for (i = 0; i < 2; i += 1 + tap)
			cr_assert_eq(expect_message((uint16_t)(1 + i), 1473), 1 + tap);
		bufs[0] = make_chain(1, 1473, 2 * 1473);
		cr_assert_eq(kp_tx_burst(t.tx, bufs, 1), 1);
		for (i = 0; i < 2; i += 1 + tap)
			cr_assert_eq(expect_message((uint16_t)(1 + i), 1473), 1 + tap);
	}
}

/* The offload of the checksum changes no length: what pads a short frame is not sent as payload.  A
 * datagram that claims to be longer than its frame is refused. */
Test(io, a_padded_datagram)
{
	struct rte_mbuf *bufs[2] = {make_frame(7, 18), make_frame(8, 18)};
	struct virtio_net_hdr v;
	uint8_t want[42];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		headers(rte_pktmbuf_mtod(bufs[i], uint8_t *), (uint16_t)(7 + i), i == 0 ? 4 : 19);
		bufs[i]->ol_flags = RTE_MBUF_F_TX_UDP_CKSUM | RTE_MBUF_F_TX_IPV4;
	}
	cr_assert_eq(kp_tx_burst(t.tx, bufs, 2), 2);
	cr_assert_eq(expect_message(7, 4), 1);
	headers(want, 7, 4);
	cr_assert_arr_eq(message + sizeof(v), want, 40, "the headers are the same");
	cr_assert_eq(recv(t.peer, message, sizeof(message), MSG_DONTWAIT), -1);
	cr_assert_eq(t.tx->stats.errors, 1);
}

/* What cannot be sent is counted, and its buffers are freed. */
Test(io, impossible_offloads)
{
	struct rte_mbuf *bufs[3] = {make_chain(3, 1040, 100), make_frame(7, 10), make_frame(8, 10)};

	bufs[0]->tso_segsz = 0;
	rte_pktmbuf_mtod(bufs[1], uint8_t *)[23] = 6;
	bufs[1]->ol_flags = RTE_MBUF_F_TX_UDP_CKSUM;
	cr_assert_eq(kp_tx_burst(t.tx, bufs, 3), 3);
	cr_assert_eq(t.tx->stats.errors, 2);
	cr_assert_eq(expect_message(8, 10), 1);
}

/* Frames without room stay the caller's. */
Test(io, a_full_socket_pushes_back)
{
	struct rte_mbuf *bufs[32];
	unsigned int i, sent, total = 0, read_back = 0, id = 0;

	do {
		for (i = 0; i < 32; i++)
			bufs[i] = make_frame((uint16_t)(id + i), 4112);
		sent = kp_tx_burst(t.tx, bufs, 32);
		total += sent;
		id += 32;
		rte_pktmbuf_free_bulk(bufs + sent, 32 - sent);
	} while (sent == 32);
	cr_assert_eq(t.tx->stats.full, 1);
	cr_assert_eq(t.tx->stats.frames, total);
	while (read_back < total)
		read_back += expect_message((uint16_t)read_back, 4112);
	cr_assert_eq(read_back, total);
}

/* The socket has no room for all segments of a train.  Those that were sent are not sent again: the
 * peer would get them twice. */
Test(io, a_socket_that_is_full_in_the_middle_of_a_train)
{
	struct rte_mbuf *buf = make_chain(500, 1040, 60 * 1040);
	unsigned int read_back = 0;
	int small = 16 << 10;

	cr_assert_eq(setsockopt(t.tx->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	t.port->tx_trains = false;
	cr_assert_eq(kp_tx_burst(t.tx, &buf, 1), 1);
	while (recv(t.peer, message, sizeof(message), MSG_PEEK | MSG_DONTWAIT) > 0)
		read_back += expect_message((uint16_t)(500 + read_back), 1040);
	cr_assert(read_back > 0 && read_back < 60, "%u datagrams arrived", read_back);
	cr_assert_eq(t.tx->stats.frames, read_back);
	cr_assert_eq(t.tx->stats.errors, 1);
	cr_assert_eq(t.tx->stats.full, 0);
}
