# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""perftest between karst and Linux; queue pairs are connected over TCP, or with -R by rdma_cm."""
from interop_bed import Case

ITERS = 40


def perf(program, args='', size=None, **more):
    size_arg = '' if size is None else f'-s {size}'
    line = f'ib_{program} -d {{dev}} -x {{gid}} -p {{port}} -F -n {ITERS} {size_arg} {args}'
    return Case(f'{program} {args}'.strip(), line, line + ' {tcp}', frames=ITERS,
                at_client=[rf'(?m)^ *{size or 8} +{ITERS} '], **more)


def managed(program, args='', size=None, **more):
    size_arg = '' if size is None else f'-s {size}'
    line = f'ib_{program} -R -p {{port}} -F -n {ITERS} {size_arg} {args}'
    # It connects twice.  If the server does not listen yet the second time, like the slow one of a
    # guest, the connection is refused, and neither end recovers; this also happens with two Linux
    # peers.  Hence karst is the server.
    return Case(f'{program} -R {args}'.strip(), line, line + ' {ip}', listen='cm', frames=ITERS,
                at_client=[rf'(?m)^ *{size or 8} +{ITERS} '], rules='C1 C2', attempts=12,
                roles=('server',), **more)


ONCE = {'kinds': ('wire',), 'sparse': True}
CASES = [
    perf('send_bw', size=9001, sparse=True, rules='R1 R8 Q2'),
    perf('send_bw', '-c UC', size=3001, **ONCE, rules='U1'),
    perf('send_bw', '-c UD', size=2000, **ONCE, rules='U1'),
    perf('write_bw', size=65536, sparse=True, rules='R1 Q2 Q3'),
    perf('write_bw', '-c UC', size=3001, **ONCE, rules='U1'),
    perf('read_bw', size=65536, sparse=True, rules='Q5 R4 R6'),
    perf('atomic_bw', '-A CMP_AND_SWAP', **ONCE, rules='R7'),
    perf('atomic_bw', '-A FETCH_AND_ADD', sparse=True, rules='R7'),
    perf('send_lat', size=33, sparse=True, rules='R1 Q3'),
    perf('write_lat', size=33, rules='R1 Q3', **ONCE),
    perf('read_lat', size=33, rules='R1 Q5', **ONCE),
    perf('atomic_lat', rules='R7', **ONCE),
    managed('send_bw', size=3001, sparse=True),
    managed('send_bw', '-c UD', size=1000, **ONCE),
    managed('read_bw', size=5000, **ONCE),
]
