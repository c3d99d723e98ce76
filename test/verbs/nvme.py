#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""An NVMe target and an NVMe host, both over karst:
nvme.py KARSTD KARST-RUN KARST-NVMET NVME-HOST (TAP).

nvme-host checks each byte that it reads and each answer; the target's file is then compared with
the data that the host has saved.  The first cases check that nvme-host detects errors.  The suite
interop tests each of the two programs with Linux.
"""
import os
import signal
import sys
import tempfile
import time

from verbs_bed import HANG_S, free_port, run_all, says

LIMIT_S = HANG_S
END_S = 60 # the limit is 2 s, on a busy machine
MIB = 8
NQN = 'nqn.2014-08.org.example:karst'
ADDRESS = {'ip4': '127.0.0.1', 'two': '10.77.0.1', 'ip6': '2001:db8::1'}


def serve(engine, program, port, address, words):
    """Starts a target.  @return (problems, the target, which listens)"""
    target = engine.program([program, '--nqn', NQN, '--port', port, '--address', address, *words])
    return target.until(lambda: 'is served at' in target.text(), 'serving', LIMIT_S), target


def meet(engines, programs, words, target_words=(), at='ip4', says_host=(), status=0, content=None):
    """Runs a target over engines[0] and a host over the last engine.  @words: the host's arguments;
    {f} stands for the file that the host saves to, which is then compared with the disk.  @content:
    the disk is filled with this byte at first.  @return problems."""
    with tempfile.TemporaryDirectory() as folder:
        disk, saved = os.path.join(folder, 'disk'), os.path.join(folder, 'saved')
        with open(disk, 'wb') as f:
            f.write(bytes([content or 0]) * (MIB << 20))
        port = str(free_port())
        problems, target = serve(engines[0], programs[0], port, ADDRESS[at],
                                 ['--file', disk, *target_words])
        host = None
        if not problems:
            host = engines[-1].program([programs[1], '--port', port, '--nqn', NQN, '--patience',
                                        '20', *words.format(ip=ADDRESS[at], f=saved).split()])
            problems = [f'host: {p}' for p in host.wait(LIMIT_S)]
            if host.status != status:
                problems.append(f'host: exit status {host.status}, not {status}')
            problems += says(host, says_host)
        target.process.send_signal(signal.SIGTERM)
        problems += [f'target: {p}' for p in target.wait(LIMIT_S)]
        if target.status != 0:
            problems.append(f'target: exit status {target.status}')
        if not problems and '{f}' in words:
            with open(disk, 'rb') as one, open(saved, 'rb') as other:
                if one.read() != other.read():
                    problems.append('the disk is not what the host has written')
    for engine in engines:
        problems += engine.left()
    if problems:
        problems += target.shown() + (host.shown() if host else [])
    return problems


# Errors that the host must report: name, the host's arguments, more arguments of meet(), pattern.
LIES = [
    ('bytes that nobody has written', '{ip} connect load=1,100', {'content': 7},
     r'byte \d+ is 0x7, not 0'),
    ('a write that fails', '{ip} connect load=1,100', {'target_words': ['--read-only']},
     r'opcode 1, .* status 0x4020'),
    ('another refusal', '--nqn wrong {ip} refuse=4184', {}, r'status 0x4182 instead of 0x4184'),
    ('no refusal', '{ip} refuse=4182', {}, r'status 0 instead of 0x4182'),
    ('somebody who is there', '{ip} nobody', {}, r'does not reject'),
    ('a namespace that is not there', '{ip} connect sizes=2', {}, r'namespace 2 is not there'),
    ('keys that do not end', '{ip} connect stale=1', {}, r'those of windows'),
]
WRONG = [
    ('{ip} conect', r"'conect' is not a step"),
    ('{ip} sizes=1', r'who is not connected'),
    ('{ip} connect connect', r'who is connected'),
    ('{ip} connect sizes=x', r"'x' is not a number"),
    ('{ip} connect load=1', r'something is missing'),
    ('--queues 9 {ip} discover', r"'9' is not a number from 1 to 8"),
]
WELL = [
    ('all steps', '{ip} discover reject connect sizes=1 load=1,300 flush=1 zeroes=1 '
     'beyond=1 unknown=1 save=1,{f} off', (), r'(?m)^off$'),
    # not in the case above: on a busy machine its steps take longer than the keep-alive timeout
    ('kept alive', '--kato 20000 {ip} connect keep-alive=25 off', (), r'(?m)^off$'),
    ('by memory windows', '--windows --queues 3 --entries 17 --seed 5 {ip} discover connect '
     'sizes=1 load=1,2000 unknown=1 flush=1 save=1,{f} off', (),
     r' [1-9]\d* keys bound, [1-9]\d* invalidated'),
    ('deep queues, nothing in the capsule', '--entries 128 {ip} connect load=1,2000 flush=1 '
     'save=1,{f} off', ('--in-capsule', '0'), r' 0 with data in the capsule'),
    ('one command at a time', '--entries 2 --windows {ip} connect sizes=1 load=1,100 save=1,{f} '
     'off connect off', ('--block-size', '4096'), r'100 commands are right'),
    ('an invalidated key', '--windows {ip} connect stale=1', (), r'queue 1 ends: '),
    ('silence', '--kato 1000 {ip} connect silence', (), r'has ended all connections'),
]


def single(tap, tools, engine, *programs):
    programs = [os.path.abspath(program) for program in programs]
    for name, words, more, said in LIES:
        tap.point(f'not expected, and found: {name}',
                  meet([engine], programs, words, says_host=[said], status=1, **more))
    for words, said in WRONG:
        tap.point(f'refused: {words.replace("{ip} ", "")}',
                  meet([engine], programs, words, says_host=[said], status=1))
    for name, words, target_words, said in WELL:
        tap.point(f'one engine: {name}',
                  meet([engine], programs, words, target_words, says_host=[said]))


def double(tap, tools, engines, *programs):
    programs = [os.path.abspath(program) for program in programs]
    for number, (name, words, target_words, said) in enumerate(WELL[:5]):
        tap.point(f'two engines: {name}',
                  meet(engines, programs, words, target_words, ('two', 'ip6')[number % 2],
                       says_host=[said]))
    tap.point('two engines: a host that takes no answers leaves others buffers',
              crowd(engines, programs, ['--buffers', '8'], greedy, [r'waits for a buffer [1-9]']))
    tap.point('two engines: an address has three quarters of the controllers',
              crowd(engines, programs, ['--controllers', '4', '--io-queues', '2'], many,
                    [r'gets no more: an address has', r"rejected (\d+) \(\1 beyond an address's share\)"]))
    tap.point('two engines: a target that ends takes no more hosts', ends_alone(engines, programs))


def ends_alone(engines, programs):
    """A target must end within the time limit of the connections that it has then: of a host that does
    not answer, while another host connects again and again.  @return problems."""
    port = str(free_port())
    problems, target = serve(engines[0], programs[0], port, ADDRESS['two'], ['--ramdisk', '8M'])
    words = [programs[1], '--port', port, '--nqn', NQN, ADDRESS['two'], 'connect', 'event']
    again = ['sh', '-c', 'for i in 1 2 3 4; do "$@"; done', 'sh', *words]
    hosts = []
    for engine, command in (engines[1], words), (engines[0], again):
        if not problems:
            hosts.append(engine.program(command))
            problems = hosts[-1].until(lambda: 'an event is waited for' in hosts[-1].text(),
                                       'connected', LIMIT_S)
    if not problems:
        os.killpg(hosts[0].process.pid, signal.SIGSTOP)
    target.process.send_signal(signal.SIGTERM)
    problems += [f'target: {p}' for p in target.wait(END_S)]
    for host in hosts:
        host.kill()
    for engine in engines:
        problems += engine.left()
    if problems:
        for program in (target, *hosts):
            problems += program.shown()
    return problems


def crowd(engines, programs, words, run, says_target):
    """Runs a target with the arguments @words, and hosts: @run(host, engines) starts hosts by
    host(engine, steps...) and returns problems.  @says_target: what the target must print.
    @return problems."""
    port = str(free_port())
    problems, target = serve(engines[0], programs[0], port, ADDRESS['two'],
                             ['--ramdisk', '8M', *words])
    hosts = []

    def host(engine, *steps):
        hosts.append(engine.program([programs[1], '--port', port, '--nqn', NQN, '--patience', '20',
                                     '--queues', '2', ADDRESS['two'], 'connect', *steps]))
        return hosts[-1]

    if not problems:
        problems = run(host, engines)
    for one in hosts:
        one.kill()
    target.process.send_signal(signal.SIGTERM)
    problems += [f'target: {p}' for p in target.wait(LIMIT_S)]
    problems += says(target, says_target)
    for engine in engines:
        problems += engine.left()
    if problems:
        for program in (target, *hosts):
            problems += program.shown()
    return problems


def ended(host, status):
    problems = [f'host: {p}' for p in host.wait(LIMIT_S)]
    if host.status != status:
        problems.append(f'host: exit status {host.status}, not {status}')
    return problems


def greedy(host, engines):
    """A host that reads no answers occupies all buffers that it can get; another host must work."""
    one = host(engines[1], 'hold=1')
    problems = one.until(lambda: 'holds what it gets' in one.text(), 'holding', LIMIT_S)
    return problems or ended(host(engines[0], 'load=1,300', 'off'), 0)


def many(host, engines):
    """Connects hosts at one address until it gets no more controllers.  A host at another address
    must still be able to connect."""
    problems, there = [], []
    for _ in range(3):
        one = host(engines[1], 'event')
        problems = problems or one.until(lambda: 'an event is waited for' in one.text(), 'connected', LIMIT_S)
        there.append(one)
    for _ in range(2):
        beyond = host(engines[1], 'off')
        problems = problems or ended(beyond, 1) + says(beyond, [r'rejects the connection, status 6'])
    problems = problems or ended(host(engines[0], 'load=1,30', 'off'), 0)
    there[0].kill()
    # until the target has seen the end of all connections of that host
    end = time.monotonic() + LIMIT_S
    again = None
    while not problems and (again is None or again.status != 0):
        again = host(engines[1], 'load=1,30', 'off')
        problems = again.wait(LIMIT_S)
        if time.monotonic() > end:
            problems.append('nothing has become free')
    return problems


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, single, double, more=2))
