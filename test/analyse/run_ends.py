#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""run_ends.py KARST_DUMP: karst-dump --analyse --ends on forged captures of two ends (TAP).

A conversation is forged as it was sent.  A simulated network with a clock at each end makes two
captures of it.  The tool has to report what that network did.
"""
import json
import os
import random
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'captures'), os.path.join(HERE, '..', 'common')]
sys.dont_write_bytecode = True
from forge import A, B, EPOCH_NS, ONLY, Wire  # noqa: E402
import roce  # noqa: E402
from pcap import write_pcap  # noqa: E402
from tap import Tap, run  # noqa: E402

DUMP = sys.argv[1]
ENDS = A + ',' + B


class Network:
    """What happens to frames, by their index in the conversation.  @ahead_ns, @ppm: difference and
    drift of B's clock."""

    def __init__(self, wire, lost=(), damaged=(), doubled=(), late=None, delay_us=1, ahead_ns=0, ppm=0, skip=None):
        self.captures = [[], []]
        sent = [0, 0]
        self.lost, self.damaged = [[], []], [[], []]
        late = late or {}
        for i, (ns, frame) in enumerate(wire.frames):
            end = 0 if frame[26:30] == bytes((192, 0, 2, 1)) else 1
            key = (ns, 0, i)
            self.captures[end].append((key, frame))
            if i in lost:
                self.lost[end].append(key)
                continue
            if i in damaged:
                self.damaged[end].append(key)
                frame = frame[:-1] + bytes((frame[-1] ^ 1,))
            there = ns + int(1000 * (delay_us(i) if callable(delay_us) else delay_us)) + 1000 * late.get(i, 0)
            for copy in range(1 + (i in doubled)):
                self.captures[1 - end].append(((there + copy * 60000, 1, i), frame))
            sent[end] += 1
        for frames in self.captures:
            frames.sort()
        # cut off what a capture does not cover before packets are numbered
        if skip:
            end, begin_us, stop_us = skip
            self.captures[end] = [f for f in self.captures[end]
                                  if begin_us * 1000 <= f[0][0] - EPOCH_NS < stop_us * 1000]
        numbers = [{f[0]: n + 1 for n, f in enumerate(frames)} for frames in self.captures]
        for found in (self.lost, self.damaged):
            for end in (0, 1):
                found[end] = sorted(numbers[end][key] for key in found[end] if key in numbers[end])
        self.captures[1] = [((int(key[0] + ahead_ns + (key[0] - EPOCH_NS) * ppm / 1e6),), frame)
                            for key, frame in self.captures[1]]

    def write(self, tmp):
        paths = [os.path.join(tmp, name) for name in ('a.pcap', 'b.pcap')]
        for path, frames in zip(paths, self.captures):
            write_pcap(path, 1, [(key[0], frame) for key, frame in frames], nano=True)
        return paths


def judge(tmp, network):
    """@return (exit status, reports of A and of B, what is between them, standard error)"""
    status, out, err = run(DUMP, '--analyse', '--json', '--ends', ENDS, *network.write(tmp))
    reports = [json.loads(line) for line in out.splitlines()]
    return status, reports[:2], reports[2] if len(reports) == 3 else None, err


def wrong(between, network, unsure=(0, 0), **counts):
    """List the differences from what the network did.  @counts: expected values of both directions,
    by name.  @unsure: maximum number of packets that may remain unsure."""
    if between is None:
        return ['no report']
    problems = []
    for end, way in enumerate(between['directions']):
        which = way.get('cannot_tell_which_packets', [])
        if len(which) > unsure[end]:
            problems.append('cannot tell which of %s: %s' % (way['src'], which))
        if way['sent'] != way['arrived'] + way['lost'] + way['cannot_tell']:
            problems.append('%s: %s' % (way['src'], way))
        for name in ('lost', 'damaged'):
            want = getattr(network, name)[end]
            found = way[name + '_packets']
            if way[name] != len(found) or not set(found) <= set(want) or not set(want) <= set(found + which):
                problems.append('%s of %s: %s, not %s' % (name, way['src'], found, want))
            if way[name] + (way['cannot_tell_which_' + name] if which else 0) != len(want):
                problems.append('%s of %s: %s, not %d' % (name, way['src'], way, len(want)))
        for name, both in counts.items():
            if way[name] != both[end]:
                problems.append('%s of %s: %d, not %d' % (name, way['src'], way[name], both[end]))
    return problems


def conversation(n=400):
    """SENDs and their ACKs, 100 us apart."""
    w = Wire()
    for _ in range(n):
        w.wait(100).send()
    return w


def test_clocks(tmp):
    """Any difference of the clocks, even such that the times of the two captures do not overlap."""
    problems = []
    for ahead_ns, ppm in ((0, 0), (3_700_000_000, 0), (-250_000_000, 0), (7_200_000_000_000, 0), (40_000, 80),
                          (-10**15, -120)):
        net = Network(conversation(), lost=(10, 11, 300, 501), ahead_ns=ahead_ns, ppm=ppm)
        _, _, between, err = judge(tmp, net)
        problems += wrong(between, net, sent=(400, 400), arrived=(398, 398), cannot_tell=(0, 0))
        if between and (abs(between['clock_ahead_s'] - ahead_ns / 1e9) > 20e-6 or
                        abs(between['clock_drift'] * 1e6 - ppm) > 20):
            problems.append('%s %s: %s' % (ahead_ns, ppm, between))
        if err:
            problems.append('%s: %s' % (ahead_ns, err))
    return problems


def test_delays(tmp):
    net = Network(conversation(), delay_us=lambda i: 7 + i % 5)
    _, _, between, _ = judge(tmp, net)
    for way in between['directions']:
        if abs(way['delay_ns']['min'] - 7000) > 600 or abs(way['delay_ns']['max'] - 11000) > 600:
            return [str(way['delay_ns'])]
    return []


def test_sent_again(tmp):
    """Of a packet and its identical retransmission, the first one is lost, or the second one, or
    the acknowledgement of the first."""
    problems = []
    for lost in (0, 1, 2):
        w = conversation(50)
        first = len(w.frames)
        w.wait(100).request(ONLY, w.psn, b'karst')
        ack = None
        if lost == 2:
            w.wait(20)
            ack = len(w.frames)
            w.msn += 1
            w.ack(w.psn)
        w.wait(4000).request(ONLY, w.psn, b'karst')
        second = len(w.frames) - 1
        w.psn += 1
        w.msn += lost != 2
        w.wait(20).ack(w.psn - 1)
        for _ in range(50):
            w.wait(100).send()
        net = Network(w, lost=({first}, {second}, {ack})[lost], delay_us=5, ahead_ns=10**9)
        _, _, between, _ = judge(tmp, net)
        problems += wrong(between, net, doubled=(0, 0), not_in_senders_capture=(0, 0))
    return problems


def slow(i):
    """A delay of 3 to 4 ms that changes slowly, so that packets stay in order."""
    return 3000 + 16 * abs(60 - i % 120)


def test_equal(tmp):
    """Packets that are sent again in less time than they take.  The number of lost and of duplicate
    packets is right.  If as many arrive as were sent, all have arrived.  Which one is missing is
    known only by what was sent between them."""
    problems = []
    for between_them in (0, 3):
        for lost in (0, 1, None):
            w = conversation(60)
            at = []
            for _ in range(2):
                w.wait(700)
                at.append(len(w.frames))
                w.request(ONLY, w.psn, b'karst')
                for k in range(between_them):
                    w.wait(20).request(ONLY, w.psn + 1 + len(at) * 10 + k, b'other')
            w.psn += 40
            for _ in range(60):
                w.wait(100).send()
            net = Network(w, lost={at[lost]} if lost is not None else (), delay_us=slow, ahead_ns=10**9)
            _, _, between, _ = judge(tmp, net)
            open_ = 2 if lost is not None and not between_them else 0
            problems += wrong(between, net, (open_, 0), doubled=(0, 0), not_in_senders_capture=(0, 0),
                              cannot_tell=(open_, 0))
    w = conversation(60)
    for _ in range(2500):
        w.wait(1).request(ONLY, 5, b'karst')
    for _ in range(60):
        w.wait(100).send()
    for lost in ((), (150, 700, 2000)):
        net = Network(w, lost=lost, delay_us=lambda i: 5 + i % 3)
        _, _, between, _ = judge(tmp, net)
        problems += wrong(between, net, (2500, 0) if lost else (0, 0), doubled=(0, 0))
    return problems


def test_busy_end(tmp):
    """B is slow now and then, or during the second half, so that its clock is known less well: no
    packet is reported as lost that was not."""
    problems = []
    for seed in range(24):
        rng = random.Random(seed)
        w, lost, late = chances(rng, (60, 600)[seed % 2], (5, 20) if seed & 2 else (60, 300, 4000))
        base = rng.choice((3, 50, 1000))

        def delay_us(i, w=w, rng=rng, base=base, half=len(w.frames) // 2, begins=seed % 3 == 0):
            us = base + rng.random() * base / 5
            if w.frames[i][1][26:30] != bytes((192, 0, 2, 1)):
                return us
            if begins:
                return us + (rng.choice((0, 3000, 5000, 5000, 5000)) if i > half else 0)
            return us + (2000 + rng.random() * 500 if i // 50 % 3 == 0 else 0)

        net = Network(w, lost, late=late, delay_us=delay_us, ahead_ns=rng.randrange(-10**9, 10**9))
        _, _, between, err = judge(tmp, net)
        for end, way in enumerate(between['directions']):
            named, was = set(way['lost_packets']), set(net.lost[end])
            open_ = set(way.get('cannot_tell_which_packets', []))
            # it is not known whether the last ones would have arrived while the other capture ran
            ended = way['cannot_tell'] - len(open_)
            if named - was or len(was - named - open_) > ended or way['doubled']:
                problems.append('seed %d, %s: lost %s, not %s; doubled %d' % (seed, way['src'], sorted(named - was),
                                                                           sorted(was - named - open_), way['doubled']))
        problems += [err] if err else []
    return problems


def test_network(tmp):
    """Packets that are duplicated, damaged or late are told from packets that are lost."""
    net = Network(conversation(), lost=(100,), damaged=(200, 301), doubled=(402, 404), late={500: 400}, ahead_ns=12345)
    status, reports, between, _ = judge(tmp, net)
    problems = wrong(between, net, doubled=(2, 0), out_of_order=(1, 0), arrived=(399, 400))
    if status != 1 or reports[1]['checks']['icrc']['fail'] != 1 or reports[0]['checks']['icrc']['fail'] != 1:
        problems.append('status %d: the damaged ones are not seen where they arrive' % status)
    return problems


def test_lopsided(tmp):
    """The delay from A to B is longer than back, so the estimate of the clocks is wrong, and a
    packet to B that is fast for once seems to arrive before it was sent.  It is not taken for a
    duplicate, though an identical one has arrived before."""
    w = conversation(200)
    w.wait(100).request(ONLY, w.psn, b'karst')
    w.wait(4000).request(ONLY, w.psn, b'karst')
    quick = len(w.frames) - 1
    w.psn += 1
    w.msn += 1
    w.wait(20).ack(w.psn - 1)
    for _ in range(200):
        w.wait(100).send()

    def delay_us(i):
        to_b = w.frames[i][1][26:30] == bytes((192, 0, 2, 1))
        return 10 if i == quick or not to_b else 3000

    net = Network(w, lost=(100, 303), delay_us=delay_us)
    _, _, between, _ = judge(tmp, net)
    problems = wrong(between, net, doubled=(0, 0), not_in_senders_capture=(0, 0))
    return problems if between['clock_ahead_s'] > 0.001 else problems + ['the clocks are known']


def test_udp_checksum(tmp):
    """A damaged packet with a UDP checksum counts as arrived and damaged."""
    w = conversation(100)
    at = len(w.frames)
    for _ in range(100):
        w.wait(100).send()

    def summed(frame):
        f = bytearray(frame)
        data = f[26:34] + struct.pack('>HH', 17, len(f) - 34) + f[34:]
        f[40:42] = struct.pack('>H', roce.ones_sum(bytes(data) + bytes(len(data) % 2)) or 0xffff)
        return bytes(f)

    w.frames[at:] = [(ns, summed(frame)) for ns, frame in w.frames[at:]]
    net = Network(w, lost=(at + 20,), damaged=(at + 40, at + 61))
    _, reports, between, _ = judge(tmp, net)
    problems = wrong(between, net, not_in_senders_capture=(0, 0))
    if any(r['checks']['icrc']['fail'] for r in reports):
        problems.append('the frames are wrong before they are damaged')
    return problems


def test_linux(tmp):
    """Linux 6.12 and karst, captured at both ends, while the wire did in between what its log
    tells."""
    with open(os.path.join(HERE, 'ends.json'), encoding='utf-8') as f:
        want = json.load(f)
    status, out, err = run(DUMP, '--analyse', '--json', '--ends', ENDS,
                           *(os.path.join(HERE, 'ends_%s.pcap' % end) for end in ('karst', 'linux')))
    between = json.loads(out.splitlines()[-1])
    problems = [err] if err else []
    for way, end in zip(between['directions'], want):
        problems += ['%s of %s: %s, not %s' % (name, way['src'], way[name], n)
                     for name, n in end.items() if way[name] != n]
    reports = [json.loads(line) for line in out.splitlines()[:2]]
    failed = [sorted(name for name, c in r['checks'].items() if c['verdict'] == 'fail') for r in reports]
    # damaged packets are wrong at the receiver: karst sends UDP checksums at times, Linux does not
    return problems + ([] if (status, failed) == (1, [['icrc'], ['form']]) else ['%s, %s' % (status, failed)])


def test_not_covered(tmp):
    """One capture began later and ended earlier: packets outside of it are not lost."""
    problems = []
    w = conversation()
    for end in (0, 1):
        net = Network(w, lost=(400, 401), skip=(end, 10000, 30000), ahead_ns=-77)
        _, _, between, _ = judge(tmp, net)
        problems += wrong(between, net)
        if between['directions'][1 - end]['cannot_tell'] < 190:
            problems.append('not told: %s' % between)
    net = Network(w, lost=(700, 701), ahead_ns=10**9)
    # the last frame has an older time: the capture ran until the newest
    for capture in net.captures:
        (key, frame) = capture[-1]
        capture[-1] = ((key[0] - 15 * 10**6, *key[1:]), frame)
    problems += wrong(judge(tmp, net)[2], net, cannot_tell=(0, 0))
    return problems


def test_short_snap_length(tmp):
    """Captures that have only the headers."""
    net = Network(conversation(), lost=(20, 33))
    paths = net.write(tmp)
    for path, frames in zip(paths, net.captures):
        write_pcap(path, 1, [(key[0], frame) for key, frame in frames], nano=True, snap=64)
    _, out, err = run(DUMP, '--analyse', '--json', '--ends', ENDS, *paths)
    return wrong(json.loads(out.splitlines()[-1]), net) + ([err] if err else [])


def chances(rng, n, waits):
    """A random conversation with retransmissions, its losses, and delays by up to 30 us."""
    w = Wire(psn=rng.randrange(1 << 24) - 500)
    w.psn %= (1 << 24) - 4000
    for _ in range(n):
        w.wait(rng.choice((1, 5, 50, 300))).send()
        if rng.random() < 0.1:  # go back, after at least one round trip
            back = rng.randrange(1, 5)
            w.wait(rng.choice(waits))
            for psn in range(max(w.psn - back, 1), w.psn):
                w.request(ONLY, psn, b'karst')
    n = len(w.frames)
    lost = {i for i in range(40, n - 40) if rng.random() < 0.05}
    return w, lost, {i: rng.randrange(1, 30) for i in range(n) if rng.random() < 0.02}


def test_random(tmp):
    """Random conversations with retransmissions, loss, jitter and reordering: the packets that were
    lost are those that are reported, except for a few."""
    problems = []
    for seed in range(6):
        rng = random.Random(seed)
        w, lost, late = chances(rng, 600, (60, 300, 4000))
        net = Network(w, lost, late=late, delay_us=lambda i, rng=rng: 3 + rng.random(), ahead_ns=rng.randrange(-10**9, 10**9),
                      ppm=rng.choice((-30, 0, 30)))
        _, _, between, err = judge(tmp, net)
        problems += ['seed %d: %s' % (seed, p) for p in wrong(between, net, (12, 0))] + ([err] if err else [])
    return problems


def test_verdicts(tmp):
    """The known fates decide where one capture alone cannot tell, and wrong NAKs still fail."""
    problems = []

    def gap(nak):
        w = conversation(40).message(6)
        at = len(w.frames) - 4
        w.wait(20).nak(w.psn + nak)
        w.wait(20).message(6, start=nak)
        w.msn += 1
        w.wait(20).ack(w.psn + 5)
        w.psn += 6
        for _ in range(40):
            w.wait(100).send()
        return w, at
    w, at = gap(2)
    net = Network(w, lost={at})
    paths = net.write(tmp)
    _, out, _ = run(DUMP, '--analyse', '--json', '--tap', A, paths[0])
    alone = json.loads(out)['checks']['nak-psn']['verdict']
    status, reports, between, _ = judge(tmp, net)
    problems += wrong(between, net)
    got = [r['checks']['nak-psn']['verdict'] for r in reports]
    if alone != 'cannot tell' or got != ['pass', 'pass'] or status:
        problems.append('%s alone, %s together, status %d' % (alone, got, status))
    w, at = gap(3)  # names the PSN after it
    status, reports, _, _ = judge(tmp, Network(w, lost={at}))
    if status != 1 or reports[0]['checks']['nak-psn']['verdict'] != 'fail':
        problems.append('a NAK of the wrong PSN: %s' % reports[0]['checks']['nak-psn'])
    return problems


def test_all_the_same(tmp):
    """CNPs are identical to each other; each counts once."""
    w = conversation(50)
    for _ in range(3000):
        w.wait(10).cnp()
    for _ in range(50):
        w.wait(100).send()
    net = Network(w, lost=(40,), ahead_ns=5 * 10**8)
    _, _, between, _ = judge(tmp, net)
    return wrong(between, net, arrived=(99, 3100))


def test_strangers(tmp):
    """Files that have nothing in common, and addresses that are not in them."""
    problems = []
    paths = Network(conversation(20)).write(tmp)
    other = os.path.join(tmp, 'c.pcap')
    write_pcap(other, 1, Wire(psn=9000).send(50).frames, nano=True)
    for args in ((ENDS, paths[0], other), ('192.0.2.7,192.0.2.8', *paths)):
        status, out, err = run(DUMP, '--analyse', '--ends', *args)
        if status != 1 or out or 'in both files' not in err:
            problems.append('%s: status %d, %s %s' % (args, status, out[:100], err))
    return problems


def test_cut_file(tmp):
    """The second file ends in the middle of a frame: what comes before counts, and there is one
    message."""
    net = Network(conversation(), lost=(30,))
    paths = net.write(tmp)
    with open(paths[1], 'rb') as f:
        data = f.read()
    with open(paths[1], 'wb') as f:
        f.write(data[:-7])
    status, out, err = run(DUMP, '--analyse', '--json', '--ends', ENDS, *paths)
    problems = wrong(json.loads(out.splitlines()[-1]), net)
    if status != 1 or err.count('b.pcap') != 1:
        problems.append('status %d, %s' % (status, err))
    return problems


def test_usage(tmp):
    problems = []
    a, b = Network(conversation(5)).write(tmp)
    for args, word in ((('--ends', ENDS, a), 'two FILEs'), (('--ends', ENDS, a, b, b), 'two FILEs'),
                       (('--ends', A, a, b), 'comma'), (('--ends', A + ',x', a, b), 'comma'),
                       (('--ends', A + ',' + A, a, b), 'different'), (('--ends', ENDS, '--tap', A, a, b), '--tap'),
                       (('--ends', ENDS, '--injuries', a, a, b), '--injuries'), (('--ends', ENDS, a, '-'), "'-'"),
                       (('--ends', ENDS, '--count', '3', a, b), '--count'),
                       (('--ends', ENDS, '--html', '/dev/null', a, b), '--html')):
        status, out, err = run(DUMP, '--analyse', *args)
        if status != 2 or out or word not in err:
            problems.append('%s: status %d, %s' % (args, status, err))
    status, out, err = run(DUMP, '--ends', ENDS, a, b)
    if status != 2 or out or '--analyse' not in err:
        problems.append('without --analyse: status %d, %s' % (status, err))
    status, out, err = run(DUMP, '--analyse', '--ends', ENDS, a, os.path.join(tmp, 'none'))
    if status != 1 or 'none' not in err:
        problems.append('a file that is not there: status %d, %s' % (status, err))
    return problems


def test_text(tmp):
    net = Network(conversation(), lost=(20, 41))
    _, out, _ = run(DUMP, '--analyse', '--ends', ENDS, *net.write(tmp))
    for word in ('192.0.2.1 > 192.0.2.2: sent 400, arrived 399, lost 1,', 'b.pcap: %d' % net.lost[1][0]):
        if word not in out:
            return ['no "%s": %s' % (word, out[-900:])]
    w = conversation(60)
    w.wait(700).request(ONLY, w.psn, b'karst').wait(700).request(ONLY, w.psn, b'karst')
    w.psn += 1
    for _ in range(60):
        w.wait(100).send()
    _, out, _ = run(DUMP, '--analyse', '--ends', ENDS, *Network(w, lost=(120,), delay_us=slow).write(tmp))
    for word in ('sent 122, arrived 120, lost 0,', 'cannot tell which: 2 are the same as others that were sent about '
                 'then; of them lost 1, damaged 0', 'cannot tell which, as numbered in %s: ' % os.path.join(tmp, 'a.pcap'),
                 'known to '):
        if word not in out:
            return ['no "%s": %s' % (word, out[-900:])]
    return []


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory() as tmp:
        for test in (test_clocks, test_delays, test_sent_again, test_equal, test_busy_end, test_network, test_lopsided, test_udp_checksum,
                     test_linux, test_not_covered, test_short_snap_length, test_random, test_verdicts,
                     test_all_the_same, test_strangers, test_cut_file, test_usage, test_text):
            tap.point('ends: ' + test.__name__[5:].replace('_', ' '), test(tmp))
    sys.exit(tap.finish())


main()
