#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Common code of the tests of TCP programs over SMC-R: daemons with [smc], and programs behind
karst-run --smc, in a network namespace of their own."""
import ctypes
import errno
import glob
import os
import py_compile
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'usertools'))
import bed  # noqa: E402
import karst_observe as observe  # noqa: E402

# the engines exist, and answer when they get a processor
observe.TIMEOUT_S = bed.HANG_S

BYTES = 1000000
CLONE_NEWNET = 0x40000000
CONF = '[smc]\nenabled = yes\n'
SO_PASSRIGHTS = 83 # Linux 6.16; not in Python's socket


def refuses_rights():
    """Whether a socket of this kernel can refuse descriptors.  If not, it behaves as with "older"
    (older.c)."""
    ends = socket.socketpair(socket.AF_UNIX)
    try:
        ends[0].setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
    except OSError as e:
        if e.errno != errno.ENOPROTOOPT:
            raise
        return False
    finally:
        for end in ends:
            end.close()
    return True


class Program:
    """Program WHAT of prog.py, or FILE.WHAT of prog_FILE.py, under karst-run --smc of a daemon, or
    without.  late.c is preloaded if @late is set.  @env: its environment, if given."""

    def __init__(self, suite, daemon, what, address, port, n=0, netns=None, require=False, late=False,
                 env=None):
        command = ['ip', 'netns', 'exec', netns] if netns else []
        if daemon is not None:
            command += [suite.run, '--smc', *(['--require'] if require else []),
                        '--socket', daemon.socket]
        file, _, name = what.rpartition('.')
        script = suite.compiled(f'prog_{file}.py' if file else 'prog.py')
        # -S: these programs need only Python's own modules
        command += [sys.executable, '-S', script, name, address, str(port), str(int(n))]
        self.what = what
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True,
                                        env=env or dict(os.environ, **(suite.late if late else {})))
        suite.programs.append(self.process)

    def line(self):
        return self.process.stdout.readline().strip()

    def ends(self, status=0):
        """@return (the rest of its output, problems)"""
        said, ended = bed.rest(self.process)
        if not ended:
            return '', [f'{self.what} does not end']
        said, code = said.strip(), self.process.returncode
        return said, [] if code == status else [f'{self.what}: exit status {code}: {said}']


def pair(suite, one, server, client, n=0):
    """Starts both programs, the server first."""
    port = bed.free_port()
    s = Program(suite, one, server, '127.0.0.1', port, n)
    s.line()
    return s, Program(suite, one, client, '127.0.0.1', port, n)


def told(suite, name, s, c, wanted):
    """Checks the last output of the program that is attacked."""
    said, problems = s.ends()
    if said not in wanted and c.process.poll() is not None: # the client must not end
        problems += [c.what, *c.ends()]
    c.process.kill()
    suite.tap.point(name, problems + ([] if said in wanted else [said]))


class RateServer:
    """An smc-rate server, which echoes each byte: behind karst-run --smc of a daemon, or
    without."""

    def __init__(self, suite, daemon=None):
        smc = [suite.run, '--smc', '--socket', daemon.socket] if daemon is not None else []
        self.port = str(bed.free_port())
        self.process = subprocess.Popen([*smc, suite.rate, 'serve', '127.0.0.1', self.port],
                                        stdout=subprocess.PIPE, text=True)
        suite.programs.append(self.process)
        self.process.stdout.readline()

    def ends(self):
        self.process.kill()


class Suite:
    def __init__(self, build, folder):
        self.tap = bed.Tap()
        self.folder = folder
        self.karstd = os.path.join(build, 'app/karstd/karstd')
        self.run = os.path.join(build, 'app/karst-run/karst-run')
        self.rate = os.path.join(build, 'test/smc/smc-rate')
        self.handler = os.path.join(build, 'test/smc/smc-handler')
        self.rings = os.path.join(build, 'test/smc/smc-rings')
        self.interrupted = os.path.join(build, 'test/smc/smc-interrupted')
        self.steps = os.path.join(build, 'test/smc/smc-steps')
        self.forks = os.path.join(build, 'test/smc/smc-forks')
        self.calls = os.path.join(build, 'test/smc/smc-calls')
        self.same = os.path.join(build, 'test/smc/smc-same')
        self.late = {'LD_PRELOAD': os.path.join(build, 'test/smc/smc-late.so')}
        self.looked = {'LD_PRELOAD': os.path.join(build, 'test/smc/smc-looked.so')}
        self.clock = os.path.join(build, 'test/smc/smc-clock.so')
        self.counted = os.path.join(build, 'test/smc/smc-counted.so')
        self.older = os.path.join(build, 'test/smc/smc-older.so')
        self.shuts = os.path.join(build, 'test/smc/smc-shuts.so')
        self.programs = []
        self.daemons = []
        self.scripts = os.path.join(folder, 'scripts')
        for path in glob.glob(os.path.join(HERE, 'prog*.py')):
            py_compile.compile(path, os.path.join(self.scripts, os.path.basename(path) + 'c'), doraise=True)

    def compiled(self, script):
        """@return the path of a compiled script: some hundred processes begin with one, and Python
        compiles the script that it is started with each time."""
        return os.path.join(self.scripts, script + 'c')

    def daemon(self, name, conf, netns=None, older=False, shuts=False):
        """@older: simulates a kernel before Linux 6.16 (older.c); @shuts: shuts.c"""
        d = bed.Daemon(self.karstd, self.folder, conf, name=name, netns=netns)
        if older or shuts:
            d.command = ['env', 'LD_PRELOAD=' + (self.older if older else self.shuts), *d.command]
        self.daemons.append(d)
        return d, d.start()

    def ask(self, daemon, command):
        telemetry = observe.Telemetry(observe.sockets(daemon.name)[0])
        try:
            return telemetry.ask(command)
        finally:
            telemetry.close()

    def count(self, daemon, name):
        return self.ask(daemon, '/karst/smc')[name]

    def filled(self, daemon):
        """Waits until a buffer is full of bytes that its program does not read.  @return
        problems"""
        began = time.monotonic()
        while True:
            rows = self.ask(daemon, '/karst/smc_connections').values()
            if any(row['unread'] >= row['buffer'] for row in rows):
                return []
            if time.monotonic() - began > bed.HANG_S:
                return ['no buffer is full']
            time.sleep(0.01)

    def rises(self, daemon, name, above):
        """Waits until counter @name is above @above.  @return problems"""
        began = time.monotonic()
        while self.count(daemon, name) <= above:
            if time.monotonic() - began > bed.HANG_S:
                return [f'{name} stays at {above}']
            time.sleep(0.01)
        return []

    def clean(self):
        for p in self.programs:
            if p.poll() is None:
                p.kill()
            p.wait()
        for d in self.daemons:
            d.kill()


def ip(*words):
    subprocess.run(['ip', *words], check=True)


def echo(suite, server, client, what=('server_echo', 'client_echo'), n=BYTES, at='127.0.0.1',
         far=None):
    """@return problems of a pair of programs; the client runs in namespace @far if given"""
    port = bed.free_port()
    s = Program(suite, server, what[0], at, port)
    if s.line() != 'ready':
        return [f'{what[0]} does not listen: {s.ends()}']
    c = Program(suite, client, what[1], at, port, n, netns=far)
    said, problems = c.ends()
    if said != f'same {n} end':
        problems.append(f'{what[1]}: {said}')
    return problems + s.ends()[1]


def run(build, test):
    """Runs test(suite) in a namespace whose loopback interface is up.  @return exit status"""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        print('1..0 # SKIP no network namespaces')
        return 1
    ip('link', 'set', 'lo', 'up')
    with tempfile.TemporaryDirectory(prefix='karst-smc-') as folder:
        suite = Suite(os.path.abspath(build), folder)
        try:
            test(suite)
        finally:
            suite.clean()
    return suite.tap.finish()
