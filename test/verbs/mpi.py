#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Open MPI over UCX over karst: mpi.py KARSTD KARST-RUN MPI-CHECK SHMEM-CHECK (TAP).

mpi_check.c checks every value; shmem_check.c does so for OpenSHMEM, which is part of Open MPI.  UCX
is given no other transport, not even between processes of one machine.  OpenSHMEM runs over RC,
which has the atomic operations that it needs.
"""
import os
import re
import sys

from verbs_bed import FEW_RECEIVES, HANG_S, Program, run_all

LIMIT_S = HANG_S
TRANSPORTS = ('rc_v,self', 'ud_verbs,self')
MPIRUN = ['mpirun.openmpi', '--allow-run-as-root', '--oversubscribe', '--mca', 'pml', 'ucx',
          '--mca', 'osc', 'ucx',
          # without ofi: libfabric searches for devices of every kind, even in /proc/kallsyms
          '--mca', 'btl', '^vader,openib,tcp,ofi', '--mca', 'mpi_yield_when_idle', '1']


def run(tap, check, tls, contexts):
    """@contexts: a list of (engine, number of ranks)."""
    engines = [engine for engine, _ in contexts]
    shmem = os.path.basename(check).startswith('shmem')
    name = (f'{"OpenSHMEM: " if shmem else ""}{len(engines)} engine(s), {tls}, '
            f'{" + ".join(str(n) for _, n in contexts)} ranks')
    words = [*MPIRUN, '--mca', 'spml', 'ucx'] if shmem else list(MPIRUN)
    for i, (engine, ranks) in enumerate(contexts):
        words += [':'] if i else []
        words += ['-n', str(ranks), *engine.command([check])]
    before = [engine.counter('rx_bytes') for engine in engines]
    # by default UCX gives up the peer of a datagram after 30 s, even if the machine is busy
    env = {'UCX_TLS': tls, 'UCX_NET_DEVICES': 'karst0:1', 'UCX_WARN_UNUSED_ENV_VARS': 'n',
           'UCX_UD_TIMEOUT': f'{LIMIT_S}s',
           # each rank registers it; the default is 256 MiB
           'SHMEM_SYMMETRIC_SIZE': '32M'}
    if len(engines) > 1 or contexts[0][1] > 2 or shmem: # the other cases use UCX's default
        env.update(FEW_RECEIVES)
    program = Program(words, dict(os.environ, **env))
    problems = program.wait(LIMIT_S)
    if program.status != 0 or not re.search('(ranks|elements): all right', program.text()):
        problems.append('it failed')
    for engine, n in zip(engines, before):
        # mpi_check sends more than 3 MiB from each rank, shmem_check more than 1 MiB
        if engine.counter('rx_bytes') - n < (1 if shmem else 3) << 20:
            problems.append(f'{engine.counter("rx_bytes") - n} bytes went through the engine')
        problems += engine.left()
    if problems:
        problems += program.shown()
        for engine in engines:
            problems += engine.shown()
    tap.point(name, problems)


def one(tap, _, engine, mpi, shmem):
    for tls in TRANSPORTS:
        for ranks in (2, 4):
            run(tap, os.path.abspath(mpi), tls, [(engine, ranks)])
    run(tap, os.path.abspath(shmem), TRANSPORTS[0], [(engine, 2)])


def two(tap, _, engines, mpi, shmem):
    for tls in TRANSPORTS:
        run(tap, os.path.abspath(mpi), tls, [(engine, 2) for engine in engines])
    run(tap, os.path.abspath(shmem), TRANSPORTS[0], [(engine, 2) for engine in engines])


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one, two, more=2))
