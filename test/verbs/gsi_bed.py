# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What gsi.py and ece.py share: a peer that can send any frame to a karstd, and checks answers."""
import ctypes
import os
import select
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
import roce  # noqa: E402
from bed import HANG_S  # noqa: E402
from roce import DREP, DREQ, REJ, REP, REQ, RTU, TCP_SERVICE, ids, mad, mad_packet  # noqa: E402

KARST = '10.78.0.1'
# Some of the peer's addresses; to karst each is another host.
PEERS = [f'10.78.0.{n}' for n in range(2, 6)]
ACCEPTS, HOLDS, DEAF, NOBODY = 7001, 7002, 7003, 7009 # port numbers
CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3


def within(netns, do):
    """Calls do() in a network namespace.  @return its result"""
    found = []

    def run():
        with open(f'/run/netns/{netns}', 'rb') as ns:
            if ctypes.CDLL(None).setns(ns.fileno(), CLONE_NEWNET) == 0:
                found.append(do())

    thread = threading.Thread(target=run) # setns() changes the namespace of this thread only
    thread.start()
    thread.join()
    return found[0]


def mac():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind(('kv0', 0))
        return sock.getsockname()[4]


def open_wire():
    """@return a packet socket, a UDP socket that keeps the kernel from answering RoCE packets, and
    the MAC address"""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.bind(('kv0', 0))
    quiet = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    quiet.bind(('', roce.ROCE))
    return wire, quiet, mac()


class Peer:
    """The other end: sends frames, and sorts the frames that karst sends."""

    def __init__(self, netns, karst_mac):
        self.wire, self.no_icmp, self.mac = within(netns, open_wire)
        self.karst_mac = karst_mac
        self.number = 0x1000 # the last unique number
        self.psn = 0
        self.seen = set() # messages that came before: their repetitions are not new
        self.waiting = [] # messages that have come and were not asked for yet
        self.acks = []
        self.sacks = []

    def new(self):
        self.number += 1
        return self.number

    def send(self, packet, src=PEERS[0], **how):
        self.wire.send(roce.frame(self.karst_mac, self.mac, src, KARST, packet, **how))

    def message(self, attribute, body, tid=None, src=PEERS[0], **header):
        """@return its transaction id"""
        tid = self.new() << 8 if tid is None else tid
        self.psn += 1
        self.send(mad_packet(mad(attribute, tid, body, **header), self.psn), src)
        return tid

    def take(self, until):
        """Receives one frame.  Raises TimeoutError."""
        left = until - time.monotonic()
        if left <= 0 or not select.select([self.wire], [], [], left)[0]:
            raise TimeoutError
        data = self.wire.recv(65536)
        if data[6:12] != self.karst_mac:
            return
        found = roce.parse(data)
        if found is None:
            return
        src, dst, packet = found
        opcode, qpn = packet[0], int.from_bytes(packet[5:8], 'big')
        if opcode == roce.UD_SEND_ONLY and qpn == roce.GSI:
            if struct.unpack_from('>II', packet, 12) != (roce.GSI_QKEY, roce.GSI):
                raise ValueError('Q_Key or queue pair of a MAD')
            self.waiting.append(roce.Message(src, dst, packet[20:]))
        elif opcode == roce.RC_ACK:
            self.acks.append((qpn, int.from_bytes(packet[9:12], 'big'), packet[12]))
        elif opcode == roce.SACK:
            self.sacks.append((qpn, int.from_bytes(packet[9:12], 'big'), packet[12]))

    def until(self, happens):
        """Receives frames until happens() is true.  Raises TimeoutError."""
        until = time.monotonic() + HANG_S
        while not happens():
            self.take(until)

    def answer(self, tid, attribute, again=False):
        """@return the next message of this transaction and attribute; with @again, it may be a
        repetition.  Other messages stay in the list.  Raises TimeoutError."""
        until = time.monotonic() + HANG_S
        while True:
            for m in self.waiting:
                if (m.tid, m.attribute) == (tid, attribute) and (again or m.mad not in self.seen):
                    self.waiting.remove(m)
                    self.seen.add(m.mad)
                    return m
            self.take(until)

    def nothing(self, src=PEERS[0]):
        """@return problems: a new message has come before the answer to a request sent now."""
        probe = self.unknown(src)
        self.answer(probe, REJ)
        news = [m for m in self.waiting if m.mad not in self.seen]
        self.waiting = []
        self.seen |= {m.mad for m in news}
        return [f'not expected: {m}' for m in news]

    def unknown(self, src=PEERS[0]):
        """Sends a request for a service that does not exist.  @return its transaction id"""
        return self.message(REQ, self.req(NOBODY, src), src=src)

    def req(self, port, src=PEERS[0], comm_id=None, qpn=None, **more):
        return roce.req(src, KARST, TCP_SERVICE | port, comm_id or self.new(), qpn or self.new(),
                        **more)

    def acknowledged(self, conn):
        """@return problems: a WRITE of 0 bytes (R12) to the connection is not acknowledged."""
        psn = conn.psn
        conn.psn += 1
        self.acks = []
        self.send(roce.bth(roce.RC_WRITE_ONLY, conn.karst_qpn, psn) + bytes(16), conn.src)
        until = time.monotonic() + HANG_S
        while not self.acks:
            self.take(until)
        qpn, acked, syndrome = self.acks[0]
        return [] if (qpn, acked, syndrome >> 5) == (conn.qpn, psn, 0) else \
            [f'acknowledged: {self.acks}, not PSN {psn} for {conn.qpn}']


class Conn:
    """A connection to a program, which accepts it; the test sends each message of it."""

    def __init__(self, peer, src=PEERS[0], port=ACCEPTS):
        self.peer, self.src = peer, src
        self.id, self.qpn = peer.new(), peer.new()
        self.body = peer.req(port, src, self.id, self.qpn, psn=1000)
        self.tid = peer.message(REQ, self.body, src=src)
        self.rep = peer.answer(self.tid, REP)
        self.karst_id, self.karst_qpn = self.rep.local, self.rep.u24(12)
        self.psn = self.rep.u24(20)

    def ready(self):
        self.peer.message(RTU, self.ids(), self.tid, self.src)
        return self

    def ids(self, *more):
        return ids(self.id, self.karst_id, *more)

    def end(self):
        """Disconnects.  @return problems"""
        tid = self.peer.message(DREQ, self.ids(self.karst_qpn.to_bytes(3, 'big')), src=self.src)
        m = self.peer.answer(tid, DREP)
        return fields(m, local=self.karst_id, remote=self.id)


def fields(m, **wanted):
    return [f'{name} is {getattr(m, name)}, not {value}: {m}' for name, value in wanted.items()
            if getattr(m, name) != value]


class Bed:
    """The peer and the engine; reports a TAP point for each case."""

    def __init__(self, tap, engine, peer, program):
        self.tap, self.engine, self.peer, self.path = tap, engine, peer, program

    def counters(self):
        """@return the counters of connection management and, with "drop_" in front, the drop
        counters"""
        found = dict(self.engine.ask(lambda e: e.ask('cm')))
        for row in self.engine.ask(lambda e: e.rows('drops')).values():
            for name, value in row.items():
                found['drop_' + name] = found.get('drop_' + name, 0) + value
        return found

    def counted(self, before, **wanted):
        """@return problems: a counter has not grown by the number @wanted since @before."""
        now = self.counters()
        return [f'{name} has grown by {now[name] - before[name]}, not {n}'
                for name, n in wanted.items() if now[name] - before[name] != n]

    def program(self, how, port):
        program = self.engine.program([self.path, how, KARST, str(port)])
        problems = program.until(lambda: 'listening' in program.text(), 'listening')
        if problems:
            raise AssertionError('\n'.join(problems + program.shown()))
        return program

    def case(self, name, do):
        try:
            problems = do(self.peer)
        except TimeoutError:
            problems = [f'no answer within {HANG_S} s']
        except (AssertionError, ValueError) as e:
            problems = [str(e)]
        self.tap.point(name, problems + (self.engine.shown() if problems else []))

    def dropped(self, name, send, **wanted):
        """Runs a case: @send() gets no answer, and is counted."""
        def do(peer):
            before = self.counters()
            send(peer)
            return peer.nothing() + self.counted(before, **wanted)

        self.case(name, do)

    def refused(self, name, body, reason, src=PEERS[0], info=b'', known=False, **wanted):
        """Runs a case: a REQ is refused; checks each field of the REJ.  @known: karst has given the
        connection an id before it refuses it."""
        def do(peer):
            before = self.counters()
            m = peer.answer(peer.message(REQ, body, src=src), REJ)
            problems = fields(m, reason=reason, about=0, remote=struct.unpack_from('>I', body)[0],
                              src=KARST, dst=src)
            if (m.local != 0) != known:
                problems.append(f'communication id {m.local:#x}')
            if m.info() != info:
                problems.append(f'information {m.info().hex()}, not {info.hex()}')
            return problems + peer.nothing(src) + \
                self.counted(before, **{**{'rx_REQ': 2, 'no_service': 1, 'tx_REJ': 2}, **wanted})

        self.case(name, do)
