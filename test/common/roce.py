# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Builds and parses RoCEv2 packets over IPv4, and the messages of connection management in them.

Written from doc/protocol.rst and not with the code under test, which need not agree.
"""
import socket
import struct
import zlib

ROCE = 4791
UD_SEND_ONLY, RC_WRITE_ONLY, RC_ACK, CNP, SACK = 0x64, 0x0a, 0x11, 0x81, 0xd1
GSI, GSI_QKEY, PKEY = 1, 0x80010000, 0xffff
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR = range(0x10, 0x1b)
MAD, MAD_HEADER, MESSAGE = 256, struct.Struct('>BBBBHHQHHI'), 232
IP_HEADER = 36 # of the RDMA CM, in front of the private data
TCP_SERVICE, UDP_SERVICE = 0x01060000, 0x01110000
REQ_PRIVATE, REP_PRIVATE = 140, 36 # offsets of the private data


def ones_sum(data):
    total = sum(struct.unpack(f'>{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total ^ 0xffff


def icrc(ip_packet):
    """The ICRC of an IPv4 packet that does not contain it yet (W7)."""
    p = bytearray(ip_packet)
    p[1] = p[8] = 0xff # type of service, time to live
    p[10:12] = p[26:28] = b'\xff\xff' # checksums of IP and UDP
    p[32] = 0xff # of the BTH: FECN, BECN, reserved
    return struct.pack('<I', zlib.crc32(b'\xff' * 8 + bytes(p)))


def frame(dst_mac, src_mac, src, dst, ib, sport=0xc001, break_icrc=False):
    """An Ethernet frame with @ib, from the BTH to the last byte before the ICRC (W1)."""
    udp = struct.pack('>HHHH', sport, ROCE, 8 + len(ib) + 4, 0)
    ip = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 20 + len(udp) + len(ib) + 4, 1, 0x4000, 64, 17, 0,
                     socket.inet_aton(src), socket.inet_aton(dst))
    ip = ip[:10] + struct.pack('>H', ones_sum(ip)) + ip[12:]
    check = icrc(ip + udp + ib)
    if break_icrc:
        check = bytes([check[0] ^ 1]) + check[1:]
    return dst_mac + src_mac + b'\x08\x00' + ip + udp + ib + check


def parse(data):
    """(source, destination, packet from the BTH on without the ICRC) of a frame; None: the frame is not
    RoCE over IPv4.  A wrong ICRC raises ValueError."""
    if len(data) < 14 + 28 + 16 or data[12:14] != b'\x08\x00' or data[14] != 0x45 or data[23] != 17:
        return None
    if struct.unpack_from('>H', data, 36)[0] != ROCE:
        return None
    ip = data[14:14 + struct.unpack_from('>H', data, 16)[0]]
    if icrc(ip[:-4]) != ip[-4:]:
        raise ValueError('its ICRC is wrong')
    return socket.inet_ntoa(ip[12:16]), socket.inet_ntoa(ip[16:20]), ip[28:-4]


def bth(opcode, qpn, psn, ackreq=True, pkey=PKEY, flags=0x40, becn=False):
    """(W2)"""
    return struct.pack('>BBHII', opcode, flags, pkey, 0x40000000 * becn | qpn,
                       0x80000000 * ackreq | psn & 0xffffff)


def mad_packet(mad, psn=0, opcode=UD_SEND_ONLY, qkey=GSI_QKEY, pkey=PKEY, source=GSI):
    """@mad, of any length, to queue pair 1, by default from queue pair 1 (U2)."""
    pad = -len(mad) % 4
    return bth(opcode, GSI, psn, pkey=pkey, flags=0x40 | pad << 4) + \
        struct.pack('>II', qkey, source) + mad + bytes(pad)


def mad(attribute, tid, message, base=1, class_=7, version=2, method=3, status=0, modifier=0):
    """A MAD with @message in the body."""
    head = MAD_HEADER.pack(base, class_, version, method, status, 0, tid, attribute, 0, modifier)
    return (head + message).ljust(MAD, b'\0')


def ip_header(src, dst, version=0, ip=4, port=4711):
    """The header of the RDMA CM before the private data of REQ and SIDR REQ (C1)."""
    return struct.pack('>BBH12x4s12x4s', version, ip << 4, port, socket.inet_aton(src),
                       socket.inet_aton(dst))


def gid(ip):
    return bytes(10) + b'\xff\xff' + socket.inet_aton(ip)


def path(src, dst):
    """The primary path of a REQ, or the path of a LAP, which has the same fields in another order."""
    return struct.pack('>HH16s16sIBBBB', 0xffff, 0xffff, gid(src), gid(dst), 0, 0, 64, 8, 14 << 3)


def req(src, dst, service, comm_id, qpn, psn=0, guid=0x1234, transport=0, mtu=3, timeout=24,
        header=None, private=b'', gids=None):
    """The message of a REQ (C2).  @timeout: how long each side may take, as an exponent."""
    out = bytearray(MESSAGE)
    struct.pack_into('>I4xQQ', out, 0, comm_id, service, guid)
    struct.pack_into('>I', out, 32, qpn << 8 | 4) # responder resources
    struct.pack_into('>I', out, 36, 4) # initiator depth
    struct.pack_into('>I', out, 40, timeout << 3 | transport << 1)
    struct.pack_into('>I', out, 44, psn << 8 | timeout << 3 | 7)
    struct.pack_into('>HBB', out, 48, PKEY, mtu << 4 | 7, 15 << 4)
    out[52:96] = path(*(gids or (src, dst)))
    body = (ip_header(src, dst) if header is None else header) + private
    out[REQ_PRIVATE:REQ_PRIVATE + len(body)] = body
    return bytes(out)


def ids(local, remote, *more):
    """A message that begins with the sender's and the receiver's communication ids."""
    return struct.pack('>II', local, remote) + b''.join(more)


def sidr_req(src, dst, service, request):
    return (struct.pack('>IHHQ', request, PKEY, 0, service) + ip_header(src, dst))


class Message:
    """A received message of connection management."""

    def __init__(self, src, dst, data):
        base, class_, version, method, status, _, self.tid, self.attribute, _, self.modifier = \
            MAD_HEADER.unpack_from(data)
        if (base, class_, version, method, status) != (1, 7, 2, 3, 0) or \
                self.modifier and self.attribute not in (REQ, REP): # (C3)
            raise ValueError(f'the header of its MAD is {data[:24].hex()}')
        self.src, self.dst, self.mad = src, dst, data
        self.body = data[MAD_HEADER.size:]
        self.local, self.remote = struct.unpack_from('>II', self.body)

    def u8(self, at):
        return self.body[at]

    def u24(self, at):
        return int.from_bytes(self.body[at:at + 3], 'big')

    @property
    def about(self):
        """Of REJ and MRA, the message that it answers: 0 a REQ, 1 a REP, 2 another."""
        return self.u8(8) >> 6

    @property
    def reason(self):
        """The reason of a REJ."""
        return struct.unpack_from('>H', self.body, 10)[0]

    def info(self):
        """REJ: additional information."""
        return self.body[12:12 + (self.u8(9) >> 1)]

    def __repr__(self):
        return f'attribute {self.attribute:#x} tid {self.tid:#x} {self.body[:16].hex()}'
