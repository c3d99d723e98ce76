# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Shared code of karst-top, karst-exporter and karst-capture: finds engines by their telemetry sockets.

An engine answers on the telemetry socket of its process (DPDK's rte_telemetry: a JSON answer to
each command, at most 16 KiB, long lists in pages).  doc/observability.rst has the commands.
"""
import collections
import contextlib
import glob
import json
import os
import socket
import stat
import struct
import sys

SOCKET = 'dpdk_telemetry.v2'
DAEMONS = '/run/karst'  # created by root, and owned by the user that the daemon runs as
TIMEOUT_S = 10


class Failure(Exception):
    """An error whose text is shown to the user unchanged."""


def printable(value):
    """A string, or strings in a list, without what a terminal would obey; anything else as it is."""
    if isinstance(value, str) and not value.isprintable():
        return ''.join(c if c.isprintable() else '?' for c in value)
    return [printable(one) for one in value] if isinstance(value, list) else value


class Row(dict):
    """An object of an answer, made of its members; what it lacks is a failure of the engine."""

    def __init__(self, members=()):
        super().__init__((key, printable(value)) for key, value in dict(members).items())

    def __missing__(self, key):
        raise Failure(f'an answer of the engine lacks {key}: is it of another version?')


@contextlib.contextmanager
def understood():
    """For code that computes from answers: what is not as expected in them is a failure of the engine."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        raise Failure(f'an answer of the engine is not as expected ({type(e).__name__}: {e}): '
                      'is it of another version?') from e


def words(error):
    """The system's text of an exception, without its number."""
    return getattr(error, 'strerror', None) or str(error)


def complain(program, error, path=None):
    """Print why @program has failed, a Failure or an OSError.  @path: the file, if the error names none.

    What is still in the buffer of standard output would fail again when the program ends, so it is
    dropped.  A reader that has gone is not worth a message."""
    if isinstance(error, OSError) and not error.filename:
        sys.stdout = open(os.devnull, 'w', encoding='utf-8')  # pylint: disable=consider-using-with
        os.dup2(sys.stdout.fileno(), 1)
    if isinstance(error, BrokenPipeError):
        return
    if isinstance(error, OSError):
        error = f"{error.filename or path or 'standard output'}: {words(error)}"
    print(f'{program}: {error}', file=sys.stderr)


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
        self.connect()

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # not by settimeout(): with that, connect() fails at once while others wait to be accepted
        limit = struct.pack('ll', *divmod(int(TIMEOUT_S * 1000000), 1000000))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        try:
            self.sock.connect(self.path)
            self.sock.settimeout(TIMEOUT_S)
            text = self.sock.recv(65536)
            if not text:
                raise Failure(f'{self.path}: closed at once: too many connections?')
            self.hello = json.loads(text, object_hook=Row)
            if not isinstance(self.hello, Row):
                raise ValueError('the greeting is no JSON object')
        except (OSError, ValueError, RecursionError) as e:
            self.sock.close()
            raise Failure(f'{self.path}: {words(e)}') from e
        except Failure:
            self.sock.close()
            raise

    def ask(self, command):
        """The answer; None if the command has none.

        After a failure the connection is closed: an answer that comes late must not be taken for the
        answer to the next command, which has a new connection."""
        if self.sock.fileno() < 0:
            self.connect()
        try:
            self.sock.send(command.encode())
            text = self.sock.recv(65536)
        except OSError as e:
            self.sock.close()
            raise Failure(f'{self.path}: {command}: {words(e)}') from e
        if not text:
            self.sock.close()
            raise Failure(f'{self.path}: the engine has gone')
        try:
            return next(iter(json.loads(text, object_hook=Row).values()))
        except (ValueError, RecursionError, AttributeError, StopIteration) as e:
            raise Failure(f'{self.path}: {command}: the answer is no JSON object of one member: {e}') from e

    def pages(self, command, where=''):
        """All answers to a command that lists things.  @where: what the command is asked of."""
        first = f'/karst/{command}' + (f',{where}' if where else '')
        page, last = self.ask(first), -1
        while page is not None:
            if not isinstance(page, Row):
                raise Failure(f'{self.path}: {first}: the answer is no JSON object')
            following = page.pop('next', None)
            yield page
            if following is None:
                return
            if not isinstance(following, int) or following <= last:
                raise Failure(f'{self.path}: {first}: the page after {last} is {following}')
            last = following
            page = self.ask(f'/karst/{command},{where}:{following}' if where else f'{first},{following}')
        raise Failure(f'{self.path}: {first}: no answer')

    def rows(self, command, where=''):
        """{number: row} of a command that answers row by row."""
        found = {}
        for page in self.pages(command, where):
            for key, row in page.items():
                if not key.isdecimal() or not isinstance(row, Row):
                    raise Failure(f'{self.path}: /karst/{command}: {key} is no row')
                found[int(key)] = row
        return found

    def close(self):
        self.sock.close()


class Engine:
    """An engine in a process that has a telemetry socket."""

    def __init__(self, telemetry, name):
        self.telemetry = telemetry
        self.name = name

    def ask(self, command):
        found = self.telemetry.ask(f'/karst/{command},{self.name}')
        if not isinstance(found, Row):
            raise Failure(f'{self.telemetry.path}: engine {self.name}: no answer to {command}')
        return found

    def pages(self, command):
        """All answers to a command that lists things."""
        return self.telemetry.pages(command, self.name)

    def rows(self, command):
        """{number: row} of a command that answers row by row."""
        return self.telemetry.rows(command, self.name)

    def table(self, command):
        """[row] of a command that answers column by column."""
        found = []
        for page in self.pages(command):
            if not all(isinstance(column, list) for column in page.values()):
                raise Failure(f'{self.telemetry.path}: /karst/{command}: a column is no list')
            found += [Row(zip(page, values)) for values in zip(*page.values())]
        return found

    def capture(self, what, **params):
        """An answer to a command of packet capture."""
        words = ''.join(f',{key}={value}' for key, value in params.items() if value is not None)
        found = self.telemetry.ask(f'/karst/capture/{what},engine={self.name}{words}')
        if not isinstance(found, Row):
            raise Failure(f'{self.telemetry.path}: no answer to capture/{what}')
        if 'error' in found:
            raise Failure(f"{found['error']}{found.get('error_2', '')}")
        return found


def engines_at(path):
    """The engines of the process that owns the socket."""
    telemetry = Telemetry(path)
    try:
        names = telemetry.ask('/karst/engines') or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Failure(f'{path}: /karst/engines: the answer is no list of names')
        return [Engine(telemetry, name) for name in names]
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


def distinguished(engines):
    """[(key, engine)]: the name, or NAME@PID where several processes have an engine of that name."""
    names = collections.Counter(engine.name for engine in engines)
    return [(engine.name if names[engine.name] == 1 else f"{engine.name}@{engine.telemetry.hello['pid']}", engine)
            for engine in engines]


def add_options(parser):
    """Adds the options that select an engine to an argparse parser."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument('--socket', metavar='PATH', help='telemetry socket of the engine')
    where.add_argument('--file-prefix', metavar='NAME', help="the program's --file-prefix (DPDK)")
    parser.add_argument('--engine', metavar='NAME', help='only the engine of that name')
