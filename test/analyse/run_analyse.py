#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""run_analyse.py KARST_DUMP: karst-dump --analyse on forged conversations and real captures (TAP).

For every check there are conversations that pass and some that fail.  Where the place of the
capture matters, there are also some for which the check cannot tell.  Rules: R2, R5, R10, R11, Q3
to Q7, P1, W6, W7, W10, E2 to E4.
"""
import csv
import html.parser
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'captures'), os.path.join(HERE, '..', 'common')]
sys.dont_write_bytecode = True
from cases import CASES  # noqa: E402
import cases_capture  # noqa: E402, F401
from forge import A, ACK, B, MTU, OK, ONLY, WRITE_FIRST, WRITE_LAST, Wire  # noqa: E402
import roce  # noqa: E402
from pcap import header, read_pcap, record, write_pcap  # noqa: E402
from tap import Tap, run  # noqa: E402

CAPTURES = os.path.join(HERE, '..', 'captures')
DUMP = sys.argv[1]
MAD = 14 + 20 + 8 + 12 + 8 + 24  # offset in a frame of the contents of a CM message
REQ_QPN, REP_QPN = MAD + 32, MAD + 12

# Failures of --tap senders in captures of Linux, apart from the impairments (doc/analyse.rst).
LINUX_FAILS = {'vt_rnr_write_imm.pcap': {'rnr-resume'}, 'vt_flush.pcap': {'icrc'}}
# taken after the place that lost, delayed or reordered the packets; and frames without a
# conversation
NOT_AS_SENT = ('netem_', 'native_')


def analyse(path, *args):
    """@return (exit status, the report, standard error)"""
    status, out, err = run(DUMP, '--analyse', '--json', *args, path)
    return status, json.loads(out) if out else None, err


def forged(tmp, wire, args):
    path, log = os.path.join(tmp, 'forged.pcap'), os.path.join(tmp, 'log')
    write_pcap(path, 1, wire.frames, nano=True)
    with open(log, 'w') as f:
        f.writelines(json.dumps(entry) + '\n' for entry in wire.log)
    return analyse(path, *args, *(['--injuries', log] if wire.log else []))


def test_case(tmp, check, verdict, args, make):
    wire = make()
    status, report, err = forged(tmp, wire, args)
    got = report['checks'][check]
    problems = []
    if got['verdict'] != verdict:
        problems.append('%s, not %s: %s %s' % (got['verdict'], verdict, got['findings'], err))
    fails = [c for c in report['checks'].values() if c['verdict'] == 'fail']
    if status != bool(fails):
        problems.append('status %d with %d failures' % (status, len(fails)))
    if wire.log and report['injuries_found'] != (0 if '--tap' in args and 'receivers' in args else len(wire.log)):
        problems.append('injuries found: %d of %d' % (report['injuries_found'], len(wire.log)))
    for found in got['findings']:
        if found['verdict'] == 'fail' and not all(1 <= n <= len(wire.frames) for n in found['packets']):
            problems.append('packets %s' % found['packets'])
        if found['verdict'] == 'fail' and not found['packets']:
            problems.append('a failure without a packet')
    return problems


def test_all_checks_have_cases():
    problems = []
    seen = {}
    for check, verdict, *_ in CASES:
        seen.setdefault(check, set()).add(verdict)
    _, report, _ = analyse(os.path.join(CAPTURES, 'vt_burst.pcap'))
    for check in report['checks']:
        for verdict in ('pass', 'fail'):
            if verdict not in seen.get(check, ()) and check != 'counters':
                problems.append('%s: no case of %s' % (check, verdict))
    return problems


ACTIONS = {'drop': 'drop', 'dup': 'duplicate', 'delay': 'delay', 'corrupt': 'corrupt', 'ce': 'mark'}


def manifest():
    with open(os.path.join(CAPTURES, 'MANIFEST.tsv'), newline='') as f:
        return list(csv.DictReader(f, delimiter='\t', quoting=csv.QUOTE_NONE))


def log_of(row, tmp):
    """Make a log of net_impair from what the manifest tells was done to frames."""
    column = list(row)[-1]
    if not row[column]:
        return []
    _, out, _ = run(DUMP, '--json', os.path.join(CAPTURES, row['file']))
    frames = [json.loads(line) for line in out.splitlines()]
    start = read_pcap(os.path.join(CAPTURES, row['file']))[1][0][0]
    path = os.path.join(tmp, 'manifest.log')
    with open(path, 'w') as f:
        for item in row[column].split():
            number, what = item.split(':')
            frame = frames[int(number) - 1]
            f.write(json.dumps({
                'event': 'injured', 'packet': 1, 'time_ns': start + frame['time_ns'], 'direction': 'tx', 'queue': 0,
                'qpn': frame['bth']['qp'], 'psn': frame['bth']['psn'], 'opcode': frame['bth']['name'],
                'length': 0, 'rule': 'r', 'action': ACTIONS[what], 'reason': 'nth 1'}) + '\n')
    return ['--injuries', path]


def test_linux(row, tmp):
    """Captures of Linux: nothing fails but what is known, with and without the place and the
    log."""
    problems = []
    path = os.path.join(CAPTURES, row['file'])
    exact = not row['file'].startswith(NOT_AS_SENT)
    known = LINUX_FAILS.get(row['file'], set())
    runs = [([], known & {'icrc'})]
    if exact:
        runs.append((['--tap', 'senders', '--timeout', '14' if 'exceeded' not in path else '12',
                      *log_of(row, tmp)], known | ({'cnp-answer'} if row['file'] == 'ecn_ce.pcap' else set())))
    for args, want in runs:
        _, report, err = analyse(path, *args)
        fails = {name for name, c in report['checks'].items() if c['verdict'] == 'fail'}
        if fails != want or err:
            problems.append('%s: %s fails, not %s %s %s' % (args, sorted(fails), sorted(want), err, [
                c['findings'][:3] for n, c in report['checks'].items() if n in fails - want]))
        if '--injuries' in args and report['injuries_found'] != report['injuries']:
            problems.append('%d of %d injuries found' % (report['injuries_found'], report['injuries']))
    return problems


def test_loss_is_judged(tmp):
    """With the log, the recovery from loss is recognised and passes."""
    problems = []
    want = {'loss_send_middle.pcap': ('nak-psn', 'go-back'), 'loss_nak.pcap': ('nak-psn', 'timeout'),
            'loss_write_first.pcap': ('nak-psn', 'go-back'), 'loss_atomic_ack.pcap': ('atomic', 'timeout'),
            'loss_read_resp_middle.pcap': ('read-retry',), 'loss_send_only_tail.pcap': ('timeout', 'go-back'),
            'vt_rnr.pcap': ('rnr-wait', 'rnr-resume'), 'loss_ack.pcap': ('timeout', 'go-back')}
    for row in manifest():
        if row['file'] not in want:
            continue
        _, report, _ = analyse(os.path.join(CAPTURES, row['file']), '--tap', 'senders', '--timeout', '14',
                               *log_of(row, tmp))
        for check in want[row['file']]:
            if report['checks'][check]['verdict'] != 'pass':
                problems.append('%s: %s: %s' % (row['file'], check, report['checks'][check]))
    return problems


# captures of karst, and what the impairing port made of its peer: passes, failures
KARST = {
    'karst_read': ({'read-retry', 'go-back', 'nak-psn', 'nak-once', 'msn', 'counters', 'trace'}, set()),
    'karst_write': ({'resend', 'go-back', 'nak-psn', 'nak-once', 'ack', 'msn', 'message', 'counters'}, set()),
    'karst_faa': ({'atomic', 'go-back', 'nak-psn', 'resend', 'counters'}, set()),
    'karst_ce': ({'icrc', 'counters'}, {'cnp-answer'}),
    'karst_cut': ({'icrc', 'trace', 'counters'}, {'read'}),
}


def test_karst(name):
    """karst over a lossy wire, with its own counters; and a peer whose packets were made wrong."""
    path = os.path.join(HERE, name)
    passes, fails = KARST[name]
    _, report, err = analyse(path + '.pcapng', '--tap', A, '--timeout', '12', '--injuries', path + '.log',
                             '--counters', '%s=%s.counters' % (A, path))
    checks = report['checks']
    got = {n for n, c in checks.items() if c['verdict'] == 'fail'}
    problems = [err] if err else []
    if got != fails:
        problems.append('%s fail, not %s: %s' % (sorted(got), sorted(fails),
                                                 [checks[n]['findings'] for n in got - fails]))
    return problems + ['%s: %s' % (n, checks[n]) for n in sorted(passes) if checks[n]['verdict'] != 'pass']


class Page(html.parser.HTMLParser):
    """Collects open tags, and whatever would need a network."""

    def __init__(self):
        super().__init__()
        self.open, self.problems, self.marks, self.plots = [], [], {}, 0

    def handle_starttag(self, tag, attrs):
        self.plots += tag == 'svg' and ('role', 'img') in attrs
        for key, value in attrs:
            if key in ('src', 'href') or 'http' in (value or '') or 'nan' in (value or '') or 'inf ' in (value or ''):
                self.problems.append('%s %s=%s' % (tag, key, value))
        if tag not in ('meta', 'path'):
            self.open.append(tag)
        elif tag == 'path':
            self.open.append(tag) if self.get_starttag_text()[-2] != '/' else None

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append('</%s>' % tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_data(self, data):
        kind = data.split(', PSN')[0]
        if self.open and self.open[-1] == 'title' and kind != data:
            self.marks[kind] = self.marks.get(kind, 0) + 1


def page_of(path, tmp, *args):
    out = os.path.join(tmp, 'report.html')
    run(DUMP, '--analyse', '--quiet', '--html', out, *args, path)
    with open(out, encoding='utf-8') as f:
        page = Page()
        page.feed(f.read())
    return page


def test_html(tmp):
    problems = []
    page = page_of(os.path.join(CAPTURES, 'netem_loss_rc.pcap'), tmp)
    _, report, _ = analyse(os.path.join(CAPTURES, 'netem_loss_rc.pcap'))
    flows = report['flows']
    want = {'NAK': sum(f['naks'] for f in flows), 'sent again': sum(f['again'] for f in flows),
            'new request': sum(f['requests'] for f in flows), 'acknowledged': sum(f['acks'] for f in flows)}
    marks = {k: page.marks.get(k, 0) for k in want}
    if abs(marks['sent again'] - want['sent again']) > 1 or {**marks, 'sent again': 0} != {**want, 'sent again': 0}:
        problems.append('marks %s, not %s' % (marks, want))
    if page.problems or page.open or page.plots != 2:
        problems.append('%s %s %d plots' % (page.problems[:5], page.open, page.plots))
    return problems


def test_html_is_bounded(tmp):
    """A long conversation draws no more points than there is room for, and keeps its marks."""
    w = Wire()
    w.send(6000)
    w.request(4, w.psn, b'karst')
    w.wait(70000).request(4, w.psn, b'karst')
    path = os.path.join(tmp, 'long.pcap')
    write_pcap(path, 1, w.frames)
    page = page_of(path, tmp)
    points = sum(page.marks.values())
    if not 500 < points <= 4096 or page.marks.get('sent again') != 1:
        return ['%d points, %s' % (points, page.marks)]
    return []


def test_names_are_escaped(tmp):
    path = os.path.join(tmp, '<b>&.pcap')
    write_pcap(path, 1, Wire().send(3).frames)
    page = page_of(path, tmp)
    problems = page.problems + page.open
    for name in (b'a"b.pcap', b'\xff.pcap', '\u00fc.pcap'.encode()): # names need not be UTF-8
        path = os.path.join(tmp.encode(), name)
        write_pcap(path, 1, Wire().send(50).frames)
        for args in (['--analyse', path], ['--quiet', path, path], ['--analyse', '--ends', A + ',' + B, path, path]):
            status, out, err = run(DUMP, '--json', *args)
            named = [json.loads(line) for line in out.splitlines()]
            want = name.decode(errors='replace').replace('\ufffd', '?')
            if status or err or not all(os.path.basename(n) == want for one in named if len(one) and 'flows' in one or
                                        'files' in one for n in one.get('files', [one.get('file', '')])):
                problems.append('%s: status %d, %s %s' % (args, status, out, err))
            if sum('file' in one or 'files' in one for one in named) != 1 + ('--quiet' in args) + 2 * ('--ends' in args):
                problems.append('%s: %s' % (args, out))
    return problems


def test_counters(tmp):
    problems = []
    w = Wire().send(1).message(4, skip=[1])
    w.nak(w.psn + 1).message(4, start=1)
    w.msn += 1
    w.ack(w.psn + 3)
    path, counters = os.path.join(tmp, 'c.pcap'), os.path.join(tmp, 'counters')
    write_pcap(path, 1, w.frames)
    for text, tap, want in (('packet_seq_err 1\nrp_cnp_handled 0\n', A, 'pass'),
                            ('{"packet_seq_err": 1}', A, 'pass'),
                            ('packet_seq_err 3\n', A, 'fail'),
                            ('{"packet_seq_err": 1.0}', A, 'pass'),
                            ('{"packet_seq_err": 3.0}', A, 'fail'),
                            ('{"packet_seq_err": "1"}', A, 'cannot tell'),
                            ('{"packet_seq_err": 1.5}', A, 'cannot tell'),
                            ('{"packet_seq_err": -1}', A, 'cannot tell'),
                            ('packet_seq_err 3\n', B, 'cannot tell'),
                            ('what is this', A, 'cannot tell'),
                            ('local_ack_timeout_err 5', A, 'cannot tell')):
        with open(counters, 'w') as f:
            f.write(text)
        _, report, _ = analyse(path, '--tap', tap, '--counters', '%s=%s' % (A, counters))
        if report['checks']['counters']['verdict'] != want:
            problems.append('%r at %s: %s' % (text, tap, report['checks']['counters']))
    # the second NAK that was counted may be the frame that cannot be parsed
    with open(counters, 'w') as f:
        f.write('packet_seq_err 2\n')
    _, nak = w.frames[5]
    write_pcap(path, 1, w.frames + [(w.frames[-1][0] + 10**6, nak[:43] + b'\x0f' + nak[44:])])
    _, report, _ = analyse(path, '--tap', A, '--counters', '%s=%s' % (A, counters))
    if report['checks']['counters']['verdict'] != 'cannot tell' or report['checks']['form']['verdict'] != 'fail':
        problems.append('one that cannot be parsed: %s' % report['checks'])
    # identical CNPs, which are left out, and a file that was cut short
    with open(counters, 'w') as f:
        f.write('rp_cnp_handled 4\n')
    w.cnp()
    same = [(w.frames[-1][0] + us * 1000, w.frames[-1][1]) for us in (10, 20, 30)]
    for frames, cut in ((w.frames + same, 0), (w.frames + [(ns + 10**6, f) for ns, f in same], 7)):
        write_pcap(path, 1, frames, nano=True)
        with open(path, 'rb+') as f:
            f.truncate(os.path.getsize(path) - cut)
        _, report, _ = analyse(path, '--tap', A, '--counters', '%s=%s' % (A, counters))
        if report['checks']['counters']['verdict'] != 'cannot tell':
            problems.append('cut %d: %s' % (cut, report['checks']['counters']))
    return problems


def test_cut_file(tmp):
    path = os.path.join(tmp, 'cut.pcap')
    write_pcap(path, 1, Wire().send(10).frames)
    with open(path, 'rb') as f:
        data = f.read()
    with open(path, 'wb') as f:
        f.write(data[:-7])
    status, report, err = analyse(path)
    if status != 1 or not report['cut_short'] or report['frames'] != 19 or 'frame 20' not in err:
        return ['status %d, %s frames, %s' % (status, report['frames'], err)]
    return []


def lose(w, *which):
    """One round of 100 to 103, of which those in @which are lost."""
    for i in range(4):
        w.request(ONLY, 100 + i, b'karst')
        if i in which:
            w.injure()
    return w


def opened_in_order():
    return lose(Wire(), 1).wait(10).nak(101), [(2, 4)]


def opened_by_another_than_the_next():
    """PSN 103 arrives before 102."""
    w = Wire().send(1)
    for psn in (103, 102):
        w.request(ONLY, psn, b'karst')
    return w.wait(10).nak(101), [(2, 4)]


def opened_by_what_is_sent_twice():
    """PSN 102 is sent once more before the NAK."""
    w = lose(Wire(), 1).wait(60)
    return w.request(ONLY, 102, b'karst').wait(10).nak(101), [(2, 5)]


def opened_by_what_was_lost_before():
    """The first NAK is for what 103 shows, the second for what the second 102 shows."""
    w = lose(Wire(), 1, 2).wait(10).nak(101).wait(60)
    for psn in (101, 102, 103):
        w.request(ONLY, psn, b'karst')
        if psn == 101:
            w.injure()
    return w.wait(10).nak(101), [(3, 4), (6, 8)]


def opened_three_times():
    """PSN 101 is lost three times; frames 4, 9 and 14 are the NAKs."""
    w, spans = Wire(), []
    for i in range(3):
        lose(w, 1).wait(10).nak(101).wait(60)
        spans.append((i * 5 + 2, i * 5 + 4))
    return w, spans


def opened_and_answered_twice():
    """The second NAK has no gap of its own."""
    return lose(Wire(), 1).wait(10).nak(101).wait(60).nak(101), [(2, 4)]


def opened_by_one_that_may_be_late():
    """PSN 102 was delayed, and nothing says whether 103 overtook it."""
    w = Wire()
    for i, what in enumerate((None, 'drop', 'delay', None)):
        w.request(ONLY, 100 + i, b'karst')
        if what:
            w.injure(what)
    return w.wait(10).nak(101), []


def test_gap_to_nak(tmp):
    """The latency of NAK generation: from the first packet that arrives behind the missing one, by
    the time at which it arrives, to the NAK."""
    problems = []
    for make in (opened_in_order, opened_by_another_than_the_next, opened_by_what_is_sent_twice,
                 opened_by_what_was_lost_before, opened_three_times, opened_and_answered_twice,
                 opened_by_one_that_may_be_late):
        w, spans = make()
        _, report, err = forged(tmp, w, ['--tap', 'senders'] if w.log else ['--tap', 'receivers'])
        got = report['latencies'].get('gap shown to NAK')
        ns = [w.frames[to][0] - w.frames[at][0] for at, to in spans]
        want = {'n': len(ns), 'min_ns': min(ns), 'mean_ns': sum(ns) // len(ns), 'max_ns': max(ns)} if ns else None
        if got != want or err:
            problems.append('%s: %s, not %s %s' % (make.__name__, got, want, err))
    return problems


def test_reaction(tmp):
    """The latency of the reaction is that to the first of two NAKs that say the same."""
    w = Wire()
    for i, what in enumerate((None, 'drop', None)):
        w.request(ONLY, 100 + i, b'karst')
        if what:
            w.injure(what)
    w.wait(10).nak(101)
    first = len(w.frames) - 1
    w.wait(50).nak(101).wait(20).request(ONLY, 101, b'karst')
    _, report, err = forged(tmp, w, ['--tap', 'senders'])
    got = report['latencies'].get('NAK to retransmission')
    ns = w.frames[-1][0] - w.frames[first][0]
    return [] if got and got['n'] == 1 and got['max_ns'] == ns and not err else ['%s, not %d ns; %s' % (got, ns, err)]


def test_short_snap_length(tmp):
    """Frames of which the capture has only the headers: PSNs are judged, contents are not."""
    path = os.path.join(tmp, 'snap.pcap')
    w = Wire().send(2).message(4)
    w.msn += 1
    w.ack(w.psn + 3)
    write_pcap(path, 1, w.frames, snap=96)
    status, report, err = analyse(path)
    checks = report['checks']
    if status != 0 or checks['msn']['verdict'] != 'pass' or checks['psn']['pass'] != 5 or report['truncated'] != 4:
        return ['status %d: %s %s %s' % (status, checks['msn'], checks['psn'], report['truncated'])]
    return []


def test_headers_cut_off(tmp):
    """A snap length that ends within headers: missing bytes of headers are not taken for zeros."""
    w, problems = Wire().send(2), []
    for _ in range(2):
        for i, op in enumerate((WRITE_FIRST, WRITE_LAST)):
            w.request(op, w.psn + i, bytes(MTU if i == 0 else 100),
                      ext=struct.pack('>QII', 0x1000, 7, MTU + 100) if i == 0 else b'')
        w.msn += 1
        w.ack(w.psn + 1)
        w.psn += 2
    w.read(w.psn, 4 * MTU).responses(w.psn, 4 * MTU)
    path = os.path.join(tmp, 'snap.pcap')
    for snap in range(64, 75):
        write_pcap(path, 1, w.frames, snap=snap)
        status, report, err = analyse(path, '--tap', 'senders', '--timeout', '14')
        whole = snap >= 70  # Ethernet, IPv4, UDP, BTH and RETH
        if status != 0 or err or (report['checks']['form']['cannot_tell'] == 0) != whole or \
                (report['checks']['read']['verdict'] == 'pass') != whole:
            problems.append('%d bytes: status %d, %s' % (snap, status, report['checks']))
    return problems


def test_noise(tmp):
    """Random bits in conversations: never a crash, never an error message."""
    problems = []
    rng = random.Random(15)
    path, out = os.path.join(tmp, 'noise.pcap'), os.path.join(tmp, 'noise.html')
    for _ in range(12):
        frames = []
        for _, _, _, _, make in rng.sample(CASES, 12):
            frames += make().frames
        rng.shuffle(frames)
        damaged = []
        for ns, frame in frames:
            f = bytearray(frame)
            for _ in range(rng.choice((0, 0, 1, 3))):
                f[rng.randrange(42, len(f))] ^= 1 << rng.randrange(8)
            damaged.append((ns, bytes(f[:rng.choice((len(f), len(f), rng.randrange(1, len(f)))) ])))
        write_pcap(path, 1, damaged)
        status, output, err = run(DUMP, '--analyse', '--html', out, '--timeout', '14', '--tap', 'senders', path)
        if status not in (0, 1) or err or 'psn' not in output:
            problems.append('status %d, %s' % (status, err))
    return problems


def test_who_is_answered_is_looked_for_with_an_end(tmp):
    """Many flows that all fit: the search for counterparts is limited."""
    n = 2100
    w = Wire()
    for i in range(n):
        w.request(ONLY, 100, b'karst', qp=0x100 + i)
    for i in range(n):
        w.respond(ACK, 100, OK, qp=0x100 + i)
    path = os.path.join(tmp, 'askers.pcap')
    write_pcap(path, 1, w.frames, nano=True)
    status, report, err = analyse(path)
    trace = report['checks']['trace']
    if status != 0 or trace['verdict'] != 'cannot tell' or err or \
            not any('not found out for all flows' in found['text'] for found in trace['findings']):
        return ['status %d, %s %s' % (status, trace, err)]
    return []


def test_flows_have_an_end(tmp):
    """More queue pairs than there may be: those beyond the limit are left out, not remembered."""
    most = 1 << 17
    template = bytearray(Wire().request(ONLY, 100, b'karst').frames[0][1])
    frames = []
    for i in range(most + 3):
        template[47:50] = i.to_bytes(3, 'big')
        frames.append((10**18 + i * 1000, bytes(template)))
    path = os.path.join(tmp, 'flows.pcap')
    write_pcap(path, 1, frames, nano=True)
    _, output, err = run(DUMP, '--analyse', path)
    if '%d packets, %d flows' % (most, most) not in output or 'on 3 of further ones are left out' not in output:
        return [output[:2000] + err]
    return []


def test_connections_have_an_end(tmp):
    """More connections than there may be: those beyond the limit are not remembered."""
    most = 1 << 16
    (_, req), (_, rep) = Wire().connect().frames
    frames = []
    for i in range(most + 3):
        number = (0x100 + i).to_bytes(3, 'big')
        for template, at in (req, REQ_QPN), (rep, REP_QPN):
            f = bytearray(template)
            f[at:at + 3] = number
            f[-4:] = roce.icrc(bytes(f[14:-4]))
            frames.append((10**18 + len(frames) * 1000, bytes(f)))
    path = os.path.join(tmp, 'connections.pcap')
    write_pcap(path, 1, frames, nano=True)
    status, report, err = analyse(path)
    trace = report['checks']['trace']
    wanted = 'more than %d connections: what this packet and 2 further ones' % most
    if err or not any(wanted in found['text'] for found in trace['findings']):
        return ['status %d, %s %s' % (status, trace, err)]
    return []


def feed(p, start, n):
    """Write @n requests of one flow to standard input.  @return the maximum memory in use by then,
    in KiB."""
    template = bytearray(Wire().request(4, 0, b'karst').frames[0][1])
    for psn in range(start, start + n):
        template[51:54] = psn.to_bytes(3, 'big')
        p.stdin.write(record(10**18, template))
    p.stdin.flush()
    with open('/proc/%d/status' % p.pid) as f:
        return int(next(line for line in f if line.startswith('VmHWM')).split()[1])


def test_memory_is_bounded(tmp):
    """Memory does not grow with the packets of a flow.  All of them were taken, except for the 64
    KiB of the pipe."""
    with subprocess.Popen([DUMP, '--analyse', '--json', '--html', os.path.join(tmp, 'm.html'), '-'],
                          stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as p:
        p.stdin.write(header())
        few, many = feed(p, 0, 20000), feed(p, 20000, 100000)
    return ['%d KiB, then %d KiB' % (few, many)] if many > few + 1024 else []


def test_left_out_before_and_behind_a_read(tmp):
    """After a pause; B asks for what is before the READ, so the path MTU is still the old one."""
    w = Wire().send(1).message(3)
    w.msn += 1
    w.ack(w.psn + 2).wait(10**6)
    w.psn += 5
    w.read(w.psn, 3 * MTU).request(ONLY, w.psn + 6, b'karst').nak(w.psn - 2)
    _, report, _ = forged(tmp, w, ['--tap', 'senders'])
    fails = [f['packets'] for f in report['checks']['psn']['findings'] if f['verdict'] == 'fail']
    return [] if fails == [[7, 8], [7]] or fails == [[7], [7, 8]] else ['%s' % fails]


def test_usage(_):
    sample = os.path.join(CAPTURES, 'vt_burst.pcap')
    problems = []
    for args, word in {('--tap', 'here'): 'senders', ('--timeout', '32'): '31', ('--timeout', 'x'): "'x'",
                       ('--counters', 'x'): 'ADDRESS=FILE', ('--cnp-interval', '-1'): "'-1'",
                       ('--rebuild',): '--rebuild', ('--injuries',): 'value'}.items():
        status, out, err = run(DUMP, '--analyse', sample, *args)
        if status != 2 or out or word not in err:
            problems.append('%s: status %d, %s' % (args, status, err))
    for args in (('--tap', 'senders', sample), ('--analyse', '--html', '/dev/null', sample, sample)):
        status, out, err = run(DUMP, *args)
        if status != 2 or out:
            problems.append('%s: status %d, %s' % (args, status, err))
    for args, word in {('--injuries', '/no/such'): '/no/such', ('--injuries', sample): 'line 1',
                       ('--counters', '192.0.2.1=/no/such'): '/no/such',
                       ('--html', '/no/such/x'): '/no/such/x'}.items():
        status, _, err = run(DUMP, '--analyse', sample, *args)
        if status != 1 or word not in err:
            problems.append('%s: status %d, %s' % (args, status, err))
    return problems


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory() as tmp:
        for check, verdict, name, args, make in CASES:
            tap.point('%s %s: %s %s' % (check, verdict, name.replace('_', ' '), ' '.join(args)),
                      test_case(tmp, check, verdict, args, make))
        tap.point('each check can pass and fail', test_all_checks_have_cases())
        for row in manifest():
            tap.point('linux: ' + row['file'], test_linux(row, tmp))
        for name in KARST:
            tap.point('karst: ' + name, test_karst(name))
        for test in (test_loss_is_judged, test_html, test_html_is_bounded, test_names_are_escaped, test_counters,
                     test_gap_to_nak, test_reaction, test_cut_file, test_short_snap_length,
                     test_headers_cut_off, test_noise, test_memory_is_bounded,
                     test_who_is_answered_is_looked_for_with_an_end, test_flows_have_an_end,
                     test_connections_have_an_end, test_left_out_before_and_behind_a_read, test_usage):
            tap.point(test.__name__[5:].replace('_', ' '), test(tmp))
    sys.exit(tap.finish())


main()
