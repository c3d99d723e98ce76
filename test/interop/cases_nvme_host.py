# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Linux's NVMe over RDMA target, and a host over karst: nvme_host/ by karst-run.

The target writes and reads the host's memory and has its keys invalidated, each time by the key of
one command.  What the target then holds is compared a second time in the guest, without karst.
"""
import hashlib
import os
import re
import tempfile

from interop_bed import Case
from wire import drop

NQN = 'nqn.2014-08.org.example:linux'
HOST = 'nqn.2014-08.org.example:host'
PORT = 4430 # karst-nvmet uses another one
WAIT_S = 240
MIB = 16 # of each namespace
# Namespace 1 is a file in memory, in blocks of 4096 bytes; namespace 2 a block device, of 512.
FILES = {1: '/dev/shm/nvmet', 2: '/dev/ram0'}
TARGET = r'''
n=/sys/kernel/config/nvmet
down() {
	rm -f $n/ports/1/subsystems/*
	for d in $n/ports/1 $n/subsystems/*/namespaces/*; do
		[ -d $d ] || continue
		[ ! -e $d/enable ] || echo 0 >$d/enable
		rmdir $d
	done
	for d in $n/subsystems/*; do
		rm -f $d/allowed_hosts/*
		[ ! -d $d ] || rmdir $d
	done
	rmmod brd; rm -f %(file)s
} 2>/dev/null
up() {
	modprobe -a nvmet nvmet-rdma
	[ -d $n ] || mount -t configfs none /sys/kernel/config
	modprobe brd rd_nr=1 rd_size=$((%(mib)d << 10))
	dd if=/dev/zero of=%(file)s bs=1M count=%(mib)d 2>/dev/null
	s=$n/subsystems/%(nqn)s
	mkdir $s
	echo 1 >$s/attr_allow_any_host
	mkdir $s/namespaces/1 $s/namespaces/2
	echo 1 >$s/namespaces/1/buffered_io
	echo %(file)s >$s/namespaces/1/device_path
	echo /dev/ram0 >$s/namespaces/2/device_path
	echo 1 >$s/namespaces/1/enable
	echo 1 >$s/namespaces/2/enable
	mkdir $n/ports/1
	echo rdma >$n/ports/1/addr_trtype
	echo %(family)s >$n/ports/1/addr_adrfam
	echo %(ip)s >$n/ports/1/addr_traddr
	echo %(port)d >$n/ports/1/addr_trsvcid
	ln -s $s $n/ports/1/subsystems/%(nqn)s
}
'''


class Target:
    """Linux's target, with two namespaces, for the block.  Faults are in "problems"."""

    def __init__(self, bed, kind, family='ip4'):
        self.bed, self.ip = bed, bed.linux.address(kind, family)
        self.names = {'nqn': NQN, 'ip': self.ip, 'port': PORT, 'file': FILES[1], 'mib': MIB,
                      'family': 'ipv6' if family == 'ip6' else 'ipv4'}
        self.problems = []
        self.program = None

    def __enter__(self):
        self.bed.guest.put('/tmp/nvmet.sh', TARGET % self.names)
        self.guest('down; set -e; up')
        return self

    def guest(self, line):
        """Runs a line with the functions of the script.  @return its output."""
        status, text = self.bed.guest.run(f'. /tmp/nvmet.sh; {line}', WAIT_S)
        if status != 0:
            self.problems += [f'guest: {line}: status {status}', *text.splitlines()[-20:]]
        return text

    def start(self, words):
        self.program = self.bed.host.program(
            f'stdbuf -oL nvme-host --nqn {NQN} --hostnqn {HOST} --port {PORT} {words}', WAIT_S)

    def host(self, words, wants=()):
        """Runs a host with these words, to its end."""
        self.start(words)
        self.end(wants)

    def end(self, wants=()):
        self.problems += self.program.wait(WAIT_S)
        if self.program.status != 0:
            self.problems.append(f'the host: exit status {self.program.status}')
        self.problems += [f'"{p}" is not said' for p in wants
                          if not re.search(p, self.program.text())]
        if self.problems:
            self.problems += self.program.shown()

    def compare(self, nsid, path):
        """The guest must have the data that the host reports."""
        with open(path, 'rb') as f:
            wanted = hashlib.md5(f.read()).hexdigest()
        if os.path.getsize(path) != MIB << 20:
            self.problems.append(f'namespace {nsid} has {os.path.getsize(path)} bytes')
        found = self.guest(f'md5sum {FILES[nsid]}').split(' ')[0]
        if found != wanted:
            self.problems.append(f'namespace {nsid} is not what was written: {found}, {wanted}')

    def __exit__(self, *_):
        if self.problems:
            self.problems += self.bed.guest.run('dmesg | tail -20')[1].splitlines()
        if self.program is not None and self.program.status is None:
            self.program.kill()
        self.guest('down; true')


def case(name, words, wants=(), compare=(), family='ip4', setup='', **more):
    """One host, which runs its steps: all of them must succeed."""
    def run(bed, kind, _role):
        with Target(bed, kind, family) as target, \
                tempfile.TemporaryDirectory(dir=bed.folder) as folder:
            if setup and not target.problems:
                target.guest(setup)
            names = {'ip': target.ip, **{f'f{n}': f'{folder}/{n}' for n in FILES}}
            if not target.problems:
                target.host(words.format(**names), wants)
            for nsid in compare if not target.problems else ():
                target.compare(nsid, names[f'f{nsid}'])
        return target.problems
    return Case(f'NVMe, Linux is the target: {name}', run=run, roles=('client',), limit_s=WAIT_S,
                sparse=True, **more)


def changes(bed, kind, _role):
    """A namespace is removed, and the host is told."""
    with Target(bed, kind) as target:
        if target.problems:
            return target.problems
        target.start(f'{target.ip} connect event off')
        target.problems += target.program.until(
            lambda: 'an event is waited for' in target.program.text(), 'waiting', WAIT_S)
        target.guest(f'echo 0 >$n/subsystems/{NQN}/namespaces/2/enable')
        target.end((r'namespace 2 has changed', r'(?m)^off$'))
    return target.problems


BOTH = 'save=1,{f1} save=2,{f2} off'
FOUND = (r'discovered: ' + re.escape(NQN) + r' at \S+, port ' + str(PORT),)
INVALIDATED = (r' [1-9][0-9]* keys bound, [1-9][0-9]* invalidated',)
CASES = [
    case('discover', '{ip} discover', FOUND, frames=20, rules='C1 C2'),
    case('over IPv6', '{ip} discover connect sizes=2 off', FOUND, family='ip6', frames=500),
    case('data of all sizes', '{ip} connect sizes=1 sizes=2 flush=1 flush=2 ' + BOTH,
         compare=(1, 2), frames=1000, rules='R1 R14'),
    case('data of all sizes by memory windows',
         '--windows {ip} connect sizes=1 sizes=2 flush=1 flush=2 ' + BOTH, INVALIDATED,
         compare=(1, 2), frames=1000, rules='R1 R14'),
    case('31 commands at a time', '{ip} connect load=1,120 load=2,120 ' + BOTH, compare=(1, 2),
         frames=1000, rules='R6 R14 Q3'),
    case('two queues, by memory windows',
         '--windows --queues 2 --entries 17 {ip} connect load=1,120 load=2,120 ' + BOTH,
         INVALIDATED, compare=(1, 2), frames=1000, rules='R6 R14 Q3'),
    case('one command at a time', '--entries 2 {ip} connect load=2,100 save=2,{f2} off',
         compare=(2,), frames=200, kinds=('vhost',)),
    case('single commands', '--windows {ip} connect zeroes=2 beyond=1 unknown=1 unknown=2 '
         'flush=1 save=2,{f2} off', compare=(2,), frames=50),
    case('a key that it has invalidated is good for nothing',
         '--windows {ip} connect stale=2', (r'queue 1 ends: ',), frames=20,
         counts={'resp_remote_access_errors': 1}, rules='R1 R13 L3'),
    case('refused: a subsystem that is not there',
         '--nqn nqn.2014-08.org.example:wrong {ip} refuse=4182 refuse=4182',
         (r'refused: status 0x4182',), frames=12),
    case('refused: a host that may not', '{ip} refuse=4184', (r'refused: status 0x4184',),
         setup=f'echo 0 >$n/subsystems/{NQN}/attr_allow_any_host', frames=6),
    case('rejected: connections that ask for what is not there', '{ip} reject discover',
         (r'(?m)^rejected$', *FOUND), frames=10, rules='C1'),
    case('a port that nobody listens at', '--port 4431 {ip} nobody', (r'nobody is there',),
         frames=0, rules='C1'),
    # The target accepts twice the time.  A busy machine can connect within it.
    case('kept alive', '--kato 8000 {ip} connect keep-alive=18 off', (r'alive for 18 s',),
         frames=20, kinds=('wire',)),
    case('not kept alive', '--kato 8000 {ip} connect silence',
         (r'the target has ended all connections',), frames=20, kinds=('wire',)),
    Case('NVMe, Linux is the target: a namespace goes', run=changes, roles=('client',),
         limit_s=WAIT_S, sparse=True, frames=20),
    # with so many commands six of fifteen runs failed when karst acknowledged duplicates by ACKs
    # (L18)
    case('one frame in a hundred is lost', '--windows {ip} connect load=1,200 load=2,200 ' + BOTH,
         INVALIDATED, compare=(1, 2), frames=1000, wire=[drop(chance=0.01)], injured=5,
         counts={'seq_nak_sent': 1}, rules='R2 R3 R4'),
]
