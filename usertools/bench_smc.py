# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs over SMC-R, compared with the same programs over the kernel's TCP.  Client and server use
one daemon, on the loopback interface."""
import os
import shutil
import subprocess
import sys
import time

from bench_bed import Daemon, karst_run, listens

PORT = 18791
CLIENTS = 50
SMC = '[smc]\nenabled = yes\n'


def redis(bench, before, pipeline):
    """{test: requests a second}; {} if it failed.  @before: words in front of each command; none: over TCP."""
    words = ['redis-benchmark', '-p', str(PORT), '-t', 'set,get', '-c', str(CLIENTS), '-P', str(pipeline),
             '-n', str(int((40000 if pipeline == 1 else 400000) * bench.seconds)), '--csv']
    print(f'[{time.monotonic() - bench.began:5.0f} s] {"karst-run --smc " if before else ""}{" ".join(words)}',
          file=sys.stderr, flush=True)
    server = subprocess.Popen([*before, 'redis-server', '--port', str(PORT), '--bind', '127.0.0.1', '--save', '',
                               '--appendonly', 'no'], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not listens(PORT) and server.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        done = subprocess.run([*before, *words], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        done = None
    finally:
        server.terminate()
        server.wait()
    if done is None or done.returncode != 0:
        print(done.stderr[-600:] if done else 'it hangs', file=sys.stderr)
        bench.failed += 1
        return {}
    rows = [line.replace('"', '').split(',') for line in done.stdout.splitlines()[1:]]
    return {row[0]: float(row[1]) for row in rows}


def smc(bench):
    """redis, without and with a pipeline."""
    if os.geteuid() != 0 or shutil.which('redis-benchmark') is None:
        bench.info('redis over SMC-R', 'not measured', 'needs root, redis-server and redis-tools')
        return
    with Daemon(bench.perf, ports=SMC) as daemon:
        over = [karst_run(bench), '--smc', '--require', '--socket', daemon.socket]
        for pipeline in 1, 16:
            found = []
            for _ in range(bench.runs):
                pair = redis(bench, over, pipeline), redis(bench, [], pipeline)
                found += [pair] if all(pair) else []
            for test in 'SET', 'GET':
                rates = sorted((ours[test] / tcp[test], ours[test], tcp[test]) for ours, tcp in found)
                ratio, ours, tcp = rates[len(rates) // 2] if rates else (None, 0, 0)
                bench.row(f'redis {test}, {CLIENTS} clients, pipeline {pipeline}: SMC-R over TCP', ratio, 1,
                          note=f'{ours / 1e3:.1f} and {tcp / 1e3:.1f} thousand a second')
