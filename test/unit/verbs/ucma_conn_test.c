/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The rdma_cm device: connections, datagrams, identifiers that are migrated, options, groups. */

#include "ucma_bed.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

/* --- connections --- */

struct ends {
	struct kv_cm_file *server, *client;
	uint32_t listener, active, passive;
};

/* Makes both ends, up to the request, which has arrived. */
static struct ends
request(uint16_t ps)
{
	struct ends e = {.server = open_file(0), .client = open_file(0)};
	struct rdma_ucm_resolve_ip resolve = {.timeout_ms = BED_PATIENCE_MS};
	struct rdma_ucm_resolve_route route = {.timeout_ms = BED_PATIENCE_MS};
	struct rdma_ucm_listen listen = {.backlog = 8};
	struct rdma_ucm_connect connect = {.conn_param = {.valid = 1,
						   .qp_num = 0x123456,
						   .responder_resources = 3,
						   .initiator_depth = 2,
						   .retry_count = 7,
						   .rnr_retry_count = 6,
						   .private_data_len = 4,
						   .private_data = "ping"}};
	struct rdma_ucm_event_resp got;

	e.listener = listen.id = created(e.server, 10, ps);
	cr_assert_eq(bind_to(e.server, e.listener, THERE, 0), 0);
	cr_assert_eq(COMMAND(e.server, LISTEN, listen), 0);
	e.active = resolve.id = route.id = connect.id = created(e.client, 20, ps);
	resolve.src_addr = address(HERE, 0);
	resolve.dst_addr = address(THERE, bound_port(e.server, e.listener));
	cr_assert_eq(COMMAND(e.client, RESOLVE_IP, resolve), 0);
	expect_event(e.client, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_assert_eq(COMMAND(e.client, RESOLVE_ROUTE, route), 0);
	expect_event(e.client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	cr_assert_eq(COMMAND(e.client, CONNECT, connect), 0);
	got = expect_event(e.server, RDMA_CM_EVENT_CONNECT_REQUEST);
	cr_expect_eq(got.uid, 10, "the listener's");
	cr_expect_neq(got.id, e.listener);
	e.passive = got.id;
	if (ps == RDMA_PS_UDP) {
		cr_expect_geq(got.param.ud.private_data_len, 4);
		cr_expect_arr_eq(got.param.ud.private_data, "ping", 4);
	} else {
		cr_expect_eq(got.param.conn.qp_num, 0x123456);
		cr_expect_eq(got.param.conn.responder_resources, 2, "as this side has it");
		cr_expect_eq(got.param.conn.initiator_depth, 3);
		cr_expect_eq(got.param.conn.retry_count, 7);
		cr_expect_eq(got.param.conn.rnr_retry_count, 6);
		cr_expect_geq(got.param.conn.private_data_len, 4);
		cr_expect_arr_eq(got.param.conn.private_data, "ping", 4);
	}
	return e;
}

static int
accept_with(struct kv_cm_file *file, uint32_t id, uint64_t uid, bool valid)
{
	struct rdma_ucm_accept in = {.uid = uid,
		.id = id,
		.conn_param = {.valid = valid,
			.qp_num = 0x654321,
			.qkey = 0x1234,
			.rnr_retry_count = 7,
			.private_data_len = 4,
			.private_data = "pong"}};

	return COMMAND(file, ACCEPT, in);
}

static void
expect_destroyed(struct kv_cm_file *file, uint32_t id, uint32_t events)
{
	uint32_t got;

	cr_expect_eq(destroy(file, id, &got), 0);
	cr_expect_eq(got, events, "%u events of %u, not %u", got, id, events);
}

static void
attributes(struct kv_cm_file *file, uint32_t id, uint32_t state, struct ib_uverbs_qp_attr *resp)
{
	struct rdma_ucm_init_qp_attr in = {
		.response = (uintptr_t)resp, .id = id, .qp_state = state};

	memset(resp, 0, sizeof(*resp));
	cr_assert_eq(ASK(file, INIT_QP_ATTR, in, *resp), 0);
	cr_expect_eq(resp->qp_state, state);
}

Test(ucma, a_connection)
{
	struct ends e = request(RDMA_PS_TCP);
	struct rdma_ucm_query_route_resp route;
	struct rdma_ucm_disconnect end = {.id = e.active};
	struct rdma_ucm_event_resp got;
	struct ib_uverbs_qp_attr attr;

	cr_assert_eq(query(e.client, e.active, &route), 0);
	cr_expect_eq(route.num_paths, 1);
	cr_expect_eq(route.ib_route[0].mtu_selector, 2);
	cr_expect_eq(route.ib_route[0].pkey, 0xffff);
	attributes(e.server, e.passive, IBV_QPS_INIT, &attr);
	cr_expect_eq(attr.qp_attr_mask,
		IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	cr_expect_eq(attr.port_num, 1, "the device's only one");
	attributes(e.server, e.passive, IBV_QPS_RTR, &attr);
	cr_expect_eq(attr.dest_qp_num, 0x123456);
	cr_expect_eq(attr.ah_attr.is_global, 1);
	cr_expect_eq(attr.ah_attr.port_num, 1);
	cr_expect_eq(attr.ah_attr.grh.dgid[15], 1);
	cr_assert_eq(accept_with(e.server, e.passive, 11, true), 0);
	got = expect_event(e.client, RDMA_CM_EVENT_CONNECT_RESPONSE);
	cr_expect_eq(got.uid, 20);
	cr_expect_eq(got.param.conn.qp_num, 0x654321);
	cr_expect_arr_eq(got.param.conn.private_data, "pong", 4);
	attributes(e.client, e.active, IBV_QPS_RTS, &attr);
	cr_assert_eq(accept_with(e.client, e.active, 0, false), 0);
	got = expect_event(e.server, RDMA_CM_EVENT_ESTABLISHED);
	cr_expect_eq(got.uid, 11, "as accept said");
	cr_expect_eq(got.id, e.passive);
	cr_expect_eq(
		got.param.conn.private_data_len, 0, "what the peer said came with its request");
	cr_assert_eq(COMMAND(e.client, DISCONNECT, end), 0);
	expect_event(e.server, RDMA_CM_EVENT_DISCONNECTED);
	end.id = e.passive;
	cr_assert_eq(COMMAND(e.server, DISCONNECT, end), 0);
	expect_event(e.client, RDMA_CM_EVENT_DISCONNECTED);
	expect_destroyed(e.client, e.active, 4);
	expect_destroyed(e.server, e.passive, 2);
	expect_destroyed(e.server, e.listener, 1);
	close_file(e.client);
	close_file(e.server);
}

/* librdmacm waits, before it frees an identifier, until as many events are acknowledged as the file
 * reports: also after the engine's end, when another thread may still have one of them. */
Test(ucma_end, events_are_counted_without_the_engine)
{
	struct ends e;

	ucma_up_forked();
	e = request(RDMA_PS_TCP);
	client_bed_kill(&bed);
	expect_destroyed(e.client, e.active, 2);
	expect_destroyed(e.server, e.passive, 0);
	expect_destroyed(e.server, e.listener, 1);
	close_file(e.client);
	close_file(e.server);
	ucma_down();
}

Test(ucma, a_request_is_rejected)
{
	struct ends e = request(RDMA_PS_TCP);
	struct rdma_ucm_reject in = {.id = e.passive, .private_data_len = 2, .private_data = "no"};
	struct rdma_ucm_event_resp got;

	cr_assert_eq(COMMAND(e.server, REJECT, in), 0);
	got = expect_event(e.client, RDMA_CM_EVENT_REJECTED);
	cr_expect_eq(got.status, 28, "the consumer's");
	cr_expect_arr_eq(got.param.conn.private_data, "no", 2);
	close_file(e.client);
	close_file(e.server); /* with the rest in it */
}

Test(ucma, datagrams)
{
	struct ends e = request(RDMA_PS_UDP);
	struct rdma_ucm_event_resp got;

	cr_assert_eq(accept_with(e.server, e.passive, 11, true), 0);
	got = expect_event(e.client, RDMA_CM_EVENT_ESTABLISHED);
	cr_expect_eq(got.param.ud.qp_num, 0x654321);
	cr_expect_eq(got.param.ud.qkey, 0x1234);
	cr_expect_eq(got.param.ud.ah_attr.is_global, 1);
	cr_expect_eq(got.param.ud.ah_attr.port_num, 1);
	cr_expect_eq(got.param.ud.ah_attr.grh.dgid[15], 2);
	cr_expect_arr_eq(got.param.ud.private_data, "pong", 4);
	close_file(e.client);
	close_file(e.server);
}

/* With its waiting events, as rdma_get_request() does. */
Test(ucma, an_identifier_moves_to_another_file)
{
	struct ends e = request(RDMA_PS_TCP);
	struct kv_cm_file *to = open_file(0);
	struct rdma_ucm_migrate_resp resp;
	struct rdma_ucm_migrate_id in = {
		.response = (uintptr_t)&resp, .id = e.passive, .fd = (uint32_t)e.server->fd};
	uint32_t events;

	in.fd = (uint32_t)e.client->fd;
	cr_expect_eq(ASK(to, MIGRATE_ID, in, resp), EINVAL, "it is not there");
	in.fd = 0;
	cr_expect_eq(ASK(to, MIGRATE_ID, in, resp), EINVAL, "not a file of ours");
	in.fd = (uint32_t)e.server->fd;
	cr_assert_eq(ASK(to, MIGRATE_ID, in, resp), 0);
	cr_expect_eq(resp.events_reported, 0);
	cr_expect_eq(destroy(e.server, e.passive, &events), EINVAL);
	cr_assert_eq(accept_with(to, e.passive, 12, true), 0);
	expect_event(e.client, RDMA_CM_EVENT_CONNECT_RESPONSE);
	cr_assert_eq(accept_with(e.client, e.active, 0, false), 0);
	cr_expect_eq(expect_event(to, RDMA_CM_EVENT_ESTABLISHED).uid, 12);
	close_file(e.server);
	close_file(e.client);
	expect_event(to, RDMA_CM_EVENT_DISCONNECTED);
	expect_destroyed(to, e.passive, 2);
	close_file(to);
}

Test(ucma, options)
{
	struct kv_cm_file *file = open_file(0);
	uint32_t id = created(file, 1, RDMA_PS_TCP);
	uint8_t tos = 0x20;
	struct rdma_ucm_set_option in = {.optval = (uintptr_t)&tos,
		.id = id,
		.level = RDMA_OPTION_ID,
		.optname = RDMA_OPTION_ID_TOS,
		.optlen = 1};

	cr_expect_eq(COMMAND(file, SET_OPTION, in), 0);
	in.optlen = 2;
	cr_expect_eq(COMMAND(file, SET_OPTION, in), EINVAL);
	in.level = RDMA_OPTION_IB;
	in.optname = RDMA_OPTION_IB_PATH;
	cr_expect_eq(COMMAND(file, SET_OPTION, in), ENOSYS);
	in.id = id + 1;
	cr_expect_eq(COMMAND(file, SET_OPTION, in), ENOENT);
	close_file(file);
}

Test(ucma, a_group)
{
	struct kv_cm_file *file = open_file(0);
	uint32_t id = created(file, 30, RDMA_PS_UDP);
	struct rdma_ucm_create_id_resp group;
	struct rdma_ucm_join_ip_mcast in = {
		.response = (uintptr_t)&group, .uid = 31, .addr = address(0xe0010203, 0), .id = id};
	struct rdma_ucm_destroy_id_resp left;
	struct rdma_ucm_destroy_id leave = {.response = (uintptr_t)&left};
	struct rdma_ucm_event_resp got;

	cr_assert_eq(bind_to(file, id, HERE, 0), 0);
	cr_assert_eq(ASK(file, JOIN_IP_MCAST, in, group), 0);
	got = expect_event(file, RDMA_CM_EVENT_MULTICAST_JOIN);
	cr_expect_eq(got.uid, 31);
	cr_expect_eq(got.param.ud.qp_num, 0xffffff);
	cr_expect_eq(got.param.ud.ah_attr.grh.dgid[12], 0xe0);
	leave.id = group.id;
	cr_assert_eq(ASK(file, LEAVE_MCAST, leave, left), 0);
	cr_expect_eq(left.events_reported, 1);
	expect_destroyed(file, id, 1);
	close_file(file);
}
