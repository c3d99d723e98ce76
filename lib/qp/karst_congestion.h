/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What can be set of congestion control (E1 to E6): names, units and defaults are those of
 * adapters, as their drivers show them (doc/congestion.rst).
 */
#ifndef KARST_CONGESTION_H
#define KARST_CONGESTION_H

#include "karst_base.h"

enum karst_congestion_mode {
	KARST_CONGESTION_OFF,    /* marks and CNPs are counted, and that is all */
	KARST_CONGESTION_NOTIFY, /* packets are ECT(0), and CNPs answer marks */
	KARST_CONGESTION_DCQCN,  /* and CNPs that come are reacted to (E2) */
	KARST_CONGESTION_SWIFT,  /* as NOTIFY, and round trips say how much is sent (E7) */
};

/** Between which packets the least time between two CNPs is kept (E4). */
enum karst_cnp_scope {
	KARST_CNP_QP,      /* to one queue pair of ours; the default */
	KARST_CNP_ADDRESS, /* from one IP address */
	KARST_CNP_PORT,    /* that one port has received */
};

/** The notification point. */
struct karst_np_params {
	uint32_t min_time_between_cnps; /* us; 0: every mark is answered */
	uint32_t cnp_scope;             /* enum karst_cnp_scope */
	uint32_t cnp_dscp;              /* of CNPs, 0..63 */
	uint32_t cnp_802p_prio;         /* of their VLAN tag, if they have one, 0..7 */
};

/** The reaction point, of DCQCN and of control by delay: rates in Mb/s, times in us, windows in
 *  thousandths of a packet. */
struct karst_rp_params {
#define KARST_RP_PARAM(name, def, least, most) uint32_t name;
#include "karst_rp_param.def"
#undef KARST_RP_PARAM
};

struct karst_congestion_config {
	enum karst_congestion_mode mode;
	struct karst_np_params np;
	struct karst_rp_params rp;
};

/** Sets what adapters have by default, and the mode to off. */
void karst_congestion_defaults(struct karst_congestion_config *c);
/** Parameter number @i by its name, NULL: there are no more; its value in @p, which may be changed,
 *  and the range of that. */
const char *karst_rp_param(struct karst_rp_params *p, unsigned int i, uint32_t **value,
	uint32_t *least, uint32_t *most);
bool karst_rp_params_valid(const struct karst_rp_params *p);
/** Is every value in its range? */
bool karst_congestion_valid(const struct karst_congestion_config *c);

#endif /* KARST_CONGESTION_H */
