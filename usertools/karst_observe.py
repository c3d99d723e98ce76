# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Shared code of karst-top, karst-exporter and karst-capture: finds engines by their telemetry sockets.

An engine answers on the telemetry socket of its process (DPDK's rte_telemetry: a JSON answer to
each command, at most 16 KiB, long lists in pages).  doc/observability.rst has the commands.
"""
import glob
import json
import os
import socket
import stat

SOCKET = 'dpdk_telemetry.v2'
DAEMONS = '/run/karst'  # created by root, and owned by the user that the daemon runs as
TIMEOUT_S = 10


class Failure(Exception):
    """An error whose text is shown to the user unchanged."""


def words(error):
    """The system's text of an exception, without its number."""
    return getattr(error, 'strerror', None) or str(error)


def bases():
    """The folders in which DPDK has the run-time folders of programs, named by their --file-prefix."""
    found = ['/var/run/dpdk', DAEMONS + '/dpdk']
    if os.environ.get('XDG_RUNTIME_DIR'):
        found.insert(0, os.path.join(os.environ['XDG_RUNTIME_DIR'], 'dpdk'))
    return found + [f'/tmp/dpdk-{os.geteuid()}/dpdk', '/tmp/dpdk']


def belongs(folder, owners):
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid in owners


def sockets(prefix=None):
    """Paths of telemetry sockets, of all programs or of those with this --file-prefix.

    In /tmp any user can create such a folder, and pretend to be an engine of any name.  So sockets of other
    users are not searched for; --socket names one explicitly."""
    folder = glob.escape(prefix) if prefix else '*'
    found = []
    for base in bases():
        owners = {0, os.geteuid()}
        if base.startswith(DAEMONS + '/') and os.path.isdir(DAEMONS):
            owners.add(os.stat(DAEMONS).st_uid)
        found += [path for path in sorted(glob.glob(os.path.join(base, folder, SOCKET + '*')))
                  if belongs(base, owners) and belongs(os.path.dirname(path), owners)]
    return found


class Telemetry:
    """A connection to the telemetry socket of a process."""

    def __init__(self, path):
        self.path = path
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(TIMEOUT_S)
        try:
            self.sock.connect(path)
            self.hello = json.loads(self.sock.recv(65536))
        except (OSError, ValueError, RecursionError) as e:
            self.sock.close()
            raise Failure(f'{path}: {words(e)}') from e

    def ask(self, command):
        """The answer; None if the command has none."""
        try:
            self.sock.send(command.encode())
            text = self.sock.recv(65536)
        except OSError as e:
            raise Failure(f'{self.path}: {command}: {words(e)}') from e
        if not text:
            raise Failure(f'{self.path}: the engine has gone')
        try:
            return next(iter(json.loads(text).values()))
        except (ValueError, RecursionError, AttributeError, StopIteration) as e:
            raise Failure(f'{self.path}: {command}: the answer is no JSON object of one member: {e}') from e

    def close(self):
        self.sock.close()


class Engine:
    """An engine in a process that has a telemetry socket."""

    def __init__(self, telemetry, name):
        self.telemetry = telemetry
        self.name = name

    def ask(self, command):
        found = self.telemetry.ask(f'/karst/{command},{self.name}')
        if found is None:
            raise Failure(f'{self.telemetry.path}: engine {self.name}: no answer to {command}')
        return found

    def pages(self, command):
        """All answers to a command that lists things."""
        page = self.ask(command)
        while True:
            following = page.pop('next', None)
            yield page
            if following is None:
                return
            page = self.telemetry.ask(f'/karst/{command},{self.name}:{following}')
            if page is None:
                raise Failure(f'{self.telemetry.path}: engine {self.name} has gone')

    def rows(self, command):
        """{number: row} of a command that answers row by row."""
        found = {}
        for page in self.pages(command):
            found.update({int(key): row for key, row in page.items()})
        return found

    def table(self, command):
        """[row] of a command that answers column by column."""
        found = []
        for page in self.pages(command):
            found += [dict(zip(page, values)) for values in zip(*page.values())]
        return found

    def capture(self, what, **params):
        """An answer to a command of packet capture."""
        words = ''.join(f',{key}={value}' for key, value in params.items() if value is not None)
        found = self.telemetry.ask(f'/karst/capture/{what},engine={self.name}{words}')
        if found is None:
            raise Failure(f'{self.telemetry.path}: no answer to capture/{what}')
        if 'error' in found:
            raise Failure(found['error'] + found.get('error_2', ''))
        return found


def engines_at(path):
    """The engines of the process that owns the socket."""
    telemetry = Telemetry(path)
    try:
        return [Engine(telemetry, name) for name in telemetry.ask('/karst/engines') or []]
    except Failure:
        telemetry.close()
        raise


def find_engines(path=None, prefix=None, name=None):
    """Engines at a socket, of a --file-prefix, or all that can be found; by name if given.
    Failure: there is none."""
    found = []
    if path:
        found = engines_at(path)
    else:
        for candidate in sockets(prefix):
            try:
                found += engines_at(candidate)
            except Failure:
                continue  # left behind by a program that has ended, or not accessible
    if name:
        found = [engine for engine in found if engine.name == name]
    if not found:
        where = path or (f'under --file-prefix {prefix}' if prefix else 'in ' + ', '.join(bases()))
        named = f' named {name}' if name else ''
        others = '' if os.geteuid() == 0 or path else '; those of other users only root sees'
        raise Failure(f'no karst engine{named} answers: {where}{others}')
    return found


def add_options(parser):
    """Adds the options that select an engine to an argparse parser."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument('--socket', metavar='PATH', help='telemetry socket of the engine')
    where.add_argument('--file-prefix', metavar='NAME', help="the program's --file-prefix (DPDK)")
    parser.add_argument('--engine', metavar='NAME', help='only the engine of that name')
