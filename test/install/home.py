#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""An ordinary user's karst, installed into his home: home.py SOURCE BUILD (TAP).

He builds the programs of doc/examples with pkg-config alone, finds the man pages, starts karstd
from there, and runs a verbs program and one of his own over it.  Then another user does the same
over the same karstd, and the programs of the two meet.  Needs root, to be two others.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Daemon, HANG_S, Tap, free_port  # noqa: E402

OWNER, OTHER = 65534, 65533
EXAMPLES = ('pingpong', 'kvget', 'lock')
COUNT = 100


class Home:
    """Where karst is installed, and how somebody works with it."""

    def __init__(self, path):
        self.path = path
        self.prefix = os.path.join(path, '.local')

    def install(self, source, build):
        """As with --prefix here: what that would write into the .pc files is put there."""
        subprocess.run(['meson', 'install', '-C', build, '--no-rebuild', '--destdir',
                        os.path.join(self.path, 'dest')], stdout=subprocess.DEVNULL, check=True)
        at = next(where for where, names, _ in os.walk(os.path.join(self.path, 'dest'))
                  if 'include' in names)
        os.rename(at, self.prefix)
        for name in ('karst', 'karst-engine'):
            path = os.path.join(self.libs(), 'pkgconfig', f'{name}.pc')
            with open(path, encoding='utf-8') as f:
                text = f.read()
            with open(path, 'w', encoding='utf-8') as f:
                f.write(re.sub('(?m)^prefix=.*', f'prefix={self.prefix}', text))
        shutil.copytree(os.path.join(source, 'doc', 'examples'), os.path.join(self.path, 'my'))
        os.chmod(self.path, 0o755)
        for where, dirs, names in os.walk(self.path):
            for name in ['.', *dirs, *names]:
                os.chown(os.path.join(where, name), OWNER, OWNER, follow_symlinks=False)

    def karstd(self):
        """A program that is the owner's karstd, whoever starts it."""
        path = os.path.join(self.path, 'owners-karstd')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(f'#!/bin/sh\nRUNTIME_DIRECTORY={self.path} exec setpriv --reuid={OWNER} --regid={OWNER} --clear-groups '
                    f'{self.prefix}/sbin/karstd "$@"\n')
        os.chmod(path, 0o755)
        return path

    def libs(self):
        return next(where for where, names, _ in os.walk(self.prefix) if 'pkgconfig' in names)

    def start(self, script, user, env=None):
        env = {'PATH': f'{self.prefix}/bin:{self.prefix}/sbin:/usr/bin:/bin', 'LC_ALL': 'C.UTF-8',
               'HOME': self.path, 'PKG_CONFIG_PATH': f'{self.libs()}/pkgconfig', **(env or {})}
        return subprocess.Popen(['setpriv', f'--reuid={user}', f'--regid={user}', '--clear-groups',
                                 'sh', '-ec', script], cwd=os.path.join(self.path, 'my'), env=env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def do(self, script, user=OWNER, env=None, says=()):
        """@return problems"""
        process = self.start(script, user, env)
        try:
            text = process.communicate(timeout=HANG_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return [f'{script}: does not end', *process.communicate()[0].splitlines()]
        problems = [] if process.returncode == 0 else [f'exit status {process.returncode}']
        problems += [f'"{word}" is not said' for word in says if word not in text]
        return problems + (text.splitlines() if problems else [])


def build(home):
    """No warning, and no path but that of the .pc file."""
    flags = '$(pkg-config --cflags --libs karst)'
    rpath = shlex.quote(f'-Wl,-rpath,{home.libs()}')
    return home.do('\n'.join(f'cc -Wall -Werror -o {name} {name}.c example.c {flags} {rpath}'
                             for name in EXAMPLES))


def meet(home, server_user, client_user, env):
    """@return problems of a ping-pong between programs of two users."""
    port = str(free_port())
    server = home.start(f'./pingpong --tcp {port} --count {COUNT}', server_user, env)
    try:
        line = server.stdout.readline()
        if 'listening' not in line:
            return [f'server: {line}', *server.communicate()[0].splitlines()]
        problems = home.do(f'./pingpong --tcp {port} --count {COUNT} 127.0.0.1', client_user, env,
                           ['all of them right'])
        if not problems and server.wait(HANG_S) != 0:
            problems.append(f'server: exit status {server.returncode}')
        return problems
    finally:
        server.kill()
        server.communicate()


def over_karstd(tap, home, env):
    name = {OWNER: 'the owner', OTHER: 'another user'}
    for user in (OWNER, OTHER):
        tap.point(f'{name[user]}: karst-run ibv_devinfo',
                  home.do('karst-run ibv_devinfo', user, env, ['karst0', 'PORT_ACTIVE']))
        tap.point(f'{name[user]}: karst-run --doctor',
                  home.do('karst-run --doctor', user, env,
                          ['all is well', f'{home.libs()}/libibverbs']))
    for server, client in ((OWNER, OWNER), (OTHER, OTHER), (OWNER, OTHER), (OTHER, OWNER)):
        tap.point(f'{name[client]} to {name[server]}', meet(home, server, client, env))


def points(tap, source, build_dir, folder):
    home = Home(folder)
    home.install(source, build_dir)
    tap.point('the examples build with pkg-config', build(home))
    tap.point('man pages are there', home.do(
        'man -M "$HOME/.local/share/man" -w karst-run karst.conf karst_open karstd'))
    daemon = Daemon(home.karstd(), folder, '[engine]\nidle = sleep\n[socket]\nmode = 0666\n',
                    name='home', args=('--user', str(OWNER)))
    problems = daemon.start()
    tap.point('karstd starts from there', problems)
    if not problems:
        over_karstd(tap, home, {'KARST_SOCKET': daemon.socket})
        tap.point('and ends', daemon.stop())


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    if os.geteuid() != 0:
        tap.skip('two users', 'needs root to become them')
        return tap.finish()
    with tempfile.TemporaryDirectory(prefix='karst-home-') as folder:
        points(tap, *argv[1:], folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
