/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Commands: from a file, and at a prompt with completion and history.  For the main lcore. */
#ifndef FWD_PROMPT_H
#define FWD_PROMPT_H

#include "fwd.h"

/** Commands are about @f from now on.  @return 0; -1: no memory. */
int fwd_commands_init(struct fwd *f);
void fwd_commands_free(void);
/** Carries out one line.  @return 0; -1: it was wrong, or failed, after a message. */
int fwd_command(const char *line);
/** What completes @line: the @i-th word that fits, or false. */
void fwd_command_complete(const char *line, int *state, char *to, unsigned int room, int *rc);
/** Whether a command has asked for the end. */
bool fwd_commands_quit(void);

/** Carries out a file; each mistake is said with its line.  @return 0; -1 if any command failed. */
int fwd_prompt_file(const char *path);

struct fwd_prompt;

/** Reads commands from standard input.  NULL: no memory. */
struct fwd_prompt *fwd_prompt_new(void);
/** Takes what there is to read, waiting up to @ms.  @return false: there will be no more. */
bool fwd_prompt_poll(struct fwd_prompt *p, int ms);
/** The terminal is as it was before. */
void fwd_prompt_free(struct fwd_prompt *p);

/** Set by a signal: whoever waits stops to. */
extern volatile int fwd_interrupted;

#endif /* FWD_PROMPT_H */
