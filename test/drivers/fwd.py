#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst-fwd over real ports (TAP).

  fwd.py KARST_FWD CAPTURES

It generates into rings, net_impair and net_pcap, and what it counts is compared with what was sent, with the
injury log, and with what karst does not judge: zlib's CRC, and files that this program reads itself.
dpdk-testpmd is at the other end of a net_memif.
"""
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'common')]
sys.dont_write_bytecode = True
from bed import HANG_S, Tap  # noqa: E402
from testpmd import Testpmd  # noqa: E402
from pcap import read_pcap, write_pcap  # noqa: E402
import roce  # noqa: E402

LCORES = '0@0,1@0'
EAL = ['--no-huge', '-m', '128', '--no-pci', '--no-telemetry', '--no-shconf',
       '--log-level=*:error']
PROMPT = 'karst-fwd> '


def run(program, vdevs, words, lcores=LCORES, text=None):
    """@return exit status, standard output, standard error of a run that ends by itself."""
    command = [program, f'--lcores={lcores}', *EAL]
    for vdev in vdevs:
        command += ['--vdev', vdev]
    done = subprocess.run([*command, '--', '--idle=sleep', '--mbcache=32', *words], text=True,
                          input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=HANG_S, check=False)
    return done.returncode, done.stdout, done.stderr


def script(program, vdevs, commands, words=(), lcores=LCORES):
    """Runs the commands of a file.  @return problems, counters."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, 'commands'), os.path.join(folder, 'json')
        with open(path, 'w', encoding='utf-8') as f:
            f.write('\n'.join(commands) + '\nstop\n')
        status, said, errors = run(program, vdevs, [
            f'--cmdline-file={path}', f'--stats-json={out}', *words], lcores)
        if status or not os.path.exists(out):
            return [f'exit status {status}: {said[-1500:]} {errors[-1500:]}'], {}
        with open(out, encoding='utf-8') as f:
            return [], json.load(f)


class Fwd(Testpmd):
    """karst-fwd at its prompt."""

    def __init__(self, program, vdevs, words=()):
        command = ['stdbuf', '-o0', program, f'--lcores={LCORES}', *EAL]
        for vdev in vdevs:
            command += ['--vdev', vdev]
        self.process = subprocess.Popen(
            [*command, '--', '-i', '--idle=sleep', '--mbcache=32', *words], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        self.said = ''

    def command(self, text, until=''):
        """Waits for the prompt after it, so that no old prompt is taken for the next one."""
        since = len(self.said)
        self.process.stdin.write(text.encode() + b'\n')
        problems = self.wait(PROMPT, since)
        said = self.said[since:]
        if not problems and until not in said:
            problems = [f'"{until}" is not in {said}']
        return problems, said

    def ask(self, text):
        """The JSON of a command."""
        problems, said = self.command(text)
        if problems:
            raise OSError(problems[0])
        return json.loads(next(line for line in said.splitlines() if line[:1] in '{[' and line))


def expect(problems, found, wanted):
    """Compares: the members of @wanted must be equal in @found."""
    return problems or [f'{key}: {found.get(key)} and not {value}'
                        for key, value in wanted.items() if found.get(key) != value]


CLEAN = {'icrc_bad': 0, 'malformed': 0, 'other': 0, 'psn_gaps': 0, 'psn_missing': 0, 'psn_late': 0,
         'psn_repeated': 0, 'psn_restarts': 0, 'untracked': 0, 'nak': 0, 'rnr_nak': 0, 'cnp': 0}


# --- generator and checker ---

def generated(tap, program):
    """What is sent comes back through a ring, and is counted exactly."""
    cases = [
        ('RC WRITE of three packets', 'size=3000 flows=3 count=50 psn=0xffffa0',
         {'RC_WRITE_FIRST': 150, 'RC_WRITE_MIDDLE': 150, 'RC_WRITE_LAST': 150}, 3),
        ('UC SEND with immediate data, IPv6', 'transport=uc op=send-imm size=2000 count=40 '
         'src=2001:db8::1 dst=2001:db8::2', {'UC_SEND_FIRST': 40, 'UC_SEND_LAST_IMM': 40}, 1),
        ('UD SEND with a VLAN tag', 'transport=ud op=send size=33 flows=2 count=30 vlan=5',
         {'UD_SEND_ONLY': 60}, 2),
        ('READ', 'op=read size=9000 count=20', {'RC_READ_REQUEST': 20}, 1),
        ('atomics', 'op=cmp-swap count=20', {'RC_CMP_SWAP': 20}, 1),
    ]
    for name, template, opcodes, flows in cases:
        total = sum(opcodes.values())
        problems, found = script(program, ['net_ring0'], [
            'set fwd gen', 'set gen template ' + template, 'start', 'wait gen',
            f'wait rx {total}'])
        problems = expect(problems, found.get('roce', {}), {
            **CLEAN, 'frames': total, 'icrc_ok': total, 'by_opcode': opcodes, 'flows': flows})
        tap.point(f'gen: {name}', problems)
    problems, found = script(program, ['net_ring0'], [
        'set fwd gen', 'set gen template size=64 count=100', 'add gen template op=send size=9 count=50',
        'set gen rate 5kpps', 'start', 'wait gen', 'wait rx 150'])
    problems = expect(problems, found.get('latency', {}), {'samples': 100})
    gen = found.get('gen', {}).get('streams', [{}])[0]
    problems = expect(problems, gen, {'packets': 150, 'messages': 150, 'done': True})
    problems = expect(problems, gen.get('jitter', {}), {'samples': 150})
    problems = expect(problems, found.get('roce', {}), {
        'by_opcode': {'RC_WRITE_ONLY': 100, 'RC_SEND_ONLY': 50}})
    tap.point('gen: two templates at a rate, latency where payloads have room for a stamp', problems)


def figures(tap, program):
    """What the generator says of itself."""
    problems, found = script(program, ['net_ring0'], [
        'set fwd gen', 'set gen template size=64 count=64', 'start', 'wait gen', 'wait rx 64'], ['--burst=32'])
    if not problems:
        gen = found['gen']['streams'][0]
        # two bursts: within the time between them, one was sent
        for rate, wanted in (('pps', 32), ('bps', gen['bytes'] * 8 // 2)):
            sent = gen[rate] * gen['seconds']
            if abs(sent - wanted) > wanted / 100:
                problems.append(f'{sent} by {rate}, and not {wanted}: {gen}')
    tap.point('gen: the rate is that of the bursts but one', problems)
    with tempfile.TemporaryDirectory() as folder:
        fwd = Fwd(program, [f'net_memif0,role=server,socket={folder}/sock,socket-abstract=no'],
                  ['--forward-mode=gen', '--burst=32'])
        problems = fwd.wait(PROMPT) or fwd.command('start')[0]
        made = 0
        while not problems and not made:
            time.sleep(0.01)
            made = fwd.ask('show gen json')['streams'][0]['messages']
        problems = problems or expect(fwd.command('stop', 'Done.')[0], fwd.ask('show gen json')['streams'][0],
                                      {'packets': 0, 'bytes': 0, 'messages': 32})
        tap.point('gen: frames that the port has not taken are not counted', problems + fwd.stop())


def queues(tap, program):
    """Two ports on two lcores: each has flows of its own."""
    problems, found = script(program, ['net_ring0', 'net_ring1'], [
        'set fwd gen', 'set gen template size=100 count=25 flows=2', 'start', 'wait gen',
        'wait rx 100'], ['--nb-cores=0'], '0@0,1@0,2@0')
    problems = expect(problems, found.get('roce', {}), {
        **CLEAN, 'frames': 100, 'icrc_ok': 100, 'flows': 4})
    counts = [port['rx_packets'] for port in found.get('fwd', {}).get('ports', [])]
    problems = problems or ([] if counts == [50, 50] else [str(counts)])
    tap.point('gen: two ports, two lcores', problems)
    problems, found = script(program, ['net_ring0', 'net_ring1'], [
        'set fwd gen', 'set gen template size=100 count=10 flows=40', 'start', 'wait gen',
        'wait rx 800'], ['--flows=64'])
    problems = expect(problems, found.get('roce', {}), {
        **CLEAN, 'frames': 800, 'flows': 64, 'untracked': 160})
    tap.point('roce-check: flows that find no room are counted', problems)


RULES = '''
[impair]
seed = 3
[rule gone]
action = drop
direction = rx
psn = 100-104, 200, 300
[rule twice]
action = duplicate
direction = rx
psn = 400
[rule broken]
action = corrupt
direction = rx
part = payload
psn = 500, 501
[rule congested]
action = mark
direction = rx
psn = 600-609
[rule cut]
action = truncate
direction = rx
psn = 700
bytes = 20
[rule later]
action = reorder
direction = rx
psn = 800
packets = 3
time_us = 60000000
'''


def injured(tap, program):
    with tempfile.TemporaryDirectory() as folder:
        rules, log = os.path.join(folder, 'rules'), os.path.join(folder, 'log')
        with open(rules, 'w', encoding='utf-8') as f:
            f.write(RULES)
        problems, found = script(program, [
            'net_ring0', f'net_impair0,port=net_ring0,rules={rules},log={log}'], [
                'set fwd gen', 'set gen template size=256 count=1000', 'start', 'wait gen',
                'wait rx 994'])
        entries = []
        if os.path.exists(log):
            with open(log, encoding='utf-8') as f:
                entries = [json.loads(line) for line in f]
    hit = [e['action'] for e in entries if e.get('event') == 'injured']
    problems = problems or ([] if len(hit) == 7 + 1 + 2 + 10 + 1 + 1 else [f'{len(hit)} injuries: {hit}'])
    lost = hit.count('drop') + hit.count('corrupt') + hit.count('truncate')
    problems = expect(problems, found.get('roce', {}), {
        'frames': 1000 - hit.count('drop') + hit.count('duplicate'),
        'icrc_bad': hit.count('corrupt'), 'malformed': hit.count('truncate'), 'other': 0,
        'psn_missing': lost + hit.count('reorder'), 'psn_gaps': 3 + 1 + 1 + 1,
        'psn_late': hit.count('reorder'), 'psn_repeated': hit.count('duplicate'),
        'psn_restarts': 0, 'flows': 1})
    problems = problems or expect([], found['roce']['ecn'], {'ce': hit.count('mark')})
    tap.point('roce-check: what net_impair has done, and nothing else', problems)


# --- captures ---

def example(tap, program):
    """The example of the manual page loses what it says: one packet in a thousand.  It is as the page has it
    but for its lcores, its rate, and a seventh of its messages."""
    with open(os.path.join(HERE, '..', '..', 'doc', 'man', 'karst-fwd.1'), encoding='utf-8') as f:
        text = f.read().partition('loses one packet in a thousand:\n')[2].partition('\n.Ed\n')[0]
    rules, _, command = text.partition('$ cat rules\n')[2].partition('$ karst-fwd ')
    template = re.search("--gen-template '(.*)'", command)[1].replace('count=10000', 'count=1500')
    commands = [line[len(PROMPT):] for line in command.splitlines() if line.startswith(PROMPT)]
    commands = commands[:commands.index('stop')] # script() ends so
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'rules')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(rules)
        vdevs = [vdev.replace('rules=rules', f'rules={path}') for vdev in re.findall(r'--vdev (\S+)', command)]
        problems, found = script(program, vdevs, [*commands, 'wait rx 11900'], ['--forward-mode=gen', '--gen-template', template])
    sent = 2 * 1500 * 4
    problems = problems or expect([], found['roce'], {'frames': sent - sent // 1000})
    tap.point('the example of karst-fwd(1)', problems)


def frames_of(path):
    """The bytes of each frame of a capture."""
    return [frame for _, frame in read_pcap(path)[1]]


def manifest_counts(program, captures, name):
    """What karst-fwd counts in a capture that net_pcap reads."""
    path = os.path.join(captures, name)
    frames = len(frames_of(path))
    return frames, script(program, [f'net_pcap0,rx_pcap={path}'], [
        'set fwd roce-check', 'start', f'wait rx {frames}'], ['--mbuf-size=9000'])


def judged(tap, program, captures):
    """Captures of Linux peers, whose impairments are known."""
    cases = [
        ('rc_pingpong_mtu1024_s4096.pcap', {**CLEAN}, {}),
        ('vt_psn_wrap.pcap', {'icrc_bad': 0, 'malformed': 0, 'psn_gaps': 0, 'psn_restarts': 0}, {}),
        # Linux's own way to compute the ICRC of FLUSH (L7)
        ('vt_flush.pcap', {'icrc_bad': 2, 'malformed': 0}, {}),
        ('loss_nak.pcap', {'icrc_bad': 0, 'malformed': 0}, {'nak'}),
        ('vt_rnr.pcap', {'icrc_bad': 0, 'malformed': 0, 'nak': 0}, {'rnr_nak'}),
        ('vt_vlan.pcap', {'icrc_bad': 0, 'malformed': 0, 'psn_gaps': 0}, {'icrc_ok'}),
        ('rc_pingpong_ipv6.pcap', {**CLEAN, }, {'icrc_ok'}),
        ('uc_pingpong_s4099.pcap', {'icrc_bad': 0, 'malformed': 0, 'psn_gaps': 0}, {'icrc_ok'}),
    ]
    for name, wanted, some in cases:
        frames, (problems, found) = manifest_counts(program, captures, name)
        found = found.get('roce', {})
        wanted = {key: value for key, value in wanted.items() if key != 'other'}
        problems = expect(problems, found, {**wanted, 'frames': frames})
        problems += [f'no {key}' for key in some if not problems and not found[key]]
        tap.point(f'roce-check: {name}', problems)


def played(tap, program, captures):
    """A capture is sent with other addresses, and with ICRCs that zlib confirms."""
    source = os.path.join(captures, 'rc_pingpong_mtu1024_s4096.pcap')
    frames = frames_of(source)
    with tempfile.TemporaryDirectory() as folder:
        sink = os.path.join(folder, 'out.pcap')
        problems, found = script(program, [f'net_pcap0,tx_pcap={sink}'], [
            'set fwd gen', f'set gen pcap file={source} src=198.51.100.7 dst=198.51.100.8 '
            'smac=02:00:00:00:00:07 dmac=02:00:00:00:00:08 loops=2', 'start', 'wait gen'],
            ['--mbuf-size=9000'])
        sent = frames_of(sink) if os.path.exists(sink) else []
    gen = found.get('gen', {})
    problems = problems or ([] if len(sent) == 2 * len(frames) else
                            [f'{len(sent)} frames of {len(frames)}, twice'])
    pairs = set()
    rc = 0
    for was, now in zip(frames * 2, sent):
        try:
            old, new = roce.parse(was), roce.parse(now)
        except ValueError as error:
            problems.append(f'{now.hex()}: {error}')
            break
        if old is None or new is None:
            if (old is None) != (new is None) or was != now:
                problems.append(f'{was.hex()} became {now.hex()}')
            continue
        rc += 1
        pairs.add((new[0], new[1], now[6:12].hex(), now[0:6].hex()))
        if old[2] != new[2]:
            problems.append(f'{was.hex()} became {now.hex()}')
    seven, eight = ('198.51.100.7', '020000000007'), ('198.51.100.8', '020000000008')
    wanted = {(seven[0], eight[0], seven[1], eight[1]), (eight[0], seven[0], eight[1], seven[1])}
    if not problems and pairs != wanted:
        problems.append(f'addresses are {pairs}')
    if not problems and 2 * gen.get('capture_roce', 0) != rc:
        problems.append(f'{rc} RoCEv2 frames, and {gen}')
    tap.point('gen: a capture with other addresses and right ICRCs', problems[:3])
    wrong = os.path.join(captures, 'vt_flush.pcap')
    problems, found = script(program, ['net_ring0'], [
        'set fwd gen', f'set gen pcap file={wrong}', 'start', 'wait gen',
        f'wait rx {len(frames_of(wrong))}'], ['--mbuf-size=9000'])
    problems = problems or ([] if found['gen']['capture_icrc_mended'] == 2 and
                            found['roce']['icrc_bad'] == 0 else [str(found['gen'])])
    tap.point('gen: a wrong ICRC of a capture is made right', problems)


def bad_captures(tap, program, captures):
    good = os.path.join(captures, 'rping.pcap')
    with tempfile.TemporaryDirectory() as folder:
        cut, text = os.path.join(folder, 'cut.pcap'), os.path.join(folder, 'text')
        with open(good, 'rb') as f:
            data = f.read()
        with open(cut, 'wb') as f:
            f.write(data[:-5])
        with open(text, 'w', encoding='utf-8') as f:
            f.write('this is none')
        cases = [
            (f'file={cut}', 'damaged behind frame'),
            (f'file={text}', 'not a pcap or pcapng file'),
            (f'file={folder}/none', f'--gen-pcap: {folder}/none: No such file'),
            (f'file={good} src=2001:db8::1', 'src: the first RoCEv2 frame of'),
            (f'file={good} src=2001:db8::1 dst=2001:db8::2', 'an IPv4 address is allowed'),
            (f'file={os.path.join(captures, "native_ib.pcap")}', 'Ethernet is allowed'),
            (f'file={good} src=1.2.3', 'allowed: file=PATH'),
            (f'file={good} src=1.2.3.4 dst=2001:db8::1', 'of one kind'),
            ('loops=1', 'no file'),
            (f'file={good} speed=9', 'allowed: file=PATH'),
        ]
        for words, wanted in cases:
            status, _, errors = run(program, ['net_ring0'], ['--forward-mode=gen', f'--gen-pcap={words}'])
            tap.point(f'--gen-pcap: {wanted.replace(folder, "")}', [] if status == 2 and wanted in errors else
                      [f'exit status {status}: {errors}'])


# --- reflect, mac, sink ---

def end_beside(problems, far, near):
    """Stops @far before @near: of 25 testpmds that went on polling a net_memif whose peer had
    ended, 3 ended with SIGSEGV.  @return problems, added to the earlier ones"""
    problems = problems or far.command('stop', 'Done.')[0]
    return problems + near.stop() + far.stop()


def reflected(tap, program):
    """Two programs, one asks and the other answers, over net_memif."""
    with tempfile.TemporaryDirectory() as folder:
        sock = os.path.join(folder, 'sock')
        far = Fwd(program, [f'net_memif0,role=server,id=0,socket={sock},socket-abstract=no'],
                  ['-a', '--forward-mode=reflect'])
        problems = far.wait(PROMPT)
        near = Fwd(program, [f'net_memif0,role=client,id=0,socket={sock},socket-abstract=no'],
                   ['--forward-mode=gen'])
        problems += near.wait(PROMPT)
        cases = [
            ('RC SEND', 'op=send size=2000 count=30', 30, {'RC_ACK': 30}),
            ('READ', 'op=read size=3000 count=10', 30, {
                'RC_READ_RESP_FIRST': 10, 'RC_READ_RESP_MIDDLE': 10, 'RC_READ_RESP_LAST': 10}),
            ('atomics', 'op=fetch-add count=10', 10, {'RC_ATOMIC_ACK': 10}),
            ('UD', 'transport=ud op=send size=100 count=20', 20, {'UD_SEND_ONLY': 20}),
        ]
        end = time.monotonic() + HANG_S
        while not problems and near.ask('show port info 0 json')['link'] != 'up':
            time.sleep(0.05)
            if time.monotonic() > end:
                problems = ['no link']
        for name, template, total, opcodes in cases:
            if not problems:
                near.command(f'set gen template {template}')
                near.command('start', 'streams=1')
                problems = near.command(f'wait rx {total}')[0]
                problems = problems or expect([], near.ask('show roce json'), {
                    **CLEAN, 'frames': total, 'icrc_ok': total, 'by_opcode': opcodes})
                if name == 'UD':
                    problems = problems or expect([], near.ask('show latency json'), {'samples': 20})
                near.command('stop', 'Done.')
            tap.point(f'reflect: {name}', problems)
        tap.point('both end', end_beside([], far, near))


def odd_requests(tap, program):
    """What reflect makes of requests that have what an answer must not have: an answer that is right, or none."""
    a, b, group = b'\x02\0\0\0\0\x01', b'\x02\0\0\0\0\x02', b'\x01\0\x5e\x01\x01\x01'
    send = roce.bth(4, 0x22, 5) + b'abcd'
    datagram = roce.bth(0x64, 0xffffff, 1) + struct.pack('>II', 0x11111111, 0x33) + b'abcd'
    reserved = send[:4] + b'\x3f' + send[5:8] + b'\xff' + send[9:]
    cases = [('reserved bits', b, a, reserved, 0, 64, 1), ('a CE mark', b, a, send, 3, 64, 1),
             ('a last hop', b, a, send, 2, 1, 1), ('a group of RC', group, a, send, 0, 64, 0),
             ('a group of datagrams', group, a, datagram, 0, 64, 0), ('a group as its source', b, b'\xff' * 6, send, 0, 64, 0)]
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = os.path.join(folder, 'in.pcap'), os.path.join(folder, 'out.pcap')
        for name, to, origin, ib, tos, ttl, n in cases:
            f = bytearray(roce.frame(to, origin, '192.0.2.1', '224.1.1.1' if to == group else '192.0.2.2', ib))
            f[15], f[22], f[24:26] = tos, ttl, bytes(2)
            f[24:26] = struct.pack('>H', roce.ones_sum(bytes(f[14:34])))
            write_pcap(asked, 1, [(10**18, bytes(f))])
            problems, _ = script(program, [f'net_pcap0,rx_pcap={asked},tx_pcap={answered}'], [
                'set fwd reflect', 'start', 'wait rx 1'])
            answers = [frame for _, frame in read_pcap(answered)[1]] if not problems else []
            if len(answers) != n:
                problems.append(f'{len(answers)} answers, not {n}')
            for g in answers:
                # traffic class, time to live, reserved bits of the BTH
                found = (g[15] & 3, g[22], g[46] & 0x3f, g[50] & 0x7f)
                if found != (2 if tos else 0, 64, 0, 0):
                    problems.append(f'{found}')
            tap.point(f'reflect: a request with {name}', problems)


def beside_testpmd(tap, program):
    """testpmd forwards what the generator sends back to it."""
    with tempfile.TemporaryDirectory() as folder:
        sock = os.path.join(folder, 'sock')
        pmd = Testpmd('--lcores=0,1@0', '--no-huge', '-m', '128', '--no-pci', '--no-telemetry',
                      '--no-shconf', '--vdev',
                      f'net_memif0,role=server,id=0,socket={sock},socket-abstract=no', '--', '-i',
                      '--total-num-mbufs=4096', '--forward-mode=io', '--port-topology=loop',
                      '--no-flush-rx')
        problems = pmd.start()
        near = Fwd(program, [f'net_memif0,role=client,id=0,socket={sock},socket-abstract=no'],
                   ['--forward-mode=gen', '--gen-template=size=2500 flows=4 count=50'])
        problems += near.wait(PROMPT)
        for command, until in (('start', 'streams=1'), ('wait gen', ''), ('wait rx 600', '')):
            problems = problems or near.command(command, until)[0]
        problems = problems or expect([], near.ask('show roce json'), {
            **CLEAN, 'frames': 600, 'icrc_ok': 600, 'flows': 4})
        problems = problems or near.command('stop', 'Done.')[0]
        tap.point('testpmd gives back all that was generated', end_beside(problems, pmd, near))


def forwarded(tap, program):
    """io, mac and sink, into files."""
    frames = [roce.frame(b'\2\0\0\0\0\1', b'\2\0\0\0\0\2', '192.0.2.1', '192.0.2.2',
                         roce.bth(roce.RC_WRITE_ONLY, 5, psn) + bytes(80)) for psn in range(100)]
    frames.append(b'\xff' * 12 + b'\x08\x06' + bytes(46))
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, 'in.pcap')
        write_pcap(source, 1, [(0, frame) for frame in frames])
        for mode in ('io', 'roce-check', 'mac', 'sink'):
            sink = os.path.join(folder, f'{mode}.pcap')
            problems, found = script(program, [f'net_pcap0,rx_pcap={source},tx_pcap={sink}'], [
                f'set fwd {mode}', 'set eth-peer 0 02:00:00:00:00:aa', 'start',
                f'wait rx {len(frames)}'])
            sent = frames_of(sink) if os.path.exists(sink) else []
            wanted = [] if mode == 'sink' else frames
            if mode == 'mac':
                own = bytes.fromhex(port_mac(program, source))
                wanted = [b'\2\0\0\0\0\xaa' + own + frame[12:] for frame in frames]
            if not problems and sent != wanted:
                problems = [f'{len(sent)} frames, {len(wanted)} wanted; {sent[:1]} {wanted[:1]}']
            if mode == 'roce-check':
                problems = expect(problems, found.get('roce', {}), {
                    'frames': 101, 'icrc_ok': 100, 'other': 1, 'psn_gaps': 0})
            tap.point(f'{mode}: into a file', problems)


def port_mac(program, source):
    """net_pcap's own address."""
    _, said, _ = run(program, [f'net_pcap0,rx_pcap={source}'], ['-i'],
                     text='show port info 0 json\nquit\n')
    return re.search(r'"mac":"([^"]*)"', said).group(1).replace(':', '')


# --- prompt ---

def mistakes(tap, program):
    cases = [
        (['--nonsense'], 'not known'),
        (['--burst=0'], 'from 1 to 512'),
        (['--burst=9x'], 'from 1 to 512'),
        (['--forward-mode=rxonly'], 'io|mac|sink|roce-check|reflect|gen'),
        (['--port-topology=ring'], 'paired chained loop'),
        (['--rxq=2', '--txq=1'], 'not less than --rxq'),
        (['--rxq=64'], 'are allowed'),
        (['--portmask=0'], 'hexadecimal mask'),
        (['--portmask=80'], 'ports that DPDK does not know'),
        (['--eth-peer=0'], 'PORT,XX:XX'),
        (['--idle=nap'], 'poll yield sleep'),
        (['--gen-template=op=jump'], 'op=jump: allowed'),
        (['--gen-rate=1'], 'allowed'),
        (['--reflect-mtu=1000'], '4096 is allowed'),
        (['--flows=0'], 'from 1 to'),
        (['--rxq'], 'needs a value'),
        (['word'], 'none is allowed'),
        (['--cmdline-file=/nonexistent'], 'No such file'),
        (['--forward-mode=gen', '--gen-template=size=9000 mtu=4096', '--mbuf-size=2176'],
         '--mbuf-size'),
    ]
    for words, wanted in cases:
        status, _, errors = run(program, ['net_ring0'], words)
        tap.point(' '.join(words), [] if status in (1, 2) and wanted in errors else
                  [f'exit status {status}: {errors}'])
    done = subprocess.run([program, *EAL, '--lcores=0@0', '--vdev', 'net_ring0', '--'],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          timeout=HANG_S)
    tap.point('one lcore', [] if done.returncode == 2 and 'at least one more' in done.stderr
              else [done.stderr])
    with tempfile.NamedTemporaryFile('w', encoding='utf-8') as rules:
        rules.write('[rule lost]\naction = lose\n')
        rules.flush()
        status, _, errors = run(program, ['net_ring0', f'net_impair0,port=net_ring0,rules={rules.name}'], [])
    tap.point('a device that is not made is not gone around', [] if status == 2 and
              'action = "lose"' in errors and 'there is no port net_impair0' in errors else
              [f'exit status {status}: {errors}'])
    status, _, errors = run(program, [], [])
    tap.point('no port', [] if status == 2 and 'knows no port' in errors else [errors])


def commands(tap, program):
    fwd = Fwd(program, ['net_ring0'])
    problems = fwd.wait(PROMPT)
    cases = [
        ('help', ['start tx_first N', 'show port stats|xstats|info', 'set gen pcap']),
        ('help template', ['transport', 'rc|uc|ud']),
        ('jump', ["'jump'", 'allowed: help start stop']),
        ('set fwd rxonly', ['set fwd io|mac|sink|roce-check|reflect|gen']),
        ('show port stats 9', ['no such port']),
        ('set burst 1000', ['from 1 to 512']),
        ('set gen template size=x', ['size=x: allowed']),
        ('set gen template transport=rc|uc', ['transport=rc|uc: allowed']),
        ('set gen template op=send|send-imm', ['op=send|send-imm: allowed']),
        ('set gen rate 0X10kbps', ['is allowed, from 1 kbps']),
        ('set gen rate nanbps', ['is allowed, from 1 kbps']),
        ('set eth-peer 0 nonsense', ['is allowed']),
        ('start tx_first 0', ['from 1 to 65535']),
        ('wait gen', ['does not run']),
        ('stop', ['not being forwarded']),
        ('start tx_first 2', ['io packet forwarding']),
        ('set fwd mac', ["'stop' first"]),
        ('start', ['already']),
        ('wait rx 1000', []),
        ('show port xstats 0', ['rx_good_packets']),
        ('show config', ['idle', 'sleep']),
        ('stop', ['Done.']),
    ]
    for text, wanted in cases:
        if not problems:
            problems, said = fwd.command(text)
            problems = problems or [f'"{word}" is not in {said}' for word in wanted
                                    if word not in said]
        tap.point(f'command: {text}', problems)
    tap.point('the prompt ends', fwd.stop())


def in_succession(tap, program):
    """Commands that come one right after the other, and starts that fail; JSON is valid after all
    of it."""
    fwd = Fwd(program, ['net_ring0', 'net_ring1'], ['--mbuf-size=1024'])
    problems = fwd.wait(PROMPT)
    for _ in range(50):
        for command in ('set fwd gen', 'set gen template size=64 count=5 flows=3', 'start', 'stop',
                        'set fwd roce-check', 'start tx_first', 'clear port stats all', 'stop'):
            problems = problems or fwd.command(command)[0]
        if problems:
            break
        everything = fwd.ask('show all json')
        if everything['fwd']['running'] or len(everything['ports']) != 2:
            problems = [str(everything)]
    tap.point('commands in quick succession', problems)
    problems = problems or fwd.command('set fwd gen')[0]
    problems = problems or fwd.command('set gen template size=4096 mtu=4096')[0]
    problems = problems or fwd.command('start', 'not started')[0]
    said = fwd.ask('show all json')['fwd'] if not problems else {}
    tap.point('a start that fails has forwarded nothing, for no time', expect(problems, said, {
        'running': False, 'seconds': 0, 'rx_packets': 0, 'ports': [
            {'port': port, 'rx_packets': 0, 'tx_packets': 0, 'tx_dropped': 0} for port in (0, 1)]}))
    tap.point('the prompt ends after that', problems + fwd.stop())


def cut_captures(tap, program, captures):
    """A capture that ends anywhere, or is of another link type, is played up to there or refused in
    words."""
    fwd = Fwd(program, ['net_ring0'])
    problems = fwd.wait(PROMPT)
    with open(os.path.join(captures, 'rping.pcap'), 'rb') as f:
        data = f.read()[:1000]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'cut.pcap')

        def says(cut, pattern):
            with open(path, 'wb') as f:
                f.write(cut)
            problems, said = fwd.command(f'set gen pcap file={path}')
            return problems or ([] if re.search(pattern, said) else [f'{len(cut)} bytes: {said}'])
        for length in [*range(100), *range(100, len(data), 17)]:
            problems = problems or says(data[:length], r'capture: |\d+ frames')
        tap.point('gen: a capture that is cut at any place', problems)
        for link in (0, 101, 105, 113, 127, 276, 999):
            problems = problems or says(data[:20] + struct.pack('<I', link) + data[24:],
                                        r'link type \d+ \(\w+\); Ethernet is allowed')
    tap.point('gen: captures of other link types', problems + fwd.stop())


def completion(tap, program):
    """At a terminal, as users have it."""
    master, slave = pty.openpty()
    process = subprocess.Popen([program, f'--lcores={LCORES}', *EAL, '--vdev', 'net_ring0', '--', '-i',
                                '--idle=sleep'],
                               stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    said = ['']

    def until(text, since):
        end = time.monotonic() + HANG_S
        while text not in said[0][since:]:
            if time.monotonic() > end:
                return [f'"{text}" does not come: {said[0]}']
            if select.select([master], [], [], 1)[0]:
                try:
                    said[0] += os.read(master, 4096).decode(errors='replace')
                except OSError:
                    return [f'it has ended: {said[0]}']
        return []
    problems = until(PROMPT, 0)
    for keys, wanted in ((b'sh\t', 'ow '), (b'\x01\x0bset fwd ro\t', 'ce-check'),
                         (b'\x01\x0bset fwd \t', 'reflect'), (b'\x01\x0bset gen ?', 'template')):
        since = len(said[0])
        os.write(master, keys)
        problems = problems or until(wanted, since)
        tap.point(f'completion of {keys!r}', problems)
    os.write(master, b'\x01\x0bquit\n')
    while not problems and process.poll() is None:
        if select.select([master], [], [], 1)[0]:
            try:
                os.read(master, 4096)
            except OSError:
                break
    try:
        status = process.wait(HANG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    os.close(master)
    tap.point('quit', problems + ([f'exit status {status}'] if status else []))


def files(tap, program):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'commands')
        with open(path, 'w', encoding='utf-8') as f:
            f.write('# a comment\n\nset fwd mac\njump\nquit\n')
        status, said, errors = run(program, ['net_ring0'], [f'--cmdline-file={path}'])
        tap.point('a mistake in a command file is named with its line', [] if status == 1 and
                  f'{path}:4:' in errors and 'allowed: help' in said else [said + errors])


def odd_files(tap, program):
    """Command files that are invalid, or never end."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'commands')
        cases = [
            ('itself', f'load {path}\n'.encode(), 'up to 8 deep'),
            ('a long line', b' ' * 4090 + b'jump quit\nset fwd mac\n', f'{path}:1: this line is too long'),
            ('a line that has no end', b'help\n' + b'x' * (1 << 20), f'{path}:2: this line is too long'),
            ('a NUL byte', b'help\nset\0fwd mac\n', f'{path}:2: a NUL byte'),
        ]
        for what, data, wanted in cases:
            with open(path, 'wb') as f:
                f.write(data)
            status, said, errors = run(program, ['net_ring0'], [f'--cmdline-file={path}'])
            tap.point(f'a command file with {what} is refused',
                      [] if status == 1 and wanted in errors and 'jump' not in said
                      else [f'exit status {status}: {said[-1500:]} {errors[-1500:]}'])
        with open(path, 'wb') as f:
            f.write(b'set fwd roce-check' + b' ' * 4076 + b'\nshow config')
        status, said, errors = run(program, ['net_ring0'], [f'--cmdline-file={path}'])
        tap.point('lines of 4094 characters, and one without an end, are carried out',
                  [] if status == 0 and re.search(r'mode +roce-check', said)
                  else [f'exit status {status}: {said[-1500:]} {errors[-1500:]}'])
        status, _, errors = run(program, ['net_ring0'], [f'--cmdline-file={folder}'])
        tap.point('a folder is no command file',
                  [] if status == 1 and 'Is a directory' in errors else [errors])


def typed(tap, program):
    """Lines that are longer than the prompt accepts are not executed in part."""
    fwd = Fwd(program, ['net_ring0'])
    problems = fwd.wait(PROMPT)
    for text, wanted in (('set fwd mac' + ' ' * 501, 'Set mac packet forwarding mode'),
                         ('set fwd sink' + ' ' * 501, 'too long'),
                         ('set gen template ' + 'psn=1 ' * 82 + 'psn=12345', 'too long'),
                         ('x' * 100000, 'too long')):
        if not problems:
            problems, said = fwd.command(text, wanted)
            if 'too long' in wanted and 'Set ' in said:
                problems.append(said)
        tap.point(f'typed: {text[:20]}... of {len(text)} characters', problems)
    problems = problems or fwd.command('show config', 'mac')[0]
    tap.point('what was too long has changed nothing', problems + fwd.stop())


def without_prompt(program, name, words):
    """The interface is removed while it is the only port of a program without a prompt.  @return
    problems, if that does not end with status 1."""
    made = subprocess.run(['ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', f'{name}p'],
                          check=False)
    if made.returncode:
        return ['no interface']
    for end in ('', 'p'):
        subprocess.run(['ip', 'link', 'set', f'{name}{end}', 'up'], check=True)
    process = subprocess.Popen(
        ['stdbuf', '-o0', program, f'--lcores={LCORES}', *EAL, '--vdev', f'net_kport0,iface={name}', '--',
         '--idle=sleep', '--mbcache=32', '--stats-period=1', *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        process.stdout.read(1) # of the first period: it forwards
        subprocess.run(['ip', 'link', 'del', name], check=True)
        said = process.communicate(timeout=HANG_S)[0].decode()
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ['it does not end']
    if process.returncode != 1:
        return [f'exit status {process.returncode}: {said[-1500:]}']
    return []


def vanishing(tap, program):
    """One of two kernel interfaces is removed while frames are forwarded."""
    name = f'fwd{os.getpid() % 100000}'
    for i in '01':
        made = subprocess.run(['ip', 'link', 'add', f'{name}{i}', 'type', 'veth', 'peer', 'name',
                               f'{name}{i}p'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, text=True)
        if made.returncode:
            tap.skip('a port that goes', 'no interface: ' + made.stdout.strip())
            return
        for end in ('', 'p'):
            subprocess.run(['ip', 'link', 'set', f'{name}{i}{end}', 'up'], check=True)
    try:
        fwd = Fwd(program, [f'net_kport{i},iface={name}{i}' for i in '01'] + ['net_ring0'],
                  ['--port-topology=loop'])
        problems = fwd.wait(PROMPT)
        if not problems:
            problems = fwd.command('start tx_first', 'streams=3')[0]
        if not problems:
            subprocess.run(['ip', 'link', 'del', f'{name}0'], check=True)
            problems = fwd.wait('(net_kport0) is gone')
        if not problems:
            rx = fwd.ask('show fwd stats all json')['ports'][2]['rx_packets']
            problems = fwd.command(f'wait rx {rx + 1000}')[0]
        if not problems and not fwd.ask('show port info 0 json')['gone']:
            problems = ['it is not gone']
        if not problems:
            problems = fwd.command('stop', 'Done.')[0]
        tap.point('a port that goes is reported, and the others go on', problems)
        for mode, start in (('gen', 'start'), ('reflect', 'start'), ('mac', 'start tx_first')):
            for command in (f'set fwd {mode}', start, 'clear port stats all', 'clear port xstats 0',
                            'show port xstats all', 'stop'):
                problems = problems or fwd.command(command)[0]
            gone = [port['gone'] for port in fwd.ask('show all json')['ports']] if not problems else []
            problems = problems or ([] if gone == [True, False, False] else [str(gone)])
        tap.point('what is started beside a port that is gone', problems + fwd.stop())
        fwd = Fwd(program, [f'net_kport1,iface={name}1'])
        problems = fwd.wait(PROMPT) or fwd.command('start', 'streams=1')[0]
        if not problems:
            since = len(fwd.said)
            fwd.process.stdin.write(b'wait rx 1000000000\n')
            subprocess.run(['ip', 'link', 'del', f'{name}1'], check=True)
            problems = fwd.wait('wait rx: all ports are gone', since) or fwd.wait(PROMPT, since)
        for command in ('stop', 'set fwd gen', 'set gen rate 10pps', 'start'):
            problems = problems or fwd.command(command)[0]
        problems = problems or fwd.command('wait gen', 'wait gen: port 0 is gone')[0]
        tap.point('who waits for packets of ports that are gone is told', problems + fwd.stop())
        for mode, words in (('gen', ['--gen-rate=10pps']), ('mac', [])):
            tap.point(f'a program without a prompt whose port goes fails: {mode}',
                      without_prompt(program, f'{name}2', [f'--forward-mode={mode}', *words]))
    finally:
        for i in '012':
            subprocess.run(['ip', 'link', 'del', f'{name}{i}'], check=False, stderr=subprocess.DEVNULL)


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, captures = argv[1:]
    tap = Tap()
    generated(tap, program)
    figures(tap, program)
    queues(tap, program)
    injured(tap, program)
    example(tap, program)
    judged(tap, program, captures)
    played(tap, program, captures)
    bad_captures(tap, program, captures)
    forwarded(tap, program)
    reflected(tap, program)
    odd_requests(tap, program)
    beside_testpmd(tap, program)
    mistakes(tap, program)
    commands(tap, program)
    in_succession(tap, program)
    cut_captures(tap, program, captures)
    completion(tap, program)
    files(tap, program)
    odd_files(tap, program)
    typed(tap, program)
    vanishing(tap, program)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
