/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "stats.h"

#include <inttypes.h>

#include "json_more.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "show.h"

void
stats_count(struct stats *st, const struct capture_frame *f, const struct judge *j)
{
	st->frames++;
	st->truncated += f->len < f->wire_len;
	if (j->kind == JUDGE_MALFORMED) {
		st->malformed++;
		st->by_reason[j->drop]++;
	}
	if (j->ib == NULL)
		return;
	st->roce++;
	st->by_opcode[j->ib->opcode]++;
	if ((j->ib->opcode & KARST_OPERATION_MASK) == KARST_OPERATION_ACK)
		st->by_syndrome[karst_aeth_syndrome(j->ib->aeth)]++;
	st->icrc_ok += j->icrc_is == JUDGE_CRC_OK;
	st->icrc_bad += j->icrc_is == JUDGE_CRC_BAD;
	st->icrc_quirk += j->icrc_is == JUDGE_CRC_QUIRK;
	st->vcrc_ok += j->vcrc_is == JUDGE_CRC_OK;
	st->vcrc_bad += j->vcrc_is == JUDGE_CRC_BAD;
	st->rebuilt += j->rebuild != JUDGE_REBUILD_NONE;
	st->rebuild_mismatch += j->rebuild == JUDGE_REBUILD_DIFFERENT;
}

void
stats_add(struct stats *sum, const struct stats *st)
{
	const uint64_t *from = (const uint64_t *)st;
	uint64_t *to = (uint64_t *)sum;
	size_t i;

	static_assert(sizeof(*st) % sizeof(uint64_t) == 0, "counters and nothing else");
	for (i = 0; i < sizeof(*st) / sizeof(uint64_t); i++)
		to[i] += from[i];
}

bool
stats_bad(const struct stats *st)
{
	return st->malformed != 0 || st->icrc_bad != 0 || st->vcrc_bad != 0 ||
		st->rebuild_mismatch != 0 || st->errors != 0;
}

/* Add to a counter.  Several codes may have one name (ACK with different credits). */
static void
counter_add(json_t *o, const char *key, uint64_t v)
{
	json_set_uint(o, key, v + (uint64_t)json_integer_value(json_object_get(o, key)));
}

static json_t *
opcodes(const struct stats *st)
{
	json_t *o = json_object();
	unsigned int i;

	for (i = 0; i < 256; i++)
		if (st->by_opcode[i] != 0)
			json_set_uint(o, karst_opcode_symbol((uint8_t)i), st->by_opcode[i]);
	return o;
}

static json_t *
syndromes(const struct stats *st)
{
	json_t *o = json_object();
	unsigned int i;
	char text[32];

	for (i = 0; i < 256; i++) {
		if (st->by_syndrome[i] == 0)
			continue;
		show_syndrome((uint8_t)i, text, sizeof(text));
		counter_add(o, text, st->by_syndrome[i]);
	}
	return o;
}

static json_t *
reasons(const struct stats *st)
{
	json_t *o = json_object();
	unsigned int i;

	for (i = 0; i < KARST_DROP_MAX; i++)
		if (st->by_reason[i] != 0)
			json_set_uint(o, karst_drop_name((enum karst_drop)i), st->by_reason[i]);
	return o;
}

static json_t *
to_json(const struct stats *st, const char *file)
{
	json_t *o = json_object();

	if (file != NULL)
		json_object_set_new(o, "file", json_text(file));
	json_set_uint(o, "frames", st->frames);
	json_set_uint(o, "roce", st->roce);
	json_set_uint(o, "icrc_ok", st->icrc_ok);
	json_set_uint(o, "icrc_bad", st->icrc_bad);
	json_set_uint(o, "icrc_quirk", st->icrc_quirk);
	json_set_uint(o, "vcrc_ok", st->vcrc_ok);
	json_set_uint(o, "vcrc_bad", st->vcrc_bad);
	json_set_uint(o, "rebuilt", st->rebuilt);
	json_set_uint(o, "rebuild_mismatch", st->rebuild_mismatch);
	json_set_uint(o, "malformed", st->malformed);
	json_set_uint(o, "truncated", st->truncated);
	json_set_uint(o, "errors", st->errors);
	json_object_set_new(o, "by_opcode", opcodes(st));
	json_object_set_new(o, "by_syndrome", syndromes(st));
	json_object_set_new(o, "by_reason", reasons(st));
	return o;
}

static void
print_counts(FILE *out, const char *title, json_t *counts)
{
	const char *key;
	json_t *value;

	if (json_object_size(counts) != 0) {
		fprintf(out, "  %s:", title);
		json_object_foreach(counts, key, value)
			fprintf(out, " %s %" JSON_INTEGER_FORMAT, key, json_integer_value(value));
		fputc('\n', out);
	}
	json_decref(counts);
}

static void
print_text(const struct stats *st, FILE *out, const char *file, bool rebuild)
{
	fprintf(out, "%s: %" PRIu64 " frames, %" PRIu64 " RoCE, ICRC ok %" PRIu64 ", bad %" PRIu64,
		file != NULL ? file : "total", st->frames, st->roce, st->icrc_ok, st->icrc_bad);
	if (st->icrc_quirk != 0)
		fprintf(out, ", quirk %" PRIu64, st->icrc_quirk);
	if (st->vcrc_ok + st->vcrc_bad != 0)
		fprintf(out, ", VCRC ok %" PRIu64 ", bad %" PRIu64, st->vcrc_ok, st->vcrc_bad);
	if (rebuild)
		fprintf(out, ", rebuilt %" PRIu64 ", different %" PRIu64, st->rebuilt,
			st->rebuild_mismatch);
	if (st->malformed != 0)
		fprintf(out, ", malformed %" PRIu64, st->malformed);
	if (st->truncated != 0)
		fprintf(out, ", truncated %" PRIu64, st->truncated);
	if (st->errors != 0)
		fprintf(out, ", not read or not to the end: %" PRIu64 " file%s", st->errors,
			st->errors == 1 ? "" : "s");
	fputc('\n', out);
	print_counts(out, "opcodes", opcodes(st));
	print_counts(out, "acknowledgements", syndromes(st));
	print_counts(out, "malformed", reasons(st));
}

void
stats_print(const struct stats *st, FILE *out, bool json, const char *file, bool rebuild)
{
	json_t *o;

	if (!json) {
		print_text(st, out, file, rebuild);
		return;
	}
	o = to_json(st, file);
	json_dumpf(o, out, JSON_COMPACT | JSON_PRESERVE_ORDER);
	fputc('\n', out);
	json_decref(o);
}
