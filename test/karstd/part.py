#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The privileged part of karstd, asked by an engine that somebody has taken over: part.py KARSTD.

This program plays that engine, which may send what it likes; another process is a program of another
user, attached to it.  app/karstd/part_msg.h has the messages.
"""
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import HANG_S, Tap  # noqa: E402

CAPS = '-all,+setuid,+setgid,+checkpoint_restore'
PROGRAM, OTHER = 61235, 61236
CHANNEL = 3
SO_PEERPIDFD = 77 # not in Python's socket
READY, OPEN = 1, 2 # enum kd_part_kind
MAPS, MAPPING = 0, 1
ASK, ANSWER = struct.Struct('<II5Q'), struct.Struct('<i')
SETUP = struct.Struct('<256sII512s')
LINES = 8
PAGE = 4096

# Maps a file of its own, prints where, and waits for the end of its input.  Descriptor 9 is a file
# that its user may not open.
CHILD = r'''
import ctypes, mmap, os, socket, sys
fd = os.memfd_create('part')
os.write(fd, b'of the program ' * 1024)
shared = mmap.mmap(fd, 8192)
alone = mmap.mmap(fd, 4096, access=mmap.ACCESS_COPY)
read_only = mmap.mmap(os.open(f'/proc/self/fd/{fd}', os.O_RDONLY), 4096, prot=mmap.PROT_READ)
others = mmap.mmap(9, 4096)
if sys.argv[2] == 'hidden':
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
address = lambda m: ctypes.addressof((ctypes.c_char * len(m)).from_buffer(m))
ends = {line.split()[0]: line for line in open('/proc/self/maps', encoding='ascii')}
ro = [l for l in ends if ends[l].split()[1] == 'r--s' and 'memfd:part' in ends[l]][0]
print(f'{address(shared):x} {address(alone):x} {ro.split("-")[0]} {address(others):x}', flush=True)
sys.stdin.read()
'''

# Another daemon, without capabilities, whose memory is its user's: listens, and sends one end of a
# socket pair of its own to each connection.
DAEMON = r'''
import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen()
ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
print('ready', flush=True)
kept = []
while True:
    sock, _ = listener.accept()
    kept.append(sock)
    socket.send_fds(sock, [b'x'], [ends[0].fileno()])
'''


class Part:
    """The privileged part, started as the daemon starts it."""

    def __init__(self, karstd, path, lines=LINES):
        self.end, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.end.settimeout(HANG_S)
        self.process = subprocess.Popen(
            ['setpriv', '--inh-caps', CAPS, '--ambient-caps', CAPS, karstd, '--privileged-part'],
            stdin=subprocess.DEVNULL, close_fds=False,
            preexec_fn=lambda: os.dup2(far.fileno(), CHANNEL))
        far.close()
        self.end.send(SETUP.pack(path.encode(), lines, 0, b''))
        self.started = self.answer()

    def answer(self):
        data = self.end.recv(64)
        return ANSWER.unpack(data)[0] if data else 'end'

    def send(self, kind, fds=()):
        socket.send_fds(self.end, [struct.pack('<I', kind)], list(fds))

    def line(self, sock, memory=None):
        """A line for the program at the other end of @sock."""
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        near.settimeout(HANG_S)
        fds = [sock if isinstance(sock, int) else sock.fileno(), far.fileno()]
        self.send(OPEN, fds + ([memory] if memory is not None else []))
        far.close()
        return near

    def line_of(self, program):
        return self.line(program.sock, program.memory)

    def close(self):
        self.end.close()
        return self.process.wait(HANG_S)


def ask(line, kind, write=0, start=0, end=0, addr=0, size=0, off=0):
    """@return a descriptor, -errno, or 'end'."""
    try:
        line.send(ASK.pack(kind, write, start, end, addr, size, off))
        data, fds, _, _ = socket.recv_fds(line, 64, 4)
    except (BrokenPipeError, ConnectionResetError):
        return 'end'
    if not data:
        return 'end'
    status = ANSWER.unpack(data)[0]
    return fds[0] if status == 0 else status


def refused(what, got):
    if isinstance(got, int) and got >= 0:
        os.close(got)
        return [f'{what}: there is a descriptor']
    return []


def kernel_tells(sock):
    """Whether the kernel gives a descriptor of the process at the other end (Linux 6.5)."""
    try:
        os.close(sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
    except OSError as e:
        if e.errno != errno.ENOPROTOOPT:
            raise
        return False
    return True


class Program:
    """A process of another user that has connected to @server."""

    def __init__(self, server, secret, how='', uid=PROGRAM):
        self.process = subprocess.Popen(
            ['setpriv', '--reuid', str(uid), '--regid', str(uid), '--clear-groups', sys.executable,
             '-c', CHILD, server.getsockname(), how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, close_fds=False,
            preexec_fn=lambda: os.dup2(secret, 9))
        self.sock, _ = server.accept()
        words = self.process.stdout.readline().split()
        self.shared, self.alone, self.read_only, self.others = (int(w, 16) for w in words)
        # as programs send it; their identity is certain without it only if the kernel reports it
        self.memory = None if kernel_tells(self.sock) else \
            os.open(f'/proc/{self.process.pid}/mem', os.O_RDONLY)

    def close(self):
        self.sock.close()
        if self.memory is not None:
            os.close(self.memory)
        self.process.communicate(timeout=HANG_S)


def whole(program, **other):
    """The request for the whole shared mapping of a program."""
    at = program.shared
    return dict({'write': 1, 'start': at, 'end': at + 2 * PAGE, 'addr': at, 'size': 2 * PAGE},
                **other)


def serves(part, program):
    """Problems: it does not fulfil its purpose."""
    line = part.line_of(program)
    problems = []
    fd = ask(line, MAPS)
    if not isinstance(fd, int) or fd < 0:
        problems.append(f'the list of mappings: {fd}')
    else:
        with open(fd, encoding='ascii') as f:
            if f'{program.shared:x}-' not in f.read():
                problems.append('another list of mappings')
    fd = ask(line, MAPPING, **whole(program))
    if not isinstance(fd, int) or fd < 0:
        problems.append(f'a mapping: {fd}')
    else:
        if os.pread(fd, 14, 0) != b'of the program':
            problems.append('another file')
        os.close(fd)
    line.close()
    return problems


def strangers(part, server, program, folder, path):
    """Sockets that are not a program's.  The important one is the engine's connection to another
    daemon: the kernel reports that daemon's credentials."""
    problems = []
    name = os.path.join(folder, 'far')
    os.mkdir(name)
    os.chown(name, OTHER, OTHER)
    name = os.path.join(name, 'far.sock')
    daemon = subprocess.Popen(
        ['setpriv', '--reuid', str(OTHER), '--regid', str(OTHER), '--clear-groups', sys.executable,
         '-c', DAEMON, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    daemon.stdout.readline()
    os.rename(path, path + '.away')
    for at in (os.path.join(folder, 'near'), path):
        near = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        near.bind(at)
        near.connect(name)
        _, fds, _, _ = socket.recv_fds(near, 1, 1)
        problems += refused(f'connected to another daemon, from {at}', ask(part.line(near), MAPS))
        problems += refused('an end of its socket pair', ask(part.line(fds[0]), MAPS))
        os.close(fds[0])
        near.close()
        os.unlink(at)
    os.rename(path + '.away', path)
    daemon.kill()
    daemon.communicate()
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    problems += refused('two ends of its own', ask(part.line(ends[0]), MAPS))
    stream = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with open('/etc/passwd', encoding='utf-8') as f:
        for what, fd in (('a stream', stream[0]), ('a socket of IP', udp), ('a file', f.fileno())):
            problems += refused(what, ask(part.line(fd), MAPS))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    problems += refused('a socket that is not connected', ask(part.line(listener), MAPS))
    problems += refused('the listening one', ask(part.line(server), MAPS))
    return problems + serves(part, program)


def others_files(part, program):
    """Requests about an attached program for what its user may not open, or what the program does
    not have."""
    line = part.line_of(program)
    at = program.shared
    cases = {
        'a file that the user may not open': dict(start=program.others, end=program.others + PAGE,
                                                  addr=program.others, size=PAGE),
        'more than the program has opened it for': dict(
            start=program.read_only, end=program.read_only + PAGE, addr=program.read_only,
            size=PAGE, write=1),
        'private memory': dict(start=program.alone, end=program.alone + PAGE, addr=program.alone,
                               size=PAGE),
        'more than the mapping': whole(program, size=3 * PAGE),
        'all addresses': whole(program, addr=at + PAGE, size=2 ** 64 - PAGE),
        'a mapping that is not there': whole(program, start=at + PAGE),
        'another place in the file': whole(program, off=PAGE),
        'another address': whole(program, addr=0),
        'ends the wrong way round': whole(program, start=at + PAGE, end=at),
    }
    problems = []
    for what, args in cases.items():
        problems += refused(what, ask(line, MAPPING, **args))
    problems += refused('an unknown question', ask(line, 77))
    line.send(b'short')
    if ask(line, MAPS) != 'end':
        problems.append('a line goes on after what is no question')
    return problems + serves(part, program)


def messages(part, program):
    """Messages that are invalid on the daemon's channel."""
    devnull = os.open('/dev/null', os.O_RDONLY)
    part.end.send(b'x')
    part.end.send(b'\0' * 60000)
    part.end.send(SETUP.pack(b'/etc/passwd', 1 << 31, 99, b''))
    for kind in (0, 3, 2 ** 32 - 1):
        part.send(kind, [devnull] * 5)
    for n in (0, 1, 4, 100):
        part.send(OPEN, [devnull] * n)
    part.send(READY, [devnull])
    problems = [] if part.answer() == -errno.EPROTO else ['programs of interfaces it has not']
    part.send(READY)
    problems += [] if part.answer() == 0 else ['no interfaces']
    part.send(READY)
    problems += [] if part.answer() == -errno.EPROTO else ['ready twice']
    for _ in range(20000):
        part.send(0)
    os.close(devnull)
    # threads of lines that were closed before may be about to close theirs
    end = time.monotonic() + HANG_S
    while (count := len(os.listdir(f'/proc/{part.process.pid}/fd'))) > 12:
        if time.monotonic() >= end:
            problems.append(f'it keeps {count} descriptors')
            break
        time.sleep(0.01)
    return problems + serves(part, program)


def crowd(part, program, other):
    """The programs of one user cannot take all lines; and closed lines are free again."""
    lines = [part.line_of(program) for _ in range(4 * LINES)]
    got = [ask(line, MAPS) for line in lines]
    good = [fd for fd in got if isinstance(fd, int) and fd >= 0]
    problems = [] if 0 < len(good) < 2 * LINES else [f'{len(good)} of {len(lines)} lines']
    problems += serves(part, other)
    for fd in good:
        os.close(fd)
    for line in lines:
        line.close()
    # threads end as soon as they notice it
    end = time.monotonic() + HANG_S
    while len(os.listdir(f'/proc/{part.process.pid}/task')) > 1 and time.monotonic() < end:
        time.sleep(0.01)
    return problems + serves(part, program)


def descriptors(part):
    """What its descriptors refer to; one that is closed meanwhile is skipped."""
    links = []
    for fd in os.listdir(f'/proc/{part.process.pid}/fd'):
        try:
            links.append(os.readlink(f'/proc/{part.process.pid}/fd/{fd}'))
        except FileNotFoundError:
            pass
    return links


def lets_go(part, server, secret):
    """The part does not delay a program's notice that the engine has closed the connection, and
    does not keep its memory."""
    program = Program(server, secret)
    line = part.line_of(program)
    problems = refused('', -1) if ask(line, MAPS) != 'end' else ['no line']
    # threads of lines that were closed before may be about to close theirs
    end = time.monotonic() + HANG_S
    while True:
        links = descriptors(part)
        if len([text for text in links if text.startswith('socket:')]) == 2:
            break
        if time.monotonic() >= end:
            problems.append(f'it keeps {links}')
            break
        time.sleep(0.01)
    program.close()
    line.close()
    return problems


def ends(karstd, path, program):
    part = Part(karstd, path)
    line = part.line_of(program)
    problems = refused('', ask(line, 77))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        part.process.send_signal(number)
    problems += serves(part, program)
    status = part.close()
    if status != 0:
        problems.append(f'exit status {status}')
    if select.select([line], [], [], HANG_S)[0] and line.recv(1) != b'':
        problems.append('a line outlives it')
    return problems


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tap, karstd = Tap(), argv[1]
    if os.geteuid() != 0:
        tap.skip('the privileged part', 'needs root')
        return tap.finish()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, 'karst.sock')
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen()
        # a file of root's in memory, whose descriptor a program has got
        secret = os.open(f'/dev/shm/karst-part-{os.getpid()}', os.O_RDWR | os.O_CREAT, 0o600)
        os.unlink(f'/dev/shm/karst-part-{os.getpid()}')
        os.ftruncate(secret, PAGE)
        program = Program(server, secret)
        hidden = Program(server, secret, 'hidden')
        other = Program(server, secret, uid=OTHER)
        part = Part(karstd, path)
        tap.point('it starts', [] if part.started == 0 else [part.started])
        tap.point('mappings and files of a program that has connected', serves(part, program))
        tap.point('of another user\'s', serves(part, other))
        tap.point('not of one that its user may not look at',
                  refused('', ask(part.line(hidden.sock), MAPS)))
        tap.point('sockets that are no program\'s', strangers(part, server, program, folder, path))
        tap.point('files that are not the program\'s', others_files(part, program))
        tap.point('messages that are none, and 20000 of them', messages(part, program))
        tap.point('one user does not take all', crowd(part, program, other))
        tap.point('it keeps nothing of a program', lets_go(part, server, secret))
        tap.point('it ends with the engine', [] if part.close() == 0 else ['exit status'])
        tap.point('signals that end the daemon do not end it', ends(karstd, path, program))
        done = subprocess.run([karstd, '--privileged-part'], stdin=subprocess.DEVNULL, check=False,
                              stderr=subprocess.DEVNULL, timeout=HANG_S)
        tap.point('started by anybody else it ends', [] if done.returncode == 1 else [done.returncode])
        for each in (program, hidden, other):
            each.close()
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
