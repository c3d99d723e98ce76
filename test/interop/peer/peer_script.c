/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Scripts of interop-peer: words like send:around, write:3000x16/inline or
 * read:8/badkey=REM_ACCESS_ERR become steps.  script_help() has the grammar.
 */
#include "peer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const op_names[OP_COUNT] = {
	[OP_SEND] = "send",
	[OP_SEND_IMM] = "send_imm",
	[OP_SEND_INV] = "send_inv",
	[OP_WRITE] = "write",
	[OP_WRITE_IMM] = "write_imm",
	[OP_READ] = "read",
	[OP_CAS] = "cas",
	[OP_FAA] = "faa",
	[OP_AWRITE] = "awrite",
	[OP_MIX] = "mix",
	[OP_BIND1] = "bind1",
	[OP_BIND2] = "bind2",
	[OP_LOCAL_INV] = "local_inv",
	[OP_SLEEP] = "sleep",
	[OP_NEW] = "new",
};

static const struct {
	const char *name;
	uint32_t flag;
} flag_words[] = {
	{"inline", F_INLINE},
	{"se", F_SOLICITED},
	{"fence", F_FENCE},
	{"unsig", F_UNSIGNALLED},
	{"mw", F_WINDOW},
	{"badkey", F_BAD_KEY},
	{"dead", F_DEAD_KEY},
	{"pd", F_OTHER_PD},
	{"ro", F_READ_ONLY},
	{"wo", F_WRITE_ONLY},
	{"none", F_NO_REMOTE},
	{"end", F_END},
	{"odd", F_ODD},
	{"badlkey", F_BAD_LKEY},
	{"badqkey", F_BAD_QKEY},
	{"norecv", F_NO_RECV},
	{"deaf", F_DEAF},
	{"lost", F_LOST},
	{"badrecv", F_BAD_RECV},
	{"up", F_TARGET_UP},
	{"down", F_TARGET_DOWN},
};

static const char *const statuses[] = {
	[IBV_WC_SUCCESS] = "OK",
	[IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
	[IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
	[IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
	[IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
	[IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
	[IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR",
	[IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
	[IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
	[IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
	[IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
	[IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
	[IBV_WC_REM_ABORT_ERR] = "REM_ABORT_ERR",
	[IBV_WC_FATAL_ERR] = "FATAL_ERR",
	[IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
};

#define N(array) (sizeof(array) / sizeof((array)[0]))

const char *
status_name(int status)
{
	if (status >= 0 && (size_t)status < N(statuses) && statuses[status] != NULL)
		return statuses[status];
	return ibv_wc_status_str(status);
}

void
script_help(void)
{
	size_t i;

	printf("step: [@|%%]OP[:LENGTH[,LENGTH...]][xCOUNT][/HOW...][=STATUS[:RECEIVE STATUS]]\n"
	       "  @ the server acts, %% both ends do; else the client\n"
	       "  a step for each LENGTH; \"around\" stands for 0 to 4 and lengths around each of\n"
	       "  the first three multiples of the MTU; sleep:MS; mix:SEED; bindN:LENGTH\n"
	       "  xCOUNT after a colon: so many at once, as in faa:x16\n"
	       "  STATUS that the work request ends with, OK unless said otherwise; after another,\n"
	       "  queue pairs are made anew.  RECEIVE STATUS: of the target's receive, if any\n"
	       "  OP:");
	for (i = 0; i < OP_COUNT; i++)
		printf(" %s", op_names[i]);
	printf("\n  HOW:");
	for (i = 0; i < N(flag_words); i++)
		printf(" %s", flag_words[i].name);
	printf("\n       lateMS rlenBYTES sgeN rsgeN atN\n  STATUS:");
	for (i = 0; i < N(statuses); i++)
		if (statuses[i] != NULL)
			printf(" %s", statuses[i]);
	printf("\n");
}

static int
status_parse(const char *word)
{
	size_t i;

	for (i = 0; i < N(statuses); i++)
		if (statuses[i] != NULL && strcmp(statuses[i], word) == 0)
			return (int)i;
	return -1;
}

/* Parses @text as a number. */
static bool
script_number(const char *text, uint32_t max, uint32_t *value)
{
	unsigned long long n;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	n = strtoull(text, &end, 0);
	if (*end != '\0' || n > max)
		return false;
	*value = (uint32_t)n;
	return true;
}

/* "late200" with @name "late" is 200. */
static bool
numbered(const char *word, const char *name, uint32_t max, uint32_t *value)
{
	size_t len = strlen(name);

	return strncmp(word, name, len) == 0 && script_number(word + len, max, value);
}

static bool
how_parse(const char *word, struct step *s)
{
	uint32_t n;
	size_t i;

	for (i = 0; i < N(flag_words); i++) {
		if (strcmp(flag_words[i].name, word) == 0) {
			s->flags |= flag_words[i].flag;
			return true;
		}
	}
	if (numbered(word, "rlen", INT32_MAX, &n)) {
		s->recv_len = (int32_t)n;
		return true;
	}
	return numbered(word, "late", 60000, &s->late_ms) ||
		numbered(word, "at", MAX_ITEMS - 1, &s->at) ||
		(numbered(word, "sge", MAX_SGE, &s->sge) && s->sge > 0) ||
		(numbered(word, "rsge", MAX_SGE, &s->recv_sge) && s->recv_sge > 0);
}

static bool
op_parse(const char *word, struct step *s)
{
	unsigned int i;

	for (i = 0; i < OP_COUNT; i++) {
		if (strcmp(op_names[i], word) == 0) {
			s->op = i;
			return true;
		}
	}
	return false;
}

static bool
op_is_atomic(enum op op)
{
	return op == OP_CAS || op == OP_FAA || op == OP_AWRITE;
}

/* The lengths of "around". @return how many. */
static uint32_t
around(const struct options *opt, uint32_t *lens)
{
	bool ud = opt->qp_type == IBV_QPT_UD;
	uint32_t n = 0, i;

	for (i = 0; i <= 4; i++)
		lens[n++] = i;
	for (i = 1; i <= (ud ? 1 : 3); i++) {
		lens[n++] = i * opt->mtu - 1;
		lens[n++] = i * opt->mtu;
		if (!ud)
			lens[n++] = i * opt->mtu + 1;
	}
	return n;
}

/* @list: the text behind the colon, without the count.  @return how many, 0: a mistake. */
static uint32_t
lengths(char *list, const struct options *opt, uint32_t *lens, uint32_t max)
{
	char *save, *word;
	uint32_t n = 0;

	for (word = strtok_r(list, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
		if (n + 16 > max)
			return 0;
		if (strcmp(word, "around") == 0)
			n += around(opt, &lens[n]);
		else if (script_number(word, 1u << 24, &lens[n]))
			n++;
		else
			return 0;
	}
	return n;
}

static int
mistake(const char *word, const char *what)
{
	fprintf(stderr, "interop-peer: %s: %s\n", word, what);
	return -1;
}

/* One word of the script. @return how many steps it is, -1 for a mistake. */
static int
word_parse(const char *word, const struct options *opt, struct step *steps, uint32_t max)
{
	char copy[256], *name = copy, *equals, *slash, *colon, *x, *how, *save;
	uint32_t lens[256], n = 0, i;
	struct step s = {.actors = 1,
		.count = 1,
		.recv_len = -1,
		.recv_status = -1,
		.sge = 1,
		.recv_sge = 1};

	if ((size_t)snprintf(copy, sizeof(copy), "%s", word) >= sizeof(copy))
		return mistake(word, "too long");
	if ((equals = strchr(copy, '=')) != NULL) {
		*equals++ = '\0';
		if ((colon = strchr(equals, ':')) != NULL) {
			*colon++ = '\0';
			if ((s.recv_status = status_parse(colon)) < 0)
				return mistake(word, "unknown receive status");
		}
		if ((s.status = status_parse(equals)) < 0)
			return mistake(word, "unknown status");
	}
	if ((slash = strchr(copy, '/')) != NULL) {
		*slash++ = '\0';
		for (how = strtok_r(slash, "/", &save); how != NULL;
			how = strtok_r(NULL, "/", &save))
			if (!how_parse(how, &s))
				return mistake(word, "unknown after the /");
	}
	if (*name == '@' || *name == '%')
		s.actors = *name++ == '@' ? 2 : 3;
	if ((colon = strchr(name, ':')) != NULL) {
		*colon++ = '\0';
		if ((x = strchr(colon, 'x')) != NULL) {
			*x++ = '\0';
			if (!script_number(x, MAX_ITEMS, &s.count) || s.count == 0)
				return mistake(word, "a count of 1 to 128 is allowed");
		}
		if (*colon != '\0' && (n = lengths(colon, opt, lens, N(lens))) == 0)
			return mistake(word, "not a list of lengths");
	}
	if (!op_parse(name, &s))
		return mistake(word, "unknown operation");
	if (n == 0)
		lens[n++] = 64;
	if (s.at >= s.count)
		return mistake(word, "\"at\" is not one of its items");
	if (n > max)
		return mistake(word, "too many steps");
	for (i = 0; i < n; i++) {
		steps[i] = s;
		steps[i].len = op_is_atomic(s.op) ? 8 : lens[i];
		snprintf(steps[i].text, sizeof(s.text), n > 1 ? "%.36s (%u)" : "%.47s", word,
			lens[i]);
	}
	return (int)n;
}

int
script_parse(const char *text, const struct options *opt, struct step *steps, uint32_t max)
{
	static char copy[SCRIPT_SIZE];
	char *save, *word;
	uint32_t n = 0;
	int more;

	snprintf(copy, sizeof(copy), "%s", text);
	for (word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
		more = word_parse(word, opt, &steps[n], max - n);
		if (more < 0)
			return -1;
		n += (uint32_t)more;
	}
	return (int)n;
}
