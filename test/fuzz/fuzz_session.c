/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: sessions of a real engine, whose port is a loopback.
 *
 * An input is a list of requests.  Each has an operation, the number of descriptors that come with
 * it, up to three patches (where in the body, and which number: one that the session has returned
 * lately), and the body.  The first byte chooses whether HELLO has been sent.
 *
 * What must hold: no sanitizer report; every reply is well formed; no descriptor leaks, and none is
 * closed that should stay open; another session keeps what it had; and when the session is gone,
 * the engine uses as much as before.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ring.h>

#include "fuzz.h"
#include "input.h"
#include "karst_ctl_msg.h"
#include "karst_ctl_sock.h"
#include "karst_session.h"

#define HDR     sizeof(struct karst_ctl_hdr)
#define CALLS   64u
#define NUMBERS 16u
/* within which an event has to come */
#define EVENT_TURNS 40u

/* The engine, and the session that must not notice anything; made once. */
static struct karst_engine *engine;
static struct karst_session *other;
static uint32_t other_pd;

static unsigned int
open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

/* --- requests --- */

struct exchange {
	uint8_t req[KARST_CTL_MAX] karst_aligned(8);
	uint8_t rsp[KARST_CTL_MAX] karst_aligned(8);
	int rsp_fds[KARST_CTL_MAX_FDS];
};

static struct exchange x;

/* Sends a request whose body is in place.  @return the status. */
static int
call(struct karst_session *s, uint32_t op, size_t body, const int *fds, unsigned int nfds)
{
	struct karst_ctl_hdr *h = (void *)x.req, *out = (void *)x.rsp;
	unsigned int nrsp_fds = 0;
	size_t rsp_len = 0;
	void *req;

	*h = (struct karst_ctl_hdr){.magic = KARST_CTL_MAGIC,
		.version = KARST_CTL_VERSION,
		.op = (uint16_t)op,
		.len = (uint32_t)(HDR + body),
		.seq = out->seq + 1,
		.nfds = nfds};
	/* exactly as long as the message, for the sanitizer */
	req = malloc(h->len);
	CHECK(req != NULL);
	memcpy(req, h, h->len);
	CHECK(karst_session_handle(
		      s, req, h->len, fds, nfds, x.rsp, &rsp_len, x.rsp_fds, &nrsp_fds) == 0);
	free(req);
	CHECK(karst_ctl_check_reply(h, x.rsp, rsp_len, nrsp_fds, NULL) == 0);
	CHECK(out->status == 0 || nrsp_fds == 0);
	karst_ctl_close_fds(x.rsp_fds, nrsp_fds);
	return out->status;
}

/* Confirms chunks that the engine wants to be mapped; nothing is written there. */
static void
seal_chunks(struct karst_session *s)
{
	struct karst_ctl_get_chunk_req *get = (void *)(x.req + HDR);
	struct karst_ctl_seal_chunk_req *seal = (void *)(x.req + HDR);

	for (;;) {
		*get = (struct karst_ctl_get_chunk_req){.chunk = KARST_CTL_CHUNK_UNSEALED};
		if (call(s, KARST_CTL_GET_CHUNK, sizeof(*get), NULL, 0) != 0)
			return;
		*seal = (struct karst_ctl_seal_chunk_req){
			.chunk = ((struct karst_ctl_get_chunk_rsp *)(void *)(x.rsp + HDR))->chunk};
		CHECK(call(s, KARST_CTL_SEAL_CHUNK, sizeof(*seal), NULL, 0) == 0);
	}
}

static void
hello(struct karst_session *s)
{
	struct karst_ctl_hello_req *req = (void *)(x.req + HDR);

	*req = (struct karst_ctl_hello_req){.program = "fuzz", .abi = KARST_RING_ABI};
	CHECK(call(s, KARST_CTL_HELLO, sizeof(*req), NULL, 0) == 0);
	seal_chunks(s);
}

static void
one_call(struct karst_session *s, struct input *in, uint32_t numbers[NUMBERS], unsigned int *next)
{
	static const int fds[3] = {0, 1, 2};
	uint8_t op = u8(in), how = u8(in);
	const struct karst_ctl_op_info *info = karst_ctl_op_info(op);
	unsigned int patches = how >> 2 & 3, i;
	size_t body = info != NULL ? info->req_bytes : 8, n;
	uint8_t at[3], which[3];
	int status;

	/* another size than the operation's, for pieces and for invalid sizes */
	if (how & 0x80)
		body = u8(in) * 8u;
	for (i = 0; i < patches; i++) {
		at[i] = u8(in);
		which[i] = u8(in);
	}
	n = karst_min_u64(in->left, body);
	if (how & 0x40)
		n = karst_min_u64(n, u8(in)); /* the rest is 0 */
	n = karst_min_u64(in->left, n);
	memset(x.req + HDR, 0, body);
	memcpy(x.req + HDR, in->p, n);
	in->p += n;
	in->left -= n;
	for (i = 0; i < patches; i++)
		if (at[i] * 4u + 4 <= body)
			memcpy(x.req + HDR + at[i] * 4u, &numbers[which[i] % NUMBERS], 4);
	status = call(s, op, body, fds, how & 3);
	/* the cause of an event is handled by another thread, and by turns of the engine */
	for (i = 0; op == KARST_CTL_CM_GET_EVENT && status == -EAGAIN && i < EVENT_TURNS; i++) {
		karst_engine_poll(engine, 0);
		usleep(200);
		status = call(s, op, body, fds, how & 3);
	}
	if (status == -ENOBUFS)
		seal_chunks(s);
	if (status == 0) {
		/* most replies begin with the number of the new object */
		memcpy(&numbers[*next % NUMBERS], x.rsp + HDR, 4);
		(*next)++;
		/* it can be opened by its number alone */
		if (op == KARST_CTL_CREATE_QP)
			numbers[NUMBERS - 1] =
				((struct karst_ctl_create_qp_rsp *)(void *)(x.rsp + HDR))->qpn;
		/* and that of a request comes after the listener's name */
		if (op == KARST_CTL_CM_GET_EVENT)
			numbers[(*next - 1) % NUMBERS] =
				((struct karst_ctl_cm_get_event_rsp *)(void *)(x.rsp + HDR))->id;
	}
	karst_engine_poll(engine, 0);
}

/* --- the target --- */

static bool
not_alive(void *user)
{
	return false; /* no call waits for a neighbour here */
}

static struct karst_session *
make_session(void)
{
	const struct karst_session_init init = {.pidfd = -1,
		.limits = {.max_ring_bytes = 16 << 20,
			.max_qps = 8,
			.max_cqs = 8,
			.max_srqs = 8,
			.max_mrs = 8,
			.max_mws = 8,
			.max_pds = 8,
			.max_ahs = 8,
			.max_channels = 4,
			.max_xrcds = 4,
			.max_cm_ids = 8},
		.alive = not_alive};
	struct karst_session *s;

	CHECK(karst_session_create(engine, &init, &s) == 0);
	return s;
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct karst_engine_config cfg = {.max_qps = 32,
		.max_keys = 64,
		.mbufs = 1024,
		.ece = KARST_ENGINE_ECE_OFFER,
		.held_frames = 16};
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000001);
	struct karst_engine_port_config port = {
		.mac = {2, 0, 0, 0, 0, 1}, .num_addrs = 1, .addrs = &addr};
	char *eal[] = {(char *)"fuzz", (char *)"--no-huge", (char *)"--no-shconf",
		(char *)"--no-pci", (char *)"--no-telemetry", (char *)"-m", (char *)"64",
		(char *)"--log-level=1", (char *)"-l", (char *)"0"};
	struct rte_ring *wire;
	uint8_t number;
	int ethdev;

	CHECK(rte_eal_init(KARST_DIM(eal), eal) >= 0);
	CHECK(karst_engine_create(&cfg, &engine) == 0);
	wire = rte_ring_create("wire", 64, 0, RING_F_EXACT_SZ);
	CHECK(wire != NULL);
	ethdev = rte_eth_from_ring(wire);
	CHECK(ethdev >= 0);
	port.ethdev = (uint16_t)ethdev;
	CHECK(karst_engine_port_add(engine, &port, &number) == 0);
	other = make_session();
	hello(other);
	memset(x.req, 0, 64);
	CHECK(call(other, KARST_CTL_ALLOC_PD, 8, NULL, 0) == 0);
	memcpy(&other_pd, x.rsp + HDR, 4);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint32_t numbers[NUMBERS] = {0};
	struct karst_session_info infos[2];
	unsigned int calls, next = 0, fds = open_fds();
	struct karst_session *s = make_session();
	bool greeted = (u8(&in) & 3) != 0;

	if (greeted)
		hello(s);
	for (calls = 0; calls < CALLS && in.left > 0; calls++)
		one_call(s, &in, numbers, &next);
	karst_session_destroy(s);
	CHECK(open_fds() == fds);
	CHECK(karst_session_list(engine, infos, 2) == 1);
	CHECK(infos[0].pds == 1 && infos[0].qps == 0 && infos[0].mrs == 0 && infos[0].cm_ids == 0);
	/* everything that a session may have is available to the next one */
	memset(x.req, 0, 64);
	memcpy(x.req + HDR, &other_pd, 4);
	CHECK(call(other, KARST_CTL_FREE_PD, 8, NULL, 0) == 0);
	memset(x.req, 0, 64);
	CHECK(call(other, KARST_CTL_ALLOC_PD, 8, NULL, 0) == 0);
	memcpy(&other_pd, x.rsp + HDR, 4);
	return 0;
}

#ifdef KARST_LIBFUZZER
size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return LLVMFuzzerMutate(data, size, max_size);
}
#endif
