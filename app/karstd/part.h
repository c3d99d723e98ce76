/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The privileged part: a process beside the engine's, which keeps the few capabilities that are
 * needed while the daemon runs, so that the engine's process has none.  part.c is the engine's
 * side, part_main.c the other.
 *
 * It is started before anything is read from a program or a peer, is told of the configuration what
 * it needs, and does two things:
 *
 *	opens the list of mappings of a program, and the files of its shared mappings, with the
 *	rights of that program's user (karst_files.h).  The request does not name the program: it
 *	carries the socket by which the program has connected, and the kernel tells which process is
 *	at its other end;
 *
 *	takes away, when the daemon has ended, in whatever way, the XDP programs that the daemon has
 *	attached to interfaces.
 *
 * It ends when the engine's process does.  The engine goes on without it: what it would open is
 * copied.
 */
#ifndef KARSTD_PART_H
#define KARSTD_PART_H

#include <stdatomic.h>

#include "conf.h"
#include "karst_files.h"

/** The option with which the daemon executes itself again as the privileged part, and the
 *  descriptor that this then has of the engine. */
#define KD_PART_OPTION  "--privileged-part"
#define KD_PART_CHANNEL 3

struct kd_part {
	int fd; /* -1: there is none */
	_Atomic bool gone;
};

/** One program's line to the privileged part; zero at first. */
struct kd_part_line {
	int fd;
	enum { KD_PART_NOT_YET, KD_PART_OPEN, KD_PART_REFUSED } state;
};

/** Starts it, if this process has a capability for it to keep; else there is none.  0 or -errno,
 *  said. */
int kd_part_start(struct kd_part *p, const struct kd_conf *c);

/** All ports are open: passes what is attached to interfaces by now.  0 or -errno, logged. */
int kd_part_ready(struct kd_part *p, const struct kd_conf *c);

/** It has ended, as the daemon sees at p->fd: says so, once. */
void kd_part_lost(struct kd_part *p);

/**
 * Asks for a descriptor.  @socket: by which the program has connected; @memfd: of its memory, -1:
 * none.  Of one line one thread at a time.  @return -1: it is not there or may not be opened
 */
int kd_part_ask(struct kd_part *p, struct kd_part_line *line, int socket, int memfd,
	const struct karst_files_ask *ask);

void kd_part_hang_up(struct kd_part_line *line);

/** Ends it, and waits until it has done what it does then.  Ports are closed. */
void kd_part_stop(struct kd_part *p);

/** The privileged part itself, with @fd to the engine.  @return exit status (opts.h) */
int kd_part_main(int fd);

#endif /* KARSTD_PART_H */
