#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Programs that attack the SMC service itself, and so all its programs: attack_service.py BUILD
(TAP; as root)."""
import contextlib
import os
import resource
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ports import until  # noqa: E402
from prog_clc import NEAR  # noqa: E402
from prog_common import OTHERS, SYS_POLL, SYS_RECVFROM  # noqa: E402
from prog_memory import sleeps  # noqa: E402
from smcbed import CONF, Program, bed, echo, ip, pair, refuses_rights, run, told  # noqa: E402

SMALL = '[socket]\nmode = 0666\n' + CONF + 'max_connections = 16\n'
MOST_PROGRAMS = 64 + 16
OPEN = '[socket]\nmode = 0666\n' + CONF + 'retry_s = 0\n'
OTHER = CONF + 'eid = OTHER\nbuffer = 16K\n'
LINGERERS = 24
MUCH = 300000 # bytes
LISTENS = 20000
GIVES = 4096
STUCK_USERS = 9
STUCK_FILES = 1500
HARMLESS = 65000 # a user
KNOCKS = 3000
UNREAD = 64 # answers
FULL_S = 2
HOLDS = 40
NOBODIES = 8
SCRIBBLES = 100
RINGS = 65536 # files of rings are longer


def claims(suite, one):
    p = Program(suite, None, 'claims.claims', one.socket + '.smc', 0)
    said, problems = p.ends()
    nothing = ['ENODATA'] * 4
    suite.tap.point('sockets that are said to have seen the option, and have not, or not those that are '
                    'connected now', problems + (
                        [] if said.split() == ['claims', *nothing, 'ENOTCONN', 'ENODATA', 'taken', 'taken',
                                               *['ENOTCONN', 'taken', 'taken'] * 2] else [said]))


def works(suite, one, direct):
    """Checks that two programs have SMC-R, as @direct pairs have had before.  @return problems"""
    problems = echo(suite, one, one)
    if suite.count(one, 'direct') != direct + 1:
        problems.append(suite.ask(one, '/karst/smc'))
    return problems


def stands_still(process, p):
    """@p continues while @process is stopped.  @return problems"""
    problems = [line for line in [p.line()] if line != 'begins']
    bed.halt(process)
    p.process.send_signal(signal.SIGUSR1)
    problems += [line for line in [p.line()] if line != 'sent']
    process.send_signal(signal.SIGCONT)
    return problems + (list(p.ends()) if problems else [])


def olders():
    """@return the values of @older to test: with a kernel before Linux 6.16, too"""
    return (False, True) if refuses_rights() else (True,)


def lingerers(suite, older):
    os.chmod(suite.folder, 0o755)
    name = ('older' if older else 'open')
    one, problems = suite.daemon(name, OPEN, older=older)
    suite.tap.point('a daemon for all' + (', before Linux 6.16' if older else ''), problems)
    p = Program(suite, None, 'lingers.lingers', one.socket + '.smc', 0, LINGERERS)
    problems = stands_still(one.process, p)
    suite.tap.point('sockets that linger are handed to the service: others do not wait',
                    problems + works(suite, one, 0))
    held = pair(suite, one, 'lingers.server_accepts', 'lingers.client_lingers')
    problems = stands_still(one.process, held[1])
    suite.tap.point('and so is one that is a connection, and others in its pair',
                    problems + works(suite, one, 2))
    burdens = ('lingers.client_burdens', 'one that lingers is sent to another user\'s program'), \
        ('lingers.client_burdens_itself', 'or lies where that one empties a pair')
    for client, text in () if older else burdens: # there no program has another user's far end
        s, c = pair(suite, one, 'lingers.server_burdened', client)
        problems = stands_still(s.process, c)
        suite.tap.point(text, problems)
        told(suite, 'it does not wait', s, c, ['got abc'])
    if older:
        descriptors(suite, one, 3)
    other, problems = suite.daemon('other', OTHER)
    suite.tap.point('a daemon with which it does not agree', problems)
    port = bed.free_port()
    deaf = Program(suite, other, 'lingers.server_deaf', '127.0.0.1', port)
    problems = [line for line in [deaf.line()] if line != 'ready']
    c = Program(suite, one, 'lingers.client_leaves_much', '127.0.0.1', port, MUCH)
    problems += [line for line in [c.line()] if line != 'sent']
    suite.tap.point('nor do they for a program that has set a time to linger, and is relayed',
                    problems + works(suite, one, 5))
    # while the other ends of all of them exist
    suite.tap.point('both end', one.stop() + other.stop())
    for q in (p, deaf, *held):
        q.process.kill()


def descriptors(suite, one, direct):
    """Descriptors count as the daemon's when the daemon has received them."""
    for i, (client, text) in enumerate((('lingers.client_gives', 'who sends descriptors by his pair loses his '
                                         'connection'),
                                        ('lingers.client_gives_urgent', 'also with urgent bytes'))):
        faults = suite.count(one, 'faults')
        s, c = pair(suite, one, 'early.server_late', client, GIVES)
        said, problems = c.ends()
        problems += suite.rises(one, 'faults', faults) if said == 'ended' else [said]
        suite.tap.point(text, problems + works(suite, one, direct + i))
        s.process.kill()


def stuck(suite):
    """Users with files that no process can close."""
    os.chmod(suite.folder, 0o755)
    if not os.access('/dev/fuse', os.W_OK):
        suite.tap.skip('who has files that nobody can close', 'no /dev/fuse')
        return
    one, problems = suite.daemon('stuck', SMALL)
    suite.tap.point('a small daemon for all', problems)
    p = Program(suite, None, 'stuck.sticks', one.socket + '.smc', 0, STUCK_USERS)
    problems = [line for line in [p.line()] if line != 'given']
    began = time.monotonic()
    while not problems and len(os.listdir(f'/proc/{one.process.pid}/fd')) < STUCK_FILES:
        if time.monotonic() - began > bed.HANG_S:
            problems = ['the service has not taken them']
        time.sleep(0.01)
    suite.tap.point('users send files that nobody can close: others are heard',
                    problems + works(suite, one, 0))
    said, problems = Program(suite, None, 'stuck.closes', one.socket + '.smc', 0, HARMLESS).ends()
    suite.tap.point('and what these send is closed', problems + ([] if said == 'closed' else [said]))
    text = 'one of them comes again and again: others are heard'
    if refuses_rights():
        q = Program(suite, None, 'stuck.knocks', one.socket + '.smc', 0, KNOCKS)
        problems = [line for line in [q.line()] if line != 'knocked']
        suite.tap.point(text, problems + works(suite, one, 1))
        q.process.kill()
    else:
        suite.tap.skip(text, 'not before Linux 6.16 (T75)')
    p.process.kill()
    p.process.wait()
    suite.tap.point('it ends', one.stop())


def holders(suite):
    """A program that holds the lock of a socket that the service also has does not delay other
    programs, and loses its own connection."""
    os.chmod(suite.folder, 0o755)
    one, problems = suite.daemon('held', OPEN)
    suite.tap.point('another daemon for all', problems)
    faults = suite.count(one, 'faults')
    s, c = pair(suite, one, 'early.server_late', 'locks.client_holds')
    problems = [line for line in [c.line()] if line != 'holds']
    s.process.send_signal(signal.SIGUSR1) # now the service has to check whether it is the other end
    suite.tap.point('a program holds the lock of its TCP socket: others do not wait', problems +
                    suite.rises(one, 'faults', faults) + works(suite, one, 0))
    c.process.kill()
    s.process.kill()
    suite.tap.point('it ends', one.stop())
    for name, what, text in (('often', 'locks.holds_often', 'than is waited for'),
                             ('briefly', 'locks.holds_briefly', 'than until it is looked whether it is held')):
        one, problems = suite.daemon(name, OPEN)
        faults = suite.count(one, 'faults')
        said, more = Program(suite, one, what, '127.0.0.1', bed.free_port(), HOLDS).ends()
        suite.tap.point(f'a program holds it again and again, for less time {text}: nor do they',
                        problems + more + ([] if 'done' in said else [said]) +
                        suite.rises(one, 'faults', faults))
        suite.tap.point('it ends', one.stop())
    for older in olders():
        holds_far(suite, older)


def holds_far(suite, older):
    """Before Linux 6.16 no program has the far end of another user's pair (smc_direct.c), so with
    @older both belong to one user."""
    one, problems = suite.daemon('farolder' if older else 'far', OPEN, older=older)
    suite.tap.point('and another one' + (', before Linux 6.16' if older else ''), problems)
    s, c = pair(suite, one, 'locks.server_full', 'locks.client_holds_far', OTHERS if older else 0)
    problems = [line for line in (c.line(), s.line()) if line not in ('connected', 'full')]
    c.process.send_signal(signal.SIGUSR1)
    problems += [line for line in [c.line()] if line != 'holds']
    problems += [line for line in [s.line()] if line != 'woken']
    suite.tap.point('a program holds the lock of the other one\'s pair: that one hears of its end, '
                    'and others do not wait', problems + works(suite, one, 1))
    c.process.kill()
    suite.tap.point('it ends', one.stop())


def marks(suite, rings):
    """A program changes how the kernel treats urgent bytes of a connection that is relayed.  It is
    stopped until its connection has ended, as if it got no processor."""
    os.chmod(suite.folder, 0o755)
    one, problems = suite.daemon(f'marks{rings}', OPEN, shuts=rings != 0)
    other, more = suite.daemon(f'unlike{rings}', OTHER)
    suite.tap.point('two daemons that do not agree', problems + more)
    port = bed.free_port()
    s = Program(suite, other, 'locks.server_marks', '127.0.0.1', port)
    problems = [line for line in [s.line()] if line != 'ready']
    c = Program(suite, one, 'locks.client_marks', '127.0.0.1', port, rings)
    problems += [line for line in [c.line()] if line != 'marks']
    problems += until('asleep', lambda: sleeps(c.process.pid, [SYS_POLL if rings == 2 else SYS_RECVFROM]))
    c.process.send_signal(signal.SIGSTOP)
    s.process.send_signal(signal.SIGUSR1)
    problems += until('over', lambda: suite.count(one, 'connections') == 0)
    c.process.send_signal(signal.SIGCONT)
    said, more = c.ends()
    problems += more + ([] if said == ('EPROTO 0 0' if rings == 2 else 'EPROTO') else [said])
    suite.tap.point('a program has urgent bytes left out that are relayed' +
                    ('', ', and rings while it is ended', ', and waits by poll()')[rings] +
                    ': that ends its connection, and others do not wait', problems + works(suite, one, 0))
    s.process.kill()
    suite.tap.point('both end', one.stop() + other.stop())


def log_lines(suite):
    """Each connection with invalid values in its memory counts as a fault, but not each is
    logged."""
    os.chmod(suite.folder, 0o755)
    one, problems = suite.daemon('log', OPEN + 'direct = no\n')
    faults = suite.count(one, 'faults')
    said, more = Program(suite, None, 'greedy.scribbles_often', one.socket + '.smc', 0, SCRIBBLES).ends()
    problems += more + ([] if said == 'done' else [said])
    problems += suite.rises(one, 'faults', faults + SCRIBBLES - 1)
    lines = one.text().count('impossible')
    suite.tap.point('a user makes faults without end: the log tells of some',
                    problems + ([] if 0 < lines < SCRIBBLES / 2 else [f'{lines} lines']))
    suite.tap.point('it ends', one.stop())


def ends_of_near():
    ip('link', 'add', 'near', 'type', 'veth', 'peer', 'name', 'far')
    ip('addr', 'add', f'{NEAR}/24', 'dev', 'near')
    for end in 'near', 'far':
        ip('link', 'set', end, 'up')


def nobodies(suite):
    """Peers that claim in CLC to have addresses that no system has."""
    os.chmod(suite.folder, 0o755)
    ends_of_near()
    one, problems = suite.daemon('near', '[port p]\ndevice = near\n' + OPEN + 'direct = no\n')
    suite.tap.point('a daemon with a port', problems)
    p = Program(suite, None, 'clc.names_nobody', one.socket + '.smc', 0, NOBODIES)
    problems = [line for line in [p.line() for _ in range(2 * NOBODIES)] if line != 'named']
    problems += echo(suite, one, one, at=NEAR)
    if suite.count(one, 'connected') != 2:
        problems.append(suite.ask(one, '/karst/smc'))
    suite.tap.point('peers have addresses that nobody has: others do not wait', problems)
    p.process.kill()
    suite.tap.point('it ends', one.stop())


def stocked(suite, one):
    """@return (queue pairs, files of rings of which all pages exist) of a daemon"""
    folder, rings = f'/proc/{one.process.pid}/fd/', 0
    for fd in os.listdir(folder):
        with contextlib.suppress(OSError): # closed meanwhile
            at = os.stat(folder + fd)
            rings += (os.readlink(folder + fd).startswith('/memfd:karst-smc ') and at.st_size > RINGS and
                      at.st_blocks * 512 >= at.st_size)
    return sum(row['qps'] for row in suite.ask(one, '/karst/lcores').values()), rings


def comes_back(suite):
    """What is made in advance for a port, which goes and comes back."""
    os.chmod(suite.folder, 0o755)
    one, problems = suite.daemon('back', '[port p]\ndevice = near\n' + OPEN + 'direct = no\n')
    service = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    service.connect(one.socket + '.smc')
    problems += until('in stock', lambda: stocked(suite, one) == (2, 2))
    suite.tap.point('queue pairs and rings are made in advance', problems)
    ip('link', 'del', 'near')
    problems = until('gone', lambda: stocked(suite, one)[0] == 0)
    suite.tap.point('the port goes, and its queue pairs with it', problems)
    ends_of_near()
    problems = until('in stock', lambda: stocked(suite, one) == (2, 2))
    problems += echo(suite, one, one, at=NEAR)
    if suite.count(one, 'connected') != 2:
        problems.append([suite.ask(one, '/karst/smc'), suite.ask(one, '/karst/smc_reasons')])
    suite.tap.point('it comes back, and the first connection is SMC-R', problems)
    problems = until('in stock', lambda: stocked(suite, one)[1] >= 2)
    suite.tap.point('the stock is filled again', problems)
    service.close()
    suite.tap.point('it ends', one.stop())


def early_ends(suite):
    os.chmod(suite.folder, 0o755)
    one, problems = suite.daemon('early', OPEN + 'direct = no\n')
    suite.tap.point('a daemon without direct connections', problems)
    said, problems = Program(suite, None, 'clc.ends_behind_proposal', one.socket + '.smc', 0).ends()
    suite.tap.point('a client ends right behind its Proposal: the server hears that it was aborted',
                    problems + ([] if said == 'ECONNABORTED' else [said]))
    suite.tap.point('it ends', one.stop())


def greed(suite):
    os.chmod(suite.folder, 0o755)
    small, problems = suite.daemon('small', SMALL)
    suite.tap.point('a small daemon', problems)
    hog = Program(suite, small, 'greedy.hog', '127.0.0.1', bed.free_port(), 40)
    said = hog.line()
    suite.tap.point('a user with more connections than there is room for: the rest are TCP',
                    [] if said == 'works 40' else [said, hog.ends()])
    direct = suite.count(small, 'direct')
    problems = echo(suite, small, small)
    if suite.count(small, 'direct') != direct + 1:
        problems.append(suite.ask(small, '/karst/smc'))
    suite.tap.point('another one has SMC-R all the same', problems)
    suite.tap.point('no queue pairs are in stock, as there is no port on which a link is expected',
                    [row for row in suite.ask(small, '/karst/lcores').values() if row['qps'] != 0])
    hog.process.kill()
    hog.process.wait()
    many = Program(suite, None, 'greedy.hog_programs', small.socket + '.smc', 0, MOST_PROGRAMS)
    problems = [line for line in [many.line()] if line != 'connected']
    direct = suite.count(small, 'direct')
    problems += echo(suite, small, small)
    if suite.count(small, 'direct') != direct + 1:
        problems.append(suite.ask(small, '/karst/smc'))
    suite.tap.point('a user as whom many programs are connected leaves room for others', problems)
    many.process.kill()
    said, problems = Program(suite, None, 'greedy.unread', small.socket + '.smc', 0, UNREAD).ends()
    suite.tap.point('who asks, and does not read what is answered, is not heard any more', problems +
                    ([] if said == 'few' else [said]))
    suite.tap.point('it ends', small.stop())


def hello(suite, one, meanwhile=lambda: [], twice=False):
    """A server that sends first, and a client, over SMC-R.  @return problems"""
    port, direct = bed.free_port(), suite.count(one, 'direct')
    s = Program(suite, one, 'claims.server_hello', '127.0.0.1', port, twice)
    problems = [line for line in [s.line()] if line != 'ready'] + meanwhile()
    c = Program(suite, one, 'claims.client_hello', '127.0.0.1', port)
    for p, wanted in (c, 'got hello'), (s, 'got x'):
        said, more = p.ends()
        problems += more + ([] if said == wanted else [said])
    if suite.count(one, 'direct') != direct + 2:
        problems.append(suite.ask(one, '/karst/smc'))
    return problems


def listeners(suite):
    """What a SYN-ACK contains is determined by the listener's port."""
    os.chmod(suite.folder, 0o755)
    one, problems = suite.daemon('heard', OPEN)
    suite.tap.point('a daemon for those who listen', problems)

    def listen():
        said, more = Program(suite, None, 'claims.listens', one.socket + '.smc', 0, LISTENS).ends()
        return more + ([] if said == 'listened' else [said])

    suite.tap.point('a user listens on thousands of ports: who did before has SMC-R all the same',
                    hello(suite, one, listen))
    suite.tap.point('so has who is left of two that listen on one port', hello(suite, one, twice=True))
    said, problems = Program(suite, None, 'claims.freezes', one.socket + '.smc', 0).ends()
    problems += [] if said == 'refused' else [said]
    suite.tap.point('nobody makes the map of sockets one that cannot be changed', problems + hello(suite, one))
    suite.tap.point('it ends', one.stop())


def handed(suite):
    one, problems = suite.daemon('hands', OPEN)
    suite.tap.point('a daemon whose connections go to others', problems)
    for how, wanted, text in (
            (0, 'said 121112', 'a connection is sent to a process, and closed before that takes it'),
            (1, 'said 12...2', 'it ends when the one who takes it dies at once'),
            (2, 'said 12...2', 'or ends with the message in which it is'),
            (3, 'said 12...2', 'who knows nothing of SMC-R does nothing else to it')):
        direct = suite.count(one, 'direct')
        s, c = pair(suite, one, 'handed.server_hands', 'handed.client_handed', how)
        said, problems = c.ends()
        problems += [] if said == wanted else [said]
        problems += s.ends()[1]
        if suite.count(one, 'direct') != direct + 2:
            problems.append(suite.ask(one, '/karst/smc'))
        suite.tap.point(text, problems)
    suite.tap.point('it ends', one.stop())


def no_descriptors(suite):
    """A daemon without free descriptors: programs that connect meanwhile wait, and the daemon does
    not poll for them without a pause.  (A busy machine only lets it run less.)"""
    one, problems = suite.daemon('full', OPEN)
    suite.tap.point('a daemon that will have no descriptor left', problems)
    pid = one.process.pid
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    numbers = {int(name) for name in os.listdir(f'/proc/{pid}/fd')}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        resource.prlimit(pid, resource.RLIMIT_NOFILE,
                         (min(set(range(len(numbers) + 1)) - numbers), usual[1]))
        s.connect(one.socket + '.smc')
        before = bed.cpu_s(pid)
        time.sleep(FULL_S)
        took = bed.cpu_s(pid) - before
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
    suite.tap.point('it does not look for who waits without a pause',
                    [f'{took} s of a processor in {FULL_S}'] if took > FULL_S / 2 else [])
    suite.tap.point('when it has some again it serves', hello(suite, one))
    suite.tap.point('it ends', one.stop())


def test(suite):
    one, problems = suite.daemon('one', CONF)
    suite.tap.point('a daemon with [smc]', problems)
    claims(suite, one)
    suite.tap.point('it ends', one.stop())
    for older in olders():
        lingerers(suite, older)
    stuck(suite)
    holders(suite)
    for rings in range(3):
        marks(suite, rings)
    log_lines(suite)
    nobodies(suite)
    comes_back(suite)
    early_ends(suite)
    greed(suite)
    listeners(suite)
    handed(suite)
    no_descriptors(suite)


if __name__ == '__main__':
    sys.exit(run(sys.argv[1], test))
