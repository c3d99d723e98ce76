/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4() */
#endif
#include "example.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- failing --- */

void
example_die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void
example_check(int ret, const char *what)
{
	if (ret < 0)
		example_die("%s: %s (%s)", what, karst_why(), strerror(-ret));
}

/* --- options --- */

static const char common_usage[] =
	"  --connect SOCKET  of karstd; default $KARST_SOCKET, else " KARST_DEFAULT_SOCKET "\n"
	"  --port N          port of karstd, from 1\n"
	"  --gid N           which of the port's addresses, from 0\n"
	"  --tcp PORT        where the two ends find each other; 0: any, printed\n"
	"  -h, --help        print this\n";

static unsigned long
number(const char *name, const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);

	if (*text == 0 || *end != 0)
		example_die("--%s %s: not a number", name, text);
	return n;
}

void
example_options(int argc, char **argv, struct example_opts *o, const char *usage)
{
	static const struct option known[] = {{"connect", 1, NULL, 'k'}, {"port", 1, NULL, 'p'},
		{"gid", 1, NULL, 'g'}, {"tcp", 1, NULL, 't'}, {"count", 1, NULL, 'c'},
		{"size", 1, NULL, 's'}, {"workers", 1, NULL, 'w'}, {"help", 0, NULL, 'h'}, {0}};
	int opt, index = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((opt = getopt_long(argc, argv, "h", known, &index)) != -1) {
		switch (opt) {
		case 'k':
			o->socket = optarg;
			break;
		case 'p':
			o->port = (uint32_t)number("port", optarg);
			break;
		case 'g':
			o->gid_index = (uint32_t)number("gid", optarg);
			break;
		case 't':
			o->tcp_port = optarg;
			break;
		case 'c':
			o->count = number("count", optarg);
			break;
		case 's':
			o->size = number("size", optarg);
			break;
		case 'w':
			o->workers = number("workers", optarg);
			break;
		case 'h':
			printf("%s%s", usage, common_usage);
			exit(0);
		default:
			fprintf(stderr, "%s%s", usage, common_usage);
			exit(2);
		}
	}
	if (optind < argc)
		o->host = argv[optind];
}

/* --- karst's objects --- */

void
example_open(struct example *x, const struct example_opts *o)
{
	example_check(karst_open(o->socket, NULL, &x->ctx), "karst_open");
	example_check(karst_alloc_pd(x->ctx, &x->pd), "karst_alloc_pd");
	example_check(karst_create_cq(x->ctx, 256, NULL, NULL, &x->cq), "karst_create_cq");
}

void
example_close(struct example *x)
{
	example_check(karst_destroy_cq(x->cq), "karst_destroy_cq");
	example_check(karst_dealloc_pd(x->pd), "karst_dealloc_pd");
	example_check(karst_close(x->ctx), "karst_close");
}

void *
example_memory(struct example *x, size_t size, struct karst_mr **mr)
{
	void *p = karst_alloc(size);

	if (p == NULL)
		example_die("no memory");
	example_check(
		karst_reg_mr(x->pd, p, size, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE, mr),
		"karst_reg_mr");
	return p;
}

void
example_free(void *memory, struct karst_mr *mr)
{
	example_check(karst_dereg_mr(mr), "karst_dereg_mr");
	karst_free(memory);
}

struct karst_cqe
example_wait(struct example *x)
{
	struct karst_cqe e;
	int n;

	while ((n = karst_poll_cq(x->cq, 1, &e)) == 0)
		sched_yield();
	example_check(n, "karst_poll_cq");
	if (e.status != KARST_WC_SUCCESS)
		example_die("request %" PRIu64 ": %s", e.wr_id,
			karst_wc_status_str((enum karst_wc_status)e.status));
	return e;
}

/* --- TCP --- */

static struct addrinfo *
resolve(const struct example_opts *o, int flags)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list;
	int ret = getaddrinfo(o->host, o->tcp_port, &hints, &list);

	if (ret != 0)
		example_die("%s port %s: %s", o->host != NULL ? o->host : "here", o->tcp_port,
			gai_strerror(ret));
	return list;
}

unsigned int
example_tcp_port(int listener)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	char service[16];

	if (getsockname(listener, (struct sockaddr *)&at, &len) != 0 ||
		getnameinfo((struct sockaddr *)&at, len, NULL, 0, service, sizeof(service),
			NI_NUMERICSERV) != 0)
		example_die("getsockname: %m");
	return (unsigned int)strtoul(service, NULL, 10);
}

int
example_listen(const struct example_opts *o)
{
	struct addrinfo *a = resolve(o, AI_PASSIVE);
	int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
		bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 64) != 0)
		example_die("TCP port %s: %m", o->tcp_port);
	freeaddrinfo(a);
	printf("listening on TCP port %u\n", example_tcp_port(fd));
	return fd;
}

int
example_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		example_die("accept: %m");
	return fd;
}

int
example_connect(const struct example_opts *o)
{
	struct addrinfo *list = resolve(o, 0), *a;
	int fd = -1;

	for (a = list; a != NULL && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
			close(fd);
			fd = -1;
		}
	}
	if (fd < 0)
		example_die("%s port %s: %m", o->host, o->tcp_port);
	freeaddrinfo(list);
	return fd;
}

/* --- the connection --- */

/* The message that one end sends to the other, in network order. */
struct hello {
	uint8_t gid[16];
	uint32_t qpn;
	uint32_t psn;
	uint32_t rkey;
	uint32_t mtu;
	uint32_t addr[2]; /* high, low */
	uint32_t length[2];
};

static void
transfer(int fd, void *buf, size_t len, bool out)
{
	char *p = buf;

	while (len > 0) {
		ssize_t n = out ? write(fd, p, len) : read(fd, p, len);

		if (n <= 0)
			example_die(
				"the other end has gone: %s", n == 0 ? "closed" : strerror(errno));
		p += n;
		len -= (size_t)n;
	}
}

static void
put64(uint32_t half[2], uint64_t v)
{
	half[0] = htonl((uint32_t)(v >> 32));
	half[1] = htonl((uint32_t)v);
}

static uint64_t
get64(const uint32_t half[2])
{
	return (uint64_t)ntohl(half[0]) << 32 | ntohl(half[1]);
}

static struct karst_qp *
make_qp(struct example *x)
{
	struct karst_qp_init_attr init = {
		.qp_type = KARST_QPT_RC,
		.send_cq = x->cq,
		.recv_cq = x->cq,
		.cap = {.max_send_wr = 64,
			.max_recv_wr = 64,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 32},
	};
	struct karst_qp *qp;

	example_check(karst_create_qp(x->pd, &init, &qp), "karst_create_qp");
	return qp;
}

/* Modifies the queue pair from RESET to INIT, RTR and RTS, as in any verbs program. */
static void
bring_up(struct karst_qp *qp, const struct example_opts *o, const struct hello *peer, uint32_t mtu,
	uint32_t psn)
{
	struct karst_qp_attr a = {
		.qp_state = KARST_QPS_INIT,
		.port_num = (uint8_t)o->port,
		.qp_access_flags = KARST_ACCESS_REMOTE,
		.path_mtu = (enum karst_mtu)mtu,
		.dest_qp_num = ntohl(peer->qpn),
		.rq_psn = ntohl(peer->psn),
		.sq_psn = psn,
		.max_dest_rd_atomic = 16,
		.max_rd_atomic = 16,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.port_num = (uint8_t)o->port, .sgid_index = (uint8_t)o->gid_index},
	};

	memcpy(a.ah_attr.dgid.raw, peer->gid, sizeof(peer->gid));
	example_check(karst_modify_qp(qp, &a,
			      KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT |
				      KARST_QP_ACCESS_FLAGS),
		"to INIT");
	a.qp_state = KARST_QPS_RTR;
	example_check(karst_modify_qp(qp, &a,
			      KARST_QP_STATE | KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
				      KARST_QP_RQ_PSN | KARST_QP_MAX_DEST_RD_ATOMIC |
				      KARST_QP_MIN_RNR_TIMER),
		"to RTR");
	a.qp_state = KARST_QPS_RTS;
	example_check(
		karst_modify_qp(qp, &a,
			KARST_QP_STATE | KARST_QP_SQ_PSN | KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT |
				KARST_QP_RNR_RETRY | KARST_QP_MAX_QP_RD_ATOMIC),
		"to RTS");
}

void
example_link(struct example *x, const struct example_opts *o, int tcp, const struct karst_mr *mr,
	struct example_link *link)
{
	struct hello mine = {{0}}, theirs;
	struct karst_port_attr port;
	union karst_gid gid;
	uint32_t psn = (uint32_t)random() & 0xffffff, mtu;

	link->tcp = tcp;
	link->qp = make_qp(x);
	example_check(karst_query_port(x->ctx, o->port, &port), "karst_query_port");
	example_check(karst_query_gid(x->ctx, o->port, o->gid_index, &gid), "karst_query_gid");
	memcpy(mine.gid, gid.raw, sizeof(mine.gid));
	mine.qpn = htonl(link->qp->qp_num);
	mine.psn = htonl(psn);
	mine.mtu = htonl((uint32_t)port.active_mtu);
	if (mr != NULL) {
		mine.rkey = htonl(mr->rkey);
		put64(mine.addr, mr->iova);
		put64(mine.length, mr->length);
	}
	transfer(tcp, &mine, sizeof(mine), true);
	transfer(tcp, &theirs, sizeof(theirs), false);
	link->addr = get64(theirs.addr);
	link->length = get64(theirs.length);
	link->rkey = ntohl(theirs.rkey);
	mtu = ntohl(theirs.mtu) < (uint32_t)port.active_mtu ? ntohl(theirs.mtu)
							    : (uint32_t)port.active_mtu;
	bring_up(link->qp, o, &theirs, mtu, psn);
	example_meet(link); /* so that the other end is ready before the first send */
}

void
example_meet(const struct example_link *link)
{
	char byte = 0;

	transfer(link->tcp, &byte, 1, true);
	transfer(link->tcp, &byte, 1, false);
}

void
example_unlink(struct example_link *link)
{
	example_check(karst_destroy_qp(link->qp), "karst_destroy_qp");
	close(link->tcp);
}
