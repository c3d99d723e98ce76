/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Two systems: messages of one reach the other when bed_pump() is called, without delay.  Between
 * two calls a test may inspect messages under way, change them, or lose them.  This file does not
 * use Criterion, so that fuzz targets can use it, too.
 */
#ifndef SMC_BED_H
#define SMC_BED_H

#include "karst_smc.h"

#define BED_QUEUE 256u
#define BED_BYTES 16384u

struct bed_msg {
	uint8_t kind; /* 'c' CLC, 's' SEND, 'w' WRITE */
	uint32_t link, len;
	struct karst_smc_write w;
	uint8_t msg[600];
};

struct bed;

struct bed_sys {
	struct bed *bed;
	struct karst_smc *smc;
	void *mem;
	uint32_t conn;
	struct bed_msg out[BED_QUEUE];
	unsigned int head, tail;
	uint32_t links[4]; /* by queue pair number */
	unsigned int nlinks;
	uint8_t send_buf[BED_BYTES];
	uint8_t rmb[8][65536];
	unsigned int keys; /* valid ones */
	uint32_t events;   /* of the connection, since they were last taken */
	uint64_t unkeys;
	int link_open_rc, connect_rc;
	uint32_t connects; /* the link that was to be connected last */
	unsigned int ports;
	bool devices; /* each port is of its own device, which counts its queue pairs from 16 */
};

struct bed {
	struct bed_sys s[2];
	uint64_t now_ns;
	bool hold;       /* messages stay in the queues */
	bool keeps_keys; /* as Linux does: system 1 is not told that keys are deleted */
};

/** @cfg: the configuration of both; NULL: the default. */
struct bed *bed_new(const struct karst_smc_config *cfg);
/** Both sides have two ports, and groups have two links. */
struct bed *bed_two_ports(void);
struct karst_smc_config bed_config(void);
void bed_free(struct bed *b);
/** Opens a connection from system 0 to system 1; delivers nothing. */
void bed_open(struct bed *b);
/** Delivers until no message is under way. */
void bed_pump(struct bed *b);
/** Delivers the first message that system @from has sent.  @return false: there is none. */
bool bed_step(struct bed *b, unsigned int from);
/** Lets time pass, with the timers that expire. */
void bed_wait(struct bed *b, uint64_t ns);
/** bed_open() and bed_pump(); false unless both are connected. */
bool bed_connect(struct bed *b);
struct karst_smc_conn_info bed_info(struct bed *b, unsigned int sys);
/** Writes @n bytes at system @sys. */
int bed_write(struct bed *b, unsigned int sys, uint32_t n, bool urgent);
/** The last SEND under way from @sys, or NULL */
struct bed_msg *bed_last(struct bed *b, unsigned int sys);
uint32_t bed_take_events(struct bed *b, unsigned int sys);
/** The CDC message that @from would send now; to be changed and given to bed_cdc(). */
struct karst_smc_cdc bed_honest(struct bed *b, unsigned int from);
void bed_cdc(struct bed *b, unsigned int from, const struct karst_smc_cdc *m);

#endif /* SMC_BED_H */
