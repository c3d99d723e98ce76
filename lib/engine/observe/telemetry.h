/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Functions that the telemetry commands share.
 *
 *	telemetry.c          the engines of this process, parameters, answers in pages
 *	telemetry_lcores.c   lcores, counters, drops
 *	telemetry_ports.c    ports, neighbours
 *	telemetry_qps.c      queue pairs
 *	telemetry_clients.c  programs, memory
 *	telemetry_cm.c       connection management
 *	telemetry_capture.c  packet capture
 *	telemetry_congestion.c  congestion control
 *
 * An answer of rte_telemetry is at most 16 KiB of JSON, so a command that lists things stops before
 * that and adds "next": the number to request the rest with.
 *
 * Commands run on threads of rte_telemetry, several at once, and never on an lcore.  Between
 * eng_tel_open() and eng_tel_close() no engine is created or destroyed.  Other data that they read
 * is either protected by ctl_lock, or written by one lcore in whole words.
 */
#ifndef ENGINE_TELEMETRY_H
#define ENGINE_TELEMETRY_H

#include <rte_telemetry.h>

#include "lcore.h"

/* Leaves room for what a command itself adds around its rows. */
#define TEL_ANSWER_MAX (15u << 10)

struct tel_cmd {
	const char *cmd;
	telemetry_cb fn;
	const char *help;
};

/* Tables of the other files; each ends with a row of NULLs. */
extern const struct tel_cmd eng_tel_lcores[];
extern const struct tel_cmd eng_tel_ports[];
extern const struct tel_cmd eng_tel_qps[];
extern const struct tel_cmd eng_tel_clients[];
extern const struct tel_cmd eng_tel_cm[];
extern const struct tel_cmd eng_tel_capture[];
extern const struct tel_cmd eng_tel_congestion[];

/**
 * Finds the engine for "ENGINE", "ENGINE:NUMBER", "NUMBER" or nothing: without a name the oldest
 * engine, without a number @number stays.  On success, the list of engines is locked.
 * -ENOENT: no such engine; -EINVAL: not a number.
 */
int eng_tel_open(const char *params, struct karst_engine **e, uint64_t *number);
/** The same, for only an engine's name; NULL or "": the oldest. */
int eng_tel_open_name(const char *name, struct karst_engine **e);
void eng_tel_close(void);

/* --- rows: containers with a known length as JSON --- */

struct tel_row {
	struct rte_tel_data *d;
	size_t bytes;
};

/** @return false: no memory. */
bool tel_row_begin(struct tel_row *row);
void tel_row_u64(struct tel_row *row, const char *name, uint64_t v);
void tel_row_str(struct tel_row *row, const char *name, const char *v);

/** The rows of one answer. */
struct tel_list {
	struct rte_tel_data *d;
	size_t bytes;
	uint32_t rows;
};

void tel_list_begin(struct tel_list *list, struct rte_tel_data *d);
/** Adds @row under @name; if it does not fit any more, discards it and puts @next into the answer.
 *  @return whether it was added. */
bool tel_list_add(struct tel_list *list, const char *name, struct tel_row *row, uint64_t next);

/* --- columns: arrays of equal length, for lists that may be long --- */

#define TEL_COLUMNS 16u
#define TEL_ROW_MAX 256u /* most characters of a row */

struct tel_table {
	struct rte_tel_data *d;
	const char *const *names; /* ends with NULL */
	struct rte_tel_data *col[TEL_COLUMNS];
	size_t bytes;
	uint32_t rows;
};

/** @text: bit set of the columns of strings, the others are numbers.  @return false: no memory. */
bool tel_table_begin(
	struct tel_table *t, struct rte_tel_data *d, const char *const *names, uint32_t text);
/** Begins a row; each column is then set once.  @return false: it would not fit. */
bool tel_table_row(struct tel_table *t);
void tel_table_u64(struct tel_table *t, unsigned int col, uint64_t v);
void tel_table_str(struct tel_table *t, unsigned int col, const char *v);
/** Makes the columns the answer, with "next" if that is not 0. */
void tel_table_end(struct tel_table *t, uint64_t next);

/* --- telemetry.c, for engine.c --- */

/* Sets the engine's name; for the first engine, also chooses the CRC kernels and registers the
 * telemetry commands.  -EEXIST: an engine with that name exists; -EIO: see karst_crc_init(). */
int eng_telemetry_add(struct karst_engine *e);
/* The engine is complete: commands may access it. */
void eng_telemetry_ready(struct karst_engine *e);
void eng_telemetry_del(struct karst_engine *e);

#endif /* ENGINE_TELEMETRY_H */
