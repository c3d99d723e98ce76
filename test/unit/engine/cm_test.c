/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Tables of connection management that peers and programs can fill up. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "cm.h"
#include "lcore.h"
#include "share_bed.h"

/* --- paths --- */

#define PATHS 400u /* fewer than the MADs that may wait */

static unsigned int
longest_path_bucket(const struct eng_cm *cm)
{
	unsigned int i, n, longest = 0;
	const struct cm_path *w;

	for (i = 0; i < CM_PATH_BUCKETS; i++) {
		n = 0;
		LIST_FOREACH(w, &cm->paths[i], next)
			n++;
		longest = n > longest ? n : longest;
	}
	return longest;
}

/* A peer that sends from many addresses cannot choose the addresses so that all paths to them land
 * in one hash bucket, which every lookup would then have to search.  These addresses were chosen so
 * for a hash that multiplies by a well-known number. */
Test(engine_cm, places_cannot_be_told)
{
	const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
	const uint64_t inverse = UINT64_C(0xf1de83e19937733d);
	static const uint8_t mad[ENG_GSI_MAD_BYTES];
	struct karst_cm_path path = {.local_ip = {0xfd, [15] = 1}, .remote_ip = {0xfd, 1}};
	uint64_t words[3], h = 0, last;
	struct engine_bed bed;
	unsigned int i, longest;
	struct eng_cm *cm;

	cr_assert_eq(factor * inverse, 1);
	memcpy(words, path.local_ip, 16);
	memcpy(words + 2, path.remote_ip, 8);
	for (i = 0; i < 3; i++)
		h = (h ^ words[i]) * factor;
	engine_bed_up(&bed, &(struct engine_bed_config){0});
	cm = eng_cm_enter(bed.e);
	for (i = 0; i < PATHS; i++) {
		last = h ^ i * inverse;
		memcpy(path.remote_ip + 8, &last, 8);
		eng_cm_path_send(cm, &path, mad);
	}
	longest = longest_path_bucket(cm);
	cr_assert_eq(cm->npaths, PATHS);
	eng_cm_leave(cm);
	cr_assert_lt(longest, PATHS / 10, "%u", longest);
	engine_bed_down(&bed);
}

/* --- identifiers that wait for a path --- */

#define MANY_IDS 2048u
#define TIMES    40u /* on a busy machine one round may end before the test has observed it */

/* Another program of user 1000, with @n identifiers that resolve the same address, which no host
 * has, with a timeout of @ms each. */
static struct client *
program_that_looks(const struct engine_bed *bed, uint32_t n, uint32_t ms)
{
	struct karst_ctl_cm_addr src = {.family = AF_INET}, dst = {.family = AF_INET};
	struct client *c = user(bed->e, 1000, 75);
	uint32_t i, channel = cm_channel(c), id;

	memcpy(src.ip, karst_engine_addr_ip4(0x0a000001).ip, 16);
	memcpy(dst.ip, karst_engine_addr_ip4(0x0a00004d).ip, 16);
	for (i = 0; i < n; i++) {
		cr_assert_eq(CALL(c, CM_CREATE_ID, cm_create_id, .channel = channel,
				     .port_space = KARST_RDMACM_PS_TCP, .qp_type = KARST_QPT_RC),
			0, "%s", c->why);
		id = RSP(c, cm_create_id)->id;
		cr_assert_eq(CALL(c, CM_RESOLVE_ADDR, cm_resolve_addr, .id = id, .timeout_ms = ms,
				     .src = src, .dst = dst),
			0, "%s", c->why);
	}
	return c;
}

static uint32_t
waiting(const struct client *c)
{
	const struct cm_id *id;
	uint32_t at = 0, n = 0;

	while ((id = eng_handles_next(&c->s->cm.ids, &at)) != NULL)
		n += id->waits_for != NULL;
	return n;
}

/* Ends the path that identifiers wait for, by removing the address at which it begins.  @return how
 * often the test got the lock of connection management when some identifiers knew that and some did
 * not. */
static uint32_t
looks_between(const struct engine_bed *bed)
{
	const struct karst_engine_addr addrs[] = {
		karst_engine_addr_ip4(0x0a000001), karst_engine_addr_ip4(0x0a000065)};
	struct client *c = program_that_looks(bed, MANY_IDS, 3600000);
	uint32_t between = 0, left = MANY_IDS;
	struct eng_cm *cm;

	cr_assert_eq(karst_engine_port_set_addrs(bed->e, bed->port[0], 1, &addrs[1]), 0);
	while (left > 0) {
		cm = eng_cm_enter(bed->e);
		left = waiting(c);
		eng_cm_leave(cm);
		between += left > 0 && left < MANY_IDS;
	}
	client_close(c);
	cr_assert_eq(karst_engine_port_set_addrs(bed->e, bed->port[0], 2, addrs), 0);
	return between;
}

/* Thousands of a user's identifiers wait for one path: other threads get the lock before all of
 * them have been told what became of the path. */
Test(engine_cm, others_while_identifiers_hear)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16, .max_cm_ids = 2 * MANY_IDS}};
	struct engine_bed bed;
	uint32_t i, between;

	engine_bed_up(&bed, &cfg);
	for (i = between = 0; i < TIMES && between == 0; i++)
		between = looks_between(&bed);
	cr_assert_gt(between, 0);
	engine_bed_down(&bed);
}

/* Each identifier waits for its own timeout, and not as long as others that wait for the same path;
 * also for timeouts beyond the range of the timer wheel. */
Test(engine_cm, each_waits_as_it_wants)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16, .max_cm_ids = 256}};
	struct client *often, *once, *ever;
	const struct timespec nap = {.tv_nsec = 1000000};
	struct engine_bed bed;
	struct eng_cm *cm;
	uint32_t left;

	engine_bed_up(&bed, &cfg);
	ever = program_that_looks(&bed, 3, UINT32_MAX);
	often = program_that_looks(&bed, 50, 1);
	once = program_that_looks(&bed, 1, 3600000);
	do {
		nanosleep(&nap, NULL);
		cm = eng_cm_enter(bed.e);
		left = waiting(often);
		cr_assert_eq(waiting(once), 1);
		cr_assert_eq(waiting(ever), 3);
		cr_assert_eq(cm->nwaits, 1);
		eng_cm_leave(cm);
	} while (left > 0);
	client_close(once);
	client_close(ever);
	cm = eng_cm_enter(bed.e);
	cr_assert_eq(cm->nwaits, 0);
	cr_assert(TAILQ_EMPTY(&cm->asking));
	eng_cm_leave(cm);
	client_close(often);
	engine_bed_down(&bed);
}

/* A path that only MADs wait for is tried less and less often, until a program waits for it,
 * too. */
Test(engine_cm, mads_are_patient)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	static const uint8_t mad[ENG_GSI_MAD_BYTES];
	const uint64_t most_ns = 10000000; /* the longest interval for a single identifier */
	const struct timespec nap = {.tv_nsec = 1000000};
	struct karst_cm_path path = {.port = 0};
	const struct cm_path *w;
	struct engine_bed bed;
	struct client *c;
	struct eng_cm *cm;
	uint64_t naps;

	memcpy(path.local_ip, karst_engine_addr_ip4(0x0a000001).ip, 16);
	memcpy(path.remote_ip, karst_engine_addr_ip4(0x0a00004d).ip, 16);
	engine_bed_up(&bed, &cfg);
	do {
		cm = eng_cm_enter(bed.e);
		/* when a MAD has waited for too long and is dropped, the next one starts from the
		 * shortest interval */
		if (cm->nmads_waiting == 0)
			eng_cm_path_send(cm, &path, mad);
		w = TAILQ_FIRST(&cm->asking);
		naps = w != NULL ? w->nap_ns : 0;
		eng_cm_leave(cm);
		nanosleep(&nap, NULL);
	} while (naps <= 8 * most_ns);
	c = program_that_looks(&bed, 1, 3600000);
	cm = eng_cm_enter(bed.e);
	w = TAILQ_FIRST(&cm->asking);
	cr_assert_leq(w->nap_ns, most_ns);
	cr_assert_leq(w->look_ns, cm->cm->now_ns + most_ns);
	eng_cm_leave(cm);
	client_close(c);
	engine_bed_down(&bed);
}

/* --- requests that were sent --- */

/* Sends the request of an identifier of @client for the queue pair of datagrams at the @i-th
 * address, and destroys the identifier.  @return whether the request was sent. */
static bool
ask_and_leave(struct eng_cm *cm, struct cm_client *client, uint32_t i)
{
	struct cm_id id = {.client = client, .qp_type = KARST_QPT_UD};
	bool asked;

	memcpy(id.path.remote_ip, karst_engine_addr_ip4(0x0b000000 + i).ip, 16);
	asked = eng_cm_ask(cm, &id);
	eng_cm_unanswered(cm, &id);
	return asked;
}

/* A user sends requests for datagrams to one address after the other, and destroys each identifier
 * before the answer.  The table that remembers these requests is bounded, one user does not get all
 * of it, and its entries expire. */
Test(engine_cm, asked_of_many)
{
	const uint64_t kept_ns = UINT64_C(4096) << 24;
	struct cm_client his = {.uid = 1000}, other = {.uid = 1001}, root = {.uid = 0};
	struct engine_bed bed;
	struct eng_cm *cm;
	uint32_t n, i;

	engine_bed_up(&bed, &(struct engine_bed_config){0});
	his.ids.share = join(&bed.e->shares, 1000, &fair);
	other.ids.share = join(&bed.e->shares, 1001, &fair);
	cm = eng_cm_enter(bed.e);
	for (n = 0; n < CM_ASKED_MAX && ask_and_leave(cm, &his, n); n++)
		;
	cr_assert_eq(n, CM_ASKED_MAX / 4 * 3, "%u", n);
	cr_assert_eq(cm->nasked, n);
	cr_assert_eq(cm->stats.ask_share, 1);
	/* an address that was asked before may be asked again */
	cr_assert(ask_and_leave(cm, &his, 0));
	cr_assert(ask_and_leave(cm, &other, n));
	/* a user without an account gets what is left */
	for (i = 0; i < CM_ASKED_MAX && ask_and_leave(cm, &root, n + 1 + i); i++)
		;
	cr_assert_eq(cm->nasked, CM_ASKED_MAX);
	/* expired entries are removed soon, though nobody sends the same requests again */
	cm->cm->now_ns += 2 * kept_ns;
	for (i = 0; i < CM_ASKED_BUCKETS; i++)
		ask_and_leave(cm, &his, 2 * CM_ASKED_MAX + i);
	cr_assert_leq(cm->nasked, CM_ASKED_BUCKETS, "%u", cm->nasked);
	cr_assert(ask_and_leave(cm, &his, 0));
	eng_cm_leave(cm);
	eng_share_leave(his.ids.share);
	eng_share_leave(other.ids.share);
	engine_bed_down(&bed);
}

/* --- requests that arrive --- */

#define SERVICE_PORT 4711u
#define OWN          0x0a000001u /* 10.0.0.1 */
#define HOST         0x0a00004du /* 10.0.0.77: where requests come from */

/* A request of a peer: a REQ, or a SIDR REQ. */
struct request {
	uint32_t number; /* of its communication id and queue pair */
	uint32_t tid;    /* 0: @number */
	uint32_t from;   /* the address that its packet comes from; 0: HOST */
	uint32_t claims; /* the address that its header names; 0: the same */
	bool ip6;        /* whether the header says that the addresses are IPv6 ones */
	bool sidr;
	uint8_t mtu; /* 0: that of 1024 bytes */
	uint8_t ack_timeout;
};

static struct karst_ctl_cm_addr
address4(uint32_t ip, uint16_t number)
{
	struct karst_ctl_cm_addr addr = {.family = AF_INET, .port_number = number};

	memcpy(addr.ip, karst_engine_addr_ip4(ip).ip, 16);
	return addr;
}

/* A new identifier of @c.  @return its handle */
static uint32_t
new_id(struct client *c, uint32_t channel, bool ud)
{
	cr_assert_eq(CALL(c, CM_CREATE_ID, cm_create_id, .channel = channel,
			     .port_space = ud ? KARST_RDMACM_PS_UDP : KARST_RDMACM_PS_TCP,
			     .qp_type = ud ? KARST_QPT_UD : KARST_QPT_RC),
		0, "%s", c->why);
	return RSP(c, cm_create_id)->id;
}

/* An identifier of @c that listens at @addr.  @return its handle */
static uint32_t
listen_at(struct client *c, uint32_t channel, bool ud, struct karst_ctl_cm_addr addr,
	uint32_t backlog)
{
	uint32_t id = new_id(c, channel, ud);

	if (addr.family == AF_INET6)
		cr_assert_eq(
			CALL(c, CM_SET_OPTION, cm_set_option, .id = id, .option = 2, .value = 1), 0,
			"%s", c->why);
	cr_assert_eq(CALL(c, CM_BIND, cm_bind, .id = id, .addr = addr), 0, "%s", c->why);
	cr_assert_eq(CALL(c, CM_LISTEN, cm_listen, .id = id, .backlog = backlog), 0, "%s", c->why);
	return id;
}

/* A program that listens at port SERVICE_PORT of 10.0.0.1.  @channel is where its events go. */
static struct client *
program_that_listens(const struct engine_bed *bed, uint32_t *channel)
{
	struct client *c = user(bed->e, 1000, 75);

	*channel = cm_channel(c);
	listen_at(c, *channel, false, address4(OWN, SERVICE_PORT), 0);
	return c;
}

/* Delivers @m, of the address @from. */
static void
deliver(struct karst_engine *e, uint32_t from, const struct karst_cm_msg *m)
{
	struct karst_cm_path seen = {.pkey = 0xffff};
	uint8_t mad[KARST_CM_MAD_LEN];
	struct eng_cm *cm;

	memcpy(seen.local_ip, karst_engine_addr_ip4(OWN).ip, 16);
	memcpy(seen.remote_ip, karst_engine_addr_ip4(from).ip, 16);
	cr_assert_eq(karst_cm_msg_build(m, mad), 0);
	cm = eng_cm_enter(e);
	karst_cm_rx(cm->cm, &seen, mad, sizeof(mad));
	eng_cm_leave(cm);
}

/* Delivers a request to 10.0.0.1. */
static void
deliver_request(struct karst_engine *e, const struct request *r)
{
	uint32_t from = r->from != 0 ? r->from : HOST;
	struct karst_cm_ip ip = {.src_port = 1024, .ip6 = r->ip6};
	uint8_t header[KARST_CM_IP_LEN];
	uint64_t service = karst_cm_service_id(
		r->sidr ? KARST_RDMACM_PS_UDP : KARST_RDMACM_PS_TCP, SERVICE_PORT);
	struct karst_cm_msg m = {.kind = r->sidr ? KARST_CM_SIDR_REQ : KARST_CM_REQ,
		.tid = r->tid != 0 ? r->tid : r->number,
		.local_id = r->number,
		.private_data = header,
		.private_data_len = sizeof(header)};

	memcpy(ip.dst_ip, karst_engine_addr_ip4(OWN).ip, 16);
	memcpy(ip.src_ip, karst_engine_addr_ip4(r->claims != 0 ? r->claims : from).ip, 16);
	karst_cm_ip_build(&ip, header);
	if (r->sidr) {
		m.sidr_req.service_id = service;
		m.sidr_req.pkey = 0xffff;
		deliver(e, from, &m);
		return;
	}
	m.req.service_id = service;
	m.req.guid = 77;
	m.req.qpn = r->number;
	m.req.pkey = 0xffff;
	m.req.mtu = r->mtu != 0 ? r->mtu : 3;
	m.req.transport = KARST_CM_TRANSPORT_RC;
	m.req.primary.ack_timeout = r->ack_timeout;
	memcpy(m.req.primary.local_gid, karst_engine_addr_ip4(from).ip, 16);
	memcpy(m.req.primary.remote_gid, ip.dst_ip, 16);
	deliver(e, from, &m);
}

/* Delivers a REQ of host 10.0.0.77, whose private data names the address @claimed as its own. */
static void
request_of(struct karst_engine *e, uint32_t number, uint32_t claimed)
{
	deliver_request(e, &(struct request){.number = number, .claims = claimed});
}

/* The last message that was sent, which waits, as there are no such hosts. */
static struct karst_cm_msg
last_sent(struct karst_engine *e)
{
	static uint8_t bytes[ENG_GSI_MAD_BYTES]; /* the message refers to it */
	struct eng_cm *cm = eng_cm_enter(e);
	const struct cm_mad *mad, *last = NULL;
	struct karst_cm_msg m;

	cr_assert_not(TAILQ_EMPTY(&cm->asking));
	STAILQ_FOREACH(mad, &TAILQ_FIRST(&cm->asking)->mads, next)
		last = mad;
	cr_assert_not_null(last);
	memcpy(bytes, last->bytes, sizeof(bytes));
	eng_cm_leave(cm);
	cr_assert_eq(karst_cm_msg_parse(bytes, KARST_CM_MAD_LEN, &m), KARST_CM_PARSE_OK);
	return m;
}

static uint32_t
ids_in_use(struct karst_engine *e)
{
	struct eng_cm *cm = eng_cm_enter(e);
	uint32_t n = cm->cm->nids;

	eng_cm_leave(cm);
	return n;
}

/* Takes the next event of @channel.  @return the number of the request that it reports, which is
 * that of the peer's queue pair; 0: there is no event */
static uint32_t
next_request(struct client *c, uint32_t channel)
{
	if (CALL(c, CM_GET_EVENT, cm_get_event, .channel = channel) == -EAGAIN)
		return 0;
	cr_assert_eq(c->status, 0, "%s", c->why);
	cr_assert_eq(RSP(c, cm_get_event)->event, KARST_RDMACM_CONNECT_REQUEST);
	return RSP(c, cm_get_event)->param.qpn;
}

/* A request that the engine refuses, without a program, leaves nothing: otherwise a host could fill
 * the table with them, and push out what others' connections have left there. */
Test(engine_cm, refused_requests_leave_nothing)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct client *c;
	uint32_t channel, i;

	engine_bed_up(&bed, &cfg);
	c = program_that_listens(&bed, &channel);
	listen_at(c, channel, true, address4(OWN, SERVICE_PORT), 0);
	for (i = 1; i <= 20; i++)
		request_of(bed.e, i, HOST + 1);
	cr_assert_eq(last_sent(bed.e).kind, KARST_CM_REJ);
	cr_assert_eq(ids_in_use(bed.e), 2, "%u", ids_in_use(bed.e));
	for (i = 1; i <= 20; i++)
		deliver_request(bed.e,
			&(struct request){.number = 100 + i, .claims = HOST + 1, .sidr = true});
	cr_assert_eq(last_sent(bed.e).kind, KARST_CM_SIDR_REP);
	cr_assert_eq(ids_in_use(bed.e), 2, "%u", ids_in_use(bed.e));
	/* a repetition is judged like the first one */
	request_of(bed.e, 1, HOST);
	cr_assert_eq(next_request(c, channel), 1);
	client_close(c);
	engine_bed_down(&bed);
}

/* The header of a request cannot turn IPv4 into IPv6: that would select an identifier that listens
 * at IPv6 addresses only. */
Test(engine_cm, header_of_another_family)
{
	const struct karst_ctl_cm_addr any6 = {.family = AF_INET6, .port_number = SERVICE_PORT};
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct client *four, *six;
	uint32_t channel4, channel6;
	int ud;

	engine_bed_up(&bed, &cfg);
	six = user(bed.e, 1000, 75);
	four = user(bed.e, 1001, 75);
	channel6 = cm_channel(six);
	channel4 = cm_channel(four);
	for (ud = 0; ud < 2; ud++) {
		listen_at(six, channel6, ud, any6, 0);
		listen_at(four, channel4, ud, address4(0, SERVICE_PORT), 0);
		deliver_request(
			bed.e, &(struct request){.number = 1, .ip6 = true, .sidr = ud != 0});
		cr_assert_eq(CALL(six, CM_GET_EVENT, cm_get_event, .channel = channel6), -EAGAIN);
		cr_assert_eq(CALL(four, CM_GET_EVENT, cm_get_event, .channel = channel4), -EAGAIN);
		deliver_request(bed.e, &(struct request){.number = 2, .sidr = ud != 0});
		cr_assert_eq(CALL(six, CM_GET_EVENT, cm_get_event, .channel = channel6), -EAGAIN);
		cr_assert_eq(CALL(four, CM_GET_EVENT, cm_get_event, .channel = channel4), 0);
	}
	client_close(six);
	client_close(four);
	engine_bed_down(&bed);
}

/* --- the backlog --- */

/* T31: an address that has taken all places of a listener gives one to another address, until it
 * has half of them. */
Test(engine_cm, t31_backlog_is_shared)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct client *c;
	uint32_t channel, i, read;

	engine_bed_up(&bed, &cfg);
	c = user(bed.e, 1000, 75);
	channel = cm_channel(c);
	listen_at(c, channel, false, address4(OWN, SERVICE_PORT), 4);
	for (i = 1; i <= 4; i++)
		deliver_request(bed.e, &(struct request){.number = i});
	deliver_request(bed.e, &(struct request){.number = 5, .from = HOST + 1});
	deliver_request(bed.e, &(struct request){.number = 6, .from = HOST + 2});
	/* nobody has more than half now */
	deliver_request(bed.e, &(struct request){.number = 7, .from = HOST + 3});
	deliver_request(bed.e, &(struct request){.number = 8});
	for (read = 0, i = next_request(c, channel); i != 0; i = next_request(c, channel))
		read = read * 10 + i;
	cr_assert_eq(read, 1256, "%u", read);
	/* all places are free again, for whoever comes */
	for (i = 1; i <= 4; i++)
		deliver_request(bed.e, &(struct request){.number = 10 + i, .from = HOST + 1});
	for (i = 1; i <= 4; i++)
		cr_assert_eq(next_request(c, channel), 10 + i);
	cr_assert_eq(next_request(c, channel), 0);
	client_close(c);
	engine_bed_down(&bed);
}

/* T31: a request that its peer withdraws before the program reads it gives its place back, and is
 * not reported, except the only one of a channel, as the channel's stream tells of it already. */
Test(engine_cm, t31_withdrawn_requests)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	const uint8_t guid[8] = {[7] = 77};
	struct karst_cm_msg rej = {.kind = KARST_CM_REJ,
		.info = guid,
		.info_len = 8,
		.rej = {.reason = KARST_CM_REJ_TIMEOUT}};
	struct engine_bed bed;
	struct client *c;
	uint32_t channel, i, read;

	engine_bed_up(&bed, &cfg);
	c = user(bed.e, 1000, 75);
	channel = cm_channel(c);
	listen_at(c, channel, false, address4(OWN, SERVICE_PORT), 2);
	for (i = 1; i <= 7; i++) {
		deliver_request(bed.e, &(struct request){.number = i});
		rej.tid = rej.local_id = i;
		deliver(bed.e, HOST, &rej);
	}
	deliver_request(bed.e, &(struct request){.number = 8});
	deliver_request(bed.e, &(struct request){.number = 9});
	for (read = 0, i = next_request(c, channel); i != 0; i = next_request(c, channel))
		read = read * 10 + i;
	cr_assert_eq(read, 89, "%u", read);
	cr_assert_eq(c->s->cm.ids.used, 3, "%u", c->s->cm.ids.used);
	/* the last of them */
	deliver_request(bed.e, &(struct request){.number = 10});
	rej.tid = rej.local_id = 10;
	deliver(bed.e, HOST, &rej);
	cr_assert_eq(next_request(c, channel), 10);
	cr_assert_eq(RSP(c, cm_get_event)->emptied, 1);
	client_close(c);
	engine_bed_down(&bed);
}

/* --- what requests and answers say about the connection --- */

/* C1: programs decide by the peer's address whom they serve.  A peer gets the answer, and can
 * complete the connection, only at the address that its packets come from: so it may not name
 * another one. */
Test(engine_cm, c1_peers_have_one_address)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct client *c;
	uint32_t channel;

	engine_bed_up(&bed, &cfg);
	c = program_that_listens(&bed, &channel);
	request_of(bed.e, 1, 0x0a00004e);
	cr_assert_eq(CALL(c, CM_GET_EVENT, cm_get_event, .channel = channel), -EAGAIN);
	request_of(bed.e, 2, 0x0a00004d);
	cr_assert_eq(CALL(c, CM_GET_EVENT, cm_get_event, .channel = channel), 0, "%s", c->why);
	cr_assert_eq(RSP(c, cm_get_event)->event, KARST_RDMACM_CONNECT_REQUEST);
	client_close(c);
	engine_bed_down(&bed);
}

/* An identifier that came with a request, and that the program has not named yet, cannot have
 * events: this is said, instead of a lack of memory. */
Test(engine_cm, join_before_a_name)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct karst_ctl_cm_addr group = {
		.family = AF_INET, .ip = {[10] = 0xff, 0xff, 239, 1, 1, 1}};
	struct engine_bed bed;
	struct client *c;
	struct cm_id *id;
	uint32_t channel;

	engine_bed_up(&bed, &cfg);
	c = program_that_listens(&bed, &channel);
	request_of(bed.e, 1, 0x0a00004d);
	cr_assert_eq(CALL(c, CM_GET_EVENT, cm_get_event, .channel = channel), 0, "%s", c->why);
	id = eng_handles_get(&c->s->cm.ids, RSP(c, cm_get_event)->id);
	cr_assert_not_null(id);
	id->qp_type = KARST_QPT_UD;
	cr_assert(id->passive && !id->named && id->has_port);
	refused(c, -EINVAL, "accepted",
		CALL(c, CM_JOIN_MCAST, cm_join_mcast, .id = id->handle, .addr = group));
	cr_assert_eq(c->s->cm.groups.used, 0);
	client_close(c);
	engine_bed_down(&bed);
}

/* The attributes of RTS for the identifier @id. */
static struct karst_ctl_qp_attr
attr_of_rts(struct client *c, uint32_t id)
{
	cr_assert_eq(CALL(c, CM_INIT_QP_ATTR, cm_init_qp_attr, .id = id, .state = KARST_QPS_RTS), 0,
		"%s", c->why);
	return RSP(c, cm_init_qp_attr)->attr;
}

/* T134: a peer cannot switch off the timer of this side's retransmissions, without which a program
 * never learns that the peer is gone.  The program can. */
Test(engine_cm, t134_peer_without_ack_timeout)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct client *c;
	uint32_t channel, id;

	engine_bed_up(&bed, &cfg);
	c = program_that_listens(&bed, &channel);
	deliver_request(bed.e, &(struct request){.number = 1});
	cr_assert_eq(next_request(c, channel), 1);
	id = RSP(c, cm_get_event)->id;
	cr_assert_neq(attr_of_rts(c, id).timeout, 0);
	cr_assert_eq(CALL(c, CM_SET_OPTION, cm_set_option, .id = id, .option = 3, .value = 0), 0);
	cr_assert_eq(attr_of_rts(c, id).timeout, 0);
	deliver_request(bed.e, &(struct request){.number = 2, .ack_timeout = 5});
	cr_assert_eq(next_request(c, channel), 2);
	cr_assert_eq(attr_of_rts(c, RSP(c, cm_get_event)->id).timeout, 5);
	client_close(c);
	engine_bed_down(&bed);
}

/* The local ACK timeout covers the way there and back and the time that the peer takes to answer,
 * which its REP tells. */
Test(engine_cm, ack_delay_of_the_peer)
{
	static const struct {
		uint8_t ours, delay, timeout;
	} rows[] = {{17, 0, 17}, {17, 15, 17}, {17, 16, 18}, {17, 17, 18}, {17, 18, 19},
		{17, 20, 20}, {17, 31, 21}, {31, 0, 21}, {14, 15, 16}};
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct karst_cm_ev ev = {.code = KARST_CM_EV_REP};
	struct engine_bed bed;
	struct client *c;
	struct cm_id *id;
	struct eng_cm *cm;
	uint32_t handle;
	size_t i;

	engine_bed_up(&bed, &cfg);
	c = user(bed.e, 1000, 75);
	handle = new_id(c, cm_channel(c), false);
	cr_assert_eq(CALL(c, CM_BIND, cm_bind, .id = handle, .addr = address4(OWN, 0)), 0);
	id = eng_handles_get(&c->s->cm.ids, handle);
	for (i = 0; i < RTE_DIM(rows); i++) {
		cm = eng_cm_enter(bed.e);
		id->state = CM_ID_CONNECT;
		id->path.ack_timeout = rows[i].ours;
		ev.user = id;
		ev.target_ack_delay = rows[i].delay;
		eng_cm_ops.event(cm, &ev);
		eng_cm_leave(cm);
		cr_expect_eq(attr_of_rts(c, handle).timeout, rows[i].timeout, "%u and %u: %u",
			rows[i].ours, rows[i].delay, attr_of_rts(c, handle).timeout);
	}
	/* what the program has set stays */
	cr_assert_eq(
		CALL(c, CM_SET_OPTION, cm_set_option, .id = handle, .option = 3, .value = 9), 0);
	cr_expect_eq(attr_of_rts(c, handle).timeout, 9);
	client_close(c);
	engine_bed_down(&bed);
}

/* A REP announces the delay that programs are told of as the device's. */
Test(engine_cm, ack_delay_of_this_side)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct karst_cm_msg rep;
	struct client *c;
	uint32_t channel;

	engine_bed_up(&bed, &cfg);
	c = program_that_listens(&bed, &channel);
	deliver_request(bed.e, &(struct request){.number = 1});
	cr_assert_eq(next_request(c, channel), 1);
	cr_assert_eq(CALL(c, CM_ACCEPT, cm_accept, .id = RSP(c, cm_get_event)->id,
			     .flags = KARST_CTL_CM_ACCEPT_PARAM, .param = {.qpn = 5}),
		0, "%s", c->why);
	rep = last_sent(bed.e);
	cr_assert_eq(rep.kind, KARST_CM_REP);
	cr_assert_eq(rep.rep.target_ack_delay, 15, "%u", rep.rep.target_ack_delay);
	client_close(c);
	engine_bed_down(&bed);
}

/* A REQ for packets that are longer than those of the port is refused, with the longest that it
 * has. */
Test(engine_cm, mtu_of_the_port)
{
	struct engine_bed_config cfg = {.mtu = 1500, .engine = {.max_owners = 16}};
	struct karst_cm_msg rej;
	struct engine_bed bed;
	struct client *c;
	uint32_t channel;

	engine_bed_up(&bed, &cfg);
	c = program_that_listens(&bed, &channel);
	deliver_request(bed.e, &(struct request){.number = 1, .mtu = 5});
	cr_assert_eq(next_request(c, channel), 0);
	rej = last_sent(bed.e);
	cr_assert_eq(rej.kind, KARST_CM_REJ);
	cr_assert_eq(rej.rej.reason, KARST_CM_REJ_INVALID_MTU);
	cr_assert_eq(rej.info_len, 1);
	cr_assert_eq(*(const uint8_t *)rej.info, 3);
	deliver_request(bed.e, &(struct request){.number = 1, .mtu = 3});
	cr_assert_eq(next_request(c, channel), 1);
	client_close(c);
	engine_bed_down(&bed);
}

/* --- what is left of a failed resolution --- */

/* rdma_resolve_addr(3): the identifier is bound to an address if the call is successful.  So
 * ADDR_ERROR leaves no address behind, and another destination may be at another port. */
Test(engine_cm, addr_error_binds_nothing)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	const struct timespec nap = {.tv_nsec = 1000000};
	struct engine_bed bed;
	struct client *c;
	uint32_t channel, id, bound, i;

	engine_bed_up(&bed, &cfg);
	c = user(bed.e, 1000, 75);
	channel = cm_channel(c);
	id = new_id(c, channel, false);
	bound = new_id(c, channel, false);
	cr_assert_eq(CALL(c, CM_BIND, cm_bind, .id = bound, .addr = address4(OWN, 0)), 0);
	for (i = 0; i < 2; i++) {
		cr_assert_eq(CALL(c, CM_RESOLVE_ADDR, cm_resolve_addr, .id = i == 0 ? id : bound,
				     .timeout_ms = 1, .dst = address4(HOST, 1)),
			0, "%s", c->why);
		while (CALL(c, CM_GET_EVENT, cm_get_event, .channel = channel) == -EAGAIN)
			nanosleep(&nap, NULL);
		cr_assert_eq(RSP(c, cm_get_event)->event, KARST_RDMACM_ADDR_ERROR);
	}
	cr_assert_eq(CALL(c, CM_QUERY, cm_query, .id = id), 0);
	cr_assert_eq(RSP(c, cm_query)->port, 0, "%u", RSP(c, cm_query)->port);
	cr_assert_eq(CALL(c, CM_QUERY, cm_query, .id = bound), 0);
	cr_assert_eq(RSP(c, cm_query)->port, 1);
	/* 10.0.0.2 is at the second port */
	cr_assert_eq(CALL(c, CM_RESOLVE_ADDR, cm_resolve_addr, .id = id, .timeout_ms = 1000,
			     .dst = address4(OWN + 1, 1)),
		0, "%s", c->why);
	cr_assert_eq(CALL(c, CM_QUERY, cm_query, .id = id), 0);
	cr_assert_eq(RSP(c, cm_query)->port, 2, "%u", RSP(c, cm_query)->port);
	client_close(c);
	engine_bed_down(&bed);
}

/* The identifier of a request for datagrams has no path. */
Test(engine_cm, datagrams_have_no_path)
{
	struct engine_bed_config cfg = {.engine = {.max_owners = 16}};
	struct engine_bed bed;
	struct client *c;
	uint32_t channel;

	engine_bed_up(&bed, &cfg);
	c = user(bed.e, 1000, 75);
	channel = cm_channel(c);
	listen_at(c, channel, true, address4(OWN, SERVICE_PORT), 0);
	deliver_request(bed.e, &(struct request){.number = 1, .sidr = true});
	cr_assert_eq(CALL(c, CM_GET_EVENT, cm_get_event, .channel = channel), 0, "%s", c->why);
	cr_assert_eq(CALL(c, CM_QUERY, cm_query, .id = RSP(c, cm_get_event)->id), 0);
	cr_assert_eq(RSP(c, cm_query)->paths, 0);
	client_close(c);
	engine_bed_down(&bed);
}
