/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Read commands from a file, or at a prompt with completion and history.  For the main lcore. */
#ifndef FWD_PROMPT_H
#define FWD_PROMPT_H

#include "fwd.h"

/** Makes @f the context of commands.  @return 0; -1: no memory. */
int fwd_commands_init(struct fwd *f);
void fwd_commands_free(void);
/** Executes one line.  @return 0; -1: it was wrong, or failed, after a message. */
int fwd_command(const char *line);
/** Completes @line for librte_cmdline's rdline; *@rc: result of cmdline_complete(). */
void fwd_command_complete(const char *line, int *state, char *to, unsigned int room, int *rc);
/** Whether a command has asked to quit. */
bool fwd_commands_quit(void);

/**
 * Executes the commands of a file; each error is reported with its line.  @return 0; -1 if any
 * command failed.
 */
int fwd_prompt_file(const char *path);

struct fwd_prompt;

/** Begins to read commands from standard input.  @return NULL: no memory. */
struct fwd_prompt *fwd_prompt_new(void);
/**
 * Handles the input that is available; waits up to @ms for it.  @return false: there is no more
 * input.
 */
bool fwd_prompt_poll(struct fwd_prompt *p, int ms);
/** Ends reading, and restores the settings of the terminal. */
void fwd_prompt_free(struct fwd_prompt *p);

/** Set by a signal; ends all waiting. */
extern volatile int fwd_interrupted;

#endif /* FWD_PROMPT_H */
