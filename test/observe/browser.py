# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A headless Chromium, driven through a pipe by the DevTools protocol: browser.Browser().

Whoever uses it waits for what a page shows, not for a time.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import time

HANG_S = 120


def find():
    """Path of a Chromium; None if there is none."""
    return shutil.which('chromium') or shutil.which('chromium-browser')


class Browser:
    """One browser with one page."""

    def __init__(self, program, folder):
        to_browser, self.to = os.pipe()
        self.back, from_browser = os.pipe()
        self.number, self.left, self.events = 0, b'', []
        # the pipe is on descriptors 3 and 4 of the browser
        self.process = subprocess.Popen(
            ['bash', '-c', 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"', 'bash', str(to_browser),
             str(from_browser), program, '--headless', '--no-sandbox', '--disable-gpu',
             '--disable-dev-shm-usage', '--remote-debugging-pipe', '--hide-scrollbars', '--no-first-run',
             '--disable-background-networking', '--disable-component-update',
             f'--user-data-dir={os.path.join(folder, "browser")}', 'about:blank'],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=folder))
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        target = self.ask('Target.createTarget', url='about:blank')['targetId']
        self.session = self.ask('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network', 'Accessibility'):
            self.ask(domain + '.enable')

    def ask(self, method, **params):
        """The result of a command.  RuntimeError: an error, or the browser is gone."""
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params}
        if self.session:
            message['sessionId'] = self.session
        os.write(self.to, json.dumps(message).encode() + b'\0')
        end = time.monotonic() + HANG_S
        while True:
            got = self.receive(end)
            if got.get('id') == self.number:
                if 'error' in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got['result']
            self.events.append(got)

    def receive(self, end):
        while b'\0' not in self.left:
            if not select.select([self.back], [], [], max(0, end - time.monotonic()))[0]:
                raise RuntimeError('the browser does not answer')
            some = os.read(self.back, 1 << 20)
            if not some:
                raise RuntimeError('the browser is gone')
            self.left += some
        line, self.left = self.left.split(b'\0', 1)
        return json.loads(line)

    def evaluate(self, script):
        """The value of an expression in the page."""
        got = self.ask('Runtime.evaluate', expression=script, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in got:
            raise RuntimeError(f"{script}: {got['exceptionDetails']}")
        return got['result'].get('value')

    def wait(self, script):
        """@return whether the expression became true."""
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            if self.evaluate(script):
                return True
            time.sleep(0.1)
        return False

    def open(self, url):
        self.ask('Page.navigate', url=url)

    def look(self, width, height, dark):
        self.ask('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1,
                 mobile=width < 600)
        self.ask('Emulation.setEmulatedMedia', features=[
            {'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])

    def screenshot(self, path):
        got = self.ask('Page.captureScreenshot', format='png', captureBeyondViewport=True)
        with open(path, 'wb') as f:
            f.write(base64.b64decode(got['data']))

    def complaints(self):
        """What the page logged, threw, or was refused by its own policy."""
        found = []
        for event in self.events:
            method, params = event.get('method'), event.get('params', {})
            if method == 'Runtime.exceptionThrown':
                found.append(f"exception: {params['exceptionDetails']}")
            elif method == 'Log.entryAdded' and params['entry']['level'] in ('error', 'warning'):
                found.append(f"log: {params['entry']['text']} {params['entry'].get('url', '')}")
        return found

    def requests(self):
        """URLs that the page requested."""
        return [event['params']['request']['url'] for event in self.events
                if event.get('method') == 'Network.requestWillBeSent']

    def names(self):
        """[(role, name)] of the accessibility tree."""
        nodes = self.ask('Accessibility.getFullAXTree')['nodes']
        return [(node.get('role', {}).get('value'), node.get('name', {}).get('value', ''))
                for node in nodes if not node.get('ignored')]

    def close(self):
        try:
            self.session = None
            self.ask('Browser.close')
        except (RuntimeError, OSError):
            self.process.kill()
        self.process.wait(timeout=HANG_S)
        os.close(self.to)
        os.close(self.back)
