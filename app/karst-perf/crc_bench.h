/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* karst-perf crc: the CRC kernels against ISA-L, rte_net_crc and zlib. */
#ifndef CRC_BENCH_H
#define CRC_BENCH_H

/**
 * Runs the comparison; @argv[0] is the command's name ("crc").
 * @return the exit status: 0, 1 when it could not run, 2 for a wrong command line.
 */
int karst_perf_crc_main(int argc, char **argv);

#endif /* CRC_BENCH_H */
