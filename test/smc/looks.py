# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A program that connects polls for the service's answer before it sleeps, if polling is configured
and another processor is available for the service meanwhile."""
import os
import re
import subprocess

from smcbed import CONF, RateServer, bed


def looked(suite, daemon, processors):
    """@return (how often a client has polled, problems)"""
    server = RateServer(suite, daemon)
    c = subprocess.Popen([suite.run, '--smc', '--socket', daemon.socket, suite.rate, 'connect', '127.0.0.1',
                          server.port, '1', '1'], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, env=dict(os.environ, **suite.looked),
                         preexec_fn=lambda: os.sched_setaffinity(0, processors))
    suite.programs.append(c)
    said, ended = bed.rest(c)
    server.ends()
    n = re.findall('^looked (.*)$', said, re.MULTILINE)
    return int(n[0]) if n else 0, [] if ended and c.returncode == 0 and n else [said]


def looks(suite):
    mine = os.sched_getaffinity(0)
    for poll_us in 50, 0:
        one, problems = suite.daemon(f'looks{poll_us}', CONF + f'poll_us = {poll_us}\n')
        suite.tap.point(f'a daemon with poll_us = {poll_us}', problems)
        for processors in mine, {min(mine)}:
            n, problems = looked(suite, one, processors)
            if (n != 0) != (poll_us != 0 and len(processors) > 1):
                problems.append(f'it has looked {n} times')
            suite.tap.point(f'who connects looks for the answer, or does not: poll_us = {poll_us}, '
                            + ('one processor' if len(processors) == 1 else 'all processors'), problems)
        suite.tap.point('it ends', one.stop())
