#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs over SMC-R whose peers, or neighbours, are malicious: attack.py BUILD (TAP; as
root)."""
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from smcbed import CONF, Program, bed, echo, pair, run, told  # noqa: E402

AGAIN = 60 # connections


def far_ends(suite, one):
    for how, text in (socket.SHUT_RD, 'reading'), (socket.SHUT_RDWR, 'both'):
        s, c = pair(suite, one, 'far.server_receives', 'far.client_shuts', how)
        told(suite, f'the peer shuts down the far end, {text}: what it sent comes, and then an error',
             s, c, ['got 1000 ConnectionResetError BrokenPipeError'])
    s, c = pair(suite, one, 'far.server_quiet', 'far.client_urgent')
    s.line()
    c.process.send_signal(signal.SIGUSR1)
    told(suite, 'an urgent byte in the pair does not stay there', s, c, ['quiet'])


def marks(suite, one):
    s, c = pair(suite, one, 'far.server_urgent', 'far.client_marks')
    told(suite, 'marks of urgent bytes beyond the buffer, backwards and twice', s, c,
         ['abc EINVAL 0 def EINVAL 0 g h 1 ijkl EINVAL 0 end.'])


def kept(suite, one):
    """A program uses far ends that the service has closed.  The service must not attribute this to
    the connections that have their place now."""
    s, c = pair(suite, one, 'far.server_leaves', 'far.client_keeps')
    problems = [line for line in [c.line()] if line != 'keeps'] + s.ends()[1]
    others = [pair(suite, one, 'far.server_receives', 'far.client_sends') for _ in range(4)]
    problems += [line for _, other in others for line in [other.line()] if line != 'connected']
    c.process.send_signal(signal.SIGUSR1)
    problems += [line for line in [c.line()] if line != 'shut']
    for server, other in others:
        other.process.send_signal(signal.SIGUSR1)
        said, more = server.ends()
        problems += more + other.ends()[1] + ([] if said == 'got 1000 end sent' else [said])
    c.process.kill()
    suite.tap.point('who keeps the far end of a closed pair does nothing to later ones', problems)


def positions(suite, one):
    s, c = pair(suite, one, 'positions.server_reads_on', 'positions.client_repeats')
    told(suite, 'the peer moves the position of who reads: nothing is read twice', s, c,
         ['got 1001 end'])
    s, c = pair(suite, one, 'positions.server_writes_on', 'positions.client_takes_back')
    told(suite, 'the peer has not read any more what it had read: that ends it', s, c,
         ['ended ConnectionAbortedError'])
    s, c = pair(suite, one, 'positions.server_fills', 'positions.client_takes_all')
    s.line()
    c.process.send_signal(signal.SIGUSR1)
    told(suite, 'the peer reads all, tells nobody, and closes: who waits for room hears of that', s, c,
         ['ended BrokenPipeError'])
    s, c = pair(suite, one, 'positions.server_splices', 'positions.client_shortens')
    problems = [line for line in (c.line(), s.line()) if line not in ('sent', 'waits')]
    c.process.send_signal(signal.SIGUSR1)
    problems += [line for line in [c.line()] if line != 'shortened']
    s.process.send_signal(signal.SIGUSR1)
    suite.tap.point('a splice waits', problems)
    told(suite, 'and the peer takes back what it had sent: nothing is spliced, and that ends it', s, c,
         ['spliced -1 0 0 end'])


def taken_away(suite, one, how):
    """A program tries to resize the files of a connection, and removes their pages.  The service
    and an engine have pages of these files mapped, too."""
    s, c = pair(suite, one, 'far.server_receives', 'positions.client_takes_away')
    said = c.line()
    problems = [] if said == 'EPERM removed' else [said]
    problems += echo(suite, one, one)
    c.process.kill()
    s.ends() # whatever the result
    suite.tap.point(f'who takes pages out of the files of a connection {how} cannot make them shorter, and '
                    'nobody else notices', problems + echo(suite, one, one))


def sleepers(suite, one):
    s, c = pair(suite, one, 'shared.server_sleepers', 'shared.client_answers')
    told(suite, 'nobody sleeps any more after who slept was killed', s, c, ['sleepers 0'])
    s, c = pair(suite, one, 'shared.server_dies', 'shared.client_pieces')
    told(suite, 'who is killed while he holds a lock holds it no longer', s, c, ['got 1000 end'])


def shared(suite, one):
    s, c = pair(suite, one, 'shared.server_shares', 'shared.client_once')
    told(suite, 'who shares a connection with a process of another user learns no address of it, and '
         'writes nothing else', s, c, ['addresses 0 same'])


def page_numbers(suite, one):
    s, c = pair(suite, one, 'pages.server_echoes', 'pages.client_again', AGAIN)
    ours, problems = c.ends()
    theirs = [s.line() for _ in range(AGAIN)][-1]
    few = [f'pages {n}' for n in range(1, AGAIN // 4)]
    suite.tap.point('one connection after another: control pages are used again, by both', problems +
                    [said for said in (ours, theirs) if said not in few])
    liar = Program(suite, one, 'pages.client_lies', *s.process.args[-3:-1])
    said, problems = liar.ends()
    suite.tap.point('who says that he does not use the pages that he uses gets others', problems +
                    ([] if said == 'pages 4' else [said]))
    s.process.kill()


def ring_numbers(suite, one):
    def client(what, n=0):
        """@return the program, the files of rings that it says it has had, problems"""
        p = Program(suite, one, what, *s.process.args[-3:-1], n)
        said = p.line().split()
        return p, set(said[1:]), [] if said[:1] in (['done'], ['forked']) else [f'{what}: {said}']

    s, a = pair(suite, one, 'pages.server_echoes', 'pages.client_rounds', AGAIN)
    said = a.line().split()
    has = set(said[1:])
    suite.tap.point('one connection after another: rings are used again, and nothing old is in them',
                    [] if said[:1] == ['done'] and 0 < len(has) < AGAIN else [said])
    b, second, problems = client('pages.client_rounds', AGAIN)
    a.process.kill()
    a.process.wait()
    c, third, more = client('pages.client_rounds', AGAIN)
    suite.tap.point('a third program gets others, also when one of the two has gone', problems + more + (
        [] if second and third and not has & (second | third) and not second & third
        else [has, second, third]))
    much, left, problems = client('pages.client_much')
    suite.tap.point('rings of which more than a page was used are not kept', problems + list(left))
    forks, theirs, problems = client('pages.client_forks')
    forks.process.send_signal(signal.SIGUSR1)
    said = forks.line().split()
    suite.tap.point('what a child has mapped is not used again', problems + (
        [] if said[:1] == ['done'] and theirs and not theirs & set(said[1:]) else [theirs, said]))
    second = Program(suite, one, 'pages.server_echoes', '127.0.0.1', bed.free_port())
    second.line()
    moves = Program(suite, one, 'pages.client_moves', *s.process.args[-3:-1], second.process.args[-2])
    problems = [line for line in [moves.line()] if line != 'done']
    s.process.kill()
    s.process.wait()
    moves.process.send_signal(signal.SIGUSR1)
    problems += [line for line in [moves.line()] if line != 'done']
    suite.tap.point('rings of a program that has gone are not taken for those of another one', problems)
    for p in b, c, much, forks, moves, second:
        p.process.kill()


def reset_before_clc(suite, one):
    """The service is stopped meanwhile, so that it notices the reset when it sends the first
    message."""
    s, c = pair(suite, one, 'early.server_late', 'early.client_is_reset')
    problems = [line for line in [c.line()] if line != 'connected']
    bed.halt(one.process)
    s.process.kill()
    s.process.wait()
    one.send(signal.SIGCONT)
    said, more = c.ends()
    suite.tap.point('and who was before the service has said anything', problems + more + (
        [] if said == 'reset' else [said]))


def before_rings(suite, one):
    faults = suite.count(one, 'faults')
    for client, name, wanted in (
            ('early.client_dies', 'who is killed before it is accepted: what it wrote comes',
             ['got hello 5 end']),
            ('early.client_died', 'who died in the middle of a write leaves no hole to the others',
             ['got hello world 11 end']),
            ('early.client_fills', 'more is written before the connection is accepted',
             ['got hello world 6112 end']),
            ('early.client_overstates', 'more was written than there is room for: nothing comes',
             ['got  0 end', 'got  0 ConnectionResetError']),
            ('early.client_closes_early', 'a program that gives itself rings gets those of the service',
             ['got hello world 11 end'])):
        s, c = pair(suite, one, 'early.server_late', client)
        problems = [line for line in [c.line()] if line != 'early']
        if client == 'early.client_dies':
            c.process.send_signal(signal.SIGUSR1)
            c.process.wait()
        s.process.send_signal(signal.SIGUSR1)
        if client == 'early.client_overstates':
            problems += suite.rises(one, 'faults', faults)
        elif s.line() != 'accepted':
            problems.append('nothing has come')
        c.process.send_signal(signal.SIGUSR1)
        said, more = s.ends()
        said = said.removeprefix('accepted').strip()
        suite.tap.point(name, problems + more + ([] if said in [w.strip() for w in wanted] else [said]))
        c.process.kill()
    for late, when in enumerate(('at once', 'after CLC has begun')):
        s, c = pair(suite, one, 'early.server_never_accepts', 'early.client_is_reset', late)
        problems = [line for line in [c.line()] if line != 'connected'] + s.ends()[1]
        said, more = c.ends()
        suite.tap.point(f'who was connected to a program that ends {when} and has not accepted hears of that',
                        problems + more + ([] if said == 'reset' else [said]))
    reset_before_clc(suite, one)
    s, c = pair(suite, one, 'early.server_resets', 'early.client_looks')
    problems = [line for line in (c.line(), s.line()) if line not in ('connected', 'reset')]
    problems += s.ends()[1]
    while any(row['pid'] == s.process.pid
              for row in suite.ask(one, '/karst/smc_connections').values()):
        time.sleep(0.01)
    c.process.send_signal(signal.SIGUSR1)
    said, more = c.ends()
    suite.tap.point('what a peer wrote that has reset by now comes', problems + more + (
        [] if said == 'got hello ConnectionResetError' else [said]))


def child_before_rings(suite, one):
    for client, name in (
            ('early.client_child_overstates', 'what a child says was written before there are rings: '
             'nothing is written behind the page'),
            ('early.client_child_offers', 'nor read')):
        s, c = pair(suite, one, 'early.server_late', client)
        said, problems = c.ends()
        suite.tap.point(name, problems + ([] if said == 'not' else [said]))
        s.process.kill()
    s, c = pair(suite, one, 'early.server_late', 'early.client_child_crosses')
    problems = [line for line in [c.line()] if line != 'early']
    for p in s, c:
        p.process.send_signal(signal.SIGUSR1)
    said, more = s.ends()
    suite.tap.point('a child cannot have its parent write into the rings of another connection',
                    problems + more + ([] if said.split()[1:] == ['got', 'hello', 'world', '11', 'end']
                                       else [said]))
    c.process.kill()
    s, c = pair(suite, one, 'pages.server_echoes', 'early.client_child_counts')
    said, problems = c.ends()
    suite.tap.point('a child that counts wrong does not have its parent read or write beyond a ring',
                    problems + ([] if said == 'not read\nnot written' else [said]))
    s.process.kill()


def old_names(suite, one):
    """The service is stopped while the addresses of a connection become those of another one."""
    elsewhere = socket.create_server(('127.0.0.1', bed.free_port()))
    s, false = pair(suite, one, 'addresses.server_second', 'addresses.client_leaves',
                    elsewhere.getsockname()[1])
    port = int(s.process.args[-2])
    own = int(false.line())
    true = Program(suite, one, 'addresses.client_follows', '127.0.0.1', port, own)
    true.line()
    opened = suite.count(one, 'opened')
    bed.halt(one.process)
    false.process.send_signal(signal.SIGUSR1)
    problems = [line for line in [false.line()] if line != 'elsewhere']
    true.process.send_signal(signal.SIGUSR1)
    problems += [line for line in [true.line()] if line != 'connects']
    s.process.send_signal(signal.SIGUSR1)
    one.send(signal.SIGCONT)
    first = s.line()
    problems += suite.rises(one, 'opened', opened)
    false.process.kill() # the other end, if it was joined with this program, notices
    true.process.send_signal(signal.SIGUSR1)
    second = s.line()
    problems += [line for line in [first] if not line.endswith(' ConnectionResetError')]
    problems += [line for line in [second] if line != f'from {own} true end']
    suite.tap.point('who has the addresses of an earlier connection is not taken for it',
                    problems + true.ends()[1] + s.ends()[1])
    elsewhere.close()


def test(suite):
    one, problems = suite.daemon('one', CONF)
    suite.tap.point('a daemon with [smc]', problems)
    far_ends(suite, one)
    marks(suite, one)
    kept(suite, one)
    positions(suite, one)
    taken_away(suite, one, 'between two programs')
    sleepers(suite, one)
    shared(suite, one)
    page_numbers(suite, one)
    ring_numbers(suite, one)
    before_rings(suite, one)
    child_before_rings(suite, one)
    old_names(suite, one)
    suite.tap.point('nobody else has noticed', echo(suite, one, one))
    rdma, problems = suite.daemon('rdma', CONF + 'direct = no\n')
    suite.tap.point('a daemon, whose connections go by RDMA', problems)
    taken_away(suite, rdma, 'by RDMA')
    suite.tap.point('it ends', rdma.stop())


if __name__ == '__main__':
    sys.exit(run(sys.argv[1], test))
