/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Declarations that the files of commands share. */
#ifndef FWD_COMMANDS_H
#define FWD_COMMANDS_H

#include <cmdline.h>
#include <cmdline_parse.h>
#include <cmdline_parse_string.h>

#include "fwd.h"

/** Context of all commands.  rte_cmdline does not pass any context to a command. */
struct fwd_commands {
	struct fwd *fwd;
	struct cmdline *cl;
	bool failed, quit;
	unsigned int depth; /* number of nested files that are being executed */
};

extern struct fwd_commands fwd_commands;

/* The words of a command as typed.  rte_cmdline has checked those of fixed commands. */
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

/** Prints why a command has failed, and marks it as failed. */
void fwd_command_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/**
 * Whether lcores are stopped; prints a message if not.  Settings must not change while lcores run.
 * They take effect at the next start.
 */
bool fwd_command_is_stopped(void);

/* commands_set.c */
extern cmdline_parse_inst_t fwd_set_fwd, fwd_set_idle, fwd_set_number, fwd_set_reflect,
	fwd_set_peer, fwd_set_rate, fwd_set_template, fwd_add_template, fwd_set_pcap;

#endif /* FWD_COMMANDS_H */
