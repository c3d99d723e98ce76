# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""More of CASES, with correct conversations: effects of the capture itself, or numbers that are
used again."""
import struct

from cases import SENDERS, T14, case
from forge import (A, FIRST, LAST, MIDDLE, MTU, OK, ONLY, READ, READ_FIRST, READ_LAST, READ_MIDDLE, WRITE_FIRST,
                   WRITE_LAST, Wire)

FROM_A = ['--tap', A, '--timeout', '14']


# --- each frame is there twice ---

def mirrored(w, by_ns):
    """As captured by a mirror port at two places; a frame passes the second one @by_ns later."""
    twice = [(ns + later, frame) for ns, frame in w.frames for later in (0, by_ns)]
    w.frames = sorted(twice, key=lambda at: at[0])
    return w


def recovered():
    """A message of eight packets; B asks for one of them again."""
    w = Wire().send(3).message(8)
    w.wait(10).nak(w.psn + 2).wait(5).message(8, start=2)
    w.msn += 1
    w.wait(5).ack(w.psn + 7)
    w.psn += 8
    return w.send(3)


for how in (T14, FROM_A, []):
    for ns in (500, 5000, 11000):
        @case('trace', 'cannot tell', *how)
        @case('psn', 'pass', *how)
        @case('go-back', 'pass', *how)
        @case('timeout', 'not seen', *how)
        @case('nak-once', 'pass', *how)
        @case('ack', 'pass', *how)
        @case('msn', 'pass', *how)
        def twice_with_others_in_between(later=ns):
            return mirrored(recovered(), later)


@case('trace', 'pass', *T14)
@case('rnr-wait', 'pass', *T14)
@case('rnr-resume', 'pass', *T14)
def sent_again_soon_after_an_rnr_nak():
    """Packets that are identical to the last bit, but are not duplicates."""
    w = Wire().send(2).request(ONLY, 102, b'karst')
    for _ in range(2):
        w.rnr(102, 1).wait(12).request(ONLY, 102, b'karst')
    w.msn += 1
    return w.ack(102)


# --- frames are not in the order of their times ---

def swapped(w, at):
    w.frames[at], w.frames[at + 1] = w.frames[at + 1], w.frames[at]
    return w


for how in (SENDERS, FROM_A):
    @case('trace', 'cannot tell', *how)
    @case('psn', 'cannot tell', *how)
    @case('msn', 'pass', *how)
    def requests_swapped():
        w = Wire().send(4).message(8)
        return swapped(w, 11)


@case('trace', 'cannot tell', *SENDERS)
@case('ack', 'cannot tell', *SENDERS)
def acknowledgements_swapped():
    w = Wire().send(2).request(ONLY, 102, b'a').request(ONLY, 103, b'b')
    w.msn += 1
    w.ack(102)
    w.msn += 1
    return swapped(w.ack(103), 6)


@case('trace', 'cannot tell', *SENDERS)
@case('psn', 'pass', *SENDERS)
@case('ack', 'pass', *SENDERS)
def request_swapped_with_its_acknowledgement():
    return swapped(Wire().send(5), 4)


@case('trace', 'cannot tell', *SENDERS)
@case('read', 'cannot tell', *SENDERS)
def responses_swapped():
    w = Wire().send(2).read(102, 4 * MTU).responses(102, 4 * MTU)
    return swapped(w, 6)


@case('psn', 'fail', *SENDERS)
def left_out_long_after_frames_were_swapped():
    return swapped(Wire().send(4), 1).wait(10).request(ONLY, 105, b'karst')


# --- the same numbers again ---

def messages(w, n, middle):
    """@n messages of three packets; the first packet is always the same."""
    for _ in range(n):
        for i, op in enumerate((FIRST, MIDDLE, LAST)):
            w.request(op, w.psn + i, (middle if i else b'a') * (MTU if i < 2 else 100))
        w.msn += 1
        w.ack(w.psn + 2)
        w.psn += 3
    return w


def begins_again(w):
    w.psn, w.msn = 0, 0
    return w.wait(3 * 10**6)


for how in (T14, FROM_A):
    for second in (b'b', b'c'):
        @case('resend', 'pass' if second == b'b' else 'cannot tell', *how)
        @case('timeout', 'cannot tell', *how)
        @case('msn', 'pass', *how)
        @case('message', 'pass', *how)
        def queue_pair_that_begins_at_the_same_psn(middle=second):
            return messages(begins_again(messages(Wire(psn=0), 4, b'b')), 4, middle)


def later(w, psns, msn=0):
    """A pause, after which the PSNs go on @psns later."""
    w.psn += psns
    w.msn = msn
    return w.wait(10**6)


for how in (T14, FROM_A, []):
    for ahead in (1, 100, 60000):
        @case('trace', 'pass', *how)
        @case('psn', 'pass', *how)
        @case('msn', 'pass', *how)
        @case('ack', 'pass', *how)
        @case('message', 'pass', *how)
        def queue_pair_that_begins_at_a_later_psn(psns=ahead):
            return messages(later(Wire().send(5), psns), 4, b'b').send(3)

    @case('psn', 'pass', *how)
    @case('trace', 'pass', *how)
    @case('read', 'pass', *how)
    def queue_pair_that_begins_at_a_later_psn_with_a_read():
        w = later(Wire().send(5), 20)
        w.read(w.psn, 3 * MTU)
        w.msn = 1
        w.responses(w.psn, 3 * MTU)
        w.psn += 3
        return w.send(3)

    @case('psn', 'cannot tell', *how)
    @case('trace', 'pass', *how)
    def begins_at_a_later_psn_and_nothing_is_answered():
        w = later(Wire().send(5), 20)
        return w.request(ONLY, w.psn, b'karst')

    @case('psn', 'cannot tell', *how)
    @case('trace', 'pass', *how)
    @case('msn', 'pass', *how)
    def begins_at_a_later_psn_and_the_msn_is_neither():
        return later(Wire().send(5), 20, 5000).send(3)

    @case('trace', 'fail', *how)
    @case('psn', 'cannot tell', *how)
    def capture_that_lost_packets_before_a_pause():
        """The same connection goes on: so many messages are missing."""
        return later(Wire().send(5), 20, 25).send(3)


for how in (T14, FROM_A, []):
    @case('psn', 'cannot tell', *how)
    @case('trace', 'pass', *how)
    def begins_at_a_later_psn_without_an_answer_and_then_far_away():
        w = later(Wire().send(5), 20)
        return later(w.request(ONLY, w.psn, b'karst'), 100000).send(3)

    @case('psn', 'cannot tell', *how)
    @case('trace', 'pass', *how)
    def begins_at_a_later_psn_without_an_answer_and_is_connected_again():
        w = later(Wire().connect().send(5), 20)
        w.request(ONLY, w.psn, b'karst').connect(a_id=3, b_id=1003)
        return later(w, 2000).send(3)

    @case('psn', 'cannot tell', *how)
    @case('trace', 'pass', *how)
    def begins_at_a_later_psn_without_an_answer_and_then_at_an_old_one():
        w = later(Wire().send(5), 20)
        w.request(ONLY, w.psn, b'karst').request(ONLY, 101, b'another')
        w.msn = 1
        w.ack(101)
        w.psn = 102
        return w.send(3)

    @case('psn', 'pass', *how)
    @case('trace', 'pass', *how)
    def begins_at_a_later_psn_and_an_old_packet_comes_late():
        """A router has kept a copy of one that was acknowledged."""
        w = later(Wire().send(5), 20, 1)
        w.request(ONLY, w.psn, b'karst').request(ONLY, w.psn - 23, b'karst').ack(w.psn)
        w.psn += 1
        return w.send(3)


def of_mtu(w, mtu):
    """A message of three packets and a READ of two, of another path MTU."""
    for i, op in enumerate((FIRST, MIDDLE, LAST)):
        w.request(op, w.psn + i, bytes(mtu if i < 2 else 100))
    w.msn += 1
    w.ack(w.psn + 2).read(w.psn + 3, 2 * mtu)
    w.msn += 1
    for i, op in enumerate((READ_FIRST, READ_LAST)):
        w.respond(op, w.psn + 3 + i, OK, bytes(mtu))
    w.psn += 5
    return w


for how in (T14, FROM_A, []):
    for bytes_each in (256, 4096):
        @case('message', 'pass', *how)
        @case('read', 'pass', *how)
        @case('psn', 'pass', *how)
        @case('timeout', 'not seen', *how)
        @case('trace', 'pass', *how)
        def begins_at_a_later_psn_with_another_mtu(mtu=bytes_each):
            return of_mtu(later(messages(Wire(), 2, b'b'), 100), mtu).send(2)

        @case('message', 'pass', *how)
        @case('read', 'pass', *how)
        @case('psn', 'pass', *how)
        def begins_at_a_later_psn_with_a_read_of_another_mtu(mtu=bytes_each):
            w = later(messages(Wire(), 2, b'b'), 100)
            w.read(w.psn, 3 * mtu)
            w.msn += 1
            for i, op in enumerate((READ_FIRST, READ_MIDDLE, READ_LAST)):
                w.respond(op, w.psn + i, None if op == READ_MIDDLE else OK, bytes(mtu))
            w.psn += 3
            return of_mtu(w, mtu).send(2)


# Requests of a new queue pair where no First or Middle response shows the path MTU in time.

def reads(w, length):
    """A READ and its responses."""
    w.read(w.psn, length)
    w.msn += 1
    w.responses(w.psn, length)
    w.psn += max(1, -(-length // MTU))
    return w


def begins_with_a_read_of_one_packet():
    return reads(later(messages(Wire(), 2, b'b'), 100), 1000).send(1)


def read_and_message(w, first, last, left_out=0):
    """A READ of three PSNs, and before it is answered a message, before which @left_out PSNs are
    left out."""
    at = w.psn
    w.read(at, 3 * MTU)
    w.psn += 3 + left_out
    ext = struct.pack('>QII', 0, 7, 2 * MTU) if first == WRITE_FIRST else b''
    w.request(first, w.psn, bytes(MTU), ext).request(last, w.psn + 1, bytes(MTU))
    if left_out == 0:
        w.msn += 1
        w.responses(at, 3 * MTU)
        w.msn += 1
        w.ack(w.psn + 1)
    w.psn += 2
    return w


for how in (T14, FROM_A, SENDERS):
    @case('psn', 'pass', *how)
    @case('read', 'pass', *how)
    @case('trace', 'pass', *how)
    def queue_pairs_anew_after_a_read_of_one_packet():
        return later(begins_with_a_read_of_one_packet(), 100).send(3)

    @case('resend', 'cannot tell', *how)
    @case('psn', 'pass', *how)
    def queue_pair_anew_at_the_psn_of_a_read_of_one_packet():
        w = begins_with_a_read_of_one_packet()
        return later(w, -2).send(3)

    for ops in ((FIRST, LAST), (WRITE_FIRST, WRITE_LAST)):
        @case('psn', 'pass', *how)
        @case('read', 'pass', *how)
        @case('trace', 'pass', *how)
        @case('message', 'pass', *how)
        def begins_at_a_later_psn_with_a_read_and_a_message(ops=ops):
            w = read_and_message(later(messages(Wire(), 2, b'b'), 100), *ops)
            return later(w.send(1), 100).send(3)

        @case('psn', 'pass', *how)
        @case('read', 'pass', *how)
        @case('trace', 'pass', *how)
        def capture_begins_with_a_read_and_a_message(ops=ops):
            return later(read_and_message(Wire(), *ops).send(1), 100).send(3)


@case('timeout', 'fail', *FROM_A)
def sent_again_too_early_after_a_read_of_one_packet():
    w = begins_with_a_read_of_one_packet()
    w.request(ONLY, w.psn, b'a', ask=False).wait(1000).request(ONLY, w.psn, b'a', ask=False)
    return w


@case('timeout', 'not seen', *FROM_A)
@case('psn', 'pass', *FROM_A)
@case('trace', 'pass', *FROM_A)
def begins_at_a_later_psn_with_a_read_whose_first_response_is_lost():
    w = later(messages(Wire(), 2, b'b'), 100)
    w.read(w.psn, 2 * MTU)
    w.msn += 1
    w.responses(w.psn, 2 * MTU, first=1).wait(100).read(w.psn, 2 * MTU).responses(w.psn, 2 * MTU)
    w.psn += 2
    return w.send(1)


@case('timeout', 'not seen', *FROM_A)
@case('rnr-wait', 'pass', *FROM_A)
@case('psn', 'pass', *FROM_A)
def begins_at_a_later_psn_with_a_read_that_gets_an_rnr_nak():
    w = later(messages(Wire(), 2, b'b'), 100)
    w.read(w.psn, 2 * MTU).rnr(w.psn, 1).wait(12)
    return reads(w, 2 * MTU).send(1)


for how, verdict in ((FROM_A, 'fail'), (SENDERS, 'fail'), ([], 'cannot tell')):
    @case('psn', verdict, *how)
    def left_out_behind_a_read_before_a_message():
        """A READ of six PSNs could have been there before."""
        return read_and_message(Wire(), FIRST, LAST, left_out=3)

    @case('psn', verdict, *how)
    def left_out_behind_a_read():
        """Its first response shows how many."""
        w = Wire().read(100, 3 * MTU).request(ONLY, 106, b'karst')
        w.msn += 1
        return w.responses(100, 3 * MTU)

    @case('psn', verdict, *how)
    def left_out_behind_a_read_of_one_packet():
        w = Wire().read(100, 1000).request(ONLY, 104, b'karst')
        w.msn += 1
        return w.responses(100, 1000)


def leaves_out(w, psns):
    """After a pause @psns PSNs are left out before a READ, and B asks for the first of them."""
    w = later(w, psns, w.msn)
    w.read(w.psn, 3 * MTU)
    return w.nak(w.psn - psns)


@case('psn', 'fail', *SENDERS)
@case('message', 'fail', *SENDERS)
def leaves_psns_out_and_goes_on_with_another_mtu():
    w = leaves_out(messages(Wire(), 2, b'b'), 2)
    return w.request(FIRST, w.psn + 3, bytes(4096))


@case('psn', 'fail', *SENDERS)
@case('read', 'pass', *SENDERS)
@case('msn', 'pass', *SENDERS)
def leaves_psns_out_before_a_read_and_sends_them_then():
    """The path MTU is still the one that was seen before, so the READ has three responses."""
    w = leaves_out(messages(Wire(), 2, b'b'), 2)
    w.request(ONLY, w.psn - 2, b'karst').request(ONLY, w.psn - 1, b'karst').read(w.psn, 3 * MTU)
    w.msn += 3
    w.responses(w.psn, 3 * MTU)
    w.psn += 3
    return w.send(2)


@case('psn', 'fail', *SENDERS)
@case('psn', 'cannot tell')
def leaves_psns_out_after_a_pause():
    """The responder asks for the first of them."""
    w = later(Wire().send(5), 20, 5)
    return w.request(ONLY, w.psn, b'karst').nak(w.psn - 20)


@case('psn', 'fail', *SENDERS)
def leaves_psns_out_after_a_pause_and_sends_them_then():
    w = later(Wire().send(5), 2, 5)
    return w.request(ONLY, w.psn, b'karst').request(ONLY, w.psn - 2, b'karst')


@case('timeout', 'fail', *FROM_A)
def sent_again_too_late():
    """A PSN that is not acknowledged does not belong to a new connection."""
    return Wire().send(3).request(ONLY, 103, b'karst').wait(3 * 10**6).request(ONLY, 103, b'karst').ack(103)


# --- long ways back, opcodes of manufacturers ---

@case('read-retry', 'pass', *SENDERS)
@case('read', 'pass', *SENDERS)
@case('msn', 'pass', *SENDERS)
def read_of_many_psns_is_asked_for_again():
    psns = 70000
    w = Wire().send(3)

    def ask(k):
        w.request(READ, w.psn + k, ext=struct.pack('>QII', 0x1000 + k * MTU, 7, (psns - k) * MTU))

    def answer(k, op):
        w.respond(op, w.psn + k, None if op == READ_MIDDLE else OK, bytes(MTU))

    ask(0)
    answer(0, READ_FIRST)
    answer(1, READ_MIDDLE)
    w.wait(200)
    ask(2)
    w.msn += 1
    answer(2, READ_FIRST)
    for k in range(3, psns - 1):
        answer(k, READ_MIDDLE)
    answer(psns - 1, READ_LAST)
    w.psn += psns
    return w.send(2)


@case('form', 'cannot tell', *SENDERS)
@case('psn', 'pass', *SENDERS)
def opcode_of_a_manufacturer():
    return Wire().send(3).request(0xc1, 7, b'karst', qp=0x99).send(2)
