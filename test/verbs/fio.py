#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""fio's rdma engine over karst: fio.py KARSTD KARST-RUN (TAP).

A server and a client of fio connect by librdmacm: WRITE and READ, which the server does not notice,
and SEND, whose content the server verifies.  Both must count the blocks that were asked for.

fio sets no RNR retries, so a SEND case has at most as many blocks as the server has posted receives
when the client begins.  fio 3.33 refuses random access before it opens a device.
"""
import json
import os
import re
import sys
import tempfile

from rdmacm import addresses, listens
from verbs_bed import HANG_S, free_port, run_all

RECEIVES = 512


class Case:
    """@client, @server: arguments; there are @blocks of @size bytes."""

    def __init__(self, name, blocks, size, client, server, verified=False, fails=None):
        self.name, self.blocks, self.size = name, blocks, size
        self.client, self.server = client.split(), server.split()
        self.verified = verified # the server counts the blocks, too
        self.fails = fails # if the server must fail: a pattern of its output


SEND = '--verb=send --iodepth=4 --do_verify=0 --verify=crc32c'
CASES = [
    Case('WRITE, 4 KiB', 2000, 4096, '--verb=write --iodepth=16', '--iodepth=16'),
    Case('WRITE, 128 KiB', 200, 131072, '--verb=write --iodepth=16', '--iodepth=16'),
    Case('WRITE, 1 MiB, one at a time', 20, 1 << 20, '--verb=write --iodepth=1', '--iodepth=1'),
    Case('READ, 4 KiB', 2000, 4096, '--verb=read --iodepth=16', '--iodepth=16'),
    Case('READ, 128 KiB', 200, 131072, '--verb=read --iodepth=16', '--iodepth=16'),
    Case('WRITE, 4 KiB, 32 at once', 4096, 4096, '--verb=write --iodepth=128 --iodepth_batch=32 '
         '--iodepth_batch_complete_min=32', '--iodepth=128'),
    Case('SEND, 4 KiB, verified', 400, 4096, SEND, f'--iodepth={RECEIVES} --verify=crc32c', True),
    Case('SEND, 64 KiB, verified', 300, 65536, SEND, f'--iodepth={RECEIVES} --verify=crc32c',
         True),
    Case('SEND, of which the server expects another checksum', 100, 4096, SEND,
         f'--iodepth={RECEIVES} --verify=md5', True, fails='verify failed'),
]


def counted(path, what, case):
    """@return problems with the results that fio has written to @path."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    job = json.loads(text[text.index('{'):])['jobs'][0]
    found = (job[what]['total_ios'], job[what]['io_bytes'])
    wanted = (case.blocks, case.blocks * case.size)
    problems = [] if found == wanted else [f'{what}: {found} blocks and bytes, not {wanted}']
    return problems + ([f'error {job["error"]}'] if job['error'] and not case.fails else [])


def run(case, engines, ip, folder):
    """@return problems"""
    files = [os.path.join(folder, name) for name in ('server', 'client')]
    common = ['fio', '--ioengine=rdma', f'--port={free_port()}', '--output-format=json',
              '--verify_state_save=0', # else fio writes a file to the current folder
              f'--bs={case.size}', f'--size={case.blocks * case.size}']
    before = sum(e.counter('rx_bytes') for e in engines)
    server = engines[0].program([*common, '--name=server', '--rw=read', f'--output={files[0]}',
                                 *case.server])
    problems = listens(engines[0], server)
    client = engines[-1].program([*common, '--name=client', '--rw=write', f'--hostname={ip}',
                                  f'--output={files[1]}', *case.client])
    problems += [f'client: {p}' for p in client.wait(HANG_S)]
    if problems or client.status != 0:
        problems.append(f'client: exit status {client.status}')
        server.kill()
    problems += [f'server: {p}' for p in server.wait(HANG_S)]
    if not problems:
        if (server.status == 0) != (case.fails is None) or \
                case.fails and not re.search(case.fails, server.text()):
            problems.append(f'server: exit status {server.status}')
        problems += [f'client: {p}' for p in counted(files[1], 'write', case)]
        if case.verified:
            problems += [f'server: {p}' for p in counted(files[0], 'read', case)]
        got = sum(e.counter('rx_bytes') for e in engines) - before
        if got < case.blocks * case.size:
            problems.append(f'{got} bytes went through the engines')
    for engine in engines:
        problems += engine.left()
    if problems:
        problems += [*server.shown(), *client.shown()]
        for engine in engines:
            problems += engine.shown()
    return problems


def cases(tap, engines):
    ip = addresses(engines[0])[0]
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix='karst-fio-') as folder:
            tap.point(f'{len(engines)} engine(s): {case.name}', run(case, engines, ip, folder))


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, lambda tap, _, engine: cases(tap, [engine]),
                     lambda tap, _, engines: cases(tap, engines)))
