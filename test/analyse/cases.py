# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""CASES: (check, verdict, name, arguments of karst-dump, function that makes the Wire)."""
import struct

from forge import (ACK, ATOMIC_ACK, CNP, FIRST, LAST, MIDDLE, MTU, ONLY, READ_FIRST, READ_LAST, READ_MIDDLE,
                   UC_ONLY, WRITE_FIRST, WRITE_LAST, WRITE_ONLY, Wire, A, B)

CASES = []
SENDERS, RECEIVERS = ['--tap', 'senders'], ['--tap', 'receivers']
T14 = SENDERS + ['--timeout', '14']  # 67.1 ms


def case(check, verdict, *args):
    def add(make):
        CASES.append((check, verdict, make.__name__, list(args), make))
        return make
    return add


def orig(value):
    return struct.pack('>Q', value)


def timeouts(*waits):
    w = Wire().send(2).request(ONLY, 102, b'karst')
    for us in waits:
        w.wait(us).request(ONLY, 102, b'karst')
    w.msn += 1
    return w.ack(102)


# --- trace, icrc, form, psn ---

@case('trace', 'pass')
@case('icrc', 'pass')
@case('form', 'pass')
@case('psn', 'pass')
@case('ack', 'pass')
@case('msn', 'pass')
@case('message', 'pass')
@case('nak-psn', 'not seen')
@case('cnp-form', 'not seen')
def plain():
    return Wire().send(5)


@case('trace', 'fail')
def request_not_captured():
    w = Wire().send(3)
    w.psn += 1
    w.msn += 1
    w.ack(w.psn - 1)
    return w.send(2)


@case('trace', 'fail')
@case('psn', 'cannot tell')
@case('psn', 'cannot tell', *SENDERS)
def hole_that_is_acknowledged():
    w = Wire().send(2)
    w.message(4, skip=[1])
    w.msn += 1
    return w.ack(w.psn + 3)


@case('trace', 'cannot tell')
def mirror_doubles():
    w = Wire()
    w.request(ONLY, 100, b'karst', twice=True)
    return w


@case('icrc', 'fail')
@case('form', 'pass')
def wrong_icrc():
    w = Wire().send(2)
    return w.request(ONLY, w.psn, b'karst', bad_icrc=True)


@case('form', 'fail')
def pad_not_zero():
    w = Wire().send(1)
    return w.request(ONLY, w.psn, b'karst', pad=b'\0\1\0')


@case('psn', 'fail', *SENDERS)
@case('psn', 'fail', '--tap', A)
@case('psn', 'cannot tell', '--tap', B)
def leaves_psns_out():
    w = Wire().send(2)
    w.psn += 3
    w.request(ONLY, w.psn, b'karst')
    return w.nak(w.psn - 3)


@case('trace', 'pass', '--tap', A)
@case('trace', 'pass', '--tap', B)
@case('trace', 'cannot tell', '--tap', '203.0.113.9')
@case('psn', 'pass', *SENDERS)
def wraps():
    return Wire(psn=0xfffffd).send(6)


@case('psn', 'fail', *SENDERS)
def uc_gap():
    w = Wire()
    for psn in (1, 2, 4):
        w.request(UC_ONLY, psn, b'karst')
    return w


@case('form', 'fail')
@case('timeout', 'cannot tell', *T14)
def something_that_cannot_be_parsed():
    """The frame that cannot be parsed may be the reason of what looks like an early timeout."""
    w = timeouts(3000)
    ns, frame = w.frames[0]
    w.frames.append((w.frames[-1][0] + 1000, frame[:42] + b'\x1f' + frame[43:]))
    return w


# --- connections ---

def alike(ahead=0):
    """Two connections with the same PSNs, in turn; the MSNs of the second one are @ahead of the
    first."""
    w = Wire()
    for psn in range(100, 104):
        w.msn += 1
        w.request(ONLY, psn, b'karst').request(ONLY, psn, b'karst', qp=0x23)
        w.ack(psn).ack(psn, qp=0x12, msn=w.msn + ahead * (psn > 101))
    return w


def behind(first, then):
    first.frames += [(ns + int(first.us * 1000), frame) for ns, frame in then.frames]
    return first


def both_connect():
    return Wire().connect().connect(0x12, 0x23, 2, 1002)


@case('ack', 'cannot tell')
def same_psns():
    return alike()


@case('ack', 'pass')
@case('msn', 'pass')
def same_psns_whose_connections_were_seen():
    return behind(both_connect(), alike())


@case('msn', 'fail')
def same_psns_and_one_counts_wrong():
    return behind(both_connect(), alike(3))


@case('ack', 'pass')
@case('msn', 'pass')
def queue_pairs_are_used_again():
    """A new connection uses the queue pairs again, with some of the PSNs of the old one."""
    return behind(behind(Wire().connect(), Wire().send(20)),
                  behind(Wire().connect(a_id=3, b_id=1003), Wire(psn=105).send(20)))


@case('msn', 'pass')
def reply_comes_again():
    w = behind(Wire().connect(), Wire(psn=100).send(3))
    return behind(behind(w, Wire().connect()), Wire(psn=103, msn=3).send(3))


# --- message ---

@case('message', 'pass')
def three_packets():
    w = Wire().message(3)
    w.msn += 1
    return w.ack(102)


@case('message', 'fail')
def middle_is_short():
    return Wire().request(FIRST, 100, bytes(MTU)).request(MIDDLE, 101, bytes(512)).request(LAST, 102, b'abcd')


@case('message', 'fail')
def middle_without_first():
    return Wire().send(1).request(MIDDLE, 101, bytes(MTU))


@case('message', 'fail')
def write_shorter_than_reth():
    reth = struct.pack('>QII', 0, 7, 5000)
    return Wire().request(WRITE_FIRST, 100, bytes(MTU), reth).request(WRITE_LAST, 101, bytes(500))


@case('message', 'pass')
def write_as_long_as_reth():
    reth = struct.pack('>QII', 0, 7, MTU + 500)
    return Wire().request(WRITE_FIRST, 100, bytes(MTU), reth).request(WRITE_LAST, 101, bytes(500))


# --- loss of requests ---

def lost(first_again=1, naks=1, wait=10.0):
    """A SEND of 5 packets; the second one is lost after the place of the capture."""
    w = Wire().send(2)
    w.message(5, stop=2)
    w.injure()
    w.message(5, start=2)
    for i in range(naks):
        w.wait(60 * (i > 0)).nak(w.psn + 1)
    w.wait(wait).message(5, start=first_again)
    w.msn += 1
    return w.ack(w.psn + 4)


@case('go-back', 'pass', *SENDERS)
@case('nak-psn', 'pass', *SENDERS)
@case('nak-once', 'pass')
@case('resend', 'pass')
@case('trace', 'pass')
def goes_back():
    return lost()


@case('go-back', 'fail', *SENDERS)
@case('go-back', 'cannot tell')
@case('ack', 'fail', *SENDERS)
def goes_back_too_little():
    return lost(first_again=2)


@case('go-back', 'fail', *T14)
@case('go-back', 'cannot tell', *SENDERS)
def goes_back_too_far():
    return lost(first_again=0)


@case('nak-once', 'fail')
def naks_twice():
    return lost(naks=2)


@case('nak-psn', 'fail', *SENDERS)
def nak_behind_the_lost_one():
    w = Wire().send(2).message(5, stop=2)
    w.injure()
    return w.message(5, start=2).nak(w.psn + 2)


@case('nak-psn', 'fail', *SENDERS)
@case('nak-psn', 'cannot tell')
def nak_of_what_is_acknowledged():
    w = Wire().send(4)
    return w.message(3).nak(w.psn - 2)


@case('nak-psn', 'cannot tell', *RECEIVERS)
@case('nak-psn', 'cannot tell')
@case('nak-psn', 'cannot tell', *SENDERS)
def nak_of_what_arrived():
    """B may have dropped it behind the place of the capture, and the next packet shows B the gap."""
    w = Wire().send(2)
    return w.message(4).nak(w.psn + 1)


@case('nak-psn', 'cannot tell', *RECEIVERS)
@case('nak-psn', 'cannot tell', '--tap', B)
def nak_of_the_newest_behind_others():
    """B has no room for the last one while it executes those before it (R2)."""
    w = Wire().send(2)
    for i in range(66):
        w.request(WRITE_ONLY, w.psn + i, b'12345678', struct.pack('>QII', 0, 7, 8))
    w.nak(w.psn + 65).request(WRITE_ONLY, w.psn + 65, b'12345678', struct.pack('>QII', 0, 7, 8))
    w.msn += 66
    return w.ack(w.psn + 65)


@case('nak-psn', 'cannot tell', *RECEIVERS)
@case('nak-psn', 'cannot tell', '--tap', B)
def nak_in_place_of_an_rnr_nak():
    """B drops both packets because it has no receive request for the first, and accepts a copy of the
    first before its RNR NAK has left (R2, R8)."""
    w = Wire().send(2).message(2)
    w.wait(100).message(2, stop=1).nak(w.psn + 1).message(2, start=1)
    w.msn += 1
    return w.ack(w.psn + 1)


for read_again_after in (1, 100):
    @case('nak-psn', 'cannot tell', *RECEIVERS)
    @case('nak-psn', 'cannot tell', '--tap', B)
    def nak_behind_a_read_that_comes_twice(wait=read_again_after):
        """B has no room for the last request while it executes the READ again."""
        w = Wire().send(2).read(102, 100)
        w.msn += 1
        w.responses(102, 100).wait(wait).read(102, 100).request(ONLY, 103, b'karst').nak(103)
        return w.responses(102, 100)


@case('nak-psn', 'fail', *RECEIVERS)
@case('nak-psn', 'fail', '--tap', B)
@case('nak-psn', 'cannot tell')
@case('nak-psn', 'cannot tell', *SENDERS)
def nak_of_the_only_one():
    """All before it was acknowledged and nothing follows it: nothing shows B a gap."""
    return Wire().send(3).request(ONLY, 103, b'karst').nak(103)


@case('nak-psn', 'pass', *RECEIVERS)
@case('go-back', 'pass', *RECEIVERS)
def lost_before_the_capture():
    w = Wire().send(2).message(4, skip=[1])
    w.nak(w.psn + 1).message(4, start=1)
    w.msn += 1
    return w.ack(w.psn + 3)


@case('resend', 'fail')
def sends_other_content_again():
    w = Wire().send(1).request(ONLY, 101, b'first')
    return w.wait(70000).request(ONLY, 101, b'other').ack(101)


@case('resend', 'fail')
def sends_another_opcode_again():
    w = Wire().send(1).request(ONLY, 101, b'first')
    return w.wait(70000).request(FIRST, 101, bytes(MTU))


@case('resend', 'cannot tell')
@case('timeout', 'not seen', *T14)
@case('msn', 'pass')
@case('trace', 'pass')
def a_new_connection_under_the_same_numbers():
    w = Wire().send(3)
    for psn in (100, 101, 102):
        w.request(ONLY, psn, b'another')
        w.ack(psn, msn=psn - 99)
    return w


@case('trace', 'pass')
@case('ack', 'pass')
def a_new_connection_of_one_queue_pair():
    """A uses its queue pair number again; B has another one, and the PSNs differ."""
    w = Wire().send(3)
    for psn in (9000, 9001):
        w.request(ONLY, psn, b'karst', qp=0x23).ack(psn, msn=psn - 8999)
    return w


@case('go-back', 'cannot tell', *T14)
def two_naks_cross_the_reaction():
    """The first packet was only late, not lost: B has asked for another one by the time that A goes
    back."""
    w = Wire().send(2).message(6)
    w.nak(w.psn + 1).nak(w.psn + 3)
    return w.message(6, start=1)


# --- timeouts ---

@case('timeout', 'pass', *T14)
@case('timeout', 'cannot tell')
@case('go-back', 'pass')
@case('timeout-growth', 'not seen')
def one_timeout():
    return timeouts(70000)


@case('timeout', 'cannot tell', *T14)
@case('timeout-growth', 'not seen', *T14)
@case('go-back', 'pass', *T14)
def early_alone():
    """An early retransmission as karst sends it, and adapters that retransmit adaptively (Q11)."""
    return timeouts(1000, 2000, 4000)


@case('timeout', 'cannot tell', *T14)
@case('timeout-growth', 'not seen', *T14)
def early_and_timeout():
    """The timeout counts from the first transmission, not from the early retransmissions."""
    w = Wire().send(2).message(3)
    w.wait(1000).message(3, stop=1, ask=True)
    w.wait(2000).message(3, stop=1, ask=True)
    return w.wait(65000).message(3).ack(104)


@case('timeout', 'fail', *T14)
@case('timeout', 'cannot tell', '--timeout', '14')
def too_early():
    w = Wire().send(2).message(3)
    return w.wait(3000).message(3, ask=True).ack(104)


@case('timeout', 'fail', *T14)
def too_early_and_not_asking():
    w = Wire().send(2).message(3)
    return w.wait(3000).message(3, stop=1)


@case('timeout', 'cannot tell', *T14)
@case('go-back', 'pass', *T14)
def early_in_a_round():
    """An early retransmission in a round: A then continues after what it had already sent again."""
    w = Wire().send(1).message(8)
    w.nak(w.psn)
    w.message(8, stop=5)
    w.wait(1000).message(8, stop=1, ask=True)
    w.ack(w.psn + 1)
    return w.message(8, start=5)


@case('timeout', 'fail', *T14)
def too_late():
    return timeouts(300000)


@case('timeout-growth', 'pass', *T14)
def steady():
    return timeouts(70000, 80000, 140000)


@case('timeout-growth', 'fail', *T14)
@case('timeout-growth', 'cannot tell', '--timeout', '14')
def grows_too_much():
    return timeouts(70000, 140000, 300000)


@case('timeout', 'not seen', *T14)
@case('go-back', 'pass', *T14)
def partial_progress_is_no_timeout():
    """A skips packets that are acknowledged while it sends others again."""
    w = Wire().send(1).message(8)
    w.nak(w.psn + 1)
    w.message(8, start=1, stop=3)
    w.ack(w.psn + 5)
    return w.request(MIDDLE, w.psn + 6, bytes([6]) * MTU).request(LAST, w.psn + 7, bytes([7]) * 100)


# --- ACK, MSN ---

@case('ack', 'fail', *SENDERS)
@case('ack', 'cannot tell')
def ack_goes_back():
    w = Wire()
    for psn in range(100, 104):
        w.request(ONLY, psn, b'karst')
    return w.respond(ACK, 103, 0x1f, msn=4).respond(ACK, 101, 0x1f, msn=4)


@case('ack', 'pass', *SENDERS)
@case('msn', 'pass')
def coalesced():
    w = Wire()
    for psn in range(100, 104):
        w.request(ONLY, psn, b'karst')
    w.respond(ACK, 101, 0x1f, msn=2)
    return w.respond(ACK, 103, 0x1f, msn=4)


@case('ack', 'fail', *SENDERS)
@case('ack', 'pass')
def acknowledges_what_was_lost():
    w = Wire().send(1).request(ONLY, 101, b'karst').injure()
    w.msn += 1
    return w.ack(101)


@case('ack', 'fail', *SENDERS)
@case('ack', 'pass')
def acknowledges_what_a_rate_has_dropped():
    w = Wire().send(1).request(ONLY, 101, b'karst')
    w.injure('rate', dropped=True, note='it would wait too long, dropped')
    w.msn += 1
    return w.ack(101)


@case('ack', 'pass')
def acknowledges_what_a_rate_has_delayed():
    w = Wire().send(1).request(ONLY, 101, b'karst').injure('rate')
    w.msn += 1
    return w.ack(101)


@case('msn', 'fail')
def msn_stands_still():
    w = Wire().send(3)
    w.msn -= 1
    return w.send(1)


@case('msn', 'fail')
def msn_runs_ahead():
    w = Wire().send(3)
    w.msn += 1
    return w.send(1)


@case('msn', 'pass')
def msn_wraps():
    return Wire(msn=0xfffffe).send(4)


# --- READ ---

@case('read', 'pass', *SENDERS)
@case('trace', 'pass')
def reads():
    w = Wire().send(1).read(101, 2500)
    w.msn += 1
    return w.responses(101, 2500).read(104, 10).responses(104, 10)


@case('read', 'fail')
def read_too_short():
    w = Wire().send(1).read(101, 2500)
    return w.responses(101, 2400)


@case('read', 'fail')
def read_ends_early():
    w = Wire().send(1).read(101, 2500)
    return w.respond(READ_FIRST, 101, 0x1f, bytes(MTU)).respond(READ_LAST, 102, 0x1f, bytes(452))


@case('read', 'fail', *SENDERS)
@case('read', 'cannot tell')
def leaves_a_response_out():
    w = Wire().send(1).read(101, 4000)
    return w.responses(101, 4000, skip=[2])


def read_gap(va=0x1000 + MTU, length=4000 - MTU, wait=20):
    w = Wire().send(1).read(101, 4000)
    w.respond(READ_FIRST, 101, 0x1f, bytes(MTU)).respond(READ_MIDDLE, 102, None, bytes(MTU)).injure()
    w.respond(READ_MIDDLE, 103, None, bytes(MTU))
    w.wait(wait).read(102, length, va)
    return w.responses(101, 4000, first=1)


@case('read-retry', 'pass', *SENDERS)
@case('timeout', 'not seen', *T14)
@case('read', 'pass', *SENDERS)
def reads_the_rest():
    return read_gap()


@case('read-retry', 'fail')
def reads_from_the_old_address():
    return read_gap(va=0x1000)


@case('read-retry', 'fail')
def reads_the_old_length():
    return read_gap(length=4000)


@case('timeout', 'not seen', *T14)
@case('read-retry', 'pass', *T14)
def reads_the_rest_and_what_is_behind():
    """The PSN after the second half of a READ is the one after the whole READ."""
    w = Wire().send(1).read(101, 4000).read(105, 4000, 0x9000)
    w.responses(101, 4000, skip=[2]).wait(20)
    w.read(103, 4000 - 2 * MTU, 0x1000 + 2 * MTU).read(105, 4000, 0x9000)
    return w.responses(101, 4000, first=2).responses(105, 4000)


# --- atomics ---

def atomics(first, second):
    w = Wire().send(1).atomic(101).respond(ATOMIC_ACK, 101, 0x1f, ext=orig(first))
    return w.wait(70000).atomic(101).respond(ATOMIC_ACK, 101, 0x1f, ext=orig(second))


@case('atomic', 'pass')
def replays():
    return atomics(41, 41)


@case('atomic', 'fail')
def executes_again():
    return atomics(41, 42)


# --- RNR ---

def rnr(wait, again=101):
    w = Wire().send(1).request(ONLY, 101, b'karst').rnr(101, 20)  # 10.24 ms
    return w.wait(wait).request(ONLY, again, b'karst')


@case('rnr-wait', 'pass')
@case('rnr-resume', 'pass')
def waits():
    return rnr(10300)


@case('rnr-wait', 'fail')
def does_not_wait():
    return rnr(4000)


@case('rnr-resume', 'fail', *SENDERS)
@case('rnr-resume', 'cannot tell')
def resumes_too_early():
    return rnr(10300, again=100)


# --- CNP ---

def congested(at=(10,), rate_after=60, packets=200, **more):
    """A sends at a steady rate, all packets are marked, and B sends CNPs after packets @at."""
    w = Wire().send(1)
    for i in range(packets):
        w.wait(6 if i <= at[0] else rate_after).request(WRITE_ONLY, w.psn + i, bytes(1000),
                                                        struct.pack('>QII', 0, 7, 1000), tos=3)
        if i in at:
            w.cnp(**more)
    w.msn += packets
    return w.ack(w.psn + packets - 1)


@case('cnp-form', 'pass')
@case('cnp-target', 'pass')
@case('cnp-answer', 'pass')
@case('cnp-rate', 'pass')
@case('cnp-interval', 'not seen')
def slows_down():
    return congested(at=(100,))


@case('cnp-rate', 'fail', '--tap', A)
@case('cnp-rate', 'cannot tell')
def does_not_slow_down():
    return congested(at=range(100, 3000, 150), rate_after=4, packets=3200)


@case('cnp-rate', 'cannot tell', '--tap', A)
def one_cnp_without_effect():
    return congested(at=(100,), rate_after=2, packets=600)


@case('cnp-rate', 'cannot tell', '--tap', A)
def too_few_packets_of_divided_writes():
    """WRITEs of 16 KiB, each sent as four packets that are WRITEs of their own (Q13), and a CNP after
    each: two packets before a CNP are too few for a rate."""
    w = Wire().send(1)
    for i in range(80):
        w.wait(198).request(WRITE_ONLY, w.psn + i, bytes(4096), struct.pack('>QII', 4096 * i, 7, 4096),
                            ask=i % 4 == 3, tos=3)
        if i % 4 == 3:
            w.msn += 4
            w.ack(w.psn + i).cnp()
    return w


@case('cnp-rate', 'cannot tell')
def too_few_packets_for_a_rate():
    return congested(at=(3,), packets=8)


@case('cnp-form', 'fail')
def cnp_without_becn():
    return congested(becn=False)


@case('cnp-form', 'fail')
def cnp_with_garbage():
    return congested(body=b'\1' + bytes(15))


@case('cnp-target', 'fail', *RECEIVERS)
@case('cnp-target', 'cannot tell')
def cnp_without_mark():
    return Wire().send(3).cnp()


@case('cnp-answer', 'fail', *SENDERS)
@case('cnp-answer', 'fail', '--tap', B)
@case('cnp-answer', 'cannot tell')
def marks_without_cnp():
    w = Wire().send(2)
    w.request(ONLY, w.psn, b'karst', tos=3)
    w.msn += 1
    return w.ack(w.psn)


@case('cnp-interval', 'pass', '--cnp-interval', '50')
@case('cnp-interval', 'cannot tell')
def cnps_apart():
    return congested(at=(10, 20, 30))


@case('cnp-interval', 'fail', '--cnp-interval', '50')
def cnps_too_close():
    return congested(at=(10, 11), rate_after=6)


@case('cnp-interval', 'cannot tell', '--cnp-interval', '50')
@case('cnp-interval', 'cannot tell', '--cnp-interval', '50', '--tap', A)
def cnps_the_same_and_close():
    """Two CNPs that are identical to the last bit, as IP packets of adapters may have no
    identification: either duplicated, or too close."""
    w = congested(at=(10, 20, 30))
    at = next(i for i, (_, f) in enumerate(w.frames) if f[42] == CNP)
    w.frames[at + 1:at + 1] = [(w.frames[at][0] + us * 1000, w.frames[at][1]) for us in (1, 2, 3)]
    return w


# --- times that are not in order ---

def by_the_clock():
    """An RNR NAK and a timeout, each with two packets; all correct."""
    w = Wire().send(5).wait(100).message(2)
    w.wait(20).rnr(w.psn, 12).wait(700).message(2) # 0.64 ms
    w.msn += 1
    w.wait(20).ack(w.psn + 1)
    w.psn += 2
    w.wait(100).message(2).wait(70000).message(2)
    w.msn += 1
    return w.wait(20).ack(w.psn + 1)


for set_back_at in (1, 5, 12):
    @case('rnr-wait', 'pass', '--tap', A, '--timeout', '14')
    @case('timeout', 'pass', '--tap', A, '--timeout', '14')
    @case('trace', 'cannot tell', '--tap', A, '--timeout', '14')
    def clock_is_set_back(at=set_back_at):
        return by_the_clock().set_back(at, 10**6)


@case('rnr-wait', 'cannot tell', '--tap', A, '--timeout', '14')
@case('timeout', 'pass', '--tap', A, '--timeout', '14')
def clock_is_set_back_while_it_waits():
    return by_the_clock().set_back(13, 10**6)


@case('rnr-wait', 'pass', '--tap', A, '--timeout', '14')
@case('timeout', 'cannot tell', '--tap', A, '--timeout', '14')
def clock_is_set_back_before_the_timeout():
    return by_the_clock().set_back(18, 10**6)


@case('rnr-wait', 'fail', '--tap', A, '--timeout', '14')
def clock_is_set_back_before_a_fault():
    w = Wire().send(5)
    w.request(ONLY, w.psn, b'karst').rnr(w.psn, 20).wait(4000).request(ONLY, w.psn, b'karst')
    return w.set_back(4, 10**6)


@case('cnp-interval', 'pass', '--cnp-interval', '50')
def clock_is_set_back_between_cnps():
    w = congested(at=(10, 20, 30))
    at = [i for i, (_, f) in enumerate(w.frames) if f[42] == CNP][1]
    return w.set_back(at, 10**6)


# --- damaged where the capture was taken ---

def damaged(off, bits):
    """Of four packets the second is damaged, and B asks for it again."""
    w = Wire().send(3).message(4)
    w.damage(7, off, bits).wait(20).nak(w.psn + 1).wait(20).message(4, start=1)
    w.msn += 1
    w.wait(10).ack(w.psn + 3)
    w.psn += 4
    return w.send(3)


for damaged_off, damaged_bits in ((42, 1), (42, 3), (42, 6), (43, 0x10)):
    @case('icrc', 'fail', '--tap', B)
    @case('message', 'pass', '--tap', B)
    @case('resend', 'pass', '--tap', B)
    @case('msn', 'pass', '--tap', B)
    @case('go-back', 'pass', '--tap', B)
    @case('nak-psn', 'pass', '--tap', B)
    def damaged_headers_say_nothing(off=damaged_off, bits=damaged_bits):
        return damaged(off, bits)


for damaged_off, damaged_bits in ((69, 1), (68, 4), (58, 1)):
    @case('read', 'pass', '--tap', B)
    @case('read-retry', 'not seen', '--tap', B)
    @case('resend', 'not seen', '--tap', B)
    @case('msn', 'pass', '--tap', B)
    def damaged_read_says_nothing(off=damaged_off, bits=damaged_bits):
        w = Wire().send(3)
        w.read(w.psn, 3000).damage(6, off, bits).wait(5000).read(w.psn, 3000)
        w.msn += 1
        w.responses(w.psn, 3000)
        w.psn += 3
        return w.send(3)


@case('trace', 'pass', '--tap', B)
@case('msn', 'pass', '--tap', B)
def sealed_wrongly_and_taken():
    """B accepts a packet with a wrong ICRC, because it does not check."""
    w = Wire().send(3).request(ONLY, 103, b'karst', bad_icrc=True)
    w.msn += 1
    w.ack(103)
    w.psn += 1
    return w.send(3)


# --- one direction, other things ---

@case('ack', 'cannot tell')
@case('msn', 'not seen')
def one_direction():
    w = Wire()
    for psn in range(100, 110):
        w.request(ONLY, psn, b'karst')
    return w
