#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Invalid management datagrams: gsi.py KARSTD KARST-RUN GSI-PROGRAM (TAP).

A karstd is on one end of a veth pair.  From the other end the test sends frames that no program
would send, each with the right ICRC unless the case says otherwise, and checks each field of the
answers and the counters.  Programs of librdmacm use the karstd, and must not be affected.

To check that a frame is not answered, the test does not wait for a time: it sends a request that is
refused behind the frame, and the refusal must be the first answer.
"""
import os
import struct
import sys
import tempfile
import time

from gsi_bed import ACCEPTS, DEAF, HOLDS, KARST, NOBODY, PEERS, Bed, Conn, Peer, fields, mac, within
from verbs_bed import HANG_S, Engine, Tap, Tools, VethPair
import roce
from roce import (APR, DREP, DREQ, LAP, MRA, REJ, REP, REQ, RTU, SIDR_REP, SIDR_REQ, TCP_SERVICE,
                  UDP_SERVICE, ids, mad, mad_packet)

BACKLOG = 8 # of the program "deaf"
MAX_IDS, HALF_OPEN, FROM_ONE = 256, 64, 32
CONF = f'[engine]\nidle = sleep\nmax_cm_ids = {MAX_IDS}\n' \
       '[port p]\ndevice = kv0\ndriver = af_packet\n'
STALE, NO_SERVICE, CONSUMER = 10, 8, 28 # reasons of a REJ


def datagrams(bed):
    """Packets that are no MADs of connection management are dropped by the first check that they
    fail (U2, W9)."""
    def raw(**how):
        return lambda peer: peer.send(mad_packet(mad(REQ, 1, peer.req(ACCEPTS)), **how))

    def short(n):
        return lambda peer: peer.send(mad_packet(mad(REQ, 1, peer.req(ACCEPTS))[:n]))

    def header(attribute=REQ, body=None, **how):
        return lambda peer: peer.message(attribute, body or peer.req(ACCEPTS), **how)

    for n in (0, 1, 24, 252, 255):
        bed.dropped(f'a MAD of {n} bytes', short(n), drop_ud_length=1, rx_REQ=1)
    bed.dropped('a MAD of 260 bytes', lambda peer: peer.send(mad_packet(
        mad(REQ, 1, peer.req(ACCEPTS)) + bytes(4))), drop_ud_length=1, rx_REQ=1)
    bed.dropped('another Q_Key', raw(qkey=0x11111111), drop_qkey=1, rx_REQ=1)
    for source in (0, 2, 17, 0x800001, 0xffffff):
        bed.dropped(f'from queue pair {source}', raw(source=source), drop_gsi_source=1, rx_REQ=1)
    bed.dropped('another P_Key', raw(pkey=0x8001), drop_pkey=1, rx_REQ=1)
    bed.dropped('an opcode of RC', lambda peer: peer.send(
        roce.bth(0x04, roce.GSI, 1) + mad(REQ, 1, peer.req(ACCEPTS))), drop_qp_type=1, rx_REQ=1)
    bed.dropped('a wrong ICRC', lambda peer: peer.send(
        mad_packet(mad(REQ, 1, peer.req(ACCEPTS))), break_icrc=True), drop_icrc=1, rx_REQ=1)
    for class_ in (1, 3, 4, 0x81):
        bed.dropped(f'management class {class_:#x}', header(class_=class_), other_class=1, rx_REQ=1)
    bed.dropped('base version 2', header(base=2), other_class=1, rx_REQ=1)
    bed.dropped('class version 1', header(version=1), malformed=1, rx_REQ=1)
    for method in (1, 0x81, 0x83):
        bed.dropped(f'method {method:#x}', header(method=method), malformed=1, rx_REQ=1)
    bed.dropped('a status', header(status=4), malformed=1, rx_REQ=1)
    bed.dropped('an attribute modifier where it means nothing', header(
        RTU, ids(1, 2), modifier=1), malformed=1, rx_RTU=0)
    for attribute in (0, 1, 0x0f, 0x1b, 0x1234):
        bed.dropped(f'attribute {attribute:#x}', header(attribute), attribute=1, rx_REQ=1)
    bed.dropped('a REJ with 73 bytes of information', header(
        REJ, ids(1, 2, struct.pack('>BBH', 0, 73 << 1, 1))), malformed=1, rx_REJ=0)


def requests(bed):
    """REQs that are refused at once (C1, C2)."""
    peer, new = bed.peer, bed.peer.new
    src, other = PEERS[:2]
    bed.refused('a REQ for a service that there is not', peer.req(NOBODY), NO_SERVICE, no_service=2)
    bed.refused('one of the port space UDP', roce.req(src, KARST, UDP_SERVICE | ACCEPTS, new(),
                                                      new()), NO_SERVICE, no_service=2)
    bed.refused('one for RD', peer.req(ACCEPTS, transport=2), 9, invalid=1)
    bed.refused('one for UC, of a listener for RC', peer.req(ACCEPTS, transport=1), 9,
                known=True)
    for mtu in (0, 6, 15):
        bed.refused(f'an MTU of {mtu}', peer.req(ACCEPTS, mtu=mtu), 26, info=b'\5', invalid=1)
    bed.refused("a path from somebody else's address", peer.req(ACCEPTS, gids=(other, KARST)), 12,
                info=roce.gid(KARST), invalid=1)
    bed.refused('a path to another address', peer.req(ACCEPTS, gids=(src, other)), 12,
                info=roce.gid(KARST), invalid=1)
    bed.refused('no queue pair', roce.req(src, KARST, TCP_SERVICE | ACCEPTS, new(), 0), 1,
                invalid=1)
    bed.refused('no header of the RDMA CM', peer.req(ACCEPTS, header=bytes(36)), CONSUMER,
                known=True)
    bed.refused('one of another version', peer.req(
        ACCEPTS, header=roce.ip_header(src, KARST, version=1)), CONSUMER, known=True)
    bed.refused('one for IP version 5', peer.req(
        ACCEPTS, header=roce.ip_header(src, KARST, ip=5)), CONSUMER, known=True)
    bed.refused("one for another listener's address", peer.req(
        ACCEPTS, header=roce.ip_header(src, other)), CONSUMER, known=True)
    bed.dropped('no communication id', lambda peer: peer.message(REQ, roce.req(
        src, KARST, TCP_SERVICE | ACCEPTS, 0, new())), invalid=1)
    bed.dropped('no GUID', lambda peer: peer.message(REQ, peer.req(ACCEPTS, guid=0)), invalid=1)


def nobody(bed):
    """Messages about connections that do not exist."""
    about = ids(77, 0x12345678)

    def unknown_rep(peer):
        before = bed.counters()
        tid = peer.message(REP, ids(77, 0x12345678, bytes(4), b'\0\0\7', bytes(13), bytes(8)))
        m = peer.answer(tid, REJ)
        return fields(m, reason=6, about=1, local=0x12345678, remote=77) + peer.nothing() + \
            bed.counted(before, no_id=1)

    def unknown_dreq(peer):
        before = bed.counters()
        m = peer.answer(peer.message(DREQ, about + b'\0\0\7'), DREP)
        return fields(m, local=0x12345678, remote=77) + peer.nothing() + \
            bed.counted(before, no_id=1)

    def unknown_lap(peer):
        before = bed.counters()
        m = peer.answer(peer.message(LAP, about), APR)
        return fields(m, local=0x12345678, remote=77) + peer.nothing() + \
            ([] if m.u8(9) == 1 else [f'status {m.u8(9)}']) + bed.counted(before, no_id=1)

    bed.case('a REP for nothing that was asked', unknown_rep)
    bed.case('a DREQ for no connection', unknown_dreq)
    bed.case('a LAP for no connection', unknown_lap)
    for name, kind in (('MRA', MRA), ('REJ', REJ), ('RTU', RTU), ('DREP', DREP)):
        bed.dropped(f'{name} for no connection', lambda peer, kind=kind: peer.message(kind, about),
                    no_id=1)
    bed.dropped('an APR that nobody asked for', lambda peer: peer.message(APR, about), no_id=1)
    bed.dropped('a SIDR REP that nobody asked for', lambda peer: peer.message(SIDR_REP, about),
                no_id=1)

    def sidr(peer):
        before = bed.counters()
        request = peer.new()
        m = peer.answer(peer.message(SIDR_REQ, roce.sidr_req(
            PEERS[0], KARST, UDP_SERVICE | NOBODY, request)), SIDR_REP)
        service = struct.unpack_from('>Q', m.body, 12)[0]
        return fields(m, local=request) + peer.nothing() + \
            ([] if (m.u8(4), m.u24(8), service) == (1, 0, UDP_SERVICE | NOBODY) else [repr(m)]) + \
            bed.counted(before, rx_SIDR_REQ=1, tx_SIDR_REP=1, no_service=2)

    bed.case('a SIDR REQ for a service that there is not', sidr)


def established(bed):
    """The test makes a connection; forged messages about it change nothing (C1, C2)."""
    accepting = bed.program('accept', ACCEPTS)
    requests(bed)
    conns = []

    def connect(peer):
        before = bed.counters()
        conn = Conn(peer)
        conns.append(conn)
        private = conn.rep.body[roce.REP_PRIVATE:]
        problems = fields(conn.rep, remote=conn.id, src=KARST, dst=PEERS[0])
        problems += [] if private == bytes((i ^ 0xa5) & 0xff for i in range(196)) else [
            f'private data {private.hex()}']
        # the program checks that a byte more of private data is refused
        peer.message(REQ, conn.body, conn.tid)
        again = peer.answer(conn.tid, REP, again=True)
        problems += [] if again.mad == conn.rep.mad else [f'another REP: {again}']
        problems += peer.nothing() + bed.counted(before, rx_duplicates_REQ=1)
        now = bed.counters()
        sent = [c['tx_REP'] - c['tx_retries_REP'] for c in (before, now)]
        problems += [] if sent[1] - sent[0] == 2 else [f'{sent[1] - sent[0]} REPs, not 2']
        conn.ready()
        problems += peer.nothing() + bed.counted(before, established=1)
        return problems + peer.acknowledged(conn)

    bed.case('a connection; the same REQ twice has the same REP twice', connect)
    if not conns:
        return
    conn = conns[0]
    harmless(bed, conn)
    stale(bed)

    def ended_once(before, name):
        """@return problems: the message has not been counted as one for a connection in TIMEWAIT,
        nor, when that is over, as one for an unknown id."""
        now = bed.counters()
        counted = {what: now[what] - before[what] for what in (name, 'no_id')}
        return [] if sum(counted.values()) == 1 else [f'counted {counted}']

    def end(peer):
        before = bed.counters()
        problems = conn.end() + conn.end() + accepting.until(
            lambda: 'DISCONNECTED 0' in accepting.text(), 'disconnected')
        problems += peer.nothing() + bed.counted(before, rx_DREQ=2, tx_DREP=2)
        return problems + ended_once(before, 'rx_duplicates_DREQ')

    bed.case('a DREQ, and once more', end)

    def late_rtu(peer):
        before = bed.counters()
        peer.message(RTU, conn.ids())
        return peer.nothing() + ended_once(before, 'state')

    bed.case('an RTU for what has ended', late_rtu)
    accepting.kill()


def harmless(bed, conn):
    qpn, other = conn.karst_qpn.to_bytes(3, 'big'), PEERS[1]
    wrong_qpn = (conn.karst_qpn ^ 1).to_bytes(3, 'big')

    def case(name, send, **wanted):
        def do(peer):
            before = bed.counters()
            send(peer)
            problems = peer.nothing() + bed.counted(before, **wanted)
            return problems + peer.acknowledged(conn)

        bed.case(f'{name}: the connection goes on', do)

    def message(kind, *body, src=PEERS[0]):
        return lambda peer: peer.message(kind, b''.join(body), src=src)

    case('a DREQ with another queue pair', message(DREQ, conn.ids(wrong_qpn)), forged=1)
    case('a DREQ with no queue pair', message(DREQ, conn.ids()), forged=1)
    case("a DREQ with another sender's id", message(DREQ, ids(conn.id + 1, conn.karst_id, qpn)),
         forged=1)
    for name, kind, more in (('DREQ', DREQ, qpn), ('DREP', DREP, b''), ('RTU', RTU, b''),
                             ('REJ', REJ, struct.pack('>BBH', 2 << 6, 0, CONSUMER)),
                             ('MRA', MRA, b'\x40\xf8')):
        def from_another(peer, kind=kind, more=more):
            peer.message(kind, conn.ids(more), src=other)
            return peer.nothing(other)

        case(f'a {name} from another address', from_another, forged=1, no_service=2)
    case('a DREP that nobody asked for', message(DREP, conn.ids()), state=1)
    case('an MRA at no time for one', message(MRA, conn.ids(b'\0\xf8')), state=1)
    case('the RTU again', message(RTU, conn.ids()), rx_duplicates_RTU=1)
    case('its REQ again', lambda peer: peer.message(REQ, conn.body, conn.tid), rx_duplicates_REQ=1)

    def path(qpn):
        """@return the body of a LAP: the alternate path is to another address of the peer (C4)."""
        return conn.ids(bytes(4), qpn.to_bytes(3, 'big'), b'\xa0', bytes(4), b'\xff' * 4,
                        roce.gid(PEERS[1]), roce.gid(KARST), bytes(4), b'\x40\0\0\x80')

    def lap(peer):
        before = bed.counters()
        m = peer.answer(peer.message(LAP, path(conn.karst_qpn)), APR)
        return fields(m, local=conn.karst_id, remote=conn.id) + peer.nothing() + \
            ([] if m.u8(9) == 2 else [f'status {m.u8(9)}']) + \
            bed.counted(before, rx_LAP=1, tx_APR=1, invalid=0) + peer.acknowledged(conn)

    def other_qp(peer):
        before = bed.counters()
        m = peer.answer(peer.message(LAP, path(conn.karst_qpn ^ 1)), APR)
        return ([] if m.u8(9) == 6 else [f'status {m.u8(9)}']) + peer.nothing() + \
            bed.counted(before, rx_LAP=1, tx_APR=1, invalid=1) + peer.acknowledged(conn)

    bed.case('a LAP: not supported, and the connection goes on', lap)
    bed.case('a LAP for another queue pair', other_qp)

    def packet(opcode, body=b'', at=None, **how):
        return lambda peer: peer.send(
            roce.bth(opcode, conn.karst_qpn if at is None else at, 5, **how) + body)

    case('a CNP (E1)', packet(roce.CNP, bytes(16), ackreq=False, becn=True), drop_cnp=1)
    for opcode in (0x1f, 0x80, 0xe0, 0xff):
        case(f'opcode {opcode:#x}', packet(opcode, bytes(16)), drop_opcode=1)
    case('an opcode of UD', packet(roce.UD_SEND_ONLY, bytes(8)), drop_qp_type=1)
    case('an opcode of UC', packet(0x24), drop_qp_type=1)
    case('a queue pair that there is not', packet(roce.RC_WRITE_ONLY, bytes(16), 0xfffff0),
         drop_no_qp=1)
    case('transport version 1', packet(roce.RC_WRITE_ONLY, bytes(16), flags=0x41), drop_tver=1)
    case('a WRITE from another address', lambda peer: peer.send(
        roce.bth(roce.RC_WRITE_ONLY, conn.karst_qpn, conn.psn) + bytes(16), other), drop_address=1)


def stale(bed):
    """A peer that has restarted uses an id or a queue pair number that an existing connection has:
    karst ends that connection, and no other (C1)."""
    def by(what):
        def do(peer):
            conn = Conn(peer).ready()
            before = bed.counters()
            body = peer.req(ACCEPTS, **{what: getattr(conn, {'comm_id': 'id'}.get(what, what))})
            m = peer.answer(peer.message(REQ, body), REJ)
            problems = fields(m, reason=STALE, about=0, local=0,
                              remote=struct.unpack_from('>I', body)[0])
            until = time.monotonic() + HANG_S
            while not any(m.attribute == DREQ for m in peer.waiting):
                peer.take(until)
            m = next(m for m in peer.waiting if m.attribute == DREQ)
            problems += fields(m, local=conn.karst_id, remote=conn.id)
            problems += [] if m.u24(8) == conn.qpn else [f'for queue pair {m.u24(8)}']
            peer.message(DREP, conn.ids(), m.tid)
            peer.seen.add(m.mad)
            return problems + peer.nothing() + bed.counted(before, stale=1, rx_DREP=1)

        return do

    bed.case('a REQ with an id that is in use', by('comm_id'))
    bed.case('a REQ for a queue pair that is in use', by('qpn'))

    def elsewhere(peer):
        first = Conn(peer).ready()
        before = bed.counters()
        body = peer.req(ACCEPTS, PEERS[1], first.id, first.qpn)
        m = peer.answer(peer.message(REQ, body, src=PEERS[1]), REP)
        peer.message(REJ, ids(first.id, m.local, struct.pack('>BBH', 1 << 6, 0, CONSUMER)), m.tid,
                     PEERS[1])
        problems = fields(m, dst=PEERS[1], remote=first.id) + peer.nothing(PEERS[1])
        return problems + peer.acknowledged(first) + first.end() + bed.counted(
            before, stale=0, rx_REJ=1)

    bed.case("the same numbers at another address are another peer's", elsewhere)


def unanswered(bed):
    """Programs that listen and do not answer."""
    problems = bed.engine.left() # wait until the last program's listener is gone
    before = bed.counters()
    holding = bed.program('hold', HOLDS)
    bed.tap.point('who listens is counted', problems + bed.counted(before, listeners=1))

    def patience(peer):
        before = bed.counters()
        body, tid = peer.req(HOLDS), peer.new() << 8
        comm_id = struct.unpack_from('>I', body)[0]
        peer.message(REQ, body, tid)
        problems = peer.nothing() + bed.counted(before, half_open=1)
        peer.message(REQ, body, tid)
        first = peer.answer(tid, MRA)
        peer.message(REQ, body, tid)
        second = peer.answer(tid, MRA, again=True)
        problems += fields(first, about=0, remote=comm_id)
        problems += [] if first.u8(9) >> 3 == 24 and first.local else [repr(first)]
        problems += [] if second.mad == first.mad else [f'another MRA: {second}']
        problems += peer.nothing() + bed.counted(before, half_open=1, tx_MRA=2, rx_duplicates_REQ=2)
        holding.kill()
        m = peer.answer(tid, REJ)
        problems += fields(m, reason=CONSUMER, about=0, local=first.local, remote=comm_id)
        peer.message(REQ, body, tid)
        again = peer.answer(tid, REJ, again=True)
        problems += [] if again.mad == m.mad else [f'another REJ: {again}']
        return problems + peer.nothing() + bed.counted(before, half_open=0, rx_duplicates_REQ=3)

    bed.case('a REQ that nobody answers: MRA, and REJ when the program is killed', patience)
    deaf = bed.program('deaf', DEAF)

    def backlog(peer):
        before = bed.counters()
        first = [peer.message(REQ, peer.req(DEAF)) for _ in range(BACKLOG)]
        problems = peer.nothing() + bed.counted(before, half_open=BACKLOG)
        m = peer.answer(peer.message(REQ, peer.req(DEAF)), REJ)
        problems += fields(m, reason=3, about=0) + peer.nothing()
        problems += bed.counted(before, half_open=BACKLOG, backlog_full=1)
        deaf.kill()
        for tid in first:
            problems += fields(peer.answer(tid, REJ), reason=CONSUMER)
        return problems

    bed.case('more REQs than a program has room for', backlog)


def flood(bed):
    """Many REQs from two addresses, which send nothing after them.  A program must still be able to
    connect (C1)."""
    holding = bed.program('hold', HOLDS)
    accepting = bed.program('accept', ACCEPTS)

    def drown(peer):
        problems, before = [], bed.counters()
        for n, src in enumerate(PEERS[:2], 1):
            for _ in range(4 * FROM_ONE):
                peer.message(REQ, peer.req(HOLDS, src), src=src)
            # REQs of all addresses so far that are kept, and that are refused
            problems += peer.nothing(src) + bed.counted(
                before, half_open=n * FROM_ONE, flood=n * 3 * FROM_ONE)
        now = bed.counters()
        if now['half_open'] != HALF_OPEN or now['connections'] > MAX_IDS:
            problems.append(f'{now["half_open"]} half open, {now["connections"]} connections')
        return problems

    bed.case('a flood of REQs is kept at bay, and counted', drown)

    def comes_through(_):
        before = bed.counters()
        program = bed.engine.program([bed.path, 'connect', KARST, str(ACCEPTS)])
        problems = program.wait()
        problems += [] if program.status == 0 else [f'exit status {program.status}']
        return problems + ([] if not problems else program.shown()) + \
            bed.counted(before, established=2)

    bed.case('a program connects in the middle of it', comes_through)

    def from_outside(peer):
        conn = Conn(peer, PEERS[2]).ready()
        return peer.acknowledged(conn) + conn.end()

    bed.case('so does another peer', from_outside)

    def over(peer):
        holding.kill()
        accepting.kill()
        problems = bed.engine.left()
        until = time.monotonic() + HANG_S
        while bed.counters()['half_open'] and time.monotonic() < until:
            time.sleep(0.02)
        now = bed.counters()['half_open']
        problems += [f'{now} are half open'] if now else []
        peer.nothing() # discards the REJs that were sent at the end
        return problems

    bed.case('when the programs have gone nothing is left', over)


def main(argv):
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    tap, tools = Tap(), Tools(*argv[1:3])
    with tempfile.TemporaryDirectory(prefix='karst-gsi-') as folder, \
            VethPair(KARST + '/24', PEERS[0] + '/24') as wire:
        for address in PEERS[1:]:
            VethPair.ip(f'-n {wire.netns[1]} addr add {address}/24 dev kv0')
        engine = Engine(tools, folder, CONF, 'gsi', wire.netns[0])
        try:
            problems = engine.start() or engine.link_up()
            tap.point('a karstd on a veth pair', problems)
            if not problems:
                bed = Bed(tap, engine, Peer(wire.netns[1], within(wire.netns[0], mac)),
                          os.path.abspath(argv[3]))
                for part in (datagrams, nobody, established, unanswered, flood):
                    part(bed)
        finally: # stop the engine whatever has failed
            tap.point('it ends', engine.stop())
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
