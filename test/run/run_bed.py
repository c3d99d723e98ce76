# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst-run under test, and what the tests of this folder share."""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'usertools'))
sys.dont_write_bytecode = True
import karst_observe  # noqa: E402,F401
from bed import HEADER, MAGIC, VERSION, Daemon, HANG_S, Tap, free_port  # noqa: E402,F401
from karst_listen import listens  # noqa: E402,F401

# it is our own engine, which answers when it gets a processor
karst_observe.TIMEOUT_S = HANG_S

NOBODY = 65534
# Variables of the user that would change what is tested.
MEDDLING = ('KARST_SOCKET', 'SYSFS_PATH', 'RDMAV_DRIVERS', 'IBV_DRIVERS', 'LD_PRELOAD',
            'XDG_RUNTIME_DIR')
IS_ROOT = os.getuid() == 0
# The users as which karst-run is tried: the user who runs the test, and, if that is root, nobody,
# too.
USERS = (False, True) if IS_ROOT else (False,)
AS_NOBODY = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups']


class Run:
    """karst-run with @options, at the engine of @socket if one is given, as root or nobody."""

    def __init__(self, program, *options, socket=None, nobody=False, env=None, before=()):
        self.command = [*before, *(AS_NOBODY if nobody else []), program, *options]
        if socket:
            self.command += ['--socket', socket]
        self.env = {k: v for k, v in os.environ.items() if k not in MEDDLING}
        # folders that nobody may not search would change the message about a missing program
        self.env['PATH'] = '/usr/bin:/usr/sbin:/bin:/sbin'
        self.env.update(env or {})

    def start(self, *args, **kwargs):
        return subprocess.Popen([*self.command, *args], stdin=subprocess.DEVNULL, env=self.env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)

    def __call__(self, *args, **kwargs):
        return subprocess.run([*self.command, *args], stdin=subprocess.DEVNULL, env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=HANG_S, check=False, **kwargs)

    def shell(self, script, **kwargs):
        return self('sh', '-c', script, **kwargs)


def expect(done, status, *texts, stream='stdout'):
    """Problems: another exit status, or a text is missing."""
    said = getattr(done, stream)
    problems = [] if done.returncode == status else [f'exit status {done.returncode}, not {status}']
    problems += [f'"{text}" is not said' for text in texts if text not in said]
    return problems + ([f'stdout: {done.stdout}', f'stderr: {done.stderr}'] if problems else [])


def who(nobody):
    return 'nobody' if nobody else 'root' if IS_ROOT else 'user'


def differ(what, is_, should_be):
    return [] if is_ == should_be else [f'{what}: {is_!r}, not {should_be!r}']


def becomes(what, condition):
    """Problems: the condition does not become true within the time limit."""
    began = time.monotonic()
    while time.monotonic() - began < HANG_S:
        if condition():
            return []
        time.sleep(0.02)
    return [f'{what}: not within {HANG_S} s']


def processes(text):
    """Numbers of the processes whose command line contains @text."""
    found = []
    for name in os.listdir('/proc'):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f'/proc/{name}/cmdline', 'rb') as f:
                    if text.encode() in f.read():
                        found.append(int(name))
            except OSError:
                pass
    return found


def free_tcp_port():
    return str(free_port())


def alone(*programs):
    """Restarts this test, as root, with a /tmp of its own: karst-run has folders there that are
    named after users, and the contents of other programs of the same user must not influence the
    test.  Not if that would hide @programs."""
    if IS_ROOT and 'KARST_TEST_ALONE' not in os.environ and \
            not any(os.path.abspath(path).startswith('/tmp/') for path in [__file__, *programs]):
        os.environ['KARST_TEST_ALONE'] = '1'
        os.execvp('unshare', ['unshare', '--mount', '--propagation', 'private', 'sh', '-c',
                              'mount -t tmpfs -o mode=1777 tmp /tmp && exec "$@"', 'sh',
                              sys.executable, *sys.argv])
