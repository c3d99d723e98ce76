#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The TCP programs of attack.py: prog_attack.py WHAT ADDRESS PORT [NUMBER].  The attackers know the
contents of lib/sock/karst_sock.h; the attacked programs do not know of SMC-R."""
import codecs
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

from prog import CHUNK, far_ends, in_call, listener, receive, say, told_by_kernel
from prog_urgent import URGENT, got, mark

MARK = 16       # offset in a direction: position after the last urgent byte
NEAR = 2048     # KARST_SOCK_NEAR
LINE = 64       # a direction is two of these: the writer's, the reader's
SLEEPERS = 256  # offset in the page: number of sleepers
TX_HEAD = 200   # and the position of the writer
RX_TAIL = 144   # and of the reader
BLOCKED = 8     # offset in a direction: the writer waits for room
EARLY = 704     # offset in the page: early, about bytes that are written before there are rings
EARLY_CLOSED, EARLY_READY, EARLY_LEN = 1 << 30, 1 << 31, 0xffff
EARLY_RINGS, EARLY_BYTES = EARLY + LINE, EARLY + 5 * LINE # used in place of the rings, and the bytes
URGENT_END, URGENT_IS, URGENT_VALID = 160, 168, 1 # and the state of an urgent byte
RINGS = 16      # and the number of the rings, in the page
PAGE = 4096
PIECE = 1000
SOCK_ABI, SOCK_OPEN = 14, 2
KEPT = 12       # connections: the memory of some of them is reused at once
SYS_WRITE, SYS_CLOSE, SYS_POLL, SYS_RECVFROM = 1, 3, 7, 45
PR_SET_PDEATHSIG = 1
LATER_S = 0.5     # later than CLC begins, for which the service waits 0.1 s
OTHERS = 65533  # a user
MADV_REMOVE, F_ADD_SEALS, F_SEAL_FUTURE_WRITE = 9, 1033, 16


def as_user(number):
    for name in 'idna', 'ascii': # for an address, for a file: imports are not possible afterwards
        codecs.lookup(name)
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)


def connected(address, port):
    """@return a connection whose two ends have met"""
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'y'
    select.select([sock], [], [], 0)
    return sock


def accepted(address, port):
    sock, _ = listener(address, port).accept()
    assert sock.recv(1) == b'x'
    sock.sendall(b'y')
    return sock


def smc_maps():
    """@return (first address, end address) of each mapping of connections"""
    with open('/proc/self/maps', encoding='ascii') as f:
        return [tuple(int(n, 16) for n in line.split()[0].split('-')) for line in f
                if 'memfd:karst-smc' in line]


class Memory:
    """A mapping of a connection: its page, or its rings."""

    def __init__(self, rings):
        self.at, self.bytes = [(start, end - start) for start, end in smc_maps()
                               if (end - start > PAGE) == rings][0]
        self.buffer = (self.bytes - PAGE) // 2
        if rings: # ring 0 is before the positions, ring 1 after them
            self.at += NEAR + self.buffer
        self.fd = os.open('/proc/self/mem', os.O_RDWR)

    def read(self, at, what='<Q'):
        return struct.unpack(what, os.pread(self.fd, struct.calcsize(what), self.at + at))[0]

    def write(self, at, value, what='<Q'):
        os.pwrite(self.fd, struct.pack(what, value), self.at + at)


    def fill(self, direction, at, data):
        """Writes @data into the ring of a direction, from position @at on, which is near the
        beginning."""
        os.pwrite(self.fd, data, self.at + at + (4 * LINE if direction else -NEAR))


def fill(sock):
    """Sends until there is no room."""
    sock.setblocking(False)
    try:
        while True:
            sock.send(bytes(CHUNK))
    except BlockingIOError:
        pass


def lines(ours, theirs):
    """@return the direction into which this program writes and the other one, which are recognized
    by how many bytes went through each"""
    memory = Memory(True)
    heads = [memory.read(0), memory.read(2 * LINE)]
    assert ours != theirs and sorted(heads) == sorted([ours, theirs]), heads
    return memory, 2 * LINE * heads.index(ours), 2 * LINE * heads.index(theirs)


# --- urgent data ---

def server_urgent(address, port, _):
    sock = accepted(address, port)
    seen = []
    for most in 3, 3, 3, 4:
        sock.sendall(b'k')
        seen += [sock.recv(most, socket.MSG_WAITALL), got(sock, URGENT), mark(sock)]
    sock.sendall(b'k')
    seen.append(sock.recv(4, socket.MSG_WAITALL))
    say(*[s.decode() if isinstance(s, bytes) else s for s in seen])


def client_marks(address, port, _):
    """Sets marks beyond the written bytes, where all has been read, where there is a byte, and
    there again."""
    sock = connected(address, port)
    assert sock.recv(1) == b'k'
    memory, ours, _ = lines(1, 2)
    memory.fill(ours // (2 * LINE), 7, b'ghi') # the bytes before a mark exist
    for marked, data in (1 << 63, b'abc'), (2, b'def'), (9, b'ghi'), (9, b'jkl'):
        memory.write(ours + MARK, marked)
        sock.sendall(data)
        assert sock.recv(1) == b'k'
    sock.sendall(b'end.')
    signal.pause()


# --- the far end of the other program's pair ---

def server_receives(address, port, _):
    sock = accepted(address, port)
    data, how = receive(sock)
    try:
        sock.send(b'x')
        sent = 'sent'
    except OSError as e:
        sent = type(e).__name__
    say('got', len(data), how, sent)


def client_sends(address, port, _):
    sock = connected(address, port)
    say('connected')
    signal.sigwait([signal.SIGUSR1])
    sock.sendall(bytes(PIECE))


def client_shuts(address, port, how):
    """Acts as if the program at the other side had closed."""
    sock = connected(address, port)
    sock.sendall(bytes(PIECE))
    far_ends()[0].shutdown(how)
    signal.pause()


def server_quiet(address, port, _):
    """Waits until select() no longer reports bytes that do not exist."""
    sock = accepted(address, port)
    sock.setblocking(False)
    select.select([sock], [], [], 0)
    say('accepted')
    told_by_kernel(sock)
    rounds = 0
    while rounds < 100 and select.select([sock], [], [], 0)[0]:
        rounds += 1
        try:
            sock.recv(1)
        except BlockingIOError:
            pass
    say('quiet' if rounds < 100 else 'restless')


def client_urgent(address, port, _):
    sock = connected(address, port)
    signal.sigwait([signal.SIGUSR1]) # the other program waits for this one
    far_ends()[0].send(b'!', socket.MSG_OOB)
    signal.pause()


def server_leaves(address, port, _):
    sock = listener(address, port)
    for _ in range(KEPT):
        conn, _ = sock.accept()
        assert conn.recv(1) == b'x'
        conn.sendall(b'y')
        assert conn.recv(1) == b'x'
        conn.close()


def server_never_accepts(address, port, late):
    """Ends as soon as a client waits for it, or with @late, when the SMC-R negotiation is over."""
    sock = listener(address, port)
    select.select([sock], [], [])
    if late:
        time.sleep(LATER_S)
    os._exit(0) # otherwise Python takes so long that CLC may begin


def client_is_reset(address, port, _):
    sock = socket.create_connection((address, port))
    say('connected')
    try:
        say('got', sock.recv(1))
    except ConnectionResetError:
        say('reset')


def client_keeps(address, port, _):
    """Uses far ends of pairs that are closed."""
    kept = []
    for _ in range(KEPT):
        kept.append(connected(address, port))
        kept[-1].sendall(b'x')
        assert kept[-1].recv(1) == b''
    say('keeps')
    signal.sigwait([signal.SIGUSR1])
    for waker in far_ends():
        waker.shutdown(socket.SHUT_RDWR)
    say('shut')
    signal.pause()


# --- positions ---

def server_reads_on(address, port, _):
    sock = accepted(address, port)
    count = len(sock.recv(PIECE, socket.MSG_WAITALL))
    sock.sendall(b'z')
    data, how = receive(sock)
    say('got', count + len(data), how)


def client_repeats(address, port, _):
    """Claims that bytes which the other program has read are still to be read."""
    sock = connected(address, port)
    sock.sendall(bytes(PIECE))
    assert sock.recv(1) == b'z'
    memory, ours, _ = lines(1 + PIECE, 2)
    memory.write(ours + LINE, 1 + PIECE // 2)
    sock.sendall(b'z')


def server_writes_on(address, port, _):
    sock = accepted(address, port)
    for _ in range(2): # before the second it sees that the first has been read
        sock.sendall(bytes(PIECE))
        assert sock.recv(1) == b'z'
    try:
        sock.sendall(b'z')
        say('sent')
    except OSError as e:
        say('ended', type(e).__name__)


def client_takes_back(address, port, _):
    """Claims that it has not read what it has read."""
    sock = connected(address, port)
    assert len(sock.recv(PIECE, socket.MSG_WAITALL)) == PIECE
    sock.sendall(b'z')
    assert len(sock.recv(PIECE, socket.MSG_WAITALL)) == PIECE
    memory, _, theirs = lines(2, 1 + 2 * PIECE)
    memory.write(theirs + LINE, PIECE)
    sock.sendall(b'z')
    signal.pause()


def server_fills(address, port, _):
    sock = accepted(address, port)
    fill(sock)
    say('full')
    try:
        while True:
            select.select([], [sock], [])
            sock.send(b'z')
    except OSError as e:
        say('ended', type(e).__name__)


def client_takes_all(address, port, _):
    """Claims that it has read all, but does not notify the writer, which waits for that."""
    sock = connected(address, port)
    signal.sigwait([signal.SIGUSR1])
    memory, page = Memory(True), Memory(False)
    heads = [memory.read(0), memory.read(2 * LINE)]
    theirs = 2 * LINE * heads.index(max(heads))
    memory.write(theirs + LINE, max(heads))
    page.write(RX_TAIL, max(heads))
    memory.write(theirs + BLOCKED, 0, '<I')
    sock.close()
    say('closed')
    signal.pause()


def server_splices(address, port, _):
    """Splices into a full pipe, so that it has to wait between the check and the read."""
    sock = accepted(address, port)
    libc = ctypes.CDLL(None, use_errno=True)
    out, into = os.pipe()
    full = os.write(into, bytes(65536))
    said = []

    def splice():
        said.append(threading.get_native_id())
        got = libc.splice(sock.fileno(), None, into, None, ctypes.c_size_t(PIECE), 0)
        os.close(into)
        said.append(got)
    thread = threading.Thread(target=splice)
    thread.start()
    while not said:
        time.sleep(0.001)
    in_call(said[0], [SYS_WRITE, SYS_POLL])
    say('waits')
    signal.sigwait([signal.SIGUSR1])
    count = 0
    while piece := os.read(out, CHUNK):
        count += len(piece)
    thread.join()
    data, how = receive(sock)
    say('spliced', said[1], count - full, len(data), how)


def client_shortens(address, port, _):
    """Takes back what it has sent, when it gets a signal."""
    sock = connected(address, port)
    sock.sendall(bytes(PIECE))
    say('sent')
    signal.sigwait([signal.SIGUSR1])
    memory, ours, _ = lines(1 + PIECE, 1)
    memory.write(ours, 1 + PIECE // 2)
    say('shortened')
    signal.pause()


def client_takes_away(address, port, _):
    """Tries to make the files of its connection shorter, longer, or read-only for all; and removes
    all pages from them."""
    sock = connected(address, port)
    libc = ctypes.CDLL(None, use_errno=True)
    errors, removed = set(), 0
    for start, end in smc_maps():
        fd = os.open(f'/proc/self/map_files/{start:x}-{end:x}', os.O_RDWR)
        for change in (lambda fd: os.ftruncate(fd, 0), lambda fd: os.ftruncate(fd, 1 << 24),
                       lambda fd: fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)):
            try:
                change(fd)
                errors.add('done')
            except OSError as e:
                errors.add(errno.errorcode[e.errno])
        removed += libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_REMOVE) == 0
    say(*sorted(errors), 'removed' if removed > 1 else 'kept')
    try:
        sock.sendall(bytes(PIECE))
    except OSError:
        pass # the service may have noticed
    signal.pause()


# --- threads that sleep ---

def server_sleepers(address, port, _):
    """Two processes wait for bytes of a connection; one of them is killed."""
    sock = accepted(address, port)
    child = os.fork()
    if child == 0:
        sock.recv(1)
        os._exit(0)
    memory = Memory(False)
    while memory.read(SLEEPERS, '<I') != 1:
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.wait()
    for _ in range(2):
        sock.sendall(b'y')
        assert sock.recv(1) == b'x'
    say('sleepers', memory.read(SLEEPERS, '<I'))


def client_answers(address, port, _):
    sock = connected(address, port)
    while sock.recv(1):
        sock.sendall(b'x')


def sleeps(process, calls):
    """@return whether @process is in one of these calls"""
    with open(f'/proc/{process}/syscall', encoding='ascii') as f:
        return f.read().split()[0] in map(str, calls)


def server_dies(address, port, _):
    """A process is killed while it holds the reader's lock: it waits for room in a pipe."""
    sock = accepted(address, port)
    libc = ctypes.CDLL(None, use_errno=True)
    _, into = os.pipe()
    os.write(into, bytes(65536))
    child = os.fork()
    if child == 0:
        libc.splice(sock.fileno(), None, into, None, ctypes.c_size_t(PIECE), 0)
        os._exit(0)
    while not sleeps(child, [SYS_WRITE, SYS_POLL]):
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.wait()
    data, how = receive(sock)
    say('got', len(data), how)


def client_pieces(address, port, _):
    sock = connected(address, port)
    sock.sendall(bytes(PIECE))


# --- processes that share a connection, and nothing else ---

def writable():
    """@return writable ranges of this process's memory"""
    with open('/proc/self/maps', encoding='ascii') as f:
        return [[int(n, 16) for n in line.split()[0].split('-')] for line in f
                if line.split()[1].startswith('rw') and 'memfd:karst-smc' not in line]


def server_shares(address, port, _):
    """A child, which has become another user, writes addresses of its choice wherever the page has
    any."""
    sock = accepted(address, port)
    ours = ctypes.create_string_buffer(PAGE)
    middle = ctypes.addressof(ours) + PAGE // 2
    page, parent = Memory(False).at, os.getpid()
    child = os.fork()
    if child == 0:
        while not sleeps(parent, [SYS_RECVFROM]):
            time.sleep(0.001)
        spans = writable()
        as_user(OTHERS)
        words = (ctypes.c_uint64 * (PAGE // 8)).from_address(page)
        found = [i for i, word in enumerate(words) if any(a <= word < b for a, b in spans)]
        for i in found:
            words[i] = middle + 64 * (i % 2)
        sock.sendall(b'g')
        os._exit(len(found))
    assert sock.recv(1) == b'x'
    found = os.waitstatus_to_exitcode(os.wait()[1])
    say('addresses', found, 'changed' if any(ours.raw) else 'same')


def client_once(address, port, _):
    sock = connected(address, port)
    assert sock.recv(1) == b'g'
    sock.sendall(b'x')
    sock.recv(1)


# --- kept pages ---

def pages():
    """@return the control pages that this process has mapped"""
    with open('/proc/self/maps', encoding='ascii') as f:
        spans = [[int(n, 16) for n in line.split()[0].split('-')] for line in f
                 if 'memfd:karst-smc' in line]
    return sum(end - start == PAGE for start, end in spans)


def server_echoes(address, port, _):
    """Echoes on each connection until it ends, on all at once; prints how many pages there are at
    the end of one."""
    sock = listener(address, port)

    def echo(conn):
        while data := conn.recv(1):
            conn.sendall(data)
        conn.close()
        say('pages', pages())
    while True:
        threading.Thread(target=echo, args=[sock.accept()[0]], daemon=True).start()


def client_again(address, port, n):
    """Makes @n connections, one after another."""
    for _ in range(n):
        sock = connected_to_echo(address, port)
        sock.close()
    say('pages', pages())


def connected_to_echo(address, port):
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'x'
    return sock


def service():
    """@return the connection to the service that libkarst-sockets.so has made"""
    for number in os.listdir('/proc/self/fd'):
        try:
            sock = socket.fromfd(int(number), socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if str(sock.getpeername()).endswith('.sock.smc'):
                return sock
        except OSError:
            pass
    raise AssertionError('none')


def client_lies(address, port, _):
    """Claims that pages are free that it uses, or that do not exist."""
    socks = [connected_to_echo(address, port)]
    pipe = os.pipe()
    with service() as sock:
        for first in range(0, 320, 64):
            numbers = [*range(first, first + 63), 0xffffffff]
            msg = struct.pack('<3IiII2i3I64I', SOCK_ABI, SOCK_OPEN, first, 0, 0, 0, 0, 0, 256, 0, 0,
                              *numbers)
            socket.send_fds(sock, [msg], [pipe[0]])
            assert struct.unpack('<3Ii', sock.recv(1000)[:16])[2:] == (first, -errno.ENOTSOCK)
    for i in range(3):
        socks.append(connected_to_echo(address, port))
        for byte in b'abc':
            for sock in socks:
                sock.sendall(bytes([byte + i]))
            for sock in socks:
                assert sock.recv(1) == bytes([byte + i])
    say('pages', pages())


# --- kept rings ---

def ring_files():
    """@return the files of rings that this process has mapped"""
    with open('/proc/self/maps', encoding='ascii') as f:
        rows = [line.split() for line in f if 'memfd:karst-smc' in line]
    spans = [(row[4], [int(n, 16) for n in row[0].split('-')]) for row in rows]
    return {inode for inode, (start, end) in spans if end - start > PAGE}


def client_rounds(address, port, n):
    """Makes @n connections, one after another, each with other bytes, and nothing more; prints
    which files of rings it has had."""
    files = set()
    for i in range(n):
        data = bytes((i + k) % 251 for k in range(1 + 7 * i))
        with socket.create_connection((address, port)) as sock:
            sock.sendall(data)
            assert sock.recv(len(data), socket.MSG_WAITALL) == data
            files |= ring_files()
            try:
                say('more', sock.recv(1, socket.MSG_DONTWAIT))
            except BlockingIOError:
                pass
    several = [connected_to_echo(address, port) for _ in range(KEPT)]
    for sock in several: # some of these are free when it reports them with the next ones
        sock.close()
    several = [connected_to_echo(address, port) for _ in range(2)]
    say('done', *(files | ring_files()))
    signal.pause()


def client_moves(address, port, other):
    """Connects to another server when the first one is gone."""
    for each in port, other:
        for i in range(KEPT):
            with socket.create_connection((address, each)) as sock:
                sock.sendall(b'x' * i + b'!')
                assert sock.recv(i + 1, socket.MSG_WAITALL) == b'x' * i + b'!'
        say('done')
        signal.sigwait([signal.SIGUSR1])


def client_much(address, port, _):
    data = os.urandom(5000)
    with socket.create_connection((address, port)) as sock:
        sock.sendall(data)
        assert sock.recv(len(data), socket.MSG_WAITALL) == data
    say('done', *ring_files())
    signal.pause()


def client_forks(address, port, _):
    """A child has the memory of the first connection; later connections must not get it."""
    sock = connected_to_echo(address, port)
    child = os.fork()
    if child == 0: # it closes without libkarst-sockets.so noticing
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        ctypes.CDLL(None).syscall(SYS_CLOSE, sock.fileno())
        signal.pause()
        os._exit(0)
    sock.sendall(b'y')
    assert sock.recv(1) == b'y'
    say('forked', *ring_files())
    sock.close()
    signal.sigwait([signal.SIGUSR1])
    client_rounds(address, port, KEPT)


# --- before there are rings ---

def server_late(address, port, _):
    """Accepts when it gets a signal; prints when the first bytes have come, and what came in
    total."""
    sock = listener(address, port)
    signal.sigwait([signal.SIGUSR1])
    conn, _ = sock.accept()
    first = conn.recv(5)
    say('accepted')
    data, how = receive(conn)
    say('got', (first + data)[:11].decode(), len(first + data), how)


def client_dies(address, port, _):
    socket.create_connection((address, port)).sendall(b'hello')
    say('early')
    signal.sigwait([signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGKILL)


def client_died(address, port, _):
    """Acts as if a thread or a child had been killed before it recorded what it had written."""
    with socket.create_connection((address, port)) as sock:
        sock.sendall(b'hello')
        Memory(False).write(TX_HEAD, 0)
        say('early')
        signal.sigwait([signal.SIGUSR1])
        sock.sendall(b' world')


def client_fills(address, port, _):
    """Writes more than there is room for before there are rings."""
    with socket.create_connection((address, port)) as sock:
        for data in b'hello', b' world', bytes(1000), bytes(100), bytes(5000):
            sock.sendall(data)
        say('early')
        signal.sigwait([signal.SIGUSR1])
        sock.sendall(b'.')


def client_overstates(address, port, _):
    """Claims to have written more bytes than there is room for."""
    sock = socket.create_connection((address, port))
    sock.sendall(b'hello')
    Memory(False).write(EARLY, EARLY_LEN, '<I')
    say('early')
    signal.sigwait([signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGKILL)


def client_closes_early(address, port, _):
    """Does what only the service does: claims that there are rings."""
    sock = socket.create_connection((address, port))
    Memory(False).write(EARLY, EARLY_CLOSED | EARLY_READY, '<I')
    sock.sendall(b'hello')
    say('early')
    signal.sigwait([signal.SIGUSR1])
    sock.sendall(b' world')


def by_child(page, at, value, what='<I'):
    """A child, which has become another user, writes into the page."""
    if os.fork() == 0:
        as_user(OTHERS)
        struct.pack_into(what, (ctypes.c_char * PAGE).from_address(page), at, value)
        os._exit(0)
    os.wait()


def client_child_overstates(address, port, _):
    """A child claims that so much was written that the next bytes would be after the page."""
    sock, data = socket.create_connection((address, port)), b'overrun'
    page = Memory(False).at
    by_child(page, EARLY, 2 * PAGE)
    try:
        sock.sendall(data)
    except OSError:
        pass
    fd = os.open('/proc/self/mem', os.O_RDONLY)
    try:
        behind = os.pread(fd, len(data), page + EARLY_BYTES + 2 * PAGE)
    except OSError: # there are no bytes
        behind = b''
    say('written' if behind == data else 'not')


def client_child_offers(address, port, _):
    """A child claims that there are bytes to read."""
    sock = socket.create_connection((address, port))
    by_child(Memory(False).at, EARLY_RINGS + 2 * LINE, 2 * PAGE, '<Q')
    sock.setblocking(False)
    try:
        say('read', len(sock.recv(2 * PAGE)))
    except BlockingIOError:
        say('not')


def client_child_crosses(address, port, _):
    """A child claims that its rings are those that its parent has kept from another connection."""
    with socket.create_connection((address, port)) as sock:
        page = Memory(False).at
        here = listener('127.0.0.1', 0, quiet=True)
        own = socket.create_connection(here.getsockname())
        other, _ = here.accept()
        for a, b in (own, other), (other, own):
            a.sendall(b'z')
            assert b.recv(1) == b'z'
        own.close()
        other.close()
        assert ring_files()
        by_child(page, RINGS, 1)
        by_child(page, EARLY, EARLY_CLOSED | EARLY_READY)
        sock.sendall(b'hello')
        say('early')
        signal.sigwait([signal.SIGUSR1])
        sock.sendall(b' world')


def client_child_counts(address, port, _):
    """A child claims that there are more bytes before an urgent byte than a ring can have, and more
    bytes in the ring."""
    sock = connected_to_echo(address, port)
    page, much = Memory(False).at, 8 * Memory(True).buffer
    by_child(page, URGENT_END, 2 * much, '<Q')
    by_child(page, URGENT_IS, URGENT_VALID)
    sock.setblocking(False)
    try:
        say('read', len(sock.recv(much)))
    except BlockingIOError:
        say('not read')
    by_child(page, TX_HEAD, much, '<Q')
    try:
        say('written', sock.send(bytes(much)))
    except OSError:
        say('not written')


def server_resets(address, port, _):
    """Resets before the other program has polled."""
    sock = listener(address, port)
    conn, _ = sock.accept()
    conn.sendall(b'hello')
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    conn.close()
    say('reset')


def client_looks(address, port, _):
    sock = socket.create_connection((address, port))
    say('connected')
    signal.sigwait([signal.SIGUSR1])
    data, how = receive(sock)
    say('got', data.decode(), how)


# --- old addresses ---

def server_second(address, port, _):
    """A client that is gone before it was accepted cannot communicate; the next one can."""
    sock = listener(address, port)
    signal.sigwait([signal.SIGUSR1])
    for _ in range(2):
        conn, peer = sock.accept()
        data, how = receive(conn)
        say('from', peer[1], data.decode(), how)
        conn.close()


def client_leaves(address, port, elsewhere):
    """Connects, and connects again through a descriptor of the TCP socket that it has kept: its
    addresses belong to another connection by then."""
    sock = socket.socket()
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    sock.connect((address, port))
    say(sock.getsockname()[1])
    sock.sendall(b'false')
    signal.sigwait([signal.SIGUSR1])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.connect(kept.fileno(), struct.pack('16x'), 16)
    assert kept.connect_ex((address, elsewhere)) == 0
    say('elsewhere')
    signal.pause()


def client_follows(address, port, own):
    """Connects with the addresses that another program had before."""
    known = socket.create_server((address, 0)) # the service knows this program from here on
    say('ready')
    signal.sigwait([signal.SIGUSR1])
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, own))
    sock.setblocking(False)
    sock.connect_ex((address, port))
    say('connects')
    signal.sigwait([signal.SIGUSR1])
    select.select([], [sock], [])
    sock.setblocking(True)
    sock.sendall(b'true')
    known.close()


if __name__ == '__main__':
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int((sys.argv + ['0'])[4]))
