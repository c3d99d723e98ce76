/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ping-pong: a message is sent to and fro by SEND, and both ends check every byte of it.
 *
 *     pingpong --tcp 7471               the server
 *     pingpong --tcp 7471 HOST          the client, which prints the time of a round trip
 *
 * Each end posts the receive for the next message before it sends its own, so that a receive is
 * always posted when a message arrives.
 */
#include "example.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char usage[] =
	"usage: pingpong [OPTION...]         the server\n"
	"       pingpong [OPTION...] HOST    the client\n"
	"\n"
	"Messages go to and fro by SEND between two reliable queue pairs; both ends verify them.\n"
	"\n"
	"  --count N         round trips; default 1000; the client's and the server's are equal\n"
	"  --size N          bytes of a message; default 1024\n";

/* One end: a buffer to send from, one to receive into. */
struct end {
	struct example x;
	struct example_link link;
	struct karst_mr *mr;
	uint8_t *out, *in;
	uint32_t size;
	unsigned long sent, received; /* completions */
};

static void
fill(uint8_t *buf, uint32_t size, unsigned long seed)
{
	uint32_t i;

	for (i = 0; i < size; i++)
		buf[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static void
post_recv(struct end *e)
{
	struct karst_sge sge = {.addr = (uintptr_t)e->in, .len = e->size, .lkey = e->mr->lkey};
	struct karst_recv_wr wr = {.sg_list = &sge, .num_sge = 1};

	example_check(karst_post_recv(e->link.qp, &wr, NULL), "karst_post_recv");
}

static void
send(struct end *e)
{
	struct karst_sge sge = {.addr = (uintptr_t)e->out, .len = e->size, .lkey = e->mr->lkey};
	struct karst_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_SEND,
		.send_flags = KARST_SEND_SIGNALED,
	};

	example_check(karst_post_send(e->link.qp, &wr, NULL), "karst_post_send");
}

/* Polls completions until @sent sends have completed and @received messages have arrived.  A send
 * may complete after the answer to it has arrived: the two queues are not ordered with each other.
 * */
static void
wait_for(struct end *e, unsigned long sent, unsigned long received)
{
	while (e->sent < sent || e->received < received) {
		if (example_wait(&e->x).opcode & KARST_WC_RECV)
			e->received++;
		else
			e->sent++;
	}
}

static void
check(const struct end *e, uint8_t *expected, unsigned long seed)
{
	fill(expected, e->size, seed);
	if (memcmp(e->in, expected, e->size) != 0)
		example_die("message %lu came with wrong bytes", seed);
}

static void
play(struct end *e, bool first, unsigned long count)
{
	uint8_t *expected = e->in + e->size;
	unsigned long i;

	for (i = 0; i < count; i++) {
		if (first) {
			fill(e->out, e->size, 2 * i);
			send(e);
		}
		wait_for(e, 0, i + 1);
		check(e, expected, 2 * i + (first ? 1 : 0));
		post_recv(e);
		if (!first) {
			fill(e->out, e->size, 2 * i + 1);
			send(e);
		}
		/* the buffer may be used again when the send has completed */
		wait_for(e, i + 1, 0);
	}
}

int
main(int argc, char **argv)
{
	struct example_opts o = {.port = 1, .tcp_port = "7471", .count = 1000, .size = 1024};
	struct timespec t0, t1;
	struct end e = {0};
	int tcp;

	example_options(argc, argv, &o, usage);
	if (o.size == 0 || o.size > 1u << 30)
		example_die("--size %lu: 1 to 2^30", o.size);
	e.size = (uint32_t)o.size;
	example_open(&e.x, &o);
	e.out = example_memory(&e.x, 3 * o.size, &e.mr);
	e.in = e.out + o.size;
	tcp = o.host != NULL ? example_connect(&o) : example_accept(example_listen(&o));
	example_link(&e.x, &o, tcp, NULL, &e.link);
	post_recv(&e);
	example_meet(&e.link);

	clock_gettime(CLOCK_MONOTONIC, &t0);
	play(&e, o.host != NULL, o.count);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	printf("%lu messages of %lu bytes to and fro, all of them right", o.count, o.size);
	if (o.host != NULL && o.count > 0)
		printf("; %.2f us for a round trip",
			((double)(t1.tv_sec - t0.tv_sec) * 1e6 +
				(double)(t1.tv_nsec - t0.tv_nsec) / 1e3) /
				(double)o.count);
	printf("\n");

	example_meet(&e.link);
	example_unlink(&e.link);
	example_free(e.out, e.mr);
	example_close(&e.x);
	return 0;
}
