#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Selective repeat that is negotiated, not configured: ece.py KARSTD KARST-RUN GSI-PROGRAM
ECE-PROGRAM (TAP).

Enhanced connection establishment (C3, X1) by programs of librdmacm that do not know of it: between
two karstd with each of the settings, where frames are lost; then with a peer in this test, which
sends messages that no karst would send.
"""
import os
import struct
import sys
import tempfile
import time

from gsi_bed import ACCEPTS, KARST, PEERS, Bed, Conn, Peer, fields, mac, within
from rdmacm import Case, addresses, run
from verbs_bed import HANG_S, LOOPBACK, Engine, Tap, Tools, VethPair, memif, with_engines
import roce
from roce import DREP, DREQ, REJ, REP, REQ, RTU, ids

OURS, OFFER, ANSWER = 0x724b53, 0x4b520a01, 0xb4510a01 # as in doc/protocol.rst
ADAPTER = 0x15b3 # the vendor of mlx5
LISTENS = 7004 # the peer's port number
LOSS = 'loss_ppm = 10000\n'
# The server's setting, the client's setting; is there an offer? is it agreed to?
SETTINGS = [('offer', 'offer', 1, 1), ('answer', 'offer', 1, 1), ('offer', 'answer', 0, 0),
            ('off', 'offer', 1, 0), ('offer', 'off', 0, 0), ('off', 'off', 0, 0)]
PROGRAMS = [
    Case('rping', 'rping -s -V -C 5 -S 60000 -p {port}',
         'rping -c -v -V -C 5 -S 60000 -a {ip} -p {port}', 50,
         at_client=[r'ping data: rdma-ping-4: ']),
    Case('ib_write_bw -R', 'ib_write_bw -R -n 200 -p {port}',
         'ib_write_bw -R -n 200 -p {port} {ip}', 200, at_client=[r'(?m)^ *65536 +200 ']),
]


def setting(conf, ece, more=''):
    return conf.replace('[engine]\n', f'[engine]\nece = {ece}\n{more}', 1)


def said(engine):
    """@return the engine's counters [offered, agreed, ignored, connections asked for, rejected]"""
    found = engine.ask(lambda e: e.ask('cm'))
    return [*(found[f'ece_{name}'] for name in ('offered', 'agreed', 'ignored')),
            found['tx_REQ'] - found['tx_retries_REQ'], found['rx_REJ']]


def two(tap, tools, folder, server, client, offered, agreed):
    """Runs both programs over two engines with these settings; checks the engines' counters."""
    name = f'{server} and {client}'
    engines = [Engine(tools, folder, setting(memif(folder, end), ece, LOSS), f'ece{end}')
               for end, ece in enumerate((server, client))]

    def cases():
        ip = addresses(engines[0])[0]
        for case in PROGRAMS:
            before = [said(e) for e in engines]
            problems = run(case, engines, ip)
            grown = [[now - then for now, then in zip(said(e), was)]
                     for e, was in zip(engines, before)]
            # perftest makes one more connection for its own use; nobody listened for those rejected
            n, early = grown[1][3:]
            met = n - early
            want = [[0, agreed * met, (offered - agreed) * met, 0, 0],
                    [offered * n, agreed * met, 0, n, early]]
            if grown != want or not met:
                problems.append('offered, agreed, ignored, asked for, rejected: '
                                f'{grown}, not {want}')
            tap.point(f'{name}: {case.name}', problems)
        sacks, held = (sum(e.counter(what) for e in engines)
                       for what in ('sack_received', 'requests_held'))
        lost = sum(e.counter('retransmits') for e in engines)
        problems = [] if lost else ['nothing was lost']
        problems += [] if (sacks > 0, held > 0) == (bool(agreed), bool(agreed)) else \
            [f'{held} requests were held and {sacks} SACKs came']
        tap.point(f'{name}: what is lost is {"" if agreed else "not "}repeated selectively', problems)

    with_engines(tap, name, engines, cases)


# --- a peer in this test ---


def say(body, attribute, vendor):
    """@return @body, of a REQ or REP, with this vendor."""
    out = bytearray(body)
    for at, byte in zip((5, 6, 7) if attribute == REQ else (15, 19, 23), vendor.to_bytes(3, 'big')):
        out[at] = byte
    return bytes(out)


def heard(m):
    """@return (vendor, options) of a REQ or REP."""
    at = (5, 6, 7) if m.attribute == REQ else (15, 19, 23)
    return int.from_bytes(bytes(m.u8(n) for n in at), 'big'), m.modifier


class EceConn(Conn):
    """A connection to a program that accepts.  The peer's REQ has a vendor and options."""

    def __init__(self, peer, vendor, options, port=ACCEPTS):
        self.peer, self.src = peer, PEERS[0]
        self.id, self.qpn = peer.new(), peer.new()
        self.body = say(peer.req(port, self.src, self.id, self.qpn, psn=1000), REQ, vendor)
        self.tid = peer.message(REQ, self.body, src=self.src, modifier=options)
        self.rep = peer.answer(self.tid, REP)
        self.karst_id, self.karst_qpn = self.rep.local, self.rep.u24(12)
        self.psn = self.rep.u24(20)


class Asked:
    """A connection from a program over karst.  The peer accepts it with a vendor and options."""

    def __init__(self, peer, vendor, options):
        self.peer, self.src, self.id, self.qpn = peer, PEERS[0], peer.new(), peer.new()
        self.req = self.wait(REQ)
        self.tid, self.karst_id = self.req.tid, self.req.local
        self.karst_qpn, self.psn = self.req.u24(32), self.req.u24(44)
        body = ids(self.id, self.karst_id, struct.pack(
            '>IIIIBBBBQ', 0, self.qpn << 8, 0, 1000 << 8, 4, 4, 0, 7 << 5, 0x1234))
        peer.message(REP, say(body, REP, vendor), self.tid, modifier=options)

    def wait(self, attribute):
        """Waits for the next message of this kind, of a transaction that the peer did not begin."""
        until = time.monotonic() + HANG_S
        while True:
            for m in self.peer.waiting:
                if m.attribute == attribute and m.mad not in self.peer.seen:
                    self.peer.waiting.remove(m)
                    self.peer.seen.add(m.mad)
                    return m
            self.peer.take(until)

    def end(self):
        """Answers the DREQ of the karstd, whose program has ended.  @return problems"""
        m = self.wait(DREQ)
        self.peer.message(DREP, ids(self.id, self.karst_id), m.tid)
        return fields(m, local=self.karst_id, remote=self.id)


def repeats(peer, conn):
    """Sends a WRITE, leaving a gap, and then the missing one.  @return (karst answers the gap by a
    SACK, not by a NAK; problems with the answers)"""
    def write(psn):
        peer.send(roce.bth(roce.RC_WRITE_ONLY, conn.karst_qpn, psn) + bytes(16), conn.src)

    peer.acks, peer.sacks = [], []
    write(conn.psn + 1)
    peer.until(lambda: peer.acks or peer.sacks)
    selective = bool(peer.sacks)
    wanted = [] if selective else [(conn.qpn, conn.psn, 0x60)]
    problems = [] if peer.acks == wanted else [f'the gap is answered by {peer.acks}']
    peer.acks = []
    write(conn.psn)
    peer.until(lambda: peer.acks)
    last = conn.psn + selective
    conn.psn = last + 1
    qpn, psn, syndrome = peer.acks[-1]
    return selective, problems + ([] if (qpn, psn, syndrome >> 5) == (conn.qpn, last, 0) else
                                  [f'acknowledged: {peer.acks}, not PSN {last}'])


def judged(bed, before, conn, selective, **wanted):
    """Checks whether karst repeats selectively, and its counters.  @return problems"""
    found, problems = repeats(bed.peer, conn)
    if found != selective:
        problems.append(f'a gap is answered by a {("NAK", "SACK")[found]}')
    return problems + bed.counted(before, **wanted)


REQUESTS = [ # the peer's (vendor, options), karst's answer, 1: karst counts it as ignored
    ('an offer', (OURS, OFFER), (OURS, ANSWER), 0),
    ('an offer with abilities that nobody knows', (OURS, OFFER | 0xfe), (OURS, ANSWER), 0),
    ('nothing', (0, 0), (0, 0), 0),
    ('an offer of nothing', (OURS, OFFER & ~1), (0, 0), 1),
    ('an offer with another window', (OURS, OFFER ^ 0x100), (0, 0), 1),
    ('an answer', (OURS, ANSWER), (0, 0), 1),
    ('our vendor alone', (OURS, 0), (0, 0), 1),
    ('our vendor and nonsense', (OURS, 0xffffffff), (0, 0), 1),
    ("an adapter's vendor with its options", (ADAPTER, 0x10000003), (0, 0), 1),
    ("an adapter's vendor with our options", (ADAPTER, OFFER), (0, 0), 1),
    ('options of no vendor', (0, OFFER), (0, 0), 1),
]
REPLIES = [ # the peer's answer to an offer; do they agree?
    ('the answer', (OURS, ANSWER), True),
    ('nothing', (0, 0), False),
    ('the offer as it came', (OURS, OFFER), False),
    ("our vendor with an adapter's options, as librdmacm does", (OURS, 0x10000003), False),
    ("an adapter's options and no vendor", (0, 0x10000003), False),
    ("another vendor's", (ADAPTER, 0x10000003), False),
    ('more than was offered', (OURS, ANSWER | 2), False),
    ('another window', (OURS, ANSWER ^ 0x100), False),
    ('an answer of nothing', (OURS, ANSWER & ~1), False),
]


def passive(bed):
    """Sends REQs of all kinds to a program that accepts them."""
    bed.program('accept', ACCEPTS)
    for name, word, answer, ignored in REQUESTS:
        def ask(peer, word=word, answer=answer, ignored=ignored):
            before = bed.counters()
            conn = EceConn(peer, *word)
            agreed = answer != (0, 0)
            problems = [] if heard(conn.rep) == answer else \
                [f'the REP says {[hex(n) for n in heard(conn.rep)]}']
            conn.ready()
            problems += judged(bed, before, conn, agreed, ece_agreed=agreed, ece_ignored=ignored,
                               malformed=0)
            return problems + conn.end() + peer.nothing()

        bed.case(f'a REQ with {name}', ask)

    def changes(peer):
        """A repeated REQ with another vendor is still a duplicate of the first REQ."""
        conn = EceConn(peer, OURS, OFFER)
        peer.message(REQ, say(conn.body, REQ, 0), conn.tid)
        again = peer.answer(conn.tid, REP, again=True)
        problems = [] if again.mad == conn.rep.mad else [f'another REP: {again}']
        conn.ready()
        selective, more = repeats(peer, conn)
        return problems + more + ([] if selective else ['it was forgotten']) + conn.end() + \
            peer.nothing()

    bed.case('a REQ again without its offer', changes)


def active(bed):
    """A program connects to the peer, which answers in different ways."""
    for name, word, agreed in REPLIES:
        def answer(peer, word=word, agreed=agreed):
            before = bed.counters()
            program = bed.engine.program([bed.ece, 'stay', PEERS[0], str(LISTENS)])
            try:
                conn = Asked(peer, *word)
                problems = [] if heard(conn.req) == (OURS, OFFER) else \
                    [f'the REQ says {[hex(n) for n in heard(conn.req)]}']
                peer.answer(conn.tid, RTU)
                problems += program.until(lambda: 'ESTABLISHED' in program.text(), 'established')
                problems += judged(bed, before, conn, agreed, ece_offered=1, ece_agreed=agreed,
                                   ece_ignored=not agreed and word != (0, 0))
            finally:
                program.kill()
            return problems + conn.end() + peer.nothing()

        bed.case(f'a REP with {name}', answer)


def programs(bed):
    """Which vendor and options a program may set by itself."""
    def echo(peer):
        before = bed.counters()
        program = bed.engine.program([bed.ece, 'echo', KARST, str(LISTENS)])
        try:
            problems = program.until(lambda: 'listening' in program.text(), 'listening')
            conn = EceConn(peer, OURS, OFFER, LISTENS)
            problems += [] if heard(conn.rep) == (0, 0) else ['the echo was sent']
            other = EceConn(peer, ADAPTER, OFFER, LISTENS)
            problems += [] if heard(other.rep) == (0, 0) else ['another vendor was answered']
            problems += program.until(lambda: program.text().count('offered') == 2, 'asked')
            if f'offered {OURS:#x} {OFFER:#x}' not in program.text() or \
                    'offered 0 0\n' not in program.text():
                problems.append(program.text())
            problems += bed.counted(before, ece_agreed=0, ece_ignored=1)
        finally:
            program.kill()
        for tid in (conn.tid, other.tid): # these connections wait for an RTU
            peer.answer(tid, REJ)
        peer.nothing()
        return problems

    bed.case('a program that answers an offer with the offer', echo)
    for vendor, options in ((ADAPTER, OFFER), (OURS, ANSWER), (OURS, OFFER | 2), (OURS, 0xffffffff)):
        def claim(peer, vendor=vendor, options=options):
            before = bed.counters()
            program = bed.engine.program([bed.ece, 'claim', PEERS[0], str(LISTENS), str(vendor),
                                          str(options)])
            problems = program.wait()
            if program.status != 0 or 'refused' not in program.text():
                problems += program.shown()
            return problems + peer.nothing() + bed.counted(before, ece_offered=0)

        bed.case(f'a program that claims {vendor:#x} and {options:#x}', claim)


def by_hand(tap, tools, folder, gsi_program, ece_program):
    with VethPair(KARST + '/24', PEERS[0] + '/24') as wire:
        conf = '[engine]\nidle = sleep\n[port p]\ndevice = kv0\ndriver = af_packet\n'
        engine = Engine(tools, folder, setting(conf, 'offer'), 'ecehand', wire.netns[0])

        def cases():
            bed = Bed(tap, engine, Peer(wire.netns[1], within(wire.netns[0], mac)), gsi_program)
            bed.ece = ece_program
            for part in (passive, active, programs):
                part(bed)

        with_engines(tap, 'a karstd on a veth pair', [engine], cases)


def calls(tap, tools, folder, ece_program):
    engine = Engine(tools, folder, setting(LOOPBACK, 'answer'), 'ececalls')

    def case():
        program = engine.program([ece_program, 'calls'])
        problems = program.wait()
        if program.status != 0 or 'all right' not in program.text():
            problems += program.shown()
        tap.point('the calls of libibverbs', problems + engine.left())

    with_engines(tap, 'calls', [engine], case)


def main(argv):
    if len(argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    tap, tools = Tap(), Tools(*argv[1:3])
    gsi_program, ece_program = (os.path.abspath(path) for path in argv[3:])
    with tempfile.TemporaryDirectory(prefix='karst-ece-') as folder:
        calls(tap, tools, folder, ece_program)
        by_hand(tap, tools, folder, gsi_program, ece_program)
        for how in SETTINGS:
            two(tap, tools, folder, *how)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
