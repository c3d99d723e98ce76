#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The observation tools with engines that answer wrongly, late or no more, and with full disks.

  harm.py USERTOOLS KARSTD KARST-PERF KARST-DUMP   (TAP)

Between a tool and a daemon is a socket of this test, which can change each answer.  Whatever an
engine answers, a tool ends with a sentence and status 1, and never with a traceback.
"""
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Tap  # noqa: E402
from observe_bed import CONF, HANG_S, Bed, Background, Exporter, queue_pairs, telemetry  # noqa: E402

SMC = '[smc]\nenabled = yes\n'
WRONG = (b'', b'5', b'[]', b'{}', b'{"x":null}', b'{"x":5}', b'{"x":["a"]}', b'{"x":{"a":1}}', b'{"x":{"1":5}}',
         b'{"x":{"1":{}}}', b'{"x":{"next":"a"}}', b'{"x":{"1":{"name":"\xff"}}}', b'[' * 10000)
CLIENTS = 200 # connections to a telemetry socket
NAME = '\x1b[31m<i>&"'


class Between(threading.Thread):
    """A telemetry socket in @folder that passes on what the @engine at the other one answers,
    changed by change(command, answer), which may wait; None: the connection is closed."""

    def __init__(self, folder, engine):
        super().__init__(daemon=True)
        os.mkdir(folder)
        self.engine = engine
        self.path = os.path.join(folder, 'dpdk_telemetry.v2')
        self.asked = []
        self.change = lambda command, answer: answer
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen()
        self.start()

    def run(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        command = ''
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as engine:
            try:
                engine.connect(self.engine)
                while True:
                    answer = engine.recv(1 << 17)
                    self.asked.append(command)
                    answer = self.change(command, answer) if answer else None
                    if not answer:
                        return
                    client.send(answer)
                    command = client.recv(4096).decode()
                    if not command:
                        return
                    engine.send(command.encode())
            except OSError:
                pass # one of them has gone


def calls(bed):
    return {'karst-top': ['--once', '-d', '0.05'], 'karst-exporter': ['--once', '--qps'], 'karst-smc': [],
            'karst-capture': ['--qp', str(queue_pairs(bed)[0]['qpn']), '--count', '1', '-w',
                              os.path.join(bed.folder, 'out.pcapng')]}


def tool(bed, at, name, *words):
    return bed.run(os.path.join(bed.usertools, name), '--socket', at, *words)


def judged(run, status=1):
    """@return problems: it has not ended with a sentence and that status"""
    lines = run.stderr.splitlines()
    return [] if run.returncode == status and len(lines) <= 1 and 'Traceback' not in run.stderr else [
        f'exit status {run.returncode}: {run.stderr[-600:]}']


def wrong_answers(tap, bed, between):
    for name, words in calls(bed).items():
        between.change = lambda command, answer: answer
        between.asked.clear()
        problems = judged(tool(bed, between.path, name, *words), 0) if name != 'karst-capture' else \
            [] if tool(bed, between.path, name, *words).returncode == 0 else ['not even right answers']
        for number, asked in enumerate(dict.fromkeys(between.asked)):
            for wrong in WRONG[number % 6::6]: # each kind for some commands
                between.change = lambda command, answer: wrong if command == asked else answer
                run = tool(bed, between.path, name, *words)
                if 'Traceback' in run.stderr or run.returncode not in (0, 1) or \
                        run.returncode == 1 and not run.stderr.startswith(f'{name}: '):
                    problems.append(f'{asked or "greeting"}: {wrong[:20]}: status {run.returncode}: '
                                    f'{run.stderr[-200:]}')
        between.change = lambda command, answer: answer
        tap.point(f'wrong answers: {name}', problems)


def endless(tap, bed, between):
    between.change = lambda command, answer: b'{"x":{"next":1}}' if '/ports' in command else answer
    tap.point('a list whose pages do not end', judged(tool(bed, between.path, 'karst-top', '--once')))
    between.change = lambda command, answer: answer


def obeyed(tap, bed, between):
    """What a terminal would obey, in the name of a program, by an engine that has not cleaned it."""
    def change(command, answer):
        found = json.loads(answer)
        if command.startswith('/karst/clients'):
            for row in found['/karst/clients'].values():
                row['program'] = NAME + '\0\n'
        return json.dumps(found).encode()

    between.change = change
    problems = []
    for name, words in (('karst-top', ['--once', '-d', '0.05']), ('karst-exporter', ['--once'])):
        run = tool(bed, between.path, name, *words)
        problems += judged(run, 0)
        if '\x1b' in run.stdout or '\0' in run.stdout or '?[31m<i>&' not in run.stdout:
            problems.append(f'{name}: {[line for line in run.stdout.splitlines() if "31m" in line]!r}')
    between.change = lambda command, answer: answer
    tap.point('control characters in the name of a program', problems)


def named(tap, bed):
    """A program that has such a name."""
    path = os.path.join(bed.folder, NAME)
    os.symlink(os.path.abspath(bed.perf), path)
    problems = []
    with subprocess.Popen([path, '--connect', bed.socket, '--server', '--tcp-port', '0'],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        server.stdout.readline()
        exporter = Exporter(bed)
        top, text = bed.tool('karst-top', '--once', '-d', '0.05'), bed.tool('karst-exporter', '--once')
        _, kind, answer = exporter.get(exporter.url.replace('metrics', '') + f'api/engines/{bed.name}')
        exporter.end()
        server.kill()
    shown = [row['program'] for row in json.loads(answer)['clients']['rows']]
    if '\x1b' in top.stdout + text.stdout + ''.join(shown) or '[31m<i>&\\"' not in text.stdout or \
            '[31m<i>&"' not in top.stdout or not any('[31m<i>&"' in name for name in shown) or \
            not kind.startswith('application/json'):
        problems.append(f'{top.stdout} {shown}')
    tap.point('a program whose name has control characters and markup', problems)


def late(tap, bed, between):
    """An answer that comes after its time is not taken for the answer to another command."""
    def change(command, answer):
        if command.startswith('/karst/ports'):
            done.wait(HANG_S)
        return answer

    done = threading.Event()
    between.change = change
    problems = judged(tool(bed, between.path, 'karst-top', '--once'))
    done.set()
    sys.path.insert(0, bed.usertools)
    import karst_observe
    sys.path.pop(0)
    done.clear()
    limit, karst_observe.TIMEOUT_S = karst_observe.TIMEOUT_S, 0.5
    engine = karst_observe.find_engines(between.path)[0]
    try:
        engine.rows('ports')
        problems.append('there is an answer that was held back')
    except karst_observe.Failure:
        karst_observe.TIMEOUT_S = HANG_S
    between.change = lambda command, answer: answer
    done.set()
    try:
        if engine.ask('engine')['name'] != bed.name:
            problems.append('another answer')
    except (karst_observe.Failure, KeyError) as e:
        problems.append(f'after a late answer: {e!r}')
    karst_observe.TIMEOUT_S = limit
    engine.telemetry.close()
    tap.point('an answer that comes late', problems)


def page(tap, bed, between):
    """What the page is told of wrong answers."""
    with subprocess.Popen([os.path.join(bed.usertools, 'karst-exporter'), '--socket', between.path,
                           '--listen', 'localhost:0'], stderr=subprocess.PIPE, text=True) as process:
        url = process.stderr.readline().split()[-1].replace('metrics', '')
        problems = []

        def get(path):
            try:
                return Exporter.get(None, url + path)
            except OSError as e:
                return 0, '', repr(e) # there is no answer

        between.change = lambda command, answer: b'{"x":{"0":5}}' if '/ports' in command else answer
        status, _, _ = get(f'api/engines/{bed.name}')
        if status != 503:
            problems.append(f'status {status}')
        status, _, text = get('metrics')
        if status != 200 or 'karst_up{' not in text or '} 0\n' not in text:
            problems.append(f'metrics: status {status}: {text[:200]}')
        between.change = lambda command, answer: answer
        time.sleep(1) # the page's figures and those of /metrics are kept for less
        status, _, _ = get(f'api/engines/{bed.name}')
        if status != 200:
            problems.append(f'then status {status}')
        process.terminate()
        said = process.stderr.read()
    tap.point('the page with wrong answers', problems + ([said] if 'Traceback' in said else []))


def full(tap, bed):
    """Files, and standard output, on a disk that is full."""
    problems = []
    for name, words, out in (
            ('karst-capture', [*calls(bed)['karst-capture'][:-1], '/dev/full'], None),
            ('karst-capture', [*calls(bed)['karst-capture'][:-1], '-'], '/dev/full'),
            ('karst-top', ['--once', '-d', '0.05'], '/dev/full'), ('karst-smc', [], '/dev/full'),
            ('karst-exporter', ['--once'], '/dev/full')):
        with open(out or os.devnull, 'wb') as f:
            run = subprocess.run([os.path.join(bed.usertools, name), '--file-prefix', bed.name, *words],
                                 stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.PIPE, text=True,
                                 timeout=HANG_S, check=False)
        if judged(run) or 'No space left' not in run.stderr or 'None' in run.stderr:
            problems.append(f'{name} {words[-1:]}: {run.returncode}: {run.stderr}')
    tap.point('a full disk', problems)
    # nobody reads
    problems = []
    for name, words in (('karst-smc', []), ('karst-exporter', ['--once']), ('karst-top', ['--once', '-d', '0.05'])):
        reader, writer = os.pipe()
        os.close(reader)
        run = subprocess.run([os.path.join(bed.usertools, name), '--file-prefix', bed.name, *words],
                             stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, text=True,
                             timeout=HANG_S, check=False)
        os.close(writer)
        if run.stderr or run.returncode not in (0, 1):
            problems.append(f'{name}: {run.returncode}: {run.stderr}')
    tap.point('a reader that has gone', problems)


def small_disk(tap, bed):
    """A capture and a textfile on a disk that becomes full, and has room again."""
    name = 'a textfile on a disk that is full for a time'
    disk = os.path.join(bed.folder, 'disk')
    os.mkdir(disk)
    if os.geteuid() != 0 or subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64k', 'none', disk],
                                           check=False).returncode != 0:
        tap.skip(name, 'only root can mount a small disk')
        return
    path, filler = os.path.join(disk, 'karst.prom'), os.path.join(disk, 'filler')
    try:
        with open(filler, 'wb', buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass
        with subprocess.Popen([os.path.join(bed.usertools, 'karst-exporter'), '--file-prefix', bed.name,
                               '--textfile', path, '--interval', '0.2'], stderr=subprocess.PIPE, text=True) as p:
            said = p.stderr.readline()
            os.unlink(filler)
            for _ in range(HANG_S * 10):
                if os.path.exists(path) or p.poll() is not None:
                    break
                time.sleep(0.1)
            problems = [] if os.path.exists(path) and 'No space left' in said and path in said else [
                f'{p.poll()}: {said}']
            p.terminate()
            problems += [line for line in p.stderr if 'Traceback' in line]
        problems += [left for left in os.listdir(disk) if left != 'karst.prom']
    finally:
        subprocess.run(['umount', disk], check=True)
    tap.point(name, problems)


NONSENSE = [
    ('karst-exporter', ['--listen', '\xfc' * 70 + ':1'], 1), ('karst-exporter', ['--listen', 'a..b:1'], 1),
    ('karst-exporter', ['--listen', '\xb2:\xb2'], 2), ('karst-exporter', ['--listen', '192.0.2.77:1'], 1),
    ('karst-exporter', ['--textfile', '/no/such/file'], 1),
    ('karst-exporter', ['--interval', 'nan', '--textfile', 'x'], 2),
    ('karst-exporter', ['--once', '--engine', '\udcff'], 1), ('karst-exporter', ['--once', '--socket', 'x' * 200], 1),
    ('karst-top', ['-d', 'nan'], 2), ('karst-top', ['-d', '1e9'], 2), ('karst-top', ['-n', '-1'], 2),
    ('karst-top', ['--once', '--socket', '/dev/null'], 1), ('karst-top', ['--once', '--file-prefix', '../..'], 1),
    ('karst-top', ['--once', '--file-prefix', '\udcff*'], 1), ('karst-smc', ['--socket', '/'], 1),
    ('karst-smc', ['--socket', '\udcff'], 1), ('karst-smc', ['--nonsense'], 2),
    ('karst-capture', ['--qp', '7', '-w', '/'], 1), ('karst-capture', ['--qp', '0x1000000', '-w', 'x'], 2),
    ('karst-capture', ['--qp', '7', '-w', ''], 1),
    ('karst-capture', ['--qp', '7', '-w', '/dev/null', '--engine', '='], 1),
]


def nonsense(tap, bed):
    problems = []
    for name, words, status in NONSENSE:
        own = [] if '--socket' in words or '--file-prefix' in words else ['--file-prefix', bed.name]
        run = bed.run(os.path.join(bed.usertools, name), *own, *words)
        if run.returncode != status or 'Traceback' in run.stderr or f'{name}: ' not in run.stderr:
            problems.append(f'{name} {words}: {run.returncode}: {run.stderr[-300:]}')
    tap.point('nonsense as arguments', problems)


def terminals(tap, bed):
    """karst-top on terminals that are tiny, and of a kind that is not known."""
    problems = []
    for kind, rows, columns, status in (('xterm', 1, 1, 0), ('xterm', 2, 3, 0), ('nonsense', 24, 80, 1)):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
        command = [os.path.join(bed.usertools, 'karst-top'), '--file-prefix', bed.name, '-n', '2', '-d', '0.1']
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, 'TERM': kind}) as p:
            os.close(theirs)
            drain = threading.Thread(target=read_all, args=(ours,), daemon=True)
            drain.start()
            said = p.stderr.read()
        drain.join()
        if p.returncode != status or 'Traceback' in said:
            problems.append(f'{kind}, {rows} by {columns}: {p.returncode}: {said}')
    tap.point('karst-top on strange terminals', problems)


def two_services(tap, bed, engine):
    """karst-smc does not choose one of several daemons for the user."""
    base = os.path.join(bed.folder, 'two')
    os.makedirs(os.path.join(base, 'dpdk'))
    paths = [Between(os.path.join(base, 'dpdk', name), engine).path for name in ('one', 'two')]
    problems = []
    for words, status, said in (
            ([], 1, ['several daemons; say which by --engine, --socket or --file-prefix: ', *paths]),
            (['--engine', bed.name], 1, ['several daemons; ', f'{bed.name} ({paths[0]})', paths[1]]),
            (['--engine', 'nobody'], 1, ['no SMC service of an engine named nobody is found']),
            (['--file-prefix', 'two'], 0, []), (['--file-prefix', 'two', '--engine', bed.name], 0, []),
            (['--socket', paths[0]], 0, [])):
        run = subprocess.run([os.path.join(bed.usertools, 'karst-smc'), *words], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=HANG_S,
                             env={**os.environ, 'XDG_RUNTIME_DIR': base}, check=False)
        if judged(run, status) or any(text not in run.stderr for text in said):
            problems.append(f'{words}: {run.returncode}: {run.stderr}')
    tap.point('karst-smc where there are several daemons', problems)


def read_all(fd):
    try:
        while os.read(fd, 65536):
            pass
    except OSError:
        pass # the other end is closed
    os.close(fd)


def crowd(tap, bed, engine):
    """A client that opens many connections and reads none: tools say why they get no answer, and
    get one again when it has gone."""
    socks = []
    for _ in range(CLIENTS):
        socks.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        socks[-1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', HANG_S, 0))
        socks[-1].connect(engine)
        socks[-1].setblocking(False)
    for sock in socks:
        for _ in range(50): # answers that fill the connection
            try:
                sock.send(b'/karst/help,counters')
            except OSError:
                break
    problems = []
    for name, words in (('karst-top', ['--once', '-d', '0.05']), ('karst-smc', [])):
        run = tool(bed, engine, name, *words)
        if run.returncode != 0:
            problems += judged(run)
            if 'too many connections' not in run.stderr and 'timed out' not in run.stderr:
                problems.append(run.stderr)
    problems += [] if bed.daemon.process.poll() is None else ['the daemon has ended']
    for sock in socks:
        sock.close()
    for _ in range(HANG_S):
        run = tool(bed, engine, 'karst-top', '--once', '-d', '0.05')
        if run.returncode == 0:
            break
        time.sleep(1)
    tap.point(f'{CLIENTS} connections that read nothing', problems + judged(run, 0))


def killed(tap, bed):
    """The daemon is killed in the middle."""
    out = os.path.join(bed.folder, 'killed.pcapng')
    started, problems = [], []
    with Background(bed, '--op write --size 4K --qps 1') as wrong:
        problems += wrong
        qpn = str(queue_pairs(bed)[0]['qpn'])
        for name, words in (('karst-capture', ['--qp', qpn, '-w', out]), ('karst-top', ['-b', '-d', '0.1'])):
            started.append((name, subprocess.Popen(
                [os.path.join(bed.usertools, name), '--file-prefix', bed.name, *words],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)))
        exporter = Exporter(bed)
        for _ in range(HANG_S * 10):
            if os.path.exists(out) and os.path.getsize(out) > 100000:
                break
            time.sleep(0.1)
        bed.daemon.process.send_signal(signal.SIGKILL)
        for name, process in started:
            said = process.communicate(timeout=HANG_S)[1]
            problems += judged(subprocess.CompletedProcess(name, process.returncode, '', said))
        status, _, text = exporter.get(exporter.url.replace('metrics', '') + 'metrics')
        if status != 200 or '} 0\n' not in text:
            problems.append(f'exporter: {status} {text[:300]}')
        exporter.end()
    if bed.run(bed.dump, '--quiet', out).returncode not in (0, 1) or os.path.getsize(out) < 100000:
        problems.append(f'a capture of {os.path.getsize(out)} bytes')
    tap.point('the daemon is killed in the middle', problems)


def main(argv):
    if len(argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    sys.dont_write_bytecode = True
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(*argv[1:], folder, conf=CONF + SMC, name='harm')

        def run():
            engine = telemetry(bed, lambda one: one.telemetry.path)
            between = Between(os.path.join(folder, 'between'), engine)
            with Background(bed, '--op write --size 64 --depth 1'):
                wrong_answers(tap, bed, between)
                endless(tap, bed, between)
                obeyed(tap, bed, between)
                late(tap, bed, between)
                page(tap, bed, between)
                full(tap, bed)
                small_disk(tap, bed)
                nonsense(tap, bed)
                terminals(tap, bed)
                two_services(tap, bed, engine)
                crowd(tap, bed, engine)
            named(tap, bed)
            killed(tap, bed)
        bed.points(tap, 'a daemon with a loopback port', run)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
