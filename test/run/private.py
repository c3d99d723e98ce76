#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The engine that karst-run starts where there is none: private.py KARST-RUN SWAPPED (TAP).

SWAPPED is swapped.c, which is preloaded.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from run_bed import (Daemon, IS_ROOT, NOBODY, Run, Tap, alone, becomes, differ, expect,
                     free_tcp_port, listens, processes)

DEFAULT = '/run/karst/karst.sock'
SHOW = 'echo $KARST_SOCKET; cat /sys/class/infiniband/karst0/karst/socket; exec cat'


class Bed:
    """A folder for everything that karst-runs share, and checks of its contents."""

    def __init__(self, program, folder):
        self.program = program
        self.runtime = tempfile.mkdtemp(dir=folder)
        self.folder = os.path.join(self.runtime, 'karst')
        self.socket = os.path.join(self.folder, 'karst.sock')

    def run(self, *options, **kwargs):
        return Run(self.program, *options, env={'XDG_RUNTIME_DIR': self.runtime}, **kwargs)

    def engines(self):
        return [p for p in processes(self.socket) if name_of(p) == 'karstd']

    def keepers(self):
        return [p for p in processes('karst-run') if name_of(p) == 'karst-supervise' and
                self.runtime in environment(p)]

    def gone(self):
        """Problems: something is left behind."""
        problems = becomes(f'{self.folder} is gone', lambda: not os.path.exists(self.folder))
        if problems:
            problems.append(f'left: {os.listdir(self.folder)}')
        return problems + becomes('karstd has ended', lambda: not self.engines())


def name_of(pid):
    try:
        with open(f'/proc/{pid}/comm', encoding='utf-8') as f:
            return f.read().strip()
    except OSError:
        return ''


def environment(pid):
    try:
        with open(f'/proc/{pid}/environ', encoding='utf-8', errors='replace') as f:
            return f.read()
    except OSError:
        return ''


def holder(bed, *options):
    """A program that uses the engine until its input ends, and the socket that the program sees."""
    run = bed.run('--private', *options)
    process = subprocess.Popen([*run.command, 'sh', '-c', SHOW], env=run.env, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    return process, [process.stdout.readline().strip(), process.stdout.readline().strip()]


def release(process):
    process.communicate('')
    return differ('exit status', process.returncode, 0)


def meets(tap, program, folder):
    bed = Bed(program, folder)
    first, seen = holder(bed, '--linger', '0')
    problems = differ('the socket', seen, [bed.socket, bed.socket])
    second, seen = holder(bed, '--linger', '0')
    problems += differ('the socket of the second', seen, [bed.socket, bed.socket])
    problems += differ('engines', len(bed.engines()), 1)
    tap.point('two programs share a private engine', problems)
    problems = release(first)
    done = bed.run('--private', socket=None)('ibv_devices')
    problems += expect(done, 0, 'karst0') + differ('engines', len(bed.engines()), 1)
    tap.point('it stays while one of them does', problems)
    tap.point('it ends with the last one, and nothing is left', release(second) + bed.gone())


def starts_at_once(tap, program, folder):
    """Each of the six uses the engine until all of them have it."""
    bed = Bed(program, folder)
    run = bed.run('--private', '--linger', '0')
    words = ['sh', '-c', 'cat /sys/class/infiniband/karst0/node_guid; exec cat']
    started = [subprocess.Popen([*run.command, *words], env=run.env, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE) for _ in range(6)]
    guids = [p.stdout.readline() for p in started]
    problems = differ('GUIDs', len(set(guids)), 1) + differ('engines', len(bed.engines()), 1)
    said = [p.communicate('')[1] for p in started]
    problems += [p for text in said for p in differ('stderr', text, '')]
    problems += differ('exit statuses', {p.returncode for p in started}, {0})
    tap.point('six that are started at once meet in one', problems + bed.gone())


def lingers(tap, program, folder):
    bed = Bed(program, folder)
    run = bed.run('--private', '--linger', '600')
    problems = expect(run('true'), 0)
    before = bed.engines()
    problems += expect(run('true'), 0) + differ('engines', bed.engines(), before)
    tap.point('it lingers for the next one', problems + differ('engines', len(before), 1))
    for pid in before:
        os.kill(pid, signal.SIGTERM)
    tap.point('karstd that is stopped takes everything along', bed.gone())


def is_killed(tap, program, folder):
    bed = Bed(program, folder)
    process, _ = holder(bed, '--linger', '0')
    process.kill()
    process.communicate()
    tap.point('a karst-run that is killed leaves nothing', bed.gone())
    process, _ = holder(bed, '--linger', '0')
    engines, keepers = bed.engines(), bed.keepers()
    problems = differ('keepers', len(keepers), 1)
    for pid in keepers:
        os.kill(pid, signal.SIGKILL)
    problems += becomes('karstd has ended with its supervisor', lambda: not bed.engines())
    done = bed.run('--private', '--linger', '0')('ibv_devices')
    problems += expect(done, 0, 'karst0') + differ('old engines', len(engines), 1)
    problems += release(process)
    tap.point('a supervisor that is killed takes karstd along, and the next one starts anew',
              problems + bed.gone())
    process, _ = holder(bed, '--linger', '0')
    for pid in bed.engines():
        os.kill(pid, signal.SIGKILL)
    done = bed.run('--private', '--linger', '0')('ibv_devices')
    tap.point('karstd that is killed is replaced for the next program',
              expect(done, 0, 'karst0') + release(process) + bed.gone())


def by_default(tap, program, folder):
    """Nothing listens at the default socket: in a namespace with an empty /run."""
    bed = Bed(program, folder)
    empty = ['unshare', '-m', '--propagation', 'private', 'sh', '-c',
             'mount -t tmpfs none /run && exec "$@"', 'sh']
    done = bed.run('--linger', '0', before=empty)('sh', '-c', 'echo $KARST_SOCKET')
    tap.point('a private engine is the default where there is none',
              expect(done, 0, bed.socket) + bed.gone())


def for_nobody(tap, program, folder):
    """Another user has an engine of their own, in /tmp; a variable that root has left behind has no
    effect."""
    bed = Bed(program, folder)
    done = bed.run('--private', '--linger', '0', nobody=True)('sh', '-c', 'echo $KARST_SOCKET; '
                                                             'ibv_devices')
    path = f'/tmp/karst-{NOBODY}'
    tap.point('another user has an engine of his own',
              expect(done, 0, f'{path}/karst.sock\n', 'karst0') +
              becomes(f'{path} is empty', lambda: not os.path.isdir(path) or not os.listdir(path)))
    tap.point('the folder in /tmp stays, so that nobody else can take its name',
              [] if os.path.isdir(path) else [f'{path} is gone'])


def reaches_memory(tap, program, folder):
    """An engine without privileges, and programs in user namespaces of their own."""
    bed = Bed(program, folder)
    if IS_ROOT:
        os.chown(bed.runtime, NOBODY, NOBODY)
    run = bed.run('--private', '--linger', '0', nobody=IS_ROOT)
    for mode in ('ns', 'env'):
        port = free_tcp_port()
        args = ['--mode', mode, 'ibv_rc_pingpong', '-g', '0', '-c', '-n', '100', '-p', port]
        server = run.start(*args)
        problems = becomes('the server listens or ends', lambda s=server, p=port:
                           listens(int(p)) or s.poll() is not None)
        problems += expect(run(*args, '127.0.0.1'), 0, '100 iters in')
        if problems: # otherwise it may wait for a client for ever
            server.kill()
        said = server.communicate()
        problems += differ('exit status of the server', server.returncode, 0)
        tap.point(f'{mode}: it reaches the memory of that user\'s programs',
                  problems + (list(said) if problems else []) + bed.gone())


def hostile_folder(tap, program, folder):
    path = f'/tmp/karst-{NOBODY}'
    run = Run(program, '--private', '--linger', '0', nobody=True)
    if os.path.isdir(path): # of other tests
        os.rmdir(path)
    os.mkdir(path, 0o777)
    try:
        problems = expect(run('true'), 125, path, 'yours alone', 'set XDG_RUNTIME_DIR',
                          stream='stderr')
    finally:
        shutil.rmtree(path)
    os.symlink(folder, path)
    try:
        problems += expect(run('true'), 125, path, 'yours alone', stream='stderr')
    finally:
        os.unlink(path)
    tap.point('a folder that somebody else has made is refused', problems)


def swapped_folder(tap, program, swapped, folder):
    for what, options in (('the lock', ['--private', '--linger', '0']),
                          ('the tree', ['--mode', 'env'])):
        bed = Bed(program, folder)
        env = {'XDG_RUNTIME_DIR': bed.runtime, 'KARST_SWAPPED': bed.folder, 'LD_PRELOAD': swapped}
        owner, problems = None, []
        if what == 'the tree': # which is made when there is an engine
            owner = Daemon(os.path.join(os.path.dirname(program), '../karstd/karstd'), folder,
                           '[port loop]\ndevice = loopback\n', name='swap')
            problems = owner.start()
        run = Run(program, *options, socket=owner and owner.socket, env=env)
        problems = problems or expect(run('true'), 125, bed.folder, 'yours alone', stream='stderr')
        tap.point(f'a folder that is replaced before {what} is in it is refused',
                  problems + (owner.stop() if owner else []))


def fake_tree(program, folder, karstd):
    """karst-run next to another karstd, as in a build directory."""
    root = tempfile.mkdtemp(dir=folder)
    for name in ('karst-run', 'karstd'):
        os.makedirs(os.path.join(root, 'app', name))
    mine = shutil.copy(program, os.path.join(root, 'app/karst-run/karst-run'))
    daemon = os.path.join(root, 'app/karstd/karstd')
    with open(daemon, 'w', encoding='utf-8') as f:
        f.write(karstd)
    os.chmod(daemon, 0o755)
    return mine


def provider_of(program):
    return os.path.join(os.path.dirname(program), '../../drivers/verbs/libkarst-rdmav34.so')


def does_not_start(tap, program, folder):
    for name, script, text in (
            ('fails', '#!/bin/sh\necho karstd: no luck today >&2\nexit 1\n', 'no luck today'),
            ('is no program', 'nonsense', 'Exec format error')):
        bed = Bed(fake_tree(program, folder, script), folder)
        run = bed.run('--private', '--provider', provider_of(program))
        tap.point(f'karstd that {name}: its words are passed on, nothing is left',
                  expect(run('true'), 125, 'did not start', text, stream='stderr') + bed.gone())


def writes_a_log(tap, program, folder):
    bed = Bed(program, folder)
    log = os.path.join(folder, 'engine.log')
    problems = expect(bed.run('--private', '--linger', '0', '--engine-log', log)('true'), 0)
    problems += bed.gone()
    with open(log, encoding='utf-8') as f:
        text = f.read()
    problems += [] if 'listens on' in text else [f'the log: {text}']
    done = bed.run('--private', '--engine-log', '/nowhere/log')('true')
    problems += expect(done, 125, '/nowhere/log', stream='stderr') + bed.gone()
    tap.point('--engine-log has what it says', problems)


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program = os.path.abspath(argv[1])
    alone(program)
    tap = Tap()
    cases = [meets, starts_at_once, lingers, is_killed, reaches_memory, does_not_start,
             writes_a_log]
    if IS_ROOT:
        cases += [by_default, for_nobody, hostile_folder]
    else:
        tap.skip('as nobody, with an empty /run', 'must be root')
    with tempfile.TemporaryDirectory(prefix='kr') as folder:
        os.chmod(folder, 0o755)
        for case in cases:
            case(tap, program, folder)
        swapped_folder(tap, program, os.path.abspath(argv[2]), folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
