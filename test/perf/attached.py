#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst-perf over karstd, every byte verified: attached.py KARST-PERF KARSTD (TAP).

Within one daemon, and across two that are joined by net_memif, by a veth pair seen through
AF_PACKET, and by one seen through AF_XDP.  No figure is judged.  The veth pairs are in network
namespaces of the test's own and need root; without it those points are skipped.
"""
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'usertools'))
import karst_observe  # noqa: E402
from bed import HANG_S, Daemon, HugePages, Tap  # noqa: E402

# it is our own engine, which answers when it gets a processor
karst_observe.TIMEOUT_S = HANG_S

TIMEOUT_S = 180
# Memory is cleared for each operation and size.
WORDS = ['--json', '--verify', '--working-set', '16M']
ENGINE = '[engine]\nidle = sleep\n[port p]\n'
YIELD = ENGINE.replace('sleep', 'yield') # uses a processor as long as it runs: for one pair only
HUGE_TRIES = 5
STARVED_S = 3 # a measurement gives up after waiting 2 s for the first messages of a slice
ORDER = 16 # bytes that a client of TCP sends first
KINDS = ('alloc', 'malloc', 'stack', 'hugetlb')


def traffic(perf, server, client, args, server_args='', baselines=False, by=None):
    """Runs a server and a client. (problems, JSON objects) @by(port): the port that the client uses
    for the server instead."""
    with subprocess.Popen([perf, '--connect', server.socket, '--server', '--tcp-port', '0',
                           *server_args.split()], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as peer:
        line = peer.stdout.readline()
        if not line.strip():
            return ['no server', peer.communicate()[1][-1500:]], []
        port = line.split()[-1]
        words = [perf, '--connect', client.socket, '--peer', 'localhost', '--tcp-port',
                 str(by(int(port))) if by else port, *WORDS,
                 *([] if baselines else ['--no-baselines']), *args.split()]
        try:
            run = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S,
                                 check=False)
        except subprocess.TimeoutExpired:
            peer.kill()
            return [f'not through after {TIMEOUT_S} s: ' + ' '.join(words)], []
        if run.returncode != 0:
            peer.terminate()
        _, complaints = peer.communicate()
    found = [json.loads(text) for text in run.stdout.splitlines() if text.startswith('{')]
    problems = [] if run.returncode == 0 else [
        f'exit status {run.returncode}: {run.stderr[-1500:]} {complaints[-1500:]}',
        ' '.join(words)]
    for one in found:
        if one['op'] == 'tcp':
            continue
        if one['verify_errors'] or one['errors'] or one['messages'] <= 0:
            problems.append(f'{one["op"]}: {one["messages"]} messages, {one["verify_errors"]} '
                            f'wrong, {one["errors"]} errors')
        if one['mode'] != 'attached':
            problems.append(f'mode is {one["mode"]}')
        if abs(sum(one['memory_path'].values()) - 1) > 1e-3:
            problems.append(f'memory_path is {one["memory_path"]}')
    if not found and not problems:
        problems.append('nothing was measured')
    return problems, found


MIXES = [
    ('every operation over RC', '--op all --size 1,64,4097,65536 --iters 400 --mtu MTU'),
    ('every operation over UC', '--op all --transport uc --size 64,9000 --iters 300 --mtu MTU'),
    ('UD', '--op send --transport ud --size 512 --iters 400 --mtu MTU'),
    ('many queue pairs', '--qps 100 --depth 4 --size 3000 --iters 2000 --mtu MTU'),
    ('ping-pong', '--op write,send,read --size 64 --lat --iters 200 --mtu MTU'),
]


def forward(source, sink):
    try:
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError: # one of the two has ended
        pass


def beside_tcp(perf, daemon):
    """--compare tcp: after each object that has a counterpart in TCP comes an object of TCP's."""
    problems, found = traffic(perf, daemon, daemon, '--op write,read,faa --size 64,300000 '
                              '--iters 200 --lat --compare tcp --working-set 64M')
    rows = [(one.get('beside', one['op']), one['op'] == 'tcp') for one in found]
    if rows != [('write', False), ('write', True), ('write', False), ('write', True),
                ('read', False), ('read', True), ('read', False), ('read', True),
                ('faa', False)]:
        problems.append(f'rows are {rows}')
    for one in found:
        if one['op'] != 'tcp':
            continue
        rate = one['bytes'] * 8 / one['seconds'] / 1e9
        # what is under way when the measurement ends is at most a few writes
        if one['bytes'] < one['size_bytes'] or abs(rate - one['gbps']) > 0.01 * rate:
            problems.append(f'{one["bytes"]} bytes in {one["seconds"]} s are {one["gbps"]} Gb/s?')
        # CPU time of the whole machine, in ticks of 10 ms: a measurement may have used none
        if not 0 <= one['cpu_seconds'] < 86400:
            problems.append(f'cpu_seconds is {one["cpu_seconds"]}')
        if not 0 < one['latency_ns']['p50'] <= one['latency_ns']['p99']:
            problems.append(f'latency_ns is {one["latency_ns"]}')
        if (one['from'], one['to']) != ('127.0.0.1', '127.0.0.1'):
            problems.append(f'from {one["from"]} to {one["to"]}')
    return problems


def long_message(perf, daemon):
    """A message that takes the kernel's TCP longer than the measurement should last arrives
    completely."""
    problems, found = traffic(perf, daemon, daemon, '--op write,read --size 48M --depth 1 --duration 0.01 '
                              '--working-set 48M --compare tcp')
    return problems + [f'{one["bytes"]} bytes of {one["size_bytes"]} {one["gbps"]} Gb/s' for one in found
                       if one['op'] == 'tcp' and one['bytes'] < one['size_bytes']]


def listening(serve):
    """A port of this machine; runs serve(connection) for the first connection, in a thread."""
    def once():
        with listener, listener.accept()[0] as connection:
            serve(connection)
    listener = socket.create_server(('127.0.0.1', 0))
    threading.Thread(target=once, daemon=True).start()
    return listener.getsockname()[1]


def overheard(answered):
    """For traffic(by=): answered(ask, answer) gets, and may change, what a client asks the server
    and the answer."""
    def by(server_port):
        def serve(client):
            with client.makefile('rw') as asks, socket.create_connection(('localhost', server_port)) as server, \
                    server.makefile('rw') as answers:
                for line in asks:
                    answers.write(line)
                    answers.flush()
                    answer = json.loads(answers.readline())
                    answered(json.loads(line), answer)
                    asks.write(json.dumps(answer) + '\n')
                    asks.flush()
        return listening(serve)
    return by


def waits_for_ready(perf, daemon):
    """TCP is measured from when the server has its memory: nothing is sent before it reports
    that."""
    early = []

    def answered(ask, answer):
        def stream(client):
            with socket.create_connection(there) as server:
                server.sendall(client.recv(ORDER, socket.MSG_WAITALL))
                early.append(client in select.select([client, server], [], [])[0])
                relay = threading.Thread(target=forward, args=(client, server))
                relay.start()
                forward(server, client)
                relay.join()
        if 'tcp' in ask:
            there = answer['address'], answer['port']
            answer.update(address='127.0.0.1', port=listening(stream))

    problems, _ = traffic(perf, daemon, daemon, '--op write --size 65536 --duration 0.02 --compare tcp',
                          by=overheard(answered))
    return problems + ([] if early and not any(early) else [f'sent before the server was ready: {early}'])


def without_processor(perf, daemon, args):
    """traffic(), in which the daemon has no processor from the start on, for STARVED_S."""
    begun = threading.Event()

    def answered(ask, _):
        if ask.get('phase') == 1 and not begun.is_set():
            begun.set()
            daemon.send(signal.SIGSTOP)
            threading.Timer(STARVED_S, daemon.send, [signal.SIGCONT]).start()

    problems, found = traffic(perf, daemon, daemon, args, by=overheard(answered))
    return problems + ([] if begun.is_set() else ['no traffic began']), found


def starved(perf, daemon):
    """For longer than the traffic should last: it lasts until there is something to report."""
    return without_processor(perf, daemon, '--op read --size 4096 --duration 0.05')[0]


def events(perf, daemon):
    """--events: a program that has nothing to do sleeps, and is woken by completions.  With the
    daemon stopped there are none, so that there is at least one event, and before the measurement
    is over."""
    problems, found = without_processor(perf, daemon, '--op send --size 4096 --depth 4 --iters 400 --events')
    for one in found:
        if one['completion_events'] < 1 or one['server_completion_events'] < 1:
            problems.append(f'events: {one["completion_events"]} of the client, '
                            f'{one["server_completion_events"]} of the server')
    for _, args in MIXES:
        if '--lat' not in args:
            problems += traffic(perf, daemon, daemon, args.replace('MTU', '4096') + ' -e')[0]
    _, found = traffic(perf, daemon, daemon, '--op write --size 64 --iters 20')
    return problems + ['events without --events' for one in found if 'completion_events' in one]


def within_one(tap, perf, karstd, folder):
    daemon = Daemon(karstd, folder, ENGINE + 'device = loopback\n', name='one')
    problems = daemon.start()
    tap.point('one daemon: it starts', problems)
    for name, args in [] if problems else MIXES:
        problems, _ = traffic(perf, daemon, daemon, args.replace('MTU', '4096'))
        tap.point(f'one daemon: {name}', problems)
    if not problems:
        # the copies that are measured with it use the same memory
        problems, _ = traffic(perf, daemon, daemon, '--op write,read --size 4097,65536 '
                              '--duration 0.3 --mtu 4096', baselines=True)
        tap.point('one daemon: with baselines', problems)
        tap.point('one daemon: without a processor', starved(perf, daemon))
        tap.point('one daemon: completion events', events(perf, daemon))
    if not tap.failed:
        tap.point('one daemon: beside TCP', beside_tcp(perf, daemon))
        tap.point('one daemon: beside TCP, a message that takes long', long_message(perf, daemon))
        tap.point('one daemon: TCP waits until the server is ready', waits_for_ready(perf, daemon))
    with HugePages(16) as huge:
        for kind in KINDS if daemon.process.poll() is None else []:
            if kind == 'hugetlb' and not huge.there:
                tap.skip('one daemon: memory hugetlb', 'no huge pages to be had')
            else:
                memories(tap, perf, daemon, kind, huge=huge)
    if daemon.process.poll() is None:
        memories(tap, perf, daemon, 'alloc', '--odp')
    tap.point('one daemon: it ends', daemon.stop())


def memories(tap, perf, daemon, kind, more='', huge=None):
    """Data from and into each kind of memory, and the access method that is used."""
    for _ in range(HUGE_TRIES if huge is not None and kind == 'hugetlb' else 1):
        problems, found = traffic(
            perf, daemon, daemon,
            f'--op write,read,send,faa --size 20000 --iters 200 --working-set 2M --memory {kind} '
            f'{more}', f'--memory {kind} {more}')
        if not any('no huge page memory' in problem for problem in problems):
            break
        huge.more() # another program of this machine has used them up
    want = 'copied' if more else {'alloc': 'shared', 'malloc': 'migrated'}.get(kind, 'copied')
    for one in found:
        if one['memory'] != kind or one['memory_path'][want] < 0.9:
            problems.append(f'{one["op"]}: memory {one["memory"]} by {one["memory_path"]}')
    tap.point(f'one daemon: memory {kind} {more}', problems)


def missed(daemon):
    """@return problems: frames for which net_af_xdp had given the kernel no buffer."""
    engine = karst_observe.find_engines(prefix=daemon.name)[0]
    try:
        ports = engine.rows('ports').values()
    finally:
        engine.telemetry.close()
    return [f'port {port["name"]}: {port["rx_missed"]} of {port["rx_packets"]} frames missed'
            for port in ports if port['rx_missed'] != 0]


def across(tap, perf, karstd, folder, name, ports, mtu, netns=(None, None), engine=ENGINE):
    """Two daemons."""
    daemons, problems = [], []
    for i in (0, 1):
        # one after the other: a client of net_memif needs its server first
        daemons.append(Daemon(karstd, folder, engine + ports[i], name=name + str(i),
                              netns=netns[i]))
        problems += daemons[i].start()
    if problems and name == 'xdp' and 'XDP' in ' '.join(problems):
        tap.skip(f'{name}: two daemons start', 'this kernel has no AF_XDP on veth')
        for daemon in daemons:
            daemon.stop()
        return
    tap.point(f'{name}: two daemons start', problems)
    for what, args in [] if problems else MIXES:
        problems, _ = traffic(perf, daemons[0], daemons[1], args.replace('MTU', str(mtu)))
        tap.point(f'{name}: {what}', problems)
    if name == 'xdp':
        tap.point(f'{name}: the kernel had buffers for every frame', [
            text for daemon in daemons for text in missed(daemon)])
    tap.point(f'{name}: both end', daemons[0].stop() + daemons[1].stop())


def memif(tap, perf, karstd, folder):
    link = f'socket={os.path.join(folder, "memif.sock")},socket-abstract=no,bsize=8192'
    ports = [f'device = net_memif0,role={role},{link}\naddresses = 10.77.0.{i}/24\n'
             for i, role in ((1, 'server'), (2, 'client'))]
    across(tap, perf, karstd, folder, 'memif', ports, 1024, engine=YIELD)


class Veth:
    """A pair of interfaces in two namespaces."""

    def __init__(self, name, mtu):
        self.netns = [f'karst-{name}-{os.getpid()}-{i}' for i in (0, 1)]
        ip = [['netns', 'add', self.netns[0]], ['netns', 'add', self.netns[1]],
              ['-n', self.netns[0], 'link', 'add', 'veth0', 'mtu', str(mtu), 'type', 'veth',
               'peer', 'name', 'veth1', 'mtu', str(mtu), 'netns', self.netns[1]]]
        for i in (0, 1):
            ip += [['-n', self.netns[i], 'addr', 'add', f'10.78.0.{i + 1}/24', 'dev', f'veth{i}'],
                   ['-n', self.netns[i], 'link', 'set', f'veth{i}', 'up'],
                   ['-n', self.netns[i], 'link', 'set', 'lo', 'up']]
        for words in ip:
            subprocess.run(['ip', *words], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *why):
        for name in self.netns:
            subprocess.run(['ip', 'netns', 'del', name], check=False)


def veth(tap, perf, karstd, folder, name, driver, frame, mtu):
    if os.geteuid() != 0:
        tap.skip(f'{name}: two daemons', 'network namespaces need root')
        return
    with Veth(name, frame) as pair:
        ports = [f'device = veth{i}\ndriver = {driver}\n' for i in (0, 1)]
        across(tap, perf, karstd, folder, name, ports, mtu, pair.netns)


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix='karst-perf-') as folder:
        within_one(tap, argv[1], argv[2], folder)
        memif(tap, argv[1], argv[2], folder)
        veth(tap, argv[1], argv[2], folder, 'packet', 'af_packet', 4300, 4096)
        veth(tap, argv[1], argv[2], folder, 'xdp', 'af_xdp', 1500, 1024)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
