/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the files of commands share. */
#ifndef FWD_COMMANDS_H
#define FWD_COMMANDS_H

#include <cmdline.h>
#include <cmdline_parse.h>
#include <cmdline_parse_string.h>

#include "fwd.h"

/** rte_cmdline hands nothing of ours to a command, so what commands are about is kept here. */
struct fwd_commands {
	struct fwd *fwd;
	struct cmdline *cl;
	bool failed, quit;
	unsigned int
		depth; /* files that are being carried out, each by a command of the one before */
};

extern struct fwd_commands fwd_commands;

/* All words of a command as they were typed; those of fixed commands are known to be right. */
struct words {
	cmdline_fixed_string_t w[6];
	cmdline_multi_string_t rest;
};

#define WORD(name, index, text)                          \
	static cmdline_parse_token_string_t tok_##name = \
		TOKEN_STRING_INITIALIZER(struct words, w[index], text)
#define REST(name)                                       \
	static cmdline_parse_token_string_t tok_##name = \
		TOKEN_STRING_INITIALIZER(struct words, rest, TOKEN_STRING_MULTI)
#define COMMAND(name, function, help, ...) \
	cmdline_parse_inst_t name = {.f = function, .help_str = help, .tokens = {__VA_ARGS__, NULL}}
#define TOK(name) (void *)&tok_##name

/** Says what is wrong with a command, which has failed. */
void fwd_command_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/** Settings hold from the next start on; while lcores run they must not change, which this says. */
bool fwd_command_is_stopped(void);

/* commands_set.c */
extern cmdline_parse_inst_t fwd_set_fwd, fwd_set_idle, fwd_set_number, fwd_set_reflect,
	fwd_set_peer, fwd_set_rate, fwd_set_template, fwd_add_template, fwd_set_pcap;

#endif /* FWD_COMMANDS_H */
