/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Rule files: how valid ones are parsed, and the messages for mistakes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "karst_opcode.h"
#include "rules.h"

static char path[64], said[1 << 16];
static unsigned int mistakes;

static void
set_up(void)
{
	strcpy(path, "/tmp/unit_impair_rules.XXXXXX");
	close(mkstemp(path));
}

static void
tear_down(void)
{
	unlink(path);
}

TestSuite(rules, .init = set_up, .fini = tear_down);

static void
hear(void *user, const char *line)
{
	(void)user;
	mistakes++;
	if (strlen(said) + strlen(line) + 2 < sizeof(said))
		strcat(strcat(said, line), "\n");
}

static struct imp_rules *
read_bytes(const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	fwrite(text, 1, len, f);
	fclose(f);
	mistakes = 0;
	said[0] = '\0';
	return imp_rules_read(path, hear, NULL);
}

static struct imp_rules *
read_text(const char *text)
{
	return read_bytes(text, strlen(text));
}

Test(rules, all_keys)
{
	struct imp_rules *r = read_text("# a comment\n"
					"[impair]\n"
					"seed = 0x10\n"
					"flows = 64   # another\n"
					"\n"
					"[rule one]\n"
					"\taction = drop\r\n"
					"direction=tx\n"
					"opcode = RC_SEND_ONLY, RC_WRITE_*, CNP\n"
					"qpn = 0x11, 32-0x2f\n"
					"psn = 0xfffff0-15\n"
					"source_ports = 0x2222\n"
					"transmission = first, 2\n"
					"from_ms = 5\n"
					"until_ms = 10\n"
					"nth = 9, 3\n"
					"per = qpn\n"
					"count = 7\n"
					"[rule two]\n"
					"action = corrupt\n"
					"part = header\n"
					"offset = 4\n"
					"mask = 0x80\n"
					"repair = yes\n"
					"chance = 0.25\n"
					"seed = 99\n"
					"[rule three]\n"
					"action = reorder\n");
	const struct imp_conf_rule *one, *two, *three;

	cr_assert_not_null(r, "%s", said);
	one = &r->rule[0];
	two = &r->rule[1];
	three = &r->rule[2];
	cr_expect(r->n == 3 && r->seed == 16 && r->flows == 64);
	cr_expect_str_eq(one->name, "one");
	cr_expect(one->action == IMP_DROP && one->direction == IMP_TX);
	cr_expect(one->opcode[0] >> KARST_RC_SEND_ONLY & 1);
	cr_expect(one->opcode[0] >> KARST_RC_WRITE_LAST_IMM & 1);
	cr_expect_not(one->opcode[0] >> KARST_RC_SEND_FIRST & 1);
	cr_expect(one->opcode[KARST_CNP / 64] >> (KARST_CNP % 64) & 1);
	cr_expect(one->nqpn == 2 && one->qpn[0].first == 0x11 && one->qpn[1].last == 0x2f);
	cr_expect(one->npsn == 1 && one->psn[0].first == 0xfffff0 && one->psn[0].last == 15);
	cr_expect(one->source_ports == 0x2222 && two->source_ports == 0xffff);
	cr_expect_eq(one->transmission, 1u | 1u << 2);
	cr_expect(one->from_ms == 5 && one->until_ms == 10);
	cr_expect(one->choice == IMP_NTH && one->nnth == 2 && one->nth[0] == 3 && one->nth[1] == 9);
	cr_expect(one->per == 1 && one->count == 7);
	cr_expect(two->action == IMP_CORRUPT && two->part == IMP_PART_HEADER && two->offset == 4);
	cr_expect(two->mask == 0x80 && two->repair == 1 && two->seed == 99);
	cr_expect(two->choice == IMP_CHANCE && two->chance == UINT64_C(1) << 62);
	cr_expect(two->direction == IMP_BOTH && two->count == UINT64_MAX);
	cr_expect(three->packets == 1 && three->time_us == 20000);
	imp_rules_free(r);
}

Test(rules, defaults)
{
	struct imp_rules *r = read_text("");

	cr_assert_not_null(r, "%s", said);
	cr_expect(r->n == 0 && r->seed == 1 && r->flows == 1024);
	imp_rules_free(r);
}

Test(rules, certain)
{
	struct imp_rules *r = read_text("[rule a]\naction = drop\nchance = 1\n");

	cr_assert_not_null(r, "%s", said);
	cr_expect(r->rule[0].choice == IMP_CHANCE && r->rule[0].chance == 0);
	imp_rules_free(r);
}

#define A "[rule a]\naction = drop\n"

/* Single mistakes: where, and the message. */
static const struct {
	const char *text, *where, *what;
} wrong[] = {
	{"seed = 1\n", ":1:1: ", "a key before the first [SECTION]"},
	{"[impair]\n  seeds = 1\n", ":2:3: ", "unknown key; allowed: seed, flows"},
	{"[impair]\nseed = -1\n", ":2:8: ", "not a number; allowed: 0 to 18446744073709551615"},
	{"[impair]\nseed = 18446744073709551616\n", ":2:8: ", "not a number"},
	{"[impair]\nflows = 0x\n", ":2:9: ", "not a number; allowed: 16 to 65536"},
	{"[impair]\nflows = 15\n", ":2:9: ", "out of range; allowed: 16 to 65536"},
	{"[impair]\nflows =\n", ":2:8: ", "not a number"},
	{"[impair]\nseed = 1\nseed = 2\n", ":3:1: ", "seed is in line 2 already"},
	{"[impair]\n[impair]\n", ":2:1: ", "section [impair] is in line 1 already"},
	{"[rules]\n", ":1:1: ", "unknown section; allowed: [impair], [rule NAME]"},
	{" [impair\n", ":1:2: ", "a section is [NAME] and nothing behind it"},
	{"[impair] x\n", ":1:1: ", "a section is [NAME] and nothing behind it"},
	{"[rule]\n", ":1:6: ", "a rule has a name"},
	{"[rule a/b]\n", ":1:7: ", "a rule has a name"},
	{"[rule 12345678901234567890123456789012]\n", ":1:7: ", "1 to 31 letters"},
	{A "[rule a]\n", ":3:7: ", "there is a rule a in line 1 already"},
	{"[rule a]\n", ":1:1: ", "action is missing"},
	{"[rule a]\naction = lose\n", ":2:10: ", "no such word; allowed: drop, duplicate, "},
	{A "direction = in\n", ":3:13: ", "no such word; allowed: rx, tx or both"},
	{A "opcode = RC_SEND_ONLY, RC_SING\n", ":3:24: ", "no opcode is called RC_SING"},
	{A "opcode = ,RC_ACK\n", ":3:10: ", "an empty entry"},
	{A "qpn = 1,2-1\n", ":3:9: ", "not a range; allowed: QP numbers"},
	{A "qpn = 0x1000000\n", ":3:7: ", "not a range"},
	{A "psn = 1-\n", ":3:7: ", "not a range"},
	{A "psn = 1-2-3\n", ":3:7: ", "not a range"},
	{A "nth = 0\n", ":3:7: ", "not a number from 1"},
	{A "nth = 4, 4\n", ":3:10: ", "4 is there twice"},
	{A "transmission = second\n", ":3:16: ", "no transmission is called second"},
	{A "transmission = 31\n", ":3:16: ", "allowed: first, again, and numbers"},
	{A "chance = 0\n", ":3:10: ", "not such a number; allowed: a probability"},
	{A "chance = 1.01\n", ":3:10: ", "not such a number"},
	{A "chance = 1e-3\n", ":3:10: ", "not such a number"},
	{A "chance = .\n", ":3:10: ", "not such a number"},
	{A "chance = 0.0000000000001\n", ":3:10: ", "more than 12 digits"},
	{A "every = 0\n", ":3:9: ", "out of range; allowed: 1 to "},
	{A "nth = 1\nevery = 2\n", ":1:1: ", "one of nth, every and chance"},
	{A "per = qpn\n", ":1:1: ", "per = qpn is for nth and every"},
	{A "from_ms = 5\nuntil_ms = 5\n", ":1:1: ", "until_ms must be after from_ms"},
	{A "copies = 2\n", ":1:1: ", "copies, in line 3, is of no use with action = drop"},
	{"[rule a]\naction = delay\n", ":1:1: ", "action = delay needs delay_us"},
	{"[rule a]\naction = rate\n", ":1:1: ", "action = rate needs rate_kbps"},
	{"[rule a]\naction = hold\n", ":1:1: ", "action = hold needs packets or time_us"},
	{"[rule a]\naction = corrupt\nmask = 256\n", ":3:8: ", "out of range; allowed: 1 to 255"},
	{"[impair]\nwhat is this\n", ":2:1: ", "neither [SECTION] nor KEY = VALUE nor # COMMENT"},
};

Test(rules, mistakes)
{
	char at[128];
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_expect_null(read_text(wrong[i].text), "%s", wrong[i].text);
		snprintf(at, sizeof(at), "%s%s", path, wrong[i].where);
		cr_expect_eq(mistakes, 1u, "%s: %s", wrong[i].text, said);
		cr_expect_eq(strncmp(said, at, strlen(at)), 0, "%s: %s", wrong[i].text, said);
		cr_expect_not_null(strstr(said, wrong[i].what), "%s: %s", wrong[i].text, said);
	}
}

/* All of them are reported at once. */
Test(rules, several_mistakes)
{
	cr_expect_null(read_text("[impair]\nseed = x\nflow = 2\n[rule a]\nevery = 0\n[rule b]\n"
				 "action = drop\n[foo]\nbar = 1\n"));
	cr_expect_eq(mistakes, 5u, "%s", said);
	cr_expect_not_null(strstr(said, ":2:8: "));
	cr_expect_not_null(strstr(said, ":3:1: "));
	cr_expect_not_null(strstr(said, ":4:1: [rule a] action is missing"));
	cr_expect_not_null(strstr(said, ":5:9: "));
	cr_expect_not_null(strstr(said, ":8:1: "));
}

/* Of very many the first are reported, and the number of the others: whoever reads what the program
 * prints may be slow. */
Test(rules, many_mistakes)
{
	static char text[8192] = "[impair]\n";
	unsigned int i;

	for (i = 0; i < 20; i++)
		strcat(text, "flow = 1\n");
	cr_expect_null(read_text(text));
	cr_expect(mistakes == 20 && strstr(said, "more") == NULL, "%s", said);
	strcat(text, "flow = 1\n");
	cr_expect_null(read_text(text));
	cr_expect(mistakes == 21 && strstr(said, ": 1 more mistake\n") != NULL, "%s", said);
	for (i = 21; i < 301; i++)
		strcat(text, "flow = 1\n");
	cr_expect_null(read_text(text));
	cr_expect_eq(mistakes, 21u, "%u lines", mistakes);
	cr_expect(strstr(said, ":21:1: ") != NULL && strstr(said, ":22:1: ") == NULL, "%s", said);
	cr_expect_not_null(strstr(said, ": 281 more mistakes\n"));
}

Test(rules, files_that_are_none)
{
	char fifo[80];

	cr_expect_null(read_bytes("[impair]\nseed\0 = 1\n", 20));
	cr_expect_not_null(strstr(said, ":2:5: a NUL byte"), "%s", said);
	said[0] = '\0';
	cr_expect_null(imp_rules_read("/nowhere/at/all", hear, NULL));
	cr_expect_not_null(strstr(said, "/nowhere/at/all:1:1: No such file"), "%s", said);
	said[0] = '\0';
	cr_expect_null(imp_rules_read("/tmp", hear, NULL));
	cr_expect_not_null(strstr(said, "not a regular file"), "%s", said);
	/* opening it would wait for a writer */
	snprintf(fifo, sizeof(fifo), "%s.fifo", path);
	cr_assert_eq(mkfifo(fifo, 0600), 0);
	said[0] = '\0';
	cr_expect_null(imp_rules_read(fifo, hear, NULL));
	cr_expect_not_null(strstr(said, "not a regular file"), "%s", said);
	unlink(fifo);
}

Test(rules, too_much)
{
	static char text[1 << 20];
	unsigned int i;
	size_t n = 0;

	for (i = 0; i < IMP_RULES_MAX + 1; i++)
		n += (size_t)sprintf(text + n, "[rule r%u]\naction = drop\n", i);
	cr_expect_null(read_text(text));
	cr_expect_eq(mistakes, 1u, "%s", said);
	cr_expect_not_null(strstr(said, ":513:7: more rules than there may be"), "%s", said);

	n = (size_t)sprintf(text, A "nth = 1");
	for (i = 2; i < IMP_LIST_MAX + 2; i++)
		n += (size_t)sprintf(text + n, ",%u", i);
	cr_expect_null(read_text(text));
	cr_expect_not_null(strstr(said, "more than 64 entries"), "%s", said);

	memset(text, ' ', 5000);
	strcpy(text + 5000, "\n");
	cr_expect_null(read_text(text));
	cr_expect_not_null(strstr(said, ":1:4097: a line has up to 4096"), "%s", said);
}

/* Any bytes are read without harm, and either refused with a message or accepted. */
Test(rules, noise)
{
	static const char *const bits[] = {"[rule ", "]", "a", "\n", "action", " = ", "drop", "nth",
		"0x", "-", ",", "1", "999999999999", "[impair]", "opcode", "*", "#", "\t", "\"",
		"%n", "chance", ".", "corrupt", "qpn", "\x80", "transmission"};
	unsigned int seed = 4711, i, k;
	char text[512];

	for (i = 0; i < 3000; i++) {
		struct imp_rules *r;

		text[0] = '\0';
		for (k = 0; k < 40; k++)
			strcat(text, bits[rand_r(&seed) % (sizeof(bits) / sizeof(bits[0]))]);
		r = read_text(text);
		cr_assert((r == NULL) == (mistakes > 0), "%s: %s", text, said);
		imp_rules_free(r);
	}
}
