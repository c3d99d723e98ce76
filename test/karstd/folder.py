#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Where DPDK keeps the sockets of an ordinary user's programs: folder.py KARSTD KARST-PERF KARST-FWD.

/tmp/dpdk belongs to another user, whose program also has the name that DPDK falls back to; so it is
as soon as two users without XDG_RUNTIME_DIR have come.  In a mount namespace with a /tmp of its own.
TAP.  Needs root, to be both users.
"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Daemon, HANG_S, Tap  # noqa: E402

USER = 61237
OWN = f'/tmp/dpdk-{USER}'
OF_DAEMONS = '[port loop]\ndevice = loopback\n'
OF_OTHERS = ('RUNTIME_DIRECTORY', 'XDG_RUNTIME_DIR')
FRAMES = ['--lcores=0@0,1@0', '--no-huge', '-m', '256', '--no-pci', '--vdev', 'net_ring0', '--', '-i',
          '--idle=sleep']
MESSAGES = ['--op', 'write', '--size', '64', '--iters', '10', '--no-baselines']


def as_user(*command):
    unset = [word for name in OF_OTHERS for word in ('-u', name)]
    return ['env', *unset, 'setpriv', f'--reuid={USER}', f'--regid={USER}', '--clear-groups', *command]


def daemon_of(karstd, folder, *before):
    d = Daemon(karstd, folder, OF_DAEMONS, name='own', args=('--user', str(USER)))
    d.command = [*as_user(), *before, *d.command]
    return d


def telemetry(d, folder=OWN):
    """Problems: DPDK has logged errors, or its socket is elsewhere."""
    path = os.path.join(folder, 'dpdk', d.name, 'dpdk_telemetry.v2')
    problems = [] if os.path.exists(path) else [f'there is no {path}']
    return problems + [line for line in d.text().splitlines() if 'EAL' in line]


def daemons(tap, karstd, folder):
    d = daemon_of(karstd, folder)
    problems = d.start()
    tap.point('karstd has a folder of its user', problems + telemetry(d) + d.stop())
    of_root = os.path.join(folder, 'of-root')
    os.mkdir(of_root)
    d = daemon_of(karstd, folder, 'env', f'XDG_RUNTIME_DIR={of_root}')
    problems = d.start()
    tap.point('a run-time folder that su has left behind does not count',
              problems + telemetry(d) + d.stop())
    os.chown(of_root, USER, USER)
    d = daemon_of(karstd, folder, 'env', f'XDG_RUNTIME_DIR={of_root}')
    problems = d.start()
    tap.point('one that is the user\'s does', problems + telemetry(d, of_root) + d.stop())


def programs(tap, perf, fwd):
    for name, command, said in (('karst-perf', [perf, *MESSAGES], 'write'),
                                ('karst-fwd', [fwd, *FRAMES], 'karst-fwd>')):
        done = subprocess.run(as_user(*command), input='quit\n', stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False)
        problems = [] if done.returncode == 0 else [f'exit status {done.returncode}']
        problems += [f'"{said}" is not said'] if said not in done.stdout else []
        problems += [line for line in done.stdout.splitlines() if 'untime directory' in line]
        tap.point(f'so has {name}', problems + (done.stdout.splitlines() if problems else []))


def of_another(tap, karstd, folder):
    """What belongs to root cannot be removed by others."""
    shutil.rmtree(OWN, ignore_errors=True)
    os.mkdir(OWN, 0o755)
    tap.point('where another user has made that folder, karstd says so',
              daemon_of(karstd, folder).refuses(1, f'{OWN} must be a folder that is yours alone',
                                                'XDG_RUNTIME_DIR'))
    os.rmdir(OWN)
    os.symlink(folder, OWN)
    tap.point('nor is it a symbolic link',
              daemon_of(karstd, folder).refuses(1, f'{OWN} must be a folder that is yours alone'))


def main(argv):
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    if os.geteuid() != 0:
        tap.skip('folders of users', 'needs root to be two of them')
        return tap.finish()
    if 'KARST_TEST_ALONE' not in os.environ:
        os.environ['KARST_TEST_ALONE'] = '1'
        os.execvp('unshare', ['unshare', '--mount', '--propagation', 'private', 'sh', '-c',
                              'mount -t tmpfs -o mode=1777 tmp /tmp && exec "$@"', 'sh',
                              sys.executable, *map(os.path.abspath, sys.argv)])
    os.mkdir('/tmp/dpdk', 0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other, \
            tempfile.TemporaryDirectory() as folder:
        other.bind('/tmp/dpdk_telemetry.v2')
        other.listen()
        os.chmod(folder, 0o777)
        daemons(tap, argv[1], folder)
        programs(tap, argv[2], argv[3])
        of_another(tap, argv[1], folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
