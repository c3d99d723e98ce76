/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The commands, sent as by any client: through the socket. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_eal.h>
#include <rte_mbuf.h>

#include "engine_bed.h"
#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"

#define ANSWER      65536
#define PATIENCE_MS 120000u

static int
telemetry_connect(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	char greeting[1024];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/dpdk_telemetry.v2",
		rte_eal_get_runtime_dir());
	cr_assert_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0, "%s", sa.sun_path);
	cr_assert_gt(read(fd, greeting, sizeof(greeting)), 0);
	return fd;
}

static void
telemetry_close(int fd)
{
	char path[256];

	close(fd);
	snprintf(path, sizeof(path), "%s/dpdk_telemetry.v2", rte_eal_get_runtime_dir());
	unlink(path);
	rmdir(rte_eal_get_runtime_dir());
}

static const char *
ask(int fd, const char *cmd)
{
	static char answer[ANSWER];
	ssize_t n;

	cr_assert_eq(write(fd, cmd, strlen(cmd)), (ssize_t)strlen(cmd));
	n = read(fd, answer, sizeof(answer) - 1);
	cr_assert_gt(n, 0);
	answer[n] = '\0';
	return answer;
}

static void
expect_in(const char *answer, const char *part)
{
	cr_assert_not_null(strstr(answer, part), "no %s in %s", part, answer);
}

Test(telemetry, commands)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .telemetry = true};
	static uint8_t mem[8192];
	struct karst_engine_qp *a, *b;
	struct engine_bed_poller poller;
	struct karst_cqe cqe;
	struct engine_bed bed;
	char text[64];
	uint32_t key;
	int fd, i;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	bed.timeout = 0;
	engine_bed_connect(&bed, a, b);
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	for (i = 0; i < 3; i++) {
		engine_bed_post(a, KARST_WR_RDMA_WRITE, 1, mem, 64, key, mem + 4096, key);
		cr_assert(engine_bed_wait(&bed, &cqe));
	}
	fd = telemetry_connect();
	expect_in(ask(fd, "/karst/engines"), "[\"karst0\"]");
	expect_in(ask(fd, "/karst/lcores"), "\"0\":{\"attached\":1");
	expect_in(ask(fd, "/karst/lcores,karst0"), "\"handoff_in\":");
	expect_in(ask(fd, "/karst/counters"), "\"req_completions\":3");
	expect_in(ask(fd, "/karst/drops"), "\"handoff_full\":0");
	expect_in(ask(fd, "/karst/ports"), "\"address_0\":\"10.0.0.2\"");
	expect_in(ask(fd, "/karst/ports"), "\"mac\":\"02:00:00:00:00:01\"");

	expect_in(ask(fd, "/karst/ports"), "\"name\":");
	expect_in(ask(fd, "/karst/ports"), "\"rx_packets\":");
	expect_in(ask(fd, "/karst/hw_counters"), "\"rx_write_requests\":3");
	expect_in(ask(fd, "/karst/hw_counters,karst0"), "\"packet_seq_err\":0");
	expect_in(ask(fd, "/karst/cm"), "\"listeners\":0,\"connections\":0,\"half_open\":0");
	expect_in(ask(fd, "/karst/cm"), "\"rx_REQ\":0,");
	expect_in(ask(fd, "/karst/memory"), "\"regions\":1,\"windows\":0");
	expect_in(ask(fd, "/karst/engine"), "\"qps\":2");
	expect_in(ask(fd, "/karst/clients"), "{}");
	expect_in(ask(fd, "/karst/users"), "{}");
	expect_in(ask(fd, "/karst/help,drops"), "\"icrc\":\"invariant CRC");

	/* lcores from number 1 on */
	expect_in(ask(fd, "/karst/lcores,karst0:1"), "{\"1\":{\"attached\":1");
	expect_in(ask(fd, "/karst/lcores,1"), "{\"1\":{\"attached\":1");
	expect_in(ask(fd, "/karst/lcores,:2"), "{}");

	/* about a QP: the thread of its lcore must answer */
	engine_bed_poller_start(&poller, &bed, 3);
	snprintf(text, sizeof(text), "/karst/qp,%u", a->num);
	expect_in(ask(fd, text), "\"state\":\"RTS\"");
	snprintf(text, sizeof(text), "/karst/qp,karst0:%u", a->num);
	expect_in(ask(fd, text), "\"sq_done\":3");
	snprintf(text, sizeof(text), "\"dest_qpn\":%u", b->num);
	{
		char cmd[64];

		snprintf(cmd, sizeof(cmd), "/karst/qp,%u", a->num);
		expect_in(ask(fd, cmd), text);
	}
	expect_in(ask(fd, "/karst/neighbours"), "\"ip\":[]");
	snprintf(text, sizeof(text), "/karst/qp,%u", a->num);
	expect_in(ask(fd, text), "\"type\":\"RC\",\"state\":\"RTS\"");
	expect_in(ask(fd, text), "\"tx_packets\":3,");
	expect_in(ask(fd, text), "\"retransmits\":0,");
	expect_in(ask(fd, "/karst/qps"), "\"tx_packets\":[3,3]");
	expect_in(ask(fd, "/karst/qps"), "\"state\":[\"RTS\",\"RTS\"]");
	engine_bed_poller_stop(&poller);

	/* things that do not exist */
	expect_in(ask(fd, "/karst/lcores,karst7"), "null");
	expect_in(ask(fd, "/karst/lcores,karst0:x"), "null");
	expect_in(ask(fd, "/karst/qps,:1000000000"), "\"qpn\":[]");
	expect_in(ask(fd, "/karst/qp"), "null");
	expect_in(ask(fd, "/karst/qp,99999999"), "null");
	expect_in(ask(fd, "/karst/qp,x"), "null");
	engine_bed_down(&bed);
	expect_in(ask(fd, "/karst/lcores"), "null");
	expect_in(ask(fd, "/karst/engines"), "[]");
	telemetry_close(fd);
}

/* Asks until the answer contains @part. */
static void
ask_until(int fd, const char *cmd, const char *part)
{
	unsigned int tries;

	for (tries = 0; tries < PATIENCE_MS / 10; tries++) {
		if (strstr(ask(fd, cmd), part) != NULL)
			return;
		usleep(10000);
	}
	cr_assert_fail("never %s in %s", part, ask(fd, cmd));
}

/* A CNP from A for a queue pair on B, put on B's wire. */
static void
put_cnp(const struct engine_bed *bed, struct rte_mempool *pool, uint32_t qpn)
{
	const struct karst_frame f = {
		.dmac = {2, 0, 0, 0, 0, 2},
		.smac = {2, 0, 0, 0, 0, 1},
		.ttl = 64,
		.ip_frag = 0x4000,
		.saddr = {10, 0, 0, 1},
		.daddr = {10, 0, 0, 2},
		.sport = 50000,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.opcode = KARST_CNP,
			.pkey = 0xffff,
			.dqpn = qpn,
			.becn = true,
			.pay_len = 16},
	};
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	uint8_t *p;
	uint32_t crc;
	int len;

	cr_assert_not_null(m);
	p = rte_pktmbuf_mtod(m, uint8_t *);
	len = karst_build_frame(p, rte_pktmbuf_tailroom(m), &f);
	cr_assert_gt(len, 0);
	crc = karst_icrc_rocev2(p + 14, (size_t)len - 18, false);
	memcpy(p + len - 4, &crc, 4);
	rte_pktmbuf_append(m, (uint16_t)len);
	cr_assert_eq(rte_ring_enqueue(bed->ring[0][0], m), 0);
}

/* (E2): a queue pair that is slowed down by a CNP starts from the link rate of its port. */
Test(telemetry, e2_line)
{
	struct karst_congestion_config congestion;
	struct engine_bed_config cfg = {.telemetry = true};
	struct karst_engine_port_info info;
	struct karst_engine_qp *a, *b;
	struct engine_bed_poller poller;
	struct rte_mempool *pool;
	struct engine_bed bed;
	char cmd[64], text[64];
	const char *answer;
	int fd;

	karst_congestion_defaults(&congestion);
	congestion.mode = KARST_CONGESTION_DCQCN;
	cfg.engine.congestion = &congestion;
	engine_bed_up(&bed, &cfg);
	pool = rte_pktmbuf_pool_create("other", 15, 0, sizeof(struct karst_pkt), 2048, 0);
	cr_assert_not_null(pool);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	bed.timeout = 0;
	engine_bed_connect(&bed, a, b);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[1], &info), 0);
	/* links that do not report a rate count as 100 Gb/s */
	cr_assert(info.link_mbps != 0 && info.link_mbps != 100000, "%u Mb/s", info.link_mbps);
	put_cnp(&bed, pool, b->num);
	engine_bed_settle(&bed);
	fd = telemetry_connect();
	engine_bed_poller_start(&poller, &bed, 1);
	snprintf(cmd, sizeof(cmd), "/karst/qp,%u", b->num);
	snprintf(text, sizeof(text), "\"cc_target\":%u000000,", info.link_mbps);
	answer = ask(fd, cmd);
	engine_bed_poller_stop(&poller);
	expect_in(answer, text);
	telemetry_close(fd);
	engine_bed_down(&bed);
	rte_mempool_free(pool);
}

/* Checks the file of a capture: it is where telemetry says, holds frames, and is ours to remove. */
static void
check_capture(const char *name, const char *part)
{
	char path[300], bytes[8192];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", rte_eal_get_runtime_dir(), name);
	f = fopen(path, "rb");
	cr_assert_not_null(f, "%s", path);
	n = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	unlink(path);
	cr_assert_gt(n, 300);
	cr_assert_eq(memcmp(bytes, "\x0a\x0d\x0d\x0a", 4), 0);
	cr_assert_not_null(memmem(bytes, n, part, strlen(part)), "no payload in the file");
}

/* The frames of a queue pair, in both directions, go into a file; and what is refused. */
Test(telemetry, capture)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .telemetry = true};
	static uint8_t mem[8192];
	struct karst_engine_qp *a, *b;
	struct engine_bed_poller poller;
	struct engine_bed bed;
	char cmd[128];
	uint32_t key;
	int fd, i;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	bed.timeout = 0;
	engine_bed_connect(&bed, a, b);
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	memcpy(mem, "sixteen letters.", 16);
	fd = telemetry_connect();
	engine_bed_poller_start(&poller, &bed, 3);

	expect_in(ask(fd, "/karst/capture/start"), "qp=NUMBER is missing");
	expect_in(ask(fd, "/karst/capture/start,qp=4711"), "has no queue pair 4711");
	expect_in(ask(fd, "/karst/capture/start,qp=x"), "qp: a number from 0 to 16777215, not 'x'");
	expect_in(ask(fd, "/karst/capture/start,qp=1,colour=red"), "unknown key 'colour'");
	expect_in(ask(fd, "/karst/capture/start,qp=1,seconds=0"), "seconds: a number from 1");
	expect_in(ask(fd, "/karst/capture/start,engine=no,qp=1"), "there is no engine 'no'");
	expect_in(ask(fd, "/karst/capture/stop"), "has no capture");
	expect_in(ask(fd, "/karst/capture/status"), "has no capture");
	snprintf(cmd, sizeof(cmd), "/karst/capture/start,qp=%u,file=../x", a->num);
	expect_in(ask(fd, cmd), "without a path");
	/* a file that exists is not touched */
	snprintf(cmd, sizeof(cmd), "/karst/capture/start,qp=%u,file=dpdk_telemetry.v2", a->num);
	expect_in(ask(fd, cmd), "File exists");

	snprintf(cmd, sizeof(cmd), "/karst/capture/start,qp=%u,file=a.pcapng", a->num);
	expect_in(ask(fd, cmd), "\"running\":1");
	expect_in(ask(fd, cmd), "is running; there is one at a time");
	engine_bed_post(a, KARST_WR_RDMA_WRITE, 1, mem, 16, key, mem + 4096, key);
	ask_until(fd, "/karst/capture/status", "\"frames\":2"); /* the request and its ACK */
	expect_in(ask(fd, "/karst/capture/stop"), "\"ended\":\"stopped\"");
	check_capture("a.pcapng", "sixteen letters.");

	/* one that ends by itself, and one that ends with the engine */
	snprintf(cmd, sizeof(cmd), "/karst/capture/start,qp=%u,file=b.pcapng,count=2", b->num);
	expect_in(ask(fd, cmd), "\"running\":1");
	for (i = 0; i < 3; i++)
		engine_bed_post(a, KARST_WR_RDMA_WRITE, 1, mem, 16, key, mem + 4096, key);
	ask_until(fd, "/karst/capture/status", "\"ended\":\"count reached\"");
	expect_in(ask(fd, "/karst/capture/status"), "\"frames\":2");
	check_capture("b.pcapng", "sixteen letters.");
	snprintf(cmd, sizeof(cmd), "/karst/capture/start,qp=%u,file=c.pcapng", b->num);
	expect_in(ask(fd, cmd), "\"running\":1");
	engine_bed_poller_stop(&poller);
	engine_bed_down(&bed);
	snprintf(cmd, sizeof(cmd), "%s/c.pcapng", rte_eal_get_runtime_dir());
	cr_assert_eq(unlink(cmd), 0);
	telemetry_close(fd);
}

/* Counts the numbers in the array @name of @answer. */
static unsigned int
count_in(const char *answer, const char *name)
{
	const char *p = strstr(answer, name);
	unsigned int n = 0;

	cr_assert_not_null(p, "no %s in %s", name, answer);
	p = strchr(p, '[') + 1;
	while (*p != ']') {
		n += *p >= '0' && *p <= '9' && (p[1] == ',' || p[1] == ']');
		p++;
	}
	return n;
}

/* An answer has at most 16 KiB: longer lists come in pages, each complete JSON, without
 * repetition. */
Test(telemetry, pages)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .telemetry = true};
	struct engine_bed bed;
	unsigned int i, seen = 0, pages = 0;
	char cmd[64] = "/karst/qps";
	int fd;

	engine_bed_up(&bed, &cfg);
	for (i = 0; i < 1000; i++)
		engine_bed_qp(&bed, i % 2 ? KARST_QPT_RC : KARST_QPT_UD, i & 1);
	engine_bed_release(&bed);
	fd = telemetry_connect();
	for (;;) {
		const char *answer = ask(fd, cmd), *next = strstr(answer, "\"next\":");

		cr_assert_eq(answer[strlen(answer) - 1], '}', "cut off: %s", answer);
		seen += count_in(answer, "\"qpn\":");
		cr_assert_lt(++pages, 100);
		if (next == NULL)
			break;
		snprintf(cmd, sizeof(cmd), "/karst/qps,karst0:%lu", strtoul(next + 7, NULL, 10));
	}
	cr_assert_eq(seen, 1000);
	cr_assert_gt(pages, 1);
	engine_bed_down(&bed);
	telemetry_close(fd);
}
