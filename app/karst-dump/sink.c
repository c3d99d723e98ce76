/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "sink.h"

#include <inttypes.h>

void
sink_init(struct sink *s, FILE *out, bool json)
{
	*s = (struct sink){.out = out, .json = json};
}

void
sink_frame_begin(struct sink *s, uint64_t number, int64_t time_ns)
{
	if (s->json) {
		s->frame = json_pack(
			"{s:I, s:I}", "frame", (json_int_t)number, "time_ns", (json_int_t)time_ns);
		s->group = s->frame;
	} else {
		uint64_t ns = time_ns < 0 ? -(uint64_t)time_ns : (uint64_t)time_ns;

		fprintf(s->out, "%6" PRIu64 " %s%" PRIu64 ".%09" PRIu64, number,
			time_ns < 0 ? "-" : "", ns / 1000000000, ns % 1000000000);
	}
}

void
sink_frame_end(struct sink *s)
{
	if (s->json) {
		json_dumpf(s->frame, s->out, JSON_COMPACT | JSON_PRESERVE_ORDER);
		json_decref(s->frame);
		s->frame = s->group = NULL;
	}
	fputc('\n', s->out);
}

void
sink_group(struct sink *s, const char *name, const char *title)
{
	if (s->json) {
		s->group = json_object();
		json_object_set_new(s->frame, name, s->group);
	} else {
		fprintf(s->out, " | %s", title != NULL ? title : name);
	}
}

void
sink_dec(struct sink *s, const char *key, uint64_t v)
{
	if (s->json)
		json_object_set_new(s->group, key, json_integer((json_int_t)v));
	else
		fprintf(s->out, " %s %" PRIu64, key, v);
}

void
sink_hex(struct sink *s, const char *key, uint64_t v, int digits)
{
	char text[32];

	if (s->json && digits <= 8) {
		json_object_set_new(s->group, key, json_integer((json_int_t)v));
		return;
	}
	snprintf(text, sizeof(text), "0x%0*" PRIx64, digits, v);
	sink_str(s, key, text);
}

void
sink_str(struct sink *s, const char *key, const char *v)
{
	if (s->json)
		json_object_set_new(s->group, key, json_string(v));
	else
		fprintf(s->out, " %s %s", key, v);
}

void
sink_word(struct sink *s, const char *key, const char *v)
{
	if (s->json)
		sink_str(s, key, v);
	else
		fprintf(s->out, " %s", v);
}

void
sink_hexword(struct sink *s, const char *key, uint64_t v, int digits)
{
	if (s->json)
		sink_hex(s, key, v, digits);
	else
		fprintf(s->out, " 0x%0*" PRIx64, digits, v);
}

void
sink_flag(struct sink *s, const char *key, bool v)
{
	if (s->json)
		json_object_set_new(s->group, key, json_boolean(v));
	else if (v)
		fprintf(s->out, " %s", key);
}

void
sink_pair(struct sink *s, const char *from, const char *to)
{
	if (s->json) {
		json_object_set_new(s->group, "src", json_string(from));
		json_object_set_new(s->group, "dst", json_string(to));
	} else {
		fprintf(s->out, " %s > %s", from, to);
	}
}
