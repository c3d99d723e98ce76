# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The setup of this suite's points: a guest with PCI adapters, a karstd on them, and a karstd here,
on a bridge to which all cables lead.

Each adapter has a network of its own, and the bridge has the host's address in each of them.  The
kernel of the guest has another adapter, eth0, with soft-RoCE on it.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', *path) for path in (
    ['common'], ['interop'], ['interop', 'guest'], ['verbs'], ['..', 'usertools'])]
sys.dont_write_bytecode = True
import guest  # noqa: E402
import image  # noqa: E402
import karst_observe  # noqa: E402
import machine  # noqa: E402
from bed import HANG_S, by_systemd  # noqa: E402
from verbs_bed import Engine, Tools  # noqa: E402

BRIDGE = 'kb0'
LIMIT_S = HANG_S
# The file that is installed differs only in a path, which does not matter here.
UNIT = os.path.join(HERE, '..', '..', 'config', 'karstd.service.in')
CONF, SOCKET, LOG = '/etc/karst/karst.conf', '/run/karst/karst.sock', '/tmp/karstd.log'
USER = 990 # "karst", in the guest
# How often an lcore polls ports that cannot wake it.  A poll in the guest costs as much as many
# here.
RARELY = 'sleep_max_us = 2000\n'
CONTENTS = image.Contents(
    'pci', 'ip rdma ping modprobe setpriv ibv_asyncwatch rping ibv_rc_pingpong',
    '''virtio_net virtio_pci virtio_console virtio_rng rdma_rxe ib_uverbs rdma_cm rdma_ucm tun
    vfio-pci vfio_iommu_type1 crc32_generic crc32c_generic crc32c_intel crc32c''',
    'mempool_ring mempool_stack net_virtio net_vmxnet3 net_e1000',
    {'etc/passwd': f'root:x:0:0:root:/root:/bin/sh\nkarst:x:{USER}:{USER}::/:/bin/false\n',
     'etc/group': f'root:x:0:\nkarst:x:{USER}:\n'})


def network(number):
    return f'192.0.{2 + number}' if number == 0 else f'198.51.{100 + number}'


def host_address(number):
    return f'{network(number)}.1'


def port_address(adapter):
    return f'{network(adapter.number)}.11'


class Telemetry(karst_observe.Telemetry):
    """The same by a program in the guest, with a connection for each command."""

    def __init__(self, machine_, path): # pylint: disable=super-init-not-called
        self.guest, self.path = machine_, path

    def ask(self, command):
        lines = self.guest.must(f'ask {self.path} {command}').splitlines()
        return next(iter(json.loads(lines[1], object_hook=karst_observe.Row).values()))

    def close(self):
        pass


class Inside:
    """The karstd in the guest, as it is installed: started by root, it becomes the user karst; or
    as systemd starts it, as that user and with the unit's capabilities."""

    def __init__(self, machine_):
        self.guest = machine_
        self.pid = None

    def ports(self, adapters, **keys):
        """Sections of karst.conf; @keys: {adapter's name: lines of its section}."""
        return ''.join(f'[port {a.name}]\ndevice = {a.address}\n'
                       f'addresses = {port_address(a)}/24\n{keys.get(a.name, "")}'
                       for a in adapters)

    def configure(self, conf, engine=''):
        self.guest.must(f'mkdir -p {os.path.dirname(CONF)}; rm -f {SOCKET}')
        self.write(conf, engine)

    def write(self, conf, engine=''):
        self.guest.put(CONF, f'[engine]\nidle = sleep\nlcores = 0,1\n{RARELY}{engine}{conf}')

    def reload(self, conf, engine=''):
        self.write(conf, engine)
        self.guest.must(f'kill -HUP {self.pid}')

    def start(self, conf, engine='', unit=False):
        """@return problems"""
        self.configure(conf, engine)
        before = ''
        if unit:
            folder = os.path.dirname(SOCKET)
            self.guest.must(f'rm -rf {folder}; mkdir {folder}; chown {USER}:{USER} {folder}')
            # by its path: busybox has a smaller one
            before = f'env RUNTIME_DIRECTORY={folder} /usr/bin/{" ".join(by_systemd(UNIT, USER))} '
        # The log exists, and is empty, before it is read: it is not known whether the daemon or
        # grep starts first.  In a session of its own, the daemon outlives the job that started it.
        status, text = self.guest.run(
            f': >{LOG}; setsid {before}karstd --config {CONF} >>{LOG} 2>&1 & until grep -q "listens on" {LOG}; do '
            'kill -0 $! || exit 1; usleep 100000; done; echo "pid $!"', LIMIT_S)
        found = re.search(r'^pid (\d+)$', text, re.MULTILINE)
        if status != 0 or not found:
            return [f'it does not start: status {status}', *text.splitlines(),
                    *self.log().splitlines()]
        self.pid = int(found.group(1))
        return []

    def stop(self):
        """@return problems"""
        status, _ = self.guest.run(f'kill {self.pid}; while kill -0 {self.pid} 2>/dev/null; do '
                                   'usleep 50000; done', LIMIT_S)
        said = self.log().splitlines()[-1:]
        return [] if status == 0 and re.search('stopping', self.log()) else ['it does not end',
                                                                             *said]

    def refuses(self, conf, words):
        """@return problems: it does not end by itself with this message."""
        self.configure(conf)
        status, text = self.guest.run(f'karstd --config {CONF}', LIMIT_S)
        if status not in (0, -1) and words in text:
            return []
        return [f'exit status {status} and no "{words}"', *text.splitlines()]

    def log(self):
        return self.guest.must(f'cat {LOG}')

    def says(self, expression, since=0):
        """Waits until its log matches, after the first @since characters.  @return problems"""
        # the log is sent once, not requested repeatedly: a process in the guest costs more
        follow = self.guest.program(f'exec tail -c +1 -f {LOG}', 2 * LIMIT_S)
        problems = follow.until(lambda: re.search(expression, follow.text()[since:]),
                                f'saying "{expression}"', LIMIT_S)
        follow.kill()
        return problems + (self.log()[since:].splitlines() if problems else [])

    def ask(self, question):
        path = '/run/karst/dpdk/karst/dpdk_telemetry.v2'
        return question(karst_observe.Engine(Telemetry(self.guest, path), 'karst'))

    def total(self, command, name):
        return sum(row[name] for row in self.ask(lambda e: e.rows(command)).values())

    def listeners(self):
        """The listeners of rdma_cm."""
        return self.ask(lambda e: e.ask('cm'))['listeners']

    def program(self, line, limit_s=LIMIT_S):
        return self.guest.program(f'karst-run {line}', limit_s)


class Bed:
    """The whole setup. start() returns problems; close() ends everything."""

    def __init__(self, tools, karst_perf, boot_image):
        self.tools = Tools(*tools)
        self.perf = karst_perf
        self.image = boot_image
        self.work = tempfile.TemporaryDirectory(prefix='karst-pci-')
        self.netns = f'karst-pci-{os.getpid()}'
        self.guest = self.qmp = self.inside = self.engine = None
        self.accel = None

    def within(self, line):
        """A shell line in the network namespace."""
        subprocess.run(['ip', 'netns', 'exec', self.netns, 'sh', '-ec', line], check=True,
                       stdin=subprocess.DEVNULL)

    def start(self):
        """@return problems"""
        subprocess.run(['ip', 'netns', 'add', self.netns], check=True)
        self.within(f'ip link set lo up; ip link add {BRIDGE} type bridge mcast_snooping 0; '
                    f'ip link set {BRIDGE} mtu {machine.MTU} up; ' + ''.join(
                        f'ip address add {host_address(n)}/24 dev {BRIDGE}; '
                        for n in range(len(machine.ADAPTERS) + 1)))
        problems = self.boot()
        if problems:
            return problems
        for n in range(len(machine.ADAPTERS) + 1):
            self.within(f'ip link set kt{n} mtu {machine.MTU} master {BRIDGE} up')
        self.inside = Inside(self.guest)
        self.take_adapters()
        self.engine = Engine(self.tools, self.work.name,
                             f'[engine]\nidle = sleep\n{RARELY}[port bridge]\ndevice = {BRIDGE}\n'
                             'driver = af_packet\n', name='pci', netns=self.netns)
        return self.engine.start()

    def boot(self):
        """Boots with KVM if it can boot this kernel.  @return problems"""
        for self.accel in machine.accelerators():
            folder = tempfile.mkdtemp(dir=self.work.name)
            self.guest = guest.Guest(folder, self.image, machine.words(
                folder, self.accel, f'{network(0)}.2/24'), lambda: None, self.netns)
            problems = self.guest.ready()
            if not problems:
                self.qmp = machine.Qmp(f'{folder}/qmp')
                return []
        return problems

    def take_adapters(self):
        """Takes the adapters from the kernel, at the addresses of their slots."""
        for a in machine.ADAPTERS:
            a.address = self.guest.must(
                f'basename /sys/bus/pci/devices/0000:00:{machine.SLOT + a.number:02x}.0/0000:*:00.0'
            ).strip()
        # vmxnet3 and e1000e of QEMU send nothing of a buffer whose pages are not contiguous in the
        # guest (README.rst): without DPDK's huge pages its memory is allocated by the kernel
        self.guest.must('modprobe -a vfio-pci tun; echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore; '
                        'echo always >/sys/kernel/mm/transparent_hugepage/shmem_enabled')

    def bind(self, a, driver='vfio-pci'):
        self.guest.must(f'cd /sys/bus/pci/devices/{a.address}; '
                        f'[ -e driver ] && echo {a.address} >driver/unbind; '
                        f'echo {driver} >driver_override; echo {a.address} '
                        '>/sys/bus/pci/drivers_probe; '
                        f'[ $(basename $(readlink driver)) = {driver} ]')

    def close(self):
        """@return problems"""
        problems = []
        if self.guest is not None:
            problems += self.guest.complains()
            self.guest.close()
        if self.engine is not None and self.engine.daemon.process is not None:
            problems += self.engine.stop()
        subprocess.run(['ip', 'netns', 'del', self.netns], check=False)
        self.work.cleanup()
        return problems

    # --- traffic ---

    def here(self, words):
        """The command line of a karst-perf at this end."""
        return ['ip', 'netns', 'exec', self.netns, self.perf, '--connect',
                self.engine.daemon.socket, *words.split()]

    def client_here(self, a, args, limit_s=LIMIT_S):
        """karst-perf's client here, its server in the guest.  @return problems"""
        job = self.server_there(a)
        words = self.here(f'--peer {network(0)}.2 --tcp-port {job.port} --gid-index {a.number} '
                          f'--json --verify --no-baselines {args}')
        try:
            run = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as e:
            job.kill()
            return [f'not through after {limit_s} s: {e.stderr}', *job.shown()]
        if run.returncode != 0:
            job.kill()
        return judge(run.returncode, run.stdout, run.stderr) and [
            *judge(run.returncode, run.stdout, run.stderr), *job.shown()]

    def server_there(self, a, extra=''):
        """A karst-perf server in the guest that listens."""
        port = 18600 + a.number
        job = self.guest.program(f'karst-perf --connect {SOCKET} --server --tcp-port {port} '
                                 f'--ib-port {ib_port(a)} {extra}', LIMIT_S)
        job.port = port
        job.until(lambda: 'server on TCP port' in job.text(), 'listening')
        return job

    def client_there(self, a, args, limit_s=LIMIT_S):
        """The reverse: the server is here.  @return problems"""
        with subprocess.Popen(self.here(f'--server --tcp-port 0 --gid-index {a.number}'),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as peer:
            line = peer.stdout.readline()
            job = self.guest.program(
                f'karst-perf --connect {SOCKET} --peer {host_address(0)} --tcp-port '
                f'{line.split()[-1]} --ib-port {ib_port(a)} --json --verify '
                f'--no-baselines {args}', limit_s)
            problems = job.wait(limit_s)
            problems += judge(job.status, job.text(), '')
            if problems:
                peer.terminate()
            _, said = peer.communicate(timeout=HANG_S)
        return [*problems, *job.shown(), *said.splitlines()[-5:]] if problems else []


def ib_port(a):
    """The port number in the karstd of the guest; at that time the kernel's own adapter is its only
    one."""
    return max(a.number, 1)


def judge(status, output, complaints):
    """@return problems in the output of a karst-perf client."""
    found = [json.loads(line) for line in output.splitlines() if line.startswith('{')]
    problems = [] if status == 0 else [f'exit status {status}: {complaints[-1000:]}']
    for one in found:
        if one['verify_errors'] or one['errors'] or one['messages'] <= 0:
            problems.append(f'{one["op"]} of {one["size_bytes"]}: {one["messages"]} messages, '
                            f'{one["verify_errors"]} wrong, {one["errors"]} errors')
    return problems or ([] if found else ['nothing was measured'])
