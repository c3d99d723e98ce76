# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The HTTP server of karst-exporter: the page (web/), its data (/api), and /metrics.

It changes nothing and does not trust requests: paths are a fixed list, engines are looked up among those
that answer, and methods other than GET and HEAD are refused.  A page of another site cannot read answers
(no CORS).  It cannot read them through a name of its own that it has made resolve to this machine either
(DNS rebinding), because the Host must be an address, this machine's name, or an allowed name.
"""
import errno
import http.server
import ipaddress
import json
import os
import socket
import sys
import threading
import urllib.parse

import karst_observe as observe
import karst_watch

METRICS = 'text/plain; version=0.0.4; charset=utf-8'
PLAIN = 'text/plain; charset=utf-8'
JSON = 'application/json; charset=utf-8'
FILES = {  # path: (file of web/, its type)
    '/': ('index.html', 'text/html; charset=utf-8'),
    '/page.css': ('page.css', 'text/css; charset=utf-8'),
    '/page.mjs': ('page.mjs', 'text/javascript; charset=utf-8'),
    '/figures.mjs': ('figures.mjs', 'text/javascript; charset=utf-8'),
    '/icon.svg': ('icon.svg', 'image/svg+xml'),
}
HEADERS = {
    'Cache-Control': 'no-store',
    'Content-Security-Policy':
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Referrer-Policy': 'no-referrer',
    'X-Content-Type-Options': 'nosniff',
}
MAX_REQUESTS = 32     # answered at a time
ROOM_S = 1            # for a request to end whose connection was closed
MAX_DRAIN = 1 << 16   # bytes of an unexpected body that are read, so that the answer arrives


def load_files():
    here = os.path.dirname(os.path.realpath(__file__))
    found = {}
    for path, (name, kind) in FILES.items():
        with open(os.path.join(here, 'web', name), 'rb') as f:
            found[path] = kind, f.read()
    return found


def host_name(header):
    """The name in a Host header, without port; None if it is none."""
    try:
        return urllib.parse.urlsplit('//' + header).hostname if header.isascii() else None
    except ValueError:
        return None


def host_allowed(header, names):
    """Whether this Host shows that the sender meant the request for this machine."""
    name = host_name(header)
    if not name or any(c in header for c in '/?#@\\ '):
        return False
    try:
        ipaddress.ip_address(name)
        return True  # for a page of another site the Host is a name, never an address
    except ValueError:
        return name.rstrip('.') in names


class Shared:
    """Shares a result of @make among requests that arrive at the same time.  An engine answers few requests
    at once (DPDK's telemetry has ten connections), and many requests must not block others.  One result is
    made at a time, and no request gets a result whose making began before the request."""

    def __init__(self, make):
        self.make = make
        self.lock = threading.Lock()
        self.begun = 0  # number of results begun
        self.made = 0, None  # the newest result: its number, and its value

    def get(self):
        asked = self.begun
        with self.lock:
            if self.made[0] <= asked:
                self.begun += 1
                self.made = self.begun, self.make()
            return self.made[1]


class Handler(http.server.BaseHTTPRequestHandler):
    """One request.  self.server: Server."""

    server_version = 'karst-exporter'
    sys_version = ''
    default_request_version = 'HTTP/1.0'  # answers to requests that are not HTTP have headers, too
    timeout = 10

    def do_GET(self):
        self.server.heard(self.connection)
        hosts = self.headers.get_all('Host') or []
        try:
            url = urllib.parse.urlsplit(self.path)
        except ValueError:
            url = None
        if len(hosts) > 1:
            self.say(400, 'more than one Host')
        elif hosts and not host_allowed(hosts[0], self.server.names):
            self.say(421, f'this is not {host_name(hosts[0]) or "a host"}; '
                     'karst-exporter --allow-host allows names')
        elif url is None:
            self.say(400, 'the target is no URL')
        elif url.path == '/metrics':
            self.answer(200, METRICS, self.server.metrics.get().encode())
        elif url.path in self.server.files:
            self.answer(200, *self.server.files[url.path])
        elif url.path.startswith('/api/'):
            self.api(url)
        else:
            self.say(404, 'there are /, /metrics and /api/engines')

    do_HEAD = do_GET

    def __getattr__(self, name):
        if name.startswith('do_'):  # every other method
            return self.wrong_method
        raise AttributeError(name)

    def wrong_method(self):
        length = self.headers.get('Content-Length', '')
        if length.isascii() and length.isdigit() and len(length) < 10:
            self.rfile.read(min(int(length), MAX_DRAIN))
        self.say(405, 'only GET and HEAD', Allow='GET, HEAD')

    def api(self, url):
        parts = url.path.split('/')[2:]
        try:
            if parts == ['engines']:
                self.json(200, self.server.watch.list())
            elif len(parts) == 2 and parts[0] == 'engines' and parts[1]:
                qps, sort = karst_watch.query(urllib.parse.parse_qsl(
                    url.query, keep_blank_values=True, max_num_fields=8))
                self.json(200, self.server.watch.snapshot(urllib.parse.unquote(parts[1]), qps, sort))
            else:
                self.json(404, {'error': 'there are /api/engines and /api/engines/ID'})
        except karst_watch.NotThere as e:
            self.json(404, {'error': f'no engine {e} answers'})
        except ValueError as e:
            self.json(400, {'error': str(e)})
        except observe.Failure as e:
            self.json(503, {'error': str(e)})

    def json(self, status, what):
        self.answer(status, JSON, json.dumps(what, separators=(',', ':')).encode())

    def say(self, status, text, **headers):
        self.answer(status, PLAIN, f'{text}\n'.encode(), **headers)

    def send_error(self, code, message=None, explain=None):
        """Answers requests that http.server rejects; its own answer would be HTML that contains the request."""
        self.close_connection = True
        self.say(code, self.responses.get(code, ('',))[0])

    def answer(self, status, kind, body, **headers):
        self.send_response(status)
        for name, value in {'Content-Type': kind, 'Content-Length': str(len(body)), **HEADERS,
                            **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def log_message(self, format, *values):  # pylint: disable=redefined-builtin
        pass


class Server(http.server.ThreadingHTTPServer):
    """Listens at @listen, (host, port).  @allowed: more names of this machine.  @metrics: makes the text
    of /metrics.  @find: finds engines.  OSError: cannot listen, or a file of the page is missing."""

    def __init__(self, listen, allowed, metrics, find):
        host, port = listen
        self.address_family = socket.AF_INET6 if ':' in host else socket.AF_INET
        self.files = load_files()
        self.metrics = Shared(metrics)
        self.watch = karst_watch.Watch(find)
        own = socket.gethostname()
        self.names = {name.lower().rstrip('.')
                      for name in ('localhost', host, own, own.split('.')[0], *allowed)}
        self.room = threading.BoundedSemaphore(MAX_REQUESTS)
        self.lock = threading.Lock()
        self.asking = {}  # connections whose request has not arrived yet, the oldest first
        self.answered = {}  # the others
        where = f'[{host}]' if ':' in host else host
        try:
            super().__init__((host, port), Handler)
        except OSError as e:
            raise OSError(e.errno, e.strerror, f'{where}:{port}') from e
        except (TypeError, UnicodeError) as e:  # it cannot be encoded: a part of it is too long, for example
            raise OSError(errno.EINVAL, 'not the name of a host', f'{where}:{port}') from e
        self.url = f'http://{where}:{self.server_address[1]}/'

    def process_request(self, request, client_address):
        if not self.room.acquire(blocking=False) and not self.make_room():
            self.shutdown_request(request)
            return
        with self.lock:
            self.asking[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.over(request)
            self.room.release()  # no thread was started
            raise

    def make_room(self):
        """A client that sends or reads a byte from time to time could keep its place for ever.  So the
        connection that has waited longest without a complete request is closed; if that frees no place, the
        one that has taken longest since its request."""
        for late in self.asking, self.answered:
            self.hang_up(late)
            if self.room.acquire(timeout=ROOM_S):
                return True
        return False

    def heard(self, request):
        """The request has arrived, and is being answered."""
        with self.lock:
            if request in self.asking:
                del self.asking[request]
                self.answered[request] = None

    def over(self, request):
        with self.lock:
            self.asking.pop(request, None)
            self.answered.pop(request, None)

    def hang_up(self, late):
        with self.lock:
            request = next(iter(late), None)
            if request is not None:
                del late[request]
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has just ended

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.over(request)
            self.room.release()

    def handle_error(self, request, client_address):
        """A client that closes its connection, or never completes its request, is not an error."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)
