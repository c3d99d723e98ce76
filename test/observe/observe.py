#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst-top, karst-exporter and karst-capture against a running daemon, with real traffic.

  observe.py USERTOOLS KARSTD KARST-PERF KARST-DUMP   (TAP)

What they show is held against what karst-perf moved, against each other, and, for captures,
against the parser of karst-dump and Wireshark's.
"""
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Daemon, Tap  # noqa: E402
from observe_bed import (HANG_S, Background, Bed, Exporter, parse_exposition, queue_pairs, scrape,  # noqa: E402
                         telemetry, total)


# --- points ---

def sums(tap, bed):
    """Sums before and after a known number of messages."""
    problems, before = scrape(bed)
    tap.point('exporter: the text is what Prometheus reads', problems)
    wrong, result = bed.traffic('--op write --size 20000 --qps 3 --iters 3000')
    problems, after = scrape(bed)
    problems += wrong
    if not problems:
        def grown(name):
            return total(after, name) - total(before, name)

        if grown('karst_rx_write_requests_total') < result['messages']:
            problems.append(f"{grown('karst_rx_write_requests_total')} WRITEs executed, "
                            f"{result['messages']} were measured")
        if grown('karst_req_completions_total') < grown('karst_rx_write_requests_total'):
            problems.append('fewer requests completed than executed')
        # nothing is lost on a loopback port, and all of it has arrived
        for sent, received in (('karst_tx_packets_total', 'karst_rx_packets_total'),
                               ('karst_tx_bytes_total', 'karst_rx_bytes_total')):
            if grown(sent) != grown(received) or grown(sent) <= 0:
                problems.append(f'{sent} {grown(sent)}, {received} {grown(received)}')
        if grown('karst_tx_bytes_total') < result['messages'] * 20000:
            problems.append(f"{grown('karst_tx_bytes_total')} bytes for {result['messages']} "
                            'messages')
        for (name, labels), value in before.items():
            if name.endswith('_total') and after.get((name, labels), value) < value:
                problems.append(f'{name} {dict(labels)} went back')
        if grown('karst_lcore_busy_cycles_total') <= 0 or \
                grown('karst_lcore_busy_cycles_total') > grown('karst_lcore_cycles_total'):
            problems.append('busy_cycles')
        hw = after.get(('karst_hw_counters_total', frozenset(
            {'engine': bed.name, 'counter': 'rx_write_requests'}.items())))
        if hw != total(after, 'karst_rx_write_requests_total'):
            problems.append(f'hw_counters has {hw} WRITEs')
    tap.point('exporter: counts agree with what was moved, and with each other', problems)


def while_running(tap, bed):
    with Background(bed, '--op write --size 4096 --qps 5') as problems:
        tap.point('traffic between five queue pairs and five', problems)
        if not problems:
            top(tap, bed)
            between(tap, bed)
            captures(tap, bed)


def between(tap, bed):
    """The count of a queue pair lies between two readings of its lcore's."""
    def ask(engine):
        first = sum(row['tx_bytes'] for row in engine.rows('counters').values())
        middle = engine.table('qps')
        last = sum(row['tx_bytes'] for row in engine.rows('counters').values())
        return first, middle, last

    first, rows, last = telemetry(bed, ask)
    problems = [] if len(rows) == 10 else [f'{len(rows)} queue pairs, not 10']
    seen = later = sum(row['tx_bytes'] for row in rows)
    for _ in range(HANG_S * 10):
        grown = telemetry(bed, ask)
        later = sum(row['tx_bytes'] for row in grown[1])
        if later != seen:
            break
        time.sleep(0.1)
    # the lcore's count alone includes earlier queue pairs, so differences are compared
    if not grown[0] - last <= later - seen <= grown[2] - first:
        problems.append(f'{grown[0] - last} <= {later - seen} <= {grown[2] - first}')
    if later <= seen:
        problems.append('nothing was sent meanwhile')
    tap.point("queue pairs: their counts add up to their lcore's", problems)
    problems, values = scrape(bed, '--qps')
    series = [labels for name, labels in values if name == 'karst_qp_tx_bytes_total']
    if len(series) != 10:
        problems.append(f'{len(series)} series of queue pairs')
    clients = total(values, 'karst_clients')
    if clients != 2:
        problems.append(f'{clients} clients')
    if total(values, 'karst_client_qps') != 10:
        problems.append(f"clients have {total(values, 'karst_client_qps')} queue pairs")
    tap.point('exporter: queue pairs and clients', problems)


def cells(lines, head):
    """[[cell]] of the table whose first line begins with @head."""
    at = next((i for i, line in enumerate(lines) if line.startswith(head)), None)
    if at is None:
        return []
    found = []
    for line in lines[at + 1:]:
        if not line:
            break
        found.append(re.split(r'\s{2,}', line))
    return found


def screen(bed, seconds):
    """(problems, lines without rates): a screen of karst-top, for @seconds."""
    run = bed.tool('karst-top', '--once', '-d', str(seconds), '-q', '4')
    lines = run.stdout.splitlines()
    problems, idle = [] if run.returncode == 0 else [
        f'exit status {run.returncode}: {run.stderr}'], []
    roce = re.search(r'^RoCE  in ([\d.]+) Gb/s .* out ([\d.]+) Gb/s', run.stdout, re.M)
    if not roce or float(roce.group(1)) <= 0 or float(roce.group(2)) <= 0:
        idle.append('no rate of RoCE')
    lcores = cells(lines, 'lcore')
    if len(lcores) != 1 or lcores[0][1] != '10' or not lcores[0][3].isdigit() or \
            not 0 <= float(lcores[0][4]) <= 100:
        problems.append(f'lcores: {lcores}')
    pairs = cells(lines, 'queue pair')
    if len(pairs) != 5 or pairs[4][0] != '... and 6 more, by bytes':
        problems.append(f'queue pairs: {pairs}')
    elif not all(row[1:3] == ['RC', 'RTS'] and row[3].isdigit() for row in pairs[:4]):
        problems.append(f'queue pairs: {pairs}')
    elif not all(float(row[4]) + float(row[6]) > 0 for row in pairs[:4]):
        idle.append(f'queue pairs: {pairs}')
    clients = cells(lines, 'client')
    if len(clients) != 2 or not all(row[1].startswith('karst-perf') for row in clients):
        problems.append(f'clients: {clients}')
    return problems + ([run.stdout] if problems else []), idle


def top(tap, bed):
    for seconds in (1, 10, 100): # on a busy machine the programs may do next to nothing for a while
        problems, idle = screen(bed, seconds)
        if problems or not idle:
            break
    tap.point('top: rates, lcores, the busiest queue pairs, clients', problems + idle)

    run = bed.tool('karst-top', '-b', '-n', '3', '-d', '0.1')
    screens = sum(line.startswith('karst-top ') for line in run.stdout.splitlines())
    tap.point('top: as many screens as asked for',
              [] if screens == 3 and run.returncode == 0 else [f'{screens}: {run.stderr}'])


# --- captures ---

def frames_of(path):
    """[(direction, destination queue pair)] of a pcapng file."""
    found = []
    with open(path, 'rb') as f:
        data = f.read()
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from('<II', data, at)
        if length < 12 or struct.unpack_from('<I', data, at + length - 4)[0] != length:
            raise ValueError(f'byte {at}: a block of {length} bytes')
        if kind == 6:
            have = struct.unpack_from('<I', data, at + 20)[0]
            frame = data[at + 28:at + 28 + have]
            code, size, flags = struct.unpack_from('<HHI', data, at + 28 + (have + 3 & ~3))
            if (code, size) != (2, 4):
                raise ValueError(f'byte {at}: no flags')
            bth = 14 + (20 if frame[12:14] == b'\x08\x00' else 40) + 8
            found.append((flags & 3, int.from_bytes(frame[bth + 5:bth + 8], 'big')))
        at += length
    return found


def judge_capture(bed, path, qpn, count):
    """@return problems: not @count valid frames, of both directions, of that queue pair."""
    try:
        frames = frames_of(path)
    except (OSError, ValueError, struct.error) as e:
        return [str(e)]
    problems = [] if count in (None, len(frames)) else [f'{len(frames)} frames, not {count}']
    received = {to for direction, to in frames if direction == 1}
    sent = {to for direction, to in frames if direction == 2}
    if received != {qpn} or len(sent) != 1 or sent == received:
        problems.append(f'received for {received}, sent to {sent}')
    run = bed.run(bed.dump, '--json', '--quiet', path)
    if run.returncode != 0:
        return problems + [f'karst-dump: {run.stdout}{run.stderr}']
    seen = json.loads(run.stdout.splitlines()[-1])
    if not seen['frames'] == seen['roce'] == seen['icrc_ok'] == len(frames):
        problems.append(f'karst-dump: {seen}')
    return problems


def captures(tap, bed):
    qpn = queue_pairs(bed)[0]['qpn']
    path = os.path.join(bed.folder, 'c.pcapng')
    run = bed.tool('karst-capture', '--qp', str(qpn), '-w', path, '--count', '300')
    problems = [] if run.returncode == 0 else [f'exit status {run.returncode}: {run.stderr}']
    if 'karst-capture: 300 frames' not in run.stderr or 'count reached' not in run.stderr:
        problems.append(run.stderr)
    tap.point('capture: as many frames as asked for, both ways, with their ICRC',
              problems + judge_capture(bed, path, qpn, 300))
    if shutil.which('tshark'):
        run = bed.run('tshark', '-r', path, '-Y', 'infiniband and !_ws.malformed', '-T', 'fields',
                      '-e', 'infiniband.bth.opcode', '-e', 'frame.interface_name')
        rows = [line.split('\t') for line in run.stdout.splitlines()]
        problems = [] if len(rows) == 300 and all(row[1:] == ['p'] for row in rows) else [
            f'{len(rows)} frames', *run.stdout.splitlines()[:5], run.stderr]
        tap.point("capture: Wireshark's dissector reads it", problems)
    else:
        tap.skip("capture: Wireshark's dissector reads it", 'no tshark here')

    path = os.path.join(bed.folder, 's.pcapng')
    with subprocess.Popen([os.path.join(bed.usertools, 'karst-capture'), '--file-prefix', bed.name,
                           '--qp', str(qpn), '-w', path, '--snaplen', '128'],
                          stderr=subprocess.PIPE, text=True) as process:
        for _ in range(HANG_S * 10):
            if os.path.exists(path) and os.path.getsize(path) > 2000:
                break
            time.sleep(0.1)
        second = bed.tool('karst-capture', '--qp', str(qpn), '-w', os.devnull)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=HANG_S)
    problems = [] if process.returncode == 0 and 'stopped' in said else [
        f'exit status {process.returncode}: {said}']
    try:
        if len({to for direction, to in frames_of(path) if direction == 1}) != 1:
            problems.append('received for several')
    except (OSError, ValueError, struct.error) as e:
        problems.append(str(e))
    if max(os.path.getsize(path), 1) > 1 << 28:
        problems.append('longer than allowed')
    tap.point('capture: ends at a signal, and the file is whole', problems)
    tap.point('capture: one at a time',
              [] if second.returncode == 1 and 'one at a time' in second.stderr else
              [f'exit status {second.returncode}: {second.stderr}'])
    left = [name for name in os.listdir(f'/var/run/dpdk/{bed.name}') if name.endswith('.pcapng')] \
        if os.path.isdir(f'/var/run/dpdk/{bed.name}') else []
    tap.point('capture: nothing is left behind', left)


# --- engines of other users ---

class Fake(threading.Thread):
    """Answers like an engine, except that it names a file of its own choice for a capture."""

    def __init__(self, folder, file):
        super().__init__(daemon=True)
        self.file = file
        os.makedirs(folder)
        self.path = os.path.join(folder, 'dpdk_telemetry.v2')
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen()
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                self.answer(client)

    def answer(self, client):
        client.send(b'{"version":"x","pid":1,"max_output_len":16384}')
        while words := client.recv(4096).decode():
            found = ['fake'] if words == '/karst/engines' else {
                'file': self.file, 'running': 0, 'frames': 0, 'bytes': 0, 'dropped': 0, 'ended': 'here'}
            client.send(json.dumps({words: found}).encode())

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.join()
        self.listener.close()


def strangers(tap, bed):
    name = 'capture: an engine of another user, and what it names as its file'
    if os.geteuid() != 0:
        tap.skip(name, 'only root can give it one')
        return
    theirs, out = os.path.join(bed.folder, 'theirs'), os.path.join(bed.folder, 'out')
    fake = Fake(theirs, '')
    mine = os.path.join(bed.folder, 'mine.pcapng')
    files = [mine, 'mine.pcapng', 'link.pcapng', 'pipe.pcapng', 'good.pcapng']
    for path in (mine, os.path.join(theirs, 'mine.pcapng'), os.path.join(theirs, 'good.pcapng')):
        with open(path, 'w', encoding='utf-8') as f:
            f.write('frames')
    os.symlink(mine, os.path.join(theirs, 'link.pcapng'))
    os.mkfifo(os.path.join(theirs, 'pipe.pcapng'))
    for path in (theirs, fake.path, *(os.path.join(theirs, file) for file in files[2:])):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    problems = []
    for fake.file in files:
        run = bed.run(os.path.join(bed.usertools, 'karst-capture'), '--socket', fake.path, '--qp', '7', '-w', out)
        left = os.path.lexists(os.path.join(theirs, fake.file))
        good = fake.file == 'good.pcapng'
        if run.returncode != (0 if good else 1) or 'Traceback' in run.stderr or \
                os.path.getsize(out) != (6 if good else 0) or left == good or not os.path.exists(mine):
            problems.append(f'{fake.file}: {run.returncode} {run.stderr}, left: {left}')
    tap.point(name, problems)
    fake.end()

    name = 'a folder of another user is not looked into'
    problems = []
    for owner, folder in ((65534, 'theirs'), (65534, 'theirs/dpdk'), (65534, 'theirs/dpdk/x'), (0, 'ours')):
        base = os.path.join(bed.folder, folder.split('/', maxsplit=1)[0])
        fake = Fake(os.path.join(base, 'dpdk', 'x'), mine)
        os.chown(os.path.join(bed.folder, folder), owner, owner)
        run = subprocess.run([os.path.join(bed.usertools, 'karst-capture'), '--file-prefix', 'x', '--qp', '7',
                              '-w', os.devnull], env={**os.environ, 'XDG_RUNTIME_DIR': base},
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=HANG_S,
                             check=False)
        # the user has chosen the variable's folder; its contents may belong to others
        found = 'no karst engine answers' not in run.stderr
        if found != (owner == 0 or folder == 'theirs'):
            problems.append(f'{folder} of user {owner}: {run.stderr}')
        fake.end()
        shutil.rmtree(base)
    tap.point(name, problems)


# --- the format of figures ---

def textfile(tap, bed):
    path = os.path.join(bed.folder, 'karst.prom')
    run = bed.tool('karst-exporter', '--textfile', path)
    problems = [] if run.returncode == 0 else [f'exit status {run.returncode}: {run.stderr}']
    if not problems:
        with open(path, encoding='utf-8') as f:
            problems, values = parse_exposition(f.read())
        if total(values, 'karst_up') != 1:
            problems.append('karst_up')
        if os.stat(path).st_mode & 0o777 != 0o644:
            problems.append('the node exporter may not read it')
    problems += [name for name in os.listdir(bed.folder) if name.startswith('.karst-')]
    tap.point('exporter: a text file', problems)
    run = bed.tool('karst-exporter', '--textfile', os.path.join(bed.folder, 'no', 'such'))
    tap.point('exporter: a folder that is not there', [] if run.returncode == 1 and
              'karst-exporter:' in run.stderr else [f'exit status {run.returncode}: {run.stderr}'])


def listening(tap, bed):
    """Also its answer when the daemon has ended; ends the daemon."""
    exporter = Exporter(bed)
    status, kind, text = exporter.get()
    problems, values = parse_exposition(text)
    if status != 200 or not kind.startswith('text/plain; version=0.0.4'):
        problems.append(f'{status} {kind}')
    if total(values, 'karst_up') != 1:
        problems.append('karst_up')
    if exporter.get(exporter.url.replace('metrics', 'secrets'))[0] != 404:
        problems.append('/secrets')
    tap.point('exporter: over HTTP', problems)
    where = exporter.url.split('/')[2]
    run = bed.tool('karst-exporter', '--listen', where)
    tap.point('exporter: an address that is taken', [] if run.returncode == 1 and
              run.stderr == f'karst-exporter: {where}: Address already in use\n' else
              [f'{run.returncode}: {run.stderr}'])
    problems = bed.daemon.stop()
    status, _, text = exporter.get()
    wrong, values = parse_exposition(text)
    if status != 200 or total(values, 'karst_up') != 0:
        problems.append(text)
    tap.point('exporter: a daemon that has gone', problems + wrong)
    exporter.end()


WRONG = [
    ('karst-top', ['-d', '0'], 'seconds from'), ('karst-top', ['-n', '0'], 'a number from'),
    ('karst-top', ['--sort', 'colour'], 'bytes'), ('karst-top', ['--colour'], '--colour'),
    ('karst-exporter', ['--listen', 'here'], 'ADDRESS:PORT'),
    ('karst-exporter', ['--interval', '5'], '--textfile'),
    ('karst-exporter', ['--once', '--textfile', 'x'], 'not allowed with'),
    ('karst-capture', ['--qp', '7'], '-w'), ('karst-capture', ['-w', 'x'], '--qp'),
    ('karst-capture', ['--qp', '16777216', '-w', 'x'], 'a number from 0 to 16777215'),
    ('karst-capture', ['--qp', '7', '-w', 'x', '--snaplen', '1'], 'a number from 64'),
]


def refused(tap, bed):
    for tool, words, text in WRONG:
        run = bed.tool(tool, *words)
        problems = [] if run.returncode == 2 and text in run.stderr else [
            f'exit status {run.returncode}: {run.stderr}']
        tap.point(f'refused: {tool} {" ".join(words)}', problems)
    run = bed.tool('karst-capture', '--qp', '99999', '-w', os.devnull)
    tap.point('refused: a queue pair that is not there', [] if run.returncode == 1 and
              'no queue pair 99999' in run.stderr else [f'{run.returncode}: {run.stderr}'])
    for tool, words in (('karst-top', ['--once']), ('karst-exporter', ['--once']),
                        ('karst-capture', ['--qp', '7', '-w', os.devnull])):
        run = bed.run(os.path.join(bed.usertools, tool), '--file-prefix', bed.name + '-not', *words)
        tap.point(f'no engine: {tool}', [] if run.returncode == 1 and
                  'no karst engine' in run.stderr else [f'{run.returncode}: {run.stderr}'])


def one_ends(tap, bed):
    """karst-top over two engines, of which one ends."""
    folder = os.path.join(bed.daemon.folder, 'two')
    os.mkdir(folder)
    two = []
    for name in ('stays', 'leaves'):
        two.append(Daemon(bed.daemon.command[0], folder, '[port loop]\ndevice = loopback\n', name=name))
        two[-1].command[:0] = ['env', f'RUNTIME_DIRECTORY={folder}']
    problems = two[0].start() + two[1].start()
    shown = subprocess.Popen([os.path.join(bed.usertools, 'karst-top'), '-b', '-d', '0.2'],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=dict(os.environ, XDG_RUNTIME_DIR=folder))
    try:
        problems += reads_until(shown, f'{two[1].name}  pid ') + two[1].stop()
        problems += reads_until(shown, f'{two[1].name} has ended')
        problems += reads_until(shown, f'{two[0].name}  pid ')
    finally:
        shown.kill()
        shown.communicate()
        for d in two:
            d.kill()
    tap.point('top: an engine that ends is told of, and the others go on', problems)


def reads_until(process, text):
    """Problems: it ends without having printed that."""
    for line in process.stdout:
        if line.startswith(text):
            return []
    return [f'"{text}" is not said: {process.stderr.read()}']


def congestion(tap, bed):
    """The current settings, and changing them."""
    def ask(params):
        return telemetry(bed, lambda engine: engine.telemetry.ask(
            f'/karst/congestion,{engine.name}{params}'))

    def wrong(answer, **want):
        return [f'{k}: {answer.get(k)} instead of {v}' for k, v in want.items() if answer.get(k) != v]

    tap.point('congestion: what adapters have by default', wrong(
        ask(''), mode='dcqcn', min_time_between_cnps=4, cnp_dscp=48, rpg_time_reset=300, rpg_gd=11,
        dce_tcp_g=1019, clamp_tgt_rate_after_time_inc=1))
    tap.point('congestion: some of it is set, and stays', wrong(
        ask(',rpg_ai_rate=40,rpg_hai_rate=400'), rpg_ai_rate=40, rpg_hai_rate=400, rpg_gd=11) +
        wrong(ask(''), rpg_ai_rate=40, rpg_hai_rate=400))
    for params, why in ((',rpg_ai_rate=1,rpg_gd=9', 'rpg_gd: a number from 10 to 15'),
                        (',rpg_speed=1', "unknown parameter 'rpg_speed'"),
                        (',rpg_gd', 'rpg_gd: a number'), (',rpg_gd=-11', 'rpg_gd: a number'),
                        (',rpg_byte_reset=5', 'rpg_byte_reset: 0, or 1024'),
                        (',swift_beta=1001', 'swift_beta: a number from 1 to 1000')):
        answer = ask(params)
        tap.point(f'congestion: refused: {params}', (
            [] if why in answer.get('error', '') else [str(answer)]) +
            wrong(ask(''), rpg_ai_rate=40, rpg_gd=11, rpg_byte_reset=32767))


def main(argv):
    if len(argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    sys.dont_write_bytecode = True
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(*argv[1:], folder)

        def run():
            for check in sums, while_running, textfile, refused, one_ends, congestion, strangers, listening:
                check(tap, bed)
        bed.points(tap, 'a daemon with a loopback port', run)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
