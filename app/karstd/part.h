/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The privileged part: a separate process that keeps the few capabilities that are needed while the
 * daemon runs, so that the engine's process has none.  part.c is the engine's side, part_main.c the
 * other side.
 *
 * It is started before anything is read from a program or a peer, gets the parts of the
 * configuration that it needs, and does two things:
 *
 *   - It opens the list of mappings of a program, and the files of its shared mappings, with the
 *     rights of that program's user (karst_files.h).  The request does not name the program: it
 *     contains the socket through which the program has connected, and the kernel reports which
 *     process is at its other end.
 *   - When the daemon has ended, however that happened, it removes the XDP programs that the daemon
 *     has attached to interfaces.
 *
 * It ends when the engine's process does.  If it ends first, the engine continues without it, and
 * copies memory instead of opening files.
 */
#ifndef KARSTD_PART_H
#define KARSTD_PART_H

#include <stdatomic.h>

#include "conf.h"
#include "karst_files.h"

/**
 * The option with which the daemon executes itself as the privileged part, and the descriptor of
 * the channel to the engine in that process.
 */
#define KD_PART_OPTION  "--privileged-part"
#define KD_PART_CHANNEL 3

struct kd_part {
	int fd; /* -1: there is no privileged part */
	_Atomic bool gone;
};

/** A program's connection to the privileged part; initially zero. */
struct kd_part_line {
	int fd;
	enum { KD_PART_NOT_YET, KD_PART_OPEN, KD_PART_REFUSED } state;
};

/**
 * Starts the privileged part, if this process has a capability for it to keep; otherwise there is
 * none. 0 or -errno, logged.
 */
int kd_part_start(struct kd_part *p, const struct kd_conf *c);

/**
 * All ports are open: passes the programs that are attached to interfaces by now. 0 or -errno,
 * logged.
 */
int kd_part_ready(struct kd_part *p, const struct kd_conf *c);

/** The privileged part has ended, as the daemon sees at p->fd: logs that once. */
void kd_part_lost(struct kd_part *p);

/**
 * Asks for a descriptor.  @socket: through which the program has connected; @memfd: the program's
 * memory, -1: none.  Only one thread at a time may use a line.  @return -1: the file does not exist
 * or may not be opened
 */
int kd_part_ask(struct kd_part *p, struct kd_part_line *line, int socket, int memfd,
	const struct karst_files_ask *ask);

void kd_part_hang_up(struct kd_part_line *line);

/** Ends the privileged part, and waits until it has removed the XDP programs.  Ports are closed. */
void kd_part_stop(struct kd_part *p);

/** Main function of the privileged part, with @fd to the engine.  @return exit status (opts.h) */
int kd_part_main(int fd);

#endif /* KARSTD_PART_H */
