#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Captures of SMC-R between two Linux guests, for test/captures (as root, where QEMU is).

  capture.py [--only REGEX] KERNEL FOLDER BUILD OUT

KERNEL is a meta package of Debian's, FOLDER keeps kernels and images, BUILD has the programs.  In OUT
are the captures then, and rows.tsv, which are their lines of MANIFEST.tsv.

Nothing of karst's is between A (192.0.2.1, the client) and B (192.0.2.2, the server), only a wire that
records IPv4.  Buffers are the smallest that SMC-R has, 16 KiB, so that few bytes go around them.  The
guests' devices are new in each capture, and so is SMC, which counts groups and connections: each
begins with the first contact of the first link group.  A capture in which a guest has sent something
twice, because it waited for a processor, is made again.
"""
import argparse
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..'), os.path.join(HERE, '..', 'guest'),
                os.path.join(HERE, '..', '..', 'common')]
import guest  # noqa: E402
import image as images  # noqa: E402
from pcap import write_pcap  # noqa: E402

CONTENTS = images.Contents('smcpair', 'ip rdma modprobe',
                           '''virtio_net virtio_pci virtio_console virtio_rng rdma_rxe ib_uverbs
  rdma_ucm smc crc32_pclmul crc32_generic crc32c_generic crc32c_intel crc32c''', '')
EID, PORT, MTU, BUFFER = 'INTEROP1', 18700, 1500, 16384
CDC, DELETE_LINK = 0xfe, 0x24
FULL_S, FRAME_MAX, LIMIT_S, QUIET_S = 0.0005, 65536, 120, 1.5
ATTEMPTS = 5
SETTINGS = f'modprobe smc; interop-smcset eid {EID}; echo {BUFFER} >/proc/sys/net/smc/wmem; ' \
    f'echo {BUFFER} >/proc/sys/net/smc/rmem'
GO = 'wait /tmp/go'
# (name, links, what it shows, steps of A, steps of B).  A program that waits is told to go when A
# is blocked; with two links, when the first of them has failed.
SCENARIOS = (
    ('smcr_wrap', 1, 'SMC-R, buffers of 16 KiB: both directions go around their ends, where two '
     'WRITEs are made of one',
     'send 7001 get 5003 ' * 5 + 'shut drain', 'get 7001 send 5003 ' * 5 + 'drain close'),
    ('smcr_blocked', 1, 'SMC-R, buffers of 16 KiB: A writes until there is no room at both ends (writer '
     'blocked), B reads all of it, the window is open again',
     'send 40000 get 1 send 3000 shut drain', f'{GO} get 40000 send 1 drain close'),
    ('smcr_urgent', 1, 'SMC-R: urgent bytes of B, behind others, alone, and in line at last',
     'send 1 get 999 oob get 500 send 1 get 1 oob get 3000 inline send 1 get 1501 close',
     'get 1 urge 1000 send 500 get 1 urge 2 send 3000 get 1 urge 1000 send 500 urge 1 shut drain'),
    ('smcr_urgent_blocked', 1, 'SMC-R, buffers of 16 KiB: A is blocked when it has an urgent byte, '
     'which is pending until B reads',
     'fill urgent 1 send 100 shut drain', f'{GO} inline drain close'),
    ('smcr_half_close', 1, 'SMC-R, buffers of 16 KiB: A ends its direction (done writing), B goes on '
     'for more than its peer\'s buffer',
     'send 1000 shut drain close', 'drain send 40000 close'),
    ('smcr_abort', 1, 'SMC-R: B closes with unread bytes (abort), A hears of it',
     'send 1000 drain error', 'get 1 close'),
    ('smcr_abort_blocked', 1, 'SMC-R, buffers of 16 KiB: B closes with unread bytes (abort) while A is '
     'blocked',
     'fill error', f'{GO} get 1 close'),
    ('smcr_linger', 1, 'SMC-R: B closes with a time to linger of 0, all was read',
     'both 1000 drain close', 'both 1000 reset'),
    ('smcr_two_links', 2, 'SMC-R: a second link (ADD_LINK with the key, CONFIRM_LINK, both ways)',
     'send 3000 get 2000 shut drain', 'get 3000 send 2000 drain close'),
    ('smcr_failover', 2, 'SMC-R: of two links the first dies at A, and the connection goes over the '
     'second (validation, DELETE_LINK)',
     f'send 3000 get 2000 {GO} send 3001 get 2002 shut drain',
     f'get 3000 send 2000 {GO} get 3001 send 2002 drain close'),
)


class Failure(Exception):
    """Why there is no capture."""


class Wire(threading.Thread):
    """Between two QEMUs: keeps frames in the order in which they arrived here, while a recording
    runs."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.ends = {}
        for name in ('A', 'B'):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            sock.bind(os.path.join(folder, 'wire-' + name))
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            self.ends[name] = (sock, os.path.join(folder, 'nic-' + name))
        self.folder, self.ending = folder, False
        self.lock, self.recording = threading.Lock(), None
        self.start()

    def netdev(self, name, number):
        return ['-netdev', f'dgram,id=n{number},local.type=unix,local.path={self.folder}/nic-{name},'
                f'remote.type=unix,remote.path={self.folder}/wire-{name}']

    def put(self, name, frame):
        sock, to = self.ends[name]
        while not self.ending:
            try:
                sock.sendto(frame, to)
                return
            except BlockingIOError:
                time.sleep(FULL_S)
            except OSError: # no guest yet
                return

    def run(self):
        poll = select.epoll()
        names = {}
        for name, (sock, _) in self.ends.items():
            poll.register(sock.fileno(), select.EPOLLIN)
            names[sock.fileno()] = name
        while not self.ending:
            for fd, _ in poll.poll(0.2):
                frame = self.ends[names[fd]][0].recv(FRAME_MAX)
                with self.lock:
                    if self.recording is not None and frame[12:14] == b'\x08\x00':
                        self.recording.append((time.time_ns(), frame))
                self.put('B' if names[fd] == 'A' else 'A', frame)

    def close(self):
        self.ending = True
        self.join()


def message(frame):
    """The SEND in the frame, if it is an LLC or CDC message."""
    return frame[54:-4] if frame[23] == 17 and frame[42] == 4 else b'\0'


def is_cdc(record):
    return message(record[1])[0] == CDC


def blocked(record):
    return is_cdc(record) and message(record[1])[24] & 0x80 != 0


def deletes_link(record):
    return message(record[1])[0] == DELETE_LINK


class Pair:
    """Both guests, and two wires between them."""

    def __init__(self, built):
        self.work = tempfile.TemporaryDirectory(prefix='karst-smc-')
        self.wires, self.guests = [], {}
        for number in range(2):
            folder = os.path.join(self.work.name, str(number))
            os.mkdir(folder)
            self.wires.append(Wire(folder))
        for number, name in enumerate('AB', 1):
            folder = os.path.join(self.work.name, name)
            os.mkdir(folder)
            nics = [wire.netdev(name, n) for n, wire in enumerate(self.wires)]
            machine = guest.plain(nics, [f'192.0.2.{number}/24', f'192.0.2.{128 + number}/24'], MTU,
                                  mac=f'52:54:00:00:%02x:{number:02x}')
            self.guests[name] = guest.Guest(folder, built, machine, lambda: None)
        for name, one in self.guests.items():
            problems = one.ready()
            if problems:
                raise Failure('\n'.join(problems))
            one.must(f'hostname {name}; modprobe smc; ip route del 192.0.2.0/24 dev eth1; '
                     'echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter')

    def anew(self, links):
        """Loads SMC and @links devices, all unused."""
        for one in self.guests.values():
            one.must('rdma link delete rxe0; rdma link delete rxe1 2>/dev/null; rm -f /tmp/go')
        for one in self.guests.values():
            end = time.monotonic() + LIMIT_S
            # until connections that are closing release it
            while one.run('modprobe -r smc')[0] != 0:
                if time.monotonic() > end:
                    raise Failure('SMC is not unloaded')
                time.sleep(0.3)
            one.must(SETTINGS)
            for number in range(links):
                one.must(f'rdma link add rxe{number} type rxe netdev eth{number}')

    def record(self, links, a, b):
        """@return the frames of that exchange."""
        self.anew(links)
        frames = []
        for wire in self.wires:
            with wire.lock:
                wire.recording = frames
        server = self.guests['B'].program(f'interop-talk -s -l 192.0.2.2 {PORT} 1 {b}', LIMIT_S)
        problems = server.until(lambda: 'listens\n' in server.text(), 'listening', LIMIT_S)
        client = self.guests['A'].program(f'interop-talk -s -c 192.0.2.2 {PORT} 1 {a}', LIMIT_S)
        if not problems and GO in a:
            problems = self.kill_link(client, frames)
        elif not problems and GO in b:
            problems = client.until(lambda: any(map(blocked, frames)), 'blocked', LIMIT_S)
        if GO in b:
            self.still(frames)
            for one in self.guests.values():
                one.must('>/tmp/go')
        for name, one in (('A', client), ('B', server)):
            problems += [f'{name}: {problem}' for problem in one.wait(LIMIT_S)]
            if one.status != 0:
                problems.append(f'{name} ends with {one.status}')
        self.still(frames)
        for wire in self.wires:
            with wire.lock:
                wire.recording = None
        self.guests['A'].must('ip link set eth0 up')
        if problems:
            raise Failure('\n'.join([*problems, *client.shown(), *server.shown()]))
        return frames

    def kill_link(self, client, frames):
        """Ends the link of rxe0 at A.  @return problems"""
        problems = client.until(lambda: sum(map(is_cdc, frames)) >= 2, 'sending', LIMIT_S)
        self.still(frames)
        self.guests['A'].must('ip link set eth0 down')
        return problems or client.until(lambda: any(map(deletes_link, frames)), 'without a link',
                                        LIMIT_S)

    @staticmethod
    def still(frames):
        """Waits until nothing more is sent."""
        count = -1
        while count != len(frames):
            count = len(frames)
            time.sleep(QUIET_S)

    def close(self):
        for one in self.guests.values():
            for line in one.complains():
                print(f'{one.name}: {line}')
            one.close()
        for wire in self.wires:
            wire.close()
        self.work.cleanup()


def once(pair, links, a, b):
    """@return frames, none of which was sent twice."""
    for _ in range(ATTEMPTS):
        frames = pair.record(links, a, b)
        # destination address and queue pair, and PSN, of all except ACKs
        requests = [frame[30:34] + frame[47:50] + frame[51:54] for _, frame in frames
                    if frame[23] == 17 and frame[42] < 13]
        if len(set(requests)) == len(requests):
            return frames
    raise Failure('something was sent twice in each attempt')


def row(name, what, a, b, version, dump, path):
    """The line of the manifest; test/captures checks the counts."""
    said = subprocess.run([dump, '--json', '--rebuild', path], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    total = json.loads(said.splitlines()[-1])
    counts = {**total['by_opcode'], **{k: v for k, v in total['by_syndrome'].items() if k != 'ACK'}}
    talk = f'interop-talk -s -{{}} 192.0.2.2 {PORT} 1 {{}}'
    command = ' | '.join(['B: ' + talk.format('l', b), 'A: ' + talk.format('c', a),
                          'pre A: ' + SETTINGS, 'pre B: ' + SETTINGS])
    return '\t'.join([name + '.pcap', what, command, version, '0', str(total['frames']),
                      str(total['roce']), str(total['icrc_ok']),
                      ' '.join(f'{k}:{v}' for k, v in sorted(counts.items())), ''])


def options(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', default='', metavar='REGEX', help='scenarios whose name it is in')
    for name in ('kernel', 'folder', 'build', 'out'):
        parser.add_argument(name)
    return parser.parse_args(argv)


def main(argv):
    words = options(argv)
    here = os.path.join(os.path.abspath(words.build), 'test', 'interop')
    built = images.image(words.folder, words.kernel, f'{here}/agent',
                         [f'{here}/smc/interop-talk', f'{here}/smc/interop-smcset'], CONTENTS)
    os.makedirs(words.out, exist_ok=True)
    dump = os.path.join(words.build, 'app', 'karst-dump', 'karst-dump')
    rows, failed = [], 0
    pair = Pair(built)
    try:
        for name, links, what, a, b in SCENARIOS:
            if not re.search(words.only, name):
                continue
            a, b = a.strip(), b.strip()
            path = os.path.join(words.out, name + '.pcap')
            try:
                frames = once(pair, links, a, b)
            except Failure as e:
                failed += 1
                print(f'{name}: {e}', flush=True)
                continue
            write_pcap(path, 1, frames)
            rows.append(row(name, what, a, b, built[2], dump, path))
            print(f'{name}: {len(frames)} frames', flush=True)
    finally:
        pair.close()
    with open(os.path.join(words.out, 'rows.tsv'), 'w', encoding='utf-8') as f:
        f.write(''.join(line + '\n' for line in rows))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
