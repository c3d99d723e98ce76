#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""seed_session.py CORPUS: seeds for fuzz_session: lives of programs, as the target reads them."""
import hashlib
import os
import struct
import sys

HELLO, QUERY_DEVICE, QUERY_PORT, QUERY_GIDS, GET_CHUNK, SEAL_CHUNK = range(1, 7)
ALLOC_PD, FREE_PD, REG_MR, REREG_MR, DEREG_MR, ALLOC_MW, FREE_MW = range(16, 23)
CREATE_AH, DESTROY_AH = 23, 24
CREATE_CHANNEL, DESTROY_CHANNEL, CREATE_CQ, MODIFY_CQ, DESTROY_CQ = range(32, 37)
RESIZE_CQ, SWITCH_CQ, RAISE_CQ = 37, 38, 39
CREATE_SRQ, MODIFY_SRQ, QUERY_SRQ, DESTROY_SRQ = range(40, 44)
CREATE_QP, MODIFY_QP, QUERY_QP, DESTROY_QP, OPEN_QP, RATE_QP, QUERY_ECE, SET_ECE = range(48, 56)
OURS, OFFER, ANSWER = 0x724b53, 0x4b520a01, 0xb4510a01
OPEN_XRCD, CLOSE_XRCD = 25, 26
QPN = 15  # where the number of the newest queue pair is kept
ATTACH_MCAST, DETACH_MCAST = 56, 57
(CM_CREATE_CHANNEL, CM_DESTROY_CHANNEL, CM_GET_EVENT, CM_CREATE_ID, CM_DESTROY_ID, CM_MIGRATE_ID,
 CM_BIND, CM_RESOLVE_ADDR, CM_RESOLVE_ROUTE, CM_LISTEN, CM_CONNECT, CM_ACCEPT, CM_REJECT,
 CM_DISCONNECT, CM_NOTIFY, CM_INIT_QP_ATTR, CM_QUERY, CM_SET_OPTION, CM_JOIN_MCAST,
 CM_LEAVE_MCAST) = range(64, 84)
GID = bytes(10) + b'\xff\xff\x0a\0\0\x01'
GROUP = bytes(10) + b'\xff\xff\xe0\x01\x02\x03'


def request(op, body=b'', patches=(), nfds=0):
    """@patches: (word of the body, number of the reply that named it)."""
    out = bytes([op, nfds | len(patches) << 2 | 0x40])
    for at, which in patches:
        out += bytes([at, which])
    return out + bytes([len(body)]) + body


def u32(*values):
    return struct.pack(f'<{len(values)}I', *values)


def ah(port=1):
    return GID + u32(0) + bytes([port, 0, 64, 0, 0]) + bytes(7)


def create_qp(kind, srq=None):
    body = u32(kind, 0, 0, 0, 0, 4, 4 if srq is None else 0, 1, 1, 32, 4, 0, 0xffffffff)
    return request(CREATE_QP, body, [(1, 0), (2, 1), (3, 1)])


def modify(which, mask, state=0, **values):
    attr = bytearray(112)
    at = {'path_mtu': (8, 'I'), 'dest_qpn': (24, 'I'), 'access': (28, 'I'), 'rd': (36, 'B'),
          'dest_rd': (37, 'B'), 'rnr': (38, 'B'), 'port': (39, 'B'), 'timeout': (40, 'B'),
          'mig': (43, 'B'), 'alt_port': (46, 'B'), 'alt_timeout': (47, 'B')}
    struct.pack_into('<I', attr, 0, state)
    for name, value in values.items():
        struct.pack_into('<' + at[name][1], attr, at[name][0], value)
    attr[48:80] = attr[80:112] = ah()
    return request(MODIFY_QP, u32(0, mask) + bytes(attr), [(0, which)])


def cm_addr(ip, number, family=2):
    return struct.pack('<HHI', family, number, 0) + ip


def cm_id(channel, udp=False):
    body = struct.pack('<QIHBB', 7, 0, 0x111 if udp else 0x106, 4 if udp else 2, 0)
    return request(CM_CREATE_ID, body, [(2, channel)])


def cm_resolve(which):
    return (request(CM_RESOLVE_ADDR, u32(0, 100) + bytes(24) + cm_addr(GID, 7000), [(0, which)]) +
            CM_EVENT + request(CM_RESOLVE_ROUTE, b'', [(0, which)]) + CM_EVENT)


CM_PARAM = bytes(232) + u32(5)
CM_EVENT = request(CM_GET_EVENT, b'', [(0, 0)])
# 0 channel, 1 listener, 4 active, 10 passive; what succeeds counts
CM_ASKED = (request(CM_CREATE_CHANNEL) + cm_id(0) +
            request(CM_BIND, u32(0, 0) + cm_addr(GID, 7000), [(0, 1)]) +
            request(CM_LISTEN, u32(0, 2), [(0, 1)]) + cm_id(0) + cm_resolve(4) +
            request(CM_CONNECT, bytes(8) + CM_PARAM, [(0, 4)]) + CM_EVENT)
CM_UD = (request(CM_CREATE_CHANNEL) + cm_id(0, True) +
         request(CM_BIND, u32(0, 0) + cm_addr(GID, 7000), [(0, 1)]))
PD = request(ALLOC_PD)
CQ = request(CREATE_CQ, u32(16))
# numbers 0 to 5: PD, CQ, XRC domain, SRQ, target, a further handle
XRC = (PD + CQ + request(OPEN_XRCD, u32(1), nfds=1) +
       request(CREATE_SRQ, u32(0, 4, 1, 0, 0, 0, 1), [(0, 0), (7, 2), (8, 1)]) +
       request(CREATE_QP, u32(10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0xffffffff), [(13, 2)]) +
       request(OPEN_QP, b'', [(0, 2), (1, QPN)]))
LIVES = [
    request(QUERY_DEVICE) + request(QUERY_PORT, u32(1)) + request(QUERY_GIDS, u32(1)) +
    request(GET_CHUNK) + request(SEAL_CHUNK),
    PD + request(REG_MR, u32(0, 7) + struct.pack('<QQQ', 4096, 4096, 4096), [(0, 0)]) +
    request(REREG_MR, u32(0, 4, 0, 1), [(0, 1)]) + request(DEREG_MR, b'', [(0, 1)]) +
    request(FREE_PD, b'', [(0, 0)]),
    PD + request(ALLOC_MW, u32(0, 2), [(0, 0)]) + request(FREE_MW, b'', [(0, 1)]),
    PD + request(CREATE_AH, u32(0, 0) + ah(), [(0, 0)]) + request(DESTROY_AH, b'', [(0, 1)]),
    request(CREATE_CHANNEL) + request(CREATE_CQ, u32(16), [(1, 0)]) +
    request(MODIFY_CQ, u32(0), [(0, 1)]) + request(RAISE_CQ, u32(0), [(0, 1)]) + request(DESTROY_CHANNEL, b'', [(0, 0)]) +
    request(DESTROY_CQ, b'', [(0, 1)]) + request(DESTROY_CHANNEL, b'', [(0, 0)]),
    request(CREATE_CQ, u32(16, 0, 0, 0, 0, 1)) + request(RESIZE_CQ, u32(0, 40), [(0, 0)]) +
    request(RESIZE_CQ, u32(0, 2), [(0, 0)]) + request(SWITCH_CQ, b'', [(0, 0)]) +
    request(SWITCH_CQ, b'', [(0, 0)]) + request(RESIZE_CQ, u32(0, 9), [(0, 0)]) +
    request(DESTROY_CQ, b'', [(0, 0)]),
    PD + request(CREATE_SRQ, u32(0, 4, 1), [(0, 0)]) + request(MODIFY_SRQ, u32(0, 2), [(0, 1)]) +
    request(QUERY_SRQ, b'', [(0, 1)]) + request(DESTROY_SRQ, b'', [(0, 1)]),
    PD + CQ + create_qp(2) + modify(2, 0x39, 1, port=1, access=14) +
    modify(2, 0x129181, 2, path_mtu=3, dest_qpn=5, dest_rd=4, rnr=1) +
    modify(2, 0x12e01, 3, timeout=14) + request(RATE_QP, u32(0, 1000), [(0, 2)]) +
    request(QUERY_QP, b'', [(0, 2)]) +
    modify(2, 1, 6) + modify(2, 1, 0) + request(DESTROY_QP, b'', [(0, 2)]),
    PD + CQ + create_qp(2) + modify(2, 0x39, 1, port=1, access=14) +
    modify(2, 0x12d181, 2, path_mtu=3, dest_qpn=5, dest_rd=4, rnr=1, alt_port=1, alt_timeout=9) +
    modify(2, 0x52e01, 3, timeout=14, mig=1) + request(QUERY_QP, b'', [(0, 2)]) +
    modify(2, 0x44000, mig=1, alt_port=1) + modify(2, 0x40000, mig=0) + modify(2, 1, 0),
    *[PD + CQ + create_qp(2) + request(QUERY_ECE, b'', [(0, 2)]) +
      request(SET_ECE, u32(0, 0, OURS, word), [(0, 2)]) + modify(2, 0x39, 1, port=1, access=14) +
      modify(2, 0x129181, 2, path_mtu=3, dest_qpn=5, dest_rd=4, rnr=1) +
      request(SET_ECE, u32(0, 0, OURS, word), [(0, 2)]) + request(QUERY_ECE, b'', [(0, 2)]) +
      modify(2, 1, 0) + request(QUERY_ECE, b'', [(0, 2)]) for word in (OFFER, ANSWER)],
    PD + CQ + create_qp(3) + create_qp(4) + modify(3, 0x71, 1, port=1),
    PD + CQ + create_qp(4) + request(ATTACH_MCAST, u32(0, 0) + GROUP, [(0, 2)]) +
    modify(2, 0x71, 1, port=1) + request(ATTACH_MCAST, u32(0, 0) + b'\xff' + GROUP[1:], [(0, 2)]) +
    request(ATTACH_MCAST, u32(0, 0) + GROUP, [(0, 2)]) + request(CREATE_AH, u32(0, 0) + GROUP + ah()[16:],
                                                                [(0, 0)]) +
    request(DETACH_MCAST, u32(0, 0) + GROUP, [(0, 2)]) + request(DESTROY_QP, b'', [(0, 2)]),
    request(REG_MR, bytes(96), nfds=2),
    request(OPEN_XRCD, u32(0)) + request(OPEN_XRCD, u32(3), nfds=1) +
    request(OPEN_XRCD, u32(3), nfds=1) + request(CLOSE_XRCD, b'', [(0, 0)]) +
    request(CLOSE_XRCD, b'', [(0, 0)]) + request(OPEN_XRCD, u32(0), nfds=1),
    XRC + modify(4, 0x39, 1, port=1, access=14) +
    modify(5, 0x129181, 2, path_mtu=3, dest_qpn=5, dest_rd=4, rnr=1) +
    modify(4, 0x10201, 3, timeout=14) + request(QUERY_QP, b'', [(0, 5)]) +
    request(DESTROY_QP, b'', [(0, 4)]) + request(CLOSE_XRCD, b'', [(0, 2)]) +
    request(DESTROY_SRQ, b'', [(0, 3)]) + modify(5, 1, 6) + request(DESTROY_QP, b'', [(0, 5)]) +
    request(CLOSE_XRCD, b'', [(0, 2)]),
    XRC + request(DESTROY_CQ, b'', [(0, 1)]),
    PD + CQ + request(CREATE_QP, u32(9, 0, 0, 0, 0, 4, 0, 1, 0, 32, 0, 0, 0xffffffff),
                      [(1, 0), (2, 1)]) +
    modify(2, 0x39, 1, port=1, access=14) + modify(2, 0x101181, 2, path_mtu=3, dest_qpn=5) +
    modify(2, 0x12e01, 3, timeout=14),
    CM_ASKED + request(CM_INIT_QP_ATTR, u32(0, 2), [(0, 10)]) +
    request(CM_ACCEPT, u32(0, 1, 3, 0) + CM_PARAM, [(0, 10)]) + CM_EVENT + request(CM_ACCEPT, b'', [(0, 4)]) +
    CM_EVENT + request(CM_DISCONNECT, b'', [(0, 4)]) + CM_EVENT,
    CM_ASKED + request(CM_REJECT, u32(0, 9), [(0, 10)]) + CM_EVENT +
    request(CM_DESTROY_ID, b'', [(0, 10)]) + request(CM_QUERY, b'', [(0, 4)]),
    CM_ASKED + request(CM_ACCEPT, u32(0, 1, 3, 0) + CM_PARAM, [(0, 10)]) +
    request(CM_NOTIFY, u32(0, 4), [(0, 10)]) + request(CM_DESTROY_ID, b'', [(0, 4)]) + CM_EVENT,
    CM_ASKED[:-len(CM_EVENT)] + request(CM_DESTROY_ID, b'', [(0, 1)]) + CM_EVENT +
    request(CM_DESTROY_CHANNEL, b'', [(0, 0)]),
    request(CM_CREATE_CHANNEL) * 2 + cm_id(0) + cm_resolve(2) +
    request(CM_MIGRATE_ID, b'', [(0, 2), (1, 1)]) + request(CM_SET_OPTION, u32(0, 0, 8), [(0, 2)]) +
    request(CM_SET_OPTION, u32(0, 3, 9), [(0, 2)]) + request(CM_DESTROY_CHANNEL, b'', [(0, 0)]),
    CM_UD + request(CM_LISTEN, u32(0, 0), [(0, 1)]) + cm_id(0, True) + cm_resolve(4) +
    request(CM_CONNECT, bytes(8) + CM_PARAM, [(0, 4)]) + CM_EVENT + request(CM_ACCEPT, u32(0, 1, 3, 0) + CM_PARAM, [(0, 10)]) +
    CM_EVENT,
    CM_UD + request(CM_JOIN_MCAST, u32(0, 0, 1, 0) + cm_addr(GROUP, 0), [(0, 1)]) + CM_EVENT +
    request(CM_LEAVE_MCAST, b'', [(0, 3)]) + request(CM_DESTROY_ID, b'', [(0, 1)]),
]


def main(argv):
    os.makedirs(argv[1], exist_ok=True)
    for seed in [b'', b'\0'] + [start + life for life in LIVES for start in (b'\0', b'\1')]:
        with open(os.path.join(argv[1], hashlib.sha1(seed).hexdigest()), 'wb') as f:
            f.write(seed)


if __name__ == '__main__':
    main(sys.argv)
