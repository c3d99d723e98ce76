#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Start, stop and everything in between: life.py KARSTD (TAP).

Nothing is timed but what is printed for people.
"""
import glob
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Daemon, HANG_S, HugePages, Tap, call, connect, hello, words  # noqa: E402

LOOPBACK = '[port loop]\ndevice = loopback\n'
# What such a daemon needs, and no more.  Daemons of other tests take huge pages by themselves if
# there are enough; they must not depend on these, which are removed again.
HUGE_PAGES, HUGE_TRIES = 46, 5
REFUSALS = 40


def starts_and_stops(tap, karstd, folder):
    d = Daemon(karstd, os.path.join(folder), LOOPBACK, name='life')
    tap.point('it starts and tells systemd', d.start())
    if d.start_s:
        tap.note(f'ready after {d.start_s:.2f} s')
    tap.point('the socket takes connections', connects(d.socket))
    other = Daemon(karstd, folder, LOOPBACK, name='other', path=d.socket)
    tap.point('a second one on the same socket refuses to start, and names the first',
              other.refuses(3, f'another karstd, process {d.process.pid} serves'))
    tap.point('the first one is still there', connects(d.socket))
    tap.point('SIGTERM stops it', d.stop())
    tap.point('nothing is left of socket and lock',
              [f'{path} is there' for path in (d.socket, d.socket + '.lock')
               if os.path.lexists(path)])
    tap.point('it starts again', d.start())
    tap.point('SIGINT stops it, too', d.stop(signal.SIGINT))


def connects(path):
    try:
        connect(path).close()
    except OSError as e:
        return [f'{path}: {e}']
    return []


def after_a_crash(tap, karstd, folder):
    d = Daemon(karstd, folder, LOOPBACK, name='crash')
    problems = d.start()
    d.kill()
    if not os.path.exists(d.socket):
        problems.append('kill -9 leaves no socket, so this point shows nothing')
    tap.point('kill -9 leaves a socket behind', problems)
    tap.point('the next one replaces it', d.start() + connects(d.socket) + d.stop())


def at_most_one(tap, karstd, folder):
    """Several are started at once: one of them gets the socket."""
    ds = [Daemon(karstd, folder, LOOPBACK, name=f'race{i}', path=os.path.join(folder, 'race.sock'))
          for i in range(3)]
    processes = [subprocess.Popen(d.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) for d in ds]
    began = time.monotonic()
    while sum(p.poll() is None for p in processes) > 1 and time.monotonic() - began < HANG_S:
        time.sleep(0.05)
    alive = [p for p in processes if p.poll() is None]
    codes = [p.returncode for p in processes if p.returncode is not None]
    problems = [] if len(alive) == 1 and codes == [3, 3] else \
        [f'{len(alive)} live on, the others ended with {codes}']
    for p in alive:
        p.terminate()
        p.wait(HANG_S)
    tap.point('of three that are started at once, one has the socket', problems)


# As systemd-nspawn does it: of /sys there are these alone.
NO_MODULES = '''mount -t tmpfs none /mnt || exit 9
for name in bus class devices kernel; do
	mkdir "/mnt/$name" && mount --rbind "/sys/$name" "/mnt/$name" || exit 9
done
mount --rbind /mnt /sys && exec "$@"'''


def sockets_of_others(tap, karstd, folder):
    path = os.path.join(folder, 'taken')
    with open(path, 'w', encoding='utf-8') as f:
        f.write('precious')
    d = Daemon(karstd, folder, LOOPBACK, name='file', path=path)
    problems = d.refuses(1, path, 'not a socket')
    with open(path, encoding='utf-8') as f:
        if f.read() != 'precious':
            problems.append('the file has changed')
    tap.point('a file in the place of the socket is not touched', problems)
    path = os.path.join(folder, 'others')
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(path)
        sock.listen()
        d = Daemon(karstd, folder, LOOPBACK, name='others', path=path)
        problems = d.refuses(3, 'another program listens')
        if not os.path.exists(path):
            problems.append('the socket is gone')
        tap.point('another program that listens there is not disturbed', problems)
    d = Daemon(karstd, folder, LOOPBACK, name='nowhere', path='/proc/none/karst.sock')
    tap.point('a folder that cannot be made', d.refuses(1, '/proc/none'))
    if subprocess.run(['unshare', '--mount', 'true'], stderr=subprocess.DEVNULL,
                      check=False).returncode == 0:
        d = Daemon(karstd, folder, name='nosys')
        d.command = ['unshare', '--mount', 'sh', '-c', NO_MODULES, 'sh', *d.command]
        tap.point('a container without /sys/module', d.refuses(1, '--bind-ro=/sys/module'))
    else:
        tap.skip('a container without /sys/module', 'needs a mount namespace')


def permissions(tap, karstd, folder):
    if os.getuid() != 0:
        tap.skip('permissions of the socket', 'needs root to give files away')
        return
    path = os.path.join(folder, 'new', 'karst.sock')
    d = Daemon(karstd, folder, LOOPBACK + '[socket]\nmode = 0620\nowner = 1234\ngroup = 4321\n',
               name='perm', path=path)
    problems = d.start()
    if not problems:
        st = os.stat(path)
        found = (oct(stat.S_IMODE(st.st_mode)), st.st_uid, st.st_gid)
        if found != ('0o620', 1234, 4321):
            problems.append(f'mode, owner and group are {found}')
        if not may_connect(path, 1234) or may_connect(path, 9999):
            problems.append('the owner may not connect, or a stranger may')
    tap.point('mode, owner and group of the socket are as configured', problems + d.stop())


def may_connect(path, uid):
    script = ('import os, socket, sys\n'
              f'os.setgroups([]); os.setgid({uid}); os.setuid({uid})\n'
              's = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n'
              f's.connect({path!r})\n')
    os.chmod(os.path.dirname(path), 0o755)
    os.chmod(os.path.dirname(os.path.dirname(path)), 0o755)
    return subprocess.run([sys.executable, '-c', script], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def missing_devices(tap, karstd, folder):
    for name, device, texts in (
            ('an interface', 'karstnone0', ['port a: there is no interface karstnone0']),
            ('a PCI device', 'ffff:ff:1f.7', ['port a: there is no PCI device ffff:ff:1f.7']),
            ('a virtual device', 'net_nonsense0', ['port a: DPDK has no driver for a device net_nonsense0',
                                                   'librte_net_*.so']),
            ('an interface that is not Ethernet', 'lo', ['port a'])):
        d = Daemon(karstd, folder, f'[port a]\ndevice = {device}\naddresses = 192.0.2.1/24\n',
                   name='missing')
        tap.point(f'{name} that is not there', d.refuses(1, *texts))
    d = Daemon(karstd, folder,
               '[port a]\ndevice = karstnone0\n[port b]\ndevice = karstnone1\n', name='missing')
    tap.point('all missing interfaces are reported', d.refuses(1, 'karstnone0', 'karstnone1'))
    left = [name for name in os.listdir(folder) if name.startswith('missing.sock')]
    tap.point('nothing is left of those that did not start', left)


def drivers(tap, karstd, folder):
    """Only those of DPDK's drivers are loaded that ports need."""
    null = '[port a]\ndevice = net_null0\naddresses = 192.0.2.1/24\n'
    files = glob.glob('/usr/lib*/*/dpdk/pmds-*/librte_net_null.so')
    name, missing = 'only drivers that ports want are loaded', 'a driver that cannot be loaded is named'
    if len(files) != 1:
        tap.skip(name, 'DPDK is not installed as Debian has it')
        tap.skip(missing, 'DPDK is not installed as Debian has it')
        return
    d = Daemon(karstd, folder, null, name='driver')
    problems = d.start()
    with open(f'/proc/{d.process.pid}/maps', encoding='utf-8') as f:
        loaded = set(re.findall(r'librte_net_(\w+)\.so', f.read()))
    if 'null' not in loaded or loaded & {'i40e', 'memif', 'pcap', 'virtio'}:
        problems.append(f'drivers: {sorted(loaded)}')
    tap.point(name, problems + d.stop())
    if os.geteuid() != 0:
        tap.skip(missing, 'hiding a file needs root')
        return
    d = Daemon(karstd, folder, null, name='driver')
    d.command = ['unshare', '--mount', 'sh', '-c', f'mount --bind /dev/null {files[0]} && exec "$@"', 'sh',
                 *d.command]
    tap.point(missing, d.refuses(1, f"port a: DPDK's driver {files[0]} is not loaded: "))


def memory(tap, karstd, folder):
    d = Daemon(karstd, folder, LOOPBACK + '[engine]\nhuge_pages = yes\nmemory = 1T\n', name='huge')
    tap.point('huge pages that are not there', d.refuses(1, 'huge_pages = yes', 'vm.nr_hugepages'))
    d = Daemon(karstd, folder, LOOPBACK + '[engine]\nhuge_pages = no\nmemory = 1T\n', name='vast')
    tap.point('more memory than the machine has', d.refuses(1, '1048576 MiB', 'and the machine has',
                                                            '[engine] memory'))
    d = Daemon(karstd, folder, LOOPBACK + '[engine]\nhuge_pages = no\n', name='small')
    tap.point('without huge pages', d.start() + d.stop())
    if d.start_s:
        tap.note(f'without huge pages ready after {d.start_s:.2f} s')
    with HugePages(HUGE_PAGES) as pages:
        if not pages.there:
            tap.skip('with huge pages', 'the machine has none to give')
            return
        d = Daemon(karstd, folder, LOOPBACK + '[engine]\nhuge_pages = yes\n', name='large')
        for _ in range(HUGE_TRIES):
            problems = d.start()
            if not problems:
                break
            if pages.taken(): # otherwise they were, and are free again
                pages.more()
        tap.point('with huge pages', problems + d.stop())
    if d.start_s:
        tap.note(f'with huge pages ready after {d.start_s:.2f} s')


def logs(tap, karstd, folder):
    path = os.path.join(folder, 'karst.log')
    conf = LOOPBACK + f'[log]\nfile = {path}\n'
    d = Daemon(karstd, folder, conf, name='log')
    problems = d.start()
    if 'listens on' not in read(path):
        problems.append('the log file does not tell of the start')
    if f'configuration: {d.conf}' not in read(path):
        problems.append('nor which configuration it is')
    tap.point('a log file', problems)
    os.rename(path, path + '.1')
    tap.point('SIGHUP opens it again', d.reload() + said(path, 'read again'))
    before = len(read(path))
    tap.point('a configuration with errors changes nothing, and says what is wrong',
              d.reload(conf + 'level = loud\n') + said(path, 'loud', before) +
              said(path, 'is not changed', before))
    before = len(read(path))
    problems = d.reload(conf + '[engine]\nidle = poll\n[limits]\nqps = 5\n')
    problems += said(path, '[engine] has changed', before) + said(path, 'read again', before)
    if '[port] has' in read(path) or '[socket] has' in read(path):
        problems.append('so is what does not: ' + read(path))
    tap.point('what needs a restart is named', problems)
    before = len(read(path))
    problems = d.reload(conf + 'level = error\n') + d.reload()
    if read(path)[before:]:
        problems.append('level = error still lets through: ' + read(path)[before:])
    tap.point('the level changes', problems + d.stop())
    d = Daemon(karstd, folder, LOOPBACK + '[log]\nfile = /proc/none/log\n', name='log')
    tap.point('a log file that cannot be opened', d.refuses(1, '/proc/none/log'))


def read(path):
    try:
        with open(path, encoding='utf-8', errors='replace') as f:
            return f.read()
    except OSError:
        return ''


def said(path, text, since=0):
    found = read(path)[since:]
    return [] if text in found else [f'{path} does not say "{text}": {found}']


def full_disk(tap, karstd, folder):
    disk = os.path.join(folder, 'disk')
    os.mkdir(disk)
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=16k', 'tmpfs', disk], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        tap.skip('a full disk', 'a tmpfs cannot be mounted here')
        return
    try:
        log = os.path.join(disk, 'log')
        d = Daemon(karstd, folder, LOOPBACK + f'[log]\nfile = {log}\n', name='full')
        problems = d.start()
        ballast = os.path.join(disk, 'ballast')
        with open(ballast, 'wb', buffering=0) as f:
            try:
                while True:
                    f.write(b'x' * 512)
            except OSError:
                pass
        size = os.path.getsize(log)
        for _ in range(100): # fills the rest of the log's last page
            problems += d.reload()
        problems += connects(d.socket)
        if os.path.getsize(log) > size + 4096:
            problems.append('the disk is not full, so this point shows nothing')
        tap.point('a full disk for the log does not stop it', problems)
        os.unlink(ballast)
        tap.point('when there is room again, it tells how much was lost',
                  d.reload() + said(log, 'messages were lost: No space left') + d.stop())
    finally:
        subprocess.run(['umount', disk], check=False)


def clients(tap, karstd, folder):
    conf = (LOOPBACK + '[socket]\nmax_clients = 3\n[log]\nlevel = info\n'
            '[limits]\nclients = 1\n[limits @root]\nclients = 1\n[limits root]\nclients = 2\n')
    d = Daemon(karstd, folder, conf, name='client')
    tap.point('a daemon for three programs', d.start())
    try:
        first, second = connect(d.socket), connect(d.socket)
        status = [call(s, hello())[0] for s in (first, second)]
        tap.point('two programs of a user attach', [] if status == [0, 0] else [f'{status}'])
        third = connect(d.socket)
        status, body = call(third, hello())
        tap.point('the third is refused with the reason',
                  [] if status == -87 and '[limits] clients' in words(body) else
                  [f'status {status}: {words(body)}'])
        for _ in range(REFUSALS):
            refused = connect(d.socket)
            call(refused, hello())
            refused.close()
        lines = d.text().count('is refused')
        tap.point('those who are refused again and again do not fill the log',
                  [] if 0 < lines < REFUSALS else [f'{lines} lines of {REFUSALS + 1}'])
        second.close()
        tap.point('a program that leaves is missed', d.says('is gone'))
        second = connect(d.socket)
        tap.point('and makes room', [] if call(second, hello())[0] == 0 else ['refused'])
        status, body = call(second, b'nonsense')
        tap.point('nonsense is answered', [] if status == -71 else [f'status {status}'])
        status, body = call(first, hello(seq=7))
        tap.point('others do not notice', [] if status is not None else ['hung up'])
        since = len(d.text())
        child = subprocess.Popen([sys.executable, '-c', HOLDER, d.socket],
                                 stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        second.close()
        d.says('is gone', since)
        since = len(d.text())
        child.stdin.write(b'\n')
        child.stdin.flush()
        line = child.stdout.readline()
        child.kill()
        child.wait()
        problems = d.says(f'process {child.pid} of user 0 is gone', since)
        tap.point('a killed program is missed', problems if line else ['it did not attach'])
        problems = d.reload(conf.replace('[limits root]\nclients = 2', '[limits root]\nclients = 4'))
        more, found = [], []
        for _ in range(3):
            more.append(connect(d.socket))
            found.append(call(more[-1], hello()))
        if [status for status, _ in found] != [0, 0, -87]:
            problems.append(f'{[(status, words(body)) for status, body in found]}')
        elif '[socket] max_clients' not in words(found[2][1]):
            problems.append(words(found[2][1]))
        tap.point('SIGHUP changes limits, up to what the daemon has for all', problems)
    finally:
        tap.point('it stops while programs are attached', d.stop())
    tap.point('and they notice', [] if first.recv(100) == b'' else ['not hung up'])


class OneUser:
    """A daemon of a user who runs nothing else, and how many threads that user may have."""

    UID = 12349 # if this is root, who has no limits

    def __init__(self, karstd, folder):
        run = os.path.join(folder, 'one')
        os.mkdir(run, 0o755)
        os.chmod(folder, 0o755)
        self.daemon = Daemon(karstd, run, LOOPBACK, name='thread')
        at = self.daemon.command.index('--user')
        del self.daemon.command[at:at + 2]
        self.become, self.most = [], None
        if os.geteuid() == 0:
            os.chown(run, self.UID, self.UID)
            self.become = ['setpriv', '--reuid', str(self.UID), '--regid', str(self.UID),
                           '--clear-groups']
        self.daemon.command = ['env', f'RUNTIME_DIRECTORY={run}', *self.become,
                               *self.daemon.command]

    def threads(self, most=None):
        """None: as many as at first."""
        if most is None:
            most = self.most
        else:
            with open(f'/proc/{self.daemon.process.pid}/limits', encoding='utf-8') as f:
                self.most = re.search(r'^Max processes +(\w+)', f.read(), re.MULTILINE).group(1)
        subprocess.run([*self.become, 'prlimit', '--pid', str(self.daemon.process.pid),
                        f'--nproc={most}:'], check=True)


class Lingering:
    """A TCP socket whose last close waits: its peer reads nothing."""

    def __enter__(self):
        self.peer = socket.create_server(('127.0.0.1', 0))
        sock = socket.create_connection(self.peer.getsockname())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 1000000))
        sock.setblocking(False)
        try:
            while True:
                sock.send(bytes(65536))
        except BlockingIOError:
            return sock

    def __exit__(self, *_):
        self.peer.close()


def no_thread(tap, karstd, folder):
    user = OneUser(karstd, folder)
    d = user.daemon
    problems = d.start()
    user.threads(1)
    first = connect(d.socket)
    problems += d.says('a connection waits')
    second = connect(d.socket)
    user.threads()
    status = [call(s, hello())[0] for s in (first, second)]
    if status != [0, 0]:
        problems.append(f'{status}: {d.text()}')
    tap.point('programs wait for a thread, and are served when there is one', problems)
    user.threads(1)
    since = len(d.text())
    third = connect(d.socket)
    problems = d.says('a connection waits', since) + d.stop()
    if third.recv(100) != b'':
        problems.append('who waited is not hung up on')
    tap.point('it stops while one waits', problems)
    problems = d.start()
    user.threads(1)
    with Lingering() as lingering:
        fourth = connect(d.socket)
        socket.send_fds(fourth, [hello()], [lingering.fileno()])
        lingering.close()
        problems += d.says('a connection waits') + d.stop()
        tap.point('it stops while one waits whose message has a socket that lingers', problems)


# Attaches when told to, and waits to be killed.
HOLDER = f'''
import sys
sys.path.insert(0, {sys.path[0]!r})
from bed import connect, hello, call
sys.stdin.readline()
sock = connect(sys.argv[1])
print(call(sock, hello())[0], flush=True)
sys.stdin.readline()
sys.stdin.readline()
'''


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        for part in (starts_and_stops, after_a_crash, at_most_one, sockets_of_others, permissions,
                     missing_devices, drivers, memory, logs, full_disk, clients, no_thread):
            part(tap, argv[1], folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
