#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""net_impair under dpdk-testpmd and under karstd (TAP).

  impair.py LIBRTE_NET_IMPAIR KARSTD KARST_PERF

testpmd forwards a capture into another one; what differs between them has to be what the log says, packet
by packet.  Then rules change under traffic, by telemetry.  karstd moves verified bytes over a port that
loses, corrupts, duplicates and reorders some.
"""
import json
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'common'), os.path.join(HERE, '..', '..', 'usertools')]
sys.dont_write_bytecode = True
from bed import Daemon, HANG_S, Tap, traffic  # noqa: E402
from testpmd import Testpmd  # noqa: E402
import karst_observe  # noqa: E402
from pcap import read_pcap, write_pcap  # noqa: E402
import roce  # noqa: E402

# it is our own engine, which answers when it gets a processor
karst_observe.TIMEOUT_S = HANG_S

PID = os.getpid()
NETNS = [f'impair{PID}-{end}' for end in (0, 1)]
MAC = [b'\x02\x00\x00\x00\x00\x01', b'\x02\x00\x00\x00\x00\x02']
ADDRESS = ['192.0.2.1', '192.0.2.2']
FRAMES = 2000

RULES = '''
[impair]
seed = 11
[rule gone]
action = drop
direction = rx
chance = 0.02
[rule twice]
action = duplicate
direction = rx
nth = 100, 200, 300
[rule broken]
action = corrupt
direction = tx
every = 50
[rule congested]
action = mark
direction = tx
psn = 500-520
[rule cut]
action = truncate
direction = tx
psn = 700-705
bytes = 20
[rule later]
action = reorder
direction = rx
psn = 900,950
packets = 2
time_us = 60000000
'''


def sh(*args, check=True):
    return subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=check).stdout


def write(path, text):
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    return path


def packet(psn, size=64):
    ib = roce.bth(roce.RC_WRITE_ONLY, 0x123456, psn) + bytes(16) + bytes([psn & 0xff]) * size
    return roce.frame(MAC[1], MAC[0], *ADDRESS, ib)


def telemetry_of(name):
    return karst_observe.Telemetry(next(iter(karst_observe.sockets(name))))


class Impaired(Testpmd):
    """Forwards from and to net_impair0, over @below."""

    def __init__(self, module, below, more):
        self.name = f'impair{PID}'
        super().__init__(
            '-d', module, '--lcores=0,1@0', '--no-huge', '-m', '256', '--no-pci', '--file-prefix',
            self.name, '--vdev', below, '--vdev',
            f'net_impair0,port={below.split(",")[0]},{more}', '--', '-i', '--mbuf-size=4096',
            '--total-num-mbufs=4096', '--forward-mode=io', '--port-topology=loop',
            '--no-flush-rx')


    def drain(self):
        """Reads what it has printed, so that it need not wait for a reader."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            self.said += os.read(self.process.stdout.fileno(), 65536).decode(errors='replace')


def read_log(path):
    with open(path, encoding='utf-8') as f:
        return [json.loads(line) for line in f]


def until(condition):
    """Waits for it.  @return whether it became true."""
    end = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# --- a capture, and the log ---

def expected(frames, log):
    """The expected output, from the log alone."""
    received = []
    waiting = []
    by_packet = {}
    for entry in log:
        if entry['event'] == 'injured':
            by_packet[(entry['direction'], entry['packet'])] = entry
    for number, frame in enumerate(frames, 1):
        hit = by_packet.get(('rx', number))
        if hit is not None and hit['action'] == 'drop':
            continue
        if hit is not None and hit['action'] == 'reorder':
            waiting.append([2, frame])
            continue
        received += [frame] * (1 + (hit['copies'] if hit is not None else 0))
        for one in waiting: # there is one QP, so all packets count
            one[0] -= 1
        received += [one[1] for one in waiting if one[0] == 0]
        waiting = [one for one in waiting if one[0] > 0]
    return [sent_as(frame, by_packet.get(('tx', number)))
            for number, frame in enumerate(received, 1)]


def sent_as(frame, hit):
    if hit is None:
        return frame
    data = bytearray(frame)
    if hit['action'] == 'corrupt':
        data[hit['offset']] ^= 1
    elif hit['action'] == 'truncate':
        data = data[:hit['left']]
    elif hit['action'] == 'mark':
        data[15] |= 3
        data[24:26] = b'\0\0'
        data[24:26] = struct.pack('>H', roce.ones_sum(bytes(data[14:34])))
    return bytes(data)


def through(stats):
    """All frames were read, and those that should not be lost were sent."""
    rx = stats['rx']
    return rx['frames'] == FRAMES and \
        stats['tx']['frames'] == FRAMES - rx['drop'] + rx['duplicate']


def capture(tap, module, folder):
    source, sink, log = (os.path.join(folder, name) for name in ('in.pcap', 'out.pcap', 'log'))
    frames = [packet(psn) for psn in range(1, FRAMES + 1)]
    write_pcap(source, 1, [(1000 * us, frame) for us, frame in enumerate(frames)])
    pmd = Impaired(module, f'net_pcap0,rx_pcap={source},tx_pcap={sink}',
                  f'rules={write(os.path.join(folder, "rules"), RULES)},log={log}')
    problems = pmd.start()
    telemetry = None if problems else telemetry_of(pmd.name)
    if not problems and not until(
            lambda: through(telemetry.ask('/impair/stats,net_impair0'))):
        problems = [f"not all frames are through: {telemetry.ask('/impair/stats,net_impair0')}"]
    stats = {} if problems else telemetry.ask('/impair/stats,net_impair0')
    tap.point('testpmd forwards a capture through net_impair', problems + pmd.stop())
    if problems:
        return
    entries = read_log(log)
    want, got = expected(frames, entries), [frame for _, frame in read_pcap(sink)[1]]
    problems = [] if len(want) == len(got) else [f'{len(got)} frames, {len(want)} by the log']
    problems += [f'frame {i}: {a.hex()} is not {b.hex()}'
                 for i, (a, b) in enumerate(zip(got, want), 1) if a != b][:3]
    tap.point('what comes out is what the log says, byte by byte', problems)
    injured = [e for e in entries if e['event'] == 'injured']
    actions = {a: sum(e['action'] == a for e in injured)
               for a in ('drop', 'duplicate', 'corrupt', 'mark', 'truncate', 'reorder')}
    counted = {a: stats['rx'][a] + stats['tx'][a] for a in actions}
    problems = [] if counted == actions else [f'{counted} by telemetry, {actions} in the log']
    problems += [f'no {a}' for a, n in actions.items() if n == 0]
    tap.point('every action is there, and telemetry counts the same', problems)
    tap.point('each has a time and a reason', [
        str(e) for e in injured if abs(e['time_ns'] / 1e9 - time.time()) > 2 * HANG_S or
        not e['reason'] or e['qpn'] != 0x123456 or e['opcode'] != 'RC_WRITE_ONLY'][:3])


# --- rules that change ---

def changes(tap, module, folder):
    source = os.path.join(folder, 'again.pcap')
    write_pcap(source, 1, [(1000 * psn, packet(psn)) for psn in range(100)])
    path = write(os.path.join(folder, 'rules2'), '[rule one]\naction = mark\npsn = 5\n')
    pmd = Impaired(module, f'net_pcap0,rx_pcap={source},infinite_rx=1', f'rules={path}')
    problems = pmd.start()
    tap.point('testpmd starts with traffic that does not end', problems)
    if problems:
        pmd.stop()
        return
    telemetry = telemetry_of(pmd.name)

    def hits(name):
        stats = telemetry.ask('/impair/stats,net_impair0')
        return dict(zip(stats['rules'], stats['hits'])).get(name, 0)
    tap.point('a rule hits', [] if until(lambda: hits('one') > 0) else ['it does not'])
    write(path, '[rule two]\naction = mark\npsn = 6\n')
    answer = telemetry.ask('/impair/rules,net_impair0')
    tap.point('the file is read again under traffic', [] if answer['result'] == 'ok' and
              until(lambda: hits('two') > 0) and hits('one') == 0 else [str(answer)])
    answer = telemetry.ask('/impair/rules,net_impair0,' +
                           write(path + '.new', '[rule three]\naction = mark\nnth = 3,x\n'))
    tap.point('a file with a mistake is refused with line and column',
              [] if answer['result'] == 'refused' and answer['generation'] == 2 and
              ':3:9: ' in ''.join(answer['mistakes']) else [str(answer)])
    long_path = os.path.join(folder, 'd' * 100)
    os.mkdir(long_path)
    answer = telemetry.ask('/impair/rules,net_impair0,' + write(
        os.path.join(long_path, 'e' * 60), '[rule three]\naction = mark\nnht = 3\n'))
    said = ''.join(part.lstrip() for part in answer['mistakes'])
    tap.point('also of a file with a long path, and with all that is allowed',
              [] if ':3:1: [rule] nht: unknown key; allowed: action, ' in said and
              said.endswith('queue_us') else [str(answer)])
    answer = telemetry.ask('/impair/rules,net_impair0,' + write(
        path + '.many', '[rule three]\naction = "\\mark"\n' + 'nth = 1\n' * 301))
    pmd.drain()
    said = answer.get('mistakes', ['nothing'])
    tap.point('of many mistakes it is said how many are left out',
              [] if said[-1] == f'{path}.many: 281 more mistakes' and
              sum(part[0] != ' ' for part in said) == 21 else [str(answer)])
    answer = telemetry.ask('/impair/rules,net_impair0,' + write(
        os.path.join(long_path, 'f' * 100), '[rule three]\n' + f'{"n" * 300} = 3\n' * 301))
    pmd.drain()
    said = answer.get('mistakes', ['nothing'])
    more = re.fullmatch(r'(\d+) more, which are in the log of the program', said[-1])
    shown = sum(part[0] != ' ' for part in said[:-1])
    tap.point('of long ones, how many are only in the log',
              [] if more and int(more.group(1)) + shown == 21 else [str(answer)])
    before = hits('two')
    tap.point('and the rules before hold', [] if until(lambda: hits('two') > before)
              else ['they do not'])
    for text in ('/impair/rules,net_impair7', '/impair/rules'):
        answer = telemetry.ask(text)
        tap.point(f'{text} is refused in words', [] if answer['result'] == 'refused' and
                  'no such port' in answer['mistakes'][0] else [str(answer)])
    tap.point('/impair/list', [] if telemetry.ask('/impair/list') == ['net_impair0'] else ['?'])
    tap.point('all queues have the newest rules', [] if until(
        lambda: telemetry.ask('/impair/stats,net_impair0')['generation_in_use'] == 2) else ['no'])
    tap.point('testpmd stops', pmd.stop())


CLIENTS, LOADS = 3, 40


def quick(tap, module, folder):
    """Several clients of telemetry load rules in quick succession while packets pass."""
    source, log = os.path.join(folder, 'quick.pcap'), os.path.join(folder, 'quick.log')
    write_pcap(source, 1, [(1000 * psn, packet(psn)) for psn in range(1000)])
    paths = [write(os.path.join(folder, f'quick{i}'), f'[rule r{i}]\naction = mark\npsn = {i}\n')
             for i in range(CLIENTS)]
    pmd = Impaired(module, f'net_pcap0,rx_pcap={source},infinite_rx=1',
                  f'rules={paths[0]},log={log},log_slots=65536')
    problems = pmd.start()
    loaded, lock = {1: 0}, threading.Lock()

    def load(i):
        telemetry = telemetry_of(pmd.name)
        for _ in range(LOADS):
            answer = telemetry.ask(f'/impair/rules,net_impair0,{paths[i]}')
            with lock:
                if answer['result'] != 'ok' or answer['generation'] in loaded:
                    problems.append(str(answer))
                loaded[answer['generation']] = i
    if not problems:
        clients = [threading.Thread(target=load, args=(i,)) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        newest = 1 + CLIENTS * LOADS
        if sorted(loaded) != list(range(1, newest + 1)):
            problems.append(f'generations {sorted(loaded)}')
        telemetry = telemetry_of(pmd.name)
        if not until(lambda: telemetry.ask('/impair/stats,net_impair0')['generation_in_use'] == newest):
            problems.append('not all queues have the newest rules')
    tap.point('several clients change rules in quick succession', problems + pmd.stop())
    known, problems = set(), []
    for entry in read_log(log):
        if entry['event'] == 'rules':
            known.add(entry['generation'])
            wanted = {'file': paths[loaded[entry['generation']]]}
        elif entry['event'] == 'injured':
            if entry.get('generation') not in known:
                problems.append(f'rules that are not known yet: {entry}')
                continue
            i = loaded[entry['generation']]
            wanted = {'rule': f'r{i}', 'psn': i}
        else:
            continue
        problems += [str(entry)] if any(entry[k] != v for k, v in wanted.items()) else []
    tap.point('the log tells by which rules each packet was hit', problems[:3])


def repeatable(tap, module, folder):
    """The same packets are hit when the same file is loaded at the start or by telemetry."""
    source = os.path.join(folder, 'in.pcap')
    frames = [packet(psn) for psn in range(1, FRAMES + 1)]
    write_pcap(source, 1, [(1000 * us, frame) for us, frame in enumerate(frames)])
    rules = write(os.path.join(folder, 'chance'), '[impair]\nseed = 99\n[rule c]\naction = drop\n'
                  'chance = 0.05\n[rule m]\naction = corrupt\nevery = 7\ntransmission = first\n')
    found, problems = [], []
    for i, given in enumerate((f'rules={rules},', '')):
        log = os.path.join(folder, f'chance{i}.log')
        pmd = Impaired(module, f'net_pcap0,rx_pcap={source},tx_pcap=/dev/null', f'{given}log={log}')
        problems += pmd.wait('testpmd> ')
        if not problems:
            telemetry = telemetry_of(pmd.name)
            for _ in range(0 if given else 3):
                telemetry.ask(f'/impair/rules,net_impair0,{rules}')
            problems += pmd.start()
        if not problems and not until(
                lambda: telemetry.ask('/impair/stats,net_impair0')['rx']['frames'] == FRAMES):
            problems.append('not all frames are through')
        time.sleep(0.1) # those that were received are sent
        problems += pmd.stop()
        found.append([[e[k] for k in ('packet', 'direction', 'psn', 'rule', 'action', 'reason')]
                      for e in read_log(log) if e['event'] == 'injured'])
    if sorted(found[0]) != sorted(found[1]) or len(found[0]) < FRAMES / 20:
        problems.append(f'{len(found[0])} and {len(found[1])} hits, {found[0][:3]}, {found[1][:3]}')
    tap.point('the same file hits the same packets from the start and by telemetry', problems)


# --- karstd ---

LOSSY = '''
[rule lost]
action = drop
chance = 0.01
[rule broken]
action = corrupt
chance = 0.001
[rule twice]
action = duplicate
chance = 0.002
[rule late]
action = reorder
chance = 0.002
time_us = 1000
'''


class Network:
    """Two namespaces and a veth pair."""

    def __enter__(self):
        for end in NETNS:
            sh('ip', 'netns', 'add', end)
            sh('ip', 'netns', 'exec', end, 'sysctl', '-qw', 'net.ipv6.conf.all.disable_ipv6=1')
        sh('ip', '-n', NETNS[0], 'link', 'add', 'wire', 'type', 'veth', 'peer', 'name', 'wire',
           'netns', NETNS[1])
        for end, address in zip(NETNS, ADDRESS):
            sh('ip', '-n', end, 'link', 'set', 'wire', 'mtu', '4200', 'up')
            sh('ip', '-n', end, 'address', 'add', address + '/24', 'dev', 'wire')
        return self

    def __exit__(self, *_):
        for end in NETNS:
            sh('ip', 'netns', 'del', end, check=False)


def verified(perf, server, client):
    return traffic(perf, server, client, '--op', 'all', '--size', '20000', '--iters', '150',
                   '--verify', '--mtu', '1024', '--working-set', '1M', '--depth', '8')


def karstd(tap, program, perf, folder):
    log = os.path.join(folder, 'karstd.log')
    conf = '[engine]\nidle = yield\n[port a]\ndevice = wire\n'
    impaired = conf + f'impair = {write(os.path.join(folder, "lossy"), LOSSY)}\nimpair_log = {log}\n'
    ds = [Daemon(program, folder, conf, name='imp0', netns=NETNS[0]),
          Daemon(program, folder, impaired, name='imp1', netns=NETNS[1])]
    problems = ds[0].start() + ds[1].start()
    tap.point('karstd starts with a port that is impaired', problems)
    if problems:
        for d in ds:
            d.kill()
        return
    tap.point('verbs traffic over it is right in every byte',
              verified(perf, ds[0].socket, ds[1].socket))
    stats = telemetry_of(ds[1].name).ask('/impair/stats,net_impair_a')
    tap.note(json.dumps(stats))
    tap.point('packets were impaired in both directions', [
        f'{direction}: no {action}' for direction in ('rx', 'tx')
        for action in ('drop', 'duplicate', 'reorder') if stats[direction][action] == 0])
    tap.point('the daemons stop', ds[0].stop() + ds[1].stop())
    entries = read_log(log)
    drops = sum(e['event'] == 'injured' and e['action'] == 'drop' for e in entries)
    lost = sum(e.get('records', 0) for e in entries if e['event'] == 'lost')
    # there may be more than telemetry had when the daemon stopped
    tap.point('the log has them', [] if drops + lost >= stats['rx']['drop'] + stats['tx']['drop']
              else [f'{drops} drops'])
    write(os.path.join(folder, 'lossy'), '[rule a]\naction = drap\n')
    tap.point('a rule file with a mistake keeps karstd from starting',
              ds[1].refuses(1, 'port a: impair:', ':2:10: [rule] action = "drap": no such word'))


def main(argv):
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        capture(tap, argv[1], folder)
        changes(tap, argv[1], folder)
        quick(tap, argv[1], folder)
        repeatable(tap, argv[1], folder)
        with Network():
            karstd(tap, argv[2], argv[3], folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
