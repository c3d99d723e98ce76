#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The exporter's page, its JSON and its manners over HTTP, with a daemon that has traffic; the dashboard.

  web.py SOURCE-ROOT KARSTD KARST-PERF KARST-DUMP   (TAP)

The page itself is looked at in Chromium, and its arithmetic run by node, where these are installed.
With KARST_SCREENSHOTS=DIR pictures of the page are left there.
"""
import errno
import http.client
import json
import os
import re
import select
import shutil
import socket
import sys
import tempfile
import threading
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, '..', '..', 'usertools'))
import browser  # noqa: E402
import dashboard  # noqa: E402
from bed import Tap  # noqa: E402
from karst_listen import listeners  # noqa: E402
from observe_bed import HANG_S, Background, Bed, Exporter, parse_exposition, scrape  # noqa: E402

CONF = ('[engine]\nidle = yield\nloss_ppm = 1000\n[port p]\ndevice = loopback\n'
        '[port wire]\ndevice = net_ring0\naddresses = 192.0.2.9/24\n')
NAME = '<b>&"x'  # a name that a program may give itself


class Client:
    """Requests to an exporter, byte for byte as specified."""

    def __init__(self, url):
        self.port = urllib.parse.urlsplit(url).port

    def ask(self, path, method='GET', host='localhost', body=None):
        """(status, headers, text)"""
        c = http.client.HTTPConnection('localhost', self.port, timeout=HANG_S)
        c.putrequest(method, path, skip_host=True)
        if host is not None:
            c.putheader('Host', host)
        if body:
            c.putheader('Content-Length', str(len(body)))
        c.endheaders(body)
        answer = c.getresponse()
        text = answer.read().decode()
        c.close()
        return answer.status, answer.headers, text

    def json(self, path):
        status, headers, text = self.ask(path)
        if not headers['Content-Type'].startswith('application/json'):
            raise ValueError(f"{path}: {headers['Content-Type']}")
        return status, json.loads(text)

    def raw(self, data):
        """Everything that is received for these bytes; nothing if the server closes at once."""
        with socket.create_connection(('localhost', self.port), timeout=HANG_S) as s:
            found = b''
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError as e:
                if e.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                    raise
                return found
            while True:
                try:
                    some = s.recv(65536)
                except ConnectionResetError:
                    return found
                if not some:
                    return found
                found += some

    def until(self, path, good):
        """The first good answer; None if none comes."""
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            status, answer = self.json(path)
            if status == 200 and good(answer):
                return answer
            time.sleep(0.2)
        return None


# --- invalid requests ---

def nonsense(tap, client):
    problems = []
    for path in ('/secrets', '/metrics/', '/index.html', '/../karst_web.py', '/%2e%2e/karst_web.py',
                 '/page.mjs/', '/web/page.mjs', '/api', '/api/', '/api/engine', '/api/engines/',
                 '/api/engines/none', '/api/engines/a/b', '/api/engines/%3Cb%3E', '/api/engines/..%2f..',
                 '/api/engines/' + 'x' * 2000, '*', 'x', '/\t'):
        status, headers, text = client.ask(path.replace('\t', '%09'))
        if status != 404 or '<' in text and 'json' not in headers['Content-Type']:
            problems.append(f'{path}: {status} {text[:200]}')
    tap.point('nonsense is answered with 404', problems)
    problems = []
    for target in (b'http://[/', b'http://[::1/metrics', b'x://]/'):
        answer = client.raw(b'GET ' + target + b' HTTP/1.1\r\nHost: localhost\r\n\r\n')
        if not answer.startswith(b'HTTP/1.0 400 '):
            problems.append(f'{target}: {answer[:200]}')
    tap.point('what is no URL is answered with 400', problems)

    problems = []
    for words in ('qps=x', 'qps=-1', 'qps=1001', 'qps=', 'qps=9999999999999999', 'qps=٣', 'sort=colour',
                  'rows=1', '&'.join(['qps=1'] * 20)):
        status, answer = client.json(f'/api/engines/{ENGINE}?{urllib.parse.quote(words, safe="=&")}')
        if status != 400 or not answer.get('error'):
            problems.append(f'{words}: {status} {answer}')
    tap.point('a wrong query is answered with 400', problems)

    problems = []
    for method in ('POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'CONNECT', 'BREW', 'get'):
        for path in ('/', '/metrics', '/api/engines', '/secrets'):
            status, headers, _ = client.ask(path, method, body=b'x' * 1000)
            if status != 405 or headers['Allow'] != 'GET, HEAD':
                problems.append(f'{method} {path}: {status} {headers["Allow"]}')
    status, headers, text = client.ask('/', 'HEAD')
    if status != 200 or text or int(headers['Content-Length']) < 1000:
        problems.append(f'HEAD /: {status} {headers} {text[:100]}')
    tap.point('methods but GET and HEAD are answered with 405', problems)

    problems = []
    for data, wanted in ((b'<script>\r\n\r\n', b' 400 '), (b'GET / FTP/1\r\n\r\n', b' 400 '),
                         (b'GET / HTTP/9.9\r\n\r\n', b' 505 '), (b'\0\xff\0\r\n\r\n', b' 400 '),
                         (b'GET /' + b'a' * 70000 + b' HTTP/1.0\r\n\r\n', b' 414 '),
                         (b'GET / HTTP/1.0\r\n' + b'X: y\r\n' * 200 + b'\r\n', b' 431 '),
                         (b'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n', b' 400 '), (b'', b'')):
        found = client.raw(data)
        if wanted not in found[:20] or b'script' in found.lower().split(b'\r\n\r\n')[-1]:
            problems.append(f'{data[:40]}: {found[:200]}')
    tap.point('what is not HTTP is refused, and not repeated', problems)


def hosts(tap, client):
    problems = []
    own = socket.gethostname()
    for host, wanted in ((f'localhost:{client.port}', 200), ('LOCALHOST', 200), ('localhost.', 200),
                         ('127.0.0.1:1', 200), ('[::1]:9791', 200), ('192.0.2.1', 200), (own, 200),
                         ('monitor.example:80', 200), (None, 200), ('evil.example', 421),
                         ('localhost.evil.example', 421), ('evil.example#localhost', 421),
                         ('localhost@evil.example', 421), ('', 421), ('[::1', 421), ('127.0.0.1.nip.example', 421),
                         ('0x7f000001', 421), (f'{own}.evil.example', 421)):
        for path in ('/', '/metrics', f'/api/engines/{ENGINE}'):
            status, _, text = client.ask(path, host=host)
            if status != wanted or status == 421 and 'karst_' in text:
                problems.append(f'Host {host}: {path}: {status} {text[:80]}')
    tap.point('names that are not of this machine are refused (DNS rebinding)', problems)


def manners(tap, client, web):
    problems = []
    for path in ('/', '/page.css', '/page.mjs', '/figures.mjs', '/icon.svg', '/metrics', '/api/engines',
                 f'/api/engines/{ENGINE}', '/secrets'):
        _, headers, _ = client.ask(path)
        policy = headers['Content-Security-Policy'] or ''
        if not policy.startswith("default-src 'none'") or 'unsafe' in policy or '*' in policy or \
                headers['X-Content-Type-Options'] != 'nosniff' or headers['Access-Control-Allow-Origin'] or \
                'Python' in (headers['Server'] or ''):
            problems.append(f'{path}: {headers}')
    tap.point('each answer has a strict policy, and allows no other site to read it', problems)
    problems = []
    for name in os.listdir(web):
        with open(os.path.join(web, name), encoding='utf-8') as f:
            text = f.read().replace('http://www.w3.org/2000/svg', '')
        problems += [f'{name}: {url}' for url in re.findall(r'(?:https?:)?//[a-z][\w.-]+\.[a-z]+', text)]
        problems += [f'{name}: {word}' for word in re.findall(r'innerHTML|insertAdjacent|document\.write|eval\(', text)]
        if name.endswith('.html') and re.search(r'<style|<script(?![^>]*src=)|\son\w+=|style=', text):
            problems.append(f'{name}: code or style within the page')
    tap.point('the page needs nothing from elsewhere, and makes no markup of text', problems)


def local_only(tap, client):
    """The address on which it listens, by the kernel's list."""
    found = listeners(client.port)
    tap.point('it listens on loopback alone', [] if found == ['127.0.0.1'] else [f'on {found}'])


def hung_up(socks, least):
    """Those that the other end has closed, when they are at least @least."""
    end = time.monotonic() + HANG_S
    while True:
        found = {socks.index(s) for s in select.select(socks, [], [], 1)[0]}
        if len(found) >= least or time.monotonic() > end:
            return found


def crowd(tap, client, most):
    """Connections that never complete their request use limited room; the oldest are closed, so
    that others are answered."""
    idle = [socket.create_connection(('localhost', client.port), timeout=HANG_S)
            for _ in range(most + 8)]
    over = hung_up(idle, 8)
    # a connection from before that was just ending may have used a place
    problems = [] if over and over <= set(range(8)) else [f'{over} are over']
    for s in idle[8:]:
        s.sendall(b'GET / HTTP/1.0\r\nX-Slow: ')
    problems += [f'{n} of them: {answer[:12]}' for n in range(3) for answer in
                 [client.raw(b'GET /icon.svg HTTP/1.0\r\n\r\n')] if answer[:12] != b'HTTP/1.0 200']
    for s in idle:
        s.close()
    if client.ask('/icon.svg')[0] != 200:
        problems.append('no answer after that')
    tap.point('connections that do not end what they ask do not keep others', problems)


def readers(tap, usertools):
    """Connections that make requests, and do not read the answer, do not delay others."""
    sys.path.insert(0, usertools)
    import karst_web
    big = 8 << 20  # more than the kernel buffers for a peer that does not read
    with karst_web.Server(('localhost', 0), [], str, list) as server:
        server.files['/big'] = karst_web.PLAIN, b'x' * big
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = Client(server.url)
        slow = []
        for _ in range(karst_web.MAX_REQUESTS):
            slow.append(socket.socket())
            slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            slow[-1].settimeout(HANG_S)
            slow[-1].connect(('localhost', client.port))
            slow[-1].sendall(b'GET /big HTTP/1.0\r\n\r\n')
            slow[-1].recv(1)  # the answer has started
        answer = client.raw(b'GET /icon.svg HTTP/1.0\r\n\r\n')
        problems = [] if answer.startswith(b'HTTP/1.0 200') else [f'{answer[:200]}']
        for s in slow:
            s.close()
        status, _, text = client.ask('/big')
        if (status, len(text)) != (200, big):
            problems.append(f'who reads gets {status}, {len(text)} bytes')
        server.shutdown()
    tap.point('connections that do not read what they asked do not keep others', problems)


def at_once(tap, usertools):
    """However many requests come at once, an engine, which answers few at a time, gets one at a
    time."""
    sys.path.insert(0, usertools)
    import karst_web
    lock, gate, running = threading.Lock(), threading.Event(), []
    most = 0

    def look():
        nonlocal most
        with lock:
            running.append(1)
            most = max(most, len(running))
        gate.wait(HANG_S)
        with lock:
            running.pop()
        return ''

    for path in '/metrics', '/api/engines':
        most = 0
        gate.clear()
        with karst_web.Server(('localhost', 0), [], look, look) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            port = Client(server.url).port
            socks = [socket.create_connection(('localhost', port), timeout=HANG_S) for _ in range(20)]
            for s in socks:
                s.sendall(f'GET {path} HTTP/1.0\r\n\r\n'.encode())
            end = time.monotonic() + HANG_S
            while len(server.answered) < len(socks) and time.monotonic() < end:
                time.sleep(0.01)
            gate.set()
            answers = [s.recv(15) for s in socks]
            for s in socks:
                s.close()
            server.shutdown()
        problems = [] if most == 1 else [f'{most} at once']
        tap.point(f'{path}: who asks at once shares one look',
                  problems + [f'{a}' for a in answers if a != b'HTTP/1.0 200 OK'])


# --- valid requests ---

def figures_of(tap, client):
    """While traffic continues."""
    url = f'/api/engines/{ENGINE}?qps=1000&sort=number'
    status, listed = client.json('/api/engines')
    problems = [] if status == 200 and [e['id'] for e in listed['engines']] == [ENGINE] else [f'{listed}']
    # the first reading may have been long ago; then rates come with the second
    first = client.until(url, lambda a: a['seconds'] is not None and a['counters']['rx_bytes']['rate'] > 0)
    second = client.until(url, lambda a: first and a['look'] > first['look'] and a['seconds'] is not None)
    if not second:
        tap.point('JSON: rates', problems + ['they do not come'])
        return
    if second['look'] == first['look'] + 1:
        for name, now in second['counters'].items():
            wanted = (now['count'] - first['counters'][name]['count']) / second['seconds']
            if abs(now['rate'] - wanted) > 0.001 + wanted * 1e-6:
                problems.append(f'{name}: {now["rate"]}, not {wanted}')
    tap.point('JSON: rates are what was counted between two looks', problems)

    problems = []
    numbers = [row['qpn'] for row in second['qps']['rows']]
    if len(numbers) != 10 or second['qps']['total'] != 10 or numbers != sorted(numbers):
        problems.append(f'queue pairs: {numbers}')
    few = client.json(f'/api/engines/{ENGINE}?qps=3')[1]
    rates = [row['rates']['tx_bytes'] + row['rates']['rx_bytes'] for row in few['qps']['rows']]
    if len(rates) != 3 or few['qps']['total'] != 10 or rates != sorted(rates, reverse=True):
        problems.append(f'three of them: {rates}')
    # between two readings an lcore may have had no processor
    moved = client.until(url, lambda a: a['seconds'] is not None and
                         sum(row['rates']['rx_frames'] for row in a['lcores']) > 0)
    if not moved or not all(0 <= row['idle'] <= 1 for row in moved['lcores']):
        problems.append(f"lcores: {(moved or second)['lcores']}")
    ports = {row['name']: row for row in second['ports']}
    if set(ports) != {'p', 'wire'} or 'rx_packets' in ports['p'] or 'rx_packets' not in ports['wire']['rates']:
        problems.append(f'ports: {ports}')
    if sorted(row['program'] for row in second['clients']['rows']) != [NAME, NAME]:
        problems.append(f"programs: {second['clients']}")
    lost = client.until(url, lambda a: any(row['reason'] == 'injected' and row['rate'] > 0 for row in a['drops']))
    if not lost or not all(row['meaning'] for row in lost['drops']):
        problems.append('no drops, or without a meaning')
    tap.point('JSON: queue pairs, lcores, ports, programs, drops', problems)

    pair = [client.json(url)[1] for _ in range(5)]
    looks = {a['look'] for a in pair}
    tap.point('JSON: who asks at once gets the same look',
              [] if len(looks) <= 2 or pair[-1]['time'] - pair[0]['time'] > 0.9 * (len(looks) - 2) else [f'{looks}'])
    _, _, text = client.ask('/metrics')
    problems, _ = parse_exposition(text)
    if 'program="<b>&\\"x"' not in text:
        problems.append('no program of that name')
    tap.point('metrics: names of programs are escaped', problems)


def events(tap, client, ended):
    """@ended: the programs have ended meanwhile."""
    def has(answer, level, words):
        return any(level == e['level'] and words in e['text'] for e in answer['events'])

    found = client.until(f'/api/engines/{ENGINE}', lambda a: has(
        a, 'note', f'program {NAME}, pid {ended} has gone') and has(
            a, 'warning', 'frames are being dropped: injected'))
    tap.point('events: drops began, a program has gone', [] if found else [
        str(client.json(f'/api/engines/{ENGINE}')[1]['events'])])


ROWS = [  # (what differs, before, after, the text)
    ('ports', {0: {'name': 'a', 'link': 'up'}, 1: {'name': 'b', 'link': 'up'}},
     {0: {'name': 'a', 'link': 'down'}, 2: {'name': '', 'link': 'up'}},
     [('warning', 'port 0 a: link down'), ('warning', 'port 1 b has gone'), ('note', 'port 2 is there, link up')]),
    ('ports', {0: {'name': 'a', 'link': 'down'}}, {0: {'name': 'a', 'link': 'up'}}, [('note', 'port 0 a: link up')]),
    ('qps', {5: {'client': 1, 'state': 'RTS'}, 6: {'client': 1, 'state': 'ERR'}},
     {5: {'client': 1, 'state': 'ERR'}, 6: {'client': 1, 'state': 'ERR'}, 7: {'client': 2, 'state': 'ERR'}},
     [('warning', 'queue pair 5 of client 1 is in state ERR')]),
    ('lcores', {0: {'ejected_programs': 1}}, {0: {'ejected_programs': 2}},
     [('warning', 'lcore 0: a program failed because the lcore was stuck at it')]),
    ('clients', {n: {'program': 'p', 'pid': n} for n in range(12)}, {},
     [('note', f'program p, pid {n} has gone') for n in range(10)] +
     [('note', '2 more, the last: program p, pid 11 has gone')]),
]


def differences(tap, usertools):
    sys.path.insert(0, usertools)
    import karst_watch
    kinds = {'ports': karst_watch.port_events, 'qps': karst_watch.qp_events,
             'lcores': karst_watch.lcore_events, 'clients': karst_watch.client_events}
    for what, before, after, wanted in ROWS:
        found = list(kinds[what](before, after))
        tap.point(f'events: {what}, {wanted[0][1]}', [] if found == wanted else [f'{found}'])


def grafana(tap, bed, root):
    problems, values = scrape(bed, '--qps')
    problems += dashboard.problems(os.path.join(root, 'config', 'grafana', 'karst.json'), values)
    tap.point("Grafana's dashboard asks for what is served", problems)
    labels = dashboard.labels_of(values)
    wrong = [
        ('rate(karst_no_such_total{engine="x"}[$__rate_interval])', '', 'is not served'),
        ('karst_rx_bytes_total{engine="x"}', '', 'a rate is of'), ('rate(karst_qps{engine="x"}[$__rate_interval])', '',
                                                                   'a rate is of'),
        ('karst_qps{lcore="0"}', '', 'has no label'), ('karst_qps{engine="x"}', '{{lcore}}', 'the legend has'),
        ('sum by (reason) (rate(karst_rx_bytes_total{engine="x"}[$__rate_interval]))', '', 'no such labels'),
        ('summ(karst_qps{engine="x"})', '', 'not a word'), ('sum(karst_qps{engine="x"}', '', 'do not close'),
        ('karst_qps{engine="$engin"}', '', 'is not a variable'), ('karst_qps', '', 'without a selector'),
    ]
    tap.point('and a query that asks for something else is found', [
        f'{expr}: {dashboard.judge_query(expr, legend, labels)}' for expr, legend, words in wrong
        if words not in ' '.join(dashboard.judge_query(expr, legend, labels))])


# --- in a browser ---

LIVE = 'document.getElementById("status")?.textContent === "live"'
CELLS = '[...document.querySelectorAll("#%s tbody tr")].map((row) => [...row.cells].map((c) => c.textContent))'


def in_browser(tap, client, folder):
    program = browser.find()
    if not program:
        tap.skip('the page in a browser', 'no chromium here (apt-get install chromium)')
        return None
    page = browser.Browser(program, folder)
    page.look(1280, 900, False)
    page.open(f'http://localhost:{client.port}/')
    problems = [] if page.wait(LIVE) else ['it does not come to live', page.evaluate('document.body.innerText')]
    for table, rows in (('ports', 2), ('lcores', 1), ('qps', 10), ('clients', 2)):
        cells = page.evaluate(CELLS % table)
        if len(cells) != rows:
            problems.append(f'{table}: {cells}')
    if not page.wait('document.querySelectorAll("#drops tbody tr th").length > 0'):
        problems.append('no drops')
    if not page.wait('parseFloat(document.querySelector("#tiles dd").textContent) > 0'):
        problems.append('no rate')
    if not page.wait('document.querySelector("#chart .in").getAttribute("points").split(" ").length >= 2'):
        problems.append('no chart')
    tap.point('page: rates, ports, lcores, queue pairs, programs and drops', problems)
    problems = [] if [row[1] for row in page.evaluate(CELLS % 'clients')] == [NAME, NAME] else ['programs']
    if page.evaluate('document.querySelectorAll("main b").length'):
        problems.append('markup')
    tap.point('page: the name of a program is text', problems)
    controls(tap, page)
    looks(tap, page)
    wrong = [url for url in page.requests() if not url.startswith(f'http://localhost:{client.port}/')]
    tap.point('page: no error, no request to elsewhere', page.complaints() + wrong)
    return page


def controls(tap, page):
    problems = []
    page.evaluate('document.getElementById("sort").value = "number"')
    if not page.wait('(() => { const n = [...document.querySelectorAll("#qps tbody th")].map((c) => +c.textContent);'
                     'return n.length === 10 && n.every((x, i) => !i || n[i - 1] < x); })()'):
        problems.append('by number')
    page.evaluate('document.getElementById("pause").click()')
    if page.evaluate('document.getElementById("pause").getAttribute("aria-pressed")') != 'true' or \
            not page.wait('document.getElementById("status").textContent === "paused"'):
        problems.append('pause')
    page.evaluate('document.getElementById("pause").click()')
    if not page.wait(LIVE):
        problems.append('and on')
    tap.point('page: queue pairs by number, pause and on', problems)


def looks(tap, page):
    """Light and dark, wide and narrow; what a screen reader gets."""
    problems, colours = [], {}
    for name, width, height, dark in (('light', 1280, 900, False), ('dark', 1280, 900, True),
                                      ('narrow', 390, 844, False), ('narrow-dark', 320, 700, True)):
        page.look(width, height, dark)
        colours[dark] = page.evaluate('getComputedStyle(document.body).backgroundColor')
        if page.evaluate('document.documentElement.scrollWidth') > width:
            problems.append(f'{name}: wider than the window')
        if os.environ.get('KARST_SCREENSHOTS'):
            page.screenshot(os.path.join(os.environ['KARST_SCREENSHOTS'], f'page-{name}.png'))
    if colours[True] == colours[False]:
        problems.append(f'dark as light: {colours}')
    tap.point('page: light and dark, no wider than a phone', problems)
    names = page.names()
    problems = [f'{role} without a name' for role, name in names
                if role in ('combobox', 'button', 'link', 'region', 'image', 'checkbox') and not name]
    for wanted in (('heading', 'Queue pairs'), ('button', 'Pause'), ('combobox', 'engine'), ('region', 'Ports'),
                   ('columnheader', 'busy %')):
        if wanted not in names:
            problems.append(f'no {wanted[0]} {wanted[1]}')
    tap.point('page: what it tells a screen reader', problems)


def arithmetic(tap, bed, web):
    if not shutil.which('node'):
        tap.skip('page: its arithmetic', 'no node here')
        return
    run = bed.run('node', os.path.join(HERE, 'figures.test.mjs'), os.path.join(web, 'figures.mjs'))
    tap.point('page: its arithmetic', [] if run.returncode == 0 else [run.stderr])


def gone(tap, client, bed, page):
    problems = bed.daemon.stop()
    if client.json('/api/engines') != (200, {'version': 1, 'engines': []}):
        problems.append(f"{client.json('/api/engines')}")
    if client.until('/api/engines', lambda a: not a['engines']) is None or not wait_404(client):
        problems.append('figures of an engine that has gone')
    tap.point('JSON: an engine that has gone', problems)
    if page:
        shown = page.wait('!document.getElementById("problem").hidden && '
                          'document.getElementById("status").textContent === "not live"')
        tap.point('page: an engine that has gone', [] if shown else ['nothing is said'])
        page.close()


def wait_404(client):
    end = time.monotonic() + HANG_S
    while time.monotonic() < end:
        if client.json(f'/api/engines/{ENGINE}')[0] == 404:
            return True
        time.sleep(0.2)
    return False


ENGINE = ''


def run(tap, bed, root, folder):
    global ENGINE  # pylint: disable=global-statement
    ENGINE = bed.name
    web = os.path.join(bed.usertools, 'web')
    exporter = Exporter(bed, '--allow-host', 'Monitor.Example')
    client = Client(exporter.url)
    page = None
    try:
        local_only(tap, client)
        with Background(bed, '--op write --size 4096 --qps 5') as problems:
            tap.point('traffic between five queue pairs and five', problems)
            if problems:
                return
            figures_of(tap, client)
            grafana(tap, bed, root)
            page = in_browser(tap, client, folder)
            pid = client.json(f'/api/engines/{ENGINE}')[1]['clients']['rows'][0]['pid']
        events(tap, client, pid)
        differences(tap, bed.usertools)
        arithmetic(tap, bed, web)
        nonsense(tap, client)
        hosts(tap, client)
        manners(tap, client, web)
        crowd(tap, client, 32)
        readers(tap, bed.usertools)
        at_once(tap, bed.usertools)
        gone(tap, client, bed, page)
        page = None
    finally:
        if page:
            page.close()
        exporter.end()


def main(argv):
    if len(argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    sys.dont_write_bytecode = True
    root, karstd, perf, dump = argv[1:]
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        named = os.path.join(folder, NAME)
        os.symlink(os.path.realpath(perf), named)
        bed = Bed(os.path.join(root, 'usertools'), karstd, named, dump, folder, CONF, 'web')
        bed.points(tap, 'a daemon with two ports that loses packets', lambda: run(tap, bed, root, folder))
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
