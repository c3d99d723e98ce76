#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack_service.py: prog_service.py WHAT ADDRESS PORT [NUMBER].  They make the SMC
service wait, believe wrong claims, or run out of room; or they are its other users."""
import codecs
import ctypes
import errno
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

from prog import far_ends, in_call, listener, say
from prog_attack import (BLOCKED, LINE, Memory, OTHERS, PAGE, SOCK_ABI, SOCK_OPEN, SYS_RECVFROM, accepted,
                         as_user, connected, fill)
from prog_attack import server_late  # noqa: F401, by its name

SOCK_HELLO = 1
SOCK_SERVER = 1 # a flag of KARST_SOCK_OPEN
MESSAGE = 300   # size of struct karst_sock_msg
SYS_SENDTO, SYS_SENDMSG, SYS_SETSOCKOPT, SYS_BPF = 44, 46, 54, 321
SYS_USERFAULTFD, UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 323, 0xc018aa3f, 0xc020aa00, 0xc020aa04
SHORT_S = 0.03 # the service waits 0.1 s for a lock
BRIEF_S = 0.01 # and checks it first after 0.02 s
PR_SET_DUMPABLE = 4
LINGER_S = 1000000
SO_ZEROCOPY = 60
BPF_MAP_FREEZE, BPF_ATTR = 22, 128
MOST_RIGHTS = 253 # limit of descriptors in a message
NEAR_NET = '10.94.0.'
NEAR = NEAR_NET + '1'
HANDS_TAKES, HANDS_DIES, HANDS_DROPS, HANDS_STRANGER = range(4)


# --- sockets with wrong claims ---

def ask_service(service, op, fds=(), flags=0):
    """@return the status of the answer, and its descriptors"""
    head = struct.pack('<5I', SOCK_ABI, op, 0, 0, flags)
    service.sendmsg([head + bytes(MESSAGE - len(head))], rights(fds) if fds else [])
    answer, came, _, _ = socket.recv_fds(service, MESSAGE, 4)
    return struct.unpack_from('<i', answer, 12)[0], came


def service_at(path):
    """@return a connection to the service at @path"""
    service = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    service.connect(path)
    return service


def greeted(path):
    """@return (a connection after KARST_SOCK_HELLO, the descriptors of the answer)"""
    service = service_at(path)
    return service, ask_service(service, SOCK_HELLO)[1]


def greeted_alone(path):
    """@return that connection, with the descriptors closed"""
    service, given = greeted(path)
    for fd in given:
        os.close(fd)
    return service


def note(options, sock, want, seen):
    """Writes to the map of the TCP option, of which a program has a descriptor."""
    key, value = ctypes.c_int(sock.fileno()), ctypes.create_string_buffer(bytes([want, seen] + [0] * 6))
    attr = struct.pack('I4xQQQ', options, ctypes.addressof(key), ctypes.addressof(value), 0)
    assert ctypes.CDLL(None).syscall(SYS_BPF, 2, ctypes.create_string_buffer(attr), len(attr)) == 0


def claims(path, _, __):
    """Claims that both sides of the connections of its sockets have sent the option, and hands them
    over."""
    service, (options, *_) = greeted(path)

    def status(sock, claim=True):
        if claim:
            note(options, sock, 1, 1)
        return errno.errorcode.get(-ask_service(service, SOCK_OPEN, [sock.fileno()])[0], 'taken')

    def connection(want, family=socket.AF_INET):
        here = socket.socket(family)
        note(options, here, want, 0)
        here.bind(('127.0.0.1' if family == socket.AF_INET else '::1', 0))
        here.listen(1)
        sock = socket.socket(family)
        note(options, sock, want, 0)
        sock.connect(here.getsockname())
        return sock, here, here.accept()[0]

    plain, other, agreed = connection(0), connection(1), connection(1)
    said = [status(plain[0]), status(plain[1]), status(socket.socketpair()[0]),
            status(socket.socket(type=socket.SOCK_DGRAM))]
    libc = ctypes.CDLL(None)
    libc.connect(other[0].fileno(), struct.pack('16x'), 16)
    said.append(status(other[0]))
    note(options, other[0], 0, 0)
    other[0].connect(plain[1].getsockname())
    said += [status(other[0]), status(agreed[0], False), status(agreed[2], False)]
    for family in socket.AF_INET, socket.AF_INET6:
        ended, _, peer = connection(1, family)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        peer.close() # this is a reset
        said.append(status(ended, False))
        said += [status(sock, False) for sock in connection(1, family)[::2]]
    say('claims', *said)


def freezes(path, _, __):
    """Freezes that map, for all programs."""
    as_user(OTHERS)
    service, (options, *_) = greeted(path)
    attr = ctypes.create_string_buffer(struct.pack('I', options), BPF_ATTR)
    frozen = ctypes.CDLL(None).syscall(SYS_BPF, BPF_MAP_FREEZE, attr, BPF_ATTR) == 0
    say('frozen' if frozen else 'refused')


# --- descriptors whose close waits ---

def lingering(far):
    """@return a TCP socket that has more to send than @far's other end has room for"""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1) # so it stays on TCP
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PAGE)
    sock.connect(far.getsockname())
    fill_lingering(sock)
    return sock


def fill_lingering(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, LINGER_S))
    fill(sock)


def deaf_listener():
    """@return a listener that accepts nothing, and whose connections have little room"""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PAGE)
    sock.bind(('127.0.0.1', 0))
    sock.listen(256)
    return sock


def rights(fds):
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f'{len(fds)}i', *fds))]


def lingers(path, _, n):
    """Hands the service sockets that linger: in requests that it refuses, in bytes that it does not
    read, and more of them than one of its messages may have.  Their sender has ended by then."""
    as_user(OTHERS)
    far = deaf_listener()
    services = []
    for _ in range(n):
        services.append(greeted_alone(path))
    say('begins')
    signal.sigwait([signal.SIGUSR1]) # the service is stopped
    for i in range(n):
        service = services.pop()
        if os.fork() == 0:
            sock = lingering(far)
            given = rights([sock.fileno()] * (1 + i % 3 * 100))
            hello = struct.pack('<3I', SOCK_ABI, SOCK_OPEN, i)
            if i % 2 == 0:
                hello += bytes(MESSAGE - len(hello))
            for _ in range(2):
                service.sendmsg([hello], given)
            os._exit(0)
        service.close()
        os.wait()
    say('sent')
    signal.pause()


def server_accepts(address, port, _):
    sock, _ = listener(address, port).accept()
    sock.recv(1)
    signal.pause()


def client_lingers(address, port, _):
    """Its connection itself lingers, through a descriptor of the TCP socket that it has kept.  So
    does what it has sent into its pair.  It closes all of it."""
    as_user(OTHERS)
    far = deaf_listener()
    sock = socket.socket()
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    sock.connect((address, port))
    select.select([sock], [], [], 0)
    say('begins')
    signal.sigwait([signal.SIGUSR1])
    fill_lingering(kept)
    given = lingering(far)
    send_rights(sock.fileno(), [given.fileno()]) # newer kernels refuse this
    say('sent')
    os._exit(0)


def client_gives(address, port, n, flags=0):
    """Sends up to @n times many descriptors over its end of the pair, as many as there is room
    for."""
    as_user(OTHERS)
    sock = socket.socket()
    sock.connect((address, port)) # and is not accepted: the service gets events of the pair
    room = ctypes.c_int(1 << 20)
    ctypes.CDLL(None).syscall(SYS_SETSOCKOPT, sock.fileno(), socket.SOL_SOCKET, socket.SO_SNDBUF,
                              ctypes.byref(room), 4)
    here = os.open('/', os.O_PATH)
    for _ in range(n):
        error = errno.EAGAIN
        # too many are under way: those that were sent before, until the kernel has closed them
        while error in (errno.EAGAIN, errno.ETOOMANYREFS):
            error = send_rights(sock.fileno(), [here] * MOST_RIGHTS, flags, 1 if flags else PAGE)
        if error:
            break
    say('ended' if error in (errno.EPIPE, errno.ECONNRESET) else error or 'all')


def client_gives_urgent(address, port, n):
    client_gives(address, port, n, socket.MSG_OOB)


def server_deaf(address, port, _):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PAGE)
    sock.bind((address, port))
    sock.listen(1)
    say('ready')
    conn, _ = sock.accept()
    signal.pause()
    conn.close()


def client_leaves_much(address, port, n):
    """Leaves more bytes than the peer's buffers have room for, and fewer than ours have."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * n)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, LINGER_S))
    sock.connect((address, port))
    sock.sendall(bytes(n))
    sock.close()
    say('sent')


def client_burdens(address, port, _):
    """Puts such a socket into the other program's pair, and sends it bytes to read."""
    as_user(OTHERS)
    far = deaf_listener()
    sock = connected(address, port)
    say('begins')
    signal.sigwait([signal.SIGUSR1]) # the attacked program is stopped
    for waker in far_ends():
        if os.fork() == 0:
            given = lingering(far)
            try:
                waker.sendmsg([b'!'], rights([given.fileno()]))
            except PermissionError:
                pass
            os._exit(0)
        os.wait()
    sock.sendall(b'abc')
    say('sent')
    signal.pause()


def client_burdens_itself(address, port, _):
    """Puts such a socket into its own pair, and claims to wait for room, so that the other program
    empties the pair."""
    codecs.lookup('ascii') # for Memory: imports are not possible afterwards
    as_user(OTHERS)
    far = deaf_listener()
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1) # makes its own memory accessible again
    sock = connected(address, port)
    say('begins')
    signal.sigwait([signal.SIGUSR1])
    if os.fork() == 0:
        given = lingering(far)
        send_rights(sock.fileno(), [given.fileno()])
        os._exit(0)
    os.wait()
    memory = Memory(True)
    sock.sendall(b'abc')
    memory.write(2 * LINE * [memory.read(0), memory.read(2 * LINE)].index(4) + BLOCKED, 1, '<I')
    say('sent')
    signal.pause()


def server_burdened(address, port, _):
    """Receives only bytes."""
    sock = accepted(address, port)
    sock.setblocking(False)
    data = b''
    while len(data) < 3:
        select.select([sock], [], [])
        try:
            data += sock.recv(3)
        except BlockingIOError:
            pass
    sock.close()
    say('got', data.decode())


def send_rights(to, fds, flags=0, n=1):
    """Uses the system call, which libkarst-sockets.so does not see.  @return 0 or errno"""
    libc = ctypes.CDLL(None, use_errno=True)
    data = ctypes.create_string_buffer(n)
    iov = struct.pack('PQ', ctypes.addressof(data), n)
    iov = ctypes.create_string_buffer(iov)
    anc = struct.pack(f'Qii{len(fds)}i', 16 + 4 * len(fds), socket.SOL_SOCKET, socket.SCM_RIGHTS, *fds)
    anc = ctypes.create_string_buffer(anc, len(anc) + -len(anc) % 8)
    msg = ctypes.create_string_buffer(struct.pack('PI4xPQPQi4x', 0, 0, ctypes.addressof(iov), 1,
                                                  ctypes.addressof(anc), len(anc), 0))
    rc = libc.syscall(SYS_SENDMSG, to, msg, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL | flags)
    return 0 if rc >= 0 else ctypes.get_errno()


# --- kernel locks that a program holds as long as it likes ---

def page_of_faults():
    """@return a page whose fault is resolved only through its descriptor"""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    fault = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
    at = libc.mmap(None, ctypes.c_size_t(PAGE), mmap.PROT_READ | mmap.PROT_WRITE,
                   mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
    fcntl.ioctl(fault, UFFDIO_API, struct.pack('3Q', 0xaa, 0, 0))
    fcntl.ioctl(fault, UFFDIO_REGISTER, struct.pack('4Q', at, PAGE, 1, 0))
    return fault, at


def never():
    """@return a page whose fault is never resolved: a thread that touches it waits for good"""
    return page_of_faults()[1]


def holds(call, fd, at):
    """Starts a thread that stays in @call, with bytes at @at.
    @return False: the call has returned, because the connection has ended"""
    libc, thread = ctypes.CDLL(None), []

    def enter():
        thread.append(threading.get_native_id())
        libc.syscall(call, fd, ctypes.c_void_p(at), PAGE, socket.MSG_DONTWAIT, None, None)
    libc.prctl(PR_SET_DUMPABLE, 1) # as another user it could not look otherwise
    threading.Thread(target=enter, daemon=True).start()
    while not thread:
        time.sleep(0.001)
    try:
        in_call(thread[0], [call])
    except (FileNotFoundError, ProcessLookupError): # the thread is gone
        return False
    return True


def holds_briefly(address, port, n):
    """The same, for less time than until the service checks whether the lock is held."""
    holds_often(address, port, n, BRIEF_S)


def holds_often(address, port, n, hold_s=SHORT_S):
    """Holds that lock @n times, each for less time than the service waits."""
    libc = ctypes.CDLL(None)
    fault, at = page_of_faults()
    said, soon = os.pipe()
    if os.fork() == 0: # a child, because no thread would run while an option is set
        os.close(soon)
        while os.read(said, 1):
            time.sleep(hold_s)
            fcntl.ioctl(fault, UFFDIO_ZEROPAGE, struct.pack('4Q', at, PAGE, 0, 0))
        os._exit(0)
    as_user(OTHERS)
    server = socket.socket()
    server.bind((address, port))
    server.listen(1)
    sock = socket.socket()
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    sock.connect((address, port))
    for _ in range(n):
        if not holds(SYS_SENDTO, kept.fileno(), at):
            break # the service ended the connection
        os.write(soon, b'!')
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) # as the service does
        except OSError:
            break
        while threading.active_count() > 1:
            time.sleep(0.001)
        libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), mmap.MADV_DONTNEED)
    say('done')


def client_holds(address, port, _):
    """Holds the lock of its TCP socket, through a descriptor that it has kept."""
    at = never()
    as_user(OTHERS)
    sock = socket.socket()
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    sock.connect((address, port))
    assert holds(SYS_SENDTO, kept.fileno(), at)
    say('holds')
    signal.pause()


def server_marks(address, port, _):
    """Sends an urgent byte when it gets a signal, and other bytes after it."""
    sock = accepted(address, port)
    assert sock.recv(1) == b'z'
    sock.send(b'!', socket.MSG_OOB)
    sock.sendall(b'abc')
    signal.pause()


def client_marks(address, port, _):
    """Makes the kernel take urgent bytes out of what is relayed, through a descriptor that it has
    kept."""
    as_user(OTHERS)
    sock = socket.socket()
    kept = os.dup(sock.fileno())
    sock.connect((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'y'
    off = ctypes.byref(ctypes.c_int(0))
    assert ctypes.CDLL(None).syscall(SYS_SETSOCKOPT, kept, socket.SOL_SOCKET, socket.SO_OOBINLINE, off, 4) == 0
    sock.sendall(b'z')
    try:
        say('got', sock.recv(PAGE).decode())
    except OSError as e:
        say(errno.errorcode[e.errno])


def server_full(address, port, user):
    """Has more to send than there is room for, and waits for room.  Runs as @user if given."""
    if user:
        as_user(user)
    sock = accepted(address, port)
    fill(sock)
    waits = select.poll()
    waits.register(sock, select.POLLOUT)
    assert not waits.poll(0)
    say('full')
    waits.poll()
    say('woken')


def client_holds_far(address, port, _):
    """Holds the reader's lock of the other program's pair, of which this program has the far end;
    and ends."""
    at = never()
    as_user(OTHERS)
    sock = connected(address, port)
    say('connected')
    signal.sigwait([signal.SIGUSR1]) # bytes can be read now
    far, = far_ends()
    assert holds(SYS_RECVFROM, far.fileno(), at)
    sock.close()
    say('holds')
    signal.pause()


# --- programs that take all they can get ---

def hog(address, port, n):
    """Makes both ends of @n connections, which have to work, by TCP or SMC-R."""
    as_user(OTHERS)
    server = socket.socket()
    server.bind((address, port))
    server.listen(8)
    kept, works = [], 0
    for _ in range(n):
        client = socket.socket() # without create_connection(): imports are not possible any more
        client.connect((address, port))
        conn, _ = server.accept()
        client.sendall(b'x')
        works += conn.recv(1) == b'x'
        kept += [client, conn]
    say('works', works)
    signal.pause()


def hog_programs(path, _, n):
    """Makes connections to the service as @n programs."""
    as_user(OTHERS)
    kept = []
    for _ in range(n):
        kept.append(service_at(path))
    say('connected')
    signal.pause()


def unread(path, _, n):
    """Asks @n times, and reads the answers when the service has read all requests, or has closed
    the connection."""
    as_user(OTHERS)
    service = service_at(path)
    hello = struct.pack('<3I', SOCK_ABI, SOCK_HELLO, 0)
    said, came = 0, 0
    try:
        for _ in range(n):
            service.send(hello + bytes(MESSAGE - len(hello)))
        gone = select.poll()
        gone.register(service, 0)
        while struct.unpack('i', fcntl.ioctl(service, termios.TIOCOUTQ, bytes(4)))[0] and not gone.poll(1):
            pass
        while True:
            _, fds, _, _ = socket.recv_fds(service, MESSAGE, 4)
            if not fds:
                break
            os.close(fds[0])
            said += 1
            service.settimeout(None if said < n else 0)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except BlockingIOError:
        came = 1
    say('all' if came else 'few' if said < n // 2 else said)


# --- programs that fill the log ---

def agreed_pair(options, address):
    """@return both ends of a TCP connection whose two sides have sent the option"""
    with socket.socket() as here:
        sock = socket.socket()
        for one in here, sock:
            note(options, one, 1, 0)
        here.bind((address, 0))
        here.listen(1)
        sock.connect(here.getsockname())
        return sock, here.accept()[0]


def scribbles_often(path, _, n):
    """Claims in the rings of @n connections, one after another, that it has written more than a
    ring can have."""
    as_user(OTHERS)
    service, (options, *_) = greeted(path)
    for _ in range(n):
        sock, peer = agreed_pair(options, '127.0.0.1')
        status, came = ask_service(service, SOCK_OPEN, [sock.fileno()])
        assert status == 0 and len(came) == 3
        end, rings = socket.socket(fileno=came[0]), came[2]
        with mmap.mmap(rings, 0) as memory: # the positions are in its middle
            struct.pack_into('<Q', memory, (len(memory) - PAGE) // 2 + PAGE // 2, 1 << 40)
        end.setblocking(True)
        try:
            end.send(b'!') # makes the service check
            assert end.recv(1) == b''
        except ConnectionError: # the service has ended it
            pass
        for one in sock, peer, end:
            one.close()
        for fd in came[1:]:
            os.close(fd)
    say('done')


# --- peers that cannot be reached ---

CLC_MARK = b'\xe2\xd4\xc3\xd9'
CLC_ACCEPT, CLC_FIRST, CLC_FIRST_BYTES = 2, 104, 52


def accept_from(gid, proposal):
    """@return the Accept of a first contact, version 2, for @proposal, from a peer whose address is
    @gid"""
    at = 52 + struct.unpack_from('!H', proposal, 50)[0]
    release, conns, links = proposal[at + 3] >> 4, proposal[at + 24], proposal[at + 25]
    who = b'\1\2' + b'\2\0\0\0\0\1' + gid + b'\2\0\0\0\0\1'
    body = who + struct.pack('!3sIBIBxQx3s', b'\0\0\x11', 1, 1, 1, 0x41, 0, b'\0\0\1')
    body += proposal[at + 40:at + 72] + bytes(8) # its EID
    body += struct.pack('!BB34xBB', 0, release, conns, links)
    body = body.ljust(CLC_FIRST + CLC_FIRST_BYTES - 8, b'\0')
    head = CLC_MARK + struct.pack('!BHB', CLC_ACCEPT, 8 + len(body) + 4, 2 << 4 | 8)
    return head + body + CLC_MARK


def name_nobody(path, address, nobody):
    """Is both ends of a connection, and as its server claims to have the address @nobody."""
    service, (options, *_) = greeted(path)
    gid = bytes(10) + b'\xff\xff' + socket.inet_aton(nobody)
    while True:
        sock, peer = agreed_pair(options, address)
        status, came = ask_service(service, SOCK_OPEN, [sock.fileno()])
        assert status == 0
        sock.close()
        with peer:
            peer.sendall(accept_from(gid, peer.recv(PAGE)))
            os.write(1, b'named\n') # unbuffered: there are several processes
            peer.recv(PAGE) # a Decline is expected
        for fd in came:
            os.close(fd)


def names_nobody(path, _, n):
    """Runs @n of these at once, repeatedly, with addresses beside the daemon's that no system
    has."""
    as_user(OTHERS)
    for i in range(n):
        if os.fork() == 0:
            name_nobody(path, NEAR, f'{NEAR_NET}{100 + i}')
    signal.pause()


def open_agreed(path, address, flags=0, before=b''):
    """Makes a connection that the service has, and whose peer is played by this program.  @return
    (its peer's end, the program's end, its page).  When the service gets it, the peer has sent
    @before, and sends nothing more."""
    service, (options, *_) = greeted(path)
    sock, peer = agreed_pair(options, address)
    if before:
        peer.sendall(before)
        peer.shutdown(socket.SHUT_WR)
    status, came = ask_service(service, SOCK_OPEN, [sock.fileno()], flags)
    assert status == 0
    sock.close()
    end = socket.socket(fileno=came[0])
    end.setblocking(True)
    return peer, end, mmap.mmap(came[1], 0)


def ends_behind_proposal(path, _, __):
    """A client that sends its first CLC message, and ends.  Prints the error that the server's
    program gets."""
    peer, *_ = open_agreed(path, '127.0.0.1')
    proposal = peer.recv(PAGE)
    peer, end, page = open_agreed(path, '127.0.0.1', SOCK_SERVER, proposal)
    answer = peer.recv(PAGE)
    assert answer[:5] == CLC_MARK + bytes([CLC_ACCEPT]), answer
    assert end.recv(1) == b''
    say(errno.errorcode[struct.unpack_from('<i', page, 8)[0]]) # error in struct karst_sock_page


# --- programs that listen repeatedly ---

LISTENS_FROM = 33000 # ports


def listens(path, _, n):
    """Listens on @n ports, one after another."""
    as_user(OTHERS)
    service, (options, *_) = greeted(path)
    said = 0
    for i in range(n):
        with socket.socket() as sock:
            note(options, sock, 1, 0)
            try:
                sock.bind(('127.0.0.1', LISTENS_FROM + i))
                sock.listen(1)
                said += 1
            except OSError: # another program has this port
                pass
    say('listened' if said > n // 2 else said)


def server_hello(address, port, twice):
    """Sends first, to two clients; if @twice is set, another socket has listened on its port
    meanwhile."""
    sock = socket.create_server((address, port), reuse_port=True)
    if twice:
        socket.create_server((address, port), reuse_port=True).close()
    say('ready')
    for _ in range(2):
        conn, _ = sock.accept()
        conn.sendall(b'hello')
        said = conn.recv(1)
    say('got', said.decode())


def client_hello(address, port, _):
    for _ in range(2):
        with socket.create_connection((address, port)) as sock:
            data = sock.recv(5, socket.MSG_WAITALL)
            sock.sendall(b'x')
    say('got', data.decode())


# --- connections that are passed in a message ---

def answer_all(sock, name):
    while sock.recv(1):
        sock.sendall(name)
    sock.close()


def server_hands(address, port, how):
    """Passes a connection on and closes it; the receiver takes it when another connection has been
    used.  @how: the receiver is a child, a child that ends at once, no process, or a process that
    does not know of SMC-R."""
    here = listener(address, port)
    ours, theirs = socket.socketpair()
    soon, go = os.pipe()
    child = os.fork()
    if child == 0:
        here.close()
        ours.close()
        assert os.read(soon, 1) == b'!'
        fd = socket.recv_fds(theirs, 1, 1)[1][0] if how != HANDS_DROPS else -1
        if how == HANDS_TAKES:
            answer_all(socket.socket(fileno=fd), b'1')
        elif how == HANDS_STRANGER:
            plain = {k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}
            os.set_inheritable(fd, True)
            os.execve('/bin/sh', ['sh', '-c', f'echo {"z" * PAGE} >&{fd}'], plain)
        os._exit(0)
    conn, _ = here.accept()
    assert conn.recv(1) == b'a'
    conn.sendall(b'1')
    theirs.close()
    socket.send_fds(ours, [b'x'], [conn.fileno()])
    conn.close()
    second, _ = here.accept() # its memory differs from the first connection's
    assert second.recv(1) == b'b'
    second.sendall(b'2')
    os.write(go, b'!')
    answer_all(second, b'2')
    os.waitpid(child, 0)
    say('done')


def client_handed(address, port, how):
    first = socket.create_connection((address, port))
    first.sendall(b'a')
    said = first.recv(1)
    second = socket.create_connection((address, port))
    second.sendall(b'b')
    said += second.recv(1)
    try:
        for _ in range(3):
            if how == HANDS_TAKES:
                first.sendall(b'a')
            said += first.recv(1) or b'.'
    except OSError as e:
        said += errno.errorcode[e.errno].encode()
    second.sendall(b'b')
    said += second.recv(1)
    say('said', said.decode())


# --- peers that decline ---

def server_answers(address, port, n):
    sock = listener(address, port)
    for _ in range(n):
        conn, _ = sock.accept()
        assert conn.recv(1) == b'x'
        conn.sendall(b'y')
        conn.recv(1)
        conn.close()


def client_twice(address, port, user):
    as_user(user)
    for _ in range(2):
        sock = socket.socket()
        sock.connect((address, port))
        sock.sendall(b'x')
        assert sock.recv(1) == b'y'
        sock.close()
    say('twice')


if __name__ == '__main__':
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int((sys.argv + ['0'])[4]))
