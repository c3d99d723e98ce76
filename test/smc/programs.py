#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Unmodified programs of Debian over SMC-R, both sides behind karst-run --smc of one karstd:
programs.py BUILD [NAME...] (TAP; as root)."""
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from smcbed import CONF, bed, run  # noqa: E402

BODY = bytes(range(256)) * 4096
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
    timeout connect 60s
    timeout client 60s
    timeout server 60s
    option splice-auto
listen it
    bind 127.0.0.1:{port}
    server one 127.0.0.1:{behind}
"""


class Points:
    def __init__(self, suite, one):
        self.suite, self.one = suite, one
        self.folder = suite.folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, content):
        with open(self.path(name), 'wb') as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def smc(self, *command):
        return [self.suite.run, '--smc', '--socket', self.one.socket, *map(str, command)]

    def server(self, port, *command):
        """It listens when this is back."""
        with open(self.path('server.log'), 'a', encoding='utf-8') as log:
            process = subprocess.Popen(self.smc(*command), stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log)
        self.suite.programs.append(process)
        self.listens(port, process)
        return process

    def listens(self, port, process):
        """Looked up, as some servers take one connection only."""
        wanted, began = f':{port:04X} 00000000:0000 0A', time.monotonic()
        while True:
            with open('/proc/net/tcp', encoding='ascii') as f:
                if wanted in f.read():
                    return
            if process.poll() is not None or time.monotonic() - began > bed.HANG_S:
                with open(self.path('server.log'), encoding='utf-8') as f:
                    raise OSError(f'port {port}: {f.read()}')
            time.sleep(0.01)

    def number(self, name, process):
        """What a server has written to a file of that name, which it does when it obeys signals, and
        that is after it has begun to listen."""
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
        """(what it said, problems)"""
        try:
            done = subprocess.run(self.smc(*command), input=data, capture_output=True, check=False,
                                  timeout=bed.HANG_S)
        except subprocess.TimeoutExpired:
            return b'', [f'{command[0]} does not end']
        return done.stdout, [] if done.returncode == 0 else [
            f'{command[0]}: exit status {done.returncode}', done.stdout, done.stderr]

    # --- one program each ---

    def redis(self, port):
        """redis-server redis-benchmark"""
        server = self.server(port, 'redis-server', '--port', port, '--bind', '127.0.0.1', '--save', '',
                             '--appendonly', 'no', '--dir', self.folder)
        problems = []
        for pipeline in 1, 16:
            said, more = self.client('redis-benchmark', '-p', port, '-t', 'set,get,lrange_100', '-n', 2000,
                                     '-c', 50, '-P', pipeline, '--csv')
            problems += more + ([] if said.count(b'"') and b'LRANGE_100' in said else [said])
        server.terminate()
        return problems

    def nginx(self, port):
        """nginx wrk curl"""
        self.file('body', BODY)
        conf = self.file('nginx.conf', NGINX.format(folder=self.folder, port=port))
        server = self.server(port, 'nginx', '-c', conf)
        load = subprocess.Popen(self.smc('wrk', '-t', 1, '-c', 20, '-d', '2s',
                                         f'http://127.0.0.1:{port}/nginx.conf'), stdout=subprocess.PIPE)
        problems = []
        for _ in range(2): # other workers, while there are connections
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
        conf = self.file('haproxy.cfg', HAPROXY.format(port=port, behind=behind))
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

    def sockperf(self, port):
        """sockperf"""
        server = self.server(port, 'sockperf', 'sr', '--tcp', '-i', '127.0.0.1', '-p', port)
        said, problems = self.client('sockperf', 'pp', '--tcp', '-i', '127.0.0.1', '-p', port, '-m', 64, '--mps', 20000,
                                     '-t', 1)
        server.terminate()
        return problems + ([] if b'# dropped messages = 0' in said else [said])


NAMES = ['redis', 'nginx', 'memcached', 'haproxy', 'iperf3', 'sockperf']


def test(suite):
    one, problems = suite.daemon('one', CONF)
    suite.tap.point('a daemon with [smc]', problems)
    os.chmod(suite.folder, 0o755)
    points = Points(suite, one)
    for name in sys.argv[2:] or NAMES:
        what = getattr(points, name)
        missing = [program for program in what.__doc__.split() if shutil.which(program) is None]
        before = suite.count(one, 'direct')
        try:
            problems = [f'not installed: {missing}'] if missing else what(bed.free_port())
        except OSError as e:
            problems = [e]
        if not problems and suite.count(one, 'direct') == before:
            problems.append('its connections were not SMC-R')
        suite.tap.point(what.__doc__, problems)
    suite.tap.point('it ends', one.stop())


if __name__ == '__main__':
    sys.exit(run(sys.argv[1], test))
