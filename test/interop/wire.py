# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The wire between a guest and the host: records every frame, and injures those that rules name.

One end is QEMU's datagram network (a pair of UNIX sockets), the other a tap interface in a network
namespace of the wire's own.  A thread of this process carries the frames; losses are the rules'
alone, a full queue is waited for.

A rule is made by drop(), duplicate(), delay(), corrupt() or mark(), which say where it applies:
  source   'guest' or 'karst', whose frames; both if left out
  op       an opcode of the BTH or several; any RoCE packet if left out
  nth      counted among the packets that the above fits: these, from 1
  every    or each so many-th
  chance   or by lot, with the probability given; seed: of the lots
  most     no more than so many in all
Of several rules, all that fit apply, in their order; what is dropped is seen by no later one.
"""
import collections
import ctypes
import dataclasses
import fcntl
import os
import random
import select
import socket
import struct
import threading
import time

from pcap import header, record

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454ca, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
FRAME_MAX = 65536
PCAP_MAX = 256 << 20 # bytes; later frames are carried, and not recorded
BURST = 64
FULL_S = 0.0005
ROCE = 4791
ACK, BTH_LEN, NAK_REM_ACCESS = 0x11, 12, 0x62


@dataclasses.dataclass
class Rule:
    """One impairment; the module's text describes the fields."""
    act: str
    source: str = None
    op: object = None
    nth: tuple = ()
    every: int = 0
    chance: float = 0
    seed: int = 1
    most: int = 1 << 60
    frames: int = 0 # delay: until so many later ones of the same end have passed
    ms: float = 20 # delay: but no longer
    seen: int = 0
    done: int = 0

    def __post_init__(self):
        self.random = random.Random(self.seed)

    def fits(self, source, op):
        """Counts the packet, and tells whether it is to be impaired."""
        if self.source not in (None, source):
            return False
        if self.op is not None and op not in (self.op if hasattr(self.op, '__contains__')
                                              else (self.op,)):
            return False
        self.seen += 1
        hit = self.seen in self.nth or (self.every and self.seen % self.every == 0) or \
            (self.chance and self.random.random() < self.chance)
        if not hit or self.done >= self.most:
            return False
        self.done += 1
        return True


def drop(**where):
    return Rule('drop', **where)


def duplicate(**where):
    return Rule('duplicate', **where)


def delay(**where):
    """Sends it after @frames later frames of the same end, or after @ms, whichever comes first."""
    return Rule('delay', **where)


def corrupt(**where):
    """Flips a bit of the last bytes before the ICRC, or of the ICRC's first if there is no
    payload."""
    return Rule('corrupt', **where)


def mark(**where):
    """The network signals congestion: ECN CE."""
    return Rule('mark', **where)


def bth_at(frame):
    """Offset of the BTH of a RoCEv2 frame, with or without a VLAN tag; 0: another protocol."""
    if len(frame) < 14:
        return 0
    at, kind = 14, frame[12:14]
    if kind == b'\x81\x00':
        at, kind = 18, frame[16:18]
    if kind == b'\x08\x00' and len(frame) > at + 28 and frame[at + 9] == 17:
        at += (frame[at] & 15) * 4
    elif kind == b'\x86\xdd' and len(frame) > at + 48 and frame[at + 6] == 17:
        at += 40
    else:
        return 0
    if len(frame) < at + 24 or struct.unpack_from('>H', frame, at + 2)[0] != ROCE:
        return 0
    return at + 8


def marked(frame, bth):
    """The frame with ECN CE, which no ICRC covers, and with the IPv4 header's checksum updated."""
    data = bytearray(frame)
    ip = 18 if data[12:14] == b'\x81\x00' else 14
    if data[ip] >> 4 == 6:
        data[ip + 1] |= 0x30
        return bytes(data)
    data[ip + 1] |= 3
    data[ip + 10:ip + 12] = b'\0\0'
    total = sum(struct.unpack(f'>{(bth - 8 - ip) // 2}H', data[ip:bth - 8]))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    data[ip + 10:ip + 12] = struct.pack('>H', total ^ 0xffff)
    return bytes(data)


class Pcap:
    """A capture file with nanoseconds, Ethernet."""

    def __init__(self, path):
        self.path = path
        self.frames = 0
        self.bytes = 24
        self.f = open(path, 'wb')
        self.f.write(header())

    def add(self, frame):
        if self.bytes > PCAP_MAX:
            return
        # in one write: two wires may share a file
        self.f.write(record(time.time_ns(), frame))
        self.frames += 1
        self.bytes += 16 + len(frame)

    def close(self):
        self.f.close()


def open_tap(netns, name):
    """The descriptor of a tap interface in a network namespace, which is removed with its last
    user."""
    found = []

    def within():
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f'/run/netns/{netns}', 'rb') as ns:
            if libc.setns(ns.fileno(), CLONE_NEWNET):
                return
        fd = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH22x', name.encode(), IFF_TAP | IFF_NO_PI))
        found.append(fd)

    thread = threading.Thread(target=within) # whose namespace only this thread has
    thread.start()
    thread.join()
    if not found:
        raise OSError(f'no tap interface {name} in {netns}')
    return found[0]


class Wire:
    """@folder/wire is this end's socket, @folder/nic QEMU's."""

    def __init__(self, folder, netns, tap):
        self.mine, self.peer = os.path.join(folder, 'wire'), os.path.join(folder, 'nic')
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.mine)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.tap = open_tap(netns, tap)
        self.lock = threading.Lock()
        self.pcap = None
        self.end = None # what an interface at karst's end would see
        self.rules = []
        self.injuries = [] # (number of the frame in the capture, act, source, opcode)
        self.held = [] # (source, frame, when at the latest, behind how many more)
        self.last = {} # source: when its last RoCE frame came
        self.refused = collections.Counter() # source: its NAKs that say "remote access error"
        self.carried = 0
        self.lost = 0 # the other end was not there
        self.ending = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def begin(self, path, rules=(), end=None):
        """From now on frames are recorded in @path, and impaired by @rules, counted from zero.
        @end: file for what karst's end sends and receives, which is behind the impairments."""
        with self.lock:
            self.pcap, self.injuries, self.last = Pcap(path), [], {}
            self.refused.clear()
            self.end = Pcap(end) if end else None
            self.rules = [dataclasses.replace(rule, seen=0, done=0) for rule in rules]

    def joins(self, other):
        """Frames are recorded in the file of @other, from now until it has finished."""
        with self.lock:
            self.pcap, self.injuries = other.pcap, []

    def leaves(self):
        with self.lock:
            self.pcap, self.rules = None, []

    def change(self, rules):
        """Uses other rules from now on, in the same recording."""
        with self.lock:
            self.rules = [dataclasses.replace(rule, seen=0, done=0) for rule in rules]

    def finish(self):
        """@return the impairments since begin()."""
        with self.lock:
            files, self.pcap, self.end, self.rules = (self.pcap, self.end), None, None, []
        for pcap in files:
            if pcap is not None:
                pcap.close()
        return self.injuries

    def at_end(self, frame):
        if self.end is not None:
            with self.lock:
                if self.end is not None:
                    self.end.add(frame)

    def put(self, to, frame):
        """Sends to the end that is not @to, waiting for room there."""
        self.carried += 1
        while not self.ending:
            try:
                if to == 'karst':
                    self.sock.sendto(frame, self.peer)
                else:
                    os.write(self.tap, frame)
                    self.at_end(frame)
                return
            except (BlockingIOError, InterruptedError):
                time.sleep(FULL_S)
            except OSError: # no guest, or the interface is down
                self.lost += 1
                return

    def injure(self, source, frame):
        """The frames that are sent in place of @frame."""
        bth = bth_at(frame)
        out = [frame]
        for rule in self.rules if bth else ():
            if not rule.fits(source, frame[bth]):
                continue
            self.injuries.append((self.pcap.frames if self.pcap else 0, rule.act, source,
                                  frame[bth]))
            if rule.act == 'drop':
                return []
            if rule.act == 'duplicate':
                out *= 2
            if rule.act == 'mark':
                out = [marked(f, bth) for f in out]
            if rule.act == 'corrupt':
                at = len(frame) - 5 if len(frame) > bth + 16 else len(frame) - 4
                out = [f[:at] + bytes([f[at] ^ 0x40]) + f[at + 1:] for f in out]
            if rule.act == 'delay':
                self.held += [[source, f, time.monotonic() + rule.ms / 1e3,
                               rule.frames or 1 << 60] for f in out]
                return []
        return out

    def silent_s(self, source, other):
        """How long @source has sent no RoCE frame, if the last one since begin() was @other's;
        otherwise 0."""
        mine, others = self.last.get(source, 0), self.last.get(other, 0)
        return time.monotonic() - mine if mine < others else 0

    def take(self, source, frame):
        bth = bth_at(frame)
        if bth:
            self.last[source] = time.monotonic()
            self.refused[source] += frame[bth] == ACK and frame[bth + BTH_LEN] == NAK_REM_ACCESS
        with self.lock:
            if self.pcap:
                self.pcap.add(frame)
            if self.end and source == 'karst':
                self.end.add(frame)
            out = self.injure(source, frame) if self.rules else [frame]
        for one in out:
            self.put(source, one)
        if self.held and out:
            for one in self.held:
                one[3] -= one[0] == source
            self.release()

    def release(self):
        now = time.monotonic()
        for one in [one for one in self.held if one[2] <= now or one[3] <= 0]:
            self.held.remove(one)
            self.put(one[0], one[1])

    def drain(self, source, read):
        for _ in range(BURST):
            try:
                frame = read(FRAME_MAX)
            except OSError: # nothing more, or the interface is down
                return
            self.take(source, frame)

    def run(self):
        poll = select.epoll()
        poll.register(self.sock.fileno(), select.EPOLLIN)
        poll.register(self.tap, select.EPOLLIN)
        while not self.ending:
            for fd, _ in poll.poll(0.002 if self.held else 0.2):
                if fd == self.tap:
                    self.drain('karst', lambda size: os.read(self.tap, size))
                else:
                    self.drain('guest', self.sock.recv)
            if self.held:
                self.release()

    def close(self):
        self.ending = True
        self.thread.join()
        self.finish()
        os.close(self.tap)
        self.sock.close()
