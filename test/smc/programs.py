#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Unmodified programs of Debian over SMC-R, both sides behind karst-run --smc of one karstd, which
exchange bytes directly; some of them also over a karstd that transfers all bytes by RDMA:
programs.py BUILD [NAME...] (TAP; as root)."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from smcbed import CONF, HERE, bed, run  # noqa: E402
from karst_listen import listens  # noqa: E402

BODY = bytes(range(256)) * 4096
# with counted.c: all messages have been answered, but sockperf no longer records the last one
COUNTED = b'SentMessages=20000; ReceivedMessages=19999\n', b'# duplicated messages = 0; # out-of-order messages = 0'
NGINX = """
daemon off; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; root {folder}; sendfile on; }} }}
"""
HAPROXY = """
global
    nbthread 2
defaults
    mode tcp
    timeout connect {patience}s
    timeout client {patience}s
    timeout server {patience}s
    option splice-auto
listen it
    bind 127.0.0.1:{port}
    server one 127.0.0.1:{behind}
"""


SSHD = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/keys
PidFile none
LoginGraceTime 0
StrictModes no
UsePAM no
Subsystem sftp internal-sftp
"""
SHARED = '[socket]\nmode = 0666\n' # for servers that do not run as root
AS_POSTGRES = 'setpriv', '--reuid', 'postgres', '--regid', 'postgres', '--clear-groups'


def where(name):
    """@return the path of a program, which may be in a folder that only root, or only related
    programs, search; or None"""
    folders = [os.environ['PATH'], '/usr/sbin', *sorted(glob.glob('/usr/lib/postgresql/*/bin'))]
    return shutil.which(name, path=os.pathsep.join(folders))


class Points:
    def __init__(self, suite, one, rdma):
        self.suite, self.one = suite, one
        self.clients = 10 if rdma else 50 # short connections take longer
        self.folder = os.path.join(suite.folder, one.name)
        os.mkdir(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, content):
        with open(self.path(name), 'wb') as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def smc(self, *command):
        return [self.suite.run, '--smc', '--socket', self.one.socket, *map(str, command)]

    def server(self, port, *command):
        """Starts a server.  It listens when this returns."""
        with open(self.path('server.log'), 'a', encoding='utf-8') as log:
            process = subprocess.Popen(self.smc(*command), stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log)
        self.suite.programs.append(process)
        self.listens(port, process)
        return process

    def listens(self, port, process):
        """Waits until the server listens.  This checks the kernel's table, because some servers
        accept one connection only."""
        began = time.monotonic()
        while not listens(port):
            if process.poll() is not None or time.monotonic() - began > bed.HANG_S:
                with open(self.path('server.log'), encoding='utf-8') as f:
                    raise OSError(f'port {port}: {f.read()}')
            time.sleep(0.01)

    def says(self, text, process):
        """Waits until this text is in the log of the server."""
        began = time.monotonic()
        while True:
            with open(self.path('server.log'), encoding='utf-8') as f:
                said = f.read()
            if text in said:
                return
            if process.poll() is not None or time.monotonic() - began > bed.HANG_S:
                raise OSError(f'not "{text}": {said}')
            time.sleep(0.01)

    def number(self, name, process):
        """@return what a server has written to a file of that name.  It does so when it is ready
        for signals, which is after it has begun to listen."""
        began, text = time.monotonic(), ''
        while not text.endswith('\n'):
            if process.poll() is not None or time.monotonic() - began > bed.HANG_S:
                raise OSError(f'no number in {name}: {text}')
            time.sleep(0.01)
            if os.path.exists(self.path(name)):
                with open(self.path(name), encoding='ascii') as f:
                    text = f.read()
        return int(text)

    def client(self, *command, data=None):
        """@return (its output, problems)"""
        try:
            done = subprocess.run(self.smc(*command), input=data, capture_output=True, check=False,
                                  timeout=bed.HANG_S)
        except subprocess.TimeoutExpired:
            return b'', [f'{command[0]} does not end']
        return done.stdout, [] if done.returncode == 0 else [
            f'{command[0]}: exit status {done.returncode}', done.stdout, done.stderr]

    def plain(self, *command):
        """Runs a command without connections.  @return problems"""
        done = subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return [] if done.returncode == 0 else [f'{command[0]}: exit status {done.returncode}', done.stderr]

    # --- one program each ---

    def redis(self, port):
        """redis-server redis-benchmark"""
        server = self.server(port, 'redis-server', '--port', port, '--bind', '127.0.0.1', '--save', '',
                             '--appendonly', 'no', '--dir', self.folder)
        problems = []
        for pipeline in 1, 16:
            said, more = self.client('redis-benchmark', '-p', port, '-t', 'set,get,lrange_100', '-n', 2000,
                                     '-c', self.clients, '-P', pipeline, '--csv')
            problems += more + ([] if said.count(b'"') and b'LRANGE_100' in said else [said])
        server.terminate()
        return problems

    def nginx(self, port):
        """nginx wrk curl"""
        self.file('body', BODY)
        conf = self.file('nginx.conf', NGINX.format(folder=self.folder, port=port))
        server = self.server(port, 'nginx', '-c', conf)
        load = subprocess.Popen(self.smc('wrk', '-t', 1, '-c', 20, '-d', '1s',
                                         f'http://127.0.0.1:{port}/nginx.conf'), stdout=subprocess.PIPE)
        problems = []
        for _ in range(2): # new workers, while there are connections
            os.kill(self.number('nginx.pid', server), signal.SIGHUP)
            said, more = self.client('curl', '-sS', '--retry', 3, f'http://127.0.0.1:{port}/body')
            problems += more + ([] if said == BODY else [f'{len(said)} bytes'])
        said = load.communicate()[0]
        problems += [] if b'requests in' in said and b'Non-2xx' not in said else [said]
        server.terminate()
        return problems

    def memcached(self, port):
        """memcached memcslap"""
        server = self.server(port, 'memcached', '-u', 'root', '-l', '127.0.0.1', '-p', port, '-U', 0)
        said, problems = self.client('memcslap', f'--servers=127.0.0.1:{port}', '--concurrency=4',
                                     '--execute-number=500', '--test=get')
        server.terminate()
        return problems + ([] if b'Time total' in said else [said])

    def haproxy(self, port):
        """haproxy socat"""
        behind = bed.free_port()
        conf = self.file('haproxy.cfg', HAPROXY.format(port=port, behind=behind, patience=bed.HANG_S))
        servers = [self.server(behind, 'socat', f'TCP-LISTEN:{behind},bind=127.0.0.1,fork,reuseaddr',
                               'EXEC:cat'),
                   self.server(port, 'haproxy', '-db', '-f', conf)]
        said, problems = self.client('socat', '-t', bed.HANG_S, '-', f'TCP:127.0.0.1:{port}', data=BODY)
        for server in servers:
            server.terminate()
        return problems + ([] if said == BODY else [f'{len(said)} bytes'])

    def iperf3(self, port):
        """iperf3"""
        server = self.server(port, 'iperf3', '-s', '-1', '-B', '127.0.0.1', '-p', port)
        _, problems = self.client('iperf3', '-c', '127.0.0.1', '-p', port, '-P', 8, '-n', '16M')
        return problems + ([] if server.wait() == 0 else ['the server fails'])

    def postgres(self, port):
        """initdb postgres pgbench psql"""
        data = self.path('postgres')
        os.mkdir(data)
        shutil.chown(data, 'postgres', 'postgres')
        problems = self.plain(*AS_POSTGRES, where('initdb'), '--no-sync', '--no-instructions', '--auth', 'trust',
                              '--locale', 'C', '--pgdata', data)
        if problems:
            return problems
        server = self.server(port, *AS_POSTGRES, where('postgres'), '-D', data, '-p', port, '-F',
                             '-c', 'listen_addresses=127.0.0.1', '-c', f'unix_socket_directories={data}')
        # it listens before, and refuses clients until it has started
        self.says('database system is ready to accept connections', server)
        at = '-h', '127.0.0.1', '-p', port, '-U', 'postgres'
        _, problems = self.client(where('pgbench'), '--initialize', '--init-steps', 'dtGp', '--quiet', *at, 'postgres')
        if not problems:
            said, problems = self.client(where('pgbench'), '--client', 8, '--transactions', 50, *at, 'postgres')
            problems += [] if b'actually processed: 400/400' in said else [said]
            said, more = self.client('psql', *at, '-At', '-c',
                                     "SELECT string_agg(lpad(n::text, 6), '') FROM generate_series(1, 99999) n")
            problems += more + ([] if said == b'%6d' * 99999 % tuple(range(1, 100000)) + b'\n' else [said[:99]])
        server.send_signal(signal.SIGINT) # does not wait for connected clients
        return problems + ([] if server.wait() == 0 else ['the server fails'])

    def ssh(self, port):
        """sshd ssh scp"""
        for name in 'host', 'user':
            self.plain('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', self.path(name))
        shutil.copy(self.path('user.pub'), self.path('keys'))
        os.chmod(self.path('keys'), 0o600)
        conf = self.file('sshd.conf', SSHD.format(folder=self.folder, port=port))
        # the folder of its confined child is on a tmpfs on Debian
        server = self.server(port, 'unshare', '--mount', 'sh', '-c', 'mount -t tmpfs none /run && mkdir /run/sshd && '
                             'exec "$@"', '-', where('sshd'), '-D', '-e', '-f', conf)
        options = '-F', 'none', '-i', self.path('user'), '-o', 'BatchMode=yes', '-o', 'StrictHostKeyChecking=no', \
            '-o', f'UserKnownHostsFile={self.path("known")}', '-o', 'LogLevel=ERROR'
        said, problems = self.client('ssh', *options, '-p', port, '127.0.0.1', 'cat', data=BODY)
        problems += [] if said == BODY else [f'{len(said)} bytes']
        if not problems:
            self.file('body', BODY)
            _, problems = self.client('scp', *options, '-P', port, self.path('body'), f'127.0.0.1:{self.path("copy")}')
            with open(self.path('copy'), 'rb') as f:
                problems += [] if f.read() == BODY else ['the copy differs']
        if problems:
            with open(self.path('server.log'), encoding='utf-8') as f:
                problems.append(f.read())
        server.terminate()
        return problems

    def rows(self):
        """@return the output of karst-smc about the connections"""
        tool = os.path.join(HERE, '..', '..', 'usertools', 'karst-smc')
        done = subprocess.run([tool, '--file-prefix', self.one.name, '--json'], capture_output=True, check=False)
        return json.loads(done.stdout)['connections'] if done.returncode == 0 else []

    def streams(self, port):
        """iperf3"""
        server = self.server(port, 'iperf3', '-s', '-1', '-B', '127.0.0.1', '-p', port)
        client = subprocess.Popen(self.smc('iperf3', '-c', '127.0.0.1', '-p', port, '-P', 8, '-t', bed.HANG_S),
                                  stdout=subprocess.DEVNULL)
        self.suite.programs.append(client)
        began, busy = time.monotonic(), []
        while len(busy) < 8 and client.poll() is None and time.monotonic() - began < bed.HANG_S:
            busy = [row for row in self.rows() if row['mode'] == 'SMC-R' and row['role'] == 'server' and
                    row['received'] > 10 * row['buffer']]
        client.send_signal(signal.SIGINT)
        client.wait()
        server.wait()
        return [] if len(busy) == 8 else [f'{len(busy)} streams of SMC-R']

    def sockperf(self, port):
        """sockperf"""
        server = self.server(port, 'sockperf', 'sr', '--tcp', '-i', '127.0.0.1', '-p', port)
        # before the libraries that karst-run preloads
        said, problems = self.client('sh', '-c', 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', self.suite.counted,
                                     'sockperf', 'pp', '--tcp', '-i', '127.0.0.1', '-p', port, '-m', 64, '--mps', 20000)
        server.terminate()
        return problems + ([] if all(words in said for words in COUNTED) else [said])


NAMES = ['redis', 'nginx', 'memcached', 'haproxy', 'iperf3', 'sockperf', 'postgres', 'ssh']
BY_RDMA = ['redis', 'streams', 'ssh']


def lacks_cx16():
    """Whether the processor lacks CMPXCHG16B, as in guests of kernel.py, because QEMU's is
    wrong."""
    with open('/proc/cpuinfo', encoding='ascii') as f:
        flags = next((line.split() for line in f if line.startswith('flags')), None)
    return flags is not None and 'cx16' not in flags


def how(suite, one):
    """@return (connections that bypass the daemon, by RDMA, by TCP)"""
    n = suite.ask(one, '/karst/smc')
    rows = suite.ask(one, '/karst/smc_reasons').values()
    return n['direct'], n['connected'] if n['writes'] else 0, sum(row['connections'] for row in rows)


def each(points, names, rdma):
    suite, one = points.suite, points.one
    for name in names:
        what = getattr(points, name)
        if name == 'haproxy' and lacks_cx16():
            suite.tap.skip(f'{name}: {what.__doc__}', 'this processor has no CMPXCHG16B, which Debian\'s haproxy needs')
            continue
        missing = [program for program in what.__doc__.split() if where(program) is None]
        before = how(suite, one)
        try:
            problems = [f'not installed: {missing}'] if missing else what(bed.free_port())
        except OSError as e:
            problems = [e]
        direct, by_rdma, by_tcp = (new - old for new, old in zip(how(suite, one), before))
        if not problems and (not (by_rdma if rdma else direct) or (direct if rdma else by_rdma) or by_tcp):
            problems.append(f'direct {direct}, by RDMA {by_rdma}, by TCP {by_tcp}')
        suite.tap.point(f'{name}: {what.__doc__}' + (', by RDMA' if rdma else ''), problems)


def test(suite):
    os.chmod(suite.folder, 0o755)
    for name, more, names in ('one', '', NAMES), ('rdma', 'direct = no\n', BY_RDMA):
        names = [wanted for wanted in names if wanted in (sys.argv[2:] or names)]
        if not names:
            continue
        one, problems = suite.daemon(name, CONF + more + SHARED)
        suite.tap.point('a daemon with [smc]', problems)
        each(Points(suite, one, bool(more)), names, bool(more))
        suite.tap.point('it ends', one.stop())


if __name__ == '__main__':
    sys.exit(run(sys.argv[1], test))
