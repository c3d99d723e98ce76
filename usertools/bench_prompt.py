# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A program with testpmd's prompt, for the benches that query its rate."""
import os
import select
import subprocess
import time

HANG_S = 60


class Prompted:
    """@words: its command line; @prompt: the text that it prints when it waits for a command."""

    def __init__(self, words, prompt):
        self.prompt = prompt
        self.process = subprocess.Popen(['stdbuf', '-o0', *words], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        self.said = ''
        self.wait(prompt)

    def wait(self, text, since=0):
        """Waits until it has printed @text, after the first @since characters of its output."""
        end = time.monotonic() + HANG_S
        while text not in self.said[since:]:
            ready = select.select([self.process.stdout], [], [], 1)[0]
            new = os.read(self.process.stdout.fileno(), 65536).decode(errors='replace') \
                if ready else None
            if new == '' or time.monotonic() > end:
                raise RuntimeError(f'"{text}" does not come: {self.said}')
            self.said += new or ''

    def command(self, text, until):
        """@return the output since the command, at least up to @until."""
        since = len(self.said)
        self.process.stdin.write(text.encode() + b'\n')
        self.wait(until, since)
        return self.said[since:]

    def stop(self):
        try:
            self.process.stdin.write(b'stop\nquit\n')
            self.process.communicate(timeout=HANG_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
