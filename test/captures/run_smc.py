#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""run_smc.py KARST_DUMP: check what two Linux hosts send and write in the captures of SMC-R.

Each capture of test/interop/smc/capture.py shows one behaviour.  It is checked here by the cursors
and flags of CDC messages, and by the WRITEs as karst-dump decodes them.  Nothing of lib/smc is
used.
"""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from pcap import read_pcap  # noqa: E402
from tap import Tap, run_json  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SIZE = 16384
WRITES = ('RC_WRITE_FIRST', 'RC_WRITE_ONLY')
BLOCKED, PENDING, PRESENT, VALIDATE = 0x80, 0x40, 0x20, 0x08
DONE, CLOSED, ABORT = 0x80, 0x40, 0x20
CDC, CONFIRM_LINK, ADD_LINK, DELETE_LINK = 0xfe, 0x21, 0x22, 0x24
ANSWER, REJECTED = 0x80, 0x40
SMCR = bytes.fromhex('e2d4c3d9')
OTHER = {'A': 'B', 'B': 'A'}


class Said:
    """One action of a side: @what is 'write', 'cdc' or 'llc'."""

    def __init__(self, number, side, link, what):
        self.number, self.side, self.link, self.what = number, side, link, what


class Element:
    """The element where a side receives, from its Accept or Confirm."""

    def __init__(self, clc):
        self.rkey, = struct.unpack_from('>I', clc, 41)
        self.token, = struct.unpack_from('>I', clc, 46)
        self.size = 1 << (14 + (clc[50] >> 4))
        self.vaddr, = struct.unpack_from('>Q', clc, 52)


def sends(frame, said):
    """Decode the message of a SEND."""
    if frame[0] == CDC:
        said.what = 'cdc'
        said.seq, said.token = struct.unpack_from('>HI', frame, 2)
        wraps, count, cons_wraps, cons_count = struct.unpack_from('>2xHI2xHI', frame, 8)
        said.prod, said.cons = wraps * SIZE + count, cons_wraps * SIZE + cons_count
        said.counts = count, cons_count
        said.flags, said.state = frame[24], frame[25]
        return
    said.what, said.kind, said.llc_flags, said.length = 'llc', frame[0], frame[3], len(frame)


class Talk:
    """A capture: all actions in order, and both elements."""

    def __init__(self, dump, name):
        path = os.path.join(HERE, name)
        _, frames, _, _ = run_json(dump, path)
        _, raw = read_pcap(path)
        self.all, self.elements = [], {}
        for frame, (_, data) in zip(frames, raw):
            self.take(frame, data)

    def take(self, frame, data):
        last = int(frame['ip']['src'].rsplit('.', 1)[1]) if 'ip' in frame else data[29]
        side, link = 'AB'[last % 128 - 1], 2 if last > 128 else 1
        if 'bth' not in frame:
            clc = data[34 + (data[46] >> 4) * 4:]
            if clc[:4] == SMCR and clc[4] in (2, 3):
                self.elements[side] = Element(clc)
            return
        said = Said(frame['frame'], side, link, None)
        if frame['bth']['name'] in WRITES:
            said.what, said.rkey = 'write', frame['reth']['rkey']
            said.vaddr, said.len = int(frame['reth']['va'], 16), frame['reth']['len']
        elif frame['bth']['name'] == 'RC_SEND_ONLY':
            # without the ICRC
            sends(data[54:-4], said)
        if said.what:
            self.all.append(said)

    def of(self, what, side='AB'):
        return [s for s in self.all if s.what == what and s.side in side]


class Check:
    """Collects the problems of a capture."""

    def __init__(self, talk):
        self.talk, self.problems = talk, []

    def is_(self, right, what, said=None):
        if not right:
            self.problems.append(what + (f', frame {said.number}' if said else ''))

    def one(self, found, what):
        """@return the first of @found; there must be one."""
        self.is_(found, what)
        return found[0] if found else None


def honest(check):
    """What holds in each capture: a WRITE begins at the producer's position, and does not exceed
    the element's end; no more is written than there is room (S12).  Cursors are in the element and
    never go back (S13).  The last message of each side tells that it has closed, or aborts (S15).
    """
    talk = check.talk
    done, told, cons = {'A': 0, 'B': 0}, {'A': 0, 'B': 0}, {'A': 0, 'B': 0}
    last = {}
    check.is_(set(talk.elements) == {'A', 'B'}, 'there is no Accept, or no Confirm')
    for said in talk.all:
        side, other = said.side, OTHER[said.side]
        if said.what == 'write':
            element = talk.elements[other]
            at = said.vaddr - element.vaddr
            check.is_(at == done[side] % SIZE, 'a WRITE elsewhere (S12)', said)
            check.is_(at + said.len <= SIZE, 'a WRITE over the end (S12)', said)
            check.is_(said.link == 2 or said.rkey == element.rkey, 'another key (S12)', said)
            done[side] += said.len
            check.is_(done[side] - cons[other] <= SIZE, 'more than there is room (S12)', said)
        elif said.what == 'cdc' and not said.flags & VALIDATE:
            check.is_(max(said.counts) < SIZE, 'a cursor out of the element (S13)', said)
            check.is_(said.prod == done[side], 'the producer is not where the WRITEs are (S4)', said)
            check.is_(told[side] <= said.prod and cons[side] <= said.cons <= done[other],
                      'a cursor that went back, or too far (S13)', said)
            check.is_(said.token == talk.elements[other].token, 'another token (S4)', said)
            before = last.get(side)
            check.is_(said.seq == (before.seq + 1 if before else 1), 'another number (S4)', said)
            check.is_(not before or before.state & ~said.state == 0, 'an end taken back (S15)', said)
            told[side], cons[side], last[side] = said.prod, said.cons, said
    for side in 'AB':
        check.is_(side in last and last[side].state & (CLOSED | ABORT), f'{side} has not closed (S15)')
    check.is_(all(e.size == SIZE for e in talk.elements.values()), 'elements of another size')


def wrap(check):
    """A write across the element's end becomes two WRITEs, in both directions (S12)."""
    for side in 'AB':
        element, at_end = check.talk.elements[OTHER[side]], 0
        writes = check.talk.of('write', side)
        for before, said in zip(writes, writes[1:]):
            if said.vaddr == element.vaddr:
                at_end += 1
                check.is_(before.vaddr + before.len == element.vaddr + SIZE, 'no end before it', said)
        most = check.talk.of('cdc', side)[-1].prod
        check.is_(at_end == most // SIZE >= 1, f'{side} was {at_end} times around, at {most}')


def blocked(check):
    """The side that fills the window reports that it is blocked.  The peer reports what it has
    consumed, and the rest is written, at last without the flag (S14)."""
    said = [s for s in check.talk.of('cdc', 'A') if s.flags & BLOCKED]
    check.is_([s.prod for s in said] == [SIZE, 2 * SIZE], f'blocked at {[s.prod for s in said]} (S14)')
    for one in said:
        update = check.one([s for s in check.talk.of('cdc', 'B') if s.number > one.number and
                            s.cons == one.prod and s.prod == 0], 'no update for who is blocked (S14)')
        after = [s for s in check.talk.of('write', 'A') if s.number > one.number]
        check.is_(update and after and after[0].number > update.number, 'written while blocked', one)
    end = [s.flags for s in check.talk.of('cdc', 'A') if s.prod == 40000]
    check.is_(end and not any(end), 'blocked with nothing left to write (S14)')


def held(check, side, ends):
    """Urgent bytes end at @ends.  Nothing is written after one before the peer has consumed it."""
    marks = [s for s in check.talk.of('cdc', side) if s.flags & PRESENT]
    check.is_([s.prod for s in marks] == ends, f'urgent bytes end at {[s.prod for s in marks]} (S16)')
    for mark in marks:
        check.is_(mark.flags & PENDING, 'present, and not pending (S16)', mark)
        later = [s for s in check.talk.of('write', side) if s.number > mark.number]
        heard = [s for s in check.talk.of('cdc', OTHER[side])
                 if s.number > mark.number and s.cons >= mark.prod]
        check.is_(heard and (not later or heard[0].number < later[0].number),
                  'written behind an urgent byte (S16)', mark)


def urgent(check):
    """The mark is after the urgent byte, wherever that is (S16)."""
    held(check, 'B', [1000, 1502, 5502, 6003])
    check.is_([s.prod for s in check.talk.of('cdc', 'B') if s.flags & PENDING and
               not s.flags & PRESENT] == [], 'pending for longer than it took to write it')


def urgent_blocked(check):
    """A blocked writer has an urgent byte: the message before it announces it as pending (S16)."""
    held(check, 'A', [2 * SIZE + 1])
    flags = [s.flags for s in check.talk.of('cdc', 'A')][:3]
    check.is_(flags == [BLOCKED, BLOCKED | PENDING, PENDING | PRESENT], f'flags {flags} (S14, S16)')


def half_close(check):
    """A has closed its direction, and from then on reports only what it has consumed.  B continues
    to send more than the element's size (S14, S15)."""
    done = check.one([s for s in check.talk.of('cdc', 'A') if s.state == DONE], 'nothing is done (S15)')
    if done is None:
        return
    check.is_(not [s for s in check.talk.of('cdc', 'B') if s.number < done.number],
              'B began before it heard of the end')
    check.is_(check.talk.of('cdc', 'B')[-1].prod == 40000, 'B has not sent all')
    after = [s for s in check.talk.of('cdc', 'A') if s.number >= done.number]
    check.is_(all(s.state & DONE and s.prod == 1000 for s in after), 'the end was taken back (S15)')
    check.is_([s.cons for s in after if not s.state & CLOSED] == [0, SIZE, 2 * SIZE],
              f'consumer at {[s.cons for s in after]} (S14)')


def abort(check, flags=0):
    """B has unread bytes and aborts; A answers with an abort, too (S15)."""
    mine, theirs = check.talk.of('cdc', 'B')[-1], check.talk.of('cdc', 'A')
    check.is_(mine.state == ABORT and mine.cons == 1 < theirs[0].prod, 'B does not abort (S15)', mine)
    check.is_(theirs[-1].state == ABORT and theirs[-1].number > mine.number, 'A does not (S15)')
    check.is_([s.flags for s in theirs] == [flags, flags], 'flags of A (S14)')


def abort_blocked(check):
    """As abort(), while A has no room (S14, S15)."""
    abort(check, BLOCKED)


def linger(check):
    """A linger time of 0 causes no abort if everything was read (S15)."""
    states = [s.state for s in check.talk.of('cdc')]
    check.is_(not any(s & ABORT for s in states), 'an abort (S15)')
    check.is_(check.talk.of('cdc', 'B')[-1].state == CLOSED, 'B has not closed (S15)')


def links(check):
    """Check the messages by which a second link is made: (kind, side, link that carries it, flags,
    length)."""
    found = [(s.kind, s.side, s.link, s.llc_flags, s.length) for s in check.talk.of('llc')][:6]
    wanted = [(CONFIRM_LINK, 'B', 1, 0x03, 44), (CONFIRM_LINK, 'A', 1, 0x83, 44),
              (ADD_LINK, 'B', 1, 0, 88), (ADD_LINK, 'A', 1, ANSWER, 88),
              (CONFIRM_LINK, 'B', 2, 0x03, 44), (CONFIRM_LINK, 'A', 2, 0x83, 44)]
    check.is_(found == wanted, f'LLC: {found} (S3, S8, S10)')


def two_links(check):
    """The second link exists, and data stays on the first one (S10)."""
    links(check)
    check.is_({s.link for s in check.talk.of('write') + check.talk.of('cdc')} == {1}, 'data on both')


def failover(check):
    """The first link fails: validation and DELETE_LINK use the second one, in both directions, and
    the stream continues there with other keys (S17, S18)."""
    links(check)
    for side in 'AB':
        mine = [s for s in check.talk.of('cdc', side) if s.link == 2]
        check.is_(mine and mine[0].flags == VALIDATE and mine[0].seq == 0 and
                  all(s.flags == 0 for s in mine[1:]), f'{side}: no validation, or more (S17)')
        deletes = [s for s in check.talk.of('llc', side) if s.kind == DELETE_LINK]
        check.is_(deletes and deletes[0].link == 2, f'{side}: no DELETE_LINK (S18)')
        writes = check.talk.of('write', side)
        check.is_([s.link for s in writes] == [1, 2], f'{side}: WRITEs over other links (S17)')
        check.is_(len({s.rkey for s in writes}) == 2, f'{side}: the same key on both (S10)')
        # messages that were complete are not written again
        check.is_(mine and [s.seq for s in mine[1:]][0] == 2, f'{side}: another number (S17)')


CHECKS = {
    'smcr_wrap.pcap': wrap, 'smcr_blocked.pcap': blocked, 'smcr_urgent.pcap': urgent,
    'smcr_urgent_blocked.pcap': urgent_blocked, 'smcr_half_close.pcap': half_close,
    'smcr_abort.pcap': abort, 'smcr_abort_blocked.pcap': abort_blocked, 'smcr_linger.pcap': linger,
    'smcr_two_links.pcap': two_links, 'smcr_failover.pcap': failover,
}


def main():
    tap = Tap()
    for name, function in CHECKS.items():
        check = Check(Talk(sys.argv[1], name))
        honest(check)
        function(check)
        tap.point(name, check.problems)
    sys.exit(tap.finish())


main()
