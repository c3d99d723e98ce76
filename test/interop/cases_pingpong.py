# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""rdma-core's ping-pong programs between karst and Linux."""
from interop_bed import Case, KINDS

WELL = [r'(?m)^\d+ iters in ']


def pingpong(name, program, args, **more):
    line = f'{program} -d {{dev}} -g {{gid}} -p {{port}} {args}'
    return Case(name, line, line + ' {tcp}', both=WELL, **more)


CASES = [
    pingpong('RC ping-pong', 'ibv_rc_pingpong', '-m 1024 -s 4097 -n 20 -c', frames=100,
             kinds=KINDS, rules='W1 R1'),
]
