#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Runs the programs of doc/examples against a karstd on a loopback port.

  examples.py KARSTD FOLDER   (TAP; FOLDER has the built examples)
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Daemon, HANG_S, Tap, rest  # noqa: E402


class Example:
    """One program, running."""

    def __init__(self, folder, name, env, *args):
        self.name = f'{name} {" ".join(args)}'
        self.process = subprocess.Popen(
            [os.path.join(folder, 'karst-example-' + name), *args], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def tcp_port(self):
        """The server's, which it prints first."""
        match = re.match(r'listening on TCP port (\d+)', self.process.stdout.readline())
        return match.group(1) if match else None

    def finish(self, says):
        """@return problems: it failed, or did not say @says."""
        text, ended = rest(self.process)
        if not ended:
            return [f'{self.name}: hangs', *text.splitlines()]
        if self.process.returncode == 0 and re.search(says, text):
            return []
        return [f'{self.name}: exit status {self.process.returncode}', *text.splitlines()]


def pair(folder, env, name, args, server_says, client_says):
    """A server and a client; their problems."""
    server = Example(folder, name, env, '--tcp', '0', *args)
    port = server.tcp_port()
    if port is None:
        return server.finish('a port')
    client = Example(folder, name, env, '--tcp', port, *args, 'localhost')
    problems = client.finish(client_says)
    if problems:
        server.process.terminate()
    return problems + server.finish(server_says)


def cases(folder, env):
    for args in (['--count', '300'], ['--count', '50', '--size', '100000'],
                 ['--count', '20', '--size', '1']):
        yield ('pingpong ' + ' '.join(args),
               lambda a=args: pair(folder, env, 'pingpong', a, 'all of them right',
                                   r'all of them right; \d+\.\d+ us'))
    for args in (['--count', '2000'], ['--count', '300', '--size', '1']):
        yield ('kvget ' + ' '.join(args),
               lambda a=args: pair(folder, env, 'kvget', a, r'served \d+ keys',
                                   'all of them right'))
    yield ('lock', lambda: Example(folder, 'lock', env, '--workers', '4', '--count', '50').finish(
        'counted to 200, which is right'))
    for name in ('pingpong', 'kvget', 'lock'):
        yield (f'{name} --help', lambda n=name: Example(folder, n, env, '--help').finish(
            r'usage: (?s:.*)--connect SOCKET'))
        yield (f'{name} without an engine', lambda n=name: fails(
            folder, dict(env, KARST_SOCKET='/nonexistent/karst.sock'), n))


def fails(folder, env, name):
    """Problems unless it says that there is no engine, and fails."""
    done = subprocess.run([os.path.join(folder, 'karst-example-' + name), '--tcp', '0'], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=HANG_S)
    if done.returncode == 1 and 'is karstd running?' in done.stdout:
        return []
    return [f'exit status {done.returncode}', *done.stdout.splitlines()]


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(argv[1], folder, args=['--loopback'], name='examples')
        env = dict(os.environ, KARST_SOCKET=daemon.socket)
        for name, check in [('karstd starts', daemon.start), *cases(argv[2], env),
                            ('karstd stops', daemon.stop)]:
            tap.point(name, check())
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
