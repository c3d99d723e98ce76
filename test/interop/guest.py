# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A Linux guest under QEMU, and programs in it.

Its agent (guest/agent.c) runs shell lines; a Job has the interface of test/verbs' Program, so that
a case does not depend on the end at which a program runs.  A thread reads the agent's messages.
"""
import base64
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../common'))
from bed import cpu_s  # noqa: E402

LIMIT_S = 240 # of a job, unless it is given another
BOOT_S = 900
JOBS = 64
TCG = 'tcg,thread=multi,tb-size=256'
OUTPUT_LINES = 40
PUT_MAX = 6000 # of base64, in a line to the agent
# -cx16: after a CMPXCHG16B, QEMU 7.2 leaves random bits in the flags, and an interrupt that comes
# before other flags are set ends Linux (double fault) if bit 17, VM, is one of them.  The other
# features are expensive in QEMU without KVM: strings byte by byte, tables of five levels, a flag
# that changes whenever the kernel copies from or to a program.
CPU = 'max,-cx16,-erms,-fsrm,-la57,-smap,-smep'
# Hardening that Debian's kernels do at each allocation, copy, system call and start of a process,
# and self-checks at boot.  No attacks are made on a guest, and these cost QEMU more than half of
# its time.  Most of that is saved by norandmaps: QEMU's translations belong to addresses, so
# libraries at other addresses in each process are translated for each of them.  rodata=off: the
# kernel does not check for each page of code and constants whether it can be written.  The
# functions that are not called collect random bits from execution times, and test the derivation of
# keys; they take a tenth of the boot time.
BARE = ['init_on_alloc=0', 'hardened_usercopy=off', 'randomize_kstack_offset=off', 'lsm=lockdown',
        'audit=0', 'psi=0', 'noautogroup', 'cryptomgr.notests', 'mitigations=off', 'norandmaps',
        'rodata=off', 'initcall_blacklist=jent_mod_init,init_encrypted,crypto_kdf108_init']
MAC = '52:54:00:4b:00:%02x'
KERNEL_SAID = r'BUG|WARNING|Oops|Call Trace|panic|rcu.*stall'


class Job:
    """A running shell line in the guest; its output is kept."""

    def __init__(self, guest, number, line, limit_s):
        self.guest, self.number, self.line, self.limit_s = guest, number, line, limit_s
        self.output = b''
        self.status = None # exit status; 128 and a signal's number; -1: it ran into its limit
        self.ended = threading.Event()

    def text(self):
        return self.output.decode(errors='replace')

    def wait(self, limit_s=None):
        """@return problems: it does not end."""
        limit_s = limit_s or self.limit_s
        # the agent enforces the limit by itself; in a guest that is gone no job ever ends
        if not self.ended.wait(limit_s):
            self.kill()
            return [f'does not end within {limit_s} s']
        return [f'does not end within {self.limit_s} s'] if self.status == -1 else []

    def kill(self):
        if not self.ended.is_set():
            self.guest.say(f'kill {self.number}')
            self.ended.wait(10)

    def until(self, condition, what, limit_s=LIMIT_S):
        """Waits for @condition().  @return problems."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if condition():
                return []
            if self.ended.wait(0.02):
                return [] if condition() else [f'ended with {self.status} instead of {what}']
        return [f'not {what} within {limit_s} s']

    def shown(self):
        """Its output, for the report of a failure."""
        lines = self.text().splitlines()
        cut = [f'... {len(lines) - OUTPUT_LINES} lines ...'] if len(lines) > OUTPUT_LINES else []
        return [f'{self.guest.name}$ {self.line}', *cut, *lines[-OUTPUT_LINES:],
                f'status {self.status}']


def plain(nics, addresses, mtu=4190, mem_mb=448, mac=MAC):
    """A PC with virtio adapters, on any processor: (words for QEMU, words for the kernel).  @nics:
    QEMU's -netdev options, of eth0, eth1 and so on; @addresses: of each, separated by commas; @mac:
    with a placeholder for the adapter's number."""
    words = ['-accel', TCG, '-M', 'pc', '-cpu', CPU, '-smp', '1', '-m', str(mem_mb),
             # vhost-user needs memory that can be shared
             '-object', f'memory-backend-memfd,id=m0,size={mem_mb}M,share=on',
             '-machine', 'memory-backend=m0']
    # The BIOS has told each adapter its interrupt: ACPI would run its methods for that, which take
    # a tenth of the boot time.  But not acpi=off: without ACPI's timer a guest on a busy machine
    # cannot measure the frequency of the processor's counter, and its clock runs on the ticks that
    # it gets.
    append = [f'mtu={mtu}', 'acpi=noirq']
    for number, (nic, some) in enumerate(zip(nics, addresses)):
        # no interrupt vectors: QEMU 7.2 crashes with them on vhost-user without KVM.  The kernel
        # computes checksums and segments frames, as nothing behind it would.
        words += [*nic, '-device', f'virtio-net-pci,netdev=n{number},romfile=,vectors=0,'
                  f'mac={mac % number},csum=off,guest_csum=off,gso=off']
        append.append(f'eth{number}={some}')
    return words, append


def reason_against():
    """Why this machine cannot run guests: their cases are skipped; any other fault is a failure."""
    if platform.machine() != 'x86_64':
        return f'the guests are x86-64, this is {platform.machine()}'
    if os.getuid() != 0:
        return 'needs root, for a network namespace with a tap interface'
    if not os.path.exists('/dev/net/tun'):
        return 'no /dev/net/tun here'
    return None


class Guest:
    """@image: (kernel, initial file system, version).  @machine: (words for QEMU, words for the
    kernel), as from plain(); @bereaved(): called when the guest is gone, on a thread of its own;
    @netns: the network namespace in which QEMU runs.  Starts at once; ready() waits."""

    def __init__(self, folder, image, machine, bereaved, netns=None):
        self.name = 'linux-' + image[2].split('-')[0]
        self.console = os.path.join(folder, 'console')
        self.error = os.path.join(folder, 'qemu.err')
        path = os.path.join(folder, 'agent')
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        # A QEMU that has to wait for a processor gives ticks too late for the kernel's check of the
        # timer, and looks to the guest like a stuck processor.
        append = ['console=ttyS0', 'quiet', 'loglevel=4', 'panic=-1', 'tsc=reliable',
                  'no_timer_check', 'nowatchdog', 'rcupdate.rcu_cpu_stall_suppress=1',
                  'random.trust_cpu=on', *BARE,
                  f'name={self.name}', *machine[1]]
        words = ['ip', 'netns', 'exec', netns] if netns else []
        words += ['qemu-system-x86_64', '-nodefaults', '-no-user-config', *machine[0],
                  '-display', 'none', '-no-reboot', '-monitor', 'none',
                  '-serial', 'file:' + self.console, '-kernel', image[0], '-initrd', image[1],
                  '-device', 'virtio-serial-pci', '-chardev', f'socket,id=agent,path={path}',
                  '-device', 'virtserialport,chardev=agent,name=agent']
        self.began = time.monotonic()
        self.lock = threading.Lock()
        self.jobs = {}
        self.bereaved = bereaved
        self.stream = None
        self.up = threading.Event()
        self.gone = threading.Event()
        with open(self.error, 'wb') as err:
            self.process = subprocess.Popen([*words, '-append', ' '.join(append)],
                                            stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    # --- the agent ---

    def listen(self):
        try:
            self.listener.settimeout(BOOT_S)
            sock, _ = self.listener.accept()
            self.stream = sock
            with sock.makefile('rb') as f:
                for line in f:
                    self.take(line.split(), f)
        except OSError:
            pass
        self.gone.set()
        with self.lock:
            left, self.jobs = self.jobs, {}
        for job in left.values():
            job.output += b'\n[the guest is gone]\n'
            job.status = -2
            job.ended.set()
        self.bereaved()

    def take(self, words, f):
        if words == [b'ready']:
            self.boot_s = time.monotonic() - self.began
            self.up.set()
        elif words and words[0] == b'out':
            data = f.read(int(words[2]))
            self.jobs[int(words[1])].output += data
        elif words and words[0] == b'end':
            with self.lock:
                job = self.jobs.pop(int(words[1]))
            job.status = int(words[2])
            job.ended.set()

    def say(self, line):
        try:
            self.stream.sendall(line.encode() + b'\n')
        except OSError:
            pass # listen() detects it, too

    def ready(self):
        """@return problems: it has not booted."""
        end = time.monotonic() + BOOT_S
        while time.monotonic() < end and self.process.poll() is None and not self.stuck():
            if self.up.wait(0.1):
                return []
        self.close()
        return [f'{self.name} has not come up', *self.said()]

    def stuck(self):
        """Whether KVM has met an instruction that it can only emulate, and cannot."""
        with open(self.error, encoding='utf-8', errors='replace') as f:
            return 'KVM internal error' in f.read()

    def cpu_s(self):
        """The CPU time of QEMU; 0 when it has ended."""
        return cpu_s(self.process.pid)

    def alive(self):
        return self.up.is_set() and not self.gone.is_set() and self.process.poll() is None

    # --- programs ---

    def program(self, line, limit_s=LIMIT_S):
        """Starts a shell line, which is killed after its limit.  @return Job."""
        line = line if isinstance(line, str) else ' '.join(line)
        with self.lock:
            number = next(n for n in range(JOBS) if n not in self.jobs)
            job = Job(self, number, line.replace('\n', '; '), limit_s)
            if not self.gone.is_set():
                self.jobs[number] = job
        if self.gone.is_set():
            job.status = -2
            job.ended.set()
        else:
            self.say(f'run {number} {int(limit_s * 1000)} {job.line}')
        return job

    def run(self, line, limit_s=LIMIT_S):
        """(exit status, output) of a shell line that has ended."""
        job = self.program(line, limit_s)
        job.wait(limit_s + 10)
        return job.status, job.text()

    def must(self, line, limit_s=LIMIT_S):
        """Its output; raises an error if the exit status is not 0."""
        status, text = self.run(line, limit_s)
        if status != 0:
            raise RuntimeError(f'{self.name}: {line}: status {status}: {text}')
        return text

    def put(self, path, text):
        """Writes a file with that text; its folder must exist."""
        code = base64.b64encode(text.encode()).decode()
        for at in range(0, max(len(code), 1), PUT_MAX):
            self.must(f'echo {code[at:at + PUT_MAX]} | base64 -d {">>" if at else ">"}{path}')

    # --- the end ---

    def said(self, most=OUTPUT_LINES):
        """The last messages of kernel and QEMU, @most lines of each."""
        lines = []
        for path in (self.console, self.error):
            if os.path.exists(path):
                with open(path, encoding='utf-8', errors='replace') as f:
                    lines += f.read().splitlines()[-most:]
        return lines

    def complains(self):
        """@return problems: the guest's kernel reports a fault of its own."""
        with open(self.console, encoding='utf-8', errors='replace') as f:
            return [line for line in f.read().splitlines() if re.search(KERNEL_SAID, line)]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        try:
            self.listener.shutdown(socket.SHUT_RDWR) # ends the wait for an agent
        except OSError:
            pass
        self.thread.join()
        self.listener.close()
        if self.stream is not None:
            self.stream.close()
