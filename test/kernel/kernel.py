#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Suites of a build under another kernel than this machine's, as Debian 12's own.

  kernel.py FOLDER KERNEL AGENT BUILD WORD...

KERNEL is a meta package, as linux-image-amd64; FOLDER keeps kernels and images.  A guest of QEMU has
this machine's files, which it cannot change, under a layer in its own memory, and there "meson test -C
BUILD --no-rebuild WORD..." runs, whose lines are printed as they come.  BUILD has to be complete.
Without KVM all takes ten to twenty times as long as here.  Exit status: that of meson test; 1 if it
could not run.
"""
import os
import shlex
import signal
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'interop'), os.path.join(HERE, '..', 'interop', 'guest')]
sys.dont_write_bytecode = True
import guest  # noqa: E402
import image  # noqa: E402

MEMORY_MB = 8192
LIMIT_S = 4 * 3600
# Linux modules: what the tests have, besides what the guest has to have.
CONTENTS = image.Contents('root', 'modprobe', '''virtio_pci virtio_console virtio_rng 9pnet_virtio 9p overlay
  af_packet_diag bridge dummy fuse inet_diag ipvlan macvlan tcp_diag tun udp_diag unix_diag veth vhost_net
  8021q''', '')
MODULES = ' '.join(CONTENTS.modules)
# The tests' own view of the file systems.  Whoever is in a chroot has no user namespaces: so it becomes
# the root of all that this shell sees.
SETUP = f'''set -e
modprobe -a -q {MODULES}
mkdir -p /low /layer /r
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /low
mount -t tmpfs -o size=75% layer /layer
mkdir /layer/files /layer/work
mount -t overlay -o lowerdir=/low,upperdir=/layer/files,workdir=/layer/work overlay /r
cd /r
mount -t proc proc proc
mount -t sysfs sys sys
mount -t devtmpfs dev dev
mkdir -p dev/pts dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts dev/pts
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in dev/shm run tmp; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
chmod 755 run
ulimit -n 524288
mount --move . /
exec chroot . /bin/sh'''
PATH = '/usr/bin:/bin:/usr/sbin:/sbin'


def machine():
    """(words for QEMU, words for the kernel)"""
    return ['-accel', guest.TCG, '-M', 'q35', '-cpu', guest.CPU, '-smp', str(len(os.sched_getaffinity(0))),
            '-m', str(MEMORY_MB), '-virtfs', 'local,path=/,security_model=none,multidevs=remap,mount_tag=host,'
            'readonly=on', '-device', 'virtio-rng-pci'], []


def show(job, shown=0):
    """Prints what it has said, in whole lines.  @return how much of it has been printed"""
    data = job.output
    end = len(data) if job.ended.is_set() else data.rfind(b'\n') + 1
    if end > shown:
        sys.stdout.write(data[shown:end].decode(errors='replace'))
        sys.stdout.flush()
    return max(shown, end)


def run(it, build, words):
    """@return exit status"""
    line = shlex.join(['env', '-i', f'PATH={PATH}', 'HOME=/root', 'LANG=C.UTF-8', 'meson', 'test', '-C', build,
                       '--no-rebuild', '--print-errorlogs', *words])
    it.put('/setup', f'{SETUP} -c {shlex.quote(f"cd {shlex.quote(build)}; exec {line}")}\n')
    job = it.program('exec unshare -m sh /setup', LIMIT_S)
    shown = 0
    while not job.ended.wait(1):
        shown = show(job, shown)
    show(job, shown)
    for said in it.complains():
        print('the kernel says:', said)
    return job.status


def main(argv):
    if len(argv) < 6:
        print(__doc__, file=sys.stderr)
        return 2
    folder, kernel, agent, build = argv[1], argv[2], *map(os.path.abspath, argv[3:5])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reason = guest.reason_against()
    if reason:
        print(f'kernel.py: {reason}', file=sys.stderr)
        return 1
    try:
        built = image.image(folder, kernel, agent, [], CONTENTS)
    except image.Failure as e:
        print(f'kernel.py: {kernel}: {e}', file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as work:
        it = guest.Guest(work, built, machine(), lambda: None)
        try:
            problems = it.ready()
            if problems:
                print('\n'.join(problems), file=sys.stderr)
                return 1
            print(f'Linux {built[2]} is up after {it.boot_s:.1f} s', flush=True)
            status = run(it, build, argv[5:])
        finally:
            it.close()
    return status if status in (0, 1) else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv))
