/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Compare the counters of an adapter with the capture.  The file has the increments while the
 * capture ran, as one JSON object of names and numbers, or as lines "NAME NUMBER".  The names are
 * those of hw_counters in Linux.  If the capture was not taken at that adapter, packets may have
 * been lost between the two, so a difference proves nothing.  Counters of events that do not show
 * in a capture are ignored.
 */
#include <errno.h>
#include <jansson.h>

#include "an_priv.h"

#define FILE_ROOM 65536

static const struct {
	const char *name;
	enum an_seen seen;
} known[] = {
	{"packet_seq_err", AN_SEEN_NAK_RECEIVED},
	{"rnr_nak_retry_err", AN_SEEN_RNR_RECEIVED},
	{"local_ack_timeout_err", AN_SEEN_TIMEOUTS},
	{"np_cnp_sent", AN_SEEN_CNP_SENT},
	{"rp_cnp_handled", AN_SEEN_CNP_RECEIVED},
	{"np_ecn_marked_roce_packets", AN_SEEN_CE},
	{"rx_icrc_encapsulated", AN_SEEN_ICRC},
	{"rx_read_requests", AN_SEEN_READS},
	{"rx_atomic_requests", AN_SEEN_ATOMICS},
};

void
an_count_seen(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	uint64_t *sent = f->pair->src->seen, *received = f->pair->dst->seen;
	uint8_t syndrome = karst_aeth_syndrome(p->ib->aeth);
	bool again = f->req.begun && karst_psn_diff(p->ib->psn, f->req.next) < 0;

	(void)a;
	if (p->j->icrc_is == JUDGE_CRC_BAD) {
		received[AN_SEEN_ICRC]++;
		return;
	}
	received[AN_SEEN_CE] += (p->tclass & 3) == 3;
	if (p->flags & KARST_OPF_CNP) {
		sent[AN_SEEN_CNP_SENT]++;
		received[AN_SEEN_CNP_RECEIVED]++;
	} else if (p->flags & KARST_OPF_REQUEST) {
		received[AN_SEEN_READS] += (p->flags & KARST_OPF_READ) != 0 && !again;
		received[AN_SEEN_ATOMICS] += (p->flags & KARST_OPF_ATOMIC) != 0 && !again;
	} else if (p->flags & KARST_OPF_AETH && syndrome == (KARST_AETH_NAK | KARST_NAK_PSN_SEQ)) {
		received[AN_SEEN_NAK_RECEIVED]++;
	} else if (p->flags & KARST_OPF_AETH &&
		(syndrome & KARST_AETH_TYPE_MASK) == KARST_AETH_RNR) {
		received[AN_SEEN_RNR_RECEIVED]++;
	}
}

static void
compare(struct an *a, const struct an_end *e, const char *name, uint64_t value)
{
	bool at = a->o->tap == AN_TAP_ADDRESS &&
		memcmp(a->o->tap_address, a->o->counters_address, 16) == 0;
	/*
	 * packets that were counted may be left out, missing, or among those that cannot be parsed
	 */
	bool tainted = a->doubled != 0 || a->left_out != 0 || a->broken || a->malformed;
	const struct an_pair *p;
	struct an_flow *f;
	size_t i;

	for (f = a->flows; f != NULL; f = f->all_next)
		tainted |= f->tainted;
	for (p = a->pairs; p != NULL; p = p->next)
		tainted |= p->malformed;
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		uint64_t seen;

		if (strcmp(known[i].name, name) != 0)
			continue;
		seen = e->seen[known[i].seen];
		/*
		 * the reason of a retransmission is inferred, so a different count proves nothing
		 */
		if (seen == value)
			an_say(a, NULL, AN_COUNTERS, AN_PASS, 0, 0, "%s: %llu", name,
				(unsigned long long)value);
		else
			an_say(a, NULL, AN_COUNTERS,
				at && !tainted && known[i].seen != AN_SEEN_TIMEOUTS ? AN_FAIL
										    : AN_UNKNOWN,
				0, 0, "%s: %llu, in the capture %llu%s", name,
				(unsigned long long)value, (unsigned long long)seen,
				at ? "" : "; it was not taken at this adapter");
		return;
	}
	/* other counters do not show in a capture */
}

/* Compares one counter.  Some programs write whole numbers as 3.0. */
static void
compare_json(struct an *a, const struct an_end *e, const char *name, const json_t *v)
{
	double number = json_number_value(v);

	if (json_is_integer(v) && json_integer_value(v) >= 0)
		compare(a, e, name, (uint64_t)json_integer_value(v));
	else if (json_is_real(v) && number >= 0 && number < 9e15 &&
		number == (double)(uint64_t)number)
		compare(a, e, name, (uint64_t)number);
	else
		an_say(a, NULL, AN_COUNTERS, AN_UNKNOWN, 0, 0, "%.64s: not a count", name);
}

static void
lines(struct an *a, const struct an_end *e, const char *text)
{
	unsigned long long value;
	char name[64];
	int used;

	for (; sscanf(text, " %63[a-zA-Z0-9_] %llu%n", name, &value, &used) == 2; text += used)
		compare(a, e, name, value);
	if (text[strspn(text, " \t\r\n")] != '\0')
		an_say(a, NULL, AN_COUNTERS, AN_UNKNOWN, 0, 0,
			"the file of counters is read up to \"%.20s\"",
			text + strspn(text, " \t\r\n"));
}

int
an_counters_check(struct an *a, const char *path)
{
	struct an_end *e = an_end_of(a, a->o->counters_address);
	FILE *f = fopen(path, "r");
	static char text[FILE_ROOM];
	const char *name;
	json_t *o, *v;
	size_t n;

	if (f == NULL || e == NULL) {
		an_say(a, NULL, AN_COUNTERS, AN_UNKNOWN, 0, 0, "%s: %s", path,
			strerror(f == NULL ? errno : ENOMEM));
		if (f != NULL)
			fclose(f);
		return -EIO;
	}
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	o = json_loads(text, 0, NULL);
	if (json_is_object(o)) {
		json_object_foreach(o, name, v) compare_json(a, e, name, v);
	} else {
		lines(a, e, text);
	}
	json_decref(o);
	return 0;
}
