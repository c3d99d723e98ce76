# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Linux's NVMe over RDMA initiator, with karst-nvmet over karst as its target.

The initiator registers memory for each command, has its keys invalidated by the answers, and has
the target read and write its memory, with many requests outstanding: it uses more of a transport
than other programs.
"""
import os
import re
import signal
import tempfile
import time

from interop_bed import Case
from wire import corrupt, delay, drop, duplicate

NQN = 'nqn.2014-08.org.example:karst'
HOST = 'nqn.2014-08.org.example:host'
PORT = 4420
WAIT_S = 240
# In the guest: "on" connects and waits for the device, whose name is then in $dev.
PRELUDE = r'''
ip=%(ip)s
modprobe -q nvme-rdma; modprobe -q ext4; mkdir -p /etc/nvme /mnt
echo 11111111-2222-3333-4444-555555555555 >/etc/nvme/hostid
echo %(host)s >/etc/nvme/hostnqn
find_dev() {
	dev=
	for i in $(seq 1200); do
		for d in /sys/class/nvme/nvme*; do
			read -r nqn <$d/subsysnqn 2>/dev/null && [ "$nqn" = %(nqn)s ] || continue
			ctrl=/dev/${d##*/}
			for n in /sys/class/nvme-subsystem/*/nvme*n* $d/nvme*n*; do
				[ -e "$n" ] || continue
				n=${n##*/}
				dev=/dev/$(echo $n | sed 's/c[0-9]*n/n/')
				[ -b $dev ] && return 0
			done
		done
		usleep 100000
	done
	echo "no device"; return 1
}
on() { nvme connect -t rdma -a $ip -s %(port)d -n %(nqn)s -c 1 "$@" && find_dev; }
fails() { if "$@"; then echo "went well: $*"; exit 1; fi; }
off() { nvme disconnect -n %(nqn)s; }
live() {
	state=
	for i in $(seq 1200); do
		read -r state </sys/class/nvme/${ctrl#/dev/}/state || true
		[ "$state" = "$1" ] && return 0
		usleep 100000
	done
	echo "not $1 but $state"; return 1
}
'''


class Target:
    """karst-nvmet with a file of @size, or with @words instead; it ends with the block."""

    def __init__(self, bed, kind, words=(), size='64M', family='ip4'):
        self.bed, self.kind, self.words, self.size, self.family = bed, kind, words, size, family
        self.program = None
        self.problems = []

    def __enter__(self):
        self.file = tempfile.NamedTemporaryFile(dir=self.bed.folder)
        os.truncate(self.file.name, int(self.size[:-1]) << 20)
        self.start()
        return self

    def start(self):
        nvmet = os.path.join(os.path.dirname(self.bed.engine.tools.karst_run), '..', 'karst-nvmet',
                             'karst-nvmet')
        names = {'file': self.file.name}
        words = ' '.join(self.words).format(**names) or f'--file {self.file.name}'
        self.program = self.bed.host.program(
            f'{os.path.abspath(nvmet)} --verbose --port {PORT} --nqn {NQN} '
            f'--address {self.address()} {words}', WAIT_S)
        self.problems += self.program.until(
            lambda: 'is served at' in self.program.text(), 'serving', WAIT_S)

    def address(self):
        return self.bed.host.address(self.kind, self.family)

    def send(self, number):
        self.program.process.send_signal(number) # karst-run has executed the target in its place

    def stop(self, status=0):
        self.send(signal.SIGTERM)
        self.problems += self.program.wait(WAIT_S)
        if self.program.status != status:
            self.problems.append(f'target: exit status {self.program.status}, not {status}')

    def said(self, pattern):
        """Waits until its output matches.  @return problems"""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if re.search(pattern, self.program.text()):
                return []
            time.sleep(0.05)
        return [f'the target does not say "{pattern}"']

    def guest(self, script, limit_s=WAIT_S):
        """Runs a script in the guest, all of which must succeed.  Its output is in "text"."""
        text = PRELUDE % {'nqn': NQN, 'host': HOST, 'ip': self.address(), 'port': PORT} + script
        self.bed.guest.must('mkdir -p /tmp/s')
        self.bed.guest.put('/tmp/s/nvme.sh', text)
        status, self.text = self.bed.guest.run('sh -e /tmp/s/nvme.sh', limit_s)
        if status != 0:
            self.problems += [f'guest: status {status}', *self.text.splitlines()[-30:]]

    def wants(self, *patterns):
        self.problems += [f'"{p}" is not said: {self.text}' for p in patterns
                          if not re.search(p, self.text)]

    def __exit__(self, *_):
        if self.problems:
            self.bed.guest.run(f'umount -l /mnt; nvme disconnect -n {NQN}', 120)
            self.problems += self.bed.guest.run('dmesg | grep -i nvme | tail -15')[1].splitlines()
        if self.program.status is None:
            self.stop()
        if self.problems:
            self.problems += self.program.shown()
        self.file.close()


def enough(made, wanted, refused):
    """Whether a host has made the @wanted connections, and no others, except all of them once more
    for at most each READ that Linux has @refused: Linux then ends the queue pair (L17)."""
    return made % wanted == 0 and 1 <= made // wanted <= 1 + refused


def case(name, script, words=(), kinds=('wire', 'vhost'), wants=(), size='64M', family='ip4',
         never=(), connections=None, sparse=True, **more):
    """One script in the guest; the target counts @connections of it (L17)."""
    def run(bed, kind, _role):
        with Target(bed, kind, words, size, family) as target:
            if not target.problems:
                target.guest(script)
            if not target.problems:
                target.wants(*wants)
                target.problems += [f'it said: {found.group(0)}' for found in (
                    re.search(p, target.text) for p in never) if found]
                made = target.program.text().count(': a connection to ')
                if connections is not None and not enough(made, connections, bed.wire.refused['guest']):
                    target.problems.append(f'{made} connections were made, not {connections}')
        return target.problems
    return Case(f'NVMe: {name}', run=run, kinds=kinds, roles=('server',), limit_s=WAIT_S,
                sparse=sparse, **more)


DISCOVER = 'nvme discover -t rdma -a $ip -s 4420\n'
FOUND = (r'trtype: +rdma', r'subnqn: +' + re.escape(NQN), r'trsvcid: +4420')
# Files whose checksums are kept in the guest, out of the target's reach.
MAKE_FILES = r'''
mkfs.ext4 -q -F $dev
mount $dev /mnt
for i in 1 2 3 4 5 6 7 8; do
	dd if=/dev/urandom of=/mnt/f$i bs=17k count=$((i * 12)) 2>/dev/null
done
mkdir /mnt/d; for i in $(seq 40); do echo $i >/mnt/d/$i; done
(cd /mnt; find . -type f | sort | xargs md5sum) >/tmp/s/sums
sync; umount /mnt
'''
CHECK_FILES = r'''
e2fsck -f -n $dev
echo 3 >/proc/sys/vm/drop_caches
mount $dev /mnt
(cd /mnt; md5sum -c -s /tmp/s/sums && echo all sums are right)
umount /mnt
'''
SUMS = (r'all sums are right',)
# Data of many sizes, written and read past the page cache, and compared outside of it.
SIZES = r'''
on
dd if=/dev/urandom of=/tmp/s/data bs=1M count=2 2>/dev/null
for bs in 512 3584 4096 4608 65536 131072 1048576; do
	n=$((2097152 / bs)); [ $n -gt 20 ] && n=20
	dd if=/tmp/s/data of=$dev bs=$bs count=$n oflag=direct seek=3 2>/dev/null
	dd if=$dev of=/tmp/s/back bs=$bs count=$n iflag=direct skip=3 2>/dev/null
	cmp -n $((n * bs)) /tmp/s/data /tmp/s/back
done
echo all sizes are right
off
'''
ADMIN = r'''
rm -f /tmp/s/back
on
well() { "$@" || echo "failed: $*"; }
well nvme id-ctrl $ctrl
well nvme id-ns $ctrl -n 1
well nvme list-ns $ctrl
well nvme ns-descs $ctrl -n 1
well nvme smart-log $ctrl
well nvme error-log $ctrl
well nvme fw-log $ctrl
well nvme changed-ns-list-log $ctrl
for f in 1 2 4 5 6 7 0xa 0xb 0xf; do well nvme get-feature $ctrl -f $f; done
well nvme set-feature $ctrl -f 4 -v 0x150
well nvme get-feature $ctrl -f 4
dd if=/dev/urandom of=/tmp/s/block bs=4096 count=1 2>/dev/null
nvme write $dev -s 8 -c 7 -z 4096 -d /tmp/s/block
nvme compare $dev -s 8 -c 7 -z 4096 -d /tmp/s/block
nvme read $dev -s 8 -c 7 -z 4096 -d /tmp/s/back
cmp /tmp/s/block /tmp/s/back
fails nvme compare $dev -s 16 -c 7 -z 4096 -d /tmp/s/block
nvme flush $dev -n 1
nvme write-zeroes $dev -n 1 -s 8 -c 7
nvme read $dev -s 8 -c 7 -z 4096 -d /tmp/s/back
dd if=/dev/zero of=/tmp/s/zero bs=4096 count=1 2>/dev/null
cmp /tmp/s/zero /tmp/s/back
nvme write $dev -s 0 -c 7 -z 4096 -d /tmp/s/block
nvme dsm $dev -n 1 -s 0 -b 8 -d
nvme read $dev -s 0 -c 7 -z 4096 -d /tmp/s/back
cmp /tmp/s/zero /tmp/s/back
nvme reset $ctrl
live live
echo all admin is right
off
'''
QUEUES = r'''
on --nr-io-queues=1 --nr-write-queues=1 --nr-poll-queues=1 --queue-size=32
dmesg | grep 'mapped .* default/read/poll queues' | tail -1
''' + MAKE_FILES + CHECK_FILES + 'off\n'
WRONG_NQN = r'''
fails nvme connect -t rdma -a $ip -s 4420 -n nqn.2014-08.org.example:wrong
dmesg | grep -i connect | tail -2
fails nvme connect -t rdma -a $ip -s 4421 -n nqn.2014-08.org.example:karst
dmesg | grep 'nvme nvme' | tail -2
'''
WRONG_HOST = r'''
fails nvme connect -t rdma -a $ip -s 4420 -n nqn.2014-08.org.example:karst
dmesg | grep -i connect | tail -2
nvme discover -t rdma -a $ip -s 4420
'''
READ_ONLY = r'''
on
fails dd if=/dev/zero of=$dev bs=4096 count=1 oflag=direct
dd if=$dev of=/dev/null bs=4096 count=1 iflag=direct
off
echo read only
'''


# Opcodes.  A guest's initiator sends commands, answers RDMA READs, and acknowledges.
COMMANDS = (0x00, 0x01, 0x02, 0x04)
ANSWERS = (0x0d, 0x0e, 0x0f, 0x10, 0x11)
REQUESTS = (0x04, 0x06, 0x07, 0x08, 0x0a, 0x0c, 0x17)
ACK = 0x11
# All of these are survived, except for D33: soft-RoCE cannot send a command again if memory was
# registered for another command behind it.  So no command is lost here, and no acknowledgement of
# one.
INJURIES = [
    drop(source='karst', op=REQUESTS, every=151), drop(source='guest', op=ANSWERS, every=149),
    duplicate(source='karst', every=73), duplicate(source='guest', every=71),
    delay(source='karst', op=REQUESTS, every=311), delay(source='guest', op=ANSWERS, every=313),
    corrupt(source='karst', op=REQUESTS, every=227),
    corrupt(source='guest', op=ANSWERS, every=229),
]
# With one command at a time nothing is behind it.  Each lost command, and each lost
# acknowledgement, is a timeout of the guest's, which is 2 s with the older kernel.
ALONE = [
    drop(source='guest', op=COMMANDS, nth=(40,)), corrupt(source='guest', op=COMMANDS, nth=(75,)),
    drop(source='karst', op=ACK, nth=(50,)), corrupt(source='karst', op=ACK, nth=(90,)),
    delay(source='guest', op=COMMANDS, every=17), delay(source='karst', op=ACK, every=19),
    drop(source='karst', op=REQUESTS, every=31), drop(source='guest', op=ANSWERS, every=37),
    duplicate(every=23), corrupt(source='karst', op=REQUESTS, every=53),
    corrupt(source='guest', op=ANSWERS, every=59),
]
# A long timeout, so that no connection is given up because the machine is busy.
ON = 'on --keep-alive-tmo=30\n'
ONE_BY_ONE = ON + r'''
dd if=/dev/urandom of=/tmp/s/data bs=64k count=10 2>/dev/null
for bs in 3584 4608 65536; do
	dd if=/tmp/s/data of=$dev bs=$bs count=10 oflag=direct seek=3 2>/dev/null
	dd if=$dev of=/tmp/s/back bs=$bs count=10 iflag=direct skip=3 2>/dev/null
	cmp -n $((10 * bs)) /tmp/s/data /tmp/s/back
done
echo all sizes are right
off
'''
# Commands are lost while others are outstanding: the connection ends (D33), at once or when the
# host's timeout expires, and the host makes another one.
PATIENCE = 'echo 2000 >/sys/block/${dev#/dev/}/queue/io_timeout\n'
LOST = [drop(source='guest', op=COMMANDS, nth=(71, 150))]


def restart(bed, kind, _role):
    """The target ends and is started again; a file that is being written waits for it."""
    with Target(bed, kind) as target:
        if target.problems:
            return target.problems
        target.guest('on --ctrl-loss-tmo=60\n' + MAKE_FILES + 'mount $dev /mnt\n')
        job = bed.guest.program('dd if=/dev/urandom of=/mnt/long bs=64k count=64 && sync && '
                                'md5sum </mnt/long >/tmp/s/long && echo written', 120)
        if not target.problems:
            target.stop()
            target.start()
        target.problems += job.wait()
        target.text = job.text()
        target.wants('(?m)^written$')
        target.guest('find_dev; live live; umount /mnt\n' + CHECK_FILES + r'''
mount $dev /mnt; md5sum </mnt/long | cmp - /tmp/s/long && echo the long one is right; umount /mnt
off
''')
        target.wants('the long one is right', *SUMS)
    return target.problems


def grows(bed, kind, _role):
    """A file grows, and the host is told."""
    with Target(bed, kind) as target:
        if target.problems:
            return target.problems
        target.guest('on; cat /sys/block/${dev#/dev/}/size\n')
        target.wants(r'(?m)^131072$')
        os.truncate(target.file.name, 96 << 20)
        target.send(signal.SIGHUP)
        target.guest(r'''find_dev
for i in $(seq 1200); do
	[ $(cat /sys/block/${dev#/dev/}/size) = 196608 ] && break
	usleep 50000
done
cat /sys/block/${dev#/dev/}/size
off
''')
        target.wants(r'(?m)^196608$')
    return target.problems


KEPT_S = 8 # a host that gets no processor for so long has been silent, too
ALIVE = f'on --keep-alive-tmo={KEPT_S}\n'
ALIVE_AGAIN = 'find_dev; live live; dd if=$dev of=/dev/null bs=4096 count=1 iflag=direct\n'


def idle(bed, kind, _role):
    """Nothing but keep-alives for longer than the timeout; then the target is stopped, the host
    detects that, and reconnects when the target runs again."""
    with Target(bed, kind) as target:
        if target.problems:
            return target.problems
        target.guest(ALIVE + f'sleep {KEPT_S + 2}; cat /sys/class/nvme/${{ctrl#/dev/}}/state\n')
        target.wants('(?m)^live$')
        target.send(signal.SIGUSR1)
        target.problems += target.said('there are 2 now(.|\n)* expired 0')
        target.send(signal.SIGSTOP)
        target.guest('find_dev; live connecting\n')
        target.send(signal.SIGCONT)
        target.guest(ALIVE_AGAIN + 'off\n')
    return target.problems


def silent(bed, kind, _role):
    """The host's packets are dropped: the target ends the controller.  Then they pass again."""
    with Target(bed, kind) as target:
        if target.problems:
            return target.problems
        target.guest(ALIVE)
        bed.wire.change([drop(source='guest', every=1)])
        target.problems += target.said('queue 1 ends: its controller has ended')
        bed.wire.change([])
        target.guest(ALIVE_AGAIN + 'off\n')
        target.send(signal.SIGUSR1)
        target.problems += target.said(', expired [1-9]')
    return target.problems


def own(name, run, **more):
    return Case(f'NVMe: {name}', run=run, roles=('server',), limit_s=WAIT_S, **more)


LATEST = ('6.12',)
CASES = [
    case('discover', DISCOVER, wants=FOUND, frames=20),
    case('discover over IPv6', DISCOVER, wants=FOUND, family='ip6', frames=20),
    case('data of many sizes', SIZES, wants=('all sizes are right',), frames=500),
    case('data of many sizes, none of it in the capsule', SIZES,
         ('--file {file}', '--in-capsule 0'), wants=('all sizes are right',), kernels=LATEST,
         kinds=('wire',)),
    case('data of many sizes, two buffers for all', SIZES,
         ('--ramdisk 64M', '--buffers 2', '--queue-size 16', '--block-size 512'),
         wants=('all sizes are right',), kernels=LATEST, kinds=('vhost',)),
    case('a file system, written, checked, and checked once more',
         'on\n' + MAKE_FILES + CHECK_FILES + 'off; on\n' + CHECK_FILES + 'off\n', wants=SUMS,
         frames=1000),
    case('a file system in blocks of 4096 bytes, over IPv6', 'on\n' + MAKE_FILES + CHECK_FILES +
         'off\n', ('--ramdisk 64M', '--block-size 4096'), wants=SUMS, family='ip6',
         kernels=LATEST, kinds=('vhost',)),
    case('a file system over three queues', QUEUES,
         wants=(*SUMS, r'mapped 1/1/1 default/read/poll'), kernels=LATEST, kinds=('vhost',)),
    case('admin commands and single commands', ADMIN, wants=('all admin is right',),
         never=('failed: .*',), kernels=LATEST, kinds=('wire',)),
    case('refused: a subsystem that is not there, a port that nobody listens at',
         WRONG_NQN, wants=(r'Connect Invalid Data Parameter, subsysnqn',
                           r'rdma connection establishment failed|Connect rejected')),
    case('refused: a host that may not', WRONG_HOST,
         ('--ramdisk 16M', '--allow-host nqn.2014-08.org.example:other'), kinds=('wire',),
         wants=(r'[Nn]ot allowed|[Ii]nvalid [Hh]ost|ret=16772', *FOUND)),
    case('nothing can be written', READ_ONLY, ('--read-only', '--file {file}'), kinds=('wire',),
         wants=('read only',)),
    case('a file system, and frames that are lost, doubled, late and broken',
         ON + MAKE_FILES + CHECK_FILES + 'off\n',
         ('--file {file}', '--ack-timeout 16'), wants=SUMS, wire=INJURIES, injured=100,
         connections=2, sparse=False, rules='R1 R2 R3 Q3 Q4 Q5 Q6'),
    case('one command at a time, and frames that are lost, doubled, late and broken', ONE_BY_ONE,
         ('--file {file}', '--ack-timeout 16'), wants=('all sizes are right',), wire=ALONE,
         injured=30, connections=2, rules='R1 R2 R3 Q3 Q4 Q5 Q6'),
    case('a file system, and commands that are lost',
         ON + PATIENCE + MAKE_FILES + CHECK_FILES + 'off\n', wants=SUMS, wire=LOST, injured=2,
         rules='R2'),
    own('the target is started again', restart, kinds=('wire',), sparse=True),
    own('a file that grows', grows, kinds=('wire',), kernels=LATEST),
    own('keep-alives, and a target that stands still', idle, kinds=('vhost',), kernels=('6.1',)),
    own('a host that falls silent', silent, kinds=('wire',), kernels=LATEST),
]
