/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Devices as libibverbs would have found them, and the commands of librdmacm. */

#include "ucma_bed.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#define SOCKET "the engine's socket"

struct client_bed bed;
struct kv_cm_engine engine;

/* --- devices, files --- */

/* What libibverbs would have found in sysfs. */
static struct {
	struct verbs_sysfs_dev sysfs;
	struct kv_device dev;
} device[2];

static void
make_device(unsigned int i)
{
	struct verbs_sysfs_dev *sysfs = &device[i].sysfs;
	char path[sizeof(sysfs->ibdev_path) + 16];
	FILE *f;

	snprintf(sysfs->ibdev_path, sizeof(sysfs->ibdev_path), "/tmp/karst-ucma-XXXXXX");
	cr_assert_not_null(mkdtemp(sysfs->ibdev_path));
	snprintf(path, sizeof(path), "%s/node_guid", sysfs->ibdev_path);
	f = fopen(path, "w");
	cr_assert_not_null(f);
	fprintf(f, "0200:00ff:fe00:%04x\n", i + 1);
	fclose(f);
	device[i].dev = (struct kv_device){.vdev.sysfs = sysfs, .port = i + 1};
	snprintf(device[i].dev.vdev.device.name, IBV_SYSFS_NAME_MAX, "karst%u", i);
	strcpy(device[i].dev.socket, SOCKET);
	kv_device_add(&device[i].dev);
}

static void
remove_device(unsigned int i)
{
	char path[sizeof(device[i].sysfs.ibdev_path) + 16];

	kv_device_remove(&device[i].dev);
	snprintf(path, sizeof(path), "%s/node_guid", device[i].sysfs.ibdev_path);
	unlink(path);
	rmdir(device[i].sysfs.ibdev_path);
}

static void
ucma_up_with(const struct client_bed_config *cfg)
{
	client_bed_up(&bed, cfg);
	engine = (struct kv_cm_engine){.karst = bed.ctx, .users = 1, .socket = SOCKET};
	make_device(0);
	make_device(1);
}

void
ucma_up(void)
{
	ucma_up_with(&(struct client_bed_config){.lcores = 1});
}

void
ucma_up_forked(void)
{
	ucma_up_with(&(struct client_bed_config){.lcores = 1, .forked = true});
}

/* All files are closed, and nothing is left: the context can be closed. */
void
ucma_down(void)
{
	cr_expect_eq(engine.users, 1);
	remove_device(0);
	remove_device(1);
	client_bed_down(&bed);
}

struct kv_cm_file *
open_file(int flags)
{
	struct kv_cm_file *file;

	cr_assert_eq(kv_cm_file_open(&engine, flags, &file), 0, "%s", karst_why());
	engine.users++;
	return file;
}

void
close_file(struct kv_cm_file *file)
{
	cr_expect_eq(kv_cm_close(file->fd), 0);
}

/* --- commands --- */

/* @return 0 or errno. */
int
command(struct kv_cm_file *file, uint32_t cmd, const void *in, size_t in_len, size_t out_len)
{
	struct rdma_ucm_cmd_hdr hdr = {
		.cmd = cmd, .in = (uint16_t)in_len, .out = (uint16_t)out_len};
	uint8_t buf[1024];
	ssize_t n;

	memcpy(buf, &hdr, sizeof(hdr));
	memcpy(buf + sizeof(hdr), in, in_len);
	n = kv_cm_write(file->fd, buf, sizeof(hdr) + in_len);
	if (n < 0)
		return errno;
	cr_expect_eq(n, (ssize_t)(sizeof(hdr) + in_len));
	return 0;
}

int
create(struct kv_cm_file *file, uint64_t uid, uint16_t ps, uint32_t *id)
{
	struct rdma_ucm_create_id_resp resp = {.id = UINT32_MAX};
	struct rdma_ucm_create_id in = {.uid = uid, .response = (uintptr_t)&resp, .ps = ps};
	int err = ASK(file, CREATE_ID, in, resp);

	*id = resp.id;
	return err;
}

uint32_t
created(struct kv_cm_file *file, uint64_t uid, uint16_t ps)
{
	uint32_t id;

	cr_assert_eq(create(file, uid, ps, &id), 0);
	return id;
}

int
destroy(struct kv_cm_file *file, uint32_t id, uint32_t *events)
{
	struct rdma_ucm_destroy_id_resp resp = {.events_reported = UINT32_MAX};
	struct rdma_ucm_destroy_id in = {.response = (uintptr_t)&resp, .id = id};
	int err = ASK(file, DESTROY_ID, in, resp);

	*events = resp.events_reported;
	return err;
}

struct sockaddr_in6
address(uint32_t ip, uint16_t port)
{
	struct sockaddr_in v4 = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(ip)};
	struct sockaddr_in6 addr = {0};

	memcpy(&addr, &v4, sizeof(v4));
	return addr;
}

int
bind_to(struct kv_cm_file *file, uint32_t id, uint32_t ip, uint16_t port)
{
	struct rdma_ucm_bind_ip in = {.addr = address(ip, port), .id = id};

	return COMMAND(file, BIND_IP, in);
}

int
query(struct kv_cm_file *file, uint32_t id, struct rdma_ucm_query_route_resp *resp)
{
	struct rdma_ucm_query in = {.response = (uintptr_t)resp, .id = id};

	memset(resp, 0, sizeof(*resp));
	return ASK(file, QUERY_ROUTE, in, *resp);
}

uint16_t
bound_port(struct kv_cm_file *file, uint32_t id)
{
	struct rdma_ucm_query_route_resp resp;

	cr_assert_eq(query(file, id, &resp), 0);
	return ntohs(((struct sockaddr_in *)&resp.src_addr)->sin_port);
}

/* @return errno. */
int
get_event(struct kv_cm_file *file, struct rdma_ucm_event_resp *resp)
{
	struct rdma_ucm_get_event in = {.response = (uintptr_t)resp};

	memset(resp, 0, sizeof(*resp));
	return ASK(file, GET_EVENT, in, *resp);
}

/* Reads the next event, which must be @event. */
struct rdma_ucm_event_resp
expect_event(struct kv_cm_file *file, uint32_t event)
{
	struct pollfd p = {.fd = file->fd, .events = POLLIN};
	struct rdma_ucm_event_resp resp;

	cr_assert_eq(poll(&p, 1, (int)BED_PATIENCE_MS), 1, "no event");
	cr_assert_eq(get_event(file, &resp), 0);
	cr_assert_eq(resp.event, event, "event %u, status %d, not %u", resp.event, (int)resp.status,
		event);
	return resp;
}
