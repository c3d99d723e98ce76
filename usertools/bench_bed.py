# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The test bed of bench.py: a private karstd, and pairs of programs over it or over the kernel's TCP."""
import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

from karst_listen import listens

ADDRESS = '192.0.2.1'  # of the daemon's port, for programs that ignore loopback addresses
VERBS_PORT = 18770     # TCP port on which perftest, UCX and libfabric connect
UCX_RC = 'rc_verbs,ud_verbs'
CLONE_NEWNET = 0x40000000


class Interface:
    """This process and its children are in a network namespace with an interface that has the
    address of the daemon's port.  As root."""

    def __enter__(self):
        self.before = os.open('/proc/self/ns/net', os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), 'a network namespace')
        for words in ('link set lo up', 'link add kb0 type veth peer name kb1',
                      f'addr add {ADDRESS}/24 dev kb0', 'link set kb0 up', 'link set kb1 up'):
            subprocess.run(['ip', *words.split()], check=True)

    def __exit__(self, *why):
        ctypes.CDLL(None).setns(self.before, CLONE_NEWNET)
        os.close(self.before)


class Daemon:
    """A private karstd with a loopback port."""

    def __init__(self, perf, engine='', ports=''):
        beside = os.path.join(os.path.dirname(perf), 'karstd')
        self.program = beside if os.path.exists(beside) else \
            os.path.join(os.path.dirname(perf), '..', 'karstd', 'karstd')
        self.folder = tempfile.TemporaryDirectory(prefix='karst-bench-')
        self.socket = os.path.join(self.folder.name, 'karst.sock')
        conf = os.path.join(self.folder.name, 'karst.conf')
        with open(conf, 'w', encoding='utf-8') as f:
            f.write(f'[engine]\nname = bench{os.getpid() % 10000}\nuser = {os.geteuid()}\n{engine}'
                    '[limits]\nring_bytes = 4G\n[port lo]\ndevice = loopback\n'
                    f'{ports}')
        self.process = subprocess.Popen(
            [self.program, '--config', conf, '--socket', self.socket, '--log-level', 'warning'])
        end = time.monotonic() + 60
        while not self.admits() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)

    def admits(self):
        """Whether the daemon accepts connections; its socket exists slightly earlier."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            return s.connect_ex(self.socket) == 0

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    def cpu_seconds(self):
        with open(f'/proc/{self.process.pid}/stat', encoding='ascii') as f:
            words = f.read().rsplit(')', 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


class Pair:
    """A server and a client over a daemon; the client waits until it is told to begin."""

    def __init__(self, bench, daemon, args):
        self.server = subprocess.Popen(
            [bench.perf, '--connect', daemon.socket, '--server', '--tcp-port', '0'],
            stdout=subprocess.PIPE, text=True)
        port = self.server.stdout.readline().split()[-1]
        self.client = subprocess.Popen(
            [bench.perf, '--connect', daemon.socket, '--peer', 'localhost', '--tcp-port', port,
             '--hold', '--json', *args.split()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def connected(self):
        for line in self.client.stderr:
            if 'connected' in line:
                return True
        return False

    def begin(self):
        self.client.stdin.write('\n')
        self.client.stdin.flush()

    def result(self):
        out, _ = self.client.communicate()
        self.server.wait()
        lines = [line for line in out.splitlines() if line.startswith('{')]
        return json.loads(lines[0]) if lines and self.client.returncode == 0 else None


def timed_pair(bench, daemon, args):
    pair = Pair(bench, daemon, args)
    pair.connected()
    pair.begin()
    return pair.result()


def karst_run(bench):
    """The path of karst-run: in the folder of karst-perf if both are installed, else in the same build."""
    beside = os.path.join(os.path.dirname(bench.perf), 'karst-run')
    return beside if os.path.isfile(beside) else \
        os.path.join(os.path.dirname(bench.perf), '..', 'karst-run', 'karst-run')


class Programs:
    """Pairs of programs, over a daemon by karst-run or directly over the kernel."""

    def __init__(self, bench, daemon):
        self.bench = bench
        self.over = [karst_run(bench), '--socket', daemon.socket]

    def pair(self, server, client, karst=True, env=None, port=None):
        """The client's output; None if it failed.  @port: the server's TCP port; for a server without one,
        the client starts after a second."""
        before = self.over if karst else []
        print(f'[{time.monotonic() - self.bench.began:5.0f} s] '
              f'{"karst-run " if karst else ""}{" ".join(client)}', file=sys.stderr, flush=True)
        options = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT, 'text': True,
                   'env': {**os.environ, **(env or {})}}
        other = subprocess.Popen([*before, *server], **options)
        end = time.monotonic() + (60 if port else 1)
        while time.monotonic() < end and not (port and (listens(port) or other.poll() is not None)):
            time.sleep(0.05)
        try:
            done = subprocess.run([*before, *client], timeout=60, check=False, **options)
            other.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            done = None
        other.kill()
        other.wait()
        if done is not None and done.returncode == 0:
            return done.stdout
        print(done.stdout[-600:] if done else 'it hangs', file=sys.stderr)
        self.bench.failed += 1
        return None

    def perftest(self, args):
        """The words of the row of figures; [] if it failed."""
        words = [*args.split(), '-F', '-p', str(VERBS_PORT)]
        out = self.pair(words, [*words, 'localhost'], port=VERBS_PORT) or ''
        rows = out.split('#bytes')[-1].splitlines()[1:2]
        return rows[0].split() if rows else []

    def ucx(self, tls, args, karst):
        """The average and the overall figure of the last line of ucx_perftest."""
        words = ['ucx_perftest', *args.split(), '-p', str(VERBS_PORT)]
        out = self.pair(words, [*words, 'localhost'], karst, {'UCX_TLS': tls}, VERBS_PORT) or ''
        lines = [line.split() for line in out.splitlines() if line.startswith('Final:')]
        return [float(word) for word in lines[-1][1:]] if lines else None

    def fabric(self, provider, kind, size, karst):
        """MB/s and microseconds per transfer of fi_pingpong; both programs use the address of an
        interface, because libfabric ignores that of lo."""
        # enough transfers that the connection, which the first one waits for, takes a small part of the time
        words = ['fi_pingpong', '-p', provider, '-e', kind, '-S', str(size), '-I',
                 '100000' if size < 1024 else '20000']
        with Interface():
            out = self.pair([*words, '-B', str(VERBS_PORT)],
                            [*words, '-P', str(VERBS_PORT), ADDRESS], karst, port=VERBS_PORT) or ''
        lines = [line.split() for line in out.splitlines() if line[:1].isdigit()]
        return [float(word) for word in lines[-1][-3:-1]] if lines else None


FIO_PORT = 18790
FIO_DEPTH = {4096: '--iodepth=128 --iodepth_batch=32 --iodepth_batch_complete_min=32',
             131072: '--iodepth=16'}


def fio_once(bench, p, size, karst, align):
    """(MiB/s, blocks a second) that fio writes; None if it failed."""
    engine = ['--ioengine=rdma'] if karst else ['--ioengine=net', '--protocol=tcp']
    # must follow the engine, because --port is an option of the engine
    common = ['fio', *engine, f'--port={FIO_PORT}', f'--bs={size}', '--size=1t',
              '--output-format=json', '--time_based', f'--iomem_align={align}']
    server = [*common, '--name=server', '--rw=read', f'--runtime={bench.seconds + 5:.0f}']
    client = [*common, '--name=client', '--rw=write', f'--runtime={bench.seconds:.0f}']
    if karst:
        depth = FIO_DEPTH[size].split()
        server += depth[:1]
        client += [f'--hostname={ADDRESS}', '--verb=write', *depth]
    else:
        server += ['--listen']
        client += ['--hostname=127.0.0.1']
    out = p.pair(server, client, karst) or ''
    if '{' not in out:
        return None
    job = json.loads(out[out.index('{'):])['jobs'][0]['write']
    return job['bw_bytes'] / 2 ** 20, job['iops']
