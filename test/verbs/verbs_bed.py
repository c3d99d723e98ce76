# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What the tests of this folder share: engines, and unmodified programs over them.

A case runs a server and a client, each under karst-run.  It passes if both end by themselves with
status 0 and print what they must, if frames went through the engine, and if the engine holds no
object of them afterwards.
"""
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'usertools'))
sys.dont_write_bytecode = True
import karst_observe  # noqa: E402
from bed import Clock, Daemon, HANG_S, HEADER, Tap, exit_status, free_port  # noqa: E402,F401
from karst_listen import listens  # noqa: E402

# Long: the test's engine is alive, but may have to wait for a processor before it answers.
karst_observe.TIMEOUT_S = HANG_S
# A program that prints this has failed even if it ends with status 0.
NEVER = r'invalid data|[Cc]ompletion with error|[Ff]ailed|[Cc]ouldn.t'
LOG_LINES = 15
OUTPUT_LINES = 40
ATTEMPTS, STILL_S = 3, 0.1
# perftest gives up if it had to wait for a processor between reading one clock and another.
MEASURED_IN_VAIN = r'Correlation coefficient r\^2'
# With -R perftest connects twice, and does not wait until its server listens the second time.  If
# the server has to wait for a processor, the connection is refused; with UD the service is unknown.
CONNECTED_TOO_EARLY = r'RDMA_CM_EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)\.'


def quick_clock(words):
    """@return environment variables for a command.  perftest's programs get a clock with which they
    measure the rate of the processor's counter faster (quick_clock.c), unless they limit rates by
    it."""
    path = os.environ.get('KARST_QUICK_CLOCK')
    if path is None or not re.match(r'ib_(send|write|read|atomic)_(bw|lat)$', str(words[0])) or \
            any('rate_limit' in str(word) for word in words):
        return {}
    return {'LD_PRELOAD': path}


class Program:
    """A running program.  Its output goes to a file, so that it never has to wait for a reader."""

    def __init__(self, words, env=None, cwd=None):
        self.words = [str(word) for word in words]
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=self.output, env=env, cwd=cwd,
                                        start_new_session=True)

    @property
    def status(self):
        return self.process.poll()

    def text(self):
        return os.pread(self.output.fileno(), 1 << 20, 0).decode(errors='replace')

    def wait(self, limit_s=HANG_S):
        """@return problems: the program does not end."""
        if self.process.poll() is None:
            # a pidfd, because subprocess.wait() with a timeout polls 20 times a second
            fd = os.pidfd_open(self.process.pid)
            ended = select.select([fd], [], [], limit_s)[0]
            os.close(fd)
            if not ended:
                self.kill()
                return [f'does not end within {limit_s} s']
        self.process.wait()
        return []

    def kill(self):
        """Kills the program and all processes that it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def until(self, condition, what, limit_s=HANG_S):
        """Waits until @condition() is true.  @return problems."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if condition():
                return []
            if self.status is not None:
                return [f'ended with {self.status} instead of {what}']
            time.sleep(0.01)
        return [f'not {what} within {limit_s} s']

    def shown(self):
        """@return the program's last output, for the report of a failure."""
        lines = self.text().splitlines()
        cut = [f'... {len(lines) - OUTPUT_LINES} lines ...'] if len(lines) > OUTPUT_LINES else []
        return ['$ ' + ' '.join(self.words), *cut, *lines[-OUTPUT_LINES:],
                f'status {self.status}']


class Engine:
    """A karstd, and programs that see its devices; all in the network namespace @netns if given."""

    def __init__(self, tools, folder, conf, name='verbs', netns=None):
        self.tools = tools
        self.before = ['ip', 'netns', 'exec', netns] if netns else []
        self.daemon = Daemon(tools.karstd, folder, conf, name=name, netns=netns)
        self.idle = None # what the engine holds while no program is attached

    def start(self):
        problems = self.daemon.start()
        if not problems:
            self.idle = self.holds()
        return problems

    def stop(self):
        return self.daemon.stop()

    def command(self, words, mode='ns'):
        return [*self.before, self.tools.karst_run, '--socket', self.daemon.socket, '--mode', mode,
                *words]

    def program(self, words, mode='ns', env=None, cwd=None):
        return Program(self.command(words, mode),
                       dict(os.environ, **quick_clock(words), **(env or {})), cwd)

    def link_up(self):
        """Waits until all ports have a link, which takes a moment between two engines.
        @return problems"""
        end = time.monotonic() + HANG_S
        while any(port['link'] != 'up' for port in self.ask(lambda e: e.rows('ports')).values()):
            if time.monotonic() > end:
                return ['a port is down']
            time.sleep(0.05)
        return []

    def ask(self, question):
        """@return the result of @question, which is called with the engine's telemetry."""
        engine = karst_observe.find_engines(prefix=self.daemon.name)[0]
        try:
            return question(engine)
        finally:
            engine.telemetry.close()

    def counters(self, *names):
        """@return the sums of these counters over all lcores."""
        rows = self.ask(lambda e: e.rows('counters')).values()
        return [sum(row[name] for row in rows) for name in names]

    def counter(self, name):
        return self.counters(name)[0]

    def holds(self):
        """@return what the engine holds for programs, according to telemetry."""
        engine, memory, cm, clients = self.ask(lambda e: (
            e.ask('engine'), e.ask('memory'), e.ask('cm'), next(e.pages('clients'))))
        found = {name: engine[name] for name in ('qps', 'cqs', 'srqs')}
        found.update({name: memory[name] for name in (
            'regions', 'windows', 'pds', 'owners', 'ring_bytes', 'shared_bytes', 'migrated_bytes',
            'copied_bytes')})
        found['listeners'] = cm['listeners']
        found['clients'] = len(clients)
        return found

    def left(self):
        """Waits until the engine holds nothing of programs that have ended; it takes a moment until
        it has handled the hangup.  @return problems"""
        end = time.monotonic() + HANG_S
        while True:
            found = self.holds()
            if found == self.idle:
                return []
            if time.monotonic() > end:
                return [f'left in the engine: {name} {found[name]}, was {self.idle[name]}'
                        for name in found if found[name] != self.idle[name]]
            time.sleep(0.02)

    def shown(self):
        return [f'karstd {self.daemon.name}:', *self.daemon.text().splitlines()[-LOG_LINES:]]


class VethPair:
    """Two network namespaces and a link between them.  The arguments are the addresses of the two
    ends; the interface is kv0 in both.  For programs that take addresses only from interfaces."""

    def __init__(self, *addresses):
        self.netns = [f'karst-verbs-{os.getpid()}-{end}' for end in range(2)]
        self.addresses = addresses

    @staticmethod
    def ip(words):
        subprocess.run(['ip', *words.split()], check=True)

    def make(self):
        for netns in self.netns:
            self.ip(f'netns add {netns}')
        here, there = self.netns
        self.ip(f'-n {here} link add kv0 type veth peer name kv0 netns {there}')
        for netns, address in zip(self.netns, self.addresses):
            # no other address than the given one
            self.ip(f'-n {netns} link set kv0 addrgenmode none')
            self.ip(f'-n {netns} addr add {address} dev kv0' + (' nodad' if ':' in address else ''))
            self.ip(f'-n {netns} link set lo up')
            self.ip(f'-n {netns} link set kv0 up')

    def __enter__(self):
        try:
            self.make()
        except subprocess.CalledProcessError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for netns in self.netns:
            subprocess.run(['ip', 'netns', 'del', netns], check=False)


class Tools:
    """The paths of the programs of this build."""

    def __init__(self, karstd, karst_run):
        self.karstd = os.path.abspath(karstd)
        self.karst_run = os.path.abspath(karst_run)


def says(program, texts):
    """@return problems: a regular expression of @texts does not match what @program has printed."""
    text = program.text()
    return [f'"{wanted}" is not said' for wanted in texts if not re.search(wanted, text)]


def once_more(still_s, said, why=None):
    """Prints why a case is run again; @said: its problems."""
    if why is None:
        why = 'perftest has measured in vain' if re.search(MEASURED_IN_VAIN, said) else \
            f'the machine stood still for {still_s:.1f} s'
    print(f'# {why}; once more, after:')
    for line in said.splitlines():
        print(f'# {line}')
    sys.stdout.flush()


def pair(engines, words, *args, **kwargs):
    """Calls pair_once(), again if it has failed and the machine has kept programs waiting so long
    that their own timeouts may have expired (that of the pingpong programs is half a second), or if
    perftest reports that its measurement failed."""
    clock = Clock()
    for left in reversed(range(ATTEMPTS)):
        clock.stood_still(0)
        problems = pair_once(engines, words, *args, **kwargs)
        still_s = clock.stood_still(STILL_S)
        said = '\n'.join(map(str, problems))
        if not problems or not left or not (still_s or re.search(MEASURED_IN_VAIN, said)):
            break
        once_more(still_s, said)
    clock.stop()
    return problems


def pair_once(engines, words, client_words=(), peer=('localhost',), port='-p', says_both=(),
         says_client=(), env=None, mode='ns', frames=1, moved=0, refused=None, limit_s=HANG_S):
    """Runs @words as a server over the first of @engines, and as a client, with @client_words and
    @peer added, over the last.

    @port: the option for the TCP port, or two options, the server's and the client's.  @frames,
    @moved: the minimum number of frames and bytes that must arrive in all.  @refused: both must fail
    instead, and the client print this.  @return problems.
    """
    tcp = str(free_port())
    listen, connect = (port, port) if isinstance(port, str) else port
    before = [e.counters('rx_packets', 'rx_bytes') for e in engines]
    server = engines[0].program([*words, listen, tcp], mode, env)
    client = None
    problems = server.until(lambda: listens(int(tcp), server.process.pid), 'listening', limit_s) \
        if refused is None else []
    if not problems and refused is None:
        client = engines[-1].program([*words, connect, tcp, *client_words, *peer], mode, env)
        problems += [f'client: {p}' for p in client.wait(limit_s)]
        if client.status != 0:
            problems.append(f'client: exit status {client.status}')
            server.kill()
    problems += [f'server: {p}' for p in server.wait(limit_s)]
    if refused is not None:
        problems += [] if server.status not in (0, None) else ['it was not refused']
        problems += says(server, [refused])
    elif server.status != 0:
        problems.append(f'server: exit status {server.status}')
    if not problems and refused is None:
        problems = [f'client: {p}' for p in says(client, [*says_both, *says_client])]
        problems += [f'server: {p}' for p in says(server, says_both)]
        problems += [f'it said: {found.group(0)}' for found in (
            re.search(NEVER, program.text()) for program in (server, client)) if found]
        after = [e.counters('rx_packets', 'rx_bytes') for e in engines]
        for least, what, *got in zip((frames, moved), ('frames', 'bytes'),
                                     *([n - m for n, m in zip(*both)] for both in zip(after, before))):
            if sum(got) < least:
                problems.append(f'{got} {what} went through the engines, {least} is the least')
    for engine in engines:
        problems += engine.left()
    if problems:
        for program in (server, client):
            problems += program.shown() if program else []
        for engine in engines:
            problems += engine.shown()
    return problems


# UCX posts 4095 receives.  Each of its processes registers, fills and frees 32 MiB for them, which
# is half of the time of a short program.  512 receives are enough for its window.
FEW_RECEIVES = {f'UCX_{kind}_VERBS_RX_QUEUE_LEN': '512' for kind in ('RC', 'UD')}

# One engine with a loopback port.
LOOPBACK = '[engine]\nidle = sleep\n[port p]\ndevice = loopback\n'


def memif(folder, end):
    """@return the configuration of one of two engines that are joined by shared memory; @end 0 must
    be started first.  Frames do not wake an lcore there, so it polls: with the shortest sleeps that
    would take a tenth of a processor."""
    return (f'[engine]\nidle = sleep\nsleep_max_us = 2000\n[port p]\nmtu = 4180\n'
            f'addresses = 10.77.0.{end + 1}/24, 2001:db8::{end + 1}/64\n'
            f'device = net_memif0,role={("server", "client")[end]},id=3,bsize=8192,'
            f'socket-abstract=no,socket={folder}/memif.sock\n')


def run_all(argv, doc, one, two=None, more=0):
    """The main program of a test: calls @one(tap, tools, engine, *rest) with an engine that has a
    loopback port, then @two(tap, tools, engines, *rest) with two engines that are joined.  @more:
    number of arguments after KARSTD and KARST-RUN, which are passed as @rest."""
    if len(argv) != 3 + more:
        print(doc, file=sys.stderr)
        return 2
    tap, tools = Tap(), Tools(*argv[1:3])
    with tempfile.TemporaryDirectory(prefix='karst-verbs-') as folder:
        engines = [Engine(tools, folder, LOOPBACK, name='loop')]
        with_engines(tap, 'one engine', engines,
                     lambda: one(tap, tools, engines[0], *argv[3:]))
        if two is not None:
            pair_of = [Engine(tools, folder, memif(folder, end), name=f'wire{end}')
                       for end in (0, 1)]
            with_engines(tap, 'two engines', pair_of,
                         lambda: two(tap, tools, pair_of, *argv[3:]))
    return tap.finish()


def with_engines(tap, name, engines, cases):
    problems = []
    for engine in engines:
        problems = problems or engine.start()
    for engine in engines:
        problems = problems or engine.link_up()
    tap.point(f'{name}: start', problems)
    try:
        if not problems:
            cases()
    finally:
        problems = [p for engine in engines if engine.daemon.process for p in engine.stop()]
    tap.point(f'{name}: end', problems)
