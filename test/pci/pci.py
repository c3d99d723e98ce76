#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst on PCI adapters, in a guest with an IOMMU (TAP).

  pci.py [--only REGEX] KERNEL FOLDER KARSTD KARST-RUN KARST-PERF PROVIDER AGENT ASK

KERNEL is a meta package of Debian's.  FOLDER keeps kernels and images from one run to the next.
"""
import argparse
import os
import re
import signal
import sys
import time
import traceback

sys.dont_write_bytecode = True
import pci_bed
from pci_bed import network, port_address
import image as images
import machine
from bed import Tap, exit_status

VIRTIO, VMXNET3, E1000E = machine.ADAPTERS
KERNELS = machine.Adapter(0, 'eth0', 'virtio-net-pci', '')
SMALL = '--op write,read,send --size 64,9000 --iters 60 --working-set 1M --mtu 4096'
TAP = 'kx0'


# The capabilities that the privileged part keeps: SETGID, SETUID and CHECKPOINT_RESTORE.
PART = 1 << 6 | 1 << 7 | 1 << 40


def restrained(bed, pid, most):
    """@return problems: a thread of that process has more capabilities than it should."""
    # a thread may end meanwhile
    text = bed.guest.run(f'cat /proc/{pid}/task/*/status 2>/dev/null')[1]
    problems = [] if 'CapEff' in text else [f'{pid} has no threads']
    problems += [f'{name} of {pid}: {value}, not {most:x}' for name, value in re.findall(
        r'(CapEff|CapPrm):\t(\w+)', text) if int(value, 16) & ~most]
    problems += [f'user {uid}' for uid in re.findall(r'Uid:\t(\d+)', text)
                 if int(uid) != pci_bed.USER]
    return problems + [f'seccomp {mode}' for mode in re.findall(r'Seccomp:\t(\d)', text)
                       if mode != '2']


def restraints(bed):
    """Checks the daemon, and its privileged part.  @return problems"""
    pid = bed.inside.pid
    children = bed.guest.run(f'cat /proc/{pid}/task/*/children 2>/dev/null')[1].split()
    if len(children) != 1:
        return [f'children: {children}']
    return restrained(bed, pid, 0) + restrained(bed, children[0], PART)


def queues(bed, a):
    """Two queues of the adapter, two lcores, queue pairs on both: packets that arrive at the wrong
    lcore are handed off, and nothing is lost.  If the adapter has no RSS, all may arrive in one
    queue.  @return problems"""
    before = {name: bed.inside.total('lcores', name) for name in ('handoff_in', 'handoff_out')}
    stats = f'/ethdev/stats,{machine.ADAPTERS.index(a)}'
    was = bed.inside.ask(lambda e: e.telemetry.ask(stats))['q_ipackets'][:2]
    problems = bed.client_here(a, '--op write,send --qps 16 --depth 4 --size 3000 --iters 300 '
                                  '--mtu 1024')
    rows = bed.inside.ask(lambda e: e.rows('lcores'))
    if a is VIRTIO and any(row['rx_frames'] == 0 for row in rows.values()):
        problems.append(f'frames by lcore: {[row["rx_frames"] for row in rows.values()]}')
    now = {name: bed.inside.total('lcores', name) for name in before}
    if any(now[name] == before[name] for name in before):
        problems.append(f'handed on: {before} before, {now} after')
    if bed.inside.total('drops', 'handoff_full'):
        problems.append(f'{bed.inside.total("drops", "handoff_full")} lost at hand-off')
    by_queue = [n - m for n, m in zip(
        bed.inside.ask(lambda e: e.telemetry.ask(stats))['q_ipackets'], was)]
    if a is VIRTIO and min(by_queue) == 0:
        problems.append(f'frames by queue: {by_queue}')
    return problems


def whole(bed):
    """@return problems: frames were lost because of how adapters deliver them."""
    return [f'{name}: {n} dropped' for name in ('segmented', 'icrc', 'udp_checksum')
            for n in [bed.inside.total('drops', name)] if n]


def link(bed, a):
    """The link goes down and up; programs get events.  @return problems"""
    since = len(bed.inside.log())
    watch = bed.inside.program(f'ibv_asyncwatch -d karst{a.number - 1}')
    problems = watch.until(lambda: 'async event FD' in watch.text(), 'watching')
    number = a.number - 1
    for up, engine, verbs in ((False, 'down', 'PORT_ERR'), (True, 'up', 'PORT_ACTIVE')):
        bed.qmp.call('set_link', name=a.id, up=up)
        problems += bed.inside.says(fr'port {number} \({a.address}\): link {engine}', since)
        problems += watch.until(lambda verbs=verbs: f'IBV_EVENT_{verbs} ' in watch.text(), verbs)
    watch.kill()
    return problems + (watch.shown() if problems else [])


def soft_roce(bed):
    """The guest's own kernel is the peer, over the bridge.  @return problems"""
    server = bed.guest.program(f'rping -s -C 5 -v -a {network(0)}.2', pci_bed.LIMIT_S)
    bed.guest.must('until rdma resource show cm_id | grep -q LISTEN; do usleep 50000; done')
    client = bed.inside.program(f'rping -c -C 5 -v -a {network(0)}.2 -I {network(0)}.11')
    problems = client.wait() + server.wait()
    problems += [f'exit status {job.status}' for job in (client, server) if exit_status(job)]
    return problems + [*client.shown(), *server.shown()] if problems else []


def exception(bed):
    """Frames that are not RoCE go to the kernel, by a tap.  @return problems"""
    bed.guest.must(f'ip address add {port_address(VMXNET3)}/24 dev {TAP}; ip link set {TAP} up')
    try:
        bed.within(f'ping -q -c 3 -w {pci_bed.LIMIT_S} {port_address(VMXNET3)} >&2')
        return []
    except pci_bed.subprocess.CalledProcessError as e:
        return [str(e), bed.guest.must(f'ip -s link show {TAP}'), *bed.inside.log().splitlines()]


def unplug(bed, a, beside, work=SMALL):
    """Unplugs it under traffic; the programs of the adapter get an event and end, those of another
    adapter notice nothing.  @return problems"""
    since = len(bed.inside.log())
    watch = bed.inside.program(f'ibv_asyncwatch -d karst{a.number - 1}')
    pinged = bed.inside.program(f'rping -s -a {port_address(a)}')
    problems = watch.until(lambda: 'async event FD' in watch.text(), 'watching')
    problems += pinged.until(lambda: bed.inside.listeners() > 0, 'listening')
    job = bed.server_there(a)
    words = bed.here(f'--peer {network(0)}.2 --tcp-port {job.port} --gid-index {a.number} '
                     '--op write --size 4096 --duration 600 --timeout 16 --no-baselines')
    with pci_bed.subprocess.Popen(words, stdout=pci_bed.subprocess.PIPE,
                                  stderr=pci_bed.subprocess.STDOUT) as traffic:
        arrived = bed.inside.total('lcores', 'rx_frames')
        end = time.monotonic() + pci_bed.LIMIT_S
        while bed.inside.total('lcores', 'rx_frames') < arrived + 200:
            if traffic.poll() is not None or time.monotonic() > end:
                problems.append('there is no traffic')
                break
            time.sleep(0.1)
        bed.qmp.call('device_del', id=a.id)
        problems += bed.qmp.gone(a.id)
        problems += bed.inside.says(fr'port {a.name}: gone', since)
        problems += watch.until(lambda: 'IBV_EVENT_PORT_ERR' in watch.text() and
                                'IBV_EVENT_DEVICE_FATAL' in watch.text(), 'told of both events')
        problems += pinged.until(lambda: 'device removal' in pinged.text(), 'told of the removal')
        problems += bed.client_here(beside, work)
        problems += job.wait()
        traffic.terminate()
        said = traffic.communicate()[0].decode(errors='replace')
    for one in (watch, pinged):
        one.kill()
    if problems:
        problems += [*said.splitlines(), *watch.shown(), *pinged.shown(), *job.shown(),
                     *bed.inside.log().splitlines()]
    return problems


def plug(bed, a, mtu=4096):
    """The adapter comes back; a virtio adapter with a smaller MTU, and to the kernel first.
    @return problems"""
    since = len(bed.inside.log())
    device, problems = a.device(), []
    if a is VIRTIO:
        device['host_mtu'] = '1500'
    bed.qmp.call('device_add', **device)
    if a is VIRTIO:
        problems = bed.inside.says(fr'{a.address} is back, but its kernel driver is virtio-pci', since)
    if problems:
        return problems
    bed.guest.must(f'until [ -e /sys/bus/pci/devices/{a.address} ]; do usleep 50000; done')
    bed.bind(a)
    problems = bed.inside.says(r'is back, but /dev/vfio/\d+ is not for user 990', since)
    bed.guest.must('chown karst /dev/vfio/*')
    problems += bed.inside.says(fr'port {a.number}, {a.name}: .*path MTU {mtu}', since)
    return problems + bed.client_here(a, SMALL.replace('4096', str(mtu)))


def removed(bed, a, beside, engine):
    """A reload without the port gives the adapter back: the kernel can unbind it, which it does only
    when no process has it open.  @return problems"""
    since = len(bed.inside.log())
    bed.inside.reload(bed.inside.ports(beside), engine)
    problems = bed.inside.says(f'port {a.name}: not in the configuration any more', since)
    status, _ = bed.guest.run(
        f'setsid sh -c "echo {a.address} >/sys/bus/pci/devices/{a.address}/driver/unbind; '
        ': >/tmp/unbound" </dev/null >/dev/null 2>&1 & n=0; until [ -e /tmp/unbound ]; do '
        'n=$((n+1)); [ $n -lt 300 ] || exit 1; usleep 100000; done', pci_bed.LIMIT_S)
    return problems + ([] if status == 0 else [
        f'unbinding does not end: {status}', *bed.inside.log()[since:].splitlines()])


def isolated(bed):
    """Adapters that cannot be shared with the kernel cause an error.  @return problems"""
    return bed.inside.refuses(bed.inside.ports([E1000E], e1000e='isolate = yes\n'),
                              'the kernel has no interface of it')


def before_trains(bed):
    """A port of the kernel's own interface, with a kernel that is too old for trains of packets:
    this is logged, and frames are sent one by one.  @return problems"""
    conf = f'[port eth0]\ndevice = eth0\naddresses = {network(0)}.2/24\n'
    problems = bed.inside.refuses(conf, 'UDP port 4791 of eth0 belongs to another program')
    bed.guest.must('rdma link delete rxe0; modprobe -r rdma_rxe') # its sockets belong to the module
    problems += bed.inside.start(conf)
    if problems:
        return problems
    problems += bed.inside.says('by driver kport .auto.: frames one by one, since trains need Linux 6.2')
    problems += bed.client_here(KERNELS, SMALL.replace('4096', '1024'))
    problems += bed.client_there(KERNELS, SMALL.replace('4096', '1024'))
    return problems + bed.inside.stop()


class Points:
    """Runs those points of the report that are selected."""

    def __init__(self, tap, bed, only):
        self.tap, self.bed, self.only = tap, bed, only

    def __call__(self, name, function, *args, always=False):
        """Calls @function(*args), which returns problems.  @return whether there were none."""
        if not always and not re.search(self.only, name):
            return True
        began, cpu_s = time.monotonic(), self.bed.guest.cpu_s()
        try:
            problems = function(*args)
        except (RuntimeError, OSError, ValueError) as e: # also that the guest is gone
            problems = [*traceback.format_exception(e), *self.bed.guest.said()]
        self.tap.point(name, problems)
        self.tap.note(f'{time.monotonic() - began:.1f} s, '
                      f'{self.bed.guest.cpu_s() - cpu_s:.1f} s of QEMU')
        return not problems


def installed(point, bed):
    """karstd as it is installed, with ordinary memory."""
    point('isolate is refused in words', isolated, bed)
    conf = bed.inside.ports(machine.ADAPTERS, vmxnet3=f'exception_tap = {TAP}\n',
                            virtio=f'addresses = {network(0)}.11/24\n')
    if not point('karstd starts on three adapters, in ordinary memory', bed.inside.start, conf,
                 'huge_pages = no\n', always=True):
        return
    point('it is user karst, without capabilities, with few system calls', restraints, bed)
    for a in machine.ADAPTERS:
        point(f'{a.name}: from here, every byte', bed.client_here, a, SMALL)
        point(f'{a.name}: from the guest, every byte', bed.client_there, a, SMALL)
        point(f'{a.name}: link down and up', link, bed, a)
    point('no frame was lost for how it was delivered', whole, bed)
    for a in machine.ADAPTERS:
        point(f'{a.name}: two queues, two lcores, hand-off', queues, bed, a)
    point('virtio: Linux soft-RoCE as peer', soft_roce, bed)
    point('vmxnet3: exception tap', exception, bed)
    if point('virtio: unplugged under traffic, e1000e beside it', unplug, bed, VIRTIO, E1000E):
        point('virtio: plugged again, with another MTU', plug, bed, VIRTIO, 1024)
    point('karstd ends', bed.inside.stop, always=True)


def huge(point, bed):
    """The same adapters again, with huge pages, and only with the capabilities that the unit
    gives."""
    bed.guest.must('echo 3 >/proc/sys/vm/drop_caches; echo 112 >/proc/sys/vm/nr_hugepages')
    if not point('karstd starts on three adapters, in huge pages, with the rights of the unit',
                 bed.inside.start, bed.inside.ports(machine.ADAPTERS), 'huge_pages = yes\n', True,
                 always=True):
        return
    point('it is user karst again, without capabilities, with few system calls', restraints, bed)
    smaller = SMALL.replace('4096', '1024') # for virtio, since it was plugged again
    for a in machine.ADAPTERS:
        point(f'{a.name}: huge pages, every byte', bed.client_here, a,
              smaller if a is VIRTIO else SMALL)
    if point('e1000e: unplugged under traffic, vmxnet3 beside it', unplug, bed, E1000E, VMXNET3):
        point('e1000e: plugged again', plug, bed, E1000E)
    if point('vmxnet3: unplugged under traffic, virtio beside it', unplug, bed, VMXNET3, VIRTIO,
             smaller):
        point('vmxnet3: plugged again', plug, bed, VMXNET3)
    point('e1000e: removed by a reload, and given back', removed, bed, E1000E, [VIRTIO, VMXNET3],
          'huge_pages = yes\n')
    point('karstd ends again', bed.inside.stop, always=True)


def options(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', default='', metavar='REGEX', help='points whose name it is in')
    for name in ('kernel', 'folder', 'karstd', 'karst_run', 'karst_perf', 'provider', 'agent',
                 'ask'):
        parser.add_argument(name)
    return parser.parse_args(argv)


def main(argv):
    o = options(argv)
    # if this is terminated because it takes too long, it leaves no guest, karstd or network
    # namespace
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tap = Tap()
    began = time.monotonic()
    programs = [f'usr/sbin/karstd={o.karstd}', f'usr/bin/karst-run={o.karst_run}',
                f'usr/bin/karst-perf={o.karst_perf}', f'usr/bin/ask={o.ask}',
                f'{images.LIBRARIES[1:]}/libibverbs/libkarst-rdmav34.so={o.provider}']
    try:
        boot_image = images.image(o.folder, o.kernel, os.path.abspath(o.agent), programs,
                                  pci_bed.CONTENTS)
    except images.Failure as e:
        tap.point(f'{o.kernel}: kernel and image', [str(e)])
        return tap.finish()
    bed = pci_bed.Bed((o.karstd, o.karst_run), o.karst_perf, boot_image)
    try:
        problems = bed.start()
        tap.point(f'{boot_image[2]}: the guest comes up', problems)
        if not problems:
            tap.note(f'{bed.guest.boot_s:.1f} s, by {bed.accel.split(",")[0]}')
            for a in machine.ADAPTERS:
                bed.bind(a)
            point = Points(tap, bed, o.only)
            installed(point, bed)
            huge(point, bed)
            point('eth0 by net_kport, on a kernel without trains', before_trains, bed)
    finally:
        tap.point('the end', bed.close())
    tap.note(f'{time.monotonic() - began:.0f} s in all')
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
