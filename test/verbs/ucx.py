#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""UCX over karst: ucx.py KARSTD KARST-RUN (TAP).

ucx_info finds the device.  ucx_perftest runs its tests over RC (whose connections UCX sets up with
datagrams) and over UD, without any other transport to fall back to.  It does not check content;
mpi.py does, over the same transports.
"""
import re
import shlex
import sys

from verbs_bed import FEW_RECEIVES, HANG_S, pair, run_all

# rc_v: rc_verbs, with ud_verbs to set up its connections.
TRANSPORTS = {'rc': 'rc_v', 'ud': 'ud_verbs'}
MSGS = 30
CASES = [
    'tag_lat', 'tag_bw -s 4000', 'tag_bw -s 300000', 'tag_sync_lat', 'tag_lat -s 100 -U',
    'tag_lat -s 16,5000,8 -D iov,iov', 'ucp_put_lat', 'ucp_put_bw -s 100000', 'ucp_get -s 70000',
    'stream_lat', 'stream_bw -s 5000', 'ucp_am_lat -H 16', 'ucp_am_bw -s 100000', 'ucp_add',
    'ucp_fadd', 'ucp_swap', 'ucp_cswap', 'tag_lat -E sleep', 'tag_bw -s 8192 -M multi',
]
# Tests of UCT, UCX's lower layer.
LOWER = ['am_lat -D short', 'am_bw -D bcopy -s 2000', 'am_bw -D zcopy -s 2000']
LOWER_RC = ['put_lat -D short', 'put_bw -D zcopy -s 100000', 'get -D zcopy -s 100000',
            'get -D bcopy -s 4000', 'fadd', 'cswap']
USUAL = CASES[:2] # with UCX's default number of receives
WIRE = ('tag_lat', 'tag_bw -s 300000', 'ucp_get -s 70000', 'stream_bw -s 5000', 'ucp_fadd',
        'tag_lat -E sleep')


def info(tap, engine):
    program = engine.program(['ucx_info', '-d'])
    problems = program.wait()
    text = program.text()
    for name in ('rc_verbs', 'ud_verbs'):
        if not re.search(rf'Transport: {name}\n# +Device: karst0:1\n', text):
            problems.append(f'no {name} on karst0:1')
    tap.point('ucx_info -d', problems + (program.shown() if problems else []))


def perftest(tap, engines, transport, text, words=()):
    env = {'UCX_TLS': TRANSPORTS[transport], 'UCX_NET_DEVICES': 'karst0:1',
           'UCX_WARN_UNUSED_ENV_VARS': 'n',
           'UCX_UD_TIMEOUT': f'{HANG_S}s'} # the default of 30 s is too short on a busy machine
    if text not in USUAL:
        env.update(FEW_RECEIVES)
    # the program must print a line of figures at the end
    tap.point(f'{len(engines)} engine(s), {transport}: {text}',
              pair(engines, ['ucx_perftest', *words, '-n', str(MSGS), '-w', '5', '-t',
                             *shlex.split(text)],
                   env=env, frames=MSGS, says_client=[rf'(?m)^Final: +{MSGS} ']))


def one(tap, _, engine):
    info(tap, engine)
    for transport, name in (('rc', 'rc_verbs'), ('ud', 'ud_verbs')):
        for text in CASES:
            perftest(tap, [engine], transport, text)
        for text in LOWER + (LOWER_RC if transport == 'rc' else []):
            perftest(tap, [engine], transport, text, ['-d', 'karst0:1', '-x', name])


def two(tap, _, engines):
    for transport in TRANSPORTS:
        for text in WIRE:
            perftest(tap, engines, transport, text)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one, two))
