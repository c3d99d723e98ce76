# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""dpdk-testpmd at its prompt, for tests of drivers."""
import os
import select
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import HANG_S  # noqa: E402


class Testpmd:
    def __init__(self, *words, netns=None, before=None):
        """@words: its arguments, those of testpmd itself last.  @before: called in the new
        process."""
        command = ['ip', 'netns', 'exec', netns] if netns else []
        # by default it locks all memory of -m; without that an unused page costs nothing
        self.process = subprocess.Popen(
            [*command, 'stdbuf', '-o0', 'dpdk-testpmd', *words, '--no-mlockall'], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0, preexec_fn=before)
        self.said = ''

    def wait(self, text, since=0):
        end = time.monotonic() + HANG_S
        while text not in self.said[since:]:
            if time.monotonic() > end:
                return [f'"{text}" does not come: {self.said}']
            if select.select([self.process.stdout], [], [], 1)[0]:
                new = os.read(self.process.stdout.fileno(), 65536).decode(errors='replace')
                if not new:
                    return [f'exit status {self.process.wait()}: {self.said}']
                self.said += new
        return []

    def command(self, text, until):
        """@return problems, and its output at least up to @until."""
        since = len(self.said)
        self.process.stdin.write(text.encode() + b'\n')
        problems = self.wait(until, since)
        return problems, self.said[since:]

    def start(self):
        return self.wait('testpmd> ') or self.command('start', 'io packet forwarding')[0]

    def stop(self):
        try:
            self.process.stdin.write(b'quit\n')
            self.process.stdin.close()
            while self.process.stdout.read(65536):
                pass
            status = self.process.wait(HANG_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            status = self.process.wait()
        return [f'exit status {status}: {self.said[-2000:]}'] if status else []
