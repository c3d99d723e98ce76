/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Creates and frees the resources of a connection. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "rdma.h"

/* A READ, or a WRITE and a SEND. */
#define SENDS_OF_REQUEST 2u

static int
make_memory(struct nr_queue *queue)
{
	size_t slots = (size_t)queue->nslots * queue->slot_len;
	void *memory;
	uint32_t i;

	queue->memory_len = slots + (size_t)queue->nrequests * NVME_CQE_LEN;
	memory = mmap(NULL, queue->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	queue->memory = memory;
	queue->answers = queue->memory + slots;
	queue->mr =
		ibv_reg_mr(queue->device->pd, memory, queue->memory_len, IBV_ACCESS_LOCAL_WRITE);
	queue->slot_used = calloc(queue->nslots, sizeof(queue->slot_used[0]));
	queue->waiting = calloc(queue->nslots, sizeof(queue->waiting[0]));
	queue->requests = calloc(queue->nrequests, sizeof(queue->requests[0]));
	if (queue->mr == NULL || queue->slot_used == NULL || queue->waiting == NULL ||
		queue->requests == NULL)
		return -ENOMEM;
	for (i = queue->nrequests; i-- > 0;) {
		queue->requests[i].index = i;
		SLIST_INSERT_HEAD(&queue->free, &queue->requests[i], next);
	}
	return 0;
}

static int
make_qp(struct nr_queue *queue)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = queue->nrequests * SENDS_OF_REQUEST,
			.max_recv_wr = queue->nslots,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};

	queue->cq = ibv_create_cq(queue->device->verbs,
		(int)(init.cap.max_send_wr + init.cap.max_recv_wr), queue, queue->device->channel,
		0);
	if (queue->cq == NULL || ibv_req_notify_cq(queue->cq, 0) != 0)
		return -ENOMEM;
	init.send_cq = queue->cq;
	init.recv_cq = queue->cq;
	return rdma_create_qp(queue->id, queue->device->pd, &init) != 0 ? -errno : 0;
}

struct nr_queue *
nr_queue_make(struct nr_server *server, struct rdma_cm_id *id, uint16_t qid, uint16_t entries)
{
	struct nr_queue *queue = calloc(1, sizeof(*queue));

	if (queue == NULL)
		return NULL;
	nt_queue_init(&queue->core, &server->target, qid, entries);
	queue->server = server;
	queue->id = id;
	queue->host = nr_host_get(server, rdma_get_peer_addr(id));
	if (queue->host == NULL) {
		free(queue);
		return NULL;
	}
	queue->nslots = entries;
	queue->nrequests = 2u * entries;
	queue->slot_len = nt_capsule_len(&server->config.target, qid);
	queue->device = nr_device_of(server, id->verbs);
	if (queue->device == NULL || make_memory(queue) != 0 || make_qp(queue) != 0) {
		nr_queue_free(queue);
		return NULL;
	}
	return queue;
}

/* Destroys the queue pair first: after that nothing is written to the memory. */
void
nr_queue_free(struct nr_queue *queue)
{
	uint32_t i;

	if (queue->id->qp != NULL)
		rdma_destroy_qp(queue->id);
	if (queue->cq != NULL) {
		ibv_ack_cq_events(queue->cq, queue->unacked);
		ibv_destroy_cq(queue->cq);
	}
	for (i = 0; queue->requests != NULL && i < queue->nrequests; i++)
		nr_buffer_put(queue->server, &queue->requests[i]);
	nr_host_put(queue->server, queue->host);
	if (queue->mr != NULL)
		ibv_dereg_mr(queue->mr);
	if (queue->memory != NULL)
		munmap(queue->memory, queue->memory_len);
	free(queue->slot_used);
	free(queue->waiting);
	free(queue->requests);
	free(queue);
}
