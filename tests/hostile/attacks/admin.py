"""The admin port, as TCP and as a Unix socket: whoever reaches it may change what is served, but not take the daemon down.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import socket

from harness import http2
from harness.http2 import frame
from attacks.common import REGISTERED, Attack, field, in_parallel
from attacks.wire import EMPTY, NO_WINDOW, bomb

LOAD = "/ulfd.admin.v1.AdminService/LoadModel"
RELOAD = "/ulfd.admin.v1.AdminService/ReloadConfig"


def _wire(site, settings=b""):
    target = site.daemon.admin_target
    if not target.startswith("unix:"):
        return site.wire(settings, port=int(target.rpartition(":")[2]))
    over = socket.socket(socket.AF_UNIX)
    over.settimeout(10)
    over.connect(target[len("unix:"):])
    return site.wire(settings, over=site.keep(over))


def _connections(site):
    def work(_):
        while not site.over():
            try:
                _wire(site).close()
                site.count("connected")
            except OSError:
                site.count("refused")
    in_parallel(work, 4)


def _idle(site):
    for _ in range(2000):
        if site.over():
            break
        _wire(site)
    site.hold()


def _bytes(data, site):
    while not site.over():
        wire = _wire(site)
        while not site.over() and site.push(wire, data):
            pass
        wire.close()


def _endless_headers(site):
    while not site.over():
        wire = _wire(site)
        site.push(wire, frame(http2.HEADERS, 0, 1, http2.call_headers(LOAD)))
        while not site.over() and site.push(wire, ENDLESS):
            pass
        wire.close()


def _indexed_headers(site):
    for _ in range(40):
        wire = _wire(site)
        block = http2.call_headers(LOAD) + b"\x90" * 250
        site.push(wire, b"".join(frame(http2.HEADERS, http2.END_HEADERS, stream, block) for stream in range(1, 801, 2)))
    site.hold()


def _calls(path, body, n, settings, site):
    site.streams(_wire(site, settings), path, body, n)
    site.hold()


def _large(message, site):
    data = http2.grpc_message(message)
    while not site.over():
        wire = _wire(site)
        while site.deliver(wire, LOAD, data):
            site.answered(wire)
        wire.close()


def _bomb(site):
    body = bomb(512 << 20, 31)
    site.begin()
    wire = _wire(site)
    if site.deliver(wire, LOAD, body, [("grpc-encoding", "gzip")]):
        site.answered(wire)


ENDLESS = frame(http2.CONTINUATION, 0, 1, http2.header_block([("x-more", "y" * 1000)] * 16)) * 16
for _scene in ("admin", "unix"):
    for _name, _what, _work, _short in (
            ("connections", "connects and closes as fast as it can", _connections, False),
            ("idle connections", "2000 of them", _idle, False),
            ("headers without end", "CONTINUATION frames full of headers", _endless_headers, False),
            ("indexed headers on many streams", "40 connections of 400 calls without message", _indexed_headers, False),
            ("SETTINGS flood", "empty frames", functools.partial(_bytes, frame(http2.SETTINGS) * 5000), False),
            ("unknown models", "20000 x LoadModel", functools.partial(
                _calls, LOAD, http2.grpc_message(field(1, b"no-such-model")), 20000, b""), _scene == "admin"),
            ("window of 0", "20000 x LoadModel, nothing is read", functools.partial(
                _calls, LOAD, http2.grpc_message(field(1, b"no-such-model")), 20000, NO_WINDOW), False),
            ("8 million fields", "messages of 16 MB", functools.partial(_large, b"\x7a\x00" * (8 << 20)), False),
            ("gzip bomb", "512 MB of zeros", _bomb, False),
            ("reloads", "20000 x ReloadConfig", functools.partial(_calls, RELOAD, EMPTY, 20000, b""), False)):
        REGISTERED.append(Attack(f"{_scene}: {_name}", _what, _work, scene=_scene, short=_short))

