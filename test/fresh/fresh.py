#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A clean checkout on a minimal Debian 12: fresh.py SOURCE FOLDER (TAP).

In a root of its own that has nothing but Debian's essential packages and apt, and the certificates of
authorities if packages come by https:

  karst-setup demo as root, with the packages that it installs itself and none of the tests;
  karst installed by meson, a program of doc/examples built against it, and run over its karstd;
  the same program, by a user, over the karstd that systemd has started by the installed unit;
  karst-setup demo by a user who has sudo, by one who may not use it, and where there is none.

The root is made in FOLDER by mmdebstrap from the Debian sources that this machine's apt has, and
removed at the end.  Needs root.  What it prints of times is not judged.
"""
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Tap  # noqa: E402

STEP_S = 3000  # for a build, on a machine that is busy with other suites
SCREEN_LINES = 40
HERE = '/opt/karst'  # path of the checkout, in the root
# A package that karst-setup needs and other packages do not: it is missing in the last cases.
VICTIM = 'libisal-dev'
USER = 'ada'
MEMBER = 'kim' # of the group karst
# This machine is thrown away: it need not survive a power failure, and no documentation is read
# there.  So dpkg does not wait for the disk, and leaves out what Debian's slim images leave out.
OF_DPKG = ['force-unsafe-io', *(f'path-exclude=/usr/share/{name}/*' for name in (
    'doc', 'man', 'info', 'locale'))]
# Merged from the start, like an installed machine: nothing has to be converted.
MERGED = ['--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr', '--include=usr-is-merged']

# The mounts of an installed machine; they end with the namespace.
MOUNTS = '''set -e
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount -t tmpfs -o mode=755 dev "$1/dev"
for name in null zero full random urandom tty; do
	touch "$1/dev/$name"
	mount --bind "/dev/$name" "$1/dev/$name"
done
ln -s /proc/self/fd "$1/dev/fd"
mkdir "$1/dev/shm"
mount -t tmpfs -o mode=1777 shm "$1/dev/shm"
mount -t tmpfs -o mode=1777 tmp "$1/tmp"
root=$1
shift
exec chroot "$root" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \\
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
'''


def run(args, **kwargs):
    """(exit status, output)"""
    try:
        done = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace',
                              timeout=STEP_S, check=False, **kwargs)
    except subprocess.TimeoutExpired as e:
        return 'timeout', str(e.stdout or '')
    except FileNotFoundError as e:
        return 'missing', str(e)
    return done.returncode, done.stdout


def problems_of(status, text, wanted=0):
    if status == wanted:
        return []
    return [f'exit status {status}, not {wanted}', *text.splitlines()[-40:]]


def debian_sources():
    """Lines of sources.list for Debian's own packages, as this machine's apt has them."""
    _, text = run(['apt-get', 'indextargets', '--format',
                   '$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)', 'Created-By: Packages'])
    lines = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 4 and words[3] == 'Debian' and words[2] == 'main' and \
                words[1].startswith('bookworm'):
            entry = f'deb {words[0]} {words[1]} main'
            if entry not in lines:
                lines.append(entry)
    return lines or ['deb http://deb.debian.org/debian bookworm main']


def apt_options():
    """What this machine's apt needs to reach its sources."""
    _, text = run(['apt-config', 'dump', 'Acquire::http', 'Acquire::https'])
    return [f'--aptopt={line}' for line in text.splitlines() if '::Proxy' in line]


# Two programs over the running karstd.  The function's arguments are a command that runs them.
PAIR = '''pair() {
	"$@" pingpong --tcp 0 --count 200 >/tmp/server & server=$!
	until grep -q 'port [0-9][0-9]*$' /tmp/server; do
		kill -0 $server || return 1
		sleep 0.1
	done
	"$@" pingpong --tcp "$(sed -n 's/listening on TCP port //p' /tmp/server)" --count 200 127.0.0.1 || {
		kill $server
		return 1
	}
	wait $server
}
'''

# What an administrator and a user do with the unit, as the first service of the booted root.  The ports
# and SMC-R ask for most of what the unit allows.
TRY = '/opt/karst-try'
TRY_UNIT = f'''[Unit]
After=karstd.service
Wants=karstd.service
SuccessAction=poweroff
FailureAction=poweroff
[Service]
Type=oneshot
ExecStart=/bin/sh {TRY}.sh
StandardOutput=append:{TRY}.log
StandardError=append:{TRY}.log
'''
TRY_SCRIPT = f'''set -e
{PAIR}trap '[ $? = 0 ] || journalctl --no-pager -u karstd | tail -n 40' EXIT
systemctl is-active karstd
[ "$(stat -c %U:%G:%a /run/karst/karst.sock)" = karst:karst:660 ]
for dev in veth0 veth1; do
	ip link add $dev type veth peer name $dev-peer
	ip link set $dev up
	ip link set $dev-peer up
done
ip address add 192.0.2.1/24 dev veth0
ip address add 198.51.100.1/24 dev veth1
mkdir /etc/karst
echo nonsense >/etc/karst/karst.conf
cat >/usr/local/etc/karst/karst.conf <<END
[port loopback]
device = loopback
[port kport]
device = veth0
[port xdp]
device = veth1
driver = af_xdp
[smc]
enabled = yes
END
systemctl restart karstd
systemctl is-active karstd
journalctl --sync
journalctl --no-pager -u karstd | grep -q 'configuration: /usr/local/etc/karst/karst.conf'
journalctl --no-pager -u karstd | grep -q '/etc/karst/karst.conf is not read'
journalctl --no-pager -u karstd | grep -q 'port xdp: interface veth1 by driver af_xdp'
pair setpriv --reuid=USER --regid=USER --init-groups
systemctl reload karstd
systemctl is-active karstd
[ "$(systemctl show --value -p NRestarts karstd)" = 0 ]
systemctl stop karstd
[ "$(systemctl show --value -p Result karstd)" = success ]
[ "$(systemctl show --value -p ExecMainStatus karstd)" = 0 ]
journalctl --sync
if ip link show veth1 | grep xdp/id; then exit 1; fi
if journalctl --no-pager -u karstd | grep -i error; then exit 1; fi
echo all is well
'''


class Root:
    """The fresh machine."""

    def __init__(self, path):
        self.path = path

    def make(self):
        sources = debian_sources()
        words = [*MERGED, *(f'--dpkgopt={line}' for line in OF_DPKG), *apt_options()]
        if any(' https:' in line for line in sources):
            words.append('--include=ca-certificates') # a thousand processes would search them
        # In a mount namespace of its own: if this is killed, nothing stays mounted in the folder.
        status, text = run(['unshare', '--mount', '--', 'mmdebstrap', '--variant=minbase', *words,
                            'bookworm', self.path, *sources])
        if status == 0:
            shutil.copy('/etc/resolv.conf', os.path.join(self.path, 'etc/resolv.conf'))
        return problems_of(status, text)

    def checkout(self, source):
        """What git has of the tree, and files that are not committed yet: no build directories."""
        to = self.path + HERE
        os.makedirs(to)
        names = subprocess.run(['git', '-c', 'safe.directory=*', 'ls-files', '-co',
                                '--exclude-standard', '-z'], cwd=source, check=True,
                               stdout=subprocess.PIPE).stdout
        names = b'\0'.join(n for n in names.split(b'\0')
                           if n and os.path.lexists(os.path.join(os.fsencode(source), n)))
        tar = subprocess.run(['tar', '-c', '--null', '-T', '-'], cwd=source, input=names,
                             stdout=subprocess.PIPE, check=True).stdout
        return problems_of(*run_input(['tar', '-x', '-C', to, '--no-same-owner'], tar))

    def do(self, *words):
        return run(['unshare', '--mount', '--pid', '--fork', '--kill-child', '--', 'sh', '-c',
                    MOUNTS, 'sh', self.path, *words])

    def shell(self, script, user=None):
        words = ['sh', '-c', f'cd {HERE} && {script}']
        if user is not None:
            words = ['setpriv', f'--reuid={user}', f'--regid={user}', '--init-groups', 'env',
                     f'HOME=/home/{user}', *words]
        return self.do(*words)

    def write(self, path, text):
        with open(self.path + path, 'w', encoding='utf-8') as f:
            f.write(text)

    def contain(self, *words):
        """As a container of systemd's, with a network of its own.  Its filter of system calls would be
        there besides the unit's; DPDK needs /sys/module."""
        return run(['systemd-nspawn', '--quiet', '--directory', self.path, '--machine',
                    f'karst-fresh-{os.getpid()}', '--register=no', '--keep-unit', '--private-network',
                    '--capability=all', '--bind-ro=/sys/module', '--console=pipe', *words],
                   env=dict(os.environ, SYSTEMD_SECCOMP='0'))

    def installed(self):
        """Names of packages."""
        status, text = self.do('dpkg-query', '-W', '-f', '${db:Status-Status} ${Package}\n')
        words = [line.split() for line in text.splitlines()] if status == 0 else []
        return {line[1] for line in words if line[0] == 'installed'}


def run_input(args, data):
    done = subprocess.run(args, input=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.returncode, done.stdout.decode(errors='replace')


def demo_problems(status, text):
    """Checks that the demo worked and fits one screen."""
    problems = problems_of(status, text)
    screen = text[text.rfind('\nkarst: RDMA'):].strip().splitlines()
    if not problems and ('every byte verified, none wrong' not in text or
                         not re.search(r'WRITE +64 KiB +[\d.]+ Gb/s +[\d.]+ +[\d.]+', text)):
        problems.append('it does not say what it moved, nor how fast')
    if not problems and len(screen) > SCREEN_LINES:
        problems.append(f'{len(screen)} lines')
    return problems + ([] if not problems else text.splitlines()[-30:])


def test_packages(source):
    """Packages that only tests and soaks need."""
    with open(os.path.join(source, 'usertools', 'packages-debian.txt'), encoding='utf-8') as f:
        return [line.split()[1] for line in f if line.startswith(('compile ', 'test ', 'soak '))]


def installed_karst(root):
    """Installs the demo's build, and runs an example that only that has built."""
    yield 'it installs', problems_of(*root.shell('meson install -C build --no-rebuild && ldconfig'))
    yield 'a program builds against it', problems_of(*root.shell(
        'mkdir -p /tmp/my && cd /tmp/my && '
        f'cp {HERE}/doc/examples/pingpong.c {HERE}/doc/examples/example.[ch] . && '
        'cc -o pingpong pingpong.c example.c $(pkg-config --cflags --libs karst) && '
        'cp pingpong /usr/local/bin/'))
    # the karstd of the PATH, with its defaults
    status, text = root.shell(PAIR + '''
        karstd >/tmp/karstd.log 2>&1 & daemon=$!
        until grep -q 'listens on /run/karst/karst.sock' /tmp/karstd.log; do
                kill -0 $daemon || { cat /tmp/karstd.log; exit 1; }; sleep 0.1; done
        pair
        rc=$?
        kill $daemon; wait $daemon || rc=1
        [ $rc = 0 ] || cat /tmp/karstd.log /tmp/server
        exit $rc''')
    problems = problems_of(status, text)
    if not problems and 'all of them right' not in text:
        problems = ['it does not say that all were right', *text.splitlines()]
    yield 'and runs over the installed karstd', problems


def by_systemd(root):
    """Boots the root, whose first service is what an administrator and a user do with the unit."""
    name = 'systemd starts the installed unit, and a user runs a program over it'
    status, text = root.shell('apt-get -qq -y install systemd iproute2 && systemd-sysusers && '
                              f'useradd -m -G karst {MEMBER}')
    yield 'systemd and a user are there', problems_of(status, text)
    status, text = root.contain('/bin/true')
    if status != 0:
        yield name, 'no container of systemd-nspawn here: ' + ' '.join(text.split())
        return
    root.write('/etc/systemd/system/karst-try.service', TRY_UNIT)
    root.write(f'{TRY}.sh', TRY_SCRIPT.replace('USER', MEMBER))
    root.write(f'{TRY}.log', '')
    status, text = root.contain('--boot', 'systemd.unit=karst-try.service')
    with open(root.path + f'{TRY}.log', encoding='utf-8') as f:
        log = f.read()
    problems = [] if 'all is well' in log and 'all of them right' in log else [
        f'status {status}', *log.splitlines(), *text.splitlines()[-20:]]
    yield name, problems


def users(root):
    """The same checkout and build for users without root."""
    lacks = f'apt-get -qq -y remove {VICTIM}'
    yield 'a user is made, and a package removed', problems_of(*root.shell(
        f'useradd -m {USER} && chown -R {USER} {HERE} && {lacks}'))
    status, text = root.shell('usertools/karst-setup demo', USER)
    problems = problems_of(status, text, 1)
    if not problems and not (VICTIM in text and 'or have sudo' in text):
        problems = text.splitlines()
    yield 'without sudo: it names what is missing', problems
    status, text = root.shell('apt-get -qq -y install sudo')
    yield 'sudo is installed', problems_of(status, text)
    status, text = root.shell('usertools/karst-setup demo', USER)
    problems = problems_of(status, text, 1)
    if not problems and not (VICTIM in text and 'sudo' in text):
        problems = text.splitlines()
    yield 'with sudo that refuses: it names what is missing', problems
    root.shell(f'echo "{USER} ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/{USER}')
    status, text = root.shell('usertools/karst-setup demo', USER)
    problems = demo_problems(status, text)
    if not problems and VICTIM not in root.installed():
        problems = [f'{VICTIM} was not installed']
    yield 'with sudo: the demo runs', problems


def points(root, source):
    began = time.monotonic()
    yield 'a minimal Debian 12 is made', root.make()
    yield 'a clean checkout is put there', root.checkout(source)
    lacking = set(test_packages(source)) - root.installed()
    status, text = root.shell('usertools/karst-setup demo')
    yield 'karst-setup demo', demo_problems(status, text)
    yield 'no package of the tests was installed', (
        sorted(lacking & root.installed()) if 'libcriterion-dev' in lacking
        else ['libcriterion-dev was there before'])
    yield from installed_karst(root)
    yield from by_systemd(root)
    yield from users(root)
    print(f'# {time.monotonic() - began:.0f} s')


def spent():
    """Seconds that have passed, and CPU seconds of processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), usage.ru_utime + usage.ru_stime


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    if os.geteuid() != 0:
        tap.skip('a minimal Debian 12 is made', 'needs root for mount namespaces and chroot')
        return tap.finish()
    folder = tempfile.mkdtemp(prefix='fresh-', dir=argv[2])
    try:
        began = spent()
        for name, problems in points(Root(os.path.join(folder, 'root')), argv[1]):
            if isinstance(problems, str):
                tap.skip(name, problems)
                problems = []
            else:
                tap.point(name, problems)
            began, before = spent(), began
            tap.note('{:.1f} s, {:.1f} s of processors'.format(
                *(now - then for now, then in zip(began, before))))
            if problems:
                break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
