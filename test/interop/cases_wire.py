# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""An impaired wire between karst and Linux: every kind of packet is lost, duplicated, delayed,
corrupted or marked, in both directions, and all checks of interop-peer have to succeed all the
same."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'peer'))
from cases_ops import SERVER  # noqa: E402
from interop_bed import Case  # noqa: E402
from wire import corrupt, delay, drop, duplicate, mark  # noqa: E402

# Opcodes of RC; a UC opcode has the bits of UC in addition.
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM = range(6)
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM = range(6, 12)
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = range(12, 17)
ACK, ATOMIC_ACK, CMP_SWAP, FETCH_ADD = 0x11, 0x12, 0x13, 0x14
SEND_LAST_INV, SEND_ONLY_INV, ATOMIC_WRITE, UC = 0x16, 0x17, 0x1d, 0x20
REQUESTS = [*range(13), CMP_SWAP, FETCH_ADD, SEND_LAST_INV, SEND_ONLY_INV, ATOMIC_WRITE]
RESPONSES = [*range(13, 19)]

# With karst as the requester, and as the responder.  Linux detects a lost response only by its
# timeout, so it is as short as possible without giving up peers because the machine is busy: 268
# ms, eight times.
FAST = '--timeout 16'
SHORT = '--timeout 17 --retry-cnt 3' # some end with a message that arrives


class Ends:
    """Which side's frames are requests, and which side's are responses."""

    def __init__(self, role):
        self.requests = 'karst' if role == 'client' else 'guest'
        self.responses = 'guest' if role == 'client' else 'karst'


def injured(rules, name, steps, wire, options=FAST, least=None, requester=None, responder=None,
            kernels=('6.12',), roles=('client', 'server'), frames=1):
    """One case for each role, which uses one of the @kernels in turn.  @wire(ends): the rules of
    the wire; @requester, @responder: what karst must have counted in that role."""
    for i, role in enumerate(roles):
        some = wire(Ends(role))
        count = sum(len(rule.nth) for rule in some) or 1
        yield Case(name, SERVER, f'interop-peer -d {{dev}} --gid {{gid}} -p {{port}} {options} '
                   f'{{tcp}} {steps}', roles=(role,), both=['all is well: '], limit_s=600,
                   kernels=(kernels[(i + len(name)) % len(kernels)],), rules=rules, wire=some,
                   frames=frames,
                   injured=count if least is None else least,
                   counts=requester if role == 'client' else responder)


def lost_requests(rules, name, steps, ops, **more):
    """@ops: (opcode, which of them is lost).  A responder reports each gap once."""
    return injured(rules, f'lost: {name}', steps,
                   lambda ends: [drop(source=ends.requests, op=op, nth=(nth,)) for op, nth in ops],
                   requester={'retransmits': 1}, **more)


def lost_responses(rules, name, steps, ops, **more):
    return injured(rules, f'lost: {name}', steps,
                   lambda ends: [drop(source=ends.responses, op=op, nth=nth) for op, nth in ops],
                   **more)


def late(**where):
    """Packets of all kinds, except responses to Linux: when these are reordered, Linux as a
    requester gives its queue pair up, or completes requests without a result."""
    return [delay(source='guest', **where), delay(source='karst', op=REQUESTS, **where)]


BOTH_KERNELS = ('6.1', '6.12')
CASES = [
    *lost_requests('R2 Q4 Q6 L2', 'SEND, first, middle, last, only',
                   'send:3000 send:3000 send:3000 send:10 send:11',
                   [(SEND_FIRST, 1), (SEND_MIDDLE, 2), (SEND_LAST, 3), (SEND_ONLY, 1)],
                   kernels=BOTH_KERNELS),
    *lost_requests('R2 Q4 Q6', 'SEND with immediate data, last, only',
                   'send_imm:3000 send_imm:3000 send_imm:10 send_imm:11',
                   [(SEND_LAST_IMM, 1), (SEND_ONLY_IMM, 1)]),
    *lost_requests('R2 Q4 Q6', 'SEND with invalidate, last, only',
                   'bind2:4000 send_inv:3000/mw bind2:4000 send_inv:10/mw send:5',
                   [(SEND_LAST_INV, 1), (SEND_ONLY_INV, 1)]),
    *lost_requests('R2 Q4 Q6', 'WRITE, first, middle, last, only',
                   'write:3000 write:3000 write:3000 write:10 write:11',
                   [(WRITE_FIRST, 1), (WRITE_MIDDLE, 2), (WRITE_LAST, 3), (WRITE_ONLY, 1)],
                   kernels=BOTH_KERNELS),
    *lost_requests('R2 Q4 Q6', 'WRITE with immediate data, last, only',
                   'write_imm:3000 write_imm:3000 write_imm:10 write_imm:11',
                   [(WRITE_LAST_IMM, 1), (WRITE_ONLY_IMM, 1)]),
    *lost_requests('R2 Q4', 'requests in a burst', 'send:2500x8 write:2500x16 read:10x8 send:8',
                   [(SEND_MIDDLE, 3), (SEND_LAST, 5), (WRITE_FIRST, 2), (WRITE_MIDDLE, 9),
                    (READ_REQUEST, 3)]),
    *lost_requests('Q6 P1', 'PSNs wrap', 'send:6000 write:6000 send:1',
                   [(SEND_MIDDLE, 3), (WRITE_LAST, 1)], options=FAST + ' --psn 0xfffffc'),
    *lost_requests('Q6', 'READ requests', 'read:3000 read:8 read:2000', [(READ_REQUEST, 1),
                                                                         (READ_REQUEST, 3)]),
    *lost_requests('Q6 R5', 'atomic requests', 'faa:x1 faa:x4 cas:x1 cas:x4',
                   [(FETCH_ADD, 1), (FETCH_ADD, 4), (CMP_SWAP, 2)]),
    # Not by Linux, which uses address 0 when it sends one again.
    *lost_requests('Q6', 'ATOMIC WRITE requests', 'awrite:x1 awrite:x4',
                   [(ATOMIC_WRITE, 1), (ATOMIC_WRITE, 3)], roles=('client',)),

    *lost_responses('R3 Q3', 'ACK', 'send:10 send:11 write:3000 send:12', [(ACK, (2, 3))],
                    responder={'duplicate_request': 1}, requester={'retransmits': 1},
                    kernels=BOTH_KERNELS),
    *lost_responses('Q3 R11', 'ACKs of a burst', 'send:700x16 write:2500x16 send:9',
                    [(ACK, (1, 2, 3))]),
    *injured('R2 Q6', 'lost: SEND, middle, and its NAK', 'send:6000 send:10',
             lambda e: [drop(source=e.requests, op=SEND_MIDDLE, nth=(2,)),
                        drop(source=e.responses, op=ACK, nth=(1,))],
             requester={'local_ack_timeout_err': 1}, responder={'seq_nak_sent': 1}),
    *lost_responses('Q5 R4 L2', 'READ response, first, middle, last, only',
                    'read:3000 read:6000 read:3000 read:8 read:9',
                    [(READ_FIRST, (1,)), (READ_MIDDLE, (3,)), (READ_LAST, (3,)), (READ_ONLY, (1,))],
                    requester={'retransmits': 3}, responder={'duplicate_request': 3},
                    kernels=BOTH_KERNELS),
    *lost_responses('Q5 R4 R6', 'READ responses of a burst', 'read:2500x16 read:300x16 send:8',
                    [((READ_FIRST, READ_MIDDLE, READ_LAST), (5, 14, 30)), (READ_ONLY, (3, 9))]),
    *lost_responses('Q5 P1', 'READ responses, PSNs wrap', 'read:6000 read:2000x4',
                    [(READ_MIDDLE, (2,)), (READ_LAST, (3,))], options=FAST + ' --psn 0xfffffc'),
    *lost_responses('R5 L2', 'atomic acknowledges', 'faa:x1 faa:x1 cas:x1 cas:x2',
                    [(ATOMIC_ACK, (2, 3))], responder={'duplicate_request': 2},
                    requester={'retransmits': 2}, kernels=BOTH_KERNELS),
    *lost_responses('R5 R6 Q3', 'atomic acknowledges of a burst', 'faa:x16 cas:x8 faa:x4/fence',
                    [(ATOMIC_ACK, (3, 6, 14))]),
    *lost_responses('R5', 'answers to ATOMIC WRITE', 'awrite:x1 awrite:x4',
                    [(READ_ONLY, (1, 3))]),
    *injured('R8 Q7', 'lost: RNR NAK, and the request after it', 'send:100/late60 send:3000/late60',
             lambda e: [drop(source=e.responses, op=ACK, nth=(1,)),
                        drop(source=e.requests, op=SEND_FIRST, nth=(1,))],
             FAST + ' --min-rnr-timer 14', responder={'rnr_nak_sent': 1}),
    *injured('R13 Q6', 'lost: the NAK that ends all', 'write:8/badkey/down=RETRY_EXC_ERR send:8',
             lambda e: [drop(source=e.responses, op=ACK, nth=(1,))], SHORT),
    *injured('Q6', 'lost: all requests', 'write:8=RETRY_EXC_ERR',
             lambda e: [drop(source=e.requests, every=1)], SHORT, 3, frames=0,
             requester={'retry_exceeded_err': 1, 'local_ack_timeout_err': 3}),
    *injured('Q6 R4', 'lost: all responses', 'read:3000x2=RETRY_EXC_ERR',
             lambda e: [drop(source=e.responses, every=1)], SHORT, 3, frames=0,
             requester={'retry_exceeded_err': 1}, responder={'duplicate_request': 1}),
    *injured('Q6', 'lost: every other packet of a READ', 'read:6000 read:6000',
             lambda e: [drop(source=e.responses, op=READ_MIDDLE, every=2, most=8)],
             least=3),

    *injured('R3 R4 R5 R6', 'twice: requests', 'send:10 write:10 read:3000 faa:x4 cas:x4 send:3000 '
             'write_imm:2500x4 mix:3x64', lambda e: [duplicate(source=e.requests, every=1)],
             responder={'duplicate_request': 20}, kernels=BOTH_KERNELS),
    *injured('Q10', 'twice: responses', 'send:10 write:3000 read:3000 faa:x4 cas:x4 send:3000x8 '
             'mix:4x64', lambda e: [duplicate(source=e.responses, every=1)],
             kernels=BOTH_KERNELS),
    *injured('R3 R5 Q10', 'twice: all', 'mix:5x64 %mix:6x32 awrite:x4',
             lambda e: [duplicate(every=1)]),
    *injured('R3 Q10', 'twice, and some four times', 'mix:7x64',
             lambda e: [duplicate(every=1), duplicate(every=3)]),

    *injured('R2 R3', 'late: SEND, middle and last', 'send:6000 send:10 send:3000x4 send:1',
             lambda e: [delay(source=e.requests, op=SEND_MIDDLE, nth=(2,), frames=3),
                        delay(source=e.requests, op=SEND_LAST, nth=(2,), frames=2)]),
    *injured('R2 R3', 'late: WRITE, first', 'write:3000x8 write:10',
             lambda e: [delay(source=e.requests, op=WRITE_FIRST, nth=(1, 4), frames=2)]),
    *injured('Q5', 'late: READ responses', 'read:6000 read:3000x8 read:8',
             lambda e: [delay(source=e.responses, op=READ_MIDDLE, nth=(2, 6), frames=2),
                        delay(source=e.responses, op=READ_LAST, nth=(3,), frames=1)]),
    # One ACK may answer all sixteen SENDs (R11): only atomic acknowledges have a known number.
    *injured('Q3 Q10', 'late: ACKs and atomic acknowledges', 'send:700x16 faa:x16 cas:x8',
             lambda e: [delay(source=e.responses, op=ACK, nth=(2, 4), frames=2),
                        delay(source=e.responses, op=ATOMIC_ACK, nth=(2, 7), frames=2)], least=2),
    *injured('R2 Q4 Q5', 'late: every seventh packet', 'mix:8x128 %mix:9x64',
             lambda e: late(every=7, frames=3), least=5),

    *injured('W7', 'broken: requests',
             'send:100 send:3000 write:3000 write_imm:9 read:8 faa send:8',
             lambda e: [corrupt(source=e.requests, op=op, nth=(1,)) for op in (
                 SEND_ONLY, SEND_MIDDLE, WRITE_LAST, WRITE_ONLY_IMM, READ_REQUEST, FETCH_ADD)],
             responder={'drops/icrc': 6}, kernels=BOTH_KERNELS),
    *injured('W7', 'broken: responses', 'send:100 read:3000 read:8 faa cas send:8',
             lambda e: [corrupt(source=e.responses, op=op, nth=(1,)) for op in (
                 ACK, READ_MIDDLE, READ_ONLY, ATOMIC_ACK)],
             requester={'drops/icrc': 4}, kernels=BOTH_KERNELS),
    # At random: Linux sends its whole window again after a timeout, and with 18 packets in it a
    # wire that corrupts every ninth one corrupts the same first packet in every round.
    *injured('W7', 'broken: one packet in nine', 'mix:10x64 %mix:11x32',
             lambda e: [corrupt(chance=1 / 9, seed=10)], least=3, requester={'drops/icrc': 1},
             responder={'drops/icrc': 1}),

    *injured('E1 L5 L6', 'marked: all packets', 'send:3000 write:3000 read:3000 faa mix:12x64',
             lambda e: [mark(every=1)], kernels=BOTH_KERNELS),

    *injured('R2 R4 R5 Q3 Q4 Q5 Q6', 'loss of 5% both ways', 'mix:13x128 mix:14x128 %mix:15x64',
             lambda e: [drop(chance=0.05, seed=1)], least=5),
    *injured('R2 R4 R5 Q3 Q4 Q5 Q6', 'loss of 5% both ways, MTU 256', 'mix:16x64 %mix:17x64',
             lambda e: [drop(chance=0.05, seed=2)], FAST + ' -m 256', 5, kernels=BOTH_KERNELS),
    *injured('R2 R4 R5 Q3 Q4 Q5 Q6', 'loss of 5% both ways, bursts of one kind',
             'send:2500x32 write:2500x32 read:2500x32 faa:x64 cas:x64',
             lambda e: [drop(chance=0.05, seed=3)], least=5),
    *injured('R8 Q7 Q6', 'loss of 5% both ways, SRQ, late receives', 'send:2500x16/late30 '
             'mix:18x64/late30 @mix:19x32', lambda e: [drop(chance=0.05, seed=4)],
             FAST + ' --srq', 3),
    *injured('R2 R3 R4 R5 Q3 Q4 Q5 Q6 Q10 W7', 'lost, twice, late, broken: 3% each', 'mix:20x128 '
             '%mix:21x64', lambda e: [drop(chance=0.03, seed=5), duplicate(chance=0.03, seed=6),
                                      *late(chance=0.03, seed=7, frames=2),
                                      corrupt(chance=0.03, seed=8), mark(chance=0.03, seed=9)],
             least=8, kernels=BOTH_KERNELS),

    # Without acknowledgements a message is lost as a whole, and the next one arrives.  Linux
    # accepts nothing more after a message that has begun and does not end.
    *injured('U1', 'lost, UC: SEND and WRITE, first, only', 'send:3000/lost/rlen4000 send:2500 '
             'write:3000/lost write:2500 send:10/lost/rlen100 send:11 write:12/lost write:13 '
             '@send:1', lambda e: [drop(source=e.requests, op=UC + op, nth=(1,)) for op in (
                 SEND_FIRST, WRITE_FIRST, SEND_ONLY, WRITE_ONLY)], '-q uc',
             responder={'drops/uc_message': 4}),
    *injured('U1', 'lost, UC: SEND, middle, last', 'send:4000/lost/rlen4000 send:20 '
             'send:3900/lost/rlen4000 send:2049 send:1 @send:1',
             lambda e: [drop(source=e.requests, op=UC + SEND_MIDDLE, nth=(1,)),
                        drop(source=e.requests, op=UC + SEND_LAST, nth=(2,))], '-q uc',
             responder={'drops/uc_message': 2}, roles=('server',)),
    *injured('U1', 'lost, UC: WRITE, middle, last', 'write:4000/lost write:20 '
             'write:3900/lost write_imm:2049 @send:1',
             lambda e: [drop(source=e.requests, op=UC + WRITE_MIDDLE, nth=(1,)),
                        drop(source=e.requests, op=UC + WRITE_LAST, nth=(2,))], '-q uc',
             roles=('server',)),
    *injured('U1', 'lost and broken: UD', 'send:100/lost/rlen1000 send:50 send_imm:9/lost/rlen900 '
             'send:800 @send:1', lambda e: [drop(source=e.requests, op=0x64, nth=(1,)),
                                            corrupt(source=e.requests, op=0x65, nth=(1,))],
             '-q ud'),
]
