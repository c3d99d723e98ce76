# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A Linux guest with SMC-R of its own, a karstd with a service of SMC-R, and a wire between them.

The interface kw0 of a network namespace is karst's port and the host kernel's way for TCP; behind
it are the wire and the guest's eth0 with rxe0.  A second wire is between kw1 and eth1, which have their
devices while a case wants them.
"""
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TEST = os.path.join(HERE, '..', '..')
sys.path[:0] = [os.path.join(HERE, '..'), os.path.join(HERE, '..', 'guest'),
                os.path.join(TEST, 'verbs'), os.path.join(TEST, 'common'),
                os.path.join(TEST, '..', 'usertools')]
sys.dont_write_bytecode = True
from bed import Daemon, HANG_S  # noqa: E402
from verbs_bed import Program  # noqa: E402
import guest  # noqa: E402
import image  # noqa: E402
import karst_observe as observe  # noqa: E402
from wire import Wire  # noqa: E402

CONTENTS = image.Contents('smc', 'ip rdma modprobe',
                          '''virtio_net virtio_pci virtio_console virtio_rng rdma_rxe ib_uverbs
  rdma_ucm smc crc32_pclmul crc32_generic crc32c_generic crc32c_intel crc32c''', '')
TAP, MAC, MTU = 'kw0', '02:4b:00:00:00:01', 4190
TAP_2, MAC_2 = 'kw1', '02:4b:00:00:00:02'
# Linux searches the device of a second link in the network of the first one's address, so at its
# end both are in one network; at this end each has half of it, so that the kernel can distinguish
# them.
ADDRESS_2, NET_2 = {'karst': '192.0.2.129', 'linux': '192.0.2.130'}, '192.0.2.128/25'
ADDRESS = {('karst', 'ip4'): '192.0.2.1', ('linux', 'ip4'): '192.0.2.2',
           ('karst', 'ip6'): '2001:db8:1::1', ('linux', 'ip6'): '2001:db8:1::2'}
EID = 'KARST'
# IPv6 addresses stay when an interface goes down
KEEP = 'echo 1 >/proc/sys/net/ipv6/conf/all/keep_addr_on_down'
CONF = '''[engine]
idle = sleep
sleep_max_us = 1000
[port wire]
device = kw0
{more_ports}[smc]
enabled = yes
retry_s = 0
'''
PORT = 18700
LIMIT_S = 240 # for a program at either end
# Counters that only faults increase.
FAULTS = ('clc_failed', 'clc_bad', 'llc_bad', 'llc_no_slot', 'llc_timeout', 'cdc_bad', 'cdc_unknown',
          'link_down', 'group_down')


class Ended(Exception):
    """What was wrong."""


class Deaf(Ended):
    """Linux does not delete a device: a queue pair of soft-RoCE never ends."""


class Pair:
    """A server and a client, running.  @karst and @linux are the steps of each end's
    interop-talk."""

    def __init__(self, bed, role, karst, linux, count=1, family='ip4', smc=('karst', 'linux')):
        self.bed, self.role = bed, role
        bed.pairs += 1
        port = PORT + bed.pairs % 1000
        server = 'karst' if role == 'server' else 'linux'
        at = f'{ADDRESS[server, family]} {port} {count}'

        def words(end, steps):
            option = '-s ' if end == 'linux' and 'linux' in smc else ''
            return f'interop-talk {option}{"-l" if end == server else "-c"} {at} {steps}'
        starts = {'karst': lambda: bed.karst(words('karst', karst), 'karst' in smc),
                  'linux': lambda: bed.guest.program(words('linux', linux), LIMIT_S)}
        setattr(self, server, starts[server]())
        one = getattr(self, server)
        problems = one.until(lambda: 'listens\n' in one.text(), 'listening')
        if problems:
            raise Ended(*problems, *one.shown())
        client = 'linux' if server == 'karst' else 'karst'
        setattr(self, client, starts[client]())

    def says(self, end, text):
        """Waits for this text in the output of that end."""
        one = getattr(self, end)
        problems = one.until(lambda: text in one.text(), f'saying "{text}"', LIMIT_S)
        if problems:
            raise Ended(*problems, *self.shown())

    def end(self, karst=0, linux=0):
        """Both end, with these statuses; None: that one is not checked."""
        problems = []
        for end, status in ('karst', karst), ('linux', linux):
            one = getattr(self, end)
            if status is not None:
                problems += [f'{end}: {problem}' for problem in one.wait(LIMIT_S)]
                if one.status != status:
                    problems.append(f'{end}: exit status {one.status}, not {status}')
        if problems:
            raise Ended(*problems, *self.shown())
        return self

    def said(self, end, *texts):
        """The output of that end has all of the texts."""
        for text in texts:
            if text + '\n' not in getattr(self, end).text():
                raise Ended(f'{end} does not say "{text}"', *self.shown())

    def shown(self):
        return [*self.karst.shown(), *self.linux.shown()]


class Bed:
    """@tools: folder of the build; @built: (kernel, initial file system, version) of image.py."""

    def __init__(self, tools, built):
        self.tools, self.built = tools, built
        self.kernel = '.'.join(built[2].split('.')[:2])
        self.work = tempfile.TemporaryDirectory(prefix='karst-smc-')
        self.folder = self.work.name
        self.netns = f'karst-smc-linux-{os.getpid()}'
        self.pairs = 0
        self.programs = []
        self.wire = self.second = self.guest = self.daemon = None
        self.go = os.path.join(self.folder, 'go')

    # --- begin and end ---

    def start(self):
        """@return problems"""
        subprocess.run(['ip', 'netns', 'add', self.netns], check=True)
        self.wire = Wire(self.folder, self.netns, TAP)
        os.mkdir(self.second_folder())
        self.second = Wire(self.second_folder(), self.netns, TAP_2)
        self.within(f'echo 0 >/proc/sys/net/ipv6/conf/{TAP}/accept_dad; {KEEP}; ip link set lo up; '
                    f'ip link set {TAP} address {MAC} mtu {MTU} up; '
                    f'ip address add {ADDRESS["karst", "ip4"]}/25 dev {TAP}; '
                    f'ip address add {ADDRESS["karst", "ip6"]}/64 dev {TAP}; '
                    f'echo 1 >/proc/sys/net/ipv6/conf/{TAP_2}/disable_ipv6; '
                    f'ip link set {TAP_2} address {MAC_2} mtu {MTU} up; '
                    f'ip address add {ADDRESS_2["karst"]}/25 dev {TAP_2}')
        return self.boot() or self.serve()

    def within(self, line):
        """A shell line in the network namespace."""
        subprocess.run(['ip', 'netns', 'exec', self.netns, 'sh', '-ec', line], check=True,
                       stdin=subprocess.DEVNULL)

    def boot(self):
        """@return problems"""
        nics = []
        for number, folder in enumerate((self.folder, self.second_folder())):
            nic = os.path.join(folder, 'nic')
            if os.path.exists(nic):
                os.unlink(nic)
            nics.append(['-netdev', f'dgram,id=n{number},local.type=unix,local.path={nic},'
                         f'remote.type=unix,remote.path={folder}/wire'])
        own = ','.join([ADDRESS['linux', 'ip4'] + '/24', ADDRESS['linux', 'ip6'] + '/64'])
        self.guest = guest.Guest(tempfile.mkdtemp(dir=self.folder), self.built,
                                 guest.plain(nics, [own, ADDRESS_2['linux'] + '/24'], MTU),
                                 lambda: None)
        problems = self.guest.ready()
        if not problems:
            # the older kernel does not find an interface's device by itself
            self.guest.must(f'{KEEP}; modprobe smc; interop-smcset eid {EID}; '
                            'interop-smcset pnet NET eth0 rxe0; '
                            'interop-smcset pnet NET eth1 rxe1; rdma link delete rxe1; '
                            f'ip route add {NET_2} dev eth1')
        return problems

    def second_folder(self):
        return os.path.join(self.folder, 'second')

    def serve(self, more='', ports=1):
        """A karstd with @more in section [smc].  @return problems"""
        more_ports = f'[port second]\ndevice = {TAP_2}\n' if ports == 2 else ''
        self.daemon = Daemon(f'{self.tools}/app/karstd/karstd', self.folder,
                             CONF.format(more_ports=more_ports) + more,
                             name=f'k{self.pairs}', netns=self.netns)
        return self.daemon.start()

    def again(self, more='', ports=1):
        """Another daemon in place of this one."""
        problems = self.daemon.stop() or self.serve(more, ports)
        if problems:
            raise Ended(*problems)

    def close(self):
        """@return problems"""
        problems = []
        for program in self.programs:
            if program.status is None:
                program.kill()
        if self.guest is not None:
            problems += self.guest.complains()
            self.guest.close()
        if self.daemon is not None and self.daemon.process is not None:
            problems += self.daemon.stop()
        for wire in self.second, self.wire:
            if wire is not None:
                wire.close()
        subprocess.run(['ip', 'netns', 'del', self.netns], check=False)
        self.work.cleanup()
        return problems

    # --- programs ---

    def karst(self, line, smc=True):
        words = ['ip', 'netns', 'exec', self.netns]
        if smc:
            words += [f'{self.tools}/app/karst-run/karst-run', '--smc', '--socket',
                      self.daemon.socket]
        line = line.split()
        program = Program([*words, f'{self.tools}/test/interop/smc/{line[0]}', *line[1:]])
        self.programs = [p for p in self.programs if p.status is None] + [program]
        return program

    def pair(self, *args, **kwargs):
        return Pair(self, *args, **kwargs)

    def waits(self, end):
        """Steps that make a program wait for goes()."""
        return f'wait {self.go if end == "karst" else "/tmp/go"}'

    def goes(self, end):
        if end == 'karst':
            open(self.go, 'w', encoding='ascii').close()
        else:
            self.guest.must('>/tmp/go')

    def stops(self):
        """No program has been told to go."""
        if os.path.exists(self.go):
            os.unlink(self.go)
            return
        self.guest.must('rm -f /tmp/go')

    def stops_both(self):
        """Neither has been told to go."""
        if os.path.exists(self.go):
            os.unlink(self.go)
        self.guest.must('rm -f /tmp/go')

    # --- second devices, and ports that have no carrier ---

    def second_device(self):
        """Gives Linux a device at its second interface."""
        self.guest.must('rdma link add rxe1 type rxe netdev eth1')

    def no_second_device(self):
        """Removes it again."""
        status, _ = self.guest.run('rdma link delete rxe1 || true')
        if status != 0:
            raise Deaf(f'Linux does not delete its second device: status {status}')

    def looks_often(self):
        """From now on Linux detects a dead silent link after a second, and not after 30."""
        self.guest.must('echo 1 >/proc/sys/net/smc/smcr_testlink_time')

    def linux_down(self, number):
        self.guest.must(f'ip link set eth{number} down')

    def linux_up(self, number):
        self.guest.must(f'ip link set eth{number} up' +
                        (f'; ip route add {NET_2} dev eth1' if number else ''))

    def karst_down(self, number):
        self.within(f'ip link set {(TAP, TAP_2)[number]} down')

    def karst_up(self, number):
        self.within(f'ip link set {(TAP, TAP_2)[number]} up')

    # --- what both know of it ---

    def ask(self, command):
        telemetry = observe.Telemetry(observe.sockets(self.daemon.name)[0])
        try:
            return telemetry.ask(command)
        finally:
            telemetry.close()

    def counters(self):
        return self.ask('/karst/smc')

    def until(self, condition, what, nap_s=0.02):
        """Waits for @condition(); a condition that runs a program in the guest is checked less
        often."""
        end = time.monotonic() + HANG_S
        while not condition():
            if time.monotonic() > end:
                raise Ended(f'not {what} after {HANG_S} s')
            time.sleep(nap_s)

    def karst_groups(self):
        return self.ask('/karst/smc_groups')

    def linux_groups(self):
        """One line for each."""
        return self.guest.must('interop-smcset groups').splitlines()

    def linux_links(self):
        """One line for each."""
        return self.guest.must('interop-smcset links').splitlines()

    def linux_has(self, count):
        """Waits until @count of them are active."""
        status, said = self.guest.run(f'interop-smcset active {count}', HANG_S)
        if status != 0:
            raise Ended(f'not {count} links at Linux: {said}', *self.linux_links())

    def reasons(self):
        """{(end, number): connections} that stayed on TCP."""
        found = {('karst', int(number, 16)): row['connections']
                 for number, row in self.ask('/karst/smc_reasons').items()}
        for line in self.guest.must('interop-smcset reasons').splitlines():
            words = line.split()
            key = ('linux', int(words[1], 16))
            found[key] = found.get(key, 0) + int(words[5])
        return found

    def shown(self):
        text = self.daemon.text().splitlines()[-20:] if self.daemon else []
        return ['karstd:', *text, *(self.guest.said(5) if self.guest else [])]
