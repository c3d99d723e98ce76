# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What the cases of this folder run on: a Linux guest, a karstd, and two ways between them.

Kinds of ports that join them, each with a network of its own:
  wire    karst on AF_PACKET over a tap interface, whose other end is the injuring wire (wire.py).
          The host's kernel has the same addresses there, and does TCP.  karst0 and rxe0.
  vhost   karst's own vhost-user port, straight into the guest's memory; the host's kernel has the
          same addresses on karst's exception tap, and does TCP.  karst1 and rxe1.
  vlan    another such port with tag 5, and without a tap: there is no TCP.  karst2 and rxe2.

A case is a server and a client, one at either end; which end is karst's is its role.  One more
kind, "inside", stands for cases that are about a karstd in the guest, beside the kernel's own
devices.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'verbs'), os.path.join(HERE, '..', 'common')]
sys.dont_write_bytecode = True
from bed import Clock, HANG_S, exit_status  # noqa: E402
from verbs_bed import (Engine, MEASURED_IN_VAIN, NEVER, Tools, listens,  # noqa: E402
                       once_more, quick_clock, says)
import guest  # noqa: E402
import karst_observe  # noqa: E402
from wire import Wire  # noqa: E402

KINDS = ('wire', 'vhost', 'vlan')
FAMILIES = ('ip4', 'ip6', 'll')
ROLES = ('client', 'server')
MTU = 4190 # of the interfaces: path MTU 4096 fits, and no frame is longer than karst accepts
TAP, EXCEPTION = 'kw0', 'kx0'
CONF = {
    'wire': 'device = {tap}\n',
    'vhost': 'device = net_vhost0,iface={folder}/vhost,tso=0\naddresses = {addresses}\n'
             'link_local = yes\nmac = {mac}\nmtu = {mtu}\nexception_tap = {exception}\n',
    'vlan': 'device = net_vhost1,iface={folder}/vlan,tso=0\naddresses = {addresses}\n'
            'link_local = yes\nmac = {mac}\nmtu = {mtu}\nvlan = {vlan}\n',
}
VLAN = 5
# The third byte of IPv4 networks and the third word of IPv6 networks.
NET4 = {'wire': '192.0.2', 'vhost': '198.51.100', 'vlan': '203.0.113'}
NET6 = {'wire': '2001:db8:1:', 'vhost': '2001:db8:2:', 'vlan': '2001:db8:5:'}
MAC = {'wire': '02:4b:00:00:00:01', 'vhost': '02:4b:00:00:00:02', 'vlan': '02:4b:00:00:00:03'}
LISTENS_S = 240 # a guest is slow, and slower beside others
GRACE_S = 4
PORT = 18515
GROUP, GROUP_MAC = '239.77.1.1', '33:33:ef:4d:01:01'
PATIENT = 'patient.so' # guest/patient.c
COMM_MAX = 15 # the length of a program's name in the kernel
LINE_MAX = 300 # of what is shown of a program
DEAD_LINES = 150 # of the last output of a guest that ends
REJECTIONS, ANSWERS = ('rx_REJ', 'tx_REJ'), ('rx_REP', 'tx_REP')
# or by a SIDR_REP, which its counter does not distinguish
REJECTED_LATE = 'client: it was rejected after it had connected'
ATTEMPTS, STILL_S, LONG_S = 3, 0.1, 1
SILENT_S = 60 # no peer whose timer runs (wire cases: 4 s with all retries) is silent for so long
CASE_BEGINS = 'karst: a case begins' # in the kernel's log
FLUSHED = 'ends with WR_FLUSH_ERR' # output of interop-peer
# In the output of pingpongs and perftest, interop-peer, rdma_cm's examples, soft-RoCE, NVMe.
GAVE_UP = r'retry counter exceeded|\bRETRY_EXC|[Ss]tatus:? 12\b'
TOO_EARLY = r'_REJECTED|_UNREACHABLE|[Cc]onnection refused|Unexpected CM event|rpoll: '


def ip(words):
    subprocess.run(['ip', *words.split()], check=True, stdin=subprocess.DEVNULL)


def link_local(mac):
    """The address that belongs to a MAC address."""
    b = [int(byte, 16) for byte in mac.split(':')]
    b = [b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]]
    return 'fe80::' + ':'.join(f'{b[i] << 8 | b[i + 1]:x}' for i in range(0, 8, 2))


def groups(address):
    """An IP address in the form of a GID table."""
    if '.' in address:
        b = [int(byte) for byte in address.split('.')]
        return f'0000:0000:0000:0000:0000:ffff:{b[0]:02x}{b[1]:02x}:{b[2]:02x}{b[3]:02x}'
    left, _, right = address.partition('::')
    left, right = ([word for word in half.split(':') if word] for half in (left, right))
    return ':'.join(word.zfill(4) for word in
                    [*left, *['0'] * (8 - len(left) - len(right)), *right])


class Asked(Engine):
    """Cases send a dozen telemetry requests each and more: over one connection, as each connection
    makes a thread in the daemon, which costs ten times what an answer does."""

    asked = None

    def ask(self, question):
        if self.asked is None:
            self.asked = karst_observe.find_engines(prefix=self.daemon.name)[0]
        return question(self.asked)

    def stop(self):
        if self.asked is not None:
            self.asked.telemetry.close()
            self.asked = None
        return super().stop()


class Side:
    """What both ends have in common."""

    number = 0 # of the host within each network

    def address(self, kind, family):
        if family == 'll':
            return link_local(self.mac[kind])
        return f'{NET4[kind]}.{self.number}' if family == 'ip4' else f'{NET6[kind]}:{self.number}'

    def addresses(self, kind):
        return f'{self.address(kind, "ip4")}/24,{self.address(kind, "ip6")}/64'


class Host(Side):
    """Programs over karst, in the wire's network namespace."""

    name, number, karst = 'karst', 1, True
    mac = MAC
    interface = {'wire': TAP, 'vhost': EXCEPTION, 'vlan': 'none'}
    device = {kind: f'karst{n}' for n, kind in enumerate(KINDS)}

    def __init__(self, engine):
        self.engine = engine
        self.gids = {}
        self.programs = []

    def gid(self, kind, family):
        """Its index in the device's table."""
        if kind not in self.gids:
            port = self.engine.ask(lambda e: e.rows('ports'))[int(self.device[kind][5:])]
            self.gids[kind] = [groups(port[f'address_{n}']) for n in range(16)
                               if f'address_{n}' in port]
        return self.gids[kind].index(groups(self.address(kind, family)))

    def program(self, words, limit_s):
        program = self.engine.program(shlex.split(words), env={'KARST_VERBS_DEBUG': '1'})
        self.programs = [p for p in self.programs if p.status is None] + [program]
        return program

    def abandon(self):
        """Ends running programs: the guest is gone, so they get no answer."""
        for program in self.programs:
            program.kill()

    def managed(self, names):
        """The sum of these counters of connection management."""
        row = self.engine.ask(lambda e: e.ask('cm'))
        return sum(row[name] for name in names)

    def listens(self, program, port, how, _):
        """@return problems: it does not listen.  Over rdma_cm it is the only listener: when it was
        started the engine had no more than when no program is attached."""
        if how == 'tcp':
            return program.until(lambda: listens(port, program.process.pid), 'listening',
                                 LISTENS_S)
        if how == 'group':
            return program.until(lambda: 'joined dgid' in program.text(), 'joining', LISTENS_S)
        return program.until(lambda: self.managed(['listeners']) > self.engine.idle['listeners'],
                             'listening', LISTENS_S)


class Linux(Side):
    """Programs over rxe, in the guest."""

    name, number, karst = 'linux', 2, False
    interface = {'wire': 'eth0', 'vhost': 'eth1', 'vlan': f'eth2.{VLAN}'}
    device = {kind: f'rxe{n}' for n, kind in enumerate(KINDS)}
    mac = {kind: guest.MAC % n for n, kind in enumerate(KINDS)}

    def __init__(self, machine):
        self.guest = machine
        self.gids = {}

    def gid(self, kind, family):
        device = self.device[kind]
        wanted = groups(self.address(kind, family))
        if kind not in self.gids:
            folder = f'/sys/class/infiniband/{device}/ports/1'
            said = self.guest.must(
                f'cd {folder}/gid_attrs/ndevs; for i in *; do read -r g <../../gids/$i; '
                '[ $g = 0000:0000:0000:0000:0000:0000:0000:0000 ] || '
                'read -r d <$i 2>/dev/null && echo $i $g $d; done')
            self.gids[kind] = {(gid, dev): int(index) for index, gid, dev in
                               (line.split() for line in said.splitlines())}
        return self.gids[kind][wanted, self.interface[kind]]

    def program(self, words, limit_s):
        # empty polls of completion queues cost QEMU time
        preload = [os.path.basename(path) for path in quick_clock(words.split()).values()]
        before = 'LD_PRELOAD=' + ':'.join('/usr/bin/' + name for name in (*preload, PATIENT)) + ' '
        return self.guest.program(before + words, limit_s)

    def listens(self, program, port, how, kind):
        """Waits in the guest, where repeated checks cost less."""
        # the first word that is not an environment setting
        comm = next(word for word in program.line.split() if '=' not in word)[:COMM_MAX]
        look = {'tcp': f'grep -q ":{port:04X} .* 0A " /proc/net/tcp /proc/net/tcp6',
                'cm': f'rdma resource show cm_id | grep -q "LISTEN .* comm {comm} "',
                # rxe receives frames to this address when a queue pair is in the group
                'group': f'ip maddress show dev {self.interface[kind]} | grep -q {GROUP_MAC}'}[how]
        job = self.guest.program(f'until {look}; do usleep 100000; done', LISTENS_S)
        while not job.ended.wait(0.05):
            if program.status is not None:
                job.kill()
                return [f'ended with {program.status} instead of listening']
        return [] if job.status == 0 else [f'not listening within {LISTENS_S} s']


class Bed:
    """The whole setup, for one kernel.  @image as from guest/image.py; @failed: the folder for what
    failing cases leave.  Start it by start(), which reports problems; close() ends everything."""

    def __init__(self, tools, image, failed, dump):
        self.tools = Tools(*tools)
        self.image = image
        self.failed = failed
        self.dump = dump
        self.work = tempfile.TemporaryDirectory(prefix='karst-interop-')
        self.folder = self.work.name
        self.netns = f'karst-interop-{os.getpid()}'
        self.clock = Clock()
        self.wire = self.engine = self.guest = self.host = self.linux = None
        shutil.rmtree(failed, ignore_errors=True)

    # --- begin and end ---

    def start(self):
        """@return problems"""
        try:
            self.make_network()
        except (OSError, subprocess.CalledProcessError) as e:
            return [f'no network: {e}']
        self.engine = Asked(self.tools, self.folder, self.conf(), name='iop', netns=self.netns)
        problems = self.engine.start()
        if problems:
            return problems
        self.host = Host(self.engine)
        self.address_exception()
        return self.boot()

    def within(self, line):
        """A shell line in the network namespace."""
        subprocess.run(['ip', 'netns', 'exec', self.netns, 'sh', '-ec', line], check=True,
                       stdin=subprocess.DEVNULL)

    def make_network(self):
        ip(f'netns add {self.netns}')
        self.wire = Wire(self.folder, self.netns, TAP)
        conf = '/proc/sys/net/ipv6/conf'
        self.within(f'echo 0 >{conf}/default/accept_dad; echo 0 >{conf}/{TAP}/accept_dad; '
                    f'ip link set lo up; ip link set {TAP} address {MAC["wire"]} mtu {MTU} up; '
                    + self.commands('wire'))

    @staticmethod
    def commands(kind):
        return ''.join(f'ip address add {a} dev {Host.interface[kind]}; '
                       for a in Host(None).addresses(kind).split(','))

    def conf(self):
        # A vhost-user port cannot wake an lcore: the lcore polls it, and polling more often than
        # this is useless with a guest at the other end.
        return '[engine]\nidle = sleep\nsleep_max_us = 4000\nece = offer\n' + ''.join(
            f'[port {kind}]\n' + CONF[kind].format(
                tap=TAP, folder=self.folder, addresses=Host(None).addresses(kind), mac=MAC[kind],
                mtu=MTU, exception=EXCEPTION, vlan=VLAN) for kind in KINDS)

    def address_exception(self):
        self.within(f'ip link set {EXCEPTION} up; ' + self.commands('vhost'))

    def boot(self):
        """@return problems"""
        folder = tempfile.mkdtemp(dir=self.folder)
        nics = [['-netdev', f'dgram,id=n0,local.type=unix,local.path={self.folder}/nic,'
                 f'remote.type=unix,remote.path={self.folder}/wire']]
        nics += [['-chardev', f'socket,id=v{n},path={self.folder}/{kind},reconnect=1',
                  '-netdev', f'vhost-user,id=n{n},chardev=v{n}']
                 for n, kind in ((1, 'vhost'), (2, 'vlan'))]
        if os.path.exists(f'{self.folder}/nic'):
            os.unlink(f'{self.folder}/nic')
        linux = Linux(None)
        addresses = [linux.addresses('wire'), linux.addresses('vhost'), '']
        self.guest = guest.Guest(folder, self.image, guest.plain(nics, addresses, MTU),
                                 self.host.abandon)
        problems = self.guest.ready()
        if problems:
            return problems
        self.linux = Linux(self.guest)
        self.guest.must('mount -t debugfs none /sys/kernel/debug; '
                        f'modprobe 8021q; ip link add link eth2 name eth2.{VLAN} type vlan id '
                        f'{VLAN}; echo 0 >/proc/sys/net/ipv6/conf/eth2.{VLAN}/accept_dad; '
                        f'ip link set eth2.{VLAN} up; ' + ''.join(
                            f'ip address add {a} dev eth2.{VLAN}; '
                            for a in linux.addresses('vlan').split(',')))
        return self.engine.link_up()

    def close(self):
        """@return problems"""
        problems = []
        self.clock.stop()
        if self.guest is not None:
            problems += self.guest.complains()
            self.guest.close()
        if self.engine is not None and self.engine.daemon.process is not None:
            problems += self.engine.stop()
        if self.wire is not None:
            self.wire.close()
        subprocess.run(['ip', 'netns', 'del', self.netns], check=False)
        self.work.cleanup()
        return problems

    # --- what a failing case leaves ---

    def record(self, kind, name, rules=()):
        """Starts a capture.  @return what keep() and forget() need."""
        name = re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')
        path = os.path.join(self.folder, name + '.pcap')
        if kind == 'inside':
            return path, self.guest.program('>/tmp/frames.pcap', 60) # kept in the guest
        if kind != 'wire': # only the two ends see those frames
            nic = Linux.interface[kind].split('.')[0]
            return path, self.guest.program(f'exec frames {nic} /tmp/frames.pcap', 3600)
        self.wire.begin(path, rules)
        return path, None

    def end_record(self, record):
        """@return what the wire did to frames."""
        path, job = record
        if job is None:
            return self.wire.finish()
        job.kill()
        return []

    def keep(self, record, problems):
        """@return where the capture is, karst-dump's analysis of it, and the problems."""
        path, job = record
        os.makedirs(self.failed, exist_ok=True)
        to = os.path.join(self.failed, os.path.basename(path))
        if job is not None:
            fetched = self.guest.program('cat /tmp/frames.pcap')
            fetched.wait()
            with open(to, 'wb') as f:
                f.write(fetched.output)
        else:
            shutil.move(path, to)
        with open(to[:-5] + '.txt', 'wb') as f:
            subprocess.run([self.dump, to], stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                           check=False, timeout=HANG_S)
        with open(to[:-5] + '.log', 'w', encoding='utf-8') as f:
            f.write('\n'.join(map(str, problems)) + '\n')
        return [f'see {to[:-5]}.pcap, .txt (karst-dump) and .log']

    @staticmethod
    def forget(record):
        if os.path.exists(record[0]):
            os.unlink(record[0])


class Case:
    """@server and @client: command lines, in which stand for each end
      {dev} {gid} {if} {me}  its device, index of its GID, interface and address
      {ip} {tcp}             the server's address; and its IPv4 address, for talk beside the wire
      {port}                 a port number
      {lines}                before a program whose lines karst's end is to see at once
      {patient}              before one that looks for seconds into its completion queue: it naps at
                             karst's end, too
    @listen: 'tcp' or 'cm', what the server is waited for to listen at; 'group', to join GROUP;
    None: nothing.
    @both, @at_server, @at_client: regular expressions of what they must say.
    @kinds, @roles, @families, @kernels: where it is run; @rules: those of doc/protocol.rst that it
    is about; @wire: what the wire does to frames (kind "wire" alone), and @injured: so often at the
    least.  @frames: so many at the least must pass karst; @counts: {counter of karst's, "drops/"
    and a reason, or "cm/" and a counter of connection management: by so much at the least it goes
    up}.  @check(bed): more problems, afterwards; @run(bed, kind, role): instead of server and
    client.  @limit_s: for each program.
    @attempts: how often it is tried if connections are rejected.  @sparse: each combination of
    kind, role and family is run over one of the kernels alone, in turn.
    """

    def __init__(self, name, server='', client='', listen='tcp', both=(), at_server=(),
                 at_client=(), kinds=('wire', 'vhost'), roles=ROLES, families=('ip4',),
                 kernels=('6.1', '6.12'), rules='', wire=(), injured=None, frames=1, check=None,
                 run=None, limit_s=HANG_S, statuses=(0, 0), endless=False, never=NEVER, attempts=1,
                 counts=None, sparse=False):
        self.name, self.server, self.client, self.listen = name, server, client, listen
        self.at_server, self.at_client = [*both, *at_server], [*both, *at_client]
        self.kinds = ('wire',) if wire else kinds
        self.roles, self.families, self.kernels = roles, families, kernels
        self.rules, self.wire, self.frames, self.check, self.own = rules, wire, frames, check, run
        self.injured = injured if injured is not None else bool(wire)
        self.limit_s = limit_s
        self.statuses = statuses # of server and client; several are allowed; None: any but 0
        self.endless = endless # the server waits for another client, and is killed
        self.never = never # what the output must not contain
        self.attempts = attempts
        self.counts = counts or {}
        self.sparse = sparse

    def variants(self, kernel):
        """(kind, role, family) of each run."""
        mine = [n for n, series in enumerate(self.kernels) if kernel.startswith(series + '.')]
        return [(kind, role, family) for i, kind in enumerate(self.kinds)
                for j, role in enumerate(self.roles) for k, family in enumerate(self.families)
                if mine and (not self.sparse or
                             (i + j + k + len(self.name)) % len(self.kernels) == mine[0])]

    def title(self, kind, role, family):
        if kind == 'inside':
            return f'{kind}: {self.name}'
        return f'{kind}, karst is {role}' + (f', {family}' if family != 'ip4' else '') + \
            f': {self.name}'


def words(line, me, server, kind, family, port):
    """A command line, for one end."""
    zone = f'%{me.interface[kind]}' if family == 'll' else ''
    fields = {'dev': me.device[kind], 'if': me.interface[kind], 'port': port,
              'me': me.address(kind, family) + zone, 'ip': server.address(kind, family) + zone,
              'tcp': server.address('wire' if kind == 'vlan' else kind, 'ip4')}
    fields['lines'] = 'stdbuf -oL' if me.karst else ''
    patient = shutil.which(PATIENT) if me.karst else None # at Linux's end all programs are patient
    fields['patient'] = f'env LD_PRELOAD={patient}' if patient else ''
    if '{gid}' in line:
        fields['gid'] = me.gid(kind, family)
    return line.format(**fields)


def until_rejected(bed, case, program):
    """Waits for its end; or, as a rejection may leave it hanging, GRACE_S from then on.  @return
    how long it may still take."""
    before, rejected = bed.host.managed(REJECTIONS), False
    end = time.monotonic() + case.limit_s
    while program.status is None and time.monotonic() < end:
        if not rejected and bed.host.managed(REJECTIONS) != before:
            rejected, end = True, min(end, time.monotonic() + GRACE_S)
        time.sleep(0.05)
    return max(end - time.monotonic(), 0.1)


def client_ends(bed, case, client, line, one):
    """(problems, the client).  Over rdma_cm the client is tried again until its server listens; but
    not a client that had connected when it was rejected, if the two ends do not recover from
    that."""
    end = time.monotonic() + LISTENS_S
    while True:
        before = bed.host.managed(ANSWERS)
        other = client.program(line, case.limit_s)
        limit_s = until_rejected(bed, case, other) if case.attempts > 1 else case.limit_s
        problems = [f'client: {p}' for p in other.wait(limit_s)]
        well = fits(exit_status(other), case.statuses[1]) and not says(other, case.at_client)
        if problems or well or case.listen != 'cm' or one.status is not None or \
                not re.search(TOO_EARLY, other.text()) or time.monotonic() > end:
            return problems, other
        if case.attempts > 1 and bed.host.managed(ANSWERS) != before:
            return [REJECTED_LATE], other


def meet(bed, case, kind, role, family):
    """(problems, [server, client])"""
    server, client = (bed.linux, bed.host) if role == 'client' else (bed.host, bed.linux)
    one = server.program(words(case.server, server, server, kind, family, PORT), case.limit_s)
    problems = server.listens(one, PORT, case.listen, kind) if case.listen else []
    if problems:
        one.kill()
        return [f'server: {p}' for p in problems], [one]
    problems, other = client_ends(bed, case, client,
                                  words(case.client, client, server, kind, family, PORT), one)
    if problems or case.endless:
        one.kill()
    elif not fits(exit_status(other), case.statuses[1]):
        problems = [f'client: exit status {other.status}']
        one.wait(GRACE_S) # no client is left to serve; its output about that is shown
    else:
        problems += [f'server: {p}' for p in one.wait(case.limit_s)]
    if not case.endless and not fits(exit_status(one), case.statuses[0]):
        problems.append(f'server: exit status {one.status}')
    return problems, [one, other]


def fits(status, wanted):
    if wanted is None:
        return status != 0
    return status in wanted if isinstance(wanted, tuple) else status == wanted


def meet_again(bed, case, kind, role, family):
    """meet(); a program that does not survive the rejection of an early client has further
    attempts, one after each rejection."""
    for left in reversed(range(case.attempts)):
        before = bed.host.managed(REJECTIONS)
        problems, programs = meet(bed, case, kind, role, family)
        if not problems or left == 0 or (problems[0] != REJECTED_LATE and
                                         bed.host.managed(REJECTIONS) == before):
            break
        print(f'# rejected, {problems[0]}; once more', flush=True)
        left_over = bed.engine.left() # its listener would be taken for that of the next one
        if left_over:
            return left_over, programs
    return problems, programs


def judge(bed, case, programs):
    """@return problems in their output."""
    server, client = programs
    problems = [f'server: {p}' for p in says(server, case.at_server)]
    problems += [f'client: {p}' for p in says(client, case.at_client)]
    problems += [f'it said: {found.group(0)}' for found in (
        re.search(case.never, program.text()) for program in programs if case.never) if found]
    if case.check is not None:
        problems += case.check(bed)
    return problems


def passed(bed):
    """RoCE frames of queue pairs, in both directions."""
    return bed.engine.counter('rx_packets') + bed.engine.counter('tx_packets')


def counted(bed, names):
    """{name: value} of counters, of drops by their reason, and of connection management's."""
    drops = bed.engine.ask(lambda e: e.rows('drops')) if names else {}

    def value(name):
        if name.startswith('drops/'):
            return sum(row.get(name[6:], 0) for row in drops.values())
        if name.startswith('cm/'):
            return bed.host.managed([name[3:]])
        return bed.engine.counter(name)

    return {name: value(name) for name in names}


def linux_stopped(bed, case, role, programs):
    """Whether Linux, as the requester on an impaired wire, had requests left that it neither sent
    again nor gave up, for a time in which its timer must have expired, and karst had answered the
    last one that it sent (L16)."""
    return bool(case.wire) and role == 'server' and len(programs) == 2 and \
        bed.wire.silent_s('guest', 'karst') > SILENT_S and FLUSHED in programs[1].text()


def begin_log(bed):
    """From here on lost_its_place() checks, and the guest's kernel prints again what it prints only
    once.  This runs before each such case, so it is one shell only: each further program takes QEMU
    15 ms."""
    bed.guest.run(f'echo 1 >/sys/kernel/debug/clear_warn_once; echo "{CASE_BEGINS}" >/dev/kmsg')


def lost_its_place(bed):
    """Whether a requester in the guest has ended in the middle of a READ since begin_log() (L18), by the
    kernel's warnings."""
    said = bed.guest.run('dmesg')[1].rpartition(CASE_BEGINS)[2]
    return re.search('WARNING: .*rxe_completer', said) is not None


def run(bed, case, kind, role, family):
    """run_once(); once more, if it failed because Linux stopped, or while the machine kept programs
    waiting: so long that a requester may have given up, half a second with some, if their output
    says so; or so long that any of them may have."""
    stopped = False
    for left in reversed(range(ATTEMPTS)):
        bed.clock.stood_still(0)
        problems, stops = run_once(bed, case, kind, role, family)
        still_s = bed.clock.stood_still(STILL_S)
        said = '\n'.join(map(str, problems))
        wanted_s = STILL_S if re.search(GAVE_UP, said) else LONG_S
        if stops and not stopped and left: # but not twice: L16 and L18 do not cover that
            stopped = True
            once_more(still_s, said, stops)
            continue
        if not problems or not left or \
                still_s < wanted_s and not re.search(MEASURED_IN_VAIN, said):
            break
        once_more(still_s, said)
    return problems


def run_once(bed, case, kind, role, family):
    """@return problems; what Linux has done that ends a case, if it has"""
    if not bed.guest.alive():
        bed.guest.close()
        problems = bed.boot()
        if problems:
            return ['the guest is gone, and another one does not come up', *problems], None
    record = bed.record(kind, f'{kind}-{role}-{family}-{case.name}', case.wire)
    before, counts = passed(bed), counted(bed, case.counts)
    if case.wire:
        begin_log(bed)
    programs = []
    if case.own is not None:
        problems = case.own(bed, kind, role)
    else:
        problems, programs = meet_again(bed, case, kind, role, family)
    stops = None
    if problems and linux_stopped(bed, case, role, programs):
        stops = 'Linux was silent with requests left that karst had answered (L16)'
    elif problems and case.wire and bed.guest.alive() and lost_its_place(bed):
        stops = 'Linux has ended a queue pair in the middle of a READ (L18)'
    if not problems and programs:
        problems = judge(bed, case, programs)
    injuries = bed.end_record(record)
    if not problems:
        frames = passed(bed) - before
        if frames < case.frames:
            problems.append(f'{frames} frames passed karst, {case.frames} is the least')
        problems += [f'{name} went up by {now - counts[name]}, {case.counts[name]} is the least'
                     for name, now in counted(bed, case.counts).items()
                     if now - counts[name] < case.counts[name]]
        if len(injuries) < case.injured:
            problems.append(f'the wire did {len(injuries)} injuries, {int(case.injured)} is the '
                            'least')
    problems += bed.engine.left()
    if problems:
        problems = [line[:LINE_MAX] for line in problems]
        problems += [f'the wire: frame {n}, {act} of {source}\'s opcode {op:#04x}'
                     for n, act, source, op in injuries[:40]]
        for program in programs:
            problems += [line[:LINE_MAX] for line in program.shown()]
        problems += bed.engine.shown() + bed.guest.said(5 if bed.guest.alive() else DEAD_LINES)
        return problems[:1] + bed.keep(record, problems) + problems[1:], stops
    bed.forget(record)
    return [], None
