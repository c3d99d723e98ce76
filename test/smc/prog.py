#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The TCP programs of smc.py; none of them knows of SMC-R.  prog.py WHAT ADDRESS PORT [BYTES]

A server prints "ready" when it listens.  A receiver prints how many bytes came and their digest.
"""
import ctypes
import errno
import fcntl
import hashlib
import os
import random
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

ASKS = 200 # queries of the service: enough that what is checked only once in a while is checked
CHUNK = 65536
# numbers of x86_64, for in_call(); a thread of Python waits for another one in the last
SYS_POLL, SYS_SELECT, SYS_RECVFROM, SYS_RECVMSG, SYS_FUTEX = 7, 23, 45, 47, 202
SYS_PSELECT, SYS_PPOLL, SYS_ACCEPT4 = 270, 271, 288


def say(*words):
    print(*words, flush=True)


def pattern(n):
    return random.Random(4711).randbytes(n)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def listener(address, port, quiet=False):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen(8)
    if not quiet:
        say('ready')
    return sock


def receive(sock):
    """@return all bytes until the end, and what ended the stream"""
    data = b''
    try:
        while True:
            piece = sock.recv(CHUNK)
            if not piece:
                return data, 'end'
            data += piece
    except OSError as e:
        return data, type(e).__name__


def in_call(thread, calls):
    """Waits until @thread sleeps in one of @calls."""
    number = None
    while number not in calls:
        with open(f'/proc/self/task/{thread}/syscall', encoding='ascii') as f:
            number = f.read().split()[0]
        number = int(number) if number.isdigit() else None
        time.sleep(0.001)


def server_echo(address, port, _):
    sock, peer = listener(address, port).accept()
    assert peer == sock.getpeername() and sock.getsockname()[1] == port
    data = b''
    while True:
        piece = sock.recv(CHUNK)
        if not piece:
            break
        data += piece
        sock.sendall(piece)
    say('got', len(data), digest(data))


def echo_all(sock):
    data = b''
    while piece := sock.recv(CHUNK):
        data += piece
        sock.sendall(piece)
    say('got', len(data), digest(data))


def server_closed(address, port, _):
    """A thread that is in accept() when the socket is closed accepts one more connection."""
    sock, began = listener(address, port, quiet=True), []

    def accept():
        began.append(threading.get_native_id())
        echo_all(sock.accept()[0])

    thread = threading.Thread(target=accept)
    thread.start()
    while not began:
        time.sleep(0.001)
    in_call(began[0], [SYS_ACCEPT4])
    os.close(sock.fileno())
    say('ready')
    thread.join()
    sock.detach()


def passed(address, port):
    """@return our end of a pair by which another process, which ends, has sent a listening
    socket"""
    near, far = socket.socketpair()
    if os.fork() == 0:
        sock = listener(address, port, quiet=True)
        socket.send_fds(far, [b'x'], [sock.fileno()])
        os._exit(0)
    far.close()
    os.wait()
    return near


def server_passed(address, port, _):
    near = passed(address, port)
    _, fds, _, _ = socket.recv_fds(near, 1, 1)
    say('ready')
    echo_all(socket.socket(fileno=fds[0]).accept()[0])


def server_passed_many(address, port, _):
    """The same with recvmmsg()."""
    near = passed(address, port)
    byte, anc = ctypes.create_string_buffer(1), ctypes.create_string_buffer(64)
    iov = ctypes.create_string_buffer(struct.pack('PQ', ctypes.addressof(byte), 1))
    msg = ctypes.create_string_buffer(struct.pack('PI4xPQPQi4xI4x', 0, 0, ctypes.addressof(iov), 1,
                                                  ctypes.addressof(anc), 64, 0, 0))
    assert ctypes.CDLL(None).recvmmsg(near.fileno(), msg, 1, 0, None) == 1
    say('ready')
    echo_all(socket.socket(fileno=struct.unpack_from('i', anc, 16)[0]).accept()[0])


def client_echo(address, port, n):
    sock = socket.create_connection((address, port))
    data = pattern(n)

    def send():
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    back, how = receive(sock)
    thread.join()
    say('same' if back == data else 'different', len(back), how)


def server_greets(address, port, _):
    sock, _ = listener(address, port).accept()
    sock.sendall(b'hello')
    assert sock.recv(1) == b''


def server_sink(address, port, _):
    sock, _ = listener(address, port).accept()
    data, how = receive(sock)
    say('got', len(data), digest(data), how)


def server_selects(address, port, _):
    """As iperf3: select(), and then non-blocking reads; a listener for both address families."""
    both = socket.socket(socket.AF_INET6)
    both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    both.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    both.bind(('::', port))
    both.listen(8)
    say('ready')
    sock, _ = both.accept()
    assert sock.getpeername()[0] == '::ffff:' + address
    sock.setblocking(False)
    count, hashed = 0, hashlib.sha256()
    while True:
        select.select([sock], [], [])
        try:
            piece = sock.recv(2 * CHUNK)
        except BlockingIOError:
            continue
        if not piece:
            break
        count += len(piece)
        hashed.update(piece)
    say('got', count, hashed.hexdigest()[:16], 'end')


def client_selects(address, port, n):
    """Sends and receives: bytes that cannot be written now are written when select() reports
    room."""
    sock = socket.create_connection((address, port))
    sock.setblocking(False)
    data = memoryview(pattern(n))
    say('sent', digest(data))
    while data:
        select.select([], [sock], [])
        try:
            data = data[sock.send(data):]
        except BlockingIOError:
            pass


def client_early(address, port, n):
    """Adds the socket to an epoll set before a non-blocking connect()."""
    sock = socket.socket()
    sock.setblocking(False)
    poll = select.epoll()
    poll.register(sock, select.EPOLLOUT)
    assert sock.connect_ex((address, port)) == errno.EINPROGRESS
    data, back, done = memoryview(pattern(n)), b'', 0
    while len(back) < n:
        for _, events in poll.poll():
            if events & select.EPOLLOUT:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
                try:
                    done += sock.send(data[done:])
                except BlockingIOError:
                    pass
                poll.modify(sock, select.EPOLLIN | (select.EPOLLOUT if done < n else 0))
            if events & select.EPOLLIN:
                try:
                    back += sock.recv(CHUNK)
                except BlockingIOError:
                    pass
    sock.shutdown(socket.SHUT_WR)
    sock.setblocking(True)
    assert sock.recv(1) == b''
    say('same' if back == data else 'different', len(back), 'end')


def client_killed(address, port, n):
    """Bytes that were written before the program ends arrive."""
    sock = socket.create_connection((address, port))
    sock.sendall(pattern(n))
    say('sent', digest(pattern(n)))
    os.kill(os.getpid(), signal.SIGKILL)


def client_waits(address, port, _):
    sock = socket.create_connection((address, port))
    say('connected')
    data, how = receive(sock)
    say('got', len(data), how)


def meets_itself(address, port, ms):
    """The client's end comes first, and @ms milliseconds later the server's."""
    lst = listener(address, port)
    sock = socket.create_connection((address, port))
    sock.sendall(b'early')
    time.sleep(ms / 1000)
    peer, _ = lst.accept()
    peer.sendall(peer.recv(5))
    said = sock.recv(5)
    sock.close()
    say('met', said.decode(), peer.recv(1))


def meets_nobody(address, port, _):
    """The connection is never accepted."""
    lst = listener(address, port)
    sock = socket.create_connection((address, port))
    lst.close()
    say('got', *receive(sock))


def server_killed(address, port, _):
    sock, _ = listener(address, port).accept() # pylint: disable=unused-variable
    say('accepted')
    signal.pause()


def server_prompted(address, port, n):
    """Sends when it gets a signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    sock, _ = listener(address, port).accept()
    say('accepted')
    signal.sigwait([signal.SIGUSR1])
    sock.sendall(pattern(n))


def server_talks(address, port, n):
    """Exchanges bytes, then sends all @n bytes when it gets a signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    sock, _ = listener(address, port).accept()
    for _ in range(2):
        assert sock.recv(1) == b'x'
        sock.sendall(b'y')
    say('talked')
    signal.sigwait([signal.SIGUSR1])
    sock.sendall(pattern(n))


def client_talks(address, port, _):
    sock = socket.create_connection((address, port))
    for _ in range(2):
        sock.sendall(b'x')
        assert sock.recv(1) == b'y'
    say('talked')
    data, how = receive(sock)
    say('got', len(data), how)


def server_late(address, port, _):
    """Writes to a peer that has closed: TCP learns of it by the answer to the first bytes."""
    sock, _ = listener(address, port).accept()
    assert sock.recv(1) == b'x' and sock.recv(1) == b''
    poll = select.poll()
    poll.register(sock, 0)
    said = []
    for _ in range(3):
        try:
            said.append(sock.send(b'late'))
        except OSError as e:
            said.append(type(e).__name__)
        poll.poll() # until the hang-up
    say(*said, sock.recv(1))


def client_closes(address, port, _):
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')


def both_ends(address, port, _):
    """Prints the result of each write to a peer that has closed, with and without bytes that the
    peer has not read before."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    lst = listener(address, port)
    for rest in 0, 1:
        sock = socket.create_connection((address, port))
        peer, _ = lst.accept()
        sock.setblocking(False)
        sent = 0
        try:
            while True:
                sent += sock.send(bytes(CHUNK))
        except BlockingIOError:
            pass
        while sent > rest:
            sent -= len(peer.recv(min(CHUNK, sent - rest)))
        say('read')
        signal.sigwait([signal.SIGUSR1])
        peer.close()
        say('closed')
        try:
            say('sent', sock.send(b'x'))
        except OSError as e:
            say(type(e).__name__)


def writes_nothing(address, port, _):
    """Writes no bytes to a peer that has closed: this does not cause a reset."""
    lst = listener(address, port)
    sock = socket.create_connection((address, port))
    lst.accept()[0].close()
    assert sock.recv(1) == b''
    say(sock.send(b''), sock.send(b'x'))


def client_floods(address, port, n):
    """Prints the result of a call that has sent a part when the connection ends."""
    sock = socket.create_connection((address, port))
    try:
        sock.sendall(bytes(n))
        say('sent')
    except OSError as e:
        say('ended', type(e).__name__)


def server_splices(address, port, _):
    """As a proxy: splices received bytes through a pipe, and back."""
    sock, _ = listener(address, port).accept()
    libc = ctypes.CDLL(None, use_errno=True)
    out, into = os.pipe()

    def splice(source, sink, n):
        got = libc.splice(source, None, sink, None, ctypes.c_size_t(n), 0)
        if got < 0:
            raise OSError(ctypes.get_errno(), 'splice')
        return got

    while n := splice(sock.fileno(), into, CHUNK):
        while n:
            n -= splice(out, sock.fileno(), n)


def server_exec(address, port, _):
    """As inetd: another program gets the connection as standard input and output."""
    sock, _ = listener(address, port).accept()
    if os.fork() == 0:
        os.dup2(sock.fileno(), 0)
        os.dup2(sock.fileno(), 1)
        os.execvp('cat', ['cat'])
    sock.close()
    os.wait()


def server_drops(address, port, _):
    """As in many servers: the process that listens is root; the one that serves is not, and is not
    permitted to connect to the service."""
    sock = listener(address, port)
    if os.fork() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        conn, _ = sock.accept()
        while piece := conn.recv(CHUNK):
            conn.sendall(piece)
        os._exit(0)
    os.wait()


def server_rights(address, port, _):
    """A process accepts, and another one, which gets the connection in a message, serves."""
    sock = listener(address, port)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        sock.close()
        _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
        got = socket.socket(fileno=fds[0])
        while piece := got.recv(CHUNK):
            got.sendall(piece)
        os._exit(0)
    conn, _ = sock.accept()
    socket.send_fds(ours, [b'x'], [conn.fileno()])
    conn.close()
    os.wait()


def confine(calls, deadly):
    """Makes the kernel answer EPERM to these system calls of this process, given by number, or kill
    it."""
    libc = ctypes.CDLL(None, use_errno=True)
    load, equal, ret = 0x20, 0x15, 0x06
    code = [struct.pack('HBBI', load, 0, 0, 0)]
    both = [*calls, *deadly]
    for i, call in enumerate(both):
        code.append(struct.pack('HBBI', equal, len(both) - i + (call in deadly), 0, call))
    code += [struct.pack('HBBI', ret, 0, 0, action)
             for action in (0x7fff0000, 0x50000 | errno.EPERM, 0x80000000)]
    mem = ctypes.create_string_buffer(b''.join(code))
    prog = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(code), ctypes.addressof(mem)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 # PR_SET_NO_NEW_PRIVS
    if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(prog)), 0, 0) != 0: # PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), 'prctl')


def server_confined(address, port, _):
    """As sshd's child before the login: the process may read and write, and make no other call on
    sockets.  It cannot use descriptors other than its connection."""
    sock, _ = listener(address, port).accept()
    assert sock.recv(1, socket.MSG_PEEK)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        # sendto, recvfrom, sendmsg, recvmsg, shutdown, socket, connect, getsockopt, fcntl, sched_yield;
        # sched_getaffinity, setsockopt
        confine([44, 45, 46, 47, 48, 41, 42, 55, 72, 24], [204, 54])
        for _ in range(ASKS):
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        refused = 0
        for call in (lambda: ours.send(b'x'), lambda: theirs.recv(1, socket.MSG_DONTWAIT), socket.socket,
                     lambda: sock.dup().detach() and ours.sendmsg([b'x'])):
            try:
                call()
            except PermissionError:
                refused += 1
        while piece := os.read(sock.fileno(), CHUNK):
            done = 0
            while done < len(piece):
                select.select([], [sock], [])
                done += os.write(sock.fileno(), piece[done:])
            select.select([sock], [], [])
        os._exit(refused)
    say('refused', os.waitstatus_to_exitcode(os.wait()[1]))


def client_confined(address, port, n):
    """As a program that confines itself before it has connections: only its own calls may be made."""
    # socket, connect, dup and so on are allowed; sendmsg, recvmsg, getpid, getpeername, getsockopt,
    # getdents64, readlinkat, bpf are not
    confine([], [46, 47, 39, 52, 55, 217, 267, 321])
    unused = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    unused.listen()
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    poll = select.epoll()
    poll.register(sock, select.EPOLLIN)
    sock.connect((address, port))
    again = sock.dup()
    data = pattern(n)
    again.sendall(data)
    again.shutdown(socket.SHUT_WR)
    poll.poll()
    back, how = receive(sock)
    say('same' if back == data else 'different', len(back), how)
    os._exit(0) # without Python's calls


def client_confined_required(address, port, _):
    """The same with --require."""
    confine([], [321])
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for call in (lambda: sock.connect((address, port)), lambda: sock.listen()): # pylint: disable=unnecessary-lambda
        try:
            call()
        except OSError as e:
            say(errno.errorcode[e.errno])


def server_asyncio(address, port, _):
    import asyncio # which takes longer than to start Python: pylint: disable=import-outside-toplevel
    async def main():
        done = asyncio.Event()

        async def serve(reader, writer):
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
            done.set()
        await asyncio.start_server(serve, address, port)
        say('ready')
        await done.wait()
    asyncio.run(main())


def client_asyncio(address, port, n):
    import asyncio # pylint: disable=import-outside-toplevel
    async def main():
        reader, writer = await asyncio.open_connection(address, port)
        data = pattern(n)

        async def send():
            writer.write(data)
            await writer.drain()
            writer.write_eof()
        sending = asyncio.create_task(send())
        back = await reader.read(-1)
        await sending
        writer.close()
        say('same' if back == data else 'different', len(back), 'end')
    asyncio.run(main())


def client_scribbles(address, port, leaves):
    """Overwrites the memory of its connection, as an attacker would."""
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    sock.setblocking(False)
    with open('/proc/self/maps', encoding='ascii') as f:
        maps = [[int(n, 16) for n in line.split()[0].split('-')] for line in f
                if 'memfd:karst-smc' in line]
    fd = os.open('/proc/self/mem', os.O_RDWR)
    for start, end in maps:
        if end - start > 4096: # the rings: the positions of both directions, which are between them
            for line in range(4):
                os.pwrite(fd, struct.pack('<Q', random.getrandbits(62) + (1 << 62)),
                          start + 2048 + (end - start - 4096) // 2 + 64 * line)
        else: # the page, except its locks, and the field that says that its direction ends
            words = [random.getrandbits(63) for _ in range(3)]
            os.pwrite(fd, struct.pack('<3Q', words[0], words[1] & ~(1 << 32), words[2]), start + 64)
    if leaves:
        say('ended')
        return
    try:
        sock.shutdown(socket.SHUT_WR) # this makes the service check
    except OSError:
        pass # it has checked by itself, and the connection has ended
    poll = select.poll()
    poll.register(sock, 0)
    poll.poll() # until the hang-up; the page has no valid contents any more
    say('ended')


def server_impatient(address, port, n):
    """Makes calls that do not wait, and one with a time limit, while the peer sends tokens all the
    time."""
    sock, _ = listener(address, port).accept()
    assert sock.recv(1) == b'x'
    sock.sendall(b'y')
    sock.setblocking(False)
    assert select.select([sock], [], [], 0.05)[0] == []
    for _ in range(n):
        try:
            assert sock.recv(1) is None
        except BlockingIOError:
            pass
    sock.setblocking(True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 1000))
    try:
        sock.recv(1)
    except BlockingIOError:
        say('returned')


def far_ends():
    """@return the far ends of the peers' pairs, of which this process has descriptors.  Its own
    ends look like TCP sockets."""
    found = []
    for number in os.listdir('/proc/self/fd'):
        try:
            waker = socket.socket(fileno=int(number))
        except OSError:
            continue
        if (waker.family, waker.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
            maker, _, _ = struct.unpack('3i', waker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if maker != os.getpid():
                found.append(waker.dup())
        waker.detach()
    assert found
    return found


def told_by_kernel(sock):
    """Waits until the kernel itself reports something to read, whatever it is."""
    entry = struct.pack('ihh', sock.fileno(), select.POLLIN, 0)
    buffer = ctypes.create_string_buffer(entry, len(entry))
    while ctypes.CDLL(None).syscall(SYS_POLL, buffer, 1, -1) != 1:
        pass


def server_astray(address, port, _):
    """Checks what poll() and select() report for a token without bytes."""
    sock, _ = listener(address, port).accept()
    assert sock.recv(1) == b'x'
    select.select([sock], [], [], 0)
    sock.sendall(b'y')
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    told = []
    for say_so in (lambda: select.select([sock], [], [], 0)[0], lambda: poll.poll(0),
                   lambda: select.select([sock], [], [], 0.01)[0], lambda: poll.poll(10)):
        sock.send(b'n')
        told_by_kernel(sock)
        told.append(bool(say_so()))
    sock.send(b'z')
    told += [bool(poll.poll()), sock.recv(1)]
    say('told', *told)


def client_strays(address, port, _):
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'y'
    select.select([sock], [], [], 0)
    waker = far_ends()[0]
    while sock.recv(1) == b'n':
        waker.send(b't')
    sock.sendall(b'b')
    say('ended', sock.recv(1))


def client_knocks(address, port, _):
    """Sends tokens without end over the far end of the peer's pair, of which it has a
    descriptor."""
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'y'
    select.select([sock], [], [], 0) # the state is DIRECT by now, and this requests that descriptor
    waker = far_ends()[0]
    waker.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    say('knocks')
    try:
        while True:
            try:
                waker.send(bytes(CHUNK))
            except BlockingIOError:
                pass
    except OSError:
        pass # the peer is gone


def client_prompted(address, port, n):
    known = socket.create_server((address, 0)) # the service knows this program from here on
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say('ready')
    signal.sigwait([signal.SIGUSR1])
    client_echo(address, port, n)
    known.close()


LIMIT = struct.pack('ll', 0, 20000) # a multiple of the kernel's ticks


def set_all(sock):
    """Sets what a connection inherits from the socket that listened, or connected."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, LIMIT)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    return sock


def sent(make):
    """@return a socket that another process makes, sends and closes"""
    near, far = socket.socketpair()
    if os.fork() == 0:
        sock = make()
        socket.send_fds(far, [b'x'], [sock.fileno()])
        os._exit(0)
    far.close()
    os.wait()
    return socket.socket(fileno=socket.recv_fds(near, 1, 1)[1][0])


def is_set(sock):
    """@return whether urgent data is in line, whether the time limit is set, and whether a read
    ends by it"""
    inline = sock.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE)
    limit = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, len(LIMIT)) == LIMIT
    try:
        sock.recv(1)
    except BlockingIOError:
        return [inline, limit, 'late']
    return [inline, limit, 'read']


def says_whether_set(sock):
    say('ready')
    select.select([sock], [], []) # the limit holds for accept(), too
    say('set', *is_set(sock.accept()[0]))


def server_sets(address, port, _):
    says_whether_set(set_all(listener(address, port, quiet=True)))


def server_set_elsewhere(address, port, _):
    says_whether_set(sent(lambda: set_all(listener(address, port, quiet=True))))


def server_set_by_child(address, port, _):
    sock = listener(address, port, quiet=True)
    if os.fork() == 0:
        set_all(sock)
        os._exit(0)
    os.wait()
    says_whether_set(sock)


def server_set_before(address, port, inherited):
    """The settings are made by the program that has executed this one."""
    if inherited:
        says_whether_set(socket.socket(fileno=inherited))
        return
    sock = set_all(listener(address, port, quiet=True))
    sock.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, *sys.argv[:4], str(sock.fileno())])


def client_ends(address, port, _):
    """Prints how the peer ends the connection."""
    say(*receive(socket.create_connection((address, port))))


def own(sock, pid):
    fcntl.fcntl(sock, fcntl.F_SETOWN, pid)
    fcntl.fcntl(sock, 10, signal.SIGUSR2) # F_SETSIG
    return sock


def client_owned(address, port, elsewhere):
    """The owner that gets the socket's signals was set before connect()."""
    pid = os.getpid()
    sock = sent(lambda: own(set_all(socket.socket()), pid)) if elsewhere else own(
        set_all(socket.socket()), pid)
    sock.connect((address, port))
    say('set', *is_set(sock), fcntl.fcntl(sock, fcntl.F_GETOWN) == pid,
        fcntl.fcntl(sock, 11) == signal.SIGUSR2) # F_GETSIG


def server_ended(address, port, _):
    say(*receive(listener(address, port).accept()[0]))


def client_refused(address, port, _):
    try:
        socket.create_connection((address, port))
    except OSError as e:
        say('refused', type(e).__name__)
    else:
        say('connected')


def client_awaited(address, port, _):
    """A thread waits for bytes of a socket while another one is in connect(), at a point when the
    peer already has the connection."""
    known = socket.create_server((address, 0)) # the service knows this program from here on
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say('ready')
    signal.sigwait([signal.SIGUSR1])
    sock, numbers, told = socket.socket(), [], []

    def connects():
        numbers.append(threading.get_native_id())
        sock.connect((address, port))

    def awaits():
        numbers.append(threading.get_native_id())
        told.extend(select.select([sock], [], [])[0])

    threads = [threading.Thread(target=target) for target in (connects, awaits)]
    threads[0].start()
    while not numbers:
        time.sleep(0.001)
    in_call(numbers[0], [SYS_RECVMSG])
    threads[1].start()
    while len(numbers) < 2:
        time.sleep(0.001)
    in_call(numbers[1], [SYS_SELECT, SYS_PSELECT, SYS_FUTEX])
    say('waits')
    for thread in threads:
        thread.join()
    say('told', told == [sock], sock.recv(5))
    known.close()


def client_options(address, port, _):
    """Gets and sets socket options."""
    sock = socket.create_connection((address, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try: # its value contains an address, which would be one of the daemon's
        sock.setsockopt(socket.SOL_SOCKET, 26, struct.pack('HxxxxxxQ', 1, 4096))
        attached = 'attached'
    except OSError as e:
        attached = errno.errorcode[e.errno]
    sock.settimeout(0.05)
    try:
        sock.recv(1)
        late = 'no'
    except socket.timeout:
        late = 'yes'
    sock.settimeout(None)
    sock.sendall(b'hello')
    while struct.unpack('i', fcntl.ioctl(sock, termios.FIONREAD, b'\0' * 4))[0] < 5:
        select.select([sock], [], [])
    peeked = sock.recv(5, socket.MSG_PEEK)
    say('options', sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), late, peeked.decode(),
        sock.recv(5, socket.MSG_WAITALL).decode(), attached, sock.getpeername() == (address, port))


if __name__ == '__main__':
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int((sys.argv + ['0'])[4]))
