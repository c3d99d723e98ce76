# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Two systems with two ports each: what happens to connections when a link dies."""
import signal
import time

from smcbed import CONF, Program, bed, ip

PAIRS = ('10.92.0.', '10.93.0.')
KEPT = 40 # connections, whose keys are all sent when a link is added


def connect_ports(netns):
    for i, net in enumerate(PAIRS):
        ip('link', 'add', f'near{i}', 'type', 'veth', 'peer', 'name', f'far{i}', 'netns', netns)
        ip('addr', 'add', f'{net}1/24', 'dev', f'near{i}')
        # a port must have an address, and a link-local address does not give a group a second link
        ip('-n', netns, 'addr', 'add', f'{net}2/24' if i == 0 else 'fe80::2/64', 'dev', f'far{i}',
           *([] if i == 0 else ['nodad']))
        ip('link', 'set', f'near{i}', 'up')
        ip('-n', netns, 'link', 'set', f'far{i}', 'up')


def ports(name, n):
    return ''.join(f'[port p{i}]\ndevice = {name}{i}\n' for i in range(n)) + CONF + 'group_idle_s = 1\n'


def until(what, cond):
    """Waits until cond() is true.  @return problems"""
    began = time.monotonic()
    while not cond():
        if time.monotonic() - began > bed.HANG_S:
            return [f'not {what}']
        time.sleep(0.02)
    return []


def links(suite, daemon):
    return [row['links'] for row in suite.ask(daemon, '/karst/smc_groups').values()]


def queue_pairs(suite, daemon):
    return sum(row['qps'] for row in suite.ask(daemon, '/karst/lcores').values())


def talk(suite, netns, daemons, server='ports.server_back', client='ports.client_streams', n=0):
    """Starts a pair of programs.  @return the server, the client, which streams, problems"""
    port = bed.free_port()
    s = Program(suite, daemons[0], server, PAIRS[0] + '1', port, n)
    s.line()
    c = Program(suite, daemons[1], client, PAIRS[0] + '1', port, n, netns=netns)
    return s, c, [line for line in [c.line()] if line != 'connected']


def of_one_port(suite, netns, daemons):
    """The far side gets an address at its second port while the group has one link.  @return
    problems"""
    s, c, problems = talk(suite, netns, daemons)
    problems += until('one link', lambda: all(links(suite, d) == [1] for d in daemons))
    ip('-n', netns, 'addr', 'add', f'{PAIRS[1]}2/24', 'dev', 'far1')
    problems += goes_on(suite, daemons)
    c.process.send_signal(signal.SIGUSR1)
    said, more = c.ends()
    problems += more + s.ends()[1] + [line for line in [said] if line != 'same']
    return problems + until('without a group', lambda: not any(links(suite, d) for d in daemons))


def goes_on(suite, daemons):
    """Waits until both daemons have written more than before."""
    problems = []
    for daemon in daemons:
        problems += suite.rises(daemon, 'writes', suite.count(daemon, 'writes') + 100)
    return problems


def failover(suite, netns):
    connect_ports(netns)
    near, problems = suite.daemon('0near', ports('near', 2))
    far, more = suite.daemon('1far', ports('far', 2), netns)
    both = near, far
    suite.tap.point('one address at the far side: one link', problems + more + of_one_port(suite, netns, both))
    s, c, problems = talk(suite, netns, both)
    problems += until('two links', lambda: all(links(suite, d) == [2] for d in both))
    suite.tap.point('two daemons with two ports each have two links', problems + goes_on(suite, both))
    problems = until('two links and two in stock', lambda: all(queue_pairs(suite, d) == 4 for d in both))
    suite.tap.point('the queue pairs of the next two links are made in advance', problems)
    s2, c2, problems = talk(suite, netns, both, 'ports.server_back_each', 'ports.client_keeps', KEPT)
    suite.tap.point('many connections have these links', problems)
    for i in range(2): # the first link, then the second one when the first is there again
        ip('-n', netns, 'link', 'set', f'far{i}', 'down')
        problems = until('one link', lambda: all(links(suite, d) == [1] for d in both))
        suite.tap.point(f'port {i} is down, and the bytes go by the other one', problems + goes_on(suite, both))
        ip('-n', netns, 'link', 'set', f'far{i}', 'up')
        problems = until('two links', lambda: all(links(suite, d) == [2] for d in both))
        suite.tap.point('it is up, and there are two links again', problems + goes_on(suite, both))
    problems = []
    for p in c, c2:
        p.process.send_signal(signal.SIGUSR1)
        said, more = p.ends()
        problems += more + ([] if said == 'same' else [said])
    for daemon in both:
        n = suite.ask(daemon, '/karst/smc')
        if n['connected'] != 2 + KEPT or n['failover'] < 2 or suite.ask(daemon, '/karst/smc_reasons'):
            problems.append(n)
    suite.tap.point('no byte is lost or doubled', problems + s.ends()[1] + s2.ends()[1])
    suite.tap.point('both end', near.stop() + far.stop())
