/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * fabric_atomic -p PROVIDER -B PORT, and fabric_atomic -p PROVIDER -P PORT ADDRESS: atomics between
 * two reliable-datagram endpoints of libfabric; the options are those of fi_pingpong.
 *
 * Both ends at the same time execute every operation on every datatype that their endpoint offers
 * (plain, fetching and comparing, on one element and on the maximum number) in the other end's
 * memory.  They store the numbers there by fi_write(), and read the results by fi_read().  Then
 * both count in each other's memory.  Prints "all right" and exits with 0 if nothing was wrong.
 *
 * The expected numbers are computed in long double, which can hold the values of every type.
 */
#include <arpa/inet.h>
#include <complex.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define AREA_BYTES 65536u
#define COUNTS     500u
#define NAME_BYTES 128u

enum kind { PLAIN, FETCH, COMPARE, KINDS };

/* Areas of the registered memory; the peer works on the last one. */
enum area { INITIAL, OPERAND, COMPARAND, RESULT, SEEN, TARGET, AREAS };

/* The data that the ends exchange over TCP. */
struct card {
	uint64_t name_bytes;
	uint8_t name[NAME_BYTES];
	uint64_t target;
	uint64_t key;
};

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;
static uint8_t *memory;
static fi_addr_t peer;
static struct card theirs;
static int tcp;
static unsigned int tried, wrong;

static void
die(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, fi_strerror(error < 0 ? -error : error));
	exit(1);
}

/* Ends the program if a call of libfabric has failed. */
static void
must(long error, const char *what)
{
	if (error < 0)
		die(what, (int)error);
}

static void *
area(enum area which)
{
	return memory + which * (size_t)AREA_BYTES;
}

/* --- numbers --- */

/* Without int128: no endpoint over verbs offers it. */
#define TYPES(T)                             \
	T(FI_INT8, int8_t)                   \
	T(FI_UINT8, uint8_t)                 \
	T(FI_INT16, int16_t)                 \
	T(FI_UINT16, uint16_t)               \
	T(FI_INT32, int32_t)                 \
	T(FI_UINT32, uint32_t)               \
	T(FI_INT64, int64_t)                 \
	T(FI_UINT64, uint64_t)               \
	T(FI_FLOAT, float)                   \
	T(FI_DOUBLE, double)                 \
	T(FI_FLOAT_COMPLEX, float complex)   \
	T(FI_DOUBLE_COMPLEX, double complex) \
	T(FI_LONG_DOUBLE, long double)       \
	T(FI_LONG_DOUBLE_COMPLEX, long double complex)

typedef long double complex number;

static number
load(enum fi_datatype type, const void *from, size_t i)
{
	switch (type) {
#define LOAD(name, c_type) \
	case name:         \
		return ((const c_type *)from)[i];
		TYPES(LOAD)
	default:
		return 0;
	}
}

static void
store(enum fi_datatype type, void *to, size_t i, number n)
{
	switch (type) {
#define STORE(name, c_type)                    \
	case name:                             \
		((c_type *)to)[i] = (c_type)n; \
		break;
		TYPES(STORE)
	default:
		break;
	}
}

static size_t
size_of(enum fi_datatype type)
{
	switch (type) {
#define SIZE(name, c_type) \
	case name:         \
		return sizeof(c_type);
		TYPES(SIZE)
	default:
		return 0;
	}
}

static int
is_signed(enum fi_datatype type)
{
	return type != FI_UINT8 && type != FI_UINT16 && type != FI_UINT32 && type != FI_UINT64;
}

/* @return the target's value after @op.  Products of the numbers that fill() chooses fit into eight
 * bits. */
static number
after(enum fi_op op, number target, number operand, number comparand)
{
	long double t = creall(target), o = creall(operand), c = creall(comparand);
	long long tb = (long long)t, ob = (long long)o, cb = (long long)c;

	switch (op) {
	case FI_MIN:
		return t < o ? t : o;
	case FI_MAX:
		return t > o ? t : o;
	case FI_SUM:
		return target + operand;
	case FI_PROD:
		return target * operand;
	case FI_LOR:
		return target != 0 || operand != 0;
	case FI_LAND:
		return target != 0 && operand != 0;
	case FI_LXOR:
		return (target != 0) != (operand != 0);
	case FI_BOR:
		return tb | ob;
	case FI_BAND:
		return tb & ob;
	case FI_BXOR:
		return tb ^ ob;
	case FI_ATOMIC_WRITE:
		return operand;
	case FI_CSWAP:
		return comparand == target ? operand : target;
	case FI_CSWAP_NE:
		return comparand != target ? operand : target;
	case FI_CSWAP_LE:
		return c <= t ? operand : target;
	case FI_CSWAP_LT:
		return c < t ? operand : target;
	case FI_CSWAP_GE:
		return c >= t ? operand : target;
	case FI_CSWAP_GT:
		return c > t ? operand : target;
	case FI_MSWAP:
		return (ob & cb) | (tb & ~cb);
	default:
		return target; /* FI_ATOMIC_READ */
	}
}

/* Fills the areas with numbers: all relations that an operation may test occur among them. */
static void
fill(enum fi_datatype type, size_t count)
{
	int complex_type = type == FI_FLOAT_COMPLEX || type == FI_DOUBLE_COMPLEX ||
		type == FI_LONG_DOUBLE_COMPLEX;
	size_t i;

	for (i = 0; i < count; i++) {
		number sign = is_signed(type) && i % 2 ? -1 : 1;
		number more = complex_type ? I * (number)(i % 3) : 0;

		store(type, area(INITIAL), i, sign * (number)(i % 11) + more);
		store(type, area(OPERAND), i, (number)(i % 8) + more);
		store(type, area(COMPARAND), i, sign * (number)((i + i / 11 % 3) % 11) + more);
	}
}

/* --- transfers --- */

/* Waits for one completion. */
static void
done(const char *what)
{
	struct fi_cq_err_entry error = {0};
	struct fi_cq_entry entry;
	ssize_t n;

	do {
		n = fi_cq_read(cq, &entry, 1);
	} while (n == -FI_EAGAIN);
	if (n == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
		die(what, error.err);
	must(n, what);
}

/* Evaluates @post, which posts an operation, again until it succeeds; then waits for the
 * completion. */
#define CARRY_OUT(what, post)                           \
	do {                                            \
		ssize_t posted;                         \
		while ((posted = (post)) == -FI_EAGAIN) \
			fi_cq_read(cq, NULL, 0);        \
		must(posted, what);                     \
		done(what);                             \
	} while (0)

static struct fi_context context;

static void
carry_out(enum kind kind, enum fi_op op, enum fi_datatype type, size_t count)
{
	void *mine = fi_mr_desc(mr);
	uint64_t at = theirs.target, key = theirs.key;

	if (kind == PLAIN)
		CARRY_OUT("fi_atomic",
			fi_atomic(
				ep, area(OPERAND), count, mine, peer, at, key, type, op, &context));
	else if (kind == FETCH)
		CARRY_OUT("fi_fetch_atomic",
			fi_fetch_atomic(ep, area(OPERAND), count, mine, area(RESULT), mine, peer,
				at, key, type, op, &context));
	else
		CARRY_OUT("fi_compare_atomic",
			fi_compare_atomic(ep, area(OPERAND), count, mine, area(COMPARAND), mine,
				area(RESULT), mine, peer, at, key, type, op, &context));
}

static void
complain(const char *what, enum fi_op op, enum fi_datatype type, size_t i, number is, number wanted)
{
	char name[64];

	snprintf(name, sizeof(name), "%s", fi_tostr(&op, FI_TYPE_ATOMIC_OP));
	if (wrong++ < 10)
		fprintf(stderr, "%s, %s, element %zu: %s %Lg, must be %Lg\n", name,
			fi_tostr(&type, FI_TYPE_ATOMIC_TYPE), i, what, creall(is), creall(wanted));
}

static void
try(enum kind kind, enum fi_op op, enum fi_datatype type, size_t count)
{
	size_t bytes = count * size_of(type), i;
	void *mine = fi_mr_desc(mr);

	tried++;
	fill(type, count);
	memset(area(RESULT), 0, bytes);
	CARRY_OUT("fi_write",
		fi_write(
			ep, area(INITIAL), bytes, mine, peer, theirs.target, theirs.key, &context));
	carry_out(kind, op, type, count);
	CARRY_OUT("fi_read",
		fi_read(ep, area(SEEN), bytes, mine, peer, theirs.target, theirs.key, &context));
	for (i = 0; i < count; i++) {
		number before = load(type, area(INITIAL), i);
		number wanted = after(
			op, before, load(type, area(OPERAND), i), load(type, area(COMPARAND), i));

		if (load(type, area(SEEN), i) != wanted)
			complain("the target is", op, type, i, load(type, area(SEEN), i), wanted);
		if (kind != PLAIN && load(type, area(RESULT), i) != before)
			complain("the result is", op, type, i, load(type, area(RESULT), i), before);
	}
}

/* @return the maximum number of elements of an operation; 0: the operation is not offered */
static size_t
offered(enum kind kind, enum fi_op op, enum fi_datatype type)
{
	size_t count = 0;
	int error;

	if (kind == PLAIN)
		error = fi_atomicvalid(ep, type, op, &count);
	else if (kind == FETCH)
		error = fi_fetch_atomicvalid(ep, type, op, &count);
	else
		error = fi_compare_atomicvalid(ep, type, op, &count);
	return error ? 0 : count;
}

static void
all_operations(void)
{
	enum fi_datatype type;
	enum kind kind;
	enum fi_op op;

	for (kind = PLAIN; kind < KINDS; kind++)
		for (op = FI_MIN; op <= FI_MSWAP; op++)
			for (type = FI_INT8; type <= FI_LONG_DOUBLE_COMPLEX; type++) {
				size_t count = offered(kind, op, type);

				if (count == 0)
					continue;
				try(kind, op, type, 1);
				try(kind, op, type, count);
			}
}

/* --- the two ends --- */

/* Waits for the other end.  Meanwhile calls libfabric, which makes progress only when it is
 * called. */
static void
meet(void)
{
	struct pollfd fd = {.fd = tcp, .events = POLLIN};
	char byte = 0;

	if (write(tcp, &byte, 1) != 1)
		die("write to the peer", FI_EIO);
	while (poll(&fd, 1, 0) == 0)
		fi_cq_read(cq, NULL, 0);
	if (read(tcp, &byte, 1) != 1)
		die("the peer is gone", FI_EIO);
}

static void
count_together(void)
{
	uint64_t *counter = area(TARGET), *one = area(OPERAND), *result = area(RESULT), last = 0;
	unsigned int i;

	*counter = 0;
	*one = 1;
	meet();
	for (i = 0; i < COUNTS; i++) {
		carry_out(FETCH, FI_SUM, FI_UINT64, 1);
		if (i > 0 && *result != last + 1)
			wrong++;
		last = *result;
	}
	meet();
	if (*counter != COUNTS) {
		fprintf(stderr, "counted to %llu\n", (unsigned long long)*counter);
		wrong++;
	}
}

static void
rendezvous(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	int on = 1, error, listener;

	hints.ai_flags = host ? 0 : AI_PASSIVE;
	error = getaddrinfo(host, port, &hints, &found);
	if (error != 0) {
		fprintf(stderr, "%s: %s\n", host ? host : port, gai_strerror(error));
		exit(1);
	}
	tcp = socket(AF_INET, SOCK_STREAM, 0);
	if (host) {
		error = connect(tcp, found->ai_addr, found->ai_addrlen);
	} else {
		listener = tcp;
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		error = bind(listener, found->ai_addr, found->ai_addrlen) || listen(listener, 1);
		tcp = error ? -1 : accept(listener, NULL, NULL);
		close(listener);
	}
	freeaddrinfo(found);
	if (error != 0 || tcp < 0) {
		perror("the TCP connection");
		exit(1);
	}
}

/* Opens an endpoint at the local address of the TCP connection. */
static void
open_endpoint(const char *provider)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .size = 64};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_info *hints = fi_allocinfo(), *info;
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	char node[INET_ADDRSTRLEN];

	if (!hints || getsockname(tcp, (struct sockaddr *)&sin, &len) != 0)
		die("the address", FI_ENOMEM);
	inet_ntop(AF_INET, &sin.sin_addr, node, sizeof(node));
	hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup(provider);
	must(fi_getinfo(FI_VERSION(1, 17), node, NULL, FI_SOURCE, hints, &info), "fi_getinfo");
	must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	must(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	must(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	must(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	must(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
	must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	must(fi_enable(ep), "fi_enable");
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void
introduce(void)
{
	const uint64_t access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct card ours = {.name_bytes = NAME_BYTES};

	memory = aligned_alloc(4096, AREAS * (size_t)AREA_BYTES);
	if (!memory)
		die("memory", FI_ENOMEM);
	must(fi_mr_reg(domain, memory, AREAS * (size_t)AREA_BYTES, access, 0, 0, 0, &mr, NULL),
		"fi_mr_reg");
	must(fi_getname(&ep->fid, ours.name, &ours.name_bytes), "fi_getname");
	ours.target = (uintptr_t)area(TARGET);
	ours.key = fi_mr_key(mr);
	if (write(tcp, &ours, sizeof(ours)) != sizeof(ours) ||
		recv(tcp, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs))
		die("the peer is gone", FI_EIO);
	if (fi_av_insert(av, theirs.name, 1, &peer, 0, NULL) != 1)
		die("fi_av_insert", FI_EINVAL);
}

int
main(int argc, char **argv)
{
	const char *provider = "verbs;ofi_rxm", *port = NULL;
	int option, client = 0;

	while ((option = getopt(argc, argv, "p:B:P:")) != -1) {
		if (option == 'p')
			provider = optarg;
		else if (option == 'B' || option == 'P')
			port = optarg;
		client |= option == 'P';
	}
	if (!port || argc - optind != client) {
		fprintf(stderr, "usage: %s -p PROVIDER {-B PORT | -P PORT ADDRESS}\n", argv[0]);
		return 2;
	}
	rendezvous(client ? argv[optind] : NULL, port);
	open_endpoint(provider);
	introduce();
	meet();
	all_operations();
	meet();
	count_together();
	fi_close(&ep->fid);
	fi_close(&mr->fid);
	fi_close(&cq->fid);
	fi_close(&av->fid);
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	if (tried == 0)
		fprintf(stderr, "nothing is offered\n");
	printf("%u operations, %u numbers wrong%s\n", tried, wrong,
		tried && !wrong ? ": all right" : "");
	return tried == 0 || wrong != 0;
}
