/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * States in which exchanges end: idle, time-wait, rejected, answered (C1).
 *
 * In time-wait an id is kept, and answers messages, for as long as packets of the connection may
 * still be in the network.  Until then no other connection may use the peer's queue pair number,
 * since its packets would be taken for those of the old connection.  An id that its user has
 * destroyed before is an orphan.  It passes through the same states, and its slot is the first to
 * be reused if slots are short.
 */
#include "cm_priv.h"

/* Limits of the time that the sides allow for a packet and its acknowledgement: 16 ms to 4.3 s. */
#define TIMEWAIT_EXPONENT_MIN 12
#define TIMEWAIT_EXPONENT_MAX 20

void
cm_idle(struct cm_core *c, struct cm_id *id)
{
	if (id->orphan) {
		cm_id_free(c, id);
		return;
	}
	cm_timer_stop(c, id);
	cm_half_open_remove(c, id);
	cm_id_unhash(id);
	id->kept = false;
	id->stale = false;
	id->state = KARST_CM_IDLE;
}

static void
enter_timewait_for(struct cm_core *c, struct cm_id *id, uint64_t ns)
{
	cm_half_open_remove(c, id);
	id->stale = false;
	cm_timer_set(c, id, ns);
}

static uint64_t
timewait_ns(const struct cm_id *id)
{
	unsigned int exponent = id->path.ack_timeout;

	uint64_t ns;

	if (exponent < TIMEWAIT_EXPONENT_MIN)
		exponent = TIMEWAIT_EXPONENT_MIN;
	ns = exponent_ns(exponent < TIMEWAIT_EXPONENT_MAX ? exponent : TIMEWAIT_EXPONENT_MAX);
	/* a peer that does not have the REP repeats its REQ, which must not become a new one */
	return id->no_rtu ? karst_max_u64(ns, id->peer_timeout_ns + cm_mra_timeout_ns(id)) : ns;
}

void
cm_enter_timewait(struct cm_core *c, struct cm_id *id)
{
	id->state = KARST_CM_TIMEWAIT;
	enter_timewait_for(c, id, timewait_ns(id));
}

static void
enter_spent(struct cm_core *c, struct cm_id *id, uint64_t ns)
{
	cm_id_unhash_qpn(id); /* it carried no packets: the peer may use its queue pair for
			       * another request */
	id->state = KARST_CM_TIMEWAIT;
	id->spent = true;
	enter_timewait_for(c, id, ns);
}

void
cm_enter_rejected(struct cm_core *c, struct cm_id *id)
{
	/* after our MRA the peer may repeat its request even later */
	enter_spent(c, id, id->peer_timeout_ns + cm_mra_timeout_ns(id));
}

void
cm_refused_by_peer(struct cm_core *c, struct cm_id *id)
{
	id->kept = false;
	if (id->passive)
		enter_spent(c, id, timewait_ns(id));
	else
		cm_idle(c, id);
}

void
cm_enter_answered(struct cm_core *c, struct cm_id *id)
{
	id->state = KARST_CM_SIDR_REP_SENT;
	enter_timewait_for(c, id, id->peer_timeout_ns);
}

void
cm_timewait_over(struct cm_core *c, struct cm_id *id)
{
	bool quiet = id->orphan || id->spent;

	cm_idle(c, id);
	if (!quiet)
		cm_notify_code(c, id, KARST_CM_EV_TIMEWAIT_EXIT);
}
