# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""How connections begin: what exists before the first one, and what comes with it."""
import os
import time

from prog_common import OTHERS
from smcbed import CONF, Program, bed

FILES = 3 # kept in stock: two control pages and rings


def files(pid):
    """@return the number of memory files for connections that a process has open"""
    n = 0
    for fd in os.listdir(f'/proc/{pid}/fd'):
        try:
            n += os.readlink(f'/proc/{pid}/fd/{fd}').startswith('/memfd:karst-smc')
        except FileNotFoundError:
            pass
    return n


def stocked(one):
    """Waits until the stock is full.  @return problems"""
    began = time.monotonic()
    while files(one.process.pid) < FILES:
        if time.monotonic() - began > bed.HANG_S:
            return [f'{files(one.process.pid)} files']
        time.sleep(0.001)
    return []


def talks(suite, one, what, wanted):
    """A program that does something before its first connection, which is SMC-R nevertheless."""
    port = bed.free_port()
    s = Program(suite, one, 'server_echo', '127.0.0.1', port, require=True)
    problems = [line for line in [s.line()] if line != 'ready']
    c = Program(suite, one, what, '127.0.0.1', port, require=True)
    if c.line() != 'connected':
        problems.append('it is not connected')
    rows = suite.ask(one, '/karst/smc_connections').values()
    found = [(row['mode'], row['uid']) for row in rows if row['pid'] == c.process.pid]
    problems += [] if found == [('direct', wanted)] else [str(found)]
    c.process.kill()
    c.process.wait()
    s.process.kill()
    return problems


def tokens(suite, one):
    """A server whose accept() asks for a non-blocking socket will wait for readiness: arriving
    bytes wake it, without any action of the service."""
    for n, text in enumerate(('client', 'server')):
        port = bed.free_port()
        s = Program(suite, one, 'begins.server_token', '127.0.0.1', port, n)
        problems = [line for line in [s.line()] if line != 'ready']
        c = Program(suite, one, 'begins.client_token', '127.0.0.1', port, n)
        said, more = s.ends()
        suite.tap.point(f'the first byte comes with a token, the {text} being the first of the two ends',
                        problems + more + c.ends()[1] + ([] if said == 'token 1 x' else [said]))


def begins(suite):
    one, problems = suite.daemon('begins', '[socket]\nmode = 0666\n' + CONF)
    suite.tap.point('a daemon for programs that begin', problems)
    os.chmod(suite.folder, 0o755)
    s = Program(suite, one, 'server_echo', '127.0.0.1', bed.free_port())
    problems = [line for line in [s.line()] if line != 'ready']
    suite.tap.point('memory for the next connection is there', problems + stocked(one))
    s.process.kill()
    tokens(suite, one)
    suite.tap.point('a program that has closed what it did not open, by system calls of its own',
                    talks(suite, one, 'begins.client_tidy', 0))
    suite.tap.point('a program that has become another user is that user',
                    talks(suite, one, 'begins.client_other_user', OTHERS))
    suite.tap.point('it ends', one.stop())
