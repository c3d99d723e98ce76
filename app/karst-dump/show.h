/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Print one frame, with all headers decoded, to a sink. */
#ifndef KARST_DUMP_SHOW_H
#define KARST_DUMP_SHOW_H

#include "judge.h"
#include "sink.h"

void show_frame(struct sink *s, const struct capture_frame *f, const struct judge *j);

/** Format the syndrome of an AETH (Q7 to Q9): "ACK", "NAK(PSN_SEQ)", "RNR_NAK(timer=14)". */
void show_syndrome(uint8_t syndrome, char *text, size_t room);

#endif /* KARST_DUMP_SHOW_H */
