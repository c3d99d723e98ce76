/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Parameters of congestion control (E1 to E6).  Names, units and defaults are those of adapters, as
 * their drivers show them (doc/congestion.rst).
 */
#ifndef KARST_CONGESTION_H
#define KARST_CONGESTION_H

#include "karst_base.h"

enum karst_congestion_mode {
	KARST_CONGESTION_OFF,    /* marks and CNPs are only counted */
	KARST_CONGESTION_NOTIFY, /* packets are ECT(0), and marks are answered by CNPs */
	KARST_CONGESTION_DCQCN,  /* as NOTIFY, and received CNPs reduce the rate (E2) */
	KARST_CONGESTION_SWIFT,  /* as NOTIFY, and round trips determine the window (E7) */
};

/** The set of packets to which the minimum time between two CNPs applies (E4). */
enum karst_cnp_scope {
	KARST_CNP_QP,      /* to one local queue pair; the default */
	KARST_CNP_ADDRESS, /* from one IP address */
	KARST_CNP_PORT,    /* received by one port */
};

/** Parameters of the notification point. */
struct karst_np_params {
	uint32_t min_time_between_cnps; /* us; 0: each mark is answered */
	uint32_t cnp_scope;             /* enum karst_cnp_scope */
	uint32_t cnp_dscp;              /* DSCP of CNPs, 0..63 */
	uint32_t cnp_802p_prio;         /* priority in their VLAN tag, if they have one, 0..7 */
};

/** Parameters of the reaction points of DCQCN and of control by delay: rates in Mb/s, times in us,
 *  windows in thousandths of a packet. */
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

/** Sets the defaults of adapters, and the mode to off. */
void karst_congestion_defaults(struct karst_congestion_config *c);
/** Returns the name of parameter number @i; NULL: there is no such number.  *@value points to its
 *  value in @p, which the caller may change; @least and @most are the range of that value. */
const char *karst_rp_param(struct karst_rp_params *p, unsigned int i, uint32_t **value,
	uint32_t *least, uint32_t *most);
bool karst_rp_params_valid(const struct karst_rp_params *p);
/** Whether each value is in its range. */
bool karst_congestion_valid(const struct karst_congestion_config *c);

#endif /* KARST_CONGESTION_H */
