# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Shared code of the suites that run programs: a karstd, its control socket, huge pages.

  sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
"""
import contextlib
import fcntl
import glob
import os
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time

from points import Tap  # noqa: F401, for those who import this module

HANG_S = 300 # limit of every wait, sufficient on a busy machine
# Leaks that are not the daemon's; only used in a build with the address sanitizer.
LSAN = 'suppressions=' + os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lsan.supp')
HEADER = struct.Struct('<IHHIIiI')
MAGIC, VERSION, HELLO = 0x6c74636b, 1, 1


# rping of rdma-core 44 closes its event channel at the end without waiting for the thread that reads it.
# If that thread then uses the channel, it ends the program with this status and message, after all work
# is done; later versions of rdma-core wait for the thread.
RPING_LATE = (255, 'rdma_get_cm_event: Bad file descriptor')


def exit_status(program):
    """The status of a program (or a Job of a guest) that has ended; 0 for the known error of rping above."""
    if program.status == RPING_LATE[0] and RPING_LATE[1] in program.text():
        return 0
    return program.status


def ring_abi():
    """The version of the ring layouts, from lib/ring."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'lib', 'ring',
                        'karst_ring.h')
    with open(path, encoding='utf-8') as f:
        return int(re.search(r'#define KARST_RING_ABI (\d+)u', f.read()).group(1))


def unit_settings(unit):
    """{key: [words]} of a systemd unit's [Service]."""
    with open(unit, encoding='utf-8') as f:
        text = f.read().split('[Service]\n', 1)[1].split('\n[', 1)[0]
    found = {}
    for key, value in re.findall(r'^(\w+)=(.*)$', text, flags=re.MULTILINE):
        found.setdefault(key, []).extend(value.split())
    return found


def by_systemd(unit, uid):
    """Words in front of a command that make it run as user @uid with the capabilities of the unit, as
    systemd would start it, as far as setpriv can do that."""
    # setpriv clears capabilities that are not named
    names = ','.join(['-all', *('+' + name[4:].lower()
                                for name in unit_settings(unit)['CapabilityBoundingSet'])])
    return ['setpriv', '--reuid', str(uid), '--regid', str(uid), '--clear-groups',
            '--bounding-set', names, '--inh-caps', names, '--ambient-caps', names,
            '--no-new-privs']


def of_threads(pid, name):
    """(number, text of /proc/PID/task/NUMBER/NAME) of each thread.  Threads that end before their file is
    opened or read are left out."""
    found = []
    for path in glob.glob(f'/proc/{pid}/task/*'):
        try:
            with open(f'{path}/{name}', encoding='utf-8', errors='replace') as f:
                found.append((int(os.path.basename(path)), f.read()))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


PORTS = range(20000, 32000) # below the kernel's range of ephemeral ports
TAKEN = [] # locks of ports, which this process holds until it ends


def free_port():
    """A TCP port without a listener, which no other test process gets, either."""
    for port in random.sample(PORTS, len(PORTS)):
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f'\0karst-test-port-{port}')
            with socket.socket() as s:
                s.bind(('', port))
        except OSError:
            lock.close()
            continue
        TAKEN.append(lock)
        return port
    raise OSError('no TCP port is free')


class Clock:
    """Detects when a processor of the machine does not run, as happens to virtual ones, or is so busy
    that runnable threads must wait."""

    TICK_S = 0.05

    def __init__(self):
        self.worst_s, self.stopped = 0, False
        self.last = {cpu: time.monotonic() for cpu in os.sched_getaffinity(0)}
        self.threads = [threading.Thread(target=self.run, args=(cpu,), daemon=True)
                        for cpu in self.last]
        for thread in self.threads:
            thread.start()

    def run(self, cpu):
        os.sched_setaffinity(0, {cpu}) # of this thread
        while not self.stopped:
            time.sleep(self.TICK_S)
            self.look(cpu)
            self.last[cpu] = time.monotonic()

    def look(self, cpu):
        self.worst_s = max(self.worst_s, time.monotonic() - self.last[cpu] - self.TICK_S)

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join()

    def stood_still(self, least_s):
        """The longest such time since the last call, if it is @least_s or more; else 0."""
        for cpu in self.last: # the pause may be over, but the thread has not run yet
            self.look(cpu)
        worst_s, self.worst_s = self.worst_s, 0
        return worst_s if worst_s >= least_s else 0


def halt(process):
    """Stops a child, and returns when none of its threads runs.  Sending the signal alone does not ensure
    that: on a busy machine other threads run until the one that got the signal has a processor."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


class Daemon:
    """karstd PROGRAM with a configuration, in @folder; in network namespace @netns if given."""

    def __init__(self, program, folder, conf='', name='karstd', netns=None, args=(), path=None):
        self.folder = folder
        self.socket = path or os.path.join(folder, name + '.sock')
        self.conf = os.path.join(folder, name + '.conf')
        self.stderr = os.path.join(folder, name + '.stderr')
        self.name = f'{name[:6]}{os.getpid()}'
        self.command = ['ip', 'netns', 'exec', netns] if netns else []
        self.command += [program, '--config', self.conf, '--socket', self.socket,
                         '--name', self.name, *args]
        if '--user' not in args: # the folders of tests are this user's
            self.command += ['--user', str(os.geteuid())]
        self.write(conf)
        self.process = None
        self.start_s = None
        self.notify = None # the socket for its messages to systemd

    def write(self, conf):
        # Huge pages only in tests of huge pages: other programs of this machine use and free them, too.
        if 'huge_pages' not in conf:
            if not re.search(r'^\[engine\]$', conf, re.MULTILINE):
                conf += '\n[engine]\n'
            conf = re.sub(r'^\[engine\]$', '[engine]\nhuge_pages = no', conf, count=1,
                          flags=re.MULTILINE)
        with open(self.conf, 'w', encoding='utf-8') as f:
            f.write(conf)

    def text(self):
        with open(self.stderr, encoding='utf-8', errors='replace') as f:
            return f.read()

    def start(self):
        """@return problems, if it does not report to systemd that it is ready."""
        path = self.conf + '.notify'
        if self.notify is not None:
            self.notify.close()
        if os.path.exists(path):
            os.unlink(path)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(path)
        os.chmod(path, 0o666) # as systemd's
        began = time.monotonic()
        with open(self.stderr, 'w', encoding='utf-8') as err:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                env=dict(os.environ, NOTIFY_SOCKET=path, LSAN_OPTIONS=LSAN))
        problems = self.ready()
        self.start_s = time.monotonic() - began
        return problems

    def ready(self):
        """Waits for READY=1."""
        began = time.monotonic()
        self.notify.settimeout(0.1)
        while time.monotonic() - began < HANG_S:
            try:
                if b'READY=1' in self.notify.recv(4096):
                    return []
            except socket.timeout:
                if self.process.poll() is not None:
                    return [f'exit status {self.process.returncode}: {self.text()}']
        return [f'not ready after {HANG_S} s: {self.text()}']

    def reload(self, conf=None):
        """Sends SIGHUP, and waits until the daemon has handled it."""
        if conf is not None:
            self.write(conf)
        self.send(signal.SIGHUP)
        return self.ready()

    def run(self):
        """Runs the daemon until it ends by itself: (exit status, output)."""
        try:
            done = subprocess.run(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False)
        except subprocess.TimeoutExpired as e:
            return 'timeout', str(e.stdout)
        return done.returncode, done.stdout

    def refuses(self, status, *texts):
        """@return problems, if it does not end with @status or does not print all @texts."""
        code, said = self.run()
        problems = [] if code == status else [f'exit status {code}, not {status}']
        problems += [f'"{text}" is not said' for text in texts if text not in said]
        return problems + ([said] if problems else [])

    def says(self, text, since=0):
        """Waits until it has printed @text after the first @since characters."""
        began = time.monotonic()
        while time.monotonic() - began < HANG_S:
            if text in self.text()[since:]:
                return []
            if self.process.poll() is not None:
                return [f'it ended instead of saying "{text}": {self.text()}']
            time.sleep(0.02)
        return [f'"{text}" is not said: {self.text()}']

    def send(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM, status=0):
        """Stops the daemon.  @return problems, if it does not end, or not with @status."""
        if self.process is None:
            return ['it was not started']
        if self.process.poll() is None:
            self.send(number)
        try:
            code = self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return [f'it does not end: {self.text()}']
        return [] if code == status else [f'exit status {code}, not {status}: {self.text()}']

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def cpu_s(pid):
    """Processor seconds that the threads of a process have used; 0 when it has ended."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as f:
            words = f.read().rsplit(')', 1)[1].split()
    except OSError:
        return 0
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


def rest(process, limit_s=None):
    """The output of a process with a pipe until it ends: the rest after reads by readline().
    (Popen.communicate() loses what came together with a line that was read.)

    @return (text, whether it ended by itself); one that does not end is killed."""
    late = threading.Event()

    def end_it():
        late.set()
        process.kill()

    patience = threading.Timer(HANG_S if limit_s is None else limit_s, end_it)
    patience.start()
    try:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        text = process.stdout.read()
        process.wait()
    finally:
        patience.cancel()
    return text, not late.is_set()


def traffic(perf, server, client, *words):
    """karst-perf as a server of one daemon, and with @words as a client of another.
    @return problems"""
    with subprocess.Popen([perf, '--connect', server, '--server', '--tcp-port', '0'],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as peer:
        line = peer.stdout.readline()
        if 'TCP port' not in line:
            return ['no server: ' + line + peer.stdout.read()]
        try:
            run = subprocess.run([perf, '--connect', client, '--peer', 'localhost', '--tcp-port',
                                  line.split()[-1], *words],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=2 * HANG_S,
                                 check=False)
        except subprocess.TimeoutExpired as e:
            peer.kill()
            return [f'not through after {2 * HANG_S} s: {e.stdout}']
        if run.returncode:
            peer.kill()
            return [f'exit status {run.returncode}: {run.stdout}{peer.stdout.read()}']
        peer.wait(HANG_S)
    return []


def connect(path):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(HANG_S)
    sock.connect(path)
    return sock


def hello(program=b'test', abi=None, seq=1):
    body = struct.pack('<64sII', program, ring_abi() if abi is None else abi, 0)
    return HEADER.pack(MAGIC, VERSION, HELLO, HEADER.size + len(body), seq, 0, 0) + body


def call(sock, message):
    """(status, body of the reply); status None: the other end has closed the connection."""
    try:
        sock.sendall(message)
        reply, fds, _, _ = socket.recv_fds(sock, 65536, 128)
    except (BrokenPipeError, ConnectionResetError):
        return None, b''
    for fd in fds:
        os.close(fd)
    if len(reply) < HEADER.size:
        return None, b''
    return HEADER.unpack_from(reply)[5], reply[HEADER.size:]


def words(body):
    """The sentence in the reply to a refused request."""
    return body.split(b'\0')[0].decode(errors='replace')


class HugePages:
    """@n more huge pages for a while; "there" says whether the kernel had them.  Their number is the
    machine's, and other tests change it meanwhile: each adds what it needs and takes that away,
    with a lock while it does (test/unit/client/memory, too)."""

    ALL = '/proc/sys/vm/nr_hugepages'
    FREE = '/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages'

    def __init__(self, n):
        self.n = n
        self.added = 0
        self.there = False

    @staticmethod
    def read(path):
        with open(path, encoding='ascii') as f:
            return int(f.read())

    def add(self, n):
        """@return how many huge pages were added."""
        with open(self.ALL, 'r+', encoding='ascii') as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            before = int(f.read())
            f.seek(0)
            f.write(str(max(0, before + n)))
            f.flush()
            return self.read(self.ALL) - before

    def __enter__(self):
        try:
            self.added = self.add(self.n)
            self.there = self.added == self.n and self.read(self.FREE) >= self.n
        except (OSError, ValueError):
            pass
        return self

    def taken(self):
        """Whether another program of this machine uses some of them."""
        return self.read(self.FREE) < self.n

    def more(self):
        """Adds as many again: programs that allocate much memory by libkarst use free huge pages."""
        self.added += self.add(self.n)

    def __exit__(self, *_):
        if self.added > 0:
            self.add(-self.added)
