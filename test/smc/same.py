# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""SMC-R behaves as the kernel's TCP does (same/same.c)."""
import subprocess

from smcbed import CONF, bed


# cases whose connections stay on TCP
ON_TCP = ('a socket that connects to itself', 'a connection that a program without the library brings',
          'a program that is executed with a filter of system calls',
          'a program that is executed with a filter that kills for masks of signals',
          'a filter of system calls before a socket has connected')
# cases that differ when the service copies to TCP, because the answer to a write comes later (doc/smc.rst)
LATER = ('close, and writing', 'close, writing, and SO_ERROR')


def said(suite, command=(), case=()):
    """@return the output of smc-same by case, and its exit status"""
    p = subprocess.Popen([*command, suite.same, '127.0.0.1', *case], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    suite.programs.append(p)
    text, ended = bed.rest(p)
    return dict(line.split(':', 1) for line in text.splitlines() if ':' in line), p.returncode if ended else None


def relayed(suite, netns, wanted):
    """Programs of another network namespace, for which there are no ports, so that their connections
    are relayed."""
    one, problems = suite.daemon('same-relay', CONF + 'direct = no\n')
    suite.tap.point('a daemon, which copies to TCP', problems)
    command = ['ip', 'netns', 'exec', netns, suite.run, '--smc', '--short', 'smc', '--socket', one.socket]
    found, status = said(suite, command)
    for case, what in wanted.items():
        if case not in LATER:
            suite.tap.point(f'relayed: {case}: as with TCP', [] if found.get(case) == what
                            else [f'TCP:{what}, SMC-R:{found.get(case)}', status])
    opened, connected = (suite.count(one, name) for name in ('opened', 'connected'))
    suite.tap.point('they were relayed', [] if opened != 0 and connected == 0 else [opened, connected])
    suite.tap.point('it ends', one.stop())


def same(suite, netns):
    wanted, status = said(suite)
    suite.tap.point('what TCP does', [] if status == 0 and wanted else [wanted, status])
    ended = [f'{case}:{what}' for case, what in wanted.items() if 'status' in what]
    suite.tap.point('every case of it comes to its end', ended)
    for name, conf, mode in ('same', '', 'directly'), ('same-rdma', 'direct = no\n', 'by RDMA'):
        one, problems = suite.daemon(name, CONF + conf)
        suite.tap.point(f'a daemon, whose connections go {mode}', problems)
        found, status = said(suite, [suite.run, '--smc', '--require', '--socket', one.socket])
        for case in ON_TCP:
            found.update(said(suite, [suite.run, '--smc', '--socket', one.socket], [case])[0])
        for case, what in wanted.items():
            suite.tap.point(f'{case}: as with TCP', [] if found.get(case) == what
                            else [f'TCP:{what}, SMC-R:{found.get(case)}', status])
        suite.tap.point('it ends', one.stop())
    relayed(suite, netns, wanted)
