/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The device: its log, rules that change, its calls to the port below, and ports that are
 * removed. */
#include "bed.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_ring.h>

#include "impair.h"

TestSuite(port, .init = bed_eal, .timeout = HANG_S);

/* --- the log --- */

#define FRAMES 3000u

/* Which packets, by PSN, were lost or are unchanged, by what came out and by the log. */
Test(port, log_is_what_happened)
{
	static char lost[FRAMES + 1], logged[FRAMES + 1];
	char words[1024];
	const char *at, *line;
	unsigned int i, k, n;

	memset(lost, 1, sizeof(lost));
	bed_open(
		"[impair]\nseed = 3\n[rule lots]\naction = drop\nchance = 0.1\nopcode = RC_SEND_*\n",
		"");
	for (i = 1; i <= FRAMES; i += 25) {
		for (k = i, n = 0; k < i + 25; k++)
			n += (unsigned int)sprintf(words + n, "%s11:%u ", k % 5 == 0 ? "a" : "", k);
		for (at = bed_pass(true, words); (at = strstr(at, "11:")) != NULL; at += 3)
			lost[atoi(at + 3)] = 0;
	}
	for (line = strstr(bed_log(), "{\"event\":\"injured\""); line != NULL;
		line = strstr(line + 1, "{\"event\":\"injured\"")) {
		i = (unsigned int)atoi(bed_member(line, "psn"));
		cr_assert(i >= 1 && i <= FRAMES);
		logged[i] = 1;
		/* PSNs are packet numbers here */
		cr_expect_eq((unsigned int)atoi(bed_member(line, "packet")), i);
		cr_expect_eq(atoi(bed_member(line, "qpn")), 0x11);
		cr_expect_eq(atoi(bed_member(line, "length")), 122);
		cr_expect_str_eq(bed_member(line, "direction"), "rx");
		cr_expect_str_eq(bed_member(line, "opcode"), "RC_SEND_ONLY");
		cr_expect_str_eq(bed_member(line, "rule"), "lots");
		cr_expect_str_eq(bed_member(line, "action"), "drop");
		cr_expect_eq(strncmp(bed_member(line, "reason"), "chance ", 7), 0);
	}
	for (i = 1, n = 0; i <= FRAMES; i++) {
		cr_expect_eq(lost[i], logged[i], "packet %u", i);
		n += (unsigned int)lost[i];
	}
	cr_expect(n > 100 && n == bed_xstat("rx_drop") && n == bed_xstat("rule_lots"), "%u", n);
	cr_expect_eq(bed_xstat("log_records"), n);
	cr_expect_eq(bed_log_count("\"event\":\"rules\""), 1u);
	bed_close();
}

Test(port, log_tells_reasons)
{
	const char *log;

	bed_open("[rule a]\naction = corrupt\nnth = 2\n[rule b]\naction = duplicate\ncopies = 2\n"
		 "transmission = 1\n",
		"");
	bed_pass(false, "11:5 11:6 11:5");
	log = strstr(bed_log(), "\"injured\"");
	cr_assert_not_null(log);
	cr_expect_str_eq(bed_member(log, "reason"), "nth 2");
	cr_expect_str_eq(bed_member(log, "direction"), "tx");
	/* 42 bytes in front of the BTH, which has 12; 64 of payload */
	cr_expect_str_eq(bed_member(log, "offset"), "117");
	log = strstr(log + 1, "\"injured\"");
	cr_assert_not_null(log);
	cr_expect_str_eq(bed_member(log, "reason"), "fits 1, retransmission 1");
	cr_expect_str_eq(bed_member(log, "copies"), "2");
	bed_close();
}

/* An lcore does not wait for the log: entries without room are counted, and the file says so. */
Test(port, log_that_is_full)
{
	char words[4096] = "";
	unsigned int i, written, lost;
	const char *line;

	bed_open("[rule a]\naction = mark\n", ",log_slots=16");
	for (i = 0; i < 200; i++)
		sprintf(words + strlen(words), "11:%u ", i);
	bed_pass(true, words);
	bed_log();
	written = (unsigned int)bed_xstat("log_records");
	lost = (unsigned int)bed_xstat("log_lost");
	cr_expect_eq(written + lost, 200u);
	cr_expect_eq(bed_log_count("\"injured\""), written);
	for (line = bed_log(), i = 0; (line = strstr(line, "\"event\":\"lost\"")) != NULL; line++)
		i += (unsigned int)atoi(bed_member(line, "records"));
	cr_expect_eq(i, lost);
	bed_close();
}

/* --- rules that change --- */

static void
forget(void *user, const char *line)
{
	snprintf(user, 512, "%s", line);
}

Test(port, rules_change)
{
	struct imp_port *p;
	char said[512] = "";

	bed_open("[rule a]\naction = drop\nnth = 1\n", "");
	p = bed_port();
	cr_expect_str_eq(bed_pass(true, "11:1 11:2"), "11:2");
	bed_write("[rule b]\naction = mark\nnth = 1\n[rule c]\naction = drop\nnth = 2\n");
	cr_assert_eq(imp_control_load(p, bed.rules, forget, said), 0);
	cr_expect_str_eq(bed_pass(true, "11:3 11:4 11:5"), "11:3^ 11:5");
	cr_expect_eq(bed_xstat("rule_c"), 1u);
	/* a mistake changes nothing */
	bed_write("[rule d]\naction = drip\n");
	cr_expect_eq(imp_control_load(p, bed.rules, forget, said), -EINVAL);
	cr_expect_not_null(
		strstr(said, ":2:10: [rule] action = \"drip\": no such word"), "%s", said);
	cr_expect_str_eq(bed_pass(true, "11:6 11:7"), "11:6 11:7");
	cr_expect_eq(bed_xstat("rule_c"), 1u);
	cr_expect_eq(bed_log_count("\"event\":\"rules\""), 2u);
	bed_close();
}

/* Held packets stay held when rules are removed. */
Test(port, held_ones_stay)
{
	char said[512];

	bed_open("[rule a]\naction = hold\npackets = 2\nnth = 1\n", "");
	cr_expect_str_eq(bed_pass(true, "11:1 11:2"), "11:2");
	bed_write("");
	cr_assert_eq(imp_control_load(bed_port(), bed.rules, forget, said), 0);
	cr_expect_str_eq(bed_pass(true, "11:3 11:4"), "11:3 11:1 11:4");
	bed_close();
}

static _Atomic bool done;

/* Writes rules that mark all packets, or none, in turn. */
static void *
change(void *arg)
{
	struct imp_port *p = arg;
	char path[128], said[512];
	unsigned int i;
	FILE *f;

	for (i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "%s.%u", bed.rules, i % 2);
		f = fopen(path, "w");
		fputs(i % 2 ? "[rule a]\naction = mark\ntransmission = first, again\n"
			      "[rule b]\naction = mark\n"
			    : "",
			f);
		fclose(f);
		if (imp_control_load(p, path, forget, said) != 0)
			abort();
		remove(path);
	}
	done = true;
	return NULL;
}

/* Each burst is handled by one set of rules: either all of its packets are marked, or none. */
Test(port, rules_change_under_traffic)
{
	char marked[1024] = "", words[1024] = "";
	pthread_t thread;
	unsigned int i;

	for (i = 1; i <= 32; i++) {
		sprintf(words + strlen(words), "%s11:%u", i > 1 ? " " : "", i);
		sprintf(marked + strlen(marked), "%s11:%u^", i > 1 ? " " : "", i);
	}
	bed_open("", "");
	cr_assert_eq(pthread_create(&thread, NULL, change, bed_port()), 0);
	while (!done) {
		const char *got = bed_pass(true, words);
		bool all = strcmp(got, marked) == 0;

		cr_assert(all || strcmp(got, words) == 0, "%s", got);
	}
	pthread_join(thread, NULL);
	/* the last rules mark, whichever were in effect before */
	cr_expect_str_eq(bed_pass(true, words), marked);
	bed_close();
}

#define APPLIED 200000u

/* Applies the same rules in quick succession. */
static void *
apply_often(void *arg)
{
	struct imp_port *p = arg;
	struct imp_rules *rules = p->rules;
	unsigned int i;
	cpu_set_t all;

	/* EAL has bound the thread that polls, and so this one, to one processor */
	memset(&all, 0xff, sizeof(all));
	(void)pthread_setaffinity_np(pthread_self(), sizeof(all), &all);
	for (i = 0; i < APPLIED; i++) {
		pthread_mutex_lock(&p->lock);
		if (imp_control_apply(p, rules, bed.rules) != 0)
			abort();
		pthread_mutex_unlock(&p->lock);
	}
	done = true;
	return NULL;
}

/* A queue that takes new rules while the next ones come gives all previous ones back. */
Test(port, rules_change_in_quick_succession)
{
	volatile unsigned int k;
	unsigned int seed = 4711;
	struct rte_mbuf *m;
	pthread_t thread;

	bed_open("[rule a]\naction = drop\nnth = 1\n", "");
	cr_assert_eq(pthread_create(&thread, NULL, apply_often, bed_port()), 0);
	while (!done) {
		cr_expect_eq(rte_eth_rx_burst(bed.port, 0, &m, 1), 0);
		for (k = rand_r(&seed) % 32768; k > 0; k--)
			;
	}
	pthread_join(thread, NULL);
	cr_expect_eq(rte_eth_rx_burst(bed.port, 0, &m, 1), 0);
	/* rx: the set in use and two previous ones; tx, which nobody polls: that in use and the
	 * next one; and the port itself */
	cr_expect_leq(bed_port()->rules->users, 3u + 2 + 1, "%u users of the rules",
		bed_port()->rules->users);
	bed_close();
}

/* --- frames of all kinds --- */

/* Random frames that begin like RoCE, in buffers of any shape, with every action: nothing is read
 * outside of a packet, only dropped packets are lost, and odd frames pass. */
Test(port, odd_frames)
{
	static const char *const actions[] = {"corrupt\nrepair = yes", "corrupt\npart = header",
		"corrupt\npart = icrc", "truncate\nbytes = 40", "truncate\nrepair = yes\nbytes = 8",
		"mark", "duplicate", "drop", "reorder", "hold\npackets = 3", "delay\ndelay_us = 1",
		"rate\nrate_kbps = 1000000"};
	static const char *const words[] = {"11:1", "c11:2", "s11:3", "v11:4", "a11:5", "x"};
	unsigned int seed = 4711, i, k, a;
	char rules[256];

	for (a = 0; a < sizeof(actions) / sizeof(actions[0]); a++) {
		snprintf(rules, sizeof(rules),
			"[rule a]\naction = %s\n[rule b]\naction = drop\ntransmission = again\n",
			actions[a]);
		bed_open(rules, "");
		for (i = 0; i < 1500; i++) {
			struct rte_mbuf *m = bed_frame(words[rand_r(&seed) % 6]), *s, *got[32];
			uint16_t n;

			for (k = rand_r(&seed) % 4; k > 0; k--) {
				for (s = m; s->next != NULL && rand_r(&seed) % 2; s = s->next)
					;
				if (s->data_len > 0)
					rte_pktmbuf_mtod(
						s, uint8_t *)[rand_r(&seed) % s->data_len] =
						(uint8_t)rand_r(&seed);
			}
			if (rand_r(&seed) % 3 == 0 && m->nb_segs == 1)
				rte_pktmbuf_trim(m, (uint16_t)(rand_r(&seed) % m->data_len));
			if (i % 2) {
				cr_assert_eq(rte_eth_tx_burst(bed.port, 0, &m, 1), 1);
				n = (uint16_t)rte_ring_dequeue_burst(
					bed.out, (void **)got, 32, NULL);
			} else {
				cr_assert_eq(rte_ring_enqueue(bed.in, m), 0);
				n = rte_eth_rx_burst(bed.port, 0, got, 32);
			}
			for (k = 0; k < n; k++) {
				rte_mbuf_sanity_check(got[k], 1);
				rte_pktmbuf_free(got[k]);
			}
		}
		bed_close();
	}
}

/* --- the port below --- */

Test(port, several_queues)
{
	struct rte_mbuf *m;
	uint16_t q;

	bed_open_queues("[rule a]\naction = drop\nnth = 1\ncount = 3\n", "", 4);
	for (q = 0; q < 4; q++) {
		m = bed_frame("11:1");
		cr_assert_eq(rte_eth_tx_burst(bed.port, q, &m, 1), 1);
	}
	/* each queue counts by itself, the limit is the port's */
	cr_expect_eq(bed_xstat("tx_drop"), 3u);
	cr_expect_eq(rte_ring_count(bed.out), 1u);
	cr_expect_eq(bed_log_count("\"queue\":2"), 1u);
	bed_close();
}

Test(port, passes_on)
{
	struct rte_ether_addr mac = {{2, 0, 0, 0, 0, 9}}, got;
	struct rte_eth_dev_info info, below;
	struct rte_eth_link link;
	struct rte_eth_conf conf = {0};
	struct rte_eth_stats stats;
	uint16_t null, mtu;

	bed_open("", "");
	cr_assert_eq(rte_eth_dev_info_get(bed.port, &info), 0);
	cr_assert_eq(rte_eth_dev_info_get(bed.below, &below), 0);
	cr_expect_str_eq(info.driver_name, "net_impair");
	cr_expect_eq(info.max_rx_pktlen, below.max_rx_pktlen);
	bed_pass(true, "11:1 x 11:2");
	cr_assert_eq(rte_eth_stats_get(bed.port, &stats), 0);
	cr_expect_eq(stats.ipackets, 3u);
	cr_expect_eq(bed_xstat("below_rx_good_packets"), 3u);
	cr_assert_eq(rte_eth_stats_reset(bed.port), 0);
	cr_assert_eq(rte_eth_stats_get(bed.below, &stats), 0);
	cr_expect_eq(stats.ipackets, 0u);
	cr_assert_eq(rte_eth_promiscuous_enable(bed.port), 0);
	cr_expect_eq(rte_eth_promiscuous_get(bed.below), 1);
	cr_assert_eq(rte_eth_dev_set_link_down(bed.port), 0);
	cr_assert_eq(rte_eth_link_get_nowait(bed.port, &link), 0);
	cr_expect_eq(link.link_status, RTE_ETH_LINK_DOWN);
	cr_assert_eq(rte_eth_dev_set_link_up(bed.port), 0);
	cr_assert_eq(rte_eth_link_get_nowait(bed.port, &link), 0);
	cr_expect_eq(link.link_status, RTE_ETH_LINK_UP);
	bed_close();

	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_null0", ""), 0);
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_impair0", "port=net_null0"), 0);
	cr_assert_eq(rte_eth_dev_get_port_by_name("net_null0", &null), 0);
	cr_assert_eq(rte_eth_dev_get_port_by_name("net_impair0", &bed.port), 0);
	cr_assert_eq(rte_eth_dev_configure(bed.port, 1, 1, &conf), 0);
	cr_assert_eq(rte_eth_dev_set_mtu(bed.port, 4200), 0);
	cr_assert_eq(rte_eth_dev_get_mtu(null, &mtu), 0);
	cr_expect_eq(mtu, 4200);
	cr_assert_eq(rte_eth_dev_default_mac_addr_set(bed.port, &mac), 0);
	cr_assert_eq(rte_eth_macaddr_get(null, &got), 0);
	cr_expect(rte_is_same_ether_addr(&mac, &got));
	cr_assert_eq(rte_eal_hotplug_remove("vdev", "net_impair0"), 0);
	/* the port below can be used again */
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_impair0", "port=net_null0"), 0);
	cr_assert_eq(rte_eal_hotplug_remove("vdev", "net_impair0"), 0);
	cr_assert_eq(rte_eal_hotplug_remove("vdev", "net_null0"), 0);
}

static _Atomic int removed;

static int
on_removal(uint16_t port, enum rte_eth_event_type event, void *arg, void *ret)
{
	(void)port;
	(void)event;
	(void)arg;
	(void)ret;
	removed++;
	return 0;
}

/* The port below is removed: polling returns no packets, and does not crash. */
Test(port, port_below_is_removed)
{
	struct rte_eth_link link;
	struct rte_mbuf *m;

	bed_open("[rule a]\naction = hold\npackets = 9\nnth = 1\n", "");
	cr_expect_str_eq(bed_pass(true, "11:1 11:2"), "11:2");
	cr_assert_eq(
		rte_eth_dev_callback_register(bed.port, RTE_ETH_EVENT_INTR_RMV, on_removal, NULL),
		0);
	cr_expect_eq(rte_eth_dev_is_removed(bed.port), 0);
	cr_assert_eq(rte_eal_hotplug_remove("vdev", "net_ring_bed"), 0);
	cr_expect_eq(removed, 1);
	cr_expect_eq(rte_eth_dev_is_removed(bed.port), 1);
	cr_expect_eq(rte_eth_rx_burst(bed.port, 0, &m, 1), 0);
	m = bed_frame("11:3");
	cr_expect_eq(rte_eth_tx_burst(bed.port, 0, &m, 1), 0);
	rte_pktmbuf_free(m);
	cr_assert_eq(rte_eth_link_get_nowait(bed.port, &link), 0);
	cr_expect_eq(link.link_status, RTE_ETH_LINK_DOWN);
	cr_expect_eq(bed_xstat("rx_hold"), 1u);
	bed_close();
}

/* --- events of the port below while the port is closed --- */

static _Atomic pid_t closer; /* thread that closes the port; 0: not yet */
static _Atomic bool closed;
static pthread_t closing;

static void *
close_port(void *arg)
{
	closer = gettid();
	cr_expect_eq(rte_eth_dev_close(bed.port), 0);
	closed = true;
	return arg;
}

/* Whether the thread waits for another one. */
static bool
waits(pid_t thread)
{
	char path[64];
	long number = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)thread);
	f = fopen(path, "re");
	if (f == NULL || fscanf(f, "%ld", &number) != 1)
		number = -1;
	if (f != NULL)
		fclose(f);
	return number == SYS_futex;
}

/* In place of the driver's below: another thread closes the port, as far as that goes, while the
 * event is handled. */
static int
link_of_below(struct rte_eth_dev *dev, int wait)
{
	(void)dev;
	(void)wait;
	if (closer != 0)
		return 0;
	cr_assert_eq(pthread_create(&closing, NULL, close_port, NULL), 0);
	while (!closed && (closer == 0 || !waits(closer)))
		sched_yield();
	return 0;
}

/* A port without a log, whose end close() would wait for.  @return the device below */
static struct rte_eth_dev *
open_without_log(void)
{
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_null0", ""), 0);
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_impair0", "port=net_null0"), 0);
	cr_assert_eq(rte_eth_dev_get_port_by_name("net_impair0", &bed.port), 0);
	return rte_eth_dev_allocated("net_null0");
}

/* The handler uses the port until it returns. */
Test(port, closed_while_an_event_is_handled)
{
	struct rte_eth_dev *below = open_without_log();
	struct eth_dev_ops changed = *below->dev_ops;

	changed.link_update = link_of_below;
	below->dev_ops = &changed;
	cr_expect_eq(rte_eth_dev_callback_process(below, RTE_ETH_EVENT_INTR_LSC, NULL), 0);
	cr_assert_neq(closer, 0);
	pthread_join(closing, NULL);
	cr_expect(closed);
	/* nobody handles the next one */
	cr_expect_eq(rte_eth_dev_callback_process(below, RTE_ETH_EVENT_INTR_LSC, NULL), 0);
}

static int
on_link(uint16_t port, enum rte_eth_event_type event, void *arg, void *ret)
{
	(void)event;
	(void)arg;
	(void)ret;
	cr_expect_eq(port, bed.port);
	close_port(NULL);
	return 0;
}

/* A program may close the port in its callback: that does not wait for the callback's return. */
Test(port, closed_by_the_callback_of_an_event)
{
	struct rte_eth_dev *below = open_without_log();

	cr_assert_eq(
		rte_eth_dev_callback_register(bed.port, RTE_ETH_EVENT_INTR_LSC, on_link, NULL), 0);
	cr_expect_eq(rte_eth_dev_callback_process(below, RTE_ETH_EVENT_INTR_LSC, NULL), 0);
	cr_expect(closed);
}

/* --- arguments --- */

static void
refused(const char *args, const char *words)
{
	size_t before = strlen(bed_said());

	cr_expect_neq(rte_eal_hotplug_add("vdev", "net_impair1", args), 0, "%s", args);
	cr_expect_not_null(strstr(bed_said() + before, words), "%s: %s", args, bed_said() + before);
}

Test(port, arguments)
{
	char args[256];

	bed_open("", "");
	refused("", "port=NAME is missing");
	refused("port=net_nothing", "there is no such port");
	refused("port=4711", "there is no such port");
	refused("port=net_ring_bed", "another driver has it");
	refused("port=net_impair0,held=1", "held=1: a number from 16 to 1048576");
	refused("port=net_impair0,colour=red",
		"its arguments are port, rules, log, held, log_slots");
	refused("port=net_impair0,log=/nowhere/log", "log=/nowhere/log: No such file");
	refused("port=net_impair0,rules=/nowhere/rules", "/nowhere/rules:1:1: No such file");
	bed_write("[rule a]\naction = drop\nnth = x\n");
	snprintf(args, sizeof(args), "port=net_impair0,rules=%s", bed.rules);
	refused(args, ":3:7: [rule] nth = \"x\": not a number from 1");
	/* a port over another net_impair port is allowed */
	cr_expect_eq(rte_eal_hotplug_add("vdev", "net_impair1", "port=net_impair0"), 0);
	cr_expect_eq(rte_eal_hotplug_remove("vdev", "net_impair1"), 0);
	bed_close();
}
