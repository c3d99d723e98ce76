#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs over SMC-R: smc.py BUILD ROOT (TAP; as root).

In a network namespace of its own: one karstd with a loopback port and two that are connected by a
veth pair, and programs that do not know of SMC-R (prog.py), started by karst-run --smc.
"""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import begins  # noqa: E402
import ends  # noqa: E402
import idle  # noqa: E402
import kept  # noqa: E402
import looks  # noqa: E402
import ports  # noqa: E402
import same  # noqa: E402
import short  # noqa: E402
import urgent  # noqa: E402
import uring  # noqa: E402
from smcbed import BYTES, CONF, HERE, Program, RateServer, bed, echo, ip, run  # noqa: E402

OPTION = bytes.fromhex('fe06e2d4c3d9')
IDLE = 500
STEPS = 15  # instructions of each call; smc-steps with 0 takes all, some minutes
OFTEN = 100  # connections
SLOW_MS = 300  # longer than the service waits for the other end
SYS_RECVMSG = 47  # on x86_64
# the output of interrupted.c: what each call returned, and how many signals came
INTERRUPTED = ('without connections the clock is read 0 times\n'
               'recv EINTR 1\nrecv after siginterrupt EINTR 1\nrecv at once EAGAIN 1\n'
               'poll EINTR 1\nselect EINTR 1\nsend EINTR 1\nrecv again returned 1\n'
               'after siglongjmp: 0 sleepers, 0 places, 0 others\n'
               'after cancellation: 0 sleepers, 0 places, 0 others\n'
               'a stack above: 1 sleepers, then 0\na stack below: 1 sleepers, then 0\n'
               'while the lock is held: leaves\n'
               'a thread that waits is cancelled without a lock\n'
               'close cancelled, 0 files, descriptors -1\naccept cancelled, 0 files, descriptors +0\n'
               'accept cancelled, 0 files, descriptors +0\nsendfile leaves nothing\n'
               'sendfile not cancelled, 0 files, descriptors +0\nsendfile cancelled, 0 files, descriptors +0\n'
               'sendfile leaves 0 descriptors\nconnections opened meanwhile, 0 wrong\n'
               'duplicates: 0 wrong\nrules are built a few times\n'
               'filters set, 0 children cannot read or have no filter\nreads 1\n')
STALL_S = 2  # longer than the retries of an ACK timeout of 14 ...
PATIENT_S = 6  # ... and shorter than those of the service, including the time until the first retry
NEAR, FAR = '10.91.0.1', '10.91.0.2'


# --- the option ---

class Sniffer:
    """Captures the TCP headers on the loopback interface."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.sock.bind(('lo', 0))
        self.sock.settimeout(0.2)

    def headers(self, port):
        """@return (flags, options) of each packet of a connection to @port, once"""
        found = []
        try:
            while True:
                frame, where = self.sock.recvfrom(65536)
                if where[2] == socket.PACKET_OUTGOING or frame[23] != socket.IPPROTO_TCP:
                    continue
                tcp = frame[14 + (frame[14] & 15) * 4:]
                if port in struct.unpack('>HH', tcp[:4]):
                    found.append((tcp[13], tcp[20:(tcp[12] >> 4) * 4]))
        except socket.timeout:
            return found


def option_point(suite, name, server, client, wanted):
    """Checks which of SYN, SYN-ACK and the other packets of a connection have the option."""
    sniffer = Sniffer()
    port = bed.free_port()
    s = Program(suite, server, 'server_echo', '127.0.0.1', port)
    s.line()
    c = Program(suite, client, 'client_echo', '127.0.0.1', port, 10)
    said, problems = c.ends()
    problems += s.ends()[1] + ([] if said == 'same 10 end' else [said])
    found = sniffer.headers(port)
    kinds = [any(OPTION in options for flags, options in found if flags & 0x12 == 0x02),
             any(OPTION in options for flags, options in found if flags & 0x12 == 0x12),
             any(OPTION in options for flags, options in found if not flags & 0x02)]
    if kinds != wanted:
        problems.append(f'SYN, SYN-ACK and others have it: {kinds}, not {wanted}')
    suite.tap.point(name, problems)


# --- points ---

def is_direct(suite, one):
    """@return (whether all connections so far bypass the daemon, whether all use RDMA, the
    counters)"""
    n = suite.ask(one, '/karst/smc')
    return (n['direct'] > 0 and n['writes'] == n['connected'] == 0,
            n['direct'] == 0 and n['writes'] > 0 and n['connected'] >= 2, n)


def one_daemon(suite, one, direct):
    tap = suite.tap
    tap.point('echo over one karstd, both directions at once', echo(suite, one, one))
    tap.point('both programs have the same buffers' if direct else 'these were connections of SMC-R',
              [] if is_direct(suite, one)[0 if direct else 1] else [is_direct(suite, one)])
    tap.point('without blocking: asyncio', echo(suite, one, one, ('server_asyncio',
                                                                  'client_asyncio')))
    tap.point('a program that is executed has it as standard input and output',
              echo(suite, one, one, ('passed.server_exec', 'client_echo')))
    for what, text in (('passed.server_closed', 'a socket is closed while a thread accepts'),
                       ('passed.server_passed', 'a socket that listens comes by a message'),
                       ('passed.server_passed_many', 'and by one of several')):
        problems = echo(suite, one, one, (what, 'client_echo'))
        tap.point(text, problems)
    tap.point('a program that splices', echo(suite, one, one, ('server_splices', 'client_echo')))
    before = suite.count(one, 'opened')
    problems = echo(suite, one, one, ('passed.server_drops', 'client_echo'))
    if suite.count(one, 'opened') != before + 2:
        problems.append('it stayed on TCP')
    tap.point('who listens is root, who serves is not', problems)
    tap.point('a program has it by a message',
              echo(suite, one, one, ('passed.server_rights', 'client_echo')))
    before = suite.count(one, 'direct')
    port = bed.free_port()
    s = Program(suite, one, 'server_selects', '127.0.0.1', port)
    s.line()
    c = Program(suite, one, 'client_selects', '127.0.0.1', port, 20 * BYTES)
    sent = c.line().split()
    _, problems = c.ends()
    said, more = s.ends()
    problems += more + ([] if said == f'got {20 * BYTES} {sent[-1]} end' else [said])
    if direct and suite.count(one, 'direct') != before + 1:
        problems.append('a listener of both families is not known')
    tap.point('select() at both sides, and calls that do not wait', problems)
    before = suite.count(one, 'opened')
    problems = echo(suite, one, one, ('server_echo', 'client_early'))
    if suite.count(one, 'opened') != before + 2:
        problems.append('it stayed on TCP')
    tap.point('a socket that an epoll set has before it connects', problems)
    port = bed.free_port()
    s = Program(suite, one, 'server_echo', '127.0.0.1', port)
    s.line()
    said, problems = Program(suite, one, 'client_options', '127.0.0.1', port).ends()
    tap.point('options, time limits, FIONREAD, MSG_PEEK and MSG_WAITALL', problems + s.ends()[1] + (
        [] if said == 'options 1 0 yes hello hello ENOPROTOOPT True' else [said]))


def settings(suite, one):
    """A connection has the settings that its TCP socket was given, by whatever process."""
    was_set, reset = 'set 1 True late', "b'' ConnectionResetError"
    for server, client, n, text, wanted in (
            ('settings.server_sets', 'ends.client_ends', 0, 'before it listens', (was_set, reset)),
            ('settings.server_set_elsewhere', 'ends.client_ends', 0, 'by another process, which sends a '
             'socket that listens', (was_set, reset)),
            ('settings.server_set_by_child', 'ends.client_ends', 0, 'by a child', (was_set, reset)),
            ('settings.server_set_before', 'ends.client_ends', 0, 'by the program before this one',
             (was_set, reset)),
            ('ends.server_ended', 'settings.client_owned', 0, 'with its owner, before it connects',
             (reset, f'{was_set} True True')),
            ('ends.server_ended', 'settings.client_owned', 1, 'with its owner, by another process, before '
             'it connects', (reset, f'{was_set} True True'))):
        port = bed.free_port()
        s = Program(suite, one, server, '127.0.0.1', port)
        problems = [line for line in [s.line()] if line != 'ready']
        c = Program(suite, one, client, '127.0.0.1', port, n)
        for program, said in (c, wanted[1]), (s, wanted[0]):
            line, more = program.ends()
            problems += more + ([] if line == said else [line])
        suite.tap.point(f'time limits, SO_LINGER and SO_OOBINLINE that were set {text}', problems)


def awaited(suite, one):
    """The service is stopped while a program connects whose other thread waits for bytes."""
    port = bed.free_port()
    s = Program(suite, one, 'server_greets', '127.0.0.1', port)
    problems = [line for line in [s.line()] if line != 'ready']
    c = Program(suite, one, 'client_awaited', '127.0.0.1', port)
    problems += [line for line in [c.line()] if line != 'ready']
    bed.halt(one.process)
    c.process.send_signal(signal.SIGUSR1)
    problems += [line for line in [c.line()] if line != 'waits']
    one.send(signal.SIGCONT)
    said, more = c.ends()
    suite.tap.point('a thread waits for a socket while another one connects it', problems + more +
                    s.ends()[1] + ([] if said == "told True b'hello'" else [said]))


def asks(program):
    """Waits until @program waits for the service's answer."""
    began = time.monotonic()
    while time.monotonic() - began < bed.HANG_S:
        with open(f'/proc/{program.process.pid}/syscall', encoding='ascii') as f:
            if f.read().split()[0] == str(SYS_RECVMSG):
                return []
        time.sleep(0.001)
    return [f'{program.what} does not ask']


def both_ask(suite, one, direct, dies):
    """Both ends of a connection have connected when the service first checks.  @return the
    programs, problems"""
    port = bed.free_port()
    s = Program(suite, one, 'server_echo' if not dies else 'ends.server_ended', '127.0.0.1', port)
    problems = [line for line in [s.line()] if line != 'ready']
    c = Program(suite, one, 'client_prompted', '127.0.0.1', port, BYTES)
    problems += [line for line in [c.line()] if line != 'ready']
    before = suite.count(one, 'direct')
    bed.halt(one.process)
    c.process.send_signal(signal.SIGUSR1)
    problems += asks(c) + asks(s)
    if dies:
        c.process.kill()
        c.process.wait()
    one.send(signal.SIGCONT)
    said, more = s.ends()
    problems += more
    if direct and suite.count(one, 'direct') != before + 1:
        problems.append('they were not joined')
    return c, said, problems


def at_once(suite, one, direct):
    c, _, problems = both_ask(suite, one, direct, False)
    said, more = c.ends()
    suite.tap.point('the service sees both ends of a connection at once', problems + more +
                    ([] if said == f'same {BYTES} end' else [said]))
    if direct:
        _, said, problems = both_ask(suite, one, direct, True)
        suite.tap.point('and one of them has been killed: the other one hears of it', problems +
                        ([] if said == "b'' end" else [said]))


def confined(suite, one):
    """A server that filters system calls, on a machine whose system call numbers the program
    knows."""
    if os.uname().machine != 'x86_64':
        suite.tap.skip('a program whose system calls are filtered', 'x86_64 alone')
        return
    port = bed.free_port()
    s = Program(suite, one, 'confined.server_confined', '127.0.0.1', port)
    s.line()
    said, problems = Program(suite, one, 'client_echo', '127.0.0.1', port, BYTES).ends()
    problems += [] if said == f'same {BYTES} end' else [said]
    said, more = s.ends()
    suite.tap.point('a program whose system calls are filtered', problems + more + (
        [] if said == 'refused 4' else [said]))
    port = bed.free_port()
    s = Program(suite, one, 'server_echo', '127.0.0.1', port)
    s.line()
    said, problems = Program(suite, one, 'confined.client_confined', '127.0.0.1', port, 1000).ends()
    suite.tap.point('a program whose system calls are filtered before it has connections', problems + (
        [] if said == 'same 1000 end' else [said]))
    said, problems = Program(suite, one, 'confined.client_confined_required', '127.0.0.1', port, require=True).ends()
    s.process.kill()
    suite.tap.point('and with --require', problems + ([] if said == 'ECONNABORTED\nENOTSUP' else [said]))


def urgent_bytes(suite, one):
    before = suite.count(one, 'opened')
    problems = urgent.same_as_tcp(suite, one, one)
    if suite.count(one, 'opened') != before + 2:
        problems.append('it stayed on TCP')
    suite.tap.point('urgent data: as over TCP', problems)


def late_bytes(suite, one):
    """A program that was woken by an urgent byte finds the byte, however late its sender
    continues."""
    suite.tap.point('the sender of an urgent byte loses the processor behind it',
                    urgent.same_as_tcp(suite, one, one, late=True))
    os.environ.update(suite.late)
    try:
        slow, problems = suite.daemon('slow', CONF + 'direct = no\n')
    finally:
        del os.environ['LD_PRELOAD']
    suite.tap.point('and the daemon that moves one does', problems +
                    urgent.same_as_tcp(suite, slow, slow) + slow.stop())


def often(suite, one):
    """@return problems of a program that connects repeatedly to one that does not support SMC-R"""
    server, before = RateServer(suite), suite.count(one, 'option_offered')
    done = subprocess.run([suite.run, '--smc', '--socket', one.socket, suite.rate, 'connect', '127.0.0.1',
                           server.port, '1', str(OFTEN)], stdout=subprocess.DEVNULL, check=False)
    server.ends()
    offered = suite.count(one, 'option_offered') - before
    return [] if done.returncode == 0 and 0 < offered < OFTEN else [f'offered {offered} times']


def plain_peers(suite, one):
    before = suite.count(one, 'opened')
    suite.tap.point('a server that cannot', echo(suite, None, one))
    suite.tap.point('a client that cannot', echo(suite, one, None))
    suite.tap.point('these were the kernel\'s from end to end',
                    [] if suite.count(one, 'opened') == before else ['the service had them'])
    suite.tap.point('a peer that did not answer the option is not offered it each time',
                    often(suite, one))
    port = bed.free_port()
    s = Program(suite, None, 'server_sink', '127.0.0.1', port)
    s.line()
    said, problems = Program(suite, one, 'client_refused', '127.0.0.1', port, require=True).ends()
    suite.tap.point('--require: it fails instead', problems + (
        [] if said.startswith('refused') else [said]))
    s.ends()


def deaths(suite, one):
    port = bed.free_port()
    s = Program(suite, one, 'server_sink', '127.0.0.1', port)
    s.line()
    c = Program(suite, one, 'ends.client_killed', '127.0.0.1', port, 200000)
    sent = c.line().split()
    _, problems = c.ends(-9)
    said, more = s.ends()
    suite.tap.point('what a program has written before it is killed arrives', problems + more + (
        [] if said == f'got 200000 {sent[1]} end' else [said]))
    port = bed.free_port()
    s = Program(suite, one, 'ends.server_killed', '127.0.0.1', port)
    s.line()
    c = Program(suite, one, 'ends.client_waits', '127.0.0.1', port)
    c.line()
    s.line()
    s.process.kill()
    said, problems = c.ends()
    suite.tap.point('the peer of a program that is killed is told', problems + (
        [] if said.startswith('got 0') else [said]))


def late(suite, one, direct):
    port = bed.free_port()
    said = []
    for daemon in None, one:
        s = Program(suite, daemon, 'ends.server_late', '127.0.0.1', port)
        s.line()
        problems = Program(suite, daemon, 'ends.client_closes', '127.0.0.1', port).ends()[1]
        words, more = s.ends()
        said.append(words)
        problems += more
    suite.tap.point('who writes to a peer that has closed hears what TCP tells', problems + (
        [] if said[0] == said[1] or not direct and said[1] == said[0].replace(
            'BrokenPipe', 'ConnectionReset', 1) else said))


def alone(suite, one, what, n=0):
    """@return problems of a program that is both sides of its connections"""
    p = Program(suite, one, what, '127.0.0.1', bed.free_port(), n)
    p.line()
    said, problems = p.ends()
    return said, problems


def held(suite, one):
    """Two programs do not exchange a first CLC message, unless the other end takes long, as it does
    on a busy machine.  So this repeats until a connection was not delayed."""
    began = time.monotonic()
    problems, spoken = [], True
    while spoken and not problems and time.monotonic() - began < bed.HANG_S:
        before = suite.count(one, 'clc_failed')
        said, problems = alone(suite, one, 'ends.meets_itself')
        if said != "met early b''":
            problems.append(said)
        spoken = suite.count(one, 'clc_failed') != before
    if spoken:
        problems.append('CLC begins each time')
    suite.tap.point('who connects waits for the other end before it speaks CLC', problems)
    before = suite.count(one, 'direct')
    said, problems = alone(suite, one, 'ends.meets_itself', SLOW_MS)
    suite.tap.point('and not for long', problems + (
        [] if said == "met early b''" and suite.count(one, 'direct') == before + 1 else [said]))
    said, problems = alone(suite, one, 'ends.meets_nobody')
    suite.tap.point('nobody will accept it: it is told, as by TCP', problems + (
        [] if said == "got b'' ConnectionResetError" else [said]))


def torn(suite, one):
    port = bed.free_port()
    s = Program(suite, one, 'ends.server_killed', '127.0.0.1', port)
    s.line()
    c = Program(suite, one, 'ends.client_floods', '127.0.0.1', port, 4 * BYTES)
    s.line()
    problems = suite.filled(one) # a part of it has been sent
    s.process.kill()
    said, more = c.ends()
    suite.tap.point('who waits for room when the peer resets hears of the reset', problems + more + (
        [] if said == 'ended ConnectionResetError' else [said]))


def hostile(suite, one, direct):
    before = suite.count(one, 'faults')
    port = bed.free_port()
    s = Program(suite, one, 'server_sink', '127.0.0.1', port)
    s.line()
    said, problems = Program(suite, one, 'harm.client_scribbles', '127.0.0.1', port, direct).ends()
    heard, more = s.ends()
    problems += more + ([] if said.startswith('ended') else [said])
    if direct and 'Connection' not in heard:
        problems.append(heard)
    if suite.count(one, 'faults') == before and not direct: # otherwise its peer notices, and closes
        problems.append('no fault is counted')
    suite.tap.point('who scribbles over a control page loses that connection', problems)
    suite.tap.point('and nobody else anything', echo(suite, one, one))


def impatient(suite, one):
    """Tokens that were not requested do not delay a call that does not wait."""
    port = bed.free_port()
    s = Program(suite, one, 'harm.server_impatient', '127.0.0.1', port, 1000)
    s.line()
    c = Program(suite, one, 'harm.client_knocks', '127.0.0.1', port)
    problems = [line for line in [c.line()] if line != 'knocks']
    said, more = s.ends()
    suite.tap.point('who is woken without end need not wait for ever', problems + more + c.ends()[1] + (
        [] if said == 'returned' else [said]))


def astray(suite, one):
    """A stray token, as of a writer that lost the processor between its bytes and its token, until
    all bytes were read."""
    port = bed.free_port()
    s = Program(suite, one, 'harm.server_astray', '127.0.0.1', port)
    s.line()
    c = Program(suite, one, 'harm.client_strays', '127.0.0.1', port)
    said, problems = s.ends()
    suite.tap.point('poll() and select() do not tell of a token behind which is nothing',
                    problems + c.ends()[1] + (
                        [] if said == "told False False False False True b'b'" else [said]))


def stall(suite, near, far, netns):
    """@return (how long a daemon had no processor, while more bytes are under way to it than it has
    room for; problems)"""
    port = bed.free_port()
    before = [suite.count(d, 'connected') for d in (near, far)] + [suite.count(near, 'writes')]
    s = Program(suite, near, 'ends.server_prompted', NEAR, port, BYTES)
    s.line()
    c = Program(suite, far, 'ends.client_waits', NEAR, port, netns=netns)
    c.line()
    s.line()
    problems = suite.rises(near, 'connected', before[0]) + suite.rises(far, 'connected', before[1])
    began = time.monotonic()
    bed.halt(far.process)
    s.process.send_signal(signal.SIGUSR1)
    problems += suite.rises(near, 'writes', before[2])
    time.sleep(STALL_S)
    far.send(signal.SIGCONT)
    took_s = time.monotonic() - began
    said, more = c.ends()
    return took_s, problems + more + s.ends()[1] + (
        [] if said == f'got {BYTES} end' else [said, suite.ask(near, '/karst/smc')])


def stalled(suite, near, far, netns):
    """Repeats stall() if the machine delayed this test for longer than the service's retries."""
    began, (took_s, problems) = time.monotonic(), stall(suite, near, far, netns)
    while problems and took_s > PATIENT_S and time.monotonic() - began < bed.HANG_S:
        suite.tap.note(f'it stood still for {took_s:.1f} s; once more')
        took_s, problems = stall(suite, near, far, netns)
    suite.tap.point(f'a daemon that stands still for {STALL_S} s', problems)


def two_daemons(suite, netns):
    ip('link', 'add', 'near', 'type', 'veth', 'peer', 'name', 'far', 'netns', netns)
    ip('addr', 'add', NEAR + '/24', 'dev', 'near')
    ip('link', 'set', 'near', 'up')
    ip('-n', netns, 'addr', 'add', FAR + '/24', 'dev', 'far')
    ip('-n', netns, 'link', 'set', 'far', 'up')
    near, problems = suite.daemon('near', '[port p]\ndevice = near\n' + CONF)
    far, more = suite.daemon('far', '[port p]\ndevice = far\n' + CONF, netns)
    suite.tap.point('two daemons, joined by veth', problems + more)
    suite.tap.point('echo over both', echo(suite, near, far, at=NEAR, far=netns))
    suite.tap.point('that was SMC-R', [] if suite.count(near, 'connected') == 1 and
                    suite.count(far, 'connected') == 1 else [suite.ask(near, '/karst/smc')])
    stalled(suite, near, far, netns)
    suite.tap.point('it ends', far.stop())
    other, problems = suite.daemon('other', '[port p]\ndevice = far\n' + CONF + 'eid = OTHERS\n',
                                   netns)
    suite.tap.point('a daemon with another identifier', problems)
    suite.tap.point('the peer declines: the bytes go by TCP, all of them',
                    echo(suite, near, other, at=NEAR, far=netns))
    rows = suite.ask(other, '/karst/smc_reasons')
    suite.tap.point('the reason is counted', [] if rows.get('03030000') or rows.get('03030008') or
                    rows.get('05000000') else [rows])
    offered = suite.count(other, 'option_offered')
    problems = echo(suite, near, other, at=NEAR, far=netns)
    if suite.count(other, 'option_offered') != offered:
        problems.append('it was offered again')
    suite.tap.point('that peer is not offered it again', problems)
    suite.tap.point('it ends', other.stop())
    refused_by_users(suite, near, netns)
    suite.tap.point('it ends', near.stop())


def offers(suite, near, other, netns, *users):
    """@return how often programs of these users, each of which connects twice, offer the option to
    a peer that declines; problems"""
    port, offered = bed.free_port(), suite.count(other, 'option_offered')
    s = Program(suite, near, 'clc.server_answers', NEAR, port, 2 * len(users))
    problems = [line for line in [s.line()] if line != 'ready']
    for user in users:
        said, more = Program(suite, other, 'clc.client_twice', NEAR, port, user, netns).ends()
        problems += more + ([] if said == 'twice' else [said])
    return suite.count(other, 'option_offered') - offered, problems + s.ends()[1]


def refused_by_users(suite, near, netns):
    """A program can make the negotiation fail with any peer."""
    os.chmod(suite.folder, 0o755)
    other, problems = suite.daemon('users', '[socket]\nmode = 0666\n[port p]\ndevice = far\n' + CONF +
                                   'eid = OTHERS\n', netns)
    suite.tap.point('a daemon with another identifier, for all', problems)
    for users, wanted, text in (
            ((65001,), 1, 'a user\'s connection comes to nothing: that program does not offer it again'),
            ((65001,), 1, 'another one does'),
            ((65002, 65001, 65003), 1, 'what happens to two users counts for all')):
        n, problems = offers(suite, near, other, netns, *users)
        suite.tap.point(text, problems + ([] if n == wanted else [f'offered {n} times']))
    suite.tap.point('it ends', other.stop())


def elsewhere(suite, netns):
    """Programs of another namespace, whose addresses prove nothing, because any user can have any
    address in their own namespace."""
    one, problems = suite.daemon('here', CONF + 'direct = no\n')
    suite.tap.point('a daemon', problems)
    port = bed.free_port()
    s = Program(suite, one, 'server_echo', '127.0.0.1', port, netns=netns)
    problems = [line for line in [s.line()] if line != 'ready']
    c = Program(suite, one, 'client_echo', '127.0.0.1', port, BYTES, netns=netns)
    said, more = c.ends()
    problems += more + s.ends()[1] + ([] if said == f'same {BYTES} end' else [said])
    if suite.count(one, 'connected') != 0 or suite.count(one, 'opened') != 2:
        problems.append(suite.ask(one, '/karst/smc'))
    suite.tap.point('two programs of another network namespace do not talk through its ports', problems)
    suite.tap.point('it ends', one.stop())


def handlers(suite, one):
    """A signal handler uses the connection that its thread is just using (handler.c)."""
    port = bed.free_port()
    both = []
    for what in 'serve', 'connect':
        p = subprocess.Popen([suite.run, '--smc', '--socket', one.socket, suite.handler, what,
                              '127.0.0.1', str(port)], stdout=subprocess.PIPE, text=True)
        suite.programs.append(p)
        both.append(p)
        if what == 'serve':
            p.stdout.readline()
    said, ended = bed.rest(both[1])
    problems = [] if ended and said == 'same\n' else [said, f'ended: {ended}']
    if problems:
        both[0].kill()
    said, ended = bed.rest(both[0])
    suite.tap.point('handlers of signals read, write, poll and close', problems + (
        [] if ended and said == '' else [said]))
    p = subprocess.Popen([suite.run, '--smc', '--socket', one.socket, suite.interrupted, '127.0.0.1',
                          str(bed.free_port())], stdout=subprocess.PIPE, text=True)
    suite.programs.append(p)
    said, ended = bed.rest(p)
    suite.tap.point('a signal before a call waits ends it', [] if ended and said == INTERRUPTED else [
        said, f'ended: {ended}'])
    p = subprocess.Popen([suite.run, '--smc', '--require', '--socket', one.socket, suite.steps, '127.0.0.1',
                          str(STEPS)], stdout=subprocess.PIPE, text=True)
    suite.programs.append(p)
    said, ended = bed.rest(p)
    suite.tap.point('a handler leaves a call by siglongjmp() at many of its instructions',
                    [] if ended and p.returncode == 0 else [*said.splitlines(), f'ended: {ended}'])


def calls(suite, one):
    """What programs may do besides using a connection (calls.c)."""
    for what, text in (('listens', 'a handler of a signal may listen'),
                       ('forks', 'a child is not made in the middle of what another thread does'),
                       ('handles', 'a handler forks, in the middle of a call or not'),
                       ('executes', 'children that have the memory of their parent do nothing to it')):
        port, before = bed.free_port(), suite.count(one, 'opened')
        s = Program(suite, one, 'server_echo', '127.0.0.1', port)
        problems = [line for line in [s.line()] if line != 'ready']
        p = subprocess.Popen([suite.run, '--smc', '--socket', one.socket, suite.calls, what, '127.0.0.1',
                              str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        suite.programs.append(p)
        said, ended = bed.rest(p)
        if not ended or said != 'well\n' or p.returncode != 0:
            problems.append(said or f'ends with {p.returncode}')
        elif what != 'listens':
            problems += s.ends()[1]
            if suite.count(one, 'opened') != before + 2:
                problems.append('that was no SMC-R')
        s.process.kill()
        suite.tap.point(text, problems)


def forks(suite, one):
    """Children of a program of which one thread is just using the connection (forks.c)."""
    port = bed.free_port()
    s = Program(suite, one, 'server_sink', '127.0.0.1', port)
    problems = [line for line in [s.line()] if line != 'ready']
    p = subprocess.Popen([suite.run, '--smc', '--socket', one.socket, suite.forks, '127.0.0.1',
                          str(port)], stdout=subprocess.PIPE, text=True)
    suite.programs.append(p)
    said, ended = bed.rest(p)
    suite.tap.point('children close what a thread of their parent is using', problems + (
        [] if ended and said == 'ended 300\n' else [said, f'ended: {ended}']))
    s.ends()


def no_room(suite):
    """Connections for which the table has no room use TCP."""
    small, problems = suite.daemon('small', CONF + 'max_connections = 2\nretry_s = 0\n')
    port = bed.free_port()
    s = Program(suite, small, 'ends.server_killed', '127.0.0.1', port)
    s.line()
    Program(suite, small, 'ends.client_waits', '127.0.0.1', port).line()
    s.line()
    problems += echo(suite, small, small)
    rows = suite.ask(small, '/karst/smc_reasons')
    if '01010000' not in rows:
        problems.append(rows)
    suite.tap.point('beyond max_connections: the bytes go by TCP', problems)
    problems = urgent.same_as_tcp(suite, small, small)
    if suite.ask(small, '/karst/smc_reasons') == rows:
        problems.append('it was not offered')
    suite.tap.point('and urgent data as such', problems)
    port = bed.free_port()
    s = Program(suite, small, 'ends.server_killed', '127.0.0.1', port)
    s.line()
    Program(suite, small, 'ends.client_waits', '127.0.0.1', port).line()
    s.line()
    before = suite.count(small, 'turned_away')
    problems = echo(suite, small, small) + echo(suite, small, small)
    if suite.count(small, 'turned_away') < before + 4:
        problems.append(suite.ask(small, '/karst/smc'))
    suite.tap.point('those for which even that has no room are programs\' own', problems)
    small.kill()


def tool(suite, one, direct):
    port = bed.free_port()
    s = Program(suite, one, 'ends.server_killed', '127.0.0.1', port)
    s.line()
    c = Program(suite, one, 'ends.client_waits', '127.0.0.1', port)
    c.line()
    s.line()
    mode = 'direct' if direct else 'SMC-R'
    command = [os.path.join(HERE, '..', '..', 'usertools', 'karst-smc'), '--file-prefix', one.name]
    modes, began = None, time.monotonic()
    while modes != [mode, mode] and time.monotonic() - began < bed.HANG_S:
        done = subprocess.run(command + ['--json'], capture_output=True, text=True, check=False)
        try:
            modes = sorted(c['mode'] for c in json.loads(done.stdout)['connections'])
        except (ValueError, KeyError):
            break
    suite.tap.point('karst-smc --json', [] if modes == [mode, mode] else
                    [done.stdout, done.stderr])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    suite.tap.point('karst-smc', [] if done.returncode == 0 and f'127.0.0.1:{port}' in done.stdout
                    else [done.stdout, done.stderr])
    one.kill()
    if direct:
        s.process.kill()
    said, problems = c.ends()
    suite.tap.point('the daemon is killed, then a program: the other one hears of it' if direct else
                    'the daemon is killed: programs hear of it', problems + (
                        [] if said.startswith('got 0 Connection') else [said]))
    s.process.kill()


def talk_on(suite, one):
    """Two programs that have begun to exchange data do not need the daemon."""
    port = bed.free_port()
    s = Program(suite, one, 'ends.server_talks', '127.0.0.1', port, BYTES)
    s.line()
    c = Program(suite, one, 'ends.client_talks', '127.0.0.1', port)
    problems = [line for line in (s.line(), c.line()) if line != 'talked']
    one.kill()
    s.process.send_signal(signal.SIGUSR1)
    said, more = c.ends()
    suite.tap.point('the daemon is killed: two programs talk on', problems + more + s.ends()[1] + (
        [] if said.startswith(f'got {BYTES}') else [said]))


def next_daemon(suite):
    """A client that was started before the daemon uses SMC-R by the next daemon, too."""
    one, problems = suite.daemon('restarts', CONF)
    port = bed.free_port()
    c = Program(suite, one, 'ends.client_when_told', '127.0.0.1', port)
    c.line()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None: # no connection is under way, so the client hears nothing
            problems = problems or one.stop(number, 0 if number == signal.SIGTERM else -number) or one.start()
        s = Program(suite, one, 'ends.server_serves', '127.0.0.1', port)
        s.line()
        began = time.monotonic()
        while not problems and suite.count(one, 'direct') == 0:
            c.process.send_signal(signal.SIGUSR1)
            if c.line() != 'connected':
                problems = c.ends()[1]
            elif time.monotonic() - began > bed.HANG_S:
                problems = [f'no connection by SMC-R after {number}']
            time.sleep(0.2)
        s.process.kill()
        s.process.wait()
    c.process.kill()
    suite.tap.point('the daemon is started again: a client uses SMC-R again', problems or one.stop())


def test(suite, netns):
    one, problems = suite.daemon('one', CONF)
    suite.tap.point('a daemon with [smc]', problems)
    other, problems = suite.daemon('elsewhere', CONF + 'addresses = 127.0.0.2/32\n')
    suite.tap.point('one that offers it from another address', problems)
    option_point(suite, 'the option is in SYN and SYN-ACK', one, one, [True, True, False])
    option_point(suite, 'a peer that cannot does not answer it', None, one,
                 [True, False, False])
    option_point(suite, 'nobody is asked who did not offer it', one, None,
                 [False, False, False])
    option_point(suite, 'it is not sent from other addresses than configured', one,
                 other, [False, False, False])
    suite.tap.point('that daemon ends', other.stop())
    rdma, problems = suite.daemon('rdma', CONF + 'direct = no\n')
    suite.tap.point('one by which all bytes go by RDMA', problems)
    for direct, daemon in (True, one), (False, rdma):
        one_daemon(suite, daemon, direct)
        awaited(suite, daemon)
        confined(suite, daemon)
        at_once(suite, daemon, direct)
        settings(suite, daemon)
        urgent_bytes(suite, daemon)
        if direct:
            late_bytes(suite, daemon)
            held(suite, daemon)
        plain_peers(suite, daemon)
        handlers(suite, daemon)
        forks(suite, daemon)
        calls(suite, daemon)
        deaths(suite, daemon)
        late(suite, daemon, direct)
        torn(suite, daemon)
        hostile(suite, daemon, direct)
        if direct:
            impatient(suite, daemon)
            astray(suite, daemon)
            ends.at_once(suite, daemon)
        ends.nothing(suite, daemon)
        tool(suite, daemon, direct)
    last, problems = suite.daemon('last', CONF)
    suite.tap.point('another one', problems)
    talk_on(suite, last)
    next_daemon(suite)
    same.same(suite, netns)
    uring.rings(suite)
    looks.looks(suite)
    short.shorts(suite)
    begins.begins(suite)
    kept.kept(suite)
    kept.kept_for_a_while(suite)
    kept.shares(suite)
    no_room(suite)
    idle.nobody_wakes(suite, IDLE, False)
    idle.nobody_wakes(suite, IDLE, False, older=True)
    idle.nobody_wakes(suite, IDLE, True)
    elsewhere(suite, netns)
    two_daemons(suite, netns)
    ports.failover(suite, netns)


def main(argv):
    netns = f'karst-smc-{os.getpid()}'

    def begin(suite):
        ip('netns', 'add', netns)
        ip('-n', netns, 'link', 'set', 'lo', 'up')
        test(suite, netns)
    try:
        return run(argv[1], begin)
    finally:
        subprocess.run(['ip', 'netns', 'del', netns], check=False)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
