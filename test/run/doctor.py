#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What karst-run --doctor finds in set-ups that are broken: doctor.py KARST-RUN KARSTD (TAP)."""
import os
import re
import shutil
import socket
import struct
import sys
import tempfile
import threading

from run_bed import (HEADER, IS_ROOT, MAGIC, USERS, VERSION, Daemon, Run, Tap, differ, expect,
                     who)

# A user namespace in which no further one can be made, and no mounts.
NO_NAMESPACES = ['unshare', '-Ur', 'sh', '-c',
                 'echo 0 > /proc/sys/user/max_mnt_namespaces && '
                 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', 'sh']
EPROTO = 71


def verdicts(done):
    return re.findall(r'^(ok|note|wrong) +([^:]+): (.*)$', done.stdout, re.MULTILINE)


def finds(done, what, *texts):
    """Problems: something else than @what is wrong, or the line lacks one of @texts."""
    wrong = [(name, text) for verdict, name, text in verdicts(done) if verdict == 'wrong']
    problems = differ('exit status', done.returncode, 1)
    problems += differ('what is wrong', [name for name, _ in wrong], [what])
    problems += [f'"{text}" is not said' for text in texts
                 if not any(text in line for _, line in wrong)]
    return problems + ([done.stdout, done.stderr] if problems else [])


def well(tap, program, path):
    for nobody in USERS:
        done = Run(program, '--doctor', socket=path, nobody=nobody)()
        found = {name for _, name, _ in verdicts(done)}
        problems = expect(done, 0, 'all is well')
        problems += [f'nothing about {name}' for name in (
            'engine', 'device karst0', 'libibverbs', 'provider', 'namespaces', 'netlink', 'memory',
            'huge pages') if name not in found]
        tap.point(f'{who(nobody)}: all is well', problems)


def private(tap, program, folder):
    runtime = tempfile.mkdtemp(dir=folder)
    done = Run(program, '--private', '--linger', '0', '--doctor',
               env={'XDG_RUNTIME_DIR': runtime})()
    tap.point('a private engine is started to see whether it can be', expect(
        done, 0, 'engine: a private one', f'{runtime}/karst/karst.sock', 'all is well'))


def no_private(tap, program, folder):
    """In the place of karstd there is no program."""
    lonely = os.path.join(folder, 'app', 'karst-run')
    os.makedirs(lonely)
    alone = shutil.copy(program, os.path.join(lonely, 'karst-run'))
    found = Run(program, '--private', '--doctor')()
    provider = re.search(r'provider: (.*-rdmav34\.so)$', found.stdout, re.MULTILINE)
    done = Run(alone, '--private', '--linger', '0', '--doctor', '--provider', provider.group(1),
               env={'XDG_RUNTIME_DIR': tempfile.mkdtemp(dir=folder)})()
    tap.point('a private engine that cannot be had',
              finds(done, 'engine', 'a private one', '--socket'))


def engines(tap, program, karstd, folder):
    done = Run(program, '--doctor', socket='/nowhere/karst.sock')()
    tap.point('no engine', finds(done, 'engine', '/nowhere/karst.sock', 'karstd --socket /nowhere/karst.sock'))
    d = Daemon(karstd, folder, '[socket]\nmode = 0600\n', name='mine')
    problems = d.start()
    if not IS_ROOT: # only root has access to an engine without permissions
        os.chmod(d.socket, 0)
    done = Run(program, '--doctor', socket=d.socket, nobody=IS_ROOT)()
    problems += finds(done, 'engine', 'Permission denied', '[socket] mode')
    tap.point('an engine for others', problems + d.stop())


def answer_as_another_version(server):
    client, _ = server.accept()
    with client:
        seq = HEADER.unpack_from(client.recv(65536))[4]
        words = b'abi 999: the rings of this engine are of another number'.ljust(512, b'\0')
        client.send(HEADER.pack(MAGIC, VERSION, 1, HEADER.size + len(words), seq, -EPROTO, 0) +
                    words)
        client.recv(1)


def another_version(tap, program, folder):
    path = os.path.join(folder, 'other.sock')
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen()
        thread = threading.Thread(target=answer_as_another_version, args=[server], daemon=True)
        thread.start()
        done = Run(program, '--doctor', socket=path)()
        thread.join()
    tap.point('an engine of another version', finds(done, 'engine', 'start karstd'))


def providers(tap, program, path, folder):
    broken = os.path.join(folder, 'broken-rdmav34.so')
    with open(broken, 'w', encoding='utf-8') as f:
        f.write('no library')
    done = Run(program, '--doctor', '--provider', broken, socket=path)()
    tap.point('a provider that cannot be loaded', finds(done, 'provider', 'cannot be loaded'))
    alone = shutil.copy(program, os.path.join(folder, 'karst-run'))
    done = Run(alone, '--doctor', socket=path)()
    if os.path.exists('/usr/local/lib/x86_64-linux-gnu/libibverbs/libkarst-rdmav34.so'):
        tap.skip('no provider', 'one is installed')
        return
    tap.point('no provider', finds(done, 'provider', 'is not there', '--provider'))
    done = Run(alone, socket=path)('true')
    tap.point('without a provider nothing is run',
              expect(done, 125, 'is not there', '--provider', stream='stderr'))


def libraries(tap, program, path, folder):
    """A libibverbs of another private ABI: an empty library of its name."""
    lib = os.path.join(folder, 'lib')
    os.mkdir(lib)
    os.system(f'echo "int nothing;" | cc -shared -fPIC -x c -Wl,-soname,libibverbs.so.1 '
              f'-o {lib}/libibverbs.so.1 -')
    done = Run(program, '--doctor', socket=path, env={'LD_LIBRARY_PATH': lib})()
    wrong = {name: text for verdict, name, text in verdicts(done) if verdict == 'wrong'}
    problems = differ('exit status', done.returncode, 1)
    problems += [] if 'another private ABI' in wrong.get('libibverbs', '') else [done.stdout]
    tap.point('a libibverbs of another private ABI', problems)


def no_namespaces(tap, program, path):
    done = Run(program, '--doctor', socket=path, before=NO_NAMESPACES)()
    found = [verdict for verdict, name, _ in verdicts(done) if name == 'namespaces']
    tap.point('no namespaces: it can be done without',
              expect(done, 0, 'max_user_namespaces') + differ('verdict', found, ['note']))
    run = Run(program, socket=path, before=NO_NAMESPACES)
    done = run('sh', '-c', 'ls $SYSFS_PATH/class/infiniband; ibv_devices')
    tap.point('no namespaces: variables are used instead',
              expect(done, 0, 'karst0\n', '    karst0'))
    done = Run(program, '--mode', 'ns', socket=path, before=NO_NAMESPACES)('echo', 'run')
    tap.point('no namespaces: --mode ns says so', expect(
        done, 125, 'namespaces cannot be had', '--mode env', stream='stderr') +
              differ('stdout', done.stdout, ''))


def limits(tap, program, path):
    limited = ['sh', '-c', 'ulimit -l 16; exec "$@"', 'sh']
    done = Run(program, '--doctor', socket=path, nobody=IS_ROOT, before=limited)()
    tap.point('a low limit of locked memory is a note',
              expect(done, 0, 'RLIMIT_MEMLOCK is 16384', 'all is well'))


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, karstd = os.path.abspath(argv[1]), os.path.abspath(argv[2])
    tap = Tap()
    if not IS_ROOT:
        tap.skip('as nobody', 'must be root')
    with tempfile.TemporaryDirectory(prefix='kr') as folder:
        os.chmod(folder, 0o755)
        d = Daemon(karstd, folder, '[socket]\nmode = 0666\n', name='doctor')
        problems = d.start()
        tap.point('an engine starts', problems)
        if not problems:
            well(tap, program, d.socket)
            private(tap, program, folder)
            no_private(tap, program, folder)
            engines(tap, program, karstd, folder)
            another_version(tap, program, folder)
            providers(tap, program, d.socket, folder)
            libraries(tap, program, d.socket, folder)
            no_namespaces(tap, program, d.socket)
            limits(tap, program, d.socket)
        tap.point('the engine is still there, and ends', d.stop())
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
