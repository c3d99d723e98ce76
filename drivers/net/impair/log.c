/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Log what was done to which packet, as one JSON object per line.  An lcore puts records into the
 * ring of its queue and never waits.  A thread writes them to the file.  Records without room are
 * counted, and the file tells where records are missing.
 */
#include "impair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_lcore.h>

#include "karst_opcode.h"
#include "karst_realtime.h"

#define NAP_US 10000u

struct imp_log {
	FILE *file;
	char port[RTE_ETH_NAME_MAX_LEN];
	uint32_t slots;
	pthread_t thread;
	_Atomic bool stop;
	pthread_mutex_t lock; /* for the members below: reader's side of the rings, the file */
	struct karst_realtime time;
	uint64_t written;
	bool failed;
	struct imp_log_ring *ring[IMP_BOTH][IMP_MAX_QUEUES];
};

static const char *const log_events[] = {"injured", "spared", "released", "discarded"};
static const char *const log_choices[] = {"fits", "nth", "every", "chance"};
static const char *const whys[] = {NULL, "no buffer", "as many wait as may",
	"the packet has no such byte", "it is too short", "it would wait too long, dropped",
	"later packets have passed", "its time has come", "the port was stopped",
	"the port below took no more"};

/* --- records, on an lcore --- */

void
imp_record_init(struct imp_record *r, const struct imp_queue *q, const struct rte_mbuf *m,
	const struct imp_frame *f, const struct imp_verdict *v, uint64_t packet, uint64_t now)
{
	const struct imp_conf_rule *c = v->live->conf;

	*r = (struct imp_record){.packet = packet,
		.tsc = now != 0 ? now : rte_rdtsc(),
		.count = v->count,
		.qpn = f->qpn,
		.psn = f->psn,
		.len = m->pkt_len,
		.generation = q->set->generation,
		.queue = q->queue,
		.direction = q->direction,
		.action = (uint8_t)c->action,
		.choice = (uint8_t)c->choice,
		.opcode = f->opcode,
		.transmission = c->transmission != 0 ? (uint8_t)(v->transmission + 1) : 0};
	memcpy(r->rule, c->name, sizeof(r->rule));
}

void
imp_log_put(struct imp_queue *q, struct imp_record *r, enum imp_event event, enum imp_why why)
{
	struct imp_log_ring *ring = q->log;
	uint32_t head;

	if (ring == NULL)
		return;
	r->event = (uint8_t)event;
	r->why = (uint8_t)why;
	if (event == IMP_RELEASED)
		r->tsc = rte_rdtsc();
	head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	/* acquire: pairs with the release of drain(), which has read the slot */
	if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) > ring->mask) {
		atomic_store_explicit(&ring->lost,
			atomic_load_explicit(&ring->lost, memory_order_relaxed) + 1,
			memory_order_relaxed);
		return;
	}
	ring->slot[head & ring->mask] = *r;
	/* release: pairs with the acquire of drain() */
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* --- the file --- */

static uint64_t
since_1970(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Reads the clocks again, so that times are exact however long the log has been open. */
static void
read_clocks(struct imp_log *l)
{
	uint64_t tsc, ns;

	karst_realtime_read(rte_rdtsc, since_1970, &tsc, &ns);
	karst_realtime_pair(&l->time, tsc, ns);
}

static void
write_detail(FILE *to, const struct imp_record *r)
{
	if (r->event != IMP_INJURED)
		return;
	if (r->action == IMP_CORRUPT)
		fprintf(to, ",\"offset\":%u", r->detail);
	else if (r->action == IMP_TRUNCATE)
		fprintf(to, ",\"left\":%u", r->detail);
	else if (r->action == IMP_DUPLICATE)
		fprintf(to, ",\"copies\":%u", r->detail);
	else if (r->why == IMP_WHY_QUEUE_FULL)
		fputs(",\"dropped\":true", to);
}

static void
write_record(struct imp_log *l, const struct imp_record *r)
{
	FILE *to = l->file;

	fprintf(to,
		"{\"event\":\"%s\",\"packet\":%" PRIu64 ",\"time_ns\":%" PRIu64
		",\"direction\":\"%s\",\"queue\":%u,\"qpn\":%u,\"psn\":%u,\"opcode\":\"%s\","
		"\"length\":%u,\"generation\":%u,\"rule\":\"%s\",\"action\":\"%s\","
		"\"reason\":\"%s",
		log_events[r->event], r->packet, karst_realtime_at(&l->time, r->tsc),
		r->direction == IMP_RX ? "rx" : "tx", r->queue, r->qpn, r->psn,
		karst_opcode_symbol(r->opcode), r->len, r->generation, r->rule,
		imp_action_name(r->action), log_choices[r->choice]);
	fprintf(to, " %" PRIu64, r->count);
	if (r->transmission == 1)
		fputs(", first transmission", to);
	else if (r->transmission > 1)
		fprintf(to, ", retransmission %u", r->transmission - 1u);
	fputc('"', to);
	write_detail(to, r);
	if (whys[r->why] != NULL)
		fprintf(to, ",\"note\":\"%s\"", whys[r->why]);
	fputs("}\n", to);
	l->written++;
}

/* Writes the records of a ring.  The caller holds the lock. */
static void
drain(struct imp_log *l, struct imp_log_ring *ring, unsigned int direction, unsigned int queue)
{
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	/* acquire: pairs with the release of imp_log_put() */
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);

	for (; tail != head; tail++)
		write_record(l, &ring->slot[tail & ring->mask]);
	/* release: pairs with the acquire of imp_log_put() */
	atomic_store_explicit(&ring->tail, tail, memory_order_release);
	if (lost != ring->said_lost)
		fprintf(l->file,
			"{\"event\":\"lost\",\"direction\":\"%s\",\"queue\":%u,\"records\":%" PRIu64
			"}\n",
			direction == IMP_RX ? "rx" : "tx", queue, lost - ring->said_lost);
	ring->said_lost = lost;
}

void
imp_log_flush(struct imp_log *l)
{
	unsigned int d, i;

	pthread_mutex_lock(&l->lock);
	read_clocks(l);
	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++)
			if (l->ring[d][i] != NULL)
				drain(l, l->ring[d][i], d, i);
	if (fflush(l->file) != 0 && !l->failed) {
		IMP_LOG(ERR, "%s: the log cannot be written: %s\n", l->port, strerror(errno));
		l->failed = true; /* print the message once */
	}
	clearerr(l->file);
	pthread_mutex_unlock(&l->lock);
}

static void *
run(void *arg)
{
	struct imp_log *l = arg;

	/* relaxed: no other access depends on the order; imp_log_close() writes the rest */
	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		imp_log_flush(l);
		usleep(NAP_US);
	}
	return NULL;
}

/* --- life --- */

struct imp_log *
imp_log_open(const char *path, const char *port, uint32_t slots)
{
	struct imp_log *l = calloc(1, sizeof(*l));
	uint64_t tsc, ns;
	int rc;

	if (l == NULL || (l->file = fopen(path, "ae")) == NULL) {
		IMP_LOG(ERR, "%s: log=%s: %s\n", port, path, strerror(errno));
		free(l);
		return NULL;
	}
	snprintf(l->port, sizeof(l->port), "%s", port);
	l->slots = slots;
	karst_realtime_read(rte_rdtsc, since_1970, &tsc, &ns);
	karst_realtime_init(&l->time, rte_get_tsc_hz(), tsc, ns);
	pthread_mutex_init(&l->lock, NULL);
	rc = rte_ctrl_thread_create(&l->thread, "impair-log", NULL, run, l);
	if (rc != 0) {
		IMP_LOG(ERR, "%s: no thread for its log: %s\n", port, strerror(rc < 0 ? -rc : rc));
		fclose(l->file);
		free(l);
		return NULL;
	}
	return l;
}

void
imp_log_close(struct imp_log *l)
{
	unsigned int d, i;

	if (l == NULL)
		return;
	atomic_store_explicit(&l->stop, true, memory_order_relaxed);
	pthread_join(l->thread, NULL);
	imp_log_flush(l);
	fclose(l->file);
	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++) {
			if (l->ring[d][i] != NULL)
				free(l->ring[d][i]->slot);
			free(l->ring[d][i]);
		}
	pthread_mutex_destroy(&l->lock);
	free(l);
}

struct imp_log_ring *
imp_log_ring(struct imp_log *l, unsigned int direction, uint16_t queue)
{
	struct imp_log_ring *ring = l->ring[direction][queue];

	if (ring != NULL)
		return ring;
	ring = aligned_alloc(64, sizeof(*ring));
	if (ring == NULL)
		return NULL;
	memset(ring, 0, sizeof(*ring));
	ring->slot = calloc(l->slots, sizeof(ring->slot[0]));
	ring->mask = l->slots - 1;
	if (ring->slot == NULL) {
		free(ring);
		return NULL;
	}
	pthread_mutex_lock(&l->lock);
	l->ring[direction][queue] = ring;
	pthread_mutex_unlock(&l->lock);
	return ring;
}

static void
put_string(FILE *to, const char *s)
{
	fputc('"', to);
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', to);
		if ((unsigned char)*s < 0x20)
			fprintf(to, "\\u%04x", *s);
		else
			fputc(*s, to);
	}
	fputc('"', to);
}

void
imp_log_rules(struct imp_log *l, const char *path, const struct imp_rules *r, uint32_t generation)
{
	pthread_mutex_lock(&l->lock);
	read_clocks(l);
	fputs("{\"event\":\"rules\",\"port\":", l->file);
	put_string(l->file, l->port);
	fputs(",\"file\":", l->file);
	put_string(l->file, path);
	fprintf(l->file,
		",\"rules\":%u,\"seed\":%" PRIu64 ",\"generation\":%u,\"time_ns\":%" PRIu64 "}\n",
		r->n, r->seed, generation, karst_realtime_at(&l->time, rte_rdtsc()));
	pthread_mutex_unlock(&l->lock);
}

uint64_t
imp_log_written(struct imp_log *l)
{
	uint64_t n;

	pthread_mutex_lock(&l->lock);
	n = l->written;
	pthread_mutex_unlock(&l->lock);
	return n;
}

uint64_t
imp_log_lost(struct imp_log *l)
{
	uint64_t n = 0;
	unsigned int d, i;

	pthread_mutex_lock(&l->lock);
	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++)
			if (l->ring[d][i] != NULL)
				n += atomic_load_explicit(
					&l->ring[d][i]->lost, memory_order_relaxed);
	pthread_mutex_unlock(&l->lock);
	return n;
}
