/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ports beside a real kernel.  Each case has a network namespace of its own, and another one for
 * the host at the far end; both vanish with the processes that hold them.
 *
 *	here:  engine -- net_af_packet on "near" -- veth -- "far" :there
 *	here:  engine -- net_ring -- engine,  with taps "taphere" here and "tapfar" there
 *	here:  engine -- net_af_packet on "choosy", a macvlan -- veth -- "far" -- net_af_packet --
 *	engine
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>

#include "karst_engine.h"
#include "karst_neigh.h"

#define PATIENCE_MS 120000u

struct net {
	pid_t there; /* holds the other namespace */
	struct karst_engine *e;
	pthread_t thread;
	atomic_bool stop;
};

/* Runs a shell command.  @return its exit status. */
static int sh(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int
sh(const char *fmt, ...)
{
	char cmd[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	return system(cmd);
}

#define must(...) cr_assert_eq(sh(__VA_ARGS__), 0, "a command failed")

/* Starts a process in a network namespace of its own, which runs until this one ends. */
static pid_t
namespace_hold(void)
{
	int ready[2];
	char c = 0;
	pid_t pid;

	cr_assert_eq(pipe(ready), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNET) == 0 && write(ready[1], "y", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	close(ready[1]);
	cr_assert_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void
net_up(struct net *n)
{
	memset(n, 0, sizeof(*n));
	if (unshare(CLONE_NEWNET) != 0)
		cr_skip_test("network namespaces need root: %s", strerror(errno));
	if (sh("ip link set lo up") != 0)
		cr_skip_test("there is no \"ip\" (Debian package iproute2)");
	n->there = namespace_hold();
	must("nsenter -t %d -n ip link set lo up", (int)n->there);
}

static void
eal_up(const char *vdev)
{
	char *argv[] = {(char *)"kernel_test", (char *)"--no-huge", (char *)"--no-shconf",
		(char *)"--no-pci", (char *)"-m", (char *)"64", (char *)"--log-level=4",
		(char *)"--no-telemetry", (char *)"--lcores", (char *)"0@(0-1)", (char *)vdev};

	cr_assert_geq(rte_eal_init((int)KARST_DIM(argv) - (vdev == NULL), argv), 0, "EAL");
}

static void
veth_up(struct net *n)
{
	must("ip link add near type veth peer name far");
	must("ip link set far netns %d", (int)n->there);
	must("ip link set near up");
	must("nsenter -t %d -n ip link set far up", (int)n->there);
	must("nsenter -t %d -n ip addr add 10.77.0.2/24 dev far", (int)n->there);
	must("nsenter -t %d -n ip addr add fd77::2/64 dev far nodad", (int)n->there);
}

static void *
poller(void *arg)
{
	struct net *n = arg;

	while (!atomic_load(&n->stop))
		if (karst_engine_poll(n->e, 0) == 0)
			usleep(50);
	karst_engine_release(n->e, 0);
	return NULL;
}

static void
engine_up(struct net *n)
{
	const struct karst_engine_config cfg = {.max_qps = 16};

	cr_assert_eq(karst_engine_create(&cfg, &n->e), 0);
	cr_assert_eq(pthread_create(&n->thread, NULL, poller, n), 0);
}

static void
net_down(struct net *n)
{
	atomic_store(&n->stop, true);
	pthread_join(n->thread, NULL);
	cr_assert_eq(karst_engine_destroy(n->e), 0);
	kill(n->there, SIGKILL);
	waitpid(n->there, NULL, 0);
}

static struct karst_engine_addr
ip4(uint32_t host, uint8_t prefix)
{
	struct karst_engine_addr a = karst_engine_addr_ip4(host);

	a.prefix = prefix;
	return a;
}

static struct karst_engine_addr
ip6(uint8_t last)
{
	struct karst_engine_addr a = {.ip = {0xfd, 0x77, [15] = last}, .prefix = 64};

	return a;
}

static uint8_t
add_port(struct net *n, struct karst_engine_port_config *cfg, struct karst_engine_addr *addrs)
{
	uint8_t port;

	cfg->num_addrs = 2;
	cfg->addrs = addrs;
	cr_assert_eq(karst_engine_port_add(n->e, cfg, &port), 0);
	return port;
}

static int
resolve(struct net *n, uint32_t addr, struct karst_engine_addr to, uint32_t ms,
	struct karst_path *path)
{
	const struct karst_engine_resolve_opts opts = {.timeout_ms = ms};

	memset(path, 0, sizeof(*path));
	return karst_engine_resolve(n->e, 0, addr, to.ip, &opts, path);
}

/* Reads the MAC address of the far end, as "ip" shows it. */
static void
far_mac(struct net *n, uint8_t mac[6])
{
	unsigned int m[6], i;
	char cmd[96];
	FILE *f;

	snprintf(cmd, sizeof(cmd), "nsenter -t %d -n ip -br link show dev far | awk '{ print $3 }'",
		(int)n->there);
	f = popen(cmd, "r");
	cr_assert_not_null(f);
	cr_assert_eq(fscanf(f, "%x:%x:%x:%x:%x:%x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]), 6);
	pclose(f);
	for (i = 0; i < 6; i++)
		mac[i] = (uint8_t)m[i];
}

/* Makes the kernel of the far end ask for an address of the engine until it has the answer. */
static void
is_found(struct net *n, const char *ip)
{
	unsigned int tries;

	for (tries = 0; tries < PATIENCE_MS / 1000; tries++) {
		/* the engine does not answer the ping, so this waits for a second */
		sh("nsenter -t %d -n ping -q -c 1 -W 1 %s >/dev/null", (int)n->there, ip);
		if (sh("nsenter -t %d -n ip neigh get %s dev far | grep -q 02:00:00:00:77:01",
			    (int)n->there, ip) == 0)
			return;
	}
	cr_assert_fail("%s is not found", ip);
}

/* The engine owns the port, and exchanges ARP and neighbour discovery with the kernel at the far
 * end. */
Test(kernel, own_port)
{
	struct karst_engine_addr addrs[2] = {ip4(0x0a4d0001, 24), ip6(1)};
	struct karst_engine_port_config cfg = {.mac = {2, 0, 0, 0, 0x77, 1}};
	struct karst_path path;
	uint8_t mac[6];
	struct net n;

	net_up(&n);
	veth_up(&n);
	/* only the engine answers on this side */
	must("ip link set near arp off");
	must("sysctl -qw net.ipv6.conf.near.disable_ipv6=1");
	must("ip link set near promisc on");
	eal_up("--vdev=net_af_packet0,iface=near");
	engine_up(&n);
	add_port(&n, &cfg, addrs);
	far_mac(&n, mac);
	cr_assert_eq(resolve(&n, 0, ip4(0x0a4d0002, 0), PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	cr_assert_eq(resolve(&n, 1, ip6(2), PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	cr_assert_eq(resolve(&n, 0, ip4(0x0a4d0003, 0), 300, &path), -EHOSTUNREACH);
	/* in the other direction: the kernel at the far end asks */
	must("nsenter -t %d -n ip neigh flush dev far", (int)n.there);
	is_found(&n, "10.77.0.1");
	is_found(&n, "fd77::1");
	net_down(&n);
}

/* The kernel owns the port, which the engine only observes: neighbours and routes are the
 * kernel's. */
Test(kernel, view_of_an_interface)
{
	struct karst_engine_addr addrs[2] = {ip4(0x0a4d0001, 24), ip6(1)};
	struct karst_engine_port_config cfg = {.netdev = "near"};
	struct karst_engine_neigh list[8];
	struct karst_path path;
	uint8_t mac[6];
	struct net n;
	int i, count;

	net_up(&n);
	veth_up(&n);
	must("ip addr add 10.77.0.1/24 dev near");
	must("ip addr add fd77::1/64 dev near nodad");
	must("ip route add 10.88.0.0/16 via 10.77.0.2");
	must("ip -6 route add fd88::/16 via fd77::2");
	eal_up("--vdev=net_af_packet0,iface=near");
	engine_up(&n);
	add_port(&n, &cfg, addrs);
	far_mac(&n, mac);
	cr_assert_eq(resolve(&n, 0, ip4(0x0a4d0002, 0), PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	cr_assert_eq(resolve(&n, 1, ip6(2), PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	/* once more, from the table; and beyond the router */
	cr_assert_eq(resolve(&n, 0, ip4(0x0a4d0002, 0), PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	cr_assert_eq(resolve(&n, 0, ip4(0x0a580203, 0), PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	addrs[1].ip[1] = 0x88;
	cr_assert_eq(resolve(&n, 1, addrs[1], PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	/* no such host; no route to it */
	cr_assert_eq(resolve(&n, 0, ip4(0x0a4d0003, 0), 300, &path), -EHOSTUNREACH);
	must("ip route add unreachable 10.99.0.0/16");
	cr_assert_eq(resolve(&n, 0, ip4(0x0a630001, 0), PATIENCE_MS, &path), -EHOSTUNREACH);
	must("ip route add blackhole 10.98.0.0/16");
	cr_assert_eq(resolve(&n, 0, ip4(0x0a620001, 0), PATIENCE_MS, &path), -EHOSTUNREACH);
	count = karst_engine_neigh_list(n.e, 0, list, KARST_DIM(list));
	cr_assert_geq(count, 3);
	for (i = 0; i < count && memcmp(list[i].ip, ip4(0x0a4d0002, 0).ip, 16) != 0; i++)
		;
	cr_assert_lt(i, count);
	cr_assert_arr_eq(list[i].mac, mac, 6);
	/* the interface is removed */
	must("ip link del near");
	cr_assert_eq(resolve(&n, 0, ip4(0x0a4d0002, 0), 300, &path), -ENODEV);
	net_down(&n);
}

/* The kernel chooses the route by the source, too, as hosts with several interfaces are set up. */
Test(kernel, routes_by_source)
{
	struct karst_engine_addr addrs[2] = {ip4(0x0a4d0001, 24), ip6(1)};
	struct karst_engine_port_config cfg = {.netdev = "near"};
	struct karst_engine_addr other;
	struct karst_path path;
	uint8_t mac[6];
	struct net n;

	net_up(&n);
	veth_up(&n);
	must("ip addr add 10.77.0.1/24 dev near");
	must("ip addr add fd77::1/64 dev near nodad");
	must("ip link add main type veth peer name main_far");
	must("ip link set main up; ip link set main_far up");
	must("ip addr add 10.76.0.1/24 dev main");
	must("ip addr add fd76::1/64 dev main nodad");
	must("ip route add default via 10.76.0.2");
	must("ip -6 route add default via fd76::2");
	must("ip rule add from 10.77.0.1 lookup 101");
	must("ip route add default via 10.77.0.2 dev near table 101");
	must("ip -6 rule add from fd77::1 lookup 101");
	must("ip -6 route add default via fd77::2 dev near table 101");
	must("ip -6 route add fd98::/64 dev near table 101");
	must("nsenter -t %d -n ip addr add fd98::7/64 dev far nodad", (int)n.there);
	eal_up("--vdev=net_af_packet0,iface=near");
	engine_up(&n);
	add_port(&n, &cfg, addrs);
	far_mac(&n, mac);
	cr_assert_eq(resolve(&n, 0, ip4(0x0a090007, 0), PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	other = addrs[1];
	other.ip[1] = 0x99;
	cr_assert_eq(resolve(&n, 1, other, PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	/* a neighbour that only the rule says to be on this link */
	other.ip[1] = 0x98;
	other.ip[15] = 7;
	cr_assert_eq(resolve(&n, 1, other, PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	/* a rule that forbids a destination to this source */
	must("ip route add prohibit 10.95.0.0/16 table 101");
	must("ip route add 10.95.0.0/16 via 10.77.0.2");
	cr_assert_eq(resolve(&n, 0, ip4(0x0a5f0001, 0), PATIENCE_MS, &path), -EHOSTUNREACH);
	/* from an address that only the engine has, routes are those of any other source */
	must("ip addr del 10.77.0.1/24 dev near");
	must("ip addr add 10.77.0.5/24 dev near");
	must("ip route add 10.88.0.0/16 via 10.77.0.2");
	cr_assert_eq(resolve(&n, 0, ip4(0x0a580203, 0), PATIENCE_MS, &path), 0);
	cr_assert_arr_eq(path.dst_mac, mac, 6);
	net_down(&n);
}

/* Two interfaces of one host in one subnet: the kernel has no path over a wire from one of its
 * addresses to another one. */
Test(kernel, two_views_in_one_subnet)
{
	struct karst_engine_addr addrs[2] = {ip4(0x0a4d0001, 24), ip6(1)};
	struct karst_engine_addr more[2] = {ip4(0x0a4d0004, 24), ip6(4)};
	struct karst_engine_port_config cfg = {.netdev = "near"};
	struct karst_path path;
	struct net n;

	net_up(&n);
	veth_up(&n);
	must("ip link add near2 type veth peer name far2");
	must("ip link set near2 up; ip link set far2 up");
	must("ip addr add 10.77.0.1/24 dev near");
	must("ip addr add fd77::1/64 dev near nodad");
	must("ip addr add 10.77.0.4/24 dev near2");
	must("ip addr add fd77::4/64 dev near2 nodad");
	eal_up("--vdev=net_af_packet0,iface=near");
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_af_packet1", "iface=near2"), 0);
	engine_up(&n);
	add_port(&n, &cfg, addrs);
	cfg = (struct karst_engine_port_config){.netdev = "near2", .ethdev = 1};
	add_port(&n, &cfg, more);
	cr_assert_eq(resolve(&n, 0, more[0], PATIENCE_MS, &path), 0);
	cr_assert_eq(path.port, karst_engine_port_loop(n.e, 0));
	cr_assert_eq(resolve(&n, 1, more[1], PATIENCE_MS, &path), 0);
	cr_assert_eq(path.port, karst_engine_port_loop(n.e, 0));
	net_down(&n);
}

/* Two ports joined by rings; the taps beside them are in different namespaces. */
static void
taps_up(struct net *n)
{
	struct karst_engine_addr addrs[2];
	struct karst_engine_port_config cfg;
	struct rte_ring *wire[2];
	unsigned int side;

	wire[0] = rte_ring_create("wire0", 1024, 0, 0);
	wire[1] = rte_ring_create("wire1", 1024, 0, 0);
	for (side = 0; side < 2; side++) {
		char name[16];
		int id;

		snprintf(name, sizeof(name), "side%u", side);
		id = rte_eth_from_rings(name, &wire[1 - side], 1, &wire[side], 1, 0);
		cr_assert_geq(id, 0);
		cfg = (struct karst_engine_port_config){.ethdev = (uint16_t)id,
			.mac = {2, 0, 0, 0, 0x99, (uint8_t)(side + 1)},
			.exception_tap = side == 0 ? "taphere" : "tapfar"};
		addrs[0] = ip4(0x0a4d0001 + side, 24);
		addrs[1] = ip6((uint8_t)(1 + side));
		add_port(n, &cfg, addrs);
	}
	must("ip link set tapfar netns %d", (int)n->there);
	must("nsenter -t %d -n ip link set tapfar up", (int)n->there);
}

Test(kernel, exception_tap)
{
	struct karst_engine_lcore_stats before, after;
	struct karst_engine_port_info info;
	struct karst_path path;
	struct net n;

	net_up(&n);
	eal_up(NULL);
	engine_up(&n);
	taps_up(&n);
	/* addresses of the kernels, in addition to those of the engine */
	must("ip addr add 10.77.0.11/24 dev taphere");
	must("ip addr add fd77::11/64 dev taphere nodad");
	must("nsenter -t %d -n ip addr add 10.77.0.12/24 dev tapfar", (int)n.there);
	must("nsenter -t %d -n ip addr add fd77::12/64 dev tapfar nodad", (int)n.there);
	cr_assert_eq(karst_engine_lcore_stats(n.e, 0, &before), 0);
	must("ping -q -c 20 -i 0.01 -W 10 10.77.0.12 >/dev/null");
	must("ping -q -c 20 -i 0.01 -W 10 fd77::12 >/dev/null");
	must("ping -q -c 5 -i 0.01 -W 10 -s 1400 10.77.0.12 >/dev/null");
	cr_assert_eq(karst_engine_lcore_stats(n.e, 0, &after), 0);
	cr_assert_geq(after.tap_rx - before.tap_rx, 90);
	cr_assert_geq(after.tap_tx - before.tap_tx, 90);
	must("ip neigh get 10.77.0.12 dev taphere | grep -q 02:00:00:00:99:02");
	/* the engine's neighbours; the kernel has its own */
	cr_assert_eq(resolve(&n, 0, ip4(0x0a4d0002, 0), PATIENCE_MS, &path), 0);
	cr_assert_eq(path.dst_mac[5], 2);
	cr_assert_eq(resolve(&n, 1, ip6(2), PATIENCE_MS, &path), 0);
	cr_assert_eq(path.dst_mac[5], 2);
	cr_assert_eq(resolve(&n, 0, ip4(0x0a4d000c, 0), PATIENCE_MS, &path), 0);
	cr_assert_eq(path.dst_mac[5], 2);
	/* addresses that both have: the engine answers for them, the kernel uses them */
	must("ip addr add 10.77.0.1/24 dev taphere");
	must("nsenter -t %d -n ping -q -c 3 -i 0.01 -W 10 10.77.0.1 >/dev/null", (int)n.there);
	/* and the kernel asks for neighbours from them */
	must("ip addr add fd77::1/64 dev taphere nodad");
	must("ip neigh flush dev taphere");
	must("ip -6 neigh flush dev taphere");
	must("ping -q -c 3 -i 0.01 -W 10 -I 10.77.0.1 10.77.0.12 >/dev/null");
	must("ping -q -c 3 -i 0.01 -W 10 -I fd77::1 fd77::12 >/dev/null");
	/* removed together with the port */
	cr_assert_eq(karst_engine_port_remove(n.e, 0), 0);
	cr_assert_neq(sh("ip link show dev taphere >/dev/null 2>&1"), 0);
	cr_assert_eq(karst_engine_port_info(n.e, 0, &info), -EINVAL);
	cr_assert_eq(karst_engine_port_info(n.e, 1, &info), 0);
	net_down(&n);
}

/* The state of a thread of this process with this name: R, S, ...; 0: there is none. */
static char
thread_state(const char *name)
{
	char cmd[96], state = 0;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "cat /proc/%d/task/*/stat | sed -n 's/.*(%s) \\(.\\).*/\\1/p'",
		(int)getpid(), name);
	f = popen(cmd, "r");
	cr_assert_not_null(f);
	if (fscanf(f, "%c", &state) != 1)
		state = 0;
	pclose(f);
	return state;
}

/* The thread of a tap that somebody deletes sleeps as before, and does not ask again and again. */
Test(kernel, exception_tap_deleted)
{
	unsigned int looks, asleep = 0;
	struct net n;

	net_up(&n);
	eal_up(NULL);
	engine_up(&n);
	taps_up(&n);
	must("ip link del taphere");
	for (looks = 0; looks < 200 && asleep < 10; looks++) {
		char state = thread_state("karst-tap0");

		cr_assert_neq(state, 0, "there is no such thread");
		asleep = state == 'S' ? asleep + 1 : 0;
	}
	cr_expect_eq(asleep, 10, "it runs all the time");
	cr_assert_eq(karst_engine_port_remove(n.e, 0), 0);
	net_down(&n);
}

Test(kernel, exception_tap_refused)
{
	struct karst_engine_addr addr = ip4(0x0a4d0001, 24);
	struct karst_engine_port_config cfg = {
		.num_addrs = 1, .addrs = &addr, .exception_tap = "busy"};
	struct rte_ring *wire;
	struct net n;
	uint8_t port;
	int id;

	net_up(&n);
	must("ip link add busy type veth peer name other");
	eal_up(NULL);
	engine_up(&n);
	wire = rte_ring_create("wire", 64, 0, 0);
	id = rte_eth_from_ring(wire);
	cr_assert_geq(id, 0);
	cfg.ethdev = (uint16_t)id;
	cr_assert_lt(karst_engine_port_add(n.e, &cfg, &port), 0);
	cfg.exception_tap = "0123456789abcdef";
	cr_assert_eq(karst_engine_port_add(n.e, &cfg, &port), -EINVAL);
	cfg.exception_tap = "free";
	cfg.netdev = "busy";
	cr_assert_eq(karst_engine_port_add(n.e, &cfg, &port), -EINVAL);
	cfg.netdev = NULL;
	cr_assert_eq(karst_engine_port_add(n.e, &cfg, &port), 0);
	cr_assert_eq(port, 0);
	net_down(&n);
}

/* --- multicast --- */

static uint8_t mem[3][256];

struct members {
	struct karst_engine_cq *cq;
	struct karst_engine_qp *qp[2]; /* one on each port */
	uint32_t pd, key;
};

static void
members_up(struct net *n, struct members *m)
{
	const struct karst_engine_cq_init cq = {.entries = 64};
	enum karst_qp_state to;
	uint32_t i;

	cr_assert_eq(karst_engine_pd_alloc(n->e, &m->pd), 0);
	cr_assert_eq(karst_engine_cq_create(n->e, &cq, &m->cq), 0);
	cr_assert_eq(karst_engine_mr_reg(n->e, m->pd, mem, (uintptr_t)mem, sizeof(mem),
			     KARST_ACCESS_LOCAL_WRITE, &m->key),
		0);
	for (i = 0; i < 2; i++) {
		const struct karst_engine_qp_init init = {.type = KARST_QPT_UD,
			.pd = m->pd,
			.send_cq = m->cq,
			.recv_cq = m->cq,
			.max_send_wr = 4,
			.max_recv_wr = 4};
		struct karst_core_qp_attr attr = {.port_num = (uint8_t)(i + 1), .qkey = 5};

		cr_assert_eq(karst_engine_qp_create(n->e, &init, &m->qp[i]), 0);
		for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
			unsigned int mask = KARST_QP_STATE;

			attr.qp_state = to;
			if (to == KARST_QPS_INIT)
				mask |= KARST_QP_PKEY_INDEX | KARST_QP_PORT | KARST_QP_QKEY;
			if (to == KARST_QPS_RTS)
				mask |= KARST_QP_SQ_PSN;
			cr_assert_eq(karst_engine_qp_modify(n->e, m->qp[i], &attr, mask), 0);
		}
	}
}

static void
post_recvs(struct members *m)
{
	uint32_t i, k;

	for (i = 0; i < 2; i++)
		for (k = 0; k < 2; k++) {
			struct karst_recv_wqe *w = karst_engine_recv_slot(m->qp[i], k);

			*w = (struct karst_recv_wqe){.wr_id = i, .num_sge = 1};
			w->sge[0] = (struct karst_sge){(uintptr_t)mem[i], sizeof(mem[i]), m->key};
		}
	cr_assert_eq(karst_engine_post_recv(m->qp[0], 2), 0);
	cr_assert_eq(karst_engine_post_recv(m->qp[1], 2), 0);
}

/* Sends from QP @from to the group, and counts how many messages each of the QPs received. */
static void
send_to(struct net *n, struct members *m, uint32_t from, const uint8_t group[16],
	unsigned int got[2])
{
	struct karst_send_wqe *w = karst_engine_send_slot(m->qp[from], 0);
	struct karst_path path;
	struct karst_cqe e;
	unsigned int idle = 0, ms;
	uint32_t ah;

	cr_assert_eq(karst_engine_resolve(n->e, (uint8_t)from, 0, group, NULL, &path), 0);
	cr_assert_eq(karst_engine_ah_create(n->e, m->pd, &path, &ah), 0);
	*w = (struct karst_send_wqe){.wr_id = 9,
		.opcode = KARST_WR_SEND,
		.num = 1,
		.ud = {.ah = ah, .remote_qpn = 0xffffff, .remote_qkey = 5}};
	w->sge[0] = (struct karst_sge){(uintptr_t)mem[2], 100, m->key};
	cr_assert_eq(karst_engine_post_send(m->qp[from], 1), 0);
	/* both, and then nothing more for a while */
	for (ms = 0; idle < 200 && ms < PATIENCE_MS; ms++) {
		if (karst_engine_cq_poll(m->cq, &e, 1) == 1) {
			cr_assert_eq(e.status, KARST_WC_SUCCESS);
			got[e.wr_id]++;
			idle = 0;
		} else if (got[0] != 0 && got[1] != 0) {
			idle++;
		}
		usleep(1000);
	}
	cr_assert_eq(karst_engine_ah_destroy(n->e, ah), 0);
}

/* A macvlan delivers only those groups that a socket has joined; net_af_packet has no filter list
 * to request them. */
Test(kernel, u4_multicast_over_a_device_that_filters)
{
	const struct karst_engine_addr group = ip4(0xef070707, 0);
	struct karst_engine_addr addrs[2] = {ip4(0x0a4d0001, 24), ip6(1)};
	struct karst_engine_port_config cfg = {.ethdev = 0};
	struct members m;
	struct net n;
	uint32_t from, i;
	uint16_t id;

	net_up(&n);
	must("ip link add under type veth peer name far");
	must("ip link add link under name choosy type macvlan mode bridge");
	must("ip link set under up && ip link set far up && ip link set choosy up");
	eal_up("--vdev=net_af_packet0,iface=choosy");
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_af_packet1", "iface=far"), 0);
	engine_up(&n);
	add_port(&n, &cfg, addrs);
	cr_assert_eq(rte_eth_dev_get_port_by_name("net_af_packet1", &id), 0);
	cfg.ethdev = id;
	addrs[0].ip[15] = addrs[1].ip[15] = 2;
	add_port(&n, &cfg, addrs);
	members_up(&n, &m);
	for (i = 0; i < 2; i++)
		cr_assert_eq(karst_engine_qp_attach_mcast(n.e, m.qp[i], group.ip), 0);
	must("ip -d link show choosy | grep -q 'promiscuity [1-9]'");
	/* each gets the message once: over the wire, or by loopback */
	for (from = 0; from < 2; from++) {
		unsigned int got[2] = {0};

		post_recvs(&m);
		send_to(&n, &m, from, group.ip, got);
		cr_assert_eq(got[0], 1, "%u", got[0]);
		cr_assert_eq(got[1], 1, "%u", got[1]);
	}
	for (i = 0; i < 2; i++)
		cr_assert_eq(karst_engine_qp_detach_mcast(n.e, m.qp[i], group.ip), 0);
	must("ip -d link show choosy | grep -q 'promiscuity 0'");
	net_down(&n);
}
