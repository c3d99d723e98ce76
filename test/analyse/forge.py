# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Forged conversations of two queue pairs, some correct and some with a fault of a peer.

Queue pair 0x11 of A (192.0.2.1) sends requests to 0x22 of B (192.0.2.2), and B answers.  A step is
a function that returns a Wire.  Times are set explicitly, so that nothing depends on a clock.  MTU
1024.
"""
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'common'), os.path.join(HERE, '..', 'captures')]
import roce  # noqa: E402

MTU = 1024
A, B, A_QP, B_QP = '192.0.2.1', '192.0.2.2', 0x11, 0x22
MAC_A, MAC_B = b'\x02\0\0\0\0\x01', b'\x02\0\0\0\0\x02'
EPOCH_NS = 10**18
FIRST, MIDDLE, LAST, ONLY, WRITE_FIRST, WRITE_LAST, WRITE_ONLY = 0, 1, 2, 4, 6, 8, 10
READ, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 0x0c, 0x0d, 0x0e, 0x0f, 0x10
ACK, ATOMIC_ACK, FETCH_ADD, CNP = 0x11, 0x12, 0x14, 0x81
UC_ONLY = 0x24
CM_REQ, CM_REP = 0x10, 0x13
NAMES = {FIRST: 'RC_SEND_FIRST', MIDDLE: 'RC_SEND_MIDDLE', LAST: 'RC_SEND_LAST', ONLY: 'RC_SEND_ONLY',
         ACK: 'RC_ACK', READ_MIDDLE: 'RC_READ_RESP_MIDDLE', READ: 'RC_READ_REQUEST'}
OK, NAK, RNR = 0x1f, 0x60, 0x20


class Wire:
    """Frames with their times, and the injury log; psn and msn are the state of the
    conversation."""

    def __init__(self, psn=100, msn=0):
        self.us, self.frames, self.log = 0.0, [], []
        self.psn, self.msn, self.ident = psn, msn, 1

    def wait(self, us):
        self.us += us
        return self

    def put(self, to_b, ib, tos=0, qp=None, bad_icrc=False, twice=False):
        src, dst = (A, B) if to_b else (B, A)
        macs = (MAC_B, MAC_A) if to_b else (MAC_A, MAC_B)
        f = bytearray(roce.frame(*macs, src, dst, ib))
        self.ident += 1
        f[15] = tos
        # A behaves as karst, whose retransmissions are identical to the last bit, and B as Linux
        f[18:20] = ib[10:12] if to_b else struct.pack('>H', self.ident & 0xffff)
        f[24:26] = bytes(2)
        f[24:26] = struct.pack('>H', roce.ones_sum(bytes(f[14:34])))
        f[-4:] = roce.icrc(bytes(f[14:-4]))
        if bad_icrc:
            f[-1] ^= 1
        for _ in range(1 + twice):
            self.us += 2
            self.frames.append((EPOCH_NS + int(self.us * 1000), bytes(f)))
        return self

    def request(self, op, psn, payload=b'', ext=b'', ask=None, pad=b'', qp=B_QP, flags=0x40, **more):
        ask = op not in (FIRST, MIDDLE, WRITE_FIRST) if ask is None else ask
        fill = pad or bytes(-len(payload) % 4)
        ib = roce.bth(op, qp, psn, ackreq=ask, flags=flags | (-len(payload) % 4) << 4)
        return self.put(True, ib + ext + payload + fill, **more)

    def send(self, n=1, **more):
        """@n SENDs of one packet each, acknowledged one by one."""
        for _ in range(n):
            self.request(ONLY, self.psn, b'karst', **more)
            self.msn += 1
            self.ack(self.psn)
            self.psn += 1
        return self

    def message(self, packets, skip=(), start=0, stop=None, **more):
        """A SEND of @packets packets, of which those in @skip are not captured; not
        acknowledged."""
        for i in range(start, packets if stop is None else stop):
            op = ONLY if packets == 1 else FIRST if i == 0 else LAST if i == packets - 1 else MIDDLE
            if i not in skip:
                self.request(op, self.psn + i, bytes([i & 255]) * (MTU if op in (FIRST, MIDDLE) else 100),
                             **more)
        return self

    def respond(self, op, psn, syndrome=None, payload=b'', ext=b'', qp=A_QP, msn=None, **more):
        msn = self.msn if msn is None else msn
        aeth = b'' if syndrome is None else struct.pack('>I', syndrome << 24 | msn & 0xffffff)
        ib = roce.bth(op, qp, psn, ackreq=False, flags=0x40 | (-len(payload) % 4) << 4)
        return self.put(False, ib + aeth + ext + payload + bytes(-len(payload) % 4), **more)

    def ack(self, psn, **more):
        return self.respond(ACK, psn, OK, **more)

    def nak(self, psn, **more):
        return self.respond(ACK, psn, NAK, **more)

    def rnr(self, psn, timer, **more):
        return self.respond(ACK, psn, RNR | timer, **more)

    def read(self, psn, length, va=0x1000, rkey=7):
        return self.request(READ, psn, ext=struct.pack('>QII', va, rkey, length))

    def responses(self, psn, length, first=0, skip=()):
        n = max(1, -(-length // MTU))
        for i in range(first, n):
            op = READ_ONLY if n == 1 else READ_FIRST if i == 0 else READ_LAST if i == n - 1 else READ_MIDDLE
            size = length - i * MTU if i == n - 1 else MTU
            if i not in skip:
                self.respond(op, psn + i, None if op == READ_MIDDLE else OK, bytes([i]) * size)
        return self

    def atomic(self, psn):
        return self.request(FETCH_ADD, psn, ext=struct.pack('>QIQQ', 0x1000, 7, 1, 0))

    def cnp(self, body=bytes(16), becn=True, qp=A_QP, tos=0x30 << 2):
        return self.put(False, roce.bth(CNP, qp, 0, ackreq=False, becn=becn) + body, tos=tos)

    def connect(self, a_qp=A_QP, b_qp=B_QP, a_id=1, b_id=1001):
        """REQ and REP of the communication manager."""
        req = bytearray(232)
        req[0:4], req[32:35], req[44:47] = a_id.to_bytes(4, 'big'), a_qp.to_bytes(3, 'big'), bytes(3)
        rep = bytearray(232)
        rep[0:4], rep[4:8], rep[12:15] = b_id.to_bytes(4, 'big'), a_id.to_bytes(4, 'big'), b_qp.to_bytes(3, 'big')
        self.put(True, roce.mad_packet(roce.mad(CM_REQ, a_id, bytes(req))))
        return self.put(False, roce.mad_packet(roce.mad(CM_REP, a_id, bytes(rep))))

    def damage(self, at, off, bits):
        """Damages frame @at on its way to the place of the capture."""
        ns, f = self.frames[at]
        self.frames[at] = ns, f[:off] + bytes((f[off] ^ bits,)) + f[off + 1:]
        return self

    def set_back(self, at, us):
        """Sets back the clock of the capture before frame @at."""
        self.frames[at:] = [(ns - us * 1000, f) for ns, f in self.frames[at:]]
        return self

    def injure(self, action='drop', at=-1, **more):
        """Adds a record about frame @at to the injury log, with @more members."""
        ns, f = self.frames[at]
        opcode, qpn, psn = f[42], int.from_bytes(f[47:50], 'big'), int.from_bytes(f[51:54], 'big')
        self.log.append({'event': 'injured', 'packet': len(self.frames), 'time_ns': ns + 400, 'direction': 'tx',
                         'queue': 0, 'qpn': qpn, 'psn': psn, 'opcode': NAMES[opcode], 'length': len(f),
                         'rule': 'r', 'action': action, 'reason': 'nth 1', **more})
        return self
