# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The guest's hardware: a PC with an IOMMU and adapters behind PCI Express ports, and QMP, by which
they are unplugged.

eth0 is the kernel's.  The others are in the slots of root ports, for vfio-pci; the n-th of them is
QEMU's device "nicN", and is connected to the tap interface "ktN" of the network namespace.
"""
import json
import os
import socket
import threading

from guest import CPU, TCG

MEMORY_MB = 1536
MTU = 4190 # path MTU 4096 fits
MAC = '52:54:00:4b:01:%02x'
PATIENCE_S = 240
SLOT = 0x10 # of the PC's own bus; the n-th adapter's root port is that much further


class Adapter:
    """@model: of QEMU; @driver: of DPDK.  Number 0 is the kernel's."""

    def __init__(self, number, name, model, driver, queues=1, options=''):
        self.number, self.name, self.model, self.driver = number, name, model, driver
        self.queues = queues
        self.options = options
        self.id = f'nic{number}'
        self.tap = f'kt{number}'
        self.mac = MAC % number
        self.address = None # in the form of the guest's kernel

    def cable(self):
        """Words of QEMU."""
        queues = f',queues={self.queues}' if self.queues > 1 else ''
        return ['-netdev', f'tap,id=net{self.number},ifname={self.tap},script=no,downscript=no,'
                f'vhost=off{queues}']

    def device(self):
        """{property: value} of QEMU's device, as QMP wants them."""
        found = {'driver': self.model, 'id': self.id, 'netdev': f'net{self.number}',
                 'mac': self.mac, 'bus': f'slot{self.number}'}
        found.update(word.split('=') for word in self.options.split(',') if word)
        return found

    def slot(self):
        """Words of QEMU."""
        return ['-device', f'pcie-root-port,id=slot{self.number},chassis={self.number},'
                f'slot={self.number},addr={SLOT + self.number:#x}']

    def words(self):
        device = self.device()
        model = device.pop('driver')
        return ['-device', ','.join([model, *(f'{key}={value}' for key, value in device.items())])]


# A virtio adapter behind an IOMMU needs to be told that it is.
IOMMU = 'disable-legacy=on,iommu_platform=on'
ADAPTERS = [
    Adapter(1, 'virtio', 'virtio-net-pci', 'net_virtio', 2,
            f'{IOMMU},mq=on,vectors=6,rss=on,host_mtu={MTU},romfile='),
    Adapter(2, 'vmxnet3', 'vmxnet3', 'net_vmxnet3', 1, 'romfile='),
    Adapter(3, 'e1000e', 'e1000e', 'net_e1000_em', 1, 'romfile='),
]


def has_hardware():
    """Whether the processor can run guests.  A KVM without that (kvm_pvm) runs kernels that were
    made for it; others take minutes with it, and then end."""
    with open('/proc/cpuinfo', encoding='utf-8') as f:
        flags = next((line for line in f if line.startswith('flags')), '').split()
    return 'vmx' in flags or 'svm' in flags


def accelerators():
    """The accelerators to try."""
    kvm = has_hardware() and os.access('/dev/kvm', os.R_OK | os.W_OK)
    return (['kvm'] if kvm else []) + [TCG]


def words(folder, accel, addresses):
    """(words for QEMU, words for the kernel); @addresses: of eth0."""
    found = ['-accel', accel, '-M', 'q35,kernel-irqchip=split',
             '-cpu', 'host' if accel == 'kvm' else CPU, '-smp', '2', '-m', str(MEMORY_MB),
             '-device', 'intel-iommu,intremap=on,caching-mode=on',
             '-qmp', f'unix:{folder}/qmp,server=on,wait=off',
             *Adapter(0, 'eth0', 'virtio-net-pci', '').cable(),
             '-device', f'virtio-net-pci,netdev=net0,romfile=,mac={MAC % 0},addr=2']
    for a in ADAPTERS:
        found += [*a.slot(), *a.cable(), *a.words()]
    return found, ['intel_iommu=on', f'mtu={MTU}', f'eth0={addresses}']


class Qmp:
    """QEMU's control socket; a thread keeps events."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.changed = threading.Condition()
        self.events = []
        self.answers = []
        self.file = self.sock.makefile('r')
        threading.Thread(target=self.listen, daemon=True).start()
        self.call('qmp_capabilities')

    def listen(self):
        try:
            for line in self.file:
                message = json.loads(line)
                with self.changed:
                    if 'event' in message:
                        self.events.append(message)
                    elif 'QMP' not in message:
                        self.answers.append(message)
                    self.changed.notify_all()
        except (OSError, ValueError):
            pass

    def call(self, command, **arguments):
        """The result; RuntimeError: QEMU's error."""
        text = json.dumps({'execute': command, 'arguments': arguments})
        self.sock.sendall(text.encode() + b'\n')
        with self.changed:
            if not self.changed.wait_for(lambda: self.answers, PATIENCE_S):
                raise RuntimeError(f'QEMU does not answer to {text}')
            answer = self.answers.pop(0)
        if 'error' in answer:
            raise RuntimeError(f'{text}: {answer["error"]["desc"]}')
        return answer['return']

    def gone(self, device):
        """@return problems: QEMU does not report that the device has been removed."""
        def said():
            return any(e['event'] == 'DEVICE_DELETED' and e['data'].get('device') == device
                       for e in self.events)
        with self.changed:
            if self.changed.wait_for(said, PATIENCE_S):
                self.events = [e for e in self.events if e['event'] != 'DEVICE_DELETED']
                return []
        return [f'{device} is not out after {PATIENCE_S} s']

    def close(self):
        self.sock.close()
