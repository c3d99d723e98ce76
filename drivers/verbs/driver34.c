/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The provider's interface to libibverbs with private ABI 34: the match of devices, contexts, and
 * the table of operations.  All that depends on libibverbs' internals is here and in abi34.h.
 *
 * A device is a directory named karstN in sysfs (a real one or the one that karst-run makes).  Its
 * files karst/socket and karst/port name the engine and the port.
 */
#include "provider.h"
#include "ucma.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- contexts --- */

/* Allocated by libibverbs.  The verbs_context, which libibverbs knows, is at the end because that
 * structure "grows up". */
struct context {
	struct kv_context kv;
	struct verbs_context vctx;
};

struct kv_context *
kv_context_of(struct ibv_context *ibv)
{
	return &karst_container_of(ibv, struct context, vctx.context)->kv;
}

static void
free_context(struct ibv_context *ibv)
{
	struct context *c = karst_container_of(ibv, struct context, vctx.context);

	kv_events_context_end(&c->kv);
	kv_live_end(ibv);
	if (c->kv.karst != NULL && karst_close(c->kv.karst) != 0)
		karst_abandon(c->kv.karst);
	/* the descriptor was libkarst's: libibverbs must not close it */
	ibv->async_fd = -1;
	verbs_uninit_context(&c->vctx);
	free(c);
}

static const struct verbs_context_ops ops = {
	.advise_mr = kv_advise_mr,
	.alloc_mw = kv_alloc_mw,
	.alloc_parent_domain = kv_alloc_parent_domain,
	.alloc_pd = kv_alloc_pd,
	.alloc_td = kv_alloc_td,
	.attach_mcast = kv_attach_mcast,
	.bind_mw = kv_bind_mw,
	.close_xrcd = kv_close_xrcd,
	.create_ah = kv_create_ah,
	.create_cq = kv_create_cq,
	.create_cq_ex = kv_create_cq_ex,
	.create_qp = kv_create_qp,
	.create_qp_ex = kv_create_qp_ex,
	.create_srq = kv_create_srq,
	.create_srq_ex = kv_create_srq_ex,
	.dealloc_mw = kv_dealloc_mw,
	.dealloc_pd = kv_dealloc_pd,
	.dealloc_td = kv_dealloc_td,
	.dereg_mr = kv_dereg_mr,
	.destroy_ah = kv_destroy_ah,
	.destroy_cq = kv_destroy_cq,
	.destroy_qp = kv_destroy_qp,
	.destroy_srq = kv_destroy_srq,
	.detach_mcast = kv_detach_mcast,
	.free_context = free_context,
	.get_srq_num = kv_get_srq_num,
	.modify_cq = kv_modify_cq,
	.modify_qp = kv_modify_qp,
	.modify_qp_rate_limit = kv_modify_qp_rate_limit,
	.modify_srq = kv_modify_srq,
	.open_qp = kv_open_qp,
	.open_xrcd = kv_open_xrcd,
	.poll_cq = kv_poll_cq,
	.post_recv = kv_post_recv,
	.post_send = kv_post_send,
	.post_srq_ops = kv_post_srq_ops,
	.post_srq_recv = kv_post_srq_recv,
	.query_device_ex = kv_query_device_ex,
	.query_ece = kv_query_ece,
	.query_port = kv_query_port,
	.query_qp = kv_query_qp,
	.query_qp_data_in_order = kv_query_qp_data_in_order,
	.query_rt_values = kv_query_rt_values,
	.query_srq = kv_query_srq,
	.reg_mr = kv_reg_mr,
	.req_notify_cq = kv_req_notify_cq,
	.rereg_mr = kv_rereg_mr,
	.resize_cq = kv_resize_cq,
	.set_ece = kv_set_ece,
};

static struct verbs_context *
alloc_context(struct ibv_device *device, int cmd_fd, void *private_data)
{
	struct kv_device *dev = karst_container_of(device, struct kv_device, vdev.device);
	struct context *c;
	int err;

	(void)private_data;
	c = _verbs_init_and_alloc_context(device, cmd_fd, sizeof(*c),
		(struct verbs_context *)offsetof(struct context, vctx), 0);
	if (c == NULL)
		return NULL;
	verbs_set_ops(&c->vctx, &ops);
	c->kv.ibv = &c->vctx.context;
	c->kv.vctx = &c->vctx;
	c->kv.port = dev->port;
	karst_mutex_init(&c->kv.lock);
	pthread_cond_init(&c->kv.advised, NULL);
	c->kv.karst = kv_attach(dev);
	if (c->kv.karst != NULL) {
		c->vctx.context.async_fd = c->kv.karst->async_fd;
		c->vctx.context.num_comp_vectors = (int)c->kv.karst->nlcores;
		if (kv_events_context(&c->kv) == 0)
			return &c->vctx;
		kv_fail(kv_refuse(-ENOMEM, "no memory"));
	}
	err = errno;
	free_context(&c->vctx.context);
	errno = err;
	return NULL;
}

/* --- devices --- */

/* Reads the first line of a file in the karst folder of the device's directory. */
static bool
sysfs_read_line(const struct verbs_sysfs_dev *sysfs, const char *name, char *line, size_t size)
{
	char path[IBV_SYSFS_PATH_MAX + 32];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/karst/%s", sysfs->ibdev_path, name);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	ok = fgets(line, (int)size, f) != NULL;
	fclose(f);
	if (ok)
		line[strcspn(line, "\n")] = 0;
	return ok && line[0] != 0;
}

static struct verbs_device *
alloc_device(struct verbs_sysfs_dev *sysfs)
{
	struct kv_device *dev = calloc(1, sizeof(*dev));
	char port[16];

	if (dev == NULL)
		return NULL;
	if (!sysfs_read_line(sysfs, "socket", dev->socket, sizeof(dev->socket)) ||
		!sysfs_read_line(sysfs, "port", port, sizeof(port))) {
		fprintf(stderr, "karst: %s has no karst/socket or karst/port\n", sysfs->ibdev_path);
		free(dev);
		return NULL;
	}
	dev->port = (uint32_t)strtoul(port, NULL, 10);
	kv_device_add(dev);
	return &dev->vdev;
}

static void
uninit_device(struct verbs_device *vdev)
{
	struct kv_device *dev = karst_container_of(vdev, struct kv_device, vdev);

	kv_device_remove(dev);
	free(dev);
}

static const struct verbs_match_ent matches[] = {
	{.kind = VERBS_MATCH_MODALIAS, .u.modalias = "rdma_device:*Nkarst*"},
	{.kind = VERBS_MATCH_SENTINEL},
};

static const struct verbs_device_ops device_ops = {
	.name = "karst",
	.match_min_abi_version = 0,
	.match_max_abi_version = UINT32_MAX,
	.match_table = matches,
	.alloc_device = alloc_device,
	.uninit_device = uninit_device,
	.alloc_context = alloc_context,
};

static void __attribute__((constructor)) init(void)
{
	kv_events_init();
	/* after kv_events_init(): fork() takes the lock of the devices before that of the events */
	kv_device_init();
	kv_live_init();
	kv_cm_init();
	verbs_register_driver(&device_ops);
}
